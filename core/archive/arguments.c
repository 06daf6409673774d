/* Arguments of calls, as the document spells them. */
#include "core/archive/internal.h"
#include "core/operators/spelling.h"

#include <string.h>

#include "core/analysis/calls.h"
#include "core/base/float.h"
#include "core/graph/python.h"

static void put_string(fb_buffer *out, const char *text) {
    fb_buffer_json_string(out, text, strlen(text));
}

/* The node "…" has … */
static bool refuse(pt_spelling *a, const char *code, const char *before, const char *what, const char *after) {
    bool is_bad = strcmp(code, PT_BAD) == 0;
    return (is_bad ? pt_bad : pt_unsupported)(a->m, a->m->program_file.name, "the node \"%s\" %s%s%s", a->row->name, before,
                                              what, after);
}

static bool wrong(pt_spelling *a, const char *kind) {
    return refuse(a, PT_BAD, "has a malformed argument of the kind ", kind, "");
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static void put_row(pt_spelling *a, uint32_t index, fb_buffer *out) {
    if (a->reads) a->reads[index].is_read = true;
    fb_buffer_string(out, "{\"$node\":");
    put_string(out, a->program->rows[index].name);
    fb_buffer_char(out, '}');
}

static bool put_reference(pt_spelling *a, const pt_result *result, fb_buffer *out) {
    if (result->row >= (uint32_t)(a->row - a->program->rows))
        return refuse(a, PT_BAD, "reads \"", result->name, "\", which is not made before it");
    put_row(a, result->row, out);
    return true;
}

static void put_float(double number, fb_buffer *out) {
    char text[FB_FLOAT_MAX];
    fb_float_repr(number, text);
    fb_buffer_printf(out, "{\"$float\":\"%s\"}", text);
}

static bool put_form(const char *form, const char *text, fb_buffer *out) {
    fb_buffer_printf(out, "{\"%s\":", form);
    put_string(out, text);
    fb_buffer_char(out, '}');
    return true;
}

static bool put_named(pt_spelling *a, const pt_argument *value, fb_buffer *out) {
    const char *form = value->form == PT_LAYOUT ? "$layout" : value->form == PT_DTYPE ? "$dtype" : "$memory_format";
    return value->text ? put_form(form, value->text, out) : refuse(a, PT_UNSUPPORTED, "has a ", form + 1, " that is not known");
}

static bool put_argument(pt_spelling *a, const pt_argument *value, fb_buffer *out);

/* The items of a list, a tuple, a complex number, or a dict as pairs. */
static bool put_items(pt_spelling *a, const pt_argument *value, fb_buffer *out) {
    bool is_dict = value->form == PT_DICT, ok = true;
    if (is_dict && a->depth >= PT_MOST_DEPTH) return wrong(a, value->kind);
    a->depth += is_dict;
    if (value->form != PT_LIST)
        fb_buffer_printf(out, "{\"$%s\":", is_dict ? "dict" : value->form == PT_TUPLE ? "tuple" : "complex");
    fb_buffer_char(out, '[');
    for (uint32_t i = 0; i < value->count && ok; i++) {
        pt_argument item = {.form = value->of};
        if (value->of) item.integer = value->values[i];
        else item = value->items[i];
        if (i) fb_buffer_char(out, ',');
        if (is_dict) {
            fb_buffer_char(out, '[');
            put_string(out, item.key);
            fb_buffer_char(out, ',');
        }
        ok = put_argument(a, &item, out);
        if (is_dict) fb_buffer_char(out, ']');
    }
    fb_buffer_string(out, value->form == PT_LIST ? "]" : "]}");
    a->depth -= is_dict;
    return ok;
}

static bool put_argument(pt_spelling *a, const pt_argument *value, fb_buffer *out) {
    switch (value->form) {
    case PT_NONE: return fb_buffer_string(out, "null"), true;
    case PT_TENSOR:
    case PT_SYMBOL: return put_reference(a, &a->program->results[value->result], out);
    case PT_INT: return fb_buffer_int(out, value->integer), true;
    case PT_BOOL: return fb_buffer_string(out, value->integer ? "true" : "false"), true;
    case PT_FLOAT: return put_float(value->real, out), true;
    case PT_STRING: return put_string(out, value->text), true;
    case PT_DTYPE:
    case PT_LAYOUT:
    case PT_MEMORY_FORMAT: return put_named(a, value, out);
    case PT_DEVICE: return put_form("$device", value->text, out);
    case PT_OPERATOR:
        return fb_is_spelled(value->text, FB_REGISTERED)
                   ? put_form("$ref", value->text, out)
                   : refuse(a, PT_UNSUPPORTED, "has the operator ", value->text, " as an argument");
    case PT_GRAPH:
        if (value->program->row == UINT32_MAX) return wrong(a, value->kind);
        return put_row(a, value->program->row, out), true;
    case PT_LIST:
    case PT_TUPLE:
    case PT_COMPLEX:
    case PT_DICT: return put_items(a, value, out);
    default: return refuse(a, PT_UNSUPPORTED, "has an argument of the kind ", value->kind, ", which is not supported");
    }
}

/* ---- by position, or by name -------------------------------------------------------------------------------------------- */

enum { UNSAID = 0, POSITIONAL = 1, KEYWORD = 2 };

/* PyTorch's name of an overload's parameter at a place, from calls.def: NULL when nothing is known of the operator. Then
 * whether it must be given, and precedes the parameters by name only. */
static const char *parameters_of(const char *target) {
    const char *name = fb_registered_name(target), *dot = name ? strrchr(name, '.') : NULL;
    const char *calls = dot ? fb_calls_of(name, (size_t)(dot - name), "") : NULL;
    bool is_in_place = dot && dot > name + 1 && dot[-1] == '_';
    if (!calls && is_in_place) calls = fb_calls_of(name, (size_t)(dot - name) - 1, "");
    size_t length = dot ? strlen(dot + 1) : 0;
    while (calls && *calls) {
        if (strncmp(calls, dot + 1, length) == 0 && calls[length] == '(') return calls + length + 1;
        calls = strchr(calls, ')');
        calls = calls && calls[1] == ' ' ? calls + 2 : NULL;
    }
    return NULL;
}

/* The parameter's place, from 0, and whether it is given by position where the archive does not say it. */
static bool find_parameter(const char *parameters, const char *name, size_t size, uint32_t *place, bool *by_position) {
    bool by_name_only = false;
    *place = 0;
    for (const char *at = parameters; *at && *at != ')'; (*place)++) {
        if (*at == '|') by_name_only = true, at++;
        size_t length = strcspn(at, "=,)");
        bool must_be_given = at[length] == '=' && at[length + 1] == '!';
        *by_position = must_be_given && !by_name_only;
        if (length == size && memcmp(at, name, length) == 0) return true;
        at += strcspn(at, ",)");
        if (*at == ',') at++;
    }
    return false;
}

bool pt_parameter_at(const char *target, size_t place, const char **name, size_t *length) {
    const char *at = parameters_of(target);
    for (size_t i = 0; at && *at && *at != ')' && *at != '|'; i++) {
        *name = at;
        *length = strcspn(at, "=,)");
        if (i == place) return true;
        at += strcspn(at, ",)");
        if (*at == ',') at++;
    }
    return false;
}

uint32_t pt_place_of(const char *target, const char *parameter) {
    const char *parameters = parameters_of(target);
    uint32_t place;
    bool by_position;
    return parameters && find_parameter(parameters, parameter, strlen(parameter), &place, &by_position) ? place : UINT32_MAX;
}

char pt_type_of(const char *target, const char *parameter, size_t length) {
    const char *at = parameters_of(target);
    while (at && *at && *at != ')') {
        at += *at == '|';
        size_t size = strcspn(at, "=,)");
        if (size == length && memcmp(at, parameter, length) == 0 && at[size] == '=')
            return at[size + 1 + strspn(at + size + 1, "!?")];
        at += strcspn(at, ",)");
        at += *at == ',';
    }
    return '\0';
}

static int kind_of(pt_spelling *a, const pt_argument *input, const char *parameters) {
    size_t length = strlen(input->key);
    uint32_t place;
    bool by_position, is_reserved = fb_python_word(input->key, length) == FB_WORD_KEYWORD;
    if (!fb_is_spelled(a->row->target, FB_REGISTERED)) return POSITIONAL;
    if (fb_is_spelled(a->row->target, FB_HIGHER_ORDER)) return input->said == POSITIONAL || !length ? POSITIONAL : KEYWORD;
    if (input->said == POSITIONAL || (input->said == KEYWORD && is_reserved)) return POSITIONAL;
    if (input->said == KEYWORD) return KEYWORD;
    if (!parameters || !find_parameter(parameters, input->key, length, &place, &by_position)) return UNSAID;
    return by_position || is_reserved ? POSITIONAL : KEYWORD;
}

static bool put_arguments(pt_spelling *a, const pt_arguments *inputs, fb_buffer *args, fb_buffer *kwargs) {
    const char *parameters = parameters_of(a->row->target);
    uint32_t positions = 0, names = 0, last = 0, place;
    for (uint32_t i = 0; i < inputs->count; i++) {
        const pt_argument *input = &inputs->rows[i];
        int kind = kind_of(a, input, parameters);
        bool by_position,
            is_known = parameters && find_parameter(parameters, input->key, strlen(input->key), &place, &by_position);
        if (kind == UNSAID || (kind == POSITIONAL && names) || (parameters && (!is_known || (i && place <= last))) ||
            (is_known && kind == POSITIONAL && place != positions))
            return refuse(a, PT_UNSUPPORTED, "has its arguments in another order than PyTorch: ", input->key, "");
        last = is_known ? place : 0;
        fb_buffer *out = kind == POSITIONAL ? args : kwargs;
        if (kind == POSITIONAL ? positions++ : names++) fb_buffer_char(out, ',');
        if (kind == KEYWORD) {
            put_string(out, input->key);
            fb_buffer_char(out, ':');
        }
        if (!put_argument(a, input, out)) return false;
    }
    return true;
}

/* Writes a result of the program: the copy, when it was also copied into a buffer or an input. */
static bool put_result(pt_spelling *a, const pt_argument *result, fb_buffer *out) {
    const pt_program *p = a->program;
    for (uint32_t i = p->count; result->form == PT_TENSOR && !p->parent && i-- > 0;) {
        if (p->rows[i].kind < PT_COPY) break;
        if (p->rows[i].kind != PT_COPY || p->rows[i].second != p->results[result->result].row) continue;
        put_row(a, i, out);
        return true;
    }
    return put_argument(a, result, out);
}

static bool put_output(pt_spelling *a, fb_buffer *out) {
    const pt_program *p = a->program;
    if (p->parent && p->is_single) return put_argument(a, p->outputs.rows, out);
    bool is_first = true;
    fb_buffer_string(out, "{\"$tuple\":[");
    for (uint32_t i = 0; i < p->outputs.count; i++) {
        if (!p->parent && a->m->output_specs.rows[i].is_mutation) continue;
        if (!is_first) fb_buffer_char(out, ',');
        is_first = false;
        if (!put_result(a, &p->outputs.rows[i], out)) return false;
    }
    fb_buffer_string(out, "]}");
    return true;
}

bool pt_put_all(pt_spelling *a, fb_buffer *args, fb_buffer *kwargs) {
    const pt_row *row = a->row;
    if (row->kind == PT_CALL) return put_arguments(a, &row->node->inputs, args, kwargs);
    if (row->kind == PT_OUTPUT) return put_output(a, args);
    if (row->kind != PT_ITEM && row->kind != PT_COPY) return true;
    put_row(a, row->first, args);
    fb_buffer_char(args, ',');
    if (row->kind == PT_COPY) put_row(a, row->second, args);
    else fb_buffer_int(args, row->second);
    return true;
}
