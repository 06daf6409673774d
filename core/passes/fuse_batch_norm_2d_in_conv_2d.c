/* FuseBatchNorm2dInConv2d: folds a BatchNorm2d in eval mode into the Conv2d before it.
 *
 *     x ── Conv2d ── BatchNorm2d ── y          x ── Conv2d ── y
 *
 *     weight := weight * scale per output channel,  bias := (bias - running_mean) * scale + BatchNorm's bias
 *
 * Both modules must be in eval mode, with running statistics, and each must be called only next to the other. Nothing else may
 * read the value between them. The BatchNorm may be affine or not; the convolution may have a bias or not. A preset of
 * FuseBatchNorm.
 * Exactness: rounds each weight once. Not reversible from new weights; rollback is exact.
 */
#include "core/pass/batch_norm_fold.h"

static bool is_wanted(const fb_fold *fold) {
    bool is_conv2d = !fold->host.is_linear && fold->host.conv.spatial == 2 && !fold->host.conv.is_transposed;
    return fold->is_before && is_conv2d && (!fold->norm.module.id || fold->norm.spatial == 2);
}

static void match(fb_matcher *m, fb_node n) {
    fb_match_fold(m, n, is_wanted);
}

/* Version 1 also folded where the new weight or bias overflows, or becomes nan because eps and a variance are 0. */
#define FUSE_BATCH_NORM_2D(number, before)                                                                                     \
    {                                                                                                                          \
        .name = "FuseBatchNorm2dInConv2d", .version = number, .earlier = before,                                               \
        .summary = "Folds a BatchNorm2d in eval mode into the Conv2d before it.", .parameters = FB_NO_PARAMETERS,              \
        .exactness = FB_ROUNDS, .gain = FB_GAIN_FASTER, .reversible = false, .preserves_computation = true,                    \
        .reads_onnx = true, .begins_at = fb_op_may_be_batch_norm, .match = match, .edit = fb_edit_fold,                        \
    }

static const fb_pass version_1 = FUSE_BATCH_NORM_2D(1, NULL);
const fb_pass fb_fuse_batch_norm_2d_in_conv_2d = FUSE_BATCH_NORM_2D(2, &version_1);
