#include "server/routes/input.h"

#include <stdio.h>
#include <string.h>

#include "core/analysis/onnx_types.h"
#include "core/document/document.h"
#include "server/metrics/metrics.h"

static void respond_bad_document(fb_response *response, fb_status status, const fb_errors *errors) {
    if (status == FB_INVALID) {
        fb_respond_errors(response, "", errors); /* the pointers are whole already */
        return;
    }
    fb_error error = {0};
    if (errors->count) error = errors->items[0];
    else fb_fail_memory(&error);
    error.status = status;
    fb_respond_error(response, &error);
}

/* Takes the graph that the command in this process has read already; NULL where it has not. */
static fb_graph *take_handed(const fb_app *app, const char *document, size_t size) {
    fb_handed_graph *handed = app->handed;
    if (!handed || !handed->graph || handed->document.size != size || memcmp(handed->document.data, document, size) != 0)
        return NULL;
    fb_graph *graph = handed->graph;
    handed->graph = NULL;
    return graph;
}

static bool read_document(const fb_request *request, fb_response *response, const char *document, size_t size,
                          const char *pointer, bool is_onnx, fb_graph_input *out) {
    const fb_app *app = request->context;
    fb_document_limits limits = app->limits;
    limits.watch = fb_request_watch(request);
    fb_graph *graph = take_handed(app, document, size);
    fb_errors errors = {0};
    fb_timing_enter(FB_TIMING_PARSE);
    fb_status status = graph ? FB_OK : fb_document_read(document, size, &limits, pointer, &graph, &errors);
    fb_timing_leave();
    if (status) respond_bad_document(response, status, &errors);
    fb_errors_free(&errors);
    if (status) return false;
    fb_error error = {0};
    fb_work work = {.watch = limits.watch};
    if (is_onnx && !fb_onnx_record_types(graph, &work)) status = fb_work_failed(&work, &error);
    if (!status) status = fb_graph_input_take(graph, limits.watch, out, &error);
    else fb_graph_free(graph);
    if (status) fb_respond_error(response, &error);
    return !status;
}

bool fb_graph_input_read(const fb_request *request, fb_response *response, const char *document, size_t size,
                         const char *pointer, fb_graph_input *out) {
    return read_document(request, response, document, size, pointer, false, out);
}

bool fb_graph_input_of_archive(const fb_request *request, fb_response *response, const fb_buffer *document, bool is_onnx,
                               fb_graph_input *out) {
    return read_document(request, response, document->data, document->size, "", is_onnx, out);
}

/* A graph that is given as a document (`text`, NULL when it is not) or by its id. `pointer` says where. Likewise. */
static bool get_graph(const fb_request *request, fb_response *response, const char *text, size_t size, const char *id,
                      const char *pointer, fb_graph_input *out) {
    if (text) return fb_graph_input_read(request, response, text, size, pointer, out);
    fb_error error = {0};
    char whole[FB_EXPANDED_SIZE];
    if (!fb_expand_member(request, response, "graph", pointer, &id, whole)) return false;
    fb_status status = fb_load_graph(request->context, fb_request_watch(request), id, &out->shared, &error);
    if (status) fb_respond_error_at(response, status == FB_NOT_FOUND ? pointer : "", &error);
    return !status;
}

bool fb_graph_input_pair(const fb_request *request, fb_response *response, const fb_request_body *body, int which,
                         const char *name, fb_graph_input *out) {
    const char *text = body->pair[which];
    const json_t *id = json_object_get(body->members, name);
    char pointer[40];
    snprintf(pointer, sizeof pointer, "/%s", name);
    if (!text && !id) return fb_refuse_member(response, "missing-member", pointer, "a document or an id is needed here");
    if (!text && !json_is_string(id))
        return fb_refuse_member(response, "wrong-type", pointer, "this is a document (an object) or the id of one (a string)");
    return get_graph(request, response, text, body->pair_size[which], json_string_value(id), pointer, out);
}

bool fb_graph_input_find(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_graph_input *out) {
    const fb_request_body *body = &asked->body;
    if (!body->graph && !asked->graph_id) return true;
    return get_graph(request, response, body->graph, body->graph_size, asked->graph_id, asked->graph_pointer, out);
}
