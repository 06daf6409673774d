/* A reference evaluator for tests: runs a graph in double precision on small tensors, with PyTorch's rules for views and
 * in-place writes, so that a rewrite that moves a read across a write shows in the numbers. Independent of core/passes,
 * core/analysis and core/weights on purpose: it knows operators by their spelling, and evaluates recipes by itself.
 *
 * What PyTorch would fail at (shapes that do not fit) gives a value that is unusable, and so does everything computed from it.
 * A call that it does not know does the worst that an unknown call may do: it writes into every tensor that it is given and
 * returns the first one.
 */
#ifndef FB_TESTS_EVALUATE_H
#define FB_TESTS_EVALUATE_H

#include <stdint.h>

#include "core/base/buffer.h"
#include "core/graph/graph.h"

/* What a graph computes: its outputs and what its inputs hold afterwards. */
typedef struct evaluation {
    fb_buffer numbers; /* doubles */
    size_t unusable;   /* values that could not be computed */
    size_t untrue;     /* values that have other sizes than the graph says */
    size_t unknown;    /* calls of what the evaluator does not know */
} evaluation;

/* Inputs and tensors without recipe and inline data get numbers that follow from `seed` and their digests or names. A
 * placeholder's shape is meta.actual, or else meta.shape with 2 for every symbolic size. */
void evaluate(const fb_graph *graph, uint64_t seed, evaluation *out);
/* What a tensor holds before anything runs, to be freed; NULL when that could not be computed. Recipes of tensors that it is
 * made from are rounded to their dtypes, which `evaluate` does not do: so it can tell a wrong fold from a rounded one. */
double *evaluate_tensor(const fb_graph *graph, uint64_t seed, fb_tensor tensor, size_t *count);
void evaluation_free(evaluation *done);
/* Equal up to rounding, but for what was unusable before: a pass may leave out what fails. On a difference says where. */
bool evaluations_agree(const evaluation *a, const evaluation *b, double tolerance, fb_buffer *why);

#endif
