/* The weights of what ConvertPrecision converts. */
#include <stdlib.h>

#include "core/passes/precision.h"
#include "core/passes/precision_change.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

/* ---- match --------------------------------------------------------------------------------------------------------------- */

static bool is_float32(const fb_graph *g, fb_tensor tensor) {
    return fb_tensor_at(g, tensor)->dtype == FB_FLOAT32;
}

typedef struct owned {
    fb_matcher *matcher;
    const fb_graph *graph;
    fb_node node;
    fb_dtype dtype;
    bool *is_seen; /* by tensor */
    bool has_dtype;
} owned;

static void look_at(void *context, fb_tensor tensor) {
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
    visit_owned(g, n, look_at, &o);
    return o.has_dtype;
}

static void refuse_overflowing(void *context, fb_tensor tensor) {
    owned *o = context;
    fb_dtype_range range;
    if (o->is_seen[tensor.id] || !is_float32(o->graph, tensor) || !fb_dtype_limits(o->dtype, &range)) return;
    o->is_seen[tensor.id] = true;
    if (!fb_tensor_overflows(o->graph, tensor, range.largest)) return;
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

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

typedef struct conversion {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype dtype;
    fb_tensor *now; /* by tensor: what stands in its place */
} conversion;

/* Rounded: evaluated in float64 and written in the new dtype, as every recipe that computes. */
static void exchange(conversion *c, fb_module owner, const char *attribute, fb_tensor old) {
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

static void exchange_all(conversion *c, fb_module owner, fb_value map) {
    const fb_value_row *row = fb_value_at(c->graph, map);
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        const fb_value_row *value = fb_value_at(c->graph, row->items[i + 1]);
        if (value->kind == FB_TENSOR) exchange(c, owner, fb_value_text(c->graph, row->items[i]), value->tensor);
    }
}

static void convert_all(conversion *c, const fb_node *nodes, size_t count, const fb_usage *usage, bool *is_called) {
    fb_graph *g = c->graph;
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(g, nodes[i]);
        if (row->opcode == FB_CALL_MODULE) is_called[row->module.id] = true;
    }
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        fb_module deciding = fb_deciding_module(g, usage, m);
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

void fb_convert_weights(fb_rewrite *rw, const fb_precision_change *change) {
    fb_graph *g = fb_rewrite_graph(rw);
    conversion c = {.rewrite = rw, .graph = g, .dtype = change->dtype, .now = calloc(fb_tensor_limit(g), sizeof *c.now)};
    bool *is_called = calloc(fb_module_limit(g), sizeof *is_called);
    fb_usage *usage = fb_usage_new(g);
    if (c.now && is_called && usage) convert_all(&c, change->nodes, change->count, usage, is_called);
    else fb_graph_fail_memory(g);
    fb_usage_free(usage);
    free(is_called);
    free(c.now);
}
