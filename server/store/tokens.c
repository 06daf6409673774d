/* Tokens. */
#include <stdlib.h>
#include <string.h>

#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

static fb_status read_token(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    fb_store_token *out = item;
    fb_query query = fb_query_begin(connection,
                                    "SELECT name, digest, CASE WHEN manages_hooks = 1 THEN 'hooks' ELSE scope END, created, "
                                    "expires, revoked, last_used FROM tokens WHERE key = ?",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->key = key;
        out->name = fb_copy_column(&query, 0, memory, &query.status);
        out->digest = fb_copy_column(&query, 1, memory, &query.status);
        out->scope = fb_copy_column(&query, 2, memory, &query.status);
        out->created = fb_column_int(&query, 3);
        out->expires = fb_column_int(&query, 4); /* 0 when it is NULL; so are the next two */
        out->revoked = fb_column_int(&query, 5);
        out->last_used = fb_column_int(&query, 6);
    }
    return fb_query_end(&query);
}

/* 0 = unknown. */
static fb_status find_token(fb_connection *connection, const char *name, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM tokens WHERE name = ?", error);
    fb_bind_text(&query, name);
    return fb_read_key(&query, key);
}

static fb_status need_token(fb_connection *connection, const char *name, int64_t *key, fb_error *error) {
    fb_status status = find_token(connection, name, key, error);
    return !status && !*key ? fb_fail(error, FB_NOT_FOUND, "unknown-token", NULL, "there is no token %s", name) : status;
}

/* ---- create and revoke ---- */

typedef struct token_write {
    const fb_store_token *token;
    const char *name;
    const fb_store_actor *by;
    int64_t now;
    fb_store_token stored;
} token_write;

static fb_status insert_token(fb_connection *connection, const token_write *write, int64_t *key, fb_error *error) {
    const fb_store_token *token = write->token;
    bool manages_hooks = strcmp(token->scope, "hooks") == 0;
    fb_query insert = fb_query_begin(
        connection,
        "INSERT INTO tokens (name, digest, scope, created, expires, manages_hooks) VALUES (?, ?, ?, ?, ?, ?) RETURNING key",
        error);
    fb_bind_text(&insert, token->name);
    fb_bind_text(&insert, token->digest);
    fb_bind_text(&insert, manages_hooks ? "read" : token->scope); /* which it includes */
    fb_bind_int(&insert, write->now);
    fb_bind_key(&insert, token->expires);
    fb_bind_int(&insert, manages_hooks);
    return fb_query_insert(&insert, key);
}

static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    token_write *write = argument;
    const fb_store_token *token = write->token;
    int64_t key = 0;
    FB_STORE_FREE(&write->stored);
    if (token->expires && token->expires <= write->now)
        return fb_fail(error, FB_INVALID, "already-expired", "/expires",
                       "the token would have expired already: that time is in the past");
    fb_status status = find_token(connection, token->name, &key, error);
    if (!status && key)
        return fb_fail(error, FB_CONFLICT, "token-exists", NULL,
                       "there is a token %s already, or was: a name is given once, so that the audit is clear", token->name);
    if (!status) status = insert_token(connection, write, &key, error);
    if (!status) status = fb_write_audit(connection, write->by, write->now, "token-create", token->name, token->scope, error);
    return status ? status : read_token(connection, key, &write->stored.memory, &write->stored, error);
}

static fb_status write_revocation(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    token_write *write = argument;
    int64_t key = 0;
    FB_STORE_FREE(&write->stored);
    fb_status status = need_token(connection, write->name, &key, error);
    if (status) return status;
    fb_query update = fb_query_begin(connection, "UPDATE tokens SET revoked = ? WHERE key = ? AND revoked IS NULL", error);
    fb_bind_int(&update, write->now);
    fb_bind_int(&update, key);
    status = fb_query_run(&update);
    if (!status && fb_changed_rows(connection))
        status = fb_write_audit(connection, write->by, write->now, "token-revoke", write->name, "revoked", error);
    return status ? status : read_token(connection, key, &write->stored.memory, &write->stored, error);
}

static fb_status do_write(fb_store *store, fb_write_function *function, token_write *write, fb_store_token *out,
                          fb_error *error) {
    write->now = store->config.now_ms();
    fb_status status = function == write_revocation ? fb_writer_make_room(&store->writer, function, NULL, write, error)
                                                    : fb_writer_run(&store->writer, function, write, error);
    if (status) FB_STORE_FREE(&write->stored);
    else *out = write->stored;
    return status;
}

fb_status fb_store_put_token(fb_store *store, const fb_store_token *token, const fb_store_actor *by, fb_store_token *out,
                             fb_error *error) {
    return do_write(store, write_put, &(token_write){.token = token, .by = by}, out, error);
}

fb_status fb_store_revoke_token(fb_store *store, const char *name, const fb_store_actor *by, fb_store_token *out,
                                fb_error *error) {
    return do_write(store, write_revocation, &(token_write){.name = name, .by = by}, out, error);
}

/* ---- use ---- */

typedef struct token_use {
    int64_t key, at;
} token_use;

static fb_status write_use(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const token_use *use = argument;
    fb_query update = fb_query_begin(connection, "UPDATE tokens SET last_used = ? WHERE key = ?", error);
    fb_bind_int(&update, use->at);
    fb_bind_int(&update, use->key);
    return fb_query_run(&update);
}

fb_status fb_store_post_token_use(fb_store *store, int64_t key, int64_t at, fb_error *error) {
    token_use *use = malloc(sizeof *use);
    if (!use) return fb_fail_memory(error);
    *use = (token_use){.key = key, .at = at};
    return fb_writer_post_take(&store->writer, write_use, use, error);
}

/* ---- get and list ---- */

fb_status fb_store_get_token(fb_store *store, const char *name, fb_store_token *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    int64_t key = 0;
    fb_store_token token = {0};
    status = need_token(connection, name, &key, error);
    if (!status) status = read_token(connection, key, &token.memory, &token, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(token.memory);
    else *out = token;
    return status;
}

fb_status fb_store_list_tokens(fb_store *store, const fb_store_page *page, fb_store_tokens *out, fb_error *error) {
    fb_list_query query = {.conditions =
                               &(fb_condition){.sql = "SELECT key FROM tokens WHERE key <= ? ORDER BY key DESC LIMIT 1"},
                           .count = 1,
                           .page = page,
                           .filter_hash = fb_filter_hash(0, "tokens"),
                           .item_size = sizeof *out->items,
                           .read = read_token};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}
