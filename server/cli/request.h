/* Bodies of requests: `out` is the body under construction. Its failure is sticky, and found at the end. */
#ifndef FB_CLI_REQUEST_H
#define FB_CLI_REQUEST_H

#include "server/cli/reference.h"

void fb_request_begin(fb_buffer *out);
/* A member, unless `text` is NULL. Usage error when it is not UTF-8. */
int fb_request_text(fb_buffer *out, const char *name, const char *text);
/* A member that is a JSON object, given as text by --name. */
int fb_request_object(fb_buffer *out, const char *name, const char *text);
/* "passes" from --pass, unless there are none. When they are `undone`, digits are a position. A pass may be JSON: an object. */
int fb_request_passes(fb_buffer *out, const fb_text_list *passes, bool undone);
/* "labels" from --label key=value. */
int fb_request_labels(fb_buffer *out, const fb_text_list *labels);
/* A member that holds a graph, or its id. */
int fb_request_graph(fb_cli *cli, fb_buffer *out, const char *name, const fb_reference *graph);
/* "weights" from --weights, if there are any: files are sent first, so this comes after all that is checked here. */
int fb_request_weights(fb_cli *cli, fb_buffer *out);
/* "seed", a number, unless `text` is NULL. */
int fb_request_seed(fb_buffer *out, const char *text);
int fb_request_end(fb_buffer *out);

#endif
