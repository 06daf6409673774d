/* QuantizeWeights: keeps the weights of Linears and convolutions as int8, with one scale for each output channel; or Linears'
 * weights in 4 bits, with one scale for each group of inputs.
 *
 *     W ──┐                              q ── * s ──┐
 *     x ── linear ── y                   x ── linear(·, ·, b) ── y
 *
 *     s = max |W| of the channel / 127          q = W / s, rounded to int8
 *
 * q is a buffer, s a parameter. In ONNX DequantizeLinear makes the weight, from opset 13 on, of float16 and bfloat16 from 19
 * on; in 8 bits alone. There `keep` names weights, and operators as ONNX does; `block_size` gives Linears one scale for each
 * block of so many inputs, from opset 21 on.
 *
 * That is a quarter of float32, or half of float16. PyTorch computes in the weight's dtype as before: it makes W again at every
 * call, which takes time. Both are made once, from the weight, in recipes; s has the weight's dtype. A channel of zeros stays
 * zeros; one with a nan or an infinity becomes nan as a whole. A weight within 0.4 % of the largest number of its dtype may
 * become infinite, as s is rounded.
 *
 * With `bits` 4 each output channel has one scale for every `group_size` inputs, and an int8 holds two numbers of one group:
 * one of its first half and, 16 times, the one as far into its second half.
 *
 *     q = W / s, rounded to -7 … 7          s = max |W| of the group / 7, and the least number of the dtype more
 *     stored: low + 16 * high               high = (stored + 8) >> 4, low = stored - 16 * high
 *
 * The addend matters next to subnormal numbers, where s is rounded coarsely: with it no W / s is beyond 7. Where the largest
 * weight of a group is the largest number of its dtype, weights within 7.2 % of that number may become infinite.
 *
 * With `form` "packed" a Linear with an 8-bit weight is computed in bfloat16 from the int8 numbers, which are not made into a
 * weight first:
 *
 *     x ── to(bfloat16) ── _weight_int8pack_mm(·, q, s) ── to(x's dtype) ── + b
 *
 * s is bfloat16 then, and q is made with it. PyTorch has no derivative of that operator, so such a model is not to be trained.
 * For few rows it is faster than float32 (docs/performance.md). Without `form` a Linear is packed if
 * `tokens` says that it gets 8 rows or fewer, or 64 or fewer and it has half a million weights. In 4 bits `form` alone decides:
 *
 *     q + 8 ── to(int32) ── _convert_weight_to_int4pack_for_cpu(·, 1) ──┐
 *     x ── to(bfloat16) ── _weight_int4pack_mm_for_cpu(·, ·, group_size, s and 0) ── to(x's dtype) ── + b
 *
 * The Python client's `pack` computes the first line once; else this takes longer than the portable form. A Linear has that
 * form if its inputs are not a multiple of 32, in 4 bits its outputs of 16, if its dtype is neither
 * float32 nor bfloat16, it is spelled as another operator, or more than one dimension of its input is symbolic; or if its
 * result is detached in place.
 *
 * The run says what to expect of this, from the weights' own errors (`expected_loss`): of each weight whose bytes are known
 * |W - s q| / |W|, and of all together √(Σ e²), as noise of layers adds up, and 1 - cosine of the result. That leaves out what
 * activations lose, and what a model makes up for. A cosine distance above 0.05 is not usable as a rule. Large weights are
 * sampled by rows.
 *
 * `keep` names modules (paths, with * and ?) and operators (linear, conv2d) that stay as they are. A called module becomes a
 * function; all its calls use what the first one made.
 *
 * Refused: weights that something else has too ("shared-weight": it would still need them), that are not floating
 * ("unsupported-dtype"), that have one number for each channel or none ("saves-nothing"), in training mode, and transposed
 * convolutions in groups ("grouped"). In 4 bits: convolutions ("not-linear"), and Linears whose inputs are not a multiple of
 * `group_size` ("group-size"), as in blocks; convolutions have none. `group_size` without `bits` 4, and `block_size` in a graph
 * of PyTorch, have no effect ("unused-parameter").
 * Exactness: changes. Not reversible: roll back to get the weights' own bytes.
 */
#include <math.h>
#include <stdlib.h>

#include "core/analysis/dialect.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/keep.h"
#include "core/pass/layer.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"
#include "core/weights/rounding_error.h"

#define USUAL_GROUP_SIZE 128

/* How many inputs have a scale in common; 0: all of them, in 8 bits. */
static int64_t group_size_of(const json_t *params) {
    const json_t *size = json_object_get(params, "group_size");
    if (json_integer_value(json_object_get(params, "bits")) != 4) return 0;
    return size ? json_integer_value(size) : USUAL_GROUP_SIZE;
}

/* The same of ONNX's DequantizeLinear, in 8 bits. */
static int64_t block_size_of(const fb_graph *g, const json_t *params) {
    return fb_dequantize_takes_vector(g) ? json_integer_value(json_object_get(params, "block_size")) : 0;
}

/* Packed is faster than portable on a few rows; and on more where the weight is large. Measured with one thread on
 * PyTorch 2.13, AVX-512 (docs/performance.md). */
#define PACKED_ROWS 8
#define PACKED_WEIGHTS ((int64_t)1 << 19)
#define PACKED_ROWS_OF_LARGE 64
#define PACKED_WEIGHTS_BEFORE_3 ((int64_t)1 << 20)
#define PACKED_MULTIPLE 32 /* of inputs: vectors that the kernel loads at once */
#define PACKED_OUTPUTS 16  /* and of outputs, in 4 bits */

static bool is_asked_for_packed(const fb_match *match, const fb_host *host) {
    bool is_grouped = group_size_of(match->params);
    const char *form = json_string_value(json_object_get(match->params, "form"));
    const json_t *given = json_object_get(match->params, "tokens");
    json_int_t tokens = json_integer_value(given);
    int64_t weights = host->inputs * host->outputs;
    if (is_grouped && match->pass->version < 4) return false;
    if (form) return strcmp(form, "packed") == 0;
    if (!given || is_grouped) return false;
    if (match->pass->version < 3) return tokens <= PACKED_ROWS && weights > PACKED_WEIGHTS_BEFORE_3;
    return tokens <= PACKED_ROWS || (tokens <= PACKED_ROWS_OF_LARGE && weights >= PACKED_WEIGHTS);
}

/* PyTorch takes no view for that, and the packed form may end with one. */
static bool is_detached_in_place(const fb_graph *g, fb_node n) {
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e))
        if (fb_node_op(g, fb_edge_user(g, e)) == (FB_OP_DETACH | FB_OP_IN_PLACE)) return true;
    return false;
}

static bool can_be_packed(fb_graph *g, const fb_usage *usage, const fb_match *match, const fb_host *host) {
    const fb_layer *layer = &host->layer;
    bool can = host->is_linear && !host->linear.is_packed && !layer->transposition.id &&
               fb_op_is(g, layer->call, FB_OP_LINEAR) && (host->dtype == FB_FLOAT32 || host->dtype == FB_BFLOAT16) &&
               host->inputs > 0 && host->outputs > 0 && host->inputs % PACKED_MULTIPLE == 0 &&
               (!group_size_of(match->params) || host->outputs % PACKED_OUTPUTS == 0);
    for (fb_node call = layer->call; call.id && can; call = layer->module.id ? fb_next_call(usage, call) : (fb_node){0}) {
        fb_node input = fb_call_argument_node(g, call, "input");
        int rank = fb_node_rank(g, input);
        can = rank == 2 || (rank > 2 && fb_can_build_unflatten(g, call));
        can &= match->pass->version < 4 || !is_detached_in_place(g, call);
    }
    return can;
}

static bool is_to_be_packed(fb_graph *g, const fb_usage *usage, const fb_match *match, const fb_host *host) {
    return is_asked_for_packed(match, host) && can_be_packed(g, usage, match, host);
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    fb_matcher *m;
    fb_keep keep;
    int64_t group_size, block_size; /* 0: none */
    uint32_t *holders;              /* by tensor: modules' attributes that it is, and nodes that read it by get_attr */
    fb_buffer losses;               /* JSON: of each weight whose bytes are known */
    size_t measured, unknown;
    double squares; /* the sum of their errors' */
} search;

static void count_holder(void *context, fb_tensor tensor) {
    uint32_t *holders = context;
    holders[tensor.id]++;
}

static void count_holders(search *s) {
    const fb_graph *g = s->m->graph;
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next) {
        fb_value_visit_tensors(g, fb_module_at(g, module)->parameters, count_holder, s->holders);
        fb_value_visit_tensors(g, fb_module_at(g, module)->buffers, count_holder, s->holders);
    }
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        fb_node read;
        fb_tensor tensor;
        if (fb_tensor_read_by(g, (fb_value){n.id | FB_VALUE_IS_NODE}, &read, &tensor))
            s->holders[tensor.id] += fb_node_at(g, n)->user_count;
    }
}

/* The dimension of the tensor that has the output channels. */
static int channels_of(const fb_host *host) {
    return host->is_linear ? host->linear.is_packed : host->conv.is_transposed;
}

/* int8 and the scales take fewer bytes than the weight. In groups they do if there is anything. */
static bool saves_bytes(const fb_graph *g, const fb_host *host, bool is_grouped) {
    fb_value shape = fb_tensor_at(g, host->layer.weight)->shape;
    if (is_grouped) return host->inputs > 0 && host->outputs > 0;
    int64_t size = (int64_t)fb_dtype_size(host->dtype), channels = fb_shape_size(g, shape, channels_of(host)), each = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) each *= i == channels_of(host) ? 1 : fb_shape_size(g, shape, i);
    return channels > 0 && each * (size - 1) > size;
}

/* A module's call becomes a function's, which has no padding_mode and no output_size. */
static bool is_only_a_function(const fb_graph *g, const fb_usage *usage, const fb_host *host) {
    fb_value mode = fb_map_value(g, fb_module_at(g, host->layer.module)->config, "padding_mode");
    bool is = !mode.id || (fb_value_kind(g, mode) == FB_STRING && strcmp(fb_value_text(g, mode), "zeros") == 0);
    for (fb_node call = fb_first_call(usage, host->layer.module); call.id && is; call = fb_next_call(usage, call))
        is = fb_argument_count(g, call) == 1;
    return is;
}

static fb_obstacle obstacle_of(const search *s, const fb_host *host) {
    const fb_graph *g = s->m->graph;
    const fb_layer *layer = &host->layer;
    bool is_transposed_alone = !layer->transposition.id || fb_node_at(g, layer->transposition)->user_count == 1;
    uint32_t own = layer->module.id ? 1 : 2;
    if (host->training) return (fb_obstacle){"training-mode", "in training mode weights are still to change"};
    if (!fb_dtype_is_computed(host->dtype))
        return (fb_obstacle){"unsupported-dtype", "its weight is not of a floating dtype that recipes compute with"};
    if (s->holders[layer->weight.id] != own || !is_transposed_alone)
        return (fb_obstacle){"shared-weight", "something else reads the weight too, and would still need it as it is"};
    if (s->group_size && fb_dequantize_takes_vector(g))
        return (fb_obstacle){"unsupported-form", "the weights of an ONNX model are kept in 8 bits alone"};
    fb_obstacle form = fb_dequantize_obstacle(g, host->dtype, s->block_size);
    if (form.code) return form;
    if (s->group_size && !host->is_linear) return (fb_obstacle){"not-linear", "4 bits are for the weights of Linears"};
    if (s->block_size && !host->is_linear) return (fb_obstacle){"not-linear", "blocks are for the weights of Linears"};
    if (s->group_size && host->inputs % s->group_size != 0)
        return (fb_obstacle){"group-size", "the number of its inputs is not a multiple of group_size"};
    if (s->block_size && host->inputs % s->block_size != 0)
        return (fb_obstacle){"group-size", "the number of its inputs is not a multiple of block_size"};
    if (!saves_bytes(g, host, s->group_size || s->block_size))
        return (fb_obstacle){"saves-nothing", "the scales are as large as what int8 saves"};
    if (!host->is_linear && host->conv.is_transposed && host->conv.groups != 1)
        return (fb_obstacle){"grouped", "the groups of a transposed convolution share the dimension of its output channels"};
    if (layer->module.id && !is_only_a_function(g, s->m->usage, host))
        return (fb_obstacle){"unsupported-form",
                             "no function pads as the module does, or it is called with more than its input"};
    return fb_layer_obstacle(s->m, layer);
}

/* ---- the loss to expect -------------------------------------------------------------------------------------------------- */

/* The weight in the numbers that have a scale in common; false: they are not known. */
static bool scaling_of(const search *s, const fb_host *host, fb_scaling *out) {
    const fb_graph *g = s->m->graph;
    fb_value shape = fb_tensor_at(g, host->layer.weight)->shape;
    fb_dtype_range range = {0};
    fb_dtype_limits(host->dtype, &range);
    *out = (fb_scaling){.rows = fb_shape_size(g, shape, 0),
                        .columns = fb_shape_size(g, shape, 1),
                        .within = 1,
                        .by_column = channels_of(host) == 1,
                        .group_size = s->group_size     ? s->group_size
                                      : host->is_linear ? s->block_size
                                                        : 0,
                        .levels = s->group_size ? 7 : 127,
                        .least = s->group_size ? range.smallest_subnormal : 0};
    bool is_known = out->rows > 0 && out->columns > 0;
    for (int i = 2; i < fb_shape_rank(g, shape) && is_known; i++)
        is_known = !__builtin_mul_overflow(out->within, fb_shape_size(g, shape, i), &out->within);
    int64_t all;
    return is_known && !__builtin_mul_overflow(out->rows, out->columns, &all) &&
           !__builtin_mul_overflow(all, out->within, &all);
}

static void add_loss(search *s, const fb_host *host) {
    const fb_graph *g = s->m->graph;
    fb_scaling scaling;
    double error;
    bool is_known = fb_matcher_takes(s->m, 4096) && scaling_of(s, host, &scaling) &&
                    fb_rounding_error(g, host->layer.weight, s->m->blobs, &scaling, &error);
    if (!is_known) {
        s->unknown++;
        return;
    }
    const char *name = fb_tensor_name(g, host->layer.weight);
    fb_buffer_string(&s->losses, s->measured++ ? ",{\"name\":" : "{\"name\":");
    fb_buffer_json_string(&s->losses, name, strlen(name));
    fb_buffer_printf(&s->losses, ",\"relative_error\":%.3g}", error);
    s->squares += error * error;
}

/* Noise of layers adds up, relative to what they give, as if they had nothing to do with each other (Lin, Talathi and
 * Annapureddy 2016, "Fixed Point Quantization of Deep Convolutional Networks": 1/SQNR of the output is the sum of the layers').
 * A result with noise of the relative size e at right angles to it has the cosine 1 / √(1 + e²). Not said of some of the
 * matches, which a call has chosen. */
static void tell_loss(search *s) {
    fb_buffer text = {0};
    if (!s->measured || s->m->report->chosen) return;
    fb_buffer_printf(&text, "{\"relative_error\":%.3g,\"cosine_distance\":%.3g,\"unknown\":%zu,\"tensors\":[", sqrt(s->squares),
                     1 - 1 / sqrt(1 + s->squares), s->unknown);
    fb_buffer_append(&text, s->losses.data, s->losses.size);
    fb_buffer_string(&text, "]}");
    const char *told = fb_buffer_text(&text);
    s->m->report->expected_loss = told ? fb_arena_text(s->m->arena, told, text.size) : NULL;
    s->m->failed |= !s->m->report->expected_loss || s->losses.failed;
    fb_buffer_free(&text);
}

static void look_at(search *s, fb_node n) {
    fb_host host;
    if (!fb_host_at(s->m->graph, n, &host)) return;
    const fb_layer *layer = &host.layer;
    if (layer->module.id && fb_first_call(s->m->usage, layer->module).id != n.id) return;
    bool is_kept = fb_keeps(&s->keep, s->m->graph, n);
    if (layer->transposition.id) is_kept |= fb_keeps(&s->keep, s->m->graph, layer->transposition);
    if (layer->origin.id != n.id && !layer->module.id) is_kept |= fb_keeps(&s->keep, s->m->graph, layer->origin);
    if (is_kept) return;
    fb_obstacle obstacle = obstacle_of(s, &host);
    if (obstacle.code) {
        fb_refuse_for(s->m, obstacle, &n, 1);
        return;
    }
    add_loss(s, &host);
    fb_match_found(s->m, &n, 1);
}

static void match_graph(fb_matcher *m) {
    search s = {.m = m,
                .group_size = group_size_of(m->params),
                .block_size = block_size_of(m->graph, m->params),
                .holders = calloc((size_t)fb_tensor_limit(m->graph) + 1, sizeof *s.holders)};
    m->failed |= !fb_keep_begin(&s.keep, m->params) || !s.holders;
    if (!m->failed) count_holders(&s);
    if (!s.group_size && json_object_get(m->params, "group_size"))
        fb_refuse(m, "unused-parameter", NULL, 0, "group_size is for 4 bits");
    if (!s.block_size && json_object_get(m->params, "block_size"))
        fb_refuse(m, "unused-parameter", NULL, 0, "block_size is for ONNX models");
    for (fb_node n = fb_first_node(m->graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(m->graph, n))
        look_at(&s, n);
    if (!m->failed) fb_refuse_unused_keeps(&s.keep, m);
    if (!m->failed) tell_loss(&s);
    fb_buffer_free(&s.losses);
    fb_keep_end(&s.keep);
    free(s.holders);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value number(fb_graph *g, double value) {
    return fb_recipe_full(g, NULL, 0, fb_make_float(g, value));
}

static fb_value channel_scale_recipe(fb_graph *g, const fb_host *host) {
    int64_t dims[FB_RECIPE_MAX_RANK];
    size_t count = 0;
    for (int i = 0; i < fb_shape_rank(g, fb_tensor_at(g, host->layer.weight)->shape); i++) {
        if (i != channels_of(host)) dims[count++] = i;
    }
    fb_value largest = fb_recipe_absmax(g, fb_recipe_tensor(g, host->layer.weight), dims, count);
    return fb_recipe_div(g, largest, number(g, 127));
}

/* A new tensor of the module, read before the layer's call. */
static fb_node put(fb_rewrite *rw, const fb_match *match, const fb_layer *layer, fb_module owner, const char *attribute,
                   fb_value recipe, fb_dtype dtype, fb_tensor *tensor) {
    fb_buffer name = {0};
    const char *text = fb_free_attribute(rw, owner, attribute, &name);
    if (!text) *tensor = (fb_tensor){0};
    else if (match->pass->version > 1) *tensor = fb_put_weight(rw, owner, text, recipe, dtype, false);
    else *tensor = fb_put_parameter(rw, owner, text, recipe, dtype, false);
    fb_node read = tensor->id ? fb_insert_read(rw, layer->module.id ? layer->call : layer->origin, owner, text) : (fb_node){0};
    fb_buffer_free(&name);
    return read;
}

/* ---- in 4 bits ---- */

/* The weight with its inputs in groups. */
typedef struct grouped {
    int64_t sizes[3];
    int axis; /* of the inputs of a group */
} grouped;

static grouped in_groups(const fb_host *host, int64_t group_size) {
    int64_t groups = host->inputs / group_size;
    if (host->linear.is_packed) return (grouped){{groups, group_size, host->outputs}, 1};
    return (grouped){{host->outputs, groups, group_size}, 2};
}

static fb_value group_scale_recipe(fb_graph *g, const fb_host *host, const grouped *to, fb_dtype dtype) {
    fb_value weight = fb_recipe_reshape(g, fb_recipe_tensor(g, host->layer.weight), to->sizes, 3);
    fb_value largest = fb_recipe_absmax(g, weight, (int64_t[]){to->axis}, 1);
    fb_dtype_range range;
    fb_dtype_limits(dtype, &range);
    return fb_recipe_add(g, fb_recipe_div(g, largest, number(g, 7)), number(g, range.smallest_subnormal));
}

static fb_value pairs_recipe(fb_graph *g, const fb_host *host, const grouped *to, fb_value scale) {
    fb_value weight = fb_recipe_reshape(g, fb_recipe_tensor(g, host->layer.weight), to->sizes, 3), halves[2];
    int64_t half = to->sizes[to->axis] / 2;
    for (int i = 0; i < 2; i++) {
        fb_value part = fb_recipe_slice(g, weight, to->axis, i * half, (i + 1) * half);
        halves[i] = fb_recipe_round(g, fb_recipe_div(g, part, scale));
    }
    return fb_recipe_add(g, halves[0], fb_recipe_mul(g, halves[1], number(g, 16)));
}

static fb_value insert(fb_rewrite *rw, const fb_layer *layer, fb_made made, fb_value args, fb_value kwargs) {
    return fb_make_node(fb_rewrite_graph(rw), fb_build(rw, layer->call, made, args, kwargs));
}

/* The numbers that `pairs` holds, in groups, before the layer's call. */
static fb_value insert_numbers(fb_rewrite *rw, const fb_layer *layer, const grouped *from, fb_value pairs) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value none = {0}, sixteen = fb_map_with(g, FB_VALUE_EMPTY_MAP, "alpha", fb_make_int(g, 16));
    fb_value high = insert(rw, layer, FB_MADE_ADD, FB_ARGS(g, pairs, fb_make_int(g, 8)), none);
    high = insert(rw, layer, FB_MADE_SHIFT_RIGHT, FB_ARGS(g, high, fb_make_int(g, 4)), none);
    fb_value low = insert(rw, layer, FB_MADE_SUB, FB_ARGS(g, pairs, high), sixteen);
    fb_value both = FB_ARGS(g, FB_ARGS(g, low, high), fb_make_int(g, from->axis));
    return insert(rw, layer, FB_MADE_CAT, both, none);
}

static fb_value insert_reshaped(fb_rewrite *rw, const fb_layer *layer, fb_value numbers) {
    fb_graph *g = fb_rewrite_graph(rw);
    return insert(rw, layer, FB_MADE_RESHAPE, FB_ARGS(g, numbers, fb_tensor_at(g, layer->weight)->shape), (fb_value){0});
}

static fb_node put_groups(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner, int64_t group_size) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    grouped to = in_groups(host, group_size);
    fb_tensor scale, pairs;
    fb_value recipe = group_scale_recipe(g, host, &to, host->dtype);
    fb_node scale_read = put(rw, match, layer, owner, "weight_scale", recipe, host->dtype, &scale);
    recipe = pairs_recipe(g, host, &to, fb_recipe_tensor(g, scale));
    fb_node read = put(rw, match, layer, owner, "weight_int4", recipe, FB_INT8, &pairs);
    fb_value numbers = insert_numbers(rw, layer, &to, fb_make_node(g, read));
    numbers = insert(rw, layer, FB_MADE_MUL, FB_ARGS(g, numbers, fb_make_node(g, scale_read)), (fb_value){0});
    return fb_value_node(g, insert_reshaped(rw, layer, numbers));
}

/* ---- in 8 bits ---- */

/* The scales in one dimension. */
static fb_value scale_vector_recipe(fb_graph *g, const fb_host *host) {
    int64_t channels = fb_shape_size(g, fb_tensor_at(g, host->layer.weight)->shape, channels_of(host));
    return fb_recipe_reshape(g, channel_scale_recipe(g, host), &channels, 1);
}

/* These again, beside the weight. */
static fb_value spread(fb_graph *g, const fb_host *host, fb_value scale) {
    int64_t sizes[FB_RECIPE_MAX_RANK];
    fb_value shape = fb_tensor_at(g, host->layer.weight)->shape;
    int rank = fb_shape_rank(g, shape);
    for (int i = 0; i < rank; i++) sizes[i] = i == channels_of(host) ? fb_shape_size(g, shape, i) : 1;
    return fb_recipe_reshape(g, scale, sizes, (size_t)rank);
}

static fb_node put_int8(fb_rewrite *rw, const fb_match *match, const fb_layer *layer, fb_module owner, fb_value scale) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_tensor numbers;
    fb_value recipe = fb_recipe_div(g, fb_recipe_tensor(g, layer->weight), scale);
    return put(rw, match, layer, owner, "weight_int8", recipe, FB_INT8, &numbers);
}

/* The weight again, before the layer's call. */
static fb_node put_channels(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    fb_tensor scale;
    bool is_vector = fb_dequantize_takes_vector(g);
    fb_value recipe = is_vector ? scale_vector_recipe(g, host) : channel_scale_recipe(g, host);
    fb_node scale_read = put(rw, match, layer, owner, "weight_scale", recipe, host->dtype, &scale);
    fb_value beside = fb_recipe_tensor(g, scale);
    fb_node read = put_int8(rw, match, layer, owner, is_vector ? spread(g, host, beside) : beside);
    fb_value made =
        fb_build_dequantized(rw, layer->module.id ? layer->call : layer->origin, fb_make_node(g, read),
                             fb_make_node(g, scale_read), channels_of(host), 0, fb_tensor_at(g, layer->weight)->shape);
    return fb_value_node(g, made);
}

/* The same with one scale for each block of inputs. */
static fb_node put_blocks(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner, int64_t block) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    grouped to = in_groups(host, block);
    int axis = host->linear.is_packed ? 0 : 1;
    fb_value shape = fb_tensor_at(g, layer->weight)->shape;
    int64_t sizes[2] = {fb_shape_size(g, shape, 0), fb_shape_size(g, shape, 1)}, scales[2] = {sizes[0], sizes[1]};
    fb_tensor scale, numbers;
    scales[axis] /= block;
    fb_value weight = fb_recipe_reshape(g, fb_recipe_tensor(g, layer->weight), to.sizes, 3);
    fb_value largest = fb_recipe_div(g, fb_recipe_absmax(g, weight, (int64_t[]){to.axis}, 1), number(g, 127));
    fb_value recipe = fb_recipe_reshape(g, largest, scales, 2);
    fb_node scale_read = put(rw, match, layer, owner, "weight_scale", recipe, host->dtype, &scale);
    to.sizes[to.axis] = 1;
    recipe = fb_recipe_div(g, weight, fb_recipe_reshape(g, fb_recipe_tensor(g, scale), to.sizes, 3));
    fb_node read = put(rw, match, layer, owner, "weight_int8", fb_recipe_reshape(g, recipe, sizes, 2), FB_INT8, &numbers);
    return fb_value_node(
        g, fb_build_dequantized(rw, layer->origin, fb_make_node(g, read), fb_make_node(g, scale_read), axis, block, shape));
}

/* ---- packed ---- */

/* The weight as an operator of PyTorch takes it. */
typedef struct packed {
    int64_t group_size; /* 0: in 8 bits */
    fb_value numbers, scale;
} packed;

/* The scales have one dimension. */
static void put_packed_channels(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner, packed *out) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    fb_tensor scale;
    fb_value recipe = scale_vector_recipe(g, host);
    out->scale = fb_make_node(g, put(rw, match, layer, owner, "weight_scale", recipe, FB_BFLOAT16, &scale));
    out->numbers = fb_make_node(g, put_int8(rw, match, layer, owner, spread(g, host, fb_recipe_tensor(g, scale))));
}

/* By group and output a scale and what is added, 0. The numbers go from 1 to 15 there. */
static void put_packed_groups(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner, packed *out) {
    static const int64_t turned[3] = {1, 0, 2};
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    grouped to = in_groups(host, out->group_size);
    fb_tensor scale, pairs;
    fb_value none = {0}, both[2] = {fb_recipe_permute(g, group_scale_recipe(g, host, &to, FB_BFLOAT16), turned, 3),
                                    fb_recipe_full(g, (int64_t[]){to.sizes[1], to.sizes[0], 1}, 3, fb_make_float(g, 0))};
    fb_value recipe = fb_recipe_concat(g, 2, both, 2);
    out->scale = fb_make_node(g, put(rw, match, layer, owner, "weight_scale", recipe, FB_BFLOAT16, &scale));
    recipe = fb_recipe_permute(g, fb_recipe_slice(g, fb_recipe_tensor(g, scale), 2, 0, 1), turned, 3);
    fb_node read = put(rw, match, layer, owner, "weight_int4", pairs_recipe(g, host, &to, recipe), FB_INT8, &pairs);
    fb_value numbers = insert_reshaped(rw, layer, insert_numbers(rw, layer, &to, fb_make_node(g, read)));
    numbers = insert(rw, layer, FB_MADE_ADD, FB_ARGS(g, numbers, fb_make_int(g, 8)), none);
    numbers = insert(rw, layer, FB_MADE_CAST, FB_ARGS(g, numbers, FB_TEXT(g, FB_DTYPE, "int32")), none);
    out->numbers = insert(rw, layer, FB_MADE_INT4PACK, FB_ARGS(g, numbers, fb_make_int(g, 1)), none);
}

static packed put_packed(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner) {
    packed made = {.group_size = group_size_of(match->params)};
    if (made.group_size) put_packed_groups(rw, match, host, owner, &made);
    else put_packed_channels(rw, match, host, owner, &made);
    return made;
}

/* The last call of a chain is the node that the layer's call was, so it waits until a further one makes it a node of its own.
 */
typedef struct chain {
    fb_rewrite *rw;
    fb_node call;
    bool waits;
    fb_made made;
    fb_value args;
} chain;

static fb_value flush(chain *c, fb_value input) {
    if (!c->waits) return input;
    return fb_make_node(fb_rewrite_graph(c->rw), fb_build(c->rw, c->call, c->made, c->args, (fb_value){0}));
}

static void then(chain *c, fb_made made, fb_value args) {
    c->waits = true;
    c->made = made;
    c->args = args;
}

static void then_cast(chain *c, fb_value input, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(c->rw);
    fb_value to = FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype));
    then(c, FB_MADE_CAST, FB_ARGS(g, flush(c, input), to));
}

/* A call of the Linear becomes the chain of the comment at the top. */
static void pack_call(fb_rewrite *rw, const fb_host *host, fb_node call, const packed *weight, fb_value bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    chain c = {.rw = rw, .call = call};
    fb_value x = fb_call_argument(g, call, "input"), one = fb_make_int(g, -1);
    int rank = fb_shape_rank(g, fb_node_at(g, fb_value_node(g, x))->shape);
    if (rank > 2) {
        fb_value sizes = FB_ARGS(g, one, fb_make_int(g, host->inputs));
        then(&c, FB_MADE_RESHAPE, FB_ARGS(g, x, sizes));
    }
    if (host->dtype != FB_BFLOAT16) then_cast(&c, x, FB_BFLOAT16);
    then(&c, FB_MADE_CONTIGUOUS, FB_ARGS(g, flush(&c, x)));
    fb_value rows = flush(&c, x);
    if (weight->group_size)
        then(&c, FB_MADE_INT4PACK_MM, FB_ARGS(g, rows, weight->numbers, fb_make_int(g, weight->group_size), weight->scale));
    else then(&c, FB_MADE_INT8PACK_MM, FB_ARGS(g, rows, weight->numbers, weight->scale));
    if (host->dtype != FB_BFLOAT16) then_cast(&c, x, host->dtype);
    if (rank > 2) then(&c, FB_MADE_UNFLATTEN, fb_unflatten_args(rw, call, flush(&c, x), x));
    if (bias.id && bias.id != FB_VALUE_NONE.id) then(&c, FB_MADE_ADD, FB_ARGS(g, flush(&c, x), bias));
    fb_build_over(rw, call, c.made, c.args, FB_VALUE_EMPTY_MAP);
    fb_mark(rw, call);
}

static fb_node put_weight(fb_rewrite *rw, const fb_match *match, const fb_host *host, fb_module owner) {
    int64_t group_size = group_size_of(match->params), block_size = block_size_of(fb_rewrite_graph(rw), match->params);
    if (block_size) return put_blocks(rw, match, host, owner, block_size);
    return group_size ? put_groups(rw, match, host, owner, group_size) : put_channels(rw, match, host, owner);
}

/* The options of a convolution's module, as a function takes them. */
static fb_value options_of(fb_graph *g, fb_module module) {
    static const char *const names[] = {"stride", "padding", "output_padding", "groups", "dilation"};
    fb_value options = FB_VALUE_EMPTY_MAP, config = fb_module_at(g, module)->config;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fb_value option = fb_map_value(g, config, names[i]);
        if (option.id) options = fb_map_with(g, options, names[i], option);
    }
    return options;
}

/* All calls of the module become calls of the function, which reads what the module still has. */
static void edit_module(fb_rewrite *rw, const fb_match *match, const fb_host *host) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_layer *layer = &host->layer;
    fb_usage *usage = fb_usage_new(g);
    fb_buffer target = {0};
    fb_op_functional_target(fb_node_op(g, layer->call), &target);
    const char *text = fb_buffer_text(&target);
    if (!usage || !text) fb_graph_fail_memory(g);
    bool is_packed = usage && is_to_be_packed(g, usage, match, host);
    fb_value options = host->is_linear ? FB_VALUE_EMPTY_MAP : options_of(g, layer->module);
    fb_set_module(rw, layer->module, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP);
    fb_drop_attribute(rw, layer->module, "weight");
    if (!layer->bias.id) fb_drop_attribute(rw, layer->module, "bias");
    packed packed_weight = is_packed ? put_packed(rw, match, host, layer->module) : (packed){0};
    fb_node weight = is_packed ? (fb_node){0} : put_weight(rw, match, host, layer->module);
    fb_node bias_read = layer->bias.id ? fb_insert_read(rw, layer->call, layer->module, "bias") : (fb_node){0};
    fb_value bias = bias_read.id ? fb_make_node(g, bias_read) : FB_VALUE_NONE;
    for (fb_node call = usage && text ? layer->call : (fb_node){0}; call.id; call = fb_next_call(usage, call)) {
        if (is_packed) {
            pack_call(rw, host, call, &packed_weight, bias);
            continue;
        }
        fb_value input = fb_call_argument(g, call, "input");
        fb_set_target(rw, call, FB_CALL_FUNCTION, text);
        fb_set_args(rw, call, FB_ARGS(g, input, fb_make_node(g, weight), bias), options);
        fb_mark(rw, call);
    }
    fb_buffer_free(&target);
    fb_usage_free(usage);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_host host;
    if (!fb_host_at(g, match->nodes[0], &host)) return;
    const fb_layer *layer = &host.layer;
    if (layer->module.id) {
        edit_module(rw, match, &host);
        return;
    }
    fb_module owner = fb_node_at(g, layer->weight_read)->module;
    if (fb_dialect_facts_of(g)->has_one_owner)
        owner = fb_put_module(rw, owner, fb_node_name(g, layer->weight_read), FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP, false);
    if (fb_module_op(g, owner) != FB_OP_UNKNOWN) fb_set_module(rw, owner, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP);
    if (is_to_be_packed(g, NULL, match, &host)) {
        packed weight = put_packed(rw, match, &host, owner);
        pack_call(rw, &host, layer->call, &weight, fb_call_argument(g, layer->call, "bias"));
        fb_release_read(rw, layer->weight_read);
        return;
    }
    fb_node weight = put_weight(rw, match, &host, owner);
    if (weight.id && layer->transposition.id) weight = fb_transpose_again(rw, layer, weight);
    if (weight.id) fb_give_argument(rw, layer->origin, layer->weight_parameter, fb_make_node(g, weight));
    if (layer->transposition.id) fb_erase_unread(rw, layer->transposition);
    fb_release_read(rw, layer->weight_read);
    fb_mark(rw, layer->call);
}

/* Version 1 made the int8 tensors parameters. Version 2 packed weights over a million on 8 rows or fewer alone. Version 3
 * packed none in 4 bits. */
#define QUANTIZE_WEIGHTS(number, before)                                                                                       \
    {                                                                                                                          \
        .name = "QuantizeWeights", .version = number, .earlier = before,                                                       \
        .summary = "Keeps the weights of Linears and convolutions as int8, with one scale for each output channel, or "        \
                   "Linears' weights in 4 bits, with one scale for each group of inputs; except what `keep` names.",           \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{"                                                                 \
            "\"bits\":{\"default\":8,\"description\":\"how many each number of a weight takes\",\"enum\":[4,8],\"type\":"      \
            "\"integer\"},\"block_size\":{\"description\":\"of ONNX models: how many inputs of a Linear have a scale in "      \
            "common; without it, all\",\"enum\":[16,32,64,128,256],\"type\":\"integer\"},\"form\":{\"description\":\"of "      \
            "Linears: portable makes the weight again at every call, packed computes from int8 in bfloat16, or from 4 bits "   \
            "after the client's pack; by default in 8 bits what is faster for `tokens`, in 4 bits "                            \
            "portable\",\"enum\":[\"portable\","                                                                               \
            "\"packed\"],\"type\":\"string\"},"                                                                                \
            "\"group_size\":{\"default\":128,\"description\":\"with 4 bits: how many inputs have a scale in common\","         \
            "\"enum\":[32,64,128],\"type\":\"integer\"},\"keep\":{\"default\":[],\"description\":\"what stays as it "          \
            "is: paths of modules, in which * and ? stand for others, and operators such as linear or conv2d\","               \
            "\"items\":{\"type\":\"string\"},\"type\":\"array\"},\"tokens\":{\"description\":\"how many rows a Linear gets "   \
            "at "                                                                                                              \
            "most; without it, many\",\"minimum\":1,\"type\":\"integer\"}},\"type\":\"object\"}",                              \
        .exactness = FB_CHANGES, .gain = FB_GAIN_SMALLER, .reversible = false, .preserves_computation = false,                 \
        .reads_onnx = true, .match_graph = match_graph, .edit = edit,                                                          \
    }

static const fb_pass version_1 = QUANTIZE_WEIGHTS(1, NULL);
static const fb_pass version_2 = QUANTIZE_WEIGHTS(2, &version_1);
static const fb_pass version_3 = QUANTIZE_WEIGHTS(3, &version_2);
const fb_pass fb_quantize_weights = QUANTIZE_WEIGHTS(4, &version_3);
