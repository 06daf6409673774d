/* GET /v1/graphs/{id}/nodes: the nodes of the main program, in order; all, or those that a filter lets through. GET …/{name}:
 * all that a document says of one. GET /v1/runs/{run}/nodes: a search in both graphs of a run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/compose/composition.h"
#include "core/graph/write.h"
#include "core/json/json.h"
#include "core/passes/passes.h"
#include "core/picture/search.h"
#include "server/graphs/drawn.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

typedef struct node_filter {
    const char *signature, *target;
    const char *pass, *text;   /* that is searched for */
    fb_opcode opcode;          /* 0: any */
    fb_store_signatures marks; /* of the graph, when `pass` is given */
    bool *is_of_pass;          /* for each of marks: it is a signature of that pass */
    uint32_t position;         /* where the page begins */
    int64_t limit;
    fb_drawn_graphs *drawn; /* when `text` is given */
    fb_arena arena;         /* of the next one */
    fb_search search;
} node_filter;

/* ---- which signatures are a pass's -------------------------------------------------------------------------------------- */

/* The name under which some run applied the signature, compared with `pass`; without such a run the signature that the pass has
 * without parameters counts. */
static fb_status is_signature_of(fb_store *store, const char *signature, const char *pass, bool *is_of_pass, fb_error *error) {
    fb_store_runs runs;
    fb_store_run_filter filter = {.signatures = &signature, .signature_count = 1};
    fb_status status = fb_store_list_runs(store, &filter, &(fb_store_page){.limit = 1}, false, &runs, error);
    if (status) return status;
    *is_of_pass = false;
    for (size_t i = 0; runs.count && i < runs.items[0].pass_count; i++) {
        const fb_store_pass *one = &runs.items[0].passes[i];
        *is_of_pass |= !strcmp(one->signature, signature) && !strcmp(one->name, pass);
    }
    if (!runs.count) {
        for (const fb_pass *known = fb_pass_find(pass); known; known = known->earlier) {
            fb_signature expected;
            if (!fb_pass_signature(known->name, known->version, NULL, "{}", NULL, expected)) status = fb_fail_memory(error);
            else *is_of_pass |= !strcmp(expected, signature);
        }
    }
    FB_STORE_FREE(&runs);
    return status;
}

static fb_status find_signatures(fb_store *store, const char *id, node_filter *filter, fb_error *error) {
    fb_status status = fb_store_graph_signatures(store, id, &filter->marks, error);
    if (status) return status;
    filter->is_of_pass = calloc(filter->marks.count + 1, sizeof *filter->is_of_pass);
    if (!filter->is_of_pass) return fb_fail_memory(error);
    for (size_t i = 0; i < filter->marks.count && !status; i++)
        status = is_signature_of(store, filter->marks.items[i].signature, filter->pass, &filter->is_of_pass[i], error);
    return status;
}

static bool is_of_pass(const node_filter *filter, const char *signature) {
    for (size_t i = 0; i < filter->marks.count; i++) {
        if (filter->is_of_pass[i] && strcmp(filter->marks.items[i].signature, signature) == 0) return true;
    }
    return false;
}

/* ---- the filter --------------------------------------------------------------------------------------------------------- */

static uint64_t filter_hash(const node_filter *filter, const char *id) {
    const char *texts[] = {id,           filter->signature, filter->target,
                           filter->pass, filter->text,      filter->opcode ? fb_opcode_name(filter->opcode) : NULL};
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash = fb_hash(texts[i] ? texts[i] : "", texts[i] ? strlen(texts[i]) : 0, hash + (texts[i] != NULL));
    return hash;
}

static bool read_token(const fb_request *request, fb_response *response, const char *id, node_filter *filter) {
    const char *token = fb_request_query(request, "page_token");
    if (!token) return true;
    char expected[32];
    filter->position = (uint32_t)strtoul(token, NULL, 16);
    snprintf(expected, sizeof expected, "%" PRIx32 "-%016" PRIx64, filter->position, filter_hash(filter, id));
    if (strcmp(token, expected) == 0) return true;
    return fb_refuse_parameter(response, "page_token", "bad-page-token",
                               "the page token does not belong to this list with these filters");
}

static bool read_filter(const fb_request *request, fb_response *response, const char *id, node_filter *filter) {
    const char *op = fb_request_query(request, "op");
    *filter = (node_filter){.signature = fb_request_query(request, "signature"),
                            .target = fb_request_query(request, "target"),
                            .pass = fb_request_query(request, "pass"),
                            .text = fb_request_query(request, "search")};
    if (!fb_request_query_int(request, response, "limit", 1, FB_PAGE_MAX, FB_PAGE_DEFAULT, &filter->limit)) return false;
    if (op && !(filter->opcode = fb_opcode_find(op)))
        return fb_refuse_parameter(response, "op", "unknown-op",
                                   "op is one of placeholder, get_attr, call_module, call_function, call_method, output");
    if (filter->pass && !fb_check_pass_parameter(request, response, filter->pass)) return false;
    return read_token(request, response, id, filter);
}

static bool has_mark(const fb_graph *graph, const fb_node_row *node, const node_filter *filter) {
    const fb_value_row *marks = node->transformations.id ? fb_value_at(graph, node->transformations) : NULL;
    bool has_signature = !filter->signature, has_pass = !filter->pass;
    for (uint32_t i = 0; marks && i < marks->count; i++) {
        const char *signature = fb_value_text(graph, marks->items[i]);
        has_signature = has_signature || strcmp(signature, filter->signature) == 0;
        has_pass = has_pass || is_of_pass(filter, signature);
    }
    return has_signature && has_pass;
}

static bool is_wanted(const fb_graph *graph, const fb_node_row *node, const node_filter *filter) {
    if (filter->opcode && node->opcode != filter->opcode) return false;
    if (filter->target && strcmp(fb_text(graph, node->target), filter->target) != 0) return false;
    return has_mark(graph, node, filter);
}

static bool is_found(const node_filter *filter, fb_node n) {
    if (!filter->text) return true;
    return fb_drawn_finds(filter->drawn, &filter->search, filter->drawn->rows.of_now[n.id], false);
}

static fb_status prepare_search(const fb_request *request, fb_shared_graph *base, fb_shared_graph *graph, node_filter *filter,
                                fb_error *error) {
    if (!fb_search_read(filter->text, &filter->arena, &filter->search)) return fb_fail_memory(error);
    return fb_drawn_hold(request->context, fb_request_watch(request), base, graph, &filter->drawn, error);
}

static void free_filter(node_filter *filter) {
    fb_drawn_release(filter->drawn);
    fb_arena_free(&filter->arena);
    FB_STORE_FREE(&filter->marks);
    free(filter->is_of_pass);
}

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

static void write_call(const fb_graph *graph, const fb_node_row *node, fb_buffer *out) {
    fb_put_text(out, "name", fb_text(graph, node->name));
    fb_put_text(out, "op", fb_opcode_name(node->opcode));
    fb_put_text(out, "target", fb_text(graph, node->target));
    if (node->shape.id) {
        fb_put_name(out, "shape");
        fb_value_write(graph, node->shape, out);
    }
    if (node->dtype) fb_put_text(out, "dtype", fb_dtype_name(node->dtype));
}

static void write_node(const fb_graph *graph, const fb_node_row *node, uint32_t position, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    write_call(graph, node, out);
    fb_put_int(out, "position", position);
    fb_put_name(out, "transformations");
    if (node->transformations.id) fb_value_write(graph, node->transformations, out);
    else fb_buffer_string(out, "[]");
    fb_buffer_char(out, '}');
}

static void write_page(const fb_shared_graph *shared, const node_filter *filter, fb_buffer *out) {
    const fb_graph *graph = shared->graph;
    int64_t count = 0;
    uint32_t position = 0;
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    char next[32] = "";
    *out = fb_items_begin();
    for (; n.id; n = fb_node_at(graph, n)->next, position++) {
        const fb_node_row *node = fb_node_at(graph, n);
        if (position < filter->position || !is_wanted(graph, node, filter) || !is_found(filter, n)) continue;
        if (count++ == filter->limit) break;
        write_node(graph, node, position, out);
    }
    if (n.id) snprintf(next, sizeof next, "%" PRIx32 "-%016" PRIx64, position, filter_hash(filter, shared->id));
    fb_items_end(out, next);
}

static void get_nodes(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *id = fb_request_param(request, "id");
    node_filter filter;
    fb_error error = {0};
    fb_shared_graph *shared = NULL;
    if (!read_filter(request, response, id, &filter)) return;
    fb_status status = fb_load_graph(app, fb_request_watch(request), id, &shared, &error);
    if (!status && filter.pass) status = find_signatures(app->store, id, &filter, &error);
    if (!status && filter.text) status = prepare_search(request, NULL, shared, &filter, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_page(shared, &filter, &answer);
        fb_respond_json_buffer_take(response, 200, &answer);
    }
    fb_share_release(shared);
    free_filter(&filter);
}

/* ---- one node ------------------------------------------------------------------------------------------------------------ */

static void write_tensors(const fb_graph *graph, fb_module m, const char *attribute, fb_buffer *out) {
    const fb_value maps[] = {fb_module_at(graph, m)->parameters, fb_module_at(graph, m)->buffers};
    for (size_t i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(graph, maps[i]);
        for (uint32_t j = 0; j + 1 < map->count; j += 2) {
            fb_tensor tensor = fb_value_tensor(graph, map->items[j + 1]);
            if (!tensor.id || (attribute && strcmp(fb_value_text(graph, map->items[j]), attribute) != 0)) continue;
            fb_put_comma(out);
            fb_tensor_write(graph, tensor, out);
        }
    }
}

/* Its row, its readers, the row of the module that it calls or reads from, and the rows of that one's tensors. */
static void write_whole(const fb_graph *graph, fb_node n, fb_buffer *out) {
    const fb_node_row *node = fb_node_at(graph, n);
    fb_buffer_char(out, '{');
    fb_put_name(out, "node");
    fb_node_write(graph, n, out);
    fb_put_name(out, "read_by");
    fb_buffer_char(out, '[');
    for (uint32_t e = fb_user_first(graph, n); e; e = fb_user_next(graph, e)) {
        const char *reader = fb_node_name(graph, fb_edge_user(graph, e));
        fb_put_comma(out);
        fb_buffer_json_string(out, reader, strlen(reader));
    }
    fb_buffer_char(out, ']');
    if (node->module.id) {
        fb_put_name(out, "module");
        fb_module_write(graph, node->module, out);
        fb_put_name(out, "tensors");
        fb_buffer_char(out, '[');
        write_tensors(graph, node->module, node->attribute.id ? fb_text(graph, node->attribute) : NULL, out);
        fb_buffer_char(out, ']');
    }
    fb_buffer_char(out, '}');
}

static void get_node(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const char *name = fb_request_param(request, "name");
    fb_error error = {0};
    fb_shared_graph *shared = NULL;
    fb_status status = fb_load_graph(app, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error);
    fb_node n = status ? (fb_node){0} : fb_node_find(shared->graph, FB_MAIN_PROGRAM, name);
    if (!status && !n.id) status = fb_fail(&error, FB_NOT_FOUND, "unknown-node", NULL, "the graph has no node %.200s", name);
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_whole(shared->graph, n, &answer);
        fb_respond_json_buffer_take(response, 200, &answer);
    }
    fb_share_release(shared);
}

/* ---- a run --------------------------------------------------------------------------------------------------------------- */

/* Node -> [{"pass", "reason", "detail", "nodes"}, …] of a run's report; NULL when memory is out. */
static json_t *list_refusals(const fb_store_run *run) {
    bool has_any = false; /* the report may be large */
    for (size_t i = 0; i < run->pass_count; i++) has_any |= run->passes[i].refused > 0;
    json_t *passes = has_any ? fb_load_json(run->report) : json_array(), *found = passes ? json_object() : NULL;
    const json_t *pass, *refusal, *node;
    size_t p, r, n;
    json_array_foreach(passes, p, pass) {
        json_array_foreach(json_object_get(pass, "refused"), r, refusal) {
            json_array_foreach(json_object_get(refusal, "nodes"), n, node) {
                json_t *list = json_object_get(found, json_string_value(node));
                if (!list) json_object_set_new(found, json_string_value(node), list = json_array());
                json_array_append_new(list, json_pack("{s:O, s:O, s:O, s:O}", "pass", json_object_get(pass, "name"), "reason",
                                                      json_object_get(refusal, "reason"), "detail",
                                                      json_object_get(refusal, "detail"), "nodes",
                                                      json_object_get(refusal, "nodes")));
            }
        }
    }
    json_decref(passes);
    return found;
}

static const char *name_of(const fb_drawn_rows *rows, const fb_drawn *row) {
    return row->now.id ? fb_node_name(rows->graph, row->now) : fb_node_name(rows->base, row->was);
}

static void write_row(const fb_drawn_rows *rows, const fb_drawn *row, const json_t *refused, fb_buffer *out) {
    static const char *const states[] = {[FB_PICTURE_KEPT] = "kept",
                                         [FB_PICTURE_ADDED] = "added",
                                         [FB_PICTURE_REMOVED] = "removed",
                                         [FB_PICTURE_CHANGED] = "changed"};
    const fb_graph *graph = row->now.id ? rows->graph : rows->base;
    const fb_place *place = &rows->places[row->place];
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    write_call(graph, fb_node_at(graph, row->now.id ? row->now : row->was), out);
    fb_put_name(out, "module");
    fb_buffer_json_string(out, place->path, place->path_size);
    fb_put_text(out, "state", states[row->state]);
    if (refused) fb_put_json(out, "refused", refused);
    fb_buffer_char(out, '}');
}

/* The row of the node that is called so, in either graph; 0 when there is none. */
static uint32_t find_row(const fb_drawn_rows *rows, const char *name) {
    fb_node now = fb_node_find(rows->graph, FB_MAIN_PROGRAM, name);
    if (now.id) return rows->of_now[now.id];
    fb_node was = fb_node_find(rows->base, FB_MAIN_PROGRAM, name);
    return was.id ? rows->of_was[was.id] : 0;
}

/* The node of that very name comes first. */
static void write_found(const node_filter *filter, const json_t *refusals, fb_buffer *out) {
    const fb_drawn_rows *rows = &filter->drawn->rows;
    uint32_t first = find_row(rows, filter->text);
    int64_t written = 0, total = 0;
    fb_buffer_string(out, "{\"items\":[");
    for (uint32_t i = first ? 0 : 1; i < rows->count; i++) {
        if (i && i == first) continue;
        const fb_drawn *row = &rows->rows[i ? i : first];
        const json_t *refused = json_object_size(refusals) ? json_object_get(refusals, name_of(rows, row)) : NULL;
        if (!fb_drawn_finds(filter->drawn, &filter->search, i ? i : first, refused != NULL) || total++ >= filter->limit)
            continue;
        write_row(rows, row, refused, out);
        written++;
    }
    fb_buffer_char(out, ']');
    fb_put_int(out, "left_out", total - written);
    fb_buffer_char(out, '}');
}

static void get_run_nodes(const fb_request *request, fb_response *response) {
    const fb_app *app = request->context;
    const fb_watch *watch = fb_request_watch(request);
    node_filter filter = {.text = fb_request_query(request, "search")};
    fb_error error = {0};
    fb_store_run run = {0};
    fb_shared_graph *source = NULL, *result = NULL;
    if (!filter.text) filter.text = "";
    if (!fb_request_query_int(request, response, "limit", 1, FB_PAGE_MAX, FB_PAGE_DEFAULT, &filter.limit)) return;
    fb_status status = fb_store_get_run(app->store, fb_request_param(request, "run"), &run, &error);
    if (!status) status = fb_load_graph(app, watch, run.source, &source, &error);
    if (!status) status = fb_load_graph(app, watch, run.result, &result, &error);
    if (!status) status = prepare_search(request, source, result, &filter, &error);
    json_t *refusals = status ? NULL : list_refusals(&run);
    if (!status && !refusals) status = fb_fail_memory(&error);
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_found(&filter, refusals, &answer);
        fb_respond_json_buffer_take(response, 200, &answer);
    }
    json_decref(refusals);
    free_filter(&filter);
    fb_share_release(source);
    fb_share_release(result);
    FB_STORE_FREE(&run);
}

const fb_route fb_node_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/nodes",
     .handler = get_nodes,
     .scope = FB_SCOPE_READ,
     .query = "signature,pass,op,target,search,limit,page_token"},
    {.method = "GET", .pattern = "/v1/graphs/{id}/nodes/{name}", .handler = get_node, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "GET",
     .pattern = "/v1/runs/{run}/nodes",
     .handler = get_run_nodes,
     .scope = FB_SCOPE_READ,
     .query = "search,limit"},
    {0},
};
