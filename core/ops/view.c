/* Views of the operators that passes rewrite. */
#include "core/ops/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- config ---------------------------------------------------------------------------------------------------------- */

bool fb_config_int(const fb_graph *graph, fb_module module, const char *key, int64_t fallback, int64_t *out) {
    fb_value value = fb_module_config(graph, module, key);
    int64_t number = fallback;
    if (value.id && !fb_value_is_int(graph, value, &number)) return false;
    *out = number;
    return true;
}

bool fb_config_number(const fb_graph *graph, fb_module module, const char *key, double fallback, double *out) {
    fb_value value = fb_module_config(graph, module, key);
    double number = fallback;
    bool is_big = value.id && fb_value_kind(graph, value) == FB_BIG_INT;
    if (is_big) number = strtod(fb_value_text(graph, value), NULL);
    else if (value.id && !fb_value_is_number(graph, value, &number)) return false;
    if (is_big && isinf(number)) return false;
    *out = number;
    return true;
}

bool fb_config_bool(const fb_graph *graph, fb_module module, const char *key, bool fallback, bool *out) {
    fb_value value = fb_module_config(graph, module, key);
    fb_kind kind = value.id ? fb_value_kind(graph, value) : fallback ? FB_TRUE : FB_FALSE;
    if (kind != FB_TRUE && kind != FB_FALSE) return false;
    *out = kind == FB_TRUE;
    return true;
}

/* ---- modules --------------------------------------------------------------------------------------------------------- */

bool fb_module_is_linear_like(const fb_graph *graph, fb_module module) {
    static const char word[] = "Linear";
    const size_t size = sizeof word - 1;
    if (fb_module_op(graph, module) != FB_OP_UNKNOWN) return false;
    const char *type = fb_text(graph, fb_module_at(graph, module)->type);
    const char *dot = strrchr(type, '.');
    const char *last = dot ? dot + 1 : type;
    size_t length = strlen(last);
    return length >= size && (memcmp(last, word, size) == 0 || memcmp(last + length - size, word, size) == 0);
}

static int64_t size_of(const fb_graph *graph, fb_tensor tensor, int axis) {
    return fb_shape_size(graph, fb_tensor_at(graph, tensor)->shape, axis);
}

static int rank_of(const fb_graph *graph, fb_tensor tensor) {
    return fb_shape_rank(graph, fb_tensor_at(graph, tensor)->shape);
}

bool fb_module_is_linear_subclass(const fb_graph *graph, fb_module module) {
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    int64_t in_features, out_features;
    return weight.id && rank_of(graph, weight) == 2 && fb_module_is_linear_like(graph, module) &&
           fb_config_int(graph, module, "in_features", -1, &in_features) &&
           fb_config_int(graph, module, "out_features", -1, &out_features) && size_of(graph, weight, 0) == out_features &&
           size_of(graph, weight, 1) == in_features;
}

/* None, or a vector of that many elements. */
static bool is_vector_or_none(const fb_graph *graph, fb_tensor tensor, int64_t size) {
    return !tensor.id || (rank_of(graph, tensor) == 1 && size_of(graph, tensor, 0) == size);
}

/* The one argument of a call_module, which must be a node. */
static bool sole_input(const fb_graph *graph, fb_node node, fb_node *input) {
    if (fb_node_at(graph, node)->opcode != FB_CALL_MODULE) return false;
    *input = fb_value_node(graph, fb_call_only_argument(graph, node, "input"));
    return input->id;
}

/* ---- Linear ---------------------------------------------------------------------------------------------------------- */

bool fb_linear_of_module(const fb_graph *graph, fb_module module, fb_linear *linear) {
    if (fb_module_op(graph, module) != FB_OP_LINEAR) return false;
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    if (!weight.id || rank_of(graph, weight) != 2) return false;
    fb_linear found = {
        .module = module,
        .weight = weight,
        .bias = fb_module_tensor(graph, module, "bias"),
        .out_features = size_of(graph, weight, 0),
        .in_features = size_of(graph, weight, 1),
        .dtype = (fb_dtype)fb_tensor_at(graph, weight)->dtype,
        .training = fb_module_at(graph, module)->training,
    };
    if (!is_vector_or_none(graph, found.bias, found.out_features)) return false;
    *linear = found;
    return true;
}

bool fb_linear_at(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_linear found;
    fb_node input;
    if (!fb_op_is(graph, node, FB_OP_LINEAR) || !sole_input(graph, node, &input)) return false;
    if (!fb_linear_of_module(graph, fb_node_at(graph, node)->module, &found)) return false;
    found.node = node;
    found.input = input;
    *linear = found;
    return true;
}

/* ---- convolution ----------------------------------------------------------------------------------------------------- */

static int conv_spatial(fb_op op) {
    return op == FB_OP_CONV1D ? 1 : op == FB_OP_CONV2D ? 2 : op == FB_OP_CONV3D ? 3 : 0;
}

bool fb_conv_of_module(const fb_graph *graph, fb_module module, fb_conv *conv) {
    int spatial = conv_spatial(fb_module_op(graph, module));
    if (!spatial) return false;
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    int64_t groups;
    if (!weight.id || rank_of(graph, weight) != spatial + 2) return false;
    if (!fb_config_int(graph, module, "groups", 1, &groups) || groups < 1) return false;
    fb_conv found = {
        .module = module,
        .weight = weight,
        .bias = fb_module_tensor(graph, module, "bias"),
        .spatial = spatial,
        .out_channels = size_of(graph, weight, 0),
        .groups = groups,
        .dtype = (fb_dtype)fb_tensor_at(graph, weight)->dtype,
        .training = fb_module_at(graph, module)->training,
    };
    if (__builtin_mul_overflow(size_of(graph, weight, 1), groups, &found.in_channels)) return false;
    if (!is_vector_or_none(graph, found.bias, found.out_channels)) return false;
    *conv = found;
    return true;
}

bool fb_conv_at(const fb_graph *graph, fb_node node, fb_conv *conv) {
    fb_conv found;
    fb_node input;
    if (!sole_input(graph, node, &input)) return false;
    if (!fb_conv_of_module(graph, fb_node_at(graph, node)->module, &found)) return false;
    found.node = node;
    found.input = input;
    *conv = found;
    return true;
}

/* ---- batch normalisation --------------------------------------------------------------------------------------------- */

static int batch_norm_spatial(fb_op op) {
    return op == FB_OP_BATCH_NORM1D ? 1 : op == FB_OP_BATCH_NORM2D ? 2 : op == FB_OP_BATCH_NORM3D ? 3 : 0;
}

/* num_features of the config, or the length of whichever vector there is. */
static bool batch_norm_features(const fb_graph *graph, fb_module module, fb_batch_norm *norm) {
    const fb_tensor tensors[] = {norm->weight, norm->bias, norm->running_mean, norm->running_var};
    int64_t features;
    if (!fb_config_int(graph, module, "num_features", -1, &features)) return false;
    for (size_t i = 0; i < 4 && features < 0; i++) {
        if (tensors[i].id) features = size_of(graph, tensors[i], 0);
    }
    for (size_t i = 0; i < 4; i++) {
        if (!is_vector_or_none(graph, tensors[i], features)) return false;
    }
    norm->num_features = features;
    return features >= 0;
}

bool fb_batch_norm_of_module(const fb_graph *graph, fb_module module, fb_batch_norm *norm) {
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
    if (!batch_norm_features(graph, module, &found)) return false;
    *norm = found;
    return true;
}

bool fb_batch_norm_at(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    fb_batch_norm found;
    fb_node input;
    if (!sole_input(graph, node, &input)) return false;
    if (!fb_batch_norm_of_module(graph, fb_node_at(graph, node)->module, &found)) return false;
    found.node = node;
    found.input = input;
    *norm = found;
    return true;
}

/* ---- division -------------------------------------------------------------------------------------------------------- */

/* False for a division that is spelled in ATen. */
static bool division_form(const fb_graph *graph, fb_node node, fb_division_form *form) {
    static const char operators[] = "operator.", aten[] = "torch.ops.";
    const char *target = fb_node_target(graph, node);
    if (fb_node_at(graph, node)->opcode == FB_CALL_METHOD) *form = FB_DIVISION_METHOD;
    else if (strncmp(target, operators, sizeof operators - 1) == 0) *form = FB_DIVISION_OPERATOR;
    else if (strncmp(target, aten, sizeof aten - 1) == 0) return false;
    else *form = FB_DIVISION_FUNCTION;
    return true;
}

bool fb_division_at(const fb_graph *graph, fb_node node, fb_division *division) {
    fb_op op = fb_node_op(graph, node);
    fb_division found = {.node = node};
    if ((op != FB_OP_DIV && op != FB_OP_TRUE_DIVIDE) || !division_form(graph, node, &found.form)) return false;
    found.numerator = fb_call_argument(graph, node, "input");
    found.divisor = fb_call_argument(graph, node, "other");
    found.rounding_mode = fb_call_argument(graph, node, "rounding_mode");
    if (!found.numerator.id || !found.divisor.id) return false;
    *division = found;
    return true;
}
