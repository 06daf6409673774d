#include "core/analysis/value_dtype.h"

#include <string.h>

#include "core/analysis/infer.h"

/* A cast or a factory: which dtype it gives does not depend on what it reads, or only on the first of it. */
static bool says_its_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    return rule == FB_DTYPE_RULE_CAST || rule == FB_DTYPE_RULE_LIKE || rule == FB_DTYPE_RULE_ARGUMENT ||
           rule == FB_DTYPE_RULE_FULL || rule >= FB_DTYPE_RULE_BOOL;
}

/* The dtype of a node's value: as recorded; if not, a get_attr node has its tensor's, and a cast or a factory the one that it
 * names. Unknown for other values. */
fb_dtype fb_value_dtype(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    fb_shape_result found;
    if (row->dtype) return (fb_dtype)row->dtype;
    if (says_its_dtype(g, n)) return fb_infer(g, n, &found) ? found.dtype : FB_DTYPE_UNKNOWN;
    if (row->opcode != FB_GET_ATTR || !row->attribute.id) return FB_DTYPE_UNKNOWN;
    fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    return tensor.id ? (fb_dtype)fb_tensor_at(g, tensor)->dtype : FB_DTYPE_UNKNOWN;
}

/* Is the argument the dtype float32? Is one of the node's? */
bool fb_is_literal_float32(const fb_graph *g, fb_value value) {
    return fb_value_kind(g, value) == FB_DTYPE && strcmp(fb_value_text(g, value), fb_dtype_name(FB_FLOAT32)) == 0;
}

bool fb_names_float32(const fb_graph *g, fb_node n) {
    const fb_value maps[] = {fb_node_at(g, n)->args, fb_node_at(g, n)->kwargs};
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(g, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (fb_is_literal_float32(g, row->items[i])) return true;
        }
    }
    return false;
}

/* A cast: takes any dtype, and what it gives does not depend on that. */
bool fb_takes_any_dtype(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (facts->shape != FB_SHAPE_SAME || !(facts->flags & FB_FACT_ALIASES)) return false;
    return facts->dtype == FB_DTYPE_RULE_CAST ? fb_names_float32(g, n) || fb_value_dtype(g, n) != FB_FLOAT32
                                              : facts->dtype >= FB_DTYPE_RULE_BOOL;
}

/* Does the call look at the numbers or at the dtype of what it reads? A question about sizes does not. */
bool fb_reads_dtype(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    if (op == FB_OP_GETATTR) {
        fb_value name = fb_call_argument(g, n, "name");
        bool gives_tensor = fb_result_kind_of(g, n) != FB_A_NUMBER; /* x.T, sort(x).values */
        return gives_tensor || fb_value_kind(g, name) != FB_STRING || strcmp(fb_value_text(g, name), "dtype") == 0;
    }
    bool compares = op == FB_OP_ALLCLOSE || op == FB_OP_TYPES; /* two tensors */
    return !(fb_op_facts_of(op)->flags & FB_FACT_NUMBER) || compares || fb_names_float32(g, n);
}

/* A factory that is given no dtype, but can be: torch.zeros. And the method .float(). */
bool fb_takes_dtype(const fb_graph *g, fb_node n) {
    fb_dtype_rule rule = (fb_dtype_rule)fb_op_facts_of(fb_node_op(g, n))->dtype;
    bool is_factory = rule == FB_DTYPE_RULE_ARGUMENT || rule == FB_DTYPE_RULE_FULL;
    return is_factory && fb_value_dtype(g, n) == FB_FLOAT32 && !fb_node_kwarg(g, n, "dtype").id;
}

bool fb_is_float_method(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_METHOD && fb_op_facts_of(fb_node_op(g, n))->dtype == FB_DTYPE_RULE_FLOAT32;
}

typedef struct owned {
    const fb_graph *graph;
    fb_dtype dtype;
    bool has_dtype;
} owned;

static void note_dtype(void *context, fb_tensor tensor) {
    owned *o = context;
    o->has_dtype |= fb_tensor_at(o->graph, tensor)->dtype == o->dtype;
}

void fb_visit_owned(const fb_graph *g, fb_node n, void (*visit)(void *, fb_tensor), void *context) {
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
bool fb_owns_dtype(const fb_graph *g, fb_node n, fb_dtype dtype) {
    owned o = {.graph = g, .dtype = dtype};
    fb_visit_owned(g, n, note_dtype, &o);
    return o.has_dtype;
}

/* The result is float32 for any input: of integers, or of nothing at all. */
bool fb_gives_float32(const fb_graph *g, fb_node n) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, n));
    if (fb_value_dtype(g, n) != FB_FLOAT32 || fb_names_float32(g, n) || fb_owns_dtype(g, n, FB_FLOAT32)) return false;
    if (fb_takes_dtype(g, n) || fb_is_float_method(g, n)) return false;
    if (facts->dtype == FB_DTYPE_RULE_FLOAT32) return true;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_dtype dtype = fb_value_dtype(g, fb_edge_input(g, e));
        if (!dtype || dtype == FB_FLOAT32) return false;
    }
    return true;
}
