/* How names, targets and types may be spelled. Generated code holds them as they are, so this is what keeps a document from
 * injecting text into it. */
#include <string.h>

#include "core/document/read.h"
#include "core/graph/python.h"

const char *fb_wrong_word(const char *text, size_t length) {
    return fb_python_is_identifier(text, length) ? NULL : "is not a Python identifier";
}

const char *fb_wrong_identifier(const char *text, size_t length) {
    if (!fb_python_is_identifier(text, length)) return "is not a Python identifier";
    return fb_python_word(text, length) == FB_WORD_KEYWORD ? "is a Python keyword" : NULL;
}

const char *fb_wrong_dotted(const char *text, size_t length) {
    return fb_python_is_dotted(text, length) ? NULL : "is not made of Python identifiers and dots";
}

#define EACH_BYTE(c) (0x0101010101010101ULL * (c))

/* Control characters of ASCII and Latin-1, and Unicode's line and paragraph separators. */
static bool has_control(const char *text, size_t length) {
    size_t i = 0;
    /* Eight bytes in which no byte is less than a space, more than ~, or not ASCII. */
    for (uint64_t word; length - i >= sizeof word; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        if ((word | (word - EACH_BYTE(0x20)) | (word + EACH_BYTE(1))) & EACH_BYTE(0x80)) break;
    }
    for (; i < length; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c < 0x7F) continue;
        if (c < 0x20 || c == 0x7F) return true;
        if (c == 0xC2 && i + 1 < length && (unsigned char)text[i + 1] < 0xA0) return true;
        if (c == 0xE2 && i + 2 < length &&
            (memcmp(text + i, "\xE2\x80\xA8", 3) == 0 || memcmp(text + i, "\xE2\x80\xA9", 3) == 0)) {
            return true;
        }
    }
    return false;
}

const char *fb_wrong_label(const char *text, size_t length) {
    if (length == 0) return "is empty";
    return has_control(text, length) ? "has a control character" : NULL;
}

const char *fb_wrong_path(const char *text, size_t length) {
    const char *wrong = fb_wrong_label(text, length);
    if (wrong) return wrong;
    char before = '.';
    for (size_t i = 0; i < length; before = text[i++]) {
        if (text[i] == '\'' || text[i] == '"' || text[i] == '\\') return "has a quote or a backslash";
        if (text[i] == '.' && before == '.') return "has an empty part";
    }
    return before == '.' ? "has an empty part" : NULL;
}

const char *fb_wrong_attribute(const char *text, size_t length) {
    if (memchr(text, '.', length)) return "has a dot";
    return fb_wrong_path(text, length);
}

const char *fb_wrong_device(const char *text, size_t length) {
    const char *colon = memchr(text, ':', length);
    size_t word = colon ? (size_t)(colon - text) : length;
    bool is_right = fb_python_is_identifier(text, word) && (!colon || word + 1 < length);
    for (size_t i = word + 1; i < length; i++) is_right &= text[i] >= '0' && text[i] <= '9';
    return is_right ? NULL : "is not a device: a word, perhaps with a colon and a number";
}

static bool is_word_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || (unsigned char)c >= 0x80;
}

const char *fb_wrong_symbolic_size(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        bool is_known = (is_word_byte(text[i]) && (unsigned char)text[i] < 0x80) || (text[i] && strchr("+*/()%-. ,", text[i]));
        if (!is_known) return "is not a symbolic size";
    }
    return length ? NULL : "is not a symbolic size";
}

/* Words, dots, commas, bars, spaces and balanced brackets; no two words side by side, and no keyword but None, so that an
 * annotation stays one expression that calls nothing. */
const char *fb_wrong_annotation(const char *text, size_t length) {
    static const char wrong[] = "is not a type: dotted identifiers, brackets, commas, bars, dots and spaces";
    size_t open = 0;
    bool after_word = false;
    if (length == 0) return wrong;
    for (size_t i = 0; i < length;) {
        size_t word = 0;
        while (i + word < length && is_word_byte(text[i + word])) word++;
        if (word) {
            bool is_none = word == 4 && memcmp(text + i, "None", 4) == 0;
            if (after_word || (!is_none && fb_wrong_identifier(text + i, word))) return wrong;
            after_word = true;
            i += word;
            continue;
        }
        char c = text[i++];
        if (c == ' ') continue;
        after_word = false;
        if (c == '[') open++;
        else if (c == ']' && open > 0) open--;
        else if (c != ',' && c != '|' && c != '.') return wrong;
    }
    return open ? wrong : NULL;
}

/* How many bytes of a string to show in a message: whole characters, for %.*s. */
static int excerpt(const fb_json *string) {
    size_t length = string->count < 200 ? string->count : 200;
    while (length < string->count && length > 0 && ((unsigned char)string->text[length] & 0xC0U) == 0x80U) length--;
    return (int)length;
}

bool fb_check_spelling(fb_reader *reader, const fb_json *string, fb_spelling *wrong, const char *code) {
    const char *message = wrong(string->text, string->count);
    if (message) fb_reader_error(reader, string, code, "\"%.*s\" %s", excerpt(string), string->text, message);
    return !message;
}
