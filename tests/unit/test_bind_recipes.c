/* Binding graphs whose tensors have bytes, digests or recipes already, and names that mean two tensors. */
#include "tests/unit/checks.h"
#include <stdio.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/bind_fixture.h"
#include "tests/unit/run_tests.h"

/* ---- what was there before ---------------------------------------------------------------------------------------------- */

START_TEST(test_digests) {
    char right[FB_ID_LENGTH + 1], other[FB_ID_LENGTH + 1], tensors[1200];
    bytes_digest("ab", right);
    bytes_digest("cd", other);
    snprintf(tensors, sizeof tensors,
             TENSOR("only", ",\"digest\":\"%s\"") "," TENSOR("data", ",\"digest\":\"%s\",\"data\":\"YWI=\"") "," TENSOR(
                 "blob", ",\"digest\":\"%s\",\"blob\":\"%s\",\"offset\":0"),
             right, right, other, other);
    fb_graph *graph = bind_graph("{\"\":{\"only\":\"only\",\"data\":\"data\",\"blob\":\"blob\"}}", tensors);
    expect_mismatch(graph, FILE_OF(U8_2("only", "cd")), "only", right);
    expect_bound(graph, FILE_OF(U8_2("only", "ab"), U8_2("data", "ab"), U8_2("blob", "ab")), 3);
    ck_assert_str_eq(fb_text(graph, tensor_row(graph, "only")->digest), right);
    ck_assert_str_eq(fb_text(graph, tensor_row(graph, "data")->digest), right);
    ck_assert_uint_eq(tensor_row(graph, "blob")->digest.id, 0);
    expect_bytes(graph, "data", "ab");
    expect_bound(graph, FILE_OF(U8_2("only", "cd"), U8_2("data", "cd")), 2); /* it has bytes: so these are newer */
    ck_assert_uint_eq(tensor_row(graph, "only")->digest.id + tensor_row(graph, "data")->digest.id, 0);
    fb_graph_free(graph);
}
END_TEST

/* What a recipe makes of new inputs has another digest, and other bytes. */
START_TEST(test_recipes) {
    char made[FB_ID_LENGTH + 1], tensors[1200];
    bytes_digest("abcd", made);
    snprintf(tensors, sizeof tensors,
             TENSOR("a", "") "," TENSOR(
                 "b", "") ",{\"name\":\"m\",\"dtype\":\"uint8\",\"shape\":[4],\"digest\":\"%s\",\"recipe\":"
                          "{\"op\":\"concat\",\"args\":[\"a\",\"b\"],\"axis\":0}}," TENSOR(
                              "part", ",\"recipe\":{\"op\":\"slice\",\"args\":[\"m\"],\"axis\":0,\"start\":1,\"stop\":3}"),
             made);
    fb_graph *graph = bind_graph("{\"\":{\"m\":\"m\",\"part\":\"part\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"), {"m", "U8", "4", "abcd", 4}, U8_2("part", "bc")), 4);
    ck_assert(tensor_row(graph, "m")->recipe.id && tensor_row(graph, "part")->recipe.id);
    ck_assert_str_eq(fb_text(graph, tensor_row(graph, "m")->digest), made);

    expect_bound(graph, FILE_OF(U8_2("a", "aB")), 1);
    ck_assert(tensor_row(graph, "m")->recipe.id && !tensor_row(graph, "m")->digest.id);

    expect_bound(graph, FILE_OF({"m", "U8", "4", "ABCD", 4}, U8_2("part", "BC")), 2);
    expect_bytes(graph, "m", "ABCD"); /* trained: nothing is made from a and b any more */
    ck_assert(tensor_row(graph, "part")->recipe.id);
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
    bytes_digest("ab", digest);
    snprintf(
        tensors, sizeof tensors,
        TENSOR("a", ",\"data\":\"YWI=\"") "," TENSOR(
            "b", ",\"recipe\":{\"op\":\"permute\",\"args\":[\"a\"],\"dims\":[0]}") "," TENSOR("c",
                                                                                              ",\"digest\":\"%s\",\"recipe\":{"
                                                                                              "\"op\":\"permute\",\"args\":["
                                                                                              "\"b\"],\"dims\":[0]}"),
        digest);
    fb_graph *graph = bind_graph("{\"\":{\"c\":\"c\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("a", "ab")), 1);
    ck_assert(tensor_row(graph, "c")->digest.id);
    expect_bound(graph, FILE_OF(U8_2("a", "xy")), 1);
    ck_assert(tensor_row(graph, "c")->recipe.id && !tensor_row(graph, "c")->digest.id);
    fb_graph_free(graph);
}
END_TEST

/* The document says where the bytes are, and is wrong: another place in the same file. */
START_TEST(test_another_place) {
    char tensors[400];
    const char *file = FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"));
    const memory_blob *blob = memory_blobs_find(&bind_blobs, file);
    snprintf(tensors, sizeof tensors,
             TENSOR("a", ",\"blob\":\"%s\",\"offset\":%d") "," TENSOR("b", ",\"blob\":\"%s\",\"offset\":%d"), file,
             (int)blob->size - 3, file, (int)blob->size - 3); /* they overlap, which is no fault */
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", tensors);
    expect_bound(graph, file, 2);
    expect_bytes(graph, "a", "ab");
    expect_bytes(graph, "b", "cd");
    fb_graph_free(graph);
}
END_TEST

/* The bytes are what it has elsewhere: it stays there. */
START_TEST(test_same_bytes_elsewhere) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"a\",\"b\":\"b\"}}", TENSOR("a", "") "," TENSOR("b", ""));
    const char *first = FILE_OF(U8_2("a", "ab"), U8_2("b", "cd"));
    expect_bound(graph, first, 2);
    expect_bound(graph, FILE_OF(U8_2("a", "xy"), U8_2("b", "cd")), 2);
    expect_bytes(graph, "a", "xy");
    ck_assert_str_eq(fb_text(graph, tensor_row(graph, "b")->blob), first);
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
    return bind_graph("{\"\":{},\"fc\":{\"weight\":\"fc.weight@1\"}}", tensors);
}

START_TEST(test_file_of_the_original) {
    fb_graph *graph = renamed_graph("");
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "ab"), U8_2("bn.shift", "cd")), 2);
    expect_bytes(graph, "fc.weight", "ab");
    expect_bytes(graph, "bn.shift", "cd");
    ck_assert(tensor_row(graph, "fc.weight@1")->recipe.id);
    expect_bound(graph, FILE_OF(U8_2("fc.weight", "AB"), U8_2("bn.shift", "CD")), 2); /* another original */
    expect_bytes(graph, "fc.weight", "AB");
    ck_assert(tensor_row(graph, "fc.weight@1")->recipe.id);
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
    expect_ambiguous(graph, FILE_OF(U8_2("fc.weight", "xy"))); /* one of the two was trained */
    expect_bound_with(graph, FILE_OF(U8_2("fc.weight", "xy")), &(fb_bind_options){.as = FB_WEIGHTS_FINISHED}, 1);
    expect_bytes(graph, "fc.weight@1", "xy");
    fb_graph_free(graph);
}
END_TEST

static const char swapped[] = TENSOR("w", "%s") "," TENSOR(
    "w@1", ",\"recipe\":{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":1,\"stop\":2},"
           "{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":0,\"stop\":1}],\"axis\":0}");

/* A module owns w with its two bytes swapped. */
static fb_graph *swapped_graph(const char *original) {
    char tensors[600];
    snprintf(tensors, sizeof tensors, swapped, original);
    return bind_graph("{\"\":{\"w\":\"w@1\"}}", tensors);
}

static const fb_bind_options as_source = {.as = FB_WEIGHTS_SOURCE}, as_finished = {.as = FB_WEIGHTS_FINISHED};

/* Nothing tells the two apart: the caller has to. */
START_TEST(test_both_readings_fit) {
    fb_graph *graph = swapped_graph("");
    expect_ambiguous(graph, FILE_OF(U8_2("w", "ab")));
    expect_bound_with(graph, FILE_OF(U8_2("w", "ab")), &as_source, 1);
    expect_bytes(graph, "w", "ab");
    ck_assert(tensor_row(graph, "w@1")->recipe.id);
    expect_bound(graph, FILE_OF(U8_2("w", "ab")), 1); /* the bytes that are here */
    ck_assert(tensor_row(graph, "w@1")->recipe.id);
    expect_bound(graph, FILE_OF(U8_2("w", "ba")), 1); /* what the recipe makes of them */
    ck_assert(tensor_row(graph, "w@1")->recipe.id);
    expect_bytes(graph, "w", "ab");
    expect_ambiguous(graph, FILE_OF(U8_2("w", "xy")));
    expect_bound_with(graph, FILE_OF(U8_2("w", "xy")), &as_finished, 1);
    expect_bytes(graph, "w@1", "xy");
    ck_assert_uint_eq(fb_tensor_count(graph), 1);
    fb_graph_free(graph);
}
END_TEST

/* The graph says which bytes it means. */
START_TEST(test_a_digest_tells) {
    char digest[FB_ID_LENGTH + 1], member[200];
    bytes_digest("ab", digest);
    snprintf(member, sizeof member, ",\"digest\":\"%s\"", digest);
    fb_graph *graph = swapped_graph(member);
    expect_bound(graph, FILE_OF(U8_2("w", "ab")), 1);
    expect_bytes(graph, "w", "ab");
    fb_graph_free(graph);
    graph = swapped_graph(member);
    expect_ambiguous(graph, FILE_OF(U8_2("w", "xy")));
    fb_graph_free(graph);
}
END_TEST

/* What foldback writes into its files. */
START_TEST(test_a_marked_file) {
    char structure[FB_ID_LENGTH + 1], metadata[300];
    const memory_tensor tensor = U8_2("w", "xy");
    fb_graph *graph = swapped_graph("");
    ck_assert(fb_document_structure(graph, structure));
    snprintf(metadata, sizeof metadata, "{\"foldback.structure\":\"%s\"}", structure);
    const char *marked = memory_blobs_put_tensors(&bind_blobs, metadata, &tensor, 1);
    structure[10] = structure[10] == '0' ? '1' : '0';
    snprintf(metadata, sizeof metadata, "{\"foldback.structure\":\"%s\"}", structure);
    expect_ambiguous(graph, memory_blobs_put_tensors(&bind_blobs, metadata, &tensor, 1)); /* of another graph */
    expect_contradiction(graph, marked);
    expect_bound(graph, marked, 1);
    expect_bytes(graph, "w@1", "xy");
    fb_graph_free(graph);
}
END_TEST

/* A bias that only the optimised model has: its file is read by paths, also where nothing of it is missing by names. */
START_TEST(test_what_passes_added_tells) {
    char tensors[1000];
    snprintf(tensors, sizeof tensors, swapped, "");
    strcat(tensors, "," TENSOR("b", ",\"recipe\":{\"op\":\"reshape\",\"args\":[\"w\"],\"shape\":[2]}"));
    fb_graph *graph = bind_graph("{\"\":{\"w\":\"w@1\",\"b\":\"b\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("w", "xy"), U8_2("b", "cd")), 2);
    expect_bytes(graph, "w@1", "xy");
    fb_graph_free(graph);
}
END_TEST

/* One shard of the original model, whose other shard is not here, is not taken for a file of the optimised one. */
START_TEST(test_a_part_of_the_original) {
    char tensors[900];
    snprintf(tensors, sizeof tensors,
             TENSOR("fc.weight", "") "," TENSOR("bn.shift", "") "," TENSOR(
                 "fc.weight@1",
                 ",\"recipe\":{\"op\":\"concat\",\"args\":[{\"op\":\"slice\",\"args\":[\"fc.weight\"],\"axis\":0,"
                 "\"start\":1,\"stop\":2},{\"op\":\"slice\",\"args\":[\"bn.shift\"],\"axis\":0,\"start\":0,"
                 "\"stop\":1}],\"axis\":0}") "," TENSOR("head", ""));
    fb_graph *graph = bind_graph("{\"\":{\"head\":\"head\"},\"fc\":{\"weight\":\"fc.weight@1\"}}", tensors);
    expect_ambiguous(graph, FILE_OF(U8_2("fc.weight", "ab")));
    fb_graph_free(graph);
}
END_TEST

#define HALF(name, rest) "{\"name\":\"" name "\",\"dtype\":\"float16\",\"shape\":[1]" rest "}"
#define F16_1(name, bytes)                                                                                                     \
    { name, "F16", "1", bytes, 2 }

/* head was tied to w until a pass made it from w. In a file of the original both have the same bytes. */
START_TEST(test_a_tie_that_was_cut) {
    static const char tensors[] = HALF("w", "") "," HALF("head", ",\"recipe\":{\"op\":\"neg\",\"args\":[\"w\"]}");
    static const char owners[] = "{\"\":{\"w\":\"w\",\"head\":\"head\"}}";
    fb_graph *graph = bind_graph(owners, tensors);
    expect_bound(graph, FILE_OF(F16_1("w", "ab"), F16_1("head", "ab")), 1);
    ck_assert(tensor_row(graph, "head")->recipe.id);
    fb_graph_free(graph);
    graph = bind_graph(owners, tensors);
    expect_bound(graph, FILE_OF(F16_1("w", "ab"), F16_1("head", "cd")), 2);
    expect_bytes(graph, "head", "cd");
    fb_graph_free(graph);
}
END_TEST

/* ---- prefixes ----------------------------------------------------------------------------------------------------------- */

START_TEST(test_prefix) {
    static const char owners[] = "{\"\":{},\"a\":{\"w\":\"a.w\"},\"b\":{\"w\":\"other\"}}";
    fb_graph *graph = bind_graph(owners, TENSOR("a.w", "") "," TENSOR("other", ""));
    const char *longer = FILE_OF(U8_2("m.x.a.w", "ab"), U8_2("m.x.b.w", "cd"));
    fb_binding binding;
    fb_error error = {0};
    ck_assert_int_eq(fb_bind(graph, &longer, 1, &bind_blobs.source, NULL, &binding, &error), FB_OK);
    ck_assert(binding.fits_nothing);
    ck_assert_str_eq(binding.prefix, "m.x.");
    ck_assert_uint_eq(binding.prefix_count, 2);
    fb_binding_free(&binding);
    expect_bound_with(graph, longer, &(fb_bind_options){.prefix = "m.x"}, 2);
    expect_bytes(graph, "a.w", "ab");
    expect_bytes(graph, "other", "cd");
    fb_graph_free(graph);

    graph = bind_graph(owners, TENSOR("a.w", "") "," TENSOR("other", ""));
    const char *shorter = FILE_OF(U8_2("w", "ab"));
    ck_assert_int_eq(fb_bind(graph, &shorter, 1, &bind_blobs.source, NULL, &binding, &error), FB_OK);
    ck_assert(binding.fits_nothing && binding.prefix);
    fb_binding_free(&binding);
    expect_binding_with(graph, &shorter, 1, &(fb_bind_options){.prefix = "b."}, 1, "[\"a.w\"]", "[]", "[]", "");
    expect_bytes(graph, "other", "ab");
    fb_graph_free(graph);
}
END_TEST

START_TEST(test_prefix_makes_names_equal) {
    fb_graph *graph = bind_graph("{\"\":{\"w\":\"w\"}}", TENSOR("w", ""));
    const char *file = FILE_OF(U8_2("w", "ab"), U8_2("m.w", "cd"));
    expect_binding_with(graph, &file, 1, &(fb_bind_options){.prefix = "m."}, 0, "[]", "[]", "[\"w\"]", "same name as m.w");
    fb_graph_free(graph);
}
END_TEST

/* The shape decides. */
START_TEST(test_another_shape_under_the_old_path) {
    static const char tensors[] = TENSOR("w", "") ",{\"name\":\"w@1\",\"dtype\":\"uint8\",\"shape\":[1],\"recipe\":"
                                                  "{\"op\":\"slice\",\"args\":[\"w\"],\"axis\":0,\"start\":0,\"stop\":1}}";
    fb_graph *graph = bind_graph("{\"\":{\"w\":\"w@1\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_2("w", "ab")), 1);
    expect_bytes(graph, "w", "ab");
    expect_bound(graph, FILE_OF(U8_1("w", "c")), 1);
    expect_bytes(graph, "w@1", "c");
    fb_graph_free(graph);
    graph = bind_graph("{\"\":{\"w\":\"w@1\"}}", tensors);
    expect_bound(graph, FILE_OF(U8_1("w", "c")), 1);
    expect_bytes(graph, "w@1", "c");
    ck_assert_uint_eq(fb_tensor_count(graph), 1);
    fb_graph_free(graph);
}
END_TEST

/* Tensors that modules own under each other's name are told apart by their owners. */
START_TEST(test_crossed_names) {
    fb_graph *graph = bind_graph("{\"\":{\"a\":\"b\",\"b\":\"a\"}}", TENSOR("a", "") "," TENSOR("b", ""));
    expect_bound(graph, FILE_OF(U8_2("a", "11"), U8_2("b", "22")), 2);
    expect_bytes(graph, "a", "22");
    expect_bytes(graph, "b", "11");
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("bind-recipes");
    tcase_add_checked_fixture(cases, bind_set_up, bind_tear_down);
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_digests);
    tcase_add_test(cases, test_recipes);
    tcase_add_test(cases, test_digest_behind_recipes);
    tcase_add_test(cases, test_another_place);
    tcase_add_test(cases, test_same_bytes_elsewhere);
    tcase_add_test(cases, test_file_of_the_original);
    tcase_add_test(cases, test_file_of_the_optimised);
    tcase_add_test(cases, test_both_readings_fit);
    tcase_add_test(cases, test_a_digest_tells);
    tcase_add_test(cases, test_a_marked_file);
    tcase_add_test(cases, test_what_passes_added_tells);
    tcase_add_test(cases, test_a_part_of_the_original);
    tcase_add_test(cases, test_a_tie_that_was_cut);
    tcase_add_test(cases, test_prefix);
    tcase_add_test(cases, test_prefix_makes_names_equal);
    tcase_add_test(cases, test_another_shape_under_the_old_path);
    tcase_add_test(cases, test_crossed_names);
    return run_tests("bind-recipes", cases);
}
