/* Which bucket a store has its blobs in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/s3/s3.h"
#include "server/store/backup.h"
#include "server/store/state.h"
#include "server/store/store.h"

#define CLAIM_NOTE "blobs-claim" /* the id that the store puts there */

/* ---- which bucket ------------------------------------------------------------------------------------------------------- */

static void take_line(const char *line, size_t size, fb_bucket_record *out) {
    const struct {
        const char *name;
        char *to;
        size_t space;
    } members[] = {{"url ", out->url, sizeof out->url},
                   {"endpoint ", out->endpoint, sizeof out->endpoint},
                   {"region ", out->region, sizeof out->region},
                   {"id ", out->id, sizeof out->id}};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        size_t length = strlen(members[i].name);
        if (length <= size && strncmp(line, members[i].name, length) == 0)
            snprintf(members[i].to, members[i].space, "%.*s", (int)(size - length), line + length);
    }
}

static fb_status read_record(fb_store *store, fb_bucket_record *out, bool *is_there, fb_error *error) {
    char *text = NULL;
    fb_status status = fb_note_read(store, FB_BUCKET_FILE, &text, error);
    *is_there = text != NULL;
    for (const char *line = text; line && *line; line += strcspn(line, "\n"), line += *line == '\n')
        take_line(line, strcspn(line, "\n"), out);
    free(text);
    if (status || !*is_there || (*out->url && *out->id)) return status;
    return fb_fail_corrupt(error, "its file " FB_BUCKET_FILE " is damaged");
}

static fb_status write_record(fb_store *store, const fb_bucket_record *is, fb_error *error) {
    fb_buffer out = {0};
    fb_buffer_printf(&out, "url %s\nid %s\n", is->url, is->id);
    if (*is->endpoint) fb_buffer_printf(&out, "endpoint %s\n", is->endpoint);
    if (*is->region) fb_buffer_printf(&out, "region %s\n", is->region);
    const char *text = fb_buffer_text(&out);
    fb_status status = text ? fb_note_write(store, FB_BUCKET_FILE, text, error) : fb_fail_memory(error);
    fb_buffer_free(&out);
    return status;
}

/* The id under which the store wants the bucket: noted before the bucket knows it, so that a start that was killed in between
 * goes on with the same one. */
static fb_status choose_id(fb_store *store, char id[FB_ULID_LENGTH + 1], fb_error *error) {
    char *chosen = NULL;
    fb_status status = fb_note_read(store, CLAIM_NOTE, &chosen, error);
    if (!status && chosen) snprintf(id, FB_ULID_LENGTH + 1, "%s", chosen);
    else if (!status) status = fb_ulid_next(&store->ulids, store->config.now_ms(), id, error);
    if (!status && !chosen) status = fb_note_write(store, CLAIM_NOTE, id, error);
    free(chosen);
    return status;
}

static fb_status take_over(fb_store *store, fb_bucket_record *is, fb_error *error) {
    char owner[FB_ULID_LENGTH + 1];
    fb_status status = fb_store_check_no_files(store, error);
    if (!status) status = fb_bucket_owner(store->files.bucket, owner, error);
    if (!status) status = choose_id(store, is->id, error);
    if (!status) status = fb_bucket_take_over(store->files.bucket, owner, is->id, error);
    return status ? status : write_record(store, is, error);
}

/* "s3://bucket/prefix" without slashes at the end. */
static size_t url_length(const char *url) {
    size_t length = strlen(url);
    while (length > 5 && url[length - 1] == '/') length--;
    return length;
}

static bool is_same_url(const char *a, const char *b) {
    return url_length(a) == url_length(b) && strncmp(a, b, url_length(a)) == 0;
}

fb_status fb_bucket_open(fb_store *store, fb_error *error) {
    const fb_bucket_config *given = &store->config.bucket;
    fb_bucket_record is = {0};
    bool is_known = false;
    fb_status status = read_record(store, &is, &is_known, error);
    if (status || (!is_known && !given->url)) return status;
    const fb_bucket_record was = is;
    if (given->url && is_known && !is_same_url(given->url, was.url))
        return fb_fail(error, FB_CONFLICT, "blobs-elsewhere", NULL, "the store has its blobs in %s, not in %s", was.url,
                       given->url);
    if (given->url) fb_copy_text(is.url, sizeof is.url, given->url);
    if (given->url && given->endpoint) fb_copy_text(is.endpoint, sizeof is.endpoint, given->endpoint);
    if (given->url && given->region) fb_copy_text(is.region, sizeof is.region, given->region);
    status = fb_bucket_new(&is, given->public_endpoint, given->url != NULL, &store->files.bucket, error);
    if (!status && given->url) status = fb_s3_has_credentials(error); /* other verbs may need no blob */
    if (status) return status;
    if (!is_known) return take_over(store, &is, error);
    bool is_changed = strcmp(was.endpoint, is.endpoint) != 0 || strcmp(was.region, is.region) != 0;
    return is_changed ? write_record(store, &is, error) : FB_OK;
}

bool fb_store_has_bucket(const char *folder) {
    char *path = fb_path_with(folder, "/" FB_BUCKET_FILE);
    bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

fb_status fb_store_bucket_health(fb_store *store, fb_error *error) {
    return store->files.bucket ? fb_s3_probe(fb_bucket_s3(store->files.bucket), error) : FB_OK;
}
