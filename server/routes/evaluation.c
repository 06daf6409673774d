#include "server/routes/input.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "server/graphs/graphs.h"
#include "server/metrics/metrics.h"

/* ---- limits ------------------------------------------------------------------------------------------------------------ */

static fb_status check(void *context, fb_error *error) {
    const fb_evaluating *evaluating = context;
    fb_status status = fb_watch_check(evaluating->request, error);
    if (status || fb_monotonic_ns() < evaluating->deadline) return status;
    return fb_fail(error, FB_BUSY, "evaluation-timeout", NULL, "the evaluation took longer than it may");
}

bool fb_evaluating_begin(const fb_request *request, fb_response *response, fb_evaluating *out) {
    fb_app *app = request->context;
    const fb_evaluation_bounds *limits = &app->evaluation;
    if (atomic_fetch_add(&app->evaluations, 1) >= limits->most) {
        atomic_fetch_sub(&app->evaluations, 1);
        fb_error error = {0};
        fb_fail(&error, FB_BUSY, "too-many-evaluations", NULL, "%u graphs are being evaluated, and that is the limit",
                limits->most);
        fb_respond_error(response, &error);
        return false;
    }
    *out = (fb_evaluating){.watch = {.context = out, .check = check},
                           .request = fb_request_watch(request),
                           .deadline = fb_monotonic_ns() + (int64_t)limits->timeout_ms * 1000000,
                           .checked = {app->store, &out->watch},
                           .app = app};
    out->blobs = fb_checked_blob_source(&out->checked);
    out->options =
        (fb_eval_options){.memory_limit = limits->memory, .watch = &out->watch, .blobs = app->store ? &out->blobs : NULL};
    return true;
}

void fb_evaluating_end(fb_evaluating *evaluating) {
    atomic_fetch_sub(&evaluating->app->evaluations, 1);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------------- */

static const char *target_of(const fb_graph *graph, const char *name) {
    fb_node node = graph ? fb_node_find(graph, FB_MAIN_PROGRAM, name) : (fb_node){0};
    return node.id ? fb_node_target(graph, node) : NULL;
}

void fb_respond_evaluation_error(fb_response *response, const fb_error *error, const fb_graph *a, const fb_graph *b) {
    fb_error told = *error;
    bool is_late = error->status == FB_BUSY && !strcmp(error->code, "evaluation-timeout");
    static const char *const known[] = {"unsupported-operator", "missing-input", "missing-shape", "output-mismatch"};
    bool is_known = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) is_known |= !strcmp(error->code, known[i]);
    bool is_blob = !strcmp(error->code, "blob-too-small");
    if (error->status == FB_NOT_FOUND || is_blob) { /* the request is right: the stored graph says more than is here */
        fb_error_bytes_missing(&told);
    } else if (is_late) { /* the same request would take as long again */
        told.status = FB_INVALID;
    } else if (error->status == FB_INVALID && !is_known) {
        fb_copy_text(told.code, sizeof told.code, "evaluation-failed");
    }
    told.pointer[0] = '\0';
    fb_respond_error(response, &told);
    if (error->status != FB_INVALID || strcmp(error->code, "unsupported-operator")) return;
    const char *target = target_of(a, error->node);
    if (!target) target = target_of(b, error->node);
    if (target) fb_problem_member_take(response, "target", json_string(target));
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------ */

static bool is_input(const fb_graph *graph, const char *name) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_node_at(graph, n)->next) {
        if (fb_node_at(graph, n)->opcode == FB_PLACEHOLDER && fb_is_input_name(graph, n, name)) return true;
    }
    return false;
}

bool fb_check_inputs(fb_response *response, const fb_array_file *file, const fb_graph *a, const fb_graph *b) {
    for (size_t i = 0; i < file->count; i++) {
        const char *name = file->items[i].name;
        if (is_input(a, name) || (b && is_input(b, name))) continue;
        fb_respond_problem(response, 422, "unknown-input", "there is no input \"%.200s\" to the graph", name);
        fb_problem_member_take(response, "names", json_pack("[s]", name));
        return false;
    }
    return true;
}

/* ---- members of requests ----------------------------------------------------------------------------------------------- */

fb_status fb_read_seed(const json_t *value, const char *pointer, uint64_t *out, fb_error *error) {
    double number = json_number_value(value);
    bool is_seed = json_is_integer(value) ? json_integer_value(value) >= 0
                                          : json_is_real(value) && number >= 0 && number < 0x1p53 && number == floor(number);
    if (!is_seed) return fb_fail(error, FB_INVALID, "wrong-type", pointer, "a seed is an integer, 0 or greater");
    *out = json_is_integer(value) ? (uint64_t)json_integer_value(value) : (uint64_t)number;
    return FB_OK;
}

fb_status fb_read_tolerance(const json_t *value, const char *pointer, fb_tolerance *out, fb_error *error) {
    fb_tolerance tolerance = {0};
    const char *name;
    json_t *member;
    if (!json_is_object(value))
        return fb_fail(error, FB_INVALID, "wrong-type", pointer, "tolerance is an object: {\"absolute\": …, \"relative\": …}");
    json_object_foreach((json_t *)(uintptr_t)value, name, member) {
        char at[160];
        bool is_absolute = !strcmp(name, "absolute");
        double number = json_number_value(member);
        snprintf(at, sizeof at, "%.60s/%.64s", pointer, name);
        if (!is_absolute && strcmp(name, "relative"))
            return fb_fail(error, FB_INVALID, "unknown-member", at, "a tolerance has the members absolute and relative");
        if (!json_is_number(member) || !(number >= 0))
            return fb_fail(error, FB_INVALID, "wrong-type", at, "a tolerance is a number, 0 or greater");
        *(is_absolute ? &tolerance.absolute : &tolerance.relative) = number;
    }
    *out = tolerance;
    return FB_OK;
}
