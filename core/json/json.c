/* Trees that the scanner made: questions, pointers, canonical free JSON. */
#include "core/json/json.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/float.h"
#include "core/base/sort.h"
#include "core/json/scan.h"

const char *fb_json_kind_name(const fb_json *value) {
    static const char *const names[] = {
        [FB_JSON_NULL] = "null",    [FB_JSON_FALSE] = "a boolean", [FB_JSON_TRUE] = "a boolean", [FB_JSON_INT] = "an integer",
        [FB_JSON_REAL] = "a float", [FB_JSON_STRING] = "a string", [FB_JSON_ARRAY] = "an array", [FB_JSON_OBJECT] = "an object",
    };
    return names[value->kind];
}

bool fb_json_is_count(const fb_json *value, int64_t *count) {
    bool is_whole =
        value->kind == FB_JSON_REAL && value->real >= 0 && value->real <= 0x1p53 && value->real == trunc(value->real);
    if (value->kind == FB_JSON_INT) *count = value->integer;
    else if (is_whole) *count = (int64_t)value->real;
    else return false;
    return *count >= 0;
}

void fb_json_pointer(const fb_json *root, const fb_json *target, fb_buffer *out) {
    while (root != target) {
        bool is_object = root->kind == FB_JSON_OBJECT;
        const fb_json *item = fb_json_first(root);
        uint32_t position = 0;
        /* An object's item is its key and its value. */
        while (item + is_object + (item + is_object)->span <= target) {
            item = fb_json_next(item + is_object);
            position++;
        }
        if (is_object) {
            fb_buffer_pointer_token(out, item->text, item->count);
            if (item == target) return;
        } else {
            fb_buffer_printf(out, "/%u", position);
        }
        root = item + is_object;
    }
}

static bool write_object(const fb_json *object, fb_buffer *out) {
    const fb_json *few[16], **keys = object->count <= 16 ? few : malloc(object->count * sizeof *keys);
    if (!keys) return false;
    fb_json_sort_keys(object, keys);
    fb_buffer_char(out, '{');
    bool ok = true;
    for (uint32_t i = 0; i < object->count && ok; i++) {
        if (i) fb_buffer_char(out, ',');
        fb_buffer_json_string(out, keys[i]->text, keys[i]->count);
        fb_buffer_char(out, ':');
        ok = fb_json_canonical(keys[i] + 1, out);
    }
    fb_buffer_char(out, '}');
    if (keys != few) free(keys);
    return ok;
}

bool fb_json_canonical(const fb_json *value, fb_buffer *out) {
    char spelling[FB_FLOAT_MAX];
    switch (value->kind) {
    case FB_JSON_NULL: fb_buffer_append(out, "null", 4); break;
    case FB_JSON_FALSE: fb_buffer_append(out, "false", 5); break;
    case FB_JSON_TRUE: fb_buffer_append(out, "true", 4); break;
    case FB_JSON_INT: fb_buffer_int(out, value->integer); break;
    case FB_JSON_REAL: fb_buffer_append(out, spelling, fb_float_repr(value->real, spelling)); break;
    case FB_JSON_STRING: fb_buffer_json_string(out, value->text, value->count); break;
    case FB_JSON_ARRAY:
        fb_buffer_char(out, '[');
        const fb_json *item = fb_json_first(value);
        for (uint32_t i = 0; i < value->count; i++, item = fb_json_next(item)) {
            if (i) fb_buffer_char(out, ',');
            if (!fb_json_canonical(item, out)) return false;
        }
        fb_buffer_char(out, ']');
        break;
    default: return write_object(value, out);
    }
    return !out->failed;
}

fb_status fb_free_json_canonical(const json_t *value, fb_buffer *out) {
    /* jansson prints what it holds exactly: 17 digits name every double. */
    char *text = fb_dump_json(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text) return FB_NO_MEMORY;
    fb_scan scan;
    fb_scan_init(&scan, text, strlen(text), SIZE_MAX);
    const fb_json *tree = fb_scan_value(&scan);
    /* jansson's text may have a gap where memory was short for a moment; else only a NUL can be wrong with it. */
    fb_status status = scan.status == FB_SYNTAX && strcmp(scan.code, "nul-character") ? FB_NO_MEMORY : scan.status;
    if (tree && !fb_json_canonical(tree, out)) status = FB_NO_MEMORY;
    fb_scan_free(&scan);
    free(text);
    return status;
}

/* ---- texts as trees, and back, also when memory is short ---------------------------------------------------------------- */

json_t *fb_load_json_bytes(const char *text, size_t size, size_t flags, json_error_t *failure) {
    json_error_t other = {0};
    *failure = (json_error_t){0};
    json_t *tree = json_loadb(text, size, flags, failure), *again = json_loadb(text, size, flags, &other);
    bool is_sure = tree && again && json_equal(tree, again);
    bool is_wrong = !tree && !again && json_error_code(failure) == json_error_code(&other);
    if (!is_wrong || json_error_code(failure) == json_error_out_of_memory) failure->text[0] = '\0';
    json_decref(again);
    if (is_sure) return tree;
    json_decref(tree);
    return NULL;
}

json_t *fb_load_json(const char *text) {
    if (strcmp(text, "{}") == 0) return json_object();
    json_error_t failure;
    return fb_load_json_bytes(text, strlen(text), 0, &failure);
}

fb_status fb_load_stored_json(const char *text, json_t **out) {
    json_error_t failure;
    *out = fb_load_json_bytes(text, strlen(text), 0, &failure);
    if (*out) return FB_OK;
    return failure.text[0] ? FB_SYNTAX : FB_NO_MEMORY;
}

static int append(const char *bytes, size_t size, void *out) {
    fb_buffer_append(out, bytes, size);
    return 0;
}

char *fb_dump_json(const json_t *value, size_t flags) {
    fb_buffer text = {0};
    if (json_dump_callback(value, append, &text, flags)) text.failed = true;
    return fb_buffer_take(&text, NULL);
}
