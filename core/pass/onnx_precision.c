#include "core/pass/onnx_precision.h"

#include <math.h>
#include <stdlib.h>

#include "core/analysis/onnx.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/layer.h"
#include "core/weights/dtype.h"
#include "core/weights/recipe.h"

static bool is_call(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_FUNCTION && !fb_op_is(g, n, FB_OP_GETITEM);
}

static bool is_float32(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->dtype == FB_FLOAT32;
}

/* The tensor that a get_attr node reads, or none. */
static fb_tensor tensor_of(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    bool reads = row->opcode == FB_GET_ATTR && row->module.id && row->attribute.id;
    return reads ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
}

static bool is_cast_to_float32(const fb_graph *g, fb_node n) {
    int64_t to;
    fb_value given = fb_op_is(g, n, FB_OP_ONNX_CAST) ? fb_node_kwarg(g, n, "to") : (fb_value){0};
    return given.id && fb_value_is_int(g, given, &to) && fb_onnx_dtype(to) == FB_FLOAT32;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* An input that is read as a number, though not as a float. */
static bool has_another_float(const fb_graph *g, fb_node n) {
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_dtype dtype = (fb_dtype)fb_node_at(g, fb_edge_input(g, e))->dtype;
        if (fb_dtype_is_floating(dtype) && dtype != FB_FLOAT32) return true;
    }
    return false;
}

static bool reads_float32(const fb_graph *g, fb_node n) {
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e))
        if (is_float32(g, fb_edge_input(g, e))) return true;
    return false;
}

static bool gives_float32(const fb_graph *g, fb_node n) {
    bool gives = is_float32(g, n);
    for (uint32_t e = fb_onnx_results(g, n) < 0 ? 0 : fb_user_first(g, n); e && !gives; e = fb_user_next(g, e))
        gives = is_float32(g, fb_edge_user(g, e));
    return gives;
}

static bool has_unknown_dtype(const fb_graph *g, fb_node n) {
    bool has_items = fb_onnx_results(g, n) >= 0, is_unknown = !has_items && !fb_node_at(g, n)->dtype;
    for (uint32_t e = fb_input_first(g, n); e && !is_unknown; e = fb_input_next(g, e))
        is_unknown = !fb_node_at(g, fb_edge_input(g, e))->dtype;
    for (uint32_t e = has_items ? fb_user_first(g, n) : 0; e && !is_unknown; e = fb_user_next(g, e))
        is_unknown = !fb_node_at(g, fb_edge_user(g, e))->dtype;
    return is_unknown;
}

static const fb_obstacle too_small = {"unsupported-constant", "it reads a number that the dtype has no normal number for, or "
                                                              "what is kept from being 0 by one"};

/* A weight with numbers beyond the range of the dtype, or one number that would become nothing: an epsilon. */
static fb_obstacle weight_obstacle(fb_matcher *m, fb_node n, const fb_dtype_range *range, fb_dtype to) {
    const fb_graph *g = m->graph;
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_tensor tensor = tensor_of(g, fb_edge_input(g, e));
        fb_extent extent;
        if (!tensor.id || fb_tensor_at(g, tensor)->dtype != FB_FLOAT32 || !fb_known_extent(m, tensor, to, &extent)) continue;
        if (extent.largest > range->largest)
            return (fb_obstacle){"tensor-overflows", "it reads a weight with numbers beyond the range of the dtype"};
        bool is_one = fb_tensor_bytes(g, tensor) == sizeof(float);
        if (is_one && !extent.has_zero && extent.least < range->smallest_normal) return too_small;
    }
    return FB_NO_OBSTACLE;
}

static bool has_large_attribute(const fb_graph *g, fb_node n, double largest) {
    const fb_value_row *kwargs = fb_value_at(g, fb_node_at(g, n)->kwargs);
    double number;
    for (uint32_t i = 1; i < kwargs->count; i += 2) {
        bool is_real = fb_value_kind(g, kwargs->items[i]) == FB_FLOAT;
        if (is_real && fb_value_is_number(g, kwargs->items[i], &number) && fabs(number) > largest) return true;
    }
    return false;
}

/* The root of a variance and an epsilon, and what it divides: 0 there gives nan. */
static bool minds_zero(const fb_graph *g, fb_node n, const bool *is_small) {
    bool is_one = fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_MINDS_ZERO, reads = false;
    for (uint32_t e = is_one ? fb_input_first(g, n) : 0; e; e = fb_input_next(g, e)) reads |= is_small[fb_edge_input(g, e).id];
    return reads;
}

static fb_obstacle obstacle_of(fb_matcher *m, fb_node n, fb_dtype to) {
    const fb_graph *g = m->graph;
    fb_onnx_precision takes = fb_onnx_precision_of(fb_node_target(g, n));
    fb_dtype_range range = {0};
    bool has_it = to == FB_FLOAT16 ? takes.float16 : takes.bfloat16;
    if (!has_it) return (fb_obstacle){"unsupported-operator", "it has no such dtype, at the model's opset at least"};
    if (has_unknown_dtype(g, n))
        return (fb_obstacle){"unknown-dtype", "the dtype of what it reads or gives is not recorded, and does not follow"};
    if (has_another_float(g, n)) return (fb_obstacle){"dtype", "it also reads floats of another dtype"};
    if (takes.is_first_alone && fb_onnx_results(g, n) >= 0)
        return (fb_obstacle){"unsupported-form", "its further results would keep their dtype"};
    fb_obstacle named = fb_named_obstacle(g, n);
    if (named.code) return named;
    if (!fb_dtype_limits(to, &range)) return FB_NO_OBSTACLE;
    if (has_large_attribute(g, n, range.largest))
        return (fb_obstacle){"literal-overflows", "an attribute is beyond the range of the dtype"};
    return weight_obstacle(m, n, &range, to);
}

/* Casts to float32 that a call that is converted reads. */
static void add_casts(const fb_graph *g, bool *is_converted) {
    for (fb_node n = fb_last_node(g, FB_MAIN_PROGRAM); n.id; n = fb_node_at(g, n)->previous) {
        if (!is_cast_to_float32(g, n) || fb_op_effects(g, n).is_named) continue;
        for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e))
            is_converted[n.id] |= is_converted[fb_edge_user(g, e).id];
    }
}

void fb_match_onnx_precision(fb_matcher *m, fb_dtype to, fb_keep *keep) {
    const fb_graph *g = m->graph;
    bool *is_converted = calloc(fb_node_limit(g), sizeof *is_converted), *is_small = calloc(fb_node_limit(g), sizeof *is_small);
    fb_buffer nodes = {0};
    m->failed |= !is_converted || !is_small;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (!is_call(g, n) || is_cast_to_float32(g, n) || fb_reads_type_only(g, n) || fb_is_marked(m, n)) continue;
        if (!reads_float32(g, n) || fb_keeps(keep, g, n)) continue;
        fb_obstacle obstacle = minds_zero(g, n, is_small) ? too_small : obstacle_of(m, n, to);
        is_small[n.id] = obstacle.code && strcmp(obstacle.code, too_small.code) == 0;
        if (obstacle.code && gives_float32(g, n)) fb_refuse_for(m, obstacle, &n, 1);
        is_converted[n.id] = !obstacle.code && gives_float32(g, n);
    }
    if (!m->failed) add_casts(g, is_converted);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && !m->failed; n = fb_next_node(g, n))
        if (is_converted[n.id]) fb_buffer_append(&nodes, &n, sizeof n);
    m->failed |= nodes.failed;
    if (nodes.size && !m->failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof(fb_node));
    fb_buffer_free(&nodes);
    free(is_converted);
    free(is_small);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

typedef struct conversion {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype to;
    bool *is_converted, *is_low; /* by node: what was float32 in its value is of the new dtype */
    fb_node *narrow, *wide;      /* by node: its value in the other dtype */
    fb_node *rounded;            /* by tensor: a read of it in the new dtype */
    fb_node reader;
} conversion;

/* A new weight of a module of its own, as the root has very many. */
static fb_node put_rounded(conversion *c, fb_node read, fb_tensor tensor) {
    fb_graph *g = c->graph;
    fb_module owner = fb_put_module(c->rewrite, fb_node_at(g, read)->module, fb_node_name(g, read), FB_TYPE_MODULE,
                                    FB_VALUE_EMPTY_MAP, false);
    if (owner.id)
        fb_put_parameter(c->rewrite, owner, "rounded", fb_recipe_rounded(g, tensor), c->to,
                         fb_tensor_at(g, tensor)->requires_grad);
    fb_node made = owner.id ? fb_insert_read(c->rewrite, c->reader, owner, "rounded") : (fb_node){0};
    if (made.id) fb_mark(c->rewrite, made);
    return made;
}

static fb_node narrowed(conversion *c, fb_node value) {
    fb_tensor tensor = tensor_of(c->graph, value);
    if (tensor.id) {
        if (!c->rounded[tensor.id].id) c->rounded[tensor.id] = put_rounded(c, value, tensor);
        fb_release_read(c->rewrite, value);
        return c->rounded[tensor.id];
    }
    if (!c->narrow[value.id].id) c->narrow[value.id] = fb_build_cast(c->rewrite, c->reader, c->reader, value, c->to);
    return c->narrow[value.id];
}

/* Gives the node that the reader at hand reads in place of a value. */
static fb_node read(void *context, fb_node value) {
    conversion *c = context;
    bool is_converted = c->is_converted[c->reader.id], is_low = c->is_low[value.id];
    fb_node now = value;
    if (is_converted && !is_low && is_float32(c->graph, value)) now = narrowed(c, value);
    if (!is_converted && is_low) {
        if (!c->wide[value.id].id) c->wide[value.id] = fb_build_cast(c->rewrite, c->reader, c->reader, value, FB_FLOAT32);
        now = c->wide[value.id];
    }
    return now.id ? now : value;
}

static void convert(conversion *c, fb_node n) {
    fb_graph *g = c->graph;
    const fb_node_row *row = fb_node_at(g, n);
    fb_opcode opcode = (fb_opcode)row->opcode;
    bool is_item = fb_op_is(g, n, FB_OP_GETITEM), is_cast = c->is_converted[n.id] && is_cast_to_float32(g, n);
    fb_node of = is_item ? fb_arg_node(g, n, 0) : (fb_node){0};
    c->reader = n;
    if (opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR) return;
    if (!is_item && !is_cast && !fb_reads_type_only(g, n)) {
        fb_value args = fb_value_map_nodes(g, row->args, read, c), kwargs = fb_value_map_nodes(g, row->kwargs, read, c);
        row = fb_node_at(g, n);
        if (args.id != row->args.id || kwargs.id != row->kwargs.id) fb_set_args(c->rewrite, n, args, kwargs);
    }
    if (is_cast) {
        fb_value to = fb_make_int(g, fb_onnx_dtype_number(c->to));
        fb_set_args(c->rewrite, n, fb_node_at(g, n)->args, fb_map_with(g, fb_node_at(g, n)->kwargs, "to", to));
    }
    bool is_low = (c->is_converted[n.id] || (of.id && c->is_converted[of.id])) && is_float32(g, n);
    c->is_low[n.id] = is_low;
    if (is_low) fb_set_result_type(c->rewrite, n, fb_node_at(g, n)->shape, c->to);
    if (c->is_converted[n.id]) fb_mark(c->rewrite, n);
}

void fb_convert_onnx_precision(fb_rewrite *rw, const fb_node *nodes, size_t count, fb_dtype to) {
    fb_graph *g = fb_rewrite_graph(rw);
    size_t limit = (size_t)fb_node_limit(g) + 1;
    conversion c = {.rewrite = rw,
                    .graph = g,
                    .to = to,
                    .is_converted = calloc(limit, sizeof *c.is_converted),
                    .is_low = calloc(limit, sizeof *c.is_low),
                    .narrow = calloc(limit, sizeof *c.narrow),
                    .wide = calloc(limit, sizeof *c.wide),
                    .rounded = calloc((size_t)fb_tensor_limit(g) + 1, sizeof *c.rounded)};
    bool ok = c.is_converted && c.is_low && c.narrow && c.wide && c.rounded;
    fb_node last = fb_last_node(g, FB_MAIN_PROGRAM), next;
    if (!ok) fb_graph_fail_memory(g);
    for (size_t i = 0; i < count && ok; i++) c.is_converted[nodes[i].id] = true;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && ok; n = next) {
        next = n.id == last.id ? (fb_node){0} : fb_next_node(g, n);
        if (n.id < limit) convert(&c, n);
    }
    free(c.is_converted);
    free(c.is_low);
    free(c.narrow);
    free(c.wide);
    free(c.rounded);
}
