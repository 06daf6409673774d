/* Does one kind of work: bench WORK TIMES. tests/bench/instructions/count counts the instructions of twice and of once, so that
 * what the process costs besides is left out. Without arguments it lists the kinds of work that are counted; --large lists
 * those that are timed alone, on large documents. --bytes prints the bytes a node of a document and of what three passes make
 * of it.
 *
 * bench FILE prints the shortest time of three that the three passes take in memory on a document, in ms, and the most memory
 * that this took, in KiB (tests/bench/peers/sizes.py). */
#include <cblas.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "core/compose/run.h"
#include "core/compose/undo.h"
#include "tests/bench/engine.h"

static const char bert[] = "tests/fixtures/bert-base/graph.json", tiny[] = "tests/fixtures/bert-tiny/graph.json";
static const char inference[] = "[\"inference\"]";

/* What libraries do for the others, and no line of ours: it tells whether counts of two machines can be compared. */
static void libraries(void *context) {
    enum { SIDE = 64 };
    static float one[SIDE * SIDE], two[SIDE * SIDE], product[SIDE * SIDE];
    const fb_subject *s = context;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    fb_bench_parse_and_dump(context);
    SHA256((const unsigned char *)s->document.data, s->document.size, digest);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, SIDE, SIDE, SIDE, 1, one, SIDE, two, SIDE, 0, product, SIDE);
}

static fb_graph *result_of(const fb_composition *composition, const fb_graph *source) {
    fb_run run;
    fb_bench_check(fb_composition_run(composition, source, FB_LINT_NONE, NULL, &run, NULL) == FB_OK, "the run");
    fb_graph *result = run.result;
    run.result = NULL;
    fb_run_free(&run);
    return result;
}

/* Takes the first pass of the three out of a result that somebody gave another activation since. */
static void undo(void *context) {
    const fb_subject *s = context;
    fb_subject edit =
        fb_bench_subject((fb_buffer){0}, "[{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"gelu\",\"to\":\"relu\"}}]");
    fb_graph *result = result_of(&s->composition, s->graph), *ours = result_of(&edit.composition, result), *undone = NULL;
    fb_undo_step steps[3] = {0};
    for (size_t i = 0; i < 3; i++) steps[i] = (fb_undo_step){.call = &s->composition.calls[i], .is_undone = i == 0};
    fb_undo_plan plan = {.source = s->graph, .steps = steps, .step_count = 3, .result = result, .ours = ours};
    fb_conflicts conflicts = {0};
    bool is_exact;
    fb_bench_check(fb_undo(&plan, &undone, &is_exact, &conflicts, NULL) == FB_OK && !is_exact, "the undo");
    fb_graph_free(undone);
    fb_graph_free(ours);
    fb_graph_free(result);
    fb_bench_subject_free(&edit);
}

enum { SMALL = 10000, LARGE = 100000 }; /* nodes */

static const struct work {
    const char *name, *file; /* NULL: blocks (three passes) or layers (`inference`) of `nodes` nodes */
    long nodes;
    const char *passes;
    void (*work)(void *context);
} works[] = {
    {"libraries", bert, 0, FB_BENCH_PASSES, libraries},
    {"read", bert, 0, FB_BENCH_PASSES, fb_bench_read},
    {"write", bert, 0, FB_BENCH_PASSES, fb_bench_write},
    {"passes", bert, 0, FB_BENCH_PASSES, fb_bench_passes_verify_code},
    {"inference", NULL, 2000, inference, fb_bench_passes},
    {"undo", bert, 0, FB_BENCH_PASSES, undo},
    {"validate", tiny, 0, FB_BENCH_PASSES, fb_bench_validate_rewrites},
    {"read-small", NULL, SMALL, FB_BENCH_PASSES, fb_bench_read},
    {"read-large", NULL, LARGE, FB_BENCH_PASSES, fb_bench_read},
    {"passes-small", NULL, SMALL, FB_BENCH_PASSES, fb_bench_passes},
    {"passes-large", NULL, LARGE, FB_BENCH_PASSES, fb_bench_passes},
    {"inference-small", NULL, SMALL, inference, fb_bench_passes},
    {"inference-large", NULL, LARGE, inference, fb_bench_passes},
};

static fb_subject subject_of(const struct work *work) {
    fb_buffer document = {0};
    if (work->file) fb_bench_read_file(work->file, &document);
    else if (work->passes == inference) fb_bench_layers(&document, (size_t)work->nodes);
    else fb_bench_blocks(&document, (size_t)work->nodes);
    return fb_bench_subject(document, work->passes);
}

static int do_times(const struct work *work, long times) {
    fb_subject s = subject_of(work);
    while (times-- > 0) work->work(&s);
    fb_bench_subject_free(&s);
    return 0;
}

static int print_bytes(void) {
    fb_subject s = subject_of(&(struct work){.nodes = LARGE, .passes = FB_BENCH_PASSES});
    fb_graph *result = result_of(&s.composition, s.graph);
    size_t nodes = fb_node_count(s.graph);
    printf("%zu %zu\n", fb_graph_bytes(s.graph) / nodes, fb_graph_bytes(result) / nodes);
    fb_graph_free(result);
    fb_bench_subject_free(&s);
    return 0;
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int time_passes(const char *file) {
    fb_buffer document = {0};
    fb_bench_read_file(file, &document);
    fb_subject s = fb_bench_subject(document, FB_BENCH_PASSES);
    double shortest = 1e12;
    for (int i = 0; i < 3; i++) {
        double begun = now_ms();
        fb_bench_passes(&s);
        double taken = now_ms() - begun;
        if (taken < shortest) shortest = taken;
    }
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%.3f %ld\n", shortest, used.ru_maxrss);
    fb_bench_subject_free(&s);
    return 0;
}

int main(int count, char **arguments) {
    bool lists_large = count == 2 && strcmp(arguments[1], "--large") == 0;
    if (count == 2 && strcmp(arguments[1], "--bytes") == 0) return print_bytes();
    if (count == 2 && !lists_large) return time_passes(arguments[1]);
    for (size_t i = 0; i < sizeof works / sizeof *works; i++) {
        if (count < 3 && (works[i].nodes >= SMALL) == lists_large) puts(works[i].name);
        else if (count == 3 && strcmp(works[i].name, arguments[1]) == 0) return do_times(&works[i], atol(arguments[2]));
    }
    return count < 3 ? 0 : 2;
}
