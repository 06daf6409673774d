#include "core/compose/run.h"

#include <stdlib.h>

#include "core/passes/lint.h"

/* The names that exist when a run starts; those that it makes are added as it goes. */
fb_namespace *fb_run_names(const fb_graph *graph) {
    fb_namespace *names = fb_namespace_new();
    bool ok = names && fb_namespace_expect(names, fb_node_count(graph));
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id; n = fb_node_at(graph, n)->next) {
        ok = fb_namespace_adopt(names, fb_node_name(graph, n));
    }
    if (ok) return names;
    fb_namespace_free(names);
    return NULL;
}

fb_status fb_pass_call_run(const fb_pass_call *call, fb_graph *graph, fb_namespace *names, fb_pass_report *report,
                           fb_arena *arena, fb_error *error) {
    report->pass = call->pass;
    report->params = fb_arena_text(arena, call->params, strlen(call->params));
    memcpy(report->signature, call->signature, sizeof report->signature);
    return report->params ? fb_pass_apply(graph, names, report, arena, error) : fb_fail_memory(error);
}

/* One pass of a run, watched; `before` is the graph as the last pass left it, made again when this one has changed it. */
static fb_status run_call(const fb_composition *composition, size_t position, fb_namespace *names,
                          const fb_run_watcher *watcher, fb_graph **before, fb_run *run, fb_error *error) {
    fb_pass_report *report = &run->passes[position];
    if (watcher && !*before && !(*before = fb_graph_copy(run->result))) return fb_fail_memory(error);
    fb_status status = fb_pass_call_run(&composition->calls[position], run->result, names, report, &run->arena, error);
    if (status || !watcher || !report->applied) return status;
    status = watcher->applied(watcher->context, position, *before, run->result, report, &run->arena, error);
    fb_graph_free(*before);
    *before = NULL;
    return status;
}

fb_status fb_composition_run_watched(const fb_composition *composition, const fb_graph *source, fb_lint lint,
                                     const fb_run_watcher *watcher, fb_run *out, fb_error *error) {
    fb_run run = {.result = fb_graph_copy(source), .count = composition->count};
    fb_namespace *names = fb_run_names(source);
    fb_graph *before = NULL;
    run.passes = calloc(composition->count + 1, sizeof *run.passes);
    fb_status status = run.result && names && run.passes ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < composition->count && !status; i++) {
        status = run_call(composition, i, names, watcher, &before, &run, error);
        bool is_last = i + 1 == composition->count;
        if (!status && (lint == FB_LINT_EACH || (lint == FB_LINT_END && is_last))) status = fb_lint_graph(run.result, error);
    }
    fb_graph_free(before);
    fb_namespace_free(names);
    if (status) fb_run_free(&run);
    else *out = run;
    return status;
}

fb_status fb_composition_run(const fb_composition *composition, const fb_graph *source, fb_lint lint, fb_run *out,
                             fb_error *error) {
    return fb_composition_run_watched(composition, source, lint, NULL, out, error);
}

void fb_run_free(fb_run *run) {
    fb_graph_free(run->result);
    free(run->passes);
    fb_arena_free(&run->arena);
    *run = (fb_run){0};
}

/* ---- the report as JSON ------------------------------------------------------------------------------------------------- */

static void write_names(const char *const *names, size_t count, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        if (i) fb_buffer_char(out, ',');
        fb_buffer_json_string(out, names[i], strlen(names[i]));
    }
    fb_buffer_char(out, ']');
}

static void write_refusal(const fb_refusal *refusal, fb_buffer *out) {
    fb_buffer_printf(out, "{\"reason\":\"%s\",\"nodes\":", refusal->reason);
    write_names(refusal->nodes, refusal->count, out);
    fb_buffer_string(out, ",\"detail\":");
    fb_buffer_json_string(out, refusal->detail, strlen(refusal->detail));
    fb_buffer_char(out, '}');
}

static void write_pass(const fb_pass_report *report, fb_buffer *out) {
    const fb_pass *pass = report->pass;
    fb_buffer_printf(out, "{\"name\":\"%s\",\"version\":%d,\"params\":", pass->name, pass->version);
    fb_buffer_string(out, report->params);
    fb_buffer_printf(
        out, ",\"signature\":\"%s\",\"reversible\":%s,\"exactness\":\"%s\",\"applied\":%zu,\"nodes\":", report->signature,
        pass->reversible ? "true" : "false", fb_exactness_name(pass->exactness), report->applied);
    write_names(report->nodes, report->node_count, out);
    fb_buffer_string(out, ",\"refused\":[");
    for (const fb_refusal *refusal = report->refused; refusal; refusal = refusal->next) {
        write_refusal(refusal, out);
        if (refusal->next) fb_buffer_char(out, ',');
    }
    fb_buffer_char(out, ']');
    if (report->detail) {
        fb_buffer_string(out, ",\"detail\":");
        fb_buffer_json_string(out, report->detail, strlen(report->detail));
    }
    if (report->validation) {
        fb_buffer_string(out, ",\"validation\":");
        fb_buffer_string(out, report->validation);
    }
    fb_buffer_char(out, '}');
}

void fb_run_report(const fb_run *run, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < run->count; i++) {
        if (i) fb_buffer_char(out, ',');
        write_pass(&run->passes[i], out);
    }
    fb_buffer_char(out, ']');
}
