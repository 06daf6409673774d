/* InlineVmap: what torch.export writes of torch.vmap becomes plain calls, whose operands broadcast.
 *
 *     _vmap_increment_nesting(3)                                  a ── reshape(3, 1) ─┐
 *     a ── _add_batch_dim(·, 0, 1) ─┐                             b ──────────────────┴ le ── y
 *     _vmap_increment_nesting(5)    │
 *     b ── _add_batch_dim(·, 0, 2) ─┴ le ── _remove_batch_dim(·, 2, 5, 0) ── _remove_batch_dim(·, 1, 3, 0) ── y
 *     _vmap_decrement_nesting(), twice
 *
 * This is how the masks of transformers are exported: what is computed of one query and one key, for all of them. Each level of
 * torch.vmap becomes a dimension, the outermost the first. A value that is batched at a level has the level's size there, and
 * else 1; so calls that work element by element stay as they are, x[i, j] of such elements becomes an index, and what the
 * vmap gives is expanded where it is not batched at all levels. What is computed from constants alone can be evaluated then.
 *
 * Taken are regions in which each level is opened once, batches are vectors, and the results leave from the innermost level, as
 * the first dimension. Shapes and dtypes must be recorded. Calls in the region that read no batch stay.
 *
 * Kept, all of the region:
 *   - where an operator of batches is not element by element, or has an effect; or operands have different dtypes, since single
 *     elements are promoted otherwise than tensors
 *   - where a call of torch.vmap has arguments that it does not know
 *   - where something is written meanwhile or afterwards that shares memory with a batch
 *   - where a reader may notice the strides of the result
 *
 * Exactness: moves. Reversible.
 */
#include "core/analysis/memory_layout.h"
#include "core/analysis/shape.h"
#include "core/operators/spelling.h"
#include "core/pass/pass.h"

enum { FIRST_INDEX = 4 }; /* of flat_apply(function, shape, name, x, index …) */

typedef enum role {
    STAYS = 0, /* it reads no batch */
    GOES,      /* it opens or closes a level; or nothing reads it */
    ENTERS,    /* _add_batch_dim */
    COMPUTES,  /* element by element */
    INDEXES,   /* x[i, j] */
    LEAVES,    /* _remove_batch_dim */
} role;

/* By node. */
typedef struct part {
    uint8_t role;
    uint8_t level;   /* that it enters or leaves */
    uint32_t levels; /* at which it is batched: bit k - 1 for level k */
} part;

typedef struct region {
    fb_node first, last;
    int depth;                  /* levels */
    int64_t sizes[FB_MAX_RANK]; /* of the levels, from the outermost */
} region;

typedef struct search {
    fb_matcher *m;
    const fb_graph *graph;
    part *parts;
    region at;
    int open; /* levels */
    fb_node blamed;
    fb_obstacle obstacle;
} search;

static void oppose(search *s, fb_node node, const char *code, const char *detail) {
    if (s->obstacle.code) return;
    s->obstacle = (fb_obstacle){code, detail};
    s->blamed = node;
}

/* ---- one node of a region ------------------------------------------------------------------------------------------------ */

static int64_t int_argument(const fb_graph *g, fb_node node, const char *parameter) {
    int64_t number;
    fb_value value = fb_call_argument(g, node, parameter);
    return value.id && fb_value_is_int(g, value, &number) ? number : -1;
}

static bool is_batch(const search *s, fb_node node) {
    return s->parts[node.id].role >= ENTERS;
}

static bool reads_batch(const search *s, fb_node node) {
    for (uint32_t e = fb_input_first(s->graph, node); e; e = fb_input_next(s->graph, e)) {
        if (is_batch(s, fb_edge_input(s->graph, e))) return true;
    }
    return false;
}

static bool is_single(const fb_graph *g, fb_node node) {
    const fb_node_row *row = fb_node_at(g, node);
    return row->shape.id && fb_shape_rank(g, row->shape) == 0 && row->dtype;
}

static bool is_step(fb_op op) {
    return op == FB_OP_ENTER_VMAP_LEVEL || op == FB_OP_EXIT_VMAP_LEVEL || op == FB_OP_LOAD_DECOMPOSITIONS;
}

static void take_step(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    bool is_plain = fb_op_is(g, node, FB_OP_ENTER_VMAP_LEVEL)
                        ? fb_argument_count(g, node) == 2 && fb_call_argument(g, node, "batch_size").id &&
                              fb_call_argument(g, node, "randomness").id
                        : fb_argument_count(g, node) == 0;
    if (is_plain) s->parts[node.id].role = GOES;
    else oppose(s, node, "unsupported-arguments", "its arguments are not those that torch.vmap gives it");
}

static void enter(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_node input = fb_call_argument_node(g, node, "input");
    int64_t level = int_argument(g, node, "level");
    fb_value shape = input.id ? fb_node_at(g, input)->shape : (fb_value){0};
    if (!input.id || is_batch(s, input) || level < 1 || level != s->open || int_argument(g, node, "batch_dim") != 0)
        oppose(s, node, "unsupported-arguments", "what becomes a batch is one already, or not the innermost level's");
    else if (fb_argument_count(g, node) != 3)
        oppose(s, node, "unsupported-arguments", "it has arguments besides input, dimension and level");
    else if (!shape.id || fb_shape_rank(g, shape) != 1 || fb_shape_size(g, shape, 0) != s->at.sizes[level - 1] ||
             !is_single(g, node))
        oppose(s, node, "unsupported-shape", "what becomes a batch is not recorded as a vector of the level's size");
    else s->parts[node.id] = (part){ENTERS, (uint8_t)level, 1U << (level - 1)};
}

/* Checks that a value that leaves has the dimensions of all levels from this one on. */
static bool has_sizes_from(const search *s, fb_node node, int64_t level) {
    fb_value shape = fb_node_at(s->graph, node)->shape;
    bool is_same = shape.id && fb_shape_rank(s->graph, shape) == s->at.depth - level + 1;
    for (int64_t i = level; is_same && i <= s->at.depth; i++)
        is_same = fb_shape_size(s->graph, shape, (int)(i - level)) == s->at.sizes[i - 1];
    return is_same;
}

static void leave(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_node input = fb_call_argument_node(g, node, "input");
    int64_t level = int_argument(g, node, "level");
    const part *from = input.id ? &s->parts[input.id] : NULL;
    bool is_next = from && level == (from->role == LEAVES ? from->level - 1 : s->at.depth) && level == s->open && level > 0;
    bool is_plain =
        is_next && int_argument(g, node, "out_dim") == 0 && int_argument(g, node, "batch_size") == s->at.sizes[level - 1];
    if (!is_plain || !has_sizes_from(s, node, level) || (from->role != LEAVES && !is_single(g, input)))
        oppose(s, node, "unsupported-arguments",
               "it leaves the levels otherwise than one after the other, as the first dimension");
    else if (from->role == ENTERS) oppose(s, node, "unsupported-arguments", "it gives what it is given");
    else if (fb_argument_count(g, node) != 4)
        oppose(s, node, "unsupported-arguments", "it has arguments besides input, level, size and dimension");
    else if (level == 1 && fb_layout_is_read(g, node))
        oppose(s, node, "needs-contiguous", "a reader may notice how it lies in memory");
    else s->parts[node.id] = (part){LEAVES, (uint8_t)level, from->levels};
}

/* All that it reads are single elements of one dtype, but for a condition. *levels: at which they are batched. */
static bool reads_elements(search *s, fb_node node, uint32_t *levels) {
    const fb_graph *g = s->graph;
    fb_node condition = fb_op_is(g, node, FB_OP_WHERE) ? fb_call_argument_node(g, node, "condition") : (fb_node){0};
    uint8_t dtype = FB_DTYPE_UNKNOWN;
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        const fb_node_row *row = fb_node_at(g, input);
        if (!is_single(g, input) || s->parts[input.id].role == LEAVES) {
            oppose(s, node, "unsupported-shape", "it computes more than single elements of a batch");
            return false;
        }
        *levels |= s->parts[input.id].levels;
        if (input.id == condition.id) continue;
        if (dtype && dtype != row->dtype) {
            oppose(s, node, "dtype", "its operands have different dtypes, and tensors are promoted otherwise than elements");
            return false;
        }
        dtype = row->dtype;
    }
    return true;
}

static void compute(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    uint32_t levels = 0;
    fb_op op = fb_node_op(g, node);
    if (!(fb_op_makes_anew(op) || fb_op_maps_elements(op)) || fb_effect_obstacle(g, node).code ||
        fb_node_kwarg(g, node, "memory_format").id)
        oppose(s, node, "unsupported-operator", "it computes of a batch otherwise than element by element");
    else if (!is_single(g, node)) oppose(s, node, "unsupported-shape", "what it gives is not recorded as a single element");
    else if (reads_elements(s, node, &levels)) s->parts[node.id] = (part){COMPUTES, 0, fb_op_makes_anew(op) ? 0 : levels};
}

/* flat_apply of what transformers' masks apply: x[i, j]. */
static void look_up(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, node)->args);
    fb_node x = args->count > FIRST_INDEX ? fb_value_node(g, args->items[FIRST_INDEX - 1]) : (fb_node){0};
    uint32_t levels = 0;
    bool fits = x.id && !is_batch(s, x) && !fb_op_effects(g, node).is_unknown && is_single(g, node) &&
                fb_node_rank(g, x) == (int)args->count - FIRST_INDEX;
    for (uint32_t i = FIRST_INDEX; fits && i < args->count; i++) {
        fb_node index = fb_value_node(g, args->items[i]);
        fb_dtype dtype = index.id ? (fb_dtype)fb_node_at(g, index)->dtype : FB_DTYPE_UNKNOWN;
        fits = index.id && is_single(g, index) && s->parts[index.id].role != LEAVES && (dtype == FB_INT64 || dtype == FB_INT32);
        levels |= s->parts[index.id].levels;
    }
    if (fits) s->parts[node.id] = (part){INDEXES, 0, levels};
    else oppose(s, node, "unsupported-arguments", "it does not index each dimension of a tensor by one element");
}

static void look_at(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    fb_op op = fb_node_op(g, node);
    s->open += (op == FB_OP_ENTER_VMAP_LEVEL) - (op == FB_OP_EXIT_VMAP_LEVEL);
    if (is_step(op) && !fb_node_at(g, node)->user_count) take_step(s, node);
    else if (op == FB_OP_ADD_BATCH_DIM) enter(s, node);
    else if (op == FB_OP_REMOVE_BATCH_DIM) leave(s, node);
    else if (!reads_batch(s, node)) {
        bool is_assertion = fb_op_facts_of(op)->flags & FB_FACT_ASSERTS;
        bool is_quiet = fb_node_at(g, node)->opcode == FB_GET_ATTR || is_assertion || fb_op_is_pure(g, node);
        if (!is_quiet) oppose(s, node, "effect", "it does more than to compute, while a level is open");
    } else if (fb_asserts_type_only(g, node)) {
        /* It holds for the tensor as it did for its element. */
    } else if (!fb_node_at(g, node)->user_count && fb_op_is_pure(g, node)) {
        s->parts[node.id].role = GOES;
    } else if (op == FB_OP_FLAT_APPLY) look_up(s, node);
    else compute(s, node);
}

/* ---- regions ------------------------------------------------------------------------------------------------------------- */

/* From the call that opens level 1 to the one that closes it. False when it stays open, or a level is opened twice. */
static bool find_region(search *s, fb_node begin) {
    const fb_graph *g = s->graph;
    int open = 0;
    s->at = (region){.first = begin};
    for (fb_node n = begin; n.id && fb_matcher_goes_on(s->m); n = fb_next_node(g, n)) {
        if (fb_op_is(g, n, FB_OP_ENTER_VMAP_LEVEL)) {
            if (++open != s->at.depth + 1 || open >= FB_MAX_RANK) return false;
            s->at.sizes[s->at.depth++] = int_argument(g, n, "batch_size");
        }
        if (fb_op_is(g, n, FB_OP_EXIT_VMAP_LEVEL) && --open == 0) {
            s->at.last = n;
            return true;
        }
    }
    return false;
}

/* Is a batch read behind the region, or its memory written from the region on? */
static void check_batch(search *s, fb_node node) {
    const fb_graph *g = s->graph;
    const part *p = &s->parts[node.id];
    uint32_t first = fb_node_at(g, s->at.first)->ordinal, last = fb_node_at(g, s->at.last)->ordinal;
    if (fb_last_write(fb_matcher_writes(s->m), node) > first)
        oppose(s, node, "tensor-mutated", "memory that it shares is written in place");
    for (uint32_t e = fb_user_first(g, node); e && !(p->role == LEAVES && p->level == 1); e = fb_user_next(g, e)) {
        if (fb_node_at(g, fb_edge_user(g, e))->ordinal > last)
            oppose(s, node, "shared-output", "a batch is read where its level is closed");
    }
}

static void forget(search *s) {
    for (fb_node n = s->at.first; n.id; n = fb_next_node(s->graph, n)) {
        s->parts[n.id] = (part){0};
        if (n.id == s->at.last.id) return;
    }
}

/* Removes the call that loads decompositions for this region as well, unless the next region needs it. */
static void take_load(search *s, fb_node load) {
    const fb_graph *g = s->graph;
    fb_node n = load.id ? fb_next_node(g, s->at.last) : (fb_node){0};
    while (n.id && !fb_op_is(g, n, FB_OP_ENTER_VMAP_LEVEL) && !fb_op_is(g, n, FB_OP_LOAD_DECOMPOSITIONS))
        n = fb_next_node(g, n);
    bool is_shared = n.id && fb_op_is(g, n, FB_OP_ENTER_VMAP_LEVEL);
    if (!load.id || fb_node_at(g, load)->user_count || fb_argument_count(g, load) != 0 || is_shared) return;
    s->parts[load.id].role = GOES;
    s->at.first = load;
}

static void match_region(search *s, fb_node load) {
    s->open = 0;
    s->obstacle = FB_NO_OBSTACLE;
    for (fb_node n = s->at.first; n.id && fb_matcher_goes_on(s->m); n = fb_next_node(s->graph, n)) {
        look_at(s, n);
        if (n.id == s->at.last.id) break;
    }
    for (fb_node n = s->at.first; n.id && n.id != s->at.last.id; n = fb_next_node(s->graph, n))
        if (is_batch(s, n)) check_batch(s, n);
    if (s->obstacle.code) {
        forget(s);
        fb_refuse_for(s->m, s->obstacle, &s->blamed, 1);
        return;
    }
    take_load(s, load);
    fb_match_found_as(s->m, &s->at, sizeof s->at);
}

static bool is_load_or_level(fb_op op) {
    return op == FB_OP_LOAD_DECOMPOSITIONS || op == FB_OP_ENTER_VMAP_LEVEL;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    size_t size = (fb_node_limit(g) + (size_t)1) * sizeof(part);
    search s = {.m = m, .graph = g};
    fb_node load = {0};
    fb_candidates all = {.matcher = m, .begins_at = is_load_or_level};
    for (fb_node n; (n = fb_next_candidate(&all)).id;) {
        if (s.at.last.id && fb_node_at(g, n)->ordinal <= fb_node_at(g, s.at.last)->ordinal)
            continue; /* inside the last region */
        if (fb_op_is(g, n, FB_OP_LOAD_DECOMPOSITIONS)) load = n;
        if (!fb_op_is(g, n, FB_OP_ENTER_VMAP_LEVEL)) continue;
        if (!s.parts) { /* most graphs have no vmap */
            s.parts = fb_arena_alloc(m->arena, size);
            m->failed |= !s.parts || !fb_matcher_writes(m);
            if (m->failed) return;
            memset(s.parts, 0, size);
        }
        m->plan = s.parts;
        if (!find_region(&s, n)) {
            fb_refuse_node(m, "unsupported-arguments", n, "its level is not closed, or a level within it is opened twice");
            return;
        }
        match_region(&s, load);
        load = (fb_node){0};
    }
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* The sizes of a batch: of its lowest level, and of all behind. */
static fb_value shape_of(fb_graph *g, const region *at, uint32_t levels) {
    int64_t sizes[FB_MAX_RANK];
    size_t rank = 0;
    for (int i = 0; i < at->depth; i++) {
        bool is_batched = levels >> i & 1;
        if (is_batched || rank) sizes[rank++] = is_batched ? at->sizes[i] : 1;
    }
    return fb_make_shape(g, sizes, rank);
}

static fb_value input_of(const fb_graph *g, fb_node node) {
    return fb_call_argument(g, node, "input");
}

static void become(fb_rewrite *rw, fb_node node, const char *target, fb_value args) {
    fb_set_target(rw, node, FB_CALL_FUNCTION, target);
    fb_set_args(rw, node, args, FB_VALUE_EMPTY_MAP);
    fb_mark(rw, node);
}

static void edit_index(fb_rewrite *rw, fb_node node) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, node)->args);
    fb_value indices = fb_make_list(g, args->items + FIRST_INDEX, args->count - FIRST_INDEX);
    fb_release_reads(rw, node);
    become(rw, node, FB_TARGET_INDEX_ATEN, FB_ARGS(g, args->items[FIRST_INDEX - 1], indices));
}

/* A batch of the innermost level is what enters it, as it is. */
static bool enters_as_it_is(const region *at, const part *p) {
    return p->role == ENTERS && p->level == at->depth;
}

/* The value that leaves the levels: it went into the first _remove_batch_dim. */
static fb_node batch_of(const fb_graph *g, const region *at, const part *parts, fb_node node) {
    while (parts[node.id].role == LEAVES || enters_as_it_is(at, &parts[node.id])) node = fb_value_node(g, input_of(g, node));
    return node;
}

static void edit_leaving(fb_rewrite *rw, const region *at, const part *parts, fb_node node) {
    fb_graph *g = fb_rewrite_graph(rw);
    const part *p = &parts[node.id];
    uint32_t all = (1U << at->depth) - 1;
    fb_node batch = batch_of(g, at, parts, node);
    if (p->level > 1) {
        fb_replace_uses(rw, node, batch);
        fb_erase(rw, node);
    } else if (p->levels == all) {
        fb_absorb(rw, node, batch);
    } else {
        become(rw, node, FB_TARGET_EXPAND_ATEN, FB_ARGS(g, fb_make_node(g, batch), shape_of(g, at, all)));
    }
}

static void edit_part(fb_rewrite *rw, const region *at, const part *parts, fb_node node) {
    fb_graph *g = fb_rewrite_graph(rw);
    const part *p = &parts[node.id];
    fb_value shape = shape_of(g, at, p->levels);
    if (p->role == STAYS) return;
    if (p->role == GOES) {
        fb_erase_call(rw, node);
        return;
    }
    if (p->role == LEAVES) {
        edit_leaving(rw, at, parts, node);
        return;
    }
    fb_set_result_type(rw, node, shape, (fb_dtype)fb_node_at(g, node)->dtype);
    if (enters_as_it_is(at, p)) {
        fb_replace_uses(rw, node, batch_of(g, at, parts, node));
        fb_erase(rw, node);
        return;
    }
    if (p->role == ENTERS) become(rw, node, FB_TARGET_RESHAPE_ATEN, FB_ARGS(g, input_of(g, node), shape));
    if (p->role == INDEXES) edit_index(rw, node);
    if (p->levels) fb_note_new_value(rw, node);
    fb_mark(rw, node);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const region *at = match->data;
    for (fb_node n = at->first, next = {0}; n.id; n = next) {
        next = n.id == at->last.id ? (fb_node){0} : fb_next_node(fb_rewrite_graph(rw), n);
        edit_part(rw, at, match->plan, n);
    }
}

const fb_pass fb_inline_vmap = {
    .name = "InlineVmap",
    .version = 1,
    .summary = "Replaces what `torch.export` writes for `torch.vmap`, such as masks of attention, with calls that broadcast.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FASTER,
    .reversible = true,
    .preserves_computation = true,
    .match_graph = match_graph,
    .edit = edit,
};
