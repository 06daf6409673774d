/* ConvertPrecision's changes to nodes: casts, literals, and the dtypes of results. */
#include <stdlib.h>

#include "core/operators/spelling.h"
#include "core/ops/infer.h"
#include "core/passes/precision.h"
#include "core/passes/precision_change.h"

typedef struct state {
    bool is_converted, is_written;
    bool is_low;  /* what was float32 in its value is in the new dtype */
    fb_node cast; /* of its value to the dtype that it has not */
} state;

typedef struct conversion {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype dtype;
    state *nodes;
    fb_node reader; /* the node at hand */
    bool reads_low;
} conversion;

/* The cast stands before the first node that reads it. Where the value is written in between, each has its own. */
static fb_node cast(conversion *c, fb_node value, fb_dtype dtype) {
    fb_graph *g = c->graph;
    state *s = &c->nodes[value.id];
    if (s->cast.id && !s->is_written) return s->cast;
    bool is_aten = fb_is_aten(g, c->reader) || fb_is_aten(g, value);
    fb_value args = FB_ARGS(g, fb_make_node(g, value), FB_TEXT(g, FB_DTYPE, fb_dtype_name(dtype)));
    s->cast = fb_insert_typed(c->rewrite, c->reader, is_aten ? FB_CALL_FUNCTION : FB_CALL_METHOD,
                              is_aten ? FB_TARGET_TO_ATEN : FB_TARGET_TO_METHOD, args, FB_VALUE_EMPTY_MAP,
                              fb_node_at(g, value)->shape, dtype);
    if (s->cast.id) fb_mark(c->rewrite, s->cast);
    return s->cast.id ? s->cast : value;
}

/* What the reader reads in the place of a value. */
static fb_node read(void *context, fb_node value) {
    conversion *c = context;
    const state *s = &c->nodes[value.id];
    bool is_converted = c->nodes[c->reader.id].is_converted;
    fb_dtype dtype = fb_value_dtype(c->graph, value);
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
        if (fb_is_float32(g, item)) now = FB_TEXT(g, FB_DTYPE, fb_dtype_name(c->dtype));
        if (fb_literal_overflows(g, n, item, c->dtype, &number)) now = fb_make_float(g, number);
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
    if (fb_takes_dtype(g, n)) {
        fb_value dtype = FB_TEXT(g, FB_DTYPE, fb_dtype_name(c->dtype));
        fb_set_args(c->rewrite, n, row->args, fb_map_with(g, row->kwargs, "dtype", dtype));
    } else if (fb_is_float_method(g, n)) {
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
    if (row->opcode == FB_OUTPUT || (!fb_takes_any_dtype(g, n) && fb_reads_dtype(g, n))) {
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
    bool was_float32 = fb_value_dtype(g, n) == FB_FLOAT32, is_untyped = !was_float32 && !row->dtype;
    convert_arguments(c, n);
    if (!s->is_converted) return;
    fb_mark(c->rewrite, n);
    s->is_low = is_untyped && c->reads_low;
    if (!was_float32) return;
    fb_shape_result found;
    bool is_known = fb_infer(g, n, &found) && found.dtype;
    bool computes_low = c->reads_low || fb_owns_dtype(g, n, c->dtype); /* EmbeddingBag reads integers, and gives its weight's */
    fb_dtype dtype = is_known ? found.dtype : computes_low ? c->dtype : FB_FLOAT32;
    s->is_low = dtype == c->dtype;
    fb_set_result_type(c->rewrite, n, row->shape, dtype);
}

/* Of a converted weight. */
static void convert_read(conversion *c, fb_node n) {
    const fb_node_row *row = fb_node_at(c->graph, n);
    fb_tensor tensor =
        row->attribute.id ? fb_module_tensor(c->graph, row->module, fb_text(c->graph, row->attribute)) : (fb_tensor){0};
    if (!c->nodes[n.id].is_converted || !tensor.id) return;
    c->nodes[n.id].is_low = fb_tensor_at(c->graph, tensor)->dtype == c->dtype;
    if (row->dtype) fb_set_result_type(c->rewrite, n, row->shape, (fb_dtype)fb_tensor_at(c->graph, tensor)->dtype);
    fb_mark(c->rewrite, n);
}

void fb_convert_nodes(fb_rewrite *rw, const fb_precision_change *change) {
    fb_graph *g = fb_rewrite_graph(rw);
    conversion c = {.rewrite = rw, .graph = g, .dtype = change->dtype, .nodes = calloc(fb_node_limit(g), sizeof *c.nodes)};
    if (!c.nodes) fb_graph_fail_memory(g);
    for (size_t i = 0; c.nodes && i < change->count; i++) c.nodes[change->nodes[i].id].is_converted = true;
    for (size_t i = 0; c.nodes && i < change->written_count; i++) c.nodes[change->written[i].id].is_written = true;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && c.nodes; n = fb_next_node(g, n)) {
        fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
        if (opcode == FB_GET_ATTR) convert_read(&c, n);
        else if (opcode != FB_PLACEHOLDER && (opcode != FB_OUTPUT || change->casts_outputs)) convert(&c, n);
    }
    free(c.nodes);
}
