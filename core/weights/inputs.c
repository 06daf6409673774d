#include "core/weights/inputs.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/graph/slot.h"
#include "core/weights/recipe.h"

enum { UNSEEN, OPEN, DONE };

bool fb_inputs_begin(fb_inputs_walk *walk, const fb_graph *graph) {
    *walk = (fb_inputs_walk){.graph = graph, .states = calloc(fb_tensor_limit(graph), sizeof *walk->states)};
    return walk->states != NULL;
}

static void push(void *context, fb_tensor tensor) {
    fb_inputs_walk *walk = context;
    if (walk->states[tensor.id] == UNSEEN) fb_buffer_append(&walk->stack, &tensor, sizeof tensor);
}

void fb_inputs_visit(fb_inputs_walk *walk, fb_tensor from, void (*visit)(void *, fb_tensor), void *context) {
    push(walk, from);
    while (walk->stack.size && !walk->stack.failed) {
        fb_tensor top;
        memcpy(&top, walk->stack.data + walk->stack.size - sizeof top, sizeof top);
        fb_value recipe = fb_tensor_at(walk->graph, top)->recipe;
        if (walk->states[top.id] == UNSEEN) {
            walk->states[top.id] = OPEN;
            if (recipe.id) fb_value_visit_tensors(walk->graph, recipe, push, walk);
            continue;
        }
        walk->stack.size -= sizeof top;
        if (walk->states[top.id] == OPEN) visit(context, top);
        walk->states[top.id] = DONE;
    }
}

void fb_mark_tensor(void *marks, fb_tensor tensor) {
    ((bool *)marks)[tensor.id] = true;
}

bool fb_inputs_end(fb_inputs_walk *walk) {
    bool ok = walk->states && !walk->stack.failed;
    free(walk->states);
    fb_buffer_free(&walk->stack);
    return ok;
}

typedef struct blob_list {
    const fb_graph *graph;
    fb_map seen;     /* symbols */
    fb_buffer blobs; /* const char * */
    bool failed;
} blob_list;

static void note_blob(void *context, fb_tensor tensor) {
    blob_list *list = context;
    const fb_tensor_row *row = fb_tensor_at(list->graph, tensor);
    if (!row->blob.id || fb_map_get(&list->seen, row->blob.id)) return;
    const char *blob = fb_text(list->graph, row->blob);
    fb_buffer_append(&list->blobs, &blob, sizeof blob);
    if (!fb_map_put(&list->seen, row->blob.id, 1) || list->blobs.failed) list->failed = true;
}

fb_status fb_inputs_blobs(const fb_graph *graph, const fb_tensor *tensors, size_t count, const char ***blobs, size_t *found,
                          fb_error *error) {
    blob_list list = {.graph = graph};
    fb_inputs_walk walk;
    if (fb_inputs_begin(&walk, graph))
        for (size_t i = 0; i < count; i++) fb_inputs_visit(&walk, tensors[i], note_blob, &list);
    bool ok = fb_inputs_end(&walk) && !list.failed;
    fb_map_free(&list.seen);
    if (!ok) {
        fb_buffer_free(&list.blobs);
        return fb_fail_memory(error);
    }
    *blobs = (const char **)(void *)list.blobs.data;
    *found = list.blobs.size / sizeof **blobs;
    return FB_OK;
}

bool *fb_owned_tensors(const fb_graph *graph) {
    bool *is_owned = calloc(fb_tensor_limit(graph), sizeof *is_owned);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; is_owned && fb_slot_next(graph, &cursor, &slot);) is_owned[slot.tensor.id] = true;
    return is_owned;
}

typedef struct reads {
    const bool *is_owned;
    bool has_unowned;
} reads;

static void look_at_owner(void *context, fb_tensor tensor) {
    reads *r = context;
    r->has_unowned |= !r->is_owned[tensor.id];
}

static bool is_movement(const fb_graph *graph, fb_value expression) {
    fb_recipe_op op = fb_recipe_op_of(graph, expression);
    if (!op) return true; /* a tensor */
    bool moves = fb_recipe_facts_of(op)->is_movement;
    for (size_t i = 0; moves && i < fb_recipe_arg_count(graph, expression); i++)
        moves = is_movement(graph, fb_recipe_arg(graph, expression, i));
    return moves;
}

bool fb_tensor_is_computed(const fb_graph *graph, fb_tensor tensor) {
    fb_value recipe = fb_tensor_at(graph, tensor)->recipe;
    return recipe.id && !is_movement(graph, recipe);
}

bool fb_tensor_is_made(const fb_graph *graph, fb_tensor tensor, const bool *is_owned) {
    fb_value recipe = fb_tensor_at(graph, tensor)->recipe;
    reads r = {.is_owned = is_owned};
    if (!recipe.id) return false;
    fb_value_visit_tensors(graph, recipe, look_at_owner, &r);
    return r.has_unowned || fb_tensor_is_computed(graph, tensor);
}
