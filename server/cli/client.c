#include "server/cli/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/service.h"

#define CONNECT_SECONDS 10L

struct fb_client {
    CURL *curl;
    char *url;          /* without a slash at its end */
    fb_service service; /* its http is NULL when the service is elsewhere */
    char failure[CURL_ERROR_SIZE];
};

/* ---- the service in this process ---------------------------------------------------------------------------------------- */

static curl_socket_t open_local(void *context, curlsocktype purpose, struct curl_sockaddr *address) {
    (void)purpose, (void)address;
    fb_client *client = context;
    int socket = fb_http_connect(client->service.http);
    return socket < 0 ? CURL_SOCKET_BAD : socket;
}

static int is_connected(void *context, curl_socket_t socket, curlsocktype purpose) {
    (void)context, (void)socket, (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

static bool use_local(fb_client *client) {
    CURL *curl = client->curl;
    return !curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_local) &&
           !curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, client) &&
           !curl_easy_setopt(curl, CURLOPT_SOCKOPTFUNCTION, is_connected) && !curl_easy_setopt(curl, CURLOPT_PROXY, "");
}

/* One person is served, who may take as long as it takes. */
static fb_service_config local_config(const char *data) {
    static const unsigned day = 86400 * 1000;
    fb_service_config config = fb_service_config_default();
    config.data = data;
    config.http.listen = NULL;
    config.http.access_log = NULL;
    config.http.compress = false;
    config.http.io_threads = 1;
    config.http.worker_threads = 2;
    config.http.body_limit = config.http.body_memory_limit = (uint64_t)4 << 30;
    config.http.header_timeout_ms = config.http.idle_timeout_ms = config.http.body_timeout_ms = day;
    return config;
}

/* ---- making one --------------------------------------------------------------------------------------------------------- */

static size_t keep_body(char *bytes, size_t unit, size_t count, void *context) {
    fb_answer *answer = context;
    fb_buffer_append(&answer->body, bytes, unit * count);
    return answer->body.failed ? 0 : unit * count;
}

static void keep_value(const char *line, size_t size, const char *name, char *out, size_t space) {
    size_t length = strlen(name);
    if (size < length || strncasecmp(line, name, length) != 0) return;
    line += length, size -= length;
    while (size && (*line == ' ' || *line == '\t')) line++, size--;
    while (size && strchr("\r\n \t", line[size - 1])) size--;
    if (size < space) snprintf(out, space, "%.*s", (int)size, line);
}

static size_t keep_header(char *line, size_t unit, size_t count, void *context) {
    fb_answer *answer = context;
    keep_value(line, unit * count, "ETag:", answer->etag, sizeof answer->etag);
    keep_value(line, unit * count, "Content-Type:", answer->media_type, sizeof answer->media_type);
    return unit * count;
}

static bool set_options(fb_client *client) {
    CURL *curl = client->curl;
    return !curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->failure) && !curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") && !curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L) &&
           !curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS) &&
           !curl_easy_setopt(curl, CURLOPT_USERAGENT, "foldback/" FB_VERSION) &&
           !curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, keep_body) &&
           !curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, keep_header);
}

static fb_client *new_client(const char *url) {
    fb_client *client = calloc(1, sizeof *client);
    if (!client || curl_global_init(CURL_GLOBAL_DEFAULT)) {
        free(client);
        return NULL;
    }
    client->curl = curl_easy_init();
    client->url = strdup(url);
    if (client->curl && client->url && set_options(client)) return client;
    fb_client_free(client);
    return NULL;
}

fb_status fb_client_new_remote(const char *url, fb_client **out, fb_error *error) {
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0)
        return fb_fail(error, FB_INVALID, "bad-address", "", "%s is no address of a service; write http://host:port", url);
    fb_client *client = new_client(url);
    if (!client) return fb_fail_memory(error);
    for (size_t length = strlen(client->url); client->url[length - 1] == '/'; length--) client->url[length - 1] = '\0';
    curl_easy_setopt(client->curl, CURLOPT_ACCEPT_ENCODING, ""); /* all that it can */
    *out = client;
    return FB_OK;
}

fb_status fb_client_new_local(const char *data, fb_client **out, fb_error *error) {
    fb_client *client = new_client("http://127.0.0.1"); /* nothing is sent there */
    if (!client) return fb_fail_memory(error);
    fb_service_config config = local_config(data);
    fb_status status = use_local(client) ? FB_OK : fb_fail_memory(error);
    if (!status) status = fb_service_start(&config, &client->service, error);
    if (status) fb_client_free(client);
    else *out = client;
    return status;
}

void fb_client_free(fb_client *client) {
    if (!client) return;
    if (client->curl) curl_easy_cleanup(client->curl);
    if (client->service.http) fb_service_stop(&client->service, 0);
    curl_global_cleanup();
    free(client->url);
    free(client);
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

static CURLcode perform(fb_client *client, const fb_call *call, const char *url, fb_answer *answer) {
    CURL *curl = client->curl;
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

static fb_status report(const fb_client *client, CURLcode code, fb_error *error) {
    const char *reason = *client->failure ? client->failure : curl_easy_strerror(code);
    if (code == CURLE_OUT_OF_MEMORY) return fb_fail_memory(error);
    if (code == CURLE_COULDNT_CONNECT || code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY)
        return fb_fail(error, FB_IO, "unreachable", "", "cannot reach %s: %s", client->url, reason);
    return fb_fail(error, FB_IO, "not-answered", "", "%s did not answer: %s", client->url, reason);
}

fb_status fb_client_call(fb_client *client, fb_call *call, fb_answer *answer, fb_error *error) {
    *answer = (fb_answer){0};
    *client->failure = '\0';
    fb_buffer url = {0};
    fb_buffer_string(&url, client->url);
    fb_buffer_append(&url, call->address.text.data, call->address.text.size);
    const char *text = call->address.text.failed || call->body.failed ? NULL : fb_buffer_text(&url);
    CURLcode code = text ? perform(client, call, text, answer) : CURLE_OUT_OF_MEMORY;
    if (!code && !fb_buffer_text(&answer->body)) code = CURLE_OUT_OF_MEMORY;
    if (answer->body.failed) code = CURLE_OUT_OF_MEMORY;
    fb_buffer_free(&url);
    fb_buffer_free(&call->address.text);
    fb_buffer_free(&call->body);
    return code ? report(client, code, error) : FB_OK;
}

void fb_answer_free(fb_answer *answer) {
    fb_buffer_free(&answer->body);
}
