#include "core/passes/precision.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/namespace.h"
#include "core/ops/infer.h"
#include "core/ops/view.h"
#include "core/passes/pass.h"
#include "core/weights/dtype.h"

/* ---- single nodes -------------------------------------------------------------------------------------------------------- */

/* A cast or a factory: which dtype it gives does not depend on what it reads, or only on the first of it. */
static bool says_its_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    return rule == FB_DTYPE_RULE_CAST || rule == FB_DTYPE_RULE_LIKE || rule == FB_DTYPE_RULE_ARGUMENT ||
           rule == FB_DTYPE_RULE_FULL || rule >= FB_DTYPE_RULE_BOOL;
}

fb_dtype fb_value_dtype(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_shape_result found;
    if (row->dtype) return (fb_dtype)row->dtype;
    if (says_its_dtype(g, n)) return fb_infer(g, n, &found) ? found.dtype : FB_DTYPE_UNKNOWN;
    if (row->opcode != FB_GET_ATTR || !row->attribute.id) return FB_DTYPE_UNKNOWN;
    fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    return tensor.id ? (fb_dtype)fb_tensor_at(g, tensor)->dtype : FB_DTYPE_UNKNOWN;
}

bool fb_takes_any_dtype(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (facts->shape != FB_SHAPE_SAME || !(facts->flags & FB_FACT_ALIASES)) return false;
    return facts->dtype == FB_DTYPE_RULE_CAST ? fb_names_float32(g, n) || fb_value_dtype(g, n) != FB_FLOAT32
                                              : facts->dtype >= FB_DTYPE_RULE_BOOL;
}

bool fb_reads_dtype(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    if (op == FB_OP_GETATTR) {
        fb_value name = fb_call_argument(g, n, "name");
        bool gives_tensor = fb_node_at(g, n)->dtype; /* x.T, sort(x).values */
        return gives_tensor || fb_value_kind(g, name) != FB_STRING || strcmp(fb_value_text(g, name), "dtype") == 0;
    }
    return !(fb_op_facts_of(op)->flags & FB_FACT_NUMBER) || fb_names_float32(g, n);
}

bool fb_is_float32(const fb_graph *g, fb_value value) {
    return fb_value_kind(g, value) == FB_DTYPE && strcmp(fb_value_text(g, value), fb_dtype_name(FB_FLOAT32)) == 0;
}

bool fb_names_float32(const fb_graph *g, fb_node n) {
    const fb_value maps[] = {fb_node_at(g, n)->args, fb_node_at(g, n)->kwargs};
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(g, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (fb_is_float32(g, row->items[i])) return true;
        }
    }
    return false;
}

bool fb_takes_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_factory = rule == FB_DTYPE_RULE_ARGUMENT || rule == FB_DTYPE_RULE_FULL;
    return is_factory && fb_value_dtype(g, n) == FB_FLOAT32 && !fb_node_kwarg(g, n, "dtype").id;
}

bool fb_is_float_method(const fb_graph *g, fb_node n) {
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

bool fb_owns_dtype(const fb_graph *g, fb_node n, fb_dtype dtype) {
    owned o = {.graph = g, .dtype = dtype};
    visit_owned(g, n, note_dtype, &o);
    return o.has_dtype;
}

/* float32 comes out whatever it reads: of integers, or of nothing at all. */
static bool gives_float32(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (fb_value_dtype(g, n) != FB_FLOAT32 || fb_names_float32(g, n) || fb_owns_float32(g, n)) return false;
    if (fb_takes_dtype(g, n) || fb_is_float_method(g, n)) return false;
    if (facts->dtype == FB_DTYPE_RULE_FLOAT32) return true;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_dtype dtype = fb_value_dtype(g, fb_edge_input(g, e));
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

fb_module fb_deciding_module(const fb_graph *g, const fb_usage *usage, fb_module module) {
    return fb_call_count(usage, module) ? module : called_around(g, usage, module);
}

/* `*` stands for any characters, `?` for one. */
static bool fits(const char *pattern, const char *text, size_t length) {
    const char *end = text + length, *star = NULL, *from = NULL;
    while (text < end) {
        if (*pattern == '*') {
            star = pattern++;
            from = text;
        } else if (*pattern == '?' || *pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

/* The path, or that of a module around it. */
static bool path_fits(const fb_graph *g, fb_module module, const char *pattern) {
    const char *path = fb_text(g, fb_module_at(g, module)->path);
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.')) {
        if (fits(pattern, path, (size_t)(dot - path))) return true;
    }
    return fits(pattern, path, strlen(path));
}

static bool uses_module(const fb_graph *g, fb_node n, const char *pattern) {
    if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) return path_fits(g, fb_node_at(g, n)->module, pattern);
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        const fb_node_row *input = fb_node_at(g, fb_edge_input(g, e));
        if (input->opcode == FB_GET_ATTR && path_fits(g, input->module, pattern)) return true;
    }
    return false;
}

/* `keep`: is the node called so, or does it use a module that is? Patterns that have matched are noted in `is_used`. */
static bool is_kept_by_name(const fb_graph *g, fb_node n, const json_t *keep, bool *is_used) {
    bool is_kept = false;
    for (size_t i = 0; i < json_array_size(keep); i++) {
        const char *pattern = json_string_value(json_array_get(keep, i));
        if (!fb_op_is_named(fb_node_op(g, n), pattern) && !uses_module(g, n, pattern)) continue;
        is_kept = is_used[i] = true;
    }
    return is_kept;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------- */

/* Of a number in an argument: does it not fit `dtype`, and is `out` to stand there instead? What is a factor stays as it is. */
/* The ends of float32's range stand for infinity (masks), and become the ends of the other range. Other numbers that are stored
 * as they are become the nearest one, too; those that are computed with are left to the computation, which is done wide. */
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

void fb_refuse_overflowing_weights(fb_matcher *m, const bool *is_converted, fb_dtype dtype) {
    const fb_graph *g = m->graph;
    owned o = {.matcher = m, .graph = g, .dtype = dtype, .is_seen = calloc(fb_tensor_limit(g), sizeof *o.is_seen)};
    m->failed |= !o.is_seen;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && o.is_seen && !m->is_too_much; n = fb_next_node(g, n)) {
        o.node = n;
        if (is_converted[n.id]) visit_owned(g, n, refuse_overflowing, &o);
    }
    free(o.is_seen);
}

/* ---- why a node stays in float32 though nobody asked for it -------------------------------------------------------------- */

static bool reads_float32(const fb_graph *g, fb_node n) {
    bool reads = fb_value_dtype(g, n) == FB_FLOAT32;
    for (uint32_t e = fb_input_first(g, n); e && !reads; e = fb_input_next(g, e)) {
        reads = fb_value_dtype(g, fb_edge_input(g, e)) == FB_FLOAT32;
    }
    return reads;
}

/* Is one of its inputs in the other of the two narrow dtypes, with which this one does not mix? */
static bool reads_other_narrow(const fb_matcher *m, fb_node n) {
    fb_dtype to = fb_dtype_find(json_string_value(json_object_get(m->params, "to")));
    fb_dtype other = to == FB_FLOAT16 ? FB_BFLOAT16 : FB_FLOAT16;
    for (uint32_t e = fb_input_first(m->graph, n); e; e = fb_input_next(m->graph, e)) {
        if (fb_value_dtype(m->graph, fb_edge_input(m->graph, e)) == other) return true;
    }
    return false;
}

/* x.view(torch.int32), which cuts the bytes of float32 into numbers of its own. */
static bool reinterprets(const fb_graph *g, fb_node n) {
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

/* The reason code for which a node that has to do with float32 cannot be converted; NULL when it can, or has nothing to do with
 * it. `*detail` is a sentence. `reads_untyped`: it reads tensors of unknown dtype, which may be float32. */
static const char *precision_obstacle(const fb_matcher *m, fb_node n, bool reads_untyped, bool is_in_autocast,
                                      const char **detail) {
    const fb_graph *g = m->graph;
    if (!reads_untyped && !reads_float32(g, n) && !fb_owns_float32(g, n) && !fb_is_marked(m, n)) return NULL;
    const char *to = json_string_value(json_object_get(m->params, "to"));
    fb_dtype dtype = fb_value_dtype(g, n);
    *detail = "it was converted before";
    if (fb_is_marked(m, n)) return "already-transformed";
    *detail = "nothing is known of this operator; it goes on in float32, with casts around it";
    if (fb_op_effects(g, n).is_unknown || fb_runs_inside(g, n)) return "unknown-operator";
    *detail = "autocast is on here and decides about dtypes; it goes on in float32";
    if (is_in_autocast) return "autocast";
    *detail = "complex numbers have no such precision; it goes on in float32";
    if (fb_dtype_is_complex(dtype)) return "complex";
    *detail = "PyTorch cannot compute it in that dtype (on a CPU); it goes on in float32";
    if (fb_op_lacks_kernel(fb_node_op(g, n), to) || lacks_kernel_for_arguments(g, n, to)) return "no-kernel";
    *detail = "it takes the bytes of float32 for other numbers; it goes on in float32";
    if (reinterprets(g, n)) return "reinterprets";
    *detail = "float16 and bfloat16 do not mix, and it reads the other one; it goes on in float32";
    if (reads_other_narrow(m, n)) return "mixed-dtypes";
    *detail = "it casts to a dtype that cannot be told; it goes on in float32";
    fb_shape_result found;
    bool is_cast = fb_op_facts_of(fb_node_op(g, n))->dtype == FB_DTYPE_RULE_CAST;
    if (is_cast && (!dtype || (dtype == FB_FLOAT32 && fb_infer(g, n, &found) && !found.dtype))) return "unknown-dtype";
    fb_module module = fb_node_at(g, n)->opcode == FB_CALL_MODULE ? fb_node_at(g, n)->module : (fb_module){0};
    *detail = "a module around it is called as a whole, too; both go on in float32";
    return module.id && fb_module_is_inside_call(m->usage, module) ? "module-called" : NULL;
}

typedef struct search {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_alias *alias;
    bool *stays, *is_number;           /* by node; a number is any value that is no tensor and holds none */
    fb_node *next_written, *next_read; /* by node: chains of … */
    fb_node *first_written;            /* by memory that is written: what shares or writes it */
    fb_node *first_read;               /* by deciding module: get_attr nodes of its tensors */
    bool *module_stays, *tensor_stays; /* by module, by tensor */
    fb_node *stack;                    /* nodes that stay, and whose consequences are still to be drawn */
    size_t depth;
    unsigned char *shares; /* by memory: is it returned, does it come from outside */
    bool *is_used;         /* patterns of `keep` */
    uint32_t autocasts;    /* entered and not yet left */
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
    return opcode == FB_GET_ATTR ? fb_deciding_module(s->graph, s->matcher->usage, fb_node_at(s->graph, n)->module)
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
        if (fb_node_at(s->graph, n)->program.id != FB_MAIN_PROGRAM.id) continue;
        stay_module(s, deciding(s, n));
        uint32_t memory = written_memory(s, n);
        fb_node member = memory ? s->first_written[memory] : (fb_node){0};
        if (memory) s->first_written[memory] = (fb_node){0}; /* once */
        for (; member.id; member = s->next_written[member.id]) stay(s, member);
        stay_around(s, n);
    }
}

/* ---- reasons of a node's own -------------------------------------------------------------------------------------------- */

static bool reads_untyped(const search *s, fb_node n) {
    bool reads = false;
    for (uint32_t e = fb_input_first(s->graph, n); e && !reads; e = fb_input_next(s->graph, e))
        reads = is_untyped(s, fb_edge_input(s->graph, e));
    return reads;
}

static void look_at(search *s, fb_node n) {
    const fb_graph *g = s->graph;
    if (fb_op_is(g, n, FB_OP_ENTER_AUTOCAST)) s->autocasts++;
    if (fb_op_is(g, n, FB_OP_EXIT_AUTOCAST) && s->autocasts) s->autocasts--;
    const fb_node_row *row = fb_node_at(g, n);
    fb_tensor tensor = row->opcode == FB_GET_ATTR && row->attribute.id
                           ? fb_module_tensor(g, row->module, fb_text(g, row->attribute))
                           : (fb_tensor){0};
    if (row->opcode == FB_OUTPUT && fb_casts_outputs(s->matcher->params)) stay_around(s, n); /* what cannot be cast */
    if (row->opcode == FB_PLACEHOLDER || (tensor.id && s->tensor_stays[tensor.id])) stay(s, n);
    if (row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR || row->opcode == FB_OUTPUT) return;
    const char *detail, *reason = precision_obstacle(s->matcher, n, reads_untyped(s, n), s->autocasts > 0, &detail);
    if (reason) fb_refuse_node(s->matcher, reason, n, "%s", detail);
    if (gives_float32(g, n) || fb_value_dtype(g, n) == FB_FLOAT64) stay(s, n);
    if (reason || is_kept_by_name(g, n, json_object_get(s->matcher->params, "keep"), s->is_used)) stay(s, n);
}

/* What nested programs call and read stays, because they do. */
static void look_at_nested(search *s) {
    const fb_graph *g = s->graph;
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id; n = fb_next_node(g, n)) {
            const fb_node_row *row = fb_node_at(g, n);
            fb_module module = row->module.id ? fb_deciding_module(g, s->matcher->usage, row->module) : row->module;
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
            fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
            for (uint32_t e = s->stays[n.id] ? 0 : fb_user_first(g, n); e; e = fb_user_next(g, e)) {
                if (tensor.id && s->stays[fb_edge_user(g, e).id]) s->tensor_stays[tensor.id] = true;
            }
            if (tensor.id && s->tensor_stays[tensor.id]) s->stays[n.id] = true;
        }
    }
}

/* ---- results that share memory ------------------------------------------------------------------------------------------- */

static bool is_from_outside(const fb_graph *g, fb_node n) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    return opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR;
}

/* A result that is an input or weight, or a view of one, still shares its memory: a cast would copy it. */
static void keep_shared_results(search *s) {
    enum { RETURNED = 1, OUTSIDE = 2 };
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        if (is_from_outside(g, n)) s->shares[fb_memory_of(s->alias, n)] |= OUTSIDE;
        bool is_output = fb_node_at(g, n)->opcode == FB_OUTPUT;
        for (uint32_t e = is_output ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e))
            s->shares[fb_memory_of(s->alias, fb_edge_input(g, e))] |= RETURNED;
    }
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        const fb_node_row *row = fb_node_at(g, n);
        bool is_tensor = row->opcode != FB_OUTPUT && !s->is_number[n.id];
        if (!is_tensor || s->shares[fb_memory_of(s->alias, n)] != (RETURNED | OUTSIDE)) continue;
        stay(s, n);
        if (row->opcode == FB_GET_ATTR && row->attribute.id)
            s->tensor_stays[fb_module_tensor(g, row->module, fb_text(g, row->attribute)).id] = true;
    }
}

/* ---- all of it ----------------------------------------------------------------------------------------------------------- */

static void prepare(search *s) {
    const fb_graph *g = s->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id; n = fb_next_node(g, n)) {
        fb_numberhood hood = fb_numberhood_of(g, n);
        bool reads_tensor = false;
        for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e))
            reads_tensor |= !s->is_number[fb_edge_input(g, e).id];
        s->is_number[n.id] = hood == FB_A_NUMBER || (hood == FB_A_NUMBER_IF_INPUTS_ARE && !reads_tensor);
        uint32_t memory = written_memory(s, n);
        if (memory) s->next_written[n.id] = s->first_written[memory];
        if (memory) s->first_written[memory] = n;
        fb_module module = fb_node_at(g, n)->opcode == FB_GET_ATTR ? deciding(s, n) : (fb_module){0};
        if (module.id) s->next_read[n.id] = s->first_read[module.id];
        if (module.id) s->first_read[module.id] = n;
    }
}

static void refuse_unused(const search *s, const json_t *keep) {
    for (size_t i = 0; i < json_array_size(keep); i++) {
        if (s->is_used[i]) continue;
        fb_refuse(s->matcher, "keeps-nothing", NULL, 0, "keep names \"%.80s\", and nothing is called so",
                  json_string_value(json_array_get(keep, i)));
    }
}

static void find(search *s) {
    const fb_graph *g = s->graph;
    prepare(s);
    look_at_nested(s);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !s->matcher->is_too_much; n = fb_next_node(g, n)) look_at(s, n);
    if (fb_casts_outputs(s->matcher->params)) keep_shared_results(s);
    follow(s);
    keep_read_weights(s);
    refuse_unused(s, json_object_get(s->matcher->params, "keep"));
}

bool *fb_find_staying(fb_matcher *m, const fb_alias *alias) {
    const fb_graph *g = m->graph;
    size_t nodes = fb_node_limit(g), modules = fb_module_limit(g);
    search s = {.matcher = m, .graph = g, .alias = alias};
    s.stays = calloc(nodes, sizeof *s.stays);
    s.is_number = calloc(nodes, sizeof *s.is_number);
    s.next_written = calloc(nodes, sizeof *s.next_written);
    s.next_read = calloc(nodes, sizeof *s.next_read);
    s.stack = calloc(nodes, sizeof *s.stack);
    s.first_written = calloc((size_t)fb_memory_limit(alias) + 1, sizeof *s.first_written);
    s.shares = calloc((size_t)fb_memory_limit(alias) + 1, 1);
    s.first_read = calloc(modules, sizeof *s.first_read);
    s.module_stays = calloc(modules, sizeof *s.module_stays);
    s.tensor_stays = calloc(fb_tensor_limit(g), sizeof *s.tensor_stays);
    s.is_used = calloc(json_array_size(json_object_get(m->params, "keep")) + 1, sizeof *s.is_used);
    bool ok = s.stays && s.is_number && s.next_written && s.next_read && s.stack && s.first_written && s.first_read &&
              s.shares && s.module_stays && s.tensor_stays && s.is_used;
    if (ok) find(&s);
    void *const helpers[] = {s.is_number, s.next_written, s.next_read,    s.stack,        s.first_written,
                             s.shares,    s.first_read,   s.module_stays, s.tensor_stays, s.is_used};
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++) free(helpers[i]);
    if (!ok) free(s.stays);
    return ok ? s.stays : NULL;
}
