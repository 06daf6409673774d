/* Evaluating movements: random ones against the reference evaluator, fillers in every dtype, limits, digests, base64. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/evaluator/array.h"
#include "core/graph/build.h"
#include "core/weights/dtype.h"
#include "tests/unit/chaos.h"
#include "tests/unit/movements.h"
#include "tests/unit/numbers.h"
#include "tests/unit/run_tests.h"

static fb_status evaluate(const fb_graph *graph, fb_value expression, fb_dtype dtype, unsigned char **bytes, size_t *size,
                          char code[48]) {
    fb_error error = {0};
    *bytes = NULL;
    fb_status status = evaluate_whole(graph, expression, dtype, NULL, bytes, size, &error);
    ck_assert_int_eq(error.status, status);
    ck_assert_int_eq(*bytes != NULL, status == FB_OK);
    snprintf(code, 48, "%s", error.code);
    return status;
}

static void expect_code(const fb_graph *graph, fb_value expression, fb_dtype dtype, fb_status expected, const char *code) {
    unsigned char *bytes;
    size_t size;
    char found[48];
    ck_assert_int_eq(evaluate(graph, expression, dtype, &bytes, &size, found), expected);
    ck_assert_str_eq(found, code);
}

/* Hex of an expression's bytes, to be freed. */
static char *hex_of(const fb_graph *graph, fb_value expression, fb_dtype dtype) {
    unsigned char *bytes;
    size_t size;
    char code[48];
    ck_assert_int_eq(evaluate(graph, expression, dtype, &bytes, &size, code), FB_OK);
    char *hex = calloc(2 * size + 1, 1);
    for (size_t i = 0; i < size; i++) snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    free(bytes);
    return hex;
}

static void expect_hex(const fb_graph *graph, fb_value expression, fb_dtype dtype, const char *expected) {
    char *hex = hex_of(graph, expression, dtype);
    ck_assert_str_eq(hex, expected);
    free(hex);
}

/* ---- random movements ---------------------------------------------------------------------------------------------------- */

START_TEST(test_random_movements) {
    size_t elements = 0, empty = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        movements m;
        movements_make(&m, seed);
        fb_errors errors = {0};
        fb_recipe_check_all(m.graph, &errors);
        ck_assert_uint_eq(errors.total, 0);
        for (size_t t = 0; t < m.count; t++) {
            unsigned char *bytes;
            size_t size;
            char code[48];
            fb_value whole = fb_recipe_tensor(m.graph, m.tensors[t].tensor);
            ck_assert_int_eq(evaluate(m.graph, whole, FB_DTYPE_UNKNOWN, &bytes, &size, code), FB_OK);
            int64_t count = element_count(&m.tensors[t].elements), *numbers = (int64_t *)(void *)bytes;
            ck_assert_uint_eq(size, (size_t)count * sizeof *numbers);
            for (int64_t i = 0; i < count; i++) {
                ck_assert_double_eq((double)numbers[i], *element(&m.tensors[t].elements, i));
            }
            elements += (size_t)count;
            empty += count == 0;
            free(bytes);
        }
        movements_free(&m);
    }
    ck_assert_uint_gt(elements, 100000);
    ck_assert_uint_gt(empty, 100);
}
END_TEST

/* Bytes are moved whatever they mean: elements of 1, 2, 4, 8 and 16 bytes. */
START_TEST(test_every_dtype_is_moved) {
    for (fb_dtype dtype = FB_FLOAT64; dtype < FB_DTYPE_OTHER; dtype++) {
        unsigned char bytes[6 * 16], expected[6 * 16], *found;
        static const int from[] = {2, 5, 1, 4}; /* columns 2 and 1 of two rows of three, turned round */
        size_t element = fb_dtype_size(dtype), size;
        char code[48];
        for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)(37 * i + 11);
        fb_graph *graph = fb_graph_new();
        fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", dtype, (int64_t[]){2, 3}, 2, bytes, 6 * element));
        x = fb_recipe_permute(graph, x, (int64_t[]){1, 0}, 2);
        x = fb_recipe_concat(graph, 0, (fb_value[]){fb_recipe_slice(graph, x, 0, 2, 3), fb_recipe_slice(graph, x, 0, 1, 2)}, 2);
        ck_assert_int_eq(evaluate(graph, x, FB_DTYPE_UNKNOWN, &found, &size, code), FB_OK);
        for (size_t i = 0; i < 4; i++) memcpy(expected + i * element, bytes + (size_t)from[i] * element, element);
        ck_assert_uint_eq(size, 4 * element);
        ck_assert_mem_eq(found, expected, size);
        free(found);
        fb_graph_free(graph);
    }
}
END_TEST

/* ---- fillers ------------------------------------------------------------------------------------------------------------ */

/* Bytes as torch.tensor(value, dtype=…) has them. */
static const struct {
    fb_dtype dtype;
    double value;
    const char *hex;
} floats[] = {
    {FB_FLOAT64, 0.1, "9a9999999999b93f"},
    {FB_FLOAT64, 0x1p-1074, "0100000000000000"},
    {FB_FLOAT64, -0.0, "0000000000000080"},
    {FB_FLOAT64, INFINITY, "000000000000f07f"},
    {FB_FLOAT64, NAN, "000000000000f87f"},
    {FB_FLOAT32, 0.1, "cdcccc3d"},
    {FB_FLOAT32, 0x1.000001p0, "0000803f"}, /* a tie goes to even */
    {FB_FLOAT32, 0x1.000003p0, "0200803f"},
    {FB_FLOAT32, 0x1p-149, "01000000"},
    {FB_FLOAT32, 0x1p-150, "00000000"},
    {FB_FLOAT32, -INFINITY, "000080ff"},
    {FB_FLOAT32, NAN, "0000c07f"},
    {FB_FLOAT16, 1, "003c"},
    {FB_FLOAT16, 0.1, "662e"},
    {FB_FLOAT16, 65504, "ff7b"},
    {FB_FLOAT16, 2049, "0068"},
    {FB_FLOAT16, 2051, "0268"},
    {FB_FLOAT16, 0x1.ff8p-15, "ff03"}, /* the largest subnormal */
    {FB_FLOAT16, 0x1.ffcp-15, "0004"}, /* half way to the smallest normal one */
    {FB_FLOAT16, -0.0, "0080"},
    {FB_FLOAT16, INFINITY, "007c"},
    {FB_FLOAT16, NAN, "007e"},
    {FB_BFLOAT16, 0.1, "cd3d"},
    {FB_BFLOAT16, 1.00390625, "803f"},
    {FB_BFLOAT16, 1.01171875, "823f"},
    {FB_BFLOAT16, -INFINITY, "80ff"},
    {FB_BFLOAT16, NAN, "c07f"},
    {FB_FLOAT8_E4M3FN, 448, "7e"},
    {FB_FLOAT8_E4M3FN, 0.3, "2a"},
    {FB_FLOAT8_E4M3FN, 0x1p-9, "01"},
    {FB_FLOAT8_E4M3FN, 0x1p-10, "00"},
    {FB_FLOAT8_E4M3FN, INFINITY, "7f"},
    {FB_FLOAT8_E4M3FN, -INFINITY, "ff"},
    {FB_FLOAT8_E4M3FN, NAN, "7f"},
    {FB_FLOAT8_E5M2, 57344, "7b"},
    {FB_FLOAT8_E5M2, 0.3, "35"},
    {FB_FLOAT8_E5M2, 0x1p-16, "01"},
    {FB_FLOAT8_E5M2, -INFINITY, "fc"},
    {FB_FLOAT8_E5M2, NAN, "7f"},
    {FB_COMPLEX64, 0.1, "cdcccc3d00000000"},
    {FB_COMPLEX64, 1e300, "0000807f00000000"},
    {FB_COMPLEX128, -2, "00000000000000c00000000000000000"},
};

START_TEST(test_floating_fillers) {
    fb_graph *graph = fb_graph_new();
    fb_value one = fb_recipe_full(graph, NULL, 0, fb_make_float(graph, floats[_i].value));
    expect_hex(graph, one, floats[_i].dtype, floats[_i].hex);
    fb_graph_free(graph);
}
END_TEST

static const struct {
    fb_dtype dtype;
    int64_t value;
    const char *hex; /* NULL: the dtype cannot hold it */
} integers[] = {
    {FB_INT64, INT64_MIN, "0000000000000080"},
    {FB_INT32, -9, "f7ffffff"},
    {FB_INT32, (int64_t)1 << 31, NULL},
    {FB_INT16, 300, "2c01"},
    {FB_INT8, -128, "80"},
    {FB_INT8, 128, NULL},
    {FB_UINT8, 255, "ff"},
    {FB_UINT8, -1, NULL},
    {FB_UINT16, 65535, "ffff"},
    {FB_UINT32, 0x80000001, "01000080"},
    {FB_UINT64, INT64_MAX, "ffffffffffffff7f"},
    {FB_BOOL, 1, NULL},
    {FB_FLOAT32, 16777217, "0000804b"},
    {FB_FLOAT16, -3, "00c2"},
    {FB_FLOAT16, 65520, NULL},
    {FB_COMPLEX64, 1, "0000803f00000000"},
};

START_TEST(test_integer_fillers) {
    fb_graph *graph = fb_graph_new();
    fb_value one = fb_recipe_full(graph, NULL, 0, fb_make_int(graph, integers[_i].value));
    if (integers[_i].hex) expect_hex(graph, one, integers[_i].dtype, integers[_i].hex);
    else expect_code(graph, one, integers[_i].dtype, FB_INVALID, "bad-recipe");
    fb_graph_free(graph);
}
END_TEST

/* What a recipe computes is rounded to int8 too: ties to even, to the nearer end beyond the range, nan to 0. */
START_TEST(test_int8) {
    static const double numbers[] = {0.5, 1.5, -2.5, 126.5, 127.49, 127.5, 1e300, -128.5, -129, -INFINITY, NAN, -0.0};
    static const char hex[] = "0002fe7e7f7f7f80808000"
                              "00";
    fb_graph *graph = fb_graph_new();
    fb_value parts[sizeof numbers / sizeof *numbers];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        parts[i] = fb_recipe_neg(graph, fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, -numbers[i])));
    expect_hex(graph, fb_recipe_concat(graph, 0, parts, sizeof numbers / sizeof *numbers), FB_INT8, hex);
    expect_code(graph, parts[0], FB_UINT8, FB_INVALID, "bad-recipe");
    fb_graph_free(graph);
}
END_TEST

/* To the nearest integer, ties to even; what is not finite stays, and so does the sign of a zero. */
START_TEST(test_round) {
    static const double numbers[] = {0.5, 1.5, -2.5, 2.5000001, NAN, INFINITY, -0.3};
    fb_graph *graph = fb_graph_new();
    fb_value parts[sizeof numbers / sizeof *numbers];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        parts[i] = fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, numbers[i]));
    fb_value all = fb_recipe_concat(graph, 0, parts, sizeof numbers / sizeof *numbers);
    expect_hex(graph, fb_recipe_round(graph, all), FB_FLOAT32,
               "00000000"
               "00000040"
               "000000c0"
               "00004040"
               "0000c07f"
               "0000807f"
               "00000080");
    fb_graph_free(graph);
}
END_TEST

/* A nan stays, an infinity is the largest; whatever is gathered, in whatever blocks. */
START_TEST(test_absmax) {
    fb_graph *graph = fb_graph_new();
    static const double numbers[] = {1, -3, 2, NAN, 5, INFINITY, -INFINITY, 4, -0.0};
    fb_value parts[9];
    for (size_t i = 0; i < 9; i++) parts[i] = fb_recipe_full(graph, (int64_t[]){1, 1}, 2, fb_make_float(graph, numbers[i]));
    fb_value all = fb_recipe_reshape(graph, fb_recipe_concat(graph, 0, parts, 9), (int64_t[]){3, 3}, 2);
    expect_hex(graph, fb_recipe_absmax(graph, all, (int64_t[]){1}, 1), FB_FLOAT32,
               "00004040"
               "0000c07f"
               "0000807f");
    expect_hex(graph, fb_recipe_absmax(graph, all, (int64_t[]){0}, 1), FB_FLOAT32,
               "0000c07f"
               "0000a040"
               "0000807f");
    expect_hex(graph, fb_recipe_absmax(graph, all, (int64_t[]){0, 1}, 2), FB_FLOAT32, "0000c07f");
    fb_graph_free(graph);
}
END_TEST

/* What is not a number stays, on either side. */
START_TEST(test_extremes) {
    fb_graph *graph = fb_graph_new();
    fb_value nan = fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, NAN));
    fb_value two = fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, 2));
    fb_value less = fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, -INFINITY));
    expect_hex(graph, fb_recipe_maximum(graph, two, less), FB_FLOAT32, "00000040");
    expect_hex(graph, fb_recipe_minimum(graph, two, less), FB_FLOAT32, "000080ff");
    expect_hex(graph, fb_recipe_maximum(graph, nan, two), FB_FLOAT32, "0000c07f");
    expect_hex(graph, fb_recipe_maximum(graph, two, nan), FB_FLOAT32, "0000c07f");
    expect_hex(graph, fb_recipe_minimum(graph, nan, two), FB_FLOAT32, "0000c07f");
    expect_hex(graph, fb_recipe_minimum(graph, two, nan), FB_FLOAT32, "0000c07f");
    expect_hex(graph, fb_recipe_exp(graph, less), FB_FLOAT32, "00000000");
    fb_graph_free(graph);
}
END_TEST

/* An index is bytes: only what reads them can tell that it lies beyond. */
START_TEST(test_index_beyond) {
    static const int64_t indices[][3] = {{1, 0, 2}, {0, -3, 1}, {INT64_MAX, 0, 1}, {0, 1, INT64_MIN}};
    fb_graph *graph = fb_graph_new();
    fb_value parts[] = {fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, 1)),
                        fb_recipe_full(graph, (int64_t[]){1}, 1, fb_make_float(graph, 2))};
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        char name[16];
        snprintf(name, sizeof name, "index%zu", i);
        fb_tensor index = put_tensor(graph, name, FB_INT64, (int64_t[]){3}, 1, indices[i], sizeof indices[i]);
        fb_value taken = fb_recipe_index_select(graph, fb_recipe_concat(graph, 0, parts, 2), 0, index);
        expect_code(graph, taken, FB_FLOAT32, FB_INVALID, "bad-recipe");
    }
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_bool_fillers) {
    fb_graph *graph = fb_graph_new();
    for (int truth = 0; truth < 2; truth++) {
        fb_value two = fb_recipe_full(graph, (int64_t[]){2}, 1, fb_make_bool(graph, truth));
        expect_hex(graph, two, FB_BOOL, truth ? "0101" : "0000");
        expect_code(graph, two, FB_INT8, FB_INVALID, "bad-recipe");
    }
    expect_code(graph, fb_recipe_full(graph, NULL, 0, fb_make_int(graph, 1)), FB_DTYPE_UNKNOWN, FB_INVALID, "bad-recipe");
    fb_graph_free(graph);
}
END_TEST

static double decode_bits(fb_dtype dtype, uint64_t bits) {
    fb_dtype_range range;
    ck_assert(fb_dtype_limits(dtype, &range));
    int mantissa_bits = range.mantissa_bits - 1;
    uint64_t mantissa = bits & ((UINT64_C(1) << mantissa_bits) - 1);
    int exponent = (int)(bits >> mantissa_bits);
    double quantum = range.smallest_subnormal; /* of the subnormals and the first binade */
    return exponent ? ldexp((double)(mantissa + (UINT64_C(1) << mantissa_bits)) * quantum, exponent - 1)
                    : (double)mantissa * quantum;
}

static uint64_t encoded(fb_dtype dtype, double number) {
    unsigned char bytes[8] = {0};
    uint64_t bits = 0;
    fb_dtype_encode(dtype, number, bytes);
    for (size_t i = 0; i < fb_dtype_size(dtype); i++) bits |= (uint64_t)bytes[i] << (8 * i);
    if (fb_dtype_is_computed(dtype)) { /* many at a time give the same */
        unsigned char many[8];
        fb_encode_numbers(dtype, &number, 1, many);
        ck_assert_mem_eq(many, bytes, fb_dtype_size(dtype));
    }
    return bits;
}

/* Every finite number of the short dtypes is itself; between two of them the closer one, half way the even one. */
START_TEST(test_rounding) {
    static const fb_dtype dtypes[] = {FB_FLOAT16, FB_BFLOAT16, FB_FLOAT8_E4M3FN, FB_FLOAT8_E5M2};
    fb_dtype dtype = dtypes[_i];
    fb_dtype_range range;
    ck_assert(fb_dtype_limits(dtype, &range));
    uint64_t sign = UINT64_C(1) << (8 * fb_dtype_size(dtype) - 1), bits = 0;
    for (double number = 0; number <= range.largest; bits++) {
        double next = decode_bits(dtype, bits + 1), middle = number / 2 + next / 2;
        ck_assert_uint_eq(encoded(dtype, number), bits);
        ck_assert_uint_eq(encoded(dtype, -number), bits | sign);
        ck_assert_uint_eq(encoded(dtype, nextafter(middle, 0)), bits);
        if (number < range.largest) {
            ck_assert_uint_eq(encoded(dtype, middle), bits + bits % 2);
            ck_assert_uint_eq(encoded(dtype, nextafter(middle, INFINITY)), bits + 1);
            ck_assert_uint_eq(encoded(dtype, -nextafter(middle, INFINITY)), (bits + 1) | sign);
        }
        number = next;
    }
    ck_assert_uint_eq(encoded(dtype, INFINITY), bits);
    ck_assert_uint_eq(encoded(dtype, 1e300), bits);
}
END_TEST

/* The compiler's own conversion. */
START_TEST(test_rounding_to_float32) {
    uint64_t random = 0x9e3779b97f4a7c15u;
    for (int i = 0; i < 200000; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t pattern = random ^ random >> 29;
        double number;
        memcpy(&number, &pattern, sizeof number);
        if (i % 2) number = ldexp(1 + (double)(random >> 12) * 0x1p-52, (int)(random % 320) - 160); /* near its range */
        float single = (float)number;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        if (isnan(number)) continue;
        ck_assert_uint_eq(encoded(FB_FLOAT32, number), bits);
        uint64_t same;
        memcpy(&same, &number, sizeof same);
        ck_assert_uint_eq(encoded(FB_FLOAT64, number), same);
    }
}
END_TEST

/* To nearest even with that many bits of mantissa (the implicit one included) and that exponent of the smallest normal number,
 * one at a time. */
static float round_float(float number, int bits, int smallest_exponent, float largest) {
    if (!isfinite(number) || number == 0) return number;
    int exponent;
    frexpf(number, &exponent);
    if (exponent - 1 < smallest_exponent) exponent = smallest_exponent + 1;
    float unit = ldexpf(1, exponent - bits);
    float rounded = rintf(number / unit) * unit;
    return fabsf(rounded) > largest ? copysignf(INFINITY, number) : rounded;
}

static void check_rounding_of(fb_array *array) {
    float *values = fb_array_data(array), expected[9];
    for (int i = 0; i < 9; i++)
        expected[i] = array->dtype == FB_FLOAT16 ? round_float(values[2 * i], 11, -14, 65504.0F)
                                                 : round_float(values[2 * i], 8, -126, 0x1.FEp127F);
    fb_array_round(array);
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(isnan(expected[i]) ? isnan(values[2 * i]) : values[2 * i] == expected[i], "%a, not %a",
                      (double)values[2 * i], (double)expected[i]);
        ck_assert_int_eq(signbit(values[2 * i]) != 0, signbit(expected[i]) != 0);
        ck_assert(values[2 * i + 1] == 0.1F); /* between them: not of the view */
    }
}

/* Floats around each of the 65536 numbers of a short dtype, and around the middle between it and the next. */
START_TEST(test_rounding_of_arrays) {
    fb_dtype dtype = _i ? FB_BFLOAT16 : FB_FLOAT16;
    fb_array_memory memory = {0};
    fb_array *array;
    int64_t size = 18;
    ck_assert_int_eq(fb_array_new(&memory, dtype, 1, &size, &array, NULL), FB_OK);
    array->sizes[0] = 9;
    array->strides[0] = 2;
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        float *values = fb_array_data(array), number = (float)decode_bits(dtype, bits & 0x7fff),
              next = (float)decode_bits(dtype, (bits & 0x7fff) + 1), middle = number / 2 + next / 2,
              sign = bits >> 15 ? -1.0F : 1.0F;
        float around[] = {number,
                          nextafterf(number, INFINITY),
                          nextafterf(number, -INFINITY),
                          middle,
                          nextafterf(middle, INFINITY),
                          nextafterf(middle, -INFINITY),
                          middle / 2,
                          INFINITY,
                          NAN};
        for (int i = 0; i < 9; i++) {
            values[2 * i] = sign * around[i];
            values[2 * i + 1] = 0.1F;
        }
        check_rounding_of(array);
    }
    fb_array_drop(array);
    ck_assert_uint_eq(memory.used, 0);
}
END_TEST

/* All 65536 numbers of a short dtype, from the bytes of files and back, in both precisions. */
START_TEST(test_bytes_of_arrays) {
    fb_dtype dtype = _i % 2 ? FB_BFLOAT16 : FB_FLOAT16;
    fb_dtype_range range;
    ck_assert(fb_dtype_limits(dtype, &range));
    uint64_t infinite = encoded(dtype, INFINITY), nan = encoded(dtype, (double)NAN);
    fb_array_memory memory = {.precision = _i / 2 ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED};
    int64_t count = UINT16_MAX + 1;
    uint16_t *bytes = calloc((size_t)count, 2), *again = calloc((size_t)count, 2);
    ck_assert(bytes && again);
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint16_t)i;
    fb_array *array;
    ck_assert_int_eq(fb_array_from_bytes(&memory, dtype, 1, &count, bytes, 2 * (size_t)count, &array, NULL), FB_OK);
    if (memory.precision == FB_PRECISION_DOUBLE) fb_array_round_values(array); /* changes none of them */
    for (int64_t i = 0; i < count; i++) {
        uint64_t magnitude = (uint64_t)i & 0x7fff;
        double found = fb_array_number(array, i);
        if (magnitude > infinite) ck_assert(isnan(found));
        else if (magnitude == infinite) ck_assert(isinf(found));
        else ck_assert(fabs(found) == decode_bits(dtype, magnitude));
        ck_assert(isnan(found) || (signbit(found) != 0) == (i >> 15 != 0));
    }
    fb_array_to_bytes(array, again);
    for (int64_t i = 0; i < count; i++) ck_assert_uint_eq(again[i], ((uint64_t)i & 0x7fff) > infinite ? nan : (uint64_t)i);
    fb_array_drop(array);
    free(bytes);
    free(again);
}
END_TEST

/* ---- limits, and what cannot be known ------------------------------------------------------------------------------------ */

START_TEST(test_unknown_bytes) {
    fb_graph *graph = fb_graph_new();
    float numbers[2] = {1, 2};
    fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", FB_FLOAT32, (int64_t[]){2}, 1, numbers, sizeof numbers));
    fb_value y = fb_recipe_tensor(graph, put_tensor(graph, "y", FB_FLOAT32, (int64_t[]){2}, 1, NULL, 0));
    fb_value half = fb_recipe_tensor(graph, put_tensor(graph, "half", FB_FLOAT32, (int64_t[]){2}, 1, numbers, 4));
    fb_value computed = fb_recipe_tensor(graph, put_recipe(graph, "computed", FB_FLOAT32, fb_recipe_neg(graph, x)));
    expect_hex(graph, x, FB_DTYPE_UNKNOWN, "0000803f00000040");
    expect_code(graph, y, FB_DTYPE_UNKNOWN, FB_NOT_FOUND, "bytes-unknown");
    expect_code(graph, half, FB_DTYPE_UNKNOWN, FB_INVALID, "bad-data");
    expect_code(graph, fb_recipe_concat(graph, 0, (fb_value[]){x, y}, 2), FB_DTYPE_UNKNOWN, FB_NOT_FOUND, "bytes-unknown");
    expect_code(graph, fb_recipe_add(graph, x, y), FB_DTYPE_UNKNOWN, FB_NOT_FOUND, "bytes-unknown");
    expect_hex(graph, computed, FB_DTYPE_UNKNOWN, "000080bf000000c0");
    expect_code(graph, x, FB_INT32, FB_INVALID, "bad-recipe"); /* asked for as what it is not */
    expect_code(graph, fb_recipe_neg(graph, x), FB_INT32, FB_INVALID, "bad-recipe");
    expect_code(graph, fb_recipe_slice(graph, x, 0, 1, 3), FB_DTYPE_UNKNOWN, FB_INVALID, "bad-recipe");
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_too_large) {
    fb_graph *graph = fb_graph_new();
    int64_t huge[] = {1 << 20, 1 << 20};
    fb_value zeros = fb_recipe_zeros(graph, huge, 2, FB_INT8);
    fb_evaluation *whole = NULL;
    ck_assert_int_eq(
        fb_evaluation_of(graph, fb_recipe_concat(graph, 0, (fb_value[]){zeros, zeros}, 2), FB_INT8, NULL, &whole, NULL), FB_OK);
    ck_assert_uint_eq(fb_evaluation_size(whole), (uint64_t)1 << 41);
    fb_evaluation_free(whole);
    /* A part of it is small. */
    fb_value part = fb_recipe_slice(graph, fb_recipe_slice(graph, zeros, 0, 7, 9), 1, 5, 6);
    expect_hex(graph, fb_recipe_reshape(graph, part, (int64_t[]){2}, 1), FB_INT8, "0000");
    part = fb_recipe_slice(graph, fb_recipe_reshape(graph, zeros, (int64_t[]){(int64_t)1 << 40}, 1), 0, 5, 8);
    expect_hex(graph, part, FB_INT8, "000000");
    fb_graph_free(graph);
}
END_TEST

/* A chain as long as a table, where every tensor reads the one before twice. */
START_TEST(test_long_chain) {
    enum { LENGTH = 50000 };
    fb_graph *graph = fb_graph_new();
    fb_tensor last = put_tensor(graph, "t0", FB_INT8, (int64_t[]){4}, 1, "\1\2\3\4", 4);
    for (int i = 1; i <= LENGTH; i++) {
        char name[32];
        snprintf(name, sizeof name, "t%d", i);
        fb_value from = fb_recipe_tensor(graph, last);
        fb_value parts[] = {fb_recipe_slice(graph, from, 0, 1, 4), fb_recipe_slice(graph, from, 0, 0, 1)};
        last = put_recipe(graph, name, FB_INT8, fb_recipe_concat(graph, 0, parts, 2));
    }
    expect_hex(graph, fb_recipe_tensor(graph, last), FB_DTYPE_UNKNOWN, LENGTH % 4 == 0 ? "01020304" : "");
    /* One that depends on itself, which the reader refuses. */
    fb_tensor_row_at(graph, fb_tensor_find(graph, "t0"))->recipe = fb_recipe_tensor(graph, last);
    expect_code(graph, fb_recipe_tensor(graph, last), FB_DTYPE_UNKNOWN, FB_INVALID, "bad-recipe");
    fb_graph_free(graph);
}
END_TEST

/* ---- tensors ------------------------------------------------------------------------------------------------------------- */

/* sha256sum's of the bytes 01 02 03 04 and 03 04 01 02, and of none. */
#define DIGEST_1234 "sha256:9f64a747e1b97f131fabb6b447296c9b6f0201e79fb3c5356e6c77e89b6a806a"
#define DIGEST_3412 "sha256:71857892ebdd2216b28d122a8ea7487f4350512fe3c3037e816c48bfb6306b93"
#define DIGEST_NONE "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static void expect_digest(const fb_graph *graph, const char *name, const char *expected) {
    char digest[FB_ID_LENGTH + 1] = "none";
    fb_error error = {0};
    fb_status status = fb_evaluation_digest(graph, fb_tensor_find(graph, name), NULL, digest, &error);
    ck_assert_str_eq(digest, expected);
    ck_assert_int_eq(status, strcmp(expected, "none") ? FB_OK : FB_NOT_FOUND);
}

START_TEST(test_digests) {
    fb_graph *graph = fb_graph_new();
    fb_value x = fb_recipe_tensor(graph, put_tensor(graph, "x", FB_INT8, (int64_t[]){4}, 1, "\1\2\3\4", 4));
    fb_value known = fb_recipe_tensor(graph, put_tensor(graph, "known", FB_INT8, (int64_t[]){4}, 1, NULL, 0));
    fb_value unknown = fb_recipe_tensor(graph, put_tensor(graph, "unknown", FB_INT8, (int64_t[]){4}, 1, NULL, 0));
    put_tensor(graph, "empty", FB_INT8, (int64_t[]){0}, 1, "", 0);
    fb_tensor_row_at(graph, fb_tensor_find(graph, "known"))->digest = fb_intern(graph, DIGEST_3412);
    fb_value turned =
        fb_recipe_concat(graph, 0, (fb_value[]){fb_recipe_slice(graph, x, 0, 2, 4), fb_recipe_slice(graph, x, 0, 0, 2)}, 2);
    put_recipe(graph, "turned", FB_INT8, turned);
    put_recipe(graph, "tied", FB_INT8, known);
    fb_value matrix = fb_recipe_reshape(graph, fb_recipe_tensor(graph, fb_tensor_find(graph, "tied")), (int64_t[]){2, 2}, 2);
    put_recipe(graph, "reshaped", FB_INT8, matrix);
    put_recipe(graph, "part", FB_INT8, fb_recipe_slice(graph, known, 0, 0, 2));
    put_recipe(graph, "of unknown", FB_INT8, unknown);
    fb_tensor described = put_recipe(graph, "described", FB_INT8, unknown);
    fb_tensor_row_at(graph, described)->digest = fb_intern(graph, DIGEST_3412);
    fb_tensor_row_at(graph, fb_tensor_find(graph, "unknown"))->blob = fb_intern(graph, DIGEST_1234);
    expect_digest(graph, "x", DIGEST_1234);
    expect_digest(graph, "turned", DIGEST_3412);
    expect_digest(graph, "known", DIGEST_3412);
    expect_digest(graph, "tied", DIGEST_3412);
    expect_digest(graph, "reshaped", DIGEST_3412);
    expect_digest(graph, "part", "none");
    expect_digest(graph, "unknown", "none"); /* the blob's digest is that of the whole blob */
    expect_digest(graph, "of unknown", "none");
    expect_digest(graph, "described", DIGEST_3412);
    expect_digest(graph, "empty", DIGEST_NONE);
    fb_graph_free(graph);
}
END_TEST

/* ---- base64 -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_base64) {
    unsigned char bytes[40], found[40];
    for (size_t size = 0; size <= sizeof bytes; size++) {
        fb_buffer text = {0};
        for (size_t i = 0; i < size; i++) bytes[i] = (unsigned char)(251 * i * i + 59 * i + size);
        encode_base64(bytes, size, &text);
        ck_assert(fb_is_base64(text.data, text.size));
        ck_assert_uint_eq(fb_base64_size(text.data, text.size), size);
        for (size_t start = 0; start <= size; start++) {
            for (size_t count = 0; start + count <= size; count++) {
                memset(found, 0xa5, sizeof found);
                fb_base64_decode(text.data, start, count, found);
                ck_assert_mem_eq(found, bytes + start, count);
                ck_assert(count == sizeof found || found[count] == 0xa5);
            }
        }
        fb_buffer_free(&text);
    }
    static const char *const wrong[] = {"A",    "AA",   "AAA",  "A===", "====",  "AA=A",
                                        "AAB=", "AB==", "AA-A", "AA A", "AA\nA", "=AAA"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        ck_assert_msg(!fb_is_base64(wrong[i], strlen(wrong[i])), "%s", wrong[i]);
    ck_assert(fb_is_base64("AAE=", 4) && fb_is_base64("AQ==", 4) && fb_is_base64("+/+/", 4));
}
END_TEST

/* ---- without memory ------------------------------------------------------------------------------------------------------ */

START_TEST(test_without_memory) {
    void (*start)(long) = _i ? chaos_fail_once : chaos_fail_after;
    char digest[FB_ID_LENGTH + 1];
    ck_assert(fb_sha256_id("", 0, digest)); /* OpenSSL 3.0 crashes when memory runs out while it is setting itself up */
    for (uint64_t seed = 1; seed < 40; seed++) {
        movements m;
        movements_make(&m, seed);
        fb_tensor made = m.tensors[m.count - 1].tensor;
        fb_value whole = fb_recipe_tensor(m.graph, made);
        bool failed = true;
        for (long k = 0; failed; k++) {
            unsigned char *bytes = NULL;
            size_t size = 0;
            fb_error error = {0};
            start(k);
            fb_status status = evaluate_whole(m.graph, whole, FB_INT64, NULL, &bytes, &size, &error);
            failed = chaos_off();
            ck_assert_int_eq(status, failed ? FB_NO_MEMORY : FB_OK);
            ck_assert_int_eq(bytes != NULL, !failed);
            free(bytes);
        }
        char expected[FB_ID_LENGTH + 1];
        ck_assert_int_eq(fb_evaluation_digest(m.graph, made, NULL, expected, NULL), FB_OK);
        failed = true;
        for (long k = 0; failed; k++) {
            start(k);
            fb_status status = fb_evaluation_digest(m.graph, made, NULL, digest, NULL);
            failed = chaos_off();
            ck_assert(status == FB_OK || (failed && status == FB_NO_MEMORY)); /* libcrypto does without some */
            if (status == FB_OK) ck_assert_str_eq(digest, expected);
        }
        movements_free(&m);
    }
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("evaluate");
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_random_movements);
    tcase_add_test(cases, test_every_dtype_is_moved);
    tcase_add_loop_test(cases, test_floating_fillers, 0, (int)(sizeof floats / sizeof *floats));
    tcase_add_loop_test(cases, test_integer_fillers, 0, (int)(sizeof integers / sizeof *integers));
    tcase_add_test(cases, test_bool_fillers);
    tcase_add_test(cases, test_int8);
    tcase_add_test(cases, test_round);
    tcase_add_test(cases, test_absmax);
    tcase_add_test(cases, test_extremes);
    tcase_add_test(cases, test_index_beyond);
    tcase_add_loop_test(cases, test_rounding, 0, 4);
    tcase_add_test(cases, test_rounding_to_float32);
    tcase_add_loop_test(cases, test_rounding_of_arrays, 0, 2);
    tcase_add_loop_test(cases, test_bytes_of_arrays, 0, 4);
    tcase_add_test(cases, test_unknown_bytes);
    tcase_add_test(cases, test_too_large);
    tcase_add_test(cases, test_long_chain);
    tcase_add_test(cases, test_digests);
    tcase_add_test(cases, test_base64);
    tcase_add_loop_test(cases, test_without_memory, 0, 2);
    return run_tests("evaluate", cases);
}
