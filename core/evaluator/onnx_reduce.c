/* ONNX's reductions, softmax, sums along an axis, and orders. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/onnx.h"

/* ---- reductions --------------------------------------------------------------------------------------------------------- */

/* The axes: an attribute, or since `since` an input. False: nothing is reduced. */
static bool read_axes(onnx_op *op, int since, const fb_array *x, int64_t axes[FB_MAX_RANK], int *count) {
    *count = op->version < since ? onnx_ints(op, "axes", axes) : onnx_in_ints(op, 1, axes);
    bool keeps_all = op->version >= since && onnx_int(op, "noop_with_empty_axes", 0);
    if (*count <= 0 && keeps_all) return false;
    if (*count <= 0) {
        *count = x->rank;
        for (int i = 0; i < x->rank; i++) axes[i] = i;
    }
    for (int i = 0; i < *count; i++) axes[i] = onnx_axis_of(op, axes[i], x->rank);
    return true;
}

typedef struct reduction {
    fb_op op;
    const char *spelling;
    int since; /* the version from which its axes are an input */
    enum { PLAIN, OF_ABS, OF_SQUARE } of;
    enum { AS_IT_IS, ROOT, LOGARITHM } then;
} reduction;

static fb_array *reduce(onnx_op *op, const reduction *r) {
    fb_array *x = onnx_in(op, 0);
    int64_t axes[FB_MAX_RANK];
    int count;
    bool keeps = onnx_int(op, "keepdims", 1), is_bool = x && x->dtype == FB_BOOL;
    if (!x) return NULL;
    bool reduces = read_axes(op, r->since, x, axes, &count) && x->rank;
    if (!onnx_ok(op)) return NULL;
    fb_dtype dtype = x->dtype;
    if (r->of == OF_ABS) x = ONNX_PART(ABS, "abs", ONNX_A("input", x));
    if (r->of == OF_SQUARE) x = ONNX_MUL(x, x);
    if (is_bool) x = onnx_cast(op, x, FB_UINT8);
    if (reduces && x) {
        fb_object dims = onnx_list(op, axes, count);
        bool may_be_typed = r->op == FB_OP_SUM || r->op == FB_OP_PROD;
        if (r->op == FB_OP_PROD) { /* one axis at a time, the last ones first */
            bool is_reduced[FB_MAX_RANK] = {0};
            for (int i = 0; i < count; i++) is_reduced[axes[i]] = true;
            for (int axis = x->rank - 1, rank = x->rank; axis >= 0 && x; axis--, (void)rank)
                if (is_reduced[axis])
                    x = ONNX_PART(PROD, "prod", ONNX_A("input", x), ONNX_I("dim", axis), ONNX_B("keepdim", keeps),
                                  ONNX_O("dtype", ((fb_object){.kind = FB_OBJECT_DTYPE, .dtype = x->dtype})));
        } else if (may_be_typed) {
            x = onnx_part(op, r->op, r->spelling,
                          (const fb_part_argument[]){ONNX_A("input", x),
                                                     ONNX_O("dim", dims),
                                                     ONNX_B("keepdim", keeps),
                                                     ONNX_O("dtype", ((fb_object){.kind = FB_OBJECT_DTYPE, .dtype = x->dtype})),
                                                     {NULL, {.kind = FB_OBJECT_NONE}}},
                          0);
        } else if (r->op == FB_OP_MEAN && !fb_dtype_is_floating(x->dtype)) {
            return onnx_refuse(op, "means of integers are not evaluated");
        } else {
            x = onnx_part(
                op, r->op, r->spelling,
                (const fb_part_argument[]){
                    ONNX_A("input", x), ONNX_O("dim", dims), ONNX_B("keepdim", keeps), {NULL, {.kind = FB_OBJECT_NONE}}},
                0);
        }
    } else if (r->op == FB_OP_LOGSUMEXP && x) {
        x = ONNX_PART(LOG, "log", ONNX_A("input", ONNX_PART(EXP, "exp", ONNX_A("input", x))));
    }
    if (r->then == ROOT && x && fb_dtype_is_floating(x->dtype)) x = ONNX_PART(SQRT, "sqrt", ONNX_A("input", x));
    else if (r->then == ROOT && x) return onnx_refuse(op, "norms of integers are not evaluated");
    if (r->then == LOGARITHM && x && fb_dtype_is_floating(x->dtype)) x = ONNX_PART(LOG, "log", ONNX_A("input", x));
    else if (r->then == LOGARITHM && x) return onnx_refuse(op, "logarithms of integers are not evaluated");
    return x ? onnx_cast(op, x, dtype) : NULL;
}

#define REDUCTION(name, id, spelling, since, of, then)                                                                         \
    static fb_array *op_##name(onnx_op *op) {                                                                                  \
        static const reduction r = {FB_OP_##id, spelling, since, of, then};                                                    \
        return reduce(op, &r);                                                                                                 \
    }
REDUCTION(reduce_sum, SUM, "sum", 13, PLAIN, AS_IT_IS)
REDUCTION(reduce_mean, MEAN, "mean", 18, PLAIN, AS_IT_IS)
REDUCTION(reduce_max, AMAX, "amax", 18, PLAIN, AS_IT_IS)
REDUCTION(reduce_min, AMIN, "amin", 18, PLAIN, AS_IT_IS)
REDUCTION(reduce_prod, PROD, "prod", 18, PLAIN, AS_IT_IS)
REDUCTION(reduce_l1, SUM, "sum", 18, OF_ABS, AS_IT_IS)
REDUCTION(reduce_l2, SUM, "sum", 18, OF_SQUARE, ROOT)
REDUCTION(reduce_square, SUM, "sum", 18, OF_SQUARE, AS_IT_IS)
REDUCTION(reduce_log_sum, SUM, "sum", 18, PLAIN, LOGARITHM)
REDUCTION(reduce_log_sum_exp, LOGSUMEXP, "logsumexp", 18, PLAIN, AS_IT_IS)

/* The first one of equals, or the last. */
static fb_array *choose(onnx_op *op, fb_op part, const char *spelling) {
    fb_array *x = onnx_in(op, 0);
    int axis = onnx_axis(op, "axis", 0, x);
    bool keeps = onnx_int(op, "keepdims", 1), is_last = onnx_int(op, "select_last_index", 0);
    if (!x || !onnx_ok(op)) return NULL;
    if (is_last) x = ONNX_PART(FLIP, "flip", ONNX_A("input", x), ONNX_O("dims", onnx_list(op, (const int64_t[]){axis}, 1)));
    fb_array *made =
        onnx_part(op, part, spelling,
                  (const fb_part_argument[]){
                      ONNX_A("input", x), ONNX_I("dim", axis), ONNX_B("keepdim", keeps), {NULL, {.kind = FB_OBJECT_NONE}}},
                  0);
    if (!is_last || !made) return made;
    return ONNX_SUB(onnx_scalar(op, (double)(x->rank ? x->sizes[axis] : 1) - 1, FB_INT64), made);
}

static fb_array *op_argmax(onnx_op *op) {
    return choose(op, FB_OP_ARGMAX, "argmax");
}
static fb_array *op_argmin(onnx_op *op) {
    return choose(op, FB_OP_ARGMIN, "argmin");
}

/* ---- softmax ------------------------------------------------------------------------------------------------------------ */

/* Before version 13 all axes from `axis` on are one. */
static fb_array *along(onnx_op *op, fb_array *(*function)(onnx_op *op, fb_array *x, int axis)) {
    fb_array *x = onnx_in(op, 0);
    int64_t given = onnx_int(op, "axis", op->version < 13 ? 1 : -1), sizes[2] = {1, 1};
    if (!x || !onnx_ok(op)) return NULL;
    if (op->version >= 13) return function(op, x, onnx_axis_of(op, given, x->rank));
    int axis = given == x->rank ? x->rank : onnx_axis_of(op, given, x->rank);
    for (int i = 0; i < x->rank; i++) sizes[i >= axis] *= x->sizes[i];
    fb_array *made = function(op, onnx_reshape(op, x, 2, sizes), 1);
    return onnx_reshape(op, made, x->rank, x->sizes);
}

static fb_array *softmax(onnx_op *op, fb_array *x, int axis) {
    if (!x || !x->rank) return x ? onnx_refuse(op, "it has no dimension") : NULL;
    return ONNX_PART(NATIVE_SOFTMAX, "softmax", ONNX_A("input", x), ONNX_I("dim", axis));
}
static fb_array *log_softmax(onnx_op *op, fb_array *x, int axis) {
    if (!x || !x->rank) return x ? onnx_refuse(op, "it has no dimension") : NULL;
    return ONNX_PART(NATIVE_LOG_SOFTMAX, "log_softmax", ONNX_A("input", x), ONNX_I("dim", axis));
}

/* 1 for the first of the largest. */
static fb_array *hardmax(onnx_op *op, fb_array *x, int axis) {
    if (!x || !x->rank) return x ? onnx_refuse(op, "it has no dimension") : NULL;
    fb_array *found = ONNX_PART(ARGMAX, "argmax", ONNX_A("input", x), ONNX_I("dim", axis), ONNX_B("keepdim", true));
    int64_t sizes[FB_MAX_RANK], count = x->sizes[axis];
    for (int i = 0; i < x->rank; i++) sizes[i] = i == axis ? count : 1;
    fb_array *places = onnx_new(op, FB_INT64, x->rank, sizes);
    for (int64_t i = 0; places && i < count && fb_work_at(fb_call_work(op->call), i, count); i++) onnx_put_int(places, i, i);
    return onnx_cast(op, onnx_binary(op, FB_OP_EQ, "eq", found, places), x->dtype);
}

static fb_array *op_softmax(onnx_op *op) {
    return along(op, softmax);
}
static fb_array *op_log_softmax(onnx_op *op) {
    return along(op, log_softmax);
}
static fb_array *op_hardmax(onnx_op *op) {
    return along(op, hardmax);
}

/* ---- running sums ------------------------------------------------------------------------------------------------------- */

static fb_array *accumulate(onnx_op *op, bool is_product) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    int64_t given = onnx_in_int(op, 1, 0);
    bool is_exclusive = onnx_int(op, "exclusive", 0), is_reversed = onnx_int(op, "reverse", 0);
    if (!x || !onnx_ok(op)) return NULL;
    if (!x->rank) return onnx_refuse(op, "it has no dimension");
    int axis = onnx_axis_of(op, given, x->rank);
    fb_array *made = onnx_new(op, x->dtype, x->rank, x->sizes);
    int64_t inner = 1, size = x->sizes[axis], count = fb_array_count(x);
    for (int i = axis + 1; i < x->rank; i++) inner *= x->sizes[i];
    if (!made || !onnx_takes(op, 4 * (double)count)) return NULL;
    bool is_whole = x->held == FB_HELD_INT;
    for (int64_t line = 0; size && line < count / size && onnx_goes_on(op, 4 * size); line++) {
        int64_t base = line / inner * size * inner + line % inner;
        uint64_t whole = is_product;
        double number = is_product;
        for (int64_t k = 0; k < size; k++) {
            int64_t at = base + (is_reversed ? size - 1 - k : k) * inner;
            if (is_exclusive && is_whole) onnx_put_int(made, at, (int64_t)whole);
            if (is_exclusive && !is_whole) onnx_put(made, at, number);
            if (is_whole) whole = is_product ? whole * (uint64_t)onnx_get_int(x, at) : whole + (uint64_t)onnx_get_int(x, at);
            else number = is_product ? number * onnx_get(x, at) : number + onnx_get(x, at);
            if (!is_exclusive && is_whole) onnx_put_int(made, at, (int64_t)whole);
            if (!is_exclusive && !is_whole) onnx_put(made, at, number);
        }
    }
    fb_array_round(made);
    return made;
}

static fb_array *op_cumsum(onnx_op *op) {
    return accumulate(op, false);
}
static fb_array *op_cumprod(onnx_op *op) {
    return accumulate(op, true);
}

/* ---- orders ------------------------------------------------------------------------------------------------------------- */

static fb_array *op_top_k(onnx_op *op) {
    fb_array *x = onnx_in(op, 0);
    int64_t k = op->version < 10 ? onnx_int(op, "k", -1) : onnx_in_int(op, 1, -1);
    int axis = onnx_axis(op, "axis", -1, x);
    bool is_largest = onnx_int(op, "largest", 1);
    onnx_ignore(op, "sorted"); /* what is not sorted may be sorted */
    if (!x || !onnx_ok(op)) return NULL;
    if (!x->rank) return onnx_refuse(op, "it has no dimension");
    const fb_part_argument with[] = {ONNX_A("input", x),     ONNX_I("k", k),
                                     ONNX_I("dim", axis),    ONNX_B("largest", is_largest),
                                     ONNX_B("sorted", true), {NULL, {.kind = FB_OBJECT_NONE}}};
    op->results[0] = onnx_part(op, FB_OP_TOPK, "topk", with, 0);
    op->results[1] = onnx_part(op, FB_OP_TOPK, "topk", with, 1);
    return op->results[0];
}

static int64_t count_true(onnx_op *op, const fb_array *rows) {
    int64_t found = 0;
    for (int64_t i = 0, count = fb_array_count(rows); i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        found += onnx_get(rows, i) != 0;
    return found;
}

/* A row for each dimension. */
static fb_array *op_non_zero(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    if (!x) return NULL;
    if (!x->rank) return onnx_refuse(op, "it has no dimension");
    int64_t found = count_true(op, x), at = 0;
    fb_array *made = onnx_new(op, FB_INT64, 2, (const int64_t[]){x->rank, found});
    if (!made || !onnx_takes(op, 10 * (double)fb_array_count(x))) return NULL;
    for (int64_t i = 0, count = fb_array_count(x); i < count && fb_work_at(fb_call_work(op->call), i, count); i++) {
        if (onnx_get(x, i) == 0) continue;
        int64_t rest = i;
        for (int d = x->rank - 1; d >= 0; d--) {
            onnx_put_int(made, d * found + at, rest % x->sizes[d]);
            rest /= x->sizes[d];
        }
        at++;
    }
    return onnx_ok(op) ? made : NULL;
}

static fb_array *op_compress(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *condition = onnx_rows(op, onnx_in(op, 1));
    bool has_axis = onnx_has_attribute(op, "axis");
    int64_t flat = x ? fb_array_count(x) : 0;
    if (!x || !condition) return NULL;
    if (condition->rank != 1 || condition->held != FB_HELD_BOOL) return onnx_fail(op, "its condition is not a row of bools");
    if (!has_axis) x = onnx_reshape(op, x, 1, &flat);
    int axis = has_axis ? onnx_axis(op, "axis", 0, x) : 0;
    int64_t found = count_true(op, condition), at = 0;
    fb_array *index = onnx_new(op, FB_INT64, 1, &found);
    if (!x || !index || !onnx_ok(op)) return NULL;
    for (int64_t i = 0; i < condition->sizes[0]; i++)
        if (onnx_get_int(condition, i)) onnx_put_int(index, at++, i);
    return ONNX_PART(INDEX_SELECT, "index_select", ONNX_A("input", x), ONNX_I("dim", axis), ONNX_A("index", index));
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_reduce[] = {
    ROW("ReduceSum", 1, op_reduce_sum),
    ROW("ReduceMean", 1, op_reduce_mean),
    ROW("ReduceMax", 1, op_reduce_max),
    ROW("ReduceMin", 1, op_reduce_min),
    ROW("ReduceProd", 1, op_reduce_prod),
    ROW("ReduceL1", 1, op_reduce_l1),
    ROW("ReduceL2", 1, op_reduce_l2),
    ROW("ReduceSumSquare", 1, op_reduce_square),
    ROW("ReduceLogSum", 1, op_reduce_log_sum),
    ROW("ReduceLogSumExp", 1, op_reduce_log_sum_exp),
    ROW("ArgMax", 1, op_argmax),
    ROW("ArgMin", 1, op_argmin),
    ROW("Softmax", 1, op_softmax),
    ROW("LogSoftmax", 1, op_log_softmax),
    ROW("Hardmax", 1, op_hardmax),
    ROW("CumSum", 11, op_cumsum),
    ROW("CumProd", 26, op_cumprod),
    ROW("TopK", 1, op_top_k),
    ROW("NonZero", 9, op_non_zero),
    ROW("Compress", 9, op_compress),
    {0},
};
