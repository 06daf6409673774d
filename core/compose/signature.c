#include "core/compose/signature.h"

#include <string.h>

#include "core/base/buffer.h"
#include "core/base/sha256.h"

static bool sign(fb_buffer *text, fb_signature out) {
    char id[FB_ID_LENGTH + 1];
    bool ok = !text->failed && fb_sha256_id(text->data, text->size, id);
    if (ok) {
        memcpy(out, id + strlen("sha256:"), FB_SIGNATURE_LENGTH);
        out[FB_SIGNATURE_LENGTH] = '\0';
    }
    fb_buffer_free(text);
    return ok;
}

bool fb_rule_signature(const char *name, int version, const char *digest, const char *params, fb_signature out) {
    fb_buffer text = {0};
    fb_buffer_string(&text, "{\"params\":");
    fb_buffer_string(&text, params);
    fb_buffer_string(&text, ",\"pass\":");
    fb_buffer_json_string(&text, name, strlen(name));
    if (digest) fb_buffer_printf(&text, ",\"rule\":\"%s\"", digest);
    fb_buffer_printf(&text, ",\"version\":%d}", version);
    return sign(&text, out);
}

bool fb_pass_signature(const char *name, int version, const char *params, fb_signature out) {
    return fb_rule_signature(name, version, NULL, params, out);
}

bool fb_composition_signature(const char *const *signatures, size_t count, fb_signature out) {
    fb_buffer text = {0};
    fb_buffer_char(&text, '[');
    for (size_t i = 0; i < count; i++) fb_buffer_printf(&text, "%s\"%s\"", i ? "," : "", signatures[i]);
    fb_buffer_char(&text, ']');
    return sign(&text, out);
}
