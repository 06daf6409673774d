/* Work on large graphs ends soon after it is to stop, wherever it is: it is let go on to its end, and the longest time that it
 * did not ask is what it would have gone on for. */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "core/graph/document.h"
#include "core/passes/known.h"
#include "tests/unit/cpu_watch.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

#define TYPE "\"meta\":{\"shape\":[2,4],\"dtype\":\"float32\"}"
enum { NODES = 60000 };

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

static fb_graph *read_family(const struct family *family) {
    size_t size;
    char *text = document(family, NODES, &size);
    fb_graph *graph = graph_of(text, size);
    free(text);
    return graph;
}

static void assert_asked(cpu_watch *clock, const char *what, const char *of) {
    double unasked = cpu_watch_end(clock);
    if (getenv("FOLDBACK_TIMES")) printf("%7.1f ms unasked: %s of %s\n", unasked, what, of);
    ck_assert_msg(unasked * (double)MS <= (double)MOST_UNASKED || getenv("FOLDBACK_TIMES"), "%s of %s: not asked for %.1f ms",
                  what, of, unasked);
}

START_TEST(reading) {
    const struct family *family = &families[_i];
    size_t size;
    char *text = document(family, NODES, &size);
    cpu_watch clock;
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    cpu_watch_begin(&clock, 0);
    fb_document_limits limits = {.watch = &clock.watch};
    ck_assert_int_eq(fb_document_read(text, size, &limits, "", &graph, &errors), FB_OK);
    assert_asked(&clock, "reading", family->name);
    fb_graph_free(graph);
    free(text);
}
END_TEST

static fb_composition composition_of(const char *name) {
    json_t *list = json_pack("[s]", name);
    fb_composition composition = {0};
    fb_error error = {0};
    if (fb_composition_read(list, "", &composition, &error)) composition.count = 0; /* it needs parameters */
    json_decref(list);
    return composition;
}

static void run(const struct family *family, const fb_graph *graph, const char *name) {
    fb_composition composition = composition_of(name);
    cpu_watch clock;
    fb_run result;
    fb_error error = {0};
    cpu_watch_begin(&clock, 3000 * MS);
    fb_run_watcher watcher = {.watch = &clock.watch};
    fb_status status =
        composition.count ? fb_composition_run_watched(&composition, graph, FB_LINT_END, &watcher, &result, &error) : FB_BUSY;
    assert_asked(&clock, name, family->name);
    ck_assert_msg(!status || status == FB_BUSY || status == FB_TOO_LARGE, "%s: %s", name, error.message);
    if (!status) fb_run_free(&result);
    fb_composition_free(&composition);
}

START_TEST(passes) {
    const struct family *family = &families[_i];
    fb_graph *graph = read_family(family);
    for (size_t i = 0; fb_pass_at(i); i++) run(family, graph, fb_pass_at(i)->name);
    run(family, graph, "cleanup");
    fb_graph_free(graph);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("time of graphs");
    tcase_add_loop_test(tests, reading, 0, FAMILIES);
    tcase_add_loop_test(tests, passes, 0, FAMILIES);
    tcase_set_timeout(tests, 600);
    return run_tests("time of graphs", tests);
}
