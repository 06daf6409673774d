/* What a constant factor or addend makes of a layer's weight and bias. */
#include "core/passes/scale_fold.h"
#include "core/weights/recipe.h"

/* The constant without dimensions, or by channel. */
static fb_value constant_of(fb_graph *g, const fb_affine *affine) {
    if (affine->number.id) return fb_recipe_full(g, NULL, 0, affine->number);
    fb_value shape = fb_tensor_at(g, affine->tensor)->shape;
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) count *= fb_shape_size(g, shape, i);
    return fb_recipe_reshape(g, fb_recipe_tensor(g, affine->tensor), &count, count == 1 ? 0 : 1);
}

static fb_value by_channel(fb_graph *g, fb_value constant, int64_t channels) {
    return fb_recipe_mul(g, fb_recipe_full(g, &channels, 1, fb_make_float(g, 1)), constant);
}

static void scale(fb_rewrite *rw, const fb_scale_fold *fold, fb_value factor) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value weight;
    if (fold->is_linear && fold->is_after) weight = fb_linear_scale_outputs(g, &fold->linear, factor);
    else if (fold->is_linear) weight = fb_linear_scale_inputs(g, &fold->linear, factor);
    else if (fold->is_after) weight = fb_conv_scale_outputs(g, &fold->conv, factor);
    else weight = fb_conv_scale_inputs(g, &fold->conv, factor);
    fb_layer_set_weight(rw, &fold->host, weight);
    if (fold->is_after && fold->host.bias.id)
        fb_layer_set_bias(rw, &fold->host, fb_recipe_mul(g, fb_recipe_tensor(g, fold->host.bias), factor));
}

static void shift(fb_rewrite *rw, const fb_scale_fold *fold, fb_value addend) {
    fb_graph *g = fb_rewrite_graph(rw);
    addend = by_channel(g, addend, fb_scale_channels(fold));
    if (!fold->is_after)
        addend = fold->is_linear ? fb_linear_times(g, &fold->linear, addend) : fb_conv_times(g, &fold->conv, addend);
    if (fold->host.bias.id) addend = fb_recipe_add(g, fb_recipe_tensor(g, fold->host.bias), addend);
    fb_layer_set_bias(rw, &fold->host, addend);
}

void fb_scale_fold_edit(fb_rewrite *rw, const fb_scale_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value constant = constant_of(g, &fold->affine), one = fb_recipe_full(g, NULL, 0, fb_make_float(g, 1));
    switch (fold->affine.form) {
    case FB_AFFINE_MUL: scale(rw, fold, constant); break;
    case FB_AFFINE_DIV: scale(rw, fold, fb_recipe_div(g, one, constant)); break;
    case FB_AFFINE_ADD: shift(rw, fold, constant); break;
    case FB_AFFINE_SUB: shift(rw, fold, fb_recipe_neg(g, constant)); break;
    }
}
