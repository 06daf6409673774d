/* Blobs: immutable bytes named by their digest, and uploads that are to become blobs.
 *
 * Up to FB_BLOB_INLINE bytes are in the database; larger ones are files blobs/ab/cd/<sha256> in the data folder. A file is
 * written and fsynced under uploads/, and gets its name here on the writer's thread in the transaction that adds its row; the
 * name there goes after that. It is removed on that thread too, after the transaction that took its row. So a row always has
 * its file, an upload is there until its blob is, and a file without a row (a crash in between) is rubbish that gc takes away.
 *
 * A store with a bucket has new large blobs there instead, as objects blobs/ab/cd/<sha256>: put before the row, removed after
 * it, each while the digest is claimed, so that a blob that comes back is not removed. A few are in cache/ in the data folder,
 * too: those whose bytes were mapped, and those that were uploaded last. Blobs that were files before stay files.
 *
 * Errors as in store.h; also FB_NO_SPACE "disk-full" for files. */
#ifndef FB_STORE_BLOBS_H
#define FB_STORE_BLOBS_H

#include "core/base/work.h"
#include "core/graph/graph.h"
#include "server/store/store.h"

#define FB_BLOB_INLINE ((size_t)64 << 10)
#define FB_BLOB_CHECKED ((size_t)1 << 20)        /* up to this size bytes are checked as a blob is opened */
#define FB_BLOB_CHECKED_ONCE ((uint64_t)5 << 30) /* up to this size before a part of them is sent: some seconds */
#define FB_UPLOAD_ID_LENGTH 36                   /* "upload_…" and a ULID at most */

/* ---- reading ---- */

/* Open. It stays readable when gc removes it meanwhile, except for an object that was not mapped: reading that fails then. */
typedef struct fb_blob fb_blob;

/* FB_NOT_FOUND "unknown-blob"; FB_IO "store-corrupt" also when a small one has other bytes than its digest says. */
fb_status fb_blob_open(fb_store *store, const char *digest, fb_blob **out, fb_error *error);
void fb_blob_close(fb_blob *blob);
uint64_t fb_blob_size(const fb_blob *blob);
/* The whole blob mapped into memory; the same pointer each time; FB_IO when it cannot be. */
fb_status fb_blob_map(fb_blob *blob, const unsigned char **bytes, fb_error *error);
/* Gives the mapping's pages back to the page cache. */
void fb_blob_forget(const fb_blob *blob);
/* Reads a blob, in one thread at a time. A caller that reads all of it in order, in parts of any size, gets the bytes of its
 * digest: otherwise the last part fails with FB_IO "store-corrupt". */
fb_status fb_blob_read(fb_blob *blob, uint64_t offset, void *to, size_t size, fb_error *error);
/* Reads all of it; for a blob that was just opened. */
fb_status fb_blob_verify(fb_blob *blob, fb_error *error);
/* The same for a file of up to FB_BLOB_CHECKED_ONCE bytes before a part of it is sent, and once for the file as it is now. To
 * be called before anything is read. */
fb_status fb_blob_verify_once(fb_blob *blob, const fb_watch *watch, fb_error *error);

/* A URL with which a client reads the blob from the bucket for some minutes, malloc'ed (caller frees). NULL: read it here, as
 * it is not in the bucket, or the store gives no URLs. FB_NOT_FOUND "unknown-blob". */
fb_status fb_blob_url(fb_store *store, const char *digest, char **url, fb_error *error);

/* Which of these are not here: sets is_missing[i]. */
fb_status fb_blobs_missing(fb_store *store, const char *const *digests, size_t count, bool *is_missing, fb_error *error);

/* Is there a blob of that size? */
fb_status fb_blobs_have_size(fb_store *store, uint64_t size, bool *out, fb_error *error);

typedef struct fb_blob_row {
    char digest[FB_ID_LENGTH + 1];
    uint64_t size;
    int64_t created;
    int64_t used;    /* last put again, or last needed by nothing: the grace period counts from here */
    uint64_t graphs; /* that refer to it */
} fb_blob_row;
typedef struct fb_blob_rows {
    fb_blob_row *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_blob_rows;
/* Newest first. */
fb_status fb_blobs_list(fb_store *store, const fb_store_page *page, fb_blob_rows *out, fb_error *error);

/* ---- uploads ---- */

/* An upload being written: by one request at a time. Kept over a restart, when it has an id. */
typedef struct fb_upload fb_upload;

/* A new one. `is_kept` = it has an id and can be resumed; otherwise closing it deletes it. */
fb_status fb_upload_new(fb_store *store, bool is_kept, fb_upload **out, fb_error *error);
/* FB_NOT_FOUND "unknown-upload"; FB_CONFLICT "upload-busy" while another request has it open. */
fb_status fb_upload_open(fb_store *store, const char *id, fb_upload **out, fb_error *error);
/* How many bytes it has, without opening it, so that the look blocks nothing. Errors as fb_upload_open. */
fb_status fb_upload_look(fb_store *store, const char *id, uint64_t *size, fb_error *error);
const char *fb_upload_id(const fb_upload *upload); /* "" when it is not kept */
uint64_t fb_upload_size(const fb_upload *upload);  /* bytes so far */
/* Appends, and hashes on the way. FB_NO_SPACE; then what was there before is still there. FB_CONFLICT "upload-whole" when it
 * was being finished as the process ended. */
fb_status fb_upload_write(fb_upload *upload, const void *bytes, size_t size, fb_error *error);
/* Takes a file's bytes, its first `size`, as those of an upload that has none: shares its blocks where the file system can,
 * never the file itself, which others may write. Tells `progress`, if there is one, how many more are hashed. FB_NO_SPACE;
 * FB_IO "file-failed" when the file has become shorter. Then the upload is of no more use. */
fb_status fb_upload_copy(fb_upload *upload, int from, uint64_t size, void (*progress)(void *context, uint64_t bytes),
                         void *context, fb_error *error);
/* Makes the bytes durable. When that fails, it is not known which of them the disk has: then the upload is empty again. */
fb_status fb_upload_sync(fb_upload *upload, fb_error *error);
/* Maps the bytes so far, of which there are some. They are the caller's to unmap, with the upload's size. */
fb_status fb_upload_map(const fb_upload *upload, unsigned char **bytes, fb_error *error);
/* The id of its bytes so far. */
fb_status fb_upload_digest(fb_upload *upload, char digest[FB_ID_LENGTH + 1], fb_error *error);
/* Makes it a blob: durable when this returns. FB_INVALID "digest-mismatch" when the bytes have another digest than `digest`
 * (the message has both); NULL = any. `is_new` false: it was here already (idempotent; its grace period begins anew). The
 * upload is to be closed afterwards; its id is gone when this succeeded. */
fb_status fb_upload_finish(fb_upload *upload, const char *digest, const fb_store_actor *by, char found[FB_ID_LENGTH + 1],
                           bool *is_new, fb_error *error);
/* When the blob was made that it has become. Another may have collected it since. */
int64_t fb_upload_created(const fb_upload *upload);
/* Closes. A kept one keeps its bytes (fsynced), unless `is_cancelled`. NULL does nothing. */
void fb_upload_close(fb_upload *upload, bool is_cancelled);

/* Enters into the audit what is done to an upload that is kept: "upload-create", "upload-part", "upload-delete". An upload is a
 * file, so this is called before what is done is answered, or (deleting) done. */
fb_status fb_upload_audit(const fb_upload *upload, const char *action, const fb_store_actor *by, fb_error *error);

/* ---- garbage ---- */

typedef struct fb_garbage {
    uint64_t blobs, bytes; /* removed, or (dry run) to be removed */
    uint64_t uploads;      /* that were not continued */
    uint64_t files;        /* without a row */
    uint64_t kept, kept_bytes;
} fb_garbage;

/* Removes blobs that no stored graph refers to, that no unfinished job names and that were last used over `grace_ms` ago, old
 * uploads, and files without rows. In small transactions: other writes go on. `is_dry` only counts. Also removes the
 * digests remembered for a removed blob. If the watch (or NULL) stops it, earlier removals stay. Removes objects from a bucket
 * only if `bucket.url` was given: a copy of the store reads there, and never removes. */
fb_status fb_store_collect(fb_store *store, int64_t grace_ms, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                           fb_garbage *out, fb_error *error);

/* Removes a blob that a request put and then was refused. `put`: fb_upload_created of its upload, which found it to be new. The
 * blob stays where anybody has put it since, a stored graph refers to it or an unfinished job names it. */
fb_status fb_blob_withdraw(fb_store *store, const char *digest, int64_t put, const fb_store_actor *by, fb_error *error);

/* ---- digests of tensors within blobs ---- */

/* FB_NOT_FOUND when it is not remembered. `shape` is "[2,3]". */
fb_status fb_store_recall_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                 char digest[FB_ID_LENGTH + 1], fb_error *error);
/* Does not wait for the disk: what is lost in a crash is computed again. Nothing is remembered of a blob that is not here. */
fb_status fb_store_remember_digest(fb_store *store, const char *blob, uint64_t offset, const char *dtype, const char *shape,
                                   const char *digest, fb_error *error);

/* An unnamed file in the data folder. */
fb_status fb_store_scratch(fb_store *store, int *file, fb_error *error);

/* ---- Which blobs a graph refers to --------------------------------------------------------------------------------------- */

/* The blobs that the tensors of a graph refer to, and the files that it was read from, each once, for fb_store_graph. The
 * array is malloc'ed (caller frees); the texts live as long as it and the graph. */
fb_status fb_list_blobs(const fb_graph *graph, const char ***blobs, size_t *count, fb_error *error);

#endif
