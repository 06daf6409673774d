/* What the two BatchNorm folds share: finding a pair of modules that may become one, and the arithmetic.
 *
 * In eval mode BatchNorm is y = x * scale + shift per channel, with scale = weight / sqrt(running_var + eps) and
 * shift = bias - running_mean * scale (Ioffe and Szegedy 2015, section 3.1). */
#ifndef FB_PASSES_BATCH_NORM_FOLD_H
#define FB_PASSES_BATCH_NORM_FOLD_H

#include "core/passes/pass.h"

/* Two modules of which every call of `first` feeds one call of `second`. One of them is the BatchNorm, the other takes it in.
 */
typedef struct fb_fold_pair {
    fb_module first, second;
    fb_module host;   /* the one that stays */
    fb_tensor weight; /* of the host */
    fb_batch_norm norm;
    int64_t channels; /* of the host where it meets the BatchNorm */
} fb_fold_pair;

/* Refuses the pair or reports a match, whose nodes are the calls of the host and then as many of the BatchNorm. `is_refused`
 * looks at the calls of the BatchNorm from the first on, and may refuse by itself (then it returns true); NULL = no more to
 * check. */
void fb_match_fold(fb_matcher *matcher, const fb_fold_pair *pair, bool (*is_refused)(fb_matcher *, fb_node norm_call));

/* scale of shape (channels), and shift of shape (channels), as recipes. */
fb_value fb_norm_scale(fb_graph *graph, const fb_batch_norm *norm);
fb_value fb_norm_shift(fb_graph *graph, const fb_batch_norm *norm);

/* The first call of the BatchNorm in such a match. */
fb_node fb_first_norm_call(const fb_match *match);
/* Scales the host's weight along its first axis, the output channels, and makes its bias (bias - running_mean) * scale +
 * BatchNorm's bias: the fold of a BatchNorm that follows. `bias` may be none. */
void fb_fold_into_outputs(fb_rewrite *rewrite, fb_module host, fb_tensor weight, fb_tensor bias, const fb_batch_norm *norm);
/* Takes the BatchNorm's calls and the module out of the graph, and marks the calls of the host. */
void fb_remove_norm(fb_rewrite *rewrite, const fb_match *match, const fb_batch_norm *norm);
/* Sets the host's bias to `recipe` in the dtype of its weight. */
void fb_put_bias(fb_rewrite *rewrite, fb_module host, fb_tensor weight, fb_tensor old_bias, fb_value recipe);

#endif
