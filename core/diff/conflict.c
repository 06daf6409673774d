#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/diff/merge.h"

const char *fb_conflict_kind_name(fb_conflict_kind kind) {
    static const char *const names[] = {
        [FB_CONFLICT_NODE] = "node", [FB_CONFLICT_MODULE] = "module", [FB_CONFLICT_TENSOR] = "tensor"};
    return names[kind];
}

static bool grow(fb_conflicts *conflicts) {
    return FB_GROW(conflicts->items, conflicts->count, conflicts->capacity);
}

static uint64_t key_of(fb_conflict_kind kind, const char *code, const char *name) {
    return fb_hash_text(name, fb_hash_text(code, (uint64_t)kind));
}

static bool is_known(const fb_conflicts *conflicts, fb_conflict_kind kind, const char *code, const char *name) {
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&conflicts->seen, key_of(kind, code, name), &cursor))) {
        const fb_conflict *item = &conflicts->items[found - 1];
        if (item->kind == kind && strcmp(item->code, code) == 0 && strcmp(item->name, name) == 0) return true;
    }
    return false;
}

void fb_conflicts_add(fb_conflicts *conflicts, fb_conflict_kind kind, const char *code, const char *name, const char *format,
                      ...) {
    if (is_known(conflicts, kind, code, name)) return;
    char text[2048], whole[600];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fb_copy_text(whole, sizeof whole, text); /* no half of a character at the end */
    fb_conflict conflict = {.kind = kind,
                            .code = fb_arena_text(&conflicts->arena, code, strlen(code)),
                            .name = fb_arena_text(&conflicts->arena, name, strlen(name)),
                            .detail = fb_arena_text(&conflicts->arena, whole, strlen(whole))};
    bool ok = conflict.code && conflict.name && conflict.detail && grow(conflicts) &&
              fb_map_add(&conflicts->seen, key_of(kind, code, name), (uint32_t)conflicts->count + 1);
    if (ok) conflicts->items[conflicts->count++] = conflict;
    else conflicts->failed = true;
}

void fb_conflicts_free(fb_conflicts *conflicts) {
    free(conflicts->items);
    fb_map_free(&conflicts->seen);
    fb_arena_free(&conflicts->arena);
    *conflicts = (fb_conflicts){0};
}
