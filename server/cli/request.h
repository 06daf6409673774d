/* Bodies of requests. */
#ifndef FB_CLI_REQUEST_H
#define FB_CLI_REQUEST_H

#include "server/cli/reference.h"

/* Sets a member unless `text` is NULL. Usage error when it is not UTF-8. */
int fb_request_text(json_t *request, const char *name, const char *text);
/* "passes" from --pass, unless there are none. When they are `undone`, digits are a position. A pass may be JSON: an object. */
int fb_request_passes(json_t *request, const fb_text_list *passes, bool undone);
/* "labels" from --label key=value. */
int fb_request_labels(json_t *request, const fb_text_list *labels);

/* A member that holds a graph. */
typedef struct fb_request_graph {
    const char *name;
    const fb_reference *graph; /* NULL: none, also in what follows */
} fb_request_graph;

/* The body: `request` (stolen), with one or two graphs put in. */
int fb_request_body(fb_cli *cli, json_t *request, const fb_request_graph graphs[2], fb_buffer *out);

#endif
