/* FoldPad: zeros around a value become the padding of the convolution or average pool that reads it.
 *
 *     x ── pad(1) ── Conv(padding=0) ── y            x ── Conv(padding=1) ── y
 *     x ── pad(1) ── AvgPool(padding=0) ── y         x ── AvgPool(padding=1) ── y
 *
 * pad, constant_pad_nd, ZeroPad and ConstantPad, before a Conv or AvgPool of 1 to 3 dimensions, in both dialects. Padding that
 * the layer has already grows by it. Zeros must be added, as many on each side of a dimension, and only in the dimensions that
 * the window moves over. Nothing else may read the padded value. Each call of a module must read a value that is padded alike.
 *
 * A convolution must pad with zeros. An average pool must count what it pads, must not round its size up, and pads half its
 * kernel at most. A max pool stays: it pads with minus infinity. A convolution that moves along a sequence may lay its result
 * out in the order of what it reads, so its result must not be read by layout, or x must be contiguous.
 * Exactness: moves. (A weight that is not finite gives nan where it meets a zero; a convolution may not compute with its own
 * zeros.) Reversible.
 */
#include "core/analysis/memory_layout.h"
#include "core/analysis/onnx.h"
#include "core/analysis/shape.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"

enum { MAX_SPATIAL = 3 };

/* Zeros before and after each dimension that the window moves over. */
typedef struct sides {
    int64_t before[MAX_SPATIAL], after[MAX_SPATIAL];
} sides;

/* A layer that moves a window over its input: a convolution or a pool. */
typedef struct window {
    fb_layer layer; /* its calls */
    int spatial;
    bool is_pool;
} window;

/* Of ONNX, where each side of a dimension may get another number. */
static bool pads_both_sides(fb_op op) {
    return op == FB_OP_ONNX_CONV || op == FB_OP_ONNX_AVERAGE_POOL;
}

/* ---- pads ---------------------------------------------------------------------------------------------------------------- */

/* The number that a pad fills with is 0, or is not given: then it is 0 as well. */
static bool fills_with_zeros(const fb_shape_call *call) {
    double number;
    fb_value value = fb_option(call, "value");
    if (fb_is_absent(call->graph, value)) return call->op != FB_OP_CONSTANT_PAD_LAYER;
    return fb_value_is_number(call->graph, value, &number) && number == 0;
}

static bool is_word(const fb_graph *g, fb_value value, const char *word) {
    return fb_value_kind(g, value) == FB_STRING && strcmp(fb_value_text(g, value), word) == 0;
}

/* Before opset 11 the number is an attribute. */
static bool is_zero_pad_of_onnx(const fb_graph *g, fb_node n) {
    double number = 0;
    fb_value mode = fb_node_kwarg(g, n, "mode"), said = fb_node_kwarg(g, n, "value"), given = fb_call_argument(g, n, "value");
    if (mode.id && !is_word(g, mode, "constant")) return false;
    if (said.id) return fb_value_is_number(g, said, &number) && number == 0;
    return fb_is_absent(g, given) || (fb_onnx_number(g, given, &number) && number == 0);
}

static bool is_zero_pad(const fb_graph *g, fb_node n) {
    fb_shape_call call = fb_shape_call_of(g, n);
    switch (call.op) {
    case FB_OP_PAD: {
        fb_value mode = fb_option(&call, "mode");
        bool is_constant = !mode.id || (fb_value_kind(g, mode) == FB_STRING && !strcmp(fb_value_text(g, mode), "constant"));
        return is_constant && fills_with_zeros(&call);
    }
    case FB_OP_CONSTANT_PAD:
    case FB_OP_CONSTANT_PAD_LAYER:
    case FB_OP_ZERO_PAD_LAYER: return fills_with_zeros(&call);
    case FB_OP_ONNX_PAD: return is_zero_pad_of_onnx(g, n);
    default: return false;
    }
}

/* All dimensions in order, before and then after each; or those that its input `axes` names. */
static bool read_pad_of_onnx(const fb_graph *g, fb_node n, int spatial, sides *padding) {
    int64_t pads[2 * FB_MAX_RANK], axes[FB_MAX_RANK];
    int count = fb_onnx_ints_of(g, n, "pads", 1, pads, 2 * FB_MAX_RANK), rank = spatial + 2;
    int named = fb_onnx_ints_of(g, n, "axes", 3, axes, FB_MAX_RANK), given = named >= 0 ? named : rank;
    if (named == -2 || count != 2 * given) return false;
    for (int i = 0; i < given; i++) {
        int axis = i;
        if (named >= 0 && !fb_normalise_axis(axes[i], rank, &axis)) return false;
        int64_t before = pads[i], after = pads[given + i];
        if (before < 0 || after < 0 || (axis < 2 && (before || after))) return false;
        if (axis < 2) continue;
        padding->before[axis - 2] = before;
        padding->after[axis - 2] = after;
    }
    return true;
}

/* Reads how many zeros are on each side of the last `spatial` dimensions; false if there are others. PyTorch's must be as many
 * on both sides. */
static bool read_pad(const fb_graph *g, fb_node n, int spatial, sides *padding) {
    fb_shape_call call = fb_shape_call_of(g, n);
    fb_sizes sizes;
    memset(padding, 0, sizeof *padding);
    if (call.op == FB_OP_ONNX_PAD) return read_pad_of_onnx(g, n, spatial, padding);
    fb_value given = fb_option(&call, call.is_module ? "padding" : "pad");
    if (!given.id || !fb_evaluate_sizes(g, given, &sizes) || !sizes.is_sequence || sizes.count % 2) return false;
    for (int i = 0; i < sizes.count; i += 2) { /* before and after, of the last dimension first */
        fb_dim before = sizes.items[i], after = sizes.items[i + 1];
        if (before.symbol.id || after.symbol.id || before.size != after.size || before.size < 0) return false;
        if (before.size && i / 2 >= spatial) return false;
        if (before.size) padding->before[spatial - 1 - i / 2] = padding->after[spatial - 1 - i / 2] = before.size;
    }
    return true;
}

/* The input of a call, if that is a pad; or none. */
static fb_node pad_before(const fb_graph *g, const window *w, fb_node call) {
    fb_node input = fb_layer_input(g, &w->layer, call);
    return input.id && is_zero_pad(g, input) ? input : (fb_node){0};
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

static bool is_pool_of_onnx(fb_op op) {
    return op == FB_OP_ONNX_MAX_POOL || op == FB_OP_ONNX_AVERAGE_POOL;
}

static bool is_pool_op(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    return facts->shape == FB_SHAPE_MAX_POOL || facts->shape == FB_SHAPE_AVG_POOL || is_pool_of_onnx(op);
}

static bool may_be_window(fb_op op) {
    return is_pool_op(op) || fb_op_may_be_conv(op);
}

static bool window_at(const fb_graph *g, fb_node n, window *w) {
    fb_conv conv = {0};
    fb_op op = fb_node_op(g, n);
    bool is_of_onnx = is_pool_of_onnx(op), is_pool = is_pool_op(op);
    if (!is_pool && !fb_conv_at(g, n, &conv)) return false;
    const fb_node_row *row = fb_node_at(g, n);
    fb_module module = row->opcode == FB_CALL_MODULE ? row->module : (fb_module){0};
    w->layer = (fb_layer){.call = n, .module = module, .input_parameter = "input"};
    w->spatial = is_of_onnx ? fb_node_rank(g, n) - 2 : is_pool ? fb_op_facts_of(op)->spatial : conv.spatial;
    w->is_pool = is_pool;
    return w->spatial >= 1 && w->spatial <= MAX_SPATIAL;
}

/* ONNX's flags are ints, and what a pool pads is not counted unless it says so. */
static bool counts_all(const fb_shape_call *call) {
    const fb_graph *g = call->graph;
    int64_t counts = 0, rounds = 0;
    fb_value value = fb_option(call, "count_include_pad"), ceil_mode = fb_node_kwarg(g, call->node, "ceil_mode");
    if (call->op != FB_OP_ONNX_AVERAGE_POOL)
        return !fb_option_is_set(call, "ceil_mode") && (!value.id || fb_value_kind(g, value) == FB_TRUE);
    bool is_read =
        (!value.id || fb_value_is_int(g, value, &counts)) && (!ceil_mode.id || fb_value_is_int(g, ceil_mode, &rounds));
    return is_read && counts && !rounds;
}

static fb_obstacle pool_obstacle(const fb_shape_call *call, const sides *padding, int spatial) {
    int64_t kernel[MAX_SPATIAL];
    bool is_of_onnx = call->op == FB_OP_ONNX_AVERAGE_POOL;
    if (!is_of_onnx && fb_op_facts_of(call->op)->shape != FB_SHAPE_AVG_POOL)
        return (fb_obstacle){"unsupported-type", "a max pool pads with minus infinity, not with zeros"};
    if (!counts_all(call))
        return (fb_obstacle){"unsupported-arguments", "the pool rounds its size up, or does not count what it pads"};
    bool is_known = is_of_onnx ? fb_onnx_ints_of(call->graph, call->node, "kernel_shape", 0, kernel, spatial) == spatial
                               : fb_option_ints(call, "kernel_size", 0, spatial, kernel);
    if (!is_known) return (fb_obstacle){"unsupported-arguments", "the pool's kernel is not known"};
    for (int i = 0; i < spatial; i++) {
        if (padding->before[i] > kernel[i] / 2 || padding->after[i] > kernel[i] / 2)
            return (fb_obstacle){"unsupported-arguments", "a pool pads half its kernel at most"};
    }
    return FB_NO_OBSTACLE;
}

static fb_obstacle conv_obstacle(const fb_shape_call *call) {
    const fb_graph *g = call->graph;
    fb_extent extent;
    fb_value mode = call->is_module ? fb_option(call, "padding_mode") : (fb_value){0};
    bool has_zeros = !mode.id || (fb_value_kind(g, mode) == FB_STRING && strcmp(fb_value_text(g, mode), "zeros") == 0);
    if (!has_zeros) return (fb_obstacle){"unsupported-arguments", "the convolution does not pad with zeros"};
    fb_conv conv;
    if (!fb_conv_at(g, call->node, &conv) || conv.is_transposed)
        return (fb_obstacle){"transposed", "the padding of a transposed convolution takes away from its result"};
    if (fb_tensor_extent(g, conv.weight, &extent) && !extent.is_finite)
        return (fb_obstacle){"unsupported-constant", "a weight that is not finite gives nan where it meets a zero"};
    return FB_NO_OBSTACLE;
}

static bool own_padding_of_onnx(const fb_graph *g, fb_node n, int spatial, int64_t *own) {
    fb_value automatic = fb_node_kwarg(g, n, "auto_pad");
    bool is_none = automatic.id && is_word(g, automatic, "VALID");
    memset(own, 0, 2 * (size_t)spatial * sizeof *own);
    if (automatic.id && !is_none && !is_word(g, automatic, "NOTSET")) return false;
    int count = is_none ? -1 : fb_onnx_ints_of(g, n, "pads", 0, own, 2 * spatial);
    return count == -1 || count == 2 * spatial;
}

static bool grow(int64_t *padding, int64_t own) {
    if (own < 0 || own > INT32_MAX || *padding > INT32_MAX - own) return false;
    *padding += own;
    return true;
}

/* Adds the window's own padding. */
static bool add_own_padding(const fb_shape_call *call, int spatial, sides *padding) {
    int64_t own[2 * MAX_SPATIAL];
    fb_value given = fb_option(call, "padding");
    if (pads_both_sides(call->op)) {
        if (!own_padding_of_onnx(call->graph, call->node, spatial, own)) return false;
    } else {
        if (given.id && fb_value_kind(call->graph, given) == FB_STRING) return false; /* "same", or "valid" */
        if (!fb_option_ints(call, "padding", 0, spatial, own)) return false;
        memcpy(own + spatial, own, (size_t)spatial * sizeof *own);
    }
    for (int i = 0; i < spatial; i++)
        if (!grow(&padding->before[i], own[i]) || !grow(&padding->after[i], own[spatial + i])) return false;
    return true;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* May the result's strides differ from before? A padded image is laid out as x is. */
static bool is_layout_read(const fb_graph *g, const window *w, fb_node call, fb_node x) {
    bool is_image = w->spatial > 1 && fb_node_rank(g, x) == w->spatial + 2;
    return !is_image && !fb_is_contiguous(g, x) && fb_layout_is_read(g, call);
}

/* Why a call must keep its pad, or have none. */
static fb_obstacle call_obstacle(fb_matcher *m, const window *w, fb_node call, const sides *padding) {
    const fb_graph *g = m->graph;
    sides own;
    fb_node pad = pad_before(g, w, call);
    if (w->layer.module.id && !fb_call_has_only(g, call, "input"))
        return (fb_obstacle){"unsupported-arguments", "it is called with more than one input"};
    if (!pad.id || !read_pad(g, pad, w->spatial, &own) || memcmp(&own, padding, sizeof own) != 0)
        return (fb_obstacle){"shared-module", "not every call of the module reads a value that is padded alike"};
    fb_node x = fb_call_argument_node(g, pad, "input");
    if (!x.id) return (fb_obstacle){"unsupported-arguments", "what is padded is not the result of a node"};
    if (fb_node_at(g, pad)->user_count != 1) return (fb_obstacle){"shared-output", "the padded value has other readers"};
    fb_obstacle obstacle = fb_effect_obstacle(g, pad);
    if (obstacle.code) return obstacle;
    if (is_layout_read(g, w, call, x))
        return (fb_obstacle){"needs-contiguous", "a reader of the result may need it contiguous, and x may not be"};
    obstacle = fb_disturbance(m, (fb_node[]){pad, call}, 2);
    return obstacle.code ? obstacle : fb_gradient_obstacle(m, x, call);
}

/* The padding of the result, from the first dimension to the last; false when one of the two is not given as the pass reads it.
 */
static bool read_sum(const fb_graph *g, fb_node pad, fb_node n, int spatial, sides *added, sides *sum) {
    fb_shape_call call = fb_shape_call_of(g, n);
    if (!read_pad(g, pad, spatial, added)) return false;
    *sum = *added;
    return add_own_padding(&call, spatial, sum);
}

static fb_obstacle obstacle_of(fb_matcher *m, const window *w, fb_node n, fb_node pad) {
    fb_shape_call call = fb_shape_call_of(m->graph, n);
    sides added, sum;
    if (!read_sum(m->graph, pad, n, w->spatial, &added, &sum))
        return (fb_obstacle){"unsupported-arguments",
                             "it does not pad both sides alike, pads other dimensions, or the padding behind it is not given "
                             "in numbers"};
    fb_obstacle obstacle = w->is_pool ? pool_obstacle(&call, &sum, w->spatial) : conv_obstacle(&call);
    if (!obstacle.code && w->layer.module.id) obstacle = fb_module_obstacle(m, w->layer.module);
    for (; n.id && !obstacle.code && fb_matcher_goes_on(m); n = fb_layer_next_call(m->usage, &w->layer, n))
        obstacle = call_obstacle(m, w, n, &added);
    return obstacle;
}

/* Once for all calls of a module: at the first. */
static void match(fb_matcher *m, fb_node n) {
    window w;
    fb_node pad = {0};
    fb_buffer calls = {0};
    if (fb_is_marked(m, n) || !window_at(m->graph, n, &w) || fb_layer_first_call(m->usage, &w.layer).id != n.id) return;
    for (fb_node c = n; c.id && fb_matcher_goes_on(m); c = fb_layer_next_call(m->usage, &w.layer, c)) {
        if (!pad.id) pad = pad_before(m->graph, &w, c);
        fb_buffer_append(&calls, &c, sizeof c);
    }
    m->failed |= calls.failed;
    fb_obstacle obstacle = pad.id && !m->failed ? obstacle_of(m, &w, n, pad) : FB_NO_OBSTACLE;
    if (obstacle.code) fb_refuse_for(m, obstacle, (fb_node[]){pad, n}, 2);
    else if (pad.id && !m->failed) fb_match_found(m, (const fb_node *)(const void *)calls.data, calls.size / sizeof n);
    fb_buffer_free(&calls);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* A call of a function that is given no padding has it as a keyword. conv2d.padding, whose padding is "valid" then, becomes
 * conv2d.default, which takes numbers. */
static void give_padding(fb_rewrite *rw, fb_node call, fb_value padding, int version) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, call);
    if (pads_both_sides(fb_node_op(g, call))) {
        fb_value unpadded = fb_map_with(g, row->kwargs, "auto_pad", (fb_value){0});
        fb_set_args(rw, call, row->args, fb_map_with(g, unpadded, "pads", padding));
    } else if (fb_call_argument(g, call, "padding").id) fb_set_argument(rw, call, "padding", padding);
    else fb_set_args(rw, call, row->args, fb_map_with(g, row->kwargs, "padding", padding));
    if (version > 1) fb_choose_overload(rw, call);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    window w;
    sides added, sum;
    fb_node first = match->nodes[0];
    if (!window_at(g, first, &w) || !read_sum(g, pad_before(g, &w, first), first, w.spatial, &added, &sum)) return;
    fb_value padding = fb_build_padding(g, first, sum.before, sum.after, w.spatial);
    if (w.layer.module.id) fb_set_config(rw, w.layer.module, "padding", padding);
    for (size_t i = 0; i < match->count; i++) {
        fb_node call = match->nodes[i], pad = fb_layer_input(g, &w.layer, call);
        fb_set_argument(rw, call, "input", fb_call_argument(g, pad, "input"));
        if (!w.layer.module.id) give_padding(rw, call, padding, match->pass->version);
        fb_mark(rw, call);
        fb_release_reads(rw, pad);
        fb_erase_call(rw, pad);
    }
}

/* Version 1 gave conv2d.padding and its like numbers, which PyTorch refuses. */
#define FOLD_PAD(number, before)                                                                                               \
    {                                                                                                                          \
        .name = "FoldPad", .version = number, .earlier = before,                                                               \
        .summary = "Moves zero padding into the convolution or average pool that reads it.", .parameters = FB_NO_PARAMETERS,   \
        .exactness = FB_MOVES, .gain = FB_GAIN_FASTER, .reversible = true, .preserves_computation = true, .reads_onnx = true,  \
        .begins_at = may_be_window, .match = match, .edit = edit,                                                              \
    }

static const fb_pass version_1 = FOLD_PAD(1, NULL);
const fb_pass fb_fold_pad = FOLD_PAD(2, &version_1);
