/* FuseBatchNorm1dInLinear: folds a BatchNorm1d in eval mode into the Linear before it, or else into the Linear after it.
 *
 *     x ── Linear ── BatchNorm1d ── y          x ── Linear ── y
 *     x ── BatchNorm1d ── Linear ── y          x ── Linear ── y
 *
 *     before: weight := weight * scale per row,     bias := (bias - running_mean) * scale + BatchNorm's bias
 *     after:  weight := weight * scale per column,  bias := bias + weight · shift
 *
 * Works on 2-D input only, so the shape must be recorded: on (N, C, L), BatchNorm1d and Linear work on different axes. The
 * other conditions are as in FuseBatchNorm2dInConv2d. Both are presets of FuseBatchNorm. Exactness: rounds. Not reversible from
 * new weights; rollback is exact.
 */
#include "core/pass/batch_norm_fold.h"

static bool is_wanted(const fb_fold *fold) {
    return fold->host.is_linear && (!fold->norm.module.id || fold->norm.spatial == 1);
}

static void match(fb_matcher *m, fb_node n) {
    fb_match_fold(m, n, is_wanted);
}

/* Version 1 also folded where the new weight or bias overflows, or becomes nan because eps and a variance are 0. */
#define FUSE_BATCH_NORM_1D(number, before)                                                                                     \
    {                                                                                                                          \
        .name = "FuseBatchNorm1dInLinear", .version = number, .earlier = before,                                               \
        .summary = "Folds a BatchNorm1d in eval mode on 2-D input into the Linear before or after it.",                        \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .reversible = false, .preserves_computation = true,            \
        .reads_onnx = true, .begins_at = fb_op_may_be_batch_norm, .match = match, .edit = fb_edit_fold,                        \
    }

static const fb_pass version_1 = FUSE_BATCH_NORM_1D(1, NULL);
const fb_pass fb_fuse_batch_norm_1d_in_linear = FUSE_BATCH_NORM_1D(2, &version_1);
