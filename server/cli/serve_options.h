/* What the options of `foldback serve` set. */
#ifndef FB_CLI_SERVE_OPTIONS_H
#define FB_CLI_SERVE_OPTIONS_H

#include "server/cli/options.h"
#include "server/service/service.h"

typedef struct fb_serve_values {
    fb_service_config service;             /* without the access log, which is opened later */
    const char *access_log;                /* a file, "-" for stderr, or "off" */
    const char *sandbox;                   /* "auto", "on" or "off" */
    const char *tls_certificate, *tls_key; /* files, or NULL */
    fb_text_list allowed_hosts;
    unsigned stop_timeout_ms;
    bool wants_help;
} fb_serve_values;

fb_serve_values fb_serve_values_default(void);

#endif
