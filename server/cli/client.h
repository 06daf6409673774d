/* The verbs' way to the API: HTTP, to a service somewhere, or to one in this process over the data folder, without a network.
 */
#ifndef FB_CLI_CLIENT_H
#define FB_CLI_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/sha256.h"
#include "server/graphs/app.h"

/* ---- How far something large has come: one line on standard error, when that is a terminal ------------------------------- */

typedef struct fb_progress {
    const char *what, *name; /* "sending", "model.safetensors"; borrowed */
    uint64_t done, total;    /* bytes */
    uint64_t first;          /* of `done` that were there before */
    int64_t begun, shown;    /* milliseconds */
    bool is_visible;
} fb_progress;

/* `done` of `total` bytes are there already. */
void fb_progress_begin(fb_progress *progress, const char *what, const char *name, uint64_t done, uint64_t total);
/* NULL does nothing. */
void fb_progress_add(fb_progress *progress, uint64_t bytes);
/* Takes the line away. */
void fb_progress_end(fb_progress *progress);

typedef struct fb_client fb_client;
struct fb_http_server;

/* How to be let in, and how to wait; the texts may be NULL. */
typedef struct fb_credentials {
    unsigned patience_ms; /* a call that takes longer fails; 0: any */
    const char *token;
    const char *ca_file; /* certificates to trust, PEM; NULL: those that the system trusts */
} fb_credentials;

/* To a running service: "http://host:8080", or with a path before /v1. FB_INVALID "bad-address", FB_NO_MEMORY. */
fb_status fb_client_new_remote(const char *url, const fb_credentials *credentials, fb_client **out, fb_error *error);
/* Starts the service on a data folder; NULL: without a store. The errors of fb_service_start. */
fb_status fb_client_new_local(const char *data, fb_client **out, fb_error *error);
/* The same, and it listens on a free port of this machine as well, for who has the token. The token must live as long as it. */
fb_status fb_client_new_listening(const char *data, const char *token, fb_client **out, fb_error *error);
/* Where that one listens. */
const char *fb_client_url(const fb_client *client);
void fb_client_free(fb_client *client);
/* For a service in this process: lasts as long as the client. */
void fb_client_hand(fb_client *client, fb_handed_graph *handed);

/* An address below the service's, put together with its parts encoded. */
typedef struct fb_address {
    fb_buffer text;
    bool has_query;
} fb_address;

/* "/v1/runs" and so on, as it is. */
void fb_address_path(fb_address *address, const char *path);
/* "/" and one encoded segment. */
void fb_address_segment(fb_address *address, const char *segment);
/* Nothing when `value` is NULL. */
void fb_address_query(fb_address *address, const char *name, const char *value);

typedef struct fb_answer {
    int status;
    fb_buffer body; /* terminated; empty when a receiver took it */
    char etag[170]; /* as sent, with its quotes; "" when there is none */
    char media_type[100];
    bool has_length;
    uint64_t length; /* Content-Length */
} fb_answer;

/* A body that is not held in memory: all of a file. */
typedef struct fb_sent_file {
    int file;
    uint64_t size;
} fb_sent_file;

/* Takes the body of a 2xx answer as it comes; all others go to fb_answer.body. `answer` has all but a body. False: it cannot,
 * and knows why. */
typedef struct fb_receiver {
    bool (*take)(void *context, const fb_answer *answer, const char *bytes, size_t size);
    void *context;
} fb_receiver;

typedef struct fb_call {
    const char *method;
    fb_address address;
    fb_buffer body;           /* JSON; empty: none */
    const char *type;         /* of the body, or NULL: application/json */
    const fb_sent_file *file; /* instead of a body, or NULL */
    const char *header;       /* one more, "If-Match: …", or NULL */
    fb_receiver *receiver;    /* NULL: all goes to the answer */
    fb_progress *progress;    /* of the file, or of what the receiver takes; NULL: not shown. It ends with the call */
} fb_call;

void fb_call_free(fb_call *call);

/* One request. FB_OK with any HTTP status; FB_IO "unreachable", "not-answered", "cut-off" (within the body) or "not-taken";
 * FB_NO_MEMORY. Frees what is in the call; free the answer in either case. */
fb_status fb_client_call(fb_client *client, fb_call *call, fb_answer *answer, fb_error *error);
void fb_answer_free(fb_answer *answer);

/* Makes a file a blob of that digest where the service is in this process; `is_sent` false: it is not, and nothing was done.
 * "" takes any file, and becomes its digest. The errors of the store; FB_INVALID "digest-mismatch" when the file is not that
 * any more. */
fb_status fb_client_send_blob(fb_client *client, const fb_sent_file *file, char digest[FB_ID_LENGTH + 1], fb_progress *progress,
                              bool *is_sent, fb_error *error);
/* Is the service in this process, and has no blob of that size? Then it lacks the file, whatever its digest is. */
bool fb_client_is_new_size(fb_client *client, uint64_t size);

/* True if the service is in this process. */
bool fb_client_is_local(const fb_client *client);
/* True if fb_client_copy can write what a GET of the target sends: the service is in this process, and the target is the
 * weights of a graph. */
bool fb_client_can_copy(const fb_client *client, const char *target);
/* Appends bytes from … to of those `size` to a file. FB_IO "file-failed", whose message is the system's, and what the
 * service would have answered: fb_cannot_copy reports either. */
fb_status fb_client_copy(fb_client *client, const char *target, uint64_t size, uint64_t from, uint64_t to, int file,
                         fb_progress *progress, fb_error *error);

/* ---- The call to the service in this process, over a pair of sockets ----------------------------------------------------- */

/* Keeps what is wanted of one header line. */
void fb_answer_header(fb_answer *answer, const char *line, size_t size);
/* The next bytes of the body, for the receiver or the answer. False: out of memory, or the receiver cannot. */
bool fb_answer_body(const fb_call *call, fb_answer *answer, const char *bytes, size_t size);

/* fb_client_call there. */
fb_status fb_local_call(struct fb_http_server *server, const fb_call *call, const char *target, fb_answer *answer,
                        fb_error *error);

#endif
