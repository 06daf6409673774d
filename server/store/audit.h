/* The audit: who did what. Every act leaves an entry, written in the transaction of what it did: neither exists without the
 * other. Entries are never changed; the database itself refuses that. They are removed for their age only. Each has a digest of
 * itself and of the digest before it, so that `db check` notices damage (fb_store_check_audit in check.h).
 *
 *     action              object          outcome
 *     optimize, external  the run         the resulting graph
 *     reverse, rollback   the run         the resulting graph
 *     model-put           the model       its naming
 *     version-put         model:version   its graph
 *     version-delete      model:version   deleted
 *     alias-create        model@alias     the version that it has now; so also for alias-deploy and alias-rollback
 *     alias-delete        model@alias     deleted
 *     graph-delete        the graph       deleted
 *     transformation-put, layout-put
 *                         its name        version N
 *     graph-put           the graph       how many nodes, and its bytes (a graph that comes with a run is the run's)
 *     blob-put            the blob        its bytes
 *     blob-withdraw       "blobs"         how many and how many bytes: what a refused request had put
 *     upload-create, upload-part, upload-delete
 *                         the upload      its bytes by then
 *     job-create          the job         method and path of its request
 *     job-cancel          the job         cancelled
 *     job-expire          jobs            how many
 *     gc                  blobs           how many, and their bytes
 *     gc                  uploads, files  how many
 *     retention           runs            how many, and how many graphs
 *     audit-trim          audit           how many entries, and from before when
 *     pin, unpin          the run         pinned, not pinned any more
 *     token-create        the token       its scope
 *     token-revoke        the token       revoked
 *     webhook-create      the webhook     scheme and host of its URL; so also for webhook-change, or disabled
 *     webhook-delete      the webhook     deleted
 *     webhook-rotate      the webhook     another secret
 *     webhook-test, webhook-redeliver
 *                         the webhook     the message */
#ifndef FB_STORE_AUDIT_H
#define FB_STORE_AUDIT_H

#include "core/base/sha256.h"
#include "core/base/work.h"
#include "server/database/query.h"
#include "server/store/store.h"

typedef struct fb_audit_entry {
    int64_t number, at;
    const char *who, *request; /* `request` NULL for none */
    const char *action, *object, *outcome;
} fb_audit_entry;

typedef struct fb_audit_entries {
    fb_audit_entry *items;
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_audit_entries;

/* All that is not NULL must hold; since ≤ at < until, where 0 = unlimited. */
typedef struct fb_audit_filter {
    const char *who, *action, *object;
    int64_t since, until;
} fb_audit_filter;

/* Newest first. `page` may be NULL. */
fb_status fb_store_list_audit(fb_store *store, const fb_audit_filter *filter, const fb_store_page *page, fb_audit_entries *out,
                              fb_error *error);

/* Removes the entries that are older than `age_ms` (0: none), and those alone; with `is_dry` it counts them. In transactions of
 * some thousand, each with an entry of its own. `by` NULL is the service itself; `watch` may be NULL. An entry stays while one
 * with a lower number is younger. */
fb_status fb_store_trim_audit(fb_store *store, int64_t age_ms, bool is_dry, const fb_store_actor *by, const fb_watch *watch,
                              uint64_t *removed, fb_error *error);

/* On the writer, within an act's write. NULL for `by` is the service itself. */
fb_status fb_write_audit(fb_connection *connection, const fb_store_actor *by, int64_t at, const char *action,
                         const char *object, const char *outcome, fb_error *error);

/* The digest of an entry (its number apart) behind the one with the digest `previous`; "" when that has none. False when memory
 * is out. */
bool fb_audit_digest(const char *previous, const fb_audit_entry *entry, char digest[FB_ID_LENGTH + 1]);

/* The store's tokens: who may ask, and for what. What is kept of a token is its digest. As in store.h: safe from any thread,
 * durable when they return, and the same general errors. */

/* Times are 0 for never. */
typedef struct fb_store_token {
    int64_t key;
    const char *name;   /* as fb_is_name says */
    const char *digest; /* "sha256:…" of the token */
    const char *scope;  /* "read", "write", "hooks" or "admin" */
    int64_t created, expires, revoked, last_used;
    fb_store_memory *memory;
} fb_store_token;

typedef struct fb_store_tokens {
    fb_store_token *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_tokens;

/* Stores a token by its name, digest, scope and expires; `out` (free it) is as it is stored. FB_CONFLICT "token-exists": the
 * name is taken, perhaps by one that was revoked. FB_INVALID "already-expired". */
fb_status fb_store_put_token(fb_store *store, const fb_store_token *token, const fb_store_actor *by, fb_store_token *out,
                             fb_error *error);
/* From now on it is worth nothing; one that is revoked already stays as it is. `out` (free it) is the token afterwards.
 * FB_NOT_FOUND "unknown-token". */
fb_status fb_store_revoke_token(fb_store *store, const char *name, const fb_store_actor *by, fb_store_token *out,
                                fb_error *error);
/* Notes when the token with that key was used, some time later, and does not wait. */
fb_status fb_store_post_token_use(fb_store *store, int64_t key, int64_t at, fb_error *error);

/* FB_NOT_FOUND "unknown-token". */
fb_status fb_store_get_token(fb_store *store, const char *name, fb_store_token *out, fb_error *error);
/* All of them, those that were revoked included. */
fb_status fb_store_list_tokens(fb_store *store, const fb_store_page *page, fb_store_tokens *out, fb_error *error);

#endif
