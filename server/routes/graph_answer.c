#include "server/routes/graph_answer.h"

#include <stdlib.h>

#include "server/app.h"

bool fb_respond_graph(const fb_request *request, fb_response *response, const char *id) {
    const fb_app *app = request->context;
    fb_error error = {0};
    char *document = NULL;
    size_t size = 0;
    fb_store_summary summary = {0};
    bool is_at_client = fb_request_has_etag(request, id);
    fb_status status = is_at_client ? fb_store_get_graph(app->store, id, &summary, &error)
                                    : fb_store_get_document(app->store, id, &document, &size, &error);
    if (status) {
        fb_respond_error(response, &error);
        return false;
    }
    fb_response_etag(response, id);
    if (is_at_client) fb_respond_empty(response, 304);
    else fb_respond_bytes(response, 200, "application/json", document, size, free, document);
    fb_store_summary_free(&summary);
    return true;
}
