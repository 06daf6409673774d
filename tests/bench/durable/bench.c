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

/* ---- SQLite beside PostgreSQL ------------------------------------------------------------------------------------------- */

#define ROLLBACKS 200

typedef struct side {
    fb_bench_service service;
    fb_load_clients *clients;
    traffic t;
    fb_latencies latencies, rollbacks;
    char run[64];
    double per_second[ROUNDS], group[ROUNDS];
} side;

static void start_side(side *of, const char *binary, const char *folder, const char *const *options) {
    fb_buffer answer = {0};
    fb_bench_empty(folder);
    of->service = fb_bench_start_with(binary, folder, options);
    prepare(&of->service, DOCUMENT, &of->t);
    fb_bench_request(&of->service, "POST", "/v1/optimize", of->t.body.data, of->t.body.size, 201, &answer);
    const char *id = strstr(fb_buffer_text(&answer), "run_");
    if (!id) exit(1);
    snprintf(of->run, sizeof of->run, "/v1/runs/%.30s/rollback", id);
    of->clients = fb_load_clients_new(of->service.port, CLIENTS, next, NULL, &of->t);
    fb_buffer_free(&answer);
}

static void measure_side(side *of, size_t round) {
    measurement one = measure_service(&of->service, of->clients, &of->latencies);
    of->per_second[round] = one.per_second;
    of->group[round] = one.group;
}

static void roll_back(side *of) {
    fb_buffer answer = {0};
    double begun = fb_now_ms();
    fb_bench_request(&of->service, "POST", of->run, "{}", 2, 201, &answer);
    fb_latencies_add(&of->rollbacks, fb_now_ms() - begun);
    fb_buffer_free(&answer);
}

static void end_side(side *of) {
    fb_load_clients_free(of->clients);
    fb_bench_stop(&of->service);
    fb_buffer_free(&of->t.body);
    fb_latencies_free(&of->latencies);
    fb_latencies_free(&of->rollbacks);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *all, size_t count) {
    qsort(all, count, sizeof *all, by_size);
    return all[count / 2];
}

static void print_side(const char *what, side *of, double ratio, const char *target) {
    printf("| %s | %.0f | %.1f | %.2f | %s | %.2f | %.2f |\n", what, median(of->per_second, ROUNDS), median(of->group, ROUNDS),
           ratio, target, fb_latencies_at(&of->rollbacks, 0.5), fb_latencies_at(&of->rollbacks, 0.99));
}

static void compare_stores(const char *binary, const char *url) {
    static side file, server;
    double ratios[ROUNDS];
    start_side(&file, binary, DISK, (const char *const[]){NULL});
    start_side(&server, binary, DISK "-server", (const char *const[]){"--store", url, NULL});
    for (size_t i = 0; i < ROUNDS; i++) {
        measure_side(&file, i);
        measure_side(&server, i);
        ratios[i] = server.per_second[i] / file.per_second[i];
    }
    for (size_t i = 0; i < ROLLBACKS; i++) roll_back(&file), roll_back(&server);
    printf("\n%d clients, each waits for its answer; toy, 34 nodes; %d rounds of half a second each in turns, the medians; "
           "then %d "
           "rollbacks by id one after another, in turns\n\n",
           CLIENTS, ROUNDS, ROLLBACKS);
    printf("| rows in | POST /v1/optimize a second | in one commit | ratio | target | rollback, ms (p50) | (p99) |\n"
           "| --- | ---: | ---: | ---: | --- | ---: | ---: |\n");
    print_side("SQLite", &file, 1, "");
    print_side("PostgreSQL, one replica on the same machine and disk", &server, median(ratios, ROUNDS), "0.3");
    end_side(&file);
    end_side(&server);
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    if (count > 2) {
        compare_stores(binary, arguments[2]);
        return 0;
    }
    printf("\n%d clients, each waits for its answer; toy, 34 nodes; %d rounds of half a second each, the median by ratio\n",
           CLIENTS, ROUNDS);
    measure_folder(binary, DISK, "On a disk, with fsync:", "0.35");
    measure_folder(binary, TMPFS, "On tmpfs, where a commit costs nothing but processor time:", "");
    return 0;
}
