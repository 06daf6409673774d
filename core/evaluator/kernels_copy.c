/* Copies, casts and joins: what moves elements and computes nothing. */
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_A_PART 100 /* that is assigned by itself */

/* ---- the input itself --------------------------------------------------------------------------------------------------- */

/* contiguous, detach, alias, cpu …: values are the same, and so is the storage where PyTorch may share it. */
static fb_status kernel_same(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    return fb_return_array(call, fb_array_keep(input), result);
}

static fb_status kernel_detach(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    return fb_return_array(call, fb_make_view(call, input, input->rank), result);
}

static fb_status kernel_contiguous(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    fb_memory_format format = fb_memory_format_of(call->graph, call->node);
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (format == FB_FORMAT_PRESERVE && !fb_array_is_contiguous(input))
        return fb_kernel_fail(call, "it cannot preserve the format");
    if (!fb_format_is_channels_last(format)) return fb_return_array(call, fb_make_contiguous(call, input), result);
    bool fits = fb_format_fits(input, format);
    return fb_return_array(call, fits ? fb_array_keep(input) : fb_make_cast(call, input, input->dtype), result);
}

static fb_status kernel_clone(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    return fb_return_array(call, fb_make_cast(call, input, input->dtype), result);
}

/* Dropout that is off. A functional dropout is on unless the call says otherwise, a module's as its flag says. */
static fb_status kernel_dropout(fb_kernel_call *call, fb_object *result) {
    bool training, train;
    double p;
    bool is_native = strstr(fb_op_facts_of(call->op)->parameters, "training") == NULL;
    if (!fb_argument_bool(call, "training", !is_native, &training) || !fb_argument_bool(call, "train", training, &train) ||
        !fb_argument_number(call, "p", 0.5, &p))
        return call->status;
    if (!(p >= 0 && p <= 1)) return fb_kernel_fail(call, "%g is not a probability", p);
    if (train && p != 0) return fb_kernel_unsupported(call, "dropout is on: it draws random numbers");
    if (call->op == FB_OP_FEATURE_DROPOUT && strstr(fb_call_spelling(call), "1d")) {
        fb_array *input;
        if (!fb_argument_array(call, "input", &input)) return call->status;
        if (input->rank != 2 && input->rank != 3) return fb_kernel_fail(call, "it takes two or three dimensions");
    }
    if (call->op == FB_OP_NATIVE_DROPOUT) return fb_kernel_unsupported(call, "its mask is not evaluated");
    return kernel_same(call, result);
}

/* Random numbers: only those that nothing reads, as of a layer that is dropped in training alone. */
static fb_status kernel_drawn(fb_kernel_call *call, fb_object *result) {
    (void)result;
    if (fb_user_first(call->graph, call->node)) return fb_kernel_unsupported(call, "it draws random numbers");
    call->read_args = call->read_kwargs = UINT64_MAX; /* none of them matters */
    return FB_OK;
}

/* ---- casts --------------------------------------------------------------------------------------------------------------- */

static fb_status cast(fb_kernel_call *call, fb_array *input, fb_dtype dtype, bool copies, fb_object *result) {
    fb_memory_format format = fb_memory_format_of(call->graph, call->node);
    bool is_told = format != FB_FORMAT_UNSAID && format != FB_FORMAT_PRESERVE;
    copies |= is_told && fb_format_is_channels_last(format) != fb_strides_suggest_channels_last(input);
    if (dtype == input->dtype && !copies) return fb_return_array(call, fb_array_keep(input), result);
    return fb_return_array(call, fb_make_cast(call, input, dtype), result);
}

/* "cuda:0" is one. */
static bool is_no_device(const fb_object *object) {
    static const char types[] = "cpu cuda mps xpu hpu xla meta ipu mtia maia vulkan privateuseone lazy hip ve fpga mkldnn";
    return object->kind == FB_OBJECT_STRING && !fb_has_word(types, object->text, strcspn(object->text, ":"));
}

/* to(dtype), to(device, dtype), to(other) and the ATen overloads: whichever argument is a dtype or a tensor. */
static fb_status kernel_to(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    bool copies;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_bool(call, "copy", call->op == FB_OP_TO_COPY, &copies))
        return call->status;
    fb_dtype dtype = input->dtype;
    const fb_value_row *args = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args);
    const fb_value_row *kwargs = fb_value_at(call->graph, fb_node_at(call->graph, call->node)->kwargs);
    fb_arguments_are_read(call);
    for (uint32_t i = 1; i < args->count + kwargs->count / 2; i++) {
        fb_object object;
        bool is_keyword = i >= args->count;
        const char *keyword = is_keyword ? fb_value_text(call->graph, kwargs->items[2 * (i - args->count)]) : "";
        if (is_keyword && strcmp(keyword, "dtype") != 0) continue;
        call->status =
            fb_evaluate_value(call->evaluator, is_keyword ? kwargs->items[2 * (i - args->count) + 1] : args->items[i], &object);
        if (call->status) return call->status;
        if (object.kind == FB_OBJECT_DTYPE) dtype = object.dtype;
        if (object.kind == FB_OBJECT_ARRAY && i == 1) dtype = object.array->dtype;
        bool is_number = object.kind == FB_OBJECT_INT || object.kind == FB_OBJECT_BOOL; /* a dtype by its number in c10 */
        bool is_unknown = (object.kind == FB_OBJECT_DTYPE && !object.dtype) ||
                          (is_number && (is_keyword || (i == 1 && fb_is_aten(call->graph, call->node))));
        bool is_wrong = !is_keyword && i == 1 && (object.kind == FB_OBJECT_BOOL || is_no_device(&object));
        fb_object_drop(&object);
        if (is_unknown) return fb_kernel_unsupported(call, "its dtype is not evaluated");
        if (is_wrong) return fb_kernel_fail(call, "it is given neither a dtype nor a device nor a tensor");
    }
    return cast(call, input, dtype, copies, result);
}

static fb_status kernel_type(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    const fb_object *dtype = fb_argument(call, "dtype");
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!dtype || dtype->kind != FB_OBJECT_DTYPE || !dtype->dtype)
        return fb_kernel_unsupported(call, "it is not given a dtype");
    return cast(call, input, dtype->dtype, false, result);
}

static fb_status kernel_type_as(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *other;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_array(call, "other", &other)) return call->status;
    return cast(call, input, other->dtype, false, result);
}

static fb_status kernel_cast(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        fb_dtype dtype;
    } casts[] = {{FB_OP_CAST_FLOAT, FB_FLOAT32},     {FB_OP_CAST_DOUBLE, FB_FLOAT64}, {FB_OP_CAST_HALF, FB_FLOAT16},
                 {FB_OP_CAST_BFLOAT16, FB_BFLOAT16}, {FB_OP_CAST_LONG, FB_INT64},     {FB_OP_CAST_INT, FB_INT32},
                 {FB_OP_CAST_BOOL, FB_BOOL}};
    size_t i = 0;
    while (casts[i].op != call->op) i++;
    fb_array *input;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (fb_value_at(call->graph, fb_node_at(call->graph, call->node)->args)->count > 1)
        return fb_kernel_fail(call, "it takes no other arguments by position");
    return cast(call, input, casts[i].dtype, false, result);
}

/* ---- joins --------------------------------------------------------------------------------------------------------------- */

static fb_dtype common_dtype(fb_array *const *arrays, size_t count) {
    fb_array all = {.rank = 1, .dtype = arrays[0]->dtype}, next = all; /* what counts of them for promotion */
    const fb_object both[2] = {{.kind = FB_OBJECT_ARRAY, .array = &all}, {.kind = FB_OBJECT_ARRAY, .array = &next}};
    for (size_t i = 1; i < count; i++) {
        next.dtype = arrays[i]->dtype;
        all.dtype = fb_promote_objects((const fb_object *const[]){&both[0], &both[1]}, 2);
    }
    return all.dtype;
}

/* PyTorch leaves out empty tensors of one dimension. */
static bool is_legacy_empty(const fb_array *array) {
    return array->rank == 1 && array->sizes[0] == 0;
}

static fb_array *join(fb_kernel_call *call, fb_array *const *arrays, size_t count, int64_t dim) {
    const fb_array *first = arrays[0];
    for (size_t i = 0; i < count && is_legacy_empty(first); i++) first = arrays[i];
    int64_t sizes[FB_MAX_RANK], limit = first->rank;
    if (is_legacy_empty(first)) dim = 0; /* nothing is joined, so any dimension is allowed */
    if (dim < -limit || dim >= limit) {
        fb_kernel_fail(call, "dimension %lld is out of range", (long long)dim);
        return NULL;
    }
    if (dim < 0) dim += limit;
    memcpy(sizes, first->sizes, sizeof sizes);
    sizes[dim] = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_legacy_empty(arrays[i])) continue;
        bool fits = arrays[i]->rank == first->rank;
        for (int d = 0; d < first->rank && fits; d++) fits = d == dim || arrays[i]->sizes[d] == sizes[d];
        if (!fits) {
            fb_kernel_fail(call, "the tensors that it joins have other sizes");
            return NULL;
        }
        sizes[dim] += arrays[i]->sizes[dim];
    }
    fb_dtype dtype = common_dtype(arrays, count);
    if (!dtype) {
        fb_kernel_unsupported(call, "the tensors that it joins have no common dtype");
        return NULL;
    }
    fb_array *out = fb_make_array(call, dtype, first->rank, sizes);
    fb_array *part = out ? fb_make_view(call, out, out->rank) : NULL;
    for (size_t i = 0; i < count && part && fb_kernel_goes_on(call, STEPS_OF_A_PART); i++) {
        if (is_legacy_empty(arrays[i])) continue;
        part->sizes[dim] = arrays[i]->sizes[dim];
        call->status = fb_array_assign(part, arrays[i], call->error);
        part->offset += arrays[i]->sizes[dim] * part->strides[dim];
    }
    fb_array_drop(part);
    return out;
}

static fb_status kernel_cat(fb_kernel_call *call, fb_object *result) {
    fb_array **arrays;
    size_t count;
    int64_t dim;
    if (!fb_argument_int(call, "dim", 0, &dim) || !fb_argument_arrays(call, "tensors", &arrays, &count)) return call->status;
    fb_array *out = count ? join(call, arrays, count, dim) : NULL;
    if (!count) fb_kernel_fail(call, "it joins nothing");
    free(arrays);
    return fb_return_array(call, out, result);
}

static fb_status kernel_stack(fb_kernel_call *call, fb_object *result) {
    fb_array **arrays;
    size_t count, made = 0;
    int64_t dim;
    if (!fb_argument_int(call, "dim", 0, &dim) || !fb_argument_arrays(call, "tensors", &arrays, &count)) return call->status;
    int rank = count ? arrays[0]->rank : 0;
    if (dim < 0) dim += rank + 1;
    if (!count || dim < 0 || dim > rank)
        fb_kernel_fail(call, "dimension %lld is out of range for the tensors stacked", (long long)dim);
    for (; made < count && fb_kernel_goes_on(call, STEPS_OF_A_PART); made++) {
        const fb_array *array = arrays[made];
        fb_array *view = fb_make_view(call, array, array->rank);
        if (!view) break;
        arrays[made] = view;
        if (array->rank != rank || !fb_array_insert_dim(view, (int)dim))
            fb_kernel_fail(call, "what it stacks has other dimensions");
    }
    fb_array *out = call->status ? NULL : join(call, arrays, count, dim);
    for (size_t i = 0; i < made; i++) fb_array_drop(arrays[i]);
    free(arrays);
    return fb_return_array(call, out, result);
}

/* repeat(times …): dimensions may be added in front. */
static fb_status kernel_repeat(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t times[FB_MAX_RANK], doubled[FB_MAX_RANK];
    int count;
    bool is_tile = call->op == FB_OP_TILE;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, is_tile ? "dims" : "repeats", times, &count))
        return call->status;
    for (; is_tile && count >= 0 && count < input->rank; count++) {
        memmove(times + 1, times, (size_t)count * sizeof *times);
        times[0] = 1;
    }
    if (count < input->rank || 2 * count > FB_MAX_RANK)
        return fb_kernel_unsupported(call, "it repeats %d of %d dimensions", count, input->rank);
    for (int i = 0; i < count; i++) {
        int at = i - (count - input->rank);
        if (times[i] < 0) return fb_kernel_fail(call, "%lld is not a number of times", (long long)times[i]);
        doubled[2 * i] = times[i];
        doubled[2 * i + 1] = at >= 0 ? input->sizes[at] : 1;
    }
    /* As (times, size, times, size …), of which the input is one part everywhere. */
    fb_array *out = fb_make_array(call, input->dtype, 2 * count, doubled),
             *from = out ? fb_make_view(call, input, 2 * count) : NULL;
    for (int i = 0; i < count && from; i++) {
        int at = i - (count - input->rank);
        from->sizes[2 * i] = 1;
        from->strides[2 * i] = 0;
        from->sizes[2 * i + 1] = at >= 0 ? input->sizes[at] : 1;
        from->strides[2 * i + 1] = at >= 0 ? input->strides[at] : 0;
    }
    if (from) call->status = fb_array_assign(out, from, call->error);
    fb_array_drop(from);
    if (out) {
        int64_t stride = 1;
        out->rank = count;
        for (int i = count - 1; i >= 0; i--) {
            out->sizes[i] = doubled[2 * i] * doubled[2 * i + 1];
            out->strides[i] = stride;
            if (out->sizes[i] > 1) stride *= out->sizes[i];
        }
    }
    return fb_return_array(call, out, result);
}

/* Elements of `input` along `dim` in the order that `index` (of `count` positions) gives. */
static fb_array *take_along(fb_kernel_call *call, const fb_array *input, int64_t dim, const int64_t *index, int64_t count) {
    int64_t sizes[FB_MAX_RANK];
    memcpy(sizes, input->sizes, sizeof sizes);
    sizes[dim] = count;
    fb_array *out = fb_make_array(call, input->dtype, input->rank, sizes);
    fb_array *from = out ? fb_make_view(call, input, input->rank) : NULL,
             *to = from ? fb_make_view(call, out, out->rank) : NULL;
    fb_kernel_takes(call, STEPS_OF_A_PART * (double)count);
    for (int64_t i = 0; i < count && to && fb_kernel_goes_on(call, STEPS_OF_A_PART); i++) {
        from->sizes[dim] = to->sizes[dim] = 1;
        from->offset = input->offset + index[i] * input->strides[dim];
        to->offset = out->offset + i * out->strides[dim];
        call->status = fb_array_assign(to, from, call->error);
    }
    fb_array_drop(from);
    fb_array_drop(to);
    return out;
}

/* The input as one dimension. */
static fb_array *flat_view(fb_kernel_call *call, fb_array *input) {
    fb_array *flat = fb_make_contiguous(call, input), *line = flat ? fb_make_view(call, flat, 1) : NULL;
    if (line) {
        line->sizes[0] = fb_array_count(input);
        line->strides[0] = 1;
    }
    fb_array_drop(flat);
    return line;
}

/* For each element of a dimension how often it comes: a number, or a tensor of one or `size` numbers. Its index is repeated as
 * often in *index. */
static bool repeated_index(fb_kernel_call *call, int64_t size, int64_t **index, int64_t *count) {
    const fb_object *repeats = fb_argument(call, "repeats");
    int64_t times = 0;
    const fb_array *each =
        repeats && repeats->kind == FB_OBJECT_ARRAY && fb_array_count(repeats->array) != 1 ? repeats->array : NULL;
    if (!repeats || (!each && !fb_object_int(repeats, &times)) || (each && each->held != FB_HELD_INT))
        return fb_kernel_unsupported(call, "its repeats are not ints") == FB_OK;
    if (each && (each->rank != 1 || each->sizes[0] != size))
        return fb_kernel_fail(call, "its repeats are not as many as the elements") == FB_OK;
    *count = 0;
    if (!fb_kernel_takes(call, 4 * (double)size)) return false;
    for (int64_t i = 0; i < size && fb_kernel_goes_on(call, 4); i++) {
        int64_t now = each ? fb_array_int(each, i) : times;
        if (now < 0) return fb_kernel_fail(call, "a number of repeats is negative") == FB_OK;
        if (__builtin_add_overflow(*count, now, count) || *count > INT32_MAX)
            return fb_kernel_unsupported(call, "it repeats too often") == FB_OK;
    }
    if (!each && times < 0) return fb_kernel_fail(call, "a number of repeats is negative") == FB_OK;
    fb_kernel_takes(call, (double)*count);
    *index = fb_make_workspace(call, *count, sizeof **index);
    for (int64_t i = 0, next = 0; i < size && *index && fb_kernel_goes_on(call, 4); i++)
        for (int64_t k = each ? fb_array_int(each, i) : times; k > 0 && fb_kernel_goes_on(call, 1); k--) (*index)[next++] = i;
    return !call->status;
}

static fb_status kernel_repeat_interleave(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *line = NULL, *out = NULL;
    int64_t dim = 0, *index = NULL, count = 0;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!fb_argument_is_given(call, "dim")) input = line = flat_view(call, input);
    else if (!input->rank) return fb_kernel_fail(call, "a tensor without dimensions has none that is repeated");
    else if (!fb_argument_axis(call, "dim", input->rank, &dim)) return call->status;
    if (input && repeated_index(call, input->sizes[dim], &index, &count)) out = take_along(call, input, dim, index, count);
    fb_free_workspace(call, index, count, sizeof *index);
    fb_array_drop(line);
    return fb_return_array(call, out, result);
}

static fb_array *reordered(fb_kernel_call *call, const fb_array *input, int64_t dim, bool rolls, int64_t shift) {
    int64_t size = input->sizes[dim], *index = fb_make_workspace(call, size, sizeof *index);
    for (int64_t i = 0; i < size && index && fb_work_at(fb_call_work(call), i, size); i++)
        index[i] = rolls ? ((i - shift % size) % size + size) % size : size - 1 - i;
    fb_array *out = index ? take_along(call, input, dim, index, size) : NULL;
    fb_free_workspace(call, index, size, sizeof *index);
    return out;
}

/* roll(shifts) without dimensions: all elements in a row. */
static fb_array *roll_all(fb_kernel_call *call, fb_array *input, int64_t shift) {
    fb_array *line = flat_view(call, input), *out = line ? reordered(call, line, 0, true, shift) : NULL;
    fb_array_drop(line);
    int64_t stride = 1;
    if (out) out->rank = input->rank;
    for (int i = input->rank; i-- > 0 && out; stride *= input->sizes[i] > 1 ? input->sizes[i] : 1) {
        out->sizes[i] = input->sizes[i];
        out->strides[i] = stride;
    }
    return out;
}

/* One dimension after another: rolled by its shift, or flipped (shifts NULL). */
static fb_status reorder(fb_kernel_call *call, fb_array *input, const int64_t *dims, const int64_t *shifts, int count,
                         fb_object *result) {
    uint64_t seen = 0;
    bool rolls = shifts != NULL;
    fb_array *now = fb_make_cast(call, input, input->dtype);
    for (int i = 0; i < count && now && !call->status; i++) {
        int rank = input->rank || rolls ? input->rank : 1; /* what has no dimensions can be flipped along its only one */
        int64_t dim = dims[i] < 0 ? dims[i] + rank : dims[i];
        if (dim < 0 || dim >= rank) fb_kernel_fail(call, "dimension %lld is out of range", (long long)dims[i]);
        else if (!rolls && seen >> dim & 1) fb_kernel_fail(call, "it flips a dimension twice");
        if (call->status) break;
        seen |= (uint64_t)1 << dim;
        if (!input->rank) continue;
        fb_array *next = reordered(call, now, dim, rolls, rolls ? shifts[i] : 0);
        fb_array_drop(now);
        now = next;
    }
    return fb_return_array(call, now, result);
}

/* flip(dims) and roll(shifts, dims) */
static fb_status kernel_reorder(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dims[FB_MAX_RANK], shifts[FB_MAX_RANK] = {0};
    int count, count_shifts = 0;
    bool rolls = call->op == FB_OP_ROLL;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "dims", dims, &count)) return call->status;
    if (rolls && !fb_argument_ints(call, "shifts", shifts, &count_shifts)) return call->status;
    if (rolls && count <= 0 && count_shifts == 1) return fb_return_array(call, roll_all(call, input, shifts[0]), result);
    if (count < 0 || (rolls && count != count_shifts)) return fb_kernel_fail(call, "it has not one shift for each dimension");
    return reorder(call, input, dims, rolls ? shifts : NULL, count, result);
}

/* fftshift and ifftshift (input, dim): rolls dimensions (all, when none is named) by half their size, rounded down or up. */
static fb_status kernel_shift_spectrum(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dims[FB_MAX_RANK], shifts[FB_MAX_RANK] = {0};
    int count;
    bool is_inverse = strstr(fb_call_spelling(call), "ifftshift") != NULL;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_ints(call, "dim", dims, &count)) return call->status;
    if (count < 0) {
        count = input->rank;
        for (int i = 0; i < count; i++) dims[i] = i;
    }
    for (int i = 0; i < count; i++) {
        int64_t dim = dims[i] < 0 ? dims[i] + input->rank : dims[i];
        if (dim >= 0 && dim < input->rank) shifts[i] = (input->sizes[dim] + is_inverse) / 2; /* others are refused below */
    }
    return reorder(call, input, dims, shifts, count, result);
}

/* Parts along a dimension. A tensor without dimensions is its own only part. */
static fb_status kernel_index_select(fb_kernel_call *call, fb_object *result) {
    fb_array *input, *index, *flat;
    int64_t dim;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_index(call, "index", &index) ||
        !fb_argument_axis(call, "dim", input->rank, &dim))
        return call->status;
    if (index->rank > 1 || (!input->rank && fb_array_count(index) != 1))
        return fb_kernel_fail(call, "its index is not a vector of ints");
    flat = fb_make_contiguous(call, index);
    int64_t count = fb_array_count(index);
    for (int64_t i = 0; i < count && flat && fb_work_at(fb_call_work(call), i, count); i++) {
        int64_t at = ((int64_t *)fb_array_data(flat))[i];
        int64_t size = input->rank ? input->sizes[dim] : 1;
        if (at < 0 || at >= size) {
            fb_kernel_fail(call, "index %lld is out of a size of %lld", (long long)at, (long long)size);
            break;
        }
    }
    fb_array *out = NULL;
    if (flat && !call->status)
        out = input->rank ? take_along(call, input, dim, fb_array_data(flat), count) : fb_make_cast(call, input, input->dtype);
    fb_array_drop(flat);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_copy[] = {
    FB_KERNEL_COMPLEX(IDENTITY, same),
    FB_KERNEL_COMPLEX(ALIAS, detach),
    FB_KERNEL_COMPLEX(DETACH, detach),
    FB_KERNEL_COMPLEX(DEVICE_COPY, same),
    FB_KERNEL_COMPLEX(LIFT_FRESH, same),
    FB_KERNEL_COMPLEX(REQUIRES_GRAD, same),
    FB_KERNEL_COMPLEX(CONTIGUOUS, contiguous),
    FB_KERNEL_COMPLEX(CLONE, clone),
    FB_KERNEL_COMPLEX(LIFT_FRESH_COPY, clone),
    FB_KERNEL_COMPLEX(DROPOUT, dropout),
    FB_KERNEL_COMPLEX(FEATURE_DROPOUT, dropout),
    FB_KERNEL_COMPLEX(ALPHA_DROPOUT, dropout),
    FB_KERNEL(RAND, drawn),
    FB_KERNEL(RAND_LIKE, drawn),
    FB_KERNEL(RANDINT, drawn),
    FB_KERNEL(RANDPERM, drawn),
    FB_KERNEL_COMPLEX(TO, to),
    FB_KERNEL_COMPLEX(TO_OTHER, to),
    FB_KERNEL_COMPLEX(TO_COPY, to),
    FB_KERNEL_COMPLEX(TYPE, type),
    FB_KERNEL_COMPLEX(TYPE_AS, type_as),
    FB_KERNEL(CAST_FLOAT, cast),
    FB_KERNEL(CAST_DOUBLE, cast),
    FB_KERNEL(CAST_HALF, cast),
    FB_KERNEL(CAST_BFLOAT16, cast),
    FB_KERNEL(CAST_LONG, cast),
    FB_KERNEL(CAST_INT, cast),
    FB_KERNEL(CAST_BOOL, cast),
    FB_KERNEL_COMPLEX(CAT, cat),
    FB_KERNEL_COMPLEX(STACK, stack),
    FB_KERNEL_COMPLEX(REPEAT, repeat),
    FB_KERNEL_COMPLEX(TILE, repeat),
    FB_KERNEL_COMPLEX(REPEAT_INTERLEAVE, repeat_interleave),
    FB_KERNEL_COMPLEX(FLIP, reorder),
    FB_KERNEL_COMPLEX(ROLL, reorder),
    FB_KERNEL_COMPLEX(FFT_SHIFT, shift_spectrum),
    FB_KERNEL_COMPLEX(INDEX_SELECT, index_select),
    FB_KERNELS_END,
};
