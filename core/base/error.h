/* Status codes and the caller-owned error.
 *
 * Functions that can fail return fb_status and fill an fb_error that the caller owns. The first error wins: reporting into an
 * error that is already set changes nothing, so a straight line of calls can be checked once at its end. Reporting never
 * allocates, so running out of memory can be reported too.
 */
#ifndef FB_BASE_ERROR_H
#define FB_BASE_ERROR_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

typedef enum fb_status {
    FB_OK = 0,
    FB_NO_MEMORY, /* an allocation failed */
    FB_SYNTAX,    /* not JSON, wrong encoding, duplicate member (HTTP 400) */
    FB_INVALID,   /* well-formed, but means nothing or breaks a rule (HTTP 422) */
    FB_TOO_LARGE, /* over a configured limit (HTTP 413) */
    FB_NOT_FOUND, /* names something that does not exist (HTTP 404) */
    FB_CONFLICT,  /* cannot be done to this graph or run (HTTP 409) */
    FB_NO_SPACE,  /* the disk is full (HTTP 507) */
    FB_BUSY,      /* overloaded or stopping (HTTP 503) */
    FB_IO,        /* the operating system or SQLite failed (HTTP 500) */
} fb_status;

/* Copies as much of a UTF-8 text as fits into `capacity` bytes with its NUL; never half a character. NULL counts as "". */
void fb_copy_text(char *out, size_t capacity, const char *text);

#define FB_POINTER_MAX 480

typedef struct fb_error {
    fb_status status;
    char code[48];                /* machine-readable reason: "duplicate-name" */
    char pointer[FB_POINTER_MAX]; /* JSON Pointer (RFC 6901) into the request or document; "" = its root */
    char node[160];               /* name of the node at fault, or "" */
    char message[600];            /* one sentence for a person */
} fb_error;

/* Fills `error` unless it is already set or NULL, and returns `status`. `pointer` and `code` may be NULL (= ""). Texts that do
 * not fit are cut. */
fb_status fb_fail(fb_error *error, fb_status status, const char *code, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* fb_fail(error, FB_NO_MEMORY, "out-of-memory", …) */
fb_status fb_fail_memory(fb_error *error);

/* A list of errors for checks that report everything they find. Keeps the first `limit`, counts all. */
typedef struct fb_errors {
    fb_error *items;
    size_t count;    /* kept */
    size_t capacity; /* internal */
    size_t limit;    /* how many to keep at most; 0 = 100 */
    size_t total;    /* found */
    bool out_of_memory;
} fb_errors;

/* Appends one error (FB_INVALID) as fb_fail would write it; returns the kept entry or NULL. */
fb_error *fb_errors_add(fb_errors *errors, const char *code, const char *pointer, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
fb_error *fb_errors_add_list(fb_errors *errors, const char *code, const char *pointer, const char *format, va_list args);
/* Names the node at fault; NULL for `error` is allowed. A name that does not fit is cut. */
void fb_error_set_node(fb_error *error, const char *name);
void fb_errors_free(fb_errors *errors);

#endif
