/* Binding graphs to safetensors files: which tensor is which, what does not fit, recipes, digests, shards. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/document.h"
#include "core/weights/bind.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/memory_blobs.h"

/* ---- helpers ------------------------------------------------------------------------------------------------------------ */

static memory_blobs blobs;

static void set_up(void) {
    memory_blobs_init(&blobs);
}

static void tear_down(void) {
    memory_blobs_free(&blobs);
}

/* A document of modules ("path": {"weight": "tensor"}, …) and tensors. */
static fb_graph *graph_with(const char *owners, const char *tensors) {
    fb_buffer modules = {0};
    const char *path;
    json_t *json = json_loads(owners, 0, NULL), *parameters;
    ck_assert_ptr_nonnull(json);
    json_object_foreach(json, path, parameters) {
        char *text = json_dumps(parameters, JSON_COMPACT);
        fb_buffer_printf(&modules, "%s{\"path\":\"%s\",\"type\":\"torch.nn.Module\",\"parameters\":%s}",
                         modules.size ? "," : "", path, text);
        free(text);
    }
    json_decref(json);
    char *text = document_of("{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"},"
                             "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}",
                             fb_buffer_text(&modules), tensors);
    fb_graph *graph = graph_of(text, strlen(text));
    fb_buffer_free(&modules);
    free(text);
    return graph;
}

static char *document(const fb_graph *graph) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    return fb_buffer_take(&text, NULL);
}

static char *list_text(const json_t *list) {
    return json_dumps(list, JSON_COMPACT);
}

/* Binds, and checks the lists: `mismatching` only the names, and the first detail has `detail`. The graph stays valid; and as
 * it is, when something mismatches. */
static void expect_binding(fb_graph *graph, const char *const *files, size_t count, size_t bound, const char *missing,
                           const char *extra, const char *mismatching, const char *detail) {
    fb_binding binding;
    fb_error error = {0};
    char *before = document(graph);
    fb_status status = fb_bind(graph, files, count, &blobs.source, &binding, &error);
    ck_assert_msg(status == FB_OK, "%s: %s %s", error.code, error.pointer, error.message);
    char *found_missing = list_text(binding.missing), *found_extra = list_text(binding.extra);
    ck_assert_str_eq(found_missing, missing);
    ck_assert_str_eq(found_extra, extra);
    json_t *names = json_array(), *item;
    size_t i;
    json_array_foreach(binding.mismatching, i, item) json_array_append(names, json_object_get(item, "name"));
    char *found_mismatching = list_text(names), *after = document(graph);
    ck_assert_str_eq(found_mismatching, mismatching);
    if (json_array_size(names)) {
        const char *text = json_string_value(json_object_get(json_array_get(binding.mismatching, 0), "detail"));
        ck_assert_msg(strstr(text, detail), "\"%s\" lacks \"%s\"", text, detail);
        ck_assert_str_eq(after, before);
    } else {
        ck_assert_uint_eq(binding.bound, bound);
    }
    fb_graph *again = graph_of(after, strlen(after));
    ck_assert_ptr_nonnull(again);
    fb_graph_free(again);
    json_decref(names);
    free(found_missing);
    free(found_extra);
    free(found_mismatching);
    free(before);
    free(after);
    fb_binding_free(&binding);
    ck_assert_uint_eq(blobs.open, 0);
}

static void expect_bound(fb_graph *graph, const char *file, size_t bound) {
    expect_binding(graph, &file, 1, bound, "[]", "[]", "[]", "");
}

static void expect_mismatch(fb_graph *graph, const char *file, const char *name, const char *detail) {
    char names[100];
    snprintf(names, sizeof names, "[\"%s\"]", name);
    expect_binding(graph, &file, 1, 0, "[]", "[]", names, detail);
}

static const fb_tensor_row *row_of(const fb_graph *graph, const char *name) {
    fb_tensor tensor = fb_tensor_find(graph, name);
    ck_assert_msg(tensor.id, "there is no %s", name);
    return fb_tensor_at(graph, tensor);
}

/* The tensor's bytes begin with `bytes` in its blob. */
static void expect_bytes(const fb_graph *graph, const char *name, const char *bytes) {
    const fb_tensor_row *row = row_of(graph, name);
    ck_assert_msg(row->blob.id && !row->recipe.id && !row->data.id, "%s has no blob", name);
    const memory_blob *blob = memory_blobs_find(&blobs, fb_text(graph, row->blob));
    ck_assert_mem_eq(blob->bytes + row->offset, bytes, strlen(bytes));
}

#define U8_1(name, bytes)                                                                                                      \
    { name, "U8", "1", bytes, 1 }
#define U8_2(name, bytes)                                                                                                      \
    { name, "U8", "2", bytes, 2 }
#define FILE_OF(...)                                                                                                           \
    memory_blobs_put_tensors(&blobs, NULL, (const memory_tensor[]){__VA_ARGS__},                                               \
                             sizeof((const memory_tensor[]){__VA_ARGS__}) / sizeof(memory_tensor))

#define TENSOR(name, rest) "{\"name\":\"" name "\",\"dtype\":\"uint8\",\"shape\":[2]" rest "}"

/* ---- names -------------------------------------------------------------------------------------------------------------- */

START_TEST(test_names) {
    fb_graph *graph = graph_with("{\"\":{\"own\":\"c\"},\"fc\":{\"weight\":\"fc.weight\",\"bias\":\"other name\"}}",
                                 TENSOR("fc.weight", "") "," TENSOR("other name", "") "," TENSOR("c", ""));
    const char *file = FILE_OF(U8_2("fc.weight", "ab"), U8_2("fc.bias", "cd"), U8_2("own", "ef"));
    expect_bound(graph, file, 3);
    expect_bytes(graph, "fc.weight", "ab");
    expect_bytes(graph, "other name", "cd");
    expect_bytes(graph, "c", "ef");
    char *before = document(graph);
    expect_bound(graph, file, 3); /* again: nothing changes */
    char *after = document(graph);
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
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\",\"b\":\"b\",\"m\":\"m\"}}",
                                 TENSOR("a", "") "," TENSOR("b", "") "," TENSOR("r", "") "," TENSOR(
                                     "m", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"r\"],\"dims\":[0]}"));
    const char *file = FILE_OF(U8_2("a", "ab"), U8_2("z", "zz"), U8_2("", "zz"), U8_2(".a", "zz"), U8_2("b.", "zz"));
    expect_binding(graph, &file, 1, 1, "[\"b\",\"r\"]", "[\"\",\".a\",\"b.\",\"z\"]", "[]", "");
    file = FILE_OF(U8_2("r", "rr"));
    expect_binding(graph, &file, 1, 1, "[\"b\"]", "[]", "[]", "");
    ck_assert(row_of(graph, "m")->recipe.id);
    expect_binding(graph, NULL, 0, 0, "[\"b\"]", "[]", "[]", "");
    file = FILE_OF({"b", "U8", "2", "bb", 2});
    expect_bound(graph, file, 1);
    fb_graph_free(graph);
}
END_TEST

/* Paths of one tensor may each have a copy in the file. */
START_TEST(test_tied) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"q\"},\"fc\":{\"q\":\"q\"}}", TENSOR("q", ""));
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
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_mismatch(graph, memory_blobs_put_tensors(&blobs, NULL, &others[i], 1), "a", "dtype or shape");
    fb_binding binding;
    const char *file = FILE_OF({"a", "F4", "2,1", "a", 1});
    ck_assert_int_eq(fb_bind(graph, &file, 1, &blobs.source, &binding, NULL), FB_OK);
    char *text = json_dumps(json_array_get(binding.mismatching, 0), JSON_COMPACT);
    ck_assert_str_eq(text, "{\"name\":\"a\",\"detail\":\"the file's dtype or shape is not the graph's\","
                           "\"file\":{\"dtype\":\"F4\",\"shape\":[2,1]},\"graph\":{\"dtype\":\"uint8\",\"shape\":[2]}}");
    free(text);
    fb_binding_free(&binding);
    fb_graph_free(graph);
}
END_TEST

/* ---- what was there before ---------------------------------------------------------------------------------------------- */

static void digest_of(const char *bytes, char digest[FB_ID_LENGTH + 1]) {
    ck_assert(fb_sha256_id(bytes, strlen(bytes), digest));
}

START_TEST(test_digests) {
    char right[FB_ID_LENGTH + 1], other[FB_ID_LENGTH + 1], tensors[1200];
    digest_of("ab", right);
    digest_of("cd", other);
    snprintf(tensors, sizeof tensors,
             TENSOR("only", ",\"digest\":\"%s\"") "," TENSOR("data", ",\"digest\":\"%s\",\"data\":\"YWI=\"") "," TENSOR(
                 "blob", ",\"digest\":\"%s\",\"blob\":\"%s\",\"offset\":0"),
             right, right, other, other);
    fb_graph *graph = graph_with("{\"\":{\"only\":\"only\",\"data\":\"data\",\"blob\":\"blob\"}}", tensors);
    expect_mismatch(graph, FILE_OF(U8_2("only", "cd")), "only", right);
    expect_bound(graph, FILE_OF(U8_2("only", "ab"), U8_2("data", "ab"), U8_2("blob", "ab")), 3);
    ck_assert_str_eq(fb_text(graph, row_of(graph, "only")->digest), right);
    ck_assert_str_eq(fb_text(graph, row_of(graph, "data")->digest), right);
    ck_assert_uint_eq(row_of(graph, "blob")->digest.id, 0);
    expect_bytes(graph, "data", "ab");
    expect_bound(graph, FILE_OF(U8_2("only", "cd"), U8_2("data", "cd")), 2); /* it has bytes: so these are newer */
    ck_assert_uint_eq(row_of(graph, "only")->digest.id + row_of(graph, "data")->digest.id, 0);
    fb_graph_free(graph);
}
END_TEST

/* What a recipe makes of new inputs has another digest, and other bytes. */
START_TEST(test_recipes) {
    char made[FB_ID_LENGTH + 1], tensors[1200];
    digest_of("abcd", made);
    snprintf(tensors, sizeof tensors,
             TENSOR("a", "") "," TENSOR(
                 "b", "") ",{\"name\":\"m\",\"dtype\":\"uint8\",\"shape\":[4],\"digest\":\"%s\",\"recipe\":"
                          "{\"op\":\"concat\",\"args\":[\"a\",\"b\"],\"axis\":0}}," TENSOR(
                              "part", ",\"recipe\":{\"op\":\"slice\",\"args\":[\"m\"],\"axis\":0,\"start\":1,\"stop\":3}"),
             made);
    fb_graph *graph = graph_with("{\"\":{\"m\":\"m\",\"part\":\"part\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"), {"m", "U8", "4", "abcd", 4}, U8_2("part", "bc")), 4);
    ck_assert(row_of(graph, "m")->recipe.id && row_of(graph, "part")->recipe.id);
    ck_assert_str_eq(fb_text(graph, row_of(graph, "m")->digest), made);

    expect_bound(graph, FILE_OF(U8_2("a", "aB")), 1);
    ck_assert(row_of(graph, "m")->recipe.id && !row_of(graph, "m")->digest.id);

    expect_bound(graph, FILE_OF({"m", "U8", "4", "ABCD", 4}, U8_2("part", "BC")), 2);
    expect_bytes(graph, "m", "ABCD"); /* trained: nothing is made from a and b any more */
    ck_assert(row_of(graph, "part")->recipe.id);
    ck_assert_uint_eq(fb_tensor_find(graph, "a").id + fb_tensor_find(graph, "b").id, 0);

    expect_bound(graph, FILE_OF(U8_2("part", "xy")), 1);
    expect_bytes(graph, "part", "xy");
    expect_bytes(graph, "m", "ABCD");
    fb_graph_free(graph);
}
END_TEST

/* A digest goes with the bytes also where these are made through other recipes. */
START_TEST(test_digest_behind_recipes) {
    char digest[FB_ID_LENGTH + 1], tensors[1000];
    digest_of("ab", digest);
    snprintf(
        tensors, sizeof tensors,
        TENSOR("a", ",\"data\":\"YWI=\"") "," TENSOR(
            "b", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"a\"],\"dims\":[0]}") "," TENSOR("c",
                                                                                              ",\"digest\":\"%s\",\"recipe\":{"
                                                                                              "\"op\":\"permute\",\"args\":["
                                                                                              "\"b\"],\"dims\":[0]}"),
        digest);
    fb_graph *graph = graph_with("{\"\":{\"c\":\"c\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("a", "ab")), 1);
    ck_assert(row_of(graph, "c")->digest.id);
    expect_bound(graph, FILE_OF(U8_2("a", "xy")), 1);
    ck_assert(row_of(graph, "c")->recipe.id && !row_of(graph, "c")->digest.id);
    fb_graph_free(graph);
}
END_TEST

/* The document says where the bytes are, and is wrong: another place in the same file. */
START_TEST(test_another_place) {
    char tensors[400];
    const char *file = FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"));
    const memory_blob *blob = memory_blobs_find(&blobs, file);
    snprintf(tensors, sizeof tensors,
             TENSOR("a", ",\"blob\":\"%s\",\"offset\":%d") "," TENSOR("b", ",\"blob\":\"%s\",\"offset\":%d"), file,
             (int)blob->size - 3, file, (int)blob->size - 3); /* they overlap, which is no fault */
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", tensors);
    expect_bound(graph, file, 2);
    expect_bytes(graph, "a", "ab");
    expect_bytes(graph, "b", "cd");
    fb_graph_free(graph);
}
END_TEST

/* The bytes are what it has elsewhere: it stays there. */
START_TEST(test_same_bytes_elsewhere) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", TENSOR("a", "") "," TENSOR("b", ""));
    const char *first = FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"));
    expect_bound(graph, first, 2);
    expect_bound(graph, FILE_OF(U8_2("a", "xy"), U8_2("b", "cd")), 2);
    expect_bytes(graph, "a", "xy");
    ck_assert_str_eq(fb_text(graph, row_of(graph, "b")->blob), first);
    fb_graph_free(graph);
}
END_TEST

/* ---- names that mean two tensors ---------------------------------------------------------------------------------------- */

/* fc.weight was doubled, and is owned under its old path: its original is only a source now. */
static fb_graph *renamed_graph(const char *original) {
    char tensors[800];
    snprintf(tensors, sizeof tensors,
             TENSOR("fc.weight", "%s") "," TENSOR("bn.shift", "%s") "," TENSOR(
                 "fc.weight@1",
                 ",\"recipe\":{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"fc.weight\"],\"axis\":0,"
                 "\"start\":1,\"stop\":2},{\"op\":\"slice\",\"args\":[\"bn.shift\"],\"axis\":0,\"start\":0,"
                 "\"stop\":1}],\"axis\":0}"),
             original, original);
    return graph_with("{\"\":{},\"fc\":{\"weight\":\"fc.weight@1\"}}", tensors);
}

START_TEST(test_file_of_the_original) {
    fb_graph *graph = renamed_graph("");
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "ab"), U8_2("bn.shift", "cd")), 2);
    expect_bytes(graph, "fc.weight", "ab");
    expect_bytes(graph, "bn.shift", "cd");
    ck_assert(row_of(graph, "fc.weight@1")->recipe.id);
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "AB"), U8_2("bn.shift", "CD")), 2); /* another original */
    expect_bytes(graph, "fc.weight", "AB");
    ck_assert(row_of(graph, "fc.weight@1")->recipe.id);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_file_of_the_optimised) {
    fb_graph *graph = renamed_graph(""); /* by name, bn.shift would be missing */
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "xy")), 1);
    expect_bytes(graph, "fc.weight@1", "xy");
    ck_assert_uint_eq(fb_tensor_count(graph), 1);
    fb_graph_free(graph);
    graph = renamed_graph(",\"data\":\"YWI=\"");
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "ba")), 1); /* what the recipe makes */
    ck_assert_uint_eq(fb_tensor_count(graph), 3);
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "xy")), 1);
    expect_bytes(graph, "fc.weight@1", "xy");
    fb_graph_free(graph);
}
END_TEST

/* Nothing tells the two apart: the tensor of that name is meant. */
START_TEST(test_only_the_name_is_known) {
    static const char tensors[] = TENSOR("w", "") "," TENSOR(
        "w@1", ",\"recipe\":{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":1,\"stop\":2},"
               "{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":0,\"stop\":1}],\"axis\":0}");
    fb_graph *graph = graph_with("{\"\":{\"w\":\"w@1\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("w", "ab")), 1);
    expect_bytes(graph, "w", "ab");
    ck_assert(row_of(graph, "w@1")->recipe.id);
    expect_bound(graph, FILE_OF(U8_2("w", "xy")), 1); /* the original is here now */
    expect_bytes(graph, "w@1", "xy");
    fb_graph_free(graph);
}
END_TEST

/* The shape decides. */
START_TEST(test_another_shape_under_the_old_path) {
    static const char tensors[] = TENSOR("w", "") ",{\"name\":\"w@1\",\"dtype\":\"uint8\",\"shape\":[1],\"recipe\":"
                                                  "{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":0,\"stop\":1}}";
    fb_graph *graph = graph_with("{\"\":{\"w\":\"w@1\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("w", "ab")), 1);
    expect_bytes(graph, "w", "ab");
    expect_bound(graph, FILE_OF(U8_1("w", "c")), 1);
    expect_bytes(graph, "w@1", "c");
    fb_graph_free(graph);
    graph = graph_with("{\"\":{\"w\":\"w@1\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_1("w", "c")), 1);
    expect_bytes(graph, "w@1", "c");
    ck_assert_uint_eq(fb_tensor_count(graph), 1);
    fb_graph_free(graph);
}
END_TEST

/* Tensors that modules own under each other's name are told apart by their owners. */
START_TEST(test_crossed_names) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"b\",\"b\":\"a\"}}", TENSOR("a", "") "," TENSOR("b", ""));
    expect_bound(graph, FILE_OF(U8_2("a", "11"), U8_2("b", "22")), 2);
    expect_bytes(graph, "a", "22");
    expect_bytes(graph, "b", "11");
    fb_graph_free(graph);
}
END_TEST

/* ---- several files ------------------------------------------------------------------------------------------------------ */

static const char *put_text(const char *text) {
    return memory_blobs_put(&blobs, text, strlen(text));
}

#define INDEX(map) "{\"metadata\": {\"total_size\": 4, \"deep\": [[{\"a\": [1.5, null]}]]}, \"weight_map\": " map "}\n"

START_TEST(test_shards) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", TENSOR("a", "") "," TENSOR("b", ""));
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
    {"{}", "/weights/1", "no index"},
    {"{\"weight_map\": []}", "/weights/1", "no index"},
    {"{\"weight_map\": {\"a\": 1}}", "/weights/1", "no index"},
    {"{\"weight_map\": {\"a\": [\"b\"]}}", "/weights/1", "nested"},
    {"{\"weight_map\": {}, \"weight_map\": {}}", "/weights/1", "no index"},
    {"{\"weight_map\": {\"a\": \"1\"}", "/weights/1", "ends in the middle"},
    {"{\"weight_map\": {\"a\": \"1\"}} x", "/weights/1", "something follows"},
    {"  {\"weight_map\": {\"a\": \"\xff\"}}", "/weights/1", "UTF-8"},
    {"{\"metadata\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]}", "/weights/1", "nested"},
};

START_TEST(test_bad_files) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    char *before = document(graph);
    const char *files[] = {FILE_OF(U8_2("a", "ab")), put_text(bad_files[_i].text)};
    fb_binding binding;
    fb_error error = {0};
    ck_assert_int_eq(fb_bind(graph, files, 2, &blobs.source, &binding, &error), FB_INVALID);
    ck_assert_str_eq(error.code, "bad-safetensors");
    ck_assert_str_eq(error.pointer, bad_files[_i].pointer);
    ck_assert_msg(strstr(error.message, bad_files[_i].message), "%s", error.message);
    char *after = document(graph);
    ck_assert_str_eq(before, after);
    free(before);
    free(after);
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_bad_header_and_missing_blob) {
    fb_graph *graph = graph_with("{\"\":{\"a\":\"a\"}}", TENSOR("a", ""));
    fb_binding binding;
    fb_error error = {0};
    const char *good = FILE_OF(U8_2("a", "ab")), *bad = FILE_OF({"a/b", "U8", "3", "ab", 2});
    ck_assert_int_eq(fb_bind(graph, (const char *[]){good, good, bad}, 3, &blobs.source, &binding, &error), FB_INVALID);
    ck_assert_str_eq(error.pointer, "/weights/2/a~1b/data_offsets");
    static const char away[] = "sha256:00000000000000000000000000000000000000000000000000000000000000ff";
    error = (fb_error){0};
    ck_assert_int_eq(fb_bind(graph, (const char *[]){good, away}, 2, &blobs.source, &binding, &error), FB_NOT_FOUND);
    ck_assert_str_eq(error.code, "blob-missing");
    ck_assert_str_eq(error.pointer, "/weights/1");
    ck_assert_ptr_nonnull(strstr(error.message, away));
    ck_assert_uint_eq(blobs.open, 0);
    fb_graph_free(graph);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------------- */

/* Everything at once, with and without something that does not fit: the graph is bound whole, or stays as it is. */
START_TEST(test_memory_runs_out) {
    char digest[FB_ID_LENGTH + 1], tensors[1200];
    digest_of("cd", digest);
    snprintf(
        tensors, sizeof tensors,
        TENSOR("a", "") "," TENSOR("b", ",\"digest\":\"%s\"") "," TENSOR(
            "m",
            ",\"recipe\":{\"op\":\"permute\",\"args\":[\"a\"],"
            "\"dims\":[0]}") "," TENSOR("n", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"o\"],\"dims\":[0]}") "," TENSOR("o",
                                                                                                                          ""),
        digest);
    fb_graph *graph = graph_with("{\"\":{\"b\":\"b\",\"m\":\"m\",\"n\":\"n\"}}", tensors);
    char *before = document(graph);
    const char *index = put_text(INDEX("{\"a\": \"1\", \"b\": \"1\", \"m\": \"1\", \"n\": \"1\", \"x\": \"2\"}"));
    const char *files[] = {index, FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"), U8_2("m", "ab"), U8_2("n", "xy")),
                           _i ? FILE_OF(U8_1("o", "w"), U8_2("x", "xx")) : FILE_OF(U8_2("x", "xx"))};
    for (long k = 0;; k++) {
        fb_graph *trial = fb_graph_copy(graph);
        fb_binding binding;
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_bind(trial, files, 3, &blobs.source, &binding, &error);
        bool failed = chaos_off();
        ck_assert_uint_eq(blobs.open, 0);
        char *after = document(trial);
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
    Suite *suite = suite_create("bind");
    TCase *cases = tcase_create("bind");
    tcase_add_checked_fixture(cases, set_up, tear_down);
    tcase_set_timeout(cases, 300);
    tcase_add_test(cases, test_names);
    tcase_add_test(cases, test_missing_and_extra);
    tcase_add_test(cases, test_tied);
    tcase_add_test(cases, test_shape_and_dtype);
    tcase_add_test(cases, test_digests);
    tcase_add_test(cases, test_recipes);
    tcase_add_test(cases, test_digest_behind_recipes);
    tcase_add_test(cases, test_another_place);
    tcase_add_test(cases, test_same_bytes_elsewhere);
    tcase_add_test(cases, test_file_of_the_original);
    tcase_add_test(cases, test_file_of_the_optimised);
    tcase_add_test(cases, test_only_the_name_is_known);
    tcase_add_test(cases, test_another_shape_under_the_old_path);
    tcase_add_test(cases, test_crossed_names);
    tcase_add_test(cases, test_shards);
    tcase_add_loop_test(cases, test_bad_files, 0, sizeof bad_files / sizeof *bad_files);
    tcase_add_test(cases, test_bad_header_and_missing_blob);
    tcase_add_loop_test(cases, test_memory_runs_out, 0, 2);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
