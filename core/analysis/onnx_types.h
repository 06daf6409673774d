/* Dtypes and shapes of ONNX's values, by our own rules: what a file says of them is not looked at.
 *
 * Sizes are computed as values, too: through Shape, Gather, Concat, Slice, arithmetic and Reshape. A size that is no number is
 * a product of symbols, so that equal sizes are found equal wherever they come from. Programs of If, Loop and Scan are looked
 * at with what they are given, and functions at each call. Where a rule does not know, it says nothing. */
#ifndef FB_ANALYSIS_ONNX_TYPES_H
#define FB_ANALYSIS_ONNX_TYPES_H

#include "core/analysis/rearrange.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

#define FB_ONNX_RANK 16      /* dimensions of what is looked at */
#define FB_ONNX_ELEMENTS 256 /* of a value that is followed */

typedef uint32_t fb_onnx_size; /* two are equal where their numbers are; 0: not known */

typedef enum fb_onnx_kind { FB_ONNX_UNKNOWN = 0, FB_ONNX_INT, FB_ONNX_REAL } fb_onnx_kind;

/* An element of a value. */
typedef struct fb_onnx_element {
    fb_onnx_kind kind;
    fb_onnx_size integer;
    double real;
} fb_onnx_element;

typedef struct fb_onnx_type {
    fb_dtype dtype; /* FB_DTYPE_UNKNOWN: it is not known, or documents have no word for it */
    int rank;       /* -1: not known */
    const fb_onnx_size *sizes;
    const fb_onnx_element *elements; /* row by row, as many as the sizes say; NULL: they are not followed */
    uint32_t count;
} fb_onnx_type;

/* Of which dtypes an operator's result has the same bits wherever it is computed. */
typedef enum fb_onnx_exact {
    FB_ONNX_EXACT_NEVER = 0,
    FB_ONNX_EXACT_INTEGERS,
    FB_ONNX_EXACT_ANY,
    FB_ONNX_EXACT_POWERS, /* those that are far from the middle between two numbers */
    FB_ONNX_EXACT_STORED, /* never, and what it reads is how a weight is stored */
} fb_onnx_exact;
/* Of a node of an ONNX graph. What takes a result apart is exact. */
fb_onnx_exact fb_onnx_exact_of(const fb_graph *graph, fb_node node);

typedef struct fb_onnx_types fb_onnx_types;

/* Looks at all programs. NULL: memory is out, or the work was stopped. */
fb_onnx_types *fb_onnx_types_find(const fb_graph *graph, fb_work *work);
void fb_onnx_types_free(fb_onnx_types *types);
/* The type of a node's result; never NULL. Of a function that is called twice: what holds of both calls. */
const fb_onnx_type *fb_onnx_type_of(const fb_onnx_types *types, fb_node node);
/* The size as a number. */
bool fb_onnx_is_number(const fb_onnx_types *types, fb_onnx_size size, int64_t *out);
/* Are all elements known as numbers? `out` has room for as many. Reals only where `reals` is not NULL. */
bool fb_onnx_numbers(const fb_onnx_types *types, const fb_onnx_type *type, int64_t *out);

/* The sizes, as numbers, that a Reshape may be given in place of those that it computes: 0 where one is the input's at the same
 * place. It does the same then, also of tensors without elements. The count, or -1. */
int fb_onnx_sizes_to_give(const fb_onnx_types *types, fb_node node, int64_t sizes[FB_ONNX_RANK]);

/* The same for a Reshape of `from` to the shape of `to`. */
int fb_onnx_sizes_between(const fb_onnx_types *types, fb_node from, fb_node to, int64_t sizes[FB_ONNX_RANK]);
/* As fb_rearrange_at, of a node whose result has that rank, or by the types. */
bool fb_onnx_rearrange(const fb_graph *graph, fb_node node, int rank, fb_rearrange *found);
bool fb_onnx_rearrange_at(const fb_onnx_types *types, fb_node node, fb_rearrange *found);
/* The operator of a call that gives one value, in a version that is known: "Transpose"; else NULL. */
const char *fb_onnx_operator_name(const fb_graph *graph, fb_node node);
/* A Reshape in which 0 copies a size. */
bool fb_onnx_is_reshape(const fb_graph *graph, fb_node node);
/* Are they surely of the same shape? */
bool fb_onnx_same_shape(const fb_onnx_types *types, fb_node a, fb_node b);

/* A get_attr node that is a Constant in the model: it may as well be an initializer. */
bool fb_onnx_is_constant(const fb_graph *graph, fb_node node);

/* Records in meta.dtype and meta.shape what is found, where nothing is recorded. A size that is no number and no symbol of an
 * input gets a name of its own. False: memory is out, or the work was stopped. */
bool fb_onnx_record_types(fb_graph *graph, fb_work *work);

#endif
