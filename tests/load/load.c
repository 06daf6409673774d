/* make test-load: 64 clients that read and write, each waiting for its answer, and then the same beside 1,000 slow ones. Any
 * error fails it. With --judge also: p99 over 5 × p50, memory that grows, or a p99 beside slow clients of 2 × that without.
 *
 *     load BINARY SECONDS [--judge]        prints a sentence a figure on stderr, and all of them as JSON on stdout
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/bench/bench.h"
#include "tests/load/clients.h"

#define CLIENTS 64
#define SLOW_CLIENTS 1000
#define SLICES 10 /* of the long part: memory is looked at between them */
#define PAIRS 4   /* of turns without and with slow clients */

typedef struct traffic {
    char graph[72]; /* ids */
    char run[31];
    char paths[8][160];
    fb_buffer optimize;
} traffic;

static void note_run(traffic *t, const char *id) {
    snprintf(t->run, sizeof t->run, "%.30s", id);
    snprintf(t->paths[0], sizeof t->paths[0], "/v1/runs/%s/rollback", t->run);
    snprintf(t->paths[1], sizeof t->paths[1], "/v1/runs/%s", t->run);
}

static void prepare(const fb_bench_service *service, traffic *t) {
    fb_buffer document = {0}, answer = {0};
    fb_bench_read_file("tests/fixtures/toy/graph.json", &document);
    fb_bench_request(service, "POST", "/v1/graphs", document.data, document.size, 201, &answer);
    const char *id = strstr(fb_buffer_text(&answer), "sha256:");
    if (!id) exit(1);
    snprintf(t->graph, sizeof t->graph, "%.71s", id);
    snprintf(t->paths[2], sizeof t->paths[2], "/v1/graphs/%s", t->graph);
    snprintf(t->paths[3], sizeof t->paths[3], "/v1/graphs/%s/nodes?limit=20", t->graph);
    snprintf(t->paths[4], sizeof t->paths[4], "/v1/graphs/%s/code", t->graph);
    fb_buffer_printf(&t->optimize, "{\"graph\":\"%s\",\"passes\":[\"MergeLinears\"]}", t->graph);
    fb_bench_request(service, "POST", "/v1/optimize", t->optimize.data, t->optimize.size, 201, &answer);
    const char *run = strstr(fb_buffer_text(&answer), "run_");
    if (!run) exit(1);
    note_run(t, run);
    fb_buffer_free(&document);
    fb_buffer_free(&answer);
}

/* A graph that nobody has sent yet. */
static void put_new_graph(uint64_t number, fb_buffer *out) {
    char document[500];
    int size = snprintf(
        document, sizeof document,
        "{\"format\":\"foldback.graph/1\",\"name\":\"load-%llu\",\"nodes\":[{\"name\":\"x\",\"op\":\"placeholder\","
        "\"target\":\"x\"},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"x\"}]}],"
        "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\"}],\"tensors\":[]}",
        (unsigned long long)number);
    fb_load_request(out, "POST", "/v1/graphs", document, (size_t)size);
}

/* Half of them are written to the disk before they are answered. */
static int next(void *context, uint64_t number, fb_buffer *out) {
    const traffic *t = context;
    switch (number % 20) {
    case 0:
    case 3:
    case 6:
    case 9:
    case 12:
    case 15: fb_load_request(out, "POST", "/v1/optimize", t->optimize.data, t->optimize.size); return 201;
    case 1:
    case 11: put_new_graph(number, out); return 201;
    case 4:
    case 14: fb_load_request(out, "POST", t->paths[0], "", 0); return 201;
    case 2:
    case 7: fb_load_request(out, "GET", t->paths[1], "", 0); return 200;
    case 5:
    case 8: fb_load_request(out, "GET", t->paths[3], "", 0); return 200;
    case 10: fb_load_request(out, "GET", "/v1/runs?limit=10", "", 0); return 200;
    case 13: fb_load_request(out, "GET", t->paths[4], "", 0); return 200;
    default: fb_load_request(out, "GET", t->paths[2], "", 0); return 200;
    }
}

static void answered(void *context, uint64_t number, const char *body, size_t size) {
    static const char begin[] = "{\"id\":\"run_";
    if (number % 20 == 0 && size > 40 && memcmp(body, begin, sizeof begin - 1) == 0)
        note_run(context, body + strlen("{\"id\":\""));
}

typedef struct figures {
    uint64_t requests, errors, ended;
    double seconds, p50, p99, alone, beside;
    size_t early_memory, memory; /* KiB */
} figures;

static void measure_long(const fb_bench_service *service, fb_load_clients *clients, double seconds, figures *f) {
    fb_latencies all = {0}, warm = {0};
    fb_load_clients_run(clients, 1, &warm, &f->errors);
    double begun = fb_now_ms();
    for (int i = 0; i < SLICES; i++) {
        f->requests += fb_load_clients_run(clients, seconds / SLICES, &all, &f->errors);
        f->memory = fb_bench_memory(service, "VmRSS:");
        if (i < SLICES / 2 && f->memory > f->early_memory) f->early_memory = f->memory;
    }
    f->seconds = (fb_now_ms() - begun) / 1e3;
    f->p50 = fb_latencies_at(&all, 0.5);
    f->p99 = fb_latencies_at(&all, 0.99);
    fb_latencies_free(&all);
    fb_latencies_free(&warm);
}

/* In turns, so that both meet the same weather. */
static void measure_slow(unsigned port, fb_load_clients *clients, const traffic *t, double seconds, figures *f) {
    fb_latencies alone = {0}, beside = {0};
    for (int i = 0; i < PAIRS; i++) {
        uint64_t ended = 0;
        f->requests += fb_load_clients_run(clients, seconds, &alone, &f->errors);
        fb_slow_clients *slow = fb_slow_clients_start(port, SLOW_CLIENTS, t->paths[2]);
        f->requests += fb_load_clients_run(clients, seconds, &beside, &f->errors);
        fb_slow_clients_stop(slow, &ended);
        f->ended += ended;
    }
    f->alone = fb_latencies_at(&alone, 0.99);
    f->beside = fb_latencies_at(&beside, 0.99);
    fb_latencies_free(&alone);
    fb_latencies_free(&beside);
}

static bool is_good(const char *what, bool is_so) {
    if (!is_so) fprintf(stderr, "missed: %s\n", what);
    return is_so;
}

static bool print(const figures *f, bool is_judged) {
    fprintf(stderr,
            "%llu requests, %llu errors; %d clients for %.0f s: p50 %.2f ms, p99 %.2f ms, %.2f x p50\n"
            "memory: at most %.1f MiB in the first half, %.1f MiB at the end\n"
            "beside %d slow clients, of which the service ended %llu: p99 %.2f ms, %.2f x the %.2f ms without\n",
            (unsigned long long)f->requests, (unsigned long long)f->errors, CLIENTS, f->seconds, f->p50, f->p99,
            f->p99 / f->p50, (double)f->early_memory / 1024, (double)f->memory / 1024, SLOW_CLIENTS,
            (unsigned long long)f->ended, f->beside, f->beside / f->alone, f->alone);
    printf("{\"clients\": %d, \"seconds\": %.1f, \"requests\": %llu, \"errors\": %llu, \"p50_ms\": %.3f, \"p99_ms\": %.3f, "
           "\"early_memory_kib\": %zu, \"memory_kib\": %zu, \"slow_clients\": %d, \"slow_clients_ended\": %llu, "
           "\"p99_alone_ms\": %.3f, \"p99_beside_slow_ms\": %.3f}\n",
           CLIENTS, f->seconds, (unsigned long long)f->requests, (unsigned long long)f->errors, f->p50, f->p99, f->early_memory,
           f->memory, SLOW_CLIENTS, (unsigned long long)f->ended, f->alone, f->beside);
    bool ok = is_good("no errors", f->errors == 0);
    if (!is_judged) return ok;
    ok &= is_good("p99 of at most 5 x p50", f->p99 <= 5 * f->p50);
    ok &= is_good("memory at the end of at most 1.1 x that of the first half",
                  (double)f->memory <= 1.1 * (double)f->early_memory);
    ok &= is_good("p99 beside slow clients of less than 2 x that without", f->beside < 2 * f->alone);
    return ok;
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    double seconds = strtod(arguments[2], NULL);
    bool is_judged = count > 3 && strcmp(arguments[3], "--judge") == 0;
    struct rlimit files; /* for a socket each, here and in the service */
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    traffic t = {0};
    figures f = {0};
    char folder[1000]; /* beside the program */
    snprintf(folder, sizeof folder, "%s-load-data", arguments[1]);
    fb_bench_empty(folder);
    fb_bench_service service = fb_bench_start_with(
        arguments[1], folder,
        (const char *const[]){"--max-connections", "2048", "--max-connections-per-address", "0", "--cache", "16M", NULL});
    prepare(&service, &t);
    fb_load_clients *clients = fb_load_clients_new(service.port, CLIENTS, next, answered, &t);
    measure_long(&service, clients, seconds, &f);
    measure_slow(service.port, clients, &t, seconds / 10 < 1 ? 1 : seconds / 20, &f);
    fb_load_clients_free(clients);
    fb_bench_stop(&service);
    fb_bench_empty(folder);
    fb_buffer_free(&t.optimize);
    return print(&f, is_judged) ? 0 : 1;
}
