/* Evaluating graphs on behalf of a request: its limits, what it may be asked, what goes wrong. */
#ifndef FB_ROUTES_EVALUATION_H
#define FB_ROUTES_EVALUATION_H

#include "core/eval/given.h"
#include "core/eval/validate.h"
#include "server/app.h"
#include "server/http/http.h"

/* An evaluation under way. It stays where it is. */
typedef struct fb_evaluating {
    fb_eval_options options; /* of the service: memory, deadline, cancelling, where blobs are. The rest is the caller's */
    fb_watch watch;          /* that of the request, and an evaluation's own deadline: FB_BUSY "evaluation-timeout" */
    const fb_watch *request;
    int64_t deadline;
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

/* Whether each array of the file is an input of a graph, or of `b`, which may be NULL; otherwise this responds (422
 * unknown-input). */
bool fb_check_inputs(fb_response *response, const fb_array_file *file, const fb_graph *a, const fb_graph *b);

/* Members of a request; `pointer` says where they stand. FB_INVALID wrong-type. */
fb_status fb_read_seed(const json_t *value, const char *pointer, uint64_t *out, fb_error *error);
fb_status fb_read_tolerance(const json_t *value, const char *pointer, fb_tolerance *out, fb_error *error);

#endif
