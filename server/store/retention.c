/* Removing runs that are not needed, and the graphs that go with them. The marks are made from a snapshot; the writer makes
 * them anew from what came since before it takes some away. */
#include "server/store/retention.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

/* Which runs are needed: all runs in memory, with what needs what, and marks that spread. */

typedef enum run_need {
    FB_NOT_NEEDED,
    FB_NEEDED,          /* with what it undid and left over */
    FB_NEEDED_AND_PAST, /* also with what made its source */
} run_need;

typedef struct marked_run {
    int64_t key, created, of_run;  /* `of_run` 0 for none */
    int64_t source, result;        /* keys of graphs */
    int64_t origin, merged;        /* of an undo, graphs that doing it again takes: keys, or 0 */
    size_t first_step, step_count; /* keys of the runs whose passes it left over */
    bool is_made;                  /* its result came from its source (or origin) by steps that are known */
    run_need need;
} marked_run;

typedef struct run_marks {
    marked_run *runs; /* ascending keys */
    size_t count, capacity;
    fb_buffer steps;                                                /* int64_t */
    fb_map by_key, by_result;                                       /* positions in `runs`, from 1 */
    fb_map graphs;                                                  /* that needed runs need: keys, with the value 1 */
    fb_buffer stack;                                                /* positions whose needs are still to be marked */
    int64_t last_run, last_version, last_entry, last_pin, last_job; /* that were looked at */
} run_marks;

static void marks_free(run_marks *marks) {
    free(marks->runs);
    fb_buffer_free(&marks->steps);
    fb_buffer_free(&marks->stack);
    fb_map_free(&marks->by_key);
    fb_map_free(&marks->by_result);
    fb_map_free(&marks->graphs);
    *marks = (run_marks){0};
}

/* ---- reading runs ------------------------------------------------------------------------------------------------------- */

/* 0 when there is none: also what has gone needs nothing. */
static fb_status key_of(fb_connection *connection, const char *sql, const json_t *id, int64_t *key, fb_error *error) {
    *key = 0;
    if (!json_is_string(id)) return FB_OK;
    fb_query query = fb_query_begin(connection, sql, error);
    fb_bind_text(&query, json_string_value(id));
    return fb_read_key(&query, key);
}

#define GRAPH_KEY "SELECT key FROM graphs WHERE id = ?"
#define RUN_KEY "SELECT key FROM runs WHERE id = ?"

static fb_status read_steps(fb_connection *connection, const json_t *list, run_marks *marks, marked_run *run, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < json_array_size(list) && !status; i++) {
        int64_t key = 0;
        status = key_of(connection, RUN_KEY, json_object_get(json_array_get(list, i), "run"), &key, error);
        if (status || !key) continue;
        fb_buffer_append(&marks->steps, &key, sizeof key);
        run->step_count++;
    }
    return status;
}

/* Reads the request of an undo: what it was made from (server/history/history.c writes it). */
static fb_status read_request(fb_connection *connection, const char *text, bool is_exact, run_marks *marks, marked_run *run,
                              fb_error *error) {
    json_t *request = json_loads(text, 0, NULL);
    run->first_step = marks->steps.size / sizeof(int64_t);
    fb_status status = key_of(connection, GRAPH_KEY, json_object_get(request, "source"), &run->origin, error);
    if (!status) status = key_of(connection, GRAPH_KEY, json_object_get(request, "result"), &run->merged, error);
    if (!status) status = read_steps(connection, json_object_get(request, "steps"), marks, run, error);
    if (!status) status = read_steps(connection, json_object_get(request, "undone"), marks, run, error);
    json_decref(request);
    run->is_made = is_exact && run->origin && run->origin != run->result;
    return status;
}

static fb_status read_row(fb_query *query, run_marks *marks, marked_run *run) {
    *run = (marked_run){.key = fb_column_int(query, 0),
                        .source = fb_column_int(query, 1),
                        .result = fb_column_int(query, 2),
                        .of_run = fb_column_int(query, 3),
                        .created = fb_column_int(query, 4)};
    run->is_made = run->source != run->result;
    if (fb_column_is_null(query, 6)) return FB_OK;
    return read_request(query->connection, fb_column_text(query, 6), fb_column_int(query, 5) != 0, marks, run, query->error);
}

#define RUNS                                                                                                                   \
    "SELECT key, source, result, of_run, created, exact, CASE WHEN kind IN ('reverse', 'rollback') THEN request END "          \
    "FROM runs WHERE key > ? ORDER BY key"

static fb_status add_run(run_marks *marks, const marked_run *run, fb_error *error) {
    if (!FB_GROW(marks->runs, marks->count, marks->capacity)) return fb_fail_memory(error);
    if (marks->count >= UINT32_MAX - 2)
        return fb_fail(error, FB_TOO_LARGE, "too-many-runs", NULL, "too many runs to look through");
    marks->runs[marks->count++] = *run;
    marks->last_run = run->key;
    bool is_kept = fb_map_put(&marks->by_key, (uint64_t)run->key, (uint32_t)marks->count) &&
                   fb_map_add(&marks->by_result, (uint64_t)run->result, (uint32_t)marks->count);
    return is_kept ? FB_OK : fb_fail_memory(error);
}

static fb_status read_runs(fb_connection *connection, const fb_watch *watch, run_marks *marks, fb_error *error) {
    fb_query query = fb_query_begin(connection, RUNS, error);
    fb_bind_int(&query, 0);
    while (fb_query_row(&query)) {
        marked_run run;
        query.status = fb_watch_check(watch, error);
        if (!query.status) query.status = read_row(&query, marks, &run);
        if (!query.status) query.status = add_run(marks, &run, error);
    }
    if (!query.status && marks->steps.failed) query.status = fb_fail_memory(error);
    return fb_query_end(&query);
}

/* ---- marking ------------------------------------------------------------------------------------------------------------ */

static void mark(run_marks *marks, uint32_t position, run_need need) {
    if (!position || marks->runs[position - 1].need >= need) return;
    marks->runs[position - 1].need = need;
    fb_buffer_append(&marks->stack, &position, sizeof position);
}

static void mark_key(run_marks *marks, int64_t key, run_need need) {
    if (key) mark(marks, fb_map_get(&marks->by_key, (uint64_t)key), need);
}

/* The runs that made a graph. */
static void mark_makers(run_marks *marks, int64_t graph) {
    uint32_t cursor = 0;
    for (uint32_t at; (at = fb_map_next(&marks->by_result, (uint64_t)graph, &cursor));)
        if (marks->runs[at - 1].is_made) mark(marks, at, FB_NEEDED_AND_PAST);
}

static bool need_graph(run_marks *marks, int64_t graph) {
    return !graph || fb_map_put(&marks->graphs, (uint64_t)graph, 1);
}

static bool mark_needs(run_marks *marks, const marked_run *run, run_need need) {
    const int64_t *steps = (const int64_t *)(const void *)marks->steps.data;
    mark_key(marks, run->of_run, need);
    for (size_t i = 0; i < run->step_count; i++) mark_key(marks, steps[run->first_step + i], need);
    if (need == FB_NEEDED_AND_PAST) {
        mark_makers(marks, run->source);
        if (run->origin) mark_makers(marks, run->origin);
    }
    return need_graph(marks, run->source) && need_graph(marks, run->result) && need_graph(marks, run->origin) &&
           need_graph(marks, run->merged);
}

/* Marks spread until they reach nothing new. */
static fb_status spread(run_marks *marks, fb_error *error) {
    bool ok = true;
    while (ok && !marks->stack.failed && marks->stack.size) {
        uint32_t position;
        marks->stack.size -= sizeof position;
        memcpy(&position, marks->stack.data + marks->stack.size, sizeof position);
        marked_run run = marks->runs[position - 1];
        ok = mark_needs(marks, &run, run.need);
    }
    return ok && !marks->stack.failed ? FB_OK : fb_fail_memory(error);
}

/* ---- runs that are needed at any age ------------------------------------------------------------------------------------ */

/* Rows after a key: that key, a run's key or NULL, a graph's key or NULL. */
static fb_status mark_rows(fb_connection *connection, const char *sql, int64_t after, int64_t *last, run_marks *marks,
                           fb_error *error) {
    fb_query query = fb_query_begin(connection, sql, error);
    fb_bind_int(&query, after);
    while (fb_query_row(&query)) {
        *last = fb_column_int(&query, 0);
        mark_key(marks, fb_column_int(&query, 1), FB_NEEDED_AND_PAST);
        if (!fb_column_is_null(&query, 2)) mark_makers(marks, fb_column_int(&query, 2));
    }
    return fb_query_end(&query);
}

typedef struct lasts {
    int64_t version, entry, pin, job;
} lasts;

static fb_status mark_roots(fb_connection *connection, run_marks *marks, const lasts *after, lasts *last, fb_error *error) {
    static const char versions[] = "SELECT key, run, graph FROM versions WHERE key > ? ORDER BY key";
    static const char entries[] = "SELECT e.number, r.key, g.key FROM alias_entries e LEFT JOIN runs r ON r.id = e.run "
                                  "LEFT JOIN graphs g ON g.id = e.graph WHERE e.number > ? ORDER BY e.number";
    static const char pins[] = "SELECT key, run, NULL FROM pins WHERE key > ? ORDER BY key";
    static const char jobs[] = "SELECT j.job, r.key, g.key FROM job_references j LEFT JOIN runs r ON r.id = j.id "
                               "LEFT JOIN graphs g ON g.id = j.id WHERE j.job > ? ORDER BY j.job";
    fb_status status = mark_rows(connection, versions, after->version, &last->version, marks, error);
    if (!status) status = mark_rows(connection, entries, after->entry, &last->entry, marks, error);
    if (!status) status = mark_rows(connection, pins, after->pin, &last->pin, marks, error);
    if (!status) status = mark_rows(connection, jobs, after->job, &last->job, marks, error);
    return status ? status : spread(marks, error);
}

static fb_status mark_answers(fb_connection *connection, run_marks *marks, fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "SELECT r.key FROM answers a JOIN runs r ON a.location = '/v1/runs/' || r.id WHERE a.location LIKE '/v1/runs/%'",
        error);
    while (fb_query_row(&query)) mark_key(marks, fb_column_int(&query, 0), FB_NEEDED);
    fb_status status = fb_query_end(&query);
    return status ? status : spread(marks, error);
}

/* Reads all runs, and marks what is needed at any age. Free it also after a failure. */
static fb_status marks_read(fb_connection *connection, const fb_watch *watch, run_marks *out, fb_error *error) {
    static const lasts none = {0};
    lasts last = {0};
    *out = (run_marks){0};
    fb_status status = read_runs(connection, watch, out, error);
    if (!status) status = mark_roots(connection, out, &none, &last, error);
    if (!status) status = mark_answers(connection, out, error);
    out->last_version = last.version;
    out->last_entry = last.entry;
    out->last_pin = last.pin;
    out->last_job = last.job;
    return status;
}

/* Marks what has become needed since they were read. */
/* Runs that came since are not among `runs`, and so never go: only what they need is marked. As this may run again after a
 * transaction that was undone, it goes on from where the marks were read each time. */
static fb_status marks_renew(fb_connection *connection, run_marks *marks, fb_error *error) {
    const lasts after = {marks->last_version, marks->last_entry, marks->last_pin, marks->last_job};
    lasts unused = after;
    fb_query query = fb_query_begin(connection, RUNS, error);
    fb_bind_int(&query, marks->last_run);
    while (fb_query_row(&query)) {
        marked_run run;
        query.status = read_row(&query, marks, &run);
        if (!query.status && !mark_needs(marks, &run, FB_NEEDED_AND_PAST)) query.status = fb_fail_memory(error);
    }
    fb_status status = fb_query_end(&query);
    return status ? status : mark_roots(connection, marks, &after, &unused, error);
}

/* Marks those that are within the limits. */
static fb_status marks_keep(run_marks *marks, const fb_retention *limits, int64_t now, fb_error *error) {
    for (size_t i = 0; i < marks->count; i++) {
        bool is_young = !limits->age_ms || marks->runs[i].created > now - limits->age_ms;
        bool is_new = !limits->count || marks->count - i <= limits->count;
        if (is_young && is_new) mark(marks, (uint32_t)i + 1, FB_NEEDED);
    }
    return spread(marks, error);
}

#define BATCH 32

typedef struct removal {
    fb_store *store;
    const fb_retaining *how;
    run_marks marks;
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

static fb_status remove_run(fb_connection *connection, removal *work, const marked_run *run, fb_totals *added,
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
    fb_status status = marks_renew(connection, &work->marks, error);
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
        if (!status) status = fb_writer_make_room(&work->store->writer, write_removal, NULL, work, error);
        if (!status) add_batch(work);
    }
    return status;
}

/* ---- counting ----------------------------------------------------------------------------------------------------------- */

/* Counts a graph, once, if it would go: no run that stays needs it, nor anything else. */
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
        const marked_run *run = &work->marks.runs[i];
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
        if (!status) status = marks_read(connection, how->watch, &work->marks, error);
        if (!status) status = marks_keep(&work->marks, &how->limits, work->now, error);
        if (!status && how->is_dry) status = count_all(connection, work, error);
        if (connection) fb_readers_give_back(&store->readers, connection);
        if (!status && !how->is_dry) status = remove_all(work, error);
    }
    fb_totals totals = {0};
    if (!status) status = fb_store_totals(store, &totals, error);
    if (!status) {
        *out = work->all;
        out->kept_runs = (uint64_t)totals.runs - (how->is_dry ? out->runs : 0);
    }
    marks_free(&work->marks);
    free(work);
    return status;
}
