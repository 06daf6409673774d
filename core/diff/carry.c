/* Carrying changed tensors back through the recipes that had made them.
 *
 *     base:   q.weight ─┐                        ours:   merged.weight, of other bytes
 *             k.weight ─┴ concat ─ merged.weight
 *     theirs: q.weight, k.weight                 so:     q.weight = the upper half of merged.weight, k.weight = the lower
 *
 * An original that several tensors were moved from must come back the same from each. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/sides.h"
#include "core/document/document.h"
#include "core/graph/build.h"
#include "core/weights/inputs.h"
#include "core/weights/invert.h"

/* A tensor that a module of base owns, or that only stands between originals and such a one. */
typedef struct owned_tensor {
    fb_tensor base, ours;
    bool is_between; /* nobody owns it */
    bool is_lost;    /* it is not in theirs at its place, or is made otherwise there */
    bool is_shared;  /* what comes back in theirs is this tensor, or is made from it */
    bool is_carried; /* it changed, it is lost, and it had been made from others */
    fb_tensor stub;  /* stands in the base graph for what `ours` is now; none = it did not change */
} owned_tensor;

typedef struct placed_piece {
    fb_piece piece;
    const owned_tensor *of;
} placed_piece;

typedef struct carrying {
    fb_sides *sides;
    fb_conflicts *conflicts;
    fb_error *error;
    owned_tensor *owned; /* one for each tensor that is owned in base */
    size_t count;
    placed_piece *pieces;
    size_t piece_count;
    fb_inputs_walk computed; /* over what unchanged owned tensors are computed from */
    bool *is_computed_from;  /* by tensor of base: an unchanged owned tensor is computed from it */
    bool *is_read;           /* by tensor of ours: a recipe reads it */
    bool *is_owned;          /* by tensor of ours */
    bool *is_made_anew;      /* by tensor of theirs: it is carried back, or made from what is */
    fb_symbol *names_in_base, *names_in_ours, *names_in_theirs; /* new names, by tensor */
} carrying;

typedef enum agreement { FB_CARRY, FB_STAYS, FB_CONFLICTS } agreement;

/* ---- what is owned ---------------------------------------------------------------------------------------------------- */

/* Lists what is owned in base, and says of each tensor whether theirs has it at each of its places still. */
static bool list_owned(carrying *c) {
    const fb_graph *base = c->sides->base, *theirs = c->sides->theirs, *ours = c->sides->ours;
    fb_slot_index places;
    uint32_t *listed = calloc(fb_tensor_limit(base), sizeof *listed);
    c->owned = calloc(fb_tensor_count(base) + 1, sizeof *c->owned);
    bool ok = fb_slot_index_make(theirs, &places) && listed && c->owned;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(base, &cursor, &slot);) {
        const char *name = fb_tensor_name(base, slot.tensor);
        if (!listed[slot.tensor.id]) {
            c->owned[c->count] = (owned_tensor){.base = slot.tensor, .ours = fb_tensor_find(ours, name)};
            listed[slot.tensor.id] = (uint32_t)++c->count;
        }
        fb_tensor there = fb_slot_index_find(&places, base, &slot);
        bool is_there = there.id && strcmp(fb_tensor_name(theirs, there), name) == 0 && !c->sides->is_dirty[slot.tensor.id];
        if (!is_there) c->owned[listed[slot.tensor.id] - 1].is_lost = true;
    }
    for (fb_tensor t = fb_first_tensor(base); ok && t.id; t = fb_tensor_at(base, t)->next) {
        fb_tensor now = fb_tensor_find(ours, fb_tensor_name(base, t));
        if (listed[t.id] || !now.id || !fb_tensor_at(base, t)->recipe.id) continue;
        c->owned[c->count++] = (owned_tensor){.base = t, .ours = now, .is_between = true, .is_lost = c->sides->is_dirty[t.id]};
    }
    fb_slot_index_free(&places);
    free(listed);
    return ok;
}

/* Finds what theirs owns at places where base has something else, and what that is made from. */
static bool find_shared(carrying *c) {
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

/* A copy of ours' tensor, without its recipe, in another graph; none when memory is out. */
static fb_tensor carry_add_stub(fb_graph *graph, fb_symbol name, const fb_graph *ours, fb_tensor tensor) {
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

static bool add_base_stub(carrying *c, owned_tensor *tensor) {
    fb_symbol name = fb_sides_fresh_name(c->sides, c->sides->base, fb_tensor_name(c->sides->base, tensor->base));
    tensor->stub = carry_add_stub(c->sides->base, name, c->sides->ours, tensor->ours);
    return tensor->stub.id && !fb_graph_out_of_memory(c->sides->base);
}

/* Only bytes can be carried back. */
static bool check_kept(carrying *c, const owned_tensor *tensor) {
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
static fb_status find_carried(carrying *c, bool *is_any) {
    for (size_t i = 0; i < c->count; i++) {
        owned_tensor *tensor = &c->owned[i];
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
    const carrying *c = context;
    if (!fb_tensor_at(c->sides->base, tensor)->recipe.id) c->is_computed_from[tensor.id] = true;
}

/* The filler must still be what it was. */
static fb_status check_filler(carrying *c, const owned_tensor *tensor, const fb_piece *piece) {
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
                              : "%s changed, and without its bytes foldback cannot check that its constant part did not",
                     name);
    return FB_OK;
}

static void report_computed(carrying *c, const owned_tensor *tensor) {
    const char *name = fb_tensor_name(c->sides->ours, tensor->ours);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "computed", name,
                     "%s changed, and it was computed: what its originals would be now cannot be known", name);
}

static fb_status invert(carrying *c, const owned_tensor *tensor) {
    fb_pieces found = {0};
    bool is_computed = false;
    fb_tensor now = tensor->stub.id ? tensor->stub : tensor->base;
    fb_status status = fb_recipe_invert(c->sides->base, tensor->base, now, &found, &is_computed, c->error);
    if (!status && is_computed) {
        if (tensor->is_carried) report_computed(c, tensor);
        else fb_inputs_visit(&c->computed, tensor->base, mark_source, c);
        found.count = 0;
    }
    placed_piece *pieces = status ? NULL : realloc(c->pieces, (c->piece_count + found.count + 1) * sizeof *pieces);
    if (!status && !pieces) status = fb_fail_memory(c->error);
    if (!status) c->pieces = pieces;
    for (size_t i = 0; i < found.count && !status; i++) {
        if (found.items[i].source.id) pieces[c->piece_count++] = (placed_piece){found.items[i], tensor};
        else if (tensor->is_carried) status = check_filler(c, tensor, &found.items[i]);
    }
    fb_pieces_free(&found);
    return status;
}

/* Adds the pieces of one tensor. One that changed and is not lost goes its own way, and says nothing about what it had been
 * made from; but an original that changed where it is owned must agree with what is carried back to it. */
static fb_status add_pieces(carrying *c, owned_tensor *tensor) {
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
    const placed_piece *x = a, *y = b;
    return x->piece.source.id < y->piece.source.id ? -1 : x->piece.source.id > y->piece.source.id;
}

/* What is carried from a tensor between says what its inputs are: others that are made from it say nothing more. So it counts
 * as an original meanwhile. */
static void hide_recipes(carrying *c, fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (!c->owned[i].is_between || !c->owned[i].is_carried) continue;
        fb_tensor_row *row = fb_tensor_row_at(c->sides->base, c->owned[i].base);
        recipes[i] = row->recipe;
        row->recipe = (fb_value){0};
    }
}

static void show_recipes(carrying *c, const fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (recipes[i].id) fb_tensor_row_at(c->sides->base, c->owned[i].base)->recipe = recipes[i];
    }
}

/* Fills c->pieces, sorted by original. */
static fb_status carry_pieces(carrying *c) {
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

/* Fills c->owned; `is_any`: there is something to carry. */
static fb_status carry_find(carrying *c, bool *is_any) {
    if (!list_owned(c) || !find_shared(c)) return fb_fail_memory(c->error);
    return find_carried(c, is_any);
}

/* Whether all that is known of one original says the same. */

/* ---- one original ------------------------------------------------------------------------------------------------------- */

static bool is_same_box(const fb_piece *a, const fb_piece *b) {
    for (int i = 0; i < a->rank; i++) {
        if (a->start[i] != b->start[i] || a->stop[i] != b->stop[i]) return false;
    }
    return true;
}

static bool is_apart(const fb_piece *a, const fb_piece *b) {
    for (int i = 0; i < a->rank; i++) {
        if (a->stop[i] <= b->start[i] || b->stop[i] <= a->start[i]) return true;
    }
    return false;
}

/* Whether two pieces of one box are shown to hold the same bytes. */
static fb_status compare_pieces(carrying *c, const fb_piece *a, const fb_piece *b, bool *is_same) {
    bool is_known;
    *is_same = a->from.id == b->from.id;
    if (*is_same) return FB_OK;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(c->sides->base, a->source)->dtype;
    return fb_compare_bytes(c->sides, a->from, b->from, dtype, &is_known, is_same, c->error);
}

/* Reports a conflict of an original: `detail` has one %s. */
static agreement carry_report(carrying *c, const char *code, fb_tensor source, const char *detail) {
    const char *name = fb_tensor_name(c->sides->given_base, source);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, code, name, detail, name);
    return FB_CONFLICTS;
}

/* Picks from all pieces of one original those that cover it once. */
static fb_status choose_pieces(carrying *c, const placed_piece *all, size_t count, const fb_piece **kept, size_t *kept_count,
                               agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    *verdict = FB_CARRY;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].of->is_carried) continue;
        bool is_kept = true;
        for (size_t j = 0; j < *kept_count && is_kept; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, kept[j])) continue;
            if (is_same_box(&all[i].piece, kept[j])) {
                fb_status status = compare_pieces(c, &all[i].piece, kept[j], &is_same);
                if (status) return status;
            }
            if (!is_same)
                *verdict = carry_report(c, "copies-diverged", source,
                                        "%s went to two places, which now differ, or whose bytes are not here to compare");
            if (!is_same) return FB_OK;
            is_kept = false;
        }
        if (is_kept) kept[(*kept_count)++] = &all[i].piece;
    }
    return FB_OK;
}

/* What did not change, or is owned itself, must be what the changed pieces say. */
static fb_status agree_with_rest(carrying *c, const placed_piece *all, size_t count, const fb_piece *const *kept,
                                 size_t kept_count, agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    for (size_t i = 0; i < count && *verdict == FB_CARRY; i++) {
        bool is_owner = all[i].of->base.id == source.id;
        if (all[i].of->is_carried) continue;
        for (size_t j = 0; j < kept_count && *verdict == FB_CARRY; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, kept[j])) continue;
            fb_status status =
                is_same_box(&all[i].piece, kept[j]) ? compare_pieces(c, &all[i].piece, kept[j], &is_same) : FB_OK;
            if (status) return status;
            if (!is_same && (is_owner || all[i].of->is_shared))
                *verdict = carry_report(c, "tied", source, "another module also owns %s, and there it did not change");
            else if (!is_same)
                *verdict =
                    carry_report(c, "copies-diverged", source, "%s went to several places, and not all of them changed alike");
        }
        if (is_owner && *verdict == FB_CARRY) *verdict = FB_STAYS;
    }
    if (*verdict == FB_CARRY && c->is_computed_from[source.id])
        *verdict = carry_report(c, "copies-diverged", source,
                                "%s changed in one place, and another tensor is computed from what it was");
    return FB_OK;
}
/* Picks from all pieces of one original those that cover it once; what contradicts is reported. `kept` has room for all. */
static fb_status carry_agree(carrying *c, const placed_piece *all, size_t count, const fb_piece **kept, size_t *kept_count,
                             agreement *verdict) {
    fb_status status = choose_pieces(c, all, count, kept, kept_count, verdict);
    if (status || *verdict != FB_CARRY || !*kept_count) return status;
    return agree_with_rest(c, all, count, kept, *kept_count, verdict);
}

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

/* Readers of the original in ours keep the old bytes: that tensor, or the one that is carried back, gets another name.
 * Of bytes that are not known here nothing but the name is known. */
static fb_status part_names(carrying *c, fb_tensor old, fb_tensor original) {
    fb_graph *ours = c->sides->ours, *theirs = c->sides->theirs;
    bool keeps_name = (c->is_read[old.id] || c->is_owned[old.id]) && !fb_tensor_has_known_bytes(ours, old);
    fb_graph *graph = keeps_name ? theirs : ours;
    fb_symbol *name = keeps_name ? &c->names_in_theirs[original.id] : &c->names_in_ours[old.id];
    *name = fb_sides_fresh_name(c->sides, graph, fb_tensor_name(ours, old));
    return name->id ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_source(carrying *c, const placed_piece *all, size_t count, const fb_map *stubs) {
    fb_graph *base = c->sides->base, *theirs = c->sides->theirs;
    fb_tensor source = all[0].piece.source;
    fb_tensor original = fb_tensor_find(theirs, fb_tensor_name(base, source));
    const fb_piece **kept = calloc(count, sizeof *kept);
    size_t kept_count = 0;
    agreement verdict = FB_STAYS;
    fb_status status = kept ? FB_OK : fb_fail_memory(c->error);
    if (!status && original.id) status = carry_agree(c, all, count, kept, &kept_count, &verdict);
    fb_value expression = {0};
    if (!status && verdict == FB_CARRY && kept_count) {
        int64_t sizes[FB_RECIPE_MAX_RANK];
        fb_value shape = fb_tensor_at(base, source)->shape;
        int rank = fb_shape_rank(base, shape);
        for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(base, shape, i);
        expression = fb_pieces_join(base, kept, kept_count, sizes, rank);
        if (fb_graph_out_of_memory(base)) status = fb_fail_memory(c->error);
        else if (!expression.id) carry_report(c, "partly-moved", source, "only a part of %s is in what changed");
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
static fb_status add_their_stubs(carrying *c, fb_map *stubs) {
    fb_graph *base = c->sides->base, *theirs = c->sides->theirs, *ours = c->sides->ours;
    for (size_t i = 0; i < c->count; i++) {
        const owned_tensor *tensor = &c->owned[i];
        if (!tensor->is_carried) continue;
        const char *name = fb_tensor_name(ours, tensor->ours);
        fb_tensor taken = fb_tensor_find(theirs, name); /* made otherwise there: what ours has stays as a source */
        fb_symbol fresh = taken.id ? fb_sides_fresh_name(c->sides, theirs, name) : fb_intern(theirs, name);
        fb_tensor stub = carry_add_stub(theirs, fresh, ours, tensor->ours);
        if (taken.id && stub.id && fb_tensor_has_known_bytes(ours, tensor->ours)) {
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

static void find_uses(carrying *c) {
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
    carrying *c = context;
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

static fb_status part_dependents(carrying *c) {
    const fb_graph *theirs = c->sides->theirs;
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, theirs)) {
        for (fb_tensor t = fb_first_tensor(theirs); t.id; t = fb_tensor_at(theirs, t)->next)
            fb_inputs_visit(&walk, t, part_from_ours, c);
    }
    return fb_inputs_end(&walk) && !fb_graph_out_of_memory(c->sides->ours) ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_all(carrying *c) {
    fb_status status = carry_pieces(c);
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
    carrying c = {.sides = sides, .conflicts = conflicts, .error = error};
    bool is_any = false, ok = fb_find_dirty(sides);
    fb_status status = ok ? carry_find(&c, &is_any) : fb_fail_memory(error);
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
