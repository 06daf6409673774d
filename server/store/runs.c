/* Runs: stored, read and found. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/database/frame.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/webhooks.h"

#define SIGNATURES_MAX 1000
#define LABELS_MAX 16
#define CONDITIONS_MAX (SIGNATURES_MAX + LABELS_MAX + 7)

fb_status fb_store_new_run(fb_store *store, fb_store_run *run, fb_error *error) {
    char ulid[FB_ULID_LENGTH + 1];
    int64_t now = store->config.now_ms();
    fb_status status = fb_ulid_next(&store->ulids, now, ulid, error);
    if (status) return status;
    snprintf(run->id, sizeof run->id, "run_%s", ulid);
    run->created = now;
    return FB_OK;
}

/* The references of a run. */
typedef struct references {
    int64_t source, result, of_run;
} references;

/* In one statement, because each is a way to the server and back. */
static fb_status find_references(fb_connection *connection, const fb_store_run *run, references *keys, fb_error *error) {
    int64_t same = 0;
    fb_query query = fb_query_begin(connection,
                                    "SELECT (SELECT key FROM runs WHERE id = ?), (SELECT key FROM graphs WHERE id = ?), "
                                    "(SELECT key FROM graphs WHERE id = ?), (SELECT key FROM runs WHERE id = ?)",
                                    error);
    fb_bind_text(&query, run->id);
    fb_bind_text(&query, run->source);
    fb_bind_text(&query, run->result);
    fb_bind_text(&query, run->of_run);
    if (fb_query_row(&query)) {
        same = fb_column_int(&query, 0);
        *keys = (references){fb_column_int(&query, 1), fb_column_int(&query, 2), fb_column_int(&query, 3)};
    }
    fb_status status = fb_query_end(&query);
    if (status) return status;
    if (same) return fb_fail(error, FB_CONFLICT, "run-exists", NULL, "there is a run %s already", run->id);
    if (!keys->source) return fb_fail_unknown_graph(error, run->source);
    if (!keys->result) return fb_fail_unknown_graph(error, run->result);
    return run->of_run && !keys->of_run ? fb_fail_unknown_run(error, run->of_run) : FB_OK;
}

static fb_status insert_run(fb_connection *connection, const fb_packed_run *packed, const references *keys, int64_t *key,
                            fb_error *error) {
    const fb_store_run *run = packed->run;
    fb_query insert = fb_query_begin(
        connection,
        "INSERT INTO runs (id, kind, source, result, composition, exact, reversible, "
        "preserves_computation, lint, created, note, request, report_size, report, validation, requested, of_run) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING key",
        error);
    fb_bind_text(&insert, run->id);
    fb_bind_text(&insert, run->kind);
    fb_bind_int(&insert, keys->source);
    fb_bind_int(&insert, keys->result);
    fb_bind_text(&insert, run->signature);
    fb_bind_int(&insert, run->is_exact);
    fb_bind_int(&insert, run->is_reversible);
    fb_bind_int(&insert, run->preserves_computation);
    fb_bind_text(&insert, run->lint);
    fb_bind_int(&insert, run->created);
    fb_bind_text(&insert, run->note);
    fb_bind_text(&insert, run->request);
    fb_bind_int(&insert, (int64_t)strlen(run->report));
    fb_bind_bytes(&insert, packed->report, packed->report_frame_size);
    fb_bind_text(&insert, run->validation);
    fb_bind_text(&insert, run->requested);
    if (keys->of_run) fb_bind_int(&insert, keys->of_run); /* else it stays NULL */
    return fb_query_insert(&insert, key);
}

/* False when its signature is new. */
static bool insert_pass(fb_query *insert, int64_t run, size_t position, const fb_store_pass *pass) {
    fb_bind_int(insert, run);
    fb_bind_int(insert, (int64_t)position);
    fb_bind_text(insert, pass->name);
    fb_bind_int(insert, pass->version);
    fb_bind_int(insert, pass->applied);
    fb_bind_int(insert, pass->refused);
    fb_bind_text(insert, pass->preset);
    fb_bind_text(insert, pass->signature);
    fb_query_row(insert);
    bool is_done = insert->status || fb_changed_rows(insert->connection) == 1;
    fb_query_again(insert);
    return is_done;
}

static fb_status insert_passes(fb_connection *connection, const fb_store_run *run, int64_t key, fb_error *error) {
    fb_query insert = fb_query_begin(connection,
                                     "INSERT INTO run_passes (run, position, name, version, applied, refused, preset, "
                                     "signature) "
                                     "SELECT CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), CAST(? AS BIGINT), "
                                     "CAST(? AS BIGINT), CAST(? AS BIGINT), CAST(? AS TEXT), id FROM signatures WHERE text = ?",
                                     error);
    for (size_t i = 0; i < run->pass_count && !insert.status; i++) {
        int64_t signature = 0;
        if (insert_pass(&insert, key, i, &run->passes[i])) continue;
        insert.status = fb_add_signature(connection, run->passes[i].signature, &signature, error);
        if (!insert.status) insert_pass(&insert, key, i, &run->passes[i]);
    }
    return fb_query_end(&insert);
}

static fb_status insert_labels(fb_connection *connection, const fb_store_run *run, int64_t key, fb_error *error) {
    fb_query insert = fb_query_begin(connection, "INSERT INTO run_labels (run, key, value) VALUES (?, ?, ?)", error);
    for (size_t i = 0; i < run->label_count; i++) {
        fb_bind_int(&insert, key);
        fb_bind_text(&insert, run->labels[i].key);
        fb_bind_text(&insert, run->labels[i].value);
        fb_query_row(&insert);
        fb_query_again(&insert);
    }
    return fb_query_end(&insert);
}

static fb_status audit_run(fb_connection *connection, const fb_store_run *run, fb_error *error) {
    return fb_write_audit(connection, &run->by, run->created, run->kind, run->id, run->result, error);
}

fb_status fb_write_run(fb_connection *connection, fb_packed_run *packed, fb_totals *added, fb_error *error) {
    references keys = {0};
    fb_status status = FB_OK;
    for (size_t i = 0; i < packed->graph_count && !status; i++)
        status = fb_write_graph(connection, &packed->graphs[i], added, error);
    if (!status) status = find_references(connection, packed->run, &keys, error);
    int64_t key = 0;
    if (!status) status = insert_run(connection, packed, &keys, &key, error);
    if (!status) status = insert_passes(connection, packed->run, key, error);
    if (!status) status = insert_labels(connection, packed->run, key, error);
    if (!status) status = audit_run(connection, packed->run, error);
    if (!status) status = fb_tell_run(connection, packed->run, error);
    if (!status) added->runs++;
    return status;
}

fb_status fb_pack_run(fb_store *store, const fb_store_run *run, const fb_store_graph *graphs, size_t graph_count,
                      fb_packed_run *packed, fb_error *error) {
    *packed = (fb_packed_run){.run = run, .graphs = calloc(graph_count + 1, sizeof *packed->graphs)};
    if (!packed->graphs) return fb_fail_memory(error);
    packed->graph_count = graph_count;
    fb_status status = fb_pack_graphs(store, graphs, graph_count, packed->graphs, error);
    if (status) return status;
    return fb_frame_pack(run->report, strlen(run->report), store->config.compression_level, &packed->report,
                         &packed->report_frame_size, error);
}

void fb_packed_run_free(fb_packed_run *packed) {
    fb_packed_graphs_free(packed->graphs, packed->graph_count);
    free(packed->graphs);
    free(packed->report);
}

typedef struct put_run {
    fb_packed_run run;
    fb_packed_answer answer;
} put_run;

static fb_status write_put(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    put_run *put = argument;
    fb_status status = fb_write_run(connection, &put->run, added, error);
    return status ? status : fb_write_answer(connection, &put->answer, error);
}

fb_status fb_store_put_run(fb_store *store, const fb_store_run *run, const fb_store_graph *graphs, size_t graph_count,
                           const fb_store_answer *answer, fb_error *error) {
    put_run put = {0};
    fb_status status = fb_pack_run(store, run, graphs, graph_count, &put.run, error);
    if (!status) status = fb_pack_answer(store, answer, &put.answer, error);
    if (!status) status = fb_writer_run(&store->writer, write_put, &put, error);
    if (!status) fb_store_tell(store, FB_RUN_FINISHED);
    fb_packed_run_free(&put.run);
    fb_packed_answer_free(&put.answer);
    return status;
}

/* ---- reading and finding ---- */

fb_status fb_store_missing_runs(fb_store *store, const char *ids, size_t count, bool *is_missing, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    json_t *list = json_loads(ids, 0, NULL);
    if (!list) status = fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        const char *id = json_string_value(json_array_get(list, i));
        int64_t key = 1;
        if (id) status = fb_find_run(connection, id, &key, error);
        is_missing[i] = key == 0;
    }
    json_decref(list);
    fb_readers_give_back(&store->readers, connection);
    return status;
}

fb_status fb_store_get_run(fb_store *store, const char *id, fb_store_run *out, fb_error *error) {
    fb_connection *connection = NULL;
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    fb_store_run run = {0};
    status = fb_read_run_by_id(connection, id, &run, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(run.memory);
    else *out = run;
    return status;
}

/* ---- list ---- */

typedef struct conditions {
    fb_condition items[CONDITIONS_MAX];
    size_t count, groups;
} conditions;

static fb_condition *add(conditions *list, const char *sql) {
    fb_condition *condition = &list->items[list->count++];
    *condition = (fb_condition){.sql = sql, .group = list->groups++};
    return condition;
}

static void add_text(conditions *list, const char *sql, const char *text) {
    if (text) add(list, sql)->texts[0] = text;
}

static void add_labels(conditions *list, const fb_store_run_filter *filter) {
    for (size_t i = 0; i < filter->label_count; i++) {
        const fb_store_label *label = &filter->labels[i];
        const char *sql =
            label->value ? "SELECT run FROM run_labels WHERE run <= ?1 AND key = ?2 AND value = ?3 ORDER BY run DESC LIMIT 1"
                         : "SELECT run FROM run_labels WHERE run <= ?1 AND key = ?2 ORDER BY run DESC LIMIT 1";
        fb_condition *condition = add(list, sql);
        condition->texts[0] = label->key;
        condition->texts[1] = label->value;
    }
}

/* The signatures' conditions are one group: any one suffices. */
static void add_signatures(conditions *list, const fb_store_run_filter *filter) {
    size_t group = list->groups;
    for (size_t i = 0; i < filter->signature_count; i++) {
        fb_condition *condition = add(list, "SELECT run FROM run_passes WHERE run <= ?1 AND signature = "
                                            "(SELECT id FROM signatures WHERE text = ?2) ORDER BY run DESC LIMIT 1");
        condition->texts[0] = filter->signatures[i];
        condition->group = group;
    }
}

/* A pass or a preset: the one or the other. */
static void add_pass(conditions *list, const char *name) {
    size_t group = list->groups;
    add_text(list, "SELECT run FROM run_passes WHERE run <= ?1 AND name = ?2 ORDER BY run DESC LIMIT 1", name);
    add_text(list, "SELECT run FROM run_passes WHERE run <= ?1 AND preset = ?2 ORDER BY run DESC LIMIT 1", name);
    if (name) list->items[list->count - 1].group = group;
}

#define GRAPH_KEY "(SELECT key FROM graphs WHERE id = ?2)"
#define NEWEST " ORDER BY key DESC LIMIT 1"

static void set_conditions(const fb_store_run_filter *filter, conditions *list) {
    add_text(list, "SELECT key FROM runs WHERE key <= ?1 AND source = " GRAPH_KEY NEWEST, filter->source);
    add_text(list, "SELECT key FROM runs WHERE key <= ?1 AND result = " GRAPH_KEY NEWEST, filter->result);
    add_text(list, "SELECT key FROM runs WHERE key <= ?1 AND of_run = (SELECT key FROM runs WHERE id = ?2)" NEWEST,
             filter->of_run);
    add_text(list, "SELECT key FROM runs WHERE key <= ?1 AND composition = ?2" NEWEST, filter->composition);
    add_labels(list, filter);
    add_signatures(list, filter);
    add_pass(list, filter->pass);
    add_text(list, "SELECT key FROM runs WHERE key <= ?1 AND kind = ?2" NEWEST, filter->kind);
    if (list->count == 0) add(list, "SELECT key FROM runs WHERE key <= ?" NEWEST);
}

static uint64_t hash_filter(const fb_store_run_filter *filter) {
    uint64_t hash = fb_filter_hash(0, "runs");
    const char *const texts[] = {filter->source, filter->result,      filter->kind,
                                 filter->of_run, filter->composition, filter->pass};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) hash = fb_filter_hash(hash, texts[i]);
    for (size_t i = 0; i < filter->signature_count; i++) hash = fb_filter_hash(hash, filter->signatures[i]);
    hash = fb_filter_hash(hash, NULL); /* a signature is not a label */
    for (size_t i = 0; i < filter->label_count; i++)
        hash = fb_filter_hash(fb_filter_hash(hash, filter->labels[i].key), filter->labels[i].value);
    return hash;
}

static fb_status read_short(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    return fb_read_run(connection, key, false, memory, item, error);
}

static fb_status read_whole(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error) {
    return fb_read_run(connection, key, true, memory, item, error);
}

fb_status fb_store_list_runs(fb_store *store, const fb_store_run_filter *filter, const fb_store_page *page, bool with_reports,
                             fb_store_runs *out, fb_error *error) {
    static const fb_store_run_filter all = {0};
    if (!filter) filter = &all;
    if (filter->label_count > LABELS_MAX || filter->signature_count > SIGNATURES_MAX)
        return fb_fail(error, FB_TOO_LARGE, "too-many-filters", NULL, "a list takes at most %d labels and %d signatures",
                       LABELS_MAX, SIGNATURES_MAX);
    conditions *wanted = calloc(1, sizeof *wanted);
    if (!wanted) return fb_fail_memory(error);
    set_conditions(filter, wanted);
    fb_list_query query = {.conditions = wanted->items,
                           .count = wanted->count,
                           .page = page,
                           .filter_hash = hash_filter(filter),
                           .item_size = sizeof *out->items,
                           .read = with_reports ? read_whole : read_short};
    fb_row_list list;
    fb_status status = fb_list_read(store, &query, &list, error);
    free(wanted);
    if (!status) FB_LIST_GIVE(&list, out);
    return status;
}
