/* FoldConstants: replaces what depends on weights only with a weight.
 *
 *     A ── matmul ── * s ── + ── linear(x, ·)          W' = W + s·B·A ── linear(x, ·)
 *     B ──┘                W ┘
 *
 * Turns what is computed of what get_attr nodes read into the recipe of a new tensor: arithmetic, exp, sigmoid, relu, clamp,
 * Linears, LayerNorms, views, slices, joins, and what an index of integers takes out of a table, as tables of relative
 * positions are read. The recipe is computed in float64 and rounded once. In half precision, this changes what overflowed on
 * the way and was scaled back (w * 1e4 * 1e-4): it was infinite, and becomes finite.
 *
 * The new tensor belongs to the module of the weight that it is made from; of several, the one with the same shape. A get_attr
 * node before the last folded node reads it. What only the folded nodes read is removed. It is a parameter, or a
 * buffer where its numbers are integers or bools.
 *
 * Kept:
 *   - what is random, has effects, is written in place but by its only reader, or is an output of the graph or shares memory
 *     with one
 *   - a transposed weight where something asks for the strides of what is computed from it: a weight is row-major
 *   - integer arithmetic, which recipes do not have
 *   - computations on numbers that a cast has rounded
 *   - what would make the weights grow by more than `maximum_growth` elements: a view of a weight that others keep, an expanded
 *     weight
 *   - weights of a module that is called as a whole, or that very many nodes read
 *
 * Exactness: rounds. Not reversible.
 */
#include <stdlib.h>

#include "core/analysis/infer.h"
#include "core/analysis/shape.h"
#include "core/analysis/strides.h"
#include "core/base/base64.h"
#include "core/base/map.h"
#include "core/pass/layer.h"
#include "core/pass/pass.h"
#include "core/weights/recipe.h"

/* The result of a node whose inputs are weights only, as a recipe (core/weights/recipe.h), by a rule for each operator of
 * constants.def.
 *
 * Recipes are made in the graph of a rewrite: in the real one by `edit`, in that of a copy, which is thrown away, by `match`,
 * whose graph must not change. So both come to the same answer by the same code. */
typedef struct constants_in {
    fb_rewrite *rewrite;
    fb_map recipes;       /* node -> its recipe: what was asked for so far */
    fb_obstacle obstacle; /* why the last one has none */
    bool is_out_of_memory;
} constants_in;

typedef struct constant_call {
    fb_shape_call call;
    fb_graph *graph;
    constants_in *constants;
    fb_shape_result type; /* of the result: all sizes are numbers */
    size_t seen;          /* arguments that the rule has looked at */
} constant_call;

typedef fb_value constant_rule(constant_call *call);

/* The recipe of a get_attr node, or of a call of an operator that constants.def lists, whose inputs have recipes all the way
 * up. False, with the reason, when it has none. Effects and aliases are for the caller to ask about. A node whose shape or
 * dtype is not recorded gets them. */
static bool constant_recipe(constants_in *constants, fb_node node, fb_value *recipe);

/* ---- what rules ask ---------------------------------------------------------------------------------------------------- */

/* Returns no recipe, and records the reason. */
static fb_value no_constant(constant_call *c, const char *reason, const char *detail) {
    c->constants->obstacle = (fb_obstacle){reason, detail};
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
    fb_node node = value.id ? fb_value_node(c->graph, value) : (fb_node){0};
    if (!node.id) return no_constant(c, "unsupported-arguments", "an operand is neither a tensor nor an int or float");
    constant_recipe(c->constants, node, &recipe);
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
    const fb_node_row *row = fb_node_at(c->graph, c->call.node);
    c->seen = fb_value_at(c->graph, row->args)->count + fb_value_at(c->graph, row->kwargs)->count / 2;
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
    if (mode.id && fb_value_kind(c->graph, mode) != FB_NONE)
        return no_constant(c, "unsupported-arguments", "recipes have no division that rounds");
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
    if (!argument.id || fb_value_kind(c->graph, argument) == FB_NONE) return true;
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
    fb_tensor tensor = is_tensor ? fb_value_at(g, recipe)->tensor : (fb_tensor){0};
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
    if (limit.id && fb_value_kind(c->graph, limit) != FB_NONE)
        return no_constant(c, "unsupported-arguments", "its rows are made shorter");
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
    bool is_absent = !value.id || fb_value_kind(g, value) == FB_NONE;
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
    if (step.id && fb_value_kind(c->graph, step) != FB_NONE && (!fb_evaluate_int(c->graph, step, &by) || by != 1))
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
#include "core/passes/constants.def"
#undef FB_CONSTANT_RULE
};

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
        constant_recipe(c->constants, fb_edge_input(c->graph, e), &ignored);
    c->constants->obstacle = FB_NO_OBSTACLE;
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
    if (!recipe.id && !c->constants->obstacle.code)
        no_constant(c, "unsupported-arguments", "its arguments are not all constant");
    if (!recipe.id) return recipe;
    const fb_node_row *row = fb_node_at(c->graph, c->call.node);
    bool is_read_whole = fb_value_at(c->graph, row->args)->count + fb_value_at(c->graph, row->kwargs)->count / 2 <= c->seen;
    if (!is_read_whole) return no_constant(c, "unsupported-arguments", "it has arguments that recipes do not know");
    if (!has_type(c->graph, recipe, &c->type))
        return no_constant(c, "unsupported-dtype", "recipes compute with floating-point tensors only");
    return recipe;
}

static bool constant_recipe(constants_in *constants, fb_node node, fb_value *recipe) {
    fb_graph *g = fb_rewrite_graph(constants->rewrite);
    constant_call c = {.graph = g, .constants = constants};
    fb_tensor tensor;
    recipe->id = fb_map_get(&constants->recipes, node.id);
    if (recipe->id) return true;
    fb_op op = (fb_op)(fb_node_op(g, node) & ~FB_OP_IN_PLACE);
    c.call = (fb_shape_call){g, node, op, false};
    if (!read_weight(g, node, &tensor, &c.type)) {
        bool is_call = fb_node_at(g, node)->opcode == FB_CALL_FUNCTION || fb_node_at(g, node)->opcode == FB_CALL_METHOD;
        *recipe = make(&c, is_call ? rules[op] : NULL);
    } else if (agrees(g, node, &c.type)) {
        *recipe = fb_recipe_tensor(g, tensor);
    } else {
        *recipe = no_constant(&c, "recorded-otherwise", "another shape or dtype is recorded than the weight has");
    }
    if (!recipe->id) return false;
    constants->is_out_of_memory |= !fb_map_put(&constants->recipes, node.id, recipe->id);
    const fb_node_row *row = fb_node_at(g, node);
    if (!row->shape.id || !row->dtype)
        fb_set_result_type(constants->rewrite, node, fb_make_result_shape(g, &c.type), c.type.dtype);
    return true;
}

/* Counts what needs a tensor, to find the memory that a constant would free. */

typedef struct tensor_needs {
    const fb_graph *graph;
    uint32_t *needs;    /* by tensor: who owns it or reads it */
    fb_tensor *counted; /* by tensor: the last node that counted it, as an id */
    fb_node node;       /* the one at hand, and the elements that it makes free */
    int64_t freed;
} tensor_needs;

typedef enum lattice_value {
    FB_VARIES = 0, /* it depends on an input, or on what is not a weight */
    FB_WEIGHT,     /* a get_attr node that reads a weight */
    FB_INSIDE,     /* a call on weights only, whose readers are all of this or the next kind */
    FB_FOLDED,     /* the last one: what it gives becomes a weight */
    FB_REFUSED,    /* it looks constant, and must stay; so its readers vary */
} lattice_value;

typedef struct constant_finding {
    uint8_t lattice_value; /* lattice_value */
    bool is_claimed;       /* for the pass: it is part of a match */
    bool is_turned;        /* its axes may be in another order in memory than a weight's, which is row-major */
    fb_obstacle obstacle;  /* why it is refused */
} constant_finding;

/* Nothing is made of the weights of a module that very many read; and to look each of them up takes as long as there are many.
 */
static bool is_crowded(fb_matcher *m, fb_node read) {
    fb_obstacle obstacle = fb_read_obstacle(m, read);
    return obstacle.code && strcmp(obstacle.code, "crowded-module") == 0;
}

static void count_owners(const fb_matcher *m, uint32_t *needs, fb_module module) {
    const fb_module_row *row = fb_module_at(m->graph, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    bool is_kept = fb_module_op(m->graph, module) != FB_OP_UNKNOWN || fb_call_count(m->usage, module) ||
                   fb_module_is_inside_call(m->usage, module);
    for (size_t i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(m->graph, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            const fb_value_row *value = fb_value_at(m->graph, map->items[k]);
            if (value->kind == FB_TENSOR) needs[value->tensor.id] += is_kept ? 2 : 1;
        }
    }
}

static void count_reads(fb_matcher *m, uint32_t *needs, fb_program program) {
    for (fb_node n = fb_first_node(m->graph, program); n.id; n = fb_next_node(m->graph, n)) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id || is_crowded(m, n)) continue;
        fb_tensor tensor = fb_module_tensor(m->graph, row->module, fb_text(m->graph, row->attribute));
        needs[tensor.id] += row->user_count;
    }
}

/* False when memory is out; freed in any case. */
static bool find_tensor_needs(fb_matcher *m, tensor_needs *out) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_tensor_limit(g) + 1;
    *out =
        (tensor_needs){.graph = g, .needs = calloc(limit, sizeof *out->needs), .counted = calloc(limit, sizeof *out->counted)};
    if (!out->needs || !out->counted) return false;
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next)
        count_owners(m, out->needs, module);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) count_reads(m, out->needs, (fb_program){p});
    return true;
}

static void tensor_needs_free(tensor_needs *needs) {
    free(needs->needs);
    free(needs->counted);
}

/* INT64_MAX when a size is not known, or they cannot be counted. */
static int64_t element_count(const fb_graph *g, fb_value shape) {
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return INT64_MAX;
    }
    return count;
}

/* A tensor that one attribute owns and one node reads is gone when that node is. */
static void count_freed(void *context, fb_tensor tensor) {
    tensor_needs *needs = context;
    if (needs->needs[tensor.id] != 2 || needs->counted[tensor.id].id == needs->node.id) return;
    needs->counted[tensor.id].id = needs->node.id;
    needs->freed += element_count(needs->graph, fb_tensor_at(needs->graph, tensor)->shape);
}

/* Elements of the tensors in `recipe` (of the graph `trial`) that only the node needs. */
static int64_t elements_freed(tensor_needs *needs, const fb_graph *trial, fb_node node, fb_value recipe) {
    needs->node = node;
    needs->freed = 0;
    fb_value_visit_tensors(trial, recipe, count_freed, needs);
    return needs->freed;
}

/* The search for constants: forwards, what depends on weights only; backwards, where that ends. */

enum { RECIPE_SIZE_MAX = 200 }; /* operations and tensors in one recipe; as a tree, for so it is written */

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_alias *alias;
    constant_finding *found; /* by node */
    fb_obstacle *seen;       /* by memory: why a constant may not use it */
    bool *is_shared;         /* by memory: when it is written, more sees that than the one chain of values up to the writing */
    tensor_needs needs;
    constants_in constants; /* of a copy of the graph, in which recipes can be tried */
    int64_t maximum_growth;
} search;

/* ---- what is seen from outside ------------------------------------------------------------------------------------------- */

static void see_inputs(search *s, fb_node node, fb_obstacle obstacle) {
    for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e))
        s->seen[fb_memory_of(s->alias, fb_edge_input(s->graph, e))] = obstacle;
}

static void find_seen(search *s) {
    static const fb_obstacle layout_read = {"layout-read", "its strides are asked for, and a weight has others"};
    static const fb_obstacle returned = {"graph-output", "it is an output of the graph, which the caller may write into"};
    for (fb_node n = fb_first_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(s->graph, n)) {
        if (fb_op_facts_of(fb_node_op(s->graph, n))->flags & FB_FACT_READS_LAYOUT) see_inputs(s, n, layout_read);
        if (fb_node_at(s->graph, n)->opcode == FB_OUTPUT) see_inputs(s, n, returned);
    }
}

/* y = x @ w; z = y.t(); z.relu_(): what is computed is written once, by what alone reads it. Then it is as good as z.relu(). */
static void find_shared(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        bool is_call = row->opcode == FB_CALL_FUNCTION || row->opcode == FB_CALL_METHOD;
        uint32_t written = fb_last_write(s->alias, n);
        if (row->opcode == FB_OUTPUT || !written) continue;
        bool is_before = row->ordinal < written - 1;
        if (!is_call || (is_before && row->user_count != 1) || fb_mutated_between(s->alias, n, 0, written - 1))
            s->is_shared[fb_memory_of(s->alias, n)] = true;
    }
}

static const fb_obstacle written = {"tensor-mutated", "what it gives is written in place, or shares memory with what is"};

/* ---- forwards ------------------------------------------------------------------------------------------------------------ */

static void refuse(search *s, fb_node node, fb_obstacle obstacle) {
    s->found[node.id] = (constant_finding){.lattice_value = FB_REFUSED, .obstacle = obstacle};
}

static void measure(const fb_graph *g, fb_value recipe, int *left) {
    const fb_value_row *row = fb_value_at(g, recipe);
    (*left)--;
    if (row->kind != FB_EXPRESSION) return;
    const fb_value_row *args = fb_value_at(g, row->items[0]);
    for (uint32_t i = 0; i < args->count && *left >= 0; i++) measure(g, args->items[i], left);
}

static bool is_small(search *s, fb_value recipe) {
    int left = RECIPE_SIZE_MAX;
    measure(fb_rewrite_graph(s->constants.rewrite), recipe, &left);
    return left >= 0;
}

/* Does it read something, and nothing but what is constant? */
static bool reads_constants_only(search *s, fb_node node) {
    uint32_t edge = fb_input_first(s->graph, node);
    bool is_any = edge != 0;
    for (; edge; edge = fb_input_next(s->graph, edge)) {
        uint8_t input = s->found[fb_edge_input(s->graph, edge).id].lattice_value;
        if (input != FB_WEIGHT && input != FB_INSIDE) return false;
    }
    return is_any;
}

/* Why a weight that it reads must stay as it is. */
static fb_obstacle reads_obstacle(search *s, fb_node node) {
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    for (uint32_t e = fb_input_first(s->graph, node); e && !obstacle.code; e = fb_input_next(s->graph, e)) {
        fb_node input = fb_edge_input(s->graph, e);
        if (s->found[input.id].lattice_value == FB_WEIGHT) obstacle = fb_read_obstacle(s->m, input);
    }
    return obstacle;
}

/* After a permutation, until something is computed row by row. */
static bool is_turned(const search *s, fb_node node) {
    bool is = fb_layout_of(s->graph, node) == FB_LAYOUT_TURNED_VIEW;
    for (uint32_t e = fb_input_first(s->graph, node); e && !is; e = fb_input_next(s->graph, e))
        is = s->found[fb_edge_input(s->graph, e).id].is_turned;
    return is && !fb_is_contiguous(s->graph, node);
}

/* Does it write, element by element, into what only it reads, and which is constant? */
static bool writes_own(const search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_effects effects = fb_op_effects(g, node);
    bool is_plain = effects.mutates_input && !effects.is_unknown && !effects.is_random && !effects.has_effect;
    bool is_elementwise = fb_op_facts_of(fb_node_op(g, node))->flags & FB_FACT_ELEMENTWISE;
    fb_node into = fb_value_node(g, fb_first_argument(g, node));
    return is_plain && is_elementwise && into.id && s->found[into.id].lattice_value == FB_INSIDE &&
           !s->is_shared[fb_memory_of(s->alias, node)];
}

/* Is its value written later on? */
static bool is_written_later(const search *s, fb_node node) {
    return fb_last_write(s->alias, node) > fb_node_at(s->graph, node)->ordinal + 1;
}

static void look_at_call(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_obstacle obstacle, seen = s->seen[fb_memory_of(s->alias, node)];
    fb_value recipe;
    if (!reads_constants_only(s, node) || fb_result_kind_of(g, node) == FB_A_NUMBER) return;
    fb_effects effects = fb_op_effects(g, node);
    if (effects.has_effect && !effects.is_unknown) return; /* an assertion */
    obstacle = writes_own(s, node) ? FB_NO_OBSTACLE : fb_effect_obstacle(g, node);
    if (obstacle.code || (obstacle = reads_obstacle(s, node)).code) {
        refuse(s, node, obstacle);
    } else if (fb_is_mutated(s->alias, node) && s->is_shared[fb_memory_of(s->alias, node)]) {
        refuse(s, node, written);
    } else if (seen.code) {
        refuse(s, node, seen);
    } else if (!fb_node_at(g, node)->dtype && fb_mode_switched_between(s->alias, 0, fb_node_at(g, node)->ordinal)) {
        refuse(s, node,
               (fb_obstacle){"mode-switched",
                             "a mode is switched before it, so its dtype, which is not recorded, is not certain"});
    } else if (!constant_recipe(&s->constants, node, &recipe)) {
        refuse(s, node, s->constants.obstacle);
    } else if (!is_small(s, recipe)) {
        refuse(s, node, (fb_obstacle){"too-complex", "its recipe would be too long"});
    } else {
        s->found[node.id].lattice_value = FB_INSIDE;
        s->found[node.id].is_turned = is_turned(s, node);
    }
}

static void look_forwards(search *s) {
    fb_value recipe;
    for (fb_node n = fb_first_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(s->graph, n)) {
        const fb_node_row *row = fb_node_at(s->graph, n);
        bool is_read = row->opcode == FB_GET_ATTR && row->module.id && row->attribute.id;
        if (is_read && (is_crowded(s->m, n) || constant_recipe(&s->constants, n, &recipe)))
            s->found[n.id].lattice_value = FB_WEIGHT;
        if (row->opcode >= FB_CALL_MODULE && row->opcode <= FB_CALL_METHOD) look_at_call(s, n);
    }
}

/* ---- backwards ----------------------------------------------------------------------------------------------------------- */

static bool is_read_by_others(const search *s, fb_node node) {
    for (uint32_t e = fb_user_first(s->graph, node); e; e = fb_user_next(s->graph, e)) {
        uint8_t user = s->found[fb_edge_user(s->graph, e).id].lattice_value;
        if (user != FB_INSIDE && user != FB_FOLDED) return true;
    }
    return false;
}

static bool grows_too_much(search *s, fb_node node, fb_value recipe) {
    const fb_graph *trial = fb_rewrite_graph(s->constants.rewrite);
    fb_value shape = fb_node_at(trial, node)->shape;
    return element_count(trial, shape) - elements_freed(&s->needs, trial, node, recipe) > s->maximum_growth;
}

static void look_backwards(search *s) {
    static const fb_obstacle needs_order = {"needs-contiguous", "it does not lie row by row, and a reader may notice"};
    for (fb_node n = fb_last_node(s->graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(s->graph, n)->previous) {
        constant_finding *finding = &s->found[n.id];
        fb_value recipe = {fb_map_get(&s->constants.recipes, n.id)};
        if (finding->lattice_value != FB_INSIDE || (fb_node_at(s->graph, n)->user_count && !is_read_by_others(s, n))) continue;
        bool is_itself = fb_value_kind(fb_rewrite_graph(s->constants.rewrite), recipe) == FB_TENSOR; /* a weight as it is */
        if (!fb_node_at(s->graph, n)->user_count || is_itself) finding->lattice_value = FB_VARIES;
        else if (is_written_later(s, n)) refuse(s, n, written);
        else if (finding->is_turned && fb_layout_is_read(s->graph, n)) refuse(s, n, needs_order);
        else if (grows_too_much(s, n, recipe))
            refuse(s, n, (fb_obstacle){"too-large", "as a weight it would take more memory than allowed"});
        else finding->lattice_value = FB_FOLDED;
    }
}

/* ---- all together -------------------------------------------------------------------------------------------------------- */

static bool run(search *s, const char *signature) {
    s->constants.rewrite = fb_rewrite_begin_trial(s->graph, signature);
    if (!s->constants.rewrite) return false;
    find_seen(s);
    find_shared(s);
    look_forwards(s);
    look_backwards(s);
    bool ok = !fb_graph_out_of_memory(fb_rewrite_graph(s->constants.rewrite)) && !s->constants.is_out_of_memory;
    fb_rewrite_abort(s->constants.rewrite);
    fb_map_free(&s->constants.recipes);
    return ok;
}

static bool search_whole(search *s) {
    s->alias = fb_matcher_alias(s->m);
    s->seen = s->alias ? calloc(fb_memory_limit(s->alias), sizeof *s->seen) : NULL;
    s->is_shared = s->alias ? calloc(fb_memory_limit(s->alias), sizeof *s->is_shared) : NULL;
    bool ok = s->seen && s->is_shared && find_tensor_needs(s->m, &s->needs) && run(s, s->m->signature);
    free(s->seen);
    free(s->is_shared);
    tensor_needs_free(&s->needs);
    return ok;
}

static bool reads_attributes_only(const fb_graph *g, fb_node node) {
    uint32_t edge = fb_input_first(g, node);
    bool is_any = edge != 0;
    while (edge && fb_node_at(g, fb_edge_input(g, edge))->opcode == FB_GET_ATTR) edge = fb_input_next(g, edge);
    return is_any && !edge;
}

/* Every constant begins with a call that reads nothing but what get_attr nodes give. Most graphs have none, and need no copy.
 */
static bool may_have_constants(const fb_graph *g) {
    bool is_found = false;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !is_found; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        is_found = opcode >= FB_CALL_MODULE && opcode <= FB_CALL_METHOD && reads_attributes_only(g, n);
    }
    return is_found;
}

/* Findings by node id, malloc'ed; NULL when memory is out. `maximum_growth`: by how many elements a node's weight may be larger
 * than the weights that it is made from and that nothing else needs. */
static constant_finding *find_constants(fb_matcher *m, int64_t maximum_growth) {
    search s = {.m = m, .graph = m->graph, .maximum_growth = maximum_growth};
    s.found = calloc((size_t)fb_node_limit(m->graph) + 1, sizeof *s.found);
    if (s.found && (!may_have_constants(m->graph) || search_whole(&s))) return s.found;
    free(s.found);
    m->failed = true;
    return NULL;
}

#define DEFAULT_GROWTH 1048576

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Appends what is folded on the way to `node`, inputs first. No deeper than a recipe is long. */
static void claim(const fb_graph *g, constant_finding *found, fb_node node, fb_buffer *nodes) {
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (found[input.id].lattice_value != FB_INSIDE || found[input.id].is_claimed) continue;
        found[input.id].is_claimed = true;
        claim(g, found, input, nodes);
    }
    fb_buffer_append(nodes, &node, sizeof node);
}

static void report(fb_matcher *m, constant_finding *found) {
    const fb_graph *g = m->graph;
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (found[n.id].lattice_value == FB_REFUSED) fb_refuse_for(m, found[n.id].obstacle, &n, 1);
        if (found[n.id].lattice_value != FB_FOLDED) continue;
        nodes.size = 0;
        claim(g, found, n, &nodes);
        m->failed |= nodes.failed;
        if (!nodes.failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof n);
    }
    fb_buffer_free(&nodes);
}

static void match_graph(fb_matcher *m) {
    const json_t *growth = json_object_get(m->params, "maximum_growth");
    constant_finding *found = find_constants(m, growth ? json_integer_value(growth) : DEFAULT_GROWTH);
    if (found) report(m, found);
    free(found);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The first weight on the way to `node` that has its shape; otherwise the first of all. */
static void find_source(const fb_graph *g, fb_node node, fb_value shape, fb_node *source) {
    if (fb_node_at(g, node)->opcode == FB_GET_ATTR) {
        bool fits = fb_node_at(g, node)->shape.id == shape.id;
        if (!source->id || (fits && fb_node_at(g, *source)->shape.id != shape.id)) *source = node;
        return;
    }
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) find_source(g, fb_edge_input(g, e), shape, source);
}

typedef struct training {
    const fb_graph *graph;
    bool requires_grad;
} training;

static void look_at_tensor(void *context, fb_tensor tensor) {
    training *t = context;
    t->requires_grad |= fb_tensor_at(t->graph, tensor)->requires_grad;
}

/* A get_attr node before `node` that reads the new weight. */
static fb_node put_weight(fb_rewrite *rw, fb_node node, fb_value recipe, int version) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node source = {0}, read = {0};
    fb_buffer name = {0};
    training trained = {.graph = g};
    find_source(g, node, fb_node_at(g, node)->shape, &source);
    fb_value_visit_tensors(g, recipe, look_at_tensor, &trained);
    fb_module owner = fb_node_at(g, source)->module;
    const char *attribute = fb_free_attribute(rw, owner, fb_text(g, fb_node_at(g, source)->attribute), &name);
    if (attribute) {
        fb_dtype dtype = (fb_dtype)fb_node_at(g, node)->dtype;
        if (version > 1) fb_put_weight(rw, owner, attribute, recipe, dtype, trained.requires_grad);
        else fb_put_parameter(rw, owner, attribute, recipe, dtype, trained.requires_grad);
        read = fb_insert_read(rw, node, owner, attribute);
    }
    fb_buffer_free(&name);
    return read;
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    constants_in constants = {.rewrite = rw};
    fb_node last = match->nodes[match->count - 1];
    fb_value recipe;
    if (constant_recipe(&constants, last, &recipe)) {
        fb_node read = put_weight(rw, last, recipe, match->pass->version);
        for (size_t i = 0; i < match->count; i++) fb_release_reads(rw, match->nodes[i]);
        for (size_t i = 0; i + 1 < match->count; i++) fb_erase(rw, match->nodes[i]);
        if (read.id) fb_absorb(rw, last, read);
        if (read.id) fb_mark(rw, read);
    }
    if (constants.is_out_of_memory) fb_graph_fail_memory(fb_rewrite_graph(rw));
    fb_map_free(&constants.recipes);
}

/* Version 1 made parameters of integers and bools. */
#define FOLD_CONSTANTS(number, before)                                                                                         \
    {                                                                                                                          \
        .name = "FoldConstants", .version = number, .earlier = before,                                                         \
        .summary = "Replaces what depends on weights only, such as `W + s * B @ A`, with a weight.",                           \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{\"maximum_growth\":{\"default\":1048576,\"description\":"         \
            "\"By how many elements a new weight may be larger than those that it is made from and that nothing else "         \
            "reads. A view of a weight that others keep, or an expanded one, grows by all of it.\",\"minimum\":0,"             \
            "\"type\":\"integer\"}},\"type\":\"object\"}",                                                                     \
        .exactness = FB_ROUNDS, .gain = FB_GAIN_FEWER_NODES, .reversible = false, .preserves_computation = true,               \
        .match_graph = match_graph, .edit = edit,                                                                              \
    }

static const fb_pass version_1 = FOLD_CONSTANTS(1, NULL);
const fb_pass fb_fold_constants = FOLD_CONSTANTS(2, &version_1);
