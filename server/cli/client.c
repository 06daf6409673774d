#include "server/cli/client.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/weights/weights_file.h"
#include "server/cli/verb.h"
#include "server/graphs/graphs.h"
#include "server/http/http.h"
#include "server/libraries/curl.h"
#include "server/service/service.h"

/* ---- to a service somewhere ---------------------------------------------------------------------------------------------- */

/* HTTP with libcurl. (It cannot be given a connected socket: CURL_SOCKOPT_ALREADY_CONNECTED fails in 7.88, Debian 12's.) */

#define CONNECT_SECONDS 10L
#define BUFFER (1L << 18)

typedef struct remote_service {
    CURL *curl;
    char *url;           /* without a slash at its end */
    char *authorization; /* a header, or NULL */
    bool has_ca_file;
    char failure[CURL_ERROR_SIZE];
} remote_service;

/* A call under way. */
typedef struct transfer {
    CURL *curl;
    const fb_call *call;
    fb_answer *answer;
    uint64_t sent; /* of the file */
    bool is_refused, is_begun;
} transfer;

static size_t keep_body(char *bytes, size_t unit, size_t count, void *context) {
    transfer *t = context;
    long status = 0;
    fb_curl.easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    t->answer->status = (int)status;
    t->is_begun = true;
    t->is_refused = !fb_answer_body(t->call, t->answer, bytes, unit * count);
    return t->is_refused ? 0 : unit * count;
}

static size_t read_file(char *to, size_t unit, size_t count, void *context) {
    transfer *t = context;
    const fb_sent_file *file = t->call->file;
    uint64_t left = file->size - t->sent;
    size_t wanted = unit * count < left ? unit * count : (size_t)left;
    ssize_t got = pread(file->file, to, wanted, (off_t)t->sent);
    if (got < 0) return CURL_READFUNC_ABORT;
    fb_progress_add(t->call->progress, (uint64_t)got);
    t->sent += (uint64_t)got;
    return (size_t)got;
}

/* libcurl begins anew when a connection that it had kept turns out to be closed. */
static int seek_file(void *context, curl_off_t offset, int origin) {
    transfer *t = context;
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    t->sent = (uint64_t)offset;
    if (t->call->progress) t->call->progress->done = t->sent;
    return CURL_SEEKFUNC_OK;
}

static size_t keep_header(char *line, size_t unit, size_t count, void *answer) {
    fb_answer_header(answer, line, unit * count);
    return unit * count;
}

static bool set_options(remote_service *remote) {
    CURL *curl = remote->curl;
    return !fb_curl.easy_setopt(curl, CURLOPT_ERRORBUFFER, remote->failure) &&
           !fb_curl.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !fb_curl.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") &&
           !fb_curl.easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) &&
           !fb_curl.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS) &&
           !fb_curl.easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L) &&
           !fb_curl.easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION) &&
           !fb_curl.easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_body) &&
           !fb_curl.easy_setopt(curl, CURLOPT_READFUNCTION, read_file) &&
           !fb_curl.easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_file) &&
           !fb_curl.easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER) &&
           !fb_curl.easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER) &&
           !fb_curl.easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep_header);
}

/* Answers are never followed elsewhere, so the token goes to this service alone. */
static bool set_credentials(remote_service *remote, const fb_credentials *credentials) {
    fb_buffer header = {0};
    remote->has_ca_file = credentials->ca_file != NULL;
    if (remote->has_ca_file && fb_curl.easy_setopt(remote->curl, CURLOPT_CAINFO, credentials->ca_file)) return false;
    if (fb_curl.easy_setopt(remote->curl, CURLOPT_TIMEOUT_MS, (long)credentials->patience_ms)) return false;
    if (!credentials->token) return true;
    fb_buffer_printf(&header, "Authorization: Bearer %s", credentials->token);
    remote->authorization = fb_buffer_take(&header, NULL);
    return remote->authorization != NULL;
}

static void remote_free(remote_service *remote) {
    if (!remote) return;
    if (remote->curl) fb_curl.easy_cleanup(remote->curl);
    free(remote->url);
    free(remote->authorization);
    free(remote);
}

static remote_service *remote_new(const char *url, const fb_credentials *credentials) {
    remote_service *remote = calloc(1, sizeof *remote);
    if (!remote) return NULL;
    remote->curl = fb_curl.easy_init();
    remote->url = strdup(url);
    if (!remote->curl || !remote->url || !set_options(remote) || !set_credentials(remote, credentials) ||
        (fb_http_is_path(url) && fb_curl.easy_setopt(remote->curl, CURLOPT_UNIX_SOCKET_PATH, strchr(url, ':') + 1))) {
        remote_free(remote);
        return NULL;
    }
    for (size_t length = strlen(url); remote->url[length - 1] == '/'; length--) remote->url[length - 1] = '\0';
    return remote;
}

/* ---- calling ------------------------------------------------------------------------------------------------------------ */

static bool add_header(struct curl_slist **headers, const char *line) {
    if (!line) return true;
    struct curl_slist *longer = fb_curl.slist_append(*headers, line);
    if (longer) *headers = longer;
    return longer != NULL;
}

static CURLcode set_body(CURL *curl, const fb_call *call) {
    bool has_body = call->body.size > 0;
    CURLcode code = fb_curl.easy_setopt(curl, CURLOPT_HTTPGET, 1L); /* after any earlier call */
    if (!code && strcmp(call->method, "HEAD") == 0) {
        code = fb_curl.easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (!code && call->file) {
        code = fb_curl.easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->file->size);
    } else if (!code && (has_body || strcmp(call->method, "POST") == 0)) {
        code = fb_curl.easy_setopt(curl, CURLOPT_POST, 1L);
        if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_POSTFIELDS, has_body ? call->body.data : "");
        if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size);
    }
    return code ? code : fb_curl.easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
}

/* A header, in `out`; NULL: none. */
static const char *type_of(const fb_call *call, char out[100]) {
    const char *type = call->file ? "application/octet-stream" : call->type ? call->type : "application/json";
    snprintf(out, 100, "Content-Type: %s", type);
    return call->file || call->body.size ? out : NULL;
}

static CURLcode perform(remote_service *remote, transfer *t, const char *url) {
    CURL *curl = remote->curl;
    struct curl_slist *headers = NULL;
    char type[100];
    bool ok = add_header(&headers, remote->authorization) && add_header(&headers, t->call->header) &&
              add_header(&headers, type_of(t->call, type)) &&
              add_header(&headers, t->call->receiver ? "Prefer: no-redirect" : NULL);
    CURLcode code = ok ? set_body(curl, t->call) : CURLE_OUT_OF_MEMORY;
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_URL, url);
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, t->call->receiver ? NULL : ""); /* "": all it can */
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_WRITEDATA, t);
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_READDATA, t);
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_SEEKDATA, t);
    if (!code) code = fb_curl.easy_setopt(curl, CURLOPT_HEADERDATA, t->answer);
    if (!code) code = fb_curl.easy_perform(curl);
    long status = 0;
    fb_curl.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    t->answer->status = (int)status;
    fb_curl.easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    fb_curl.slist_free_all(headers);
    return code;
}

static fb_status report(const remote_service *remote, const transfer *t, CURLcode code, fb_error *error) {
    const char *reason = *remote->failure ? remote->failure : fb_curl.easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY || t->answer->body.failed) return fb_fail_memory(error);
    if (t->is_refused) return fb_fail(error, FB_IO, "not-taken", "", "the answer could not be taken");
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY)
        return fb_fail(error, FB_IO, "unreachable", "", "cannot reach %s: %s", remote->url, reason);
    if (t->is_begun) return fb_fail(error, FB_IO, "cut-off", "", "%s ended its answer early: %s", remote->url, reason);
    const char *help =
        code == CURLE_PEER_FAILED_VERIFICATION && !remote->has_ca_file ? "; --ca-file FILE names certificates to trust" : "";
    return fb_fail(error, FB_IO, "not-answered", "", "%s did not answer: %s%s", remote->url, reason, help);
}

static fb_status remote_call(remote_service *remote, const fb_call *call, const char *target, fb_answer *answer,
                             fb_error *error) {
    fb_buffer url = {0};
    transfer t = {.curl = remote->curl, .call = call, .answer = answer};
    *remote->failure = '\0';
    fb_buffer_string(&url, fb_http_is_path(remote->url) ? "http://localhost" : remote->url);
    fb_buffer_string(&url, target);
    const char *text = fb_buffer_text(&url);
    CURLcode code = text ? perform(remote, &t, text) : CURLE_OUT_OF_MEMORY;
    fb_buffer_free(&url);
    return code ? report(remote, &t, code, error) : FB_OK;
}

/* ---- to the store in this process ---------------------------------------------------------------------------------------- */

/* A graph's weights, straight from the store in this process into a file. A tensor that a layout only moves is written from the
 * store's files: the kernel copies it once, and no byte of it passes through a connection. */

#define PART ((size_t)8 << 20)  /* written at once from the file */
#define PIECE ((size_t)1 << 20) /* made at once */
#define WORTH ((size_t)1 << 16) /* shorter runs are gathered first */

static bool is_weights_target(const char *target, char graph[FB_ID_LENGTH + 1]) {
    static const char before[] = "/v1/graphs/", after[] = "/weights";
    if (strncmp(target, before, sizeof before - 1) != 0) return false;
    target += sizeof before - 1;
    if (strlen(target) != FB_ID_LENGTH + sizeof after - 1 || strcmp(target + FB_ID_LENGTH, after) != 0) return false;
    fb_copy_text(graph, FB_ID_LENGTH + 1, target);
    return fb_is_sha256_id(graph);
}

static fb_status write_all(int file, const unsigned char *bytes, size_t size, fb_error *error) {
    while (size) {
        ssize_t written = write(file, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fb_fail(error, FB_IO, "file-failed", NULL, "%s", strerror(errno));
        bytes += written, size -= (size_t)written;
    }
    return FB_OK;
}

static fb_status copy(fb_weights_file *weights, uint64_t from, uint64_t to, int file, fb_progress *progress, fb_error *error) {
    unsigned char *piece = malloc(PIECE);
    fb_status status = piece ? FB_OK : fb_fail_memory(error);
    for (size_t count; from < to && !status; from += count) {
        const unsigned char *bytes = NULL;
        status = fb_weights_file_lie(weights, from, to - from < PART ? (size_t)(to - from) : PART, &bytes, &count, error);
        if (!status && count < WORTH) {
            bytes = piece;
            count = to - from < PIECE ? (size_t)(to - from) : PIECE;
            status = fb_weights_file_read(weights, from, piece, count, error);
        }
        if (!status) status = write_all(file, bytes, count, error);
        if (!status) fb_progress_add(progress, count);
    }
    free(piece);
    return status;
}

static fb_status store_copy_weights(const fb_app *app, const char *graph, uint64_t size, uint64_t from, uint64_t to, int file,
                                    fb_progress *progress, fb_error *error) {
    fb_shared_graph *shared = NULL;
    fb_blobs blobs = fb_blob_source(app->store);
    fb_weights_file *weights = NULL;
    json_t *missing = NULL;
    fb_status status = fb_load_graph(app, NULL, graph, &shared, error);
    if (status) return status;
    status = fb_weights_file_new(shared->graph, NULL, &blobs, &weights, &missing, error);
    if (!status && fb_weights_file_size(weights) != size)
        status = fb_fail(error, FB_CONFLICT, "changed", NULL, "the weights of %s are of another size than before", graph);
    if (!status) status = copy(weights, from, to, file, progress, error);
    fb_weights_file_free(weights);
    json_decref(missing);
    fb_share_release(shared);
    return status;
}

static void add_progress(void *progress, uint64_t bytes) {
    fb_progress_add(progress, bytes);
}

static fb_status store_take_blob(const fb_app *app, const fb_sent_file *from, char digest[FB_ID_LENGTH + 1],
                                 fb_progress *progress, fb_error *error) {
    fb_upload *upload = NULL;
    fb_store_actor by = {.who = FB_LOCAL};
    bool is_new;
    fb_status status = fb_upload_new(app->store, false, &upload, error);
    if (!status) status = fb_upload_copy(upload, from->file, from->size, add_progress, progress, error);
    if (!status) status = fb_upload_finish(upload, *digest ? digest : NULL, &by, digest, &is_new, error);
    fb_upload_close(upload, status != FB_OK);
    return status;
}

/* ---- either -------------------------------------------------------------------------------------------------------------- */

struct fb_client {
    remote_service *remote; /* or else */
    fb_service service;     /* in this process */
};

/* One person is served, who may take as long as it takes. */
static fb_service_config local_config(const char *data) {
    static const unsigned day = 86400 * 1000;
    fb_service_config config = fb_service_config_default();
    config.data = data;
    config.database = fb_variable("FOLDBACK_STORE");
    config.http.listen = NULL;
    config.http.access_log = NULL;
    config.http.compress = false;
    config.http.io_threads = 1;
    config.http.worker_threads = 2;
    config.http.body_limit = config.http.body_memory_limit = (uint64_t)4 << 30;
    config.http.body_ratio = 0; /* the user's own files */
    config.http.header_timeout_ms = config.http.idle_timeout_ms = config.http.body_timeout_ms = day;
    config.http.request_timeout_ms = day;
    return config;
}

fb_status fb_client_new_local(const char *data, fb_client **out, fb_error *error) {
    fb_client *client = calloc(1, sizeof *client);
    if (!client) return fb_fail_memory(error);
    fb_service_config config = local_config(data);
    fb_status status = fb_service_start(&config, &client->service, error);
    if (status) free(client);
    else *out = client;
    return status;
}

fb_status fb_client_new_listening(const char *data, const char *token, fb_client **out, fb_error *error) {
    fb_client *client = calloc(1, sizeof *client);
    if (!client) return fb_fail_memory(error);
    fb_service_config config = fb_service_config_default();
    config.data = data;
    config.only_token = token;
    config.http.listen = "127.0.0.1:0";
    config.http.access_log = NULL;
    config.http.worker_threads = 8; /* a page asks for several things at once */
    fb_status status = fb_service_start(&config, &client->service, error);
    if (status) free(client);
    else *out = client;
    return status;
}

void fb_client_hand(fb_client *client, fb_handed_graph *handed) {
    client->service.app.handed = handed;
}

const char *fb_client_url(const fb_client *client) {
    return fb_http_url(client->service.http);
}

fb_status fb_client_new_remote(const char *url, const fb_credentials *credentials, fb_client **out, fb_error *error) {
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0 && !fb_http_is_path(url))
        return fb_fail(error, FB_INVALID, "bad-address", "",
                       "%s is not an address of a service; write http://host:port or unix:PATH", url);
    fb_status status = fb_curl_load(error);
    if (status) return status;
    fb_client *client = calloc(1, sizeof *client);
    if (client) client->remote = remote_new(url, credentials);
    if (client && client->remote) {
        *out = client;
        return FB_OK;
    }
    free(client);
    return fb_fail_memory(error);
}

void fb_client_free(fb_client *client) {
    if (!client) return;
    if (client->remote) remote_free(client->remote);
    else fb_service_stop(&client->service, 0);
    free(client);
}

/* ---- calling ------------------------------------------------------------------------------------------------------------ */

fb_status fb_client_call(fb_client *client, fb_call *call, fb_answer *answer, fb_error *error) {
    *answer = (fb_answer){0};
    const char *target = call->body.failed ? NULL : fb_buffer_text(&call->address.text);
    fb_status status;
    if (!target) status = fb_fail_memory(error);
    else if (client->remote) status = remote_call(client->remote, call, target, answer, error);
    else status = fb_local_call(client->service.http, call, target, answer, error);
    if (!status && !fb_buffer_text(&answer->body)) status = fb_fail_memory(error);
    if (call->progress) fb_progress_end(call->progress);
    fb_call_free(call);
    return status;
}

void fb_call_free(fb_call *call) {
    fb_buffer_free(&call->address.text);
    fb_buffer_free(&call->body);
}

void fb_answer_free(fb_answer *answer) {
    fb_buffer_free(&answer->body);
}

fb_status fb_client_send_blob(fb_client *client, const fb_sent_file *file, char digest[FB_ID_LENGTH + 1], fb_progress *progress,
                              bool *is_sent, fb_error *error) {
    *is_sent = !client->remote;
    if (client->remote) return FB_OK;
    fb_status status = store_take_blob(&client->service.app, file, digest, progress, error);
    fb_progress_end(progress);
    return status;
}

bool fb_client_is_new_size(fb_client *client, uint64_t size) {
    bool has = true;
    return !client->remote && !fb_blobs_have_size(client->service.app.store, size, &has, NULL) && !has;
}

bool fb_client_is_local(const fb_client *client) {
    return !client->remote;
}

bool fb_client_can_copy(const fb_client *client, const char *target) {
    char graph[FB_ID_LENGTH + 1];
    return !client->remote && is_weights_target(target, graph);
}

fb_status fb_client_copy(fb_client *client, const char *target, uint64_t size, uint64_t from, uint64_t to, int file,
                         fb_progress *progress, fb_error *error) {
    char graph[FB_ID_LENGTH + 1];
    assert(fb_client_can_copy(client, target));
    is_weights_target(target, graph);
    fb_status status = store_copy_weights(&client->service.app, graph, size, from, to, file, progress, error);
    fb_progress_end(progress);
    return status;
}

/* ---- addresses ----------------------------------------------------------------------------------------------------------- */

static void append_encoded(fb_buffer *out, const char *text) {
    for (; *text; text++) {
        bool is_plain = isalnum((unsigned char)*text) || strchr("-._~:@", *text); /* RFC 3986, 3.3; not in a query: & = + # */
        if (is_plain) fb_buffer_char(out, *text);
        else fb_buffer_printf(out, "%%%02X", (unsigned char)*text);
    }
}

void fb_address_path(fb_address *address, const char *path) {
    fb_buffer_string(&address->text, path);
}

void fb_address_segment(fb_address *address, const char *segment) {
    fb_buffer_char(&address->text, '/');
    append_encoded(&address->text, segment);
}

void fb_address_query(fb_address *address, const char *name, const char *value) {
    if (!value) return;
    fb_buffer_char(&address->text, address->has_query ? '&' : '?');
    fb_buffer_string(&address->text, name);
    fb_buffer_char(&address->text, '=');
    append_encoded(&address->text, value);
    address->has_query = true;
}
