/* A strict JSON scanner: walks the outer structure of a document, and turns one element at a time into a small tree.
 *
 * Strict means: UTF-8 is checked, a member may appear once (however it is spelled), no NaN, no lone surrogate, no \u0000,
 * integers fit 64 bits, reals are finite. The tree is an array in document order and is used again for the next element, so
 * memory does not grow with the document.
 */
#ifndef FB_JSON_SCAN_H
#define FB_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/work.h"

typedef enum fb_json_kind {
    FB_JSON_NULL = 1,
    FB_JSON_FALSE,
    FB_JSON_TRUE,
    FB_JSON_INT,
    FB_JSON_REAL,
    FB_JSON_STRING,
    FB_JSON_ARRAY,
    FB_JSON_OBJECT,
} fb_json_kind;

/* One value. The items of an array follow it; an object is followed by key, value, key, value … */
typedef struct fb_json {
    uint8_t kind;
    uint8_t name;    /* of a key that was one of the scanner's names: its number; else 0 */
    uint32_t count;  /* items of an array, members of an object, bytes of a string */
    uint32_t span;   /* entries of the whole subtree, this one included; 0 while a container is still open */
    uint32_t offset; /* bytes from the start of the text */
    union {
        const char *text; /* of a string, decoded, not terminated */
        int64_t integer;
        double real;
        size_t size; /* of a container: bytes of its text */
    };
} fb_json;

/* The first item of an array or key of an object; the value after a key is key + 1. */
static inline const fb_json *fb_json_first(const fb_json *container) {
    return container + 1;
}
static inline const fb_json *fb_json_next(const fb_json *value) {
    return value + value->span;
}
/* Is it that string? Strings have no NUL in them. */
static inline bool fb_json_is(const fb_json *string, const char *text) {
    return string->kind == FB_JSON_STRING && !strncmp(string->text, text, string->count) && !text[string->count];
}
/* An integer that is not negative, also when it is written as 3.0. */
bool fb_json_is_count(const fb_json *value, int64_t *count);
/* "a string", "an array" … */
const char *fb_json_kind_name(const fb_json *value);
/* Keys of an object, sorted by their bytes; `keys` has room for all. */
void fb_json_sort_keys(const fb_json *object, const fb_json **keys);
/* Appends the JSON Pointer from `root` to `target`, an entry of root's tree; for a key, its member's. */
void fb_json_pointer(const fb_json *root, const fb_json *target, fb_buffer *out);
/* Appends free JSON in canonical form: members sorted, floats as Python's repr, nothing wrapped. False: memory is out. */
bool fb_json_canonical(const fb_json *value, fb_buffer *out);

/* Names that members are likely to have, which the scanner recognises. */
#define FB_SCAN_NAMES 256
#define FB_SCAN_NAME_SIZE 16 /* bytes, with the closing quote */
typedef struct fb_scan_name {
    uint64_t words[2], mask[2]; /* the name and the quote; bytes that are part of them */
    uint32_t length;
} fb_scan_name;
typedef struct fb_scan_names {
    fb_scan_name items[FB_SCAN_NAMES];
    uint8_t slots[2 * FB_SCAN_NAMES]; /* a hash table of numbers */
    uint32_t count;
} fb_scan_names;
/* Adds a name unless it is there. Its number, from 1 on; 0: it is too long, or there are FB_SCAN_NAMES - 1. */
uint8_t fb_scan_names_add(fb_scan_names *names, const char *text, size_t length);

typedef struct fb_scan {
    const char *start, *at, *end;
    size_t depth, max_nesting; /* containers entered with fb_scan_enter; how many may be open at once */
    fb_json *items;
    uint32_t count;
    size_t capacity;
    fb_arena decoded; /* strings that had escapes */
    fb_status status; /* FB_OK, FB_SYNTAX, FB_INVALID (nested too deep), FB_NO_MEMORY, or what the work was stopped with */
    const char *code, *message;
    const char *failed_at;
    fb_scan_names *names;                              /* may be NULL */
    uint8_t key;                                       /* name of the last member */
    uint8_t first[FB_SCAN_NAMES], next[FB_SCAN_NAMES]; /* names that came last within a member, and after it */
    fb_work *work; /* NULL: it is not stopped; what it is stopped with becomes the failure */
} fb_scan;

#define FB_SCAN_MAX_BYTES (UINT32_MAX - 1)

/* `bytes` is borrowed; size is at most FB_SCAN_MAX_BYTES. */
void fb_scan_init(fb_scan *scan, const char *bytes, size_t size, size_t max_nesting);
void fb_scan_free(fb_scan *scan);

/* The next value as a tree, valid until the next call; NULL on failure. */
const fb_json *fb_scan_value(fb_scan *scan);
/* When the next value opens with `open` ('{' or '['): steps inside and returns true. Otherwise leaves it and returns false. */
bool fb_scan_enter(fb_scan *scan, char open);
/* Inside a container closed by `close`: true when an element follows (the comma is eaten), false when the container is closed
 * or on failure (see status). `index` counts the elements: start with SIZE_MAX. */
bool fb_scan_more(fb_scan *scan, char close, size_t *index);
/* A member's name and its colon; NULL on failure. Valid like fb_scan_value. */
const fb_json *fb_scan_key(fb_scan *scan);
/* Only white space may follow. */
bool fb_scan_end(fb_scan *scan);

/* Bytes of the UTF-8 character that the text begins with; 0 when it is not UTF-8. */
size_t fb_utf8_length(const unsigned char *at, const unsigned char *end);

/* Records a failure at a place in the text, unless there is one already. */
void fb_scan_fail(fb_scan *scan, fb_status status, const char *code, const char *message, const char *at);
/* Appends the JSON Pointer, within the element that was being read, to the failure. */
void fb_scan_failure_pointer(const fb_scan *scan, fb_buffer *out);
/* Line and column, both from 1, columns in characters. */
void fb_scan_position(const fb_scan *scan, const char *at, size_t *line, size_t *column);

/* Steps over the object or array that comes next, by counting brackets: whether it is well formed is for its reader to say.
 * *start = where the next value begins. False where it is neither object nor array; then nothing but space is stepped over. */
bool fb_scan_step_over(fb_scan *scan, const char **start);

/* Calls item(context, index, text, size) for each item, an object, of a JSON array that this program wrote itself. False when
 * item returned false (and then it stops), or when memory is out. */
bool fb_each_item(const char *array, size_t size, bool (*item)(void *context, size_t index, const char *text, size_t text_size),
                  void *context);

/* The value of a hexadecimal digit, or -1. */
int fb_hex_digit(char c);

#endif
