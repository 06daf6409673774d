/* Failures of the check, with the place in the model, and the names that they show. */
#include <string.h>

#include "core/json/scan.h"
#include "core/onnx/check.h"

bool onnx_is(onnx_bytes text, const char *wanted) {
    return text.size == strlen(wanted) && memcmp(text.text, wanted, text.size) == 0;
}

bool onnx_same(onnx_bytes a, onnx_bytes b) {
    return a.size == b.size && (!a.size || memcmp(a.text, b.text, a.size) == 0);
}

const char *onnx_shown(onnx_bytes text, char out[96]) {
    const unsigned char *at = (const unsigned char *)(text.size ? text.text : ""), *end = at + text.size;
    size_t length = 0;
    for (size_t size; at < end; at += size) {
        size = fb_utf8_length(at, end);
        bool is_plain = size && *at >= ' ' && *at != 0x7f;
        if (!is_plain) size = 1;
        if (length + size > 90) {
            memcpy(out + length, "…", sizeof "…" - 1);
            length += sizeof "…" - 1;
            break;
        }
        if (is_plain) memcpy(out + length, at, size);
        else out[length] = '?';
        length += size;
    }
    out[length] = '\0';
    return out;
}

static bool fail(onnx_checking *c, const char *code, onnx_message kind, const void *message, int field, const char *format,
                 va_list args) {
    const char *name = field ? onnx_field_name(kind, (uint32_t)field) : NULL;
    fb_buffer text = {0};
    if (c->status) return false;
    fb_buffer_printf(&text, "%s%s%s at byte %llu: ", onnx_message_name(kind), name ? "." : "", name ? name : "",
                     (unsigned long long)onnx_place(c->file, message));
    fb_buffer_vprintf(&text, format, args);
    const char *whole = fb_buffer_text(&text);
    c->status = whole ? fb_fail(c->error, FB_INVALID, code, "", "%s", whole) : fb_fail_memory(c->error);
    fb_buffer_free(&text);
    return false;
}

bool onnx_bad(onnx_checking *c, onnx_message kind, const void *message, int field, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(c, "bad-onnx", kind, message, field, format, args);
    va_end(args);
    return false;
}

bool onnx_unsupported(onnx_checking *c, onnx_message kind, const void *message, int field, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fail(c, "unsupported-onnx", kind, message, field, format, args);
    va_end(args);
    return false;
}
