/* Messages of ONNX: read as protobuf's own library reads them, written as the bytes that they were, and never a byte read
 * beyond the file. tests/fixtures/onnx/make.py made messages.txt with that library. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/onnx/model.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

static const char *const fixtures[] = {"external-two-files", "functions", "half-mlp", "if-and-loop", "keras-cnn-11", "qdq-cnn"};
#define FIXTURES (int)(sizeof fixtures / sizeof *fixtures)

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static char *read_model(const char *name, size_t *size) {
    char file[64];
    snprintf(file, sizeof file, "%s.onnx", name);
    return read_fixture("onnx", file, size);
}

/* In a block of its own size, so that a sanitizer sees what is read beyond it. */
static fb_status open_in(const void *bytes, size_t size, const onnx_limits *limits, onnx_file *file, fb_error *error) {
    return onnx_open(bytes, size, limits, &(fb_work){0}, file, error);
}

/* Marks all fields of all messages as set, so that they are written anew. */
#define ONNX_MESSAGE(message, name, most, alternatives) static void set_##message(onnx_##message *one);
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type)
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END

#define SET_MESSAGE(type, field)                                                                                               \
    if (one->field) set_##type(one->field);
#define SET_MESSAGES(type, field)                                                                                              \
    for (size_t i = 0; i < one->field.count; i++) set_##type(&one->field.items[i]);
#define ONNX_MESSAGE(message, name, most, alternatives)                                                                        \
    static void set_##message(onnx_##message *one) {                                                                           \
        one->head.is_set = one->head.has;                                                                                      \
        one->head.first = NULL;
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type) SET_##kind(type, field)
#define ONNX_END(message) }
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END

/* The content of a field, in a model that has nothing else. */
static void put_held(fb_buffer *out, uint32_t number, const fb_buffer *content) {
    onnx_put_bytes(out, number, content->size ? content->data : "", content->size);
}

static void wrap(fb_buffer *content, uint32_t number) {
    fb_buffer out = {0};
    put_held(&out, number, content);
    fb_buffer_free(content);
    *content = out;
}

static fb_status open_buffer(const fb_buffer *bytes, const onnx_limits *limits, onnx_file *file, fb_error *error) {
    char *copy = malloc(bytes->size + 1); /* stays: the file borrows it */
    memcpy(copy, bytes->size ? bytes->data : "", bytes->size);
    return open_in(copy, bytes->size, limits, file, error);
}

static void close_all(onnx_file *file) {
    free((void *)(uintptr_t)file->bytes);
    onnx_close(file);
}

static void expect(const fb_buffer *bytes, const onnx_limits *limits, fb_status wanted, const char *code, const char *message) {
    onnx_file file;
    fb_error error = {0};
    fb_status status = open_buffer(bytes, limits, &file, &error);
    ck_assert_msg(status == wanted, "%d \"%s\" instead of %d \"%s\"", status, error.message, wanted, message);
    ck_assert_str_eq(error.code, code);
    ck_assert_msg(strstr(error.message, message), "\"%s\" lacks \"%s\"", error.message, message);
    close_all(&file);
}

/* ---- as the library reads them ------------------------------------------------------------------------------------------ */

/* Where a model has a message of each kind. */
static const struct {
    const char *kind;
    uint32_t path[6]; /* from the inside */
} places[] = {
    {"model", {0}},      {"graph", {7}},          {"node", {1, 7}},     {"attribute", {5, 1, 7}},           {"tensor", {5, 7}},
    {"sparse", {15, 7}}, {"value_info", {11, 7}}, {"type", {2, 11, 7}}, {"dimension", {1, 2, 1, 2, 11, 7}}, {"function", {25}},
};

static fb_buffer from_hex(const char *text) {
    fb_buffer out = {0};
    unsigned byte;
    for (; sscanf(text, "%2x", &byte) == 1; text += 2) fb_buffer_char(&out, (char)(unsigned char)byte);
    return out;
}

static void check_message(const char *kind, const char *before, const char *after) {
    fb_buffer bytes = from_hex(before), wanted = from_hex(strcmp(after, "refused") ? after : "");
    size_t place = 0;
    while (strcmp(places[place].kind, kind) != 0) place++;
    for (int i = 0; i < 6 && places[place].path[i]; i++)
        wrap(&bytes, places[place].path[i]), wrap(&wanted, places[place].path[i]);
    onnx_file file;
    fb_error error = {0};
    fb_status status = open_buffer(&bytes, NULL, &file, &error);
    if (strcmp(after, "refused") == 0) {
        ck_assert_msg(status == FB_INVALID, "%s %s is read", kind, before);
        ck_assert_str_eq(error.code, "bad-onnx");
    } else {
        ck_assert_msg(!status, "%s %s: %s", kind, before, error.message);
        fb_buffer same = {0}, out = {0};
        onnx_write(ONNX_IS_model, file.model, &same);
        ck_assert(same.size == bytes.size && (!same.size || memcmp(same.data, bytes.data, same.size) == 0));
        set_model(file.model);
        onnx_write(ONNX_IS_model, file.model, &out);
        bool is_same = out.size == wanted.size && (!out.size || memcmp(out.data, wanted.data, out.size) == 0);
        ck_assert_msg(is_same, "%s %s is read as something else than %s", kind, before, after);
        fb_buffer_free(&same);
        fb_buffer_free(&out);
    }
    close_all(&file);
    fb_buffer_free(&bytes);
    fb_buffer_free(&wanted);
}

START_TEST(test_as_the_library_reads) {
    size_t size, seen = 0;
    char *text = read_fixture("onnx", "messages.txt", &size), *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *before = strchr(line, ' '), *after = strrchr(line, ' ');
        *before++ = *after++ = '\0';
        check_message(line, before, after);
        seen++;
    }
    ck_assert_uint_ge(seen, 80);
    free(text);
}
END_TEST

/* ---- files -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_very_bytes) {
    size_t size;
    char *bytes = read_model(fixtures[_i], &size);
    onnx_file file;
    fb_error error = {0};
    fb_buffer same = {0}, again = {0};
    ck_assert_msg(!open_in(bytes, size, NULL, &file, &error), "%s", error.message);
    onnx_write(ONNX_IS_model, file.model, &same);
    ck_assert(same.size == size && memcmp(same.data, bytes, size) == 0);
    set_model(file.model); /* these files were written in the order of numbers, or nearly so: nothing is lost */
    onnx_write(ONNX_IS_model, file.model, &again);
    ck_assert_uint_eq(again.size, size);
    fb_buffer_free(&same);
    fb_buffer_free(&again);
    onnx_close(&file);
    free(bytes);
}
END_TEST

static bool is(onnx_bytes text, const char *wanted) {
    return text.size == strlen(wanted) && memcmp(text.text, wanted, text.size) == 0;
}

/* One field of one node is changed: all other bytes stay, those of unknown fields too. */
START_TEST(test_one_field_is_changed) {
    fb_buffer node = {0}, out = {0};
    onnx_put_bytes(&node, 900, "later", 5);
    onnx_put_bytes(&node, 4, "Relu", 4);
    onnx_put_bytes(&node, 1, "x", 1);
    onnx_put_bytes(&node, 4, "Tanh", 4);
    onnx_put_bytes(&node, 2, "y", 1);
    wrap(&node, 1);
    onnx_put_bytes(&node, 901, "later", 5);
    wrap(&node, 7);
    onnx_file file;
    ck_assert(!open_buffer(&node, NULL, &file, &(fb_error){0}));
    onnx_graph *graph = file.model->graph;
    ck_assert_uint_eq(graph->node.count, 1);
    onnx_node *one = &graph->node.items[0];
    ck_assert(is(one->op_type, "Tanh") && is(one->input.items[0], "x"));
    one->op_type = (onnx_bytes){"Elu", 3};
    onnx_set(&one->head, ONNX_node_op_type);
    one->name = (onnx_bytes){"n", 1};
    onnx_set(&one->head, ONNX_node_name);
    onnx_unset(&one->head, ONNX_node_output);
    onnx_set(&graph->head, ONNX_graph_node);
    onnx_set(&file.model->head, ONNX_model_graph);
    onnx_write(ONNX_IS_model, file.model, &out);
    static const char wanted[] = "\x3a\x1d\x0a\x13\xa2\x38\x05later\x22\x03"
                                 "Elu\x0a\x01x\x1a\x01n\xaa\x38\x05later";
    ck_assert_uint_eq(out.size, sizeof wanted - 1);
    ck_assert_mem_eq(out.data, wanted, sizeof wanted - 1);
    fb_buffer_free(&node);
    fb_buffer_free(&out);
    close_all(&file);
}
END_TEST

START_TEST(test_new_numbers) {
    onnx_file file;
    ck_assert(!open_in("", 0, NULL, &file, &(fb_error){0}));
    onnx_attribute attribute = {0};
    uint64_t values[] = {1, 300, UINT64_MAX}, bits;
    ck_assert(onnx_make_numbers(&file.arena, ONNX_VARINT, values, 3, &attribute.ints));
    onnx_set(&attribute.head, ONNX_attribute_ints);
    onnx_number_cursor cursor = onnx_numbers_from(&attribute.ints, ONNX_VARINT);
    for (int i = 0; i < 3; i++) ck_assert(onnx_numbers_next(&cursor, &bits) && bits == values[i]);
    ck_assert(!onnx_numbers_next(&cursor, &bits));
    fb_buffer out = {0};
    onnx_write(ONNX_IS_attribute, &attribute, &out);
    static const char wanted[] = "\x40\x01\x40\xac\x02\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    ck_assert_uint_eq(out.size, sizeof wanted - 1);
    ck_assert_mem_eq(out.data, wanted, sizeof wanted - 1);
    fb_buffer_free(&out);
    onnx_close(&file);
}
END_TEST

/* ---- broken files ------------------------------------------------------------------------------------------------------- */

static void try_bytes(const char *bytes, size_t size, const char *what, size_t at) {
    char *copy = malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    onnx_file file;
    fb_error error = {0};
    fb_buffer out = {0};
    fb_status status = open_in(copy, size, NULL, &file, &error);
    if (status) {
        ck_assert_msg(status == FB_INVALID || status == FB_TOO_LARGE, "%s %zu: %d %s", what, at, status, error.message);
        /* The version of another one's is the first member there, too. */
        bool has_place = strstr(error.message, " at byte ") || strstr(error.message, "saved_model.pb of TensorFlow");
        ck_assert_msg(has_place, "%s %zu: \"%s\" says no place", what, at, error.message);
    } else {
        onnx_write(ONNX_IS_model, file.model, &out);
        ck_assert_msg(out.size == size && (!size || memcmp(out.data, copy, size) == 0), "%s %zu: other bytes", what, at);
        fb_buffer_free(&out);
        set_model(file.model);
        onnx_write(ONNX_IS_model, file.model, &out);
        onnx_file again;
        ck_assert_msg(!open_in(out.size ? out.data : "", out.size, NULL, &again, &error), "%s %zu: %s", what, at,
                      error.message);
        onnx_close(&again);
    }
    fb_buffer_free(&out);
    onnx_close(&file);
    free(copy);
}

START_TEST(test_cut_off) {
    static const char *const names[] = {"external-two-files", "functions", "if-and-loop"};
    size_t size;
    char *bytes = read_model(names[_i], &size);
    for (size_t at = 0; at < size; at++) try_bytes(bytes, at, "cut at", at);
    free(bytes);
}
END_TEST

/* Every byte: of the first model as each of its values, of the others each bit of it. */
START_TEST(test_changed_bytes) {
    static const char *const names[] = {"external-two-files", "functions", "if-and-loop"};
    size_t size;
    char *bytes = read_model(names[_i], &size);
    for (size_t at = 0; at < size; at++) {
        char before = bytes[at];
        for (int i = 0; i < (_i ? 8 : 256); i++) {
            bytes[at] = (char)(unsigned char)(_i ? (unsigned char)before ^ 1 << i : i);
            try_bytes(bytes, size, "changed at", at);
        }
        bytes[at] = before;
    }
    free(bytes);
}
END_TEST

static const struct {
    const char *bytes;
    size_t size;
    const char *message;
} broken[] = {
#define CASE(bytes, message)                                                                                                   \
    { bytes, sizeof bytes - 1, message }
    CASE("\x3a\x05\x12\x01", "ModelProto.graph at byte 0: a length reaches beyond the end, as where a file was cut off"),
    CASE("\x08\x07\x3a\xff\xff\xff\xff\x0f",
         "ModelProto.graph at byte 2: a length reaches beyond the end, as where a file was cut off"),
    CASE("\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a tag or a length has more than five bytes"),
    CASE("\x08", "ModelProto.ir_version at byte 0: the bytes end before a number"),
    CASE("\x08\x80", "the bytes end within a number"),
    CASE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "a number has more than ten bytes"),
    CASE("\x0b\x0c", "a field is of a kind that ONNX does not use"),
    CASE("\x00\x01", "a field has a number that no field has"),
    CASE("\x3a\x02\x12\x05", "GraphProto.name at byte 2: a length reaches beyond the end, as where a file was cut off"),
    CASE("\x3a\x03\x12\x01\xff", "GraphProto.name at byte 2: the name is not UTF-8"),
    CASE("\x3a\x04\x12\x02\xc0\x80", "GraphProto.name at byte 2: the name is not UTF-8"),
    CASE("\x3a\x05\x12\x03\xed\xa0\x80", "GraphProto.name at byte 2: the name is not UTF-8"),
    CASE("\x3a\x05\x0a\x03\x0a\x01\xff", "NodeProto.input at byte 4: the name is not UTF-8"),
    CASE("\x3a\x05\x2a\x03\x0a\x01\x80", "TensorProto.dims at byte 6: the bytes end within a number"),
    CASE("\x3a\x05\x2a\x03\x22\x01\x80", "TensorProto.float_data at byte 6: the bytes end within a number"),
#undef CASE
};

START_TEST(test_broken) {
    fb_buffer bytes = {0};
    fb_buffer_append(&bytes, broken[_i].bytes, broken[_i].size);
    expect(&bytes, NULL, FB_INVALID, "bad-onnx", broken[_i].message);
    fb_buffer_free(&bytes);
}
END_TEST

/* ---- limits ------------------------------------------------------------------------------------------------------------- */

static void nest_graphs(fb_buffer *out, int count) {
    for (int i = 1; i < count; i++) wrap(out, 6), wrap(out, 5), wrap(out, 1);
    wrap(out, 7);
}

static void nest_types(fb_buffer *out, int count) {
    for (int i = 1; i < count; i++) wrap(out, 1), wrap(out, 4);
    wrap(out, 2), wrap(out, 11), wrap(out, 7);
}

START_TEST(test_nesting) {
    void (*nest[])(fb_buffer *, int) = {nest_graphs, nest_types};
    static const char *const names[] = {"GraphProto at byte ", "TypeProto at byte "};
    fb_buffer most = {0}, more = {0}, far = {0};
    onnx_file file;
    nest[_i](&most, 32), nest[_i](&more, 33), nest[_i](&far, 3000);
    ck_assert(!open_buffer(&most, NULL, &file, &(fb_error){0}));
    close_all(&file);
    expect(&more, NULL, FB_INVALID, "unsupported-onnx", names[_i]);
    expect(&far, NULL, FB_INVALID, "unsupported-onnx", "more than 32 of them are in one another");
    fb_buffer_free(&most), fb_buffer_free(&more), fb_buffer_free(&far);
}
END_TEST

START_TEST(test_counts) {
    fb_buffer nodes = {0}, values = {0}, packed = {0}, name = {0}, parts = {0};
    for (int i = 0; i < 5; i++) onnx_put_bytes(&nodes, 1, "", 0);
    wrap(&nodes, 7);
    expect(&nodes, &(onnx_limits){.max_nodes = 4}, FB_TOO_LARGE, "too-many-nodes", "GraphProto.node at byte 10");
    expect(&nodes, &(onnx_limits){.memory = 1000}, FB_TOO_LARGE, "body-too-large", "1000 bytes");
    onnx_file file;
    ck_assert(!open_buffer(&nodes, &(onnx_limits){.max_nodes = 5}, &file, &(fb_error){0}));
    ck_assert_uint_eq(file.node_count, 5);
    close_all(&file);

    for (int i = 0; i < 1000000; i++) fb_buffer_append(&values, "\x40\x01", 2), fb_buffer_char(&packed, 1);
    fb_buffer_char(&packed, 1);
    wrap(&packed, 8);
    fb_buffer_append(&packed, values.data, values.size);
    wrap(&packed, 5), wrap(&packed, 1), wrap(&packed, 7);
    ck_assert(!open_buffer(&packed, NULL, &file, &(fb_error){0}));
    ck_assert_uint_eq(file.model->graph->node.items[0].attribute.items[0].ints.count, 2000001);
    ck_assert_msg(file.arena.total < 10000, "numbers stay where they are");
    close_all(&file);
    fb_buffer_append(&values, "\x4a", 2);
    wrap(&values, 5), wrap(&values, 1), wrap(&values, 7);
    expect(&values, NULL, FB_TOO_LARGE, "too-many-values", "AttributeProto.strings at byte ");

    for (int i = 0; i < 65536; i++) fb_buffer_char(&name, 'a');
    fb_buffer longer = {0};
    fb_buffer_append(&longer, name.data, name.size);
    fb_buffer_char(&longer, 'a');
    wrap(&name, 2), wrap(&name, 7), wrap(&longer, 2), wrap(&longer, 7);
    ck_assert(!open_buffer(&name, NULL, &file, &(fb_error){0}));
    close_all(&file);
    expect(&longer, NULL, FB_TOO_LARGE, "name-too-long", "GraphProto.name at byte ");

    /* a message in very many parts, each with an item: as much memory as the items take, not its square */
    for (int i = 0; i < 20000; i++) fb_buffer_append(&parts, "\x3a\x02\x0a\0", 4);
    ck_assert(!open_buffer(&parts, NULL, &file, &(fb_error){0}));
    ck_assert_uint_eq(file.model->graph->node.count, 20000);
    ck_assert_uint_lt(file.arena.total, 20000 * (sizeof(onnx_node) + 100));
    close_all(&file);
    fb_buffer_free(&nodes), fb_buffer_free(&values), fb_buffer_free(&packed), fb_buffer_free(&name), fb_buffer_free(&longer);
    fb_buffer_free(&parts);
}
END_TEST

static fb_status stop(void *context, fb_error *error) {
    (void)context;
    return fb_fail(error, FB_BUSY, "stopped", "", "it was stopped");
}

START_TEST(test_stopped) {
    fb_buffer nodes = {0};
    for (int i = 0; i < 200000; i++) onnx_put_bytes(&nodes, 1, "", 0);
    wrap(&nodes, 7);
    fb_watch watch = {.check = stop};
    fb_work work = {.watch = &watch};
    onnx_file file;
    fb_error error = {0};
    ck_assert_int_eq(onnx_open(nodes.data, nodes.size, NULL, &work, &file, &error), FB_BUSY);
    ck_assert_str_eq(error.code, "stopped");
    onnx_close(&file);
    fb_buffer_free(&nodes);
}
END_TEST

START_TEST(test_memory_runs_out) {
    size_t size;
    char *bytes = read_model(fixtures[_i], &size);
    for (long k = 0;; k++) {
        onnx_file file;
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = open_in(bytes, size, NULL, &file, &error);
        bool has_failed = chaos_off();
        onnx_close(&file);
        if (!has_failed) break;
        ck_assert_msg(status == FB_NO_MEMORY, "allocation %ld: %d %s", k, status, error.message);
    }
    free(bytes);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("onnx_model");
    tcase_add_test(tests, test_as_the_library_reads);
    tcase_add_loop_test(tests, test_very_bytes, 0, FIXTURES);
    tcase_add_test(tests, test_one_field_is_changed);
    tcase_add_test(tests, test_new_numbers);
    tcase_add_loop_test(tests, test_cut_off, 0, 3);
    tcase_add_loop_test(tests, test_changed_bytes, 0, 3);
    tcase_add_loop_test(tests, test_broken, 0, sizeof broken / sizeof *broken);
    tcase_add_loop_test(tests, test_nesting, 0, 2);
    tcase_add_test(tests, test_counts);
    tcase_add_test(tests, test_stopped);
    tcase_add_loop_test(tests, test_memory_runs_out, 0, FIXTURES);
    tcase_set_timeout(tests, 600);
    return run_tests("onnx_model", tests);
}
