/* Batch normalisation, in both dialects. */
#include <math.h>

#include "core/ops/view_internal.h"

static int batch_norm_spatial(fb_op op) {
    return op == FB_OP_BATCH_NORM1D ? 1 : op == FB_OP_BATCH_NORM2D ? 2 : op == FB_OP_BATCH_NORM3D ? 3 : 0;
}

/* That many features (-1 = not said), or the length of whichever vector there is. */
static bool measure(const fb_graph *graph, int64_t features, fb_batch_norm *norm) {
    const fb_tensor tensors[] = {norm->weight, norm->bias, norm->running_mean, norm->running_var};
    for (size_t i = 0; i < 4 && features < 0; i++) {
        if (tensors[i].id) features = fb_tensor_size(graph, tensors[i], 0);
    }
    for (size_t i = 0; i < 4; i++) {
        if (!fb_is_vector_or_none(graph, tensors[i], features)) return false;
    }
    norm->num_features = features;
    return features >= 0;
}

static bool batch_norm_of_module(const fb_graph *graph, fb_module module, fb_batch_norm *norm) {
    int spatial = batch_norm_spatial(fb_module_op(graph, module));
    if (!spatial) return false;
    fb_batch_norm found = {
        .module = module,
        .weight = fb_module_tensor(graph, module, "weight"),
        .bias = fb_module_tensor(graph, module, "bias"),
        .running_mean = fb_module_tensor(graph, module, "running_mean"),
        .running_var = fb_module_tensor(graph, module, "running_var"),
        .spatial = spatial,
        .eps = fb_module_config(graph, module, "eps"),
        .training = fb_module_at(graph, module)->training,
    };
    if (!fb_config_number(graph, module, "eps", 1e-5, &found.eps_number)) found.eps_number = NAN;
    int64_t features;
    if (!fb_config_int(graph, module, "num_features", -1, &features) || !measure(graph, features, &found)) return false;
    *norm = found;
    return true;
}

static bool batch_norm_of_module_call(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    fb_node input;
    if (!fb_sole_input(graph, node, &input)) return false;
    if (!batch_norm_of_module(graph, fb_node_at(graph, node)->module, norm)) return false;
    norm->node = norm->call = node;
    norm->input = input;
    return true;
}

static bool is_function(fb_op op) {
    return op == FB_OP_BATCH_NORM || op == FB_OP_BATCH_NORM_INFERENCE || op == FB_OP_NATIVE_BATCH_NORM;
}

/* The call, or the first result of one that gives several. */
static bool batch_norm_of_function(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    norm->node = node;
    norm->call = fb_call_of_value(graph, node);
    fb_call_reader reader = {.graph = graph, .node = norm->call};
    bool gives_tuple = fb_op_facts_of(fb_node_op(graph, norm->call))->flags & FB_FACT_TUPLE;
    if (!is_function(fb_node_op(graph, norm->call)) || gives_tuple != (norm->call.id != node.id)) return false;
    norm->input = fb_next_input(&reader, "input");
    norm->weight = fb_next_tensor(&reader, "weight", true, &norm->reads[0]);
    norm->bias = fb_next_tensor(&reader, "bias", true, &norm->reads[1]);
    norm->running_mean = fb_next_tensor(&reader, "running_mean", true, &norm->reads[2]);
    norm->running_var = fb_next_tensor(&reader, "running_var", true, &norm->reads[3]);
    norm->training = fb_next_bool(&reader, "training", false);
    norm->eps = fb_next_argument(&reader, "eps");
    norm->eps_number = 1e-5;
    if (norm->eps.id && !fb_value_is_number(graph, norm->eps, &norm->eps_number)) norm->eps_number = NAN;
    fb_next_argument(&reader, "momentum");
    fb_next_argument(&reader, "cudnn_enabled");
    if (!fb_is_read_whole(&reader)) return false;
    int rank = fb_shape_rank(graph, fb_node_at(graph, norm->input)->shape);
    norm->spatial = rank < 0 ? -1 : rank - 2;
    return (rank < 0 || rank >= 2) && measure(graph, -1, norm);
}

bool fb_batch_norm_at(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    fb_batch_norm found = {0};
    const fb_node_row *row = fb_node_at(graph, node);
    bool is_norm = false;
    if (row->opcode == FB_CALL_MODULE) is_norm = batch_norm_of_module_call(graph, node, &found);
    else if (row->opcode == FB_CALL_FUNCTION && (row->op == FB_OP_BATCH_NORM || row->op == FB_OP_GETITEM))
        is_norm = batch_norm_of_function(graph, node, &found);
    if (is_norm) *norm = found;
    return is_norm;
}
