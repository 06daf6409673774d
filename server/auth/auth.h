/* Tokens in memory: who may ask, decided without the store and without waiting.
 *
 * A token is "fbt_" and 43 characters of base64url: 32 random bytes. It is shown once, when it is made; what is kept is its
 * SHA-256. (A random token of that size cannot be guessed, so its digest needs neither salt nor stretching.) Tokens are needed
 * as soon as one was ever made in the data folder, also when all have been revoked since. One process holds the data folder, so
 * what is here is all there is: a revocation counts from the moment at which it is answered. */
#ifndef FB_AUTH_AUTH_H
#define FB_AUTH_AUTH_H

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "server/http/http.h"
#include "server/store/audit.h"

#define FB_TOKEN_LENGTH 47

typedef struct fb_auth fb_auth;

/* Reads the store's tokens. */
fb_status fb_auth_open(fb_store *store, fb_auth **out, fb_error *error);
/* Puts the last uses into the store, which is closed afterwards. NULL does nothing. */
void fb_auth_close(fb_auth *auth);
/* Reads which tokens other replicas have made and revoked. */
void fb_auth_refresh(fb_auth *auth);

/* True if requests need a token. */
bool fb_auth_is_needed(fb_auth *auth);
/* As fb_doorkeeper's. */
fb_grant fb_auth_admit(fb_auth *auth, const char *token, fb_scope needed, char principal[FB_PRINCIPAL_MAX + 1]);
bool fb_auth_still_admits(fb_auth *auth, const char *principal, fb_scope needed);

/* Makes a token, by its name (NULL: one is made up), scope and expires, and writes it to `secret`: the only time that it is
 * seen. `out` (free it) is what the store has of it. FB_CONFLICT "token-exists", FB_INVALID "already-expired". */
fb_status fb_auth_create(fb_auth *auth, const fb_store_token *token, const fb_store_actor *by, char secret[FB_TOKEN_LENGTH + 1],
                         fb_store_token *out, fb_error *error);
/* `out` (free it) is the token afterwards. FB_NOT_FOUND "unknown-token". */
fb_status fb_auth_revoke(fb_auth *auth, const char *name, const fb_store_actor *by, fb_store_token *out, fb_error *error);
/* When the token was last used, which the store knows later; 0 = never. */
int64_t fb_auth_last_use(fb_auth *auth, const fb_store_token *token);

/* "read", "write", "hooks", "admin"; false for anything else. */
bool fb_scope_parse(const char *text, fb_scope *scope);

/* ---- A token's text, and what is kept of it ------------------------------------------------------------------------------ */

/* A new one. FB_IO "no-randomness". */
fb_status fb_secret_make(char secret[FB_TOKEN_LENGTH + 1], fb_error *error);
/* A name for a token that was given none: "token-" and ten characters. */
fb_status fb_secret_name(char name[20], fb_error *error);
/* FB_INVALID when the text cannot be a token; FB_NO_MEMORY. */
fb_status fb_secret_digest(const char *secret, char digest[FB_ID_LENGTH + 1]);

#endif
