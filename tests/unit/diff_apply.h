/* Edits put to use, and turned round: what a diff must be right for. */
#ifndef FB_TESTS_DIFF_APPLY_H
#define FB_TESTS_DIFF_APPLY_H

#include "core/diff/diff.h"

/* Turns the edits round in place. */
void fb_diff_invert(fb_diff *diff);

/* A new graph: `graph` with the edits. FB_CONFLICT "edit-does-not-fit" when a row that an edit needs is missing, is there
 * already, is elsewhere, or has another value than `was`; FB_INVALID when what comes out is not a valid graph. */
fb_status fb_diff_apply(const fb_diff *diff, const fb_graph *graph, fb_graph **out, fb_error *error);

#endif
