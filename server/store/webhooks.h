/* The store's webhooks, and the outbox: the events that they are to get, and their deliveries.
 *
 *     an act's write ── fb_tell_… ──► a delivery for each webhook that wants it, in the same transaction
 *     the deliverer  ── fb_store_due_deliveries ──► sends ──► fb_store_end_attempts
 *
 * So a message is there exactly when its act is. One process takes what is due: of the replicas that share a store the one that
 * leads (fb_store_leads). For a moment two may, so a message may be sent twice.
 *
 * As in store.h: safe from any thread, durable when they return, and the same general errors. */
#ifndef FB_STORE_WEBHOOKS_H
#define FB_STORE_WEBHOOKS_H

#include "server/database/query.h"
#include "server/store/jobs.h"
#include "server/store/models.h"
#include "server/store/store.h"

#define FB_WEBHOOK_ID_LENGTH 31 /* "hook_" and a ULID */
#define FB_MESSAGE_ID_LENGTH 30 /* "msg_" and 26 random digits */
#define FB_SECRET_MAX 100       /* characters of "whsec_" and base64 */
#define FB_WEBHOOKS_MAX 100     /* each act writes a row for each that wants to know */

/* The events that webhooks get: "alias.created", "alias.moved", "alias.rolled_back", "alias.deleted", "version.created",
 * "run.finished", "job.finished". NULL after the last one. */
const char *fb_event_type(size_t index);

/* ---- webhooks ---- */

/* The fb_store_webhook.ends of a row of webhooks, or NULL. */
#define FB_SQL_WEBHOOK_ENDS "(SELECT coalesce(t.revoked, t.expires) FROM tokens t WHERE t.name = webhooks.who)"

typedef struct fb_store_webhook {
    const char *id, *url;
    const char *events; /* names of events separated by spaces, or "*" */
    const char *models; /* patterns separated by spaces: * is any characters, ? any one. Runs and jobs belong to no model */
    const char *note;   /* or NULL */
    bool is_enabled;
    const char *who; /* made it, or changed it last: a token's name, "anonymous" or "local"; NULL = not known any more */
    int64_t ends;    /* when that token expires or was revoked; 0 = never. From then on it gets nothing */
    int64_t created, changed;
    int64_t old_secret_until; /* 0 = the old one is gone */
    uint64_t pending, parked; /* deliveries */
    fb_store_memory *memory;
} fb_store_webhook;

typedef struct fb_store_webhooks {
    fb_store_webhook *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_webhooks;

/* Stores a webhook by its url, events, models, note and is_enabled, and its secret; `out` (free it) is as it is stored.
 * FB_CONFLICT "too-many-webhooks". */
fb_status fb_store_put_webhook(fb_store *store, const fb_store_webhook *webhook, const char *secret, const fb_store_actor *by,
                               fb_store_webhook *out, fb_error *error);

/* The changes of a webhook: NULL and -1 stay as they are. */
typedef struct fb_store_webhook_change {
    const char *url, *events, *models;
    const char *note; /* "" takes it away */
    int is_enabled;
} fb_store_webhook_change;

/* Changes a webhook; the one who does, or who gives it another secret, answers for it from then on: `who`. FB_NOT_FOUND
 * "unknown-webhook", as all that follow. */
fb_status fb_store_change_webhook(fb_store *store, const char *id, const fb_store_webhook_change *change,
                                  const fb_store_actor *by, fb_store_webhook *out, fb_error *error);
/* From now on `secret` signs; what signed until now does so as well, for another `overlap_ms`. */
fb_status fb_store_rotate_secret(fb_store *store, const char *id, const char *secret, int64_t overlap_ms,
                                 const fb_store_actor *by, fb_store_webhook *out, fb_error *error);
/* With all its deliveries. */
fb_status fb_store_delete_webhook(fb_store *store, const char *id, const fb_store_actor *by, fb_error *error);

fb_status fb_store_get_webhook(fb_store *store, const char *id, fb_store_webhook *out, fb_error *error);
fb_status fb_store_list_webhooks(fb_store *store, const fb_store_page *page, fb_store_webhooks *out, fb_error *error);

/* ---- deliveries ---- */

typedef struct fb_store_delivery {
    const char *id, *type;
    const char *state;   /* "pending", "delivered", "parked": given up, until it is asked for again */
    const char *body;    /* NULL in lists */
    const char *failure; /* of the last attempt, or NULL */
    int64_t created;
    int64_t due;       /* while it is pending: when it is tried, if it need not wait for another one; else 0 */
    int64_t attempted; /* 0 = never */
    uint32_t attempts;
    int status; /* 0 = none */
    fb_store_memory *memory;
} fb_store_delivery;

typedef struct fb_store_deliveries {
    fb_store_delivery *items; /* each `memory` is NULL: the list owns everything */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory;
} fb_store_deliveries;

/* Newest first; of one state where that is not NULL. FB_NOT_FOUND "unknown-webhook". */
fb_status fb_store_list_deliveries(fb_store *store, const char *webhook, const char *state, const fb_store_page *page,
                                   fb_store_deliveries *out, fb_error *error);
/* FB_NOT_FOUND "unknown-webhook", "unknown-delivery"; so also the next. */
fb_status fb_store_get_delivery(fb_store *store, const char *webhook, const char *id, fb_store_delivery *out, fb_error *error);

/* Sends it again, at once, after any outcome: under the same id, and in no order with others. */
fb_status fb_store_redeliver(fb_store *store, const char *webhook, const char *id, const fb_store_actor *by,
                             fb_store_delivery *out, fb_error *error);
/* Puts a message of type "webhook.test" into the outbox, for this webhook alone. */
fb_status fb_store_test_webhook(fb_store *store, const char *webhook, const fb_store_actor *by, fb_store_delivery *out,
                                fb_error *error);

/* ---- the deliverer's side ---- */

/* A message that is due. */
typedef struct fb_due_delivery {
    int64_t key, webhook; /* keys */
    int64_t queued;
    uint32_t attempts;
    const char *id, *url, *body;
    const char *secret, *old_secret; /* old_secret NULL: there is none any more */
} fb_due_delivery;

typedef struct fb_due_deliveries {
    fb_due_delivery *items;
    size_t count;
    int64_t next;            /* when another one will be due; INT64_MAX = none waits */
    size_t webhooks;         /* that are enabled */
    fb_store_memory *memory; /* holds secrets */
} fb_due_deliveries;

#define FB_DUE_EACH 8 /* of one webhook at once */

/* Lists the deliveries due at `now`: of each enabled webhook up to FB_DUE_EACH, the longest due first; of one topic only the
 * first that is pending. */
fb_status fb_store_due_deliveries(fb_store *store, int64_t now, fb_due_deliveries *out, fb_error *error);

/* The end of an attempt. One of a delivery that does not wait any more, or was deleted meanwhile, changes nothing. */
typedef struct fb_attempt_end {
    int64_t key;
    bool is_delivered, is_parked; /* neither: it is tried again at `due` */
    bool is_unwanted;             /* the receiver wants no more: its webhook is disabled, unless it was changed since `begun` */
    int64_t begun, at, due;
    int status;          /* 0 = none */
    const char *failure; /* or NULL */
} fb_attempt_end;

/* All in one transaction. */
fb_status fb_store_end_attempts(fb_store *store, const fb_attempt_end *ends, size_t count, fb_error *error);
/* Deletes what was delivered before one time, and parked before the other, some of them; *count is how many. */
fb_status fb_store_trim_deliveries(fb_store *store, int64_t delivered_before, int64_t parked_before, size_t *count,
                                   fb_error *error);
/* How many there are in the outbox. */
fb_status fb_store_count_deliveries(fb_store *store, uint64_t *pending, uint64_t *parked, int64_t *oldest_pending,
                                    fb_error *error);

/* ---- On the writer, within an act's write ---- */

/* The key of a webhook. FB_NOT_FOUND "unknown-webhook". */
fb_status fb_need_webhook(fb_connection *connection, const char *id, int64_t *key, fb_error *error);

fb_status fb_tell_alias(fb_connection *connection, const fb_store_alias_entry *entry, fb_error *error);
fb_status fb_tell_version(fb_connection *connection, int64_t version, fb_error *error);
fb_status fb_tell_run(fb_connection *connection, const fb_store_run *run, fb_error *error);
fb_status fb_tell_job(fb_connection *connection, const char *job, fb_error *error);

#endif
