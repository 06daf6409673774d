/* What the BatchNorm folds share: finding the layer that takes a BatchNorm in, and the arithmetic.
 *
 * In eval mode BatchNorm is y = x * scale + shift per channel, with scale = weight / sqrt(running_var + eps) and
 * shift = bias - running_mean * scale (Ioffe and Szegedy 2015, section 3.1). */
#ifndef FB_PASSES_BATCH_NORM_FOLD_H
#define FB_PASSES_BATCH_NORM_FOLD_H

#include "core/passes/layer.h"
#include "core/passes/views.h"

/* A BatchNorm, and the Linear or convolution before or after it that takes it in. */
typedef struct fb_fold {
    fb_batch_norm norm;
    fb_layer host;
    bool is_linear; /* which of the two views is filled */
    fb_linear linear;
    fb_conv conv;
    bool is_before; /* the host comes first */
} fb_fold;

/* May this host take in this BatchNorm, as far as the pass is concerned? */
typedef bool fb_fold_filter(const fb_fold *fold);

/* Looks at a node: at the first call of a BatchNorm that `is_wanted` accepts with a host, the fold is refused, or reported as a
 * match, whose nodes are the calls of the host and then as many of the BatchNorm. A host before the BatchNorm is preferred. */
void fb_match_fold(fb_matcher *matcher, fb_node node, fb_fold_filter *is_wanted);
/* Does it. */
void fb_edit_fold(fb_rewrite *rewrite, const fb_match *match);

/* The Linear or convolution at a node as the host of a fold; false when there is none. */
bool fb_fold_host_at(const fb_graph *graph, fb_node node, fb_fold *fold);
/* The BatchNorm as a layer: its calls. */
fb_layer fb_norm_calls(const fb_batch_norm *norm);
/* Is this node a call of the layer? */
bool fb_is_call_of(const fb_graph *graph, const fb_layer *layer, fb_node node);

/* The call of `first` whose value a call of `second` takes, through views; none when it takes another. Of `axis`, a dimension
 * of what `second` takes, see fb_view_input. */
fb_node fb_fold_source(const fb_graph *graph, const fb_layer *first, const fb_layer *second, fb_node call, int *axis);

/* Refuses what can be refused by the ranks of what is normalised; then true. */
bool fb_is_rank_refused(fb_matcher *matcher, const fb_fold *fold);
/* Refuses a fold whose calls are not paired one to one; then true. */
bool fb_is_pairing_refused(fb_matcher *matcher, const fb_fold *fold, const fb_node *nodes, size_t count);
/* Refuses a fold between whose calls a mode is switched, or the input written; then true. */
bool fb_is_change_between_refused(fb_matcher *matcher, const fb_fold *fold, const fb_node *nodes, size_t count);

#endif
