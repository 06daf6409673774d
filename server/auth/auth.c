#include "server/auth/auth.h"
#include "server/metrics/metrics.h"

#include <openssl/crypto.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256
#define WRITE_INTERVAL_MS 60000 /* between two times that a token's use is written down */

typedef struct known_token {
    struct known_token *next;
    int64_t key, expires; /* 0 = never */
    fb_scope scope;
    atomic_bool is_revoked;
    atomic_int_least64_t last_used, written; /* what the store knows of it */
    char digest[FB_ID_LENGTH + 1];
    char name[FB_PRINCIPAL_MAX + 1];
} known_token;

struct fb_auth {
    fb_store *store;
    pthread_mutex_t changing; /* while tokens are added: none is added twice */
    pthread_rwlock_t lock;    /* over the lists; tokens are added to them, and stay until the end */
    known_token *buckets[BUCKETS];
    bool has_tokens;
};

bool fb_scope_parse(const char *text, fb_scope *scope) {
    static const struct {
        const char *name;
        fb_scope scope;
    } scopes[] = {{"read", FB_SCOPE_READ}, {"write", FB_SCOPE_WRITE}, {"hooks", FB_SCOPE_HOOKS}, {"admin", FB_SCOPE_ADMIN}};
    for (size_t i = 0; i < sizeof scopes / sizeof *scopes; i++) {
        if (strcmp(scopes[i].name, text) != 0) continue;
        *scope = scopes[i].scope;
        return true;
    }
    return false;
}

/* ---- the tokens that are known ------------------------------------------------------------------------------------------ */

/* By the digest's first byte. Where a digest falls says nothing of the token that it is of. */
static known_token **bucket_of(fb_auth *auth, const char *digest) {
    char first[3] = {digest[7], digest[8], '\0'};
    return &auth->buckets[strtoul(first, NULL, 16) % BUCKETS];
}

static fb_status add_token(fb_auth *auth, const fb_store_token *stored, fb_error *error) {
    known_token *token = calloc(1, sizeof *token);
    fb_scope scope;
    if (!token) return fb_fail_memory(error);
    if (!fb_scope_parse(stored->scope, &scope) || !fb_is_sha256_id(stored->digest)) {
        free(token);
        return fb_fail(error, FB_IO, "store-corrupt", NULL, "the store holds a malformed token");
    }
    token->key = stored->key;
    token->expires = stored->expires;
    token->scope = scope;
    atomic_init(&token->is_revoked, stored->revoked != 0);
    atomic_init(&token->last_used, stored->last_used);
    atomic_init(&token->written, stored->last_used);
    memcpy(token->digest, stored->digest, sizeof token->digest);
    snprintf(token->name, sizeof token->name, "%s", stored->name);

    pthread_rwlock_wrlock(&auth->lock);
    known_token **bucket = bucket_of(auth, token->digest);
    token->next = *bucket;
    *bucket = token;
    auth->has_tokens = true;
    pthread_rwlock_unlock(&auth->lock);
    return FB_OK;
}

/* With the lock. Compares all of a bucket, each in constant time. */
static known_token *find_digest(fb_auth *auth, const char *digest) {
    known_token *found = NULL;
    for (known_token *token = *bucket_of(auth, digest); token; token = token->next)
        if (CRYPTO_memcmp(token->digest, digest, FB_ID_LENGTH) == 0) found = token;
    return found;
}

/* With the lock. */
static known_token *find_name(fb_auth *auth, const char *name) {
    for (size_t i = 0; i < BUCKETS; i++)
        for (known_token *token = auth->buckets[i]; token; token = token->next)
            if (strcmp(token->name, name) == 0) return token;
    return NULL;
}

/* One that is there already may have been revoked, by another replica. */
static fb_status take_token(fb_auth *auth, const fb_store_token *stored, fb_error *error) {
    pthread_rwlock_rdlock(&auth->lock);
    known_token *known = find_name(auth, stored->name);
    if (known && stored->revoked) atomic_store(&known->is_revoked, true);
    pthread_rwlock_unlock(&auth->lock);
    return known ? FB_OK : add_token(auth, stored, error);
}

static fb_status read_tokens(fb_auth *auth, fb_error *error) {
    fb_store_page page = {.limit = FB_PAGE_MAX};
    char next[FB_PAGE_TOKEN_LENGTH + 1];
    do {
        fb_store_tokens list;
        fb_status status = fb_store_list_tokens(auth->store, &page, &list, error);
        if (status) return status;
        for (size_t i = 0; i < list.count && !status; i++) status = take_token(auth, &list.items[i], error);
        memcpy(next, list.next_token, sizeof next);
        page.token = next;
        FB_STORE_FREE(&list);
        if (status) return status;
    } while (*next);
    return FB_OK;
}

fb_status fb_auth_open(fb_store *store, fb_auth **out, fb_error *error) {
    fb_auth *auth = calloc(1, sizeof *auth);
    if (!auth) return fb_fail_memory(error);
    auth->store = store;
    pthread_rwlockattr_t writers_first; /* or those who ask all the time would keep a new token out */
    pthread_rwlockattr_init(&writers_first);
    pthread_rwlockattr_setkind_np(&writers_first, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&auth->lock, &writers_first);
    pthread_mutex_init(&auth->changing, NULL);
    pthread_rwlockattr_destroy(&writers_first);
    fb_status status = read_tokens(auth, error);
    if (status) fb_auth_close(auth);
    else *out = auth;
    return status;
}

void fb_auth_refresh(fb_auth *auth) {
    pthread_mutex_lock(&auth->changing);
    read_tokens(auth, NULL); /* what fails now is read the next time */
    pthread_mutex_unlock(&auth->changing);
}

void fb_auth_close(fb_auth *auth) {
    if (!auth) return;
    for (size_t i = 0; i < BUCKETS; i++) {
        for (known_token *token = auth->buckets[i], *next; token; token = next) {
            int64_t used = atomic_load(&token->last_used);
            if (used != atomic_load(&token->written)) fb_store_post_token_use(auth->store, token->key, used, NULL);
            next = token->next;
            free(token);
        }
    }
    pthread_rwlock_destroy(&auth->lock);
    pthread_mutex_destroy(&auth->changing);
    free(auth);
}

/* ---- who may ask -------------------------------------------------------------------------------------------------------- */

bool fb_auth_is_needed(fb_auth *auth) {
    pthread_rwlock_rdlock(&auth->lock);
    bool has_tokens = auth->has_tokens;
    pthread_rwlock_unlock(&auth->lock);
    return has_tokens;
}

/* Writes the time of use with the first request after an interval; should that fail, the next interval has another. */
static void note_use(fb_auth *auth, known_token *token, int64_t now) {
    int64_t written = atomic_load(&token->written);
    atomic_store(&token->last_used, now);
    bool is_due = now - written >= WRITE_INTERVAL_MS || now < written;
    if (is_due && atomic_compare_exchange_strong(&token->written, &written, now))
        fb_store_post_token_use(auth->store, token->key, now, NULL);
}

static fb_grant judge(const known_token *token, fb_scope needed, int64_t now) {
    if (atomic_load(&token->is_revoked)) return FB_TOKEN_REVOKED;
    if (token->expires && now >= token->expires) return FB_TOKEN_EXPIRED;
    return fb_scope_covers(token->scope, needed) ? FB_GRANTED : FB_SCOPE_TOO_SMALL;
}

static fb_grant admit_token(fb_auth *auth, const char *secret, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]) {
    char digest[FB_ID_LENGTH + 1];
    fb_status status = fb_secret_digest(secret, digest);
    if (status == FB_NO_MEMORY) return FB_NOT_DECIDED;
    known_token *token = status ? NULL : find_digest(auth, digest);
    if (!token) return FB_TOKEN_UNKNOWN;
    int64_t now = fb_wall_ms();
    fb_grant grant = judge(token, needed, now);
    if (grant == FB_GRANTED || grant == FB_SCOPE_TOO_SMALL) {
        memcpy(principal, token->name, sizeof token->name);
        note_use(auth, token, now);
    }
    return grant;
}

fb_grant fb_auth_admit(fb_auth *auth, const char *token, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]) {
    fb_grant grant = FB_GRANTED;
    pthread_rwlock_rdlock(&auth->lock);
    if (auth->has_tokens) grant = token ? admit_token(auth, token, needed, principal) : FB_TOKEN_MISSING;
    pthread_rwlock_unlock(&auth->lock);
    return grant;
}

bool fb_auth_still_admits(fb_auth *auth, const char *principal, fb_scope needed) {
    pthread_rwlock_rdlock(&auth->lock);
    const known_token *token = find_name(auth, principal);
    bool is_admitted = token ? judge(token, needed, fb_wall_ms()) == FB_GRANTED : !auth->has_tokens;
    pthread_rwlock_unlock(&auth->lock);
    return is_admitted;
}

/* ---- changes ------------------------------------------------------------------------------------------------------------ */

fb_status fb_auth_create(fb_auth *auth, const fb_store_token *token, const fb_store_actor *by, char secret[FB_TOKEN_LENGTH + 1],
                         fb_store_token *out, fb_error *error) {
    char digest[FB_ID_LENGTH + 1], name[20];
    fb_store_token wanted = *token;
    fb_status status = fb_secret_make(secret, error);
    if (!status && !wanted.name) status = fb_secret_name(name, error);
    if (status) return status;
    if (!wanted.name) wanted.name = name;
    if (fb_secret_digest(secret, digest)) return fb_fail_memory(error);
    wanted.digest = digest;
    status = fb_store_put_token(auth->store, &wanted, by, out, error);
    if (status) return status;
    pthread_mutex_lock(&auth->changing);
    status = take_token(auth, out, error);
    pthread_mutex_unlock(&auth->changing);
    if (status) FB_STORE_FREE(out);
    return status;
}

fb_status fb_auth_revoke(fb_auth *auth, const char *name, const fb_store_actor *by, fb_store_token *out, fb_error *error) {
    fb_status status = fb_store_revoke_token(auth->store, name, by, out, error);
    if (status) return status;
    pthread_rwlock_rdlock(&auth->lock);
    known_token *token = find_name(auth, name);
    if (token) atomic_store(&token->is_revoked, true);
    pthread_rwlock_unlock(&auth->lock);
    return FB_OK;
}

int64_t fb_auth_last_use(fb_auth *auth, const fb_store_token *stored) {
    pthread_rwlock_rdlock(&auth->lock);
    const known_token *token = find_digest(auth, stored->digest);
    int64_t used = token ? atomic_load(&token->last_used) : stored->last_used;
    pthread_rwlock_unlock(&auth->lock);
    return used;
}
