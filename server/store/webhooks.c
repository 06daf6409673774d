/* Webhooks: who gets which events. */
#include "server/store/webhooks.h"

#include <stdio.h>
#include <string.h>

#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

static fb_status read_webhook(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    fb_store_webhook *out = item;
    fb_query query = fb_query_begin(
        connection,
        "SELECT id, url, events, models, note, is_enabled, created, changed, old_secret_until, "
        "(SELECT count(*) FROM webhook_deliveries WHERE webhook = ?1 AND state = 'pending'), "
        "(SELECT count(*) FROM webhook_deliveries WHERE webhook = ?1 AND state = 'parked'), who, " FB_SQL_WEBHOOK_ENDS
        " FROM webhooks WHERE key = ?1",
        error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->id = fb_copy_column(&query, 0, memory, &query.status);
        out->url = fb_copy_column(&query, 1, memory, &query.status);
        out->events = fb_copy_column(&query, 2, memory, &query.status);
        out->models = fb_copy_column(&query, 3, memory, &query.status);
        out->note = fb_copy_optional(&query, 4, memory, &query.status);
        out->is_enabled = fb_column_int(&query, 5) != 0;
        out->created = fb_column_int(&query, 6);
        out->changed = fb_column_int(&query, 7);
        out->old_secret_until = fb_column_int(&query, 8); /* 0 when it is NULL */
        out->pending = (uint64_t)fb_column_int(&query, 9);
        out->parked = (uint64_t)fb_column_int(&query, 10);
        out->who = fb_copy_optional(&query, 11, memory, &query.status);
        out->ends = fb_column_int(&query, 12); /* likewise */
    }
    return fb_query_end(&query);
}

fb_status fb_need_webhook(fb_connection *connection, const char *id, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM webhooks WHERE id = ?1", error);
    fb_bind_text(&query, id);
    fb_status status = fb_read_key(&query, key);
    return !status && !*key ? fb_fail(error, FB_NOT_FOUND, "unknown-webhook", NULL, "there is no webhook %s", id) : status;
}

/* ---- put, change, rotate, delete ----------------------------------------------------------------------------------------- */

/* For the audit: the rest of a URL may be a secret of the receiver's. */
static void origin_of(const char *url, char *out, size_t space) {
    const char *host = strstr(url, "://");
    size_t size = host ? (size_t)(host + 3 - url) + strcspn(host + 3, "/?#") : 0;
    snprintf(out, space, "%.*s", (int)(size < space ? size : space - 1), url);
}

typedef struct webhook_write {
    const char *id;
    const fb_store_webhook *webhook;
    const fb_store_webhook_change *change;
    const char *secret;
    int64_t overlap;
    const fb_store_actor *by;
    int64_t now;
    fb_store_webhook stored;
} webhook_write;

static fb_status check_room(fb_connection *connection, fb_error *error) {
    int64_t count = 0;
    fb_query query = fb_query_begin(connection, "SELECT count(*) FROM webhooks", error);
    fb_status status = fb_read_key(&query, &count);
    if (status || count < FB_WEBHOOKS_MAX) return status;
    return fb_fail(error, FB_CONFLICT, "too-many-webhooks", NULL,
                   "there are %d webhooks already, which is the most; delete one that is not needed", FB_WEBHOOKS_MAX);
}

static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    webhook_write *write = argument;
    const fb_store_webhook *webhook = write->webhook;
    int64_t key = 0;
    char origin[300];
    FB_STORE_FREE(&write->stored);
    fb_status status = check_room(connection, error);
    if (status) return status;
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO webhooks (id, url, events, models, note, is_enabled, secret, created, "
                                     "changed, who) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9) RETURNING key",
                                     error);
    fb_bind_text(&insert, write->id);
    fb_bind_text(&insert, webhook->url);
    fb_bind_text(&insert, webhook->events);
    fb_bind_text(&insert, webhook->models);
    fb_bind_text(&insert, webhook->note);
    fb_bind_int(&insert, webhook->is_enabled);
    fb_bind_text(&insert, write->secret);
    fb_bind_int(&insert, write->now);
    fb_bind_text(&insert, write->by->who);
    status = fb_query_insert(&insert, &key);
    origin_of(webhook->url, origin, sizeof origin);
    if (!status) status = fb_write_audit(connection, write->by, write->now, "webhook-create", write->id, origin, error);
    return status ? status : read_webhook(connection, key, &write->stored.memory, &write->stored, error);
}

static fb_status write_change(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    webhook_write *write = argument;
    const fb_store_webhook_change *change = write->change;
    int64_t key = 0;
    fb_store_webhook old = {0};
    FB_STORE_FREE(&write->stored);
    fb_status status = fb_need_webhook(connection, write->id, &key, error);
    if (!status) status = read_webhook(connection, key, &old.memory, &old, error);
    if (!status) {
        const char *note = change->note ? (*change->note ? change->note : NULL) : old.note;
        fb_query update = fb_query_begin(connection,
                                         "UPDATE webhooks SET url = ?1, events = ?2, models = ?3, note = ?4, is_enabled = ?5, "
                                         "changed = ?6, who = ?8 WHERE key = ?7",
                                         error);
        fb_bind_text(&update, change->url ? change->url : old.url);
        fb_bind_text(&update, change->events ? change->events : old.events);
        fb_bind_text(&update, change->models ? change->models : old.models);
        fb_bind_text(&update, note);
        fb_bind_int(&update, change->is_enabled < 0 ? old.is_enabled : change->is_enabled);
        fb_bind_int(&update, write->now);
        fb_bind_int(&update, key);
        fb_bind_text(&update, write->by->who);
        status = fb_query_run(&update);
    }
    fb_memory_free(old.memory);
    if (!status) status = read_webhook(connection, key, &write->stored.memory, &write->stored, error);
    if (status) return status;
    char origin[300];
    origin_of(write->stored.url, origin, sizeof origin);
    return fb_write_audit(connection, write->by, write->now, "webhook-change", write->id,
                          write->stored.is_enabled ? origin : "disabled", error);
}

static fb_status write_rotation(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    webhook_write *write = argument;
    int64_t key = 0;
    FB_STORE_FREE(&write->stored);
    fb_status status = fb_need_webhook(connection, write->id, &key, error);
    if (status) return status;
    const char *sql = write->overlap ? "UPDATE webhooks SET old_secret = secret, secret = ?1, changed = ?2, who = ?3, "
                                       "old_secret_until = ?4 WHERE key = ?5"
                                     : "UPDATE webhooks SET old_secret = NULL, secret = ?1, changed = ?2, who = ?3, "
                                       "old_secret_until = NULL WHERE key = ?4";
    fb_query update = fb_query_begin(connection, sql, error);
    fb_bind_text(&update, write->secret);
    fb_bind_int(&update, write->now);
    fb_bind_text(&update, write->by->who);
    if (write->overlap) fb_bind_int(&update, write->now + write->overlap);
    fb_bind_int(&update, key);
    status = fb_query_run(&update);
    if (!status)
        status = fb_write_audit(connection, write->by, write->now, "webhook-rotate", write->id, "another secret", error);
    return status ? status : read_webhook(connection, key, &write->stored.memory, &write->stored, error);
}

static fb_status write_delete(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const webhook_write *write = argument;
    int64_t key = 0;
    fb_status status = fb_need_webhook(connection, write->id, &key, error);
    static const char *const statements[] = {"DELETE FROM webhook_deliveries WHERE webhook = ?1",
                                             "DELETE FROM webhooks WHERE key = ?1"};
    for (size_t i = 0; i < sizeof statements / sizeof *statements && !status; i++)
        status = fb_query_run_numbers(connection, statements[i], &key, 1, NULL, error);
    return status ? status : fb_write_audit(connection, write->by, write->now, "webhook-delete", write->id, "deleted", error);
}

static fb_status do_write(fb_store *store, fb_write_function *function, webhook_write *write, fb_store_webhook *out,
                          fb_error *error) {
    write->now = store->config.now_ms();
    fb_status status = fb_writer_run(&store->writer, function, write, error);
    if (status) FB_STORE_FREE(&write->stored);
    else *out = write->stored;
    return status;
}

fb_status fb_store_put_webhook(fb_store *store, const fb_store_webhook *webhook, const char *secret, const fb_store_actor *by,
                               fb_store_webhook *out, fb_error *error) {
    char ulid[FB_ULID_LENGTH + 1], id[FB_WEBHOOK_ID_LENGTH + 1];
    fb_status status = fb_ulid_next(&store->ulids, store->config.now_ms(), ulid, error);
    if (status) return status;
    snprintf(id, sizeof id, "hook_%s", ulid);
    return do_write(store, write_put, &(webhook_write){.id = id, .webhook = webhook, .secret = secret, .by = by}, out, error);
}

fb_status fb_store_change_webhook(fb_store *store, const char *id, const fb_store_webhook_change *change,
                                  const fb_store_actor *by, fb_store_webhook *out, fb_error *error) {
    return do_write(store, write_change, &(webhook_write){.id = id, .change = change, .by = by}, out, error);
}

fb_status fb_store_rotate_secret(fb_store *store, const char *id, const char *secret, int64_t overlap_ms,
                                 const fb_store_actor *by, fb_store_webhook *out, fb_error *error) {
    webhook_write write = {.id = id, .secret = secret, .overlap = overlap_ms, .by = by};
    return do_write(store, write_rotation, &write, out, error);
}

fb_status fb_store_delete_webhook(fb_store *store, const char *id, const fb_store_actor *by, fb_error *error) {
    webhook_write write = {.id = id, .by = by, .now = store->config.now_ms()};
    return fb_writer_make_room(&store->writer, write_delete, NULL, &write, error);
}

/* ---- get and list -------------------------------------------------------------------------------------------------------- */

fb_status fb_store_get_webhook(fb_store *store, const char *id, fb_store_webhook *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0;
    fb_store_webhook webhook = {0};
    status = fb_need_webhook(connection, id, &key, error);
    if (!status) status = read_webhook(connection, key, &webhook.memory, &webhook, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(webhook.memory);
    else *out = webhook;
    return status;
}

fb_status fb_store_list_webhooks(fb_store *store, const fb_store_page *page, fb_store_webhooks *out, fb_error *error) {
    fb_list_query query = {.conditions =
                               &(fb_condition){.sql = "SELECT key FROM webhooks WHERE key <= ?1 ORDER BY key DESC LIMIT 1"},
                           .count = 1,
                           .page = page,
                           .filter_hash = fb_filter_hash(0, "webhooks"),
                           .item_size = sizeof *out->items,
                           .read = read_webhook};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}
