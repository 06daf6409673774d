/* The outbox: the events that webhooks are to get, and their deliveries. */
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/json.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/events.h"
#include "server/store/models.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/webhooks.h"

static const char *const types[] = {"alias.created",   "alias.moved",  "alias.rolled_back", "alias.deleted",
                                    "version.created", "run.finished", "job.finished",      NULL};
#define TEST_TYPE "webhook.test"

const char *fb_event_type(size_t index) {
    return types[index];
}

/* ---- who wants to know --------------------------------------------------------------------------------------------------- */

/* True if one of the words, between single spaces, is `text` or (`are_patterns`) a pattern of it. */
static bool has_word(const char *words, const char *text, bool are_patterns) {
    char word[FB_NAME_MAX + 1];
    for (const char *at = words; *at;) {
        size_t length = strcspn(at, " ");
        if (length < sizeof word) {
            memcpy(word, at, length);
            word[length] = '\0';
            if (!strcmp(word, "*") || (are_patterns ? fnmatch(word, text, FNM_NOESCAPE) == 0 : strcmp(word, text) == 0))
                return true;
        }
        at += length + (at[length] == ' ');
    }
    return false;
}

/* True if the token behind the row of webhooks is valid at that time, by its column FB_SQL_WEBHOOK_ENDS. */
static bool is_valid(fb_query *query, int column, int64_t at) {
    return fb_column_is_null(query, column) || fb_column_int(query, column) > at;
}

/* The keys of the enabled webhooks that want to know of an event of `model` (NULL: of none) at that time. */
static fb_status find_webhooks(fb_connection *connection, const char *type, const char *model, int64_t at,
                               int64_t keys[FB_WEBHOOKS_MAX], size_t *count, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT key, events, models, " FB_SQL_WEBHOOK_ENDS " FROM webhooks WHERE is_enabled = 1 ORDER BY key",
        error);
    while (*count < FB_WEBHOOKS_MAX && fb_query_row(&query)) {
        bool is_wanted = is_valid(&query, 3, at) && has_word(fb_column_text(&query, 1), type, false) &&
                         (!model || has_word(fb_column_text(&query, 2), model, true));
        if (is_wanted) keys[(*count)++] = fb_column_int(&query, 0);
    }
    return fb_query_end(&query);
}

static fb_status make_id(char id[FB_MESSAGE_ID_LENGTH + 1], fb_error *error) {
    unsigned char bytes[FB_ULID_LENGTH];
    if (!fb_fill_random(bytes, sizeof bytes))
        return fb_fail(error, FB_IO, "no-randomness", NULL, "the system gives no random bytes: %s", strerror(errno));
    memcpy(id, "msg_", 4);
    for (size_t i = 0; i < sizeof bytes; i++) id[4 + i] = FB_ULID_DIGITS[bytes[i] % 32];
    id[4 + sizeof bytes] = '\0';
    return FB_OK;
}

typedef struct message {
    const char *type, *topic; /* topic NULL: in any order */
    const char *body;
    int64_t at;
} message;

static fb_status put(fb_connection *connection, const message *told, int64_t webhook, int64_t *key, fb_error *error) {
    char id[FB_MESSAGE_ID_LENGTH + 1];
    fb_status status = make_id(id, error);
    if (status) return status;
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO webhook_deliveries (id, webhook, type, topic, body, created, queued, due, "
                                     "state, attempts) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, ?6, 'pending', 0) RETURNING key",
                                     error);
    fb_bind_text(&insert, id);
    fb_bind_int(&insert, webhook);
    fb_bind_text(&insert, told->type);
    fb_bind_text(&insert, told->topic);
    fb_bind_text(&insert, told->body);
    fb_bind_int(&insert, told->at);
    return fb_query_insert(&insert, key);
}

/* Standard Webhooks' payload: {"type", "timestamp", "data"}; what was begun is ended by end_body. */
static void begin_body(fb_buffer *out, const char *type, int64_t at) {
    fb_buffer_char(out, '{');
    fb_put_text(out, "type", type);
    fb_put_time(out, "timestamp", at);
    fb_put_name(out, "data");
}

static const char *end_body(fb_buffer *out) {
    fb_buffer_char(out, '}');
    return fb_buffer_text(out);
}

static fb_status put_all(fb_connection *connection, const message *told, const int64_t *webhooks, size_t count,
                         fb_error *error) {
    fb_status status = told->body ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        int64_t unused = 0;
        status = put(connection, told, webhooks[i], &unused, error);
    }
    return status;
}

fb_status fb_tell_alias(fb_connection *connection, const fb_store_alias_entry *entry, fb_error *error) {
    static const struct {
        const char *action, *type;
    } events[] = {
        {"create", "alias.created"}, {"deploy", "alias.moved"}, {"rollback", "alias.rolled_back"}, {"delete", "alias.deleted"}};
    const char *type = NULL;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        if (strcmp(events[i].action, entry->action) == 0) type = events[i].type;
    int64_t webhooks[FB_WEBHOOKS_MAX];
    size_t count = 0;
    fb_status status = find_webhooks(connection, type, entry->model, entry->at, webhooks, &count, error);
    if (status || !count) return status;
    char topic[2 * FB_NAME_MAX + 2];
    fb_buffer body = {0};
    snprintf(topic, sizeof topic, "%s@%s", entry->model, entry->alias);
    begin_body(&body, type, entry->at);
    fb_alias_entry_write(entry, true, &body);
    message told = {.type = type, .topic = topic, .body = end_body(&body), .at = entry->at};
    status = put_all(connection, &told, webhooks, count, error);
    fb_buffer_free(&body);
    return status;
}

fb_status fb_tell_version(fb_connection *connection, int64_t key, fb_error *error) {
    fb_store_version version = {0};
    int64_t webhooks[FB_WEBHOOKS_MAX];
    size_t count = 0;
    fb_buffer body = {0};
    fb_status status = fb_read_version(connection, key, &version.memory, &version, error);
    if (!status) status = find_webhooks(connection, "version.created", version.model, version.created, webhooks, &count, error);
    if (!status && count) {
        begin_body(&body, "version.created", version.created);
        fb_version_event_write(&version, &body);
        message told = {.type = "version.created", .body = end_body(&body), .at = version.created};
        status = put_all(connection, &told, webhooks, count, error);
    }
    fb_buffer_free(&body);
    FB_STORE_FREE(&version);
    return status;
}

fb_status fb_tell_run(fb_connection *connection, const fb_store_run *run, fb_error *error) {
    int64_t webhooks[FB_WEBHOOKS_MAX];
    size_t count = 0;
    fb_status status = find_webhooks(connection, "run.finished", NULL, run->created, webhooks, &count, error);
    if (status || !count) return status;
    fb_buffer body = {0};
    begin_body(&body, "run.finished", run->created);
    fb_run_event_write(run, &body);
    message told = {.type = "run.finished", .body = end_body(&body), .at = run->created};
    status = put_all(connection, &told, webhooks, count, error);
    fb_buffer_free(&body);
    return status;
}

/* Appends the job, as it is stored now. */
static fb_status write_job(fb_connection *connection, const char *id, fb_buffer *out, int64_t *at, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT state, method, target, created, finished, status, location FROM jobs WHERE id = ?1", error);
    fb_bind_text(&query, id);
    if (fb_query_row(&query)) {
        *at = fb_column_int(&query, 4);
        begin_body(out, "job.finished", *at);
        fb_buffer_char(out, '{');
        fb_put_text(out, "id", id);
        fb_put_text(out, "state", fb_column_text(&query, 0));
        fb_put_text(out, "method", fb_column_text(&query, 1));
        fb_put_text(out, "target", fb_column_text(&query, 2));
        fb_put_time(out, "created", fb_column_int(&query, 3));
        fb_put_time(out, "finished", *at);
        if (!fb_column_is_null(&query, 5)) fb_put_int(out, "status", fb_column_int(&query, 5));
        fb_put_text_or_null(out, "location", fb_column_is_null(&query, 6) ? NULL : fb_column_text(&query, 6));
        fb_buffer_char(out, '}');
    }
    return fb_query_end(&query);
}

fb_status fb_tell_job(fb_connection *connection, const char *id, fb_error *error) {
    int64_t webhooks[FB_WEBHOOKS_MAX], at = 0;
    size_t count = 0;
    fb_buffer body = {0};
    fb_status status = write_job(connection, id, &body, &at, error);
    if (!status) status = find_webhooks(connection, "job.finished", NULL, at, webhooks, &count, error);
    if (!status && count && (body.size || body.failed)) {
        message told = {.type = "job.finished", .body = end_body(&body), .at = at};
        status = put_all(connection, &told, webhooks, count, error);
    }
    fb_buffer_free(&body);
    return status;
}

/* ---- reading deliveries -------------------------------------------------------------------------------------------------- */

static fb_status read_delivery(fb_connection *connection, int64_t key, bool with_body, fb_store_memory **memory,
                               fb_store_delivery *out, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT id, type, state, failure, created, due, attempted, attempts, status, body FROM "
                                    "webhook_deliveries WHERE key = ?1",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->id = fb_copy_column(&query, 0, memory, &query.status);
        out->type = fb_copy_column(&query, 1, memory, &query.status);
        out->state = fb_copy_column(&query, 2, memory, &query.status);
        out->failure = fb_copy_optional(&query, 3, memory, &query.status);
        out->created = fb_column_int(&query, 4);
        out->due = strcmp(fb_column_text(&query, 2), "pending") == 0 ? fb_column_int(&query, 5) : 0;
        out->attempted = fb_column_int(&query, 6); /* 0 when it is NULL; so is the status */
        out->attempts = (uint32_t)fb_column_int(&query, 7);
        out->status = (int)fb_column_int(&query, 8);
        if (with_body) out->body = fb_copy_column(&query, 9, memory, &query.status);
    }
    return fb_query_end(&query);
}

static fb_status read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    return read_delivery(connection, key, false, memory, item, error);
}

static fb_status find_webhook_of(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error) {
    return fb_need_webhook(connection, of[0], number, error);
}

fb_status fb_store_list_deliveries(fb_store *store, const char *webhook, const char *state, const fb_store_page *page,
                                   fb_store_deliveries *out, fb_error *error) {
    fb_condition condition = {
        .sql = state ? "SELECT key FROM webhook_deliveries WHERE key <= ?1 AND webhook = ?2 AND state = ?3 ORDER BY key DESC "
                       "LIMIT 1"
                     : "SELECT key FROM webhook_deliveries WHERE key <= ?1 AND webhook = ?2 ORDER BY key DESC LIMIT 1",
        .has_number = true,
        .texts = {state}};
    fb_list_query query = {.conditions = &condition,
                           .count = 1,
                           .find = find_webhook_of,
                           .of = {webhook},
                           .page = page,
                           .filter_hash = fb_filter_hash(fb_filter_hash(fb_filter_hash(0, "deliveries"), webhook), state),
                           .item_size = sizeof *out->items,
                           .read = read_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

static fb_status need_delivery(fb_connection *connection, const char *webhook, const char *id, int64_t *key, fb_error *error) {
    int64_t webhook_key = 0;
    fb_status status = fb_need_webhook(connection, webhook, &webhook_key, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "SELECT key FROM webhook_deliveries WHERE id = ?1 AND webhook = ?2", error);
    fb_bind_text(&query, id);
    fb_bind_int(&query, webhook_key);
    status = fb_read_key(&query, key);
    if (status || *key) return status;
    return fb_fail(error, FB_NOT_FOUND, "unknown-delivery", NULL, "webhook %s has no delivery %s", webhook, id);
}

fb_status fb_store_get_delivery(fb_store *store, const char *webhook, const char *id, fb_store_delivery *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0;
    fb_store_delivery delivery = {0};
    status = need_delivery(connection, webhook, id, &key, error);
    if (!status) status = read_delivery(connection, key, true, &delivery.memory, &delivery, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(delivery.memory);
    else *out = delivery;
    return status;
}

/* ---- by request ---------------------------------------------------------------------------------------------------------- */

typedef struct delivery_write {
    const char *webhook, *id;
    const fb_store_actor *by;
    int64_t now;
    fb_store_delivery stored;
} delivery_write;

static fb_status write_again(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    delivery_write *write = argument;
    int64_t key = 0;
    FB_STORE_FREE(&write->stored);
    fb_status status = need_delivery(connection, write->webhook, write->id, &key, error);
    if (status) return status;
    fb_query update = fb_query_begin(connection,
                                     "UPDATE webhook_deliveries SET state = 'pending', topic = NULL, queued = ?1, due = ?1, "
                                     "attempts = 0, status = NULL, failure = NULL WHERE key = ?2",
                                     error);
    fb_bind_int(&update, write->now);
    fb_bind_int(&update, key);
    status = fb_query_run(&update);
    if (!status)
        status = fb_write_audit(connection, write->by, write->now, "webhook-redeliver", write->webhook, write->id, error);
    return status ? status : read_delivery(connection, key, true, &write->stored.memory, &write->stored, error);
}

static fb_status write_test(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    delivery_write *write = argument;
    int64_t webhook = 0, key = 0;
    fb_buffer body = {0};
    FB_STORE_FREE(&write->stored);
    fb_status status = fb_need_webhook(connection, write->webhook, &webhook, error);
    if (status) return status;
    begin_body(&body, TEST_TYPE, write->now);
    fb_buffer_char(&body, '{');
    fb_put_text(&body, "webhook", write->webhook);
    fb_buffer_char(&body, '}');
    message told = {.type = TEST_TYPE, .body = end_body(&body), .at = write->now};
    status = told.body ? put(connection, &told, webhook, &key, error) : fb_fail_memory(error);
    fb_buffer_free(&body);
    if (!status) status = read_delivery(connection, key, true, &write->stored.memory, &write->stored, error);
    if (status) return status;
    return fb_write_audit(connection, write->by, write->now, "webhook-test", write->webhook, write->stored.id, error);
}

static fb_status do_write(fb_store *store, fb_write_function *function, delivery_write *write, fb_store_delivery *out,
                          fb_error *error) {
    write->now = store->config.now_ms();
    fb_status status = fb_writer_run(&store->writer, function, write, error);
    if (status) FB_STORE_FREE(&write->stored);
    else *out = write->stored;
    return status;
}

fb_status fb_store_redeliver(fb_store *store, const char *webhook, const char *id, const fb_store_actor *by,
                             fb_store_delivery *out, fb_error *error) {
    return do_write(store, write_again, &(delivery_write){.webhook = webhook, .id = id, .by = by}, out, error);
}

fb_status fb_store_test_webhook(fb_store *store, const char *webhook, const fb_store_actor *by, fb_store_delivery *out,
                                fb_error *error) {
    return do_write(store, write_test, &(delivery_write){.webhook = webhook, .by = by}, out, error);
}

/* ---- the deliverer's side ------------------------------------------------------------------------------------------------ */

typedef struct enabled_webhook {
    int64_t key;
    const char *url, *secret, *old_secret;
} enabled_webhook;

static fb_status read_enabled(fb_connection *connection, int64_t now, enabled_webhook list[FB_WEBHOOKS_MAX],
                              fb_due_deliveries *out, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT key, url, secret, old_secret, old_secret_until, " FB_SQL_WEBHOOK_ENDS
                                    " FROM webhooks WHERE is_enabled = 1 ORDER BY key",
                                    error);
    while (out->webhooks < FB_WEBHOOKS_MAX && fb_query_row(&query)) {
        if (!is_valid(&query, 5, now)) continue;
        enabled_webhook *one = &list[out->webhooks++];
        *one = (enabled_webhook){.key = fb_column_int(&query, 0),
                                 .url = fb_copy_column(&query, 1, &out->memory, &query.status),
                                 .secret = fb_copy_column(&query, 2, &out->memory, &query.status)};
        if (fb_column_int(&query, 4) > now) one->old_secret = fb_copy_optional(&query, 3, &out->memory, &query.status);
    }
    return fb_query_end(&query);
}

/* The first ones of a webhook, until one is not due yet. */
static fb_status read_due(fb_connection *connection, const enabled_webhook *webhook, int64_t now, fb_due_deliveries *out,
                          fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "SELECT d.key, d.queued, d.attempts, d.id, d.body, d.due FROM webhook_deliveries d WHERE d.webhook = ?1 AND "
        "d.state = 'pending' AND NOT EXISTS (SELECT 1 FROM webhook_deliveries e WHERE e.webhook = d.webhook AND "
        "e.topic = d.topic AND e.state = 'pending' AND e.key < d.key) ORDER BY d.due, d.key LIMIT ?2",
        error);
    fb_bind_int(&query, webhook->key);
    fb_bind_int(&query, FB_DUE_EACH);
    while (fb_query_row(&query)) {
        int64_t due = fb_column_int(&query, 5);
        if (due > now) {
            if (due < out->next) out->next = due;
            break;
        }
        out->items[out->count++] = (fb_due_delivery){.key = fb_column_int(&query, 0),
                                                     .webhook = webhook->key,
                                                     .queued = fb_column_int(&query, 1),
                                                     .attempts = (uint32_t)fb_column_int(&query, 2),
                                                     .id = fb_copy_column(&query, 3, &out->memory, &query.status),
                                                     .url = webhook->url,
                                                     .body = fb_copy_column(&query, 4, &out->memory, &query.status),
                                                     .secret = webhook->secret,
                                                     .old_secret = webhook->old_secret};
    }
    return fb_query_end(&query);
}

fb_status fb_store_due_deliveries(fb_store *store, int64_t now, fb_due_deliveries *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_due_deliveries due = {.next = INT64_MAX};
    enabled_webhook webhooks[FB_WEBHOOKS_MAX];
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = read_enabled(connection, now, webhooks, &due, error);
    due.items = fb_memory_take(&due.memory, (due.webhooks * FB_DUE_EACH + 1) * sizeof *due.items);
    if (!status && !due.items) status = fb_fail_memory(error);
    for (size_t i = 0; i < due.webhooks && !status; i++) status = read_due(connection, &webhooks[i], now, &due, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) FB_STORE_FREE(&due);
    else *out = due;
    return status;
}

typedef struct attempts_write {
    const fb_attempt_end *ends;
    size_t count;
} attempts_write;

static fb_status disable(fb_connection *connection, const fb_attempt_end *end, fb_error *error) {
    char id[FB_WEBHOOK_ID_LENGTH + 1] = "";
    fb_query update = fb_query_begin(connection,
                                     "UPDATE webhooks SET is_enabled = 0, changed = ?1 WHERE is_enabled = 1 AND changed < ?2 "
                                     "AND key = (SELECT webhook FROM webhook_deliveries WHERE key = ?3) RETURNING id",
                                     error);
    fb_bind_int(&update, end->at);
    fb_bind_int(&update, end->begun);
    fb_bind_int(&update, end->key);
    while (fb_query_row(&update)) fb_copy_text(id, sizeof id, fb_column_text(&update, 0));
    fb_status status = fb_query_end(&update);
    if (status || !*id) return status;
    return fb_write_audit(connection, NULL, end->at, "webhook-change", id, "disabled: it answered 410", error);
}

static fb_status write_ends(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const attempts_write *write = argument;
    fb_status status = FB_OK;
    for (size_t i = 0; i < write->count && !status; i++) {
        const fb_attempt_end *end = &write->ends[i];
        fb_query update = fb_query_begin(connection,
                                         "UPDATE webhook_deliveries SET state = ?1, attempts = attempts + 1, attempted = ?2, "
                                         "due = ?3, status = ?4, failure = ?5 WHERE key = ?6 AND state = 'pending'",
                                         error);
        fb_bind_text(&update, end->is_delivered ? "delivered" : end->is_parked ? "parked" : "pending");
        fb_bind_int(&update, end->at);
        fb_bind_int(&update, end->due);
        fb_bind_key(&update, end->status);
        fb_bind_text(&update, end->failure);
        fb_bind_int(&update, end->key);
        status = fb_query_run(&update);
        if (!status && end->is_unwanted) status = disable(connection, end, error);
    }
    return status;
}

fb_status fb_store_end_attempts(fb_store *store, const fb_attempt_end *ends, size_t count, fb_error *error) {
    return fb_writer_run(&store->writer, write_ends, &(attempts_write){.ends = ends, .count = count}, error);
}

#define TRIM_AT_ONCE 1000

typedef struct trim {
    int64_t delivered_before, parked_before, count;
} trim;

static fb_status write_trim(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    trim *work = argument;
    return fb_query_run_numbers(
        connection,
        "DELETE FROM webhook_deliveries WHERE key IN (SELECT key FROM webhook_deliveries WHERE (state = 'delivered' AND "
        "attempted < ?1) OR (state = 'parked' AND attempted < ?2) LIMIT ?3)",
        (int64_t[]){work->delivered_before, work->parked_before, TRIM_AT_ONCE}, 3, &work->count, error);
}

fb_status fb_store_trim_deliveries(fb_store *store, int64_t delivered_before, int64_t parked_before, size_t *count,
                                   fb_error *error) {
    trim work = {.delivered_before = delivered_before, .parked_before = parked_before};
    fb_status status = fb_writer_make_room(&store->writer, write_trim, NULL, &work, error);
    if (!status) *count = (size_t)work.count;
    return status;
}

fb_status fb_store_count_deliveries(fb_store *store, uint64_t *pending, uint64_t *parked, int64_t *oldest_pending,
                                    fb_error *error) {
    fb_query query = fb_read_begin(&store->readers,
                                   "SELECT (SELECT count(*) FROM webhook_deliveries WHERE state = 'pending'), "
                                   "(SELECT count(*) FROM webhook_deliveries WHERE state = 'parked'), "
                                   "(SELECT min(queued) FROM webhook_deliveries WHERE state = 'pending')",
                                   error);
    if (fb_query_row(&query)) {
        *pending = (uint64_t)fb_column_int(&query, 0);
        *parked = (uint64_t)fb_column_int(&query, 1);
        *oldest_pending = fb_column_int(&query, 2); /* 0 when there is none */
    }
    return fb_read_end(&store->readers, &query);
}
