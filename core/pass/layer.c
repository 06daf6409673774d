/* Layers in both dialects: see layer.h. */
#include "core/pass/layer.h"

#include <math.h>

#include "core/analysis/dialect.h"
#include "core/analysis/view.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/weights/recipe.h"

/* Every attribute that a module gets copies the list of those it has, and each reader of one may get its own. */
#define MAX_READERS 256

fb_layer fb_linear_layer(const fb_linear *linear) {
    return (fb_layer){
        .call = linear->node,
        .origin = linear->origin,
        .weight_factor = linear->weight_factor,
        .bias_factor = linear->bias_factor,
        .module = linear->module,
        .weight = linear->weight,
        .bias = linear->bias,
        .weight_read = linear->weight_read,
        .bias_read = linear->bias_read,
        .transposition = linear->transposition,
        .is_mm = linear->form == FB_LINEAR_MM || linear->form == FB_LINEAR_MATMUL,
        .needs_sum = linear->needs_sum,
        .weight_parameter = linear->form >= FB_LINEAR_ADDMM    ? "mat2"
                            : linear->form == FB_LINEAR_MATMUL ? "other"
                                                               : "weight",
        .bias_parameter = linear->form == FB_LINEAR_ADDMM || linear->is_bias_first ? "input"
                          : linear->form == FB_LINEAR_MATMUL                       ? "other"
                                                                                   : "bias",
        .input_parameter = linear->form == FB_LINEAR_ADDMM                       ? "mat1"
                           : linear->form == FB_LINEAR_GEMM && !linear->input.id ? NULL
                                                                                 : "input",
    };
}

static fb_layer conv_layer(const fb_conv *conv) {
    return (fb_layer){
        .call = conv->node,
        .origin = conv->node,
        .weight_factor = 1,
        .bias_factor = 1,
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

bool fb_host_at(const fb_graph *g, fb_node node, fb_host *out) {
    fb_linear linear;
    fb_conv conv;
    bool is_linear = fb_linear_at(g, node, &linear), is_conv = !is_linear && fb_conv_at(g, node, &conv);
    if (is_linear)
        *out = (fb_host){.layer = fb_linear_layer(&linear),
                         .is_linear = true,
                         .linear = linear,
                         .inputs = linear.in_features,
                         .outputs = linear.out_features,
                         .dtype = linear.dtype,
                         .training = linear.training};
    if (is_conv)
        *out = (fb_host){.layer = conv_layer(&conv),
                         .conv = conv,
                         .inputs = conv.in_channels,
                         .outputs = conv.out_channels,
                         .dtype = conv.dtype,
                         .training = conv.training};
    return is_linear || is_conv;
}

/* ---- match ------------------------------------------------------------------------------------------------------------- */

fb_obstacle fb_bytes_obstacle(const fb_graph *g, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(g, tensor);
    return fb_dialect_facts_of(g)->has_bytes && !row->data.id && !row->blob.id && !row->recipe.id
               ? (fb_obstacle){"unknown-bytes", "its weight is sparse, or in a file that is not here"}
               : FB_NO_OBSTACLE;
}

fb_obstacle fb_read_obstacle(fb_matcher *m, fb_node read) {
    if (!read.id) return FB_NO_OBSTACLE;
    fb_module owner = fb_node_at(m->graph, read)->module;
    fb_obstacle obstacle = fb_bytes_obstacle(
        m->graph, fb_module_tensor(m->graph, owner, fb_text(m->graph, fb_node_at(m->graph, read)->attribute)));
    if (obstacle.code) return obstacle;
    if (fb_call_count(m->usage, owner) || fb_module_is_inside_call(m->usage, owner))
        return (fb_obstacle){"module-called",
                             "its weights belong to a module that is called as a whole too, which the change would reach"};
    if (fb_module_readers(m->usage, owner) > MAX_READERS && !fb_dialect_facts_of(m->graph)->has_one_owner)
        return (fb_obstacle){"crowded-module", "what owns its weights is read by too many nodes for each to be given its own"};
    const fb_alias *alias = fb_matcher_writes(m);
    if (!alias) return FB_OUT_OF_MEMORY;
    return fb_is_mutated(alias, read) ? FB_TENSOR_MUTATED : FB_NO_OBSTACLE;
}

fb_obstacle fb_named_obstacle(const fb_graph *g, fb_node call) {
    return fb_dialect_facts_of(g)->has_names && fb_op_effects(g, call).is_named ? fb_effect_obstacle(g, call) : FB_NO_OBSTACLE;
}

fb_obstacle fb_layer_obstacle(fb_matcher *m, const fb_layer *layer) {
    if (layer->module.id) return fb_module_obstacle(m, layer->module);
    fb_obstacle obstacle = fb_named_obstacle(m->graph, layer->call);
    if (!obstacle.code) obstacle = fb_named_obstacle(m->graph, layer->origin);
    if (!obstacle.code) obstacle = fb_read_obstacle(m, layer->weight_read);
    return obstacle.code ? obstacle : fb_read_obstacle(m, layer->bias_read);
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
    if (!layer->input_parameter) return (fb_node){0};
    return fb_call_argument_node(graph, layer->origin.id && !layer->module.id ? layer->origin : call, layer->input_parameter);
}

double fb_layer_largest_weight(fb_matcher *m, const fb_layer *layer, fb_dtype dtype) {
    return fabs(layer->weight_factor) * fb_known_largest(m, layer->weight, dtype);
}

double fb_layer_largest_bias(fb_matcher *m, const fb_layer *layer, fb_dtype dtype) {
    return layer->bias.id ? fabs(layer->bias_factor) * fb_known_largest(m, layer->bias, dtype) : 0;
}

/* ---- recipes ----------------------------------------------------------------------------------------------------------- */

static fb_value multiplied(fb_graph *g, fb_tensor tensor, double factor) {
    fb_value recipe = fb_recipe_tensor(g, tensor);
    return factor == 1 ? recipe : fb_recipe_mul(g, recipe, fb_recipe_full(g, NULL, 0, fb_make_float(g, factor)));
}

fb_value fb_layer_weight(fb_graph *g, const fb_layer *layer) {
    return multiplied(g, layer->weight, layer->weight_factor);
}

fb_value fb_layer_bias(fb_graph *g, const fb_layer *layer) {
    return multiplied(g, layer->bias, layer->bias_factor);
}

/* `factor` along one axis of the weight, the other 1. */
static fb_value along(fb_graph *g, const fb_linear *linear, fb_value factor, int axis) {
    fb_recipe_type type;
    fb_error ignored = {0};
    if (!factor.id || fb_recipe_type_of(g, factor, &type, &ignored)) return factor;
    int64_t sizes[2] = {1, 1};
    if (type.rank == 1) sizes[axis] = type.sizes[0];
    fb_value shaped = type.rank == 1 && axis == 0 ? fb_recipe_reshape(g, factor, sizes, 2) : factor;
    return fb_recipe_mul(g, multiplied(g, linear->weight, linear->weight_factor), shaped);
}

static fb_value linear_scale_outputs(fb_graph *g, const fb_linear *linear, fb_value factor) {
    return along(g, linear, factor, linear->is_packed ? 1 : 0);
}

fb_value fb_linear_scale_inputs(fb_graph *g, const fb_linear *linear, fb_value factor) {
    return along(g, linear, factor, linear->is_packed ? 0 : 1);
}

fb_value fb_linear_times(fb_graph *g, const fb_linear *linear, fb_value x) {
    fb_value weight = multiplied(g, linear->weight, linear->weight_factor);
    return linear->is_packed ? fb_recipe_matmul(g, x, weight) : fb_recipe_matmul(g, weight, x);
}

/* ---- a convolution's weight --------------------------------------------------------------------------------------------- */

/* The sizes of a convolution's weight, group by group: (groups, axis 0 / groups, axis 1, *kernel). */
typedef struct grouped {
    int64_t whole[FB_RECIPE_MAX_RANK], parts[FB_RECIPE_MAX_RANK + 1];
    size_t rank; /* of `whole`; `parts` has one more */
    int64_t kernel;
} grouped;

static grouped grouped_sizes(const fb_graph *g, const fb_conv *conv) {
    grouped s = {.rank = (size_t)conv->spatial + 2, .kernel = 1};
    fb_value shape = fb_tensor_at(g, conv->weight)->shape;
    for (size_t i = 0; i < s.rank; i++) s.whole[i] = s.parts[i + 1] = fb_shape_size(g, shape, (int)i);
    for (size_t i = 2; i < s.rank; i++) s.kernel *= s.whole[i];
    s.parts[0] = conv->groups;
    s.parts[1] = s.whole[0] / conv->groups;
    return s;
}

/* The weight with axis 1 scaled, which each group has its own channels on: the inputs of a convolution, and the outputs of a
 * transposed one. */
static fb_value scale_axis_1(fb_graph *g, const fb_conv *conv, fb_value scale) {
    grouped s = grouped_sizes(g, conv);
    int64_t sizes[FB_RECIPE_MAX_RANK + 1] = {conv->groups, 1, s.whole[1]};
    for (size_t i = 3; i <= s.rank; i++) sizes[i] = 1;
    fb_value weight = fb_recipe_tensor(g, conv->weight);
    if (conv->groups == 1) return fb_recipe_mul(g, weight, fb_recipe_reshape(g, scale, sizes + 1, s.rank));
    weight = fb_recipe_reshape(g, weight, s.parts, s.rank + 1);
    return fb_recipe_reshape(g, fb_recipe_mul(g, weight, fb_recipe_reshape(g, scale, sizes, s.rank + 1)), s.whole, s.rank);
}

/* With axis 0 scaled, where all channels are side by side: the outputs of a convolution, the inputs of a transposed one. */
static fb_value scale_axis_0(fb_graph *g, const fb_conv *conv, fb_value scale) {
    grouped s = grouped_sizes(g, conv);
    int64_t sizes[FB_RECIPE_MAX_RANK] = {s.whole[0]};
    for (size_t i = 1; i < s.rank; i++) sizes[i] = 1;
    return fb_recipe_mul(g, fb_recipe_tensor(g, conv->weight), fb_recipe_reshape(g, scale, sizes, s.rank));
}

static fb_value scale_axis(fb_graph *g, const fb_conv *conv, fb_value factor, int axis) {
    fb_recipe_type type;
    fb_error ignored = {0};
    bool is_one_for_all = factor.id && !fb_recipe_type_of(g, factor, &type, &ignored) && type.rank == 0;
    if (is_one_for_all) return fb_recipe_mul(g, fb_recipe_tensor(g, conv->weight), factor);
    return axis == 0 ? scale_axis_0(g, conv, factor) : scale_axis_1(g, conv, factor);
}

static fb_value conv_scale_inputs(fb_graph *g, const fb_conv *conv, fb_value factor) {
    return scale_axis(g, conv, factor, conv->is_transposed ? 0 : 1);
}

static fb_value conv_scale_outputs(fb_graph *g, const fb_conv *conv, fb_value factor) {
    return scale_axis(g, conv, factor, conv->is_transposed ? 1 : 0);
}

static fb_value conv_times(fb_graph *g, const fb_conv *conv, fb_value shift) {
    grouped s = grouped_sizes(g, conv);
    int64_t inputs = s.whole[1], terms = inputs * s.kernel;
    fb_value ones = fb_recipe_full(g, (int64_t[]){1, s.kernel}, 2, fb_make_float(g, 1));
    shift = fb_recipe_mul(g, fb_recipe_reshape(g, shift, (int64_t[]){conv->in_channels, 1}, 2), ones);
    shift = fb_recipe_reshape(g, shift, (int64_t[]){conv->groups, terms, 1}, 3);
    fb_value weight = fb_recipe_tensor(g, conv->weight);
    weight = fb_recipe_reshape(g, weight, (int64_t[]){conv->groups, s.parts[1], terms}, 3);
    return fb_recipe_reshape(g, fb_recipe_matmul(g, weight, shift), &conv->out_channels, 1);
}

/* ---- of either ---------------------------------------------------------------------------------------------------------- */

fb_value fb_host_scale_outputs(fb_graph *g, const fb_host *host, fb_value factor) {
    return host->is_linear ? linear_scale_outputs(g, &host->linear, factor) : conv_scale_outputs(g, &host->conv, factor);
}

fb_value fb_host_scale_inputs(fb_graph *g, const fb_host *host, fb_value factor) {
    return host->is_linear ? fb_linear_scale_inputs(g, &host->linear, factor) : conv_scale_inputs(g, &host->conv, factor);
}

fb_value fb_host_times(fb_graph *g, const fb_host *host, fb_value x) {
    return host->is_linear ? fb_linear_times(g, &host->linear, x) : conv_times(g, &host->conv, x);
}

/* ---- for `edit` --------------------------------------------------------------------------------------------------------- */

/* mm(x, W) becomes addmm(bias, x, W), and MatMul(x, W) Gemm(x, W, bias), or Add(MatMul(x, W), bias). */
static void add_bias(fb_rewrite *rw, const fb_layer *layer, fb_value bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node call = layer->call;
    if (layer->needs_sum) {
        const fb_node_row *row = fb_node_at(g, call);
        fb_node product = fb_insert_typed(rw, call, FB_CALL_FUNCTION, fb_node_target(g, call), row->args, row->kwargs,
                                          row->shape, (fb_dtype)row->dtype);
        fb_build_over(rw, call, FB_MADE_ADD, FB_ARGS(g, fb_make_node(g, product), bias), FB_VALUE_EMPTY_MAP);
        return;
    }
    fb_value input = fb_call_argument(g, call, "input"), weight = fb_call_argument(g, call, layer->weight_parameter);
    fb_new_linear made = fb_linear_call(g, input, weight, bias, true);
    fb_build_over(rw, call, made.made, made.args, made.kwargs);
}

void fb_give_argument(fb_rewrite *rw, fb_node call, const char *parameter, fb_value value) {
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

/* Does it own too much for its list to be copied for each change? */
static bool is_crowded(const fb_graph *g, fb_module owner) {
    return fb_dialect_facts_of(g)->has_one_owner && fb_value_at(g, fb_module_at(g, owner)->parameters)->count / 2 > MAX_READERS;
}

/* Gives a call of a function its parameter: `read` reads the old tensor, or is none. */
static void set_argument(fb_rewrite *rw, const fb_layer *layer, const char *parameter, fb_node read, const char *attribute,
                         fb_value recipe, bool requires_grad) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, layer->weight)->dtype;
    bool is_weight = read.id == layer->weight_read.id;
    fb_node transposition = is_weight ? layer->transposition : (fb_node){0}, reader = is_weight ? layer->origin : layer->call;
    if (is_weight && reader.id != layer->call.id) fb_note_new_value(rw, reader);
    fb_module owner = fb_node_at(g, read.id ? read : layer->weight_read)->module;
    bool is_alone = !transposition.id || fb_node_at(g, transposition)->user_count == 1;
    if (read.id && is_alone && !is_crowded(g, owner) && is_exchangeable(rw, read, recipe)) {
        fb_tensor tensor =
            fb_put_parameter(rw, owner, fb_text(g, fb_node_at(g, read)->attribute), recipe, dtype, requires_grad);
        if (tensor.id) fb_set_result_type(rw, read, fb_tensor_at(g, tensor)->shape, dtype);
        if (transposition.id) fb_infer_result_type(rw, transposition);
        return;
    }
    fb_buffer name = {0};
    const char *text = fb_free_attribute(rw, owner, read.id ? fb_text(g, fb_node_at(g, read)->attribute) : attribute, &name);
    if (text && is_crowded(g, owner)) {
        owner = fb_put_module(rw, owner, text, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP, fb_module_at(g, owner)->training);
        text = attribute;
    }
    if (text) {
        fb_put_parameter(rw, owner, text, recipe, dtype, requires_grad);
        fb_node now = fb_insert_read(rw, reader, owner, text);
        if (now.id && transposition.id) now = fb_transpose_again(rw, layer, now);
        if (now.id && layer->is_mm && !read.id) add_bias(rw, layer, fb_make_node(g, now));
        else if (now.id) fb_give_argument(rw, reader, parameter, fb_make_node(g, now));
        if (transposition.id) fb_erase_unread(rw, transposition);
        fb_release_read(rw, read);
    }
    fb_buffer_free(&name);
}

/* A Linear's config says its sizes. */
static void keep_config(fb_rewrite *rw, fb_module module, fb_tensor weight) {
    static const char *const keys[] = {"out_features", "in_features"};
    fb_graph *g = fb_rewrite_graph(rw);
    if (fb_module_op(g, module) != FB_OP_LINEAR || !weight.id) return;
    for (int axis = 0; axis < 2; axis++) {
        int64_t size = fb_shape_size(g, fb_tensor_at(g, weight)->shape, axis), said;
        if (!fb_config_int(g, module, keys[axis], size, &said) || said != size)
            fb_set_config(rw, module, keys[axis], fb_make_int(g, size));
    }
}

void fb_layer_set_weight(fb_rewrite *rw, const fb_layer *layer, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_tensor_row *old = fb_tensor_at(g, layer->weight);
    if (!layer->module.id) {
        set_argument(rw, layer, layer->weight_parameter, layer->weight_read, "weight", recipe, old->requires_grad);
        if (layer->weight_factor != 1) fb_remove_argument(rw, layer->origin, "alpha");
        return;
    }
    keep_config(rw, layer->module,
                fb_put_parameter(rw, layer->module, "weight", recipe, (fb_dtype)old->dtype, old->requires_grad));
}

void fb_layer_set_bias(fb_rewrite *rw, const fb_layer *layer, fb_value recipe) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_tensor like = layer->bias.id ? layer->bias : layer->weight;
    bool requires_grad = fb_tensor_at(g, like)->requires_grad;
    if (!layer->module.id) {
        set_argument(rw, layer, layer->bias_parameter, layer->bias_read, "bias", recipe, requires_grad);
        if (layer->bias_factor != 1) fb_remove_argument(rw, layer->origin, "beta");
        return;
    }
    fb_put_parameter(rw, layer->module, "bias", recipe, (fb_dtype)fb_tensor_at(g, layer->weight)->dtype, requires_grad);
    fb_set_config(rw, layer->module, "bias", fb_make_bool(g, true));
}

fb_node fb_call_again(fb_rewrite *rw, fb_node call) {
    const fb_node_row *row = fb_node_at(fb_rewrite_graph(rw), call);
    fb_node again = fb_insert_copy(rw, call, call, row->args, row->kwargs);
    fb_replace_uses(rw, call, again);
    fb_erase(rw, call);
    return again;
}

void fb_layer_release(fb_rewrite *rw, const fb_layer *layer) {
    fb_release_reads(rw, layer->call);
    if (layer->module.id || layer->origin.id == layer->call.id) return;
    fb_release_reads(rw, layer->origin);
    fb_erase_unread(rw, layer->origin);
}

void fb_layer_clear_bias(fb_rewrite *rw, const fb_layer *layer) {
    if (layer->module.id) {
        fb_clear_parameter(rw, layer->module, "bias");
        fb_set_config(rw, layer->module, "bias", fb_make_bool(fb_rewrite_graph(rw), false));
    } else if (layer->bias.id) {
        if (layer->origin.id != layer->call.id) fb_absorb(rw, layer->call, layer->origin);
        else take_argument(rw, layer->call, layer->bias_parameter);
        if (layer->bias_factor != 1) fb_remove_argument(rw, layer->call, "beta");
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
        if (norm->call.id != norm->node.id) {
            fb_release_read(rw, norm->bias_read);
            fb_erase_unread(rw, norm->call);
        }
        fb_absorb(rw, norm->node, norm->unscaled);
        return;
    }
    fb_note_new_value(rw, norm->node);
    if (norm->call.id != norm->node.id) fb_note_new_value(rw, norm->call);
    if (norm->module.id) {
        clear_affine_of_module(rw, norm);
    } else {
        fb_release_read(rw, norm->weight_read);
        fb_release_read(rw, norm->bias_read);
        take_argument(rw, norm->call, "bias"); /* before the weight, as it comes after that */
        take_argument(rw, norm->call, "weight");
    }
}
