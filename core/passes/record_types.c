/* RecordTypes: records the dtypes and shapes that follow from weights and operators, where the graph does not say them.
 *
 *     y = linear(x)     float32, as its weight
 *     z = y.view(n, 4)  float32, as y
 *
 * A tracer such as torch.fx's records neither, and passes that need them then refuse. The result of a Linear, a convolution or
 * an Embedding has the dtype of its weight; others follow by the rules of operators. Recorded types stay.
 *
 * `dtype` is what inputs are taken to be: those whose dtype is not recorded and that are not looked up in an Embedding. `rank`
 * is the number of their dimensions, where their shape is not recorded: each size becomes a symbol of its own. The option
 * "assume" of a run is this pass before the others.
 *
 * Nothing is recorded behind a switch of a mode such as autocast, which changes dtypes, nor of what reads a value that is given
 * another shape in place.
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/analysis/infer.h"
#include "core/pass/pass.h"

static bool is_unknown(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    return !row->dtype || !row->shape.id;
}

/* The assumed type of inputs. */
typedef struct assumption {
    fb_dtype dtype; /* or FB_DTYPE_UNKNOWN */
    int rank;       /* or 0 */
} assumption;

static assumption assumption_of(const json_t *params) {
    const char *name = json_string_value(json_object_get(params, "dtype"));
    int rank = (int)json_integer_value(json_object_get(params, "rank"));
    return (assumption){name ? fb_dtype_find(name) : FB_DTYPE_UNKNOWN, rank};
}

/* An input that may be a tensor: one with a default is a number or None. */
static bool may_be_assumed(const fb_graph *g, fb_node n, assumption assumed) {
    const fb_node_row *row = fb_node_at(g, n);
    bool is_tensor = row->user_count && !fb_value_at(g, row->args)->count;
    return is_tensor && ((assumed.dtype && !row->dtype) || (assumed.rank && !row->shape.id));
}

/* Sizes that nothing else has. */
static fb_value assumed_shape(fb_graph *g, fb_node n, int rank) {
    fb_value sizes[FB_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        char *symbol = NULL;
        int length = asprintf(&symbol, "%s_dim%d", fb_node_name(g, n), i);
        if (length < 0) return (fb_value){0};
        sizes[i] = fb_make_text(g, FB_STRING, symbol, (size_t)length);
        free(symbol);
    }
    return fb_make_list(g, sizes, (size_t)rank);
}

/* True where there is more to record now. */
static bool record(fb_rewrite *rw, fb_node n, assumption assumed) {
    fb_graph *g = fb_rewrite_graph(rw);
    if (fb_node_at(g, n)->opcode != FB_PLACEHOLDER) return fb_infer_what_is_missing(rw, n);
    fb_value shape = fb_node_at(g, n)->shape;
    if (!shape.id && assumed.rank) shape = assumed_shape(g, n, assumed.rank);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, n)->dtype;
    fb_set_result_type(rw, n, shape, dtype ? dtype : assumed.dtype);
    return true;
}

/* ---- what is looked up in an Embedding ---------------------------------------------------------------------------------- */

static bool keeps_dtype_of_first(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    return facts->dtype == FB_DTYPE_RULE_SAME || facts->flags & FB_FACT_ALIASES;
}

/* The inputs from which an index comes by way of views and the like. */
static void note_index(const fb_graph *g, fb_value value, bool *is_index) {
    fb_node n = fb_value_node(g, value);
    while (n.id && !is_index[n.id]) {
        is_index[n.id] = true;
        n = keeps_dtype_of_first(fb_node_op(g, n)) ? fb_value_node(g, fb_first_argument(g, n)) : (fb_node){0};
    }
}

static void find_indices(fb_matcher *m, bool *is_index) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (fb_node_op(g, n) != FB_OP_EMBEDDING) continue;
        note_index(g, fb_call_argument(g, n, "input"), is_index);
        note_index(g, fb_call_argument(g, n, "indices"), is_index);
    }
}

/* ---- the pass ----------------------------------------------------------------------------------------------------------- */

static bool is_candidate(const fb_graph *g, fb_node n, assumption assumed, const bool *is_index) {
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    if (opcode == FB_PLACEHOLDER) return may_be_assumed(g, n, assumed) && !is_index[n.id];
    return opcode != FB_OUTPUT && opcode != FB_GET_ATTR && is_unknown(g, n);
}

/* Tries on a copy what can be recorded: what one node gives says what the next one does. */
static void try_all(fb_matcher *m, const fb_alias *alias, fb_rewrite *trial, const bool *is_index) {
    const fb_graph *g = m->graph;
    assumption assumed = assumption_of(m->params);
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if (fb_mode_switched_between(alias, 0, fb_node_at(g, n)->ordinal)) break;
        if (is_candidate(g, n, assumed, is_index) && record(trial, n, assumed)) fb_match_found(m, &n, 1);
    }
    m->failed |= fb_graph_out_of_memory(fb_rewrite_graph(trial));
}

static void match_graph(fb_matcher *m) {
    const fb_alias *alias = fb_matcher_writes(m);
    if (!alias) return;
    fb_rewrite *trial = fb_rewrite_begin_trial(m->graph, m->signature);
    bool *is_index = calloc(fb_node_limit(m->graph), sizeof *is_index);
    if (trial && is_index) {
        find_indices(m, is_index);
        try_all(m, alias, trial, is_index);
    } else {
        m->failed = true;
    }
    if (trial) fb_rewrite_abort(trial);
    free(is_index);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    record(rw, match->nodes[0], assumption_of(match->params));
    fb_mark(rw, match->nodes[0]);
}

const fb_pass fb_record_types = {
    .name = "RecordTypes",
    .version = 1,
    .summary = "Records the dtypes and shapes that follow from weights and operators, where the graph does not say them.",
    .parameters =
        "{\"additionalProperties\":false,\"properties\":{\"dtype\":{\"description\":\"what inputs are taken to be whose "
        "dtype is not recorded\",\"enum\":[\"float16\",\"bfloat16\",\"float32\",\"float64\"],\"type\":\"string\"},\"rank\":"
        "{\"description\":\"how many dimensions inputs are taken to have whose shape is not recorded\",\"maximum\":8,"
        "\"minimum\":1,\"type\":\"integer\"}},\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .match_graph = match_graph,
    .edit = edit,
};
