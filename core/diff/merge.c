#include "core/diff/merge.h"

#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"

/* Asked after each step: what a step left out when it was stopped does not count then. */
static fb_status watch(fb_merging *m) {
    fb_work_ask(&m->work);
    return fb_work_status(&m->work, m->error);
}

/* The merged graph breaks a rule: which, and where. */
static void report_invalid(fb_merging *m, const fb_error *found) {
    static const struct {
        const char *prefix;
        fb_document_table table;
        fb_conflict_kind kind;
    } places[] = {{"/nodes/", FB_NODE_TABLE, FB_CONFLICT_NODE},
                  {"/modules/", FB_MODULE_TABLE, FB_CONFLICT_MODULE},
                  {"/tensors/", FB_TENSOR_TABLE, FB_CONFLICT_TENSOR}};
    fb_conflict_kind kind = FB_CONFLICT_NODE;
    const char *name = found->node;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        size_t length = strlen(places[i].prefix);
        if (strncmp(found->pointer, places[i].prefix, length) != 0) continue;
        const fb_rows *rows = &m->tables[places[i].table];
        fb_row_id row = rows->first;
        for (unsigned long n = strtoul(found->pointer + length, NULL, 10); n && row.id; n--) row = rows->items[row.id].next;
        if (row.id) name = rows->items[row.id].name;
        kind = places[i].kind;
    }
    fb_conflicts_add(m->conflicts, kind, "invalid", name, "together the changes make no valid graph: %s", found->message);
}

static fb_status finish(fb_merging *m, fb_graph **out) {
    fb_error found = {0};
    fb_status status = fb_rows_graph(m->tables, m->work.watch, out, &found);
    if (status == FB_NO_MEMORY) return fb_fail_memory(m->error);
    if (status == FB_BUSY) return fb_fail(m->error, status, found.code, "", "%s", found.message);
    if (status) report_invalid(m, &found);
    return FB_OK;
}

static fb_status merge(fb_merging *m, fb_graph **out) {
    fb_status status = fb_carry_back(&m->sides, m->conflicts, m->error);
    if (!status) status = watch(m);
    if (!status) status = fb_diff_make_metered(m->sides.base, m->sides.theirs, &m->work, &m->diff, m->error);
    fb_status (*const steps[])(fb_merging *) = {fb_merge_rows,  fb_merge_checkpoint, fb_merge_values,
                                                fb_merge_order, fb_merge_tensors,    watch};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !status; i++) {
        status = watch(m);
        if (!status) status = steps[i](m);
    }
    if (!status && !m->conflicts->count && !m->conflicts->failed) status = finish(m, out);
    if (!status) status = watch(m);
    if (!status && *out) status = fb_merge_memory(m, *out);
    if (!status) status = watch(m);
    if (!status && m->conflicts->failed) status = fb_fail_memory(m->error);
    if (!status && m->conflicts->count)
        status = fb_fail(m->error, FB_CONFLICT, "conflict", "",
                         "the graph has changed since the run, in %zu place(s) that do not fit", m->conflicts->count);
    return status;
}

fb_status fb_merge(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, const fb_merge_facts *facts,
                   fb_graph **out, fb_conflicts *conflicts, fb_error *error) {
    fb_merging m = {.facts = facts && facts->source ? facts : NULL,
                    .conflicts = conflicts,
                    .work = {.watch = facts ? facts->watch : NULL},
                    .error = error};
    fb_graph *merged = NULL, *new_base = NULL, *new_theirs = NULL;
    fb_status status = fb_merge_adapters(base, theirs, ours, &m.work, &new_base, &new_theirs, error);
    if (!status)
        status = fb_sides_make(new_base ? new_base : base, new_theirs ? new_theirs : theirs, ours, &m.work, &m.sides, error);
    m.sides.blobs = facts ? facts->blobs : NULL;
    if (!status) status = merge(&m, &merged);
    if (status) fb_graph_free(merged);
    else *out = merged;
    for (size_t i = 0; i < FB_TABLES; i++) fb_rows_free(&m.tables[i]);
    fb_map_free(&m.edits);
    fb_map_free(&m.alike);
    fb_buffer_free(&m.trail_parts);
    fb_buffer_free(&m.trail_nodes);
    fb_diff_free(&m.diff);
    fb_sides_free(&m.sides);
    fb_graph_free(new_base);
    fb_graph_free(new_theirs);
    return status;
}
