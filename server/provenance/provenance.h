/* Statements that are signed: DSSE envelopes (secure-systems-lab/dsse 1.0) under ed25519 keys of the operator's.
 *
 * What is signed is the type and the bytes of the payload together, so that a signature for one type does not hold for another.
 */
#ifndef FB_PROVENANCE_PROVENANCE_H
#define FB_PROVENANCE_PROVENANCE_H

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/sha256.h"

#define FB_STATEMENT_TYPE "application/vnd.in-toto+json"
#define FB_BUILD_TYPE "urn:foldback:run:v1" /* of statements about runs */

typedef struct fb_signing_key fb_signing_key; /* immutable: any thread may use it */

/* A new key. FB_IO "no-randomness". */
fb_status fb_signing_key_make(fb_signing_key **out, fb_error *error);
/* Reads PEM: a private key (PKCS #8), or a public one. FB_INVALID "bad-key" when it is neither, or not of ed25519. */
fb_status fb_signing_key_read(const fb_buffer *pem, fb_signing_key **out, fb_error *error);
void fb_signing_key_free(fb_signing_key *key);

bool fb_signing_key_is_private(const fb_signing_key *key);
/* The SHA-256 of the public key's DER (SubjectPublicKeyInfo): "sha256:…". */
const char *fb_signing_key_id(const fb_signing_key *key);
/* Append PEM. False when memory is out. */
bool fb_signing_key_write_private(const fb_signing_key *key, fb_buffer *out);
bool fb_signing_key_write_public(const fb_signing_key *key, fb_buffer *out);

/* Appends the envelope of a payload, JSON. The key is private. */
fb_status fb_envelope_sign(const fb_signing_key *key, const char *payload, size_t size, fb_buffer *out, fb_error *error);
/* Appends the payload of an envelope that one of the keys has signed. `signer`: which one. FB_INVALID "bad-envelope",
 * "not-signed".
 */
fb_status fb_envelope_open(const char *text, size_t size, fb_signing_key *const *keys, size_t count, fb_buffer *payload,
                           size_t *signer, fb_error *error);

#endif
