#include "tests/unit/document_rows.h"

#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------------------------------------------------------- */

const char *row_name(const char *table, const json_t *row) {
    return json_string_value(json_object_get(row, strcmp(table, "modules") ? "name" : "path"));
}

json_t *find_row(const json_t *graph, const char *table, const char *name, size_t *index) {
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(graph, table), i, row) {
        if (strcmp(row_name(table, row), name)) continue;
        if (index) *index = i;
        return row;
    }
    return NULL;
}

size_t place_of(const json_t *graph, const char *node) {
    size_t index = json_array_size(json_object_get(graph, "nodes"));
    find_row(graph, "nodes", node, &index);
    return index;
}

bool is_op(const json_t *node, const char *op) {
    return strcmp(json_string_value(json_object_get(node, "op")), op) == 0;
}

/* ---- references ---------------------------------------------------------------------------------------------------------- */

const char *referred_node(const json_t *value) {
    return json_is_object(value) && json_object_size(value) == 1 ? json_string_value(json_object_get(value, "$node")) : NULL;
}

/* Exchanges references in an argument tree; gives how many. With `to` NULL they are only counted. */
static size_t exchange(json_t *tree, const char *from, const char *to) {
    const char *name = referred_node(tree), *key;
    size_t count = 0, i;
    json_t *item;
    if (name) {
        if (strcmp(name, from)) return 0;
        if (to) json_object_set_new(tree, "$node", json_string(to));
        return 1;
    }
    if (json_is_array(tree)) {
        json_array_foreach(tree, i, item) count += exchange(item, from, to);
    } else if (json_is_object(tree)) {
        json_object_foreach(tree, key, item) count += exchange(item, from, to);
    }
    return count;
}

size_t exchange_references_in(json_t *node, const char *from, const char *to) {
    char *name = strdup(from); /* `from` may be in the node */
    size_t count = exchange(json_object_get(node, "args"), name, to) + exchange(json_object_get(node, "kwargs"), name, to);
    free(name);
    return count;
}

size_t exchange_references(json_t *graph, const char *from, const char *to) {
    char *name = strdup(from);
    size_t i, count = 0;
    json_t *node;
    json_array_foreach(json_object_get(graph, "nodes"), i, node) count += exchange_references_in(node, name, to);
    free(name);
    return count;
}

void rename_in_document(json_t *graph, const char *from, const char *to) {
    exchange_references(graph, from, to);
    json_object_set_new(find_row(graph, "nodes", from, NULL), "name", json_string(to));
}

/* ---- comparing changes --------------------------------------------------------------------------------------------------- */

/* A row of a table with what stands before it, or none. */
typedef struct place {
    const json_t *row;
    const char *behind;
} place;

static place place_in(const json_t *graph, const char *table, const char *name) {
    size_t index;
    const json_t *row = find_row(graph, table, name, &index), *rows = json_object_get(graph, table);
    return (place){row, row && index ? row_name(table, json_array_get(rows, index - 1)) : NULL};
}

static bool is_same_place(place a, place b) {
    if (!a.row || !b.row) return a.row == b.row;
    if (!a.behind || !b.behind) return a.behind == b.behind && json_equal(a.row, b.row);
    return strcmp(a.behind, b.behind) == 0 && json_equal(a.row, b.row);
}

static bool is_same_for_rows(const json_t *names, const char *table, const json_t *const graphs[4]) {
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(names, table), i, row) {
        place at[4];
        for (int k = 0; k < 4; k++) at[k] = place_in(graphs[k], table, row_name(table, row));
        bool is_untouched = is_same_place(at[0], at[1]) && is_same_place(at[2], at[3]);
        if (!is_untouched && !(is_same_place(at[0], at[2]) && is_same_place(at[1], at[3]))) return false;
    }
    return true;
}

bool is_same_change(const json_t *a, const json_t *b, const json_t *c, const json_t *d) {
    static const char *const tables[] = {"nodes", "modules", "tensors"};
    const json_t *const graphs[] = {a, b, c, d};
    for (int t = 0; t < 3; t++) {
        for (int k = 0; k < 4; k++) {
            if (!is_same_for_rows(graphs[k], tables[t], graphs)) return false;
        }
    }
    return true;
}

bool is_same_row(const json_t *a, const json_t *b, const char *table, const char *name) {
    return is_same_place(place_in(a, table, name), place_in(b, table, name));
}

bool is_reordered(const json_t *a, const json_t *b) {
    size_t i, last = 0, now;
    const json_t *row;
    json_array_foreach(json_object_get(a, "nodes"), i, row) {
        if (!find_row(b, "nodes", row_name("nodes", row), &now)) continue;
        if (now < last) return true;
        last = now;
    }
    return false;
}

bool has_same_rows(const json_t *a, const json_t *b) {
    static const char *const tables[] = {"nodes", "modules", "tensors"};
    for (int t = 0; t < 3; t++) {
        const json_t *rows = json_object_get(a, tables[t]), *row;
        size_t i;
        if (json_array_size(rows) != json_array_size(json_object_get(b, tables[t]))) return false;
        json_array_foreach(rows, i, row) {
            const json_t *other = find_row(b, tables[t], row_name(tables[t], row), NULL);
            if (!other || !json_equal(row, other)) return false;
        }
    }
    return true;
}
