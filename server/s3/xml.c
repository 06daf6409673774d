/* Elements of XML. */
#include <stdlib.h>
#include <string.h>

#include "server/s3/internal.h"

static size_t unescape(const char *text, char *to) {
    static const struct {
        const char *name;
        char is;
    } entities[] = {{"&amp;", '&'},   {"&lt;", '<'},  {"&gt;", '>'},  {"&quot;", '"'},
                    {"&apos;", '\''}, {"&#34;", '"'}, {"&#39;", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++) {
        size_t length = strlen(entities[i].name);
        if (strncmp(text, entities[i].name, length) != 0) continue;
        *to = entities[i].is;
        return length;
    }
    *to = *text;
    return 1;
}

char *fb_s3_xml_text(const char **at, const char *end, const char *name) {
    const char *inside;
    size_t size, length = 0;
    if (!fb_s3_xml_find(at, end, name, &inside, &size)) return NULL;
    char *raw = strndup(inside, size), *out = malloc(size + 1);
    for (const char *text = raw; raw && out && *text;) text += unescape(text, &out[length++]);
    if (raw && out) out[length] = '\0';
    else free(out), out = NULL;
    free(raw);
    return out;
}

/* "<name>" or "<name attribute…>", from `at` on. */
static const char *find_tag(const char *at, const char *end, const char *name, size_t length) {
    for (; (at = memchr(at, '<', (size_t)(end - at))); at++) {
        if ((size_t)(end - at) <= length + 1) return NULL;
        if (strncmp(at + 1, name, length) != 0) continue;
        if (at[length + 1] == '>' || at[length + 1] == ' ') return at;
    }
    return NULL;
}

/* Finds the next such element and gives what is inside it. */
bool fb_s3_xml_find(const char **at, const char *end, const char *name, const char **inside, size_t *size) {
    size_t length = strlen(name);
    const char *tag = find_tag(*at, end, name, length);
    const char *begin = tag ? memchr(tag, '>', (size_t)(end - tag)) : NULL;
    for (const char *close = begin; close && (close = memchr(close, '<', (size_t)(end - close))); close++) {
        if ((size_t)(end - close) < length + 3) return false;
        if (close[1] != '/' || strncmp(close + 2, name, length) != 0 || close[length + 2] != '>') continue;
        *inside = begin + 1;
        *size = (size_t)(close - begin) - 1;
        *at = close + length + 3;
        return true;
    }
    return false;
}
