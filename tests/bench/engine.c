/* What the benchmarks measure of the engine. */
#include "tests/bench/engine.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/graph/code.h"
#include "core/validation/run_validation.h"

void fb_bench_check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench: %s failed\n", what);
    exit(1);
}

static fb_graph *read_document(const fb_subject *s) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_bench_check(fb_document_read(s->document.data, s->document.size, NULL, "", &graph, &errors) == FB_OK,
                   "reading the document");
    return graph;
}

fb_subject fb_bench_subject(fb_buffer document, const char *passes) {
    fb_subject s = {.document = document};
    json_t *list = json_loads(passes, 0, NULL);
    fb_bench_check(list && fb_composition_read(list, "", NULL, &s.composition, NULL) == FB_OK, "the composition");
    json_decref(list);
    if (document.size) s.graph = read_document(&s);
    return s;
}

void fb_bench_subject_free(fb_subject *s) {
    fb_graph_free(s->graph);
    fb_composition_free(&s->composition);
    fb_buffer_free(&s->document);
}

void fb_bench_parse_and_dump(void *context) {
    const fb_subject *s = context;
    json_t *tree = json_loadb(s->document.data, s->document.size, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_dumps(tree, JSON_COMPACT);
    fb_bench_check(tree && text, "jansson");
    free(text);
    json_decref(tree);
}

void fb_bench_read(void *context) {
    fb_graph_free(read_document(context));
}

void fb_bench_write(void *context) {
    const fb_subject *s = context;
    fb_buffer out = {0};
    char id[FB_ID_LENGTH + 1];
    fb_bench_check(fb_document_write_marked(s->graph, &(fb_work){0}, &out, NULL, id), "writing");
    fb_buffer_free(&out);
}

void fb_bench_copy(void *context) {
    const fb_subject *s = context;
    fb_graph *copy = fb_graph_copy(s->graph, &(fb_work){0});
    fb_bench_check(copy != NULL, "the copy");
    fb_graph_free(copy);
}

void fb_bench_passes(void *context) {
    const fb_subject *s = context;
    fb_run run;
    fb_bench_check(fb_composition_run(&s->composition, s->graph, FB_LINT_NONE, NULL, &run, NULL) == FB_OK, "the run");
    fb_run_free(&run);
}

void fb_bench_passes_verify_code(void *context) {
    const fb_subject *s = context;
    fb_run run;
    fb_buffer code = {0};
    fb_bench_check(fb_composition_run(&s->composition, s->graph, FB_LINT_END, NULL, &run, NULL) == FB_OK, "the run");
    fb_code_write(run.result, FB_MAIN_PROGRAM, &(fb_work){0}, &code);
    fb_buffer_free(&code);
    fb_run_free(&run);
}

static void run_validated(const fb_subject *s, fb_validation_mode mode) {
    fb_eval_options options = {.seed = 1, .memory_limit = (size_t)4 << 30};
    fb_run_validation validation = {.mode = mode, .options = &options};
    fb_run_watcher watcher = fb_validation_watcher(&validation);
    fb_run run;
    fb_bench_check(fb_composition_run(&s->composition, s->graph, FB_LINT_NONE, &watcher, &run, NULL) == FB_OK, "validation");
    fb_run_free(&run);
    fb_run_validation_free(&validation);
}

void fb_bench_validate_rewrites(void *context) {
    run_validated(context, FB_VALIDATE_REWRITES);
}

void fb_bench_validate_graph(void *context) {
    run_validated(context, FB_VALIDATE_GRAPH);
}
