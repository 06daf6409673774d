/* Which of several earlier tensors of a path a file's tensor is.
 *
 *     fc.weight ── pass 1 ── fc.weight@1a2b3c4d ── pass 2 ── fc.weight@5e6f7a8b, which the module owns now
 *
 * A file of the graph between the two passes has the key "fc.weight" as well. What else the passes read decides: if
 * pass 1 folded bn.scale into the weight, then files from before it have bn.scale, and later ones do not. Next come
 * dtypes and shapes, and then bytes, where the graph has them. Where all of that fits several, nothing is guessed.
 *
 * Tensors that one pass made one after another (x * 2 * 3) are one generation: no graph has the ones between. */
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind_internal.h"
#include "core/graph/slot.h"
#include "core/weights/inputs.h"

#define MAX_GENERATIONS 64

typedef struct member {
    const char *name;
    size_t length; /* of the path that it is called after */
    size_t order;  /* inputs have lower ones */
    fb_tensor tensor;
} member;

struct fb_generations {
    const fb_binder *b;
    bool *is_owned;
    fb_buffer members; /* sorted by path, inputs first */
};

typedef struct chain {
    fb_tensor items[MAX_GENERATIONS];
    size_t count, limit; /* the file's is one of the items [first, limit) */
    size_t first;
    bool is_cut; /* there are more */
} chain;

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
    fb_generations *g = context;
    const char *name = fb_tensor_name(g->b->graph, tensor);
    member one = {.name = name, .length = path_length(name), .order = g->members.size, .tensor = tensor};
    fb_buffer_append(&g->members, &one, sizeof one);
}

fb_status fb_generations_new(const fb_binder *b, fb_generations **out) {
    fb_generations *g = calloc(1, sizeof *g);
    fb_inputs_walk walk = {0};
    if (!g) return fb_fail_memory(b->error);
    *g = (fb_generations){.b = b, .is_owned = fb_owned_tensors(b->graph)};
    if (fb_inputs_begin(&walk, b->graph)) {
        for (fb_tensor t = fb_first_tensor(b->graph); t.id; t = fb_tensor_at(b->graph, t)->next)
            fb_inputs_visit(&walk, t, add_member, g);
    }
    bool ok = fb_inputs_end(&walk) && g->is_owned && !g->members.failed;
    if (ok && g->members.size) qsort(g->members.data, g->members.size / sizeof(member), sizeof(member), compare_members);
    if (ok) *out = g;
    else fb_generations_free(g);
    return ok ? FB_OK : fb_fail_memory(b->error);
}

void fb_generations_free(fb_generations *generations) {
    if (!generations) return;
    fb_buffer_free(&generations->members);
    free(generations->is_owned);
    free(generations);
}

/* Those of a path. */
static const member *find_members(const fb_generations *g, const char *path, size_t *count) {
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

fb_tensor fb_generations_first(const fb_generations *generations, const char *path, fb_tensor by_path) {
    const fb_graph *graph = generations->b->graph;
    size_t count;
    const member *members = find_members(generations, path, &count);
    bool is_first = count && members[0].tensor.id != by_path.id && !generations->is_owned[members[0].tensor.id] &&
                    !fb_tensor_at(graph, members[0].tensor)->recipe.id;
    return is_first ? members[0].tensor : (fb_tensor){0};
}

/* ---- the chain of one path ---------------------------------------------------------------------------------------------- */

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
static bool find_chain(const fb_generations *g, const fb_given *given, chain *out) {
    const fb_graph *graph = g->b->graph;
    size_t count;
    const member *members = find_members(g, given->name, &count), *previous = NULL;
    *out = (chain){0};
    if (count <= (given->by_path.id ? 2 : 1)) return true; /* nothing lies between */
    fb_tensor last = given->by_path.id ? given->by_path : members[count - 1].tensor;
    bool *is_input = calloc(fb_tensor_limit(graph), sizeof *is_input), ok = is_input && mark_inputs(graph, last, is_input);
    for (size_t i = 0; i < count && ok; i++) {
        if (!is_input[members[i].tensor.id]) continue;
        bool replaces = previous && is_of_same_pass(previous, &members[i]);
        if (!replaces && out->count == MAX_GENERATIONS) {
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

typedef struct witness {
    const fb_generations *g;
    const fb_given *given;
    bool is_given, is_lacking, failed;
} witness;

/* Is it one that a file from before the pass has, and no later one? */
static bool is_witness(const witness *w, fb_tensor tensor, const char *path) {
    const fb_graph *graph = w->g->b->graph;
    bool is_of_source = !w->g->is_owned[tensor.id] && !fb_tensor_at(graph, tensor)->recipe.id;
    return is_of_source && strcmp(path, w->given->name) != 0 && !fb_tensor_at_path(graph, path).id;
}

static void ask_witness(void *context, fb_tensor tensor) {
    witness *w = context;
    const fb_graph *graph = w->g->b->graph;
    const char *name = fb_tensor_name(graph, tensor);
    char *path = strndup(name, path_length(name));
    if (path && is_witness(w, tensor, path)) {
        bool is_given = fb_bind_find_given(w->g->b, path) || fb_bind_find_given(w->g->b, name);
        w->is_given |= is_given;
        /* A buffer that no checkpoint has travels with the document: it may be missing in any file. */
        w->is_lacking |= !is_given && !fb_tensor_at(graph, tensor)->data.id;
    }
    w->failed |= !path;
    free(path);
}

/* Leaves out the items that files with these tensors cannot mean. */
static bool narrow(const fb_generations *g, const fb_given *given, chain *c) {
    fb_inputs_walk walk;
    bool ok = fb_inputs_begin(&walk, g->b->graph);
    for (size_t i = 0; i < c->count && ok; i++) {
        witness w = {.g = g, .given = given};
        fb_inputs_visit(&walk, c->items[i], ask_witness, &w); /* what the items before it were made from was visited */
        ok = !w.failed;
        if (w.is_given && c->limit > i) c->limit = i;
        else if (w.is_lacking && !w.is_given) c->first = i;
    }
    ok &= fb_inputs_end(&walk);
    if (c->first >= c->limit) *c = (chain){.count = 0}; /* a part of a file: these say nothing */
    return ok;
}

/* ---- choosing ----------------------------------------------------------------------------------------------------------- */

static fb_status refuse(const fb_generations *g, const fb_given *given, const chain *c) {
    const fb_graph *graph = g->b->graph;
    return fb_fail(
        g->b->error, FB_CONFLICT, "ambiguous-weights", "",
        "\"%.200s\" in the files may be %.200s or %.200s, as passes ran over results of passes; pass as: original or "
        "as: finished, or bind the files to the graph that they are of",
        given->entry->name, fb_tensor_name(graph, c->items[0]), fb_tensor_name(graph, c->items[1]));
}

/* The items that the file's may be, in the order of the passes. */
static void filter(const fb_generations *g, const fb_given *given, bool is_finished, chain *c) {
    chain kept = {0};
    bool is_source = g->b->options.as == FB_WEIGHTS_SOURCE;
    for (size_t i = c->first; i < c->limit; i++) {
        bool is_now = c->items[i].id == given->by_path.id,
             is_first = i == 0 && !fb_tensor_at(g->b->graph, c->items[i])->recipe.id;
        bool is_ruled_out = (is_source && is_now) || (!is_source && (is_finished ? is_first : is_now));
        if (!is_ruled_out && fb_bind_fits(g->b->graph, given->entry, c->items[i])) kept.items[kept.count++] = c->items[i];
    }
    *c = kept;
}

fb_status fb_generations_settle(fb_generations *generations, const fb_given *given, bool is_finished, fb_tensor *tensor) {
    chain c;
    bool same = false;
    fb_status status = FB_OK;
    if (!find_chain(generations, given, &c)) return fb_fail_memory(generations->b->error);
    bool has_between = c.count > (given->by_path.id ? 2 : 1);
    if (!has_between) return FB_OK;
    if (c.is_cut) return refuse(generations, given, &c);
    const chain whole = c;
    if (!narrow(generations, given, &c)) return fb_fail_memory(generations->b->error);
    if (!c.count) c = whole;
    filter(generations, given, is_finished, &c);
    for (size_t i = 0; c.count > 1 && i < c.count && !same && !status; i++) {
        status = fb_bind_is_equal(generations->b, c.items[i], given, &same);
        if (same) *tensor = c.items[i];
    }
    if (status || same || !c.count) return status;
    if (c.count > 1) return refuse(generations, given, &c);
    *tensor = c.items[0];
    return FB_OK;
}
