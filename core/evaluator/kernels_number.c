/* Python's arithmetic on numbers and sequences, for operators that take tensors, too. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/evaluator/internal.h"

typedef struct fb_pair_of {
    const fb_object *a, *b; /* b NULL = a unary operator */
    bool are_ints;
    int64_t x, y;
    double p, q;
} fb_pair_of;

static bool give_int(fb_object *result, int64_t integer) {
    *result = (fb_object){.kind = FB_OBJECT_INT, .integer = integer};
    return true;
}

static bool give_float(fb_object *result, double number) {
    *result = (fb_object){.kind = FB_OBJECT_FLOAT, .number = number};
    return true;
}

static bool give_bool(fb_object *result, bool boolean) {
    *result = (fb_object){.kind = FB_OBJECT_BOOL, .boolean = boolean};
    return true;
}

/* Quotient and remainder towards minus infinity, as Python's // and %. */
static bool floor_divide(const fb_pair_of *pair, bool wants_remainder, fb_object *result) {
    if (pair->are_ints) {
        if (pair->y == 0 || (pair->y == -1 && pair->x == INT64_MIN)) return false;
        int64_t quotient = pair->x / pair->y, remainder = pair->x % pair->y;
        if (remainder && (remainder < 0) != (pair->y < 0)) {
            quotient--;
            remainder += pair->y;
        }
        return give_int(result, wants_remainder ? remainder : quotient);
    }
    if (pair->q == 0) return false;
    /* float_divmod of CPython's floatobject.c: the quotient follows from the remainder. */
    double remainder = fmod(pair->p, pair->q), quotient = (pair->p - remainder) / pair->q;
    if (remainder == 0) remainder = copysign(0, pair->q);
    else if ((remainder < 0) != (pair->q < 0)) {
        remainder += pair->q;
        quotient -= 1;
    }
    if (wants_remainder) return give_float(result, remainder);
    if (quotient == 0) return give_float(result, copysign(0, pair->p / pair->q));
    double whole = floor(quotient);
    return give_float(result, quotient - whole > 0.5 ? whole + 1 : whole);
}

static bool power(const fb_pair_of *pair, fb_object *result) {
    if (!pair->are_ints || pair->y < 0) {
        if (pair->p < 0 && pair->q != floor(pair->q)) return false; /* complex */
        if (pair->p == 0 && pair->q < 0) return false;
        return give_float(result, pow(pair->p, pair->q));
    }
    int64_t all = 1, exponent = pair->y;
    if (pair->x >= -1 && pair->x <= 1) exponent = exponent < 2 ? exponent : 2 + exponent % 2; /* as that of -1, 0 and 1 */
    for (int64_t i = 0; i < exponent; i++)                                                    /* ends by its overflow */
        if (__builtin_mul_overflow(all, pair->x, &all)) return false;
    return give_int(result, all);
}

static bool compare(fb_op op, const fb_pair_of *pair, fb_object *result) {
    bool less = pair->are_ints ? pair->x < pair->y : pair->p < pair->q;
    bool equal = pair->are_ints ? pair->x == pair->y : pair->p == pair->q;
    bool more = pair->are_ints ? pair->x > pair->y : pair->p > pair->q;
    switch (op) {
    case FB_OP_EQ: return give_bool(result, equal);
    case FB_OP_NE: return give_bool(result, !equal);
    case FB_OP_LT: return give_bool(result, less);
    case FB_OP_LE: return give_bool(result, less || equal);
    case FB_OP_GT: return give_bool(result, more);
    default: return give_bool(result, more || equal);
    }
}

/* Bits of two bools are a bool. */
static bool give_like(const fb_pair_of *pair, int64_t integer, fb_object *result) {
    bool are_bools = pair->a->kind == FB_OBJECT_BOOL && pair->b->kind == FB_OBJECT_BOOL;
    return are_bools ? give_bool(result, integer != 0) : give_int(result, integer);
}

/* False: Python would raise, or the result is not a number that we have. */
static bool calculate(fb_op op, const fb_pair_of *pair, fb_object *result) {
    int64_t integer;
    switch (op) {
    case FB_OP_ADD:
        if (!pair->are_ints) return give_float(result, pair->p + pair->q);
        return !__builtin_add_overflow(pair->x, pair->y, &integer) && give_int(result, integer);
    case FB_OP_SUB:
        if (!pair->are_ints) return give_float(result, pair->p - pair->q);
        return !__builtin_sub_overflow(pair->x, pair->y, &integer) && give_int(result, integer);
    case FB_OP_MUL:
        if (!pair->are_ints) return give_float(result, pair->p * pair->q);
        return !__builtin_mul_overflow(pair->x, pair->y, &integer) && give_int(result, integer);
    case FB_OP_TRUE_DIVIDE: return pair->q != 0 && give_float(result, pair->p / pair->q);
    case FB_OP_FLOOR_DIVIDE: return floor_divide(pair, false, result);
    case FB_OP_REMAINDER: return floor_divide(pair, true, result);
    case FB_OP_POW: return power(pair, result);
    case FB_OP_EQ:
    case FB_OP_NE:
    case FB_OP_LT:
    case FB_OP_LE:
    case FB_OP_GT:
    case FB_OP_GE: return compare(op, pair, result);
    case FB_OP_BITWISE_AND: return pair->are_ints && give_like(pair, pair->x & pair->y, result);
    case FB_OP_BITWISE_OR: return pair->are_ints && give_like(pair, pair->x | pair->y, result);
    case FB_OP_BITWISE_XOR: return pair->are_ints && give_like(pair, pair->x ^ pair->y, result);
    case FB_OP_SHIFT_LEFT:
        return pair->are_ints && pair->y >= 0 && pair->y < 63 &&
               !__builtin_mul_overflow(pair->x, (int64_t)1 << pair->y, &integer) && give_int(result, integer);
    case FB_OP_SHIFT_RIGHT: return pair->are_ints && pair->y >= 0 && give_int(result, pair->x >> (pair->y < 63 ? pair->y : 63));
    default: return false;
    }
}

static bool calculate_one(fb_kernel_call *call, const fb_pair_of *pair, fb_object *result) {
    switch (call->op) {
    case FB_OP_NEG:
        if (!pair->are_ints) return give_float(result, -pair->p);
        return pair->x != INT64_MIN && give_int(result, -pair->x);
    case FB_OP_POSITIVE: return pair->are_ints ? give_int(result, pair->x) : give_float(result, pair->p);
    case FB_OP_ABS:
        if (!pair->are_ints) return give_float(result, fabs(pair->p));
        return pair->x != INT64_MIN && give_int(result, llabs(pair->x));
    case FB_OP_BITWISE_NOT: return pair->are_ints && give_int(result, ~pair->x);
    case FB_OP_FLOOR:
    case FB_OP_CEIL:
    case FB_OP_ROUND: {
        if (pair->are_ints) return give_int(result, pair->x);
        double whole = call->op == FB_OP_FLOOR ? floor(pair->p) : call->op == FB_OP_CEIL ? ceil(pair->p) : nearbyint(pair->p);
        return fabs(whole) < 0x1p63 && give_int(result, (int64_t)whole);
    }
    default: return false;
    }
}

/* ---- sequences --------------------------------------------------------------------------------------------------------- */

#define STEPS_OF_AN_ITEM 10

/* False: it cannot be told. */
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
    fb_pair_of pair = {.a = a, .b = b, .are_ints = a->kind <= FB_OBJECT_INT && (!b || b->kind <= FB_OBJECT_INT)};
    bool are_numbers = fb_object_number(a, &pair.p) && (!b || fb_object_number(b, &pair.q));
    if (are_numbers && pair.are_ints) {
        fb_object_int(a, &pair.x);
        if (b) fb_object_int(b, &pair.y);
    }
    bool is_done;
    if (!are_numbers) is_done = calculate_others(call, a, b, result);
    else is_done = b ? calculate(call->op, &pair, result) : calculate_one(call, &pair, result);
    if (!is_done) fb_kernel_unsupported(call, "Python's numbers do not give one here");
    return is_done;
}
