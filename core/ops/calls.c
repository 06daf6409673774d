#include "core/ops/calls.h"

#include <string.h>

#include "core/ops/spelling.h"
#include "core/ops/view.h"

typedef struct calls_row {
    const char *name, *homes, *overloads;
} calls_row;

static const calls_row rows[] = {
#define FB_CALLS_ROW(name_text, homes_text, overloads_text) {name_text, homes_text, overloads_text},
#include "core/ops/calls.def"
};

static const calls_row *row_of(fb_op op) {
    const char *names = fb_op_facts_of(op)->names;
    size_t length = strcspn(names, " ");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strncmp(rows[i].name, names, length) == 0 && !rows[i].name[length]) return &rows[i];
    }
    return NULL;
}

bool fb_op_is_at_home(fb_op op, const char *home) {
    const calls_row *row = row_of(op);
    return row && fb_has_word(row->homes, home, strlen(home));
}

/* ---- types -------------------------------------------------------------------------------------------------------------- */

static bool is_number(fb_kind kind) {
    return kind == FB_INT || kind == FB_FLOAT || kind == FB_TRUE || kind == FB_FALSE;
}

/* A node without a dtype may stand for a number, too. */
static bool takes_node(char type, const fb_graph *graph, fb_node node) {
    return !fb_node_at(graph, node)->dtype || type == 'T' || type == 'N' || type == 'x';
}

static bool takes(const char *type, const fb_graph *graph, fb_value value);

static bool takes_items(const char *type, const fb_graph *graph, fb_value list) {
    const fb_value_row *row = fb_value_at(graph, list);
    bool does = row->kind == FB_LIST || row->kind == FB_TUPLE;
    for (uint32_t i = 0; i < row->count && does; i++) does = takes(type, graph, row->items[i]);
    return does;
}

static bool takes(const char *type, const fb_graph *graph, fb_value value) {
    fb_kind kind = fb_value_kind(graph, value);
    if (*type == '?') {
        if (kind == FB_NONE) return true;
        type++;
    }
    if (kind == FB_NODE) return takes_node(*type, graph, fb_value_at(graph, value)->node);
    switch (*type) {
    case 'N':
    case 'S': return is_number(kind);
    case 'i': return kind == FB_INT;
    case 'f': return kind == FB_FLOAT || kind == FB_INT;
    case 'b': return kind == FB_TRUE || kind == FB_FALSE;
    case 's': return kind == FB_STRING;
    case 'J': return kind == FB_INT || takes_items("i", graph, value);
    case 'I': return takes_items("i", graph, value);
    case 'L': return takes_items("T", graph, value);
    case 'x': return kind != FB_NONE;
    default: return false;
    }
}

/* ---- overloads ---------------------------------------------------------------------------------------------------------- */

static const char *type_of(const char *parameter) {
    const char *type = strchr(parameter, '=') + 1;
    return *type == '!' ? type + 1 : type;
}

/* `at` is a parameter's name; those of one overload end with a closing parenthesis. */
static const char *next_parameter(const char *at) {
    at += strcspn(at, ",)");
    return *at == ',' ? at + 1 : NULL;
}

static fb_value given(const fb_graph *graph, const char *name, size_t position, bool is_behind, fb_value args,
                      fb_value kwargs) {
    const fb_value_row *list = fb_value_at(graph, args), *map = fb_value_at(graph, kwargs);
    if (!is_behind && position < list->count) return list->items[position];
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        const char *key = fb_text(graph, fb_value_at(graph, map->items[i])->symbol);
        if (strncmp(name, key, strlen(key)) == 0 && name[strlen(key)] == '=') return map->items[i + 1];
    }
    return (fb_value){0};
}

/* Every parameter that must be given is, and nothing else. */
static bool overload_takes(const char *parameters, const fb_graph *graph, fb_value args, fb_value kwargs) {
    size_t position = 0, used = 0;
    bool is_behind = false;
    for (const char *at = *parameters == ')' ? NULL : parameters; at; at = next_parameter(at), position++) {
        is_behind |= *at == '|';
        at += *at == '|';
        fb_value value = given(graph, at, position, is_behind, args, kwargs);
        if (value.id ? !takes(type_of(at), graph, value) : strchr(at, '=')[1] == '!') return false;
        used += value.id != 0;
    }
    return used == fb_value_at(graph, args)->count + fb_value_at(graph, kwargs)->count / 2;
}

const char *fb_aten_overload(const fb_graph *graph, fb_op op, fb_value args, fb_value kwargs, const char *preferred,
                             size_t *length) {
    const calls_row *row = row_of(op);
    const char *found = NULL;
    for (const char *at = row ? row->overloads : ""; *at;) {
        size_t size = strcspn(at, "(");
        bool is_preferred = preferred && strlen(preferred) == size && strncmp(at, preferred, size) == 0;
        if ((!found || is_preferred) && overload_takes(at + size + 1, graph, args, kwargs)) {
            found = at;
            *length = size;
        }
        at = strchr(at, ')') + 1;
        at += *at == ' ';
    }
    return found;
}

bool fb_aten_call_exists(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_node_target(graph, node);
    fb_op op = fb_node_op(graph, node);
    if (row->opcode != FB_CALL_FUNCTION || !fb_is_spelled(target, FB_ATEN) || op & FB_OP_IN_PLACE || !row_of(op)) return true;
    const char *name = target + strlen(FB_ATEN), *overload = strchr(name, '.');
    size_t length = strcspn(fb_op_facts_of(op)->names, " ");
    if (!overload || (size_t)(overload - name) != length || strncmp(name, row_of(op)->name, length) != 0) return true;
    const char *found = fb_aten_overload(graph, op, row->args, row->kwargs, overload + 1, &length);
    return found && strlen(overload + 1) == length && strncmp(found, overload + 1, length) == 0;
}
