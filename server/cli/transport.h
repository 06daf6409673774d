/* The two ways of a request: libcurl to a service somewhere, or a pair of sockets to the one in this process. */
#ifndef FB_CLI_TRANSPORT_H
#define FB_CLI_TRANSPORT_H

#include "core/base/sha256.h"
#include "server/app.h"
#include "server/cli/client.h"
#include "server/http/http.h"

/* Keeps what is wanted of one header line. */
void fb_answer_header(fb_answer *answer, const char *line, size_t size);
/* The next bytes of the body, for the receiver or the answer. False: out of memory, or the receiver cannot. */
bool fb_answer_body(const fb_call *call, fb_answer *answer, const char *bytes, size_t size);

typedef struct fb_remote fb_remote;
/* NULL when memory is out. */
fb_remote *fb_remote_new(const char *url, const fb_credentials *credentials);
void fb_remote_free(fb_remote *remote);
fb_status fb_remote_call(fb_remote *remote, const fb_call *call, const char *target, fb_answer *answer, fb_error *error);

/* Whether the target is all weights of a graph, and of which. */
bool fb_is_weights_target(const char *target, char graph[FB_ID_LENGTH + 1]);
/* fb_client_copy of a graph's weights. */
fb_status fb_store_copy_weights(const fb_app *app, const char *graph, uint64_t size, uint64_t from, uint64_t to, int file,
                                fb_progress *progress, fb_error *error);

/* fb_client_send_blob. */
fb_status fb_store_take_blob(const fb_app *app, const fb_sent_file *from, const char *digest, fb_progress *progress,
                             fb_error *error);

fb_status fb_local_call(fb_http_server *server, const fb_call *call, const char *target, fb_answer *answer, fb_error *error);

#endif
