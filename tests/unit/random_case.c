#include "tests/unit/random_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/composition_part.h"
#include "tests/unit/run_tests.h"

/* Where the loop over the cases goes on, when it does. */
static jmp_buf next_case;
static bool goes_on;

void fail_case(const random_case *c, const char *file, int line, const char *format, ...) {
    char said[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    fb_buffer text = {0};
    fb_buffer_printf(&text, "%s:%d: seed %" PRIu64 ", passes %.*s: %s", file, line, c->seed, (int)c->passes.size,
                     c->passes.data, said);
    if (!goes_on) ck_abort_msg("%s", fb_buffer_text(&text));
    printf("%s\n", fb_buffer_text(&text));
    fflush(stdout);
    fb_buffer_free(&text);
    longjmp(next_case, 1);
}

fb_graph *read_graph(const random_case *c, const fb_buffer *document, const char *what) {
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    fb_status status = fb_document_read(document->data, document->size, NULL, "", &graph, &errors);
    const fb_error *first = errors.items;
    CK(c, status == FB_OK, "%s does not read: %s at %s: %s", what, first ? first->code : "", first ? first->pointer : "",
       first ? first->message : "");
    fb_errors_free(&errors);
    return graph;
}

fb_composition read_passes(const random_case *c, const fb_buffer *list) {
    fb_composition composition;
    fb_error error = {0};
    json_t *json = json_loadb(list->data, list->size, 0, NULL);
    CK(c, fb_composition_read(json, "", NULL, &composition, &error) == FB_OK, "%s", error.message);
    json_decref(json);
    return composition;
}

void read_case(random_case *c) {
    c->source = read_graph(c, &c->document, "the generated document");
    id_of(c, c->source, c->source_id);
    c->composition = read_passes(c, &c->passes);
}

void free_case(random_case *c) {
    fb_composition_free(&c->composition);
    fb_graph_free(c->source);
    fb_buffer_free(&c->document);
    fb_buffer_free(&c->passes);
}

fb_run run_passes(const random_case *c, const fb_composition *composition, const fb_graph *source) {
    fb_run run;
    fb_error error = {0};
    CK(c, fb_composition_run(composition, source, FB_LINT_EACH, NULL, &run, &error) == FB_OK, "%s: %s", error.code,
       error.message);
    return run;
}

fb_graph *run_without(const random_case *c, const bool *selected) {
    fb_composition rest = composition_without(&c->composition, selected);
    fb_run run = run_passes(c, &rest, c->source);
    fb_graph *result = run.result;
    run.result = NULL;
    fb_run_free(&run);
    composition_part_free(&rest);
    return result;
}

void id_of(const random_case *c, const fb_graph *graph, char id[FB_ID_LENGTH + 1]) {
    CK(c, fb_document_id(graph, id), "out of memory");
}

void check_round_trip(const random_case *c, const fb_graph *graph, const char *what) {
    fb_buffer bytes = {0};
    char id[FB_ID_LENGTH + 1], again_id[FB_ID_LENGTH + 1];
    CK(c, fb_document_write_marked(graph, &(fb_work){0}, &bytes, NULL, id), "out of memory");
    fb_graph *again = read_graph(c, &bytes, what);
    id_of(c, again, again_id);
    CK(c, strcmp(id, again_id) == 0, "%s reads as another graph", what);
    fb_graph_free(again);
    fb_buffer_free(&bytes);
}

json_t *json_of(const random_case *c, const fb_graph *graph) {
    fb_buffer bytes = {0};
    fb_document_write(graph, &bytes);
    json_t *document = json_loadb(bytes.data, bytes.size, 0, NULL);
    CK(c, document, "the document is no JSON");
    fb_buffer_free(&bytes);
    return document;
}

fb_graph *graph_of_json(const json_t *document) {
    char *text = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(17));
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    if (!text) abort();
    if (fb_document_read(text, strlen(text), NULL, "", &graph, &errors) != FB_OK) graph = NULL;
    fb_errors_free(&errors);
    free(text);
    return graph;
}

uint64_t random_setting(const char *name, uint64_t fallback) {
    const char *given = getenv(name);
    return given && *given ? strtoull(given, NULL, 10) : fallback;
}

static bool passes_case(void (*run_case)(uint64_t seed), uint64_t seed) {
    if (setjmp(next_case)) return false;
    run_case(seed);
    return true;
}

uint64_t run_random_cases(void (*run_case)(uint64_t seed)) {
    uint64_t cases = random_setting("FOLDBACK_RANDOM_CASES", 10000), first = random_setting("FOLDBACK_RANDOM_SEED", 1);
    uint64_t failed = 0;
    goes_on = getenv("FOLDBACK_RANDOM_ALL") != NULL;
    for (uint64_t i = 0; i < cases; i++) {
        failed += !passes_case(run_case, first + i);
        if (i > 0 && i % 100000 == 0) {
            printf("%" PRIu64 " done\n", i);
            fflush(stdout);
        }
    }
    ck_assert_msg(failed == 0, "%" PRIu64 " of %" PRIu64 " cases failed", failed, cases);
    return cases;
}

int random_main(const char *name, const TTest *test) {
    if (getenv("FOLDBACK_RANDOM_PRINT")) { /* the case itself, to look at */
        fb_buffer out = {0};
        generate_document(random_setting("FOLDBACK_RANDOM_SEED", 1), &out);
        printf("%s\n", fb_buffer_text(&out));
        return 0;
    }
    TCase *tests = tcase_create(name);
    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test);
    return run_tests(name, tests);
}
