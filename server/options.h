/* The command line of `foldback serve`. */
#ifndef FB_SERVER_OPTIONS_H
#define FB_SERVER_OPTIONS_H

#include "server/app.h"
#include "server/http/http.h"

typedef struct fb_serve_options {
    fb_http_config http; /* without the access log, which is opened later */
    fb_document_limits limits;
    const char *data;
    const char *access_log; /* a file, "-" for stderr, or "off" */
    bool insecure_listen;
    size_t cache_bytes;
    unsigned stop_timeout_ms;
    bool wants_help;
} fb_serve_options;

fb_serve_options fb_serve_options_default(void);

/* Reads what follows the verb. On failure writes one sentence to `message` and returns false. */
bool fb_serve_options_read(int argc, char **argv, fb_serve_options *options, char *message, size_t message_size);

/* The help text of `foldback serve`. */
void fb_serve_options_print(FILE *out);

#endif
