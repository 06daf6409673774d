/* The program and the weights config of a changed graph, from those of its archive.
 *
 * Nodes are matched by their names in the document. A node that is still there keeps what the archive says of it, and only what
 * it reads is renamed; a new one is written from the operator's signature. What has been written is read again as any archive
 * is, and must be the graph. */
#include "core/archive/rewrite.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/archive/arguments.h"
#include "core/archive/internal.h"
#include "core/document/document.h"
#include "core/graph/write.h"
#include "core/json/json.h"

typedef struct writer {
    pt_model *m;
    pt_program *p;
    const fb_graph *graph;
    fb_error *error;
    fb_status status;
    json_t *program, *weights, *constants; /* of the archive; the first two are changed */
    json_t *before, *after;                /* documents */
    json_t *rows;                          /* by node of the document, indexes of rows */
    json_t *names;                         /* by node of the document, what the archive calls its result */
    json_t *values;                        /* program's tensor_values */
    json_t *sizes;                         /* by what documents print, symbolic sizes as the archive has them */
    json_t *records;                       /* by path_name, tensors of the graph to be evaluated */
    json_t *owners;                        /* owners_of(after) */
    json_t *states, *state_inputs;         /* input_specs and inputs of new weights */
    json_t *kept;                          /* by node of the document */
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

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* ---- the rows of the archive -------------------------------------------------------------------------------------------- */

static bool index_rows(writer *w) {
    const pt_program *p = w->p;
    for (uint32_t i = 0; i < p->count; i++) {
        const pt_row *row = &p->rows[i];
        if (row->kind == PT_PROGRAM) return refuse(w, "it has a nested program (%s)", row->target ? row->target : row->name);
        if (row->kind == PT_COPY) return refuse(w, "it writes into a buffer or an input (%s)", row->name);
        if (row->name && !row->is_dead && !set(w, w->rows, row->name, json_integer(i))) return false;
    }
    for (uint32_t i = 0; i < p->by_name.count; i++) {
        const pt_key *key = &p->by_name.rows[i];
        const pt_row *row = &p->rows[key->value];
        if (row->name && !row->is_dead && key->text[0] != '\n' &&
            !set(w, w->names, row->name, json_stringn(key->text, key->length)))
            return false;
    }
    return true;
}

static const pt_row *row_called(const writer *w, const char *name) {
    const json_t *index = json_object_get(w->rows, name);
    return index ? &w->p->rows[json_integer_value(index)] : NULL;
}

/* The node of the archive that the row was read from. */
static json_t *source_of(const writer *w, const pt_row *row) {
    const json_t *nodes = json_object_get(json_object_get(json_object_get(w->program, "graph_module"), "graph"), "nodes");
    const fb_json *list = pt_member_of(w->p->graph, "nodes", FB_JSON_ARRAY), *node = list ? fb_json_first(list) : NULL;
    for (uint32_t i = 0; node && i < list->count; i++, node = fb_json_next(node)) {
        if (node == row->source) return json_array_get(nodes, i);
    }
    return NULL;
}

/* ---- what a node reads --------------------------------------------------------------------------------------------------- */

/* Appends the names of the nodes in a value of the document, left to right. */
static bool list_reads(writer *w, const json_t *value, json_t *out) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) if (!list_reads(w, item, out)) return false;
    } else if (json_is_object(value)) {
        const json_t *name = json_object_get(value, "$node");
        if (json_is_string(name)) return append(w, out, json_string(json_string_value(name)));
        json_object_foreach((json_t *)(uintptr_t)value, key, item) if (!list_reads(w, item, out)) return false;
    }
    return true;
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
    return set(w, argument, member, json_string(now));
}

static size_t count_reads(writer *w, json_t *inputs) {
    size_t at = 0, i;
    json_t *input;
    json_array_foreach(inputs, i, input) rename_reads(w, json_object_get(input, "arg"), NULL, &at);
    return at;
}

/* ---- new arguments ------------------------------------------------------------------------------------------------------- */

static int64_t scalar_type(const char *dtype) {
    for (int64_t i = 1; i < 64; i++) {
        const char *name = pt_dtype_name(i);
        if (name && strcmp(name, dtype) == 0) return i;
    }
    return 0;
}

static json_t *tensor_named(writer *w, const json_t *value) {
    const char *node = json_string_value(json_object_get(value, "$node"));
    const char *name = node ? json_string_value(json_object_get(w->names, node)) : NULL;
    if (name && json_object_get(w->values, name)) return json_pack("{s:s}", "name", name);
    refuse(w, "\"%s\", an argument, is not a tensor", node ? node : "");
    return NULL;
}

static json_t *make_list(writer *w, const json_t *list) {
    size_t i;
    json_t *item, *made = json_array();
    bool are_ints = json_is_integer(json_array_get(list, 0));
    json_array_foreach(list, i, item) {
        if (are_ints && !json_is_integer(item)) refuse(w, "an argument is a list of more than ints");
        json_t *value = are_ints ? json_copy(item) : tensor_named(w, item);
        if (!value || !made || !append(w, made, value)) break;
    }
    return json_pack("{s:o}", are_ints ? "as_ints" : "as_tensors", made);
}

static json_t *make_argument(writer *w, const json_t *value) {
    const char *dtype = json_string_value(json_object_get(value, "$dtype"));
    const char *number = json_string_value(json_object_get(value, "$float"));
    char *end = NULL;
    double real = number ? strtod(number, &end) : 0;
    if (number && !*end && isfinite(real)) return json_pack("{s:f}", "as_float", real);
    if (json_is_null(value)) return json_pack("{s:b}", "as_none", true);
    if (json_is_boolean(value)) return json_pack("{s:b}", "as_bool", json_is_true(value));
    if (json_is_integer(value)) return json_pack("{s:I}", "as_int", json_integer_value(value));
    if (json_is_real(value)) return json_pack("{s:f}", "as_float", json_real_value(value));
    if (json_is_array(value) && json_array_size(value)) return make_list(w, value);
    if (json_object_get(value, "$node")) return json_pack("{s:o}", "as_tensor", tensor_named(w, value));
    if (dtype && scalar_type(dtype)) return json_pack("{s:I}", "as_scalar_type", (json_int_t)scalar_type(dtype));
    refuse(w, "an argument is of a kind that is not known");
    return NULL;
}

static bool make_input(writer *w, json_t *inputs, const char *name, size_t length, const json_t *value, int kind) {
    json_t *argument = make_argument(w, value);
    json_t *input = argument ? json_pack("{s:s%,s:o,s:i}", "name", name, length, "arg", argument, "kind", kind) : NULL;
    return input ? append(w, inputs, input) : w->status ? false : no_memory(w);
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
        ok = ok && make_input(w, inputs, name, length, value, 1);
    }
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value) ok = ok && make_input(w, inputs, key, strlen(key), value, 2);
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
    json_t *sizes = json_array(), *strides = json_array(), *made;
    json_int_t step = 1;
    bool ok = (sizes && strides) || no_memory(w);
    for (size_t i = json_array_size(shape); ok && i-- > 0;) {
        const json_t *size = json_array_get(shape, i);
        json_t *spelled = make_size(w, size);
        ok = spelled && step ? json_array_insert_new(sizes, 0, spelled) == 0 || no_memory(w) : false;
        if (!step) refuse(w, "a new tensor has a symbolic size behind its first");
        ok = ok && (json_array_insert_new(strides, 0, json_pack("{s:I}", "as_int", step)) == 0 || no_memory(w));
        if (json_is_integer(size)) step *= json_integer_value(size) ? json_integer_value(size) : 1;
        else step = 0;
    }
    if (ok && !scalar_type(dtype)) ok = refuse(w, "the dtype \"%s\" of a new tensor is not known", dtype);
    made = ok ? json_pack("{s:I,s:O,s:b,s:O,s:O,s:{s:i},s:i}", "dtype", (json_int_t)scalar_type(dtype), "sizes", sizes,
                          "requires_grad", requires_grad, "device", device, "strides", strides, "storage_offset", "as_int", 0,
                          "layout", 7)
              : NULL;
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

/* ---- who owns what ---------------------------------------------------------------------------------------------------------
 */

/* A document's tensors by owner: {"a.weight": [row, is a parameter]}. */
static json_t *owners_of(writer *w, const json_t *document) {
    json_t *by_name = json_object(), *made = json_object(), *row, *module, *tensor;
    size_t i;
    const char *attribute;
    bool ok = (by_name && made) || no_memory(w);
    json_array_foreach(json_object_get(document, "tensors"), i, row) ok =
        ok && (json_object_set(by_name, text_of(row, "name"), row) == 0 || no_memory(w));
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        for (int kind = 0; kind < 2; kind++) {
            json_object_foreach(json_object_get(module, kind ? "parameters" : "buffers"), attribute, tensor) {
                const char *path = text_of(module, "path"), *name = json_string_value(tensor);
                const char *key = *path ? pt_format(w->m, "%s.%s", path, attribute) : attribute;
                if (!ok || !name) continue;
                ok = key && set(w, made, key, json_pack("[O,b]", json_object_get(by_name, name), kind));
            }
        }
    }
    json_decref(by_name);
    if (ok) return made;
    json_decref(made);
    return NULL;
}

static bool requires_grad(const json_t *owned) {
    const json_t *row = json_array_get(owned, 0), *said = json_object_get(row, "requires_grad");
    bool is_parameter = json_is_true(json_array_get(owned, 1));
    return said ? json_is_true(said) : is_parameter && fb_dtype_is_floating(fb_dtype_find(text_of(row, "dtype")));
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

static json_t *keep_node(writer *w, const pt_row *row, const json_t *node) {
    const json_t *source = source_of(w, row);
    json_t *made = json_deep_copy(source), *inputs = json_object_get(made, "inputs"), *reads = json_array(), *input;
    size_t at = 0, i;
    bool ok = (made && reads) || no_memory(w);
    ok = ok && list_reads(w, json_object_get(node, "args"), reads) && list_reads(w, json_object_get(node, "kwargs"), reads);
    if (ok && count_reads(w, inputs) == json_array_size(reads)) {
        json_array_foreach(inputs, i, input) ok = ok && rename_reads(w, json_object_get(input, "arg"), reads, &at);
    } else if (ok) {
        json_t *inserted = make_inputs(w, node);
        ok = inserted && set(w, made, "inputs", inserted);
    }
    json_decref(reads);
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
    if (!value || !set(w, w->values, result, value) || (!known && !set(w, w->names, name, json_string(name)))) {
        json_decref(inputs);
        return NULL;
    }
    json_t *made = json_pack("{s:s,s:o,s:[{s:{s:s}}],s:{},s:n,s:s}", "target", target, "inputs", inputs, "outputs", "as_tensor",
                             "name", result, "metadata", "is_hop_single_tensor_return", "name", name);
    if (!made) no_memory(w);
    return made;
}

/* A weight that the graph did not have: an input more. */
static bool insert_state(writer *w, const char *name, const char *owner) {
    const json_t *owned = json_object_get(w->owners, owner), *row = json_array_get(owned, 0);
    bool is_parameter = json_is_true(json_array_get(owned, 1));
    if (!row || json_object_get(w->values, name) || !are_on_one_device(w))
        return refuse(w, "the new weight \"%s\" has a name that is taken, or is in a program of several devices", owner);
    json_t *value = make_meta(w, json_object_get(row, "shape"), text_of(row, "dtype"), requires_grad(owned), some_device(w));
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
    if (was && strcmp(of, was) == 0 && json_is_integer(index) && json_integer_value(index) == (json_int_t)row->second)
        return true;
    return refuse(w, "\"%s\" takes another item than it did", text_of(node, "name"));
}

static bool put_node(writer *w, const json_t *node, json_t *out) {
    const char *name = text_of(node, "name"), *op = text_of(node, "op"), *target = text_of(node, "target");
    const pt_row *row = row_called(w, name);
    if (strcmp(op, "output") == 0) return true;
    if (!set(w, w->kept, name, json_true())) return false;
    bool is_input = strcmp(op, "placeholder") == 0, is_state = strcmp(op, "get_attr") == 0;
    if (is_input || is_state) {
        bool is_same = row && row->kind == (is_input ? PT_INPUT : PT_STATE) && row->target && strcmp(row->target, target) == 0;
        if (is_input && row && row->kind == PT_INPUT) is_same = true;
        if (is_state && !row) return insert_state(w, name, target);
        return is_same || refuse(w, "\"%s\" is another %s than it was", name, is_input ? "input" : "weight");
    }
    if (strcmp(op, "call_function") != 0) return refuse(w, "\"%s\" is a %s", name, op);
    if (row && row->kind == PT_ITEM) return put_item(w, row, node);
    json_t *made;
    if (row && row->kind == PT_CALL && strcmp(row->target, target) == 0) made = keep_node(w, row, node);
    else if (!row || row->kind == PT_CALL) made = insert_node(w, node);
    else return refuse(w, "\"%s\" is a call that it was not", name);
    return made && append(w, out, made);
}

static bool put_outputs(writer *w, const json_t *node, json_t *graph, json_t *specs) {
    json_t *outputs = json_object_get(graph, "outputs"), *reads = json_array(), *spec, *output;
    size_t at = 0, i;
    bool ok = (reads && outputs) || no_memory(w);
    ok = ok && list_reads(w, json_object_get(node, "args"), reads);
    rename_reads(w, outputs, NULL, &at);
    if (ok && at != json_array_size(reads)) ok = refuse(w, "it returns other values than it did");
    at = 0;
    ok = ok && rename_reads(w, outputs, reads, &at);
    json_array_foreach(outputs, i, output) {
        spec = json_object_get(json_array_get(specs, i), "user_output");
        if (ok && !spec) ok = refuse(w, "an output writes into a buffer or an input");
        ok = ok && set(w, spec, "arg", json_deep_copy(output));
    }
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

static bool rewrite_program(writer *w) {
    json_t *module = json_object_get(w->program, "graph_module"), *graph = json_object_get(module, "graph"), *node;
    const json_t *signature = json_object_get(module, "signature");
    json_t *nodes = json_array(), *list = json_object_get(w->after, "nodes");
    size_t i;
    bool ok = (nodes || no_memory(w)) && check_call_graph(w, json_object_get(module, "module_call_graph"));
    json_array_foreach(list, i, node) ok = ok && put_node(w, node, nodes);
    node = json_array_get(list, json_array_size(list) - 1);
    ok = ok && put_outputs(w, node, graph, json_object_get(signature, "output_specs"));
    ok = ok && put_inputs(w, graph, json_object_get(signature, "input_specs")) && forget_values(w);
    if (ok) return set(w, graph, "nodes", nodes);
    json_decref(nodes);
    return false;
}

/* ---- weights ------------------------------------------------------------------------------------------------------------- */

/* The placeholder of the state, in tensor_values. */
static bool describe_input(writer *w, const char *owner, json_t *meta) {
    for (uint32_t i = 0; i < w->p->count && w->p->rows[i].kind <= PT_STATE; i++) {
        const pt_row *row = &w->p->rows[i];
        const char *name = row->kind == PT_STATE && strcmp(row->target, owner) == 0 ? text_of(w->names, row->name) : "";
        if (*name && json_object_get(w->values, name) && !set(w, w->values, name, json_deep_copy(meta))) return false;
    }
    return true;
}

/* The record that the tensor goes into: one for all its owners. */
static const char *record_of(writer *w, const char *tensor) {
    const char *path;
    json_t *known;
    json_object_foreach(w->records, path, known) if (strcmp(json_string_value(known), tensor) == 0) return path;
    for (size_t i = json_object_size(w->records);; i++) {
        const char *name = pt_format(w->m, "weight_%zu", i), *entry = pt_format(w->m, "data/weights/weight_%zu", i);
        if (!name || !entry) return NULL;
        if (fb_archive_find(w->m->archive, entry) || json_object_get(w->records, name)) continue;
        return set(w, w->records, name, json_string(tensor)) ? name : NULL;
    }
}

static bool put_weight(writer *w, const char *owner, const json_t *owned, json_t *config) {
    const json_t *row = json_array_get(owned, 0), *old = json_object_get(config, owner);
    const json_t *device = old ? json_object_get(json_object_get(old, "tensor_meta"), "device") : some_device(w);
    if (!row || json_object_get(w->constants, owner) || (!old && !are_on_one_device(w)))
        return refuse(w, "\"%s\" is a constant with another value, or a new weight of a program of several devices", owner);
    json_t *meta = make_meta(w, json_object_get(row, "shape"), text_of(row, "dtype"), requires_grad(owned), device);
    const char *record = meta ? record_of(w, text_of(row, "name")) : NULL;
    json_t *made = record ? json_pack("{s:s,s:b,s:b,s:O}", "path_name", record, "is_param",
                                      json_is_true(json_array_get(owned, 1)), "use_pickle", false, "tensor_meta", meta)
                          : NULL;
    bool ok = made ? set(w, config, owner, made) && describe_input(w, owner, meta) : record ? no_memory(w) : false;
    json_decref(meta);
    return ok;
}

static bool rewrite_weights(writer *w) {
    json_t *config = json_object_get(w->weights, "config"), *before = owners_of(w, w->before), *after = json_incref(w->owners);
    json_t *owned;
    const char *owner;
    void *next;
    bool ok = before && after;
    json_object_foreach(after, owner, owned) if (ok && !json_equal(owned, json_object_get(before, owner))) ok =
        put_weight(w, owner, owned, config);
    json_object_foreach_safe(before, next, owner, owned) {
        if (ok && !json_object_get(after, owner)) json_object_del(config, owner);
    }
    json_decref(before);
    json_decref(after);
    return ok;
}

/* ---- what was written, read again ---------------------------------------------------------------------------------------- */

/* The value with what its nodes are in the place of their names. */
static json_t *with_names(const json_t *value, const json_t *names) {
    size_t i;
    const char *key, *node = json_string_value(json_object_get(value, "$node"));
    json_t *item, *made;
    if (node) return json_pack("{s:O?}", "$node", json_object_get(names, node));
    if (json_is_array(value)) {
        made = json_array();
        json_array_foreach(value, i, item) json_array_append_new(made, with_names(item, names));
        return made;
    }
    if (!json_is_object(value)) return json_deep_copy(value);
    made = json_object();
    json_object_foreach((json_t *)(uintptr_t)value, key, item) json_object_set_new(made, key, with_names(item, names));
    return made;
}

/* What a document computes, whatever its nodes are called: inputs, calls in their order with what they read, and the dtype and
 * shape of each state. NULL: memory is out. */
static json_t *meaning_of(writer *w, const json_t *document) {
    json_t *names = json_object(), *made = json_array(), *node, *owners = owners_of(w, document);
    size_t i, calls = 0;
    bool ok = names && made && owners;
    json_array_foreach(json_object_get(document, "nodes"), i, node) {
        const char *op = text_of(node, "op"), *target = text_of(node, "target");
        const json_t *row = json_array_get(json_object_get(owners, target), 0), *meta = json_object_get(node, "meta");
        bool is_state = strcmp(op, "get_attr") == 0;
        json_t *name = is_state ? json_pack("[s,s,O?,O?,b]", op, target, json_object_get(row, "dtype"),
                                            json_object_get(row, "shape"), requires_grad(json_object_get(owners, target)))
                                : json_pack("[s,I]", strcmp(op, "placeholder") == 0 ? target : "", (json_int_t)calls++);
        ok = ok && name && json_object_set_new(names, text_of(node, "name"), name) == 0;
        if (!ok || is_state) continue;
        json_t *call = json_pack("[s,s,o,o,O?,O?]", op, target, with_names(json_object_get(node, "args"), names),
                                 with_names(json_object_get(node, "kwargs"), names), json_object_get(meta, "shape"),
                                 json_object_get(meta, "dtype"));
        ok = json_array_append_new(made, call) == 0;
    }
    json_decref(names);
    json_decref(owners);
    if (ok) return made;
    json_decref(made);
    no_memory(w);
    return NULL;
}

static bool is_the_graph(writer *w, const char *document, size_t size) {
    json_t *read = load_document(w, document, size);
    json_t *wanted = read ? meaning_of(w, w->after) : NULL, *found = wanted ? meaning_of(w, read) : NULL;
    bool is_same = found && json_equal(wanted, found);
    json_decref(read);
    json_decref(wanted);
    json_decref(found);
    return is_same || refuse(w, "what was written of it is not the graph when it is read again");
}

/* The archive's records and the new ones, whose bytes nobody looks at. */
static bool check_again(writer *w, const char *program, const char *weights) {
    fb_archive archive = *w->m->archive;
    const pt_given given[] = {{w->m->program_file.name, program}, {w->m->weights_file.name, weights}};
    size_t count = archive.zip.count, added = json_object_size(w->records);
    fb_zip_entry *entries = malloc((count + added + 1) * sizeof *entries);
    pt_model *m = calloc(1, sizeof *m);
    fb_buffer document = {0};
    const char *path;
    json_t *tensor;
    bool ok = (entries && m) || no_memory(w);
    if (ok) memcpy(entries, archive.zip.entries, count * sizeof *entries);
    json_object_foreach(w->records, path, tensor) {
        const char *name = ok ? pt_format(w->m, "%sdata/weights/%s", archive.root, path) : NULL;
        ok = name != NULL;
        size_t at = count;
        while (ok && at && strcmp(entries[at - 1].name, name) > 0) at--;
        if (!ok) break;
        memmove(entries + at + 1, entries + at, (count - at) * sizeof *entries);
        entries[at] = (fb_zip_entry){.name = name, .size = INT64_MAX, .stored = INT64_MAX};
        count++;
    }
    if (ok) {
        pt_program *p;
        archive.zip.entries = entries;
        archive.zip.count = count;
        *m = (pt_model){
            .archive = &archive, .blob = w->m->blob, .work = w->m->work, .error = w->error, .given = given, .given_count = 2};
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

/* Is the entry a record that the program's weights were in and are in no more? */
static bool is_left_out(const writer *w, const char *name) {
    const char *record = strncmp(name, "data/weights/", 13) == 0 ? name + 13 : NULL, *owner;
    json_t *row;
    bool was_read = false;
    if (!record || w->m->archive->model_count != 1) return false;
    json_object_foreach(json_object_get(w->weights, "config"), owner,
                        row) if (strcmp(text_of(row, "path_name"), record) == 0) return false;
    for (uint32_t i = 0; i < w->m->tensor_count && !was_read; i++)
        was_read = strcmp(w->m->tensors[i].record->name + strlen(w->m->archive->root), name) == 0;
    return was_read;
}

static bool add_entries(writer *w, const char *program, const char *weights, pt_add_entry *add, void *context) {
    const fb_archive *archive = w->m->archive;
    const char *path;
    json_t *tensor;
    for (size_t i = 0; i < archive->zip.count && !w->status; i++) {
        const fb_zip_entry *from = &archive->zip.entries[i];
        const char *name = from->name + strlen(archive->root);
        pt_entry entry = {.name = from->name,
                          .stored = from->stored,
                          .size = from->size,
                          .crc = from->crc,
                          .is_deflated = from->is_deflated,
                          .range = archive->zip.bytes + from->offset};
        if (is_left_out(w, name)) continue;
        if (strcmp(name, w->m->program_file.name) == 0) entry = (pt_entry){.name = from->name, .text = program};
        if (strcmp(name, w->m->weights_file.name) == 0) entry = (pt_entry){.name = from->name, .text = weights};
        w->status = add(context, &entry);
    }
    json_object_foreach(w->records, path, tensor) {
        pt_entry entry = {.name = pt_format(w->m, "%sdata/weights/%s", archive->root, path),
                          .tensor = fb_tensor_find(w->graph, json_string_value(tensor))};
        if (!entry.name) no_memory(w);
        if (!w->status) w->status = add(context, &entry);
    }
    return !w->status;
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
    json_t *read = w->weights ? load(w, constants->text, strlen(constants->text), constants->name) : NULL;
    w->constants = json_incref(json_object_get(read, "config"));
    json_decref(read);
    w->values = json_object_get(json_object_get(json_object_get(w->program, "graph_module"), "graph"), "tensor_values");
    w->rows = json_object();
    w->names = json_object();
    w->sizes = json_object();
    w->records = json_object();
    w->kept = json_object();
    w->states = json_array();
    w->state_inputs = json_array();
    w->owners = w->after ? owners_of(w, w->after) : NULL;
    if (w->constants &&
        !(w->rows && w->names && w->sizes && w->records && w->kept && w->states && w->state_inputs && w->owners))
        return no_memory(w);
    return w->constants != NULL;
}

static bool write_all(writer *w, const char *document, size_t size, pt_add_entry *add, void *context) {
    if (!load_all(w, document, size) || !list_sizes(w) || !index_rows(w)) return false;
    if (!rewrite_program(w) || !rewrite_weights(w) || w->status || w->m->status) return false;
    char *program = fb_dump_json(w->program, JSON_ENSURE_ASCII), *weights = fb_dump_json(w->weights, JSON_ENSURE_ASCII);
    bool ok = (program && weights) || no_memory(w);
    ok = ok && check_again(w, program, weights) && add_entries(w, program, weights, add, context);
    free(program);
    free(weights);
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
