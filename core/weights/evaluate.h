/* The bytes of a tensor: the ones that it has in a blob or inline, or what its recipe makes of others'. graph-format: "tensor".
 *
 * Movements copy elements of any dtype. Everything else is computed in float64 and rounded once, to nearest even, to the dtype
 * of the tensor that the recipe defines; a tensor that a recipe reads has its own dtype's values, rounded when it has a recipe
 * itself. matmul is BLAS' dgemm.
 *
 * Bytes are made a block at a time, when they are asked for: memory stays below FB_EVALUATION_MEMORY for any size. */
#ifndef FB_WEIGHTS_EVALUATE_H
#define FB_WEIGHTS_EVALUATE_H

#include "core/graph/graph.h"
#include "core/weights/blobs.h"

#define FB_EVALUATION_MEMORY ((size_t)192 << 20)

typedef struct fb_evaluation fb_evaluation;

/* `blobs` may be NULL: then only inline data is known. The graph and `blobs` must outlive the evaluation.
 *
 * Opens every blob that it takes: so what is missing is known here, before the first byte. FB_NOT_FOUND "blob-missing", or
 * "bytes-unknown" for a tensor without bytes, whose names are in the message; FB_INVALID "blob-too-small" when a tensor ends
 * behind its blob, "bad-recipe"; FB_TOO_LARGE, FB_NO_MEMORY, FB_IO, FB_NO_SPACE. */
fb_status fb_evaluation_new(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, fb_evaluation **out,
                            fb_error *error);
/* The same for any expression over the graph's tensors; `dtype` is what it is rounded to, and what a bare `full` has. */
fb_status fb_evaluation_of(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                           fb_evaluation **out, fb_error *error);
void fb_evaluation_free(fb_evaluation *evaluation);

/* Bytes of the whole: little-endian, row-major. */
uint64_t fb_evaluation_size(const fb_evaluation *evaluation);
/* Writes bytes offset … offset + size of it, which must be within it. Any part may be read, in any order; in order and in large
 * parts is fastest. One thread at a time. */
fb_status fb_evaluation_read(fb_evaluation *evaluation, uint64_t offset, void *to, size_t size, fb_error *error);

/* The place of the bytes from `offset` on in a blob, as they are: how many, `size` at most; 0: they are there when they are
 * read, and not before. Valid until the next call. */
size_t fb_evaluation_lie(fb_evaluation *evaluation, uint64_t offset, size_t size, const unsigned char **bytes);

/* ---- numbers that are finite no more ---- */

/* Why a pass refuses to compute weights, and a file of them is not made: they would be infinite in their dtype, or nan. */
#define FB_TENSOR_OVERFLOWS "tensor-overflows"

/* From now on reading fails with FB_CONFLICT FB_TENSOR_OVERFLOWS where it comes to a number that a recipe computes and that is
 * infinite or nan, if all that it is made of are finite. A tensor of at most `*left` bytes is looked at now, and lessens that;
 * `left` may be NULL. */
fb_status fb_evaluation_refuse_overflow(fb_evaluation *evaluation, uint64_t *left, fb_error *error);
#define FB_OVERFLOW_LOOK ((uint64_t)1 << 30) /* bytes that are looked at before the first one is sent */

/* Finds out if two of them give the same bytes. */
fb_status fb_evaluation_equal(fb_evaluation *a, fb_evaluation *b, bool *is_equal, fb_error *error);

/* Bytes of a tensor, by its dtype and shape. */
uint64_t fb_tensor_bytes(const fb_graph *graph, fb_tensor tensor);

/* How large numbers are. */
typedef struct fb_extent {
    double least, largest; /* absolute values; of those that are finite and not zero */
    bool has_zero, is_finite;
} fb_extent;
/* The extent of a tensor of a floating dtype that recipes compute with. FB_TOO_LARGE: a recipe makes too much of too little. */
fb_status fb_evaluation_extent(fb_evaluation *evaluation, fb_extent *out, fb_error *error);

/* "sha256:…" of the tensor's bytes: its `digest` when it has one, or a remembered one, or the bytes' own. */
fb_status fb_evaluation_digest(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, char digest[FB_ID_LENGTH + 1],
                               fb_error *error);
/* The same of the bytes themselves, whatever digest the document says that they have. */
fb_status fb_evaluation_digest_of_bytes(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs,
                                        char digest[FB_ID_LENGTH + 1], fb_error *error);

/* Which tensors' bytes cannot be known here, among all that `tensor` is made from (itself included); calls `report` for each
 * with the code "blob-missing", "blob-too-small" (it ends before the tensor does) or "bytes-unknown" and, but for the last, the
 * blob. FB_OK also when there are some. */
fb_status fb_evaluation_missing(const fb_graph *graph, const fb_tensor *tensors, size_t count, const fb_blobs *blobs,
                                void (*report)(void *context, fb_tensor tensor, const char *code, const char *blob),
                                void *context, fb_error *error);

#endif
