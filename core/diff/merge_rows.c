/* The edits of base -> theirs, done to the rows of ours; then every node after what it reads, and the tensors that the merged
 * modules need. */
#include <stdlib.h>
#include <string.h>

#include "core/diff/merging.h"
#include "core/document/document.h"
#include "core/weights/inputs.h"

/* The words of a table in conflicts. */
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

static fb_span text_of(fb_merging *m, fb_document_table table, fb_row_id row) {
    fb_span text = fb_rows_text(&m->tables[table], row);
    m->conflicts->failed |= !text.text;
    return text;
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

bool fb_merging_reads(fb_merging *m, const fb_graph *graph, fb_node reader, fb_node input) {
    if (!reader.id || !input.id) return false;
    /* Either may have very many of the others: both are walked, to the end of the shorter. */
    uint32_t e = fb_input_first(graph, reader), back = fb_user_first(graph, input);
    for (; e && back && fb_work_goes_on(&m->work, 1); e = fb_input_next(graph, e), back = fb_user_next(graph, back)) {
        if (fb_edge_input(graph, e).id == input.id || fb_edge_user(graph, back).id == reader.id) return true;
    }
    return false;
}

/* ---- nodes that went --------------------------------------------------------------------------------------------------- */

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

/* The new node of ours that differs from `node` in its name and meta only, or none. */
static fb_row_id find_alike(fb_merging *m, fb_span node, fb_status *status) {
    const fb_rows *rows = &m->tables[FB_NODE_TABLE];
    for (fb_row_id row = rows->first; row.id && !m->knows_alike && fb_merging_goes_on(m); row = rows->items[row.id].next) {
        if (rows->items[row.id].is_new || fb_node_named(m->sides.base, rows->items[row.id].name).id) continue;
        uint64_t key = likeness(text_of(m, FB_NODE_TABLE, row)); /* of nodes that are alike, the first is enough */
        if (!fb_map_get(&m->alike, key) && !fb_map_add(&m->alike, key, row.id)) *status = fb_fail_memory(m->error);
    }
    m->knows_alike = true;
    uint32_t cursor = 0, found;
    while ((found = fb_map_next(&m->alike, likeness(node), &cursor))) {
        if (is_alike(m, text_of(m, FB_NODE_TABLE, (fb_row_id){found}), node)) return (fb_row_id){found};
    }
    return (fb_row_id){0};
}

static fb_status report_missing(fb_merging *m, const char *name, const char *needed_by) {
    fb_status status = FB_OK;
    fb_row_id alike = {0};
    fb_buffer text = {0};
    fb_node node = fb_node_named(m->sides.base, name);
    if (node.id) fb_node_write(m->sides.base, node, &text);
    if (text.failed) status = fb_fail_memory(m->error);
    else if (node.id) alike = find_alike(m, (fb_span){text.data, text.size}, &status);
    fb_buffer_free(&text);
    if (status) return status;
    const char *subject = needed_by ? needed_by : "undo";
    if (alike.id)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "renamed-node", name,
                         "%s needs node %s, which seems to have been renamed to %s", subject, name,
                         m->tables[FB_NODE_TABLE].items[alike.id].name);
    else
        fb_conflicts_add(m->conflicts, FB_CONFLICT_NODE, "missing-node", name, "%s needs node %s, which is not there", subject,
                         name);
    return FB_OK;
}

/* ---- single edits ------------------------------------------------------------------------------------------------------ */

/* A node may read another one because its input was renamed: then that is reported too. */
static void report_missing_inputs(fb_merging *m, const char *reader) {
    const fb_graph *base = m->sides.base;
    fb_node node = fb_node_named(base, reader);
    for (uint32_t e = node.id ? fb_input_first(base, node) : 0; e && fb_merging_goes_on(m); e = fb_input_next(base, e)) {
        const char *input = fb_node_name(base, fb_edge_input(base, e));
        if (fb_node_named(m->sides.ours, input).id) continue;
        if (report_missing(m, input, reader)) m->conflicts->failed = true;
    }
}

static void report_changed(fb_merging *m, const fb_edit *edit, const char *what) {
    const table_facts *f = &conflict_names[edit->table];
    fb_conflicts_add(m->conflicts, f->kind, f->changed, edit->name, "%s of %s %s has changed since the run", what, f->noun,
                     fb_shown_path(edit->name));
    if (edit->table == FB_NODE_TABLE) report_missing_inputs(m, edit->name);
}

/* A row that is erased, and changed: in which members. */
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

/* Finds out if both rows describe their value, and differently. */
static bool is_redescribed(fb_span a, fb_span b) {
    static const char *const members[] = {"/meta/shape", "/meta/dtype"};
    for (size_t i = 0; i < 2; i++) {
        fb_span x = fb_span_at(a, members[i]), y = fb_span_at(b, members[i]);
        if (x.text && y.text && !fb_span_equal(x, y)) return true;
    }
    return false;
}

/* A node may have new meta; a module must be unchanged. */
static void erase_row(fb_merging *m, const fb_edit *edit, fb_row_id row) {
    fb_span now = text_of(m, edit->table, row);
    bool is_as_it_was = fb_span_equal(now, edit->row); /* as most are */
    if (edit->table == FB_NODE_TABLE && !is_as_it_was) {
        for (size_t i = 0; i < COMPUTING_COUNT; i++) {
            const char *member = computing_members[i];
            if (!is_same(m, fb_span_at(now, member), fb_span_at(edit->row, member))) report_changed(m, edit, member);
        }
        if (is_redescribed(now, edit->row)) report_changed(m, edit, "the shape or dtype");
    } else if (!is_as_it_was && !is_same(m, now, edit->row)) {
        report_members(m, edit, now);
    }
    fb_rows_take_out(&m->tables[edit->table], row);
}

/* The list of marks: those that ours or theirs added, without those that theirs removed. */
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

/* A module of another type uses its tensors in another way. */
static void check_type(fb_merging *m, const char *path) {
    const fb_graph *base = m->sides.base, *ours = m->sides.ours;
    fb_module before = fb_module_find(base, path), now = fb_module_find(ours, path);
    if (!before.id || !now.id) return;
    const char *was = fb_text(base, fb_module_at(base, before)->type), *is = fb_text(ours, fb_module_at(ours, now)->type);
    if (strcmp(was, is) != 0)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "changed-module", path,
                         "/type of module %s has changed since the run", fb_shown_path(path));
}

/* Also where the module is not edited but one of its tensors is stale; or where a module that comes back shares the tensor, and
 * this one may write to it. */
static fb_status check_types(fb_merging *m) {
    const fb_graph *base = m->sides.base;
    bool *is_shared = calloc(fb_tensor_limit(base), sizeof *is_shared);
    fb_inputs_walk walk;
    bool ok = fb_inputs_begin(&walk, base) && is_shared;
    for (fb_tensor t = fb_first_tensor(base); ok && t.id && fb_merging_goes_on(m); t = fb_tensor_at(base, t)->next) {
        if (fb_is_stale(&m->sides, t)) fb_inputs_visit(&walk, t, fb_mark_tensor, is_shared);
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

/* A row that an edit moves, and a module that it erases, may be gone already: a reader of it is another conflict. */
static fb_status find_row(fb_merging *m, const fb_edit *edit, fb_row_id *row) {
    *row = fb_rows_find(&m->tables[edit->table], edit->name);
    if (row->id || edit->kind == FB_EDIT_INSERT || edit->kind == FB_EDIT_MOVE) return FB_OK;
    if (edit->table == FB_NODE_TABLE) return report_missing(m, edit->name, NULL);
    if (edit->kind == FB_EDIT_SET)
        fb_conflicts_add(m->conflicts, FB_CONFLICT_MODULE, "missing-module", edit->name,
                         "undo changes module %s, which is not there", edit->name);
    return FB_OK;
}

static void check_free(fb_merging *m, const fb_edit *edit, fb_row_id row) {
    const table_facts *f = &conflict_names[edit->table];
    if (row.id && !is_same(m, text_of(m, edit->table, row), edit->row))
        fb_conflicts_add(m->conflicts, f->kind, f->taken, edit->name,
                         "undo brings back %s %s, and there is another one of that name", f->noun, edit->name);
}

static fb_status take_edit(fb_merging *m, size_t index) {
    const fb_edit *edit = &m->diff.edits[index];
    fb_row_id row;
    if (edit->kind != FB_EDIT_SET && !fb_map_add(&m->edits, key_of(edit->table, edit->name), (uint32_t)index + 1))
        return fb_fail_memory(m->error);
    if (edit->table == FB_TENSOR_TABLE) return FB_OK; /* fb_merge_tensors */
    fb_status status = find_row(m, edit, &row);
    if (status) return status;
    if (row.id && !text_of(m, edit->table, row).text) return fb_fail_memory(m->error);
    if (edit->kind == FB_EDIT_INSERT) check_free(m, edit, row);
    else if (row.id && edit->kind == FB_EDIT_ERASE) erase_row(m, edit, row);
    else if (row.id && edit->kind == FB_EDIT_SET) return set_row(m, edit, row);
    return FB_OK;
}

/* ---- places ------------------------------------------------------------------------------------------------------------ */

/* Nothing follows the output, regardless of its name. */
static fb_row_id output_of(fb_merging *m, fb_document_table table) {
    fb_row_id last = m->tables[table].last;
    bool is_output = table == FB_NODE_TABLE && last.id &&
                     fb_span_equal(fb_span_at(text_of(m, table, last), "/op"), fb_span_of("\"output\""));
    return is_output ? last : (fb_row_id){0};
}

/* Puts rows that theirs has and the list has not before the next row of theirs that the list has. `is_placed` says which rows
 * of theirs (by name) are to be put in or moved; the text of a new row comes along. */
static fb_status place(fb_merging *m, fb_document_table table, fb_rows *theirs,
                       bool (*is_placed)(const fb_merging *, fb_document_table, const char *)) {
    fb_rows *rows = &m->tables[table];
    fb_row_id behind = output_of(m, table);
    for (fb_row_id at = theirs->last; at.id && fb_merging_goes_on(m); at = theirs->items[at.id].previous) {
        const fb_row *row = &theirs->items[at.id];
        fb_row_id here = fb_rows_find(rows, row->name);
        if (is_placed(m, table, row->name)) {
            if (here.id && !rows->items[here.id].is_new) fb_rows_move(rows, here, behind);
            else if (!here.id && !(here = fb_rows_insert(rows, row->name, fb_rows_text(theirs, at), behind)).id)
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
    if (!status) status = place(m, table, &theirs, is_inserted_or_moved);
    fb_rows_free(&theirs);
    return status;
}

fb_status fb_merge_rows(fb_merging *m) {
    for (fb_document_table table = FB_GRAPH_TABLE; table < FB_TABLES; table++) {
        m->tables[table].work = &m->work;
        if (!fb_rows_read(&m->tables[table], m->sides.ours, table)) return fb_fail_memory(m->error);
    }
    fb_status status = fb_work_status(&m->work, m->error);
    for (size_t i = 0; i < m->diff.count && !status; i++) {
        status = fb_merging_goes_on(m) ? take_edit(m, i) : fb_work_status(&m->work, m->error);
    }
    if (!status) status = check_types(m);
    if (!status) status = place_rows(m, FB_NODE_TABLE);
    if (!status) status = place_rows(m, FB_MODULE_TABLE);
    return status;
}

/* ---- order ------------------------------------------------------------------------------------------------------------- */

/* Every node follows what it reads. An inserted node precedes its next neighbour of theirs; where ours reordered the
 * neighbours, it moves behind the last of its inputs. */
typedef struct waiter {
    uint32_t row, next;
} waiter;

typedef struct ordering {
    fb_merging *m;
    fb_rows *rows;
    bool *is_out;         /* by row: it is in its place */
    uint32_t *missing;    /* by row: inputs that are not placed yet */
    uint32_t *first_wait; /* by row: who waits for it, 1 + index into waiters */
    fb_buffer waiters;
    fb_buffer text; /* of the row that is looked at */
    fb_status status;
} ordering;

typedef void visit_input(ordering *o, uint32_t reader, const char *name);

static void visit_name(ordering *o, uint32_t reader, fb_span quoted, visit_input *visit) {
    char *name = fb_span_unquote(quoted);
    if (name) visit(o, reader, name);
    else o->status = fb_fail_memory(o->m->error);
    free(name);
}

/* Documents are nested to a bounded depth. */
static void each_input(ordering *o, uint32_t reader, fb_span value, visit_input *visit) {
    fb_span key, item;
    for (size_t cursor = 0; !o->status && fb_merging_goes_on(o->m) && fb_span_next(value, &cursor, &key, &item);) {
        if (key.text && fb_span_equal(key, fb_span_of("$node"))) visit_name(o, reader, item, visit);
        else each_input(o, reader, item, visit);
    }
}

static void each_input_of(ordering *o, uint32_t row, visit_input *visit) {
    o->text.size = 0;
    fb_rows_write(o->rows, (fb_row_id){row}, &o->text);
    if (o->text.failed) o->status = fb_fail_memory(o->m->error);
    fb_span text = {o->text.data, o->text.size};
    each_input(o, row, fb_span_at(text, "/args"), visit);
    each_input(o, row, fb_span_at(text, "/kwargs"), visit);
}

/* A reader that base also has was already reported as a conflict. */
static void report_absent(ordering *o, uint32_t reader, const char *name) {
    const fb_edit *edit = fb_merging_edit(o->m, FB_NODE_TABLE, name);
    const char *reader_name = o->rows->items[reader].name;
    bool is_erased = edit && edit->kind == FB_EDIT_ERASE;
    const fb_graph *base = o->m->sides.base;
    fb_node reader_node = fb_node_named(base, reader_name), input = fb_node_named(base, name);
    if (is_erased && fb_merging_reads(o->m, base, reader_node, input)) return;
    if (is_erased)
        fb_conflicts_add(o->m->conflicts, FB_CONFLICT_NODE, "new-users", name, "%s now reads %s, which undo would remove",
                         reader_name, name);
    else o->status = report_missing(o->m, name, reader_name);
}

static void wait_for(ordering *o, uint32_t reader, const char *name) {
    fb_row_id input = fb_rows_find(o->rows, name);
    if (!input.id) {
        report_absent(o, reader, name);
        return;
    }
    if (o->is_out[input.id]) return;
    fb_buffer_append(&o->waiters, &(waiter){reader, o->first_wait[input.id]}, sizeof(waiter));
    if (o->waiters.failed) o->status = fb_fail_memory(o->m->error);
    o->first_wait[input.id] = (uint32_t)(o->waiters.size / sizeof(waiter));
    o->missing[reader]++;
}

static void check_input(ordering *o, uint32_t reader, const char *name) {
    fb_row_id input = fb_rows_find(o->rows, name);
    const char *reader_name = o->rows->items[reader].name;
    if (!input.id) report_absent(o, reader, name);
    else if (!o->is_out[input.id])
        fb_conflicts_add(o->m->conflicts, FB_CONFLICT_NODE, "not-topological", reader_name,
                         "%s would stand before %s, which it reads", reader_name, name);
}

/* The row is placed now: the rows that only waited for it come next. */
static void settle(ordering *o, uint32_t row) {
    fb_row_id next = o->rows->items[row].next;
    o->is_out[row] = true;
    for (uint32_t w = o->first_wait[row]; w && !o->status && fb_merging_goes_on(o->m);) {
        waiter waiting;
        memcpy(&waiting, o->waiters.data + (size_t)(w - 1) * sizeof waiting, sizeof waiting);
        if (--o->missing[waiting.row] == 0) {
            fb_rows_move(o->rows, (fb_row_id){waiting.row}, next);
            next.id = waiting.row; /* the first to wait is placed first: waiters are listed last to first */
        }
        w = waiting.next;
    }
}

static void order_rows(ordering *o) {
    fb_rows *rows = o->rows;
    for (fb_row_id at = rows->first; at.id && !o->status && fb_merging_goes_on(o->m); at = rows->items[at.id].next) {
        if (o->is_out[at.id]) continue;
        if (!rows->items[at.id].is_new) {
            each_input_of(o, at.id, check_input);
            settle(o, at.id);
        } else if (!o->missing[at.id]) {
            each_input_of(o, at.id, wait_for);
            if (!o->missing[at.id]) settle(o, at.id);
        }
    }
    for (fb_row_id at = rows->first; at.id && !o->status && fb_merging_goes_on(o->m); at = rows->items[at.id].next) {
        if (!o->is_out[at.id]) each_input_of(o, at.id, check_input);
    }
}

fb_status fb_merge_order(fb_merging *m) {
    fb_rows *rows = &m->tables[FB_NODE_TABLE];
    size_t count = rows->count + 1;
    ordering o = {.m = m,
                  .rows = rows,
                  .is_out = calloc(count, sizeof *o.is_out),
                  .missing = calloc(count, sizeof *o.missing),
                  .first_wait = calloc(count, sizeof *o.first_wait)};
    if (o.is_out && o.missing && o.first_wait) order_rows(&o);
    else o.status = fb_fail_memory(m->error);
    free(o.is_out);
    free(o.missing);
    free(o.first_wait);
    fb_buffer_free(&o.waiters);
    fb_buffer_free(&o.text);
    return o.status;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

/* The tensors of the merged graph: those that its modules own, and those that their recipes read. */
typedef struct gathering {
    fb_merging *m;
    bool *is_ours, *is_theirs;              /* by tensor of the side: it is needed, and described there */
    bool *is_owned;                         /* by tensor of ours */
    fb_buffer stack;                        /* fb_tensor, then whether it is theirs */
    fb_tensor last_of_ours, last_of_theirs; /* found last */
    bool failed;
} gathering;

typedef struct chosen {
    fb_tensor tensor;
    bool is_theirs;
} chosen;

static bool same_row(gathering *g, const fb_graph *a, fb_tensor x, const fb_graph *b, fb_tensor y) {
    fb_buffer of_x = {0}, of_y = {0};
    fb_tensor_write(a, x, &of_x);
    fb_tensor_write(b, y, &of_y);
    g->failed |= of_x.failed || of_y.failed;
    bool is_same = !g->failed && of_x.size == of_y.size && memcmp(of_x.data, of_y.data, of_x.size) == 0;
    fb_buffer_free(&of_x);
    fb_buffer_free(&of_y);
    return is_same;
}

/* Chooses the description: if they differ, the one that changed since base, in itself or in what it is computed from. A source
 * without an owner whose bytes ours lost keeps theirs. */
static bool theirs_holds(gathering *g, const char *name, fb_tensor ours, fb_tensor theirs) {
    const fb_sides *sides = &g->m->sides;
    if (fb_map_get(&sides->stand_ins, theirs.id)) return false;
    if (same_row(g, sides->ours, ours, sides->theirs, theirs)) return false;
    fb_tensor base = fb_tensor_find(sides->base, name);
    if (base.id && !fb_is_stale(sides, base) && same_row(g, sides->base, base, sides->theirs, theirs))
        return !g->is_owned[ours.id] && !fb_tensor_has_known_bytes(sides->ours, ours) &&
               fb_tensor_has_known_bytes(sides->theirs, theirs) && !fb_tensor_at(sides->theirs, theirs)->recipe.id;
    if (!base.id || !same_row(g, sides->base, base, sides->ours, ours))
        fb_conflicts_add(g->m->conflicts, FB_CONFLICT_TENSOR, "changed-tensor", name,
                         "the description of %s has changed since the run, and undo would change it too", name);
    return true;
}

/* A name that no side has is left to the verifier. */
static void need(gathering *g, const char *name) {
    const fb_sides *sides = &g->m->sides;
    fb_tensor ours = fb_tensor_follow(sides->ours, name, &g->last_of_ours);
    fb_tensor theirs = fb_tensor_follow(sides->theirs, name, &g->last_of_theirs);
    if ((ours.id && g->is_ours[ours.id]) || (theirs.id && g->is_theirs[theirs.id]) || (!ours.id && !theirs.id)) return;
    bool is_theirs = theirs.id && (!ours.id || theirs_holds(g, name, ours, theirs));
    chosen choice = {is_theirs ? theirs : ours, is_theirs};
    *(is_theirs ? &g->is_theirs[theirs.id] : &g->is_ours[ours.id]) = true;
    fb_buffer_append(&g->stack, &choice, sizeof choice);
}

typedef struct reader {
    gathering *g;
    const fb_graph *graph;
} reader;

static void need_input(void *context, fb_tensor tensor) {
    const reader *r = context;
    need(r->g, fb_tensor_name(r->graph, tensor));
}

static void need_inputs(gathering *g) {
    while (g->stack.size && !g->stack.failed) {
        chosen top;
        g->stack.size -= sizeof top;
        memcpy(&top, g->stack.data + g->stack.size, sizeof top);
        reader r = {g, top.is_theirs ? g->m->sides.theirs : g->m->sides.ours};
        fb_value recipe = fb_tensor_at(r.graph, top.tensor)->recipe;
        if (recipe.id) fb_value_visit_tensors(r.graph, recipe, need_input, &r);
    }
}

static void need_owned(gathering *g, fb_span module) {
    static const char *const maps[] = {"/parameters", "/buffers"};
    for (size_t i = 0; i < 2; i++) {
        fb_span value;
        for (size_t cursor = 0; fb_span_next(fb_span_at(module, maps[i]), &cursor, NULL, &value);) {
            if (value.text[0] != '"') continue; /* null */
            char *name = fb_span_unquote(value);
            if (name) need(g, name);
            g->failed |= !name;
            free(name);
        }
    }
}

static bool is_put_in_or_moved(const fb_merging *m, fb_document_table table, const char *name) {
    const fb_edit *edit = fb_merging_edit(m, table, name);
    return !fb_tensor_find(m->sides.ours, name).id || (edit && edit->kind == FB_EDIT_MOVE);
}

/* Removes the rows of ours that are not needed, replaces those that theirs describes, and inserts those that only theirs has.
 */
static fb_status make_table(gathering *g) {
    fb_merging *m = g->m;
    fb_rows theirs = {0}, *rows = &m->tables[FB_TENSOR_TABLE];
    fb_status status = fb_rows_read(&theirs, m->sides.theirs, FB_TENSOR_TABLE) ? FB_OK : fb_fail_memory(m->error);
    g->last_of_ours = g->last_of_theirs = (fb_tensor){0};
    for (fb_row_id at = rows->first, next; at.id && !status; at = next) {
        next = rows->items[at.id].next;
        const char *name = rows->items[at.id].name;
        fb_tensor ours = fb_tensor_follow(m->sides.ours, name, &g->last_of_ours);
        fb_tensor there = fb_tensor_follow(m->sides.theirs, name, &g->last_of_theirs);
        fb_row_id row = there.id && g->is_theirs[there.id] ? fb_rows_find(&theirs, name) : (fb_row_id){0};
        if (row.id) status = fb_rows_set(rows, at, fb_rows_text(&theirs, row)) ? FB_OK : fb_fail_memory(m->error);
        else if (!g->is_ours[ours.id]) fb_rows_take_out(rows, at);
    }
    g->last_of_theirs = (fb_tensor){0};
    for (fb_row_id at = theirs.first, next; at.id && !status; at = next) {
        next = theirs.items[at.id].next;
        const char *name = theirs.items[at.id].name;
        fb_tensor tensor = fb_tensor_follow(m->sides.theirs, name, &g->last_of_theirs);
        bool is_stand_in = fb_map_get(&m->sides.stand_ins, tensor.id) != 0; /* its place in theirs says nothing */
        if (is_stand_in || (!g->is_theirs[tensor.id] && !fb_rows_find(rows, name).id)) fb_rows_take_out(&theirs, at);
    }
    if (!status) status = place(m, FB_TENSOR_TABLE, &theirs, is_put_in_or_moved);
    fb_rows_free(&theirs);
    return status;
}

fb_status fb_merge_tensors(fb_merging *m) {
    gathering g = {.m = m,
                   .is_ours = calloc(fb_tensor_limit(m->sides.ours), sizeof *g.is_ours),
                   .is_theirs = calloc(fb_tensor_limit(m->sides.theirs), sizeof *g.is_theirs),
                   .is_owned = calloc(fb_tensor_limit(m->sides.ours), sizeof *g.is_owned)};
    fb_status status = g.is_ours && g.is_theirs && g.is_owned ? FB_OK : fb_fail_memory(m->error);
    fb_slot slot;
    for (fb_slot_cursor cursor = {0}; !status && fb_slot_next(m->sides.ours, &cursor, &slot);)
        g.is_owned[slot.tensor.id] = true;
    const fb_rows *modules = &m->tables[FB_MODULE_TABLE];
    fb_buffer text = {0};
    for (fb_row_id at = modules->first; !status && at.id; at = modules->items[at.id].next) {
        text.size = 0;
        fb_rows_write(modules, at, &text);
        if (!text.failed) need_owned(&g, (fb_span){text.data, text.size});
        need_inputs(&g);
    }
    g.failed |= text.failed;
    fb_buffer_free(&text);
    if (!status && (g.failed || g.stack.failed)) status = fb_fail_memory(m->error);
    if (!status) status = make_table(&g);
    free(g.is_ours);
    free(g.is_theirs);
    free(g.is_owned);
    fb_buffer_free(&g.stack);
    return status;
}
