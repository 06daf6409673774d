/* Finding a layer beside a constant factor or addend, and what stands against folding it. */
#include "core/passes/scale_fold.h"

#include <math.h>

#include "core/ops/promote.h"
#include "core/passes/extent.h"
#include "core/weights/dtype.h"

enum { CHAIN_MAX = 64 }; /* views between a layer and its factor */

/* ---- finding ------------------------------------------------------------------------------------------------------------- */

static bool host_at(const fb_graph *g, fb_node node, fb_scale_fold *fold) {
    fold->is_linear = fb_linear_at(g, node, &fold->linear);
    if (fold->is_linear) fold->host = fb_linear_layer(&fold->linear);
    else if (fb_conv_at(g, node, &fold->conv)) fold->host = fb_conv_layer(&fold->conv);
    else return false;
    return true;
}

static bool is_factor(const fb_affine *affine) {
    return affine->form == FB_AFFINE_MUL || affine->form == FB_AFFINE_DIV;
}

/* A number, or a tensor that is one. */
static bool is_number(const fb_graph *g, const fb_affine *affine) {
    return affine->number.id || fb_shape_rank(g, fb_tensor_at(g, affine->tensor)->shape) == 0;
}

bool fb_scale_after_at(const fb_graph *g, fb_node node, fb_scale_fold *fold) {
    fold->is_after = true;
    if (!fb_affine_at(g, node, &fold->affine)) return false;
    bool may_climb = is_factor(&fold->affine) && is_number(g, &fold->affine);
    fb_node at = fold->affine.input;
    for (int steps = 0; at.id && steps < CHAIN_MAX; steps++) {
        fold->is_direct = steps == 0;
        if (host_at(g, at, fold)) return true;
        at = may_climb ? fb_scaled_input(g, at) : (fb_node){0};
    }
    return false;
}

bool fb_scale_before_at(const fb_graph *g, fb_node node, fb_scale_fold *fold) {
    fold->is_after = false;
    if (!fb_affine_at(g, node, &fold->affine)) return false;
    for (uint32_t e = fb_user_first(g, node); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        if (host_at(g, user, fold) && fb_layer_input(g, &fold->host, user).id == node.id) return true;
        if (!fb_reads_type_only(g, user)) return false; /* it has another reader, whatever comes next */
    }
    return false;
}

bool fb_scale_next(const fb_graph *g, fb_scale_fold *fold) {
    fb_scale_fold next = *fold, other = {0};
    uint32_t e = fb_user_first(g, fold->affine.node);
    while (e && fb_reads_type_only(g, fb_edge_user(g, e))) e = fb_user_next(g, e);
    fb_node reader = e ? fb_edge_user(g, e) : (fb_node){0};
    if (!reader.id || !fb_affine_at(g, reader, &next.affine) || fb_scale_before_at(g, reader, &other)) return false;
    if (!fold->is_direct && !(is_factor(&next.affine) && is_number(g, &next.affine))) return false;
    *fold = next;
    return true;
}

bool fb_scale_fold_of(const fb_graph *g, fb_node affine, fb_node call, fb_scale_fold *fold) {
    fold->is_after = fb_node_at(g, call)->ordinal < fb_node_at(g, affine)->ordinal;
    return fb_affine_at(g, affine, &fold->affine) && host_at(g, call, fold);
}

int64_t fb_scale_channels(const fb_scale_fold *fold) {
    if (fold->is_linear) return fold->is_after ? fold->linear.out_features : fold->linear.in_features;
    return fold->is_after ? fold->conv.out_channels : fold->conv.in_channels;
}

static fb_dtype dtype_of(const fb_scale_fold *fold) {
    return fold->is_linear ? fold->linear.dtype : fold->conv.dtype;
}

/* ---- the constant -------------------------------------------------------------------------------------------------------- */

/* Its dimensions, counted from the last: all 1, but for the channels. And it must not add dimensions to the value. */
static bool fits(const fb_graph *g, const fb_scale_fold *fold) {
    fb_value shape = fb_tensor_at(g, fold->affine.tensor)->shape, value = fb_node_at(g, fold->affine.input)->shape;
    int rank = fb_shape_rank(g, shape), least = fold->is_linear ? 1 : fold->conv.spatial + 1; /* that the value has */
    bool is_one = true;
    for (int i = 0; i < rank; i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size != 1 && (i != rank - least || size != fb_scale_channels(fold))) return false;
        is_one &= size == 1;
    }
    if (rank > least && fb_shape_rank(g, value) < rank) return false;
    return is_one || fold->is_after || fb_shape_size(g, value, -least) == fb_scale_channels(fold);
}

/* In float16 the layer's weight times the constant can leave the narrow range though the layer's result never does: the
 * weight's numbers are not known here, or will be trained. So a factor is at most 1, and not so small that weights vanish; and
 * an addend is less than half the distance between the largest numbers, so that it cannot lift a bias over the end. */
static bool keeps_float16(const fb_scale_fold *fold, double least, double largest) {
    if (dtype_of(fold) != FB_FLOAT16) return true;
    switch (fold->affine.form) {
    case FB_AFFINE_MUL: return largest <= 1 && least >= 1.0 / 16;
    case FB_AFFINE_DIV: return least >= 1 && largest <= 16;
    default: return fold->is_after && largest < 16;
    }
}

/* The layer's numbers are not known. A constant between the square roots of the least and the largest number neither overflows
 * nor vanishes with any weight in the same range. An addend after the layer only meets its bias. */
static bool keeps_weights(const fb_scale_fold *fold, const fb_dtype_range *range, double least, double largest) {
    if (!is_factor(&fold->affine)) return fold->is_after || largest <= sqrt(range->largest);
    return largest <= sqrt(range->largest) && (least == 0 || least >= sqrt(range->smallest_normal));
}

/* Of a constant whose absolute values are between these: is it, and is its inverse where it divides, a normal number? */
static const char *range_obstacle(const fb_scale_fold *fold, double least, double largest, const char **detail) {
    fb_dtype_range range;
    bool divides = fold->affine.form == FB_AFFINE_DIV;
    *detail = "the constant, or what it makes of a weight, may be no normal number in the layer's dtype";
    if (!fb_dtype_limits(dtype_of(fold), &range)) return "constant-out-of-range";
    bool is_in_range = largest <= range.largest && (least == 0 || least >= range.smallest_normal);
    if (divides) is_in_range &= 1 / least <= range.largest && 1 / largest >= range.smallest_normal;
    is_in_range &= dtype_of(fold) == FB_FLOAT16 || keeps_weights(fold, &range, least, largest);
    return is_in_range && keeps_float16(fold, least, largest) ? NULL : "constant-out-of-range";
}

static const char *number_obstacle(const fb_graph *g, const fb_scale_fold *fold, const char **detail) {
    double number = 0;
    fb_value_is_number(g, fold->affine.number, &number);
    *detail = "it is no finite number";
    if (!isfinite(number)) return "unsupported-constant";
    *detail = "zero hides what is not finite, and has no inverse";
    if (number == 0 && is_factor(&fold->affine)) return "zero-factor";
    return range_obstacle(fold, fabs(number), fabs(number), detail);
}

/* A weight can be anything unless its bytes are in the document; then it is judged by its numbers. */
static const char *numbers_obstacle(const fb_graph *g, const fb_scale_fold *fold, const char **detail) {
    fb_extent extent;
    bool is_known = fb_tensor_extent(g, fold->affine.tensor, &extent), divides = fold->affine.form == FB_AFFINE_DIV;
    *detail = "it divides by a weight that has a zero, or may have one: its numbers are not in the document";
    if (divides && (!is_known || extent.has_zero)) return "zero-factor";
    *detail = "the constant has numbers that are not finite";
    if (is_known && !extent.is_finite) return "unsupported-constant";
    *detail = "in float16 a weight times a constant that is not known may overflow";
    if (!is_known) return dtype_of(fold) == FB_FLOAT16 ? "constant-out-of-range" : NULL;
    return extent.largest > 0 ? range_obstacle(fold, extent.least, extent.largest, detail) : NULL;
}

static const char *tensor_obstacle(fb_matcher *m, const fb_scale_fold *fold, const char **detail) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    fb_dtype dtype = (fb_dtype)fb_tensor_at(g, fold->affine.tensor)->dtype;
    bool is_promoted = !is_number(g, &fold->affine) && fb_promote(dtype, dtype_of(fold)) != dtype_of(fold);
    *detail = "the constant is no floating-point tensor that recipes compute with";
    if (!fb_dtype_is_computed(dtype)) return "unsupported-dtype";
    *detail = "the constant makes the value wider than the layer";
    if (is_promoted) return "dtype";
    *detail = "the constant is neither one number nor one for each channel";
    if (!fits(g, fold)) return "shape-mismatch";
    *detail = "the constant is written in place, or may be";
    if (!alias || fb_is_mutated(alias, fold->affine.read)) return "tensor-mutated";
    return numbers_obstacle(g, fold, detail);
}

/* ---- the value ----------------------------------------------------------------------------------------------------------- */

/* Who reads the value besides `reader`: NULL when nobody does who would notice that it is another one. */
static const char *other_readers(const fb_graph *g, fb_node value, fb_node reader, const char **detail) {
    for (uint32_t e = fb_user_first(g, value); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_output = fb_node_at(g, user)->opcode == FB_OUTPUT;
        if (user.id == reader.id || fb_reads_type_only(g, user)) continue;
        *detail = is_output ? "a value on the way is an output of the graph" : "a value on the way has other readers";
        return is_output ? "graph-output" : "shared-output";
    }
    return NULL;
}

/* Of a view, a product, or a constant that goes in before. */
static fb_node came_from(const fb_graph *g, fb_node node) {
    fb_affine affine;
    return fb_affine_at(g, node, &affine) ? affine.input : fb_scaled_input(g, node);
}

/* From the constant back to the layer. */
static const char *chain_obstacle(const fb_graph *g, const fb_scale_fold *fold, const char **detail) {
    fb_node reader = fold->affine.node, at = fold->affine.input;
    for (;; reader = at, at = came_from(g, at)) {
        const char *reason = other_readers(g, at, reader, detail);
        fb_dtype dtype = (fb_dtype)fb_node_at(g, at)->dtype;
        if (reason) return reason;
        *detail = "a value on the way has another dtype than the layer";
        if (dtype && dtype != dtype_of(fold)) return "dtype";
        if (at.id == fold->host.call.id) return NULL;
    }
}

/* Without the constant, the layer reads its input itself, later. */
static const char *input_obstacle(fb_matcher *m, const fb_scale_fold *fold, const char **detail) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    const fb_node_row *input = fb_node_at(g, fold->affine.input);
    bool is_addend_of_conv = !fold->is_linear && !is_factor(&fold->affine);
    const char *reason = other_readers(g, fold->affine.node, fold->host.call, detail);
    if (reason) return reason;
    *detail = "the dtype of what is scaled is not recorded, or not the layer's";
    if (input->dtype != dtype_of(fold)) return "dtype";
    *detail = "padding adds zeros to what is shifted, which are not shifted";
    if (is_addend_of_conv && (fold->conv.is_padded || fold->conv.is_transposed)) return "padded";
    *detail = "what is scaled is written in place before the layer would read it";
    bool is_written = !alias || fb_mutated_between(alias, fold->affine.input, fb_node_at(g, fold->affine.node)->ordinal,
                                                   fb_node_at(g, fold->host.call)->ordinal);
    return is_written ? "input-mutated" : NULL;
}

const char *fb_scale_obstacle(fb_matcher *m, const fb_scale_fold *fold, const char **detail) {
    const fb_graph *g = m->graph;
    uint32_t a = fb_node_at(g, fold->affine.node)->ordinal, b = fb_node_at(g, fold->host.call)->ordinal;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, fold->affine.node)->dtype;
    const char *reason = fold->is_after ? chain_obstacle(g, fold, detail) : input_obstacle(m, fold, detail);
    if (!reason) reason = fold->affine.number.id ? number_obstacle(g, fold, detail) : tensor_obstacle(m, fold, detail);
    if (reason) return reason;
    *detail = "the layer computes in a dtype that recipes do not, or the scaled value has another one";
    if (!fb_dtype_is_computed(dtype_of(fold)) || (dtype && dtype != dtype_of(fold))) return "dtype";
    *detail = "the layer is called more than once";
    if (fb_layer_call_count(m->usage, &fold->host) != 1) return "shared-module";
    if ((reason = fb_layer_obstacle(m, &fold->host))) {
        *detail = fb_obstacle_detail(reason);
        return reason;
    }
    const fb_alias *alias = fb_matcher_alias(m);
    *detail = "autocast, autograd or another mode is switched between the two";
    return !alias || fb_mode_switched_between(alias, a < b ? a : b, a < b ? b : a) ? "mode-switched" : NULL;
}
