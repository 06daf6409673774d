/* Answers to requests with an Idempotency-Key: stored with what the request changed, so that a repetition is answered from
 * here, and noted in memory while the first request runs. */
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "server/database/frame.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/jobs.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

#define DELETE_AT_ONCE 1000 /* old answers, so that other writes do not wait long */

/* ---- requests that run ---- */

typedef struct fb_request {
    struct fb_request *next;
    const char *principal, *scope, *key, *digest; /* in `text` */
    char text[];
} fb_request;

static fb_request **bucket_of(fb_requests *requests, const fb_store_key *key) {
    uint64_t hash = fb_hash(key->principal, strlen(key->principal), 0);
    hash = fb_hash(key->key, strlen(key->key), fb_hash(key->scope, strlen(key->scope), hash));
    return &requests->buckets[hash % FB_REQUEST_BUCKETS];
}

/* The place of the request in its bucket: what points to it, or to NULL. With the mutex held. */
static bool is_of(const fb_request *request, const fb_store_key *key) {
    return !strcmp(request->key, key->key) && !strcmp(request->scope, key->scope) &&
           !strcmp(request->principal, key->principal);
}

static fb_request **find_request(fb_requests *requests, const fb_store_key *key) {
    fb_request **place = bucket_of(requests, key);
    while (*place && !is_of(*place, key)) place = &(*place)->next;
    return place;
}

static fb_request *new_request(const fb_store_key *key, const char *digest) {
    const char *texts[] = {key->principal, key->scope, key->key, digest};
    size_t size = 0;
    for (size_t i = 0; i < 4; i++) size += strlen(texts[i]) + 1;
    fb_request *request = malloc(sizeof *request + size);
    if (!request) return NULL;
    request->next = NULL;
    const char **copies[] = {&request->principal, &request->scope, &request->key, &request->digest};
    for (size_t i = 0, at = 0; i < 4; at += strlen(texts[i]) + 1, i++)
        *copies[i] = memcpy(request->text + at, texts[i], strlen(texts[i]) + 1);
    return request;
}

/* Notes the request, unless one with its key runs. */
static fb_status note_request(fb_requests *requests, const fb_store_key *key, const char *digest, fb_store_repeat *repeat,
                              fb_error *error) {
    fb_status status = FB_OK;
    pthread_mutex_lock(&requests->mutex);
    fb_request **place = find_request(requests, key);
    if (*place) {
        *repeat = strcmp((*place)->digest, digest) == 0 ? FB_STILL_RUNNING : FB_ANOTHER_REQUEST;
    } else {
        *place = new_request(key, digest);
        if (*place) *repeat = FB_FIRST_REQUEST;
        else status = fb_fail_memory(error);
    }
    pthread_mutex_unlock(&requests->mutex);
    return status;
}

static void forget_request(fb_requests *requests, const fb_store_key *key) {
    pthread_mutex_lock(&requests->mutex);
    fb_request **place = find_request(requests, key);
    fb_request *ended = *place;
    if (ended) *place = ended->next;
    pthread_mutex_unlock(&requests->mutex);
    free(ended);
}

void fb_requests_free(fb_requests *requests) {
    for (size_t i = 0; i < FB_REQUEST_BUCKETS; i++)
        for (fb_request *request = requests->buckets[i], *next; request; request = next) {
            next = request->next;
            free(request);
        }
}

/* ---- stored answers ---- */

fb_status fb_pack_answer(fb_store *store, const fb_store_answer *answer, fb_packed_answer *packed, fb_error *error) {
    *packed = (fb_packed_answer){.store = store, .answer = answer, .created = store->config.now_ms()};
    if (!answer || !answer->body) return FB_OK;
    return fb_frame_pack(answer->body, answer->body_size, store->config.compression_level, &packed->frame, &packed->frame_size,
                         error);
}

void fb_packed_answer_free(fb_packed_answer *packed) {
    free(packed->frame);
}

/* A job that is to be cancelled changes nothing more; one that has come so far has not been interrupted on the way. */
static fb_status advance_job(fb_connection *connection, fb_store *store, const char *key, fb_error *error) {
    char id[FB_JOB_ID_LENGTH + 1], replica[FB_ULID_LENGTH + 1];
    bool is_unwanted = false, is_elsewhere = false;
    fb_copy_text(id, sizeof id, key);
    fb_replica_id(store, replica);
    fb_query update =
        fb_query_begin(connection, "UPDATE jobs SET interruptions = 0 WHERE id = ? RETURNING is_unwanted, replica", error);
    fb_bind_text(&update, id);
    while (fb_query_row(&update)) {
        is_unwanted = fb_column_int(&update, 0) != 0;
        is_elsewhere = !fb_column_is_null(&update, 1) && strcmp(fb_column_text(&update, 1), replica) != 0;
    }
    fb_status status = fb_query_end(&update);
    if (!status && is_elsewhere) return fb_fail(error, FB_BUSY, "cancelled", NULL, "the job goes on in another process");
    if (status || !is_unwanted) return status;
    return fb_fail(error, FB_BUSY, "cancelled", NULL, "the job was cancelled");
}

/* ---- requests that run on one of several replicas ---- */

typedef struct request_write {
    fb_store *store;
    const fb_store_key *key;
    const char *digest;
    fb_store_repeat repeat;
} request_write;

#define THIS_REQUEST "scope = ?1 AND idempotency_key = ?2 AND principal = ?3"

static void bind_request(fb_query *query, const fb_store_key *key) {
    fb_bind_text(query, key->scope);
    fb_bind_text(query, key->key);
    fb_bind_text(query, key->principal);
}

/* It stood still for so long that others took it out, and has not noticed yet. */
static fb_status fail_taken_over(fb_error *error) {
    return fb_fail(error, FB_BUSY, "store-busy", NULL, "another replica has taken over this work; ask again");
}

static fb_status write_request(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    request_write *write = argument;
    char replica[FB_ULID_LENGTH + 1];
    fb_replica_id(write->store, replica);
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO requests (scope, idempotency_key, principal, request_digest, replica) "
                                     "SELECT ?1, ?2, ?3, ?4, id FROM replicas WHERE id = ?5 ON CONFLICT DO NOTHING",
                                     error);
    bind_request(&insert, write->key);
    fb_bind_text(&insert, write->digest);
    fb_bind_text(&insert, replica);
    fb_status status = fb_query_run(&insert);
    write->repeat = FB_FIRST_REQUEST;
    if (status || fb_changed_rows(connection)) return status;
    fb_query query = fb_query_begin(connection, "SELECT request_digest FROM requests WHERE " THIS_REQUEST, error);
    bind_request(&query, write->key);
    bool is_there = fb_query_row(&query);
    if (is_there) write->repeat = strcmp(fb_column_text(&query, 0), write->digest) == 0 ? FB_STILL_RUNNING : FB_ANOTHER_REQUEST;
    status = fb_query_end(&query);
    return status || is_there ? status : fail_taken_over(error);
}

static fb_status delete_request(fb_connection *connection, const fb_store_key *key, const char *replica, fb_error *error) {
    fb_query delete = fb_query_begin(connection, "DELETE FROM requests WHERE " THIS_REQUEST " AND replica = ?4", error);
    bind_request(&delete, key);
    fb_bind_text(&delete, replica);
    return fb_query_run(&delete);
}

/* The request is answered with this write, so it must still be this replica's. */
static fb_status end_request(fb_connection *connection, fb_store *store, const fb_store_key *key, fb_error *error) {
    char replica[FB_ULID_LENGTH + 1];
    fb_replica_id(store, replica);
    fb_status status = delete_request(connection, key, replica, error);
    if (status || fb_changed_rows(connection)) return status;
    return fail_taken_over(error);
}

typedef struct ended_request {
    char replica[FB_ULID_LENGTH + 1];
    fb_store_key key; /* in `text` */
    char text[];
} ended_request;

static fb_status write_end(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const ended_request *ended = argument;
    return delete_request(connection, &ended->key, ended->replica, error);
}

/* One that stored no answer: others may begin it. A row that cannot be written now goes with the replica's own row. */
static void post_end(fb_store *store, const fb_store_key *key) {
    size_t scope = strlen(key->scope) + 1, text = strlen(key->key) + 1, principal = strlen(key->principal) + 1;
    ended_request *ended = malloc(sizeof *ended + scope + text + principal);
    if (!ended) return;
    fb_replica_id(store, ended->replica);
    ended->key = (fb_store_key){.scope = memcpy(ended->text, key->scope, scope),
                                .key = memcpy(ended->text + scope, key->key, text),
                                .principal = memcpy(ended->text + scope + text, key->principal, principal)};
    fb_writer_post_take(&store->writer, write_end, ended, NULL);
}

/* A job's own requests are made where it runs. */
static bool is_shared(const fb_store *store, const fb_store_key *key) {
    return store->replica.is_shared && strcmp(key->scope, FB_JOB_SCOPE) != 0;
}

fb_status fb_write_answer(fb_connection *connection, const fb_packed_answer *packed, fb_error *error) {
    const fb_store_answer *answer = packed->answer;
    if (!answer) return FB_OK;
    bool is_of_job = !strcmp(answer->key.scope, FB_JOB_SCOPE);
    fb_status status = is_of_job ? advance_job(connection, packed->store, answer->key.key, error) : FB_OK;
    if (!status && is_shared(packed->store, &answer->key)) status = end_request(connection, packed->store, &answer->key, error);
    if (status) return status;
    /* An answer that may be there is too old: otherwise the request would not have run. */
    fb_query insert = fb_query_begin(
        connection,
        "INSERT INTO answers (principal, scope, idempotency_key, request_digest, status, location, "
        "body_size, body, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (scope, idempotency_key, principal) DO UPDATE SET request_digest = excluded.request_digest, "
        "status = excluded.status, location = excluded.location, body_size = excluded.body_size, "
        "body = excluded.body, created = excluded.created",
        error);
    fb_bind_text(&insert, answer->key.principal);
    fb_bind_text(&insert, answer->key.scope);
    fb_bind_text(&insert, answer->key.key);
    fb_bind_text(&insert, answer->request_digest);
    fb_bind_int(&insert, answer->status);
    fb_bind_text(&insert, answer->location);
    fb_bind_int(&insert, answer->body ? (int64_t)answer->body_size : 0);
    fb_bind_bytes(&insert, packed->frame, packed->frame_size);
    fb_bind_int(&insert, packed->created);
    return fb_query_run(&insert);
}

static fb_status read_body(fb_query *query, fb_store_answer *answer) {
    size_t frame_size = 0, size = (size_t)fb_column_int(query, 3);
    const void *frame = fb_column_bytes(query, 4, &frame_size);
    char *body = NULL;
    fb_status status = query->status ? query->status : fb_frame_unpack(frame, frame_size, size, &body, query->error);
    char *kept = status ? NULL : fb_memory_take(&answer->memory, size + 1);
    if (!status && !kept) status = fb_fail_memory(query->error);
    if (!status) {
        memcpy(kept, body, size);
        answer->body = kept;
        answer->body_size = size;
    }
    free(body);
    return status;
}

/* Writes *answer, whose `request_digest` is NULL when there is none. */
static fb_status read_answer(fb_store *store, const fb_store_key *key, fb_store_answer *answer, fb_error *error) {
    fb_query query = fb_read_begin(&store->readers,
                                   "SELECT request_digest, status, location, body_size, body FROM answers "
                                   "WHERE scope = ?1 AND idempotency_key = ?2 AND principal = ?3 AND "
                                   "(created > ?4 OR scope = '" FB_JOB_SCOPE "')",
                                   error);
    fb_bind_text(&query, key->scope);
    fb_bind_text(&query, key->key);
    fb_bind_text(&query, key->principal);
    fb_bind_int(&query, store->config.now_ms() - store->config.answer_lifetime_ms);
    if (fb_query_row(&query)) {
        answer->request_digest = fb_copy_column(&query, 0, &answer->memory, &query.status);
        answer->status = (int)fb_column_int(&query, 1);
        if (!fb_column_is_null(&query, 2)) answer->location = fb_copy_column(&query, 2, &answer->memory, &query.status);
        if (!query.status && !fb_column_is_null(&query, 4)) query.status = read_body(&query, answer);
    }
    return fb_read_end(&store->readers, &query);
}

void fb_store_end_request(fb_store *store, const fb_store_key *key) {
    if (is_shared(store, key)) post_end(store, key);
    forget_request(&store->requests, key);
}

fb_status fb_store_begin_request(fb_store *store, const fb_store_key *key, const char *request_digest, fb_store_repeat *repeat,
                                 fb_store_answer *answer, fb_error *error) {
    fb_store_repeat what = FB_FIRST_REQUEST;
    fb_store_answer found = {0};
    /* Noted before the store is read, so that of two equal requests one waits for the other, in either order. */
    fb_status status = note_request(&store->requests, key, request_digest, &what, error);
    if (status) return status;
    if (what == FB_FIRST_REQUEST && is_shared(store, key)) {
        request_write write = {.store = store, .key = key, .digest = request_digest};
        status = fb_writer_run(&store->writer, write_request, &write, error);
        what = write.repeat;
        if (status || what != FB_FIRST_REQUEST) forget_request(&store->requests, key);
    }
    if (!status && what == FB_FIRST_REQUEST) {
        status = read_answer(store, key, &found, error);
        bool is_there = found.request_digest != NULL;
        if (!status && is_there) what = strcmp(found.request_digest, request_digest) == 0 ? FB_REPEATED : FB_ANOTHER_REQUEST;
        if (status || is_there) fb_store_end_request(store, key);
    }
    if (status || what != FB_REPEATED) FB_STORE_FREE(&found);
    if (status) return status;
    if (what == FB_REPEATED) *answer = found;
    *repeat = what;
    return FB_OK;
}

fb_status fb_delete_old_answers(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const fb_store *store = argument;
    return fb_query_run_numbers(
        connection,
        "DELETE FROM answers WHERE key IN (SELECT key FROM answers a WHERE created <= ? AND NOT (scope = '" FB_JOB_SCOPE
        "' AND EXISTS (SELECT 1 FROM jobs WHERE id = substr(a.idempotency_key, 1, ?) AND finished IS NULL)) "
        "ORDER BY created LIMIT ?)",
        (int64_t[]){store->config.now_ms() - store->config.answer_lifetime_ms, FB_JOB_ID_LENGTH, DELETE_AT_ONCE}, 3, NULL,
        error);
}
