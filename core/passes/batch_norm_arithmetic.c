/* The arithmetic of the BatchNorm folds, as recipes, and what they do to the graph. */
#include "core/passes/batch_norm_fold.h"
#include "core/weights/recipe.h"

/* scale, of shape (channels) */
static fb_value scale_of(fb_graph *g, const fb_batch_norm *norm) {
    bool is_as_written = norm->eps.id && fb_value_kind(g, norm->eps) != FB_BIG_INT; /* recipes have ints of 64 bits */
    fb_value eps = fb_recipe_full(g, NULL, 0, is_as_written ? norm->eps : fb_make_float(g, norm->eps_number));
    fb_value inverse = fb_recipe_rsqrt(g, fb_recipe_add(g, fb_recipe_tensor(g, norm->running_var), eps));
    return norm->weight.id ? fb_recipe_mul(g, fb_recipe_tensor(g, norm->weight), inverse) : inverse;
}

/* shift, of shape (channels) */
static fb_value shift_of(fb_graph *g, const fb_batch_norm *norm) {
    fb_value mean = fb_recipe_mul(g, fb_recipe_tensor(g, norm->running_mean), scale_of(g, norm));
    return norm->bias.id ? fb_recipe_sub(g, fb_recipe_tensor(g, norm->bias), mean) : fb_recipe_neg(g, mean);
}

/* ---- into the host
 * -------------------------------------------------------------------------------------------------------------- */

/* The BatchNorm follows: weight := weight * scale per output, bias := (bias - running_mean) * scale + BatchNorm's bias. */
static void fold_into_outputs(fb_rewrite *rw, const fb_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_batch_norm *norm = &fold->norm;
    fb_value scale = scale_of(g, norm), bias = {0};
    if (fold->host.bias.id) {
        bias = fb_recipe_sub(g, fb_recipe_tensor(g, fold->host.bias), fb_recipe_tensor(g, norm->running_mean));
        bias = fb_recipe_mul(g, bias, scale);
        if (norm->bias.id) bias = fb_recipe_add(g, bias, fb_recipe_tensor(g, norm->bias));
    } else {
        bias = shift_of(g, norm);
    }
    fb_layer_set_weight(rw, &fold->host,
                        fold->is_linear ? fb_linear_scale_outputs(g, &fold->linear, scale)
                                        : fb_conv_scale_outputs(g, &fold->conv, scale));
    fb_layer_set_bias(rw, &fold->host, bias);
}

/* The BatchNorm comes first: weight := weight * scale per input, bias := bias + weight · shift. */
static void fold_into_inputs(fb_rewrite *rw, const fb_fold *fold) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value scale = scale_of(g, &fold->norm), shift = shift_of(g, &fold->norm);
    fb_value weight =
        fold->is_linear ? fb_linear_scale_inputs(g, &fold->linear, scale) : fb_conv_scale_inputs(g, &fold->conv, scale);
    fb_value bias = fold->is_linear ? fb_linear_times(g, &fold->linear, shift) : fb_conv_times(g, &fold->conv, shift);
    if (fold->host.bias.id) bias = fb_recipe_add(g, fb_recipe_tensor(g, fold->host.bias), bias);
    fb_layer_set_weight(rw, &fold->host, weight);
    fb_layer_set_bias(rw, &fold->host, bias);
}

/* Takes the BatchNorm's calls out of the graph, and marks the calls of the host. */
static void remove_norm(fb_rewrite *rw, const fb_match *match, const fb_fold *fold) {
    const fb_graph *g = fb_rewrite_graph(rw);
    size_t calls = match->count / 2;
    fb_layer norm = fb_norm_calls(&fold->norm);
    for (size_t i = 0; i < calls; i++) {
        fb_node host_call = match->nodes[i], norm_call = match->nodes[calls + i], origin = fb_call_of_value(g, norm_call);
        fb_node input = fb_layer_input(g, &norm, norm_call);
        fb_release_reads(rw, origin);
        if (fold->is_before) { /* what is erased reads what was erased before it */
            fb_node source = fb_fold_source(g, &fold->host, &norm, norm_call, NULL);
            fb_node last = fb_put_views_again(rw, input, source, source);
            if (origin.id != norm_call.id) fb_erase(rw, origin);
            if (last.id) fb_take_in(rw, norm_call, last);
        } else {
            if (origin.id != norm_call.id) fb_erase(rw, origin);
            fb_replace_uses(rw, norm_call, input);
            fb_erase(rw, norm_call);
            fb_node source = fb_fold_source(g, &norm, &fold->host, host_call, NULL);
            fb_put_views_again(rw, fb_layer_input(g, &fold->host, host_call), source, fb_layer_input(g, &norm, source));
        }
        fb_mark(rw, host_call);
    }
    if (fold->norm.module.id) fb_drop_module(rw, fold->norm.module);
}

void fb_edit_fold(fb_rewrite *rw, const fb_match *match) {
    const fb_graph *g = fb_rewrite_graph(rw);
    fb_fold fold = {0};
    if (!fb_fold_host_at(g, match->nodes[0], &fold)) return;
    if (!fb_batch_norm_at(g, match->nodes[match->count / 2], &fold.norm)) return;
    /* By module, not by node: the first call of the one need not be paired with the first call of the other. */
    fb_layer norm = fb_norm_calls(&fold.norm);
    fold.is_before = fb_fold_source(g, &fold.host, &norm, fold.norm.node, NULL).id;
    if (fold.is_before) fold_into_outputs(rw, &fold);
    else fold_into_inputs(rw, &fold);
    remove_norm(rw, match, &fold);
}
