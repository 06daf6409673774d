/* The rules of values: elements of tensors that sizes are made of. Those that are not followed, or not known, are left out. */
#include <math.h>
#include <string.h>

#include "core/analysis/onnx_call.h"

#define ONNX_VALUE(name) fb_onnx_rule fb_onnx_value_##name;
#include "core/analysis/onnx_values.def"
#undef ONNX_VALUE

#define VALUE(name) void fb_onnx_value_##name(fb_onnx_call *c)

static element whole(fb_onnx_call *c, int64_t of) {
    return (element){.kind = FB_ONNX_INT, .integer = fb_size_of(c->sizes, of)};
}

static element of_size(size found) {
    return (element){.kind = found ? FB_ONNX_INT : FB_ONNX_UNKNOWN, .integer = found};
}

/* Is it a number in the dtype? A symbol is taken to be one, as sizes are. */
static element in_dtype(fb_onnx_call *c, element e, fb_dtype dtype) {
    static const int64_t least[FB_DTYPE_COUNT] = {[FB_INT32] = INT32_MIN, [FB_INT16] = INT16_MIN, [FB_INT8] = INT8_MIN},
                         most[FB_DTYPE_COUNT] = {
                             [FB_INT32] = INT32_MAX,   [FB_INT16] = INT16_MAX,   [FB_INT8] = INT8_MAX, [FB_UINT8] = UINT8_MAX,
                             [FB_UINT16] = UINT16_MAX, [FB_UINT32] = UINT32_MAX, [FB_BOOL] = 1};
    int64_t number;
    bool is_number = e.kind == FB_ONNX_INT && fb_size_is_number(c->sizes, e.integer, &number);
    bool is_right =
        dtype == FB_INT64 || (is_number ? most[dtype] && number >= least[dtype] && number <= most[dtype] : dtype == FB_INT32);
    return e.kind == FB_ONNX_INT && is_right ? e : (element){0};
}

VALUE(same) { /* in the same order */
    const type *x = fb_onnx_in(c, 0);
    uint32_t count;
    element *made = x->elements ? fb_onnx_elements(c, 0, &count) : NULL;
    if (made && count == x->count) memcpy(made, x->elements, count * sizeof *made);
}

VALUE(cast) {
    const type *x = fb_onnx_in(c, 0);
    fb_dtype to = c->results[0].dtype;
    uint32_t count;
    element *made = x->elements ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count && count == x->count; i++) {
        element e = x->elements[i];
        int64_t number;
        bool is_number = e.kind == FB_ONNX_INT && fb_size_is_number(c->sizes, e.integer, &number);
        bool is_real = to == FB_FLOAT32 || to == FB_FLOAT64;
        if (to == FB_BOOL) made[i] = is_number ? whole(c, number != 0) : (element){0};
        else if (e.kind == FB_ONNX_INT && is_real)
            made[i] = is_number
                          ? (element){.kind = FB_ONNX_REAL, .real = to == FB_FLOAT32 ? (double)(float)number : (double)number}
                          : (element){0};
        else if (e.kind == FB_ONNX_INT && fb_dtype_is_integer(to)) made[i] = in_dtype(c, e, to);
        else if (e.kind == FB_ONNX_REAL && is_real)
            made[i] = (element){.kind = FB_ONNX_REAL, .real = to == FB_FLOAT32 ? (double)(float)e.real : e.real};
        else if (e.kind == FB_ONNX_REAL && fb_dtype_is_integer(to) && fabs(e.real) < 2147483647.0)
            made[i] = in_dtype(c, whole(c, (int64_t)e.real), to);
    }
}

/* ---- arithmetic ---------------------------------------------------------------------------------------------------------- */

typedef enum operation { ADD, SUB, MUL, DIV, MOD, MAX, MIN, EQUAL, LESS, LESS_OR_EQUAL, AND, OR } operation;

static element of_numbers(fb_onnx_call *c, operation o, int64_t a, int64_t b) {
    int64_t made = 0;
    bool ok = true;
    switch (o) {
    case ADD: ok = !__builtin_add_overflow(a, b, &made); break;
    case SUB: ok = !__builtin_sub_overflow(a, b, &made); break;
    case MUL: ok = !__builtin_mul_overflow(a, b, &made); break;
    case DIV:
        ok = b && b != -1;
        made = ok ? a / b : 0;
        break;
    case MOD: /* the sign of the divisor, unless fmod says otherwise */
        ok = b && b != -1;
        made = ok ? a % b : 0;
        if (made && (made < 0) != (b < 0) && !fb_onnx_int(c, "fmod", 0)) made += b;
        break;
    case MAX: made = a > b ? a : b; break;
    case MIN: made = a < b ? a : b; break;
    case EQUAL: made = a == b; break;
    case LESS: made = a < b; break;
    case LESS_OR_EQUAL: made = a <= b; break;
    case AND: made = a && b; break;
    case OR: made = a || b; break;
    }
    return ok ? whole(c, made) : (element){0};
}

static element of_reals(fb_onnx_call *c, operation o, double a, double b, fb_dtype dtype) {
    double made;
    switch (o) {
    case ADD: made = a + b; break;
    case SUB: made = a - b; break;
    case MUL: made = a * b; break;
    case DIV: made = a / b; break;
    case EQUAL: return whole(c, a == b);
    case LESS: return whole(c, a < b);
    case LESS_OR_EQUAL: return whole(c, a <= b);
    default: return (element){0};
    }
    return (element){.kind = FB_ONNX_REAL, .real = dtype == FB_FLOAT32 ? (double)(float)made : made};
}

static element of_sizes(fb_onnx_call *c, operation o, size a, size b) {
    switch (o) {
    case ADD: return of_size(fb_size_add(c->sizes, a, b));
    case SUB: return of_size(fb_size_sub(c->sizes, a, b));
    case MUL: return of_size(fb_size_mul(c->sizes, a, b));
    case DIV: return of_size(fb_size_div(c->sizes, a, b));
    case MAX:
    case MIN: return a == b ? of_size(a) : of_size(fb_size_of_two(c->sizes, (int)o, a, b));
    case EQUAL:
    case LESS_OR_EQUAL: {
        int64_t number;
        if (a == b) return whole(c, 1);
        /* No size is below 0. */
        bool is_negative =
            fb_size_is_number(c->sizes, a, &number) ? number < 0 : fb_size_is_number(c->sizes, b, &number) && number < 0;
        bool is_size = fb_size_is_plain(c->sizes, a) || fb_size_is_plain(c->sizes, b);
        return o == EQUAL && is_negative && is_size ? whole(c, 0) : (element){0};
    }
    case LESS: return a == b ? whole(c, 0) : (element){0};
    default: return (element){0};
    }
}

/* Of two, each of one element, or both of as many in one dimension. */
static void combine(fb_onnx_call *c, operation o, bool is_turned) {
    uint32_t count;
    const type *a = fb_onnx_in(c, is_turned), *b = fb_onnx_in(c, !is_turned);
    if (fb_onnx_inputs(c) != 2 || !a->elements || !b->elements || a->rank > 1 || b->rank > 1) return;
    if (!fb_dtype_is_integer(a->dtype) && a->dtype != FB_FLOAT32 && a->dtype != FB_FLOAT64) return;
    element *made = fb_onnx_elements(c, 0, &count);
    for (uint32_t i = 0; made && i < count; i++) {
        if ((a->count != 1 && a->count != count) || (b->count != 1 && b->count != count)) return;
        element x = a->elements[a->count == 1 ? 0 : i], y = b->elements[b->count == 1 ? 0 : i];
        int64_t m, n;
        if (x.kind == FB_ONNX_REAL && y.kind == FB_ONNX_REAL) {
            made[i] = of_reals(c, o, x.real, y.real, a->dtype);
        } else if (x.kind == FB_ONNX_INT && y.kind == FB_ONNX_INT) {
            bool are_numbers = fb_size_is_number(c->sizes, x.integer, &m) && fb_size_is_number(c->sizes, y.integer, &n);
            made[i] = are_numbers ? of_numbers(c, o, m, n) : of_sizes(c, o, x.integer, y.integer);
            made[i] = in_dtype(c, made[i], c->results[0].dtype);
        }
    }
}

VALUE(add) {
    combine(c, ADD, false);
}
VALUE(sub) {
    combine(c, SUB, false);
}
VALUE(mul) {
    combine(c, MUL, false);
}
VALUE(div) {
    combine(c, DIV, false);
}
VALUE(mod) {
    combine(c, MOD, false);
}
VALUE(max) {
    combine(c, MAX, false);
}
VALUE(min) {
    combine(c, MIN, false);
}
VALUE(equal) {
    combine(c, EQUAL, false);
}
VALUE(less) {
    combine(c, LESS, false);
}
VALUE(less_or_equal) {
    combine(c, LESS_OR_EQUAL, false);
}
VALUE(greater) {
    combine(c, LESS, true);
}
VALUE(greater_or_equal) {
    combine(c, LESS_OR_EQUAL, true);
}
VALUE(and) {
    combine(c, AND, false);
}
VALUE(or) {
    combine(c, OR, false);
}

static void each(fb_onnx_call *c, element function(fb_onnx_call *c, element e)) {
    const type *x = fb_onnx_in(c, 0);
    uint32_t count;
    bool is_followed = fb_dtype_is_integer(x->dtype) || x->dtype == FB_FLOAT32 || x->dtype == FB_FLOAT64;
    element *made = x->elements && is_followed ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count && count == x->count; i++) {
        made[i] = function(c, x->elements[i]);
        if (made[i].kind == FB_ONNX_INT) made[i] = in_dtype(c, made[i], c->results[0].dtype);
    }
}

static element not_of(fb_onnx_call *c, element e) {
    int64_t number;
    return e.kind == FB_ONNX_INT && fb_size_is_number(c->sizes, e.integer, &number) ? whole(c, !number) : (element){0};
}

static element neg_of(fb_onnx_call *c, element e) {
    if (e.kind == FB_ONNX_REAL) return (element){.kind = FB_ONNX_REAL, .real = -e.real};
    return e.kind ? of_size(fb_size_mul(c->sizes, e.integer, fb_size_of(c->sizes, -1))) : e;
}

static element abs_of(fb_onnx_call *c, element e) {
    int64_t number;
    if (e.kind == FB_ONNX_REAL) return (element){.kind = FB_ONNX_REAL, .real = fabs(e.real)};
    bool is_number = e.kind && fb_size_is_number(c->sizes, e.integer, &number) && number != INT64_MIN;
    return is_number ? whole(c, number < 0 ? -number : number) : (element){0};
}

static element floor_of(fb_onnx_call *c, element e) {
    (void)c;
    return e.kind == FB_ONNX_REAL ? (element){.kind = FB_ONNX_REAL, .real = floor(e.real)} : (element){0};
}

static element ceil_of(fb_onnx_call *c, element e) {
    (void)c;
    return e.kind == FB_ONNX_REAL ? (element){.kind = FB_ONNX_REAL, .real = ceil(e.real)} : (element){0};
}

VALUE(not ) {
    each(c, not_of);
}
VALUE(neg) {
    each(c, neg_of);
}
VALUE(abs) {
    each(c, abs_of);
}
VALUE(floor) {
    each(c, floor_of);
}
VALUE(ceil) {
    each(c, ceil_of);
}

VALUE(where) {
    const type *of = fb_onnx_in(c, 0), *yes = fb_onnx_in(c, 1), *no = fb_onnx_in(c, 2);
    uint32_t count;
    int64_t is_true;
    if (!of->elements || of->rank > 1 || yes->rank > 1 || no->rank > 1) return;
    element *made = fb_onnx_elements(c, 0, &count);
    for (uint32_t i = 0; made && i < count; i++) {
        if (of->count != 1 && of->count != count) return;
        element condition = of->elements[of->count == 1 ? 0 : i];
        if (condition.kind != FB_ONNX_INT || !fb_size_is_number(c->sizes, condition.integer, &is_true)) continue;
        const type *from = is_true ? yes : no;
        if (from->elements && (from->count == 1 || from->count == count)) made[i] = from->elements[from->count == 1 ? 0 : i];
    }
}

/* ---- where elements are -------------------------------------------------------------------------------------------------- */

VALUE(concat) {
    uint32_t count, at = 0;
    if (c->results[0].rank != 1) return;
    element *made = fb_onnx_elements(c, 0, &count);
    for (uint32_t i = 0; made && i < fb_onnx_inputs(c); i++) {
        const type *x = fb_onnx_in(c, i);
        int64_t length;
        if (x->rank != 1 || !fb_size_is_number(c->sizes, x->sizes[0], &length) || at + length > count) return;
        for (int64_t k = 0; k < length; k++, at++)
            if (x->elements) made[at] = x->elements[k];
    }
}

VALUE(gather) { /* out of one dimension */
    const type *x = fb_onnx_in(c, 0), *at = fb_onnx_in(c, 1);
    uint32_t count;
    int64_t index;
    if (x->rank != 1 || !x->elements || !at->elements) return;
    element *made = fb_onnx_elements(c, 0, &count);
    for (uint32_t i = 0; made && i < count && count == at->count; i++) {
        element e = at->elements[i];
        if (e.kind != FB_ONNX_INT || !fb_size_is_number(c->sizes, e.integer, &index)) continue;
        if (index < 0) index += x->count;
        if (index >= 0 && index < x->count) made[i] = x->elements[index];
    }
}

VALUE(slice) { /* of one dimension */
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list starts = fb_onnx_list_of(c, "starts", 1),
                 by = c->version < 10 ? (fb_onnx_list){0} : fb_onnx_list_of(c, "steps", 4);
    int64_t start[FB_ONNX_ELEMENTS], step[FB_ONNX_ELEMENTS] = {1};
    uint32_t count;
    if (x->rank != 1 || !x->elements || !fb_onnx_all_ints(c, &starts, start) || starts.count != 1) return;
    if (by.is_given && (!fb_onnx_all_ints(c, &by, step) || by.count != 1)) return;
    element *made = fb_onnx_elements(c, 0, &count);
    int64_t from = start[0], all = x->count;
    if (from < 0) from = from < -all ? -1 : from + all;
    from = from < 0 ? 0 : from > all ? all : from;
    if (step[0] < 0 && from > all - 1) from = all - 1;
    for (uint32_t i = 0; made && i < count; i++) {
        int64_t at = from + (int64_t)i * step[0];
        if (at >= 0 && at < all) made[i] = x->elements[at];
    }
}

VALUE(split) { /* of one dimension */
    const type *x = fb_onnx_in(c, 0);
    int64_t at = 0;
    for (uint32_t i = 0; i < c->wanted && x->rank == 1 && x->elements; i++) {
        uint32_t count;
        element *made = fb_onnx_elements(c, i, &count);
        if (!made || at + count > x->count) return;
        memcpy(made, x->elements + at, count * sizeof *made);
        at += count;
    }
}

VALUE(expand) { /* of one element */
    const type *x = fb_onnx_in(c, 0);
    uint32_t count;
    element *made = x->elements ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count && (x->count == 1 || (x->count == count && x->rank == 1)); i++)
        made[i] = x->elements[x->count == 1 ? 0 : i];
}

VALUE(constant) {
    static const char *const names[] = {"value_int", "value_ints", "value_float", "value_floats"};
    uint32_t count;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!fb_onnx_attribute(c, names[i]).id) continue;
        fb_onnx_list list = fb_onnx_list_of(c, names[i], 0);
        element *made = list.is_known ? fb_onnx_elements(c, 0, &count) : NULL;
        if (made && count == list.count) memcpy(made, list.items, count * sizeof *made);
    }
}

VALUE(constant_of_shape) {
    fb_value value = fb_onnx_attribute(c, "value");
    fb_node read = fb_value_node(c->graph, value);
    const type *of = read.id ? fb_onnx_type_of(c->types, read) : NULL;
    uint32_t count;
    element fill = {.kind = FB_ONNX_REAL};
    if (of) fill = of->elements && of->count == 1 ? of->elements[0] : (element){0};
    element *made = fill.kind ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count; i++) made[i] = fill;
}

VALUE(range) {
    const type *from = fb_onnx_in(c, 0), *by = fb_onnx_in(c, 2);
    int64_t start, step;
    uint32_t count;
    bool is_known = from->elements && by->elements && from->count == 1 && by->count == 1 &&
                    fb_onnx_numbers(c->types, from, &start) && fb_onnx_numbers(c->types, by, &step);
    element *made = is_known ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count; i++) made[i] = whole(c, start + (int64_t)i * step);
}

/* All elements of one dimension. */
static void reduce(fb_onnx_call *c, operation o) {
    const type *x = fb_onnx_in(c, 0);
    uint32_t count;
    if (x->rank != 1 || !x->elements || !fb_dtype_is_integer(x->dtype)) return;
    fb_onnx_list axes = fb_onnx_list_of(c, "axes", 1);
    bool is_nothing = !axes.is_given || (axes.is_known && !axes.count);
    if (is_nothing && fb_onnx_int(c, "noop_with_empty_axes", 0)) return;
    element *made = fb_onnx_elements(c, 0, &count);
    element all = whole(c, o == MUL);
    for (uint32_t i = 0; made && i < x->count && all.kind; i++) {
        size other = x->elements[i].kind == FB_ONNX_INT ? x->elements[i].integer : 0;
        all = other ? of_size(o == MUL ? fb_size_mul(c->sizes, all.integer, other) : fb_size_add(c->sizes, all.integer, other))
                    : (element){0};
    }
    if (made && count == 1) made[0] = in_dtype(c, all, c->results[0].dtype);
}

VALUE(reduce_prod) {
    reduce(c, MUL);
}

VALUE(reduce_sum) {
    reduce(c, ADD);
}
