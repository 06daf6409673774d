/* Which nodes of a graph can compute in a narrower dtype what they compute in float32, and why others stay as they are. */
#ifndef FB_ANALYSIS_PRECISION_H
#define FB_ANALYSIS_PRECISION_H

#include "core/analysis/alias.h"
#include "core/analysis/obstacle.h"
#include "core/analysis/usage.h"
#include "core/base/arena.h"

typedef struct fb_precision {
    const fb_graph *graph;
    const fb_alias *alias;
    const fb_usage *usage;
    fb_dtype to;        /* float16 or bfloat16 */
    bool casts_outputs; /* results are cast back to float32 */
    fb_arena *arena;    /* of the obstacles' sentences */
    void *context;
    bool (*is_kept)(void *context, fb_node node);   /* must it stay? */
    bool (*is_marked)(void *context, fb_node node); /* was it converted before? */
    /* Has the float32 tensor numbers beyond the range of `to`, as far as is known? NULL: nothing is asked. */
    bool (*overflows)(void *context, fb_tensor tensor);
} fb_precision;

/* By node of the main program, in tables of fb_node_limit zeros: does it stay as it is, reading and giving float32? So do
 *   - inputs of the graph, what is kept or marked, unknown operators, what gives float32 for any input, or float64, or complex
 *     numbers, or a dtype that is not known, or reads the other narrow dtype, or is where autocast is on;
 *   - with a call, the other calls of its module, and what reads that module's tensors;
 *   - with a value that is written in place, all that share its memory, because a cast would be a copy;
 *   - with a value of unknown dtype, its readers and its source, because it cannot be cast;
 *   - weights whose numbers are known to be too large, the calls of their modules, and what reads them;
 *   - weights that one of these reads by get_attr.
 * Gives the obstacle of each that stays for a reason of its own without being kept. False when memory is out. */
bool fb_find_precision(const fb_precision *precision, bool *stays, fb_obstacle *obstacles);

/* A number in an argument: is it beyond `dtype`, so that `out` must replace it? A factor stays as it is.
 *
 * The ends of float32's range mean infinity (masks), and become the ends of the other range. Other numbers that are stored as
 * they are become the nearest one too. Numbers to compute with stay: the computation is done wide. */
bool fb_literal_overflows(const fb_graph *graph, fb_node node, fb_value literal, fb_dtype dtype, double *out);

#endif
