/* One call of an operator of ONNX, as the rules of shapes and values see it: onnx_types.c, onnx_sizes.c, onnx_shapes.c,
 * onnx_values.c. */
#ifndef FB_ANALYSIS_ONNX_CALL_H
#define FB_ANALYSIS_ONNX_CALL_H

#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/base/arena.h"

#define FB_ONNX_RESULTS 64

typedef fb_onnx_size size;
typedef fb_onnx_type type;
typedef fb_onnx_element element;

typedef struct fb_onnx_sizes fb_onnx_sizes;
typedef struct fb_onnx_call fb_onnx_call;
typedef void fb_onnx_rule(fb_onnx_call *call);

/* Attributes that a function's nodes refer to: those of the call, then the function's own. */
typedef struct fb_onnx_scope {
    fb_value kwargs, defaults;
    const struct fb_onnx_scope *outer;
} fb_onnx_scope;

struct fb_onnx_call {
    fb_onnx_types *types;
    const fb_graph *graph;
    fb_onnx_sizes *sizes;
    fb_node node;
    const fb_value_row *args, *kwargs;
    const fb_onnx_scope *scope;
    int version;
    uint32_t wanted; /* results */
    type results[FB_ONNX_RESULTS];
};

typedef struct fb_onnx_operator {
    const char *name;
    fb_onnx_rule *shape, *value;
    fb_onnx_exact exact;
    uint8_t versions[16];
} fb_onnx_operator;

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

uint32_t fb_onnx_inputs(const fb_onnx_call *call);
bool fb_onnx_has(const fb_onnx_call *call, uint32_t index);
const type *fb_onnx_in(fb_onnx_call *call, uint32_t index); /* never NULL */
fb_value fb_onnx_attribute(const fb_onnx_call *call, const char *name);
int64_t fb_onnx_int(const fb_onnx_call *call, const char *name, int64_t fallback);
const char *fb_onnx_text(const fb_onnx_call *call, const char *name, const char *fallback);
/* The count, or -1 where it is absent, or not a list of ints. */
int fb_onnx_ints(const fb_onnx_call *call, const char *name, int64_t out[FB_ONNX_ELEMENTS]);

/* An argument that later versions take as an input: the attribute, or the constant input. */
typedef struct fb_onnx_list {
    bool is_given, is_known; /* known: how many there are, each of which may be unknown */
    uint32_t count;
    const element *items;
} fb_onnx_list;
fb_onnx_list fb_onnx_list_of(fb_onnx_call *call, const char *name, uint32_t input);
/* The same where all of them are numbers. */
bool fb_onnx_all_ints(fb_onnx_call *call, const fb_onnx_list *list, int64_t out[FB_ONNX_ELEMENTS]);

/* ---- results ------------------------------------------------------------------------------------------------------------ */

void fb_onnx_give(fb_onnx_call *call, uint32_t index, fb_dtype dtype, int rank, const size *sizes);
void fb_onnx_give_dtype(fb_onnx_call *call, uint32_t index, fb_dtype dtype);
void fb_onnx_give_same(fb_onnx_call *call, uint32_t index, fb_dtype dtype, const type *as);
/* The elements of the first result: as many as it has, else they are dropped. Room for these; NULL: they are too many. */
element *fb_onnx_elements(fb_onnx_call *call, uint32_t index, uint32_t *count);

/* Runs the program of an attribute; false: there is none. `out` has room for `count` results, which it must have. */
bool fb_onnx_run(fb_onnx_call *call, const char *name, const type *inputs, uint32_t input_count, type *out, uint32_t count);
/* It may run in other ways than those: nothing is known of what programs within compute. */
void fb_onnx_run_was_partial(fb_onnx_call *call);
/* The type that the program of an attribute declares for an output; unknown sizes are 0. */
bool fb_onnx_declared(fb_onnx_call *call, const char *name, uint32_t output, type *out);
type fb_onnx_join(fb_onnx_types *types, const type *a, const type *b);

/* ---- sizes -------------------------------------------------------------------------------------------------------------- */

fb_onnx_sizes *fb_onnx_sizes_new(void);
void fb_onnx_sizes_free(fb_onnx_sizes *sizes);
bool fb_onnx_sizes_failed(const fb_onnx_sizes *sizes);
size fb_size_of(fb_onnx_sizes *sizes, int64_t number);
size fb_size_named(fb_onnx_sizes *sizes, const char *name);
size fb_size_fresh(fb_onnx_sizes *sizes);
bool fb_size_is_number(const fb_onnx_sizes *sizes, size a, int64_t *out);
bool fb_size_is(const fb_onnx_sizes *sizes, size a, int64_t number);
/* Is it surely not below 0, for all that its symbols may be? */
bool fb_size_is_plain(const fb_onnx_sizes *sizes, size a);
/* The symbol that it is, or NULL. */
const char *fb_size_name(const fb_onnx_sizes *sizes, size a);
/* 0 where an operand is, or the result is out of range. */
size fb_size_add(fb_onnx_sizes *sizes, size a, size b);
size fb_size_sub(fb_onnx_sizes *sizes, size a, size b);
size fb_size_mul(fb_onnx_sizes *sizes, size a, size b);
size fb_size_div(fb_onnx_sizes *sizes, size a, size b);       /* towards zero, as Div */
size fb_size_floor_div(fb_onnx_sizes *sizes, size a, size b); /* `b` above 0 */
size fb_size_ceil_div(fb_onnx_sizes *sizes, size a, size b);
size fb_size_of_two(fb_onnx_sizes *sizes, int operation, size a, size b); /* some function of two: the same of the same */

extern const fb_onnx_operator fb_onnx_operators[];
extern const size_t fb_onnx_operator_count;

#endif
