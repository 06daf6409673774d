/* The interpreter: nodes in order, each value dropped after its last use. */
#include "core/evaluator/evaluator.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/evaluator/internal.h"

/* ---- values ---------------------------------------------------------------------------------------------------------- */

/* ---- weights --------------------------------------------------------------------------------------------------------- */

/* Is it the main program, or another that is computed by itself; and not one that a call runs? */
static bool is_by_itself(const fb_evaluator *evaluator, fb_program program) {
    return !evaluator->depth && program.id == evaluator->program.id;
}

static bool is_wanted(const fb_evaluator *evaluator, fb_program program, fb_node node) {
    const fb_eval_hooks *hooks = evaluator->hooks;
    return !is_by_itself(evaluator, program) || !hooks || !hooks->wanted || hooks->wanted(hooks->context, node);
}

static bool is_argument(const fb_graph *graph, fb_node call, const char *parameter, fb_node node) {
    fb_value argument = fb_call_argument(graph, call, parameter);
    return argument.id && fb_value_kind(graph, argument) == FB_NODE && fb_value_node(graph, argument).id == node.id;
}

/* May this node's value be read in parts? Only kernels that do so may ask for it, each for its weight. */
static bool may_be_parts(const fb_evaluator *evaluator, fb_node node, fb_tensor tensor) {
    const fb_graph *graph = evaluator->graph;
    const fb_eval_hooks *hooks = evaluator->hooks;
    bool is_looked_at = hooks && hooks->computed && (!hooks->looks || hooks->looks(hooks->context, node));
    if (fb_node_at(graph, node)->program.id != FB_MAIN_PROGRAM.id) return false;
    if (is_looked_at || !fb_weight_has_parts(evaluator, tensor, evaluator->uses[node.id])) return false;
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        fb_node user = fb_edge_user(graph, e);
        if (!is_wanted(evaluator, evaluator->program, user)) continue;
        const fb_kernel_row *kernel = fb_kernel_of(evaluator, fb_node_op(graph, user));
        if (!kernel || !kernel->takes_parts || !is_argument(graph, user, "weight", node)) return false;
        if (is_argument(graph, user, "input", node) || is_argument(graph, user, "bias", node)) return false;
    }
    return true;
}

static fb_status read_attribute(fb_evaluator *evaluator, fb_node node, fb_object *out) {
    const fb_graph *graph = evaluator->graph;
    const fb_node_row *row = fb_node_at(graph, node);
    const fb_module_row *module = fb_module_at(graph, row->module);
    if (!row->attribute.id) {
        *out = (fb_object){.kind = FB_OBJECT_PROGRAM, .program = module->program};
        return FB_OK;
    }
    const char *attribute = fb_text(graph, row->attribute);
    fb_tensor tensor = fb_module_tensor(graph, row->module, attribute);
    if (tensor.id) {
        if (may_be_parts(evaluator, node, tensor)) return fb_weight_open(evaluator, tensor, out);
        fb_status status = fb_evaluate_tensor(evaluator, tensor, &out->array);
        if (!status) out->kind = FB_OBJECT_ARRAY;
        return status;
    }
    fb_value plain = module->attributes.id ? fb_map_value(graph, module->attributes, attribute) : (fb_value){0};
    return plain.id ? fb_evaluate_value(evaluator, plain, out) : FB_OK; /* a parameter that is None */
}

/* ---- uses ------------------------------------------------------------------------------------------------------------ */

/* Calls `visit` for each tensor that a node reads by itself. */
static void visit_tensors(const fb_evaluator *evaluator, fb_node node, void (*visit)(void *, fb_tensor), void *context) {
    const fb_graph *graph = evaluator->graph;
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode == FB_GET_ATTR && row->attribute.id) {
        fb_tensor tensor = fb_module_tensor(graph, row->module, fb_text(graph, row->attribute));
        if (tensor.id) visit(context, tensor);
    } else if (row->opcode == FB_CALL_MODULE) {
        const fb_module_row *module = fb_module_at(graph, row->module);
        fb_value_visit_tensors(graph, module->parameters, visit, context);
        fb_value_visit_tensors(graph, module->buffers, visit, context);
        if (!fb_node_op(graph, node)) fb_visit_parametrized(graph, node, visit, context);
    }
}

static void count_tensor(void *context, fb_tensor tensor) {
    ((fb_evaluator *)context)->tensor_uses[tensor.id]++;
}

static void release_tensor(void *context, fb_tensor tensor) {
    fb_evaluator *evaluator = context;
    if (--evaluator->tensor_uses[tensor.id]) return;
    fb_array_drop(evaluator->tensors[tensor.id]);
    evaluator->tensors[tensor.id] = NULL;
}

static bool writes(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    return effects.mutates_input || effects.mutates_module;
}

static void count_uses(fb_evaluator *evaluator, fb_program program) {
    const fb_graph *graph = evaluator->graph;
    for (fb_node node = fb_first_node(graph, program); node.id; node = fb_next_node(graph, node)) {
        if (!is_wanted(evaluator, program, node)) continue;
        for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e))
            evaluator->uses[fb_edge_input(graph, e).id]++;
    }
}

static void release_inputs(fb_evaluator *evaluator, fb_node node) {
    const fb_graph *graph = evaluator->graph;
    for (uint32_t e = fb_input_first(graph, node); e; e = fb_input_next(graph, e)) {
        fb_node input = fb_edge_input(graph, e);
        if (--evaluator->uses[input.id] == 0) fb_object_drop(&evaluator->values[input.id]);
    }
    if (!evaluator->uses[node.id]) fb_object_drop(&evaluator->values[node.id]);
}

/* ---- programs -------------------------------------------------------------------------------------------------------- */

/* A node costs more than an element. */
#define STEPS_OF_A_NODE 1000

static fb_status may_go_on(fb_evaluator *evaluator) {
    fb_work_goes_on(&evaluator->memory->work, STEPS_OF_A_NODE);
    return fb_work_status(&evaluator->memory->work, evaluator->error);
}

static fb_status evaluate_node(fb_evaluator *evaluator, fb_node node, fb_object *out) {
    const fb_graph *graph = evaluator->graph;
    switch (fb_node_at(graph, node)->opcode) {
    case FB_PLACEHOLDER: return FB_OK; /* asked for by who reads it */
    case FB_GET_ATTR: return read_attribute(evaluator, node, out);
    case FB_OUTPUT: return fb_evaluate_value(evaluator, fb_node_arg(graph, node, 0), out);
    default: return fb_evaluate_call(evaluator, node, out);
    }
}

static bool reads_failed(const fb_evaluator *evaluator, fb_node node) {
    for (uint32_t e = fb_input_first(evaluator->graph, node); e; e = fb_input_next(evaluator->graph, e))
        if (evaluator->is_failed[fb_edge_input(evaluator->graph, e).id]) return true;
    return false;
}

/* The failure of one node need not end the whole. */
static fb_status forgive(fb_evaluator *evaluator, const fb_eval_hooks *hooks, fb_node node, fb_status status, fb_error *found) {
    fb_error_set_node(found, fb_node_name(evaluator->graph, node));
    if (status != FB_INVALID || !hooks || !hooks->failed || !hooks->failed(hooks->context, node, found)) return status;
    evaluator->is_failed[node.id] = true;
    return FB_OK;
}

/* A view may have far more elements than its storage (expand): who reads it takes as long as if it had them all. */
static fb_status check_size(const fb_evaluator *evaluator, const fb_object *value) {
    if (value->kind != FB_OBJECT_ARRAY) return FB_OK;
    int64_t count = fb_array_count(value->array);
    size_t most = evaluator->memory->limit / fb_held_size(value->array->held);
    if (count >= 0 && (size_t)count <= most) return FB_OK;
    return fb_fail(evaluator->error, FB_TOO_LARGE, "evaluation-too-large", NULL,
                   "a tensor has more elements than %zu bytes hold", evaluator->memory->limit);
}

static fb_status compute(fb_evaluator *evaluator, fb_program program, fb_node node) {
    fb_object *value = &evaluator->values[node.id];
    if (fb_node_at(evaluator->graph, node)->opcode == FB_PLACEHOLDER)
        return is_by_itself(evaluator, program) && (evaluator->uses[node.id] || program.id != FB_MAIN_PROGRAM.id)
                   ? fb_give_value(evaluator, node)
                   : FB_OK;
    *value = (fb_object){.kind = FB_OBJECT_NONE};
    fb_status status = evaluate_node(evaluator, node, value);
    if (!status) status = fb_object_check(value, evaluator->error);
    if (!status) status = check_size(evaluator, value);
    evaluator->is_known[node.id] = !status;
    return status;
}

static fb_status step(fb_evaluator *evaluator, fb_program program, fb_node node) {
    bool is_main = is_by_itself(evaluator, program);
    const fb_eval_hooks *hooks = is_main ? evaluator->hooks : NULL;
    if (hooks && hooks->current) *hooks->current = node;
    fb_status status = may_go_on(evaluator);
    if (status) return status;
    if (is_main && reads_failed(evaluator, node)) {
        evaluator->is_failed[node.id] = true;
        return FB_OK;
    }
    fb_error found = {0}, *error = evaluator->error;
    evaluator->error = &found; /* until it is known whether it counts */
    status = compute(evaluator, program, node);
    if (!status && hooks && hooks->computed)
        status = hooks->computed(hooks->context, node, &evaluator->values[node.id], &found);
    evaluator->error = error;
    if (status) status = forgive(evaluator, hooks, node, status, &found);
    if (status && error) *error = found;
    return status;
}

/* Exporters write all get_attr nodes first. A weight is loaded when it is read for the first time, so that it is not held
 * before that; but not one that is written, since then it depends on when it is read. */
static bool waits_for_reader(const fb_evaluator *evaluator, fb_program program, fb_node node) {
    const fb_node_row *row = fb_node_at(evaluator->graph, node);
    return row->opcode == FB_GET_ATTR && row->attribute.id && is_by_itself(evaluator, program) &&
           !(evaluator->alias && fb_is_mutated(evaluator->alias, node)) && evaluator->uses[node.id] &&
           is_wanted(evaluator, program, node);
}

/* Releases values and tensors that nothing reads after this node. */
static void release(fb_evaluator *evaluator, fb_program program, fb_node node) {
    release_inputs(evaluator, node);
    if (program.id == FB_MAIN_PROGRAM.id) visit_tensors(evaluator, node, release_tensor, evaluator);
}

static fb_status load_weights(fb_evaluator *evaluator, fb_program program, fb_node reader) {
    fb_status status = FB_OK;
    for (uint32_t e = fb_input_first(evaluator->graph, reader); e && !status; e = fb_input_next(evaluator->graph, e)) {
        fb_node input = fb_edge_input(evaluator->graph, e);
        bool is_tried = evaluator->is_known[input.id] || evaluator->is_failed[input.id];
        if (is_tried || !waits_for_reader(evaluator, program, input)) continue;
        status = step(evaluator, program, input);
        if (!status) release(evaluator, program, input);
    }
    return status;
}

/* The output node's value moves to `output`. */
static fb_status run(fb_evaluator *evaluator, fb_program program, fb_object *output) {
    const fb_graph *graph = evaluator->graph;
    fb_status status = FB_OK;
    count_uses(evaluator, program);
    for (fb_node node = fb_first_node(graph, program); node.id && !status; node = fb_next_node(graph, node)) {
        if (!is_wanted(evaluator, program, node) || waits_for_reader(evaluator, program, node)) continue;
        status = load_weights(evaluator, program, node);
        if (!status) status = step(evaluator, program, node);
        if (status) break;
        if (fb_node_at(graph, node)->opcode == FB_OUTPUT) {
            *output = evaluator->values[node.id];
            evaluator->values[node.id] = (fb_object){.kind = FB_OBJECT_NONE};
        }
        release(evaluator, program, node);
    }
    return status;
}

static fb_status fail_inputs(const fb_evaluator *evaluator, const char *how) {
    return fb_fail(evaluator->error, FB_INVALID, "evaluation-failed", NULL, "a nested program %s", how);
}

fb_status fb_evaluate_program(fb_evaluator *evaluator, fb_program program, const fb_object *inputs, size_t count,
                              fb_object *output) {
    const fb_graph *graph = evaluator->graph;
    size_t given = 0;
    for (fb_node node = fb_first_node(graph, program); node.id; node = fb_next_node(graph, node)) {
        if (fb_node_at(graph, node)->opcode != FB_PLACEHOLDER) continue;
        if (given == count) return fail_inputs(evaluator, "takes more inputs than it is given");
        if (*fb_node_target(graph, node) == '*') return fail_inputs(evaluator, "takes its inputs in a tuple or dict");
        fb_object_drop(&evaluator->values[node.id]);
        evaluator->values[node.id] = inputs[given++];
        fb_object_keep(&evaluator->values[node.id]);
        evaluator->is_known[node.id] = true;
    }
    if (given < count) return fail_inputs(evaluator, "takes fewer inputs than it is given");
    if (evaluator->depth == FB_PROGRAM_DEPTH)
        return fb_fail(evaluator->error, FB_INVALID, "unsupported-operator", NULL, "more than %d programs call each other",
                       FB_PROGRAM_DEPTH);
    evaluator->depth++;
    fb_status status = run(evaluator, program, output);
    evaluator->depth--;
    return status;
}

/* Programs by themselves, none of which a call has left anything of. */
static fb_status run_programs(fb_evaluator *evaluator, const fb_eval_hooks *hooks) {
    fb_status status = FB_OK;
    for (size_t i = 0; !status && i < hooks->program_count; i++) {
        fb_object ignored = {.kind = FB_OBJECT_NONE};
        evaluator->program = hooks->programs[i];
        for (fb_node n = fb_first_node(evaluator->graph, evaluator->program); n.id; n = fb_next_node(evaluator->graph, n)) {
            fb_object_drop(&evaluator->values[n.id]);
            evaluator->is_known[n.id] = evaluator->is_failed[n.id] = false;
            evaluator->uses[n.id] = 0;
        }
        status = run(evaluator, evaluator->program, &ignored);
        fb_object_drop(&ignored);
    }
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static void end(fb_evaluator *evaluator) {
    uint32_t nodes = fb_node_limit(evaluator->graph), tensors = fb_tensor_limit(evaluator->graph);
    for (uint32_t i = 0; i < nodes && evaluator->values; i++) fb_object_drop(&evaluator->values[i]);
    for (uint32_t i = 0; i < tensors && evaluator->tensors; i++) fb_array_drop(evaluator->tensors[i]);
    free(evaluator->values);
    free(evaluator->is_known);
    free(evaluator->is_failed);
    free(evaluator->uses);
    free(evaluator->tensors);
    free(evaluator->tensor_uses);
    fb_alias_free(evaluator->alias);
    fb_usage_free(evaluator->usage);
}

static fb_status begin(fb_evaluator *evaluator) {
    const fb_graph *graph = evaluator->graph;
    uint32_t nodes = fb_node_limit(graph), tensors = fb_tensor_limit(graph);
    fb_find_kernels(evaluator->kernels);
    evaluator->values = calloc(nodes, sizeof *evaluator->values);
    evaluator->is_known = calloc(nodes, 1);
    evaluator->is_failed = calloc(nodes, 1);
    evaluator->uses = calloc(nodes, sizeof *evaluator->uses);
    evaluator->tensors = calloc(tensors, sizeof(fb_array *));
    evaluator->tensor_uses = calloc(tensors, sizeof *evaluator->tensor_uses);
    if (!evaluator->values || !evaluator->is_known || !evaluator->is_failed || !evaluator->uses || !evaluator->tensors ||
        !evaluator->tensor_uses)
        return fb_fail_memory(evaluator->error);
    bool has_writes = false;
    /* Counts the readers of tensors in all programs; nested programs release none, so what they read is kept to the end. */
    for (uint32_t program = FB_MAIN_PROGRAM.id; program < fb_program_limit(graph); program++)
        for (fb_node node = fb_first_node(graph, (fb_program){program}); node.id; node = fb_next_node(graph, node)) {
            if (!is_wanted(evaluator, (fb_program){program}, node)) continue;
            visit_tensors(evaluator, node, count_tensor, evaluator);
            has_writes |= writes(graph, node);
        }
    if (!has_writes) return FB_OK;
    evaluator->usage = fb_usage_new(graph);
    if (evaluator->usage) evaluator->alias = fb_alias_new(graph, evaluator->usage, &evaluator->memory->work);
    return evaluator->alias ? FB_OK : fb_work_failed(&evaluator->memory->work, evaluator->error);
}

fb_status fb_evaluate_graph(const fb_graph *graph, const fb_eval_options *options, const fb_eval_hooks *hooks,
                            fb_array_memory *memory, fb_object *output, fb_error *error) {
    *memory = (fb_array_memory){.used = options->memory_held,
                                .peak = options->memory_held,
                                .limit = options->memory_limit ? options->memory_limit : FB_EVAL_MEMORY,
                                .precision = options->precision,
                                .has_wide_unsigned = fb_graph_is_onnx(graph),
                                .work = {.watch = options->watch}};
    *output = (fb_object){.kind = FB_OBJECT_NONE};
    fb_evaluator evaluator = {
        .graph = graph, .options = options, .hooks = hooks, .memory = memory, .error = error, .program = FB_MAIN_PROGRAM};
    fb_weights_begin(&evaluator);
    fb_status status = begin(&evaluator);
    /* At once: a graph may be too small for its nodes to ask, and many such graphs follow each other. */
    if (!status && !fb_work_ask(&memory->work)) status = fb_work_status(&memory->work, error);
    if (!status)
        status = hooks && hooks->program_count ? run_programs(&evaluator, hooks) : run(&evaluator, FB_MAIN_PROGRAM, output);
    end(&evaluator);
    if (status) fb_object_drop(output);
    return status;
}
