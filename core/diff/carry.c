/* Carrying changed tensors back through the recipes that had made them.
 *
 *     base:   q.weight ─┐                        ours:   merged.weight, of other bytes
 *             k.weight ─┴ concat ─ merged.weight
 *     theirs: q.weight, k.weight                 so:     q.weight = the upper half of merged.weight, k.weight = the lower
 *
 * An original that several tensors were moved from must come back the same from each. */
#include <stdlib.h>

#include "core/diff/carrying.h"
#include "core/document/document.h"
#include "core/graph/build.h"

static fb_value copy_expression(fb_graph *to, const fb_graph *from, fb_value value, const fb_map *tensors);

static fb_value copy_items(fb_graph *to, const fb_graph *from, const fb_value_row *row, const fb_map *tensors) {
    fb_value made = {0}, *items = calloc((size_t)row->count + 1, sizeof *items);
    if (!items) return made;
    for (uint32_t i = 0; i < row->count; i++) items[i] = copy_expression(to, from, row->items[i], tensors);
    fb_symbol symbol = row->kind == FB_EXPRESSION ? fb_intern(to, fb_text(from, row->symbol)) : (fb_symbol){0};
    made = fb_make_items(to, (fb_kind)row->kind, symbol, items, row->count);
    free(items);
    return made;
}

/* The same expression in another graph, where stand-ins are those of `tensors`. */
static fb_value copy_expression(fb_graph *to, const fb_graph *from, fb_value value, const fb_map *tensors) {
    const fb_value_row *row = fb_value_at(from, value);
    switch ((fb_kind)row->kind) {
    case FB_TENSOR: return fb_make_tensor(to, (fb_tensor){fb_map_get(tensors, row->tensor.id)});
    case FB_INT: return fb_make_int(to, row->integer);
    case FB_STRING: return fb_make_string(to, fb_text(from, row->symbol));
    default: return copy_items(to, from, row, tensors);
    }
}

/* Whoever reads the original in ours goes on reading what it was: that one, or the one that is carried back, has another name.
 * Of bytes that are not known here nothing but the name is known. */
static fb_status part_names(fb_carrying *c, fb_tensor old, fb_tensor original) {
    fb_graph *ours = c->sides->ours, *theirs = c->sides->theirs;
    bool keeps_name = (c->is_read[old.id] || c->is_owned[old.id]) && !fb_tensor_is_told(ours, old);
    fb_graph *graph = keeps_name ? theirs : ours;
    fb_symbol *name = keeps_name ? &c->names_in_theirs[original.id] : &c->names_in_ours[old.id];
    *name = fb_sides_fresh_name(c->sides, graph, fb_tensor_name(ours, old));
    return name->id ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_source(fb_carrying *c, const fb_placed_piece *all, size_t count, const fb_map *stubs) {
    fb_graph *base = c->sides->base, *theirs = c->sides->theirs;
    fb_tensor source = all[0].piece.source;
    fb_tensor original = fb_tensor_find(theirs, fb_tensor_name(base, source));
    const fb_piece **kept = calloc(count, sizeof *kept);
    size_t kept_count = 0;
    fb_agreement verdict = FB_STAYS;
    fb_status status = kept ? FB_OK : fb_fail_memory(c->error);
    if (!status && original.id) status = fb_carry_agree(c, all, count, kept, &kept_count, &verdict);
    fb_value expression = {0};
    if (!status && verdict == FB_CARRY && kept_count) {
        int64_t sizes[FB_RECIPE_MAX_RANK];
        fb_value shape = fb_tensor_at(base, source)->shape;
        int rank = fb_shape_rank(base, shape);
        for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(base, shape, i);
        expression = fb_pieces_join(base, kept, kept_count, sizes, rank);
        if (fb_graph_out_of_memory(base)) status = fb_fail_memory(c->error);
        else if (!expression.id) fb_carry_report(c, "partly-moved", source, "only a part of %s is in what changed");
    }
    if (!status && expression.id) {
        fb_tensor_row *row = fb_tensor_row_at(theirs, original);
        row->recipe = copy_expression(theirs, base, expression, stubs);
        row->data = row->digest = row->blob = (fb_symbol){0};
        row->offset = 0;
        c->is_made_anew[original.id] = true;
        if (fb_graph_out_of_memory(theirs)) status = fb_fail_memory(c->error);
        fb_tensor old = fb_tensor_find(c->sides->ours, fb_tensor_name(base, source));
        if (!status && old.id && !c->names_in_ours[old.id].id) status = part_names(c, old, original);
    }
    free(kept);
    return status;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

/* Puts what stands for the changed tensors into theirs, under the name that they will have: `stubs` maps the stand-ins of base
 * to them. */
static fb_status add_their_stubs(fb_carrying *c, fb_map *stubs) {
    fb_graph *base = c->sides->base, *theirs = c->sides->theirs, *ours = c->sides->ours;
    for (size_t i = 0; i < c->count; i++) {
        const fb_owned *tensor = &c->owned[i];
        if (!tensor->is_carried) continue;
        const char *name = fb_tensor_name(ours, tensor->ours);
        fb_tensor taken = fb_tensor_find(theirs, name); /* made otherwise there: what ours has stays as a source */
        fb_symbol fresh = taken.id ? fb_sides_fresh_name(c->sides, theirs, name) : fb_intern(theirs, name);
        fb_tensor stub = fb_carry_add_stub(theirs, fresh, ours, tensor->ours);
        if (taken.id && stub.id && fb_tensor_is_told(ours, tensor->ours)) {
            c->names_in_ours[tensor->ours.id] = fb_intern(ours, fb_text(theirs, fresh));
            c->names_in_base[tensor->base.id] = fb_intern(base, fb_text(theirs, fresh));
            if (!c->names_in_ours[tensor->ours.id].id || !c->names_in_base[tensor->base.id].id) return fb_fail_memory(c->error);
        } else if (taken.id && stub.id) { /* of whose bytes nothing but the name is known: the two change names */
            c->names_in_theirs[stub.id] = fb_tensor_at(theirs, taken)->name;
            c->names_in_theirs[taken.id] = fresh;
        }
        if (!stub.id || !fb_map_put(stubs, tensor->stub.id, stub.id) || !fb_map_put(&c->sides->stands_for_ours, stub.id, 1)) {
            return fb_fail_memory(c->error);
        }
        /* A recipe that was left standing beside new bytes says what they were before. */
        fb_tensor_row *row = fb_tensor_row_at(ours, tensor->ours);
        if (fb_same_text(base, fb_tensor_at(base, tensor->base)->recipe, ours, row->recipe)) row->recipe = (fb_value){0};
    }
    return FB_OK;
}

static void find_uses(fb_carrying *c) {
    const fb_graph *ours = c->sides->ours;
    for (fb_tensor t = fb_first_tensor(ours); t.id; t = fb_tensor_at(ours, t)->next) {
        if (fb_tensor_at(ours, t)->recipe.id)
            fb_value_visit_tensors(ours, fb_tensor_at(ours, t)->recipe, fb_mark_tensor, c->is_read);
    }
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(ours, &cursor, &slot);) fb_mark_tensor(c->is_owned, slot.tensor);
}

typedef struct search {
    const bool *marks;
    bool is_found;
} search;

static void look_for_mark(void *context, fb_tensor tensor) {
    search *s = context;
    s->is_found |= s->marks[tensor.id];
}

/* What theirs makes from what is carried back, and ours reads too, is another tensor there. */
static void part_from_ours(void *context, fb_tensor tensor) {
    fb_carrying *c = context;
    fb_graph *ours = c->sides->ours, *theirs = c->sides->theirs;
    fb_value recipe = fb_tensor_at(theirs, tensor)->recipe;
    search s = {.marks = c->is_made_anew};
    if (!recipe.id || c->is_made_anew[tensor.id]) return;
    fb_value_visit_tensors(theirs, recipe, look_for_mark, &s);
    if (!s.is_found) return;
    c->is_made_anew[tensor.id] = true;
    fb_tensor old = fb_tensor_find(ours, fb_tensor_name(theirs, tensor));
    if (old.id && c->is_read[old.id] && !c->is_owned[old.id] && !c->names_in_ours[old.id].id)
        c->names_in_ours[old.id] = fb_sides_fresh_name(c->sides, ours, fb_tensor_name(ours, old));
}

static fb_status part_dependents(fb_carrying *c) {
    const fb_graph *theirs = c->sides->theirs;
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, theirs)) {
        for (fb_tensor t = fb_first_tensor(theirs); t.id; t = fb_tensor_at(theirs, t)->next)
            fb_inputs_visit(&walk, t, part_from_ours, c);
    }
    return fb_inputs_end(&walk) && !fb_graph_out_of_memory(c->sides->ours) ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_all(fb_carrying *c) {
    fb_status status = fb_carry_pieces(c);
    fb_map stubs = {0};
    if (!status) status = add_their_stubs(c, &stubs);
    find_uses(c);
    for (size_t i = 0, next; i < c->piece_count && !status; i = next) {
        for (next = i; next < c->piece_count && c->pieces[next].piece.source.id == c->pieces[i].piece.source.id;) next++;
        status = carry_source(c, &c->pieces[i], next - i, &stubs);
    }
    if (!status) status = part_dependents(c);
    if (!status) {
        fb_graph_rename_tensors(c->sides->base, c->names_in_base);
        fb_graph_rename_tensors(c->sides->ours, c->names_in_ours);
        fb_graph_rename_tensors(c->sides->theirs, c->names_in_theirs);
    }
    fb_map_free(&stubs);
    return status;
}

fb_status fb_carry_back(fb_sides *sides, fb_conflicts *conflicts, fb_error *error) {
    fb_carrying c = {.sides = sides, .conflicts = conflicts, .error = error};
    bool is_any = false, ok = fb_find_dirty(sides);
    fb_status status = ok ? fb_carry_find(&c, &is_any) : fb_fail_memory(error);
    if (!status && is_any) {
        c.is_computed_from = calloc(fb_tensor_limit(sides->base), sizeof *c.is_computed_from);
        c.names_in_base = calloc(fb_tensor_limit(sides->base) + c.count, sizeof *c.names_in_base); /* with the stand-ins */
        c.names_in_ours = calloc(fb_tensor_limit(sides->ours), sizeof *c.names_in_ours);
        c.names_in_theirs = calloc(fb_tensor_limit(sides->theirs) + c.count, sizeof *c.names_in_theirs);
        c.is_read = calloc(fb_tensor_limit(sides->ours), sizeof *c.is_read);
        c.is_owned = calloc(fb_tensor_limit(sides->ours), sizeof *c.is_owned);
        c.is_made_anew = calloc(fb_tensor_limit(sides->theirs) + c.count, sizeof *c.is_made_anew);
        ok = fb_inputs_begin(&c.computed, sides->base) && c.is_computed_from && c.names_in_base && c.names_in_ours &&
             c.names_in_theirs && c.is_read && c.is_owned && c.is_made_anew;
        status = ok ? carry_all(&c) : fb_fail_memory(error);
        if (!fb_inputs_end(&c.computed) && !status) status = fb_fail_memory(error);
    }
    free(c.owned);
    free(c.pieces);
    free(c.is_computed_from);
    free(c.names_in_base);
    free(c.names_in_ours);
    free(c.names_in_theirs);
    free(c.is_read);
    free(c.is_owned);
    free(c.is_made_anew);
    return status;
}
