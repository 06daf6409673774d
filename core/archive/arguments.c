/* Arguments of calls, as the document spells them. */
#include "core/archive/internal.h"
#include "core/operators/spelling.h"

#include <math.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/base/float.h"
#include "core/graph/python.h"

static void put_string(fb_buffer *out, const char *text, size_t length) {
    fb_buffer_json_string(out, text, length);
}

static bool wrong(pt_arguments *a, const char *kind) {
    return pt_bad(a->m, a->m->program_file.name, "the node \"%s\" has a malformed argument of the kind %s", a->row->name, kind);
}

/* ---- scalars ------------------------------------------------------------------------------------------------------------ */

static void pt_put_row(pt_arguments *a, uint32_t index, fb_buffer *out) {
    const char *name = a->program->rows[index].name;
    if (a->reads) a->reads[index].is_read = true;
    fb_buffer_string(out, "{\"$node\":");
    put_string(out, name, strlen(name));
    fb_buffer_char(out, '}');
}

static bool put_reference(pt_arguments *a, const fb_json *name, fb_buffer *out) {
    uint32_t index = pt_row_of(a->program, name), own = (uint32_t)(a->row - a->program->rows);
    if (index >= own) {
        const char *text = pt_text(a->m, name);
        return pt_bad(a->m, a->m->program_file.name, "the node \"%s\" reads \"%s\", which is not made before it", a->row->name,
                      text ? text : "");
    }
    pt_put_row(a, index, out);
    return true;
}

static bool put_int(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a;
    fb_buffer_int(out, value->integer);
    return true;
}

static bool put_bool(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a;
    fb_buffer_string(out, value->kind == FB_JSON_TRUE ? "true" : "false");
    return true;
}

static bool put_float(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a;
    double number = NAN;
    if (value->kind == FB_JSON_REAL) number = value->real;
    else if (value->kind == FB_JSON_INT) number = (double)value->integer;
    else if (fb_json_is(value, "Infinity")) number = INFINITY;
    else if (fb_json_is(value, "-Infinity")) number = -INFINITY;
    char text[FB_FLOAT_MAX];
    fb_float_repr(number, text);
    fb_buffer_printf(out, "{\"$float\":\"%s\"}", text);
    return true;
}

static bool put_text(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a;
    put_string(out, value->text, value->count);
    return true;
}

static bool put_tensor(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    return put_reference(a, pt_member(value, "name"), out);
}

static bool put_optional_tensor(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    const char *kind;
    const fb_json *inner = pt_union(value, &kind);
    if (strcmp(kind, "as_tensor") == 0) return put_tensor(a, inner, out);
    fb_buffer_string(out, "null");
    return true;
}

/* A number that is known, or the node that computes it. */
static bool put_symbolic(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    const char *kind;
    const fb_json *inner = pt_union(value, &kind);
    if (strcmp(kind, "as_name") == 0) return put_reference(a, inner, out);
    if (strcmp(kind, "as_int") == 0) return put_int(a, inner, out);
    return strcmp(kind, "as_bool") == 0 ? put_bool(a, inner, out) : put_float(a, inner, out);
}

static bool put_none(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a, (void)value;
    fb_buffer_string(out, "null");
    return true;
}

static bool put_named(pt_arguments *a, const fb_json *value, const char *form, const char *const *names, size_t count,
                      fb_buffer *out) {
    bool is_known = value->integer > 0 && value->integer < (int64_t)count && names[value->integer];
    if (is_known) fb_buffer_printf(out, "{\"%s\":\"%s\"}", form, names[value->integer]);
    return is_known ||
           pt_unsupported(a->m, a->m->program_file.name, "the node \"%s\" has a %s that is not known", a->row->name, form + 1);
}

static bool put_dtype(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    const char *name = pt_dtype_name(value->integer);
    if (name) fb_buffer_printf(out, "{\"$dtype\":\"%s\"}", name);
    return name || pt_unsupported(a->m, a->m->program_file.name, "the node \"%s\" has a dtype that is not known", a->row->name);
}

static bool put_layout(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    static const char *const names[] = {NULL,         "sparse_coo", "sparse_csr", "sparse_csc",
                                        "sparse_bsr", "sparse_bsc", "_mkldnn",    "strided"};
    return put_named(a, value, "$layout", names, sizeof names / sizeof *names, out);
}

static bool put_memory_format(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    static const char *const names[] = {NULL, "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"};
    return put_named(a, value, "$memory_format", names, sizeof names / sizeof *names, out);
}

void pt_put_device(const fb_json *device, fb_buffer *out) {
    const fb_json *type = pt_member(device, "type"), *index = pt_member(device, "index");
    fb_buffer text = {0};
    fb_buffer_append(&text, type->text, type->count);
    if (index && index->kind == FB_JSON_INT) fb_buffer_printf(&text, ":%lld", (long long)index->integer);
    put_string(out, text.size ? text.data : "", text.size);
    fb_buffer_free(&text);
}

static bool put_device(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    (void)a;
    fb_buffer_string(out, "{\"$device\":");
    pt_put_device(value, out);
    fb_buffer_char(out, '}');
    return true;
}

static bool put_complex(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    fb_buffer_string(out, "{\"$complex\":[");
    bool ok = put_float(a, pt_member(value, "real"), out);
    fb_buffer_char(out, ',');
    ok = ok && put_float(a, pt_member(value, "imag"), out);
    fb_buffer_string(out, "]}");
    return ok;
}

static bool put_operator(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    const char *text = pt_text(a->m, value);
    if (!text) return false;
    if (!fb_is_spelled(text, FB_REGISTERED))
        return pt_unsupported(a->m, a->m->program_file.name, "the node \"%s\" has the operator %s as an argument", a->row->name,
                              text);
    fb_buffer_string(out, "{\"$ref\":");
    put_string(out, text, value->count);
    fb_buffer_char(out, '}');
    return true;
}

static bool put_graph(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    const char *name = pt_text(a->m, pt_member(value, "name")), *key = name ? pt_format(a->m, "\n%s", name) : NULL;
    uint32_t index;
    if (!key || !pt_keys_find(&a->program->by_name, key, strlen(key), &index)) return wrong(a, "as_graph");
    pt_put_row(a, index, out);
    return true;
}

/* ---- containers --------------------------------------------------------------------------------------------------------- */

typedef bool put_item(pt_arguments *a, const fb_json *value, fb_buffer *out);

static bool put_list(pt_arguments *a, const fb_json *list, put_item *put, fb_buffer *out) {
    fb_buffer_char(out, '[');
    const fb_json *item = fb_json_first(list);
    for (uint32_t i = 0; i < list->count; i++, item = fb_json_next(item)) {
        if (i) fb_buffer_char(out, ',');
        if (!put(a, item, out)) return false;
    }
    fb_buffer_char(out, ']');
    return true;
}

static bool put_tuple_of_ints(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    fb_buffer_string(out, "{\"$tuple\":");
    bool ok = put_list(a, value, put_int, out);
    fb_buffer_char(out, '}');
    return ok;
}
static bool put_list_of_floats(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    return put_list(a, value, put_float, out);
}
static bool put_list_of_tensors(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    return put_list(a, value, put_tensor, out);
}

static bool pt_put_argument(pt_arguments *a, const fb_json *argument, fb_buffer *out);

static bool put_dict(pt_arguments *a, const fb_json *value, fb_buffer *out) {
    if (a->depth >= PT_MOST_DEPTH) return wrong(a, "as_string_to_argument");
    a->depth++;
    fb_buffer_string(out, "{\"$dict\":[");
    const fb_json *key = fb_json_first(value);
    bool ok = true;
    for (uint32_t i = 0; i < value->count && ok; i++, key = fb_json_next(key + 1)) {
        fb_buffer_string(out, i ? ",[" : "[");
        put_string(out, key->text, key->count);
        fb_buffer_char(out, ',');
        ok = pt_put_argument(a, key + 1, out);
        fb_buffer_char(out, ']');
    }
    fb_buffer_string(out, "]}");
    a->depth--;
    return ok;
}

static bool pt_put_argument(pt_arguments *a, const fb_json *argument, fb_buffer *out) {
    static const struct {
        const char *kind;
        put_item *put;
        bool is_list;
    } forms[] = {
        {"as_none", put_none, false},
        {"as_tensor", put_tensor, false},
        {"as_tensors", put_tensor, true},
        {"as_int", put_int, false},
        {"as_ints", put_int, true},
        {"as_float", put_float, false},
        {"as_floats", put_float, true},
        {"as_bool", put_bool, false},
        {"as_bools", put_bool, true},
        {"as_string", put_text, false},
        {"as_strings", put_text, true},
        {"as_sym_int", put_symbolic, false},
        {"as_sym_ints", put_symbolic, true},
        {"as_sym_float", put_symbolic, false},
        {"as_sym_floats", put_symbolic, true},
        {"as_sym_bool", put_symbolic, false},
        {"as_sym_bools", put_symbolic, true},
        {"as_scalar_type", put_dtype, false},
        {"as_memory_format", put_memory_format, false},
        {"as_layout", put_layout, false},
        {"as_device", put_device, false},
        {"as_graph", put_graph, false},
        {"as_optional_tensors", put_optional_tensor, true},
        {"as_nested_tensors", put_list_of_tensors, true},
        {"as_int_lists", put_tuple_of_ints, true},
        {"as_float_lists", put_list_of_floats, true},
        {"as_complex", put_complex, false},
        {"as_operator", put_operator, false},
        {"as_string_to_argument", put_dict, false},
    };
    const char *kind;
    const fb_json *value = pt_union(argument, &kind);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].kind, kind) == 0)
            return forms[i].is_list ? put_list(a, value, forms[i].put, out) : forms[i].put(a, value, out);
    }
    return pt_unsupported(a->m, a->m->program_file.name,
                          "the node \"%s\" has an argument of the kind %s, which is not supported", a->row->name, kind);
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

static int kind_of(pt_arguments *a, const fb_json *input, const fb_json *name, const char *parameters) {
    const fb_json *kind = pt_member(input, "kind");
    int64_t said = kind && kind->kind == FB_JSON_INT ? kind->integer : UNSAID;
    uint32_t place;
    bool by_position, is_reserved = fb_python_word(name->text, name->count) == FB_WORD_KEYWORD;
    if (!fb_is_spelled(a->row->target, FB_REGISTERED)) return POSITIONAL;
    if (fb_is_spelled(a->row->target, FB_HIGHER_ORDER)) return said == POSITIONAL || !name->count ? POSITIONAL : KEYWORD;
    if (said == POSITIONAL || (said == KEYWORD && is_reserved)) return POSITIONAL;
    if (said == KEYWORD) return KEYWORD;
    if (!parameters || !find_parameter(parameters, name->text, name->count, &place, &by_position)) return UNSAID;
    return by_position || is_reserved ? POSITIONAL : KEYWORD;
}

static bool pt_put_arguments(pt_arguments *a, const fb_json *inputs, fb_buffer *args, fb_buffer *kwargs) {
    const char *parameters = parameters_of(a->row->target);
    const fb_json *input = fb_json_first(inputs);
    uint32_t positions = 0, names = 0, last = 0, place;
    for (uint32_t i = 0; i < inputs->count; i++, input = fb_json_next(input)) {
        const fb_json *name = pt_member(input, "name"), *argument = pt_member(input, "arg");
        int kind = kind_of(a, input, name, parameters);
        bool by_position, is_known = parameters && find_parameter(parameters, name->text, name->count, &place, &by_position);
        const char *said = pt_text(a->m, name);
        if (kind == UNSAID || (kind == POSITIONAL && names) || (parameters && (!is_known || (i && place <= last))) ||
            (is_known && kind == POSITIONAL && place != positions))
            return pt_unsupported(a->m, a->m->program_file.name,
                                  "the node \"%s\" has its arguments in another order than PyTorch: %s", a->row->name,
                                  said ? said : "");
        last = is_known ? place : 0;
        fb_buffer *out = kind == POSITIONAL ? args : kwargs;
        if (kind == POSITIONAL ? positions++ : names++) fb_buffer_char(out, ',');
        if (kind == KEYWORD) {
            put_string(out, name->text, name->count);
            fb_buffer_char(out, ':');
        }
        if (!pt_put_argument(a, argument, out)) return false;
    }
    return true;
}

/* Writes a result of the program: the copy, when it was also copied into a buffer or an input. */
static bool put_result(pt_arguments *a, const fb_json *result, fb_buffer *out) {
    const char *kind;
    const fb_json *value = pt_union(result, &kind);
    bool is_tensor = strcmp(kind, "as_tensor") == 0;
    uint32_t from = is_tensor ? pt_row_of(a->program, pt_member(value, "name")) : UINT32_MAX;
    for (uint32_t i = a->program->count; is_tensor && !a->program->parent && i-- > 0;) {
        const pt_row *row = &a->program->rows[i];
        if (row->kind < PT_COPY) break;
        if (row->kind != PT_COPY || row->second != from) continue;
        pt_put_row(a, i, out);
        return true;
    }
    return pt_put_argument(a, result, out);
}

static bool is_mutation(const fb_json *spec) {
    const char *kind;
    pt_union(spec, &kind);
    return strlen(kind) > 9 && strcmp(kind + strlen(kind) - 9, "_mutation") == 0;
}

static bool put_output(pt_arguments *a, fb_buffer *out) {
    const pt_row *row = a->row;
    if (a->program->parent && row->first) return pt_put_argument(a, fb_json_first(row->source), out);
    const fb_json *signature = pt_member(pt_member(a->m->program_file.root, "graph_module"), "signature");
    const fb_json *specs = a->program->parent ? NULL : pt_member(signature, "output_specs");
    const fb_json *spec = specs ? fb_json_first(specs) : NULL, *result = fb_json_first(row->source);
    bool is_first = true;
    fb_buffer_string(out, "{\"$tuple\":[");
    for (uint32_t i = 0; i < row->source->count; i++, result = fb_json_next(result)) {
        bool is_left = !spec || !is_mutation(spec);
        if (spec) spec = fb_json_next(spec);
        if (!is_left) continue;
        if (!is_first) fb_buffer_char(out, ',');
        is_first = false;
        if (!put_result(a, result, out)) return false;
    }
    fb_buffer_string(out, "]}");
    return true;
}

bool pt_put_all(pt_arguments *a, fb_buffer *args, fb_buffer *kwargs) {
    const pt_row *row = a->row;
    if (row->kind == PT_CALL) return pt_put_arguments(a, pt_member(row->source, "inputs"), args, kwargs);
    if (row->kind == PT_OUTPUT) return put_output(a, args);
    if (row->kind != PT_ITEM && row->kind != PT_COPY) return true;
    pt_put_row(a, row->first, args);
    fb_buffer_char(args, ',');
    if (row->kind == PT_COPY) pt_put_row(a, row->second, args);
    else fb_buffer_int(args, row->second);
    return true;
}
