#include "core/base/base64.h"

/* A digit's number and 1; 0 is not a digit. */
static const unsigned char digits[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,  ['I'] = 9,  ['J'] = 10,
    ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16, ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20,
    ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24, ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30,
    ['e'] = 31, ['f'] = 32, ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48, ['w'] = 49, ['x'] = 50,
    ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56, ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60,
    ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64};

static unsigned digit(char c) {
    return digits[(unsigned char)c] - 1U;
}

static size_t padding_of(const char *text, size_t length) {
    return length && text[length - 1] == '=' ? 1U + (text[length - 2] == '=') : 0;
}

bool fb_is_base64(const char *text, size_t length) {
    if (length % 4) return false;
    size_t padding = padding_of(text, length), count = length - padding, bad = 0;
    for (size_t i = 0; i < count; i++) bad += !digits[(unsigned char)text[i]];
    if (bad) return false;
    return padding == 0 || digit(text[count - 1]) % (1U << (2 * padding)) == 0;
}

size_t fb_base64_size(const char *text, size_t length) {
    return length / 4 * 3 - padding_of(text, length);
}

void fb_base64_decode(const char *text, size_t start, size_t count, unsigned char *out) {
    const char *group = text + start / 3 * 4; /* four digits for three bytes: each byte is spread over two of them */
    size_t byte = start % 3;
    for (size_t i = 0; i < count; i++) {
        out[i] = (unsigned char)(digit(group[byte]) << (2 * byte + 2) | digit(group[byte + 1]) >> (4 - 2 * byte));
        byte = byte == 2 ? 0 : byte + 1;
        if (byte == 0) group += 4;
    }
}

void fb_base64_encode(const unsigned char *bytes, size_t count, char *out) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < count; i += 3) {
        unsigned group = (unsigned)bytes[i] << 16;
        if (i + 1 < count) group |= (unsigned)bytes[i + 1] << 8;
        if (i + 2 < count) group |= bytes[i + 2];
        *out++ = letters[group >> 18];
        *out++ = letters[group >> 12 & 63];
        *out++ = i + 1 < count ? letters[group >> 6 & 63] : '=';
        *out++ = i + 2 < count ? letters[group & 63] : '=';
    }
}
