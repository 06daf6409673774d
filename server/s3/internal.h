/* Declarations that the files of the client share: one request and its answer. */
#ifndef FB_S3_INTERNAL_H
#define FB_S3_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "core/base/buffer.h"
#include "server/s3/s3.h"

/* ---- where, and as whom ---- */

typedef struct fb_s3_place {
    char *endpoint, *public_endpoint; /* "https://host:port", without a slash at the end */
    char *bucket, *prefix;            /* "" or "some/prefix/" */
    char *region;
} fb_s3_place;

/* ---- one request ---- */

typedef struct fb_s3_call {
    const char *method, *key; /* NULL: of the bucket; not percent-encoded */
    const char *query;        /* as in fb_s3_signing */
    const void *body;
    size_t size; /* of the body */
    /* The range, and where its bytes go. */
    uint64_t offset;
    size_t wanted; /* 0: what comes is text */
    char *to;
    int file;
    bool is_probe; /* one attempt, and a short one */
    bool is_long;  /* the store may work for minutes before it answers */

    /* The answer of the last attempt. */
    long status;
    fb_buffer text;
    size_t received;
    char etag[FB_S3_ETAG_MAX];
    char range[64]; /* Content-Range */
    uint64_t length;
    int reason; /* errno of the file */
} fb_s3_call;

/* FB_OK for 2xx. FB_NOT_FOUND "unknown-object" for 404 of a key. Free `call->text` in either case. */
fb_status fb_s3_do(fb_s3 *s3, fb_s3_call *call, fb_error *error);

const fb_s3_place *fb_s3_place_of(const fb_s3 *s3);

/* ---- XML of answers ---- */

/* The first element `name` between `*at` and `end`, which `*at` moves behind. */
bool fb_s3_xml_find(const char **at, const char *end, const char *name, const char **inside, size_t *size);
/* Its text, unescaped and malloc'ed (caller frees); NULL when there is none, or memory is out. */
char *fb_s3_xml_text(const char **at, const char *end, const char *name);

/* Signatures of requests to an S3-compatible store: AWS Signature Version 4, in headers and in URLs.
 *
 * Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html */

#define FB_S3_DATE_LENGTH 16 /* "20130524T000000Z" */
#define FB_S3_HASH_LENGTH 64

typedef struct fb_s3_credentials {
    char key[256], secret[256];
    char token[8192]; /* of a session, or "" */
} fb_s3_credentials;

/* The input of a signature. */
typedef struct fb_s3_signing {
    const fb_s3_credentials *credentials;
    const char *region;
    time_t now;
    const char *method;
    const char *path;  /* percent-encoded, from "/" on */
    const char *query; /* percent-encoded, its names in order, each with "="; "" for none */
} fb_s3_signing;

typedef struct fb_s3_header {
    const char *name; /* in lower case */
    const char *value;
} fb_s3_header;

/* Appends `text` percent-encoded: all but letters, digits and "-._~", and "/" where `keeps_slashes`. */
void fb_s3_encode(fb_buffer *out, const char *text, bool keeps_slashes);

/* The hash of a body as x-amz-content-sha256 has it. False when libcrypto cannot allocate. */
bool fb_s3_hash(const void *bytes, size_t size, char out[FB_S3_HASH_LENGTH + 1]);

/* The time as x-amz-date has it. */
void fb_s3_date(time_t now, char out[FB_S3_DATE_LENGTH + 1]);

/* Appends the value of the header Authorization. `headers`, in the order of their names, are all that is signed: `host`,
 * `x-amz-content-sha256` (which is `payload`), `x-amz-date` of `now` and, with a session, `x-amz-security-token` among them. */
void fb_s3_sign(const fb_s3_signing *signing, const fb_s3_header *headers, size_t count, const char *payload, fb_buffer *out);

/* Appends the query of a URL with which anyone may do `method` for `seconds`: `host` is the one in the URL. The query in
 * `signing` is left out. */
void fb_s3_presign(const fb_s3_signing *signing, const char *host, unsigned seconds, fb_buffer *out);

#endif
