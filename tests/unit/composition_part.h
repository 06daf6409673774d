/* A part of a composition, for the run that undoing must equal. */
#ifndef FB_TESTS_COMPOSITION_PART_H
#define FB_TESTS_COMPOSITION_PART_H

#include "core/compose/composition.h"

/* The composition without the selected calls, perhaps an empty one; its signature is not made. The calls are still those of the
 * whole one: only the list of them is to be freed, by composition_part_free. */
fb_composition composition_without(const fb_composition *whole, const bool *selected);
void composition_part_free(fb_composition *part);

#endif
