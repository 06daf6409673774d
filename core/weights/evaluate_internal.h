/* For the evaluator's files alone.
 *
 *     evaluate.c          opening an evaluation, and reading from it
 *     evaluate_plan.c     the recipe, and those of the tensors that it reads, as one tree of terms
 *     evaluate_bytes.c    stored bytes: of tensors without a recipe, and of terms that are made once and kept
 *     evaluate_fill.c     parts of terms are made
 *     strided.c           walking over elements that have gaps in two places
 *     evaluate_digest.c   digests, comparing, what is missing
 *     evaluate_overflow.c numbers that are finite no more
 *
 * A part is a box: a range in each dimension. A term makes a box of itself out of boxes of its arguments, and writes it where
 * and as it is asked for: either the elements themselves, which movements copy for any dtype, or their values in float64, which
 * is what everything that computes asks for. */
#ifndef FB_WEIGHTS_EVALUATE_INTERNAL_H
#define FB_WEIGHTS_EVALUATE_INTERNAL_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/weights/blas.h"
#include "core/weights/box.h"
#include "core/weights/evaluate.h"
#include "core/weights/recipe.h"

typedef enum fb_recipe_term_kind {
    FB_TERM_BYTES,   /* stored: a tensor without a recipe, or a kept term */
    FB_TERM_ROUNDED, /* the one argument, which computes, rounded to a dtype */
    FB_TERM_OP,      /* an operation of a recipe */
} fb_recipe_term_kind;

typedef struct fb_term {
    fb_recipe_term_kind kind;
    fb_recipe_op op;
    fb_dtype dtype; /* of the bytes; what is rounded to */
    int rank;
    const int64_t *sizes;
    int64_t elements; /* the product */
    size_t count;
    const struct fb_term *const *args;
    union {
        struct {
            const unsigned char *bytes; /* of a kept term: once it is made */
            const char *base64;         /* in place of bytes */
            fb_tensor stood_in;         /* or the blobs' stand_in writes them, for this tensor */
            bool is_whole_blob;
        };
        struct {
            int axis;              /* concat, slice, index_select */
            int64_t start;         /* slice */
            const int64_t *starts; /* concat: where each part begins, and the end */
        };
        const int *dims; /* permute */
        struct {
            double number; /* full */
            unsigned char element[16];
        };
    };
    bool computes, gathers; /* something in it does: anything at all; what makes one number of many, a matmul or absmax */
    bool is_turned;         /* something in it is permuted so that neighbours come from far apart */
    int depth;              /* of the tree below it */
    int live;               /* boxes as large as what is asked for that are in memory at once */
    int64_t cost;           /* terms below it, each as often as it is made */
} fb_term;

/* Where a box is written to. */
typedef struct fb_target {
    unsigned char *at;
    const int64_t *strides; /* bytes */
    int64_t element;        /* bytes of one */
    bool is_numbers;        /* float64, else elements as they are */
} fb_target;

/* ---- strided.c: parts of tensors, permuted ones ---- */

typedef struct fb_strided {
    int rank;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int64_t from[FB_RECIPE_MAX_RANK], to[FB_RECIPE_MAX_RANK]; /* bytes from one element to the next */
} fb_strided;

/* A run of `count` elements; `from` and `to` are the offsets of the first. */
typedef void fb_strided_run(void *context, int64_t from, int64_t to, int64_t count, int64_t from_stride, int64_t to_stride);

/* Adds an inner dimension; one that goes on where the one before ends becomes part of it. */
void fb_strided_add(fb_strided *s, int64_t size, int64_t from, int64_t to);
/* Calls `run` until all elements have been run over; none of the sizes is 0. */
void fb_strided_each(const fb_strided *s, fb_strided_run *run, void *context);
/* Copies elements of 1, 2, 3, 4, 8 or 16 bytes. */
void fb_strided_copy(const fb_strided *s, const unsigned char *from, unsigned char *to, int64_t element);

/* A term that is made once, when the first byte is read, and its replacement. */
typedef struct fb_kept {
    const fb_term *made;
    fb_term *stands;
    void *mapped; /* in the scratch file; NULL: in memory of the arena, or not made yet */
    size_t size;
} fb_kept;

/* Memory that is taken and given back in the order of a stack. */
typedef struct fb_stack {
    fb_buffer chunks; /* fb_stack_chunk */
    size_t current;
} fb_stack;
typedef struct fb_stack_mark {
    size_t chunk, used;
} fb_stack_mark;

/* How much of what is done at once; tests make it little. */
typedef struct fb_evaluation_limits {
    int64_t moved;     /* elements, when nothing computes */
    int64_t computed;  /* elements, when something does: what they are made of stays in the second cache */
    int64_t repeating; /* elements, when what is read for one block is read again for the next: as many as pay for it */
    int64_t rows, columns, inner; /* elements: a tile of the left argument is rows × inner, of the right one inner × columns */
    int64_t block;                /* bytes of all numbers that one block takes */
    uint64_t touched;             /* bytes of sources that are read before they are forgotten */
    uint64_t kept;                /* bytes that are kept in memory when there is a file for more */
    int depth;                    /* of a tensor that is looked through; a recipe itself may add FB_RECIPE_MAX_DEPTH */
    int64_t cost;                 /* of a movement that several recipes look through */
    int64_t repeated;             /* cost of what one recipe makes again and again */
} fb_evaluation_limits;
extern const fb_evaluation_limits fb_evaluation_usual;

struct fb_evaluation {
    const fb_graph *graph;
    const fb_evaluation_limits *limits;
    const fb_blobs *blobs;
    fb_arena arena;        /* terms */
    fb_buffer opened;      /* fb_blob_bytes */
    fb_map opened_by_name; /* symbol -> 1 + index */
    fb_buffer kept;        /* fb_kept, what is read before what reads it */
    bool is_kept_made;
    int scratch; /* a file, or -1 */
    uint64_t scratch_size;
    const fb_term *root;
    fb_value expression;
    fb_dtype dtype;
    bool computes, refuses_overflow; /* something in it is computed; what overflows is refused */
    int64_t element;
    uint64_t source_bytes, kept_bytes; /* of all stored tensors; of all kept terms */
    /* Reading. */
    fb_stack stack;
    int64_t block;        /* elements that are made at once when something computes */
    unsigned char *cache; /* the last block */
    int64_t cached;       /* its number, or -1 */
    uint64_t touched;     /* bytes of sources that were read since they were last forgotten */
    fb_blas blas;         /* once something was multiplied */
    fb_status status;
    fb_error *error; /* of the call under way */
};

/* Each of these sets e->status when it returns false or NULL. */
fb_status fb_evaluation_fail(fb_evaluation *e, fb_status status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool fb_evaluation_no_memory(fb_evaluation *e); /* false */

/* Fails, and returns false, if it refuses overflow and these are elements of the whole that have overflowed. */
bool fb_evaluation_check_finite(fb_evaluation *e, const unsigned char *bytes, size_t size);

/* Makes e->root. */
void fb_evaluation_plan(fb_evaluation *e, fb_value expression);

/* Says where the tensor's bytes are. */
bool fb_evaluation_source(fb_evaluation *e, fb_tensor tensor, fb_term *term);
/* Lets go what was read so far, if that is much; `bytes` more are going to be read. */
void fb_evaluation_touch(fb_evaluation *e, uint64_t bytes);
void fb_evaluation_close_bytes(fb_evaluation *e);

/* Writes elements start … start + count in row-major order, without gaps. False when memory is out. */
bool fb_fill_range(fb_evaluation *e, const fb_term *term, int64_t start, int64_t count, unsigned char *to, int64_t element,
                   bool is_numbers);
/* The stored place of elements start … start + count, as they are, and how many of them; 0: nowhere. */
int64_t fb_find_lying(const fb_term *term, int64_t start, int64_t count, const unsigned char **bytes);

/* fb_evaluation_of with other limits, which outlive the evaluation. */
fb_status fb_evaluation_within(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                               const fb_evaluation_limits *limits, fb_evaluation **out, fb_error *error);

/* How many elements of a term are made at once: as many rows as fit, and no more than fit into memory with all that it takes to
 * make them. */
int64_t fb_evaluation_block(const fb_evaluation *e, const fb_term *term);
/* Makes block `number`; gives how many elements it has. */
bool fb_fill_block(fb_evaluation *e, const fb_term *term, int64_t block, int64_t number, unsigned char *to, int64_t element);

/* A term in the place of `made`, which moves or is rounded, and is of that dtype. */
fb_term *fb_evaluation_keep(fb_evaluation *e, const fb_term *made, fb_dtype dtype);
static inline fb_kept *fb_kept_at(const fb_evaluation *e, size_t index) {
    return (fb_kept *)(void *)e->kept.data + index;
}

static inline size_t fb_kept_count(const fb_evaluation *e) {
    return e->kept.size / sizeof(fb_kept);
}
/* Makes all that is kept; once. */
bool fb_evaluation_make_kept(fb_evaluation *e);

void fb_stack_free(fb_evaluation *e);
/* Aligned for numbers; NULL when memory is out. */
void *fb_stack_take(fb_evaluation *e, size_t size);
fb_stack_mark fb_stack_top(const fb_evaluation *e);
void fb_stack_give_back(fb_evaluation *e, fb_stack_mark mark);

#endif
