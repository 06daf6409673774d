#include "core/base/table.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"

static uint32_t segment_rows(uint32_t segment) {
    return 64U << segment;
}

static void *new_segment(uint32_t segment, uint32_t row_size) {
    return fb_large_block((size_t)segment_rows(segment) * row_size);
}

/* The first id in it. */
static uint32_t first_of(uint32_t segment) {
    return segment_rows(segment) - 64;
}

static uint32_t segment_of(uint32_t id) {
    return 25U - (uint32_t)__builtin_clz(id + 64);
}

static bool reach(fb_table *table, uint32_t segment) {
    if (segment >= FB_TABLE_SEGMENTS) return false;
    if (!table->segments[segment]) table->segments[segment] = new_segment(segment, table->row_size);
    return table->segments[segment] != NULL;
}

uint32_t fb_table_add(fb_table *table) {
    if (!table->count) { /* row 0, which means none, is all zero */
        if (!reach(table, 0)) return 0;
        memset(table->segments[0], 0, table->row_size);
        table->count = 1;
    }
    uint32_t id = table->count;
    if (id >= FB_TABLE_MOST || !reach(table, segment_of(id))) return 0;
    table->count++;
    return id;
}

/* The rest of a segment that is too short for the run stays empty. */
uint32_t fb_table_add_run_elsewhere(fb_table *table, uint32_t count) {
    if (!table->count) {
        if (!reach(table, 0)) return 0;
        memset(table->segments[0], 0, FB_TABLE_NO_RUN * (size_t)table->row_size);
        table->count = FB_TABLE_NO_RUN;
    }
    uint32_t id = table->count, segment = segment_of(id);
    for (; id < FB_TABLE_MOST && (uint64_t)id + count > first_of(segment + 1); segment++) id = first_of(segment + 1);
    if (id >= FB_TABLE_MOST || !reach(table, segment)) return 0;
    table->count = id + count;
    return id;
}

void fb_table_truncate(fb_table *table, uint32_t count) {
    if (count < table->count) table->count = count;
}

#define COPIED_AT_ONCE ((size_t)1 << 20) /* bytes; a fraction of a millisecond */

static bool copy_rows(void *to, const void *from, size_t size, fb_work *work) {
    for (size_t at = 0; at < size; at += COPIED_AT_ONCE) {
        if (!fb_work_goes_on(work, FB_WORK_UNASKED / 4)) return false;
        memcpy((char *)to + at, (const char *)from + at, size - at < COPIED_AT_ONCE ? size - at : COPIED_AT_ONCE);
    }
    return true;
}

bool fb_table_copy(fb_table *to, const fb_table *from, fb_work *work) {
    *to = (fb_table){.count = from->count, .row_size = from->row_size};
    uint32_t left = from->count;
    for (uint32_t segment = 0; left > 0; segment++) {
        uint32_t rows = segment_rows(segment), used = left < rows ? left : rows;
        left -= used;
        if (!from->segments[segment]) continue; /* too short for a run */
        to->segments[segment] = new_segment(segment, from->row_size);
        size_t size = (size_t)used * from->row_size;
        if (!to->segments[segment] || !copy_rows(to->segments[segment], from->segments[segment], size, work)) {
            fb_table_free(to);
            return false;
        }
    }
    return true;
}

void fb_table_free(fb_table *table) {
    for (uint32_t segment = 0; segment < FB_TABLE_SEGMENTS; segment++) free(table->segments[segment]);
    *table = (fb_table){.row_size = table->row_size};
}
