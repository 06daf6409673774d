#include <string.h>

#include "core/json/json.h"
#include "core/picture/picture.h"

#include "picture_style.inc"

static const char *const kinds[] = {"node", "module", "group"};
static const char *const states[] = {"kept", "added", "removed", "changed"};

/* ---- JSON ---------------------------------------------------------------------------------------------------------------- */

static void write_shape(const fb_graph *graph, fb_value shape, fb_buffer *out) {
    const fb_value_row *list = fb_value_at(graph, shape);
    fb_buffer_char(out, '[');
    for (uint32_t i = 0; i < list->count; i++) {
        int64_t size;
        const char *text = fb_value_text(graph, list->items[i]);
        fb_put_comma(out);
        if (fb_value_is_int(graph, list->items[i], &size)) fb_buffer_int(out, size);
        else fb_buffer_json_string(out, text ? text : "?", strlen(text ? text : "?"));
    }
    fb_buffer_char(out, ']');
}

static void write_value(const fb_graph *graph, fb_node n, fb_buffer *out) {
    const fb_node_row *row = fb_node_at(graph, n);
    if (row->shape.id) {
        fb_put_name(out, "shape");
        write_shape(graph, row->shape, out);
    }
    if (row->dtype) fb_put_text(out, "dtype", fb_dtype_name((fb_dtype)row->dtype));
}

static void write_call(const fb_graph *graph, fb_node n, fb_buffer *out) {
    const fb_node_row *row = fb_node_at(graph, n);
    fb_put_text(out, "op", fb_opcode_name((fb_opcode)row->opcode));
    fb_put_text(out, "target", fb_text(graph, row->target));
}

static void write_tally(const fb_picture_tally *tally, bool has_base, fb_buffer *out) {
    fb_put_int(out, "nodes", tally->nodes);
    if (!has_base) return;
    fb_put_int(out, "added", tally->added);
    fb_put_int(out, "removed", tally->removed);
    fb_put_int(out, "changed", tally->changed);
}

static void write_box(const fb_picture *picture, uint32_t id, fb_buffer *out) {
    const fb_picture_box *box = &picture->boxes[id];
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_int(out, "id", id);
    fb_put_int(out, "parent", box->parent);
    fb_put_text(out, "kind", kinds[box->kind]);
    fb_put_text(out, "key", box->key);
    fb_put_text(out, "label", box->label);
    fb_put_text(out, "detail", box->detail);
    fb_put_bool(out, "open", box->is_open);
    fb_put_text(out, "state", states[box->state]);
    write_tally(&box->tally, picture->base, out);
    if (box->refused) fb_put_int(out, "refused", box->refused);
    if (box->now.id) write_call(picture->graph, box->now, out);
    else if (box->was.id) write_call(picture->base, box->was, out);
    if (box->value.id) write_value(box->value_is_old ? picture->base : picture->graph, box->value, out);
    if (box->state == FB_PICTURE_CHANGED && box->was.id) {
        fb_put_name(out, "was");
        fb_buffer_char(out, '{');
        write_call(picture->base, box->was, out);
        write_value(picture->base, box->was, out);
        fb_buffer_char(out, '}');
    }
    fb_put_int(out, "x", box->x);
    fb_put_int(out, "y", box->y);
    fb_put_int(out, "width", box->width);
    fb_put_int(out, "height", box->height);
    fb_buffer_char(out, '}');
}

static void write_line(const fb_picture_line *line, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_int(out, "from", line->from);
    fb_put_int(out, "to", line->to);
    fb_put_text(out, "state", states[line->state]);
    fb_put_int(out, "count", line->count);
    fb_put_name(out, "points");
    fb_buffer_char(out, '[');
    for (uint32_t i = 0; i < 2 * line->point_count; i++) {
        fb_put_comma(out);
        fb_buffer_int(out, line->points[i]);
    }
    fb_buffer_string(out, "]}");
}

static void write_change(const fb_picture_change *change, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "node", change->node);
    fb_put_name(out, "module");
    fb_buffer_json_string(out, change->module, change->module_size);
    fb_put_text(out, "state", states[change->state]);
    fb_put_text(out, "detail", change->detail);
    fb_buffer_char(out, '}');
}

void fb_picture_write(const fb_picture *picture, fb_buffer *out) {
    const fb_picture_box *sheet = &picture->boxes[0];
    fb_put_int(out, "width", sheet->width);
    fb_put_int(out, "height", sheet->height);
    write_tally(&sheet->tally, picture->base, out);
    fb_put_int(out, "left_closed", picture->left_closed);
    fb_put_int(out, "lines_left_out", (int64_t)picture->lines_left_out);
    fb_put_name(out, "boxes");
    fb_buffer_char(out, '[');
    for (uint32_t b = 1; b < picture->box_count; b++) write_box(picture, b, out);
    fb_buffer_char(out, ']');
    fb_put_name(out, "lines");
    fb_buffer_char(out, '[');
    for (uint32_t i = 0; i < picture->line_count; i++) write_line(&picture->lines[i], out);
    fb_buffer_char(out, ']');
    if (!picture->base) return;
    fb_put_name(out, "changes");
    fb_buffer_char(out, '[');
    for (uint32_t i = 0; i < picture->change_count; i++) write_change(&picture->changes[i], out);
    fb_buffer_char(out, ']');
    fb_put_int(out, "changes_left_out", picture->changes_left_out);
}

/* ---- SVG ----------------------------------------------------------------------------------------------------------------- */

static void write_at(const char *class, int x, int y, const char *anchor, const char *text, fb_buffer *out) {
    fb_buffer_printf(out, "<text class=\"%s\" x=\"%d\" y=\"%d\"%s>", class, x, y, anchor);
    fb_buffer_xml_text(out, text);
    fb_buffer_string(out, "</text>");
}

static int sign(int x) {
    return (x > 0) - (x < 0);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

static int size(int x) {
    return x < 0 ? -x : x;
}

/* Corners are round. */
static void write_path(const fb_picture_line *line, fb_buffer *out) {
    const int *p = line->points;
    uint32_t last = line->point_count - 1;
    fb_buffer_printf(out, "M%d %d", p[0], p[1]);
    for (uint32_t i = 1; i < last; i++) {
        const int *at = p + 2 * i;
        int in_x = at[0] - at[-2], in_y = at[1] - at[-1], out_x = at[2] - at[0], out_y = at[3] - at[1];
        int r = least(5, least(size(in_x + in_y), size(out_x + out_y)) / 2);
        fb_buffer_printf(out, "L%d %dQ%d %d %d %d", at[0] - r * sign(in_x), at[1] - r * sign(in_y), at[0], at[1],
                         at[0] + r * sign(out_x), at[1] + r * sign(out_y));
    }
    fb_buffer_printf(out, "L%d %d", p[2 * last], p[2 * last + 1]);
}

static void write_svg_line(const fb_picture_line *line, fb_buffer *out) {
    if (line->point_count < 2) return;
    fb_buffer_printf(out, "<path class=\"line %s\" marker-end=\"url(#end-%s)\" d=\"", states[line->state], states[line->state]);
    write_path(line, out);
    fb_buffer_string(out, "\"/>\n");
}

static void write_svg_tally(const fb_picture_box *box, fb_buffer *out) {
    const fb_picture_tally *tally = &box->tally;
    if (!tally->added && !tally->removed && !tally->changed) return;
    fb_buffer_printf(out, "<text class=\"tally\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", box->x + box->width - 9, box->y + 18);
    if (tally->added) fb_buffer_printf(out, "<tspan class=\"added\">+%u </tspan>", tally->added);
    if (tally->removed) fb_buffer_printf(out, "<tspan class=\"removed\">−%u </tspan>", tally->removed);
    if (tally->changed) fb_buffer_printf(out, "<tspan class=\"changed\">~%u</tspan>", tally->changed);
    fb_buffer_string(out, "</text>");
}

/* "2×16×768 float32", below the box. */
static void write_svg_shape(const fb_picture *picture, const fb_picture_box *box, fb_buffer *out) {
    if (!box->value.id) return;
    const fb_graph *graph = box->value_is_old ? picture->base : picture->graph;
    const fb_node_row *row = fb_node_at(graph, box->value);
    if (!row->shape.id) return;
    const fb_value_row *list = fb_value_at(graph, row->shape);
    fb_buffer_printf(out, "<text class=\"shape\" x=\"%d\" y=\"%d\">", box->x + box->width / 2 + 5, box->y + box->height + 12);
    for (uint32_t i = 0; i < list->count && i < 8; i++) {
        int64_t length;
        const char *text = fb_value_text(graph, list->items[i]);
        if (i) fb_buffer_string(out, "×");
        if (fb_value_is_int(graph, list->items[i], &length)) fb_buffer_int(out, length);
        else fb_buffer_xml_text(out, text && strlen(text) < 12 ? text : "?");
    }
    if (row->dtype && row->dtype != FB_FLOAT32) fb_buffer_printf(out, " %s", fb_dtype_name((fb_dtype)row->dtype));
    fb_buffer_string(out, "</text>");
}

static void write_svg_badge(const fb_picture_box *box, fb_buffer *out) {
    int right = box->x + box->width;
    fb_buffer_printf(out, "<g class=\"badge\"><rect x=\"%d\" y=\"%d\" width=\"54\" height=\"16\" rx=\"8\"/>", right - 50,
                     box->y - 13);
    write_at("", right - 23, box->y - 1, " text-anchor=\"middle\"", "refused", out);
    fb_buffer_string(out, "</g>");
}

static void write_svg_box(const fb_picture *picture, const fb_picture_box *box, fb_buffer *out) {
    fb_buffer_printf(out, "<g class=\"box %s %s%s\"><title>", kinds[box->kind], states[box->state],
                     box->is_open ? " open" : "");
    fb_buffer_xml_text(out, box->key);
    fb_buffer_printf(out, "</title><rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" rx=\"6\"/>", box->x, box->y, box->width,
                     box->height);
    write_at("label", box->x + 10, box->y + 17, "", box->label, out);
    if (!box->is_open) write_at("detail", box->x + 10, box->y + 32, "", box->detail, out);
    if (box->kind != FB_BOX_NODE) write_svg_tally(box, out);
    if (!box->is_open) write_svg_shape(picture, box, out);
    if (box->refused) write_svg_badge(box, out);
    fb_buffer_string(out, "</g>\n");
}

void fb_picture_write_svg(const fb_picture *picture, fb_buffer *out) {
    const fb_picture_box *sheet = &picture->boxes[0];
    const char *name = fb_graph_name(picture->graph);
    int width = sheet->width > 40 ? sheet->width : 40, height = sheet->height > 40 ? sheet->height : 40;
    fb_buffer_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d "
                     "%d\" role=\"img\">\n<title>",
                     width, height, width, height);
    fb_buffer_xml_text(out, *name ? name : "graph");
    fb_buffer_string(out, "</title>\n<style>");
    fb_buffer_string(out, style); /* without markup of its own */
    fb_buffer_string(out, "</style>\n<defs>");
    for (unsigned i = 0; i < sizeof states / sizeof *states; i++)
        fb_buffer_printf(out,
                         "<marker id=\"end-%s\" class=\"end %s\" viewBox=\"0 0 6 6\" refX=\"5\" refY=\"3\" markerWidth=\"6\" "
                         "markerHeight=\"6\" orient=\"auto\"><path d=\"M0 0L6 3L0 6z\"/></marker>",
                         states[i], states[i]);
    fb_buffer_printf(out, "</defs>\n<rect class=\"sheet\" width=\"%d\" height=\"%d\"/>\n", width, height);
    for (uint32_t b = 1; b < picture->box_count; b++)
        if (picture->boxes[b].is_open) write_svg_box(picture, &picture->boxes[b], out);
    for (uint32_t i = 0; i < picture->line_count; i++) write_svg_line(&picture->lines[i], out);
    for (uint32_t b = 1; b < picture->box_count; b++)
        if (!picture->boxes[b].is_open) write_svg_box(picture, &picture->boxes[b], out);
    fb_buffer_string(out, "</svg>\n");
}
