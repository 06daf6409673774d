/* Graphs and their marks. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/database/frame.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

fb_status fb_fail_unknown_graph(fb_error *error, const char *id) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-graph", NULL, "there is no graph %s", id);
}

fb_status fb_find_graph(fb_connection *connection, const char *id, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM graphs WHERE id = ?", error);
    fb_bind_text(&query, id);
    return fb_read_key(&query, key);
}

/* ---- signatures ---- */

static fb_status find_signature(fb_connection *connection, const char *text, int64_t *id, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT id FROM signatures WHERE text = ?", error);
    fb_bind_text(&query, text);
    return fb_read_key(&query, id);
}

fb_status fb_add_signature(fb_connection *connection, const char *text, int64_t *id, fb_error *error) {
    int64_t found = 0;
    fb_status status = find_signature(connection, text, &found, error);
    if (!status && !found) {
        fb_query insert = fb_query_begin(connection, "INSERT INTO signatures (text) VALUES (?) RETURNING id", error);
        fb_bind_text(&insert, text);
        status = fb_query_insert(&insert, &found);
    }
    if (!status) *id = found;
    return status;
}

/* ---- put ---- */

fb_status fb_pack_graphs(fb_store *store, const fb_store_graph *graphs, size_t count, fb_packed_graph *packed,
                         fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = count ? fb_readers_take(&store->readers, &connection, error) : FB_OK;
    for (size_t i = 0; i < count; i++) {
        int64_t key = 0;
        packed[i] =
            (fb_packed_graph){.graph = &graphs[i], .level = store->config.compression_level, .created = store->config.now_ms()};
        if (!status) status = fb_find_graph(connection, graphs[i].id, &key, error);
        packed[i].is_new = key == 0;
    }
    if (connection) fb_readers_give_back(&store->readers, connection);
    for (size_t i = 0; i < count && !status; i++)
        if (packed[i].is_new && !graphs[i].frame)
            status = fb_frame_pack(graphs[i].document, graphs[i].size, store->config.compression_level, &packed[i].frame,
                                   &packed[i].frame_size, error);
    return status;
}

fb_status fb_store_pack(int level, const fb_buffer *document, void **frame, size_t *frame_size, fb_error *error) {
    return fb_frame_pack(document->data, document->size, level, frame, frame_size, error);
}

int fb_store_level(const fb_store *store) {
    return store->config.compression_level;
}

void fb_packed_graphs_free(fb_packed_graph *packed, size_t count) {
    for (size_t i = 0; i < count; i++) free(packed[i].frame);
}

static fb_status write_marks(fb_connection *connection, const fb_store_graph *graph, int64_t key, fb_error *error) {
    int64_t id = 0;
    const char *last = NULL; /* marks of one signature tend to come together */
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO node_signatures (graph, signature, node, name) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        error);
    for (size_t i = 0; i < graph->mark_count && !insert.status; i++) {
        const fb_store_mark *mark = &graph->marks[i];
        if (!last || strcmp(last, mark->signature) != 0)
            insert.status = fb_add_signature(connection, mark->signature, &id, error);
        last = mark->signature;
        fb_bind_int(&insert, key);
        fb_bind_int(&insert, id);
        fb_bind_int(&insert, mark->node);
        fb_bind_text(&insert, mark->name);
        fb_query_row(&insert);
        fb_query_again(&insert);
    }
    return fb_query_end(&insert);
}

fb_status fb_write_graph(fb_connection *connection, fb_packed_graph *packed, fb_totals *added, fb_error *error) {
    const fb_store_graph *graph = packed->graph;
    int64_t key = 0;
    fb_status status = fb_find_graph(connection, graph->id, &key, error);
    packed->is_new = !status && key == 0;
    if (!packed->is_new) return status;
    if (!packed->frame && !graph->frame) /* it was known a moment ago, and has been deleted since */
        status = fb_frame_pack(graph->document, graph->size, packed->level, &packed->frame, &packed->frame_size, error);
    if (status) return status;
    fb_query insert = fb_query_begin(
        connection,
        "INSERT INTO graphs (id, structure, name, nodes, size, created, document) VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING key",
        error);
    fb_bind_text(&insert, graph->id);
    fb_bind_text(&insert, graph->structure);
    fb_bind_text(&insert, graph->name);
    fb_bind_int(&insert, graph->node_count);
    fb_bind_int(&insert, (int64_t)graph->size);
    fb_bind_int(&insert, packed->created);
    if (graph->frame) fb_bind_bytes(&insert, graph->frame, graph->frame_size);
    else fb_bind_bytes(&insert, packed->frame, packed->frame_size);
    status = fb_query_insert(&insert, &key);
    if (!status) status = write_marks(connection, graph, key, error);
    if (!status) status = fb_write_graph_blobs(connection, key, graph->blobs, graph->blob_count, error);
    if (!status) added->graphs++;
    return status;
}

typedef struct put_graph {
    fb_packed_graph graph;
    fb_packed_answer answer;
} put_graph;

static fb_status audit_graph(fb_connection *connection, const fb_packed_graph *packed, fb_error *error) {
    const fb_store_graph *graph = packed->graph;
    char outcome[80];
    snprintf(outcome, sizeof outcome, "%" PRIu32 " nodes, %zu bytes", graph->node_count, graph->size);
    return fb_write_audit(connection, &graph->by, packed->created, "graph-put", graph->id, outcome, error);
}

static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    put_graph *put = argument;
    fb_status status = fb_write_graph(connection, &put->graph, added, error);
    if (!status && put->graph.is_new) status = audit_graph(connection, &put->graph, error);
    return status ? status : fb_write_answer(connection, &put->answer, error);
}

fb_status fb_store_put_graph(fb_store *store, const fb_store_graph *graph, const fb_store_answer *answer, bool *is_new,
                             fb_error *error) {
    put_graph put = {0};
    fb_status status = fb_pack_graphs(store, graph, 1, &put.graph, error);
    if (!status) status = fb_pack_answer(store, answer, &put.answer, error);
    if (!status && (put.graph.is_new || answer)) status = fb_writer_run(&store->writer, write_put, &put, error);
    if (!status && is_new) *is_new = put.graph.is_new;
    fb_packed_graphs_free(&put.graph, 1);
    fb_packed_answer_free(&put.answer);
    return status;
}

/* ---- delete ---- */

typedef struct delete_graph {
    const char *id;
    const fb_store_actor *by;
    int64_t now;
    fb_store_users users;
} delete_graph;

static fb_status find_runs(fb_connection *connection, int64_t key, fb_store_users *users, fb_error *error) {
    int64_t total = 0;
    fb_query count = fb_query_begin(connection, "SELECT count(*) FROM runs WHERE source = ?1 OR result = ?1", error);
    fb_bind_int(&count, key);
    fb_status status = fb_read_key(&count, &total);
    if (status) return status;
    users->total = (uint64_t)total;
    fb_query query =
        fb_query_begin(connection, "SELECT id FROM runs WHERE source = ?1 OR result = ?1 ORDER BY key DESC LIMIT ?2", error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, FB_USERS_MAX);
    while (fb_query_row(&query)) snprintf(users->runs[users->count++], sizeof users->runs[0], "%s", fb_column_text(&query, 0));
    return fb_query_end(&query);
}

static fb_status find_versions(fb_connection *connection, int64_t key, fb_store_users *users, fb_error *error) {
    int64_t total = 0;
    fb_query count = fb_query_begin(connection, "SELECT count(*) FROM versions WHERE graph = ?", error);
    fb_bind_int(&count, key);
    fb_status status = fb_read_key(&count, &total);
    if (status) return status;
    users->version_total = (uint64_t)total;
    fb_query query = fb_query_begin(connection,
                                    "SELECT m.name, v.name FROM versions v JOIN models m ON m.key = v.model "
                                    "WHERE v.graph = ? ORDER BY v.key DESC LIMIT ?",
                                    error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, FB_USERS_MAX);
    while (fb_query_row(&query))
        snprintf(users->versions[users->version_count++], sizeof users->versions[0], "%s/%s", fb_column_text(&query, 0),
                 fb_column_text(&query, 1));
    return fb_query_end(&query);
}

/* A request that stored the graph is done anew when it is repeated: the answer that was kept says that the graph is there. */
fb_status fb_forget_graph_answers(fb_connection *connection, const char *id, fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "DELETE FROM answers WHERE scope IN ('POST /v1/graphs', 'POST /v1/checkpoints') AND location = '/v1/graphs/' || ?",
        error);
    fb_bind_text(&query, id);
    return fb_query_run(&query);
}

static fb_status find_jobs(fb_connection *connection, const char *id, fb_store_users *users, fb_error *error) {
    int64_t total = 0;
    fb_query count = fb_query_begin(connection, "SELECT count(*) FROM job_references WHERE id = ?", error);
    fb_bind_text(&count, id);
    fb_status status = fb_read_key(&count, &total);
    users->job_total = (uint64_t)total;
    return status;
}

static fb_status write_delete(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    delete_graph *delete = argument;
    int64_t key = 0;
    delete->users = (fb_store_users){0};
    fb_status status = fb_find_graph(connection, delete->id, &key, error);
    if (!status && !key) return fb_fail_unknown_graph(error, delete->id);
    if (!status) status = find_runs(connection, key, &delete->users, error);
    if (!status) status = find_versions(connection, key, &delete->users, error);
    if (!status) status = find_jobs(connection, delete->id, &delete->users, error);
    if (status) return status;
    if (delete->users.total || delete->users.version_total)
        return fb_fail(error, FB_CONFLICT, "graph-in-use", NULL, "%llu run(s) and %llu version(s) of models need graph %s",
                       (unsigned long long)delete->users.total, (unsigned long long)delete->users.version_total, delete->id);
    if (delete->users.job_total)
        return fb_fail(error, FB_CONFLICT, "graph-in-use", NULL, "%llu job(s) that are not finished need graph %s",
                       (unsigned long long)delete->users.job_total, delete->id);
    status = fb_forget_graph_answers(connection, delete->id, error);
    if (!status) status = fb_release_graph_blobs(connection, key, delete->now, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "DELETE FROM graphs WHERE key = ?", error);
    fb_bind_int(&query, key);
    status = fb_query_run(&query);
    if (!status) status = fb_write_audit(connection, delete->by, delete->now, "graph-delete", delete->id, "deleted", error);
    if (!status) added->graphs--;
    return status;
}

fb_status fb_store_delete_graph(fb_store *store, const char *id, const fb_store_actor *by, fb_store_users *users,
                                fb_error *error) {
    delete_graph delete = {.id = id, .by = by, .now = store->config.now_ms()};
    fb_status status = fb_writer_make_room(&store->writer, write_delete, NULL, &delete, error);
    if (users) *users = delete.users;
    return status;
}

/* ---- reading ---- */

fb_status fb_store_get_document(fb_store *store, const char *id, char **document, size_t *size, fb_error *error) {
    fb_query query = fb_read_begin(&store->readers, "SELECT size, document FROM graphs WHERE id = ?", error);
    fb_bind_text(&query, id);
    bool is_known = fb_query_row(&query);
    size_t document_size = 0, frame_size = 0;
    void *frame = NULL;
    if (is_known) { /* the frame is copied, so that the connection is free while it is decompressed */
        document_size = (size_t)fb_column_int(&query, 0);
        const void *column = fb_column_bytes(&query, 1, &frame_size);
        frame = malloc(frame_size + 1);
        if (frame && column) memcpy(frame, column, frame_size);
        else if (!query.status) query.status = fb_fail_memory(error);
    }
    fb_status status = fb_read_end(&store->readers, &query);
    if (!status && !is_known) status = fb_fail_unknown_graph(error, id);
    if (!status) status = fb_frame_unpack(frame, frame_size, document_size, document, error);
    if (!status) *size = document_size;
    free(frame);
    return status;
}

#define SUMMARY_COLUMNS "id, structure, name, nodes, size, created"

static fb_status read_summary(fb_query *query, fb_store_memory **memory, fb_store_summary *out) {
    fb_status status = FB_OK;
    snprintf(out->id, sizeof out->id, "%s", fb_column_text(query, 0));
    snprintf(out->structure, sizeof out->structure, "%s", fb_column_text(query, 1));
    out->name = fb_copy_column(query, 2, memory, &status);
    out->node_count = (uint32_t)fb_column_int(query, 3);
    out->size = (uint64_t)fb_column_int(query, 4);
    out->created = fb_column_int(query, 5);
    return status;
}

fb_status fb_store_get_graph(fb_store *store, const char *id, fb_store_summary *out, fb_error *error) {
    fb_store_summary summary = {0};
    fb_query query = fb_read_begin(&store->readers, "SELECT " SUMMARY_COLUMNS " FROM graphs WHERE id = ?", error);
    fb_bind_text(&query, id);
    bool is_known = fb_query_row(&query);
    if (is_known) query.status = read_summary(&query, &summary.memory, &summary);
    fb_status status = fb_read_end(&store->readers, &query);
    if (!status && !is_known) status = fb_fail_unknown_graph(error, id);
    if (status) fb_memory_free(summary.memory);
    else *out = summary;
    return status;
}

/* ---- list ---- */

static fb_status read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT " SUMMARY_COLUMNS " FROM graphs WHERE key = ?", error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) query.status = read_summary(&query, memory, item);
    return fb_query_end(&query);
}

fb_status fb_store_list_graphs(fb_store *store, const char *structure, const char *name, const fb_store_page *page,
                               fb_store_summaries *out, fb_error *error) {
    uint64_t hash = fb_filter_hash(fb_filter_hash(fb_filter_hash(0, "graphs"), structure), name);
    fb_condition conditions[2] = {{.sql = "SELECT key FROM graphs WHERE key <= ? ORDER BY key DESC LIMIT 1"}};
    size_t count = 0;
    if (structure)
        conditions[count++] = (fb_condition){
            .sql = "SELECT key FROM graphs WHERE key <= ?1 AND structure = ?2 ORDER BY key DESC LIMIT 1", .texts = {structure}};
    if (name)
        conditions[count++] =
            (fb_condition){.sql = "SELECT key FROM graphs WHERE key <= ?1 AND name = ?2 ORDER BY key DESC LIMIT 1",
                           .texts = {name},
                           .group = 1};
    if (count == 0) count = 1; /* all */
    fb_list_query query = {.conditions = conditions,
                           .count = count,
                           .page = page,
                           .filter_hash = hash,
                           .item_size = sizeof *out->items,
                           .read = read_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* ---- marks ---- */

/* A connection, and the key of a graph that exists. */
static fb_status take_for_graph(fb_store *store, const char *id, fb_connection **connection, int64_t *key, fb_error *error) {
    fb_status status = fb_readers_take(&store->readers, connection, error);
    if (status) return status;
    status = fb_find_graph(*connection, id, key, error);
    if (!status && !*key) status = fb_fail_unknown_graph(error, id);
    if (status) fb_readers_give_back(&store->readers, *connection);
    return status;
}

fb_status fb_store_graph_signatures(fb_store *store, const char *id, fb_store_signatures *out, fb_error *error) {
    fb_connection *connection = NULL;
    int64_t key = 0, distinct = 0;
    fb_status status = take_for_graph(store, id, &connection, &key, error);
    if (status) return status;
    fb_store_signatures list = {0};
    fb_query size = fb_query_begin(connection, "SELECT count(DISTINCT signature) FROM node_signatures WHERE graph = ?", error);
    fb_bind_int(&size, key);
    status = fb_read_key(&size, &distinct);
    list.items = fb_memory_take(&list.memory, (size_t)distinct * sizeof *list.items);
    if (!status && !list.items) status = fb_fail_memory(error);
    if (!status) {
        fb_query query =
            fb_query_begin(connection,
                           "SELECT s.text, count(*) FROM node_signatures n JOIN signatures s ON s.id = n.signature "
                           "WHERE n.graph = ? GROUP BY s.text ORDER BY s.text",
                           error);
        fb_bind_int(&query, key);
        while (list.count < (size_t)distinct && fb_query_row(&query)) {
            fb_store_signature *item = &list.items[list.count++];
            item->signature = fb_copy_column(&query, 0, &list.memory, &query.status);
            item->nodes = (uint64_t)fb_column_int(&query, 1);
        }
        status = fb_query_end(&query);
    }
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(list.memory);
    else *out = list;
    return status;
}
