/* "Did you mean …?" for a name that does not exist. */
#ifndef FB_BASE_SUGGEST_H
#define FB_BASE_SUGGEST_H

#include <stddef.h>

#define FB_SUGGESTED_MAX 80 /* characters: a graph's id */

typedef struct fb_suggestion {
    const char *word;
    char best[FB_SUGGESTED_MAX + 1]; /* "" while nothing is near enough */
    size_t distance;                 /* only what is nearer than this is taken */
} fb_suggestion;

fb_suggestion fb_suggest(const char *word);
/* Keeps the candidate when it is nearer than those before. Case does not count. */
void fb_suggest_try(fb_suggestion *suggestion, const char *candidate);

#endif
