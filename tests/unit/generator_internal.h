/* The document in the making; for generator*.c alone. */
#ifndef FB_TESTS_GENERATOR_INTERNAL_H
#define FB_TESTS_GENERATOR_INTERNAL_H

#include "core/base/arena.h"
#include "core/graph/graph.h"
#include "tests/unit/generator.h"

enum { MAX_VALUES = 160, MAX_LAYERS = 60 };

typedef enum value_sort { SORT_TENSOR, SORT_NUMBER, SORT_SHAPE } value_sort;

/* A node whose result may be used. */
typedef struct result {
    const char *name;
    value_sort sort;
    int rank;
    int64_t sizes[5];
    fb_dtype dtype;
    bool is_symbolic; /* its first size is recorded as a symbol, or follows from one */
} result;

typedef enum layer_sort { LAYER_LINEAR, LAYER_CONV, LAYER_NORM } layer_sort;

typedef struct layer {
    layer_sort sort;
    const char *path, *weight, *bias;
    int64_t inputs, outputs;
    int spatial;
    fb_dtype dtype;
    bool has_statistics; /* of a BatchNorm */
} layer;

typedef struct generator {
    random_source random;
    fb_arena arena;
    fb_buffer nodes, modules, tensors;
    const char *names[8 * MAX_VALUES]; /* of nodes, module paths and tensors: unique among all */
    size_t name_count;
    result values[MAX_VALUES];
    size_t value_count;
    layer layers[MAX_LAYERS];
    size_t layer_count;
    const char *views[64][2]; /* tensors that share the memory of another: its name, that one's */
    size_t view_count;
    const char *outputs[32];
    size_t output_count;
    size_t node_count;
} generator;

const char *text(generator *g, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool once_in(generator *g, size_t count);
size_t below(generator *g, size_t count);
#define PICK(g, list) ((list)[below(g, sizeof(list) / sizeof *(list))])

/* A name that nothing has yet, from a base. */
const char *fresh_name(generator *g, const char *base);
const char *fresh_path(generator *g, const char *base);
const char *random_path(generator *g);

result tensor_result(fb_dtype dtype, int rank, const int64_t *sizes);
/* Adds a node, and its result to the values; args and kwargs are the JSON inside the brackets. */
result *add_node(generator *g, const char *base, const char *op, const char *target, const char *args, const char *kwargs,
                 result about);
result *add_call(generator *g, const char *path, const result *x, result about);
void add_module(generator *g, const char *path, const char *type, const char *config, const char *parameters,
                const char *buffers, bool training, const char *more);
/* A tensor, perhaps by a recipe over others. `more` is "" or `,"requires_grad":…`. */
const char *add_tensor(generator *g, const char *name, fb_dtype dtype, int rank, const int64_t *sizes, const char *more);
/* The tensor whose memory this one shares, or itself. */
const char *base_of(const generator *g, const char *tensor);
layer *remember_layer(generator *g, layer made);

/* A value of a floating dtype with this rank (0 = any from 1 on), or NULL. */
const result *pick_float(generator *g, int rank);
const result *pick_any(generator *g);
/* A JSON reference to a node. */
const char *node_ref(generator *g, const result *value);
void make_output(generator *g, const result *value);

typedef struct linear_options {
    const char *path, *type, *weight, *bias; /* weight, bias: a tensor to share */
    int64_t inputs, outputs;
    fb_dtype dtype, bias_dtype;
    bool has_bias, training, weight_frozen, bias_frozen;
} linear_options;
layer *add_linear(generator *g, linear_options options);
result *call_linear(generator *g, const layer *linear, const result *x);
layer *add_norm(generator *g, int spatial, int64_t features, fb_dtype dtype, bool training, bool has_statistics);

/* One random motif. */
void add_motif(generator *g);

#endif
