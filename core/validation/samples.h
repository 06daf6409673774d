/* Inputs on which two graphs are compared: what hides a difference is not drawn alone. */
#ifndef FB_VALIDATION_SAMPLES_H
#define FB_VALIDATION_SAMPLES_H

#include "core/evaluator/evaluator.h"

/* Kinds of samples, in turn. */
typedef enum fb_sample_kind {
    FB_SAMPLE_RANDOM,
    FB_SAMPLE_EQUAL,
    FB_SAMPLE_SMALL,
    FB_SAMPLE_REPEATED,
    FB_SAMPLE_LARGE,
    FB_SAMPLE_ZERO,
    FB_SAMPLE_NEGATIVE,
    FB_SAMPLE_DENORMAL,
    FB_SAMPLE_KINDS,
} fb_sample_kind;

#define FB_MOST_BOUNDS 64

/* Numbers among the arguments of calls, none of them twice: a comparison may be with them. */
typedef struct fb_bounds {
    double numbers[FB_MOST_BOUNDS];
    size_t count;
} fb_bounds;

/* Adds the numbers that are drawn of no kind anyway, as far as there is room. */
void fb_bounds_add(fb_bounds *bounds, const fb_graph *graph, fb_value value, fb_work *work);

/* Makes a sample of that kind of an array that was just drawn, in place: it is contiguous. Integers stay below `high`; 2 is
 * what is not known. Both precisions of a value stay the same numbers. */
void fb_sample_change(const fb_bounds *bounds, fb_sample_kind kind, const fb_array *array, int64_t high);

/* The number of rows of the smallest table that the integers of this value index; 0 = none was found. */
int64_t fb_table_rows(const fb_graph *graph, fb_node node);

/* Of a value that may have become as small as the dtype goes. */
double fb_smallest_of(fb_dtype dtype);

#endif
