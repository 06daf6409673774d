#include "server/routes/input.h"

#include <stdio.h>
#include <string.h>

#include "core/json/json.h"
#include "core/json/scan.h"
#include "server/graphs/app.h"
#include "server/store/models.h"

#define MEMBER_MAX ((size_t)4 << 20) /* bytes of a member that is not a graph */

static fb_status scan_failure(const fb_scan *scan, const char *pointer, fb_error *error) {
    if (scan->status == FB_NO_MEMORY) return fb_fail_memory(error);
    if (fb_work_status(scan->work, error)) return scan->status;
    size_t line, column;
    fb_scan_position(scan, scan->failed_at, &line, &column);
    fb_buffer at = {0};
    fb_buffer_string(&at, pointer);
    fb_scan_failure_pointer(scan, &at);
    const char *text = fb_buffer_text(&at);
    fb_fail(error, scan->status, scan->code, text ? text : pointer, "line %zu, column %zu: %s", line, column, scan->message);
    fb_buffer_free(&at);
    return scan->status;
}

/* ---- members ----------------------------------------------------------------------------------------------------------- */

typedef struct body_reader {
    fb_scan scan;
    const char *const *known;
    fb_request_body body;
    char name[64], pointer[80]; /* of the member in hand */
    char first_unknown[80];     /* its pointer */
    bool has_unknown;
} body_reader;

static bool is_known(const char *const *known, const char *name) {
    while (*known && strcmp(*known, name) != 0) known++;
    return *known != NULL;
}

static fb_status fail_unknown(const body_reader *reader, fb_error *error) {
    char list[200] = "";
    for (const char *const *known = reader->known; *known; known++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", *known);
    }
    return fb_fail(error, FB_INVALID, "unknown-member", reader->first_unknown, "this request takes the members %s%s", list,
                   is_known(reader->known, "graph") ? "; a graph document has a member \"format\"" : "");
}

static fb_status read_name(body_reader *reader, fb_error *error) {
    const fb_json *key = fb_scan_key(&reader->scan);
    if (!key) return scan_failure(&reader->scan, "", error);
    size_t length = key->count < sizeof reader->name ? key->count : sizeof reader->name - 1; /* no name of ours is longer */
    memcpy(reader->name, key->text, length);
    reader->name[length] = '\0';
    fb_buffer pointer = {0};
    fb_buffer_pointer_token(&pointer, key->text, key->count);
    const char *text = fb_buffer_text(&pointer);
    fb_copy_text(reader->pointer, sizeof reader->pointer, text);
    fb_buffer_free(&pointer);
    return text ? FB_OK : fb_fail_memory(error);
}

/* Steps over the next value; [*start, *end) is its text. */
static fb_status skip_value(body_reader *reader, const char **start, const char **end, fb_error *error) {
    fb_scan *scan = &reader->scan;
    if (!fb_scan_step_over(scan, start) && !fb_scan_value(scan)) return scan_failure(scan, reader->pointer, error);
    *end = scan->at;
    return fb_work_status(scan->work, error);
}

/* A known member: checked as strictly as a document is, then as a tree of jansson's. */
static fb_status keep_value(body_reader *reader, const char *start, const char *end, fb_error *error) {
    size_t size = (size_t)(end - start);
    if (size > MEMBER_MAX) {
        return fb_fail(error, FB_TOO_LARGE, "member-too-large", reader->pointer, "this member may have %zu bytes, not %zu",
                       MEMBER_MAX, size);
    }
    reader->scan.at = start;
    if (!fb_scan_value(&reader->scan)) return scan_failure(&reader->scan, reader->pointer, error);
    json_error_t failure;
    json_t *value = fb_load_json_bytes(start, size, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &failure);
    if (!value && failure.text[0]) return fb_fail(error, FB_SYNTAX, "invalid-json", reader->pointer, "%s", failure.text);
    return !value || json_object_set_new(reader->body.members, reader->name, value) ? fb_fail_memory(error) : FB_OK;
}

/* Where the text of a member goes that may be a document; NULL for others. */
static const char **document_of(fb_request_body *body, const char *name, size_t **size) {
    if (!strcmp(name, "graph")) return *size = &body->graph_size, &body->graph;
    bool is_first = !strcmp(name, "source") || !strcmp(name, "a") || !strcmp(name, "against");
    if (!is_first && strcmp(name, "result") && strcmp(name, "b")) return NULL;
    return *size = &body->pair_size[!is_first], &body->pair[!is_first];
}

static fb_status read_member(body_reader *reader, fb_error *error) {
    fb_request_body *body = &reader->body;
    fb_status status = read_name(reader, error);
    if (status) return status;
    size_t *document_size = NULL;
    const char **document = document_of(body, reader->name, &document_size);
    bool is_wanted = is_known(reader->known, reader->name);
    if (strcmp(reader->name, "format") == 0) {
        body->is_document = true;
        return FB_OK;
    }
    if (json_object_get(body->members, reader->name) || (document && *document))
        return fb_fail(error, FB_SYNTAX, "duplicate-member", reader->pointer, "the member is there twice");
    const char *start = NULL, *end = NULL;
    status = skip_value(reader, &start, &end, error);
    if (status) return status;
    if (is_wanted && document && *start == '{') {
        *document = start;
        *document_size = (size_t)(end - start);
        return FB_OK;
    }
    if (is_wanted) return keep_value(reader, start, end, error);
    if (!reader->has_unknown) memcpy(reader->first_unknown, reader->pointer, sizeof reader->first_unknown);
    reader->has_unknown = true; /* unless "format" follows, and it is a document's */
    return FB_OK;
}

static fb_status read_members(body_reader *reader, fb_error *error) {
    fb_scan *scan = &reader->scan;
    if (scan->at == scan->end) return FB_OK;
    if (!fb_scan_enter(scan, '{')) {
        if (!fb_scan_value(scan) || !fb_scan_end(scan)) return scan_failure(scan, "", error);
        return fb_fail(error, FB_INVALID, "wrong-type", "", "the body must be an object");
    }
    for (size_t index = SIZE_MAX; fb_scan_more(scan, '}', &index);) {
        fb_status status = read_member(reader, error);
        if (status) return status;
        if (reader->body.is_document) return FB_OK;
    }
    if (scan->status || !fb_scan_end(scan)) return scan_failure(scan, "", error);
    return reader->has_unknown ? fail_unknown(reader, error) : FB_OK;
}

static fb_status read_body(const fb_request *request, body_reader *reader, fb_error *error) {
    const fb_app *app = request->context;
    fb_request_body *body = &reader->body;
    size_t nesting = app->limits.max_nesting ? app->limits.max_nesting + 1 : 65; /* the document is one level down */
    if (request->body_size > FB_SCAN_MAX_BYTES)
        return fb_fail(error, FB_TOO_LARGE, "body-too-large", "", "the body is larger than 4 GiB");
    body->members = json_object();
    fb_work work = {.watch = fb_request_watch(request)};
    fb_scan_init(&reader->scan, request->body, request->body_size, nesting);
    reader->scan.work = &work;
    fb_status status = body->members ? read_members(reader, error) : fb_fail_memory(error);
    fb_scan_free(&reader->scan);
    if (status || !body->is_document) return status;
    if (!is_known(reader->known, "graph"))
        return fb_fail(error, FB_INVALID, "unexpected-graph", "", "this request takes no graph");
    json_object_clear(body->members);
    body->graph = request->body;
    body->graph_size = request->body_size;
    return FB_OK;
}

fb_status fb_request_body_read(const fb_request *request, const char *const *known, fb_request_body *out, fb_error *error) {
    body_reader reader = {.known = known};
    fb_status status = read_body(request, &reader, error);
    if (status) fb_request_body_free(&reader.body);
    else *out = reader.body;
    return status;
}

void fb_request_body_free(fb_request_body *body) {
    json_decref(body->members);
    *body = (fb_request_body){0};
}

/* ---- bodies that are small objects of texts ------------------------------------------------------------------------------ */

bool fb_refuse_member(fb_response *response, const char *code, const char *pointer, const char *detail) {
    fb_respond_problem(response, 422, code, "%s", detail);
    fb_problem_pointer(response, pointer);
    return false;
}

bool fb_body_read(const fb_request *request, fb_response *response, const char *const *known, fb_request_body *out) {
    fb_error error = {0};
    fb_status status = fb_request_body_read(request, known, out, &error);
    if (status) fb_respond_error(response, &error);
    return !status;
}

size_t fb_count_characters(const char *text) {
    size_t count = 0;
    for (; *text; text++) count += ((unsigned char)*text & 0xC0U) != 0x80U;
    return count;
}

bool fb_body_text(fb_response *response, const fb_request_body *body, const char *name, size_t max, const char **out) {
    const json_t *member = json_object_get(body->members, name);
    *out = json_string_value(member);
    if (!member || (*out && fb_count_characters(*out) <= max)) return true;
    char code[40], pointer[40], detail[80];
    snprintf(code, sizeof code, "%s-too-long", name);
    snprintf(pointer, sizeof pointer, "/%s", name);
    snprintf(detail, sizeof detail, *out ? "%s has %zu characters at most" : "%s is a string", name, max);
    return fb_refuse_member(response, *out ? code : "wrong-type", pointer, detail);
}

/* ---- names of models, versions and aliases ------------------------------------------------------------------------------- */

static void respond_bad_name(fb_response *response) {
    fb_respond_problem(response, 422, "bad-name",
                       "a name has 1 to %d characters: letters, digits, '.', '_' and '-'; not . or ..", FB_NAME_MAX);
}

bool fb_check_path_name(const fb_request *request, fb_response *response, const char *parameter) {
    if (fb_is_name(fb_request_param(request, parameter))) return true;
    respond_bad_name(response);
    fb_problem_member_take(response, "parameter", json_string(parameter));
    return false;
}

bool fb_check_body_name(fb_response *response, const char *pointer, const char *name) {
    if (!name || fb_is_name(name)) return true;
    respond_bad_name(response);
    fb_problem_pointer(response, pointer);
    return false;
}
