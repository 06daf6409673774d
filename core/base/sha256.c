#include "core/base/sha256.h"

/* EVP, which libcrypto has in place of these, reads its configuration and loads providers and engines before the first digest,
 * a sixteenth of a command's instructions, and looks the algorithm up by its name for each one. Both use the same code. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

struct fb_sha256 {
    SHA256_CTX context;
};

static void write_id(const unsigned char digest[32], char out[FB_ID_LENGTH + 1]) {
    static const char hex[] = "0123456789abcdef";
    memcpy(out, "sha256:", 7);
    for (unsigned int i = 0; i < 32; i++) {
        out[7 + 2 * i] = hex[digest[i] >> 4];
        out[8 + 2 * i] = hex[digest[i] & 15];
    }
    out[FB_ID_LENGTH] = '\0';
}

bool fb_sha256_id(const void *bytes, size_t size, char out[FB_ID_LENGTH + 1]) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX context;
    bool is_done = SHA256_Init(&context) && SHA256_Update(&context, bytes, size) && SHA256_Final(digest, &context);
    if (is_done) write_id(digest, out);
    return is_done;
}

bool fb_is_sha256_id(const char *text) {
    return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, FB_ID_DIGITS) == 64 && text[FB_ID_LENGTH] == '\0';
}

fb_sha256 *fb_sha256_new(void) {
    fb_sha256 *hash = malloc(sizeof *hash);
    if (hash) SHA256_Init(&hash->context);
    return hash;
}

void fb_sha256_free(fb_sha256 *hash) {
    free(hash);
}

bool fb_sha256_add(fb_sha256 *hash, const void *bytes, size_t size) {
    return SHA256_Update(&hash->context, bytes, size) == 1;
}

bool fb_sha256_id_so_far(const fb_sha256 *hash, char out[FB_ID_LENGTH + 1]) {
    unsigned char digest[SHA256_DIGEST_LENGTH];
    SHA256_CTX copy = hash->context;
    bool is_done = SHA256_Final(digest, &copy) == 1;
    if (is_done) write_id(digest, out);
    return is_done;
}
