/* The store: graphs, runs, their signatures and the answers to repeated requests, in one data folder.
 *
 * Every function is safe to call from any thread. A function that changes something returns after its change is durable (after
 * the fsync of its commit), never before. Changes of concurrent callers share commits; a change that fails fails alone.
 *
 * Texts are UTF-8, NUL-terminated; times are milliseconds since 1970-01-01T00:00:00Z. `out` parameters are written only on
 * success, unless said otherwise. Errors that any function may report:
 *
 *     FB_NO_MEMORY  out-of-memory
 *     FB_NO_SPACE   disk-full        nothing was changed; works again when there is room
 *     FB_BUSY       store-busy       too many writes are waiting
 *     FB_BUSY       store-unavailable  the server of the database does not answer; nothing was changed
 *     FB_IO         commit-unknown   it broke off while it committed, and whether it did is not known
 *     FB_BUSY       store-stopping   fb_store_close has begun
 *     FB_IO         store-corrupt    what was read is not what was written
 *     FB_IO         store-failed     the operating system or the database failed; the message says how
 */
#ifndef FB_STORE_STORE_H
#define FB_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/sha256.h"
#include "server/database/memory.h"

#define FB_RUN_ID_LENGTH 30 /* "run_" and a ULID: 26 characters of Crockford's base 32 */

typedef struct fb_store fb_store;

/* The bucket for the bytes of large blobs, see blobs.h. */
typedef struct fb_bucket_config {
    const char *url;             /* "s3://bucket/prefix"; NULL: the one that the store uses already, if any */
    const char *endpoint;        /* as in fb_s3_config, or NULL: as before; these count only with `url` */
    const char *public_endpoint; /* the same as clients reach it */
    const char *region;
    uint64_t cache_bytes; /* of fetched blobs in the data folder; 16 GiB */
    bool redirects;       /* fb_blob_url gives URLs */
} fb_bucket_config;

/* Events that subscribers are notified of. */
typedef enum fb_happening {
    FB_ALIAS_CHANGED = 1, /* entries were added to the history of aliases (models.h) */
    FB_VERSION_CREATED = 2,
    FB_RUN_FINISHED = 4,
    FB_JOB_FINISHED = 8,
} fb_happening;

/* Zero means the default. */
typedef struct fb_store_config {
    const char *database;       /* "postgresql://USER@HOST/DATABASE"; NULL: the one that the folder uses already, if any; else
                                   a file of the folder */
    size_t readers;             /* threads that can read at the same time; 8 */
    size_t queue_limit;         /* writes that may wait; 4096 */
    int compression_level;      /* zstd's, 1 to 19; 3 */
    uint64_t max_bytes;         /* largest size of the database; what the disk holds */
    int64_t answer_lifetime_ms; /* how long an Idempotency-Key is remembered; 24 hours */
    int64_t (*now_ms)(void);    /* the clock; the system's */
    bool may_only_read;         /* a folder that cannot be written to is opened for reading */
    const char *filled_from;    /* for copy.c: the store must be empty, or an unfinished copy of this, and not in use */
    const char *migrated;       /* for copy.c: the store is only read, and not in use; a file of an earlier schema is copied to
                                 * this, which is brought up to date */
    fb_bucket_config bucket;

    /* Called after an event that subscribers are notified of, on the thread that made the change, before the function that made
     * it returns. */
    void (*happened)(void *context, unsigned what); /* fb_happening, one or several */
    void *happened_context;

    /* Called about once a second when other replicas may have changed the store, on a thread that may read it and not write. */
    void (*others_changed)(void *context);
    void *others_context;
} fb_store_config;

/* Makes the data folder `folder` (mode 0700, its parent must exist) unless it is there. FB_IO store-not-writable. */
fb_status fb_store_make_folder(const char *folder, fb_error *error);

/* Opens the data folder `folder`, creates it (mode 0700, its parent must exist) and the database when missing, and brings an
 * older schema up to date. `config` may be NULL. Reports:
 *     FB_BUSY     store-locked        another process, or another fb_store of this one, holds the folder
 *     FB_CONFLICT newer-schema        written by a newer version of foldback; nothing was touched
 *     FB_INVALID  not-a-store         the database in the folder is another program's
 *     FB_IO       store-not-writable  the folder cannot be created or written; also when it is not a folder.
 *                                     With `may_only_read`, it has a log that cannot be read there, or an earlier
 *                                     schema; every write fails with store-stopping
 *     FB_CONFLICT blobs-elsewhere     the store has its blobs in another bucket than `bucket.url`, or in another data folder
 *     FB_CONFLICT copy-unfinished     it is being made by foldback db copy, which has not ended
 *     FB_CONFLICT store-elsewhere     the folder is of another store than `database`
 *     FB_INVALID  bad-store           `database` is not such a URL, or has a password; or its encoding is not UTF-8
 *     FB_BUSY     store-unavailable   the server of the database does not answer
 *     FB_CONFLICT blobs-taken         another store has its blobs there
 *     FB_NO_SPACE disk-full
 * and what server/s3/s3.h lists; a bucket is asked only when the store has used none before. */
fb_status fb_store_open(const char *folder, const fb_store_config *config, fb_store **out, fb_error *error);

/* Finishes the writes that wait, refuses new ones, and gives the folder back. No other call may begin after this one, or still
 * be reading. NULL does nothing. */
void fb_store_close(fb_store *store);

/* True when other replicas may use the store at the same time. */
bool fb_store_is_shared(const fb_store *store);
/* True in the one replica that leads: it does what is done now and then for all. For a moment there may be none, or two. */
bool fb_store_leads(fb_store *store);

/* FB_OK when the store can read and write now. Writes only when the last write failed, to see whether that has passed. FB_IO
 * "store-corrupt" from when a damaged page of the database was met; a damaged document or blob is not a reason. */
fb_status fb_store_health(fb_store *store, fb_error *error);

/* FB_OK if the bucket answers, or if the store has no bucket. FB_BUSY "blobs-unavailable", FB_IO "blobs-refused". Three seconds
 * at most.
 */
fb_status fb_store_bucket_health(fb_store *store, fb_error *error);

/* True when the store in the folder has blobs in a bucket. Of one on a server it is not known before it is opened. */
bool fb_store_has_bucket(const char *folder);
/* The URL of the server that the store of the folder is on, malloc'ed; NULL when it is a file of the folder, or there is none.
 */
char *fb_store_url(const char *folder);

/* Appends the store's counters and gauges in Prometheus' text format, all named foldback_store_…. */
fb_status fb_store_metrics(fb_store *store, fb_buffer *out, fb_error *error);

/* The actor of a change, for the audit (audit.h). None (NULL, or all NULL) is the service itself. */
typedef struct fb_store_actor {
    const char *who;     /* a token's name, "anonymous" or "local" */
    const char *request; /* its id, or NULL */
} fb_store_actor;

#define FB_STORE_SERVICE "service" /* the actor of what no request asked for */

/* ---- pages ----
 * Lists are newest first. A page token names a place between two items, so what is added meanwhile neither repeats nor hides an
 * item. A token belongs to its list and its filters: with others it is FB_INVALID "bad-page-token". */

#define FB_PAGE_DEFAULT 50
#define FB_PAGE_MAX 1000
#define FB_PAGE_TOKEN_LENGTH 24

typedef struct fb_store_page {
    size_t limit;      /* 0 = FB_PAGE_DEFAULT; more than FB_PAGE_MAX counts as FB_PAGE_MAX */
    const char *token; /* from the page before, or NULL */
} fb_store_page;

/* Frees a row or a list that the store gave, and clears it. */
#define FB_STORE_FREE(given)                                                                                                   \
    do {                                                                                                                       \
        __typeof__(given) freed_ = (given);                                                                                    \
        fb_memory_free(freed_->memory);                                                                                        \
        memset(freed_, 0, sizeof *freed_);                                                                                     \
    } while (0)

/* ---- short ids ---- */

typedef enum fb_short_kind {
    FB_SHORT_GRAPH,
    FB_SHORT_STRUCTURE,
    FB_SHORT_RUN,
    FB_SHORT_JOB,
    FB_SHORT_BLOB,
    FB_SHORT_SIGNATURE, /* of a pass or of a run's list of passes */
} fb_short_kind;

#define FB_SHORT_LEAST 8 /* digits of a short id: fewer are a guess */
#define FB_SHORT_MATCHES 10

typedef struct fb_short_matches {
    char ids[FB_SHORT_MATCHES][FB_ID_LENGTH + 1];
    size_t count;
} fb_short_matches;

/* The ids that begin with `prefix` ("sha256:e17ae871"), in order, at most FB_SHORT_MATCHES of them; none is FB_OK. */
fb_status fb_store_find_short(fb_store *store, fb_short_kind kind, const char *prefix, fb_short_matches *out, fb_error *error);

/* ---- graphs ---- */

/* A node that carries a transformation's signature. */
typedef struct fb_store_mark {
    uint32_t node; /* its position in the document's `nodes`, from 0 */
    const char *name, *signature;
} fb_store_mark;

/* A graph to be stored. */
typedef struct fb_store_graph {
    const char *id;        /* "sha256:…" of `document` */
    const char *structure; /* "sha256:…" */
    const char *name;
    uint32_t node_count;
    const char *document; /* canonical bytes; NULL where there is a frame */
    size_t size;
    const void *frame; /* the document as fb_store_pack compressed it before, or NULL */
    size_t frame_size;
    const fb_store_mark *marks;
    size_t mark_count;
    const char *const *blobs; /* digests of the blobs that its tensors refer to, each once; they need not have come yet */
    size_t blob_count;
    fb_store_actor by; /* of one that fb_store_put_graph stores */
} fb_store_graph;

/* Compresses a document for a store of that level (fb_store_level), so that its bytes need not wait. */
fb_status fb_store_pack(int level, const fb_buffer *document, void **frame, size_t *frame_size, fb_error *error);
int fb_store_level(const fb_store *store);

/* A stored graph, without its document. */
typedef struct fb_store_summary {
    char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    const char *name;
    uint32_t node_count;
    uint64_t size; /* of the canonical document */
    int64_t created;
    fb_store_memory *memory;
} fb_store_summary;

typedef struct fb_store_summaries {
    fb_store_summary *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1]; /* "" on the last page */
    fb_store_memory *memory;
} fb_store_summaries;

typedef struct fb_store_answer fb_store_answer;

/* Stores `graph` unless it is known, and `answer` (may be NULL) with it. `is_new` may be NULL. FB_CONFLICT "blob-missing" when
 * one of its blobs was here and has been collected; so for all functions that store graphs, and for fb_store_put_job. */
fb_status fb_store_put_graph(fb_store *store, const fb_store_graph *graph, const fb_store_answer *answer, bool *is_new,
                             fb_error *error);

/* The canonical bytes, malloc'ed (caller frees), with a NUL after them. FB_NOT_FOUND "unknown-graph". */
fb_status fb_store_get_document(fb_store *store, const char *id, char **document, size_t *size, fb_error *error);

/* FB_NOT_FOUND "unknown-graph". */
fb_status fb_store_get_graph(fb_store *store, const char *id, fb_store_summary *out, fb_error *error);

/* `structure` and `name` filter, or are NULL. `page` may be NULL. */
fb_status fb_store_list_graphs(fb_store *store, const char *structure, const char *name, const fb_store_page *page,
                               fb_store_summaries *out, fb_error *error);

#define FB_NAME_MAX 200 /* characters of the name of a model, a version or an alias: see models.h */

/* The runs, versions of models and jobs for which a graph cannot be deleted. */
#define FB_USERS_MAX 10
typedef struct fb_store_users {
    char runs[FB_USERS_MAX][FB_RUN_ID_LENGTH + 1]; /* the newest */
    size_t count;                                  /* of `runs` */
    uint64_t total;
    char versions[FB_USERS_MAX][2 * FB_NAME_MAX + 2]; /* "model/version", the newest */
    size_t version_count;                             /* of `versions` */
    uint64_t version_total;
    uint64_t job_total; /* jobs that are not finished */
} fb_store_users;

/* Deletes a graph and its marks. FB_NOT_FOUND "unknown-graph"; FB_CONFLICT "graph-in-use", then `users` (may be NULL) says
 * what needs it. */
fb_status fb_store_delete_graph(fb_store *store, const char *id, const fb_store_actor *by, fb_store_users *users,
                                fb_error *error);

/* A signature that marks nodes of a graph. */
typedef struct fb_store_signature {
    const char *signature;
    uint64_t nodes; /* how many carry it */
} fb_store_signature;

typedef struct fb_store_signatures {
    fb_store_signature *items; /* sorted by signature */
    size_t count;
    fb_store_memory *memory;
} fb_store_signatures;

/* FB_NOT_FOUND "unknown-graph". */
fb_status fb_store_graph_signatures(fb_store *store, const char *id, fb_store_signatures *out, fb_error *error);

/* ---- runs ---- */

typedef struct fb_store_pass {
    const char *name;
    uint32_t version;
    const char *signature;
    const char *preset;        /* that it was a part of; NULL: of none, or the run was stored before that was kept */
    uint32_t applied, refused; /* matches; candidates that were refused */
} fb_store_pass;

typedef struct fb_store_label {
    const char *key, *value;
} fb_store_label;

/* A run, to be stored or as it was stored. The composition's members are as in the API. */
typedef struct fb_store_run {
    char id[FB_RUN_ID_LENGTH + 1]; /* from fb_store_new_run */
    int64_t created;               /* from fb_store_new_run */
    const char *kind;              /* "optimize", "external", "reverse", "rollback" */
    const char *source, *result;   /* ids of stored graphs */
    const char *of_run;            /* the run that a reverse or rollback undoes, or NULL */
    const char *signature;         /* of the composition */
    bool is_exact, is_reversible, preserves_computation;
    const char *lint;
    const char *note;            /* or NULL */
    const char *requested;       /* JSON: the member `requested` of the answer; NULL: that is not known */
    const char *name;            /* of the source; when read */
    const char *model, *version; /* the first one that the run made, or NULL; when read */
    uint32_t nodes_before, nodes_after;
    const char *request;    /* compact JSON, what a replay needs: of an optimize run the flattened pass list with parameters */
    const char *report;     /* JSON: the array `passes` of the answer; NULL in lists that were asked without */
    const char *validation; /* JSON: the member `validation` of the answer; NULL = it was not validated */
    const fb_store_pass *passes;
    size_t pass_count;
    const fb_store_label *labels; /* distinct keys; sorted by key when read */
    size_t label_count;
    fb_store_actor by;       /* of a run to be stored */
    fb_store_memory *memory; /* NULL in a run that the caller made */
} fb_store_run;

/* Gives `run` its id and time, so that an answer can be written before the run is stored. Ids ascend, also when the clock goes
 * back. */
fb_status fb_store_new_run(fb_store *store, fb_store_run *run, fb_error *error);

/* In one transaction: stores the unknown ones of `graphs`, the run, and `answer` (may be NULL). Its source and result must be
 * among `graphs` or known: else FB_NOT_FOUND "unknown-graph". FB_NOT_FOUND "unknown-run" (of_run); FB_CONFLICT "run-exists". */
fb_status fb_store_put_run(fb_store *store, const fb_store_run *run, const fb_store_graph *graphs, size_t graph_count,
                           const fb_store_answer *answer, fb_error *error);

/* The whole run. FB_NOT_FOUND "unknown-run". */
fb_status fb_store_get_run(fb_store *store, const char *id, fb_store_run *out, fb_error *error);
/* Finds the runs that are not here, in one query. `ids` is a JSON array of `count` ids, where null is none.
 */
fb_status fb_store_missing_runs(fb_store *store, const char *ids, size_t count, bool *is_missing, fb_error *error);

/* Which runs: all that is not NULL (or 0) must hold. */
typedef struct fb_store_run_filter {
    const char *source, *result, *kind;
    const char *of_run;
    const char *composition;       /* signature of the whole composition */
    const char *pass;              /* name of one of its passes, or of a preset of them */
    const char *const *signatures; /* one of its passes has one of these signatures */
    size_t signature_count;
    const fb_store_label *labels; /* has all of these; a NULL value means any */
    size_t label_count;           /* 16 at most, and 1,000 signatures: else FB_TOO_LARGE "too-many-filters" */
} fb_store_run_filter;

typedef struct fb_store_runs {
    fb_store_run *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1]; /* "" on the last page */
    fb_store_memory *memory;
} fb_store_runs;

/* Newest first. `filter` and `page` may be NULL. An id that is not known gives an empty list. The lineage of a graph is two
 * such lists: result = the graph, and source = the graph. */
fb_status fb_store_list_runs(fb_store *store, const fb_store_run_filter *filter, const fb_store_page *page, bool with_reports,
                             fb_store_runs *out, fb_error *error);

/* ---- answers: Idempotency-Key ----
 * begin, then a put with the answer (or none, when the request failed), then end. */

/* The scope of requests that a job makes: their answers are remembered at least until it has finished. The key begins with the
 * job's id. */
#define FB_JOB_SCOPE "job"

/* A key is of one principal's requests to one route: another's with the same text is another key. */
typedef struct fb_store_key {
    const char *principal; /* "" in FB_JOB_SCOPE */
    const char *scope;     /* method and path, or FB_JOB_SCOPE */
    const char *key;
} fb_store_key;

/* The answer to a request with an Idempotency-Key. */
struct fb_store_answer {
    fb_store_key key;           /* of one to be stored */
    const char *request_digest; /* of the request, to know a repetition from a key used twice */
    int status;
    const char *location; /* or NULL */
    const char *body;     /* or NULL: the caller builds it again from `location` */
    size_t body_size;
    fb_store_memory *memory; /* NULL in one that the caller made */
};

typedef enum fb_store_repeat {
    FB_FIRST_REQUEST,   /* go on, and call fb_store_end_request when done, with any outcome */
    FB_REPEATED,        /* answered before: *answer holds what was said */
    FB_STILL_RUNNING,   /* the first request with this key has not been answered yet */
    FB_ANOTHER_REQUEST, /* the key belongs to a request with another digest */
} fb_store_repeat;

/* Says what to do with a request; `answer` is written for FB_REPEATED only. */
fb_status fb_store_begin_request(fb_store *store, const fb_store_key *key, const char *request_digest, fb_store_repeat *repeat,
                                 fb_store_answer *answer, fb_error *error);
/* Ends what FB_FIRST_REQUEST began. */
void fb_store_end_request(fb_store *store, const fb_store_key *key);

#endif
