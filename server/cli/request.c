#include "server/cli/cli.h"

#include <string.h>

#include "core/graph/python.h"
#include "core/json/json.h"

static int put_string(fb_buffer *out, const char *option, const char *text, size_t length) {
    for (size_t at = 0, size; at < length; at += size) {
        if (fb_utf8_decode(text + at, length - at, &size) == UINT32_MAX)
            return fb_complain(FB_EXIT_USAGE, "--%s %s: this is not UTF-8", option, text);
    }
    fb_buffer_json_string(out, text, length);
    return FB_EXIT_DONE;
}

static int put_object(fb_buffer *out, const char *option, const char *text) {
    json_error_t failure;
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, &failure);
    bool is_object = json_is_object(object);
    json_decref(object);
    if (!is_object) return fb_complain(FB_EXIT_USAGE, "--%s %s: write a JSON object, {\"name\": value}", option, text);
    fb_buffer_string(out, text);
    return FB_EXIT_DONE;
}

void fb_request_begin(fb_buffer *out) {
    fb_buffer_char(out, '{');
}

int fb_request_text(fb_buffer *out, const char *name, const char *text) {
    if (!text) return FB_EXIT_DONE;
    fb_put_name(out, name);
    return put_string(out, name, text, strlen(text));
}

int fb_request_object(fb_buffer *out, const char *name, const char *text) {
    if (!text) return FB_EXIT_DONE;
    fb_put_name(out, name);
    return put_object(out, name, text);
}

static int put_pass(fb_buffer *out, const char *text, bool undone) {
    bool is_position = undone && strspn(text, "0123456789") == strlen(text);
    fb_put_comma(out);
    if (*text == '{') return put_object(out, "pass", text);
    if (!is_position) return put_string(out, "pass", text, strlen(text));
    while (*text == '0' && text[1]) text++; /* JSON has no 01 */
    fb_buffer_string(out, text);
    return FB_EXIT_DONE;
}

int fb_request_passes(fb_buffer *out, const fb_text_list *passes, bool undone) {
    int result = FB_EXIT_DONE;
    if (!passes->count) return result;
    fb_put_name(out, "passes");
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < passes->count && !result; i++) result = put_pass(out, passes->items[i], undone);
    fb_buffer_char(out, ']');
    return result;
}

static int put_label(fb_buffer *out, const char *text) {
    const char *equals = strchr(text, '=');
    if (!equals || equals == text) return fb_complain(FB_EXIT_USAGE, "--label %s: write KEY=VALUE", text);
    fb_put_comma(out);
    int result = put_string(out, "label", text, (size_t)(equals - text));
    fb_buffer_char(out, ':');
    return result ? result : put_string(out, "label", equals + 1, strlen(equals + 1));
}

int fb_request_labels(fb_buffer *out, const fb_text_list *labels) {
    int result = FB_EXIT_DONE;
    if (!labels->count) return result;
    fb_put_name(out, "labels");
    fb_buffer_char(out, '{');
    for (size_t i = 0; i < labels->count && !result; i++) result = put_label(out, labels->items[i]);
    fb_buffer_char(out, '}');
    return result;
}

int fb_request_seed(fb_buffer *out, const char *text) {
    if (!text) return FB_EXIT_DONE;
    size_t length = strlen(text);
    if (!length || length > 18 || strspn(text, "0123456789") != length)
        return fb_complain(FB_EXIT_USAGE, "--seed %s: a seed is an integer, 0 or greater, of 18 digits at most", text);
    while (*text == '0' && text[1]) text++; /* JSON has no 01 */
    fb_put_name(out, "seed");
    fb_buffer_string(out, text);
    return FB_EXIT_DONE;
}

int fb_request_end(fb_buffer *out) {
    fb_buffer_char(out, '}');
    return out->failed ? fb_cli_no_memory() : FB_EXIT_DONE;
}
