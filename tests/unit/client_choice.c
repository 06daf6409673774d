/* Which change a client makes. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/client_changes.h"

const char *const change_names[CHANGE_KINDS] = {
    "add reader", "add between", "add call",         "arguments",  "erase",         "rename",        "move",
    "meta",       "target",      "module",           "add module", "rename module", "rename tensor", "marks",
    "output",     "run on top",  "name and metadata"};

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

static bool is_touched(const json_t *row, const char *table, const json_t *source) {
    const json_t *old = find_row(source, table, row_name(table, row), NULL);
    return !old || !json_equal(old, row);
}

/* A row, more likely one that the passes touched; the module of a touched node counts as touched with it. */
static const json_t *pick_row(random_source *random, const json_t *graph, const json_t *source, const char *table) {
    const json_t *rows = json_object_get(graph, table), *row = NULL;
    bool wants_touched = !random_once_in(random, 3);
    for (int tries = 0; json_array_size(rows) && tries < 12; tries++) {
        row = json_array_get(rows, random_below(random, json_array_size(rows)));
        if (!wants_touched || is_touched(row, table, source)) break;
    }
    return row;
}

static void set_text(char out[CHANGE_NAME], const char *text) {
    snprintf(out, CHANGE_NAME, "%s", text ? text : "");
}

/* A name that nothing has here; perhaps one that the source had. */
static void fresh_name_in(random_source *random, const json_t *graph, const json_t *source, const char *table,
                          char out[CHANGE_NAME]) {
    const json_t *lost = json_object_get(source, table);
    if (json_array_size(lost) && random_once_in(random, 2)) {
        for (int tries = 0; tries < 10; tries++) {
            set_text(out, row_name(table, json_array_get(lost, random_below(random, json_array_size(lost)))));
            if (!find_row(graph, table, out, NULL)) return;
        }
    }
    int number = 0;
    do snprintf(out, CHANGE_NAME, "mine_%d", ++number);
    while (find_row(graph, table, out, NULL) || find_row(source, table, out, NULL));
}

static bool choose_node(random_source *random, const json_t *graph, const json_t *source, client_change *out) {
    const json_t *node = pick_row(random, graph, source, "nodes");
    if (!node || (is_op(node, "output") && out->kind != CHANGE_RENAME)) return false;
    set_text(out->name, row_name("nodes", node));
    /* Another node behind it, or before it. */
    size_t place = place_of(graph, out->name), count = json_array_size(json_object_get(graph, "nodes"));
    bool is_behind = out->kind == CHANGE_ADD_READER || (out->kind == CHANGE_MOVE && random_once_in(random, 2));
    size_t other = is_behind ? place + 1 + random_below(random, count - place - 1) : random_below(random, place + 1);
    if (out->kind == CHANGE_ADD_READER && random_once_in(random, 2)) other = place + 1;
    set_text(out->other, row_name("nodes", json_array_get(json_object_get(graph, "nodes"), other)));
    fresh_name_in(random, graph, source, "nodes", out->fresh);
    return true;
}

bool choose_change(random_source *random, const json_t *graph, const json_t *source, client_change *out) {
    const json_t *row;
    *out = (client_change){.kind = (change_kind)random_below(random, CHANGE_KINDS)};
    out->choice = random_next(random);
    switch (out->kind) {
    case CHANGE_MODULE:
    case CHANGE_RENAME_MODULE:
        row = pick_row(random, graph, source, "modules");
        set_text(out->name, row_name("modules", row));
        fresh_name_in(random, graph, source, "modules", out->fresh);
        return out->name[0] != '\0';
    case CHANGE_RENAME_TENSOR:
        row = pick_row(random, graph, source, "tensors");
        if (!row) return false;
        set_text(out->name, row_name("tensors", row));
        fresh_name_in(random, graph, source, "tensors", out->fresh);
        return true;
    case CHANGE_ADD_MODULE:
        if (!choose_node(random, graph, source, out)) return false;
        fresh_name_in(random, graph, source, "modules", out->other);
        return true;
    case CHANGE_RUN:
    case CHANGE_ABOUT: return true;
    default: return choose_node(random, graph, source, out);
    }
}
