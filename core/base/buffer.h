/* A growing byte buffer. Failure is sticky: after an allocation failed every append does nothing, and the caller checks
 * `failed` once at the end. */
#ifndef FB_BASE_BUFFER_H
#define FB_BASE_BUFFER_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct fb_buffer {
    char *data; /* not terminated unless fb_buffer_text was called */
    size_t size, capacity;
    bool failed;
} fb_buffer;

/* Makes room for `extra` bytes and returns where to write them (then add to `size`), or NULL. */
char *fb_buffer_grow(fb_buffer *buffer, size_t extra);
static inline char *fb_buffer_reserve(fb_buffer *buffer, size_t extra) {
    bool fits = extra <= buffer->capacity - buffer->size && buffer->data && !buffer->failed;
    return fits ? buffer->data + buffer->size : fb_buffer_grow(buffer, extra);
}
static inline void fb_buffer_append(fb_buffer *buffer, const void *bytes, size_t size) {
    char *to = size ? fb_buffer_reserve(buffer, size) : NULL;
    if (!to) return;
    memcpy(to, bytes, size);
    buffer->size += size;
}
void fb_buffer_string(fb_buffer *buffer, const char *text);
static inline void fb_buffer_char(fb_buffer *buffer, char c) {
    if (buffer->size < buffer->capacity || fb_buffer_reserve(buffer, 1)) buffer->data[buffer->size++] = c;
}
void fb_buffer_printf(fb_buffer *buffer, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fb_buffer_vprintf(fb_buffer *buffer, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void fb_buffer_int(fb_buffer *buffer, int64_t value);

/* The bytes with a NUL after them (not counted in `size`); NULL when an allocation failed. Owned by the buffer. */
const char *fb_buffer_text(fb_buffer *buffer);
/* Gives the bytes to the caller (free()), NUL-terminated, and empties the buffer; NULL when an allocation failed. */
char *fb_buffer_take(fb_buffer *buffer, size_t *size);
void fb_buffer_free(fb_buffer *buffer);

/* A JSON string as RFC 8785 spells it: quotes, and only `"`, `\` and control characters escaped. `text` must be UTF-8. */
void fb_buffer_json_string(fb_buffer *buffer, const char *text, size_t length);

/* As text, or an attribute's value in "", of XML 1.0 and HTML, which cannot have most control characters: they become spaces.
 */
void fb_buffer_xml_text(fb_buffer *buffer, const char *text);

/* One token of a JSON Pointer: "/" and `token` with ~ and / escaped (RFC 6901). */
void fb_buffer_pointer_token(fb_buffer *buffer, const char *token, size_t length);

/* The JSON Pointer of a place in a document grows by a member's name or an item's index on the way in; on the way out it gets
 * back the size that it had before, which these return. */
size_t fb_pointer_enter(fb_buffer *pointer, const char *member);
size_t fb_pointer_enter_item(fb_buffer *pointer, size_t index);

#endif
