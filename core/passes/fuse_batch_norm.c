/* FuseBatchNorm: folds a BatchNorm in eval mode into the layer before it, or else into the layer after it.
 *
 *     x ── Linear ── BatchNorm ── y            x ── Linear ── y
 *     x ── Conv or ConvTranspose ── BatchNorm ── y      x ── Conv or ConvTranspose ── y
 *     x ── BatchNorm ── Linear ── y            x ── Linear ── y
 *     x ── BatchNorm ── Conv ── y              x ── Conv ── y
 *
 *     before: weight := weight * scale per output channel,  bias := (bias - running_mean) * scale + BatchNorm's bias
 *     after:  weight := weight * scale per input channel,   bias := bias + weight · shift, summed over the kernel
 *
 * Works in 1, 2 and 3 dimensions, and with groups. (A transposed convolution has its outputs on axis 1, group by group.) A
 * convolution after the BatchNorm must not pad, because its zeros would not be shifted. A Linear's value must be 2-D; a
 * convolution's value must have a batch dimension.
 *
 * Both must be in eval mode, with running statistics; for an ATen call, its argument decides. Each call of one must belong to
 * one call of the other, and nothing else may read the value between them. Exactness: rounds each weight once. Not reversible
 * from new weights; rollback is exact. Where the numbers are known, no new weight or bias may overflow, and no variance be 0 if
 * eps is.
 */
#include "core/pass/batch_norm_fold.h"

static bool is_wanted(const fb_fold *fold) {
    return fold->is_before || fold->host.is_linear || !fold->host.conv.is_transposed;
}

static void match(fb_matcher *m, fb_node n) {
    fb_match_fold(m, n, is_wanted);
}

/* Version 1 also folded where the new weight or bias overflows, or becomes nan because eps and a variance are 0. */
#define FUSE_BATCH_NORM(number, before)                                                                                        \
    {                                                                                                                          \
        .name = "FuseBatchNorm", .version = number, .earlier = before,                                                         \
        .summary = "Folds a BatchNorm in eval mode into the Linear or convolution before or after it.",                        \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_ROUNDS, .gain = FB_GAIN_FASTER, .reversible = false,                   \
        .preserves_computation = true, .reads_onnx = true, .begins_at = fb_op_may_be_batch_norm, .match = match,               \
        .edit = fb_edit_fold,                                                                                                  \
    }

static const fb_pass version_1 = FUSE_BATCH_NORM(1, NULL);
const fb_pass fb_fuse_batch_norm = FUSE_BATCH_NORM(2, &version_1);
