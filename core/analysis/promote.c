/* torch's type promotion: aten/src/ATen/native/TypeProperties.cpp. */
#include "core/analysis/shape.h"

fb_dtype fb_to_floating(fb_dtype dtype) {
    return fb_dtype_is_integer(dtype) ? FB_FLOAT32 : dtype;
}

typedef enum category { NOTHING, BOOLEAN, INTEGRAL, FLOATING, COMPLEX } category;

static category category_of(fb_dtype dtype) {
    if (dtype == FB_DTYPE_UNKNOWN) return NOTHING;
    if (dtype == FB_BOOL) return BOOLEAN;
    if (fb_dtype_is_integer(dtype)) return INTEGRAL;
    return fb_dtype_is_complex(dtype) ? COMPLEX : FLOATING;
}

static fb_dtype promote_floating(fb_dtype a, fb_dtype b) {
    if (fb_dtype_size(a) < 2 || fb_dtype_size(b) < 2) return FB_DTYPE_UNKNOWN; /* float8: torch refuses */
    if (fb_dtype_size(a) == fb_dtype_size(b)) return FB_FLOAT32;               /* float16 and bfloat16 */
    return fb_dtype_size(a) > fb_dtype_size(b) ? a : b;
}

static fb_dtype promote_integral(fb_dtype a, fb_dtype b) {
    bool has_wide_unsigned =
        a == FB_UINT16 || a == FB_UINT32 || a == FB_UINT64 || b == FB_UINT16 || b == FB_UINT32 || b == FB_UINT64;
    if (has_wide_unsigned) return FB_DTYPE_UNKNOWN;
    if (fb_dtype_size(a) == fb_dtype_size(b)) return FB_INT16; /* int8 and uint8 */
    return fb_dtype_size(a) > fb_dtype_size(b) ? a : b;
}

fb_dtype fb_promote(fb_dtype a, fb_dtype b) {
    if (a == b) return a;
    category of_a = category_of(a), of_b = category_of(b);
    if (of_a == NOTHING || of_b == NOTHING) return FB_DTYPE_UNKNOWN;
    if (of_a == COMPLEX || of_b == COMPLEX) {
        if (a == FB_COMPLEX32 || b == FB_COMPLEX32) return FB_DTYPE_UNKNOWN;
        bool is_double = a == FB_COMPLEX128 || b == FB_COMPLEX128 || a == FB_FLOAT64 || b == FB_FLOAT64;
        return is_double ? FB_COMPLEX128 : FB_COMPLEX64;
    }
    if (of_a != of_b) return of_a > of_b ? a : b;
    return of_a == FLOATING ? promote_floating(a, b) : promote_integral(a, b);
}

/* Tensors with dimensions, tensors without, and Python numbers are promoted apart: a group counts only when its category is
 * higher than any before it. */
typedef struct promotion {
    fb_dtype dimensioned, scalar, number;
    bool has_tensor, is_unknown, has_unknown_number;
} promotion;

static void join(fb_dtype *group, fb_dtype dtype, bool *is_unknown) {
    fb_dtype joined = *group ? fb_promote(*group, dtype) : dtype;
    *is_unknown |= joined == FB_DTYPE_UNKNOWN;
    *group = joined;
}

static void add_operand(promotion *p, const fb_operand *operand) {
    if (operand->kind == FB_OPERAND_TENSOR) {
        p->has_tensor = true;
        if (!operand->type.dtype) p->is_unknown = true;
        else join(operand->type.rank == 0 ? &p->scalar : &p->dimensioned, operand->type.dtype, &p->is_unknown);
    }
    if (operand->kind == FB_OPERAND_NUMBER) {
        if (operand->number) join(&p->number, operand->number, &p->is_unknown);
        else p->has_unknown_number = true;
    }
}

static fb_dtype combine(promotion *p, fb_dtype higher, fb_dtype lower) {
    if (!higher) return lower;
    if (!lower) return higher;
    category of_higher = category_of(higher), of_lower = category_of(lower);
    bool is_widened = of_higher == FLOATING && of_lower == COMPLEX;
    p->is_unknown |= is_widened && higher == FB_FLOAT16; /* complex32, with which nothing computes */
    if (is_widened) return higher == FB_FLOAT64 ? FB_COMPLEX128 : FB_COMPLEX64;
    return of_higher >= of_lower ? higher : fb_promote(higher, lower);
}

static fb_dtype result(promotion *p) {
    fb_dtype dtype = combine(p, p->dimensioned, combine(p, p->scalar, p->number));
    if (p->is_unknown || !p->has_tensor) return FB_DTYPE_UNKNOWN;
    /* A number that is computed is an int or a float: only a floating result is sure to stay. */
    return p->has_unknown_number && category_of(dtype) < FLOATING ? FB_DTYPE_UNKNOWN : dtype;
}

fb_dtype fb_default_dtype(fb_dtype dtype) {
    static const fb_dtype numbers[] = {FB_DTYPE_UNKNOWN, FB_BOOL, FB_INT64, FB_FLOAT32, FB_COMPLEX64};
    return numbers[category_of(dtype)];
}

fb_operand fb_as_number(fb_operand operand) {
    return (fb_operand){.kind = FB_OPERAND_NUMBER, .number = fb_default_dtype(operand.type.dtype), .type = {.rank = -1}};
}

/* A tensor of unknown rank may or may not have dimensions. That matters only when dtypes differ within its category. */
static bool ranks_matter(const fb_operand *operands, int count) {
    fb_dtype first = FB_DTYPE_UNKNOWN;
    bool differs = false, has_unknown_rank = false;
    for (int i = 0; i < count; i++) {
        if (operands[i].kind != FB_OPERAND_TENSOR) continue;
        has_unknown_rank |= operands[i].type.rank < 0;
        differs |= first && operands[i].type.dtype != first;
        first = operands[i].type.dtype;
    }
    return differs && has_unknown_rank;
}

fb_dtype fb_promote_all(const fb_operand *operands, int count) {
    promotion p = {0};
    if (ranks_matter(operands, count)) return FB_DTYPE_UNKNOWN;
    for (int i = 0; i < count; i++) add_operand(&p, &operands[i]);
    return result(&p);
}
