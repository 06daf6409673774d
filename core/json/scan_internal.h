/* What scan.c and scan_scalar.c share. */
#ifndef FB_JSON_SCAN_INTERNAL_H
#define FB_JSON_SCAN_INTERNAL_H

#include "core/json/scan.h"

/* The string whose opening quote is at scan->at, or the number that begins there. False on failure. */
bool fb_scan_string(fb_scan *scan, fb_json *out);
bool fb_scan_number(fb_scan *scan, fb_json *out);

/* Each records a failure at scan->at and returns false. */
static inline bool fail(fb_scan *scan, const char *code, const char *message) {
    fb_scan_fail(scan, FB_SYNTAX, code, message, scan->at);
    return false;
}

static inline bool fail_expected(fb_scan *scan, const char *message) {
    return fail(scan, "invalid-json", scan->at < scan->end ? message : "the document ends in the middle");
}

static inline bool fail_memory(fb_scan *scan) {
    fb_scan_fail(scan, FB_NO_MEMORY, "out-of-memory", "not enough memory", scan->at);
    return false;
}

#endif
