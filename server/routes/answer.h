/* Answers that several resources share: a run, a graph, a blob that has come, and what was answered before. */
#ifndef FB_ROUTES_ANSWER_H
#define FB_ROUTES_ANSWER_H

#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/history/undo.h"
#include "server/http/http.h"
#include "server/routes/input.h"
#include "server/store/blobs.h"

/* ---- Answers about blobs ------------------------------------------------------------------------------------------------- */

/* The bytes of a blob, or a Range of them, with its digest as the ETag. False when it answered 404 unknown-blob. */
bool fb_respond_blob_bytes(const fb_request *request, fb_response *response, const char *digest);
/* True if `digest`, the parameter `name` of the path or the query, is spelled as one; otherwise this responds. */
bool fb_check_digest(fb_response *response, const char *name, const char *digest);

/* Ends an upload whose bytes have all come: 201 with the blob, 200 when it was here already. Closes it in any case; one that
 * has an id stays as it is when this fails. */
void fb_respond_uploaded_take(const fb_request *request, fb_response *response, fb_upload *upload, const char *digest);

/* fb_sink.write for uploads whose state is a fb_upload. */
bool fb_upload_sink_write(void *upload, const char *bytes, size_t size, fb_response *response);
/* fb_sink.abandon likewise: its id was not given out, so it goes. */
void fb_upload_sink_abandon(void *upload);

/* ---- A stored graph as an answer ----------------------------------------------------------------------------------------- */

/* Responds with the canonical document, the id as its ETag, or 304 when the client has it. False when the graph is missing, or
 * it cannot be read: then with that problem. */
bool fb_respond_graph(const fb_request *request, fb_response *response, const char *id);

/* Responds with the archive of the graph, or a Range of it (archives.c). False when it cannot be had: then with that problem.
 */
bool fb_respond_archive(const fb_request *request, fb_response *response, const char *id);

/* Idempotency-Key: a POST that was answered before is answered the same again, and not done again. Each request of a job has a
 * key as well, which no client could give. */

typedef struct fb_repeat {
    fb_app *app;
    const char *key; /* NULL: the request has none, and what follows does nothing */
    const char *principal;
    char *scope;
    char digest[FB_ID_LENGTH + 1];
    fb_store_answer answer;
} fb_repeat;

/* False when the request's Idempotency-Key has a wrong form: then with that problem. */
bool fb_repeat_check_key(const fb_request *request, fb_response *response);
/* False when the request has been answered: from the store, or with a problem. Then there is nothing to end. */
bool fb_repeat_begin(const fb_request *request, fb_response *response, fb_repeat *repeat);
void fb_repeat_end(fb_repeat *repeat);

/* The answer to store with the change, or NULL. `body` stays the caller's. The answer of a run is built again from the run: its
 * `body` says what was included in it ("graph code"), and on three more lines what the run does not record: weights, archive,
 * dialect. So is an alias's answer: its body is the number of an entry. */
const fb_store_answer *fb_repeat_answer(fb_repeat *repeat, int status, const char *location, const char *body, size_t size);

/* ---- A run as JSON, and how a new one is stored and answered ------------------------------------------------------------- */

/* The parts that an answer may include besides the run. */
typedef struct fb_run_extras {
    fb_buffer *document;     /* the result's canonical bytes, which become a part of the answer without a copy; or NULL */
    size_t document_at;      /* their place in the answer then */
    const fb_graph *code_of; /* the result, or NULL */
    const fb_graph *edits_from, *edits_to; /* source and result, or NULL */
    const json_t *weights;                 /* how the source was bound to them, or NULL */
    const char *archive;                   /* that the source was read from, or NULL */
    bool is_onnx;                          /* … a model of ONNX */
} fb_run_extras;

/* Appends the run. Without an id (a dry run) "id" and "created" are null; without a report (in lists) "passes" is short.
 * `extras` may be NULL. With a document `out` is empty before, and the document's buffer afterwards. */
bool fb_run_write(const fb_store_run *run, fb_run_extras *extras, fb_work *work, fb_buffer *out);

/* Stores the run (unless it is a dry one) with its graphs and the answer, and responds. */
void fb_respond_new_run(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_new_run *made,
                        fb_repeat *repeat);

/* Responds with a stored run; `includes` (fb_include) says what else goes along. */
void fb_respond_stored_run(const fb_request *request, fb_response *response, const char *id, unsigned includes);
/* The same once more: `body` is what was kept of the answer (fb_repeat_answer). */
void fb_respond_run_again(const fb_request *request, fb_response *response, int status, const char *id, const char *body);

/* Responds to an undo that was refused or failed (undo.h). Frees the refusal. */
void fb_respond_undo_refusal(fb_response *response, fb_undo_refusal *refusal, const fb_error *error);

/* ---- Aliases (aliases.c) and tensors (weights.c) ------------------------------------------------------------------------- */

/* An alias as it was after the entry with that number, in decimal digits: what a repeated request is answered. */
void fb_respond_stored_alias(const fb_request *request, fb_response *response, int status, const char *number);

/* 409 for what cannot be read of a stored graph. `missing` (stolen, perhaps NULL) is [{"name", "code", "blob"?}, …]. */
void fb_respond_unreadable(fb_response *response, const fb_error *error, json_t *missing);
/* The facts that fb_blob_check_new needs of a body of `size` bytes. */
fb_body_part fb_part_of_body(const fb_request *request, uint64_t size);
/* The bytes' strong entity tag, known without making them: for the same graph, what of it, and version of the service they are
 * the same. `what` are texts. False when memory is out. */
bool fb_bytes_tag(const char *graph_id, const char *const *what, size_t count, char tag[FB_ID_LENGTH + 1]);
/* Makes the bytes that fb_pull_source.read gives of `state` a blob, and responds with it. `tensors`: how many it has, or NULL.
 */
void fb_materialize(const fb_request *request, fb_response *response, const fb_pull_source *source, void *state, uint64_t size,
                    const size_t *tensors);
/* Responds with that blob: 201, or 200 when it was there already. */
void fb_respond_materialized(fb_response *response, bool is_new, const char *digest, uint64_t size, const size_t *tensors);
/* Makes the archive of the graph a blob: archives.c */
void fb_materialize_archive(const fb_request *request, fb_response *response);

#endif
