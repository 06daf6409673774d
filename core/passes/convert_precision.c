/* ConvertPrecision: what is computed in float32 is computed in float16 or bfloat16.
 *
 *     x ── linear ── softmax ── y          x ── to(float16) ── linear ── softmax ── to(float32) ── y
 *              W                                                  W' = W rounded
 *
 * Every float32 parameter and buffer that takes part is rounded once, in a recipe. Inputs of the graph stay float32 and are
 * cast where they are read; its results are cast back unless `cast_outputs` is false. The literal torch.float32 becomes the
 * other dtype, so that casts, factories and finfo follow. `keep` names modules (paths, with * and ?) and operators (softmax)
 * that go on in float32, with casts around them. So does what is not known, and what gives float32 whatever it reads, float64
 * or complex numbers; with a value that is written in place all that share its memory, and with a call the module's other ones.
 * Other dtypes than float32 stay as they are. Results that are inputs, weights or views of them stay in float32 and share their
 * memory; results that shared memory with one another are cast each to memory of its own.
 *
 * Refused, and reported: literals beyond the range of the dtype ("literal-overflows"; a mask's -3.4e38 becomes the dtype's own
 * least number), weights in the document with such numbers ("tensor-overflows"), and a graph whose inputs have no dtype.
 * Exactness: changes. Not reversible: what was rounded away is in the source alone, to which a rollback goes.
 */
#include <stdlib.h>

#include "core/passes/precision.h"
#include "core/passes/precision_change.h"

static fb_dtype dtype_to(const json_t *params) {
    return fb_dtype_find(json_string_value(json_object_get(params, "to")));
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

/* Of an input that is read and has no dtype it cannot be told whether it is to be cast. */
static bool refuse_unknown_inputs(fb_matcher *m) {
    bool refused = false;
    for (fb_node n = fb_first_node(m->graph, FB_MAIN_PROGRAM); n.id; n = fb_next_node(m->graph, n)) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        if (row->opcode != FB_PLACEHOLDER || row->dtype || !row->user_count) continue;
        fb_refuse_node(m, "unknown-dtype", n, "the dtype of this input is not recorded, so nothing can be converted");
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
           (reads && fb_reads_dtype(g, n) && !fb_takes_any_dtype(g, n)) || fb_owns_float32(g, n);
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

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    if (refuse_unknown_inputs(m)) return;
    const fb_alias *alias = fb_matcher_alias(m);
    bool *stays = alias ? fb_find_staying(m, alias) : NULL, *is_converted = calloc(fb_node_limit(g), sizeof *is_converted);
    fb_buffer nodes = {0};
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && stays && is_converted && fb_matcher_goes_on(m);
         n = fb_next_node(g, n)) {
        if (stays[n.id] || fb_node_at(g, n)->opcode == FB_OUTPUT || !is_concerned(g, is_converted, n)) continue;
        is_converted[n.id] = true;
        fb_buffer_append(&nodes, &n, sizeof n);
        refuse_overflow(m, n, dtype_to(m->params));
    }
    bool has_match = nodes.size > 0;
    if (has_match) fb_refuse_overflowing_weights(m, is_converted, dtype_to(m->params));
    fb_buffer_append(&nodes, &(fb_node){0}, sizeof(fb_node)); /* behind it: values that are written in place */
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && has_match; n = fb_next_node(g, n)) {
        if (fb_is_mutated(alias, n)) fb_buffer_append(&nodes, &n, sizeof n);
    }
    m->failed |= !stays || !is_converted || nodes.failed;
    if (has_match && !m->failed) fb_match_found(m, (const fb_node *)(const void *)nodes.data, nodes.size / sizeof(fb_node));
    fb_buffer_free(&nodes);
    free(is_converted);
    free(stays);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static void edit(fb_rewrite *rw, const fb_match *match) {
    size_t count = 0;
    while (match->nodes[count].id) count++;
    fb_precision_change change = {
        .dtype = dtype_to(match->params),
        .casts_outputs = fb_casts_outputs(match->params),
        .nodes = match->nodes,
        .count = count,
        .written = match->nodes + count + 1,
        .written_count = match->count - count - 1,
    };
    fb_convert_weights(rw, &change);
    fb_convert_nodes(rw, &change);
}

const fb_pass fb_convert_precision = {
    .name = "ConvertPrecision",
    .version = 1,
    .summary =
        "What is computed in float32 is computed in float16 or bfloat16; inputs and results of the graph keep their dtype.",
    .parameters =
        "{\"additionalProperties\":false,\"properties\":{"
        "\"cast_outputs\":{\"default\":true,\"description\":\"cast results back to float32\",\"type\":\"boolean\"},"
        "\"keep\":{\"default\":[],\"description\":\"what stays in float32: paths of modules, in which * and ? stand for "
        "others, and operators such as softmax or layer_norm\",\"items\":{\"type\":\"string\"},\"type\":\"array\"},"
        "\"to\":{\"enum\":[\"float16\",\"bfloat16\"],\"type\":\"string\"}},\"required\":[\"to\"],\"type\":\"object\"}",
    .exactness = FB_CHANGES,
    .reversible = false,
    .preserves_computation = false,
    .match_graph = match_graph,
    .edit = edit,
};
