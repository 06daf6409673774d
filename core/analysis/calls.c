#include "core/analysis/calls.h"

#include <stdio.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/operators/spelling.h"

typedef struct calls_row {
    const char *name, *homes, *parsed, *overloads, *in_python;
} calls_row;

static const calls_row rows[] = {
#define FB_CALLS_ROW(...) {__VA_ARGS__},
#include "core/analysis/calls.def"
};

static const calls_row *row_named(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strncmp(rows[i].name, name, length) == 0 && !rows[i].name[length]) return &rows[i];
    }
    return NULL;
}

static const calls_row *row_of(fb_op op) {
    const char *names = fb_op_facts_of(op)->names;
    return row_named(names, strcspn(names, " "));
}

const char *fb_calls_of(const char *name, size_t length, const char *home) {
    const calls_row *row = row_named(name, length);
    return row && (!*home || fb_has_word(row->parsed, home, strlen(home))) ? row->overloads : NULL;
}

bool fb_op_is_at_home(fb_op op, const char *home) {
    const calls_row *row = row_of(op);
    return row && fb_has_word(row->homes, home, strlen(home));
}

/* ---- types -------------------------------------------------------------------------------------------------------------- */

/* A call as it is looked at. */
typedef struct seen_call {
    const fb_graph *graph;
    fb_value args, kwargs;
    fb_node number; /* this node is replaced by a number; or none */
    bool is_python; /* of a function of torch or a method: they take more than the overload says */
    bool is_exact;  /* of one that is written in Python: its parameters have one name, and no list is spread */
} seen_call;

static bool is_number(fb_kind kind) {
    return kind == FB_INT || kind == FB_FLOAT || kind == FB_TRUE || kind == FB_FALSE;
}

static bool is_scalar_tensor(const fb_graph *graph, fb_node node) {
    fb_value shape = fb_node_at(graph, node)->shape;
    return !shape.id || fb_shape_rank(graph, shape) == 0;
}

/* A node without a dtype may also be a number. Python's functions take a tensor without dimensions for one. */
static bool takes_node(char type, const seen_call *call, fb_node node) {
    bool takes_tensor = type == 'T' || type == 'N' || type == 'x' || type == 'a';
    if (call->number.id && node.id == call->number.id) return strchr("NSfx", type);
    if (!fb_node_at(call->graph, node)->dtype || takes_tensor) return true;
    return call->is_python && strchr("Sifbn", type) && is_scalar_tensor(call->graph, node);
}

static bool takes(const char *type, const seen_call *call, fb_value value);

static bool takes_items(const char *type, const seen_call *call, fb_value list) {
    const fb_value_row *row = fb_value_at(call->graph, list);
    bool does = row->kind == FB_LIST || row->kind == FB_TUPLE || row->kind == FB_SIZE;
    for (uint32_t i = 0; i < row->count && does; i++) does = takes(type, call, row->items[i]);
    return does;
}

static bool takes(const char *type, const seen_call *call, fb_value value) {
    fb_kind kind = fb_value_kind(call->graph, value);
    if (*type == '?') {
        if (kind == FB_NONE) return true;
        type++;
    }
    if (kind == FB_NODE) return takes_node(*type, call, fb_value_node(call->graph, value));
    switch (*type) {
    case 'N':
    case 'S': return is_number(kind) || kind == FB_COMPLEX;
    case 'i': return kind == FB_INT;
    case 'f': return kind == FB_FLOAT || kind == FB_INT;
    case 'b': return kind == FB_TRUE || kind == FB_FALSE;
    case 's': return kind == FB_STRING;
    case 'd': return kind == FB_DTYPE || (kind == FB_INT && !call->is_python); /* its number in c10 */
    case 'D': return kind == FB_DEVICE || kind == FB_STRING || kind == FB_INT;
    case 'l': return kind == FB_LAYOUT || (kind == FB_INT && !call->is_python); /* 0 is torch.strided */
    case 'm': return kind == FB_MEMORY_FORMAT || (kind == FB_INT && !call->is_python);
    case 'J':
    case 'K': return (kind == FB_INT && (call->is_python || *type == 'J')) || takes_items("i", call, value);
    case 'I': return takes_items("i", call, value);
    case 'F': return takes_items("f", call, value);
    case 'B': return takes_items("b", call, value);
    case 'L': return takes_items("T", call, value);
    case 'O': return takes_items("?T", call, value);
    case 'E': return takes_items("?S", call, value);
    case 'n': return is_number(kind) || takes_items("?n", call, value);
    case 'x': return kind != FB_NONE;
    case 'a': return true;
    default: return false;
    }
}

/* ---- overloads ---------------------------------------------------------------------------------------------------------- */

static const char *type_of(const char *parameter) {
    const char *type = strchr(parameter, '=') + 1;
    return *type == '!' ? type + 1 : type;
}

const char *fb_next_parameter(const char *at) {
    at += strcspn(at, ",)");
    return *at == ',' ? at + 1 : NULL;
}

/* Is the parameter called so by a caller? Python calls self "input", and has NumPy's names as well. */
static bool is_called(const seen_call *call, const char *parameter, const char *key) {
    static const char *const others[][2] = {{"self", "input"}, {"self", "x"},   {"self", "a"},          {"self", "x1"},
                                            {"other", "x2"},   {"dim", "axis"}, {"keepdim", "keepdims"}};
    size_t length = strcspn(parameter, "=");
    if (strlen(key) == length && strncmp(parameter, key, length) == 0) return true;
    for (size_t i = 0; call->is_python && !call->is_exact && i < sizeof others / sizeof *others; i++) {
        bool is_it = strlen(others[i][0]) == length && strncmp(parameter, others[i][0], length) == 0;
        if (is_it && strcmp(key, others[i][1]) == 0) return true;
    }
    return false;
}

static fb_value given(const seen_call *call, const char *name, size_t position, bool is_behind) {
    const fb_value_row *list = fb_value_at(call->graph, call->args), *map = fb_value_at(call->graph, call->kwargs);
    if (!is_behind && position < list->count) return list->items[position];
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        if (is_called(call, name, fb_text(call->graph, fb_value_at(call->graph, map->items[i])->symbol)))
            return map->items[i + 1];
    }
    return (fb_value){0};
}

/* x.view(2, 3): all that is left, where a method or function takes a list of ints. Their number, or 0. */
static size_t spread_ints(const seen_call *call, const char *type, size_t position) {
    const fb_value_row *list = fb_value_at(call->graph, call->args);
    if (!call->is_python || call->is_exact || !strchr("IJK", *type) || position >= list->count) return 0;
    for (size_t i = position; i < list->count; i++) {
        if (!takes("i", call, list->items[i])) return 0;
    }
    return list->count - position;
}

/* Every parameter that must be given is, and nothing else. */
static bool overload_takes(const char *parameters, const seen_call *call) {
    size_t position = 0, used = 0;
    bool is_behind = false;
    for (const char *at = *parameters == ')' ? NULL : parameters; at; at = fb_next_parameter(at), position++) {
        is_behind |= *at == '|';
        at += *at == '|';
        fb_value value = given(call, at, position, is_behind);
        size_t spread = is_behind ? 0 : spread_ints(call, type_of(at), position);
        if (spread) position += spread - 1;
        else if (value.id ? !takes(type_of(at), call, value) : strchr(at, '=')[1] == '!') return false;
        used += spread ? spread : value.id != 0;
    }
    return used == fb_value_at(call->graph, call->args)->count + fb_value_at(call->graph, call->kwargs)->count / 2;
}

static const char *next_overload(const char *at) {
    at = strchr(at, ')') + 1;
    return at + (*at == ' ');
}

const char *fb_aten_overload(const fb_graph *graph, fb_op op, fb_value args, fb_value kwargs, const char *preferred,
                             size_t *length) {
    const calls_row *row = row_of(op);
    const seen_call call = {.graph = graph, .args = args, .kwargs = kwargs};
    const char *found = NULL;
    for (const char *at = row ? row->overloads : ""; *at; at = next_overload(at)) {
        size_t size = strcspn(at, "(");
        bool is_preferred = preferred && strlen(preferred) == size && strncmp(at, preferred, size) == 0;
        if ((!found || is_preferred) && overload_takes(at + size + 1, &call)) {
            found = at;
            *length = size;
        }
    }
    return found;
}

static bool any_overload_takes(const calls_row *row, const seen_call *call) {
    for (const char *at = row->overloads; *at; at = next_overload(at)) {
        if (overload_takes(strchr(at, '(') + 1, call)) return true;
    }
    return false;
}

/* ---- calls of a graph ---------------------------------------------------------------------------------------------------- */

static bool aten_call_exists(const fb_graph *graph, fb_node node, const calls_row *calls) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *name = fb_node_target(graph, node) + strlen(FB_ATEN), *overload = strchr(name, '.');
    size_t length = strlen(calls->name);
    if (!overload || (size_t)(overload - name) != length || strncmp(name, calls->name, length) != 0) return true;
    const char *found = fb_aten_overload(graph, fb_node_op(graph, node), row->args, row->kwargs, overload + 1, &length);
    return found && strlen(overload + 1) == length && strncmp(found, overload + 1, length) == 0;
}

/* Where the called function or method is at home; "" for one that is elsewhere. */
static const char *home_of(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_node_target(graph, node);
    if (row->opcode == FB_CALL_METHOD) return "method";
    if (row->opcode != FB_CALL_FUNCTION) return "";
    if (fb_is_spelled(target, FB_FUNCTIONAL) || fb_is_spelled(target, FB_FUNCTIONAL_IN_C)) return "functional";
    return fb_is_of_torch(target) ? "torch" : "";
}

/* The row that says what the call takes, when it is of a function of torch or a method that is written in C++. */
static const calls_row *parsed_row(const fb_graph *graph, fb_node node) {
    const char *home = home_of(graph, node);
    const calls_row *calls = row_of(fb_node_op(graph, node));
    return calls && *calls->overloads && fb_has_word(calls->parsed, home, strlen(home)) ? calls : NULL;
}

static const char *parameters_in(const char *list, const char *home) {
    for (const char *at = list; *at; at = next_overload(at)) {
        size_t length = strcspn(at, "(");
        if (strlen(home) == length && strncmp(at, home, length) == 0) return at + length + 1;
    }
    return NULL;
}

/* The parameters of the called function or method, when it is written in Python; NULL when it is not, or nothing is known. */
static const char *python_parameters(const fb_graph *graph, fb_node node) {
    const char *home = home_of(graph, node), *target = fb_node_target(graph, node), *dot = strrchr(target, '.');
    const char *name = dot ? dot + 1 : target;
    char own[80];
    size_t length = strlen(home) + strlen(name) + 1;
    if (!*home || fb_is_spelled(target, FB_FUNCTIONAL_IN_C) || length >= sizeof own) return NULL;
    snprintf(own, sizeof own, "%s.%s", home, name);
    const calls_row *with_own = row_named(own, length), *row = row_named(name, strlen(name));
    if (with_own) return parameters_in(with_own->overloads, "default");
    return row ? parameters_in(row->in_python, home) : NULL;
}

bool fb_call_exists(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_op op = fb_node_op(graph, node);
    const char *parameters = python_parameters(graph, node);
    seen_call call = {.graph = graph, .args = row->args, .kwargs = row->kwargs, .is_python = true, .is_exact = parameters};
    if (parameters) return overload_takes(parameters, &call);
    if (op & FB_OP_IN_PLACE || !row_of(op)) return true;
    if (row->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(graph, node), FB_ATEN))
        return aten_call_exists(graph, node, row_of(op));
    fb_value first = fb_first_argument(graph, node);
    if (row->opcode == FB_CALL_METHOD && first.id && is_number(fb_value_kind(graph, first))) return false;
    const calls_row *calls = parsed_row(graph, node);
    return !calls || any_overload_takes(calls, &call);
}

static bool spell_overload(const fb_graph *graph, fb_node node, fb_op op, fb_buffer *out) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *names = fb_op_facts_of(op)->names, *name = fb_node_target(graph, node) + strlen(FB_ATEN);
    const char *dot = strchr(name, '.'), *overload = NULL;
    size_t length = strcspn(names, " "), size = 0;
    bool is_first = dot && (size_t)(dot - name) == length + 1 && strncmp(name, names, length) == 0 && dot[-1] == '_';
    if (is_first) overload = fb_aten_overload(graph, op, row->args, row->kwargs, dot + 1, &size);
    if (!overload) return false;
    fb_buffer_string(out, FB_ATEN);
    fb_buffer_append(out, names, length);
    fb_buffer_char(out, '.');
    fb_buffer_append(out, overload, size);
    return true;
}

bool fb_spell_without_write(const fb_graph *graph, fb_node node, fb_buffer *out) {
    const char *target = fb_node_target(graph, node), *home = home_of(graph, node);
    fb_op op = (fb_op)(fb_node_op(graph, node) & ~FB_OP_IN_PLACE);
    size_t length = strlen(target), start = out->size;
    if (op == fb_node_op(graph, node) || length < 2) return false;
    if (fb_is_aten(graph, node)) return spell_overload(graph, node, op, out);
    if (fb_is_spelled(target, FB_PYTHON_OPERATOR) && target[strlen(FB_PYTHON_OPERATOR)] == 'i') {
        fb_buffer_string(out, FB_PYTHON_OPERATOR);
        fb_buffer_string(out, target + strlen(FB_PYTHON_OPERATOR) + 1);
        return fb_buffer_text(out) && fb_op_of_function(fb_buffer_text(out) + start, out->size - start) == op;
    }
    const char *dot = strrchr(target, '.'), *name = dot ? dot + 1 : target;
    if (target[length - 1] != '_' || !*home || !fb_calls_of(name, strlen(name) - 1, home)) return false;
    fb_buffer_append(out, target, length - 1);
    return true;
}

bool fb_call_has_schema(const fb_graph *graph, fb_node node) {
    return fb_is_aten(graph, node);
}

bool fb_call_takes_number(const fb_graph *graph, fb_node node, fb_node tensor) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (fb_call_has_schema(graph, node)) return false;
    bool is_operator = row->opcode == FB_CALL_FUNCTION && fb_is_spelled(fb_node_target(graph, node), FB_PYTHON_OPERATOR);
    if (is_operator) return fb_op_facts_of(fb_node_op(graph, node))->flags & FB_FACT_MAYBE_NUMBER;
    const calls_row *calls = parsed_row(graph, node);
    const seen_call call = {.graph = graph, .args = row->args, .kwargs = row->kwargs, .number = tensor, .is_python = true};
    return calls && any_overload_takes(calls, &call);
}
