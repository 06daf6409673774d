/* Bounded constants: tensors that libraries compute with other last bits, and what is computed of them element by element. What
 * rounds them to whole numbers is often sure all the same:
 *
 *     log(distance / 8) ── * 2.885 ── cast to int64 ── min(·, 15) ── where(distance < 8, distance, ·)
 *
 * Buckets of positions are made so. An element that may be anything, as the infinite logarithm of 0 once it is cast, counts
 * only where it is chosen. Of ONNX's operators, on float32, float64, int32 and int64. */
#ifndef FB_PASS_BOUNDED_H
#define FB_PASS_BOUNDED_H

#include "core/evaluator/evaluator.h"

typedef struct fb_bounded {
    fb_dtype dtype;
    fb_array *least, *largest; /* float64; nan: it may be anything */
} fb_bounded;

/* True for the operators that make bounds of an exact input; and for those that make them of their inputs' bounds. */
bool fb_bounds_begin_at(const fb_graph *graph, fb_node node);
bool fb_bounds_go_on_at(const fb_graph *graph, fb_node node);

enum { FB_BOUNDED_INPUTS = 3 };
typedef struct fb_bounded_input {
    const fb_bounded *bounded; /* not empty; or NULL: it is exact */
    const fb_array *exact;
} fb_bounded_input;
/* Of a call at which one of these is true. Empty where nothing can be said; FB_NO_MEMORY, FB_TOO_LARGE, as the watch says. */
fb_status fb_bounded_of(const fb_graph *graph, fb_node node, const fb_bounded_input *inputs, size_t count,
                        fb_array_memory *memory, fb_bounded *out, fb_error *error);
/* The integers, where each is sure; NULL otherwise. */
fb_status fb_bounded_integers(const fb_bounded *bounded, fb_array **out, fb_error *error);
void fb_bounded_drop(fb_bounded *bounded);

#endif
