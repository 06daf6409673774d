/* Protobuf's wire format: what a field is, and where it ends. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/onnx/wire.h"
#include "tests/unit/run_tests.h"

static const struct {
    const char *bytes;
    size_t size;
    const char *fault; /* NULL: it is a field */
    uint32_t number;
    onnx_wire wire;
    uint64_t value; /* of a number; else the size */
} cases[] = {
#define CASE(bytes, fault, number, wire, value)                                                                                \
    { bytes, sizeof bytes - 1, fault, number, wire, value }
    CASE("\x08\x00", NULL, 1, ONNX_VARINT, 0),
    CASE("\x08\x96\x01", NULL, 1, ONNX_VARINT, 150),
    CASE("\x08\x80\x00", NULL, 1, ONNX_VARINT, 0),
    CASE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", NULL, 1, ONNX_VARINT, UINT64_MAX),
    CASE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", NULL, 1, ONNX_VARINT, UINT64_MAX),
    CASE("\x09\1\2\3\4\5\6\7\x80", NULL, 1, ONNX_FIXED64, 0x8007060504030201),
    CASE("\x0d\1\2\3\x80", NULL, 1, ONNX_FIXED32, 0x80030201),
    CASE("\x0a\0", NULL, 1, ONNX_LENGTH, 0),
    CASE("\x0a\3abc", NULL, 1, ONNX_LENGTH, 3),
    CASE("\x8a\x00\3abc", NULL, 1, ONNX_LENGTH, 3),
    CASE("\x8a\x80\x80\x80\x00\3abc", NULL, 1, ONNX_LENGTH, 3),
    CASE("\x0a\x83\x80\x80\x80\x00"
         "abc",
         NULL, 1, ONNX_LENGTH, 3),
    CASE("\xf8\xff\xff\xff\x0f\1", NULL, (1U << 29) - 1, ONNX_VARINT, 1),
    CASE("\x80", "the bytes end within a number", 0, 0, 0),
    CASE("\x08", "the bytes end before a number", 0, 0, 0),
    CASE("\x08\xff", "the bytes end within a number", 0, 0, 0),
    CASE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1", "more than ten bytes", 0, 0, 0),
    CASE("\x09\1\2\3\4\5\6\7", "the bytes end within a number", 0, 0, 0),
    CASE("\x0d\1\2\3", "the bytes end within a number", 0, 0, 0),
    CASE("\x0a", "the bytes end within a number", 0, 0, 0),
    CASE("\x0a\3ab", "a length reaches beyond the end, as where a file was cut off", 0, 0, 0),
    CASE("\x0a\xff\xff\xff\xff\x0f", "a length reaches beyond the end, as where a file was cut off", 0, 0, 0),
    CASE("\x0a\xff\xff\xff\xff\x7f", "a length reaches beyond the end, as where a file was cut off", 0, 0, 0),
    CASE("\x0a\x83\x80\x80\x80\x80\x00"
         "abc",
         "more than five bytes", 0, 0, 0),
    CASE("\x88\x80\x80\x80\x80\x00\1", "more than five bytes", 0, 0, 0),
    CASE("\x88\x80\x80\x80\x70\1", "a number that no field has", 0, 0, 0),
    CASE("\x00\1", "a number that no field has", 0, 0, 0),
    CASE("\x0b\x0c", "a kind that ONNX does not use", 0, 0, 0),
    CASE("\x0c", "a kind that ONNX does not use", 0, 0, 0),
    CASE("\x0e\1", "a kind that ONNX does not use", 0, 0, 0),
    CASE("\x0f\1", "a kind that ONNX does not use", 0, 0, 0),
#undef CASE
};

START_TEST(test_fields) {
    /* in a block of its own size, so that a sanitizer sees what is read beyond it */
    unsigned char *bytes = malloc(cases[_i].size);
    memcpy(bytes, cases[_i].bytes, cases[_i].size);
    onnx_cursor cursor = {bytes, bytes + cases[_i].size, NULL};
    onnx_wire_field field;
    bool is_field = onnx_next_field(&cursor, &field);
    if (cases[_i].fault) {
        ck_assert(!is_field);
        ck_assert_msg(cursor.fault && strstr(cursor.fault, cases[_i].fault), "%s", cursor.fault ? cursor.fault : "no fault");
        ck_assert_ptr_eq(cursor.at, bytes);
        ck_assert_msg(!onnx_next_field(&cursor, &field), "a fault is the end");
    } else {
        ck_assert_msg(is_field, "%s", cursor.fault);
        ck_assert_uint_eq(field.number, cases[_i].number);
        ck_assert_int_eq(field.wire, cases[_i].wire);
        ck_assert_uint_eq(field.wire == ONNX_LENGTH ? field.size : field.value, cases[_i].value);
        ck_assert_ptr_eq(field.start, bytes);
        ck_assert_ptr_eq(field.bytes + field.size, bytes + cases[_i].size);
        ck_assert(!onnx_next_field(&cursor, &field) && !cursor.fault);
    }
    free(bytes);
}
END_TEST

START_TEST(test_packed) {
    static const struct {
        const char *bytes;
        size_t size;
        onnx_wire wire;
        uint64_t count;
        bool is_broken;
    } lists[] = {
        {"", 0, ONNX_VARINT, 0, false},          {"\1\x80\1\2", 4, ONNX_VARINT, 3, false},
        {"\1\x80", 2, ONNX_VARINT, 1, true},     {"12345678", 8, ONNX_FIXED32, 2, false},
        {"1234567", 7, ONNX_FIXED32, 1, true},   {"12345678", 8, ONNX_FIXED64, 1, false},
        {"123456789", 9, ONNX_FIXED64, 1, true},
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const unsigned char *bytes = (const unsigned char *)lists[i].bytes;
        onnx_cursor cursor = {bytes, bytes + lists[i].size, NULL};
        ck_assert_uint_eq(onnx_count_packed(&cursor, lists[i].wire), lists[i].count);
        ck_assert(!cursor.fault == !lists[i].is_broken);
    }
}
END_TEST

/* What is written is read as the same, and takes as few bytes as can be. */
START_TEST(test_written) {
    for (int bits = 0; bits < 64; bits++) {
        fb_buffer out = {0};
        uint64_t value = ((uint64_t)1 << bits) + (uint64_t)bits;
        onnx_put_tag(&out, 5, ONNX_VARINT);
        onnx_put_number(&out, ONNX_VARINT, value);
        size_t varint = out.size;
        onnx_put_tag(&out, 1000, ONNX_FIXED64);
        onnx_put_number(&out, ONNX_FIXED64, value);
        onnx_put_tag(&out, 6, ONNX_FIXED32);
        onnx_put_number(&out, ONNX_FIXED32, value);
        onnx_put_bytes(&out, 7, "abc", 3);
        int wide = 64 - __builtin_clzll(value);
        ck_assert_uint_eq(varint, 1 + ((size_t)wide + 6) / 7);
        onnx_cursor cursor = {(unsigned char *)out.data, (unsigned char *)out.data + out.size, NULL};
        onnx_wire_field field;
        ck_assert(onnx_next_field(&cursor, &field) && field.number == 5 && field.value == value);
        ck_assert(onnx_next_field(&cursor, &field) && field.number == 1000 && field.value == value);
        ck_assert(onnx_next_field(&cursor, &field) && field.number == 6 && field.value == (uint32_t)value);
        ck_assert(onnx_next_field(&cursor, &field) && field.number == 7 && field.size == 3);
        ck_assert(!onnx_next_field(&cursor, &field) && !cursor.fault);
        fb_buffer_free(&out);
    }
}
END_TEST

/* The length goes in front, however many bytes it takes, also of a message in a message. */
START_TEST(test_lengths) {
    static const size_t sizes[] = {0, 1, 120, 124, 125, 127, 128, 16380, 16384, 70000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fb_buffer out = {0};
        size_t outer = onnx_begin(&out, 3), inner = onnx_begin(&out, 4);
        for (size_t k = 0; k < sizes[i]; k++) fb_buffer_char(&out, (char)(k & 63));
        onnx_end(&out, inner);
        onnx_put_bytes(&out, 5, "z", 1);
        onnx_end(&out, outer);
        onnx_cursor cursor = {(unsigned char *)out.data, (unsigned char *)out.data + out.size, NULL};
        onnx_wire_field field, within;
        ck_assert(onnx_next_field(&cursor, &field) && field.number == 3 && cursor.at == cursor.end);
        onnx_cursor inside = {field.bytes, field.bytes + field.size, NULL};
        ck_assert(onnx_next_field(&inside, &within) && within.number == 4 && within.size == sizes[i]);
        for (size_t k = 0; k < sizes[i]; k++) ck_assert_uint_eq(within.bytes[k], k & 63);
        ck_assert(onnx_next_field(&inside, &within) && within.number == 5 && *within.bytes == 'z');
        fb_buffer_free(&out);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("onnx_wire");
    tcase_add_loop_test(tests, test_fields, 0, sizeof cases / sizeof *cases);
    tcase_add_test(tests, test_packed);
    tcase_add_test(tests, test_written);
    tcase_add_test(tests, test_lengths);
    return run_tests("onnx_wire", tests);
}
