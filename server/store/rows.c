/* Rows of runs, versions and aliases, as other tables' files read them. */
#include <stdio.h>

#include <stdlib.h>

#include "server/database/frame.h"
#include "server/store/rows.h"

fb_status fb_read_version(fb_connection *connection, int64_t key, fb_store_memory **memory, fb_store_version *out,
                          fb_error *error) {
    fb_query query = fb_query_begin(connection,
                                    "SELECT m.name, v.name, g.id, r.id, v.note, v.created, r.validation FROM versions v "
                                    "JOIN models m ON m.key = v.model JOIN graphs g ON g.key = v.graph "
                                    "LEFT JOIN runs r ON r.key = v.run WHERE v.key = ?",
                                    error);
    fb_bind_int(&query, key);
    if (fb_query_row(&query)) {
        out->model = fb_copy_column(&query, 0, memory, &query.status);
        out->name = fb_copy_column(&query, 1, memory, &query.status);
        out->graph = fb_copy_column(&query, 2, memory, &query.status);
        out->run = fb_copy_optional(&query, 3, memory, &query.status);
        out->note = fb_copy_optional(&query, 4, memory, &query.status);
        out->created = fb_column_int(&query, 5);
        out->validation = fb_copy_optional(&query, 6, memory, &query.status);
    } else if (!query.status) {
        query.status = fb_fail_corrupt(error, "a version without its graph");
    }
    return fb_query_end(&query);
}

fb_status fb_read_alias_entry(fb_connection *connection, int64_t number, fb_store_memory **memory, fb_store_alias_entry *out,
                              fb_error *error) {
    fb_query query = fb_query_begin(
        connection,
        "SELECT e.number, e.at, m.name, a.name, e.action, e.who, e.why, p.version_name, p.graph, e.version_name, e.graph, "
        "e.run FROM alias_entries e JOIN aliases a ON a.key = e.alias JOIN models m ON m.key = a.model "
        "LEFT JOIN alias_entries p ON p.number = e.previous WHERE e.number = ?",
        error);
    fb_bind_int(&query, number);
    if (fb_query_row(&query)) {
        out->number = fb_column_int(&query, 0);
        out->at = fb_column_int(&query, 1);
        out->model = fb_copy_column(&query, 2, memory, &query.status);
        out->alias = fb_copy_column(&query, 3, memory, &query.status);
        out->action = fb_copy_column(&query, 4, memory, &query.status);
        out->who = fb_copy_optional(&query, 5, memory, &query.status);
        out->why = fb_copy_optional(&query, 6, memory, &query.status);
        out->from = fb_copy_optional(&query, 7, memory, &query.status);
        out->from_graph = fb_copy_optional(&query, 8, memory, &query.status);
        out->to = fb_copy_optional(&query, 9, memory, &query.status);
        out->to_graph = fb_copy_optional(&query, 10, memory, &query.status);
        out->run = fb_copy_optional(&query, 11, memory, &query.status);
    } else if (!query.status) {
        query.status = fb_fail(error, FB_NOT_FOUND, "unknown-alias", NULL, "no alias has an entry %lld", (long long)number);
    }
    return fb_query_end(&query);
}

static fb_status read_passes(fb_connection *connection, int64_t key, size_t count, fb_store_memory **memory, fb_store_run *out,
                             fb_error *error) {
    fb_store_pass *passes = fb_memory_take(memory, count * sizeof *passes);
    if (!passes) return fb_fail_memory(error);
    out->passes = passes;
    if (!count) return FB_OK;
    fb_query query = fb_query_begin(connection,
                                    "SELECT p.name, p.version, s.text, p.applied, p.refused, p.preset FROM run_passes p "
                                    "JOIN signatures s ON s.id = p.signature WHERE p.run = ? ORDER BY p.position",
                                    error);
    fb_bind_int(&query, key);
    while (out->pass_count < count && fb_query_row(&query)) {
        fb_store_pass *pass = &passes[out->pass_count++];
        pass->name = fb_copy_column(&query, 0, memory, &query.status);
        pass->version = (uint32_t)fb_column_int(&query, 1);
        pass->signature = fb_copy_column(&query, 2, memory, &query.status);
        pass->applied = (uint32_t)fb_column_int(&query, 3);
        pass->refused = (uint32_t)fb_column_int(&query, 4);
        pass->preset = fb_copy_optional(&query, 5, memory, &query.status);
    }
    return fb_query_end(&query);
}

static fb_status read_labels(fb_connection *connection, int64_t key, size_t count, fb_store_memory **memory, fb_store_run *out,
                             fb_error *error) {
    fb_store_label *labels = fb_memory_take(memory, count * sizeof *labels);
    if (!labels) return fb_fail_memory(error);
    out->labels = labels;
    if (!count) return FB_OK;
    fb_query query = fb_query_begin(connection, "SELECT key, value FROM run_labels WHERE run = ? ORDER BY key", error);
    fb_bind_int(&query, key);
    while (out->label_count < count && fb_query_row(&query)) {
        fb_store_label *label = &labels[out->label_count++];
        label->key = fb_copy_column(&query, 0, memory, &query.status);
        label->value = fb_copy_column(&query, 1, memory, &query.status);
    }
    return fb_query_end(&query);
}

/* From two columns: its size, and its frame. */
static void read_report(fb_query *query, int column, fb_store_memory **memory, fb_store_run *out, fb_error *error) {
    char *report = NULL;
    size_t frame_size = 0, size = (size_t)fb_column_int(query, column);
    const void *frame = fb_column_bytes(query, column + 1, &frame_size);
    if (!query->status) query->status = fb_frame_unpack(frame, frame_size, size, &report, error);
    if (report) out->report = fb_memory_text(memory, report);
    if (report && !out->report) query->status = fb_fail_memory(error);
    free(report);
}

/* Few statements, because each is a way to the server and back. */
#define SELECT_RUN(more)                                                                                                       \
    "SELECT r.id, r.kind, s.id, t.id, r.composition, r.exact, r.reversible, r.preserves_computation, r.lint, r.created, "      \
    "r.request, r.note, o.id, r.validation, r.key, (SELECT count(*) FROM run_passes WHERE run = r.key), "                      \
    "(SELECT count(*) FROM run_labels WHERE run = r.key), r.requested, s.name, s.nodes, t.nodes, "                             \
    "(SELECT m.name FROM models m WHERE m.key = v.model), v.name" more " FROM runs r JOIN graphs s ON s.key = r.source "       \
    "JOIN graphs t ON t.key = r.result LEFT JOIN runs o ON o.key = r.of_run "                                                  \
    "LEFT JOIN versions v ON v.key = (SELECT min(key) FROM versions WHERE run = r.key) "
#define REPORT ", r.report_size, r.report"

/* The query gives one row, or none: then *is_there is false. */
static fb_status read_run(fb_query *query, bool with_report, fb_store_memory **memory, fb_store_run *out, bool *is_there,
                          fb_error *error) {
    int64_t key = 0;
    size_t passes = 0, labels = 0;
    *is_there = fb_query_row(query);
    if (*is_there) {
        snprintf(out->id, sizeof out->id, "%s", fb_column_text(query, 0));
        out->kind = fb_copy_column(query, 1, memory, &query->status);
        out->source = fb_copy_column(query, 2, memory, &query->status);
        out->result = fb_copy_column(query, 3, memory, &query->status);
        out->signature = fb_copy_column(query, 4, memory, &query->status);
        out->is_exact = fb_column_int(query, 5) != 0;
        out->is_reversible = fb_column_int(query, 6) != 0;
        out->preserves_computation = fb_column_int(query, 7) != 0;
        out->lint = fb_copy_column(query, 8, memory, &query->status);
        out->created = fb_column_int(query, 9);
        out->request = fb_copy_column(query, 10, memory, &query->status);
        out->note = fb_copy_optional(query, 11, memory, &query->status);
        out->of_run = fb_copy_optional(query, 12, memory, &query->status);
        out->validation = fb_copy_optional(query, 13, memory, &query->status);
        key = fb_column_int(query, 14);
        passes = (size_t)fb_column_int(query, 15);
        labels = (size_t)fb_column_int(query, 16);
        out->requested = fb_copy_optional(query, 17, memory, &query->status);
        out->name = fb_copy_column(query, 18, memory, &query->status);
        out->nodes_before = (uint32_t)fb_column_int(query, 19);
        out->nodes_after = (uint32_t)fb_column_int(query, 20);
        out->model = fb_copy_optional(query, 21, memory, &query->status);
        out->version = fb_copy_optional(query, 22, memory, &query->status);
        if (with_report && !query->status) read_report(query, 23, memory, out, error);
    }
    fb_connection *connection = query->connection;
    fb_status status = fb_query_end(query);
    if (!status && *is_there) status = read_passes(connection, key, passes, memory, out, error);
    if (!status && *is_there) status = read_labels(connection, key, labels, memory, out, error);
    return status;
}

fb_status fb_read_run_by_id(fb_connection *connection, const char *id, fb_store_run *out, fb_error *error) {
    int64_t key = 0;
    bool is_there = false;
    fb_query query = fb_query_begin(connection, SELECT_RUN(REPORT) "WHERE r.id = ?", error);
    fb_bind_text(&query, id);
    fb_status status = read_run(&query, true, &out->memory, out, &is_there, error);
    if (status || is_there) return status;
    status = fb_find_run(connection, id, &key, error);
    if (status) return status;
    return key ? fb_fail_corrupt(error, "a run without its graphs") : fb_fail_unknown_run(error, id);
}

fb_status fb_read_run(fb_connection *connection, int64_t key, bool with_report, fb_store_memory **memory, fb_store_run *out,
                      fb_error *error) {
    bool is_there = false;
    fb_query query = fb_query_begin(
        connection, with_report ? SELECT_RUN(REPORT) "WHERE r.key = ?" : SELECT_RUN("") "WHERE r.key = ?", error);
    fb_bind_int(&query, key);
    fb_status status = read_run(&query, with_report, memory, out, &is_there, error);
    return status || is_there ? status : fb_fail_corrupt(error, "a run without its graphs");
}

fb_status fb_find_run(fb_connection *connection, const char *id, int64_t *key, fb_error *error) {
    fb_query query = fb_query_begin(connection, "SELECT key FROM runs WHERE id = ?", error);
    fb_bind_text(&query, id);
    return fb_read_key(&query, key);
}

fb_status fb_fail_unknown_run(fb_error *error, const char *id) {
    return fb_fail(error, FB_NOT_FOUND, "unknown-run", NULL, "there is no run %s", id);
}
