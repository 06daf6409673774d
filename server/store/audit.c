/* The audit. */
#include "server/store/audit.h"

#include <stdio.h>
#include <string.h>

#include "server/store/internal.h"
#include "server/store/walk.h"

fb_status fb_write_audit(fb_connection *connection, const fb_store_actor *by, int64_t at, const char *action,
                         const char *object, const char *outcome, fb_error *error) {
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO audit (at, who, request, action, object, outcome) VALUES (?, ?, ?, ?, ?, ?)", error);
    fb_bind_int(&insert, at);
    fb_bind_text(&insert, by && by->who ? by->who : FB_STORE_SERVICE);
    fb_bind_text(&insert, by ? by->request : NULL);
    fb_bind_text(&insert, action);
    fb_bind_text(&insert, object);
    fb_bind_text(&insert, outcome);
    return fb_query_run(&insert);
}

static fb_status read_entry(fb_connection *connection, int64_t number, fb_store_memory **memory, fb_audit_entry *out,
                            fb_error *error) {
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

static fb_status read_page(fb_connection *connection, const fb_audit_filter *filter, size_t limit, int64_t *number,
                           fb_audit_entries *list, fb_error *error) {
    fb_condition wanted[5];
    size_t count = set_conditions(filter, wanted);
    fb_status status = fb_walk_down(connection, wanted, count, number, error);
    while (!status && *number > 0 && list->count < limit) {
        status = read_entry(connection, *number, &list->memory, &list->items[list->count++], error);
        --*number;
        if (!status) status = fb_walk_down(connection, wanted, count, number, error);
    }
    return status;
}

fb_status fb_store_list_audit(fb_store *store, const fb_audit_filter *filter, const fb_store_page *page, fb_audit_entries *out,
                              fb_error *error) {
    uint64_t hash = hash_filter(filter);
    int64_t number = 0;
    size_t limit = 0;
    fb_status status = fb_page_begin(page, hash, &number, &limit, error);
    if (status) return status;
    fb_connection *connection = NULL;
    fb_audit_entries list = {0};
    list.items = fb_memory_take(&list.memory, limit * sizeof *list.items);
    status = list.items ? fb_readers_take(&store->readers, &connection, error) : fb_fail_memory(error);
    if (!status) status = read_page(connection, filter, limit, &number, &list, error);
    if (connection) fb_readers_give_back(&store->readers, connection);
    fb_page_token(number, hash, list.next_token);
    if (status) fb_memory_free(list.memory);
    else *out = list;
    return status;
}

void fb_audit_entries_free(fb_audit_entries *entries) {
    fb_memory_free(entries->memory);
    *entries = (fb_audit_entries){0};
}
