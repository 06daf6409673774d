#include "core/base/base64.h"

#include <string.h>

enum { NO_DIGIT = 64 };

static void find_digits(unsigned char digits[256]) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    memset(digits, NO_DIGIT, 256);
    for (unsigned char i = 0; i < NO_DIGIT; i++) digits[(unsigned char)alphabet[i]] = i;
}

static size_t padding_of(const char *text, size_t length) {
    return length && text[length - 1] == '=' ? 1U + (text[length - 2] == '=') : 0;
}

bool fb_is_base64(const char *text, size_t length) {
    unsigned char digits[256];
    if (length % 4) return false;
    find_digits(digits);
    size_t padding = padding_of(text, length), count = length - padding, bad = 0;
    for (size_t i = 0; i < count; i++) bad += digits[(unsigned char)text[i]] == NO_DIGIT;
    if (bad) return false;
    unsigned last = padding ? digits[(unsigned char)text[count - 1]] : 0;
    return last % (1U << (2 * padding)) == 0;
}

size_t fb_base64_size(const char *text, size_t length) {
    return length / 4 * 3 - padding_of(text, length);
}

void fb_base64_decode(const char *text, size_t length, unsigned char *out) {
    unsigned char digits[256];
    find_digits(digits);
    size_t size = fb_base64_size(text, length);
    for (size_t i = 0, at = 0; at < size; i += 4) {
        unsigned group = 0;
        for (size_t k = 0; k < 4; k++) group = group << 6 | (digits[(unsigned char)text[i + k]] % NO_DIGIT);
        for (unsigned shift = 16; at < size && shift <= 16; shift -= 8) out[at++] = (unsigned char)(group >> shift);
    }
}
