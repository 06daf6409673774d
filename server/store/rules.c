/* Rules and layouts, and their versions. */
#include "server/store/rules.h"

#include <stdio.h>
#include <string.h>

#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

static fb_status read_rule(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    fb_store_rule *out = item;
    fb_query query =
        fb_query_begin(connection, "SELECT name, version, digest, document, created, kind FROM rules WHERE key = ?", error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->name = fb_copy_column(&query, 0, memory, &query.status);
        out->version = (uint32_t)fb_column_int(&query, 1);
        out->digest = fb_copy_column(&query, 2, memory, &query.status);
        out->document = fb_copy_column(&query, 3, memory, &query.status);
        out->created = fb_column_int(&query, 4);
        out->kind = (fb_stored_kind)fb_column_int(&query, 5);
    }
    return fb_query_end(&query);
}

/* The key of a version, 0 = unknown; `version` 0 is the newest. */
static fb_status find_rule(fb_connection *connection, fb_stored_kind kind, const char *name, uint32_t version, int64_t *key,
                           fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT key FROM rules WHERE name = ?1 AND (version = ?2 OR ?2 = 0) AND "
                                    "(kind = ?3 OR ?3 = 0) ORDER BY version DESC LIMIT 1",
                                    error);
    fb_bind_text(&query, name);
    fb_bind_int(&query, version);
    fb_bind_int(&query, kind);
    return fb_read_key(&query, key);
}

static const char *noun_of(fb_stored_kind kind) {
    return kind == FB_STORED_LAYOUT ? "layout" : "transformation";
}

static fb_status fail_unknown(fb_error *error, fb_stored_kind kind, const char *name) {
    return fb_fail(error, FB_NOT_FOUND, kind == FB_STORED_LAYOUT ? "unknown-layout" : "unknown-transformation", NULL,
                   "there is no %s %.100s", noun_of(kind), name);
}

/* ---- put ---- */

typedef struct put_rule {
    fb_stored_kind kind;
    const char *name, *digest, *document;
    const fb_store_actor *by;
    int64_t created;
    bool is_new;
    fb_store_rule stored;
} put_rule;

static fb_status insert_rule(fb_connection *connection, const put_rule *put, int64_t *key, fb_error *error) {
    fb_query insert =
        fb_query_begin(connection,
                       "INSERT INTO rules (name, version, digest, document, created, kind) VALUES "
                       "(?1, (SELECT coalesce(max(version), 0) + 1 FROM rules WHERE name = ?1), ?2, ?3, ?4, ?5) RETURNING key",
                       error);
    fb_bind_text(&insert, put->name);
    fb_bind_text(&insert, put->digest);
    fb_bind_text(&insert, put->document);
    fb_bind_int(&insert, put->created);
    fb_bind_int(&insert, put->kind);
    return fb_query_insert(&insert, key);
}

static fb_status check_name(fb_connection *connection, const put_rule *put, fb_error *error) {
    fb_stored_kind other = put->kind == FB_STORED_RULE ? FB_STORED_LAYOUT : FB_STORED_RULE;
    int64_t key = 0;
    fb_status status = find_rule(connection, other, put->name, 0, &key, error);
    if (status || !key) return status;
    return fb_fail(error, FB_INVALID, "name-taken-by-pass", "/name", "%.100s is the name of a %s", put->name, noun_of(other));
}

static fb_status write_rule(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    put_rule *put = argument;
    int64_t key = 0;
    FB_STORE_FREE(&put->stored);
    fb_query query = fb_query_begin(connection, "SELECT key FROM rules WHERE name = ? AND digest = ?", error);
    fb_bind_text(&query, put->name);
    fb_bind_text(&query, put->digest);
    fb_status status = fb_read_key(&query, &key);
    if (!status) status = check_name(connection, put, error);
    put->is_new = !key;
    if (!status && !key) status = insert_rule(connection, put, &key, error);
    if (!status) status = read_rule(connection, key, &put->stored.memory, &put->stored, error);
    if (status || !put->is_new || !put->by) return status;
    char version[24];
    snprintf(version, sizeof version, "version %u", put->stored.version);
    const char *act = put->kind == FB_STORED_LAYOUT ? "layout-put" : "transformation-put";
    return fb_write_audit(connection, put->by, put->created, act, put->name, version, error);
}

fb_status fb_store_put_rule(fb_store *store, fb_stored_kind kind, const char *name, const char *digest, const char *document,
                            const fb_store_actor *by, bool *is_new, fb_store_rule *out, fb_error *error) {
    put_rule put = {
        .kind = kind, .name = name, .digest = digest, .document = document, .by = by, .created = store->config.now_ms()};
    fb_status status = fb_writer_run(&store->writer, write_rule, &put, error);
    if (status) {
        FB_STORE_FREE(&put.stored);
        return status;
    }
    *is_new = put.is_new;
    *out = put.stored;
    return FB_OK;
}

/* ---- get and list ---- */

fb_status fb_store_get_rule(fb_store *store, fb_stored_kind kind, const char *name, uint32_t version, fb_store_rule *out,
                            fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t newest = 0, key = 0;
    fb_store_rule rule = {0};
    status = find_rule(connection, kind, name, 0, &newest, error);
    if (!status && !newest) status = fail_unknown(error, kind, name);
    if (!status) status = find_rule(connection, kind, name, version, &key, error);
    if (!status && !key)
        status =
            fb_fail(error, FB_NOT_FOUND, "unknown-version", NULL, "%s %.100s has no version %u", noun_of(kind), name, version);
    if (!status) status = read_rule(connection, key, &rule.memory, &rule, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(rule.memory);
    else *out = rule;
    return status;
}

fb_status fb_store_list_rules(fb_store *store, fb_stored_kind kind, const fb_store_page *page, fb_store_rules *out,
                              fb_error *error) {
    fb_list_query query = {
        .conditions =
            &(fb_condition){.sql = "SELECT key FROM rules r WHERE key <= ?1 AND kind = ?2 AND NOT EXISTS (SELECT 1 "
                                   "FROM rules WHERE name = r.name AND version > r.version) ORDER BY key DESC LIMIT 1",
                            .has_number = true,
                            .number = kind},
        .count = 1,
        .page = page,
        .filter_hash = fb_filter_hash(fb_filter_hash(0, "rules"), noun_of(kind)),
        .item_size = sizeof *out->items,
        .read = read_rule};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* The number of a kind, if it has one of that name: of[1] is "transformation" or "layout". */
static fb_status need_rule(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error) {
    fb_stored_kind kind = !strcmp(of[1], noun_of(FB_STORED_LAYOUT)) ? FB_STORED_LAYOUT : FB_STORED_RULE;
    int64_t key = 0;
    fb_status status = find_rule(connection, kind, of[0], 0, &key, error);
    *number = kind;
    return status || key ? status : fail_unknown(error, kind, of[0]);
}

fb_status fb_store_list_rule_versions(fb_store *store, fb_stored_kind kind, const char *name, const fb_store_page *page,
                                      fb_store_rules *out, fb_error *error) {
    fb_list_query query = {
        .conditions = &(fb_condition){.sql = "SELECT key FROM rules WHERE key <= ?1 AND kind = ?2 AND name = ?3 "
                                             "ORDER BY key DESC LIMIT 1",
                                      .has_number = true,
                                      .texts = {name}},
        .count = 1,
        .find = need_rule,
        .of = {name, noun_of(kind)},
        .page = page,
        .filter_hash = fb_filter_hash(fb_filter_hash(fb_filter_hash(0, "rule versions"), noun_of(kind)), name),
        .item_size = sizeof *out->items,
        .read = read_rule};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}
