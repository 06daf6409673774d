/* The program and the weights config of a changed graph, from those of its archive.
 *
 * Nodes are matched by their names in the document. A node that is still there keeps what the archive says of it, and only what
 * it reads is renamed; a new one is written from the operator's signature. What has been written is read again as any archive
 * is, and must be the graph. */
#include "core/archive/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/document/document.h"
#include "core/graph/write.h"
#include "core/json/json.h"
#include "core/operators/spelling.h"

typedef struct writer {
    pt_model *m;
    pt_program *p;
    const fb_graph *graph;
    fb_error *error;
    fb_status status;
    json_t *program, *weights, *constants; /* files of the archive, to be changed */
    json_t *before, *after;                /* documents */
    json_t *rows;                          /* by node of the document, indexes of rows */
    json_t *names;                         /* by node of the document, what the archive calls its result */
    json_t *values;                        /* program's tensor_values */
    json_t *sizes;                         /* by what documents print, symbolic sizes as the archive has them */
    json_t *records;                       /* by path_name, tensors of the graph to be evaluated */
    json_t *owners;                        /* owners_of(after) */
    json_t *states, *state_inputs;         /* input_specs and inputs of new weights */
    json_t *kept;                          /* by node of the document */
    json_t *laid_out;                      /* names of results whose strides are not those that the archive had */
    json_t *copied;                        /* what is copied into each buffer or input that is written, {"$node"} */
    json_t *record_of;                     /* by tensor of the graph, path_names */
    json_t *inputs_of;                     /* by owner, the names of its inputs */
    json_t *nodes_before;                  /* of the document of the archive, by name */
    size_t next_record;
    json_t **sources; /* by row, its node in the archive, or NULL */
} writer;

/* ---- failures ----------------------------------------------------------------------------------------------------------- */

static bool refuse(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(writer *w, const char *format, ...) {
    if (w->status || w->m->status) return false;
    fb_buffer reason = {0};
    va_list args;
    va_start(args, format);
    fb_buffer_vprintf(&reason, format, args);
    va_end(args);
    const char *text = fb_buffer_text(&reason);
    w->status = text ? fb_fail(w->error, FB_CONFLICT, "archive-changed", "",
                               "the graph differs from its archive %s in what cannot be written yet: %s", w->m->blob, text)
                     : fb_fail_memory(w->error);
    fb_buffer_free(&reason);
    return false;
}

static bool no_memory(writer *w) {
    if (!w->status) w->status = fb_fail_memory(w->error);
    return false;
}

static bool set(writer *w, json_t *object, const char *key, json_t *value) {
    return json_object_set_new(object, key, value) == 0 || no_memory(w);
}

static bool append(writer *w, json_t *array, json_t *value) {
    return json_array_append_new(array, value) == 0 || no_memory(w);
}

/* Appends to the list of that key. */
static bool push(writer *w, json_t *lists, const char *key, json_t *value) {
    json_t *list = json_object_get(lists, key);
    if (!list && !set(w, lists, key, list = json_array())) return json_decref(value), false;
    return append(w, list, value);
}

static json_t *load(writer *w, const char *text, size_t size, const char *what) {
    json_error_t failure;
    json_t *made = fb_load_json_bytes(text, size, 0, &failure);
    if (!made && failure.text[0]) refuse(w, "%s has what is not understood: %s", what, failure.text);
    else if (!made) no_memory(w);
    return made;
}

/* A document in canonical form. */
static json_t *load_document(writer *w, const char *text, size_t size) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_buffer canonical = {0};
    json_t *made = NULL;
    fb_document_limits limits = {.watch = w->m->work->watch};
    if (fb_document_read(text, size, &limits, "", &graph, &errors)) {
        if (errors.count) refuse(w, "%s", errors.items[0].message);
        else no_memory(w);
    } else {
        fb_document_write(graph, &canonical);
        if (canonical.failed) no_memory(w);
        else made = load(w, canonical.data, canonical.size, "the document");
    }
    fb_buffer_free(&canonical);
    fb_graph_free(graph);
    fb_errors_free(&errors);
    return made;
}

static json_t *owners_of(writer *w, const json_t *document) {
    json_t *made = pt_owners_of(document);
    if (!made) no_memory(w);
    return made;
}

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- the rows of the archive -------------------------------------------------------------------------------------------- */

static bool index_rows(writer *w) {
    const pt_program *p = w->p;
    json_t *nodes = json_object_get(json_object_get(json_object_get(w->program, "graph_module"), "graph"), "nodes");
    const fb_json *list = pt_member_of(p->graph, "nodes", FB_JSON_ARRAY), *node = list ? fb_json_first(list) : NULL;
    size_t at = 0;
    w->sources = calloc((size_t)p->count + 1, sizeof(json_t *));
    if (!w->sources) return no_memory(w);
    for (uint32_t i = 0; i < p->count; i++) {
        const pt_row *row = &p->rows[i];
        for (; row->kind == PT_CALL && node && node != row->source && at < list->count; at++) node = fb_json_next(node);
        if (row->kind == PT_CALL) w->sources[i] = json_array_get(nodes, at);
        if (row->name && !row->is_dead && !set(w, w->rows, row->name, json_integer(i))) return false;
    }
    for (uint32_t i = 0; i < p->by_name.count; i++) {
        const pt_key *key = &p->by_name.rows[i];
        const pt_row *row = &p->rows[key->value];
        bool is_named = row->name && !row->is_dead && key->text[0] != '\n';
        if (is_named && !set(w, w->names, row->name, json_stringn(key->text, key->length))) return false;
        if (is_named && row->kind == PT_STATE && !push(w, w->inputs_of, row->target, json_stringn(key->text, key->length)))
            return false;
    }
    return true;
}

static const pt_row *row_called(const writer *w, const char *name) {
    const json_t *index = json_object_get(w->rows, name);
    return index ? &w->p->rows[json_integer_value(index)] : NULL;
}

/* ---- what a node reads --------------------------------------------------------------------------------------------------- */

static bool list_reads(writer *w, const json_t *value, json_t *out) {
    return pt_list_reads(value, out) || no_memory(w);
}

/* Exchanges the names that an argument of the archive reads, in their order. Without `reads` they are only counted. */
static bool rename_reads(writer *w, json_t *argument, const json_t *reads, size_t *at) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(argument)) {
        json_array_foreach(argument, i, item) if (!rename_reads(w, item, reads, at)) return false;
        return true;
    }
    if (!json_is_object(argument)) return true;
    const json_t *program = json_object_get(argument, "as_graph");
    if (program) {
        const char *node = json_string_value(json_array_get(reads, (*at)++));
        const pt_row *row = node ? row_called(w, node) : NULL;
        bool is_same = row && row->kind == PT_PROGRAM && strcmp(row->target, text_of(program, "name")) == 0;
        return !reads || is_same || refuse(w, "\"%s\" is called in the place of another nested program", node ? node : "");
    }
    const char *member = json_object_get(argument, "as_name") ? "as_name" : "name";
    const json_t *name = json_object_get(argument, member);
    if (!json_is_string(name)) {
        json_object_foreach(argument, key, item) if (!rename_reads(w, item, reads, at)) return false;
        return true;
    }
    size_t index = (*at)++;
    if (!reads) return true;
    const char *node = json_string_value(json_array_get(reads, index));
    const char *now = node ? json_string_value(json_object_get(w->names, node)) : NULL;
    if (!now) return refuse(w, "\"%s\" reads what the archive has no name for", node ? node : "");
    bool was_tensor = json_object_get(w->values, json_string_value(name)) != NULL;
    if (strcmp(now, json_string_value(name)) != 0 && (!was_tensor || !json_object_get(w->values, now)))
        return refuse(w, "the size %s is read in the place of %s", now, json_string_value(name));
    const json_t *was = json_object_get(json_object_get(w->values, json_string_value(name)), "strides");
    const json_t *is = json_object_get(json_object_get(w->values, now), "strides");
    if (was && !json_equal(was, is) && !set(w, w->laid_out, now, json_true())) return false;
    return set(w, argument, member, json_string(now));
}

/* ---- new arguments ------------------------------------------------------------------------------------------------------- */

static int64_t scalar_type(const char *dtype) {
    for (int64_t i = 1; i < 64; i++) {
        const char *name = pt_dtype_name(i);
        if (name && strcmp(name, dtype) == 0) return i;
    }
    return 0;
}

/* What the archive calls the value that is read; `kind` says what it is there. */
static const char *name_read(writer *w, const json_t *value, const char **kind) {
    static const char *const lists[] = {"sym_int_values", "as_sym_int",      "sym_float_values",
                                        "as_sym_float",   "sym_bool_values", "as_sym_bool"};
    const json_t *graph = json_object_get(json_object_get(w->program, "graph_module"), "graph");
    const char *node = json_string_value(json_object_get(value, "$node"));
    const char *name = node ? json_string_value(json_object_get(w->names, node)) : NULL;
    *kind = name && json_object_get(w->values, name) ? "as_tensor" : NULL;
    for (size_t i = 0; name && !*kind && i < sizeof lists / sizeof *lists; i += 2) {
        if (json_object_get(json_object_get(graph, lists[i]), name)) *kind = lists[i + 1];
    }
    if (name && *kind) return name;
    refuse(w, "\"%s\", an argument, has no name in the archive", node ? node : "");
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

static json_t *make_read(writer *w, const json_t *value) {
    const char *kind, *name = name_read(w, value, &kind);
    if (!name) return NULL;
    bool is_tensor = strcmp(kind, "as_tensor") == 0;
    return json_pack("{s:{s:s}}", kind, is_tensor ? "name" : "as_name", name);
}

typedef enum list_kind { LIST_INTS, LIST_FLOATS, LIST_BOOLS, LIST_SIZES, LIST_TENSORS, LIST_OPTIONAL, LIST_UNKNOWN } list_kind;

static list_kind kind_of_list(writer *w, const json_t *list) {
    size_t ints = 0, floats = 0, bools = 0, nones = 0, tensors = 0, sizes = 0, i, count = json_array_size(list);
    json_t *item;
    double number;
    json_array_foreach(list, i, item) {
        const char *kind = NULL;
        if (json_object_get(item, "$node")) name_read(w, item, &kind);
        if (json_is_integer(item)) ints++;
        else if (json_is_boolean(item)) bools++;
        else if (json_is_null(item)) nones++;
        else if (is_float(item, &number)) floats++;
        else if (kind && strcmp(kind, "as_tensor") == 0) tensors++;
        else if (kind && strcmp(kind, "as_sym_int") == 0) sizes++;
    }
    if (!count) return LIST_UNKNOWN; /* which kind it is, the operator knows */
    if (ints == count) return LIST_INTS;
    if (floats == count) return LIST_FLOATS;
    if (bools == count) return LIST_BOOLS;
    if (tensors == count) return LIST_TENSORS;
    if (ints + sizes == count) return LIST_SIZES;
    return nones + tensors == count && tensors ? LIST_OPTIONAL : LIST_UNKNOWN;
}

static json_t *make_item(writer *w, const json_t *item, list_kind kind) {
    const char *what;
    double number = 0;
    if (kind == LIST_FLOATS) return is_float(item, &number) ? make_float(number) : NULL;
    if (kind == LIST_INTS || kind == LIST_BOOLS) return json_deep_copy(item);
    if (json_is_null(item)) return json_pack("{s:b}", "as_none", true);
    if (json_is_integer(item)) return json_pack("{s:I}", "as_int", json_integer_value(item));
    const char *name = name_read(w, item, &what);
    if (kind == LIST_OPTIONAL && name) return json_pack("{s:{s:s}}", "as_tensor", "name", name);
    return name ? json_pack("{s:s}", kind == LIST_SIZES ? "as_name" : "name", name) : NULL;
}

static json_t *make_list(writer *w, const json_t *list) {
    static const char *const kinds[] = {"as_ints", "as_floats", "as_bools", "as_sym_ints", "as_tensors", "as_optional_tensors"};
    list_kind kind = kind_of_list(w, list);
    size_t i;
    json_t *item, *made = kind == LIST_UNKNOWN ? NULL : json_array();
    json_array_foreach(list, i, item) {
        json_t *value = made ? make_item(w, item, kind) : NULL;
        if (!value || json_array_append_new(made, value) != 0) break;
    }
    if (made && json_array_size(made) == json_array_size(list)) return json_pack("{s:o}", kinds[kind], made);
    json_decref(made);
    refuse(w, "an argument is a list that is empty, or of several kinds");
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
    const char *dtype = json_string_value(json_object_get(value, "$dtype")), *layout = text_of(value, "$layout");
    const char *device = json_string_value(json_object_get(value, "$device")), *format = text_of(value, "$memory_format");
    if (dtype && scalar_type(dtype)) return json_pack("{s:I}", "as_scalar_type", (json_int_t)scalar_type(dtype));
    if (device) return make_device(device);
    if (strcmp(layout, "strided") == 0) return json_pack("{s:i}", "as_layout", PT_STRIDED);
    for (int i = 1; i < 5; i++) {
        if (strcmp(format, formats[i]) == 0) return json_pack("{s:i}", "as_memory_format", i);
    }
    return NULL;
}

static json_t *make_argument(writer *w, const json_t *value) {
    const json_t *tuple = json_object_get(value, "$tuple");
    double number;
    if (is_float(value, &number)) return json_pack("{s:o}", "as_float", make_float(number));
    if (json_is_null(value)) return json_pack("{s:b}", "as_none", true);
    if (json_is_boolean(value)) return json_pack("{s:b}", "as_bool", json_is_true(value));
    if (json_is_integer(value)) return json_pack("{s:I}", "as_int", json_integer_value(value));
    if (json_is_string(value)) return json_pack("{s:s}", "as_string", json_string_value(value));
    if (json_is_array(value) || tuple) return make_list(w, tuple ? tuple : value);
    if (json_object_get(value, "$node")) return make_read(w, value);
    json_t *made = make_named(value);
    if (!made) refuse(w, "an argument is of a kind that is not known");
    return made;
}

/* `at`: its place among the inputs. */
static bool make_input(writer *w, json_t *inputs, size_t at, const char *name, size_t length, const json_t *value, int kind) {
    json_t *argument = make_argument(w, value);
    json_t *input = argument ? json_pack("{s:s%,s:o,s:i}", "name", name, length, "arg", argument, "kind", kind) : NULL;
    if (!input) return w->status ? false : no_memory(w);
    return json_array_insert_new(inputs, at, input) == 0 || no_memory(w);
}

/* An argument by name, in the order of the operator's signature, behind the `positions` others. */
static bool make_named_input(writer *w, json_t *inputs, size_t positions, const char *target, const char *name,
                             const json_t *value) {
    size_t at = json_array_size(inputs);
    uint32_t place = pt_place_of(target, name);
    while (at > positions && pt_place_of(target, text_of(json_array_get(inputs, at - 1), "name")) > place) at--;
    return make_input(w, inputs, at, name, strlen(name), value, 2);
}

/* The inputs of a node, from the operator's signature. */
static json_t *make_inputs(writer *w, const json_t *node) {
    const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs");
    const char *target = text_of(node, "target"), *key, *name;
    json_t *inputs = json_array(), *value;
    size_t length, i;
    bool ok = inputs || no_memory(w);
    json_array_foreach(args, i, value) {
        if (ok && !pt_parameter_at(target, i, &name, &length))
            ok = refuse(w, "\"%s\" is a call of %s, whose signature is not known", text_of(node, "name"), target);
        ok = ok && make_input(w, inputs, i, name, length, value, 1);
    }
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value) ok =
        ok && make_named_input(w, inputs, json_array_size(args), target, key, value);
    if (ok) return inputs;
    json_decref(inputs);
    return NULL;
}

/* ---- results of new nodes ----------------------------------------------------------------------------------------------- */

/* Symbolic sizes by what documents print of them. */
static bool list_sizes(writer *w) {
    const char *key;
    json_t *value, *size;
    size_t i;
    json_object_foreach(w->values, key, value) {
        json_array_foreach(json_object_get(value, "sizes"), i, size) {
            const char *text = text_of(json_object_get(size, "as_expr"), "expr_str");
            fb_buffer printed = {0};
            bool ok = !*text || (fb_print_size(text, strlen(text), &printed) && fb_buffer_text(&printed));
            if (ok && *text) ok = json_object_set(w->sizes, fb_buffer_text(&printed), size) == 0;
            fb_buffer_free(&printed);
            if (!ok) return no_memory(w);
        }
    }
    return true;
}

static json_t *make_size(writer *w, const json_t *size) {
    if (json_is_integer(size)) return json_pack("{s:I}", "as_int", json_integer_value(size));
    const json_t *known = json_object_get(w->sizes, json_string_value(size) ? json_string_value(size) : "");
    if (!known) refuse(w, "the size %s is not in the archive", json_string_value(size) ? json_string_value(size) : "?");
    return json_deep_copy(known);
}

/* A row-major tensor. `device`: the archive's word for where it is. */
static json_t *make_meta(writer *w, const json_t *shape, const char *dtype, bool requires_grad, const json_t *device) {
    json_t *sizes = json_array(), *strides = NULL, *made = NULL, *size;
    size_t i;
    bool ok = sizes || no_memory(w);
    json_array_foreach(shape, i, size) {
        json_t *spelled = ok ? make_size(w, size) : NULL;
        ok = spelled && append(w, sizes, spelled);
    }
    if (ok && !scalar_type(dtype)) ok = refuse(w, "the dtype \"%s\" of a new tensor is not known", dtype);
    if (ok) strides = pt_row_major(sizes);
    if (strides)
        made = json_pack("{s:I,s:O,s:b,s:O,s:O,s:{s:i},s:i}", "dtype", (json_int_t)scalar_type(dtype), "sizes", sizes,
                         "requires_grad", requires_grad, "device", device, "strides", strides, "storage_offset", "as_int", 0,
                         "layout", PT_STRIDED);
    json_decref(sizes);
    json_decref(strides);
    if (ok && !made) no_memory(w);
    return made;
}

static const json_t *some_device(const writer *w) {
    const char *key;
    json_t *value;
    json_object_foreach(w->values, key, value) return json_object_get(value, "device");
    return NULL;
}

static bool are_on_one_device(const writer *w) {
    const char *key;
    json_t *value;
    const json_t *first = some_device(w);
    json_object_foreach(w->values, key, value) if (!json_equal(json_object_get(value, "device"), first)) return false;
    return first != NULL;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

/* Equal but for the nodes that are read? */
static bool is_alike(const json_t *a, const json_t *b) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_string(json_object_get(a, "$node"))) return json_is_string(json_object_get(b, "$node"));
    if (json_is_array(a)) {
        if (!json_is_array(b) || json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach(a, i, item) if (!is_alike(item, json_array_get(b, i))) return false;
        return true;
    }
    if (!json_is_object(a)) return json_equal(a, b);
    if (!json_is_object(b) || json_object_size(a) != json_object_size(b)) return false;
    json_object_foreach((json_t *)(uintptr_t)a, key, item) if (!is_alike(item, json_object_get(b, key))) return false;
    return true;
}

/* The argument as it was, with other names in it; or a new one where more has changed. */
static bool keep_argument(writer *w, json_t *input, const json_t *before, const json_t *after) {
    json_t *argument = json_object_get(input, "arg"), *reads = json_array();
    size_t count = 0, at = 0;
    bool ok = (reads || no_memory(w)) && list_reads(w, after, reads) && rename_reads(w, argument, NULL, &count);
    if (ok && is_alike(before, after) && count == json_array_size(reads)) {
        ok = rename_reads(w, argument, reads, &at);
    } else if (ok) {
        argument = make_argument(w, after);
        ok = argument && set(w, input, "arg", argument);
    }
    json_decref(reads);
    return ok;
}

static bool have_same_keys(const json_t *a, const json_t *b) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, key, value) if (!json_object_get(b, key)) return false;
    return json_object_size(a) == json_object_size(b);
}

static bool keep_arguments(writer *w, json_t *made, const json_t *before, const json_t *after) {
    const json_t *args = json_object_get(before, "args"), *now = json_object_get(after, "args");
    const json_t *kwargs = json_object_get(before, "kwargs"), *named = json_object_get(after, "kwargs");
    json_t *inputs = json_object_get(made, "inputs"), *input;
    size_t positions = json_array_size(args), i;
    if (positions != json_array_size(now) || !have_same_keys(kwargs, named) ||
        positions + json_object_size(kwargs) != json_array_size(inputs)) {
        inputs = make_inputs(w, after);
        return inputs && set(w, made, "inputs", inputs);
    }
    json_array_foreach(inputs, i, input) {
        const char *name = text_of(input, "name");
        const json_t *was = i < positions ? json_array_get(args, i) : json_object_get(kwargs, name);
        if (!keep_argument(w, input, was, i < positions ? json_array_get(now, i) : json_object_get(named, name))) return false;
    }
    return true;
}

/* The tensors that the node reads, as tensor_values has them. */
static json_t *tensors_read(writer *w, const json_t *node, bool *are_laid_out) {
    json_t *reads = json_array(), *made = json_array(), *read;
    size_t i;
    bool ok = (reads && made) || no_memory(w);
    ok = ok && list_reads(w, json_object_get(node, "args"), reads) && list_reads(w, json_object_get(node, "kwargs"), reads);
    *are_laid_out = false;
    json_array_foreach(reads, i, read) {
        const char *name = text_of(w->names, json_string_value(read));
        json_t *value = json_object_get(w->values, name);
        if (json_object_get(w->laid_out, name)) *are_laid_out = true;
        if (ok && value) ok = json_array_append(made, value) == 0 || no_memory(w);
    }
    json_decref(reads);
    if (ok) return made;
    json_decref(made);
    return NULL;
}

/* Writes down the strides that the result has now. `is_kept`: the node was in the archive. */
static bool lay_out(writer *w, const char *result, const json_t *node, const json_t *tensors) {
    json_t *value = json_object_get(w->values, result);
    bool is_known;
    if (!value) return true;
    json_t *strides = pt_strides_of(text_of(node, "target"), node, tensors, json_object_get(value, "sizes"), &is_known);
    if (!strides) return !is_known || no_memory(w);
    bool is_same = json_equal(strides, json_object_get(value, "strides"));
    bool ok = is_same || set(w, w->laid_out, result, json_true());
    return set(w, value, "strides", strides) && ok;
}

/* The shape and the dtype that the graph gives the result, where they are other ones than the archive's. */
static bool describe_again(writer *w, const char *result, const json_t *before, const json_t *after) {
    const json_t *was = json_object_get(before, "meta"), *meta = json_object_get(after, "meta"),
                 *shape = json_object_get(meta, "shape");
    json_t *value = json_object_get(w->values, result);
    const char *dtype = text_of(meta, "dtype");
    if (!value || !json_is_array(shape)) return true;
    bool ok = true;
    if (strcmp(dtype, text_of(was, "dtype")) != 0)
        ok = scalar_type(dtype) && set(w, value, "dtype", json_integer(scalar_type(dtype)));
    if (!ok || json_equal(shape, json_object_get(was, "shape"))) return ok;
    json_t *made =
        make_meta(w, shape, dtype, json_is_true(json_object_get(value, "requires_grad")), json_object_get(value, "device"));
    return made && set(w, w->values, result, made) && set(w, w->laid_out, result, json_true());
}

static bool lay_out_results(writer *w, const json_t *made, const json_t *node, bool is_new) {
    const json_t *output = json_array_get(json_object_get(made, "outputs"), 0);
    const json_t *several = json_object_get(output, "as_tensors"), *one = json_object_get(output, "as_tensor");
    bool are_laid_out;
    json_t *tensors = tensors_read(w, node, &are_laid_out), *item;
    size_t i;
    bool ok = tensors != NULL;
    if (ok && one && (is_new || are_laid_out)) ok = lay_out(w, text_of(one, "name"), node, tensors);
    json_array_foreach(several, i, item) ok = ok && (!are_laid_out || lay_out(w, text_of(item, "name"), node, tensors));
    json_decref(tensors);
    return ok;
}

static json_t *keep_node(writer *w, const pt_row *row, const json_t *node) {
    json_t *made = json_deep_copy(w->sources[row - w->p->rows]);
    const json_t *before = json_object_get(w->nodes_before, text_of(node, "name"));
    const char *result = text_of(w->names, text_of(node, "name"));
    bool ok = (made && before) || no_memory(w);
    ok = ok && keep_arguments(w, made, before, node) && describe_again(w, result, before, node) &&
         lay_out_results(w, made, node, !is_alike(before, node));
    if (ok) return made;
    json_decref(made);
    return NULL;
}

/* A node that is new, or calls another function than the one of that name did. */
static json_t *insert_node(writer *w, const json_t *node) {
    const char *name = text_of(node, "name"), *target = text_of(node, "target");
    const char *known = json_string_value(json_object_get(w->names, name)), *result = known ? known : name;
    const json_t *meta = json_object_get(node, "meta"), *shape = json_object_get(meta, "shape");
    if (!json_object_get(w->values, result) != !known || strncmp(target, "torch.ops.aten.", 15) != 0 || !json_is_array(shape)) {
        refuse(w, "the new node \"%s\" (%s) has a name that is taken, no shape, or is not of ATen", name, target);
        return NULL;
    }
    if (!are_on_one_device(w)) {
        refuse(w, "the new node \"%s\" is in a program of several devices", name);
        return NULL;
    }
    json_t *inputs = make_inputs(w, node);
    json_t *value = inputs ? make_meta(w, shape, text_of(meta, "dtype"), false, some_device(w)) : NULL;
    if (!value || !set(w, w->values, result, value) || !set(w, w->laid_out, result, json_true()) ||
        (!known && !set(w, w->names, name, json_string(name)))) {
        json_decref(inputs);
        return NULL;
    }
    json_t *made = json_pack("{s:s,s:o,s:[{s:{s:s}}],s:{},s:n,s:s}", "target", target, "inputs", inputs, "outputs", "as_tensor",
                             "name", result, "metadata", "is_hop_single_tensor_return", "name", name);
    if (made && lay_out_results(w, made, node, true)) return made;
    if (!made) no_memory(w);
    json_decref(made);
    return NULL;
}

/* A weight that the graph did not have: an input more. */
static bool insert_state(writer *w, const char *name, const char *owner) {
    const json_t *owned = json_object_get(w->owners, owner), *row = json_array_get(owned, 0);
    bool is_parameter = json_is_true(json_array_get(owned, 1));
    if (!row || json_object_get(w->values, name) || !are_on_one_device(w))
        return refuse(w, "the new weight \"%s\" has a name that is taken, or is in a program of several devices", owner);
    json_t *value = make_meta(w, json_object_get(row, "shape"), text_of(row, "dtype"), pt_requires_grad(owned), some_device(w));
    json_t *spec = is_parameter ? json_pack("{s:{s:{s:s},s:s}}", "parameter", "arg", "name", name, "parameter_name", owner)
                                : json_pack("{s:{s:{s:s},s:s,s:b}}", "buffer", "arg", "name", name, "buffer_name", owner,
                                            "persistent", true);
    return value && set(w, w->values, name, value) && set(w, w->names, name, json_string(name)) && append(w, w->states, spec) &&
           append(w, w->state_inputs, json_pack("{s:{s:s}}", "as_tensor", "name", name));
}

static bool put_item(writer *w, const pt_row *row, const json_t *node) {
    const json_t *args = json_object_get(node, "args");
    const char *of = text_of(json_array_get(args, 0), "$node");
    const json_t *index = json_array_get(args, 1);
    const char *was = w->p->rows[row->first].name;
    const char *name = text_of(node, "name");
    if (was && strcmp(of, was) == 0 && json_is_integer(index) && json_integer_value(index) == (json_int_t)row->second)
        return describe_again(w, text_of(w->names, name), json_object_get(w->nodes_before, name), node);
    return refuse(w, "\"%s\" takes another item than it did", text_of(node, "name"));
}

/* What the program writes into a buffer or an input when it ends. */
static bool put_copy(writer *w, const pt_row *row, json_t *node) {
    const json_t *args = json_object_get(node, "args");
    const char *into = text_of(json_array_get(args, 0), "$node"), *was = w->p->rows[row->first].name;
    /* Archives have no call for it, and so no place for the type of what it returns. */
    const json_t *meta = json_object_get(json_object_get(w->nodes_before, text_of(node, "name")), "meta");
    if (!meta || !set(w, node, "meta", json_deep_copy(meta))) return no_memory(w);
    if (strcmp(text_of(node, "target"), row->target) == 0 && json_array_size(args) == 2 && was && strcmp(into, was) == 0)
        return append(w, w->copied, json_string(text_of(json_array_get(args, 1), "$node")));
    return refuse(w, "\"%s\" writes into something else than it did", text_of(node, "name"));
}

static bool put_node(writer *w, json_t *node, json_t *out) {
    const char *name = text_of(node, "name"), *op = text_of(node, "op"), *target = text_of(node, "target");
    const pt_row *row = row_called(w, name);
    if (strcmp(op, "output") == 0) return true;
    if (!set(w, w->kept, name, json_true())) return false;
    bool is_input = strcmp(op, "placeholder") == 0, is_state = strcmp(op, "get_attr") == 0;
    if (is_input || is_state) {
        if (is_state && row && row->kind == PT_PROGRAM)
            return strcmp(row->target, target) == 0 || refuse(w, "\"%s\" is another nested program than it was", name);
        bool is_same = row && row->kind == (is_input ? PT_INPUT : PT_STATE) && row->target && strcmp(row->target, target) == 0;
        if (is_input && row && row->kind == PT_INPUT) is_same = true;
        if (is_state && !row) return insert_state(w, name, target);
        return is_same || refuse(w, "\"%s\" is another %s than it was", name, is_input ? "input" : "weight");
    }
    if (strcmp(op, "call_function") != 0) return refuse(w, "\"%s\" is a %s", name, op);
    if (row && row->kind == PT_ITEM) return put_item(w, row, node);
    if (row && row->kind == PT_COPY) return put_copy(w, row, node);
    json_t *made;
    if (row && row->kind == PT_CALL && strcmp(row->target, target) == 0) made = keep_node(w, row, node);
    else if (!row || row->kind == PT_CALL) made = insert_node(w, node);
    else return refuse(w, "\"%s\" is a call that it was not", name);
    return made && append(w, out, made);
}

/* Mutations come first, in the order of their copies; then what is returned. */
static bool put_output(writer *w, json_t *output, json_t *spec, const json_t *returned, size_t *next, size_t *copy) {
    static const char *const mutations[] = {"buffer_mutation", "parameter_mutation", "user_input_mutation"};
    const json_t *reads = returned;
    json_t *returns = json_object_get(spec, "user_output");
    size_t *at = next;
    for (size_t i = 0; i < 3 && !returns; i++) {
        json_t *mutation = json_object_get(spec, mutations[i]);
        if (!mutation) continue;
        reads = w->copied;
        at = copy;
        return rename_reads(w, output, reads, at) &&
               set(w, mutation, "arg", json_deep_copy(json_object_get(output, "as_tensor")));
    }
    if (!returns) return refuse(w, "an output is neither returned nor written into a buffer or an input");
    return rename_reads(w, output, reads, at) && set(w, returns, "arg", json_deep_copy(output));
}

static bool put_outputs(writer *w, const json_t *node, json_t *graph, json_t *specs) {
    json_t *outputs = json_object_get(graph, "outputs"), *reads = json_array(), *output;
    size_t count = 0, next = 0, copy = 0, i;
    bool ok = (reads && outputs) || no_memory(w);
    ok = ok && list_reads(w, json_object_get(node, "args"), reads);
    rename_reads(w, outputs, NULL, &count);
    if (ok && count != json_array_size(reads) + json_array_size(w->copied))
        ok = refuse(w, "it returns other values than it did, or writes other ones");
    json_array_foreach(outputs, i, output) ok = ok && put_output(w, output, json_array_get(specs, i), reads, &next, &copy);
    json_decref(reads);
    return ok;
}

/* Leaves out the inputs of state that the graph reads no more. */
static bool put_inputs(writer *w, json_t *graph, json_t *specs) {
    json_t *inputs = json_object_get(graph, "inputs");
    uint32_t row = 0;
    for (size_t i = 0; i < json_array_size(inputs); row++) {
        const pt_row *input = &w->p->rows[row];
        if (json_object_get(w->kept, input->name) || (input->kind == PT_STATE && input->is_dead)) {
            i++;
            continue;
        }
        if (input->kind != PT_STATE) return refuse(w, "the input \"%s\" is gone", input->name);
        if (json_array_remove(inputs, i) || json_array_remove(specs, i)) return no_memory(w);
    }
    for (size_t i = 0; i < json_array_size(w->states); i++) {
        bool ok = json_array_insert(inputs, i, json_array_get(w->state_inputs, i)) == 0;
        if (!ok || json_array_insert(specs, i, json_array_get(w->states, i))) return no_memory(w);
    }
    return true;
}

/* Leaves out what is said of values that are gone. */
static bool forget_values(writer *w) {
    for (uint32_t i = 0; i < w->p->by_name.count; i++) {
        const pt_key *key = &w->p->by_name.rows[i];
        const pt_row *row = &w->p->rows[key->value];
        const pt_row *source = row->kind == PT_ITEM ? &w->p->rows[row->first] : row;
        if (row->is_dead || !source->name || json_object_get(w->kept, source->name)) continue;
        const char *name = fb_arena_text(&w->m->arena, key->text, key->length);
        if (!name) return no_memory(w);
        json_object_del(w->values, name);
    }
    return true;
}

static bool check_call_graph(writer *w, const json_t *calls) {
    size_t i;
    json_t *call;
    json_array_foreach(calls, i, call) {
        const json_t *signature = json_object_get(call, "signature");
        if (json_array_size(json_object_get(signature, "inputs")) || json_array_size(json_object_get(signature, "outputs")))
            return refuse(w, "the module call graph has the signature of the module \"%s\"", text_of(call, "fqn"));
    }
    return true;
}

/* Nested programs are kept as they are. */
static bool check_programs(writer *w) {
    json_t *was = json_object(), *module;
    size_t i;
    bool ok = was || no_memory(w);
    json_array_foreach(json_object_get(w->before, "modules"), i, module) ok =
        ok && set(w, was, text_of(module, "path"), json_incref(module));
    json_array_foreach(json_object_get(w->after, "modules"), i, module) {
        const char *path = text_of(module, "path");
        const json_t *program = json_object_get(module, "graph");
        if (ok && program && !json_equal(program, json_object_get(json_object_get(was, path), "graph")))
            ok = refuse(w, "the nested program \"%s\" was changed", path);
    }
    json_decref(was);
    return ok;
}

static bool rewrite_program(writer *w) {
    json_t *module = json_object_get(w->program, "graph_module"), *graph = json_object_get(module, "graph"), *node;
    const json_t *signature = json_object_get(module, "signature");
    json_t *nodes = json_array(), *list = json_object_get(w->after, "nodes");
    size_t i;
    bool ok = (nodes || no_memory(w)) && check_programs(w) && check_call_graph(w, json_object_get(module, "module_call_graph"));
    json_array_foreach(list, i, node) ok = ok && put_node(w, node, nodes);
    node = json_array_get(list, json_array_size(list) - 1);
    ok = ok && put_outputs(w, node, graph, json_object_get(signature, "output_specs"));
    ok = ok && put_inputs(w, graph, json_object_get(signature, "input_specs")) && forget_values(w);
    if (ok) return set(w, graph, "nodes", nodes);
    json_decref(nodes);
    return false;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* The placeholders of the state, in tensor_values. */
static bool describe_input(writer *w, const char *owner, json_t *meta) {
    json_t *name;
    size_t i;
    json_array_foreach(json_object_get(w->inputs_of, owner), i, name) {
        const char *text = json_string_value(name);
        if (json_object_get(w->values, text) && !set(w, w->values, text, json_deep_copy(meta))) return false;
    }
    return true;
}

/* The record that the tensor goes into, among weights or constants: one for all its owners. */
static const char *record_of(writer *w, const char *tensor, bool is_constant) {
    const char *folder = is_constant ? "data/constants/" : "data/weights/", *known = pt_format(w->m, "%s%s", folder, tensor);
    const json_t *record = known ? json_object_get(w->record_of, known) : NULL;
    if (!known || record) return json_string_value(record);
    for (;; w->next_record++) {
        const char *entry = pt_format(w->m, "%s%s_%zu", folder, is_constant ? "tensor" : "weight", w->next_record);
        if (!entry) return NULL;
        if (fb_archive_find(w->m->archive, entry) || json_object_get(w->records, entry)) continue;
        const char *name = entry + strlen(folder);
        return set(w, w->records, entry, json_string(tensor)) && set(w, w->record_of, known, json_string(name)) ? name : NULL;
    }
}

static bool put_weight(writer *w, const char *owner, const json_t *owned) {
    json_t *constants = json_object_get(w->constants, "config"), *weights = json_object_get(w->weights, "config");
    const json_t *row = json_array_get(owned, 0), *old = json_object_get(constants, owner);
    bool is_constant = old != NULL;
    if (!old) old = json_object_get(weights, owner);
    const json_t *device = old ? json_object_get(json_object_get(old, "tensor_meta"), "device") : some_device(w);
    if (!row || (!old && !are_on_one_device(w)))
        return refuse(w, "\"%s\" is a new weight of a program of several devices", owner);
    json_t *meta = make_meta(w, json_object_get(row, "shape"), text_of(row, "dtype"), pt_requires_grad(owned), device);
    const char *record = meta ? record_of(w, text_of(row, "name"), is_constant) : NULL;
    json_t *made = record ? json_pack("{s:s,s:b,s:b,s:O}", "path_name", record, "is_param",
                                      json_is_true(json_array_get(owned, 1)), "use_pickle", false, "tensor_meta", meta)
                          : NULL;
    bool ok = made     ? set(w, is_constant ? constants : weights, owner, made) && describe_input(w, owner, meta)
              : record ? no_memory(w)
                       : false;
    json_decref(meta);
    return ok;
}

/* Are all tensors that the recipe reads owned still? `names`: of those that are. */
static bool reads_only(const json_t *recipe, const json_t *names) {
    const json_t *args = json_object_get(recipe, "args");
    size_t i;
    json_t *item;
    if (json_is_string(recipe)) return json_object_get(names, json_string_value(recipe)) != NULL;
    json_array_foreach(args, i, item) if (!reads_only(item, names)) return false;
    return true;
}

static bool is_written(const writer *w, const char *owner) {
    const json_t *module = json_object_get(w->program, "graph_module"), *signature = json_object_get(module, "signature");
    size_t i;
    json_t *spec;
    json_array_foreach(json_object_get(signature, "output_specs"), i, spec) {
        const json_t *mutation = json_object_get(spec, "buffer_mutation"), *other = json_object_get(spec, "parameter_mutation");
        if (strcmp(text_of(mutation, "buffer_name"), owner) == 0 || strcmp(text_of(other, "parameter_name"), owner) == 0)
            return true;
    }
    return false;
}

/* Names of the tensors that the graph's modules own. */
static json_t *list_owned(writer *w) {
    json_t *names = json_object(), *owned;
    const char *owner;
    bool ok = names || no_memory(w);
    json_object_foreach(w->owners, owner, owned) ok =
        ok && set(w, names, text_of(json_array_get(owned, 0), "name"), json_true());
    if (ok) return names;
    json_decref(names);
    return NULL;
}

/* What has changed becomes a record of its own, and so does a view of a tensor that is gone. */
static bool rewrite_weights(writer *w) {
    json_t *before = owners_of(w, w->before), *names = list_owned(w), *owned;
    const char *owner;
    bool ok = before && names;
    json_object_foreach(w->owners, owner, owned) {
        bool is_same = json_equal(owned, json_object_get(before, owner));
        const json_t *recipe = json_object_get(json_array_get(owned, 0), "recipe");
        bool is_orphan = is_same && recipe && !reads_only(recipe, names);
        if (ok && is_orphan && is_written(w, owner))
            ok = refuse(w, "\"%s\", which is written, was a part of a weight that is gone", owner);
        if (ok && (!is_same || is_orphan)) ok = put_weight(w, owner, owned);
    }
    json_decref(names);
    json_object_foreach(before, owner, owned) {
        if (json_object_get(w->owners, owner)) continue;
        json_object_del(json_object_get(w->weights, "config"), owner);
        json_object_del(json_object_get(w->constants, "config"), owner);
    }
    json_decref(before);
    return ok;
}

/* ---- what was written, read again ---------------------------------------------------------------------------------------- */

static bool is_the_graph(writer *w, const char *document, size_t size) {
    json_t *read = load_document(w, document, size);
    json_t *wanted = read ? pt_meaning_of(w->after, true) : NULL, *found = wanted ? pt_meaning_of(read, true) : NULL;
    bool is_same = found && json_equal(wanted, found);
    if (read && !found) no_memory(w);
    size_t i = 0;
    while (found && !is_same && i < json_array_size(wanted) && json_equal(json_array_get(wanted, i), json_array_get(found, i)))
        i++;
    const char *what = json_string_value(json_array_get(json_array_get(wanted, i), 1));
    if (found && !is_same)
        refuse(w, "what was written of it is not the graph when it is read again, from %s on", what ? what : "its end");
    json_decref(read);
    json_decref(wanted);
    json_decref(found);
    return is_same;
}

static int order_of_entries(const void *a, const void *b) {
    return strcmp(((const fb_zip_entry *)a)->name, ((const fb_zip_entry *)b)->name);
}

/* The archive's records and the new ones, whose bytes nobody looks at. */
static bool check_again(writer *w, const char *const *texts) {
    fb_archive archive = *w->m->archive;
    const pt_given given[] = {
        {w->m->program_file.name, texts[0]}, {w->m->weights_file.name, texts[1]}, {w->m->constants_file.name, texts[2]}};
    size_t count = archive.zip.count, added = json_object_size(w->records);
    fb_zip_entry *entries = malloc((count + added + 1) * sizeof *entries);
    pt_model *m = calloc(1, sizeof *m);
    fb_buffer document = {0};
    const char *path;
    json_t *tensor;
    bool ok = (entries && m) || no_memory(w);
    if (ok) memcpy(entries, archive.zip.entries, count * sizeof *entries);
    json_object_foreach(w->records, path, tensor) {
        const char *name = ok ? pt_format(w->m, "%s%s", archive.root, path) : NULL;
        ok = name != NULL;
        if (!ok) break;
        entries[count++] = (fb_zip_entry){.name = name, .size = INT64_MAX, .stored = INT64_MAX};
    }
    if (ok) qsort(entries, count, sizeof *entries, order_of_entries);
    if (ok) {
        pt_program *p;
        archive.zip.entries = entries;
        archive.zip.count = count;
        *m = (pt_model){
            .archive = &archive, .blob = w->m->blob, .work = w->m->work, .error = w->error, .given = given, .given_count = 3};
        w->status = pt_model_document(m, w->m->name, &p, &document);
        ok = !w->status && is_the_graph(w, document.data, document.size);
    }
    if (m) pt_close_model(m);
    free(m);
    free(entries);
    fb_buffer_free(&document);
    return ok;
}

/* ---- entries ------------------------------------------------------------------------------------------------------------- */

/* The records that the program's weights and constants were in and are in no more, by their names. NULL: memory is out. */
static json_t *list_left_out(writer *w) {
    const json_t *configs[] = {w->weights, w->constants};
    json_t *made = json_object(), *row;
    const char *owner;
    bool ok = made != NULL;
    if (w->m->archive->model_count != 1) return made;
    for (uint32_t i = 0; ok && i < w->m->tensor_count; i++)
        ok = json_object_set_new(made, w->m->tensors[i].record->name, json_true()) == 0;
    for (int i = 0; ok && i < 2; i++) {
        json_object_foreach(json_object_get(configs[i], "config"), owner, row) {
            const char *name =
                pt_format(w->m, "%sdata/%s/%s", w->m->archive->root, i ? "constants" : "weights", text_of(row, "path_name"));
            if (name) json_object_del(made, name);
        }
    }
    if (ok && !w->m->status) return made;
    json_decref(made);
    return NULL;
}

static const char *text_for(const writer *w, const char *name, const char *const *texts) {
    const pt_file *files[] = {&w->m->program_file, &w->m->weights_file, &w->m->constants_file};
    for (int i = 0; i < 3; i++) {
        if (strcmp(files[i]->name, name) == 0) return texts[i];
    }
    return NULL;
}

/* The entry that says which graph the archive is of. */
static bool add_graph(writer *w, pt_add_entry *add, void *context) {
    char id[FB_ID_LENGTH + 1];
    pt_entry entry = {.name = pt_format(w->m, "%s%s", w->m->archive->root, FB_ARCHIVE_GRAPH_ENTRY), .text = id};
    if (!entry.name || !fb_document_id_metered(w->graph, w->m->work, id)) return no_memory(w);
    w->status = add(context, &entry);
    return !w->status;
}

static bool add_entries(writer *w, const char *const *texts, pt_add_entry *add, void *context) {
    const fb_archive *archive = w->m->archive;
    const char *path;
    json_t *tensor, *left_out = list_left_out(w);
    if (!left_out) return no_memory(w);
    for (size_t i = 0; i < archive->zip.count && !w->status; i++) {
        const fb_zip_entry *from = &archive->zip.entries[i];
        const char *name = from->name + strlen(archive->root);
        pt_entry entry = {.name = from->name,
                          .stored = from->stored,
                          .size = from->size,
                          .crc = from->crc,
                          .is_deflated = from->is_deflated,
                          .range = archive->zip.bytes + from->offset};
        if (json_object_get(left_out, from->name) || strcmp(name, FB_ARCHIVE_GRAPH_ENTRY) == 0) continue;
        const char *text = text_for(w, name, texts);
        if (text) entry = (pt_entry){.name = from->name, .text = text};
        w->status = add(context, &entry);
    }
    json_decref(left_out);
    json_object_foreach(w->records, path, tensor) {
        pt_entry entry = {.name = pt_format(w->m, "%s%s", archive->root, path),
                          .tensor = fb_tensor_find(w->graph, json_string_value(tensor))};
        if (!entry.name) no_memory(w);
        if (!w->status) w->status = add(context, &entry);
    }
    return !w->status && add_graph(w, add, context);
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static bool load_all(writer *w, const char *document, size_t size) {
    fb_buffer changed = {0};
    const pt_file *constants = &w->m->constants_file, *program = &w->m->program_file, *weights = &w->m->weights_file;
    fb_document_write(w->graph, &changed);
    bool ok = !changed.failed || no_memory(w);
    if (ok) w->after = load(w, changed.data, changed.size, "the graph");
    fb_buffer_free(&changed);
    if (w->after) w->before = load_document(w, document, size);
    if (w->before) w->program = load(w, program->text, strlen(program->text), program->name);
    if (w->program) w->weights = load(w, weights->text, strlen(weights->text), weights->name);
    if (w->weights) w->constants = load(w, constants->text, strlen(constants->text), constants->name);
    w->values = json_object_get(json_object_get(json_object_get(w->program, "graph_module"), "graph"), "tensor_values");
    w->rows = json_object();
    w->names = json_object();
    w->sizes = json_object();
    w->records = json_object();
    w->kept = json_object();
    w->laid_out = json_object();
    w->copied = json_array();
    w->record_of = json_object();
    w->inputs_of = json_object();
    w->nodes_before = json_object();
    w->states = json_array();
    w->state_inputs = json_array();
    w->owners = w->constants ? owners_of(w, w->after) : NULL;
    json_t *node;
    size_t i;
    json_array_foreach(json_object_get(w->before, "nodes"), i, node) if (w->constants)
        set(w, w->nodes_before, text_of(node, "name"), json_incref(node));
    if (w->constants && !(w->rows && w->laid_out && w->copied && w->record_of && w->inputs_of && w->nodes_before && w->names &&
                          w->sizes && w->records && w->kept && w->states && w->state_inputs && w->owners))
        return no_memory(w);
    return w->constants != NULL;
}

static bool write_all(writer *w, const char *document, size_t size, pt_add_entry *add, void *context) {
    if (!load_all(w, document, size) || !list_sizes(w) || !index_rows(w)) return false;
    if (!rewrite_program(w) || !rewrite_weights(w) || w->status || w->m->status) return false;
    json_t *const files[] = {w->program, w->weights, w->constants};
    char *texts[3] = {0};
    bool ok = true;
    for (int i = 0; i < 3; i++) ok = (texts[i] = fb_dump_json(files[i], JSON_ENSURE_ASCII)) && ok;
    const char *const given[] = {texts[0], texts[1], texts[2]};
    ok = (ok || no_memory(w)) && check_again(w, given) && add_entries(w, given, add, context);
    for (int i = 0; i < 3; i++) free(texts[i]);
    return ok;
}

static void free_writer(writer *w) {
    json_decref(w->program);
    json_decref(w->weights);
    json_decref(w->constants);
    json_decref(w->before);
    json_decref(w->after);
    json_decref(w->rows);
    json_decref(w->names);
    json_decref(w->sizes);
    json_decref(w->records);
    json_decref(w->kept);
    json_decref(w->laid_out);
    json_decref(w->copied);
    json_decref(w->record_of);
    json_decref(w->inputs_of);
    json_decref(w->nodes_before);
    free(w->sources);
    json_decref(w->states);
    json_decref(w->state_inputs);
    json_decref(w->owners);
}

fb_status pt_rewrite(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph, fb_work *work,
                     pt_add_entry *add, void *context, fb_error *error) {
    pt_model *m = calloc(1, sizeof *m);
    fb_buffer document = {0};
    writer w = {.m = m, .graph = graph, .error = error};
    if (!m) return fb_fail_memory(error);
    *m = (pt_model){.archive = archive, .blob = blob, .work = work, .error = error};
    w.status = pt_model_document(m, model, &w.p, &document);
    bool ok = !w.status && write_all(&w, document.data, document.size, add, context);
    fb_status status = w.status ? w.status : m->status;
    if (!status && !ok) status = fb_fail_memory(error);
    free_writer(&w);
    fb_buffer_free(&document);
    pt_close_model(m);
    free(m);
    return status;
}
