/* The nodes of a graph, or of a run's two graphs, that a few words describe. */
#ifndef FB_PICTURE_SEARCH_H
#define FB_PICTURE_SEARCH_H

#include "core/base/buffer.h"
#include "core/picture/rows.h"

#define FB_SEARCH_WORDS 16

typedef struct fb_search {
    const char *words[FB_SEARCH_WORDS]; /* in the arena, of small letters */
    size_t sizes[FB_SEARCH_WORDS];
    size_t count;
} fb_search;

/* Splits a text at its spaces; what is beyond FB_SEARCH_WORDS does not count. False when memory is out. */
bool fb_search_read(const char *text, fb_arena *arena, fb_search *out);

/* Appends what can be found of a row, in small letters: the node's name, target, opcode, module, its module's type and dtype,
 * in both graphs where they differ. In two graphs also "changed" of each row that is not kept, and "added" or "removed". */
void fb_search_text_write(const fb_drawn_rows *rows, const fb_drawn *row, fb_buffer *out);

/* Is each word in the text? "refused" is also found where the caller says so. */
bool fb_search_finds(const fb_search *search, const char *text, size_t size, bool is_refused);

#endif
