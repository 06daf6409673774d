/* Every fixture with weights and example inputs computes what PyTorch recorded, before and after passes. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/evaluator/evaluator.h"
#include "tests/unit/documents.h"
#include "tests/unit/memory_blobs.h"
#include "tests/unit/run_tests.h"

static const char *const fixtures[] = {"toy",      "bert-tiny", "gpt2-tiny",     "resnet-tiny", "mobilenet",
                                       "aten-toy", "aten-bert", "aten-resnet18", "aten-llama"};

typedef struct example {
    char *path;
    fb_graph *graph;
    memory_blobs blobs;
    unsigned char *bytes;
    fb_safetensors io;
} example;

static const char *path_of(const char *fixture, const char *file) {
    static char path[200];
    snprintf(path, sizeof path, "tests/fixtures/%s/%s", fixture, file);
    return path;
}

static fb_status give_input(void *context, fb_node node, fb_object *out, fb_error *error);

typedef struct inputs {
    const example *example;
    const fb_graph *graph;
    fb_array_memory *memory;
} inputs;

static fb_status give_input(void *context, fb_node node, fb_object *out, fb_error *error) {
    const inputs *in = context;
    char name[200];
    snprintf(name, sizeof name, "input.%s", fb_node_target(in->graph, node));
    for (size_t i = 0; i < in->example->io.count; i++) {
        const fb_safetensors_entry *entry = &in->example->io.entries[i];
        if (strcmp(entry->name, name) != 0) continue;
        out->kind = FB_OBJECT_ARRAY;
        return fb_array_from_bytes(in->memory, entry->dtype, entry->rank, entry->shape, in->example->bytes + entry->offset,
                                   entry->size, &out->array, error);
    }
    return FB_NOT_FOUND;
}

static void open_example(const char *fixture, example *e) {
    size_t size;
    char *text = read_file(path_of(fixture, "graph.json"), &size);
    fb_errors errors = {0};
    ck_assert_msg(fb_document_read(text, size, NULL, "", &e->graph, &errors) == FB_OK, "%s", fixture);
    free(text);
    memory_blobs_init(&e->blobs);
    const char *weights = memory_blobs_put_file(&e->blobs, path_of(fixture, "weights.safetensors"));
    fb_binding binding = {0};
    fb_error error = {0};
    ck_assert_msg(fb_bind(e->graph, &weights, 1, &e->blobs.source, NULL, &binding, &error) == FB_OK, "%s: %s", fixture,
                  error.message);
    fb_binding_free(&binding);
    e->bytes = (unsigned char *)read_file(path_of(fixture, "io.safetensors"), &size);
    ck_assert_int_eq(fb_safetensors_read(e->bytes, size, &e->io, &error), FB_OK);
}

static void close_example(example *e) {
    fb_safetensors_free(&e->io);
    free(e->bytes);
    fb_graph_free(e->graph);
    memory_blobs_free(&e->blobs);
}

static void check_graph(const char *fixture, const char *what, const example *e, const fb_graph *graph,
                        fb_precision precision) {
    fb_array_memory memory;
    inputs in = {e, graph, &memory};
    fb_eval_options options = {.precision = precision, .blobs = &e->blobs.source};
    fb_eval_hooks hooks = {.context = &in, .given = give_input};
    fb_error error = {0};
    fb_object output;
    fb_status status = fb_evaluate_graph(graph, &options, &hooks, &memory, &output, &error);
    ck_assert_msg(status == FB_OK, "%s %s: %s at %s: %s", fixture, what, error.code, error.node, error.message);
    fb_array **arrays;
    size_t count, compared = 0;
    ck_assert_int_eq(fb_flatten_output(&output, &arrays, &count, &error), FB_OK);
    for (size_t i = 0; i < e->io.count; i++) {
        const fb_safetensors_entry *entry = &e->io.entries[i];
        if (strncmp(entry->name, "output.", 7) != 0) continue;
        size_t k = strtoul(entry->name + 7, NULL, 10);
        fb_array *expected;
        fb_array_memory own = {0};
        ck_assert_uint_lt(k, count);
        ck_assert_int_eq(fb_array_from_bytes(&own, entry->dtype, entry->rank, entry->shape, e->bytes + entry->offset,
                                             entry->size, &expected, &error),
                         FB_OK);
        ck_assert_int_eq(arrays[k]->rank, entry->rank);
        ck_assert_int_eq(fb_array_count(arrays[k]), fb_array_count(expected));
        double largest = 0, worst = 0;
        for (int64_t n = 0; n < fb_array_count(expected); n++) largest = fmax(largest, fabs(fb_array_number(expected, n)));
        for (int64_t n = 0; n < fb_array_count(expected); n++) {
            double difference = fabs(fb_array_number(arrays[k], n) - fb_array_number(expected, n));
            worst = fmax(worst, isnan(difference) ? INFINITY : difference);
        }
        double allowed = largest > 10 ? fmax(1e-4, 1e-5 * largest) : 1e-5 * fmax(largest, 1);
        ck_assert_msg(worst <= allowed, "%s %s: %s differs by %g, largest %g", fixture, what, entry->name, worst, largest);
        fb_array_drop(expected);
        compared++;
    }
    ck_assert_uint_gt(compared, 0);
    for (size_t i = 0; i < count; i++) fb_array_drop(arrays[i]);
    free(arrays);
    fb_object_drop(&output);
    ck_assert_uint_eq(memory.used, 0);
}

START_TEST(fixtures_compute_what_pytorch_recorded) {
    example e;
    open_example(fixtures[_i], &e);
    check_graph(fixtures[_i], "as it is", &e, e.graph, FB_PRECISION_RECORDED);
    check_graph(fixtures[_i], "in float64", &e, e.graph, FB_PRECISION_DOUBLE);
    close_example(&e);
}
END_TEST

#define ALL_PASSES                                                                                                             \
    "[\"ChangeTrueDivToMulByInverse\",\"MergeLinears\",\"FuseBatchNorm2dInConv2d\",\"FuseBatchNorm1dInLinear\","               \
    "\"FuseBiasInLinear\"]"

/* After each pass that applies, and after all of them. */
START_TEST(passes_leave_what_fixtures_compute) {
    static const char *const lists[] = {
        "[\"MergeLinears\"]",
        "[\"FuseBiasInLinear\"]",
        "[\"ChangeTrueDivToMulByInverse\"]",
        "[\"FuseBatchNorm2dInConv2d\"]",
        "[\"FuseBatchNorm1dInLinear\"]",
        ALL_PASSES,
    };
    example e;
    open_example(fixtures[_i], &e);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        json_t *list = json_loads(lists[i], 0, NULL);
        fb_composition composition;
        fb_run run;
        ck_assert_int_eq(fb_composition_read(list, "", NULL, &composition, NULL), FB_OK);
        ck_assert_int_eq(fb_composition_run(&composition, e.graph, FB_LINT_EACH, NULL, &run, NULL), FB_OK);
        check_graph(fixtures[_i], lists[i], &e, run.result, FB_PRECISION_RECORDED);
        fb_run_free(&run);
        fb_composition_free(&composition);
        json_decref(list);
    }
    close_example(&e);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("fixtures");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, fixtures_compute_what_pytorch_recorded, 0, (int)(sizeof fixtures / sizeof *fixtures));
    tcase_add_loop_test(tests, passes_leave_what_fixtures_compute, 0, (int)(sizeof fixtures / sizeof *fixtures));
    return run_tests("eval-fixtures", tests);
}
