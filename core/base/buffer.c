#include "core/base/buffer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *fb_buffer_grow(fb_buffer *buffer, size_t extra) {
    if (buffer->failed) return NULL;
    if (extra > SIZE_MAX / 2 - buffer->size) {
        buffer->failed = true;
        return NULL;
    }
    size_t needed = buffer->size + extra;
    if (needed > buffer->capacity || !buffer->data) {
        size_t capacity = buffer->capacity ? buffer->capacity : 256;
        while (capacity < needed) capacity += capacity / 2 + 64;
        char *data = realloc(buffer->data, capacity);
        if (!data) {
            buffer->failed = true;
            return NULL;
        }
        buffer->data = data;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->size;
}

void fb_buffer_string(fb_buffer *buffer, const char *text) {
    fb_buffer_append(buffer, text, strlen(text));
}

/* An integer with at least `width` digits. */
static void append_padded(fb_buffer *buffer, int64_t value, size_t width) {
    size_t digits = 1;
    for (int64_t rest = value / 10; rest; rest /= 10) digits++;
    for (; digits < width; digits++) fb_buffer_char(buffer, '0');
    fb_buffer_int(buffer, value);
}

/* The conversions that most texts are made of: %s, and integers such as %d, %zu and %02d. False when there is another one. */
static bool print_plainly(fb_buffer *buffer, const char *format, va_list args) {
    for (;;) {
        size_t size = (size_t)(strchrnul(format, '%') - format), width = 0;
        fb_buffer_append(buffer, format, size);
        format += size;
        if (!*format++) return true;
        if (*format == '0' && format[1] >= '1' && format[1] <= '9') {
            width = (size_t)(format[1] - '0');
            format += 2;
        }
        size_t length = strspn(format, "lz");
        char kind = format[length];
        int64_t value = 0;
        const char *text = kind == 's' && !length && !width ? va_arg(args, const char *) : NULL;
        if (text) fb_buffer_string(buffer, text);
        else if (kind == 'd' && !length) value = va_arg(args, int);
        else if (kind == 'u' && !length) value = va_arg(args, unsigned);
        else if (kind == 'd' || kind == 'u') value = va_arg(args, int64_t); /* long, long long and size_t have 64 bits here */
        else return false;
        if (value < 0 && (width || kind == 'u')) return false;
        if (kind != 's') append_padded(buffer, value, width);
        format += length + 1;
    }
}

static void print_anyhow(fb_buffer *buffer, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *to = length >= 0 ? fb_buffer_reserve(buffer, (size_t)length + 1) : NULL;
    if (to) {
        vsnprintf(to, (size_t)length + 1, format, again);
        buffer->size += (size_t)length;
    }
    va_end(again);
}

/* libquadmath, which comes with OpenBLAS, registers a conversion of its own with printf, and then glibc takes a long way for
 * each call: more than a microsecond. So plain texts go without it. */
void fb_buffer_vprintf(fb_buffer *buffer, const char *format, va_list args) {
    size_t before = buffer->size;
    va_list again;
    va_copy(again, args);
    if (!print_plainly(buffer, format, args)) {
        buffer->size = before;
        print_anyhow(buffer, format, again);
    }
    va_end(again);
}

void fb_buffer_printf(fb_buffer *buffer, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fb_buffer_vprintf(buffer, format, args);
    va_end(args);
}

void fb_buffer_int(fb_buffer *buffer, int64_t value) {
    char digits[20];
    size_t count = 0;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[sizeof digits - ++count] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest);
    if (value < 0) fb_buffer_char(buffer, '-');
    fb_buffer_append(buffer, digits + sizeof digits - count, count);
}

const char *fb_buffer_text(fb_buffer *buffer) {
    char *end = fb_buffer_reserve(buffer, 1);
    if (!end) return NULL;
    *end = '\0';
    return buffer->data;
}

char *fb_buffer_take(fb_buffer *buffer, size_t *size) {
    if (!fb_buffer_text(buffer)) {
        fb_buffer_free(buffer);
        return NULL;
    }
    char *data = buffer->data;
    if (size) *size = buffer->size;
    *buffer = (fb_buffer){0};
    return data;
}

void fb_buffer_free(fb_buffer *buffer) {
    free(buffer->data);
    *buffer = (fb_buffer){0};
}

void fb_buffer_json_string(fb_buffer *buffer, const char *text, size_t length) {
    static const char hex[] = "0123456789abcdef";
    fb_buffer_char(buffer, '"');
    size_t start = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\') continue;
        fb_buffer_append(buffer, text + start, i - start);
        start = i + 1;
        char escape[6] = {'\\', (char)c};
        size_t size = 2;
        switch (c) {
        case '"':
        case '\\': break;
        case '\b': escape[1] = 'b'; break;
        case '\t': escape[1] = 't'; break;
        case '\n': escape[1] = 'n'; break;
        case '\f': escape[1] = 'f'; break;
        case '\r': escape[1] = 'r'; break;
        default:
            memcpy(escape + 1, "u00", 3);
            escape[4] = hex[c >> 4];
            escape[5] = hex[c & 15];
            size = 6;
        }
        fb_buffer_append(buffer, escape, size);
    }
    fb_buffer_append(buffer, text + start, length - start);
    fb_buffer_char(buffer, '"');
}

void fb_buffer_pointer_token(fb_buffer *buffer, const char *token, size_t length) {
    fb_buffer_char(buffer, '/');
    for (size_t i = 0; i < length; i++) {
        if (token[i] == '~') fb_buffer_append(buffer, "~0", 2);
        else if (token[i] == '/') fb_buffer_append(buffer, "~1", 2);
        else fb_buffer_char(buffer, token[i]);
    }
}

size_t fb_pointer_enter(fb_buffer *pointer, const char *member) {
    size_t mark = pointer->size;
    fb_buffer_pointer_token(pointer, member, strlen(member));
    return mark;
}

size_t fb_pointer_enter_item(fb_buffer *pointer, size_t index) {
    size_t mark = pointer->size;
    fb_buffer_printf(pointer, "/%zu", index);
    return mark;
}

void fb_buffer_xml_text(fb_buffer *buffer, const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&') fb_buffer_string(buffer, "&amp;");
        else if (c == '<') fb_buffer_string(buffer, "&lt;");
        else if (c == '>') fb_buffer_string(buffer, "&gt;");
        else if (c == '"') fb_buffer_string(buffer, "&quot;");
        else if (c == 0xEF && (unsigned char)text[1] == 0xBF && (unsigned char)text[2] >= 0xBE) text += 2; /* U+FFFE, U+FFFF */
        else if (c >= 0x20) fb_buffer_char(buffer, (char)c);
        else fb_buffer_char(buffer, ' ');
    }
}
