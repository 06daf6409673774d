/* Keys and envelopes, by OpenSSL. */
#include "server/provenance/provenance.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/json/json.h"

#define SIGNATURE_SIZE 64

struct fb_signing_key {
    EVP_PKEY *pair;
    bool is_private;
    char id[FB_ID_LENGTH + 1];
};

/* ---- keys ---------------------------------------------------------------------------------------------------------------- */

static fb_status take(EVP_PKEY *pair, bool is_private, fb_signing_key **out, fb_error *error) {
    unsigned char *der = NULL;
    fb_signing_key *key = calloc(1, sizeof *key);
    int size = key ? i2d_PUBKEY(pair, &der) : -1;
    bool ok = size > 0 && fb_sha256_id(der, (size_t)size, key->id);
    OPENSSL_free(der);
    if (!ok) {
        free(key);
        EVP_PKEY_free(pair);
        return fb_fail_memory(error);
    }
    key->pair = pair;
    key->is_private = is_private;
    *out = key;
    return FB_OK;
}

fb_status fb_signing_key_make(fb_signing_key **out, fb_error *error) {
    EVP_PKEY *pair = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!pair) return fb_fail(error, FB_IO, "no-randomness", NULL, "OpenSSL cannot make a key");
    return take(pair, true, out, error);
}

static int no_passphrase(char *buffer, int size, int is_written, void *context) {
    (void)buffer, (void)size, (void)is_written, (void)context;
    return 0; /* it would ask the terminal */
}

fb_status fb_signing_key_read(const fb_buffer *pem, fb_signing_key **out, fb_error *error) {
    BIO *bytes = BIO_new_mem_buf(pem->data, (int)pem->size);
    if (!bytes) return fb_fail_memory(error);
    EVP_PKEY *pair = PEM_read_bio_PrivateKey(bytes, NULL, no_passphrase, NULL);
    bool is_private = pair != NULL;
    if (!pair) {
        BIO_free(bytes);
        bytes = BIO_new_mem_buf(pem->data, (int)pem->size);
        if (!bytes) return fb_fail_memory(error);
        pair = PEM_read_bio_PUBKEY(bytes, NULL, no_passphrase, NULL);
    }
    BIO_free(bytes);
    if (pair && EVP_PKEY_is_a(pair, "ED25519")) return take(pair, is_private, out, error);
    EVP_PKEY_free(pair);
    return fb_fail(error, FB_INVALID, "bad-key", NULL,
                   pair ? "it is a key of another kind: foldback key create makes one of ed25519"
                        : "it is not a PEM key without a passphrase; make one with foldback key create");
}

void fb_signing_key_free(fb_signing_key *key) {
    if (!key) return;
    EVP_PKEY_free(key->pair); /* clears it */
    free(key);
}

bool fb_signing_key_is_private(const fb_signing_key *key) {
    return key->is_private;
}

const char *fb_signing_key_id(const fb_signing_key *key) {
    return key->id;
}

static bool write_pem(BIO *bytes, bool is_written, fb_buffer *out) {
    char *text = NULL;
    long size = is_written ? BIO_get_mem_data(bytes, &text) : 0;
    if (size > 0) fb_buffer_append(out, text, (size_t)size);
    BIO_free(bytes);
    return size > 0 && !out->failed;
}

bool fb_signing_key_write_private(const fb_signing_key *key, fb_buffer *out) {
    BIO *bytes = BIO_new(BIO_s_secmem());
    return bytes && write_pem(bytes, PEM_write_bio_PKCS8PrivateKey(bytes, key->pair, NULL, NULL, 0, NULL, NULL) == 1, out);
}

bool fb_signing_key_write_public(const fb_signing_key *key, fb_buffer *out) {
    BIO *bytes = BIO_new(BIO_s_mem());
    return bytes && write_pem(bytes, PEM_write_bio_PUBKEY(bytes, key->pair) == 1, out);
}

/* ---- envelopes ----------------------------------------------------------------------------------------------------------- */

/* "DSSEv1", and then type and payload, each after its length. */
static const char *encode(const char *type, const void *payload, size_t size, fb_buffer *out) {
    fb_buffer_printf(out, "DSSEv1 %zu %s %zu ", strlen(type), type, size);
    fb_buffer_append(out, payload, size);
    return fb_buffer_text(out);
}

static bool put_base64(fb_buffer *out, const char *name, const void *bytes, size_t size) {
    unsigned char *text = malloc((size + 2) / 3 * 4 + 1);
    if (text) EVP_EncodeBlock(text, bytes, (int)size);
    if (text) fb_put_text(out, name, (const char *)text);
    free(text);
    return text != NULL;
}

fb_status fb_envelope_sign(const fb_signing_key *key, const char *payload, size_t size, fb_buffer *out, fb_error *error) {
    unsigned char signature[SIGNATURE_SIZE];
    size_t length = sizeof signature;
    fb_buffer signed_bytes = {0};
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = context && encode(FB_STATEMENT_TYPE, payload, size, &signed_bytes) &&
              EVP_DigestSignInit(context, NULL, NULL, NULL, key->pair) == 1 &&
              EVP_DigestSign(context, signature, &length, (const unsigned char *)signed_bytes.data, signed_bytes.size) == 1;
    EVP_MD_CTX_free(context);
    fb_buffer_free(&signed_bytes);
    if (!ok) return fb_fail_memory(error);
    fb_buffer_char(out, '{');
    fb_put_text(out, "payloadType", FB_STATEMENT_TYPE);
    ok = put_base64(out, "payload", payload, size);
    fb_put_name(out, "signatures");
    fb_buffer_string(out, "[{");
    fb_put_text(out, "keyid", key->id);
    ok = ok && put_base64(out, "sig", signature, length);
    fb_buffer_string(out, "}]}");
    return ok && fb_buffer_text(out) ? FB_OK : fb_fail_memory(error);
}

/* Appends the bytes of base64, in the standard alphabet or the URL-safe one: DSSE's signers may use either. False when it is
 * not valid. */
static bool decode(const json_t *text, fb_buffer *out) {
    size_t length = json_string_length(text);
    char *given = length ? strdup(json_string_value(text)) : NULL;
    for (char *at = given; at && *at; at++) *at = *at == '-' ? '+' : *at == '_' ? '/' : *at;
    bool ok = given && fb_is_base64(given, length);
    size_t size = ok ? fb_base64_size(given, length) : 0;
    unsigned char *to = ok ? (unsigned char *)fb_buffer_reserve(out, size) : NULL;
    if (to) {
        fb_base64_decode(given, 0, size, to);
        out->size += size;
    }
    free(given);
    return to != NULL;
}

static bool is_signed_with(const fb_signing_key *key, const fb_buffer *signed_bytes, const fb_buffer *signature) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool ok = context && signature->size == SIGNATURE_SIZE && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key->pair) == 1 &&
              EVP_DigestVerify(context, (const unsigned char *)signature->data, signature->size,
                               (const unsigned char *)signed_bytes->data, signed_bytes->size) == 1;
    EVP_MD_CTX_free(context);
    return ok;
}

/* The key that has made one of the signatures; `count` when none has. An envelope's own words about its keys decide nothing. */
static size_t find_signer(const json_t *signatures, const fb_buffer *signed_bytes, fb_signing_key *const *keys, size_t count) {
    size_t i;
    const json_t *one;
    json_array_foreach(signatures, i, one) {
        fb_buffer signature = {0};
        size_t signer = count;
        if (decode(json_object_get(one, "sig"), &signature))
            for (size_t k = 0; k < count && signer == count; k++)
                if (is_signed_with(keys[k], signed_bytes, &signature)) signer = k;
        fb_buffer_free(&signature);
        if (signer < count) return signer;
    }
    return count;
}

static fb_status open_envelope(const json_t *envelope, fb_signing_key *const *keys, size_t count, fb_buffer *payload,
                               size_t *signer, fb_error *error) {
    const char *type = json_string_value(json_object_get(envelope, "payloadType"));
    const json_t *signatures = json_object_get(envelope, "signatures");
    if (!type || !json_is_array(signatures) || !decode(json_object_get(envelope, "payload"), payload))
        return fb_fail(error, FB_INVALID, "bad-envelope", NULL,
                       "it is no DSSE envelope: an object with payloadType, payload in base64, and signatures");
    if (strcmp(type, FB_STATEMENT_TYPE) != 0)
        return fb_fail(error, FB_INVALID, "bad-envelope", NULL, "its payload is %.60s, not " FB_STATEMENT_TYPE, type);
    fb_buffer signed_bytes = {0};
    bool ok = encode(type, payload->data, payload->size, &signed_bytes) != NULL;
    if (ok) *signer = find_signer(signatures, &signed_bytes, keys, count);
    fb_buffer_free(&signed_bytes);
    if (!ok) return fb_fail_memory(error);
    if (*signer < count) return FB_OK;
    return fb_fail(error, FB_INVALID, "not-signed", NULL, "none of the given keys has signed it");
}

fb_status fb_envelope_open(const char *text, size_t size, fb_signing_key *const *keys, size_t count, fb_buffer *payload,
                           size_t *signer, fb_error *error) {
    json_error_t failure;
    json_t *envelope = fb_load_json_bytes(text, size, JSON_REJECT_DUPLICATES, &failure);
    if (!envelope) return fb_fail(error, FB_INVALID, "bad-envelope", NULL, "it is not JSON: %.100s", failure.text);
    fb_status status = open_envelope(envelope, keys, count, payload, signer, error);
    json_decref(envelope);
    return status;
}
