/* "Did you mean …?" for a name that does not exist. */
#ifndef FB_CLI_SUGGEST_H
#define FB_CLI_SUGGEST_H

#include <stddef.h>

typedef struct fb_suggestion {
    const char *word, *best; /* best is NULL while nothing is near enough */
    size_t distance;         /* only what is nearer than this is taken */
} fb_suggestion;

fb_suggestion fb_suggest(const char *word);
/* Keeps the candidate (borrowed) when it is nearer than those before. Case does not count. */
void fb_suggest_try(fb_suggestion *suggestion, const char *candidate);

#endif
