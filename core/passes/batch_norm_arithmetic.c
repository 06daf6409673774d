/* The arithmetic of the BatchNorm folds, as recipes, and what they do to the graph. */
#include "core/passes/batch_norm_fold.h"
#include "core/weights/recipe.h"

fb_value fb_norm_scale(fb_graph *g, const fb_batch_norm *norm) {
    bool is_as_written = norm->eps.id && fb_value_kind(g, norm->eps) != FB_BIG_INT; /* recipes have ints of 64 bits */
    fb_value eps = fb_recipe_full(g, NULL, 0, is_as_written ? norm->eps : fb_make_float(g, norm->eps_number));
    fb_value inverse = fb_recipe_rsqrt(g, fb_recipe_add(g, fb_recipe_tensor(g, norm->running_var), eps));
    return norm->weight.id ? fb_recipe_mul(g, fb_recipe_tensor(g, norm->weight), inverse) : inverse;
}

fb_value fb_norm_shift(fb_graph *g, const fb_batch_norm *norm) {
    fb_value mean = fb_recipe_mul(g, fb_recipe_tensor(g, norm->running_mean), fb_norm_scale(g, norm));
    return norm->bias.id ? fb_recipe_sub(g, fb_recipe_tensor(g, norm->bias), mean) : fb_recipe_neg(g, mean);
}

void fb_put_bias(fb_rewrite *rw, fb_module host, fb_tensor weight, fb_tensor old_bias, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_tensor_row *row = fb_tensor_at(g, weight);
    bool requires_grad = old_bias.id ? fb_tensor_at(g, old_bias)->requires_grad : row->requires_grad;
    fb_put_parameter(rw, host, "bias", recipe, (fb_dtype)row->dtype, requires_grad);
    fb_set_config(rw, host, "bias", fb_make_bool(g, true));
}

void fb_fold_into_outputs(fb_rewrite *rw, fb_module host, fb_tensor weight, fb_tensor bias, const fb_batch_norm *norm) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_tensor_row *row = fb_tensor_at(g, weight);
    int64_t sizes[FB_RECIPE_MAX_RANK] = {norm->num_features};
    size_t rank = (size_t)fb_shape_rank(g, row->shape);
    for (size_t i = 1; i < rank; i++) sizes[i] = 1;
    fb_value scale = fb_recipe_reshape(g, fb_norm_scale(g, norm), sizes, rank);
    fb_value new_bias = fb_norm_shift(g, norm);
    if (bias.id) {
        fb_value centred = fb_recipe_sub(g, fb_recipe_tensor(g, bias), fb_recipe_tensor(g, norm->running_mean));
        new_bias = fb_recipe_mul(g, centred, fb_norm_scale(g, norm));
        if (norm->bias.id) new_bias = fb_recipe_add(g, new_bias, fb_recipe_tensor(g, norm->bias));
    }
    fb_value new_weight = fb_recipe_mul(g, fb_recipe_tensor(g, weight), scale);
    fb_put_parameter(rw, host, "weight", new_weight, (fb_dtype)row->dtype, row->requires_grad);
    fb_put_bias(rw, host, weight, bias, new_bias);
}

fb_node fb_first_norm_call(const fb_match *match) {
    return match->nodes[match->count / 2];
}

void fb_remove_norm(fb_rewrite *rw, const fb_match *match, const fb_batch_norm *norm) {
    size_t calls = match->count / 2;
    for (size_t i = 0; i < calls; i++) {
        fb_node host_call = match->nodes[i], norm_call = match->nodes[calls + i];
        fb_node input = fb_call_argument_node(fb_rewrite_graph(rw), norm_call, "input");
        if (input.id == host_call.id) {
            fb_take_in(rw, norm_call, host_call);
        } else { /* the host comes after it */
            fb_replace_uses(rw, norm_call, input);
            fb_erase(rw, norm_call);
        }
        fb_mark(rw, host_call);
    }
    fb_drop_module(rw, norm->module);
}
