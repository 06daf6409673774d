/* Evaluating movements: slices, permutations and most reshapes are other views of the same bytes; concat copies. */
#include "core/weights/movement.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/base64.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe_internal.h"

/* A strided view of bytes in the evaluator's arena, or of a tensor's data: only what is copied is decoded. */
typedef struct block {
    const unsigned char *bytes;
    const char *base64; /* in place of bytes */
    int64_t first;      /* offset of the first element */
    int rank;
    const int64_t *sizes, *strides; /* strides in bytes; all 0 for a filler */
} block;

typedef struct known_tensor {
    block block;
    bool is_done; /* otherwise what it is made of is being evaluated */
} known_tensor;

typedef struct evaluator {
    const fb_graph *graph;
    fb_error *error;
    fb_status status;
    fb_dtype dtype;  /* of all tensors here: movements keep it */
    int64_t element; /* bytes */
    fb_arena arena;  /* blocks and bytes */
    fb_map index;    /* tensor -> 1 + index in `known` */
    fb_buffer known; /* known_tensor */
    fb_buffer to_do; /* fb_tensor; on top what is needed first */
} evaluator;

static const char *name_of(const evaluator *e, fb_tensor tensor) {
    return fb_text(e->graph, fb_tensor_at(e->graph, tensor)->name);
}

static void fail_memory(evaluator *e) {
    if (!e->status) e->status = fb_fail_memory(e->error);
}

static void fail_unknown(evaluator *e, const char *what, const char *why) {
    if (!e->status) e->status = fb_fail(e->error, FB_NOT_FOUND, "bytes-unknown", "", "%s %s", what, why);
}

static fb_status fail_too_large(fb_error *error) {
    return fb_fail(error, FB_TOO_LARGE, "movement-too-large", "", "moving the tensors takes more than %zu bytes",
                   FB_MOVEMENT_MAX_BYTES);
}

/* NULL, and the status set, when there is no room. */
static void *take(evaluator *e, size_t size) {
    if (e->status) return NULL;
    if (size > FB_MOVEMENT_MAX_BYTES || e->arena.total > FB_MOVEMENT_MAX_BYTES - size) {
        e->status = fail_too_large(e->error);
        return NULL;
    }
    void *bytes = fb_arena_alloc(&e->arena, size);
    if (!bytes) fail_memory(e);
    return bytes;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------------- */

static int64_t element_count(int rank, const int64_t *sizes) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) return 0;
    }
    for (int i = 0; i < rank; i++) count *= sizes[i]; /* the type's check has bounded it */
    return count;
}

static void row_major(int rank, const int64_t *sizes, int64_t element, int64_t *strides) {
    int64_t stride = element;
    bool is_empty = element_count(rank, sizes) == 0;
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = is_empty ? 0 : stride;
        if (!is_empty) stride *= sizes[i];
    }
}

/* A view of the same bytes with room for its own sizes and strides, which are to be written. */
static bool new_view(evaluator *e, const block *of, int rank, int64_t **sizes, int64_t **strides, block *out) {
    int64_t *both = take(e, 2 * (size_t)rank * sizeof *both);
    if (!both) return false;
    *sizes = both;
    *strides = both + rank;
    *out = (block){of->bytes, of->base64, of->first, rank, both, both + rank};
    return true;
}

/* A view of bytes that are row-major in that shape. */
static bool packed_view(evaluator *e, const block *of, int rank, const int64_t *shape, block *out) {
    int64_t *sizes, *strides;
    if (!new_view(e, of, rank, &sizes, &strides, out)) return false;
    if (rank) memcpy(sizes, shape, (size_t)rank * sizeof *sizes);
    row_major(rank, sizes, e->element, strides);
    return true;
}

static bool is_packed(const evaluator *e, const block *b) {
    int64_t strides[FB_RECIPE_MAX_RANK];
    row_major(b->rank, b->sizes, e->element, strides);
    for (int i = 0; i < b->rank; i++) {
        if (b->sizes[i] != 1 && b->strides[i] != strides[i]) return element_count(b->rank, b->sizes) == 0;
    }
    return true;
}

static bool is_filler(const block *b) {
    for (int i = 0; i < b->rank; i++) {
        if (b->strides[i]) return false;
    }
    return true;
}

/* Copies a block to where `strides` say. */
static void copy_block(const block *b, unsigned char *to, const int64_t *strides, int64_t element) {
    if (element_count(b->rank, b->sizes) == 0) return;
    int64_t run = element, index[FB_RECIPE_MAX_RANK] = {0};
    int outer = b->rank; /* dimensions from here on are one run of bytes in both */
    while (outer > 0 && (b->sizes[outer - 1] == 1 || (b->strides[outer - 1] == run && strides[outer - 1] == run))) {
        run *= b->sizes[--outer];
    }
    int64_t from = b->first;
    for (;;) {
        if (b->base64) fb_base64_decode(b->base64, (size_t)from, (size_t)run, to);
        else memcpy(to, b->bytes + from, (size_t)run);
        int i = outer - 1;
        for (; i >= 0; i--) {
            to += strides[i];
            from += b->strides[i];
            if (++index[i] < b->sizes[i]) break;
            to -= strides[i] * b->sizes[i];
            from -= b->strides[i] * b->sizes[i];
            index[i] = 0;
        }
        if (i < 0) return;
    }
}

static void copy_packed(const evaluator *e, const block *b, unsigned char *to) {
    int64_t strides[FB_RECIPE_MAX_RANK];
    row_major(b->rank, b->sizes, e->element, strides);
    copy_block(b, to, strides, e->element);
}

static size_t packed_size(const evaluator *e, const block *b) {
    return (size_t)(element_count(b->rank, b->sizes) * e->element);
}

/* ---- expressions, whose tensors are known ---------------------------------------------------------------------------- */

static bool evaluate(evaluator *e, fb_value expression, block *out);

static bool evaluate_concat(evaluator *e, fb_value expression, block *out) {
    size_t count = fb_recipe_arg_count(e->graph, expression);
    int64_t axis = fb_recipe_int(e->graph, expression, "axis");
    block *parts = take(e, count * sizeof *parts);
    int64_t sizes[FB_RECIPE_MAX_RANK], sum = 0;
    for (size_t i = 0; i < count; i++) {
        if (!parts || !evaluate(e, fb_recipe_arg(e->graph, expression, i), &parts[i])) return false;
        sum += parts[i].sizes[axis];
    }
    memcpy(sizes, parts[0].sizes, (size_t)parts[0].rank * sizeof *sizes);
    sizes[axis] = sum;
    unsigned char *bytes = take(e, (size_t)(element_count(parts[0].rank, sizes) * e->element));
    if (!bytes || !packed_view(e, &(block){.bytes = bytes}, parts[0].rank, sizes, out)) return false;
    for (size_t i = 0; i < count; i++) {
        copy_block(&parts[i], bytes, out->strides, e->element);
        bytes += parts[i].sizes[axis] * out->strides[axis];
    }
    return true;
}

static bool evaluate_slice(evaluator *e, fb_value expression, block *out) {
    block from;
    int64_t axis = fb_recipe_int(e->graph, expression, "axis"), start = fb_recipe_int(e->graph, expression, "start");
    if (!evaluate(e, fb_recipe_arg(e->graph, expression, 0), &from)) return false;
    int64_t *sizes, *strides;
    if (!new_view(e, &from, from.rank, &sizes, &strides, out)) return false;
    out->first += start * from.strides[axis];
    memcpy(sizes, from.sizes, (size_t)from.rank * sizeof *sizes);
    memcpy(strides, from.strides, (size_t)from.rank * sizeof *strides);
    sizes[axis] = fb_recipe_int(e->graph, expression, "stop") - start;
    return true;
}

static bool evaluate_permute(evaluator *e, fb_value expression, block *out) {
    block from;
    fb_value dims = fb_recipe_value(e->graph, expression, "dims");
    int64_t *sizes, *strides;
    if (!evaluate(e, fb_recipe_arg(e->graph, expression, 0), &from)) return false;
    if (!new_view(e, &from, from.rank, &sizes, &strides, out)) return false;
    for (int i = 0; i < from.rank; i++) {
        int64_t dim = fb_shape_size(e->graph, dims, i);
        sizes[i] = from.sizes[dim];
        strides[i] = from.strides[dim];
    }
    return true;
}

/* A view whose strides are all 0. */
static bool filler_view(evaluator *e, const block *of, fb_value shape, block *out) {
    int64_t *sizes, *strides;
    if (!new_view(e, of, fb_shape_rank(e->graph, shape), &sizes, &strides, out)) return false;
    for (int i = 0; i < out->rank; i++) {
        sizes[i] = fb_shape_size(e->graph, shape, i);
        strides[i] = 0;
    }
    return true;
}

static bool evaluate_reshape(evaluator *e, fb_value expression, block *out) {
    block from;
    fb_value shape = fb_recipe_value(e->graph, expression, "shape");
    if (!evaluate(e, fb_recipe_arg(e->graph, expression, 0), &from)) return false;
    if (is_filler(&from)) return filler_view(e, &from, shape, out);
    if (!is_packed(e, &from)) {
        unsigned char *bytes = take(e, packed_size(e, &from));
        if (!bytes) return false;
        copy_packed(e, &from, bytes);
        from = (block){.bytes = bytes};
    }
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = fb_shape_rank(e->graph, shape);
    for (int i = 0; i < rank; i++) sizes[i] = fb_shape_size(e->graph, shape, i);
    return packed_view(e, &from, rank, sizes, out);
}

/* The checker has seen to it that the dtype holds the number. */
static void encode(const evaluator *e, fb_value number, unsigned char *out) {
    const fb_value_row *row = fb_value_at(e->graph, number);
    double real = 0;
    fb_value_is_number(e->graph, number, &real);
    memset(out, 0, (size_t)e->element);
    if (row->kind == FB_TRUE) out[0] = 1;
    else if (e->dtype == FB_COMPLEX64) fb_dtype_encode(FB_FLOAT32, real, out);
    else if (e->dtype == FB_COMPLEX128) fb_dtype_encode(FB_FLOAT64, real, out);
    else if (fb_dtype_is_floating(e->dtype)) fb_dtype_encode(e->dtype, real, out);
    else if (row->kind == FB_INT)
        for (int64_t i = 0; i < e->element; i++) out[i] = (unsigned char)((uint64_t)row->integer >> (8 * i));
}

static bool evaluate_full(evaluator *e, fb_value expression, block *out) {
    unsigned char *element = take(e, (size_t)e->element);
    if (!element) return false;
    encode(e, fb_recipe_value(e->graph, expression, "value"), element);
    return filler_view(e, &(block){.bytes = element}, fb_recipe_value(e->graph, expression, "shape"), out);
}

static known_tensor *known_at(const evaluator *e, uint32_t number) {
    return (known_tensor *)(void *)e->known.data + (number - 1);
}

/* The type of the expression has been checked; so its depth is bounded, and all of it moves. */
static bool evaluate(evaluator *e, fb_value expression, block *out) {
    const fb_value_row *row = fb_value_at(e->graph, expression);
    if (row->kind == FB_TENSOR) {
        *out = known_at(e, fb_map_get(&e->index, row->tensor.id))->block;
        return true;
    }
    switch (fb_recipe_op_of(e->graph, expression)) {
    case FB_RECIPE_CONCAT: return evaluate_concat(e, expression, out);
    case FB_RECIPE_SLICE: return evaluate_slice(e, expression, out);
    case FB_RECIPE_RESHAPE: return evaluate_reshape(e, expression, out);
    case FB_RECIPE_PERMUTE: return evaluate_permute(e, expression, out);
    default: return evaluate_full(e, expression, out);
    }
}

/* ---- tensors, in the order in which they need each other ------------------------------------------------------------- */

static void need(void *context, fb_tensor tensor) {
    evaluator *e = context;
    uint32_t number = fb_map_get(&e->index, tensor.id);
    if (number && known_at(e, number)->is_done) return;
    if (number) fail_unknown(e, name_of(e, tensor), "is computed from itself");
    fb_buffer_append(&e->to_do, &tensor, sizeof tensor);
}

static int shape_of(const evaluator *e, fb_tensor tensor, int64_t sizes[FB_RECIPE_MAX_RANK]) {
    fb_value shape = fb_tensor_at(e->graph, tensor)->shape;
    int rank = fb_shape_rank(e->graph, shape);
    for (int i = 0; i < rank && i < FB_RECIPE_MAX_RANK; i++) sizes[i] = fb_shape_size(e->graph, shape, i);
    return rank;
}

static void view_data(evaluator *e, fb_tensor tensor, block *out) {
    fb_symbol data = fb_tensor_at(e->graph, tensor)->data;
    if (!data.id) {
        fail_unknown(e, name_of(e, tensor), "has its bytes elsewhere");
        return;
    }
    int64_t sizes[FB_RECIPE_MAX_RANK];
    int rank = shape_of(e, tensor, sizes); /* bounded: an expression that reads the tensor has been checked */
    const char *text = fb_text(e->graph, data);
    size_t size = fb_base64_size(text, fb_text_length(e->graph, data));
    if (size != (size_t)(element_count(rank, sizes) * e->element)) {
        fail_unknown(e, name_of(e, tensor), "has data of another size");
        return;
    }
    packed_view(e, &(block){.base64 = text}, rank, sizes, out);
}

/* Only what moves tensors of our dtype can be evaluated. */
static bool check_movement(evaluator *e, fb_value expression, const char *what, fb_recipe_type *type) {
    if (e->status) return false;
    e->status = fb_recipe_type_under(e->graph, expression, e->dtype, "", type, e->error);
    if (e->status) return false;
    if (!type->is_movement) fail_unknown(e, what, "is computed");
    if (!e->dtype) e->dtype = type->dtype;
    if (!e->dtype) fail_unknown(e, what, "has no dtype");
    if (type->dtype && type->dtype != e->dtype) fail_unknown(e, what, "is made of another dtype");
    return !e->status;
}

static void check_recipe(evaluator *e, fb_tensor tensor) {
    fb_recipe_type type;
    int64_t sizes[FB_RECIPE_MAX_RANK];
    if (!check_movement(e, fb_tensor_at(e->graph, tensor)->recipe, name_of(e, tensor), &type)) return;
    if (shape_of(e, tensor, sizes) == type.rank && memcmp(sizes, type.sizes, (size_t)type.rank * sizeof *sizes) == 0) return;
    fail_unknown(e, name_of(e, tensor), "has another shape than its recipe");
}

/* The tensor on top: the first time it asks for what it is made of; the second time all of that is there. */
static void advance(evaluator *e, fb_tensor tensor) {
    fb_value recipe = fb_tensor_at(e->graph, tensor)->recipe;
    uint32_t number = fb_map_get(&e->index, tensor.id);
    if (number && known_at(e, number)->is_done) {
        e->to_do.size -= sizeof tensor;
        return;
    }
    if (!number) {
        known_tensor fresh = {0};
        fb_buffer_append(&e->known, &fresh, sizeof fresh);
        number = (uint32_t)(e->known.size / sizeof fresh);
        if (e->known.failed || !fb_map_put(&e->index, tensor.id, number)) {
            fail_memory(e);
            return;
        }
        if (recipe.id) {
            check_recipe(e, tensor);
            fb_value_visit_tensors(e->graph, recipe, need, e);
            return;
        }
    }
    block made = {0};
    if (recipe.id) evaluate(e, recipe, &made);
    else view_data(e, tensor, &made);
    *known_at(e, number) = (known_tensor){made, true};
}

static void evaluate_whole(evaluator *e, fb_value expression, unsigned char **bytes, size_t *size) {
    fb_recipe_type type;
    block made;
    if (!check_movement(e, expression, "the expression", &type)) return;
    e->element = (int64_t)fb_dtype_size(e->dtype);
    fb_value_visit_tensors(e->graph, expression, need, e);
    while (e->to_do.size && !e->to_do.failed && !e->status) {
        fb_tensor tensor;
        memcpy(&tensor, e->to_do.data + e->to_do.size - sizeof tensor, sizeof tensor);
        advance(e, tensor);
    }
    if (e->to_do.failed) fail_memory(e);
    if (e->status || !evaluate(e, expression, &made)) return;
    size_t count = packed_size(e, &made);
    if (count > FB_MOVEMENT_MAX_BYTES) {
        e->status = fail_too_large(e->error);
        return;
    }
    unsigned char *copy = malloc(count ? count : 1);
    if (!copy) {
        fail_memory(e);
        return;
    }
    copy_packed(e, &made, copy);
    *bytes = copy;
    *size = count;
}

fb_status fb_movement_evaluate(const fb_graph *graph, fb_value expression, fb_dtype dtype, unsigned char **bytes, size_t *size,
                               fb_error *error) {
    evaluator e = {.graph = graph, .error = error, .dtype = dtype};
    evaluate_whole(&e, expression, bytes, size);
    fb_arena_free(&e.arena);
    fb_map_free(&e.index);
    fb_buffer_free(&e.known);
    fb_buffer_free(&e.to_do);
    return e.status;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

fb_status fb_tensor_bytes(const fb_graph *graph, fb_tensor tensor, unsigned char **bytes, size_t *size, fb_error *error) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    if (!row->data.id)
        return fb_fail(error, FB_NOT_FOUND, "bytes-unknown", "", "%s has no data in the graph", fb_text(graph, row->name));
    const char *text = fb_text(graph, row->data);
    size_t length = fb_text_length(graph, row->data), count = fb_base64_size(text, length);
    if (count > FB_MOVEMENT_MAX_BYTES) return fail_too_large(error);
    unsigned char *decoded = malloc(count ? count : 1);
    if (!decoded) return fb_fail_memory(error);
    fb_base64_decode(text, 0, count, decoded);
    *bytes = decoded;
    *size = count;
    return FB_OK;
}

/* The tensor that has the same bytes in the same order: a recipe that only names or reshapes another is followed. */
static fb_tensor with_same_bytes(const fb_graph *graph, fb_tensor tensor) {
    for (size_t steps = 0; steps < fb_tensor_count(graph); steps++) {
        const fb_tensor_row *row = fb_tensor_at(graph, tensor);
        fb_value from = row->recipe;
        if (row->digest.id || row->data.id) break;
        while (fb_recipe_op_of(graph, from) == FB_RECIPE_RESHAPE) from = fb_recipe_arg(graph, from, 0);
        if (fb_value_kind(graph, from) != FB_TENSOR) break;
        tensor = fb_value_at(graph, from)->tensor;
    }
    return tensor;
}

fb_status fb_tensor_digest(const fb_graph *graph, fb_tensor tensor, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    tensor = with_same_bytes(graph, tensor);
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    unsigned char *bytes = NULL;
    size_t size = 0;
    fb_status status;
    if (row->digest.id) {
        fb_copy_text(digest, FB_ID_LENGTH + 1, fb_text(graph, row->digest));
        return FB_OK;
    }
    if (row->recipe.id) status = fb_movement_evaluate(graph, row->recipe, (fb_dtype)row->dtype, &bytes, &size, error);
    else status = fb_tensor_bytes(graph, tensor, &bytes, &size, error);
    if (!status && !fb_sha256_id(bytes, size, digest)) status = fb_fail_memory(error);
    free(bytes);
    return status;
}
