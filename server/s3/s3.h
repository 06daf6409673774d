/* A client of one bucket of an S3-compatible store. Every function may be called from any thread.
 *
 * Requests are signed (sign.c), share connections, and are sent again, with jitter, a few times when the store cannot be
 * reached, is overloaded or breaks off. Errors that any function may report:
 *
 *     FB_BUSY       blobs-unavailable  not reached, overloaded, or broken off, after the last attempt
 *     FB_IO         blobs-refused      the store said no: missing or wrong credentials, no such bucket, a wrong region or clock
 *     FB_NO_MEMORY  out-of-memory
 *
 * No message has a credential in it. Credentials are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the
 * profile AWS_PROFILE ("default") of the file AWS_SHARED_CREDENTIALS_FILE, which is read again for each request; AWS_CA_BUNDLE
 * names certificates. */
#ifndef FB_S3_S3_H
#define FB_S3_S3_H

#include <stdint.h>

#include "core/base/buffer.h"
#include "core/base/error.h"

typedef struct fb_s3 fb_s3;

/* Texts are copied. */
typedef struct fb_s3_config {
    const char *url;             /* "s3://bucket/prefix" */
    const char *endpoint;        /* "https://host:port", or NULL: Amazon's of the region */
    const char *public_endpoint; /* the same as clients reach it; NULL: the endpoint */
    const char *region;          /* or NULL: AWS_REGION, AWS_DEFAULT_REGION, us-east-1 */
} fb_s3_config;

/* FB_INVALID "bad-blobs": the URL or an endpoint is malformed. Sends nothing, and looks for no credentials. */
fb_status fb_s3_new(const fb_s3_config *config, fb_s3 **out, fb_error *error);
/* FB_OK when there are credentials, right or not. */
fb_status fb_s3_has_credentials(fb_error *error);
void fb_s3_free(fb_s3 *s3); /* NULL does nothing */

/* FB_OK when the bucket answers; one attempt, of three seconds at most. */
fb_status fb_s3_probe(fb_s3 *s3, fb_error *error);

/* Keys are below the prefix: "blobs/ab/cd/…". */

/* Bytes. FB_NOT_FOUND "unknown-object". */
fb_status fb_s3_size(fb_s3 *s3, const char *key, uint64_t *size, fb_error *error);
/* Writes `size` bytes from `offset` on to `to`, or, when that is NULL, to the same place of `file`. FB_NOT_FOUND as above. The
 * bytes there are undefined after a failure. */
fb_status fb_s3_read(fb_s3 *s3, const char *key, uint64_t offset, size_t size, void *to, int file, fb_error *error);
/* Replaces an object. It appears whole. */
fb_status fb_s3_put(fb_s3 *s3, const char *key, const void *bytes, size_t size, fb_error *error);
/* No error when it is not there. */
fb_status fb_s3_remove(fb_s3 *s3, const char *key, fb_error *error);

/* Calls `found` for every object whose key begins with `start`, until it fails. `changed`: milliseconds since 1970. */
typedef fb_status (*fb_s3_found)(void *context, const char *key, int64_t changed, fb_error *error);
fb_status fb_s3_list(fb_s3 *s3, const char *start, fb_s3_found found, void *context, fb_error *error);

/* ---- objects in parts ----
 * A part has 5 MiB at least, but for the last, and there are 10,000 at most. The object appears when fb_s3_parts_end succeeds.
 */

#define FB_S3_ETAG_MAX 200

typedef struct fb_s3_part {
    char etag[FB_S3_ETAG_MAX]; /* set by fb_s3_parts_put */
} fb_s3_part;

/* The upload's id, malloc'ed (caller frees). */
fb_status fb_s3_parts_begin(fb_s3 *s3, const char *key, char **upload, fb_error *error);
/* `number` from 0 on; several threads may put parts of one upload. */
fb_status fb_s3_parts_put(fb_s3 *s3, const char *key, const char *upload, size_t number, const void *bytes, size_t size,
                          fb_s3_part *part, fb_error *error);
fb_status fb_s3_parts_end(fb_s3 *s3, const char *key, const char *upload, const fb_s3_part *parts, size_t count,
                          fb_error *error);
/* Gives the parts up. */
fb_status fb_s3_parts_abort(fb_s3 *s3, const char *key, const char *upload, fb_error *error);
/* Calls `found` for every upload to a key that begins with `start` and that was neither ended nor aborted, until it fails; a
 * thousand at most. `begun`: milliseconds since 1970. */
typedef fb_status (*fb_s3_unfinished)(void *context, const char *key, const char *upload, int64_t begun, fb_error *error);
fb_status fb_s3_parts_list(fb_s3 *s3, const char *start, fb_s3_unfinished found, void *context, fb_error *error);

/* A URL, malloc'ed (caller frees), with which a client reads the object for `seconds`. NULL when memory or credentials lack. */
char *fb_s3_url(fb_s3 *s3, const char *key, unsigned seconds);

#endif
