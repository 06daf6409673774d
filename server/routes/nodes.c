/* GET /v1/graphs/{id}/nodes: the nodes of the main program, in order; all, or those that a filter lets through. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/compose/composition.h"
#include "core/json/json.h"
#include "core/passes/passes.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

typedef struct node_filter {
    const char *signature, *target;
    const char *pass;
    fb_opcode opcode;          /* 0: any */
    fb_store_signatures marks; /* of the graph, when `pass` is given */
    bool *is_of_pass;          /* for each of marks: it is a signature of that pass */
    uint32_t position;         /* where the page begins */
    int64_t limit;
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
            if (!fb_pass_signature(known->name, known->version, NULL, "{}", expected)) status = fb_fail_memory(error);
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
    const char *texts[] = {id, filter->signature, filter->target, filter->pass,
                           filter->opcode ? fb_opcode_name(filter->opcode) : NULL};
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
                            .pass = fb_request_query(request, "pass")};
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

/* ---- the answer --------------------------------------------------------------------------------------------------------- */

static void write_node(const fb_graph *graph, const fb_node_row *node, uint32_t position, fb_buffer *out) {
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", fb_text(graph, node->name));
    fb_put_text(out, "op", fb_opcode_name(node->opcode));
    fb_put_text(out, "target", fb_text(graph, node->target));
    fb_put_int(out, "position", position);
    if (node->shape.id) {
        fb_put_name(out, "shape");
        fb_value_write(graph, node->shape, out);
    }
    if (node->dtype) fb_put_text(out, "dtype", fb_dtype_name(node->dtype));
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
        if (position < filter->position || !is_wanted(graph, node, filter)) continue;
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
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_page(shared, &filter, &answer);
        fb_respond_json_buffer_take(response, 200, &answer);
    }
    fb_share_release(shared);
    FB_STORE_FREE(&filter.marks);
    free(filter.is_of_pass);
}

const fb_route fb_node_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/nodes",
     .handler = get_nodes,
     .scope = FB_SCOPE_READ,
     .query = "signature,pass,op,target,limit,page_token"},
    {0},
};
