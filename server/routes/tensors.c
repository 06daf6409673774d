/* GET /v1/graphs/{id}/tensors and /v1/graphs/{id}/tensors/{name}: what a graph's tensors are, and the bytes of one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/base/map.h"
#include "core/graph/slot.h"
#include "core/json/json.h"
#include "core/weights/evaluate.h"
#include "core/weights/inputs.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* ---- a tensor as JSON --------------------------------------------------------------------------------------------------- */

static uint64_t byte_size(const fb_graph *graph, const fb_tensor_row *tensor) {
    uint64_t size = fb_dtype_size(tensor->dtype);
    if (!size) return tensor->data.id ? fb_base64_size(fb_text(graph, tensor->data), fb_text_length(graph, tensor->data)) : 0;
    for (int i = 0; i < fb_shape_rank(graph, tensor->shape); i++) size *= (uint64_t)fb_shape_size(graph, tensor->shape, i);
    return size; /* below 2^63: documents with larger ones are refused */
}

static const char *where(const fb_tensor_row *tensor) {
    return tensor->blob.id ? "blob" : tensor->data.id ? "data" : tensor->recipe.id ? "recipe" : "unknown";
}

/* Everything but its owners; the object is not closed. */
static void write_tensor(const fb_graph *graph, fb_tensor tensor, fb_buffer *out) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_put_comma(out);
    fb_buffer_char(out, '{');
    fb_put_text(out, "name", fb_text(graph, row->name));
    fb_put_text(out, "dtype", fb_tensor_dtype_name(graph, tensor));
    fb_put_name(out, "shape");
    fb_value_write(graph, row->shape, out);
    fb_put_int(out, "size", (int64_t)byte_size(graph, row));
    fb_put_text(out, "where", where(row));
    if (row->blob.id) {
        fb_put_text(out, "blob", fb_text(graph, row->blob));
        fb_put_int(out, "offset", row->offset);
    }
    if (row->recipe.id) {
        fb_put_name(out, "recipe");
        fb_value_write(graph, row->recipe, out);
    }
    if (row->digest.id) fb_put_text(out, "digest", fb_text(graph, row->digest));
    fb_put_name(out, "owners");
    fb_buffer_char(out, '[');
}

static void write_owner(const fb_graph *graph, const fb_slot *slot, fb_buffer *out) {
    fb_buffer path = {0};
    fb_slot_path(graph, slot, &path);
    out->failed |= path.failed;
    fb_put_comma(out);
    fb_buffer_json_string(out, path.data ? path.data : "", path.size);
    fb_buffer_free(&path);
}

/* ---- the list ----------------------------------------------------------------------------------------------------------- */

typedef struct tensor_page {
    fb_tensor *items;
    size_t count;
    fb_tensor next;     /* first of the next page, or none */
    uint32_t position;  /* of the page's first in the document */
    uint32_t *place_of; /* by tensor: 1 + its place on the page */
    fb_buffer *owners;  /* by place: the paths, as JSON */
} tensor_page;

static void free_page(tensor_page *page) {
    for (size_t i = 0; page->owners && i < page->count; i++) fb_buffer_free(&page->owners[i]);
    free(page->items);
    free(page->place_of);
    free(page->owners);
}

static bool read_token(const fb_request *request, fb_response *response, const char *id, uint32_t *position) {
    const char *token = fb_request_query(request, "page_token");
    *position = 0;
    if (!token) return true;
    char expected[32];
    *position = (uint32_t)strtoul(token, NULL, 16);
    snprintf(expected, sizeof expected, "%" PRIx32 "-%016" PRIx64, *position, fb_hash(id, strlen(id), 0));
    if (strcmp(token, expected) == 0) return true;
    return fb_refuse_parameter(response, "page_token", "bad-page-token", "the page token does not belong to this list");
}

/* The tensors from page->position on, and who owns them: one walk over the modules. */
static fb_status fill_page(const fb_graph *graph, size_t limit, tensor_page *page, fb_error *error) {
    page->items = calloc(limit, sizeof *page->items);
    page->owners = calloc(limit, sizeof *page->owners);
    page->place_of = calloc(fb_tensor_limit(graph), sizeof *page->place_of);
    if (!page->items || !page->owners || !page->place_of) return fb_fail_memory(error);
    fb_tensor t = fb_first_tensor(graph);
    for (uint32_t i = 0; t.id && i < page->position; i++) t = fb_tensor_at(graph, t)->next;
    for (; t.id && page->count < limit; t = fb_tensor_at(graph, t)->next) {
        page->items[page->count++] = t;
        page->place_of[t.id] = (uint32_t)page->count;
    }
    page->next = t;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; fb_slot_next(graph, &cursor, &slot);) {
        uint32_t place = page->place_of[slot.tensor.id];
        if (place) write_owner(graph, &slot, &page->owners[place - 1]);
    }
    return FB_OK;
}

static void write_page(const fb_shared_graph *shared, tensor_page *page, fb_buffer *out) {
    char next[32] = "";
    *out = fb_items_begin();
    for (size_t i = 0; i < page->count; i++) {
        write_tensor(shared->graph, page->items[i], out);
        out->failed |= page->owners[i].failed;
        fb_buffer_append(out, page->owners[i].data, page->owners[i].size);
        fb_buffer_string(out, "]}");
    }
    if (page->next.id)
        snprintf(next, sizeof next, "%" PRIx32 "-%016" PRIx64, page->position + (uint32_t)page->count,
                 fb_hash(shared->id, strlen(shared->id), 0));
    fb_items_end(out, next);
}

static void get_tensors(const fb_request *request, fb_response *response) {
    const char *id = fb_request_param(request, "id");
    fb_error error = {0};
    fb_shared_graph *shared = NULL;
    tensor_page page = {0};
    int64_t limit;
    if (!fb_request_query_int(request, response, "limit", 1, FB_PAGE_MAX, FB_PAGE_DEFAULT, &limit) ||
        !read_token(request, response, id, &page.position))
        return;
    fb_status status = fb_load_graph(request->context, fb_request_watch(request), id, &shared, &error);
    if (!status) status = fill_page(shared->graph, (size_t)limit, &page, &error);
    if (status) {
        fb_respond_error(response, &error);
    } else {
        fb_buffer answer = {0};
        write_page(shared, &page, &answer);
        fb_respond_json_buffer_take(response, 200, &answer);
    }
    free_page(&page);
    fb_share_release(shared);
}

/* ---- one, described ----------------------------------------------------------------------------------------------------- */

static void describe(fb_response *response, const fb_graph *graph, fb_tensor tensor) {
    fb_buffer answer = {0};
    fb_slot slot;
    write_tensor(graph, tensor, &answer);
    for (fb_slot_cursor cursor = {0}; fb_slot_next(graph, &cursor, &slot);) {
        if (slot.tensor.id == tensor.id) write_owner(graph, &slot, &answer);
    }
    fb_buffer_string(&answer, "]}");
    fb_respond_json_buffer_take(response, 200, &answer);
}

/* ---- its bytes ---------------------------------------------------------------------------------------------------------- */

typedef struct open_tensor {
    fb_shared_graph *shared;
    fb_blobs blobs;
    fb_evaluation *evaluation;
    fb_blob_check *check;
} open_tensor;

static fb_status read_tensor(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    open_tensor *open = state;
    fb_status status = fb_blob_check_go_on(open->check, offset, size, error);
    return status ? status : fb_evaluation_read(open->evaluation, offset, to, size, error);
}

static void release_tensor(void *state) {
    open_tensor *open = state;
    fb_evaluation_free(open->evaluation);
    fb_blob_check_free(open->check);
    fb_share_release(open->shared);
    free(open);
}

typedef struct missing_list {
    const fb_graph *graph;
    json_t *items;
} missing_list;

static void list_missing(void *context, fb_tensor tensor, const char *code, const char *blob) {
    missing_list *missing = context;
    const char *name = fb_text(missing->graph, fb_tensor_at(missing->graph, tensor)->name);
    json_t *item = json_pack("{s:s, s:s}", "name", name, "code", code);
    if (item && blob && json_object_set_new(item, "blob", json_string(blob))) {
        json_decref(item);
        item = NULL;
    }
    fb_list_add_take(&missing->items, item);
}

static void respond_unreadable(fb_response *response, open_tensor *open, fb_tensor tensor, const fb_error *error) {
    missing_list missing = {open->shared->graph, json_array()};
    fb_evaluation_missing(missing.graph, &tensor, 1, &open->blobs, list_missing, &missing, NULL);
    if (!missing.items) {
        fb_error short_of_memory = {0};
        fb_fail_memory(&short_of_memory);
        fb_respond_error(response, &short_of_memory);
        return;
    }
    if (!json_array_size(missing.items)) { /* that was not why */
        json_decref(missing.items);
        missing.items = NULL;
    }
    fb_respond_unreadable(response, error, missing.items);
}

static void set_headers(fb_response *response, const fb_graph *graph, fb_tensor tensor, const char *tag) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_buffer shape = {0};
    for (int i = 0; i < fb_shape_rank(graph, row->shape); i++)
        fb_buffer_printf(&shape, i ? ",%" PRId64 : "%" PRId64, fb_shape_size(graph, row->shape, i));
    fb_response_header(response, "Foldback-Dtype", fb_dtype_name(row->dtype));
    if (shape.size && fb_buffer_text(&shape)) fb_response_header(response, "Foldback-Shape", shape.data);
    fb_buffer_free(&shape);
    fb_response_etag(response, tag);
}

static fb_status open_bytes(const fb_request *request, open_tensor *open, fb_tensor tensor, fb_error *error) {
    const fb_app *app = request->context;
    const fb_graph *graph = open->shared->graph;
    const char **sources = NULL;
    size_t count = 0;
    fb_status status = fb_evaluation_new(graph, tensor, &open->blobs, &open->evaluation, error);
    if (!status) status = fb_inputs_blobs(graph, &tensor, 1, &sources, &count, error);
    if (!status) {
        fb_body_part part = fb_part_of_body(request, fb_evaluation_size(open->evaluation));
        status = fb_blob_check_new(app->store, sources, count, &part, &open->check, error);
    }
    free(sources);
    return status ? status : fb_evaluation_refuse_overflow(open->evaluation, &(uint64_t){FB_OVERFLOW_LOOK}, error);
}

static void respond_bytes(const fb_request *request, fb_response *response, fb_shared_graph *shared, fb_tensor tensor) {
    static const fb_pull_source source = {.read = read_tensor, .release = release_tensor};
    const fb_app *app = request->context;
    const fb_graph *graph = shared->graph;
    const char *what[] = {"tensor", fb_text(graph, fb_tensor_at(graph, tensor)->name)};
    char tag[FB_ID_LENGTH + 1];
    fb_error error = {0};
    open_tensor *open = calloc(1, sizeof *open);
    if (!open || !fb_bytes_tag(shared->id, what, 2, tag)) {
        free(open);
        fb_respond_no_memory(response);
        return;
    }
    *open = (open_tensor){.shared = fb_share_hold(shared), .blobs = fb_blob_source(app->store)};
    if (fb_request_has_etag(request, tag)) {
        fb_respond_not_modified(response, "application/octet-stream", tag);
        release_tensor(open);
    } else if (open_bytes(request, open, tensor, &error)) {
        respond_unreadable(response, open, tensor, &error);
        release_tensor(open);
    } else {
        set_headers(response, graph, tensor, tag);
        fb_respond_pulled(request, response, "application/octet-stream", fb_evaluation_size(open->evaluation), &source, open);
    }
}

static void get_tensor(const fb_request *request, fb_response *response) {
    const char *name = fb_request_param(request, "name");
    fb_error error = {0};
    fb_shared_graph *shared;
    bool is_described;
    if (!fb_request_query_bool(request, response, "describe", false, &is_described)) return;
    if (fb_load_graph(request->context, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_tensor tensor = fb_tensor_called(shared->graph, name);
    is_described |= fb_request_accepts(request, "application/json") > fb_request_accepts(request, "application/octet-stream");
    if (!tensor.id)
        fb_respond_problem(response, 404, "unknown-tensor",
                           "the graph has no tensor \"%.200s\": neither owned at that path nor of that name", name);
    else if (is_described) describe(response, shared->graph, tensor);
    else respond_bytes(request, response, shared, tensor);
    fb_share_release(shared);
}

const fb_route fb_tensor_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/tensors",
     .handler = get_tensors,
     .scope = FB_SCOPE_READ,
     .query = "limit,page_token"},
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/tensors/{name}",
     .handler = get_tensor,
     .scope = FB_SCOPE_READ,
     .query = "describe",
     .produces = "application/octet-stream,application/json"},
    {0},
};
