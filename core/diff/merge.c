#include "core/diff/merge.h"

#include <stdlib.h>
#include <string.h>

#include "core/diff/diff.h"
#include "core/diff/merging.h"
#include "core/document/document.h"
#include "core/weights/inputs.h"

/* What the conflicts of a table are called. */
typedef struct table_facts {
    fb_conflict_kind kind;
    const char *noun, *changed, *taken;
} table_facts;

static const table_facts conflict_names[FB_TABLES] = {
    [FB_GRAPH_TABLE] = {FB_CONFLICT_MODULE, "graph", "changed-module", "path-taken"},
    [FB_NODE_TABLE] = {FB_CONFLICT_NODE, "node", "changed-node", "name-taken"},
    [FB_MODULE_TABLE] = {FB_CONFLICT_MODULE, "module", "changed-module", "path-taken"},
};

static uint64_t key_of(fb_document_table table, const char *name) {
    return fb_hash_text(name, (uint64_t)table);
}

/* An exporter may give the members of an object in another order. */
static bool is_same(const fb_merging *m, fb_span a, fb_span b) {
    return fb_span_alike(a, b, &m->conflicts->failed);
}

static fb_span text_of(const fb_merging *m, fb_document_table table, fb_row_id row) {
    return m->tables[table].items[row.id].text;
}

const fb_edit *fb_merging_edit(const fb_merging *m, fb_document_table table, const char *name) {
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&m->edits, key_of(table, name), &cursor))) {
        const fb_edit *edit = &m->diff.edits[found - 1];
        if (edit->table == table && strcmp(edit->name, name) == 0) return edit;
    }
    return NULL;
}

bool fb_merging_recomputes(const fb_edit *edit) {
    for (size_t i = 0; i < edit->member_count; i++) {
        if (strncmp(edit->members[i].pointer, "/meta/", 6) != 0) return true;
    }
    return edit->kind != FB_EDIT_SET;
}

/* ---- nodes that went ---------------------------------------------------------------------------------------------------- */

static const char *const computing_members[] = {"/op", "/target", "/args", "/kwargs", "/type"};
enum { COMPUTING_COUNT = sizeof computing_members / sizeof *computing_members };

static uint64_t likeness(fb_span node) {
    uint64_t hash = 0;
    for (size_t i = 0; i < COMPUTING_COUNT; i++) {
        fb_span value = fb_span_at(node, computing_members[i]);
        hash = fb_hash(value.text ? value.text : "", value.size, hash + 1);
    }
    return hash;
}

static bool is_alike(const fb_merging *m, fb_span a, fb_span b) {
    for (size_t i = 0; i < COMPUTING_COUNT; i++) {
        if (!is_same(m, fb_span_at(a, computing_members[i]), fb_span_at(b, computing_members[i]))) return false;
    }
    return true;
}

/* The new node of ours that is `node` but for its name and meta, or none. */
static fb_row_id find_alike(fb_merging *m, fb_span node, fb_status *status) {
    const fb_rows *rows = &m->tables[FB_NODE_TABLE];
    for (fb_row_id row = rows->first; row.id && !m->knows_alike && fb_merging_goes_on(m); row = rows->items[row.id].next) {
        if (rows->items[row.id].is_new || fb_node_find(m->sides.base, FB_MAIN_PROGRAM, rows->items[row.id].name).id) continue;
        uint64_t key = likeness(rows->items[row.id].text); /* of nodes that are alike, the first is enough */
        if (!fb_map_get(&m->alike, key) && !fb_map_add(&m->alike, key, row.id)) *status = fb_fail_memory(m->error);
    }
    m->knows_alike = true;
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&m->alike, likeness(node), &cursor))) {
        if (is_alike(m, rows->items[found].text, node)) return (fb_row_id){found};
    }
    return (fb_row_id){0};
}

fb_status fb_merging_report_missing(fb_merging *m, const char *name, const char *needed_by) {
    fb_status status = FB_OK;
    fb_row_id alike = {0};
    fb_buffer text = {0};
    fb_node node = fb_node_find(m->sides.base, FB_MAIN_PROGRAM, name);
    if (node.id) fb_node_write(m->sides.base, node, &text);
    if (text.failed) status = fb_fail_memory(m->error);
    else if (node.id) alike = find_alike(m, (fb_span){text.data, text.size}, &status);
    fb_buffer_free(&text);
    if (status) return status;
    const char *subject = needed_by ? needed_by : "what is undone";
    if (alike.id)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "renamed-node", name,
                         "%s needs node %s, which seems to be called %s now", subject, name,
                         m->tables[FB_NODE_TABLE].items[alike.id].name);
    else
        fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "missing-node", name, "%s needs node %s, which is not there", subject,
                         name);
    return FB_OK;
}

/* ---- single edits ------------------------------------------------------------------------------------------------------- */

/* What reads another node than it did may do so because that one was renamed: then this is said, too. */
static void report_missing_inputs(fb_merging *m, const char *reader) {
    const fb_graph *base = m->sides.base;
    fb_node node = fb_node_find(base, FB_MAIN_PROGRAM, reader);
    for (uint32_t e = node.id ? fb_input_first(base, node) : 0; e && fb_merging_goes_on(m); e = fb_input_next(base, e)) {
        const char *input = fb_node_name(base, fb_edge_input(base, e));
        if (fb_node_find(m->sides.ours, FB_MAIN_PROGRAM, input).id) continue;
        if (fb_merging_report_missing(m, input, reader)) m->conflicts->failed = true;
    }
}

static void report_changed(fb_merging *m, const fb_edit *edit, const char *what) {
    const table_facts *f = &conflict_names[edit->table];
    fb_conflicts_add(m->conflicts, f->kind, f->changed, edit->name, "%s of %s %s has changed since the run", what, f->noun,
                     edit->name);
    if (edit->table == FB_NODE_TABLE) report_missing_inputs(m, edit->name);
}

/* A row that goes, and is not what it was: in which members. */
static void report_members(fb_merging *m, const fb_edit *edit, fb_span now) {
    fb_member_edit *members;
    size_t count = 0;
    fb_buffer what = {0};
    if (!fb_members_compare(edit->table, edit->row, now, &m->diff.arena, &members, &count)) m->conflicts->failed = true;
    for (size_t i = 0; i < count; i++) {
        if (is_same(m, members[i].was, members[i].now)) continue;
        fb_buffer_printf(&what, "%s%s", what.size ? ", " : "", members[i].pointer);
    }
    if (what.failed) m->conflicts->failed = true;
    else report_changed(m, edit, fb_buffer_text(&what));
    fb_buffer_free(&what);
}

/* Whether a description differs that both graphs give. */
static bool is_redescribed(fb_span a, fb_span b) {
    static const char *const members[] = {"/meta/shape", "/meta/dtype"};
    for (size_t i = 0; i < 2; i++) {
        fb_span x = fb_span_at(a, members[i]), y = fb_span_at(b, members[i]);
        if (x.text && y.text && !fb_span_equal(x, y)) return true;
    }
    return false;
}

/* A node may have got other notes in its meta; a module may not differ at all. */
static void erase_row(fb_merging *m, const fb_edit *edit, fb_row_id row) {
    fb_span now = text_of(m, edit->table, row);
    if (edit->table == FB_NODE_TABLE) {
        for (size_t i = 0; i < COMPUTING_COUNT; i++) {
            const char *member = computing_members[i];
            if (!is_same(m, fb_span_at(now, member), fb_span_at(edit->row, member))) report_changed(m, edit, member);
        }
        if (is_redescribed(now, edit->row)) report_changed(m, edit, "the shape or dtype");
    } else if (!is_same(m, now, edit->row)) {
        report_members(m, edit, now);
    }
    fb_rows_take_out(&m->tables[edit->table], row);
}

/* The list of marks: what was added since stays, what theirs took away goes, what theirs has comes. */
static void merge_marks(fb_span now, fb_span was, fb_span to, fb_buffer *out) {
    const fb_span lists[] = {now, to};
    fb_buffer_char(out, '[');
    for (size_t l = 0; l < 2; l++) {
        fb_span mark, other;
        for (size_t cursor = 0; fb_span_next(lists[l], &cursor, NULL, &mark);) {
            bool is_in_was = false, is_in_to = false, is_in_now = false;
            for (size_t c = 0; fb_span_next(was, &c, NULL, &other);) is_in_was |= fb_span_equal(mark, other);
            for (size_t c = 0; fb_span_next(to, &c, NULL, &other);) is_in_to |= fb_span_equal(mark, other);
            for (size_t c = 0; fb_span_next(now, &c, NULL, &other);) is_in_now |= fb_span_equal(mark, other);
            bool stays = l == 0 ? is_in_to || !is_in_was : !is_in_now && !is_in_was;
            if (!stays) continue;
            if (out->size > 1) fb_buffer_char(out, ',');
            fb_buffer_append(out, mark.text, mark.size);
        }
    }
    fb_buffer_char(out, ']');
}

/* A module of another type uses what it owns in another way. */
static void check_type(fb_merging *m, const char *path) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    fb_module before = fb_module_find(base, path), now = fb_module_find(ours, path);
    if (!before.id || !now.id) return;
    const char *was = fb_text(base, fb_module_at(base, before)->type), *is = fb_text(ours, fb_module_at(ours, now)->type);
    if (strcmp(was, is) != 0)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "changed-module", path,
                         "/type of module %s has changed since the run", path);
}

/* Also where the module stays as it is, and a tensor of it does not; or where what comes back has that tensor, too, and the
 * module may write to it. */
static fb_status check_types(fb_merging *m) {
    const fb_graph *base = m->sides.base;
    bool *is_shared = calloc(fb_tensor_limit(base), sizeof *is_shared);
    fb_inputs_walk walk;
    bool ok = fb_inputs_begin(&walk, base) && is_shared;
    for (fb_tensor t = fb_first_tensor(base); ok && t.id && fb_merging_goes_on(m); t = fb_tensor_at(base, t)->next) {
        if (fb_is_dirty(&m->sides, t)) fb_inputs_visit(&walk, t, fb_mark_tensor, is_shared);
    }
    ok = fb_inputs_end(&walk) && ok;
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; ok && fb_merging_goes_on(m) && fb_slot_next(base, &cursor, &slot);) {
        if (is_shared[slot.tensor.id]) check_type(m, fb_text(base, fb_module_at(base, slot.module)->path));
    }
    free(is_shared);
    return ok ? FB_OK : fb_fail_memory(m->error);
}

static fb_status set_row(fb_merging *m, const fb_edit *edit, fb_row_id row) {
    fb_span now = text_of(m, edit->table, row);
    if (edit->table == FB_MODULE_TABLE) check_type(m, edit->name);
    fb_change *changes = calloc(edit->member_count, sizeof *changes);
    fb_buffer marks = {0}, text = {0};
    size_t count = 0;
    if (!changes) return fb_fail_memory(m->error);
    for (size_t i = 0; i < edit->member_count; i++) {
        const fb_member_edit *member = &edit->members[i];
        fb_span is = fb_span_at(now, member->pointer);
        if (is_same(m, is, member->was)) {
            changes[count++] = (fb_change){member->pointer, member->now};
        } else if (edit->table == FB_NODE_TABLE && strcmp(member->pointer, "/meta/transformations") == 0) {
            merge_marks(is, member->was, member->now, &marks);
            changes[count++] = (fb_change){member->pointer, {marks.data, marks.size}};
        } else if (!is_same(m, is, member->now)) {
            report_changed(m, edit, member->pointer);
        }
    }
    bool ok = !marks.failed && (fb_span_write_changed(now, changes, count, &text) || !text.failed) && !text.failed &&
              fb_rows_set(&m->tables[edit->table], row, (fb_span){text.data, text.size});
    free(changes);
    fb_buffer_free(&marks);
    fb_buffer_free(&text);
    return ok ? FB_OK : fb_fail_memory(m->error);
}

/* A row that an edit moves, and a module that it erases, may be gone already: whoever needs it is a conflict of its own. */
static fb_status find_row(fb_merging *m, const fb_edit *edit, fb_row_id *row) {
    *row = fb_rows_find(&m->tables[edit->table], edit->name);
    if (row->id || edit->kind == FB_EDIT_INSERT || edit->kind == FB_EDIT_MOVE) return FB_OK;
    if (edit->table == FB_NODE_TABLE) return fb_merging_report_missing(m, edit->name, NULL);
    if (edit->kind == FB_EDIT_SET)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "missing-module", edit->name,
                         "what is undone changes module %s, which is not there", edit->name);
    return FB_OK;
}

static void check_free(fb_merging *m, const fb_edit *edit, fb_row_id row) {
    const table_facts *f = &conflict_names[edit->table];
    if (row.id && !is_same(m, text_of(m, edit->table, row), edit->row))
        fb_conflicts_add(m->conflicts, f->kind, f->taken, edit->name,
                         "a %s %s comes back, and there is another one of that name", f->noun, edit->name);
}

static fb_status take_edit(fb_merging *m, size_t index) {
    const fb_edit *edit = &m->diff.edits[index];
    fb_row_id row;
    if (edit->kind != FB_EDIT_SET && !fb_map_add(&m->edits, key_of(edit->table, edit->name), (uint32_t)index + 1))
        return fb_fail_memory(m->error);
    if (edit->table == FB_TENSOR_TABLE) return FB_OK; /* fb_merge_tensors */
    fb_status status = find_row(m, edit, &row);
    if (status) return status;
    if (edit->kind == FB_EDIT_INSERT) check_free(m, edit, row);
    else if (row.id && edit->kind == FB_EDIT_ERASE) erase_row(m, edit, row);
    else if (row.id && edit->kind == FB_EDIT_SET) return set_row(m, edit, row);
    return FB_OK;
}

/* ---- places ------------------------------------------------------------------------------------------------------------- */

/* Nothing comes behind the output, whatever it is called now. */
static fb_row_id output_of(const fb_merging *m, fb_document_table table) {
    fb_row_id last = m->tables[table].last;
    bool is_output = table == FB_NODE_TABLE && last.id &&
                     fb_span_equal(fb_span_at(text_of(m, table, last), "/op"), fb_span_of("\"output\""));
    return is_output ? last : (fb_row_id){0};
}

fb_status fb_merging_place(fb_merging *m, fb_document_table table, const fb_rows *theirs,
                           bool (*is_placed)(const fb_merging *, fb_document_table, const char *)) {
    fb_rows *rows = &m->tables[table];
    fb_row_id behind = output_of(m, table);
    for (fb_row_id at = theirs->last; at.id && fb_merging_goes_on(m); at = theirs->items[at.id].previous) {
        const fb_row *row = &theirs->items[at.id];
        fb_row_id here = fb_rows_find(rows, row->name);
        if (is_placed(m, table, row->name)) {
            if (here.id && !rows->items[here.id].is_new) fb_rows_move(rows, here, behind);
            else if (!here.id && !(here = fb_rows_insert(rows, row->name, row->text, behind)).id)
                return fb_fail_memory(m->error);
        }
        if (here.id) behind = here;
    }
    return FB_OK;
}

static bool is_inserted_or_moved(const fb_merging *m, fb_document_table table, const char *name) {
    const fb_edit *edit = fb_merging_edit(m, table, name);
    return edit && (edit->kind == FB_EDIT_INSERT || (edit->kind == FB_EDIT_MOVE && fb_rows_find(&m->tables[table], name).id));
}

static fb_status place_rows(fb_merging *m, fb_document_table table) {
    fb_rows theirs = {.work = &m->work};
    fb_status status = fb_rows_read(&theirs, m->sides.theirs, table) ? FB_OK : fb_fail_memory(m->error);
    if (!status) status = fb_work_status(&m->work, m->error);
    if (!status) status = fb_merging_place(m, table, &theirs, is_inserted_or_moved);
    fb_rows_free(&theirs);
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

/* Asked after each step: what a step left out when it was stopped does not count then. */
static fb_status watch(fb_merging *m) {
    fb_work_ask(&m->work);
    return fb_work_status(&m->work, m->error);
}

static fb_status merge_rows(fb_merging *m) {
    for (fb_document_table table = FB_GRAPH_TABLE; table < FB_TABLES; table++) {
        m->tables[table].work = &m->work;
        if (!fb_rows_read(&m->tables[table], m->sides.ours, table)) return fb_fail_memory(m->error);
    }
    fb_status status = fb_work_status(&m->work, m->error);
    for (size_t i = 0; i < m->diff.count && !status; i++) {
        status = fb_merging_goes_on(m) ? take_edit(m, i) : watch(m);
    }
    if (!status) status = check_types(m);
    if (!status) status = place_rows(m, FB_NODE_TABLE);
    if (!status) status = place_rows(m, FB_MODULE_TABLE);
    return status;
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
    fb_status (*const steps[])(fb_merging *) = {merge_rows,     fb_merge_checkpoint, fb_merge_users, fb_merge_values,
                                                fb_merge_order, fb_merge_tensors,    watch};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !status; i++) {
        status = watch(m);
        if (!status) status = steps[i](m);
    }
    if (!status && !m->conflicts->count && !m->conflicts->failed) status = finish(m, out);
    if (!status) status = watch(m);
    if (!status && *out) status = fb_merge_memory(m, *out);
    if (!status && *out) fb_merge_effects(m, *out);
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
    fb_graph *merged = NULL;
    fb_status status = fb_sides_make(base, theirs, ours, &m.work, &m.sides, error);
    m.sides.blobs = facts ? facts->blobs : NULL;
    if (!status) status = merge(&m, &merged);
    if (status) fb_graph_free(merged);
    else *out = merged;
    for (size_t i = 0; i < FB_TABLES; i++) fb_rows_free(&m.tables[i]);
    fb_map_free(&m.edits);
    fb_map_free(&m.alike);
    fb_buffer_free(&m.makings);
    fb_buffer_free(&m.ingredients);
    fb_diff_free(&m.diff);
    fb_sides_free(&m.sides);
    return status;
}
