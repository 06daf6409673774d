#include "core/json/scan.h"

#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file_kind.h"
#include "core/base/grow.h"

/* Each records a failure and returns NULL. What scans begins at `at`, and returns where it ended, or NULL. */
static const char *fail(fb_scan *scan, const char *at, const char *code, const char *message) {
    fb_scan_fail(scan, FB_SYNTAX, code, message, at);
    return NULL;
}

static const char *fail_expected(fb_scan *scan, const char *at, const char *message) {
    return fail(scan, at, "invalid-json", at < scan->end ? message : "the document ends in the middle");
}

static const char *fail_memory(fb_scan *scan, const char *at) {
    fb_scan_fail(scan, FB_NO_MEMORY, "out-of-memory", "not enough memory", at);
    return NULL;
}

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

#define EACH_BYTE(c) (0x0101010101010101ULL * (c))

/* The high bit of the first byte (in memory order) that is a quote, a backslash, a control character or not ASCII; bytes after
 * it may be flagged without reason. A byte that is less than what is taken from it borrows into its high bit. */
static inline uint64_t special_bytes(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word = le64toh(word);
    uint64_t quote = word ^ EACH_BYTE(0x22U), backslash = word ^ EACH_BYTE(0x5CU);
    uint64_t found = (quote - EACH_BYTE(1U)) | (backslash - EACH_BYTE(1U)) | (word - EACH_BYTE(0x20U));
    return (found | word) & EACH_BYTE(0x80U);
}

static inline const char *skip_plain(const char *at, const char *end) {
    while (end - at >= 8) {
        uint64_t found = special_bytes(at);
        if (found) return at + (__builtin_ctzll(found) >> 3);
        at += 8;
    }
    while (at < end && (unsigned char)*at >= 0x20 && *at != '"' && *at != '\\' && (unsigned char)*at < 0x80) at++;
    return at;
}

/* Bytes of the well-formed UTF-8 sequence at `at` (RFC 3629, table 3-7 of Unicode), or 0. */
size_t fb_utf8_length(const unsigned char *at, const unsigned char *end) {
    size_t left = (size_t)(end - at);
    unsigned char lead = at[0], low = 0x80, high = 0xBF;
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xC2 && lead < 0xE0 ? 2
                    : (lead & 0xF0U) == 0xE0      ? 3
                    : lead >= 0xF0 && lead < 0xF5 ? 4
                                                  : 0;
    if (length == 0 || length > left) return 0;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
    for (size_t i = 1; i < length; i++) {
        if (at[i] < low || at[i] > high) return 0;
        low = 0x80;
        high = 0xBF;
    }
    return length;
}

int fb_hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Four hex digits at `at`, or -1. */
static int32_t hex4(const char *at, const char *end) {
    if (end - at < 4) return -1;
    int32_t code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = fb_hex_digit(at[i]);
        if (digit < 0) return -1;
        code = code << 4 | digit;
    }
    return code;
}

static char *put_utf8(char *to, uint32_t code) {
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xC0U | code >> 6);
        *to++ = (char)(0x80U | (code & 0x3FU));
    } else if (code < 0x10000) {
        *to++ = (char)(0xE0U | code >> 12);
        *to++ = (char)(0x80U | (code >> 6 & 0x3FU));
        *to++ = (char)(0x80U | (code & 0x3FU));
    } else {
        *to++ = (char)(0xF0U | code >> 18);
        *to++ = (char)(0x80U | (code >> 12 & 0x3FU));
        *to++ = (char)(0x80U | (code >> 6 & 0x3FU));
        *to++ = (char)(0x80U | (code & 0x3FU));
    }
    return to;
}

/* Decodes the escape at *at (after the backslash) and steps over it; NULL on failure. Never longer than its spelling. */
static char *decode_escape(fb_scan *scan, const char **at, char *to) {
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *escape = *at, *found = escape < scan->end && *escape ? strchr(plain, *escape) : NULL;
    if (found) {
        ++*at;
        *to++ = meaning[found - plain];
        return to;
    }
    if (escape >= scan->end || *escape != 'u') {
        fail_expected(scan, escape, "a backslash is followed by none of \" \\ / b f n r t u");
        return NULL;
    }
    int32_t code = hex4(escape + 1, scan->end);
    if (code < 0) {
        fail_expected(scan, escape, "\\u needs four hexadecimal digits");
        return NULL;
    }
    if (code == 0) {
        fail(scan, escape, "nul-character", "a string cannot hold the character \\u0000");
        return NULL;
    }
    size_t size = 5;
    if (code >= 0xD800 && code < 0xE000) {
        bool has_second = code < 0xDC00 && scan->end - escape > 6 && escape[5] == '\\' && escape[6] == 'u';
        int32_t second = has_second ? hex4(escape + 7, scan->end) : -1;
        if (second < 0xDC00 || second >= 0xE000) {
            fail(scan, escape, "lone-surrogate", "half of a surrogate pair stands alone");
            return NULL;
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
        size = 11;
    }
    *at += size;
    return put_utf8(to, (uint32_t)code);
}

/* The string between the quotes, which has escapes. */
static bool decode(fb_scan *scan, const char *at, const char *quote, fb_json *out) {
    char *text = fb_arena_alloc(&scan->decoded, (size_t)(quote - at)), *to = text;
    if (!text) return fail_memory(scan, quote);
    while (at < quote) {
        const char *backslash = memchr(at, '\\', (size_t)(quote - at));
        size_t plain = (size_t)((backslash ? backslash : quote) - at);
        memcpy(to, at, plain);
        to += plain;
        at += plain;
        if (!backslash) break;
        at++;
        to = decode_escape(scan, &at, to);
        if (!to) return false;
    }
    out->text = text;
    out->count = (uint32_t)(to - text);
    return true;
}

/* The closing quote; UTF-8 is checked on the way. */
static const char *find_quote(fb_scan *scan, const char *at, bool *has_escapes) {
    for (;;) {
        at = skip_plain(at, scan->end);
        if (at >= scan->end) return fail_expected(scan, at, "");
        unsigned char c = (unsigned char)*at;
        if (c == '"') return at;
        if (c < 0x20) return fail(scan, at, "invalid-json", "a string holds a bare control character");
        size_t length = fb_utf8_length((const unsigned char *)at, (const unsigned char *)scan->end);
        if (length == 0) return fail(scan, at, "invalid-utf8", "a string is not UTF-8");
        at += length;
        if (c != '\\') continue;
        *has_escapes = true;
        if (at < scan->end && (unsigned char)*at < 0x80) at++; /* perhaps \" */
    }
}

/* The string whose opening quote is at `at`. */
static inline const char *scan_string(fb_scan *scan, const char *at, fb_json *out) {
    const char *begin = at + 1;
    bool has_escapes = false;
    const char *quote = skip_plain(begin, scan->end);
    if ((quote >= scan->end || *quote != '"') && !(quote = find_quote(scan, quote, &has_escapes))) return NULL;
    out->kind = FB_JSON_STRING;
    out->text = begin;
    out->count = (uint32_t)(quote - begin);
    if (has_escapes && !decode(scan, begin, quote, out)) return NULL;
    out->span = 1;
    return quote + 1;
}

/* ---- names of members -------------------------------------------------------------------------------------------------- */

/* A name of which `readable` bytes can be read, and behind it perhaps others. False when it is longer than all that are known.
 */
static bool make_name(fb_scan_name *out, const char *text, size_t length, size_t readable) {
    static const unsigned char masks[2 * FB_SCAN_NAME_SIZE] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                                                               0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    if (length >= FB_SCAN_NAME_SIZE) return false;
    *out = (fb_scan_name){.length = (uint32_t)length};
    memcpy(out->mask, masks + FB_SCAN_NAME_SIZE - length - 1, sizeof out->mask);
    if (readable < sizeof out->words) {
        memcpy(out->words, text, length);
        memcpy((char *)out->words + length, "\"", 1);
    } else {
        memcpy(out->words, text, sizeof out->words);
        out->words[0] &= out->mask[0];
        out->words[1] &= out->mask[1];
    }
    return true;
}

/* The slot of a name, or an empty one where it belongs. */
static uint8_t *find_slot(fb_scan_names *names, const fb_scan_name *name) {
    size_t slot = (name->words[0] * 0x9e3779b97f4a7c15U ^ name->words[1] * 0xc2b2ae3d27d4eb4fU) >> 55;
    for (; names->slots[slot]; slot = (slot + 1) % sizeof names->slots) {
        const uint64_t *words = names->items[names->slots[slot]].words;
        if (words[0] == name->words[0] && words[1] == name->words[1]) break;
    }
    return &names->slots[slot];
}

uint8_t fb_scan_names_add(fb_scan_names *names, const char *text, size_t length) {
    fb_scan_name name;
    if (!make_name(&name, text, length, 0)) return 0;
    uint8_t *slot = find_slot(names, &name);
    if (!*slot && names->count + 1 < FB_SCAN_NAMES) {
        names->items[++names->count] = name;
        *slot = (uint8_t)names->count;
    }
    return *slot;
}

/* The number of a key's text among the names, or 0. `readable` bytes can be read there. */
static uint8_t find_name(fb_scan_names *names, const fb_json *key, size_t readable) {
    fb_scan_name name;
    return make_name(&name, key->text, key->count, readable) ? *find_slot(names, &name) : 0;
}

/* True if the text goes on with that name and a quote. FB_SCAN_NAME_SIZE bytes can be read. */
static inline bool begins_with(const char *text, const fb_scan_name *name) {
    uint64_t words[2];
    memcpy(words, text, sizeof words);
    return !(((words[0] ^ name->words[0]) & name->mask[0]) | ((words[1] ^ name->words[1]) & name->mask[1]));
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

/* The digits at `at` are appended to *mantissa; *digits counts them without leading zeros, and beyond 19 they are dropped. */
static inline const char *scan_digits(fb_scan *scan, const char *at, uint64_t *mantissa, int *digits) {
    const char *begin = at;
    for (; at < scan->end && *at >= '0' && *at <= '9'; at++) {
        if (*mantissa == 0 && *at == '0') continue;
        if (*digits < 19) *mantissa = *mantissa * 10 + (uint64_t)(*at - '0');
        if (*digits < INT32_MAX) ++*digits;
    }
    return at > begin ? at : fail_expected(scan, at, "a number needs a digit here");
}

static const char *slow_real(fb_scan *scan, const char *begin, const char *at, double *real) {
    char small[64], *copy = small;
    size_t length = (size_t)(at - begin);
    if (length >= sizeof small) copy = malloc(length + 1);
    if (!copy) return fail_memory(scan, at);
    memcpy(copy, begin, length);
    copy[length] = '\0';
    *real = strtod(copy, NULL);
    if (copy != small) free(copy);
    return isfinite(*real) ? at : fail(scan, begin, "number-out-of-range", "a number is too large for a 64-bit float");
}

/* Up to 10^22 and 2^53 a double is exact, so that one multiplication or division rounds once: correctly (Clinger 1990). */
static bool fast_real(uint64_t mantissa, int64_t exponent, double *real) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (mantissa > (1ULL << 53) || exponent < -22 || exponent > 22) return false;
    *real = exponent < 0 ? (double)mantissa / powers[-exponent] : (double)mantissa * powers[exponent];
    return true;
}

static const char *scan_number(fb_scan *scan, const char *at, fb_json *out) {
    const char *begin = at, *end = scan->end;
    bool is_negative = *begin == '-', is_real = false;
    at += is_negative;
    uint64_t mantissa = 0;
    int digits = 0;
    int64_t exponent = 0;
    const char *integer = at;
    if (!(at = scan_digits(scan, at, &mantissa, &digits))) return NULL;
    if (*integer == '0' && at - integer > 1) return fail(scan, integer, "invalid-json", "a number starts with 0");
    if (at < end && *at == '.') {
        is_real = true;
        const char *fraction = ++at;
        if (!(at = scan_digits(scan, at, &mantissa, &digits))) return NULL;
        exponent = -(at - fraction);
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        is_real = true;
        at++;
        bool is_small = at < end && *at == '-';
        if (is_small || (at < end && *at == '+')) at++;
        uint64_t power = 0;
        int power_digits = 0;
        if (!(at = scan_digits(scan, at, &power, &power_digits))) return NULL;
        if (power_digits > 9) digits = INT32_MAX; /* leave it to strtod */
        else exponent += is_small ? -(int64_t)power : (int64_t)power;
    }
    if (is_real) {
        out->kind = FB_JSON_REAL;
        if (digits > 19 || !fast_real(mantissa, exponent, &out->real)) return slow_real(scan, begin, at, &out->real);
        if (is_negative) out->real = -out->real;
        return at;
    }
    out->kind = FB_JSON_INT;
    if (digits > 19 || mantissa > (uint64_t)INT64_MAX + is_negative) {
        return fail(scan, begin, "number-out-of-range",
                    "an integer does not fit 64 bits; in arguments it can be written as $int");
    }
    out->integer = (int64_t)(is_negative ? 0 - mantissa : mantissa);
    return at;
}

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

static inline const char *skip_space(const char *at, const char *end) {
    while (at < end && (unsigned char)*at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r')) at++;
    return at;
}

#define ITEMS_AT_ONCE 64U /* entries for which there is room, and of which the watch is told, at a time */
#define STEPS_OF_AN_ITEM 4

static bool make_room(fb_scan *scan, const char *at) {
    const fb_error *why = scan->work ? &scan->work->stopped : NULL;
    if (why && !fb_work_goes_on(scan->work, ITEMS_AT_ONCE * STEPS_OF_AN_ITEM)) {
        fb_scan_fail(scan, why->status, why->code, why->message, at);
        return false;
    }
    bool has_room = scan->count < INT32_MAX - ITEMS_AT_ONCE;
    while (has_room && scan->capacity - scan->count < ITEMS_AT_ONCE)
        has_room = fb_grow(&scan->items, sizeof *scan->items, &scan->capacity);
    return has_room || fail_memory(scan, at);
}

/* A new entry at the end of the tree, for what begins at `at`; NULL on failure. */
static inline fb_json *add_item(fb_scan *scan, const char *at) {
    if (scan->count % ITEMS_AT_ONCE == 0 && !make_room(scan, at)) return NULL;
    fb_json *item = &scan->items[scan->count++];
    *item = (fb_json){.offset = (uint32_t)(at - scan->start)};
    return item;
}

static bool same_text(const fb_json *a, const fb_json *b) {
    return a->count == b->count && memcmp(a->text, b->text, a->count) == 0;
}

static bool fail_duplicate(fb_scan *scan, const fb_json *key) {
    scan->count = (uint32_t)(key - scan->items) + 1; /* so that the failure's pointer leads to this member */
    return fail(scan, scan->start + key->offset, "duplicate-member", "the member is there twice");
}

#define FEW_MEMBERS 16

static bool check_many_members(fb_scan *scan, const fb_json *object, const char *at) {
    const fb_json **keys = malloc(object->count * sizeof *keys);
    if (!keys) return fail_memory(scan, at);
    fb_json_sort_keys(object, keys);
    const fb_json *duplicate = NULL;
    for (uint32_t i = 1; i < object->count && !duplicate; i++) {
        if (same_text(keys[i - 1], keys[i])) duplicate = keys[i - 1] > keys[i] ? keys[i - 1] : keys[i];
    }
    free(keys);
    return !duplicate || fail_duplicate(scan, duplicate);
}

static bool check_members(fb_scan *scan, const fb_json *object, const char *at) {
    if (object->count > FEW_MEMBERS) return check_many_members(scan, object, at);
    const fb_json *keys[FEW_MEMBERS], *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        for (uint32_t j = 0; j < i; j++) {
            if (same_text(keys[j], key)) return fail_duplicate(scan, key);
        }
        keys[i] = key;
    }
    return true;
}

/* A member's name and its colon. *likely: the name that came here last. */
static inline const char *scan_member_name(fb_scan *scan, const char *at, uint8_t *likely) {
    at = skip_space(at, scan->end);
    if (at >= scan->end || *at != '"') return fail_expected(scan, at, "a member's name in quotes is missing here");
    fb_json *key = add_item(scan, at);
    if (!key) return NULL;
    const char *begin = at + 1;
    size_t left = (size_t)(scan->end - begin);
    if (*likely && left >= FB_SCAN_NAME_SIZE && begins_with(begin, &scan->names->items[*likely])) {
        key->kind = FB_JSON_STRING;
        key->text = begin;
        key->count = scan->names->items[*likely].length;
        key->span = 1;
        at = begin + key->count + 1;
    } else {
        if (!(at = scan_string(scan, at, key))) return NULL;
        if (scan->names) *likely = find_name(scan->names, key, key->text == begin ? left : 0);
    }
    scan->key = key->name = *likely;
    if (at < scan->end && *at == ':') return at + 1;
    at = skip_space(at, scan->end);
    return at < scan->end && *at == ':' ? at + 1 : fail_expected(scan, at, "a colon is missing after a member's name");
}

static const char *scan_item(fb_scan *scan, const char *at, size_t depth);

/* A container whose opening bracket is at `at`; `index` is its entry. */
static const char *scan_container(fb_scan *scan, const char *at, uint32_t index, size_t depth) {
    if (depth >= scan->max_nesting) {
        fb_scan_fail(scan, FB_INVALID, "nesting-too-deep", "arrays and objects are nested too deep", at);
        return NULL;
    }
    bool is_object = *at == '{';
    char close = is_object ? '}' : ']';
    scan->items[index].kind = is_object ? FB_JSON_OBJECT : FB_JSON_ARRAY;
    at = skip_space(at + 1, scan->end);
    uint32_t count = 0;
    uint64_t seen = 0; /* names; the first bit is also of all that have none */
    uint8_t *likely = &scan->first[scan->key];
    bool may_repeat = false, is_closed = at < scan->end && *at == close;
    while (!is_closed) {
        if (is_object) {
            if (!(at = scan_member_name(scan, at, likely))) return NULL;
            likely = &scan->next[scan->key];
            uint64_t name = 1ULL << scan->key % 64;
            may_repeat |= (seen & name) != 0;
            seen |= name;
        }
        if (!(at = scan_item(scan, at, depth + 1))) return NULL;
        count++;
        at = skip_space(at, scan->end);
        is_closed = at < scan->end && *at == close;
        if (is_closed) break;
        if (at >= scan->end || *at != ',') {
            return fail_expected(scan, at, is_object ? "a comma or } is missing here" : "a comma or ] is missing here");
        }
        at++;
    }
    at++;
    fb_json *container = &scan->items[index];
    container->count = count;
    container->size = (size_t)(at - scan->start) - container->offset;
    if (may_repeat && !check_members(scan, container, at)) return NULL;
    container->span = scan->count - index;
    return at;
}

static inline const char *scan_word(fb_scan *scan, const char *at, fb_json *out, const char *word, fb_json_kind kind) {
    size_t length = strlen(word);
    if ((size_t)(scan->end - at) < length || memcmp(at, word, length) != 0) {
        return fail(scan, at, "invalid-json", "a value is missing here");
    }
    out->kind = (uint8_t)kind;
    return at + length;
}

static const char *fail_not_finite(fb_scan *scan, const char *at) {
    return fail(scan, at, "invalid-json", "JSON has no NaN and no Infinity; in arguments they are written as $float");
}

static const char *scan_item(fb_scan *scan, const char *at, size_t depth) {
    at = skip_space(at, scan->end);
    if (at >= scan->end) return fail_expected(scan, at, "");
    fb_json *item = add_item(scan, at);
    if (!item) return NULL;
    if (*at == '"') return scan_string(scan, at, item);
    switch (*at) {
    case '{':
    case '[': return scan_container(scan, at, scan->count - 1, depth);
    case 't': at = scan_word(scan, at, item, "true", FB_JSON_TRUE); break;
    case 'f': at = scan_word(scan, at, item, "false", FB_JSON_FALSE); break;
    case 'n': at = scan_word(scan, at, item, "null", FB_JSON_NULL); break;
    case 'N':
    case 'I': return fail_not_finite(scan, at);
    default:
        if (*at == '-' && scan->end - at > 1 && at[1] == 'I') return fail_not_finite(scan, at);
        if (*at != '-' && (*at < '0' || *at > '9')) return fail(scan, at, "invalid-json", "a value is missing here");
        at = scan_number(scan, at, item);
    }
    item->span = at != NULL;
    return at;
}

static void begin_element(fb_scan *scan) {
    scan->count = 0;
    scan->key = 0;
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

/* Moves the scanner to the end of a scanned value; after a failure it stays. */
static const fb_json *end_element(fb_scan *scan, const char *at) {
    if (!at) return NULL;
    scan->at = at;
    return scan->items;
}

const fb_json *fb_scan_value(fb_scan *scan) {
    begin_element(scan);
    return scan->status == FB_OK ? end_element(scan, scan_item(scan, scan->at, scan->depth)) : NULL;
}

const fb_json *fb_scan_key(fb_scan *scan) {
    begin_element(scan);
    return scan->status == FB_OK ? end_element(scan, scan_member_name(scan, scan->at, &(uint8_t){0})) : NULL;
}

bool fb_scan_enter(fb_scan *scan, char open) {
    scan->at = skip_space(scan->at, scan->end);
    if (scan->at >= scan->end || *scan->at != open || scan->depth >= scan->max_nesting) return false;
    scan->at++;
    scan->depth++;
    return true;
}

bool fb_scan_more(fb_scan *scan, char close, size_t *index) {
    if (scan->status != FB_OK) return false;
    scan->count = 0;
    scan->at = skip_space(scan->at, scan->end);
    bool is_first = *index == SIZE_MAX;
    if (scan->at < scan->end && *scan->at == close) {
        scan->at++;
        scan->depth--;
        return false;
    }
    if (!is_first) {
        if (scan->at >= scan->end || *scan->at != ',') {
            return fail_expected(scan, scan->at,
                                 close == '}' ? "a comma or } is missing here" : "a comma or ] is missing here");
        }
        scan->at++;
    }
    ++*index;
    return true;
}

bool fb_scan_end(fb_scan *scan) {
    scan->count = 0;
    scan->at = skip_space(scan->at, scan->end);
    return scan->at >= scan->end || fail(scan, scan->at, "invalid-json", "something follows the end of the document");
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
    *start = scan->at = skip_space(scan->at, scan->end);
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
