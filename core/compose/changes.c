#include "core/compose/changes.h"

#include <stdlib.h>
#include <string.h>

#include "core/diff/diff.h"
#include "core/diff/rows.h"

/* Slots: the nodes of `after`, and behind them those of `before`. */
typedef struct grouping {
    fb_change_set *out;
    uint32_t *parent; /* union-find */
    unsigned char *is_changed;
    uint32_t after_limit, limit, modules; /* the last is a slot of its own: all changed modules and tensors */
    fb_work *work;
} grouping;

static uint32_t root_of(grouping *g, uint32_t slot) {
    while (g->parent[slot] != slot) slot = g->parent[slot] = g->parent[g->parent[slot]];
    return slot;
}

static void join(grouping *g, uint32_t a, uint32_t b) {
    g->parent[root_of(g, a)] = root_of(g, b);
}

static uint32_t slot_of(const grouping *g, bool is_after, fb_node node) {
    return is_after ? node.id : g->after_limit + node.id;
}

/* Shapes and dtypes follow from what a node reads. */
static bool is_of_node(const fb_edit *edit) {
    for (size_t i = 0; i < edit->member_count; i++)
        if (strncmp(edit->members[i].pointer, "/meta", strlen("/meta")) != 0) return true;
    return false;
}

static void note_edit(grouping *g, const fb_edit *edit) {
    fb_node before = fb_node_find(g->out->before, FB_MAIN_PROGRAM, edit->name);
    fb_node after = fb_node_find(g->out->after, FB_MAIN_PROGRAM, edit->name);
    bool counts =
        edit->kind == FB_EDIT_INSERT || edit->kind == FB_EDIT_ERASE || (edit->kind == FB_EDIT_SET && is_of_node(edit));
    if (edit->table == FB_MODULE_TABLE || edit->table == FB_TENSOR_TABLE) g->is_changed[g->modules] = true;
    if (edit->table != FB_NODE_TABLE || !counts) return;
    if (after.id) g->is_changed[slot_of(g, true, after)] = true;
    if (before.id) g->is_changed[slot_of(g, false, before)] = true;
    if (after.id && before.id) join(g, slot_of(g, true, after), slot_of(g, false, before));
}

/* Changed modules have changed rows, or own tensors that have. All nodes of any module then are one group: the rows do not say
 * which of them a tensor reaches. */
static bool touches_module(const grouping *g, const fb_graph *graph, fb_node node) {
    fb_opcode opcode = (fb_opcode)fb_node_at(graph, node)->opcode;
    return g->is_changed[g->modules] && (opcode == FB_CALL_MODULE || opcode == FB_GET_ATTR);
}

/* A node that only one graph has hangs together with its readers, which must be others where it is not there. */
static void join_readers(grouping *g, bool is_after) {
    const fb_graph *graph = is_after ? g->out->after : g->out->before, *other = is_after ? g->out->before : g->out->after;
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_work_goes_on(g->work, 8); n = fb_next_node(graph, n)) {
        uint32_t slot = slot_of(g, is_after, n);
        if (touches_module(g, graph, n)) {
            g->is_changed[slot] = true;
            join(g, slot, g->modules);
        }
        bool is_alone = g->is_changed[slot] && !fb_node_find(other, FB_MAIN_PROGRAM, fb_node_name(graph, n)).id;
        for (uint32_t e = is_alone ? fb_user_first(graph, n) : 0; e; e = fb_user_next(graph, e)) {
            uint32_t user = slot_of(g, is_after, fb_edge_user(graph, e));
            if (g->is_changed[user]) join(g, slot, user);
        }
    }
}

/* Numbers the groups in the order of their first nodes. */
static bool number_groups(grouping *g) {
    fb_change_set *out = g->out;
    uint32_t *number = calloc(g->limit, sizeof *number);
    fb_buffer names = {0};
    uint32_t count = 0;
    for (int is_before = 0; is_before < 2 && number; is_before++) {
        const fb_graph *graph = is_before ? out->before : out->after;
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(graph, n)) {
            uint32_t slot = slot_of(g, !is_before, n);
            if (!g->is_changed[slot]) continue;
            uint32_t root = root_of(g, slot);
            const char *name = fb_node_name(graph, n);
            if (!number[root]) number[root] = ++count, fb_buffer_append(&names, &name, sizeof name);
            (is_before ? out->group_before : out->group_after)[n.id] = number[root];
        }
    }
    if (number && g->is_changed[g->modules]) out->with_modules = number[root_of(g, g->modules)];
    const char **items = fb_arena_alloc(&out->arena, names.size + 1);
    bool ok = number && items && !names.failed;
    if (ok && names.size) memcpy(items, names.data, names.size);
    out->names = (fb_match_names){items, count};
    fb_buffer_free(&names);
    free(number);
    return ok;
}

fb_status fb_changes_find(const fb_graph *before, const fb_graph *after, fb_work *work, fb_change_set *out, fb_error *error) {
    grouping g = {.out = out, .after_limit = fb_node_limit(after), .work = work};
    fb_diff diff = {0};
    *out = (fb_change_set){.before = before, .after = after};
    g.modules = g.after_limit + fb_node_limit(before);
    g.limit = g.modules + 1;
    g.parent = calloc(g.limit, sizeof *g.parent);
    g.is_changed = calloc(g.limit, 1);
    out->group_before = calloc(fb_node_limit(before), sizeof *out->group_before);
    out->group_after = calloc(fb_node_limit(after), sizeof *out->group_after);
    bool ok = g.parent && g.is_changed && out->group_before && out->group_after;
    for (uint32_t i = 0; i < g.limit && ok; i++) g.parent[i] = i;
    fb_status status = ok ? fb_diff_make(before, after, work, &diff, error) : fb_fail_memory(error);
    for (size_t i = 0; i < diff.count && !status; i++) note_edit(&g, &diff.edits[i]);
    if (!status) join_readers(&g, true);
    if (!status) join_readers(&g, false);
    if (!status && !number_groups(&g)) status = fb_fail_memory(error);
    if (!status) status = fb_work_status(work, error);
    fb_diff_free(&diff);
    free(g.parent);
    free(g.is_changed);
    if (status) fb_changes_free(out);
    return status;
}

void fb_changes_free(fb_change_set *changes) {
    free(changes->group_before);
    free(changes->group_after);
    fb_arena_free(&changes->arena);
    *changes = (fb_change_set){0};
}

/* ---- applying some ------------------------------------------------------------------------------------------------------- */

/* The text of the row of that name in the other graph's table. */
static fb_span text_of(fb_rows *rows, const char *name) {
    fb_row_id row = fb_rows_find(rows, name);
    return row.id ? fb_rows_text(rows, row) : (fb_span){0};
}

/* The nodes of groups that are not chosen become again what they were. */
static bool take_back(const fb_change_set *changes, const bool *is_chosen, fb_rows *now, fb_rows *was) {
    const fb_graph *before = changes->before, *after = changes->after;
    bool ok = true;
    for (fb_node n = fb_first_node(after, FB_MAIN_PROGRAM); n.id && ok; n = fb_next_node(after, n)) {
        uint32_t group = changes->group_after[n.id];
        if (!group || is_chosen[group - 1]) continue;
        fb_row_id row = fb_rows_find(now, fb_node_name(after, n));
        fb_span text = text_of(was, fb_node_name(after, n));
        if (text.text) ok = fb_rows_set(now, row, text);
        else fb_rows_take_out(now, row);
    }
    fb_row_id next = {0}; /* the row before which the nodes go that were erased: the next that is left, from the end on */
    for (fb_node n = fb_last_node(before, FB_MAIN_PROGRAM); n.id && ok; n = fb_node_at(before, n)->previous) {
        const char *name = fb_node_name(before, n);
        uint32_t group = changes->group_before[n.id];
        fb_row_id row = fb_rows_find(now, name);
        if (!row.id && group && !is_chosen[group - 1]) {
            row = fb_rows_insert(now, name, text_of(was, name), next);
            ok = row.id != 0;
        }
        if (row.id) next = row;
    }
    return ok;
}

fb_status fb_changes_apply(const fb_change_set *changes, const fb_match_names *chosen, fb_work *work, fb_graph **out,
                           fb_error *error) {
    fb_rows now[FB_TABLES] = {0}, was = {.work = work};
    bool *is_chosen = calloc(changes->names.count + 1, sizeof *is_chosen), ok = is_chosen;
    for (size_t i = 0; i < chosen->count && ok; i++)
        for (size_t k = 0; k < changes->names.count; k++) is_chosen[k] |= !strcmp(changes->names.items[k], chosen->items[i]);
    bool with_modules = ok && (!changes->with_modules || is_chosen[changes->with_modules - 1]);
    for (fb_document_table table = FB_GRAPH_TABLE; table < FB_TABLES && ok; table++) {
        bool is_after = table == FB_NODE_TABLE || with_modules;
        now[table].work = work;
        ok = fb_rows_read(&now[table], is_after ? changes->after : changes->before, table);
    }
    ok = ok && fb_rows_read(&was, changes->before, FB_NODE_TABLE) && take_back(changes, is_chosen, &now[FB_NODE_TABLE], &was);
    fb_status status = ok ? fb_work_status(work, error) : fb_fail_memory(error);
    fb_error found = {0};
    if (!status) status = fb_rows_graph(now, work->watch, out, &found);
    if (status == FB_INVALID)
        status = fb_fail(error, FB_INVALID, "matches-depend", "", "these changes depend on others: %s", found.message);
    else if (found.status && error) *error = found;
    for (size_t i = 0; i < FB_TABLES; i++) fb_rows_free(&now[i]);
    fb_rows_free(&was);
    free(is_chosen);
    return status;
}
