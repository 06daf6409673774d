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

#include "core/base/sort.h"
#include "core/bind/bind_internal.h"
#include "core/document/document.h"
#include "core/graph/slot.h"
#include "core/weights/inputs.h"
#include "core/weights/weights_file.h"

#define BLOCK ((uint64_t)4 << 20) /* bytes that are compared at a time */

/* Which of several earlier tensors of a path a file's tensor is.
 *
 *     fc.weight ── pass 1 ── fc.weight@1a2b3c4d ── pass 2 ── fc.weight@5e6f7a8b, which the module owns now
 *
 * A file of the graph between the two passes has the key "fc.weight" as well. What else the passes read decides: if
 * pass 1 folded bn.scale into the weight, then files from before it have bn.scale, and later ones do not. Next come
 * dtypes and shapes, and then bytes, where the graph has them. Where all of that fits several, nothing is guessed.
 *
 * Tensors that one pass made one after another (x * 2 * 3) are one generation: no graph has the ones between. */

#define MAX_VERSIONS 64

typedef struct member {
    const char *name;
    size_t length; /* of the path that it is called after */
    size_t order;  /* inputs have lower ones */
    fb_tensor tensor;
} member;

typedef struct versions {
    const fb_binder *b;
    bool *is_owned;
    fb_buffer members; /* sorted by path, inputs first */
} versions;

typedef struct history {
    fb_tensor items[MAX_VERSIONS];
    size_t count, limit; /* the file's is one of the items [first, limit) */
    size_t first;
    bool is_cut; /* there are more */
} history;

/* Without "@1a2b3c4d" (parts.c). */
static size_t path_length(const char *name) {
    const char *at = strrchr(name, '@');
    return at && at > name && !strchr(at, '.') ? (size_t)(at - name) : strlen(name);
}

static int compare_paths(const member *x, const char *path, size_t length) {
    size_t shorter = x->length < length ? x->length : length;
    int order = memcmp(x->name, path, shorter);
    return order ? order : x->length < length ? -1 : x->length > length;
}

static int compare_members(const void *a, const void *b) {
    const member *x = a, *y = b;
    int order = compare_paths(x, y->name, y->length);
    return order ? order : x->order < y->order ? -1 : x->order > y->order;
}

static void add_member(void *context, fb_tensor tensor) {
    versions *g = context;
    const char *name = fb_tensor_name(g->b->graph, tensor);
    member one = {.name = name, .length = path_length(name), .order = g->members.size, .tensor = tensor};
    fb_buffer_append(&g->members, &one, sizeof one);
}

static void versions_free(versions *all) {
    if (!all) return;
    fb_buffer_free(&all->members);
    free(all->is_owned);
    free(all);
}

static fb_status versions_new(const fb_binder *b, versions **out) {
    versions *g = calloc(1, sizeof *g);
    fb_inputs_walk walk = {0};
    if (!g) return fb_fail_memory(b->error);
    *g = (versions){.b = b, .is_owned = fb_owned_tensors(b->graph)};
    if (fb_inputs_begin(&walk, b->graph)) {
        for (fb_tensor t = fb_first_tensor(b->graph); t.id; t = fb_tensor_at(b->graph, t)->next)
            fb_inputs_visit(&walk, t, add_member, g);
    }
    bool ok = fb_inputs_end(&walk) && g->is_owned && !g->members.failed;
    if (ok) fb_sort(g->members.data, g->members.size / sizeof(member), sizeof(member), compare_members);
    if (ok) *out = g;
    else versions_free(g);
    return ok ? FB_OK : fb_fail_memory(b->error);
}

/* The members of a path. */
static const member *find_members(const versions *g, const char *path, size_t *count) {
    const member *members = (const member *)(const void *)g->members.data;
    size_t low = 0, high = g->members.size / sizeof *members, end = high, length = strlen(path);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_paths(&members[middle], path, length) < 0) low = middle + 1;
        else high = middle;
    }
    for (*count = 0; low + *count < end && compare_paths(&members[low + *count], path, length) == 0;) ++*count;
    return &members[low];
}

/* The first tensor that a path had, if no pass made it and it is not `by_path`; otherwise none. */
static fb_tensor versions_first(const versions *all, const char *path, fb_tensor by_path) {
    const fb_graph *graph = all->b->graph;
    size_t count;
    const member *members = find_members(all, path, &count);
    bool is_first = count && members[0].tensor.id != by_path.id && !all->is_owned[members[0].tensor.id] &&
                    !fb_tensor_at(graph, members[0].tensor)->recipe.id;
    return is_first ? members[0].tensor : (fb_tensor){0};
}

/* ---- the history of one path --------------------------------------------------------------------------------------------- */

/* The digits of the pass behind the path; "" for a tensor that is called like its path. */
static bool is_of_same_pass(const member *x, const member *y) {
    const char *one = x->name + x->length, *other = y->name + y->length;
    size_t length = strcspn(one, "_");
    return length && length == strcspn(other, "_") && memcmp(one, other, length) == 0;
}

static bool mark_inputs(const fb_graph *graph, fb_tensor from, bool *is_input) {
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, graph)) fb_inputs_visit(&walk, from, fb_mark_tensor, is_input);
    return fb_inputs_end(&walk);
}

/* The tensors that the path has had, up to the one that it has now, or to the last. */
static bool find_history(const versions *g, const fb_given *given, history *out) {
    const fb_graph *graph = g->b->graph;
    size_t count;
    const member *members = find_members(g, given->name, &count), *previous = NULL;
    *out = (history){0};
    if (count <= (given->by_path.id ? 2 : 1)) return true; /* nothing is between */
    fb_tensor last = given->by_path.id ? given->by_path : members[count - 1].tensor;
    bool *is_input = calloc(fb_tensor_limit(graph), sizeof *is_input), ok = is_input && mark_inputs(graph, last, is_input);
    for (size_t i = 0; i < count && ok; i++) {
        if (!is_input[members[i].tensor.id]) continue;
        bool replaces = previous && is_of_same_pass(previous, &members[i]);
        if (!replaces && out->count == MAX_VERSIONS) {
            out->is_cut = true;
            break;
        }
        out->items[replaces ? out->count - 1 : out->count++] = members[i].tensor;
        previous = &members[i];
    }
    free(is_input);
    out->limit = out->count;
    return ok;
}

/* ---- what else the passes read ------------------------------------------------------------------------------------------ */

typedef struct presence {
    const versions *g;
    const fb_given *given;
    bool is_given, is_lacking, failed;
} presence;

/* Is it one that a file from before the pass has, and no later one? */
static bool is_telling(const presence *w, fb_tensor tensor, const char *path) {
    const fb_graph *graph = w->g->b->graph;
    bool is_of_source = !w->g->is_owned[tensor.id] && !fb_tensor_at(graph, tensor)->recipe.id;
    return is_of_source && strcmp(path, w->given->name) != 0 && !fb_tensor_at_path(graph, path).id;
}

static void note_input(void *context, fb_tensor tensor) {
    presence *w = context;
    const fb_graph *graph = w->g->b->graph;
    const char *name = fb_tensor_name(graph, tensor);
    char *path = strndup(name, path_length(name));
    if (path && is_telling(w, tensor, path)) {
        bool is_given = fb_bind_find_given(w->g->b, path) || fb_bind_find_given(w->g->b, name);
        w->is_given |= is_given;
        /* A buffer that no checkpoint has travels with the document: it may be missing in any file. */
        w->is_lacking |= !is_given && !fb_tensor_at(graph, tensor)->data.id;
    }
    w->failed |= !path;
    free(path);
}

/* Leaves out the items that files with these tensors cannot mean. */
static bool narrow(const versions *g, const fb_given *given, history *c) {
    fb_inputs_walk walk;
    bool ok = fb_inputs_begin(&walk, g->b->graph);
    for (size_t i = 0; i < c->count && ok; i++) {
        presence w = {.g = g, .given = given};
        fb_inputs_visit(&walk, c->items[i], note_input, &w); /* what the items before it were made from was visited */
        ok = !w.failed;
        if (w.is_given && c->limit > i) c->limit = i;
        else if (w.is_lacking && !w.is_given) c->first = i;
    }
    ok &= fb_inputs_end(&walk);
    if (c->first >= c->limit) *c = (history){.count = 0}; /* a part of a file: these say nothing */
    return ok;
}

/* ---- choosing ----------------------------------------------------------------------------------------------------------- */

static fb_status refuse(const versions *g, const fb_given *given, const history *c) {
    const fb_graph *graph = g->b->graph;
    return fb_fail(
        g->b->error, FB_CONFLICT, "ambiguous-weights", "",
        "\"%.200s\" in the files may be %.200s or %.200s, as passes ran over results of passes; pass as: original or "
        "as: finished, or bind the files to the graph that they are of",
        given->entry->name, fb_tensor_name(graph, c->items[0]), fb_tensor_name(graph, c->items[1]));
}

/* Compares dtype and shape. */
static bool bind_fits(const fb_graph *graph, const fb_safetensors_entry *entry, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    bool same = !entry->torn_shape && entry->dtype == row->dtype && entry->rank == fb_shape_rank(graph, row->shape);
    for (int i = 0; same && i < entry->rank; i++) same = entry->shape[i] == fb_shape_size(graph, row->shape, i);
    return same;
}

/* The items that the file's may be, in the order of the passes. */
static void filter(const versions *g, const fb_given *given, bool is_finished, history *c) {
    history kept = {0};
    bool is_source = g->b->options.as == FB_WEIGHTS_SOURCE;
    for (size_t i = c->first; i < c->limit; i++) {
        bool is_now = c->items[i].id == given->by_path.id,
             is_first = i == 0 && !fb_tensor_at(g->b->graph, c->items[i])->recipe.id;
        /* A key that the finished model lacks shows a file of an earlier state, be it the first. */
        bool is_ruled_out = is_source || !is_finished ? is_now : is_first && given->by_path.id;
        if (!is_ruled_out && bind_fits(g->b->graph, given->entry, c->items[i])) kept.items[kept.count++] = c->items[i];
    }
    *c = kept;
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

/* Compares the file's bytes, or their digest, with the graph's for the tensor. */
static fb_status bind_is_equal(const fb_binder *b, fb_tensor tensor, const fb_given *given, bool *same) {
    fb_symbol digest = fb_tensor_at(b->graph, tensor)->digest;
    return digest.id ? has_digest(b, fb_text(b->graph, digest), given, same) : fb_bind_has_already(b, tensor, given, same);
}

/* Which one `given` is when `tensor` (perhaps none) is what the chosen reading says. Sets *tensor to an earlier one where that
 * must be meant; FB_CONFLICT "ambiguous-weights" where nothing decides. */
static fb_status versions_settle(versions *all, const fb_given *given, bool is_finished, fb_tensor *tensor) {
    history c;
    bool same = false;
    fb_status status = FB_OK;
    if (!find_history(all, given, &c)) return fb_fail_memory(all->b->error);
    bool has_between = c.count > (given->by_path.id ? 2 : 1);
    if (!has_between) return FB_OK;
    if (c.is_cut) return refuse(all, given, &c);
    const history whole = c;
    if (!narrow(all, given, &c)) return fb_fail_memory(all->b->error);
    if (!c.count) c = whole;
    filter(all, given, is_finished, &c);
    for (size_t i = 0; c.count > 1 && i < c.count && !same && !status; i++) {
        status = bind_is_equal(all->b, c.items[i], given, &same);
        if (same) *tensor = c.items[i];
    }
    if (status || same || !c.count) return status;
    if (c.count > 1) return refuse(all, given, &c);
    *tensor = c.items[0];
    return FB_OK;
}

/* Which tensor of the graph a file says that its tensor is: what weights_file.c wrote into it.
 *
 * A tensor of the graph is the one that is said if it has its name and its recipe. One without a recipe has been given bytes
 * since, and its name is enough. */

static fb_status refuse_metadata(const fb_binder *b, const fb_bind_file *file) {
    char pointer[40];
    snprintf(pointer, sizeof pointer, "/weights/%zu", file->position);
    return fb_fail(b->error, FB_INVALID, "bad-safetensors", pointer,
                   FB_WEIGHTS_TENSORS " in the file's metadata is not an object of names; remove it, and say as");
}

/* The graph's tensor that the file says; none = the graph lacks it. */
static fb_status find_said(const fb_binder *b, const char *name, const char *recipe, fb_tensor *out) {
    char id[FB_ID_LENGTH + 1];
    fb_tensor tensor = fb_tensor_find(b->graph, name);
    fb_value own = tensor.id ? fb_tensor_at(b->graph, tensor)->recipe : (fb_value){0};
    bool is_same = tensor.id && (!own.id || !recipe);
    if (tensor.id && !is_same) {
        if (!fb_recipe_id(b->graph, own, id)) return fb_fail_memory(b->error);
        is_same = strcmp(id, recipe) == 0;
    }
    *out = is_same ? tensor : (fb_tensor){0};
    return FB_OK;
}

static fb_status refuse_unknown(const fb_binder *b, const fb_given *given, const char *name) {
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "the file says that its \"%.200s\" is %.200s of another graph, which this one does not have; bind it to the "
                   "graph that it was written for, or pass as: finished if this graph's modules own it",
                   given->entry->name, name);
}

static fb_status contradict(const fb_binder *b, const fb_given *given) {
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "the file says that its \"%.200s\" is this graph's %.200s, and the request that it is another; leave as out",
                   given->entry->name, fb_tensor_name(b->graph, given->said));
}

static fb_status read_one(const fb_binder *b, fb_given *given, const json_t *tensors) {
    const json_t *item = json_object_get(tensors, given->entry->name);
    const char *name = json_string_value(json_array_get(item, 0)), *recipe = json_string_value(json_array_get(item, 1));
    if (item && !name) return refuse_metadata(b, &b->files[given->file]);
    if (!name) name = given->entry->name;
    fb_status status = find_said(b, name, recipe, &given->said);
    if (status) return status;
    bool is_finished = b->options.as == FB_WEIGHTS_FINISHED, is_original = b->options.as == FB_WEIGHTS_ORIGINAL;
    if (!given->said.id) {
        bool is_known = given->by_name.id || given->by_path.id;
        return is_known && !is_finished ? refuse_unknown(b, given, name) : FB_OK;
    }
    bool is_other = is_finished && given->by_path.id && given->by_path.id != given->said.id;
    bool is_later = is_original && recipe && fb_tensor_at(b->graph, given->said)->recipe.id;
    return is_other || is_later ? contradict(b, given) : FB_OK;
}

static fb_status read_file(fb_binder *b, size_t index) {
    const fb_bind_file *file = &b->files[index];
    const char *text = json_string_value(json_object_get(file->header.metadata, FB_WEIGHTS_TENSORS));
    bool is_contradicted = file->is_finished && b->options.as && b->options.as != FB_WEIGHTS_FINISHED;
    if (!text || is_contradicted) return FB_OK; /* bind_choose.c refuses */
    json_t *tensors = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    fb_status status = json_is_object(tensors) ? FB_OK : refuse_metadata(b, file);
    for (size_t i = 0; i < b->given_count && !status; i++) {
        if (b->given[i].file == index) status = read_one(b, &b->given[i], tensors);
    }
    json_decref(tensors);
    return status;
}

/* Fills `said` from the files' metadata. FB_CONFLICT "ambiguous-weights" where that contradicts `options.as`, or names a tensor
 * that the graph lacks. by_name and by_path are filled. */
static fb_status bind_read_said(fb_binder *b) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < b->file_count && !status; i++) status = read_file(b, i);
    return status;
}

/* ---- is it a file of the graph's modules, or of what they were made from? ------------------------------------------------ */

static bool is_contested(const fb_binder *b, const fb_given *given, const bool *is_owned) {
    if (given->said.id) return false;
    if (given->is_alias) return true;
    if (!given->by_name.id || !given->by_path.id || given->by_name.id == given->by_path.id) return false;
    /* Two tensors that modules own under each other's names are distinguished by their owners. */
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

/* The source has no tensor that passes computed. One of its names may name such a tensor all the same: a path that was tied to
 * another one, until a pass gave it a tensor of its own. */
static bool is_lacked_by_source(const fb_binder *b, const fb_given *given) {
    return given->by_name.id && fb_tensor_is_computed(b->graph, given->by_name);
}

static fb_tensor meant_by(const fb_binder *b, const fb_given *given, const bool *is_owned, bool by_path) {
    if (given->said.id) return given->said;
    bool takes_path = given->by_path.id && (by_path || !is_contested(b, given, is_owned));
    if (takes_path) return given->by_path;
    return is_lacked_by_source(b, given) ? (fb_tensor){0} : given->by_name;
}

/* Finds out if a weight of a checkpoint would have no bytes under that reading. */
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

/* The evidence against each of the two readings. */
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
        found->misfits_by_name += !bind_fits(b->graph, given->entry, name) || is_lacked_by_source(b, given);
        found->misfits_by_path += !bind_fits(b->graph, given->entry, path);
        found->says_finished &= b->files[given->file].is_finished;
        return;
    }
    found->has_source |= name.id && !path.id && !is_owned[name.id];
    found->has_finished |= path.id && fb_tensor_is_made(b->graph, path, is_owned);
}

/* Finds out if every contested tensor of the files has the bytes, or the digest, that the graph has for it under that reading.
 */
static fb_status has_bytes_of(const fb_binder *b, const bool *is_owned, bool by_path, bool *same) {
    fb_status status = FB_OK;
    *same = true;
    for (size_t i = 0; i < b->given_count && *same && !status; i++) {
        const fb_given *given = &b->given[i];
        if (!is_contested(b, given, is_owned)) continue;
        fb_tensor tensor = by_path ? given->by_path : given->by_name;
        if (!by_path && is_lacked_by_source(b, given)) *same = false;
        if (!*same) break;
        status = bind_is_equal(b, tensor, given, same);
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
    /* The last to be asked: a weight that was scaled by 1 has the same bytes as well. */
    is_source |= found->has_alias;
    if (!status && !is_source && !is_finished) status = refuse_ambiguous(b, is_owned, found->contested);
    return status;
}

static fb_status contradict_request(const fb_binder *b) {
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
    if (is_source && found.says_finished) return contradict_request(b);
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

/* Compares tensors of one dtype and shape: paths of one tensor may each have a copy. */
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
    if (!bind_fits(b->graph, given->entry, tensor)) {
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
    bool is_alike = other && other != search->given && bind_fits(b->graph, other->entry, tensor) &&
                    bind_fits(b->graph, search->given->entry, tensor);
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

static void find_both(fb_binder *b, const versions *all) {
    for (size_t i = 0; i < b->given_count; i++) {
        fb_given *given = &b->given[i];
        given->by_name = fb_tensor_find(b->graph, given->name);
        given->by_path = fb_tensor_at_path(b->graph, given->name);
        if (!given->by_name.id) given->by_name = versions_first(all, given->name, given->by_path);
    }
}

/* The tensor of one of the files, or none. */
static fb_status choose_tensor(fb_binder *b, versions *all, const bool *is_owned, reading how, fb_given *given) {
    given->tensor = meant_by(b, given, is_owned, how.by_path);
    if (given->said.id || how.is_certain || given->is_alias) return FB_OK;
    return versions_settle(all, given, how.by_path, &given->tensor);
}

fb_status fb_bind_choose(fb_binder *b) {
    reading how = {0};
    versions *all = NULL;
    bool *is_owned = fb_owned_tensors(b->graph);
    fb_status status = is_owned ? versions_new(b, &all) : fb_fail_memory(b->error);
    if (!status) find_both(b, all);
    if (!status) status = read_marks(b);
    if (!status) status = bind_read_said(b);
    if (!status) status = find_aliases(b);
    if (!status) status = choose_reading(b, is_owned, &how);
    for (size_t i = 0; i < b->given_count && !status; i++) {
        fb_given *given = &b->given[i];
        status = choose_tensor(b, all, is_owned, how, given);
        if (status || (i && strcmp(given->name, given[-1].name) == 0)) continue; /* the second was reported */
        if (given->tensor.id) status = bind_given(b, i);
        else if (json_array_append_new(b->binding->extra, json_string(given->entry->name))) status = fb_fail_memory(b->error);
    }
    versions_free(all);
    free(is_owned);
    return status;
}

fb_status fb_bind_has_already(const fb_binder *b, fb_tensor tensor, const fb_given *given, bool *same) {
    fb_evaluation *evaluation = NULL;
    fb_error error = {0};
    unsigned char *block = malloc((size_t)BLOCK);
    fb_status status = block ? fb_evaluation_new(b->graph, tensor, b->blobs, &evaluation, &error) : fb_fail_memory(&error);
    *same = status == FB_OK;
    for (uint64_t at = 0; at < given->entry->size && *same && !status;) {
        size_t count = given->entry->size - at < (size_t)BLOCK ? (size_t)(given->entry->size - at) : (size_t)BLOCK;
        status = fb_evaluation_read(evaluation, at, block, count, &error);
        *same = !status && memcmp(block, fb_given_bytes(b, given) + at, count) == 0;
        fb_bind_forget(b, given);
        at += count;
    }
    fb_evaluation_free(evaluation);
    free(block);
    if (!status || status == FB_NOT_FOUND) return FB_OK;
    return fb_fail(b->error, status, error.code, error.pointer, "%s", error.message);
}
