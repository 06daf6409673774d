/* Signatures of Standard Webhooks 1.0.0 (github.com/standard-webhooks/standard-webhooks), of kind v1: symmetric. */
#include "server/webhooks/webhooks.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "core/base/base64.h"
#include "server/database/ulid.h"

#define PREFIX "whsec_"
#define RANDOM_SIZE 32
#define LEAST 24 /* bytes of a key */
#define MOST 64

fb_status fb_hook_secret_make(char secret[FB_SECRET_MAX + 1], fb_error *error) {
    unsigned char bytes[RANDOM_SIZE];
    if (!fb_fill_random(bytes, sizeof bytes))
        return fb_fail(error, FB_IO, "no-randomness", NULL, "the system gives no random bytes: %s", strerror(errno));
    memcpy(secret, PREFIX, sizeof PREFIX - 1);
    EVP_EncodeBlock((unsigned char *)secret + sizeof PREFIX - 1, bytes, RANDOM_SIZE);
    explicit_bzero(bytes, sizeof bytes);
    return FB_OK;
}

bool fb_is_hook_secret(const char *text) {
    size_t length = strlen(text), prefix = sizeof PREFIX - 1;
    if (length > FB_SECRET_MAX || strncmp(text, PREFIX, prefix) != 0 || !fb_is_base64(text + prefix, length - prefix))
        return false;
    size_t size = fb_base64_size(text + prefix, length - prefix);
    return size >= LEAST && size <= MOST;
}

bool fb_hook_sign(const char *secret, const char *id, int64_t timestamp, const char *body, fb_buffer *out) {
    const char *digits = secret + sizeof PREFIX - 1;
    size_t size = fb_base64_size(digits, strlen(digits));
    unsigned char key[MOST], hash[EVP_MAX_MD_SIZE];
    char text[EVP_MAX_MD_SIZE * 2];
    unsigned hash_size = 0;
    fb_buffer content = {0};
    if (size > sizeof key) return false;
    fb_base64_decode(digits, 0, size, key);
    fb_buffer_printf(&content, "%s.%" PRId64 ".", id, timestamp);
    fb_buffer_string(&content, body);
    bool ok = !content.failed &&
              HMAC(EVP_sha256(), key, (int)size, (const unsigned char *)content.data, content.size, hash, &hash_size);
    if (ok) {
        EVP_EncodeBlock((unsigned char *)text, hash, (int)hash_size);
        fb_buffer_printf(out, "v1,%s", text);
    }
    explicit_bzero(key, sizeof key);
    fb_buffer_free(&content);
    return ok && !out->failed;
}
