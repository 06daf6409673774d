/* The nodes of a changed program, and of those within it.
 *
 * Nodes are matched by their names in the document. A node that is still there keeps what the archive says of it, and only what
 * it reads is renamed; a new one is written from the operator's signature. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/archive/internal.h"
#include "core/archive/rewrite.h"
#include "core/operators/spelling.h"

/* ---- the rows of the archive -------------------------------------------------------------------------------------------- */

static bool index_rows(pt_scope *s) {
    const pt_program *p = s->p;
    json_t *nodes = json_object_get(s->graph, "nodes");
    s->sources = calloc((size_t)p->count + 1, sizeof(json_t *));
    if (!s->sources) return false;
    for (uint32_t i = 0; i < p->count; i++) {
        const pt_row *row = &p->rows[i];
        if (row->node) s->sources[i] = json_array_get(nodes, (size_t)(row->node - p->nodes));
        if (!row->name || row->is_dead) continue;
        if (!pt_set(s->rows, row->name, json_integer(i))) return false;
        if (row->result && !pt_set(s->names, row->name, json_string(row->result))) return false;
        if (row->spec && !pt_push(s->r->inputs_of, row->target, json_string(row->result))) return false;
    }
    return true;
}

static const pt_row *row_called(const pt_scope *s, const char *name) {
    const json_t *index = json_object_get(s->rows, name);
    return index ? &s->p->rows[json_integer_value(index)] : NULL;
}

/* Symbolic sizes by what documents print of them. */
static bool list_sizes(pt_scope *s) {
    const char *key;
    json_t *value, *size;
    size_t i;
    json_object_foreach(s->values, key, value) {
        json_array_foreach(json_object_get(value, "sizes"), i, size) {
            const char *text = pt_text_of(json_object_get(size, "as_expr"), "expr_str");
            fb_buffer printed = {0};
            bool ok = !*text || (fb_print_size(text, strlen(text), &printed) && fb_buffer_text(&printed));
            if (ok && *text) ok = json_object_set(s->r->sizes, fb_buffer_text(&printed), size) == 0;
            fb_buffer_free(&printed);
            if (!ok) return false;
        }
    }
    return true;
}

/* ---- what a node reads --------------------------------------------------------------------------------------------------- */

static bool rewrite_nested(pt_rewriting *r, pt_program *program, json_t *graph);

/* Exchanges the names that an argument of the archive reads, in their order, and rewrites the programs in it. Without `reads`
 * the names are only counted. */
static bool rename_reads(pt_scope *s, json_t *argument, const json_t *reads, size_t *at) {
    size_t i;
    const char *key;
    json_t *item;
    if (json_is_array(argument)) {
        json_array_foreach(argument, i, item) if (!rename_reads(s, item, reads, at)) return false;
        return true;
    }
    if (!json_is_object(argument)) return true;
    json_t *program = json_object_get(argument, "as_graph");
    if (program) {
        const char *node = json_string_value(json_array_get(reads, (*at)++));
        const pt_row *row = node ? row_called(s, node) : NULL;
        bool is_same = row && row->kind == PT_PROGRAM && strcmp(row->target, pt_text_of(program, "name")) == 0;
        if (!reads) return true;
        if (!is_same) return pt_refuse(s->r, "\"%s\" is called in the place of another nested program", node ? node : "");
        return rewrite_nested(s->r, row->program, json_object_get(program, "graph"));
    }
    const char *member = json_object_get(argument, "as_name") ? "as_name" : "name";
    const json_t *name = json_object_get(argument, member);
    if (!json_is_string(name)) {
        json_object_foreach(argument, key, item) if (!rename_reads(s, item, reads, at)) return false;
        return true;
    }
    size_t index = (*at)++;
    if (!reads) return true;
    const char *node = json_string_value(json_array_get(reads, index));
    const char *now = node ? json_string_value(json_object_get(s->names, node)) : NULL;
    if (!now) return pt_refuse(s->r, "\"%s\" reads what the archive has no name for", node ? node : "");
    bool was_tensor = json_object_get(s->values, json_string_value(name)) != NULL;
    if (strcmp(now, json_string_value(name)) != 0 && (!was_tensor || !json_object_get(s->values, now)))
        return pt_refuse(s->r, "the size %s is read in the place of %s", now, json_string_value(name));
    const json_t *was = json_object_get(json_object_get(s->values, json_string_value(name)), "strides");
    const json_t *is = json_object_get(json_object_get(s->values, now), "strides");
    if (was && !json_equal(was, is) && !pt_set(s->laid_out, now, json_true())) return false;
    return pt_set(argument, member, json_string(now));
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
static bool keep_argument(pt_scope *s, const char *target, json_t *input, const json_t *before, const json_t *after) {
    json_t *argument = json_object_get(input, "arg"), *reads = json_array();
    size_t count = 0, at = 0;
    bool ok = reads && pt_list_reads(after, reads) && rename_reads(s, argument, NULL, &count);
    if (ok && is_alike(before, after) && count == json_array_size(reads)) {
        ok = rename_reads(s, argument, reads, &at);
    } else if (ok) {
        const char *name = pt_text_of(input, "name");
        argument = pt_make_argument(s, after, pt_type_of(target, name, strlen(name)));
        ok = argument && pt_set(input, "arg", argument);
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

static bool keep_arguments(pt_scope *s, json_t *made, const json_t *before, const json_t *after) {
    const json_t *args = json_object_get(before, "args"), *now = json_object_get(after, "args");
    const json_t *kwargs = json_object_get(before, "kwargs"), *named = json_object_get(after, "kwargs");
    json_t *inputs = json_object_get(made, "inputs"), *input;
    size_t positions = json_array_size(args), i;
    if (positions != json_array_size(now) || !have_same_keys(kwargs, named) ||
        positions + json_object_size(kwargs) != json_array_size(inputs)) {
        inputs = pt_make_inputs(s, after);
        return inputs && pt_set(made, "inputs", inputs);
    }
    json_array_foreach(inputs, i, input) {
        const char *name = pt_text_of(input, "name");
        const json_t *was = i < positions ? json_array_get(args, i) : json_object_get(kwargs, name);
        const json_t *is = i < positions ? json_array_get(now, i) : json_object_get(named, name);
        if (!keep_argument(s, pt_text_of(after, "target"), input, was, is)) return false;
    }
    return true;
}

/* The tensors that the node reads, as tensor_values has them. */
static json_t *tensors_read(pt_scope *s, const json_t *node, bool *are_laid_out) {
    json_t *reads = json_array(), *made = json_array(), *read;
    size_t i;
    bool ok = reads && made;
    ok = ok && pt_list_reads(json_object_get(node, "args"), reads) && pt_list_reads(json_object_get(node, "kwargs"), reads);
    *are_laid_out = false;
    json_array_foreach(reads, i, read) {
        const char *name = pt_text_of(s->names, json_string_value(read));
        json_t *value = json_object_get(s->values, name);
        if (json_object_get(s->laid_out, name)) *are_laid_out = true;
        if (ok && value) ok = json_array_append(made, value) == 0;
    }
    json_decref(reads);
    if (ok) return made;
    json_decref(made);
    return NULL;
}

/* Writes down the strides that the result has now. `is_kept`: the node was in the archive. */
static bool lay_out(pt_scope *s, const char *result, const json_t *node, const json_t *tensors) {
    json_t *value = json_object_get(s->values, result);
    bool is_known;
    if (!value) return true;
    json_t *strides = pt_strides_of(pt_text_of(node, "target"), node, tensors, json_object_get(value, "sizes"), &is_known);
    if (!strides) return !is_known;
    bool is_same = json_equal(strides, json_object_get(value, "strides"));
    bool ok = is_same || pt_set(s->laid_out, result, json_true());
    return pt_set(value, "strides", strides) && ok;
}

/* The dtype that the archive records of a result of the graph, or "". */
static const char *recorded_dtype(const pt_scope *s, const json_t *meta) {
    fb_dtype known = fb_dtype_find(pt_text_of(meta, "dtype")), recorded = known ? known : pt_exported_as(s->r->m, known);
    return recorded ? fb_dtype_name(recorded) : "";
}

/* The shape and the dtype that the graph gives the result, where they are other ones than the archive's. */
static bool describe_again(pt_scope *s, const char *result, const json_t *before, const json_t *after) {
    const json_t *was = json_object_get(before, "meta"), *meta = json_object_get(after, "meta"),
                 *shape = json_object_get(meta, "shape");
    json_t *value = json_object_get(s->values, result);
    const char *dtype = recorded_dtype(s, meta);
    if (!value || !json_is_array(shape)) return true;
    bool ok = true;
    if (strcmp(dtype, recorded_dtype(s, was)) != 0)
        ok = pt_scalar_type(dtype) && pt_set(value, "dtype", json_integer(pt_scalar_type(dtype)));
    if (!ok || json_equal(shape, json_object_get(was, "shape"))) return ok;
    json_t *made =
        pt_make_meta(s, shape, dtype, json_is_true(json_object_get(value, "requires_grad")), json_object_get(value, "device"));
    return made && pt_set(s->values, result, made) && pt_set(s->laid_out, result, json_true());
}

static bool lay_out_results(pt_scope *s, const json_t *made, const json_t *node, bool is_new) {
    const json_t *output = json_array_get(json_object_get(made, "outputs"), 0);
    const json_t *several = json_object_get(output, "as_tensors"), *one = json_object_get(output, "as_tensor");
    bool are_laid_out;
    json_t *tensors = tensors_read(s, node, &are_laid_out), *item;
    size_t i;
    bool ok = tensors != NULL;
    if (ok && one && (is_new || are_laid_out)) ok = lay_out(s, pt_text_of(one, "name"), node, tensors);
    json_array_foreach(several, i, item) ok = ok && (!are_laid_out || lay_out(s, pt_text_of(item, "name"), node, tensors));
    json_decref(tensors);
    return ok;
}

/* A call that changed has arguments that its overload takes: nothing else looks at their types before PyTorch does. */
static bool check_call(pt_scope *s, const json_t *node) {
    const char *name = pt_text_of(node, "name"), *target = pt_text_of(node, "target");
    const json_t *before = json_object_get(s->nodes_before, name);
    static const char *const parts[] = {"target", "args", "kwargs"};
    bool is_same = before != NULL;
    for (size_t i = 0; i < 3 && is_same; i++)
        is_same = json_equal(json_object_get(before, parts[i]), json_object_get(node, parts[i]));
    fb_node n = is_same ? (fb_node){0} : fb_node_find(s->r->graph, s->program, name);
    return !n.id || fb_call_exists(s->r->graph, n) ||
           pt_refuse(s->r, "PyTorch has no %s that takes the arguments of \"%s\"", target, name);
}

static json_t *keep_node(pt_scope *s, const pt_row *row, const json_t *node) {
    json_t *made = json_deep_copy(s->sources[row - s->p->rows]);
    const json_t *before = json_object_get(s->nodes_before, pt_text_of(node, "name"));
    const char *result = pt_text_of(s->names, pt_text_of(node, "name"));
    bool ok = made && before;
    ok = ok && keep_arguments(s, made, before, node) && describe_again(s, result, before, node) &&
         lay_out_results(s, made, node, !is_alike(before, node));
    if (ok) return made;
    json_decref(made);
    return NULL;
}

/* A node that is new, or calls another function than the one of that name did. */
static json_t *insert_node(pt_scope *s, const json_t *node) {
    const char *name = pt_text_of(node, "name"), *target = pt_text_of(node, "target");
    const char *known = json_string_value(json_object_get(s->names, name)), *result = known ? known : name;
    const json_t *meta = json_object_get(node, "meta"), *shape = json_object_get(meta, "shape");
    if (!json_object_get(s->values, result) != !known || !fb_registered_name(target) || !json_is_array(shape)) {
        pt_refuse(s->r, "the new node \"%s\" (%s) has a name that is taken, no shape, or is not of ATen", name, target);
        return NULL;
    }
    if (!pt_are_on_one_device(s)) {
        pt_refuse(s->r, "the new node \"%s\" is in a program of several devices", name);
        return NULL;
    }
    json_t *inputs = pt_make_inputs(s, node);
    json_t *value = inputs ? pt_make_meta(s, shape, recorded_dtype(s, meta), false, pt_some_device(s)) : NULL;
    if (!value || !pt_set(s->values, result, value) || !pt_set(s->laid_out, result, json_true()) ||
        (!known && !pt_set(s->names, name, json_string(name)))) {
        json_decref(inputs);
        return NULL;
    }
    json_t *made = json_pack("{s:s,s:o,s:[{s:{s:s}}],s:{},s:n,s:s}", "target", target, "inputs", inputs, "outputs", "as_tensor",
                             "name", result, "metadata", "is_hop_single_tensor_return", "name", name);
    bool ok = made && lay_out_results(s, made, node, true);
    if (ok && json_object_set(s->inserted, name, (json_t *)(uintptr_t)node) == 0) return made;
    json_decref(made);
    return NULL;
}

/* A weight that the graph did not have: an input more. */
static bool insert_state(pt_scope *s, const char *name, const char *owner) {
    const json_t *owned = json_object_get(s->r->owners, owner), *row = json_array_get(owned, 0);
    bool is_parameter = pt_is_parameter(owned);
    if (!row || s != &s->r->main) return pt_refuse(s->r, "\"%s\" reads \"%s\", which is not a weight there", name, owner);
    if (json_object_get(s->values, name) || !pt_are_on_one_device(s))
        return pt_refuse(s->r, "the new weight \"%s\" has a name that is taken, or is in a program of several devices", owner);
    const char *recorded = fb_dtype_name(pt_exported_as(s->r->m, fb_dtype_find(pt_text_of(row, "dtype"))));
    json_t *value = pt_make_meta(s, json_object_get(row, "shape"), recorded, pt_requires_grad(owned), pt_some_device(s));
    json_t *spec = is_parameter ? json_pack("{s:{s:{s:s},s:s}}", "parameter", "arg", "name", name, "parameter_name", owner)
                                : json_pack("{s:{s:{s:s},s:s,s:b}}", "buffer", "arg", "name", name, "buffer_name", owner,
                                            "persistent", true);
    return value && pt_set(s->values, name, value) && pt_set(s->names, name, json_string(name)) &&
           pt_append(s->r->states, spec) && pt_append(s->r->state_inputs, json_pack("{s:{s:s}}", "as_tensor", "name", name));
}

static bool put_item(pt_scope *s, const pt_row *row, const json_t *node) {
    const json_t *args = json_object_get(node, "args");
    const char *of = pt_text_of(json_array_get(args, 0), "$node");
    const json_t *index = json_array_get(args, 1);
    const char *was = s->p->rows[row->first].name;
    const char *name = pt_text_of(node, "name");
    if (was && strcmp(of, was) == 0 && json_is_integer(index) && json_integer_value(index) == (json_int_t)row->second)
        return describe_again(s, pt_text_of(s->names, name), json_object_get(s->nodes_before, name), node);
    return pt_refuse(s->r, "\"%s\" takes another item than it did", pt_text_of(node, "name"));
}

/* Maps a node that writes into a buffer or an input when the program ends. */
static bool put_copy(pt_scope *s, const pt_row *row, json_t *node) {
    const json_t *args = json_object_get(node, "args");
    const char *into = pt_text_of(json_array_get(args, 0), "$node"), *was = s->p->rows[row->first].name;
    /* Archives have no call for it, and so no place for the type of what it returns. */
    const json_t *meta = json_object_get(json_object_get(s->nodes_before, pt_text_of(node, "name")), "meta");
    if (!meta || !pt_set(node, "meta", json_deep_copy(meta))) return false;
    const char *from = pt_text_of(json_array_get(args, 1), "$node"), *name = pt_text_of(s->names, from);
    if (strcmp(pt_text_of(node, "target"), row->target) == 0 && json_array_size(args) == 2 && was && strcmp(into, was) == 0)
        return pt_append(s->copied, json_string(from)) &&
               pt_set(s->names, pt_text_of(node, "name"), json_string(name)); /* what returns it returns that */
    return pt_refuse(s->r, "\"%s\" writes into something else than it did", pt_text_of(node, "name"));
}

static bool put_node(pt_scope *s, json_t *node, json_t *out) {
    const char *name = pt_text_of(node, "name"), *op = pt_text_of(node, "op"), *target = pt_text_of(node, "target");
    const pt_row *row = row_called(s, name);
    if (strcmp(op, "output") == 0) return true;
    if (!pt_set(s->kept, name, json_true())) return false;
    bool is_input = strcmp(op, "placeholder") == 0, is_state = strcmp(op, "get_attr") == 0;
    if (is_input || is_state) {
        if (is_state && row && row->kind == PT_PROGRAM)
            return strcmp(row->target, target) == 0 || pt_refuse(s->r, "\"%s\" is another nested program than it was", name);
        bool is_same = row && row->kind == (is_input ? PT_INPUT : PT_STATE) && row->target && strcmp(row->target, target) == 0;
        if (is_input && row && row->kind == PT_INPUT) is_same = true;
        if (is_state && !row) return insert_state(s, name, target);
        return is_same || pt_refuse(s->r, "\"%s\" is another %s than it was", name, is_input ? "input" : "weight");
    }
    if (strcmp(op, "call_function") != 0) return pt_refuse(s->r, "\"%s\" is a %s", name, op);
    if (row && row->kind == PT_ITEM) return put_item(s, row, node);
    if (row && row->kind == PT_COPY) return put_copy(s, row, node);
    if (!check_call(s, node)) return false;
    json_t *made;
    if (row && row->kind == PT_CALL && strcmp(row->target, target) == 0) made = keep_node(s, row, node);
    else if (!row || row->kind == PT_CALL) made = insert_node(s, node);
    else return pt_refuse(s->r, "\"%s\" is a call that it was not", name);
    return made && pt_append(out, made);
}

/* Mutations come first, in the order of their copies; then what is returned. */
static bool put_output(pt_scope *s, json_t *output, json_t *spec, const json_t *returned, size_t *next, size_t *copy) {
    static const char *const mutations[] = {"buffer_mutation", "parameter_mutation", "user_input_mutation"};
    json_t *returns = json_object_get(spec, "user_output");
    for (size_t i = 0; i < 3 && !returns; i++) {
        json_t *mutation = json_object_get(spec, mutations[i]);
        if (mutation)
            return rename_reads(s, output, s->copied, copy) &&
                   pt_set(mutation, "arg", json_deep_copy(json_object_get(output, "as_tensor")));
    }
    if (!returns) return pt_refuse(s->r, "an output is neither returned nor written into a buffer or an input");
    return rename_reads(s, output, returned, next) && pt_set(returns, "arg", json_deep_copy(output));
}

/* `specs`: NULL for a nested program. */
static bool put_outputs(pt_scope *s, const json_t *node, json_t *specs) {
    json_t *outputs = json_object_get(s->graph, "outputs"), *reads = json_array(), *output;
    size_t count = 0, next = 0, copy = 0, i;
    bool ok = reads && outputs;
    ok = ok && pt_list_reads(json_object_get(node, "args"), reads);
    rename_reads(s, outputs, NULL, &count);
    if (ok && count != json_array_size(reads) + json_array_size(s->copied))
        ok = pt_refuse(s->r, "it returns other values than it did, or writes other ones");
    json_array_foreach(outputs, i, output) ok =
        ok &&
        (specs ? put_output(s, output, json_array_get(specs, i), reads, &next, &copy) : rename_reads(s, output, reads, &next));
    json_decref(reads);
    return ok;
}

/* A constant that the modules own still keeps its input, though nothing reads it: torch.export.unflatten asks for one. */
static bool keep_constants(pt_scope *s) {
    const json_t *constants = json_object_get(s->r->constants, "config");
    for (uint32_t i = 0; i < s->p->count; i++) {
        const pt_row *row = &s->p->rows[i];
        bool is_owned =
            row->kind == PT_STATE && json_object_get(constants, row->target) && json_object_get(s->r->owners, row->target);
        if (is_owned && !row->is_dead && !pt_set(s->kept, row->name, json_true())) return false;
    }
    return true;
}

/* Leaves out the inputs of state that the graph reads no more. */
static bool put_inputs(pt_scope *s, json_t *specs) {
    json_t *inputs = json_object_get(s->graph, "inputs");
    uint32_t row = 0;
    for (size_t i = 0; i < json_array_size(inputs); row++) {
        const pt_row *input = &s->p->rows[row];
        if (json_object_get(s->kept, input->name) || (input->kind == PT_STATE && input->is_dead)) {
            i++;
            continue;
        }
        if (input->kind != PT_STATE) return pt_refuse(s->r, "the input \"%s\" is gone", input->name);
        if (json_array_remove(inputs, i) || json_array_remove(specs, i)) return false;
    }
    for (size_t i = 0; specs && i < json_array_size(s->r->states); i++) {
        bool ok = json_array_insert(inputs, i, json_array_get(s->r->state_inputs, i)) == 0;
        if (!ok || json_array_insert(specs, i, json_array_get(s->r->states, i))) return false;
    }
    return true;
}

/* Leaves out what is said of values that are gone. */
static void forget_values(pt_scope *s) {
    for (uint32_t i = 0; i < s->p->count; i++) {
        const pt_row *row = &s->p->rows[i], *source = row->kind == PT_ITEM ? &s->p->rows[row->first] : row;
        if (row->result && !row->is_dead && source->name && !json_object_get(s->kept, source->name))
            json_object_del(s->values, row->result);
    }
}

/* A signature of a module names values of the program, which must be there still. */
static bool check_call_graph(pt_scope *s, const json_t *calls) {
    size_t i, k;
    json_t *call, *argument;
    json_array_foreach(calls, i, call) {
        const json_t *signature = json_object_get(call, "signature");
        const json_t *lists[] = {json_object_get(signature, "inputs"), json_object_get(signature, "outputs")};
        for (int list = 0; list < 2; list++) {
            json_array_foreach(lists[list], k, argument) {
                const char *name = pt_text_of(json_object_get(argument, "as_tensor"), "name");
                if (*name && !json_object_get(s->values, name))
                    return pt_refuse(s->r, "the signature of the module \"%s\" has \"%s\", which is gone",
                                     pt_text_of(call, "fqn"), name);
            }
        }
    }
    return true;
}

/* ---- what is returned and also written into a buffer or an input --------------------------------------------------------- */

static bool exchange_reads(json_t *value, const char *from, const char *to) {
    size_t i;
    const char *key;
    json_t *item;
    bool ok = true;
    if (strcmp(pt_text_of(value, "$node"), from) == 0) return json_object_set_new(value, "$node", json_string(to)) == 0;
    json_array_foreach(value, i, item) ok = exchange_reads(item, from, to) && ok;
    json_object_foreach(value, key, item) ok = exchange_reads(item, from, to) && ok;
    return ok;
}

static bool return_copy(pt_scope *s, json_t *nodes, size_t place, const char *of, const json_t *meta) {
    json_t *output = json_array_get(nodes, json_array_size(nodes) - 1);
    const char *name = pt_format(s->r->m, "%s_copy", of);
    while (name && (row_called(s, name) || json_object_get(s->values, name))) name = pt_format(s->r->m, "%s_", name);
    json_t *made = name ? json_pack("{s:s,s:s,s:s,s:[{s:s}],s:{},s:O}", "name", name, "op", "call_function", "target",
                                    FB_ATEN "clone.default", "args", "$node", of, "kwargs", "meta", meta)
                        : NULL;
    bool ok =
        made && json_array_insert_new(nodes, place, made) == 0 && exchange_reads(json_object_get(output, "args"), of, name);
    return ok;
}

/* PyTorch returns the buffer or input itself where the program returns what it writes into it, and the caller would see later
 * writes. A graph in which that is another tensor becomes one that returns a copy. */
static bool return_copies(pt_scope *s, json_t *nodes) {
    json_t *reads = json_array(), *returned = json_object(), *metas = json_object(), *node, *read;
    size_t i, place = SIZE_MAX;
    bool ok = reads && returned && metas;
    ok = ok && pt_list_reads(json_object_get(json_array_get(nodes, json_array_size(nodes) - 1), "args"), reads);
    json_array_foreach(reads, i, read) ok = ok && pt_set(returned, json_string_value(read), json_true());
    json_array_foreach(nodes, i, node) ok =
        ok && pt_set(metas, pt_text_of(node, "name"), json_incref(json_object_get(node, "meta")));
    for (i = 0; ok && i < json_array_size(nodes); i++) {
        node = json_array_get(nodes, i);
        const pt_row *row = row_called(s, pt_text_of(node, "name"));
        const char *from = pt_text_of(json_array_get(json_object_get(node, "args"), 1), "$node");
        if (!row || row->kind != PT_COPY) continue;
        if (place == SIZE_MAX) place = i;
        if (!json_object_get(returned, from)) continue;
        ok = return_copy(s, nodes, place++, from, json_object_get(metas, from));
        json_object_del(returned, from);
        i++;
    }
    json_decref(reads);
    json_decref(returned);
    json_decref(metas);
    return ok;
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

/* A graph's program for a program of the archive. */
static fb_program program_of(const fb_graph *graph, const char *path) {
    fb_module owner = fb_module_find(graph, path);
    return !*path ? FB_MAIN_PROGRAM : owner.id ? fb_module_at(graph, owner)->program : (fb_program){0};
}

static bool find_ancestors(pt_scope *s) {
    pt_model *m = s->r->m;
    s->program_before = program_of(s->r->graph_before, s->p->path);
    s->program = program_of(s->r->graph, s->p->path);
    m->status =
        fb_ancestry_find(s->r->graph_before, s->program_before, s->r->graph, s->program, m->work, &s->ancestry, m->error);
    return !m->status;
}

static bool open_scope(pt_scope *s, pt_rewriting *r, pt_program *program, json_t *graph, const json_t *nodes_before) {
    *s = (pt_scope){.r = r, .p = program, .graph = graph, .values = json_object_get(graph, "tensor_values")};
    json_t **const tables[] = {&s->rows, &s->names, &s->kept, &s->laid_out, &s->nodes_before, &s->inserted};
    json_t *node;
    size_t i;
    bool ok = (s->copied = json_array()) != NULL;
    for (i = 0; i < sizeof tables / sizeof *tables; i++) ok = (*tables[i] = json_object()) && ok;
    if (!ok) return false;
    json_array_foreach(nodes_before, i, node) ok = ok && pt_set(s->nodes_before, pt_text_of(node, "name"), json_incref(node));
    return ok && find_ancestors(s) && list_sizes(s) && index_rows(s);
}

void pt_scope_free(pt_scope *s) {
    json_t *const tables[] = {s->rows, s->names, s->kept, s->laid_out, s->nodes_before, s->inserted, s->copied};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) json_decref(tables[i]);
    free(s->sources);
    fb_ancestry_free(&s->ancestry);
    *s = (pt_scope){0};
}

/* `specs` of inputs and outputs, NULL for a nested program. */
static bool rewrite_nodes(pt_scope *s, const json_t *list, json_t *inputs, json_t *outputs) {
    json_t *nodes = json_array(), *node;
    size_t i;
    bool ok = nodes;
    json_array_foreach(list, i, node) ok = ok && fb_work_goes_on(s->r->m->work, 256) && put_node(s, node, nodes);
    node = json_array_get(list, json_array_size(list) - 1);
    ok = ok && put_outputs(s, node, outputs) && keep_constants(s) && put_inputs(s, inputs);
    if (ok) forget_values(s);
    ok = ok && pt_describe_new_nodes(s, nodes);
    if (ok) return pt_set(s->graph, "nodes", nodes);
    json_decref(nodes);
    return false;
}

/* The nodes of a nested program in a document; NULL: it is not there. */
static const json_t *nodes_of(const json_t *document, const char *path) {
    size_t i;
    json_t *module;
    json_array_foreach(json_object_get(document, "modules"), i, module) {
        if (strcmp(pt_text_of(module, "path"), path) == 0) return json_object_get(json_object_get(module, "graph"), "nodes");
    }
    return NULL;
}

static bool is_changed(const pt_rewriting *r, const pt_program *program) {
    bool found = !json_equal(nodes_of(r->before, program->path), nodes_of(r->after, program->path));
    for (uint32_t i = 0; i < program->count && !found; i++)
        found = program->rows[i].kind == PT_PROGRAM && !program->rows[i].is_dead && is_changed(r, program->rows[i].program);
    return found;
}

static bool rewrite_nested(pt_rewriting *r, pt_program *program, json_t *graph) {
    const json_t *after = nodes_of(r->after, program->path);
    pt_scope scope = {0};
    if (!after) return pt_refuse(r, "the nested program \"%s\" is gone", program->path);
    if (!is_changed(r, program)) return true;
    bool ok =
        open_scope(&scope, r, program, graph, nodes_of(r->before, program->path)) && rewrite_nodes(&scope, after, NULL, NULL);
    pt_scope_free(&scope);
    return ok;
}

bool pt_rewrite_program(pt_rewriting *r) {
    json_t *module = json_object_get(r->program, "graph_module");
    const json_t *signature = json_object_get(module, "signature");
    return open_scope(&r->main, r, r->m->programs[0], json_object_get(module, "graph"), json_object_get(r->before, "nodes")) &&
           return_copies(&r->main, json_object_get(r->after, "nodes")) &&
           rewrite_nodes(&r->main, json_object_get(r->after, "nodes"), json_object_get(signature, "input_specs"),
                         json_object_get(signature, "output_specs")) &&
           check_call_graph(&r->main, json_object_get(module, "module_call_graph"));
}
