/* Bounds of the elements of a value, as far as the graph shows them. */
#ifndef FB_ANALYSIS_VALUE_RANGE_H
#define FB_ANALYSIS_VALUE_RANGE_H

#include "core/analysis/alias.h"
#include "core/base/work.h"

typedef struct fb_bounds {
    double least, largest; /* perhaps infinite */
} fb_bounds;

/* As `reader` reads it. False when that is not known, or an element may be nan. */
bool fb_bounds_of(const fb_graph *graph, const fb_alias *alias, fb_work *work, fb_node value, fb_node reader, fb_bounds *out);

/* The same of the elements whose last index is 0: of a matrix, its first column. Also of bools, 0 or 1: comparisons, and what
 * is made of them, are known here; of an input nothing. */
bool fb_bounds_of_first_column(const fb_graph *graph, const fb_alias *alias, fb_work *work, fb_node value, fb_node reader,
                               fb_bounds *out);

#endif
