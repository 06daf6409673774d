#include "core/base/error.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"

void fb_copy_text(char *out, size_t capacity, const char *text) {
    size_t length = text ? strlen(text) : 0;
    if (length >= capacity) {
        length = capacity - 1;
        while (length > 0 && ((unsigned char)text[length] & 0xC0U) == 0x80U) length--; /* never cut inside a UTF-8 character */
    }
    if (length) memcpy(out, text, length);
    out[length] = '\0';
}

static void fill(fb_error *error, fb_status status, const char *code, const char *pointer, const char *format, va_list args) {
    char message[2048];
    vsnprintf(message, sizeof message, format, args);
    error->status = status;
    fb_copy_text(error->code, sizeof error->code, code);
    fb_copy_text(error->pointer, sizeof error->pointer, pointer);
    fb_copy_text(error->message, sizeof error->message, message);
    error->node[0] = '\0';
}

fb_status fb_fail(fb_error *error, fb_status status, const char *code, const char *pointer, const char *format, ...) {
    if (error && error->status == FB_OK) {
        va_list args;
        va_start(args, format);
        fill(error, status, code, pointer, format, args);
        va_end(args);
    }
    return status;
}

fb_status fb_fail_memory(fb_error *error) {
    return fb_fail(error, FB_NO_MEMORY, "out-of-memory", "", "not enough memory");
}

fb_error *fb_errors_add_list(fb_errors *errors, const char *code, const char *pointer, const char *format, va_list args) {
    size_t limit = errors->limit ? errors->limit : 100;
    errors->total++;
    if (errors->count >= limit) return NULL;
    if (!FB_GROW(errors->items, errors->count, errors->capacity)) {
        errors->out_of_memory = true;
        return NULL;
    }
    fb_error *error = &errors->items[errors->count++];
    fill(error, FB_INVALID, code, pointer, format, args);
    return error;
}

fb_error *fb_errors_add(fb_errors *errors, const char *code, const char *pointer, const char *format, ...) {
    va_list args;
    va_start(args, format);
    fb_error *error = fb_errors_add_list(errors, code, pointer, format, args);
    va_end(args);
    return error;
}

void fb_error_set_node(fb_error *error, const char *name) {
    if (error) fb_copy_text(error->node, sizeof error->node, name);
}

void fb_errors_free(fb_errors *errors) {
    free(errors->items);
    *errors = (fb_errors){.limit = errors->limit};
}
