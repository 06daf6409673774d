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
 * In ONNX models those operators take part that have the dtype at the model's opset (core/pass/onnx_precision.h); inputs and
 * outputs keep theirs, and programs within theirs. A single number that the dtype has no normal number for, as an epsilon,
 * keeps what reads it in float32.
 *
 * Refused: literals beyond the range of the dtype ("literal-overflows"; a mask's -3.4e38 becomes the dtype's lowest number),
 * and a graph whose inputs have no dtype. Exactness: changes. Not reversible: only the source has what was rounded away. Roll
 * back to get it.
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/infer.h"
#include "core/analysis/precision.h"
#include "core/analysis/value_dtype.h"
#include "core/analysis/view.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/keep.h"
#include "core/pass/onnx_precision.h"
#include "core/pass/round_weights.h"
#include "core/weights/dtype.h"

/* ---- weights that overflow in version 1 ---------------------------------------------------------------------------------- */

/* The float32 tensor's bytes are in the document, and some number of it is beyond `largest`. */
static bool tensor_overflows(const fb_graph *g, fb_tensor tensor, double largest) {
    fb_extent extent;
    return fb_tensor_extent(g, tensor, &extent) && extent.largest > largest;
}

typedef struct owned {
    fb_matcher *matcher;
    const fb_graph *graph;
    fb_node node;
    fb_dtype dtype;
    bool *is_seen; /* by tensor */
} owned;

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
        if (is_converted[n.id]) fb_visit_owned(g, n, refuse_overflowing, &o);
    }
    free(o.is_seen);
}

static fb_dtype dtype_to(const json_t *params) {
    return fb_dtype_find(json_string_value(json_object_get(params, "to")));
}

static bool casts_outputs(const json_t *params) {
    return !json_is_false(json_object_get(params, "cast_outputs"));
}

typedef struct precision_change {
    fb_dtype dtype; /* float16 or bfloat16 */
    bool casts_outputs;
    const fb_node *nodes; /* those which are converted, in order */
    size_t count;
    const fb_node *written; /* whose values are written in place; ends with none */
} precision_change;

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

/* The writes that end an ATen program, and the output: archives of torch.export end with them, and have no place between them.
 */
static void find_end(conversion *c) {
    fb_node n = fb_last_node(c->graph, FB_MAIN_PROGRAM);
    for (; n.id; n = fb_node_at(c->graph, n)->previous) {
        const fb_node_row *row = fb_node_at(c->graph, n);
        bool is_write = !row->user_count && strcmp(fb_node_target(c->graph, n), FB_TARGET_COPY_ATEN) == 0;
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
    s->cast = fb_build_cast(c->rewrite, place_of_cast(c, value), c->reader, value, dtype);
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
        if (fb_is_literal_float32(g, item)) now = FB_TEXT(g, FB_DTYPE, fb_dtype_name(c->dtype));
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
    if (row->opcode == FB_OUTPUT || (!c->nodes[n.id].takes_any && fb_reads_dtype(g, n))) {
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
    bool was_float32 = s->was == FB_FLOAT32, is_untyped = !was_float32 && !row->dtype, is_told = fb_names_float32(g, n);
    convert_arguments(c, n);
    if (!s->is_converted) return;
    fb_mark(c->rewrite, n);
    s->is_low = is_untyped && c->reads_low;
    if (!was_float32) return;
    fb_shape_result found;
    bool is_known = fb_infer(g, n, &found) && found.dtype;
    bool computes_low =
        c->reads_low || is_told || fb_owns_dtype(g, n, c->dtype); /* EmbeddingBag reads integers, and gives its weight's */
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
    fb_node value = fb_arg_node(c->graph, output, 0);
    if (value.id && fb_node_at(c->graph, output)->dtype)
        fb_set_result_type(c->rewrite, output, fb_node_at(c->graph, output)->shape, fb_value_dtype(c->graph, value));
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
        c.nodes[n.id].was = fb_value_dtype(g, n);
        c.nodes[n.id].takes_any = fb_takes_any_dtype(g, n);
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
        fb_dtype dtype = fb_value_dtype(g, input);
        reads |= dtype == FB_FLOAT32 || (!dtype && is_converted[input.id]);
    }
    return fb_value_dtype(g, n) == FB_FLOAT32 || fb_names_float32(g, n) ||
           (reads && fb_reads_dtype(g, n) && !fb_takes_any_dtype(g, n)) || fb_owns_dtype(g, n, FB_FLOAT32);
}

static void refuse_overflow(fb_matcher *m, fb_node n, fb_dtype dtype) {
    const fb_value maps[] = {fb_node_at(m->graph, n)->args, fb_node_at(m->graph, n)->kwargs};
    double number, now;
    for (int k = 0; k < 2; k++) {
        const fb_value_row *row = fb_value_at(m->graph, maps[k]);
        for (uint32_t i = 0; i < row->count; i++) {
            if (!fb_literal_overflows(m->graph, n, row->items[i], dtype, &now)) continue;
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

/* ---- what is converted ------------------------------------------------------------------------------------------------- */

typedef struct asked {
    fb_matcher *matcher;
    fb_keep keep;
} asked;

static bool is_kept(void *context, fb_node n) {
    asked *a = context;
    return fb_keeps(&a->keep, a->matcher->graph, n);
}

static bool is_marked(void *context, fb_node n) {
    return fb_is_marked(((asked *)context)->matcher, n);
}

static bool overflows(void *context, fb_tensor tensor) {
    fb_matcher *m = ((asked *)context)->matcher;
    fb_dtype_range range = {0};
    fb_extent extent;
    fb_dtype to = dtype_to(m->params);
    return fb_dtype_limits(to, &range) && fb_known_extent(m, tensor, to, &extent) && extent.largest > range.largest;
}

/* By node, to be freed; NULL when memory is out. Refuses what stays without being named by `keep`. */
static bool *find_staying(fb_matcher *m, const fb_alias *alias) {
    const fb_graph *g = m->graph;
    asked a = {.matcher = m};
    fb_precision precision = {
        .graph = g,
        .alias = alias,
        .usage = m->usage,
        .to = dtype_to(m->params),
        .casts_outputs = casts_outputs(m->params),
        .arena = m->arena,
        .context = &a,
        .is_kept = is_kept,
        .is_marked = is_marked,
        .overflows = m->report->pass->version > 1 ? overflows : NULL,
    };
    bool *stays = calloc(fb_node_limit(g), sizeof *stays);
    fb_obstacle *obstacles = calloc(fb_node_limit(g), sizeof *obstacles);
    bool ok = stays && obstacles && fb_keep_begin(&a.keep, m->params) && fb_find_precision(&precision, stays, obstacles);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && ok && !m->is_too_much; n = fb_next_node(g, n))
        if (obstacles[n.id].code) fb_refuse_for(m, obstacles[n.id], &n, 1);
    if (ok) fb_refuse_unused_keeps(&a.keep, m);
    fb_keep_end(&a.keep);
    free(obstacles);
    if (!ok) free(stays);
    return ok ? stays : NULL;
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

/* ONNX: the model's inputs and outputs keep their dtypes. */
static void match_onnx(fb_matcher *m) {
    fb_keep keep;
    if (!casts_outputs(m->params)) {
        fb_refuse(m, "unsupported-form", NULL, 0, "the outputs of an ONNX model keep their dtypes");
        return;
    }
    m->failed |= !fb_keep_begin(&keep, m->params);
    if (!m->failed) fb_match_onnx_precision(m, dtype_to(m->params), &keep);
    if (!m->failed) fb_refuse_unused_keeps(&keep, m);
    fb_keep_end(&keep);
}

static void edit_onnx(fb_rewrite *rw, const fb_match *match) {
    fb_convert_onnx_precision(rw, match->nodes, match->count, dtype_to(match->params));
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
    fb_round_weights(rw, match->nodes, match->count, change.dtype);
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
        .exactness = FB_CHANGES, .reversible = false, .preserves_computation = false, .reads_onnx = true,                      \
        .match_graph = match_graph, .edit = edit, .match_onnx = match_onnx, .edit_onnx = edit_onnx,                            \
    }

static const fb_pass version_1 = CONVERT_PRECISION(1, NULL);
const fb_pass fb_convert_precision = CONVERT_PRECISION(2, &version_1);
