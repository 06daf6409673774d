#include "core/base/sha256.h"

#include <openssl/evp.h>
#include <string.h>

/* fb_sha256 is libcrypto's context by another name. */
static EVP_MD_CTX *context_of(const fb_sha256 *hash) {
    return (EVP_MD_CTX *)hash;
}

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
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_Digest(bytes, size, digest, &length, EVP_sha256(), NULL) != 1) return false;
    write_id(digest, out);
    return true;
}

bool fb_is_sha256_id(const char *text) {
    return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, FB_ID_DIGITS) == 64 && text[FB_ID_LENGTH] == '\0';
}

fb_sha256 *fb_sha256_new(void) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    if (context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1) return (fb_sha256 *)context;
    EVP_MD_CTX_free(context);
    return NULL;
}

void fb_sha256_free(fb_sha256 *hash) {
    EVP_MD_CTX_free(context_of(hash));
}

bool fb_sha256_add(fb_sha256 *hash, const void *bytes, size_t size) {
    return EVP_DigestUpdate(context_of(hash), bytes, size) == 1;
}

bool fb_sha256_id_so_far(const fb_sha256 *hash, char out[FB_ID_LENGTH + 1]) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    EVP_MD_CTX *copy = EVP_MD_CTX_new();
    bool is_done = copy && EVP_MD_CTX_copy_ex(copy, context_of(hash)) == 1 && EVP_DigestFinal_ex(copy, digest, &length) == 1;
    EVP_MD_CTX_free(copy);
    if (is_done) write_id(digest, out);
    return is_done;
}
