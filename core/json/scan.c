#include "core/json/scan_internal.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file_kind.h"

#define DECODED_MAX ((size_t)1 << 20) /* bytes of decoded strings that are kept for the next element */

/* ---- failure ----------------------------------------------------------------------------------------------------------- */

void fb_scan_fail(fb_scan *scan, fb_status status, const char *code, const char *message, const char *at) {
    if (scan->status != FB_OK) return;
    const char *kind = status == FB_SYNTAX ? fb_kind_instead_of_json(scan->start, (size_t)(scan->end - scan->start)) : NULL;
    scan->status = status;
    scan->code = code;
    scan->message = kind ? kind : message;
    scan->failed_at = kind ? scan->start : at;
}

void fb_scan_position(const fb_scan *scan, const char *at, size_t *line, size_t *column) {
    *line = *column = 1;
    for (const char *p = scan->start; p < at; p++) {
        if (*p == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)*p & 0xC0U) != 0x80U) {
            ++*column;
        }
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static inline void skip_space(fb_scan *scan) {
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
}

static uint32_t fail_stopped(fb_scan *scan) {
    const fb_error *why = &scan->work->stopped;
    fb_scan_fail(scan, why->status, why->code, why->message, scan->at);
    return UINT32_MAX;
}

#define STEPS_OF_AN_ITEM 4

/* A new entry at the end of the tree; its index, or UINT32_MAX. */
static inline uint32_t add_item(fb_scan *scan) {
    if (scan->work && !fb_work_goes_on(scan->work, STEPS_OF_AN_ITEM)) return fail_stopped(scan);
    if (scan->count == scan->capacity) {
        uint32_t capacity = scan->capacity ? scan->capacity * 2 : 256;
        fb_json *items = capacity > scan->capacity ? realloc(scan->items, capacity * sizeof *items) : NULL;
        if (!items) {
            fail_memory(scan);
            return UINT32_MAX;
        }
        scan->items = items;
        scan->capacity = capacity;
    }
    scan->items[scan->count] = (fb_json){.offset = (uint32_t)(scan->at - scan->start)};
    return scan->count++;
}

static bool same_text(const fb_json *a, const fb_json *b) {
    return a->count == b->count && memcmp(a->text, b->text, a->count) == 0;
}

static bool fail_duplicate(fb_scan *scan, const fb_json *key) {
    scan->at = scan->start + key->offset;
    scan->count = (uint32_t)(key - scan->items) + 1; /* so that the failure's pointer leads to this member */
    return fail(scan, "duplicate-member", "the member is there twice");
}

#define FEW_MEMBERS 16

static bool check_many_members(fb_scan *scan, const fb_json *object) {
    const fb_json **keys = malloc(object->count * sizeof *keys);
    if (!keys) return fail_memory(scan);
    fb_json_sort_keys(object, keys);
    const fb_json *duplicate = NULL;
    for (uint32_t i = 1; i < object->count && !duplicate; i++) {
        if (same_text(keys[i - 1], keys[i])) duplicate = keys[i - 1] > keys[i] ? keys[i - 1] : keys[i];
    }
    free(keys);
    return !duplicate || fail_duplicate(scan, duplicate);
}

static bool check_members(fb_scan *scan, const fb_json *object) {
    if (object->count > FEW_MEMBERS) return check_many_members(scan, object);
    const fb_json *keys[FEW_MEMBERS], *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        for (uint32_t j = 0; j < i; j++) {
            if (same_text(keys[j], key)) return fail_duplicate(scan, key);
        }
        keys[i] = key;
    }
    return true;
}

static bool scan_item(fb_scan *scan, size_t depth);

static bool scan_member_name(fb_scan *scan) {
    skip_space(scan);
    if (scan->at >= scan->end || *scan->at != '"') return fail_expected(scan, "a member's name in quotes is missing here");
    uint32_t index = add_item(scan);
    if (index == UINT32_MAX || !fb_scan_string(scan, &scan->items[index])) return false;
    scan->items[index].span = 1;
    skip_space(scan);
    if (scan->at >= scan->end || *scan->at != ':') return fail_expected(scan, "a colon is missing after a member's name");
    scan->at++;
    return true;
}

/* A container whose opening bracket is at scan->at; `index` is its entry. */
static bool scan_container(fb_scan *scan, uint32_t index, size_t depth, char close) {
    if (depth >= scan->max_nesting) {
        fb_scan_fail(scan, FB_INVALID, "nesting-too-deep", "arrays and objects are nested too deep", scan->at);
        return false;
    }
    bool is_object = close == '}';
    scan->items[index].kind = is_object ? FB_JSON_OBJECT : FB_JSON_ARRAY;
    scan->at++;
    uint32_t count = 0;
    skip_space(scan);
    if (scan->at < scan->end && *scan->at == close) {
        scan->at++;
    } else {
        for (;;) {
            if (is_object && !scan_member_name(scan)) return false;
            if (!scan_item(scan, depth + 1)) return false;
            count++;
            skip_space(scan);
            if (scan->at < scan->end && *scan->at == ',') {
                scan->at++;
                continue;
            }
            if (scan->at >= scan->end || *scan->at != close) {
                return fail_expected(scan, is_object ? "a comma or } is missing here" : "a comma or ] is missing here");
            }
            scan->at++;
            break;
        }
    }
    scan->items[index].count = count;
    if (is_object && count > 1 && !check_members(scan, &scan->items[index])) return false;
    scan->items[index].span = scan->count - index;
    return true;
}

static bool scan_word(fb_scan *scan, fb_json *out, const char *word, fb_json_kind kind) {
    size_t length = strlen(word);
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, word, length) != 0) {
        return fail(scan, "invalid-json", "a value is missing here");
    }
    scan->at += length;
    out->kind = (uint8_t)kind;
    return true;
}

static bool fail_not_finite(fb_scan *scan) {
    return fail(scan, "invalid-json", "JSON has no NaN and no Infinity; in arguments they are written as $float");
}

static bool scan_item(fb_scan *scan, size_t depth) {
    skip_space(scan);
    if (scan->at >= scan->end) return fail_expected(scan, "");
    uint32_t index = add_item(scan);
    if (index == UINT32_MAX) return false;
    fb_json *item = &scan->items[index];
    bool ok;
    switch (*scan->at) {
    case '{': return scan_container(scan, index, depth, '}');
    case '[': return scan_container(scan, index, depth, ']');
    case '"': ok = fb_scan_string(scan, item); break;
    case 't': ok = scan_word(scan, item, "true", FB_JSON_TRUE); break;
    case 'f': ok = scan_word(scan, item, "false", FB_JSON_FALSE); break;
    case 'n': ok = scan_word(scan, item, "null", FB_JSON_NULL); break;
    case 'N':
    case 'I': ok = fail_not_finite(scan); break;
    default:
        if (*scan->at == '-' && scan->end - scan->at > 1 && scan->at[1] == 'I') ok = fail_not_finite(scan);
        else if (*scan->at == '-' || (*scan->at >= '0' && *scan->at <= '9')) ok = fb_scan_number(scan, item);
        else ok = fail(scan, "invalid-json", "a value is missing here");
    }
    item->span = ok;
    return ok;
}

static void begin_element(fb_scan *scan) {
    scan->count = 0;
    if (scan->decoded.total > DECODED_MAX) fb_arena_free(&scan->decoded);
}

/* ---- the outer structure ----------------------------------------------------------------------------------------------- */

void fb_scan_init(fb_scan *scan, const char *bytes, size_t size, size_t max_nesting) {
    if (size == 0) bytes = ""; /* may be NULL */
    *scan = (fb_scan){.start = bytes, .at = bytes, .end = bytes + size, .max_nesting = max_nesting};
}

void fb_scan_free(fb_scan *scan) {
    free(scan->items);
    fb_arena_free(&scan->decoded);
    *scan = (fb_scan){0};
}

const fb_json *fb_scan_value(fb_scan *scan) {
    begin_element(scan);
    return scan->status == FB_OK && scan_item(scan, scan->depth) ? scan->items : NULL;
}

bool fb_scan_enter(fb_scan *scan, char open) {
    skip_space(scan);
    if (scan->at >= scan->end || *scan->at != open || scan->depth >= scan->max_nesting) return false;
    scan->at++;
    scan->depth++;
    return true;
}

bool fb_scan_more(fb_scan *scan, char close, size_t *index) {
    if (scan->status != FB_OK) return false;
    scan->count = 0;
    skip_space(scan);
    bool is_first = *index == SIZE_MAX;
    if (scan->at < scan->end && *scan->at == close) {
        scan->at++;
        scan->depth--;
        return false;
    }
    if (!is_first) {
        if (scan->at >= scan->end || *scan->at != ',') {
            return fail_expected(scan, close == '}' ? "a comma or } is missing here" : "a comma or ] is missing here");
        }
        scan->at++;
    }
    ++*index;
    return true;
}

const fb_json *fb_scan_key(fb_scan *scan) {
    begin_element(scan);
    return scan->status == FB_OK && scan_member_name(scan) ? scan->items : NULL;
}

bool fb_scan_end(fb_scan *scan) {
    scan->count = 0;
    skip_space(scan);
    return scan->at >= scan->end || fail(scan, "invalid-json", "something follows the end of the document");
}

/* Containers that were open when the scan failed have no span yet: the way down through them is the pointer. */
void fb_scan_failure_pointer(const fb_scan *scan, fb_buffer *out) {
    uint32_t index = 0;
    while (index < scan->count && scan->items[index].span == 0 && scan->items[index].kind >= FB_JSON_ARRAY) {
        bool is_object = scan->items[index++].kind == FB_JSON_OBJECT;
        size_t position = 0;
        while (index < scan->count && scan->items[index].span) {
            const fb_json *key = &scan->items[index];
            if (is_object && (++index >= scan->count || scan->items[index].span == 0)) {
                fb_buffer_pointer_token(out, key->text, key->count);
                break;
            }
            index += scan->items[index].span;
            position++;
        }
        if (!is_object && index < scan->count) fb_buffer_printf(out, "/%zu", position);
    }
}

/* ---- stepping over ------------------------------------------------------------------------------------------------------ */

/* The end of the string whose opening quote is at `at`. */
static const char *string_end(const char *at, const char *end, fb_work *work) {
    for (at++; at < end && *at != '"'; at++) {
        if (*at == '\\') at++;
        if (!((uintptr_t)at & (FB_WORK_BLOCK - 1)) && !fb_work_goes_on(work, FB_WORK_BLOCK)) return end;
    }
    return at < end ? at + 1 : end;
}

/* The end of the object or array that begins at `at`, found by counting brackets: whether it is well formed is for its reader
 * to say. The end of the text when it is not closed. */
static const char *container_end(const char *at, const char *end, fb_work *work) {
    size_t depth = 0;
    while (at < end && fb_work_goes_on(work, 1)) {
        char c = *at;
        if (c == '"') {
            at = string_end(at, end, work);
            continue;
        }
        at++;
        if (c == '{' || c == '[') depth++;
        else if ((c == '}' || c == ']') && --depth == 0) break;
    }
    return at;
}

bool fb_scan_step_over(fb_scan *scan, const char **start) {
    fb_work unwatched = {0};
    skip_space(scan);
    *start = scan->at;
    if (scan->at >= scan->end || (*scan->at != '{' && *scan->at != '[')) return false;
    scan->at = container_end(scan->at, scan->end, scan->work ? scan->work : &unwatched);
    return true;
}

bool fb_each_item(const char *array, size_t size, bool (*item)(void *context, size_t index, const char *text, size_t text_size),
                  void *context) {
    fb_scan scan;
    fb_scan_init(&scan, array, size, SIZE_MAX);
    bool goes_on = fb_scan_enter(&scan, '[');
    for (size_t index = SIZE_MAX; goes_on && fb_scan_more(&scan, ']', &index);) {
        const char *start;
        goes_on = fb_scan_step_over(&scan, &start) && item(context, index, start, (size_t)(scan.at - start));
    }
    goes_on &= scan.status == FB_OK;
    fb_scan_free(&scan);
    return goes_on;
}
