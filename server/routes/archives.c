/* Archives of torch.export (.pt2) and ONNX models: in as the bodies of requests for graphs, out as what a graph came from. */
#include "core/archive/archive.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/analysis/onnx_types.h"
#include "core/base/file_kind.h"
#include "core/document/document.h"
#include "core/json/json.h"
#include "server/graphs/app.h"
#include "server/history/history.h"
#include "server/routes/answer.h"
#include "server/routes/input.h"
#include "server/routes/routes.h"
#include "server/store/blobs.h"

/* ---- in ----------------------------------------------------------------------------------------------------------------- */

static bool begin_archive(const fb_request *request, fb_response *response, uint64_t size, void **state) {
    (void)size;
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_upload *upload = NULL;
    fb_status status = fb_upload_new(app->store, false, &upload, &error);
    if (status) fb_respond_error(response, &error);
    else *state = upload;
    return !status;
}

const fb_sink fb_archive_sink = {.begin = begin_archive, .write = fb_upload_sink_write, .abandon = fb_upload_sink_abandon};

/* A body that was held in memory, because nothing but its first bytes says what it is. */
static bool is_archive_body(const fb_request *request) {
    const void *body = request->body;
    return !request->body_state && (fb_is_zip(body, request->body_size) || fb_is_onnx(body, request->body_size));
}

bool fb_is_archive_request(const fb_request *request) {
    return request->body_state || fb_request_query(request, "archive") || is_archive_body(request) ||
           fb_is_files_request(request);
}

/* A request's watch that also gives back the pages that have been read, so that memory does not grow with the archive. */
typedef struct forgetting {
    const fb_watch *request;
    const fb_blob *blob;
    unsigned char *mapped; /* an upload that is not a blob yet */
    size_t size;
} forgetting;

static fb_status check_and_forget(void *context, fb_error *error) {
    const forgetting *f = context;
    if (f->blob) fb_blob_forget(f->blob);
    if (f->mapped) madvise(f->mapped, f->size, MADV_DONTNEED);
    return fb_watch_check(f->request, error);
}

static fb_status hold(void *request, uint64_t size, fb_error *error) {
    return fb_request_hold(request, size, error);
}

static void release(void *request, uint64_t size) {
    fb_request_release(request, size);
}

/* Limits of an archive that a client gives are a body's. A stored one was within the limits of its day. */
static fb_archive_limits limits_of(const fb_request *request, bool is_stored) {
    return (fb_archive_limits){.size = is_stored ? 0 : fb_request_body_limit(request),
                               .ratio = is_stored ? 0 : fb_request_body_ratio(request),
                               .context = (void *)(uintptr_t)request,
                               .hold = hold,
                               .release = release};
}

static fb_status check_pt2(const fb_request *request, const forgetting *forget, const char *digest, const fb_watch *watch,
                           fb_buffer *document, fb_error *error) {
    fb_work work = {.watch = watch};
    fb_archive archive = {0};
    fb_archive_limits limits = limits_of(request, false);
    fb_status status = fb_archive_open(forget->mapped, forget->size, &limits, &work, &archive, error);
    if (!status) status = fb_archive_check(&archive, &work, error);
    if (!status) status = fb_archive_document(&archive, fb_request_query(request, "model"), digest, &work, document, error);
    fb_archive_close(&archive);
    return status;
}

static fb_status refuse_model(const fb_request *request, fb_error *error) {
    if (!fb_request_query(request, "model")) return FB_OK;
    return fb_fail(error, FB_INVALID, "contradictory-source", "?model=", "an ONNX file has one model");
}

/* Reads all of it before it becomes a blob: a file that is not an archive stores nothing. */
static fb_status check_upload(const fb_request *request, fb_upload *upload, fb_request_archive *archive, fb_error *error) {
    static const char no_digest[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    forgetting forget = {.request = fb_request_watch(request), .size = fb_upload_size(upload)};
    const fb_watch watch = {.context = &forget, .check = check_and_forget};
    char digest[FB_ID_LENGTH + 1];
    fb_buffer document = {0};
    fb_status status = forget.size ? fb_upload_map(upload, &forget.mapped, error) : FB_OK;
    bool is_zip = !status && fb_is_zip(forget.mapped, forget.size);
    if (!status && !is_zip && fb_is_onnx_body(request, forget.mapped, forget.size)) {
        status = refuse_model(request, error);
        if (!status) status = fb_upload_digest(upload, digest, error);
        if (!status)
            status = fb_onnx_document(request, forget.mapped, forget.size, digest, NULL, &watch, &archive->missing,
                                      &archive->document, archive->written_for, error);
    } else if (!status) {
        status = check_pt2(request, &forget, no_digest, &watch, &document, error);
    }
    fb_buffer_free(&document);
    if (forget.mapped) munmap(forget.mapped, forget.size);
    return status;
}

static fb_status finish_upload(const fb_request *request, fb_upload *upload, fb_request_archive *archive, fb_error *error) {
    fb_store_actor by = fb_actor_of(request);
    bool is_new;
    fb_status status = check_upload(request, upload, archive, error);
    if (!status) status = fb_upload_finish(upload, NULL, &by, archive->digest, &is_new, error);
    if (!status && is_new) archive->put = fb_upload_created(upload);
    fb_upload_close(upload, status != FB_OK);
    return status;
}

static fb_status upload_body(const fb_request *request, fb_request_archive *archive, fb_error *error) {
    const fb_app *app = request->context;
    fb_upload *upload = NULL;
    fb_status status = fb_upload_new(app->store, false, &upload, error);
    if (!status) status = fb_upload_write(upload, request->body, request->body_size, error);
    if (!status) return finish_upload(request, upload, archive, error);
    fb_upload_close(upload, true);
    return status;
}

/* 400 missing-body, 422 contradictory-source, bad-digest. */
static bool check_source(const fb_request *request, fb_response *response) {
    const char *named = fb_request_query(request, "archive");
    bool has_body = request->body_state || request->body_size;
    if (fb_is_files_request(request) && fb_request_query(request, "model"))
        return fb_refuse_parameter(response, "model", "contradictory-source", "an ONNX file has one model");
    if (named && has_body)
        return fb_refuse_parameter(response, "archive", "contradictory-source", "the request has a body, and names an archive");
    if (named) return fb_check_digest(response, "archive", named);
    if (fb_request_query(request, "model") && !fb_is_archive_request(request))
        return fb_refuse_parameter(response, "model", "contradictory-source", "only an archive has several models");
    if (has_body) return true;
    fb_respond_problem(response, 400, "missing-body", "this request needs a body");
    return false;
}

void fb_archive_drop(const fb_request *request) {
    if (request->body_state) fb_upload_close(request->body_state, true);
}

/* Names the files that an ONNX model lacks. */
static void respond_refused(fb_response *response, const fb_error *error, fb_request_archive *archive) {
    fb_respond_request_error(response, error);
    if (json_array_size(archive->missing)) fb_problem_member_take(response, "files", json_incref(archive->missing));
}

bool fb_archive_take(const fb_request *request, fb_response *response, fb_request *bare, fb_request_archive *archive) {
    const char *named = fb_request_query(request, "archive");
    fb_error error = {0};
    fb_status status = FB_OK;
    *bare = *request;
    *archive = (fb_request_archive){0};
    if (!check_source(request, response)) {
        fb_archive_drop(request);
        return false;
    }
    if (fb_is_files_request(request) && !named) return fb_files_take(request, response, archive);
    if (request->body_state) status = finish_upload(request, request->body_state, archive, &error);
    else if (named) memcpy(archive->digest, named, FB_ID_LENGTH + 1);
    else if (is_archive_body(request)) status = upload_body(request, archive, &error);
    if (status) respond_refused(response, &error, archive);
    if (*archive->digest) {
        bare->body = archive->digest;
        bare->body_size = FB_ID_LENGTH;
        bare->body_state = NULL;
    }
    return !status;
}

void fb_archive_settle(const fb_request *request, const fb_response *response, fb_request_archive *archive) {
    const fb_app *app = request->context;
    fb_store_actor by = fb_actor_of(request);
    fb_error ignored = {0}; /* gc takes what stays */
    if (archive->put && fb_response_status(response) >= 400)
        fb_blob_withdraw(app->store, archive->digest, archive->put, &by, &ignored);
    onnx_bundle_free(&archive->bundle);
    json_decref(archive->missing);
    fb_buffer_free(&archive->document);
}

static fb_status find_written(const fb_request *request, const fb_archive *archive, const fb_blob *blob, const char *model,
                              fb_buffer *out, fb_error *error);

typedef enum archive_use { STORED, UPLOADED, NAMED } archive_use;

/* Where a document is read from. */
typedef struct archive_source {
    const char *digest;
    const char *model;         /* of a .pt2 archive with several */
    const onnx_bundle *bundle; /* NULL: no files came with it */
    archive_use use;
    json_t **missing;             /* files that the model lacks; or NULL */
    fb_request_archive *uploaded; /* may have the document already; or NULL */
    bool *is_model;               /* set where the document is made of a model of ONNX, whose types have not been looked for */
} archive_source;

/* The same as find_written for an ONNX model, whose document is in `out` already. */
static fb_status find_written_model(const fb_request *request, const archive_source *source, const fb_blob *blob,
                                    const unsigned char *bytes, const char *id, fb_buffer *out, fb_error *error);

/* One that a request names is checked whole, unless foldback wrote it; an upload has been. */
static fb_status read_pt2(const fb_request *request, const archive_source *source, const fb_blob *blob,
                          const unsigned char *bytes, const fb_watch *watch, fb_buffer *out, fb_error *error) {
    fb_work work = {.watch = watch};
    fb_archive archive;
    fb_archive_limits limits = limits_of(request, source->use == STORED);
    fb_status status = fb_archive_open(bytes, fb_blob_size(blob), &limits, &work, &archive, error);
    if (!status && source->use != STORED) status = find_written(request, &archive, blob, source->model, out, error);
    bool is_read = out->size > 0;
    if (!status && source->use == NAMED && !is_read) status = fb_archive_check(&archive, &work, error);
    if (!status && !is_read) status = fb_archive_document(&archive, source->model, source->digest, &work, out, error);
    fb_archive_close(&archive);
    return status;
}

/* Of a graph that is stored, its metadata say what it was read from. */
static bool is_onnx(const fb_request *request, const archive_source *source, const unsigned char *bytes, uint64_t size) {
    bool is_asked = source->use != STORED && !fb_is_zip(bytes, size) && fb_is_onnx_body(request, bytes, size);
    return is_asked || (source->bundle && source->bundle->blob);
}

static fb_status make_document(const fb_request *request, const archive_source *source, fb_buffer *out, fb_error *error) {
    const fb_app *app = request->context;
    fb_blob *blob;
    const unsigned char *bytes;
    char written_for[FB_ID_LENGTH + 1] = "";
    fb_status status = fb_blob_open(app->store, source->digest, &blob, error);
    if (status) return status;
    forgetting forget = {.request = fb_request_watch(request), .blob = blob};
    const fb_watch watch = {.context = &forget, .check = check_and_forget};
    status = fb_blob_map(blob, &bytes, error);
    if (!status && is_onnx(request, source, bytes, fb_blob_size(blob))) {
        if (source->use != STORED) status = refuse_model(request, error);
        if (!status && source->uploaded && source->uploaded->document.size) {
            *out = source->uploaded->document;
            source->uploaded->document = (fb_buffer){0};
            memcpy(written_for, source->uploaded->written_for, sizeof written_for);
        } else if (!status) {
            status = fb_onnx_document(request, bytes, fb_blob_size(blob), source->digest, source->bundle, &watch,
                                      source->missing, out, written_for, error);
        }
        *source->is_model = true;
        if (!status && source->use != STORED && *written_for)
            status = find_written_model(request, source, blob, bytes, written_for, out, error);
    } else if (!status) {
        status = read_pt2(request, source, blob, bytes, &watch, out, error);
    }
    fb_blob_forget(blob);
    fb_blob_close(blob);
    return status;
}

bool fb_archive_read(const fb_request *request, fb_response *response, fb_request_archive *archive, fb_graph_input *out) {
    fb_error error = {0};
    fb_buffer text = {0};
    bool is_model = false;
    archive_source source = {.digest = archive->digest,
                             .model = fb_request_query(request, "model"),
                             .bundle = archive->bundle.blob ? &archive->bundle : NULL,
                             .use = fb_request_query(request, "archive") ? NAMED : UPLOADED,
                             .missing = &archive->missing,
                             .uploaded = archive,
                             .is_model = &is_model};
    fb_status status = make_document(request, &source, &text, &error);
    if (status) respond_refused(response, &error, archive);
    bool ok = !status && fb_graph_input_of_archive(request, response, &text, is_model, out);
    fb_buffer_free(&text);
    return ok;
}

/* ---- out ---------------------------------------------------------------------------------------------------------------- */

/* The archive that a graph was read from. */
typedef struct graph_origin {
    fb_archive_origin pt2;
    onnx_bundle onnx; /* its blob is NULL: the graph came from no ONNX model */
} graph_origin;

static void free_origin(graph_origin *from) {
    free(from->pt2.model);
    onnx_bundle_free(&from->onnx);
}

static const char *blob_of(const graph_origin *from) {
    return from->onnx.blob ? from->onnx.blob : from->pt2.blob;
}

/* Is the graph what its archive says? Then it is the graph's archive, to the byte. */
static fb_status compare(const fb_request *request, const graph_origin *from, const char *id, bool *is_same, fb_error *error) {
    const fb_app *app = request->context;
    fb_buffer text = {0};
    fb_errors errors = {0};
    fb_graph *graph = NULL;
    fb_document_limits limits = app->limits;
    char found[FB_ID_LENGTH + 1];
    limits.watch = fb_request_watch(request);
    fb_work work = {.watch = limits.watch};
    bool is_model = false;
    archive_source source = {
        .digest = blob_of(from), .model = from->pt2.model, .bundle = &from->onnx, .use = STORED, .is_model = &is_model};
    fb_status status = make_document(request, &source, &text, error);
    if (!status && fb_document_read(text.data, text.size, &limits, "", &graph, &errors)) {
        status = errors.count ? fb_fail(error, errors.items[0].status ? errors.items[0].status : FB_INVALID,
                                        errors.items[0].code, "", "%s", errors.items[0].message)
                              : fb_fail_memory(error);
    }
    if (!status && is_model && !fb_onnx_record_types(graph, &work)) status = fb_work_failed(&work, error);
    if (!status && !fb_document_id_metered(graph, &work, found)) status = fb_work_failed(&work, error);
    if (!status) *is_same = strcmp(found, id) == 0;
    if (status == FB_INVALID && from->onnx.blob) { /* the blob is not what the metadata say */
        *error = (fb_error){0};
        status = FB_OK;
    }
    fb_graph_free(graph);
    fb_errors_free(&errors);
    fb_buffer_free(&text);
    return status;
}

/* All that a changed graph's archive refers to while it is read. It stays where it is. */
typedef struct open_archive {
    fb_shared_graph *shared;
    fb_blob *blob;
    fb_blobs blobs;
    json_t *makers; /* of its nodes, as fb_find_makers gives them */
    fb_archive archive;
    fb_archive_file *file; /* of a .pt2 archive */
    onnx_written *written; /* of an ONNX model */
    bool is_data;          /* it is read for the new file of weights */
    fb_blob_check *check;
    uint64_t unforgotten; /* bytes since the pages of the old archive were given back */
} open_archive;

#define FORGET_AFTER ((uint64_t)16 << 20)

static fb_status read_archive(void *state, uint64_t offset, void *to, size_t size, fb_error *error) {
    open_archive *open = state;
    open->unforgotten += size;
    if (open->unforgotten > FORGET_AFTER) {
        fb_blob_forget(open->blob);
        open->unforgotten = 0;
    }
    fb_status status = fb_blob_check_go_on(open->check, offset, size, error);
    if (!status && open->written) return onnx_written_read(open->written, open->is_data, offset, to, size, error);
    return status ? status : fb_archive_file_read(open->file, offset, to, size, error);
}

static uint64_t size_of(const open_archive *open) {
    return open->written ? onnx_written_size(open->written, open->is_data) : fb_archive_file_size(open->file);
}

static void release_archive(void *state) {
    open_archive *open = state;
    fb_archive_file_free(open->file);
    onnx_written_free(open->written);
    fb_blob_check_free(open->check);
    fb_archive_close(&open->archive);
    if (open->blob) fb_blob_close(open->blob);
    json_decref(open->makers);
    fb_share_release(open->shared);
    free(open);
}

static fb_status find_makers(const fb_request *request, const fb_shared_graph *shared, json_t **out, fb_error *error) {
    return fb_find_makers(request->context, fb_request_watch(request), shared->id, shared->graph, out, error);
}

/* Messages are in memory no longer than this takes. */
static fb_status write_model(const fb_request *request, open_archive *open, const onnx_bundle *from, const unsigned char *bytes,
                             fb_work *work, fb_error *error) {
    onnx_file file;
    fb_error met = {0};
    fb_status status = fb_onnx_open_stored(request, bytes, fb_blob_size(open->blob), from, work, &file, &met);
    if (status == FB_INVALID) /* the blob is not what the metadata say */
        status = fb_fail(error, FB_CONFLICT, "archive-changed", "",
                         "the blob that the graph names as its model is not read: %s", met.message);
    else if (status) *error = met;
    else status = onnx_written_new(&file, from, open->shared->graph, open->makers, &open->blobs, work, &open->written, error);
    onnx_close(&file);
    return status;
}

static fb_status write_changed(const fb_request *request, open_archive *open, const graph_origin *from, fb_error *error) {
    const unsigned char *bytes;
    const fb_graph *graph = open->shared->graph;
    forgetting forget = {.request = fb_request_watch(request), .blob = open->blob};
    const fb_watch watch = {.context = &forget, .check = check_and_forget};
    fb_work work = {.watch = &watch};
    fb_archive_limits limits = limits_of(request, true);
    fb_status status = fb_blob_map(open->blob, &bytes, error);
    if (status) return status;
    uint64_t size = fb_blob_size(open->blob);
    if (from->onnx.blob) return write_model(request, open, &from->onnx, bytes, &work, error);
    status = fb_archive_open(bytes, size, &limits, &work, &open->archive, error);
    return status ? status
                  : fb_archive_file_new(&open->archive, from->pt2.model, from->pt2.blob, graph, open->makers, &open->blobs,
                                        &work, &open->file, error);
}

/* Steals `shared` and `makers`, which may be NULL: they are looked up. `is_data`: to read the new file of an ONNX model. */
static fb_status open_archive_take(const fb_request *request, fb_shared_graph *shared, const graph_origin *from, json_t *makers,
                                   bool is_data, open_archive **out, fb_error *error) {
    const fb_app *app = request->context;
    open_archive *open = calloc(1, sizeof *open);
    if (!open) {
        fb_share_release(shared);
        json_decref(makers);
        return fb_fail_memory(error);
    }
    *open = (open_archive){.shared = shared, .makers = makers, .blobs = fb_blob_source(app->store), .is_data = is_data};
    fb_status status = makers ? FB_OK : find_makers(request, shared, &open->makers, error);
    if (!status) status = fb_blob_open(app->store, blob_of(from), &open->blob, error);
    if (!status) status = write_changed(request, open, from, error);
    const char **sources = NULL;
    size_t count = 0;
    if (!status) status = fb_list_blobs(shared->graph, &sources, &count, error);
    if (!status) {
        fb_body_part part = fb_part_of_body(request, size_of(open));
        status = fb_blob_check_new(app->store, sources, count, &part, &open->check, error);
    }
    free(sources);
    if (status) release_archive(open);
    else *out = open;
    return status;
}

static const fb_pull_source changed_source = {.read = read_archive, .release = release_archive};

/* The archive says which passes made its nodes, which the store may forget. */
static bool tag_changed(const fb_shared_graph *shared, const json_t *makers, bool is_data, char tag[FB_ID_LENGTH + 1]) {
    char *names = fb_dump_json(makers, JSON_COMPACT | JSON_SORT_KEYS);
    const char *const what[] = {is_data ? "archive-data" : "archive", names};
    bool ok = names && fb_bytes_tag(shared->id, what, 2, tag);
    free(names);
    return ok;
}

/* Steals `shared`. */
static bool respond_changed_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                 const graph_origin *from, bool is_data) {
    char tag[FB_ID_LENGTH + 1];
    fb_error error = {0};
    open_archive *open = NULL;
    json_t *makers = NULL;
    fb_status status = find_makers(request, shared, &makers, &error);
    if (!status && !tag_changed(shared, makers, is_data, tag)) status = fb_fail_memory(&error);
    if (status || fb_request_has_etag(request, tag)) {
        if (status) fb_respond_error(response, &error);
        else fb_respond_not_modified(response, "application/octet-stream", tag);
        fb_share_release(shared);
        json_decref(makers);
        return !status;
    }
    if (open_archive_take(request, shared, from, makers, is_data, &open, &error)) {
        fb_respond_unreadable(response, &error, NULL);
        return false;
    }
    fb_response_etag(response, tag);
    fb_respond_pulled(request, response, "application/octet-stream", size_of(open), &changed_source, open);
    return true;
}

/* The graph and where it came from: 409 no-archive. `from` is the caller's to free also after a failure. */
static fb_status find_origin(const fb_request *request, const char *id, fb_shared_graph **shared, graph_origin *from,
                             bool *is_same, fb_error *error) {
    *from = (graph_origin){0};
    fb_status status = fb_load_graph(request->context, fb_request_watch(request), id, shared, error);
    if (status) return status;
    status = fb_archive_origin_of((*shared)->graph, &from->pt2, error);
    if (!status) status = onnx_bundle_of((*shared)->graph, &from->onnx, error);
    if (!status && !*blob_of(from))
        status = fb_fail(error, FB_CONFLICT, "no-archive", "",
                         "the graph was not read from an archive: GET /v1/graphs/{id} and its weights instead");
    if (!status) status = compare(request, from, (*shared)->id, is_same, error);
    return status;
}

/* ---- the files of an ONNX model ------------------------------------------------------------------------------------------ */

/* Finds the origin, which is an ONNX model. Without success nothing is to be freed. */
static bool find_model(const fb_request *request, fb_response *response, fb_shared_graph **shared, graph_origin *from,
                       bool *is_same) {
    fb_error error = {0};
    fb_status status = find_origin(request, fb_request_param(request, "id"), shared, from, is_same, &error);
    if (!status && !from->onnx.blob)
        status = fb_fail(&error, FB_CONFLICT, "no-archive", "",
                         "the graph was not read from an ONNX model, which may have several files");
    if (!status) return true;
    fb_respond_error(response, &error);
    if (*shared) fb_share_release(*shared);
    free_origin(from);
    return false;
}

static fb_status put_file(fb_buffer *out, const char *name, const char *digest, uint64_t size) {
    fb_put_comma(out);
    fb_buffer_json_string(out, name, strlen(name));
    fb_buffer_char(out, ':');
    if (!digest) {
        fb_buffer_string(out, "null");
        return FB_OK;
    }
    fb_buffer_char(out, '{');
    fb_put_text(out, "digest", digest);
    fb_put_int(out, "size", (int64_t)size);
    fb_buffer_char(out, '}');
    return FB_OK;
}

static fb_status put_blob(const fb_app *app, const char *name, const char *digest, fb_buffer *out, fb_error *error) {
    fb_blob *blob;
    if (!digest) return put_file(out, name, NULL, 0);
    fb_status status = fb_blob_open(app->store, digest, &blob, error);
    if (status) return status;
    put_file(out, name, digest, fb_blob_size(blob));
    fb_blob_close(blob);
    return FB_OK;
}

enum { HASHED_AT_ONCE = 1 << 20 };

/* The digest of a file that is made while it is read. */
static fb_status hash_written(const fb_request *request, open_archive *open, bool is_data, char digest[FB_ID_LENGTH + 1],
                              fb_error *error) {
    open->is_data = is_data;
    uint64_t size = size_of(open);
    fb_sha256 *hash = fb_sha256_new();
    unsigned char *block = malloc(HASHED_AT_ONCE);
    fb_status status = hash && block ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < size && !status; at += HASHED_AT_ONCE) {
        size_t now = size - at < HASHED_AT_ONCE ? (size_t)(size - at) : HASHED_AT_ONCE;
        status = fb_watch_check(fb_request_watch(request), error);
        if (!status) status = onnx_written_read(open->written, is_data, at, block, now, error);
        if (!status && !fb_sha256_add(hash, block, now)) status = fb_fail_memory(error);
        if (open->unforgotten++ % 16 == 0) fb_blob_forget(open->blob);
    }
    if (!status && !fb_sha256_id_so_far(hash, digest)) status = fb_fail_memory(error);
    fb_sha256_free(hash);
    free(block);
    return status;
}

/* Of a changed graph: the model, and its new file. Steals `shared`. */
static fb_status put_written_take(const fb_request *request, fb_shared_graph *shared, const graph_origin *from, fb_buffer *out,
                                  fb_error *error) {
    open_archive *open = NULL;
    char digest[FB_ID_LENGTH + 1];
    fb_status status = open_archive_take(request, shared, from, NULL, false, &open, error);
    if (status) return status;
    const char *data = onnx_written_data_name(open->written);
    for (int i = 0; i < (data ? 2 : 1) && !status; i++) {
        status = hash_written(request, open, i, digest, error);
        if (!status) put_file(out, i ? data : from->onnx.model, digest, size_of(open));
    }
    release_archive(open);
    return status;
}

static void get_files(const fb_request *request, fb_response *response) {
    fb_shared_graph *shared = NULL;
    graph_origin from;
    bool is_same = false;
    fb_buffer answer = {0};
    fb_error error = {0};
    if (!find_model(request, response, &shared, &from, &is_same)) return;
    fb_buffer_char(&answer, '{');
    fb_put_text(&answer, "model", from.onnx.model);
    fb_put_name(&answer, "files");
    fb_buffer_char(&answer, '{');
    fb_status status = is_same ? put_blob(request->context, from.onnx.model, from.onnx.blob, &answer, &error)
                               : put_written_take(request, shared, &from, &answer, &error);
    for (size_t i = 0; i < from.onnx.count && !status; i++)
        status = put_blob(request->context, from.onnx.files[i].name, from.onnx.files[i].blob, &answer, &error);
    fb_buffer_string(&answer, "}}");
    if (status) fb_respond_unreadable(response, &error, NULL);
    else fb_respond_json_buffer_take(response, 200, &answer);
    fb_buffer_free(&answer);
    if (is_same) fb_share_release(shared);
    free_origin(&from);
}

/* A file that is not the model's own. Steals `shared`. */
static void respond_beside_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                const graph_origin *from, bool is_same, const char *name) {
    const onnx_bundle_file *found = onnx_bundle_find(&from->onnx, name);
    bool has_written = false;
    open_archive *open = NULL;
    fb_error error = {0};
    if (!is_same) {
        if (open_archive_take(request, fb_share_hold(shared), from, NULL, true, &open, &error)) {
            fb_share_release(shared);
            fb_respond_unreadable(response, &error, NULL);
            return;
        }
        const char *data = onnx_written_data_name(open->written);
        has_written = data && strcmp(data, name) == 0;
        release_archive(open);
    }
    if (has_written) {
        respond_changed_take(request, response, shared, from, true);
        return;
    }
    if (found && found->blob) fb_respond_blob_bytes(request, response, found->blob);
    else fb_respond_problem(response, 404, "unknown-file", "the model has no file of this name, or it did not come along");
    fb_share_release(shared);
}

static void get_file(const fb_request *request, fb_response *response) {
    fb_shared_graph *shared = NULL;
    graph_origin from;
    bool is_same = false;
    fb_buffer location = {0};
    fb_request_rest(request, "location", &location);
    const char *name = fb_buffer_text(&location);
    if (!name) fb_respond_no_memory(response);
    if (name && find_model(request, response, &shared, &from, &is_same)) {
        bool is_model = strcmp(name, from.onnx.model) == 0;
        if (!is_model) {
            respond_beside_take(request, response, shared, &from, is_same, name);
        } else if (is_same) {
            fb_respond_blob_bytes(request, response, from.onnx.blob);
            fb_share_release(shared);
        } else {
            respond_changed_take(request, response, shared, &from, false);
        }
        free_origin(&from);
    }
    fb_buffer_free(&location);
}

/* ---- an archive that foldback wrote comes back --------------------------------------------------------------------------- */

enum { COMPARED_AT_ONCE = 1 << 20 };

static fb_status compare_bytes(const fb_request *request, open_archive *written, const unsigned char *bytes,
                               const fb_blob *blob, bool *is_same, fb_error *error) {
    uint64_t size = size_of(written);
    unsigned char *block = malloc(COMPARED_AT_ONCE);
    fb_status status = block ? FB_OK : fb_fail_memory(error);
    *is_same = size == fb_blob_size(blob);
    for (uint64_t at = 0; at < size && *is_same && !status; at += COMPARED_AT_ONCE) {
        size_t now = size - at < COMPARED_AT_ONCE ? (size_t)(size - at) : COMPARED_AT_ONCE;
        status = fb_watch_check(fb_request_watch(request), error);
        if (!status) status = read_archive(written, at, block, now, error);
        *is_same = !status && memcmp(block, bytes + at, now) == 0;
        fb_blob_forget(blob);
    }
    free(block);
    return status;
}

/* The document of the graph if the blob is its archive. Steals `shared`. */
static fb_status check_written_take(const fb_request *request, fb_shared_graph *shared, const graph_origin *origin,
                                    const unsigned char *bytes, const fb_blob *blob, fb_buffer *out, fb_error *error) {
    open_archive *written = NULL;
    bool is_same = false;
    fb_status status = open_archive_take(request, shared, origin, NULL, false, &written, error);
    if (!status) status = compare_bytes(request, written, bytes, blob, &is_same, error);
    if (is_same) fb_document_write(written->shared->graph, out);
    if (written) release_archive(written);
    return out->failed ? fb_fail_memory(error) : status;
}

/* An archive that foldback wrote, unchanged, means the graph that it was written for, with its marks and recipes. Nothing in
 * `out`: it is another archive, or the graph is not here any more; then it is read like any other. */
static fb_status find_written(const fb_request *request, const fb_archive *archive, const fb_blob *blob, const char *model,
                              fb_buffer *out, fb_error *error) {
    graph_origin origin = {0};
    fb_shared_graph *shared = NULL;
    fb_error met = {0};
    char id[FB_ID_LENGTH + 1];
    bool is_named = !fb_archive_written_for(archive, id, &met) && *id &&
                    !fb_load_graph(request->context, fb_request_watch(request), id, &shared, &met) &&
                    !fb_archive_origin_of(shared->graph, &origin.pt2, &met) && *origin.pt2.blob &&
                    (!model || strcmp(model, origin.pt2.model) == 0);
    if (is_named) check_written_take(request, shared, &origin, archive->zip.bytes, blob, out, &met);
    else if (shared) fb_share_release(shared);
    free_origin(&origin);
    bool is_final = met.status == FB_NO_MEMORY || met.status == FB_BUSY;
    return is_final ? fb_fail(error, met.status, met.code, "", "%s", met.message) : FB_OK;
}

/* Are the files that came with a model those of the graph, and the new one what is written? */
static fb_status compare_files(const fb_request *request, open_archive *written, const onnx_bundle *of,
                               const onnx_bundle *given, bool *is_same, fb_error *error) {
    const char *data = onnx_written_data_name(written->written);
    char digest[FB_ID_LENGTH + 1] = "";
    fb_status status = FB_OK;
    for (size_t i = 0; given && i < given->count && *is_same && !status; i++) {
        const onnx_bundle_file *one = &given->files[i], *known = onnx_bundle_find(of, one->name);
        bool is_data = data && strcmp(data, one->name) == 0;
        if (is_data && !*digest) status = hash_written(request, written, true, digest, error);
        const char *wanted = is_data ? digest : known ? known->blob : NULL;
        *is_same = !status && (one->blob && wanted ? strcmp(one->blob, wanted) == 0 : !one->blob && !wanted);
    }
    return status;
}

/* Steals `shared`. */
static fb_status check_written_model_take(const fb_request *request, fb_shared_graph *shared, const graph_origin *origin,
                                          const archive_source *source, const fb_blob *blob, const unsigned char *bytes,
                                          fb_buffer *out, fb_error *error) {
    open_archive *written = NULL;
    bool is_same = false;
    fb_status status = open_archive_take(request, shared, origin, NULL, false, &written, error);
    if (!status) status = compare_bytes(request, written, bytes, blob, &is_same, error);
    if (!status && is_same) status = compare_files(request, written, &origin->onnx, source->bundle, &is_same, error);
    if (!status && is_same) {
        out->size = 0;
        *source->is_model = false;
        fb_document_write(written->shared->graph, out);
        if (out->failed) status = fb_fail_memory(error);
    }
    if (written) release_archive(written);
    return status;
}

static fb_status find_written_model(const fb_request *request, const archive_source *source, const fb_blob *blob,
                                    const unsigned char *bytes, const char *id, fb_buffer *out, fb_error *error) {
    graph_origin origin = {0};
    fb_shared_graph *shared = NULL;
    fb_error met = {0};
    bool is_named = !fb_load_graph(request->context, fb_request_watch(request), id, &shared, &met) &&
                    !onnx_bundle_of(shared->graph, &origin.onnx, &met) && origin.onnx.blob;
    if (is_named) check_written_model_take(request, shared, &origin, source, blob, bytes, out, &met);
    else if (shared) fb_share_release(shared);
    free_origin(&origin);
    bool is_final = met.status == FB_NO_MEMORY || met.status == FB_BUSY;
    return is_final ? fb_fail(error, met.status, met.code, "", "%s", met.message) : FB_OK;
}

/* The graph for which foldback wrote the archive that `graph` was read from; "" if it was read from none, or another wrote it.
 */
static fb_status find_written_for(const fb_request *request, const fb_graph *graph, bool *is_from_archive,
                                  char id[FB_ID_LENGTH + 1], fb_error *error) {
    const fb_app *app = request->context;
    fb_archive_origin origin = {0};
    fb_archive archive = {0};
    fb_blob *blob = NULL;
    const unsigned char *bytes;
    forgetting forget = {.request = fb_request_watch(request)};
    const fb_watch watch = {.context = &forget, .check = check_and_forget};
    fb_work work = {.watch = &watch};
    *id = '\0';
    fb_status status = fb_archive_origin_of(graph, &origin, error);
    *is_from_archive = !status && *origin.blob;
    if (*is_from_archive) {
        status = fb_blob_open(app->store, origin.blob, &blob, error);
        forget.blob = blob;
        if (!status) status = fb_blob_map(blob, &bytes, error);
        if (!status) status = fb_archive_open(bytes, fb_blob_size(blob), NULL, &work, &archive, error);
        if (!status) status = fb_archive_written_for(&archive, id, error);
        fb_archive_close(&archive);
        if (blob) fb_blob_close(blob);
    }
    free(origin.model);
    return status;
}

/* ---- an archive that was trained ----------------------------------------------------------------------------------------- */

fb_status fb_archive_take_training(const fb_request *request, const char *written, fb_graph_input *given, fb_error *reason,
                                   fb_error *error) {
    const fb_app *app = request->context;
    const fb_watch *watch = fb_request_watch(request);
    fb_document_limits limits = app->limits;
    fb_shared_graph *shared = NULL;
    fb_graph *graph = NULL;
    fb_graph_input made = {0};
    fb_buffer text = {0};
    fb_errors errors = {0};
    fb_error met = {0};
    limits.watch = watch;
    fb_status status = fb_load_graph(app, watch, written, &shared, &met);
    bool are_onnx = !status && fb_graph_is_onnx(shared->graph) && fb_graph_is_onnx(given->shared->graph);
    if (!status)
        status = are_onnx ? onnx_trained_document(shared->graph, given->shared->graph, &text, &met)
                          : fb_archive_trained_document(shared->graph, given->shared->graph, &text, &met);
    if (!status && fb_document_read(text.data, text.size, &limits, "", &graph, &errors))
        status = errors.count ? fb_fail(&met, FB_CONFLICT, "another-program", "", "%s", errors.items[0].message)
                              : fb_fail_memory(&met);
    if (!status) status = fb_graph_input_take(graph, watch, &made, &met);
    bool is_another_program = status == FB_CONFLICT || status == FB_NOT_FOUND;
    if (!status) {
        fb_graph_input_free(given);
        *given = made;
    } else {
        *(is_another_program ? reason : error) = met;
    }
    fb_share_release(shared);
    fb_buffer_free(&text);
    fb_errors_free(&errors);
    return is_another_program ? FB_OK : status;
}

fb_status fb_archive_find_trained(const fb_request *request, fb_graph_input *given, char id[FB_ID_LENGTH + 1], fb_error *reason,
                                  fb_error *error) {
    bool is_from_archive;
    fb_status status = find_written_for(request, given->shared->graph, &is_from_archive, id, error);
    if (!status && !*id && is_from_archive)
        fb_fail(reason, FB_CONFLICT, "another-program", "",
                "where PyTorch saved a run's result again, POST it to that run's reverse link");
    if (status || !*id) return status;
    status = fb_archive_take_training(request, id, given, reason, error);
    if (!status && reason->status == FB_CONFLICT) {
        fb_error why = *reason;
        *reason = (fb_error){0};
        fb_fail(reason, FB_CONFLICT, why.code, "", "its archive was written for the graph %s, but %s", id, why.message);
    }
    if (reason->status) *id = '\0';
    return status;
}

bool fb_respond_archive(const fb_request *request, fb_response *response, const char *id) {
    fb_shared_graph *shared = NULL;
    graph_origin from;
    bool is_same = false, ok = false;
    fb_error error = {0};
    fb_status status = find_origin(request, id, &shared, &from, &is_same, &error);
    if (status) fb_respond_error(response, &error);
    else if (is_same) ok = fb_respond_blob_bytes(request, response, blob_of(&from));
    else ok = respond_changed_take(request, response, shared, &from, false);
    if (shared && (status || is_same)) fb_share_release(shared);
    free_origin(&from);
    return ok;
}

static void get_archive(const fb_request *request, fb_response *response) {
    fb_respond_archive(request, response, fb_request_param(request, "id"));
}

/* ---- POST …/materialize?format=pt2 --------------------------------------------------------------------------------------- */

static void respond_same(const fb_request *request, fb_response *response, const char *digest) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_blob *blob;
    if (fb_blob_open(app->store, digest, &blob, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_respond_materialized(response, false, digest, fb_blob_size(blob), NULL);
    fb_blob_close(blob);
}

/* Steals `shared`. */
static void materialize_changed_take(const fb_request *request, fb_response *response, fb_shared_graph *shared,
                                     const graph_origin *origin) {
    fb_error error = {0};
    open_archive *open = NULL;
    if (open_archive_take(request, shared, origin, NULL, false, &open, &error)) {
        fb_respond_unreadable(response, &error, NULL);
        return;
    }
    fb_materialize(request, response, &changed_source, open, size_of(open), NULL);
    release_archive(open);
}

void fb_materialize_archive(const fb_request *request, fb_response *response) {
    static const char *const known[] = {NULL};
    fb_request_body body;
    fb_shared_graph *shared = NULL;
    graph_origin from;
    bool is_same = false;
    fb_error error = {0};
    if (!fb_body_read(request, response, known, &body)) return;
    fb_request_body_free(&body);
    fb_status status = find_origin(request, fb_request_param(request, "id"), &shared, &from, &is_same, &error);
    if (!status && from.onnx.blob)
        status = fb_fail(&error, FB_CONFLICT, "no-archive", "",
                         "the graph was read from an ONNX model, which is a blob already: GET "
                         "/v1/graphs/{id}/archive/files");
    if (status) fb_respond_error(response, &error);
    else if (is_same) respond_same(request, response, from.pt2.blob);
    else materialize_changed_take(request, response, shared, &from);
    if (shared && (status || is_same)) fb_share_release(shared);
    free_origin(&from);
}

const fb_route fb_archive_routes[] = {
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/archive",
     .handler = get_archive,
     .scope = FB_SCOPE_READ,
     .produces = "application/octet-stream",
     .query = ""},
    {.method = "GET", .pattern = "/v1/graphs/{id}/archive/files", .handler = get_files, .scope = FB_SCOPE_READ, .query = ""},
    {.method = "GET",
     .pattern = "/v1/graphs/{id}/archive/files/{location}",
     .handler = get_file,
     .takes_rest = true,
     .scope = FB_SCOPE_READ,
     .produces = "application/octet-stream",
     .query = ""},
    {0},
};
