/* ConvertPrecision: computes in float16 or bfloat16 what was computed in float32.
 *
 *     x ── linear ── softmax ── y          x ── to(float16) ── linear ── softmax ── to(float32) ── y
 *              W                                                  W' = W rounded
 *
 * Rounds each float32 parameter and buffer that takes part once, in a recipe. Inputs of the graph stay float32 and are cast
 * where they are read. Results are cast back unless `cast_outputs` is false. The literal torch.float32 becomes the other
 * dtype, so that casts, factories and finfo follow.
 *
 * These stay in float32, with casts around them:
 *   - modules (paths, with * and ?) and operators (softmax) that `keep` names
 *   - operators that foldback does not know, and what gives a dtype that is not recorded and does not follow from what is
 *   - operators that give float32 for any input, float64 or complex numbers
 *   - everything that shares memory with a value that is written in place and stays
 *   - all calls of a module of which one call stays
 *   - casts that would copy no more, where that would be seen
 *   - results that are inputs, weights or views of them; they keep sharing memory
 *   - weights with numbers beyond the range of the dtype, where these are known, and what reads them ("tensor-overflows")
 *
 * Dtypes other than float32 stay as they are. Results that shared memory with one another are each cast to separate memory.
 *
 * Refused: literals beyond the range of the dtype ("literal-overflows"; a mask's -3.4e38 becomes the dtype's lowest number),
 * and a graph whose inputs have no dtype. Exactness: changes. Not reversible: only the source has what was rounded away. Roll
 * back to get it.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/view.h"
#include "core/graph/namespace.h"
#include "core/operators/spelling.h"
#include "core/passes/keep.h"
#include "core/passes/pass.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

/* ---- what stays in float32: single nodes ------------------------------------------------------------------------------- */

/* A cast or a factory: which dtype it gives does not depend on what it reads, or only on the first of it. */
static bool says_its_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    return rule == FB_DTYPE_RULE_CAST || rule == FB_DTYPE_RULE_LIKE || rule == FB_DTYPE_RULE_ARGUMENT ||
           rule == FB_DTYPE_RULE_FULL || rule >= FB_DTYPE_RULE_BOOL;
}

/* The dtype of a node's value: as recorded; if not, a get_attr node has its tensor's, and a cast or a factory the one that it
 * names. Unknown for other values. */
static fb_dtype value_dtype(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_shape_result found;
    if (row->dtype) return (fb_dtype)row->dtype;
    if (says_its_dtype(g, n)) return fb_infer(g, n, &found) ? found.dtype : FB_DTYPE_UNKNOWN;
    if (row->opcode != FB_GET_ATTR || !row->attribute.id) return FB_DTYPE_UNKNOWN;
    fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    return tensor.id ? (fb_dtype)fb_tensor_at(g, tensor)->dtype : FB_DTYPE_UNKNOWN;
}

/* Is the argument the dtype float32? Is one of the node's? */
static bool is_literal_float32(const fb_graph *g, fb_value value) {
    return fb_value_kind(g, value) == FB_DTYPE && strcmp(fb_value_text(g, value), fb_dtype_name(FB_FLOAT32)) == 0;
}

static bool names_float32(const fb_graph *g, fb_node n) {
    const fb_value maps[] = {fb_node_at(g, n)->args, fb_node_at(g, n)->kwargs};
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(g, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (is_literal_float32(g, row->items[i])) return true;
        }
    }
    return false;
}

/* A cast: takes any dtype, and what it gives does not depend on that. */
static bool takes_any_dtype(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (facts->shape != FB_SHAPE_SAME || !(facts->flags & FB_FACT_ALIASES)) return false;
    return facts->dtype == FB_DTYPE_RULE_CAST ? names_float32(g, n) || value_dtype(g, n) != FB_FLOAT32
                                              : facts->dtype >= FB_DTYPE_RULE_BOOL;
}

/* Does the call look at the numbers or at the dtype of what it reads? A question about sizes does not. */
static bool reads_dtype(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    if (op == FB_OP_GETATTR) {
        fb_value name = fb_call_argument(g, n, "name");
        bool gives_tensor = fb_result_kind_of(g, n) != FB_A_NUMBER; /* x.T, sort(x).values */
        return gives_tensor || fb_value_kind(g, name) != FB_STRING || strcmp(fb_value_text(g, name), "dtype") == 0;
    }
    bool compares = op == FB_OP_ALLCLOSE || op == FB_OP_TYPES; /* two tensors */
    return !(fb_op_facts_of(op)->flags & FB_FACT_NUMBER) || compares || names_float32(g, n);
}

/* A factory that is given no dtype, but can be: torch.zeros. And the method .float(). */
static bool takes_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_factory = rule == FB_DTYPE_RULE_ARGUMENT || rule == FB_DTYPE_RULE_FULL;
    return is_factory && value_dtype(g, n) == FB_FLOAT32 && !fb_node_kwarg(g, n, "dtype").id;
}

static bool is_float_method(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_METHOD && fb_op_facts_of(fb_node_op(g, n))->dtype == FB_DTYPE_RULE_FLOAT32;
}

typedef struct owned {
    fb_matcher *matcher;
    const fb_graph *graph;
    fb_node node;
    fb_dtype dtype;
    bool *is_seen; /* by tensor */
    bool has_dtype;
} owned;

static void note_dtype(void *context, fb_tensor tensor) {
    owned *o = context;
    o->has_dtype |= fb_tensor_at(o->graph, tensor)->dtype == o->dtype;
}

static void visit_owned(const fb_graph *g, fb_node n, void (*visit)(void *, fb_tensor), void *context) {
    const fb_node_row *row = fb_node_at(g, n);
    if (row->opcode == FB_GET_ATTR && row->attribute.id) {
        fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
        if (tensor.id) visit(context, tensor);
    } else if (row->opcode == FB_CALL_MODULE) {
        fb_value_visit_tensors(g, fb_module_at(g, row->module)->parameters, visit, context);
        fb_value_visit_tensors(g, fb_module_at(g, row->module)->buffers, visit, context);
    }
}

/* Does the node call a module that has a tensor of that dtype, or read one? */
static bool owns_dtype(const fb_graph *g, fb_node n, fb_dtype dtype) {
    owned o = {.graph = g, .dtype = dtype};
    visit_owned(g, n, note_dtype, &o);
    return o.has_dtype;
}

static bool owns_float32(const fb_graph *g, fb_node n) {
    return owns_dtype(g, n, FB_FLOAT32);
}

/* The result is float32 for any input: of integers, or of nothing at all. */
static bool gives_float32(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (value_dtype(g, n) != FB_FLOAT32 || names_float32(g, n) || owns_float32(g, n)) return false;
    if (takes_dtype(g, n) || is_float_method(g, n)) return false;
    if (facts->dtype == FB_DTYPE_RULE_FLOAT32) return true;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_dtype dtype = value_dtype(g, fb_edge_input(g, e));
        if (!dtype || dtype == FB_FLOAT32) return false;
    }
    return true;
}

/* ---- modules ------------------------------------------------------------------------------------------------------------- */

/* The nearest module around this one that is called as a whole, or none. */
static fb_module called_around(const fb_graph *g, const fb_usage *usage, fb_module module) {
    fb_symbol path = fb_module_at(g, module)->path;
    const char *text = fb_text(g, path);
    for (size_t length = fb_text_length(g, path); length > 0; length--) {
        if (text[length - 1] != '.') continue;
        fb_symbol around = fb_symbol_find(g, text, length - 1);
        fb_module found = around.id ? fb_module_find(g, fb_text(g, around)) : (fb_module){0};
        if (found.id && fb_call_count(usage, found)) return found;
    }
    return (fb_module){0};
}

/* The module whose calls decide about a module's tensors: itself, or the nearest called one around it; or none. */
static fb_module deciding_module(const fb_graph *g, const fb_usage *usage, fb_module module) {
    return fb_call_count(usage, module) ? module : called_around(g, usage, module);
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* A number in an argument: is it beyond `dtype`, so that `out` must replace it? A factor stays as it is.
 *
 * The ends of float32's range mean infinity (masks), and become the ends of the other range. Other numbers that are stored as
 * they are become the nearest one too. Numbers to compute with stay: the computation is done wide. */
static bool literal_overflows(const fb_graph *g, fb_node n, fb_value value, fb_dtype dtype, double *out) {
    fb_dtype_range range;
    double number;
    if (fb_value_kind(g, value) != FB_FLOAT || !fb_dtype_limits(dtype, &range)) return false;
    fb_value_is_number(g, value, &number);
    *out = copysign(range.largest, number);
    if (!isfinite(number) || fabs(number) <= range.largest) return false;
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_computed_with = rule == FB_DTYPE_RULE_PROMOTE || rule == FB_DTYPE_RULE_FLOAT;
    return !is_computed_with || fabs(number) >= (double)FLT_MAX;
}

/* The float32 tensor's bytes are in the document, and some number of it is beyond `largest`. */
static bool tensor_overflows(const fb_graph *g, fb_tensor tensor, double largest) {
    fb_extent extent;
    return fb_tensor_extent(g, tensor, &extent) && extent.largest > largest;
}

static void refuse_overflowing(void *context, fb_tensor tensor) {
    owned *o = context;
    fb_dtype_range range;
    if (o->is_seen[tensor.id] || fb_tensor_at(o->graph, tensor)->dtype != FB_FLOAT32 || !fb_dtype_limits(o->dtype, &range))
        return;
    o->is_seen[tensor.id] = true;
    if (!tensor_overflows(o->graph, tensor, range.largest)) return;
    fb_refuse_node(o->matcher, "tensor-overflows", o->node, "%.200s has numbers beyond the range of %s; they become infinite",
                   fb_tensor_name(o->graph, tensor), fb_dtype_name(o->dtype));
}

/* Weights whose bytes are in the document, with numbers beyond the range of the dtype. Version 1 converts them. */
static void refuse_overflowing_weights(fb_matcher *m, const bool *is_converted, fb_dtype dtype) {
    const fb_graph *g = m->graph;
    owned o = {.matcher = m, .graph = g, .dtype = dtype, .is_seen = calloc(fb_tensor_limit(g), sizeof *o.is_seen)};
    m->failed |= !o.is_seen;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && o.is_seen && !m->is_too_much; n = fb_next_node(g, n)) {
        o.node = n;
        if (is_converted[n.id]) visit_owned(g, n, refuse_overflowing, &o);
    }
    free(o.is_seen);
}

static fb_dtype dtype_to(const json_t *params) {
    return fb_dtype_find(json_string_value(json_object_get(params, "to")));
}

static bool casts_outputs(const json_t *params) {
    return !json_is_false(json_object_get(params, "cast_outputs"));
}

/* ---- why a node stays in float32 without being named by `keep` ----------------------------------------------------------- */

static bool reads_float32(const fb_graph *g, fb_node n) {
    bool reads = value_dtype(g, n) == FB_FLOAT32;
    for (uint32_t e = fb_input_first(g, n); e && !reads; e = fb_input_next(g, e)) {
        reads = value_dtype(g, fb_edge_input(g, e)) == FB_FLOAT32;
    }
    return reads;
}

static bool is_read_with_float32(const fb_graph *g, fb_node n) {
    bool is_read = false;
    for (uint32_t e = fb_user_first(g, n); e && !is_read; e = fb_user_next(g, e))
        is_read = reads_float32(g, fb_edge_user(g, e));
    return is_read;
}

/* Is one of its inputs in the other of the two narrow dtypes, with which this one does not mix? */
static bool reads_other_narrow(const fb_matcher *m, fb_node n) {
    fb_dtype to = fb_dtype_find(json_string_value(json_object_get(m->params, "to")));
    fb_dtype other = to == FB_FLOAT16 ? FB_BFLOAT16 : FB_FLOAT16;
    for (uint32_t e = fb_input_first(m->graph, n); e; e = fb_input_next(m->graph, e)) {
        if (value_dtype(m->graph, fb_edge_input(m->graph, e)) == other) return true;
    }
    return false;
}

/* x.view(torch.int32), which cuts the bytes of float32 into numbers of its own. */
static bool reinterprets(const fb_graph *g, fb_node n) {
    if (fb_op_is(g, n, FB_OP_VIEW_DTYPE)) return true;
    const fb_value maps[] = {fb_node_at(g, n)->args, fb_node_at(g, n)->kwargs};
    bool is_any = false;
    for (size_t k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(g, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            fb_node node = fb_value_kind(g, row->items[i]) == FB_NODE ? fb_value_node(g, row->items[i]) : (fb_node){0};
            bool is_asked = node.id && fb_op_is(g, node, FB_OP_GETATTR) && reads_dtype(g, node);
            is_any |= is_asked || fb_value_kind(g, row->items[i]) == FB_DTYPE;
        }
    }
    return is_any && fb_op_is(g, n, FB_OP_VIEW);
}

static bool is_called(const fb_graph *g, fb_node n, const char *spelling) {
    const char *name = fb_node_target(g, n);
    if (fb_node_at(g, n)->opcode == FB_CALL_FUNCTION) name = fb_function_name(name);
    return strncmp(name, spelling, strlen(spelling)) == 0 && strchr(".", name[strlen(spelling)]);
}

/* Is the argument one of the words? An unknown one may be. */
static bool is_any_of(const fb_graph *g, fb_value argument, const char *words) {
    double number;
    char text[32] = "";
    if (!argument.id) return false;
    fb_kind kind = fb_value_kind(g, argument);
    if (kind == FB_STRING) return fb_has_word(words, fb_value_text(g, argument), strlen(fb_value_text(g, argument)));
    if (!fb_value_is_number(g, argument, &number)) return kind != FB_NONE;
    snprintf(text, sizeof text, "%g", number);
    return fb_has_word(words, text, strlen(text));
}

/* A norm of matrices by their singular values, which one dimension has not. */
static bool lacks_kernel_for_arguments(const fb_graph *g, fb_node n, const char *to) {
    size_t count;
    const fb_precision_case *cases = fb_op_precision_cases(&count);
    fb_value dim = fb_call_argument(g, n, "dim");
    for (size_t i = 0; i < count; i++) {
        bool is_meant = fb_op_is(g, n, cases[i].op) && fb_has_word(cases[i].dtypes, to, strlen(to));
        if (!is_meant || (dim.id && fb_value_kind(g, dim) == FB_INT) || !is_called(g, n, cases[i].spelling)) continue;
        if (is_any_of(g, fb_call_argument(g, n, cases[i].parameter), cases[i].values)) return true;
    }
    return false;
}

/* Why a node that has to do with float32 cannot be converted. `reads_untyped`: it reads tensors of unknown dtype, which may be
 * float32. `gives_unknown`: it gives one whose dtype is not known. */
static fb_obstacle precision_obstacle(const fb_matcher *m, fb_node n, bool reads_untyped, bool gives_unknown,
                                      bool is_in_autocast) {
    const fb_graph *g = m->graph;
    bool meets_float32 = reads_float32(g, n) || (gives_unknown && is_read_with_float32(g, n));
    if (!reads_untyped && !meets_float32 && !owns_float32(g, n) && !fb_is_marked(m, n)) return FB_NO_OBSTACLE;
    const char *to = json_string_value(json_object_get(m->params, "to"));
    fb_dtype dtype = value_dtype(g, n);
    if (fb_is_marked(m, n)) return (fb_obstacle){"already-transformed", "it was converted before"};
    if (fb_op_effects(g, n).is_unknown || fb_runs_inside(g, n))
        return (fb_obstacle){"unknown-operator",
                             "nothing is known of this operator; it goes on in float32, with casts around it"};
    if (is_in_autocast) return (fb_obstacle){"autocast", "autocast is on here and decides about dtypes; it goes on in float32"};
    if (fb_dtype_is_complex(dtype))
        return (fb_obstacle){"complex", "complex numbers have no such precision; it goes on in float32"};
    if (fb_op_lacks_kernel(fb_node_op(g, n), to) || lacks_kernel_for_arguments(g, n, to))
        return (fb_obstacle){"no-kernel", "PyTorch cannot compute it in that dtype (on a CPU); it goes on in float32"};
    if (reinterprets(g, n))
        return (fb_obstacle){"reinterprets", "it takes the bytes of float32 for other numbers; it goes on in float32"};
    if (reads_other_narrow(m, n))
        return (fb_obstacle){"mixed-dtypes",
                             "float16 and bfloat16 do not mix, and it reads the other one; it goes on in float32"};
    fb_shape_result found;
    bool is_cast = fb_op_facts_of(fb_node_op(g, n))->dtype == FB_DTYPE_RULE_CAST;
    if (is_cast && (!dtype || (dtype == FB_FLOAT32 && fb_infer(g, n, &found) && !found.dtype)))
        return (fb_obstacle){"unknown-dtype", "it casts to a dtype that cannot be told; it goes on in float32"};
    if (gives_unknown)
        return (fb_obstacle){"unknown-dtype", "the dtype of what it gives does not follow from what is recorded; it and its "
                                              "readers go on in float32" FB_RECORD_DTYPE};
    fb_module module = fb_node_at(g, n)->opcode == FB_CALL_MODULE ? fb_node_at(g, n)->module : (fb_module){0};
    return module.id && fb_module_is_inside_call(m->usage, module)
               ? (fb_obstacle){"module-called", "a module around it is also called as a whole; both stay in float32"}
               : FB_NO_OBSTACLE;
}

typedef struct search {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_alias *alias;
    bool *stays, *is_number;           /* by node; a number is any value that is not a tensor and holds none */
    bool *is_followed;                 /* by node: what reads a value of unknown dtype knows what it takes from it */
    fb_dtype *carried;                 /* by node: the dtype of its value, or of all tensors in it; or unknown */
    fb_node *next_written, *next_read; /* by node: chains of … */
    fb_node *first_written;            /* by memory that is written: what shares or writes it */
    fb_node *first_read;               /* by deciding module: get_attr nodes of its tensors */
    bool *module_stays, *tensor_stays; /* by module, by tensor */
    fb_tensor *overflows;              /* by node: a weight that it reads and whose numbers are beyond the range, or none */
    fb_node *stack;                    /* nodes that stay, and whose consequences are still to be drawn */
    size_t depth;
    unsigned char *shares; /* by memory: is it returned, does it come from outside */
    fb_keep keep;
    uint32_t autocasts; /* entered and not yet left */
} search;

static void stay(search *s, fb_node n) {
    if (s->stays[n.id]) return;
    s->stays[n.id] = true;
    s->stack[s->depth++] = n;
}

/* ---- what hangs together ------------------------------------------------------------------------------------------------- */

/* The memory that the node shares or writes, when that is written at all; 0 = none. */
static uint32_t written_memory(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    fb_node value = n;
    if (fb_node_op(g, n) && fb_op_effects(g, n).mutates_input) value = fb_value_node(g, fb_first_argument(g, n));
    return value.id && fb_is_mutated(s->alias, value) ? fb_memory_of(s->alias, value) + 1 : 0;
}

static fb_module deciding(const search *s, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(s->graph, n)->opcode;
    if (opcode == FB_CALL_MODULE) return fb_node_at(s->graph, n)->module;
    return opcode == FB_GET_ATTR ? deciding_module(s->graph, s->matcher->usage, fb_node_at(s->graph, n)->module)
                                 : (fb_module){0};
}

static void stay_module(search *s, fb_module module) {
    if (!module.id || s->module_stays[module.id]) return;
    s->module_stays[module.id] = true;
    for (fb_node n = fb_first_call(s->matcher->usage, module); n.id; n = fb_next_call(s->matcher->usage, n)) stay(s, n);
    for (fb_node n = s->first_read[module.id]; n.id; n = s->next_read[n.id]) stay(s, n);
    stay_module(s, called_around(s->graph, s->matcher->usage, module));
}

/* A tensor, or several, of unknown dtype. */
static bool is_untyped(const search *s, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(s->graph, n)->opcode;
    return opcode != FB_PLACEHOLDER && opcode != FB_OUTPUT && !value_dtype(s->graph, n) && !s->is_number[n.id];
}

static void stay_around(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        bool is_asked = fb_op_is(g, input, FB_OP_GETATTR) && !value_dtype(g, input);
        bool asks_dtype = is_asked && reads_dtype(g, input); /* and is told what it was told */
        if (asks_dtype || is_untyped(s, input)) stay(s, input);
    }
    for (uint32_t e = is_untyped(s, n) ? fb_user_first(g, n) : 0; e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool takes_out = fb_op_is(g, user, FB_OP_GETITEM) && value_dtype(g, user);
        if (!takes_out && fb_node_at(g, user)->opcode != FB_OUTPUT) stay(s, user);
    }
}

static void follow(search *s) {
    while (s->depth) {
        fb_node n = s->stack[--s->depth];
        if (fb_node_at(s->graph, n)->program.id != FB_MAIN_PROGRAM.id) continue;
        stay_module(s, deciding(s, n));
        uint32_t memory = written_memory(s, n);
        fb_node member = memory ? s->first_written[memory] : (fb_node){0};
        if (memory) s->first_written[memory] = (fb_node){0}; /* once */
        for (; member.id; member = s->next_written[member.id]) stay(s, member);
        stay_around(s, n);
    }
}

/* ---- values whose dtype is not recorded ---------------------------------------------------------------------------------- */

static bool reads_untyped(const search *s, fb_node n) {
    bool reads = false;
    for (uint32_t e = fb_input_first(s->graph, n); e && !reads; e = fb_input_next(s->graph, e))
        reads = is_untyped(s, fb_edge_input(s->graph, e));
    return reads;
}

/* Gives parts of what it reads, views or several of these: elements as they are. */
static bool gives_elements(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (fb_op_is(g, n, FB_OP_GETITEM)) return true;
    bool is_taken = facts->flags & (FB_FACT_ALIASES | FB_FACT_ALIASES_ALL) && facts->flags & FB_FACT_EXACT;
    return is_taken && (facts->dtype == FB_DTYPE_RULE_UNKNOWN || facts->dtype == FB_DTYPE_RULE_SAME);
}

static fb_dtype carried_dtype(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    fb_dtype carried = value_dtype(g, n);
    if (carried || !gives_elements(g, n)) return carried;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (s->is_number[input.id]) continue;
        if (!s->carried[input.id] || (carried && carried != s->carried[input.id])) return FB_DTYPE_UNKNOWN;
        carried = s->carried[input.id];
    }
    return carried;
}

/* All that reads the node's value takes out of it what has a dtype, or returns it. */
static bool is_followed(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool takes_out = fb_op_is(g, user, FB_OP_GETITEM) || fb_op_is(g, user, FB_OP_GETATTR);
        bool is_known = takes_out && (value_dtype(g, user) || s->is_followed[user.id]);
        if (!is_known && !s->is_number[user.id] && fb_node_at(g, user)->opcode != FB_OUTPUT) return false;
    }
    return true;
}

/* A tensor, or several, whose dtype is not known: not what it is made from, nor what takes it apart. */
static bool is_unknown(const search *s, fb_node n) {
    return is_untyped(s, n) && !s->carried[n.id] && !s->is_followed[n.id];
}

/* ---- memory that is shared ----------------------------------------------------------------------------------------------- */

enum { RETURNED = 1, OUTSIDE = 2 };

static fb_tensor tensor_read(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    bool is_read = row->opcode == FB_GET_ATTR && row->attribute.id;
    return is_read ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
}

static bool is_from_outside(const fb_graph *g, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    return opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR;
}

static void find_shares(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        if (is_from_outside(g, n)) s->shares[fb_memory_of(s->alias, n)] |= OUTSIDE;
        bool is_output = fb_node_at(g, n)->opcode == FB_OUTPUT;
        for (uint32_t e = is_output ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e))
            s->shares[fb_memory_of(s->alias, fb_edge_input(g, e))] |= RETURNED;
    }
}

/* A result that is an input or weight, or a view of one, still shares its memory: a cast would copy it. */
static void keep_shared_results(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        bool is_tensor = row->opcode != FB_OUTPUT && !s->is_number[n.id];
        if (!is_tensor || s->shares[fb_memory_of(s->alias, n)] != (RETURNED | OUTSIDE)) continue;
        stay(s, n);
        if (tensor_read(g, n).id) s->tensor_stays[tensor_read(g, n).id] = true;
    }
}

/* A cast between float32 and the other dtype copies; from now on it would give the tensor itself that it reads. May that not
 * be, as one of the two is written later, or returned as it is? */
static bool must_copy(const search *s, fb_node n) {
    const fb_graph *g = s->graph;
    fb_dtype to = fb_dtype_find(json_string_value(json_object_get(s->matcher->params, "to")));
    fb_node input = fb_value_node(g, fb_first_argument(g, n));
    if (!input.id || !(fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_ALIASES)) return false;
    fb_dtype from = value_dtype(g, input), gives = value_dtype(g, n);
    if (!(from == FB_FLOAT32 && gives == to) && !(from == to && gives == FB_FLOAT32)) return false;
    bool is_returned = !casts_outputs(s->matcher->params) && s->shares[fb_memory_of(s->alias, n)] & RETURNED;
    return is_returned || fb_mutated_after(s->alias, n, fb_node_at(g, n)->ordinal);
}

/* ---- weights that are too large ------------------------------------------------------------------------------------------ */

typedef struct overflow_search {
    fb_matcher *matcher;
    fb_dtype dtype;
    double largest;
    unsigned char *fits; /* by tensor: 1 = yes, 2 = no, 0 = not looked at yet */
    fb_tensor found;
} overflow_search;

static void look_at_weight(void *context, fb_tensor tensor) {
    overflow_search *o = context;
    fb_extent extent;
    bool is_asked = !o->fits[tensor.id] && fb_tensor_at(o->matcher->graph, tensor)->dtype == FB_FLOAT32;
    if (!o->fits[tensor.id]) o->fits[tensor.id] = 1;
    if (is_asked && fb_known_extent(o->matcher, tensor, o->dtype, &extent) && extent.largest > o->largest)
        o->fits[tensor.id] = 2;
    if (o->fits[tensor.id] == 2) o->found = tensor;
}

/* Finds for each called module a weight that overflows, in it or in a module inside it. */
static void look_at_modules(search *s, overflow_search *o, fb_tensor *of_module) {
    const fb_graph *g = s->graph;
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        fb_module called = deciding_module(g, s->matcher->usage, m);
        o->found = (fb_tensor){0};
        if (!called.id) continue;
        fb_value_visit_tensors(g, fb_module_at(g, m)->parameters, look_at_weight, o);
        fb_value_visit_tensors(g, fb_module_at(g, m)->buffers, look_at_weight, o);
        if (o->found.id) of_module[called.id] = o->found;
    }
}

/* A call of such a module, such a weight itself, and what takes it, or a view of it, for numbers. */
static void find_overflowing(search *s) {
    const fb_graph *g = s->graph;
    fb_dtype_range range = {0};
    overflow_search o = {.matcher = s->matcher, .dtype = dtype_to(s->matcher->params)};
    fb_dtype_limits(o.dtype, &range);
    o.largest = range.largest;
    o.fits = calloc(fb_tensor_limit(g), 1);
    fb_tensor *of_module = calloc(fb_module_limit(g), sizeof *of_module);
    fb_tensor *of_memory = calloc((size_t)fb_memory_limit(s->alias) + 1, sizeof *of_memory);
    bool ok = o.fits && of_module && of_memory;
    s->matcher->failed |= !ok;
    if (ok) look_at_modules(s, &o, of_module);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && ok; n = fb_next_node(g, n)) {
        fb_tensor tensor = tensor_read(g, n);
        o.found = (fb_tensor){0};
        if (tensor.id) look_at_weight(&o, tensor);
        if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) o.found = of_module[fb_node_at(g, n)->module.id];
        if (tensor.id && o.found.id) of_memory[fb_memory_of(s->alias, n)] = o.found;
        for (uint32_t e = reads_dtype(g, n) && !takes_any_dtype(g, n) ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e)) {
            fb_tensor read = of_memory[fb_memory_of(s->alias, fb_edge_input(g, e))];
            if (read.id) o.found = read;
        }
        if (fb_node_at(g, n)->opcode != FB_OUTPUT) s->overflows[n.id] = o.found;
    }
    free(o.fits);
    free(of_module);
    free(of_memory);
}

static fb_obstacle overflow_obstacle(const search *s, fb_node n) {
    char text[400];
    int length =
        snprintf(text, sizeof text, "%.200s has numbers beyond the range of %s; it goes on in float32",
                 fb_tensor_name(s->graph, s->overflows[n.id]), json_string_value(json_object_get(s->matcher->params, "to")));
    const char *detail = fb_arena_text(s->matcher->arena, text, (size_t)length);
    if (!detail) s->matcher->failed = true;
    return detail ? (fb_obstacle){FB_TENSOR_OVERFLOWS, detail} : FB_OUT_OF_MEMORY;
}

/* ---- reasons of a node's own -------------------------------------------------------------------------------------------- */

static void look_at(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_op_is(g, n, FB_OP_ENTER_AUTOCAST)) s->autocasts++;
    if (fb_op_is(g, n, FB_OP_EXIT_AUTOCAST) && s->autocasts) s->autocasts--;
    const fb_node_row *row = fb_node_at(g, n);
    fb_tensor tensor = tensor_read(g, n);
    if (row->opcode == FB_OUTPUT && casts_outputs(s->matcher->params)) stay_around(s, n); /* what cannot be cast */
    if (row->opcode == FB_PLACEHOLDER || (tensor.id && (s->tensor_stays[tensor.id] || s->overflows[n.id].id))) stay(s, n);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return;
    fb_obstacle obstacle = precision_obstacle(s->matcher, n, reads_untyped(s, n), is_unknown(s, n), s->autocasts > 0);
    bool copies = must_copy(s, n);
    if (copies) stay(s, fb_value_node(g, fb_first_argument(g, n))); /* nothing is cast for a cast */
    if (copies && !obstacle.code)
        obstacle = (fb_obstacle){"mutated", "it would copy no more, and the copy, or what it is made of, is written later or "
                                            "returned; it goes on in float32"};
    if (!obstacle.code && s->overflows[n.id].id && !fb_keeps(&s->keep, g, n)) obstacle = overflow_obstacle(s, n);
    if (obstacle.code) fb_refuse_for(s->matcher, obstacle, &n, 1);
    if (gives_float32(g, n) || value_dtype(g, n) == FB_FLOAT64 || is_unknown(s, n)) stay(s, n);
    if (obstacle.code || fb_keeps(&s->keep, g, n)) stay(s, n);
}

/* Keeps what nested programs call and read in float32, as those programs stay. */
static void look_at_nested(search *s) {
    const fb_graph *g = s->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            fb_module module = row->module.id ? deciding_module(g, s->matcher->usage, row->module) : row->module;
            fb_tensor tensor =
                row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
            if (tensor.id) s->tensor_stays[tensor.id] = true;
            stay_module(s, module);
        }
    }
}

/* ---- weights that are read ----------------------------------------------------------------------------------------------- */

/* A weight that something in float32 reads is not rounded, unless a called module owns it or it is written in place. */
static void keep_read_weights(search *s) {
    const fb_graph *g = s->graph;
    for (int round = 0; round < 2; round++) { /* several nodes may read one tensor */
        for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            if (row->opcode != FB_GET_ATTR || !row->attribute.id || deciding(s, n).id || written_memory(s, n)) continue;
            fb_tensor tensor = tensor_read(g, n);
            for (uint32_t e = s->stays[n.id] ? 0 : fb_user_first(g, n); e; e = fb_user_next(g, e)) {
                if (tensor.id && s->stays[fb_edge_user(g, e).id]) s->tensor_stays[tensor.id] = true;
            }
            if (tensor.id && s->tensor_stays[tensor.id]) s->stays[n.id] = true;
        }
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static void prepare(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        fb_result_kind hood = fb_result_kind_of(g, n);
        bool reads_tensor = false;
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e))
            reads_tensor |= !s->is_number[fb_edge_input(g, e).id];
        s->is_number[n.id] = hood == FB_A_NUMBER || (hood == FB_A_NUMBER_IF_INPUTS_ARE && !reads_tensor);
        s->carried[n.id] = carried_dtype(s, n);
        uint32_t memory = written_memory(s, n);
        if (memory) s->next_written[n.id] = s->first_written[memory];
        if (memory) s->first_written[memory] = n;
        fb_module module = fb_node_at(g, n)->opcode == FB_GET_ATTR ? deciding(s, n) : (fb_module){0};
        if (module.id) s->next_read[n.id] = s->first_read[module.id];
        if (module.id) s->first_read[module.id] = n;
    }
    for (fb_node n = fb_last_node(g, FB_MAIN_PROGRAM); n.id; n = fb_node_at(g, n)->previous)
        s->is_followed[n.id] = is_followed(s, n);
}

static void find(search *s) {
    const fb_graph *g = s->graph;
    prepare(s);
    if (s->matcher->report->pass->version > 1) find_overflowing(s);
    look_at_nested(s);
    find_shares(s);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !s->matcher->is_too_much; n = fb_next_node(g, n)) look_at(s, n);
    if (casts_outputs(s->matcher->params)) keep_shared_results(s);
    follow(s);
    keep_read_weights(s);
    fb_refuse_unused_keeps(&s->keep, s->matcher);
}

/* By node of the main program: does it stay as it is, reading and giving float32? So do
 *   - inputs of the graph, what `keep` names, what carries the pass's mark, unknown operators, what gives float32 for any
 *     input, or float64, or complex numbers, or a dtype that is not known, or reads the other narrow dtype, or is where
 *     autocast is on;
 *   - with a call, the other calls of its module, and what reads that module's tensors;
 *   - with a value that is written in place, all that share its memory, because a cast would be a copy;
 *   - with a value of unknown dtype, its readers and its source, because it cannot be cast;
 *   - weights whose numbers are known to be too large, the calls of their modules, and what reads them;
 *   - weights that one of these reads by get_attr.
 * To be freed; NULL when memory is out. Refuses what stays without being named by `keep`. */
static bool *find_staying(fb_matcher *m, const fb_alias *alias) {
    const fb_graph *g = m->graph;
    size_t nodes = fb_node_limit(g), modules = fb_module_limit(g);
    search s = {.matcher = m, .graph = g, .alias = alias};
    s.stays = calloc(nodes, sizeof *s.stays);
    s.is_number = calloc(nodes, sizeof *s.is_number);
    s.is_followed = calloc(nodes, sizeof *s.is_followed);
    s.carried = calloc(nodes, sizeof *s.carried);
    s.next_written = calloc(nodes, sizeof *s.next_written);
    s.next_read = calloc(nodes, sizeof *s.next_read);
    s.stack = calloc(nodes, sizeof *s.stack);
    s.first_written = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *s.first_written);
    s.shares = calloc((size_t)fb_memory_limit(alias) + 1, 1);
    s.first_read = calloc(modules, sizeof *s.first_read);
    s.module_stays = calloc(modules, sizeof *s.module_stays);
    s.tensor_stays = calloc(fb_tensor_limit(g), sizeof *s.tensor_stays);
    s.overflows = calloc(nodes, sizeof *s.overflows);
    bool ok = fb_keep_begin(&s.keep, m->params) && s.stays && s.is_number && s.next_written && s.next_read && s.stack &&
              s.first_written && s.first_read && s.shares && s.module_stays && s.tensor_stays && s.is_followed && s.carried &&
              s.overflows;
    if (ok) find(&s);
    void *const helpers[] = {s.is_followed,   s.carried, s.is_number,  s.next_written, s.next_read,    s.stack,
                             s.first_written, s.shares,  s.first_read, s.module_stays, s.tensor_stays, s.overflows};
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) free(helpers[i]);
    fb_keep_end(&s.keep);
    if (!ok) free(s.stays);
    return ok ? s.stays : NULL;
}

typedef struct precision_change {
    fb_dtype dtype; /* float16 or bfloat16 */
    bool casts_outputs;
    const fb_node *nodes; /* those which are converted, in order */
    size_t count;
    const fb_node *written; /* whose values are written in place; ends with none */
} precision_change;

static bool is_float32(const fb_graph *g, fb_tensor tensor) {
    return fb_tensor_at(g, tensor)->dtype == FB_FLOAT32;
}

/* ---- edit: weights ------------------------------------------------------------------------------------------------------ */

typedef struct weights_change {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype dtype;
    fb_tensor *now; /* by tensor: its replacement */
} weights_change;

/* Rounded: evaluated in float64 and written in the new dtype, as every recipe that computes. */
static void exchange(weights_change *c, fb_module owner, const char *attribute, fb_tensor old) {
    fb_graph *g = c->graph;
    if (!is_float32(g, old)) return;
    fb_tensor *now = &c->now[old.id];
    if (now->id) {
        fb_tie_parameter(c->rewrite, owner, attribute, *now);
        return;
    }
    fb_value recipe = fb_recipe_mul(g, fb_recipe_tensor(g, old), fb_recipe_full(g, NULL, 0, fb_make_int(g, 1)));
    *now = fb_put_parameter(c->rewrite, owner, attribute, recipe, c->dtype, fb_tensor_at(g, old)->requires_grad);
}

static void exchange_all(weights_change *c, fb_module owner, fb_value map) {
    const fb_value_row *row = fb_value_at(c->graph, map);
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        const fb_value_row *value = fb_value_at(c->graph, row->items[i + 1]);
        if (value->kind == FB_TENSOR) exchange(c, owner, fb_value_text(c->graph, row->items[i]), value->tensor);
    }
}

static void convert_all(weights_change *c, const fb_node *nodes, size_t count, const fb_usage *usage, bool *is_called) {
    fb_graph *g = c->graph;
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(g, nodes[i]);
        if (row->opcode == FB_CALL_MODULE) is_called[row->module.id] = true;
    }
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        fb_module deciding = deciding_module(g, usage, m);
        if (!deciding.id || !is_called[deciding.id]) continue;
        exchange_all(c, m, fb_module_at(g, m)->parameters);
        exchange_all(c, m, fb_module_at(g, m)->buffers);
    }
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(g, nodes[i]);
        if (row->opcode != FB_GET_ATTR || !row->attribute.id) continue;
        fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
        if (tensor.id) exchange(c, row->module, fb_text(g, row->attribute), tensor);
    }
}

/* Gives the modules that the nodes call, with all modules inside them, and the attributes that they read, tensors of that dtype
 * in the place of float32 ones. Tied tensors stay tied. */
static void convert_weights(fb_rewrite *rw, const precision_change *change) {
    fb_graph *g = fb_rewrite_graph(rw);
    weights_change c = {.rewrite = rw, .graph = g, .dtype = change->dtype, .now = calloc(fb_tensor_limit(g), sizeof *c.now)};
    bool *is_called = calloc(fb_module_limit(g), sizeof *is_called);
    fb_usage *usage = fb_usage_new(g);
    if (c.now && is_called && usage) convert_all(&c, change->nodes, change->count, usage, is_called);
    else fb_graph_fail_memory(g);
    fb_usage_free(usage);
    free(is_called);
    free(c.now);
}

/* ---- edit: casts, literals, and the dtypes of results -------------------------------------------------------------------- */

typedef struct state {
    bool is_converted, is_written;
    fb_dtype was;   /* the dtype of its value, before anything is converted: what it follows from changes on the way */
    bool takes_any; /* it is a cast that takes any dtype */
    bool is_low;    /* what was float32 in its value is in the new dtype */
    bool is_end;    /* it is among the last nodes, which only write and return */
    fb_node cast;   /* of its value to the dtype that it has not */
} state;

typedef struct conversion {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype dtype;
    state *nodes;
    fb_node reader; /* the node at hand */
    fb_node end;    /* the first of those that end the program */
    bool reads_low;
} conversion;

/* A call of ATen, or an item of what it gives. */
static bool comes_of_aten(const fb_graph *g, fb_node n) {
    uint32_t edge = fb_op_is(g, n, FB_OP_GETITEM) ? fb_input_first(g, n) : 0;
    return fb_is_aten(g, edge ? fb_edge_input(g, edge) : n);
}

/* The writes that end an ATen program, and the output: archives of torch.export end with them, and have no place between them.
 */
static void find_end(conversion *c) {
    fb_node n = fb_last_node(c->graph, FB_MAIN_PROGRAM);
    for (; n.id; n = fb_node_at(c->graph, n)->previous) {
        const fb_node_row *row = fb_node_at(c->graph, n);
        bool is_write = !row->user_count && fb_is_aten(c->graph, n) && fb_op_is(c->graph, n, FB_OP_COPY | FB_OP_IN_PLACE);
        if (row->opcode != FB_OUTPUT && !is_write) break;
        c->nodes[n.id].is_end = true;
        c->end = n;
    }
}

/* Before the node, or before the end that it is of. */
static fb_node place_of_cast(const conversion *c, fb_node value) {
    return c->nodes[c->reader.id].is_end && !c->nodes[value.id].is_written ? c->end : c->reader;
}

/* The cast precedes the first node that reads it. Where the value is written in between, each has its own. */
static fb_node cast(conversion *c, fb_node value, fb_dtype dtype) {
    fb_graph *g = c->graph;
    state *s = &c->nodes[value.id];
    if (s->cast.id && !s->is_written) return s->cast;
    bool is_aten = fb_is_aten(g, c->reader) || comes_of_aten(g, value);
    fb_value args = FB_ARGS(g, fb_make_node(g, value), FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype)));
    s->cast = fb_insert_before(c->rewrite, place_of_cast(c, value), is_aten ? FB_CALL_FUNCTION : FB_CALL_METHOD,
                               is_aten ? FB_TARGET_TO_ATEN : FB_TARGET_TO_METHOD, args, FB_VALUE_EMPTY_MAP);
    if (!s->cast.id) return value;
    fb_set_result_type(c->rewrite, s->cast, fb_node_at(g, s->cast)->shape, dtype);
    fb_mark(c->rewrite, s->cast);
    return s->cast;
}

/* The node that the reader reads in the place of a value. */
static fb_node read(void *context, fb_node value) {
    conversion *c = context;
    const state *s = &c->nodes[value.id];
    bool is_converted = c->nodes[c->reader.id].is_converted;
    fb_dtype dtype = value_dtype(c->graph, value);
    c->reads_low |= s->is_low;
    if (is_converted && dtype == FB_FLOAT32) c->reads_low = true;
    if (is_converted && dtype == FB_FLOAT32) return cast(c, value, c->dtype);
    return !is_converted && dtype && s->is_low ? cast(c, value, FB_FLOAT32) : value;
}

/* Arguments of their own: torch.float32, and numbers that are too large. */
static fb_value convert_literals(conversion *c, fb_node n, fb_value list) {
    fb_graph *g = c->graph;
    const fb_value_row *row = fb_value_at(g, list);
    for (uint32_t i = 0; i < row->count && list.id; i++) {
        fb_value item = row->items[i], now = {0};
        double number;
        if (is_literal_float32(g, item)) now = FB_TEXT(g, FB_DTYPE, fb_dtype_name(c->dtype));
        if (literal_overflows(g, n, item, c->dtype, &number)) now = fb_make_float(g, number);
        bool is_map = row->kind == FB_MAP;
        if (now.id && is_map) list = fb_map_with(g, list, fb_value_text(g, row->items[i - 1]), now);
        if (now.id && !is_map) list = fb_list_with(g, list, i, now);
    }
    return list;
}

/* A factory that says no dtype gives float32; and so does .float(). */
static void convert_own_dtype(conversion *c, fb_node n) {
    fb_graph *g = c->graph;
    const fb_node_row *row = fb_node_at(g, n);
    if (takes_dtype(g, n)) {
        fb_value dtype = FB_TEXT(g, FB_DTYPE, fb_dtype_name(c->dtype));
        fb_set_args(c->rewrite, n, row->args, fb_map_with(g, row->kwargs, "dtype", dtype));
    } else if (is_float_method(g, n)) {
        fb_set_target(c->rewrite, n, FB_CALL_METHOD,
                      c->dtype == FB_FLOAT16 ? FB_TARGET_HALF_METHOD : FB_TARGET_BFLOAT16_METHOD);
    }
}

/* Arguments: casts around what is of the other dtype, and literals. */
static void convert_arguments(conversion *c, fb_node n) {
    fb_graph *g = c->graph;
    const fb_node_row *row = fb_node_at(g, n);
    bool is_converted = c->nodes[n.id].is_converted;
    fb_value args = row->args, kwargs = row->kwargs;
    c->reader = n;
    c->reads_low = false;
    if (row->opcode == FB_OUTPUT || (!c->nodes[n.id].takes_any && reads_dtype(g, n))) {
        args = fb_value_map_nodes(g, args, read, c);
        kwargs = fb_value_map_nodes(g, kwargs, read, c);
    }
    if (is_converted) args = convert_literals(c, n, args);
    if (is_converted) kwargs = convert_literals(c, n, kwargs);
    if (args.id != row->args.id || kwargs.id != row->kwargs.id) fb_set_args(c->rewrite, n, args, kwargs);
    if (is_converted) convert_own_dtype(c, n);
}

static void convert(conversion *c, fb_node n) {
    fb_graph *g = c->graph;
    const fb_node_row *row = fb_node_at(g, n);
    state *s = &c->nodes[n.id];
    bool was_float32 = s->was == FB_FLOAT32, is_untyped = !was_float32 && !row->dtype, is_told = names_float32(g, n);
    convert_arguments(c, n);
    if (!s->is_converted) return;
    fb_mark(c->rewrite, n);
    s->is_low = is_untyped && c->reads_low;
    if (!was_float32) return;
    fb_shape_result found;
    bool is_known = fb_infer(g, n, &found) && found.dtype;
    bool computes_low =
        c->reads_low || is_told || owns_dtype(g, n, c->dtype); /* EmbeddingBag reads integers, and gives its weight's */
    fb_dtype dtype = is_known ? found.dtype : computes_low ? c->dtype : FB_FLOAT32;
    s->is_low = dtype == c->dtype;
    fb_set_result_type(c->rewrite, n, row->shape, dtype);
}

/* Converts the read of a converted weight. */
static void convert_read(conversion *c, fb_node n) {
    const fb_node_row *row = fb_node_at(c->graph, n);
    fb_tensor tensor =
        row->attribute.id ? fb_module_tensor(c->graph, row->module, fb_text(c->graph, row->attribute)) : (fb_tensor){0};
    if (!c->nodes[n.id].is_converted || !tensor.id) return;
    c->nodes[n.id].is_low = fb_tensor_at(c->graph, tensor)->dtype == c->dtype;
    if (row->dtype) fb_set_result_type(c->rewrite, n, row->shape, (fb_dtype)fb_tensor_at(c->graph, tensor)->dtype);
    fb_mark(c->rewrite, n);
}

/* Records the dtype of the output of a graph with one result, which is returned as it is. */
static void return_converted(conversion *c, fb_node output) {
    fb_node value = fb_value_node(c->graph, fb_node_arg(c->graph, output, 0));
    if (value.id && fb_node_at(c->graph, output)->dtype)
        fb_set_result_type(c->rewrite, output, fb_node_at(c->graph, output)->shape, value_dtype(c->graph, value));
}

/* Puts casts between these nodes and the others, converts literals, and records the dtypes that come out. */
static void convert_nodes(fb_rewrite *rw, const precision_change *change) {
    fb_graph *g = fb_rewrite_graph(rw);
    conversion c = {.rewrite = rw, .graph = g, .dtype = change->dtype, .nodes = calloc(fb_node_limit(g), sizeof *c.nodes)};
    if (!c.nodes) fb_graph_fail_memory(g);
    for (size_t i = 0; c.nodes && i < change->count; i++) c.nodes[change->nodes[i].id].is_converted = true;
    for (const fb_node *n = change->written; c.nodes && n->id; n++) c.nodes[n->id].is_written = true;
    if (c.nodes) find_end(&c);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && c.nodes; n = fb_next_node(g, n)) {
        c.nodes[n.id].was = value_dtype(g, n);
        c.nodes[n.id].takes_any = takes_any_dtype(g, n);
    }
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && c.nodes; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        if (opcode == FB_GET_ATTR) convert_read(&c, n);
        else if (opcode == FB_OUTPUT && !change->casts_outputs) return_converted(&c, n);
        else if (opcode != FB_PLACEHOLDER) convert(&c, n);
    }
    free(c.nodes);
}

/* An input that is read and has no dtype: whether to cast it is not known. */
static bool refuse_unknown_inputs(fb_matcher *m) {
    bool refused = false;
    for (fb_node n = fb_first_node(m->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(m->graph, n)) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        if (row->opcode != FB_PLACEHOLDER || row->dtype || !row->user_count) continue;
        fb_refuse_node(m, "unknown-dtype", n,
                       "the dtype of this input is not recorded, so nothing can be converted" FB_RECORD_DTYPE);
        refused = true;
    }
    return refused;
}

/* Is something in float32 for the node, or in what it reads? Values of unknown dtype are as what they are made from. */
static bool is_concerned(const fb_graph *g, const bool *is_converted, fb_node n) {
    bool reads = false;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        fb_dtype dtype = value_dtype(g, input);
        reads |= dtype == FB_FLOAT32 || (!dtype && is_converted[input.id]);
    }
    return value_dtype(g, n) == FB_FLOAT32 || names_float32(g, n) || (reads && reads_dtype(g, n) && !takes_any_dtype(g, n)) ||
           owns_float32(g, n);
}

static void refuse_overflow(fb_matcher *m, fb_node n, fb_dtype dtype) {
    const fb_value maps[] = {fb_node_at(m->graph, n)->args, fb_node_at(m->graph, n)->kwargs};
    double number, now;
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(m->graph, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (!literal_overflows(m->graph, n, row->items[i], dtype, &now)) continue;
            fb_value_is_number(m->graph, row->items[i], &number);
            fb_refuse_node(m, "literal-overflows", n, "%.9g is beyond the range of %s; it becomes %.9g", number,
                           fb_dtype_name(dtype), now);
        }
    }
}

/* Facts that are known before the edit; both lists end with none. */
typedef struct precision_plan {
    const fb_node *written; /* values that are written in place */
    const fb_node *typed;   /* nodes whose types follow from others and are not recorded */
} precision_plan;

/* Moves the list into the arena, with none at its end. */
static const fb_node *finish_list(fb_matcher *m, fb_buffer *nodes) {
    fb_buffer_append(nodes, &(fb_node){0}, sizeof(fb_node));
    fb_node *list = nodes->failed ? NULL : fb_arena_alloc(m->arena, nodes->size);
    if (list) memcpy(list, nodes->data, nodes->size);
    m->failed |= !list;
    fb_buffer_free(nodes);
    return list;
}

static const fb_node *list_written(fb_matcher *m, const fb_alias *alias) {
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(m->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(m->graph, n)) {
        if (fb_is_mutated(alias, n)) fb_buffer_append(&nodes, &n, sizeof n);
    }
    return finish_list(m, &nodes);
}

/* Records in a copy of the graph what follows and is not recorded: what one node gives says what the next one does. */
static const fb_node *record_types(fb_matcher *m, const fb_alias *alias, fb_rewrite *typed) {
    const fb_graph *g = m->graph;
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        if (fb_mode_switched_between(alias, 0, fb_node_at(g, n)->ordinal)) break;
        if (opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR || opcode == FB_OUTPUT || fb_node_at(g, n)->dtype) continue;
        if (fb_infer_what_is_missing(typed, n)) fb_buffer_append(&nodes, &n, sizeof n);
    }
    m->failed |= fb_graph_out_of_memory(fb_rewrite_graph(typed));
    return finish_list(m, &nodes);
}

/* On the graph of the matcher, which has all types that are known. */
static void match_typed(fb_matcher *m, const fb_alias *alias, precision_plan *plan) {
    const fb_graph *g = m->graph;
    bool *stays = find_staying(m, alias), *is_converted = calloc(fb_node_limit(g), sizeof *is_converted);
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && stays && is_converted && fb_matcher_goes_on(m);
         n = fb_next_node(g, n)) {
        if (stays[n.id] || fb_node_at(g, n)->opcode == FB_OUTPUT || !is_concerned(g, is_converted, n)) continue;
        is_converted[n.id] = true;
        fb_buffer_append(&nodes, &n, sizeof n);
        refuse_overflow(m, n, dtype_to(m->params));
    }
    bool has_match = nodes.size > 0;
    if (has_match && m->report->pass->version == 1) refuse_overflowing_weights(m, is_converted, dtype_to(m->params));
    if (has_match) plan->written = list_written(m, alias);
    m->failed |= !stays || !is_converted || nodes.failed;
    if (has_match && !m->failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof(fb_node));
    fb_buffer_free(&nodes);
    free(is_converted);
    free(stays);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *source = m->graph;
    if (refuse_unknown_inputs(m)) return;
    const fb_alias *alias = fb_matcher_alias(m);
    precision_plan *plan = fb_arena_alloc(m->arena, sizeof *plan);
    fb_rewrite *typed = alias && plan ? fb_rewrite_begin_trial(source, m->signature) : NULL;
    m->failed |= !typed;
    if (!typed) return;
    plan->typed = record_types(m, alias, typed);
    m->plan = plan;
    m->graph = fb_rewrite_graph(typed);
    if (!m->failed) match_typed(m, alias, plan);
    m->graph = source;
    fb_rewrite_abort(typed);
}

/* ---- the pass ------------------------------------------------------------------------------------------------------------ */

static void edit(fb_rewrite *rw, const fb_match *match) {
    const precision_plan *plan = match->plan;
    precision_change change = {
        .dtype = dtype_to(match->params),
        .casts_outputs = casts_outputs(match->params),
        .nodes = match->nodes,
        .count = match->count,
        .written = plan->written,
    };
    for (const fb_node *n = plan->typed; n->id; n++) fb_infer_what_is_missing(rw, *n);
    convert_weights(rw, &change);
    convert_nodes(rw, &change);
}

/* Version 1 also converted weights that become infinite. */
#define CONVERT_PRECISION(number, before)                                                                                      \
    {                                                                                                                          \
        .name = "ConvertPrecision", .version = number, .earlier = before,                                                      \
        .summary = "Computes in float16 or bfloat16 what was float32, except what `keep` names; reports what overflows.",      \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{"                                                                 \
            "\"cast_outputs\":{\"default\":true,\"description\":\"cast results back to float32\",\"type\":\"boolean\"},"       \
            "\"keep\":{\"default\":[],\"description\":\"what stays in float32: paths of modules, in which * and ? stand for "  \
            "others, and operators such as softmax or layer_norm\",\"items\":{\"type\":\"string\"},\"type\":\"array\"},"       \
            "\"to\":{\"enum\":[\"float16\",\"bfloat16\"],\"type\":\"string\"}},\"required\":[\"to\"],\"type\":\"object\"}",    \
        .exactness = FB_CHANGES, .reversible = false, .preserves_computation = false, .match_graph = match_graph,              \
        .edit = edit,                                                                                                          \
    }

static const fb_pass version_1 = CONVERT_PRECISION(1, NULL);
const fb_pass fb_convert_precision = CONVERT_PRECISION(2, &version_1);
