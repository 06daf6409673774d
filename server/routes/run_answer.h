/* A run as JSON, and how a new one is stored and answered. */
#ifndef FB_ROUTES_RUN_ANSWER_H
#define FB_ROUTES_RUN_ANSWER_H

#include "server/graphs/graphs.h"
#include "server/history/undo.h"
#include "server/routes/graph_input.h"
#include "server/routes/repeated_request.h"
#include "server/routes/run_request.h"

/* What an answer may include besides the run. */
typedef struct fb_run_extras {
    const char *document; /* the result's canonical bytes, or NULL */
    size_t size;
    const fb_graph *code_of;               /* the result, or NULL */
    const fb_graph *edits_from, *edits_to; /* source and result, or NULL */
    const json_t *weights;                 /* how the source was bound to them, or NULL */
} fb_run_extras;

/* Appends the run. Without an id (a dry run) "id" and "created" are null; without a report (in lists) "passes" is short.
 * `extras` may be NULL. */
bool fb_run_write(const fb_store_run *run, const fb_run_extras *extras, fb_work *work, fb_buffer *out);

/* Stores the run (unless it is a dry one) with its graphs and the answer, and responds. */
void fb_respond_new_run(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_new_run *made,
                        fb_repeat *repeat);

/* Responds with a stored run; `includes` (fb_include) says what else goes along. */
void fb_respond_stored_run(const fb_request *request, fb_response *response, int status, const char *id, unsigned includes);
/* The same once more: `body` is what was kept of the answer (fb_repeat_answer). */
void fb_respond_run_again(const fb_request *request, fb_response *response, int status, const char *id, const char *body);

/* Responds to an undo that was refused or failed (undo.h). Frees the refusal. */
void fb_respond_undo_refusal(fb_response *response, fb_undo_refusal *refusal, const fb_error *error);

#endif
