#include "core/analysis/precision.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/value_dtype.h"
#include "core/graph/namespace.h"
#include "core/weights/dtype.h"
#include "core/weights/evaluate.h"

/* ---- why a node stays in float32 without being named ----------------------------------------------------------- */

static bool reads_float32(const fb_graph *g, fb_node n) {
    bool reads = fb_value_dtype(g, n) == FB_FLOAT32;
    for (uint32_t e = fb_input_first(g, n); e && !reads; e = fb_input_next(g, e)) {
        reads = fb_value_dtype(g, fb_edge_input(g, e)) == FB_FLOAT32;
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
static bool reads_other_narrow(const fb_precision *p, fb_node n) {
    fb_dtype other = p->to == FB_FLOAT16 ? FB_BFLOAT16 : FB_FLOAT16;
    for (uint32_t e = fb_input_first(p->graph, n); e; e = fb_input_next(p->graph, e)) {
        if (fb_value_dtype(p->graph, fb_edge_input(p->graph, e)) == other) return true;
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
            bool is_asked = node.id && fb_op_is(g, node, FB_OP_GETATTR) && fb_reads_dtype(g, node);
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
static fb_obstacle obstacle_of(const fb_precision *p, fb_node n, bool reads_untyped, bool gives_unknown, bool is_in_autocast) {
    const fb_graph *g = p->graph;
    bool is_marked = p->is_marked(p->context, n);
    bool meets_float32 = reads_float32(g, n) || (gives_unknown && is_read_with_float32(g, n));
    if (!reads_untyped && !meets_float32 && !fb_owns_dtype(g, n, FB_FLOAT32) && !is_marked) return FB_NO_OBSTACLE;
    const char *to = fb_dtype_name(p->to);
    fb_dtype dtype = fb_value_dtype(g, n);
    if (is_marked) return (fb_obstacle){"already-transformed", "it was converted before"};
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
    if (reads_other_narrow(p, n))
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
    return module.id && fb_module_is_inside_call(p->usage, module)
               ? (fb_obstacle){"module-called", "a module around it is also called as a whole; both stay in float32"}
               : FB_NO_OBSTACLE;
}

typedef struct search {
    const fb_precision *asked;
    const fb_graph *graph;
    const fb_alias *alias;
    fb_obstacle *obstacles;            /* by node */
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
    uint32_t autocasts;    /* entered and not yet left */
    bool has_failed;       /* memory is out */
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
    return opcode == FB_GET_ATTR ? fb_deciding_module(s->graph, s->asked->usage, fb_node_at(s->graph, n)->module)
                                 : (fb_module){0};
}

static void stay_module(search *s, fb_module module) {
    if (!module.id || s->module_stays[module.id]) return;
    s->module_stays[module.id] = true;
    for (fb_node n = fb_first_call(s->asked->usage, module); n.id; n = fb_next_call(s->asked->usage, n)) stay(s, n);
    for (fb_node n = s->first_read[module.id]; n.id; n = s->next_read[n.id]) stay(s, n);
    stay_module(s, fb_called_around(s->graph, s->asked->usage, module));
}

/* A tensor, or several, of unknown dtype. */
static bool is_untyped(const search *s, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(s->graph, n)->opcode;
    return opcode != FB_PLACEHOLDER && opcode != FB_OUTPUT && !fb_value_dtype(s->graph, n) && !s->is_number[n.id];
}

static void stay_around(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        bool is_asked = fb_op_is(g, input, FB_OP_GETATTR) && !fb_value_dtype(g, input);
        bool asks_dtype = is_asked && fb_reads_dtype(g, input); /* and is told what it was told */
        if (asks_dtype || is_untyped(s, input)) stay(s, input);
    }
    for (uint32_t e = is_untyped(s, n) ? fb_user_first(g, n) : 0; e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool takes_out = fb_op_is(g, user, FB_OP_GETITEM) && fb_value_dtype(g, user);
        if (!takes_out && fb_node_at(g, user)->opcode != FB_OUTPUT) stay(s, user);
    }
}

static void follow(search *s) {
    while (s->depth) {
        fb_node n = s->stack[--s->depth];
        if (fb_is_nested(s->graph, n)) continue;
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
    fb_dtype carried = fb_value_dtype(g, n);
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
        bool is_known = takes_out && (fb_value_dtype(g, user) || s->is_followed[user.id]);
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
    fb_dtype to = s->asked->to;
    fb_node input = fb_value_node(g, fb_first_argument(g, n));
    if (!input.id || !(fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_ALIASES)) return false;
    fb_dtype from = fb_value_dtype(g, input), gives = fb_value_dtype(g, n);
    if (!(from == FB_FLOAT32 && gives == to) && !(from == to && gives == FB_FLOAT32)) return false;
    bool is_returned = !s->asked->casts_outputs && s->shares[fb_memory_of(s->alias, n)] & RETURNED;
    return is_returned || fb_mutated_after(s->alias, n, fb_node_at(g, n)->ordinal);
}

/* ---- weights that are too large ------------------------------------------------------------------------------------------ */

typedef struct overflow_search {
    const fb_precision *asked;
    unsigned char *fits; /* by tensor: 1 = yes, 2 = no, 0 = not looked at yet */
    fb_tensor found;
} overflow_search;

static void look_at_weight(void *context, fb_tensor tensor) {
    overflow_search *o = context;
    bool is_asked = !o->fits[tensor.id] && fb_tensor_at(o->asked->graph, tensor)->dtype == FB_FLOAT32;
    if (!o->fits[tensor.id]) o->fits[tensor.id] = 1;
    if (is_asked && o->asked->overflows(o->asked->context, tensor)) o->fits[tensor.id] = 2;
    if (o->fits[tensor.id] == 2) o->found = tensor;
}

/* Finds for each called module a weight that overflows, in it or in a module inside it. */
static void look_at_modules(search *s, overflow_search *o, fb_tensor *of_module) {
    const fb_graph *g = s->graph;
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        fb_module called = fb_deciding_module(g, s->asked->usage, m);
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
    overflow_search o = {.asked = s->asked, .fits = calloc(fb_tensor_limit(g), 1)};
    fb_tensor *of_module = calloc(fb_module_limit(g), sizeof *of_module);
    fb_tensor *of_memory = calloc((size_t)fb_memory_limit(s->alias) + 1, sizeof *of_memory);
    bool ok = o.fits && of_module && of_memory;
    s->has_failed |= !ok;
    if (ok) look_at_modules(s, &o, of_module);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && ok; n = fb_next_node(g, n)) {
        fb_tensor tensor = tensor_read(g, n);
        o.found = (fb_tensor){0};
        if (tensor.id) look_at_weight(&o, tensor);
        if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) o.found = of_module[fb_node_at(g, n)->module.id];
        if (tensor.id && o.found.id) of_memory[fb_memory_of(s->alias, n)] = o.found;
        for (uint32_t e = fb_reads_dtype(g, n) && !fb_takes_any_dtype(g, n) ? fb_input_first(g, n) : 0; e;
             e = fb_input_next(g, e)) {
            fb_tensor read = of_memory[fb_memory_of(s->alias, fb_edge_input(g, e))];
            if (read.id) o.found = read;
        }
        if (fb_node_at(g, n)->opcode != FB_OUTPUT) s->overflows[n.id] = o.found;
    }
    free(o.fits);
    free(of_module);
    free(of_memory);
}

static fb_obstacle overflow_obstacle(search *s, fb_node n) {
    char text[400];
    int length = snprintf(text, sizeof text, "%.200s has numbers beyond the range of %s; it goes on in float32",
                          fb_tensor_name(s->graph, s->overflows[n.id]), fb_dtype_name(s->asked->to));
    const char *detail = fb_arena_text(s->asked->arena, text, (size_t)length);
    s->has_failed |= !detail;
    return (fb_obstacle){FB_TENSOR_OVERFLOWS, detail};
}

/* ---- reasons of a node's own -------------------------------------------------------------------------------------------- */

static void look_at(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_op_is(g, n, FB_OP_ENTER_AUTOCAST)) s->autocasts++;
    if (fb_op_is(g, n, FB_OP_EXIT_AUTOCAST) && s->autocasts) s->autocasts--;
    const fb_node_row *row = fb_node_at(g, n);
    fb_tensor tensor = tensor_read(g, n);
    if (row->opcode == FB_OUTPUT && s->asked->casts_outputs) stay_around(s, n); /* what cannot be cast */
    if (row->opcode == FB_PLACEHOLDER || (tensor.id && (s->tensor_stays[tensor.id] || s->overflows[n.id].id))) stay(s, n);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return;
    fb_obstacle obstacle = obstacle_of(s->asked, n, reads_untyped(s, n), is_unknown(s, n), s->autocasts > 0);
    bool copies = must_copy(s, n);
    if (copies) stay(s, fb_value_node(g, fb_first_argument(g, n))); /* nothing is cast for a cast */
    if (copies && !obstacle.code)
        obstacle = (fb_obstacle){"mutated", "it would copy no more, and the copy, or what it is made of, is written later or "
                                            "returned; it goes on in float32"};
    if (!obstacle.code && s->overflows[n.id].id && !s->asked->is_kept(s->asked->context, n)) obstacle = overflow_obstacle(s, n);
    s->obstacles[n.id] = obstacle;
    if (fb_gives_float32(g, n) || fb_value_dtype(g, n) == FB_FLOAT64 || is_unknown(s, n)) stay(s, n);
    if (obstacle.code || s->asked->is_kept(s->asked->context, n)) stay(s, n);
}

/* Keeps what nested programs call and read in float32, as those programs stay. */
static void look_at_nested(search *s) {
    const fb_graph *g = s->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            fb_module module = row->module.id ? fb_deciding_module(g, s->asked->usage, row->module) : row->module;
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
    if (s->asked->overflows) find_overflowing(s);
    look_at_nested(s);
    find_shares(s);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) look_at(s, n);
    if (s->asked->casts_outputs) keep_shared_results(s);
    follow(s);
    keep_read_weights(s);
}

bool fb_find_precision(const fb_precision *precision, bool *stays, fb_obstacle *obstacles) {
    const fb_graph *g = precision->graph;
    const fb_alias *alias = precision->alias;
    size_t nodes = fb_node_limit(g), modules = fb_module_limit(g);
    search s = {.asked = precision, .graph = g, .alias = alias, .stays = stays, .obstacles = obstacles};
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
    bool ok = s.is_number && s.next_written && s.next_read && s.stack && s.first_written && s.first_read && s.shares &&
              s.module_stays && s.tensor_stays && s.is_followed && s.carried && s.overflows;
    if (ok) find(&s);
    void *const helpers[] = {s.is_followed,   s.carried, s.is_number,  s.next_written, s.next_read,    s.stack,
                             s.first_written, s.shares,  s.first_read, s.module_stays, s.tensor_stays, s.overflows};
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) free(helpers[i]);
    return ok && !s.has_failed;
}

bool fb_literal_overflows(const fb_graph *g, fb_node n, fb_value value, fb_dtype dtype, double *out) {
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
