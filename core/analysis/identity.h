/* Calls that give the value that they are given: Identity, a cast to the same dtype, x * 1. */
#ifndef FB_ANALYSIS_IDENTITY_H
#define FB_ANALYSIS_IDENTITY_H

#include "core/analysis/alias.h"
#include "core/analysis/obstacle.h"

typedef enum fb_identity_form {
    FB_IDENTITY_ITSELF, /* the very object: Identity, dropout in eval mode, a cast to its own dtype */
    FB_IDENTITY_VIEW,   /* another tensor over the same memory: a view of the same sizes, detach */
    FB_IDENTITY_COPY,   /* the same numbers in memory of its own: x * 1, clone, copy_, cat([x]) */
} fb_identity_form;

/* Where a copy puts its elements. */
typedef enum fb_identity_layout {
    FB_LAYS_ALIKE,   /* as in the input, where that has no gaps */
    FB_LAYS_IMAGES,  /* in rows; images in channels_last stay so */
    FB_LAYS_IN_ROWS, /* for any input */
} fb_identity_layout;

typedef struct fb_identity {
    fb_node node, input;
    fb_identity_form form;
    fb_identity_layout layout; /* of a copy */
    bool turns_minus_zero;     /* x + 0 in floating point: -0.0 becomes 0.0 */
    bool needs_contiguous;     /* it is one only where the input is contiguous */
    bool overwrites;           /* copy_: its memory is not new */
    fb_obstacle doubt;         /* why it may be none */
} fb_identity;

/* Also true for a call that is nearly an identity, and `doubt` says why. False for one that surely computes something else. */
bool fb_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity);
/* A cast to any dtype; `doubt` says why it may do more. */
bool fb_cast_at(const fb_graph *graph, fb_node node, fb_identity *cast);

#endif
