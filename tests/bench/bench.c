/* make bench: what the engine and a durable request cost, beside what jansson takes to parse and print the same bytes. Prints
 * Markdown; tests/bench/run puts it into docs/performance.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"
#include "tests/bench/engine.h"

#define OPTIMIZE "/v1/optimize?pass=ChangeTrueDivToMulByInverse&pass=MergeLinears&pass=FuseBiasInLinear&include=graph"
#define TMPFS "/dev/shm/foldback-bench"
#define DISK "build/bench-data"

static void print_validation(const char *name, const char *of_rewrites, const char *of_graph, size_t rounds) {
    char path[100];
    fb_buffer document = {0};
    snprintf(path, sizeof path, "tests/fixtures/%s/graph.json", name);
    fb_bench_read_file(path, &document);
    fb_subject s = fb_bench_subject(document, FB_BENCH_PASSES);
    fb_row rows[] = {
        {.what = "three passes", .work = fb_bench_passes, .context = &s},
        {.what = "the same, validated: rewrites", .work = fb_bench_validate_rewrites, .context = &s, .target = of_rewrites},
        {.what = "the same, validated: graph", .work = fb_bench_validate_graph, .context = &s, .target = of_graph},
    };
    fb_measure(rows, sizeof rows / sizeof *rows, rounds);
    printf("\nValidation on random weights, %s: %zu nodes; %zu rounds\n\n", name, fb_node_count(s.graph), rounds);
    fb_print_rows(rows, sizeof rows / sizeof *rows);
    fb_bench_subject_free(&s);
}

/* ---- requests ------------------------------------------------------------------------------------------------------------ */

typedef struct request {
    fb_bench_service *service;
    const char *path;
    fb_buffer body, answer;
} request;

static void post(void *context) {
    request *r = context;
    fb_bench_request(r->service, "POST", r->path, r->body.data, r->body.size, 201, &r->answer);
}

/* The three requests of a service: with the document, by id, and the rollback of one run. */
typedef struct client {
    fb_bench_service service;
    request document, by_id, rollback;
    char rollback_path[96];
} client;

static void client_start(client *c, const char *binary, const char *folder, const fb_subject *s) {
    *c = (client){0};
    fb_bench_empty(folder);
    c->service = fb_bench_start(binary, folder);
    c->document = (request){.service = &c->service, .path = OPTIMIZE};
    c->by_id = (request){.service = &c->service, .path = "/v1/optimize"};
    c->rollback = (request){.service = &c->service, .path = c->rollback_path};
    char id[FB_ID_LENGTH + 1];
    fb_bench_check(fb_document_id(s->graph, id), "the id");
    fb_buffer_append(&c->document.body, s->document.data, s->document.size);
    fb_buffer_printf(&c->by_id.body, "{\"graph\":\"%s\",\"passes\":" FB_BENCH_PASSES "}", id);
    post(&c->document);
    post(&c->by_id);
    const char *run = strstr(fb_buffer_text(&c->by_id.answer), "\"id\":\"run_");
    fb_bench_check(run != NULL, "finding the run's id");
    snprintf(c->rollback_path, sizeof c->rollback_path, "/v1/runs/%.30s/rollback", run + strlen("\"id\":\""));
}

static void client_stop(client *c) {
    fb_bench_stop(&c->service);
    request *all[] = {&c->document, &c->by_id, &c->rollback};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fb_buffer_free(&all[i]->body);
        fb_buffer_free(&all[i]->answer);
    }
}

/* ---- the tables ---------------------------------------------------------------------------------------------------------- */

typedef struct targets {
    const char *read, *passes, *passes_verify_code, *document, *by_id, *rollback;
} targets;

static void print_speed(const char *binary, const char *title, fb_subject *s, size_t rounds, const targets *t) {
    client tmpfs, disk;
    client_start(&tmpfs, binary, TMPFS, s);
    client_start(&disk, binary, DISK, s);
    fb_row rows[] = {
        {.what = "jansson: parse + dump of the document (the reference)", .work = fb_bench_parse_and_dump, .context = s},
        {.what = "read and verify", .work = fb_bench_read, .context = s, .target = t->read},
        {.what = "write canonical bytes and id", .work = fb_bench_write, .context = s},
        {.what = "copy", .work = fb_bench_copy, .context = s},
        {.what = "copy, three passes", .work = fb_bench_passes, .context = s, .target = t->passes},
        {.what = "copy, three passes, verify, code",
         .work = fb_bench_passes_verify_code,
         .context = s,
         .target = t->passes_verify_code},
        {.what = "POST /v1/optimize with the document, result included; tmpfs",
         .work = post,
         .context = &tmpfs.document,
         .target = t->document},
        {.what = "the same; disk, with fsync", .work = post, .context = &disk.document},
        {.what = "POST /v1/optimize by id; tmpfs", .work = post, .context = &tmpfs.by_id, .target = t->by_id},
        {.what = "the same; disk, with fsync", .work = post, .context = &disk.by_id},
        {.what = "POST /v1/runs/{run}/rollback; tmpfs", .work = post, .context = &tmpfs.rollback, .target = t->rollback},
        {.what = "the same; disk, with fsync", .work = post, .context = &disk.rollback},
    };
    size_t count = sizeof rows / sizeof *rows;
    fb_measure(rows, count, rounds);
    printf("\n%s: %zu nodes, %zu bytes; %zu rounds\n\n", title, fb_node_count(s->graph), s->document.size, rounds);
    fb_print_rows(rows, count);
    client_stop(&tmpfs);
    client_stop(&disk);
}

/* What one request takes at most beyond the idle service, in documents. */
static void print_memory(const char *binary, const fb_subject *s) {
    fb_buffer answer = {0};
    fb_bench_empty(TMPFS);
    fb_bench_service service = fb_bench_start(binary, TMPFS);
    double idle = (double)fb_bench_memory(&service, "VmRSS:");
    fb_bench_request(&service, "POST", OPTIMIZE, s->document.data, s->document.size, 201, &answer);
    double peak = (double)fb_bench_memory(&service, "VmHWM:");
    fb_bench_stop(&service);
    fb_buffer_free(&answer);
    printf("\nPeak memory of that request over the idle service: %.1f MiB, %.2f × the document (target: 6).\n",
           (peak - idle) / 1024, (peak - idle) * 1024 / (double)s->document.size);
}

static size_t stored(const char *binary, const char *path, const char *body, size_t size) {
    fb_buffer answer = {0};
    fb_bench_service service = fb_bench_start(binary, TMPFS);
    fb_bench_request(&service, "POST", path, body, size, 201, &answer);
    fb_bench_stop(&service); /* and the database is one file */
    fb_buffer_free(&answer);
    return fb_bench_folder_size(TMPFS);
}

static void print_stored(const char *binary, const fb_subject *s) {
    fb_bench_empty(TMPFS);
    size_t source = stored(binary, "/v1/graphs", s->document.data, s->document.size);
    size_t first = stored(binary, OPTIMIZE, s->document.data, s->document.size), last = first;
    enum { more = 20 };
    for (int i = 0; i < more; i++) last = stored(binary, OPTIMIZE, s->document.data, s->document.size);
    printf(
        "\nStored by the first run of these passes beyond the source: %.1f KiB (target: 16), the result among them; by each\n"
        "further run %.1f KiB.\n",
        (double)(first - source) / 1024, (double)(last - first) / more / 1024);
}

/* The three passes on documents of two sizes, by node or by candidate; floors, since the sizes are too different to share a
 * round's weather. */
static void print_growth(const char *what, void (*make)(fb_buffer *, size_t), size_t small_size, size_t large_size,
                         size_t rounds, const char *target) {
    fb_buffer small_document = {0}, large_document = {0};
    make(&small_document, small_size);
    make(&large_document, large_size);
    fb_subject small = fb_bench_subject(small_document, FB_BENCH_PASSES),
               large = fb_bench_subject(large_document, FB_BENCH_PASSES);
    fb_row rows[] = {{.work = fb_bench_passes, .context = &small}, {.work = fb_bench_passes, .context = &large}};
    fb_measure(rows, 2, rounds);
    double small_each = rows[0].minimum * 1e3 / (double)small_size, large_each = rows[1].minimum * 1e3 / (double)large_size;
    printf("| %s | %zu | %.3f | %zu | %.3f | %.2f | %s |\n", what, small_size, small_each, large_size, large_each,
           large_each / small_each, target);
    fflush(stdout);
    fb_bench_subject_free(&small);
    fb_bench_subject_free(&large);
}

/* µs for each node: of a preset on its own, or with all that a request for it is, when there is a `binary` to ask. */
static double preset_floor(const char *binary, const char *preset, size_t nodes, size_t rounds) {
    fb_buffer document = {0};
    char list[64], path[96];
    snprintf(list, sizeof list, "[\"%s\"]", preset);
    snprintf(path, sizeof path, "/v1/optimize?pass=%s", preset);
    fb_bench_layers(&document, nodes);
    fb_subject s = fb_bench_subject(document, list);
    fb_bench_service service = {0};
    request asked = {.service = &service, .path = path, .body = s.document};
    if (binary) {
        fb_bench_empty(TMPFS);
        service = fb_bench_start(binary, TMPFS);
    }
    fb_row row = binary ? (fb_row){.work = post, .context = &asked} : (fb_row){.work = fb_bench_passes, .context = &s};
    fb_measure(&row, 1, rounds);
    double each = row.minimum * 1e3 / (double)fb_node_count(s.graph);
    if (binary) fb_bench_stop(&service);
    fb_buffer_free(&asked.answer);
    fb_bench_subject_free(&s);
    return each;
}

static void print_preset(const char *binary, const char *preset) {
    double small = preset_floor(binary, preset, 10000, 20), middle = preset_floor(binary, preset, 100000, 7);
    double large = preset_floor(binary, preset, 1000000, 3);
    printf("| `%s`%s | %.2f | %.2f | %.2f | %.2f | 1.3 |\n", preset, binary ? ", as a request" : ", in memory", small, middle,
           large, large / small);
    fflush(stdout);
}

/* Whole presets by node, on documents in which every pass of theirs finds something in every block. */
static void print_presets(const char *binary) {
    printf("\nWhole presets, floors in µs for each node; a request reads, verifies, stores and answers besides; tmpfs:\n\n"
           "| | 10,000 | 100,000 | 1,000,000 | ratio of the last to the first | target |\n"
           "| --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (size_t i = 0; fb_preset_at(i); i++) {
        print_preset(NULL, fb_preset_at(i)->name);
        print_preset(binary, fb_preset_at(i)->name);
    }
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    const targets bert_targets = {NULL, "ratio 0.07", "1 ms", "ratio 0.45", "2 ms", "1 ms"};
    const targets large_targets = {"ratio 0.06", "ratio 0.09", NULL, "ratio 0.22", NULL, NULL};
    fb_buffer document = {0};

    fb_bench_read_file("tests/fixtures/bert-base/graph.json", &document);
    fb_subject bert = fb_bench_subject(document, FB_BENCH_PASSES);
    print_speed(binary, "BERT-base", &bert, 200, &bert_targets);
    print_stored(binary, &bert);
    fb_bench_subject_free(&bert);

    print_validation("bert-base", "2,000 ms", NULL, 3);
    print_validation("bert-tiny", NULL, "20 ms", 50);

    document = (fb_buffer){0};
    fb_bench_blocks(&document, 100000);
    fb_subject large = fb_bench_subject(document, FB_BENCH_PASSES);
    print_speed(binary, "Blocks of three Linears, a division and two additions", &large, 7, &large_targets);
    print_memory(binary, &large);
    fb_bench_subject_free(&large);

    printf("\nGrowth of the three passes in memory, floors in µs for each of n:\n\n"
           "| | n | µs | n | µs | ratio | target |\n| --- | ---: | ---: | ---: | ---: | ---: | --- |\n");
    print_growth("nodes in such blocks", fb_bench_blocks, 10000, 1000000, 5, "1.3");
    print_growth("Linears on one input", fb_bench_fan, 2000, 20000, 20, "linear");
    print_growth("refused divisions", fb_bench_refusals, 2000, 20000, 20, "linear");
    print_presets(binary);
    return 0;
}
