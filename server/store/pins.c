/* Pins: runs that retention keeps. */
#include <stdio.h>

#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/retention.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

typedef struct pin_write {
    const char *run, *note;
    const fb_store_actor *by;
    int64_t now;
    bool is_new;
    fb_store_pin pin;
} pin_write;

static fb_status need_run(fb_connection *connection, const char *run, int64_t *key, fb_error *error) {
    fb_status status = fb_find_run(connection, run, key, error);
    return status || *key ? status : fb_fail_unknown_run(error, run);
}

static fb_status fail_not_pinned(fb_error *error, const char *run) {
    return fb_fail(error, FB_NOT_FOUND, "not-pinned", NULL, "the run %s is not pinned", run);
}

static fb_status read_pin(fb_connection *connection, const char *run, fb_store_pin *out, fb_error *error) {
    int64_t key = 0;
    fb_status status = need_run(connection, run, &key, error);
    if (status) return status;
    *out = (fb_store_pin){0};
    fb_query query = fb_query_begin(connection, "SELECT note, created FROM pins WHERE run = ?", error);
    fb_bind_int(&query, key);
    bool is_pinned = fb_query_row(&query);
    if (is_pinned) {
        snprintf(out->run, sizeof out->run, "%s", run);
        out->note = fb_copy_optional(&query, 0, &out->memory, &query.status);
        out->created = fb_column_int(&query, 1);
    }
    status = fb_query_end(&query);
    if (!status && !is_pinned) status = fail_not_pinned(error, run);
    if (status) FB_STORE_FREE(out);
    return status;
}

fb_status fb_store_get_pin(fb_store *store, const char *run, fb_store_pin *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = read_pin(connection, run, out, error);
    fb_readers_give_back(&store->readers, connection);
    return status;
}

/* *is_same: it is there with that note. */
static fb_status find_pin(fb_connection *connection, int64_t run, const char *note, int64_t *key, bool *is_same,
                          fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key, note IS NOT DISTINCT FROM ?2 FROM pins WHERE run = ?1", error);
    fb_bind_int(&query, run);
    fb_bind_text(&query, note);
    if (fb_query_row(&query)) {
        *key = fb_column_int(&query, 0);
        *is_same = fb_column_int(&query, 1) != 0;
    }
    return fb_query_end(&query);
}

static fb_status write_pin(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    pin_write *write = argument;
    int64_t key = 0, before = 0;
    FB_STORE_FREE(&write->pin);
    fb_status status = need_run(connection, write->run, &key, error);
    if (status) return status;
    bool is_same = false;
    status = find_pin(connection, key, write->note, &before, &is_same, error);
    write->is_new = !before;
    if (status || is_same) return status ? status : read_pin(connection, write->run, &write->pin, error);
    fb_query query = fb_query_begin(
        connection,
        "INSERT INTO pins (run, note, created) VALUES (?, ?, ?) ON CONFLICT (run) DO UPDATE SET note = excluded.note", error);
    fb_bind_int(&query, key);
    fb_bind_text(&query, write->note);
    fb_bind_int(&query, write->now);
    status = fb_query_run(&query);
    if (!status) status = fb_write_audit(connection, write->by, write->now, "pin", write->run, "pinned", error);
    return status ? status : read_pin(connection, write->run, &write->pin, error);
}

fb_status fb_store_put_pin(fb_store *store, const char *run, const char *note, const fb_store_actor *by, bool *is_new,
                           fb_store_pin *out, fb_error *error) {
    pin_write write = {.run = run, .note = note, .by = by, .now = store->config.now_ms()};
    fb_status status = fb_writer_run(&store->writer, write_pin, &write, error);
    if (status) {
        FB_STORE_FREE(&write.pin);
        return status;
    }
    *is_new = write.is_new;
    *out = write.pin;
    return FB_OK;
}

static fb_status write_unpin(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    pin_write *write = argument;
    int64_t key = 0;
    fb_status status = need_run(connection, write->run, &key, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "DELETE FROM pins WHERE run = ?", error);
    fb_bind_int(&query, key);
    status = fb_query_run(&query);
    if (!status && !fb_changed_rows(connection)) return fail_not_pinned(error, write->run);
    return status ? status : fb_write_audit(connection, write->by, write->now, "unpin", write->run, "no longer pinned", error);
}

fb_status fb_store_delete_pin(fb_store *store, const char *run, const fb_store_actor *by, fb_error *error) {
    pin_write write = {.run = run, .by = by, .now = store->config.now_ms()};
    return fb_writer_make_room(&store->writer, write_unpin, NULL, &write, error);
}
