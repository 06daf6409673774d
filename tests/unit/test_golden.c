/* Golden cases. `make golden` writes each as a folder build/golden/<Pass>/<case>: before.json, passes.json, refused.json (what
 * each pass applies and refuses), and of some signatures.json and numbers.json (golden.h). The results are committed:
 *
 *   tests/golden/<Pass>/expected.diff   what each case changes, as text, and the id of its result, which no other bytes have
 *   tests/golden/<Pass>/<case>.json     a case that was written by hand, with its result: "after", if that is not "before"
 *
 * UPDATE=1 writes both; then git's difference is reviewed. */
#include "tests/unit/checks.h"
#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/analysis/calls.h"
#include "core/compose/run.h"
#include "core/document/document.h"
#include "core/graph/code.h"
#include "core/passes/passes.h"
#include "core/validation/validation.h"
#include "tests/unit/documents.h"
#include "tests/unit/evaluate.h"
#include "tests/unit/golden.h"
#include "tests/unit/golden_text.h"
#include "tests/unit/rules.h"
#include "tests/unit/run_tests.h"

#define SECTION "diff "          /* begins a case's section of expected.diff */
#define FOUND "found.diff"       /* the section that a case writes under UPDATE=1, in its folder */
#define AFTER ",\n  \"after\": " /* the last member of a case that was written by hand */
#define END "\n}\n"

static void write_file(const char *path, const fb_buffer *text) {
    FILE *out = fopen(path, "wb");
    if (!out) abort();
    fwrite(text->data, 1, text->size, out);
    fclose(out);
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

typedef struct untrainable {
    const fb_graph *graph;
    const char *name; /* of the first tensor of integers or bools, or NULL */
} untrainable;

static void look_for_integers(void *context, fb_tensor tensor) {
    untrainable *found = context;
    const fb_tensor_row *row = fb_tensor_at(found->graph, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    if (dtype && !fb_dtype_is_floating(dtype) && !fb_dtype_is_complex(dtype)) found->name = fb_text(found->graph, row->name);
}

static const char *integer_parameter(const fb_graph *graph) {
    untrainable found = {.graph = graph};
    for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next)
        fb_value_visit_tensors(graph, fb_module_at(graph, m)->parameters, look_for_integers, &found);
    return found.name;
}

/* A pass makes no parameters of integers, except of such parameters. */
static void ck_parameters(const golden *g, const fb_graph *after) {
    const char *name = integer_parameter(g->before) ? NULL : integer_parameter(after);
    ck_assert_msg(!name, "%s: %s is a parameter of integers, which PyTorch 2.9 loads from no archive", g->name, name);
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

/* The reference evaluator speaks torch and torch.nn, neither ATen nor ONNX; of convolutions and norms it knows those of one and
 * two dimensions, and of functions conv2d. It knows no pads, and neither roll, repeat_interleave nor normalize. */
static bool is_foreign(const fb_graph *graph) {
    if (fb_graph_is_onnx(graph)) return true;
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

/* The start of the first line in which `got` differs. */
static size_t line_that_differs(const char *wanted, const char *got) {
    size_t line = 0;
    for (size_t i = 0; got[i] && got[i] == wanted[i]; i++) {
        if (got[i] == '\n') line = i + 1;
    }
    return line;
}

static void start_line(size_t depth, fb_buffer *out) {
    fb_buffer_printf(out, "\n%*s", (int)(2 * depth), "");
}

/* A document, which is written without spaces, as a member of a case: each node, module and tensor is a line. */
static void write_spread(const fb_buffer *document, fb_buffer *out) {
    enum { LINES = 3 }; /* a value that is deeper stays in its line */
    const char *text = document->data;
    size_t depth = 1;
    bool in_string = false;
    for (size_t i = 0; i < document->size; i++) {
        char c = text[i], next = i + 1 < document->size ? text[i + 1] : '\0';
        if (c == '"') in_string = !in_string;
        bool opens = !in_string && (c == '{' || c == '['), closes = !in_string && (c == '}' || c == ']');
        depth -= closes;
        if (closes && depth < LINES && text[i - 1] != '{' && text[i - 1] != '[') start_line(depth, out);
        fb_buffer_char(out, c);
        depth += opens;
        if (in_string && c == '\\') fb_buffer_char(out, text[++i]);
        else if (opens && depth <= LINES && next != '}' && next != ']') start_line(depth, out);
        else if (!in_string && c == ',' && depth <= LINES) start_line(depth, out);
        else if (!in_string && (c == ',' || c == ':')) fb_buffer_char(out, ' ');
    }
}

/* The committed file of a case that was written by hand is the rest of it, as it is, and then the whole result. */
static void ck_after(const golden *g, const fb_buffer *after, bool is_changed) {
    size_t size;
    char *wanted = read_file(g->hand_made, &size);
    const char *expected = strstr(wanted, AFTER), *end = expected ? expected : strstr(wanted, END);
    ck_assert_msg(end, "%s: the file does not end with a line \"}\"", g->name);
    fb_buffer found = {0};
    fb_buffer_append(&found, wanted, (size_t)(end - wanted));
    if (is_changed) fb_buffer_string(&found, AFTER);
    if (is_changed) write_spread(after, &found);
    fb_buffer_string(&found, END);
    if (g->update) write_file(g->hand_made, &found);
    const char *got = fb_buffer_text(&found);
    size_t line = line_that_differs(wanted, got);
    ck_assert_msg(g->update || strcmp(wanted, got) == 0,
                  "%s: the result is not as its file says (UPDATE=1 writes it there):\n%.*s\nbut\n%.*s", g->name,
                  (int)strcspn(wanted + line, "\n"), wanted + line, (int)strcspn(got + line, "\n"), got + line);
    fb_buffer_free(&found);
    free(wanted);
}

/* What expected.diff says of the case. The id is that of the result's bytes; before it, the text shows what they say. */
static void write_section(const golden *g, const fb_run *run, const fb_buffer *after, bool is_changed, fb_buffer *out) {
    char id[FB_ID_LENGTH + 1];
    ck_assert(fb_sha256_id(after->data, after->size, id));
    fb_buffer_printf(out, SECTION "%s\n", strchr(g->name, '/') + 1);
    for (size_t i = 0; i < run->count; i++) {
        const fb_pass_report *report = &run->passes[i];
        bool is_plain = strcmp(report->params, "{}") == 0;
        fb_buffer_printf(out, "%s%s%s: %zu applied\n", report->pass->name, is_plain ? "" : " ", is_plain ? "" : report->params,
                         report->applied);
        for (const fb_refusal *refusal = report->refused; refusal; refusal = refusal->next) {
            fb_buffer_printf(out, "%s refused%s", report->pass->name, refusal->count ? " " : "");
            for (size_t k = 0; k < refusal->count; k++) fb_buffer_printf(out, "%s%s", k ? ", " : "", refusal->nodes[k]);
            fb_buffer_printf(out, ": %s\n", refusal->reason);
        }
    }
    ck_assert_str_eq(fb_graph_name(run->result), fb_graph_name(g->before)); /* the text is without it */
    if (is_changed) {
        fb_buffer texts[2] = {0};
        write_graph_text(g->before, run, &texts[0]);
        write_graph_text(run->result, run, &texts[1]);
        write_changes(fb_buffer_text(&texts[0]), fb_buffer_text(&texts[1]), out);
        fb_buffer_free(&texts[0]);
        fb_buffer_free(&texts[1]);
    }
    fb_buffer_printf(out, "result: %s\n\n", is_changed ? id : "unchanged");
}

static void ck_expected(const golden *g, const fb_run *run, const fb_buffer *after, bool is_changed) {
    fb_buffer found = {0};
    write_section(g, run, after, is_changed, &found);
    const char *wanted = g->expected.text, *got = fb_buffer_text(&found);
    bool is_same = wanted && g->expected.size == found.size && memcmp(wanted, got, found.size) == 0;
    if (g->update || !is_same) {
        char *path = golden_path(g, FOUND);
        write_file(path, &found);
        free(path);
    }
    ck_assert_msg(wanted || g->update, "%s: expected.diff does not have it; UPDATE=1 writes it", g->name);
    size_t line = wanted ? line_that_differs(wanted, got) : 0;
    ck_assert_msg(is_same || g->update,
                  "%s: not as expected.diff says:\n%.*s\nbut (the whole: " GOLDEN_FOLDER "/%s/" FOUND ")\n%.*s", g->name,
                  (int)strcspn(wanted + line, "\n"), wanted + line, g->name, (int)strcspn(got + line, "\n"), got + line);
    fb_buffer_free(&found);
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
    ck_assert(fb_code_write(run.result, FB_MAIN_PROGRAM, &(fb_work){0}, &code));
    bool is_changed = strcmp(id, g->before_id) != 0;
    if (g->hand_made) ck_after(g, &after, is_changed);
    else ck_expected(g, &run, &after, is_changed);
    ck_marks(g, &run);
    ck_calls_exist(g, run.result);
    ck_parameters(g, run.result);
    ck_reads_back(g, &after, id);
    ck_twice(g, &after);
    ck_golden_signatures(g, &run);
    ck_golden_numbers(g, run.result);
    if (preserves_computation(&run)) ck_validates(g, &run);
    if (preserves_computation(&run) && !is_foreign(g->before) && !is_foreign(run.result)) ck_computes_the_same(g, run.result);
    ck_golden_undone(g, &run);
    ck_golden_matches(g, preserves_computation(&run));
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
    fb_status status = fb_composition_read_request(NULL, "", list, "", &test_rules, &g->passes, &error);
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

/* ---- expected.diff ------------------------------------------------------------------------------------------------------- */

/* All sections of all files, by the name of their case; they last as long as the program. */
typedef struct section {
    char *name;
    fb_span text;
} section;
static section *sections;
static size_t section_count;

static char *expected_path(const char *folder) {
    fb_buffer path = {0};
    fb_buffer_printf(&path, "%s/%s/expected.diff", GOLDEN_SOURCES, folder);
    return fb_buffer_take(&path, NULL);
}

/* A section ends where the next begins, at the start of a line. */
static void read_sections(const char *folder) {
    char *path = expected_path(folder);
    size_t size;
    const char *text = access(path, R_OK) == 0 ? read_file(path, &size) : NULL;
    for (const char *end; text && *text; text = end) {
        const char *next = strstr(text, "\n" SECTION);
        end = next ? next + 1 : text + strlen(text);
        sections = realloc(sections, (section_count + 1) * sizeof *sections);
        section *new = &sections[section_count++];
        const char *name = text + strlen(SECTION);
        if (asprintf(&new->name, "%s/%.*s", folder, (int)strcspn(name, "\n"), name) < 0) abort();
        new->text = (fb_span){text, (size_t)(end - text)};
    }
    free(path);
}

static fb_span section_of(const char *name) {
    for (size_t i = 0; i < section_count; i++) {
        if (strcmp(sections[i].name, name) == 0) return sections[i].text;
    }
    return (fb_span){0};
}

/* ---- all of them --------------------------------------------------------------------------------------------------------- */

static golden *cases;
static size_t case_count;

START_TEST(test_golden) {
    golden g = cases[_i];
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

START_TEST(test_every_result_has_its_case) {
    size_t expected = 0;
    for (size_t i = 0; i < case_count; i++) expected += cases[i].expected.text != NULL;
    for (size_t i = 0; i < section_count && expected != section_count; i++) {
        bool is_case = false;
        for (size_t k = 0; k < case_count && !is_case; k++) is_case = cases[k].expected.text == sections[i].text.text;
        ck_assert_msg(is_case || getenv("UPDATE"), "%s has a result, but is no case (or has two)", sections[i].name);
    }
}
END_TEST

static void add_case(const char *folder, const char *name) {
    cases = realloc(cases, (case_count + 1) * sizeof *cases);
    golden *g = &cases[case_count++];
    *g = (golden){.update = getenv("UPDATE") != NULL};
    if (asprintf(&g->name, "%s/%s", folder, name) < 0) abort();
    if (asprintf(&g->hand_made, "%s/%s.json", GOLDEN_SOURCES, g->name) < 0) abort();
    if (access(g->hand_made, R_OK) != 0) {
        free(g->hand_made);
        g->hand_made = NULL;
        g->expected = section_of(g->name);
    }
    char *found = golden_path(g, FOUND);
    if (g->update) unlink(found);
    free(found);
}

/* Calls `visit` for the folders in a folder, in the order of their names. */
static void each_folder(const char *in, void (*visit)(const char *parent, const char *name)) {
    char *path = NULL;
    if (asprintf(&path, "%s/%s", GOLDEN_FOLDER, in) < 0) abort();
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_shown, alphasort);
    for (int i = 0; i < count; i++) {
        visit(in, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    free(path);
}

static void add_pass(const char *parent, const char *name) {
    (void)parent;
    read_sections(name);
    each_folder(name, add_case);
}

/* What each case has found is its section from now on; that of a case that failed before stays. */
static void update_pass(const char *parent, const char *name) {
    (void)parent;
    fb_buffer text = {0};
    for (size_t i = 0; i < case_count; i++) {
        if (strncmp(cases[i].name, name, strlen(name)) != 0 || cases[i].name[strlen(name)] != '/') continue;
        size_t size;
        char *path = golden_path(&cases[i], FOUND), *found = access(path, R_OK) == 0 ? read_file(path, &size) : NULL;
        if (found) fb_buffer_append(&text, found, size);
        else if (cases[i].expected.text) fb_buffer_append(&text, cases[i].expected.text, cases[i].expected.size);
        free(found);
        free(path);
    }
    char *path = expected_path(name);
    *strrchr(path, '/') = '\0';
    mkdir(path, 0777); /* a folder without a program of its own */
    path[strlen(path)] = '/';
    if (text.size) write_file(path, &text);
    else unlink(path);
    free(path);
    fb_buffer_free(&text);
}

/* In one process, unless CK_FORK says otherwise: 2,000 forks took longer than the cases. */
int main(void) {
    setenv("CK_FORK", "no", 0);
    each_folder(".", add_pass);
    TCase *tests = tcase_create("golden");
    tcase_set_timeout(tests, 600);
    tcase_add_loop_test(tests, test_golden, 0, (int)case_count);
    tcase_add_test(tests, test_every_pass_has_cases);
    tcase_add_test(tests, test_every_trap_has_cases);
    tcase_add_test(tests, test_every_result_has_its_case);
    int result = run_tests("golden", tests);
    if (getenv("UPDATE")) each_folder(".", update_pass);
    for (size_t i = 0; i < case_count; i++) {
        free(cases[i].name);
        free(cases[i].hand_made);
    }
    free(cases);
    return result;
}
