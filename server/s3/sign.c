#include "server/s3/internal.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "core/base/sha256.h"

#define ALGORITHM "AWS4-HMAC-SHA256"
#define DAY_LENGTH 8 /* of FB_S3_DATE_LENGTH */
#define DIGEST 32

void fb_s3_encode(fb_buffer *out, const char *text, bool keeps_slashes) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    for (; *text; text++) {
        if (strchr(plain, *text) || (keeps_slashes && *text == '/')) fb_buffer_char(out, *text);
        else fb_buffer_printf(out, "%%%02X", (unsigned char)*text);
    }
}

bool fb_s3_hash(const void *bytes, size_t size, char out[FB_S3_HASH_LENGTH + 1]) {
    char id[FB_ID_LENGTH + 1];
    if (!fb_sha256_id(bytes, size, id)) return false;
    memcpy(out, id + strlen("sha256:"), FB_S3_HASH_LENGTH + 1);
    return true;
}

void fb_s3_date(time_t now, char out[FB_S3_DATE_LENGTH + 1]) {
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(out, FB_S3_DATE_LENGTH + 1, "%Y%m%dT%H%M%SZ", &utc);
}

static bool hmac(const void *key, size_t key_size, const char *text, unsigned char out[DIGEST]) {
    unsigned size = DIGEST;
    return HMAC(EVP_sha256(), key, (int)key_size, (const unsigned char *)text, strlen(text), out, &size) != NULL;
}

/* "20130524/us-east-1/s3/aws4_request" */
static void put_scope(const fb_s3_signing *signing, const char *date, const char *separator, fb_buffer *out) {
    fb_buffer_printf(out, "%.*s%s%s%ss3%saws4_request", DAY_LENGTH, date, separator, signing->region, separator, separator);
}

/* The key that signs requests of one day to one region. */
static bool derive_key(const fb_s3_signing *signing, const char *date, unsigned char key[DIGEST]) {
    char first[sizeof signing->credentials->secret + 8], day[DAY_LENGTH + 1];
    snprintf(first, sizeof first, "AWS4%s", signing->credentials->secret);
    snprintf(day, sizeof day, "%.*s", DAY_LENGTH, date);
    bool ok = hmac(first, strlen(first), day, key) && hmac(key, DIGEST, signing->region, key) && hmac(key, DIGEST, "s3", key) &&
              hmac(key, DIGEST, "aws4_request", key);
    OPENSSL_cleanse(first, sizeof first);
    return ok;
}

/* Appends the signature of a canonical request in hexadecimal. */
static void put_signature(const fb_s3_signing *signing, const char *date, fb_buffer *request, fb_buffer *out) {
    unsigned char key[DIGEST], signature[DIGEST];
    char hash[FB_S3_HASH_LENGTH + 1];
    fb_buffer text = {0};
    const char *canonical = fb_buffer_text(request);
    bool ok = canonical && fb_s3_hash(canonical, request->size, hash);
    fb_buffer_printf(&text, ALGORITHM "\n%s\n", date);
    put_scope(signing, date, "/", &text);
    fb_buffer_printf(&text, "\n%s", ok ? hash : "");
    ok = ok && fb_buffer_text(&text) && derive_key(signing, date, key) && hmac(key, DIGEST, fb_buffer_text(&text), signature);
    for (size_t i = 0; ok && i < DIGEST; i++) fb_buffer_printf(out, "%02x", signature[i]);
    out->failed |= !ok;
    OPENSSL_cleanse(key, sizeof key);
    fb_buffer_free(&text);
}

static void put_names(const fb_s3_header *headers, size_t count, fb_buffer *out) {
    for (size_t i = 0; i < count; i++) fb_buffer_printf(out, "%s%s", i ? ";" : "", headers[i].name);
}

static void put_request(const fb_s3_signing *signing, const char *query, const fb_s3_header *headers, size_t count,
                        const char *payload, fb_buffer *out) {
    fb_buffer_printf(out, "%s\n%s\n%s\n", signing->method, signing->path, query);
    for (size_t i = 0; i < count; i++) fb_buffer_printf(out, "%s:%s\n", headers[i].name, headers[i].value);
    fb_buffer_char(out, '\n');
    put_names(headers, count, out);
    fb_buffer_printf(out, "\n%s", payload);
}

void fb_s3_sign(const fb_s3_signing *signing, const fb_s3_header *headers, size_t count, const char *payload, fb_buffer *out) {
    char date[FB_S3_DATE_LENGTH + 1];
    fb_buffer request = {0};
    fb_s3_date(signing->now, date);
    put_request(signing, signing->query, headers, count, payload, &request);
    fb_buffer_printf(out, ALGORITHM " Credential=%s/", signing->credentials->key);
    put_scope(signing, date, "/", out);
    fb_buffer_string(out, ",SignedHeaders=");
    put_names(headers, count, out);
    fb_buffer_string(out, ",Signature=");
    put_signature(signing, date, &request, out);
    fb_buffer_free(&request);
}

void fb_s3_presign(const fb_s3_signing *signing, const char *host, unsigned seconds, fb_buffer *out) {
    char date[FB_S3_DATE_LENGTH + 1];
    fb_buffer query = {0}, request = {0};
    const fb_s3_header headers[] = {{"host", host}};
    fb_s3_date(signing->now, date);
    fb_buffer_string(&query, "X-Amz-Algorithm=" ALGORITHM "&X-Amz-Credential=");
    fb_s3_encode(&query, signing->credentials->key, false);
    fb_buffer_string(&query, "%2F");
    put_scope(signing, date, "%2F", &query);
    fb_buffer_printf(&query, "&X-Amz-Date=%s&X-Amz-Expires=%u", date, seconds);
    if (*signing->credentials->token) {
        fb_buffer_string(&query, "&X-Amz-Security-Token=");
        fb_s3_encode(&query, signing->credentials->token, false);
    }
    fb_buffer_string(&query, "&X-Amz-SignedHeaders=host");
    const char *text = fb_buffer_text(&query);
    put_request(signing, text ? text : "", headers, 1, "UNSIGNED-PAYLOAD", &request);
    fb_buffer_printf(out, "%s&X-Amz-Signature=", text ? text : "");
    put_signature(signing, date, &request, out);
    out->failed |= !text;
    fb_buffer_free(&query);
    fb_buffer_free(&request);
}
