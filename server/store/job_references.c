/* References in the request of a job: ids of graphs, runs and blobs, found anywhere in its target and its body. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "server/database/frame.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/store/rows.h"
#include "server/store/store.h"

/* ---- finding ------------------------------------------------------------------------------------------------------------ */

/* An id is a prefix and so many of these characters, which no writer of JSON escapes; a short id has fewer. */
typedef struct id_form {
    const char *prefix, *characters;
    size_t length; /* with the prefix */
} id_form;

static const id_form forms[] = {
    {"sha256:", FB_ID_DIGITS, FB_ID_LENGTH},
    {"run_", FB_ULID_DIGITS, FB_RUN_ID_LENGTH},
};

#define BARE_MAX ((size_t)1 << 16) /* bytes of a body in which ids may lack "sha256:": a longer one holds its graph */
#define BEGINS(id) id " >= ?1 AND " id " < ?1 || '~'"
#define FIND                                                                                                                   \
    "SELECT id FROM graphs WHERE " BEGINS("id") " UNION ALL SELECT digest FROM blobs WHERE " BEGINS(                           \
        "digest") " UNION ALL SELECT id FROM runs WHERE " BEGINS("id") " LIMIT 10"

/* Looks up the ids that begin so: with all the digits it is one at most. */
static void look_up(fb_query *query, const char *prefix, const char *digits, size_t count, fb_buffer *out) {
    char id[FB_ID_LENGTH + 1] = "";
    snprintf(id, sizeof id, "%s%.*s", prefix, (int)count, digits);
    fb_bind_text(query, id);
    while (fb_query_row(query)) {
        char found[FB_ID_LENGTH + 1] = "";
        snprintf(found, sizeof found, "%s", fb_column_text(query, 0));
        fb_buffer_append(out, found, sizeof found);
    }
    fb_query_again(query);
}

static size_t count_digits(const id_form *form, const char *text, const char *end) {
    size_t most = form->length - strlen(form->prefix), count = 0;
    while (count < most && text + count < end && text[count] && strchr(form->characters, text[count])) count++;
    return count;
}

static void find_form(fb_query *query, const id_form *form, const char *text, size_t size, fb_buffer *out) {
    const char *end = text + size;
    size_t prefix = strlen(form->prefix);
    for (const char *at = text; (at = memmem(at, (size_t)(end - at), form->prefix, prefix));) {
        size_t count = count_digits(form, at + prefix, end);
        if (count >= FB_SHORT_LEAST) look_up(query, form->prefix, at + prefix, count, out);
        at += prefix + count;
    }
}

/* Digits alone, as a whole string or segment of a path. */
static void find_bare(fb_query *query, const char *text, size_t size, fb_buffer *out) {
    const id_form *form = &forms[0];
    for (const char *at = text, *end = text + size; at < end; at++) {
        if (*at != '"' && *at != '/' && *at != '=') continue;
        size_t count = count_digits(form, at + 1, end);
        if (count >= FB_SHORT_LEAST) look_up(query, form->prefix, at + 1, count, out);
        at += count;
    }
}

static void find_ids(fb_query *query, const char *text, size_t size, fb_buffer *out) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) find_form(query, &forms[i], text, size, out);
    if (size <= BARE_MAX) find_bare(query, text, size, out);
}

/* The target as it was meant: an id's colon may be %3A. */
static char *unescape(const char *target) {
    char *text = strdup(target), *to = text;
    for (const char *from = text; text && *from; to++) {
        char hex[3] = {from[0] == '%' ? from[1] : '\0', from[0] == '%' && from[1] ? from[2] : '\0', '\0'};
        bool is_escape = strspn(hex, "0123456789abcdefABCDEF") == 2;
        *to = is_escape ? (char)strtol(hex, NULL, 16) : *from;
        from += is_escape ? 3 : 1;
    }
    if (text) *to = '\0';
    return text;
}

static int compare_ids(const void *a, const void *b) {
    return strcmp(a, b);
}

static void keep_each_once(fb_buffer *ids) {
    const size_t item = FB_ID_LENGTH + 1;
    size_t kept = 0;
    fb_sort(ids->data, ids->size / item, item, compare_ids);
    for (size_t at = 0; at < ids->size; at += item) {
        if (kept && !strcmp(ids->data + kept - item, ids->data + at)) continue;
        memmove(ids->data + kept, ids->data + at, item);
        kept += item;
    }
    ids->size = kept;
}

fb_status fb_find_references(fb_connection *connection, const char *target, const char *body, size_t size, fb_buffer *out,
                             fb_error *error) {
    char *text = unescape(target);
    if (!text) return fb_fail_memory(error);
    fb_query query = fb_query_begin(connection, FIND, error);
    find_ids(&query, text, strlen(text), out);
    if (size) find_ids(&query, body, size, out);
    fb_status status = fb_query_end(&query);
    free(text);
    keep_each_once(out);
    return !status && out->failed ? fb_fail_memory(error) : status;
}

/* ---- noting ------------------------------------------------------------------------------------------------------------- */

fb_status fb_write_references(fb_connection *connection, int64_t job, const fb_buffer *found, fb_error *error) {
    fb_query insert = fb_query_begin(
        connection, "INSERT INTO job_references (job, id) SELECT CAST(?1 AS BIGINT), CAST(?2 AS TEXT)" FB_UNLESS_COLLECTED,
        error);
    for (size_t at = 0; at < found->size && !insert.status; at += FB_ID_LENGTH + 1)
        fb_claim_named(&insert, job, found->data + at);
    return fb_query_end(&insert);
}

fb_status fb_release_references(fb_connection *connection, const char *job, int64_t now, fb_error *error) {
    fb_query used = fb_query_begin(connection,
                                   "UPDATE blobs SET used = CASE WHEN used < ?2 THEN ?2 ELSE used END WHERE digest IN "
                                   "(SELECT id FROM job_references WHERE job = (SELECT key FROM jobs WHERE id = ?1))",
                                   error);
    fb_bind_text(&used, job);
    fb_bind_int(&used, now);
    fb_status status = fb_query_run(&used);
    if (status) return status;
    fb_query query =
        fb_query_begin(connection, "DELETE FROM job_references WHERE job = (SELECT key FROM jobs WHERE id = ?)", error);
    fb_bind_text(&query, job);
    return fb_query_run(&query);
}

/* ---- jobs of earlier versions ------------------------------------------------------------------------------------------- */

/* Finds the references in the request of that row; a damaged one names nothing that could be asked for. */
static fb_status read_request(fb_query *query, fb_buffer *found) {
    size_t frame_size = 0, size = (size_t)fb_column_int(query, 2);
    const void *frame = fb_column_bytes(query, 3, &frame_size);
    char *body = NULL;
    fb_status status = query->status;
    if (!status && frame) status = fb_frame_unpack(frame, frame_size, size, &body, NULL);
    if (status == FB_NO_MEMORY) fb_fail_memory(query->error);
    if (status == FB_IO) status = FB_OK;
    if (!status)
        status = fb_find_references(query->connection, fb_column_text(query, 1), body, body ? size : 0, found, query->error);
    free(body);
    return status;
}

static fb_status read_unread_job(fb_connection *connection, int64_t *key, fb_error *error) {
    fb_buffer found = {0};
    *key = 0;
    fb_query query = fb_query_begin(
        connection, "SELECT j.key, j.target, j.body_size, j.body FROM unread_jobs u JOIN jobs j ON j.key = u.job LIMIT 1",
        error);
    if (fb_query_row(&query)) {
        *key = fb_column_int(&query, 0);
        query.status = read_request(&query, &found);
    }
    fb_status status = fb_query_end(&query);
    if (!status) status = fb_write_references(connection, *key, &found, error);
    fb_buffer_free(&found);
    if (status || !*key) return status;
    fb_query done = fb_query_begin(connection, "DELETE FROM unread_jobs WHERE job = ?", error);
    fb_bind_int(&done, *key);
    return fb_query_run(&done);
}

/* Each in one transaction, so that this goes on where it was interrupted. */
fb_status fb_read_unread_jobs(fb_connection *connection, fb_error *error) {
    fb_status status = FB_OK;
    for (int64_t key = 1; !status && key;) {
        status = fb_begin(connection, true, error);
        if (!status) status = read_unread_job(connection, &key, error);
        if (!status) status = fb_commit(connection, error);
        if (status) fb_roll_back(connection);
    }
    return status;
}
