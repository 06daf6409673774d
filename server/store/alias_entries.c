/* Reading aliases: their last entries, their histories, and all entries after one. */
#include <stdio.h>
#include <string.h>

#include "server/store/internal.h"

fb_status fb_read_alias_entry(fb_connection *connection, int64_t number, fb_store_memory **memory, fb_store_alias_entry *out,
                              fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "SELECT e.number, e.at, m.name, a.name, e.action, e.who, e.why, p.version_name, p.graph, e.version_name, e.graph, "
        "e.run FROM alias_entries e JOIN aliases a ON a.key = e.alias JOIN models m ON m.key = a.model "
        "LEFT JOIN alias_entries p ON p.number = e.previous WHERE e.number = ?",
        error);
    fb_bind_int(&query, number);
    if (fb_query_row(&query)) {
        out->number = fb_column_int(&query, 0);
        out->at = fb_column_int(&query, 1);
        out->model = fb_copy_column(&query, 2, memory, &query.status);
        out->alias = fb_copy_column(&query, 3, memory, &query.status);
        out->action = fb_copy_column(&query, 4, memory, &query.status);
        out->who = fb_copy_optional(&query, 5, memory, &query.status);
        out->why = fb_copy_optional(&query, 6, memory, &query.status);
        out->from = fb_copy_optional(&query, 7, memory, &query.status);
        out->from_graph = fb_copy_optional(&query, 8, memory, &query.status);
        out->to = fb_copy_optional(&query, 9, memory, &query.status);
        out->to_graph = fb_copy_optional(&query, 10, memory, &query.status);
        out->run = fb_copy_optional(&query, 11, memory, &query.status);
    } else if (!query.status) {
        query.status = fb_fail(error, FB_NOT_FOUND, "unknown-alias", NULL, "no alias has an entry %lld", (long long)number);
    }
    return fb_query_end(&query);
}

/* ---- one ---- */

/* The key of an alias that exists or (`with_deleted`) did, and the number of its last entry. */
static fb_status need_alias(fb_connection *connection, const char *model, const char *alias, bool with_deleted, int64_t *key,
                            int64_t *last, fb_error *error) {
    int64_t model_key = 0;
    fb_status status = fb_need_model(connection, model, &model_key, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection,
                                    "SELECT key, (SELECT max(number) FROM alias_entries WHERE alias = key) FROM aliases "
                                    "WHERE model = ? AND name = ? AND (version IS NOT NULL OR ? = 1)",
                                    error);
    fb_bind_int(&query, model_key);
    fb_bind_text(&query, alias);
    fb_bind_int(&query, with_deleted);
    if (fb_query_row(&query)) {
        *key = fb_column_int(&query, 0);
        *last = fb_column_int(&query, 1);
    } else if (!query.status) {
        query.status = fb_fail(error, FB_NOT_FOUND, "unknown-alias", NULL, "model %s has no alias %s", model, alias);
    }
    return fb_query_end(&query);
}

fb_status fb_store_get_alias(fb_store *store, const char *model, const char *alias, fb_store_alias_entry *out,
                             fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0, last = 0;
    fb_store_alias_entry entry = {0};
    status = need_alias(connection, model, alias, false, &key, &last, error);
    if (!status) status = fb_read_alias_entry(connection, last, &entry.memory, &entry, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(entry.memory);
    else *out = entry;
    return status;
}

fb_status fb_store_get_alias_entry(fb_store *store, int64_t number, fb_store_alias_entry *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_store_alias_entry entry = {0};
    status = fb_read_alias_entry(connection, number, &entry.memory, &entry, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(entry.memory);
    else *out = entry;
    return status;
}

void fb_store_alias_entry_free(fb_store_alias_entry *entry) {
    fb_memory_free(entry->memory);
    *entry = (fb_store_alias_entry){0};
}

/* ---- lists ---- */

static fb_status read_entry_item(fb_connection *connection, int64_t number, fb_store_memory **memory, void *item,
                                 fb_error *error) {
    return fb_read_alias_entry(connection, number, memory, item, error);
}

static fb_status read_alias_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item,
                                 fb_error *error) {
    int64_t last = 0;
    fb_query query = fb_query_begin(connection, "SELECT max(number) FROM alias_entries WHERE alias = ?", error);
    fb_bind_int(&query, key);
    fb_status status = fb_read_key(&query, &last);
    return status ? status : fb_read_alias_entry(connection, last, memory, item, error);
}

fb_status fb_store_list_aliases(fb_store *store, const char *model, const fb_store_page *page, fb_store_alias_entries *out,
                                fb_error *error) {
    fb_list_query query = {
        .conditions =
            &(fb_condition){
                .sql =
                    "SELECT key FROM aliases WHERE key <= ?1 AND model = ?2 AND version IS NOT NULL ORDER BY key DESC LIMIT 1",
                .has_number = true},
        .count = 1,
        .find = fb_find_model_of,
        .of = {model},
        .page = page,
        .filter_hash = fb_filter_hash(fb_filter_hash(0, "aliases"), model),
        .item_size = sizeof *out->items,
        .read = read_alias_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

static fb_status find_alias_of(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error) {
    int64_t last = 0;
    return need_alias(connection, of[0], of[1], true, number, &last, error);
}

fb_status fb_store_alias_history(fb_store *store, const char *model, const char *alias, const fb_store_page *page,
                                 fb_store_alias_entries *out, fb_error *error) {
    fb_list_query query = {
        .conditions =
            &(fb_condition){
                .sql = "SELECT number FROM alias_entries WHERE number <= ?1 AND alias = ?2 ORDER BY number DESC LIMIT 1",
                .has_number = true},
        .count = 1,
        .find = find_alias_of,
        .of = {model, alias},
        .page = page,
        .filter_hash = fb_filter_hash(fb_filter_hash(fb_filter_hash(0, "history"), model), alias),
        .item_size = sizeof *out->items,
        .read = read_entry_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

void fb_store_alias_entries_free(fb_store_alias_entries *entries) {
    fb_memory_free(entries->memory);
    *entries = (fb_store_alias_entries){0};
}
