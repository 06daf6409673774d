/* New calls as archives spell them: their arguments, from the operator's signature, and what is recorded of their results. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/archive/rewrite.h"

/* ---- new arguments ------------------------------------------------------------------------------------------------------- */

int64_t pt_scalar_type(const char *dtype) {
    for (int64_t i = 1; i < 64; i++) {
        const char *name = pt_dtype_name(i);
        if (name && strcmp(name, dtype) == 0) return i;
    }
    return 0;
}

/* The archive's name of the value that is read; `kind` is its kind there. */
static const char *name_read(pt_scope *s, const json_t *value, const char **kind) {
    static const char *const lists[] = {"sym_int_values", "as_sym_int",      "sym_float_values",
                                        "as_sym_float",   "sym_bool_values", "as_sym_bool"};
    const json_t *graph = json_object_get(json_object_get(s->r->program, "graph_module"), "graph");
    const char *node = json_string_value(json_object_get(value, "$node"));
    const char *name = node ? json_string_value(json_object_get(s->names, node)) : NULL;
    *kind = name && json_object_get(s->values, name) ? "as_tensor" : NULL;
    for (size_t i = 0; name && !*kind && i < sizeof lists / sizeof *lists; i += 2) {
        if (json_object_get(json_object_get(graph, lists[i]), name)) *kind = lists[i + 1];
    }
    if (name && *kind) return name;
    pt_refuse(s->r, "\"%s\", an argument, has no name in the archive", node ? node : "");
    return NULL;
}

static json_t *make_float(double value) {
    const char *named = isnan(value) ? "NaN" : isinf(value) ? value > 0 ? "Infinity" : "-Infinity" : NULL;
    return named ? json_string(named) : json_real(value);
}

/* A number that documents write as text: {"$float": "inf"}. */
static bool is_float(const json_t *value, double *number) {
    const char *text = json_string_value(json_object_get(value, "$float"));
    char *end = NULL;
    if (json_is_real(value)) *number = json_real_value(value);
    else if (text) *number = strtod(text, &end);
    return json_is_real(value) || (text && *text && !*end);
}

static json_t *make_read(pt_scope *s, const json_t *value) {
    const char *kind, *name = name_read(s, value, &kind);
    if (!name) return NULL;
    bool is_tensor = strcmp(kind, "as_tensor") == 0;
    return json_pack("{s:{s:s}}", kind, is_tensor ? "name" : "as_name", name);
}

typedef enum list_kind { LIST_INTS, LIST_FLOATS, LIST_BOOLS, LIST_SIZES, LIST_TENSORS, LIST_OPTIONAL, LIST_UNKNOWN } list_kind;

/* As PyTorch writes them. */
static list_kind kind_of_empty(char type) {
    if (type && strchr("IJKP", type)) return LIST_INTS;
    if (type == 'L' || type == 'O') return LIST_TENSORS;
    return type == 'F' || type == 'E' ? LIST_FLOATS : type == 'B' ? LIST_BOOLS : LIST_UNKNOWN;
}

static list_kind kind_of_list(pt_scope *s, const json_t *list) {
    size_t ints = 0, floats = 0, bools = 0, nones = 0, tensors = 0, sizes = 0, i, count = json_array_size(list);
    json_t *item;
    double number;
    json_array_foreach(list, i, item) {
        const char *kind = NULL;
        if (json_object_get(item, "$node")) name_read(s, item, &kind);
        if (json_is_integer(item)) ints++;
        else if (json_is_boolean(item)) bools++;
        else if (json_is_null(item)) nones++;
        else if (is_float(item, &number)) floats++;
        else if (kind && strcmp(kind, "as_tensor") == 0) tensors++;
        else if (kind && strcmp(kind, "as_sym_int") == 0) sizes++;
    }
    if (ints == count) return LIST_INTS;
    if (floats == count) return LIST_FLOATS;
    if (bools == count) return LIST_BOOLS;
    if (tensors == count) return LIST_TENSORS;
    if (ints + sizes == count) return LIST_SIZES;
    return nones + tensors == count && tensors ? LIST_OPTIONAL : LIST_UNKNOWN;
}

static json_t *make_item(pt_scope *s, const json_t *item, list_kind kind) {
    const char *what;
    double number = 0;
    if (kind == LIST_FLOATS) return is_float(item, &number) ? make_float(number) : NULL;
    if (kind == LIST_INTS || kind == LIST_BOOLS) return json_deep_copy(item);
    if (json_is_null(item)) return json_pack("{s:b}", "as_none", true);
    if (json_is_integer(item)) return json_pack("{s:I}", "as_int", json_integer_value(item));
    const char *name = name_read(s, item, &what);
    if (kind == LIST_OPTIONAL && name) return json_pack("{s:{s:s}}", "as_tensor", "name", name);
    return name ? json_pack("{s:s}", kind == LIST_SIZES ? "as_name" : "name", name) : NULL;
}

static json_t *make_list(pt_scope *s, const json_t *list, char type) {
    static const char *const kinds[] = {"as_ints", "as_floats", "as_bools", "as_sym_ints", "as_tensors", "as_optional_tensors"};
    list_kind kind = json_array_size(list) ? kind_of_list(s, list) : kind_of_empty(type);
    size_t i;
    json_t *item, *made = kind == LIST_UNKNOWN ? NULL : json_array();
    json_array_foreach(list, i, item) {
        json_t *value = made ? make_item(s, item, kind) : NULL;
        if (!value || json_array_append_new(made, value) != 0) break;
    }
    if (made && json_array_size(made) == json_array_size(list)) return json_pack("{s:o}", kinds[kind], made);
    json_decref(made);
    pt_refuse(s->r, "an argument is a list of several kinds, or an empty one of a kind that is not known");
    return NULL;
}

static json_t *make_device(const char *text) {
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    json_t *index = colon ? json_integer(strtol(colon + 1, NULL, 10)) : json_null();
    return json_pack("{s:{s:s%,s:o}}", "as_device", "type", text, length, "index", index);
}

/* {"$dtype"}, {"$device"}, {"$memory_format"}, {"$layout"}: as archives number them. */
static json_t *make_named(const json_t *value) {
    static const char *const formats[] = {"", "contiguous_format", "channels_last", "channels_last_3d", "preserve_format"};
    const char *dtype = json_string_value(json_object_get(value, "$dtype")), *layout = pt_text_of(value, "$layout");
    const char *device = json_string_value(json_object_get(value, "$device")), *format = pt_text_of(value, "$memory_format");
    if (dtype && pt_scalar_type(dtype)) return json_pack("{s:I}", "as_scalar_type", (json_int_t)pt_scalar_type(dtype));
    if (device) return make_device(device);
    if (strcmp(layout, "strided") == 0) return json_pack("{s:i}", "as_layout", PT_STRIDED);
    for (int i = 1; i < 5; i++) {
        if (strcmp(format, formats[i]) == 0) return json_pack("{s:i}", "as_memory_format", i);
    }
    return NULL;
}

json_t *pt_make_argument(pt_scope *s, const json_t *value, char type) {
    const json_t *tuple = json_object_get(value, "$tuple");
    double number;
    if (is_float(value, &number)) return json_pack("{s:o}", "as_float", make_float(number));
    if (json_is_null(value)) return json_pack("{s:b}", "as_none", true);
    if (json_is_boolean(value)) return json_pack("{s:b}", "as_bool", json_is_true(value));
    if (json_is_integer(value)) return json_pack("{s:I}", "as_int", json_integer_value(value));
    if (json_is_string(value)) return json_pack("{s:s}", "as_string", json_string_value(value));
    if (json_is_array(value) || tuple) return make_list(s, tuple ? tuple : value, type);
    if (json_object_get(value, "$node")) return make_read(s, value);
    json_t *made = make_named(value);
    if (!made) pt_refuse(s->r, "an argument is of a kind that is not known");
    return made;
}

/* `at`: its place among the inputs. */
static bool make_input(pt_scope *s, json_t *inputs, size_t at, const char *target, const char *name, size_t length,
                       const json_t *value, int kind) {
    json_t *argument = pt_make_argument(s, value, pt_type_of(target, name, length));
    json_t *input = argument ? json_pack("{s:s%,s:o,s:i}", "name", name, length, "arg", argument, "kind", kind) : NULL;
    if (!input) return false;
    return json_array_insert_new(inputs, at, input) == 0;
}

/* An argument by name, in the order of the operator's signature, behind the `positions` others. */
static bool make_named_input(pt_scope *s, json_t *inputs, size_t positions, const char *target, const char *name,
                             const json_t *value) {
    size_t at = json_array_size(inputs);
    uint32_t place = pt_place_of(target, name);
    while (at > positions && pt_place_of(target, pt_text_of(json_array_get(inputs, at - 1), "name")) > place) at--;
    return make_input(s, inputs, at, target, name, strlen(name), value, 2);
}

/* The inputs of a node, from the operator's signature. */
json_t *pt_make_inputs(pt_scope *s, const json_t *node) {
    const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs");
    const char *target = pt_text_of(node, "target"), *key, *name;
    json_t *inputs = json_array(), *value;
    size_t length, i;
    bool ok = inputs;
    json_array_foreach(args, i, value) {
        if (ok && !pt_parameter_at(target, i, &name, &length))
            ok = pt_refuse(s->r, "\"%s\" is a call of %s, whose signature is not known", pt_text_of(node, "name"), target);
        ok = ok && make_input(s, inputs, i, target, name, length, value, 1);
    }
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value) ok =
        ok && make_named_input(s, inputs, json_array_size(args), target, key, value);
    if (ok) return inputs;
    json_decref(inputs);
    return NULL;
}
/* ---- results of new nodes ----------------------------------------------------------------------------------------------- */

static json_t *make_size(pt_scope *s, const json_t *size) {
    if (json_is_integer(size)) return json_pack("{s:I}", "as_int", json_integer_value(size));
    const json_t *known = json_object_get(s->r->sizes, json_string_value(size) ? json_string_value(size) : "");
    if (!known) pt_refuse(s->r, "the size %s is not in the archive", json_string_value(size) ? json_string_value(size) : "?");
    return json_deep_copy(known);
}

/* A row-major tensor. `device`: the archive's word for where it is. */
json_t *pt_make_meta(pt_scope *s, const json_t *shape, const char *dtype, bool requires_grad, const json_t *device) {
    json_t *sizes = json_array(), *strides = NULL, *made = NULL, *size;
    size_t i;
    bool ok = sizes;
    json_array_foreach(shape, i, size) {
        json_t *spelled = ok ? make_size(s, size) : NULL;
        ok = spelled && pt_append(sizes, spelled);
    }
    if (ok && !pt_scalar_type(dtype)) ok = pt_refuse(s->r, "the dtype \"%s\" of a new tensor is not known", dtype);
    if (ok) strides = pt_row_major(sizes);
    if (strides)
        made = json_pack("{s:I,s:O,s:b,s:O,s:O,s:{s:i},s:i}", "dtype", (json_int_t)pt_scalar_type(dtype), "sizes", sizes,
                         "requires_grad", requires_grad, "device", device, "strides", strides, "storage_offset", "as_int", 0,
                         "layout", PT_STRIDED);
    json_decref(sizes);
    json_decref(strides);
    return made;
}

const json_t *pt_some_device(const pt_scope *s) {
    const char *key;
    json_t *value;
    json_object_foreach(s->values, key, value) return json_object_get(value, "device");
    return NULL;
}

bool pt_are_on_one_device(const pt_scope *s) {
    const char *key;
    json_t *value;
    const json_t *first = pt_some_device(s);
    json_object_foreach(s->values, key, value) if (!json_equal(json_object_get(value, "device"), first)) return false;
    return first != NULL;
}
