/* make bench: durable requests per second of 64 clients, beside the most that SQLite can do with the same rows: with those of
 * all 64 clients in each commit, and with as many as the service had in its own. Service and bare loops take turns, so that all
 * meet the same weather. Prints Markdown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/durable/ceiling.h"
#include "tests/load/clients.h"

#define DISK "build/bench-data"
#define TMPFS "/dev/shm/foldback-bench"
#define DOCUMENT "tests/fixtures/toy/graph.json"
#define DATABASE "/foldback.sqlite"
#define CLIENTS 64
#define ROUNDS 31
#define SECONDS 0.5

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
    double per_second, group;
    double ceiling, own_ceiling; /* with CLIENTS in each commit, and with `group` */
} measurement;

static measurement measure_service(const fb_bench_service *service, fb_load_clients *clients, fb_latencies *latencies) {
    uint64_t errors = 0;
    double commits = metric(service, "\nfoldback_store_commits_total "), begun = fb_now_ms();
    double done = (double)fb_load_clients_run(clients, SECONDS, latencies, &errors);
    double seconds = (fb_now_ms() - begun) / 1e3;
    commits = metric(service, "\nfoldback_store_commits_total ") - commits;
    if (errors || commits <= 0) exit(1);
    return (measurement){.per_second = done / seconds, .group = done / commits};
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

static void print_row(const char *what, double per_second, double group, double ratio, const char *target) {
    printf("| %s | %.0f | %.0f | %.1f | %.3f | %s |\n", what, per_second, per_second / group, group, ratio, target);
}

static void measure_folder(const char *binary, const char *folder, const char *what, const char *target) {
    char other[200], database[300];
    traffic t = {0};
    fb_latencies latencies = {0};
    measurement all[ROUNDS];
    snprintf(other, sizeof other, "%s-ceiling", folder);
    snprintf(database, sizeof database, "%s" DATABASE, other);

    fb_bench_empty(other);
    fb_bench_service service = fb_bench_start(binary, other);
    prepare(&service, DOCUMENT, &t);
    fb_load_clients *clients = fb_load_clients_new(service.port, CLIENTS, next, NULL, &t);
    for (size_t i = 0; i < 4; i++) measure_service(&service, clients, &latencies); /* rows for the ceiling */
    fb_load_clients_free(clients);
    fb_bench_stop(&service);
    fb_latencies_free(&latencies);

    fb_ceiling *ceiling = fb_ceiling_open(database);
    t.body.size = 0;
    fb_bench_empty(folder);
    service = fb_bench_start(binary, folder);
    prepare(&service, DOCUMENT, &t);
    clients = fb_load_clients_new(service.port, CLIENTS, next, NULL, &t);
    for (size_t i = 0; i < ROUNDS; i++) {
        all[i] = measure_service(&service, clients, &latencies);
        all[i].ceiling = fb_ceiling_measure(ceiling, CLIENTS, SECONDS / 2);
        all[i].own_ceiling = fb_ceiling_measure(ceiling, (size_t)(all[i].group + 0.5), SECONDS / 2);
    }
    fb_load_clients_free(clients);
    fb_bench_stop(&service);
    fb_ceiling_close(ceiling);
    fb_bench_empty(other);
    fb_buffer_free(&t.body);

    qsort(all, ROUNDS, sizeof *all, by_ratio);
    const measurement *middle = &all[ROUNDS / 2];
    double sum = 0, ceilings = 0, own = 0;
    for (size_t i = 0; i < ROUNDS; i++) sum += all[i].per_second, ceilings += all[i].ceiling, own += all[i].own_ceiling;
    printf("\n%s\n\n| | per second | commits per second | in one commit | ratio | target |\n| --- | ---: | ---: | ---: | ---: "
           "| --- |\n",
           what);
    print_row("the same rows in bare SQLite, one thread, those of all clients in each commit", middle->ceiling, CLIENTS, 1, "");
    print_row("POST /v1/optimize by id, answered when durable", middle->per_second, middle->group,
              middle->per_second / middle->ceiling, target);
    print_row("the same rows in bare SQLite, as many in each commit as the service had", middle->own_ceiling,
              (double)(size_t)(middle->group + 0.5), middle->own_ceiling / middle->ceiling, "");
    printf("\nHalf of the rounds had ratios between %.3f and %.3f; all together: %.3f, and %.3f of what bare SQLite did with "
           "commits of the service's size. A request took %.1f ms (p50), %.1f ms (p99).\n",
           all[ROUNDS / 4].per_second / all[ROUNDS / 4].ceiling, all[ROUNDS * 3 / 4].per_second / all[ROUNDS * 3 / 4].ceiling,
           sum / ceilings, sum / own, fb_latencies_at(&latencies, 0.5), fb_latencies_at(&latencies, 0.99));
    fflush(stdout);
    fb_latencies_free(&latencies);
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    printf("\n%d clients, each waits for its answer; toy, 34 nodes; %d rounds of half a second each, the median by ratio\n",
           CLIENTS, ROUNDS);
    measure_folder(binary, DISK, "On a disk, with fsync:", "0.6");
    measure_folder(binary, TMPFS, "On tmpfs, where a commit costs nothing but processor time:", "");
    return 0;
}
