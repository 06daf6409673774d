/* The reference interpreter: what a graph computes. */
#ifndef FB_EVAL_EVALUATE_GRAPH_H
#define FB_EVAL_EVALUATE_GRAPH_H

#include "core/base/work.h"
#include "core/eval/object.h"
#include "core/weights/blobs.h"

#define FB_EVAL_STEPS 1e12

typedef struct fb_eval_options {
    fb_precision precision;
    size_t memory_limit;   /* bytes of all arrays at once; 0 = 1 GiB */
    double step_limit;     /* steps (about a nanosecond each) that all calls may take, as they estimate; 0 = FB_EVAL_STEPS */
    const fb_watch *watch; /* stops it; may be NULL */
    const fb_blobs *blobs; /* where weights are; NULL = inline only */
    bool random_weights;   /* tensors whose bytes are not known are drawn from `seed`: otherwise FB_NOT_FOUND "bytes-unknown" */
    uint64_t seed;
} fb_eval_options;

/* A named array: an input ("x", a placeholder's name) or an output. */
typedef struct fb_named_array {
    const char *name;
    fb_array *array;
} fb_named_array;

/* Where values come from that are not computed, and where they go. Any of the functions may be NULL. */
typedef struct fb_eval_hooks {
    void *context;
    /* Is this node of the main program to be computed? NULL: all are. */
    bool (*wanted)(void *context, fb_node node);
    /* The value of a placeholder, or of a node that is not wanted and that one reads which is: called once for each.
     * FB_NOT_FOUND: a placeholder has its default, or it is FB_INVALID "missing-input". */
    fb_status (*given)(void *context, fb_node node, fb_object *out, fb_error *error);
    /* Called for each node of the main program after it was computed, in order. A failure ends the evaluation. */
    fb_status (*computed)(void *context, fb_node node, const fb_object *object, fb_error *error);
    /* A node of the main program could not be computed (FB_INVALID); true = go on: then neither is what reads it, which is not
     * told again, and the evaluation does not fail for it. */
    bool (*failed)(void *context, fb_node node, const fb_error *error);
} fb_eval_hooks;

/* Evaluates the main program, frees each value after its last use, and gives the value of the output node (a tensor, or nested
 * lists, tuples and dicts of them; None when it is not wanted). `hooks` may be NULL. `memory` is set up here; what is returned
 * lives on it, so it must outlive it.
 *
 * FB_INVALID "unsupported-operator" names the first node that no kernel computes, "missing-input", "evaluation-failed";
 * FB_TOO_LARGE "evaluation-too-large"; what the watch stops it with; FB_NOT_FOUND "bytes-unknown"; FB_NO_MEMORY. Errors
 * have the node's name (error->node) where one is to blame. */
fb_status fb_evaluate_graph(const fb_graph *graph, const fb_eval_options *options, const fb_eval_hooks *hooks,
                            fb_array_memory *memory, fb_object *output, fb_error *error);

/* The tensors in an object, flattened in order, named "output.0", "output.1" … as torch's pytree flattens them. *items is
 * malloc'ed, its arrays are kept (drop each). */
fb_status fb_flatten_output(const fb_object *output, fb_array ***items, size_t *count, fb_error *error);

/* An array of random numbers, the same for the same seed and name everywhere: floating ones uniform with standard deviation 1,
 * integers from 0 … high - 1, bools either. */
fb_status fb_random_array(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, uint64_t seed,
                          const char *name, int64_t high, fb_array **out, fb_error *error);

#endif
