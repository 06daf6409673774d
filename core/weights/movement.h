/* Evaluating recipes of pure movements over tensors whose bytes are at hand. */
#ifndef FB_WEIGHTS_MOVEMENT_H
#define FB_WEIGHTS_MOVEMENT_H

#include "core/base/sha256.h"
#include "core/weights/recipe.h"

#define FB_MOVEMENT_MAX_BYTES ((size_t)1 << 30)

/* The little-endian row-major bytes of an expression of concat, slice, reshape, permute and full over tensors with inline data,
 * or with such recipes over such tensors. `dtype` is what a bare `full` has; FB_DTYPE_UNKNOWN = none is there.
 *
 * FB_NOT_FOUND "bytes-unknown" when a tensor's bytes are not in the graph or something computes; FB_INVALID "bad-recipe" for
 * what fb_recipe_type_of refuses; FB_TOO_LARGE "movement-too-large" when the bytes, or those held on the way to them, are more
 * than FB_MOVEMENT_MAX_BYTES; FB_NO_MEMORY. `*bytes` is malloc'ed, the caller's, and written on success only. */
fb_status fb_movement_evaluate(const fb_graph *graph, fb_value expression, fb_dtype dtype, unsigned char **bytes, size_t *size,
                               fb_error *error);

/* The decoded bytes of a tensor with inline data; likewise. */
fb_status fb_tensor_bytes(const fb_graph *graph, fb_tensor tensor, unsigned char **bytes, size_t *size, fb_error *error);

/* "sha256:…" of the tensor's bytes: its digest, or that of its inline data, or (movements over such data; the same bytes in
 * another shape) of its recipe's result. FB_NOT_FOUND when that cannot be known here; otherwise as fb_movement_evaluate. */
fb_status fb_tensor_digest(const fb_graph *graph, fb_tensor tensor, char digest[FB_ID_LENGTH + 1], fb_error *error);

#endif
