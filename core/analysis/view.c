/* Views of calls: layers in both dialects, and divisions. */
#include "core/analysis/view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/shape.h"
#include "core/operators/spelling.h"

static int64_t tensor_size(const fb_graph *graph, fb_tensor tensor, int axis) {
    return fb_shape_size(graph, fb_tensor_at(graph, tensor)->shape, axis);
}

static int tensor_rank(const fb_graph *graph, fb_tensor tensor) {
    return fb_shape_rank(graph, fb_tensor_at(graph, tensor)->shape);
}

bool fb_constant_number(const fb_graph *graph, fb_value value, double *number) {
    return fb_value_is_number(graph, value, number) || (fb_graph_is_onnx(graph) && fb_onnx_number(graph, value, number));
}

/* ---- config ---------------------------------------------------------------------------------------------------------- */

/* The same of a number. */
static bool config_number(const fb_graph *graph, fb_module module, const char *key, double fallback, double *out) {
    fb_value value = fb_module_config(graph, module, key);
    double number = fallback;
    bool is_big = value.id && fb_value_kind(graph, value) == FB_BIG_INT;
    if (is_big) number = strtod(fb_value_text(graph, value), NULL);
    else if (value.id && !fb_value_is_number(graph, value, &number)) return false;
    if (is_big && isinf(number)) return false;
    *out = number;
    return true;
}

/* ---- modules --------------------------------------------------------------------------------------------------------- */

bool fb_is_aten(const fb_graph *graph, fb_node node) {
    return fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(graph, node), FB_ATEN);
}

bool fb_is_read_by(const fb_graph *graph, fb_node value, fb_node reader) {
    return fb_node_at(graph, value)->user_count == 1 && fb_mentions_of(graph, reader, value) == 1;
}

bool fb_is_result(const fb_graph *graph, fb_node node) {
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e))
        if (fb_node_at(graph, fb_edge_user(graph, e))->opcode == FB_OUTPUT) return true;
    return false;
}

bool fb_asserts_type_only(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (!fb_op_is(graph, node, FB_OP_ASSERT) || fb_value_at(graph, row->args)->count != 1) return false; /* size, stride */
    bool is_certain = !fb_node_kwarg(graph, node, "size").id && !fb_node_kwarg(graph, node, "stride").id;
    return is_certain && strcmp(fb_node_target(graph, node), "torch.ops.aten._assert_tensor_metadata.default") == 0;
}

bool fb_reads_type_only(const fb_graph *graph, fb_node node) {
    fb_op op = fb_node_op(graph, node);
    const fb_op_facts *facts = fb_op_facts_of(op);
    if (op == FB_OP_GETATTR) return fb_result_kind_of(graph, node) == FB_A_NUMBER;
    return (facts->type_of && facts->flags & FB_FACT_NUMBER) || fb_asserts_type_only(graph, node);
}

typedef struct mentions {
    fb_node input;
    int count;
} mentions;

static void count_mention(void *context, fb_node node) {
    mentions *m = context;
    m->count += node.id == m->input.id;
}

int fb_mentions_of(const fb_graph *graph, fb_node node, fb_node input) {
    mentions m = {.input = input};
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->args, count_mention, &m);
    fb_value_visit_nodes(graph, fb_node_at(graph, node)->kwargs, count_mention, &m);
    return m.count;
}

const char *fb_recorded_device(const fb_graph *graph, fb_node node) {
    fb_value rest = node.id ? fb_node_at(graph, node)->meta_rest : (fb_value){0};
    const char *device = rest.id ? fb_value_text(graph, fb_map_value(graph, rest, "device")) : NULL;
    return device ? device : "";
}

bool fb_reads_type_only_of(const fb_graph *graph, fb_node node, fb_node input) {
    if (fb_reads_type_only(graph, node)) return true;
    fb_op op = fb_node_op(graph, node);
    const char *parameter = op & FB_OP_IN_PLACE ? NULL : fb_op_facts_of(op)->type_of;
    return parameter && fb_mentions_of(graph, node, input) == 1 && fb_call_argument_node(graph, node, parameter).id == input.id;
}

/* ---- arguments ------------------------------------------------------------------------------------------------------- */

/* None, or a vector of that many elements. */
static bool is_vector_or_none(const fb_graph *graph, fb_tensor tensor, int64_t size) {
    return !tensor.id || (tensor_rank(graph, tensor) == 1 && tensor_size(graph, tensor, 0) == size);
}

/* The one argument of a call_module, which must be a node. */
static bool sole_input(const fb_graph *graph, fb_node node, fb_node *input) {
    if (fb_node_at(graph, node)->opcode != FB_CALL_MODULE) return false;
    *input = fb_value_node(graph, fb_call_only_argument(graph, node, "input"));
    return input->id;
}

bool fb_tensor_read_by(const fb_graph *graph, fb_value argument, fb_node *read, fb_tensor *tensor) {
    fb_node node = fb_value_node(graph, argument);
    if (!node.id) return false;
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_GET_ATTR || !row->attribute.id || row->program.id != FB_MAIN_PROGRAM.id) return false;
    fb_tensor found = fb_module_tensor(graph, row->module, fb_text(graph, row->attribute));
    if (!found.id) return false;
    *read = node;
    *tensor = found;
    return true;
}

/* Does the call name the two dimensions of a matrix in these parameters? */
static bool names_both(const fb_shape_call *call, const char *first, const char *second) {
    int a, b;
    return fb_call_argument(call->graph, call->node, first).id && fb_call_argument(call->graph, call->node, second).id &&
           fb_option_axis(call, first, 0, 2, &a) && fb_option_axis(call, second, 0, 2, &b) && a != b;
}

/* Does the call exchange the two dimensions of a matrix? */
static bool is_transposition(const fb_graph *graph, fb_node node) {
    fb_shape_call call = {.graph = graph, .node = node, .op = fb_node_op(graph, node)};
    fb_sizes dims;
    fb_value name;
    int a, b;
    if (call.op & FB_OP_IN_PLACE) return false;
    switch ((fb_shape_rule)fb_op_facts_of(call.op)->shape) {
    case FB_SHAPE_T: return fb_call_has_only(graph, node, "input");
    case FB_SHAPE_GETATTR:
        name = fb_node_arg(graph, node, 1);
        return name.id && fb_value_kind(graph, name) == FB_STRING &&
               (strcmp(fb_value_text(graph, name), "T") == 0 || strcmp(fb_value_text(graph, name), "mT") == 0);
    case FB_SHAPE_TRANSPOSE: return names_both(&call, "dim0", "dim1");
    case FB_SHAPE_MOVEDIM: return names_both(&call, "source", "destination");
    case FB_SHAPE_PERMUTE:
        return fb_sizes_named(&call, "dims", &dims) && dims.count == 2 && !dims.items[0].symbol.id &&
               !dims.items[1].symbol.id && fb_normalise_axis(dims.items[0].size, 2, &a) &&
               fb_normalise_axis(dims.items[1].size, 2, &b) && a == 1 && b == 0;
    default: return false;
    }
}

bool fb_matrix_read_by_node(const fb_graph *graph, fb_node node, fb_node *read, fb_node *transposition, fb_tensor *tensor) {
    fb_node found;
    fb_tensor matrix;
    if (!is_transposition(graph, node) || !fb_tensor_read_by(graph, fb_first_argument(graph, node), &found, &matrix))
        return false;
    if (tensor_rank(graph, matrix) != 2) return false;
    *read = found;
    *transposition = node;
    *tensor = matrix;
    return true;
}

/* The matrix that a get_attr node reads, as an argument; transposed on the way where `transposition` is not none. */
static bool matrix_read_by(const fb_graph *graph, fb_value argument, fb_node *read, fb_node *transposition, fb_tensor *tensor) {
    fb_node node = fb_value_node(graph, argument);
    if (node.id && fb_matrix_read_by_node(graph, node, read, transposition, tensor)) return true;
    if (!fb_tensor_read_by(graph, argument, read, tensor) || tensor_rank(graph, *tensor) != 2) return false;
    *transposition = (fb_node){0};
    return true;
}

fb_node fb_call_of_value(const fb_graph *graph, fb_node node) {
    int64_t index;
    if (!fb_op_is(graph, node, FB_OP_GETITEM)) return node;
    fb_value item = fb_node_arg(graph, node, 1), from = fb_node_arg(graph, node, 0);
    fb_node call = fb_value_node(graph, from);
    bool is_first = call.id && item.id && fb_value_is_int(graph, item, &index) && index == 0;
    return is_first && fb_op_facts_of(fb_node_op(graph, call))->flags & FB_FACT_TUPLE ? call : node;
}

/* Reading the arguments of a call_function one by one: all that are given must have been asked for in the end. */
typedef struct call_reader {
    const fb_graph *graph;
    fb_node node;
    size_t seen;   /* arguments that are given and were asked for */
    bool is_wrong; /* one is not what it must be */
} call_reader;

static fb_value next_argument(call_reader *reader, const char *parameter) {
    fb_value value = fb_call_argument(reader->graph, reader->node, parameter);
    reader->seen += value.id != 0;
    return value;
}

/* The input: a node. */
static fb_node next_input(call_reader *reader, const char *parameter) {
    fb_value value = next_argument(reader, parameter);
    fb_node input = fb_value_node(reader->graph, value);
    reader->is_wrong |= !input.id;
    return input;
}

/* A tensor that a get_attr node reads. None when absent or None, which is wrong unless it is optional. */
static fb_tensor next_tensor(call_reader *reader, const char *parameter, bool is_optional, fb_node *read) {
    fb_value value = next_argument(reader, parameter);
    fb_tensor tensor = {0};
    *read = (fb_node){0};
    bool is_absent = fb_is_absent(reader->graph, value);
    if (is_absent) reader->is_wrong |= !is_optional;
    else reader->is_wrong |= !fb_tensor_read_by(reader->graph, value, read, &tensor);
    return tensor;
}

/* The same for a matrix, which may be transposed on the way. */
static fb_tensor next_matrix(call_reader *reader, const char *parameter, fb_node *read, fb_node *transposition) {
    fb_tensor tensor = {0};
    *read = *transposition = (fb_node){0};
    reader->is_wrong |= !matrix_read_by(reader->graph, next_argument(reader, parameter), read, transposition, &tensor);
    return tensor;
}

/* A bool constant, a number. */
static bool next_bool(call_reader *reader, const char *parameter, bool fallback) {
    fb_value value = next_argument(reader, parameter);
    if (!value.id) return fallback;
    fb_kind kind = fb_value_kind(reader->graph, value);
    reader->is_wrong |= kind != FB_TRUE && kind != FB_FALSE;
    return kind == FB_TRUE;
}

static double next_number(call_reader *reader, const char *parameter, double fallback) {
    fb_value value = next_argument(reader, parameter);
    double number = fallback;
    reader->is_wrong |= value.id && !fb_value_is_number(reader->graph, value, &number);
    return number;
}

/* Were all arguments asked for, and right? */
static bool is_read_whole(const call_reader *reader) {
    return !reader->is_wrong && fb_argument_count(reader->graph, reader->node) == reader->seen;
}

/* ---- linear layers ------------------------------------------------------------------------------------------------------- */

bool fb_linear_of_module(const fb_graph *graph, fb_module module, fb_linear *linear) {
    if (fb_module_op(graph, module) != FB_OP_LINEAR) return false;
    fb_tensor weight = fb_module_tensor(graph, module, "weight");
    if (!weight.id || tensor_rank(graph, weight) != 2) return false;
    fb_linear found = {
        .module = module,
        .weight_factor = 1,
        .bias_factor = 1,
        .weight = weight,
        .bias = fb_module_tensor(graph, module, "bias"),
        .out_features = tensor_size(graph, weight, 0),
        .in_features = tensor_size(graph, weight, 1),
        .dtype = (fb_dtype)fb_tensor_at(graph, weight)->dtype,
        .training = fb_module_at(graph, module)->training,
    };
    if (!is_vector_or_none(graph, found.bias, found.out_features)) return false;
    *linear = found;
    return true;
}

static bool linear_of_module_call(const fb_graph *graph, fb_node node, fb_linear *linear) {
    if (!fb_linear_of_module(graph, fb_node_at(graph, node)->module, linear)) return false;
    linear->node = linear->origin = node;
    return sole_input(graph, node, &linear->input);
}

/* Fills in the shapes of a function's tensors, which have been read, and what follows from them. */
static bool measure_linear(const fb_graph *graph, fb_linear *linear) {
    if (tensor_rank(graph, linear->weight) != 2) return false;
    linear->out_features = tensor_size(graph, linear->weight, linear->is_packed ? 1 : 0);
    linear->in_features = tensor_size(graph, linear->weight, linear->is_packed ? 0 : 1);
    linear->dtype = (fb_dtype)fb_tensor_at(graph, linear->weight)->dtype;
    return is_vector_or_none(graph, linear->bias, linear->out_features) && linear->input.id != linear->weight_read.id &&
           (!linear->transposition.id || linear->input.id != linear->transposition.id);
}

static bool linear_of_function(const fb_graph *graph, fb_node node, fb_linear *linear) {
    call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_FUNCTION;
    linear->node = node;
    linear->input = next_input(&reader, "input");
    linear->weight = next_matrix(&reader, "weight", &linear->weight_read, &linear->transposition);
    linear->is_packed = linear->transposition.id != 0;
    linear->bias = next_tensor(&reader, "bias", true, &linear->bias_read);
    return is_read_whole(&reader) && measure_linear(graph, linear);
}

/* addmm(bias, input, weight), without factors. */
static bool linear_of_addmm(const fb_graph *graph, fb_node node, fb_linear *linear) {
    call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_ADDMM;
    linear->node = node;
    linear->input = next_input(&reader, "mat1");
    linear->weight = next_matrix(&reader, "mat2", &linear->weight_read, &linear->transposition);
    linear->is_packed = !linear->transposition.id;
    linear->bias = next_tensor(&reader, "input", false, &linear->bias_read);
    bool is_plain = next_number(&reader, "beta", 1) == 1 && next_number(&reader, "alpha", 1) == 1;
    return is_plain && is_read_whole(&reader) && measure_linear(graph, linear);
}

/* mm(input, weight) */
static bool linear_of_mm(const fb_graph *graph, fb_node node, fb_linear *linear) {
    call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_MM;
    linear->node = node;
    linear->input = next_input(&reader, "input");
    linear->weight = next_matrix(&reader, "mat2", &linear->weight_read, &linear->transposition);
    linear->is_packed = !linear->transposition.id;
    return is_read_whole(&reader) && measure_linear(graph, linear);
}

/* A factor that a weight takes in without overflow, and without vanishing. */
static bool is_mild(double factor, fb_dtype dtype) {
    return fabs(factor) >= 1.0 / 16 && fabs(factor) <= (dtype == FB_FLOAT16 ? 1 : 16);
}

/* With a vector for a bias. */
static bool linear_of_gemm(const fb_graph *graph, fb_node node, fb_linear *linear) {
    call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_GEMM;
    linear->node = node;
    linear->input = next_input(&reader, "input");
    linear->weight = next_tensor(&reader, "weight", false, &linear->weight_read);
    linear->bias = next_tensor(&reader, "bias", true, &linear->bias_read);
    linear->weight_factor = next_number(&reader, "alpha", 1);
    linear->bias_factor = next_number(&reader, "beta", 1);
    if (next_number(&reader, "transA", 0) != 0) linear->input = (fb_node){0};
    linear->is_packed = next_number(&reader, "transB", 0) == 0;
    return is_read_whole(&reader) && measure_linear(graph, linear) && is_mild(linear->weight_factor, linear->dtype) &&
           (!linear->bias.id || is_mild(linear->bias_factor, linear->dtype));
}

/* MatMul(input, weight) of ONNX, whose input has two dimensions or more: of one it would be a product of another shape. */
static bool linear_of_matmul(const fb_graph *graph, fb_node node, fb_linear *linear) {
    call_reader reader = {.graph = graph, .node = node};
    linear->form = FB_LINEAR_MATMUL;
    linear->node = node;
    linear->is_packed = true;
    linear->input = next_input(&reader, "input");
    linear->weight = next_tensor(&reader, "other", false, &linear->weight_read);
    if (!is_read_whole(&reader) || !measure_linear(graph, linear)) return false;
    int rank = fb_node_rank(graph, linear->input);
    linear->needs_sum = rank != 2;
    return rank >= 2;
}

/* A vector added to a MatMul that nothing else reads. */
static bool linear_of_sum(const fb_graph *graph, fb_node node, fb_linear *linear) {
    for (size_t i = 0; i < 2; i++) {
        fb_node product = fb_arg_node(graph, node, i);
        if (!product.id || !fb_op_is(graph, product, FB_OP_MATMUL) || fb_node_at(graph, product)->user_count != 1) continue;
        fb_linear found = *linear;
        bool is_linear = linear_of_matmul(graph, product, &found) &&
                         fb_tensor_read_by(graph, fb_node_arg(graph, node, 1 - i), &found.bias_read, &found.bias);
        if (!is_linear || !is_vector_or_none(graph, found.bias, found.out_features)) continue;
        found.node = node;
        found.origin = product;
        found.is_bias_first = i == 1;
        found.needs_sum = false;
        *linear = found;
        return true;
    }
    return false;
}

fb_node fb_with_bias(const fb_graph *graph, fb_node node) {
    if (!fb_op_is(graph, node, FB_OP_MATMUL) || fb_node_at(graph, node)->user_count != 1 || !fb_graph_is_onnx(graph))
        return node;
    fb_linear linear = {0};
    fb_node sum = fb_edge_user(graph, fb_user_first(graph, node));
    return fb_op_is(graph, sum, FB_OP_ADD) && linear_of_sum(graph, sum, &linear) ? sum : node;
}

bool fb_op_may_be_linear(fb_op op) {
    return op == FB_OP_LINEAR || op == FB_OP_ADDMM || op == FB_OP_MM || op == FB_OP_ONNX_GEMM || op == FB_OP_MATMUL ||
           op == FB_OP_ADD;
}

bool fb_linear_at(const fb_graph *graph, fb_node node, fb_linear *linear) {
    fb_op op = fb_node_op(graph, node);
    if (!fb_op_may_be_linear(op)) return false;
    fb_linear found = {.origin = node, .weight_factor = 1, .bias_factor = 1};
    bool is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION, is_linear = false;
    if (op == FB_OP_LINEAR && is_function) is_linear = linear_of_function(graph, node, &found);
    else if (op == FB_OP_LINEAR) is_linear = linear_of_module_call(graph, node, &found);
    else if (op == FB_OP_ADDMM && is_function) is_linear = linear_of_addmm(graph, node, &found);
    else if (op == FB_OP_MM && is_function) is_linear = linear_of_mm(graph, node, &found);
    else if (op == FB_OP_ONNX_GEMM) is_linear = linear_of_gemm(graph, node, &found);
    else if (op == FB_OP_MATMUL && fb_graph_is_onnx(graph))
        is_linear = fb_with_bias(graph, node).id == node.id && linear_of_matmul(graph, node, &found);
    else if (op == FB_OP_ADD && fb_graph_is_onnx(graph)) is_linear = linear_of_sum(graph, node, &found);
    if (is_linear) *linear = found;
    return is_linear;
}

/* ---- convolutions -------------------------------------------------------------------------------------------------------- */

/* aten.convolution, in any number of dimensions, transposed or not; what its arguments say is read from them. */
static int spatial_of_any(const fb_graph *graph, fb_node node, bool *is_transposed) {
    fb_node read;
    fb_tensor weight;
    fb_value flag = fb_call_argument(graph, node, "transposed");
    fb_kind kind = flag.id ? fb_value_kind(graph, flag) : FB_NONE;
    if (kind != FB_TRUE && kind != FB_FALSE) return 0;
    if (!fb_tensor_read_by(graph, fb_call_argument(graph, node, "weight"), &read, &weight)) return 0;
    int spatial = tensor_rank(graph, weight) - 2;
    *is_transposed = kind == FB_TRUE;
    return spatial >= 1 && spatial <= 3 ? spatial : 0;
}

static int spatial_of(fb_op op, bool *is_transposed) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    *is_transposed = facts->shape == FB_SHAPE_CONV_TRANSPOSE;
    return *is_transposed || facts->shape == FB_SHAPE_CONV ? facts->spatial : 0;
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

/* Fills in what follows from tensors and groups, which have been read. */
static bool measure_conv(const fb_graph *graph, fb_conv *conv) {
    if (!conv->weight.id || tensor_rank(graph, conv->weight) != conv->spatial + 2 || conv->groups < 1) return false;
    int64_t outer = tensor_size(graph, conv->weight, 0), inner;
    if (__builtin_mul_overflow(tensor_size(graph, conv->weight, 1), conv->groups, &inner)) return false;
    conv->out_channels = conv->is_transposed ? inner : outer;
    conv->in_channels = conv->is_transposed ? outer : inner;
    conv->dtype = (fb_dtype)fb_tensor_at(graph, conv->weight)->dtype;
    return is_vector_or_none(graph, conv->bias, conv->out_channels);
}

static bool conv_of_module(const fb_graph *graph, fb_module module, fb_conv *conv) {
    fb_conv found = {.module = module};
    found.spatial = spatial_of(fb_module_op(graph, module), &found.is_transposed);
    if (!found.spatial) return false;
    found.weight = fb_module_tensor(graph, module, "weight");
    found.bias = fb_module_tensor(graph, module, "bias");
    found.training = fb_module_at(graph, module)->training;
    found.is_padded = !is_zero(graph, fb_module_config(graph, module, "padding"));
    if (!fb_config_int(graph, module, "groups", 1, &found.groups) || !measure_conv(graph, &found)) return false;
    *conv = found;
    return true;
}

static bool conv_of_module_call(const fb_graph *graph, fb_node node, fb_conv *conv) {
    if (!conv_of_module(graph, fb_node_at(graph, node)->module, conv)) return false;
    conv->node = node;
    return sole_input(graph, node, &conv->input);
}

static bool conv_of_function(const fb_graph *graph, fb_node node, fb_conv *conv) {
    call_reader reader = {.graph = graph, .node = node};
    conv->node = node;
    bool is_any = fb_op_is(graph, node, FB_OP_CONVOLUTION);
    conv->spatial =
        is_any ? spatial_of_any(graph, node, &conv->is_transposed) : spatial_of(fb_node_op(graph, node), &conv->is_transposed);
    conv->input = next_input(&reader, "input");
    conv->weight = next_tensor(&reader, "weight", false, &conv->weight_read);
    conv->bias = next_tensor(&reader, "bias", true, &conv->bias_read);
    conv->is_padded = !is_zero(graph, next_argument(&reader, "padding"));
    next_argument(&reader, "stride");
    next_argument(&reader, "dilation");
    fb_value groups = next_argument(&reader, "groups");
    conv->groups = 1;
    if (groups.id && !fb_value_is_int(graph, groups, &conv->groups)) return false;
    if (conv->is_transposed || is_any) next_argument(&reader, "output_padding");
    if (is_any) next_argument(&reader, "transposed");
    return conv->spatial && is_read_whole(&reader) && conv->input.id != conv->weight_read.id && measure_conv(graph, conv);
}

/* Does it say that it pads nothing? */
static bool is_unpadded(call_reader *reader) {
    fb_value automatic = next_argument(reader, "auto_pad"), pads = next_argument(reader, "pads");
    const char *word = automatic.id ? fb_value_text(reader->graph, automatic) : "NOTSET";
    if (word && strcmp(word, "VALID") == 0) return true;
    return word && strcmp(word, "NOTSET") == 0 && is_zero(reader->graph, pads);
}

static bool conv_of_onnx(const fb_graph *graph, fb_node node, fb_conv *conv) {
    static const char *const options[] = {"dilations", "kernel_shape", "strides", "output_padding", "output_shape"};
    call_reader reader = {.graph = graph, .node = node};
    conv->node = node;
    conv->is_transposed = fb_op_is(graph, node, FB_OP_ONNX_CONV_TRANSPOSE);
    conv->input = next_input(&reader, "input");
    conv->weight = next_tensor(&reader, "weight", false, &conv->weight_read);
    conv->bias = next_tensor(&reader, "bias", true, &conv->bias_read);
    conv->is_padded = !is_unpadded(&reader);
    fb_value groups = next_argument(&reader, "group");
    conv->groups = 1;
    if (groups.id && !fb_value_is_int(graph, groups, &conv->groups)) return false;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) next_argument(&reader, options[i]);
    if (!is_read_whole(&reader)) return false;
    conv->spatial = tensor_rank(graph, conv->weight) - 2;
    return conv->spatial >= 1 && conv->spatial <= 3 && conv->input.id != conv->weight_read.id && measure_conv(graph, conv);
}

bool fb_op_may_be_conv(fb_op op) {
    bool ignored;
    return op == FB_OP_ONNX_CONV || op == FB_OP_ONNX_CONV_TRANSPOSE || op == FB_OP_CONVOLUTION || spatial_of(op, &ignored);
}

bool fb_conv_at(const fb_graph *graph, fb_node node, fb_conv *conv) {
    fb_conv found = {0};
    fb_op op = fb_node_op(graph, node);
    if (!fb_op_may_be_conv(op)) return false;
    bool is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION;
    if (op == FB_OP_ONNX_CONV || op == FB_OP_ONNX_CONV_TRANSPOSE) {
        if (!conv_of_onnx(graph, node, &found)) return false;
        *conv = found;
        return true;
    }
    if (op == FB_OP_CONVOLUTION && !is_function) return false;
    bool is_conv = is_function ? conv_of_function(graph, node, &found) : conv_of_module_call(graph, node, &found);
    if (is_conv) *conv = found;
    return is_conv;
}

/* ---- batch normalisation ------------------------------------------------------------------------------------------------- */

static int batch_norm_spatial(fb_op op) {
    return op == FB_OP_BATCH_NORM1D ? 1 : op == FB_OP_BATCH_NORM2D ? 2 : op == FB_OP_BATCH_NORM3D ? 3 : 0;
}

/* That many features (-1 = not said), or the length of whichever vector there is. */
static bool measure_batch_norm(const fb_graph *graph, int64_t features, fb_batch_norm *norm) {
    const fb_tensor tensors[] = {norm->weight, norm->bias, norm->running_mean, norm->running_var};
    for (size_t i = 0; i < 4 && features < 0; i++) {
        if (tensors[i].id) features = tensor_size(graph, tensors[i], 0);
    }
    for (size_t i = 0; i < 4; i++) {
        if (!is_vector_or_none(graph, tensors[i], features)) return false;
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
    if (!config_number(graph, module, "eps", 1e-5, &found.eps_number)) found.eps_number = NAN;
    int64_t features;
    if (!fb_config_int(graph, module, "num_features", -1, &features) || !measure_batch_norm(graph, features, &found))
        return false;
    *norm = found;
    return true;
}

static bool batch_norm_of_module_call(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    if (!batch_norm_of_module(graph, fb_node_at(graph, node)->module, norm)) return false;
    norm->node = norm->call = node;
    return sole_input(graph, node, &norm->input);
}

static bool is_function(fb_op op) {
    return op == FB_OP_BATCH_NORM || op == FB_OP_BATCH_NORM_INFERENCE || op == FB_OP_NATIVE_BATCH_NORM;
}

/* The call, or the first result of one that gives several. */
static bool batch_norm_of_function(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    norm->node = node;
    norm->call = fb_call_of_value(graph, node);
    call_reader reader = {.graph = graph, .node = norm->call};
    bool gives_tuple = fb_op_facts_of(fb_node_op(graph, norm->call))->flags & FB_FACT_TUPLE;
    if (!is_function(fb_node_op(graph, norm->call)) || gives_tuple != (norm->call.id != node.id)) return false;
    norm->input = next_input(&reader, "input");
    norm->weight = next_tensor(&reader, "weight", true, &norm->reads[0]);
    norm->bias = next_tensor(&reader, "bias", true, &norm->reads[1]);
    norm->running_mean = next_tensor(&reader, "running_mean", true, &norm->reads[2]);
    norm->running_var = next_tensor(&reader, "running_var", true, &norm->reads[3]);
    norm->training = next_bool(&reader, "training", false);
    norm->eps = next_argument(&reader, "eps");
    norm->eps_number = 1e-5;
    if (norm->eps.id && !fb_value_is_number(graph, norm->eps, &norm->eps_number)) norm->eps_number = NAN;
    next_argument(&reader, "momentum");
    next_argument(&reader, "cudnn_enabled");
    if (!is_read_whole(&reader)) return false;
    int rank = fb_node_rank(graph, norm->input);
    norm->spatial = rank < 0 ? -1 : rank - 2;
    return (rank < 0 || rank >= 2) && measure_batch_norm(graph, -1, norm);
}

/* BatchNormalization with one result: others are statistics of the batch. Opset 7 has `spatial`. */
static bool batch_norm_of_onnx(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    call_reader reader = {.graph = graph, .node = node};
    norm->node = norm->call = node;
    norm->input = next_input(&reader, "input");
    norm->weight = next_tensor(&reader, "weight", false, &norm->reads[0]);
    norm->bias = next_tensor(&reader, "bias", false, &norm->reads[1]);
    norm->running_mean = next_tensor(&reader, "running_mean", false, &norm->reads[2]);
    norm->running_var = next_tensor(&reader, "running_var", false, &norm->reads[3]);
    norm->training = next_number(&reader, "training_mode", 0) != 0;
    norm->eps = next_argument(&reader, "epsilon");
    norm->eps_number = (double)1e-5f;
    if (norm->eps.id && !fb_value_is_number(graph, norm->eps, &norm->eps_number)) norm->eps_number = NAN;
    next_argument(&reader, "momentum");
    bool is_by_channel = next_number(&reader, "spatial", 1) == 1;
    if (!is_by_channel || !is_read_whole(&reader) || fb_onnx_results(graph, node) >= 0) return false;
    int rank = fb_node_rank(graph, norm->input);
    norm->spatial = rank < 0 ? -1 : rank - 2;
    return (rank < 0 || rank >= 2) && measure_batch_norm(graph, -1, norm);
}

bool fb_op_may_be_batch_norm(fb_op op) {
    return op == FB_OP_BATCH_NORM || op == FB_OP_GETITEM || op == FB_OP_ONNX_BATCH_NORM || batch_norm_spatial(op);
}

bool fb_batch_norm_at(const fb_graph *graph, fb_node node, fb_batch_norm *norm) {
    if (!fb_op_may_be_batch_norm(fb_node_op(graph, node))) return false;
    fb_batch_norm found = {0};
    const fb_node_row *row = fb_node_at(graph, node);
    bool is_norm = false;
    if (row->opcode == FB_CALL_MODULE) is_norm = batch_norm_of_module_call(graph, node, &found);
    else if (row->op == FB_OP_ONNX_BATCH_NORM) is_norm = batch_norm_of_onnx(graph, node, &found);
    else if (row->opcode == FB_CALL_FUNCTION && (row->op == FB_OP_BATCH_NORM || row->op == FB_OP_GETITEM))
        is_norm = batch_norm_of_function(graph, node, &found);
    if (is_norm) *norm = found;
    return is_norm;
}

/* ---- LayerNorm and RMSNorm ----------------------------------------------------------------------------------------------- */

/* How many dimensions a normalized_shape names; 0 when that is not certain. */
static int axes_of(const fb_graph *graph, fb_value shape) {
    int64_t number;
    if (!shape.id) return 0;
    if (fb_value_is_int(graph, shape, &number)) return 1;
    fb_kind kind = fb_value_kind(graph, shape);
    return kind == FB_LIST || kind == FB_TUPLE || kind == FB_SIZE ? (int)fb_value_at(graph, shape)->count : 0;
}

/* The size of the last dimension; -1 when it is not certain. */
static int64_t last_size(const fb_graph *graph, fb_value shape) {
    int64_t size = -1;
    if (fb_value_is_int(graph, shape, &size)) return size;
    size_t count = fb_value_at(graph, shape)->count;
    return count && fb_value_is_int(graph, fb_value_item(graph, shape, count - 1), &size) ? size : -1;
}

static bool measure_norm(const fb_graph *graph, fb_value shape, fb_norm *norm) {
    norm->axes = axes_of(graph, shape);
    if (norm->axes == 0 || (norm->features = last_size(graph, shape)) < 0) return false;
    bool fits = !norm->weight.id || tensor_rank(graph, norm->weight) == norm->axes;
    return fits && (!norm->bias.id || tensor_rank(graph, norm->bias) == norm->axes);
}

static bool norm_of_module_call(const fb_graph *graph, fb_node node, fb_norm *norm) {
    norm->node = norm->call = node;
    norm->module = fb_node_at(graph, node)->module;
    norm->weight = fb_module_tensor(graph, norm->module, "weight");
    norm->bias = fb_module_tensor(graph, norm->module, "bias");
    fb_value eps = fb_module_config(graph, norm->module, "eps");
    norm->eps = norm->is_centred ? 1e-5 : NAN;
    if (eps.id) fb_value_is_number(graph, eps, &norm->eps);
    return sole_input(graph, node, &norm->input) &&
           measure_norm(graph, fb_module_config(graph, norm->module, "normalized_shape"), norm);
}

static bool norm_of_function(const fb_graph *graph, fb_node node, fb_norm *norm) {
    norm->node = node;
    norm->call = fb_call_of_value(graph, node);
    call_reader reader = {.graph = graph, .node = norm->call};
    norm->input = next_input(&reader, "input");
    fb_value shape = next_argument(&reader, "normalized_shape"), eps;
    norm->weight = next_tensor(&reader, "weight", true, &norm->weight_read);
    if (norm->is_centred) {
        norm->bias = next_tensor(&reader, "bias", true, &norm->bias_read);
        next_argument(&reader, "cudnn_enable");
    }
    eps = next_argument(&reader, "eps");
    norm->eps = norm->is_centred ? 1e-5 : NAN;
    if (eps.id) fb_value_is_number(graph, eps, &norm->eps);
    return is_read_whole(&reader) && measure_norm(graph, shape, norm);
}

/* ---- spelled out ------------------------------------------------------------------------------------------------------- */

static bool has_two_arguments(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    return fb_value_at(graph, row->args)->count == 2 && fb_value_at(graph, row->kwargs)->count == 0;
}

/* The value before casts, to any dtype. */
static fb_node before_casts(const fb_graph *graph, fb_node node) {
    for (int i = 0; node.id && i < 4; i++) {
        fb_op op = fb_node_op(graph, node);
        if (fb_op_facts_of(op)->shape != FB_SHAPE_SAME || fb_op_facts_of(op)->dtype != FB_DTYPE_RULE_CAST) break;
        node = fb_arg_node(graph, node, 0);
    }
    return node;
}

static bool is_square_of(const fb_graph *graph, fb_node node, fb_node x) {
    double exponent;
    if (!node.id || fb_arg_node(graph, node, 0).id != x.id) return false;
    if (fb_op_is(graph, node, FB_OP_SQUARE)) return true;
    if (fb_op_is(graph, node, FB_OP_MUL)) return has_two_arguments(graph, node) && fb_arg_node(graph, node, 1).id == x.id;
    fb_value power = fb_call_argument(graph, node, "exponent");
    return fb_op_is(graph, node, FB_OP_POW) && power.id && fb_value_is_number(graph, power, &exponent) && exponent == 2;
}

/* mean(…, -1, keepdim=True) */
static bool is_mean_of_last(const fb_graph *graph, fb_node node) {
    if (!node.id || !fb_op_is(graph, node, FB_OP_MEAN)) return false;
    fb_value dim = fb_call_argument(graph, node, "dim"), keep = fb_call_argument(graph, node, "keepdim");
    int64_t axis;
    if (dim.id && axes_of(graph, dim) == 1 && !fb_value_is_int(graph, dim, &axis)) dim = fb_value_item(graph, dim, 0);
    return dim.id && fb_value_is_int(graph, dim, &axis) && axis == -1 && keep.id && fb_value_kind(graph, keep) == FB_TRUE;
}

/* rsqrt(mean(x²) + eps) */
static bool is_inverse_root(const fb_graph *graph, fb_node node, fb_node x, double *eps) {
    if (!node.id || !fb_op_is(graph, node, FB_OP_RSQRT)) return false;
    fb_node sum = fb_arg_node(graph, node, 0);
    if (!sum.id || !fb_op_is(graph, sum, FB_OP_ADD) || !has_two_arguments(graph, sum)) return false;
    fb_node mean = fb_arg_node(graph, sum, 0);
    return fb_value_is_number(graph, fb_node_arg(graph, sum, 1), eps) && is_mean_of_last(graph, mean) &&
           is_square_of(graph, fb_arg_node(graph, mean, 0), x);
}

static bool has_op(const fb_graph *graph, fb_node node, fb_op op) {
    return node.id && fb_op_is(graph, node, op);
}

/* Of ONNX, x / sqrt(…) or x * (1 / sqrt(…)), of whatever. */
static bool is_divided_by_root(const fb_graph *graph, fb_node node) {
    if (has_op(graph, node, FB_OP_DIV)) return has_op(graph, fb_arg_node(graph, node, 1), FB_OP_SQRT);
    for (size_t i = 0; i < 2 && has_op(graph, node, FB_OP_MUL); i++) {
        fb_node by = fb_arg_node(graph, node, i);
        bool is_inverse = has_op(graph, by, FB_OP_RECIPROCAL) || has_op(graph, by, FB_OP_DIV);
        if (is_inverse && has_op(graph, fb_arg_node(graph, by, fb_op_is(graph, by, FB_OP_DIV)), FB_OP_SQRT)) return true;
    }
    return false;
}

/* x * rsqrt(mean(x²) + eps) */
static bool is_normalised(const fb_graph *graph, fb_node node, fb_norm *norm) {
    if (fb_graph_is_onnx(graph)) return is_divided_by_root(graph, node);
    if (!node.id || !fb_op_is(graph, node, FB_OP_MUL) || !has_two_arguments(graph, node)) return false;
    for (size_t i = 0; i < 2; i++) {
        fb_node x = fb_arg_node(graph, node, i);
        if (!x.id || !is_inverse_root(graph, fb_arg_node(graph, node, 1 - i), x, &norm->eps)) continue;
        norm->input = x;
        return true;
    }
    return false;
}

static bool norm_spelled_out(const fb_graph *graph, fb_node node, fb_norm *norm) {
    if (!has_two_arguments(graph, node)) return false;
    for (size_t i = 0; i < 2; i++) {
        norm->unscaled = fb_arg_node(graph, node, 1 - i);
        if (!norm->unscaled.id || !fb_tensor_read_by(graph, fb_node_arg(graph, node, i), &norm->weight_read, &norm->weight))
            continue;
        if (tensor_rank(graph, norm->weight) != 1) return false;
        norm->node = norm->call = node;
        norm->axes = 1;
        norm->features = tensor_size(graph, norm->weight, 0);
        return is_normalised(graph, before_casts(graph, norm->unscaled), norm);
    }
    return false;
}

/* A bias added to what nothing else reads. */
static bool norm_with_bias(const fb_graph *graph, fb_node node, fb_norm *norm) {
    for (size_t i = 0; i < 2; i++) {
        fb_node product = fb_arg_node(graph, node, i);
        if (!has_op(graph, product, FB_OP_MUL) || fb_node_at(graph, product)->user_count != 1) continue;
        fb_norm found = {.is_centred = true};
        bool is_norm = norm_spelled_out(graph, product, &found) &&
                       fb_tensor_read_by(graph, fb_node_arg(graph, node, 1 - i), &found.bias_read, &found.bias);
        if (!is_norm || !is_vector_or_none(graph, found.bias, found.features)) continue;
        found.node = node;
        *norm = found;
        return true;
    }
    return false;
}

static bool has_bias_behind(const fb_graph *graph, fb_node product) {
    fb_norm ignored;
    fb_node sum =
        fb_node_at(graph, product)->user_count == 1 ? fb_edge_user(graph, fb_user_first(graph, product)) : (fb_node){0};
    return fb_graph_is_onnx(graph) && has_op(graph, sum, FB_OP_ADD) && norm_with_bias(graph, sum, &ignored);
}

bool fb_op_may_be_norm(fb_op op) {
    return op == FB_OP_LAYER_NORM || op == FB_OP_RMS_NORM || op == FB_OP_GETITEM || op == FB_OP_MUL || op == FB_OP_ADD;
}

bool fb_norm_at(const fb_graph *graph, fb_node node, fb_norm *norm) {
    if (!fb_op_may_be_norm(fb_node_op(graph, node))) return false;
    fb_norm found = {0};
    fb_node call = fb_call_of_value(graph, node);
    fb_op op = fb_node_op(graph, call);
    bool is_function = fb_node_at(graph, node)->opcode == FB_CALL_FUNCTION, is_norm = false;
    bool is_first_of_tuple = op == FB_OP_NATIVE_LAYER_NORM && call.id != node.id;
    found.is_centred = op == FB_OP_LAYER_NORM || is_first_of_tuple;
    if (op == FB_OP_MUL) is_norm = norm_spelled_out(graph, node, &found) && !has_bias_behind(graph, node);
    else if (op == FB_OP_ADD && fb_graph_is_onnx(graph)) is_norm = norm_with_bias(graph, node, &found);
    else if (op == FB_OP_LAYER_NORM || op == FB_OP_RMS_NORM || is_first_of_tuple)
        is_norm = is_function ? norm_of_function(graph, node, &found) : norm_of_module_call(graph, node, &found);
    if (is_norm) *norm = found;
    return is_norm;
}

/* ---- softmax, and what replaces numbers -----------------------------------------------------------------------------------
 */

bool fb_softmax_axis(const fb_graph *graph, fb_node node, int rank, int *axis) {
    fb_shape_call call = {graph, node, fb_node_op(graph, node), false};
    if (call.op == FB_OP_SOFTMAX || call.op == FB_OP_NATIVE_SOFTMAX)
        return fb_option(&call, "dim").id && fb_option_axis(&call, "dim", 0, rank, axis);
    if (call.op != FB_OP_ONNX_SOFTMAX || !strstr(fb_node_target(graph, node), ".Softmax.")) return false;
    bool is_of_one = fb_graph_opset(graph) >= 13;
    int64_t number = is_of_one ? -1 : 1;
    fb_value given = fb_node_kwarg(graph, node, "axis");
    if ((given.id && !fb_value_is_int(graph, given, &number)) || !fb_normalise_axis(number, rank, axis)) return false;
    return is_of_one || *axis == rank - 1;
}

size_t fb_selections_at(const fb_graph *graph, fb_node node, fb_selection found[2]) {
    fb_op op = fb_node_op(graph, node) & (fb_op)~FB_OP_IN_PLACE;
    bool is_where = op == FB_OP_WHERE || op == FB_OP_ONNX_WHERE;
    size_t count = op == FB_OP_ONNX_WHERE ? 2 : is_where || op == FB_OP_MASKED_FILL;
    for (size_t i = 0; i < count; i++) {
        found[i] = (fb_selection){.mask = fb_call_argument_node(graph, node, is_where ? "condition" : "mask"),
                                  .values = fb_call_argument_node(graph, node, i ? "other" : "input"),
                                  .fill = fb_call_argument(graph, node,
                                                           i          ? "input"
                                                           : is_where ? "other"
                                                                      : "value"),
                                  .fills = i || !is_where};
    }
    return count;
}

/* ---- reductions ---------------------------------------------------------------------------------------------------------- */

bool fb_is_reduction(const fb_graph *graph, fb_node node) {
    fb_op op = fb_node_op(graph, node);
    return op == FB_OP_ONNX_REDUCE || fb_op_facts_of(op)->shape == FB_SHAPE_REDUCE;
}

/* The integers of an argument, one or a list; -1 where they are not all known. */
static int ints_of(const fb_graph *graph, fb_value value, int64_t *out, int most) {
    bool is_list = value.id && fb_value_kind(graph, value) != FB_INT;
    int count = !value.id ? 0 : is_list ? (int)fb_value_at(graph, value)->count : 1;
    if (count > most) return -1;
    for (int i = 0; i < count; i++)
        if (!fb_value_is_int(graph, is_list ? fb_value_item(graph, value, (size_t)i) : value, &out[i])) return -1;
    return count;
}

bool fb_reduction_axes(const fb_graph *graph, fb_node node, int rank, uint32_t *axes, bool *keeps_them) {
    bool is_onnx = fb_op_is(graph, node, FB_OP_ONNX_REDUCE);
    int64_t given[FB_MAX_RANK], number = 1;
    fb_value keep = is_onnx ? fb_node_kwarg(graph, node, "keepdims") : fb_call_argument(graph, node, "keepdim");
    int count = is_onnx ? fb_onnx_ints_of(graph, node, "axes", 1, given, FB_MAX_RANK)
                        : ints_of(graph, fb_call_argument(graph, node, "dim"), given, FB_MAX_RANK);
    uint32_t found = 0;
    for (int i = 0; i < count; i++) {
        int axis;
        if (!fb_normalise_axis(given[i], rank, &axis)) return false;
        found |= (uint32_t)1 << axis;
    }
    if (is_onnx) *keeps_them = !keep.id || (fb_value_is_int(graph, keep, &number) && number != 0);
    else *keeps_them = keep.id && fb_value_kind(graph, keep) == FB_TRUE;
    *axes = found;
    return count > 0;
}

/* ---- divisions ----------------------------------------------------------------------------------------------------------- */

static fb_division_form division_form(const fb_graph *graph, fb_node node) {
    const char *target = fb_node_target(graph, node);
    if (fb_node_at(graph, node)->opcode == FB_CALL_METHOD) return FB_DIVISION_METHOD;
    if (fb_is_spelled(target, FB_PYTHON_OPERATOR)) return FB_DIVISION_OPERATOR;
    if (fb_graph_is_onnx(graph)) return FB_DIVISION_ONNX;
    if (!fb_is_aten(graph, node)) return FB_DIVISION_FUNCTION;
    return strstr(target, ".Scalar") ? FB_DIVISION_ATEN_SCALAR : FB_DIVISION_ATEN; /* .Scalar or .Scalar_mode */
}

bool fb_op_may_be_division(fb_op op) {
    return op == FB_OP_DIV || op == FB_OP_TRUE_DIVIDE;
}

bool fb_division_at(const fb_graph *graph, fb_node node, fb_division *division) {
    if (!fb_op_may_be_division(fb_node_op(graph, node))) return false;
    fb_division found = {.node = node,
                         .form = division_form(graph, node),
                         .numerator = fb_call_argument(graph, node, "input"),
                         .divisor = fb_call_argument(graph, node, "other"),
                         .rounding_mode = fb_call_argument(graph, node, "rounding_mode")};
    if (!found.numerator.id || !found.divisor.id) return false;
    *division = found;
    return true;
}
