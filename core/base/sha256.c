#include "core/base/sha256.h"

#include <openssl/evp.h>
#include <string.h>

bool fb_sha256_id(const void *bytes, size_t size, char out[FB_ID_LENGTH + 1]) {
    static const char hex[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_Digest(bytes, size, digest, &length, EVP_sha256(), NULL) != 1) return false;
    memcpy(out, "sha256:", 7);
    for (unsigned int i = 0; i < 32; i++) {
        out[7 + 2 * i] = hex[digest[i] >> 4];
        out[8 + 2 * i] = hex[digest[i] & 15];
    }
    out[FB_ID_LENGTH] = '\0';
    return true;
}

bool fb_is_sha256_id(const char *text) {
    return strncmp(text, "sha256:", 7) == 0 && strspn(text + 7, "0123456789abcdef") == 64 && text[FB_ID_LENGTH] == '\0';
}
