#include "core/pass/bounded.h"

#include <math.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"

/* ---- one element --------------------------------------------------------------------------------------------------------- */

typedef struct range {
    double least, largest;
} range;

static const range anything = {NAN, NAN};

static range hull(double a, double b, double c, double d) {
    return (range){fmin(fmin(a, b), fmin(c, d)), fmax(fmax(a, b), fmax(c, d))};
}

static range add(range a, range b) {
    return (range){a.least + b.least, a.largest + b.largest};
}

static range subtract(range a, range b) {
    return (range){a.least - b.largest, a.largest - b.least};
}

static range multiply(range a, range b) {
    return hull(a.least * b.least, a.least * b.largest, a.largest * b.least, a.largest * b.largest);
}

static range divide(range a, range b) {
    if (b.least <= 0 && b.largest >= 0) return anything;
    return hull(a.least / b.least, a.least / b.largest, a.largest / b.least, a.largest / b.largest);
}

static range least_of(range a, range b) {
    return (range){fmin(a.least, b.least), fmin(a.largest, b.largest)};
}

static range largest_of(range a, range b) {
    return (range){fmax(a.least, b.least), fmax(a.largest, b.largest)};
}

static range logarithm(range a) {
    return a.least > 0 ? (range){log(a.least), log(a.largest)} : anything;
}

static range exponential(range a) {
    return (range){exp(a.least), exp(a.largest)};
}

static range root(range a) {
    return a.least >= 0 ? (range){sqrt(a.least), sqrt(a.largest)} : anything;
}

static range round_down(range a) {
    return (range){floor(a.least), floor(a.largest)};
}

static range round_up(range a) {
    return (range){ceil(a.least), ceil(a.largest)};
}

static range negate(range a) {
    return (range){-a.largest, -a.least};
}

/* ---- the operators ------------------------------------------------------------------------------------------------------- */

typedef enum rule_kind { ARITHMETIC = 0, CAST, CHOICE } rule_kind;

typedef struct rule {
    const char *name;
    rule_kind is;
    bool begins;
    bool is_of_floats; /* alone: a quotient of integers is cut */
    bool is_exact;     /* it rounds nothing */
    range (*of_one)(range a);
    range (*of_two)(range a, range b);
} rule;

static const rule rules[] = {
    {.name = "Add", .of_two = add},
    {.name = "Cast", .is = CAST},
    {.name = "Ceil", .of_one = round_up, .is_exact = true},
    {.name = "Div", .of_two = divide, .is_of_floats = true},
    {.name = "Exp", .of_one = exponential, .begins = true},
    {.name = "Floor", .of_one = round_down, .is_exact = true},
    {.name = "Log", .of_one = logarithm, .begins = true},
    {.name = "Max", .of_two = largest_of, .is_exact = true},
    {.name = "Min", .of_two = least_of, .is_exact = true},
    {.name = "Mul", .of_two = multiply},
    {.name = "Neg", .of_one = negate, .is_exact = true},
    {.name = "Sqrt", .of_one = root},
    {.name = "Sub", .of_two = subtract},
    {.name = "Where", .is = CHOICE},
};

static const rule *rule_of(const fb_graph *g, fb_node node) {
    const char *name = fb_onnx_operator_name(g, node);
    for (size_t i = 0; name && i < sizeof rules / sizeof *rules; i++)
        if (strcmp(rules[i].name, name) == 0) return &rules[i];
    return NULL;
}

bool fb_bounds_begin_at(const fb_graph *graph, fb_node node) {
    const rule *found = rule_of(graph, node);
    return found && found->begins;
}

bool fb_bounds_go_on_at(const fb_graph *graph, fb_node node) {
    return rule_of(graph, node) != NULL;
}

/* The largest number of a dtype that is followed: far from overflow, and so that sums of two are exact in float64. */
static double limit_of(fb_dtype dtype) {
    return dtype == FB_FLOAT32 ? 1e30 : dtype == FB_FLOAT64 ? 1e300 : dtype == FB_INT32 ? 0x1p31 - 1 : 0x1p52;
}

/* A library's result is that close to the right one. Those of Log, Exp and float32 arithmetic are within some units of the last
 * place, and these are thirty times as wide. */
static range widen(fb_dtype dtype, range a) {
    double relative = dtype == FB_FLOAT32 ? 0x1p-18 : 0x1p-46;
    return (range){a.least - fabs(a.least) * relative - 1e-30, a.largest + fabs(a.largest) * relative + 1e-30};
}

static bool is_integer(fb_dtype dtype) {
    return dtype == FB_INT32 || dtype == FB_INT64;
}

/* Of a call's result; nan, and what is beyond the limit, becomes anything. */
static range settle(fb_dtype dtype, bool is_exact, range a) {
    if (!is_integer(dtype) && !is_exact) a = widen(dtype, a);
    bool is_within = a.least >= -limit_of(dtype) && a.largest <= limit_of(dtype);
    return is_within ? a : anything;
}

/* ---- whole tensors ------------------------------------------------------------------------------------------------------- */

enum { ELEMENTS_MAX = 1 << 20 };

typedef struct operand {
    fb_dtype dtype;
    fb_array *least, *largest; /* contiguous, of the result's sizes */
} operand;

static const double *numbers(const fb_array *array) {
    return fb_array_data(array);
}

static range element(const operand *of, int64_t i) {
    range a = {numbers(of->least)[i], numbers(of->largest)[i]};
    bool is_too_large = is_integer(of->dtype) && fmax(fabs(a.least), fabs(a.largest)) > limit_of(FB_INT64);
    return a.least <= a.largest && !is_too_large ? a : anything; /* nor where one is nan */
}

static fb_status spread(const fb_array *from, int rank, const int64_t *sizes, fb_array **out, fb_error *error) {
    fb_array *wide = NULL, *cast = NULL;
    fb_status status = fb_array_cast(from, FB_FLOAT64, &cast, error);
    if (!status) status = fb_array_broadcast(cast, rank, sizes, &wide, error);
    if (!status) status = fb_array_contiguous(wide, out, error);
    fb_array_drop(cast);
    fb_array_drop(wide);
    return status;
}

static fb_dtype dtype_of(const fb_bounded_input *input) {
    return input->bounded ? input->bounded->dtype : input->exact->dtype;
}

static range compute(const rule *of, fb_dtype to, const operand *operands, int64_t i) {
    range a = element(&operands[0], i);
    if (of->is == CHOICE) return element(&operands[a.least != 0 ? 1 : 2], i); /* as it is */
    if (isnan(a.least)) return anything;
    if (of->is == CAST)
        return settle(to, of->is_exact,
                      is_integer(to) && !is_integer(operands[0].dtype) ? (range){trunc(a.least), trunc(a.largest)} : a);
    if (of->of_one) return settle(to, of->is_exact, of->of_one(a));
    range b = element(&operands[1], i);
    return isnan(b.least) ? anything : settle(to, of->is_exact, of->of_two(a, b));
}

static bool fits(const rule *of, const fb_bounded_input *inputs, size_t count, fb_dtype to) {
    bool is_where = of->is == CHOICE, is_cast = of->is == CAST;
    size_t wanted = is_where ? 3 : of->of_two ? 2 : 1;
    bool is_right =
        count == wanted && (is_integer(to) || to == FB_FLOAT32 || to == FB_FLOAT64) && !(of->is_of_floats && is_integer(to));
    if (is_where) is_right = is_right && !inputs[0].bounded && inputs[0].exact->dtype == FB_BOOL;
    for (size_t i = is_where; i < count && is_right; i++) {
        fb_dtype from = dtype_of(&inputs[i]);
        is_right = is_cast ? is_integer(from) || from == FB_FLOAT32 || from == FB_FLOAT64 : from == to;
    }
    return is_right;
}

fb_status fb_bounded_of(const fb_graph *graph, fb_node node, const fb_bounded_input *inputs, size_t count,
                        fb_array_memory *memory, fb_bounded *out, fb_error *error) {
    const rule *of = rule_of(graph, node);
    operand operands[FB_BOUNDED_INPUTS] = {0};
    fb_dtype to = (fb_dtype)fb_node_at(graph, node)->dtype;
    int64_t sizes[FB_MAX_RANK];
    int rank = 0;
    fb_status status = FB_OK;
    *out = (fb_bounded){.dtype = to};
    bool is_known = of && fits(of, inputs, count, to);
    for (size_t k = 0; k < count && is_known; k++)
        is_known = fb_array_join_sizes(inputs[k].bounded ? inputs[k].bounded->least : inputs[k].exact, &rank, sizes);
    for (size_t k = 0; k < count && is_known && !status; k++) {
        const fb_bounded *bounded = inputs[k].bounded;
        operands[k].dtype = dtype_of(&inputs[k]);
        status = spread(bounded ? bounded->least : inputs[k].exact, rank, sizes, &operands[k].least, error);
        if (!status) status = spread(bounded ? bounded->largest : inputs[k].exact, rank, sizes, &operands[k].largest, error);
    }
    is_known = is_known && !status && fb_array_count(operands[0].least) <= ELEMENTS_MAX;
    if (is_known) status = fb_array_new(memory, FB_FLOAT64, rank, sizes, &out->least, error);
    if (is_known && !status) status = fb_array_new(memory, FB_FLOAT64, rank, sizes, &out->largest, error);
    double *least = status || !is_known ? NULL : fb_array_data(out->least);
    double *largest = status || !is_known ? NULL : fb_array_data(out->largest);
    for (int64_t i = 0, n = least ? fb_array_count(out->least) : 0; i < n && fb_work_goes_on(&memory->work, 16); i++) {
        range made = compute(of, to, operands, i);
        least[i] = made.least;
        largest[i] = made.largest;
    }
    for (size_t k = 0; k < FB_BOUNDED_INPUTS; k++) {
        fb_array_drop(operands[k].least);
        fb_array_drop(operands[k].largest);
    }
    if (status) fb_bounded_drop(out);
    return status ? status : fb_work_status(&memory->work, error);
}

fb_status fb_bounded_integers(const fb_bounded *bounded, fb_array **out, fb_error *error) {
    *out = NULL;
    if (!bounded->least || !is_integer(bounded->dtype)) return FB_OK;
    const double *least = numbers(bounded->least), *largest = numbers(bounded->largest);
    int64_t count = fb_array_count(bounded->least);
    for (int64_t i = 0; i < count; i++)
        if (!(least[i] == largest[i])) return FB_OK;
    return fb_array_cast(bounded->least, bounded->dtype, out, error);
}

void fb_bounded_drop(fb_bounded *bounded) {
    fb_array_drop(bounded->least);
    fb_array_drop(bounded->largest);
    *bounded = (fb_bounded){0};
}
