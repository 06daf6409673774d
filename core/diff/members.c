#include "core/diff/diff.h"

#include <string.h>

#include "core/base/map.h"

typedef struct comparison {
    fb_document_table table;
    fb_arena *arena;
    fb_buffer path;  /* pointer of the member at hand */
    fb_buffer edits; /* fb_member_edit after fb_member_edit */
    bool failed;
} comparison;

/* How the members of a container are compared. */
typedef enum manner {
    WHOLE,   /* not at all: the container is one member */
    ITEMS,   /* a list: one by one where there are as many */
    ORDERED, /* a map whose order counts: one by one where the keys are the same in the same order */
    SORTED,  /* a map that has no order of its own: one by one */
} manner;

static const struct {
    fb_document_table table;
    const char *key;
    manner how;
} containers[] = {
    {FB_GRAPH_TABLE, "metadata", SORTED},  {FB_NODE_TABLE, "args", ITEMS},          {FB_NODE_TABLE, "kwargs", ORDERED},
    {FB_NODE_TABLE, "meta", SORTED},       {FB_MODULE_TABLE, "config", SORTED},     {FB_MODULE_TABLE, "parameters", ORDERED},
    {FB_MODULE_TABLE, "buffers", ORDERED}, {FB_MODULE_TABLE, "attributes", SORTED},
};

static manner manner_of(fb_document_table table, fb_span key) {
    for (size_t i = 0; i < sizeof containers / sizeof *containers; i++) {
        if (containers[i].table == table && fb_span_equal(key, fb_span_of(containers[i].key))) return containers[i].how;
    }
    return WHOLE;
}

/* The same keys in the same order, or as many items. */
static bool have_same_keys(fb_span was, fb_span now) {
    size_t at_was = 0, at_now = 0;
    fb_span was_key, now_key, value;
    if (*was.text != *now.text) return false;
    for (;;) {
        bool is_there = fb_span_next(was, &at_was, &was_key, &value);
        if (is_there != fb_span_next(now, &at_now, &now_key, &value)) return false;
        if (!is_there) return true;
        if (!fb_span_equal(was_key, now_key)) return false;
    }
}

static fb_span keep(comparison *c, fb_span span) {
    if (!span.text) return span;
    fb_span kept = {fb_arena_text(c->arena, span.text, span.size), span.size};
    c->failed |= !kept.text;
    return kept;
}

static void add_edit(comparison *c, fb_span was, fb_span now) {
    fb_span pointer = keep(c, (fb_span){c->path.data, c->path.size});
    fb_member_edit edit = {pointer.text, keep(c, was), keep(c, now)};
    fb_buffer_append(&c->edits, &edit, sizeof edit);
}

static void compare_members(comparison *c, fb_span was, fb_span now, bool is_row);

static void compare_values(comparison *c, fb_span key, fb_span was, fb_span now, bool is_in_row) {
    if (c->failed || c->path.failed || fb_span_equal(was, now)) return;
    manner how = is_in_row && was.text && now.text ? manner_of(c->table, key) : WHOLE;
    bool is_whole = how == WHOLE || (how != SORTED && !have_same_keys(was, now));
    if (is_whole) add_edit(c, was, now);
    else compare_members(c, was, now, false);
}

static void compare_at(comparison *c, fb_span key, size_t index, fb_span was, fb_span now, bool is_in_row) {
    size_t depth = c->path.size;
    if (key.text) fb_buffer_pointer_token(&c->path, key.text, key.size);
    else fb_buffer_printf(&c->path, "/%zu", index);
    compare_values(c, key, was, now, is_in_row);
    c->path.size = depth;
}

/* A member of `now`, to be met in `was`. */
typedef struct member {
    fb_span key, value;
    bool is_met;
} member;

/* Compares members by key, from the first two places on whose keys differ. */
static void compare_by_key(comparison *c, fb_span was, size_t at_was, fb_span now, size_t at_now, bool is_row) {
    fb_buffer list = {0}; /* member after member */
    fb_map index = {0};   /* hash of the key -> 1 + place in the list */
    member found = {0};
    uint32_t count = 0;
    bool ok = true;
    while (ok && fb_span_next(now, &at_now, &found.key, &found.value)) {
        fb_buffer_append(&list, &found, sizeof found);
        ok = !list.failed && fb_map_add(&index, fb_hash(found.key.text, found.key.size, 0), ++count);
    }
    c->failed |= !ok;
    member *members = (member *)(void *)list.data;
    fb_span key, value;
    while (ok && fb_span_next(was, &at_was, &key, &value)) {
        uint32_t cursor = 0, place;
        uint64_t hash = fb_hash(key.text, key.size, 0);
        while ((place = fb_map_next(&index, hash, &cursor)) && !fb_span_equal(members[place - 1].key, key)) continue;
        if (place) members[place - 1].is_met = true;
        compare_at(c, key, 0, value, place ? members[place - 1].value : (fb_span){0}, is_row);
    }
    for (uint32_t i = 0; ok && i < count; i++) {
        if (!members[i].is_met) compare_at(c, members[i].key, 0, (fb_span){0}, members[i].value, is_row);
    }
    fb_map_free(&index);
    fb_buffer_free(&list);
}

static void compare_members(comparison *c, fb_span was, fb_span now, bool is_row) {
    size_t at_was = 0, at_now = 0;
    for (size_t index = 0;; index++) {
        size_t before_was = at_was, before_now = at_now;
        fb_span was_key = {0}, now_key = {0}, was_value, now_value;
        bool is_in_was = fb_span_next(was, &at_was, &was_key, &was_value);
        bool is_in_now = fb_span_next(now, &at_now, &now_key, &now_value);
        if (!is_in_was && !is_in_now) return;
        if (is_in_was != is_in_now || !fb_span_equal(was_key, now_key)) {
            compare_by_key(c, was, before_was, now, before_now, is_row);
            return;
        }
        compare_at(c, was_key, index, was_value, now_value, is_row);
    }
}

bool fb_members_compare(fb_document_table table, fb_span was, fb_span now, fb_arena *arena, fb_member_edit **out,
                        size_t *count) {
    *out = NULL;
    *count = 0;
    if (fb_span_equal(was, now)) return true;
    comparison c = {.table = table, .arena = arena};
    compare_members(&c, was, now, true);
    bool ok = !c.failed && !c.path.failed && !c.edits.failed && (*out = fb_arena_alloc(arena, c.edits.size));
    if (ok) memcpy(*out, c.edits.data, c.edits.size);
    if (ok) *count = c.edits.size / sizeof **out;
    fb_buffer_free(&c.path);
    fb_buffer_free(&c.edits);
    return ok;
}
