#include "core/passes/merged_linear.h"

#include <stdlib.h>

#include "core/operators/spelling.h"
#include "core/passes/group.h"
#include "core/passes/layer.h"
#include "core/weights/recipe.h"

/* The concatenated weights (or biases, zeros where there is none) as a recipe. */
static fb_value concatenated(fb_graph *g, const fb_linear *linears, size_t count, bool is_bias) {
    fb_value *parts = malloc(count * sizeof *parts), recipe = {0};
    if (!parts) return fb_graph_fail_memory(g);
    for (size_t i = 0; i < count; i++) {
        const fb_linear *linear = &linears[i];
        fb_tensor part = is_bias ? linear->bias : linear->weight;
        parts[i] = part.id ? fb_recipe_tensor(g, part) : fb_recipe_zeros(g, &linear->out_features, 1, linear->dtype);
    }
    recipe = fb_recipe_concat(g, linears->is_packed && !is_bias ? 1 : 0, parts, count);
    free(parts);
    return recipe;
}

/* The module that owns a Linear's weight: the one that is called, or that get_attr reads from. */
static fb_module owner_of(const fb_graph *g, const fb_linear *linear) {
    return linear->module.id ? linear->module : fb_node_at(g, linear->weight_read)->module;
}

/* Its path; of the root, the attribute's. */
static const char *path_of(const fb_graph *g, const fb_linear *linear) {
    fb_symbol path = fb_module_at(g, owner_of(g, linear))->path;
    if (!fb_text_length(g, path)) path = fb_node_at(g, linear->weight_read)->attribute;
    return fb_text(g, path);
}

static void merged_path(fb_graph *g, const fb_linear *linears, size_t count, fb_buffer *out) {
    const char **paths = malloc(count * sizeof *paths);
    for (size_t i = 0; paths && i < count; i++) paths[i] = path_of(g, &linears[i]);
    if (paths) fb_group_path(paths, count, out);
    else fb_graph_fail_memory(g);
    free(paths);
}

static fb_module put_merged(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *first = &linears[0];
    fb_module owner = owner_of(g, first);
    int64_t out_features = 0;
    fb_tensor bias = {0};
    for (size_t i = 0; i < count; i++) {
        out_features += linears[i].out_features;
        if (!bias.id) bias = linears[i].bias;
    }
    fb_value config = FB_VALUE_EMPTY_MAP;
    if (first->module.id) {
        config = fb_sorted_map_with(g, fb_module_at(g, owner)->config, "out_features", fb_make_int(g, out_features));
        config = fb_sorted_map_with(g, config, "bias", fb_make_bool(g, bias.id != 0));
    }
    fb_buffer path = {0};
    merged_path(g, linears, count, &path);
    fb_module merged = fb_put_module(rw, owner, fb_buffer_text(&path), first->module.id ? FB_TYPE_LINEAR : FB_TYPE_MODULE,
                                     config, fb_module_at(g, owner)->training);
    fb_buffer_free(&path);
    bool weight_grad = fb_tensor_at(g, first->weight)->requires_grad,
         bias_grad = bias.id && fb_tensor_at(g, bias)->requires_grad;
    fb_put_parameter(rw, merged, "weight", concatenated(g, linears, count, false), first->dtype, weight_grad);
    if (bias.id) fb_put_parameter(rw, merged, "bias", concatenated(g, linears, count, true), first->dtype, bias_grad);
    else if (first->module.id) fb_clear_parameter(rw, merged, "bias");
    return merged;
}

/* What the first one calls; addmm in place of mm where there is a bias. */
static const char *target_of(const fb_graph *g, const fb_linear *first, bool has_bias) {
    if (first->form != FB_LINEAR_MM || !has_bias) return fb_node_target(g, first->node);
    return fb_is_aten(g, first->node) ? FB_TARGET_ADDMM_ATEN : FB_TARGET_ADDMM;
}

static fb_node insert_call(fb_rewrite *rw, const fb_linear *first, fb_module merged) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value input = fb_make_node(g, first->input), args;
    fb_layer layer = fb_linear_layer(first);
    fb_node read = fb_insert_read(rw, first->node, merged, "weight");
    fb_value weight = fb_make_node(g, read.id && layer.transposition.id ? fb_transpose_again(rw, &layer, read) : read);
    bool has_bias = fb_module_tensor(g, merged, "bias").id != 0;
    if (!has_bias) {
        args = FB_ARGS(g, input, weight);
    } else {
        fb_value bias = fb_make_node(g, fb_insert_read(rw, first->node, merged, "bias"));
        args = first->form >= FB_LINEAR_ADDMM ? FB_ARGS(g, bias, input, weight) : FB_ARGS(g, input, weight, bias);
    }
    return fb_insert_before(rw, first->node, FB_CALL_FUNCTION, target_of(g, first, has_bias), args, (fb_value){0});
}

fb_node fb_insert_merged_linear(fb_rewrite *rw, const fb_linear *linears, size_t count) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_linear *first = &linears[0];
    fb_module merged = put_merged(rw, linears, count);
    if (!merged.id) return (fb_node){0};
    if (!first->module.id) return insert_call(rw, first, merged);
    const char *path = fb_text(g, fb_module_at(g, merged)->path);
    return fb_insert_before(rw, first->node, FB_CALL_MODULE, path, FB_ARGS(g, fb_make_node(g, first->input)), (fb_value){0});
}

void fb_cut_out_of_merged(fb_rewrite *rw, const fb_linear *linear, fb_node merged, int64_t start) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value from = fb_make_int(g, start), stop = fb_make_int(g, start + linear->out_features), all = fb_make_node(g, merged);
    fb_release_reads(rw, linear->node);
    if (fb_is_aten(g, linear->node)) {
        fb_set_target(rw, linear->node, FB_CALL_FUNCTION, FB_TARGET_SLICE_ATEN);
        fb_set_args(rw, linear->node, FB_ARGS(g, all, fb_make_int(g, -1), from, stop), FB_VALUE_EMPTY_MAP);
    } else {
        fb_value slice = fb_make_slice(g, from, stop, fb_make_none(g));
        fb_value place = fb_make_tuple(g, (fb_value[]){FB_TEXT(g, FB_ELLIPSIS, ""), slice}, 2);
        fb_set_target(rw, linear->node, FB_CALL_FUNCTION, FB_TARGET_GETITEM);
        fb_set_args(rw, linear->node, FB_ARGS(g, all, place), FB_VALUE_EMPTY_MAP);
    }
    if (linear->module.id) fb_drop_module(rw, linear->module);
}
