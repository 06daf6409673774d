/* The views between two layers: reshapes, permutations and copies that move elements and change none.
 *
 *     x ── Linear ── flatten(0, 1) ── BatchNorm1d ── y
 *
 * What one layer gives and the other takes are then the same numbers in another shape, and a weight of one number a channel can
 * go from the one to the other where the views keep the channels on one axis. */
#ifndef FB_PASS_VIEWS_H
#define FB_PASS_VIEWS_H

#include "core/pass/pass.h"

enum { FB_VIEWS_MAX = 16, FB_AXIS_LOST = -1 };

/* The node's input that it is a view of; none when it is not a view. `*axis`, a dimension of the node's value, becomes that
 * dimension of the input's, or FB_AXIS_LOST; it may be NULL. */
fb_node fb_view_input(const fb_graph *graph, fb_node node, int *axis);
/* Does the node order its elements in memory in another way, or need them in order: so that strides matter? */
bool fb_view_minds_strides(const fb_graph *graph, fb_node node);

/* Inserts the call `old` again before itself, reading `now` in the place of `input`, and lets it take the place of `old`. Its
 * name is new, because its values are: comparing the graphs must not match the two. Returns none when `now` is none or the
 * rewrite has failed. */
fb_node fb_put_again(fb_rewrite *rewrite, fb_node old, fb_node input, fb_node now);

#endif
