#include "core/weights/inputs.h"

#include <stdlib.h>
#include <string.h>

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
