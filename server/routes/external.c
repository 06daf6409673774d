/* POST /v1/runs: what a pass outside of this service made of a graph is recorded, so that it can be undone like any other. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/compose/composition.h"
#include "core/diff/diff.h"
#include "core/json/json.h"
#include "core/passes/passes.h"
#include "core/rewrite/rewrite.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

#define NAME_MAX_LENGTH 200 /* characters */

typedef struct record {
    fb_run_request asked;
    const char *name;
    int version;
    bool is_reversible, preserves_computation;
    const json_t *marked; /* names of nodes of the result, or NULL */
    fb_buffer params;     /* canonical */
    fb_graph_input source, result;
    fb_signature signature, composition; /* of the pass; of the list of it alone */
    fb_store_pass pass;
    fb_buffer request, report;
} record;

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static bool read_name(fb_response *response, record *made) {
    if (!fb_body_text(response, &made->asked.body, "name", NAME_MAX_LENGTH, &made->name)) return false;
    if (!made->name || !*made->name) return fb_refuse_member(response, "missing-member", "/name", "the pass needs a name");
    if (fb_pass_find(made->name) || fb_preset_find(made->name))
        return fb_refuse_member(response, "name-taken-by-pass", "/name",
                                "a pass of this service has that name; POST to /v1/optimize applies it");
    return true;
}

static bool read_flag(fb_response *response, const json_t *members, const char *name, bool otherwise, bool *out) {
    const json_t *member = json_object_get(members, name);
    *out = member ? json_is_true(member) : otherwise;
    if (!member || json_is_boolean(member)) return true;
    char pointer[40];
    snprintf(pointer, sizeof pointer, "/%s", name);
    return fb_refuse_member(response, "wrong-type", pointer, "this is true or false");
}

static bool read_version(fb_response *response, const json_t *members, int *out) {
    const json_t *member = json_object_get(members, "version");
    double value = member ? json_number_value(member) : 1;
    if (!(value >= 1 && value <= INT_MAX && value == (double)(int)value))
        return fb_refuse_member(response, "wrong-type", "/version", "a pass's version is a positive integer");
    *out = (int)value;
    return true;
}

static bool read_params(fb_response *response, const json_t *members, fb_buffer *out) {
    const json_t *params = json_object_get(members, "params");
    if (params && !json_is_object(params))
        return fb_refuse_member(response, "wrong-type", "/params", "a pass's params are an object");
    fb_status status = FB_OK;
    if (params) status = fb_free_json_canonical(params, out);
    else fb_buffer_string(out, "{}");
    if (status == FB_SYNTAX) return fb_refuse_member(response, "bad-params", "/params", "the params hold a character \\u0000");
    return fb_buffer_text(out) || fb_respond_no_memory(response);
}

static bool read_marked(fb_response *response, const json_t *members, const json_t **out) {
    const json_t *name;
    size_t i;
    *out = json_object_get(members, "marked");
    if (*out && !json_is_array(*out))
        return fb_refuse_member(response, "wrong-type", "/marked", "marked is an array of names of nodes");
    json_array_foreach(*out, i, name) {
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/marked/%zu", i);
        if (!json_is_string(name)) return fb_refuse_member(response, "wrong-type", pointer, "the name of a node is a string");
    }
    return true;
}

static bool read_record(const fb_request *request, fb_response *response, record *made) {
    const fb_request_body *body = &made->asked.body;
    const json_t *members = body->members;
    return read_name(response, made) && read_version(response, members, &made->version) &&
           read_params(response, members, &made->params) &&
           read_flag(response, members, "reversible", true, &made->is_reversible) &&
           read_flag(response, members, "preserves_computation", false, &made->preserves_computation) &&
           read_marked(response, members, &made->marked) &&
           fb_graph_input_pair(request, response, body, 0, "source", &made->source) &&
           fb_graph_input_pair(request, response, body, 1, "result", &made->result);
}

/* ---- the report --------------------------------------------------------------------------------------------------------- */

static fb_status add_marks(fb_graph *graph, const record *made, fb_work *work, fb_error *error) {
    fb_value mark = fb_make_string(graph, made->signature);
    const json_t *name;
    size_t i;
    json_array_foreach(made->marked, i, name) {
        fb_node node = fb_node_find(graph, FB_MAIN_PROGRAM, json_string_value(name));
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/marked/%zu", i);
        if (!node.id) return fb_fail(error, FB_INVALID, "unknown-node", pointer, "the result has no node of that name");
        bool is_marked = fb_node_is_marked(graph, node, made->signature);
        if (!is_marked && !fb_node_add_mark(graph, node, mark)) return fb_fail_memory(error);
        if (!fb_work_goes_on(work, 8)) break;
    }
    return fb_work_status(work, error);
}

/* The result becomes a copy of it in which the nodes carry the pass's signature. */
static fb_status mark_result(record *made, fb_work *work, fb_error *error) {
    if (!json_array_size(made->marked)) return FB_OK;
    fb_graph *graph = fb_graph_copy(made->result.shared->graph, work);
    if (!graph) return fb_work_failed(work, error);
    fb_graph_input marked = {0};
    fb_status status = add_marks(graph, made, work, error);
    if (status) fb_graph_free(graph);
    else status = fb_graph_input_take(graph, work->watch, &marked, error);
    if (status) return status;
    fb_graph_input_free(&made->result);
    made->result = marked;
    return FB_OK;
}

/* Shapes and dtypes say what a node reads as well; all else is the node's. */
static bool is_of_node(const fb_edit *edit) {
    static const char *const types[] = {"/meta/shape", "/meta/dtype", "/meta/device"};
    if (edit->kind == FB_EDIT_INSERT) return true;
    for (size_t i = 0; edit->kind == FB_EDIT_SET && i < edit->member_count; i++) {
        bool is_type = false;
        for (size_t j = 0; j < sizeof types / sizeof *types; j++)
            is_type = is_type || strncmp(edit->members[i].pointer, types[j], strlen(types[j])) == 0;
        if (!is_type) return true;
    }
    return false;
}

/* The nodes of the result that are new or not as they were, in document order. */
static fb_status write_nodes(const record *made, fb_work *work, fb_buffer *out, fb_error *error) {
    const fb_graph *result = made->result.shared->graph;
    fb_diff diff;
    bool *is_made = calloc(fb_node_limit(result), sizeof *is_made);
    fb_status status = is_made ? fb_diff_make(made->source.shared->graph, result, work, &diff, error) : fb_fail_memory(error);
    if (!status) {
        for (size_t i = 0; i < diff.count && fb_work_goes_on(work, 8); i++) {
            const fb_edit *edit = &diff.edits[i];
            if (edit->table == FB_NODE_TABLE && is_of_node(edit))
                is_made[fb_node_find(result, FB_MAIN_PROGRAM, edit->name).id] = true;
        }
        fb_diff_free(&diff);
        fb_node n = fb_first_node(result, FB_MAIN_PROGRAM);
        for (; n.id && fb_work_goes_on(work, 8); n = fb_node_at(result, n)->next) {
            if (!is_made[n.id]) continue;
            fb_put_comma(out);
            fb_buffer_json_string(out, fb_node_name(result, n), strlen(fb_node_name(result, n)));
        }
    }
    free(is_made);
    return status ? status : fb_work_status(work, error);
}

static void write_pass(const record *made, fb_buffer *out) {
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", made->name);
    fb_put_int(out, "version", made->version);
    fb_put_name(out, "params");
    fb_buffer_append(out, made->params.data, made->params.size);
}

static fb_status describe(record *made, const fb_watch *watch, fb_error *error) {
    const char *signature = made->signature;
    if (!fb_pass_signature(made->name, made->version, NULL, made->params.data, NULL, made->signature) ||
        !fb_composition_signature(&signature, 1, made->composition))
        return fb_fail_memory(error);
    fb_work work = {.watch = watch};
    fb_status status = mark_result(made, &work, error);
    if (status) return status;
    bool is_changed = strcmp(made->source.shared->id, made->result.shared->id) != 0;
    made->pass = (fb_store_pass){
        .name = made->name, .version = (uint32_t)made->version, .signature = made->signature, .applied = is_changed};
    write_pass(made, &made->request);
    fb_buffer_char(&made->request, '}');
    fb_buffer *report = &made->report;
    fb_buffer_char(report, '[');
    write_pass(made, report);
    fb_put_text(report, "signature", made->signature);
    fb_put_bool(report, "reversible", made->is_reversible);
    fb_put_text(report, "exactness", "external");
    fb_put_int(report, "applied", is_changed);
    fb_put_name(report, "nodes");
    fb_buffer_char(report, '[');
    status = write_nodes(made, &work, report, error);
    fb_buffer_string(report, "],\"refused\":[]}]");
    if (!status && (!fb_buffer_text(report) || !fb_buffer_text(&made->request))) status = fb_fail_memory(error);
    return status;
}

static void answer(const fb_request *request, fb_response *response, record *made, fb_repeat *repeat) {
    fb_new_run new_run = {.source = &made->source, .result = &made->result};
    new_run.run = (fb_store_run){.kind = "external",
                                 .source = made->source.shared->id,
                                 .result = made->result.shared->id,
                                 .signature = made->composition,
                                 .is_reversible = made->is_reversible,
                                 .preserves_computation = made->preserves_computation,
                                 .lint = "passed", /* documents are verified when they come in */
                                 .note = made->asked.note,
                                 .request = made->request.data,
                                 .report = made->report.data,
                                 .passes = &made->pass,
                                 .pass_count = 1,
                                 .labels = made->asked.labels,
                                 .label_count = made->asked.label_count};
    fb_respond_new_run(request, response, &made->asked, &new_run, repeat);
}

static void post_run(const fb_request *request, fb_response *response) {
    fb_repeat repeat;
    fb_error error = {0};
    record made = {0};
    if (!fb_repeat_begin(request, response, &repeat)) return;
    fb_status status = fb_run_request_read(request, FB_TAKES_RECORD, &made.asked, &error);
    if (status) {
        fb_respond_request_error(response, &error);
    } else if (read_record(request, response, &made)) {
        if (describe(&made, fb_request_watch(request), &error)) fb_respond_request_error(response, &error);
        else answer(request, response, &made, &repeat);
    }
    fb_repeat_end(&repeat);
    fb_buffer_free(&made.params);
    fb_buffer_free(&made.request);
    fb_buffer_free(&made.report);
    fb_graph_input_free(&made.source);
    fb_graph_input_free(&made.result);
    fb_run_request_free(&made.asked);
}

const fb_route fb_external_run_routes[] = {
    {.method = "POST",
     .pattern = "/v1/runs",
     .handler = post_run,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_REQUIRED,
     .query = FB_RECORD_QUERY},
    {0},
};
