/* The evaluator: what a graph computes, on the CPU. A library of its own beside the engine; the rest of foldback includes
 * nothing but this header (make lint).
 *
 * It runs the operators of core/operators that have a kernel (kernels_*.c) on arrays in memory, and finds out if a rewrite
 * changed a number. So it must give the same numbers as PyTorch, and refuse by name what it cannot compute; being fast comes
 * second. That is why it is not libtorch, oneDNN or ggml:
 *
 *   - Bounds. Every kernel estimates its steps before it begins, asks its watch while it works, and takes its memory from one
 *     limit. A request that asks for too much, or is cancelled, ends within 100 ms with an error. Those libraries cannot be
 *     stopped inside a kernel, and do not say beforehand what they will allocate.
 *   - float64 beside float32. A difference counts only against the same computation in float64, so every kernel has both. On a
 *     CPU, oneDNN and ggml compute nothing in float64.
 *   - Python's values. Exported graphs compute sizes, slices, tuples and dicts between tensors, which none of the three does
 *     without an interpreter of Python.
 *   - PyTorch's semantics: promotion, views, writes in place, in both dialects. oneDNN and ggml have none of them; libtorch has
 *     all, and is many times larger than foldback.
 *
 * Matrix products, where speed counts, are OpenBLAS's. tests/python/kernels records what PyTorch computes, and
 * build/tests/unit/test_eval_kernels compares. */
#ifndef FB_EVALUATOR_EVALUATOR_H
#define FB_EVALUATOR_EVALUATOR_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/evaluator/object.h"
#include "core/weights/blobs.h"

#define FB_EVAL_STEPS 1e12

typedef struct fb_eval_options {
    fb_precision precision;
    size_t memory_limit;   /* bytes of all arrays at once; 0 = 1 GiB */
    size_t memory_held;    /* bytes of it that an earlier evaluation still holds */
    double step_limit;     /* steps (about a nanosecond each) that all calls may take, as they estimate; 0 = FB_EVAL_STEPS */
    const fb_watch *watch; /* stops it; may be NULL */
    const fb_blobs *blobs; /* where weights are; NULL = inline only */
    bool random_weights;   /* tensors whose bytes are not known are drawn from `seed`: otherwise FB_NOT_FOUND "bytes-unknown" */
    uint64_t seed;
    double deviation; /* standard deviation of what is drawn for values that are not given; 0 = 1 */
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
    /* Called for each node of the main program after it was computed, in order; but a weight is computed before its first
     * reader. A failure ends the evaluation. */
    fb_status (*computed)(void *context, fb_node node, const fb_object *object, fb_error *error);
    /* A node of the main program could not be computed (FB_INVALID); true = go on: then neither is what reads it, which is not
     * reported again, and the evaluation does not fail for it. */
    bool (*failed)(void *context, fb_node node, const fb_error *error);
    /* Does `computed` look at the elements of this node's value? NULL: it may look at any. A weight that is not looked at may
     * be read in parts, and is given as FB_OBJECT_WEIGHT. */
    bool (*looks)(void *context, fb_node node);
    /* Programs to be computed each by itself, in this order; NULL: the main program alone is. What is said above of the main
     * program holds of each, and no output is given. */
    const fb_program *programs;
    size_t program_count;
    fb_node *current; /* where it is written which node is computed */
} fb_eval_hooks;

#define FB_UNDEFINED_RESULT "undefined-result" /* on these elements, not on all */

/* Evaluates the main program, frees each value after its last use, and gives the value of the output node (a tensor, or nested
 * lists, tuples and dicts of them; None when it is not wanted). `hooks` may be NULL. `memory` is set up here; what is returned
 * lives on it, so it must outlive it.
 *
 * FB_INVALID "unsupported-operator" names the first node that no kernel computes, "missing-input", "evaluation-failed",
 * FB_UNDEFINED_RESULT;
 * FB_TOO_LARGE "evaluation-too-large"; what the watch stops it with; FB_NOT_FOUND "bytes-unknown"; FB_NO_MEMORY. Errors
 * have the node's name (error->node) where one is to blame. */
fb_status fb_evaluate_graph(const fb_graph *graph, const fb_eval_options *options, const fb_eval_hooks *hooks,
                            fb_array_memory *memory, fb_object *output, fb_error *error);

/* The tensors in an object, flattened in order, named "output.0", "output.1" … as torch's pytree flattens them. *items is
 * malloc'ed, its arrays are kept (drop each). */
fb_status fb_flatten_output(const fb_object *output, fb_array ***items, size_t *count, fb_error *error);

/* An array of random numbers, the same for the same seed and name everywhere: floating ones uniform with that deviation,
 * integers from 0 … high - 1, bools either. */
fb_status fb_random_array(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, uint64_t seed,
                          const char *name, double deviation, int64_t high, fb_array **out, fb_error *error);

/* ---- inputs and outputs ------------------------------------------------------------------------------------------------ */

/* The inputs of a whole graph's evaluation: arrays by placeholder, and seeded random ones in place of those that are not given.
 */
typedef struct fb_eval_inputs {
    const fb_graph *graph;
    fb_array_memory *memory; /* of the evaluation */
    const fb_named_array *items;
    size_t count;
    bool is_drawn; /* what is not given is random, of its recorded shape and dtype; otherwise it is missing. A symbol among the
                    * sizes is what an array that is given says, or else any */
    uint64_t seed;
    uint64_t sizes_seed; /* of the sizes that symbols get */
    double deviation;    /* of what is drawn; 0 = 1 */
} fb_eval_inputs;

/* `given` of fb_eval_hooks; the context is a fb_eval_inputs. Of what is to be drawn and has no recorded shape, and no default
 * either: FB_INVALID "missing-shape". */
fb_status fb_give_input(void *context, fb_node node, fb_object *out, fb_error *error);
/* A random array of the shape and dtype that are recorded for a node, by the options' seed and deviation and its name.
 * FB_INVALID "missing-shape" when they are not, or a size is an expression of symbols; a symbol alone gets a size by its name.
 */
fb_status fb_draw_value(const fb_graph *graph, fb_node node, fb_array_memory *memory, const fb_eval_options *options,
                        fb_object *out, fb_error *error);
/* Is it one of the names of this placeholder: that of an ONNX model, or else the node's, or its target's without stars? */
bool fb_is_input_name(const fb_graph *graph, fb_node node, const char *name);

/* The arrays of a file of inputs, safetensors or NumPy's .npz. */
typedef struct fb_array_file {
    fb_named_array *items;
    size_t count;
    fb_array_memory memory;
    fb_arena arena;   /* of the names */
    bool has_outputs; /* what begins with "output." is among them */
} fb_array_file;

/* `watch` stops it, and may be NULL; it stays until the file is freed. Names may begin with "input.", which is taken off; what
 * begins with "output." is left out unless it is asked for, so that a file of recorded inputs and outputs will do. `limit` as
 * fb_eval_options.memory_limit. FB_INVALID "bad-safetensors", "bad-archive", "bad-npy", "unsupported-dtype"; FB_TOO_LARGE
 * "evaluation-too-large". `out` stays where it is, and is freed also after a failure. */
fb_status fb_array_file_read(const unsigned char *bytes, uint64_t size, size_t limit, bool has_outputs, const fb_watch *watch,
                             fb_array_file *out, fb_error *error);
void fb_array_file_free(fb_array_file *file);

/* Appends a safetensors file of arrays, all of one memory, beside which the file has room. FB_INVALID "not-in-safetensors",
 * FB_TOO_LARGE; what the memory's watch stops it with. */
fb_status fb_arrays_write(const fb_named_array *items, size_t count, fb_buffer *out, fb_error *error);
/* The same of arrays "output.0", "output.1" and so on. */
fb_status fb_outputs_write(fb_array *const *arrays, size_t count, fb_buffer *out, fb_error *error);

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* The distribution that a weight is drawn from whose bytes are not known. */
void fb_random_distribution(const fb_graph *graph, fb_tensor tensor, double *mean, double *deviation);
/* Calls `visit` for each tensor that a call of a parametrised module reads of modules below the called one. */
void fb_visit_parametrized(const fb_graph *graph, fb_node node, void (*visit)(void *, fb_tensor), void *context);

/* ---- tolerances ------------------------------------------------------------------------------------------------------- */

/* The largest difference that counts as equal: absolute + relative × the largest finite magnitude of the value (`largest`). */
typedef struct fb_tolerance {
    double absolute, relative;
} fb_tolerance;
/* The tolerance of a dtype with p bits of mantissa: relative 2^(6 - p) when weights were only moved (a sum may go in another
 * order), 2^(9 - p) when they were computed and rounded; 2^(2 - p) and 2^(4 - p) for float16 and bfloat16, which are summed in
 * float32; 0 for integers and bool. */
fb_tolerance fb_tolerance_of(fb_dtype dtype, bool only_moves);
/* `other` if both are floating and it has fewer bits of mantissa: a float32 sum of float16 numbers is not closer than these. */
fb_dtype fb_narrower_dtype(fb_dtype dtype, fb_dtype other);

#endif
