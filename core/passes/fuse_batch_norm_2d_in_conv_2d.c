/* FuseBatchNorm2dInConv2d: a BatchNorm2d in eval mode disappears into the Conv2d before it.
 *
 *     x ── Conv2d ── BatchNorm2d ── y          x ── Conv2d ── y
 *
 *     weight := weight * scale per output channel,  bias := (bias - running_mean) * scale + BatchNorm's bias
 *
 * Both modules in eval mode, with running statistics, and called by each other alone; the value between them read by nobody
 * else. Affine or not; with or without a convolution bias.
 * Exactness: rounds (each weight once). Not reversible from new weights; rollback is exact.
 */
#include "core/passes/batch_norm_fold.h"

/* The convolution before a BatchNorm2d call, if it is one. */
static bool conv_before(const fb_graph *g, fb_node norm_call, fb_conv *conv) {
    fb_node input = fb_call_argument_node(g, norm_call, "input");
    return input.id && fb_conv_at(g, input, conv) && conv->spatial == 2 && !conv->is_transposed && conv->module.id;
}

static void match(fb_matcher *m, fb_node n) {
    fb_fold_pair pair = {0};
    fb_conv conv;
    if (!fb_batch_norm_at(m->graph, n, &pair.norm) || pair.norm.spatial != 2 || !pair.norm.module.id) return;
    if (fb_first_call(m->usage, pair.norm.module).id != n.id) return; /* a module is matched once, at its first call */
    while (!conv_before(m->graph, n, &conv)) {
        n = fb_next_call(m->usage, n);
        if (!n.id) return;
    }
    pair.first = pair.host = conv.module;
    pair.second = pair.norm.module;
    pair.weight = conv.weight;
    pair.channels = conv.out_channels;
    fb_match_fold(m, &pair, NULL);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_conv conv;
    fb_batch_norm norm;
    if (!fb_conv_at(g, match->nodes[0], &conv) || !fb_batch_norm_at(g, fb_first_norm_call(match), &norm)) return;

    fb_fold_into_outputs(rw, conv.module, conv.weight, conv.bias, &norm);
    fb_remove_norm(rw, match, &norm);
}

const fb_pass fb_fuse_batch_norm_2d_in_conv_2d = {
    .name = "FuseBatchNorm2dInConv2d",
    .version = 1,
    .summary = "A BatchNorm2d in eval mode disappears into the Conv2d before it.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = false,
    .preserves_computation = true,
    .match = match,
    .edit = edit,
};
