#include "core/json/load_json.h"

#include <stdbool.h>
#include <string.h>

#include "core/base/buffer.h"

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
