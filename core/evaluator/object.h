/* Objects: the Python values that nodes compute and calls take. */
#ifndef FB_EVALUATOR_OBJECT_H
#define FB_EVALUATOR_OBJECT_H

#include "core/evaluator/array.h"

typedef enum fb_object_kind {
    FB_OBJECT_NONE, /* None */
    FB_OBJECT_BOOL,
    FB_OBJECT_INT,
    FB_OBJECT_FLOAT,
    FB_OBJECT_STRING,
    FB_OBJECT_DTYPE,
    FB_OBJECT_DEVICE, /* also layouts, memory formats: what does not change a number */
    FB_OBJECT_ELLIPSIS,
    FB_OBJECT_SLICE, /* three items */
    FB_OBJECT_LIST,
    FB_OBJECT_TUPLE,   /* torch.Size, named tuples, too */
    FB_OBJECT_DICT,    /* keys and values in turn */
    FB_OBJECT_ARRAY,   /* a tensor */
    FB_OBJECT_WEIGHT,  /* a matrix of weights that is not in memory: for kernels that read it in parts (fb_argument_weight) */
    FB_OBJECT_PROGRAM, /* a nested program */
    FB_OBJECT_OTHER,   /* carried, never interpreted: a kernel that needs it gives up */
} fb_object_kind;

typedef struct fb_weight {
    size_t references;
    fb_dtype dtype;
    int64_t sizes[FB_MAX_RANK]; /* of two dimensions */
    struct fb_evaluation *bytes;
} fb_weight;
void fb_weight_close(fb_weight *weight); /* when no reference is left */

typedef struct fb_object fb_object;
typedef struct fb_items {
    size_t references, count;
    uint32_t depth, total; /* of all that is in it; 0 = not counted yet */
    bool has_complex;      /* a tensor of complex numbers is in it, once it is counted */
    fb_object *objects;
} fb_items;

struct fb_object {
    fb_object_kind kind;
    union {
        bool boolean;
        int64_t integer;
        double number;
        const char *text; /* the graph's */
        fb_dtype dtype;
        fb_array *array;
        fb_weight *weight;
        fb_items *items; /* of slice, list, tuple, dict */
        fb_program program;
    };
};

void fb_object_keep(const fb_object *object); /* one reference more of what it holds */
void fb_object_drop(fb_object *object);       /* gives it up; it is None afterwards */
/* A list, tuple, dict or slice of `count` Nones, to be filled. */
fb_status fb_object_sequence(fb_object_kind kind, size_t count, fb_object *out, fb_error *error);
static inline bool fb_object_is_sequence(const fb_object *object) {
    return object->kind == FB_OBJECT_LIST || object->kind == FB_OBJECT_TUPLE;
}
/* A sequence of sequences may hold far more than was made, and be nested deeper than any document. FB_TOO_LARGE
 * "evaluation-too-large" beyond FB_OBJECT_DEPTH, or FB_OBJECT_COUNT when what comes several times counts as often. To be asked
 * of what a node computes, once it is filled. */
#define FB_OBJECT_DEPTH 200
#define FB_OBJECT_COUNT (1 << 20)
fb_status fb_object_check(const fb_object *object, fb_error *error);
/* It is, or holds, a tensor of complex numbers. */
bool fb_object_has_complex(const fb_object *object);
/* A bool, int or float as a number. */
bool fb_object_number(const fb_object *object, double *number);
/* A bool or int, or a tensor of one integer element. */
bool fb_object_int(const fb_object *object, int64_t *integer);

#endif
