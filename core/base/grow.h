/* Rows in one piece of memory, to which others are added one by one. */
#ifndef FB_BASE_GROW_H
#define FB_BASE_GROW_H

#include <stdbool.h>
#include <stddef.h>

/* Makes room for a row behind the `count` that are there: `rows` may move, and `capacity`, a size_t, be doubled. False when
 * memory is out; then all is as before. */
#define FB_GROW(rows, count, capacity) ((count) < (capacity) || fb_grow(&(rows), sizeof *(rows), &(capacity)))
bool fb_grow(void *rows, size_t row_size, size_t *capacity);

#endif
