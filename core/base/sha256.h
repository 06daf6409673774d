/* SHA-256 through libcrypto's EVP interface. */
#ifndef FB_BASE_SHA256_H
#define FB_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>

#define FB_ID_LENGTH 71 /* "sha256:" and 64 hex digits */

/* Writes "sha256:" + 64 lower-case hex digits + NUL. False when libcrypto cannot allocate. */
bool fb_sha256_id(const void *bytes, size_t size, char out[FB_ID_LENGTH + 1]);

/* True if `text` is "sha256:" and 64 lower-case hex digits. */
bool fb_is_sha256_id(const char *text);

#endif
