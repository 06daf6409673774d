#include "tests/unit/undo_example.h"

#include "tests/unit/checks.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/undo.h"
#include "core/document/document.h"
#include "tests/unit/chaos.h"
#include "tests/unit/composition_part.h"
#include "tests/unit/documents.h"
#include "tests/unit/run_tests.h"

/* Texts are written with ' for ". */
static char *unquoted(const char *text) {
    char *copy = strdup(text);
    for (char *at = copy; *at; at++) {
        if (*at == '\'') *at = '"';
    }
    return copy;
}

static fb_composition composition_of(const char *quoted) {
    char *text = unquoted(quoted);
    json_t *list = json_loads(text, 0, NULL);
    fb_composition composition;
    fb_error error = {0};
    ck_assert_msg(fb_composition_read(list, "", NULL, &composition, &error) == FB_OK, "%s: %s", text, error.message);
    json_decref(list);
    free(text);
    return composition;
}

static char *text_of(const fb_graph *graph) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    return fb_buffer_take(&text, NULL);
}

static char *changed(char *document, const change *changes) {
    for (size_t i = 0; i < CHANGES_MAX && changes[i].from; i++) {
        char *from = unquoted(changes[i].from), *to = unquoted(changes[i].to), *at = strstr(document, from);
        ck_assert_msg(at != NULL, "%s is not in %s", from, document);
        ck_assert_msg(strstr(at + 1, from) == NULL, "%s is twice in %s", from, document);
        size_t size = strlen(document) - strlen(from) + strlen(to) + 1;
        char *next = malloc(size);
        snprintf(next, size, "%.*s%s%s", (int)(at - document), document, to, at + strlen(from));
        free(document);
        document = next;
        free(from);
        free(to);
    }
    return document;
}

static fb_graph *changed_graph(const fb_graph *graph, const change *changes) {
    char *text = changed(text_of(graph), changes);
    fb_graph *result = graph_of(text, strlen(text));
    free(text);
    return result;
}

static char *conflicts_text(const fb_conflicts *conflicts) {
    fb_buffer text = {0};
    for (size_t i = 0; i < conflicts->count; i++) {
        const fb_conflict *c = &conflicts->items[i];
        fb_buffer_printf(&text, "%s %s %s\n", c->code, fb_conflict_kind_name(c->kind), c->name);
        ck_assert(strlen(c->detail) > 10);
    }
    fb_buffer_string(&text, "");
    return fb_buffer_take(&text, NULL);
}

typedef struct prepared {
    fb_graph *source, *ours;
    fb_composition composition, rest;
    fb_run whole, replay;
    fb_undo_step steps[8];
    fb_undo_plan plan;
} prepared;

static prepared prepare(const undo_example *c) {
    prepared p = {.composition = composition_of(c->passes)};
    fb_error error = {0};
    char *nodes = unquoted(c->nodes), *modules = unquoted(c->modules), *tensors = unquoted(c->tensors);
    char *document = document_of(nodes, modules, tensors);
    p.source = graph_of(document, strlen(document));
    bool selected[8] = {false};
    for (const char *at = c->undone; *at; at++) selected[*at - '0'] = true;
    p.rest = composition_without(&p.composition, selected);
    ck_assert_msg(!fb_composition_run(&p.composition, p.source, FB_LINT_EACH, NULL, &p.whole, &error), "%s", error.message);
    ck_assert_msg(!fb_composition_run(&p.rest, p.source, FB_LINT_EACH, NULL, &p.replay, &error), "%s", error.message);
    for (size_t i = 0; i < p.composition.count; i++)
        p.steps[i] = (fb_undo_step){.call = &p.composition.calls[i], .is_undone = selected[i]};
    p.ours = changed_graph(p.whole.result, c->changes);
    free(nodes);
    free(modules);
    free(tensors);
    free(document);
    return p;
}

static fb_undo_plan plan_of(const prepared *p) {
    return (fb_undo_plan){
        .source = p->source, .steps = p->steps, .step_count = p->composition.count, .result = p->whole.result, .ours = p->ours};
}

static void forget(prepared *p) {
    fb_graph_free(p->source);
    fb_graph_free(p->ours);
    fb_composition_free(&p->composition);
    composition_part_free(&p->rest);
    fb_run_free(&p->whole);
    fb_run_free(&p->replay);
}

static void check_example(const undo_example *c) {
    prepared p = prepare(c);
    fb_undo_plan plan = plan_of(&p);
    fb_graph *out = NULL;
    bool is_exact = false;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    fb_status status = fb_undo(&plan, &out, &is_exact, &conflicts, &error);
    char *found = conflicts_text(&conflicts), *is = out ? text_of(out) : NULL;
    if (c->conflicts) {
        ck_assert_msg(status == FB_CONFLICT, "%s: no conflict, but %s %s", c->name, error.message, is ? is : "");
        ck_assert_msg(strcmp(found, c->conflicts) == 0, "%s: found\n%s", c->name, found);
    } else {
        ck_assert_msg(status == FB_OK, "%s: %s\n%s", c->name, error.message, found);
        fb_graph *expected = changed_graph(p.replay.result, c->expected);
        char *should = text_of(expected);
        ck_assert_msg(strcmp(is, should) == 0, "%s:\n%s\nshould be\n%s", c->name, is, should);
        ck_assert_int_eq(is_exact, c->expected[0].from == NULL);
        fb_graph_free(expected);
        free(should);
    }
    free(found);
    free(is);
    fb_conflicts_free(&conflicts);
    fb_graph_free(out);
    forget(&p);
}

static const undo_example *examples_under_test;

START_TEST(test_example) {
    check_example(&examples_under_test[_i]);
}
END_TEST

START_TEST(test_no_memory) {
    prepared p = prepare(&examples_under_test[_i]);
    fb_undo_plan plan = plan_of(&p);
    for (long k = 0;; k++) {
        fb_graph *out = NULL;
        bool is_exact = false;
        fb_conflicts conflicts = {0};
        fb_error error = {0};
        chaos_fail_after(k);
        fb_status status = fb_undo(&plan, &out, &is_exact, &conflicts, &error);
        bool has_failed = chaos_off();
        if (has_failed) ck_assert_int_eq(status, FB_NO_MEMORY);
        if (status) ck_assert_ptr_null(out);
        fb_graph_free(out);
        fb_conflicts_free(&conflicts);
        if (!has_failed) break;
    }
    forget(&p);
}
END_TEST

int undo_examples_main(const char *name, const undo_example *examples, size_t count) {
    TCase *merges = tcase_create("merges");
    examples_under_test = examples;
    tcase_set_timeout(merges, 600);
    tcase_add_loop_test(merges, test_example, 0, (int)count);
    tcase_add_loop_test(merges, test_no_memory, 0, (int)count);
    return run_tests(name, merges);
}
