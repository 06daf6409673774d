/* Sorting along one dimension: sort, argsort, topk. */
#include <math.h>

#include "core/evaluator/internal.h"

#define STEPS_OF_A_MERGE 4 /* for each element */

/* An element and where it was; a merge sort of them is stable. */
typedef struct item {
    double number;
    int64_t integer, index;
} item;

/* nan is the largest, as in torch. */
static int compare_ascending(const item *a, const item *b) {
    bool a_is_nan = a->number != a->number, b_is_nan = b->number != b->number;
    if (a_is_nan || b_is_nan) return a_is_nan - b_is_nan;
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return (a->integer > b->integer) - (a->integer < b->integer);
}

/* Equal elements keep their order, descending, too. `spare` is as long as `items`. */
static void sort_items(fb_work *work, item *items, item *spare, int64_t count, bool descends) {
    for (int64_t width = 1; width < count; width *= 2) {
        for (int64_t start = 0; start < count; start += 2 * width) {
            int64_t middle = start + width < count ? start + width : count;
            int64_t end = start + 2 * width < count ? start + 2 * width : count;
            int64_t a = start, b = middle;
            for (int64_t k = start; k < end && fb_work_at(work, k - start, end - start); k++) {
                bool takes_first = b == end;
                if (a < middle && b < end) {
                    int order = compare_ascending(&items[a], &items[b]);
                    takes_first = descends ? order >= 0 : order <= 0;
                }
                spare[k] = takes_first ? items[a++] : items[b++];
            }
        }
        for (int64_t k = 0; k < count && fb_work_at(work, k, count); k++) items[k] = spare[k];
    }
}

typedef struct sorting {
    const fb_array *input;
    fb_array *values, *indices; /* either may be NULL */
    int64_t dim, kept;
    bool descends;
    item *items, *spare;
    fb_work *work;
} sorting;

static void sort_line(const sorting *s, int64_t at, int64_t out_at) {
    const fb_array *input = s->input, *shaped = s->values ? s->values : s->indices;
    int64_t count = input->rank ? input->sizes[s->dim] : 1, step = input->rank ? input->strides[s->dim] : 1;
    int64_t out_step = input->rank ? shaped->strides[s->dim] : 1;
    const void *data = input->storage->bytes;
    for (int64_t i = 0; i < count && fb_work_at(s->work, i, count); i++) {
        item *one = &s->items[i];
        int64_t from = at + i * step;
        *one = (item){.index = i};
        if (input->held == FB_HELD_FLOAT) one->number = (double)((const float *)data)[from];
        else if (input->held == FB_HELD_DOUBLE) one->number = ((const double *)data)[from];
        else if (input->held == FB_HELD_INT) one->integer = ((const int64_t *)data)[from];
        else one->integer = ((const unsigned char *)data)[from];
    }
    sort_items(s->work, s->items, s->spare, count, s->descends);
    for (int64_t i = 0; i < s->kept && fb_work_at(s->work, i, s->kept); i++) {
        const item *one = &s->items[i];
        int64_t to = out_at + i * out_step;
        if (s->indices) ((int64_t *)s->indices->storage->bytes)[to] = one->index;
        if (!s->values) continue;
        void *out = s->values->storage->bytes;
        if (input->held == FB_HELD_FLOAT) ((float *)out)[to] = (float)one->number;
        else if (input->held == FB_HELD_DOUBLE) ((double *)out)[to] = one->number;
        else if (input->held == FB_HELD_INT) ((int64_t *)out)[to] = one->integer;
        else ((unsigned char *)out)[to] = (unsigned char)one->integer;
    }
}

static void sort_lines(fb_kernel_call *call, const sorting *s) {
    const fb_array *input = s->input, *shaped = s->values ? s->values : s->indices;
    int64_t index[FB_MAX_RANK] = {0}, at = input->offset, out_at = 0;
    bool more = fb_array_count(input) > 0;
    while (more && fb_kernel_goes_on(call, 1)) {
        sort_line(s, at, out_at);
        more = false;
        for (int i = input->rank - 1; i >= 0 && !more; i--) {
            if (i == s->dim) continue;
            at += input->strides[i];
            out_at += shaped->strides[i];
            more = ++index[i] < input->sizes[i];
            if (more) break;
            at -= input->strides[i] * input->sizes[i];
            out_at -= shaped->strides[i] * input->sizes[i];
            index[i] = 0;
        }
    }
}

/* The first `kept` of each line; -1 = all. */
static fb_status sort_along(fb_kernel_call *call, const fb_array *input, int64_t dim, int64_t kept, bool descends,
                            bool wants_values, fb_object *result) {
    int64_t sizes[FB_MAX_RANK], count = input->rank ? input->sizes[dim] : 1;
    for (int i = 0; i < input->rank; i++) sizes[i] = i == dim && kept >= 0 ? kept : input->sizes[i];
    sorting s = {.input = input, .dim = dim, .kept = kept < 0 ? count : kept, .descends = descends, .work = fb_call_work(call)};
    /* A merge for each bit of the number of elements. */
    fb_kernel_takes(call, STEPS_OF_A_MERGE * (double)fb_array_count(input) * (1 + log2((double)count + 1)));
    if (wants_values) s.values = fb_make_array(call, input->dtype, input->rank, sizes);
    s.indices = fb_make_array(call, FB_INT64, input->rank, sizes);
    s.items = fb_make_workspace(call, count, sizeof *s.items);
    s.spare = fb_make_workspace(call, count, sizeof *s.spare);
    if (!call->status) sort_lines(call, &s);
    fb_free_workspace(call, s.items, count, sizeof *s.items);
    fb_free_workspace(call, s.spare, count, sizeof *s.spare);
    if (!wants_values) return fb_return_array(call, s.indices, result);
    return fb_return_tuple(call, (fb_array *const[]){s.values, s.indices}, 2, result);
}

static bool read_axis(fb_kernel_call *call, int rank, int64_t *dim) {
    *dim = rank ? rank - 1 : 0;
    if (!fb_argument_is_given(call, "dim")) return !call->status;
    return fb_argument_axis(call, "dim", rank, dim);
}

/* sort, argsort: always stable, which without `stable` may be another order of equal elements than torch's. */
static fb_status kernel_sort(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim;
    bool descends;
    if (fb_call_is_spelled(call, "msort")) return fb_kernel_unsupported(call, "it is not evaluated");
    if (!fb_argument_array(call, "input", &input) || !read_axis(call, input->rank, &dim) ||
        !fb_argument_bool(call, "descending", false, &descends))
        return call->status;
    return sort_along(call, input, dim, -1, descends, call->op == FB_OP_SORT, result);
}

static fb_status kernel_topk(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t dim, kept;
    bool takes_largest, is_sorted;
    if (!fb_call_is_spelled(call, "topk")) return fb_kernel_unsupported(call, "it is not evaluated");
    if (!fb_argument_array(call, "input", &input) || !read_axis(call, input->rank, &dim) ||
        !fb_argument_int(call, "k", -1, &kept) || !fb_argument_bool(call, "largest", true, &takes_largest) ||
        !fb_argument_bool(call, "sorted", true, &is_sorted))
        return call->status;
    if (kept < 0 || kept > (input->rank ? input->sizes[dim] : 1)) return fb_kernel_fail(call, "k is out of range");
    if (!input->rank && !kept) return fb_kernel_unsupported(call, "it takes nothing of a tensor without dimensions");
    (void)is_sorted; /* without it any order will do, this one as well */
    if (input->dtype == FB_BOOL) return fb_kernel_unsupported(call, "it is not evaluated for bools");
    return sort_along(call, input, dim, kept, takes_largest, true, result);
}

/* histc(bins, min, max): the place of an element is computed in its dtype, as torch does; what is outside does not count. */
static fb_status kernel_histc(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    int64_t bins;
    double least, largest;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_int(call, "bins", 100, &bins) ||
        !fb_argument_number(call, "min", 0, &least) || !fb_argument_number(call, "max", 0, &largest))
        return call->status;
    if (input->dtype != FB_FLOAT32 && input->dtype != FB_FLOAT64)
        return fb_kernel_unsupported(call, "it is evaluated for float32 and float64");
    if (bins < 1) return fb_kernel_fail(call, "it has no bins");
    if (!(least < largest)) return fb_kernel_unsupported(call, "its range is that of its elements");
    fb_array *out = fb_make_array(call, input->dtype, 1, &bins), *from = out ? fb_make_contiguous(call, input) : NULL;
    if (from) fb_array_fill(out, 0, 0);
    int64_t count = from ? fb_array_count(from) : 0;
    bool is_single = input->dtype == FB_FLOAT32;
    float first = (float)least, width = (float)largest - (float)least;
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++) {
        double value = from->held == FB_HELD_FLOAT ? (double)((const float *)fb_array_data(from))[i]
                                                   : ((const double *)fb_array_data(from))[i];
        bool is_inside =
            is_single ? (float)value >= first && (float)value <= (float)largest : value >= least && value <= largest;
        if (!is_inside) continue;
        int64_t at = is_single ? (int64_t)(((float)value - first) * (float)bins / width)
                               : (int64_t)((value - least) * (double)bins / (largest - least));
        at = at < bins ? at : bins - 1;
        fb_array_put(out, at, fb_array_get(out, at) + 1);
    }
    fb_array_drop(from);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_sort[] = {
    FB_KERNEL(SORT, sort), FB_KERNEL(ARGSORT, sort), FB_KERNEL(TOPK, topk), FB_KERNEL(HISTC, histc), FB_KERNELS_END,
};
