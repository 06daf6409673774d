#include "server/cli/cli.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "core/json/json.h"
#include "server/database/ulid.h"
#include "server/store/store.h"

#define ERRORS_SHOWN 10000

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static const char name_characters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";

static bool is_id(const char *text, const char *prefix, size_t length) {
    return strncmp(text, prefix, strlen(prefix)) == 0 && strlen(text) == strlen(prefix) + length &&
           strspn(text + strlen(prefix), name_characters) == length;
}

static bool read_pair(const char *text, char separator, fb_reference *out) {
    size_t model = strspn(text, name_characters),
           part = text[model] == separator ? strspn(text + model + 1, name_characters) : 0;
    if (!model || model > FB_NAME_MAX || !part || part > FB_NAME_MAX || text[model + 1 + part]) return false;
    memcpy(out->model, text, model);
    memcpy(out->part, text + model + 1, part);
    return true;
}

/* The beginning of an id, as tables print it: `least` of its digits or more, and perhaps "…". */
static bool is_short_id(const char *text, const char *prefix, const char *digits, size_t least) {
    if (strncmp(text, prefix, strlen(prefix)) != 0) return false;
    size_t count = strspn(text + strlen(prefix), digits);
    const char *end = text + strlen(prefix) + count;
    return count >= least && (!*end || strcmp(end, "…") == 0 || strcmp(end, "...") == 0);
}

fb_reference fb_reference_read(const char *text) {
    fb_reference reference = {.text = text};
    if (is_short_id(text, "sha256:", FB_ID_DIGITS, 0))
        reference.kind = FB_REFERS_TO_GRAPH; /* never a version of a model sha256 */
    else if (is_id(text, "run_", FB_ULID_LENGTH) || is_short_id(text, "run_", FB_ULID_DIGITS, FB_SHORT_LEAST))
        reference.kind = FB_REFERS_TO_RUN;
    else if (read_pair(text, '@', &reference)) reference.kind = FB_REFERS_TO_ALIAS;
    else if (read_pair(text, ':', &reference)) reference.kind = FB_REFERS_TO_VERSION;
    else if (is_short_id(text, "", FB_ID_DIGITS, FB_SHORT_LEAST) && access(text, F_OK) != 0)
        reference.kind = FB_REFERS_TO_GRAPH;
    else if (is_short_id(text, "run_", FB_ULID_DIGITS, 0) && access(text, F_OK) != 0)
        reference.kind = FB_REFERS_TO_RUN; /* too short */
    return reference;
}

fb_reference fb_reference_read_stored(const char *text) {
    fb_reference reference = fb_reference_read(text);
    if (reference.kind == FB_REFERS_TO_FILE && read_pair(text, '/', &reference)) reference.kind = FB_REFERS_TO_VERSION;
    return reference;
}

void fb_reference_address(const fb_reference *reference, fb_address *out) {
    bool is_alias = reference->kind == FB_REFERS_TO_ALIAS;
    if (reference->kind == FB_REFERS_TO_GRAPH || reference->kind == FB_REFERS_TO_RUN) {
        fb_address_path(out, reference->kind == FB_REFERS_TO_GRAPH ? "/v1/graphs" : "/v1/runs");
        fb_address_segment(out, reference->text);
        return;
    }
    fb_address_path(out, "/v1/models");
    fb_address_segment(out, reference->model);
    fb_address_path(out, is_alias ? "/aliases" : "/versions");
    fb_address_segment(out, reference->part);
}

/* ---- documents ---------------------------------------------------------------------------------------------------------- */

/* As much as the format allows: a service may have lower limits of its own. */
fb_status fb_read_any_document(const fb_buffer *bytes, fb_graph **out, fb_errors *errors) {
    static const fb_document_limits largest = {.max_bytes = (size_t)4 << 30, .max_nodes = UINT32_MAX, .max_nesting = 1000};
    errors->limit = ERRORS_SHOWN;
    return fb_document_read(bytes->data ? bytes->data : "", bytes->size, &largest, "", out, errors);
}

void fb_errors_print(const fb_errors *errors, const char *indent, FILE *out) {
    for (size_t i = 0; i < errors->count; i++) {
        const fb_error *error = &errors->items[i];
        fprintf(out, "%s", indent);
        fb_screen_text(out, *error->pointer ? error->pointer : "(document)");
        fprintf(out, ": %s: ", error->code);
        fb_screen_text(out, error->message);
        fputc('\n', out);
    }
    if (errors->total > errors->count) fprintf(out, "%sand %zu more\n", indent, errors->total - errors->count);
}

static int read_graph(const fb_reference *reference, const fb_buffer *bytes, fb_graph **out) {
    fb_errors errors = {0};
    fb_status status = fb_read_any_document(bytes, out, &errors);
    const char *name = strcmp(reference->text, "-") == 0 ? "standard input" : reference->text;
    if (status && !errors.count) fb_cli_no_memory();
    else if (status) fb_complain(0, "%s is not a valid graph", name);
    fb_errors_print(&errors, "  ", stderr);
    fb_errors_free(&errors);
    return status ? FB_EXIT_FAILED : FB_EXIT_DONE;
}

/* ---- archives of torch.export and ONNX models ------------------------------------------------------------------------ */

static bool ends_in(const char *path, const char *ending) {
    size_t length = strlen(path), size = strlen(ending);
    return length > size && strcasecmp(path + length - size, ending) == 0;
}

bool fb_is_onnx_name(const char *path) {
    return ends_in(path, ".onnx");
}

bool fb_is_archive_name(const char *path) {
    return ends_in(path, ".pt2") || fb_is_onnx_name(path);
}

static bool is_archive(const fb_reference *reference) {
    return reference->kind == FB_REFERS_TO_FILE && fb_is_archive_name(reference->text);
}

bool fb_reference_needs_store(const fb_reference *reference) {
    return reference->kind != FB_REFERS_TO_FILE || is_archive(reference);
}

int fb_archive_put(fb_cli *cli, const char *path, const char *model, fb_answer *answer) {
    fb_blob_files files = {0};
    fb_call call = {.method = "POST"};
    if (fb_is_onnx_name(path)) return fb_onnx_put(cli, path, answer);
    int result = fb_blob_files_read(cli, &path, 1, &files);
    if (!result) result = fb_blob_files_send(cli, &files);
    if (!result) {
        fb_address_path(&call.address, "/v1/graphs");
        fb_address_query(&call.address, "archive", files.items[0].digest);
        fb_address_query(&call.address, "model", model);
        result = fb_cli_call(cli, &call, answer);
    }
    fb_blob_files_free(&files);
    return result;
}

static int put_archive(fb_cli *cli, const fb_reference *reference, char id[FB_ID_LENGTH + 1]) {
    fb_answer answer;
    int result = fb_archive_put(cli, reference->text, NULL, &answer);
    if (result) return result;
    json_t *stored = json_loadb(answer.body.data, answer.body.size, 0, NULL);
    snprintf(id, FB_ID_LENGTH + 1, "%s", fb_text_of(stored, "id"));
    json_decref(stored);
    fb_answer_free(&answer);
    return *id ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "the answer is not JSON: is this foldback?");
}

/* ---- resolving ---------------------------------------------------------------------------------------------------------- */

int fb_whole_id(fb_cli *cli, const char *folder, const char *text, char id[FB_ID_LENGTH + 1]) {
    int result = FB_EXIT_DONE;
    if (fb_is_sha256_id(text)) snprintf(id, FB_ID_LENGTH + 1, "%s", text);
    static const char *const methods[] = {"HEAD", "GET"}; /* a refusal of HEAD has no sentence */
    for (size_t i = 0; i < 2 && !fb_is_sha256_id(text); i++) {
        fb_call call = {.method = methods[i]};
        fb_answer answer;
        fb_address_path(&call.address, folder);
        fb_address_segment(&call.address, text);
        result = fb_cli_try(cli, &call, &answer);
        if (result) return result;
        const char *tag = strstr(answer.etag, "sha256:"); /* what follows the id says how the answer was compressed */
        bool is_found = answer.status == 200 && tag && strlen(tag) >= FB_ID_LENGTH;
        if (is_found) snprintf(id, FB_ID_LENGTH + 1, "%.*s", FB_ID_LENGTH, tag);
        bool is_unknown = answer.status == 404 || answer.status == 422;
        if (!is_found && !is_unknown && i) return fb_cli_refused(cli, &answer);
        fb_answer_free(&answer);
        if (is_unknown)
            return fb_complain(FB_EXIT_FAILED, "there is no %s %s", strcmp(folder, "/v1/blobs") ? "graph" : "blob", text);
        if (is_found) return FB_EXIT_DONE;
    }
    return result;
}

int fb_reference_id(fb_cli *cli, const fb_reference *reference, char id[FB_ID_LENGTH + 1]) {
    if (is_archive(reference)) return put_archive(cli, reference, id);
    if (reference->kind == FB_REFERS_TO_FILE) {
        fb_graph *graph;
        int result = fb_reference_graph(cli, reference, &graph);
        if (result) return result;
        bool is_written = fb_document_id(graph, id);
        fb_graph_free(graph);
        return is_written ? FB_EXIT_DONE : fb_cli_no_memory();
    }
    if (reference->kind == FB_REFERS_TO_GRAPH) return fb_whole_id(cli, "/v1/graphs", reference->text, id);
    json_t *found;
    fb_address address = {0};
    fb_reference_address(reference, &address);
    int result = fb_cli_get(cli, &address, &found, NULL);
    if (result) return result;
    snprintf(id, FB_ID_LENGTH + 1, "%s", fb_text_of(found, reference->kind == FB_REFERS_TO_RUN ? "result" : "graph"));
    json_decref(found);
    return FB_EXIT_DONE;
}

int fb_reference_graph_address(fb_cli *cli, const fb_reference *reference, const char *part, fb_address *out) {
    char id[FB_ID_LENGTH + 1];
    int result = fb_reference_id(cli, reference, id);
    if (result) return result;
    fb_address_path(out, "/v1/graphs");
    fb_address_segment(out, id);
    fb_address_path(out, part);
    return FB_EXIT_DONE;
}

int fb_reference_bytes(fb_cli *cli, const fb_reference *reference, fb_buffer *out) {
    if (reference->kind == FB_REFERS_TO_FILE && !is_archive(reference)) return fb_file_read(reference->text, out);
    fb_call call = {.method = "GET"};
    int result = fb_reference_graph_address(cli, reference, "", &call.address);
    if (result) return result;
    fb_answer answer;
    result = fb_cli_call(cli, &call, &answer);
    if (!result) *out = answer.body;
    return result;
}

int fb_reference_graph(fb_cli *cli, const fb_reference *reference, fb_graph **out) {
    fb_buffer bytes = {0};
    int result = fb_reference_bytes(cli, reference, &bytes);
    if (!result) result = read_graph(reference, &bytes, out);
    fb_buffer_free(&bytes);
    return result;
}

/* Reads a document as the service in this process will. */
static bool reads_as_service(const fb_buffer *bytes, fb_graph **out) {
    const fb_document_limits limits = {.max_bytes = (size_t)4 << 30}; /* the others are the format's own, as its are */
    fb_errors errors = {.limit = 1};
    fb_status status = fb_document_read(bytes->data ? bytes->data : "", bytes->size, &limits, "", out, &errors);
    fb_errors_free(&errors);
    return status == FB_OK;
}

/* Appends the document of a file, and hands it to a service in this process. */
static int put_document(fb_cli *cli, const fb_reference *reference, fb_buffer *out) {
    fb_buffer bytes = {0};
    fb_graph *graph;
    size_t begin = out->size;
    int result = fb_reference_bytes(cli, reference, &bytes);
    bool is_handed = !result && !cli->values.server && !cli->handed.graph && reads_as_service(&bytes, &graph);
    if (!result && !is_handed) result = read_graph(reference, &bytes, &graph);
    fb_buffer_free(&bytes);
    if (result) return result;
    fb_document_write(graph, out);
    if (is_handed && !out->failed) {
        cli->handed.document.size = 0;
        fb_buffer_append(&cli->handed.document, out->data + begin, out->size - begin);
        is_handed = !cli->handed.document.failed;
    }
    if (is_handed) cli->handed.graph = graph;
    else fb_graph_free(graph);
    return FB_EXIT_DONE;
}

/* Appends a request's member "graph": the document for a file (checked before), else the id as a string. */
static int put_member(fb_cli *cli, const fb_reference *reference, fb_buffer *out) {
    if (reference->kind == FB_REFERS_TO_FILE && !is_archive(reference)) {
        int result = put_document(cli, reference, out);
        if (result) return result;
    } else {
        char id[FB_ID_LENGTH + 1];
        int result = fb_reference_id(cli, reference, id);
        if (result) return result;
        fb_buffer_json_string(out, id, strlen(id));
    }
    return out->failed ? fb_cli_no_memory() : FB_EXIT_DONE;
}

int fb_request_graph(fb_cli *cli, fb_buffer *out, const char *name, const fb_reference *graph) {
    fb_put_name(out, name);
    return put_member(cli, graph, out);
}
