/* What the files of the check share. */
#ifndef FB_CHECK_INTERNAL_H
#define FB_CHECK_INTERNAL_H

#include "server/app.h"
#include "server/check/check.h"

/* Tells a finding; the codes are in findings.c. */
void fb_check_found(fb_check *check, const char *code, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for what the store tells: a fb_store_found, whose context is the check. */
void fb_check_stored(void *check, const char *code, const char *subject, const char *detail);
/* An error that one object met is a finding with that code, and FB_OK; what passes (no memory, too busy) goes to `error`. */
fb_status fb_check_met(fb_check *check, const char *code, const char *subject, const fb_error *met, fb_error *error);
void fb_check_progress(fb_check *check, const char *what, uint64_t done, uint64_t total);

fb_status fb_check_graphs(const fb_app *app, fb_check *check, fb_error *error);
fb_status fb_check_rules(const fb_app *app, fb_check *check, fb_error *error);
fb_status fb_check_runs(const fb_app *app, fb_check *check, fb_error *error);
fb_status fb_check_blobs(const fb_app *app, fb_check *check, fb_error *error);

#endif
