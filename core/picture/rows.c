#include "core/picture/rows.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/diff/diff.h"

#define DEPTH_MOST 64 /* parts of a path beyond this many are one */

void *fb_picture_take(fb_arena *arena, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    void *bytes = fb_arena_alloc(arena, count && size ? count * size : 1);
    return bytes ? memset(bytes, 0, count * size) : NULL;
}

/* ---- the tree of modules ------------------------------------------------------------------------------------------------- */

static uint32_t find_part(const fb_drawn_rows *r, uint32_t parent, const char *path, size_t from, size_t size) {
    uint64_t key = fb_hash(path + from, size - from, parent);
    uint32_t cursor = 0;
    for (uint32_t p; (p = fb_map_next(&r->place_index, key, &cursor));) {
        const fb_place *place = &r->places[p];
        if (place->parent == parent && place->path_size == size && memcmp(place->path, path, size) == 0) return p;
    }
    return 0;
}

static uint32_t add_place(fb_drawn_rows *r, uint32_t parent, const char *path, size_t from, size_t size) {
    if (!FB_GROW(r->places, r->place_count, r->place_capacity)) return 0;
    uint32_t depth = parent ? r->places[parent].depth + 1 : 0;
    r->places[r->place_count] = (fb_place){.path = path, .path_size = (uint32_t)size, .parent = parent, .depth = depth};
    if (parent && !fb_map_add(&r->place_index, fb_hash(path + from, size - from, parent), r->place_count)) return 0;
    return r->place_count++;
}

/* Where the part of a path that begins at `from` ends. */
static size_t part_end(const char *path, size_t from, size_t size, unsigned depth) {
    const char *dot = depth + 1 < DEPTH_MOST ? memchr(path + from, '.', size - from) : NULL;
    return dot ? (size_t)(dot - path) : size;
}

uint32_t fb_place_find(const fb_drawn_rows *r, const char *path, size_t size) {
    uint32_t place = 1;
    unsigned depth = 0;
    for (size_t from = 0, end; place && from < size; from = end + 1, depth++) {
        end = part_end(path, from, size, depth);
        place = find_part(r, place, path, from, end);
    }
    return place;
}

/* 0 when memory is out. The path must live as long as the rows. */
static uint32_t place_of(fb_drawn_rows *r, const char *path, size_t size) {
    uint32_t place = 1;
    unsigned depth = 0;
    for (size_t from = 0, end; place && from < size; from = end + 1, depth++) {
        end = part_end(path, from, size, depth);
        uint32_t known = find_part(r, place, path, from, end);
        place = known ? known : add_place(r, place, path, from, end);
    }
    return place;
}

static uint32_t common_place(const fb_drawn_rows *r, uint32_t a, uint32_t b) {
    while (a != b) {
        if (r->places[a].depth >= r->places[b].depth) a = r->places[a].parent;
        else b = r->places[b].parent;
    }
    return a;
}

/* ---- which module a node belongs to ---------------------------------------------------------------------------------------
 *
 * A call of a module is in the module around that one, a read of an attribute in its owner, and a call that reads an attribute
 * beside it. meta.module_path says it of any node. Any other node is between two of these, and so in the module that both are
 * in: a view between query and key in their attention. */

static uint32_t place_of_owner(fb_drawn_rows *r, const fb_graph *graph, fb_node n) {
    const fb_node_row *row = fb_node_at(graph, n);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return 0;
    fb_symbol path = fb_module_at(graph, row->module)->path;
    return place_of(r, fb_text(graph, path), fb_text_length(graph, path));
}

static uint32_t place_of_caller(fb_drawn_rows *r, const fb_graph *graph, fb_symbol target) {
    const char *path = fb_text(graph, target);
    const char *dot = strrchr(path, '.');
    return place_of(r, path, dot ? (size_t)(dot - path) : 0);
}

static uint32_t place_of_parameter(fb_drawn_rows *r, const fb_graph *graph, fb_node n) {
    for (uint32_t e = fb_input_first(graph, n); e; e = fb_input_next(graph, e)) {
        uint32_t owner = place_of_owner(r, graph, fb_edge_input(graph, e));
        if (owner > 1) return owner;
    }
    return 0;
}

/* meta.module_path, when it needs no unescaping. */
static uint32_t place_of_meta(fb_drawn_rows *r, const fb_graph *graph, fb_value meta) {
    fb_value said = fb_map_value(graph, meta, "module_path");
    const char *text = said.id ? fb_value_text(graph, said) : NULL;
    size_t size = text ? strlen(text) : 0;
    if (size < 2 || text[0] != '"' || strchr(text, '\\')) return 0;
    return place_of(r, text + 1, size - 2);
}

/* 0 = its neighbours say. */
static uint32_t known_place(fb_drawn_rows *r, const fb_graph *graph, fb_node n) {
    const fb_node_row *row = fb_node_at(graph, n);
    uint32_t said = row->meta_rest.id ? place_of_meta(r, graph, row->meta_rest) : 0;
    if (said) return said;
    switch (row->opcode) {
    case FB_CALL_MODULE: return place_of_caller(r, graph, row->target);
    case FB_GET_ATTR: return place_of_owner(r, graph, n);
    case FB_CALL_FUNCTION:
    case FB_CALL_METHOD: return place_of_parameter(r, graph, n);
    default: return 1;
    }
}

static bool is_landmark(const fb_graph *graph, fb_node n) {
    uint8_t opcode = fb_node_at(graph, n)->opcode;
    return opcode != FB_PLACEHOLDER && opcode != FB_GET_ATTR && opcode != FB_OUTPUT;
}

/* The place of each node, by its id. */
static uint32_t *find_places(fb_drawn_rows *r, const fb_graph *graph, const fb_node *order, size_t count) {
    uint32_t *places = fb_picture_take(r->arena, fb_node_limit(graph), sizeof *places);
    uint32_t *before = fb_picture_take(r->arena, count, sizeof *before), last = 1;
    if (!places || !before) return NULL;
    for (size_t i = 0; i < count && fb_work_goes_on(r->work, 8); i++) {
        uint32_t known = known_place(r, graph, order[i]);
        places[order[i].id] = known;
        if (known && is_landmark(graph, order[i])) last = known;
        before[i] = last;
    }
    last = 1;
    for (size_t i = count; i-- > 0 && fb_work_goes_on(r->work, 4);) {
        uint32_t *place = &places[order[i].id];
        if (*place && is_landmark(graph, order[i])) last = *place;
        if (!*place) *place = common_place(r, before[i], last);
    }
    return places;
}

/* ---- the union of two graphs --------------------------------------------------------------------------------------------- */

/* The nodes in their order, but what is read of a module just before its first reader. */
static fb_node *reading_order(fb_drawn_rows *r, const fb_graph *graph, size_t *count) {
    fb_node *order = fb_picture_take(r->arena, fb_node_count(graph) + 1, sizeof *order);
    bool *is_there = fb_picture_take(r->arena, fb_node_limit(graph), sizeof *is_there);
    size_t filled = 0;
    if (!order || !is_there) return NULL;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_work_goes_on(r->work, 4); n = fb_next_node(graph, n)) {
        if (fb_node_at(graph, n)->opcode == FB_GET_ATTR && fb_user_first(graph, n)) continue;
        for (uint32_t e = fb_input_first(graph, n); e; e = fb_input_next(graph, e)) {
            fb_node input = fb_edge_input(graph, e);
            if (fb_node_at(graph, input)->opcode != FB_GET_ATTR || is_there[input.id]) continue;
            is_there[input.id] = true;
            order[filled++] = input;
        }
        order[filled++] = n;
    }
    *count = filled;
    return order;
}

static void add_row(fb_drawn_rows *r, fb_node was, fb_node now) {
    uint32_t row = r->count++;
    r->rows[row] = (fb_drawn){.was = was,
                              .now = now,
                              .state = !r->base || (was.id && now.id) ? FB_PICTURE_KEPT
                                       : now.id                       ? FB_PICTURE_ADDED
                                                                      : FB_PICTURE_REMOVED};
    if (was.id) r->of_was[was.id] = row;
    if (now.id) r->of_now[now.id] = row;
}

/* Joins the two lists: a node of the base alone follows the one that it followed there. */
static bool join(fb_drawn_rows *r, const fb_node *was, size_t was_count, const fb_node *now, size_t now_count) {
    uint32_t *kept = fb_picture_take(r->arena, fb_node_limit(r->graph), sizeof *kept); /* by node of the graph: in `was` + 1 */
    bool *is_kept = fb_picture_take(r->arena, was_count + 1, sizeof *is_kept);
    if (!kept || !is_kept) return false;
    for (size_t i = 0; i < was_count && fb_work_goes_on(r->work, 8); i++) {
        fb_node same = fb_node_find(r->graph, FB_MAIN_PROGRAM, fb_node_name(r->base, was[i]));
        if (!same.id) continue;
        kept[same.id] = (uint32_t)i + 1;
        is_kept[i] = true;
    }
    for (size_t i = 0; i < was_count && !is_kept[i]; i++) add_row(r, was[i], (fb_node){0});
    for (size_t i = 0; i < now_count && fb_work_goes_on(r->work, 4); i++) {
        uint32_t at = kept[now[i].id];
        add_row(r, at ? was[at - 1] : (fb_node){0}, now[i]);
        for (size_t j = at; at && j < was_count && !is_kept[j]; j++) add_row(r, was[j], (fb_node){0});
    }
    return true;
}

static bool list_rows(fb_drawn_rows *r) {
    size_t was_count = 0, now_count = 0;
    fb_node *now = reading_order(r, r->graph, &now_count), *was = r->base ? reading_order(r, r->base, &was_count) : NULL;
    r->rows = fb_picture_take(r->arena, was_count + now_count + 1, sizeof *r->rows);
    r->of_now = fb_picture_take(r->arena, fb_node_limit(r->graph), sizeof *r->of_now);
    if (r->base) r->of_was = fb_picture_take(r->arena, fb_node_limit(r->base), sizeof *r->of_was);
    if (!now || !r->rows || !r->of_now || (r->base && (!was || !r->of_was))) return false;
    r->count = 1;
    if (!join(r, was, was_count, now, now_count)) return false;
    uint32_t *now_places = find_places(r, r->graph, now, now_count);
    uint32_t *was_places = r->base ? find_places(r, r->base, was, was_count) : NULL;
    if (!now_places || (r->base && !was_places)) return false;
    for (uint32_t i = 1; i < r->count; i++) {
        fb_drawn *row = &r->rows[i];
        row->place = row->was.id ? was_places[row->was.id] : now_places[row->now.id];
        if (!row->place) row->place = 1;
    }
    return true;
}

/* ---- what changed in place ----------------------------------------------------------------------------------------------- */

static bool is_more_than_mark(const fb_edit *edit) {
    for (size_t i = 0; i < edit->member_count; i++)
        if (strcmp(edit->members[i].pointer, "/meta/transformations") != 0) return true;
    return false;
}

static bool is_of_arguments(const fb_edit *edit) {
    for (size_t i = 0; i < edit->member_count; i++) {
        const char *pointer = edit->members[i].pointer;
        if (strncmp(pointer, "/args", 5) != 0 && strncmp(pointer, "/kwargs", 7) != 0 && strncmp(pointer, "/meta/", 6) != 0)
            return false;
    }
    return true;
}

typedef struct changes {
    fb_drawn_rows *rows;
    bool *modules, *tensors; /* of the graph, by their ids */
} changes;

static void note_edit(changes *c, const fb_edit *edit) {
    const fb_graph *graph = c->rows->graph;
    if (edit->kind != FB_EDIT_SET) return;
    if (edit->table == FB_MODULE_TABLE) {
        c->modules[fb_module_find(graph, edit->name).id] = true;
    } else if (edit->table == FB_TENSOR_TABLE) {
        c->tensors[fb_tensor_find(graph, edit->name).id] = true;
    } else if (edit->table == FB_NODE_TABLE && is_more_than_mark(edit)) {
        fb_node n = fb_node_find(graph, FB_MAIN_PROGRAM, edit->name);
        if (!n.id) return; /* it is one of a nested program */
        fb_drawn *row = &c->rows->rows[c->rows->of_now[n.id]];
        row->state = FB_PICTURE_CHANGED;
        row->change = is_of_arguments(edit) ? FB_OTHER_ARGUMENTS : FB_OTHER_CALL;
    }
}

static bool owns_changed(const changes *c, fb_value tensors) {
    const fb_value_row *map = fb_value_at(c->rows->graph, tensors);
    for (uint32_t i = 1; i < map->count; i += 2) {
        fb_tensor tensor = fb_value_tensor(c->rows->graph, map->items[i]);
        if (tensor.id && c->tensors[tensor.id]) return true;
    }
    return false;
}

static void note_owners(changes *c) {
    const fb_graph *graph = c->rows->graph;
    for (fb_module m = fb_first_module(graph); m.id && fb_work_goes_on(c->rows->work, 4); m = fb_module_at(graph, m)->next)
        c->modules[m.id] |=
            owns_changed(c, fb_module_at(graph, m)->parameters) || owns_changed(c, fb_module_at(graph, m)->buffers);
}

/* Another tensor, or the same with other bytes. */
static bool reads_changed(const changes *c, const fb_drawn *row) {
    const fb_graph *base = c->rows->base, *graph = c->rows->graph;
    const fb_node_row *was = fb_node_at(base, row->was), *now = fb_node_at(graph, row->now);
    if (!was->module.id || !now->module.id || !now->attribute.id || !was->attribute.id) return false;
    fb_tensor before = fb_module_tensor(base, was->module, fb_text(base, was->attribute));
    fb_tensor after = fb_module_tensor(graph, now->module, fb_text(graph, now->attribute));
    if (!before.id || !after.id) return before.id || after.id;
    return c->tensors[after.id] || strcmp(fb_tensor_name(base, before), fb_tensor_name(graph, after)) != 0;
}

/* A call of a module that is another one now has changed as well. */
static void note_calls(changes *c) {
    fb_drawn_rows *r = c->rows;
    for (uint32_t i = 1; i < r->count && fb_work_goes_on(r->work, 2); i++) {
        fb_drawn *row = &r->rows[i];
        if (row->state != FB_PICTURE_KEPT && row->state != FB_PICTURE_CHANGED) continue;
        const fb_node_row *now = fb_node_at(r->graph, row->now);
        bool is_other = (now->opcode == FB_CALL_MODULE && c->modules[now->module.id]) ||
                        (now->opcode == FB_GET_ATTR && reads_changed(c, row));
        if (!is_other) continue;
        if (row->state == FB_PICTURE_KEPT || row->change == FB_OTHER_ARGUMENTS) row->change = FB_OTHER_WEIGHTS;
        row->state = FB_PICTURE_CHANGED;
    }
}

static bool find_changes(fb_drawn_rows *r) {
    changes c = {.rows = r};
    fb_diff diff;
    c.modules = fb_picture_take(r->arena, fb_module_limit(r->graph) + 1, sizeof *c.modules);
    c.tensors = fb_picture_take(r->arena, fb_tensor_limit(r->graph) + 1, sizeof *c.tensors);
    if (!c.modules || !c.tensors || fb_diff_make(r->base, r->graph, r->work, &diff, NULL)) return false;
    for (size_t i = 0; i < diff.count && fb_work_goes_on(r->work, 4); i++) note_edit(&c, &diff.edits[i]);
    fb_diff_free(&diff);
    c.modules[0] = c.tensors[0] = false;
    note_owners(&c);
    note_calls(&c);
    return true;
}

/* ---- the contents of each place ------------------------------------------------------------------------------------------ */

static void append(fb_drawn_rows *r, uint32_t place, fb_item item) {
    fb_place *to = &r->places[place];
    if (!to->last.id) to->first = item;
    else if (to->last.id & FB_ITEM_IS_PLACE) r->places[to->last.id & ~FB_ITEM_IS_PLACE].next = item;
    else r->rows[to->last.id].next = item;
    to->last = item;
    to->item_count++;
}

static void list_place(fb_drawn_rows *r, uint32_t place) {
    for (; place > 1 && !r->places[place].is_listed; place = r->places[place].parent) {
        r->places[place].is_listed = true;
        append(r, r->places[place].parent, (fb_item){place | FB_ITEM_IS_PLACE});
    }
}

static void count_in(fb_picture_tally *tally, const fb_picture_tally *more) {
    tally->nodes += more->nodes;
    tally->added += more->added;
    tally->removed += more->removed;
    tally->changed += more->changed;
}

static void fill_places(fb_drawn_rows *r) {
    for (uint32_t i = 1; i < r->count && fb_work_goes_on(r->work, 4); i++) {
        fb_picture_state state = r->rows[i].state;
        list_place(r, r->rows[i].place);
        append(r, r->rows[i].place, (fb_item){i});
        count_in(&r->places[r->rows[i].place].tally,
                 &(fb_picture_tally){1, state == FB_PICTURE_ADDED, state == FB_PICTURE_REMOVED, state == FB_PICTURE_CHANGED});
    }
    for (uint32_t p = r->place_count - 1; p > 1; p--) count_in(&r->places[r->places[p].parent].tally, &r->places[p].tally);
}

bool fb_drawn_rows_make(const fb_graph *base, const fb_graph *graph, fb_arena *arena, fb_work *work, fb_drawn_rows *out) {
    *out = (fb_drawn_rows){.base = base, .graph = graph, .arena = arena, .work = work};
    if (add_place(out, 0, "", 0, 0) || !out->places) return false; /* [0] is none */
    if (!add_place(out, 0, "", 0, 0)) return false;
    if (!list_rows(out) || (base && !find_changes(out))) return false;
    fill_places(out);
    return fb_work_goes_on(work, 1);
}

void fb_drawn_rows_free(fb_drawn_rows *rows) {
    free(rows->places);
    fb_map_free(&rows->place_index);
}
