/* A run as JSON, and how a new one is stored and answered. */
#ifndef FB_ROUTES_RUN_ANSWER_H
#define FB_ROUTES_RUN_ANSWER_H

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

/* A run that has been done but not stored: everything in `run` but id and time is filled in. */
typedef struct fb_new_run {
    fb_store_run run;
    const fb_graph_input *source, *result; /* those with a document are stored, too */
    const json_t *weights;                 /* how the source was bound to them (weights_input.h), or NULL */
} fb_new_run;

/* What the store takes with a run: those of its graphs that may be new. */
typedef struct fb_new_graphs {
    fb_store_graph graphs[2];
    size_t count;
    fb_graph_row rows[2];
    uint64_t ticket; /* of the cache */
} fb_new_graphs;

/* `out` stays where it is; free it also after a failure. With `trusts_cache` a graph in the cache counts as stored: when it has
 * been deleted in that moment the store refuses the run, FB_NOT_FOUND. */
fb_status fb_new_graphs_make(fb_app *app, const fb_watch *watch, const fb_new_run *made, bool trusts_cache, fb_new_graphs *out,
                             fb_error *error);
/* Graphs that have been stored go into the cache. */
void fb_new_graphs_free(fb_app *app, const fb_new_run *made, bool is_stored, fb_new_graphs *graphs);

/* Stores the run (unless it is a dry one) with its graphs and the answer, and responds. */
void fb_respond_new_run(const fb_request *request, fb_response *response, const fb_run_request *asked, fb_new_run *made,
                        fb_repeat *repeat);

/* Responds with a stored run; `includes` (fb_include) says what else goes along. */
void fb_respond_stored_run(const fb_request *request, fb_response *response, int status, const char *id, unsigned includes);
/* The same once more: `body` is what was kept of the answer (fb_repeat_answer). */
void fb_respond_run_again(const fb_request *request, fb_response *response, int status, const char *id, const char *body);

#endif
