#include "core/compose/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/pass/pass.h"
#include "core/weights/inputs.h"

fb_status fb_pass_call_run(const fb_pass_call *call, fb_graph_state *work, const fb_watch *watch, fb_pass_report *report,
                           fb_arena *arena, fb_error *error) {
    fb_status status = fb_watch_check(watch, error);
    if (status) return status;
    report->pass = call->pass;
    report->preset = call->preset;
    report->params = fb_arena_text(arena, call->params, strlen(call->params));
    report->chosen = call->chosen ? fb_arena_text(arena, call->chosen, strlen(call->chosen)) : NULL;
    memcpy(report->signature, call->signature, sizeof report->signature);
    if (!report->params || !report->chosen != !call->chosen) return fb_fail_memory(error);
    status = fb_pass_apply(work, watch, report, arena, error);
    if (status || !call->chosen || !report->applied) return status;
    fb_error found = {0};
    status = fb_lint_graph(work->graph, &(fb_work){.watch = watch}, &found);
    return status ? fb_fail_applied(report, &found, error) : FB_OK;
}

/* Adds up the bytes of the tensors that modules own, each once. False when memory is out. */
static bool count_bytes(const fb_graph *graph, uint64_t *out) {
    bool *is_owned = fb_owned_tensors(graph);
    *out = 0;
    for (fb_tensor t = fb_first_tensor(graph); t.id && is_owned; t = fb_tensor_at(graph, t)->next)
        if (is_owned[t.id]) *out += fb_tensor_bytes(graph, t);
    free(is_owned);
    return is_owned;
}

/* One run of a composition, as far as it is. */
typedef struct running {
    const fb_composition *composition;
    fb_graph_state work; /* on the run's result */
    fb_run_watcher watcher;
    fb_graph *before;
    fb_lint lint;
    fb_run run;
    fb_error *error;
} running;

/* One pass of a run. `before` is the graph as the last pass left it, made again when this one has changed it. */
static fb_status run_call(running *r, size_t position) {
    const fb_pass_call *call = &r->composition->calls[position];
    const fb_run_watcher *watcher = &r->watcher;
    fb_run *run = &r->run;
    fb_pass_report *report = &run->passes[run->count++];
    *report = (fb_pass_report){.position = position}; /* a round that found nothing to do may have stood there */
    fb_watch_begins(watcher->watch, call->pass->name, position, r->composition->count);
    fb_work meter = {.watch = watcher->watch};
    if (watcher->applied && !r->before && !(r->before = fb_graph_copy(run->result, &meter)))
        return fb_work_failed(&meter, r->error);
    bool counts_bytes = !call->pass->preserves_computation;
    uint64_t bytes = 0;
    if (counts_bytes && !count_bytes(run->result, &bytes)) return fb_fail_memory(r->error);
    fb_status status = fb_pass_call_run(call, &r->work, watcher->watch, report, &run->arena, r->error);
    if (status == FB_INVALID && call->pointer && r->error) { /* at the place of the call */
        fb_buffer pointer = {0};
        fb_buffer_string(&pointer, call->pointer);
        fb_buffer_string(&pointer, r->error->pointer);
        if (fb_buffer_text(&pointer)) fb_copy_text(r->error->pointer, sizeof r->error->pointer, fb_buffer_text(&pointer));
        fb_buffer_free(&pointer);
    }
    report->bytes_before = bytes;
    if (counts_bytes && !status && !count_bytes(run->result, &report->bytes_after)) status = fb_fail_memory(r->error);
    if (status || !watcher->applied || !report->applied) return status;
    status = watcher->applied(watcher->context, run->count - 1, r->before, run->result, report, &run->arena, r->error);
    fb_graph_free(r->before);
    r->before = NULL;
    return status;
}

static fb_status lint(running *r) {
    return fb_lint_graph(r->run.result, &(fb_work){.watch = r->watcher.watch}, r->error);
}

static fb_status run_calls(running *r, size_t position, size_t count) {
    fb_status status = FB_OK;
    for (size_t end = position + count; position < end && !status; position++) {
        status = run_call(r, position);
        if (!status && r->lint == FB_LINT_EACH) status = lint(r);
    }
    return status;
}

/* Have the last so many calls applied nothing? */
static bool was_idle(const fb_run *run, size_t count) {
    for (size_t i = run->count - count; i < run->count; i++) {
        if (run->passes[i].applied) return false;
    }
    return true;
}

/* One more round of a preset; gives where to go on. It ends where as many calls as a round has applied nothing, one after the
 * other: each of them has then looked at the graph as it is, and would find what it found. A round that applies nothing is the
 * last one, and not a part of the run. */
static fb_status run_round(running *r, size_t position, size_t *next) {
    const fb_pass_call *call = &r->composition->calls[position];
    size_t size = call->round_size, done = 0;
    *next = position + size * call->rounds_left;
    fb_status status = FB_OK;
    while (done < size && !status && !was_idle(&r->run, size)) status = run_calls(r, position + done++, 1);
    if (status) return status;
    if (was_idle(&r->run, done)) r->run.count -= done;
    else *next = position + size;
    return FB_OK;
}

fb_status fb_composition_run(const fb_composition *composition, const fb_graph *source, fb_lint lint_when,
                             const fb_run_watcher *watcher, fb_run *out, fb_error *error) {
    fb_work meter = {.watch = watcher ? watcher->watch : NULL};
    running r = {
        .composition = composition,
        .watcher = watcher ? *watcher : (fb_run_watcher){0},
        .lint = lint_when,
        .run = {.result = fb_graph_copy(source, &meter), .passes = calloc(composition->count + 1, sizeof *r.run.passes)},
        .error = error};
    r.work = (fb_graph_state){.graph = r.run.result,
                              .names = fb_namespace_of(source, &meter),
                              .blobs = watcher ? watcher->blobs : NULL,
                              .names_matches = r.watcher.names_matches,
                              .may_lack_matches = r.watcher.may_lack_matches};
    fb_status status = r.run.result && r.work.names && r.run.passes ? FB_OK : fb_work_failed(&meter, error);
    for (size_t i = 0; i < composition->count && !status;) {
        if (composition->calls[i].round_size) status = run_round(&r, i, &i);
        else status = run_calls(&r, i++, 1);
    }
    if (!status && lint_when == FB_LINT_END && composition->count) status = lint(&r);
    fb_graph_free(r.before);
    fb_graph_state_forget(&r.work);
    fb_namespace_free(r.work.names);
    if (status) fb_run_free(&r.run);
    else *out = r.run;
    return status;
}

#define STEPS_OF_A_NAME 8

static void write_names(const char *const *names, size_t count, fb_work *work, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < count && fb_work_goes_on(work, STEPS_OF_A_NAME); i++) {
        if (i) fb_buffer_char(out, ',');
        fb_buffer_json_string(out, names[i], strlen(names[i]));
    }
    fb_buffer_char(out, ']');
}

static char *write_only(const fb_match_names *names) {
    fb_buffer text = {0};
    fb_buffer_string(&text, "{\"only\":");
    write_names(names->items, names->count, &(fb_work){0}, &text);
    fb_buffer_char(&text, '}');
    return fb_buffer_take(&text, NULL);
}

fb_status fb_composition_run_part(const fb_composition *composition, const fb_run_part *part, const fb_graph *source,
                                  const fb_run_watcher *watcher, fb_run *out, fb_error *error) {
    fb_composition some = {.calls = calloc(part->passes + 1, sizeof *some.calls), .count = part->passes};
    fb_status status = some.calls ? FB_OK : fb_fail_memory(error);
    if (!status && part->passes) memcpy(some.calls, composition->calls, part->passes * sizeof *some.calls);
    for (size_t i = 0; i < part->passes && !status; i++) {
        bool is_whole = !part->only || !part->only[i].items;
        if (!is_whole && !(some.calls[i].chosen = write_only(&part->only[i]))) status = fb_fail_memory(error);
    }
    if (!status) status = fb_composition_run(&some, source, FB_LINT_END, watcher, out, error);
    for (size_t i = 0; i < part->passes && some.calls; i++)
        if (some.calls[i].chosen != composition->calls[i].chosen) free(some.calls[i].chosen);
    free(some.calls);
    return status;
}

void fb_run_free(fb_run *run) {
    fb_graph_free(run->result);
    free(run->passes);
    fb_arena_free(&run->arena);
    *run = (fb_run){0};
}

/* ---- the report as JSON ------------------------------------------------------------------------------------------------- */

static void write_refusal(const fb_refusal *refusal, fb_work *work, fb_buffer *out) {
    fb_buffer_printf(out, "{\"reason\":\"%s\",\"nodes\":", refusal->reason);
    write_names(refusal->nodes, refusal->count, work, out);
    fb_buffer_string(out, ",\"detail\":");
    fb_buffer_json_string(out, refusal->detail, strlen(refusal->detail));
    fb_buffer_char(out, '}');
}

static void write_pass(const fb_pass_report *report, fb_work *work, fb_buffer *out) {
    const fb_pass *pass = report->pass;
    fb_buffer_printf(out, "{\"name\":\"%s\",\"version\":%d,\"params\":", pass->name, pass->version);
    fb_buffer_string(out, report->params);
    fb_put_chosen(out, report->chosen);
    fb_buffer_printf(
        out, ",\"signature\":\"%s\",\"reversible\":%s,\"exactness\":\"%s\",\"applied\":%zu,\"nodes\":", report->signature,
        pass->reversible ? "true" : "false", fb_exactness_name(fb_report_exactness(report)), report->applied);
    write_names(report->nodes, report->node_count, work, out);
    if (report->matches) {
        fb_buffer_string(out, ",\"matches\":");
        write_names(report->matches, report->match_count, work, out);
    }
    fb_buffer_string(out, ",\"refused\":[");
    const fb_refusal *refusal = report->refused;
    for (; refusal && fb_work_goes_on(work, 4 * STEPS_OF_A_NAME); refusal = refusal->next) {
        write_refusal(refusal, work, out);
        if (refusal->next) fb_buffer_char(out, ',');
    }
    fb_buffer_char(out, ']');
    if (report->inserted_count) {
        fb_buffer_string(out, ",\"inserted\":");
        write_names(report->inserted, report->inserted_count, work, out);
    }
    if (report->preset) fb_buffer_printf(out, ",\"preset\":\"%s\"", report->preset);
    if (report->bytes_before != report->bytes_after)
        fb_buffer_printf(out, ",\"weight_bytes\":{\"before\":%" PRIu64 ",\"after\":%" PRIu64 "}", report->bytes_before,
                         report->bytes_after);
    if (report->expected_loss && report->applied) {
        fb_buffer_string(out, ",\"expected_loss\":");
        fb_buffer_string(out, report->expected_loss);
    }
    if (report->detail) {
        fb_buffer_string(out, ",\"detail\":");
        fb_buffer_json_string(out, report->detail, strlen(report->detail));
    }
    if (report->layout) {
        fb_buffer_string(out, ",\"layout\":");
        fb_buffer_string(out, report->layout);
    }
    if (report->validation) {
        fb_buffer_string(out, ",\"validation\":");
        fb_buffer_string(out, report->validation);
    }
    fb_buffer_char(out, '}');
}

bool fb_run_report(const fb_run *run, fb_work *work, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < run->count; i++) {
        if (i) fb_buffer_char(out, ',');
        write_pass(&run->passes[i], work, out);
    }
    fb_buffer_char(out, ']');
    return !out->failed && !work->stopped.status;
}
