/* FuseAttention: attention that is spelled out becomes one call of scaled_dot_product_attention.
 *
 *     q ────────────────────────┐
 *     k ── transpose(-1, -2) ── matmul ── / √d ── + mask ── softmax(-1) ── dropout ─┐
 *     v ────────────────────────────────────────────────────────────────────── matmul ── y
 *
 *     q ─┐
 *     k ─┼─ scaled_dot_product_attention(attn_mask=mask, scale=1/√d) ── y
 *     v ─┘
 *
 * In all dialects (in ONNX: Attention, from opset 23 on), for q, k and v of four dimensions and one floating dtype. The scores
 * may be scaled before the mask, or q or k before the product; the mask may be added, or numbers of the scores replaced
 * (where, masked_fill) by -inf or by a number near the lowest of the dtype: then the mask is added, so that a row which is
 * masked as a whole stays the average that softmax makes of it. Dropout must be in eval mode. Casts to the same dtype go;
 * half floats may be cast to float32 around the softmax, as PyTorch's attention does. Assertions of the dtype, device and
 * layout of a value in between (torch.export writes them)
 * assert q's afterwards.
 *
 * Kept:
 *   - where the scores or the weights have other readers, such as the caller (output_attentions)
 *   - three dimensions (bmm), for which PyTorch has no fused kernel, so that it would be slower
 *   - a mask of -inf by which a row may be masked as a whole, or one that is added and may hold -inf: PyTorch's softmax gives
 *     nan there, and its attention 0. Not where a constant shows that no row is, nor where the first column is open as the mask
 *     is made: arange(S) <= arange(L)[:, None], tril(ones), triu(full(-inf), 1); nor where all that the mask is made of is
 *     finite: where(·, 0, lowest), (1 - bools) * lowest; but not of integers, which may be 3. With `masked_rows` such masks are
 *     taken all the same
 *   - in ONNX: a mask with one row for all queries, which ONNX Runtime refuses, and a scale that is not above 0, of which
 *     Attention takes the root; ONNX Runtime, too, gives 0 for a row that is masked as a whole
 *   - what has such products and a softmax, and something else between them
 *   - where a reader may notice that the result has the strides of q, and is not row-major. A reshape, flatten or cat that
 * gives rows of either does not, where q is row-major or its heads and rows are exchanged, as a transposition leaves them; with
 *     another q it may
 *   - where q, k, v or the mask is written in place meanwhile, or later: the operator keeps them for its gradient
 *
 * Where scores are nan, PyTorch's fused attention may give 0 in place of nan.
 *
 * Exactness: rounds (the same function; sums go in another order). Reversible.
 */
#include <math.h>
#include <stdlib.h>

#include "core/analysis/identity.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/value_range.h"
#include "core/base/base64.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/layer.h"
#include "core/weights/dtype.h"

enum { INNER_MAX = 16 }; /* nodes of one attention; more are not looked for */

typedef enum mask_form {
    NO_MASK,
    ADDED,    /* scores + mask */
    SELECTED, /* where(mask, scores, fill) */
    FILLED,   /* masked_fill(scores, mask, fill) */
} mask_form;

typedef struct attention {
    fb_node node;             /* the product with the values, which becomes the call */
    fb_node inner[INNER_MAX]; /* what goes, last first */
    size_t count, before;     /* how many; the index of the first before the transposition */
    fb_node softmax, first;   /* first: the product of queries and keys */
    fb_node query, key, value, mask;
    fb_node transposition; /* of the keys; none: `key` is (…, E, S), as the product takes it */
    mask_form form;
    bool is_added;      /* the mask, though it replaces scores */
    double scale, fill; /* fill: nan where it is not certain */
    fb_obstacle doubt;  /* why what goes may do something: dropout in training mode */
} attention;

static bool add_inner(attention *a, fb_node node) {
    if (a->count == INNER_MAX) return false;
    a->inner[a->count++] = node;
    return true;
}

/* ---- finding it, from its end -------------------------------------------------------------------------------------------- */

static bool is_product(const fb_graph *g, fb_node node, fb_node *a, fb_node *b) {
    if (!fb_op_is(g, node, FB_OP_MATMUL) || fb_argument_count(g, node) != 2) return false;
    *a = fb_call_argument_node(g, node, "input");
    *b = fb_call_argument_node(g, node, "other");
    return a->id && b->id;
}

static bool bounds_of(fb_matcher *m, fb_node value, fb_node reader, fb_bounds *out) {
    const fb_alias *alias = fb_matcher_writes(m);
    return alias && fb_bounds_of(m->graph, alias, m->work, value, reader, out);
}

/* A number, or a tensor without dimensions that has one value for certain. */
static bool is_number(fb_matcher *m, fb_node call, fb_value argument, double *number) {
    const fb_graph *g = m->graph;
    fb_bounds bounds;
    if (fb_constant_number(g, argument, number)) return true;
    fb_node node = fb_value_node(g, argument);
    if (!node.id || fb_node_rank(g, node) != 0) return false;
    if (!bounds_of(m, node, call, &bounds) || bounds.least != bounds.largest) return false;
    *number = bounds.least;
    return true;
}

/* x * c, c * x and x / c, with a number that is neither zero nor infinite. */
static bool is_scaling(fb_matcher *m, fb_node node, fb_node *x, double *factor) {
    const fb_graph *g = m->graph;
    fb_division division;
    double number;
    if (fb_argument_count(g, node) != 2) return false;
    if (fb_division_at(g, node, &division)) {
        *x = fb_value_node(g, division.numerator);
        if (!x->id || !is_number(m, node, division.divisor, &number)) return false;
        *factor = 1 / number;
    } else {
        if (!fb_op_is(g, node, FB_OP_MUL)) return false;
        fb_value a = fb_call_argument(g, node, "input"), b = fb_call_argument(g, node, "other");
        if (!a.id || !b.id) return false;
        bool is_first = is_number(m, node, a, &number);
        if (!is_first && !is_number(m, node, b, &number)) return false;
        *x = fb_value_node(g, is_first ? b : a);
        *factor = number;
    }
    return x->id && isfinite(*factor) && *factor != 0;
}

/* Does the call give what it is given: dropout, a cast? */
static bool is_passed_on(const fb_graph *g, fb_node node, fb_identity *same) {
    if (fb_identity_at(g, node, same))
        return same->form == FB_IDENTITY_ITSELF && (fb_node_op(g, node) & ~FB_OP_IN_PLACE) != FB_OP_DETACH;
    return fb_cast_at(g, node, same);
}

/* Skips nodes that return their input, which the match removes; gives the node before them. */
static fb_node before_identities(const fb_graph *g, attention *a, fb_node node) {
    fb_identity same;
    while (is_passed_on(g, node, &same) && add_inner(a, node)) {
        if (!a->doubt.code) a->doubt = same.doubt;
        node = same.input;
    }
    return node;
}

/* Scalings on the way back go as well. */
static fb_node before_scalings(fb_matcher *m, attention *a, fb_node node) {
    fb_node x;
    double factor;
    node = before_identities(m->graph, a, node);
    while (is_scaling(m, node, &x, &factor) && add_inner(a, node)) {
        a->scale *= factor;
        node = before_identities(m->graph, a, x);
    }
    return node;
}

/* Scalings of the queries or keys, where nothing else reads the scaled value: it may be shared. */
static fb_node before_own_scalings(fb_matcher *m, attention *a, fb_node node) {
    fb_node x;
    double factor;
    while (fb_node_at(m->graph, node)->user_count == 1 && is_scaling(m, node, &x, &factor) && add_inner(a, node)) {
        a->scale *= factor;
        node = x;
    }
    return node;
}

/* The scores, from there to the queries and keys. */
static bool find_scores(fb_matcher *m, attention *a, fb_node node) {
    const fb_graph *g = m->graph;
    fb_node keys;
    fb_rearrange turned;
    a->first = before_scalings(m, a, node);
    if (!is_product(g, a->first, &a->query, &keys) || !add_inner(a, a->first)) return false;
    a->query = before_own_scalings(m, a, a->query);
    keys = before_own_scalings(m, a, keys);
    a->key = keys;
    bool is_turned = fb_permutation_at(g, keys, &turned) && turned.rank == 4 && turned.dims[0] == 0 && turned.dims[1] == 1 &&
                     turned.dims[2] == 3;
    if (!is_turned) return true;
    a->transposition = keys;
    a->before = a->count;
    a->key = fb_node_at(g, keys)->user_count == 1 ? before_own_scalings(m, a, turned.input) : turned.input;
    return true;
}

static bool is_filled(fb_matcher *m, attention *a, fb_node node, fb_value fill) {
    fb_node read = fb_value_node(m->graph, fill);
    double number;
    bool is_one = fill.id && (fb_constant_number(m->graph, fill, &number) || !read.id || fb_node_rank(m->graph, read) <= 0);
    if (is_one && !is_number(m, node, fill, &a->fill)) a->fill = NAN;
    return is_one;
}

/* Tries `scores` for what the mask is laid on: takes back what it has found when it is not. */
static bool is_on(fb_matcher *m, attention *a, fb_node scores, fb_node mask, mask_form form) {
    attention before = *a;
    a->mask = mask;
    a->form = form;
    if (scores.id && mask.id && find_scores(m, a, scores)) return true;
    *a = before;
    return false;
}

static bool find_masked_scores(fb_matcher *m, attention *a, fb_node node) {
    const fb_graph *g = m->graph;
    fb_op op = fb_node_op(g, node);
    size_t count = a->count;
    if (!add_inner(a, node)) return false;
    fb_selection selections[2];
    size_t ways = fb_selections_at(g, node, selections);
    for (size_t i = 0; i < ways; i++) {
        const fb_selection *way = &selections[i];
        if (is_filled(m, a, node, way->fill) && is_on(m, a, way->values, way->mask, way->fills ? FILLED : SELECTED))
            return true;
    }
    if ((op & ~FB_OP_IN_PLACE) == FB_OP_ADD && fb_argument_count(g, node) == 2) {
        fb_node x = fb_call_argument_node(g, node, "input"), y = fb_call_argument_node(g, node, "other");
        if (is_on(m, a, x, y, ADDED) || (!(op & FB_OP_IN_PLACE) && is_on(m, a, y, x, ADDED))) return true;
    }
    a->count = count;
    return find_scores(m, a, node);
}

/* Over the last dimension, in the dtype that it is given or a wider one. */
static bool is_softmax(const fb_graph *g, fb_node node, fb_node *x) {
    int axis;
    if (!fb_softmax_axis(g, node, 4, &axis) || axis != 3) return false;
    *x = fb_call_argument_node(g, node, "input");
    return x->id;
}

static bool find(fb_matcher *m, fb_node n, attention *a) {
    const fb_graph *g = m->graph;
    *a = (attention){.node = n, .scale = 1};
    fb_node x;
    if (!is_product(g, n, &a->softmax, &a->value)) return false;
    a->softmax = before_identities(g, a, a->softmax);
    if (!is_softmax(g, a->softmax, &x) || !add_inner(a, a->softmax)) return false;
    return find_masked_scores(m, a, before_identities(g, a, x));
}

/* ---- what looks like it ----------------------------------------------------------------------------------------------- */

static bool is_any_product(const fb_graph *g, fb_node node) {
    fb_op op = fb_node_op(g, node);
    return op == FB_OP_MATMUL || op == FB_OP_BMM || op == FB_OP_BADDBMM || op == FB_OP_EINSUM;
}

static bool is_any_softmax(const fb_graph *g, fb_node node) {
    return fb_op_is(g, node, FB_OP_SOFTMAX) || fb_op_is(g, node, FB_OP_NATIVE_SOFTMAX) || fb_op_is(g, node, FB_OP_ONNX_SOFTMAX);
}

/* The node of such a kind before this one, with only what keeps the shape and views between them; or none. */
static fb_node find_before(const fb_graph *g, fb_node node, bool (*is_wanted)(const fb_graph *, fb_node)) {
    fb_node open[INNER_MAX] = {node};
    for (size_t i = 0, count = 1; i < count; i++) {
        for (uint32_t e = fb_input_first(g, open[i]); e; e = fb_input_next(g, e)) {
            fb_node input = fb_edge_input(g, e);
            fb_effects effects = fb_op_effects(g, input);
            const fb_op_facts *facts = fb_op_facts_of(fb_node_op(g, input));
            bool is_step = (facts->flags & FB_FACT_ELEMENTWISE) || facts->shape == FB_SHAPE_SAME ||
                           fb_op_is(g, input, FB_OP_MASKED_FILL) || effects.may_alias_input;
            if (is_wanted(g, input)) return input;
            if (is_step && !effects.is_unknown && count < INNER_MAX) open[count++] = input;
        }
    }
    return (fb_node){0};
}

static bool looks_like_it(const fb_graph *g, fb_node n) {
    fb_node softmax = is_any_product(g, n) ? find_before(g, n, is_any_softmax) : (fb_node){0};
    return softmax.id && find_before(g, softmax, is_any_product).id;
}

/* ---- obstacles ----------------------------------------------------------------------------------------------------------- */

static bool are_alike(const fb_type *a, const fb_type *b, int from, int to) {
    for (int i = from; i < to; i++) {
        if (!fb_dim_equal(a->sizes[i], b->sizes[i])) return false;
    }
    return true;
}

static bool recorded(const fb_graph *g, fb_node node, fb_type *out) {
    return fb_recorded_shape(g, node, out) && out->rank >= 0 && out->dtype;
}

/* True if PyTorch's attention computes in that dtype: of half floats, the softmax in float32 as well. */
static bool is_computed_in(fb_dtype dtype, const fb_node_row *inner) {
    bool is_half = dtype == FB_FLOAT16 || dtype == FB_BFLOAT16;
    return inner->dtype == dtype || (is_half && inner->dtype == FB_FLOAT32);
}

/* (B, H, L, E), (B, H, S, E) and (B, H, S, Ev), all recorded, and a mask that broadcasts to (B, H, L, S). */
static fb_obstacle shape_obstacle(const fb_graph *g, const attention *a) {
    fb_type q, k, v, s, m;
    fb_node keys = fb_call_argument_node(g, a->first, "other");
    bool is_known =
        recorded(g, a->query, &q) && recorded(g, keys, &k) && recorded(g, a->value, &v) && recorded(g, a->first, &s);
    if (!is_known || (a->mask.id && !recorded(g, a->mask, &m)))
        return (fb_obstacle){"unknown-shape", "shapes and dtypes of what it reads are not all recorded" FB_RECORD_SHAPE};
    if (q.rank != 4 || k.rank != 4 || v.rank != 4)
        return (fb_obstacle){"unsupported-shape", "PyTorch has a fused kernel for four dimensions only"};
    if (!are_alike(&q, &k, 0, 2) || !are_alike(&q, &v, 0, 2) || !fb_dim_equal(k.sizes[3], v.sizes[2]))
        return (fb_obstacle){"shape-mismatch", "queries, keys and values differ in batch, heads or length"};
    bool is_one_dtype = q.dtype == k.dtype && q.dtype == v.dtype && q.dtype == s.dtype && fb_dtype_is_computed(q.dtype) &&
                        fb_node_at(g, a->node)->dtype == q.dtype &&
                        fb_node_at(g, fb_call_argument_node(g, a->node, "input"))->dtype == q.dtype;
    for (size_t i = 0; i < a->count; i++) is_one_dtype &= is_computed_in(q.dtype, fb_node_at(g, a->inner[i]));
    if (!is_one_dtype) return (fb_obstacle){"dtype", "it is not computed in one floating dtype"};
    if (!a->mask.id) return fb_attention_obstacle(g, s.sizes[2], s.sizes[2], a->scale);
    if (m.dtype != (a->form == ADDED ? q.dtype : FB_BOOL))
        return (fb_obstacle){"dtype", a->form == ADDED ? "its mask is of another dtype" : "its mask is not of bool"};
    if (m.rank < 2 || m.rank > 4)
        return (fb_obstacle){"unsupported-shape", "its mask has neither two nor three nor four dimensions"};
    for (int i = 0; i < m.rank; i++) {
        if (!fb_dim_is(m.sizes[i], 1) && !fb_dim_equal(m.sizes[i], s.sizes[4 - m.rank + i]))
            return (fb_obstacle){"shape-mismatch", "its mask is not of the size of the scores"};
    }
    return fb_attention_obstacle(g, m.sizes[m.rank - 2], s.sizes[2], a->scale);
}

/* A constant mask: is each of its rows open somewhere? */
static bool has_open_rows(fb_matcher *m, const attention *a) {
    const fb_graph *g = m->graph;
    fb_node read = fb_op_is(g, a->mask, FB_OP_EXPAND) ? fb_value_node(g, fb_first_argument(g, a->mask)) : a->mask;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_tensor tensor;
    if (!alias || !read.id || !fb_reads_constant(g, alias, read, &tensor)) return false;
    const fb_tensor_row *row = fb_tensor_at(g, tensor);
    fb_dtype dtype = (fb_dtype)row->dtype;
    size_t width = fb_dtype_size(dtype), size = fb_base64_size(fb_text(g, row->data), fb_text_length(g, row->data));
    int64_t columns = fb_shape_rank(g, row->shape) ? fb_shape_size(g, row->shape, -1) : 1, at = 0;
    bool is_open = false;
    for (size_t i = 0; i < size && fb_matcher_goes_on(m); i += width) {
        unsigned char bytes[8];
        double number = 0;
        fb_base64_decode(fb_text(g, row->data), i, width, bytes);
        if (dtype != FB_BOOL) fb_decode_numbers(dtype, bytes, 1, &number);
        is_open |= a->form == ADDED ? number > -INFINITY : (bytes[0] != 0) == (a->form == SELECTED);
        if (++at < columns) continue;
        if (!is_open) return false;
        is_open = false;
        at = 0;
    }
    return true;
}

/* Is each row open in the first column for certain, as the rows of a causal mask are? In float16 a score that a mask is added
 * to may become infinite. */
static bool has_open_first_column(fb_matcher *m, const attention *a) {
    const fb_alias *alias = fb_matcher_writes(m);
    fb_bounds found;
    if (m->report->pass->version < 2 || !alias) return false;
    if (!fb_bounds_of_first_column(m->graph, alias, m->work, a->mask, a->node, &found)) return false;
    bool is_zero = found.least == 0 && found.largest == 0;
    if (a->form == SELECTED) return found.least == 1 && found.largest == 1;
    if (a->form == FILLED || fb_node_at(m->graph, a->first)->dtype == FB_FLOAT16) return is_zero;
    return isfinite(found.least) && isfinite(found.largest);
}

/* Is a number that is written into a tensor of this dtype finite there? */
static bool is_finite_in(fb_dtype dtype, double number) {
    fb_dtype_range range;
    return fb_dtype_limits(dtype, &range) && fabs(number) <= range.largest;
}

/* A score is lost in a number so low, so the mask may be added in place of it. In float16 it is not. */
static bool swallows_scores(const fb_graph *g, const attention *a) {
    fb_dtype dtype = (fb_dtype)fb_node_at(g, a->first)->dtype;
    return isfinite(a->fill) && dtype != FB_FLOAT16 && is_finite_in(dtype, a->fill);
}

/* Where no constant shows that no row is masked as a whole, scores are replaced by adding. */
static bool must_be_added(fb_matcher *m, const attention *a) {
    return (a->form == SELECTED || a->form == FILLED) && swallows_scores(m->graph, a) && !has_open_rows(m, a);
}

/* Is what is added finite for certain? In float16 a score may make it infinite. */
static bool adds_no_infinity(fb_matcher *m, const attention *a) {
    fb_bounds bounds;
    return fb_node_at(m->graph, a->first)->dtype != FB_FLOAT16 && bounds_of(m, a->mask, a->node, &bounds) &&
           isfinite(bounds.least) && isfinite(bounds.largest);
}

static fb_obstacle mask_obstacle(fb_matcher *m, const attention *a) {
    const fb_graph *g = m->graph;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, a->first)->dtype;
    fb_dtype_range range;
    if (!a->mask.id) return FB_NO_OBSTACLE;
    bool is_low = a->form == ADDED || a->fill == -INFINITY || (fb_dtype_limits(dtype, &range) && a->fill <= -range.largest / 2);
    if (!is_low)
        return (fb_obstacle){"unsupported-constant", "what masked scores become is not near the lowest number for certain"};
    bool may_differ = json_is_true(json_object_get(m->params, "masked_rows")) && (a->form == ADDED || a->fill == -INFINITY);
    if (may_differ || has_open_rows(m, a)) return FB_NO_OBSTACLE;
    if (a->form == ADDED ? adds_no_infinity(m, a) : swallows_scores(g, a)) return FB_NO_OBSTACLE;
    if (has_open_first_column(m, a)) return FB_NO_OBSTACLE;
    return (fb_obstacle){"masked-row", "a row may be masked as a whole, where PyTorch's softmax and its attention differ"};
}

/* Each reader of it goes as well, or asserts what is true of the queries. */
static bool is_read_inside(const fb_graph *g, const attention *a, fb_node node) {
    if (fb_node_at(g, node)->user_count > INNER_MAX) return false;
    for (uint32_t e = fb_user_first(g, node); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_inside = user.id == a->node.id || user.id == a->transposition.id || fb_asserts_as_well(g, user, node, a->query);
        for (size_t i = 0; i < a->count; i++) is_inside |= user.id == a->inner[i].id;
        if (!is_inside) return false;
    }
    return true;
}

static fb_obstacle reader_obstacle(fb_matcher *m, const attention *a) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    if (!alias) return FB_OUT_OF_MEMORY;
    uint32_t from = fb_node_at(g, a->node)->ordinal, to = from;
    for (size_t i = 0; i < a->count; i++) {
        if (!is_read_inside(g, a, a->inner[i]))
            return (fb_obstacle){"shared-output", "its scores or weights have other readers"};
        if (fb_node_at(g, a->inner[i])->ordinal < from) from = fb_node_at(g, a->inner[i])->ordinal;
    }
    const fb_node inputs[] = {a->query, a->key, a->value, a->mask};
    for (size_t i = 0; i < 4; i++) {
        if (!inputs[i].id) continue;
        if (fb_mutated_between(alias, inputs[i], from - 1, to))
            return (fb_obstacle){"input-mutated", "what it reads is written in place meanwhile"};
        fb_obstacle obstacle = fb_gradient_obstacle(m, inputs[i], a->node);
        if (obstacle.code) return obstacle;
    }
    if (fb_mode_switched_between(alias, from - 1, to))
        return (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched meanwhile"};
    if (fb_is_mutated(alias, a->node)) return (fb_obstacle){"tensor-mutated", "its result is written in place"};
    bool has_two_orders = m->report->pass->version >= 3 && fb_middle_is_ordered(g, a->query);
    if (has_two_orders ? fb_middle_order_is_read(g, a->node) : fb_layout_is_read(g, a->node))
        return (fb_obstacle){"needs-contiguous", "a reader may notice that its result lies in memory as the queries do"};
    return FB_NO_OBSTACLE;
}

static void match(fb_matcher *m, fb_node n) {
    attention a;
    if (fb_is_marked(m, n)) return;
    if (!find(m, n, &a)) {
        if (looks_like_it(m->graph, n))
            fb_refuse_node(m, "unsupported-form", n, "between its two products stands what attention does not compute");
        return;
    }
    fb_obstacle obstacle = shape_obstacle(m->graph, &a);
    if (!obstacle.code) obstacle = a.doubt;
    for (size_t i = 0; i < a.count && !obstacle.code; i++) obstacle = fb_named_obstacle(m->graph, a.inner[i]);
    if (!obstacle.code) obstacle = mask_obstacle(m, &a);
    if (!obstacle.code) obstacle = reader_obstacle(m, &a);
    if (obstacle.code) {
        fb_refuse_for(m, obstacle, &n, 1);
        return;
    }
    if (fb_refuse_too_old(m, n, FB_MADE_ATTENTION)) return;
    a.is_added = must_be_added(m, &a);
    fb_match_found_as(m, &a, sizeof a);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* k as attention takes it, (…, S, E). */
static fb_value key_of(fb_rewrite *rw, const attention *a) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value key = fb_make_node(g, a->key);
    return a->transposition.id ? key : fb_make_node(g, fb_build_swapped(rw, a->node, key));
}

/* Added, or true where a score stays. */
static fb_value mask_of(fb_rewrite *rw, const attention *a) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value mask = fb_make_node(g, a->mask);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, a->first)->dtype;
    if (a->is_added) return fb_make_node(g, fb_build_filled(rw, a->node, mask, dtype, a->form == SELECTED, a->fill));
    if (a->form != FILLED) return mask;
    return fb_make_node(g, fb_build(rw, a->node, FB_MADE_LOGICAL_NOT, FB_ARGS(g, mask), FB_VALUE_EMPTY_MAP));
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const attention *a = match->data;
    fb_node n = a->node;
    for (size_t i = 0; i < a->count; i++) fb_move_assertions(rw, a->inner[i], a->query);
    fb_value key = key_of(rw, a), mask = a->mask.id ? mask_of(rw, a) : (fb_value){0};
    fb_build_attention(rw, n, fb_make_node(g, a->query), key, fb_make_node(g, a->value), mask, a->scale);
    fb_mark(rw, n);
    size_t before = a->transposition.id ? a->before : a->count;
    for (size_t i = a->count; i-- > before;) fb_erase_call(rw, a->inner[i]);
    if (a->transposition.id) fb_erase_unread(rw, a->transposition);
    for (size_t i = before; i-- > 0;) fb_erase_call(rw, a->inner[i]);
}

/* Version 1 knew no mask by its first column, version 2 no reader that gives rows of either order. */
#define FUSE_ATTENTION(number, before)                                                                                         \
    {                                                                                                                          \
        .name = "FuseAttention", .version = number, .earlier = before,                                                         \
        .summary = "Replaces attention that is spelled out with one call of `scaled_dot_product_attention`.",                  \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{\"masked_rows\":{\"default\":false,\"description\":"              \
            "\"Also where an added mask, or one of -inf, might mask a whole row: softmax gives nan there, and attention 0.\"," \
            "\"type\":\"boolean\"}},\"type\":\"object\"}",                                                                     \
        .exactness = FB_ROUNDS, .gain = FB_GAIN_FEWER_NODES, .reversible = true, .preserves_computation = true,                \
        .reads_onnx = true, .match = match, .edit = edit,                                                                      \
    }

static const fb_pass version_1 = FUSE_ATTENTION(1, NULL);
static const fb_pass version_2 = FUSE_ATTENTION(2, &version_1);
const fb_pass fb_fuse_attention = FUSE_ATTENTION(3, &version_2);
