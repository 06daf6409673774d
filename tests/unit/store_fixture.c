#include "tests/unit/store_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *new_folder(void) {
    static char folder[512];
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/foldback-store-XXXXXX", parent ? parent : P_tmpdir);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    return folder;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)about, (void)type, (void)where;
    return remove(path);
}

void remove_folder(const char *folder) {
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

fb_store *open_store(const char *folder, const fb_store_config *config) {
    fb_store *store = NULL;
    fb_error error = {0};
    fb_status status = fb_store_open(folder, config, &store, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
    return store;
}

void make_graph(made_graph *made, unsigned number, size_t filler) {
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    unsigned random = number * 2654435761U + 1;
    fb_buffer document = {0}, structure = {0};
    fb_buffer_printf(&document, "{\"name\":\"graph %u\",\"filler\":\"", number);
    char *letters = fb_buffer_reserve(&document, filler);
    ck_assert_ptr_nonnull(letters);
    for (size_t i = 0; i < filler; i++) {
        random = random * 1664525U + 1013904223U;
        letters[i] = digits[random >> 26];
    }
    document.size += filler;
    fb_buffer_string(&document, "\"}");
    fb_buffer_printf(&structure, "structure %u", number % 3);
    *made = (made_graph){0};
    ck_assert(fb_sha256_id(document.data, document.size, made->id));
    ck_assert(fb_sha256_id(structure.data, structure.size, made->structure));
    fb_buffer_free(&structure);
    snprintf(made->name, sizeof made->name, "model %u", number % 3);
    size_t size = 0;
    made->document = fb_buffer_take(&document, &size);
    made->marks[0] = (fb_store_mark){1, "n1", "s1"};
    made->marks[1] = (fb_store_mark){4, "n4", "s1"};
    made->marks[2] = (fb_store_mark){4, "n4", "s2"};
    made->graph = (fb_store_graph){.id = made->id,
                                   .structure = made->structure,
                                   .name = made->name,
                                   .node_count = number,
                                   .document = made->document,
                                   .size = size,
                                   .marks = made->marks,
                                   .mark_count = 3};
}

void free_graph(made_graph *made) {
    free(made->document);
}

fb_store_run make_run(fb_store *store, const made_graph *source, const made_graph *result) {
    static const fb_store_pass passes[] = {
        {.name = "MergeLinears", .version = 1, .signature = "s1", .applied = 2, .refused = 1},
        {.name = "FuseBiasInLinear", .version = 1, .signature = "s2", .applied = 3}};
    fb_store_run run = {.kind = "optimize",
                        .source = source->id,
                        .result = result->id,
                        .signature = "composition",
                        .is_reversible = true,
                        .preserves_computation = true,
                        .lint = "passed",
                        .request = "[\"MergeLinears\",\"FuseBiasInLinear\"]",
                        .report = "[{\"name\":\"MergeLinears\"},{\"name\":\"FuseBiasInLinear\"}]",
                        .passes = passes,
                        .pass_count = 2};
    ck_assert_int_eq(fb_store_new_run(store, &run, NULL), FB_OK);
    return run;
}

void put_run(fb_store *store, const fb_store_run *run, const made_graph *source, const made_graph *result) {
    fb_error error = {0};
    fb_store_graph graphs[] = {source->graph, result->graph};
    fb_status status = fb_store_put_run(store, run, graphs, 2, NULL, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", error.code, error.message);
}

double metric(fb_store *store, const char *name) {
    char line[96];
    snprintf(line, sizeof line, "\nfoldback_store_%s ", name);
    fb_buffer text = {0};
    ck_assert_int_eq(fb_store_metrics(store, &text, NULL), FB_OK);
    const char *at = strstr(fb_buffer_text(&text), line);
    ck_assert_msg(at != NULL, "no metric %s", name);
    double value = strtod(at + strlen(line), NULL);
    fb_buffer_free(&text);
    return value;
}

void check_ok(fb_status status, const fb_error *error) {
    ck_assert_msg(status == FB_OK, "%s: %s", error->code, error->message);
}

void check_error(fb_status status, fb_error *error, fb_status expected, const char *code) {
    ck_assert_int_eq(status, expected);
    ck_assert_int_eq(error->status, expected);
    ck_assert_str_eq(error->code, code);
    ck_assert_str_ne(error->message, "");
    *error = (fb_error){0};
}
