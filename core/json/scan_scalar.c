/* Scanning strings and numbers. */
#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/scan_internal.h"

/* ---- strings ----------------------------------------------------------------------------------------------------------- */

#define EACH_BYTE(c) (0x0101010101010101ULL * (c))

/* The high bit of the first byte (in memory order) that is a quote, a backslash, a control character or not ASCII; bytes after
 * it may be flagged without reason. */
static inline uint64_t special_bytes(const char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word = le64toh(word);
    uint64_t quote = word ^ EACH_BYTE(0x22U), backslash = word ^ EACH_BYTE(0x5CU);
    uint64_t found = (quote - EACH_BYTE(1U)) & ~quote;
    found |= (backslash - EACH_BYTE(1U)) & ~backslash;
    found |= (word - EACH_BYTE(0x20U)) & ~word;
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
static size_t utf8_length(const unsigned char *at, const unsigned char *end) {
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

static int hex_value(char c) {
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
        int digit = hex_value(at[i]);
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

/* Decodes the escape at scan->at (after the backslash) and steps over it; NULL on failure. Never longer than its spelling. */
static char *decode_escape(fb_scan *scan, char *to) {
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *found = scan->at < scan->end && *scan->at ? strchr(plain, *scan->at) : NULL;
    if (found) {
        scan->at++;
        *to++ = meaning[found - plain];
        return to;
    }
    if (scan->at >= scan->end || *scan->at != 'u') {
        fail_expected(scan, "a backslash is followed by none of \" \\ / b f n r t u");
        return NULL;
    }
    int32_t code = hex4(scan->at + 1, scan->end);
    if (code < 0) {
        fail_expected(scan, "\\u needs four hexadecimal digits");
        return NULL;
    }
    if (code == 0) {
        fail(scan, "nul-character", "a string cannot hold the character \\u0000");
        return NULL;
    }
    size_t size = 5;
    if (code >= 0xD800 && code < 0xE000) {
        bool has_second = code < 0xDC00 && scan->end - scan->at > 6 && scan->at[5] == '\\' && scan->at[6] == 'u';
        int32_t second = has_second ? hex4(scan->at + 7, scan->end) : -1;
        if (second < 0xDC00 || second >= 0xE000) {
            fail(scan, "lone-surrogate", "half of a surrogate pair stands alone");
            return NULL;
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (second - 0xDC00);
        size = 11;
    }
    scan->at += size;
    return put_utf8(to, (uint32_t)code);
}

/* Finds the closing quote and checks UTF-8 on the way; leaves scan->at on the quote. */
static bool find_quote(fb_scan *scan, bool *has_escapes) {
    for (;;) {
        scan->at = skip_plain(scan->at, scan->end);
        if (scan->at >= scan->end) return fail_expected(scan, "");
        unsigned char c = (unsigned char)*scan->at;
        if (c == '"') return true;
        if (c < 0x20) return fail(scan, "invalid-json", "a string holds a bare control character");
        size_t length = utf8_length((const unsigned char *)scan->at, (const unsigned char *)scan->end);
        if (length == 0) return fail(scan, "invalid-utf8", "a string is not UTF-8");
        scan->at += length;
        if (c != '\\') continue;
        *has_escapes = true;
        if (scan->at < scan->end && (unsigned char)*scan->at < 0x80) scan->at++; /* perhaps \" */
    }
}

bool fb_scan_string(fb_scan *scan, fb_json *out) {
    const char *begin = ++scan->at;
    bool has_escapes = false;
    if (!find_quote(scan, &has_escapes)) return false;
    const char *quote = scan->at;
    out->kind = FB_JSON_STRING;
    out->text = begin;
    out->count = (uint32_t)(quote - begin);
    if (has_escapes) {
        char *text = fb_arena_alloc(&scan->decoded, out->count), *to = text;
        if (!text) return fail_memory(scan);
        for (scan->at = begin; scan->at < quote;) {
            const char *backslash = memchr(scan->at, '\\', (size_t)(quote - scan->at));
            size_t plain = (size_t)((backslash ? backslash : quote) - scan->at);
            memcpy(to, scan->at, plain);
            to += plain;
            scan->at += plain;
            if (!backslash) break;
            scan->at++;
            to = decode_escape(scan, to);
            if (!to) return false;
        }
        out->text = text;
        out->count = (uint32_t)(to - text);
    }
    scan->at = quote + 1;
    return true;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

/* The digits at scan->at are appended to *mantissa; *digits counts them without leading zeros, and beyond 19 they are dropped.
 */
static bool scan_digits(fb_scan *scan, uint64_t *mantissa, int *digits) {
    const char *begin = scan->at;
    for (; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++) {
        if (*mantissa == 0 && *scan->at == '0') continue;
        if (*digits < 19) *mantissa = *mantissa * 10 + (uint64_t)(*scan->at - '0');
        if (*digits < INT32_MAX) ++*digits;
    }
    return scan->at > begin || fail_expected(scan, "a number needs a digit here");
}

static bool slow_real(fb_scan *scan, const char *begin, double *real) {
    char small[64], *copy = small;
    size_t length = (size_t)(scan->at - begin);
    if (length >= sizeof small) copy = malloc(length + 1);
    if (!copy) return fail_memory(scan);
    memcpy(copy, begin, length);
    copy[length] = '\0';
    *real = strtod(copy, NULL);
    if (copy != small) free(copy);
    if (isfinite(*real)) return true;
    scan->at = begin;
    return fail(scan, "number-out-of-range", "a number is too large for a 64-bit float");
}

/* Up to 10^22 and 2^53 a double is exact, so that one multiplication or division rounds once: correctly (Clinger 1990). */
static bool fast_real(uint64_t mantissa, int64_t exponent, double *real) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (mantissa > (1ULL << 53) || exponent < -22 || exponent > 22) return false;
    *real = exponent < 0 ? (double)mantissa / powers[-exponent] : (double)mantissa * powers[exponent];
    return true;
}

bool fb_scan_number(fb_scan *scan, fb_json *out) {
    const char *begin = scan->at;
    bool is_negative = *begin == '-', is_real = false;
    if (is_negative) scan->at++;
    uint64_t mantissa = 0;
    int digits = 0;
    int64_t exponent = 0;
    bool starts_with_zero = scan->at < scan->end && *scan->at == '0';
    const char *integer = scan->at;
    if (!scan_digits(scan, &mantissa, &digits)) return false;
    if (starts_with_zero && scan->at - integer > 1) {
        scan->at = integer;
        return fail(scan, "invalid-json", "a number starts with 0");
    }
    if (scan->at < scan->end && *scan->at == '.') {
        is_real = true;
        const char *fraction = ++scan->at;
        if (!scan_digits(scan, &mantissa, &digits)) return false;
        exponent = -(scan->at - fraction);
    }
    if (scan->at < scan->end && (*scan->at == 'e' || *scan->at == 'E')) {
        is_real = true;
        scan->at++;
        bool is_small = scan->at < scan->end && *scan->at == '-';
        if (is_small || (scan->at < scan->end && *scan->at == '+')) scan->at++;
        uint64_t power = 0;
        int power_digits = 0;
        if (!scan_digits(scan, &power, &power_digits)) return false;
        if (power_digits > 9) digits = INT32_MAX; /* leave it to strtod */
        else exponent += is_small ? -(int64_t)power : (int64_t)power;
    }
    if (is_real) {
        out->kind = FB_JSON_REAL;
        if (digits > 19 || !fast_real(mantissa, exponent, &out->real)) return slow_real(scan, begin, &out->real);
        if (is_negative) out->real = -out->real;
        return true;
    }
    out->kind = FB_JSON_INT;
    if (digits > 19 || mantissa > (uint64_t)INT64_MAX + is_negative) {
        scan->at = begin;
        return fail(scan, "number-out-of-range", "an integer does not fit 64 bits; in arguments it can be written as $int");
    }
    out->integer = (int64_t)(is_negative ? 0 - mantissa : mantissa);
    return true;
}
