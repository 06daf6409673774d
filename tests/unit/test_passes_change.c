/* Passes that compute something else on purpose, on every fixture: what they make can be computed, gives results of the same
 * dtypes and shapes, about as far from the source as the pass says, and undoing gives the source back. */
#include "tests/unit/checks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/validation/validation.h"
#include "core/weights/safetensors.h"
#include "tests/unit/documents.h"
#include "tests/unit/pass_trial.h"
#include "tests/unit/run_tests.h"

static const struct {
    const char *pass;
    double relative;     /* of the results' difference; infinite: any */
    const char *applies; /* the fixtures in which it must find something */
} rows[] = {
    {"{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"relu\",\"to\":\"gelu\"}}", INFINITY,
     "toy resnet-tiny aten-toy aten-resnet18"},
    {"{\"name\":\"ReplaceActivation\",\"params\":{\"from\":\"gelu\",\"to\":\"hardswish\"}}", INFINITY, "bert-tiny aten-bert"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"float16\"}}", 0.004,
     "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"bfloat16\"}}", 0.02,
     "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"{\"name\":\"ConvertPrecision\",\"params\":{\"to\":\"bfloat16\",\"keep\":[\"softmax\",\"layer_norm\",\"relu\"]}}", 0.02,
     "toy"},
    {"\"QuantizeWeights\"", 0.05, "toy bert-tiny gpt2-tiny resnet-tiny mobilenet aten-toy aten-bert aten-llama aten-resnet18"},
    {"{\"name\":\"QuantizeWeights\",\"params\":{\"bits\":4,\"group_size\":32}}", 0.2,
     "bert-tiny gpt2-tiny resnet-tiny mobilenet aten-bert aten-llama aten-resnet18"},
};

/* The inputs that the fixture has. */
static void read_inputs(const char *fixture, fb_array_memory *memory, fb_comparison_inputs *out) {
    char file[200];
    snprintf(file, sizeof file, "tests/fixtures/%s/io.safetensors", fixture);
    size_t size;
    fb_safetensors io;
    fb_error error = {0};
    unsigned char *bytes = (unsigned char *)read_file(file, &size);
    ck_assert_int_eq(fb_safetensors_read(bytes, size, &io, &error), FB_OK);
    fb_named_array *items = calloc(io.count, sizeof *items);
    for (size_t i = 0; i < io.count; i++) {
        const fb_safetensors_entry *entry = &io.entries[i];
        if (strncmp(entry->name, "input.", strlen("input.")) != 0) continue;
        fb_named_array *item = &items[out->count++];
        item->name = strdup(entry->name + strlen("input."));
        ck_assert_int_eq(fb_array_from_bytes(memory, entry->dtype, entry->rank, entry->shape, bytes + entry->offset,
                                             entry->size, &item->array, &error),
                         FB_OK);
    }
    ck_assert_uint_gt(out->count, 0);
    out->items = items;
    fb_safetensors_free(&io);
    free(bytes);
}

static void free_inputs(fb_comparison_inputs *inputs) {
    for (size_t i = 0; i < inputs->count; i++) {
        fb_array_drop(inputs->items[i].array);
        free((char *)(uintptr_t)inputs->items[i].name);
    }
    free((void *)(uintptr_t)inputs->items);
}

static void ck_computes(const trial *t, double relative) {
    fb_eval_options options = {.seed = 7, .blobs = &t->blobs.source};
    fb_tolerance tolerance = {.absolute = isinf(relative) ? INFINITY : 0, .relative = isinf(relative) ? 0 : relative};
    fb_array_memory memory = {0};
    fb_comparison_inputs inputs = {0};
    read_inputs(t->fixture, &memory, &inputs);
    fb_comparison found;
    fb_error error = {0};
    trial_check(t, fb_compare_graphs(t->before, t->run.result, &inputs, &options, &tolerance, &found, &error), &error);
    ck_assert_uint_gt(found.count, 0);
    for (size_t i = 0; i < found.count; i++) {
        const fb_output_comparison *output = &found.outputs[i];
        ck_assert_msg(output->passes, "%s on %s: %s is off by %g, or of another dtype", t->pass, t->fixture, output->name,
                      output->between.relative);
    }
    fb_comparison_free(&found);
    free_inputs(&inputs);
}

START_TEST(every_pass) {
    const char *fixture = trial_fixtures[_i];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t;
        trial_begin(&t, rows[i].pass, fixture, true);
        ck_assert_msg(t.applied > 0 || !trial_has_word(rows[i].applies, fixture), "%s finds nothing in %s", rows[i].pass,
                      fixture);
        ck_computes(&t, t.applied > 0 ? rows[i].relative : 0);
        trial_check_undone(&t);
        trial_end(&t);
    }
}
END_TEST

int main(void) {
    TCase *fixtures_case = tcase_create("fixtures");
    tcase_set_timeout(fixtures_case, 600);
    tcase_add_loop_test(fixtures_case, every_pass, 0, TRIAL_FIXTURES);
    return run_tests("passes_change", fixtures_case);
}
