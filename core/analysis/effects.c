/* Effects of one call: the facts of its operator, and what its arguments make of them. */
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/view.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"

static bool is_false_or_absent(const fb_graph *graph, fb_value value) {
    fb_kind kind = value.id ? fb_value_kind(graph, value) : FB_FALSE;
    return kind == FB_FALSE || kind == FB_NONE;
}

static bool is_given(const fb_graph *graph, fb_value value) {
    return value.id && fb_value_kind(graph, value) != FB_NONE;
}

/* In training mode, or perhaps so: a flag that is computed counts as true. */
static bool may_be_training(const fb_graph *graph, fb_node node, fb_op op) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode == FB_CALL_MODULE) return fb_module_at(graph, row->module)->training;
    if (op == FB_OP_ATTENTION) {
        double p = 0;
        fb_value dropout = fb_call_argument(graph, node, "dropout_p");
        return dropout.id && !(fb_value_is_number(graph, dropout, &p) && p == 0);
    }
    fb_value training = fb_call_argument(graph, node, "training");
    if (!training.id) training = fb_call_argument(graph, node, "train");
    bool is_none = training.id && fb_value_kind(graph, training) == FB_NONE;
    if (is_none && op == FB_OP_NATIVE_DROPOUT) return true; /* only here None is not False */
    if (training.id) return !is_false_or_absent(graph, training);
    return op != FB_OP_BATCH_NORM; /* torch.nn.functional: dropout's default is True, batch_norm's False */
}

/* inplace=True, which only operators can be given that have a form in place and list the argument. */
static bool is_asked_in_place(const fb_graph *graph, fb_node node, const fb_op_facts *facts) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (!(facts->flags & FB_FACT_HAS_IN_PLACE)) return false;
    bool is_alone = fb_value_at(graph, row->args)->count < 2 && row->kwargs.id == FB_VALUE_EMPTY_MAP.id;
    if (is_alone && row->opcode != FB_CALL_MODULE) return false;
    if (!facts->modules || !strstr(facts->parameters, "inplace")) return false; /* modules have all that have the argument */
    fb_value inplace = row->opcode == FB_CALL_MODULE ? fb_module_config(graph, row->module, "inplace")
                                                     : fb_call_argument(graph, node, "inplace");
    return !is_false_or_absent(graph, inplace);
}

/* torch.nn.functional.embedding with max_norm renormalises rows of the weight, in place. */
static bool renormalises_weight(const fb_graph *graph, fb_node node, fb_op op) {
    if (!fb_op_facts_of(op)->renormalises_weight) return false;
    const fb_node_row *row = fb_node_at(graph, node);
    return is_given(graph, row->opcode == FB_CALL_MODULE ? fb_module_config(graph, row->module, "max_norm")
                                                         : fb_call_argument(graph, node, "max_norm"));
}

/* Attributes of a tensor that are not tensors. */
static bool is_plain_attribute(const char *name) {
    static const char *const names[] = {"shape",    "dtype",   "device",    "layout",    "ndim",
                                        "itemsize", "nbytes",  "is_cuda",   "is_cpu",    "requires_grad",
                                        "is_leaf",  "is_meta", "is_sparse", "is_mkldnn", "is_quantized",
                                        "is_mps",   "is_xpu",  "names",     "name"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

static bool reads_plain_attribute(const fb_graph *graph, fb_node node) {
    fb_value name = fb_node_arg(graph, node, 1);
    return name.id && fb_value_kind(graph, name) == FB_STRING && is_plain_attribute(fb_value_text(graph, name));
}

/* By one node and its row: it has a recorded shape or dtype, or its operator gives one tensor for any arguments. */
static bool is_certainly_tensor(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->shape.id || row->dtype) return true;
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(graph, node));
    if (facts->flags & (FB_FACT_MAYBE_NUMBER | FB_FACT_NUMBER_WITHOUT_ARGUMENT | FB_FACT_MAYBE_CONTAINER | FB_FACT_TUPLE))
        return false;
    bool may_give_indices = facts->shape == FB_SHAPE_REDUCE_ALL || facts->shape == FB_SHAPE_MAX_POOL;
    return facts->shape != FB_SHAPE_UNKNOWN && !may_give_indices;
}

/* May this operand of a Python operator be a container? Only a product takes a container and an int. */
static bool may_be_container(const fb_graph *graph, fb_value operand, bool is_product) {
    switch (operand.id ? fb_value_kind(graph, operand) : FB_NONE) {
    case FB_NODE: return !is_certainly_tensor(graph, fb_value_node(graph, operand));
    case FB_TRUE:
    case FB_FALSE:
    case FB_INT:
    case FB_BIG_INT: return is_product;
    case FB_LIST:
    case FB_TUPLE:
    case FB_SIZE:
    case FB_NAMED_TUPLE:
    case FB_DICT: return true;
    default: return false;
    }
}

/* [a] + [b], and l[0] = a: what is in one container is then in another. Only Python's own operators do that, and only with
 * containers: beside a tensor or a float they compute. */
static bool may_join_containers(const fb_graph *graph, fb_node node, fb_op op) {
    const fb_node_row *row = fb_node_at(graph, node);
    const fb_op_facts *facts = fb_op_facts_of(op);
    const char *prefix = row->opcode == FB_CALL_METHOD ? "__" : FB_PYTHON_OPERATOR;
    if (!(facts->flags & FB_FACT_MAYBE_CONTAINER) || row->opcode == FB_CALL_MODULE || row->shape.id || row->dtype) return false;
    if (!fb_is_spelled(fb_node_target(graph, node), prefix)) return false;
    bool is_product = fb_op_facts_of(FB_OP_MUL) == facts, is_store = facts->flags & FB_FACT_MUTATES;
    if (!may_be_container(graph, fb_node_arg(graph, node, 0), is_product)) return false;
    return is_store || may_be_container(graph, fb_node_arg(graph, node, 1), is_product);
}

static const fb_effects everything = {true, true, true, true, true, true, true, false};

/* A subclass of Linear may do anything with what it owns; that it writes into its input is not assumed. */
static const fb_effects linear_subclass = {
    .is_random = true, .may_alias_input = true, .mutates_module = true, .has_effect = true};

/* torch.ops.higher_order.flat_apply of the one function that transformers' masks apply: x[indices], which copies. What it
 * applies is an attribute that is carried as text. */
static bool applies_index(const fb_graph *graph, fb_node node) {
    fb_value given = fb_node_arg(graph, node, 0), name = fb_node_arg(graph, node, 2);
    fb_node read = given.id ? fb_value_node(graph, given) : (fb_node){0};
    bool has_keywords = fb_value_at(graph, fb_node_at(graph, node)->kwargs)->count;
    if (has_keywords || !read.id || !name.id || fb_value_kind(graph, name) != FB_STRING) return false;
    const fb_node_row *row = fb_node_at(graph, read);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return false;
    fb_value attributes = fb_module_at(graph, row->module)->attributes;
    fb_value function = attributes.id ? fb_map_value(graph, attributes, fb_text(graph, row->attribute)) : (fb_value){0};
    if (!function.id || fb_value_kind(graph, function) != FB_OPAQUE) return false;
    return strstr(fb_value_text(graph, function), "<function _call_custom_autograd_function_in_pre_dispatch>") &&
           strcmp(fb_value_text(graph, name), FB_APPLIED_INDEX) == 0;
}

enum { MAX_NESTED = 256 }; /* nodes of nested programs that are looked at for one call */

/* Adds what the nodes of a nested program do. False when that is anything, or they are too many. */
static bool add_program(const fb_graph *graph, fb_program program, int *seen, fb_effects *effects) {
    for (fb_node n = fb_first_node(graph, program); n.id; n = fb_next_node(graph, n)) {
        if (++*seen > MAX_NESTED || fb_op_facts_of(fb_node_op(graph, n))->flags & FB_FACT_RUNS_PROGRAMS) return false;
        fb_effects inner = fb_op_effects(graph, n);
        if (inner.is_unknown || inner.mutates_input || inner.mutates_module) return false;
        effects->is_random |= inner.is_random;
        effects->has_effect |= inner.has_effect;
    }
    return true;
}

/* The effects of a call with nested programs: it does what these do, and its result may be one of its inputs. */
static fb_effects effects_of_programs(const fb_graph *graph, fb_node node) {
    fb_effects effects = {.may_alias_input = true, .may_alias_all = true};
    bool has_program = false;
    int seen = 0;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        fb_node input = fb_edge_input(graph, edge);
        const fb_node_row *row = fb_node_at(graph, input);
        if (fb_op_is(graph, input, FB_OP_GETATTR)) return everything; /* of a program */
        if (row->opcode != FB_GET_ATTR || !row->module.id || row->attribute.id) continue;
        fb_program program = fb_module_at(graph, row->module)->program;
        if (!program.id || !add_program(graph, program, &seen, &effects)) return everything;
        has_program = true;
    }
    return has_program ? effects : everything;
}

/* Is the call of an operator without these facts, which no argument asks to write? */
static bool is_without(const fb_node_row *row, fb_op op, const fb_op_facts *facts, unsigned flags) {
    bool may_be_in_place = op & FB_OP_IN_PLACE || (facts->flags & FB_FACT_HAS_IN_PLACE && facts->modules);
    return op != FB_OP_UNKNOWN && op != FB_OP_FLAT_APPLY && row->kwargs.id == FB_VALUE_EMPTY_MAP.id &&
           !(facts->flags & (flags | FB_FACT_RUNS_PROGRAMS)) && !may_be_in_place && !facts->renormalises_weight;
}

enum {
    WRITES = FB_FACT_MUTATES | FB_FACT_MUTATES_IN_TRAINING | FB_FACT_EFFECT,
    ALIASES_OR_DRAWS = FB_FACT_ALIASES | FB_FACT_ALIASES_ALL | FB_FACT_RANDOM | FB_FACT_RANDOM_IN_TRAINING | FB_FACT_UNSET
};

bool fb_surely_writes_nothing(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_op op = fb_node_op(graph, node);
    return !fb_graph_is_onnx(graph) && is_without(row, op, fb_op_facts_of(op), WRITES);
}

/* Most calls compute, and do nothing else, as their operator says alone. */
static bool only_computes(const fb_node_row *row, fb_op op, const fb_op_facts *facts) {
    bool may_join = facts->flags & FB_FACT_MAYBE_CONTAINER && !row->shape.id && !row->dtype;
    return !may_join && is_without(row, op, facts, WRITES | ALIASES_OR_DRAWS);
}

fb_effects fb_op_effects(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    fb_effects effects = {0};
    if (fb_graph_is_onnx(graph)) return fb_onnx_effects(graph, node);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return effects;
    fb_op op = fb_node_op(graph, node);
    const fb_op_facts *facts = fb_op_facts_of(op);
    if (only_computes(row, op, facts)) return effects;
    if (op == FB_OP_UNKNOWN && row->opcode == FB_CALL_MODULE && fb_module_is_linear_subclass(graph, row->module))
        return linear_subclass;
    bool has_keywords = row->kwargs.id != FB_VALUE_EMPTY_MAP.id;
    unsigned flags = facts->flags;
    if (flags & FB_FACT_RUNS_PROGRAMS) return effects_of_programs(graph, node);
    if (op == FB_OP_FLAT_APPLY && !applies_index(graph, node)) return everything;
    if (op == FB_OP_UNKNOWN && fb_is_spelled(fb_node_target(graph, node), FB_ONNX_DEFAULT)) return fb_onnx_effects(graph, node);
    if (op == FB_OP_UNKNOWN || (has_keywords && is_given(graph, fb_node_kwarg(graph, node, "out")))) return everything;

    bool is_module = row->opcode == FB_CALL_MODULE;
    bool in_place = (op & FB_OP_IN_PLACE) || is_asked_in_place(graph, node, facts);
    effects.mutates_input = in_place || (flags & FB_FACT_MUTATES);
    effects.may_alias_all = (flags & FB_FACT_ALIASES_ALL) || may_join_containers(graph, node, op);
    effects.may_alias_input = in_place || (flags & FB_FACT_ALIASES) || effects.may_alias_all;
    effects.is_random = flags & (FB_FACT_RANDOM | FB_FACT_UNSET);
    effects.has_effect = flags & FB_FACT_EFFECT;
    if (op == FB_OP_GETATTR && reads_plain_attribute(graph, node)) effects.may_alias_input = false;
    if (flags & (FB_FACT_RANDOM_IN_TRAINING | FB_FACT_MUTATES_IN_TRAINING) && may_be_training(graph, node, op)) {
        effects.is_random |= (flags & FB_FACT_RANDOM_IN_TRAINING) != 0;
        bool updates = flags & FB_FACT_MUTATES_IN_TRAINING;
        /* A function writes into its arguments running_mean and running_var, which are not its first. */
        if (updates && !is_module && is_given(graph, fb_call_argument(graph, node, "running_mean"))) return everything;
        effects.mutates_module |= updates && is_module;
    }
    if (renormalises_weight(graph, node, op)) {
        if (!is_module) return everything;
        effects.mutates_module = true;
    }
    return effects;
}

bool fb_op_is_pure(const fb_graph *graph, fb_node node) {
    fb_effects effects = fb_op_effects(graph, node);
    return !effects.mutates_input && !effects.is_random && !effects.mutates_module && !effects.has_effect;
}

fb_result_kind fb_result_kind_of(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_CALL_FUNCTION && row->opcode != FB_CALL_METHOD) return FB_NOT_A_NUMBER;
    fb_op op = row->op;
    unsigned flags = fb_op_facts_of(op)->flags;
    if (flags & FB_FACT_NUMBER) return FB_A_NUMBER;
    if (row->shape.id || row->dtype) return FB_NOT_A_NUMBER;
    if (flags & FB_FACT_NUMBER_WITHOUT_ARGUMENT) {
        bool is_alone = fb_value_at(graph, row->args)->count == 1 && fb_value_at(graph, row->kwargs)->count == 0;
        return is_alone ? FB_A_NUMBER : FB_NOT_A_NUMBER;
    }
    if (op == FB_OP_GETATTR) return reads_plain_attribute(graph, node) ? FB_A_NUMBER : FB_A_NUMBER_IF_INPUTS_ARE;
    return flags & FB_FACT_MAYBE_NUMBER ? FB_A_NUMBER_IF_INPUTS_ARE : FB_NOT_A_NUMBER;
}

bool fb_is_python_number(const fb_graph *graph, fb_node node) {
    enum { limit = 256 }; /* arithmetic on sizes is short; beyond this it is not certain */
    fb_node queue[limit] = {node};
    size_t count = 1;
    for (size_t done = 0; done < count; done++) {
        fb_result_kind hood = fb_result_kind_of(graph, queue[done]);
        if (hood == FB_NOT_A_NUMBER) return false;
        if (hood == FB_A_NUMBER) continue;
        for (uint32_t edge = fb_input_first(graph, queue[done]); edge; edge = fb_input_next(graph, edge)) {
            if (count == limit) return false;
            queue[count++] = fb_edge_input(graph, edge);
        }
    }
    return true;
}

bool fb_is_surely_tensor(const fb_graph *graph, fb_node node) {
    enum { limit = 64 };
    fb_node queue[limit] = {node};
    size_t count = 1;
    for (size_t done = 0; done < count; done++) {
        const fb_node_row *row = fb_node_at(graph, queue[done]);
        fb_result_kind hood = fb_result_kind_of(graph, queue[done]);
        if (row->dtype || fb_shape_rank(graph, row->shape) >= 0 || row->opcode == FB_GET_ATTR) return true;
        if (row->op == FB_OP_UNKNOWN || hood == FB_A_NUMBER) continue;
        if (hood == FB_NOT_A_NUMBER) return true;
        for (uint32_t edge = fb_input_first(graph, queue[done]); edge && count < limit; edge = fb_input_next(graph, edge))
            queue[count++] = fb_edge_input(graph, edge);
    }
    return false;
}
