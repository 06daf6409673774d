/* make bench: what the engine and a durable request cost, beside what jansson takes to parse and print the same bytes. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/graph/code.h"
#include "core/graph/document.h"
#include "core/graph/verify.h"
#include "tests/bench/bench.h"

#define PASSES "[\"ChangeTrueDivToMulByInverse\",\"MergeLinears\",\"FuseBiasInLinear\"]"
#define OPTIMIZE "/v1/optimize?pass=ChangeTrueDivToMulByInverse&pass=MergeLinears&pass=FuseBiasInLinear&include=graph"

typedef struct subject {
    fb_buffer document;
    fb_graph *graph;
    fb_composition composition;
    fb_bench_service service;
    fb_buffer body, answer;
    const char *path;
} subject;

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench: %s failed\n", what);
    exit(1);
}

static fb_graph *read_document(const subject *s) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    check(fb_document_read(s->document.data, s->document.size, NULL, "", &graph, &errors) == FB_OK, "reading the document");
    return graph;
}

static void parse_and_dump(void *context) {
    const subject *s = context;
    json_t *tree = json_loadb(s->document.data, s->document.size, JSON_REJECT_DUPLICATES, NULL);
    char *text = json_dumps(tree, JSON_COMPACT);
    check(tree && text, "jansson");
    free(text);
    json_decref(tree);
}

static void read_graph(void *context) {
    fb_graph_free(read_document(context));
}

static void write_graph(void *context) {
    const subject *s = context;
    fb_buffer out = {0};
    char id[FB_ID_LENGTH + 1];
    check(fb_document_write_id(s->graph, &out, id), "writing");
    fb_buffer_free(&out);
}

static void run_passes(void *context) {
    const subject *s = context;
    fb_run run;
    check(fb_composition_run(&s->composition, s->graph, FB_LINT_NONE, &run, NULL) == FB_OK, "the run");
    fb_run_free(&run);
}

static void run_verify_and_code(void *context) {
    const subject *s = context;
    fb_run run;
    fb_buffer code = {0};
    check(fb_composition_run(&s->composition, s->graph, FB_LINT_END, &run, NULL) == FB_OK, "the run");
    fb_code_write(run.result, &code);
    fb_buffer_free(&code);
    fb_run_free(&run);
}

static void post(void *context) {
    subject *s = context;
    fb_bench_request(&s->service, "POST", s->path, s->body.data, s->body.size, 201, &s->answer);
}

static void measure_service(const char *binary, subject *s, const char *folder, const char *where, fb_timing reference,
                            size_t repeats) {
    char line[128];
    s->service = fb_bench_start(binary, folder);
    s->path = OPTIMIZE;
    s->body.size = 0;
    fb_buffer_append(&s->body, s->document.data, s->document.size);
    snprintf(line, sizeof line, "POST /v1/optimize with the document, result included (%s)", where);
    fb_print_timing(line, fb_measure(post, s, repeats), &reference);

    char id[FB_ID_LENGTH + 1];
    check(fb_document_id(s->graph, id), "the id");
    s->path = "/v1/optimize";
    s->body.size = 0;
    fb_buffer_printf(&s->body, "{\"graph\":\"%s\",\"passes\":" PASSES "}", id);
    snprintf(line, sizeof line, "POST /v1/optimize by id (%s)", where);
    fb_print_timing(line, fb_measure(post, s, repeats), &reference);

    const char *run = strstr(fb_buffer_text(&s->answer), "\"id\":\"run_");
    check(run != NULL, "finding the run's id");
    char path[96];
    snprintf(path, sizeof path, "/v1/runs/%.30s/rollback", run + strlen("\"id\":\""));
    s->path = path;
    s->body.size = 0;
    snprintf(line, sizeof line, "POST /v1/runs/{run}/rollback (%s)", where);
    fb_print_timing(line, fb_measure(post, s, repeats), &reference);
    fb_bench_stop(&s->service);
}

static void measure(const char *binary, const char *title, subject *s, size_t repeats) {
    json_t *list = json_loads(PASSES, 0, NULL);
    check(list && fb_composition_read(list, "", &s->composition, NULL) == FB_OK, "the composition");
    json_decref(list);
    s->graph = read_document(s);
    printf("\n%s: %zu nodes, %zu bytes\n%-68s %10s %10s %9s\n", title, fb_node_count(s->graph), s->document.size, "", "min ms",
           "median ms", "ratio");
    fb_timing reference = fb_measure(parse_and_dump, s, repeats);
    fb_print_timing("jansson: parse + dump of the document (the reference)", reference, NULL);
    fb_print_timing("read and verify", fb_measure(read_graph, s, repeats), &reference);
    fb_print_timing("write canonical bytes and id", fb_measure(write_graph, s, repeats), &reference);
    fb_print_timing("three passes in memory, on a copy", fb_measure(run_passes, s, repeats), &reference);
    fb_print_timing("three passes, verify, generate code", fb_measure(run_verify_and_code, s, repeats), &reference);
    measure_service(binary, s, "/dev/shm/foldback-bench", "tmpfs", reference, repeats);
    measure_service(binary, s, "build/bench-data", "disk", reference, repeats);
    fb_graph_free(s->graph);
    fb_composition_free(&s->composition);
    fb_buffer_free(&s->document);
    fb_buffer_free(&s->body);
    fb_buffer_free(&s->answer);
    *s = (subject){0};
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    subject s = {0};
    puts(
        "Medians of one warm-up and then 200 (BERT) or 10 repetitions in one process; ratios are to the reference above them.");
    fb_bench_read_file("tests/fixtures/bert-base/graph.json", &s.document);
    measure(binary, "BERT-base", &s, 200);
    fb_bench_document(&s.document, 100000);
    measure(binary, "blocks of three Linears, a division and additions", &s, 10);
    return 0;
}
