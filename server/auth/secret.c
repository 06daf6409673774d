#include "server/auth/auth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "server/database/ulid.h"

#define PREFIX "fbt_"
#define RANDOM_SIZE 32

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static fb_status fill(unsigned char *bytes, size_t size, fb_error *error) {
    if (fb_fill_random(bytes, size)) return FB_OK;
    return fb_fail(error, FB_IO, "no-randomness", NULL, "the system gives no random bytes: %s", strerror(errno));
}

/* base64url (RFC 4648, 5) without padding. */
static void encode(const unsigned char *bytes, size_t size, char *out) {
    unsigned bits = 0, held = 0;
    for (size_t i = 0; i < size; i++) {
        bits = bits << 8 | bytes[i];
        for (held += 8; held >= 6; held -= 6) *out++ = alphabet[bits >> (held - 6) & 63];
    }
    if (held) *out++ = alphabet[bits << (6 - held) & 63];
    *out = '\0';
}

fb_status fb_secret_make(char secret[FB_TOKEN_LENGTH + 1], fb_error *error) {
    unsigned char bytes[RANDOM_SIZE];
    fb_status status = fill(bytes, sizeof bytes, error);
    if (status) return status;
    memcpy(secret, PREFIX, sizeof PREFIX - 1);
    encode(bytes, sizeof bytes, secret + sizeof PREFIX - 1);
    explicit_bzero(bytes, sizeof bytes);
    return FB_OK;
}

fb_status fb_secret_name(char name[20], fb_error *error) {
    unsigned char bytes[5];
    fb_status status = fill(bytes, sizeof bytes, error);
    if (!status) snprintf(name, 20, "token-%02x%02x%02x%02x%02x", bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]);
    return status;
}

fb_status fb_secret_digest(const char *secret, char digest[FB_ID_LENGTH + 1]) {
    size_t length = strnlen(secret, FB_TOKEN_LENGTH + 1), prefix = sizeof PREFIX - 1;
    if (length != FB_TOKEN_LENGTH || memcmp(secret, PREFIX, prefix) != 0) return FB_INVALID;
    if (strspn(secret + prefix, alphabet) != length - prefix) return FB_INVALID;
    return fb_sha256_id(secret, length, digest) ? FB_OK : FB_NO_MEMORY;
}
