/* Views: other sizes and strides over the same storage; reshape copies where no strides do. */
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"

/* ---- view and reshape ---------------------------------------------------------------------------------------------------- */

/* Strides with which the elements of `array`, in order, have those sizes. False: there are none. As PyTorch's computeStride:
 * dimensions of the array that continue each other form blocks; each is divided among sizes. */
static bool view_strides(const fb_array *array, int rank, const int64_t *sizes, int64_t *strides) {
    if (fb_array_count(array) == 0) {
        int64_t stride = 1;
        for (int i = rank - 1; i >= 0; i--) {
            strides[i] = stride;
            if (sizes[i] > 1) stride *= sizes[i];
        }
        return true;
    }
    int next = rank - 1;
    int64_t base = array->rank ? array->strides[array->rank - 1] : 1, in_block = 1, taken = 1;
    for (int d = array->rank - 1; d >= 0; d--) {
        in_block *= array->sizes[d];
        bool ends = d == 0 || (array->sizes[d - 1] != 1 && array->strides[d - 1] != in_block * base);
        if (!ends) continue;
        while (next >= 0 && (taken < in_block || sizes[next] == 1)) {
            strides[next] = taken * base;
            taken *= sizes[next--];
        }
        if (taken != in_block) return false;
        if (d > 0) {
            base = array->strides[d - 1];
            in_block = taken = 1;
        }
    }
    for (; next >= 0; next--) { /* of size 1, before everything */
        if (sizes[next] != 1) return false;
        strides[next] = taken * base;
    }
    return true;
}

/* One -1 among the sizes is what is left. */
static bool complete_sizes(fb_kernel_call *call, int64_t count, int rank, int64_t *sizes) {
    int64_t known = 1;
    int open = -1;
    for (int i = 0; i < rank; i++) {
        if (sizes[i] == -1 && open < 0) open = i;
        else if (sizes[i] < 0 || __builtin_mul_overflow(known, sizes[i], &known))
            return fb_kernel_fail(call, "%lld is not a size", (long long)sizes[i]) == FB_OK;
    }
    if (open >= 0 && known > 0 && count % known == 0) sizes[open] = count / known;
    else if (open >= 0 || known != count)
        return fb_kernel_fail(call, "%lld elements do not have that shape", (long long)count) == FB_OK;
    return true;
}

static fb_array *view_as(fb_kernel_call *call, fb_array *array, int rank, const int64_t *sizes, bool may_copy) {
    int64_t strides[FB_MAX_RANK];
    call->status = fb_array_check_sizes(rank, sizes, call->error);
    if (call->status) return NULL;
    bool is_view = view_strides(array, rank, sizes, strides);
    if (!is_view && !may_copy) {
        fb_kernel_fail(call, "no view of these strides has that shape");
        return NULL;
    }
    fb_array *from = is_view ? fb_array_keep(array) : fb_make_cast(call, array, array->dtype);
    fb_array *view = from ? fb_make_view(call, from, rank) : NULL;
    if (view) {
        if (!is_view) view_strides(from, rank, sizes, strides);
        memcpy(view->sizes, sizes, (size_t)rank * sizeof *sizes);
        memcpy(view->strides, strides, (size_t)rank * sizeof *strides);
    }
    fb_array_drop(from);
    return view;
}

static fb_status kernel_view(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t sizes[FB_MAX_RANK];
    int rank;
    bool is_reshape = call->op == FB_OP_RESHAPE;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    const fb_object *first = fb_argument(call, is_reshape ? "shape" : "size");
    if (first && first->kind == FB_OBJECT_DTYPE) return fb_kernel_unsupported(call, "it takes the bytes for another dtype");
    if (!fb_argument_ints(call, is_reshape ? "shape" : "size", sizes, &rank)) return call->status;
    if (rank < 0) return fb_kernel_unsupported(call, "it has no shape");
    if (!complete_sizes(call, fb_array_count(input), rank, sizes)) return call->status;
    return fb_return_array(call, view_as(call, input, rank, sizes, call->op != FB_OP_VIEW), result);
}

static fb_status kernel_view_as(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *other;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "other", &other)) return call->status;
    if (fb_array_count(input) != fb_array_count(other))
        return fb_kernel_fail(call, "the tensors have other numbers of elements");
    bool may_copy = fb_call_is_spelled(call, "reshape_as");
    return fb_return_array(call, view_as(call, input, other->rank, other->sizes, may_copy), result);
}

static fb_status kernel_flatten(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    bool is_module = fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE; /* Flatten() keeps the batch */
    int64_t first, last, sizes[FB_MAX_RANK], joined = 1;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "start_dim", is_module, &first) ||
        !fb_argument_int(call, "end_dim", -1, &last))
        return call->status;
    int64_t limit = input->rank ? input->rank : 1;
    if (first < 0) first += limit;
    if (last < 0) last += limit;
    if (first < 0 || last >= limit || first > last) return fb_kernel_fail(call, "the tensor has no such dimensions");
    int rank = 0;
    for (int i = 0; i < input->rank; i++) {
        if (i >= first && i <= last) joined *= input->sizes[i];
        if (i < first || i > last) sizes[rank++] = input->sizes[i];
        if (i == last) sizes[rank++] = joined;
    }
    if (!input->rank) sizes[rank++] = 1;
    return fb_return_array(call, view_as(call, input, rank, sizes, true), result);
}

static fb_status kernel_unflatten(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, parts[FB_MAX_RANK], sizes[FB_MAX_RANK];
    int count;
    bool is_module = fb_node_at(call->graph, call->node)->opcode == FB_CALL_MODULE;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_axis(call, "dim", input->rank, &dim) ||
        !fb_argument_ints(call, is_module ? "unflattened_size" : "sizes", parts, &count))
        return call->status;
    if (count < 0 || input->rank - 1 + count > FB_MAX_RANK || !input->rank)
        return fb_kernel_unsupported(call, "it has no sizes");
    if (!complete_sizes(call, input->sizes[dim], count, parts)) return call->status;
    int rank = 0;
    for (int i = 0; i < input->rank; i++) {
        if (i != dim) sizes[rank++] = input->sizes[i];
        for (int k = 0; i == dim && k < count; k++) sizes[rank++] = parts[k];
    }
    return fb_return_array(call, view_as(call, input, rank, sizes, true), result);
}

/* ---- exchanged dimensions ----------------------------------------------------------------------------------------------- */

static fb_array *permuted(fb_kernel_call *call, const fb_array *array, const int64_t *dims) {
    fb_array *view = fb_make_view(call, array, array->rank);
    for (int i = 0; i < array->rank && view; i++) {
        view->sizes[i] = array->sizes[dims[i]];
        view->strides[i] = array->strides[dims[i]];
    }
    return view;
}

static bool normalise(fb_kernel_call *call, int64_t *dim, int rank) {
    int64_t limit = rank ? rank : 1;
    if (*dim < -limit || *dim >= limit) return fb_kernel_fail(call, "dimension %lld is out of range", (long long)*dim) == FB_OK;
    if (*dim < 0) *dim += limit;
    return true;
}

static fb_status kernel_permute(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dims[FB_MAX_RANK];
    int count;
    uint64_t seen = 0;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "dims", dims, &count)) return call->status;
    if (count != input->rank) return fb_kernel_fail(call, "it names %d of %d dimensions", count, input->rank);
    for (int i = 0; i < count; i++) {
        if (!normalise(call, &dims[i], input->rank)) return call->status;
        seen |= (uint64_t)1 << dims[i];
    }
    if (seen != ((uint64_t)1 << count) - 1) return fb_kernel_fail(call, "it names a dimension twice");
    return fb_return_array(call, permuted(call, input, dims), result);
}

/* transpose, t, T, mT, adjoint … of real tensors. */
static fb_status kernel_transpose(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dims[FB_MAX_RANK], first = 0, second = 1;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    for (int i = 0; i < input->rank; i++) dims[i] = i;
    if (call->op == FB_OP_TRANSPOSE) {
        if (!fb_argument_axis(call, "dim0", input->rank, &first) || !fb_argument_axis(call, "dim1", input->rank, &second))
            return call->status;
    } else if (call->op == FB_OP_T) {
        if (input->rank > 2) return fb_kernel_fail(call, "t() takes two dimensions at most");
    } else {
        bool reverses = fb_call_is_spelled(call, "numpy_T");
        if (!reverses && input->rank == 1) return fb_kernel_fail(call, "it takes matrices"); /* a single number stays */
        for (int i = 0; i < input->rank && reverses; i++) dims[i] = input->rank - 1 - i;
        first = reverses ? 0 : input->rank - 2;
        second = reverses ? 0 : input->rank - 1;
    }
    if (input->rank > 1 && first != second) {
        dims[first] = second;
        dims[second] = first;
    }
    return fb_return_array(call, permuted(call, input, dims), result);
}

static fb_status kernel_movedim(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t from[FB_MAX_RANK], to[FB_MAX_RANK], dims[FB_MAX_RANK];
    int count, count_to;
    bool is_moved[FB_MAX_RANK] = {false}, is_taken[FB_MAX_RANK] = {false};
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "source", from, &count) ||
        !fb_argument_ints(call, "destination", to, &count_to))
        return call->status;
    if (count < 0 || count != count_to) return fb_kernel_fail(call, "source and destination are not as many");
    for (int i = 0; i < count; i++) {
        if (!normalise(call, &from[i], input->rank) || !normalise(call, &to[i], input->rank)) return call->status;
        if (is_moved[from[i]] || is_taken[to[i]]) return fb_kernel_fail(call, "it names a dimension twice");
        is_moved[from[i]] = is_taken[to[i]] = true;
        dims[to[i]] = from[i];
    }
    for (int i = 0, next = 0; i < input->rank; i++) {
        if (is_taken[i]) continue;
        while (is_moved[next]) next++;
        dims[i] = next++;
    }
    return fb_return_array(call, permuted(call, input, dims), result);
}

/* ---- dimensions of size 1 ----------------------------------------------------------------------------------------------- */

static fb_status kernel_unsqueeze(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_axis(call, "dim", input->rank + 1, &dim)) return call->status;
    fb_array *view = fb_make_view(call, input, input->rank);
    if (view && !fb_array_insert_dim(view, (int)dim)) fb_kernel_unsupported(call, "it has too many dimensions");
    else if (view) view->strides[dim] = dim < input->rank ? input->sizes[dim] * input->strides[dim] : 1;
    return fb_return_array(call, view, result);
}

static fb_status kernel_squeeze(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dims[FB_MAX_RANK];
    int count;
    uint64_t chosen = 0;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "dim", dims, &count)) return call->status;
    for (int i = 0; i < count; i++) {
        if (!normalise(call, &dims[i], input->rank)) return call->status;
        if (chosen >> dims[i] & 1) return fb_kernel_fail(call, "it names a dimension twice");
        chosen |= (uint64_t)1 << dims[i];
    }
    fb_array *view = fb_make_view(call, input, input->rank);
    if (!view) return call->status;
    view->rank = 0;
    for (int i = 0; i < input->rank; i++) {
        if (input->sizes[i] == 1 && (count < 0 || chosen >> i & 1)) continue;
        view->sizes[view->rank] = input->sizes[i];
        view->strides[view->rank++] = input->strides[i];
    }
    return fb_return_array(call, view, result);
}

/* expand, expand_as: -1 keeps a size. */
static fb_status kernel_expand(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *other, *view = NULL;
    int64_t sizes[FB_MAX_RANK];
    int rank;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (call->op == FB_OP_EXPAND_AS) {
        if (!fb_argument_array(call, "other", &other)) return call->status;
        rank = other->rank;
        memcpy(sizes, other->sizes, sizeof sizes);
    } else if (!fb_argument_ints(call, "size", sizes, &rank)) {
        return call->status;
    }
    for (int i = input->rank - fb_array_hidden_rank(input); i < input->rank && call->op == FB_OP_EXPAND; i++) {
        if (rank == FB_MAX_RANK) return fb_kernel_unsupported(call, "it has too many dimensions");
        sizes[rank++] = input->sizes[i];
    }
    for (int i = 0; i < rank; i++) {
        int at = i - (rank - input->rank);
        if (sizes[i] == -1 && at >= 0) sizes[i] = input->sizes[at];
        if (sizes[i] < 0) return fb_kernel_fail(call, "%lld is not a size", (long long)sizes[i]);
    }
    call->status = fb_array_broadcast(input, rank, sizes, &view, call->error);
    return call->status ? call->status : fb_return_array(call, view, result);
}

/* ---- parts --------------------------------------------------------------------------------------------------------------- */

static fb_array *part_of(fb_kernel_call *call, const fb_array *array, int64_t dim, int64_t start, int64_t size, int64_t step) {
    fb_array *view = fb_make_view(call, array, array->rank);
    if (!view) return NULL;
    view->offset += start * array->strides[dim];
    view->sizes[dim] = size;
    if (size > 1) view->strides[dim] *= step; /* and so step is less than the size was */
    return view;
}

/* The part at one index, without the dimension. */
static fb_array *element_of(fb_kernel_call *call, const fb_array *array, int64_t dim, int64_t index) {
    fb_array *view = part_of(call, array, dim, index, 1, 1);
    if (view) fb_array_remove_dim(view, (int)dim);
    return view;
}

static bool axis_of_some(fb_kernel_call *call, const fb_array *array, int64_t *dim) {
    if (!array->rank) return fb_kernel_fail(call, "a tensor without dimensions has no parts") == FB_OK;
    return fb_argument_int(call, "dim", 0, dim) && normalise(call, dim, array->rank);
}

static fb_status kernel_select(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, index;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim) ||
        !fb_argument_int(call, "index", 0, &index))
        return call->status;
    int64_t size = input->sizes[dim];
    if (index < -size || index >= size)
        return fb_kernel_fail(call, "index %lld is out of a size of %lld", (long long)index, (long long)size);
    return fb_return_array(call, element_of(call, input, dim, index < 0 ? index + size : index), result);
}

static fb_status kernel_slice(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, start, end, step;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim) ||
        !fb_argument_int(call, "start", 0, &start) || !fb_argument_int(call, "end", INT64_MAX, &end) ||
        !fb_argument_int(call, "step", 1, &step))
        return call->status;
    int64_t stride;
    if (step <= 0) return fb_kernel_fail(call, "its step is not positive");
    if (step > INT64_MAX - input->sizes[dim] || __builtin_mul_overflow(input->strides[dim], step, &stride))
        return fb_kernel_fail(call, "its step is too large");
    start = fb_clip_index(start, input->sizes[dim]);
    end = fb_clip_index(end, input->sizes[dim]);
    return fb_return_array(call, part_of(call, input, dim, start, end > start ? (end - start - 1) / step + 1 : 0, step),
                           result);
}

static fb_status kernel_narrow(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, start, length;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim) ||
        !fb_argument_int(call, "start", 0, &start) || !fb_argument_int(call, "length", 0, &length))
        return call->status;
    int64_t size = input->sizes[dim];
    if (start < 0) start += size;
    if (start < 0 || length < 0 || start > size || length > size - start)
        return fb_kernel_fail(call, "the part is not within the tensor");
    return fb_return_array(call, part_of(call, input, dim, start, length, 1), result);
}

#define STEPS_OF_A_PART 100

static bool begin_parts(fb_kernel_call *call, size_t count, fb_object *result) {
    if (!fb_kernel_takes(call, STEPS_OF_A_PART * (double)count)) return false;
    if (count > FB_OBJECT_COUNT)
        call->status = fb_fail(call->error, FB_TOO_LARGE, "evaluation-too-large", NULL, "%s (%s) gives %zu tensors",
                               fb_node_name(call->graph, call->node), fb_node_target(call->graph, call->node), count);
    else call->status = fb_object_sequence(FB_OBJECT_TUPLE, count, result, call->error);
    return !call->status;
}

/* Parts of these sizes, one after another, as a tuple. */
static fb_status split(fb_kernel_call *call, const fb_array *input, int64_t dim, const int64_t *sizes, size_t count,
                       int64_t all, fb_object *result) {
    int64_t start = 0;
    if (!begin_parts(call, count, result)) return call->status;
    for (size_t i = 0; i < count && fb_kernel_goes_on(call, STEPS_OF_A_PART); i++) {
        int64_t left = input->sizes[dim] - start, size = sizes ? sizes[i] : all < left ? all : left;
        fb_return_array(call, part_of(call, input, dim, start, size, 1), &result->items->objects[i]);
        start += size;
    }
    return call->status;
}

/* Into that many parts, the first ones larger by one; or at these indices, which slice. A method's keywords and a tensor of
 * indices are not known. */
static fb_status tensor_split(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, bounds[FB_MAX_RANK], parts;
    int count;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim)) return call->status;
    const fb_object *given = fb_argument(call, "split_sizes");
    if (!given || given->kind == FB_OBJECT_NONE || given->kind == FB_OBJECT_ARRAY)
        return fb_kernel_unsupported(call, "it is not given numbers");
    if (!fb_argument_ints(call, "split_sizes", bounds, &count)) return call->status;
    bool has_bounds = fb_object_is_sequence(given);
    int64_t size = input->sizes[dim];
    parts = has_bounds ? count + 1 : bounds[0];
    if (parts <= 0) return fb_kernel_fail(call, "%lld is not a number of parts", (long long)parts);
    if (!begin_parts(call, (size_t)parts, result)) return call->status;
    for (int64_t i = 0, start = 0; i < parts && fb_kernel_goes_on(call, STEPS_OF_A_PART); i++) {
        int64_t stop = !has_bounds ? start + size / parts + (i < size % parts)
                       : i < count ? fb_clip_index(bounds[i], size)
                                   : size;
        fb_return_array(call, part_of(call, input, dim, start, stop > start ? stop - start : 0, 1), &result->items->objects[i]);
        start = stop;
    }
    return call->status;
}

static fb_status kernel_split(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, sizes[FB_MAX_RANK], sum = 0;
    int count;
    const char *name = call->op == FB_OP_SPLIT ? "split_size_or_sections" : "split_sizes";
    if (fb_call_is_spelled(call, "tensor_split")) return tensor_split(call, result);
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim)) return call->status;
    const fb_object *parts = fb_argument(call, name);
    if (!parts) parts = fb_argument(call, "split_size"); /* the method's keyword */
    if (!parts) return fb_kernel_unsupported(call, "it has no sizes");
    int64_t size = input->sizes[dim], each;
    if (!fb_object_is_sequence(parts)) {
        if (!fb_object_int(parts, &each)) return fb_kernel_unsupported(call, "its size is not an int");
        if (each < 0 || (!each && size)) return fb_kernel_fail(call, "its size is %lld", (long long)each);
        return split(call, input, dim, NULL, size ? (size_t)((size - 1) / each + 1) : 1, each, result);
    }
    count = (int)parts->items->count;
    if (parts->items->count > FB_MAX_RANK) return fb_kernel_unsupported(call, "it has more than %d parts", FB_MAX_RANK);
    for (int i = 0; i < count; i++) {
        if (!fb_object_int(&parts->items->objects[i], &sizes[i]) || sizes[i] < 0)
            return fb_kernel_fail(call, "a size is negative");
        if (__builtin_add_overflow(sum, sizes[i], &sum)) break; /* more than any dimension has */
    }
    if (sum != size) return fb_kernel_fail(call, "the parts do not make up the dimension");
    return split(call, input, dim, sizes, (size_t)count, 0, result);
}

static fb_status kernel_chunk(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, chunks;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim) ||
        !fb_argument_int(call, "chunks", 0, &chunks))
        return call->status;
    int64_t size = input->sizes[dim];
    if (chunks <= 0 || chunks > INT64_MAX - size)
        return fb_kernel_fail(call, "%lld is not a number of chunks", (long long)chunks);
    if (!size) return split(call, input, dim, NULL, (size_t)(chunks < 10000 ? chunks : 10000), 0, result);
    int64_t each = (size - 1) / chunks + 1;
    return split(call, input, dim, NULL, (size_t)((size - 1) / each + 1), each, result);
}

static fb_status kernel_unbind(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    if (!fb_argument_array(call, "input", &input) || !axis_of_some(call, input, &dim)) return call->status;
    size_t count = (size_t)input->sizes[dim];
    if (!begin_parts(call, count, result)) return call->status;
    for (size_t k = 0; k < count && fb_kernel_goes_on(call, STEPS_OF_A_PART); k++) {
        fb_return_array(call, element_of(call, input, dim, (int64_t)k), &result->items->objects[k]);
    }
    return call->status;
}

/* Windows of `size` along a dimension, every `step`; the positions within a window are the last dimension. */
static fb_status kernel_unfold(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, size, step;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_axis(call, "dimension", input->rank, &dim) ||
        !fb_argument_int(call, "size", 0, &size) || !fb_argument_int(call, "step", 1, &step))
        return call->status;
    int64_t there = input->rank ? input->sizes[dim] : 1;
    if (size < 0 || size > there || step < 1) return fb_kernel_fail(call, "its windows do not fit");
    fb_array *view = fb_make_view(call, input, input->rank);
    if (!view || !fb_array_insert_dim(view, input->rank)) {
        fb_array_drop(view);
        return fb_kernel_unsupported(call, "it has too many dimensions");
    }
    view->sizes[input->rank] = size;
    view->strides[input->rank] = input->rank ? input->strides[dim] : 1;
    if (input->rank) {
        view->sizes[dim] = (there - size) / step + 1;
        if (view->sizes[dim] > 1) view->strides[dim] *= step;
    }
    return fb_return_array(call, view, result);
}

static fb_status kernel_diagonal(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t offset, rows, columns;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "offset", 0, &offset) ||
        !fb_argument_int(call, "dim1", 0, &rows) || !fb_argument_int(call, "dim2", 1, &columns) ||
        !normalise(call, &rows, input->rank) || !normalise(call, &columns, input->rank))
        return call->status;
    if (rows == columns) return fb_kernel_fail(call, "its dimensions are the same");
    if (offset < -input->sizes[rows]) offset = -input->sizes[rows]; /* beyond it there is nothing either */
    if (offset > input->sizes[columns]) offset = input->sizes[columns];
    int64_t below = offset < 0 ? -offset : 0, right = offset > 0 ? offset : 0;
    int64_t height = input->sizes[rows] - below, width = input->sizes[columns] - right;
    int64_t size = height < width ? height : width, stride = input->strides[rows] + input->strides[columns];
    fb_array *view = fb_make_view(call, input, input->rank);
    if (!view) return call->status;
    if (size > 0) view->offset += below * input->strides[rows] + right * input->strides[columns];
    fb_array_remove_dim(view, (int)(rows > columns ? rows : columns));
    fb_array_remove_dim(view, (int)(rows > columns ? columns : rows));
    view->sizes[view->rank] = size > 0 ? size : 0;
    view->strides[view->rank++] = stride;
    return fb_return_array(call, view, result);
}

/* ---- several tensors ----------------------------------------------------------------------------------------------------- */

static fb_status kernel_broadcast_tensors(fb_kernel_call *call, fb_object *result) {
    fb_array **inputs;
    size_t count;
    int64_t sizes[FB_MAX_RANK];
    int rank = 0;
    if (!fb_argument_arrays(call, "tensors", &inputs, &count)) return call->status;
    for (size_t k = 0; k < count && !call->status; k++)
        if (!fb_array_join_sizes(inputs[k], &rank, sizes)) fb_kernel_fail(call, "their sizes do not broadcast");
    bool has_parts = !call->status && begin_parts(call, count, result);
    for (size_t k = 0; has_parts && k < count && fb_kernel_goes_on(call, STEPS_OF_A_PART); k++) {
        fb_array *view = NULL;
        call->status = fb_array_broadcast(inputs[k], rank, sizes, &view, call->error);
        fb_return_array(call, view, &result->items->objects[k]);
    }
    free(inputs);
    return call->status;
}

/* Vector k varies along dimension k of result k, and with indexing="xy" the first two change places. */
static fb_array *grid_of(fb_kernel_call *call, fb_array *const *vectors, size_t count, size_t k, bool is_xy) {
    fb_array *view = fb_make_view(call, vectors[k], (int)count);
    for (size_t i = 0; view && i < count; i++) {
        const fb_array *vector = vectors[i];
        size_t at = is_xy && i < 2 ? 1 - i : i;
        view->sizes[at] = vector->rank ? vector->sizes[0] : 1;
        view->strides[at] = i == k && vector->rank ? vector->strides[0] : 0;
    }
    return view;
}

static fb_status kernel_meshgrid(fb_kernel_call *call, fb_object *result) {
    fb_array **vectors;
    size_t count;
    const char *indexing = "ij";
    fb_value given = fb_node_kwarg(call->graph, call->node, "indexing"); /* behind *tensors: by keyword alone */
    bool is_given = given.id && fb_value_kind(call->graph, given) != FB_NONE;
    if (is_given && !fb_argument_text(call, "indexing", &indexing)) return call->status;
    if (!fb_argument_arrays(call, "tensors", &vectors, &count)) return call->status;
    bool is_xy = strcmp(indexing, "xy") == 0;
    if (!is_xy && strcmp(indexing, "ij") != 0) fb_kernel_fail(call, "its indexing is neither \"ij\" nor \"xy\"");
    else if (count < 1 || count > FB_MAX_RANK) fb_kernel_fail(call, "it takes 1 to %d tensors", FB_MAX_RANK);
    for (size_t k = 0; k < count && !call->status; k++)
        if (vectors[k]->rank > 1 || vectors[k]->dtype != vectors[0]->dtype)
            fb_kernel_fail(call, "it takes tensors of one dtype with at most one dimension");
    bool has_parts = !call->status && begin_parts(call, count, result);
    for (size_t k = 0; has_parts && k < count && fb_kernel_goes_on(call, STEPS_OF_A_PART); k++)
        fb_return_array(call, grid_of(call, vectors, count, k, is_xy && count > 1), &result->items->objects[k]);
    free(vectors);
    return call->status;
}

const fb_kernel_row fb_kernels_view[] = {
    FB_KERNEL_COMPLEX(VIEW, view),
    FB_KERNEL_COMPLEX(UNSAFE_VIEW, view),
    FB_KERNEL_COMPLEX(RESHAPE, view),
    FB_KERNEL_COMPLEX(VIEW_AS, view_as),
    FB_KERNEL_COMPLEX(FLATTEN, flatten),
    FB_KERNEL_COMPLEX(RAVEL, flatten),
    FB_KERNEL_COMPLEX(UNFLATTEN, unflatten),
    FB_KERNEL_COMPLEX(PERMUTE, permute),
    FB_KERNEL_COMPLEX(TRANSPOSE, transpose),
    FB_KERNEL_COMPLEX(T, transpose),
    FB_KERNEL_COMPLEX(NUMPY_T, transpose),
    FB_KERNEL_COMPLEX(ADJOINT, transpose),
    FB_KERNEL_COMPLEX(MOVEDIM, movedim),
    FB_KERNEL_COMPLEX(UNSQUEEZE, unsqueeze),
    FB_KERNEL_COMPLEX(SQUEEZE, squeeze),
    FB_KERNEL_COMPLEX(EXPAND, expand),
    FB_KERNEL_COMPLEX(EXPAND_AS, expand),
    FB_KERNEL_COMPLEX(SELECT, select),
    FB_KERNEL_COMPLEX(SLICE, slice),
    FB_KERNEL_COMPLEX(NARROW, narrow),
    FB_KERNEL_COMPLEX(SPLIT, split),
    FB_KERNEL_COMPLEX(SPLIT_WITH_SIZES, split),
    FB_KERNEL_COMPLEX(CHUNK, chunk),
    FB_KERNEL_COMPLEX(UNBIND, unbind),
    FB_KERNEL_COMPLEX(BROADCAST_TENSORS, broadcast_tensors),
    FB_KERNEL_COMPLEX(MESHGRID, meshgrid),
    FB_KERNEL_COMPLEX(UNFOLD, unfold),
    FB_KERNEL_COMPLEX(DIAGONAL, diagonal),
    FB_KERNELS_END,
};
