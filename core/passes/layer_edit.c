/* Layers in both dialects, changed: see layer.h. */
#include "core/passes/layer.h"

#include "core/operators/spelling.h"
#include "core/ops/view.h"
#include "core/weights/recipe.h"

/* mm(x, W) becomes addmm(bias, x, W). */
static void make_addmm(fb_rewrite *rw, fb_node call, fb_value bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value input = fb_call_argument(g, call, "input"), weight = fb_call_argument(g, call, "mat2");
    fb_set_target(rw, call, FB_CALL_FUNCTION, fb_is_aten(g, call) ? FB_TARGET_ADDMM_ATEN : FB_TARGET_ADDMM);
    fb_set_args(rw, call, FB_ARGS(g, bias, input, weight), FB_VALUE_EMPTY_MAP);
}

/* Gives a call an argument that it may not have yet. Weights come before everything but the input. */
static void give_argument(fb_rewrite *rw, fb_node call, const char *parameter, fb_value value) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_argument_place place;
    const fb_node_row *row = fb_node_at(g, call);
    const fb_value_row *args = fb_value_at(g, row->args);
    if (fb_call_argument_place(g, call, parameter, &place)) fb_set_argument(rw, call, parameter, value);
    else if (args->count == 2) fb_set_args(rw, call, FB_ARGS(g, args->items[0], args->items[1], value), row->kwargs);
    else fb_set_args(rw, call, row->args, fb_map_with(g, row->kwargs, parameter, value));
}

/* Without that argument, or with None where it cannot be left out. */
static void take_argument(fb_rewrite *rw, fb_node call, const char *parameter) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_argument_place place;
    const fb_node_row *row = fb_node_at(g, call);
    const fb_value_row *args = fb_value_at(g, row->args);
    if (!fb_call_argument_place(g, call, parameter, &place)) return;
    if (place.is_keyword) fb_remove_argument(rw, call, place.keyword);
    else if (place.index + 1 == args->count) fb_set_args(rw, call, fb_make_list(g, args->items, args->count - 1), row->kwargs);
    else fb_set_argument(rw, call, parameter, FB_VALUE_NONE);
}

static bool is_taken(const fb_graph *g, fb_module module, const char *attribute) {
    const fb_module_row *row = fb_module_at(g, module);
    const fb_value maps[] = {row->parameters, row->buffers, row->attributes};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        if (maps[i].id && fb_map_value(g, maps[i], attribute).id) return true;
    }
    fb_buffer path = {0};
    fb_buffer_string(&path, fb_text(g, row->path));
    if (path.size) fb_buffer_char(&path, '.');
    fb_buffer_string(&path, attribute);
    const char *text = fb_buffer_text(&path);
    bool is_module = text && fb_module_find(g, text).id;
    fb_buffer_free(&path);
    return is_module;
}

const char *fb_free_attribute(fb_rewrite *rw, fb_module owner, const char *base, fb_buffer *out) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_buffer_string(out, base);
    const char *text = fb_buffer_text(out);
    bool has_type = fb_module_op(g, owner) != FB_OP_UNKNOWN;
    for (unsigned number = 1; text && (is_taken(g, owner, text) || (has_type && number == 1)); number++) {
        out->size = 0;
        fb_buffer_printf(out, "%s_%u", base, number);
        text = fb_buffer_text(out);
    }
    if (!text) fb_graph_fail_memory(g);
    return text;
}

/* May the attribute itself get this tensor? */
static bool is_exchangeable(fb_rewrite *rw, fb_node read, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, read);
    const char *attribute = fb_text(g, row->attribute);
    if (!fb_map_value(g, fb_module_at(g, row->module)->parameters, attribute).id || !fb_is_only_read(rw, read)) return false;
    if (fb_module_op(g, row->module) == FB_OP_UNKNOWN) return true;
    fb_tensor tensor = fb_module_tensor(g, row->module, attribute); /* its type says which shape it has */
    fb_value shape = fb_tensor_at(g, tensor)->shape;
    fb_recipe_type type;
    fb_error ignored = {0};
    return recipe.id && !fb_recipe_type_of(g, recipe, &type, &ignored) &&
           fb_make_shape(g, type.sizes, (size_t)type.rank).id == shape.id;
}

static fb_node instead_of_read(void *context, fb_node node) {
    const fb_node *exchange = context;
    return node.id == exchange[0].id ? exchange[1] : node;
}

fb_node fb_transpose_again(fb_rewrite *rw, const fb_layer *layer, fb_node now) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, layer->transposition);
    fb_node exchange[] = {layer->weight_read, now};
    return fb_insert_before(rw, layer->call, (fb_opcode)row->opcode, fb_node_target(g, layer->transposition),
                            fb_value_map_nodes(g, row->args, instead_of_read, exchange),
                            fb_value_map_nodes(g, row->kwargs, instead_of_read, exchange));
}

/* Gives a call of a function its parameter: `read` reads the old tensor, or is none. */
static void set_argument(fb_rewrite *rw, const fb_layer *layer, const char *parameter, fb_node read, const char *attribute,
                         fb_value recipe, bool requires_grad) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, layer->weight)->dtype;
    fb_node transposition = read.id == layer->weight_read.id ? layer->transposition : (fb_node){0};
    fb_module owner = fb_node_at(g, read.id ? read : layer->weight_read)->module;
    bool is_alone = !transposition.id || fb_node_at(g, transposition)->user_count == 1;
    if (read.id && is_alone && is_exchangeable(rw, read, recipe)) {
        fb_tensor tensor =
            fb_put_parameter(rw, owner, fb_text(g, fb_node_at(g, read)->attribute), recipe, dtype, requires_grad);
        if (tensor.id) fb_set_result_type(rw, read, fb_tensor_at(g, tensor)->shape, dtype);
        if (transposition.id) fb_infer_result_type(rw, transposition);
        return;
    }
    fb_buffer name = {0};
    const char *text = fb_free_attribute(rw, owner, read.id ? fb_text(g, fb_node_at(g, read)->attribute) : attribute, &name);
    if (text) {
        fb_put_parameter(rw, owner, text, recipe, dtype, requires_grad);
        fb_node now = fb_insert_read(rw, layer->call, owner, text);
        if (now.id && transposition.id) now = fb_transpose_again(rw, layer, now);
        if (now.id && layer->is_mm && !read.id) make_addmm(rw, layer->call, fb_make_node(g, now));
        else if (now.id) give_argument(rw, layer->call, parameter, fb_make_node(g, now));
        if (transposition.id) fb_erase_unread(rw, transposition);
        fb_release_read(rw, read);
    }
    fb_buffer_free(&name);
}

/* A Linear's config says its sizes. */
static void keep_config(fb_rewrite *rw, fb_module module) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_linear linear;
    int64_t outputs, inputs;
    if (!fb_linear_of_module(g, module, &linear)) return;
    if (!fb_config_int(g, module, "out_features", linear.out_features, &outputs) || outputs != linear.out_features)
        fb_set_config(rw, module, "out_features", fb_make_int(g, linear.out_features));
    if (!fb_config_int(g, module, "in_features", linear.in_features, &inputs) || inputs != linear.in_features)
        fb_set_config(rw, module, "in_features", fb_make_int(g, linear.in_features));
}

void fb_layer_set_weight(fb_rewrite *rw, const fb_layer *layer, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_tensor_row *old = fb_tensor_at(g, layer->weight);
    if (!layer->module.id) {
        set_argument(rw, layer, layer->weight_parameter, layer->weight_read, "weight", recipe, old->requires_grad);
        return;
    }
    fb_put_parameter(rw, layer->module, "weight", recipe, (fb_dtype)old->dtype, old->requires_grad);
    keep_config(rw, layer->module);
}

void fb_layer_set_bias(fb_rewrite *rw, const fb_layer *layer, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_tensor like = layer->bias.id ? layer->bias : layer->weight;
    bool requires_grad = fb_tensor_at(g, like)->requires_grad;
    if (!layer->module.id) {
        set_argument(rw, layer, layer->bias_parameter, layer->bias_read, "bias", recipe, requires_grad);
        return;
    }
    fb_put_parameter(rw, layer->module, "bias", recipe, (fb_dtype)fb_tensor_at(g, layer->weight)->dtype, requires_grad);
    fb_set_config(rw, layer->module, "bias", fb_make_bool(g, true));
}

void fb_layer_clear_bias(fb_rewrite *rw, const fb_layer *layer) {
    if (layer->module.id) {
        fb_clear_parameter(rw, layer->module, "bias");
        fb_set_config(rw, layer->module, "bias", fb_make_bool(fb_rewrite_graph(rw), false));
    } else if (layer->bias.id) {
        take_argument(rw, layer->call, layer->bias_parameter);
        fb_release_read(rw, layer->bias_read);
    }
}

/* A called module, of which elementwise_affine says whether it has weights; and bias, that it has a bias. */
static void clear_affine_of_module(fb_rewrite *rw, const fb_norm *norm) {
    if (norm->weight.id) fb_clear_parameter(rw, norm->module, "weight");
    fb_set_config(rw, norm->module, "elementwise_affine", fb_make_bool(fb_rewrite_graph(rw), false));
    if (!norm->bias.id) return;
    fb_clear_parameter(rw, norm->module, "bias");
    fb_set_config(rw, norm->module, "bias", fb_make_bool(fb_rewrite_graph(rw), false));
}

void fb_norm_clear_affine(fb_rewrite *rw, const fb_norm *norm) {
    if (norm->unscaled.id) {
        fb_release_read(rw, norm->weight_read);
        fb_take_in(rw, norm->node, norm->unscaled);
        return;
    }
    fb_note_new_value(rw, norm->node);
    if (norm->call.id != norm->node.id) fb_note_new_value(rw, norm->call);
    if (norm->module.id) {
        clear_affine_of_module(rw, norm);
    } else {
        fb_release_read(rw, norm->weight_read);
        fb_release_read(rw, norm->bias_read);
        take_argument(rw, norm->call, "bias"); /* before the weight, after which it stands */
        take_argument(rw, norm->call, "weight");
    }
}
