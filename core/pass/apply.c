/* Applying a pass: match everything, then edit everything, then list what was marked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/json/json.h"
#include "core/pass/pass.h"

/* Candidates that an earlier run of this pass made are not looked at again. */
static void refuse_marked(fb_matcher *matcher, fb_node node) {
    fb_refuse_node(matcher, "already-transformed", node, "%s was transformed by this pass before",
                   fb_node_name(matcher->graph, node));
}

void fb_match_nothing(fb_matcher *matcher) {
    (void)matcher;
}

static void match_all(fb_matcher *matcher, const fb_pass *pass) {
    const fb_graph *graph = matcher->graph;
    bool is_own = pass->match_onnx && fb_graph_is_onnx(graph);
    if (is_own || pass->match_graph) {
        (is_own ? pass->match_onnx : pass->match_graph)(matcher);
        return;
    }
    if (pass->begins_at && !matcher->has_signature) {
        fb_candidates all = {.matcher = matcher, .begins_at = pass->begins_at};
        for (fb_node n; (n = fb_next_candidate(&all)).id;) pass->match(matcher, n);
        return;
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(matcher); n = fb_next_node(graph, n)) {
        if (fb_is_marked(matcher, n)) refuse_marked(matcher, n);
        pass->match(matcher, n);
    }
}

/* A match as it was edited. */
typedef struct edited_match {
    const char *name;          /* of its first node; "" = it touches none */
    size_t first_named, named; /* the names that its new nodes got, among all of the rewrite */
    bool is_left_out;
} edited_match;

typedef struct edited_matches {
    edited_match *items;
    size_t count;
    fb_made_name *made; /* by the rewrite that they were edited in first */
} edited_matches;

static size_t count_matches(const fb_matcher *matcher) {
    size_t count = 0;
    const char *at = matcher->found->data, *end = at + matcher->found->size;
    for (size_t size; at < end; at += sizeof size + size + -size % sizeof size, count++) memcpy(&size, at, sizeof size);
    return count;
}

static size_t count_made(const fb_rewrite *rewrite) {
    return fb_rewrite_made_names(rewrite)->size / sizeof(fb_made_name);
}

static const char *keep_name(const fb_graph *graph, fb_node node, fb_arena *arena) {
    fb_symbol name = fb_node_at(graph, node)->name;
    return fb_arena_text(arena, fb_text(graph, name), fb_text_length(graph, name));
}

static const char *first_name(fb_rewrite *rewrite, fb_arena *arena) {
    fb_node node = fb_rewrite_first_node(rewrite);
    return node.id ? keep_name(fb_rewrite_graph(rewrite), node, arena) : fb_arena_text(arena, "", 0);
}

/* Edits the matches that are not left out. `matches` may be NULL; their names are noted unless they have some. False when
 * memory is out. */
static bool edit_all(fb_rewrite *rewrite, const fb_pass *pass, const fb_matcher *matcher, edited_matches *matches,
                     size_t *applied) {
    const char *at = matcher->found->data, *end = at + matcher->found->size;
    size_t index = 0;
    bool ok = true;
    for (size_t size; at < end && ok; at += size + -size % sizeof size, index++) {
        memcpy(&size, at, sizeof size);
        at += sizeof size;
        edited_match *one = matches ? &matches->items[index] : NULL;
        if (one && one->is_left_out) continue;
        fb_match match = {.pass = pass,
                          .data = at,
                          .nodes = (const fb_node *)(const void *)at,
                          .count = size / sizeof(fb_node),
                          .params = matcher->params,
                          .plan = matcher->plan};
        size_t first = one ? count_made(rewrite) : 0;
        if (one) fb_rewrite_begin_match(rewrite, matches->made ? matches->made + one->first_named : NULL, one->named);
        (pass->edit_onnx && fb_graph_is_onnx(matcher->graph) ? pass->edit_onnx : pass->edit)(rewrite, &match);
        (*applied)++;
        if (!one || one->name) continue;
        one->name = first_name(rewrite, matcher->arena);
        one->first_named = first;
        one->named = count_made(rewrite) - first;
        ok = one->name != NULL;
    }
    return ok;
}

/* Nodes to report, each with its name. */
typedef struct listed_node {
    const char *name;
    fb_node inserted; /* it is new, or calls something else; none: it is not */
    bool is_marked;
} listed_node;

typedef struct listed_nodes {
    listed_node *rows;
    size_t count, capacity;
} listed_nodes;

/* The nodes that carry the signature now and did not before: a pass marks no node twice, so these are all that it marked,
 * less those which carried it from an earlier run. And those that are new, for whose names there is room in the report. */
static bool list_nodes(const fb_graph *graph, const fb_rewrite *rewrite, fb_pass_report *report, const fb_map *marked_before,
                       listed_nodes *list, fb_arena *arena) {
    size_t marked = 0, inserted = 0;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
        if (!fb_rewrite_has_changed(rewrite, n)) continue;
        bool is_marked = fb_node_is_marked(graph, n, report->signature) && !fb_map_get(marked_before, n.id);
        bool is_inserted = fb_rewrite_has_inserted(rewrite, n) && fb_node_at(graph, n)->opcode != FB_GET_ATTR;
        if (!is_marked && !is_inserted) continue;
        listed_node row = {keep_name(graph, n, arena), is_inserted ? n : (fb_node){0}, is_marked};
        if (!row.name || !FB_GROW(list->rows, list->count, list->capacity)) return false;
        list->rows[list->count++] = row;
        marked += is_marked;
        inserted += is_inserted;
    }
    const char **nodes = fb_arena_alloc(arena, marked * sizeof *nodes + 1);
    report->nodes = nodes;
    report->inserted = fb_arena_alloc(arena, inserted * sizeof *report->inserted + 1);
    for (size_t i = 0; nodes && i < list->count; i++)
        if (list->rows[i].is_marked) nodes[report->node_count++] = list->rows[i].name;
    return nodes && report->inserted;
}

/* A new node that nothing reads in the end is not there any more. */
static void list_inserted(const fb_graph *graph, const listed_nodes *list, fb_pass_report *report) {
    for (size_t i = 0; i < list->count; i++) {
        fb_node node = list->rows[i].inserted;
        if (node.id && !fb_node_at(graph, node)->is_erased) report->inserted[report->inserted_count++] = list->rows[i].name;
    }
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

/* Leaves out the matches that the call does not choose. Those of one name go together. */
static fb_status choose(const fb_graph_state *work, const fb_pass_report *report, edited_matches *matches, fb_error *error) {
    json_t *chosen = fb_load_json(report->chosen), *known = json_object();
    const json_t *only = json_object_get(chosen, "only"), *except = json_object_get(chosen, "except");
    json_t *keeps = only ? json_object() : NULL, *drops = json_object();
    fb_status status = chosen && known && drops && (!only || keeps) ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < matches->count && !status; i++)
        if (json_object_set_new(known, matches->items[i].name, json_true())) status = fb_fail_memory(error);
    for (int k = 0; k < 2 && !status; k++) {
        const json_t *list = k ? except : only;
        for (size_t i = 0; i < json_array_size(list) && !status; i++) {
            const char *name = json_string_value(json_array_get(list, i));
            char pointer[40];
            snprintf(pointer, sizeof pointer, "/%s/%zu", k ? "except" : "only", i);
            if (!json_object_get(known, name) && !work->may_lack_matches)
                status = fb_fail(error, FB_INVALID, "unknown-match", pointer,
                                 "%s has no match here whose first node is \"%.80s\"", report->pass->name, name);
            else if (json_object_set_new(k ? drops : keeps, name, json_true())) status = fb_fail_memory(error);
        }
    }
    for (size_t i = 0; i < matches->count && !status; i++) {
        const char *name = matches->items[i].name;
        matches->items[i].is_left_out = (only && !json_object_get(keeps, name)) || json_object_get(drops, name);
    }
    json_decref(chosen);
    json_decref(known);
    json_decref(keeps);
    json_decref(drops);
    return status;
}

/* Edits all matches and takes that back: so each has its name, and its new nodes the names that they have beside all others. */
static fb_status find_chosen(fb_graph_state *work, const fb_pass_report *report, const fb_matcher *matcher,
                             edited_matches *matches, fb_error *error) {
    fb_rewrite *rewrite = fb_rewrite_begin(work->graph, work->names, report->signature);
    size_t applied = 0;
    if (!rewrite) return fb_fail_memory(error);
    fb_rewrite_watch(rewrite, matcher->work->watch);
    bool ok = edit_all(rewrite, report->pass, matcher, matches, &applied);
    const fb_buffer *made = fb_rewrite_made_names(rewrite);
    matches->made = ok ? fb_arena_alloc(matcher->arena, made->size + 1) : NULL;
    if (matches->made && made->size) memcpy(matches->made, made->data, made->size);
    fb_status status = matches->made ? fb_rewrite_status(rewrite, error) : fb_fail_memory(error);
    fb_rewrite_abort(rewrite);
    return status ? status : choose(work, report, matches, error);
}

static fb_status list_matches(fb_pass_report *report, const edited_matches *matches, fb_arena *arena, fb_error *error) {
    const char **names = fb_arena_alloc(arena, (matches->count + 1) * sizeof *names);
    if (!names) return fb_fail_memory(error);
    for (size_t i = 0; i < matches->count; i++)
        if (!matches->items[i].is_left_out) names[report->match_count++] = matches->items[i].name;
    report->matches = names;
    return FB_OK;
}

fb_status fb_fail_applied(const fb_pass_report *report, const fb_error *found, fb_error *error) {
    if (!report->chosen || found->status != FB_IO)
        return fb_fail(error, found->status, found->code, found->pointer, "%s", found->message);
    return fb_fail(error, FB_INVALID, "matches-depend", "",
                   "the matches of %s here depend on each other: choose others as well", report->pass->name);
}

static fb_status apply_found(fb_graph_state *work, fb_pass_report *report, const fb_matcher *matcher, fb_error *error) {
    fb_graph *graph = work->graph;
    fb_arena *arena = matcher->arena;
    fb_map marked_before = {0};
    listed_nodes listed = {0};
    fb_rewrite *rewrite = NULL;
    fb_status status = FB_OK;
    edited_matches all = {.count = count_matches(matcher)}, *matches = report->chosen || work->names_matches ? &all : NULL;
    if (matches && !(all.items = calloc(all.count + 1, sizeof *all.items))) status = fb_fail_memory(error);
    if (!status && report->chosen) status = find_chosen(work, report, matcher, matches, error);
    if (!status && matcher->has_signature && !collect_marked(graph, report->signature, &marked_before))
        status = fb_fail_memory(error);
    if (!status && !(rewrite = fb_rewrite_begin(graph, work->names, report->signature))) status = fb_fail_memory(error);
    if (!status) {
        fb_rewrite_watch(rewrite, matcher->work->watch);
        bool ok = edit_all(rewrite, report->pass, matcher, matches, &report->applied) &&
                  list_nodes(graph, rewrite, report, &marked_before, &listed, arena) &&
                  list_absorbed(graph, rewrite, report, arena);
        if (ok && matches) ok = !list_matches(report, matches, arena, error);
        if (ok) {
            fb_error found = {0};
            status = fb_rewrite_commit(rewrite, &found); /* the last thing that can fail */
            if (status) status = fb_fail_applied(report, &found, error);
        } else {
            fb_rewrite_abort(rewrite);
            status = fb_fail_memory(error);
        }
    }
    if (!status) list_inserted(graph, &listed, report);
    free(listed.rows);
    fb_map_free(&marked_before);
    free(all.items);
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

void fb_put_chosen(fb_buffer *out, const char *chosen) {
    if (!chosen) return;
    fb_buffer_char(out, ',');
    fb_buffer_append(out, chosen + 1, strlen(chosen) - 2);
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
                          .workpiece = work->graph,
                          .usage = work->usage,
                          .alias = &work->alias,
                          .signature = report->signature,
                          .has_signature = fb_symbol_find(work->graph, report->signature, strlen(report->signature)).id,
                          .params = params,
                          .report = report,
                          .arena = arena,
                          .found = &found,
                          .work = &meter,
                          .blobs = work->blobs,
                          .failed = !params || !work->usage};
    bool is_foreign = !report->pass->reads_onnx && fb_graph_is_onnx(work->graph);
    if (!matcher.failed && is_foreign)
        fb_refuse(&matcher, "other-dialect", NULL, 0, "the graph is an ONNX model, and %s knows only PyTorch's operators",
                  report->pass->name);
    else if (!matcher.failed) match_all(&matcher, report->pass);
    fb_sharing_free(matcher.sharing);
    if (found.size) fb_graph_state_forget(work);
    fb_status status = FB_OK;
    if (matcher.failed || meter.stopped.status) status = fb_work_failed(&meter, error);
    else if (matcher.is_too_much)
        status = fb_fail(error, FB_TOO_LARGE, "report-too-large", "",
                         "what the passes refuse does not fit into a report of %zu MiB", FB_REPORT_MAX >> 20);
    else if (found.size) status = apply_found(work, report, &matcher, error);
    else if (report->chosen) status = choose(work, report, &(edited_matches){0}, error);
    fb_buffer_free(&found);
    json_decref(params);
    return status;
}
