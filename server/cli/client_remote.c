/* HTTP with libcurl. (It cannot be given a connected socket: CURL_SOCKOPT_ALREADY_CONNECTED fails in 7.88, Debian 12's.) */
#include "server/cli/transport.h"
#include "server/http/http.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONNECT_SECONDS 10L
#define BUFFER (1L << 18)

struct fb_remote {
    CURL *curl;
    char *url;           /* without a slash at its end */
    char *authorization; /* a header, or NULL */
    char failure[CURL_ERROR_SIZE];
};

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
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
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

static bool set_options(fb_remote *remote) {
    CURL *curl = remote->curl;
    return !curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, remote->failure) && !curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") && !curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS) &&
           !curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION) &&
           !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_body) &&
           !curl_easy_setopt(curl, CURLOPT_READFUNCTION, read_file) &&
           !curl_easy_setopt(curl, CURLOPT_SEEKFUNCTION, seek_file) && !curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, BUFFER) &&
           !curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER) &&
           !curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep_header);
}

/* Answers are never followed elsewhere, so the token goes to this service alone. */
static bool set_credentials(fb_remote *remote, const fb_credentials *credentials) {
    fb_buffer header = {0};
    if (credentials->ca_file && curl_easy_setopt(remote->curl, CURLOPT_CAINFO, credentials->ca_file)) return false;
    if (curl_easy_setopt(remote->curl, CURLOPT_TIMEOUT_MS, (long)credentials->patience_ms)) return false;
    if (!credentials->token) return true;
    fb_buffer_printf(&header, "Authorization: Bearer %s", credentials->token);
    remote->authorization = fb_buffer_take(&header, NULL);
    return remote->authorization != NULL;
}

fb_remote *fb_remote_new(const char *url, const fb_credentials *credentials) {
    fb_remote *remote = calloc(1, sizeof *remote);
    if (!remote || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(remote);
        return NULL;
    }
    remote->curl = curl_easy_init();
    remote->url = strdup(url);
    if (!remote->curl || !remote->url || !set_options(remote) || !set_credentials(remote, credentials) ||
        (fb_http_is_path(url) && curl_easy_setopt(remote->curl, CURLOPT_UNIX_SOCKET_PATH, strchr(url, ':') + 1))) {
        fb_remote_free(remote);
        return NULL;
    }
    for (size_t length = strlen(url); remote->url[length - 1] == '/'; length--) remote->url[length - 1] = '\0';
    return remote;
}

void fb_remote_free(fb_remote *remote) {
    if (!remote) return;
    if (remote->curl) curl_easy_cleanup(remote->curl);
    curl_global_cleanup();
    free(remote->url);
    free(remote->authorization);
    free(remote);
}

/* ---- calling ------------------------------------------------------------------------------------------------------------ */

static bool add_header(struct curl_slist **headers, const char *line) {
    if (!line) return true;
    struct curl_slist *longer = curl_slist_append(*headers, line);
    if (longer) *headers = longer;
    return longer != NULL;
}

static CURLcode set_body(CURL *curl, const fb_call *call) {
    bool has_body = call->body.size > 0;
    CURLcode code = curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L); /* whatever the call before was */
    if (!code && strcmp(call->method, "HEAD") == 0) {
        code = curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (!code && call->file) {
        code = curl_easy_setopt(curl, CURLOPT_UPLOAD, 1L);
        if (!code) code = curl_easy_setopt(curl, CURLOPT_INFILESIZE_LARGE, (curl_off_t)call->file->size);
    } else if (!code && (has_body || strcmp(call->method, "POST") == 0)) {
        code = curl_easy_setopt(curl, CURLOPT_POST, 1L);
        if (!code) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDS, has_body ? call->body.data : "");
        if (!code) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size);
    }
    return code ? code : curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
}

static const char *type_of(const fb_call *call) {
    if (call->file) return "Content-Type: application/octet-stream";
    return call->body.size ? "Content-Type: application/json" : NULL;
}

static CURLcode perform(fb_remote *remote, transfer *t, const char *url) {
    CURL *curl = remote->curl;
    struct curl_slist *headers = NULL;
    bool ok = add_header(&headers, remote->authorization) && add_header(&headers, t->call->header) &&
              add_header(&headers, type_of(t->call)) && add_header(&headers, t->call->receiver ? "Prefer: no-redirect" : NULL);
    CURLcode code = ok ? set_body(curl, t->call) : CURLE_OUT_OF_MEMORY;
    if (!code) code = curl_easy_setopt(curl, CURLOPT_URL, url);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, t->call->receiver ? NULL : ""); /* "": all it can */
    if (!code) code = curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_READDATA, t);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_SEEKDATA, t);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_HEADERDATA, t->answer);
    if (!code) code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    t->answer->status = (int)status;
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return code;
}

static fb_status report(const fb_remote *remote, const transfer *t, CURLcode code, fb_error *error) {
    const char *reason = *remote->failure ? remote->failure : curl_easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY || t->answer->body.failed) return fb_fail_memory(error);
    if (t->is_refused) return fb_fail(error, FB_IO, "not-taken", "", "the answer could not be taken");
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY)
        return fb_fail(error, FB_IO, "unreachable", "", "cannot reach %s: %s", remote->url, reason);
    if (t->is_begun) return fb_fail(error, FB_IO, "cut-off", "", "%s ended its answer early: %s", remote->url, reason);
    return fb_fail(error, FB_IO, "not-answered", "", "%s did not answer: %s", remote->url, reason);
}

fb_status fb_remote_call(fb_remote *remote, const fb_call *call, const char *target, fb_answer *answer, fb_error *error) {
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
