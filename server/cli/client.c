#include "server/cli/client.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "server/cli/transport.h"
#include "server/cli/verb.h"
#include "server/service/service.h"

struct fb_client {
    fb_remote *remote;  /* or else */
    fb_service service; /* in this process */
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

const char *fb_client_url(const fb_client *client) {
    return fb_http_url(client->service.http);
}

fb_status fb_client_new_remote(const char *url, const fb_credentials *credentials, fb_client **out, fb_error *error) {
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0 && !fb_http_is_path(url))
        return fb_fail(error, FB_INVALID, "bad-address", "",
                       "%s is not an address of a service; write http://host:port or unix:PATH", url);
    fb_client *client = calloc(1, sizeof *client);
    if (client) client->remote = fb_remote_new(url, credentials);
    if (client && client->remote) {
        *out = client;
        return FB_OK;
    }
    free(client);
    return fb_fail_memory(error);
}

void fb_client_free(fb_client *client) {
    if (!client) return;
    if (client->remote) fb_remote_free(client->remote);
    else fb_service_stop(&client->service, 0);
    free(client);
}

/* ---- calling ------------------------------------------------------------------------------------------------------------ */

static void keep_value(const char *line, size_t size, const char *name, char *out, size_t space) {
    size_t length = strlen(name);
    if (size < length || strncasecmp(line, name, length) != 0) return;
    line += length, size -= length;
    while (size && (*line == ' ' || *line == '\t')) line++, size--;
    while (size && strchr("\r\n \t", line[size - 1])) size--;
    if (size < space) snprintf(out, space, "%.*s", (int)size, line);
}

void fb_answer_header(fb_answer *answer, const char *line, size_t size) {
    keep_value(line, size, "ETag:", answer->etag, sizeof answer->etag);
    keep_value(line, size, "Content-Type:", answer->media_type, sizeof answer->media_type);
    char length[24] = "", *end;
    keep_value(line, size, "Content-Length:", length, sizeof length);
    if (!*length) return;
    answer->length = strtoull(length, &end, 10);
    answer->has_length = !*end;
}

bool fb_answer_body(const fb_call *call, fb_answer *answer, const char *bytes, size_t size) {
    if (call->receiver && answer->status / 100 == 2) {
        fb_progress_add(call->progress, size);
        return call->receiver->take(call->receiver->context, answer, bytes, size);
    }
    fb_buffer_append(&answer->body, bytes, size);
    return !answer->body.failed;
}

fb_status fb_client_call(fb_client *client, fb_call *call, fb_answer *answer, fb_error *error) {
    *answer = (fb_answer){0};
    const char *target = call->body.failed ? NULL : fb_buffer_text(&call->address.text);
    fb_status status;
    if (!target) status = fb_fail_memory(error);
    else if (client->remote) status = fb_remote_call(client->remote, call, target, answer, error);
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

fb_status fb_client_send_blob(fb_client *client, const fb_sent_file *file, const char *digest, fb_progress *progress,
                              bool *is_sent, fb_error *error) {
    *is_sent = !client->remote;
    if (client->remote) return FB_OK;
    fb_status status = fb_store_take_blob(&client->service.app, file, digest, progress, error);
    fb_progress_end(progress);
    return status;
}

bool fb_client_can_copy(const fb_client *client, const char *target) {
    char graph[FB_ID_LENGTH + 1];
    return !client->remote && fb_is_weights_target(target, graph);
}

fb_status fb_client_copy(fb_client *client, const char *target, uint64_t size, uint64_t from, uint64_t to, int file,
                         fb_progress *progress, fb_error *error) {
    char graph[FB_ID_LENGTH + 1];
    assert(fb_client_can_copy(client, target));
    fb_is_weights_target(target, graph);
    fb_status status = fb_store_copy_weights(&client->service.app, graph, size, from, to, file, progress, error);
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
