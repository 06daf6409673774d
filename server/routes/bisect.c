/* POST /v1/runs/{run}/bisect: which match of which pass makes a run's result compute something else. */
#include <stdlib.h>
#include <string.h>

#include "core/compose/changes.h"
#include "core/compose/run.h"
#include "core/json/json.h"
#include "server/history/history.h"
#include "server/metrics/metrics.h"
#include "server/routes/judging.h"
#include "server/routes/routes.h"

typedef struct bisection {
    const fb_request *request;
    fb_request_body body;
    fb_judging_request asked;
    fb_graph_input against;
    int64_t output; /* the only one that counts; -1 = all */
    fb_history history;
    fb_shared_graph *source;
    const fb_past_run *past;
    const fb_graph *a; /* what the parts are compared with */
    fb_evaluating evaluating;
    fb_change_set changes; /* of an external run, whose matches are groups of them */
    fb_run whole;          /* with the names of its matches */
    fb_bisected found;
    fb_graph *rest;      /* of an external run */
    fb_run shown;        /* the part of the run that was found to be wrong */
    fb_judgement judged; /* of that; where nothing was found, of the whole run */
} bisection;

/* ---- one part of the run ------------------------------------------------------------------------------------------------ */

/* An external pass is known by what it made of what. */
static fb_status apply_part(bisection *work, const fb_run_part *part, fb_run *out, fb_error *error) {
    fb_work meter = {.watch = fb_request_watch(work->request)};
    const fb_match_names *chosen = part->passes && part->only && part->only[0].items ? &part->only[0] : NULL;
    *out = (fb_run){0};
    if (chosen) return fb_changes_apply(&work->changes, chosen, &meter, &out->result, error);
    out->result = fb_graph_copy(part->passes ? work->past->after->graph : work->source->graph, &meter);
    return out->result ? FB_OK : fb_work_failed(&meter, error);
}

static fb_status run_part(bisection *work, const fb_run_part *part, fb_run *out, fb_error *error) {
    if (work->past->after) return apply_part(work, part, out, error);
    const fb_run_watcher watcher = {.watch = fb_request_watch(work->request),
                                    .blobs = fb_run_knew_numbers(&work->past->run) ? &work->evaluating.blobs : NULL,
                                    .names_matches = true};
    return fb_composition_run_part(&work->past->composition, part, work->source->graph, &watcher, out, error);
}

static fb_status judge_graph(bisection *work, const fb_graph *graph, fb_judgement *out, fb_error *error) {
    work->evaluating.deadline = fb_monotonic_ns() + (int64_t)work->evaluating.app->evaluation.timeout_ms * 1000000;
    fb_judging judging = fb_judging_of(&work->asked, &work->evaluating);
    return fb_judge_graphs(work->a, graph, &judging, out, error);
}

/* Of one output alone, if that was asked for. */
static fb_verdict verdict_of(const bisection *work, const fb_judgement *found) {
    bool is_one = work->output >= 0 && (size_t)work->output < found->count;
    return is_one ? found->outputs[work->output].verdict : found->verdict;
}

static fb_outcome outcome_of(fb_verdict verdict) {
    if (verdict == FB_VERDICT_DIFFERS) return FB_OUTCOME_BAD;
    return verdict == FB_VERDICT_NOT_EVALUATED ? FB_OUTCOME_UNKNOWN : FB_OUTCOME_GOOD;
}

static bool is_absent(const fb_error *error) {
    return !strcmp(error->code, "unknown-match") || !strcmp(error->code, "matches-depend");
}

/* Too slow for one part is no end of the search. */
static bool is_late(const fb_error *error) {
    return !strcmp(error->code, "evaluation-timeout");
}

static fb_status judge_part(void *context, const fb_run_part *part, fb_outcome *out, fb_error *error) {
    bisection *work = context;
    fb_run run;
    fb_error why = {0};
    fb_judgement found;
    fb_status status = run_part(work, part, &run, &why);
    *out = FB_OUTCOME_ABSENT;
    if (status && is_absent(&why)) return FB_OK;
    if (!status) {
        status = judge_graph(work, run.result, &found, &why);
        fb_run_free(&run);
    }
    *out = FB_OUTCOME_UNKNOWN;
    if (status && is_late(&why)) return FB_OK;
    if (status) {
        if (error) *error = why;
        return status;
    }
    *out = outcome_of(verdict_of(work, &found));
    fb_judgement_free(&found);
    return FB_OK;
}

static fb_status list_matches(void *context, size_t position, fb_match_names *out, fb_error *error) {
    const bisection *work = context;
    (void)error;
    if (work->past->after) {
        *out = work->changes.names;
        return FB_OK;
    }
    const fb_pass_report *report = &work->whole.passes[position];
    *out = (fb_match_names){report->matches, report->match_count};
    return FB_OK;
}

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static fb_status read_members(bisection *work, fb_error *error) {
    const json_t *output = json_object_get(work->body.members, "output");
    work->output = json_is_integer(output) ? json_integer_value(output) : -1;
    if (output && work->output < 0)
        return fb_fail(error, FB_INVALID, "wrong-type", "/output", "output is the number of an output, counted from 0");
    return fb_judging_read(work->body.members, &work->asked, error);
}

static bool find_run(const fb_request *request, fb_response *response, bisection *work) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "run");
    fb_error error = {0};
    fb_store_run run = {0};
    fb_status status = fb_store_get_run(app->store, id, &run, &error);
    bool is_undoable = !status && fb_run_is_undoable(&run);
    if (!status && !is_undoable)
        fb_respond_problem(response, 409, "not-an-optimize-run",
                           "%s is a %s; only what an optimize or an external run did has matches", id, run.kind);
    FB_STORE_FREE(&run);
    if (is_undoable) status = fb_history_add(app, fb_request_watch(request), &work->history, id, false, &error);
    if (!status && is_undoable)
        status = fb_load_graph(app, fb_request_watch(request), work->history.source, &work->source, &error);
    if (status) fb_respond_error(response, &error);
    if (status || !is_undoable) return false;
    work->past = work->history.runs[0];
    work->a = work->against.shared ? work->against.shared->graph : work->source->graph;
    return true;
}

/* ---- the search --------------------------------------------------------------------------------------------------------- */

/* The part of the run that shows the difference, and nothing but it where the search found so much. */
static fb_status run_shown(bisection *work, fb_error *error) {
    const fb_bisected *found = &work->found;
    size_t passes = found->count ? found->matches[0].position + 1 : work->past->run.pass_count;
    fb_match_names *only = calloc(passes + 1, sizeof *only);
    const char **items = calloc(found->count + 1, sizeof *items);
    fb_run_part part = {.passes = found->is_source_bad ? 0 : passes, .only = found->is_smallest ? only : NULL};
    fb_status status = only && items ? FB_OK : fb_fail_memory(error);
    for (size_t position = 0, used = 0; position < passes && !status; position++) {
        only[position].items = items + used;
        for (size_t i = 0; i < found->count && found->is_smallest; i++) {
            if (found->matches[i].position != position) continue;
            items[used++] = found->matches[i].name;
            only[position].count++;
        }
    }
    if (!status) status = run_part(work, &part, &work->shown, error);
    if (!status) status = judge_graph(work, work->shown.result, &work->judged, error);
    free(only);
    free(items);
    return status;
}

static fb_status make_rest(bisection *work, fb_error *error) {
    const fb_match_names *all = &work->changes.names;
    const char **items = calloc(all->count + 1, sizeof *items);
    fb_match_names others = {items, 0};
    fb_work meter = {.watch = fb_request_watch(work->request)};
    if (!items) return fb_fail_memory(error);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i], work->found.matches[0].name) != 0) items[others.count++] = all->items[i];
    fb_status status = fb_changes_apply(&work->changes, &others, &meter, &work->rest, error);
    free(items);
    return status;
}

static fb_status search(bisection *work, fb_error *error) {
    const fb_store_run *run = &work->past->run;
    const fb_bisect_oracle oracle = {work, judge_part, list_matches};
    bool *is_active = calloc(run->pass_count + 1, sizeof *is_active);
    fb_status status = is_active ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < run->pass_count && !status; i++) is_active[i] = run->passes[i].applied > 0;
    fb_work meter = {.watch = fb_request_watch(work->request)};
    if (!status && work->past->after)
        status = fb_changes_find(work->source->graph, work->past->after->graph, &meter, &work->changes, error);
    if (!status) status = run_part(work, &(fb_run_part){.passes = run->pass_count}, &work->whole, error);
    if (!status) status = fb_bisect(&oracle, is_active, run->pass_count, work->against.shared != NULL, &work->found, error);
    if (!status) status = run_shown(work, error);
    if (!status && work->past->after && work->found.count && work->found.matches[0].name) status = make_rest(work, error);
    free(is_active);
    return status;
}

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

static void put_pass(const bisection *work, size_t position, fb_buffer *out) {
    const fb_store_pass *pass = &work->past->run.passes[position];
    fb_put_name(out, "pass");
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", pass->name);
    fb_put_int(out, "version", pass->version);
    fb_put_int(out, "position", (int64_t)position);
    fb_buffer_char(out, '}');
}

/* The nodes of a group of changes, of the result, or of the source where they were erased. */
static void put_changed_nodes(const fb_change_set *changes, const char *match, fb_buffer *out) {
    size_t group = 0;
    while (group < changes->names.count && strcmp(changes->names.items[group], match) != 0) group++;
    for (int is_before = 0; is_before < 2; is_before++) {
        const fb_graph *graph = is_before ? changes->before : changes->after;
        const uint32_t *groups = is_before ? changes->group_before : changes->group_after;
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
            const char *name = fb_node_name(graph, n);
            if (groups[n.id] != group + 1 || (is_before && fb_node_find(changes->after, FB_MAIN_PROGRAM, name).id)) continue;
            fb_put_comma(out);
            fb_buffer_json_string(out, name, strlen(name));
        }
    }
}

/* The nodes that the pass marked in that part of the run; of a pass that marks none the match's own name. */
static void put_nodes(const bisection *work, const fb_found_match *match, fb_buffer *out) {
    const fb_pass_report *report = match->position < work->shown.count ? &work->shown.passes[match->position] : NULL;
    fb_put_name(out, "nodes");
    fb_buffer_char(out, '[');
    if (work->past->after && match->name) put_changed_nodes(&work->changes, match->name, out);
    for (size_t i = 0; report && i < report->node_count; i++) {
        fb_put_comma(out);
        fb_buffer_json_string(out, report->nodes[i], strlen(report->nodes[i]));
    }
    if (match->name && !work->past->after && !(report && report->node_count))
        fb_buffer_json_string(out, match->name, strlen(match->name));
    fb_buffer_char(out, ']');
}

static void put_match(const bisection *work, const fb_found_match *match, fb_buffer *out) {
    put_pass(work, match->position, out);
    fb_put_text_or_null(out, "match", match->name);
    put_nodes(work, match, out);
}

/* The counterexample of the first output that differs, as that output has it. */
static void put_counterexample(const bisection *work, fb_buffer *out) {
    const fb_judgement *judged = &work->judged;
    size_t i = 0;
    while (i < judged->count && !judged->outputs[i].has_counterexample) i++;
    const fb_judged none = {0};
    fb_counterexample_write(i < judged->count ? &judged->outputs[i] : &none, work->asked.seed, NULL, out);
}

/* Writes an external pass without the match, as POST /v1/runs takes it. */
static void put_external_rest(const bisection *work, fb_buffer *out) {
    const fb_store_run *run = &work->past->run;
    fb_put_text(out, "source", work->history.source);
    fb_put_text(out, "name", run->passes[0].name);
    fb_put_int(out, "version", run->passes[0].version);
    fb_put_name(out, "result");
    fb_document_write(work->rest, out);
}

/* The run without the match: what POST /v1/optimize takes, or of an external run POST /v1/runs. */
static void put_rest(const bisection *work, fb_buffer *out) {
    static const char *const names[] = {"passes", "differs", "not-evaluated", "not-evaluated"};
    const fb_found_match *match = work->found.count ? work->found.matches : NULL;
    const fb_composition *composition = &work->past->composition;
    fb_put_name(out, "rest");
    if (!match || !match->name) {
        fb_buffer_string(out, "null");
        return;
    }
    fb_buffer_char(out, '{');
    fb_put_text(out, "verdict", names[work->found.rest]);
    fb_put_name(out, "request");
    fb_buffer_char(out, '{');
    if (work->past->after) {
        put_external_rest(work, out);
    } else {
        fb_put_text(out, "graph", work->history.source);
        fb_put_name(out, "passes");
        fb_composition_write_without(composition, match->position, match->name, out);
    }
    fb_buffer_string(out, "}}");
}

static void answer(fb_response *response, const bisection *work) {
    const fb_bisected *found = &work->found;
    fb_buffer out = {0};
    fb_buffer_char(&out, '{');
    fb_put_text(&out, "run", work->past->run.id);
    fb_put_bool(&out, "found", found->count > 0);
    if (found->count) {
        put_match(work, &found->matches[0], &out);
    } else {
        fb_buffer_string(&out, ",\"pass\":null,\"match\":null,\"nodes\":[]");
    }
    fb_put_name(&out, "matches");
    fb_buffer_char(&out, '[');
    for (size_t i = 0; i < found->count; i++) {
        fb_put_comma(&out);
        fb_buffer_char(&out, '{');
        put_match(work, &found->matches[i], &out);
        fb_buffer_char(&out, '}');
    }
    fb_buffer_char(&out, ']');
    fb_put_bool(&out, "is_smallest", found->is_smallest);
    fb_put_name(&out, "unclear_from");
    if (found->count && found->first < found->matches[0].position) fb_buffer_int(&out, (int64_t)found->first);
    else fb_buffer_string(&out, "null");
    fb_put_bool(&out, "source_differs", found->is_source_bad);
    fb_judgement_write(&work->judged, work->asked.seed, NULL, &out);
    put_counterexample(work, &out);
    put_rest(work, &out);
    fb_put_name(&out, "steps");
    fb_buffer_char(&out, '{');
    fb_put_int(&out, "passes", (int64_t)found->pass_steps);
    fb_put_int(&out, "matches", (int64_t)found->match_steps);
    fb_put_int(&out, "all", (int64_t)found->steps);
    fb_buffer_string(&out, "}}");
    fb_respond_json_buffer_take(response, 200, &out);
}

static void bisect(const fb_request *request, fb_response *response, bisection *work) {
    fb_error error = {0};
    if (!fb_judging_read_inputs(request, response, &work->asked, &work->evaluating, work->a, work->source->graph)) return;
    if (search(work, &error)) fb_respond_evaluation_error(response, &error, work->a, work->source->graph);
    else answer(response, work);
}

static void post_bisect(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"against", "output", FB_JUDGING_MEMBERS, NULL};
    bisection work = {.request = request};
    fb_error error = {0};
    if (!fb_body_read(request, response, known, &work.body)) return;
    bool has_against = work.body.pair[0] || json_object_get(work.body.members, "against");
    if (read_members(&work, &error)) {
        fb_respond_error(response, &error);
    } else if ((!has_against || fb_graph_input_pair(request, response, &work.body, 0, "against", &work.against)) &&
               find_run(request, response, &work) && fb_evaluating_begin(request, response, &work.evaluating)) {
        bisect(request, response, &work);
        fb_evaluating_end(&work.evaluating);
    }
    fb_judgement_free(&work.judged);
    fb_graph_free(work.rest);
    fb_changes_free(&work.changes);
    fb_run_free(&work.shown);
    fb_bisected_free(&work.found);
    fb_run_free(&work.whole);
    fb_array_file_free(&work.asked.file);
    fb_share_release(work.source);
    fb_history_free(&work.history);
    fb_graph_input_free(&work.against);
    fb_request_body_free(&work.body);
}

const fb_route fb_bisect_routes[] = {
    {.method = "POST",
     .pattern = "/v1/runs/{run}/bisect",
     .handler = post_bisect,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_READ,
     .body = FB_BODY_OPTIONAL,
     .query = ""},
    {0},
};
