/* Names with captures. Between two captures is a dot, and only one may be deep: so a name fits in one way or not at all. */
#include <string.h>

#include "core/layouts/internal.h"

static bool matches_from(const fb_layout_pattern *pattern, size_t at, const char *name, fb_layout_capture *captures);

/* Tries how long a capture may be, the shortest first. */
static bool capture(const fb_layout_pattern *pattern, size_t at, const char *name, fb_layout_capture *captures) {
    const fb_layout_part *part = &pattern->parts[at];
    size_t length = 0;
    if (part->is_deep && matches_from(pattern, at + 1, name, captures)) {
        captures[part->capture] = (fb_layout_capture){name, 0};
        return true;
    }
    while (name[length] && (part->is_deep || name[length] != '.')) {
        length++;
        if (part->is_deep && name[length - 1] != '.') continue;
        if (!matches_from(pattern, at + 1, name + length, captures)) continue;
        captures[part->capture] = (fb_layout_capture){name, length};
        return true;
    }
    return false;
}

static bool matches_from(const fb_layout_pattern *pattern, size_t at, const char *name, fb_layout_capture *captures) {
    for (; at < pattern->count; at++) {
        const fb_layout_part *part = &pattern->parts[at];
        if (!part->literal) return capture(pattern, at, name, captures);
        if (strncmp(name, part->literal, part->length) != 0) return false;
        name += part->length;
    }
    return !*name;
}

bool fb_layout_matches(const fb_layout_pattern *pattern, const char *name, fb_layout_capture captures[CAPTURES_MAX + 1]) {
    const fb_layout_part *last = &pattern->parts[pattern->count - 1];
    size_t length = strlen(name);
    if (last->literal && (length < last->length || memcmp(name + length - last->length, last->literal, last->length) != 0))
        return false;
    return matches_from(pattern, 0, name, captures);
}

void fb_layout_spell(const fb_layout_pattern *pattern, const fb_layout_capture captures[CAPTURES_MAX + 1], fb_buffer *out) {
    for (size_t i = 0; i < pattern->count; i++) {
        const fb_layout_part *part = &pattern->parts[i];
        if (part->literal) fb_buffer_append(out, part->literal, part->length);
        else fb_buffer_append(out, captures[part->capture].text, captures[part->capture].length);
    }
}
