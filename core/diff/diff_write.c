#include <string.h>

#include "core/diff/diff.h"

static const struct {
    const char *name, *key; /* of the table; of a row's name */
} tables[FB_TABLES] = {{"graph", NULL}, {"node", "name"}, {"module", "path"}, {"tensor", "name"}};

static void write_key(fb_buffer *out, const char *key) {
    fb_buffer_printf(out, ",\"%s\":", key);
}

static void write_text(fb_buffer *out, const char *key, const char *text) {
    write_key(out, key);
    if (text) fb_buffer_json_string(out, text, strlen(text));
    else fb_buffer_string(out, "null");
}

static void write_span(fb_buffer *out, const char *key, fb_span span) {
    write_key(out, key);
    if (span.text) fb_buffer_append(out, span.text, span.size);
    else fb_buffer_string(out, "null");
}

static void begin_edit(fb_buffer *out, const char *verb, const fb_edit *edit) {
    fb_buffer_printf(out, "{\"edit\":\"%s_%s\"", verb, tables[edit->table].name);
    if (tables[edit->table].key) write_text(out, tables[edit->table].key, edit->name);
}

/* A row put in or taken out. */
static void write_row(fb_buffer *out, const fb_edit *edit) {
    bool is_insert = edit->kind == FB_EDIT_INSERT;
    if (edit->table == FB_NODE_TABLE) {
        fb_buffer_printf(out, "{\"edit\":\"%s_node\"", is_insert ? "insert" : "erase");
        write_span(out, "node", edit->row);
    } else {
        begin_edit(out, "set", edit);
        write_span(out, "was", is_insert ? (fb_span){0} : edit->row);
        write_span(out, "now", is_insert ? edit->row : (fb_span){0});
    }
    write_text(out, "before", edit->before);
}

/* A pointer is over the spelling in JSON: it needs nothing but quotes. */
static void write_members(fb_buffer *out, const char *key, const fb_edit *edit, bool is_now) {
    bool is_first = true;
    write_key(out, key);
    fb_buffer_char(out, '{');
    for (size_t i = 0; i < edit->member_count; i++) {
        const fb_member_edit *member = &edit->members[i];
        fb_span value = is_now ? member->now : member->was;
        if (!value.text) continue;
        fb_buffer_string(out, is_first ? "\"" : ",\"");
        fb_buffer_string(out, member->pointer);
        fb_buffer_string(out, "\":");
        fb_buffer_append(out, value.text, value.size);
        is_first = false;
    }
    fb_buffer_char(out, '}');
}

static void write_edit(fb_buffer *out, const fb_edit *edit) {
    switch (edit->kind) {
    case FB_EDIT_INSERT:
    case FB_EDIT_ERASE: write_row(out, edit); break;
    case FB_EDIT_MOVE:
        begin_edit(out, "move", edit);
        write_text(out, "before", edit->before);
        write_text(out, "was", edit->was_before);
        break;
    case FB_EDIT_SET:
        begin_edit(out, "set", edit);
        write_members(out, "was", edit, false);
        write_members(out, "now", edit, true);
    }
    fb_buffer_char(out, '}');
}

#define STEPS_OF_AN_EDIT 32

bool fb_diff_write(const fb_diff *diff, fb_work *work, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (size_t i = 0; i < diff->count && fb_work_goes_on(work, STEPS_OF_AN_EDIT); i++) {
        if (i) fb_buffer_char(out, ',');
        write_edit(out, &diff->edits[i]);
    }
    fb_buffer_char(out, ']');
    return !out->failed && !work->stopped.status;
}
