/* FoldShapes: replaces Python values that are known without running the graph with numbers.
 *
 *     x ── size ── [0] ──┐
 *     x ──────────────── view(·, -1, 4, 8)          x ── view(2, -1, 4, 8)
 *
 * Replaces sizes that are recorded as ints, and what follows from them: shapes, their slices and sums, arithmetic on sizes,
 * x.dtype and torch.finfo(x.dtype).min. Also replaces a tensor without dimensions that is full of such a number, where
 * elementwise arithmetic reads it beside a tensor of the same dtype.
 *
 * Afterwards, a graph whose shapes are recorded as ints is valid only for these shapes. To keep an axis open, give it a
 * symbolic size ("s0"): the pass leaves it alone.
 *
 * Kept:
 *   - what the graph returns
 *   - what an unknown operator reads, or whose method or attribute is read (a torch.Size has more of them than a tuple)
 *   - a tensor where PyTorch takes only tensors (torch.maximum: core/ops/calls.def)
 *   - what is asked of a tensor that is written in place, because the write may change its shape
 *
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>

#include "core/ops/calls.h"
#include "core/passes/known.h"
#include "core/passes/pass.h"
#include "core/weights/convert.h"

#define NODES_OF_A_VALUE 64 /* as many others may be looked at for one */
#define DEEPEST 4           /* slices of slices of a torch.Size */

/* full([], 2.8, dtype=float32): the number, rounded to the dtype. */
static bool number_in_tensor(const fb_graph *g, fb_node n, fb_known *known) {
    const fb_node_row *row = fb_node_at(g, n);
    if (!fb_op_is(g, n, FB_OP_FULL) || fb_is_aten(g, n) || !row->shape.id || fb_shape_rank(g, row->shape)) return false;
    if (!fb_dtype_is_computed((fb_dtype)row->dtype)) return false;
    fb_value fill = fb_call_argument(g, n, "fill_value");
    fb_node computed = fb_value_node(g, fill);
    known->kind = FB_KNOWN_FLOAT;
    if (!computed.id && !fb_value_is_number(g, fill, &known->real)) return false;
    if (computed.id && (!fb_known_at(g, computed, known) || known->kind != FB_KNOWN_FLOAT)) return false;
    fb_round_numbers((fb_dtype)row->dtype, &known->real, 1);
    return true;
}

static bool find(const fb_graph *g, fb_node n, fb_known *known) {
    return fb_known_at(g, n, known) || number_in_tensor(g, n, known);
}

/* Does the reader give the same with the number in the place of the tensor? It does where PyTorch takes one there, beside a
 * tensor with dimensions, whose dtype decides. */
static bool takes_number(const fb_graph *g, fb_node tensor, fb_node reader) {
    const fb_node_row *row = fb_node_at(g, reader), *now = fb_node_at(g, tensor);
    fb_op op = fb_node_op(g, reader);
    bool is_beside = false;
    if (!(fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE) || (op & FB_OP_IN_PLACE) || fb_is_aten(g, reader)) return false;
    if (row->opcode == FB_CALL_MODULE || row->dtype != now->dtype || !fb_call_takes_number(g, reader, tensor)) return false;
    for (uint32_t e = fb_input_first(g, reader); e; e = fb_input_next(g, e)) {
        const fb_node_row *input = fb_node_at(g, fb_edge_input(g, e));
        is_beside |= input->dtype == now->dtype && input->shape.id && fb_shape_rank(g, input->shape) > 0;
    }
    return is_beside;
}

static const char *reader_obstacle(const fb_graph *g, fb_node n, fb_node reader, int depth, const char **detail);

static bool gives_size(const fb_graph *g, fb_node n) {
    fb_known known;
    return fb_known_at(g, n, &known) && known.kind == FB_KNOWN_SIZES && known.sizes.is_sequence;
}

/* A slice or sum of a torch.Size is one, and a tuple's is a tuple: does the reader give one that stays? */
static bool keeps_size(const fb_graph *g, fb_node n, fb_node reader, int depth) {
    fb_known known;
    const char *ignored;
    bool may_be_one = fb_op_is(g, reader, FB_OP_GETITEM) || fb_op_is(g, reader, FB_OP_ADD) || fb_op_is(g, reader, FB_OP_MUL);
    if (!may_be_one || !gives_size(g, n)) return false;
    if (!fb_known_at(g, reader, &known) || depth > DEEPEST) return true;
    bool stays = false;
    for (uint32_t e = gives_size(g, reader) ? fb_user_first(g, reader) : 0; e && !stays; e = fb_user_next(g, e))
        stays = reader_obstacle(g, reader, fb_edge_user(g, e), depth + 1, &ignored) != NULL;
    return stays;
}

static const char *reader_obstacle(const fb_graph *g, fb_node n, fb_node reader, int depth, const char **detail) {
    const fb_node_row *row = fb_node_at(g, reader);
    *detail = "the graph returns it";
    if (row->opcode == FB_OUTPUT) return "graph-output";
    *detail = "what reads it is not known, or asks for an attribute or a method of it";
    if (fb_op_is(g, reader, FB_OP_UNKNOWN) || fb_runs_inside(g, reader)) return "unknown-operator";
    bool is_asked = row->opcode == FB_CALL_METHOD || fb_op_is(g, reader, FB_OP_GETATTR);
    if (is_asked && fb_value_node(g, fb_first_argument(g, reader)).id == n.id) return "unknown-operator";
    *detail = "a slice or sum of it stays, which is a torch.Size, and would become a tuple";
    if (keeps_size(g, n, reader, depth)) return "unsupported-reader";
    *detail = "what reads it takes no number in its place, or may give another dtype beside one";
    return fb_op_is(g, n, FB_OP_FULL) && !takes_number(g, n, reader) ? "unsupported-reader" : NULL;
}

/* Is everything that it is computed from known for good? `settled` is so far, by node. */
static bool is_settled(const fb_graph *g, const fb_alias *alias, fb_node n, const bool *settled, bool *is_written) {
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        if (fb_is_python_number(g, input)) {
            if (!settled[input.id] && !fb_op_is(g, n, FB_OP_FULL)) return false; /* a device may stay */
        } else if (fb_is_mutated(alias, input)) {
            *is_written = true;
            return false;
        }
    }
    return true;
}

static void match_known(fb_matcher *m, const fb_alias *alias, fb_node n, bool *settled) {
    const fb_graph *g = m->graph;
    const char *detail = NULL, *reason = NULL;
    bool is_written = false;
    settled[n.id] = is_settled(g, alias, n, settled, &is_written);
    is_written |= fb_op_is(g, n, FB_OP_FULL) && fb_is_mutated(alias, n);
    if (is_written) fb_refuse_node(m, "mutated", n, "it, or what it is asked of, is written in place, and may become another");
    if (is_written || !settled[n.id] || !fb_node_at(g, n)->user_count) return;
    for (uint32_t e = fb_user_first(g, n); e && !reason && fb_matcher_goes_on(m); e = fb_user_next(g, e))
        reason = reader_obstacle(g, n, fb_edge_user(g, e), 0, &detail);
    if (reason) fb_refuse_node(m, reason, n, "%s", detail);
    else fb_match_found(m, &n, 1);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_alias(m);
    bool *settled = calloc(fb_node_limit(g), sizeof *settled);
    m->failed |= !settled;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_takes(m, NODES_OF_A_VALUE); n = fb_next_node(g, n)) {
        fb_known known;
        bool ignored = false;
        if (find(g, n, &known)) match_known(m, alias, n, settled);
        else if (fb_op_is(g, n, FB_OP_DTYPE_INFO)) settled[n.id] = is_settled(g, alias, n, settled, &ignored);
    }
    free(settled);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_known known;
    if (find(fb_rewrite_graph(rw), match->nodes[0], &known))
        fb_write_literal(rw, match->nodes[0], fb_make_known(fb_rewrite_graph(rw), &known));
}

const fb_pass fb_fold_shapes = {
    .name = "FoldShapes",
    .version = 1,
    .summary = "Replaces recorded sizes and dtypes, and arithmetic on them, with numbers.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .only_removes = true,
    .match_graph = match_graph,
    .edit = edit,
};
