/* Tells webhooks what happened, from the store's outbox.
 *
 *     commit ── fb_webhooks_notify ──► the deliverer's thread ── the store's due deliveries ──► libcurl ──► the receivers
 *                                            └── their outcome ──► the store
 *
 * One thread sends to all, several at once. A message is signed as Standard Webhooks says, sent at least once, always under the
 * same id, and tried again with growing pauses. Messages of one alias go one after the other. Of several replicas one sends.
 *
 * The maker of a webhook chooses where this service connects to, so it must not open a way into the network: https alone, no
 * redirects, no proxy, and each address is judged when the connection to it is made, for any name or spelling that led to it.
 */
#ifndef FB_WEBHOOKS_WEBHOOKS_H
#define FB_WEBHOOKS_WEBHOOKS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "server/store/webhooks.h"

/* ---- which addresses are connected to ------------------------------------------------------------------------------------ */

/* 10.0.0.0/8, fd00::/8, or one address. IPv4 within IPv6 (::ffff:10.0.0.1) counts as the IPv4 address that it is. */
typedef struct fb_network {
    struct in6_addr address; /* IPv4: mapped */
    unsigned bits;           /* of 128 */
} fb_network;

/* False when the text is not a network. */
bool fb_network_read(const char *text, fb_network *out);
/* True for an address of the Internet that is not of this machine, of a private network, or reserved; or one within `allowed`.
 */
bool fb_address_may_be_told(const struct sockaddr *address, const fb_network *allowed, size_t count);

/* ---- signatures ---------------------------------------------------------------------------------------------------------- */

/* A new secret: "whsec_" and the base64 of 32 random bytes. FB_IO "no-randomness". */
fb_status fb_hook_secret_make(char secret[FB_SECRET_MAX + 1], fb_error *error);
/* True for a secret: "whsec_" and the base64 of 24 to 64 bytes. */
bool fb_is_hook_secret(const char *text);
/* Appends "v1," and the base64 of the HMAC-SHA256 of "id.timestamp.body". The secret is one. */
bool fb_hook_sign(const char *secret, const char *id, int64_t timestamp, const char *body, fb_buffer *out);

#define FB_WEBHOOK_DESCRIPTORS 320 /* that the deliverer has open at most: connections, name lookups, and connections kept */

/* ---- the deliverer ------------------------------------------------------------------------------------------------------- */

typedef struct fb_webhooks fb_webhooks;

typedef struct fb_webhooks_config {
    bool is_on;                /* it delivers; without that webhooks cannot be made */
    bool allows_http;          /* besides https */
    const fb_network *allowed; /* networks that may be told although not of the Internet */
    size_t allowed_count;
    const char *ca_file;     /* PEM: trust these certificates, not the system's; NULL = the system's */
    unsigned timeout_ms;     /* of one attempt */
    unsigned first_pause_ms; /* after the first failure; twice as long after each further one, up to an hour */
    uint64_t lifetime_ms;    /* how long a message is tried; then it is parked */
} fb_webhooks_config;

/* Starts the thread. The configuration is copied, what it refers to stays the caller's. */
fb_status fb_webhooks_start(const fb_webhooks_config *config, fb_store *store, fb_webhooks **out, fb_error *error);
/* Lets what is being sent end, for some seconds, and ends the thread. NULL does nothing. */
void fb_webhooks_stop(fb_webhooks *webhooks);

/* Checks that a webhook may have that URL: FB_INVALID "bad-url" (not a URL, not https, a user or password in it, a fragment, a
 * port of another protocol), "address-refused" (an address that may not be told). A name is looked up later, each time. */
fb_status fb_webhooks_check_url(const fb_webhooks *webhooks, const char *url, fb_error *error);

/* Wakes the deliverer, as something may be due. Cheap where no webhooks exist. */
void fb_webhooks_notify(fb_webhooks *webhooks);
/* A webhook is another, or a delivery was asked for: it is tried at once, although the last attempts failed. */
void fb_webhooks_wake(fb_webhooks *webhooks);

/* foldback_webhook_… in Prometheus' text format. */
void fb_webhooks_metrics(fb_webhooks *webhooks, fb_buffer *out);

#endif
