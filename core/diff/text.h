/* Canonical JSON text as data: the members of an object and the items of an array as spans, without a tree.
 *
 * Rows of documents are compared and merged as canonical text: there two values are equal when their bytes are. Only canonical
 * text (document.h) is read by these functions; they check nothing. */
#ifndef FB_DIFF_TEXT_H
#define FB_DIFF_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "core/base/buffer.h"

typedef struct fb_span {
    const char *text; /* not terminated; NULL = absent */
    size_t size;
} fb_span;

bool fb_span_equal(fb_span a, fb_span b); /* both absent, or the same bytes */
fb_span fb_span_of(const char *text);
/* Compares two values regardless of the order of their objects' members, which kwargs, parameters and buffers keep as given. In
 * time n log n, and linear where the order is the same. Sets *failed, which must be false, when memory is out. */
bool fb_span_alike(fb_span a, fb_span b, bool *failed);

/* Walks over an object's members or an array's items: start with *cursor = 0 and call until false comes back. `key` is the
 * member's name as it is spelled between its quotes, absent for an array's item. `key` may be NULL. */
bool fb_span_next(fb_span container, size_t *cursor, fb_span *key, fb_span *value);

/* The member of a row that a pointer of one or two tokens names: "/target", "/args/1", "/kwargs/dim", "/parameters/weight".
 * Absent when the row lacks that member. Tokens are escaped as JSON Pointers are, over the spelling in JSON. */
fb_span fb_span_at(fb_span row, const char *pointer);

/* Appends `row` with each pointer's value exchanged: absent = the member is taken away; a member that is not there is added at
 * its container's end, which is made if it is not there. Items of arrays are exchanged, never added or taken away: false when a
 * value found no place, for such a reason. */
typedef struct fb_change {
    const char *pointer;
    fb_span value;
} fb_change;
bool fb_span_write_changed(fb_span row, const fb_change *changes, size_t count, fb_buffer *out);

/* The text of a string value without its quotes, its escapes undone; NULL when memory is out. */
char *fb_span_unquote(fb_span value);

#endif
