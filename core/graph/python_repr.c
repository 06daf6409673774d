
#include <math.h>
#include <string.h>

#include "core/base/float.h"
#include "core/graph/python.h"

static void escape_character(fb_buffer *out, uint32_t code) {
    if (code == '\n') fb_buffer_string(out, "\\n");
    else if (code == '\r') fb_buffer_string(out, "\\r");
    else if (code == '\t') fb_buffer_string(out, "\\t");
    else if (code <= 0xff) fb_buffer_printf(out, "\\x%02x", (unsigned)code);
    else if (code <= 0xffff) fb_buffer_printf(out, "\\u%04x", (unsigned)code);
    else fb_buffer_printf(out, "\\U%08x", (unsigned)code);
}

void fb_repr_string(fb_buffer *out, const char *text, size_t length) {
    char quote = length && memchr(text, '\'', length) && !memchr(text, '"', length) ? '"' : '\'';
    fb_buffer_char(out, quote);
    size_t start = 0;
    for (size_t at = 0, size; at < length; at += size) {
        uint32_t code = fb_utf8_decode(text + at, length - at, &size);
        bool is_special = code == '\\' || code == (unsigned char)quote;
        if (!is_special && fb_unicode_is_printable(code)) continue;
        fb_buffer_append(out, text + start, at - start);
        start = at + size;
        if (is_special) {
            fb_buffer_char(out, '\\');
            fb_buffer_char(out, (char)code);
        } else {
            escape_character(out, code == UINT32_MAX ? (unsigned char)text[at] : code);
        }
    }
    fb_buffer_append(out, text + start, length - start);
    fb_buffer_char(out, quote);
}

void fb_repr_float(fb_buffer *out, double value) {
    char digits[FB_FLOAT_MAX];
    fb_buffer_append(out, digits, fb_float_repr(value, digits));
}

/* As in repr(complex), where a whole number has no ".0". */
static void repr_part(fb_buffer *out, double value) {
    char digits[FB_FLOAT_MAX];
    size_t length = fb_float_repr(value, digits);
    if (length > 2 && memcmp(digits + length - 2, ".0", 2) == 0) length -= 2;
    fb_buffer_append(out, digits, length);
}

void fb_repr_complex(fb_buffer *out, double real, double imaginary) {
    bool has_real = real != 0 || signbit(real); /* true for nan */
    if (has_real) {
        fb_buffer_char(out, '(');
        repr_part(out, real);
        if (isnan(imaginary) || !signbit(imaginary)) fb_buffer_char(out, '+');
    }
    repr_part(out, imaginary);
    fb_buffer_string(out, has_real ? "j)" : "j");
}
