/* MoveTransposes: transpositions around calls that work on each element, or along an axis, go.
 *
 *     x ── Transpose(0, 2, 3, 1) ── Add(·, b) ── Relu ── Transpose(0, 3, 1, 2) ── y        x ── Add(·, b) ── Relu ── y
 *
 * Of ONNX models, whose Transpose copies: those of Keras have one on each side of a convolution. In PyTorch a transposition is
 * a view, and these calls read any view. A region of connected calls (element by element, Concat, Pad, Softmax and reductions)
 * computes in the other order of axes, if fewer transpositions are left then; or as many, where a constant comes
 * next to the convolution that it may go into. Constants with more than one element get that order by calls that FoldConstants
 * folds. A reduction or Gather behind which the axes that are left have the same order needs no transposition.
 *
 * Kept where something beside the graph names a value, where shapes are not recorded, and where a softmax or reduction goes
 * along the last axis and would not any more. Exactness: rounds (a reduction may
 * add in another order; all else moves). Reversible.
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/shape.h"
#include "core/pass/build.h"

enum { MOST_AXES = 8 };

/* A way to exchange axes: axis i of the result is axis dims[i] of the input. */
typedef struct order {
    int rank, dims[MOST_AXES];
} order;

/* Calls that hang together, in graph order. */
typedef struct region {
    order before; /* of the transpositions that it reads */
    size_t count;
    fb_node calls[];
} region;

/* By node: its place in its region, from 1 on; or 0. */
typedef struct plan {
    const uint32_t *place;
    uint32_t limit;
} plan;

typedef struct search {
    fb_matcher *m;
    const fb_graph *g;
    uint32_t *leader, *place, *next, *last; /* by node; lists of the calls that have one leader */
    uint8_t *is_taken;                      /* by node: a transposition that another region uses */
    uint32_t limit;
} search;

/* ---- calls --------------------------------------------------------------------------------------------------------------- */

static bool read_order(const fb_graph *g, fb_node n, order *out) {
    int64_t dims[MOST_AXES];
    if (!fb_op_is(g, n, FB_OP_ONNX_TRANSPOSE) || fb_op_effects(g, n).is_named) return false;
    out->rank = fb_node_rank(g, n);
    if (out->rank < 2 || out->rank > MOST_AXES || fb_value_at(g, fb_node_at(g, n)->args)->count != 1) return false;
    if (fb_onnx_ints_of(g, n, "perm", 0, dims, MOST_AXES) != out->rank) return false;
    for (int i = 0; i < out->rank; i++) out->dims[i] = (int)dims[i];
    return true;
}

static order inverse_of(const order *of) {
    order inverse = {.rank = of->rank};
    for (int i = 0; i < of->rank; i++) inverse.dims[of->dims[i]] = i;
    return inverse;
}

static bool are_equal(const order *a, const order *b) {
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

typedef enum argument_kind { OTHER, NUMBER, CONSTANT, VALUE } argument_kind;

/* NUMBER: the same for all elements; CONSTANT: of that rank or less; VALUE: of that rank. */
static argument_kind kind_of(const fb_graph *g, fb_value argument, int rank) {
    fb_node node = fb_value_node(g, argument);
    int own = fb_node_rank(g, node);
    if (fb_value_kind(g, argument) == FB_NONE || own == 0) return NUMBER;
    if (own < 0 || own > rank) return OTHER;
    if (fb_node_at(g, node)->opcode != FB_GET_ATTR) return own == rank ? VALUE : OTHER;
    int64_t count = 1;
    for (int i = 0; i < own; i++) count *= fb_shape_size(g, fb_node_at(g, node)->shape, i) == 1 ? 1 : 2;
    return count == 1 && own < rank ? NUMBER : CONSTANT;
}

/* How many of its arguments are data; what follows are numbers of the call. 0: it is not a call that may be moved past. */
static uint32_t data_of(const fb_graph *g, fb_node n) {
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, n)->args);
    fb_op op = fb_node_op(g, n);
    int64_t numbers[2 * MOST_AXES], axis = 0;
    uint32_t ignored;
    bool keeps_them;
    int rank = args->count && fb_value_node(g, args->items[0]).id ? fb_node_rank(g, fb_value_node(g, args->items[0])) : -1;
    fb_value given = fb_node_kwarg(g, n, "axis");
    switch (op) {
    case FB_OP_ONNX_CONCAT: return given.id && fb_value_is_int(g, given, &axis) ? args->count : 0;
    case FB_OP_ONNX_SOFTMAX:
        return fb_graph_opset(g) >= 13 && (!given.id || fb_value_is_int(g, given, &axis)) && args->count == 1;
    case FB_OP_ONNX_REDUCE: return rank > 0 && fb_reduction_axes(g, n, rank, &ignored, &keeps_them);
    case FB_OP_ONNX_PAD:
        return rank > 0 && args->count <= 3 && fb_onnx_ints_of(g, n, "pads", 1, numbers, 2 * MOST_AXES) == 2 * rank;
    case FB_OP_ONNX_GATHER:
        return args->count == 2 && fb_node_at(g, fb_value_node(g, args->items[1]))->opcode == FB_GET_ATTR &&
               fb_node_rank(g, fb_value_node(g, args->items[1])) == 0 && rank > 0;
    default: return fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE || op == FB_OP_ONNX_CAST ? args->count : 0;
    }
}

/* Does the call give fewer axes than it reads? */
static bool drops_axes(const fb_graph *g, fb_node n) {
    uint32_t ignored;
    bool keeps_them = true;
    if (fb_op_is(g, n, FB_OP_ONNX_REDUCE)) fb_reduction_axes(g, n, FB_MAX_RANK, &ignored, &keeps_them);
    return !keeps_them || fb_op_is(g, n, FB_OP_ONNX_GATHER);
}

static bool is_candidate(const fb_graph *g, fb_node n) {
    const fb_node_row *row = fb_node_at(g, n);
    uint32_t count = row->opcode == FB_CALL_FUNCTION ? data_of(g, n) : 0;
    if (!count || !row->shape.id || !row->dtype || !fb_op_is_pure(g, n) || fb_op_effects(g, n).is_named ||
        fb_onnx_results(g, n) >= 0)
        return false;
    const fb_value_row *args = fb_value_at(g, row->args);
    int rank = drops_axes(g, n) ? fb_node_rank(g, fb_value_node(g, args->items[0])) : fb_node_rank(g, n), values = 0;
    if (rank < 2 || rank > MOST_AXES) return false;
    for (uint32_t i = 0; i < count; i++) {
        argument_kind kind = kind_of(g, args->items[i], rank);
        if (kind == OTHER) return false;
        values += kind == VALUE;
    }
    return values > 0;
}

/* The axes that a call drops, as bits. */
static uint32_t dropped_axes(const fb_graph *g, fb_node n, int rank) {
    uint32_t axes = 0;
    int64_t axis = 0;
    int at;
    bool keeps_them;
    fb_value given = fb_node_kwarg(g, n, "axis");
    if (fb_op_is(g, n, FB_OP_ONNX_REDUCE)) return fb_reduction_axes(g, n, rank, &axes, &keeps_them) ? axes : 0;
    if (given.id) fb_value_is_int(g, given, &axis);
    return fb_normalise_axis(axis, rank, &at) ? (uint32_t)1 << at : 0;
}

/* Have the axes that are left the same order before the transposition? */
static bool keeps_order(const fb_graph *g, fb_node n, const order *before) {
    uint32_t dropped = dropped_axes(g, n, before->rank);
    int last = -1;
    for (int i = 0; i < before->rank; i++) {
        if (dropped >> i & 1) continue;
        if (before->dims[i] < last) return false;
        last = before->dims[i];
    }
    return dropped != 0;
}

/* Does the call go along the last axis, whose numbers are side by side in memory, and would not be in the other order? Runtimes
 * are faster there, and know a LayerNorm that is spelled out there alone. */
static bool leaves_last_axis(const fb_graph *g, fb_node n, const order *before) {
    int64_t axis = -1;
    int at = 0;
    bool keeps_them;
    uint32_t axes = 0;
    if (fb_op_is(g, n, FB_OP_ONNX_SOFTMAX)) {
        fb_value given = fb_node_kwarg(g, n, "axis");
        if (given.id) fb_value_is_int(g, given, &axis);
        if (fb_normalise_axis(axis, before->rank, &at)) axes = (uint32_t)1 << at;
    } else if (fb_op_is(g, n, FB_OP_ONNX_REDUCE)) {
        fb_reduction_axes(g, n, before->rank, &axes, &keeps_them);
    }
    bool had_last = axes >> (before->rank - 1) & 1, has_last = false;
    for (int i = 0; i < before->rank; i++) has_last |= (axes >> i & 1) && before->dims[i] == before->rank - 1;
    return had_last && !has_last;
}

/* ---- regions ------------------------------------------------------------------------------------------------------------- */

static uint32_t leader_of(search *s, uint32_t node) {
    while (s->leader[node] != node) node = s->leader[node] = s->leader[s->leader[node]];
    return node;
}

static void join(search *s, fb_node a, fb_node b) {
    uint32_t one = leader_of(s, a.id), other = leader_of(s, b.id);
    s->leader[one < other ? other : one] = one < other ? one : other;
}

/* Joins a call to what it reads: calls that keep their axes, and transpositions, through which others are joined. */
static void join_inputs(search *s, fb_node n) {
    order ignored;
    uint32_t count = data_of(s->g, n);
    for (uint32_t i = 0; i < count; i++) {
        fb_node input = fb_value_node(s->g, fb_node_arg(s->g, n, i));
        if (!input.id) continue;
        bool is_joined = s->leader[input.id] ? !drops_axes(s->g, input) : read_order(s->g, input, &ignored);
        if (is_joined && !s->leader[input.id]) s->leader[input.id] = input.id;
        if (is_joined) join(s, n, input);
    }
}

static bool is_call(const search *s, fb_node n) {
    return s->leader[n.id] && !fb_op_is(s->g, n, FB_OP_ONNX_TRANSPOSE);
}

static void collect(search *s) {
    for (fb_node n = fb_first_node(s->g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(s->g, n)) {
        if (!is_candidate(s->g, n)) continue;
        s->leader[n.id] = n.id;
        join_inputs(s, n);
    }
    for (fb_node n = fb_first_node(s->g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(s->m); n = fb_next_node(s->g, n)) {
        if (!is_call(s, n)) continue;
        uint32_t leader = leader_of(s, n.id);
        if (s->last[leader]) s->next[s->last[leader]] = n.id;
        else s->next[leader + s->limit] = n.id; /* the first of its list */
        s->last[leader] = n.id;
    }
}

/* The order of the first transposition that one of the calls reads. */
static bool find_order(const search *s, const region *r, order *out) {
    for (size_t k = 0; k < r->count; k++) {
        for (uint32_t e = fb_input_first(s->g, r->calls[k]); e; e = fb_input_next(s->g, e))
            if (read_order(s->g, fb_edge_input(s->g, e), out)) return true;
    }
    return false;
}

static bool is_in(const plan *p, const region *r, fb_node n) {
    uint32_t place = n.id < p->limit ? p->place[n.id] : 0;
    return place && place <= r->count && r->calls[place - 1].id == n.id;
}

static bool is_inside(const search *s, const region *r, fb_node n) {
    return is_in(&(plan){s->place, s->limit}, r, n);
}

/* Is it a call that is turned? One that drops axes reads what is turned, if it may. */
static bool is_turned(const fb_graph *g, const plan *p, const region *r, fb_node n) {
    return is_in(p, r, n) && (!drops_axes(g, n) || keeps_order(g, n, &r->before));
}

static bool takes_turned(const search *s, const region *r, fb_node n) {
    return is_turned(s->g, &(plan){s->place, s->limit}, r, n);
}

typedef struct balance {
    int fewer, more;
    bool is_shared, follows_convolution;
} balance;

static bool gives_convolution(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    return op == FB_OP_ONNX_CONV || op == FB_OP_ONNX_CONV_TRANSPOSE || op == FB_OP_ONNX_BATCH_NORM;
}

/* Weighs the values that a call reads, each once: those in `seen` were weighed before. */
static void weigh_inputs(const search *s, const region *r, fb_node n, uint8_t *seen, balance *b) {
    const fb_graph *g = s->g;
    uint32_t count = data_of(g, n);
    order turned;
    for (uint32_t i = 0; i < count; i++) {
        fb_value argument = fb_node_arg(g, n, i);
        fb_node input = fb_value_node(g, argument);
        argument_kind kind = kind_of(g, argument, r->before.rank);
        bool is_new = kind == VALUE && !seen[input.id] && (!is_inside(s, r, input) || drops_axes(g, input));
        if (kind != VALUE || !is_new) continue;
        seen[input.id] = 1;
        if (!read_order(g, input, &turned) || !are_equal(&turned, &r->before)) {
            b->more++;
            continue;
        }
        bool is_last = true;
        for (uint32_t e = fb_user_first(g, input); e; e = fb_user_next(g, e)) is_last &= takes_turned(s, r, fb_edge_user(g, e));
        b->fewer += is_last;
        b->is_shared |= s->is_taken[input.id];
        fb_node from = fb_arg_node(g, input, 0);
        b->follows_convolution |= from.id && gives_convolution(g, from) && fb_node_at(g, from)->user_count == 1;
    }
}

/* Weighs the readers of a call. */
static void weigh_readers(const search *s, const region *r, fb_node n, const order *back, balance *b) {
    const fb_graph *g = s->g;
    bool is_read_as_it_was = false;
    order turned;
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        if (takes_turned(s, r, user)) continue;
        bool is_undone = read_order(g, user, &turned) && are_equal(&turned, back);
        b->fewer += is_undone;
        b->is_shared |= is_undone && s->is_taken[user.id];
        is_read_as_it_was |= !is_undone;
    }
    b->more += is_read_as_it_was;
}

static bool has_vector(const search *s, const region *r) {
    for (size_t k = 0; k < r->count; k++) {
        uint32_t count = data_of(s->g, r->calls[k]);
        for (uint32_t i = 0; i < count; i++)
            if (kind_of(s->g, fb_node_arg(s->g, r->calls[k], i), r->before.rank) == CONSTANT) return true;
    }
    return false;
}

static bool is_worth_it(search *s, region *r, uint8_t *seen) {
    balance b = {0};
    if (!find_order(s, r, &r->before)) return false;
    order back = inverse_of(&r->before);
    for (size_t k = 0; k < r->count; k++) {
        fb_node n = r->calls[k];
        if (drops_axes(s->g, n) && !keeps_order(s->g, n, &r->before)) continue;
        if (leaves_last_axis(s->g, n, &r->before)) return false;
        weigh_inputs(s, r, n, seen, &b);
        if (!drops_axes(s->g, n)) weigh_readers(s, r, n, &back, &b);
    }
    bool comes_closer = b.fewer == b.more && b.follows_convolution && has_vector(s, r);
    return !b.is_shared && (b.fewer > b.more || comes_closer);
}

static void take(search *s, const region *r) {
    order turned;
    for (size_t k = 0; k < r->count; k++) {
        for (uint32_t e = fb_input_first(s->g, r->calls[k]); e; e = fb_input_next(s->g, e))
            s->is_taken[fb_edge_input(s->g, e).id] = 1;
        for (uint32_t e = fb_user_first(s->g, r->calls[k]); e; e = fb_user_next(s->g, e))
            s->is_taken[fb_edge_user(s->g, e).id] |= read_order(s->g, fb_edge_user(s->g, e), &turned);
    }
    fb_match_found_as(s->m, r, sizeof *r + r->count * sizeof *r->calls);
}

static void match_region(search *s, uint32_t first, uint8_t *seen) {
    size_t count = 0;
    for (uint32_t n = first; n; n = s->next[n]) count++;
    region *r = malloc(sizeof *r + count * sizeof *r->calls);
    s->m->failed |= !r;
    if (!r) return;
    *r = (region){.count = 0};
    for (uint32_t n = first; n; n = s->next[n]) {
        r->calls[r->count++] = (fb_node){n};
        s->place[n] = (uint32_t)r->count;
    }
    if (is_worth_it(s, r, seen)) take(s, r);
    for (size_t k = 0; k < r->count; k++) {
        for (uint32_t e = fb_input_first(s->g, r->calls[k]); e; e = fb_input_next(s->g, e)) seen[fb_edge_input(s->g, e).id] = 0;
    }
    free(r);
}

/* In PyTorch nothing is to be gained. */
static void match_onnx(fb_matcher *m) {
    uint32_t limit = (uint32_t)fb_node_limit(m->graph) + 1;
    search s = {.m = m, .g = m->graph, .limit = limit};
    uint8_t *seen = calloc(limit, 2);
    s.leader = calloc(limit, sizeof *s.leader);
    s.next = calloc((size_t)limit * 2, sizeof *s.next);
    s.last = calloc(limit, sizeof *s.last);
    s.place = fb_arena_alloc(m->arena, limit * sizeof *s.place);
    m->failed |= !seen || !s.leader || !s.next || !s.last || !s.place;
    if (!m->failed) {
        s.is_taken = seen + limit;
        memset(s.place, 0, limit * sizeof *s.place);
        collect(&s);
        for (uint32_t n = 1; n < limit && fb_matcher_goes_on(m); n++)
            if (s.next[n + limit]) match_region(&s, s.next[n + limit], seen);
        plan *p = fb_arena_alloc(m->arena, sizeof *p);
        m->failed |= !p;
        if (p) *p = (plan){s.place, limit};
        m->plan = p;
    }
    free(seen);
    free(s.leader);
    free(s.next);
    free(s.last);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

typedef struct turning {
    fb_rewrite *rw;
    fb_graph *g;
    const plan *p;
    const region *r;
    order back;
    fb_node *now;     /* by place: the call in the other order */
    fb_buffer turned; /* pairs: a value that another call gives, and its transposition */
} turning;

/* Sizes in the other order; behind a call that drops axes there are fewer. */
static fb_value turned_shape(const turning *t, fb_value shape) {
    fb_value sizes[MOST_AXES];
    for (int i = 0; i < t->r->before.rank; i++) sizes[t->r->before.dims[i]] = fb_value_item(t->g, shape, (size_t)i);
    return fb_make_list(t->g, sizes, (size_t)t->r->before.rank);
}

static fb_value perm_of(fb_graph *g, const order *by) {
    fb_value dims[MOST_AXES];
    for (int i = 0; i < by->rank; i++) dims[i] = fb_make_int(g, by->dims[i]);
    return fb_map_with(g, FB_VALUE_EMPTY_MAP, "perm", fb_make_list(g, dims, (size_t)by->rank));
}

static fb_node put_turned(const turning *t, fb_node before, fb_node x) {
    const fb_node_row *row = fb_node_at(t->g, x);
    fb_value shape = turned_shape(t, row->shape);
    fb_dtype dtype = (fb_dtype)row->dtype;
    fb_node made = fb_build(t->rw, before, FB_MADE_PERMUTE, FB_ARGS(t->g, fb_make_node(t->g, x)), perm_of(t->g, &t->back));
    if (made.id) fb_set_result_type(t->rw, made, shape, dtype);
    return made;
}

/* A constant of that rank or less, in the other order. */
static fb_node put_constant(const turning *t, fb_node before, fb_node read) {
    const order *by = &t->r->before;
    int own = fb_node_rank(t->g, read), long_axes = 0;
    int64_t sizes[MOST_AXES], turned[MOST_AXES];
    for (int i = 0; i < by->rank; i++) {
        int at = i - (by->rank - own);
        sizes[i] = at < 0 ? 1 : fb_shape_size(t->g, fb_node_at(t->g, read)->shape, at);
        turned[by->dims[i]] = sizes[i];
        long_axes += sizes[i] != 1;
    }
    if (long_axes <= 1) return fb_build_reshape(t->rw, before, read, turned, by->rank);
    if (own < by->rank) read = fb_build_reshape(t->rw, before, read, sizes, by->rank);
    return read.id ? put_turned(t, before, read) : read;
}

/* An argument of a call that is turned. */
static fb_value turn_argument(turning *t, fb_node call, fb_value argument) {
    fb_node input = fb_value_node(t->g, argument), made = {0};
    order by;
    switch (kind_of(t->g, argument, t->r->before.rank)) {
    case VALUE: break;
    case CONSTANT: return fb_make_node(t->g, put_constant(t, call, input));
    default: return argument;
    }
    if (is_in(t->p, t->r, input) && !drops_axes(t->g, input)) return fb_make_node(t->g, t->now[t->p->place[input.id] - 1]);
    if (read_order(t->g, input, &by) && are_equal(&by, &t->r->before)) {
        fb_erase_unread(t->rw, input);
        return fb_node_arg(t->g, input, 0);
    }
    const fb_node *pairs = (const fb_node *)(const void *)t->turned.data;
    for (size_t i = 0; i < t->turned.size / sizeof *pairs; i += 2)
        if (pairs[i].id == input.id) made = pairs[i + 1];
    if (!made.id) {
        made = put_turned(t, call, input);
        fb_buffer_append(&t->turned, (fb_node[]){input, made}, 2 * sizeof made);
        if (t->turned.failed) fb_graph_fail_memory(t->g);
    }
    return fb_make_node(t->g, made);
}

/* Axes that are an attribute, or an input. */
static void turn_ints(turning *t, fb_node call, const char *name, const int64_t *ints, int count, fb_value *args,
                      fb_value *kwargs) {
    if (fb_node_kwarg(t->g, call, name).id)
        *kwargs = fb_map_with(t->g, *kwargs, name, fb_make_shape(t->g, ints, (size_t)count));
    else *args = fb_list_with(t->g, *args, 1, fb_make_node(t->g, fb_build_ints(t->rw, call, ints, (size_t)count)));
}

/* The arguments of the call in the other order. */
static void turn_arguments(turning *t, fb_node n, fb_value *args, fb_value *kwargs) {
    const int *dims = t->r->before.dims;
    int rank = t->r->before.rank, count, at;
    uint32_t data = data_of(t->g, n);
    int64_t given[2 * MOST_AXES], turned[2 * MOST_AXES], axis = -1;
    *args = fb_node_at(t->g, n)->args;
    *kwargs = fb_node_at(t->g, n)->kwargs;
    for (uint32_t i = 0; i < data; i++) *args = fb_list_with(t->g, *args, i, turn_argument(t, n, fb_node_arg(t->g, n, i)));
    fb_value named = fb_node_kwarg(t->g, n, "axis");
    switch (fb_node_op(t->g, n)) {
    case FB_OP_ONNX_GATHER: axis = 0; __attribute__((fallthrough));
    case FB_OP_ONNX_CONCAT:
    case FB_OP_ONNX_SOFTMAX:
        if (named.id) fb_value_is_int(t->g, named, &axis);
        if (fb_normalise_axis(axis, rank, &at)) *kwargs = fb_map_with(t->g, *kwargs, "axis", fb_make_int(t->g, dims[at]));
        break;
    case FB_OP_ONNX_REDUCE:
        count = fb_onnx_ints_of(t->g, n, "axes", 1, given, MOST_AXES);
        for (int i = 0; i < count; i++) turned[i] = fb_normalise_axis(given[i], rank, &at) ? dims[at] : 0;
        turn_ints(t, n, "axes", turned, count, args, kwargs);
        break;
    case FB_OP_ONNX_PAD:
        fb_onnx_ints_of(t->g, n, "pads", 1, given, 2 * MOST_AXES);
        for (int i = 0; i < 2 * rank; i++) turned[i / rank * rank + dims[i % rank]] = given[i];
        turn_ints(t, n, "pads", turned, 2 * rank, args, kwargs);
        break;
    default: break;
    }
}

/* Transpositions back go; what else reads the call gets one, in its place. What is erased last goes first. */
static void settle_readers(turning *t, fb_node n, fb_node now) {
    fb_buffer undone = {0};
    bool is_read = false;
    order by;
    for (uint32_t e = fb_user_first(t->g, n); e; e = fb_user_next(t->g, e)) {
        fb_node user = fb_edge_user(t->g, e);
        if (user.id == now.id || is_turned(t->g, t->p, t->r, user)) continue;
        if (read_order(t->g, user, &by) && are_equal(&by, &t->back)) fb_buffer_append(&undone, &user, sizeof user);
        else is_read = true;
    }
    if (undone.failed) fb_graph_fail_memory(t->g);
    if (is_read) {
        fb_build_over(t->rw, n, FB_MADE_PERMUTE, FB_ARGS(t->g, fb_make_node(t->g, now)), perm_of(t->g, &t->r->before));
        fb_mark(t->rw, n);
    } else {
        fb_erase(t->rw, n);
    }
    const fb_node *nodes = (const fb_node *)(const void *)undone.data;
    for (size_t i = 0; i < undone.size / sizeof *nodes; i++) fb_absorb(t->rw, nodes[i], now);
    fb_buffer_free(&undone);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const region *r = match->data;
    turning t = {.rw = rw, .g = fb_rewrite_graph(rw), .p = match->plan, .r = r, .back = inverse_of(&r->before)};
    t.now = calloc(r->count, sizeof *t.now);
    if (!t.now) fb_graph_fail_memory(t.g);
    for (size_t k = 0; k < r->count && t.now; k++) {
        fb_node n = r->calls[k];
        fb_value args, kwargs;
        if (!is_turned(t.g, t.p, r, n)) continue;
        turn_arguments(&t, n, &args, &kwargs);
        if (drops_axes(t.g, n)) {
            fb_set_args(rw, n, args, kwargs);
            fb_mark(rw, n);
            continue;
        }
        const fb_node_row *row = fb_node_at(t.g, n);
        t.now[k] = fb_insert_typed(rw, n, FB_CALL_FUNCTION, fb_node_target(t.g, n), args, kwargs, turned_shape(&t, row->shape),
                                   (fb_dtype)row->dtype);
        if (!t.now[k].id) break;
        fb_mark(rw, t.now[k]);
    }
    for (size_t k = 0; k < r->count && t.now; k++)
        if (t.now[k].id) settle_readers(&t, r->calls[k], t.now[k]);
    fb_buffer_free(&t.turned);
    free(t.now);
}

const fb_pass fb_move_transposes = {
    .name = "MoveTransposes",
    .version = 1,
    .summary = "Takes away transpositions of ONNX models around calls that can as well compute in the other order of axes.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = fb_match_nothing,
    .match_onnx = match_onnx,
    .edit = edit,
};
