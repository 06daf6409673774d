/* Golden cases: every folder tests/golden/<Pass>/<case> has before.json, passes.json, refused.json (what each pass applied and
 * refused) and, where the graph changes, after.json. UPDATE=1 writes the last; then the difference is reviewed.
 * tests/golden/make_cases.py writes the others, and of some cases signatures.json and numbers.json (golden.h). */
#include "tests/unit/checks.h"
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/evaluator/evaluator.h"
#include "core/graph/code.h"
#include "core/ops/calls.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/golden.h"
#include "tests/unit/rules.h"
#include "tests/unit/run_tests.h"

static void write_file(const golden *g, const char *file, const fb_buffer *text) {
    char *path = golden_path(g, file);
    FILE *out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    fwrite(text->data, 1, text->size, out);
    fclose(out);
    free(path);
}

static void remove_file(const golden *g, const char *file) {
    char *path = golden_path(g, file);
    unlink(path);
    free(path);
}

static void ck_valid(const golden *g, const fb_graph *graph, const char *what) {
    fb_errors errors = {0};
    fb_verify(graph, &(fb_work){0}, &errors);
    ck_assert_msg(errors.total == 0, "%s: %s: %s at %s: %s", g->name, what, errors.items ? errors.items[0].code : "",
                  errors.items ? errors.items[0].pointer : "", errors.items ? errors.items[0].message : "");
    fb_errors_free(&errors);
}

/* ---- the report ---------------------------------------------------------------------------------------------------------- */

/* One refusal a line, in the style of make_cases.py. */
static void write_names(const char *const *names, size_t count, fb_buffer *out) {
    for (size_t i = 0; i < count; i++) fb_buffer_printf(out, "%s\"%s\"", i ? ", " : "", names[i]);
}

static void write_report(const fb_run *run, fb_buffer *out) {
    fb_buffer_string(out, "[\n");
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        fb_buffer_printf(out, "  {\"pass\": \"%s\", \"applied\": %zu, \"refused\": [", report->pass->name, report->applied);
        for (const fb_refusal *refusal = report->refused; refusal; refusal = refusal->next) {
            fb_buffer_printf(out, "\n    {\"reason\": \"%s\", \"nodes\": [", refusal->reason);
            write_names(refusal->nodes, refusal->count, out);
            fb_buffer_string(out, refusal->next ? "]}," : "]}\n  ");
        }
        fb_buffer_string(out, i + 1 < run->count ? "]},\n" : "]}\n");
    }
    fb_buffer_string(out, "]\n");
}

/* The nodes that a report names carry its signature, and no others do (that did not before). */
static void ck_marks(const golden *g, const fb_run *run) {
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        for (size_t k = 0; k < report->node_count; k++) {
            fb_node n = fb_node_find(run->result, FB_MAIN_PROGRAM, report->nodes[k]);
            if (!n.id) continue; /* a later pass took it away */
            ck_assert_msg(fb_node_is_marked(run->result, n, report->signature), "%s: %s is not marked", g->name,
                          report->nodes[k]);
        }
        bool marks = report->applied > 0 && !report->pass->only_removes;
        ck_assert_msg(marks == (report->node_count > 0), "%s: %zu applied, %zu marked", g->name, report->applied,
                      report->node_count);
    }
}

/* ---- one case ------------------------------------------------------------------------------------------------------------ */

/* PyTorch has every call that it had before. */
static void ck_calls_exist(const golden *g, const fb_graph *after) {
    for (fb_node n = fb_first_node(after, FB_MAIN_PROGRAM); n.id; n = fb_next_node(after, n)) {
        fb_node before = fb_node_find(g->before, FB_MAIN_PROGRAM, fb_node_name(after, n));
        bool was_there = !before.id || fb_call_exists(g->before, before);
        ck_assert_msg(!was_there || fb_call_exists(after, n), "%s: PyTorch has no call such as %s", g->name,
                      fb_node_name(after, n));
    }
}

static void ck_reads_back(const golden *g, const fb_buffer *after, const char *id) {
    fb_errors errors = {0};
    fb_graph *again = NULL;
    fb_status status = fb_document_read(after->data, after->size, NULL, "", &again, &errors);
    ck_assert_msg(status == FB_OK, "%s: the result does not read: %s %s", g->name, errors.items ? errors.items[0].code : "",
                  errors.items ? errors.items[0].message : "");
    ck_id(g, again, id, "the result reads as another graph");
    fb_graph_free(again);
    fb_errors_free(&errors);
}

/* The reference evaluator speaks torch and torch.nn, not ATen; of convolutions and norms it knows those of one and two
 * dimensions, and of functions conv2d. It knows no pads, and neither roll, repeat_interleave nor normalize. */
static bool is_foreign(const fb_graph *graph) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        const char *target = fb_node_target(graph, n);
        if (strncmp(target, "torch.ops.", strlen("torch.ops.")) == 0) return true;
        if (strcmp(target, "torch.conv1d") == 0 || strcmp(target, "torch.conv3d") == 0) return true;
        if (strcmp(target, "torch.nn.functional.pad") == 0) return true;
        if (strcmp(target, "torch.nn.functional.normalize") == 0) return true;
        if (strcmp(target, "torch.roll") == 0 || strcmp(target, "repeat_interleave") == 0) return true;
    }
    for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next) {
        const char *type = fb_text(graph, fb_module_at(graph, m)->type);
        if (strstr(type, "Transpose") || strstr(type, "3d") || strstr(type, "Pad")) return true;
    }
    return false;
}

static void ck_computes_the_same(const golden *g, const fb_graph *after) {
    evaluation old, new;
    fb_buffer why = {0};
    for (uint64_t seed = 1; seed <= 2; seed++) {
        evaluate(g->before, seed, &old);
        evaluate(after, seed, &new);
        ck_assert_msg(evaluations_agree(&old, &new, 1e-9, &why), "%s: computes something else: %s", g->name,
                      fb_buffer_text(&why));
        evaluation_free(&old);
        evaluation_free(&new);
    }
    fb_buffer_free(&why);
}

/* The service's own comparison, in every dialect. */
static void ck_validates(const golden *g, const fb_run *run) {
    size_t size;
    char *numbers = golden_file(g, "numbers.json", &size);
    bool only_moves = true, rounds = numbers != NULL;
    free(numbers);
    for (size_t i = 0; i < run->count; i++)
        only_moves &= !run->passes[i].applied || fb_report_exactness(&run->passes[i]) == FB_MOVES;
    fb_eval_options options = {.seed = 7};
    fb_validation found;
    fb_error error = {0};
    fb_status status = fb_validate_rewrite(g->before, run->result, &options, only_moves, NULL, &found, &error);
    ck_assert_msg(status == FB_OK, "%s: %s: %s", g->name, error.code, error.message);
    for (size_t i = 0; i < found.count; i++) {
        const fb_region_report *region = &found.regions[i];
        const char *node = region->node_count ? region->nodes[0] : "";
        ck_assert_msg(region->unsupported || region->passes, "%s: %s computes something else", g->name, node);
        ck_assert_msg(!rounds || region->between.ulp > 0, "%s: it was rounded, and no error is reported", g->name);
    }
    fb_validation_free(&found);
}

static bool preserves_computation(const fb_run *run) {
    for (size_t i = 0; i < run->count; i++) {
        if (run->passes[i].applied && !run->passes[i].pass->preserves_computation) return false;
    }
    return true;
}

static void ck_after(const golden *g, const fb_buffer *after, bool is_changed) {
    if (g->update && is_changed) write_file(g, "after.json", after);
    if (g->update && !is_changed) remove_file(g, "after.json");
    size_t size;
    char *expected = golden_file(g, "after.json", &size);
    ck_assert_msg(is_changed == (expected != NULL), "%s: %s", g->name,
                  is_changed ? "changed, but there is no after.json" : "unchanged, but there is an after.json");
    ck_assert_msg(!expected || (size == after->size && memcmp(expected, after->data, size) == 0),
                  "%s: the result is not after.json:\n%.*s", g->name, (int)after->size, after->data);
    free(expected);
}

static void ck_report(const golden *g, const fb_run *run) {
    fb_buffer report = {0};
    write_report(run, &report);
    size_t size;
    char *text = golden_file(g, "refused.json", &size);
    json_t *expected = text ? json_loadb(text, size, 0, NULL) : NULL, *found = json_loadb(report.data, report.size, 0, NULL);
    ck_assert_msg(found && json_equal(expected, found), "%s: the report is not refused.json:\n%s", g->name,
                  fb_buffer_text(&report));
    json_decref(expected);
    json_decref(found);
    free(text);
    fb_buffer_free(&report);
}

static void ck_twice(const golden *g, const fb_buffer *after) {
    fb_run run;
    fb_error error = {0};
    fb_buffer again = {0};
    ck_assert_int_eq(fb_composition_run(&g->passes, g->before, FB_LINT_END, NULL, &run, &error), FB_OK);
    fb_document_write(run.result, &again);
    ck_assert_msg(again.size == after->size && memcmp(again.data, after->data, after->size) == 0,
                  "%s: a second run gives other bytes", g->name);
    fb_buffer_free(&again);
    fb_run_free(&run);
}

static void run_case(golden *g) {
    fb_run run;
    fb_error error = {0};
    fb_buffer after = {0}, code = {0};
    char id[FB_ID_LENGTH + 1];
    ck_valid(g, g->before, "before.json");
    fb_status status = fb_composition_run(&g->passes, g->before, FB_LINT_EACH, NULL, &run, &error);
    ck_assert_msg(status == FB_OK, "%s: %s: %s", g->name, error.code, error.message);
    ck_id(g, g->before, g->before_id, "the source changed");
    ck_valid(g, run.result, "the result");
    ck_assert(fb_document_write_marked(run.result, &(fb_work){0}, &after, NULL, id));
    ck_report(g, &run);
    ck_after(g, &after, strcmp(id, g->before_id) != 0);
    ck_marks(g, &run);
    ck_calls_exist(g, run.result);
    ck_reads_back(g, &after, id);
    ck_twice(g, &after);
    ck_assert(fb_code_write(run.result, FB_MAIN_PROGRAM, &(fb_work){0}, &code));
    ck_golden_signatures(g, &run);
    ck_golden_numbers(g, run.result);
    if (preserves_computation(&run)) ck_validates(g, &run);
    if (preserves_computation(&run) && !is_foreign(g->before) && !is_foreign(run.result)) ck_computes_the_same(g, run.result);
    ck_golden_undone(g, &run);
    fb_buffer_free(&after);
    fb_buffer_free(&code);
    fb_run_free(&run);
}

static void read_passes(golden *g) {
    fb_error error = {0};
    size_t size;
    char *text = golden_file(g, "passes.json", &size);
    ck_assert_msg(text != NULL, "%s has no passes.json", g->name);
    json_t *list = json_loadb(text, size, 0, NULL);
    fb_status status = fb_composition_read(list, "", &test_rules, &g->passes, &error);
    ck_assert_msg(status == FB_OK, "%s: %s", g->name, error.message);
    json_decref(list);
    free(text);
}

static void read_before(golden *g) {
    fb_errors errors = {0};
    size_t size;
    char *text = golden_file(g, "before.json", &size);
    ck_assert_msg(text != NULL, "%s has no before.json", g->name);
    fb_status status = fb_document_read(text, size, NULL, "", &g->before, &errors);
    ck_assert_msg(status == FB_OK, "%s: before.json: %s at %s: %s", g->name, errors.items ? errors.items[0].code : "",
                  errors.items ? errors.items[0].pointer : "", errors.items ? errors.items[0].message : "");
    ck_assert(fb_document_id(g->before, g->before_id));
    fb_errors_free(&errors);
    free(text);
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

static char **cases;
static size_t case_count;

START_TEST(test_golden) {
    golden g = {.name = cases[_i], .update = getenv("UPDATE") != NULL};
    read_before(&g);
    read_passes(&g);
    run_case(&g);
    fb_composition_free(&g.passes);
    fb_graph_free(g.before);
}
END_TEST

START_TEST(test_every_pass_has_cases) {
    for (size_t i = 0; fb_pass_at(i); i++) {
        char *folder = NULL;
        ck_assert_int_gt(asprintf(&folder, "%s/%s", GOLDEN_FOLDER, fb_pass_at(i)->name), 0);
        ck_assert_msg(access(folder, R_OK) == 0, "%s has no golden cases", fb_pass_at(i)->name);
        free(folder);
    }
}
END_TEST

static int is_shown(const struct dirent *entry) {
    return entry->d_name[0] != '.' && entry->d_name[0] != '_';
}

START_TEST(test_every_trap_has_cases) {
    ck_every_trap(cases, case_count);
}
END_TEST

static void list_cases(const char *folder) {
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s/%s", GOLDEN_FOLDER, folder);
    struct dirent **entries = NULL;
    int count = scandir(fb_buffer_text(&path), &entries, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        cases = realloc(cases, (case_count + 1) * sizeof *cases);
        if (asprintf(&cases[case_count++], "%s/%s", folder, entries[i]->d_name) < 0) abort();
        free(entries[i]);
    }
    free(entries);
    fb_buffer_free(&path);
}

static void list_all(void) {
    struct dirent **entries = NULL;
    int count = scandir(GOLDEN_FOLDER, &entries, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        struct stat status;
        fb_buffer path = {0};
        fb_buffer_printf(&path, "%s/%s", GOLDEN_FOLDER, entries[i]->d_name);
        if (stat(fb_buffer_text(&path), &status) == 0 && S_ISDIR(status.st_mode)) list_cases(entries[i]->d_name);
        fb_buffer_free(&path);
        free(entries[i]);
    }
    free(entries);
}

int main(void) {
    list_all();
    TCase *tests = tcase_create("golden");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_golden, 0, (int)case_count);
    tcase_add_test(tests, test_every_pass_has_cases);
    tcase_add_test(tests, test_every_trap_has_cases);
    int result = run_tests("golden", tests);
    for (size_t i = 0; i < case_count; i++) free(cases[i]);
    free(cases);
    return result;
}
