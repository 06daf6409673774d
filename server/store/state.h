/* An opened store: its connections, its notes, and this process among others that use the same database. */
#ifndef FB_STORE_STATE_H
#define FB_STORE_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/store.h"
#include "server/store/uploads.h"

/* ---- Small texts of the store as a whole, each under a name: files of the data folder, or rows in a database on a server - */

#define FB_STORE_FILE "store-at" /* in the data folder: in which database on a server the store is */

/* While the store is opened. *text is malloc'ed, or NULL without a note of that name. */
fb_status fb_note_read(fb_store *store, const char *name, char **text, fb_error *error);
fb_status fb_note_write(fb_store *store, const char *name, const char *text, fb_error *error);

/* True when the database is on a server. */
bool fb_store_is_on_server(const fb_store *store);
/* While a store on a server is opened: notes in the folder which one it is, and names the folder. FB_CONFLICT
 * "store-elsewhere": the folder is of another store. */
fb_status fb_store_identify(fb_store *store, fb_error *error);
/* Reads the folder's name, of a store that is only read. */
fb_status fb_store_recognise(fb_store *store, fb_error *error);
/* The same, once it is known whether there is a bucket: FB_CONFLICT "blobs-elsewhere" when another data folder has the blobs.
 */
fb_status fb_store_claim_blobs(fb_store *store, fb_error *error);
/* Finds the blobs of a store on a server that is only read, without a bucket: FB_CONFLICT "blobs-elsewhere" as above. */
fb_status fb_store_find_blobs(fb_store *store, fb_error *error);
/* Opens the store's bucket, if it has one (bucket.c). Errors as fb_store_open. */
fb_status fb_bucket_open(fb_store *store, fb_error *error);
/* Before a store on a server gets a bucket: FB_CONFLICT "blobs-elsewhere" when it has blobs in a data folder. */
fb_status fb_store_check_no_files(fb_store *store, fb_error *error);

/* ---- A store that is a copy of another one, while it is made (notes.c): a row says so -------------------------------------
 */

/* FB_CONFLICT "copy-unfinished". */
fb_status fb_store_check_filled(fb_connection *connection, fb_error *error);
fb_status fb_store_begin_filling(fb_store *store, fb_error *error);
fb_status fb_store_end_filling(fb_store *store, fb_error *error);
/* Checks a store that is being opened, before anything is changed: FB_CONFLICT "store-not-empty", "copy-unfinished" (of another
 * store); FB_BUSY "store-locked". */
fb_status fb_store_may_be_filled(fb_store *store, fb_error *error);

/* ---- This process among others that use the same database (replica.c) ---------------------------------------------------- */

typedef struct fb_replica {
    pthread_mutex_t mutex;
    char id[FB_ULID_LENGTH + 1]; /* of this process, or of its time since it was taken out last */
    bool is_shared;              /* others may be at work: the database is on a server, and the blobs in a bucket */
    atomic_bool leads;           /* of those at work now it is the one for what one does for all */
    fb_buffer others;            /* those that were seen; the writer's own */
} fb_replica;

void fb_replica_id(fb_store *store, char id[FB_ULID_LENGTH + 1]);
fb_status fb_replica_renew_id(fb_store *store, fb_error *error);
/* Joins a store on a server, while it is opened: FB_BUSY "store-locked" when it cannot be beside others, and there are. */
fb_status fb_replica_join(fb_store *store, fb_error *error);
/* Without the writer's thread. */
void fb_replica_leave(fb_store *store);
/* A fb_write_function, about once a second; the argument is the store. */
fb_status fb_replica_keep(fb_connection *connection, void *store, fb_totals *added, fb_error *error);

/* On the writer: jobs that ran on replicas that are gone wait again. */
fb_status fb_requeue_lost_jobs(fb_connection *connection, fb_error *error);

/* The store's totals: kept up by the writer, or counted where other replicas write as well. */
fb_status fb_store_totals(fb_store *store, fb_totals *out, fb_error *error);

#define FB_REQUEST_BUCKETS 256

/* The requests with an Idempotency-Key that are being answered. */
typedef struct fb_requests {
    pthread_mutex_t mutex;
    struct fb_request *buckets[FB_REQUEST_BUCKETS];
} fb_requests;

void fb_requests_free(fb_requests *requests);

struct fb_store {
    fb_store_config config;             /* with the defaults filled in */
    char *path;                         /* of the database file, or the URL of a database on a server */
    char *log_path;                     /* of the file's write-ahead log; NULL on a server */
    char folder_id[FB_ULID_LENGTH + 1]; /* with a database on a server: of the data folder */
    int lock;
    fb_writer writer;
    fb_readers readers;
    fb_ulid_source ulids;
    fb_replica replica;
    fb_requests requests;
    fb_uploads uploads;
    fb_blob_files files;
    atomic_bool is_damaged; /* a page of the database is; until the store is opened again */
};

/* Calls fb_store_config.happened. */
static inline void fb_store_tell(fb_store *store, unsigned what) {
    if (store->config.happened) store->config.happened(store->config.happened_context, what);
}

#endif
