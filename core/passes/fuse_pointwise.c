/* FusePointwise: a convolution or Linear, and what is computed of its result element by element, become one call of oneDNN.
 *
 *     x ── Conv ── ReLU ── y              x ── _convolution_pointwise(·, W, b, …, "relu") ── y
 *     x ── Conv ── + z ── ReLU ── y       x ── _convolution_pointwise(·, z, W, b, …, "add", …, "relu") ── y
 *     x ── Linear ── GELU ── y            x ── _linear_pointwise(·, W, b, "gelu") ── y
 *
 * These operators of torch.ops.mkldnn are for a CPU alone, in float32 and bfloat16. They take weights as they are, and faster
 * in an order of oneDNN's own: the Python client's `pack` lays them out so in the program that is run. Documents, archives and
 * files keep plain weights. A convolution of images in two dimensions becomes such a call in any case, for the sake of its
 * weight. What follows it is ReLU, ReLU6 or another Hardtanh, SiLU, Hardswish or GELU; or the addition of an image of the same
 * shape, and ReLU behind that. In bfloat16 that ReLU stays, as PyTorch lacks the two together for some layouts; and nothing is
 * added to a convolution in groups. A module becomes a function, which reads what the module still has.
 *
 * PyTorch has no derivative of these operators: such a model is not to be trained, and a backward pass gives its weights none.
 * The result is the same for finite numbers. oneDNN's ReLU and Hardtanh make 0, or the least, of a nan, which PyTorch's keep,
 * and some of its kernels give the largest number for infinity: a model that computes nan does not show it any more.
 *
 * Refused:
 *   - unsupported-dtype, dtype: it is neither float32 nor bfloat16, or its input has another dtype than its weight
 *   - unknown-shape, unknown-dtype: not recorded
 *   - unsupported-form: it pads with more than zeros, or one side more than the other
 *   - shared-module, module-read, reparametrised, nested-call, tensor-mutated: the module cannot become a function
 *   - training-mode
 *   - input-mutated, mode-switched: between the calls that become one
 *   - needs-contiguous and others of ChannelsLast: a reader may notice that the image is in channels_last then
 *   - more-work: a Linear of few rows is slower so
 *
 * Exactness: rounds. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/layout_effects.h"
#include "core/analysis/shape.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"

/* With fewer rows a Linear is slower: on one thread of PyTorch 2.13. */
#define LEAST_ROWS 16

/* Calls that become one: the layer's, the addition's and the activation's, each of which alone reads the one before. */
typedef struct found {
    fb_node layer, sum, activation; /* the last two: or none */
    fb_value other;                 /* what is added */
} found;

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    const fb_layout_effects *layouts;
    bool *is_taken; /* by node: an addition or activation that a layer takes in */
    found *founds;  /* by the layer's node */
} search;

static fb_node last_of(const found *f) {
    return f->activation.id ? f->activation : f->sum.id ? f->sum : f->layer;
}

static fb_op op_of(const fb_graph *g, fb_node n) {
    return fb_node_op(g, n) & (fb_op)~FB_OP_IN_PLACE;
}

/* ---- activations --------------------------------------------------------------------------------------------------------- */

/* oneDNN's words, and the numbers and the formula that go with them. */
typedef struct activation {
    const char *word, *algorithm;
    double scalars[2];
    size_t count;
} activation;

static bool activation_at(const fb_graph *g, fb_node n, activation *out) {
    fb_shape_call call = {.graph = g, .node = n, .op = op_of(g, n), .is_module = fb_node_at(g, n)->opcode == FB_CALL_MODULE};
    *out = (activation){.word = fb_op_facts_of(call.op)->onednn, .algorithm = ""};
    if (!out->word) return false;
    if (strcmp(out->word, "hardtanh") == 0) {
        fb_value least = fb_option(&call, "min_val"), most = fb_option(&call, "max_val");
        bool is_relu6 = call.op == FB_OP_RELU6;
        *out = (activation){out->word, "", {is_relu6 ? 0 : -1, is_relu6 ? 6 : 1}, 2};
        return (!least.id || fb_value_is_number(g, least, &out->scalars[0])) &&
               (!most.id || fb_value_is_number(g, most, &out->scalars[1])) && out->scalars[0] <= out->scalars[1];
    }
    if (strcmp(out->word, "gelu") != 0) return true;
    fb_value formula = fb_option(&call, "approximate");
    out->algorithm = formula.id ? fb_value_text(g, formula) : "none";
    return out->algorithm && (strcmp(out->algorithm, "none") == 0 || strcmp(out->algorithm, "tanh") == 0);
}

/* ---- what follows a layer ------------------------------------------------------------------------------------------------ */

static fb_node sole_reader(const search *s, fb_node n) {
    bool is_one = fb_node_at(s->graph, n)->user_count == 1;
    fb_node reader = is_one ? fb_edge_user(s->graph, fb_user_first(s->graph, n)) : (fb_node){0};
    return reader.id && !s->is_taken[reader.id] && fb_mentions_of(s->graph, reader, n) == 1 ? reader : (fb_node){0};
}

static bool has_type_of(const fb_graph *g, fb_node n, fb_node like) {
    return fb_node_at(g, n)->dtype == fb_node_at(g, like)->dtype && fb_node_at(g, n)->shape.id == fb_node_at(g, like)->shape.id;
}

static void find_activation(const search *s, found *f) {
    activation which;
    fb_node before = last_of(f), n = sole_reader(s, before);
    if (!n.id || !activation_at(s->graph, n, &which) || !has_type_of(s->graph, n, before)) return;
    if (f->sum.id && (strcmp(which.word, "relu") != 0 || fb_node_at(s->graph, n)->dtype != FB_FLOAT32)) return;
    f->activation = n;
}

/* a + b, of which one is the layer's result; in place only into that. */
static void find_sum(const search *s, found *f) {
    const fb_graph *g = s->graph;
    fb_node n = sole_reader(s, f->layer);
    if (!n.id || op_of(g, n) != FB_OP_ADD || !has_type_of(g, n, f->layer)) return;
    fb_value a, b;
    if (!fb_two_operands(g, n, &a, &b)) return;
    bool is_first = fb_value_node(g, a).id == f->layer.id;
    fb_node other = fb_value_node(g, is_first ? b : a);
    if (!other.id || !has_type_of(g, other, f->layer) || (!is_first && fb_op_effects(g, n).mutates_input)) return;
    f->sum = n;
    f->other = is_first ? b : a;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* As many zeros on both sides: `padding`, in its words as well. */
static bool read_padding(const fb_shape_call *call, const fb_conv *conv, int64_t out[2]) {
    const fb_graph *g = call->graph;
    fb_value given = fb_option(call, "padding"), mode = call->is_module ? fb_option(call, "padding_mode") : (fb_value){0};
    if (mode.id && (fb_value_kind(g, mode) != FB_STRING || strcmp(fb_value_text(g, mode), "zeros") != 0)) return false;
    if (!given.id || fb_value_kind(g, given) != FB_STRING) return fb_option_ints(call, "padding", 0, 2, out);
    bool is_same = strcmp(fb_value_text(g, given), "same") == 0;
    int64_t dilation[2];
    if (!fb_option_ints(call, "dilation", 1, 2, dilation)) return false;
    for (int i = 0; i < 2; i++) {
        int64_t kernel = fb_shape_size(g, fb_tensor_at(g, conv->weight)->shape, 2 + i), both = dilation[i] * (kernel - 1);
        if (is_same && both % 2) return false;
        out[i] = is_same ? both / 2 : 0;
    }
    return is_same || strcmp(fb_value_text(g, given), "valid") == 0;
}

static bool is_candidate(const search *s, fb_node n, fb_host *host) {
    const fb_graph *g = s->graph;
    if (!fb_host_at(g, n, host)) return false;
    if (host->is_linear) return fb_op_is(g, n, FB_OP_LINEAR) && !host->linear.is_packed && !host->layer.transposition.id;
    return host->conv.spatial == 2 && !host->conv.is_transposed;
}

static fb_obstacle type_obstacle(const fb_graph *g, const fb_host *host, fb_node n, fb_node input) {
    const fb_node_row *row = fb_node_at(g, n), *from = fb_node_at(g, input);
    int rank = fb_shape_rank(g, row->shape);
    if (host->dtype != FB_FLOAT32 && host->dtype != FB_BFLOAT16)
        return (fb_obstacle){"unsupported-dtype", "oneDNN has it in float32 and bfloat16"};
    if (!row->dtype || !from->dtype)
        return (fb_obstacle){"unknown-dtype", "the dtype of what it reads or gives is not recorded" FB_RECORD_DTYPE};
    if ((fb_dtype)row->dtype != host->dtype || (fb_dtype)from->dtype != host->dtype)
        return (fb_obstacle){"dtype", "what it reads or gives has another dtype than its weight"};
    if (rank < 0 || fb_shape_rank(g, from->shape) < 0)
        return (fb_obstacle){"unknown-shape", "the shape of what it reads or gives is not recorded" FB_RECORD_SHAPE};
    if (!host->is_linear && rank != 4) return (fb_obstacle){"unsupported-form", "it is called without a batch"};
    return FB_NO_OBSTACLE;
}

static fb_obstacle rows_obstacle(const fb_graph *g, fb_node n) {
    fb_value shape = fb_node_at(g, n)->shape;
    int64_t rows = 1;
    for (int i = 0; i + 1 < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0) return (fb_obstacle){"unknown-shape", "how many rows it gets is not recorded as a number"};
        if (__builtin_mul_overflow(rows, size, &rows)) rows = INT64_MAX;
    }
    return rows < LEAST_ROWS ? (fb_obstacle){"more-work", "a Linear of few rows is slower so"} : FB_NO_OBSTACLE;
}

static fb_obstacle module_obstacle(fb_matcher *m, const fb_layer *layer) {
    if (fb_layer_call_count(m->usage, layer) != 1)
        return (fb_obstacle){"shared-module", "the module is called more than once, and would become a function"};
    return fb_module_obstacle(m, layer->module);
}

static fb_obstacle weight_obstacle(fb_matcher *m, const fb_host *host) {
    const fb_layer *layer = &host->layer;
    const fb_alias *alias = fb_matcher_writes(m);
    if (!alias) return FB_OUT_OF_MEMORY;
    if (host->training) return (fb_obstacle){"training-mode", "PyTorch has no derivative of oneDNN's operator"};
    if (layer->module.id) return module_obstacle(m, layer);
    bool is_written =
        fb_tensor_is_mutated(alias, layer->weight) || (layer->bias.id && fb_tensor_is_mutated(alias, layer->bias));
    return is_written ? FB_TENSOR_MUTATED : FB_NO_OBSTACLE;
}

/* All is computed where the last call was. What the calls before it write is their own. */
static fb_obstacle disturbance(fb_matcher *m, const found *f) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_node calls[] = {f->layer, f->sum}, last = last_of(f);
    uint32_t end = fb_node_at(g, last)->ordinal;
    for (size_t i = 0; i < 2; i++) {
        uint32_t begin = calls[i].id ? fb_node_at(g, calls[i])->ordinal : end;
        for (uint32_t e = calls[i].id ? fb_input_first(g, calls[i]) : 0; e; e = fb_input_next(g, e)) {
            fb_node input = fb_edge_input(g, e);
            if (input.id != f->layer.id && fb_mutated_between(alias, input, begin, end))
                return (fb_obstacle){"input-mutated", "what it reads is written in place before the last of the calls"};
        }
    }
    return fb_mode_switched_between(alias, fb_node_at(g, f->layer)->ordinal, end)
               ? (fb_obstacle){"mode-switched", "autograd or another mode is switched between the calls"}
               : FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of(search *s, const fb_host *host, const found *f) {
    const fb_graph *g = s->graph;
    fb_shape_call call = fb_shape_call_of(g, f->layer);
    int64_t padding[2], option[2];
    fb_obstacle why = type_obstacle(g, host, f->layer, fb_call_argument_node(g, f->layer, "input"));
    if (!why.code && host->is_linear) why = rows_obstacle(g, f->layer);
    if (!why.code && !host->is_linear &&
        (!read_padding(&call, &host->conv, padding) || !fb_option_ints(&call, "stride", 1, 2, option) ||
         !fb_option_ints(&call, "dilation", 1, 2, option)))
        why = (fb_obstacle){"unsupported-form", "it pads with more than zeros, or one side more than the other"};
    if (!why.code) why = weight_obstacle(s->m, host);
    if (!why.code) why = disturbance(s->m, f);
    if (!why.code && !host->is_linear) why = fb_layout_dependent(s->layouts, last_of(f)).why;
    return why;
}

/* The calls that may become one with the layer. */
static void find(search *s, fb_node n) {
    fb_host host;
    found f = {.layer = n};
    if (!is_candidate(s, n, &host)) return;
    if (!host.is_linear && host.conv.groups == 1) find_sum(s, &f);
    find_activation(s, &f);
    activation which;
    bool is_gelu = f.activation.id && activation_at(s->graph, f.activation, &which) && strcmp(which.word, "gelu") == 0;
    if (host.is_linear && !is_gelu) return;
    s->is_taken[f.sum.id] = s->is_taken[f.activation.id] = true;
    s->founds[n.id] = f;
}

static void report(search *s, fb_node n) {
    const found *f = &s->founds[n.id];
    fb_host host;
    if (!f->layer.id || !fb_host_at(s->graph, n, &host)) return;
    fb_obstacle why = obstacle_of(s, &host, f);
    fb_node nodes[3] = {f->layer};
    size_t count = 1;
    if (f->sum.id) nodes[count++] = f->sum;
    if (f->activation.id) nodes[count++] = f->activation;
    if (why.code) fb_refuse_for(s->m, why, nodes, count);
    else fb_match_found_as(s->m, f, sizeof *f);
}

/* Found from the end on: of two convolutions that are added the later one takes in the addition. */
static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    fb_node last = fb_last_node(g, FB_MAIN_PROGRAM);
    fb_host host;
    search s = {.m = m, .graph = g};
    while (last.id && !is_candidate(&s, last, &host)) last = fb_node_at(g, last)->previous;
    if (!last.id) return;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_layout_effects *layouts = alias ? fb_layout_effects_new(g, alias, m->work, 3) : NULL;
    s.layouts = layouts;
    s.is_taken = calloc(fb_node_limit(g), sizeof *s.is_taken);
    s.founds = calloc(fb_node_limit(g), sizeof *s.founds);
    m->failed |= !layouts || !s.is_taken || !s.founds;
    for (fb_node n = last; n.id && fb_matcher_goes_on(m); n = fb_node_at(g, n)->previous) find(&s, n);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) report(&s, n);
    fb_layout_effects_free(layouts);
    free(s.is_taken);
    free(s.founds);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value two(fb_graph *g, const int64_t numbers[2]) {
    return FB_ARGS(g, fb_make_int(g, numbers[0]), fb_make_int(g, numbers[1]));
}

/* One that is not read, where it takes none: torch.export.save of PyTorch 2.13 refuses an empty list of numbers. */
static fb_value scalars_of(fb_graph *g, const activation *a) {
    fb_value numbers[] = {fb_make_float(g, a->scalars[0]), fb_make_float(g, a->scalars[1])};
    return fb_make_list(g, numbers, a->count ? a->count : 1);
}

/* Reads of what the module has: it becomes one without a forward(). */
static void read_module(fb_rewrite *rw, const fb_layer *layer, fb_value *weight, fb_value *bias) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_set_module(rw, layer->module, FB_TYPE_MODULE, FB_VALUE_EMPTY_MAP);
    if (!layer->bias.id) fb_drop_attribute(rw, layer->module, "bias");
    *weight = fb_make_node(g, fb_insert_read(rw, layer->call, layer->module, "weight"));
    if (layer->bias.id) *bias = fb_make_node(g, fb_insert_read(rw, layer->call, layer->module, "bias"));
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const found *f = match->data;
    fb_host host;
    if (!fb_host_at(g, f->layer, &host)) return;
    const fb_layer *layer = &host.layer;
    fb_shape_call call = fb_shape_call_of(g, f->layer);
    fb_value x = fb_call_argument(g, f->layer, "input"), bias = FB_VALUE_NONE, weight, none = FB_VALUE_NONE, window[4] = {{0}};
    activation which = {.word = "none", .algorithm = ""};
    if (f->activation.id) activation_at(g, f->activation, &which);
    if (!host.is_linear) {
        int64_t padding[2], stride[2], dilation[2];
        read_padding(&call, &host.conv, padding);
        fb_option_ints(&call, "stride", 1, 2, stride);
        fb_option_ints(&call, "dilation", 1, 2, dilation);
        window[0] = two(g, padding), window[1] = two(g, stride), window[2] = two(g, dilation);
        window[3] = fb_make_int(g, host.conv.groups);
    }
    weight = (fb_value){layer->weight_read.id | FB_VALUE_IS_NODE};
    if (layer->module.id) read_module(rw, layer, &weight, &bias);
    else if (layer->bias_read.id) bias = (fb_value){layer->bias_read.id | FB_VALUE_IS_NODE};
    fb_value word = FB_TEXT(g, FB_STRING, which.word), scalars = scalars_of(g, &which);
    fb_value algorithm = FB_TEXT(g, FB_STRING, which.algorithm), sum = FB_TEXT(g, FB_STRING, "add");
    fb_node last = last_of(f);
    fb_made made = host.is_linear ? FB_MADE_LINEAR_POINTWISE
                   : f->sum.id    ? FB_MADE_CONV_POINTWISE_BINARY
                                  : FB_MADE_CONV_POINTWISE;
    fb_value args = host.is_linear ? FB_ARGS(g, x, weight, bias, word, scalars, algorithm)
                    : f->sum.id
                        ? FB_ARGS(g, x, f->other, weight, bias, window[0], window[1], window[2], window[3], sum, none,
                                  f->activation.id ? word : none, scalars, algorithm)
                        : FB_ARGS(g, x, weight, bias, window[0], window[1], window[2], window[3], word, scalars, algorithm);
    if (last.id != f->layer.id) fb_release_call(rw, last);
    fb_build_over(rw, last, made, args, FB_VALUE_EMPTY_MAP);
    if (last.id != f->layer.id) fb_erase(rw, f->layer);
    if (f->sum.id && last.id != f->sum.id) fb_erase(rw, f->sum);
    fb_mark(rw, last);
}

const fb_pass fb_fuse_pointwise = {
    .name = "FusePointwise",
    .version = 1,
    .summary = "Makes one call of oneDNN, for a CPU, of a convolution or Linear and the activation or sum behind it.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .gain = FB_GAIN_FASTER,
    .reversible = true,
    .preserves_computation = true,
    .match_graph = match_graph,
    .edit = edit,
};
