/* Models, their versions, and the entries of their aliases. */

#include <stdio.h>
#include <string.h>

#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/models.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/webhooks.h"

bool fb_is_name(const char *text) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(text);
    return length && length <= FB_NAME_MAX && strspn(text, allowed) == length && strcmp(text, ".") && strcmp(text, "..");
}

/* ---- models ---- */

fb_status fb_need_model(fb_connection *connection, const char *name, int64_t *key, fb_error *error) {
    int64_t found = 0;
    fb_query query = fb_query_begin(connection, "SELECT key FROM models WHERE name = ?", error);
    fb_bind_text(&query, name);
    fb_status status = fb_read_key(&query, &found);
    if (!status && !found) return fb_fail(error, FB_NOT_FOUND, "unknown-model", NULL, "there is no model %s", name);
    if (!status) *key = found;
    return status;
}

static fb_status read_model(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    fb_store_model *out = item;
    fb_query query = fb_query_begin(connection,
                                    "SELECT name, created, (SELECT count(*) FROM versions WHERE model = ?1), "
                                    "(SELECT count(*) FROM aliases WHERE model = ?1 AND version IS NOT NULL), naming "
                                    "FROM models WHERE key = ?1",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->name = fb_copy_column(&query, 0, memory, &query.status);
        out->created = fb_column_int(&query, 1);
        out->versions = (uint64_t)fb_column_int(&query, 2);
        out->aliases = (uint64_t)fb_column_int(&query, 3);
        out->naming = fb_copy_column(&query, 4, memory, &query.status);
    }
    return fb_query_end(&query);
}

typedef struct put_model {
    const char *name, *naming;
    const fb_store_actor *by;
    int64_t now;
    bool is_new;
    fb_store_model stored;
} put_model;

/* On the writer: the same, and makes a model that is missing. */
static fb_status add_model(fb_connection *connection, const char *name, int64_t created, int64_t *key, fb_error *error) {
    fb_query insert =
        fb_query_begin(connection, "INSERT INTO models (name, created) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", error);
    fb_bind_text(&insert, name);
    fb_bind_int(&insert, created);
    fb_status status = fb_query_run(&insert);
    return status ? status : fb_need_model(connection, name, key, error);
}

static fb_status write_model(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    put_model *put = argument;
    int64_t key = 0, same = 0;
    FB_STORE_FREE(&put->stored);
    fb_query known = fb_query_begin(connection, "SELECT key FROM models WHERE name = ?", error);
    fb_bind_text(&known, put->name);
    fb_status status = fb_read_key(&known, &key);
    put->is_new = !key;
    if (!status && !key) status = add_model(connection, put->name, put->now, &key, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "SELECT key FROM models WHERE key = ?1 AND naming = ?2", error);
    fb_bind_int(&query, key);
    fb_bind_text(&query, put->naming);
    status = fb_read_key(&query, &same);
    if (!status && !same) {
        fb_query update = fb_query_begin(connection, "UPDATE models SET naming = ?2 WHERE key = ?1", error);
        fb_bind_int(&update, key);
        fb_bind_text(&update, put->naming);
        status = fb_query_run(&update);
    }
    if (!status && (put->is_new || !same))
        status = fb_write_audit(connection, put->by, put->now, "model-put", put->name, put->naming, error);
    return status ? status : read_model(connection, key, &put->stored.memory, &put->stored, error);
}

fb_status fb_store_put_model(fb_store *store, const char *name, const char *naming, const fb_store_actor *by, bool *is_new,
                             fb_store_model *out, fb_error *error) {
    put_model put = {.name = name, .naming = naming, .by = by, .now = store->config.now_ms()};
    fb_status status = fb_writer_run(&store->writer, write_model, &put, error);
    if (status) {
        FB_STORE_FREE(&put.stored);
        return status;
    }
    *is_new = put.is_new;
    *out = put.stored;
    return FB_OK;
}

fb_status fb_store_get_model(fb_store *store, const char *name, fb_store_model *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0;
    fb_store_model model = {0};
    status = fb_need_model(connection, name, &key, error);
    if (!status) status = read_model(connection, key, &model.memory, &model, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(model.memory);
    else *out = model;
    return status;
}

/* The same, of[0], for fb_list_query.find. */
static fb_status find_model_of(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error) {
    return fb_need_model(connection, of[0], number, error);
}

fb_status fb_store_list_models(fb_store *store, const fb_store_page *page, fb_store_models *out, fb_error *error) {
    fb_list_query query = {.conditions =
                               &(fb_condition){.sql = "SELECT key FROM models WHERE key <= ? ORDER BY key DESC LIMIT 1"},
                           .count = 1,
                           .page = page,
                           .filter_hash = fb_filter_hash(0, "models"),
                           .item_size = sizeof *out->items,
                           .read = read_model};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* ---- versions ---- */

fb_status fb_find_version(fb_connection *connection, int64_t model, const char *name, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM versions WHERE model = ? AND name = ?", error);
    fb_bind_int(&query, model);
    fb_bind_text(&query, name);
    return fb_read_key(&query, key);
}

fb_status fb_fail_unknown_version(fb_error *error, const char *model, const char *name) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-version", NULL, "model %s has no version %s", model, name);
}

fb_status fb_store_get_version(fb_store *store, const char *model, const char *name, fb_store_version *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t model_key = 0, key = 0;
    fb_store_version version = {0};
    status = fb_need_model(connection, model, &model_key, error);
    if (!status) status = fb_find_version(connection, model_key, name, &key, error);
    if (!status && !key) status = fb_fail_unknown_version(error, model, name);
    if (!status) status = fb_read_version(connection, key, &version.memory, &version, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(version.memory);
    else *out = version;
    return status;
}

static fb_status read_version_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item,
                                   fb_error *error) {
    return fb_read_version(connection, key, memory, item, error);
}

fb_status fb_store_list_versions(fb_store *store, const char *model, const fb_store_page *page, fb_store_versions *out,
                                 fb_error *error) {
    fb_list_query query = {
        .conditions =
            &(fb_condition){.sql = "SELECT key FROM versions WHERE key <= ?1 AND model = ?2 ORDER BY key DESC LIMIT 1",
                            .has_number = true},
        .count = 1,
        .find = find_model_of,
        .of = {model},
        .page = page,
        .filter_hash = fb_filter_hash(fb_filter_hash(0, "versions"), model),
        .item_size = sizeof *out->items,
        .read = read_version_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* ---- making and deleting versions ---- */

/* Notes what was done with a version. */
static fb_status audit_version(fb_connection *connection, const fb_store_actor *by, int64_t at, const char *action,
                               const char *model, const char *name, const char *outcome, fb_error *error) {
    char object[2 * FB_NAME_MAX + 2];
    snprintf(object, sizeof object, "%s:%s", model, name);
    return fb_write_audit(connection, by, at, action, object, outcome, error);
}

/* ---- put ---- */

typedef struct put_version {
    const fb_store_new_version *version;
    int64_t created;
    fb_packed_graph document;
    fb_store_version stored;
    bool is_new;
} put_version;

/* The keys of the version's graph, and of its run (0 = none). */
static fb_status find_content(fb_connection *connection, const fb_store_new_version *version, int64_t *graph, int64_t *run,
                              fb_error *error) {
    if (version->run) {
        fb_status status = fb_find_run(connection, version->run, run, error);
        if (!status && !*run) return fb_fail_unknown_run(error, version->run);
        if (status) return status;
        fb_query query = fb_query_begin(connection, "SELECT result FROM runs WHERE key = ?", error);
        fb_bind_int(&query, *run);
        return fb_read_key(&query, graph);
    }
    const char *id = version->document ? version->document->id : version->graph;
    fb_status status = fb_find_graph(connection, id, graph, error);
    return !status && !*graph ? fb_fail_unknown_graph(error, id) : status;
}

fb_status fb_insert_version(fb_connection *connection, int64_t model, const char *name, int64_t graph, int64_t run,
                            const char *note, int64_t created, int64_t *key, fb_error *error) {
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO versions (model, name, graph, run, note, created) VALUES (?, ?, ?, ?, ?, ?) RETURNING key",
        error);
    fb_bind_int(&insert, model);
    fb_bind_text(&insert, name);
    fb_bind_int(&insert, graph);
    fb_bind_key(&insert, run);
    fb_bind_text(&insert, note);
    fb_bind_int(&insert, created);
    fb_status status = fb_query_insert(&insert, key);
    return status ? status : fb_tell_version(connection, *key, error);
}

static fb_status check_same(fb_connection *connection, const fb_store_new_version *version, int64_t key, int64_t graph,
                            fb_error *error) {
    int64_t same = 0;
    fb_query query = fb_query_begin(connection, "SELECT key FROM versions WHERE key = ? AND graph = ?", error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, graph);
    fb_status status = fb_read_key(&query, &same);
    if (!status && !same)
        return fb_fail(error, FB_CONFLICT, "version-exists", NULL,
                       "version %s of model %s is another graph, and versions never change", version->name, version->model);
    return status;
}

static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    put_version *put = argument;
    const fb_store_new_version *version = put->version;
    int64_t model = 0, key = 0, graph = 0, run = 0;
    fb_status status = FB_OK;
    FB_STORE_FREE(&put->stored);
    if (version->document) status = fb_write_graph(connection, &put->document, added, error);
    if (!status) status = find_content(connection, version, &graph, &run, error);
    if (!status) status = add_model(connection, version->model, put->created, &model, error);
    if (!status) status = fb_find_version(connection, model, version->name, &key, error);
    put->is_new = !key;
    if (!status && key) status = check_same(connection, version, key, graph, error);
    else if (!status)
        status = fb_insert_version(connection, model, version->name, graph, run, version->note, put->created, &key, error);
    if (!status) status = fb_read_version(connection, key, &put->stored.memory, &put->stored, error);
    if (status || !put->is_new) return status;
    return audit_version(connection, &version->by, put->created, "version-put", version->model, version->name,
                         put->stored.graph, error);
}

fb_status fb_store_put_version(fb_store *store, const fb_store_new_version *version, bool *is_new, fb_store_version *out,
                               fb_error *error) {
    put_version put = {.version = version, .created = store->config.now_ms()};
    fb_status status = version->document ? fb_pack_graphs(store, version->document, 1, &put.document, error) : FB_OK;
    if (!status) status = fb_writer_run(&store->writer, write_put, &put, error);
    fb_packed_graphs_free(&put.document, 1);
    if (status) {
        FB_STORE_FREE(&put.stored);
        return status;
    }
    if (put.is_new) fb_store_tell(store, FB_VERSION_CREATED);
    *is_new = put.is_new;
    *out = put.stored;
    return FB_OK;
}

/* ---- delete ---- */

typedef struct delete_version {
    const char *model, *name;
    const fb_store_actor *by;
    int64_t now;
} delete_version;

/* An alias that was deleted needs nothing. */
static fb_status check_unused(fb_connection *connection, const delete_version *delete, int64_t key, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT a.name, a.version = ?1 FROM alias_entries e JOIN aliases a ON a.key = e.alias "
                                    "WHERE e.version = ?1 AND a.version IS NOT NULL ORDER BY 2 DESC LIMIT 1",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query))
        query.status = fb_fail(error, FB_CONFLICT, "version-in-use", NULL,
                               fb_column_int(&query, 1) ? "alias %s of model %s has version %s"
                                                        : "alias %s of model %s could be rolled back to version %s",
                               fb_column_text(&query, 0), delete->model, delete->name);
    return fb_query_end(&query);
}

static fb_status write_delete(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const delete_version *delete = argument;
    int64_t model = 0, key = 0;
    fb_status status = fb_need_model(connection, delete->model, &model, error);
    if (!status) status = fb_find_version(connection, model, delete->name, &key, error);
    if (!status && !key) return fb_fail_unknown_version(error, delete->model, delete->name);
    if (!status) status = check_unused(connection, delete, key, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "DELETE FROM versions WHERE key = ?", error);
    fb_bind_int(&query, key);
    status = fb_query_run(&query);
    if (status) return status;
    return audit_version(connection, delete->by, delete->now, "version-delete", delete->model, delete->name, "deleted", error);
}

fb_status fb_store_delete_version(fb_store *store, const char *model, const char *name, const fb_store_actor *by,
                                  fb_error *error) {
    delete_version delete = {.model = model, .name = name, .by = by, .now = store->config.now_ms()};
    return fb_writer_make_room(&store->writer, write_delete, NULL, &delete, error);
}

/* ---- aliases: their last entries, their histories, and all entries after one ---- */

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
        .find = find_model_of,
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
