/* The views between two layers: see views.h. */
#include "core/pass/views.h"

#include "core/analysis/rearrange.h"

fb_node fb_view_input(const fb_graph *g, fb_node node, int *axis) {
    fb_rearrange view;
    if (fb_op_is(g, node, FB_OP_CLONE) && !fb_op_effects(g, node).is_unknown) return fb_call_argument_node(g, node, "input");
    if (!fb_rearrange_at(g, node, &view)) return (fb_node){0};
    bool is_lost = axis && (*axis < 0 || *axis >= view.rank || !fb_rearrange_axis(g, &view, *axis, axis));
    if (is_lost) *axis = FB_AXIS_LOST;
    return view.input;
}

bool fb_view_minds_strides(const fb_graph *g, fb_node node) {
    fb_rearrange view;
    if (!fb_rearrange_at(g, node, &view)) return false;
    fb_op op = fb_node_op(g, node);
    return view.form == FB_REARRANGE_PERMUTE || op == FB_OP_VIEW || op == FB_OP_UNSAFE_VIEW;
}

typedef struct exchange {
    fb_node old, now;
} exchange;

static fb_node exchanged(void *context, fb_node node) {
    const exchange *e = context;
    return node.id == e->old.id ? e->now : node;
}

fb_node fb_put_again(fb_rewrite *rw, fb_node old, fb_node input, fb_node now) {
    if (!now.id) return (fb_node){0};
    fb_graph *g = fb_rewrite_graph(rw);
    exchange e = {.old = input, .now = now};
    const fb_node_row *row = fb_node_at(g, old);
    fb_node made = fb_insert_typed(rw, old, (fb_opcode)row->opcode, fb_node_target(g, old),
                                   fb_value_map_nodes(g, row->args, exchanged, &e),
                                   fb_value_map_nodes(g, row->kwargs, exchanged, &e), row->shape, (fb_dtype)row->dtype);
    if (made.id) fb_absorb(rw, old, made);
    return made;
}
