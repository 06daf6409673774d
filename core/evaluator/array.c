#include "core/evaluator/array.h"

#include <complex.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

size_t fb_held_size(fb_held held) {
    switch (held) {
    case FB_HELD_COMPLEX_DOUBLE: return 16;
    case FB_HELD_COMPLEX_FLOAT:
    case FB_HELD_DOUBLE:
    case FB_HELD_INT: return 8;
    case FB_HELD_FLOAT: return 4;
    case FB_HELD_BOOL: return 1;
    case FB_HELD_NONE: break;
    }
    return 0;
}

fb_held fb_held_of(fb_precision precision, fb_dtype dtype) {
    switch (dtype) {
    case FB_BOOL: return FB_HELD_BOOL;
    case FB_INT8:
    case FB_INT16:
    case FB_INT32:
    case FB_INT64:
    case FB_UINT8:
    case FB_UINT16:
    case FB_UINT32:
    case FB_UINT64: return FB_HELD_INT;
    case FB_FLOAT64: return FB_HELD_DOUBLE;
    case FB_FLOAT32:
    case FB_FLOAT16:
    case FB_BFLOAT16: return precision == FB_PRECISION_DOUBLE ? FB_HELD_DOUBLE : FB_HELD_FLOAT;
    case FB_COMPLEX128: return FB_HELD_COMPLEX_DOUBLE;
    case FB_COMPLEX64: return precision == FB_PRECISION_DOUBLE ? FB_HELD_COMPLEX_DOUBLE : FB_HELD_COMPLEX_FLOAT;
    default: return FB_HELD_NONE;
    }
}

/* ---- storage and views --------------------------------------------------------------------------------------------------- */

/* Elements of those sizes; -1 when they are too many to count. */
static int64_t count_elements(int rank, const int64_t *sizes) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == 0) return 0;
    }
    for (int i = 0; i < rank; i++) {
        if (sizes[i] < 0 || __builtin_mul_overflow(count, sizes[i], &count)) return -1;
    }
    return count;
}

/* True if strides and sums over those sizes can be counted in bytes, also where one of them is 0. */
static bool are_countable(int rank, const int64_t *sizes) {
    int64_t product = 16; /* the largest element */
    for (int i = 0; i < rank; i++)
        if (sizes[i] > 1 && __builtin_mul_overflow(product, sizes[i], &product)) return false;
    return true;
}

fb_status fb_array_check_sizes(int rank, const int64_t *sizes, fb_error *error) {
    if (rank <= FB_MAX_RANK && are_countable(rank, sizes)) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL, "a tensor has too many elements");
}

static void set_row_major(fb_array *array) {
    int64_t stride = 1;
    for (int i = array->rank - 1; i >= 0; i--) {
        array->strides[i] = stride;
        if (array->sizes[i] > 1) stride *= array->sizes[i];
    }
}

fb_status fb_array_memory_take(fb_array_memory *memory, size_t size, fb_error *error) {
    if (memory->limit && (memory->used > memory->limit || size > memory->limit - memory->used)) {
        return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL, "evaluating takes more than %zu bytes of memory",
                       memory->limit);
    }
    memory->used += size;
    if (memory->used > memory->peak) memory->peak = memory->used;
    return FB_OK;
}

void fb_array_memory_give(fb_array_memory *memory, size_t size) {
    memory->used -= size;
}

static fb_status new_storage(fb_array_memory *memory, size_t size, fb_storage **out, fb_error *error) {
    fb_status status = fb_array_memory_take(memory, size, error);
    if (status) return status;
    fb_storage *storage = calloc(1, sizeof *storage);
    void *bytes = storage ? malloc(size ? size : 1) : NULL;
    if (!bytes) {
        free(storage);
        fb_array_memory_give(memory, size);
        return fb_fail_memory(error);
    }
    *storage = (fb_storage){.references = 1, .size = size, .memory = memory, .bytes = bytes};
    *out = storage;
    return FB_OK;
}

static void drop_storage(fb_storage *storage) {
    if (--storage->references) return;
    fb_array_memory_give(storage->memory, storage->size);
    free(storage->bytes);
    free(storage);
}

static fb_status new_array(fb_array_memory *memory, fb_array **out, fb_error *error) {
    fb_status status = fb_array_memory_take(memory, sizeof **out, error);
    if (status) return status;
    *out = calloc(1, sizeof **out);
    if (*out) return FB_OK;
    fb_array_memory_give(memory, sizeof **out);
    return fb_fail_memory(error);
}

fb_status fb_array_new(fb_array_memory *memory, fb_dtype dtype, int rank, const int64_t *sizes, fb_array **out,
                       fb_error *error) {
    fb_held held = fb_held_of(memory->precision, dtype);
    if (!held || (fb_dtype_is_wide_unsigned(dtype) && !memory->has_wide_unsigned)) {
        return fb_fail(error, FB_INVALID, "unsupported-operator", NULL, "tensors of %s are not evaluated",
                       dtype ? fb_dtype_name(dtype) : "an unknown dtype");
    }
    fb_status status = fb_array_check_sizes(rank, sizes, error);
    if (status) return status;
    int64_t count = count_elements(rank, sizes);
    if (count < 0) return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "a size is negative");
    size_t size = (size_t)count * fb_held_size(held);
    fb_array *array;
    status = new_array(memory, &array, error);
    if (status) return status;
    status = new_storage(memory, size, &array->storage, error);
    if (status) {
        fb_array_memory_give(memory, sizeof *array);
        free(array);
        return status;
    }
    array->references = 1;
    array->dtype = dtype;
    array->held = held;
    array->rank = rank;
    if (rank) memcpy(array->sizes, sizes, (size_t)rank * sizeof *sizes);
    set_row_major(array);
    *out = array;
    return FB_OK;
}

fb_status fb_array_view(const fb_array *of, int rank, fb_array **out, fb_error *error) {
    if (rank > FB_MAX_RANK)
        return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL, "a tensor has too many dimensions");
    fb_array *array;
    fb_status status = new_array(of->storage->memory, &array, error);
    if (status) return status;
    *array = *of;
    array->references = 1;
    array->rank = rank;
    array->storage->references++;
    *out = array;
    return FB_OK;
}

fb_array fb_array_part_of(const fb_array *array, bool is_imaginary) {
    fb_array part = *array;
    part.dtype = fb_dtype_part(array->dtype);
    part.held = array->held == FB_HELD_COMPLEX_DOUBLE ? FB_HELD_DOUBLE : FB_HELD_FLOAT;
    part.offset = 2 * array->offset + is_imaginary;
    for (int i = 0; i < array->rank; i++) part.strides[i] = 2 * array->strides[i];
    return part;
}

fb_status fb_array_part(const fb_array *array, bool is_imaginary, fb_array **out, fb_error *error) {
    fb_array part = fb_array_part_of(array, is_imaginary);
    return fb_array_view(&part, array->rank, out, error);
}

fb_array *fb_array_keep(fb_array *array) {
    array->references++;
    return array;
}

void fb_array_drop(fb_array *array) {
    if (!array || --array->references) return;
    fb_array_memory_give(array->storage->memory, sizeof *array);
    drop_storage(array->storage);
    free(array);
}

int64_t fb_array_count(const fb_array *array) {
    return count_elements(array->rank, array->sizes);
}

bool fb_array_is_contiguous(const fb_array *array) {
    int64_t stride = 1;
    for (int i = array->rank - 1; i >= 0; i--) {
        if (array->sizes[i] == 0) return true;
        if (array->sizes[i] == 1) continue;
        if (array->strides[i] != stride) return false;
        stride *= array->sizes[i];
    }
    return true;
}

void *fb_array_data(const fb_array *array) {
    return (char *)array->storage->bytes + (size_t)array->offset * fb_held_size(array->held);
}

/* ---- walking ------------------------------------------------------------------------------------------------------------- */

/* The next run of the line at hand, unless the work has been stopped. */
static void begin_run(fb_walk *walk) {
    int64_t left = walk->line - walk->at, steps = 1;
    for (int k = 0; k < walk->arrays && walk->line > 1; k++) { /* the stride of one element may be any number */
        int64_t more = fb_work_steps_at(walk->strides[k] * (int64_t)walk->element[k]);
        if (more > steps) steps = more;
    }
    walk->count = left < FB_WORK_BLOCK / steps ? left : FB_WORK_BLOCK / steps;
    if (!fb_work_goes_on(walk->work, walk->count * steps)) walk->is_done = true;
}

/* By so many elements along the run's dimension. */
static void move_along(fb_walk *walk, int64_t by) {
    for (int k = 0; k < walk->arrays; k++)
        walk->data[k] = (char *)walk->data[k] + by * walk->strides[k] * (int64_t)walk->element[k];
    walk->at += by;
}

void fb_walk_begin(fb_walk *walk, const fb_array *first, ...) {
    walk->arrays = 0;
    walk->rank = 0;
    walk->line = 1;
    walk->at = 0;
    walk->work = fb_array_work(first);
    walk->is_done = fb_array_count(first) == 0;
    const fb_array *arrays[FB_WALK_ARRAYS];
    va_list list;
    va_start(list, first);
    for (const fb_array *array = first; array && walk->arrays < FB_WALK_ARRAYS; array = va_arg(list, const fb_array *))
        arrays[walk->arrays++] = array;
    va_end(list);
    for (int k = 0; k < walk->arrays; k++) {
        walk->data[k] = fb_array_data(arrays[k]);
        walk->element[k] = fb_held_size(arrays[k]->held);
        walk->strides[k] = 0;
    }
    if (walk->is_done) return;
    /* From the last dimension outwards: one that continues the one before it in all arrays is joined to it. The innermost is
     * the run, the others are counted by `index`, the outermost last. */
    bool has_run = false;
    for (int d = first->rank - 1; d >= 0; d--) {
        int64_t size = first->sizes[d];
        if (size == 1) continue;
        int64_t *inner_size = walk->rank ? &walk->sizes[walk->rank - 1] : &walk->line;
        bool joins = has_run;
        for (int k = 0; k < walk->arrays && joins; k++) {
            int64_t inner = walk->rank ? walk->steps[k][walk->rank - 1] : walk->strides[k];
            joins = arrays[k]->strides[d] == inner * *inner_size;
        }
        if (joins) {
            *inner_size *= size;
            continue;
        }
        for (int k = 0; k < walk->arrays; k++) {
            if (has_run) walk->steps[k][walk->rank] = arrays[k]->strides[d];
            else walk->strides[k] = arrays[k]->strides[d];
        }
        if (has_run) {
            walk->sizes[walk->rank] = size;
            walk->index[walk->rank++] = 0;
        } else {
            walk->line = size;
            has_run = true;
        }
    }
    begin_run(walk);
}

void fb_walk_next(fb_walk *walk) {
    if (walk->at + walk->count < walk->line) {
        move_along(walk, walk->count);
        begin_run(walk);
        return;
    }
    if (walk->at) move_along(walk, -walk->at);
    for (int d = 0; d < walk->rank; d++) {
        bool is_last = ++walk->index[d] == walk->sizes[d];
        int64_t by = is_last ? 1 - walk->sizes[d] : 1;
        for (int k = 0; k < walk->arrays; k++)
            walk->data[k] = (char *)walk->data[k] + by * walk->steps[k][d] * (int64_t)walk->element[k];
        if (!is_last) {
            begin_run(walk);
            return;
        }
        walk->index[d] = 0;
    }
    walk->is_done = true;
}

/* ---- converting ---------------------------------------------------------------------------------------------------------- */

/* A float beyond the range (and nan) converts to what x86's instruction gives, as PyTorch's does there. */
static int64_t to_int(double number) {
    return number >= -0x1p63 && number < 0x1p63 ? (int64_t)number : INT64_MIN;
}

/* The instruction is the one for 32 bits unless these cannot hold the dtype; a narrower dtype then takes the low bits. */
static int64_t to_int_of(fb_dtype dtype, double number) {
    if (dtype == FB_INT64 || dtype == FB_UINT32 || dtype == FB_UINT64) return to_int(number);
    return number > -0x1p31 - 1 && number < 0x1p31 ? (int64_t)number : INT32_MIN;
}

#define CONVERT(FROM, TO, expression)                                                                                          \
    for (; fb_walk_more(&walk); fb_walk_next(&walk)) {                                                                         \
        TO *target = walk.data[0];                                                                                             \
        const FROM *source = walk.data[1];                                                                                     \
        for (int64_t i = 0; i < walk.count; i++) {                                                                             \
            FROM value = source[i * walk.strides[1]];                                                                          \
            target[i * walk.strides[0]] = (TO)(expression);                                                                    \
        }                                                                                                                      \
    }                                                                                                                          \
    break

#define CONVERT_TO(FROM, as_int)                                                                                               \
    switch (to->held) {                                                                                                        \
    case FB_HELD_DOUBLE: CONVERT(FROM, double, value);                                                                         \
    case FB_HELD_FLOAT: CONVERT(FROM, float, value);                                                                           \
    case FB_HELD_INT: CONVERT(FROM, int64_t, as_int);                                                                          \
    case FB_HELD_BOOL: CONVERT(FROM, unsigned char, value != 0);                                                               \
    case FB_HELD_COMPLEX_DOUBLE: CONVERT(FROM, double _Complex, value);                                                        \
    case FB_HELD_COMPLEX_FLOAT: CONVERT(FROM, float _Complex, value);                                                          \
    case FB_HELD_NONE: break;                                                                                                  \
    }                                                                                                                          \
    break

/* Elements that do not overlap, of the same sizes. */
static void convert(const fb_array *to, const fb_array *from) {
    fb_walk walk;
    fb_walk_begin(&walk, to, from, NULL);
    switch (from->held) {
    case FB_HELD_DOUBLE: CONVERT_TO(double, to_int_of(to->dtype, value));
    case FB_HELD_FLOAT: CONVERT_TO(float, to_int_of(to->dtype, (double)value));
    case FB_HELD_INT: CONVERT_TO(int64_t, value);
    case FB_HELD_BOOL: CONVERT_TO(unsigned char, value);
    case FB_HELD_COMPLEX_DOUBLE: CONVERT_TO(double _Complex, to_int_of(to->dtype, creal(value)));
    case FB_HELD_COMPLEX_FLOAT: CONVERT_TO(float _Complex, to_int_of(to->dtype, (double)crealf(value)));
    case FB_HELD_NONE: break;
    }
    if (to->dtype != from->dtype) fb_array_round(to);
}

static fb_status copy_as(const fb_array *array, fb_dtype dtype, fb_array **out, fb_error *error) {
    fb_array *copy;
    fb_status status = fb_array_new(array->storage->memory, dtype, array->rank, array->sizes, &copy, error);
    if (status) return status;
    convert(copy, array);
    status = fb_work_status(fb_array_work(copy), error);
    if (status) fb_array_drop(copy);
    else *out = copy;
    return status;
}

fb_status fb_array_contiguous(fb_array *array, fb_array **out, fb_error *error) {
    if (!fb_array_is_contiguous(array)) return copy_as(array, array->dtype, out, error);
    *out = fb_array_keep(array);
    return FB_OK;
}

fb_status fb_array_cast(const fb_array *array, fb_dtype dtype, fb_array **out, fb_error *error) {
    return copy_as(array, dtype, out, error);
}

fb_status fb_array_broadcast(const fb_array *array, int rank, const int64_t *sizes, fb_array **out, fb_error *error) {
    fb_array *view = NULL;
    int added = rank - array->rank;
    bool fits = added >= 0;
    for (int i = 0; i < array->rank && fits; i++) fits = array->sizes[i] == sizes[i + added] || array->sizes[i] == 1;
    if (!fits)
        return fb_fail(error, FB_INVALID, "shape-mismatch", NULL, "a tensor cannot be broadcast to the shape that is wanted");
    fb_status status = fb_array_check_sizes(rank, sizes, error);
    if (!status) status = fb_array_view(array, rank, &view, error);
    if (status) return status;
    for (int i = 0; i < rank; i++) {
        bool is_repeated = i < added || array->sizes[i - added] != sizes[i];
        view->sizes[i] = sizes[i];
        view->strides[i] = is_repeated ? 0 : array->strides[i - added];
    }
    *out = view;
    return FB_OK;
}

void fb_array_remove_dim(fb_array *view, int dim) {
    view->rank--;
    for (int i = dim; i < view->rank; i++) {
        view->sizes[i] = view->sizes[i + 1];
        view->strides[i] = view->strides[i + 1];
    }
}

bool fb_array_insert_dim(fb_array *view, int dim) {
    if (view->rank == FB_MAX_RANK) return false;
    for (int i = view->rank++; i > dim; i--) {
        view->sizes[i] = view->sizes[i - 1];
        view->strides[i] = view->strides[i - 1];
    }
    view->sizes[dim] = 1;
    view->strides[dim] = 0;
    return true;
}

void fb_array_slice(fb_array *view, int dim, int64_t start, int64_t stop, int64_t step) {
    int64_t size = view->sizes[dim];
    start = fb_clip_index(start, size);
    stop = fb_clip_index(stop, size);
    view->sizes[dim] = stop > start ? (stop - start - 1) / step + 1 : 0;
    view->offset += start * view->strides[dim];
    view->strides[dim] *= view->sizes[dim] > 1 ? step : 1;
}

bool fb_array_join_sizes(const fb_array *array, int *rank, int64_t sizes[FB_MAX_RANK]) {
    int added = array->rank - *rank;
    if (added > 0) {
        memmove(sizes + added, sizes, (size_t)*rank * sizeof *sizes);
        for (int i = 0; i < added; i++) sizes[i] = 1;
        *rank = array->rank;
    }
    for (int i = 0; i < array->rank; i++) {
        int64_t *size = &sizes[*rank - array->rank + i];
        if (*size == 1) *size = array->sizes[i];
        else if (array->sizes[i] != 1 && array->sizes[i] != *size) return false;
    }
    return true;
}

/* The stride of a dimension that is broadcast to that size. */
static int64_t stride_of(const fb_array *array, int dim, int64_t size) {
    return array->sizes[dim] == 1 && size != 1 ? 0 : array->strides[dim];
}

/* Does axis `a` vary slower than `b` in memory? 1: yes, -1: no, 0: not decided. See TensorIteratorBase::reorder_dimensions.
 */
static int compare_axes(int rank, const int64_t *sizes, fb_array *const *from, size_t count, int a, int b) {
    for (size_t k = 0; k < count; k++) {
        int added = rank - from[k]->rank;
        if (a < added || b < added) continue;
        int64_t of_a = stride_of(from[k], a - added, sizes[a]), of_b = stride_of(from[k], b - added, sizes[b]);
        if (of_a == 0 || of_b == 0) continue;
        if (of_a != of_b) return of_a > of_b ? 1 : -1;
        if (sizes[a] > sizes[b]) return 1;
    }
    return 0;
}

void fb_array_strides_like(int rank, const int64_t *sizes, fb_array *const *from, size_t count, int64_t strides[FB_MAX_RANK]) {
    int order[FB_MAX_RANK]; /* of axes, the fastest first */
    int64_t stride = 1;
    for (int i = 0; i < rank; i++) order[i] = rank - 1 - i;
    for (int i = 1; i < rank; i++) {
        for (int at = i, below = i - 1; below >= 0; below--) {
            int verdict = compare_axes(rank, sizes, from, count, order[below], order[at]);
            if (verdict < 0) break;
            if (verdict == 0) continue;
            int axis = order[below];
            order[below] = order[at];
            order[at] = axis;
            at = below;
        }
    }
    for (int i = 0; i < rank; i++) {
        strides[order[i]] = stride;
        if (sizes[order[i]] > 1) stride *= sizes[order[i]];
    }
}

fb_status fb_array_lay_out(fb_array **array, const int64_t *strides, fb_error *error) {
    fb_array *from = *array, *to;
    bool is_there = fb_array_count(from) == 0;
    if (!is_there) {
        is_there = true;
        for (int i = 0; i < from->rank; i++) is_there &= from->sizes[i] == 1 || from->strides[i] == strides[i];
    }
    if (is_there) return FB_OK;
    fb_status status = fb_array_new(from->storage->memory, from->dtype, from->rank, from->sizes, &to, error);
    if (status) return status;
    memcpy(to->strides, strides, (size_t)from->rank * sizeof *strides);
    to->levels = from->levels;
    convert(to, from);
    fb_array_drop(from);
    *array = to;
    return FB_OK;
}

bool fb_array_may_overlap(const fb_array *array) {
    int64_t reach = 0; /* from the first element to the last, along the dimensions that were looked at */
    bool is_done[FB_MAX_RANK] = {false};
    for (int k = 0; k < array->rank; k++) {
        int least = -1;
        for (int i = 0; i < array->rank; i++)
            if (!is_done[i] && (least < 0 || array->strides[i] < array->strides[least])) least = i;
        is_done[least] = true;
        if (array->sizes[least] == 0) return false;
        if (array->sizes[least] > 1 && array->strides[least] <= reach) return true;
        reach += (array->sizes[least] - 1) * array->strides[least];
    }
    return false;
}

/* As at::Tensor::is_non_overlapping_and_dense says of an array with elements. */
static bool is_dense(const fb_array *array) {
    int64_t count = fb_array_count(array), last = 0;
    for (int i = 0; i < array->rank; i++)
        if (array->sizes[i] > 1) last += (array->sizes[i] - 1) * array->strides[i];
    return last == count - 1 && !fb_array_may_overlap(array);
}

fb_overlap fb_arrays_overlap(const fb_array *a, const fb_array *b) {
    int64_t a_count = fb_array_count(a), b_count = fb_array_count(b);
    if (a == b) return FB_OVERLAP_FULL;
    if (a->storage != b->storage || !a_count || !b_count || !is_dense(a) || !is_dense(b)) return FB_OVERLAP_NONE;
    if (a->dtype != b->dtype) return FB_OVERLAP_PARTIAL; /* offsets count elements */
    if (a->offset >= b->offset + b_count || b->offset >= a->offset + a_count) return FB_OVERLAP_NONE;
    bool is_same = a->offset == b->offset && a_count == b_count && a->rank == b->rank;
    for (int i = 0; i < a->rank && is_same; i++) is_same = a->strides[i] == b->strides[i];
    return is_same ? FB_OVERLAP_FULL : FB_OVERLAP_PARTIAL;
}

fb_status fb_array_assign(const fb_array *to, const fb_array *from, fb_error *error) {
    fb_array *source, *apart = NULL;
    if (to->storage->is_frozen)
        return fb_fail(error, FB_INVALID, "unsupported-operator", NULL,
                       "a tensor is written that a conjugate shares its storage with");
    fb_status status = fb_array_broadcast(from, to->rank, to->sizes, &source, error);
    if (status) return status;
    if (from->storage == to->storage) status = copy_as(source, source->dtype, &apart, error);
    if (!status) convert(to, apart ? apart : source);
    if (!status) status = fb_work_status(fb_array_work(to), error);
    fb_array_drop(apart);
    fb_array_drop(source);
    return status;
}

void fb_array_copy_bytes(fb_work *work, void *to, const void *from, size_t size) {
    for (int64_t start = 0, stop; (stop = fb_work_part(work, start, (int64_t)size)) > start; start = stop)
        memcpy((char *)to + start, (const char *)from + start, (size_t)(stop - start));
}

/* ---- numbers --------------------------------------------------------------------------------------------------- */

static void *element_at(const fb_array *array, int64_t index) {
    int64_t at = 0;
    for (int i = array->rank - 1; i >= 0; i--) {
        at += index % array->sizes[i] * array->strides[i];
        index /= array->sizes[i];
    }
    return (char *)fb_array_data(array) + at * (int64_t)fb_held_size(array->held);
}

double fb_array_number(const fb_array *array, int64_t index) {
    const void *element = element_at(array, index);
    switch (array->held) {
    case FB_HELD_DOUBLE: return *(const double *)element;
    case FB_HELD_FLOAT: return (double)*(const float *)element;
    case FB_HELD_INT: return (double)*(const int64_t *)element;
    case FB_HELD_COMPLEX_DOUBLE: return creal(*(const double _Complex *)element);
    case FB_HELD_COMPLEX_FLOAT: return (double)crealf(*(const float _Complex *)element);
    default: return *(const unsigned char *)element;
    }
}

int64_t fb_array_int(const fb_array *array, int64_t index) {
    if (array->held == FB_HELD_INT) return *(const int64_t *)element_at(array, index);
    return to_int(fb_array_number(array, index));
}

#define FILL(T, value)                                                                                                         \
    for (int64_t i = 0; i < walk.count; i++) ((T *)walk.data[0])[i * walk.strides[0]] = (T)(value);                            \
    break

void fb_array_fill(const fb_array *array, double number, int64_t integer) {
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        switch (array->held) {
        case FB_HELD_DOUBLE: FILL(double, number);
        case FB_HELD_FLOAT: FILL(float, number);
        case FB_HELD_INT: FILL(int64_t, integer);
        case FB_HELD_BOOL: FILL(unsigned char, number != 0);
        case FB_HELD_COMPLEX_DOUBLE: FILL(double _Complex, number);
        case FB_HELD_COMPLEX_FLOAT: FILL(float _Complex, number);
        case FB_HELD_NONE: break;
        }
    }
}
