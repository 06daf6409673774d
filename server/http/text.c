/* Small text functions of HTTP: percent-decoding, list elements, quality values. */
#include "server/http/internal.h"

#include <string.h>
#include <strings.h>

bool fb_text_is_utf8(const char *text, size_t size) {
    const unsigned char *p = (const unsigned char *)text, *end = p + size;
    while (p < end) {
        if (*p < 0x80) {
            p++;
            continue;
        }
        size_t length = *p >= 0xc2 && *p <= 0xdf ? 2 : (*p & 0xf0) == 0xe0 ? 3 : *p >= 0xf0 && *p <= 0xf4 ? 4 : 0;
        if (!length || (size_t)(end - p) < length) return false;
        for (size_t i = 1; i < length; i++)
            if ((p[i] & 0xc0) != 0x80) return false;
        /* overlong forms, surrogates, beyond U+10FFFF */
        if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) || (*p == 0xf0 && p[1] < 0x90) ||
            (*p == 0xf4 && p[1] > 0x8f))
            return false;
        p += length;
    }
    return true;
}

bool fb_text_is_token(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool is_word = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_word && (c == '\0' || !strchr("!#$%&'*+-.^_`|~", c))) return false;
    }
    return size > 0;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool fb_text_decode(char *text, size_t size, bool plus, bool is_segment) {
    size_t written = 0;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == '%') {
            if (size - i < 3 || hex_digit(text[i + 1]) < 0 || hex_digit(text[i + 2]) < 0) return false;
            c = (char)(hex_digit(text[i + 1]) * 16 + hex_digit(text[i + 2]));
            if (is_segment && c == '/') return false;
            i += 2;
        } else if (plus && c == '+') {
            c = ' ';
        }
        bool is_control = (unsigned char)c < 0x20 || c == 0x7f;
        bool is_allowed = !is_segment && (c == '\t' || c == '\n' || c == '\r');
        if (is_control && !is_allowed) return false;
        text[written++] = c;
    }
    text[written] = '\0';
    return fb_text_is_utf8(text, written);
}

bool fb_text_next_element(const char **cursor, const char **element, size_t *size) {
    const char *p = *cursor;
    while (*p == ' ' || *p == '\t' || *p == ',') p++;
    if (!*p) return false;
    const char *start = p;
    bool is_quoted = false;
    for (; *p && (is_quoted || *p != ','); p++) {
        if (*p == '"') is_quoted = !is_quoted;
        if (*p == '\\' && is_quoted && p[1]) p++;
    }
    const char *end = p;
    while (end > start && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *cursor = p;
    *element = start;
    *size = (size_t)(end - start);
    return true;
}

int fb_text_quality(const char *element, size_t size, size_t *value_size) {
    const char *end = element + size, *parameter = memchr(element, ';', size);
    const char *value_end = parameter ? parameter : end;
    while (value_end > element && (value_end[-1] == ' ' || value_end[-1] == '\t')) value_end--;
    *value_size = (size_t)(value_end - element);
    while (parameter) {
        const char *p = parameter + 1;
        while (p < end && (*p == ' ' || *p == '\t')) p++;
        if (end - p >= 3 && (*p == 'q' || *p == 'Q') && p[1] == '=') {
            int quality = p[2] == '1' ? 1000 : 0, unit = 100;
            if (p[2] == '0' && end - p >= 4 && p[3] == '.')
                for (p += 4; p < end && *p >= '0' && *p <= '9' && unit; p++, unit /= 10) quality += (*p - '0') * unit;
            return quality;
        }
        parameter = p < end ? memchr(p, ';', (size_t)(end - p)) : NULL;
    }
    return 1000;
}

bool fb_text_list_has(const char *list, const char *name, size_t name_size) {
    const char *element;
    size_t size;
    while (fb_text_next_element(&list, &element, &size))
        if (size == name_size && !strncasecmp(element, name, size)) return true;
    return false;
}
