/* libFuzzer: whatever one or two graphs come, they give a picture: few boxes, each in the one around it, that stand for every
 * node once; lines between boxes that are drawn; JSON that is valid. The input is a document, or two with a NUL between; as
 * many spaces before it as the number of the node that is to be seen. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/json/json.h"
#include "core/picture/picture.h"

static void check_boxes(const fb_picture *picture) {
    uint32_t drawn = 0;
    require(picture->box_count - 1 <= FB_PICTURE_BOXES);
    for (uint32_t b = 1; b < picture->box_count; b++) {
        const fb_picture_box *box = &picture->boxes[b], *around = &picture->boxes[box->parent];
        require(box->parent < b && around->is_open && box->width > 0 && box->height > 0);
        require(box->x >= around->x && box->x + box->width <= around->x + around->width);
        require(box->y >= around->y && box->y + box->height <= around->y + around->height);
        if (!box->is_open) drawn += box->tally.nodes;
    }
    require(drawn == picture->boxes[0].tally.nodes);
}

static void check_lines(const fb_picture *picture) {
    require(picture->line_count <= FB_PICTURE_LINES);
    for (uint32_t i = 0; i < picture->line_count; i++) {
        const fb_picture_line *line = &picture->lines[i];
        require(line->from < picture->box_count && line->to < picture->box_count && line->point_count >= 2);
        require(!picture->boxes[line->from].is_open && !picture->boxes[line->to].is_open);
    }
}

static void check_texts(const fb_picture *picture) {
    fb_buffer json = {0}, svg = {0};
    fb_buffer_char(&json, '{');
    fb_picture_write(picture, &json);
    fb_buffer_char(&json, '}');
    fb_picture_write_svg(picture, &svg);
    require(!json.failed && !svg.failed);
    json_t *tree = json_loadb(json.data, json.size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    require(tree && json_array_size(json_object_get(tree, "boxes")) == picture->box_count - 1);
    json_decref(tree);
    fb_buffer_free(&json);
    fb_buffer_free(&svg);
}

/* The node of that number, from 1 on; NULL where there are not so many. */
static const char *name_of(const fb_graph *graph, size_t number) {
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (size_t i = 1; n.id && i < number; i++) n = fb_node_at(graph, n)->next;
    return number && n.id ? fb_node_name(graph, n) : NULL;
}

static void check(const fb_graph *base, const fb_graph *graph, size_t seen) {
    fb_picture picture;
    fb_error error = {0};
    const char *at = name_of(graph, seen);
    fb_picture_mark mark = {.node = at ? at : "nobody", .group = 1};
    fb_picture_options options = {
        .at = at, .depth = (int)(seen % 9) + FB_PICTURE_DEPTH_USUAL, .refused = &mark, .refused_count = 1};
    require(fb_picture_make(base, graph, &options, &(fb_work){0}, &picture, &error) == FB_OK);
    check_boxes(&picture);
    check_lines(&picture);
    check_texts(&picture);
    fb_picture_free(&picture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t seen = 0;
    while (seen < size && data[seen] == ' ') seen++;
    const char *nul = memchr(data, '\0', size);
    size_t first = nul ? (size_t)(nul - (const char *)data) : size;
    fb_graph *base = nul ? fuzz_read((const char *)data, first) : NULL;
    fb_graph *graph = fuzz_read(nul ? nul + 1 : (const char *)data, nul ? size - first - 1 : size);
    if (graph) check(base, graph, seen);
    fb_graph_free(base);
    fb_graph_free(graph);
    return 0;
}
