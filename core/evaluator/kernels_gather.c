/* gather and scatter: elements along a dimension by a tensor of indices. */
#include <string.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_A_PLACE 8
#define STEPS_OF_A_SLICE 200

/* Where element `at` of each of three arrays of one rank is: the whole's dimension `dim` is indexed by what `index` says. */
typedef struct cursor {
    const fb_array *whole, *index, *part; /* input (or result); indices; result (or source) */
    int64_t dim, at[FB_MAX_RANK];
} cursor;

/* Distances from the first elements, of the whole and the part. False: the call failed, the index is outside. */
static bool places(fb_kernel_call *call, const cursor *c, int64_t *of_whole, int64_t *of_part) {
    int64_t of_index = 0;
    *of_whole = *of_part = 0;
    for (int i = 0; i < c->index->rank; i++) {
        of_index += c->at[i] * c->index->strides[i];
        if (c->part) *of_part += c->at[i] * c->part->strides[i];
        if (i != c->dim) *of_whole += c->at[i] * c->whole->strides[i];
    }
    int64_t found = ((const int64_t *)fb_array_data(c->index))[of_index], size = c->whole->rank ? c->whole->sizes[c->dim] : 1;
    if (found < 0 || found >= size)
        return fb_kernel_fail(call, "index %lld is out of a size of %lld", (long long)found, (long long)size) == FB_OK;
    if (c->whole->rank) *of_whole += found * c->whole->strides[c->dim];
    return true;
}

static bool move_on(cursor *c) {
    for (int i = c->index->rank - 1; i >= 0; i--) {
        if (++c->at[i] < c->index->sizes[i]) return true;
        c->at[i] = 0;
    }
    return false;
}

/* True if the index has as many dimensions, and is not larger except along `dim`. */
static bool fits(const fb_array *index, const fb_array *in, int64_t dim) {
    bool is_single = index->rank + in->rank <= 1; /* one of one dimension may be paired with one of none */
    for (int i = 0; i < index->rank && index->rank == in->rank; i++)
        if (i != dim && index->sizes[i] > in->sizes[i]) return false;
    return index->rank == in->rank || is_single;
}

static bool open_gather(fb_kernel_call *call, fb_array **input, fb_array **index, int64_t *dim) {
    if (!fb_argument_array(call, "input", input) || !fb_argument_index(call, "index", index) ||
        !fb_argument_axis(call, "dim", (*input)->rank, dim))
        return false;
    if ((*input)->rank != (*index)->rank) return fb_kernel_unsupported(call, "input and index differ in dimensions") == FB_OK;
    return fb_kernel_takes(call, STEPS_OF_A_PLACE * (double)fb_array_count(*index));
}

static fb_status kernel_gather(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *index;
    int64_t dim;
    if (!open_gather(call, &input, &index, &dim)) return call->status;
    if (fb_array_count(index) && !fits(index, input, dim)) return fb_kernel_fail(call, "its index is larger than its input");
    fb_array *out = fb_make_array(call, input->dtype, index->rank, index->sizes);
    cursor c = {.whole = input, .index = index, .part = out, .dim = dim};
    size_t element = fb_held_size(input->held);
    for (bool more = out && fb_array_count(index); more && fb_kernel_goes_on(call, STEPS_OF_A_PLACE); more = move_on(&c)) {
        int64_t from, to;
        if (!places(call, &c, &from, &to)) break;
        memcpy((char *)fb_array_data(out) + (size_t)to * element, (char *)fb_array_data(input) + (size_t)from * element,
               element);
    }
    return fb_return_array(call, out, result);
}

static void put(const fb_array *to, int64_t at, const fb_array *from, int64_t of, bool adds) {
    switch (to->held) {
    case FB_HELD_INT: {
        uint64_t before = adds ? ((uint64_t *)fb_array_data(to))[at] : 0;
        ((uint64_t *)fb_array_data(to))[at] = before + ((uint64_t *)fb_array_data(from))[of];
        break;
    }
    case FB_HELD_BOOL: ((unsigned char *)fb_array_data(to))[at] = ((unsigned char *)fb_array_data(from))[of]; break;
    default: fb_array_put(to, at, (adds ? fb_array_get(to, at) : 0) + fb_array_get(from, of));
    }
}

/* scatter(dim, index, src or value) and scatter_add; later elements win. */
static fb_status kernel_scatter(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *index, *source = NULL;
    int64_t dim;
    bool adds = call->op == FB_OP_SCATTER_ADD;
    if (!open_gather(call, &input, &index, &dim)) return call->status;
    if (!adds && fb_argument_is_given(call, "reduce")) return fb_kernel_unsupported(call, "it reduces");
    const fb_object *from = fb_argument(call, "src");
    if (!from || from->kind == FB_OBJECT_NONE) from = fb_argument(call, "value");
    double number = 0;
    if (from && from->kind == FB_OBJECT_ARRAY) source = fb_array_keep(from->array);
    else if (!adds && from && fb_object_number(from, &number)) source = fb_make_array(call, input->dtype, 0, NULL);
    else return fb_kernel_unsupported(call, "it has no source");
    bool is_number = source && from->kind != FB_OBJECT_ARRAY;
    if (is_number) fb_array_fill(source, number, from->kind == FB_OBJECT_INT ? from->integer : (int64_t)number);
    if (is_number) fb_array_round(source);
    bool has_elements = fb_array_count(index) > 0;
    if (source && source->dtype != input->dtype) fb_kernel_fail(call, "its source has another dtype");
    else if (source && has_elements && (!fits(index, input, dim) || (!is_number && !fits(index, source, -1))))
        fb_kernel_fail(call, "its index is larger than its input or source");
    if (source && adds && input->held == FB_HELD_BOOL) fb_kernel_unsupported(call, "it adds bools");
    fb_array *out = source ? fb_make_cast(call, input, input->dtype) : NULL;
    cursor c = {.whole = out, .index = index, .part = is_number ? NULL : source, .dim = dim};
    for (bool more = out && has_elements; more && fb_kernel_goes_on(call, STEPS_OF_A_PLACE); more = move_on(&c)) {
        int64_t to, of;
        if (!places(call, &c, &to, &of)) break;
        put(out, to, source, of, adds);
    }
    fb_array_drop(source);
    return fb_return_array(call, out, result);
}

/* slice += alpha × source, in the dtype: rounded after the product and after the sum, as torch does. */
static void add_slice(const fb_array *to, const fb_array *from, double alpha, int64_t whole) {
    fb_walk walk;
    for (fb_walk_begin(&walk, to, from, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            int64_t t = i * walk.strides[0], f = i * walk.strides[1];
            switch (to->held) {
            case FB_HELD_INT: ((uint64_t *)walk.data[0])[t] += (uint64_t)whole * ((const uint64_t *)walk.data[1])[f]; break;
            case FB_HELD_FLOAT:
                ((float *)walk.data[0])[t] +=
                    alpha == 1 ? ((const float *)walk.data[1])[f] : (float)alpha * ((const float *)walk.data[1])[f];
                break;
            default: ((double *)walk.data[0])[t] += alpha * ((const double *)walk.data[1])[f];
            }
        }
    }
    fb_array_round(to);
}

/* index_add(dim, index, source): slice by slice, in the order of the index. */
static fb_status kernel_index_add(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *index, *source;
    int64_t dim;
    double alpha;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_index(call, "index", &index) ||
        !fb_argument_array(call, "source", &source) || !fb_argument_axis(call, "dim", input->rank, &dim) ||
        !fb_argument_number(call, "alpha", 1, &alpha))
        return call->status;
    if (!input->rank || index->rank > 1 || source->rank != input->rank)
        return fb_kernel_unsupported(call, "it is evaluated for tensors with dimensions, and an index of one at most");
    if (input->held == FB_HELD_BOOL) return fb_kernel_unsupported(call, "it adds bools");
    if (alpha != 1 && (input->dtype == FB_FLOAT16 || input->dtype == FB_BFLOAT16))
        return fb_kernel_unsupported(call, "its alpha is not 1, in half precision");
    if (source->dtype != input->dtype) return fb_kernel_fail(call, "its source has another dtype");
    int64_t count = fb_array_count(index);
    bool is_right = source->sizes[dim] == count;
    for (int i = 0; i < input->rank; i++) is_right &= i == dim || source->sizes[i] == input->sizes[i];
    if (!is_right) return fb_kernel_fail(call, "its source does not fit its input and index");
    fb_kernel_takes(call, STEPS_OF_A_SLICE * (double)count);
    fb_array *out = fb_make_cast(call, input, input->dtype);
    for (int64_t i = 0; i < count && out && fb_kernel_goes_on(call, STEPS_OF_A_SLICE); i++) {
        int64_t at = fb_array_int(index, i);
        if (at < 0 || at >= input->sizes[dim]) {
            fb_kernel_fail(call, "index %lld is out of a size of %lld", (long long)at, (long long)input->sizes[dim]);
            break;
        }
        fb_array *to = fb_make_view(call, out, out->rank), *from = to ? fb_make_view(call, source, source->rank) : NULL;
        if (from) {
            fb_array_slice(to, (int)dim, at, at + 1, 1);
            fb_array_slice(from, (int)dim, i, i + 1, 1);
            add_slice(to, from, alpha, (int64_t)alpha);
        }
        fb_array_drop(from);
        fb_array_drop(to);
    }
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_gather[] = {
    FB_KERNEL(GATHER, gather),
    FB_KERNEL(SCATTER, scatter),
    FB_KERNEL(SCATTER_ADD, scatter),
    FB_KERNEL(INDEX_ADD, index_add),
    FB_KERNELS_END,
};
