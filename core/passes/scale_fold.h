/* A constant factor or addend beside a layer that can take it in. */
#ifndef FB_PASSES_SCALE_FOLD_H
#define FB_PASSES_SCALE_FOLD_H

#include "core/ops/affine.h"
#include "core/passes/layer.h"

typedef struct fb_scale_fold {
    fb_affine affine;
    fb_layer host;
    bool is_linear; /* which of the two views is filled */
    fb_linear linear;
    fb_conv conv;
    bool is_after;  /* the constant comes after the host */
    bool is_direct; /* … without a view or product between */
} fb_scale_fold;

/* Is there a layer whose result is scaled or shifted here (perhaps some views and a product later), or one that reads what is?
 * Then the fold is filled. */
bool fb_scale_after_at(const fb_graph *graph, fb_node node, fb_scale_fold *fold);
bool fb_scale_before_at(const fb_graph *graph, fb_node node, fb_scale_fold *fold);
/* Goes on from a constant after the layer to the one that alone reads its result; false where there is none, or a layer behind
 * it takes it in. */
bool fb_scale_next(const fb_graph *graph, fb_scale_fold *fold);
#define FB_SCALE_ROW_MAX 16 /* constants that go into a layer at once */
/* The fold of these two nodes, which one of the above has found. */
bool fb_scale_fold_of(const fb_graph *graph, fb_node affine, fb_node call, fb_scale_fold *fold);

/* Channels of the host where it meets the constant, and its dtype. */
int64_t fb_scale_channels(const fb_scale_fold *fold);

/* Why not: a reason code, and the sentence for it; NULL when nothing stands against it. */
const char *fb_scale_obstacle(fb_matcher *matcher, const fb_scale_fold *fold, const char **detail);

/* The layer's new weight and bias, as recipes set. */
void fb_scale_fold_edit(fb_rewrite *rewrite, const fb_scale_fold *fold);

#endif
