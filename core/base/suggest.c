#include "core/base/suggest.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define FURTHEST 4
#define BEGINNING 3 /* characters that are enough of a name */

fb_suggestion fb_suggest(const char *word) {
    size_t length = strlen(word);
    return (fb_suggestion){.word = word, .distance = length / 2 + 1 < FURTHEST ? length / 2 + 1 : FURTHEST};
}

/* Levenshtein's distance, one row at a time; `b` has at most FB_SUGGESTED_MAX characters. */
static size_t distance(const char *a, const char *b) {
    size_t row[FB_SUGGESTED_MAX + 1], width = strlen(b);
    for (size_t j = 0; j <= width; j++) row[j] = j;
    for (size_t i = 1; *a; i++, a++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= width; j++) {
            size_t change = diagonal + (tolower((unsigned char)*a) != tolower((unsigned char)b[j - 1]));
            size_t shorter = row[j - 1] + 1, longer = row[j] + 1;
            diagonal = row[j];
            row[j] = change < shorter ? change : shorter;
            if (longer < row[j]) row[j] = longer;
        }
    }
    return row[width];
}

void fb_suggest_try(fb_suggestion *suggestion, const char *candidate) {
    if (strcmp(candidate, suggestion->word) == 0) return; /* it is there, and was refused */
    if (strlen(candidate) > FB_SUGGESTED_MAX || strlen(suggestion->word) > FB_SUGGESTED_MAX) return;
    size_t length = strlen(suggestion->word), found = distance(suggestion->word, candidate);
    if (length >= BEGINNING && strncasecmp(suggestion->word, candidate, length) == 0) found = 1; /* "tls-cert" */
    if (found >= suggestion->distance) return;
    suggestion->distance = found;
    strcpy(suggestion->best, candidate);
}
