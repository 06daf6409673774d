/* The input of requests: their parameters and bodies, and the graphs, weights and bounds that these name. */
#ifndef FB_ROUTES_INPUT_H
#define FB_ROUTES_INPUT_H

#include <jansson.h>

#include "core/bind/bind.h"
#include "core/evaluator/evaluator.h"
#include "core/onnx/onnx.h"
#include "core/validation/run_validation.h"
#include "core/validation/task.h"
#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/http/http.h"
#include "server/store/store.h"

/* ---- The requester, for the store's audit -------------------------------------------------------------------------------- */

/* Borrows from the request. */
static inline fb_store_actor fb_actor_of(const fb_request *request) {
    return (fb_store_actor){.who = request->principal, .request = request->id};
}

/* ---- Lists: ?limit= and ?page_token= in, "items" and "next_page_token" out ----------------------------------------------- */

/* False when the parameters are wrong, and then this has responded. */
bool fb_page_read(const fb_request *request, fb_response *response, fb_store_page *page);
/* As fb_respond_error, but an error of the page token names its parameter. */
void fb_respond_page_error(fb_response *response, const fb_error *error);
/* {"items":[, to which the caller appends them. */
fb_buffer fb_items_begin(void);
/* ], the next page's token unless it is "", and }. */
void fb_items_end(fb_buffer *out, const char *next_token);
/* The same, and responds with it. */
void fb_respond_items_take(fb_response *response, fb_buffer *answer, const char *next_token);
/* 422 with the parameter's name; returns false. */
bool fb_refuse_parameter(fb_response *response, const char *name, const char *code, const char *detail);
/* True if ?pass= is a pass of ours, or an external one that some run applied; otherwise this responds. */
bool fb_check_pass_parameter(const fb_request *request, fb_response *response, const char *name);

/* The outermost object of a request's body, cut into its members without making a tree of a graph that is among them. */

typedef struct fb_request_body {
    bool is_document;  /* the whole body is a graph document: it has a member "format" */
    const char *graph; /* the text of the document: the body, or its member "graph" where that is an object; else NULL */
    size_t graph_size;
    const char *pair[2]; /* likewise of the members source and result, a and b, or against */
    size_t pair_size[2];
    json_t *members; /* the others, and any of the above that is not an object; empty for a document */
} fb_request_body;

/* Reads the body, perhaps none (then without members). The document itself is not checked, everything else is, as strictly as
 * documents are. FB_SYNTAX; FB_INVALID wrong-type (not an object), nesting-too-deep, unknown-member (not one of the
 * NULL-terminated `known`), unexpected-graph (a document, and "graph" is not among them); FB_TOO_LARGE member-too-large. `out`
 * is written on success only; free it with fb_request_body_free. */
fb_status fb_request_body_read(const fb_request *request, const char *const *known, fb_request_body *out, fb_error *error);
void fb_request_body_free(fb_request_body *body);

/* ---- Requests whose body is a small object of texts ---------------------------------------------------------------------- */

#define FB_NOTE_MAX 10000     /* characters of what explains something to people */
#define FB_REFERENCE_MAX 1000 /* characters of what names something: nothing has a name that long */

/* As fb_request_body_read, but on failure this responds and returns false. */
bool fb_body_read(const fb_request *request, fb_response *response, const char *const *known, fb_request_body *out);

/* A string of `max` characters at most; NULL when the member is not there. When it is something else this responds and returns
 * false. The text lives as long as the body. */
bool fb_body_text(fb_response *response, const fb_request_body *body, const char *name, size_t max, const char **out);

/* The number of characters of a text in UTF-8. */
size_t fb_count_characters(const char *text);

/* 422 with a pointer; returns false. */
bool fb_refuse_member(fb_response *response, const char *code, const char *pointer, const char *detail);

/* ---- Names that a request gives to a model, a version or an alias -------------------------------------------------------- */

/* True if the path's parameter is a name; otherwise this responds. */
bool fb_check_path_name(const fb_request *request, fb_response *response, const char *parameter);
/* The same for a member of the body; NULL is fine. */
bool fb_check_body_name(fb_response *response, const char *pointer, const char *name);

/* ---- Short ids: the beginning of an id, as tables print it, means the id if only one begins so --------------------------- */

/* fb_http_config.explain; `context` is the fb_app. Adds `did_you_mean` to a problem about a pass, preset, rule, layout, model,
 * version or alias that does not exist, where one of nearly that name does. */
void fb_suggest_name(void *context, fb_response *response);
/* fb_http_config.expand; `context` is the fb_app. `name` says what `value` is the id of: id, graph, source, result and base of
 * a graph, run and of_run of a run, job of a job, digest and weights of a blob, structure and signature of these; others are
 * left alone. At least 8 digits after "sha256:", "run_" or "job_"; "sha256:" may be missing, and "…" or "..." at the end is
 * ignored. 409 "ambiguous-id" with candidates; nothing is written when none begins so. */
bool fb_expand_id(void *context, fb_response *response, const char *name, const char *value, char expanded[FB_EXPANDED_SIZE]);

/* The same for a text in a body: `*value` becomes `space` where that holds another id. */
bool fb_expand_member(const fb_request *request, fb_response *response, const char *name, const char *pointer,
                      const char **value, char space[FB_EXPANDED_SIZE]);

/* The request of POST …/optimize, …/reverse and …/rollback, from a JSON body, or from the query when the body is a bare graph
 * document or missing. */

/* The query parameters: `query` of the routes. */
#define FB_RECORD_QUERY "include,dry_run,note,label"
#define FB_RUN_QUERY "pass," FB_RECORD_QUERY
/* The code where a service that requires validation refuses a run, or a version of one. */
#define FB_VALIDATION_REQUIRED "validation-required"
#define FB_OPTIMIZE_QUERY FB_RUN_QUERY ",lint,weights,strict,as,prefix,validate,seed,assume,matches"

#define FB_LABEL_KEY_MAX 256 /* characters */

/* The parts of an answer besides the run. */
typedef enum fb_include {
    FB_INCLUDE_GRAPH = 1, /* the result's document */
    FB_INCLUDE_CODE = 2,  /* its Python code */
    FB_INCLUDE_EDITS = 4, /* from the source to the result */
} fb_include;
#define FB_INCLUDES "graph, code, edits"

/* 0 when there is none of that name. */
unsigned fb_include_find(const char *name);
/* The names, separated by spaces, and back. */
void fb_includes_write(unsigned includes, fb_buffer *out);
unsigned fb_includes_read(const char *text, size_t size);

typedef enum fb_run_members {
    FB_TAKES_GRAPH = 1, /* a member "graph", or a bare document */
    FB_TAKES_LINT = 2,
    FB_TAKES_RECORD = 4, /* no passes, but what an external pass did: external.c reads it from body.members */
    FB_TAKES_WEIGHTS = 8,
    FB_TAKES_VALIDATION = 16,
} fb_run_members;

typedef struct fb_run_request {
    fb_request_body body;
    const char *graph_id;        /* when "graph" is one; else see body.graph */
    const char *graph_pointer;   /* "" for a bare document, else "/graph" */
    const json_t *passes;        /* not checked yet; NULL when there are none */
    const char *passes_pointer;  /* "/passes", or "?pass=" for the query: see fb_respond_request_error */
    const json_t *weights;       /* digests of files to bind the graph to (fb_bind_weights); NULL when there are none */
    const char *weights_pointer; /* "/weights" or "?weights=" */
    bool names_matches;          /* in the report */
    bool is_strict;
    fb_bind_options binding;    /* how the files are read */
    const json_t *assume;       /* the option, an object that is not checked yet; NULL where it is not given */
    const char *assume_pointer; /* "/options/assume" or "?assume=" */
    fb_lint lint;
    fb_validation_mode validate;
    struct {
        const char *inputs, *mask; /* the digest of a file, NULL = the run is not judged by a task; a name in it, or NULL */
        fb_metric metric;
        double bound;
    } task;
    bool has_tolerance; /* else by dtype and pass */
    fb_tolerance tolerance;
    uint64_t seed;
    bool dry_run;
    unsigned includes; /* fb_include */
    const char *note;
    fb_store_label *labels;
    size_t label_count;
    json_t *query; /* what stood in the query, in the form of a body */
} fb_run_request;

/* Errors: as fb_request_body_read, and FB_INVALID wrong-type, unknown-option, unknown-option-value, given-twice, note-too-long,
 * too-many-labels, bad-label, bad-digest. `out` is written on success only; free it with fb_run_request_free. */
fb_status fb_run_request_read(const fb_request *request, unsigned takes, fb_run_request *out, fb_error *error);
void fb_run_request_free(fb_run_request *run_request);

/* fb_respond_error, but an error whose pointer is "?pass=/1" names the query parameter. */
void fb_respond_request_error(fb_response *response, const fb_error *error);

/* ---- The graphs that a request gives: as documents, or by the ids of stored ones ----------------------------------------- */

/* Reads a document at `pointer` of the request. When it is not valid this responds and returns false. */
bool fb_graph_input_read(const fb_request *request, fb_response *response, const char *document, size_t size,
                         const char *pointer, fb_graph_input *out);
/* The same of a document that was made of an archive. Of a model of ONNX the types of its values are found, and recorded. */
bool fb_graph_input_of_archive(const fb_request *request, fb_response *response, const fb_buffer *document, bool is_onnx,
                               fb_graph_input *out);
/* The member `name` of a body, the first or second of its pair (fb_request_body): a document, or the id of one. Likewise. */
bool fb_graph_input_pair(const fb_request *request, fb_response *response, const fb_request_body *body, int which,
                         const char *name, fb_graph_input *out);
/* The graph that a request gives, as a document or by its id; nothing when it gives none. Likewise. */
bool fb_graph_input_find(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_graph_input *out);

/* The document of a checkpoint, from an array of digests of safetensors files. When that cannot be this responds and returns
 * false. */
bool fb_checkpoint_read(const fb_request *request, fb_response *response, const json_t *weights, const char *name,
                        fb_graph_input *out);

/* ---- Files that graphs are read from: archives of torch.export and ONNX models, as a body or as blobs that are here already
 */

#define FB_ONNX_TYPES "application/onnx, application/x-onnx, application/vnd.onnx"
#define FB_ARCHIVE_TYPES "application/zip, application/vnd.pytorch.pt2, " FB_ONNX_TYPES
#define FB_FILES_TYPE "application/vnd.foldback.files+json"
#define FB_ARCHIVE_QUERY "archive,model"
extern const fb_sink fb_archive_sink;

/* Does the request bring an archive, or name one? */
bool fb_is_archive_request(const fb_request *request);
/* The request is refused before its archive became a blob: what was received of it goes. */
void fb_archive_drop(const fb_request *request);
/* The archive of a request. */
typedef struct fb_request_archive {
    char digest[FB_ID_LENGTH + 1];      /* "" = the request has none */
    int64_t put;                        /* when the request made it a blob; 0: it was one before */
    onnx_bundle bundle;                 /* of an ONNX model with the files beside it */
    json_t *missing;                    /* names of those that are not here */
    fb_buffer document;                 /* of an ONNX model that was uploaded, until fb_archive_read takes it */
    char written_for[FB_ID_LENGTH + 1]; /* the graph that such a model names */
} fb_request_archive;

/* Makes the archive that the request brings a blob, or takes the one that it names. `*bare` is the request with the digest in
 * the place of its body; one that names several files stays as it is. When that fails this responds and returns false; and also
 * when there is neither an archive nor a body. A request without an archive is given back as it is. */
bool fb_archive_take(const fb_request *request, fb_response *response, fb_request *bare, fb_request_archive *archive);
/* The request has been answered. Where that is an error, the blob that it brought goes, unless others need it. */
void fb_archive_settle(const fb_request *request, const fb_response *response, fb_request_archive *archive);
/* Reads ?model= of the archive. 422 bad-archive, unsupported-archive, bad-onnx, unsupported-onnx, missing-files. Likewise. */
bool fb_archive_read(const fb_request *request, fb_response *response, fb_request_archive *archive, fb_graph_input *out);
/* Puts the stored graph, with the weights that the archive has, in the place of `given`, which was read from that archive:
 * PyTorch has saved the program anew, with other names. FB_OK also when it is another program or the graph is not here: then
 * `given` stays, and `reason` says why. */
fb_status fb_archive_take_training(const fb_request *request, const char *graph_id, fb_graph_input *given, fb_error *reason,
                                   fb_error *error);
/* The same with the graph for which foldback wrote the archive; `id` becomes "" when that cannot be. */
fb_status fb_archive_find_trained(const fb_request *request, fb_graph_input *given, char id[FB_ID_LENGTH + 1], fb_error *reason,
                                  fb_error *error);

/* ---- ONNX models: onnx.c ------------------------------------------------------------------------------------------------ */

/* Is the request's body an ONNX model, by its type or by its beginning? `bytes` are of the body, which may be on the disk. */
bool fb_is_onnx_body(const fb_request *request, const void *bytes, uint64_t size);
/* Does its body name the files of a model? */
bool fb_is_files_request(const fb_request *request);
/* Reads that body. All of its files must be here as blobs: 422 missing-files. When that fails this responds and returns false.
 */
bool fb_files_take(const fb_request *request, fb_response *response, fb_request_archive *archive);
/* Reads the messages of a model that a stored graph came from. Close the file also after a failure. */
fb_status fb_onnx_open_stored(const fb_request *request, const void *bytes, uint64_t size, const onnx_bundle *bundle,
                              fb_work *work, onnx_file *file, fb_error *error);
/* Appends the document of a model. `bundle` may be NULL: there are no files beside it. Where files are missing, their names are
 * added to `missing`, unless it is NULL. `written_for` gets the graph that foldback wrote it for, or ""; it may be NULL. */
fb_status fb_onnx_document(const fb_request *request, const void *bytes, uint64_t size, const char *digest,
                           const onnx_bundle *bundle, const fb_watch *watch, json_t **missing, fb_buffer *out,
                           char *written_for, fb_error *error);

/* ---- Weights that a request brings along for its graph: safetensors files that are here as blobs ------------------------- */

/* Which files, and how they are read. */
typedef struct fb_weights_asked {
    const json_t *files; /* an array of digests; NULL = none, the graph stays as it is */
    const char *pointer; /* their place in the request: "/weights", or "?weights=" */
    bool is_strict;      /* a tensor too many or too few is an error */
    fb_bind_options options;
} fb_weights_asked;

/* "source" or "finished": FB_INVALID wrong-type, unknown-option-value. */
fb_status fb_weights_reading_read(const json_t *as, const char *pointer, fb_weights_reading *out, fb_error *error);
/* Checks that `files` is an array of digests: FB_INVALID wrong-type, bad-digest. */
fb_status fb_weights_check(const json_t *files, const char *pointer, fb_error *error);

/* Binds the graph's tensors to the files; then `graph` is the bound graph, with its document, and `*told` is {"bound": n,
 * "missing": […], "extra": […]} for the answer (NULL when no files are asked for). On failure this responds and returns false:
 * 409 blob-missing, ambiguous-weights; 422 weights-mismatch, bad-safetensors. */
bool fb_bind_weights(const fb_request *request, fb_response *response, const fb_weights_asked *asked, fb_graph_input *graph,
                     json_t **told);

/* That the graph could not be stored: when a blob that it names has gone, with those that are not here. */
void fb_respond_not_stored(const fb_request *request, fb_response *response, const fb_graph_input *graph,
                           const fb_error *error);

/* ---- Evaluating graphs on behalf of a request: its limits, what it may be asked, what goes wrong ------------------------- */

/* An evaluation under way. It stays where it is. */
typedef struct fb_evaluating {
    fb_eval_options options; /* of the service: memory, deadline, cancelling, where blobs are. The rest is the caller's */
    fb_watch watch;          /* the request's, and an evaluation's own deadline: FB_BUSY "evaluation-timeout" */
    const fb_watch *request;
    int64_t deadline;
    fb_checked_source checked;
    fb_blobs blobs;
    fb_app *app;
} fb_evaluating;

/* False: too many are under way, and this has responded (503 too-many-evaluations). Otherwise fb_evaluating_end is due. */
bool fb_evaluating_begin(const fb_request *request, fb_response *response, fb_evaluating *out);
void fb_evaluating_end(fb_evaluating *evaluating);

/* Why a graph could not be evaluated: 422 unsupported-operator (with the node and its target), missing-input, missing-shape,
 * output-mismatch, evaluation-timeout …; 409 bytes-missing; 413 evaluation-too-large; 503 when the server stops. The node is
 * one of `a`, or else of `b`, which may be NULL. */
void fb_respond_evaluation_error(fb_response *response, const fb_error *error, const fb_graph *a, const fb_graph *b);
/* Makes it 409 bytes-missing, and adds how a graph gets its bytes (weights.c). */
void fb_error_bytes_missing(fb_error *error);

/* True if each array of the file is an input of a graph, or of `b`, which may be NULL; otherwise this responds (422
 * unknown-input). */
bool fb_check_inputs(fb_response *response, const fb_array_file *file, const fb_graph *a, const fb_graph *b);

/* Members of a request; `pointer` is their place. FB_INVALID wrong-type. */
fb_status fb_read_seed(const json_t *value, const char *pointer, uint64_t *out, fb_error *error);
fb_status fb_read_tolerance(const json_t *value, const char *pointer, fb_tolerance *out, fb_error *error);

#endif
