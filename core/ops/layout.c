#include "core/ops/layout.h"

#include "core/ops/view.h"

/* The rows of columns cut out of a wider tensor lie apart, but each row is whole: a view can split a row or group whole rows,
 * so some of its last dimensions multiply to exactly one row. (PyTorch: at::detail::computeStride.) */
static bool keeps_rows(const fb_graph *graph, fb_value view, int64_t row) {
    int64_t product = 1;
    for (int axis = fb_shape_rank(graph, view) - 1; product < row && axis >= 0; axis--) {
        int64_t size = fb_shape_size(graph, view, axis);
        if (size < 1 || size > INT64_MAX / product) return size < 1; /* symbolic, or nothing in it */
        product *= size;
    }
    return product == row;
}

static bool has_one_row(const fb_graph *graph, fb_value shape) {
    for (int axis = 0; axis + 1 < fb_shape_rank(graph, shape); axis++) {
        if (fb_shape_size(graph, shape, axis) != 1) return false;
    }
    return true;
}

bool fb_is_viewed_across_rows(const fb_graph *graph, fb_node node) {
    fb_value shape = fb_node_at(graph, node)->shape;
    int64_t row = fb_shape_size(graph, shape, -1);
    if (row < 1 || has_one_row(graph, shape)) return false;
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        fb_node user = fb_edge_user(graph, e);
        if (!fb_op_is(graph, user, FB_OP_VIEW) || fb_call_argument_node(graph, user, "input").id != node.id) continue;
        fb_value viewed = fb_node_at(graph, user)->shape;
        if (fb_shape_rank(graph, viewed) >= 0 && !keeps_rows(graph, viewed, row)) return true;
    }
    return false;
}
