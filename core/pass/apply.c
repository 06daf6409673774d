/* Applying a pass: match everything, then edit everything, then list what was marked. */
#include <string.h>

#include "core/base/map.h"
#include "core/json/json.h"
#include "core/pass/pass.h"

/* Candidates that an earlier run of this pass made are not looked at again. */
static void refuse_marked(fb_matcher *matcher, fb_node node) {
    fb_refuse_node(matcher, "already-transformed", node, "%s was transformed by this pass before",
                   fb_node_name(matcher->graph, node));
}

static void match_all(fb_matcher *matcher, const fb_pass *pass) {
    const fb_graph *graph = matcher->graph;
    if (pass->match_graph) {
        pass->match_graph(matcher);
        return;
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(matcher); n = fb_next_node(graph, n)) {
        if (fb_is_marked(matcher, n)) refuse_marked(matcher, n);
        pass->match(matcher, n);
    }
}

static void edit_all(fb_rewrite *rewrite, const fb_pass *pass, const fb_matcher *matcher, size_t *applied) {
    const char *at = matcher->found->data, *end = at + matcher->found->size;
    for (size_t size; at < end; at += size + -size % sizeof size, (*applied)++) {
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        fb_match match = {.pass = pass,
                          .data = at,
                          .nodes = (const fb_node *)(const void *)at,
                          .count = size / sizeof(fb_node),
                          .params = matcher->params,
                          .plan = matcher->plan};
        pass->edit(rewrite, &match);
    }
}

/* The nodes that carry the signature now and did not before: a pass marks no node twice, so these are all that it marked,
 * less those which carried it from an earlier run. */
static bool list_marked(const fb_graph *graph, fb_pass_report *report, const fb_map *marked_before, fb_arena *arena) {
    fb_buffer names = {0};
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        if (!fb_node_is_marked(graph, n, report->signature) || fb_map_get(marked_before, n.id)) continue;
        const char *name = fb_arena_text(arena, fb_node_name(graph, n), strlen(fb_node_name(graph, n)));
        if (!name) names.failed = true;
        fb_buffer_append(&names, &name, sizeof name);
    }
    const char **list = fb_arena_alloc(arena, names.size + 1);
    bool ok = list && !names.failed;
    if (ok && names.size) memcpy(list, names.data, names.size);
    if (ok) {
        report->nodes = list;
        report->node_count = names.size / sizeof *list;
    }
    fb_buffer_free(&names);
    return ok;
}

static const char *keep_name(const fb_graph *graph, fb_node node, fb_arena *arena) {
    return fb_arena_text(arena, fb_node_name(graph, node), strlen(fb_node_name(graph, node)));
}

static bool list_absorbed(const fb_graph *graph, const fb_rewrite *rewrite, fb_pass_report *report, fb_arena *arena) {
    const fb_buffer *pairs = fb_rewrite_absorbed(rewrite);
    const fb_node *nodes = (const fb_node *)(const void *)pairs->data;
    size_t count = pairs->size / (2 * sizeof *nodes);
    fb_absorbed *list = fb_arena_alloc(arena, (count + 1) * sizeof *list);
    bool ok = list != NULL;
    for (size_t i = 0; i < count && ok; i++) {
        list[i] = (fb_absorbed){.node = keep_name(graph, nodes[2 * i], arena), .by = keep_name(graph, nodes[2 * i + 1], arena)};
        ok = list[i].node && list[i].by;
    }
    if (ok) {
        report->absorbed = list;
        report->absorbed_count = count;
    }
    return ok;
}

static bool collect_marked(const fb_graph *graph, const char *signature, fb_map *marked) {
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        if (fb_node_is_marked(graph, n, signature) && !fb_map_put(marked, n.id, 1)) return false;
    }
    return true;
}

static fb_status apply_found(fb_graph *graph, fb_namespace *names, fb_pass_report *report, const fb_matcher *matcher,
                             fb_error *error) {
    fb_arena *arena = matcher->arena;
    fb_map marked_before = {0};
    fb_rewrite *rewrite = NULL;
    fb_status status = FB_OK;
    if (!collect_marked(graph, report->signature, &marked_before)) status = fb_fail_memory(error);
    if (!status && !(rewrite = fb_rewrite_begin(graph, names, report->signature))) status = fb_fail_memory(error);
    if (!status) {
        fb_rewrite_watch(rewrite, matcher->work->watch);
        edit_all(rewrite, report->pass, matcher, &report->applied);
        if (list_marked(graph, report, &marked_before, arena) && list_absorbed(graph, rewrite, report, arena)) {
            status = fb_rewrite_commit(rewrite, error); /* the last thing that can fail */
        } else {
            fb_rewrite_abort(rewrite);
            status = fb_fail_memory(error);
        }
    }
    fb_map_free(&marked_before);
    return status;
}

static fb_status inspect(const fb_graph *graph, fb_work *work, fb_pass_report *report, fb_arena *arena, fb_error *error) {
    fb_buffer detail = {0};
    fb_status status = report->pass->inspect(graph, work, &detail, error);
    if (!status) {
        report->detail = fb_arena_text(arena, detail.data ? detail.data : "", detail.size);
        if (!report->detail || detail.failed) status = fb_fail_memory(error);
    }
    fb_buffer_free(&detail);
    return status;
}

void fb_graph_state_forget(fb_graph_state *work) {
    fb_alias_free(work->alias);
    fb_usage_free(work->usage);
    work->alias = NULL;
    work->usage = NULL;
}

fb_status fb_pass_apply(fb_graph_state *work, const fb_watch *watch, fb_pass_report *report, fb_arena *arena, fb_error *error) {
    fb_work meter = {.watch = watch};
    if (report->pass->inspect) return inspect(work->graph, &meter, report, arena, error);
    fb_buffer found = {0};
    json_t *params = fb_load_json(report->params);
    if (!work->usage) work->usage = fb_usage_new(work->graph);
    fb_matcher matcher = {.graph = work->graph,
                          .usage = work->usage,
                          .alias = &work->alias,
                          .signature = report->signature,
                          .params = params,
                          .report = report,
                          .arena = arena,
                          .found = &found,
                          .work = &meter,
                          .blobs = work->blobs,
                          .failed = !params || !work->usage};
    if (!matcher.failed) match_all(&matcher, report->pass);
    if (found.size) fb_graph_state_forget(work);
    fb_status status = FB_OK;
    if (matcher.failed || meter.stopped.status) status = fb_work_failed(&meter, error);
    else if (matcher.is_too_much)
        status = fb_fail(error, FB_TOO_LARGE, "report-too-large", "",
                         "what the passes refuse does not fit into a report of %zu MiB", FB_REPORT_MAX >> 20);
    else if (found.size) status = apply_found(work->graph, work->names, report, &matcher, error);
    fb_buffer_free(&found);
    json_decref(params);
    return status;
}
