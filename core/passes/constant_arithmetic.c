/* Recipes of arithmetic on weights: computed in float64, rounded once. */
#include "core/ops/promote.h"
#include "core/passes/constant.h"
#include "core/weights/recipe.h"

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

static fb_value operand_of(fb_constant_call *c, fb_value argument) {
    fb_value recipe = fb_constant_of(c, argument);
    if (recipe.id && is_narrowed(c->graph, recipe, argument))
        return fb_no_constant(c, "narrowing-cast", "it computes with numbers that a cast has rounded");
    return recipe;
}

static fb_value operand(fb_constant_call *c, const char *parameter) {
    return operand_of(c, fb_constant_argument(c, parameter));
}

/* The second operand of a product, whatever its parameter is called. */
static fb_value second_operand(fb_constant_call *c) {
    static const char *const names[] = {"other", "mat2", "vec", "tensor"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fb_value argument = fb_constant_argument(c, names[i]);
        if (argument.id) return operand_of(c, argument);
    }
    return fb_no_constant(c, "unsupported-arguments", "it has no second operand");
}

/* `recipe` times a factor that may be given: alpha, beta. */
static fb_value scaled(fb_constant_call *c, fb_value recipe, const char *parameter) {
    fb_value factor = fb_constant_argument(c, parameter);
    if (!factor.id || !recipe.id) return recipe;
    factor = fb_constant_of(c, factor);
    return factor.id ? fb_recipe_mul(c->graph, recipe, factor) : factor;
}

fb_value fb_constant_add(fb_constant_call *c) {
    fb_value a = operand(c, "input"), b = scaled(c, operand(c, "other"), "alpha");
    return a.id && b.id ? fb_recipe_add(c->graph, a, b) : (fb_value){0};
}

fb_value fb_constant_subtract(fb_constant_call *c) {
    fb_value a = operand(c, "input"), b = scaled(c, operand(c, "other"), "alpha");
    return a.id && b.id ? fb_recipe_sub(c->graph, a, b) : (fb_value){0};
}

fb_value fb_constant_subtract_from(fb_constant_call *c) {
    fb_value a = scaled(c, operand(c, "input"), "alpha"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_sub(c->graph, b, a) : (fb_value){0};
}

fb_value fb_constant_multiply(fb_constant_call *c) {
    fb_value a = operand(c, "input"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_mul(c->graph, a, b) : (fb_value){0};
}

fb_value fb_constant_divide(fb_constant_call *c) {
    fb_value mode = fb_constant_argument(c, "rounding_mode");
    if (mode.id && fb_value_kind(c->graph, mode) != FB_NONE)
        return fb_no_constant(c, "unsupported-arguments", "recipes have no division that rounds");
    fb_value a = operand(c, "input"), b = operand(c, "other");
    return a.id && b.id ? fb_recipe_div(c->graph, a, b) : (fb_value){0};
}

fb_value fb_constant_negate(fb_constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_neg(c->graph, a) : a;
}

fb_value fb_constant_square_root(fb_constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_sqrt(c->graph, a) : a;
}

fb_value fb_constant_inverse_root(fb_constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_rsqrt(c->graph, a) : a;
}

static fb_value inverse(fb_graph *g, fb_value a) {
    return a.id ? fb_recipe_div(g, fb_recipe_full(g, NULL, 0, fb_make_float(g, 1)), a) : a;
}

fb_value fb_constant_reciprocal(fb_constant_call *c) {
    return inverse(c->graph, operand(c, "input"));
}

fb_value fb_constant_square(fb_constant_call *c) {
    fb_value a = operand(c, "input");
    return a.id ? fb_recipe_mul(c->graph, a, a) : a;
}

/* Of the exponents that recipes can spell. */
fb_value fb_constant_power(fb_constant_call *c) {
    double exponent = 0;
    fb_value given = fb_constant_argument(c, "exponent"), a = operand(c, "input");
    if (!a.id) return a;
    if (given.id && fb_value_is_number(c->graph, given, &exponent)) {
        if (exponent == 2) return fb_recipe_mul(c->graph, a, a);
        if (exponent == -1) return inverse(c->graph, a);
        if (exponent == 0.5) return fb_recipe_sqrt(c->graph, a);
        if (exponent == -0.5) return fb_recipe_rsqrt(c->graph, a);
    }
    return fb_no_constant(c, "unsupported-arguments", "recipes know the exponents 2, -1, 0.5 and -0.5");
}

fb_value fb_constant_product(fb_constant_call *c) {
    fb_value a = operand(c, "input"), b = second_operand(c);
    return a.id && b.id ? fb_recipe_matmul(c->graph, a, b) : (fb_value){0};
}

static bool is_zero(const fb_constant_call *c, const char *parameter) {
    double number;
    fb_value value = fb_call_argument(c->graph, c->call.node, parameter);
    return value.id && fb_value_is_number(c->graph, value, &number) && number == 0;
}

fb_value fb_constant_add_product(fb_constant_call *c) {
    bool is_batched = c->call.op == FB_OP_BADDBMM;
    if (is_zero(c, "beta") || is_zero(c, "alpha")) /* PyTorch leaves out nan and infinity then; a product keeps them */
        return fb_no_constant(c, "unsupported-arguments", "alpha or beta is zero, which hides what is not finite");
    fb_value sum = scaled(c, operand(c, "input"), "beta");
    fb_value a = operand(c, is_batched ? "batch1" : "mat1"), b = operand(c, is_batched ? "batch2" : "mat2");
    fb_value product = a.id && b.id ? scaled(c, fb_recipe_matmul(c->graph, a, b), "alpha") : (fb_value){0};
    return sum.id && product.id ? fb_recipe_add(c->graph, sum, product) : (fb_value){0};
}

/* To another dtype, and nothing else: devices and memory formats are not the graph's. */
fb_value fb_constant_cast(fb_constant_call *c) {
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
    return type.dtype == c->type.dtype ? recipe : fb_constant_computed(c->graph, recipe);
}
