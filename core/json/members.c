#include "core/json/json.h"

#include <string.h>
#include <time.h>

void fb_put_comma(fb_buffer *out) {
    if (out->failed || !out->size) return;
    char last = out->data[out->size - 1];
    if (last != '{' && last != '[') fb_buffer_char(out, ',');
}

void fb_put_name(fb_buffer *out, const char *name) {
    fb_put_comma(out);
    fb_buffer_json_string(out, name, strlen(name));
    fb_buffer_char(out, ':');
}

void fb_put_text(fb_buffer *out, const char *name, const char *text) {
    fb_put_name(out, name);
    fb_buffer_json_string(out, text, strlen(text));
}

void fb_put_text_or_null(fb_buffer *out, const char *name, const char *text) {
    fb_put_name(out, name);
    if (text) fb_buffer_json_string(out, text, strlen(text));
    else fb_buffer_string(out, "null");
}

void fb_put_int(fb_buffer *out, const char *name, int64_t value) {
    fb_put_name(out, name);
    fb_buffer_int(out, value);
}

void fb_put_bool(fb_buffer *out, const char *name, bool value) {
    fb_put_name(out, name);
    fb_buffer_string(out, value ? "true" : "false");
}

static int append(const char *bytes, size_t size, void *out) {
    fb_buffer_append(out, bytes, size);
    return 0;
}

void fb_write_json(fb_buffer *out, const json_t *value) {
    if (json_dump_callback(value, append, out, JSON_COMPACT | JSON_ENCODE_ANY)) out->failed = true;
}

void fb_put_json(fb_buffer *out, const char *name, const json_t *value) {
    fb_put_name(out, name);
    fb_write_json(out, value);
}

void fb_list_add_take(json_t **list, json_t *item) {
    if (!json_array_append_new(*list, item)) return;
    json_decref(*list);
    *list = NULL;
}

void fb_put_time(fb_buffer *out, const char *name, int64_t milliseconds) {
    time_t seconds = (time_t)(milliseconds / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    fb_put_name(out, name);
    fb_buffer_printf(out, "\"%04d-%02d-%02dT%02d:%02d:%02d.%03dZ\"", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday,
                     utc.tm_hour, utc.tm_min, utc.tm_sec, (int)(milliseconds % 1000));
}
