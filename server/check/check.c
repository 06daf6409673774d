#include "server/check/check.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/compose/run.h"
#include "core/graph/graph.h"
#include "server/graphs/app.h"
#include "server/graphs/graphs.h"
#include "server/history/history.h"
#include "server/store/blobs.h"
#include "server/store/check.h"

/* ---- what a finding costs, and what helps -------------------------------------------------------------------------------- */

#define FROM_BACKUP "foldback db restore puts a backup in the folder's place"

static const struct {
    const char *code, *costs, *cure;
} findings[] = {
    {"database-damaged", "what is on the damaged pages cannot be read, and may hide more",
     FROM_BACKUP "; without one, sqlite3's .recover saves what can be read"},
    {"reference-broken", "what refers to it cannot be shown or undone", FROM_BACKUP},
    {"alias-broken", "a rollback of the alias may go to another version than its history says", FROM_BACKUP},
    {"graph-damaged", "the graph cannot be read, nor any run from it or to it undone", FROM_BACKUP},
    {"graph-rows-wrong", "lists and searches miss the graph, or gc removes blobs that it needs", FROM_BACKUP},
    {"rule-damaged", "runs with this version of the rule cannot be undone in part", FROM_BACKUP},
    {"run-damaged", "the run cannot be shown or undone in part; its source is still there", FROM_BACKUP},
    {"run-differs",
     "undoing some of the run's passes may give another graph than leaving them out would have; undoing all of them "
     "gives its source",
     "a bug of foldback, or damage: keep the folder and report it"},
    {"answer-damaged", "a request that is repeated with its Idempotency-Key fails", "nothing to do: it goes after a day"},
    {"audit-damaged", "the entry does not say for certain who did what", FROM_BACKUP},
    {"blob-missing", "weights of the graph that are in the blob cannot be read",
     "put the blob again (foldback upload), or " FROM_BACKUP},
    {"blob-damaged", "weights that are in the blob cannot be read", "put the blob again (foldback upload), or " FROM_BACKUP},
    {"tensor-digest-wrong", "a fine-tuned tensor may be taken for an unchanged one", FROM_BACKUP},
};

static void tell(fb_check *check, const char *code, const char *subject, const char *detail) {
    fb_finding finding = {.code = code, .subject = subject, .detail = detail, .costs = "", .cure = ""};
    for (size_t i = 0; i < sizeof findings / sizeof *findings; i++) {
        if (strcmp(findings[i].code, code) != 0) continue;
        finding.costs = findings[i].costs;
        finding.cure = findings[i].cure;
    }
    check->findings++;
    check->found(check->context, &finding);
}

/* Tells a finding; the codes are above. */
static void check_found(fb_check *check, const char *code, const char *subject, const char *format, ...) {
    char detail[700];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    tell(check, code, subject, detail);
}

/* The same for what the store reports: a fb_store_found, whose context is the check. */
static void check_stored(void *check, const char *code, const char *subject, const char *detail) {
    tell(check, code, subject, detail);
}

/* An error that one object met is a finding with that code, and FB_OK; what passes (no memory, too busy) goes to `error`. */
static fb_status check_met(fb_check *check, const char *code, const char *subject, const fb_error *met, fb_error *error) {
    bool is_passing = met->status == FB_NO_MEMORY || met->status == FB_NO_SPACE || met->status == FB_BUSY;
    if (is_passing) return fb_fail(error, met->status, met->code, NULL, "%s", met->message);
    check_found(check, code, subject, "%s", met->message);
    return FB_OK;
}

static void check_progress(fb_check *check, const char *what, uint64_t done, uint64_t total) {
    if (check->progress) check->progress(check->context, what, done, total);
}

/* ---- blobs: are the bytes those that the digest says, and what is remembered of them true? ------------------------------- */

#define BLOCK ((size_t)1 << 20)

/* The digest of a part. */
static fb_status hash_part(fb_blob *blob, uint64_t offset, uint64_t size, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_sha256 *hash = fb_sha256_new();
    char *block = malloc(BLOCK);
    fb_status status = hash && block ? FB_OK : fb_fail_memory(error);
    for (uint64_t done = 0; done < size && !status; done += BLOCK) {
        size_t some = size - done < BLOCK ? (size_t)(size - done) : BLOCK;
        status = fb_blob_read(blob, offset + done, block, some, error);
        if (!status && !fb_sha256_add(hash, block, some)) status = fb_fail_memory(error);
    }
    if (!status && !fb_sha256_id_so_far(hash, digest)) status = fb_fail_memory(error);
    free(block);
    fb_sha256_free(hash);
    return status;
}

/* Bytes of a tensor; false when the text is not a shape, or they are too many. */
static bool size_of(const fb_store_tensor_digest *tensor, uint64_t *size) {
    uint64_t elements = 1, bytes = fb_dtype_size(fb_dtype_find(tensor->dtype));
    const char *at = tensor->shape;
    if (*at++ != '[' || !bytes) return false;
    while (*at && *at != ']') {
        char *end;
        unsigned long long extent = strtoull(at, &end, 10);
        if (end == at || __builtin_mul_overflow(elements, (uint64_t)extent, &elements)) return false;
        at = *end == ',' ? end + 1 : end;
    }
    return *at == ']' && !__builtin_mul_overflow(elements, bytes, size);
}

static fb_status check_tensors(const fb_app *app, fb_check *check, fb_blob *blob, const char *digest, fb_error *error) {
    fb_store_tensor_digest *tensors = NULL;
    size_t count = 0;
    char subject[FB_ID_LENGTH + 40], actual[FB_ID_LENGTH + 1];
    fb_status status = fb_store_tensor_digests(app->store, digest, &tensors, &count, error);
    for (size_t i = 0; i < count && !status; i++) {
        uint64_t size = 0, room = fb_blob_size(blob);
        const fb_store_tensor_digest *one = &tensors[i];
        snprintf(subject, sizeof subject, "blob %s at %" PRIu64, digest, one->offset);
        check->tensors++;
        if (!size_of(one, &size) || one->offset > room || size > room - one->offset) {
            check_found(check, "tensor-digest-wrong", subject, "a tensor %s%s is not there", one->dtype, one->shape);
            continue;
        }
        status = hash_part(blob, one->offset, size, actual, error);
        if (!status && strcmp(actual, one->digest) != 0)
            check_found(check, "tensor-digest-wrong", subject, "the digest of %s%s is %s, not %s", one->dtype, one->shape,
                        actual, one->digest);
    }
    free(tensors);
    return status;
}

static fb_status check_blob(const fb_app *app, fb_check *check, const char *digest, fb_error *error) {
    char subject[FB_ID_LENGTH + 8];
    fb_blob *blob = NULL;
    fb_error met = {0};
    snprintf(subject, sizeof subject, "blob %.*s", FB_ID_LENGTH, digest);
    if (fb_blob_open(app->store, digest, &blob, &met)) return check_met(check, "blob-damaged", subject, &met, error);
    check->blob_bytes += fb_blob_size(blob);
    fb_status status = fb_blob_verify(blob, &met);
    if (status) status = check_met(check, "blob-damaged", subject, &met, error);
    else status = check_tensors(app, check, blob, digest, error);
    fb_blob_close(blob);
    return status;
}

/* ---- graphs: is what was stored what its id says? ------------------------------------------------------------------------ */

/* The rows that were made of the document. The graph stays in the cache: runs are next. */
static fb_status check_rows(const fb_app *app, fb_check *check, const char *id, const char *subject, fb_error *error) {
    fb_graph_input input = {0};
    fb_error met = {0};
    char again[FB_ID_LENGTH + 1];
    if (fb_load_graph(app, NULL, id, &input.shared, &met)) return check_met(check, "graph-damaged", subject, &met, error);
    fb_graph_row row = {0};
    bool is_written = fb_document_write_marked(input.shared->graph, &(fb_work){0}, &input.document, &input.left_out, again);
    fb_status status = is_written ? fb_graph_row_make(&input, NULL, &row, error) : fb_fail_memory(error);
    if (!status && strcmp(again, id) != 0)
        check_found(check, "graph-damaged", subject, "read and written again it is %s: it is not in canonical form", again);
    if (!status && fb_store_check_graph(app->store, &row.graph, check_stored, check, &met))
        status = check_met(check, "graph-rows-wrong", subject, &met, error);
    fb_graph_row_free(&row);
    fb_graph_input_free(&input);
    return status;
}

static fb_status check_graph(const fb_app *app, fb_check *check, const char *id, fb_error *error) {
    char subject[FB_ID_LENGTH + 8], actual[FB_ID_LENGTH + 1];
    fb_error met = {0};
    char *document = NULL;
    size_t size = 0;
    snprintf(subject, sizeof subject, "graph %.*s", FB_ID_LENGTH, id);
    if (fb_store_get_document(app->store, id, &document, &size, &met))
        return check_met(check, "graph-damaged", subject, &met, error);
    bool is_hashed = fb_sha256_id(document, size, actual);
    free(document);
    if (!is_hashed) return fb_fail_memory(error);
    if (strcmp(actual, id) == 0) return check_rows(app, check, id, subject, error);
    check_found(check, "graph-damaged", subject, "its bytes have the id %s", actual);
    return FB_OK;
}

/* ---- rules: likewise ----------------------------------------------------------------------------------------------------- */

/* `text` is the name, a space and the version. */
static fb_status check_rule(const fb_app *app, fb_check *check, const char *text, fb_error *error) {
    const char *space = strrchr(text, ' ');
    char name[FB_NAME_MAX + 1], subject[FB_NAME_MAX + 40], actual[FB_ID_LENGTH + 1];
    fb_store_rule stored;
    const fb_pass *pass = NULL;
    fb_error met = {0};
    snprintf(name, sizeof name, "%.*s", (int)(space - text), text);
    snprintf(subject, sizeof subject, "rule %s, version %s", name, space + 1);
    if (fb_store_get_rule(app->store, FB_STORED_ANY, name, (uint32_t)strtoul(space + 1, NULL, 10), &stored, &met))
        return check_met(check, "rule-damaged", subject, &met, error);
    fb_status status = FB_OK;
    bool is_hashed = fb_sha256_id(stored.document, strlen(stored.document), actual);
    if (!is_hashed) status = fb_fail_memory(error);
    else if (strcmp(actual, stored.digest) != 0)
        check_found(check, "rule-damaged", subject, "its document has the digest %s, not %s", actual, stored.digest);
    else if (fb_stored_pass_read(&stored, &pass, &met)) status = check_met(check, "rule-damaged", subject, &met, error);
    fb_pass_free(pass);
    FB_STORE_FREE(&stored);
    return status;
}

/* ---- runs: do their passes, done again, give what they gave? ------------------------------------------------------------- */

/* A run that is being looked at. */
typedef struct looking {
    const fb_app *app;
    fb_check *check;
    const fb_store_run *run;
    char subject[FB_RUN_ID_LENGTH + 8];
} looking;

static fb_status met_damage(const looking *at, const fb_error *met, fb_error *error) {
    return check_met(at->check, "run-damaged", at->subject, met, error);
}

/* Its rows. */

/* The composition's signature follows from its passes', and the report is of these passes. */
static fb_status check_run_rows(const looking *at, fb_error *error) {
    const fb_store_run *run = at->run;
    const char **signatures = calloc(run->pass_count + 1, sizeof *signatures);
    json_t *report = json_loads(run->report, 0, NULL);
    fb_signature signature;
    for (size_t i = 0; signatures && i < run->pass_count; i++) signatures[i] = run->passes[i].signature;
    bool is_computed = signatures && fb_composition_signature(signatures, run->pass_count, signature);
    free(signatures);
    if (is_computed && strcmp(signature, run->signature) != 0)
        check_found(at->check, "run-damaged", at->subject, "the signature of its passes is %s, not %s", signature,
                    run->signature);
    bool is_told = json_array_size(report) == run->pass_count;
    for (size_t i = 0; i < run->pass_count && is_told; i++) {
        const char *told = json_string_value(json_object_get(json_array_get(report, i), "signature"));
        is_told = told && strcmp(told, run->passes[i].signature) == 0;
    }
    json_decref(report);
    if (!is_told) check_found(at->check, "run-damaged", at->subject, "its report is not of its passes");
    return is_computed ? FB_OK : fb_fail_memory(error);
}

static void check_calls(const looking *at, const fb_composition *composition) {
    const fb_store_run *run = at->run;
    bool is_same = composition->count == run->pass_count;
    for (size_t i = 0; i < run->pass_count && is_same; i++) {
        is_same = strcmp(composition->calls[i].pass->name, run->passes[i].name) == 0 &&
                  strcmp(composition->calls[i].signature, run->passes[i].signature) == 0;
    }
    if (!is_same) check_found(at->check, "run-damaged", at->subject, "the passes that it asked for are not those of its rows");
}

/* Its result. */

/* True for a graph whose merge depends on which bytes of its tensors were here then: a difference that this may explain is only
 * not counted.
 */
static bool reads_blobs(const fb_graph *ours) {
    for (fb_tensor t = ours ? fb_first_tensor(ours) : (fb_tensor){0}; t.id; t = fb_tensor_at(ours, t)->next)
        if (fb_tensor_at(ours, t)->blob.id) return true;
    return false;
}

static fb_status compare(const looking *at, const fb_graph *made, const fb_graph *ours, fb_error *error) {
    char id[FB_ID_LENGTH + 1];
    if (!fb_document_id(made, id)) return fb_fail_memory(error);
    if (strcmp(id, at->run->result) != 0 && reads_blobs(ours)) return FB_OK;
    at->check->replayed++;
    if (strcmp(id, at->run->result) != 0)
        check_found(at->check, "run-differs", at->subject, "done again it gives %s, not %s", id, at->run->result);
    return FB_OK;
}

static fb_status replay_composition(const looking *at, const fb_composition *composition, fb_error *error) {
    fb_shared_graph *source = NULL;
    fb_run made = {0};
    fb_status status = fb_load_graph(at->app, NULL, at->run->source, &source, error);
    fb_blobs blobs = fb_blob_source(at->app->store);
    fb_run_watcher watcher = {.blobs = fb_run_knew_numbers(at->run) ? &blobs : NULL};
    check_calls(at, composition);
    if (!status) status = fb_composition_run(composition, source->graph, FB_LINT_NONE, &watcher, &made, error);
    if (!status) status = compare(at, made.result, NULL, error);
    fb_run_free(&made);
    fb_share_release(source);
    return status;
}

static fb_status replay_steps(const looking *at, const fb_history *history, const fb_graph *ours, fb_error *error) {
    fb_graph *made = NULL;
    fb_conflicts conflicts = {0};
    bool is_exact;
    fb_status status = fb_history_replay(at->app, NULL, history, ours, &made, &is_exact, &conflicts, error);
    fb_conflicts_free(&conflicts);
    if (!status) status = compare(at, made, ours, error);
    fb_graph_free(made);
    return status;
}

/* The first version wrote down what was left over as a list of passes, for the source of the run that was undone. */
static fb_status replay_list(const looking *at, const json_t *list, fb_error *error) {
    fb_store_run undone = {0};
    fb_composition composition = {0};
    fb_shared_graph *source = NULL;
    fb_run made = {0};
    if (!at->run->of_run) return fb_fail(error, FB_IO, "store-corrupt", NULL, "it undoes nothing");
    fb_status status = fb_store_get_run(at->app->store, at->run->of_run, &undone, error);
    if (!status) status = fb_load_graph(at->app, NULL, undone.source, &source, error);
    if (!status && json_array_size(list)) status = fb_composition_read(list, "", NULL, &composition, error);
    if (!status && composition.count)
        status = fb_composition_run(&composition, source->graph, FB_LINT_NONE, NULL, &made, error);
    if (!status) status = compare(at, made.result ? made.result : source->graph, NULL, error);
    fb_run_free(&made);
    fb_composition_free(&composition);
    fb_share_release(source);
    FB_STORE_FREE(&undone);
    return status;
}

static fb_status replay_undo(const looking *at, fb_error *error) {
    fb_history history;
    bool is_known = false;
    fb_shared_graph *ours = NULL;
    json_t *list = json_loads(at->run->request, 0, NULL);
    if (json_is_array(list)) {
        fb_status listed = replay_list(at, list, error);
        json_decref(list);
        return listed;
    }
    json_decref(list);
    fb_status status = fb_history_of_undo(at->app, NULL, at->run, &history, &is_known, error);
    if (!status && is_known && !at->run->is_exact) status = fb_load_graph(at->app, NULL, at->run->source, &ours, error);
    if (!status && is_known) status = replay_steps(at, &history, ours ? ours->graph : NULL, error);
    fb_share_release(ours);
    fb_history_free(&history);
    return status;
}

/* Replays a run of this service: a recorded merge is merged again, and a composition run as it was. */
static fb_status replay_own(const looking *at, fb_error *error) {
    fb_history history = {0};
    fb_status status = fb_history_add(at->app, NULL, &history, at->run->id, false, error);
    const fb_past_run *past = history.run_count ? history.runs[0] : NULL;
    if (!status && past->composition.count) status = replay_composition(at, &past->composition, error);
    else if (!status) status = replay_steps(at, &history, NULL, error);
    fb_history_free(&history);
    return status;
}

static fb_status check_run(const fb_app *app, fb_check *check, const char *id, fb_error *error) {
    looking at = {.app = app, .check = check};
    fb_store_run run;
    fb_error met = {0};
    snprintf(at.subject, sizeof at.subject, "run %.*s", FB_RUN_ID_LENGTH, id);
    if (fb_store_get_run(app->store, id, &run, &met)) return met_damage(&at, &met, error);
    at.run = &run;
    fb_status status = check_run_rows(&at, error);
    if (!status && (fb_run_is_undoable(&run) ? replay_own : replay_undo)(&at, &met)) status = met_damage(&at, &met, error);
    FB_STORE_FREE(&run);
    return status;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

/* Looks at one, by its text in the list. */
typedef fb_status check_one(const fb_app *app, fb_check *check, const char *text, fb_error *error);

static fb_status check_each(const fb_app *app, fb_check *check, fb_store_kind kind, const char *what, check_one *one,
                            uint64_t *count, fb_error *error) {
    fb_store_texts texts;
    fb_error met = {0};
    char list[32];
    snprintf(list, sizeof list, "the list of %s", what);
    if (fb_store_list_texts(app->store, kind, &texts, &met)) return check_met(check, "database-damaged", list, &met, error);
    fb_status status = FB_OK;
    const char *text = texts.texts.data;
    for (size_t i = 0; i < texts.count && !status; i++, text += strlen(text) + 1) {
        status = one(app, check, text, error);
        check_progress(check, what, ++*count, texts.count);
    }
    fb_buffer_free(&texts.texts);
    return status;
}

static fb_status check_store(const fb_app *app, fb_check *check, fb_error *error) {
    check_progress(check, "pages", 0, 1);
    fb_status status = fb_store_check_pages(app->store, check_stored, check, error);
    if (!status) status = fb_store_check_references(app->store, check_stored, check, error);
    if (!status) status = fb_store_check_answers(app->store, check_stored, check, &check->answers, error);
    if (!status) status = fb_store_check_audit(app->store, check_stored, check, error);
    if (!status) status = check_each(app, check, FB_STORED_GRAPHS, "graphs", check_graph, &check->graphs, error);
    if (!status) status = check_each(app, check, FB_STORED_RULES, "rules", check_rule, &check->rules, error);
    if (!status) status = check_each(app, check, FB_STORED_RUNS, "runs", check_run, &check->runs, error);
    if (!status) status = check_each(app, check, FB_STORED_BLOBS, "blobs", check_blob, &check->blobs, error);
    return status;
}

/* Opening a folder without a store would make one. */
static fb_status find_store(const char *folder, fb_error *error) {
    static const char *const signs[] = {"foldback.sqlite", "blobs", "store-at"}; /* the database may be what is lost */
    bool is_there = false;
    struct stat about;
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        fb_buffer path = {0};
        fb_buffer_printf(&path, "%s/%s", folder, signs[i]);
        const char *text = fb_buffer_text(&path);
        is_there = is_there || !text || stat(text, &about) == 0;
        fb_buffer_free(&path);
    }
    return is_there ? FB_OK : fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", folder);
}

#define CACHE_BYTES ((size_t)256 << 20) /* runs one after the other tend to have their graphs in common */

fb_status fb_check_folder(const char *folder, fb_check *check, fb_error *error) {
    fb_error met = {0};
    fb_app app = {.cache = fb_cache_new(CACHE_BYTES)};
    fb_status status = app.cache ? find_store(folder, error) : fb_fail_memory(error);
    if (!status) status = fb_store_open(folder, &(fb_store_config){.may_only_read = true}, &app.store, &met);
    if (met.status && strcmp(met.code, "store-corrupt") == 0)
        status = check_met(check, "database-damaged", "the database", &met, error);
    else if (met.status) fb_fail(error, met.status, met.code, NULL, "%s", met.message);
    if (!status && app.store) status = check_store(&app, check, error);
    fb_store_close(app.store);
    fb_cache_free(app.cache);
    return status;
}
