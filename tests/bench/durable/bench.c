/* make bench: durable requests per second of 64 clients, beside the most that SQLite can do with the same rows in groups of the
 * same size. Service and bare loop take turns, so that both meet the same weather. Prints Markdown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/durable/ceiling.h"
#include "tests/load/clients.h"

#define FOLDER "build/bench-data"
#define DATABASE "/foldback.sqlite"
#define CLIENTS 64
#define ROUNDS 7
#define SECONDS 2.0

typedef struct traffic {
    fb_buffer body;
} traffic;

static int next(void *context, uint64_t number, fb_buffer *out) {
    (void)number;
    const traffic *t = context;
    fb_load_request(out, "POST", "/v1/optimize", t->body.data, t->body.size);
    return 201;
}

static double metric(const fb_bench_service *service, const char *name) {
    fb_buffer answer = {0};
    fb_bench_request(service, "GET", "/metrics", "", 0, 200, &answer);
    const char *line = strstr(fb_buffer_text(&answer), name);
    double value = line ? strtod(line + strlen(name), NULL) : 0;
    fb_buffer_free(&answer);
    return value;
}

typedef struct measurement {
    double per_second, commits_per_second, group, ceiling;
} measurement;

static measurement measure_service(const fb_bench_service *service, fb_load_clients *clients, fb_latencies *latencies) {
    uint64_t errors = 0;
    double commits = metric(service, "\nfoldback_store_commits_total "), begun = fb_now_ms();
    double done = (double)fb_load_clients_run(clients, SECONDS, latencies, &errors);
    double seconds = (fb_now_ms() - begun) / 1e3;
    commits = metric(service, "\nfoldback_store_commits_total ") - commits;
    if (errors || !commits) exit(1);
    return (measurement){.per_second = done / seconds, .commits_per_second = commits / seconds, .group = done / commits};
}

static int by_ratio(const void *a, const void *b) {
    const measurement *x = a, *y = b;
    double first = x->per_second / x->ceiling, second = y->per_second / y->ceiling;
    return (first > second) - (first < second);
}

/* The id of the small graph, stored by its first run. */
static void prepare(const fb_bench_service *service, const char *document_path, traffic *t) {
    fb_buffer document = {0}, answer = {0};
    fb_bench_read_file(document_path, &document);
    fb_bench_request(service, "POST", "/v1/graphs", document.data, document.size, 201, &answer);
    const char *id = strstr(fb_buffer_text(&answer), "\"id\":\"");
    if (!id) exit(1);
    fb_buffer_printf(&t->body, "{\"graph\":\"%.71s\",\"passes\":[\"MergeLinears\"]}", id + strlen("\"id\":\""));
    fb_buffer_free(&document);
    fb_buffer_free(&answer);
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    traffic t = {0};
    fb_latencies latencies = {0}, unused = {0};
    measurement all[ROUNDS];

    fb_bench_empty(FOLDER);
    fb_bench_service service = fb_bench_start(binary, FOLDER);
    prepare(&service, "tests/fixtures/toy/graph.json", &t);
    fb_load_clients *clients = fb_load_clients_new(service.port, CLIENTS, next, NULL, &t);
    measure_service(&service, clients, &unused); /* to warm up, and to have rows for the ceiling */
    fb_load_clients_free(clients);
    fb_bench_stop(&service);

    fb_bench_empty(FOLDER "-ceiling");
    if (rename(FOLDER, FOLDER "-ceiling")) exit(1);
    fb_ceiling *ceiling = fb_ceiling_open(FOLDER "-ceiling" DATABASE);
    t.body.size = 0;
    service = fb_bench_start(binary, FOLDER);
    prepare(&service, "tests/fixtures/toy/graph.json", &t);
    clients = fb_load_clients_new(service.port, CLIENTS, next, NULL, &t);
    for (size_t i = 0; i < ROUNDS; i++) {
        all[i] = measure_service(&service, clients, &latencies);
        all[i].ceiling = fb_ceiling_measure(ceiling, (size_t)(all[i].group + 0.5), SECONDS);
        fprintf(stderr, "%.0f requests/s in groups of %.1f, ceiling %.0f\n", all[i].per_second, all[i].group, all[i].ceiling);
    }
    fb_load_clients_free(clients);
    fb_bench_stop(&service);
    fb_ceiling_close(ceiling);

    qsort(all, ROUNDS, sizeof *all, by_ratio);
    const measurement *middle = &all[ROUNDS / 2];
    printf("\nDurable requests: %d clients, each waits for its answer; toy, 34 nodes; the median of %d rounds by ratio\n\n",
           CLIENTS, ROUNDS);
    printf(
        "| | per second | commits per second | in one commit | ratio | target |\n| --- | ---: | ---: | ---: | ---: | --- |\n");
    printf("| the rows of such requests in bare SQLite, one thread, groups of the same size | %.0f | %.0f | %.0f | 1.000 | |\n",
           middle->ceiling, middle->ceiling / (double)(size_t)(middle->group + 0.5), middle->group);
    printf("| POST /v1/optimize by id, answered when durable | %.0f | %.0f | %.1f | %.3f | 0.6 |\n", middle->per_second,
           middle->commits_per_second, middle->group, middle->per_second / middle->ceiling);
    printf("\nRatios of the rounds: %.3f to %.3f. A request took %.1f ms (p50), %.1f ms (p99).\n",
           all[0].per_second / all[0].ceiling, all[ROUNDS - 1].per_second / all[ROUNDS - 1].ceiling,
           fb_latencies_at(&latencies, 0.5), fb_latencies_at(&latencies, 0.99));
    fb_latencies_free(&latencies);
    fb_latencies_free(&unused);
    fb_buffer_free(&t.body);
    fb_bench_empty(FOLDER "-ceiling");
    return 0;
}
