#include "core/ops/strides.h"

#include "core/ops/view.h"

enum {
    MAX_STEPS = 64,     /* back through views */
    MAX_READERS = 1000, /* looked at for one value; with more the answer is yes */
};

static fb_shape_rule shape_rule(const fb_graph *graph, fb_node node) {
    return (fb_shape_rule)fb_op_facts_of(fb_node_op(graph, node))->shape;
}

/* A call of a known operator that gives one new tensor. */
static bool makes_tensor(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    return fb_node_op(graph, node) != FB_OP_UNKNOWN && !effects.is_unknown && !effects.may_alias_input &&
           shape_rule(graph, node) != FB_SHAPE_UNKNOWN;
}

/* Without gaps when its input is. */
static bool keeps_density(fb_shape_rule rule) {
    switch (rule) {
    case FB_SHAPE_SAME:
    case FB_SHAPE_VIEW:
    case FB_SHAPE_SECOND:
    case FB_SHAPE_FLATTEN:
    case FB_SHAPE_UNFLATTEN:
    case FB_SHAPE_PERMUTE:
    case FB_SHAPE_TRANSPOSE:
    case FB_SHAPE_T:
    case FB_SHAPE_MOVEDIM:
    case FB_SHAPE_UNSQUEEZE:
    case FB_SHAPE_SQUEEZE: return true;
    default: return false;
    }
}

/* Row-major when its input is. */
static bool keeps_rows(fb_shape_rule rule) {
    return rule == FB_SHAPE_VIEW || rule == FB_SHAPE_FLATTEN || rule == FB_SHAPE_UNFLATTEN || rule == FB_SHAPE_UNSQUEEZE ||
           rule == FB_SHAPE_SQUEEZE;
}

/* Row-major whatever it is given. */
static bool makes_rows(fb_shape_rule rule) {
    return rule == FB_SHAPE_MATMUL || rule == FB_SHAPE_ADDMM || rule == FB_SHAPE_LINEAR || rule == FB_SHAPE_FACTORY ||
           rule == FB_SHAPE_NEW || rule == FB_SHAPE_ARANGE || rule == FB_SHAPE_STACK;
}

static bool is_expanding(const fb_graph *graph, fb_node node) {
    return fb_op_is(graph, node, FB_OP_EXPAND_AS);
}

bool fb_is_dense(const fb_graph *graph, fb_node node) {
    for (int step = 0; node.id && step < MAX_STEPS; step++) {
        if (makes_tensor(graph, node)) return true;
        if (!keeps_density(shape_rule(graph, node)) || is_expanding(graph, node)) return false;
        if (fb_op_effects(graph, node).is_unknown) return false;
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

/* Element by element from one tensor, beside numbers. */
static bool maps_one(const fb_graph *graph, fb_node node) {
    return (fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_ELEMENTWISE) && fb_node_at(graph, node)->first_input &&
           !fb_input_next(graph, fb_input_first(graph, node));
}

bool fb_is_contiguous(const fb_graph *graph, fb_node node) {
    for (int step = 0; node.id && step < MAX_STEPS; step++) {
        fb_shape_rule rule = shape_rule(graph, node);
        if (fb_op_effects(graph, node).is_unknown) return false;
        bool has_one_argument = fb_call_has_only(graph, node, "input");
        if (makes_rows(rule) || (fb_op_is(graph, node, FB_OP_CONTIGUOUS) && has_one_argument)) return true;
        if (!keeps_rows(rule) && !maps_one(graph, node)) return false;
        node = fb_value_node(graph, fb_first_argument(graph, node));
    }
    return false;
}

/* Does this reader mind? Where it passes the memory on, `passes_on`. */
static bool minds(const fb_graph *graph, fb_node reader, bool *passes_on) {
    if (fb_node_at(graph, reader)->opcode == FB_OUTPUT) return true;
    fb_effects effects = fb_op_effects(graph, reader);
    fb_op op = fb_node_op(graph, reader);
    *passes_on = effects.may_alias_input;
    if (op == FB_OP_UNKNOWN || effects.is_unknown || effects.mutates_input || fb_runs_inside(graph, reader)) return true;
    bool is_view = op == FB_OP_VIEW || op == FB_OP_UNSAFE_VIEW || op == FB_OP_VIEW_AS; /* never copy, and so may fail */
    return is_view || (fb_op_facts_of(op)->flags & FB_FACT_READS_LAYOUT);
}

bool fb_strides_are_read(const fb_graph *graph, fb_node node) {
    fb_node queue[MAX_READERS];
    size_t count = 0;
    queue[count++] = node;
    for (size_t i = 0; i < count; i++) {
        for (uint32_t edge = fb_user_first(graph, queue[i]); edge; edge = fb_user_next(graph, edge)) {
            bool passes_on = false;
            fb_node reader = fb_edge_user(graph, edge);
            if (minds(graph, reader, &passes_on) || (passes_on && count == MAX_READERS)) return true;
            if (passes_on) queue[count++] = reader;
        }
    }
    return false;
}
