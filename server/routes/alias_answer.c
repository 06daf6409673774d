#include "server/routes/alias_answer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/json/members.h"
#include "server/app.h"

/* With its quotes, as If-Match takes it. */
static void print_tag(const fb_store_alias_entry *entry, char tag[24]) {
    snprintf(tag, 24, "\"%" PRId64 "\"", entry->number);
}

void fb_alias_write(const fb_store_alias_entry *entry, fb_buffer *out) {
    char tag[24];
    print_tag(entry, tag);
    fb_buffer_char(out, '{');
    fb_put_text(out, "model", entry->model);
    fb_put_text(out, "alias", entry->alias);
    fb_put_text(out, "version", entry->to);
    fb_put_text(out, "graph", entry->to_graph);
    fb_put_text_or_null(out, "run", entry->run);
    fb_put_time(out, "updated", entry->at);
    if (entry->who) fb_put_text(out, "who", entry->who);
    if (entry->why) fb_put_text(out, "why", entry->why);
    fb_put_text(out, "etag", tag);
    fb_buffer_char(out, '}');
}

void fb_respond_alias(fb_response *response, int status, const fb_store_alias_entry *entry) {
    fb_buffer answer = {0};
    char tag[24];
    snprintf(tag, sizeof tag, "%" PRId64, entry->number);
    fb_alias_write(entry, &answer);
    fb_respond_json_buffer_take(response, status, &answer);
    fb_response_etag(response, tag);
    fb_response_identity(response); /* the tag of a compressed answer would be a weak one, which no If-Match matches */
}

void fb_respond_stored_alias(const fb_request *request, fb_response *response, int status, const char *number) {
    const fb_app *app = request->context;
    fb_error error = {0};
    fb_store_alias_entry entry;
    if (fb_store_get_alias_entry(app->store, strtoll(number, NULL, 10), &entry, &error)) {
        fb_respond_error(response, &error);
        return;
    }
    fb_respond_alias(response, status, &entry);
    fb_store_alias_entry_free(&entry);
}
