/* MergeViews: merges a chain of views into one.
 *
 *     x ── permute ── contiguous ── view(a, b) ── view(c)          x ── permute ── reshape(c)
 *     x ── transpose(1, 2) ── transpose(2, 3)                      x ── permute(0, 2, 3, 1)
 *     x ── unsqueeze(0) ── expand(8, -1, -1)                       x ── expand(8, -1, -1)
 *
 * Merges views that keep the order of elements (view, reshape, flatten, unflatten, squeeze, unsqueeze), and contiguous between
 * them, into one reshape to the recorded sizes of the last. Merges views that exchange dimensions (permute, transpose, t), and
 * contiguous between them, into one permute. A view that only puts dimensions of size 1 in front goes into the expand behind
 * it, which does so as well.
 *
 * The views in between must have no other reader, but for assertions about their dtype and device, and nothing may write their
 * memory. A reshape copies only where it must. So if one of the views may have copied, the reader of the last one must accept
 * any strides, and a result of the graph must not start to share memory with another result. Exactness: moves. Reversible.
 */
#include "core/analysis/alias.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/analysis/rearrange.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/constants.h"
#include "core/pass/pass.h"

#define IS_MUTATED ((fb_obstacle){"mutated", "the memory that they show is written in place"})

/* Views that keep the order of the elements go together, and those that exchange dimensions. */
static bool is_ordered(const fb_rearrange *view) {
    return view->form != FB_REARRANGE_PERMUTE;
}

/* The call that alone reads a view, besides assertions that hold of what it shows as well; none: there are others. */
static fb_node reader_of(const fb_graph *g, const fb_rearrange *view) {
    fb_node found = {0};
    for (uint32_t e = fb_user_first(g, view->node); e; e = fb_user_next(g, e)) {
        fb_node reader = fb_edge_user(g, e);
        if (fb_asserts_as_well(g, reader, view->node, view->input)) continue;
        if (found.id) return (fb_node){0};
        found = reader;
    }
    return found;
}

/* A copy between two permutations, each read by the next alone: no other node needs the elements moved. */
static bool is_between(const fb_graph *g, const fb_rearrange *copy) {
    fb_rearrange before, after;
    fb_node reader = reader_of(g, copy);
    return reader.id && fb_rearrange_at(g, copy->input, &before) && !is_ordered(&before) &&
           reader_of(g, &before).id == copy->node.id && fb_rearrange_at(g, reader, &after) && !is_ordered(&after);
}

/* Does `view` go into its reader `next`? */
static bool goes_into(const fb_graph *g, const fb_rearrange *view, const fb_rearrange *next) {
    if (next->input.id != view->node.id || reader_of(g, view).id != next->node.id) return false;
    if (is_ordered(view) == is_ordered(next)) return next->form != FB_REARRANGE_CONTIGUOUS;
    if (next->form == FB_REARRANGE_CONTIGUOUS) return is_between(g, next);
    return view->form == FB_REARRANGE_CONTIGUOUS && is_between(g, view);
}

static bool is_inside(const fb_graph *g, const fb_rearrange *view) {
    fb_rearrange next;
    fb_node reader = reader_of(g, view);
    return reader.id && fb_rearrange_at(g, reader, &next) && goes_into(g, view, &next);
}

/* ---- what goes into an expand ------------------------------------------------------------------------------------------- */

/* Does the view put dimensions of size 1 in front of all others, which stay? *rank: how many these are. */
static bool puts_dimensions_in_front(const fb_graph *g, const fb_rearrange *view, int *rank) {
    fb_shape_result from, to;
    if (view->form != FB_REARRANGE_RESHAPE || !fb_recorded_shape(g, view->input, &from) ||
        !fb_recorded_shape(g, view->node, &to) || from.rank < 0)
        return false;
    int count = to.rank - from.rank;
    *rank = from.rank;
    for (int i = 0; i < to.rank && count > 0; i++) {
        bool stays = i < count ? fb_dim_is(to.sizes[i], 1) : fb_dim_equal(to.sizes[i], from.sizes[i - count]);
        if (!stays) return false;
    }
    return count > 0;
}

/* Does the call expand something of `rank` dimensions, to sizes that say how large the new ones in front are? -1 says that one
 * stays as it is. A dimension that stays at 1 gets its stride from the one behind it, which may be expanded: PyTorch orders the
 * axes of what is computed from it by that. */
static bool expands_in_front(const fb_graph *g, fb_node expand, int rank) {
    fb_sizes sizes = {0};
    fb_shape_call call = {.graph = g, .node = expand, .op = fb_node_op(g, expand)};
    bool is_as = fb_op_is(g, expand, FB_OP_EXPAND_AS);
    if (is_as && fb_mentions_of(g, expand, fb_arg_node(g, expand, 0)) != 1) return false;
    if (!is_as && !fb_sizes_named(&call, "size", &sizes)) return false;
    fb_value shape = fb_node_at(g, expand)->shape;
    int count = (is_as ? fb_shape_rank(g, shape) : sizes.count) - rank;
    for (int i = 0; i < count; i++) {
        int64_t size = is_as ? fb_shape_size(g, shape, i) : sizes.items[i].symbol.id ? -1 : sizes.items[i].size;
        if (size < 0 || size == 1) return false;
    }
    return count > 0;
}

/* The view that goes into an expand. */
static bool expanded_view(const fb_graph *g, fb_node expand, fb_rearrange *view) {
    fb_rearrange before;
    int rank;
    if (!fb_op_is(g, expand, FB_OP_EXPAND) && !fb_op_is(g, expand, FB_OP_EXPAND_AS)) return false;
    fb_node input = fb_arg_node(g, expand, 0);
    if (!input.id || !fb_rearrange_at(g, input, view) || reader_of(g, view).id != expand.id) return false;
    bool is_of_chain = fb_rearrange_at(g, view->input, &before) && goes_into(g, &before, view);
    return !is_of_chain && puts_dimensions_in_front(g, view, &rank) && expands_in_front(g, expand, rank);
}

static void match_expand(fb_matcher *m, fb_node expand, const fb_rearrange *view) {
    const fb_node nodes[] = {expand, view->node};
    if (fb_is_mutated(fb_matcher_writes(m), expand)) fb_refuse_for(m, IS_MUTATED, nodes, 2);
    else fb_match_found(m, nodes, 2);
}

/* ---- chains ------------------------------------------------------------------------------------------------------------- */

/* view(x, sizes): its own sizes do for a reshape, with anything put before them. */
static bool has_sizes(const fb_graph *g, fb_node view) {
    const fb_node_row *row = fb_node_at(g, view);
    const fb_value_row *args = fb_value_at(g, row->args);
    bool is_plain = row->opcode != FB_CALL_MODULE && fb_value_at(g, row->kwargs)->count == 0 && args->count > 1;
    return is_plain && fb_op_facts_of(fb_node_op(g, view))->shape == FB_SHAPE_VIEW &&
           fb_value_kind(g, args->items[1]) != FB_DTYPE;
}

static bool is_static(const fb_graph *g, fb_value shape) {
    bool is_known = true;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) is_known &= fb_shape_size(g, shape, i) >= 0;
    return is_known;
}

/* A reshape gives a dimension of size 1 another stride than unsqueeze does, where what is reshaped is not contiguous; and
 * PyTorch orders the axes of what is computed from it by that, beside a dimension that is expanded. */
static bool may_have_one(const fb_graph *g, fb_node node) {
    fb_value shape = fb_node_at(g, node)->shape;
    int rank = fb_shape_rank(g, shape);
    bool may = rank < 0;
    for (int i = 0; i < rank; i++) may |= fb_shape_size(g, shape, i) == 1;
    return may;
}

/* `copies`: one of a chain of permutations, between two others, copies. */
static fb_obstacle obstacle(fb_matcher *m, const fb_rearrange *last, fb_node origin, bool copies) {
    const fb_graph *g = m->graph;
    const fb_sharing *sharing = fb_matcher_sharing(m);
    if (!sharing) return FB_OUT_OF_MEMORY;
    if (fb_is_mutated(fb_matcher_writes(m), last->node) || fb_is_mutated(fb_matcher_writes(m), origin)) return IS_MUTATED;
    if (!is_ordered(last) && !copies) return FB_NO_OBSTACLE; /* as before, nothing is copied */
    if (is_ordered(last) && !has_sizes(g, last->node) && !is_static(g, fb_node_at(g, last->node)->shape))
        return (fb_obstacle){"unknown-shape", "not all sizes of what the last one gives are recorded as numbers"};
    if (fb_may_share(sharing, origin, last->node, fb_node_at(g, last->node)->ordinal) != FB_MAY_SHARE)
        return (fb_obstacle){"graph-output",
                             "one of them may copy, so that a result shares no memory with an input or another result"};
    bool is_kept = is_ordered(last) &&
                   (fb_is_contiguous(g, origin) || (!fb_strides_are_read(g, last->node) && !may_have_one(g, last->node)));
    if (is_kept || !fb_layout_is_read(g, last->node)) return FB_NO_OBSTACLE;
    return (fb_obstacle){"needs-contiguous",
                         "one of them may copy, and a reader may need what lies in memory as the copy does"};
}

/* The chain that ends with `last`, from there back. */
static void match_chain(fb_matcher *m, const fb_rearrange *last) {
    fb_rearrange at = *last, before;
    fb_buffer chain = {0};
    bool copies = false;
    fb_buffer_append(&chain, &at.node, sizeof at.node);
    while (fb_matcher_goes_on(m) && fb_rearrange_at(m->graph, at.input, &before) && goes_into(m->graph, &before, &at)) {
        fb_buffer_append(&chain, &before.node, sizeof before.node);
        at = before;
        copies |= at.form == FB_REARRANGE_CONTIGUOUS;
        if (at.form == FB_REARRANGE_CONTIGUOUS && is_ordered(last))
            at.form = FB_REARRANGE_RESHAPE; /* it is in the middle: any may be before it */
    }
    const fb_node *nodes = (const fb_node *)(const void *)chain.data;
    size_t count = chain.size / sizeof *nodes;
    m->failed |= chain.failed;
    if (!m->failed && count > 1) {
        fb_obstacle stands = obstacle(m, last, at.input, copies);
        if (stands.code) fb_refuse_for(m, stands, nodes, count);
        else fb_match_found(m, nodes, count);
        if (!stands.code) fb_share(m->sharing, at.input, last->node);
    }
    fb_buffer_free(&chain);
}

/* ---- ONNX: values, and no memory ----------------------------------------------------------------------------------------- */

typedef struct onnx_plan {
    fb_constant_plan made;  /* shapes */
    const uint8_t *becomes; /* by node: one of these */
    const int *dims;        /* FB_MAX_RANK by match, in `match_of` */
    const uint32_t *match_of;
} onnx_plan;
enum { ITS_INPUT = 1, A_RESHAPE, A_PERMUTATION };

typedef struct onnx_search {
    fb_matcher *m;
    fb_onnx_types *types;
    fb_constant_list shapes;
    fb_buffer chain, dims;
    uint8_t *becomes;
    uint32_t *match_of, count;
    fb_node first;
} onnx_search;

static bool view_at(const onnx_search *s, fb_node n, fb_rearrange *view) {
    return n.id && fb_onnx_rearrange_at(s->types, n, view) && !fb_op_effects(s->m->graph, n).is_named;
}

/* Does the view go into the one that reads it, and nothing else does? */
static bool goes_into_onnx(const onnx_search *s, fb_node n, const fb_rearrange *next, fb_rearrange *view) {
    const fb_graph *g = s->m->graph;
    return view_at(s, n, view) && is_ordered(view) == is_ordered(next) && reader_of(g, view).id == next->node.id &&
           fb_mentions_of(g, next->node, n) == 1;
}

static bool is_inside_onnx(const onnx_search *s, const fb_rearrange *view) {
    fb_rearrange next, same;
    fb_node reader = reader_of(s->m->graph, view);
    return reader.id && view_at(s, reader, &next) && next.input.id == view->node.id &&
           goes_into_onnx(s, view->node, &next, &same);
}

/* A Reshape among the chain, which says how this model spells it. */
static fb_node reshape_in(const fb_graph *g, const fb_node *nodes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fb_onnx_is_reshape(g, nodes[i])) return nodes[i];
    return (fb_node){0};
}

/* A result of a program within must be a value that this computes. */
static bool is_result_within(const fb_graph *g, fb_node n) {
    bool is_result = false;
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e))
        is_result |= fb_node_at(g, fb_edge_user(g, e))->opcode == FB_OUTPUT;
    return is_result && fb_is_nested(g, n);
}

static bool take_ordered(onnx_search *s, fb_node last, fb_node origin, const fb_node *nodes, size_t count) {
    int64_t sizes[FB_ONNX_RANK];
    unsigned char bytes[8 * FB_ONNX_RANK];
    if (fb_onnx_same_shape(s->types, origin, last)) {
        if (is_result_within(s->m->graph, last)) return false;
        s->becomes[last.id] = ITS_INPUT;
        return true;
    }
    int rank = reshape_in(s->m->graph, nodes, count).id ? fb_onnx_sizes_between(s->types, origin, last, sizes) : -1;
    if (rank < 0) return false;
    for (int i = 0; i < 8 * rank; i++) bytes[i] = (unsigned char)((uint64_t)sizes[i / 8] >> (i % 8 * 8));
    s->becomes[last.id] = A_RESHAPE;
    s->m->failed |= !fb_constant_list_add(&s->shapes, last, FB_INT64, 1, (int64_t[]){rank}, bytes, (size_t)rank * 8);
    return true;
}

static bool take_permutation(onnx_search *s, const fb_rearrange *last, const fb_node *nodes, size_t count) {
    int from[FB_MAX_RANK] = {0};
    fb_rearrange before;
    bool is_same = true;
    for (int i = 0; i < last->rank; i++) from[i] = last->dims[i];
    for (size_t k = 1; k < count; k++) {
        if (!view_at(s, nodes[k], &before) || before.rank != last->rank) return false;
        for (int i = 0; i < last->rank; i++) from[i] = before.dims[from[i]];
    }
    for (int i = 0; i < last->rank; i++) is_same &= from[i] == i;
    if (is_same && is_result_within(s->m->graph, last->node)) return false;
    s->becomes[last->node.id] = is_same ? ITS_INPUT : A_PERMUTATION;
    fb_buffer_append(&s->dims, from, sizeof from);
    s->match_of[last->node.id] = s->count;
    s->m->failed |= s->dims.failed;
    return true;
}

static void match_onnx_chain(onnx_search *s, const fb_rearrange *last) {
    fb_rearrange at = *last, before;
    s->chain.size = 0;
    fb_buffer_append(&s->chain, &at.node, sizeof at.node);
    while (fb_matcher_goes_on(s->m) && goes_into_onnx(s, at.input, &at, &before)) {
        fb_buffer_append(&s->chain, &before.node, sizeof before.node);
        at = before;
    }
    const fb_node *nodes = (const fb_node *)(const void *)s->chain.data;
    size_t count = s->chain.size / sizeof *nodes;
    s->m->failed |= s->chain.failed;
    if (s->m->failed || count < 2) return;
    bool is_taken =
        is_ordered(last) ? take_ordered(s, last->node, at.input, nodes, count) : take_permutation(s, last, nodes, count);
    if (is_taken) {
        if (!s->first.id) s->first = last->node;
        if (!is_ordered(last)) s->count++;
        fb_match_found(s->m, nodes, count);
    } else if (!fb_is_nested(s->m->graph, last->node)) {
        fb_refuse_for(s->m, (fb_obstacle){"unknown-shape", "not all sizes of what the last one gives are numbers"}, nodes,
                      count);
    }
}

static void match_program(onnx_search *s, fb_program program) {
    const fb_graph *g = s->m->graph;
    for (fb_node n = fb_first_node(g, program); n.id && !s->m->failed && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        fb_rearrange view;
        if (view_at(s, n, &view) && !is_inside_onnx(s, &view)) match_onnx_chain(s, &view);
    }
}

static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_node_limit(g) + 1;
    onnx_search s = {.m = m,
                     .types = fb_onnx_types_find(g, m->work),
                     .becomes = fb_arena_alloc(m->arena, limit),
                     .match_of = fb_arena_alloc(m->arena, limit * sizeof *s.match_of)};
    onnx_plan *plan = fb_arena_alloc(m->arena, sizeof *plan);
    m->failed |= !fb_constant_list_begin(&s.shapes, m) || !s.types || !s.becomes || !s.match_of || !plan;
    if (!m->failed) memset(s.becomes, 0, limit);
    for (uint32_t program = FB_MAIN_PROGRAM.id; program < fb_programs_to_clean(g) && !m->failed; program++)
        match_program(&s, (fb_program){program});
    int *dims = fb_arena_alloc(m->arena, s.dims.size + 1);
    fb_constant_plan made;
    m->failed |= !fb_constant_list_end(&s.shapes, &made) || !dims;
    if (dims && s.dims.size) memcpy(dims, s.dims.data, s.dims.size);
    made.first = s.first;
    if (!m->failed) *plan = (onnx_plan){made, s.becomes, dims, s.match_of};
    m->plan = plan;
    fb_buffer_free(&s.chain);
    fb_buffer_free(&s.dims);
    fb_onnx_types_free(s.types);
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        fb_rearrange view;
        if (fb_rearrange_at(g, n, &view) && view.form != FB_REARRANGE_CONTIGUOUS && !is_inside(g, &view)) match_chain(m, &view);
        else if (expanded_view(g, n, &view)) match_expand(m, n, &view);
    }
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The call with these ints behind x. */
static void call_with(fb_rewrite *rw, fb_node n, fb_made made, fb_node x, const fb_value *ints, int count) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_release_call(rw, n);
    fb_build_over(rw, n, made, fb_spread_args(g, n, fb_make_node(g, x), ints, (size_t)count), FB_VALUE_EMPTY_MAP);
}

static void edit_reshape(fb_rewrite *rw, fb_node n, fb_node origin) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value sizes[FB_MAX_RANK], shape = fb_node_at(g, n)->shape;
    if (has_sizes(g, n)) {
        fb_value args = fb_list_with(g, fb_node_at(g, n)->args, 0, fb_make_node(g, origin));
        fb_build_over(rw, n, FB_MADE_RESHAPE_METHOD, args, FB_VALUE_EMPTY_MAP);
        return;
    }
    for (int i = 0; i < fb_shape_rank(g, shape); i++) sizes[i] = fb_make_int(g, fb_shape_size(g, shape, i));
    call_with(rw, n, FB_MADE_RESHAPE_METHOD, origin, sizes, fb_shape_rank(g, shape));
}

static void edit_permute(fb_rewrite *rw, const fb_match *match, const fb_rearrange *last, fb_node origin) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_rearrange before;
    fb_value dims[FB_MAX_RANK];
    int from[FB_MAX_RANK];
    for (int i = 0; i < last->rank; i++) from[i] = last->dims[i];
    for (size_t k = 1; k < match->count; k++) {
        if (!fb_rearrange_at(g, match->nodes[k], &before)) return;
        if (is_ordered(&before)) continue; /* a copy between two */
        for (int i = 0; i < last->rank; i++) from[i] = before.dims[from[i]];
    }
    for (int i = 0; i < last->rank; i++) dims[i] = fb_make_int(g, from[i]);
    call_with(rw, last->node, FB_MADE_PERMUTE, origin, dims, last->rank);
}

static void edit_expand(fb_rewrite *rw, fb_node expand, const fb_rearrange *view) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, expand);
    fb_set_args(rw, expand, fb_list_with(g, row->args, 0, fb_make_node(g, view->input)), row->kwargs);
    fb_move_assertions(rw, view->node, view->input);
    fb_erase_call(rw, view->node);
    fb_mark(rw, expand);
}

static void edit_onnx(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    const onnx_plan *plan = match->plan;
    fb_node n = match->nodes[0], first = match->nodes[match->count - 1];
    fb_value origin = fb_node_arg(g, first, 0), dims[FB_MAX_RANK];
    fb_put_planned(rw, &plan->made, match);
    for (size_t k = match->count; k-- > 0;) fb_release_reads(rw, match->nodes[k]);
    for (size_t k = match->count - 1; k > 0; k--) fb_erase(rw, match->nodes[k]);
    if (plan->becomes[n.id] == ITS_INPUT) {
        fb_absorb(rw, n, fb_value_node(g, origin));
    } else if (plan->becomes[n.id] == A_RESHAPE) {
        fb_node read = fb_read_planned(rw, &plan->made, n);
        if (!read.id) return;
        fb_set_target(rw, n, FB_CALL_FUNCTION, fb_node_target(g, reshape_in(g, match->nodes, match->count)));
        fb_set_args(rw, n, FB_ARGS(g, origin, fb_make_node(g, read)), FB_VALUE_EMPTY_MAP);
    } else {
        int rank = (int)fb_value_at(g, fb_node_at(g, n)->shape)->count;
        for (int i = 0; i < rank; i++) dims[i] = fb_make_int(g, plan->dims[plan->match_of[n.id] * FB_MAX_RANK + (size_t)i]);
        fb_value perm = fb_make_list(g, dims, (size_t)rank);
        fb_set_args(rw, n, FB_ARGS(g, origin), fb_map_with(g, fb_node_at(g, n)->kwargs, "perm", perm));
    }
    if (plan->becomes[n.id] != ITS_INPUT) fb_mark(rw, n);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const fb_graph *g = fb_rewrite_graph(rw);
    fb_rearrange last, first;
    if (expanded_view(g, match->nodes[0], &last)) {
        edit_expand(rw, match->nodes[0], &last);
        return;
    }
    if (!fb_rearrange_at(g, match->nodes[0], &last) || !fb_rearrange_at(g, match->nodes[match->count - 1], &first)) return;
    if (is_ordered(&last)) edit_reshape(rw, last.node, first.input);
    else edit_permute(rw, match, &last, first.input);
    for (size_t k = match->count - 1; k > 0; k--) fb_move_assertions(rw, match->nodes[k], first.input);
    for (size_t k = match->count - 1; k > 0; k--) fb_erase_call(rw, match->nodes[k]);
    fb_mark(rw, last.node);
}

const fb_pass fb_merge_views = {
    .name = "MergeViews",
    .version = 1,
    .summary = "Merges a chain of reshapes into one, a chain of transposes into one `permute`, and `unsqueeze` into `expand`.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
    .match_onnx = match_onnx,
    .edit_onnx = edit_onnx,
};
