#include "core/pass/call_recipe.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/constant.h"
#include "core/analysis/infer.h"
#include "core/analysis/onnx_types.h"
#include "core/analysis/shape.h"
#include "core/base/base64.h"
#include "core/weights/recipe.h"

typedef struct constant_call {
    fb_shape_call call;
    fb_graph *graph;
    fb_call_recipes *recipes;
    fb_shape_result type; /* of the result: all sizes are numbers */
    size_t seen;          /* arguments that the rule has looked at */
} constant_call;

typedef fb_value constant_rule(constant_call *call);

/* ---- what rules ask ---------------------------------------------------------------------------------------------------- */

/* Returns no recipe, and records the reason. */
static fb_value no_constant(constant_call *c, const char *reason, const char *detail) {
    c->recipes->obstacle = (fb_obstacle){reason, detail};
    return (fb_value){0};
}

/* An argument; none when it is not given. A rule asks for all that it understands: a call with more has no recipe. */
static fb_value constant_argument(constant_call *c, const char *parameter) {
    fb_value value = fb_call_argument(c->graph, c->call.node, parameter);
    c->seen += value.id != 0;
    return value;
}

/* The recipe of a node, or number, that is part of an argument. */
static fb_value constant_of(constant_call *c, fb_value value) {
    fb_value recipe = {0};
    fb_kind kind = fb_value_kind(c->graph, value);
    if (kind == FB_INT || kind == FB_FLOAT) return fb_recipe_full(c->graph, NULL, 0, value);
    fb_node node = fb_value_node(c->graph, value);
    if (!node.id) return no_constant(c, "unsupported-arguments", "an operand is neither a tensor nor an int or float");
    fb_recipe_of_call(c->recipes, node, &recipe);
    return recipe;
}

/* Its recipe; of a number, a `full` without dimensions. None, with the reason, when it has none. */
static fb_value constant_operand(constant_call *c, const char *parameter) {
    return constant_of(c, constant_argument(c, parameter));
}

/* `recipe` in the shape of the result. */
static fb_value constant_reshaped(constant_call *c, fb_value recipe) {
    int64_t sizes[FB_MAX_RANK];
    for (int i = 0; i < c->type.rank; i++) sizes[i] = c->type.sizes[i].size;
    return recipe.id ? fb_recipe_reshape(c->graph, recipe, sizes, (size_t)c->type.rank) : recipe;
}

/* The same numbers, computed: so that they may be rounded to another dtype. */
static fb_value constant_computed(fb_graph *g, fb_value recipe) {
    return recipe.id ? fb_recipe_mul(g, recipe, fb_recipe_full(g, NULL, 0, fb_make_float(g, 1))) : recipe;
}

static void constant_see_all(constant_call *c) {
    c->seen = fb_argument_count(c->graph, c->call.node);
}

/* The first argument's recipe, for a rule that handles every argument: each is in the result's shape, or the rule reads it.
 * constant_see_all notes that alone. */
static fb_value constant_first(constant_call *c) {
    constant_see_all(c);
    return constant_of(c, fb_first_argument(c->graph, c->call.node));
}

/* False without a recipe. */
static bool constant_type_of(constant_call *c, fb_value recipe, fb_recipe_type *type) {
    fb_error ignored = {0};
    return recipe.id && !fb_recipe_type_of(c->graph, recipe, type, &ignored);
}

/* ---- arithmetic -------------------------------------------------------------------------------------------------------- */

/* Recipes of arithmetic on weights: computed in float64, rounded once. */

/* A result whose dtype does not hold every number that it is made of has been rounded on purpose: float32 -> float16 -> float32
 * changes values, so nothing that computes with the result may be moved before the cast. */
static bool is_narrowed(const fb_graph *g, fb_value recipe, fb_value argument) {
    fb_recipe_type type;
    fb_error ignored = {0};
    fb_node node = fb_value_node(g, argument);
    if (!node.id || fb_recipe_type_of(g, recipe, &type, &ignored)) return false;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, node)->dtype;
    return dtype && type.dtype && fb_promote(type.dtype, dtype) != dtype;
}

static fb_value operand_of(constant_call *c, fb_value argument) {
    fb_value recipe = constant_of(c, argument);
    if (recipe.id && is_narrowed(c->graph, recipe, argument))
        return no_constant(c, "narrowing-cast", "it computes with numbers that a cast has rounded");
    return recipe;
}

static fb_value operand(constant_call *c, const char *parameter) {
    return operand_of(c, constant_argument(c, parameter));
}

/* The second operand of a product, under any parameter's name. */
static fb_value second_operand(constant_call *c) {
    static const char *const names[] = {"other", "mat2", "vec", "tensor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fb_value argument = constant_argument(c, names[i]);
        if (argument.id) return operand_of(c, argument);
    }
    return no_constant(c, "unsupported-arguments", "it has no second operand");
}

/* `recipe` times a factor that may be given: alpha, beta. */
static fb_value scaled(constant_call *c, fb_value recipe, const char *parameter) {
    fb_value factor = constant_argument(c, parameter);
    if (!factor.id || !recipe.id) return recipe;
    factor = constant_of(c, factor);
    return factor.id ? fb_recipe_mul(c->graph, recipe, factor) : factor;
}

static fb_value constant_add(constant_call *c) {
    fb_value a = operand(c, "input"), b = scaled(c, operand(c, "other"), "alpha");
    return a.id && b.id ? fb_recipe_add(c->graph, a, b) : (fb_value){0};
}

static fb_value constant_subtract(constant_call *c) {
    fb_value a = operand(c, "input"), b = scaled(c, operand(c, "other"), "alpha");
    return a.id && b.id ? fb_recipe_sub(c->graph, a, b) : (fb_value){0};
}

static fb_value constant_subtract_from(constant_call *c) {
    fb_value a = scaled(c, operand(c, "input"), "alpha"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_sub(c->graph, b, a) : (fb_value){0};
}

static fb_value constant_multiply(constant_call *c) {
    fb_value a = operand(c, "input"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_mul(c->graph, a, b) : (fb_value){0};
}

static fb_value constant_divide(constant_call *c) {
    fb_value mode = constant_argument(c, "rounding_mode");
    if (!fb_is_absent(c->graph, mode)) return no_constant(c, "unsupported-arguments", "recipes have no division that rounds");
    fb_value a = operand(c, "input"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_div(c->graph, a, b) : (fb_value){0};
}

static fb_value constant_negate(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_neg(c->graph, a) : a;
}

static fb_value constant_square_root(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_sqrt(c->graph, a) : a;
}

static fb_value constant_inverse_root(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_rsqrt(c->graph, a) : a;
}

static fb_value inverse(fb_graph *g, fb_value a) {
    return a.id ? fb_recipe_div(g, fb_recipe_full(g, NULL, 0, fb_make_float(g, 1)), a) : a;
}

static fb_value constant_exponential(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_exp(c->graph, a) : a;
}

/* 1 / (1 + exp(-x)) */
static fb_value constant_sigmoid(constant_call *c) {
    fb_graph *g = c->graph;
    fb_value a = operand(c, "input"), one = fb_recipe_full(g, NULL, 0, fb_make_float(g, 1));
    return a.id ? inverse(g, fb_recipe_add(g, one, fb_recipe_exp(g, fb_recipe_neg(g, a)))) : a;
}

static fb_value constant_relu(constant_call *c) {
    fb_value a = operand(c, "input");
    constant_argument(c, "inplace");
    return a.id ? fb_recipe_maximum(c->graph, a, fb_recipe_full(c->graph, NULL, 0, fb_make_float(c->graph, 0))) : a;
}

static fb_value constant_reciprocal(constant_call *c) {
    return inverse(c->graph, operand(c, "input"));
}

static fb_value constant_square(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_mul(c->graph, a, a) : a;
}

/* A power with an exponent that recipes can spell. */
static fb_value constant_power(constant_call *c) {
    double exponent = 0;
    fb_value given = constant_argument(c, "exponent"), a = operand(c, "input");
    if (!a.id) return a;
    if (given.id && fb_value_is_number(c->graph, given, &exponent)) {
        if (exponent == 2) return fb_recipe_mul(c->graph, a, a);
        if (exponent == -1) return inverse(c->graph, a);
        if (exponent == 0.5) return fb_recipe_sqrt(c->graph, a);
        if (exponent == -0.5) return fb_recipe_rsqrt(c->graph, a);
    }
    return no_constant(c, "unsupported-arguments", "recipes know the exponents 2, -1, 0.5 and -0.5");
}

static fb_value constant_product(constant_call *c) {
    fb_value a = operand(c, "input"), b = second_operand(c);
    return a.id && b.id ? fb_recipe_matmul(c->graph, a, b) : (fb_value){0};
}

static bool is_zero(const constant_call *c, const char *parameter) {
    double number;
    fb_value value = fb_call_argument(c->graph, c->call.node, parameter);
    return value.id && fb_value_is_number(c->graph, value, &number) && number == 0;
}

static fb_value constant_add_product(constant_call *c) {
    bool is_batched = c->call.op == FB_OP_BADDBMM;
    if (is_zero(c, "beta") || is_zero(c, "alpha")) /* PyTorch leaves out nan and infinity then; a product keeps them */
        return no_constant(c, "unsupported-arguments", "alpha or beta is zero, which hides what is not finite");
    fb_value sum = scaled(c, operand(c, "input"), "beta");
    fb_value a = operand(c, is_batched ? "batch1" : "mat1"), b = operand(c, is_batched ? "batch2" : "mat2");
    fb_value product = a.id && b.id ? scaled(c, fb_recipe_matmul(c->graph, a, b), "alpha") : (fb_value){0};
    return sum.id && product.id ? fb_recipe_add(c->graph, sum, product) : (fb_value){0};
}

/* The operand that may be missing, or be None. */
static bool further_operand(constant_call *c, const char *parameter, fb_value *recipe) {
    fb_value argument = constant_argument(c, parameter);
    *recipe = (fb_value){0};
    if (fb_is_absent(c->graph, argument)) return true;
    *recipe = operand_of(c, argument);
    return recipe->id;
}

/* First the lower bound, then the upper one, which holds where they cross. */
static fb_value constant_clamp(constant_call *c) {
    fb_value a = operand(c, "input"), low, high;
    if (!a.id || !further_operand(c, "min", &low) || !further_operand(c, "max", &high)) return (fb_value){0};
    if (low.id) a = fb_recipe_maximum(c->graph, a, low);
    return high.id ? fb_recipe_minimum(c->graph, a, high) : a;
}

/* A tensor of any number of dimensions but none, as a matrix with its last one. */
static fb_value as_matrix(constant_call *c, fb_value recipe, int64_t *columns) {
    fb_recipe_type type;
    if (!constant_type_of(c, recipe, &type) || type.rank < 1) return (fb_value){0};
    *columns = type.sizes[type.rank - 1];
    if (type.rank == 2) return recipe;
    int64_t rows = 1;
    for (int i = 0; i < type.rank - 1; i++) rows *= type.sizes[i];
    return fb_recipe_reshape(c->graph, recipe, (const int64_t[]){rows, *columns}, 2);
}

static fb_value constant_linear(constant_call *c) {
    int64_t inputs, columns;
    fb_value a = as_matrix(c, operand(c, "input"), &inputs), w = as_matrix(c, operand(c, "weight"), &columns), bias;
    if (!a.id || !w.id || !further_operand(c, "bias", &bias)) return (fb_value){0};
    fb_value product = fb_recipe_matmul(c->graph, a, fb_recipe_permute(c->graph, w, (const int64_t[]){1, 0}, 2));
    return constant_reshaped(c, bias.id ? fb_recipe_add(c->graph, product, bias) : product);
}

/* The mean of each row: its product with 1/n. */
static fb_value mean_of_rows(fb_graph *g, fb_value matrix, int64_t columns) {
    fb_value share = fb_make_float(g, 1 / (double)columns);
    return fb_recipe_matmul(g, matrix, fb_recipe_full(g, (const int64_t[]){columns, 1}, 2, share));
}

/* Over the last dimension. */
static fb_value constant_layer_norm(constant_call *c) {
    fb_graph *g = c->graph;
    fb_value shape = constant_argument(c, "normalized_shape"), given = constant_argument(c, "eps"), weight, bias;
    int64_t columns;
    double eps = 1e-5;
    fb_value x = as_matrix(c, operand(c, "input"), &columns);
    constant_argument(c, "cudnn_enable");
    if (!x.id || !further_operand(c, "weight", &weight) || !further_operand(c, "bias", &bias)) return (fb_value){0};
    fb_kind kind = shape.id ? fb_value_kind(g, shape) : FB_NONE;
    bool is_list = kind == FB_LIST || kind == FB_TUPLE || kind == FB_SIZE;
    bool is_of_last = kind == FB_INT || (is_list && fb_value_at(g, shape)->count == 1);
    if (!is_of_last || columns < 1 || (given.id && !fb_value_is_number(g, given, &eps)))
        return no_constant(c, "unsupported-arguments", "it normalises more than the last dimension");
    fb_value centred = fb_recipe_sub(g, x, mean_of_rows(g, x, columns));
    fb_value variance = mean_of_rows(g, fb_recipe_mul(g, centred, centred), columns);
    fb_value bounded = fb_recipe_add(g, variance, fb_recipe_full(g, NULL, 0, fb_make_float(g, eps)));
    fb_value y = fb_recipe_mul(g, centred, fb_recipe_rsqrt(g, bounded));
    if (weight.id) y = fb_recipe_mul(g, y, weight);
    if (bias.id) y = fb_recipe_add(g, y, bias);
    return constant_reshaped(c, y);
}

/* ---- norms ------------------------------------------------------------------------------------------------------------- */

static const char *const no_norm = "recipes know the norm 2 over dimensions that are numbers";

/* The root of the sum of squares over the dimensions that are `reduced`, which become 1. */
static fb_value norm_over(constant_call *c, fb_value recipe, const bool *reduced) {
    fb_graph *g = c->graph;
    fb_recipe_type type;
    int64_t order[FB_RECIPE_MAX_RANK], kept[FB_RECIPE_MAX_RANK], rows = 1, columns = 1;
    size_t count = 0;
    if (!constant_type_of(c, recipe, &type)) return (fb_value){0};
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < type.rank; i++) {
            if (reduced[i] == (step == 1)) order[count++] = i;
        }
    }
    for (int i = 0; i < type.rank; i++) {
        kept[i] = reduced[i] ? 1 : type.sizes[i];
        *(reduced[i] ? &columns : &rows) *= type.sizes[i];
    }
    fb_value moved = fb_recipe_permute(g, recipe, order, count);
    fb_value matrix = fb_recipe_reshape(g, moved, (const int64_t[]){rows, columns}, 2);
    fb_value ones = fb_recipe_full(g, (const int64_t[]){columns, 1}, 2, fb_make_float(g, 1));
    fb_value sums = fb_recipe_matmul(g, fb_recipe_mul(g, matrix, matrix), ones);
    return fb_recipe_sqrt(g, fb_recipe_reshape(g, sums, kept, (size_t)type.rank));
}

/* Reads `dim`: a number, or a list of some; without one, all. torch.linalg.norm over two dimensions is the norm of a matrix. */
static bool read_reduced(constant_call *c, int rank, bool *reduced) {
    fb_value given = constant_argument(c, "dim");
    fb_sizes dims = {0};
    int axis;
    bool is_given = !fb_is_absent(c->graph, given);
    if (is_given && !fb_evaluate_sizes(c->graph, given, &dims)) return false;
    for (int i = 0; i < rank; i++) reduced[i] = !dims.count;
    for (int i = 0; i < dims.count; i++) {
        if (dims.items[i].symbol.id || !fb_normalise_axis(dims.items[i].size, rank, &axis)) return false;
        reduced[axis] = true;
    }
    return dims.count == 1 || fb_is_aten(c->graph, c->call.node);
}

/* Also of a matrix as a whole, in ATen's spelling. */
static fb_value constant_norm(constant_call *c) {
    double power = 2;
    bool reduced[FB_RECIPE_MAX_RANK];
    fb_recipe_type type;
    fb_value a = operand(c, "input"), given = constant_argument(c, c->call.op == FB_OP_NORM ? "p" : "ord");
    constant_argument(c, "keepdim");
    if (!c->recipes->has_norms) return no_constant(c, "unsupported-operator", "no recipe computes this");
    if (!constant_type_of(c, a, &type)) return (fb_value){0};
    if (given.id && (!fb_value_is_number(c->graph, given, &power) || power != 2))
        return no_constant(c, "unsupported-arguments", no_norm);
    if (type.rank < 1 || !read_reduced(c, type.rank, reduced)) return no_constant(c, "unsupported-arguments", no_norm);
    return constant_reshaped(c, norm_over(c, a, reduced));
}

/* v * (g / norm of v over all dimensions but `dim`, or all with -1): torch.nn.utils.weight_norm, as torch.export spells it.
 * g has the norm's shape, or with -1 none. */
static fb_value constant_weight_norm(constant_call *c) {
    fb_graph *graph = c->graph;
    fb_value v = operand(c, "v"), g = operand(c, "g"), given = constant_argument(c, "dim");
    fb_recipe_type of_v, of_g, of_norm;
    bool reduced[FB_RECIPE_MAX_RANK];
    int64_t dim = 0;
    if (!c->recipes->has_norms) return no_constant(c, "unsupported-operator", "no recipe computes this");
    if (!constant_type_of(c, v, &of_v) || !constant_type_of(c, g, &of_g)) return (fb_value){0};
    if ((given.id && !fb_value_is_int(graph, given, &dim)) || dim < -1 || dim >= of_v.rank) return (fb_value){0};
    for (int i = 0; i < of_v.rank; i++) reduced[i] = i != dim;
    fb_value norm = norm_over(c, v, reduced);
    bool fits = constant_type_of(c, norm, &of_norm) && (of_norm.rank == of_g.rank || (dim == -1 && !of_g.rank));
    for (int i = 0; fits && i < of_g.rank; i++) fits = of_g.sizes[i] == of_norm.sizes[i];
    if (!fits) return no_constant(c, "unsupported-arguments", "its factors are not in the shape of the norms");
    return fb_recipe_mul(graph, v, fb_recipe_div(graph, g, norm));
}

/* One of the little-endian integers of `width` bytes, 4 or 8. */
static int64_t integer_at(const char *base64, size_t width, int64_t index) {
    unsigned char bytes[8];
    uint64_t number = 0;
    fb_base64_decode(base64, (size_t)index * width, width, bytes);
    for (size_t k = width; k-- > 0;) number = number << 8 | bytes[k];
    return width == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
}

/* Integers of a constant; not of a weight, which another file may hold otherwise. */
typedef struct integers {
    int64_t first, smallest, largest, count;
    bool is_run, is_same; /* one after another; the first again and again */
} integers;

static bool reads_integers(const fb_graph *g, fb_node read, integers *out) {
    fb_tensor tensor;
    if (!fb_reads_bytes(g, read, &tensor)) return false;
    const fb_tensor_row *row = fb_tensor_at(g, tensor);
    const char *text = fb_text(g, row->data);
    size_t width = fb_dtype_size((fb_dtype)row->dtype), size = fb_base64_size(text, fb_text_length(g, row->data));
    *out = (integers){.smallest = INT64_MAX, .largest = INT64_MIN, .count = (int64_t)(size / width)};
    out->is_run = out->is_same = out->count > 0;
    for (int64_t i = 0; i < out->count; i++) {
        int64_t number = integer_at(text, width, i);
        if (!i) out->first = number;
        if (number < out->smallest) out->smallest = number;
        if (number > out->largest) out->largest = number;
        out->is_run &= (uint64_t)number - (uint64_t)out->first == (uint64_t)i;
        out->is_same &= number == out->first;
    }
    return true;
}

/* The tensor of integers that the recipe reads row by row; or none. */
static fb_tensor read_flat(const fb_graph *g, fb_value recipe) {
    while (recipe.id && fb_recipe_op_of(g, recipe) == FB_RECIPE_RESHAPE) recipe = fb_recipe_arg(g, recipe, 0);
    bool is_tensor = recipe.id && fb_value_kind(g, recipe) == FB_TENSOR;
    fb_tensor tensor = is_tensor ? fb_value_tensor(g, recipe) : (fb_tensor){0};
    fb_dtype dtype = is_tensor ? (fb_dtype)fb_tensor_at(g, tensor)->dtype : FB_DTYPE_UNKNOWN;
    return dtype == FB_INT64 || dtype == FB_INT32 ? tensor : (fb_tensor){0};
}

/* Selects along an axis by an index tensor: a constant one may be consecutive numbers, as the positions of a text are, or one
 * number repeated. */
static fb_value selected(constant_call *c, fb_value from, int axis, fb_value argument, bool may_be_negative) {
    fb_graph *g = c->graph;
    fb_tensor index = read_flat(g, constant_of(c, argument));
    fb_recipe_type type;
    integers places = {0};
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (!constant_type_of(c, from, &type) || axis >= type.rank) return (fb_value){0};
    if (!index.id) return no_constant(c, "unsupported-arguments", "its index is no tensor of int64 or int32 as it is");
    bool is_known = reads_integers(g, fb_value_node(g, argument), &places);
    int64_t first = may_be_negative ? -type.sizes[axis] : 0;
    if (is_known && places.count && (places.smallest < first || places.largest >= type.sizes[axis]))
        return no_constant(c, "unsupported-arguments", "its index is beyond the axis");
    if (places.smallest < 0) places.is_run = places.is_same = false;
    if (places.is_run) return fb_recipe_slice(g, from, axis, places.first, places.largest + 1);
    if (!places.is_same) return fb_recipe_index_select(g, from, axis, index);
    for (int i = 0; i < type.rank; i++) sizes[i] = i == axis ? places.count : 1;
    fb_value one = fb_recipe_slice(g, from, axis, places.first, places.first + 1);
    fb_value ones = fb_recipe_full(g, sizes, (size_t)type.rank, fb_make_float(g, 1));
    return fb_recipe_mul(g, one, ones);
}

/* Rows of a weight that another one, or a constant, chooses. */
static fb_value constant_embedding(constant_call *c) {
    static const char *const harmless[] = {"padding_idx", "norm_type", "scale_grad_by_freq", "sparse"};
    fb_value weight = constant_operand(c, "weight"), limit = constant_argument(c, "max_norm");
    fb_value indices = constant_argument(c, fb_is_aten(c->graph, c->call.node) ? "indices" : "input");
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) constant_argument(c, harmless[i]);
    if (!fb_is_absent(c->graph, limit)) return no_constant(c, "unsupported-arguments", "its rows are made shorter");
    return constant_reshaped(c, selected(c, weight, 0, indices, false));
}

static fb_value constant_index_select(constant_call *c) {
    fb_value from = constant_first(c);
    fb_recipe_type type;
    int axis;
    if (!constant_type_of(c, from, &type) || !fb_option_axis(&c->call, "dim", 0, type.rank, &axis)) return (fb_value){0};
    return constant_reshaped(c, selected(c, from, axis, fb_call_argument(c->graph, c->call.node, "index"), false));
}

/* aten.index: by one tensor, and None for the axes before and behind it. */
static fb_value constant_index_by_tensor(constant_call *c) {
    fb_value from = constant_first(c), list = fb_call_argument(c->graph, c->call.node, "indices"), given = {0};
    fb_kind kind = list.id ? fb_value_kind(c->graph, list) : FB_NONE;
    int axis = 0, tensors = 0;
    if (!from.id || (kind != FB_LIST && kind != FB_TUPLE)) return (fb_value){0};
    const fb_value_row *row = fb_value_at(c->graph, list);
    for (uint32_t i = 0; i < row->count; i++) {
        if (fb_value_kind(c->graph, row->items[i]) == FB_NONE) continue;
        given = row->items[i];
        axis = (int)i;
        tensors++;
    }
    if (tensors != 1) return no_constant(c, "unsupported-arguments", "it is indexed by more than one tensor");
    return constant_reshaped(c, selected(c, from, axis, given, true));
}

/* To another dtype, and nothing else: devices and memory formats are not the graph's. */
static fb_value constant_cast(constant_call *c) {
    const fb_graph *g = c->graph;
    fb_value first = fb_first_argument(g, c->call.node);
    const fb_value maps[] = {fb_node_at(g, c->call.node)->args, fb_node_at(g, c->call.node)->kwargs};
    for (uint32_t m = 0; m < 2; m++) {
        const fb_value_row *row = fb_value_at(g, maps[m]);
        for (uint32_t i = m; i < row->count; i += 1 + m) {
            fb_kind kind = fb_value_kind(g, row->items[i]);
            c->seen += row->items[i].id == first.id || kind == FB_DTYPE || kind == FB_FALSE || kind == FB_NONE;
        }
    }
    fb_recipe_type type;
    fb_error ignored = {0};
    fb_value recipe = operand_of(c, first);
    if (!recipe.id || fb_recipe_type_of(g, recipe, &type, &ignored)) return (fb_value){0};
    return type.dtype == c->type.dtype ? recipe : constant_computed(c->graph, recipe);
}

/* Recipes of slices and joins of weights: they copy bytes, so any dtype will do. */

/* ---- parts --------------------------------------------------------------------------------------------------------------- */

/* An end of a slice as Python takes it: counted from the back when negative, cut at both. */
static bool read_end(const fb_graph *g, fb_value value, int64_t fallback, int64_t size, int64_t *out) {
    bool is_absent = fb_is_absent(g, value);
    int64_t at = fallback;
    if (!is_absent && !fb_evaluate_int(g, value, &at)) return false;
    if (at < 0) at += size;
    *out = at < 0 ? 0 : at > size ? size : at;
    return true;
}

static fb_value sliced(constant_call *c, fb_value recipe, int axis, fb_value start, fb_value stop, fb_value step) {
    fb_recipe_type type;
    int64_t from, to, by = 1;
    if (!constant_type_of(c, recipe, &type)) return (fb_value){0};
    if (!fb_is_absent(c->graph, step) && (!fb_evaluate_int(c->graph, step, &by) || by != 1))
        return no_constant(c, "unsupported-arguments", "recipes slice in steps of 1");
    int64_t size = type.sizes[axis];
    if (!read_end(c->graph, start, 0, size, &from) || !read_end(c->graph, stop, size, size, &to)) return (fb_value){0};
    return fb_recipe_slice(c->graph, recipe, axis, from, to < from ? from : to);
}

/* One position along an axis, which stays. */
static fb_value picked(constant_call *c, fb_value recipe, int axis, fb_value index) {
    fb_recipe_type type;
    int64_t at;
    if (!constant_type_of(c, recipe, &type) || !fb_evaluate_int(c->graph, index, &at)) return (fb_value){0};
    if (at < 0) at += type.sizes[axis];
    if (at < 0 || at >= type.sizes[axis]) return no_constant(c, "unsupported-arguments", "the index is out of range");
    return fb_recipe_slice(c->graph, recipe, axis, at, at + 1);
}

static fb_value constant_slice(constant_call *c) {
    fb_value recipe = constant_first(c);
    int axis;
    if (!recipe.id || !fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis)) return (fb_value){0};
    return sliced(c, recipe, axis, fb_option(&c->call, "start"), fb_option(&c->call, "end"), fb_option(&c->call, "step"));
}

static fb_value constant_narrow(constant_call *c) {
    fb_value recipe = constant_first(c);
    fb_recipe_type type;
    int axis;
    int64_t start, length;
    if (!constant_type_of(c, recipe, &type) || !fb_option_axis(&c->call, "dim", 0, type.rank, &axis)) return (fb_value){0};
    if (!fb_option_int(&c->call, "start", 0, &start) || !fb_option_int(&c->call, "length", 0, &length)) return (fb_value){0};
    if (start < 0) start += type.sizes[axis];
    return fb_recipe_slice(c->graph, recipe, axis, start, start + length);
}

static fb_value constant_select(constant_call *c) {
    fb_value recipe = constant_first(c);
    fb_recipe_type type;
    int axis;
    if (!constant_type_of(c, recipe, &type) || !fb_option_axis(&c->call, "dim", 0, type.rank, &axis)) return (fb_value){0};
    return constant_reshaped(c, picked(c, recipe, axis, fb_option(&c->call, "index")));
}

static bool is_tensor_index(const fb_graph *g, fb_value item) {
    int64_t ignored;
    return fb_value_kind(g, item) == FB_NODE && !fb_evaluate_int(g, item, &ignored);
}

/* x[1, 2:4, None, ...]: axis by axis, then in the shape of the result. A tensor is alone, or with whole axes. */
static fb_value constant_index(constant_call *c) {
    fb_value recipe = constant_first(c), index = fb_node_arg(c->graph, c->call.node, 1);
    fb_recipe_type type;
    if (!index.id || !constant_type_of(c, recipe, &type)) return (fb_value){0};
    bool is_tuple = fb_value_kind(c->graph, index) == FB_TUPLE;
    uint32_t count = is_tuple ? fb_value_at(c->graph, index)->count : 1, tensors = 0;
    int axis = 0, taken = 0, numbers = 0;
    for (uint32_t i = 0; i < count; i++) {
        fb_value item = is_tuple ? fb_value_item(c->graph, index, i) : index;
        fb_kind kind = fb_value_kind(c->graph, item);
        taken += kind != FB_NONE && kind != FB_ELLIPSIS;
        numbers += kind != FB_NONE && kind != FB_ELLIPSIS && kind != FB_SLICE;
        tensors += is_tensor_index(c->graph, item);
    }
    if (tensors && numbers > 1)
        return no_constant(c, "unsupported-arguments", "it is indexed by more than one tensor or number");
    for (uint32_t i = 0; recipe.id && i < count; i++) {
        fb_value item = is_tuple ? fb_value_item(c->graph, index, i) : index;
        const fb_value_row *row = fb_value_at(c->graph, item);
        if (row->kind == FB_NONE) continue;
        if (row->kind == FB_ELLIPSIS) axis += type.rank - taken;
        else if (row->kind == FB_SLICE) recipe = sliced(c, recipe, axis++, row->items[0], row->items[1], row->items[2]);
        else if (is_tensor_index(c->graph, item)) recipe = selected(c, recipe, axis++, item, true);
        else recipe = picked(c, recipe, axis++, item);
    }
    return constant_reshaped(c, recipe);
}

/* ---- joins --------------------------------------------------------------------------------------------------------------- */

/* The parts in the dtype of the result; a malloc'ed list, NULL when one has no recipe. */
static fb_value *parts_of(constant_call *c, uint32_t *count) {
    fb_value tensors = constant_argument(c, "tensors");
    fb_kind kind = tensors.id ? fb_value_kind(c->graph, tensors) : FB_NONE;
    if (kind != FB_LIST && kind != FB_TUPLE) return NULL;
    *count = fb_value_at(c->graph, tensors)->count;
    fb_value *parts = malloc((*count + 1) * sizeof *parts);
    if (!parts) fb_graph_fail_memory(c->graph);
    for (uint32_t i = 0; parts && i < *count; i++) {
        fb_recipe_type type;
        parts[i] = constant_of(c, fb_value_item(c->graph, tensors, i));
        if (constant_type_of(c, parts[i], &type)) {
            if (type.dtype != c->type.dtype) parts[i] = constant_computed(c->graph, parts[i]);
            continue;
        }
        free(parts);
        return NULL;
    }
    return parts;
}

static fb_value constant_concatenate(constant_call *c) {
    uint32_t count;
    int axis;
    constant_see_all(c);
    fb_value *parts = parts_of(c, &count), recipe = {0};
    if (parts && fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis))
        recipe = fb_recipe_concat(c->graph, axis, parts, count);
    free(parts);
    return recipe;
}

/* Each part gets the new dimension, of size 1. */
static fb_value constant_stack(constant_call *c) {
    uint32_t count;
    int axis;
    constant_see_all(c);
    fb_value *parts = parts_of(c, &count), recipe = {0};
    if (parts && fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis)) {
        int64_t sizes[FB_MAX_RANK];
        for (int i = 0; i < c->type.rank; i++) sizes[i] = i == axis ? 1 : c->type.sizes[i].size;
        for (uint32_t i = 0; i < count; i++) parts[i] = fb_recipe_reshape(c->graph, parts[i], sizes, (size_t)c->type.rank);
        recipe = fb_recipe_concat(c->graph, axis, parts, count);
    }
    free(parts);
    return recipe;
}

/* Recipes of views of weights: they copy bytes, so any dtype will do. */

static fb_value constant_same(constant_call *c) {
    return constant_first(c);
}

static fb_value constant_reshape(constant_call *c) {
    return constant_reshaped(c, constant_first(c));
}

static bool second_is_constant(constant_call *c) {
    return constant_operand(c, "other").id;
}

static fb_value constant_reshape_as(constant_call *c) {
    return second_is_constant(c) ? constant_reshape(c) : (fb_value){0};
}

static int64_t elements_of(const fb_recipe_type *type) {
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->sizes[i];
    return count;
}

/* A product with ones: broadcasting is the only way to repeat that recipes have. */
static fb_value constant_expand(constant_call *c) {
    fb_value recipe = constant_first(c);
    fb_recipe_type type;
    int64_t sizes[FB_MAX_RANK], count = 1;
    if (!constant_type_of(c, recipe, &type)) return (fb_value){0};
    for (int i = 0; i < c->type.rank; i++) {
        sizes[i] = c->type.sizes[i].size;
        if (__builtin_mul_overflow(count, sizes[i], &count))
            return no_constant(c, "too-large", "it has more elements than can be counted");
    }
    if (count == elements_of(&type)) return constant_reshaped(c, recipe);
    return fb_recipe_mul(c->graph, recipe, fb_recipe_full(c->graph, sizes, (size_t)c->type.rank, fb_make_float(c->graph, 1)));
}

/* Each dimension several times: expanded by a new one before it. */
static fb_value constant_repeat(constant_call *c) {
    fb_value recipe = constant_first(c);
    fb_recipe_type type;
    int64_t ones[2 * FB_MAX_RANK], sizes[2 * FB_MAX_RANK];
    if (!constant_type_of(c, recipe, &type)) return (fb_value){0};
    int rank = 0, added = c->type.rank - type.rank;
    for (int i = 0; i < c->type.rank; i++) {
        int64_t own = i < added ? 1 : type.sizes[i - added], size = c->type.sizes[i].size;
        bool is_repeated = own && size != own;
        if (is_repeated) {
            ones[rank] = 1;
            sizes[rank++] = size / own;
        }
        ones[rank] = sizes[rank] = own;
        rank++;
    }
    if (rank > FB_MAX_RANK) return no_constant(c, "too-large", "it has too many dimensions");
    recipe = fb_recipe_reshape(c->graph, recipe, ones, (size_t)rank);
    if (rank > c->type.rank)
        recipe = fb_recipe_mul(c->graph, recipe, fb_recipe_full(c->graph, sizes, (size_t)rank, fb_make_float(c->graph, 1)));
    return constant_reshaped(c, recipe);
}

static fb_value constant_expand_as(constant_call *c) {
    return second_is_constant(c) ? constant_expand(c) : (fb_value){0};
}

/* ---- order of dimensions ------------------------------------------------------------------------------------------------- */

static fb_value swapped(constant_call *c, fb_value recipe, int a, int b) {
    int64_t dims[FB_MAX_RANK];
    for (int i = 0; i < c->type.rank; i++) dims[i] = i == a ? b : i == b ? a : i;
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)c->type.rank);
}

static fb_value constant_permute(constant_call *c) {
    fb_value recipe = constant_first(c);
    fb_sizes given;
    int64_t dims[FB_MAX_RANK];
    if (!recipe.id || !fb_sizes_named(&c->call, "dims", &given)) return (fb_value){0};
    for (int i = 0; i < given.count; i++) {
        int axis;
        if (!fb_normalise_axis(given.items[i].size, c->type.rank, &axis)) return (fb_value){0};
        dims[i] = axis;
    }
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)given.count);
}

static fb_value constant_transpose(constant_call *c) {
    int a, b;
    fb_value recipe = constant_first(c);
    bool is_known =
        fb_option_axis(&c->call, "dim0", 0, c->type.rank, &a) && fb_option_axis(&c->call, "dim1", 0, c->type.rank, &b);
    return recipe.id && is_known ? swapped(c, recipe, a, b) : (fb_value){0};
}

/* t, numpy_T and mT; of more than two dimensions the three differ. */
static fb_value constant_matrix_transpose(constant_call *c) {
    fb_value recipe = constant_first(c);
    if (recipe.id && c->type.rank > 2) return no_constant(c, "unsupported-arguments", "it has more than two dimensions");
    return recipe.id && c->type.rank == 2 ? swapped(c, recipe, 0, 1) : recipe;
}

static fb_value constant_move_dimension(constant_call *c) {
    fb_value recipe = constant_first(c);
    int rank = c->type.rank, from, to;
    int64_t dims[FB_MAX_RANK];
    bool is_known = fb_call_argument(c->graph, c->call.node, "destination").id &&
                    fb_option_axis(&c->call, "source", 0, rank, &from) && fb_option_axis(&c->call, "destination", 0, rank, &to);
    if (!recipe.id || !is_known) return (fb_value){0};
    for (int i = 0, rest = 0; i < rank; i++) {
        if (rest == from) rest++;
        dims[i] = i == to ? from : rest++;
    }
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)rank);
}

/* x.T and x.mT; other attributes are not tensors, or not of a known shape. */
static fb_value constant_attribute(constant_call *c) {
    fb_value name = fb_node_arg(c->graph, c->call.node, 1), recipe = constant_first(c);
    const char *text = name.id ? fb_value_text(c->graph, name) : NULL;
    int rank = c->type.rank;
    int64_t dims[FB_MAX_RANK];
    if (!text || !recipe.id) return (fb_value){0};
    if (strcmp(text, "mT") == 0 && rank >= 2) return swapped(c, recipe, rank - 2, rank - 1);
    if (strcmp(text, "T") != 0) return no_constant(c, "unsupported-arguments", "it is neither T nor mT");
    for (int i = 0; i < rank; i++) dims[i] = rank - 1 - i;
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)rank);
}

static constant_rule *const rules[FB_OP_COUNT] = {
#define FB_CONSTANT_RULE(op, function) [FB_OP_##op] = constant_##function,
#include "core/pass/call_recipes.def"
#undef FB_CONSTANT_RULE
};

/* ---- ONNX ---------------------------------------------------------------------------------------------------------------- */

/* The node that an argument is, where it was made. */
static fb_node read_of(const constant_call *c, fb_value argument) {
    return fb_captured_origin(c->recipes->outer, fb_value_node(c->graph, argument));
}

static fb_value onnx_operand(constant_call *c, size_t index) {
    fb_value argument = fb_node_arg(c->graph, c->call.node, index);
    return constant_of(c, argument.id ? argument : FB_VALUE_NONE);
}

static fb_value onnx_same(constant_call *c) {
    return onnx_operand(c, 0);
}

static fb_value onnx_reshape(constant_call *c) {
    return constant_reshaped(c, onnx_operand(c, 0));
}

static fb_value onnx_transpose(constant_call *c) {
    fb_value recipe = onnx_operand(c, 0), perm = fb_node_kwarg(c->graph, c->call.node, "perm");
    int64_t dims[FB_MAX_RANK];
    for (int i = 0; i < c->type.rank; i++) {
        dims[i] = c->type.rank - 1 - i;
        if (perm.id && !fb_value_is_int(c->graph, fb_value_item(c->graph, perm, (size_t)i), &dims[i])) return (fb_value){0};
    }
    return recipe.id ? fb_recipe_permute(c->graph, recipe, dims, (size_t)c->type.rank) : recipe;
}

static bool onnx_axis(constant_call *c, int64_t fallback, int rank, int *out) {
    fb_value given = fb_node_kwarg(c->graph, c->call.node, "axis");
    int64_t axis = fallback;
    if (given.id && !fb_value_is_int(c->graph, given, &axis)) return false;
    return fb_normalise_axis(axis, rank, out);
}

static fb_value onnx_concat(constant_call *c) {
    const fb_value_row *args = fb_value_at(c->graph, fb_node_at(c->graph, c->call.node)->args);
    fb_value parts[64], recipe = {0};
    int axis;
    if (!args->count || args->count > 64 || !onnx_axis(c, 1, c->type.rank, &axis)) return recipe;
    for (uint32_t i = 0; i < args->count; i++)
        if (!(parts[i] = onnx_operand(c, i)).id) return recipe;
    return args->count == 1 ? parts[0] : fb_recipe_concat(c->graph, axis, parts, args->count);
}

/* Integers of an attribute, or of an input, that are numbers of the document. */
static int onnx_integers(constant_call *c, const char *name, size_t input, int64_t out[FB_MAX_RANK]) {
    const fb_graph *g = c->graph;
    fb_value attribute = fb_node_kwarg(g, c->call.node, name), argument = fb_node_arg(g, c->call.node, input);
    const fb_value_row *row = attribute.id ? fb_value_at(g, attribute) : NULL;
    fb_node read = argument.id && !row ? read_of(c, argument) : (fb_node){0};
    fb_tensor tensor;
    if (row && (row->kind != FB_LIST || row->count > FB_MAX_RANK)) return -1;
    for (uint32_t i = 0; row && i < row->count; i++)
        if (!fb_value_is_int(g, row->items[i], &out[i])) return -1;
    if (row) return (int)row->count;
    if (!read.id) return 0;
    if (!fb_reads_bytes(g, read, &tensor)) return -1;
    const fb_tensor_row *of = fb_tensor_at(g, tensor);
    if (of->dtype != FB_INT64 && of->dtype != FB_INT32) return -1;
    size_t width = fb_dtype_size((fb_dtype)of->dtype),
           count = fb_base64_size(fb_text(g, of->data), fb_text_length(g, of->data)) / width;
    for (size_t i = 0; i < count && count <= FB_MAX_RANK; i++) out[i] = integer_at(fb_text(g, of->data), width, (int64_t)i);
    return count <= FB_MAX_RANK ? (int)count : -1;
}

static int64_t cut_at(int64_t at, int64_t size) {
    if (at < 0) at = at < -size ? 0 : at + size;
    return at > size ? size : at;
}

static fb_value onnx_slice(constant_call *c) {
    int64_t starts[FB_MAX_RANK], ends[FB_MAX_RANK], axes[FB_MAX_RANK], steps[FB_MAX_RANK];
    fb_value recipe = onnx_operand(c, 0);
    fb_recipe_type type;
    int count = onnx_integers(c, "starts", 1, starts), end_count = onnx_integers(c, "ends", 2, ends),
        axis_count = onnx_integers(c, "axes", 3, axes), step_count = onnx_integers(c, "steps", 4, steps);
    bool fits = count >= 0 && end_count == count && axis_count >= 0 && step_count >= 0 && (!axis_count || axis_count == count);
    if (!fits || !constant_type_of(c, recipe, &type)) return (fb_value){0};
    for (int i = 0; i < step_count; i++)
        if (steps[i] != 1) return no_constant(c, "unsupported-arguments", "recipes have no slices with a step");
    for (int i = 0; i < count; i++) {
        int axis;
        if (!fb_normalise_axis(axis_count ? axes[i] : i, type.rank, &axis)) return (fb_value){0};
        int64_t size = type.sizes[axis], start = cut_at(starts[i], size), stop = cut_at(ends[i], size);
        recipe = fb_recipe_slice(c->graph, recipe, axis, start, stop < start ? start : stop);
    }
    return recipe;
}

static fb_value onnx_gather(constant_call *c) {
    fb_value recipe = onnx_operand(c, 0), given = fb_node_arg(c->graph, c->call.node, 1);
    fb_node read = given.id ? read_of(c, given) : (fb_node){0};
    fb_recipe_type type;
    fb_tensor index;
    integers found;
    int axis;
    if (!read.id || !constant_type_of(c, recipe, &type) || !onnx_axis(c, 0, type.rank, &axis)) return (fb_value){0};
    if (!fb_reads_bytes(c->graph, read, &index) || !reads_integers(c->graph, read, &found))
        return no_constant(c, "unsupported-arguments", "its indices are not numbers of the document");
    fb_dtype dtype = (fb_dtype)fb_tensor_at(c->graph, index)->dtype;
    if ((dtype != FB_INT64 && dtype != FB_INT32) || !found.count) return (fb_value){0};
    if (found.smallest < -type.sizes[axis] || found.largest >= type.sizes[axis]) return (fb_value){0};
    if (found.is_run && found.first >= 0)
        recipe = fb_recipe_slice(c->graph, recipe, axis, found.first, found.first + found.count);
    else recipe = fb_recipe_index_select(c->graph, recipe, axis, index);
    return constant_reshaped(c, recipe);
}

/* An operand that nothing has computed: the result is rounded once, as the operator rounds it. */
static fb_value onnx_moved(constant_call *c, size_t index) {
    fb_recipe_type type;
    fb_value recipe = onnx_operand(c, index);
    if (!constant_type_of(c, recipe, &type)) return (fb_value){0};
    bool is_right = type.is_movement && type.dtype == c->type.dtype && fb_dtype_is_computed(type.dtype);
    return is_right ? recipe : no_constant(c, "inexact", "it computes with floats that are computed themselves");
}

#define ONNX_OF_TWO(name, function)                                                                                            \
    static fb_value onnx_##name(constant_call *c) {                                                                            \
        fb_value a = onnx_moved(c, 0), b = a.id ? onnx_moved(c, 1) : a;                                                        \
        return b.id ? function(c->graph, a, b) : b;                                                                            \
    }
ONNX_OF_TWO(add, fb_recipe_add)
ONNX_OF_TWO(subtract, fb_recipe_sub)
ONNX_OF_TWO(multiply, fb_recipe_mul)
ONNX_OF_TWO(divide, fb_recipe_div)

#define ONNX_OF_ONE(name, function)                                                                                            \
    static fb_value onnx_##name(constant_call *c) {                                                                            \
        fb_value a = onnx_moved(c, 0);                                                                                         \
        return a.id ? function(c->graph, a) : a;                                                                               \
    }
ONNX_OF_ONE(negate, fb_recipe_neg)
ONNX_OF_ONE(square_root, fb_recipe_sqrt)
ONNX_OF_ONE(exponential, fb_recipe_exp)
ONNX_OF_ONE(sine, fb_recipe_sin)
ONNX_OF_ONE(cosine, fb_recipe_cos)

static constant_rule *onnx_rule_of(const fb_graph *g, fb_node node) {
    static const struct {
        const char *name;
        constant_rule *rule;
    } onnx_rules[] = {
#define FB_CONSTANT_RULE(op, function)
#define FB_ONNX_CONSTANT_RULE(op, function) {#op, onnx_##function},
#include "core/pass/call_recipes.def"
#undef FB_CONSTANT_RULE
#undef FB_ONNX_CONSTANT_RULE
    };
    const char *name = fb_onnx_operator_name(g, node);
    for (size_t i = 0; name && i < sizeof onnx_rules / sizeof *onnx_rules; i++)
        if (strcmp(onnx_rules[i].name, name) == 0) return onnx_rules[i].rule;
    return NULL;
}

/* ---- one node ------------------------------------------------------------------------------------------------------------ */

static bool is_static(const fb_shape_result *type) {
    for (int i = 0; i < type->rank; i++) {
        if (type->sizes[i].symbol.id || type->sizes[i].size < 0) return false;
    }
    return type->rank >= 0 && type->dtype;
}

static bool read_shape(const fb_graph *g, fb_value shape, fb_dtype dtype, fb_shape_result *type) {
    type->dtype = dtype;
    type->rank = fb_shape_rank(g, shape);
    if (type->rank > FB_MAX_RANK) return false;
    for (int i = 0; i < type->rank; i++) type->sizes[i] = fb_dim_of(fb_shape_size(g, shape, i));
    return true;
}

/* Where no rule says what follows, what is recorded: the recipe must have that type. */
static bool read_recorded(const fb_graph *g, fb_node node, fb_shape_result *type) {
    const fb_node_row *row = fb_node_at(g, node);
    return row->shape.id && read_shape(g, row->shape, (fb_dtype)row->dtype, type);
}

/* Compares the recorded type with the one that follows from the weights. */
static bool agrees(const fb_graph *g, fb_node node, const fb_shape_result *type) {
    const fb_node_row *row = fb_node_at(g, node);
    if (row->dtype && row->dtype != type->dtype) return false;
    if (!row->shape.id) return true;
    if (fb_shape_rank(g, row->shape) != type->rank) return false;
    for (int i = 0; i < type->rank; i++) {
        if (fb_shape_size(g, row->shape, i) != type->sizes[i].size) return false;
    }
    return true;
}

/* A recipe either moves bytes, of one dtype, or computes: then it is rounded to a floating dtype, and to no other. */
static bool has_type(const fb_graph *g, fb_value recipe, const fb_shape_result *type) {
    fb_recipe_type found;
    fb_error ignored = {0};
    if (fb_recipe_type_of(g, recipe, &found, &ignored) || found.rank != type->rank) return false;
    for (int i = 0; i < type->rank; i++) {
        if (found.sizes[i] != type->sizes[i].size) return false;
    }
    return found.is_movement ? found.dtype == type->dtype : fb_dtype_is_computed(type->dtype);
}

static bool read_weight(const fb_graph *g, fb_node node, fb_tensor *tensor, fb_shape_result *type) {
    const fb_node_row *row = fb_node_at(g, node);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return false;
    *tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    if (!tensor->id) return false;
    const fb_tensor_row *weight = fb_tensor_at(g, *tensor);
    return read_shape(g, weight->shape, (fb_dtype)weight->dtype, type);
}

/* All that it reads, so that their shapes and dtypes are known. */
static void read_inputs(constant_call *c) {
    fb_value ignored;
    for (uint32_t e = fb_input_first(c->graph, c->call.node); e; e = fb_input_next(c->graph, e))
        fb_recipe_of_call(c->recipes, fb_edge_input(c->graph, e), &ignored);
    c->recipes->obstacle = FB_NO_OBSTACLE;
}

static fb_value make(constant_call *c, constant_rule *rule) {
    if (!rule) return no_constant(c, "unsupported-operator", "no recipe computes this");
    read_inputs(c);
    bool follows = fb_infer(c->graph, c->call.node, &c->type) && is_static(&c->type);
    if (!follows && !(read_recorded(c->graph, c->call.node, &c->type) && is_static(&c->type)))
        return no_constant(c, "unsupported-arguments", "its shape and dtype do not follow from the weights");
    if (!agrees(c->graph, c->call.node, &c->type))
        return no_constant(c, "recorded-otherwise", "another shape or dtype is recorded than follows from the weights");
    fb_value recipe = rule(c);
    if (!recipe.id && !c->recipes->obstacle.code) no_constant(c, "unsupported-arguments", "its arguments are not all constant");
    if (!recipe.id) return recipe;
    if (fb_graph_is_onnx(c->graph)) constant_see_all(c); /* the rules know all attributes of these operators */
    if (fb_argument_count(c->graph, c->call.node) > c->seen)
        return no_constant(c, "unsupported-arguments", "it has arguments that recipes do not know");
    if (!has_type(c->graph, recipe, &c->type))
        return no_constant(c, "unsupported-dtype", "recipes compute with floating-point tensors only");
    return recipe;
}

bool fb_recipe_of_call(fb_call_recipes *recipes, fb_node node, fb_value *recipe) {
    fb_graph *g = fb_rewrite_graph(recipes->rewrite);
    constant_call c = {.graph = g, .recipes = recipes};
    fb_tensor tensor;
    recipe->id = fb_map_get(&recipes->made, node.id);
    if (recipe->id) return true;
    fb_op op = (fb_op)(fb_node_op(g, node) & ~FB_OP_IN_PLACE);
    c.call = (fb_shape_call){g, node, op, false};
    if (!read_weight(g, fb_captured_origin(recipes->outer, node), &tensor, &c.type)) {
        bool is_call = fb_node_at(g, node)->opcode == FB_CALL_FUNCTION || fb_node_at(g, node)->opcode == FB_CALL_METHOD;
        constant_rule *rule = !is_call ? NULL : fb_graph_is_onnx(g) ? onnx_rule_of(g, node) : rules[op];
        *recipe = make(&c, rule);
    } else if (agrees(g, node, &c.type)) {
        *recipe = fb_recipe_tensor(g, tensor);
    } else {
        *recipe = no_constant(&c, "recorded-otherwise", "another shape or dtype is recorded than the weight has");
    }
    if (!recipe->id) return false;
    recipes->is_out_of_memory |= !fb_map_put(&recipes->made, node.id, recipe->id);
    const fb_node_row *row = fb_node_at(g, node);
    if (!row->shape.id || !row->dtype)
        fb_set_result_type(recipes->rewrite, node, fb_make_result_shape(g, &c.type), c.type.dtype);
    return true;
}
