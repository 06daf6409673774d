/* Why a node goes on in float32 though nobody asked for it (precision.h). */
#include <stdio.h>
#include <string.h>

#include "core/graph/namespace.h"
#include "core/ops/infer.h"
#include "core/ops/view.h"
#include "core/passes/precision.h"
#include "core/passes/precision_change.h"

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

const char *fb_precision_obstacle(const fb_matcher *m, fb_node n, bool reads_untyped, bool is_in_autocast,
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
