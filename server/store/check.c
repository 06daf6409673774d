#include "server/store/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json/scan.h"
#include "server/database/frame.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

/* One connection, and where to report what is found. */
typedef struct checking {
    fb_store *store;
    fb_connection *connection;
    fb_store_found *found;
    void *context;
} checking;

static fb_status begin(checking *check, fb_error *error) {
    return fb_readers_take(&check->store->readers, &check->connection, error);
}

static void end(checking *check) {
    fb_readers_give_back(&check->store->readers, check->connection);
}

/* A query that meets a damaged page is a finding, and the check goes on. */
static fb_status end_query(checking *check, fb_query *query, const char *subject, fb_error *found, fb_error *error) {
    fb_status status = fb_query_end(query);
    if (!status) return FB_OK;
    if (strcmp(found->code, "store-corrupt") == 0) {
        check->found(check->context, "database-damaged", subject, found->message);
        return FB_OK;
    }
    return fb_fail(error, status, found->code, NULL, "%s", found->message);
}

/* ---- lists -------------------------------------------------------------------------------------------------------------- */

fb_status fb_store_list_texts(fb_store *store, fb_store_kind kind, fb_store_texts *out, fb_error *error) {
    static const char *const queries[] = {
        [FB_STORED_GRAPHS] = "SELECT id FROM graphs ORDER BY id",
        [FB_STORED_RUNS] = "SELECT id FROM runs ORDER BY id",
        [FB_STORED_BLOBS] = "SELECT digest FROM blobs ORDER BY digest",
        [FB_STORED_RULES] = "SELECT name || ' ' || version FROM rules ORDER BY name, version",
    };
    fb_store_texts list = {0};
    fb_query query = fb_read_begin(&store->readers, queries[kind], error);
    for (; fb_query_row(&query); list.count++) {
        const char *text = fb_column_text(&query, 0);
        fb_buffer_append(&list.texts, text, strlen(text) + 1);
    }
    if (!query.status && list.texts.failed) query.status = fb_fail_memory(error);
    fb_status status = fb_read_end(&store->readers, &query);
    if (status) fb_buffer_free(&list.texts);
    else *out = list;
    return status;
}

/* ---- pages -------------------------------------------------------------------------------------------------------------- */

fb_status fb_store_check_pages(fb_store *store, fb_store_found *found, void *context, fb_error *error) {
    checking check = {store, NULL, found, context};
    fb_error met = {0};
    fb_status status = begin(&check, error);
    if (status) return status;
    const char *pages = fb_sql_check_pages(check.connection);
    fb_query query = fb_query_begin(check.connection, pages ? pages : "SELECT 'ok'", &met);
    while (fb_query_row(&query)) {
        const char *line = fb_column_text(&query, 0);
        if (strcmp(line, "ok") != 0) found(context, "database-damaged", "the database", line);
    }
    status = end_query(&check, &query, "the database", &met, error);
    end(&check);
    return status;
}

/* ---- references --------------------------------------------------------------------------------------------------------- */

static fb_status check_keys(checking *check, fb_error *error) {
    const char *keys = fb_sql_check_keys(check->connection);
    if (!keys) return FB_OK; /* it looks after them itself */
    fb_error met = {0};
    fb_query query = fb_query_begin(check->connection, keys, &met);
    while (fb_query_row(&query)) {
        char subject[120], detail[160];
        snprintf(subject, sizeof subject, "row %lld of %.80s", (long long)fb_column_int(&query, 1), fb_column_text(&query, 0));
        snprintf(detail, sizeof detail, "it refers to a row of %.80s that is not there", fb_column_text(&query, 2));
        check->found(check->context, "reference-broken", subject, detail);
    }
    return end_query(check, &query, "the database", &met, error);
}

/* References by text: rows of two columns, the subject and what is wrong. */
static const struct {
    const char *code, *sql;
} text_references[] = {
    {"reference-broken",
     "SELECT 'entry ' || e.number || ' of the history of aliases', 'its graph ' || e.graph || ' is not there' "
     "FROM alias_entries e JOIN versions v ON v.key = e.version "
     "WHERE NOT EXISTS (SELECT 1 FROM graphs WHERE id = e.graph)"},
    {"reference-broken", "SELECT 'entry ' || e.number || ' of the history of aliases', 'its run ' || e.run || ' is not there' "
                         "FROM alias_entries e JOIN versions v ON v.key = e.version "
                         "WHERE e.run IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs WHERE id = e.run)"},
    {"alias-broken", "SELECT 'alias ' || m.name || '@' || a.name, 'it is not at the version of its last entry' "
                     "FROM aliases a JOIN models m ON m.key = a.model WHERE a.version IS DISTINCT FROM "
                     "(SELECT version FROM alias_entries WHERE alias = a.key ORDER BY number DESC LIMIT 1)"},
    {"alias-broken", "SELECT 'entry ' || e.number || ' of the history of aliases', 'it does not follow the entry before it' "
                     "FROM alias_entries e WHERE e.previous IS DISTINCT FROM (SELECT max(number) FROM alias_entries "
                     "WHERE alias = e.alias AND number < e.number)"},
    {"blob-missing", "SELECT 'graph ' || g.id, 'its blob ' || b.digest || ' was here and is not' "
                     "FROM graph_blobs b JOIN graphs g ON g.key = b.graph "
                     "WHERE b.is_held = 1 AND NOT EXISTS (SELECT 1 FROM blobs WHERE digest = b.digest)"},
    {"reference-broken", "SELECT 'run ' || r.id, 'it undoes nothing' FROM runs r "
                         "WHERE r.kind IN ('reverse', 'rollback') AND r.of_run IS NULL"},
};

fb_status fb_store_check_references(fb_store *store, fb_store_found *found, void *context, fb_error *error) {
    checking check = {store, NULL, found, context};
    fb_status status = begin(&check, error);
    if (status) return status;
    status = check_keys(&check, error);
    for (size_t i = 0; i < sizeof text_references / sizeof *text_references && !status; i++) {
        fb_error met = {0};
        fb_query query = fb_query_begin(check.connection, text_references[i].sql, &met);
        while (fb_query_row(&query)) {
            char subject[480];
            fb_copy_text(subject, sizeof subject, fb_column_text(&query, 0));
            found(context, text_references[i].code, subject, fb_column_text(&query, 1));
        }
        status = end_query(&check, &query, "the database", &met, error);
    }
    end(&check);
    return status;
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

fb_status fb_store_check_answers(fb_store *store, fb_store_found *found, void *context, uint64_t *count, fb_error *error) {
    checking check = {store, NULL, found, context};
    fb_error met = {0};
    fb_status status = begin(&check, error);
    if (status) return status;
    fb_query query = fb_query_begin(check.connection, "SELECT scope, body_size, body FROM answers", &met);
    for (; fb_query_row(&query); ++*count) {
        fb_error damage = {0};
        char *body = NULL, subject[300];
        size_t size = 0;
        if (fb_column_is_null(&query, 2)) continue;
        const void *frame = fb_column_bytes(&query, 2, &size);
        snprintf(subject, sizeof subject, "the answer to a %.200s", fb_column_text(&query, 0));
        if (fb_frame_unpack(frame, size, (size_t)fb_column_int(&query, 1), &body, &damage) == FB_IO)
            found(context, "answer-damaged", subject, damage.message);
        free(body);
    }
    status = end_query(&check, &query, "the answers to repeated requests", &met, error);
    end(&check);
    return status;
}

/* ---- the audit ---------------------------------------------------------------------------------------------------------- */

/* True for text as every writer of an entry writes it: UTF-8 without control characters. */
static bool is_text(const char *text) {
    const unsigned char *at = (const unsigned char *)text, *end = at + strlen(text);
    for (size_t length; at < end; at += length) {
        length = fb_utf8_length(at, end);
        if (!length || *at < 0x20 || *at == 0x7f) return false;
    }
    return true;
}

/* As all of them are. */
static bool is_action(const char *text) {
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz-") == strlen(text);
}

/* The entries that were read so far. */
typedef struct audit_chain {
    char digest[FB_ID_LENGTH + 1]; /* of the last one; "" before the first that has one */
    int64_t at;                    /* of the last one */
    bool is_begun;                 /* by an entry with a digest */
    bool is_trimmed;               /* the audit says that old entries were removed */
} audit_chain;

static fb_status is_audit_trimmed(fb_connection *connection, bool *is_trimmed, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT 1 FROM audit WHERE action = 'audit-trim' LIMIT 1", error);
    *is_trimmed = fb_query_row(&query);
    return fb_query_end(&query);
}

/* The fault of an entry's text; NULL: none. */
static const char *find_wrong_text(const fb_audit_entry *entry) {
    if (!is_text(entry->who) || !*entry->who) return "who is not the text that was written";
    if (entry->request && !is_text(entry->request)) return "the request is not the text that was written";
    if (!is_text(entry->action) || !is_action(entry->action)) return "the action is not the text that was written";
    if (!is_text(entry->object)) return "the object is not the text that was written";
    return is_text(entry->outcome) ? NULL : "the outcome is not the text that was written";
}

/* The same of its digest, and then the chain goes on with it. Entries before it may have been removed for their age: all of
 * them, or all but some that a wrong clock dated later. */
static const char *find_wrong_digest(audit_chain *chain, const fb_audit_entry *entry, const char *digest, bool *has_memory) {
    char expected[FB_ID_LENGTH + 1];
    bool may_begin = chain->is_trimmed && (!chain->is_begun || chain->at > entry->at);
    if (!digest) return chain->is_begun ? "it has no digest, and an entry before it has one" : NULL;
    *has_memory = fb_audit_digest(chain->digest, entry, expected);
    bool is_right = !*has_memory || may_begin || !strcmp(expected, digest);
    fb_copy_text(chain->digest, sizeof chain->digest, digest);
    chain->at = entry->at;
    chain->is_begun = true;
    return is_right ? NULL : "it is not the entry that was written, or one before it was removed";
}

fb_status fb_store_check_audit(fb_store *store, fb_store_found *found, void *context, fb_error *error) {
    checking check = {store, NULL, found, context};
    fb_error met = {0};
    fb_error ignored = {0};
    audit_chain chain = {0};
    bool has_memory = true;
    fb_status status = begin(&check, error);
    if (status) return status;
    is_audit_trimmed(check.connection, &chain.is_trimmed, &ignored); /* the other query meets that as well */
    fb_query query = fb_query_begin(
        check.connection, "SELECT number, at, who, request, action, object, outcome, digest FROM audit ORDER BY number", &met);
    while (has_memory && fb_query_row(&query)) {
        char subject[60];
        const fb_audit_entry entry = {.at = fb_column_int(&query, 1),
                                      .who = fb_column_text(&query, 2),
                                      .request = fb_column_is_null(&query, 3) ? NULL : fb_column_text(&query, 3),
                                      .action = fb_column_text(&query, 4),
                                      .object = fb_column_text(&query, 5),
                                      .outcome = fb_column_text(&query, 6)};
        const char *digest = fb_column_is_null(&query, 7) ? NULL : fb_column_text(&query, 7);
        const char *wrong_digest = find_wrong_digest(&chain, &entry, digest, &has_memory), *wrong = find_wrong_text(&entry);
        if (!wrong) wrong = wrong_digest;
        snprintf(subject, sizeof subject, "entry %lld of the audit", (long long)fb_column_int(&query, 0));
        if (wrong) found(context, "audit-damaged", subject, wrong);
    }
    fb_status ended = end_query(&check, &query, "the audit", &met, error);
    end(&check);
    if (!has_memory) return fb_fail_memory(error);
    return ended;
}

/* ---- rows of graphs ----------------------------------------------------------------------------------------------------- */

static fb_status count_of(fb_connection *connection, const char *sql, int64_t key, int64_t *count, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    fb_bind_int(&query, key);
    return fb_read_key(&query, count);
}

/* A document may name a signature twice at one node. */
static size_t count_distinct(const fb_store_mark *marks, size_t count) {
    size_t distinct = 0;
    for (size_t i = 0; i < count; i++) {
        size_t j = i;
        while (j > 0 && marks[j - 1].node == marks[i].node && strcmp(marks[j - 1].signature, marks[i].signature) != 0) j--;
        distinct += j == 0 || marks[j - 1].node != marks[i].node;
    }
    return distinct;
}

static fb_status check_marks(checking *check, int64_t key, const fb_store_graph *graph, bool *is_right, fb_error *error) {
    int64_t count = 0;
    fb_status status = count_of(check->connection, "SELECT count(*) FROM node_signatures WHERE graph = ?", key, &count, error);
    *is_right = (size_t)count == count_distinct(graph->marks, graph->mark_count);
    fb_query query = fb_query_begin(check->connection,
                                    "SELECT 1 FROM node_signatures WHERE graph = ? AND node = ? AND signature = "
                                    "(SELECT id FROM signatures WHERE text = ?) AND coalesce(name = ?, TRUE)",
                                    error);
    for (size_t i = 0; i < graph->mark_count && *is_right && !status && !query.status; i++) {
        fb_bind_int(&query, key);
        fb_bind_int(&query, graph->marks[i].node);
        fb_bind_text(&query, graph->marks[i].signature);
        fb_bind_text(&query, graph->marks[i].name);
        *is_right = fb_query_row(&query);
        fb_query_again(&query);
    }
    fb_status ended = fb_query_end(&query);
    return status ? status : ended;
}

static fb_status check_blobs(checking *check, int64_t key, const fb_store_graph *graph, bool *is_right, fb_error *error) {
    int64_t count = 0;
    fb_status status = count_of(check->connection, "SELECT count(*) FROM graph_blobs WHERE graph = ?", key, &count, error);
    *is_right = (size_t)count == graph->blob_count;
    fb_query query = fb_query_begin(check->connection, "SELECT 1 FROM graph_blobs WHERE graph = ? AND digest = ?", error);
    for (size_t i = 0; i < graph->blob_count && *is_right && !status && !query.status; i++) {
        fb_bind_int(&query, key);
        fb_bind_text(&query, graph->blobs[i]);
        *is_right = fb_query_row(&query);
        fb_query_again(&query);
    }
    fb_status ended = fb_query_end(&query);
    return status ? status : ended;
}

/* The fault of a row; NULL: none. */
static const char *compare_row(fb_query *query, const fb_store_graph *graph) {
    if (strcmp(fb_column_text(query, 1), graph->structure) != 0) return "the structure is not that of the document";
    if (strcmp(fb_column_text(query, 2), graph->name) != 0) return "the name is not that of the document";
    if (fb_column_int(query, 3) != (int64_t)graph->node_count) return "the number of nodes is not that of the document";
    return NULL;
}

fb_status fb_store_check_graph(fb_store *store, const fb_store_graph *graph, fb_store_found *found, void *context,
                               fb_error *error) {
    checking check = {store, NULL, found, context};
    char subject[FB_ID_LENGTH + 8];
    snprintf(subject, sizeof subject, "graph %s", graph->id);
    fb_status status = begin(&check, error);
    if (status) return status;
    fb_query query = fb_query_begin(check.connection, "SELECT key, structure, name, nodes FROM graphs WHERE id = ?", error);
    fb_bind_text(&query, graph->id);
    bool is_known = fb_query_row(&query), has_marks = true, has_blobs = true;
    int64_t key = is_known ? fb_column_int(&query, 0) : 0;
    const char *wrong = is_known ? compare_row(&query, graph) : NULL;
    if (wrong) found(context, "graph-rows-wrong", subject, wrong);
    status = fb_query_end(&query);
    if (!status && !is_known) status = fb_fail_unknown_graph(error, graph->id);
    if (!status) status = check_marks(&check, key, graph, &has_marks, error);
    if (!status) status = check_blobs(&check, key, graph, &has_blobs, error);
    end(&check);
    if (status) return status;
    if (!has_marks) found(context, "graph-rows-wrong", subject, "the signatures of its nodes are not those in the document");
    if (!has_blobs) found(context, "graph-rows-wrong", subject, "the blobs that it needs are not those in the document");
    return FB_OK;
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

fb_status fb_store_tensor_digests(fb_store *store, const char *blob, fb_store_tensor_digest **out, size_t *count,
                                  fb_error *error) {
    fb_buffer list = {0};
    fb_query query = fb_read_begin(&store->readers,
                                   "SELECT \"offset\", dtype, shape, digest FROM tensor_digests WHERE blob = "
                                   "(SELECT key FROM blobs WHERE digest = ?) ORDER BY \"offset\"",
                                   error);
    fb_bind_text(&query, blob);
    while (fb_query_row(&query)) {
        fb_store_tensor_digest one = {.offset = (uint64_t)fb_column_int(&query, 0)};
        if (strlen(fb_column_text(&query, 2)) >= sizeof one.shape) continue;
        snprintf(one.dtype, sizeof one.dtype, "%s", fb_column_text(&query, 1));
        snprintf(one.shape, sizeof one.shape, "%s", fb_column_text(&query, 2));
        snprintf(one.digest, sizeof one.digest, "%s", fb_column_text(&query, 3));
        fb_buffer_append(&list, &one, sizeof one);
    }
    if (!query.status && list.failed) query.status = fb_fail_memory(error);
    fb_status status = fb_read_end(&store->readers, &query);
    if (status) {
        fb_buffer_free(&list);
        return status;
    }
    *count = list.size / sizeof **out;
    *out = (fb_store_tensor_digest *)(void *)list.data;
    return FB_OK;
}
