/* A prefix that all names of the files have and the graph lacks, or the other way round: "bert." of a checkpoint of
 * BertForMaskedLM, when the graph is the BertModel in it. */
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/bind/bind_internal.h"
#include "core/graph/slot.h"

static bool is_of_graph(const fb_graph *graph, const char *name) {
    return fb_tensor_called(graph, name).id;
}

/* ---- one that is given -------------------------------------------------------------------------------------------------- */

static const char *without(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 && name[length] ? name + length : NULL;
}

static const char *with(fb_binder *b, const char *name, const char *prefix, fb_buffer *text) {
    text->size = 0;
    fb_buffer_string(text, prefix);
    fb_buffer_string(text, name);
    return fb_buffer_text(text) ? fb_arena_text(&b->arena, text->data, text->size) : NULL;
}

static int by_new_name(const void *a, const void *b) {
    const fb_given *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->file < y->file ? -1 : x->file > y->file ? 1 : strcmp(x->entry->name, y->entry->name);
}

static fb_status report_repeated(fb_binder *b) {
    fb_status status = FB_OK;
    for (size_t i = 1; i < b->given_count && !status; i++) {
        const fb_given *one = &b->given[i], *other = &b->given[i - 1];
        bool is_same = strcmp(one->name, other->name) == 0, was_same = strcmp(one->entry->name, other->entry->name) == 0;
        if (is_same && !was_same) /* else it was reported as it came */
            status = fb_bind_mismatch(b, one->entry->name, one, (fb_tensor){0}, "with the prefix it is the same name as %s",
                                      other->entry->name);
    }
    return status;
}

fb_status fb_bind_apply_prefix(fb_binder *b) {
    if (!b->options.prefix || !*b->options.prefix) return FB_OK;
    size_t length = strlen(b->options.prefix), stripped = 0, added = 0;
    fb_buffer text = {0};
    fb_buffer_printf(&text, "%s%s", b->options.prefix, b->options.prefix[length - 1] == '.' ? "" : ".");
    const char *prefix = fb_buffer_text(&text) ? fb_arena_text(&b->arena, text.data, text.size) : NULL;
    const char **longer = calloc(b->given_count + 1, sizeof *longer);
    bool ok = prefix && longer;
    for (size_t i = 0; i < b->given_count && ok; i++) {
        const char *shorter = without(b->given[i].name, prefix);
        longer[i] = with(b, b->given[i].name, prefix, &text);
        ok = longer[i] != NULL;
        stripped += shorter && is_of_graph(b->graph, shorter);
        added += ok && is_of_graph(b->graph, longer[i]);
    }
    for (size_t i = 0; i < b->given_count && ok; i++) {
        fb_given *given = &b->given[i];
        const char *shorter = without(given->name, prefix);
        if (stripped >= added && shorter) given->name = shorter;
        else if (added > stripped && is_of_graph(b->graph, longer[i])) given->name = longer[i];
    }
    free(longer);
    fb_buffer_free(&text);
    if (!ok) return fb_fail_memory(b->error);
    fb_sort(b->given, b->given_count, sizeof *b->given, by_new_name);
    return report_repeated(b);
}

/* ---- one that would help ------------------------------------------------------------------------------------------------ */

/* The first bytes of a name, up to a dot. */
typedef struct prefix {
    const char *text;
    size_t length;
} prefix;

static int compare_prefixes(const void *a, const void *b) {
    const prefix *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    return order ? order : x->length < y->length ? -1 : x->length > y->length;
}

typedef struct suggestion {
    prefix prefix;
    size_t count;
} suggestion;

/* The one that is there most often; of two, the longer one. */
static void choose_most(fb_buffer *prefixes, suggestion *best) {
    prefix *items = (prefix *)(void *)prefixes->data;
    size_t count = prefixes->size / sizeof *items;
    fb_sort(items, count, sizeof *items, compare_prefixes);
    for (size_t i = 0, next; i < count; i = next) {
        for (next = i + 1; next < count && compare_prefixes(&items[i], &items[next]) == 0;) next++;
        bool is_better = next - i > best->count || (next - i == best->count && items[i].length > best->prefix.length);
        if (is_better) *best = (suggestion){.prefix = items[i], .count = next - i};
    }
}

const fb_given *fb_bind_find_given(const fb_binder *b, const char *name) {
    size_t low = 0, high = b->given_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(b->given[middle].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low < b->given_count && strcmp(b->given[low].name, name) == 0 ? &b->given[low] : NULL;
}

/* Appends each beginning of `name` whose rest is a name of the other side. */
static void note_prefixes(const fb_binder *b, const char *name, bool is_of_file, fb_buffer *prefixes) {
    for (const char *dot = strchr(name, '.'); dot && dot[1]; dot = strchr(dot + 1, '.')) {
        prefix one = {.text = name, .length = (size_t)(dot + 1 - name)};
        if (is_of_file ? is_of_graph(b->graph, dot + 1) : fb_bind_find_given(b, dot + 1) != NULL)
            fb_buffer_append(prefixes, &one, sizeof one);
    }
}

static bool note_owners(fb_binder *b, fb_buffer *prefixes) {
    fb_buffer path = {0};
    fb_slot slot;
    bool ok = true;
    for (fb_slot_cursor cursor = {0}; ok && fb_slot_next(b->graph, &cursor, &slot);) {
        path.size = 0;
        fb_slot_path(b->graph, &slot, &path);
        const char *name = path.failed ? NULL : fb_arena_text(&b->arena, path.data, path.size);
        ok = name != NULL;
        if (ok) note_prefixes(b, name, false, prefixes);
    }
    fb_buffer_free(&path);
    return ok;
}

fb_status fb_bind_suggest_prefix(fb_binder *b, size_t bound) {
    fb_buffer longer = {0}, shorter = {0};
    suggestion best = {0};
    for (size_t i = 0; i < b->given_count; i++) note_prefixes(b, b->given[i].name, true, &longer);
    bool ok = note_owners(b, &shorter) && !longer.failed && !shorter.failed;
    if (ok) choose_most(&longer, &best);
    if (ok) choose_most(&shorter, &best);
    if (ok && best.count > bound) {
        b->binding->prefix = strndup(best.prefix.text, best.prefix.length);
        b->binding->prefix_count = best.count;
        ok = b->binding->prefix != NULL;
    }
    fb_buffer_free(&longer);
    fb_buffer_free(&shorter);
    return ok ? FB_OK : fb_fail_memory(b->error);
}
