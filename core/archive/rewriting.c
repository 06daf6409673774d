/* Edits of the JSON of a program that is written. */
#include "core/archive/rewrite.h"

bool pt_refuse(pt_rewriting *r, const char *format, ...) {
    pt_model *m = r->m;
    if (m->status) return false;
    fb_buffer reason = {0};
    va_list args;
    va_start(args, format);
    fb_buffer_vprintf(&reason, format, args);
    va_end(args);
    const char *text = fb_buffer_text(&reason);
    m->status = text ? fb_fail(m->error, FB_CONFLICT, "archive-changed", "",
                               "the graph differs from its archive %s in a way that cannot be written yet: %s", m->blob, text)
                     : fb_fail_memory(m->error);
    fb_buffer_free(&reason);
    return false;
}

bool pt_push(json_t *lists, const char *key, json_t *value) {
    json_t *list = json_object_get(lists, key);
    if (!list && !pt_set(lists, key, list = json_array())) return json_decref(value), false;
    return pt_append(list, value);
}
