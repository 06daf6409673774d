/* Passes that compute something else on purpose, on every fixture: what they make can be computed, gives results of the same
 * dtypes and shapes, about as far from the source as the pass says, and undoing gives the source back. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/run.h"
#include "core/compose/undo.h"
#include "core/eval/validate.h"
#include "core/graph/document.h"
#include "core/weights/bind.h"
#include "tests/unit/documents.h"
#include "tests/unit/memory_blobs.h"
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
};

static const char *const fixtures[] = {"toy",      "bert-tiny", "gpt2-tiny",  "resnet-tiny",  "mobilenet",
                                       "aten-toy", "aten-bert", "aten-llama", "aten-resnet18"};

typedef struct trial {
    const char *pass, *fixture;
    fb_composition composition;
    memory_blobs blobs;
    fb_graph *before;
    fb_run run;
} trial;

static void ck_status(const trial *t, fb_status status, const fb_error *error) {
    ck_assert_msg(status == FB_OK, "%s on %s: %s: %s (%s)", t->pass, t->fixture, error->code, error->message, error->node);
}

static void path_of(char file[200], const char *fixture, const char *name) {
    snprintf(file, 200, "tests/fixtures/%s/%s", fixture, name);
}

/* A model's own numbers: among random ones a constant 1 is none, and masks hide everything. */
static void bind_weights(trial *t) {
    char file[200];
    path_of(file, t->fixture, "weights.safetensors");
    memory_blobs_init(&t->blobs);
    const char *weights = memory_blobs_put_file(&t->blobs, file);
    fb_binding binding = {0};
    fb_error error = {0};
    ck_status(t, fb_bind(t->before, &weights, 1, &t->blobs.source, &binding, &error), &error);
    fb_binding_free(&binding);
}

static void begin(trial *t, const char *pass, const char *fixture) {
    *t = (trial){.pass = pass, .fixture = fixture};
    char list[400];
    snprintf(list, sizeof list, "[%s]", pass);
    size_t size;
    char *text = read_fixture(fixture, "graph.json", &size);
    t->before = graph_of(text, size);
    free(text);
    bind_weights(t);
    json_t *json = json_loads(list, 0, NULL);
    fb_error error = {0};
    ck_status(t, fb_composition_read(json, "", &t->composition, &error), &error);
    json_decref(json);
    ck_status(t, fb_composition_run(&t->composition, t->before, FB_LINT_EACH, &t->run, &error), &error);
}

static void end(trial *t) {
    fb_run_free(&t->run);
    fb_composition_free(&t->composition);
    fb_graph_free(t->before);
    memory_blobs_free(&t->blobs);
}

/* The inputs that the fixture has. */
static void read_inputs(const char *fixture, fb_array_memory *memory, fb_comparison_inputs *out) {
    char file[200];
    path_of(file, fixture, "io.safetensors");
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
    ck_status(t, fb_compare_graphs(t->before, t->run.result, &inputs, &options, &tolerance, &found, &error), &error);
    ck_assert_uint_gt(found.count, 0);
    for (size_t i = 0; i < found.count; i++) {
        const fb_output_comparison *output = &found.outputs[i];
        ck_assert_msg(output->passes, "%s on %s: %s is off by %g, or of another dtype", t->pass, t->fixture, output->name,
                      output->between.relative);
    }
    fb_comparison_free(&found);
    free_inputs(&inputs);
}

/* Without the pass the run is the source, whatever the pass did. */
static void ck_undone(const trial *t) {
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_undo_step step = {.call = &t->composition.calls[0], .is_undone = true};
    fb_undo_plan plan = {.source = t->before, .steps = &step, .step_count = 1, .result = t->run.result, .ours = t->run.result};
    fb_graph *undone;
    bool is_exact;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    ck_status(t, fb_undo(&plan, &undone, &is_exact, &conflicts, &error), &error);
    ck_assert(fb_document_id(t->before, before) && fb_document_id(undone, after));
    ck_assert_msg(is_exact && strcmp(before, after) == 0, "%s on %s: undone, it is another graph", t->pass, t->fixture);
    fb_graph_free(undone);
}

static bool has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    }
    return false;
}

START_TEST(every_pass) {
    const char *fixture = fixtures[_i];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        trial t;
        begin(&t, rows[i].pass, fixture);
        bool applied = t.run.passes[0].applied > 0;
        ck_assert_msg(applied || !has_word(rows[i].applies, fixture), "%s finds nothing in %s", rows[i].pass, fixture);
        ck_computes(&t, applied ? rows[i].relative : 0);
        ck_undone(&t);
        end(&t);
    }
}
END_TEST

int main(void) {
    TCase *fixtures_case = tcase_create("fixtures");
    tcase_set_timeout(fixtures_case, 300);
    tcase_add_loop_test(fixtures_case, every_pass, 0, (int)(sizeof fixtures / sizeof *fixtures));
    return run_tests("passes_change", fixtures_case);
}
