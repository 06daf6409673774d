/* Recipes: expressions over tensors, by which a tensor is computed from others. graph-format: "tensor".
 *
 * An expression is a value: FB_TENSOR, or FB_EXPRESSION with .symbol = the operation's name and two items: an FB_LIST of
 * arguments (expressions) and an FB_MAP of its other members sorted by key. */
#ifndef FB_WEIGHTS_RECIPE_H
#define FB_WEIGHTS_RECIPE_H

#include "core/graph/graph.h"

/* ---- the operations ----------------------------------------------------------------------------------------------------- */

typedef enum fb_recipe_op {
    FB_RECIPE_NONE = 0,
    FB_RECIPE_CONCAT,
    FB_RECIPE_SLICE,
    FB_RECIPE_RESHAPE,
    FB_RECIPE_PERMUTE,
    FB_RECIPE_FULL,
    FB_RECIPE_ADD,
    FB_RECIPE_SUB,
    FB_RECIPE_MUL,
    FB_RECIPE_DIV,
    FB_RECIPE_NEG,
    FB_RECIPE_SQRT,
    FB_RECIPE_RSQRT,
    FB_RECIPE_EXP,
    FB_RECIPE_SIN,
    FB_RECIPE_COS,
    FB_RECIPE_MAXIMUM,
    FB_RECIPE_MINIMUM,
    FB_RECIPE_MATMUL,
    FB_RECIPE_ABSMAX,
    FB_RECIPE_ROUND,
    FB_RECIPE_INDEX_SELECT,
    FB_RECIPE_OP_COUNT,
} fb_recipe_op;

typedef enum fb_member_type {
    FB_MEMBER_INT = 1, /* FB_INT */
    FB_MEMBER_INTS,    /* FB_LIST of FB_INT */
    FB_MEMBER_NUMBER,  /* FB_INT, FB_FLOAT, FB_TRUE or FB_FALSE */
} fb_member_type;

typedef struct fb_recipe_member {
    const char *name; /* NULL ends the list; sorted by name, all of them required */
    fb_member_type type;
} fb_recipe_member;

typedef struct fb_recipe_facts {
    const char *name;
    int min_args, max_args; /* max -1 = any number */
    bool is_movement;       /* copies bytes */
    fb_recipe_member members[4];
} fb_recipe_facts;

/* FB_RECIPE_NONE when no operation has that name. */
fb_recipe_op fb_recipe_op_find(const char *name);
const fb_recipe_facts *fb_recipe_facts_of(fb_recipe_op op); /* not for FB_RECIPE_NONE */
/* The operation of an FB_EXPRESSION value; FB_RECIPE_NONE for anything else. */
fb_recipe_op fb_recipe_op_of(const fb_graph *graph, fb_value expression);

/* The number of arguments of an FB_EXPRESSION value. A member is none, an int 0 when it is not there. */
size_t fb_recipe_arg_count(const fb_graph *graph, fb_value expression);
fb_value fb_recipe_arg(const fb_graph *graph, fb_value expression, size_t index);
fb_value fb_recipe_value(const fb_graph *graph, fb_value expression, const char *member);
int64_t fb_recipe_int(const fb_graph *graph, fb_value expression, const char *member);

/* ---- making them -------------------------------------------------------------------------------------------------------- */

/* All return none when memory is out or an argument is none. They do not check types: fb_recipe_type does. */
fb_value fb_recipe_tensor(fb_graph *graph, fb_tensor tensor);
/* Times one: computed in float64, and so rounded to the dtype of the new tensor. */
fb_value fb_recipe_rounded(fb_graph *graph, fb_tensor tensor);
fb_value fb_recipe_concat(fb_graph *graph, int64_t axis, const fb_value *parts, size_t count);
fb_value fb_recipe_slice(fb_graph *graph, fb_value from, int64_t axis, int64_t start, int64_t stop);
fb_value fb_recipe_reshape(fb_graph *graph, fb_value from, const int64_t *sizes, size_t rank);
fb_value fb_recipe_permute(fb_graph *graph, fb_value from, const int64_t *dims, size_t rank);
fb_value fb_recipe_full(fb_graph *graph, const int64_t *sizes, size_t rank, fb_value number);
/* `full` of the zero that the dtype has: false, 0 or 0.0. */
fb_value fb_recipe_zeros(fb_graph *graph, const int64_t *sizes, size_t rank, fb_dtype dtype);
fb_value fb_recipe_add(fb_graph *graph, fb_value a, fb_value b);
fb_value fb_recipe_sub(fb_graph *graph, fb_value a, fb_value b);
fb_value fb_recipe_mul(fb_graph *graph, fb_value a, fb_value b);
fb_value fb_recipe_div(fb_graph *graph, fb_value a, fb_value b);
fb_value fb_recipe_neg(fb_graph *graph, fb_value a);
fb_value fb_recipe_sqrt(fb_graph *graph, fb_value a);
fb_value fb_recipe_rsqrt(fb_graph *graph, fb_value a);
fb_value fb_recipe_exp(fb_graph *graph, fb_value a);
fb_value fb_recipe_sin(fb_graph *graph, fb_value a); /* of radians */
fb_value fb_recipe_cos(fb_graph *graph, fb_value a);
/* The larger and the smaller one; nan where one of them is. -0 is less than 0. */
fb_value fb_recipe_maximum(fb_graph *graph, fb_value a, fb_value b);
fb_value fb_recipe_minimum(fb_graph *graph, fb_value a, fb_value b);
/* To the nearest integer; between two, to the even one. */
fb_value fb_recipe_round(fb_graph *graph, fb_value a);
fb_value fb_recipe_matmul(fb_graph *graph, fb_value a, fb_value b);
/* The largest absolute value over those dims, which become 1; nan where there is one. */
fb_value fb_recipe_absmax(fb_graph *graph, fb_value from, const int64_t *dims, size_t count);
/* torch.index_select: the elements along the axis at the places that `index` has, a tensor of int64 or int32 of any shape,
 * which is read row by row; a negative place counts from the end. */
fb_value fb_recipe_index_select(fb_graph *graph, fb_value from, int64_t axis, fb_tensor index);

/* ---- checking them ------------------------------------------------------------------------------------------------------ */

#define FB_RECIPE_MAX_RANK 32
#define FB_RECIPE_MAX_DEPTH 256 /* of one expression; a chain of tensors may be of any length */

typedef struct fb_recipe_type {
    fb_dtype dtype; /* FB_DTYPE_UNKNOWN: only `full`, takes the dtype of its partners or of the tensor that it defines */
    int rank;
    bool is_movement; /* only concat, slice, reshape, permute, full: copies bytes */
    int64_t sizes[FB_RECIPE_MAX_RANK];
} fb_recipe_type;

/* Shape, dtype and class of an expression, where the tensors that it reads are taken as their rows describe them (their own
 * recipes are not looked at). FB_INVALID with code "bad-recipe" and a pointer relative to the expression ("/args/0/axis").
 *
 * Axes and dims count from 0 and are never negative; slices have 0 <= start <= stop <= size; concat has at least one part;
 * broadcasting and matmul are NumPy's. */
fb_status fb_recipe_type_of(const fb_graph *graph, fb_value expression, fb_recipe_type *type, fb_error *error);

/* True for a dtype that a computed recipe may be rounded to: a floating one that can be computed with; and int8, where nan
 * becomes 0 and what is beyond the range the nearest end of it. */
bool fb_recipe_rounds_to(fb_dtype dtype);

/* Every recipe of the graph: its type, that it agrees with the tensor's dtype and shape, and that no tensor depends on itself
 * ("recipe-cycle"). Pointers are "/tensors/3/recipe/args/0". Linear in the size of the document, at any depth. */
void fb_recipe_check_all(const fb_graph *graph, fb_errors *errors);

/* ---- For core/weights alone. -------------------------------------------------------------------------------------------- */

/* fb_recipe_type_of with pointers that begin with `prefix`, and a dtype that fillers take when nothing else decides it. */
fb_status fb_recipe_type_under(const fb_graph *graph, fb_value expression, fb_dtype dtype, const char *prefix,
                               fb_recipe_type *type, fb_error *error);

#endif
