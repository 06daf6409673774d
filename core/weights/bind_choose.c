/* Which tensor of the graph each of the files' tensors is.
 *
 * A name can mean two: after BatchNorm was folded into a convolution, "conv.weight" is the tensor of that name, which the
 * folded one is computed from, and also the path at which a module owns the folded one, "conv.weight@1a2b3c4d". A file of the
 * original model means the first, one of the optimised model the second; and all files together are of one of the two. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/slot.h"
#include "core/weights/bind_internal.h"
#include "core/weights/inputs.h"

#define BLOCK ((uint64_t)4 << 20) /* bytes that are compared at a time */

static bool is_contested(const fb_given *given) {
    return given->by_name.id && given->by_path.id && given->by_name.id != given->by_path.id;
}

static bool fits(const fb_graph *graph, const fb_safetensors_entry *entry, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    bool same = entry->dtype == row->dtype && entry->rank == fb_shape_rank(graph, row->shape);
    for (int i = 0; same && i < entry->rank; i++) same = entry->shape[i] == fb_shape_size(graph, row->shape, i);
    return same;
}

/* ---- is it a file of the graph's modules, or of what they were made from? ------------------------------------------------ */

static bool has_bytes(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    return row->blob.id || row->data.id;
}

typedef struct lack {
    const fb_graph *graph;
    const bool *is_named; /* by tensor: a file has one of that name */
    bool is_found;
} lack;

static void look_for_lack(void *context, fb_tensor tensor) {
    lack *l = context;
    l->is_found |= !has_bytes(l->graph, tensor) && !fb_tensor_at(l->graph, tensor)->recipe.id && !l->is_named[tensor.id];
}

/* Whether something would be missing that the tensors owned at contested paths are made from, if names were believed. */
static fb_status names_leave_gaps(const fb_binder *b, bool *out) {
    bool *is_named = calloc(fb_tensor_limit(b->graph), sizeof *is_named);
    lack l = {.graph = b->graph, .is_named = is_named};
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, b->graph) && is_named) {
        for (size_t i = 0; i < b->given_count; i++) is_named[b->given[i].by_name.id] = true;
        for (size_t i = 0; i < b->given_count; i++) {
            if (is_contested(&b->given[i])) fb_inputs_visit(&walk, b->given[i].by_path, look_for_lack, &l);
        }
    }
    bool ok = fb_inputs_end(&walk) && is_named;
    free(is_named);
    *out = l.is_found;
    return ok ? FB_OK : fb_fail_memory(b->error);
}

/* Sets *by_path, which is false. */
static fb_status choose_reading(const fb_binder *b, const bool *is_owned, bool *by_path) {
    size_t contested = 0, misfits_by_name = 0, misfits_by_path = 0, owned = 0, known = 0;
    bool has_source = false; /* a file has what no module owns: it is the original's */
    for (size_t i = 0; i < b->given_count; i++) {
        const fb_given *given = &b->given[i];
        has_source |= given->by_name.id && !given->by_path.id && !is_owned[given->by_name.id];
        if (!is_contested(given)) continue;
        contested++;
        misfits_by_name += !fits(b->graph, given->entry, given->by_name);
        misfits_by_path += !fits(b->graph, given->entry, given->by_path);
        owned += is_owned[given->by_name.id];
        known += has_bytes(b->graph, given->by_name);
    }
    if (!contested) return FB_OK;
    if (misfits_by_name != misfits_by_path) *by_path = misfits_by_path < misfits_by_name;
    else if (!has_source && (known || owned == contested)) *by_path = true; /* no originals, or they are here already */
    else if (!has_source) return names_leave_gaps(b, by_path);
    return FB_OK;
}

/* ---- one by one --------------------------------------------------------------------------------------------------------- */

/* Of tensors of one dtype and shape: paths of one tensor may each have a copy. */
static bool same_bytes(const fb_binder *b, const fb_given *x, const fb_given *y) {
    for (uint64_t at = 0, count; at < x->entry->size; at += count) {
        count = x->entry->size - at < BLOCK ? x->entry->size - at : BLOCK;
        if (memcmp(fb_given_bytes(b, x) + at, fb_given_bytes(b, y) + at, (size_t)count) != 0) return false;
        fb_bind_forget(b, x);
        fb_bind_forget(b, y);
    }
    return true;
}

static fb_status bind_given(fb_binder *b, size_t index) {
    fb_given *given = &b->given[index];
    fb_tensor tensor = given->tensor;
    const char *name = given->entry->name;
    size_t *bound = &b->of_tensor[tensor.id];
    if (!fits(b->graph, given->entry, tensor)) {
        given->tensor = (fb_tensor){0};
        return fb_bind_mismatch(b, name, given, tensor, "the file's dtype or shape is not the graph's");
    }
    if (!*bound) {
        *bound = index + 1;
        return FB_OK;
    }
    const fb_given *other = &b->given[*bound - 1];
    if (!same_bytes(b, given, other))
        return fb_bind_mismatch(b, name, given, tensor, "it is tied to %s, of which the files have other bytes",
                                other->entry->name);
    if (strcmp(name, fb_tensor_name(b->graph, tensor)) == 0) *bound = index + 1;
    return FB_OK;
}

static bool *find_owned(const fb_graph *graph) {
    bool *is_owned = calloc(fb_tensor_limit(graph), sizeof *is_owned);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; is_owned && fb_slot_next(graph, &cursor, &slot);) is_owned[slot.tensor.id] = true;
    return is_owned;
}

fb_status fb_bind_choose(fb_binder *b) {
    for (size_t i = 0; i < b->given_count; i++) {
        fb_given *given = &b->given[i];
        given->by_name = fb_tensor_find(b->graph, given->entry->name);
        given->by_path = fb_tensor_at_path(b->graph, given->entry->name);
    }
    bool *is_owned = find_owned(b->graph), by_path = false;
    fb_status status = is_owned ? choose_reading(b, is_owned, &by_path) : fb_fail_memory(b->error);
    for (size_t i = 0; i < b->given_count && !status; i++) {
        fb_given *given = &b->given[i];
        bool takes_path = given->by_path.id && (by_path || !given->by_name.id);
        given->tensor = takes_path ? given->by_path : given->by_name;
        if (i && strcmp(given->entry->name, given[-1].entry->name) == 0) continue; /* was reported */
        if (given->tensor.id) status = bind_given(b, i);
        else if (json_array_append_new(b->binding->extra, json_string(given->entry->name))) status = fb_fail_memory(b->error);
    }
    free(is_owned);
    return status;
}
