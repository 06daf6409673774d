/* A program of the archive as rows of nodes, named as torch.export.load and ExportedProgram.module() name them.
 *
 * Loading makes a node of each input and each call, gives it the name that the archive has for its result, and takes one item
 * after the other out of results that are several. module() then copies the main program, which makes names that Python or
 * torch.fx reserve others ("input" becomes "input_1"), reads state by get_attr instead of taking it as inputs, and writes what
 * is mutated at the end. Programs within are left as they were loaded. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/grow.h"
#include "core/operators/spelling.h"

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

static pt_row *add_row(pt_model *m, pt_program *p, pt_kind kind) {
    if (m->row_count++ > PT_MOST_ROWS) {
        pt_unsupported(m, m->program_file.name, "the program has more than %d nodes", PT_MOST_ROWS);
        return NULL;
    }
    if (!FB_GROW(p->rows, p->count, p->capacity)) return NULL;
    pt_row *row = &p->rows[p->count++];
    *row = (pt_row){.kind = kind};
    return row;
}

static const char *fresh(pt_program *p, const char *candidate) {
    return fb_namespace_create(p->names, candidate);
}

static const char *fresh_like(pt_program *p, fb_opcode opcode, const char *target, const char *behind) {
    fb_buffer candidate = {0};
    fb_candidate_name(&candidate, opcode, target);
    fb_buffer_string(&candidate, behind);
    const char *text = fb_buffer_text(&candidate), *name = text ? fresh(p, text) : NULL;
    fb_buffer_free(&candidate);
    return name;
}

uint32_t pt_row_of(const pt_program *program, const fb_json *name) {
    uint32_t row;
    bool is_known = name && name->kind == FB_JSON_STRING && pt_keys_find(&program->by_name, name->text, name->count, &row);
    return is_known ? row : UINT32_MAX;
}

/* The row has the result that the archive calls so, and, if it is a tensor, its shape. */
static bool name_result(pt_model *m, pt_program *p, uint32_t index, const fb_json *name, bool is_tensor) {
    const char *text = pt_text(m, name);
    uint32_t number;
    if (!text) return false;
    bool is_described = is_tensor || p->rows[index].kind == PT_INPUT || pt_keys_find(&p->numbers, text, name->count, &number);
    if (!is_described) return pt_bad(m, m->program_file.name, "\"%s\" is in none of the graph's tables of values", text);
    bool is_new;
    if (!pt_keys_put(&p->by_name, name->text, name->count, index, &is_new)) return false;
    if (!is_new) return pt_bad(m, m->program_file.name, "there are two results called \"%s\"", text);
    uint32_t value;
    if (is_tensor) {
        if (!pt_keys_find(&p->values, name->text, name->count, &value))
            return pt_bad(m, m->program_file.name, "tensor_values lacks \"%s\"", text);
        p->rows[index].value = m->program_file.root + value;
    }
    p->rows[index].name = text;
    return true;
}

/* ---- inputs and outputs ------------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *names) {
    while (*names && strcmp(*names, text) != 0) names++;
    return *names != NULL;
}

static const fb_json *input_spec(const pt_model *m, uint32_t index) {
    const fb_json *graph_module = pt_member(m->program_file.root, "graph_module");
    const fb_json *specs = pt_member(pt_member(graph_module, "signature"), "input_specs");
    if (index >= specs->count) return NULL;
    const fb_json *spec = fb_json_first(specs);
    while (index--) spec = fb_json_next(spec);
    return spec;
}

static bool read_input(pt_model *m, pt_program *p, const fb_json *input, uint32_t index) {
    static const char *const constants[] = {"as_int", "as_float", "as_bool", "as_none", "as_string", NULL};
    const char *kind, *what;
    const fb_json *value = pt_union(input, &kind);
    bool is_tensor = strcmp(kind, "as_tensor") == 0, is_size = strcmp(kind, "as_sym_int") == 0;
    pt_row *row = add_row(m, p, PT_INPUT);
    if (!row) return false;
    if (is_tensor || is_size) {
        const fb_json *name = pt_member(value, is_tensor ? "name" : "as_name");
        if (!name) return pt_bad(m, m->program_file.name, "the input %u has no name", index);
        row->target = pt_text(m, name);
        if (!row->target || !fresh(p, row->target)) return false;
        return name_result(m, p, p->count - 1, name, is_tensor);
    }
    if (!is_one_of(kind, constants))
        return pt_unsupported(m, m->program_file.name, "the input %u is of the kind %s, which is not supported", index, kind);
    const fb_json *inner = pt_union(input_spec(m, index), &what), *name = pt_member(inner, "name");
    if (!inner || p->parent)
        return pt_unsupported(m, m->program_file.name, "the input %u of a nested program is a constant", index);
    row->target = name && name->count ? pt_text(m, name) : pt_format(m, "arg%u", index);
    row->name = row->target ? fresh(p, row->target) : NULL;
    return row->name != NULL;
}

static bool read_output(pt_model *m, pt_program *p) {
    const fb_json *outputs = pt_member(p->graph, "outputs"), *single = pt_member(p->graph, "is_single_tensor_return");
    pt_row *row = add_row(m, p, PT_OUTPUT);
    if (!row) return false;
    row->source = outputs;
    row->target = "output";
    row->name = fresh(p, "output");
    row->first = single && single->kind == FB_JSON_TRUE;
    if (!row->first) return row->name != NULL;
    const char *kind;
    const fb_json *value = outputs->count == 1 ? pt_union(fb_json_first(outputs), &kind) : NULL;
    uint32_t of = value ? pt_row_of(p, pt_member(value, strcmp(kind, "as_tensor") == 0 ? "name" : "as_name")) : UINT32_MAX;
    if (of == UINT32_MAX) return pt_bad(m, m->program_file.name, "a graph that returns a single tensor has another result");
    row->value = p->rows[of].value;
    return row->name != NULL;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

/* The document's name of the function; NULL and a failure for one that no archive has. The list of functions outside of
 * torch.ops is the format's, not a fact of the operators: _SYM_OPS of torch/_export/serde/serialize.py. */
static const char *function_name(pt_model *m, const char *target, const char *node) {
    static const char *const sizes[] = {"eq",  "ne",       "le",  "ge",  "lt",      "gt",   "neg", "pos",    "mul",    "add",
                                        "sub", "floordiv", "mod", "pow", "truediv", "and_", "or_", "lshift", "rshift", NULL};
    static const char *const others[] = {"math.trunc",    "torch.sym_not", "torch.sym_int", "torch.sym_float",
                                         "torch.sym_ite", "torch.sym_max", "torch.sym_min", NULL};
    if (fb_is_spelled(target, FB_REGISTERED) && strchr(target + strlen(FB_REGISTERED), '.')) return target;
    if (strncmp(target, "_operator.", 10) == 0 && is_one_of(target + 10, sizes)) return target + 1;
    if (is_one_of(target, others)) return target;
    pt_unsupported(m, m->program_file.name, "the node \"%s\" calls %s, which is not supported", node, target);
    return NULL;
}

/* Programs that are arguments are read by get_attr nodes before the call. */
static bool read_programs(pt_model *m, pt_program *p, const fb_json *argument) {
    const char *kind;
    const fb_json *value = pt_union(argument, &kind);
    if (strcmp(kind, "as_string_to_argument") == 0) {
        const fb_json *key = fb_json_first(value);
        for (uint32_t i = 0; i < value->count; i++, key = fb_json_next(key + 1)) {
            if (!read_programs(m, p, key + 1)) return false;
        }
        return true;
    }
    if (strcmp(kind, "as_graph") != 0) return true;
    const char *text = pt_text(m, pt_member(value, "name"));
    pt_program *nested = text ? pt_read_program(m, pt_member(value, "graph"), p, text) : NULL;
    pt_row *row = nested ? add_row(m, p, PT_PROGRAM) : NULL;
    if (!row) return false;
    row->program = nested;
    row->target = text;
    row->name = fresh(p, text);
    bool is_new;
    /* Names of graphs and of results are different namespaces: it is looked up with a mark before it. */
    const char *key = pt_format(m, "\n%s", text);
    if (!key || !pt_keys_put(&p->by_name, key, strlen(key), p->count - 1, &is_new)) return false;
    return is_new || pt_unsupported(m, m->program_file.name, "two nested programs are called \"%s\"", text);
}

static bool read_items(pt_model *m, pt_program *p, uint32_t of, const fb_json *outputs, bool are_unions);

/* An item of a result that is several. */
static bool read_item(pt_model *m, pt_program *p, uint32_t of, uint32_t index, const fb_json *output, bool is_union) {
    const char *kind = "as_tensor";
    const fb_json *value = is_union ? pt_union(output, &kind) : output;
    bool is_none = strcmp(kind, "as_none") == 0, is_list = strcmp(kind, "as_tensors") == 0;
    pt_row *row = add_row(m, p, PT_ITEM);
    if (!row) return false;
    uint32_t place = p->count - 1;
    row->first = of;
    row->second = index;
    row->target = FB_TARGET_GETITEM;
    if (is_list || is_none) {
        row->name = fresh(p, is_none ? "as_none" : "getitem");
        return row->name && (is_none || read_items(m, p, place, value, false));
    }
    bool is_tensor = strcmp(kind, "as_tensor") == 0,
         is_size = strcmp(kind, "as_sym_int") == 0 || strcmp(kind, "as_sym_float") == 0;
    if (!is_tensor && !is_size)
        return pt_unsupported(m, m->program_file.name, "a result of the kind %s is not supported", kind);
    const fb_json *name = pt_member(value, is_tensor ? "name" : "as_name");
    if (!name) return pt_bad(m, m->program_file.name, "a result has no name");
    const char *text = pt_text(m, name);
    return text && fresh(p, text) && name_result(m, p, place, name, is_tensor);
}

static bool read_items(pt_model *m, pt_program *p, uint32_t of, const fb_json *outputs, bool are_unions) {
    const fb_json *output = fb_json_first(outputs);
    for (uint32_t i = 0; i < outputs->count; i++, output = fb_json_next(output)) {
        if (!read_item(m, p, of, i, output, are_unions)) return false;
    }
    return true;
}

static bool read_results(pt_model *m, pt_program *p, uint32_t index, const fb_json *node) {
    const fb_json *outputs = pt_member(node, "outputs"), *first = fb_json_first(outputs);
    const char *target = p->rows[index].target, *kind;
    if (outputs->count == 0) return true;
    if (outputs->count > 1) return read_items(m, p, index, outputs, true);
    const fb_json *value = pt_union(first, &kind), *single = pt_member(node, "is_hop_single_tensor_return");
    bool is_none = strcmp(kind, "as_none") == 0;
    bool is_tuple_of_one = single && single->kind == FB_JSON_FALSE && fb_is_spelled(target, FB_HIGHER_ORDER);
    if (is_tuple_of_one && !is_none) return read_item(m, p, index, 0, first, true);
    if (is_none) {
        const char *unused = fresh_like(p, FB_CALL_FUNCTION, target, "_unused");
        if (unused) p->rows[index].name = unused;
        return unused != NULL;
    }
    if (strcmp(kind, "as_tensors") == 0 && value->count) return read_items(m, p, index, value, false);
    bool is_tensor = strcmp(kind, "as_tensor") == 0;
    const fb_json *name = pt_member_of(value, is_tensor ? "name" : "as_name", FB_JSON_STRING);
    if (!name)
        return pt_unsupported(m, m->program_file.name, "the result of \"%s\" is of the kind %s", p->rows[index].name, kind);
    return name_result(m, p, index, name, is_tensor);
}

static bool read_call(pt_model *m, pt_program *p, const fb_json *node) {
    const fb_json *inputs = pt_member(node, "inputs"), *name = pt_member(node, "name");
    const fb_json *input = fb_json_first(inputs);
    for (uint32_t i = 0; i < inputs->count; i++, input = fb_json_next(input)) {
        if (!read_programs(m, p, pt_member(input, "arg"))) return false;
    }
    const char *said = name && name->count ? pt_text(m, name) : NULL, *text = pt_text(m, pt_member(node, "target"));
    const char *function = text ? function_name(m, text, said ? said : "without a name") : NULL;
    pt_row *row = function ? add_row(m, p, PT_CALL) : NULL;
    if (!row) return false;
    row->source = node;
    row->target = function;
    const char *made = said ? fresh(p, said) : fresh_like(p, FB_CALL_FUNCTION, function, "");
    p->rows[p->count - 1].name = made;
    return made && read_results(m, p, p->count - 1, node);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

static bool list_values(pt_model *m, const fb_json *values, pt_keys *out) {
    const fb_json *key = values ? fb_json_first(values) : NULL;
    for (uint32_t i = 0; values && i < values->count; i++, key = fb_json_next(key + 1)) {
        bool is_new;
        if (!pt_keys_put(out, key->text, key->count, (uint32_t)(key + 1 - m->program_file.root), &is_new)) return false;
    }
    return true;
}

static bool read_values(pt_model *m, pt_program *p) {
    static const char *const numbers[] = {"sym_int_values", "sym_float_values", "sym_bool_values"};
    bool ok = list_values(m, pt_member(p->graph, "tensor_values"), &p->values);
    for (size_t i = 0; i < 3 && ok; i++) ok = list_values(m, pt_member(p->graph, numbers[i]), &p->numbers);
    return ok;
}

static bool read_rows(pt_model *m, pt_program *p) {
    const fb_json *inputs = pt_member(p->graph, "inputs"), *nodes = pt_member(p->graph, "nodes");
    const fb_json *item = fb_json_first(inputs);
    for (uint32_t i = 0; i < inputs->count; i++, item = fb_json_next(item)) {
        if (!read_input(m, p, item, i)) return false;
    }
    item = fb_json_first(nodes);
    for (uint32_t i = 0; i < nodes->count && fb_work_goes_on(m->work, 256); i++, item = fb_json_next(item)) {
        if (!read_call(m, p, item)) return false;
    }
    return read_output(m, p);
}

pt_program *pt_read_program(pt_model *m, const fb_json *graph, pt_program *parent, const char *name) {
    if (m->depth >= PT_MOST_DEPTH || m->program_count == sizeof m->programs / sizeof *m->programs) {
        pt_unsupported(m, m->program_file.name, "there are too many nested programs");
        return NULL;
    }
    pt_program *p = calloc(1, sizeof *p);
    if (p) p->names = fb_namespace_new();
    if (!p || !p->names) {
        free(p);
        return NULL;
    }
    m->programs[m->program_count++] = p;
    p->graph = graph;
    p->parent = parent;
    p->path = parent && parent->path[0] ? pt_format(m, "%s.%s", parent->path, name) : name;
    m->depth++;
    bool ok = p->path && read_values(m, p) && read_rows(m, p);
    m->depth--;
    return ok ? p : NULL;
}

void pt_free_program(pt_program *p) {
    if (!p) return;
    pt_keys_free(&p->values);
    pt_keys_free(&p->numbers);
    pt_keys_free(&p->by_name);
    fb_namespace_free(p->names);
    free(p->rows);
    free(p);
}

/* ---- ExportedProgram.module() ------------------------------------------------------------------------------------------- */

/* State is read by get_attr where it was an input: of row and spec, both of the same place. */
static bool unlift_input(pt_model *m, pt_row *row, const fb_json *spec) {
    static const struct {
        const char *kind, *member;
    } state[] = {{"parameter", "parameter_name"}, {"buffer", "buffer_name"}, {"tensor_constant", "tensor_constant_name"}};
    const char *kind;
    const fb_json *inner = pt_union(spec, &kind);
    if (strcmp(kind, "user_input") == 0 || strcmp(kind, "constant_input") == 0) return true;
    for (size_t i = 0; i < sizeof state / sizeof *state; i++) {
        if (strcmp(kind, state[i].kind) != 0) continue;
        row->kind = PT_STATE;
        row->target = pt_text(m, pt_member(inner, state[i].member));
        row->source = spec;
        return row->target != NULL;
    }
    return pt_unsupported(m, m->program_file.name, "an input of the kind %s is not supported", kind);
}

/* The state or input that an output writes into, or NULL where it is returned. Returns the kind of the output; NULL for one
 * that is not supported.
 */
static const char *output_kind(const fb_json *spec, const fb_json **name) {
    const char *kind;
    const fb_json *inner = pt_union(spec, &kind);
    *name = NULL;
    if (strcmp(kind, "buffer_mutation") == 0) *name = pt_member(inner, "buffer_name");
    else if (strcmp(kind, "parameter_mutation") == 0) *name = pt_member(inner, "parameter_name");
    else if (strcmp(kind, "user_input_mutation") == 0) *name = pt_member(inner, "user_input_name");
    else if (strcmp(kind, "token") == 0) return NULL;
    return kind;
}

/* The row that a mutation writes into: of state by its owner, else an input by its node's name. */
static uint32_t find_mutated(pt_model *m, const pt_program *p, const char *name) {
    uint32_t found = UINT32_MAX;
    if (!fb_work_goes_on(m->work, p->count)) return found;
    for (uint32_t i = 0; i < p->count && p->rows[i].kind <= PT_STATE; i++) {
        if (p->rows[i].kind == PT_STATE && strcmp(p->rows[i].target, name) == 0) found = i;
    }
    for (uint32_t i = 0; found == UINT32_MAX && i < p->count && p->rows[i].kind <= PT_STATE; i++) {
        if (p->rows[i].kind == PT_INPUT && strcmp(p->rows[i].name, name) == 0) found = i;
    }
    return found;
}

static bool add_mutations(pt_model *m, pt_program *p, const fb_json *specs) {
    pt_row output = p->rows[--p->count];
    const fb_json *result = fb_json_first(output.source), *spec = fb_json_first(specs);
    if (specs->count != output.source->count)
        return pt_bad(m, m->program_file.name, "there are %u outputs and %u output_specs", output.source->count, specs->count);
    for (uint32_t i = 0; i < specs->count; i++, result = fb_json_next(result), spec = fb_json_next(spec)) {
        const fb_json *name;
        const char *kind = output_kind(spec, &name), *inner;
        if (!kind) return pt_unsupported(m, m->program_file.name, "an output_spec is of a kind that is not supported");
        if (!name) continue;
        const char *text = pt_text(m, name);
        if (!text) return false;
        const fb_json *value = pt_union(result, &inner);
        uint32_t from = value ? pt_row_of(p, pt_member(value, "name")) : UINT32_MAX, into = find_mutated(m, p, text);
        if (from == UINT32_MAX || into == UINT32_MAX)
            return pt_bad(m, m->program_file.name, "the mutation of \"%s\" names nothing that the program has", text);
        pt_row *row = add_row(m, p, PT_COPY);
        if (!row) return false;
        row->target = FB_TARGET_COPY_ATEN;
        row->first = into;
        row->second = from;
        row->name = fresh_like(p, FB_CALL_FUNCTION, row->target, "");
        if (!p->rows[p->count - 1].name) return false;
    }
    pt_row *last = add_row(m, p, PT_OUTPUT);
    if (last) *last = output;
    return last != NULL;
}

bool pt_unlift(pt_model *m, pt_program *p) {
    const fb_json *signature = pt_member(pt_member(m->program_file.root, "graph_module"), "signature");
    const fb_json *inputs = pt_member(signature, "input_specs"), *outputs = pt_member(signature, "output_specs");
    uint32_t count = 0;
    while (count < p->count && p->rows[count].kind == PT_INPUT) count++;
    if (inputs->count != count) return pt_bad(m, m->program_file.name, "the signature does not fit the inputs");
    fb_namespace *loaded = p->names;
    p->names = fb_namespace_new();
    if (!p->names) {
        p->names = loaded;
        return false;
    }
    bool ok = true;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        const char *copied = fresh(p, p->rows[i].name);
        p->rows[i].name = copied ? fb_arena_text(&m->arena, copied, strlen(copied)) : NULL;
        ok = p->rows[i].name;
    }
    fb_namespace_free(loaded);
    const fb_json *spec = fb_json_first(inputs);
    for (uint32_t i = 0; i < count && ok; i++, spec = fb_json_next(spec)) {
        ok = unlift_input(m, &p->rows[i], spec);
        if (!ok || p->rows[i].kind != PT_STATE) continue;
        p->rows[i].name = fresh_like(p, FB_GET_ATTR, p->rows[i].target, "");
        ok = p->rows[i].name != NULL;
    }
    return ok && add_mutations(m, p, outputs);
}
