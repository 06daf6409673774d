/* Making and deleting versions. */
#include <stdio.h>
#include <string.h>

#include "server/store/audit.h"
#include "server/store/internal.h"
#include "server/store/webhooks.h"

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
    fb_store_version_free(&put->stored);
    if (version->document) status = fb_write_graph(connection, &put->document, added, error);
    if (!status) status = find_content(connection, version, &graph, &run, error);
    if (!status) status = fb_add_model(connection, version->model, put->created, &model, error);
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
        fb_store_version_free(&put.stored);
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
    return fb_writer_run(&store->writer, write_delete, &delete, error);
}
