/* Random recipes that compute, for tests, and what they must give: computed beside them, element by element, by the reference
 * evaluator's tensors and loops as simple as can be. Independent of core/weights, but for the making of expressions. */
#ifndef FB_TESTS_COMPUTATIONS_H
#define FB_TESTS_COMPUTATIONS_H

#include "tests/unit/memory_blobs.h"
#include "tests/unit/movements.h"

#define MAX_COMPUTED 48

/* `bound`: all elements are integers of at most that magnitude; 0 = that is not known. Sums of products of such are exact, in
 * whatever order they are added. */
typedef struct computed {
    fb_value expression;
    value numbers;
    double bound;
} computed;

typedef struct computed_tensor {
    fb_tensor tensor;
    computed is; /* rounded to its dtype */
    bool is_source;
} computed_tensor;

typedef struct computations {
    fb_graph *graph;
    fb_arena arena;
    random_source random;
    computed_tensor tensors[MAX_COMPUTED];
    size_t count, indices;
} computations;

/* Sources of the four floating dtypes with all kinds of numbers in inline data, and tensors with recipes over all before. */
void computations_make(computations *c, uint64_t seed);
void computations_free(computations *c);
/* Moves all inline data into one blob, at odd offsets, some of it to the same place. */
void computations_use_blob(computations *c, memory_blobs *blobs);

#endif
