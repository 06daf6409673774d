/* The tables with a store's content, as the database describes them, and the SQL that walks their rows. */
#ifndef FB_STORE_TABLES_H
#define FB_STORE_TABLES_H

#include "core/base/buffer.h"
#include "server/database/query.h"

enum { FB_COLUMNS_MAX = 32, FB_TABLE_NAME_MAX = 64, FB_KEYS_MAX = 4 };

typedef struct fb_sql_column {
    char name[FB_TABLE_NAME_MAX];
    char type;    /* I, T or B: INTEGER, TEXT, BLOB */
    size_t place; /* in the primary key, from 1; 0: it is not in it */
} fb_sql_column;

typedef struct fb_sql_table {
    char name[FB_TABLE_NAME_MAX];
    fb_sql_column columns[FB_COLUMNS_MAX];
    size_t count;
    size_t key[FB_KEYS_MAX], key_count; /* columns of the primary key, in its order */
    size_t rows_at_once;
    char *first, *next, *last, *insert; /* SQL */
} fb_sql_table;

/* Appends each fb_sql_table, behind the tables that it refers to: as they were made. Also after an error `tables` is to be
 * freed.
 */
fb_status fb_tables_read(fb_connection *connection, fb_buffer *tables, fb_error *error);
void fb_tables_free(fb_buffer *tables);

#endif
