#include "tests/unit/diff_apply.h"

#include "core/diff/rows.h"

static const char *const table_names[FB_TABLES] = {"graph", "node", "module", "tensor"};

static fb_status does_not_fit(const fb_edit *edit, const char *why, fb_error *error) {
    fb_status status =
        fb_fail(error, FB_CONFLICT, "edit-does-not-fit", "", "the %s \"%.200s\" %s", table_names[edit->table], edit->name, why);
    if (edit->table == FB_NODE_TABLE) fb_error_set_node(error, edit->name);
    return status;
}

/* NULL is the end, which is always there. */
static bool find_place(const fb_rows *rows, const char *name, fb_row_id *place) {
    *place = name ? fb_rows_find(rows, name) : (fb_row_id){0};
    return !name || place->id;
}

static bool stands_before(const fb_rows *rows, fb_row_id row, const char *name) {
    fb_row_id place;
    return find_place(rows, name, &place) && rows->items[row.id].next.id == place.id;
}

static fb_status insert_row(fb_rows *rows, const fb_edit *edit, fb_error *error) {
    fb_row_id place;
    if (fb_rows_find(rows, edit->name).id) return does_not_fit(edit, "is there already", error);
    if (!find_place(rows, edit->before, &place)) return does_not_fit(edit, "would stand before one that is not there", error);
    return fb_rows_insert(rows, edit->name, edit->row, place).id ? FB_OK : fb_fail_memory(error);
}

static fb_status erase_row(fb_rows *rows, fb_row_id row, const fb_edit *edit, fb_error *error) {
    fb_span text = fb_rows_text(rows, row);
    if (!text.text) return fb_fail_memory(error);
    if (!fb_span_equal(text, edit->row)) return does_not_fit(edit, "is another one", error);
    if (!stands_before(rows, row, edit->before)) return does_not_fit(edit, "stands elsewhere", error);
    fb_rows_take_out(rows, row);
    return FB_OK;
}

static fb_status move_row(fb_rows *rows, fb_row_id row, const fb_edit *edit, fb_error *error) {
    fb_row_id place;
    if (!stands_before(rows, row, edit->was_before)) return does_not_fit(edit, "stands elsewhere", error);
    if (!find_place(rows, edit->before, &place)) return does_not_fit(edit, "would stand before one that is not there", error);
    fb_rows_move(rows, row, place);
    return FB_OK;
}

/* Every `was` holds when putting it there changes nothing. */
static fb_status set_row(fb_rows *rows, fb_row_id row, const fb_edit *edit, fb_buffer *changes, fb_buffer *text,
                         fb_error *error) {
    size_t size = edit->member_count * sizeof(fb_change);
    changes->size = text->size = 0;
    fb_change *items = (fb_change *)(void *)fb_buffer_reserve(changes, size);
    fb_span old = fb_rows_text(rows, row);
    if (!items || !old.text) return fb_fail_memory(error);
    for (size_t i = 0; i < edit->member_count; i++) items[i] = (fb_change){edit->members[i].pointer, edit->members[i].was};
    bool holds = fb_span_write_changed(old, items, edit->member_count, text);
    if (text->failed) return fb_fail_memory(error);
    if (!holds || !fb_span_equal(old, (fb_span){text->data, text->size})) {
        return does_not_fit(edit, "has another value than the edit was made for", error);
    }
    text->size = 0;
    for (size_t i = 0; i < edit->member_count; i++) items[i].value = edit->members[i].now;
    fb_span_write_changed(old, items, edit->member_count, text);
    bool ok = !text->failed && fb_rows_set(rows, row, (fb_span){text->data, text->size});
    return ok ? FB_OK : fb_fail_memory(error);
}

static fb_status apply_edits(const fb_diff *diff, fb_rows tables[FB_TABLES], fb_error *error) {
    fb_buffer changes = {0}, text = {0};
    fb_status status = FB_OK;
    for (size_t i = 0; i < diff->count && !status; i++) {
        const fb_edit *edit = &diff->edits[i];
        fb_rows *rows = &tables[edit->table];
        fb_row_id row = {0};
        if (edit->kind == FB_EDIT_INSERT) status = insert_row(rows, edit, error);
        else if (!(row = fb_rows_find(rows, edit->name)).id) status = does_not_fit(edit, "is not there", error);
        else if (edit->kind == FB_EDIT_ERASE) status = erase_row(rows, row, edit, error);
        else if (edit->kind == FB_EDIT_MOVE) status = move_row(rows, row, edit, error);
        else status = set_row(rows, row, edit, &changes, &text, error);
    }
    fb_buffer_free(&changes);
    fb_buffer_free(&text);
    return status;
}

fb_status fb_diff_apply(const fb_diff *diff, const fb_graph *graph, fb_graph **out, fb_error *error) {
    fb_rows tables[FB_TABLES] = {0};
    bool ok = true;
    for (fb_document_table table = FB_GRAPH_TABLE; table < FB_TABLES && ok; table++)
        ok = fb_rows_read(&tables[table], graph, table);
    fb_status status = ok ? apply_edits(diff, tables, error) : fb_fail_memory(error);
    if (!status) status = fb_rows_graph(tables, NULL, out, error);
    for (size_t i = 0; i < FB_TABLES; i++) fb_rows_free(&tables[i]);
    return status;
}

/* ---- turned round ------------------------------------------------------------------------------------------------------ */

static void invert_edit(fb_edit *edit) {
    const char *before = edit->before;
    switch (edit->kind) {
    case FB_EDIT_INSERT: edit->kind = FB_EDIT_ERASE; break;
    case FB_EDIT_ERASE: edit->kind = FB_EDIT_INSERT; break;
    case FB_EDIT_MOVE:
        edit->before = edit->was_before;
        edit->was_before = before;
        break;
    case FB_EDIT_SET:
        for (size_t i = 0; i < edit->member_count; i++) {
            fb_member_edit *member = &edit->members[i];
            *member = (fb_member_edit){member->pointer, member->now, member->was};
        }
    }
}

void fb_diff_invert(fb_diff *diff) {
    for (size_t i = 0; i < diff->count; i++) invert_edit(&diff->edits[i]);
    for (size_t i = 0; i < diff->count / 2; i++) {
        fb_edit edit = diff->edits[i];
        diff->edits[i] = diff->edits[diff->count - 1 - i];
        diff->edits[diff->count - 1 - i] = edit;
    }
}
