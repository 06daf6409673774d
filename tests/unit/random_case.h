/* What tests on random graphs share: a case with its seed, reading, running, comparing; and the loop over the cases.
 *
 * FOLDBACK_RANDOM_CASES (default 10000) and FOLDBACK_RANDOM_SEED (default 1) choose the cases; a failure names the seed of its
 * case, and FOLDBACK_RANDOM_CASES=1 FOLDBACK_RANDOM_SEED=<it> runs that one alone. */
#ifndef FB_TESTS_RANDOM_CASE_H
#define FB_TESTS_RANDOM_CASE_H

#include <check.h>
#include <inttypes.h>
#include <jansson.h>

#include "core/compose/run.h"
#include "core/graph/document.h"
#include "tests/unit/generator.h"

typedef struct random_case {
    uint64_t seed;
    fb_buffer document, passes;
    fb_graph *source;
    char source_id[FB_ID_LENGTH + 1];
    fb_composition composition;
} random_case;

#define CK(c, condition, ...)                                                                                                  \
    do {                                                                                                                       \
        if (!(condition)) {                                                                                                    \
            fb_buffer said = {0};                                                                                              \
            fb_buffer_printf(&said, __VA_ARGS__);                                                                              \
            ck_abort_msg("seed %" PRIu64 ", passes %.*s: %s", (c)->seed, (int)(c)->passes.size, (c)->passes.data,              \
                         fb_buffer_text(&said));                                                                               \
        }                                                                                                                      \
    } while (0)

/* Reads document and passes, which are there. */
void read_case(random_case *c);
void free_case(random_case *c);

/* These fail the test when they cannot do their work; `what` says in the message which graph it was. */
fb_graph *read_graph(const random_case *c, const fb_buffer *document, const char *what);
fb_composition read_passes(const random_case *c, const fb_buffer *list);
fb_run run_passes(const random_case *c, const fb_composition *composition, const fb_graph *source);
/* The source run through the composition without the selected passes. */
fb_graph *run_without(const random_case *c, const bool *selected);
void id_of(const random_case *c, const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
/* Written and read again it is the same graph. */
void check_round_trip(const random_case *c, const fb_graph *graph, const char *what);

/* The document as a tree, to be changed, and the graph that it makes then; NULL when it is not valid. */
json_t *json_of(const random_case *c, const fb_graph *graph);
fb_graph *graph_of_json(const json_t *document);

/* A setting from the environment. */
uint64_t random_setting(const char *name, uint64_t fallback);
/* Calls run_case with every seed; gives how many there were. */
uint64_t run_random_cases(void (*run_case)(uint64_t seed));
/* main() of a program with this one test. With FOLDBACK_RANDOM_PRINT set it prints the document of the first case instead. */
int random_main(const char *name, const TTest *test);

#endif
