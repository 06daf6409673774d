/* Recipes of views of weights: they copy bytes, so any dtype will do. */
#include "core/passes/constant.h"
#include "core/weights/recipe.h"

void fb_constant_see_all(fb_constant_call *c) {
    const fb_node_row *row = fb_node_at(c->graph, c->call.node);
    c->seen = fb_value_at(c->graph, row->args)->count + fb_value_at(c->graph, row->kwargs)->count / 2;
}

fb_value fb_constant_first(fb_constant_call *c) {
    fb_constant_see_all(c);
    return fb_constant_of(c, fb_first_argument(c->graph, c->call.node));
}

bool fb_constant_type_of(fb_constant_call *c, fb_value recipe, fb_recipe_type *type) {
    fb_error ignored = {0};
    return recipe.id && !fb_recipe_type_of(c->graph, recipe, type, &ignored);
}

fb_value fb_constant_same(fb_constant_call *c) {
    return fb_constant_first(c);
}

fb_value fb_constant_reshape(fb_constant_call *c) {
    return fb_constant_reshaped(c, fb_constant_first(c));
}

static bool second_is_constant(fb_constant_call *c) {
    return fb_constant_operand(c, "other").id;
}

fb_value fb_constant_reshape_as(fb_constant_call *c) {
    return second_is_constant(c) ? fb_constant_reshape(c) : (fb_value){0};
}

static int64_t element_count(const fb_recipe_type *type) {
    int64_t count = 1;
    for (int i = 0; i < type->rank; i++) count *= type->sizes[i];
    return count;
}

/* A product with ones: broadcasting is the only way to repeat that recipes have. */
fb_value fb_constant_expand(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
    fb_recipe_type type;
    int64_t sizes[FB_MAX_RANK], count = 1;
    if (!fb_constant_type_of(c, recipe, &type)) return (fb_value){0};
    for (int i = 0; i < c->type.rank; i++) {
        sizes[i] = c->type.sizes[i].size;
        if (__builtin_mul_overflow(count, sizes[i], &count))
            return fb_no_constant(c, "too-large", "it has more elements than can be counted");
    }
    if (count == element_count(&type)) return fb_constant_reshaped(c, recipe);
    return fb_recipe_mul(c->graph, recipe, fb_recipe_full(c->graph, sizes, (size_t)c->type.rank, fb_make_float(c->graph, 1)));
}

fb_value fb_constant_expand_as(fb_constant_call *c) {
    return second_is_constant(c) ? fb_constant_expand(c) : (fb_value){0};
}

/* ---- order of dimensions ------------------------------------------------------------------------------------------------- */

static fb_value swapped(fb_constant_call *c, fb_value recipe, int a, int b) {
    int64_t dims[FB_MAX_RANK];
    for (int i = 0; i < c->type.rank; i++) dims[i] = i == a ? b : i == b ? a : i;
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)c->type.rank);
}

fb_value fb_constant_permute(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
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

fb_value fb_constant_transpose(fb_constant_call *c) {
    int a, b;
    fb_value recipe = fb_constant_first(c);
    bool is_known =
        fb_option_axis(&c->call, "dim0", 0, c->type.rank, &a) && fb_option_axis(&c->call, "dim1", 0, c->type.rank, &b);
    return recipe.id && is_known ? swapped(c, recipe, a, b) : (fb_value){0};
}

fb_value fb_constant_matrix_transpose(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
    return recipe.id && c->type.rank == 2 ? swapped(c, recipe, 0, 1) : recipe;
}

/* x.T and x.mT; other attributes are no tensors, or not of a known shape. */
fb_value fb_constant_attribute(fb_constant_call *c) {
    fb_value name = fb_node_arg(c->graph, c->call.node, 1), recipe = fb_constant_first(c);
    const char *text = name.id ? fb_value_text(c->graph, name) : NULL;
    int rank = c->type.rank;
    int64_t dims[FB_MAX_RANK];
    if (!text || !recipe.id) return (fb_value){0};
    if (strcmp(text, "mT") == 0 && rank >= 2) return swapped(c, recipe, rank - 2, rank - 1);
    if (strcmp(text, "T") != 0) return fb_no_constant(c, "unsupported-arguments", "it is neither T nor mT");
    for (int i = 0; i < rank; i++) dims[i] = rank - 1 - i;
    return fb_recipe_permute(c->graph, recipe, dims, (size_t)rank);
}
