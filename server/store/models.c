/* Reading models and their versions. */

#include <string.h>

#include "server/store/audit.h"
#include "server/store/internal.h"

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

fb_status fb_add_model(fb_connection *connection, const char *name, int64_t created, int64_t *key, fb_error *error) {
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
    fb_store_model_free(&put->stored);
    fb_query known = fb_query_begin(connection, "SELECT key FROM models WHERE name = ?", error);
    fb_bind_text(&known, put->name);
    fb_status status = fb_read_key(&known, &key);
    put->is_new = !key;
    if (!status && !key) status = fb_add_model(connection, put->name, put->now, &key, error);
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
        fb_store_model_free(&put.stored);
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

void fb_store_model_free(fb_store_model *model) {
    fb_memory_free(model->memory);
    *model = (fb_store_model){0};
}

fb_status fb_find_model_of(fb_connection *connection, const char *const *of, int64_t *number, fb_error *error) {
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

void fb_store_models_free(fb_store_models *models) {
    fb_memory_free(models->memory);
    *models = (fb_store_models){0};
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

fb_status fb_read_version(fb_connection *connection, int64_t key, fb_store_memory **memory, fb_store_version *out,
                          fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT m.name, v.name, g.id, r.id, v.note, v.created FROM versions v "
                                    "JOIN models m ON m.key = v.model JOIN graphs g ON g.key = v.graph "
                                    "LEFT JOIN runs r ON r.key = v.run WHERE v.key = ?",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->model = fb_copy_column(&query, 0, memory, &query.status);
        out->name = fb_copy_column(&query, 1, memory, &query.status);
        out->graph = fb_copy_column(&query, 2, memory, &query.status);
        out->run = fb_copy_optional(&query, 3, memory, &query.status);
        out->note = fb_copy_optional(&query, 4, memory, &query.status);
        out->created = fb_column_int(&query, 5);
    } else if (!query.status) {
        query.status = fb_fail_corrupt(error, "a version without its graph");
    }
    return fb_query_end(&query);
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

void fb_store_version_free(fb_store_version *version) {
    fb_memory_free(version->memory);
    *version = (fb_store_version){0};
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
        .find = fb_find_model_of,
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

void fb_store_versions_free(fb_store_versions *versions) {
    fb_memory_free(versions->memory);
    *versions = (fb_store_versions){0};
}
