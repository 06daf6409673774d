/* Random graphs in the functional dialect: passes on calls of functions that read their weights by get_attr. The graph computes
 * the same before and after; a second run gives the same graph; every pass must have matched at the end. */
#include "tests/unit/checks.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/functional.h"
#include "tests/unit/generator.h"
#include "tests/unit/run_tests.h"

static const char *const passes[] = {"MergeLinears",  "FuseBiasInLinear",        "ChangeTrueDivToMulByInverse",
                                     "FuseBatchNorm", "FuseBatchNorm2dInConv2d", "FuseBatchNorm1dInLinear"};
enum { PASSES = sizeof passes / sizeof *passes };

static fb_graph *functional_graph(uint64_t seed, size_t *converted) {
    fb_buffer text = {0};
    generate_document(seed, &text);
    json_t *document = json_loadb(text.data, text.size, JSON_DECODE_ANY, NULL);
    ck_assert_msg(document != NULL, "seed %" PRIu64 ": the document does not read", seed);
    *converted = make_functional(document);
    char *dumped = json_dumps(document, JSON_COMPACT);
    fb_graph *graph = graph_of(dumped, strlen(dumped));
    free(dumped);
    json_decref(document);
    fb_buffer_free(&text);
    return graph;
}

static fb_run run_of(const fb_graph *graph, const char *pass, uint64_t seed) {
    char list[80];
    snprintf(list, sizeof list, "[\"%s\"]", pass);
    json_t *json = json_loads(list, 0, NULL);
    fb_composition composition;
    fb_error error = {0};
    fb_run run;
    ck_assert_int_eq(fb_composition_read(json, "", NULL, &composition, &error), FB_OK);
    fb_status status = fb_composition_run(&composition, graph, FB_LINT_EACH, NULL, &run, &error);
    ck_assert_msg(status == FB_OK, "seed %" PRIu64 ", %s: %s: %s", seed, pass, error.code, error.message);
    fb_composition_free(&composition);
    json_decref(json);
    return run;
}

static void ck_computes_the_same(const fb_graph *before, const fb_graph *after, const char *pass, uint64_t seed) {
    evaluation old, new;
    fb_buffer why = {0};
    evaluate(before, seed, &old);
    evaluate(after, seed, &new);
    ck_assert_msg(evaluations_agree(&old, &new, 1e-7, &why), "seed %" PRIu64 ", %s: computes something else: %s", seed, pass,
                  fb_buffer_text(&why));
    evaluation_free(&old);
    evaluation_free(&new);
    fb_buffer_free(&why);
}

static void ck_same_again(const fb_graph *graph, const fb_run *run, const char *pass, uint64_t seed) {
    char first[FB_ID_LENGTH + 1], second[FB_ID_LENGTH + 1];
    fb_run again = run_of(graph, pass, seed);
    ck_assert(fb_document_id(run->result, first) && fb_document_id(again.result, second));
    ck_assert_msg(strcmp(first, second) == 0, "seed %" PRIu64 ", %s: a second run gives another graph", seed, pass);
    fb_run_free(&again);
}

START_TEST(test_random_functional) {
    const char *given = getenv("FOLDBACK_RANDOM_CASES"), *from = getenv("FOLDBACK_RANDOM_SEED");
    uint64_t cases = given ? strtoull(given, NULL, 10) : 3000, first = from ? strtoull(from, NULL, 10) : 1;
    size_t applied[PASSES] = {0}, functions = 0;
    for (uint64_t seed = first; seed < first + cases; seed++) {
        size_t converted;
        fb_graph *graph = functional_graph(seed, &converted);
        functions += converted;
        for (size_t i = 0; converted && i < PASSES; i++) {
            fb_run run = run_of(graph, passes[i], seed);
            applied[i] += run.passes[0].applied;
            ck_computes_the_same(graph, run.result, passes[i], seed);
            ck_same_again(graph, &run, passes[i], seed);
            fb_run_free(&run);
        }
        fb_graph_free(graph);
    }
    printf("%" PRIu64 " graphs, %zu functions", cases, functions);
    for (size_t i = 0; i < PASSES; i++) {
        printf(", %s %zu", passes[i], applied[i]);
        ck_assert_msg(applied[i] > 0 || cases < 1000, "%s never matched", passes[i]);
    }
    printf("\n");
}
END_TEST

int main(void) {
    TCase *tcase = tcase_create("random functional");
    tcase_set_timeout(tcase, 600);
    tcase_add_test(tcase, test_random_functional);
    return run_tests("random functional", tcase);
}
