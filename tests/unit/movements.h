/* Random movements for tests, and what they must give: every element of a source is a number that tells which one it is.
 * The numbers are moved independently of core/weights, by the reference evaluator's tensors. */
#ifndef FB_TESTS_MOVEMENTS_H
#define FB_TESTS_MOVEMENTS_H

#include "core/weights/evaluate.h"
#include "core/weights/invert.h"
#include "tests/unit/evaluate_tensor.h"
#include "tests/unit/generator.h"

#define MAX_MOVED 40

typedef struct moved_tensor {
    fb_tensor tensor;
    value elements; /* of the source tensors[s]: (s + 1) * SOURCE_STEP + the element's index; of a filler: negative */
    bool is_source;
} moved_tensor;

#define SOURCE_STEP 1048576

typedef struct movements {
    fb_graph *graph;
    fb_arena arena;
    random_source random;
    moved_tensor tensors[MAX_MOVED];
    size_t count;
} movements;

/* A graph of int64 tensors, sources with data and tensors moved from them; the last one is moved through all kinds of
 * operations. Nothing owns them: it is no whole document. */
void movements_make(movements *m, uint64_t seed);
void movements_free(movements *m);

/* 0 … limit - 1 */
int64_t movements_below(movements *m, int64_t limit);
/* A tensor with data; `bytes` may be NULL for one without. */
fb_tensor put_tensor(fb_graph *graph, const char *name, fb_dtype dtype, const int64_t *sizes, int rank, const void *bytes,
                     size_t size);
/* A tensor with a recipe, of the type that the recipe has (`dtype` for one of fillers alone). */
fb_tensor put_recipe(fb_graph *graph, const char *name, fb_dtype dtype, fb_value recipe);

/* All bytes of an expression, to be freed; of inline data when `blobs` is NULL. */
fb_status evaluate_whole(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                         unsigned char **bytes, size_t *size, fb_error *error);
/* The int64 elements of an expression, to be freed; fails the test when they are not `expected` many. */
int64_t *moved_numbers(const fb_graph *graph, fb_value expression, size_t expected);
/* All pieces joined, whatever their source. */
fb_value join_pieces(fb_graph *graph, const fb_pieces *pieces, const int64_t *sizes, int rank);

#endif
