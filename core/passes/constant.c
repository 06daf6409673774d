/* Recipes of nodes that depend on weights only, by a rule for each operator of constants.def. */
#include "core/passes/constant.h"

#include <stdlib.h>

#include "core/ops/infer.h"
#include "core/ops/shape.h"
#include "core/weights/recipe.h"

typedef struct constant_call {
    fb_call call;
    fb_graph *graph;
    fb_constants *constants;
    fb_shape_result type; /* of the result: all sizes are numbers */
    size_t seen;          /* arguments that the rule has looked at */
} constant_call;

typedef fb_value constant_rule(constant_call *call);

/* ---- what rules ask ---------------------------------------------------------------------------------------------------- */

/* Returns no recipe, and records the reason. */
static fb_value no_constant(constant_call *c, const char *reason, const char *detail) {
    c->constants->reason = reason;
    c->constants->detail = detail;
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
    fb_constant_recipe(c->constants, node, &recipe);
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

/* That of the first argument, for a rule that understands all that may be given: what matters is in the result's shape, or is
 * read by the rule. constant_see_all says so alone. */
static fb_value constant_first(constant_call *c) {
    constant_see_all(c);
    return constant_of(c, fb_first_argument(c->graph, c->call.node));
}

/* Fails where `recipe` is none. */
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

/* The second operand of a product, whatever its parameter is called. */
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

static fb_value constant_reciprocal(constant_call *c) {
    return inverse(c->graph, operand(c, "input"));
}

static fb_value constant_square(constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_mul(c->graph, a, a) : a;
}

/* Of the exponents that recipes can spell. */
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

/* x[1, 2:4, None, ...]: axis by axis, then in the shape of the result. */
static fb_value constant_index(constant_call *c) {
    fb_value recipe = constant_first(c), index = fb_node_arg(c->graph, c->call.node, 1);
    fb_recipe_type type;
    if (!index.id || !constant_type_of(c, recipe, &type)) return (fb_value){0};
    bool is_tuple = fb_value_kind(c->graph, index) == FB_TUPLE;
    uint32_t count = is_tuple ? fb_value_at(c->graph, index)->count : 1;
    int axis = 0, taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        fb_kind kind = fb_value_kind(c->graph, is_tuple ? fb_value_item(c->graph, index, i) : index);
        taken += kind != FB_NONE && kind != FB_ELLIPSIS;
    }
    for (uint32_t i = 0; recipe.id && i < count; i++) {
        fb_value item = is_tuple ? fb_value_item(c->graph, index, i) : index;
        const fb_value_row *row = fb_value_at(c->graph, item);
        if (row->kind == FB_NONE) continue;
        if (row->kind == FB_ELLIPSIS) axis += type.rank - taken;
        else if (row->kind == FB_SLICE) recipe = sliced(c, recipe, axis++, row->items[0], row->items[1], row->items[2]);
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

static int64_t element_count(const fb_recipe_type *type) {
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
    if (count == element_count(&type)) return constant_reshaped(c, recipe);
    return fb_recipe_mul(c->graph, recipe, fb_recipe_full(c->graph, sizes, (size_t)c->type.rank, fb_make_float(c->graph, 1)));
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

static fb_value constant_matrix_transpose(constant_call *c) {
    fb_value recipe = constant_first(c);
    return recipe.id && c->type.rank == 2 ? swapped(c, recipe, 0, 1) : recipe;
}

/* x.T and x.mT; other attributes are no tensors, or not of a known shape. */
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

/* What is recorded must be what follows from the weights. */
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
    type->dtype = (fb_dtype)weight->dtype;
    type->rank = fb_shape_rank(g, weight->shape);
    if (type->rank > FB_MAX_RANK) return false;
    for (int i = 0; i < type->rank; i++) type->sizes[i] = fb_dim_of(fb_shape_size(g, weight->shape, i));
    return true;
}

/* All that it reads, so that their shapes and dtypes are known. */
static void read_inputs(constant_call *c) {
    fb_value ignored;
    for (uint32_t e = fb_input_first(c->graph, c->call.node); e; e = fb_input_next(c->graph, e))
        fb_constant_recipe(c->constants, fb_edge_input(c->graph, e), &ignored);
    c->constants->reason = NULL;
}

static fb_value make(constant_call *c, constant_rule *rule) {
    if (!rule) return no_constant(c, "unsupported-operator", "no recipe computes this");
    read_inputs(c);
    if (!fb_infer(c->graph, c->call.node, &c->type) || !is_static(&c->type))
        return no_constant(c, "unsupported-arguments", "its shape and dtype do not follow from the weights");
    if (!agrees(c->graph, c->call.node, &c->type))
        return no_constant(c, "recorded-otherwise", "another shape or dtype is recorded than follows from the weights");
    fb_value recipe = rule(c);
    if (!recipe.id && !c->constants->reason) no_constant(c, "unsupported-arguments", "its arguments are not all constant");
    if (!recipe.id) return recipe;
    const fb_node_row *row = fb_node_at(c->graph, c->call.node);
    bool is_read_whole = fb_value_at(c->graph, row->args)->count + fb_value_at(c->graph, row->kwargs)->count / 2 <= c->seen;
    if (!is_read_whole) return no_constant(c, "unsupported-arguments", "it has arguments that recipes do not know");
    if (!has_type(c->graph, recipe, &c->type))
        return no_constant(c, "unsupported-dtype", "recipes compute with floating-point tensors only");
    return recipe;
}

bool fb_constant_recipe(fb_constants *constants, fb_node node, fb_value *recipe) {
    fb_graph *g = fb_rewrite_graph(constants->rewrite);
    constant_call c = {.graph = g, .constants = constants};
    fb_tensor tensor;
    recipe->id = fb_map_get(&constants->recipes, node.id);
    if (recipe->id) return true;
    fb_op op = fb_node_op(g, node);
    c.call = (fb_call){g, node, op, false};
    if (!read_weight(g, node, &tensor, &c.type)) {
        bool is_call = fb_node_at(g, node)->opcode == FB_CALL_FUNCTION || fb_node_at(g, node)->opcode == FB_CALL_METHOD;
        *recipe = make(&c, is_call && op < FB_OP_COUNT ? rules[op] : NULL);
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
