/* What the files of the client share: one request and its answer. */
#ifndef FB_S3_INTERNAL_H
#define FB_S3_INTERNAL_H

#include "server/s3/s3.h"
#include "server/s3/sign.h"

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
    /* Of a range: where its bytes go. */
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

/* The text of the first element `name` between `*at` and `end`, unescaped and malloc'ed (caller frees); NULL when there is
 * none, or memory is out. `*at` moves behind it. */
char *fb_s3_xml_text(const char **at, const char *end, const char *name);
/* Finds the next such element and gives what is inside it. */
bool fb_s3_xml_find(const char **at, const char *end, const char *name, const char **inside, size_t *size);

#endif
