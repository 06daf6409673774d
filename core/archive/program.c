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

static bool __attribute__((format(printf, 3, 4))) refuse(pt_model *m, const char *code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    pt_fail(m, code, m->program_file.name, format, args);
    va_end(args);
    return false;
}

static pt_row *add_row(pt_model *m, pt_program *p, pt_kind kind) {
    if (m->row_count++ > PT_MOST_ROWS) {
        refuse(m, PT_UNSUPPORTED, "the program has more than %d nodes", PT_MOST_ROWS);
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

/* The row has that result, and, if it is a tensor, its shape. */
static bool name_result(pt_model *m, pt_program *p, uint32_t index, const pt_argument *value) {
    pt_result *result = &p->results[value->result];
    bool is_tensor = value->form == PT_TENSOR;
    if (!is_tensor && p->rows[index].kind != PT_INPUT && !result->is_number)
        return refuse(m, PT_BAD, "\"%s\" is in none of the graph's tables of values", result->name);
    if (result->row != UINT32_MAX) return refuse(m, PT_BAD, "there are two results called \"%s\"", result->name);
    if (is_tensor && !result->meta) return refuse(m, PT_BAD, "tensor_values lacks \"%s\"", result->name);
    result->row = index;
    p->rows[index].name = p->rows[index].result = result->name;
    p->rows[index].meta = is_tensor ? result->meta : NULL;
    return true;
}

static bool is_reference(const pt_argument *value) {
    return value->form == PT_TENSOR || value->form == PT_SYMBOL;
}

/* ---- inputs and outputs ------------------------------------------------------------------------------------------------- */

static bool is_one_of(const char *text, const char *const *names) {
    while (*names && strcmp(*names, text) != 0) names++;
    return *names != NULL;
}

static bool read_input(pt_model *m, pt_program *p, uint32_t index) {
    static const char *const constants[] = {"as_int", "as_float", "as_bool", "as_none", "as_string", NULL};
    const pt_argument *input = &p->inputs.rows[index];
    pt_row *row = add_row(m, p, PT_INPUT);
    if (!row) return false;
    if (input->form == PT_TENSOR || strcmp(input->kind, "as_sym_int") == 0) {
        if (!is_reference(input)) return refuse(m, PT_BAD, "the input %u has no name", index);
        row->target = p->results[input->result].name;
        return fresh(p, row->target) && name_result(m, p, p->count - 1, input);
    }
    if (!is_one_of(input->kind, constants))
        return refuse(m, PT_UNSUPPORTED, "the input %u is of the kind %s, which is not supported", index, input->kind);
    if (p->parent || index >= m->input_specs.count)
        return refuse(m, PT_UNSUPPORTED, "the input %u of a nested program is a constant", index);
    const pt_spec *spec = &m->input_specs.rows[index];
    row->target = strcmp(spec->kind, "constant_input") == 0 && *spec->name ? spec->name : pt_format(m, "arg%u", index);
    row->name = row->target ? fresh(p, row->target) : NULL;
    return row->name != NULL;
}

static bool read_output(pt_model *m, pt_program *p) {
    pt_row *row = add_row(m, p, PT_OUTPUT);
    if (!row) return false;
    row->target = "output";
    row->name = fresh(p, "output");
    if (!p->is_single) return row->name != NULL;
    const pt_argument *value = p->outputs.rows;
    uint32_t of = p->outputs.count == 1 && is_reference(value) ? p->results[value->result].row : UINT32_MAX;
    if (of == UINT32_MAX) return refuse(m, PT_BAD, "a graph that returns a single tensor has another result");
    row->meta = p->rows[of].meta;
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
    refuse(m, PT_UNSUPPORTED, "the node \"%s\" calls %s, which is not supported", node, target);
    return NULL;
}

static bool read_rows(pt_model *m, pt_program *p);

/* Programs that are arguments are read by get_attr nodes before the call. */
static bool read_programs(pt_model *m, pt_program *p, const pt_argument *argument) {
    for (uint32_t i = 0; argument->form == PT_DICT && i < argument->count; i++) {
        if (!read_programs(m, p, &argument->items[i])) return false;
    }
    if (argument->form != PT_GRAPH) return true;
    pt_row *row = read_rows(m, argument->program) ? add_row(m, p, PT_PROGRAM) : NULL;
    if (!row) return false;
    row->program = argument->program;
    row->target = argument->program->name;
    row->name = fresh(p, row->target);
    row->program->row = p->count - 1;
    for (uint32_t i = 0; i + 1 < p->count; i++) {
        if (p->rows[i].kind == PT_PROGRAM && strcmp(p->rows[i].target, row->target) == 0)
            return refuse(m, PT_UNSUPPORTED, "two nested programs are called \"%s\"", row->target);
    }
    return row->name != NULL;
}

static bool read_items(pt_model *m, pt_program *p, uint32_t of, const pt_argument *outputs, uint32_t count);

/* An item of a result that is several. */
static bool read_item(pt_model *m, pt_program *p, uint32_t of, uint32_t index, const pt_argument *output) {
    bool is_none = output->form == PT_NONE, is_list = output->form == PT_LIST && strcmp(output->kind, "as_tensors") == 0;
    pt_row *row = add_row(m, p, PT_ITEM);
    if (!row) return false;
    uint32_t place = p->count - 1;
    row->first = of;
    row->second = index;
    row->target = FB_TARGET_GETITEM;
    if (is_list || is_none) {
        row->name = fresh(p, is_none ? "as_none" : "getitem");
        return row->name && (is_none || read_items(m, p, place, output->items, output->count));
    }
    bool is_size = strcmp(output->kind, "as_sym_int") == 0 || strcmp(output->kind, "as_sym_float") == 0;
    if (output->form != PT_TENSOR && !is_size)
        return refuse(m, PT_UNSUPPORTED, "a result of the kind %s is not supported", output->kind);
    if (!is_reference(output)) return refuse(m, PT_BAD, "a result has no name");
    return fresh(p, p->results[output->result].name) && name_result(m, p, place, output);
}

static bool read_items(pt_model *m, pt_program *p, uint32_t of, const pt_argument *outputs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (!read_item(m, p, of, i, &outputs[i])) return false;
    }
    return true;
}

static bool read_results(pt_model *m, pt_program *p, uint32_t index, const pt_node *node) {
    const pt_argument *first = node->outputs.rows;
    const char *target = p->rows[index].target;
    if (node->outputs.count != 1) return read_items(m, p, index, first, node->outputs.count);
    bool is_none = first->form == PT_NONE;
    if (node->is_tuple_of_one && fb_is_spelled(target, FB_HIGHER_ORDER) && !is_none) return read_item(m, p, index, 0, first);
    if (is_none) return (p->rows[index].name = fresh_like(p, FB_CALL_FUNCTION, target, "_unused")) != NULL;
    if (first->form == PT_LIST && strcmp(first->kind, "as_tensors") == 0 && first->count)
        return read_items(m, p, index, first->items, first->count);
    return is_reference(first)
               ? name_result(m, p, index, first)
               : refuse(m, PT_UNSUPPORTED, "the result of \"%s\" is of the kind %s", p->rows[index].name, first->kind);
}

static bool read_call(pt_model *m, pt_program *p, const pt_node *node) {
    for (uint32_t i = 0; i < node->inputs.count; i++) {
        if (!read_programs(m, p, &node->inputs.rows[i])) return false;
    }
    const char *function = function_name(m, node->target, node->name ? node->name : "without a name");
    pt_row *row = function ? add_row(m, p, PT_CALL) : NULL;
    if (!row) return false;
    row->node = node;
    row->target = function;
    row->name = node->name ? fresh(p, node->name) : fresh_like(p, FB_CALL_FUNCTION, function, "");
    return row->name && read_results(m, p, p->count - 1, node);
}

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

static bool read_rows(pt_model *m, pt_program *p) {
    p->names = fb_namespace_new();
    bool ok = p->names != NULL;
    for (uint32_t i = 0; i < p->inputs.count && ok; i++) ok = read_input(m, p, i);
    for (uint32_t i = 0; i < p->node_count && ok; i++) ok = fb_work_goes_on(m->work, 256) && read_call(m, p, &p->nodes[i]);
    return ok && read_output(m, p);
}

/* ---- ExportedProgram.module() ------------------------------------------------------------------------------------------- */

/* State is read by get_attr where it was an input: of row and spec, both of the same place. */
static bool unlift_input(pt_model *m, pt_row *row, const pt_spec *spec) {
    static const char *const inputs[] = {"user_input", "constant_input", NULL};
    static const char *const state[] = {"parameter", "buffer", "tensor_constant", NULL};
    if (is_one_of(spec->kind, inputs)) return true;
    if (!is_one_of(spec->kind, state)) return refuse(m, PT_UNSUPPORTED, "an input of the kind %s is not supported", spec->kind);
    row->kind = PT_STATE;
    row->target = spec->name;
    row->spec = spec;
    return true;
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

static bool add_mutations(pt_model *m, pt_program *p) {
    pt_row output = p->rows[--p->count];
    const pt_specs *specs = &m->output_specs;
    if (specs->count != p->outputs.count)
        return refuse(m, PT_BAD, "there are %u outputs and %u output_specs", p->outputs.count, specs->count);
    for (uint32_t i = 0; i < specs->count; i++) {
        const pt_spec *spec = &specs->rows[i];
        const pt_argument *value = &p->outputs.rows[i];
        if (strcmp(spec->kind, "token") == 0)
            return refuse(m, PT_UNSUPPORTED, "an output_spec is of a kind that is not supported");
        if (!spec->is_mutation) continue;
        uint32_t from = value->form == PT_TENSOR ? p->results[value->result].row : UINT32_MAX;
        uint32_t into = find_mutated(m, p, spec->name);
        if (from == UINT32_MAX || into == UINT32_MAX)
            return refuse(m, PT_BAD, "the mutation of \"%s\" names nothing that the program has", spec->name);
        pt_row *row = add_row(m, p, PT_COPY);
        if (!row) return false;
        row->target = FB_TARGET_COPY_ATEN;
        row->first = into;
        row->second = from;
        row->name = fresh_like(p, FB_CALL_FUNCTION, row->target, "");
        if (!row->name) return false;
    }
    pt_row *last = add_row(m, p, PT_OUTPUT);
    if (last) *last = output;
    return last != NULL;
}

static bool unlift(pt_model *m, pt_program *p) {
    uint32_t count = 0;
    while (count < p->count && p->rows[count].kind == PT_INPUT) count++;
    if (m->input_specs.count != count) return refuse(m, PT_BAD, "the signature does not fit the inputs");
    fb_namespace *loaded = p->names;
    p->names = fb_namespace_new();
    bool ok = p->names != NULL;
    for (uint32_t i = 0; i < p->count && ok; i++) {
        const char *copied = fresh(p, p->rows[i].name);
        p->rows[i].name = copied ? fb_arena_text(&m->arena, copied, strlen(copied)) : NULL;
        ok = p->rows[i].name;
    }
    fb_namespace_free(loaded);
    for (uint32_t i = 0; i < count && ok; i++) {
        ok = unlift_input(m, &p->rows[i], &m->input_specs.rows[i]);
        if (!ok || p->rows[i].kind != PT_STATE) continue;
        p->rows[i].name = fresh_like(p, FB_GET_ATTR, p->rows[i].target, "");
        ok = p->rows[i].name != NULL;
    }
    return ok && add_mutations(m, p);
}

bool pt_make_rows(pt_model *m) {
    return read_rows(m, m->programs[0]) && unlift(m, m->programs[0]);
}
