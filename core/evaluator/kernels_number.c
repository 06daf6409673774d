/* Python's arithmetic on numbers and sequences, for operators that also take tensors. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/number.h"
#include "core/evaluator/internal.h"

static bool give_number(fb_object *result, fb_number number) {
    *result = number.is_int ? (fb_object){.kind = FB_OBJECT_INT, .integer = number.integer}
                            : (fb_object){.kind = FB_OBJECT_FLOAT, .number = number.real};
    return true;
}

static bool give_bool(fb_object *result, bool boolean) {
    *result = (fb_object){.kind = FB_OBJECT_BOOL, .boolean = boolean};
    return true;
}

static bool compare(fb_arithmetic op, fb_number a, fb_number b, fb_object *result) {
    bool are_ints = a.is_int && b.is_int;
    bool less = are_ints ? a.integer < b.integer : a.real < b.real;
    bool equal = are_ints ? a.integer == b.integer : a.real == b.real;
    bool more = are_ints ? a.integer > b.integer : a.real > b.real;
    switch (op) {
    case FB_ARITHMETIC_EQ: return give_bool(result, equal);
    case FB_ARITHMETIC_NE: return give_bool(result, !equal);
    case FB_ARITHMETIC_LT: return give_bool(result, less);
    case FB_ARITHMETIC_LE: return give_bool(result, less || equal);
    case FB_ARITHMETIC_GT: return give_bool(result, more);
    default: return give_bool(result, more || equal);
    }
}

/* Calculates with the bits of ints; bits of two bools are a bool. False: Python would raise, or it is not an int of 64 bits. */
static bool calculate_bits(fb_arithmetic op, int64_t a, int64_t b, bool are_bools, fb_object *result) {
    int64_t integer = b < 63 ? a >> (b & 63) : a >> 63;
    switch (op) {
    case FB_ARITHMETIC_AND: integer = a & b; break;
    case FB_ARITHMETIC_OR: integer = a | b; break;
    case FB_ARITHMETIC_XOR: integer = a ^ b; break;
    case FB_ARITHMETIC_SHIFT_LEFT:
        if (b < 0 || b >= 63 || __builtin_mul_overflow(a, (int64_t)1 << b, &integer)) return false;
        return give_number(result, fb_number_of_int(integer));
    default: return b >= 0 && give_number(result, fb_number_of_int(integer)); /* SHIFT_RIGHT */
    }
    return are_bools ? give_bool(result, integer != 0) : give_number(result, fb_number_of_int(integer));
}

static bool calculate(fb_arithmetic op, fb_number a, fb_number b, bool are_bools, fb_object *result) {
    fb_number number;
    switch (op) {
    case FB_ARITHMETIC_EQ:
    case FB_ARITHMETIC_NE:
    case FB_ARITHMETIC_LT:
    case FB_ARITHMETIC_LE:
    case FB_ARITHMETIC_GT:
    case FB_ARITHMETIC_GE: return compare(op, a, b, result);
    case FB_ARITHMETIC_AND:
    case FB_ARITHMETIC_OR:
    case FB_ARITHMETIC_XOR:
    case FB_ARITHMETIC_SHIFT_LEFT:
    case FB_ARITHMETIC_SHIFT_RIGHT: return a.is_int && b.is_int && calculate_bits(op, a.integer, b.integer, are_bools, result);
    default: return fb_number_calculate(op, a, b, &number) && give_number(result, number);
    }
}

static bool calculate_one(fb_arithmetic op, fb_number a, fb_object *result) {
    fb_number number;
    switch (op) {
    case FB_ARITHMETIC_NOT: return a.is_int && give_number(result, fb_number_of_int(~a.integer));
    case FB_ARITHMETIC_FLOOR:
    case FB_ARITHMETIC_CEIL:
    case FB_ARITHMETIC_ROUND: {
        if (a.is_int) return give_number(result, a);
        double whole = op == FB_ARITHMETIC_FLOOR ? floor(a.real) : op == FB_ARITHMETIC_CEIL ? ceil(a.real) : nearbyint(a.real);
        return fabs(whole) < 0x1p63 && give_number(result, fb_number_of_int((int64_t)whole));
    }
    default: return fb_number_calculate_one(op, a, &number) && give_number(result, number);
    }
}

/* ---- sequences --------------------------------------------------------------------------------------------------------- */

#define STEPS_OF_AN_ITEM 10

/* False: it cannot be known. */
static bool compare_objects(fb_kernel_call *call, const fb_object *a, const fb_object *b, bool *equal) {
    double x, y;
    if (fb_object_number(a, &x) && fb_object_number(b, &y)) {
        bool are_ints = a->kind == FB_OBJECT_INT && b->kind == FB_OBJECT_INT;
        *equal = are_ints ? a->integer == b->integer : x == y;
        return true;
    }
    *equal = false;
    bool is_known =
        a->kind != FB_OBJECT_OTHER && b->kind != FB_OBJECT_OTHER && a->kind != FB_OBJECT_ARRAY && b->kind != FB_OBJECT_ARRAY;
    if (!is_known || a->kind != b->kind) return is_known;
    switch (a->kind) {
    case FB_OBJECT_ELLIPSIS:
    case FB_OBJECT_NONE: *equal = true; return true;
    case FB_OBJECT_STRING: *equal = strcmp(a->text, b->text) == 0; return true;
    case FB_OBJECT_DTYPE: *equal = a->dtype == b->dtype; return a->dtype != FB_DTYPE_UNKNOWN;
    case FB_OBJECT_DEVICE: *equal = strcmp(a->text, b->text) == 0; return true;
    case FB_OBJECT_LIST:
    case FB_OBJECT_TUPLE:
        if (a->items->count != b->items->count) return true;
        *equal = true;
        if (!fb_kernel_takes(call, STEPS_OF_AN_ITEM * (double)a->items->count)) return false;
        for (size_t i = 0; i < a->items->count && *equal && fb_kernel_goes_on(call, STEPS_OF_AN_ITEM); i++)
            if (!compare_objects(call, &a->items->objects[i], &b->items->objects[i], equal)) return false;
        return true;
    default: return false;
    }
}

/* a + b, or a b times. */
static bool repeat(fb_kernel_call *call, const fb_object *a, const fb_object *b, int64_t times, fb_object *result) {
    size_t count = a->items->count, all;
    if (b) all = count + b->items->count;
    else if (__builtin_mul_overflow(count, (size_t)(times > 0 ? times : 0), &all)) return false;
    if (all > 1000000) return false;
    call->status = fb_object_sequence(a->kind, all, result, call->error);
    for (size_t i = 0; i < all && !call->status; i++) {
        result->items->objects[i] = b && i >= count ? b->items->objects[i - count] : a->items->objects[i % count];
        fb_object_keep(&result->items->objects[i]);
    }
    return true;
}

static bool calculate_others(fb_kernel_call *call, const fb_object *a, const fb_object *b, fb_object *result) {
    int64_t times;
    bool equal;
    if (b && (call->op == FB_OP_EQ || call->op == FB_OP_NE))
        return compare_objects(call, a, b, &equal) && give_bool(result, equal == (call->op == FB_OP_EQ));
    if (b && call->op == FB_OP_MUL && fb_object_is_sequence(b) && fb_object_int(a, &times))
        return repeat(call, b, NULL, times, result);
    if (!b || !fb_object_is_sequence(a)) return false;
    if (call->op == FB_OP_ADD && a->kind == b->kind) return repeat(call, a, b, 0, result);
    if (call->op == FB_OP_MUL && fb_object_int(b, &times)) return repeat(call, a, NULL, times, result);
    return false;
}

bool fb_python_arithmetic(fb_kernel_call *call, fb_object *result) {
    const fb_object *a = fb_argument(call, "input"), *b = fb_argument(call, call->op == FB_OP_POW ? "exponent" : "other");
    if (call->status || !a || a->kind == FB_OBJECT_ARRAY || (b && b->kind == FB_OBJECT_ARRAY)) return false;
    fb_arithmetic op = fb_op_arithmetic_of_numbers(call->op);
    fb_number x = {.is_int = a->kind <= FB_OBJECT_INT}, y = {.is_int = b && b->kind <= FB_OBJECT_INT};
    bool are_numbers = fb_object_number(a, &x.real) && (!b || fb_object_number(b, &y.real)), is_done;
    if (x.is_int) fb_object_int(a, &x.integer);
    if (y.is_int) fb_object_int(b, &y.integer);
    if (!are_numbers) is_done = calculate_others(call, a, b, result);
    else if (!b) is_done = calculate_one(op, x, result);
    else is_done = calculate(op, x, y, a->kind == FB_OBJECT_BOOL && b->kind == FB_OBJECT_BOOL, result);
    if (!is_done) fb_kernel_unsupported(call, "Python's numbers do not give one here");
    return is_done;
}
