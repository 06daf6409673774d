#include "server/store/retention_marks.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "server/store/internal.h"

void fb_marks_free(fb_marks *marks) {
    free(marks->runs);
    fb_buffer_free(&marks->steps);
    fb_buffer_free(&marks->stack);
    fb_map_free(&marks->by_key);
    fb_map_free(&marks->by_result);
    fb_map_free(&marks->graphs);
    *marks = (fb_marks){0};
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

static fb_status read_steps(fb_connection *connection, const json_t *list, fb_marks *marks, fb_marked_run *run,
                            fb_error *error) {
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

/* What an undo says of what it was made from (routes/history.c writes it). */
static fb_status read_request(fb_connection *connection, const char *text, bool is_exact, fb_marks *marks, fb_marked_run *run,
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

static fb_status read_row(fb_query *query, fb_marks *marks, fb_marked_run *run) {
    *run = (fb_marked_run){.key = fb_column_int(query, 0),
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

static fb_status add_run(fb_marks *marks, const fb_marked_run *run, fb_error *error) {
    if (marks->count == marks->capacity) {
        size_t capacity = marks->capacity ? 2 * marks->capacity : 256;
        fb_marked_run *runs = realloc(marks->runs, capacity * sizeof *runs);
        if (!runs) return fb_fail_memory(error);
        marks->runs = runs;
        marks->capacity = capacity;
    }
    if (marks->count >= UINT32_MAX - 2)
        return fb_fail(error, FB_TOO_LARGE, "too-many-runs", NULL, "too many runs to look through");
    marks->runs[marks->count++] = *run;
    marks->last_run = run->key;
    bool is_kept = fb_map_put(&marks->by_key, (uint64_t)run->key, (uint32_t)marks->count) &&
                   fb_map_add(&marks->by_result, (uint64_t)run->result, (uint32_t)marks->count);
    return is_kept ? FB_OK : fb_fail_memory(error);
}

static fb_status read_runs(fb_connection *connection, const fb_watch *watch, fb_marks *marks, fb_error *error) {
    fb_query query = fb_query_begin(connection, RUNS, error);
    fb_bind_int(&query, 0);
    while (fb_query_row(&query)) {
        fb_marked_run run;
        query.status = fb_watch_check(watch, error);
        if (!query.status) query.status = read_row(&query, marks, &run);
        if (!query.status) query.status = add_run(marks, &run, error);
    }
    if (!query.status && marks->steps.failed) query.status = fb_fail_memory(error);
    return fb_query_end(&query);
}

/* ---- marking ------------------------------------------------------------------------------------------------------------ */

static void mark(fb_marks *marks, uint32_t position, fb_need need) {
    if (!position || marks->runs[position - 1].need >= need) return;
    marks->runs[position - 1].need = need;
    fb_buffer_append(&marks->stack, &position, sizeof position);
}

static void mark_key(fb_marks *marks, int64_t key, fb_need need) {
    if (key) mark(marks, fb_map_get(&marks->by_key, (uint64_t)key), need);
}

/* The runs that made a graph. */
static void mark_makers(fb_marks *marks, int64_t graph) {
    uint32_t cursor = 0;
    for (uint32_t at; (at = fb_map_next(&marks->by_result, (uint64_t)graph, &cursor));)
        if (marks->runs[at - 1].is_made) mark(marks, at, FB_NEEDED_AND_PAST);
}

static bool need_graph(fb_marks *marks, int64_t graph) {
    return !graph || fb_map_put(&marks->graphs, (uint64_t)graph, 1);
}

static bool mark_needs(fb_marks *marks, const fb_marked_run *run, fb_need need) {
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
static fb_status spread(fb_marks *marks, fb_error *error) {
    bool ok = true;
    while (ok && !marks->stack.failed && marks->stack.size) {
        uint32_t position;
        marks->stack.size -= sizeof position;
        memcpy(&position, marks->stack.data + marks->stack.size, sizeof position);
        fb_marked_run run = marks->runs[position - 1];
        ok = mark_needs(marks, &run, run.need);
    }
    return ok && !marks->stack.failed ? FB_OK : fb_fail_memory(error);
}

/* ---- what is needed whatever its age ------------------------------------------------------------------------------------ */

/* Rows after a key: that key, a run's key or NULL, a graph's key or NULL. */
static fb_status mark_rows(fb_connection *connection, const char *sql, int64_t after, int64_t *last, fb_marks *marks,
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

static fb_status mark_roots(fb_connection *connection, fb_marks *marks, const lasts *after, lasts *last, fb_error *error) {
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

static fb_status mark_answers(fb_connection *connection, fb_marks *marks, fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "SELECT r.key FROM answers a JOIN runs r ON a.location = '/v1/runs/' || r.id WHERE a.location LIKE '/v1/runs/%'",
        error);
    while (fb_query_row(&query)) mark_key(marks, fb_column_int(&query, 0), FB_NEEDED);
    fb_status status = fb_query_end(&query);
    return status ? status : spread(marks, error);
}

fb_status fb_marks_read(fb_connection *connection, const fb_watch *watch, fb_marks *out, fb_error *error) {
    static const lasts none = {0};
    lasts last = {0};
    *out = (fb_marks){0};
    fb_status status = read_runs(connection, watch, out, error);
    if (!status) status = mark_roots(connection, out, &none, &last, error);
    if (!status) status = mark_answers(connection, out, error);
    out->last_version = last.version;
    out->last_entry = last.entry;
    out->last_pin = last.pin;
    out->last_job = last.job;
    return status;
}

/* Runs that came since are not among `runs`, and so never go: only what they need is marked. As this may run again after a
 * transaction that was undone, it goes on from where the marks were read each time. */
fb_status fb_marks_renew(fb_connection *connection, fb_marks *marks, fb_error *error) {
    const lasts after = {marks->last_version, marks->last_entry, marks->last_pin, marks->last_job};
    lasts unused = after;
    fb_query query = fb_query_begin(connection, RUNS, error);
    fb_bind_int(&query, marks->last_run);
    while (fb_query_row(&query)) {
        fb_marked_run run;
        query.status = read_row(&query, marks, &run);
        if (!query.status && !mark_needs(marks, &run, FB_NEEDED_AND_PAST)) query.status = fb_fail_memory(error);
    }
    fb_status status = fb_query_end(&query);
    return status ? status : mark_roots(connection, marks, &after, &unused, error);
}

fb_status fb_marks_keep(fb_marks *marks, const fb_retention *limits, int64_t now, fb_error *error) {
    for (size_t i = 0; i < marks->count; i++) {
        bool is_young = !limits->age_ms || marks->runs[i].created > now - limits->age_ms;
        bool is_new = !limits->count || marks->count - i <= limits->count;
        if (is_young && is_new) mark(marks, (uint32_t)i + 1, FB_NEEDED);
    }
    return spread(marks, error);
}
