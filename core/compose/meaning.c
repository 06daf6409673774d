#include "core/compose/meaning.h"

#include <stdio.h>
#include <string.h>

typedef struct item {
    const char *node;
    const char *stands_for; /* a node of the replay's source, one that a pass created, or a new value of such a one: " " + it */
} item;

static const item *items_of(const fb_meanings *meanings, size_t *count) {
    *count = meanings->items.size / sizeof(item);
    return (const item *)(const void *)meanings->items.data;
}

/* 1 + index, or 0. */
static uint32_t find(const fb_meanings *meanings, const char *node) {
    size_t count;
    const item *items = items_of(meanings, &count);
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&meanings->index, fb_hash_text(node, 0), &cursor))) {
        if (strcmp(items[found - 1].node, node) == 0) return found;
    }
    return 0;
}

static const char *meaning_of(const fb_meanings *meanings, const char *node) {
    uint32_t found = find(meanings, node);
    size_t count;
    return found ? items_of(meanings, &count)[found - 1].stands_for : node;
}

/* Another value than what is called `meaning`. */
static const char *make_new_value(fb_meanings *meanings, const char *meaning) {
    char *text = fb_arena_alloc(&meanings->arena, strlen(meaning) + 2);
    if (text) sprintf(text, " %s", meaning);
    return text;
}

static bool take_in(fb_meanings *meanings, const char *node, const char *other) {
    const char *meaning = meaning_of(meanings, other);
    item new = {.node = fb_arena_text(&meanings->arena, node, strlen(node)),
                .stands_for = strcmp(node, other) == 0 ? make_new_value(meanings, meaning)
                                                       : fb_arena_text(&meanings->arena, meaning, strlen(meaning))};
    uint32_t found = find(meanings, node);
    if (!new.node || !new.stands_for) return false;
    if (found) {
        memcpy(meanings->items.data + (found - 1) * sizeof new, &new, sizeof new);
        return true;
    }
    fb_buffer_append(&meanings->items, &new, sizeof new);
    uint32_t count = (uint32_t)(meanings->items.size / sizeof new);
    return !meanings->items.failed && fb_map_add(&meanings->index, fb_hash_text(node, 0), count);
}

bool fb_meanings_note(fb_meanings *meanings, const fb_pass_report *report) {
    bool ok = true;
    for (size_t i = 0; i < report->taken_in_count && ok; i++)
        ok = take_in(meanings, report->taken_in[i].by, report->taken_in[i].node);
    return ok;
}

void fb_meanings_free(fb_meanings *meanings) {
    fb_buffer_free(&meanings->items);
    fb_map_free(&meanings->index);
    fb_arena_free(&meanings->arena);
}

static void compare(const fb_meanings *a, const fb_meanings *b, fb_buffer *names) {
    size_t count;
    const item *items = items_of(a, &count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(items[i].stands_for, meaning_of(b, items[i].node)) != 0)
            fb_buffer_append(names, &items[i].node, sizeof items[i].node);
    }
}

void fb_meanings_compare(const fb_meanings *a, const fb_meanings *b, fb_buffer *names) {
    compare(a, b, names);
    compare(b, a, names);
}
