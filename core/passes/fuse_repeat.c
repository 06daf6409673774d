/* FuseRepeat: what repeats each part of a tensor with three calls does it with one.
 *
 *     x ── unsqueeze(2) ── expand(2, 4, 3, 16, 8) ── reshape(2, 12, 16, 8)          x ── repeat_interleave(3, dim=1)
 *
 * Grouped heads of attention are written like this (repeat_kv of transformers). In both dialects, with any call that inserts
 * the dimension of size 1 and any that merges the two dimensions, as recorded. PyTorch makes the same three calls of
 * repeat_interleave.
 *
 * Not where the dimension before has one element: there a reshape copies nothing. Refused where something writes the memory, or
 * where x may be expanded in that dimension itself, so that nothing is copied, and a reader may notice.
 *
 * Exactness: moves. Reversible.
 */
#include "core/analysis/memory_layout.h"
#include "core/analysis/rearrange.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"

typedef struct repeat {
    fb_rearrange before, after; /* the calls around the expansion */
    fb_node expansion;
    int axis; /* of the parts */
    int64_t count;
} repeat;

static bool is_more(fb_dim size, int64_t than) {
    return !size.symbol.id && size.size > than;
}

/* The axis behind the parts, which the expansion alone changes, from 1 to `count`. */
static bool find_axis(const fb_shape_result *from, const fb_shape_result *to, repeat *r) {
    int changed = 0;
    for (int i = 0; i < from->rank; i++) {
        if (fb_dim_equal(from->sizes[i], to->sizes[i])) continue;
        changed++;
        r->axis = i - 1;
    }
    if (changed != 1 || r->axis < 0 || !fb_dim_is(from->sizes[r->axis + 1], 1) || !is_more(to->sizes[r->axis + 1], 1))
        return false;
    r->count = to->sizes[r->axis + 1].size;
    return true;
}

/* x has not the axis, and what comes out has the two as one. */
static bool fits_around(const fb_shape_result *x, const fb_shape_result *expanded, const fb_shape_result *made,
                        const repeat *r) {
    if (x->rank != expanded->rank - 1 || made->rank != x->rank || !is_more(x->sizes[r->axis], 1)) return false;
    for (int i = 0; i < x->rank; i++) {
        bool is_parts = i == r->axis;
        if (!fb_dim_equal(x->sizes[i], expanded->sizes[i <= r->axis ? i : i + 1])) return false;
        if (is_parts ? !fb_dim_is(made->sizes[i], x->sizes[i].size * r->count) : !fb_dim_equal(made->sizes[i], x->sizes[i]))
            return false;
    }
    return true;
}

static bool find(const fb_graph *g, fb_node n, repeat *r) {
    fb_shape_result x, from, to, made;
    if (!fb_rearrange_at(g, n, &r->after) || r->after.form != FB_REARRANGE_RESHAPE) return false;
    r->expansion = r->after.input;
    if (!fb_op_is(g, r->expansion, FB_OP_EXPAND) || fb_node_at(g, r->expansion)->user_count != 1) return false;
    fb_node widened = fb_call_argument_node(g, r->expansion, "input");
    if (!widened.id || !fb_rearrange_at(g, widened, &r->before) || r->before.form != FB_REARRANGE_RESHAPE) return false;
    bool is_recorded = fb_recorded_shape(g, r->before.input, &x) && fb_recorded_shape(g, widened, &from) &&
                       fb_recorded_shape(g, r->expansion, &to) && fb_recorded_shape(g, n, &made);
    return is_recorded && from.rank == to.rank && from.rank > 0 && find_axis(&from, &to, r) && fits_around(&x, &to, &made, r);
}

static void match(fb_matcher *m, fb_node n) {
    const fb_graph *g = m->graph;
    repeat r;
    if (!find(g, n, &r)) return;
    const fb_alias *alias = fb_matcher_writes(m);
    if (!alias) return;
    if (fb_is_mutated(alias, n) || fb_is_mutated(alias, r.before.input))
        fb_refuse_node(m, "mutated", n, "the memory that it shows is written in place");
    else if (!fb_is_dense(g, r.before.input) && fb_layout_is_read(g, n))
        fb_refuse_node(m, "needs-contiguous", n, "it may copy nothing, and a reader may notice how it lies in memory");
    else fb_match_found(m, &n, 1);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    repeat r;
    fb_node n = match->nodes[0];
    if (!find(g, n, &r)) return;
    fb_value args = FB_ARGS(g, fb_make_node(g, r.before.input), fb_make_int(g, r.count), fb_make_int(g, r.axis));
    fb_release_call(rw, n);
    fb_build_over(rw, n, FB_MADE_REPEAT, args, FB_VALUE_EMPTY_MAP);
    fb_mark(rw, n);
    fb_erase_unread(rw, r.before.node);
    fb_erase_call(rw, r.expansion);
}

const fb_pass fb_fuse_repeat = {
    .name = "FuseRepeat",
    .version = 1,
    .summary = "Replaces an expansion between two reshapes, such as that of grouped heads, with one `repeat_interleave`.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_MOVES,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .begins_at = fb_op_reshapes,
    .match = match,
    .edit = edit,
};
