/* ONNX models: in as bodies, or as sets of files that are blobs already, and the files that a graph's model came with. */
#include "core/onnx/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file_kind.h"
#include "core/base/sort.h"
#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"

bool fb_is_onnx_body(const fb_request *request, const void *bytes, uint64_t size) {
    return fb_request_has_type(request, FB_ONNX_TYPES) || fb_is_onnx(bytes, size);
}

bool fb_is_files_request(const fb_request *request) {
    return fb_request_has_type(request, FB_FILES_TYPE);
}

/* ---- a set of files ------------------------------------------------------------------------------------------------------ */

/* Of a member of "files". */
static bool refuse_file(fb_response *response, const char *code, const char *name, const char *detail) {
    fb_buffer pointer = {0};
    fb_buffer_string(&pointer, "/files");
    fb_buffer_pointer_token(&pointer, name, strlen(name));
    const char *text = fb_buffer_text(&pointer);
    fb_refuse_member(response, code, text ? text : "/files", detail);
    fb_buffer_free(&pointer);
    return false;
}

static bool check_files(fb_response *response, const char *model, json_t *files) {
    const char *name;
    json_t *digest;
    if (!json_is_object(files))
        return fb_refuse_member(response, files ? "wrong-type" : "missing-member", "/files",
                                "files is an object: the name of each file, and its digest");
    json_object_foreach(files, name, digest) {
        if (!json_is_string(digest)) return refuse_file(response, "wrong-type", name, "a digest is a string");
        if (!fb_is_sha256_id(json_string_value(digest)))
            return refuse_file(response, "bad-digest", name, "a digest is \"sha256:\" and 64 lower-case hex digits");
    }
    return json_object_get(files, model) ||
           fb_refuse_member(response, "missing-member", "/files", "files must have the model's own file, too");
}

static bool read_files(fb_response *response, const fb_request_body *body, onnx_bundle *out) {
    const json_t *absent = json_object_get(body->members, "absent");
    json_t *files = json_object_get(body->members, "files");
    if (!fb_body_text(response, body, "model", FB_REFERENCE_MAX, &out->model)) return false;
    if (!out->model)
        return fb_refuse_member(response, "missing-member", "/model", "the request needs the name of the model's file");
    if (absent && !json_is_boolean(absent))
        return fb_refuse_member(response, "wrong-type", "/absent", "absent is true or false");
    if (!check_files(response, out->model, files)) return false;
    out->blob = json_string_value(json_object_get(files, out->model));
    out->may_lack = json_is_true(absent);
    if (onnx_bundle_gather(files, out)) return true;
    fb_respond_no_memory(response);
    return false;
}

static bool respond_missing(fb_response *response, json_t *missing) {
    fb_respond_problem(response, 422, "missing-files", "these files of the model are not here: upload them as blobs first");
    fb_problem_member_take(response, "files", json_incref(missing));
    return false;
}

/* All of them are blobs. */
static bool find_files(const fb_request *request, fb_response *response, const onnx_bundle *bundle, json_t **missing) {
    const fb_app *app = request->context;
    size_t count = bundle->count + 1;
    const char **digests = calloc(count, sizeof *digests);
    bool *is_missing = calloc(count, sizeof *is_missing);
    fb_error error = {0};
    fb_status status = digests && is_missing ? FB_OK : fb_fail_memory(&error);
    for (size_t i = 0; i < count && !status; i++) digests[i] = i ? bundle->files[i - 1].blob : bundle->blob;
    if (!status) status = fb_blobs_missing(app->store, digests, count, is_missing, &error);
    *missing = json_array();
    for (size_t i = 0; i < count && !status; i++)
        if (is_missing[i]) fb_list_add_take(missing, json_string(i ? bundle->files[i - 1].name : bundle->model));
    if (!status && !*missing) status = fb_fail_memory(&error);
    free(digests);
    free(is_missing);
    if (status) fb_respond_error(response, &error);
    return !status && (!json_array_size(*missing) || respond_missing(response, *missing));
}

bool fb_files_take(const fb_request *request, fb_response *response, fb_request_archive *archive) {
    static const char *const known[] = {"model", "files", "absent", NULL};
    fb_request_body body;
    if (!fb_body_read(request, response, known, &body)) return false;
    archive->bundle.said = json_incref(body.members);
    fb_request_body_free(&body);
    body.members = archive->bundle.said;
    if (!read_files(response, &body, &archive->bundle)) return false;
    if (!find_files(request, response, &archive->bundle, &archive->missing)) return false;
    memcpy(archive->digest, archive->bundle.blob, FB_ID_LENGTH + 1);
    return true;
}

/* ---- a model as a document ----------------------------------------------------------------------------------------------- */

typedef struct finding {
    fb_store *store;
    const onnx_bundle *bundle;
    fb_error error; /* of the first blob that could not be opened */
} finding;

static bool find_file(void *context, const char *location, uint64_t *size, const char **blob) {
    finding *f = context;
    fb_blob *opened;
    const onnx_bundle_file *found = f->bundle ? onnx_bundle_find(f->bundle, location) : NULL;
    if (!found || !found->blob || f->error.status || fb_blob_open(f->store, found->blob, &opened, &f->error)) return false;
    *size = fb_blob_size(opened);
    *blob = found->blob;
    fb_blob_close(opened);
    return true;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void list_missing(const onnx_file *file, json_t **missing) {
    const char **names = calloc(file->location_count + 1, sizeof *names);
    size_t count = 0;
    for (uint32_t i = 0; i < file->location_count && names; i++)
        if (!file->locations[i]->is_there && file->locations[i]->is_first) names[count++] = file->locations[i]->name;
    if (names) fb_sort(names, count, sizeof *names, by_name);
    json_decref(*missing); /* no blob was */
    *missing = json_array();
    for (size_t i = 0; i < count; i++) fb_list_add_take(missing, json_string(names[i]));
    free(names);
}

static fb_status hold(void *request, uint64_t size, fb_error *error) {
    return fb_request_hold(request, size, error);
}

static void release(void *request, uint64_t size) {
    fb_request_release(request, size);
}

/* Messages that were within the limits of their day. */
fb_status fb_onnx_open_stored(const fb_request *request, const void *bytes, uint64_t size, const onnx_bundle *bundle,
                              fb_work *work, onnx_file *file, fb_error *error) {
    const fb_app *app = request->context;
    const onnx_limits limits = {.context = (void *)(uintptr_t)request, .hold = hold, .release = release};
    finding found = {.store = app->store, .bundle = bundle};
    const onnx_files files = {.model = bundle->model, .may_lack = bundle->may_lack, .context = &found, .find = find_file};
    fb_status status = onnx_open(bytes, size, &limits, work, file, error);
    if (!status) status = onnx_check(file, &files, work, error);
    if (found.error.status) {
        *error = found.error;
        status = found.error.status;
    }
    return status;
}

fb_status fb_onnx_document(const fb_request *request, const void *bytes, uint64_t size, const char *digest,
                           const onnx_bundle *bundle, const fb_watch *watch, json_t **missing, fb_buffer *out,
                           char *written_for, fb_error *error) {
    const fb_app *app = request->context;
    fb_work work = {.watch = watch};
    onnx_file file;
    onnx_limits limits = {.memory = fb_request_body_limit(request),
                          .max_nodes = app->limits.max_nodes,
                          .context = (void *)(uintptr_t)request,
                          .hold = hold,
                          .release = release};
    finding found = {.store = app->store, .bundle = bundle};
    onnx_files files = {
        .model = bundle ? bundle->model : NULL, .may_lack = bundle && bundle->may_lack, .context = &found, .find = find_file};
    fb_status status = onnx_open(bytes, size, &limits, &work, &file, error);
    if (!status) status = onnx_check(&file, &files, &work, error);
    if (found.error.status) { /* not a file that is missing */
        *error = found.error;
        status = found.error.status;
    }
    if (status && missing && strcmp(error->code, "missing-files") == 0) list_missing(&file, missing);
    if (!status) status = onnx_document(&file, digest, files.model, &work, out, error);
    if (!status && written_for) onnx_written_for(&file, written_for);
    onnx_close(&file);
    return status;
}
