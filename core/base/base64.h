/* Base64 as of RFC 4648, section 4, with padding. */
#ifndef FB_BASE_BASE64_H
#define FB_BASE_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Is it base64, padded, with bits beyond the last byte 0, so that one content has one spelling? */
bool fb_is_base64(const char *text, size_t length);
/* The number of bytes that a base64 text encodes. */
size_t fb_base64_size(const char *text, size_t length);
/* Writes `count` of them from the `start`-th on. The text must be base64, and so long. */
void fb_base64_decode(const char *text, size_t start, size_t count, unsigned char *out);

/* Characters of the base64 of so many bytes; writes them, without a NUL. */
static inline size_t fb_base64_length(size_t count) {
    return (count + 2) / 3 * 4;
}
void fb_base64_encode(const unsigned char *bytes, size_t count, char *out);

#endif
