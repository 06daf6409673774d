/* Code that the BatchNorm folds share: finding the layer that takes a BatchNorm in, and the arithmetic.
 *
 * In eval mode BatchNorm is y = x * scale + shift per channel, with scale = weight / sqrt(running_var + eps) and
 * shift = bias - running_mean * scale (Ioffe and Szegedy 2015, section 3.1). */
#ifndef FB_PASS_BATCH_NORM_FOLD_H
#define FB_PASS_BATCH_NORM_FOLD_H

#include "core/pass/layer.h"
#include "core/pass/views.h"

/* A BatchNorm, and the Linear or convolution before or after it that takes it in. */
typedef struct fb_fold {
    fb_batch_norm norm;
    fb_host host;
    bool is_before; /* the host comes first */
} fb_fold;

/* May this host take in this BatchNorm, as far as the pass is concerned? */
typedef bool fb_fold_filter(const fb_fold *fold);

/* Looks at a node: at the first call of a BatchNorm that `is_wanted` accepts with a host, the fold is refused, or reported as a
 * match, whose nodes are the calls of the host and then as many of the BatchNorm. A host before the BatchNorm is preferred. */
void fb_match_fold(fb_matcher *matcher, fb_node node, fb_fold_filter *is_wanted);
/* Does it. */
void fb_edit_fold(fb_rewrite *rewrite, const fb_match *match);

/* ---- of a BatchNorm alone ------------------------------------------------------------------------------------------------ */

/* Why its weights must stay as they are: fb_layer_obstacle's reasons. */
fb_obstacle fb_batch_norm_obstacle(fb_matcher *matcher, const fb_batch_norm *norm);
/* "unsupported-constant": eps is not finite, or it and a variance may both be 0. */
fb_obstacle fb_batch_norm_numbers_obstacle(const fb_graph *graph, const fb_batch_norm *norm);
/* The largest absolute values of scale and shift, as fb_known_largest. */
void fb_batch_norm_measure(fb_matcher *matcher, const fb_batch_norm *norm, fb_dtype dtype, double *scale, double *shift);
/* Scale and shift as recipes of shape (channels). */
fb_value fb_batch_norm_scale(fb_graph *graph, const fb_batch_norm *norm);
fb_value fb_batch_norm_shift(fb_graph *graph, const fb_batch_norm *norm);

#endif
