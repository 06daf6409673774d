/* Reductions: one number for all elements along some dimensions. Floats are summed in double. */
#include <math.h>
#include <string.h>

#include "core/analysis/shape.h"
#include "core/evaluator/internal.h"
#include "core/evaluator/loops.h"

/* The result of a reduction over the elements of one part. */
typedef struct outcome {
    double number;
    int64_t integer; /* of integer inputs, exactly */
    int64_t index;   /* row-major, of the element that was chosen */
} outcome;

typedef struct settings {
    double a; /* the order of a norm, the correction of a variance */
} settings;

/* `part` has the reduced dimensions alone. */
typedef void reduction(const fb_array *part, const settings *with, outcome *out);

enum { BLOCK = 256 };

/* Up to BLOCK elements of a run as doubles, and integers also as they are. */
static void load_block(const fb_array *part, const void *data, int64_t stride, int64_t count, double *values,
                       int64_t *integers) {
    switch (part->held) {
    case FB_HELD_FLOAT:
        for (int64_t i = 0; i < count; i++) values[i] = (double)((const float *)data)[i * stride];
        break;
    case FB_HELD_DOUBLE:
        for (int64_t i = 0; i < count; i++) values[i] = ((const double *)data)[i * stride];
        break;
    case FB_HELD_INT:
        for (int64_t i = 0; i < count; i++) values[i] = (double)(integers[i] = ((const int64_t *)data)[i * stride]);
        break;
    default:
        for (int64_t i = 0; i < count; i++) values[i] = (double)(integers[i] = ((const unsigned char *)data)[i * stride]);
        break;
    }
}

/* For each element: `value` as a double, `whole` as an int64_t (0 where floats are held). */
#define FOR_EACH(part, statement)                                                                                              \
    double values[BLOCK];                                                                                                      \
    int64_t integers[BLOCK] = {0};                                                                                             \
    fb_walk walk;                                                                                                              \
    for (fb_walk_begin(&walk, part, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {                                         \
        for (int64_t done = 0; done < walk.count; done += BLOCK) {                                                             \
            int64_t count = walk.count - done < BLOCK ? walk.count - done : BLOCK;                                             \
            char *start = (char *)walk.data[0] + done * walk.strides[0] * (int64_t)walk.element[0];                            \
            load_block(part, start, walk.strides[0], count, values, integers);                                                 \
            for (int64_t i = 0; i < count; i++) {                                                                              \
                const double value = values[i];                                                                                \
                const int64_t whole = integers[i];                                                                             \
                (void)whole;                                                                                                   \
                statement;                                                                                                     \
            }                                                                                                                  \
        }                                                                                                                      \
    }

static void sum(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    double number = 0;
    uint64_t integer = 0;
    FOR_EACH(part, (number += value, integer += (uint64_t)whole))
    out->number = number;
    out->integer = (int64_t)integer;
}

static void product(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    double number = 1;
    uint64_t integer = 1;
    FOR_EACH(part, (number *= value, integer *= (uint64_t)whole))
    out->number = number;
    out->integer = (int64_t)integer;
}

static void mean(const fb_array *part, const settings *unused, outcome *out) {
    sum(part, unused, out);
    out->number /= (double)fb_array_count(part);
}

/* The largest (or smallest), nan before all; the first of equal ones. `out->index` is -1 before the first element. */
static void consider(const fb_array *part, bool wants_largest, double value, int64_t whole, int64_t index, outcome *out) {
    bool is_better = out->index < 0;
    if (!is_better && (part->held == FB_HELD_INT || part->held == FB_HELD_BOOL))
        is_better = wants_largest ? whole > out->integer : whole < out->integer;
    else if (!is_better && out->number == out->number)
        is_better = value != value || (wants_largest ? value > out->number : value < out->number);
    if (is_better) *out = (outcome){value, whole, index};
}
static void choose(const fb_array *part, bool wants_largest, outcome *out) {
    int64_t index = 0;
    out->index = -1;
    FOR_EACH(part, consider(part, wants_largest, value, whole, index++, out))
}
static void largest(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    choose(part, true, out);
}
static void smallest(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    choose(part, false, out);
}

static void all_true(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    out->integer = 1;
    FOR_EACH(part, if (value == 0) out->integer = 0)
}
static void any_true(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    out->integer = 0;
    FOR_EACH(part, if (value != 0) out->integer = 1)
}
static void count_true(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    out->integer = 0;
    FOR_EACH(part, out->integer += value != 0)
}

/* The mean as var_mean has it, by Welford's steps: after an infinity that is not the last element it is nan. */
static void running_mean(const fb_array *part, const settings *unused, outcome *out) {
    (void)unused;
    double middle = 0, seen = 0;
    FOR_EACH(part, (seen++, middle += (value - middle) / seen))
    out->number = seen > 0 ? middle : NAN;
}

/* Two passes: the mean, then the squares of what is left. */
static void variance(const fb_array *part, const settings *with, outcome *out) {
    mean(part, with, out);
    double middle = out->number, squares = 0;
    FOR_EACH(part, squares += (value - middle) * (value - middle))
    double degrees = (double)fb_array_count(part) - with->a;
    out->number = squares / (degrees > 0 ? degrees : 0);
}
static void deviation(const fb_array *part, const settings *with, outcome *out) {
    variance(part, with, out);
    out->number = sqrt(out->number);
}

static void norm(const fb_array *part, const settings *with, outcome *out) {
    double p = with->a, total = p == -INFINITY ? INFINITY : 0;
    if (p == INFINITY) {
        FOR_EACH(part, total = value != value || fabs(value) > total ? fabs(value) : total)
    } else if (p == -INFINITY) {
        FOR_EACH(part, total = value != value || fabs(value) < total ? fabs(value) : total)
    } else if (p == 0) {
        FOR_EACH(part, total += value != 0)
    } else if (p == 2) {
        FOR_EACH(part, total += value * value)
        total = sqrt(total);
    } else {
        FOR_EACH(part, total += pow(fabs(value), p))
        total = pow(total, 1 / p);
    }
    out->number = total;
}

static void log_sum_exp(const fb_array *part, const settings *unused, outcome *out) {
    outcome top = {.number = -INFINITY};
    if (fb_array_count(part)) largest(part, unused, &top);
    double total = 0, high = isinf(top.number) ? 0 : top.number;
    FOR_EACH(part, total += exp(value - high))
    out->number = high + log(total);
}

/* ---- over dimensions ---------------------------------------------------------------------------------------------------- */

/* Which dimensions are reduced. */
typedef struct dims {
    int64_t items[FB_MAX_RANK];
    int count; /* -1 = it is not said: all */
    bool keeps;
} dims;

typedef struct reduced {
    fb_array *part; /* a view of the reduced dimensions; its offset is moved */
    int64_t offset; /* of the input */
    int rank;       /* of what is kept */
    int64_t sizes[FB_MAX_RANK], strides[FB_MAX_RANK];
    int out_rank; /* with the reduced dimensions as 1 when keepdim */
    int64_t out_sizes[FB_MAX_RANK];
} reduced;

/* dim: absent or an empty sequence = all (for `all` and `any` an empty one = none). */
static bool open_reduction_of(fb_kernel_call *call, const fb_array *input, const dims *over, reduced *r) {
    uint64_t chosen = 0;
    int count = over->count;
    bool keeps = over->keeps;
    *r = (reduced){.offset = input->offset};
    for (int i = 0; i < count; i++) {
        int64_t limit = input->rank ? input->rank : 1, dim = over->items[i] < 0 ? over->items[i] + limit : over->items[i];
        if (dim < 0 || dim >= limit)
            return fb_kernel_fail(call, "dimension %lld is out of range", (long long)over->items[i]) == FB_OK;
        if (chosen >> dim & 1) return fb_kernel_fail(call, "a dimension is named twice") == FB_OK;
        chosen |= (uint64_t)1 << dim;
    }
    bool takes_all = count < 0 || (count == 0 && call->op != FB_OP_ALL && call->op != FB_OP_ANY);
    if (count == 0 && call->op == FB_OP_LOGSUMEXP && !keeps) return fb_kernel_fail(call, "it has no dimensions") == FB_OK;
    r->part = fb_make_view(call, input, input->rank);
    if (!r->part) return false;
    r->part->rank = 0;
    for (int i = 0; i < input->rank; i++) {
        bool is_reduced = takes_all || (chosen >> i & 1);
        if (is_reduced) {
            r->part->sizes[r->part->rank] = input->sizes[i];
            r->part->strides[r->part->rank++] = input->strides[i];
        } else {
            r->sizes[r->rank] = input->sizes[i];
            r->strides[r->rank++] = input->strides[i];
        }
        if (!is_reduced || keeps) r->out_sizes[r->out_rank++] = is_reduced ? 1 : input->sizes[i];
    }
    return true;
}

static bool open_reduction(fb_kernel_call *call, const fb_array *input, const char *name, reduced *r) {
    dims over;
    *r = (reduced){0};
    return fb_argument_ints(call, name, over.items, &over.count) && fb_argument_bool(call, "keepdim", false, &over.keeps) &&
           open_reduction_of(call, input, &over, r);
}

static void store(const fb_array *out, int64_t at, const outcome *found, bool wants_index) {
    void *data = fb_array_data(out);
    if (out->held == FB_HELD_DOUBLE) ((double *)data)[at] = found->number;
    else if (out->held == FB_HELD_FLOAT) ((float *)data)[at] = (float)found->number;
    else if (out->held == FB_HELD_INT) ((int64_t *)data)[at] = wants_index ? found->index : found->integer;
    else ((unsigned char *)data)[at] = found->integer != 0;
}

/* Fills `out` (contiguous, of r's out_sizes), and `indices` when there are. */
static bool reduce_all(fb_kernel_call *call, reduced *r, reduction *function, const settings *with, const fb_array *out,
                       const fb_array *indices, bool wants_index) {
    int64_t index[FB_MAX_RANK] = {0}, count = fb_array_count(out), at = r->offset;
    double steps = 2 * (double)count * (double)fb_array_count(r->part);
    if (!fb_kernel_takes(call, function == norm ? 10 * steps : steps)) return false;
    for (int64_t k = 0; k < count && fb_kernel_goes_on(call, 10); k++) {
        outcome found = {0};
        r->part->offset = at;
        function(r->part, with, &found);
        store(out, k, &found, wants_index);
        if (indices) store(indices, k, &found, true);
        for (int i = r->rank - 1; i >= 0; i--) {
            at += r->strides[i];
            if (++index[i] < r->sizes[i]) break;
            at -= r->strides[i] * r->sizes[i];
            index[i] = 0;
        }
    }
    return !call->status;
}

static fb_status reduce_as(fb_kernel_call *call, fb_array *input, const char *dim, reduction *function, const settings *with,
                           fb_dtype dtype, bool wants_index, fb_object *result) {
    reduced r;
    fb_array *out = NULL;
    if (open_reduction(call, input, dim, &r)) {
        bool is_choice = function == largest || function == smallest;
        if (is_choice && fb_array_count(r.part) == 0) fb_kernel_fail(call, "nothing has no largest or smallest element");
        else out = fb_make_array(call, dtype, r.out_rank, r.out_sizes);
        if (out) reduce_all(call, &r, function, with, out, NULL, wants_index);
    }
    fb_array_drop(r.part);
    return fb_return_array(call, out, result);
}

/* sum and mean of complex numbers are taken part by part. */
static fb_status reduce_parts(fb_kernel_call *call, fb_array *input, reduction *function, fb_object *result) {
    fb_array *out = NULL;
    for (int i = 0; i < 2 && !call->status; i++) {
        fb_array *part;
        fb_object made = {.kind = FB_OBJECT_NONE};
        call->status = fb_array_part(input, i, &part, call->error);
        if (call->status) break;
        reduce_as(call, part, "dim", function, &(settings){0}, part->dtype, false, &made);
        fb_array_drop(part);
        if (!call->status && !out) out = fb_make_array(call, input->dtype, made.array->rank, made.array->sizes);
        if (!call->status) {
            fb_array to = fb_array_part_of(out, i);
            call->status = fb_array_assign(&to, made.array, call->error);
        }
        fb_object_drop(&made);
    }
    return fb_return_array(call, out, result);
}

static fb_status kernel_reduce(fb_kernel_call *call, fb_object *result) {
    static const struct {
        fb_op op;
        reduction *function;
        enum { SAME, SUM, FLOATING, TRUTH, COUNT, INDEX } dtype;
    } rows[] = {
        {FB_OP_SUM, sum, SUM},
        {FB_OP_PROD, product, SUM},
        {FB_OP_MEAN, mean, FLOATING},
        {FB_OP_AMAX, largest, SAME},
        {FB_OP_AMIN, smallest, SAME},
        {FB_OP_ARGMAX, largest, INDEX},
        {FB_OP_ARGMIN, smallest, INDEX},
        {FB_OP_ALL, all_true, TRUTH},
        {FB_OP_ANY, any_true, TRUTH},
        {FB_OP_COUNT_NONZERO, count_true, COUNT},
        {FB_OP_LOGSUMEXP, log_sum_exp, FLOATING},
    };
    size_t i = 0;
    while (rows[i].op != call->op) i++;
    fb_array *input, *converted = NULL;
    fb_dtype given;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_dtype(call, FB_DTYPE_UNKNOWN, &given)) return call->status;
    bool is_floating = fb_dtype_is_floating(input->dtype);
    if (fb_dtype_is_complex(input->dtype) && !given) return reduce_parts(call, input, rows[i].function, result);
    if (fb_dtype_is_complex(input->dtype) || fb_dtype_is_complex(given))
        return fb_kernel_unsupported(call, "complex numbers are reduced in their own dtype alone");
    fb_dtype dtype = given ? given : input->dtype;
    if (rows[i].dtype == SUM && !given && !is_floating) dtype = FB_INT64;
    if (rows[i].dtype == FLOATING && !fb_dtype_is_floating(dtype)) {
        if (call->op == FB_OP_MEAN) return fb_kernel_fail(call, "integers have no mean of their dtype");
        dtype = FB_FLOAT32;
    }
    if (rows[i].dtype == TRUTH) {
        dtype = input->dtype == FB_UINT8 ? FB_UINT8 : FB_BOOL;
    }
    if (rows[i].dtype == INDEX) {
        const fb_object *dim = fb_argument(call, "dim");
        if (dim && fb_object_is_sequence(dim)) return fb_kernel_fail(call, "its dim is not an int");
        if (input->dtype == FB_BOOL) return fb_kernel_fail(call, "it is not defined for bools");
    }
    if (rows[i].dtype == COUNT || rows[i].dtype == INDEX) dtype = FB_INT64;
    if (given && given != input->dtype) {
        converted = fb_make_cast(call, input, given);
        if (!converted) return call->status;
        input = converted;
    }
    reduce_as(call, input, "dim", rows[i].function, &(settings){0}, dtype, rows[i].dtype == INDEX, result);
    fb_array_drop(converted);
    return call->status;
}

/* max and min: of all elements; along one dimension with indices; of two tensors. */
static fb_status kernel_max(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    const fb_object *second = fb_argument(call, "dim");
    reduction *function = call->op == FB_OP_MAX ? largest : smallest;
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (second && second->kind == FB_OBJECT_ARRAY) return fb_largest_of_two(call, "dim", result);
    if (fb_argument_is_given(call, "other")) return fb_largest_of_two(call, "other", result);
    if (!second || second->kind == FB_OBJECT_NONE)
        return reduce_as(call, input, "dim", function, &(settings){0}, input->dtype, false, result);
    if (fb_object_is_sequence(second)) return fb_kernel_fail(call, "its dim is not an int");
    reduced r;
    fb_array *out = NULL, *indices = NULL;
    if (open_reduction(call, input, "dim", &r)) {
        if (fb_array_count(r.part) == 0) fb_kernel_fail(call, "nothing has no largest or smallest element");
        out = call->status ? NULL : fb_make_array(call, input->dtype, r.out_rank, r.out_sizes);
        indices = out ? fb_make_array(call, FB_INT64, r.out_rank, r.out_sizes) : NULL;
        if (indices) reduce_all(call, &r, function, &(settings){0}, out, indices, false);
    }
    fb_array_drop(r.part);
    return fb_return_tuple(call, (fb_array *const[]){out, indices}, 2, result);
}

static fb_status kernel_aminmax(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    fb_object low = {.kind = FB_OBJECT_NONE}, high = {.kind = FB_OBJECT_NONE};
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (reduce_as(call, input, "dim", smallest, &(settings){0}, input->dtype, false, &low)) return call->status;
    if (reduce_as(call, input, "dim", largest, &(settings){0}, input->dtype, false, &high)) fb_object_drop(&low);
    return call->status ? call->status : fb_return_tuple(call, (fb_array *const[]){low.array, high.array}, 2, result);
}

/* var, std, var_mean, std_mean: correction, or unbiased (true = 1), which may be given in dim's place. */
static fb_status kernel_variance(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    settings s = {1};
    bool unbiased, has_mean = call->op == FB_OP_VAR_MEAN;
    bool is_deviation = call->op == FB_OP_STD || (has_mean && fb_call_is_spelled(call, "std_mean"));
    const fb_object *dim = fb_argument(call, "dim");
    const char *over = "dim";
    if (!fb_argument_array(call, "input", &input)) return call->status;
    if (!fb_dtype_is_floating(input->dtype)) return fb_kernel_fail(call, "integers have no variance of their dtype");
    if (dim && dim->kind == FB_OBJECT_BOOL) {
        s.a = dim->boolean;
        over = "no dim";
    } else if (!fb_argument_bool(call, "unbiased", true, &unbiased) ||
               !fb_argument_number(call, "correction", unbiased, &s.a)) {
        return call->status;
    }
    fb_object spread = {.kind = FB_OBJECT_NONE}, middle = {.kind = FB_OBJECT_NONE};
    if (reduce_as(call, input, over, is_deviation ? deviation : variance, &s, input->dtype, false, has_mean ? &spread : result))
        return call->status;
    if (!has_mean) return FB_OK;
    if (reduce_as(call, input, over, running_mean, &s, input->dtype, false, &middle)) fb_object_drop(&spread);
    return call->status ? call->status : fb_return_tuple(call, (fb_array *const[]){spread.array, middle.array}, 2, result);
}

FB_LOOP_2(quotients_float, float, float, x / y)
FB_LOOP_2(quotients_double, double, double, x / y)
static void quotients(const fb_array *out, const fb_array *a, const fb_array *b) {
    if (out->held == FB_HELD_FLOAT) quotients_float(out, a, b);
    else quotients_double(out, a, b);
}

static fb_status kernel_norm(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    settings s;
    const char *name = call->op == FB_OP_NORM ? "p" : "ord";
    const fb_object *order = fb_argument(call, name), *dim = fb_argument(call, "dim");
    fb_dtype dtype;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_dtype(call, input->dtype, &dtype)) return call->status;
    bool is_frobenius = call->op == FB_OP_NORM && (!order || order->kind == FB_OBJECT_STRING);
    if (order && order->kind == FB_OBJECT_STRING && strcmp(order->text, "fro") != 0)
        return fb_kernel_unsupported(call, "it is a norm of matrices");
    if (is_frobenius && dim && fb_object_is_sequence(dim) && dim->items->count > 2)
        return fb_kernel_fail(call, "Frobenius's norm is that of a matrix");
    if (is_frobenius) s.a = 2;
    else if (!fb_argument_number(call, name, 2, &s.a)) return call->status;
    if (!fb_dtype_is_floating(dtype) || !fb_dtype_is_floating(input->dtype))
        return fb_kernel_unsupported(call, "it is evaluated for floats alone");
    if (fb_promote(input->dtype, dtype) != dtype)
        return fb_kernel_fail(call, "%s is narrower than %s", fb_dtype_name(dtype), fb_dtype_name(input->dtype));
    bool is_along_one = dim && (dim->kind == FB_OBJECT_INT || (fb_object_is_sequence(dim) && dim->items->count == 1));
    bool may_be_of_matrices = fb_call_is_spelled(call, "linalg_norm") || fb_call_is_spelled(call, "norm");
    if (call->op == FB_OP_VECTOR_NORM && may_be_of_matrices && !is_along_one)
        return fb_kernel_unsupported(call, "it may be a norm of matrices");
    reduced r;
    bool is_empty = false;
    if (s.a < 0 || s.a == INFINITY) { /* of nothing: only a sum is known */
        if (open_reduction(call, input, "dim", &r)) is_empty = fb_array_count(r.part) == 0;
        fb_array_drop(r.part);
        if (is_empty) fb_kernel_fail(call, "nothing has no largest or smallest element");
        if (call->status) return call->status;
    }
    fb_array *converted = dtype == input->dtype ? fb_array_keep(input) : fb_make_cast(call, input, dtype);
    if (converted) reduce_as(call, converted, "dim", norm, &s, dtype, false, result);
    fb_array_drop(converted);
    return call->status;
}

/* x / max(norm of x along dim, eps), with the norm of x's dtype. */
static fb_status kernel_normalize(fb_kernel_call *call, fb_object *result) {
    fb_array *input;
    settings s;
    dims over;
    double eps;
    if (!fb_argument_array(call, "input", &input) || !fb_argument_number(call, "p", 2, &s.a) ||
        !fb_argument_number(call, "eps", 1e-12, &eps) || !fb_argument_ints(call, "dim", over.items, &over.count))
        return call->status;
    if (!fb_dtype_is_floating(input->dtype)) return fb_kernel_fail(call, "it takes floats");
    if (over.count < 0 && !fb_argument(call, "dim")) {
        over.items[0] = 1;
        over.count = 1;
    }
    over.keeps = true;
    reduced r;
    fb_array *norms = NULL, *divisor = NULL, *out = NULL;
    if (open_reduction_of(call, input, &over, &r)) {
        bool is_choice = s.a < 0 || s.a == INFINITY;
        if (is_choice && fb_array_count(r.part) == 0) fb_kernel_fail(call, "nothing has no largest or smallest element");
        else norms = fb_make_array(call, input->dtype, r.out_rank, r.out_sizes);
    }
    if (norms && reduce_all(call, &r, norm, &s, norms, NULL, false)) {
        fb_array_round(norms);
        for (int64_t i = 0, count = fb_array_count(norms); i < count && fb_work_at(fb_call_work(call), i, count); i++)
            if (fb_array_get(norms, i) < eps) fb_array_put(norms, i, eps);
        fb_array_round(norms);
        call->status = fb_array_broadcast(norms, input->rank, input->sizes, &divisor, call->error);
    }
    if (divisor) out = fb_make_array(call, input->dtype, input->rank, input->sizes);
    if (out) quotients(out, input, divisor);
    fb_array_drop(r.part);
    fb_array_drop(norms);
    fb_array_drop(divisor);
    return fb_return_array(call, out, result);
}

/* ---- losses -------------------------------------------------------------------------------------------------------------- */

/* Of one element, which is `apart` from its target; a bound of 0 makes smooth_l1_loss l1_loss. */
static double loss_of(fb_op op, bool is_square, double apart, double bound) {
    double distance = fabs(apart);
    if (op == FB_OP_ELEMENT_LOSS) return is_square ? apart * apart : distance;
    if (op == FB_OP_HUBER_LOSS) return distance <= bound ? 0.5 * apart * apart : bound * (distance - 0.5 * bound);
    return distance < bound ? 0.5 * apart * apart / bound : distance - 0.5 * bound;
}

typedef enum loss_reduction { LOSS_NONE, LOSS_MEAN, LOSS_SUM } loss_reduction; /* in ATen's order */

static bool find_reduction(fb_kernel_call *call, loss_reduction *out) {
    static const char *const names[] = {"none", "mean", "sum"};
    const fb_object *given = fb_argument(call, "reduction");
    bool is_number = given && given->kind == FB_OBJECT_INT && given->integer >= LOSS_NONE && given->integer <= LOSS_SUM;
    *out = is_number ? (loss_reduction)given->integer : LOSS_MEAN;
    if (!given || is_number) return true;
    for (int i = 0; i < 3; i++) {
        if (given->kind != FB_OBJECT_STRING || strcmp(given->text, names[i]) != 0) continue;
        *out = (loss_reduction)i;
        return true;
    }
    return fb_kernel_fail(call, "there is no such reduction") == FB_OK;
}

static fb_status kernel_element_loss(fb_kernel_call *call, fb_object *result) {
    static const char *const names[] = {"input", "target", NULL};
    bool is_square = fb_call_is_spelled(call, "mse_loss") || fb_call_is_spelled(call, "MSELoss");
    bool is_huber = call->op == FB_OP_HUBER_LOSS;
    fb_array *given[2], *operands[2], *out = NULL;
    fb_dtype dtype = FB_DTYPE_UNKNOWN;
    loss_reduction kind;
    double bound = 1, sum = 0;
    if (!fb_argument_array(call, "input", &given[0]) || !fb_argument_array(call, "target", &given[1]) ||
        !find_reduction(call, &kind))
        return call->status;
    if (!fb_dtype_is_floating(given[0]->dtype) || !fb_dtype_is_floating(given[1]->dtype))
        return fb_kernel_unsupported(call, "it is evaluated of floating numbers alone");
    if (is_huber && given[0]->dtype != given[1]->dtype)
        return fb_kernel_unsupported(call, "its operands have two dtypes, of which PyTorch does not promote to the wider");
    if (call->op != FB_OP_ELEMENT_LOSS && !fb_argument_number(call, is_huber ? "delta" : "beta", 1, &bound))
        return call->status;
    if (bound < 0 || (is_huber && bound == 0)) return fb_kernel_fail(call, "its bound is not positive");
    if (!fb_operands(call, names, &dtype, operands)) return call->status;
    fb_array *x = fb_make_contiguous(call, operands[0]), *y = x ? fb_make_contiguous(call, operands[1]) : NULL;
    if (y) out = fb_make_array(call, dtype, kind == LOSS_NONE ? x->rank : 0, x->sizes);
    int64_t count = out ? fb_array_count(x) : 0;
    for (int64_t i = 0; i < count && fb_work_at(fb_call_work(call), i, count); i++) {
        double loss = loss_of(call->op, is_square, fb_array_get(x, i) - fb_array_get(y, i), bound);
        if (kind == LOSS_NONE) fb_array_put(out, i, loss);
        sum += loss;
    }
    if (out && kind != LOSS_NONE) fb_array_put(out, 0, kind == LOSS_MEAN ? sum / (double)count : sum);
    if (out) fb_array_round(out);
    fb_array_drop(x);
    fb_array_drop(y);
    fb_array_drop(operands[0]);
    fb_array_drop(operands[1]);
    return fb_return_array(call, out, result);
}

const fb_kernel_row fb_kernels_reduce[] = {
    FB_KERNEL(ELEMENT_LOSS, element_loss),
    FB_KERNEL(SMOOTH_L1_LOSS, element_loss),
    FB_KERNEL(HUBER_LOSS, element_loss),
    FB_KERNEL_COMPLEX(SUM, reduce),
    FB_KERNEL(PROD, reduce),
    FB_KERNEL_COMPLEX(MEAN, reduce),
    FB_KERNEL(AMAX, reduce),
    FB_KERNEL(AMIN, reduce),
    FB_KERNEL(ARGMAX, reduce),
    FB_KERNEL(ARGMIN, reduce),
    FB_KERNEL(ALL, reduce),
    FB_KERNEL(ANY, reduce),
    FB_KERNEL(COUNT_NONZERO, reduce),
    FB_KERNEL(LOGSUMEXP, reduce),
    FB_KERNEL(MAX, max),
    FB_KERNEL(MIN, max),
    FB_KERNEL(VAR, variance),
    FB_KERNEL(STD, variance),
    FB_KERNEL(VAR_MEAN, variance),
    FB_KERNEL(AMINMAX, aminmax),
    FB_KERNEL(NORM, norm),
    FB_KERNEL(NORMALIZE, normalize),
    FB_KERNEL(VECTOR_NORM, norm),
    FB_KERNELS_END,
};
