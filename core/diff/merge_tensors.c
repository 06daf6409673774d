/* The tensors of the merged graph: those that its modules own, and those that their recipes read. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/document/document.h"

typedef struct gathering {
    fb_merging *m;
    bool *is_ours, *is_theirs; /* by tensor of the side: it is needed, and described there */
    bool *is_owned;            /* by tensor of ours */
    fb_buffer stack;           /* fb_tensor, then whether it is theirs */
    bool failed;
} gathering;

typedef struct chosen {
    fb_tensor tensor;
    bool is_theirs;
} chosen;

static bool same_row(gathering *g, const fb_graph *a, fb_tensor x, const fb_graph *b, fb_tensor y) {
    fb_buffer of_x = {0}, of_y = {0};
    fb_tensor_write(a, x, &of_x);
    fb_tensor_write(b, y, &of_y);
    g->failed |= of_x.failed || of_y.failed;
    bool is_same = !g->failed && of_x.size == of_y.size && memcmp(of_x.data, of_y.data, of_x.size) == 0;
    fb_buffer_free(&of_x);
    fb_buffer_free(&of_y);
    return is_same;
}

/* Whose description holds: of three that differ, the one that was changed; also where only what it is computed from was. A
 * source that nobody owns, and that came back without its bytes, has them still. */
static bool theirs_holds(gathering *g, const char *name, fb_tensor ours, fb_tensor theirs) {
    const fb_sides *sides = &g->m->sides;
    if (fb_map_get(&sides->stands_for_ours, theirs.id)) return false;
    if (same_row(g, sides->ours, ours, sides->theirs, theirs)) return false;
    fb_tensor base = fb_tensor_find(sides->base, name);
    if (base.id && !fb_is_dirty(sides, base) && same_row(g, sides->base, base, sides->theirs, theirs))
        return !g->is_owned[ours.id] && !fb_tensor_has_known_bytes(sides->ours, ours) &&
               fb_tensor_has_known_bytes(sides->theirs, theirs) && !fb_tensor_at(sides->theirs, theirs)->recipe.id;
    if (!base.id || !same_row(g, sides->base, base, sides->ours, ours))
        fb_conflicts_add(g->m->conflicts, FB_CONFLICT_TENSOR, "changed-tensor", name,
                         "the description of %s has changed since the run, and undo would change it too", name);
    return true;
}

/* Nothing for a name that a client's graph, or a conflict, leaves open: the verifier will say. */
static void need(gathering *g, const char *name) {
    const fb_sides *sides = &g->m->sides;
    fb_tensor ours = fb_tensor_find(sides->ours, name), theirs = fb_tensor_find(sides->theirs, name);
    if ((ours.id && g->is_ours[ours.id]) || (theirs.id && g->is_theirs[theirs.id]) || (!ours.id && !theirs.id)) return;
    bool is_theirs = theirs.id && (!ours.id || theirs_holds(g, name, ours, theirs));
    chosen choice = {is_theirs ? theirs : ours, is_theirs};
    *(is_theirs ? &g->is_theirs[theirs.id] : &g->is_ours[ours.id]) = true;
    fb_buffer_append(&g->stack, &choice, sizeof choice);
}

typedef struct reader {
    gathering *g;
    const fb_graph *graph;
} reader;

static void need_input(void *context, fb_tensor tensor) {
    const reader *r = context;
    need(r->g, fb_tensor_name(r->graph, tensor));
}

static void need_inputs(gathering *g) {
    while (g->stack.size && !g->stack.failed) {
        chosen top;
        g->stack.size -= sizeof top;
        memcpy(&top, g->stack.data + g->stack.size, sizeof top);
        reader r = {g, top.is_theirs ? g->m->sides.theirs : g->m->sides.ours};
        fb_value recipe = fb_tensor_at(r.graph, top.tensor)->recipe;
        if (recipe.id) fb_value_visit_tensors(r.graph, recipe, need_input, &r);
    }
}

static void need_owned(gathering *g, fb_span module) {
    static const char *const maps[] = {"/parameters", "/buffers"};
    for (size_t i = 0; i < 2; i++) {
        fb_span value;
        for (size_t cursor = 0; fb_span_next(fb_span_at(module, maps[i]), &cursor, NULL, &value);) {
            if (value.text[0] != '"') continue; /* null */
            char *name = fb_span_unquote(value);
            if (name) need(g, name);
            g->failed |= !name;
            free(name);
        }
    }
}

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

static bool is_put_in_or_moved(const fb_merging *m, fb_document_table table, const char *name) {
    const fb_edit *edit = fb_merging_edit(m, table, name);
    return !fb_tensor_find(m->sides.ours, name).id || (edit && edit->kind == FB_EDIT_MOVE);
}

/* Takes out of the list of ours what is not needed, exchanges what theirs describes, and puts in what theirs alone has. */
static fb_status make_table(gathering *g) {
    fb_merging *m = g->m;
    fb_rows theirs = {0}, *rows = &m->tables[FB_TENSOR_TABLE];
    fb_status status = fb_rows_read(&theirs, m->sides.theirs, FB_TENSOR_TABLE) ? FB_OK : fb_fail_memory(m->error);
    for (fb_row_id at = rows->first, next; at.id && !status; at = next) {
        next = rows->items[at.id].next;
        const char *name = rows->items[at.id].name;
        fb_tensor ours = fb_tensor_find(m->sides.ours, name), there = fb_tensor_find(m->sides.theirs, name);
        fb_row_id row = there.id && g->is_theirs[there.id] ? fb_rows_find(&theirs, name) : (fb_row_id){0};
        if (row.id) status = fb_rows_set(rows, at, theirs.items[row.id].text) ? FB_OK : fb_fail_memory(m->error);
        else if (!g->is_ours[ours.id]) fb_rows_take_out(rows, at);
    }
    for (fb_row_id at = theirs.first, next; at.id && !status; at = next) {
        next = theirs.items[at.id].next;
        const char *name = theirs.items[at.id].name;
        fb_tensor tensor = fb_tensor_find(m->sides.theirs, name);
        bool is_stand_in = fb_map_get(&m->sides.stands_for_ours, tensor.id) != 0; /* its place in theirs says nothing */
        if (is_stand_in || (!g->is_theirs[tensor.id] && !fb_rows_find(rows, name).id)) fb_rows_take_out(&theirs, at);
    }
    if (!status) status = fb_merging_place(m, FB_TENSOR_TABLE, &theirs, is_put_in_or_moved);
    fb_rows_free(&theirs);
    return status;
}

fb_status fb_merge_tensors(fb_merging *m) {
    gathering g = {.m = m,
                   .is_ours = calloc(fb_tensor_limit(m->sides.ours), sizeof *g.is_ours),
                   .is_theirs = calloc(fb_tensor_limit(m->sides.theirs), sizeof *g.is_theirs),
                   .is_owned = calloc(fb_tensor_limit(m->sides.ours), sizeof *g.is_owned)};
    fb_status status = g.is_ours && g.is_theirs && g.is_owned ? FB_OK : fb_fail_memory(m->error);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; !status && fb_slot_next(m->sides.ours, &cursor, &slot);)
        g.is_owned[slot.tensor.id] = true;
    const fb_rows *modules = &m->tables[FB_MODULE_TABLE];
    for (fb_row_id at = modules->first; !status && at.id; at = modules->items[at.id].next) {
        need_owned(&g, modules->items[at.id].text);
        need_inputs(&g);
    }
    if (!status && (g.failed || g.stack.failed)) status = fb_fail_memory(m->error);
    if (!status) status = make_table(&g);
    free(g.is_ours);
    free(g.is_theirs);
    free(g.is_owned);
    fb_buffer_free(&g.stack);
    return status;
}
