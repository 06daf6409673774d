/* Work on large graphs ends soon after it is to stop, wherever it is: it is let go on to its end, and the longest time that it
 * did not ask is what it would have gone on for. That is measured in the time that reading such a graph takes, on the same CPU
 * and in the same run; and how often it asks is counted.
 *
 * FOLDBACK_WHOLE_CALLS=1 takes graphs of four times as many nodes, FOLDBACK_TIMES=1 prints every time and asserts none. */
#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/compose/undo.h"
#include "core/diff/diff.h"
#include "core/document/document.h"
#include "core/graph/code.h"
#include "core/passes/passes.h"
#include "core/rules/rule.h"
#include "core/validation/region.h"
#include "tests/unit/cpu_watch.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define TYPE "\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}"
enum { FEW_NODES = 15000, MANY_NODES = 60000, LEAST_LIMIT = 15 /* ms */ };

static int node_count(void) {
    return getenv("FOLDBACK_WHOLE_CALLS") ? MANY_NODES : FEW_NODES;
}

static void put_call(fb_buffer *nodes, int number, const char *target, const char *arguments, const char *meta) {
    fb_buffer_printf(nodes, ",{\"op\":\"call_function\",\"name\":\"n%d\",\"target\":\"%s\",\"args\":[%s]%s%s}", number, target,
                     arguments, *meta ? "," : "", meta);
}

/* What each node is, from those before it; the first is x. */
typedef void making(fb_buffer *nodes, int i);

static void make_chain(fb_buffer *nodes, int i) {
    char arguments[80];
    snprintf(arguments, sizeof arguments, "{\"$node\":\"n%d\"},4.0", i - 1);
    put_call(nodes, i, i % 3 ? "operator.truediv" : "operator.mul", arguments, TYPE);
}

static void make_views(fb_buffer *nodes, int i) {
    char arguments[80];
    snprintf(arguments, sizeof arguments, "{\"$node\":\"n%d\"},[2,4]", i - 1);
    put_call(nodes, i, "torch.reshape", arguments, TYPE);
}

static void make_fan(fb_buffer *nodes, int i) {
    char arguments[80];
    snprintf(arguments, sizeof arguments, "{\"$node\":\"n0\"},%d", i);
    put_call(nodes, i, "operator.mul", arguments, TYPE);
}

static void make_writes(fb_buffer *nodes, int i) {
    char arguments[80];
    snprintf(arguments, sizeof arguments, i % 2 ? "{\"$node\":\"n0\"},%d" : "{\"$node\":\"n0\"},[2,4]", i);
    put_call(nodes, i, i % 2 ? "operator.iadd" : "torch.reshape", arguments, TYPE);
}

/* f[i] = f[i - 1] + f[i - 1] of f[0] = x.size(0) × 0.5. */
static void make_doubles(fb_buffer *nodes, int i) {
    char arguments[100];
    if (i == 1) put_call(nodes, i, "torch.ops.aten.sym_size.int", "{\"$node\":\"n0\"},0", "");
    else if (i == 2) put_call(nodes, i, "operator.mul", "{\"$node\":\"n1\"},0.5", "");
    else {
        bool is_sum = i % 64;
        snprintf(arguments, sizeof arguments, is_sum ? "{\"$node\":\"n%d\"},{\"$node\":\"n%d\"}" : "{\"$node\":\"n2\"},1.0",
                 i - 1, i - 1);
        put_call(nodes, i, "operator.add", arguments, "");
    }
}

static const struct family {
    const char *name;
    making *make;
    bool returns_all;
} families[] = {
    {"chain", make_chain, false},   {"views", make_views, false},     {"fan", make_fan, true},
    {"writes", make_writes, false}, {"doubles", make_doubles, false},
};
enum { FAMILIES = sizeof families / sizeof *families };

static char *document(const struct family *family, int count, size_t *size) {
    fb_buffer nodes = {0};
    fb_buffer_string(&nodes, "{\"op\":\"placeholder\",\"name\":\"n0\",\"target\":\"n0\"," TYPE "}");
    for (int i = 1; i < count; i++) family->make(&nodes, i);
    fb_buffer_string(&nodes, ",{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[[");
    for (int i = family->returns_all ? 1 : count - 1; i < count; i++)
        fb_buffer_printf(&nodes, "{\"$node\":\"n%d\"}%s", i, i < count - 1 ? "," : "");
    fb_buffer_string(&nodes, "]]}");
    char *text = document_of(fb_buffer_text(&nodes), NULL, "");
    fb_buffer_free(&nodes);
    *size = strlen(text);
    return text;
}

static double cpu_time(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static fb_graph *read_timed(const char *text, size_t size, double *reading) {
    double before = cpu_time();
    fb_graph *graph = graph_of(text, size);
    *reading = cpu_time() - before;
    return graph;
}

static fb_graph *read_family(const struct family *family, double *reading) {
    size_t size;
    char *text = document(family, node_count(), &size);
    fb_graph *graph = read_timed(text, size, reading);
    free(text);
    return graph;
}

/* `reading` is the time, in ms, that it took to read the graphs. */
static void assert_asked(cpu_watch *clock, double reading, const char *what, const char *of) {
    double unasked = cpu_watch_end(clock), most = reading > LEAST_LIMIT ? reading : LEAST_LIMIT;
    if (getenv("FOLDBACK_TIMES")) printf("%7.1f ms unasked: %s of %s\n", unasked, what, of);
    ck_assert_msg(unasked <= most || getenv("FOLDBACK_TIMES"), "%s of %s: not asked for %.1f ms; reading takes %.1f ms", what,
                  of, unasked, reading);
}

/* Once in so many nodes at least: a number that does not depend on how fast the machine is. */
#define MOST_NODES_UNASKED 4096

static void assert_asked_often(cpu_watch *clock, double reading, const char *what, const char *of) {
    size_t least = (size_t)node_count() / MOST_NODES_UNASKED;
    ck_assert_msg(clock->asked >= least, "%s of %s: asked %zu times, not %zu", what, of, clock->asked, least);
    assert_asked(clock, reading, what, of);
}

START_TEST(documents_are_read) {
    const struct family *family = &families[_i];
    size_t size;
    char *text = document(family, node_count(), &size);
    double whole;
    fb_graph_free(read_timed(text, size, &whole));
    cpu_watch clock;
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    cpu_watch_begin(&clock, 0);
    fb_document_limits limits = {.watch = &clock.watch};
    ck_assert_int_eq(fb_document_read(text, size, &limits, "", &graph, &errors), FB_OK);
    assert_asked(&clock, whole / 2, "reading", family->name);
    fb_graph_free(graph);
    free(text);
}
END_TEST

static fb_composition composition_of(const char *name) {
    json_t *list = json_pack("[s]", name);
    fb_composition composition = {0};
    fb_error error = {0};
    if (fb_composition_read(list, "", NULL, &composition, &error)) composition.count = 0; /* it needs parameters */
    json_decref(list);
    return composition;
}

static void run(const struct family *family, const fb_graph *graph, double reading, const char *name) {
    fb_composition composition = composition_of(name);
    cpu_watch clock;
    fb_run result;
    fb_error error = {0};
    cpu_watch_begin(&clock, 3000 * MS);
    fb_run_watcher watcher = {.watch = &clock.watch};
    fb_status status =
        composition.count ? fb_composition_run(&composition, graph, FB_LINT_END, &watcher, &result, &error) : FB_BUSY;
    assert_asked(&clock, reading, name, family->name);
    ck_assert_msg(!status || status == FB_BUSY || status == FB_TOO_LARGE, "%s: %s", name, error.message);
    if (!status) fb_run_free(&result);
    fb_composition_free(&composition);
}

START_TEST(passes) {
    const struct family *family = &families[_i];
    double reading;
    fb_graph *graph = read_family(family, &reading);
    for (size_t i = 0; fb_pass_at(i); i++) run(family, graph, reading, fb_pass_at(i)->name);
    run(family, graph, reading, "cleanup");
    fb_graph_free(graph);
}
END_TEST

/* ---- merges ------------------------------------------------------------------------------------------------------------- */

/* Readers of one node in some order, which multiply by what is told. */
enum { NODES = 0 };

/* FOLDBACK_MERGED_NODES=120000 merges graphs of as many nodes. */
static int merged_count(void) {
    const char *count = getenv("FOLDBACK_MERGED_NODES");
    return count ? atoi(count) : node_count();
}

typedef struct spread {
    bool is_reversed, is_chained;
    int factor, from, to; /* `to` of NODES: as many as graphs have here */
} spread;

static fb_graph *graph_of_spread(const spread *s, double *reading) {
    fb_buffer nodes = {0};
    fb_buffer_string(&nodes, "{\"op\":\"placeholder\",\"name\":\"n0\",\"target\":\"n0\"," TYPE "}");
    int to = s->to ? s->to : merged_count();
    for (int k = s->from; k < to; k++) {
        char arguments[80];
        int i = s->is_reversed ? s->from + to - 1 - k : k;
        snprintf(arguments, sizeof arguments, "{\"$node\":\"n%d\"},%d", s->is_chained && k > s->from ? i - 1 : 0,
                 i * s->factor);
        put_call(&nodes, i, "operator.mul", arguments, TYPE);
    }
    fb_buffer_string(&nodes, ",{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[[");
    for (int i = s->from; i < to; i++) fb_buffer_printf(&nodes, "{\"$node\":\"n%d\"}%s", i, i < to - 1 ? "," : "");
    fb_buffer_string(&nodes, "]]}");
    char *text = document_of(fb_buffer_text(&nodes), NULL, "");
    fb_graph *graph = read_timed(text, strlen(text), reading);
    free(text);
    fb_buffer_free(&nodes);
    return graph;
}

static const struct merging {
    const char *name;
    spread base, theirs, ours;
} mergings[] = {
    {"reversed by ours", {false, false, 1, 1, NODES}, {false, false, 2, 1, NODES}, {true, false, 1, 1, NODES}},
    {"reversed by theirs", {false, false, 1, 1, NODES}, {true, false, 1, 1, NODES}, {false, false, 2, 1, NODES}},
    {"reversed by both", {false, false, 1, 1, NODES}, {true, false, 1, 1, NODES}, {true, false, 1, 1, NODES}},
    {"changed by both", {false, true, 1, 1, NODES}, {false, true, 2, 1, NODES}, {false, true, 3, 1, NODES}},
    {"chained by ours", {false, false, 1, 1, NODES}, {true, false, 2, 1, NODES}, {false, true, 1, 1, NODES}},
    {"erased by theirs", {false, true, 1, 1, NODES}, {false, true, 1, 1, 2}, {false, true, 3, 1, NODES}},
    {"erased by ours", {false, true, 1, 1, NODES}, {true, false, 3, 1, NODES}, {false, true, 1, 1, 2}},
    {"put in by both", {false, true, 1, 1, 2}, {true, false, 3, 1, NODES}, {false, true, 1, 1, NODES}},
    {"rewired by theirs", {false, true, 1, 1, NODES}, {false, false, 1, 1, NODES}, {false, true, 1, 1, NODES}},
};
enum { MERGINGS = sizeof mergings / sizeof *mergings };

START_TEST(merges) {
    const struct merging *m = &mergings[_i];
    double reading[3];
    fb_graph *base = graph_of_spread(&m->base, &reading[0]), *theirs = graph_of_spread(&m->theirs, &reading[1]);
    fb_graph *ours = graph_of_spread(&m->ours, &reading[2]);
    fb_graph *merged = NULL;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    cpu_watch clock;
    cpu_watch_begin(&clock, 60000 * MS);
    fb_merge_facts facts = {.watch = &clock.watch};
    fb_status status = fb_merge(base, theirs, ours, &facts, &merged, &conflicts, &error);
    /* What is last is to free what seconds of work have allocated, which nobody can stop: it may take as long as reading. */
    double sum = reading[0] + reading[1] + reading[2], fixed = (double)(MOST_UNASKED / MS);
    assert_asked_often(&clock, sum > fixed ? sum : fixed, "a merge", m->name);
    /* It grows with the graphs, not with their square: it asks once in so many nodes, edges and edits. */
    size_t most = (size_t)merged_count() / 4;
    ck_assert_msg(clock.asked <= most, "%s: asked %zu times, not at most %zu", m->name, clock.asked, most);
    ck_assert_msg(!status || status == FB_CONFLICT, "%s: %s", m->name, error.message);
    if (getenv("FOLDBACK_TIMES")) printf("        %s: %d, asked %zu times\n", m->name, status, clock.asked);
    if (!status) fb_graph_free(merged);
    fb_conflicts_free(&conflicts);
    fb_graph_free(base);
    fb_graph_free(theirs);
    fb_graph_free(ours);
}
END_TEST

/* ---- what routes do besides -------------------------------------------------------------------------------------------- */

static fb_graph *run_of(const fb_graph *source, const char *pass) {
    fb_composition composition = composition_of(pass);
    fb_run result;
    ck_assert_int_eq(fb_composition_run(&composition, source, FB_LINT_END, NULL, &result, NULL), FB_OK);
    fb_graph *graph = result.result;
    result.result = NULL;
    fb_run_free(&result);
    fb_composition_free(&composition);
    return graph;
}

typedef struct pair {
    const fb_graph *before, *after;
} pair;

/* Does it until `work` stops it; whatever comes of it goes. */
typedef void doing(const pair *of, fb_work *work);

static void verify(const pair *of, fb_work *work) {
    fb_error error;
    fb_lint_graph(of->before, work, &error);
}

static void write_document(const pair *of, fb_work *work) {
    char id[FB_ID_LENGTH + 1];
    fb_buffer out = {0};
    fb_document_write_marked(of->before, work, &out, NULL, id);
    fb_buffer_free(&out);
}

static void hash_structure(const pair *of, fb_work *work) {
    char id[FB_ID_LENGTH + 1];
    fb_buffer out = {0}, left_out = {0};
    if (fb_document_write_marked(of->before, work, &out, &left_out, id)) fb_document_structure_of(&out, &left_out, work, id);
    fb_buffer_free(&out);
    fb_buffer_free(&left_out);
}

static void write_code(const pair *of, fb_work *work) {
    fb_buffer out = {0};
    fb_code_write(of->before, FB_MAIN_PROGRAM, work, &out);
    fb_buffer_free(&out);
}

static void make_diff(const pair *of, fb_work *work) {
    fb_diff diff;
    fb_error error = {0};
    fb_buffer out = {0};
    if (fb_diff_make(of->before, of->after, work, &diff, &error)) return;
    fb_diff_write(&diff, work, &out);
    fb_diff_free(&diff);
    fb_buffer_free(&out);
}

static void write_diff(const pair *of, fb_work *work) {
    fb_diff diff;
    fb_error error = {0};
    fb_buffer out = {0};
    ck_assert_int_eq(fb_diff_make(of->before, of->after, &(fb_work){0}, &diff, &error), FB_OK);
    if (work->watch) {
        cpu_watch *clock = work->watch->context;
        int64_t left = clock->deadline;
        cpu_watch_begin(clock, 0); /* what it took to make is nothing of its */
        clock->deadline = left;
    }
    fb_diff_write(&diff, work, &out);
    fb_buffer_free(&out);
    fb_diff_free(&diff);
}

static void find_regions(const pair *of, fb_work *work) {
    fb_regions regions;
    fb_error error;
    fb_regions_find(of->before, of->after, work, false, &regions, &error);
    fb_regions_free(&regions);
}

static const struct {
    const char *name;
    doing *run;
    bool needs_changes; /* of the pair: it looks at nothing else */
} doings[] = {
    {"verifying", verify, false},
    {"writing the document", write_document, false},
    {"the structure", hash_structure, false},
    {"writing code", write_code, false},
    {"a diff", make_diff, false},
    {"writing a diff", write_diff, true},
    {"finding regions", find_regions, false},
};
enum { DOINGS = sizeof doings / sizeof *doings };

START_TEST(routes) {
    const struct family *family = &families[_i % FAMILIES];
    doing *run_it = doings[_i / FAMILIES].run;
    double reading;
    fb_graph *source = read_family(family, &reading);
    fb_graph *result = run_of(source, family->make == make_chain ? "ChangeTrueDivToMulByInverse" : "RemoveNoOps");
    bool is_same = fb_node_count(source) == fb_node_count(result) && family->make != make_chain;
    pair of = {source, result};
    cpu_watch clock;
    cpu_watch_begin(&clock, 0);
    fb_work work = {.watch = &clock.watch};
    run_it(&of, &work);
    ck_assert_int_eq(work.stopped.status, FB_OK);
    if (!doings[_i / FAMILIES].needs_changes || !is_same)
        assert_asked_often(&clock, reading, doings[_i / FAMILIES].name, family->name);
    /* Stopped at once, it ends at once, and says why. */
    cpu_watch_begin(&clock, 1);
    work = (fb_work){.watch = &clock.watch};
    run_it(&of, &work);
    if (!doings[_i / FAMILIES].needs_changes || !is_same) ck_assert_str_eq(work.stopped.code, "deadline-exceeded");
    fb_graph_free(source);
    fb_graph_free(result);
}
END_TEST

/* ---- rules --------------------------------------------------------------------------------------------------------------- */

static const char *const searches[] = {
    /* Eight roots among 60 readers, of which the last is not there: 60 × 59 × 58 … ways to look for it. */
    "{\"name\":\"R\",\"exactness\":\"changes\",\"pattern\":["
    "{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?a\"},{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?b\"},"
    "{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?c\"},{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?d\"},"
    "{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?e\"},{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?f\"},"
    "{\"operator\":\"sin\",\"args\":[\"?x\"],\"as\":\"?g\"},{\"operator\":\"tan\",\"args\":[\"?x\"],\"as\":\"?h\"}],"
    "\"replacement\":{\"?a\":{\"operator\":\"cos\",\"args\":[\"?x\"]}}}",
    /* Each sin reads a list of its own: every trial copies it. */
    "{\"name\":\"R\",\"exactness\":\"changes\",\"pattern\":{\"target\":\"torch.cat\",\"args\":[\"?x\"],\"as\":\"?a\"},"
    "\"replacement\":{\"?a\":{\"target\":\"torch.hstack\",\"args\":[\"?x\"]}}}",
};

static fb_graph *searched_graph(int search, double *reading) {
    fb_buffer nodes = {0}, list = {0};
    fb_buffer_string(&nodes, "{\"op\":\"placeholder\",\"name\":\"n0\",\"target\":\"n0\"," TYPE "}");
    for (int i = 0; i < 4000; i++) fb_buffer_string(&list, i ? ",{\"$node\":\"n0\"}" : "[{\"$node\":\"n0\"}");
    fb_buffer_char(&list, ']');
    for (int i = 1; i <= 60; i++) {
        if (search == 0) put_call(&nodes, i, "torch.sin", "{\"$node\":\"n0\"}", TYPE);
        else put_call(&nodes, i, "torch.cat", fb_buffer_text(&list), TYPE);
    }
    fb_buffer_string(&nodes, ",{\"op\":\"output\",\"name\":\"output\",\"target\":\"output\",\"args\":[[{\"$node\":\"n60\"}]]}");
    char *text = document_of(fb_buffer_text(&nodes), NULL, "");
    fb_graph *graph = read_timed(text, strlen(text), reading);
    free(text);
    fb_buffer_free(&nodes);
    fb_buffer_free(&list);
    return graph;
}

static fb_status find_search(void *context, const char *name, int version, const fb_pass **out, fb_error *error) {
    (void)name;
    *out = NULL;
    if (version > 1) return FB_OK;
    json_t *document = json_loads(context, 0, NULL);
    ck_assert_ptr_nonnull(document);
    fb_rule *rule = NULL;
    fb_status status = fb_rule_read(document, "", 1, &rule, error);
    if (!status) *out = fb_rule_pass(rule);
    json_decref(document);
    return status;
}

START_TEST(rules) {
    double reading;
    fb_graph *graph = searched_graph(_i, &reading);
    fb_pass_library library = {.find = find_search, .context = (void *)(uintptr_t)searches[_i]};
    json_t *list = json_pack("[s]", "R");
    fb_composition composition;
    fb_error error = {0};
    fb_status status = fb_composition_read(list, "", &library, &composition, &error);
    ck_assert_msg(!status, "%s %s", error.pointer, error.message);
    cpu_watch clock;
    fb_run result;
    cpu_watch_begin(&clock, 200 * MS);
    fb_run_watcher watcher = {.watch = &clock.watch};
    status = fb_composition_run(&composition, graph, FB_LINT_END, &watcher, &result, &error);
    double unasked = cpu_watch_end(&clock);
    if (!status) fb_run_free(&result);
    ck_assert_int_eq(status, _i == 0 ? FB_BUSY : FB_OK); /* the first would take for ever */
    ck_assert_msg(clock.asked >= 10, "asked %zu times", clock.asked);
    if (getenv("FOLDBACK_TIMES")) printf("%7.1f ms unasked, %zu times asked: a rule's search\n", unasked, clock.asked);
    json_decref(list);
    fb_composition_free(&composition);
    fb_graph_free(graph);
}
END_TEST

static const char *const undone[] = {"ChangeTrueDivToMulByInverse", "RemoveNoOps", "MergeViews"};
enum { UNDONE = sizeof undone / sizeof *undone };

START_TEST(undoing) {
    const struct family *family = &families[_i % FAMILIES];
    double reading;
    fb_graph *source = read_family(family, &reading);
    fb_composition composition = composition_of(undone[_i / FAMILIES]);
    fb_run result;
    ck_assert_int_eq(fb_composition_run(&composition, source, FB_LINT_END, NULL, &result, NULL), FB_OK);
    fb_buffer text = {0};
    fb_document_write(result.result, &text);
    /* strstr reads on to a 0. */
    fb_buffer_text(&text);
    for (char *shape = text.data; (shape = strstr(shape, "[2,4]")); shape++) shape[1] = '3'; /* what became of it since */
    fb_graph *ours = graph_of(fb_buffer_text(&text), text.size), *out = NULL;
    fb_undo_step step = {.call = &composition.calls[0], .is_undone = true};
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    bool is_exact;
    cpu_watch clock;
    cpu_watch_begin(&clock, 3000 * MS);
    fb_undo_plan plan = {
        .source = source, .steps = &step, .step_count = 1, .result = result.result, .ours = ours, .watch = &clock.watch};
    fb_status status = fb_undo(&plan, &out, &is_exact, &conflicts, &error);
    assert_asked_often(&clock, reading, undone[_i / FAMILIES], family->name);
    ck_assert_msg(!status || status == FB_CONFLICT || status == FB_BUSY, "%s: %s", family->name, error.message);
    if (!status) fb_graph_free(out);
    fb_conflicts_free(&conflicts);
    fb_buffer_free(&text);
    fb_graph_free(ours);
    fb_run_free(&result);
    fb_composition_free(&composition);
    fb_graph_free(source);
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("time of graphs");
    TCase *cases[] = {tcase_create("reading"), tcase_create("passes"), tcase_create("merges"),
                      tcase_create("undoing"), tcase_create("routes"), tcase_create("rules")};
    tcase_add_loop_test(cases[0], documents_are_read, 0, FAMILIES);
    tcase_add_loop_test(cases[1], passes, 0, FAMILIES);
    tcase_add_loop_test(cases[2], merges, 0, MERGINGS);
    tcase_add_loop_test(cases[3], undoing, 0, UNDONE * FAMILIES);
    tcase_add_loop_test(cases[4], routes, 0, DOINGS * FAMILIES);
    tcase_add_loop_test(cases[5], rules, 0, (int)(sizeof searches / sizeof *searches));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tcase_set_timeout(cases[i], 600);
        suite_add_tcase(suite, cases[i]);
    }
    return suite;
}

int main(void) {
    return run_timed_suite(make_suite);
}
