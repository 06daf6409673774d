/* Checks of everything that holds for the diff of any two graphs. */
#ifndef FB_TESTS_DIFF_PAIR_H
#define FB_TESTS_DIFF_PAIR_H

#include <jansson.h>

#include "core/diff/diff.h"

/* Applying the diff gives `to`, its inverse gives `from`, turned round twice it is what it was, and its JSON has the documented
 * shape. Fails the test with `label` otherwise. Gives the number of edits. */
size_t check_pair(const fb_graph *from, const fb_graph *to, const char *label);

/* The edits from one graph to another as JSON; fails the test when there is no memory. */
json_t *edits_between(const fb_graph *from, const fb_graph *to);

/* The edits as text with ' for ", to be freed. */
char *quoted_edits(const fb_graph *from, const fb_graph *to);

#endif
