/* Calls that give the value that they are given. */
#ifndef FB_OPS_IDENTITY_H
#define FB_OPS_IDENTITY_H

#include "core/ops/alias.h"
#include "core/ops/view.h"

typedef enum fb_identity_form {
    FB_IDENTITY_ITSELF, /* the very object: Identity, dropout in eval mode, a cast to its own dtype */
    FB_IDENTITY_VIEW,   /* another tensor over the same memory: a view of the same sizes, detach */
    FB_IDENTITY_COPY,   /* the same numbers in memory of its own: x * 1, clone */
} fb_identity_form;

typedef struct fb_identity {
    fb_node node, input;
    fb_identity_form form;
    bool turns_minus_zero; /* x + 0 in floating point: -0.0 becomes 0.0 */
    bool needs_contiguous; /* it is one only where the input is contiguous */
    const char *doubt;     /* why it may be none: a reason code; NULL = it is one */
    const char *detail;    /* the sentence for it */
} fb_identity;

/* True as well for what is nearly one; `doubt` says so. What surely computes something else is none. */
bool fb_identity_at(const fb_graph *graph, fb_node node, fb_identity *identity);

/* A call that only checks something, and gives nothing. */
bool fb_assertion_at(const fb_graph *graph, fb_node node);

#endif
