/* Removing runs that are not needed, and the graphs that go with them. The marks are made from a snapshot; the writer makes
 * them anew from what came since before it takes some away. */
#include "server/store/retention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/audit.h"
#include "server/store/internal.h"
#include "server/store/retention_marks.h"

#define BATCH 32

typedef struct removal {
    fb_store *store;
    const fb_retaining *how;
    fb_marks marks;
    size_t next; /* position in the marks, downwards: a run goes before the one that it undid */
    size_t end;  /* of the batch: positions from `end` to before `next` are looked at */
    int64_t now;
    fb_removed all, batch;
    char graphs[2 * BATCH][FB_ID_LENGTH + 1]; /* that went with the batch */
} removal;

static bool is_needed(const removal *work, size_t position) {
    return work->marks.runs[position].need != FB_NOT_NEEDED;
}

/* ---- on the writer ------------------------------------------------------------------------------------------------------ */

static fb_status run_with_key(fb_connection *connection, const char *sql, int64_t key, fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    fb_bind_int(&query, key);
    return fb_query_run(&query);
}

#define FREE_GRAPH                                                                                                             \
    "SELECT id FROM graphs g WHERE key = ?1 AND NOT EXISTS (SELECT 1 FROM runs WHERE source = ?1) "                            \
    "AND NOT EXISTS (SELECT 1 FROM runs WHERE result = ?1) AND NOT EXISTS (SELECT 1 FROM versions WHERE graph = ?1) "          \
    "AND NOT EXISTS (SELECT 1 FROM alias_entries WHERE graph = g.id) "                                                         \
    "AND NOT EXISTS (SELECT 1 FROM job_references WHERE id = g.id)"

/* Removes a graph that nothing refers to any more. */
static fb_status remove_graph(fb_connection *connection, removal *work, int64_t graph, fb_totals *added, fb_error *error) {
    if (fb_map_get(&work->marks.graphs, (uint64_t)graph)) return FB_OK;
    char *id = work->graphs[work->batch.graphs];
    *id = '\0';
    fb_query query = fb_query_begin(connection, FREE_GRAPH, error);
    fb_bind_int(&query, graph);
    if (fb_query_row(&query)) snprintf(id, FB_ID_LENGTH + 1, "%s", fb_column_text(&query, 0));
    fb_status status = fb_query_end(&query);
    if (status || !*id) return status;
    status = fb_forget_graph_answers(connection, id, error);
    if (!status) status = fb_release_graph_blobs(connection, graph, work->now, error);
    if (!status) status = run_with_key(connection, "DELETE FROM graphs WHERE key = ?", graph, error);
    added->graphs--;
    work->batch.graphs++;
    return status;
}

static fb_status remove_run(fb_connection *connection, removal *work, const fb_marked_run *run, fb_totals *added,
                            fb_error *error) {
    fb_query query = fb_query_begin(connection, "DELETE FROM runs WHERE key = ? RETURNING id", error);
    fb_bind_int(&query, run->key);
    bool is_there = fb_query_row(&query); /* unless another gc was quicker */
    if (is_there) snprintf(work->batch.ids[work->batch.id_count++], FB_RUN_ID_LENGTH + 1, "%s", fb_column_text(&query, 0));
    while (fb_query_row(&query)) continue;
    fb_status status = fb_query_end(&query);
    if (status || !is_there) return status;
    added->runs--;
    work->batch.runs++;
    if (!status) status = remove_graph(connection, work, run->result, added, error);
    if (!status && run->source != run->result) status = remove_graph(connection, work, run->source, added, error);
    return status;
}

static fb_status write_removal(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    removal *work = argument;
    char outcome[80];
    work->batch = (fb_removed){0};
    fb_status status = fb_marks_renew(connection, &work->marks, error);
    for (size_t i = work->next; i-- > work->end && !status;)
        if (!is_needed(work, i)) status = remove_run(connection, work, &work->marks.runs[i], added, error);
    if (status || !work->batch.runs) return status;
    snprintf(outcome, sizeof outcome, "%" PRIu64 " runs, %" PRIu64 " graphs", work->batch.runs, work->batch.graphs);
    return fb_write_audit(connection, work->how->by, work->now, "retention", "runs", outcome, error);
}

/* ---- batches ------------------------------------------------------------------------------------------------------------ */

/* The next BATCH runs that may go. */
static bool find_batch(removal *work) {
    while (work->next && is_needed(work, work->next - 1)) work->next--;
    work->end = work->next;
    for (size_t found = 0; work->end && found < BATCH; work->end--) found += !is_needed(work, work->end - 1);
    return work->next > 0;
}

static void add_batch(removal *work) {
    fb_removed *all = &work->all;
    all->runs += work->batch.runs;
    all->graphs += work->batch.graphs;
    for (size_t i = 0; i < work->batch.id_count && all->id_count < FB_REMOVED_RUNS_MAX; i++)
        memcpy(all->ids[all->id_count++], work->batch.ids[i], sizeof all->ids[0]);
    for (size_t i = 0; i < work->batch.graphs && work->how->graph_gone; i++)
        work->how->graph_gone(work->how->context, work->graphs[i]);
}

static fb_status remove_all(removal *work, fb_error *error) {
    fb_status status = FB_OK;
    for (work->next = work->marks.count; !status && find_batch(work); work->next = work->end) {
        status = fb_watch_check(work->how->watch, error);
        if (!status) status = fb_writer_run(&work->store->writer, write_removal, work, error);
        if (!status) add_batch(work);
    }
    return status;
}

/* ---- counting ----------------------------------------------------------------------------------------------------------- */

/* Whether a graph would go: no run that stays needs it, nor anything else. It is counted once. */
static fb_status count_graph(fb_connection *connection, removal *work, int64_t graph, fb_error *error) {
    if (fb_map_get(&work->marks.graphs, (uint64_t)graph)) return FB_OK;
    int64_t free_key = 0;
    if (!fb_map_put(&work->marks.graphs, (uint64_t)graph, 1)) return fb_fail_memory(error);
    fb_query query = fb_query_begin(connection,
                                    "SELECT key FROM graphs g WHERE key = ?1 AND "
                                    "NOT EXISTS (SELECT 1 FROM versions WHERE graph = ?1) AND "
                                    "NOT EXISTS (SELECT 1 FROM alias_entries WHERE graph = g.id) AND "
                                    "NOT EXISTS (SELECT 1 FROM job_references WHERE id = g.id)",
                                    error);
    fb_bind_int(&query, graph);
    fb_status status = fb_read_key(&query, &free_key);
    work->all.graphs += !status && free_key;
    return status;
}

static fb_status count_all(fb_connection *connection, removal *work, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = work->marks.count; i-- > 0 && !status;) {
        const fb_marked_run *run = &work->marks.runs[i];
        if (is_needed(work, i)) continue;
        work->all.runs++;
        status = count_graph(connection, work, run->result, error);
        if (!status) status = count_graph(connection, work, run->source, error);
        if (status || work->all.id_count == FB_REMOVED_RUNS_MAX) continue;
        fb_query query = fb_query_begin(connection, "SELECT id FROM runs WHERE key = ?", error);
        fb_bind_int(&query, run->key);
        if (fb_query_row(&query))
            snprintf(work->all.ids[work->all.id_count++], FB_RUN_ID_LENGTH + 1, "%s", fb_column_text(&query, 0));
        status = fb_query_end(&query);
    }
    return status;
}

fb_status fb_store_retain(fb_store *store, const fb_retaining *how, fb_removed *out, fb_error *error) {
    fb_connection *connection = NULL;
    removal *work = calloc(1, sizeof *work);
    if (!work) return fb_fail_memory(error);
    work->store = store;
    work->how = how;
    work->now = store->config.now_ms();
    fb_status status = FB_OK;
    if (how->limits.age_ms || how->limits.count) {
        status = fb_readers_take(&store->readers, &connection, error);
        if (!status) status = fb_marks_read(connection, how->watch, &work->marks, error);
        if (!status) status = fb_marks_keep(&work->marks, &how->limits, work->now, error);
        if (!status && how->is_dry) status = count_all(connection, work, error);
        if (connection) fb_readers_give_back(&store->readers, connection);
        if (!status && !how->is_dry) status = remove_all(work, error);
    }
    if (!status) {
        *out = work->all;
        out->kept_runs = (uint64_t)fb_writer_read_figures(&store->writer).totals.runs - (how->is_dry ? out->runs : 0);
    }
    fb_marks_free(&work->marks);
    free(work);
    return status;
}
