/* What whole graphs are evaluated on: arrays by placeholder, and seeded random ones in place of those that are not given. */
#ifndef FB_EVAL_GIVEN_H
#define FB_EVAL_GIVEN_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/eval/evaluate_graph.h"

typedef struct fb_given {
    const fb_graph *graph;
    fb_array_memory *memory; /* of the evaluation */
    const fb_named_array *items;
    size_t count;
    bool is_drawn; /* what is not given is random, of its recorded shape and dtype; otherwise it is missing. A symbol among the
                    * sizes is what an array that is given says, or else any */
    uint64_t seed;
} fb_given;

/* `given` of fb_eval_hooks; the context is a fb_given. Of what is to be drawn and has no recorded shape, and no default either:
 * FB_INVALID "missing-shape". */
fb_status fb_give_input(void *context, fb_node node, fb_object *out, fb_error *error);
/* A random array of the shape and dtype that are recorded for a node, the same for the same seed and name. FB_INVALID
 * "missing-shape" when they are not, or a size is an expression of symbols; a symbol alone gets a size by its name. */
fb_status fb_draw_value(const fb_graph *graph, fb_node node, fb_array_memory *memory, uint64_t seed, fb_object *out,
                        fb_error *error);
/* Is it one of the names of this placeholder: the node's, or its target's without stars? */
bool fb_is_input_name(const fb_graph *graph, fb_node node, const char *name);

/* ---- files ------------------------------------------------------------------------------------------------------------- */

/* The arrays of a safetensors file of inputs. */
typedef struct fb_array_file {
    fb_named_array *items;
    size_t count;
    fb_array_memory memory;
    fb_arena arena; /* of the names */
} fb_array_file;

/* `watch` stops it, and may be NULL; it stays until the file is freed. Names may begin with "input.", which is taken off; what
 * begins with "output." is left out, so that a file of recorded inputs and outputs will do. `limit` as
 * fb_eval_options.memory_limit. FB_INVALID "bad-safetensors", "unsupported-dtype"; FB_TOO_LARGE "evaluation-too-large". `out`
 * stays where it is, and is freed also after a failure. */
fb_status fb_array_file_read(const unsigned char *bytes, uint64_t size, size_t limit, const fb_watch *watch, fb_array_file *out,
                             fb_error *error);
void fb_array_file_free(fb_array_file *file);

/* Appends a safetensors file of arrays "output.0", "output.1", …, all of one memory, beside which the file has room. FB_INVALID
 * "not-in-safetensors", FB_TOO_LARGE; what the memory's watch stops it with. */
fb_status fb_outputs_write(fb_array *const *arrays, size_t count, fb_buffer *out, fb_error *error);

#endif
