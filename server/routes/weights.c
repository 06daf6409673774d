/* GET /v1/graphs/{id}/weights and POST /v1/graphs/{id}/materialize: one safetensors file of what a graph's modules own. With
 * ?format=pt2 the archive of the graph (archives.c) is made a blob. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/graph/slot.h"
#include "core/json/json.h"
#include "core/weights/weights_file.h"
#include "server/graphs/graphs.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"

/* Which tensors. */
typedef struct weights_wanted {
    char **names; /* sorted, each once; NULL = all that modules own */
    size_t count;
    fb_tied tied;
} weights_wanted;

/* All that a file being read refers to. It stays where it is. */
typedef struct open_weights {
    fb_shared_graph *shared;
    fb_blobs blobs;
    weights_wanted wanted;
    fb_weights_file *file;
    fb_blob_check *check;
} open_weights;

/* ---- which tensors ------------------------------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The file is the same in any order of the tensors that are asked for. */
static void sort_names(weights_wanted *wanted) {
    size_t kept = 0;
    fb_sort(wanted->names, wanted->count, sizeof *wanted->names, compare_names);
    for (size_t i = 0; i < wanted->count; i++) {
        bool is_again = kept && !strcmp(wanted->names[kept - 1], wanted->names[i]);
        if (is_again) free(wanted->names[i]);
        else wanted->names[kept++] = wanted->names[i];
    }
    wanted->count = kept;
}

static void weights_wanted_free(weights_wanted *wanted) {
    for (size_t i = 0; i < wanted->count; i++) free(wanted->names[i]);
    free(wanted->names);
    *wanted = (weights_wanted){0};
}

static void open_weights_free(open_weights *weights) {
    fb_weights_file_free(weights->file);
    fb_blob_check_free(weights->check);
    weights_wanted_free(&weights->wanted);
    fb_share_release(weights->shared);
    free(weights);
}

static bool add_name(weights_wanted *wanted, const char *name) {
    char *copy = strdup(name);
    if (copy) wanted->names[wanted->count++] = copy;
    return copy != NULL;
}

static const char *const tied_names[] = {
    [FB_TIED_AS_UPLOADED] = "as-uploaded", [FB_TIED_FIRST] = "first", [FB_TIED_EACH] = "each"};

static bool read_tied(const char *text, fb_tied *out) {
    *out = FB_TIED_AS_UPLOADED;
    if (!text) return true;
    for (size_t i = 0; i < sizeof tied_names / sizeof *tied_names; i++) {
        *out = (fb_tied)i;
        if (!strcmp(text, tied_names[i])) return true;
    }
    return false;
}

#define TIED "tied is \"as-uploaded\", \"first\" or \"each\": the paths under which a tensor of several modules is in the file"

/* From the query (?names=a&names=b&tied=each), or the members `names` and `tied` of a body. On failure these respond and return
 * false: 422 wrong-type, bad-parameter. */
static bool weights_wanted_query(const fb_request *request, fb_response *response, weights_wanted *out) {
    weights_wanted wanted = {0};
    size_t cursor = 0, count = 0;
    if (!read_tied(fb_request_query(request, "tied"), &wanted.tied))
        return fb_refuse_parameter(response, "tied", "bad-parameter", TIED);
    while (fb_request_query_next(request, "names", &cursor)) count++;
    wanted.names = count ? calloc(count, sizeof *wanted.names) : NULL;
    bool ok = !count || wanted.names;
    cursor = 0;
    for (size_t i = 0; i < count && ok; i++) ok = add_name(&wanted, fb_request_query_next(request, "names", &cursor));
    if (!ok) {
        weights_wanted_free(&wanted);
        return fb_respond_no_memory(response);
    }
    sort_names(&wanted);
    *out = wanted;
    return true;
}

static bool read_names(fb_response *response, const json_t *names, weights_wanted *out) {
    if (!json_is_array(names)) return fb_refuse_member(response, "wrong-type", "/names", "names is an array of strings");
    out->names = calloc(json_array_size(names) + 1, sizeof *out->names);
    if (!out->names) return fb_respond_no_memory(response);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/names/%zu", i);
        if (!name) return fb_refuse_member(response, "wrong-type", pointer, "names is an array of strings");
        if (!add_name(out, name)) return fb_respond_no_memory(response);
    }
    sort_names(out);
    return true;
}

static bool weights_wanted_body(fb_response *response, const json_t *members, weights_wanted *out) {
    const json_t *names = json_object_get(members, "names"), *tied = json_object_get(members, "tied");
    weights_wanted wanted = {0};
    if ((tied && !json_is_string(tied)) || !read_tied(json_string_value(tied), &wanted.tied))
        return fb_refuse_member(response, "wrong-type", "/tied", TIED);
    if (names && !read_names(response, names, &wanted)) {
        weights_wanted_free(&wanted);
        return false;
    }
    *out = wanted;
    return true;
}

static bool check_names(fb_response *response, const fb_graph *graph, const weights_wanted *wanted) {
    json_t *unknown = json_array();
    const char *first = NULL;
    bool is_one = true;
    for (size_t i = 0; i < wanted->count; i++) {
        if (fb_tensor_called(graph, wanted->names[i]).id) continue;
        if (!first) first = wanted->names[i];
        else is_one = false;
        fb_list_add_take(&unknown, json_string(wanted->names[i]));
    }
    if (!first) {
        json_decref(unknown);
        return true;
    }
    fb_respond_problem(response, 422, "unknown-tensor",
                       "the graph has no tensor \"%.200s\"%s: neither owned at that path nor of that name", first,
                       is_one ? "" : ", nor others");
    fb_problem_member_take(response, "names", unknown);
    return false;
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

void fb_error_bytes_missing(fb_error *error) {
    static const char cure[] = "; PUT a safetensors file with them to /v1/blobs/{digest}, and POST the graph to "
                               "/v1/graphs?weights={digest}: the graph that comes out has them";
    size_t length = strlen(error->message);
    error->status = FB_CONFLICT;
    fb_copy_text(error->code, sizeof error->code, "bytes-missing");
    if (length + sizeof cure <= sizeof error->message) memcpy(error->message + length, cure, sizeof cure);
}

/* 409 for what cannot be read of a stored graph. `faulty` (stolen, perhaps NULL) is [{"name", "code", "blob"?}, …]. */
void fb_respond_unreadable(fb_response *response, const fb_error *error, json_t *faulty) {
    fb_error conflict = *error;
    bool is_missing = error->status == FB_NOT_FOUND || (faulty && strcmp(error->code, FB_TENSOR_OVERFLOWS) != 0);
    /* The request is right: it is the stored graph that says more than is here. */
    if (is_missing || error->status == FB_INVALID) conflict.status = FB_CONFLICT;
    if (is_missing) fb_error_bytes_missing(&conflict);
    conflict.pointer[0] = '\0';
    fb_respond_error(response, &conflict);
    if (faulty) fb_problem_member_take(response, "tensors", faulty);
}

fb_body_part fb_part_of_body(const fb_request *request, uint64_t size) {
    bool is_range = fb_request_header(request, "Range") != NULL;
    return (fb_body_part){.body = size, .is_range = is_range, .watch = fb_request_watch(request)};
}

static bool open_file(const fb_request *request, fb_response *response, open_weights *weights) {
    const fb_app *app = request->context;
    fb_error error = {0};
    json_t *faulty = NULL;
    const weights_wanted *wanted = &weights->wanted;
    fb_weights_choice choice = {.names = (const char *const *)wanted->names,
                                .count = wanted->count,
                                .tied = wanted->tied,
                                .is_finite = atomic_load(&weights->shared->has_finite_weights)};
    if (!check_names(response, weights->shared->graph, wanted)) return false;
    fb_status status = fb_weights_file_new(weights->shared->graph, &choice, &weights->blobs, &weights->file, &faulty, &error);
    if (!status) {
        if (!wanted->names) atomic_store(&weights->shared->has_finite_weights, true);
        size_t count;
        const char *const *sources = fb_weights_file_sources(weights->file, &count);
        fb_body_part part = fb_part_of_body(request, fb_weights_file_size(weights->file));
        status = fb_blob_check_new(app->store, sources, count, &part, &weights->check, &error);
    }
    if (status) fb_respond_unreadable(response, &error, faulty);
    else json_decref(faulty);
    return !status;
}

/* Steals `shared` and `wanted`, also on failure; then this responds and returns NULL: 409 bytes-missing, which lists the
 * tensors (before the first byte is made), 422 unknown-tensor. */
static open_weights *open_weights_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                       weights_wanted *wanted) {
    const fb_app *app = request->context;
    open_weights *weights = calloc(1, sizeof *weights);
    if (!weights) {
        fb_share_release(shared);
        weights_wanted_free(wanted);
        fb_respond_no_memory(response);
        return NULL;
    }
    *weights = (open_weights){.shared = shared, .blobs = fb_blob_source(app->store), .wanted = *wanted};
    *wanted = (weights_wanted){0};
    if (open_file(request, response, weights)) return weights;
    open_weights_free(weights);
    return NULL;
}

/* The bytes' strong entity tag, known without making them: for the same graph, what of it, and version of the service they are
 * the same. `what` are texts. False when memory is out. */
bool fb_bytes_tag(const char *graph_id, const char *const *what, size_t count, char tag[FB_ID_LENGTH + 1]) {
    fb_buffer text = {0};
    fb_buffer_string(&text, FB_VERSION " ");
    fb_buffer_string(&text, graph_id);
    for (size_t i = 0; i < count; i++) fb_buffer_json_string(&text, what[i], strlen(what[i]));
    bool ok = !text.failed && fb_sha256_id(text.data, text.size, tag);
    fb_buffer_free(&text);
    return ok;
}

/* ---- GET …/weights ------------------------------------------------------------------------------------------------------ */

static fb_status read_file(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    open_weights *weights = state;
    fb_status status = fb_blob_check_go_on(weights->check, offset, size, error);
    return status ? status : fb_weights_file_read(weights->file, offset, to, size, error);
}

static void release_file(void *state) {
    open_weights_free(state);
}

static const fb_pull_source file_source = {.read = read_file, .release = release_file};

static bool make_tag(const char *id, const weights_wanted *wanted, char tag[FB_ID_LENGTH + 1]) {
    size_t count = 2 + wanted->count;
    const char **what = calloc(count, sizeof *what);
    if (!what) return false;
    what[0] = wanted->names ? "these" : "all";
    what[1] = tied_names[wanted->tied];
    for (size_t i = 0; i < wanted->count; i++) what[2 + i] = wanted->names[i];
    bool ok = fb_bytes_tag(id, what, count, tag);
    free(what);
    return ok;
}

/* The graph's name as far as it can be a file's. */
static void name_attachment(fb_response *response, const char *name) {
    char safe[101];
    fb_copy_text(safe, sizeof safe, *name ? name : "weights");
    for (char *c = safe; *c; c++) {
        bool is_plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9');
        if (!is_plain && !strchr("._-", *c)) *c = '_';
    }
    fb_response_header_format(response, "Content-Disposition", "attachment; filename=\"%s.safetensors\"", safe);
}

static void respond_file(const fb_request *request, fb_response *response, fb_shared_graph *shared, weights_wanted *wanted) {
    char tag[FB_ID_LENGTH + 1];
    bool is_tagged = make_tag(shared->id, wanted, tag);
    if (!is_tagged || fb_request_has_etag(request, tag)) {
        if (!is_tagged) fb_respond_no_memory(response);
        else fb_respond_not_modified(response, "application/octet-stream", tag);
        fb_share_release(shared);
        weights_wanted_free(wanted);
        return;
    }
    open_weights *weights = open_weights_take(request, response, shared, wanted);
    if (!weights) return;
    fb_response_etag(response, tag);
    name_attachment(response, fb_graph_name(weights->shared->graph));
    fb_respond_pulled(request, response, "application/octet-stream", fb_weights_file_size(weights->file), &file_source,
                      weights);
}

static void get_weights(const fb_request *request, fb_response *response) {
    weights_wanted wanted;
    fb_error error = {0};
    fb_shared_graph *shared;
    if (!weights_wanted_query(request, response, &wanted)) return;
    if (fb_load_graph(request->context, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        weights_wanted_free(&wanted);
        return;
    }
    respond_file(request, response, shared, &wanted);
}

/* ---- POST …/materialize ------------------------------------------------------------------------------------------------- */

#define PART ((size_t)1 << 20)

/* Writes the bytes into an upload; a blob of them is durable afterwards. */
static fb_status write_blob(const fb_request *request, const fb_pull_source *source, void *state, uint64_t size,
                            fb_upload *upload, char digest[FB_ID_LENGTH + 1], bool *is_new, fb_error *error) {
    const fb_watch *watch = fb_request_watch(request);
    fb_store_actor by = fb_actor_of(request);
    unsigned char *part = malloc(PART);
    fb_status status = part ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < size && !status;) {
        size_t now = size - at < PART ? (size_t)(size - at) : PART;
        status = fb_watch_check(watch, error);
        if (!status) status = source->read(state, at, part, now, error);
        if (!status) status = fb_upload_write(upload, part, now, error);
        at += now;
    }
    free(part);
    return status ? status : fb_upload_finish(upload, NULL, &by, digest, is_new, error);
}

void fb_respond_materialized(fb_response *response, bool is_new, const char *digest, uint64_t size, const size_t *tensors) {
    fb_buffer answer = {0};
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "blob", digest);
    fb_put_int(&answer, "size", (int64_t)size);
    if (tensors) fb_put_int(&answer, "tensors", (int64_t)*tensors);
    fb_buffer_char(&answer, '}');
    fb_respond_json_buffer_take(response, is_new ? 201 : 200, &answer);
    fb_response_header_format(response, "Location", "/v1/blobs/%s", digest);
}

void fb_materialize(const fb_request *request, fb_response *response, const fb_pull_source *source, void *state, uint64_t size,
                    const size_t *tensors) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_upload *upload = NULL;
    char digest[FB_ID_LENGTH + 1];
    bool is_new = false;
    fb_status status = fb_upload_new(app->store, false, &upload, &error);
    if (!status) status = write_blob(request, source, state, size, upload, digest, &is_new, &error);
    fb_upload_close(upload, status != FB_OK);
    if (status) fb_respond_unreadable(response, &error, NULL);
    else fb_respond_materialized(response, is_new, digest, size, tensors);
}

static void materialize_weights(const fb_request *request, fb_response *response) {
    static const char *const known[] = {"names", "tied", NULL};
    fb_request_body body;
    weights_wanted wanted;
    fb_error error = {0};
    fb_shared_graph *shared;
    if (!fb_body_read(request, response, known, &body)) return;
    bool ok = weights_wanted_body(response, body.members, &wanted);
    fb_request_body_free(&body);
    if (!ok) return;
    if (fb_load_graph(request->context, fb_request_watch(request), fb_request_param(request, "id"), &shared, &error)) {
        fb_respond_error(response, &error);
        weights_wanted_free(&wanted);
        return;
    }
    open_weights *weights = open_weights_take(request, response, shared, &wanted);
    if (!weights) return;
    size_t tensors = fb_weights_file_count(weights->file);
    fb_materialize(request, response, &file_source, weights, fb_weights_file_size(weights->file), &tensors);
    open_weights_free(weights);
}

static void post_materialize(const fb_request *request, fb_response *response) {
    const char *format = fb_request_query(request, "format");
    if (!format || strcmp(format, "safetensors") == 0) materialize_weights(request, response);
    else if (strcmp(format, "pt2") == 0) fb_materialize_archive(request, response);
    else fb_refuse_parameter(response, "format", "bad-parameter", "format is \"safetensors\" or \"pt2\"");
}

const fb_route fb_weights_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/weights",
     .handler = get_weights,
     .scope = FB_SCOPE_READ,
     .query = "names,tied",
     .produces = "application/octet-stream"},
    {.method = "POST",
     .pattern = "/v1/graphs/{id}/materialize",
     .handler = post_materialize,
     .defer = fb_defer_request,
     .scope = FB_SCOPE_WRITE,
     .body = FB_BODY_OPTIONAL,
     .query = "format"},
    {0},
};
