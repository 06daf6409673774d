/* This process among the others that use the same database.
 *
 * Each replica has a row whose beats it counts up about once a second, and looks at the others' beats. One whose count stood
 * still for so many looks is taken out: what it had begun is given up, and may be begun by others. Counts are compared, never
 * clocks. One whose data folder another process holds has ended, and is taken out at once. As every write is made under one
 * lock, and what was begun is written together with a check that it is still this replica's, one that was taken out and comes
 * back writes nothing of that: it goes on under a new id. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/uploads.h"

#define LOOKS 15 /* about seconds */

typedef struct seen_replica {
    char id[FB_ULID_LENGTH + 1];
    int64_t beats, looks; /* without a new beat */
    bool is_there;
} seen_replica;

fb_status fb_replica_renew_id(fb_store *store, fb_error *error) {
    fb_ulid_source source = {.mutex = PTHREAD_MUTEX_INITIALIZER}; /* not the source for runs: that may be far in the future */
    char id[FB_ULID_LENGTH + 1];
    fb_status status = fb_ulid_next(&source, store->config.now_ms(), id, error);
    if (status) return status;
    pthread_mutex_lock(&store->replica.mutex);
    memcpy(store->replica.id, id, sizeof id);
    pthread_mutex_unlock(&store->replica.mutex);
    return FB_OK;
}

static fb_status insert_row(fb_connection *connection, fb_store *store, fb_error *error) {
    char id[FB_ULID_LENGTH + 1], machine[256] = "", name[sizeof machine + FB_ULID_LENGTH + 1];
    gethostname(machine, sizeof machine - 1);
    snprintf(name, sizeof name, "%s %s", machine, store->folder_id);
    fb_replica_id(store, id);
    fb_query insert = fb_query_begin(connection, "INSERT INTO replicas (id, name, beats) VALUES (?, ?, 0)", error);
    fb_bind_text(&insert, id);
    fb_bind_text(&insert, name);
    return fb_query_run(&insert);
}

/* Removes a replica: what it had begun goes with its row, and its jobs wait again. */
static fb_status take_out(fb_connection *connection, const char *id, fb_error *error) {
    fb_query delete = fb_query_begin(connection, "DELETE FROM replicas WHERE id = ?", error);
    fb_bind_text(&delete, id);
    fb_status status = fb_query_run(&delete);
    return status ? status : fb_requeue_lost_jobs(connection, error);
}

/* Removes the replicas that had the data folder; "": all. */
static fb_status take_out_ended(fb_connection *connection, const char *folder, fb_error *error) {
    fb_query delete = fb_query_begin(connection, "DELETE FROM replicas WHERE name LIKE '%' || ?", error);
    fb_bind_text(&delete, folder);
    fb_status status = fb_query_run(&delete);
    return status ? status : fb_requeue_lost_jobs(connection, error);
}

/* ---- looking at the others ---- */

static seen_replica *find_seen(fb_replica *replica, const char *id) {
    seen_replica *all = (seen_replica *)(void *)replica->others.data;
    for (size_t i = 0; i < replica->others.size / sizeof *all; i++)
        if (strcmp(all[i].id, id) == 0) return &all[i];
    seen_replica new = {.beats = -1};
    fb_copy_text(new.id, sizeof new.id, id);
    size_t at = replica->others.size;
    fb_buffer_append(&replica->others, &new, sizeof new);
    return replica->others.failed ? NULL : (seen_replica *)(void *)(replica->others.data + at);
}

static fb_status look(fb_connection *connection, fb_store *store, fb_error *error) {
    char own[FB_ULID_LENGTH + 1];
    fb_replica_id(store, own);
    fb_query query = fb_query_begin(connection, "SELECT id, beats FROM replicas WHERE id <> ?", error);
    fb_bind_text(&query, own);
    while (fb_query_row(&query)) {
        seen_replica *one = find_seen(&store->replica, fb_column_text(&query, 0));
        int64_t beats = fb_column_int(&query, 1);
        if (!one) {
            query.status = fb_fail_memory(error);
            break;
        }
        one->looks = one->beats == beats ? one->looks + 1 : 0;
        one->beats = beats;
        one->is_there = true;
    }
    return fb_query_end(&query);
}

/* Forgets replicas that have gone, and takes out the ones that have stopped. */
static fb_status settle_others(fb_connection *connection, fb_store *store, fb_error *error) {
    fb_buffer *others = &store->replica.others;
    seen_replica *all = (seen_replica *)(void *)others->data;
    size_t count = others->size / sizeof *all, kept = 0;
    fb_status status = FB_OK;
    for (size_t i = 0; i < count; i++) {
        if (!status && all[i].is_there && all[i].looks >= LOOKS) status = take_out(connection, all[i].id, error);
        if (!all[i].is_there) continue;
        all[i].is_there = false;
        all[kept++] = all[i];
    }
    others->size = kept * sizeof *all;
    return status;
}

/* ---- the life of this one ---- */

static fb_status beat(fb_connection *connection, fb_store *store, fb_error *error) {
    char id[FB_ULID_LENGTH + 1];
    fb_replica_id(store, id);
    fb_query update = fb_query_begin(connection, "UPDATE replicas SET beats = beats + 1 WHERE id = ?", error);
    fb_bind_text(&update, id);
    fb_status status = fb_query_run(&update);
    if (status || fb_changed_rows(connection)) return status;
    status = fb_replica_renew_id(store, error); /* it was taken out */
    return status ? status : insert_row(connection, store, error);
}

/* The one that has been there longest. */
static fb_status find_leader(fb_connection *connection, fb_store *store, fb_error *error) {
    char id[FB_ULID_LENGTH + 1];
    bool leads = false;
    fb_replica_id(store, id);
    fb_query query = fb_query_begin(connection, "SELECT min(id) FROM replicas", error);
    while (fb_query_row(&query)) leads = strcmp(fb_column_text(&query, 0), id) == 0;
    atomic_store(&store->replica.leads, leads);
    return fb_query_end(&query);
}

fb_status fb_replica_keep(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    fb_store *store = argument;
    fb_status status = beat(connection, store, error);
    if (!status) status = look(connection, store, error);
    if (!status) status = settle_others(connection, store, error);
    if (!status) status = find_leader(connection, store, error);
    return status ? status : fb_delete_old_answers(connection, store, added, error);
}

bool fb_store_leads(fb_store *store) {
    return !store->replica.is_shared || atomic_load(&store->replica.leads);
}

fb_status fb_replica_join(fb_store *store, fb_error *error) {
    fb_connection *connection = &store->writer.connection;
    bool is_alone = false;
    store->replica.is_shared = store->files.bucket != NULL && !store->config.filled_from;
    fb_status status = fb_hold(connection, store->replica.is_shared, &is_alone, error);
    if (!status) status = fb_begin(connection, true, error);
    if (!status) status = take_out_ended(connection, is_alone ? "" : store->folder_id, error);
    if (!status) status = insert_row(connection, store, error);
    if (!status) status = fb_commit(connection, error);
    if (status) fb_roll_back(connection);
    return status;
}

void fb_replica_leave(fb_store *store) {
    fb_connection *connection = &store->writer.connection;
    char id[FB_ULID_LENGTH + 1];
    fb_replica_id(store, id);
    fb_status status = fb_begin(connection, true, NULL);
    if (!status) status = take_out(connection, id, NULL);
    if (!status) status = fb_commit(connection, NULL);
    if (status) fb_roll_back(connection); /* the others notice that it has gone */
}

/* ---- claims of objects in the bucket ---- */

/* With the digest claimed within this process. */
typedef struct claim_write {
    fb_store *store;
    const char *digest;
    bool is_had;
} claim_write;

static fb_status write_claim(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    claim_write *write = argument;
    char id[FB_ULID_LENGTH + 1];
    fb_replica_id(write->store, id);
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO claims (digest, replica) SELECT ?1, id FROM replicas WHERE id = ?2 ON CONFLICT DO NOTHING",
        error);
    fb_bind_text(&insert, write->digest);
    fb_bind_text(&insert, id);
    fb_status status = fb_query_run(&insert);
    write->is_had = !status && fb_changed_rows(connection) == 1;
    return status;
}

fb_status fb_object_try_claim(fb_store *store, const char *digest, fb_claim *claim, bool *is_had, fb_error *error) {
    *is_had = fb_bucket_try_claim(store->files.bucket, digest, claim);
    if (!*is_had || !store->replica.is_shared) return FB_OK;
    claim_write write = {.store = store, .digest = digest};
    fb_status status = fb_writer_run(&store->writer, write_claim, &write, error);
    *is_had = !status && write.is_had;
    if (!*is_had) fb_bucket_release(store->files.bucket, claim);
    return status;
}

fb_status fb_object_claim(fb_store *store, const char *digest, fb_claim *claim, fb_error *error) {
    const struct timespec moment = {.tv_nsec = 100000000};
    for (bool is_had = false;;) {
        fb_bucket_claim(store->files.bucket, digest, claim); /* waits for others of this process, */
        fb_bucket_release(store->files.bucket, claim);
        fb_status status = fb_object_try_claim(store, digest, claim, &is_had, error);
        if (status || is_had) return status;
        nanosleep(&moment, NULL); /* and for other replicas' */
    }
}

fb_status fb_check_claim(fb_connection *connection, fb_store *store, const char *digest, fb_error *error) {
    char id[FB_ULID_LENGTH + 1];
    int64_t count = 0;
    if (!store->replica.is_shared) return FB_OK;
    fb_replica_id(store, id);
    fb_query query = fb_query_begin(connection, "SELECT count(*) FROM claims WHERE digest = ? AND replica = ?", error);
    fb_bind_text(&query, digest);
    fb_bind_text(&query, id);
    fb_status status = fb_read_key(&query, &count);
    if (status || count) return status;
    return fb_fail(error, FB_BUSY, "store-busy", NULL, "another replica has taken over this work; ask again");
}

typedef struct claim_end {
    char replica[FB_ULID_LENGTH + 1], digest[FB_ID_LENGTH + 1];
} claim_end;

static fb_status write_claim_end(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const claim_end *end = argument;
    fb_query delete = fb_query_begin(connection, "DELETE FROM claims WHERE digest = ? AND replica = ?", error);
    fb_bind_text(&delete, end->digest);
    fb_bind_text(&delete, end->replica);
    return fb_query_run(&delete);
}

/* A row that cannot be removed now goes with the replica's own. */
void fb_object_release(fb_store *store, fb_claim *claim) {
    claim_end *end = store->replica.is_shared ? calloc(1, sizeof *end) : NULL;
    if (end) {
        fb_replica_id(store, end->replica);
        memcpy(end->digest, claim->digest, sizeof end->digest);
        fb_writer_post_take(&store->writer, write_claim_end, end, NULL);
    }
    fb_bucket_release(store->files.bucket, claim);
}
