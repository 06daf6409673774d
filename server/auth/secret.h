/* A token's text, and what is kept of it. */
#ifndef FB_AUTH_SECRET_H
#define FB_AUTH_SECRET_H

#include "core/base/error.h"
#include "core/base/sha256.h"
#include "server/auth/auth.h"

/* A new one. FB_IO "no-randomness". */
fb_status fb_secret_make(char secret[FB_TOKEN_LENGTH + 1], fb_error *error);
/* A name for a token that was given none: "token-" and ten characters. */
fb_status fb_secret_name(char name[20], fb_error *error);
/* FB_INVALID when the text cannot be a token; FB_NO_MEMORY. */
fb_status fb_secret_digest(const char *secret, char digest[FB_ID_LENGTH + 1]);

#endif
