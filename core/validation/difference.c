/* How far values are apart. */
#include <math.h>

#include "core/validation/validation.h"
#include "core/weights/dtype.h"

/* The distance of two elements: nan and nan, infinity and the same infinity are equal. */
static double distance(double a, double b) {
    if (a == b || (a != a && b != b)) return 0;
    double apart = fabs(a - b);
    return apart != apart ? INFINITY : apart;
}

/* A unit in the last place of a number of that magnitude; of integers it is 1. */
static inline double unit_at(fb_dtype dtype, double magnitude) {
    fb_dtype_range range;
    if (!fb_dtype_limits(dtype, &range)) return 1;
    if (!(magnitude >= range.smallest_normal)) return range.smallest_subnormal;
    int exponent;
    frexp(magnitude, &exponent);
    return ldexp(1, exponent - range.mantissa_bits);
}

static inline double element(const void *data, fb_held held, int64_t at) {
    switch (held) {
    case FB_HELD_DOUBLE: return ((const double *)data)[at];
    case FB_HELD_FLOAT: return (double)((const float *)data)[at];
    case FB_HELD_INT: return (double)((const int64_t *)data)[at];
    default: return ((const unsigned char *)data)[at];
    }
}

/* The same of elements of two arrays; integers above 2^53 are not the same because their doubles are. */
static inline double distance_at(const fb_walk *walk, fb_held held_a, fb_held held_b, int64_t i) {
    int64_t at_a = i * walk->strides[0], at_b = i * walk->strides[1];
    if (held_a == FB_HELD_INT && held_b == FB_HELD_INT) {
        int64_t a = ((const int64_t *)walk->data[0])[at_a], b = ((const int64_t *)walk->data[1])[at_b];
        return a == b ? 0 : fmax(1, fabs((double)a - (double)b));
    }
    return distance(element(walk->data[0], held_a, at_a), element(walk->data[1], held_b, at_b));
}

static double largest_of(const fb_array *array) {
    double largest = 0;
    fb_walk walk;
    for (fb_walk_begin(&walk, array, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            double value = fabs(element(walk.data[0], array->held, i * walk.strides[0]));
            if (value > largest && isfinite(value)) largest = value;
        }
    }
    return largest;
}

double fb_largest_magnitude(const fb_array *array) {
    if (!fb_dtype_is_complex(array->dtype)) return largest_of(array);
    fb_array real = fb_array_part_of(array, false), imaginary = fb_array_part_of(array, true);
    return fmax(largest_of(&real), largest_of(&imaginary));
}

/* Of the same sizes; `largest` is b's magnitude. */
static void compare(const fb_array *a, const fb_array *b, double largest, fb_difference *out) {
    *out = (fb_difference){.elements = (uint64_t)fb_array_count(b)};
    double floor_of_unit = unit_at(b->dtype, largest * 0x1p-8);
    int64_t index = 0;
    fb_walk walk;
    for (fb_walk_begin(&walk, a, b, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++, index++) {
            double apart = distance_at(&walk, a->held, b->held, i);
            /* A unit is at least the floor, so most elements need not be asked for theirs. */
            if (apart == 0 || (apart / floor_of_unit <= out->ulp && apart <= out->absolute)) continue;
            double y = element(walk.data[1], b->held, i * walk.strides[1]);
            double units = apart / fmax(unit_at(b->dtype, fabs(y)), floor_of_unit);
            if (units > out->ulp) out->ulp = units;
            if (!(apart > out->absolute)) continue;
            out->absolute = apart;
            out->worst = index;
        }
    }
    if (out->absolute > 0) out->relative = out->absolute / largest; /* infinite where b is 0 everywhere */
}

static void add_squares(const fb_array *a, const fb_array *b, double *of_error, double *of_value) {
    fb_walk walk;
    for (fb_walk_begin(&walk, a, b, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            double y = element(walk.data[1], b->held, i * walk.strides[1]);
            double apart = distance(element(walk.data[0], a->held, i * walk.strides[0]), y);
            *of_error += apart * apart;
            *of_value += y * y;
        }
    }
}

double fb_rms_difference(const fb_array *a, const fb_array *b) {
    double of_error = 0, of_value = 0;
    bool are_complex = fb_dtype_is_complex(b->dtype);
    for (int part = 0; part <= are_complex; part++) {
        fb_array part_a = are_complex ? fb_array_part_of(a, part) : *a, part_b = are_complex ? fb_array_part_of(b, part) : *b;
        add_squares(&part_a, &part_b, &of_error, &of_value);
    }
    return of_error > 0 ? sqrt(of_error / of_value) : of_error;
}

bool fb_compare_arrays(const fb_array *a, const fb_array *b, fb_difference *out) {
    bool are_complex = fb_dtype_is_complex(b->dtype);
    bool same = a->rank == b->rank && fb_dtype_is_complex(a->dtype) == are_complex;
    for (int i = 0; i < a->rank && same; i++) same = a->sizes[i] == b->sizes[i];
    if (!same) return false;
    double largest = fb_largest_magnitude(b);
    if (!are_complex) {
        compare(a, b, largest, out);
        return true;
    }
    fb_difference imaginary;
    fb_array part_a = fb_array_part_of(a, false), part_b = fb_array_part_of(b, false);
    compare(&part_a, &part_b, largest, out);
    part_a = fb_array_part_of(a, true);
    part_b = fb_array_part_of(b, true);
    compare(&part_a, &part_b, largest, &imaginary);
    imaginary.elements = 0; /* they are counted */
    fb_difference_join(out, &imaginary);
    return true;
}

typedef struct finiteness {
    bool is_hidden, is_lost, is_any;
    int64_t count;
} finiteness;

static void look_for_finite(const fb_array *a, const fb_array *b, const fb_array *exact, finiteness *found) {
    fb_walk walk;
    for (fb_walk_begin(&walk, a, b, exact, NULL); fb_walk_more(&walk); fb_walk_next(&walk)) {
        for (int64_t i = 0; i < walk.count; i++) {
            if (isfinite(element(walk.data[1], b->held, i * walk.strides[1]))) {
                found->is_any = true;
                found->is_lost |= !isfinite(element(walk.data[0], a->held, i * walk.strides[0]));
            } else found->is_hidden |= isfinite(element(walk.data[2], exact->held, i * walk.strides[2]));
        }
        found->count += walk.count;
    }
}

bool fb_overflow_hides(const fb_array *a, const fb_array *b, const fb_array *exact) {
    finiteness found = {0};
    bool are_complex = fb_dtype_is_complex(b->dtype);
    for (int part = 0; part <= are_complex; part++) {
        fb_array parts[] = {*a, *b, *exact};
        if (are_complex) parts[0] = fb_array_part_of(a, part), parts[1] = fb_array_part_of(b, part);
        if (are_complex) parts[2] = fb_array_part_of(exact, part);
        look_for_finite(&parts[0], &parts[1], &parts[2], &found);
    }
    return !found.is_lost && (found.is_hidden || (found.count && !found.is_any));
}

/* Powers of two: what is drawn is the same otherwise. */
double fb_deviation(int attempt) {
    return ldexp(1, -4 * attempt);
}

void fb_difference_join(fb_difference *worst, const fb_difference *other) {
    bool is_worse = other->absolute > worst->absolute;
    if (is_worse) {
        worst->absolute = other->absolute;
        worst->worst = other->worst;
    }
    if (other->relative > worst->relative) worst->relative = other->relative;
    if (other->ulp > worst->ulp) worst->ulp = other->ulp;
    worst->elements += other->elements;
}

bool fb_difference_passes(const fb_difference *difference, double largest, const fb_tolerance *tolerance) {
    return difference->absolute <= tolerance->absolute + tolerance->relative * largest;
}
