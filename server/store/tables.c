#include "server/store/tables.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_AT_ONCE 1000
#define LARGE_ROWS_AT_ONCE 16 /* of a table with a column of bytes */

/* Tables that a copy leaves out, as they are not the store's content: what replicas know of each other, and what is of one
 * place. The last two are empty. */
static const char *const left_out[] = {"notes",     "replicas",   "requests",      "claims",
                                       "collected", "audit_trim", "unread_graphs", "unread_jobs"};

void fb_tables_free(fb_buffer *tables) {
    fb_sql_table *all = (fb_sql_table *)(void *)tables->data;
    for (size_t i = 0; i < tables->size / sizeof *all; i++) {
        free(all[i].first);
        free(all[i].next);
        free(all[i].last);
        free(all[i].insert);
    }
    fb_buffer_free(tables);
}

static void write_names(fb_buffer *out, const fb_sql_table *of, bool is_key, const char *behind) {
    size_t count = is_key ? of->key_count : of->count;
    for (size_t i = 0; i < count; i++)
        fb_buffer_printf(out, "%s\"%s\"%s", i ? ", " : "", of->columns[is_key ? of->key[i] : i].name, behind);
}

static void write_marks(fb_buffer *out, size_t count) {
    for (size_t i = 0; i < count; i++) fb_buffer_string(out, i ? ", ?" : "?");
}

static char *select_rows(const fb_sql_table *of, bool is_next) {
    fb_buffer out = {0};
    fb_buffer_string(&out, "SELECT ");
    write_names(&out, of, false, "");
    fb_buffer_printf(&out, " FROM %s", of->name);
    if (is_next) {
        fb_buffer_string(&out, " WHERE (");
        write_names(&out, of, true, "");
        fb_buffer_string(&out, ") > (");
        write_marks(&out, of->key_count);
        fb_buffer_string(&out, ")");
    }
    fb_buffer_string(&out, " ORDER BY ");
    write_names(&out, of, true, "");
    fb_buffer_printf(&out, " LIMIT %zu", of->rows_at_once);
    return fb_buffer_take(&out, NULL);
}

static char *select_last(const fb_sql_table *of) {
    fb_buffer out = {0};
    fb_buffer_string(&out, "SELECT ");
    write_names(&out, of, true, "");
    fb_buffer_printf(&out, " FROM %s ORDER BY ", of->name);
    write_names(&out, of, true, " DESC");
    fb_buffer_string(&out, " LIMIT 1");
    return fb_buffer_take(&out, NULL);
}

static char *insert_row(const fb_sql_table *of) {
    fb_buffer out = {0};
    fb_buffer_printf(&out, "INSERT INTO %s (", of->name);
    write_names(&out, of, false, "");
    fb_buffer_string(&out, ") VALUES (");
    write_marks(&out, of->count);
    fb_buffer_string(&out, ")");
    return fb_buffer_take(&out, NULL);
}

static fb_status complete_table(fb_sql_table *of, fb_error *error) {
    of->rows_at_once = ROWS_AT_ONCE;
    for (size_t i = 0; i < of->count; i++) {
        if (of->columns[i].type == 'B') of->rows_at_once = LARGE_ROWS_AT_ONCE;
        if (!of->columns[i].place || of->columns[i].place > FB_KEYS_MAX) continue;
        of->key[of->columns[i].place - 1] = i;
        of->key_count++;
    }
    of->first = select_rows(of, false);
    of->next = select_rows(of, true);
    of->last = select_last(of);
    of->insert = insert_row(of);
    return of->first && of->next && of->last && of->insert ? FB_OK : fb_fail_memory(error);
}

static bool is_left_out(const char *name) {
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strcmp(left_out[i], name) == 0) return true;
    return false;
}

static fb_status add_column(fb_buffer *tables, fb_query *query, fb_error *error) {
    const char *name = fb_column_text(query, 0);
    fb_sql_table *all = (fb_sql_table *)(void *)tables->data;
    size_t count = tables->size / sizeof *all;
    if (!count || strcmp(all[count - 1].name, name) != 0) {
        fb_sql_table new = {0};
        fb_copy_text(new.name, sizeof new.name, name);
        fb_buffer_append(tables, &new, sizeof new);
        if (tables->failed) return fb_fail_memory(error);
        all = (fb_sql_table *)(void *)tables->data;
        count++;
    }
    fb_sql_table *of = &all[count - 1];
    if (of->count == FB_COLUMNS_MAX)
        return fb_fail(error, FB_IO, "store-failed", NULL, "the table %s has too many columns", name);
    fb_sql_column *one = &of->columns[of->count++];
    fb_copy_text(one->name, sizeof one->name, fb_column_text(query, 1));
    one->type = *fb_column_text(query, 2);
    one->place = (size_t)fb_column_int(query, 3);
    return FB_OK;
}

fb_status fb_tables_read(fb_connection *connection, fb_buffer *tables, fb_error *error) {
    fb_query query = fb_query_begin(connection, fb_sql_columns(connection), error);
    while (fb_query_row(&query))
        if (!is_left_out(fb_column_text(&query, 0))) query.status = add_column(tables, &query, error);
    fb_status status = fb_query_end(&query);
    fb_sql_table *all = (fb_sql_table *)(void *)tables->data;
    for (size_t i = 0; i < tables->size / sizeof *all && !status; i++) status = complete_table(&all[i], error);
    return status;
}
