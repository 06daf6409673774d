/* Jobs. */
#include "server/store/jobs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/database/frame.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/webhooks.h"

#define FRAME_MAX ((size_t)900 << 20) /* SQLite and PostgreSQL take no larger ones than 10^9 bytes */
#define COLLECT_AT_ONCE 100

static const char *const states[FB_JOB_STATES] = {"queued", "running", "succeeded", "failed", "cancelled"};

const char *fb_job_state_name(fb_job_state state) {
    return states[state];
}

static fb_status fail_unknown(fb_error *error, const char *id) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-job", NULL, "there is no job %.100s", id);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static fb_status read_state(const char *name, fb_job_state *state, fb_error *error) {
    for (int i = 0; i < FB_JOB_STATES; i++) {
        if (strcmp(states[i], name) != 0) continue;
        *state = (fb_job_state)i;
        return FB_OK;
    }
    return fb_fail_corrupt(error, "the state of a job");
}

static fb_status read_row(fb_connection *connection, int64_t key, bool with_events, fb_store_memory **memory, fb_store_job *out,
                          fb_error *error) {
    fb_query query =
        fb_query_begin(connection,
                       "SELECT id, state, principal, request, method, target, content_type, created, started, finished, "
                       "attempts, interruptions, is_unwanted, progress, status, result_type, location, result_size, "
                       "CASE WHEN ?2 = 1 THEN events END, location LIKE '/v1/runs/%' AND NOT EXISTS "
                       "(SELECT 1 FROM runs WHERE id = substr(location, 10)) FROM jobs WHERE key = ?1",
                       error);
    fb_bind_int(&query, key);
    fb_bind_int(&query, with_events);
    if (fb_query_row(&query)) {
        fb_copy_text(out->id, sizeof out->id, fb_column_text(&query, 0));
        fb_status status = read_state(fb_column_text(&query, 1), &out->state, error);
        if (status && !query.status) query.status = status;
        out->principal = fb_copy_column(&query, 2, memory, &query.status);
        out->request = fb_copy_column(&query, 3, memory, &query.status);
        out->method = fb_copy_column(&query, 4, memory, &query.status);
        out->target = fb_copy_column(&query, 5, memory, &query.status);
        out->content_type = fb_copy_column(&query, 6, memory, &query.status);
        out->created = fb_column_int(&query, 7);
        out->started = fb_column_int(&query, 8); /* NULL reads as 0 */
        out->finished = fb_column_int(&query, 9);
        out->attempts = (uint32_t)fb_column_int(&query, 10);
        out->interruptions = (uint32_t)fb_column_int(&query, 11);
        out->is_unwanted = fb_column_int(&query, 12) != 0;
        out->progress = fb_copy_optional(&query, 13, memory, &query.status);
        out->status = (int)fb_column_int(&query, 14);
        out->result_type = fb_copy_optional(&query, 15, memory, &query.status);
        out->location = fb_copy_optional(&query, 16, memory, &query.status);
        out->result_size = (uint64_t)fb_column_int(&query, 17);
        out->events = fb_copy_optional(&query, 18, memory, &query.status);
        out->is_run_gone = fb_column_int(&query, 19) != 0;
    }
    return fb_query_end(&query);
}

/* The key of a job; FB_NOT_FOUND. */
static fb_status need_job(fb_connection *connection, const char *id, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM jobs WHERE id = ?", error);
    fb_bind_text(&query, id);
    fb_status status = fb_read_key(&query, key);
    return status || *key ? status : fail_unknown(error, id);
}

fb_status fb_store_get_job(fb_store *store, const char *id, fb_store_job *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_store_job job = {0};
    int64_t key = 0;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = need_job(connection, id, &key, error);
    if (!status) status = read_row(connection, key, true, &job.memory, &job, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) FB_STORE_FREE(&job);
    else *out = job;
    return status;
}

static fb_status read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    return read_row(connection, key, false, memory, item, error);
}

fb_status fb_store_list_jobs(fb_store *store, int state, const fb_store_page *page, fb_store_jobs *out, fb_error *error) {
    fb_condition of_state = {.sql = "SELECT key FROM jobs WHERE key <= ?1 ORDER BY key DESC LIMIT 1"};
    if (state >= 0)
        of_state = (fb_condition){.sql = "SELECT key FROM jobs WHERE key <= ?1 AND state = ?2 ORDER BY key DESC LIMIT 1",
                                  .texts = {states[state]}};
    fb_list_query query = {.conditions = &of_state,
                           .count = 1,
                           .page = page,
                           .filter_hash = fb_filter_hash(fb_filter_hash(0, "jobs"), of_state.texts[0]),
                           .item_size = sizeof *out->items,
                           .read = read_item};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}

/* `sql` gives the size and the frame. */
static fb_status read_bytes(fb_store *store, const char *sql, const char *id, char **bytes, size_t *size, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    bool is_there = false;
    fb_query query = fb_query_begin(connection, sql, error);
    fb_bind_text(&query, id);
    if (fb_query_row(&query)) {
        size_t frame_size = 0, whole = (size_t)fb_column_int(&query, 0);
        const void *frame = fb_column_bytes(&query, 1, &frame_size);
        is_there = true;
        if (frame && !query.status) query.status = fb_frame_unpack(frame, frame_size, whole, bytes, error);
        else if (!query.status && !(*bytes = calloc(1, 1))) query.status = fb_fail_memory(error);
        if (!query.status) *size = frame ? whole : 0;
    }
    status = fb_query_end(&query);
    fb_readers_give_back(&store->readers, connection);
    return status || is_there ? status : fail_unknown(error, id);
}

fb_status fb_store_get_job_body(fb_store *store, const char *id, char **bytes, size_t *size, fb_error *error) {
    return read_bytes(store, "SELECT body_size, body FROM jobs WHERE id = ?", id, bytes, size, error);
}

fb_status fb_store_get_job_result(fb_store *store, const char *id, char **bytes, size_t *size, fb_error *error) {
    return read_bytes(store, "SELECT result_size, result FROM jobs WHERE id = ?", id, bytes, size, error);
}

/* ---- put ---------------------------------------------------------------------------------------------------------------- */

fb_status fb_store_new_job(fb_store *store, fb_store_job *job, fb_error *error) {
    char ulid[FB_ULID_LENGTH + 1];
    int64_t now = store->config.now_ms();
    fb_status status = fb_ulid_next(&store->ulids, now, ulid, error);
    if (status) return status;
    snprintf(job->id, sizeof job->id, "job_%s", ulid);
    job->created = now;
    return FB_OK;
}

/* A frame that the database can hold; NULL for nothing. */
static fb_status pack(fb_store *store, const char *bytes, size_t size, const char *code, void **frame, size_t *frame_size,
                      fb_error *error) {
    if (!size) return FB_OK;
    fb_status status = fb_frame_pack(bytes, size, store->config.compression_level, frame, frame_size, error);
    if (status || *frame_size <= FRAME_MAX) return status;
    return fb_fail(error, FB_TOO_LARGE, code, NULL, "a job can hold %zu MiB, compressed", FRAME_MAX >> 20);
}

typedef struct put_job {
    const fb_store_job *job;
    size_t size;
    void *frame;
    size_t frame_size;
    fb_buffer references;
    fb_packed_answer answer;
} put_job;

/* Writes the audit's entry of a job: its request without the query. */
static fb_status audit_job(fb_connection *connection, const fb_store_job *job, fb_error *error) {
    char request[160];
    fb_store_actor by = {.who = job->principal, .request = job->request};
    snprintf(request, sizeof request, "%s %.*s", job->method, (int)strcspn(job->target, "?"), job->target);
    return fb_write_audit(connection, &by, job->created, "job-create", job->id, request, error);
}

static fb_status write_job(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const put_job *put = argument;
    const fb_store_job *job = put->job;
    fb_query insert =
        fb_query_begin(connection,
                       "INSERT INTO jobs (id, state, principal, request, method, target, content_type, body_size, "
                       "body, created, attempts, interruptions, is_unwanted) VALUES "
                       "(?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, 0) RETURNING key",
                       error);
    fb_bind_text(&insert, job->id);
    fb_bind_text(&insert, job->principal);
    fb_bind_text(&insert, job->request);
    fb_bind_text(&insert, job->method);
    fb_bind_text(&insert, job->target);
    fb_bind_text(&insert, job->content_type);
    fb_bind_int(&insert, (int64_t)put->size);
    fb_bind_bytes(&insert, put->frame, put->frame_size);
    fb_bind_int(&insert, job->created);
    int64_t key = 0;
    fb_status status = fb_query_insert(&insert, &key);
    if (!status) status = fb_write_references(connection, key, &put->references, error);
    if (!status) status = audit_job(connection, job, error);
    return status ? status : fb_write_answer(connection, &put->answer, error);
}

static fb_status collect_references(fb_store *store, put_job *put, const char *body, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = fb_find_references(connection, put->job->target, body, put->size, &put->references, error);
    fb_readers_give_back(&store->readers, connection);
    return status;
}

fb_status fb_store_put_job(fb_store *store, const fb_store_job *job, const char *body, size_t size,
                           const fb_store_answer *answer, fb_error *error) {
    put_job put = {.job = job, .size = size};
    fb_status status = pack(store, body, size, "job-too-large", &put.frame, &put.frame_size, error);
    if (!status) status = collect_references(store, &put, body, error);
    if (!status) status = fb_pack_answer(store, answer, &put.answer, error);
    if (!status) status = fb_writer_run(&store->writer, write_job, &put, error);
    fb_packed_answer_free(&put.answer);
    fb_buffer_free(&put.references);
    free(put.frame);
    return status;
}

/* ---- its life ----------------------------------------------------------------------------------------------------------- */

/* It ended or runs in another process, which took it up when this one seemed to have gone. */
static fb_status fail_elsewhere(fb_error *error, const char *id) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-job", NULL, "the job %.100s does not wait or run in this process", id);
}

typedef struct change {
    fb_store *store;
    const char *id;
    const fb_store_actor *by;
    int64_t now;
    uint32_t attempts;
    bool is_unwanted;
} change;

static fb_status write_start(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    change *start = argument;
    char replica[FB_ULID_LENGTH + 1];
    bool is_taken = false;
    fb_replica_id(start->store, replica);
    fb_query update = fb_query_begin(connection,
                                     "UPDATE jobs SET state = 'running', started = ?1, attempts = attempts + 1, replica = ?2 "
                                     "WHERE id = ?3 AND (state = 'queued' OR (state = 'running' AND replica = ?2)) "
                                     "RETURNING attempts, is_unwanted",
                                     error);
    fb_bind_int(&update, start->now);
    fb_bind_text(&update, replica);
    fb_bind_text(&update, start->id);
    while (fb_query_row(&update)) {
        start->attempts = (uint32_t)fb_column_int(&update, 0);
        start->is_unwanted = fb_column_int(&update, 1) != 0;
        is_taken = true;
    }
    fb_status status = fb_query_end(&update);
    return status || is_taken ? status : fail_elsewhere(error, start->id);
}

fb_status fb_store_start_job(fb_store *store, const char *id, uint32_t *attempts, bool *is_unwanted, fb_error *error) {
    change start = {.store = store, .id = id, .now = store->config.now_ms()};
    fb_status status = fb_writer_run(&store->writer, write_start, &start, error);
    if (status) return status;
    *attempts = start.attempts;
    *is_unwanted = start.is_unwanted;
    return FB_OK;
}

static fb_status write_requeue(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const change *requeue = argument;
    char replica[FB_ULID_LENGTH + 1];
    fb_replica_id(requeue->store, replica);
    fb_query update = fb_query_begin(
        connection, "UPDATE jobs SET state = 'queued' WHERE id = ? AND state = 'running' AND replica = ?", error);
    fb_bind_text(&update, requeue->id);
    fb_bind_text(&update, replica);
    return fb_query_run(&update);
}

fb_status fb_store_requeue_job(fb_store *store, const char *id, fb_error *error) {
    return fb_writer_run(&store->writer, write_requeue, &(change){.store = store, .id = id}, error);
}

/* The key of a job that may still be cancelled: not one whose only request has done its work. *is_new: it was not cancelled
 * before. */
static fb_status find_to_cancel(fb_connection *connection, const char *id, int64_t *key, bool *is_new, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT key, is_unwanted FROM jobs j WHERE id = ? AND finished IS NULL AND NOT EXISTS "
                                    "(SELECT 1 FROM answers WHERE scope = '" FB_JOB_SCOPE "' AND idempotency_key = j.id)",
                                    error);
    fb_bind_text(&query, id);
    if (fb_query_row(&query)) {
        *key = fb_column_int(&query, 0);
        *is_new = fb_column_int(&query, 1) == 0;
    }
    return fb_query_end(&query);
}

static fb_status write_cancel(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const change *cancel = argument;
    int64_t key = 0;
    bool is_new = false;
    fb_status status = need_job(connection, cancel->id, &key, error);
    key = 0;
    if (!status) status = find_to_cancel(connection, cancel->id, &key, &is_new, error);
    if (!status && !key) return fb_fail(error, FB_CONFLICT, "job-finished", NULL, "the job %s has ended already", cancel->id);
    if (status || !is_new) return status;
    fb_query update = fb_query_begin(connection, "UPDATE jobs SET is_unwanted = 1 WHERE key = ?", error);
    fb_bind_int(&update, key);
    status = fb_query_run(&update);
    return status ? status : fb_write_audit(connection, cancel->by, cancel->now, "job-cancel", cancel->id, "cancelled", error);
}

fb_status fb_store_cancel_job(fb_store *store, const char *id, const fb_store_actor *by, fb_error *error) {
    change cancel = {.id = id, .by = by, .now = store->config.now_ms()};
    return fb_writer_make_room(&store->writer, write_cancel, NULL, &cancel, error);
}

typedef struct finish_job {
    fb_store *store;
    const char *id;
    const fb_store_job_end *end;
    int64_t now;
    void *frame;
    size_t frame_size;
} finish_job;

/* That a job is to be cancelled was acknowledged: it ends so, with any outcome meanwhile. */
static fb_status check_wanted(fb_connection *connection, const char *id, fb_error *error) {
    int64_t unwanted = 0;
    fb_query query = fb_query_begin(connection, "SELECT key FROM jobs WHERE id = ? AND is_unwanted = 1", error);
    fb_bind_text(&query, id);
    fb_status status = fb_read_key(&query, &unwanted);
    if (status || !unwanted) return status;
    return fb_fail(error, FB_CONFLICT, "job-unwanted", NULL, "the job %s is being cancelled", id);
}

/* The answers of its requests were kept so that none is done twice. */
static fb_status forget_answers(fb_connection *connection, const char *id, fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "DELETE FROM answers WHERE scope = '" FB_JOB_SCOPE "' AND (idempotency_key = ?1 OR "
                                    "(idempotency_key > ?1 || '/' AND idempotency_key < ?1 || '0'))",
                                    error);
    fb_bind_text(&query, id);
    return fb_query_run(&query);
}

static fb_status write_end(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const finish_job *finish = argument;
    const fb_store_job_end *end = finish->end;
    fb_status wanted = end->state == FB_JOB_CANCELLED ? FB_OK : check_wanted(connection, finish->id, error);
    if (wanted) return wanted;
    fb_query update = fb_query_begin(connection,
                                     "UPDATE jobs SET state = ?, finished = ?, progress = ?, events = ?, status = ?, "
                                     "result_type = ?, location = ?, result_size = ?, result = ?, body = NULL WHERE id = ? "
                                     "AND (state = 'queued' OR (state = 'running' AND replica = ?))",
                                     error);
    char replica[FB_ULID_LENGTH + 1];
    fb_replica_id(finish->store, replica);
    fb_bind_text(&update, states[end->state]);
    fb_bind_int(&update, finish->now);
    fb_bind_text(&update, end->progress);
    fb_bind_text(&update, end->events);
    fb_bind_key(&update, end->status);
    fb_bind_text(&update, end->result_type);
    fb_bind_text(&update, end->location);
    fb_bind_int(&update, (int64_t)end->result_size);
    fb_bind_bytes(&update, finish->frame, finish->frame_size);
    fb_bind_text(&update, finish->id);
    fb_bind_text(&update, replica);
    fb_status status = fb_query_run(&update);
    if (!status && !fb_changed_rows(connection)) return fail_elsewhere(error, finish->id);
    if (!status) status = forget_answers(connection, finish->id, error);
    if (!status) status = fb_release_references(connection, finish->id, finish->now, error);
    return status ? status : fb_tell_job(connection, finish->id, error);
}

fb_status fb_store_finish_job(fb_store *store, const char *id, const fb_store_job_end *end, fb_error *error) {
    finish_job finish = {.store = store, .id = id, .end = end, .now = store->config.now_ms()};
    fb_status status = pack(store, end->result, end->result_size, "result-too-large", &finish.frame, &finish.frame_size, error);
    if (!status) status = fb_writer_run(&store->writer, write_end, &finish, error);
    if (!status) fb_store_tell(store, FB_JOB_FINISHED);
    free(finish.frame);
    return status;
}

/* ---- after a start, and in the end -------------------------------------------------------------------------------------- */

fb_status fb_requeue_lost_jobs(fb_connection *connection, fb_error *error) {
    /* One whose request has stored its answer was past what could have ended the process. */
    fb_query update =
        fb_query_begin(connection,
                       "UPDATE jobs SET state = 'queued', interruptions = interruptions + CASE WHEN EXISTS (SELECT 1 "
                       "FROM answers WHERE scope = '" FB_JOB_SCOPE "' AND idempotency_key = jobs.id) THEN 0 ELSE 1 END "
                       "WHERE state = 'running' AND NOT EXISTS (SELECT 1 FROM replicas WHERE id = jobs.replica)",
                       error);
    return fb_query_run(&update);
}

static fb_status write_recovery(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)argument, (void)added;
    return fb_requeue_lost_jobs(connection, error);
}

static fb_status list_unfinished(fb_connection *connection, fb_row_list *list, fb_error *error) {
    size_t count = 0;
    fb_query counted = fb_query_begin(connection, "SELECT count(*) FROM jobs WHERE state = 'queued'", error);
    if (fb_query_row(&counted)) count = (size_t)fb_column_int(&counted, 0);
    fb_status status = fb_query_end(&counted);
    if (status) return status;
    fb_store_job *items = fb_memory_take(&list->memory, (count + 1) * sizeof *items);
    if (!items) return fb_fail_memory(error);
    list->items = items;
    fb_query query = fb_query_begin(connection, "SELECT key FROM jobs WHERE state = 'queued' ORDER BY key", error);
    while (list->count < count && fb_query_row(&query)) {
        fb_store_job *item = &items[list->count++];
        status = read_row(connection, fb_column_int(&query, 0), false, &list->memory, item, error);
        if (status && !query.status) query.status = status;
    }
    return fb_query_end(&query);
}

fb_status fb_store_queued_jobs(fb_store *store, fb_store_jobs *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_row_list list = {0};
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = list_unfinished(connection, &list, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(list.memory);
    else FB_LIST_GIVE(&list, out);
    return status;
}

fb_status fb_store_unfinished_jobs(fb_store *store, fb_store_jobs *out, fb_error *error) {
    fb_status status = fb_writer_run(&store->writer, write_recovery, NULL, error);
    return status ? status : fb_store_queued_jobs(store, out, error);
}

fb_status fb_store_unwanted_jobs(fb_store *store, fb_buffer *ids, fb_error *error) {
    fb_connection *connection = NULL;
    char replica[FB_ULID_LENGTH + 1], id[FB_JOB_ID_LENGTH + 1] = "";
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_replica_id(store, replica);
    fb_query query =
        fb_query_begin(connection, "SELECT id FROM jobs WHERE state = 'running' AND is_unwanted = 1 AND replica = ?", error);
    fb_bind_text(&query, replica);
    while (fb_query_row(&query)) {
        fb_copy_text(id, sizeof id, fb_column_text(&query, 0));
        fb_buffer_append(ids, id, sizeof id);
    }
    status = fb_query_end(&query);
    fb_readers_give_back(&store->readers, connection);
    return !status && ids->failed ? fb_fail_memory(error) : status;
}

typedef struct collect_jobs {
    int64_t before, now;
    int64_t count;
} collect_jobs;

static fb_status write_collection(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    collect_jobs *collect = argument;
    fb_status status = fb_query_run_numbers(
        connection, "DELETE FROM jobs WHERE key IN (SELECT key FROM jobs WHERE finished <= ? ORDER BY finished LIMIT ?)",
        (int64_t[]){collect->before, COLLECT_AT_ONCE}, 2, &collect->count, error);
    if (status || !collect->count) return status;
    char outcome[40];
    snprintf(outcome, sizeof outcome, "%" PRId64 " jobs", collect->count);
    return fb_write_audit(connection, NULL, collect->now, "job-expire", "jobs", outcome, error);
}

fb_status fb_store_collect_jobs(fb_store *store, int64_t before, size_t *count, fb_error *error) {
    collect_jobs collect = {.before = before, .now = store->config.now_ms()};
    fb_status status = fb_writer_make_room(&store->writer, write_collection, NULL, &collect, error);
    if (!status) *count = (size_t)collect.count;
    return status;
}
