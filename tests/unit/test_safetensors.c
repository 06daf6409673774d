/* Headers of safetensors files: what is refused and why, what is taken, and that what is written is what the reference
 * implementation wrote. The files in tests/unit/data/safetensors were made by safetensors 0.8.0. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/weights/safetensors.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

/* A file with this header and so many zeros behind it, to be freed. */
static unsigned char *file_of(const char *header, size_t length, size_t data, size_t *size) {
    unsigned char *bytes = calloc(1, 8 + length + data);
    if (!bytes) abort();
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)length >> (8 * i));
    memcpy(bytes + 8, header, length);
    *size = 8 + length + data;
    return bytes;
}

static void expect_refusal(const unsigned char *bytes, uint64_t size, const char *pointer, const char *message) {
    fb_safetensors file = {0};
    fb_error error = {0};
    ck_assert_int_eq(fb_safetensors_read(bytes, size, &file, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "bad-safetensors");
    ck_assert_str_eq(error.pointer, pointer);
    ck_assert_msg(strstr(error.message, message), "\"%s\" lacks \"%s\"", error.message, message);
    ck_assert_ptr_null(file.entries);
}

static void read_text(const char *header, size_t data, fb_safetensors *file) {
    size_t size;
    fb_error error = {0};
    unsigned char *bytes = file_of(header, strlen(header), data, &size);
    fb_status status = fb_safetensors_read(bytes, size, file, &error);
    ck_assert_msg(status == FB_OK, "%s: %s %s", header, error.pointer, error.message);
    free(bytes); /* what was read stands for itself */
}

/* ---- refused ------------------------------------------------------------------------------------------------------------ */

#define F32(offsets) "{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":" offsets "}"
#define SHAPE(shape) "{\"a\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[0,4]}}"

static const struct {
    const char *header;
    size_t data;
    const char *pointer, *message;
} malformed[] = {
    /* no JSON of that kind */
    {"", 0, "", "does not begin with {"},
    {"[]", 0, "", "does not begin with {"},
    {"null", 0, "", "does not begin with {"},
    {" {}", 0, "", "does not begin with {"},
    {"\xef\xbb\xbf{}", 0, "", "does not begin with {"},
    {"{", 0, "", "byte 1: "},
    {"{}x", 0, "", "byte 2: "},
    {"{}{}", 0, "", "byte 2: "},
    {"{\"a\"}", 0, "", "byte 4: "},
    {"{\"a\":}", 0, "/a", "is not an object"},
    {"{\"a\":" F32("[0,4]") ",}", 4, "", "a member's name"},
    {"{\"a\":" F32("[0,4]"), 4, "", "ends in the middle"},
    {"{\"a\":{\"dtype\":\"F32\"", 4, "", "ends in the middle"},
    {"{'a':" F32("[0,4]") "}", 4, "", "a member's name"},
    {"{\"a\":" F32("[0,4]") "}/**/", 4, "", "something follows"},
    {"{\"\xff\":" F32("[0,4]") "}", 4, "", "UTF-8"},
    {"{\"\xed\xa0\x80\":" F32("[0,4]") "}", 4, "", "UTF-8"},
    {"{\"\xc0\x80\":" F32("[0,4]") "}", 4, "", "UTF-8"},
    {"{\"\\ud800\":" F32("[0,4]") "}", 4, "", "surrogate"},
    {"{\"a\\u0000b\":" F32("[0,4]") "}", 4, "", "u0000"},
    {"{\"a\x01\":" F32("[0,4]") "}", 4, "", "control character"},
    {"{\"a\\x\":" F32("[0,4]") "}", 4, "", "byte "},
    /* entries */
    {"{\"a\":5}", 0, "/a", "is not an object"},
    {"{\"a\":null}", 0, "/a", "is not an object"},
    {"{\"a\":\"F32\"}", 0, "/a", "is not an object"},
    {"{\"a\":[\"F32\",[1],[0,4]]}", 4, "/a", "is not an object"},
    {"{\"a\":{}}", 0, "/a/dtype", "is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, "/a/data_offsets", "is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "/a/shape", "is missing"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is missing"},
    {"{\"a\":{\"x\":1,\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a", "another member"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "twice"},
    {"{\"a\":{\"dtype\":\"F32\",\"d\\u0074ype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "twice"},
    {"{\"a\":" F32("[0,4]") ",\"a\":" F32("[4,8]") "}", 8, "/a", "twice"},
    {"{\"a\":" F32("[0,4]") ",\"\\u0061\":" F32("[4,8]") "}", 8, "/a", "twice"},
    {"{\"a\":" F32("[0,4]") ",\"b\":" F32("[4,8]") ",\"a\":" F32("[0,4]") "}", 8, "/a", "twice"},
    {"{\"x~/y\":5}", 0, "/x~0~1y", "is not an object"},
    /* dtypes */
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a safetensors dtype"},
    {"{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a safetensors dtype"},
    {"{\"a\":{\"dtype\":\"\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a safetensors dtype"},
    {"{\"a\":{\"dtype\":\"C128\",\"shape\":[1],\"data_offsets\":[0,16]}}", 16, "/a/dtype", "is not a safetensors dtype"},
    {"{\"a\":{\"dtype\":32,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a string"},
    {"{\"a\":{\"dtype\":[\"F32\"],\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a string"},
    {"{\"a\":{\"dtype\":{\"F32\":null},\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "/a/dtype", "is not a string"},
    /* shapes */
    {SHAPE("4"), 4, "/a/shape", "is not a list"},
    {SHAPE("null"), 4, "/a/shape", "is not a list"},
    {SHAPE("{\"0\":1}"), 4, "/a/shape", "is not a list"},
    {SHAPE("[-1]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[-0]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[1.0]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[1e0]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[\"1\"]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[[1]]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[{}]"), 4, "/a/shape", "whole numbers"},
    {SHAPE("[01]"), 4, "", "starts with 0"},
    {SHAPE("[1,]"), 4, "", "byte "},
    {SHAPE("[9223372036854775808,0]"), 0, "", "64 bits"},
    {SHAPE("[18446744073709551616]"), 4, "", "64 bits"},
    {SHAPE("[4294967296,4294967296]"), 4, "/a/shape", "2^64 bits"},
    {SHAPE("[4294967296,4294967296,0]"), 4, "/a/shape", "2^64 bits"},
    {SHAPE("[9223372036854775807]"), 4, "/a/shape", "2^64 bits"},
    {SHAPE("[576460752303423488]"), 4, "/a/shape", "2^64 bits"},
    {SHAPE("[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"), 4, "/a/shape", "too long"},
    {SHAPE("[2]"), 4, "/a/data_offsets", "as many bytes"},
    {SHAPE("[0]"), 4, "/a/data_offsets", "as many bytes"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "/a/shape", "part of a byte"},
    {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2, "/a/shape", "part of a byte"},
    /* offsets */
    {"{\"a\":" F32("4") "}", 4, "/a/data_offsets", "is not a list"},
    {"{\"a\":" F32("{}") "}", 4, "/a/data_offsets", "is not a list"},
    {"{\"a\":" F32("[]") "}", 4, "/a/data_offsets", "is not a pair"},
    {"{\"a\":" F32("[0]") "}", 4, "/a/data_offsets", "is not a pair"},
    {"{\"a\":" F32("[0,4,4]") "}", 4, "/a/data_offsets", "too long"},
    {"{\"a\":" F32("[0,null]") "}", 4, "/a/data_offsets", "whole numbers"},
    {"{\"a\":" F32("[-4,0]") "}", 4, "/a/data_offsets", "whole numbers"},
    {"{\"a\":" F32("[0,4.0]") "}", 4, "/a/data_offsets", "whole numbers"},
    {"{\"a\":" F32("[8,4]") "}", 4, "/a/data_offsets", "ends before"},
    {"{\"a\":" F32("[0,8]") "}", 8, "/a/data_offsets", "as many bytes"},
    {"{\"a\":" F32("[4,8]") "}", 8, "/a/data_offsets", "hole"},
    {"{\"a\":" F32("[0,4]") ",\"b\":" F32("[8,12]") "}", 12, "/b/data_offsets", "hole"},
    {"{\"a\":" F32("[0,4]") ",\"b\":" F32("[0,4]") "}", 4, "/b/data_offsets", "overlap"},
    {"{\"a\":" F32("[0,4]") ",\"b\":" F32("[2,6]") "}", 6, "/b/data_offsets", "overlap"},
    {"{\"a\":" F32("[9223372036854775803,9223372036854775807]") "}", 4, "/a/data_offsets", "hole"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[4,"
     "4]}}",
     8, "/b/data_offsets", "overlap"},
    {"{\"a\":" F32("[0,4]") "}", 8, "", "describes 4 bytes of tensors, and 8 are there"},
    {"{\"a\":" F32("[0,4]") "}", 3, "", "describes 4 bytes of tensors, and 3 are there"},
    {"{\"a\":" F32("[0,4]") "}", 0, "", "describes 4 bytes of tensors, and 0 are there"},
    {"{}", 1, "", "describes 0 bytes of tensors, and 1 are there"},
    /* metadata */
    {"{\"__metadata__\":[]}", 0, "/__metadata__", "object of strings"},
    {"{\"__metadata__\":\"x\"}", 0, "/__metadata__", "object of strings"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "/__metadata__/a", "is not a string"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "/__metadata__/a", "is not a string"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "/__metadata__/a", "is not a string"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"b\"}}", 0, "/__metadata__/a", "twice"},
    {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "/__metadata__", "twice"},
    {"{\"__metadata__\":null,\"__metadata__\":{}}", 0, "/__metadata__", "twice"},
    {"{\"__metadata__\":{\"a\":\"b\"", 0, "", "ends in the middle"},
    {"{\"__metadata__\":" F32("[0,4]") "}", 4, "/__metadata__/shape", "is not a string"},
};

START_TEST(test_malformed) {
    size_t size;
    unsigned char *bytes = file_of(malformed[_i].header, strlen(malformed[_i].header), malformed[_i].data, &size);
    expect_refusal(bytes, size, malformed[_i].pointer, malformed[_i].message);
    free(bytes);
}
END_TEST

START_TEST(test_malformed_sizes) {
    unsigned char bytes[16] = {2, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
    fb_safetensors file;
    for (uint64_t size = 0; size < 8; size++) expect_refusal(bytes, size, "", "shorter than the size");
    expect_refusal(bytes, 8, "", "beyond the end");
    expect_refusal(bytes, 9, "", "beyond the end");
    ck_assert_int_eq(fb_safetensors_read(bytes, 10, &file, NULL), FB_OK);
    fb_safetensors_free(&file);
    expect_refusal(bytes, 11, "", "describes 0 bytes");
    bytes[0] = 0;
    expect_refusal(bytes, 8, "", "does not begin with {");
    static const unsigned char hundred_million[8] = {0x00, 0xe1, 0xf5, 0x05};
    memcpy(bytes, hundred_million, 8);
    expect_refusal(bytes, 10, "", "beyond the end");
    bytes[0]++;
    expect_refusal(bytes, UINT64_MAX, "", "larger than 100 MB");
    memset(bytes, 0xff, 8);
    expect_refusal(bytes, 10, "", "larger than 100 MB");
    expect_refusal(bytes, UINT64_MAX, "", "larger than 100 MB");
    fb_error error = {0};
    ck_assert_int_eq(fb_safetensors_read(NULL, 0, &file, &error), FB_INVALID);
}
END_TEST

/* Every beginning of a good header, and every byte of it exchanged: an answer, whatever it is. */
START_TEST(test_damaged) {
    size_t length;
    char *good = read_file("tests/unit/data/safetensors/every_dtype.safetensors", &length);
    unsigned char *bytes = malloc(length);
    size_t taken = 0, header = 8 + (unsigned char)good[0] + 256 * (size_t)(unsigned char)good[1];
    for (size_t i = 0; i < header; i++) {
        static const char others[] = {0, '"', '{', '}', '[', ',', '0', '9', '\\', ' ', (char)0xff};
        fb_safetensors file;
        ck_assert_int_eq(fb_safetensors_read((unsigned char *)good, i, &file, NULL), FB_INVALID);
        for (size_t o = 0; o < sizeof others; o++) {
            memcpy(bytes, good, length);
            bytes[i] = (unsigned char)others[o];
            fb_status status = fb_safetensors_read(bytes, length, &file, NULL);
            ck_assert(status == FB_OK || status == FB_INVALID);
            if (!status) fb_safetensors_free(&file);
            taken += !status;
        }
    }
    ck_assert_uint_gt(taken, 100); /* other names, mostly */
    free(bytes);
    free(good);
}
END_TEST

/* ---- taken -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_entries) {
    fb_safetensors file;
    read_text("{\"b\":{\"data_offsets\":[4,28],\"shape\":[2,3],\"dtype\":\"F32\"},"
              "\"e2\":{\"dtype\":\"F64\",\"shape\":[9223372036854775807,0],\"data_offsets\":[28,28]},"
              "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
              "\"e1\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[28,28]},"
              "\"f\":{\"dtype\":\"F6_E3M2\",\"shape\":[4],\"data_offsets\":[28,31]}}\n\t\r ",
              31, &file);
    static const struct {
        const char *name, *dtype_name;
        fb_dtype dtype;
        int rank;
        uint64_t offset, size;
    } expected[] = {{"a", "I32", FB_INT32, 0, 0, 4},
                    {"b", "F32", FB_FLOAT32, 2, 4, 24},
                    {"e2", "F64", FB_FLOAT64, 2, 28, 0},
                    {"e1", "BOOL", FB_BOOL, 1, 28, 0},
                    {"f", "F6_E3M2", FB_FLOAT6_E3M2FN_X4, 1, 28, 3}};
    ck_assert_uint_eq(file.count, 5);
    ck_assert_ptr_null(file.metadata);
    uint64_t begin = file.size - 31;
    for (size_t i = 0; i < 5; i++) {
        const fb_safetensors_entry *entry = &file.entries[i];
        ck_assert_str_eq(entry->name, expected[i].name);
        ck_assert_str_eq(entry->dtype_name, expected[i].dtype_name);
        ck_assert_int_eq(entry->dtype, expected[i].dtype);
        ck_assert_int_eq(entry->rank, expected[i].rank);
        ck_assert_uint_eq(entry->offset, begin + expected[i].offset);
        ck_assert_uint_eq(entry->size, expected[i].size);
    }
    ck_assert_int_eq(file.entries[1].shape[0], 2);
    ck_assert_int_eq(file.entries[1].shape[1], 3);
    ck_assert_int_eq(file.entries[2].shape[0], INT64_MAX);
    fb_safetensors_free(&file);
    fb_safetensors_free(&file); /* empty now */
}
END_TEST

START_TEST(test_metadata) {
    fb_safetensors file;
    read_text("{\"__metadata__\":{\"z\":\"1\",\"a\":\"2\",\"\":\"\",\"m\":\"\\u00e9\"}}", 0, &file);
    char *text = json_dumps(file.metadata, JSON_COMPACT);
    ck_assert_str_eq(text, "{\"z\":\"1\",\"a\":\"2\",\"\":\"\",\"m\":\"\xc3\xa9\"}");
    free(text);
    fb_safetensors_free(&file);
    read_text("{\"__metadata__\":null}", 0, &file);
    ck_assert_ptr_null(file.metadata);
    fb_safetensors_free(&file);
    read_text("{\"__metadata__\":{}}", 0, &file);
    ck_assert_uint_eq(json_object_size(file.metadata), 0);
    fb_safetensors_free(&file);
}
END_TEST

/* Only the header has to be there. */
START_TEST(test_beyond_4_gib) {
    static const char header[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[65536,65537],\"data_offsets\":[0,8590065664]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[8590065664,8590065676]}}";
    size_t size;
    fb_safetensors file;
    unsigned char *bytes = file_of(header, strlen(header), 0, &size);
    ck_assert_int_eq(fb_safetensors_read(bytes, size + 8590065676, &file, NULL), FB_OK);
    ck_assert_uint_eq(file.entries[0].size, 8590065664);
    ck_assert_uint_eq(file.entries[1].offset, size + 8590065664);
    fb_buffer text = {0};
    uint64_t total;
    ck_assert_int_eq(fb_safetensors_lay_out(file.entries, file.count, NULL, &text, &total, NULL), FB_OK);
    ck_assert_str_eq(file.entries[0].name, "b");
    ck_assert_uint_eq(file.entries[1].offset, text.size + 12);
    ck_assert_uint_eq(total, text.size + 8590065676);
    fb_buffer_free(&text);
    fb_safetensors_free(&file);
    expect_refusal(bytes, size + 8590065675, "", "describes 8590065676 bytes");
    free(bytes);
}
END_TEST

/* Every dtype of graphs that the format has is read as it was written. */
START_TEST(test_dtype_names) {
    for (fb_dtype dtype = FB_FLOAT64; dtype < FB_DTYPE_COUNT; dtype++) {
        bool is_lacking = dtype == FB_COMPLEX128 || dtype == FB_COMPLEX32 || dtype == FB_DTYPE_OTHER;
        fb_safetensors_entry entry = {.name = "a", .dtype = dtype, .rank = 2, .shape = (int64_t[]){3, 5}};
        fb_safetensors file;
        fb_buffer header = {0};
        fb_error error = {0};
        uint64_t size;
        fb_status status = fb_safetensors_lay_out(&entry, 1, NULL, &header, &size, &error);
        ck_assert_msg((status == FB_OK) == !is_lacking, "%s: %s", fb_dtype_name(dtype), error.message);
        if (status) continue;
        ck_assert_int_eq(fb_safetensors_read((unsigned char *)header.data, size, &file, &error), FB_OK);
        ck_assert_int_eq(file.entries[0].dtype, dtype);
        ck_assert_str_eq(file.entries[0].dtype_name, entry.dtype_name);
        ck_assert_int_eq(file.entries[0].rank, 2);
        ck_assert_int_eq(file.entries[0].shape[1], 5);
        ck_assert_uint_eq(file.entries[0].size, 15 * fb_dtype_size(dtype));
        fb_safetensors_free(&file);
        fb_buffer_free(&header);
    }
}
END_TEST

/* ---- written ------------------------------------------------------------------------------------------------------------ */

static int by_name(const void *a, const void *b) {
    return strcmp(((const fb_safetensors_entry *)a)->name, ((const fb_safetensors_entry *)b)->name);
}

/* The header of a file that the reference implementation wrote, from its tensors in another order. */
static void expect_same_header(const char *path) {
    size_t size;
    fb_safetensors file;
    fb_error error = {0};
    char *bytes = read_file(path, &size);
    fb_status status = fb_safetensors_read((unsigned char *)bytes, size, &file, &error);
    ck_assert_msg(status == FB_OK, "%s: %s %s", path, error.pointer, error.message);
    if (file.count) fb_sort(file.entries, file.count, sizeof *file.entries, by_name);
    fb_buffer header = {0};
    uint64_t total;
    ck_assert_int_eq(fb_safetensors_lay_out(file.entries, file.count, file.metadata, &header, &total, &error), FB_OK);
    ck_assert_uint_eq(total, size);
    ck_assert_uint_le(header.size, size);
    ck_assert_mem_eq(header.data, bytes, header.size);
    fb_safetensors again;
    ck_assert_int_eq(fb_safetensors_read((unsigned char *)bytes, size, &again, &error), FB_OK);
    for (size_t i = 0; i < file.count; i++) ck_assert_uint_eq(file.entries[i].offset, again.entries[i].offset);
    fb_safetensors_free(&again);
    fb_buffer_free(&header);
    fb_safetensors_free(&file);
    free(bytes);
}

START_TEST(test_written_as_recorded) {
    expect_same_header("tests/unit/data/safetensors/every_dtype.safetensors");
    expect_same_header("tests/unit/data/safetensors/empty.safetensors");
    size_t files = 0;
    for (size_t i = 0; fixture_names[i]; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/fixtures/%s/weights.safetensors", fixture_names[i]);
        FILE *file = fopen(path, "rb");
        if (!file) continue; /* the large ones have none */
        fclose(file);
        expect_same_header(path);
        files++;
    }
    ck_assert_uint_ge(files, 9);
}
END_TEST

START_TEST(test_only_carried) {
    size_t size;
    fb_safetensors file;
    fb_error error = {0};
    char *bytes = read_file("tests/unit/data/safetensors/only_carried.safetensors", &size);
    ck_assert_int_eq(fb_safetensors_read((unsigned char *)bytes, size, &file, NULL), FB_OK);
    ck_assert_uint_eq(file.count, 5);
    ck_assert_str_eq(file.entries[4].dtype_name, "F4");
    fb_buffer header = {0};
    uint64_t total;
    fb_safetensors_entry *entries = file.entries;
    for (size_t i = 0; i < file.count; i++) ck_assert_msg(entries[i].dtype, "%s", entries[i].dtype_name);
    ck_assert_int_eq(fb_safetensors_lay_out(entries, file.count, NULL, &header, &total, &error), FB_OK);
    ck_assert_uint_eq(total, size);
    fb_buffer_free(&header);
    fb_safetensors_free(&file);
    free(bytes);
}
END_TEST

static void expect_lay_out(fb_safetensors_entry *entries, size_t count, fb_status expected, const char *code) {
    fb_buffer header = {0};
    uint64_t total;
    fb_error error = {0};
    ck_assert_int_eq(fb_safetensors_lay_out(entries, count, NULL, &header, &total, &error), expected);
    ck_assert_str_eq(error.code, code);
    ck_assert_ptr_null(header.data);
}

START_TEST(test_not_written) {
    static const int64_t two[] = {2}, huge[] = {INT64_MAX / 8, 3}, half[] = {INT64_MAX / 8};
    fb_safetensors_entry twice[] = {{.name = "a", .dtype = FB_FLOAT32, .rank = 1, .shape = two},
                                    {.name = "b", .dtype = FB_FLOAT32, .rank = 1, .shape = two},
                                    {.name = "a", .dtype = FB_FLOAT32, .rank = 0, .shape = two}};
    expect_lay_out(twice, 3, FB_INVALID, "not-in-safetensors");
    expect_lay_out(&(fb_safetensors_entry){.name = "__metadata__", .dtype = FB_INT8}, 1, FB_INVALID, "not-in-safetensors");
    expect_lay_out(&(fb_safetensors_entry){.name = "a", .dtype = FB_COMPLEX128}, 1, FB_INVALID, "not-in-safetensors");
    expect_lay_out(&(fb_safetensors_entry){.name = "a", .dtype = FB_INT8, .rank = 2, .shape = huge}, 1, FB_TOO_LARGE,
                   "tensor-too-large");
    fb_safetensors_entry many[9];
    char names[9][2] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    for (size_t i = 0; i < 9; i++)
        many[i] = (fb_safetensors_entry){.name = names[i], .dtype = FB_INT8, .rank = 1, .shape = half};
    expect_lay_out(many, 9, FB_TOO_LARGE, "file-too-large");
}
END_TEST

/* One name twice, with other dtypes: they do not stand side by side. */
START_TEST(test_name_repeated_in_another_dtype) {
    fb_safetensors_entry entries[] = {
        {.name = "a", .dtype = FB_FLOAT32}, {.name = "b", .dtype = FB_FLOAT32}, {.name = "a", .dtype = FB_INT8}};
    expect_lay_out(entries, 3, FB_INVALID, "not-in-safetensors");
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

START_TEST(test_memory_runs_out) {
    size_t size, failures = 0;
    char *bytes = read_file("tests/unit/data/safetensors/every_dtype.safetensors", &size);
    for (long k = 0;; k++) {
        fb_safetensors file = {0};
        fb_buffer header = {0};
        fb_error error = {0};
        uint64_t total;
        chaos_fail_after(k);
        fb_status status = fb_safetensors_read((unsigned char *)bytes, size, &file, &error);
        if (!status) status = fb_safetensors_lay_out(file.entries, file.count, file.metadata, &header, &total, &error);
        bool failed = chaos_off();
        fb_buffer_free(&header);
        fb_safetensors_free(&file);
        if (!failed) {
            ck_assert_int_eq(status, FB_OK);
            break;
        }
        if (status) ck_assert_int_eq(status, FB_NO_MEMORY); /* qsort can do without */
        failures += status != FB_OK;
    }
    ck_assert_uint_gt(failures, 10);
    size_t length;
    unsigned char *bad = file_of("{\"a\":5}", 7, 0, &length);
    for (long k = 0;; k++) {
        fb_safetensors file;
        chaos_fail_after(k);
        fb_status status = fb_safetensors_read(bad, length, &file, NULL);
        if (!chaos_off()) break;
        ck_assert_int_eq(status, FB_NO_MEMORY);
    }
    free(bad);
    free(bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("headers");
    tcase_add_loop_test(tests, test_malformed, 0, sizeof malformed / sizeof *malformed);
    tcase_add_test(tests, test_malformed_sizes);
    tcase_add_test(tests, test_damaged);
    tcase_add_test(tests, test_entries);
    tcase_add_test(tests, test_metadata);
    tcase_add_test(tests, test_beyond_4_gib);
    tcase_add_test(tests, test_dtype_names);
    tcase_add_test(tests, test_written_as_recorded);
    tcase_add_test(tests, test_only_carried);
    tcase_add_test(tests, test_not_written);
    tcase_add_test(tests, test_name_repeated_in_another_dtype);
    tcase_add_test(tests, test_memory_runs_out);
    tcase_set_timeout(tests, 600);
    return run_tests("safetensors", tests);
}
