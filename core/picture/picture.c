/* Chooses the boxes of a picture and the lines between them; place.c places them. */
#include "core/picture/picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/operators/onnx.h"
#include "core/picture/rows.h"

#define SURVEYED 60         /* boxes that are opened unasked */
#define NEIGHBOURS_MOST 120 /* in one module, before they are grouped */
#define GROUPS 60           /* that they make then */
#define LABEL_MOST 34       /* characters */

typedef struct picturing {
    fb_picture *picture;
    fb_drawn_rows rows;
    const fb_picture_options *options;
    uint32_t at; /* a row, or 0 */
} picturing;

/* ---- what is written on a box -------------------------------------------------------------------------------------------- */

/* As many characters as fit, and an ellipsis. */
static const char *cut(fb_arena *arena, const char *text, size_t size) {
    size_t characters = 0, end = 0;
    for (size_t i = 0; i < size; i++) {
        if (((unsigned char)text[i] & 0xC0) == 0x80) continue;
        if (characters++ == LABEL_MOST - 1) end = i;
    }
    if (characters <= LABEL_MOST) return fb_arena_text(arena, text, size);
    char *out = fb_arena_alloc(arena, end + 4);
    if (!out) return NULL;
    memcpy(out, text, end);
    memcpy(out + end, "…", 4);
    return out;
}

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static char folded(char c) {
    return !is_word(c) ? '_' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* The part of a node's name that does not repeat the modules around it: "query" of encoder_layer_0_attention_self_query. */
static const char *short_name(const picturing *p, uint32_t place, const char *name) {
    const fb_place *around = &p->rows.places[place];
    for (uint32_t i = 0; i < around->path_size; i++)
        if (!name[i] || folded(name[i]) != folded(around->path[i])) return name;
    const char *rest = name + around->path_size;
    return around->path_size && rest[0] == '_' && rest[1] && !(rest[1] >= '0' && rest[1] <= '9') ? rest + 1 : name;
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && dot[1] ? dot + 1 : path;
}

/* Of ONNX the operator with its version, and the domain but for the default one: `Softmax.v13`, `com.microsoft.Gelu.v1`. */
static const char *short_target(const char *target) {
    static const char *const prefixes[] = {"torch.ops.", FB_ONNX_FUNCTION, FB_ONNX_DEFAULT};
    const char *last = last_part(target);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (strncmp(target, prefixes[i], strlen(prefixes[i])) == 0) return target + strlen(prefixes[i]);
    return *last == 'v' && last[1] && !last[1 + strspn(last + 1, "0123456789")] ? target : last;
}

/* "aten.add.Tensor" and "softmax": what is called, as people say it. */
static const char *what_of(const fb_graph *graph, fb_node n) {
    const fb_node_row *row = fb_node_at(graph, n);
    const char *target = fb_text(graph, row->target);
    switch (row->opcode) {
    case FB_PLACEHOLDER: return "input";
    case FB_OUTPUT: return "output";
    case FB_GET_ATTR: return "attribute";
    case FB_CALL_MODULE: return row->module.id ? last_part(fb_text(graph, fb_module_at(graph, row->module)->type)) : "module";
    case FB_CALL_METHOD: return target;
    default: return short_target(target);
    }
}

static const char *node_detail(picturing *p, const fb_drawn *row) {
    fb_arena *arena = &p->picture->arena;
    const char *now = row->now.id ? what_of(p->rows.graph, row->now) : NULL;
    const char *was = row->was.id && p->rows.base ? what_of(p->rows.base, row->was) : NULL;
    const char *one = now ? now : was;
    if (!now || !was || row->state != FB_PICTURE_CHANGED) return cut(arena, one, strlen(one));
    static const char *const others[] = {"changed", "other arguments", "other weights"};
    fb_buffer both = {0};
    if (strcmp(was, now) != 0) fb_buffer_printf(&both, "%s → %s", was, now);
    else fb_buffer_printf(&both, "%s · %s", now, others[row->change]);
    const char *text = fb_buffer_text(&both) ? cut(arena, both.data, both.size) : NULL;
    fb_buffer_free(&both);
    return text;
}

/* "BertLayer · 34 nodes" */
static const char *place_detail(picturing *p, uint32_t place) {
    const fb_place *row = &p->rows.places[place];
    char *path = fb_arena_text(&p->picture->arena, row->path, row->path_size);
    if (!path) return NULL;
    fb_module m = fb_module_find(p->rows.graph, path);
    const char *type = m.id ? last_part(fb_text(p->rows.graph, fb_module_at(p->rows.graph, m)->type)) : "";
    fb_buffer text = {0};
    if (*type && strcmp(type, "Module") != 0) fb_buffer_printf(&text, "%s · ", type);
    fb_buffer_printf(&text, "%u node%s", row->tally.nodes, row->tally.nodes == 1 ? "" : "s");
    const char *detail = fb_buffer_text(&text) ? cut(&p->picture->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    return detail;
}

/* ---- boxes --------------------------------------------------------------------------------------------------------------- */

static fb_picture_state state_of(const fb_picture_tally *tally) {
    if (tally->added == tally->nodes && tally->nodes) return FB_PICTURE_ADDED;
    if (tally->removed == tally->nodes && tally->nodes) return FB_PICTURE_REMOVED;
    return tally->added || tally->removed || tally->changed ? FB_PICTURE_CHANGED : FB_PICTURE_KEPT;
}

static fb_item after(const picturing *p, fb_item item) {
    return item.id & FB_ITEM_IS_PLACE ? p->rows.places[item.id & ~FB_ITEM_IS_PLACE].next : p->rows.rows[item.id].next;
}

/* A module that contains nothing but one other module is drawn as that one. */
static uint32_t shown_place(const picturing *p, uint32_t place) {
    const fb_place *row = &p->rows.places[place];
    while (row->item_count == 1 && row->first.id & FB_ITEM_IS_PLACE) {
        place = row->first.id & ~FB_ITEM_IS_PLACE;
        row = &p->rows.places[place];
    }
    return place;
}

static uint32_t add_box(picturing *p, uint32_t parent) {
    uint32_t b = p->picture->box_count++;
    p->picture->boxes[b] = (fb_picture_box){.parent = parent, .detail = ""};
    p->picture->boxes[parent].child_count++;
    return b;
}

static bool add_node_box(picturing *p, uint32_t parent, uint32_t row_id) {
    uint32_t b = add_box(p, parent);
    fb_picture_box *box = &p->picture->boxes[b];
    fb_drawn *row = &p->rows.rows[row_id];
    const char *name = row->now.id ? fb_node_name(p->rows.graph, row->now) : fb_node_name(p->rows.base, row->was);
    const char *label = short_name(p, row->place, name);
    row->box = b;
    box->kind = FB_BOX_NODE;
    box->key = name;
    box->label = cut(&p->picture->arena, label, strlen(label));
    box->detail = node_detail(p, row);
    box->state = row->state;
    box->was = row->was, box->now = row->now;
    box->tally = (fb_picture_tally){1, row->state == FB_PICTURE_ADDED, row->state == FB_PICTURE_REMOVED,
                                    row->state == FB_PICTURE_CHANGED};
    return box->label && box->detail;
}

static bool add_place_box(picturing *p, uint32_t parent, uint32_t place) {
    fb_arena *arena = &p->picture->arena;
    uint32_t around = p->picture->boxes[parent].place, shown = shown_place(p, place), b = add_box(p, parent);
    fb_picture_box *box = &p->picture->boxes[b];
    const fb_place *row = &p->rows.places[shown], *outer = &p->rows.places[around];
    size_t from = outer->path_size ? outer->path_size + 1 : 0;
    for (uint32_t inner = shown; inner != around; inner = p->rows.places[inner].parent) p->rows.places[inner].box = b;
    box->kind = FB_BOX_MODULE;
    box->place = shown;
    box->first_item = row->first.id;
    box->item_count = row->item_count;
    box->key = fb_arena_text(arena, row->path, row->path_size);
    box->label = from < row->path_size ? cut(arena, row->path + from, row->path_size - from) : "";
    box->detail = place_detail(p, shown);
    box->tally = row->tally;
    box->state = state_of(&row->tally);
    return box->key && box->label && box->detail;
}

static uint32_t first_row(const picturing *p, fb_item item) {
    while (item.id & FB_ITEM_IS_PLACE) item = p->rows.places[item.id & ~FB_ITEM_IS_PLACE].first;
    return item.id;
}

static const char *row_name(const picturing *p, uint32_t row) {
    const fb_drawn *drawn = &p->rows.rows[row];
    return drawn->now.id ? fb_node_name(p->rows.graph, drawn->now) : fb_node_name(p->rows.base, drawn->was);
}

/* The number that a module is called by among its neighbours: 3 of "layers.3"; -1 = it is no module, or has a name. */
static int64_t number_of(const picturing *p, fb_item item) {
    if (!(item.id & FB_ITEM_IS_PLACE)) return -1;
    const fb_place *row = &p->rows.places[item.id & ~FB_ITEM_IS_PLACE];
    uint32_t from = row->path_size;
    int64_t number = 0;
    while (from && row->path[from - 1] >= '0' && row->path[from - 1] <= '9') from--;
    if (from == row->path_size || row->path_size - from > 9 || (from && row->path[from - 1] != '.')) return -1;
    for (uint32_t i = from; i < row->path_size; i++) number = number * 10 + (row->path[i] - '0');
    return number;
}

/* Items that stay together: a numbered module, as one of repeated layers is, with what follows it up to the next; before the
 * first one, and where none is numbered, each item alone. */
typedef struct unit {
    fb_item first, next;
    uint32_t items;
    int64_t number;
} unit;

/* `left` items are there from `item` on. */
static unit unit_at(const picturing *p, fb_item item, uint32_t left) {
    unit u = {.first = item, .next = after(p, item), .items = 1, .number = number_of(p, item)};
    while (u.number >= 0 && u.items < left && number_of(p, u.next) < 0) {
        u.next = after(p, u.next);
        u.items++;
    }
    return u;
}

/* How many of its units become one box. */
static uint32_t group_size(const picturing *p, const fb_picture_box *box) {
    static const uint32_t steps[] = {1, 2, 5};
    uint32_t units = 0, size = 1;
    if (box->item_count <= NEIGHBOURS_MOST) return 0; /* each item is one */
    fb_item item = {box->first_item};
    for (uint32_t left = box->item_count; left && fb_work_goes_on(p->rows.work, 1); units++) {
        unit u = unit_at(p, item, left);
        item = u.next;
        left -= u.items;
    }
    for (uint32_t i = 0, tens = 1; (units + size - 1) / size > GROUPS; size = steps[i % 3] * tens) /* 1, 2, 5, 10, 20 … */
        if (++i % 3 == 0) tens *= 10;
    return size;
}

static uint32_t children_of(const picturing *p, const fb_picture_box *box) {
    uint32_t size = group_size(p, box), count = 0;
    fb_item item = {box->first_item};
    if (!size) return box->item_count;
    for (uint32_t left = box->item_count, units = 0; left && fb_work_goes_on(p->rows.work, 1); units++) {
        unit u = unit_at(p, item, left);
        item = u.next;
        left -= u.items;
        count += units % size == 0;
    }
    return count;
}

static void count_in(const picturing *p, fb_item item, fb_picture_tally *tally) {
    fb_picture_tally one = {.nodes = 1};
    if (item.id & FB_ITEM_IS_PLACE) {
        one = p->rows.places[item.id & ~FB_ITEM_IS_PLACE].tally;
    } else {
        fb_picture_state state = p->rows.rows[item.id].state;
        one.added = state == FB_PICTURE_ADDED;
        one.removed = state == FB_PICTURE_REMOVED;
        one.changed = state == FB_PICTURE_CHANGED;
    }
    tally->nodes += one.nodes, tally->added += one.added;
    tally->removed += one.removed, tally->changed += one.changed;
}

/* "layers 0 … 19", or the names of its first and last node. */
static const char *group_label(picturing *p, const fb_place *around, fb_item first, fb_item last, const int64_t numbers[2]) {
    fb_buffer text = {0};
    const char *name = row_name(p, first_row(p, first));
    uint32_t from = around->path_size;
    while (from && around->path[from - 1] != '.') from--;
    if (numbers[0] >= 0) {
        fb_buffer_append(&text, around->path + from, around->path_size - from);
        fb_buffer_printf(&text, "%s%lld", around->path_size ? " " : "", (long long)numbers[0]);
        if (numbers[1] != numbers[0]) fb_buffer_printf(&text, " … %lld", (long long)numbers[1]);
    } else {
        fb_buffer_printf(&text, "%s … %s", name, row_name(p, first_row(p, last)));
    }
    const char *label = fb_buffer_text(&text) ? cut(&p->picture->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    return label;
}

/* Units from `item` on, `size` of them or what is left; `*item` is the one behind them. */
static bool add_group_box(picturing *p, uint32_t parent, fb_item *item, uint32_t *left, uint32_t size) {
    fb_arena *arena = &p->picture->arena;
    uint32_t place = p->picture->boxes[parent].place, b = add_box(p, parent);
    fb_picture_box *box = &p->picture->boxes[b];
    const fb_place *around = &p->rows.places[place];
    fb_item first = *item, last = *item;
    int64_t numbers[2] = {-1, -1}; /* the first and the last */
    box->kind = FB_BOX_GROUP;
    box->place = place;
    box->first_item = item->id;
    for (uint32_t i = 0; i < size && *left && fb_work_goes_on(p->rows.work, 1); i++) {
        unit u = unit_at(p, *item, *left);
        if (numbers[0] < 0) numbers[0] = u.number;
        if (u.number >= 0) numbers[1] = u.number;
        for (uint32_t k = 0; k < u.items; k++, *item = after(p, *item)) count_in(p, last = *item, &box->tally);
        box->item_count += u.items;
        *left -= u.items;
    }
    box->state = state_of(&box->tally);
    fb_buffer key = {0}, detail = {0};
    fb_buffer_append(&key, around->path, around->path_size);
    fb_buffer_printf(&key, "#%s+%u", row_name(p, first_row(p, first)), box->item_count);
    fb_buffer_printf(&detail, "%u nodes", box->tally.nodes);
    box->key = fb_buffer_text(&key) ? fb_arena_text(arena, key.data, key.size) : NULL;
    box->label = group_label(p, around, first, last, numbers);
    box->detail = fb_buffer_text(&detail) ? fb_arena_text(arena, detail.data, detail.size) : NULL;
    fb_buffer_free(&key);
    fb_buffer_free(&detail);
    return box->key && box->label && box->detail;
}

/* Its children become boxes. False: memory is out. */
static bool open_box(picturing *p, uint32_t b) {
    fb_picture_box *box = &p->picture->boxes[b];
    uint32_t size = group_size(p, box), left = box->item_count;
    fb_item item = {box->first_item};
    box->is_open = true;
    box->first_child = p->picture->box_count;
    while (left && fb_work_goes_on(p->rows.work, 1)) {
        fb_item next = after(p, item);
        bool ok;
        if (size > 1 || (size && unit_at(p, item, left).items > 1)) {
            ok = add_group_box(p, b, &item, &left, size);
        } else {
            ok = item.id & FB_ITEM_IS_PLACE ? add_place_box(p, b, item.id & ~FB_ITEM_IS_PLACE) : add_node_box(p, b, item.id);
            item = next;
            left--;
        }
        if (!ok) return false;
    }
    return fb_work_goes_on(p->rows.work, 0);
}

/* ---- which are open ------------------------------------------------------------------------------------------------------ */

static bool holds_row(const picturing *p, const fb_picture_box *box, uint32_t row) {
    if (!row || box->kind == FB_BOX_NODE) return false;
    fb_item item = {box->first_item};
    uint32_t place = p->rows.rows[row].place;
    for (uint32_t i = 0; i < box->item_count && fb_work_goes_on(p->rows.work, 1); i++, item = after(p, item)) {
        if (item.id == row) return true;
        uint32_t inner = item.id & FB_ITEM_IS_PLACE ? item.id & ~FB_ITEM_IS_PLACE : 0;
        for (uint32_t outer = place; inner && outer; outer = p->rows.places[outer].parent)
            if (outer == inner) return true;
    }
    return false;
}

static bool is_named(const picturing *p, const char *key) {
    for (size_t i = 0; i < p->options->open_count; i++)
        if (strcmp(p->options->open[i], key) == 0) return true;
    return false;
}

static bool is_wanted(const picturing *p, const fb_picture_box *box) {
    if (box->kind == FB_BOX_MODULE && p->rows.places[box->place].is_wanted) return true;
    return box->kind == FB_BOX_GROUP && (is_named(p, box->key) || holds_row(p, box, p->at));
}

static void want_place(picturing *p, uint32_t place) {
    for (; place; place = p->rows.places[place].parent) p->rows.places[place].is_wanted = true;
}

static void want_named(picturing *p) {
    for (size_t i = 0; i < p->options->open_count; i++) {
        const char *path = p->options->open[i], *group = strchr(path, '#');
        uint32_t place = fb_place_find(&p->rows, path, strlen(path));
        if (!place && group) place = fb_place_find(&p->rows, path, (size_t)(group - path));
        want_place(p, place);
    }
    if (p->at) want_place(p, p->rows.rows[p->at].place);
}

/* In the order of levels, so that what fits does not depend on what was asked for deeper down. */
static bool open_wanted(picturing *p) {
    fb_picture *picture = p->picture;
    for (uint32_t b = 1; b < picture->box_count; b++) {
        fb_picture_box *box = &picture->boxes[b];
        if (box->kind == FB_BOX_NODE || box->is_open || !is_wanted(p, box)) continue;
        if (picture->box_count - 1 + children_of(p, box) > FB_PICTURE_BOXES) picture->left_closed++;
        else if (!open_box(p, b)) return false;
    }
    return true;
}

/* Level by level. The boxes of a level are a range of their table, because nothing else has been opened yet. */
static bool open_levels(picturing *p) {
    fb_picture *picture = p->picture;
    int depth = p->options->depth;
    for (uint32_t from = 1, to = picture->box_count; from < to && depth; from = to, to = picture->box_count, depth--) {
        uint32_t more = 0;
        for (uint32_t b = from; b < to; b++)
            if (picture->boxes[b].kind == FB_BOX_MODULE) more += children_of(p, &picture->boxes[b]);
        if (!more || (depth < 0 && picture->box_count + more > SURVEYED)) return true;
        for (uint32_t b = from; b < to; b++) {
            const fb_picture_box *box = &picture->boxes[b];
            if (box->kind != FB_BOX_MODULE) continue;
            if (picture->box_count - 1 + children_of(p, box) > FB_PICTURE_BOXES) picture->left_closed++;
            else if (!open_box(p, b)) return false;
        }
    }
    return true;
}

/* ---- the box of each row ------------------------------------------------------------------------------------------------- */

static void find_boxes(picturing *p) {
    fb_picture *picture = p->picture;
    for (uint32_t b = 1; b < picture->box_count; b++) {
        const fb_picture_box *box = &picture->boxes[b];
        if (box->kind != FB_BOX_GROUP || box->is_open) continue;
        fb_item item = {box->first_item};
        for (uint32_t i = 0; i < box->item_count; i++, item = after(p, item)) {
            if (item.id & FB_ITEM_IS_PLACE) p->rows.places[item.id & ~FB_ITEM_IS_PLACE].box = b;
            else p->rows.rows[item.id].box = b;
        }
    }
    /* Everything in a closed box is drawn as that box; a place comes after the one around it. */
    for (uint32_t place = 2; place < p->rows.place_count; place++) {
        uint32_t outer = p->rows.places[p->rows.places[place].parent].box;
        if (outer && !picture->boxes[outer].is_open) p->rows.places[place].box = outer;
    }
    for (uint32_t i = 1; i < p->rows.count && fb_work_goes_on(p->rows.work, 1); i++) {
        uint32_t around = p->rows.places[p->rows.rows[i].place].box;
        if (!p->rows.rows[i].box) p->rows.rows[i].box = around;
    }
}

/* ---- lines --------------------------------------------------------------------------------------------------------------- */

typedef struct lines {
    picturing *p;
    fb_map index;
    uint32_t capacity;
} lines;

static bool add_line(lines *l, uint32_t from_row, uint32_t to_row, bool is_old) {
    fb_picture *picture = l->p->picture;
    uint32_t from = l->p->rows.rows[from_row].box, to = l->p->rows.rows[to_row].box;
    if (!from || !to || from == to) return true;
    fb_picture_box *source = &picture->boxes[from];
    const fb_drawn *row = &l->p->rows.rows[from_row];
    bool is_base = !row->now.id;
    fb_node value = is_base ? row->was : row->now;
    if (!source->value.id) source->value = value, source->value_is_old = is_base;
    else if (source->value.id != value.id || source->value_is_old != is_base) source->value.id = UINT32_MAX;
    uint64_t key = (uint64_t)from << 32 | to;
    uint32_t at = fb_map_get(&l->index, key);
    if (!at) {
        if (picture->line_count == FB_PICTURE_LINES) {
            picture->lines_left_out++;
            return true;
        }
        at = ++picture->line_count;
        if (!fb_map_put(&l->index, key, at)) return false;
        picture->lines[at - 1] = (fb_picture_line){.from = from, .to = to};
    }
    fb_picture_line *line = &picture->lines[at - 1];
    if (is_old) line->in_was++;
    else line->in_now++;
    return true;
}

static bool add_reads(lines *l, const fb_graph *graph, const uint32_t *rows, fb_node n, uint32_t row, bool is_old) {
    for (uint32_t e = fb_input_first(graph, n); e && fb_work_goes_on(l->p->rows.work, 2); e = fb_input_next(graph, e))
        if (!add_line(l, rows[fb_edge_input(graph, e).id], row, is_old)) return false;
    return true;
}

static bool find_lines(picturing *p) {
    lines l = {.p = p};
    fb_drawn_rows *r = &p->rows;
    bool ok = true;
    p->picture->lines = fb_picture_take(&p->picture->arena, FB_PICTURE_LINES, sizeof *p->picture->lines);
    if (!p->picture->lines) return false;
    for (uint32_t i = 1; ok && i < r->count && fb_work_goes_on(r->work, 1); i++) {
        if (r->rows[i].now.id) ok = add_reads(&l, r->graph, r->of_now, r->rows[i].now, i, false);
        if (ok && r->rows[i].was.id) ok = add_reads(&l, r->base, r->of_was, r->rows[i].was, i, true);
    }
    for (uint32_t i = 0; i < p->picture->line_count; i++) {
        fb_picture_line *line = &p->picture->lines[i];
        line->count = line->in_now ? line->in_now : line->in_was;
        line->state = !r->base || (line->in_was && line->in_now) ? FB_PICTURE_KEPT
                      : line->in_now                             ? FB_PICTURE_ADDED
                                                                 : FB_PICTURE_REMOVED;
    }
    for (uint32_t b = 0; b < p->picture->box_count; b++)
        if (p->picture->boxes[b].value.id == UINT32_MAX) p->picture->boxes[b].value.id = 0;
    fb_map_free(&l.index);
    return ok;
}

/* ---- what changed -------------------------------------------------------------------------------------------------------- */

static bool list_changes(picturing *p) {
    fb_picture *picture = p->picture;
    const fb_picture_tally *tally = &picture->boxes[0].tally;
    uint64_t total = (uint64_t)tally->added + tally->removed + tally->changed;
    if (!total) return true;
    picture->changes = fb_picture_take(&picture->arena, FB_PICTURE_CHANGES, sizeof *picture->changes);
    if (!picture->changes) return false;
    for (uint32_t i = 1; i < p->rows.count && fb_work_goes_on(p->rows.work, 1); i++) {
        const fb_drawn *row = &p->rows.rows[i];
        const fb_place *place = &p->rows.places[row->place];
        if (row->state == FB_PICTURE_KEPT) continue;
        if (picture->change_count == FB_PICTURE_CHANGES) {
            picture->changes_left_out = (uint32_t)(total - FB_PICTURE_CHANGES);
            break;
        }
        const char *detail = node_detail(p, row);
        if (!detail) return false;
        picture->changes[picture->change_count++] = (fb_picture_change){.node = row_name(p, i),
                                                                        .detail = detail,
                                                                        .module = place->path,
                                                                        .module_size = place->path_size,
                                                                        .state = row->state};
    }
    return true;
}

/* ---- what was refused ---------------------------------------------------------------------------------------------------- */

static uint32_t row_called(const picturing *p, const char *name) {
    fb_node now = fb_node_find(p->rows.graph, FB_MAIN_PROGRAM, name);
    if (now.id) return p->rows.of_now[now.id];
    fb_node was = p->rows.base ? fb_node_find(p->rows.base, FB_MAIN_PROGRAM, name) : now;
    return was.id ? p->rows.of_was[was.id] : 0;
}

static void count_refusals(picturing *p) {
    for (size_t i = 0; i < p->options->refused_count && fb_work_goes_on(p->rows.work, 1); i++) {
        const fb_picture_mark *mark = &p->options->refused[i];
        uint32_t row = row_called(p, mark->node), b = row ? p->rows.rows[row].box : 0;
        fb_picture_box *box = &p->picture->boxes[b];
        if (!b || box->last_group == mark->group) continue;
        box->last_group = mark->group;
        box->refused++;
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static bool begin(picturing *p) {
    fb_picture *picture = p->picture;
    picture->boxes = fb_picture_take(&picture->arena, FB_PICTURE_BOXES + NEIGHBOURS_MOST + 2, sizeof *picture->boxes);
    if (!picture->boxes || !fb_drawn_rows_make(picture->base, picture->graph, &picture->arena, p->rows.work, &p->rows))
        return false;
    const fb_place *root = &p->rows.places[1];
    picture->box_count = 1;
    picture->boxes[0] = (fb_picture_box){.kind = FB_BOX_MODULE,
                                         .place = 1,
                                         .key = "",
                                         .label = "",
                                         .detail = "",
                                         .first_item = root->first.id,
                                         .item_count = root->item_count,
                                         .tally = root->tally,
                                         .state = state_of(&root->tally)};
    return true;
}

static fb_status make(picturing *p, fb_error *error) {
    if (!begin(p)) return fb_work_failed(p->rows.work, error);
    if (p->options->at && !(p->at = row_called(p, p->options->at)))
        return fb_fail(error, FB_NOT_FOUND, "unknown-node", "", "no node is called \"%.80s\"", p->options->at);
    want_named(p);
    bool ok = open_box(p, 0) && open_levels(p) && open_wanted(p);
    if (ok) find_boxes(p);
    if (ok) count_refusals(p);
    ok = ok && find_lines(p) && list_changes(p) && fb_picture_place(p->picture, p->rows.work);
    return ok && fb_work_goes_on(p->rows.work, 0) ? FB_OK : fb_work_failed(p->rows.work, error);
}

fb_status fb_picture_make(const fb_graph *base, const fb_graph *graph, const fb_picture_options *options, fb_work *work,
                          fb_picture *out, fb_error *error) {
    *out = (fb_picture){.base = base, .graph = graph};
    picturing p = {.picture = out, .options = options, .rows.work = work};
    fb_status status = make(&p, error);
    fb_drawn_rows_free(&p.rows);
    return status;
}

void fb_picture_free(fb_picture *picture) {
    fb_arena_free(&picture->arena);
}
