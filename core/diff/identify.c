/* Which tensor of ours is which of base. Its owners say so; what nobody owns, is known by what is made from it:
 *
 *     base:  q.weight@1 = concat(q.weight, reshape(q.bias))     owned by q
 *     ours:  w = concat(q.weight, reshape(b))                   owned by q        so b is q.bias
 *
 * unless its bytes are known to be others. What is left has the name that it had. Names alone would not do: a client is free to
 * call one tensor what another one was called. But where nothing is said of the bytes, the name is all that there is. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/sides.h"

typedef struct identifying {
    const fb_graph *base, *ours;
    fb_tensor *ours_of; /* by tensor of base */
    bool *is_taken;     /* by tensor of ours: it is one of base */
    fb_buffer found;    /* fb_tensor of base: those whose inputs have not been looked at */
} identifying;

static void found(identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    i->ours_of[in_base.id] = in_ours;
    i->is_taken[in_ours.id] = true;
    fb_buffer_append(&i->found, &in_base, sizeof in_base);
}

static bool is_open(const identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    return in_ours.id && !i->ours_of[in_base.id].id && !i->is_taken[in_ours.id];
}

/* ---- by owners ---------------------------------------------------------------------------------------------------------- */

typedef struct name_search {
    const fb_graph *graph;
    const char *name;
    bool is_found;
} name_search;

static void look_for_name(void *context, fb_tensor tensor) {
    name_search *search = context;
    search->is_found |= strcmp(fb_tensor_name(search->graph, tensor), search->name) == 0;
}

/* Whether a module has something now that is computed from the original that it had: then that is still the one of its name. */
static bool is_made_from(const identifying *i, fb_tensor original, fb_tensor now) {
    name_search search = {.graph = i->ours, .name = fb_tensor_name(i->base, original)};
    fb_value recipe = fb_tensor_at(i->ours, now)->recipe;
    if (recipe.id && !fb_tensor_at(i->base, original)->recipe.id)
        fb_value_visit_tensors(i->ours, recipe, look_for_name, &search);
    return search.is_found;
}

static bool find_by_owners(identifying *i) {
    fb_slot_index places;
    fb_slot slot;
    bool ok = fb_slot_index_make(i->ours, &places);
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(i->base, &cursor, &slot);) {
        fb_tensor same = fb_slot_index_find(&places, i->base, &slot);
        if (is_open(i, slot.tensor, same) && !is_made_from(i, slot.tensor, same)) found(i, slot.tensor, same);
    }
    fb_slot_index_free(&places);
    return ok;
}

/* ---- by bytes and by what is made from them ----------------------------------------------------------------------------- */

static bool is_same_text(const identifying *i, fb_symbol in_base, fb_symbol in_ours) {
    return strcmp(fb_text(i->base, in_base), fb_text(i->ours, in_ours)) == 0;
}

/* Whether the same is said of both tensors' bytes. */
static bool has_same_bytes(const identifying *i, fb_tensor in_base, fb_tensor in_ours) {
    const fb_tensor_row *x = fb_tensor_at(i->base, in_base), *y = fb_tensor_at(i->ours, in_ours);
    if (x->digest.id && y->digest.id) return is_same_text(i, x->digest, y->digest);
    if (x->data.id && y->data.id) return is_same_text(i, x->data, y->data);
    return x->blob.id && y->blob.id && is_same_text(i, x->blob, y->blob) && x->offset == y->offset;
}

/* The same operations, whatever the tensors are called. Expressions are nested to a bounded depth. */
static bool is_same_recipe(const identifying *i, fb_value in_base, fb_value in_ours) {
    if (!in_base.id || !in_ours.id) return false;
    const fb_value_row *x = fb_value_at(i->base, in_base), *y = fb_value_at(i->ours, in_ours);
    if (x->kind == FB_TENSOR || y->kind == FB_TENSOR) return x->kind == y->kind;
    const fb_value_row *of_x = fb_value_at(i->base, x->items[0]), *of_y = fb_value_at(i->ours, y->items[0]);
    bool is_same = is_same_text(i, x->symbol, y->symbol) && of_x->count == of_y->count &&
                   fb_same_text(i->base, x->items[1], i->ours, y->items[1]);
    for (uint32_t k = 0; k < of_x->count && is_same; k++) is_same = is_same_recipe(i, of_x->items[k], of_y->items[k]);
    return is_same;
}

static void append_tensor(void *buffer, fb_tensor tensor) {
    fb_buffer_append(buffer, &tensor, sizeof tensor);
}

static void find_inputs(identifying *i, fb_value in_base, fb_value in_ours) {
    fb_buffer before = {0}, now = {0};
    fb_value_visit_tensors(i->base, in_base, append_tensor, &before);
    fb_value_visit_tensors(i->ours, in_ours, append_tensor, &now);
    i->found.failed |= before.failed || now.failed;
    const fb_tensor *x = (const fb_tensor *)(const void *)before.data, *y = (const fb_tensor *)(const void *)now.data;
    for (size_t k = 0; k < before.size / sizeof *x && !i->found.failed; k++) {
        if (!is_open(i, x[k], y[k])) continue;
        bool is_same = has_same_bytes(i, x[k], y[k]) ||
                       is_same_recipe(i, fb_tensor_at(i->base, x[k])->recipe, fb_tensor_at(i->ours, y[k])->recipe);
        if (is_same) found(i, x[k], y[k]);
    }
    fb_buffer_free(&before);
    fb_buffer_free(&now);
}

static void find_by_readers(identifying *i) {
    while (i->found.size && !i->found.failed) {
        fb_tensor reader;
        i->found.size -= sizeof reader;
        memcpy(&reader, i->found.data + i->found.size, sizeof reader);
        fb_value was = fb_tensor_at(i->base, reader)->recipe, is = fb_tensor_at(i->ours, i->ours_of[reader.id])->recipe;
        if (is_same_recipe(i, was, is)) find_inputs(i, was, is);
    }
}

/* Those of whose bytes the same is said, or nothing on either side; or all. */
static void find_by_names(identifying *i, bool all) {
    for (fb_tensor t = fb_first_tensor(i->base); t.id; t = fb_tensor_at(i->base, t)->next) {
        fb_tensor same = fb_tensor_find(i->ours, fb_tensor_name(i->base, t));
        if (!is_open(i, t, same)) continue;
        bool is_told = fb_tensor_has_known_bytes(i->base, t) || fb_tensor_has_known_bytes(i->ours, same);
        if (all || !is_told || has_same_bytes(i, t, same)) found(i, t, same);
    }
}

bool fb_identify_tensors(const fb_graph *base, const fb_graph *ours, fb_tensor *ours_of) {
    identifying i = {.base = base, .ours = ours, .ours_of = ours_of, .is_taken = calloc(fb_tensor_limit(ours), 1)};
    bool ok = i.is_taken && find_by_owners(&i);
    if (ok) {
        find_by_names(&i, false);
        find_by_readers(&i);
        find_by_names(&i, true);
    }
    ok = ok && !i.found.failed;
    fb_buffer_free(&i.found);
    free(i.is_taken);
    return ok;
}
