/* The audit. */
#include "server/store/audit.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

/* Its length, and the bytes as they are. */
static void add_text(fb_buffer *out, const char *text) {
    if (text) fb_buffer_printf(out, "%zu:%s,", strlen(text), text);
    else fb_buffer_string(out, "-,");
}

bool fb_audit_digest(const char *previous, const fb_audit_entry *entry, char digest[FB_ID_LENGTH + 1]) {
    fb_buffer text = {0};
    fb_buffer_printf(&text, "%s %" PRId64 " ", previous, entry->at);
    add_text(&text, entry->who);
    add_text(&text, entry->request);
    add_text(&text, entry->action);
    add_text(&text, entry->object);
    add_text(&text, entry->outcome);
    bool ok = !text.failed && fb_sha256_id(text.data, text.size, digest);
    fb_buffer_free(&text);
    return ok;
}

/* The digest of the newest entry; empty without an entry, or where that was written before schema 18. */
static fb_status read_newest_digest(fb_connection *connection, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT digest FROM audit ORDER BY number DESC LIMIT 1", error);
    *digest = '\0';
    if (fb_query_row(&query) && !fb_column_is_null(&query, 0))
        fb_copy_text(digest, FB_ID_LENGTH + 1, fb_column_text(&query, 0));
    return fb_query_end(&query);
}

fb_status fb_write_audit(fb_connection *connection, const fb_store_actor *by, int64_t at, const char *action,
                         const char *object, const char *outcome, fb_error *error) {
    char previous[FB_ID_LENGTH + 1], digest[FB_ID_LENGTH + 1];
    const fb_audit_entry entry = {.at = at,
                                  .who = by && by->who ? by->who : FB_STORE_SERVICE,
                                  .request = by ? by->request : NULL,
                                  .action = action,
                                  .object = object,
                                  .outcome = outcome};
    fb_status status = read_newest_digest(connection, previous, error);
    if (!status && !fb_audit_digest(previous, &entry, digest)) status = fb_fail_memory(error);
    if (status) return status;
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO audit (at, who, request, action, object, outcome, digest) VALUES (?, ?, ?, ?, ?, ?, ?)",
        error);
    fb_bind_int(&insert, entry.at);
    fb_bind_text(&insert, entry.who);
    fb_bind_text(&insert, entry.request);
    fb_bind_text(&insert, entry.action);
    fb_bind_text(&insert, entry.object);
    fb_bind_text(&insert, entry.outcome);
    fb_bind_text(&insert, digest);
    return fb_query_run(&insert);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static fb_status read_entry(fb_connection *connection, int64_t number, fb_store_memory **memory, void *item, fb_error *error) {
    fb_audit_entry *out = item;
    fb_query query =
        fb_query_begin(connection, "SELECT at, who, request, action, object, outcome FROM audit WHERE number = ?", error);
    fb_bind_int(&query, number);
    if (fb_query_row(&query)) {
        out->number = number;
        out->at = fb_column_int(&query, 0);
        out->who = fb_copy_column(&query, 1, memory, &query.status);
        out->request = fb_copy_optional(&query, 2, memory, &query.status);
        out->action = fb_copy_column(&query, 3, memory, &query.status);
        out->object = fb_copy_column(&query, 4, memory, &query.status);
        out->outcome = fb_copy_column(&query, 5, memory, &query.status);
    }
    return fb_query_end(&query);
}

#define NEWEST " ORDER BY number DESC LIMIT 1"

/* Times go through the entries one by one: the clock may have gone back, so they do not ascend for certain. */
static size_t set_conditions(const fb_audit_filter *filter, fb_condition *list) {
    const fb_condition all[] = {
        {.sql = "SELECT number FROM audit WHERE number <= ?1 AND who = ?2" NEWEST, .texts = {filter->who}},
        {.sql = "SELECT number FROM audit WHERE number <= ?1 AND action = ?2" NEWEST, .texts = {filter->action}},
        {.sql = "SELECT number FROM audit WHERE number <= ?1 AND object = ?2" NEWEST, .texts = {filter->object}},
        {.sql = "SELECT number FROM audit WHERE number <= ?1 AND at >= ?2" NEWEST,
         .has_number = filter->since != 0,
         .number = filter->since},
        {.sql = "SELECT number FROM audit WHERE number <= ?1 AND at < ?2" NEWEST,
         .has_number = filter->until != 0,
         .number = filter->until},
    };
    size_t count = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].texts[0] && !all[i].has_number) continue;
        list[count] = all[i];
        list[count].group = count;
        count++;
    }
    if (!count) list[count++] = (fb_condition){.sql = "SELECT number FROM audit WHERE number <= ?" NEWEST};
    return count;
}

static uint64_t hash_filter(const fb_audit_filter *filter) {
    char times[64];
    snprintf(times, sizeof times, "%lld %lld", (long long)filter->since, (long long)filter->until);
    uint64_t hash = fb_filter_hash(fb_filter_hash(0, "audit"), times);
    return fb_filter_hash(fb_filter_hash(fb_filter_hash(hash, filter->who), filter->action), filter->object);
}

fb_status fb_store_list_audit(fb_store *store, const fb_audit_filter *filter, const fb_store_page *page, fb_audit_entries *out,
                              fb_error *error) {
    fb_condition wanted[5];
    size_t count = set_conditions(filter, wanted);
    fb_list_query query = {.conditions = wanted,
                           .count = count,
                           .page = page,
                           .filter_hash = hash_filter(filter),
                           .item_size = sizeof *out->items,
                           .read = read_entry};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* ---- retention ---------------------------------------------------------------------------------------------------------- */

#define BATCH 5000

typedef struct trim {
    const fb_store_actor *by;
    int64_t now, before; /* milliseconds */
    int64_t end;         /* the number of the first entry that stays */
    int64_t removed;     /* by this batch */
} trim;

/* Entries are numbered in the order in which they were written, so that the old ones are the first. One from the future was
 * written by a clock that was wrong: it holds nothing up. */
static fb_status find_end(fb_connection *connection, trim *work, fb_error *error) {
    fb_query query =
        fb_query_begin(connection, "SELECT number FROM audit WHERE at >= ?1 AND at <= ?2 ORDER BY number LIMIT 1", error);
    fb_bind_int(&query, work->before);
    fb_bind_int(&query, work->now);
    work->end = fb_query_row(&query) ? fb_column_int(&query, 0) : INT64_MAX;
    return fb_query_end(&query);
}

static fb_status count_old(fb_connection *connection, const trim *work, uint64_t *count, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT count(*) FROM audit WHERE number < ?1 AND at < ?2", error);
    fb_bind_int(&query, work->end);
    fb_bind_int(&query, work->before);
    if (fb_query_row(&query)) *count = (uint64_t)fb_column_int(&query, 0);
    return fb_query_end(&query);
}

static fb_status audit_trim(fb_connection *connection, const trim *work, fb_error *error) {
    char outcome[80], before[32];
    time_t seconds = (time_t)(work->before / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    strftime(before, sizeof before, "%Y-%m-%dT%H:%M:%SZ", &utc);
    snprintf(outcome, sizeof outcome, "%" PRId64 " entries from before %s", work->removed, before);
    return fb_write_audit(connection, work->by, work->now, "audit-trim", "audit", outcome, error);
}

static fb_status write_trim(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    trim *work = argument;
    const char *begin = "INSERT INTO audit_trim (key, at) VALUES (1, ?)", *end = "DELETE FROM audit_trim";
    const char *delete = "DELETE FROM audit WHERE number IN (SELECT number FROM audit WHERE number < ?1 AND at < ?2 "
                         "ORDER BY number LIMIT ?3)";
    const int64_t numbers[] = {work->end, work->before, BATCH};
    work->removed = 0;
    fb_status status = fb_query_run_numbers(connection, begin, &work->before, 1, NULL, error);
    if (!status) status = fb_query_run_numbers(connection, delete, numbers, 3, &work->removed, error);
    if (!status) status = fb_query_run_numbers(connection, end, NULL, 0, NULL, error);
    return status || !work->removed ? status : audit_trim(connection, work, error);
}

fb_status fb_store_trim_audit(fb_store *store, int64_t age_ms, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                              uint64_t *removed, fb_error *error) {
    fb_connection *connection = NULL;
    uint64_t count = 0;
    trim work = {.by = by, .now = store->config.now_ms()};
    work.before = work.now - age_ms;
    *removed = 0;
    if (!age_ms) return FB_OK;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (!status) status = find_end(connection, &work, error);
    if (!status) status = count_old(connection, &work, &count, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    if (is_dry) *removed = status ? 0 : count;
    while (!status && !is_dry && *removed < count) {
        status = fb_watch_check(watch, error);
        if (!status) status = fb_writer_make_room(&store->writer, write_trim, NULL, &work, error);
        if (!status) *removed += (uint64_t)work.removed;
        if (!work.removed) break; /* another request was quicker */
    }
    return status;
}
