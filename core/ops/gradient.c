#include "core/ops/gradient.h"

#include <stdlib.h>

#include "core/ops/view.h"

struct fb_gradients {
    const fb_graph *graph;
    const fb_alias *alias;
    bool *values;   /* by node */
    bool *memories; /* by memory that is written: something that carries a gradient is written into it */
};

bool fb_may_carry_gradient(const fb_gradients *gradients, fb_node value) {
    return gradients->values[value.id] || gradients->memories[fb_memory_of(gradients->alias, value)];
}

static bool reads_gradient(const fb_gradients *gradients, fb_node n) {
    for (uint32_t e = fb_input_first(gradients->graph, n); e; e = fb_input_next(gradients->graph, e)) {
        if (fb_may_carry_gradient(gradients, fb_edge_input(gradients->graph, e))) return true;
    }
    return false;
}

/* What a caller gives may be trained, and so may the parameters of a module that is called. */
static bool carries(const fb_gradients *gradients, fb_node n) {
    const fb_graph *g = gradients->graph;
    const fb_node_row *row = fb_node_at(g, n);
    if (row->dtype && fb_dtype_is_integer((fb_dtype)row->dtype)) return false;
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_CALL_MODULE) return true;
    if (row->opcode == FB_GET_ATTR) {
        fb_tensor tensor = row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
        return !tensor.id || fb_tensor_at(g, tensor)->requires_grad;
    }
    if (fb_op_effects(g, n).is_unknown || fb_node_kwarg(g, n, "requires_grad").id) return true;
    return !fb_op_is(g, n, FB_OP_DETACH) && reads_gradient(gradients, n);
}

static void look_at(fb_gradients *gradients, fb_node n) {
    const fb_graph *g = gradients->graph;
    gradients->values[n.id] = carries(gradients, n);
    if (!gradients->values[n.id]) return;
    bool is_call = fb_node_at(g, n)->opcode == FB_CALL_FUNCTION || fb_node_at(g, n)->opcode == FB_CALL_METHOD;
    fb_node written = is_call && fb_op_effects(g, n).mutates_input ? fb_value_node(g, fb_first_argument(g, n)) : (fb_node){0};
    const fb_node both[] = {n, written};
    for (size_t i = 0; i < 2; i++) {
        if (both[i].id && fb_is_mutated(gradients->alias, both[i]))
            gradients->memories[fb_memory_of(gradients->alias, both[i])] = true;
    }
}

fb_gradients *fb_gradients_new(const fb_graph *graph, const fb_alias *alias, fb_work *work) {
    fb_gradients *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    *made = (fb_gradients){.graph = graph, .alias = alias};
    made->values = calloc(fb_node_limit(graph), sizeof *made->values);
    made->memories = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *made->memories);
    if (!made->values || !made->memories) {
        fb_gradients_free(made);
        return NULL;
    }
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, 16); n = fb_next_node(graph, n)) look_at(made, n);
    if (!n.id) return made;
    fb_gradients_free(made);
    return NULL;
}

void fb_gradients_free(fb_gradients *gradients) {
    if (!gradients) return;
    free(gradients->values);
    free(gradients->memories);
    free(gradients);
}
