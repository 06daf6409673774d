/* Which tensor of the graph each of the files' tensors is.
 *
 * A name can mean two: after BatchNorm was folded into a convolution, "conv.weight" is the tensor of that name, which the
 * folded one is computed from, and also the path at which a module owns the folded one, "conv.weight@1a2b3c4d". A file of the
 * original model (the source) means the first, one of the optimised model (finished) the second; and all files together are of
 * one of the two.
 *
 * Which one it is, in this order: what the caller says; what foldback wrote into the files (weights_file.h); what only one of
 * the two models has (bn.weight is gone from the second, conv.bias new in it), dtypes and shapes; bytes, where the graph has
 * its own. Where all of that fits both, nothing is guessed: scaled weights that are scaled again look like any others. */
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind_internal.h"
#include "core/document/document.h"
#include "core/graph/slot.h"
#include "core/weights/inputs.h"
#include "core/weights/weights_file.h"

#define BLOCK ((uint64_t)4 << 20) /* bytes that are compared at a time */

bool fb_bind_fits(const fb_graph *graph, const fb_safetensors_entry *entry, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    bool same = entry->dtype == row->dtype && entry->rank == fb_shape_rank(graph, row->shape);
    for (int i = 0; same && i < entry->rank; i++) same = entry->shape[i] == fb_shape_size(graph, row->shape, i);
    return same;
}

/* ---- is it a file of the graph's modules, or of what they were made from? ------------------------------------------------ */

static bool is_contested(const fb_binder *b, const fb_given *given, const bool *is_owned) {
    if (given->said.id) return false;
    if (given->is_alias) return true;
    if (!given->by_name.id || !given->by_path.id || given->by_name.id == given->by_path.id) return false;
    /* Two tensors that modules own under each other's names are told apart by their owners. */
    return !is_owned[given->by_name.id] || fb_tensor_is_made(b->graph, given->by_path, is_owned);
}

static bool has_bytes(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    return row->blob.id || row->data.id;
}

typedef struct lack {
    const fb_graph *graph;
    const bool *is_given; /* by tensor: a file has its bytes */
    bool is_found;
} lack;

static void look_for_lack(void *context, fb_tensor tensor) {
    lack *l = context;
    l->is_found |= !has_bytes(l->graph, tensor) && !fb_tensor_at(l->graph, tensor)->recipe.id && !l->is_given[tensor.id];
}

/* The source has no tensor that passes computed. One of its names may be that of such a tensor all the same: a path that was
 * tied to another one, until a pass gave it a tensor of its own. */
static bool is_lacked_by_source(const fb_binder *b, const fb_given *given) {
    return given->by_name.id && fb_tensor_is_computed(b->graph, given->by_name);
}

static fb_tensor meant_by(const fb_binder *b, const fb_given *given, const bool *is_owned, bool by_path) {
    if (given->said.id) return given->said;
    bool takes_path = given->by_path.id && (by_path || !is_contested(b, given, is_owned));
    if (takes_path) return given->by_path;
    return is_lacked_by_source(b, given) ? (fb_tensor){0} : given->by_name;
}

/* Whether something that a checkpoint has would have no bytes under that reading. */
static fb_status leaves_gaps(const fb_binder *b, const bool *is_owned, bool by_path, bool *out) {
    bool *is_given = calloc(fb_tensor_limit(b->graph), sizeof *is_given);
    lack l = {.graph = b->graph, .is_given = is_given};
    fb_inputs_walk walk;
    fb_slot slot;
    bool ok = fb_inputs_begin(&walk, b->graph) && is_given;
    for (size_t i = 0; i < b->given_count && ok; i++) is_given[meant_by(b, &b->given[i], is_owned, by_path).id] = true;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(b->graph, &cursor, &slot);) {
        bool is_demanded = !is_given[slot.tensor.id] && fb_slot_is_persistent(b->graph, &slot);
        if (is_demanded) fb_inputs_visit(&walk, slot.tensor, look_for_lack, &l);
    }
    ok &= fb_inputs_end(&walk);
    free(is_given);
    *out = l.is_found;
    return ok ? FB_OK : fb_fail_memory(b->error);
}

/* What speaks against each of the two readings. */
typedef struct evidence {
    size_t contested;
    size_t misfits_by_name, misfits_by_path; /* dtypes and shapes */
    bool has_source;                         /* a file has what no module owns, and what only recipes read */
    bool has_alias;                          /* a file has the same bytes for what was tied before the passes */
    bool has_finished;                       /* a file has what passes made, at a path that the original lacks */
    bool says_finished;                      /* each file with a contested name says that it is of this graph's modules */
} evidence;

static void look_at(const fb_binder *b, const fb_given *given, const bool *is_owned, evidence *found) {
    fb_tensor name = given->by_name, path = given->by_path;
    if (is_contested(b, given, is_owned)) {
        found->contested++;
        found->has_alias |= given->is_alias;
        found->misfits_by_name += !fb_bind_fits(b->graph, given->entry, name) || is_lacked_by_source(b, given);
        found->misfits_by_path += !fb_bind_fits(b->graph, given->entry, path);
        found->says_finished &= b->files[given->file].is_finished;
        return;
    }
    found->has_source |= name.id && !path.id && !is_owned[name.id];
    found->has_finished |= path.id && fb_tensor_is_made(b->graph, path, is_owned);
}

static fb_status has_digest(const fb_binder *b, const char *digest, const fb_given *given, bool *same) {
    fb_sha256 *hash = fb_sha256_new();
    char found[FB_ID_LENGTH + 1];
    bool ok = hash != NULL;
    for (uint64_t at = 0, count; at < given->entry->size && ok; at += count) {
        count = given->entry->size - at < BLOCK ? given->entry->size - at : BLOCK;
        ok = fb_sha256_add(hash, fb_given_bytes(b, given) + at, (size_t)count);
        fb_bind_forget(b, given);
    }
    ok = ok && fb_sha256_id_so_far(hash, found);
    *same = ok && strcmp(found, digest) == 0;
    fb_sha256_free(hash);
    return ok ? FB_OK : fb_fail_memory(b->error);
}

fb_status fb_bind_is_equal(const fb_binder *b, fb_tensor tensor, const fb_given *given, bool *same) {
    fb_symbol digest = fb_tensor_at(b->graph, tensor)->digest;
    return digest.id ? has_digest(b, fb_text(b->graph, digest), given, same) : fb_bind_has_already(b, tensor, given, same);
}

/* Whether every contested tensor of the files has the bytes, or the digest, that the graph has for it under that reading. */
static fb_status has_bytes_of(const fb_binder *b, const bool *is_owned, bool by_path, bool *same) {
    fb_status status = FB_OK;
    *same = true;
    for (size_t i = 0; i < b->given_count && *same && !status; i++) {
        const fb_given *given = &b->given[i];
        if (!is_contested(b, given, is_owned)) continue;
        fb_tensor tensor = by_path ? given->by_path : given->by_name;
        if (!by_path && is_lacked_by_source(b, given)) *same = false;
        if (!*same) break;
        status = fb_bind_is_equal(b, tensor, given, same);
    }
    return status;
}

static fb_status refuse_ambiguous(const fb_binder *b, const bool *is_owned, size_t contested) {
    const char *name = "";
    for (size_t i = 0; i < b->given_count && !*name; i++) {
        if (is_contested(b, &b->given[i], is_owned)) name = b->given[i].entry->name;
    }
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "%zu names in the files, \"%.200s\" for instance, may mean the original model's weights or those of the "
                   "optimised one; pass as: source or as: finished",
                   contested, name);
}

typedef struct reading {
    bool by_path;    /* finished */
    bool is_certain; /* also that no tensor between the two is meant */
} reading;

/* Both fit by name, dtype and shape. */
static fb_status compare_bytes(const fb_binder *b, const bool *is_owned, const evidence *found, reading *out) {
    bool is_source = false, is_finished = false;
    fb_status status = has_bytes_of(b, is_owned, false, &is_source);
    if (!status) status = has_bytes_of(b, is_owned, true, &is_finished);
    *out = (reading){.by_path = is_finished, .is_certain = is_source || is_finished};
    /* The last to be asked: a weight that was scaled by 1 has the same bytes, too. */
    is_source |= found->has_alias;
    if (!status && !is_source && !is_finished) status = refuse_ambiguous(b, is_owned, found->contested);
    return status;
}

static fb_status contradict(const fb_binder *b) {
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "the file says that it holds the finished weights of this very graph, and the request that it holds the "
                   "source's; leave as out, or pass as: finished");
}

static fb_status choose_reading(const fb_binder *b, const bool *is_owned, reading *out) {
    bool is_source = b->options.as == FB_WEIGHTS_SOURCE || b->options.as == FB_WEIGHTS_ORIGINAL;
    evidence found = {.says_finished = true};
    for (size_t i = 0; i < b->given_count; i++) look_at(b, &b->given[i], is_owned, &found);
    *out = (reading){.is_certain = b->options.as == FB_WEIGHTS_ORIGINAL};
    if (!found.contested) return FB_OK;
    if (is_source && found.says_finished) return contradict(b);
    out->is_certain |= b->options.as == FB_WEIGHTS_FINISHED || found.says_finished;
    out->by_path = b->options.as == FB_WEIGHTS_FINISHED || found.says_finished;
    if (b->options.as || found.says_finished) return FB_OK;
    if (found.misfits_by_name != found.misfits_by_path) {
        out->by_path = found.misfits_by_path < found.misfits_by_name;
        return FB_OK;
    }
    if (found.has_source != found.has_finished) {
        out->by_path = found.has_finished;
        return FB_OK;
    }
    bool has_gaps = false, has_gaps_by_path = false;
    fb_status status = leaves_gaps(b, is_owned, false, &has_gaps);
    if (!status) status = leaves_gaps(b, is_owned, true, &has_gaps_by_path);
    out->by_path = has_gaps;
    if (status || has_gaps != has_gaps_by_path) return status;
    return compare_bytes(b, is_owned, &found, out);
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
    const char *name = given->entry->name; /* as people know it */
    size_t *bound = &b->of_tensor[tensor.id];
    if (!fb_bind_fits(b->graph, given->entry, tensor)) {
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
    if (strcmp(given->name, fb_tensor_name(b->graph, tensor)) == 0) *bound = index + 1;
    return FB_OK;
}

/* ---- ties that passes have cut ------------------------------------------------------------------------------------------ */

typedef struct alias_search {
    const fb_binder *b;
    const fb_given *given;
    fb_tensor found;
} alias_search;

static void look_for_alias(void *context, fb_tensor tensor) {
    alias_search *search = context;
    const fb_binder *b = search->b;
    const char *name = fb_tensor_name(b->graph, tensor);
    const fb_given *other = fb_bind_find_given(b, name);
    bool is_alike = other && other != search->given && fb_bind_fits(b->graph, other->entry, tensor) &&
                    fb_bind_fits(b->graph, search->given->entry, tensor);
    if (is_alike && same_bytes(b, search->given, other)) search->found = tensor;
}

/* lm_head.weight was embedding.weight, until passes made a tensor of its own from that. A file that has both, and the same
 * bytes for them, is the source's. */
static fb_status find_aliases(fb_binder *b) {
    for (size_t i = 0; i < b->given_count; i++) {
        fb_given *given = &b->given[i];
        if (given->said.id) continue;
        bool has_no_other = !given->by_name.id || given->by_name.id == given->by_path.id;
        bool is_new = given->by_path.id && has_no_other && fb_tensor_is_computed(b->graph, given->by_path);
        if (!given->by_path.id || !(is_new || is_lacked_by_source(b, given))) continue;
        alias_search search = {.b = b, .given = given};
        fb_inputs_walk walk; /* further than the recipe: several passes may have made one tensor after another */
        if (fb_inputs_begin(&walk, b->graph)) fb_inputs_visit(&walk, given->by_path, look_for_alias, &search);
        if (!fb_inputs_end(&walk)) return fb_fail_memory(b->error);
        if (!search.found.id) continue;
        given->by_name = search.found;
        given->is_alias = true;
    }
    return FB_OK;
}

/* Which files say that foldback wrote them for a graph like this one. */
static fb_status read_marks(fb_binder *b) {
    char structure[FB_ID_LENGTH + 1] = "";
    for (size_t i = 0; i < b->file_count; i++) {
        const json_t *metadata = b->files[i].header.metadata;
        const char *said = json_string_value(json_object_get(metadata, FB_WEIGHTS_STRUCTURE));
        if (said && !*structure && !fb_document_structure(b->graph, structure)) return fb_fail_memory(b->error);
        b->files[i].is_finished = said && strcmp(said, structure) == 0;
    }
    return FB_OK;
}

fb_weights_reading fb_weights_reading_find(const char *name) {
    static const char *const names[] = {
        [FB_WEIGHTS_SOURCE] = "source", [FB_WEIGHTS_FINISHED] = "finished", [FB_WEIGHTS_ORIGINAL] = "original"};
    for (int i = FB_WEIGHTS_SOURCE; i <= FB_WEIGHTS_ORIGINAL; i++) {
        if (strcmp(name, names[i]) == 0) return (fb_weights_reading)i;
    }
    return FB_WEIGHTS_UNKNOWN;
}

static void find_both(fb_binder *b, const fb_generations *generations) {
    for (size_t i = 0; i < b->given_count; i++) {
        fb_given *given = &b->given[i];
        given->by_name = fb_tensor_find(b->graph, given->name);
        given->by_path = fb_tensor_at_path(b->graph, given->name);
        if (!given->by_name.id) given->by_name = fb_generations_first(generations, given->name, given->by_path);
    }
}

/* The tensor of one of the files, or none. */
static fb_status choose_tensor(fb_binder *b, fb_generations *generations, const bool *is_owned, reading how, fb_given *given) {
    given->tensor = meant_by(b, given, is_owned, how.by_path);
    if (given->said.id || how.is_certain || given->is_alias) return FB_OK;
    return fb_generations_settle(generations, given, how.by_path, &given->tensor);
}

fb_status fb_bind_choose(fb_binder *b) {
    reading how = {0};
    fb_generations *generations = NULL;
    bool *is_owned = fb_owned_tensors(b->graph);
    fb_status status = is_owned ? fb_generations_new(b, &generations) : fb_fail_memory(b->error);
    if (!status) find_both(b, generations);
    if (!status) status = read_marks(b);
    if (!status) status = fb_bind_read_said(b);
    if (!status) status = find_aliases(b);
    if (!status) status = choose_reading(b, is_owned, &how);
    for (size_t i = 0; i < b->given_count && !status; i++) {
        fb_given *given = &b->given[i];
        status = choose_tensor(b, generations, is_owned, how, given);
        if (status || (i && strcmp(given->name, given[-1].name) == 0)) continue; /* the second was reported */
        if (given->tensor.id) status = bind_given(b, i);
        else if (json_array_append_new(b->binding->extra, json_string(given->entry->name))) status = fb_fail_memory(b->error);
    }
    fb_generations_free(generations);
    free(is_owned);
    return status;
}
