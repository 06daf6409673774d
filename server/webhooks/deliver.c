/* The deliverer: takes what is due from the outbox, sends it, and notes what became of it. */
#include "server/libraries/curl.h"
#include "server/metrics/metrics.h"
#include "server/webhooks/webhooks.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS_MORE 28 /* at once of all webhooks together, besides one of each */
#define ATTEMPTS (FB_WEBHOOKS_MAX + ATTEMPTS_MORE)
#define ATTEMPTS_EACH 4               /* of one webhook whose receiver answers; the store offers twice as many */
#define CONNECT_MS 5000L              /* of the time of one attempt */
#define ANSWER_MAX ((size_t)64 << 10) /* bytes of an answer's headers, and of its body, which is not read */
#define URL_MAX 2000
#define LONGEST_PAUSE_MS 3600000
#define PATIENCE 3                                /* failures in a row of one webhook, after which it has a pause itself, */
#define LONGEST_REST_MS 60000                     /* of this length at most: one that does not answer costs little */
#define POLL_MS 10000                             /* without any news */
#define RETRY_MS 1000                             /* after the store could not be read or written */
#define STOP_MS 5000                              /* for what is being sent when the service stops */
#define TRIM_MS 600000                            /* between two clearings of the outbox, */
#define KEEP_DELIVERED_MS ((int64_t)7 * 86400000) /* which keeps what was delivered for so long, */
#define KEEP_PARKED_MS ((int64_t)30 * 86400000)   /* and what was given up */

typedef enum attempt_state { UNUSED, SENDING, ENDED } attempt_state;

/* One message on its way. */
typedef struct attempt {
    fb_webhooks *webhooks;
    attempt_state state; /* ENDED: what became of it is not in the store yet */
    CURL *curl;          /* kept for the next one */
    struct curl_slist *headers;
    char *body;
    int64_t key, webhook, queued, begun;
    uint32_t attempts; /* before this one */
    size_t received, header_bytes;
    bool is_more;              /* not its webhook's own one */
    bool is_refused, is_tried; /* an address was */
    fb_attempt_end end;
    char failure[120];
} attempt;

/* A webhook whose receiver fails. */
typedef struct rest {
    int64_t webhook;
    unsigned failures; /* in a row; 0: the place is free */
    int64_t until;     /* of the monotonic clock */
} rest;

struct fb_webhooks {
    fb_webhooks_config config;
    fb_store *store;
    CURLM *multi;
    pthread_t thread;
    attempt attempts[ATTEMPTS];
    rest rests[FB_WEBHOOKS_MAX];
    int64_t next_look, next_trim; /* of the monotonic clock */
    unsigned seed;

    atomic_bool is_stopping, has_news, forgets_rests;
    atomic_size_t known; /* webhooks that are enabled */
    atomic_ullong delivered, failed, refused, parked;
};

/* ---- which URLs ---------------------------------------------------------------------------------------------------------- */

static fb_status fail_url(fb_error *error, const char *why) {
    return fb_fail(error, FB_INVALID, "bad-url", "/url", "%s", why);
}

/* An address that is spelled out, in any way: libcurl has made it the usual one. */
static fb_status check_host(const fb_webhooks *webhooks, char *host, fb_error *error) {
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    const struct sockaddr *address = NULL;
    size_t length = strlen(host);
    if (length > 1 && *host == '[' && host[length - 1] == ']') {
        host[length - 1] = '\0';
        if (inet_pton(AF_INET6, host + 1, &v6.sin6_addr) != 1) return fail_url(error, "the host is not an address");
        address = (const struct sockaddr *)&v6;
    } else if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        address = (const struct sockaddr *)&v4;
    }
    if (!address || fb_address_may_be_told(address, webhooks->config.allowed, webhooks->config.allowed_count)) return FB_OK;
    return fb_fail(error, FB_INVALID, "address-refused", "/url",
                   "that address is private, of this machine or reserved: the operator can allow its network "
                   "(serve --webhook-allow)");
}

static fb_status check_port(const char *scheme, const char *port, fb_error *error) {
    long number = strtol(port, NULL, 10);
    bool is_own = number == (strcmp(scheme, "https") == 0 ? 443 : 80);
    if (is_own || number >= 1024) return FB_OK;
    return fail_url(error, "ports below 1024 are of other protocols, but for 443 (and 80 of http)");
}

static bool has_part(CURLU *parts, CURLUPart part) {
    char *text = NULL;
    bool is_there = fb_curl.url_get(parts, part, &text, 0) == CURLUE_OK;
    fb_curl.free(text);
    return is_there;
}

static fb_status check_parts(const fb_webhooks *webhooks, CURLU *parts, fb_error *error) {
    char *scheme = NULL, *host = NULL, *port = NULL;
    fb_status status = FB_OK;
    if (fb_curl.url_get(parts, CURLUPART_SCHEME, &scheme, 0) || fb_curl.url_get(parts, CURLUPART_HOST, &host, 0) ||
        fb_curl.url_get(parts, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT))
        status = fail_url(error, "a URL is https://host/path");
    else if (strcmp(scheme, "https") != 0 && strcmp(scheme, "http") != 0)
        status = fail_url(error, "the URL must begin with https://");
    else if (strcmp(scheme, "https") != 0 && !webhooks->config.allows_http)
        status = fail_url(error, "the URL must begin with https://: the operator can allow http (serve --webhook-allow-http)");
    else if (has_part(parts, CURLUPART_USER) || has_part(parts, CURLUPART_PASSWORD))
        status = fail_url(error, "the URL has a user or a password: the signature says who sends it");
    else if (has_part(parts, CURLUPART_FRAGMENT)) status = fail_url(error, "the URL has a fragment, which is never sent");
    else if (has_part(parts, CURLUPART_ZONEID)) status = fail_url(error, "the address has a zone, which only this machine has");
    if (!status) status = check_port(scheme, port, error);
    if (!status) status = check_host(webhooks, host, error);
    fb_curl.free(scheme);
    fb_curl.free(host);
    fb_curl.free(port);
    return status;
}

fb_status fb_webhooks_check_url(const fb_webhooks *webhooks, const char *url, fb_error *error) {
    if (strlen(url) > URL_MAX) return fail_url(error, "a URL has 2000 characters at most");
    const char *host = strstr(url, "://"); /* libcurl takes fewer slashes and more as well */
    if (!host || host[3] == '/') return fail_url(error, "a URL is https://host/path");
    CURLU *parts = fb_curl.url();
    if (!parts) return fb_fail_memory(error);
    fb_status status = FB_OK;
    CURLUcode result = fb_curl.url_set(parts, CURLUPART_URL, url, 0);
    if (result == CURLUE_OUT_OF_MEMORY) status = fb_fail_memory(error);
    else if (result == CURLUE_UNSUPPORTED_SCHEME) status = fail_url(error, "the URL must begin with https://");
    else if (result) status = fail_url(error, "a URL is https://host/path");
    else status = check_parts(webhooks, parts, error);
    fb_curl.url_cleanup(parts);
    return status;
}

/* ---- one attempt --------------------------------------------------------------------------------------------------------- */

/* Judges the address that is about to be connected to, so that no name can lead elsewhere in between. */
static curl_socket_t open_socket(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    attempt *one = context;
    const fb_webhooks_config *config = &one->webhooks->config;
    if (purpose != CURLSOCKTYPE_IPCXN || !fb_address_may_be_told(&address->addr, config->allowed, config->allowed_count)) {
        one->is_refused = true;
        return CURL_SOCKET_BAD;
    }
    one->is_tried = true;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static size_t take_body(char *bytes, size_t unit, size_t count, void *context) {
    (void)bytes;
    attempt *one = context;
    one->received += unit * count;
    return one->received > ANSWER_MAX ? 0 : unit * count;
}

static size_t take_header(char *line, size_t unit, size_t count, void *context) {
    (void)line;
    attempt *one = context;
    one->header_bytes += unit * count;
    return one->header_bytes > ANSWER_MAX ? 0 : unit * count;
}

static bool add_header(attempt *one, fb_buffer *line) {
    const char *text = fb_buffer_text(line);
    struct curl_slist *longer = text ? fb_curl.slist_append(one->headers, text) : NULL;
    if (longer) one->headers = longer;
    fb_buffer_free(line);
    return longer != NULL;
}

static bool add_headers(attempt *one, const fb_due_delivery *due, int64_t seconds) {
    fb_buffer line = {0};
    fb_buffer_printf(&line, "webhook-id: %s", due->id);
    bool ok = add_header(one, &line);
    fb_buffer_printf(&line, "webhook-timestamp: %" PRId64, seconds);
    ok = ok && add_header(one, &line);
    fb_buffer_string(&line, "webhook-signature: ");
    ok = ok && fb_hook_sign(due->secret, due->id, seconds, due->body, &line);
    if (ok && due->old_secret) {
        fb_buffer_char(&line, ' ');
        ok = fb_hook_sign(due->old_secret, due->id, seconds, due->body, &line);
    }
    ok = ok && add_header(one, &line);
    fb_buffer_string(&line, "Content-Type: application/json");
    ok = ok && add_header(one, &line);
    fb_buffer_string(&line, "Expect:"); /* libcurl's own "100-continue" would cost a round trip */
    ok = ok && add_header(one, &line);
    fb_buffer_free(&line);
    return ok;
}

static bool set_options(attempt *one, const char *url) {
    const fb_webhooks_config *config = &one->webhooks->config;
    CURL *curl = one->curl;
    long connect_ms = config->timeout_ms < CONNECT_MS ? (long)config->timeout_ms : CONNECT_MS;
    fb_curl.easy_setopt(curl, CURLOPT_PRIVATE, one);
    fb_curl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    fb_curl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, config->allows_http ? "http,https" : "https");
    fb_curl.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    fb_curl.easy_setopt(curl, CURLOPT_PROXY, ""); /* of the environment: it would connect to any address */
    fb_curl.easy_setopt(curl, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    fb_curl.easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION);
    fb_curl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect_ms);
    fb_curl.easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)config->timeout_ms);
    fb_curl.easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_socket);
    fb_curl.easy_setopt(curl, CURLOPT_OPENSOCKETDATA, one);
    fb_curl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
    fb_curl.easy_setopt(curl, CURLOPT_WRITEDATA, one);
    fb_curl.easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
    fb_curl.easy_setopt(curl, CURLOPT_HEADERDATA, one);
    fb_curl.easy_setopt(curl, CURLOPT_POST, 1L);
    fb_curl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(one->body));
    fb_curl.easy_setopt(curl, CURLOPT_POSTFIELDS, one->body);
    return !fb_curl.easy_setopt(curl, CURLOPT_URL, url) && !fb_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, one->headers) &&
           (!config->ca_file || !fb_curl.easy_setopt(curl, CURLOPT_CAINFO, config->ca_file));
}

static void clear(attempt *one) {
    if (one->curl) fb_curl.easy_reset(one->curl);
    fb_curl.slist_free_all(one->headers);
    free(one->body);
    *one = (attempt){.webhooks = one->webhooks, .curl = one->curl};
}

/* False when memory is out: the message stays due. */
static bool begin(attempt *one, const fb_due_delivery *due) {
    if (!one->curl) one->curl = fb_curl.easy_init();
    one->body = strdup(due->body);
    one->key = due->key;
    one->webhook = due->webhook;
    one->queued = due->queued;
    one->attempts = due->attempts;
    one->begun = fb_wall_ms();
    bool ok = one->curl && one->body && add_headers(one, due, one->begun / 1000) && set_options(one, due->url) &&
              !fb_curl.multi_add_handle(one->webhooks->multi, one->curl);
    if (ok) one->state = SENDING;
    else clear(one);
    return ok;
}

/* ---- what became of it --------------------------------------------------------------------------------------------------- */

/* How long a message waits after an attempt that failed: twice as long each time, give or take a fifth; and not less than the
 * receiver asked for. */
static int64_t pause_after(const attempt *one) {
    fb_webhooks *webhooks = one->webhooks;
    int64_t pause = webhooks->config.first_pause_ms;
    for (uint32_t i = 0; i < one->attempts && pause < LONGEST_PAUSE_MS; i++) pause *= 2;
    if (pause > LONGEST_PAUSE_MS) pause = LONGEST_PAUSE_MS;
    pause = pause * (80 + rand_r(&webhooks->seed) % 41) / 100;
    curl_off_t wanted = 0; /* Retry-After, in seconds */
    fb_curl.easy_getinfo(one->curl, CURLINFO_RETRY_AFTER, &wanted);
    if (wanted > LONGEST_PAUSE_MS / 1000) wanted = LONGEST_PAUSE_MS / 1000;
    return wanted * 1000 > pause ? wanted * 1000 : pause;
}

static rest *find_rest(fb_webhooks *webhooks, int64_t webhook) {
    for (size_t i = 0; i < FB_WEBHOOKS_MAX; i++)
        if (webhooks->rests[i].failures && webhooks->rests[i].webhook == webhook) return &webhooks->rests[i];
    return NULL;
}

static void note_success(fb_webhooks *webhooks, int64_t webhook) {
    rest *found = find_rest(webhooks, webhook);
    if (found) *found = (rest){0};
}

static void note_failure(fb_webhooks *webhooks, int64_t webhook) {
    rest *found = find_rest(webhooks, webhook);
    for (size_t i = 0; i < FB_WEBHOOKS_MAX && !found; i++)
        if (!webhooks->rests[i].failures) found = &webhooks->rests[i];
    if (!found) found = &webhooks->rests[0]; /* of one that has been deleted, most likely */
    if (found->webhook != webhook) *found = (rest){.webhook = webhook};
    found->failures++;
    if (found->failures < PATIENCE) return;
    int64_t length = webhooks->config.first_pause_ms;
    for (unsigned i = PATIENCE; i < found->failures && length < LONGEST_REST_MS; i++) length *= 2;
    found->until = fb_monotonic_ms() + (length < LONGEST_REST_MS ? length : LONGEST_REST_MS);
}

static bool judge(attempt *one, CURLcode result) {
    long status = 0;
    fb_curl.easy_getinfo(one->curl, CURLINFO_RESPONSE_CODE, &status);
    one->end.status = (int)status;
    bool is_cut = result == CURLE_WRITE_ERROR && one->received > ANSWER_MAX; /* by us: it had answered */
    if (one->is_refused && !one->is_tried)
        snprintf(one->failure, sizeof one->failure, "the host's address is private, of this machine or reserved");
    else if (one->header_bytes > ANSWER_MAX)
        snprintf(one->failure, sizeof one->failure, "the answer's headers are longer than %zu KiB", ANSWER_MAX >> 10);
    else if (result && !is_cut) snprintf(one->failure, sizeof one->failure, "%s", fb_curl.easy_strerror(result));
    else if (status >= 300 && status < 400)
        snprintf(one->failure, sizeof one->failure, "it answered %ld: redirects are not followed", status);
    else if (status < 200 || status >= 300) snprintf(one->failure, sizeof one->failure, "it answered %ld", status);
    return !*one->failure;
}

static void end(attempt *one, CURLcode result) {
    fb_webhooks *webhooks = one->webhooks;
    int64_t now = fb_wall_ms();
    one->end = (fb_attempt_end){.key = one->key, .begun = one->begun, .at = now};
    bool is_delivered = judge(one, result);
    one->end.is_unwanted = !result && one->end.status == 410;
    bool is_over = one->end.is_unwanted || now - one->queued >= (int64_t)webhooks->config.lifetime_ms;
    one->end.is_delivered = is_delivered;
    one->end.is_parked = !is_delivered && is_over;
    one->end.failure = is_delivered ? NULL : one->failure;
    if (!is_delivered && !is_over) one->end.due = now + pause_after(one);
    if (is_delivered) note_success(webhooks, one->webhook);
    else note_failure(webhooks, one->webhook);
    atomic_fetch_add(is_delivered                        ? &webhooks->delivered
                     : one->is_refused && !one->is_tried ? &webhooks->refused
                                                         : &webhooks->failed,
                     1);
    if (one->end.is_parked) atomic_fetch_add(&webhooks->parked, 1);
    one->state = ENDED;
}

/* Stores the attempts that ended since the last call. False when that failed: then they stay, and are not sent again. */
static bool write_ends(fb_webhooks *webhooks) {
    fb_attempt_end ends[ATTEMPTS];
    size_t count = 0;
    for (size_t i = 0; i < ATTEMPTS; i++)
        if (webhooks->attempts[i].state == ENDED) ends[count++] = webhooks->attempts[i].end;
    if (!count) return true;
    if (fb_store_end_attempts(webhooks->store, ends, count, &(fb_error){0})) return false;
    for (size_t i = 0; i < ATTEMPTS; i++)
        if (webhooks->attempts[i].state == ENDED) clear(&webhooks->attempts[i]);
    atomic_store(&webhooks->has_news, true); /* the next of their topics may go */
    return true;
}

static void take_ended(fb_webhooks *webhooks) {
    int left;
    for (CURLMsg *message; (message = fb_curl.multi_info_read(webhooks->multi, &left));) {
        attempt *one = NULL;
        CURLcode result = message->data.result;
        if (message->msg != CURLMSG_DONE || fb_curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &one)) continue;
        fb_curl.multi_remove_handle(webhooks->multi, one->curl);
        end(one, result);
    }
}

/* ---- what is to be sent -------------------------------------------------------------------------------------------------- */

static bool is_under_way(const fb_webhooks *webhooks, int64_t key) {
    for (size_t i = 0; i < ATTEMPTS; i++)
        if (webhooks->attempts[i].state != UNUSED && webhooks->attempts[i].key == key) return true;
    return false;
}

/* A place for a message to this webhook; NULL when it has enough of them. Each has one of its own, so that receivers which hang
 * keep only what is sent to themselves; those that answer share some more. */
static attempt *find_place(fb_webhooks *webhooks, int64_t webhook, bool answers) {
    attempt *place = NULL;
    size_t of_it = 0, more = 0;
    bool has_own = false;
    for (size_t i = 0; i < ATTEMPTS; i++) {
        attempt *one = &webhooks->attempts[i];
        if (one->state == UNUSED) {
            place = one;
            continue;
        }
        more += one->is_more;
        of_it += one->webhook == webhook;
        has_own |= one->webhook == webhook && !one->is_more;
    }
    if (!place || (has_own && (!answers || of_it >= ATTEMPTS_EACH || more >= ATTEMPTS_MORE))) return NULL;
    place->is_more = has_own;
    return place;
}

static void send_due(fb_webhooks *webhooks, int64_t monotonic) {
    fb_due_deliveries due;
    int64_t now = fb_wall_ms();
    webhooks->next_look = monotonic + RETRY_MS;
    if (!fb_store_leads(webhooks->store) || fb_store_due_deliveries(webhooks->store, now, &due, &(fb_error){0})) return;
    atomic_store(&webhooks->known, due.webhooks);
    webhooks->next_look = monotonic + (due.next - now < POLL_MS ? due.next - now : POLL_MS);
    for (size_t i = 0; i < due.count; i++) {
        const fb_due_delivery *one = &due.items[i];
        const rest *pause = find_rest(webhooks, one->webhook);
        if (pause && pause->until > monotonic) {
            if (pause->until < webhooks->next_look) webhooks->next_look = pause->until;
            continue;
        }
        attempt *place = is_under_way(webhooks, one->key) ? NULL : find_place(webhooks, one->webhook, !pause);
        if (place && !begin(place, one)) webhooks->next_look = monotonic + RETRY_MS;
    }
    FB_STORE_FREE(&due);
}

static void trim(fb_webhooks *webhooks, int64_t monotonic) {
    int64_t now = fb_wall_ms();
    size_t count = 0;
    webhooks->next_trim = monotonic + TRIM_MS;
    if (!fb_store_leads(webhooks->store)) return;
    if (!fb_store_trim_deliveries(webhooks->store, now - KEEP_DELIVERED_MS, now - KEEP_PARKED_MS, &count, &(fb_error){0}) &&
        count)
        webhooks->next_trim = monotonic + RETRY_MS;
}

static bool is_sending(const fb_webhooks *webhooks) {
    for (size_t i = 0; i < ATTEMPTS; i++)
        if (webhooks->attempts[i].state == SENDING) return true;
    return false;
}

static void *work(void *argument) {
    fb_webhooks *webhooks = argument;
    int64_t stop_at = INT64_MAX;
    for (;;) {
        int64_t now = fb_monotonic_ms();
        int running;
        bool is_stopping = atomic_load(&webhooks->is_stopping);
        if (is_stopping && stop_at == INT64_MAX) stop_at = now + STOP_MS;
        if (now >= stop_at || (is_stopping && !is_sending(webhooks))) break;
        if (atomic_exchange(&webhooks->forgets_rests, false)) memset(webhooks->rests, 0, sizeof webhooks->rests);
        if (!is_stopping && now >= webhooks->next_trim) trim(webhooks, now);
        if (!is_stopping && (atomic_exchange(&webhooks->has_news, false) || now >= webhooks->next_look))
            send_due(webhooks, now);
        fb_curl.multi_perform(webhooks->multi, &running);
        take_ended(webhooks);
        if (!write_ends(webhooks) && webhooks->next_look > now + RETRY_MS) webhooks->next_look = now + RETRY_MS;
        int64_t left = (is_stopping ? stop_at : webhooks->next_look) - fb_monotonic_ms();
        if (atomic_load(&webhooks->has_news) && !is_stopping) left = 0;
        if (left > 0) fb_curl.multi_poll(webhooks->multi, NULL, 0, left > POLL_MS ? POLL_MS : (int)left, NULL);
    }
    write_ends(webhooks);
    return NULL;
}

void fb_webhooks_notify(fb_webhooks *webhooks) {
    if (!atomic_load(&webhooks->known) && !fb_store_is_shared(webhooks->store)) return; /* another replica may have made one */
    if (!atomic_exchange(&webhooks->has_news, true)) fb_curl.multi_wakeup(webhooks->multi);
}

void fb_webhooks_wake(fb_webhooks *webhooks) {
    atomic_store(&webhooks->forgets_rests, true);
    atomic_store(&webhooks->has_news, true);
    fb_curl.multi_wakeup(webhooks->multi);
}

/* ---- begin and end ------------------------------------------------------------------------------------------------------- */

static void free_webhooks(fb_webhooks *webhooks) {
    for (size_t i = 0; i < ATTEMPTS; i++) {
        attempt *one = &webhooks->attempts[i];
        if (one->state == SENDING) fb_curl.multi_remove_handle(webhooks->multi, one->curl);
        clear(one);
        fb_curl.easy_cleanup(one->curl);
    }
    fb_curl.multi_cleanup(webhooks->multi);
    free(webhooks);
}

fb_status fb_webhooks_start(const fb_webhooks_config *config, fb_store *store, fb_webhooks **out, fb_error *error) {
    fb_status status = fb_curl_load(error);
    fb_webhooks *webhooks = status ? NULL : calloc(1, sizeof *webhooks);
    if (!webhooks) return status ? status : fb_fail_memory(error);
    webhooks->config = *config;
    webhooks->store = store;
    webhooks->seed = (unsigned)time(NULL) ^ (unsigned)getpid();
    webhooks->multi = fb_curl.multi_init();
    for (size_t i = 0; i < ATTEMPTS; i++) webhooks->attempts[i].webhooks = webhooks;
    if (webhooks->multi) fb_curl.multi_setopt(webhooks->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)ATTEMPTS);
    status = webhooks->multi ? FB_OK : fb_fail_memory(error);
    int failure = status ? 0 : pthread_create(&webhooks->thread, NULL, work, webhooks);
    if (failure) status = fb_fail(error, FB_IO, "no-thread", NULL, "cannot start a thread: %s", strerror(failure));
    if (status) free_webhooks(webhooks);
    else *out = webhooks;
    return status;
}

void fb_webhooks_stop(fb_webhooks *webhooks) {
    if (!webhooks) return;
    atomic_store(&webhooks->is_stopping, true);
    fb_curl.multi_wakeup(webhooks->multi);
    pthread_join(webhooks->thread, NULL);
    free_webhooks(webhooks);
}

/* ---- figures ------------------------------------------------------------------------------------------------------------- */

void fb_webhooks_metrics(fb_webhooks *webhooks, fb_buffer *out) {
    uint64_t pending = 0, parked = 0;
    int64_t oldest = 0;
    fb_print_metric_head(out, "foldback_webhook_attempts_total", "counter",
                         "Attempts to deliver a message, by what became of them.");
    fb_buffer_printf(out, "foldback_webhook_attempts_total{outcome=\"delivered\"} %llu\n", atomic_load(&webhooks->delivered));
    fb_buffer_printf(out, "foldback_webhook_attempts_total{outcome=\"failed\"} %llu\n", atomic_load(&webhooks->failed));
    fb_buffer_printf(out, "foldback_webhook_attempts_total{outcome=\"refused\"} %llu\n", atomic_load(&webhooks->refused));
    fb_print_metric(out, "foldback_webhook_parked_total", "counter", "Messages that were given up.",
                    (double)atomic_load(&webhooks->parked));
    fb_print_metric(out, "foldback_webhook_enabled", "gauge", "Webhooks that are enabled.",
                    (double)atomic_load(&webhooks->known));
    if (fb_store_count_deliveries(webhooks->store, &pending, &parked, &oldest, &(fb_error){0})) return;
    int64_t age = oldest ? fb_wall_ms() - oldest : 0;
    fb_print_metric(out, "foldback_webhook_pending", "gauge", "Messages that wait to be delivered.", (double)pending);
    fb_print_metric(out, "foldback_webhook_parked", "gauge", "Messages that were given up and are kept.", (double)parked);
    fb_print_metric(out, "foldback_webhook_oldest_pending_seconds", "gauge",
                    "How long the oldest of those that wait has waited.", (double)(age > 0 ? age : 0) / 1000);
}
