/* Convolutions, in both dialects. */
#include <string.h>

#include "core/ops/view_internal.h"

/* aten.convolution, in any number of dimensions, transposed or not; what its arguments say is read from them. */
static int spatial_of_any(const fb_graph *graph, fb_node node, bool *is_transposed) {
    fb_node read;
    fb_tensor weight;
    fb_value flag = fb_call_argument(graph, node, "transposed");
    fb_kind kind = flag.id ? fb_value_kind(graph, flag) : FB_NONE;
    if (kind != FB_TRUE && kind != FB_FALSE) return 0;
    if (!fb_tensor_read_by(graph, fb_call_argument(graph, node, "weight"), &read, &weight)) return 0;
    int spatial = fb_tensor_rank(graph, weight) - 2;
    *is_transposed = kind == FB_TRUE;
    return spatial >= 1 && spatial <= 3 ? spatial : 0;
}

static int spatial_of(fb_op op, bool *is_transposed) {
    *is_transposed = op == FB_OP_CONV_TRANSPOSE1D || op == FB_OP_CONV_TRANSPOSE2D || op == FB_OP_CONV_TRANSPOSE3D;
    switch (op) {
    case FB_OP_CONV1D:
    case FB_OP_CONV_TRANSPOSE1D: return 1;
    case FB_OP_CONV2D:
    case FB_OP_CONV_TRANSPOSE2D: return 2;
    case FB_OP_CONV3D:
    case FB_OP_CONV_TRANSPOSE3D: return 3;
    default: return 0;
    }
}

/* Certainly no padding: 0, "valid", or a sequence of zeros. */
static bool is_zero(const fb_graph *graph, fb_value padding) {
    int64_t number;
    if (!padding.id) return true;
    if (fb_value_is_int(graph, padding, &number)) return number == 0;
    if (fb_value_kind(graph, padding) == FB_STRING) return strcmp(fb_value_text(graph, padding), "valid") == 0;
    bool is_sequence = fb_value_kind(graph, padding) == FB_LIST || fb_value_kind(graph, padding) == FB_TUPLE;
    for (size_t i = 0; is_sequence && fb_value_item(graph, padding, i).id; i++) {
        if (!fb_value_is_int(graph, fb_value_item(graph, padding, i), &number) || number != 0) return false;
    }
    return is_sequence;
}

/* What follows from tensors and groups, which have been read. */
static bool measure(const fb_graph *graph, fb_conv *conv) {
    if (!conv->weight.id || fb_tensor_rank(graph, conv->weight) != conv->spatial + 2 || conv->groups < 1) return false;
    int64_t outer = fb_tensor_size(graph, conv->weight, 0), inner;
    if (__builtin_mul_overflow(fb_tensor_size(graph, conv->weight, 1), conv->groups, &inner)) return false;
    conv->out_channels = conv->is_transposed ? inner : outer;
    conv->in_channels = conv->is_transposed ? outer : inner;
    conv->dtype = (fb_dtype)fb_tensor_at(graph, conv->weight)->dtype;
    return fb_is_vector_or_none(graph, conv->bias, conv->out_channels);
}

static bool conv_of_module(const fb_graph *graph, fb_module module, fb_conv *conv) {
    fb_conv found = {.module = module};
    found.spatial = spatial_of(fb_module_op(graph, module), &found.is_transposed);
    if (!found.spatial) return false;
    found.weight = fb_module_tensor(graph, module, "weight");
    found.bias = fb_module_tensor(graph, module, "bias");
    found.training = fb_module_at(graph, module)->training;
    found.is_padded = !is_zero(graph, fb_module_config(graph, module, "padding"));
    if (!fb_config_int(graph, module, "groups", 1, &found.groups) || !measure(graph, &found)) return false;
    *conv = found;
    return true;
}

static bool conv_of_module_call(const fb_graph *graph, fb_node node, fb_conv *conv) {
    fb_node input;
    if (!fb_sole_input(graph, node, &input)) return false;
    if (!conv_of_module(graph, fb_node_at(graph, node)->module, conv)) return false;
    conv->node = node;
    conv->input = input;
    return true;
}

static bool conv_of_function(const fb_graph *graph, fb_node node, fb_conv *conv) {
    fb_call_reader reader = {.graph = graph, .node = node};
    conv->node = node;
    bool is_any = fb_op_is(graph, node, FB_OP_CONVOLUTION);
    conv->spatial =
        is_any ? spatial_of_any(graph, node, &conv->is_transposed) : spatial_of(fb_node_op(graph, node), &conv->is_transposed);
    conv->input = fb_next_input(&reader, "input");
    conv->weight = fb_next_tensor(&reader, "weight", false, &conv->weight_read);
    conv->bias = fb_next_tensor(&reader, "bias", true, &conv->bias_read);
    conv->is_padded = !is_zero(graph, fb_next_argument(&reader, "padding"));
    fb_next_argument(&reader, "stride");
    fb_next_argument(&reader, "dilation");
    fb_value groups = fb_next_argument(&reader, "groups");
    conv->groups = 1;
    if (groups.id && !fb_value_is_int(graph, groups, &conv->groups)) return false;
    if (conv->is_transposed || is_any) fb_next_argument(&reader, "output_padding");
    if (is_any) fb_next_argument(&reader, "transposed");
    return conv->spatial && fb_is_read_whole(&reader) && conv->input.id != conv->weight_read.id && measure(graph, conv);
}

bool fb_conv_at(const fb_graph *graph, fb_node node, fb_conv *conv) {
    fb_conv found = {0};
    bool is_transposed, is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION;
    fb_op op = fb_node_op(graph, node);
    if (!spatial_of(op, &is_transposed) && !(op == FB_OP_CONVOLUTION && is_function)) return false;
    bool is_conv = is_function ? conv_of_function(graph, node, &found) : conv_of_module_call(graph, node, &found);
    if (is_conv) *conv = found;
    return is_conv;
}
