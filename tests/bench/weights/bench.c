/* make bench-weights: what weights cost on their way in, through recipes, and out, beside cat and openssl dgst of the same
 * files. Prints Markdown; tests/bench/run puts it into docs/performance.md. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/bind/bind.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/weights/weights_file.h"
#include "tests/bench/bench.h"
#include "tests/bench/weights/model.h"

#define TMPFS "/dev/shm/foldback-bench"
#define DISK "build/bench-data"
#define FILE_PATH "build/bench-weights.safetensors"
#define PIECE ((size_t)1 << 20)
#define ROUNDS 25

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench: %s failed\n", what);
    exit(1);
}

/* ---- others' programs --------------------------------------------------------------------------------------------------- */

static void run_program(const char *const *words) {
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
        execvp(words[0], (char **)(uintptr_t)words); /* which only reads them */
        _exit(127);
    }
    check(waitpid(pid, &status, 0) == pid && status == 0, words[0]);
}

static void cat(void *model) {
    run_program((const char *const[]){"cat", ((const fb_model *)model)->path, NULL});
}

/* From one process to another, as an answer goes. */
static void cat_through_pipe(void *model) {
    char command[300];
    snprintf(command, sizeof command, "cat %s | cat >/dev/null", ((const fb_model *)model)->path);
    check(system(command) == 0, "cat");
}

/* With the processor's instructions, as foldback; coreutils' sha256sum has none of these, and takes four times as long. */
static void openssl(void *model) {
    run_program((const char *const[]){"openssl", "dgst", "-sha256", ((const fb_model *)model)->path, NULL});
}

/* ---- the engine --------------------------------------------------------------------------------------------------------- */

/* The one blob there is: a model's file. */
static fb_status open_blob(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    const fb_model *model = context;
    int file = open(model->path, O_RDONLY);
    void *bytes = file < 0 ? MAP_FAILED : mmap(NULL, model->size, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (bytes == MAP_FAILED) return fb_fail(error, FB_NOT_FOUND, "blob-missing", "", "%s", blob);
    *out = (fb_blob_bytes){.bytes = bytes, .size = model->size};
    return FB_OK;
}

static void close_blob(void *context, fb_blob_bytes *bytes) {
    (void)context;
    munmap((void *)(uintptr_t)bytes->bytes, bytes->size);
}

static void forget(void *context, const fb_blob_bytes *bytes) {
    (void)context;
    madvise((void *)(uintptr_t)bytes->bytes, bytes->size, MADV_DONTNEED);
}

static fb_blobs blobs_of(fb_model *model) {
    return (fb_blobs){.context = model, .open = open_blob, .close = close_blob, .forget = forget};
}

typedef struct engine {
    fb_blobs blobs;
    fb_graph *bound;
    fb_run run;
    unsigned char *piece;
} engine;

static engine engine_of(fb_model *model) {
    engine e = {.blobs = blobs_of(model), .piece = malloc(PIECE)};
    const char *file = model->digest;
    char passes[100];
    fb_binding binding = {0};
    fb_errors errors = {0};
    fb_composition composition;
    snprintf(passes, sizeof passes, "[\"%s\"]", model->pass);
    check(e.piece && fb_document_read(model->document.data, model->document.size, NULL, "", &e.bound, &errors) == FB_OK &&
              fb_bind(e.bound, &file, 1, &e.blobs, NULL, &binding, NULL) == FB_OK && binding.bound == model->count,
          "binding");
    fb_binding_free(&binding);
    json_t *list = json_loads(passes, 0, NULL);
    check(list && fb_composition_read(list, "", NULL, &composition, NULL) == FB_OK &&
              fb_composition_run(&composition, e.bound, FB_LINT_NONE, NULL, &e.run, NULL) == FB_OK,
          "the run");
    json_decref(list);
    fb_composition_free(&composition);
    return e;
}

static void engine_free(engine *e) {
    fb_run_free(&e->run);
    fb_graph_free(e->bound);
    free(e->piece);
}

static void read_weights(const engine *e, const fb_graph *graph) {
    fb_weights_file *file;
    json_t *missing = NULL;
    check(fb_weights_file_new(graph, NULL, &e->blobs, &file, &missing, NULL) == FB_OK, "the weights");
    uint64_t size = fb_weights_file_size(file);
    for (uint64_t at = 0; at < size; at += PIECE) {
        size_t now = size - at < PIECE ? (size_t)(size - at) : PIECE;
        check(fb_weights_file_read(file, at, e->piece, now, NULL) == FB_OK, "reading the weights");
    }
    fb_weights_file_free(file);
}

static void read_source(void *context) {
    const engine *e = context;
    read_weights(e, e->bound);
}

static void read_result(void *context) {
    const engine *e = context;
    read_weights(e, e->run.result);
}

/* ---- the service -------------------------------------------------------------------------------------------------------- */

typedef struct client {
    fb_bench_service service;
    const fb_model *model;
    char blob[100], source[120], result[120]; /* addresses */
} client;

/* The value of the first member "name":"sha256:…" after `from`. */
static const char *id_in(fb_buffer *answer, const char *name) {
    const char *at = strstr(fb_buffer_text(answer), name);
    check(at != NULL, name);
    return at + strlen(name);
}

static void put_blob(void *context) {
    client *c = context;
    fb_bench_put_file(&c->service, c->blob, c->model->path);
}

static client client_start(const char *binary, const char *folder, const fb_model *model) {
    client c = {.model = model};
    fb_bench_empty(folder);
    c.service = fb_bench_start(binary, folder);
    snprintf(c.blob, sizeof c.blob, "/v1/blobs/%s", model->digest);
    return c;
}

static void collect(void *context) {
    client *c = context;
    fb_buffer answer = {0};
    static const char body[] = "{\"grace_seconds\":0}";
    fb_bench_request(&c->service, "POST", "/v1/gc", body, strlen(body), 200, &answer);
    fb_buffer_free(&answer);
}

/* Uploads, binds and optimises. */
static void client_fill(client *c) {
    fb_buffer answer = {0}, body = {0};
    char path[160];
    put_blob(c);
    snprintf(path, sizeof path, "/v1/graphs?strict=true&weights=%s", c->model->digest);
    fb_bench_request(&c->service, "POST", path, c->model->document.data, c->model->document.size, 201, &answer);
    const char *source = id_in(&answer, "\"id\":\"");
    snprintf(c->source, sizeof c->source, "/v1/graphs/%.71s/weights", source);
    fb_buffer_printf(&body, "{\"graph\":\"%.71s\",\"passes\":[\"%s\"]}", source, c->model->pass);
    fb_bench_request(&c->service, "POST", "/v1/optimize", body.data, body.size, 201, &answer);
    snprintf(c->result, sizeof c->result, "/v1/graphs/%.71s/weights", id_in(&answer, "\"result\":\""));
    fb_buffer_free(&body);
    fb_buffer_free(&answer);
}

static void client_stop(client *c, const char *folder) {
    fb_bench_stop(&c->service);
    fb_bench_empty(folder);
}

static void get_blob(void *context) {
    const client *c = context;
    check(fb_bench_get(&c->service, c->blob) == c->model->size, "the blob's size");
}

static void get_source(void *context) {
    const client *c = context;
    check(fb_bench_get(&c->service, c->source) == c->model->size, "the file's size");
}

static void get_result(void *context) {
    const client *c = context;
    fb_bench_get(&c->service, c->result);
}

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

/* The ratio of speeds is the other way round than that of times. */
static void print_rows(const fb_row *rows, size_t count, uint64_t size, const char *reference) {
    printf("| | MB/s at best | speed, to %s | target |\n| --- | ---: | ---: | --- |\n", reference);
    for (size_t r = 0; r < count; r++) {
        printf("| %s | %.0f | %.2f | %s |\n", rows[r].what, (double)size / 1e3 / rows[r].minimum, 1 / rows[r].ratio,
               rows[r].target ? rows[r].target : "");
    }
    fflush(stdout);
}

static void print_out(const char *binary, const char *title, fb_model *model, bool moves) {
    engine e = engine_of(model);
    client c = client_start(binary, DISK, model);
    client_fill(&c);
    fb_row rows[] = {
        {.what = "`cat` of the file, from the page cache (the reference)", .work = cat, .context = model},
        {.what = "`cat` of it through a pipe to another `cat`", .work = cat_through_pipe, .context = model},
        {.what = "engine: no recipe, the file as it went in", .work = read_source, .context = &e},
        {.what = moves ? "engine: recipes that move" : "engine: recipes that compute",
         .work = read_result,
         .context = &e,
         .target = moves ? "0.6" : "500 MB/s"},
        {.what = "HTTP: GET /v1/blobs/{digest}", .work = get_blob, .context = &c},
        {.what = "HTTP: GET …/weights, no recipe", .work = get_source, .context = &c},
        {.what = moves ? "HTTP: GET …/weights, recipes that move" : "HTTP: GET …/weights, recipes that compute",
         .work = get_result,
         .context = &c,
         .target = moves ? "0.6" : "500 MB/s"},
    };
    size_t count = sizeof rows / sizeof *rows;
    fb_measure(rows, count, ROUNDS);
    printf("\n%s: %zu tensors, %.0f MB, %s; %d rounds\n\n", title, model->count, (double)model->size / 1e6, model->pass,
           ROUNDS);
    print_rows(rows, count, model->size, "`cat`");
    client_stop(&c, DISK);
    engine_free(&e);
}

static void print_in(const char *binary, fb_model *model) {
    client tmpfs = client_start(binary, TMPFS, model), disk = client_start(binary, DISK, model);
    fb_row rows[] = {
        {.what = "`openssl dgst -sha256` of the file, from the page cache (the reference)", .work = openssl, .context = model},
        {.what = "PUT /v1/blobs/{digest}; tmpfs", .work = put_blob, .prepare = collect, .context = &tmpfs, .target = "0.6"},
        {.what = "the same; disk, with fsync", .work = put_blob, .prepare = collect, .context = &disk, .target = "0.6"},
    };
    fb_measure(rows, 3, ROUNDS);
    printf("\nUpload of that file, which the service has not had; %d rounds\n\n", ROUNDS);
    print_rows(rows, 3, model->size, "`openssl dgst`");
    client_stop(&tmpfs, TMPFS);
    client_stop(&disk, DISK);
}

/* The most that a service has taken at once, file pages that are mapped included, from upload to the last byte out. */
static void print_memory(const char *binary) {
    static const size_t blocks[] = {1, 4, 16, 43};
    double first = 0;
    printf("\nMemory of a service that takes in, binds, optimises and hands out a model; *at most* counts mapped pages of "
           "files\n\n"
           "| weights, MB | idle, MiB | at most, MiB | ratio | target |\n| ---: | ---: | ---: | ---: | --- |\n");
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        fb_model model;
        fb_model_linears(&model, FILE_PATH, blocks[i], 2896); /* 100 MB a block */
        client c = client_start(binary, DISK, &model);
        double idle = (double)fb_bench_memory(&c.service, "VmRSS:") / 1024;
        client_fill(&c);
        get_result(&c);
        double peak = (double)fb_bench_memory(&c.service, "VmHWM:") / 1024;
        if (!i) first = peak;
        printf("| %.0f | %.0f | %.0f | %.2f | %s |\n", (double)model.size / 1e6, idle, peak, peak / first,
               i ? "1; below 256 MiB" : "");
        fflush(stdout);
        client_stop(&c, DISK);
        fb_model_free(&model);
    }
}

int main(int count, char **arguments) {
    const char *binary = count > 1 ? arguments[1] : "build/foldback";
    fb_model model;
    mkdir("build", 0777);
    fb_model_linears(&model, FILE_PATH, 4, 2896);
    print_out(binary, "Linears of 2896 × 2896 in threes, float32", &model, true);
    print_in(binary, &model);
    fb_model_free(&model);
    fb_model_convs(&model, FILE_PATH, 42, 512, FB_FLOAT32);
    print_out(binary, "Conv2d of 512 × 512 × 3 × 3 with BatchNorm2d, float32", &model, false);
    fb_model_free(&model);
    fb_model_convs(&model, FILE_PATH, 84, 512, FB_BFLOAT16);
    print_out(binary, "The same, twice as many, bfloat16", &model, false);
    fb_model_free(&model);
    print_memory(binary);
    return 0;
}
