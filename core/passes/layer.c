/* Layers in both dialects: see layer.h. */
#include "core/passes/layer.h"

#include "core/ops/view.h"
#include "core/weights/recipe.h"

/* Every attribute that a module gets copies the list of those it has, and each reader of one may get its own. */
#define MAX_READERS 256

fb_layer fb_linear_layer(const fb_linear *linear) {
    return (fb_layer){
        .call = linear->node,
        .module = linear->module,
        .weight = linear->weight,
        .bias = linear->bias,
        .weight_read = linear->weight_read,
        .bias_read = linear->bias_read,
        .transposition = linear->transposition,
        .is_mm = linear->form == FB_LINEAR_MM,
        .weight_parameter = linear->form >= FB_LINEAR_ADDMM ? "mat2" : "weight",
        .bias_parameter = linear->form == FB_LINEAR_ADDMM ? "input" : "bias",
        .input_parameter = linear->form == FB_LINEAR_ADDMM ? "mat1" : "input",
    };
}

fb_layer fb_conv_layer(const fb_conv *conv) {
    return (fb_layer){
        .call = conv->node,
        .module = conv->module,
        .weight = conv->weight,
        .bias = conv->bias,
        .weight_read = conv->weight_read,
        .bias_read = conv->bias_read,
        .weight_parameter = "weight",
        .bias_parameter = "bias",
        .input_parameter = "input",
    };
}

fb_layer fb_norm_layer(const fb_norm *norm) {
    return (fb_layer){
        .call = norm->node,
        .module = norm->module,
        .weight = norm->weight,
        .bias = norm->bias,
        .weight_read = norm->weight_read,
        .bias_read = norm->bias_read,
        .weight_parameter = "weight",
        .bias_parameter = "bias",
        .input_parameter = "input",
    };
}

/* ---- match ------------------------------------------------------------------------------------------------------------- */

const char *fb_read_obstacle(fb_matcher *m, fb_node read) {
    if (!read.id) return NULL;
    fb_module owner = fb_node_at(m->graph, read)->module;
    if (fb_call_count(m->usage, owner) || fb_module_is_inside_call(m->usage, owner)) return "module-called";
    if (fb_module_readers(m->usage, owner) > MAX_READERS) return "crowded-module";
    const fb_alias *alias = fb_matcher_alias(m);
    if (!alias) return "out-of-memory";
    return fb_is_mutated(alias, read) ? "tensor-mutated" : NULL;
}

const char *fb_layer_obstacle(fb_matcher *m, const fb_layer *layer) {
    if (layer->module.id) return fb_module_obstacle(m, layer->module);
    const char *obstacle = fb_read_obstacle(m, layer->weight_read);
    return obstacle ? obstacle : fb_read_obstacle(m, layer->bias_read);
}

fb_node fb_layer_first_call(const fb_usage *usage, const fb_layer *layer) {
    return layer->module.id ? fb_first_call(usage, layer->module) : layer->call;
}

fb_node fb_layer_next_call(const fb_usage *usage, const fb_layer *layer, fb_node call) {
    return layer->module.id ? fb_next_call(usage, call) : (fb_node){0};
}

uint32_t fb_layer_call_count(const fb_usage *usage, const fb_layer *layer) {
    return layer->module.id ? fb_call_count(usage, layer->module) : 1;
}

fb_node fb_layer_input(const fb_graph *graph, const fb_layer *layer, fb_node call) {
    return fb_call_argument_node(graph, fb_call_of_value(graph, call), layer->input_parameter);
}

/* ---- recipes ----------------------------------------------------------------------------------------------------------- */

/* `factor` along one axis of the weight, the other 1. */
static fb_value along(fb_graph *g, const fb_linear *linear, fb_value factor, int axis) {
    fb_recipe_type type;
    fb_error ignored = {0};
    if (!factor.id || fb_recipe_type_of(g, factor, &type, &ignored)) return factor;
    int64_t sizes[2] = {1, 1};
    if (type.rank == 1) sizes[axis] = type.sizes[0];
    fb_value shaped = type.rank == 1 && axis == 0 ? fb_recipe_reshape(g, factor, sizes, 2) : factor;
    return fb_recipe_mul(g, fb_recipe_tensor(g, linear->weight), shaped);
}

fb_value fb_linear_scale_outputs(fb_graph *g, const fb_linear *linear, fb_value factor) {
    return along(g, linear, factor, linear->is_packed ? 1 : 0);
}

fb_value fb_linear_scale_inputs(fb_graph *g, const fb_linear *linear, fb_value factor) {
    return along(g, linear, factor, linear->is_packed ? 0 : 1);
}

fb_value fb_linear_times(fb_graph *g, const fb_linear *linear, fb_value x) {
    fb_value weight = fb_recipe_tensor(g, linear->weight);
    return linear->is_packed ? fb_recipe_matmul(g, x, weight) : fb_recipe_matmul(g, weight, x);
}
