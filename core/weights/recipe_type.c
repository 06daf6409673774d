/* Shape, dtype and class of an expression; and whether all recipes of a graph have one that agrees with their tensors. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

/* Where in the expression we are: a chain of argument indices up to the root. */
typedef struct frame {
    const struct frame *parent; /* NULL at the root */
    uint32_t index;
    int depth;
} frame;

typedef struct checker {
    const fb_graph *graph;
    const char *prefix;
    fb_error *error;
} checker;

/* ---- errors ---------------------------------------------------------------------------------------------------------- */

static void write_path(fb_buffer *out, const frame *at) {
    if (!at->parent) return;
    write_path(out, at->parent); /* at most FB_RECIPE_MAX_DEPTH deep */
    fb_buffer_printf(out, "/args/%u", at->index);
}

static fb_status bad(const checker *c, const frame *at, const char *member, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static fb_status bad(const checker *c, const frame *at, const char *member, const char *format, ...) {
    char message[400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    fb_buffer pointer = {0};
    fb_buffer_string(&pointer, c->prefix);
    write_path(&pointer, at);
    if (member) fb_buffer_printf(&pointer, "/%s", member);
    const char *text = fb_buffer_text(&pointer);
    fb_status status = text ? fb_fail(c->error, FB_INVALID, "bad-recipe", text, "%s", message) : fb_fail_memory(c->error);
    fb_buffer_free(&pointer);
    return status;
}

/* ---- members --------------------------------------------------------------------------------------------------------- */

static bool has_member_type(const fb_graph *graph, fb_value value, fb_member_type type) {
    fb_kind kind = fb_value_kind(graph, value);
    switch (type) {
    case FB_MEMBER_INT: return kind == FB_INT;
    case FB_MEMBER_NUMBER: return kind == FB_INT || kind == FB_FLOAT || kind == FB_TRUE || kind == FB_FALSE;
    case FB_MEMBER_INTS: break;
    }
    if (kind != FB_LIST) return false;
    for (uint32_t i = 0; i < fb_value_at(graph, value)->count; i++) {
        if (fb_value_kind(graph, fb_value_item(graph, value, i)) != FB_INT) return false;
    }
    return true;
}

static fb_status check_members(const checker *c, fb_value expression, const fb_recipe_facts *facts, const frame *at) {
    static const char *const type_names[] = {
        [FB_MEMBER_INT] = "an int", [FB_MEMBER_INTS] = "a list of ints", [FB_MEMBER_NUMBER] = "a number"};
    const fb_value_row *rest = fb_value_at(c->graph, fb_value_item(c->graph, expression, 1));
    uint32_t known = 0;
    for (const fb_recipe_member *m = facts->members; m->name; m++, known++) {
        fb_value value = fb_recipe_value(c->graph, expression, m->name);
        if (!value.id) return bad(c, at, NULL, "%s needs the member %s, %s", facts->name, m->name, type_names[m->type]);
        if (!has_member_type(c->graph, value, m->type))
            return bad(c, at, m->name, "%s must be %s", m->name, type_names[m->type]);
    }
    if (rest->count == 2 * known) return FB_OK;
    for (uint32_t i = 0; i + 1 < rest->count; i += 2) {
        const char *name = fb_value_text(c->graph, rest->items[i]);
        const fb_recipe_member *m = facts->members;
        while (m->name && strcmp(m->name, name) != 0) m++;
        if (!m->name) return bad(c, at, NULL, "%s has no member %s", facts->name, name);
    }
    return bad(c, at, NULL, "a member is given twice");
}

/* ---- shapes ---------------------------------------------------------------------------------------------------------- */

/* Elements, or -1 when 16 bytes for each are more than 64 bits can count. */
static int64_t element_count(const int64_t *sizes, int rank) {
    int64_t count = 1;
    bool overflows = false;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) return 0;
        overflows |= __builtin_mul_overflow(count, sizes[i], &count);
    }
    return overflows || count > INT64_MAX / 16 ? -1 : count;
}

static fb_status check_count(const checker *c, const frame *at, const fb_recipe_type *type) {
    if (element_count(type->sizes, type->rank) >= 0) return FB_OK;
    return bad(c, at, NULL, "the result has too many elements");
}

static fb_status read_shape(const checker *c, const frame *at, const char *name, fb_value shape, fb_recipe_type *type) {
    uint32_t rank = fb_value_at(c->graph, shape)->count;
    if (rank > FB_RECIPE_MAX_RANK) return bad(c, at, name, "more than %d dimensions", FB_RECIPE_MAX_RANK);
    type->rank = (int)rank;
    for (uint32_t i = 0; i < rank; i++) {
        if (!fb_value_is_int(c->graph, fb_value_item(c->graph, shape, i), &type->sizes[i]) || type->sizes[i] < 0) {
            return bad(c, at, name, "a size must be an int of 0 or more");
        }
    }
    return check_count(c, at, type);
}

static fb_status check_axis(const checker *c, const frame *at, int64_t axis, int rank) {
    if (axis >= 0 && axis < rank) return FB_OK;
    return bad(c, at, "axis", "axis %lld of a tensor of %d dimensions", (long long)axis, rank);
}

/* Sizes behind its rank mean nothing, and are many. */
static void copy_type(fb_recipe_type *to, const fb_recipe_type *from) {
    memcpy(to, from, offsetof(fb_recipe_type, sizes) + (size_t)from->rank * sizeof *from->sizes);
}

/* NumPy's rule, into `a`; the last `skip` dimensions take no part. */
static bool broadcast(fb_recipe_type *a, const fb_recipe_type *b, int skip) {
    for (; a->rank < b->rank; a->rank++) { /* with leading dimensions of 1 */
        memmove(a->sizes + 1, a->sizes, (size_t)a->rank * sizeof *a->sizes);
        a->sizes[0] = 1;
    }
    int64_t *sizes = a->sizes + (a->rank - b->rank);
    for (int i = 0; i < b->rank - skip; i++) {
        if (sizes[i] == 1) sizes[i] = b->sizes[i];
        else if (b->sizes[i] != 1 && b->sizes[i] != sizes[i]) return false;
    }
    return true;
}

/* ---- dtypes ---------------------------------------------------------------------------------------------------------- */

/* The dtype of a computed mixture: the wider one. It is information only, since the result is rounded to the defined tensor's
 * dtype. */
static fb_dtype wider(fb_dtype a, fb_dtype b) {
    if (a == b || !b) return a;
    if (!a) return b;
    return fb_dtype_size(a) == fb_dtype_size(b) ? FB_FLOAT32 : fb_dtype_size(a) > fb_dtype_size(b) ? a : b;
}

static fb_status check_computable(const checker *c, const frame *at, const char *op, const fb_recipe_type *type) {
    if (!type->dtype || fb_dtype_is_computed(type->dtype)) return FB_OK;
    return bad(c, at, NULL, "%s computes, and %s is not a floating dtype that can be computed with", op,
               fb_dtype_name(type->dtype));
}

/* ---- the operations -------------------------------------------------------------------------------------------------- */

static fb_status type_of(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type);

static fb_status type_of_arg(const checker *c, fb_value expression, uint32_t index, const frame *at, fb_recipe_type *type) {
    frame below = {at, index, at->depth + 1};
    if (below.depth > FB_RECIPE_MAX_DEPTH) return bad(c, at, NULL, "nested deeper than %d", FB_RECIPE_MAX_DEPTH);
    return type_of(c, fb_recipe_arg(c->graph, expression, index), &below, type);
}

static fb_status join_part(const checker *c, const frame *at, int64_t axis, const fb_recipe_type *part, fb_recipe_type *type) {
    if (part->rank != type->rank) return bad(c, at, NULL, "%d dimensions where the first part has %d", part->rank, type->rank);
    for (int i = 0; i < type->rank; i++) {
        if (i == axis || part->sizes[i] == type->sizes[i]) continue;
        return bad(c, at, NULL, "size %lld in dimension %d where the first part has %lld", (long long)part->sizes[i], i,
                   (long long)type->sizes[i]);
    }
    if (__builtin_add_overflow(type->sizes[axis], part->sizes[axis], &type->sizes[axis])) {
        return bad(c, at, NULL, "the result has too many elements");
    }
    type->is_movement &= part->is_movement;
    if (!type->is_movement) {
        fb_status status = check_computable(c, at, "concat", type);
        if (!status) status = check_computable(c, at, "concat", part);
        if (status) return status;
    } else if (type->dtype && part->dtype && type->dtype != part->dtype) {
        return bad(c, at, NULL, "%s where the first part is %s", fb_dtype_name(part->dtype), fb_dtype_name(type->dtype));
    }
    type->dtype = wider(type->dtype, part->dtype);
    return FB_OK;
}

static fb_status type_of_concat(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    fb_status status = type_of_arg(c, expression, 0, at, type);
    int64_t axis = fb_recipe_int(c->graph, expression, "axis");
    if (!status) status = check_axis(c, at, axis, type->rank);
    size_t count = fb_recipe_arg_count(c->graph, expression);
    for (uint32_t i = 1; i < count && !status; i++) {
        frame below = {at, i, at->depth + 1};
        fb_recipe_type part;
        status = type_of_arg(c, expression, i, at, &part);
        if (!status) status = join_part(c, &below, axis, &part, type);
    }
    return status ? status : check_count(c, at, type);
}

static fb_status type_of_slice(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    fb_status status = type_of_arg(c, expression, 0, at, type);
    int64_t axis = fb_recipe_int(c->graph, expression, "axis");
    int64_t start = fb_recipe_int(c->graph, expression, "start"), stop = fb_recipe_int(c->graph, expression, "stop");
    if (!status) status = check_axis(c, at, axis, type->rank);
    if (status) return status;
    if (start < 0 || start > stop) return bad(c, at, "start", "start %lld, stop %lld", (long long)start, (long long)stop);
    if (stop > type->sizes[axis]) return bad(c, at, "stop", "%lld of %lld", (long long)stop, (long long)type->sizes[axis]);
    type->sizes[axis] = stop - start;
    return FB_OK;
}

static fb_status type_of_reshape(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    fb_recipe_type from;
    fb_status status = type_of_arg(c, expression, 0, at, &from);
    if (status) return status;
    copy_type(type, &from);
    status = read_shape(c, at, "shape", fb_recipe_value(c->graph, expression, "shape"), type);
    if (status) return status;
    int64_t before = element_count(from.sizes, from.rank), after = element_count(type->sizes, type->rank);
    if (before == after) return FB_OK;
    return bad(c, at, "shape", "%lld elements into %lld", (long long)before, (long long)after);
}

static fb_status type_of_permute(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    fb_recipe_type from;
    fb_status status = type_of_arg(c, expression, 0, at, &from);
    if (status) return status;
    fb_value dims = fb_recipe_value(c->graph, expression, "dims");
    bool seen[FB_RECIPE_MAX_RANK] = {false};
    copy_type(type, &from);
    if (fb_value_at(c->graph, dims)->count != (uint32_t)from.rank) return bad(c, at, "dims", "not %d dims", from.rank);
    for (int i = 0; i < from.rank; i++) {
        int64_t dim = -1;
        fb_value_is_int(c->graph, fb_value_item(c->graph, dims, (size_t)i), &dim);
        if (dim < 0 || dim >= from.rank || seen[dim]) return bad(c, at, "dims", "not a permutation of 0 to %d", from.rank - 1);
        seen[dim] = true;
        type->sizes[i] = from.sizes[dim];
    }
    return FB_OK;
}

static fb_status type_of_full(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    type->is_movement = true;
    type->dtype = FB_DTYPE_UNKNOWN;
    return read_shape(c, at, "shape", fb_recipe_value(c->graph, expression, "shape"), type);
}

static fb_status type_of_operands(const checker *c, fb_value expression, const char *op, const frame *at, fb_recipe_type *a,
                                  fb_recipe_type *b) {
    fb_recipe_type *types[] = {a, b};
    for (uint32_t i = 0; i < 2 && types[i]; i++) {
        frame below = {at, i, at->depth + 1};
        fb_status status = type_of_arg(c, expression, i, at, types[i]);
        if (!status) status = check_computable(c, &below, op, types[i]);
        if (status) return status;
    }
    a->is_movement = false;
    if (b) a->dtype = wider(a->dtype, b->dtype);
    return FB_OK;
}

static fb_status type_of_binary(const checker *c, fb_value expression, const char *op, const frame *at, fb_recipe_type *type) {
    fb_recipe_type other;
    fb_status status = type_of_operands(c, expression, op, at, type, &other);
    if (status) return status;
    if (!broadcast(type, &other, 0)) return bad(c, at, NULL, "the shapes do not broadcast");
    return check_count(c, at, type);
}

/* numpy.matmul: a vector on the left is a row, on the right a column, and that dimension is dropped again. */
static fb_status type_of_matmul(const checker *c, fb_value expression, const char *op, const frame *at, fb_recipe_type *a) {
    fb_recipe_type b;
    fb_status status = type_of_operands(c, expression, op, at, a, &b);
    if (status) return status;
    if (a->rank == 0 || b.rank == 0) return bad(c, at, NULL, "matmul of a tensor without dimensions");
    bool left_is_vector = a->rank == 1, right_is_vector = b.rank == 1;
    int64_t inner = a->sizes[a->rank - 1];
    int64_t rows = left_is_vector ? 1 : a->sizes[a->rank - 2], columns = right_is_vector ? 1 : b.sizes[b.rank - 1];
    if (inner != (right_is_vector ? b.sizes[0] : b.sizes[b.rank - 2])) return bad(c, at, NULL, "the inner sizes differ");
    if (left_is_vector) *a = (fb_recipe_type){.dtype = a->dtype, .rank = 2};
    if (right_is_vector) b.rank = 2;
    if (!broadcast(a, &b, 2)) return bad(c, at, NULL, "the batch shapes do not broadcast");
    a->rank -= 2;
    if (!left_is_vector) a->sizes[a->rank++] = rows;
    if (!right_is_vector) a->sizes[a->rank++] = columns;
    return check_count(c, at, a);
}

static fb_status type_of_absmax(const checker *c, fb_value expression, const char *op, const frame *at, fb_recipe_type *type) {
    fb_status status = type_of_operands(c, expression, op, at, type, NULL);
    if (status) return status;
    const fb_value_row *dims = fb_value_at(c->graph, fb_recipe_value(c->graph, expression, "dims"));
    bool seen[FB_RECIPE_MAX_RANK] = {false};
    for (uint32_t i = 0; i < dims->count; i++) {
        int64_t dim = -1;
        fb_value_is_int(c->graph, dims->items[i], &dim);
        if (dim < 0 || dim >= type->rank || seen[dim])
            return bad(c, at, "dims", "not different dims of a tensor of %d", type->rank);
        if (type->sizes[dim] == 0)
            return bad(c, at, "dims", "dimension %lld is empty, so no value is the largest", (long long)dim);
        seen[dim] = true;
        type->sizes[dim] = 1;
    }
    return FB_OK;
}

static fb_status type_of_index_select(const checker *c, fb_value expression, const char *op, const frame *at,
                                      fb_recipe_type *type) {
    fb_recipe_type index;
    frame below = {at, 1, at->depth + 1};
    fb_status status = type_of_operands(c, expression, op, at, type, NULL);
    int64_t axis = fb_recipe_int(c->graph, expression, "axis");
    if (!status) status = check_axis(c, at, axis, type->rank);
    if (!status) status = type_of_arg(c, expression, 1, at, &index);
    if (status) return status;
    bool is_tensor = fb_value_kind(c->graph, fb_recipe_arg(c->graph, expression, 1)) == FB_TENSOR;
    if (!is_tensor || (index.dtype != FB_INT64 && index.dtype != FB_INT32))
        return bad(c, &below, NULL, "the index must be a tensor of int64 or int32");
    int64_t places = element_count(index.sizes, index.rank);
    if (places < 0) return bad(c, &below, NULL, "the index has too many elements");
    if (places && !type->sizes[axis]) return bad(c, at, "axis", "axis %lld is empty, so nothing can be taken", (long long)axis);
    type->sizes[axis] = places;
    return check_count(c, at, type);
}

static fb_status type_of_tensor(const checker *c, fb_tensor tensor, const frame *at, fb_recipe_type *type) {
    const fb_tensor_row *row = fb_tensor_at(c->graph, tensor);
    if (row->is_erased) return bad(c, at, NULL, "there is no tensor %s", fb_text(c->graph, row->name));
    if (row->dtype == FB_DTYPE_OTHER)
        return bad(c, at, NULL, "%s is of %s, whose elements nothing is known of", fb_tensor_name(c->graph, tensor),
                   fb_tensor_dtype_name(c->graph, tensor));
    type->dtype = (fb_dtype)row->dtype;
    type->is_movement = true;
    return read_shape(c, at, NULL, row->shape, type);
}

static fb_status type_of(const checker *c, fb_value expression, const frame *at, fb_recipe_type *type) {
    const fb_value_row *row = fb_value_at(c->graph, expression);
    if (row->kind == FB_TENSOR) return type_of_tensor(c, fb_value_tensor(c->graph, expression), at, type);
    if (row->kind != FB_EXPRESSION) return bad(c, at, NULL, "neither a tensor's name nor an expression");
    fb_recipe_op op = fb_recipe_op_of(c->graph, expression);
    if (!op) return bad(c, at, "op", "unknown operation %s", fb_text(c->graph, row->symbol));
    const fb_recipe_facts *facts = fb_recipe_facts_of(op);
    int64_t count = fb_value_at(c->graph, row->items[0])->count;
    if (count < facts->min_args || (facts->max_args >= 0 && count > facts->max_args)) {
        return bad(c, at, "args", "%s does not take %lld arguments", facts->name, (long long)count);
    }
    fb_status status = check_members(c, expression, facts, at);
    if (status) return status;
    switch (op) {
    case FB_RECIPE_CONCAT: return type_of_concat(c, expression, at, type);
    case FB_RECIPE_SLICE: return type_of_slice(c, expression, at, type);
    case FB_RECIPE_RESHAPE: return type_of_reshape(c, expression, at, type);
    case FB_RECIPE_PERMUTE: return type_of_permute(c, expression, at, type);
    case FB_RECIPE_FULL: return type_of_full(c, expression, at, type);
    case FB_RECIPE_MATMUL: return type_of_matmul(c, expression, facts->name, at, type);
    case FB_RECIPE_ABSMAX: return type_of_absmax(c, expression, facts->name, at, type);
    case FB_RECIPE_INDEX_SELECT: return type_of_index_select(c, expression, facts->name, at, type);
    case FB_RECIPE_NEG:
    case FB_RECIPE_SQRT:
    case FB_RECIPE_EXP:
    case FB_RECIPE_SIN:
    case FB_RECIPE_COS:
    case FB_RECIPE_ROUND:
    case FB_RECIPE_RSQRT: return type_of_operands(c, expression, facts->name, at, type, NULL);
    default: return type_of_binary(c, expression, facts->name, at, type);
    }
}

/* ---- fillers --------------------------------------------------------------------------------------------------------- */

/* Can a tensor of that dtype hold the number? A floating one holds every number that does not overflow. */
static bool holds(const fb_graph *graph, fb_dtype dtype, fb_value value) {
    static const struct {
        int64_t low, high;
    } ranges[FB_DTYPE_COUNT] = {
        [FB_INT64] = {INT64_MIN, INT64_MAX}, [FB_INT32] = {INT32_MIN, INT32_MAX}, [FB_INT16] = {INT16_MIN, INT16_MAX},
        [FB_INT8] = {INT8_MIN, INT8_MAX},    [FB_UINT8] = {0, UINT8_MAX},         [FB_UINT16] = {0, UINT16_MAX},
        [FB_UINT32] = {0, UINT32_MAX},       [FB_UINT64] = {0, INT64_MAX},
    };
    fb_kind kind = fb_value_kind(graph, value);
    if (kind == FB_TRUE || kind == FB_FALSE) return dtype == FB_BOOL;
    int64_t integer;
    double number;
    fb_dtype_range range;
    if (fb_dtype_limits(dtype, &range)) {
        if (!fb_value_is_number(graph, value, &number)) return false;
        bool is_finite = number - number == 0;
        return !is_finite || (number <= range.largest && number >= -range.largest);
    }
    if (fb_dtype_is_complex(dtype)) return true;
    if (fb_dtype_is_floating(dtype)) return false; /* of this one it is not known what holds */
    return fb_value_is_int(graph, value, &integer) && integer >= ranges[dtype].low && integer <= ranges[dtype].high &&
           dtype != FB_BOOL;
}

/* The fillers of a movement of that dtype. The expression has a type, so its depth is bounded. */
static fb_status check_fillers(const checker *c, fb_value expression, fb_dtype dtype, const frame *at) {
    if (fb_value_kind(c->graph, expression) != FB_EXPRESSION) return FB_OK;
    if (fb_recipe_op_of(c->graph, expression) == FB_RECIPE_FULL) {
        if (holds(c->graph, dtype, fb_recipe_value(c->graph, expression, "value"))) return FB_OK;
        return bad(c, at, "value", "a tensor of %s cannot hold this value", fb_dtype_name(dtype));
    }
    const fb_value_row *args = fb_value_at(c->graph, fb_value_item(c->graph, expression, 0));
    for (uint32_t i = 0; i < args->count; i++) {
        frame below = {at, i, at->depth + 1};
        fb_status status = check_fillers(c, args->items[i], dtype, &below);
        if (status) return status;
    }
    return FB_OK;
}

fb_status fb_recipe_type_under(const fb_graph *graph, fb_value expression, fb_dtype dtype, const char *prefix,
                               fb_recipe_type *type, fb_error *error) {
    checker c = {graph, prefix, error};
    frame root = {NULL, 0, 0};
    fb_recipe_type found;
    fb_status status = type_of(&c, expression, &root, &found);
    if (status) return status;
    if (found.dtype) dtype = found.dtype;
    if (found.is_movement && dtype) status = check_fillers(&c, expression, dtype, &root);
    if (!status) copy_type(type, &found);
    return status;
}

fb_status fb_recipe_type_of(const fb_graph *graph, fb_value expression, fb_recipe_type *type, fb_error *error) {
    return fb_recipe_type_under(graph, expression, FB_DTYPE_UNKNOWN, "", type, error);
}

/* ---- all recipes of a graph: types, and agreement with their tensors ----------------------------------------------------- */

static void check_agreement(const fb_graph *graph, fb_tensor tensor, const fb_recipe_type *type, fb_errors *errors,
                            const char *prefix) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    bool is_computable = fb_recipe_rounds_to(dtype);
    if (type->is_movement && type->dtype && type->dtype != dtype) {
        fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s gives %s, but the tensor is %s.",
                      fb_tensor_name(graph, tensor), fb_dtype_name(type->dtype), fb_dtype_name(dtype));
    } else if (!type->is_movement && !is_computable) {
        fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s computes, but the tensor is %s.",
                      fb_tensor_name(graph, tensor), fb_dtype_name(dtype));
    }
    bool same = fb_shape_rank(graph, row->shape) == type->rank;
    for (int i = 0; same && i < type->rank; i++) same = fb_shape_size(graph, row->shape, i) == type->sizes[i];
    if (same) return;
    fb_errors_add(errors, "recipe-contradicts-tensor", prefix, "The recipe of %s gives another shape than the tensor has.",
                  fb_tensor_name(graph, tensor));
}

static void check_type(const fb_graph *graph, fb_tensor tensor, size_t position, fb_errors *errors) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    char prefix[48];
    snprintf(prefix, sizeof prefix, "/tensors/%zu/recipe", position);
    fb_recipe_type type;
    fb_error error = {0};
    fb_status status = fb_recipe_type_under(graph, row->recipe, (fb_dtype)row->dtype, prefix, &type, &error);
    if (status == FB_OK) check_agreement(graph, tensor, &type, errors, prefix);
    else if (status == FB_NO_MEMORY) errors->out_of_memory = true;
    else fb_errors_add(errors, error.code, error.pointer, "%s", error.message);
}

/* ---- cycles ---------------------------------------------------------------------------------------------------------- */

/* Which tensors each tensor reads: reads[start[t] .. start[t + 1]]. */
typedef struct dependencies {
    uint32_t *start;
    fb_tensor *reads;
    size_t *position; /* in the document */
    uint32_t reader;
} dependencies;

static void count_read(void *context, fb_tensor source) {
    dependencies *d = context;
    (void)source;
    d->start[d->reader + 2]++;
}

static void put_read(void *context, fb_tensor source) {
    dependencies *d = context;
    d->reads[d->start[d->reader + 1]++] = source;
}

static void each_read(const fb_graph *graph, dependencies *d, void (*visit)(void *, fb_tensor)) {
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        fb_value recipe = fb_tensor_at(graph, t)->recipe;
        d->reader = t.id;
        if (recipe.id) fb_value_visit_tensors(graph, recipe, visit, d);
    }
}

static bool find_dependencies(const fb_graph *graph, dependencies *d) {
    uint32_t limit = fb_tensor_limit(graph) + 1;
    each_read(graph, d, count_read);
    for (uint32_t t = 1; t <= limit; t++) d->start[t] += d->start[t - 1];
    d->reads = calloc((size_t)d->start[limit] + 1, sizeof *d->reads);
    if (!d->reads) return false;
    each_read(graph, d, put_read);
    return true;
}

typedef enum mark { UNSEEN, OPEN, DONE } mark;

static void report_cycle(const fb_graph *graph, const dependencies *d, fb_tensor reader, fb_tensor source, fb_errors *errors) {
    char pointer[48];
    snprintf(pointer, sizeof pointer, "/tensors/%zu/recipe", d->position[reader.id]);
    fb_errors_add(errors, "recipe-cycle", pointer, "%s is computed from %s, which is computed from it.",
                  fb_tensor_name(graph, reader), fb_tensor_name(graph, source));
}

/* Depth-first from one tensor, on a stack of its own: chains may be as long as the table. */
static void search_from(const fb_graph *graph, const dependencies *d, fb_tensor from, mark *marks, uint32_t *cursor,
                        fb_tensor *stack, fb_errors *errors) {
    size_t depth = 0;
    stack[depth++] = from;
    marks[from.id] = OPEN;
    while (depth) {
        fb_tensor reader = stack[depth - 1];
        if (d->start[reader.id] + cursor[reader.id] == d->start[reader.id + 1]) {
            marks[reader.id] = DONE;
            depth--;
            continue;
        }
        fb_tensor source = d->reads[d->start[reader.id] + cursor[reader.id]++];
        if (marks[source.id] == OPEN) report_cycle(graph, d, reader, source, errors);
        if (marks[source.id] != UNSEEN) continue;
        marks[source.id] = OPEN;
        stack[depth++] = source;
    }
}

static void check_cycles(const fb_graph *graph, const dependencies *d, fb_errors *errors) {
    size_t limit = (size_t)fb_tensor_limit(graph) + 1;
    mark *marks = calloc(limit, sizeof *marks);
    uint32_t *cursor = calloc(limit, sizeof *cursor);
    fb_tensor *stack = calloc(limit, sizeof *stack);
    if (!marks || !cursor || !stack) errors->out_of_memory = true;
    for (fb_tensor t = fb_first_tensor(graph); t.id && !errors->out_of_memory; t = fb_tensor_at(graph, t)->next) {
        if (marks[t.id] == UNSEEN) search_from(graph, d, t, marks, cursor, stack, errors);
    }
    free(marks);
    free(cursor);
    free(stack);
}

void fb_recipe_check_all(const fb_graph *graph, fb_errors *errors) {
    size_t limit = (size_t)fb_tensor_limit(graph) + 2;
    dependencies d = {.start = calloc(limit, sizeof *d.start), .position = calloc(limit, sizeof *d.position)};
    if (!d.start || !d.position || !find_dependencies(graph, &d)) {
        errors->out_of_memory = true;
    } else {
        size_t position = 0;
        for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
            if (fb_tensor_at(graph, t)->recipe.id) check_type(graph, t, position, errors);
            d.position[t.id] = position++;
        }
        if (d.start[fb_tensor_limit(graph)]) check_cycles(graph, &d, errors);
    }
    free(d.start);
    free(d.position);
    free(d.reads);
}
