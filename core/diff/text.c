#include "core/diff/text.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "core/base/sort.h"

static const fb_span absent = {0};

bool fb_span_equal(fb_span a, fb_span b) {
    if (!a.text || !b.text) return !a.text && !b.text;
    return a.size == b.size && memcmp(a.text, b.text, a.size) == 0;
}

fb_span fb_span_of(const char *text) {
    return text ? (fb_span){text, strlen(text)} : absent;
}

/* ---- walking ----------------------------------------------------------------------------------------------------------- */

/* From a string's first quote to behind its last. */
static const char *skip_string(const char *at, const char *end) {
    for (const char *quote = at + 1; (quote = memchr(quote, '"', (size_t)(end - quote))); quote++) {
        size_t backslashes = 0;
        while (quote[-1 - (ptrdiff_t)backslashes] == '\\') backslashes++;
        if (backslashes % 2 == 0) return quote + 1;
    }
    return end;
}

static const char *skip_value(const char *at, const char *end) {
    size_t open = 0;
    while (at < end) {
        char c = *at;
        if (c == '"') {
            at = skip_string(at, end);
            if (!open) return at;
            continue;
        }
        if (!open && (c == ',' || c == ']' || c == '}')) return at;
        at++;
        if (c == '[' || c == '{') open++;
        if ((c == ']' || c == '}') && --open == 0) return at;
    }
    return end;
}

static bool is_array(fb_span value) {
    return value.size && value.text[0] == '[';
}

static bool is_object(fb_span value) {
    return value.size && value.text[0] == '{';
}

bool fb_span_next(fb_span container, size_t *cursor, fb_span *key, fb_span *value) {
    if (!is_array(container) && !is_object(container)) return false;
    const char *at = container.text + *cursor, *end = container.text + container.size;
    if (*cursor == 0 || *at == ',') at++;
    if (at >= end || *at == ']' || *at == '}') return false;
    if (key) *key = absent;
    if (is_object(container)) {
        const char *name = at + 1;
        at = skip_string(at, end);
        if (key) *key = (fb_span){name, (size_t)(at - 1 - name)};
        at++; /* the colon */
    }
    const char *behind = skip_value(at, end);
    *value = (fb_span){at, (size_t)(behind - at)};
    *cursor = (size_t)(behind - container.text);
    return true;
}

/* ---- in any order ------------------------------------------------------------------------------------------------------ */

typedef struct member {
    fb_span key, value;
} member;

static int by_key(const void *one, const void *other) {
    fb_span a = ((const member *)one)->key, b = ((const member *)other)->key;
    int order = memcmp(a.text, b.text, a.size < b.size ? a.size : b.size);
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* The members from the cursor on, sorted. */
static bool list_members(fb_span object, size_t cursor, fb_buffer *out) {
    member next;
    while (fb_span_next(object, &cursor, &next.key, &next.value)) fb_buffer_append(out, &next, sizeof next);
    if (!out->failed) fb_sort(out->data, out->size / sizeof next, sizeof next, by_key);
    return !out->failed;
}

static bool have_same_members(fb_span a, size_t at_a, fb_span b, size_t at_b, bool *failed) {
    fb_buffer of_a = {0}, of_b = {0};
    if (!list_members(a, at_a, &of_a) || !list_members(b, at_b, &of_b)) *failed = true;
    bool is_same = !*failed && of_a.size == of_b.size;
    const member *x = (const member *)(void *)of_a.data, *y = (const member *)(void *)of_b.data;
    for (size_t i = 0; is_same && i < of_a.size / sizeof *x; i++)
        is_same = fb_span_equal(x[i].key, y[i].key) && fb_span_alike(x[i].value, y[i].value, failed);
    fb_buffer_free(&of_a);
    fb_buffer_free(&of_b);
    return is_same;
}

bool fb_span_alike(fb_span a, fb_span b, bool *failed) {
    if (fb_span_equal(a, b)) return true;
    if (a.size != b.size || !a.size || *a.text != *b.text || (!is_array(a) && !is_object(a))) return false;
    size_t at_a = 0, at_b = 0;
    for (;;) {
        size_t before_a = at_a, before_b = at_b;
        fb_span key_of_a, key_of_b, of_a, of_b;
        bool is_any = fb_span_next(a, &at_a, &key_of_a, &of_a);
        if (is_any != fb_span_next(b, &at_b, &key_of_b, &of_b)) return false;
        if (!is_any) return true;
        if (!fb_span_equal(key_of_a, key_of_b)) return have_same_members(a, before_a, b, before_b, failed);
        if (!fb_span_alike(of_a, of_b, failed)) return false;
    }
}

/* ---- pointers ---------------------------------------------------------------------------------------------------------- */

static bool token_is(const char *token, size_t size, fb_span key) {
    size_t matched = 0;
    for (size_t i = 0; i < size; i++) {
        char c = token[i];
        if (c == '~') c = token[++i] == '0' ? '~' : '/';
        if (matched == key.size || key.text[matched++] != c) return false;
    }
    return matched == key.size;
}

static bool is_index(const char *token, size_t size, size_t index) {
    size_t number = 0;
    for (size_t i = 0; i < size; i++) {
        if (token[i] < '0' || token[i] > '9') return false;
        number = number * 10 + (size_t)(token[i] - '0');
    }
    return size && number == index;
}

static fb_span member_of(fb_span container, const char *token, size_t size) {
    size_t cursor = 0, index = 0;
    fb_span key, value;
    while (fb_span_next(container, &cursor, &key, &value)) {
        if (key.text ? token_is(token, size, key) : is_index(token, size, index++)) return value;
    }
    return absent;
}

fb_span fb_span_at(fb_span row, const char *pointer) {
    while (row.text && *pointer == '/') {
        const char *token = pointer + 1;
        size_t size = strcspn(token, "/");
        row = member_of(row, token, size);
        pointer = token + size;
    }
    return row;
}

/* ---- exchanging values ------------------------------------------------------------------------------------------------- */

typedef struct changes {
    const fb_change *items;
    size_t count;
    bool *is_done;
    fb_map places;  /* hash of a pointer, and of what it is in -> 1 + an index in items */
    fb_buffer path; /* pointer of the member at hand */
    fb_buffer *out;
} changes;

/* 1 + the change at a path, or of one below it; 0 when there is none. */
static size_t find_change(const changes *c, const char *path, size_t size, bool *is_below) {
    uint32_t cursor = 0, found;
    uint64_t hash = fb_hash(path, size, 0);
    while ((found = fb_map_next(&c->places, hash, &cursor))) {
        const char *pointer = c->items[found - 1].pointer;
        if (strncmp(pointer, path, size) || (pointer[size] && pointer[size] != '/')) continue;
        *is_below = pointer[size];
        return found;
    }
    return 0;
}

static bool index_changes(changes *c) {
    c->is_done = calloc(c->count + 1, sizeof *c->is_done);
    if (!c->is_done || !fb_map_reserve(&c->places, 2 * c->count)) return false;
    for (size_t i = 0; i < c->count; i++) {
        const char *pointer = c->items[i].pointer, *last = strrchr(pointer, '/');
        size_t size = (size_t)(last - pointer);
        bool is_below;
        fb_map_add(&c->places, fb_hash_text(pointer, 0), (uint32_t)i + 1); /* there is room */
        if (size && !find_change(c, pointer, size, &is_below))
            fb_map_add(&c->places, fb_hash(pointer, size, 0), (uint32_t)i + 1);
    }
    return true;
}

static void begin_member(const changes *c, bool *is_first) {
    if (!*is_first) fb_buffer_char(c->out, ',');
    *is_first = false;
}

/* A pointer's token as a key. */
static void write_key(const changes *c, const char *token, size_t size) {
    fb_buffer_char(c->out, '"');
    for (size_t i = 0; i < size; i++) {
        if (token[i] == '~') fb_buffer_char(c->out, token[++i] == '0' ? '~' : '/');
        else fb_buffer_char(c->out, token[i]);
    }
    fb_buffer_append(c->out, "\":", 2);
}

static void write_members(changes *c, fb_span container);

/* Writes the members that the container does not have yet. */
static void write_added(changes *c, fb_span container, bool *is_first) {
    size_t depth = c->path.size;
    for (size_t i = 0; i < c->count && !c->path.failed; i++) {
        const char *pointer = c->items[i].pointer;
        if (c->is_done[i] || !c->items[i].value.text) continue;
        if ((depth && strncmp(pointer, c->path.data, depth)) || pointer[depth] != '/') continue;
        const char *token = pointer + depth + 1;
        size_t size = strcspn(token, "/");
        if (token[size] && member_of(container, token, size).text) continue; /* an array, which has no such item */
        begin_member(c, is_first);
        write_key(c, token, size);
        if (token[size]) {
            fb_buffer_append(&c->path, token - 1, size + 1);
            if (!c->path.failed) write_members(c, absent);
            c->path.size = depth;
        } else {
            fb_buffer_append(c->out, c->items[i].value.text, c->items[i].value.size);
            c->is_done[i] = true;
        }
    }
}

static void write_members(changes *c, fb_span container) {
    bool is_first = true, is_below = false;
    size_t depth = c->path.size, cursor = 0, index = 0;
    fb_span key, value;
    fb_buffer_char(c->out, is_array(container) ? '[' : '{');
    while (fb_span_next(container, &cursor, &key, &value) && !c->path.failed) {
        if (key.text) fb_buffer_pointer_token(&c->path, key.text, key.size);
        else fb_buffer_printf(&c->path, "/%zu", index++);
        size_t found = c->path.failed ? 0 : find_change(c, c->path.data, c->path.size, &is_below);
        if (found && !is_below) {
            value = c->items[found - 1].value;
            c->is_done[found - 1] = true;
        }
        if (value.text) begin_member(c, &is_first);
        if (value.text && key.text) fb_buffer_append(c->out, key.text - 1, key.size + 3); /* with quotes and colon */
        if (found && is_below && (is_array(value) || is_object(value))) write_members(c, value);
        else fb_buffer_append(c->out, value.text, value.size);
        c->path.size = depth;
    }
    if (!is_array(container) && !c->path.failed) write_added(c, container, &is_first);
    fb_buffer_char(c->out, is_array(container) ? ']' : '}');
}

bool fb_span_write_changed(fb_span row, const fb_change *items, size_t count, fb_buffer *out) {
    changes c = {.items = items, .count = count, .out = out};
    bool is_whole = index_changes(&c);
    if (is_whole) write_members(&c, row);
    out->failed |= c.path.failed || !is_whole;
    for (size_t i = 0; i < count && is_whole; i++) is_whole = c.is_done[i] || !items[i].value.text;
    free(c.is_done);
    fb_map_free(&c.places);
    fb_buffer_free(&c.path);
    return is_whole;
}

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

char *fb_span_unquote(fb_span value) {
    char *text = malloc(value.size), *to = text;
    if (!text) return NULL;
    for (const char *at = value.text + 1, *end = value.text + value.size - 1; at < end; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        switch (*++at) {
        case 'b': *to++ = '\b'; break;
        case 't': *to++ = '\t'; break;
        case 'n': *to++ = '\n'; break;
        case 'f': *to++ = '\f'; break;
        case 'r': *to++ = '\r'; break;
        case 'u': /* canonical text spells control characters alone like this: \u00xx */
            *to++ = (char)(hex_digit(at[3]) << 4 | hex_digit(at[4]));
            at += 4;
            break;
        default: *to++ = *at;
        }
    }
    *to = '\0';
    return text;
}
