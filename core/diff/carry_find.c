/* What changed and is lost, and the pieces of the originals that it holds. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/carrying.h"
#include "core/graph/build.h"

/* ---- what is owned ---------------------------------------------------------------------------------------------------- */

/* Lists what is owned in base, and says of each tensor whether theirs has it at each of its places still. */
static bool list_owned(fb_carrying *c) {
    const fb_graph *base = c->sides->base, *theirs = c->sides->theirs, *ours = c->sides->ours;
    fb_slot_index places;
    uint32_t *listed = calloc(fb_tensor_limit(base), sizeof *listed);
    c->owned = calloc(fb_tensor_count(base) + 1, sizeof *c->owned);
    bool ok = fb_slot_index_make(theirs, &places) && listed && c->owned;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(base, &cursor, &slot);) {
        const char *name = fb_tensor_name(base, slot.tensor);
        if (!listed[slot.tensor.id]) {
            c->owned[c->count] = (fb_owned){.base = slot.tensor, .ours = fb_tensor_find(ours, name)};
            listed[slot.tensor.id] = (uint32_t)++c->count;
        }
        fb_tensor there = fb_slot_index_find(&places, base, &slot);
        bool is_there = there.id && strcmp(fb_tensor_name(theirs, there), name) == 0 && !c->sides->is_dirty[slot.tensor.id];
        if (!is_there) c->owned[listed[slot.tensor.id] - 1].is_lost = true;
    }
    for (fb_tensor t = fb_first_tensor(base); ok && t.id; t = fb_tensor_at(base, t)->next) {
        fb_tensor now = fb_tensor_find(ours, fb_tensor_name(base, t));
        if (listed[t.id] || !now.id || !fb_tensor_at(base, t)->recipe.id) continue;
        c->owned[c->count++] = (fb_owned){.base = t, .ours = now, .is_between = true, .is_lost = c->sides->is_dirty[t.id]};
    }
    fb_slot_index_free(&places);
    free(listed);
    return ok;
}

/* Finds what theirs owns at places where base has something else, and what that is made from. */
static bool find_shared(fb_carrying *c) {
    const fb_graph *base = c->sides->base, *theirs = c->sides->theirs;
    fb_slot_index places;
    fb_inputs_walk walk = {0};
    bool *comes_back = calloc(fb_tensor_limit(theirs), sizeof *comes_back);
    bool ok = fb_slot_index_make(base, &places) && comes_back && fb_inputs_begin(&walk, theirs);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(theirs, &cursor, &slot);) {
        fb_tensor before = fb_slot_index_find(&places, theirs, &slot);
        bool is_same = before.id && strcmp(fb_tensor_name(base, before), fb_tensor_name(theirs, slot.tensor)) == 0;
        if (!is_same || c->sides->is_dirty[before.id]) fb_inputs_visit(&walk, slot.tensor, fb_mark_tensor, comes_back);
    }
    for (size_t i = 0; ok && i < c->count; i++) {
        fb_tensor there = fb_tensor_find(theirs, fb_tensor_name(base, c->owned[i].base));
        c->owned[i].is_shared = there.id && !c->owned[i].is_lost && comes_back[there.id];
    }
    fb_slot_index_free(&places);
    free(comes_back);
    return fb_inputs_end(&walk) && ok;
}

/* ---- stand-ins ---------------------------------------------------------------------------------------------------------- */

fb_tensor fb_carry_add_stub(fb_graph *graph, fb_symbol name, const fb_graph *ours, fb_tensor tensor) {
    fb_tensor_row from = *fb_tensor_at(ours, tensor);
    fb_tensor stub = name.id ? fb_graph_add_tensor(graph, name, (fb_tensor){0}) : (fb_tensor){0};
    if (!stub.id) return stub;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = fb_shape_rank(ours, from.shape);
    for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(ours, from.shape, i);
    fb_tensor_row *row = fb_tensor_row_at(graph, stub);
    row->shape = fb_make_shape(graph, sizes, (size_t)rank);
    row->dtype = from.dtype;
    row->requires_grad = from.requires_grad;
    if (from.digest.id) row->digest = fb_intern(graph, fb_text(ours, from.digest));
    if (from.data.id) row->data = fb_intern(graph, fb_text(ours, from.data));
    if (from.blob.id) row->blob = fb_intern(graph, fb_text(ours, from.blob));
    row->offset = from.offset;
    return stub;
}

static bool add_base_stub(fb_carrying *c, fb_owned *tensor) {
    fb_symbol name = fb_sides_fresh_name(c->sides, c->sides->base, fb_tensor_name(c->sides->base, tensor->base));
    tensor->stub = fb_carry_add_stub(c->sides->base, name, c->sides->ours, tensor->ours);
    return tensor->stub.id && !fb_graph_out_of_memory(c->sides->base);
}

/* Only bytes can be carried back. */
static bool check_kept(fb_carrying *c, const fb_owned *tensor) {
    const fb_graph *base = c->sides->base, *ours = c->sides->ours;
    const fb_tensor_row *before = fb_tensor_at(base, tensor->base), *now = fb_tensor_at(ours, tensor->ours);
    const char *what = NULL;
    if (before->dtype != now->dtype) what = "dtype";
    else if (!fb_same_text(base, before->shape, ours, now->shape)) what = "shape";
    else if (!tensor->is_between && before->requires_grad != now->requires_grad) what = "requires_grad";
    if (what)
        fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "changed-tensor", fb_tensor_name(ours, tensor->ours),
                         "%s of %s was changed, and the tensors that it was made from have their own", what,
                         fb_tensor_name(ours, tensor->ours));
    return !what;
}

/* Finds what has to be carried back. */
static fb_status find_carried(fb_carrying *c, bool *is_any) {
    for (size_t i = 0; i < c->count; i++) {
        fb_owned *tensor = &c->owned[i];
        bool is_made = fb_tensor_at(c->sides->base, tensor->base)->recipe.id != 0;
        if (!is_made || !tensor->is_lost || !tensor->ours.id || !check_kept(c, tensor)) continue;
        fb_status status = fb_tensor_changed(c->sides, tensor->base, tensor->ours, &tensor->is_carried, c->error);
        if (status) return status;
        if (tensor->is_carried && !add_base_stub(c, tensor)) return fb_fail_memory(c->error);
        *is_any |= tensor->is_carried;
    }
    return FB_OK;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------------- */

static void mark_source(void *context, fb_tensor tensor) {
    const fb_carrying *c = context;
    if (!fb_tensor_at(c->sides->base, tensor)->recipe.id) c->is_computed_from[tensor.id] = true;
}

/* The filler must still be what it was. */
static fb_status check_filler(fb_carrying *c, const fb_owned *tensor, const fb_piece *piece) {
    fb_graph *base = c->sides->base;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(base, tensor->base)->dtype;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    for (int i = 0; i < piece->rank; i++) sizes[i] = piece->stop[i] - piece->start[i];
    bool is_known, is_same;
    fb_value was = fb_recipe_full(base, sizes, (size_t)piece->rank, piece->number);
    if (!was.id) return fb_fail_memory(c->error);
    fb_status status = fb_compare_bytes(c->sides, piece->from, was, dtype, &is_known, &is_same, c->error);
    if (status || is_same) return status;
    const char *name = fb_tensor_name(c->sides->ours, tensor->ours);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "constant-changed", name,
                     is_known ? "the constant part of %s, which belongs to none of the originals, changed"
                              : "%s changed, and without its bytes it cannot be shown that the constant part of it did not",
                     name);
    return FB_OK;
}

static void report_computed(fb_carrying *c, const fb_owned *tensor) {
    const char *name = fb_tensor_name(c->sides->ours, tensor->ours);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "computed", name,
                     "%s changed, and it was computed: what its originals would be now cannot be known", name);
}

static fb_status invert(fb_carrying *c, const fb_owned *tensor) {
    fb_pieces found = {0};
    bool is_computed = false;
    fb_tensor now = tensor->stub.id ? tensor->stub : tensor->base;
    fb_status status = fb_recipe_invert(c->sides->base, tensor->base, now, &found, &is_computed, c->error);
    if (!status && is_computed) {
        if (tensor->is_carried) report_computed(c, tensor);
        else fb_inputs_visit(&c->computed, tensor->base, mark_source, c);
        found.count = 0;
    }
    fb_placed_piece *pieces = status ? NULL : realloc(c->pieces, (c->piece_count + found.count + 1) * sizeof *pieces);
    if (!status && !pieces) status = fb_fail_memory(c->error);
    if (!status) c->pieces = pieces;
    for (size_t i = 0; i < found.count && !status; i++) {
        if (found.items[i].source.id) pieces[c->piece_count++] = (fb_placed_piece){found.items[i], tensor};
        else if (tensor->is_carried) status = check_filler(c, tensor, &found.items[i]);
    }
    fb_pieces_free(&found);
    return status;
}

/* Adds the pieces of one tensor. One that changed and is not lost goes its own way, and says nothing about what it had been
 * made from; but an original that changed where it is owned must agree with what is carried back to it. */
static fb_status add_pieces(fb_carrying *c, fb_owned *tensor) {
    if (tensor->is_between && !tensor->is_carried) return FB_OK;
    if (!tensor->is_carried && tensor->ours.id) {
        bool is_changed = false;
        fb_status status = fb_tensor_changed(c->sides, tensor->base, tensor->ours, &is_changed, c->error);
        if (status) return status;
        bool is_made = fb_tensor_at(c->sides->base, tensor->base)->recipe.id != 0;
        if (is_changed && is_made && !tensor->is_lost && !tensor->is_shared) return FB_OK;
        if (is_changed && !add_base_stub(c, tensor)) return fb_fail_memory(c->error);
    }
    return invert(c, tensor);
}

static int by_source(const void *a, const void *b) {
    const fb_placed_piece *x = a, *y = b;
    return x->piece.source.id < y->piece.source.id ? -1 : x->piece.source.id > y->piece.source.id;
}

/* What is carried from a tensor between says what its inputs are: others that are made from it say nothing more. So it counts
 * as an original meanwhile. */
static void hide_recipes(fb_carrying *c, fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (!c->owned[i].is_between || !c->owned[i].is_carried) continue;
        fb_tensor_row *row = fb_tensor_row_at(c->sides->base, c->owned[i].base);
        recipes[i] = row->recipe;
        row->recipe = (fb_value){0};
    }
}

static void show_recipes(fb_carrying *c, const fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (recipes[i].id) fb_tensor_row_at(c->sides->base, c->owned[i].base)->recipe = recipes[i];
    }
}

fb_status fb_carry_pieces(fb_carrying *c) {
    fb_value *recipes = calloc(c->count + 1, sizeof *recipes);
    fb_status status = recipes ? FB_OK : fb_fail_memory(c->error);
    for (size_t i = 0; i < c->count && !status; i++) {
        if (c->owned[i].is_carried) status = add_pieces(c, &c->owned[i]);
    }
    if (!status) hide_recipes(c, recipes);
    for (size_t i = 0; i < c->count && !status; i++) {
        if (!c->owned[i].is_carried) status = add_pieces(c, &c->owned[i]);
    }
    if (recipes) show_recipes(c, recipes);
    if (!status && c->piece_count) qsort(c->pieces, c->piece_count, sizeof *c->pieces, by_source);
    free(recipes);
    return status;
}

fb_status fb_carry_find(fb_carrying *c, bool *is_any) {
    if (!list_owned(c) || !find_shared(c)) return fb_fail_memory(c->error);
    return find_carried(c, is_any);
}
