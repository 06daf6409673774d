/* Does PyTorch have such a call? The kinds of the arguments are held against the overloads of calls.def, before a kernel sees
 * them: kernels are generous, and what they computed of a call that PyTorch refuses would be a result of nothing. */
#include <stdio.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/analysis/parameter.h"
#include "core/evaluator/internal.h"
#include "core/graph/namespace.h"
#include "core/operators/spelling.h"

typedef struct given_call {
    const fb_graph *graph;
    const fb_value_row *names;      /* of the keywords: every second item */
    const fb_object *args, *kwargs; /* kwargs by keyword, in the order of `names` */
    size_t arg_count, kwarg_count;
    bool is_method;    /* x.view(2), or torch.Tensor.view(x, 2) */
    bool is_of_python; /* written in Python, which counts and repeats what it takes for a list of ints */
    bool is_aten;      /* called by its schema; otherwise by torch's parser of Python's arguments */
} given_call;

static bool is_number(const fb_object *object) {
    double number;
    return fb_object_number(object, &number);
}

static bool takes(const given_call *call, const char *type, const fb_object *object);

static bool takes_items(const given_call *call, const char *type, const fb_object *list) {
    bool does = fb_object_is_sequence(list);
    for (size_t i = 0; does && i < list->items->count; i++) does = takes(call, type, &list->items->objects[i]);
    return does;
}

/* A tensor without dimensions counts as a number where Python's arguments are parsed. */
static bool takes_array(const given_call *call, char type, const fb_array *array) {
    if (type == 'T' || type == 'N' || type == 'x') return true;
    if (array->rank || call->is_aten || (call->is_of_python && type == 'J')) return false;
    if (type == 'i' || type == 'J' || type == 'K') return fb_dtype_is_integer(array->dtype);
    return type == 'S' || type == 'f';
}

static bool takes(const given_call *call, const char *type, const fb_object *object) {
    if (*type == '?') {
        if (object->kind == FB_OBJECT_NONE) return true;
        type++;
    }
    if (object->kind == FB_OBJECT_ARRAY) return takes_array(call, *type, object->array);
    if (object->kind == FB_OBJECT_WEIGHT) return *type == 'T' || *type == 'N' || *type == 'x';
    bool is_int = object->kind == FB_OBJECT_INT || (call->is_aten && object->kind == FB_OBJECT_BOOL);
    switch (*type) {
    case 'N':
    case 'S': return is_number(object) || object->kind == FB_OBJECT_OTHER; /* a complex number is among the others */
    case 'i': return is_int;
    case 'f': return is_number(object);
    case 'b': return object->kind == FB_OBJECT_BOOL || (call->is_aten && is_number(object));
    case 'd': return object->kind == FB_OBJECT_DTYPE || (call->is_aten && is_int); /* or by its number in c10 */
    case 'D': return object->kind == FB_OBJECT_DEVICE || object->kind == FB_OBJECT_STRING || is_int;
    case 'l': return object->kind == FB_OBJECT_DEVICE || (call->is_aten && object->kind == FB_OBJECT_INT);
    case 'm': return object->kind == FB_OBJECT_DEVICE || (call->is_aten && is_int);
    case 'F': return takes_items(call, "f", object);
    case 'B': return takes_items(call, "b", object);
    case 'O': return takes_items(call, "?T", object);
    case 's': return object->kind == FB_OBJECT_STRING;
    case 'J': return is_int || takes_items(call, "i", object);
    case 'K': return (is_int && !call->is_aten) || takes_items(call, "i", object);
    case 'I': return takes_items(call, "i", object);
    case 'P': return is_int || takes_items(call, "?i", object);
    case 'L': return takes_items(call, "T", object);
    case 'x': return object->kind != FB_OBJECT_NONE;
    default: return false; /* T: a tensor, which it is not */
    }
}

/* ---- one overload: self=!T,other=!N,|alpha=S) ---------------------------------------------------------------------------- */

static const fb_object *find_keyword(const given_call *call, const char *parameter) {
    char name[64];
    size_t length = strcspn(parameter, "=");
    if (length >= sizeof name) return NULL;
    memcpy(name, parameter, length);
    name[length] = '\0';
    if (strcmp(name, "self") == 0) strcpy(name, "input");
    for (size_t i = 0; i < call->kwarg_count; i++) {
        const char *key = fb_text(call->graph, fb_value_at(call->graph, call->names->items[2 * i])->symbol);
        if (fb_is_keyword_for(key, name)) return &call->kwargs[i];
    }
    return NULL;
}

/* x.view(2, 3), torch.zeros(2, 3): of methods, and of functions of nothing else, the only list may be given as its items. */
static bool takes_rest(const given_call *call, const char *parameters, const char *at, size_t position) {
    const char *type = strchr(at, '=') + 1, *next = fb_next_parameter(at);
    type += *type == '!';
    type += *type == '?';
    bool is_first = position == 0 || (call->is_method && position == 1 && strncmp(parameters, "self=", 5) == 0);
    bool is_only = is_first && (!next || *next == '|');
    if (!is_only || !strchr("IJK", *type) || call->is_aten) return false;
    for (size_t i = position; i < call->arg_count; i++)
        if (!takes(call, "i", &call->args[i])) return false;
    return call->arg_count > position;
}

static bool overload_takes(const given_call *call, const char *parameters) {
    size_t position = 0, used = 0;
    bool is_behind = false;
    for (const char *at = *parameters == ')' ? NULL : parameters; at; at = fb_next_parameter(at), position++) {
        is_behind |= *at == '|';
        at += *at == '|';
        const char *type = strchr(at, '=') + 1;
        bool must_be = *type == '!', is_positional = !is_behind && position < call->arg_count;
        if (is_positional && takes_rest(call, parameters, at, position)) {
            used += call->arg_count - position;
            position = call->arg_count;
            continue;
        }
        const fb_object *object = is_positional ? &call->args[position] : find_keyword(call, at);
        if (!object && must_be) return false;
        if (object && !takes(call, type + must_be, object)) return false;
        used += object != NULL;
    }
    return used == call->arg_count + call->kwarg_count;
}

/* ---- a call ------------------------------------------------------------------------------------------------------------- */

/* The overloads of the call's name, and whether it names one alone (*overload of *length). NULL: nothing is known. */
static const char *overloads_of(const fb_kernel_call *call, const char **overload, given_call *given) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const char *target = fb_node_target(call->graph, call->node), *name = target, *home = "method";
    *overload = NULL;
    given->is_aten = false;
    if (row->opcode == FB_CALL_FUNCTION) {
        given->is_aten = fb_is_spelled(target, FB_ATEN);
        bool is_in_torch = fb_is_of_torch(target);
        bool is_functional = fb_is_spelled(target, FB_FUNCTIONAL) || fb_is_spelled(target, FB_FUNCTIONAL_IN_C);
        bool is_of_tensor = given->is_method = fb_is_spelled(target, FB_TENSOR_METHOD);
        if (!given->is_aten && !is_in_torch && !is_functional && !is_of_tensor) return NULL;
        home = given->is_aten ? "" : is_in_torch ? "torch" : is_functional ? "functional" : "method";
        name = fb_function_name(target);
    } else if (row->opcode != FB_CALL_METHOD) {
        return NULL;
    }
    if (strcmp(home, "method") == 0 && fb_op_facts_of(call->op)->method) return NULL; /* in an order of its own */
    size_t length = strcspn(name, ".");
    if (*home && length < 64) {
        char written_in_python[80];
        size_t size = (size_t)snprintf(written_in_python, sizeof written_in_python, "%s.%.*s", home, (int)length, name);
        const char *found = fb_calls_of(written_in_python, size, home);
        given->is_of_python = found != NULL;
        if (found) return found;
    }
    if (given->is_aten && name[length]) *overload = name + length + 1;
    const char *overloads = fb_calls_of(name, length, home);
    bool is_in_place = length > 1 && name[length - 1] == '_' && (fb_node_op(call->graph, call->node) & FB_OP_IN_PLACE);
    return overloads || !is_in_place ? overloads : fb_calls_of(name, length - 1, home);
}

static bool fits(const given_call *call, const char *overloads, const char *only) {
    bool is_known = false;
    for (const char *at = overloads; *at;) {
        size_t size = strcspn(at, "(");
        bool is_meant = !only || (strlen(only) == size && strncmp(at, only, size) == 0);
        is_known |= is_meant;
        if (is_meant && overload_takes(call, at + size + 1)) return true;
        at = strchr(at, ')') + 1;
        at += *at == ' ';
    }
    return !is_known; /* an overload that is not in the table: of numbers alone, of names, of another library */
}

/* torch.add(2, 3) is a tensor, which 2 + 3 is not. */
static bool makes_tensor_of_numbers(const given_call *call) {
    bool has_number = call->arg_count && is_number(&call->args[0]);
    for (size_t i = 1; i < call->arg_count && has_number; i++) has_number = call->args[i].kind != FB_OBJECT_ARRAY;
    for (size_t i = 0; i < call->kwarg_count && has_number; i++) has_number = call->kwargs[i].kind != FB_OBJECT_ARRAY;
    return has_number;
}

fb_status fb_check_signature(fb_kernel_call *call) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *args = fb_value_at(call->graph, row->args), *kwargs = fb_value_at(call->graph, row->kwargs);
    const char *only;
    given_call given = {.graph = call->graph, .names = kwargs, .arg_count = args->count, .kwarg_count = kwargs->count / 2};
    const char *overloads = overloads_of(call, &only, &given);
    bool is_method = row->opcode == FB_CALL_METHOD;
    given.is_method |= is_method;
    if (!is_method && (!overloads || !*overloads)) return FB_OK;
    fb_object positional = {.kind = FB_OBJECT_NONE}, named = positional;
    call->status = fb_object_sequence(FB_OBJECT_TUPLE, given.arg_count, &positional, call->error);
    if (!call->status) call->status = fb_object_sequence(FB_OBJECT_TUPLE, given.kwarg_count, &named, call->error);
    for (size_t i = 0; i < given.arg_count && !call->status; i++)
        call->status = fb_evaluate_value(call->evaluator, args->items[i], &positional.items->objects[i]);
    for (size_t i = 0; i < given.kwarg_count && !call->status; i++)
        call->status = fb_evaluate_value(call->evaluator, kwargs->items[2 * i + 1], &named.items->objects[i]);
    if (!call->status) {
        given.args = positional.items->objects;
        given.kwargs = named.items->objects;
        bool is_of_number = is_method && given.arg_count && is_number(&given.args[0]);
        if (is_of_number || (overloads && !fits(&given, overloads, only)))
            fb_kernel_fail(call, "PyTorch has no such call: no overload takes these arguments");
        else if ((fb_op_facts_of(call->op)->flags & FB_FACT_MAYBE_NUMBER) && makes_tensor_of_numbers(&given))
            fb_kernel_unsupported(call, "it makes a tensor of numbers alone");
    }
    fb_object_drop(&named);
    fb_object_drop(&positional);
    return call->status;
}
