/* Linear layers, in both dialects. */
#include "core/ops/view_internal.h"

bool fb_linear_of_module(const fb_graph *graph, fb_module module, fb_linear *linear) {
    if (fb_module_op(graph, module) != FB_OP_LINEAR) return false;
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    if (!weight.id || fb_tensor_rank(graph, weight) != 2) return false;
    fb_linear found = {
        .module = module,
        .weight = weight,
        .bias = fb_module_tensor(graph, module, "bias"),
        .out_features = fb_tensor_size(graph, weight, 0),
        .in_features = fb_tensor_size(graph, weight, 1),
        .dtype = (fb_dtype)fb_tensor_at(graph, weight)->dtype,
        .training = fb_module_at(graph, module)->training,
    };
    if (!fb_is_vector_or_none(graph, found.bias, found.out_features)) return false;
    *linear = found;
    return true;
}

static bool linear_of_module_call(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_node input;
    if (!fb_sole_input(graph, node, &input)) return false;
    if (!fb_linear_of_module(graph, fb_node_at(graph, node)->module, linear)) return false;
    linear->node = node;
    linear->input = input;
    return true;
}

/* Of a function whose tensors have been read: their shapes and what follows from them. */
static bool measure(const fb_graph *graph, fb_linear *linear) {
    if (fb_tensor_rank(graph, linear->weight) != 2) return false;
    linear->out_features = fb_tensor_size(graph, linear->weight, linear->is_packed ? 1 : 0);
    linear->in_features = fb_tensor_size(graph, linear->weight, linear->is_packed ? 0 : 1);
    linear->dtype = (fb_dtype)fb_tensor_at(graph, linear->weight)->dtype;
    return fb_is_vector_or_none(graph, linear->bias, linear->out_features) && linear->input.id != linear->weight_read.id &&
           (!linear->transposition.id || linear->input.id != linear->transposition.id);
}

static bool linear_of_function(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_FUNCTION;
    linear->node = node;
    linear->input = fb_next_input(&reader, "input");
    linear->weight = fb_next_matrix(&reader, "weight", &linear->weight_read, &linear->transposition);
    linear->is_packed = linear->transposition.id != 0;
    linear->bias = fb_next_tensor(&reader, "bias", true, &linear->bias_read);
    return fb_is_read_whole(&reader) && measure(graph, linear);
}

/* addmm(bias, input, weight), without factors. */
static bool linear_of_addmm(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_ADDMM;
    linear->node = node;
    linear->input = fb_next_input(&reader, "mat1");
    linear->weight = fb_next_matrix(&reader, "mat2", &linear->weight_read, &linear->transposition);
    linear->is_packed = !linear->transposition.id;
    linear->bias = fb_next_tensor(&reader, "input", false, &linear->bias_read);
    bool is_plain = fb_next_number(&reader, "beta", 1) == 1 && fb_next_number(&reader, "alpha", 1) == 1;
    return is_plain && fb_is_read_whole(&reader) && measure(graph, linear);
}

/* mm(input, weight) */
static bool linear_of_mm(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_MM;
    linear->node = node;
    linear->input = fb_next_input(&reader, "input");
    linear->weight = fb_next_matrix(&reader, "mat2", &linear->weight_read, &linear->transposition);
    linear->is_packed = !linear->transposition.id;
    return fb_is_read_whole(&reader) && measure(graph, linear);
}

bool fb_linear_at(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_linear found = {0};
    fb_op op = fb_node_op(graph, node);
    bool is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION, is_linear = false;
    if (op == FB_OP_LINEAR && is_function) is_linear = linear_of_function(graph, node, &found);
    else if (op == FB_OP_LINEAR) is_linear = linear_of_module_call(graph, node, &found);
    else if (op == FB_OP_ADDMM && is_function) is_linear = linear_of_addmm(graph, node, &found);
    else if (op == FB_OP_MM && is_function) is_linear = linear_of_mm(graph, node, &found);
    if (is_linear) *linear = found;
    return is_linear;
}
