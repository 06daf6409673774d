/* Rotary embeddings of ONNX models: pairs of numbers of x that are turned by an angle, which RotaryEmbedding does in one call.
 *
 *     x * cos + Concat(-x[..., h:], x[..., :h]) * sin                     rotate_half; cos and sin have each number twice
 *     Concat(a * cos - b * sin, b * cos + a * sin)                        a and b are the halves of x
 *     the same, but stacked, and a and b are each second number of x      interleaved
 *
 * x has four dimensions, (batch, heads, positions, size), and cos and sin (batch, 1, positions, size or half of it). */
#ifndef FB_PASS_ROTARY_H
#define FB_PASS_ROTARY_H

#include "core/pass/build.h"

enum { FB_ROTARY_CALLS = 16 };

typedef struct fb_rotary {
    fb_node node, input, cos, sin;  /* node: gives the result */
    bool is_interleaved;            /* a pair is two neighbours; else one of each half */
    bool is_doubled;                /* cos and sin have the size of the input */
    fb_node calls[FB_ROTARY_CALLS]; /* before the node; some may be there twice */
    size_t count;
} fb_rotary;

bool fb_rotary_at(const fb_graph *graph, fb_node node, fb_rotary *out);
/* Why it must stay: "dtype", "shape-mismatch" (ONNX Runtime takes no cos and sin of another batch), "shared-output",
 * "named-elsewhere", "unknown-constant" (that each number is there twice is not certain). */
fb_obstacle fb_rotary_obstacle(fb_matcher *matcher, const fb_rotary *rotary);
/* The node becomes the call, and the others go. */
void fb_build_rotary(fb_rewrite *rewrite, const fb_rotary *rotary);

#endif
