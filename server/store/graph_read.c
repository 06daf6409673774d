/* Reading graphs and their marks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/internal.h"

fb_status fb_store_get_document(fb_store *store, const char *id, char **document, size_t *size, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_query query = fb_query_begin(connection, "SELECT size, document FROM graphs WHERE id = ?", error);
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
    status = fb_query_end(&query);
    fb_readers_give_back(&store->readers, connection);
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
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_store_summary summary = {0};
    fb_query query = fb_query_begin(connection, "SELECT " SUMMARY_COLUMNS " FROM graphs WHERE id = ?", error);
    fb_bind_text(&query, id);
    bool is_known = fb_query_row(&query);
    if (is_known) query.status = read_summary(&query, &summary.memory, &summary);
    status = fb_query_end(&query);
    fb_readers_give_back(&store->readers, connection);
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
