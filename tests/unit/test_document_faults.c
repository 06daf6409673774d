/* Broken bytes and broken memory: an error each time, nothing worse. */
#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* A copy of exactly `size` bytes, so that a sanitizer sees the reader step beyond them. */
static char *exact_copy(const char *text, size_t size) {
    char *copy = malloc(size ? size : 1);
    if (size) memcpy(copy, text, size);
    return copy;
}

START_TEST(test_every_truncation_is_a_syntax_error) {
    size_t size;
    char *text = read_fixture("toy", "graph.json", &size);
    while (size > 0 && strchr(" \n", text[size - 1])) size--;
    for (size_t length = 0; length < size; length++) {
        char *prefix = exact_copy(text, length);
        fb_graph *graph = NULL;
        fb_errors errors = {0};
        ck_assert_int_eq(fb_document_read(prefix, length, NULL, "", &graph, &errors), FB_SYNTAX);
        ck_assert_uint_eq(errors.total, 1);
        ck_assert_str_eq(errors.items[0].code, "invalid-json");
        fb_errors_free(&errors);
        free(prefix);
    }
    free(text);
}
END_TEST

/* Whatever is read is written in one form. */
static void expect_fixed_point(const fb_graph *graph) {
    fb_buffer once = {0}, twice = {0};
    fb_document_write(graph, &once);
    fb_graph *again = graph_of(once.data, once.size);
    fb_document_write(again, &twice);
    ck_assert_uint_eq(once.size, twice.size);
    ck_assert_mem_eq(once.data, twice.data, once.size);
    fb_graph_free(again);
    fb_buffer_free(&once);
    fb_buffer_free(&twice);
}

START_TEST(test_changed_bytes) {
    static const char bytes[] = {0,   '"', '\\', '{', '}', '[', ']', ',',        ':',
                                 '0', '-', 'e',  '.', ' ', 'x', '$', (char)0x80, (char)0xFF};
    size_t size, accepted = 0, refused = 0, not_json = 0;
    char *text = read_fixture("toy", "graph.json", &size);
    char *copy = exact_copy(text, size);
    for (size_t i = 0; i < size; i++) {
        for (size_t round = 0; round < 2; round++) {
            copy[i] = bytes[(i * 7 + round * 5 + i / sizeof bytes) % sizeof bytes];
            if (copy[i] == text[i]) continue;
            fb_graph *graph = NULL;
            fb_errors errors = {0};
            fb_status status = fb_document_read(copy, size, NULL, "", &graph, &errors);
            ck_assert(status == FB_OK ? errors.total == 0 : errors.total > 0 && errors.count > 0);
            if (status == FB_OK) {
                accepted++;
                expect_fixed_point(graph);
                fb_graph_free(graph);
            } else {
                ck_assert(status == FB_SYNTAX || status == FB_INVALID);
                not_json += status == FB_SYNTAX;
                refused += status == FB_INVALID;
            }
            fb_errors_free(&errors);
        }
        copy[i] = text[i];
    }
    /* The bytes above make enough of each to mean something. */
    ck_assert_uint_gt(accepted, 100);
    ck_assert_uint_gt(refused, 100);
    ck_assert_uint_gt(not_json, 100);
    free(copy);
    free(text);
}
END_TEST

typedef void chaos_start(long count);

/* Reads, writes and hashes while allocations fail from the k-th on, or the k-th alone, for every k. */
static void fail_every_allocation(const char *text, size_t size, chaos_start *start, fb_status expected) {
    for (long k = 0;; k += fault_step()) {
        fb_graph *graph = NULL;
        fb_errors errors = {0};
        start(k);
        fb_status status = fb_document_read(text, size, NULL, "/graph", &graph, &errors);
        bool failed = chaos_off();
        if (!failed) {
            ck_assert_int_eq(status, expected);
            ck_assert_int_gt(k, 20);
        } else {
            ck_assert_int_eq(status, FB_NO_MEMORY);
            ck_assert(errors.count == 0 || errors.items[0].status == FB_NO_MEMORY);
        }
        if (status == FB_OK) fb_graph_free(graph);
        else ck_assert_ptr_null(graph);
        fb_errors_free(&errors);
        if (!failed) return;
    }
}

START_TEST(test_reading_without_memory) {
    size_t size;
    char *text = read_fixture(_i ? "aten-llama" : "toy", "graph.json", &size);
    fail_every_allocation(text, size, chaos_fail_after, FB_OK);
    fail_every_allocation(text, size, chaos_fail_once, FB_OK);
    free(text);
}
END_TEST

START_TEST(test_refusing_without_memory) {
    /* Many errors, long lists, escapes, recipes, free JSON with many members: what the fixtures do not have. */
    fb_buffer nodes = {0}, modules = {0}, tensors = {0};
    for (int i = 0; i < 40; i++) {
        fb_buffer_printf(&nodes, "{\"name\":\"n%d\",\"op\":\"call_function\",\"target\":\"f\",\"args\":[{\"$node\":\"z%d\"},",
                         i, i);
        fb_buffer_printf(&nodes, "{\"$float\":\"8.0\"}],\"meta\":{\"m\":[\"a\\nb\",%d]}},", i);
    }
    fb_buffer_string(&nodes, "{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$dict\":[");
    for (int i = 0; i < 40; i++) fb_buffer_printf(&nodes, "%s[%d,%d]", i ? "," : "", i, i);
    fb_buffer_string(&nodes, "]}]}");
    fb_buffer_string(&modules, "{\"path\":\"\",\"type\":\"M\",\"parameters\":{\"w0\":\"w0\"},\"config\":{");
    for (int i = 0; i < 40; i++) fb_buffer_printf(&modules, "%s\"k%d\":%d", i ? "," : "", 99 - i, i);
    fb_buffer_string(&modules, "}}");
    for (int i = 0; i < 40; i++) {
        fb_buffer_printf(&tensors, "{\"name\":\"w%d\",\"dtype\":\"float32\",\"shape\":[2],\"recipe\":\"w%d\"},", i, i + 1);
    }
    fb_buffer_string(&tensors, "{\"name\":\"w40\",\"dtype\":\"float32\",\"shape\":[2]}");
    char *text = document_of(fb_buffer_text(&nodes), fb_buffer_text(&modules), fb_buffer_text(&tensors));
    fail_every_allocation(text, strlen(text), chaos_fail_after, FB_INVALID);
    fail_every_allocation(text, strlen(text), chaos_fail_once, FB_INVALID);
    free(text);
    fb_buffer_free(&nodes);
    fb_buffer_free(&modules);
    fb_buffer_free(&tensors);
}
END_TEST

START_TEST(test_writing_without_memory) {
    size_t size;
    char *text = read_fixture("toy", "graph.json", &size);
    fb_graph *graph = graph_of(text, size);
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    ck_assert(fb_document_id(graph, id)); /* OpenSSL 3.0 crashes when memory runs out while it is setting itself up */
    for (long k = 0;; k += fault_step()) {
        fb_buffer bytes = {0};
        chaos_fail_after(k);
        bool written = fb_document_write_marked(graph, &(fb_work){0}, &bytes, NULL, id),
             identified = fb_document_structure(graph, structure);
        bool failed = chaos_off();
        ck_assert(failed == !(written && identified));
        fb_buffer_free(&bytes);
        if (!failed) break;
        ck_assert_int_lt(k, 1000);
    }
    fb_graph_free(graph);
    free(text);
}
END_TEST

int main(void) {
    TCase *cases = tcase_create("faults");
    tcase_set_timeout(cases, 600);
    tcase_add_test(cases, test_every_truncation_is_a_syntax_error);
    tcase_add_test(cases, test_changed_bytes);
    tcase_add_loop_test(cases, test_reading_without_memory, 0, 2);
    tcase_add_test(cases, test_refusing_without_memory);
    tcase_add_test(cases, test_writing_without_memory);
    return run_tests("document faults", cases);
}
