/* What tensors hold, and what a client makes of the weights of an optimised graph, for tests of undo. Documents are trees as in
 * client_changes.h. */
#ifndef FB_TESTS_FINE_TUNING_H
#define FB_TESTS_FINE_TUNING_H

#include "tests/unit/random_case.h"

/* Gives tensors without a recipe inline data, digests, both or nothing; all the same or mixed. */
void give_content(random_source *random, json_t *graph);

/* Overwrites some tensors that modules own: new bytes or digests instead of recipes, no bytes at all, or another recipe; and
 * takes out what is not read any more, as an exporter would. False when nothing was changed. */
bool fine_tune(const random_case *c, random_source *random, json_t *graph);

/* Inline data instead of whatever the tensor was; its dtype must have numbers. */
void set_data(json_t *tensor, const double *numbers, size_t count, bool has_digest);
void drop_unread_tensors(json_t *graph);

#endif
