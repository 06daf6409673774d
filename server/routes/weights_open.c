#include "server/routes/weights_open.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/slot.h"
#include "core/json/members.h"
#include "server/routes/body_members.h"
#include "server/routes/page.h"

/* ---- which tensors ------------------------------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The file is the same in whatever order its tensors are asked for. */
static void sort_names(fb_weights_wanted *wanted) {
    size_t kept = 0;
    if (wanted->count) qsort(wanted->names, wanted->count, sizeof *wanted->names, compare_names);
    for (size_t i = 0; i < wanted->count; i++) {
        bool is_again = kept && !strcmp(wanted->names[kept - 1], wanted->names[i]);
        if (is_again) free(wanted->names[i]);
        else wanted->names[kept++] = wanted->names[i];
    }
    wanted->count = kept;
}

static bool add_name(fb_weights_wanted *wanted, const char *name) {
    char *copy = strdup(name);
    if (copy) wanted->names[wanted->count++] = copy;
    return copy != NULL;
}

static bool respond_no_memory(fb_response *response) {
    fb_error error = {0};
    fb_fail_memory(&error);
    fb_respond_error(response, &error);
    return false;
}

static bool read_tied(const char *tied, bool *with_tied) {
    *with_tied = tied && !strcmp(tied, "each");
    return !tied || *with_tied || !strcmp(tied, "first");
}

#define TIED "tied is \"first\" or \"each\": whether a tensor that several modules own is there once, or once for each"

bool fb_weights_wanted_query(const fb_request *request, fb_response *response, fb_weights_wanted *out) {
    fb_weights_wanted wanted = {0};
    size_t cursor = 0, count = 0;
    if (!read_tied(fb_request_query(request, "tied"), &wanted.with_tied))
        return fb_refuse_parameter(response, "tied", "bad-parameter", TIED);
    while (fb_request_query_next(request, "names", &cursor)) count++;
    wanted.names = count ? calloc(count, sizeof *wanted.names) : NULL;
    bool ok = !count || wanted.names;
    cursor = 0;
    for (size_t i = 0; i < count && ok; i++) ok = add_name(&wanted, fb_request_query_next(request, "names", &cursor));
    if (!ok) {
        fb_weights_wanted_free(&wanted);
        return respond_no_memory(response);
    }
    sort_names(&wanted);
    *out = wanted;
    return true;
}

static bool read_names(fb_response *response, const json_t *names, fb_weights_wanted *out) {
    if (!json_is_array(names)) return fb_refuse_member(response, "wrong-type", "/names", "names is an array of strings");
    out->names = calloc(json_array_size(names) + 1, sizeof *out->names);
    if (!out->names) return respond_no_memory(response);
    for (size_t i = 0; i < json_array_size(names); i++) {
        const char *name = json_string_value(json_array_get(names, i));
        char pointer[40];
        snprintf(pointer, sizeof pointer, "/names/%zu", i);
        if (!name) return fb_refuse_member(response, "wrong-type", pointer, "names is an array of strings");
        if (!add_name(out, name)) return respond_no_memory(response);
    }
    sort_names(out);
    return true;
}

bool fb_weights_wanted_body(fb_response *response, const json_t *members, fb_weights_wanted *out) {
    const json_t *names = json_object_get(members, "names"), *tied = json_object_get(members, "tied");
    fb_weights_wanted wanted = {0};
    if ((tied && !json_is_string(tied)) || !read_tied(json_string_value(tied), &wanted.with_tied))
        return fb_refuse_member(response, "wrong-type", "/tied", TIED);
    if (names && !read_names(response, names, &wanted)) {
        fb_weights_wanted_free(&wanted);
        return false;
    }
    *out = wanted;
    return true;
}

void fb_weights_wanted_free(fb_weights_wanted *wanted) {
    for (size_t i = 0; i < wanted->count; i++) free(wanted->names[i]);
    free(wanted->names);
    *wanted = (fb_weights_wanted){0};
}

fb_tensor fb_tensor_called(const fb_graph *graph, const char *name) {
    fb_tensor owned = fb_tensor_at_path(graph, name);
    return owned.id ? owned : fb_tensor_find(graph, name);
}

static bool check_names(fb_response *response, const fb_graph *graph, const fb_weights_wanted *wanted) {
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

void fb_respond_unreadable(fb_response *response, const fb_error *error, json_t *missing) {
    fb_error conflict = *error;
    bool is_missing = missing || error->status == FB_NOT_FOUND;
    /* The request is right: it is the stored graph that says more than is here. */
    if (is_missing || error->status == FB_INVALID) conflict.status = FB_CONFLICT;
    if (is_missing) fb_copy_text(conflict.code, sizeof conflict.code, "bytes-missing");
    conflict.pointer[0] = '\0';
    fb_respond_error(response, &conflict);
    if (missing) fb_problem_member_take(response, "tensors", missing);
}

static bool open_file(fb_response *response, fb_open_weights *weights) {
    fb_error error = {0};
    json_t *missing = NULL;
    const fb_weights_wanted *wanted = &weights->wanted;
    fb_weights_choice choice = {
        .names = (const char *const *)wanted->names, .count = wanted->count, .with_tied = wanted->with_tied};
    if (!check_names(response, weights->shared->graph, wanted)) return false;
    fb_status status = fb_weights_file_new(weights->shared->graph, &choice, &weights->blobs, &weights->file, &missing, &error);
    if (status) fb_respond_unreadable(response, &error, missing);
    else json_decref(missing);
    return !status;
}

fb_open_weights *fb_open_weights_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                      fb_weights_wanted *wanted) {
    const fb_app *app = request->context;
    fb_open_weights *weights = calloc(1, sizeof *weights);
    if (!weights) {
        fb_share_release(shared);
        fb_weights_wanted_free(wanted);
        respond_no_memory(response);
        return NULL;
    }
    *weights = (fb_open_weights){.shared = shared, .blobs = fb_blob_source(app->store), .wanted = *wanted};
    *wanted = (fb_weights_wanted){0};
    if (open_file(response, weights)) return weights;
    fb_open_weights_free(weights);
    return NULL;
}

void fb_open_weights_free(fb_open_weights *weights) {
    fb_weights_file_free(weights->file);
    fb_weights_wanted_free(&weights->wanted);
    fb_share_release(weights->shared);
    free(weights);
}

bool fb_bytes_tag(const char *graph_id, const char *const *what, size_t count, char tag[FB_ID_LENGTH + 1]) {
    fb_buffer text = {0};
    fb_buffer_string(&text, FB_VERSION " ");
    fb_buffer_string(&text, graph_id);
    for (size_t i = 0; i < count; i++) fb_buffer_json_string(&text, what[i], strlen(what[i]));
    bool ok = !text.failed && fb_sha256_id(text.data, text.size, tag);
    fb_buffer_free(&text);
    return ok;
}
