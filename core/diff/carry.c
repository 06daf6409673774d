/* Carries changed bytes back through the recipes that made them.
 *
 *     base:   q.weight ─┐                        ours:   merged.weight, of other bytes
 *             k.weight ─┴ concat ─ merged.weight
 *     theirs: q.weight, k.weight                 so:     q.weight = the upper half of merged.weight, k.weight = the lower
 *
 * An original that several tensors were moved from must come back the same from each of them. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/base/sort.h"
#include "core/diff/merging.h"
#include "core/graph/build.h"
#include "core/weights/evaluate.h"
#include "core/weights/inputs.h"
#include "core/weights/invert.h"

/* ---- which tensors changed --------------------------------------------------------------------------------------------- */

static bool same_symbol(const fb_graph *a, fb_symbol x, const fb_graph *b, fb_symbol y) {
    return strcmp(fb_text(a, x), fb_text(b, y)) == 0;
}

/* Compares the descriptions of two tensors' bytes, where the bytes themselves cannot be compared. */
static bool is_described_alike(const fb_graph *base, const fb_tensor_row *before, const fb_graph *ours,
                               const fb_tensor_row *now) {
    return same_symbol(base, before->digest, ours, now->digest) && same_symbol(base, before->blob, ours, now->blob) &&
           before->offset == now->offset && same_symbol(base, before->data, ours, now->data) &&
           fb_same_text(base, before->recipe, ours, now->recipe);
}

/* Bytes that are not here do not count as a failure. */
static fb_status unless_unknown(const fb_error *found, fb_error *error) {
    fb_status status = found->status;
    bool is_failure = status == FB_NO_MEMORY || status == FB_IO || status == FB_NO_SPACE;
    return is_failure ? fb_fail(error, status, found->code, "", "%s", found->message) : FB_OK;
}

/* FB_OK also when it cannot be known: then `digest` is "". */
static fb_status digest_of(const fb_sides *sides, const fb_graph *graph, fb_tensor tensor, char *digest, fb_error *error) {
    fb_error found = {0};
    if (fb_evaluation_digest(graph, tensor, sides->blobs, digest, &found)) *digest = '\0';
    return unless_unknown(&found, error);
}

/* Evaluates two expressions over tensors of base and compares their bytes; false when that is not known. */
static fb_status compare_bytes(const fb_sides *sides, fb_value a, fb_value b, fb_dtype dtype, bool *is_known, bool *is_same,
                               fb_error *error) {
    fb_evaluation *of_a = NULL, *of_b = NULL;
    fb_error found = {0};
    *is_same = false;
    fb_status status = fb_evaluation_of(sides->base, a, dtype, sides->blobs, &of_a, &found);
    if (!status) status = fb_evaluation_of(sides->base, b, dtype, sides->blobs, &of_b, &found);
    if (!status) status = fb_evaluation_equal(of_a, of_b, is_same, &found);
    *is_known = status == FB_OK;
    fb_evaluation_free(of_a);
    fb_evaluation_free(of_b);
    return unless_unknown(&found, error);
}

/* Finds out if a tensor's bytes changed since base. Bytes first: by a digest, or by what is in blobs and inline, and recipes
 * over that; where they are not known, a tensor has changed when its description has. */
static fb_status tensor_changed(const fb_sides *sides, fb_tensor in_base, fb_tensor in_ours, bool *is_changed,
                                fb_error *error) {
    const fb_graph *base = sides->base, *ours = sides->ours;
    const fb_tensor_row *before = fb_tensor_at(base, in_base), *now = fb_tensor_at(ours, in_ours);
    *is_changed = false;
    if (before->dtype == now->dtype && fb_same_text(base, before->shape, ours, now->shape) &&
        is_described_alike(base, before, ours, now)) {
        return FB_OK;
    }
    char was[FB_ID_LENGTH + 1], is[FB_ID_LENGTH + 1];
    fb_status status = digest_of(sides, base, in_base, was, error);
    if (!status) status = digest_of(sides, ours, in_ours, is, error);
    if (status) return status;
    bool is_same_blob = before->blob.id && same_symbol(base, before->blob, ours, now->blob) && before->offset == now->offset;
    *is_changed = *was && *is ? strcmp(was, is) != 0 : !is_same_blob;
    return FB_OK;
}

/* ---- which tensors are stale ------------------------------------------------------------------------------------------- */

typedef struct stale_search {
    const bool *is_stale;
    bool is_found;
} stale_search;

static void look_for_stale(void *context, fb_tensor tensor) {
    stale_search *d = context;
    d->is_found |= d->is_stale[tensor.id];
}

static bool same_row(const fb_graph *base, fb_tensor b, const fb_graph *theirs, fb_tensor t) {
    const fb_tensor_row *x = fb_tensor_at(base, b), *y = fb_tensor_at(theirs, t);
    return x->dtype == y->dtype && fb_same_text(base, x->shape, theirs, y->shape) && is_described_alike(base, x, theirs, y);
}

typedef struct staling {
    const fb_sides *sides;
    fb_tensor last; /* of theirs: found last */
} staling;

static void judge(void *context, fb_tensor tensor) {
    staling *s = context;
    const fb_sides *sides = s->sides;
    const fb_graph *base = sides->base, *theirs = sides->theirs;
    fb_tensor same = fb_tensor_follow(theirs, fb_tensor_name(base, tensor), &s->last);
    stale_search d = {.is_stale = sides->is_stale};
    fb_value recipe = fb_tensor_at(base, tensor)->recipe;
    if (recipe.id) fb_value_visit_tensors(base, recipe, look_for_stale, &d);
    sides->is_stale[tensor.id] = d.is_found || !same.id || !same_row(base, tensor, theirs, same);
}

static bool find_stale(fb_sides *sides) {
    const fb_graph *base = sides->base;
    fb_inputs_walk walk;
    staling s = {.sides = sides};
    sides->stale_limit = fb_tensor_limit(base);
    sides->is_stale = calloc(sides->stale_limit, sizeof *sides->is_stale);
    if (!sides->is_stale) return false;
    if (fb_inputs_begin(&walk, base)) {
        for (fb_tensor t = fb_first_tensor(base); t.id; t = fb_tensor_at(base, t)->next) fb_inputs_visit(&walk, t, judge, &s);
    }
    return fb_inputs_end(&walk);
}

/* A tensor that a module of base owns, or that is computed on the way from originals to such a one. */
typedef struct owned_tensor {
    fb_tensor base, ours;
    bool is_between;    /* without an owner */
    bool is_lost;       /* theirs lacks it at one of its places, or makes it differently */
    bool is_shared;     /* it comes back in theirs, or a tensor that comes back is made from it */
    bool is_carried;    /* it is lost, its bytes changed, and it was made from others */
    fb_tensor stand_in; /* of base, for what `ours` is now; none = it did not change */
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
    bool *is_remade;         /* by tensor of theirs: it is carried back, or made from what is */
    fb_symbol *names_in_base, *names_in_ours, *names_in_theirs; /* new names, by tensor */
} carrying;

typedef enum agreement { FB_CARRY, FB_STAYS, FB_CONFLICTS } agreement;

/* ---- what is owned ----------------------------------------------------------------------------------------------------- */

/* Lists what is owned in base, and finds which tensors theirs lost. */
static bool list_owned(carrying *c) {
    const fb_graph *base = c->sides->base, *theirs = c->sides->theirs, *ours = c->sides->ours;
    fb_slot_index places;
    fb_tensor last = {0};
    uint32_t *listed = calloc(fb_tensor_limit(base), sizeof *listed);
    c->owned = calloc(fb_tensor_count(base) + 1, sizeof *c->owned);
    bool ok = fb_slot_index_make(theirs, &places) && listed && c->owned;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(base, &cursor, &slot);) {
        const char *name = fb_tensor_name(base, slot.tensor);
        if (!listed[slot.tensor.id]) {
            c->owned[c->count] = (owned_tensor){.base = slot.tensor, .ours = fb_tensor_follow(ours, name, &last)};
            listed[slot.tensor.id] = (uint32_t)++c->count;
        }
        fb_tensor there = fb_slot_index_find(&places, base, &slot);
        bool is_there = there.id && strcmp(fb_tensor_name(theirs, there), name) == 0 && !c->sides->is_stale[slot.tensor.id];
        if (!is_there) c->owned[listed[slot.tensor.id] - 1].is_lost = true;
    }
    for (fb_tensor t = fb_first_tensor(base); ok && t.id; t = fb_tensor_at(base, t)->next) {
        if (listed[t.id] || !fb_tensor_at(base, t)->recipe.id) continue;
        fb_tensor now = fb_tensor_find(ours, fb_tensor_name(base, t));
        if (!now.id) continue;
        c->owned[c->count++] = (owned_tensor){.base = t, .ours = now, .is_between = true, .is_lost = c->sides->is_stale[t.id]};
    }
    fb_slot_index_free(&places);
    free(listed);
    return ok;
}

/* Finds what comes back: what theirs owns where base has something else, and what that is made from. */
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
        if (!is_same || c->sides->is_stale[before.id]) fb_inputs_visit(&walk, slot.tensor, fb_mark_tensor, comes_back);
    }
    fb_tensor last = {0};
    for (size_t i = 0; ok && i < c->count; i++) {
        fb_tensor there = fb_tensor_follow(theirs, fb_tensor_name(base, c->owned[i].base), &last);
        c->owned[i].is_shared = there.id && !c->owned[i].is_lost && comes_back[there.id];
    }
    fb_slot_index_free(&places);
    free(comes_back);
    return fb_inputs_end(&walk) && ok;
}

/* ---- stand-ins ---------------------------------------------------------------------------------------------------------- */

/* A copy of ours' tensor, without its recipe, in another graph; none when memory is out. */
static fb_tensor add_stand_in(fb_graph *graph, fb_symbol name, const fb_graph *ours, fb_tensor tensor) {
    fb_tensor_row from = *fb_tensor_at(ours, tensor);
    fb_tensor stand_in = name.id ? fb_graph_add_tensor(graph, name, (fb_tensor){0}) : (fb_tensor){0};
    if (!stand_in.id) return stand_in;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = fb_shape_rank(ours, from.shape);
    for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(ours, from.shape, i);
    fb_tensor_row *row = fb_tensor_row_at(graph, stand_in);
    row->shape = fb_make_shape(graph, sizes, (size_t)rank);
    row->dtype = from.dtype;
    row->requires_grad = from.requires_grad;
    if (from.digest.id) row->digest = fb_intern(graph, fb_text(ours, from.digest));
    if (from.data.id) row->data = fb_intern(graph, fb_text(ours, from.data));
    if (from.blob.id) row->blob = fb_intern(graph, fb_text(ours, from.blob));
    row->offset = from.offset;
    return stand_in;
}

static bool add_base_stand_in(carrying *c, owned_tensor *tensor) {
    if (!fb_sides_own(c->sides)) return false;
    fb_graph *base = c->sides->own_base;
    fb_symbol name = fb_sides_fresh_name(c->sides, base, fb_tensor_name(base, tensor->base));
    tensor->stand_in = add_stand_in(base, name, c->sides->ours, tensor->ours);
    return tensor->stand_in.id && !fb_graph_out_of_memory(base);
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
                         "%s of %s was changed, and only its bytes can go back into the tensors that it was made from", what,
                         fb_tensor_name(ours, tensor->ours));
    return !what;
}

/* A constant that a pass made, and that goes: what was written into it since has nowhere to go. */
static fb_status check_constant(const carrying *c, const owned_tensor *tensor) {
    const char *name = fb_tensor_name(c->sides->base, tensor->base);
    bool is_changed = false;
    bool goes = tensor->is_lost && tensor->ours.id && !fb_tensor_find(c->sides->theirs, name).id;
    if (!goes) return FB_OK;
    fb_status status = tensor_changed(c->sides, tensor->base, tensor->ours, &is_changed, c->error);
    if (!status && is_changed)
        fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "constant-changed", name,
                         "%s changed, or its bytes are not here to check, and none of the originals has them", name);
    return status;
}

/* A search for originals that changed. */
typedef struct origin_search {
    const fb_sides *sides;
    fb_inputs_walk walk;
    bool *has_changed; /* by tensor of base: it is an original that changed in ours, or is made from one */
    bool is_found;     /* in the recipe that is looked at */
    fb_status status;
    fb_error *error;
} origin_search;

static void look_for_changed(void *context, fb_tensor tensor) {
    origin_search *s = context;
    s->is_found |= s->has_changed[tensor.id];
}

static void judge_origin(void *context, fb_tensor tensor) {
    origin_search *s = context;
    const fb_graph *base = s->sides->base;
    fb_value recipe = fb_tensor_at(base, tensor)->recipe;
    fb_tensor now = recipe.id ? (fb_tensor){0} : fb_tensor_find(s->sides->ours, fb_tensor_name(base, tensor));
    s->is_found = false;
    if (recipe.id) fb_value_visit_tensors(base, recipe, look_for_changed, s);
    if (now.id && !s->status) s->status = tensor_changed(s->sides, tensor, now, &s->is_found, s->error);
    s->has_changed[tensor.id] = s->is_found;
}

/* A tensor that was made and has bytes of its own in ours says what its originals were. When one of them changed since, to make
 * theirs of it would compute something else than ours does. */
static fb_status check_origins(carrying *c, const owned_tensor *tensor, origin_search *s) {
    const fb_graph *base = c->sides->base, *ours = c->sides->ours;
    const char *name = fb_tensor_name(ours, tensor->ours);
    if (fb_same_text(base, fb_tensor_at(base, tensor->base)->recipe, ours, fb_tensor_at(ours, tensor->ours)->recipe))
        return FB_OK;
    fb_inputs_visit(&s->walk, tensor->base, judge_origin, s);
    if (!s->status && s->has_changed[tensor->base.id])
        fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "computed", name,
                         "%s has bytes of its own now, and a tensor that it was made from changed", name);
    return s->status;
}

static fb_status find_carried_one(carrying *c, owned_tensor *tensor, origin_search *origins) {
    bool is_made = fb_tensor_at(c->sides->base, tensor->base)->recipe.id != 0;
    fb_status status = is_made ? FB_OK : check_constant(c, tensor);
    if (status || !is_made || !tensor->is_lost || !tensor->ours.id || !check_kept(c, tensor)) return status;
    status = tensor_changed(c->sides, tensor->base, tensor->ours, &tensor->is_carried, c->error);
    if (!status && tensor->is_carried && !add_base_stand_in(c, tensor)) return fb_fail_memory(c->error);
    return status || tensor->is_carried ? status : check_origins(c, tensor, origins);
}

/* Finds what must be carried back. */
static fb_status find_carried(carrying *c, bool *is_any) {
    fb_status status = FB_OK;
    origin_search origins = {.sides = c->sides, .error = c->error};
    origins.has_changed = calloc(fb_tensor_limit(c->sides->base), sizeof *origins.has_changed);
    bool ok = fb_inputs_begin(&origins.walk, c->sides->base) && origins.has_changed;
    for (size_t i = 0; i < c->count && ok && !status; i++) {
        status = find_carried_one(c, &c->owned[i], &origins);
        *is_any |= c->owned[i].is_carried;
    }
    ok &= fb_inputs_end(&origins.walk);
    free(origins.has_changed);
    return status || ok ? status : fb_fail_memory(c->error);
}

/* ---- pieces ------------------------------------------------------------------------------------------------------------ */

static void mark_source(void *context, fb_tensor tensor) {
    const carrying *c = context;
    if (!fb_tensor_at(c->sides->base, tensor)->recipe.id) c->is_computed_from[tensor.id] = true;
}

/* The constant part of a tensor must be unchanged. */
static fb_status check_filler(carrying *c, const owned_tensor *tensor, const fb_piece *piece) {
    fb_graph *base = c->sides->own_base;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(base, tensor->base)->dtype;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    for (int i = 0; i < piece->rank; i++) sizes[i] = piece->stop[i] - piece->start[i];
    bool is_known, is_same;
    fb_value was = fb_recipe_full(base, sizes, (size_t)piece->rank, piece->number);
    if (!was.id) return fb_fail_memory(c->error);
    fb_status status = compare_bytes(c->sides, piece->from, was, dtype, &is_known, &is_same, c->error);
    if (status || is_same) return status;
    const char *name = fb_tensor_name(c->sides->ours, tensor->ours);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "constant-changed", name,
                     is_known
                         ? "the constant part of %s, which belongs to none of the originals, changed"
                         : "%s changed, and without its bytes foldback cannot check that its constant part stayed the same",
                     name);
    return FB_OK;
}

static void report_computed(carrying *c, const owned_tensor *tensor) {
    const char *name = fb_tensor_name(c->sides->ours, tensor->ours);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, "computed", name,
                     "%s changed, and it was computed: its originals cannot be recovered from it", name);
}

static fb_status invert(carrying *c, const owned_tensor *tensor) {
    fb_pieces found = {0};
    bool is_computed = false;
    fb_tensor now = tensor->stand_in.id ? tensor->stand_in : tensor->base;
    fb_status status = fb_recipe_invert(c->sides->own_base, tensor->base, now, &found, &is_computed, c->error);
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

/* Adds the pieces of one tensor. A made tensor that changed and is not lost says nothing about its originals; but an original
 * that changed where it is owned must agree with what is carried back to it. */
static fb_status add_pieces(carrying *c, owned_tensor *tensor) {
    if (tensor->is_between && !tensor->is_carried) return FB_OK;
    if (!tensor->is_carried && tensor->ours.id) {
        bool is_changed = false;
        fb_status status = tensor_changed(c->sides, tensor->base, tensor->ours, &is_changed, c->error);
        if (status) return status;
        bool is_made = fb_tensor_at(c->sides->base, tensor->base)->recipe.id != 0;
        if (is_changed && is_made && !tensor->is_lost && !tensor->is_shared) return FB_OK;
        if (is_changed && !add_base_stand_in(c, tensor)) return fb_fail_memory(c->error);
    }
    return invert(c, tensor);
}

static int by_source(const void *a, const void *b) {
    const placed_piece *x = a, *y = b;
    return x->piece.source.id < y->piece.source.id ? -1 : x->piece.source.id > y->piece.source.id;
}

/* A carried tensor without an owner counts as an original for the tensors that are made from it. */
static void hide_recipes(carrying *c, fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (!c->owned[i].is_between || !c->owned[i].is_carried) continue;
        fb_tensor_row *row = fb_tensor_row_at(c->sides->own_base, c->owned[i].base);
        recipes[i] = row->recipe;
        row->recipe = (fb_value){0};
    }
}

static void show_recipes(carrying *c, const fb_value *recipes) {
    for (size_t i = 0; i < c->count; i++) {
        if (recipes[i].id) fb_tensor_row_at(c->sides->own_base, c->owned[i].base)->recipe = recipes[i];
    }
}

/* Fills c->pieces, sorted by original. */
static fb_status find_pieces(carrying *c) {
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
    if (!status) fb_sort(c->pieces, c->piece_count, sizeof *c->pieces, by_source);
    free(recipes);
    return status;
}

/* Fills c->owned; `is_any`: there is something to carry. */
static fb_status find(carrying *c, bool *is_any) {
    if (!list_owned(c) || !find_shared(c)) return fb_fail_memory(c->error);
    return find_carried(c, is_any);
}

/* ---- one original ------------------------------------------------------------------------------------------------------ */

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

/* Finds out if two pieces of one box surely hold the same bytes. */
static fb_status compare_pieces(carrying *c, const fb_piece *a, const fb_piece *b, bool *is_same) {
    bool is_known;
    *is_same = a->from.id == b->from.id;
    if (*is_same) return FB_OK;
    fb_dtype dtype = (fb_dtype)fb_tensor_at(c->sides->base, a->source)->dtype;
    return compare_bytes(c->sides, a->from, b->from, dtype, &is_known, is_same, c->error);
}

/* Reports a conflict of an original: `detail` has one %s. */
static agreement report_original(carrying *c, const char *code, fb_tensor source, const char *detail) {
    const char *name = fb_tensor_name(c->sides->given_base, source);
    fb_conflicts_add(c->conflicts, FB_CONFLICT_TENSOR, code, name, detail, name);
    return FB_CONFLICTS;
}

/* Picks from all pieces of one original those that cover it once. */
static fb_status choose_pieces(carrying *c, const placed_piece *all, size_t count, const fb_piece **chosen,
                               size_t *chosen_count, agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    *verdict = FB_CARRY;
    for (size_t i = 0; i < count; i++) {
        if (!all[i].of->is_carried) continue;
        bool is_chosen = true;
        for (size_t j = 0; j < *chosen_count && is_chosen; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, chosen[j])) continue;
            if (is_same_box(&all[i].piece, chosen[j])) {
                fb_status status = compare_pieces(c, &all[i].piece, chosen[j], &is_same);
                if (status) return status;
            }
            if (!is_same)
                *verdict = report_original(c, "copies-diverged", source,
                                           "%s went to two places, which now differ, or whose bytes are not here to compare");
            if (!is_same) return FB_OK;
            is_chosen = false;
        }
        if (is_chosen) chosen[(*chosen_count)++] = &all[i].piece;
    }
    return FB_OK;
}

/* The pieces that did not change, and an original that has an owner, must agree with those that changed. */
static fb_status agree_with_rest(carrying *c, const placed_piece *all, size_t count, const fb_piece *const *chosen,
                                 size_t chosen_count, agreement *verdict) {
    fb_tensor source = all[0].piece.source;
    for (size_t i = 0; i < count && *verdict == FB_CARRY; i++) {
        bool is_owner = all[i].of->base.id == source.id;
        if (all[i].of->is_carried) continue;
        for (size_t j = 0; j < chosen_count && *verdict == FB_CARRY; j++) {
            bool is_same = false;
            if (is_apart(&all[i].piece, chosen[j])) continue;
            fb_status status =
                is_same_box(&all[i].piece, chosen[j]) ? compare_pieces(c, &all[i].piece, chosen[j], &is_same) : FB_OK;
            if (status) return status;
            if (!is_same && (is_owner || all[i].of->is_shared))
                *verdict = report_original(c, "tied", source, "another module also owns %s, and there it did not change");
            else if (!is_same)
                *verdict = report_original(c, "copies-diverged", source,
                                           "%s went to several places, and not all of them changed alike");
        }
        if (is_owner && *verdict == FB_CARRY) *verdict = FB_STAYS;
    }
    if (*verdict == FB_CARRY && c->is_computed_from[source.id])
        *verdict = report_original(c, "copies-diverged", source,
                                   "%s changed in one place, and another tensor is computed from what it was");
    return FB_OK;
}

/* Picks from all pieces of one original those that cover it once, and reports what contradicts. `chosen` has room for all. */
static fb_status agree(carrying *c, const placed_piece *all, size_t count, const fb_piece **chosen, size_t *chosen_count,
                       agreement *verdict) {
    fb_status status = choose_pieces(c, all, count, chosen, chosen_count, verdict);
    if (status || *verdict != FB_CARRY || !*chosen_count) return status;
    return agree_with_rest(c, all, count, chosen, *chosen_count, verdict);
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

/* The same expression in another graph, with the stand-ins of `tensors`. */
static fb_value copy_expression(fb_graph *to, const fb_graph *from, fb_value value, const fb_map *tensors) {
    const fb_value_row *row = fb_value_at(from, value);
    switch ((fb_kind)row->kind) {
    case FB_TENSOR: return fb_make_tensor(to, (fb_tensor){fb_map_get(tensors, fb_value_tensor(from, value).id)});
    case FB_INT: return fb_make_int(to, row->integer);
    case FB_STRING: return fb_make_string(to, fb_text(from, row->symbol));
    default: return copy_items(to, from, row, tensors);
    }
}

/* Readers of the original in ours keep the old bytes: that tensor gets another name; or the one that is carried back does,
 * where of the old bytes only the name is known. */
static fb_status rename_apart(carrying *c, fb_tensor old, fb_tensor original) {
    fb_graph *ours = c->sides->own_ours, *theirs = c->sides->own_theirs;
    bool keeps_name = (c->is_read[old.id] || c->is_owned[old.id]) && !fb_tensor_has_known_bytes(ours, old);
    fb_graph *graph = keeps_name ? theirs : ours;
    fb_symbol *name = keeps_name ? &c->names_in_theirs[original.id] : &c->names_in_ours[old.id];
    *name = fb_sides_fresh_name(c->sides, graph, fb_tensor_name(ours, old));
    return name->id ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_source(carrying *c, const placed_piece *all, size_t count, const fb_map *stand_ins) {
    fb_graph *base = c->sides->own_base, *theirs = c->sides->own_theirs;
    fb_tensor source = all[0].piece.source;
    fb_tensor original = fb_tensor_find(theirs, fb_tensor_name(base, source));
    const fb_piece **chosen = calloc(count, sizeof *chosen);
    size_t chosen_count = 0;
    agreement verdict = FB_STAYS;
    fb_status status = chosen ? FB_OK : fb_fail_memory(c->error);
    if (!status && original.id) status = agree(c, all, count, chosen, &chosen_count, &verdict);
    fb_value expression = {0};
    if (!status && verdict == FB_CARRY && chosen_count) {
        int64_t sizes[FB_RECIPE_MAX_RANK];
        fb_value shape = fb_tensor_at(base, source)->shape;
        int rank = fb_shape_rank(base, shape);
        for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(base, shape, i);
        expression = fb_pieces_join(base, chosen, chosen_count, sizes, rank);
        if (fb_graph_out_of_memory(base)) status = fb_fail_memory(c->error);
        else if (!expression.id) report_original(c, "partly-moved", source, "only a part of %s is in what changed");
    }
    if (!status && expression.id) {
        fb_tensor_row *row = fb_tensor_row_at(theirs, original);
        row->recipe = copy_expression(theirs, base, expression, stand_ins);
        row->data = row->digest = row->blob = (fb_symbol){0};
        row->offset = 0;
        c->is_remade[original.id] = true;
        if (fb_graph_out_of_memory(theirs)) status = fb_fail_memory(c->error);
        fb_tensor old = fb_tensor_find(c->sides->ours, fb_tensor_name(base, source));
        if (!status && old.id && !c->names_in_ours[old.id].id) status = rename_apart(c, old, original);
    }
    free(chosen);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------- */

/* Adds the stand-ins of theirs, under the names that their tensors will have. `stand_ins` maps base's stand-ins to them. */
static fb_status add_their_stand_ins(carrying *c, fb_map *stand_ins) {
    fb_graph *base = c->sides->own_base, *theirs = c->sides->own_theirs, *ours = c->sides->own_ours;
    for (size_t i = 0; i < c->count; i++) {
        const owned_tensor *tensor = &c->owned[i];
        if (!tensor->is_carried) continue;
        const char *name = fb_tensor_name(ours, tensor->ours);
        fb_tensor taken = fb_tensor_find(theirs, name); /* made differently there: what ours has stays as a source */
        fb_symbol fresh = taken.id ? fb_sides_fresh_name(c->sides, theirs, name) : fb_intern(theirs, name);
        fb_tensor stand_in = add_stand_in(theirs, fresh, ours, tensor->ours);
        if (taken.id && stand_in.id && fb_tensor_has_known_bytes(ours, tensor->ours)) {
            c->names_in_ours[tensor->ours.id] = fb_intern(ours, fb_text(theirs, fresh));
            c->names_in_base[tensor->base.id] = fb_intern(base, fb_text(theirs, fresh));
            if (!c->names_in_ours[tensor->ours.id].id || !c->names_in_base[tensor->base.id].id) return fb_fail_memory(c->error);
        } else if (taken.id && stand_in.id) { /* of its bytes only the name is known: the two exchange names */
            c->names_in_theirs[stand_in.id] = fb_tensor_at(theirs, taken)->name;
            c->names_in_theirs[taken.id] = fresh;
        }
        if (!stand_in.id || !fb_map_put(stand_ins, tensor->stand_in.id, stand_in.id) ||
            !fb_map_put(&c->sides->stand_ins, stand_in.id, 1)) {
            return fb_fail_memory(c->error);
        }
        /* A recipe beside new bytes describes the old ones. */
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

/* A tensor that theirs makes from what is carried back is not the one that a recipe of ours reads. */
static void rename_dependent(void *context, fb_tensor tensor) {
    carrying *c = context;
    fb_graph *ours = c->sides->own_ours;
    const fb_graph *theirs = c->sides->theirs;
    fb_value recipe = fb_tensor_at(theirs, tensor)->recipe;
    search s = {.marks = c->is_remade};
    if (!recipe.id || c->is_remade[tensor.id]) return;
    fb_value_visit_tensors(theirs, recipe, look_for_mark, &s);
    if (!s.is_found) return;
    c->is_remade[tensor.id] = true;
    fb_tensor old = fb_tensor_find(ours, fb_tensor_name(theirs, tensor));
    if (old.id && c->is_read[old.id] && !c->is_owned[old.id] && !c->names_in_ours[old.id].id)
        c->names_in_ours[old.id] = fb_sides_fresh_name(c->sides, ours, fb_tensor_name(ours, old));
}

static fb_status rename_dependents(carrying *c) {
    const fb_graph *theirs = c->sides->theirs;
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, theirs)) {
        for (fb_tensor t = fb_first_tensor(theirs); t.id; t = fb_tensor_at(theirs, t)->next)
            fb_inputs_visit(&walk, t, rename_dependent, c);
    }
    return fb_inputs_end(&walk) && !fb_graph_out_of_memory(c->sides->ours) ? FB_OK : fb_fail_memory(c->error);
}

static fb_status carry_all(carrying *c) {
    fb_status status = find_pieces(c);
    fb_map stand_ins = {0};
    if (!status) status = add_their_stand_ins(c, &stand_ins);
    find_uses(c);
    for (size_t i = 0, next; i < c->piece_count && !status; i = next) {
        for (next = i; next < c->piece_count && c->pieces[next].piece.source.id == c->pieces[i].piece.source.id;) next++;
        status = carry_source(c, &c->pieces[i], next - i, &stand_ins);
    }
    if (!status) status = rename_dependents(c);
    if (!status) {
        fb_graph_rename_tensors(c->sides->own_base, c->names_in_base);
        fb_graph_rename_tensors(c->sides->own_ours, c->names_in_ours);
        fb_graph_rename_tensors(c->sides->own_theirs, c->names_in_theirs);
    }
    fb_map_free(&stand_ins);
    return status;
}

fb_status fb_carry_back(fb_sides *sides, fb_conflicts *conflicts, fb_error *error) {
    carrying c = {.sides = sides, .conflicts = conflicts, .error = error};
    bool is_any = false, ok = find_stale(sides);
    fb_status status = ok ? find(&c, &is_any) : fb_fail_memory(error);
    if (!status && is_any) {
        c.is_computed_from = calloc(fb_tensor_limit(sides->base), sizeof *c.is_computed_from);
        c.names_in_base = calloc(fb_tensor_limit(sides->base) + c.count, sizeof *c.names_in_base); /* with the stand-ins */
        c.names_in_ours = calloc(fb_tensor_limit(sides->ours), sizeof *c.names_in_ours);
        c.names_in_theirs = calloc(fb_tensor_limit(sides->theirs) + c.count, sizeof *c.names_in_theirs);
        c.is_read = calloc(fb_tensor_limit(sides->ours), sizeof *c.is_read);
        c.is_owned = calloc(fb_tensor_limit(sides->ours), sizeof *c.is_owned);
        c.is_remade = calloc(fb_tensor_limit(sides->theirs) + c.count, sizeof *c.is_remade);
        ok = fb_inputs_begin(&c.computed, sides->base) && c.is_computed_from && c.names_in_base && c.names_in_ours &&
             c.names_in_theirs && c.is_read && c.is_owned && c.is_remade;
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
    free(c.is_remade);
    return status;
}
