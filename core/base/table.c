#include "core/base/table.h"

#include <stdlib.h>
#include <string.h>

static uint32_t segment_rows(uint32_t segment) {
    return 64U << segment;
}

static bool reach(fb_table *table, uint32_t id) {
    uint32_t segment = 31U - (uint32_t)__builtin_clz(id + 64) - 6;
    if (segment >= FB_TABLE_SEGMENTS) return false;
    if (!table->segments[segment]) table->segments[segment] = calloc(segment_rows(segment), table->row_size);
    return table->segments[segment] != NULL;
}

uint32_t fb_table_add(fb_table *table) {
    uint32_t id = table->count ? table->count : 1;
    if (id >= FB_TABLE_MOST || !reach(table, 0) || !reach(table, id)) return 0;
    table->count = id + 1;
    return id;
}

void fb_table_truncate(fb_table *table, uint32_t count) {
    for (uint32_t id = count; id < table->count; id++) memset(fb_table_at(table, id), 0, table->row_size);
    if (count < table->count) table->count = count;
}

bool fb_table_copy(fb_table *to, const fb_table *from) {
    *to = (fb_table){.count = from->count, .row_size = from->row_size};
    uint32_t left = from->count;
    for (uint32_t segment = 0; left > 0; segment++) {
        uint32_t rows = segment_rows(segment), used = left < rows ? left : rows;
        to->segments[segment] = calloc(rows, from->row_size);
        if (!to->segments[segment]) {
            fb_table_free(to);
            return false;
        }
        memcpy(to->segments[segment], from->segments[segment], (size_t)used * from->row_size);
        left -= used;
    }
    return true;
}

void fb_table_free(fb_table *table) {
    for (uint32_t segment = 0; segment < FB_TABLE_SEGMENTS; segment++) free(table->segments[segment]);
    *table = (fb_table){.row_size = table->row_size};
}
