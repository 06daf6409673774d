/* MergeBranches: a sum of convolutions of one value, of BatchNorms of it, and of the value itself becomes one convolution.
 *
 *         ┌─ Conv 3×3 ─┐
 *     x ──┼─ Conv 1×1 ─┼─ + ── y          x ── Conv 3×3' ── y
 *         ├─ BatchNorm ┤
 *         └────────────┘                  W' = W₃ + W₁ in its middle + diag(scale) + I,   b' = b₃ + b₁ + shift
 *
 * The training form of RepVGG, MobileOne, FastViT and RepViT, when FuseBatchNorm has folded the BatchNorms behind convolutions
 * (structural reparametrisation: Ding et al. 2021, "RepVGG: Making VGG-style ConvNets Great Again", section 3.3). Sums and
 * differences, written in place or not, from 0 on or not; modules, torch's functions, and ATen's conv1d to conv3d and
 * convolution.
 *
 * The convolution with the largest kernel stays and takes in the others. Each must place its kernel inside that one's (its taps
 * read the same elements), have the same stride and groups, and give a result of the same size. Padding is with zeros. A
 * BatchNorm is in eval mode, with running statistics, and takes a batch. Each module is called once, and nothing else reads
 * the values between x and y. x is not written before y. Where the numbers are known, no new weight or bias may overflow.
 *
 * Exactness: rounds each weight once. Reversible until the new weight is trained: a sum cannot be taken apart. Rollback is
 * exact.
 */
#include <math.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/shape.h"
#include "core/pass/batch_norm_fold.h"
#include "core/pass/layer.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

enum { MAX_BRANCHES = 32, MAX_CALLS = 48, MAX_SPATIAL = 3 };

/* A kernel's reach over its input: of each axis. */
typedef struct window {
    int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], padding[MAX_SPATIAL], dilation[MAX_SPATIAL];
} window;

/* A convolution; or a BatchNorm, where `norm.node` is given; or the value itself. */
typedef struct branch {
    fb_node node;
    bool is_subtracted;
    fb_host host;
    fb_batch_norm norm;
    window window;
} branch;

typedef struct sum {
    fb_node node, input; /* `input`: what all branches read */
    branch branches[MAX_BRANCHES];
    fb_node calls[MAX_CALLS]; /* the additions, `node` first; some may add 0 */
    size_t count, call_count;
    size_t widest; /* of the branches: the convolution that takes in the others */
} sum;

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

/* An operand of a sum: a node, or the number 0. */
static bool read_operand(const fb_graph *g, fb_value value, fb_node *out) {
    double number;
    *out = fb_value_node(g, value);
    return out->id || (fb_value_is_number(g, value, &number) && number == 0);
}

static bool is_sum(const fb_graph *g, fb_node n, fb_node operands[2], bool *is_difference) {
    fb_op op = fb_node_op(g, n);
    fb_value a, b;
    if (!fb_op_may_be_sum(op)) return false;
    *is_difference = fb_op_facts_of(op)->arithmetic == FB_ARITHMETIC_SUB;
    return fb_two_operands(g, n, &a, &b) && read_operand(g, a, &operands[0]) && read_operand(g, b, &operands[1]);
}

/* Lists the terms of a sum. False when they are too many. */
static bool list_terms(const fb_graph *g, fb_node n, bool is_subtracted, sum *s) {
    fb_node operands[2];
    bool is_difference;
    if (s->call_count == MAX_CALLS || !is_sum(g, n, operands, &is_difference)) return false;
    s->calls[s->call_count++] = n;
    for (int i = 0; i < 2; i++) {
        fb_node inner[2];
        bool ignored, is_negative = is_subtracted != (i == 1 && is_difference);
        if (!operands[i].id) continue;
        if (is_sum(g, operands[i], inner, &ignored) && fb_is_read_by(g, operands[i], n)) {
            if (!list_terms(g, operands[i], is_negative, s)) return false; /* no deeper than MAX_CALLS */
        } else if (s->count < MAX_BRANCHES) {
            s->branches[s->count++] = (branch){.node = operands[i], .is_subtracted = is_negative};
        } else {
            return false;
        }
    }
    return true;
}

static bool conv_at(const fb_graph *g, fb_node n, fb_host *host) {
    return fb_host_at(g, n, host) && !host->is_linear;
}

/* A BatchNorm of the value; or of a convolution of it, which FuseBatchNorm folds. */
static bool norm_at(const fb_graph *g, fb_node n, fb_node input, fb_batch_norm *norm) {
    fb_conv conv;
    if (!fb_batch_norm_at(g, n, norm)) return false;
    return norm->input.id == input.id || (fb_conv_at(g, norm->input, &conv) && conv.input.id == input.id);
}

/* Is it one of x, of a convolution of x, of a BatchNorm of either? */
static bool read_branch(const fb_graph *g, fb_node input, branch *b) {
    if (b->node.id == input.id) return true;
    if (conv_at(g, b->node, &b->host)) return b->host.conv.input.id == input.id;
    return norm_at(g, b->node, input, &b->norm);
}

/* The input of a convolution, or of the one before a BatchNorm; or none. */
static fb_node input_of(const fb_graph *g, fb_node term) {
    fb_conv conv;
    fb_batch_norm norm;
    if (fb_batch_norm_at(g, term, &norm)) term = norm.input;
    return fb_conv_at(g, term, &conv) ? conv.input : (fb_node){0};
}

static bool are_branches_of(const fb_graph *g, fb_node input, sum *s) {
    s->input = input;
    for (size_t i = 0; i < s->count; i++) {
        branch *b = &s->branches[i];
        *b = (branch){.node = b->node, .is_subtracted = b->is_subtracted};
        if (!read_branch(g, input, b)) return false;
    }
    return true;
}

/* The value itself may be the result of a convolution, so each is asked what it reads. */
static bool sum_at(const fb_graph *g, fb_node n, sum *s) {
    s->node = n;
    s->count = s->call_count = s->widest = 0; /* the rest is filled as far as these say */
    if (!list_terms(g, n, false, s)) return false;
    for (size_t i = 0; i < s->count && s->count > 1; i++) {
        fb_node input = input_of(g, s->branches[i].node);
        if (input.id && are_branches_of(g, input, s)) return true;
    }
    return false;
}

/* Is the sum a term of a larger one, with which it is merged? */
static bool is_inner(const fb_graph *g, fb_node n, sum *larger) {
    uint32_t e = fb_user_first(g, n);
    fb_node reader = e && !fb_user_next(g, e) ? fb_edge_user(g, e) : (fb_node){0};
    return reader.id && fb_is_read_by(g, n, reader) && sum_at(g, reader, larger);
}

/* ---- kernels ------------------------------------------------------------------------------------------------------------- */

/* "same" pads both sides alike only where the kernel's reach is even. */
static bool read_padding(const fb_shape_call *call, int spatial, window *w) {
    fb_value given = fb_option(call, "padding");
    bool is_text = given.id && fb_value_kind(call->graph, given) == FB_STRING;
    if (!is_text) return fb_option_ints(call, "padding", 0, spatial, w->padding);
    bool is_same = strcmp(fb_value_text(call->graph, given), "same") == 0;
    if (!is_same && strcmp(fb_value_text(call->graph, given), "valid") != 0) return false;
    for (int i = 0; i < spatial; i++) {
        int64_t reach = is_same ? w->dilation[i] * (w->kernel[i] - 1) : 0;
        if (reach % 2) return false;
        w->padding[i] = reach / 2;
    }
    return true;
}

static bool is_in_range(const int64_t *numbers, int count, int64_t least) {
    for (int i = 0; i < count; i++) {
        if (numbers[i] < least || numbers[i] > INT32_MAX) return false;
    }
    return true;
}

static bool pads_with_zeros(const fb_shape_call *call) {
    fb_value mode = call->is_module ? fb_option(call, "padding_mode") : (fb_value){0};
    return !mode.id || (fb_value_kind(call->graph, mode) == FB_STRING && !strcmp(fb_value_text(call->graph, mode), "zeros"));
}

static bool read_window(const fb_graph *g, const fb_conv *conv, window *w) {
    fb_shape_call call = {.graph = g, .node = conv->node, .op = fb_node_op(g, conv->node), .is_module = conv->module.id != 0};
    fb_value shape = fb_tensor_at(g, conv->weight)->shape;
    for (int i = 0; i < conv->spatial; i++) w->kernel[i] = fb_shape_size(g, shape, 2 + i);
    return is_in_range(w->kernel, conv->spatial, 1) && fb_option_ints(&call, "dilation", 1, conv->spatial, w->dilation) &&
           is_in_range(w->dilation, conv->spatial, 1) && fb_option_ints(&call, "stride", 1, conv->spatial, w->stride) &&
           is_in_range(w->stride, conv->spatial, 1) && read_padding(&call, conv->spatial, w) &&
           is_in_range(w->padding, conv->spatial, 0) && pads_with_zeros(&call);
}

/* The value itself, as a convolution. */
static window window_of_identity(void) {
    window w = {0};
    for (int i = 0; i < MAX_SPATIAL; i++) w.kernel[i] = w.stride[i] = w.dilation[i] = 1;
    return w;
}

/* The place of the first tap of `inner` among those of `outer`; -1 when one of its taps reads something else. */
static int64_t place_of(const window *outer, const window *inner, int axis) {
    int64_t ahead = outer->padding[axis] - inner->padding[axis], step = outer->dilation[axis];
    if (ahead < 0 || ahead % step || (inner->kernel[axis] > 1 && inner->dilation[axis] != step)) return -1;
    return ahead / step + inner->kernel[axis] <= outer->kernel[axis] ? ahead / step : -1;
}

/* The elements by which a result is smaller than what is read, with a stride of 1. */
static int64_t lost(const window *w, int axis) {
    return w->dilation[axis] * (w->kernel[axis] - 1) - 2 * w->padding[axis];
}

/* Of a convolution; otherwise 0. */
static double taps_of(const branch *b) {
    double taps = b->host.layer.call.id ? 1 : 0;
    for (int i = 0; i < MAX_SPATIAL; i++) taps *= (double)b->window.kernel[i];
    return taps;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

static const fb_obstacle other_arguments = {
    "unsupported-arguments", "a convolution's options are not numbers, or it does not pad both sides with zeros"};

static fb_obstacle window_obstacle(const branch *outer, const branch *inner) {
    for (int i = 0; i < outer->host.conv.spatial; i++) {
        if (inner->window.stride[i] != outer->window.stride[i] || lost(&inner->window, i) != lost(&outer->window, i))
            return (fb_obstacle){"options-differ", "stride or padding of two branches give results of different sizes"};
        if (place_of(&outer->window, &inner->window, i) < 0)
            return (fb_obstacle){"kernel-differs", "the kernel of one branch has no place in the largest one"};
    }
    return FB_NO_OBSTACLE;
}

/* Its weights may change, and its dtype is that of the sum. */
static fb_obstacle conv_obstacle(fb_matcher *m, const branch *first, branch *b) {
    const fb_graph *g = m->graph;
    const fb_layer *layer = &b->host.layer;
    const fb_tensor_row *weight = fb_tensor_at(g, layer->weight);
    if (b->host.conv.is_transposed) return (fb_obstacle){"transposed", "a transposed convolution is added"};
    if (fb_layer_call_count(m->usage, layer) > 1) return (fb_obstacle){"shared-module", "a module is called more than once"};
    if (b->host.dtype != first->host.dtype || (layer->bias.id && fb_tensor_at(g, layer->bias)->dtype != (int)b->host.dtype))
        return (fb_obstacle){"dtype", "the weights and biases of the convolutions have different dtypes"};
    if (!fb_dtype_is_computed(b->host.dtype))
        return (fb_obstacle){"unsupported-dtype", "nothing is computed with weights of that dtype"};
    if (weight->requires_grad != fb_tensor_at(g, first->host.layer.weight)->requires_grad)
        return (fb_obstacle){"requires-grad", "one weight is trained and another is not"};
    if (b->host.outputs != first->host.outputs || b->host.inputs != first->host.inputs)
        return (fb_obstacle){"channel-mismatch", "two branches have different numbers of channels"};
    if (b->host.conv.groups != first->host.conv.groups)
        return (fb_obstacle){"grouped", "the channels of one branch are in other groups than those of another"};
    if (b->host.conv.spatial != first->host.conv.spatial || !read_window(g, &b->host.conv, &b->window)) return other_arguments;
    return fb_layer_obstacle(m, layer);
}

/* The rank of x: recorded, or what a BatchNorm takes; -1 when it is not known. */
static int rank_of_input(const fb_graph *g, const sum *s) {
    for (size_t i = 0; i < s->count; i++) {
        const fb_batch_norm *norm = &s->branches[i].norm;
        if (norm->module.id && norm->spatial > 1) return norm->spatial + 2;
    }
    return fb_node_rank(g, s->input);
}

static bool is_norm_computed(const fb_graph *g, const fb_batch_norm *norm) {
    const fb_tensor tensors[] = {norm->weight, norm->bias, norm->running_mean, norm->running_var};
    for (size_t i = 0; i < 4; i++) {
        if (tensors[i].id && !fb_dtype_is_computed((fb_dtype)fb_tensor_at(g, tensors[i])->dtype)) return false;
    }
    return true;
}

static fb_obstacle norm_obstacle(fb_matcher *m, const sum *s, const fb_batch_norm *norm) {
    const fb_graph *g = m->graph;
    const fb_layer calls = {.call = norm->node, .module = norm->module};
    int rank = rank_of_input(g, s), spatial = s->branches[s->widest].host.conv.spatial;
    if (!norm->running_mean.id || !norm->running_var.id)
        return (fb_obstacle){"no-running-statistics", "without running statistics BatchNorm normalises by the batch"};
    if (norm->num_features != s->branches[s->widest].host.outputs)
        return (fb_obstacle){"channel-mismatch", "two branches have different numbers of channels"};
    if (rank < 0)
        return (fb_obstacle){"unknown-shape", "the shape of what the BatchNorm takes is not recorded" FB_RECORD_SHAPE};
    if (rank != spatial + 2) return (fb_obstacle){"not-batched", "the BatchNorm normalises another axis of what has no batch"};
    if (!is_norm_computed(g, norm))
        return (fb_obstacle){"unsupported-dtype", "nothing is computed with weights of the BatchNorm's dtype"};
    if (fb_layer_call_count(m->usage, &calls) > 1 || (norm->module.id && !fb_call_has_only(g, norm->node, "input")))
        return (fb_obstacle){"shared-module", "a module is called more than once"};
    if (norm->call.id != norm->node.id && fb_node_at(g, norm->call)->user_count > 1)
        return (fb_obstacle){"shared-output", "something else reads a result of the BatchNorm"};
    fb_obstacle obstacle = fb_batch_norm_obstacle(m, norm);
    return obstacle.code ? obstacle : fb_batch_norm_numbers_obstacle(g, norm);
}

/* The value that each addition reads, and its own, have the dtype of the weights. */
static bool has_one_dtype(const fb_graph *g, const sum *s, fb_dtype dtype) {
    fb_dtype input = (fb_dtype)fb_node_at(g, s->input)->dtype;
    bool is_one = !input || input == dtype;
    for (size_t i = 0; i < s->call_count; i++) {
        fb_dtype own = (fb_dtype)fb_node_at(g, s->calls[i])->dtype;
        is_one &= !own || own == dtype;
    }
    for (size_t i = 0; i < s->count; i++) {
        fb_dtype own = (fb_dtype)fb_node_at(g, s->branches[i].node)->dtype;
        is_one &= !own || own == dtype;
    }
    return is_one;
}

/* May the sum have another memory layout than the convolution's result, and a reader notice? An image and a convolution of it
 * have the same. */
static bool is_layout_read(const fb_graph *g, const sum *s) {
    int spatial = s->branches[s->widest].host.conv.spatial;
    bool is_image = spatial > 1 && rank_of_input(g, s) == spatial + 2, has_other = false;
    for (size_t i = 0; i < s->count; i++) has_other |= !s->branches[i].host.layer.call.id;
    return has_other && !is_image && !fb_is_contiguous(g, s->input) && fb_layout_is_read(g, s->node);
}

/* The values between x and y, and what may happen to them. */
static fb_obstacle values_obstacle(fb_matcher *m, const sum *s) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    uint32_t first = fb_node_at(g, s->node)->ordinal, last = first;
    for (size_t i = 0; i < s->count; i++) {
        const branch *b = &s->branches[i];
        if (b->node.id == s->input.id) continue;
        uint32_t ordinal = fb_node_at(g, b->norm.node.id ? b->norm.call : b->node)->ordinal;
        first = ordinal < first ? ordinal : first;
        bool is_read_once = false;
        for (size_t k = 0; k < s->call_count; k++) is_read_once |= fb_is_read_by(g, b->node, s->calls[k]);
        if (!is_read_once) return (fb_obstacle){"shared-output", "something else reads the result of a branch"};
    }
    for (size_t i = 0; i < s->call_count; i++) { /* in the order of the graph, an inner one comes before */
        uint32_t ordinal = fb_node_at(g, s->calls[i])->ordinal;
        first = ordinal < first ? ordinal : first;
        bool is_input_written =
            (fb_node_op(g, s->calls[i]) & FB_OP_IN_PLACE) && fb_call_argument_node(g, s->calls[i], "input").id == s->input.id;
        if (is_input_written) return (fb_obstacle){"input-mutated", "the sum is written into what its branches read"};
    }
    if (!alias) return FB_OUT_OF_MEMORY;
    if (fb_mutated_between(alias, s->input, first, last))
        return (fb_obstacle){"input-mutated", "what the branches read is written in place between them"};
    if (fb_mode_switched_between(alias, first, last))
        return (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched between the branches"};
    return is_layout_read(g, s)
               ? (fb_obstacle){"needs-contiguous",
                               "a reader may need the sum in the order of x, in which a convolution need not give it"}
               : FB_NO_OBSTACLE;
}

static fb_obstacle range_obstacle(fb_matcher *m, const sum *s) {
    double weight = 0, bias = 0, scale, shift;
    fb_dtype dtype = s->branches[s->widest].host.dtype;
    for (size_t i = 0; i < s->count; i++) {
        const branch *b = &s->branches[i];
        if (b->host.layer.call.id) {
            weight += fb_known_largest(m, b->host.layer.weight, dtype);
            bias += fb_known_largest(m, b->host.layer.bias, dtype);
        } else if (b->norm.node.id) {
            fb_batch_norm_measure(m, &b->norm, dtype, &scale, &shift);
            weight += scale;
            bias += shift;
        } else {
            weight += 1;
        }
    }
    return fb_range_obstacle(dtype, fmax(weight, bias));
}

/* A BatchNorm in training mode, or behind a convolution. */
static fb_obstacle unfolded_obstacle(const sum *s) {
    for (size_t i = 0; i < s->count; i++) {
        const fb_batch_norm *norm = &s->branches[i].norm;
        if (norm->node.id && norm->training)
            return (fb_obstacle){"training-mode",
                                 "in training mode BatchNorm normalises by the batch, not by running statistics"};
        if (norm->node.id && norm->input.id != s->input.id)
            return (fb_obstacle){"norm-between", "a BatchNorm follows a convolution of the sum: FuseBatchNorm folds it"};
    }
    return FB_NO_OBSTACLE;
}

/* Finds the convolution that takes in the others, and why it cannot. */
static fb_obstacle branches_obstacle(fb_matcher *m, sum *s) {
    branch *first = NULL;
    for (size_t i = 0; i < s->count; i++) {
        branch *b = &s->branches[i];
        b->window = window_of_identity();
        if (!b->host.layer.call.id) continue;
        if (!first) first = b;
        fb_obstacle obstacle = conv_obstacle(m, first, b);
        if (obstacle.code) return obstacle;
        if (taps_of(b) > taps_of(&s->branches[s->widest])) s->widest = i;
    }
    const branch *widest = &s->branches[s->widest];
    for (size_t i = 0; i < s->count; i++) {
        const branch *b = &s->branches[i];
        fb_obstacle obstacle = b->norm.node.id ? norm_obstacle(m, s, &b->norm) : FB_NO_OBSTACLE;
        if (!obstacle.code && !b->host.layer.call.id && widest->host.inputs != widest->host.outputs)
            obstacle = (fb_obstacle){"channel-mismatch", "two branches have different numbers of channels"};
        if (!obstacle.code) obstacle = window_obstacle(widest, b);
        if (obstacle.code) return obstacle;
    }
    return FB_NO_OBSTACLE;
}

static fb_obstacle obstacle_of(fb_matcher *m, sum *s) {
    fb_obstacle obstacle = unfolded_obstacle(s);
    if (!obstacle.code) obstacle = branches_obstacle(m, s);
    if (!obstacle.code && !has_one_dtype(m->graph, s, s->branches[s->widest].host.dtype))
        obstacle = (fb_obstacle){"dtype", "what the branches read or give has another dtype than their weights"};
    if (!obstacle.code) obstacle = values_obstacle(m, s);
    return obstacle.code ? obstacle : range_obstacle(m, s);
}

/* A convolution that took in others before may take in more: where a constant was folded into it since. */
static void match_sum(fb_matcher *m, fb_node n) {
    fb_node operands[2];
    bool ignored;
    sum s, larger;
    if (!is_sum(m->graph, n, operands, &ignored) || !sum_at(m->graph, n, &s) || !fb_matcher_takes(m, MAX_BRANCHES) ||
        is_inner(m->graph, n, &larger))
        return;
    fb_obstacle obstacle = obstacle_of(m, &s);
    if (!obstacle.code) {
        fb_match_found_as(m, &s, sizeof s);
    } else {
        fb_node nodes[MAX_BRANCHES + 1];
        size_t count = 0;
        for (size_t i = 0; i < s.count; i++) {
            if (s.branches[i].node.id != s.input.id) nodes[count++] = s.branches[i].node;
        }
        nodes[count++] = n;
        fb_refuse_for(m, obstacle, nodes, count);
    }
}

static void match_graph(fb_matcher *m) {
    fb_candidates all = {.matcher = m, .begins_at = fb_op_may_be_sum};
    for (fb_node n; (n = fb_next_candidate(&all)).id;) match_sum(m, n);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* `vector`, of shape (channels), as the kernel of a convolution of 1 tap that multiplies each channel by its number: in each
 * group, a matrix with its part of the vector on the diagonal. */
static fb_value diagonal(fb_graph *g, const fb_conv *conv, fb_value vector) {
    int64_t groups = conv->groups, size = conv->out_channels / groups;
    int64_t shape[2 + MAX_SPATIAL] = {conv->out_channels, size, 1, 1, 1};
    fb_value zeros = fb_recipe_zeros(g, (int64_t[]){groups, size, size}, 3, conv->dtype);
    fb_value column = fb_recipe_reshape(g, vector, (int64_t[]){groups, size, 1}, 3);
    /* each row of the first number and then zeros, one too many, moves the next number on by one */
    fb_value rows = fb_recipe_concat(g, 2, (fb_value[]){column, zeros}, 2);
    rows = fb_recipe_reshape(g, rows, (int64_t[]){groups, size * (size + 1)}, 2);
    rows = fb_recipe_slice(g, rows, 1, 0, size * size);
    return fb_recipe_reshape(g, rows, shape, 2 + (size_t)conv->spatial);
}

/* The kernel of a branch among zeros, where its taps are in the larger one. */
static fb_value widened(fb_graph *g, const branch *outer, const branch *inner, fb_value kernel) {
    int64_t sizes[2 + MAX_SPATIAL];
    const fb_conv *conv = &outer->host.conv;
    size_t rank = 2 + (size_t)conv->spatial;
    sizes[0] = conv->out_channels;
    sizes[1] = conv->in_channels / conv->groups;
    for (int i = 0; i < conv->spatial; i++) sizes[2 + i] = inner->window.kernel[i];
    for (int i = 0; i < conv->spatial; i++) {
        int64_t before = place_of(&outer->window, &inner->window, i), own = inner->window.kernel[i];
        int64_t after = outer->window.kernel[i] - own - before;
        fb_value parts[3];
        size_t count = 0;
        sizes[2 + i] = before;
        if (before) parts[count++] = fb_recipe_zeros(g, sizes, rank, conv->dtype);
        parts[count++] = kernel;
        sizes[2 + i] = after;
        if (after) parts[count++] = fb_recipe_zeros(g, sizes, rank, conv->dtype);
        if (count > 1) kernel = fb_recipe_concat(g, 2 + i, parts, count);
        sizes[2 + i] = outer->window.kernel[i];
    }
    return kernel;
}

static fb_value kernel_of(fb_graph *g, const branch *outer, const branch *b) {
    const fb_conv *conv = &outer->host.conv;
    if (b->host.layer.call.id) return widened(g, outer, b, fb_recipe_tensor(g, b->host.layer.weight));
    fb_value ones = fb_recipe_full(g, &conv->out_channels, 1, fb_make_float(g, 1));
    return widened(g, outer, b, diagonal(g, conv, b->norm.node.id ? fb_batch_norm_scale(g, &b->norm) : ones));
}

/* None where a branch adds nothing. */
static fb_value shift_of(fb_graph *g, const branch *b) {
    if (b->norm.node.id) return fb_batch_norm_shift(g, &b->norm);
    return b->host.layer.bias.id ? fb_recipe_tensor(g, b->host.layer.bias) : (fb_value){0};
}

static fb_value added(fb_graph *g, fb_value total, fb_value term, bool is_subtracted) {
    if (!total.id) return is_subtracted ? fb_recipe_neg(g, term) : term;
    return is_subtracted ? fb_recipe_sub(g, total, term) : fb_recipe_add(g, total, term);
}

static void erase_branch(fb_rewrite *rw, const branch *b) {
    fb_node call = b->norm.node.id ? b->norm.call : b->node;
    fb_release_reads(rw, call);
    fb_erase_call(rw, call);
    if (call.id != b->node.id) fb_erase(rw, b->node);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const sum *s = match->data;
    const branch *widest = &s->branches[s->widest];
    fb_value weight = {0}, bias = {0};
    for (size_t i = 0; i < s->count; i++) {
        const branch *b = &s->branches[i];
        fb_value shift = shift_of(g, b);
        weight = added(g, weight, kernel_of(g, widest, b), b->is_subtracted);
        if (shift.id) bias = added(g, bias, shift, b->is_subtracted);
    }
    fb_layer_set_weight(rw, &widest->host.layer, weight);
    if (bias.id) fb_layer_set_bias(rw, &widest->host.layer, bias);
    fb_node merged = fb_call_again(rw, widest->node);
    for (size_t i = 0; i < s->count; i++) {
        if (i != s->widest && s->branches[i].node.id != s->input.id) erase_branch(rw, &s->branches[i]);
    }
    for (size_t i = s->call_count; i-- > 1;) fb_erase(rw, s->calls[i]); /* what is read before what reads it */
    fb_absorb(rw, s->node, merged);
    fb_mark(rw, merged);
}

const fb_pass fb_merge_branches = {
    .name = "MergeBranches",
    .version = 1,
    .summary =
        "Merges parallel branches whose results are added (convolutions of one value, BatchNorms of it, the value itself) "
        "into one convolution.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .match_graph = match_graph,
    .edit = edit,
};
