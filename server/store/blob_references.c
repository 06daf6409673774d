#include <stdlib.h>
#include <string.h>

#include "core/archive/archive.h"
#include "core/base/sort.h"
#include "core/document/document.h"
#include "core/onnx/onnx.h"
#include "server/database/frame.h"
#include "server/database/query.h"
#include "server/store/blobs.h"
#include "server/store/rows.h"

#define COLLECTED_MS ((int64_t)7 * 24 * 3600 * 1000) /* no request takes so long */
#define READ_AT_ONCE 100                             /* graphs of earlier versions, in one transaction */

/* ---- of a graph ---- */

/* The files that it was read from: they stay as long as it is here, so that they can be given back. */
static fb_status list_files(const fb_graph *graph, char (**files)[FB_ID_LENGTH + 1], size_t *count, fb_error *error) {
    fb_archive_origin origin = {0};
    onnx_bundle bundle = {0};
    fb_status status = fb_archive_origin_of(graph, &origin, error);
    if (!status) status = onnx_bundle_of(graph, &bundle, error);
    *count = 0;
    *files = calloc(bundle.count + 2, sizeof **files);
    if (!status && !*files) status = fb_fail_memory(error);
    if (!status && *origin.blob) memcpy((*files)[(*count)++], origin.blob, sizeof origin.blob);
    if (!status && bundle.blob) memcpy((*files)[(*count)++], bundle.blob, sizeof origin.blob);
    for (size_t i = 0; i < bundle.count && !status && bundle.blob; i++)
        if (bundle.files[i].blob) memcpy((*files)[(*count)++], bundle.files[i].blob, sizeof origin.blob);
    free(origin.model);
    onnx_bundle_free(&bundle);
    return status;
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

fb_status fb_list_blobs(const fb_graph *graph, const char ***blobs, size_t *count, fb_error *error) {
    char(*files)[FB_ID_LENGTH + 1] = NULL;
    size_t file_count = 0, all = 0, distinct = 0, last = 0;
    fb_status status = list_files(graph, &files, &file_count, error);
    size_t most = fb_tensor_count(graph) + file_count + 1;
    const char **found = status ? NULL : calloc(1, most * sizeof *found + file_count * sizeof *files);
    if (!status && !found) status = fb_fail_memory(error);
    if (status) {
        free(files);
        return status;
    }
    for (fb_tensor t = fb_first_tensor(graph); t.id; t = fb_tensor_at(graph, t)->next) {
        fb_symbol blob = fb_tensor_at(graph, t)->blob;
        if (blob.id && blob.id != last) found[all++] = fb_text(graph, blob); /* most follow one another */
        last = blob.id;
    }
    if (file_count) memcpy(found + most, files, file_count * sizeof *files); /* behind the list */
    for (size_t i = 0; i < file_count; i++) found[all++] = (const char *)(found + most) + i * sizeof *files;
    free(files);
    fb_sort(found, all, sizeof *found, compare_texts);
    for (size_t i = 0; i < all; i++)
        if (!i || strcmp(found[i], found[distinct - 1]) != 0) found[distinct++] = found[i];
    *blobs = found;
    *count = distinct;
    return FB_OK;
}

/* ---- in the database ---- */

void fb_claim_named(fb_query *insert, int64_t row, const char *name) {
    fb_bind_int(insert, row);
    fb_bind_text(insert, name);
    fb_query_row(insert);
    bool is_claimed = insert->status || fb_changed_rows(insert->connection) == 1;
    fb_query_again(insert);
    if (is_claimed) return;
    insert->status = fb_fail(insert->error, FB_CONFLICT, "blob-missing", NULL,
                             "the blob %s was here and has been collected: upload it again", name);
}

fb_status fb_write_graph_blobs(fb_connection *connection, int64_t graph, const char *const *blobs, size_t count,
                               fb_error *error) {
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO graph_blobs (graph, digest, is_held) SELECT CAST(?1 AS BIGINT), "
                                     "CAST(?2 AS TEXT), (SELECT count(*) FROM blobs WHERE digest = ?2)" FB_UNLESS_COLLECTED,
                                     error);
    for (size_t i = 0; i < count && !insert.status; i++) fb_claim_named(&insert, graph, blobs[i]);
    return fb_query_end(&insert);
}

fb_status fb_blob_came(fb_connection *connection, const char *digest, fb_error *error) {
    fb_query held = fb_query_begin(connection, "UPDATE graph_blobs SET is_held = 1 WHERE digest = ?", error);
    fb_bind_text(&held, digest);
    fb_status status = fb_query_run(&held);
    if (status) return status;
    fb_query back = fb_query_begin(connection, "DELETE FROM collected WHERE digest = ?", error);
    fb_bind_text(&back, digest);
    return fb_query_run(&back);
}

fb_status fb_blob_went(fb_connection *connection, const char *digest, int64_t now, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "INSERT INTO collected (digest, at) VALUES (?, ?) "
                                    "ON CONFLICT (digest) DO UPDATE SET at = excluded.at",
                                    error);
    fb_bind_text(&query, digest);
    fb_bind_int(&query, now);
    return fb_query_run(&query);
}

fb_status fb_forget_collected(fb_connection *connection, int64_t now, fb_error *error) {
    fb_query query = fb_query_begin(connection, "DELETE FROM collected WHERE at < ?", error);
    fb_bind_int(&query, now - COLLECTED_MS);
    return fb_query_run(&query);
}

fb_status fb_release_graph_blobs(fb_connection *connection, int64_t graph, int64_t now, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "UPDATE blobs SET used = CASE WHEN used < ?2 THEN ?2 ELSE used END "
                                    "WHERE digest IN (SELECT digest FROM graph_blobs WHERE graph = ?1)",
                                    error);
    fb_bind_int(&query, graph);
    fb_bind_int(&query, now);
    return fb_query_run(&query);
}

/* ---- graphs of earlier versions ---- */

static fb_status next_unread(fb_connection *connection, int64_t *key, char **document, size_t *size, fb_error *error) {
    fb_query query = fb_query_begin(
        connection, "SELECT g.key, g.size, g.document FROM unread_graphs u JOIN graphs g ON g.key = u.graph LIMIT 1", error);
    *key = 0;
    if (fb_query_row(&query)) {
        size_t frame_size = 0;
        *key = fb_column_int(&query, 0);
        *size = (size_t)fb_column_int(&query, 1);
        const void *frame = fb_column_bytes(&query, 2, &frame_size);
        if (!query.status) query.status = fb_frame_unpack(frame, frame_size, *size, document, error);
    }
    return fb_query_end(&query);
}

static fb_status write_references(fb_connection *connection, int64_t key, const char *document, size_t size, fb_error *error) {
    static const fb_document_limits stored = {.max_bytes = (size_t)4 << 30, .max_nodes = UINT32_MAX, .max_nesting = 1000};
    fb_errors errors = {.limit = 1};
    fb_graph *graph = NULL;
    const char **blobs = NULL;
    size_t count = 0;
    fb_status status = fb_document_read(document, size, &stored, "", &graph, &errors);
    fb_errors_free(&errors);
    if (status == FB_NO_MEMORY) return fb_fail_memory(error);
    if (status) return FB_OK; /* damaged: its weights cannot be asked for */
    status = fb_list_blobs(graph, &blobs, &count, error);
    if (!status) status = fb_write_graph_blobs(connection, key, blobs, count, error);
    free(blobs);
    fb_graph_free(graph);
    return status;
}

static fb_status read_unread_graph(fb_connection *connection, bool *is_done, fb_error *error) {
    int64_t key = 0;
    char *document = NULL;
    size_t size = 0;
    fb_error damage = {0};
    fb_status status = next_unread(connection, &key, &document, &size, &damage);
    if (key && strcmp(damage.code, "store-corrupt") == 0) status = FB_OK; /* as above */
    if (status && error && !error->status) *error = damage;
    *is_done = !status && !key;
    if (!status && document) status = write_references(connection, key, document, size, error);
    free(document);
    if (status || *is_done) return status;
    fb_query done = fb_query_begin(connection, "DELETE FROM unread_graphs WHERE graph = ?", error);
    fb_bind_int(&done, key);
    return fb_query_run(&done);
}

/* Some graphs at a time, so that this goes on where it was interrupted. */
fb_status fb_read_unread_graphs(fb_connection *connection, fb_error *error) {
    fb_status status = FB_OK;
    for (bool is_done = false; !status && !is_done;) {
        status = fb_begin(connection, true, error);
        for (int i = 0; i < READ_AT_ONCE && !status && !is_done; i++) status = read_unread_graph(connection, &is_done, error);
        if (!status) status = fb_commit(connection, error);
        if (status) fb_roll_back(connection);
    }
    return status;
}
