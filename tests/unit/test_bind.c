/* Binding graphs to safetensors files: which tensor is which, what does not fit, shards, faults. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind.h"
#include "tests/unit/bind_fixture.h"
#include "tests/unit/chaos.h"
#include "tests/unit/run_tests.h"

/* ---- names -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_names) {
    fb_graph *graph = bind_graph("{\"\":{\"own\":\"c\"},\"fc\":{\"weight\":\"fc.weight\",\"bias\":\"other name\"}}",
                                 TENSOR("fc.weight", "") "," TENSOR("other name", "") "," TENSOR("c", ""));
    const char *file = FILE_OF(U8_2("fc.weight", "ab"), U8_2("fc.bias", "cd"), U8_2("own", "ef"));
    expect_bound(graph, file, 3);
    expect_bytes(graph, "fc.weight", "ab");
    expect_bytes(graph, "other name", "cd");
    expect_bytes(graph, "c", "ef");
    char *before = bind_document(graph);
    expect_bound(graph, file, 3); /* again: nothing changes */
    char *after = bind_document(graph);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    file = FILE_OF(U8_2("other name", "gh"), U8_2("c", "ij"));
    expect_bound(graph, file, 2); /* the rest stays as it was */
    expect_bytes(graph, "fc.weight", "ab");
    expect_bytes(graph, "other name", "gh");
    expect_bytes(graph, "c", "ij");
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_missing_and_extra) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\",\"b\":\"b\",\"m\":\"m\"}}",
                                 TENSOR("a", "") "," TENSOR("b", "") "," TENSOR("r", "") "," TENSOR(
                                     "m", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"r\"],\"dims\":[0]}"));
    const char *file = FILE_OF(U8_2("a", "ab"), U8_2("z", "zz"), U8_2("", "zz"), U8_2(".a", "zz"), U8_2("b.", "zz"));
    expect_binding(graph, &file, 1, 1, "[\"b\",\"r\"]", "[\"\",\".a\",\"b.\",\"z\"]", "[]", "");
    file = FILE_OF(U8_2("r", "rr"));
    expect_binding(graph, &file, 1, 1, "[\"b\"]", "[]", "[]", "");
    ck_assert(tensor_row(graph, "m")->recipe.id);
    expect_binding(graph, NULL, 0, 0, "[\"b\"]", "[]", "[]", "");
    file = FILE_OF({"b", "U8", "2", "bb", 2});
    expect_bound(graph, file, 1);
    fb_graph_free(graph);
}
END_TEST

/* Paths of one tensor may each have a copy in the file. */
START_TEST(test_tied) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"q\"},\"fc\":{\"q\":\"q\"}}", TENSOR("q", ""));
    expect_bound(graph, FILE_OF(U8_2("fc.q", "ab")), 1);
    expect_bound(graph, FILE_OF(U8_2("a", "ab"), U8_2("fc.q", "ab"), U8_2("q", "ab")), 1);
    expect_mismatch(graph, FILE_OF(U8_2("a", "ab"), U8_2("fc.q", "ac")), "fc.q", "tied to a");
    expect_mismatch(graph, FILE_OF(U8_2("a", "ab"), U8_1("fc.q", "a")), "fc.q", "dtype or shape");
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_shape_and_dtype) {
    static const memory_tensor others[] = {
        {"a", "U8", "3", "abc", 3},  {"a", "U8", "2,1", "ab", 2}, {"a", "U8", "", "a", 1},  {"a", "I8", "2", "ab", 2},
        {"a", "BOOL", "2", "ab", 2}, {"a", "F4", "2", "a", 1},    {"a", "U8", "0", "", 0},  {"a", "F8_E8M0", "2", "ab", 2},
        {"a", "U16", "1", "ab", 2},  {"a", "U8", "1,2", "ab", 2}, {"a", "C64", "0", "", 0},
    };
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_mismatch(graph, memory_blobs_put_tensors(&bind_blobs, NULL, &others[i], 1), "a", "dtype or shape");
    fb_binding binding;
    const char *file = FILE_OF({"a", "F4", "2,1", "a", 1});
    ck_assert_int_eq(fb_bind(graph, &file, 1, &bind_blobs.source, NULL, &binding, NULL), FB_OK);
    char *text = json_dumps(json_array_get(binding.mismatching, 0), JSON_COMPACT);
    ck_assert_str_eq(text, "{\"name\":\"a\",\"detail\":\"the file's dtype or shape is not the graph's\","
                           "\"file\":{\"dtype\":\"F4\",\"shape\":[2,1]},\"graph\":{\"dtype\":\"uint8\",\"shape\":[2]}}");
    free(text);
    fb_binding_free(&binding);
    fb_graph_free(graph);
}
END_TEST

/* ---- several files ------------------------------------------------------------------------------------------------------ */

static const char *put_text(const char *text) {
    return memory_blobs_put(&bind_blobs, text, strlen(text));
}

#define INDEX(map) "{\"metadata\": {\"total_size\": 4, \"deep\": [[{\"a\": [1.5, null]}]]}, \"weight_map\": " map "}\n"

START_TEST(test_shards) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", TENSOR("a", "") "," TENSOR("b", ""));
    const char *index = put_text(INDEX("{\"a\": \"1.safetensors\", \"b\": \"2.safetensors\"}"));
    const char *first = FILE_OF(U8_2("a", "ab")), *second = FILE_OF(U8_2("b", "cd"));
    expect_binding(graph, (const char *[]){first, second}, 2, 2, "[]", "[]", "[]", "");
    expect_binding(graph, (const char *[]){first, index, second, first}, 4, 2, "[]", "[]", "[]", "");
    expect_bytes(graph, "b", "cd");
    expect_binding(graph, (const char *[]){index, first}, 2, 0, "[]", "[]", "[\"2.safetensors\"]", "lacks b");
    expect_binding(graph, (const char *[]){index}, 1, 0, "[]", "[]", "[\"1.safetensors\",\"2.safetensors\"]", "lacks a");
    const char *both = put_text(INDEX("{\"a\": \"1.safetensors\", \"b\": \"1.safetensors\"}"));
    expect_binding(graph, (const char *[]){both, first, second}, 3, 0, "[]", "[]", "[\"1.safetensors\"]",
                   "in two files: a and b");
    const char *less = put_text(INDEX("{\"a\": \"1.safetensors\"}"));
    expect_binding(graph, (const char *[]){less, first, second}, 3, 0, "[]", "[]", "[\"b\"]", "does not name");
    const char *other = FILE_OF(U8_2("b", "ef"));
    expect_binding(graph, (const char *[]){first, second, other}, 3, 0, "[]", "[]", "[\"b\"]", "two of the files");
    fb_graph_free(graph);
}
END_TEST

static const struct {
    const char *text, *pointer, *message;
} bad_files[] = {
    {"", "/weights/1", "shorter"},
    {"[]", "/weights/1", "shorter"},
    {"something else", "/weights/1", "100 MB"},
    {"{}", "/weights/1", "not an index"},
    {"{\"weight_map\": []}", "/weights/1", "not an index"},
    {"{\"weight_map\": {\"a\": 1}}", "/weights/1", "not an index"},
    {"{\"weight_map\": {\"a\": [\"b\"]}}", "/weights/1", "nested"},
    {"{\"weight_map\": {}, \"weight_map\": {}}", "/weights/1", "not an index"},
    {"{\"weight_map\": {\"a\": \"1\"}", "/weights/1", "ends in the middle"},
    {"{\"weight_map\": {\"a\": \"1\"}} x", "/weights/1", "something follows"},
    {"  {\"weight_map\": {\"a\": \"\xff\"}}", "/weights/1", "UTF-8"},
    {"{\"metadata\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "/weights/1", "nested"},
};

START_TEST(test_bad_files) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    char *before = bind_document(graph);
    const char *files[] = {FILE_OF(U8_2("a", "ab")), put_text(bad_files[_i].text)};
    fb_binding binding;
    fb_error error = {0};
    ck_assert_int_eq(fb_bind(graph, files, 2, &bind_blobs.source, NULL, &binding, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "bad-safetensors");
    ck_assert_str_eq(error.pointer, bad_files[_i].pointer);
    ck_assert_msg(strstr(error.message, bad_files[_i].message), "%s", error.message);
    char *after = bind_document(graph);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_bad_header_and_missing_blob) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    fb_binding binding;
    fb_error error = {0};
    const char *good = FILE_OF(U8_2("a", "ab")), *bad = FILE_OF({"a/b", "U8", "3", "ab", 2});
    ck_assert_int_eq(fb_bind(graph, (const char *[]){good, good, bad}, 3, &bind_blobs.source, NULL, &binding, &error),
                     FB_INVALID);
    ck_assert_str_eq(error.pointer, "/weights/2/a~1b/data_offsets");
    static const char away[] = "sha256:00000000000000000000000000000000000000000000000000000000000000ff";
    error = (fb_error){0};
    ck_assert_int_eq(fb_bind(graph, (const char *[]){good, away}, 2, &bind_blobs.source, NULL, &binding, &error), FB_NOT_FOUND);
    ck_assert_str_eq(error.code, "blob-missing");
    ck_assert_str_eq(error.pointer, "/weights/1");
    ck_assert_ptr_nonnull(strstr(error.message, away));
    ck_assert_uint_eq(bind_blobs.open, 0);
    fb_graph_free(graph);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

/* Everything at once, with and without something that does not fit: the graph is bound whole, or stays as it is. */
START_TEST(test_memory_runs_out) {
    char digest[FB_ID_LENGTH + 1], tensors[1200];
    bytes_digest("cd", digest);
    snprintf(
        tensors, sizeof tensors,
        TENSOR("a", "") "," TENSOR("b", ",\"digest\":\"%s\"") "," TENSOR(
            "m",
            ",\"recipe\":{\"op\":\"permute\",\"args\":[\"a\"],"
            "\"dims\":[0]}") "," TENSOR("n", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"o\"],\"dims\":[0]}") "," TENSOR("o",
                                                                                                                          ""),
        digest);
    fb_graph *graph = bind_graph("{\"\":{\"b\":\"b\",\"m\":\"m\",\"n\":\"n\"}}", tensors);
    char *before = bind_document(graph);
    const char *index = put_text(INDEX("{\"a\": \"1\", \"b\": \"1\", \"m\": \"1\", \"n\": \"1\", \"x\": \"2\"}"));
    const char *files[] = {index, FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"), U8_2("m", "ab"), U8_2("n", "xy")),
                           _i ? FILE_OF(U8_1("o", "w"), U8_2("x", "xx")) : FILE_OF(U8_2("x", "xx"))};
    for (long k = 0;; k++) {
        fb_graph *trial = fb_graph_copy(graph, &(fb_work){0});
        fb_binding binding;
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_bind(trial, files, 3, &bind_blobs.source, NULL, &binding, &error);
        bool failed = chaos_off();
        ck_assert_uint_eq(bind_blobs.open, 0);
        char *after = bind_document(trial);
        if (status) {
            ck_assert_int_eq(status, FB_NO_MEMORY);
            ck_assert_int_eq(error.status, FB_NO_MEMORY);
            ck_assert_str_eq(after, before);
        } else {
            ck_assert_uint_eq(json_array_size(binding.mismatching), _i ? 2 : 0);
            if (_i) ck_assert_str_eq(after, before);
            else expect_bytes(trial, "n", "xy");
            fb_binding_free(&binding);
        }
        free(after);
        fb_graph_free(trial);
        if (!failed) break;
        ck_assert_int_lt(k, 100000);
    }
    free(before);
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("bind");
    tcase_add_checked_fixture(cases, bind_set_up, bind_tear_down);
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_names);
    tcase_add_test(cases, test_missing_and_extra);
    tcase_add_test(cases, test_tied);
    tcase_add_test(cases, test_shape_and_dtype);
    tcase_add_test(cases, test_shards);
    tcase_add_loop_test(cases, test_bad_files, 0, sizeof bad_files / sizeof *bad_files);
    tcase_add_test(cases, test_bad_header_and_missing_blob);
    tcase_add_loop_test(cases, test_memory_runs_out, 0, 2);
    return run_tests("bind", cases);
}
