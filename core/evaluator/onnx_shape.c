/* ONNX's movements of elements: shapes, parts, indices. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

/* ---- shapes ------------------------------------------------------------------------------------------------------------- */

static fb_array *op_reshape(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t sizes[FB_MAX_RANK], rest = 1;
    int count = onnx_in_ints(op, 1, sizes), free_at = -1;
    bool allows_zero = onnx_int(op, "allowzero", 0);
    if (!x || !onnx_ok(op)) return NULL;
    if (count < 0) return onnx_fail(op, "it has no shape");
    bool has_zero = false;
    for (int i = 0; i < count; i++) {
        if (sizes[i] == 0 && !allows_zero) {
            if (i >= x->rank) return onnx_fail(op, "it copies a size that its input lacks");
            sizes[i] = x->sizes[i];
        }
        if (sizes[i] == -1 && free_at < 0) free_at = i;
        else if (sizes[i] < 0) return onnx_fail(op, "its shape has a negative size");
        else if (__builtin_mul_overflow(rest, sizes[i], &rest)) return onnx_fail(op, "its shape is too large");
        has_zero |= sizes[i] == 0;
    }
    if (free_at >= 0 && allows_zero && has_zero) return onnx_fail(op, "its shape has both a 0 and a -1");
    if (free_at >= 0) sizes[free_at] = rest ? fb_array_count(x) / rest : 0;
    if (free_at >= 0 && rest * sizes[free_at] != fb_array_count(x)) return onnx_fail(op, "the sizes do not fit its elements");
    return onnx_reshape(op, x, count, sizes);
}

static fb_array *op_flatten(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t axis = onnx_int(op, "axis", 1), sizes[2] = {1, 1};
    if (!x || !onnx_ok(op)) return NULL;
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis > x->rank) return onnx_fail(op, "its axis is not one");
    for (int i = 0; i < x->rank; i++) sizes[i >= axis] *= x->sizes[i];
    return onnx_reshape(op, x, 2, sizes);
}

/* Axes: an attribute, or from version 13 on an input. */
static int read_axes(onnx_op *op, int64_t axes[FB_MAX_RANK]) {
    return op->version < 13 ? onnx_ints(op, "axes", axes) : onnx_in_ints(op, 1, axes);
}

static fb_array *op_squeeze(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t axes[FB_MAX_RANK], sizes[FB_MAX_RANK];
    int count = read_axes(op, axes), rank = 0;
    bool goes[FB_MAX_RANK] = {0};
    if (!x || !onnx_ok(op)) return NULL;
    for (int i = 0; i < count; i++) goes[onnx_axis_of(op, axes[i], x->rank)] = true;
    for (int i = 0; i < x->rank && onnx_ok(op); i++) {
        if (count < 0) goes[i] = x->sizes[i] == 1;
        if (goes[i] && x->sizes[i] != 1) return onnx_fail(op, "it takes away a size that is not 1");
        if (!goes[i]) sizes[rank++] = x->sizes[i];
    }
    return onnx_ok(op) ? onnx_reshape(op, x, rank, sizes) : NULL;
}

static fb_array *op_unsqueeze(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t axes[FB_MAX_RANK], sizes[FB_MAX_RANK];
    int count = read_axes(op, axes), at = 0;
    bool is_new[FB_MAX_RANK] = {0};
    if (!x || !onnx_ok(op)) return NULL;
    if (count < 0 || x->rank + count > FB_MAX_RANK) return onnx_fail(op, "it has no axes, or too many");
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis_of(op, axes[i], x->rank + count);
        if (is_new[axis]) return onnx_fail(op, "an axis is there twice");
        is_new[axis] = true;
    }
    for (int i = 0; i < x->rank + count; i++) sizes[i] = is_new[i] ? 1 : x->sizes[at++];
    return onnx_ok(op) ? onnx_reshape(op, x, x->rank + count, sizes) : NULL;
}

static fb_array *op_transpose(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t perm[FB_MAX_RANK];
    int axes[FB_MAX_RANK], count = onnx_ints(op, "perm", perm);
    bool seen[FB_MAX_RANK] = {0};
    if (!x || !onnx_ok(op)) return NULL;
    if (count >= 0 && count != x->rank) return onnx_fail(op, "its perm has another length");
    for (int i = 0; i < x->rank; i++) {
        axes[i] = count < 0 ? x->rank - 1 - i : onnx_axis_of(op, perm[i], x->rank);
        if (seen[axes[i]]) return onnx_fail(op, "an axis is there twice");
        seen[axes[i]] = true;
    }
    return onnx_permute(op, x, axes);
}

static fb_array *op_expand(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t shape[FB_MAX_RANK], sizes[FB_MAX_RANK];
    int count = onnx_in_ints(op, 1, shape);
    if (!x || !onnx_ok(op)) return NULL;
    if (count < 0) return onnx_fail(op, "it has no shape");
    int rank = count > x->rank ? count : x->rank;
    for (int i = 0; i < rank; i++) {
        int64_t own = i - (rank - x->rank) < 0 ? 1 : x->sizes[i - (rank - x->rank)];
        int64_t wanted = i - (rank - count) < 0 ? 1 : shape[i - (rank - count)];
        if (wanted < 0 || (own != wanted && own != 1 && wanted != 1)) return onnx_fail(op, "its sizes do not broadcast");
        sizes[i] = own == 1 ? wanted : own;
    }
    fb_array *view = NULL;
    op->call->status = fb_array_broadcast(x, rank, sizes, &view, op->call->error);
    return onnx_keep(op, view);
}

static fb_array *op_shape(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    if (!x) return NULL;
    int64_t start = onnx_int(op, "start", 0), end = onnx_int(op, "end", x->rank);
    start = fb_clip_index(start, x->rank);
    end = fb_clip_index(end, x->rank);
    return onnx_of_ints(op, x->sizes + start, end > start ? (int)(end - start) : 0);
}

static fb_array *op_size(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *made = x ? onnx_new(op, FB_INT64, 0, NULL) : NULL;
    if (made) onnx_put_int(made, 0, fb_array_count(x));
    return made;
}

/* ---- new ones ----------------------------------------------------------------------------------------------------------- */

static fb_array *op_constant(onnx_op *op) {
    int64_t ints[FB_MAX_RANK];
    double floats[FB_MAX_RANK];
    if (onnx_has_attribute(op, "value")) return onnx_tensor(op, "value");
    if (onnx_has_attribute(op, "value_int")) {
        fb_array *made = onnx_new(op, FB_INT64, 0, NULL);
        if (made) onnx_put_int(made, 0, onnx_int(op, "value_int", 0));
        return made;
    }
    if (onnx_has_attribute(op, "value_float")) return onnx_scalar(op, onnx_float(op, "value_float", 0), FB_FLOAT32);
    if (onnx_has_attribute(op, "value_ints")) {
        int count = onnx_ints(op, "value_ints", ints);
        return onnx_ok(op) ? onnx_of_ints(op, ints, count) : NULL;
    }
    if (onnx_has_attribute(op, "value_floats")) {
        int64_t count = onnx_floats(op, "value_floats", floats);
        fb_array *made = onnx_ok(op) ? onnx_new(op, FB_FLOAT32, 1, &count) : NULL;
        for (int64_t i = 0; made && i < count; i++) onnx_put(made, i, floats[i]);
        return made;
    }
    return onnx_refuse(op, "its value is of a kind that is not evaluated");
}

static fb_array *op_constant_of_shape(onnx_op *op) {
    int64_t sizes[FB_MAX_RANK];
    int count = onnx_in_ints(op, 0, sizes);
    fb_array *value = onnx_tensor(op, "value");
    if (!onnx_ok(op)) return NULL;
    if (value && fb_array_count(value) != 1) return onnx_fail(op, "its value is not one element");
    for (int i = 0; i < count; i++)
        if (sizes[i] < 0) return onnx_fail(op, "a size is negative");
    fb_array *made = onnx_new(op, value ? value->dtype : FB_FLOAT32, count < 0 ? 0 : count, sizes);
    if (made && value) fb_array_fill(made, fb_array_number(value, 0), value->held == FB_HELD_INT ? fb_array_int(value, 0) : 0);
    else if (made) fb_array_fill(made, 0, 0);
    return made;
}

static fb_array *op_range(onnx_op *op) {
    fb_array *start = onnx_in(op, 0), *limit = onnx_in(op, 1), *delta = onnx_in(op, 2);
    onnx_ignore(op, "stash_type");
    if (!start || !limit || !delta) return NULL;
    if (fb_array_count(start) != 1 || fb_array_count(limit) != 1 || fb_array_count(delta) != 1)
        return onnx_fail(op, "its inputs are not numbers");
    if (start->held == FB_HELD_INT) {
        int64_t a = fb_array_int(start, 0), b = fb_array_int(limit, 0), step = fb_array_int(delta, 0);
        if (!step || a < -((int64_t)1 << 62) || a > (int64_t)1 << 62 || b < -((int64_t)1 << 62) || b > (int64_t)1 << 62 ||
            step == INT64_MIN)
            return onnx_fail(op, "its step is 0, or a bound is too large");
        int64_t away = step > 0 ? b - a : a - b, each = step > 0 ? step : -step, count = away > 0 ? (away - 1) / each + 1 : 0;
        fb_array *made = onnx_new(op, start->dtype, 1, &count);
        for (int64_t i = 0; made && i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
            onnx_put_int(made, i, a + i * step);
        return made;
    }
    double a = fb_array_number(start, 0), b = fb_array_number(limit, 0), step = fb_array_number(delta, 0),
           all = ceil((b - a) / step);
    if (!(all <= 1e15)) return onnx_fail(op, "its step is 0, or a bound is too large");
    bool is_single = start->dtype == FB_FLOAT32;
    if (is_single && ((double)ceilf((float)(b - a) / (float)step) != all || ceil((double)(float)(b - a) / step) != all))
        return onnx_undefined(op, "how many numbers there are depends on how its quotient is rounded");
    int64_t count = all > 0 ? (int64_t)all : 0;
    fb_array *made = onnx_new(op, start->dtype, 1, &count);
    for (int64_t i = 0; made && i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        onnx_put(made, i, a + (double)i * step);
    if (made) fb_array_round(made);
    return made;
}

static fb_array *op_eye_like(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t k = onnx_int(op, "k", 0), number = onnx_int(op, "dtype", 0);
    if (!x || !onnx_ok(op)) return NULL;
    fb_dtype dtype = number ? onnx_dtype(op, number) : x->dtype;
    if (x->rank != 2) return onnx_fail(op, "it is not a matrix");
    fb_array *made = dtype ? onnx_new(op, dtype, 2, x->sizes) : NULL;
    if (made) fb_array_fill(made, 0, 0);
    for (int64_t i = 0; made && i < x->sizes[0] && onnx_goes_on(op, 1); i++)
        if (i + k >= 0 && i + k < x->sizes[1]) onnx_put(made, i * x->sizes[1] + i + k, 1);
    return made;
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

static fb_array *op_concat(onnx_op *op) {
    fb_array *items[ONNX_RESULTS];
    size_t count = onnx_in_count(op);
    if (!count || count > ONNX_RESULTS) return onnx_refuse(op, "it has too many inputs");
    for (size_t i = 0; i < count; i++) {
        items[i] = onnx_in(op, i);
        if (!items[i]) return NULL;
        if (items[i]->dtype != items[0]->dtype || items[i]->rank != items[0]->rank)
            return onnx_fail(op, "its inputs do not fit");
    }
    int axis = onnx_axis(op, "axis", 1, items[0]);
    return onnx_ok(op) ? onnx_join(op, items, count, axis) : NULL;
}

static fb_array *op_split(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int axis = onnx_axis(op, "axis", 0, x);
    int64_t sizes[FB_MAX_RANK], at = 0;
    int given = op->version < 13 ? onnx_ints(op, "split", sizes) : onnx_in_ints(op, 1, sizes);
    int64_t parts = onnx_int(op, "num_outputs", (int64_t)op->wanted);
    if (!x || !onnx_ok(op)) return NULL;
    if (!x->rank) return onnx_fail(op, "it has no dimension");
    int64_t all = x->sizes[axis];
    if (given >= 0) parts = given;
    if (parts < 1 || parts > ONNX_RESULTS || (size_t)parts < op->wanted) return onnx_refuse(op, "its results are not so many");
    if (given < 0 && op->version < 18 && all % parts) return onnx_fail(op, "its size is not a multiple of the parts");
    int64_t each = (all + parts - 1) / parts;
    for (int64_t i = 0; i < parts; i++) {
        int64_t size = given >= 0 ? sizes[i] : i < parts - 1 ? each : all - at;
        if (size < 0 || size > all - at) return onnx_fail(op, "its parts do not fit");
        op->results[i] = onnx_cut(op, x, axis, at, at + size);
        at += size;
    }
    if (at != all) return onnx_fail(op, "its parts do not fit");
    return op->results[0];
}

/* Elements start, start + step … of an axis. */
static fb_array *slice_axis(onnx_op *op, fb_array *x, int axis, int64_t start, int64_t end, int64_t step) {
    int64_t size = x->sizes[axis], count;
    if (!step) return onnx_fail(op, "a step is 0");
    if (size && step < 0 && (start < -size || end == INT32_MAX || end == INT64_MAX))
        return onnx_undefined(op,
                              "backwards, a start before the first element and the largest integer as an end are not defined");
    if (start < 0) start = start < -size ? (step > 0 ? 0 : -1) : start + size;
    if (end < 0) end = end < -size ? (step > 0 ? 0 : -1) : end + size;
    if (step > 0) {
        start = start > size ? size : start;
        end = end > size ? size : end;
        count = end > start ? (end - start - 1) / step + 1 : 0;
    } else {
        start = start > size - 1 ? size - 1 : start;
        end = end > size - 1 ? size - 1 : end;
        count = start > end ? (int64_t)((uint64_t)(start - end - 1) / (0 - (uint64_t)step)) + 1 : 0;
    }
    if (step > 0) {
        fb_array *view = onnx_cut(op, x, axis, 0, size);
        if (view)
            fb_array_slice(view, axis, start, count ? start + (count - 1) * step + 1 : start,
                           step > size + 1 ? size + 1 : step);
        return view;
    }
    fb_array *index = onnx_new(op, FB_INT64, 1, &count);
    for (int64_t i = 0; index && i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        onnx_put_int(index, i, start + (i ? i * step : 0));
    return index ? ONNX_PART(INDEX_SELECT, "index_select", ONNX_A("input", x), ONNX_I("dim", axis), ONNX_A("index", index))
                 : NULL;
}

static fb_array *op_slice(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t starts[FB_MAX_RANK], ends[FB_MAX_RANK], axes[FB_MAX_RANK], steps[FB_MAX_RANK];
    bool is_old = op->version < 10, seen[FB_MAX_RANK] = {0};
    int count = is_old ? onnx_ints(op, "starts", starts) : onnx_in_ints(op, 1, starts);
    int end_count = is_old ? onnx_ints(op, "ends", ends) : onnx_in_ints(op, 2, ends);
    int axis_count = is_old ? onnx_ints(op, "axes", axes) : onnx_in_ints(op, 3, axes);
    int step_count = is_old ? -1 : onnx_in_ints(op, 4, steps);
    if (!x || !onnx_ok(op)) return NULL;
    if (count < 0 || end_count != count || (axis_count >= 0 && axis_count != count) || (step_count >= 0 && step_count != count))
        return onnx_fail(op, "its bounds do not fit");
    for (int i = 0; i < count && x; i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        if (!onnx_ok(op)) return NULL;
        if (seen[axis]) return onnx_fail(op, "an axis is there twice");
        seen[axis] = true;
        x = slice_axis(op, x, axis, starts[i], ends[i], step_count < 0 ? 1 : steps[i]);
    }
    return x;
}

static fb_array *op_tile(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t times[FB_MAX_RANK];
    int count = onnx_in_ints(op, 1, times);
    if (!x || !onnx_ok(op)) return NULL;
    if (count != x->rank) return onnx_fail(op, "it has another number of repeats");
    return ONNX_PART(TILE, "tile", ONNX_A("input", x), ONNX_O("dims", onnx_list(op, times, count)));
}

/* ---- padding ------------------------------------------------------------------------------------------------------------ */

/* Where the element at `at` of a padded axis comes from; -1: from nowhere. */
static int64_t source_of(int64_t at, int64_t size, const char *mode) {
    if (at >= 0 && at < size) return at;
    if (strcmp(mode, "constant") == 0) return -1;
    if (strcmp(mode, "edge") == 0) return at < 0 ? 0 : size - 1;
    if (strcmp(mode, "wrap") == 0) return ((at % size) + size) % size;
    if (size == 1) return 0;
    int64_t period = 2 * (size - 1), within = ((at % period) + period) % period;
    return within < size ? within : period - within;
}

/* Each axis gets elements before and behind; or loses some. */
static fb_array *pad(onnx_op *op, fb_array *x, const int64_t *before, const int64_t *after, const char *mode, fb_array *value) {
    int64_t sizes[FB_MAX_RANK], index[FB_MAX_RANK] = {0}, strides[FB_MAX_RANK];
    x = onnx_rows(op, x);
    if (!x) return NULL;
    for (int i = 0; i < x->rank; i++) {
        if (before[i] < -INT32_MAX || before[i] > INT32_MAX || after[i] < -INT32_MAX || after[i] > INT32_MAX)
            return onnx_refuse(op, "its padding is beyond 32 bits");
        sizes[i] = x->sizes[i] + before[i] + after[i];
        if (sizes[i] < 0) return onnx_fail(op, "it takes away more than there is");
        bool is_constant = strcmp(mode, "constant") == 0;
        if (!is_constant && !x->sizes[i] && sizes[i]) return onnx_fail(op, "it repeats an axis that is empty");
        if (strcmp(mode, "reflect") == 0 && (before[i] >= x->sizes[i] || after[i] >= x->sizes[i]) && sizes[i])
            return onnx_refuse(op, "it reflects more than there is");
    }
    fb_array *made = onnx_new(op, x->dtype, x->rank, sizes);
    if (!made || !onnx_takes(op, 10 * (double)fb_array_count(made))) return NULL;
    strides[x->rank ? x->rank - 1 : 0] = 1;
    for (int i = x->rank - 2; i >= 0; i--) strides[i] = strides[i + 1] * x->sizes[i + 1];
    for (int64_t k = 0, count = fb_array_count(made); k < count && fb_work_at(fb_call_work(op->call), k, count); k++) {
        int64_t from = 0;
        for (int i = 0; i < x->rank && from >= 0; i++) {
            int64_t source = source_of(index[i] - before[i], x->sizes[i], mode);
            from = source < 0 ? -1 : from + source * strides[i];
        }
        if (x->held == FB_HELD_INT || x->held == FB_HELD_BOOL)
            onnx_put_int(made, k, from < 0 ? (value ? onnx_get_int(value, 0) : 0) : onnx_get_int(x, from));
        else onnx_put(made, k, from < 0 ? (value ? onnx_get(value, 0) : 0) : onnx_get(x, from));
        for (int i = x->rank - 1; i >= 0 && ++index[i] == sizes[i]; i--) index[i] = 0;
    }
    return made;
}

static fb_array *op_pad(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *value = NULL;
    int64_t pads[FB_MAX_RANK], axes[FB_MAX_RANK], before[FB_MAX_RANK] = {0}, after[FB_MAX_RANK] = {0};
    const char *mode = onnx_text(op, "mode", "constant");
    int count = op->version < 11 ? onnx_ints(op, "pads", pads) : onnx_in_ints(op, 1, pads), axis_count = -1;
    if (!x || !onnx_ok(op)) return NULL;
    if (op->version < 11) {
        if (onnx_has_attribute(op, "value")) value = onnx_scalar(op, onnx_float(op, "value", 0), x->dtype);
    } else {
        value = onnx_maybe(op, 2);
    }
    if (op->version >= 18) axis_count = onnx_in_ints(op, 3, axes);
    int each = axis_count < 0 ? x->rank : axis_count;
    if (!onnx_ok(op)) return NULL;
    if (count != 2 * each) return onnx_fail(op, "its padding is not two numbers for each axis");
    if (value && (value->dtype != x->dtype || fb_array_count(value) != 1)) return onnx_fail(op, "its value does not fit");
    for (int i = 0; i < each; i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        before[axis] += pads[i];
        after[axis] += pads[each + i];
    }
    static const char *const modes[] = {"constant", "reflect", "edge", "wrap"};
    bool is_known = false;
    for (size_t i = 0; i < 4; i++) is_known |= strcmp(mode, modes[i]) == 0;
    if (!is_known || (op->version < 19 && strcmp(mode, "wrap") == 0)) return onnx_refuse(op, "its mode is %s", mode);
    return onnx_ok(op) ? pad(op, x, before, after, mode, value ? onnx_rows(op, value) : NULL) : NULL;
}

static fb_array *op_center_crop_pad(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t shape[FB_MAX_RANK], axes[FB_MAX_RANK], before[FB_MAX_RANK] = {0}, after[FB_MAX_RANK] = {0};
    int count = onnx_in_ints(op, 1, shape), axis_count = onnx_ints(op, "axes", axes);
    if (!x || !onnx_ok(op)) return NULL;
    if (count != (axis_count < 0 ? x->rank : axis_count)) return onnx_fail(op, "its shape does not fit");
    for (int i = 0; i < count; i++) {
        int axis = onnx_axis_of(op, axis_count < 0 ? i : axes[i], x->rank);
        int64_t more = shape[i] - onnx_size(x, axis), fewer = -more;
        if (shape[i] < 0) return onnx_fail(op, "a size is negative");
        before[axis] = more >= 0 ? more / 2 : -(fewer / 2);
        after[axis] = more - before[axis];
    }
    return onnx_ok(op) ? pad(op, x, before, after, "constant", NULL) : NULL;
}

/* ---- indices ------------------------------------------------------------------------------------------------------------ */

/* Indices as int64, from 0 on, row by row. */
static fb_array *indices_of(onnx_op *op, fb_array *given, int64_t size) {
    if (!given || !onnx_ok(op)) return NULL;
    if (given->held != FB_HELD_INT) return onnx_fail(op, "its indices are not integers");
    fb_array *rows = onnx_rows(op, given), *made = onnx_new(op, FB_INT64, given->rank, given->sizes);
    for (int64_t i = 0, count = made ? fb_array_count(made) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count);
         i++) {
        int64_t index = onnx_get_int(rows, i);
        if (index < -size || index >= size)
            return onnx_fail(op, "the index %lld is beyond the size %lld", (long long)index, (long long)size);
        onnx_put_int(made, i, index < 0 ? index + size : index);
    }
    return made;
}

static fb_array *op_gather(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *given = onnx_in(op, 1);
    int axis = onnx_axis(op, "axis", 0, x), rank = 0;
    int64_t sizes[2 * FB_MAX_RANK], flat;
    if (!x || !given || !onnx_ok(op)) return NULL;
    if (!x->rank || x->rank - 1 + given->rank > FB_MAX_RANK) return onnx_fail(op, "its dimensions do not fit");
    fb_array *index = indices_of(op, given, x->sizes[axis]);
    if (!index) return NULL;
    flat = fb_array_count(index);
    for (int i = 0; i < axis; i++) sizes[rank++] = x->sizes[i];
    for (int i = 0; i < given->rank; i++) sizes[rank++] = given->sizes[i];
    for (int i = axis + 1; i < x->rank; i++) sizes[rank++] = x->sizes[i];
    fb_array *made = ONNX_PART(INDEX_SELECT, "index_select", ONNX_A("input", x), ONNX_I("dim", axis),
                               ONNX_A("index", onnx_reshape(op, index, 1, &flat)));
    return onnx_reshape(op, made, rank, sizes);
}

static fb_array *op_gather_elements(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *given = onnx_in(op, 1);
    int axis = onnx_axis(op, "axis", 0, x);
    if (!x || !given || !onnx_ok(op)) return NULL;
    if (x->rank != given->rank || !x->rank) return onnx_fail(op, "its dimensions do not fit");
    fb_array *index = indices_of(op, given, x->sizes[axis]);
    return index ? ONNX_PART(GATHER, "gather", ONNX_A("input", x), ONNX_I("dim", axis), ONNX_A("index", index)) : NULL;
}

static void copy_one(const fb_array *to, int64_t at, const fb_array *from, int64_t source) {
    size_t size = fb_held_size(to->held);
    memcpy((char *)fb_array_data(to) + (size_t)at * size, (const char *)fb_array_data(from) + (size_t)source * size, size);
}

/* The first element of the slice that a row of indices names: `depth` of them, behind `batch` dimensions. -1: it has failed. */
static int64_t place_of(onnx_op *op, const fb_array *x, const fb_array *index, int64_t row, int64_t depth, int batch,
                        int64_t outer) {
    int64_t at = outer;
    for (int64_t k = 0; k < depth; k++) {
        int64_t size = x->sizes[batch + k], one = onnx_get_int(index, row * depth + k);
        if (one < -size || one >= size) {
            onnx_fail(op, "the index %lld is beyond the size %lld", (long long)one, (long long)size);
            return -1;
        }
        at = at * size + (one < 0 ? one + size : one);
    }
    return at;
}

static fb_array *op_gather_nd(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0)), *index = onnx_rows(op, onnx_in(op, 1));
    int64_t batch = onnx_int(op, "batch_dims", 0), sizes[2 * FB_MAX_RANK], slice = 1, rows = 1, groups = 1;
    int rank = 0;
    if (!x || !index || !onnx_ok(op)) return NULL;
    if (index->rank < 1 || index->held != FB_HELD_INT) return onnx_fail(op, "its indices are not integers");
    int64_t depth = index->sizes[index->rank - 1];
    if (batch < 0 || batch >= index->rank || batch + depth > x->rank) return onnx_fail(op, "its dimensions do not fit");
    for (int i = 0; i < index->rank - 1; i++) sizes[rank++] = index->sizes[i], rows *= index->sizes[i];
    for (int i = (int)(batch + depth); i < x->rank; i++) sizes[rank++] = x->sizes[i], slice *= x->sizes[i];
    for (int i = 0; i < batch; i++) {
        if (x->sizes[i] != index->sizes[i]) return onnx_fail(op, "its dimensions do not fit");
        groups *= x->sizes[i];
    }
    if (rank > FB_MAX_RANK) return onnx_fail(op, "its result has too many dimensions");
    fb_array *made = onnx_new(op, x->dtype, rank, sizes);
    if (!made || !onnx_takes(op, (double)rows * (double)(10 * depth + slice))) return NULL;
    for (int64_t row = 0; row < rows && onnx_goes_on(op, 10 * depth + slice); row++) {
        int64_t from = place_of(op, x, index, row, depth, (int)batch, groups ? row / (rows / groups) : 0);
        for (int64_t k = 0; k < slice && from >= 0; k++) copy_one(made, row * slice + k, x, from * slice + k);
    }
    return onnx_ok(op) ? made : NULL;
}

typedef enum combination { REPLACE, ADD, MULTIPLY, LARGEST, SMALLEST, UNKNOWN } combination;

static combination read_combination(onnx_op *op) {
    static const char *const names[] = {"none", "add", "mul", "max", "min"};
    const char *name = onnx_text(op, "reduction", "none");
    for (int i = 0; i < UNKNOWN; i++)
        if (strcmp(name, names[i]) == 0) return (combination)i;
    onnx_refuse(op, "its reduction is %s", name);
    return UNKNOWN;
}

/* Writes one element, combined with the one that is there. */
static void combine(combination how, const fb_array *to, int64_t at, const fb_array *from, int64_t source) {
    if (how == REPLACE) {
        copy_one(to, at, from, source);
    } else if (to->held == FB_HELD_INT || to->held == FB_HELD_BOOL) {
        int64_t a = onnx_get_int(to, at), b = onnx_get_int(from, source);
        onnx_put_int(to, at,
                     how == ADD        ? (int64_t)((uint64_t)a + (uint64_t)b)
                     : how == MULTIPLY ? (int64_t)((uint64_t)a * (uint64_t)b)
                     : how == LARGEST  ? (a > b ? a : b)
                     : a < b           ? a
                                       : b);
    } else {
        double a = onnx_get(to, at), b = onnx_get(from, source);
        onnx_put(to, at,
                 how == ADD        ? a + b
                 : how == MULTIPLY ? a * b
                 : a != a          ? a
                 : b != b          ? b
                 : how == LARGEST  ? fmax(a, b)
                                   : fmin(a, b));
    }
}

static fb_array *copy_of(onnx_op *op, fb_array *x) {
    fb_array *made = x ? onnx_new(op, x->dtype, x->rank, x->sizes) : NULL;
    if (made) op->call->status = fb_array_assign(made, x, op->call->error);
    return onnx_ok(op) ? made : NULL;
}

static fb_array *op_scatter_elements(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *given = onnx_in(op, 1), *updates = onnx_rows(op, onnx_in(op, 2));
    int axis = onnx_axis(op, "axis", 0, x);
    combination how = op->version < 16 ? REPLACE : read_combination(op);
    int64_t at[FB_MAX_RANK] = {0};
    if (!x || !given || !updates || !onnx_ok(op)) return NULL;
    bool fits = x->rank == given->rank && given->rank == updates->rank && x->dtype == updates->dtype && x->rank;
    for (int i = 0; i < x->rank && fits; i++)
        fits = given->sizes[i] == updates->sizes[i] && (i == axis || given->sizes[i] <= x->sizes[i]);
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    fb_array *index = indices_of(op, given, x->sizes[axis]), *made = copy_of(op, x);
    if (!index || !made || !onnx_takes(op, 10 * (double)fb_array_count(index))) return NULL;
    for (int64_t k = 0, count = fb_array_count(index); k < count && fb_work_at(fb_call_work(op->call), k, count); k++) {
        int64_t to = 0;
        for (int i = 0; i < x->rank; i++) to = to * x->sizes[i] + (i == axis ? onnx_get_int(index, k) : at[i]);
        combine(how, made, to, updates, k);
        for (int i = x->rank - 1; i >= 0 && ++at[i] == index->sizes[i]; i--) at[i] = 0;
    }
    fb_array_round(made);
    return made;
}

static fb_array *op_scatter_nd(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *index = onnx_rows(op, onnx_in(op, 1)), *updates = onnx_rows(op, onnx_in(op, 2));
    combination how = op->version < 16 ? REPLACE : read_combination(op);
    if (!x || !index || !updates || !onnx_ok(op)) return NULL;
    if (index->rank < 1 || index->held != FB_HELD_INT || x->dtype != updates->dtype)
        return onnx_fail(op, "its inputs do not fit");
    int64_t depth = index->sizes[index->rank - 1], slice = 1, rows = 1;
    if (depth > x->rank || updates->rank != index->rank - 1 + x->rank - depth) return onnx_fail(op, "its inputs do not fit");
    for (int i = 0; i < index->rank - 1; i++) {
        if (updates->sizes[i] != index->sizes[i]) return onnx_fail(op, "its inputs do not fit");
        rows *= index->sizes[i];
    }
    for (int i = (int)depth; i < x->rank; i++) {
        if (updates->sizes[index->rank - 1 + i - depth] != x->sizes[i]) return onnx_fail(op, "its inputs do not fit");
        slice *= x->sizes[i];
    }
    fb_array *made = copy_of(op, x);
    if (!made || !onnx_takes(op, (double)rows * (double)(10 * depth + slice))) return NULL;
    for (int64_t row = 0; row < rows && onnx_goes_on(op, 10 * depth + slice); row++) {
        int64_t to = place_of(op, x, index, row, depth, 0, 0);
        for (int64_t k = 0; k < slice && to >= 0; k++) combine(how, made, to * slice + k, updates, row * slice + k);
    }
    if (onnx_ok(op)) fb_array_round(made);
    return onnx_ok(op) ? made : NULL;
}

static fb_array *op_one_hot(onnx_op *op) {
    fb_array *given = onnx_rows(op, onnx_in(op, 0)), *deep = onnx_in(op, 1), *values = onnx_rows(op, onnx_in(op, 2));
    int64_t axis = onnx_int(op, "axis", -1), sizes[FB_MAX_RANK + 1], inner = 1;
    if (!given || !deep || !values || !onnx_ok(op)) return NULL;
    if (fb_array_count(deep) != 1 || fb_array_count(values) != 2) return onnx_fail(op, "its depth or values do not fit");
    double depth_number = fb_array_number(deep, 0);
    int64_t depth = depth_number >= 0 && depth_number < 1e9 ? (int64_t)depth_number : -1;
    int at = onnx_axis_of(op, axis, given->rank + 1);
    if (!onnx_ok(op)) return NULL;
    if (depth < 0 || given->rank + 1 > FB_MAX_RANK) return onnx_fail(op, "its depth does not fit");
    for (int i = 0; i <= given->rank; i++) sizes[i] = i == at ? depth : given->sizes[i - (i > at)];
    for (int i = at; i < given->rank; i++) inner *= given->sizes[i];
    fb_array *made = onnx_new(op, values->dtype, given->rank + 1, sizes);
    for (int64_t k = 0, count = made ? fb_array_count(made) : 0; k < count && fb_work_at(fb_call_work(op->call), k, count); k++)
        copy_one(made, k, values, 0);
    for (int64_t k = 0, count = made ? fb_array_count(given) : 0; k < count && fb_work_at(fb_call_work(op->call), k, count);
         k++) {
        double index = onnx_get(given, k);
        if (index != floor(index)) return onnx_refuse(op, "an index is not a whole number");
        if (index < -(double)depth || index >= (double)depth) continue;
        int64_t place = (int64_t)index + (index < 0 ? depth : 0);
        copy_one(made, (k / inner * depth + place) * inner + k % inner, values, 1);
    }
    return made;
}

static fb_array *op_trilu(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    int64_t k = onnx_in_int(op, 1, 0);
    bool is_upper = onnx_int(op, "upper", 1);
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank < 2) return onnx_fail(op, "it is not a matrix");
    int64_t rows = x->sizes[x->rank - 2], columns = x->sizes[x->rank - 1];
    fb_array *made = copy_of(op, x);
    for (int64_t i = 0, count = made ? fb_array_count(made) : 0; i < count && fb_work_at(fb_call_work(op->call), i, count);
         i++) {
        int64_t row = i / columns % rows, column = i % columns;
        bool stays = is_upper ? column - row >= k : column - row <= k;
        if (!stays) onnx_put(made, i, 0);
    }
    return made;
}

static fb_array *op_depth_to_space(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t b = onnx_int(op, "blocksize", 0);
    bool is_crd = strcmp(onnx_text(op, "mode", "DCR"), "CRD") == 0;
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank != 4 || b < 1 || b > INT32_MAX || x->sizes[1] % (b * b)) return onnx_fail(op, "its block does not fit");
    int64_t n = x->sizes[0], c = x->sizes[1] / (b * b), h = x->sizes[2], w = x->sizes[3];
    static const int dcr[] = {0, 3, 4, 1, 5, 2}, crd[] = {0, 1, 4, 2, 5, 3};
    fb_array *parts = is_crd ? onnx_reshape(op, x, 6, (const int64_t[]){n, c, b, b, h, w})
                             : onnx_reshape(op, x, 6, (const int64_t[]){n, b, b, c, h, w});
    return onnx_reshape(op, onnx_permute(op, parts, is_crd ? crd : dcr), 4, (const int64_t[]){n, c, h * b, w * b});
}

static fb_array *op_space_to_depth(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t b = onnx_int(op, "blocksize", 0);
    if (onnx_has_attribute(op, "mode") && strcmp(onnx_text(op, "mode", "DCR"), "DCR") != 0)
        return onnx_refuse(op, "its mode is not DCR");
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank != 4 || b < 1 || b > INT32_MAX || x->sizes[2] % b || x->sizes[3] % b)
        return onnx_fail(op, "its block does not fit");
    int64_t n = x->sizes[0], c = x->sizes[1], h = x->sizes[2] / b, w = x->sizes[3] / b;
    static const int order[] = {0, 3, 5, 1, 2, 4};
    fb_array *parts = onnx_reshape(op, x, 6, (const int64_t[]){n, c, h, b, w, b});
    return onnx_reshape(op, onnx_permute(op, parts, order), 4, (const int64_t[]){n, c * b * b, h, w});
}

static fb_array *op_reverse_sequence(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0)), *lengths = onnx_rows(op, onnx_in(op, 1));
    int batch = onnx_axis(op, "batch_axis", 1, x), time = onnx_axis(op, "time_axis", 0, x);
    if (!x || !lengths || !onnx_ok(op)) return NULL;
    bool fits = x->rank >= 2 && batch + time == 1 && lengths->rank == 1 && lengths->sizes[0] == onnx_size(x, batch) &&
                lengths->held == FB_HELD_INT;
    if (!fits) return onnx_fail(op, "its axes or lengths do not fit");
    int64_t slice = 1, rows = x->sizes[0], columns = x->sizes[1];
    for (int i = 2; i < x->rank; i++) slice *= x->sizes[i];
    fb_array *made = onnx_new(op, x->dtype, x->rank, x->sizes);
    for (int64_t k = 0; made && k < rows * columns && onnx_goes_on(op, slice); k++) {
        int64_t row = k / columns, column = k % columns, t = time ? column : row;
        int64_t length = onnx_get_int(lengths, time ? row : column);
        if (length < 0 || length > x->sizes[time]) return onnx_fail(op, "a length is beyond the sequence");
        int64_t source = t < length ? length - 1 - t : t, from = time ? row * columns + source : source * columns + column;
        for (int64_t i = 0; i < slice; i++) copy_one(made, k * slice + i, x, from * slice + i);
    }
    return made;
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_shape[] = {
    ROW("Reshape", 5, op_reshape),
    ROW("Flatten", 1, op_flatten),
    ROW("Squeeze", 1, op_squeeze),
    ROW("Unsqueeze", 1, op_unsqueeze),
    ROW("Transpose", 1, op_transpose),
    ROW("Expand", 8, op_expand),
    ROW("Shape", 1, op_shape),
    ROW("Size", 1, op_size),
    ROW("Constant", 1, op_constant),
    ROW("ConstantOfShape", 9, op_constant_of_shape),
    ROW("Range", 11, op_range),
    ROW("EyeLike", 9, op_eye_like),
    ROW("Concat", 4, op_concat),
    ROW("Split", 2, op_split),
    ROW("Slice", 1, op_slice),
    ROW("Tile", 6, op_tile),
    ROW("Pad", 2, op_pad),
    ROW("CenterCropPad", 18, op_center_crop_pad),
    ROW("Gather", 1, op_gather),
    ROW("GatherElements", 11, op_gather_elements),
    ROW("GatherND", 11, op_gather_nd),
    {"Scatter", 9, 10, op_scatter_elements, 0, NULL}, /* 11 is gone */
    ROW("ScatterElements", 11, op_scatter_elements),
    ROW("ScatterND", 11, op_scatter_nd),
    ROW("OneHot", 9, op_one_hot),
    ROW("Trilu", 14, op_trilu),
    ROW("DepthToSpace", 1, op_depth_to_space),
    ROW("SpaceToDepth", 1, op_space_to_depth),
    ROW("ReverseSequence", 10, op_reverse_sequence),
    {0},
};
