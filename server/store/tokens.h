/* The store's tokens: who may ask, and for what. What is kept of a token is its digest. As in store.h: safe from any thread,
 * durable when they return, and the same general errors. */
#ifndef FB_STORE_TOKENS_H
#define FB_STORE_TOKENS_H

#include "server/store/store.h"

/* Times are 0 for never. */
typedef struct fb_store_token {
    int64_t key;
    const char *name;   /* as fb_is_name says */
    const char *digest; /* "sha256:…" of the token */
    const char *scope;  /* "read", "write" or "admin" */
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
void fb_store_token_free(fb_store_token *token);
/* All of them, those that were revoked included. */
fb_status fb_store_list_tokens(fb_store *store, const fb_store_page *page, fb_store_tokens *out, fb_error *error);
void fb_store_tokens_free(fb_store_tokens *tokens);

#endif
