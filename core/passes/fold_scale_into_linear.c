/* FoldScaleIntoLinear: a constant factor or addend before or after a Linear or convolution goes into its weight and bias.
 *
 *     x ── Linear ── * c ── y                          x ── Linear' ── y         W' = c W, b' = c b
 *     x ── Linear ── + c ── y                          x ── Linear' ── y         b' = b + c
 *     x ── * c ── Linear ── y                          x ── Linear' ── y         W' = c W
 *     x ── + c ── Linear ── y                          x ── Linear' ── y         b' = b + W·c
 *     x ── Linear ── view ── @ k ── / √d ── y          x ── Linear' ── view ── @ k ── y
 *
 * c is a number, or a weight with one number for each channel. A number after the layer is found behind views and as a factor
 * of a product's left side, too: so 1/√d goes into the query projection. Also for divisions and differences, and in packed
 * Linears; a convolution with padding takes no addend before it. The views and the product between get new nodes.
 *
 * Constants in a row after a layer (l(x) * 2 + 3) go into it together.
 * Nobody else reads the values between the two (asking for their shape is no reading), none is an output or of another dtype;
 * the layer is called once; c is finite, not 0 as a factor, and never written. A weight divides only if its bytes are in the
 * document, without a zero. In float16 c is a factor of 1/16 to 1 (a divisor of 1 to 16) or an addend after the layer below
 * 16: W is not known, and c W must neither overflow nor vanish. In other dtypes c is between the square roots of the least
 * normal and the largest number (2^-63 to 2^64 in float32 and bfloat16), unless it is an addend after the layer.
 * Exactness: rounds. Not reversible.
 */
#include "core/passes/scale_fold.h"
#include "core/passes/views.h"

/* The layer, the constant, and those that come after it in a row. */
static void take_row(fb_matcher *m, fb_scale_fold *fold) {
    fb_node nodes[FB_SCALE_ROW_MAX + 1] = {fold->host.call, fold->affine.node};
    size_t count = 2;
    const char *reason = NULL, *detail = NULL;
    while (count <= FB_SCALE_ROW_MAX && fb_scale_next(m->graph, fold) && !(reason = fb_scale_obstacle(m, fold, &detail)))
        nodes[count++] = fold->affine.node;
    fb_match_found(m, nodes, count);
    if (reason) fb_refuse(m, reason, (fb_node[]){fold->host.call, fold->affine.node}, 2, "%s", detail);
}

/* A constant of one number a channel goes into a layer only where it stands beside it: behind views it is refused. */
static void refuse_views(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    fb_scale_fold fold = {0};
    if (!fb_affine_at(g, n, &fold.affine)) return;
    fb_node at = fold.affine.input;
    for (int steps = 0; at.id && steps <= FB_VIEWS_MAX; steps++, at = fb_view_input(g, at, NULL)) {
        fb_linear linear;
        fb_conv conv;
        if (!fb_linear_at(g, at, &linear) && !fb_conv_at(g, at, &conv)) continue;
        if (!fb_is_marked(m, at))
            fb_refuse(m, "views-between", (fb_node[]){at, n}, 2, "a view stands between the layer and its constant");
        return;
    }
}

static void match(fb_matcher *m, fb_node n) {
    fb_scale_fold after = {0}, before = {0};
    const char *detail = NULL, *other_detail, *reason = NULL;
    bool is_after = fb_scale_after_at(m->graph, n, &after), is_before = fb_scale_before_at(m->graph, n, &before);
    if (is_after && fb_is_marked(m, after.host.call)) is_after = false; /* refused already, as already-transformed */
    if (is_before && fb_is_marked(m, before.host.call)) is_before = false;
    if (is_after && !(reason = fb_scale_obstacle(m, &after, &detail))) {
        take_row(m, &after);
    } else if (is_before && !fb_scale_obstacle(m, &before, &other_detail)) {
        fb_match_found(m, (fb_node[]){before.host.call, n}, 2);
    } else if (is_after) {
        fb_refuse(m, reason, (fb_node[]){after.host.call, n}, 2, "%s", detail);
    } else if (is_before) {
        reason = fb_scale_obstacle(m, &before, &detail);
        fb_refuse(m, reason, (fb_node[]){n, before.host.call}, 2, "%s", detail);
    } else {
        refuse_views(m, n);
    }
}

/* The views and products between the layer and what it took in give other values from now on. So they are new nodes, with new
 * names: whoever compares the graphs must not take them for what they were. */
static fb_node put_again(fb_rewrite *rw, fb_node old, fb_node call) {
    if (old.id == call.id) return call;
    fb_node input = fb_scaled_input(fb_rewrite_graph(rw), old);
    return fb_put_again(rw, old, input, put_again(rw, input, call)); /* no deeper than a chain may be long */
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_scale_fold fold = {0};
    fb_node call = match->nodes[0], last = {0};
    for (size_t i = 1; i < match->count; i++) {
        fb_node affine = match->nodes[i];
        if (!fb_scale_fold_of(fb_rewrite_graph(rw), affine, call, &fold)) return;
        fb_scale_fold_edit(rw, &fold);
        fb_release_reads(rw, affine);
        if (fold.is_after) {
            if (!last.id) last = put_again(rw, fold.affine.input, call);
            if (last.id) fb_take_in(rw, affine, last);
        } else {
            fb_replace_uses(rw, affine, fold.affine.input);
            fb_erase(rw, affine);
        }
    }
    fb_mark(rw, call);
}

const fb_pass fb_fold_scale_into_linear = {
    .name = "FoldScaleIntoLinear",
    .version = 1,
    .summary = "A constant factor or addend before or after a Linear or convolution goes into its weight and bias.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
