/* HTTP with libcurl. (It cannot be given a connected socket: CURL_SOCKOPT_ALREADY_CONNECTED fails in 7.88, Debian 12's.) */
#include "server/cli/transport.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_SECONDS 10L

struct fb_remote {
    CURL *curl;
    char *url; /* without a slash at its end */
    char failure[CURL_ERROR_SIZE];
};

static size_t keep_body(char *bytes, size_t unit, size_t count, void *context) {
    fb_answer *answer = context;
    fb_buffer_append(&answer->body, bytes, unit * count);
    return answer->body.failed ? 0 : unit * count;
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
           !curl_easy_setopt(curl, CURLOPT_ACCEPT_ENCODING, "") && /* all that it can */
           !curl_easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION) &&
           !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_body) &&
           !curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep_header);
}

fb_remote *fb_remote_new(const char *url) {
    fb_remote *remote = calloc(1, sizeof *remote);
    if (!remote || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(remote);
        return NULL;
    }
    remote->curl = curl_easy_init();
    remote->url = strdup(url);
    if (!remote->curl || !remote->url || !set_options(remote)) {
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
    if (!code && (has_body || strcmp(call->method, "POST") == 0)) {
        code = curl_easy_setopt(curl, CURLOPT_POST, 1L);
        if (!code) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDS, has_body ? call->body.data : "");
        if (!code) code = curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)call->body.size);
    }
    return code ? code : curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, call->method);
}

static CURLcode perform(fb_remote *remote, const fb_call *call, const char *url, fb_answer *answer) {
    CURL *curl = remote->curl;
    struct curl_slist *headers = NULL;
    bool ok =
        add_header(&headers, call->header) && add_header(&headers, call->body.size ? "Content-Type: application/json" : NULL);
    CURLcode code = ok ? set_body(curl, call) : CURLE_OUT_OF_MEMORY;
    if (!code) code = curl_easy_setopt(curl, CURLOPT_URL, url);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_WRITEDATA, answer);
    if (!code) code = curl_easy_setopt(curl, CURLOPT_HEADERDATA, answer);
    if (!code) code = curl_easy_perform(curl);
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    answer->status = (int)status;
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    return code;
}

static fb_status report(const fb_remote *remote, CURLcode code, fb_error *error) {
    const char *reason = *remote->failure ? remote->failure : curl_easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY) return fb_fail_memory(error);
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY)
        return fb_fail(error, FB_IO, "unreachable", "", "cannot reach %s: %s", remote->url, reason);
    return fb_fail(error, FB_IO, "not-answered", "", "%s did not answer: %s", remote->url, reason);
}

fb_status fb_remote_call(fb_remote *remote, const fb_call *call, const char *target, fb_answer *answer, fb_error *error) {
    fb_buffer url = {0};
    *remote->failure = '\0';
    fb_buffer_string(&url, remote->url);
    fb_buffer_string(&url, target);
    const char *text = fb_buffer_text(&url);
    CURLcode code = text ? perform(remote, call, text, answer) : CURLE_OUT_OF_MEMORY;
    fb_buffer_free(&url);
    if (answer->body.failed) code = CURLE_OUT_OF_MEMORY;
    return code ? report(remote, code, error) : FB_OK;
}
