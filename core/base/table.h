/* A growing table of rows whose addresses never change: segments of 64, 128, 256, … rows. Row 0 is never handed out, so an id
 * of 0 can mean "none".
 *
 * Records of different lengths are stored in a table of small rows, a run of them each, and have the id of their first one. */
#ifndef FB_BASE_TABLE_H
#define FB_BASE_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/work.h"

#define FB_TABLE_SEGMENTS 26
#define FB_TABLE_NO_RUN 4U
#define FB_TABLE_MOST (1U << 30) /* ids are below this, so that their upper bits can mean something */

typedef struct fb_table {
    void *segments[FB_TABLE_SEGMENTS];
    uint32_t count;    /* rows handed out, row 0 included once the first is */
    uint32_t row_size; /* bytes */
} fb_table;

/* A row's address, by callers that know a row's size, which makes it a shift or two. */
static inline void *fb_table_row(const fb_table *table, uint32_t id, size_t row_size) {
    uint32_t shifted = id + 64;
    uint32_t top = 31U - (uint32_t)__builtin_clz(shifted);
    return (char *)table->segments[top - 6] + (size_t)(shifted ^ (1U << top)) * row_size;
}

static inline void *fb_table_at(const fb_table *table, uint32_t id) {
    return fb_table_row(table, id, table->row_size);
}

/* A new row's id, or 0 when memory is out. The caller writes the row whole. */
uint32_t fb_table_add(fb_table *table);
/* The same for `count` consecutive rows. Such a table has FB_TABLE_NO_RUN rows of zeros at its beginning. */
uint32_t fb_table_add_run_elsewhere(fb_table *table, uint32_t count);
static inline uint32_t fb_table_add_run(fb_table *table, uint32_t count) {
    uint32_t id = table->count, last = id + count + 63;
    bool fits = id && last < FB_TABLE_MOST && __builtin_clz(id + 64) == __builtin_clz(last) &&
                table->segments[25 - __builtin_clz(last)]; /* behind those that there are, in their segment */
    if (!fits) return fb_table_add_run_elsewhere(table, count);
    table->count = id + count;
    return id;
}
/* Forgets the rows from `count` on; their memory stays. */
void fb_table_truncate(fb_table *table, uint32_t count);
/* False: memory is out, or the work was stopped; `to` is empty then. */
bool fb_table_copy(fb_table *to, const fb_table *from, fb_work *work);
void fb_table_free(fb_table *table);

#endif
