/* What the benchmarks measure of the engine: a document with the passes for it, and the work that is done with both. */
#ifndef FB_BENCH_ENGINE_H
#define FB_BENCH_ENGINE_H

#include "core/compose/composition.h"
#include "core/graph/graph.h"
#include "tests/bench/bench.h"

/* The three passes of most tables. */
#define FB_BENCH_PASSES "[\"ChangeTrueDivToMulByInverse\",\"MergeLinears\",\"FuseBiasInLinear\"]"

typedef struct fb_subject {
    fb_buffer document;
    fb_graph *graph;
    fb_composition composition;
} fb_subject;

/* Takes the document; without one it has no graph. `passes` is a JSON array, as in a request. */
fb_subject fb_bench_subject(fb_buffer document, const char *passes);
void fb_bench_subject_free(fb_subject *s);
/* Ends the program and names what failed, unless `ok`. */
void fb_bench_check(bool ok, const char *what);

/* Each does its work once on the fb_subject that `context` is, and frees what it made. */
void fb_bench_parse_and_dump(void *context); /* the document, by jansson */
void fb_bench_read(void *context);           /* reads and verifies the document */
void fb_bench_write(void *context);          /* canonical bytes and id of the graph */
void fb_bench_copy(void *context);
void fb_bench_passes(void *context); /* runs the composition, unverified */
void fb_bench_passes_verify_code(void *context);
void fb_bench_validate_rewrites(void *context); /* on random weights */
void fb_bench_validate_graph(void *context);

#endif
