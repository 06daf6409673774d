/* MergeConsecutiveCalls: merges two calls of an ONNX model into one, where none else needs the first.
 *
 *     Concat(Concat(a, b), c)                      Concat(a, b, c)
 *     Slice(Slice(x, axis 1), axis 2)              Slice(x, axes 1 and 2)
 *     Cast(Cast(x, float64), float16)              Cast(x, float16)
 *     Unsqueeze(ReduceMax(x, axis 1), axis 1)      ReduceMax(x, axis 1), which keeps the dimension
 *
 * Concats of one axis. Slices whose bounds are constants; two of one axis with steps of 1 from the beginning, not from the end.
 * Casts of which the first keeps each number. A reduction and a Squeeze, Unsqueeze or Reshape that only takes away, or gives
 * back, the dimensions of size 1. In PyTorch a slice is a view, and such calls are rare. Exactness: moves. Reversible.
 */
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/analysis/rearrange.h"
#include "core/analysis/shape.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/weights/dtype.h"

enum { MOST_CUTS = 16, MOST_READERS = 64, MOST_JOINED = 1000 }; /* the last two keep a run linear in the calls */

/* The part of one axis that a Slice takes. */
typedef struct cut {
    int axis;
    int64_t start, end, step;
} cut;

typedef enum kind { ALONE, CONCATS, SLICES, CASTS, REDUCTION } kind;

typedef struct merger {
    fb_node first, second;
    kind kind;
} merger;

static bool is_slice(const fb_graph *g, fb_node n) {
    return fb_is_spelled(fb_node_target(g, n), FB_ONNX_DEFAULT "Slice.");
}

/* ---- concatenations ------------------------------------------------------------------------------------------------------ */

static bool read_axis(const fb_graph *g, fb_node concat, int *axis) {
    int64_t given;
    fb_value named = fb_node_kwarg(g, concat, "axis");
    return named.id && fb_value_is_int(g, named, &given) && fb_normalise_axis(given, fb_node_rank(g, concat), axis);
}

static bool are_concats(const fb_graph *g, fb_node first, fb_node second) {
    int inner, outer;
    return fb_op_is(g, first, FB_OP_ONNX_CONCAT) && fb_op_is(g, second, FB_OP_ONNX_CONCAT) && read_axis(g, first, &inner) &&
           read_axis(g, second, &outer) && inner == outer;
}

static void join(fb_rewrite *rw, const merger *found) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_value_row *outer = fb_value_at(g, fb_node_at(g, found->second)->args);
    const fb_value_row *inner = fb_value_at(g, fb_node_at(g, found->first)->args);
    fb_buffer args = {0};
    for (uint32_t i = 0; i < outer->count; i++) {
        bool is_first = fb_value_node(g, outer->items[i]).id == found->first.id;
        fb_buffer_append(&args, is_first ? inner->items : &outer->items[i], (is_first ? inner->count : 1) * sizeof(fb_value));
    }
    if (args.failed) fb_graph_fail_memory(g);
    else
        fb_set_args(rw, found->second, fb_make_list(g, (const fb_value *)(const void *)args.data, args.size / sizeof(fb_value)),
                    fb_node_at(g, found->second)->kwargs);
    fb_buffer_free(&args);
}

/* ---- slices -------------------------------------------------------------------------------------------------------------- */

/* Their number; 0: not all are known. */
static int read_cuts(const fb_graph *g, fb_node slice, cut *out) {
    int64_t starts[MOST_CUTS], ends[MOST_CUTS], axes[MOST_CUTS], steps[MOST_CUTS];
    int rank = fb_node_rank(g, slice), count = fb_onnx_bounds_of(g, slice, "starts", 1, starts, MOST_CUTS);
    if (rank < 0 || count <= 0 || fb_onnx_bounds_of(g, slice, "ends", 2, ends, MOST_CUTS) != count) return 0;
    int given = fb_onnx_ints_of(g, slice, "axes", 3, axes, MOST_CUTS);
    int stepped = fb_onnx_ints_of(g, slice, "steps", 4, steps, MOST_CUTS);
    if ((given != count && given != -1) || (stepped != count && stepped != -1)) return 0;
    for (int i = 0; i < count; i++) {
        out[i] = (cut){.start = starts[i], .end = ends[i], .step = stepped == -1 ? 1 : steps[i]};
        if (!fb_normalise_axis(given == -1 ? i : axes[i], rank, &out[i].axis)) return 0;
    }
    return count;
}

static bool is_plain(const cut *c) {
    return c->step == 1 && c->start >= 0 && c->end >= 0;
}

/* Takes `next` of what `c` leaves: of elements s, s + 1 … before e those from s2 on, before e2. */
static bool cut_further(cut *c, const cut *next) {
    int64_t start, end;
    if (!is_plain(c) || !is_plain(next) || __builtin_add_overflow(c->start, next->start, &start)) return false;
    if (__builtin_add_overflow(c->start, next->end, &end) || end > c->end) end = c->end;
    c->start = start;
    c->end = end;
    return true;
}

/* The cuts of both; 0: they are not known, or can't be one. */
static int read_both(const fb_graph *g, fb_node first, fb_node second, cut *out) {
    cut more[MOST_CUTS];
    int count = read_cuts(g, first, out), other = read_cuts(g, second, more);
    if (!count || !other) return 0;
    for (int i = 0; i < other; i++) {
        int at = 0;
        while (at < count && out[at].axis != more[i].axis) at++;
        if (at < count && !cut_further(&out[at], &more[i])) return 0;
        if (at == count && count == MOST_CUTS) return 0;
        if (at == count) out[count++] = more[i];
    }
    return count;
}

static bool are_slices(const fb_graph *g, fb_node first, fb_node second) {
    cut cuts[MOST_CUTS];
    bool is_main = !fb_is_nested(g, second); /* new constants belong to it */
    return is_main && is_slice(g, first) && is_slice(g, second) && fb_arg_node(g, second, 0).id == first.id &&
           fb_mentions_of(g, second, first) == 1 && read_both(g, first, second, cuts) > 0;
}

/* Bounds as attributes, which versions before 10 have, or as inputs. */
static void put_bounds(fb_rewrite *rw, fb_node slice, fb_value x, const cut *cuts, int count, bool are_inputs) {
    static const char *const names[] = {"starts", "ends", "axes", "steps"};
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value args[5] = {x}, kwargs = fb_node_at(g, slice)->kwargs;
    bool has_step = false;
    for (int i = 0; i < count; i++) has_step |= cuts[i].step != 1;
    for (int k = 0; k < (has_step ? 4 : 3); k++) {
        int64_t ints[MOST_CUTS];
        for (int i = 0; i < count; i++)
            ints[i] = k == 0 ? cuts[i].start : k == 1 ? cuts[i].end : k == 2 ? cuts[i].axis : cuts[i].step;
        if (are_inputs) args[k + 1] = fb_make_node(g, fb_build_ints(rw, slice, ints, (size_t)count));
        else kwargs = fb_map_with(g, kwargs, names[k], fb_make_shape(g, ints, (size_t)count));
    }
    fb_set_args(rw, slice, fb_make_list(g, args, !are_inputs ? 1 : has_step ? 5 : 4), kwargs);
}

static void cut_once(fb_rewrite *rw, const merger *found) {
    fb_graph *g = fb_rewrite_graph(rw);
    cut cuts[MOST_CUTS];
    int count = read_both(g, found->first, found->second, cuts);
    bool are_inputs = !fb_node_kwarg(g, found->second, "starts").id;
    fb_release_reads(rw, found->first);
    fb_release_reads(rw, found->second);
    put_bounds(rw, found->second, fb_node_arg(g, found->first, 0), cuts, count, are_inputs);
}

/* ---- casts --------------------------------------------------------------------------------------------------------------- */

/* Bits of an integer's value; 0 for other dtypes. */
static int value_bits(fb_dtype dtype, bool *is_signed) {
    *is_signed = dtype == FB_INT8 || dtype == FB_INT16 || dtype == FB_INT32 || dtype == FB_INT64;
    if (dtype == FB_BOOL) return 1;
    return fb_dtype_is_integer(dtype) ? 8 * (int)fb_dtype_size(dtype) - *is_signed : 0;
}

/* Is each number of the one a number of the other? */
static bool holds_all(fb_dtype from, fb_dtype to) {
    bool is_signed, has_sign;
    fb_dtype_range range;
    int bits = value_bits(from, &is_signed), room = value_bits(to, &has_sign);
    if (from == to) return bits || fb_dtype_is_computed(from);
    if (bits && room) return to != FB_BOOL && bits <= room && (!is_signed || has_sign);
    if (bits) return fb_dtype_is_computed(to) && fb_dtype_limits(to, &range) && bits <= range.mantissa_bits;
    switch (from) {
    case FB_FLOAT16:
    case FB_BFLOAT16: return to == FB_FLOAT32 || to == FB_FLOAT64;
    case FB_FLOAT32: return to == FB_FLOAT64;
    default: return false;
    }
}

/* Integers of many bits may be rounded twice on the way to few. */
static bool is_rounded_once(fb_dtype from, fb_dtype to) {
    bool ignored, is_narrow = fb_dtype_is_floating(to) && fb_dtype_size(to) <= 2;
    return value_bits(from, &ignored) <= 16 || !is_narrow;
}

static bool are_casts(const fb_graph *g, fb_node first, fb_node second) {
    if (!fb_op_is(g, first, FB_OP_ONNX_CAST) || !fb_op_is(g, second, FB_OP_ONNX_CAST)) return false;
    fb_node x = fb_arg_node(g, first, 0);
    fb_dtype from = x.id ? (fb_dtype)fb_node_at(g, x)->dtype : FB_DTYPE_UNKNOWN, to = (fb_dtype)fb_node_at(g, second)->dtype;
    bool is_number = fb_dtype_is_integer(to) || fb_dtype_is_floating(to);
    return is_number && holds_all(from, (fb_dtype)fb_node_at(g, first)->dtype) && is_rounded_once(from, to);
}

static void cast_once(fb_rewrite *rw, const merger *found) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_set_args(rw, found->second, fb_node_at(g, found->first)->args, fb_node_at(g, found->second)->kwargs);
}

/* ---- reductions ---------------------------------------------------------------------------------------------------------- */

/* Has `view` the sizes that the reduction has where it keeps its dimensions, or does not, unlike now? */
static bool is_other_form(const fb_graph *g, fb_node reduction, fb_node view) {
    fb_shape_result from, to;
    uint32_t axes = 0;
    bool keeps;
    fb_node x = fb_arg_node(g, reduction, 0);
    if (!x.id || !fb_recorded_shape(g, x, &from) || !fb_recorded_shape(g, view, &to) ||
        !fb_reduction_axes(g, reduction, from.rank, &axes, &keeps))
        return false;
    int at = 0;
    for (int i = 0; i < from.rank; i++) {
        bool is_reduced = axes >> i & 1;
        if (is_reduced && keeps) continue;
        bool is_it = at < to.rank && (is_reduced ? fb_dim_is(to.sizes[at], 1) : fb_dim_equal(to.sizes[at], from.sizes[i]));
        if (!is_it) return false;
        at++;
    }
    return at == to.rank;
}

static bool is_reduced_view(const fb_graph *g, fb_node first, fb_node second) {
    fb_rearrange view;
    return fb_op_is(g, first, FB_OP_ONNX_REDUCE) && fb_rearrange_at(g, second, &view) && view.form == FB_REARRANGE_RESHAPE &&
           view.input.id == first.id && fb_mentions_of(g, second, first) == 1 && is_other_form(g, first, second);
}

static void reduce_so(fb_rewrite *rw, const merger *found) {
    fb_graph *g = fb_rewrite_graph(rw);
    const fb_node_row *row = fb_node_at(g, found->first);
    bool kept = fb_node_rank(g, found->first) == fb_node_rank(g, fb_arg_node(g, found->first, 0));
    fb_value args = row->args, kwargs = fb_map_with(g, row->kwargs, "keepdims", fb_make_int(g, !kept));
    fb_release_reads(rw, found->second);
    fb_set_target(rw, found->second, FB_CALL_FUNCTION, fb_node_target(g, found->first));
    fb_set_args(rw, found->second, args, kwargs);
}

/* ---- match and edit ------------------------------------------------------------------------------------------------------ */

/* Is it a call of one result, which nothing beside the graph names? */
static bool is_simple(const fb_graph *g, fb_node n) {
    return fb_node_at(g, n)->opcode == FB_CALL_FUNCTION && fb_onnx_results(g, n) < 0 && fb_op_is_pure(g, n);
}

static kind kind_of(const fb_graph *g, fb_node first, fb_node second) {
    if (are_concats(g, first, second)) return CONCATS;
    if (are_slices(g, first, second)) return SLICES;
    if (are_casts(g, first, second)) return CASTS;
    return is_reduced_view(g, first, second) ? REDUCTION : ALONE;
}

/* Is `first` gone then? Each of several slices or casts may read what it reads; a Concat would be computed more than once. */
static bool is_read_by_such(const fb_graph *g, fb_node first, fb_node second, kind of) {
    bool is_it = fb_node_at(g, first)->user_count <= MOST_READERS;
    for (uint32_t e = fb_user_first(g, first); e && is_it; e = fb_user_next(g, e)) {
        fb_node user = fb_edge_user(g, e);
        bool is_alike = (of == SLICES || of == CASTS) && is_simple(g, user) && kind_of(g, first, user) == of;
        is_it = user.id == second.id || is_alike;
    }
    return is_it;
}

/* By node: the arguments of a Concat that was found, with those of others that go into it; or that a call becomes another. */
static const uint32_t ANOTHER = UINT32_MAX;

static uint32_t arguments_of(const fb_graph *g, const uint32_t *becomes, fb_node n) {
    return becomes[n.id] ? becomes[n.id] : fb_value_at(g, fb_node_at(g, n)->args)->count;
}

static void match(fb_matcher *m, fb_node second, uint32_t *becomes) {
    const fb_graph *g = m->graph;
    if (!is_simple(g, second)) return;
    for (uint32_t e = fb_input_first(g, second); e; e = fb_input_next(g, e)) {
        fb_node first = fb_edge_input(g, e);
        if (becomes[first.id] == ANOTHER || !is_simple(g, first) || fb_op_effects(g, first).is_named) continue;
        merger found = {first, second, kind_of(g, first, second)};
        if (found.kind == ALONE || !is_read_by_such(g, first, second, found.kind)) continue;
        if (found.kind == CONCATS) {
            uint64_t mentions = (uint64_t)fb_mentions_of(g, second, first), each = arguments_of(g, becomes, first);
            uint64_t joined = arguments_of(g, becomes, second) - mentions + each * mentions;
            if (joined > MOST_JOINED) continue;
            becomes[second.id] = (uint32_t)joined;
        } else if (found.kind != CASTS) {
            becomes[second.id] = ANOTHER;
        }
        fb_match_found_as(m, &found, sizeof found);
        if (found.kind != CONCATS) return;
    }
}

static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    size_t size = fb_node_limit(g) * sizeof(uint32_t);
    uint32_t *becomes = fb_arena_alloc(m->arena, size);
    m->failed |= !becomes;
    if (becomes) memset(becomes, 0, size);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_programs_to_clean(g) && becomes; p++)
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n))
            match(m, n, becomes);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const merger *found = match->data;
    switch (found->kind) {
    case CONCATS: join(rw, found); break;
    case SLICES: cut_once(rw, found); break;
    case CASTS: cast_once(rw, found); break;
    case REDUCTION: reduce_so(rw, found); break;
    case ALONE: return;
    }
    fb_erase_unread(rw, found->first);
    fb_mark(rw, found->second);
}

const fb_pass fb_merge_consecutive_calls = {
    .name = "MergeConsecutiveCalls",
    .version = 1,
    .summary = "Merges consecutive calls of ONNX models: `Concat`s, `Slice`s, `Cast`s, and a reduction with an `Unsqueeze`.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = fb_match_nothing,
    .match_onnx = match_onnx,
    .edit = edit,
};
