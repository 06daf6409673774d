/* Which tensors are not what they were: in ours since base, and in theirs. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sha256.h"
#include "core/diff/sides.h"
#include "core/document/document.h"
#include "core/weights/evaluate.h"
#include "core/weights/inputs.h"

/* ---- what changed ------------------------------------------------------------------------------------------------------- */

/* Without the texts themselves, for which memory might be out. */
bool fb_same_text(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y) {
    if (!x.id || !y.id) return !x.id && !y.id;
    const fb_value_row *of_x = fb_value_at(a, x), *of_y = fb_value_at(b, y);
    if (of_x->kind != of_y->kind || of_x->count != of_y->count) return false;
    switch ((fb_kind)of_x->kind) {
    case FB_NONE:
    case FB_FALSE:
    case FB_TRUE: return true;
    case FB_INT: return of_x->integer == of_y->integer;
    case FB_FLOAT: return memcmp(&of_x->real, &of_y->real, sizeof of_x->real) == 0;
    case FB_NODE: return strcmp(fb_node_name(a, of_x->node), fb_node_name(b, of_y->node)) == 0;
    case FB_TENSOR: return strcmp(fb_tensor_name(a, of_x->tensor), fb_tensor_name(b, of_y->tensor)) == 0;
    default: break;
    }
    if (strcmp(fb_text(a, of_x->symbol), fb_text(b, of_y->symbol)) != 0) return false;
    for (size_t i = 0; i < of_x->count; i++) {
        if (!fb_same_text(a, of_x->items[i], b, of_y->items[i])) return false;
    }
    return true;
}

static bool same_symbol(const fb_graph *a, fb_symbol x, const fb_graph *b, fb_symbol y) {
    return strcmp(fb_text(a, x), fb_text(b, y)) == 0;
}

bool fb_tensor_has_known_bytes(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    return row->digest.id || row->blob.id || row->data.id || row->recipe.id;
}

/* Whether what is said about the two tensors' bytes is the same, where they themselves cannot be compared. */
static bool is_described_alike(const fb_graph *base, const fb_tensor_row *before, const fb_graph *ours,
                               const fb_tensor_row *now) {
    return same_symbol(base, before->digest, ours, now->digest) && same_symbol(base, before->blob, ours, now->blob) &&
           before->offset == now->offset && same_symbol(base, before->data, ours, now->data) &&
           fb_same_text(base, before->recipe, ours, now->recipe);
}

/* Bytes that are not here are no failure. */
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

fb_status fb_compare_bytes(const fb_sides *sides, fb_value a, fb_value b, fb_dtype dtype, bool *is_known, bool *is_same,
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

fb_status fb_tensor_changed(const fb_sides *sides, fb_tensor in_base, fb_tensor in_ours, bool *is_changed, fb_error *error) {
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

/* ---- what is lost ------------------------------------------------------------------------------------------------------- */

typedef struct dirt {
    const bool *is_dirty;
    bool is_found;
} dirt;

static void look_for_dirt(void *context, fb_tensor tensor) {
    dirt *d = context;
    d->is_found |= d->is_dirty[tensor.id];
}

static bool same_row(const fb_graph *base, fb_tensor b, const fb_graph *theirs, fb_tensor t) {
    const fb_tensor_row *x = fb_tensor_at(base, b), *y = fb_tensor_at(theirs, t);
    return x->dtype == y->dtype && fb_same_text(base, x->shape, theirs, y->shape) && is_described_alike(base, x, theirs, y);
}

static void judge(void *context, fb_tensor tensor) {
    const fb_sides *sides = context;
    const fb_graph *base = sides->base, *theirs = sides->theirs;
    fb_tensor same = fb_tensor_find(theirs, fb_tensor_name(base, tensor));
    dirt d = {.is_dirty = sides->is_dirty};
    fb_value recipe = fb_tensor_at(base, tensor)->recipe;
    if (recipe.id) fb_value_visit_tensors(base, recipe, look_for_dirt, &d);
    sides->is_dirty[tensor.id] = d.is_found || !same.id || !same_row(base, tensor, theirs, same);
}

bool fb_find_dirty(fb_sides *sides) {
    const fb_graph *base = sides->base;
    fb_inputs_walk walk;
    sides->dirty_limit = fb_tensor_limit(base);
    sides->is_dirty = calloc(sides->dirty_limit, sizeof *sides->is_dirty);
    if (!sides->is_dirty) return false;
    if (fb_inputs_begin(&walk, base)) {
        for (fb_tensor t = fb_first_tensor(base); t.id; t = fb_tensor_at(base, t)->next)
            fb_inputs_visit(&walk, t, judge, sides);
    }
    return fb_inputs_end(&walk);
}

bool fb_is_dirty(const fb_sides *sides, fb_tensor tensor) {
    return tensor.id < sides->dirty_limit && sides->is_dirty[tensor.id];
}
