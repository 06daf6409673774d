#include "tests/unit/pass_trial.h"

#include "tests/unit/checks.h"
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind.h"
#include "core/compose/undo.h"
#include "core/document/document.h"
#include "tests/unit/documents.h"

const char *const trial_fixtures[TRIAL_FIXTURES] = {"toy",      "bert-tiny", "gpt2-tiny",  "resnet-tiny",  "mobilenet",
                                                    "aten-toy", "aten-bert", "aten-llama", "aten-resnet18"};

void trial_check(const trial *t, fb_status status, const fb_error *error) {
    ck_assert_msg(status == FB_OK, "%s on %s: %s: %s (%s)", t->pass, t->fixture, error->code, error->message, error->node);
}

/* A model's own numbers: among random ones a constant 1 is none, and masks hide everything. */
static void bind_weights(trial *t) {
    char file[200];
    snprintf(file, sizeof file, "tests/fixtures/%s/weights.safetensors", t->fixture);
    const char *weights = memory_blobs_put_file(&t->blobs, file);
    fb_binding binding = {0};
    fb_error error = {0};
    trial_check(t, fb_bind(t->before, &weights, 1, &t->blobs.source, NULL, &binding, &error), &error);
    fb_binding_free(&binding);
}

void trial_begin(trial *t, const char *pass, const char *fixture, bool with_weights) {
    *t = (trial){.pass = pass, .fixture = fixture};
    char list[400];
    snprintf(list, sizeof list, "[%s]", pass);
    size_t size;
    char *text = read_fixture(fixture, "graph.json", &size);
    t->before = graph_of(text, size);
    free(text);
    memory_blobs_init(&t->blobs);
    if (with_weights) bind_weights(t);
    json_t *json = json_loads(list, 0, NULL);
    fb_error error = {0};
    trial_check(t, fb_composition_read(json, "", NULL, &t->composition, &error), &error);
    json_decref(json);
    trial_check(t, fb_composition_run(&t->composition, t->before, FB_LINT_EACH, NULL, &t->run, &error), &error);
    for (size_t i = 0; i < t->run.count; i++) t->applied += t->run.passes[i].applied;
}

void trial_end(trial *t) {
    fb_run_free(&t->run);
    fb_composition_free(&t->composition);
    fb_graph_free(t->before);
    memory_blobs_free(&t->blobs);
}

void trial_check_undone(const trial *t) {
    char before[FB_ID_LENGTH + 1], after[FB_ID_LENGTH + 1];
    fb_undo_step *steps = calloc(t->composition.count, sizeof *steps);
    for (size_t i = 0; i < t->composition.count; i++) {
        steps[i] = (fb_undo_step){.call = &t->composition.calls[i], .is_undone = true};
    }
    fb_undo_plan plan = {.source = t->before,
                         .steps = steps,
                         .step_count = t->composition.count,
                         .result = t->run.result,
                         .ours = t->run.result};
    fb_graph *undone;
    bool is_exact;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    trial_check(t, fb_undo(&plan, &undone, &is_exact, &conflicts, &error), &error);
    ck_assert(fb_document_id(t->before, before) && fb_document_id(undone, after));
    ck_assert_msg(is_exact && strcmp(before, after) == 0, "%s on %s: undone, it is another graph", t->pass, t->fixture);
    fb_graph_free(undone);
    free(steps);
}

bool trial_has_word(const char *list, const char *word) {
    size_t length = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += length) {
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || !at[length])) return true;
    }
    return false;
}
