/* SHA-256 by libcrypto, which uses the processor's instructions for it. */
#ifndef FB_BASE_SHA256_H
#define FB_BASE_SHA256_H

#include <stdbool.h>
#include <stddef.h>

#define FB_ID_LENGTH 71 /* "sha256:" and 64 hex digits */
#define FB_ID_DIGITS "0123456789abcdef"

/* Writes "sha256:" + 64 lower-case hex digits + NUL. False when libcrypto fails. */
bool fb_sha256_id(const void *bytes, size_t size, char out[FB_ID_LENGTH + 1]);

/* True if `text` is "sha256:" and 64 lower-case hex digits. */
bool fb_is_sha256_id(const char *text);

/* The same for bytes that come piece by piece. */
typedef struct fb_sha256 fb_sha256;
fb_sha256 *fb_sha256_new(void); /* NULL when memory is out */
void fb_sha256_free(fb_sha256 *hash);
/* False when libcrypto fails; then the hash is of no more use. */
bool fb_sha256_add(fb_sha256 *hash, const void *bytes, size_t size);
/* The id of what was added so far; more may be added afterwards. */
bool fb_sha256_id_so_far(const fb_sha256 *hash, char out[FB_ID_LENGTH + 1]);

#endif
