#include "core/pass/rotary.h"

#include <stdlib.h>

#include "core/analysis/onnx.h"
#include "core/analysis/onnx_types.h"
#include "core/analysis/shape.h"
#include "core/operators/onnx.h"
#include "core/operators/spelling.h"
#include "core/pass/layer.h"

enum { RANK = 4, HEADS = 1, LAST = 3, DEEPEST = 16 };

static fb_node argument(const fb_graph *g, fb_node n, size_t index) {
    return fb_value_node(g, n.id ? fb_node_arg(g, n, index) : (fb_value){0});
}

static bool is_named(const fb_graph *g, fb_node n, const char *name) {
    const char *own = n.id && fb_node_at(g, n)->opcode == FB_CALL_FUNCTION ? fb_onnx_operator_name(g, n) : NULL;
    return own && strcmp(own, name) == 0;
}

/* The size of the last dimension; -1: it is not known. */
static int64_t last_size(const fb_graph *g, fb_node n) {
    fb_value shape = fb_node_at(g, n)->shape;
    int rank = fb_shape_rank(g, shape);
    return rank > 0 ? fb_shape_size(g, shape, rank - 1) : -1;
}

static bool is_last_axis(const fb_graph *g, fb_node n, int rank) {
    fb_value given = fb_node_kwarg(g, n, "axis");
    int64_t axis;
    return given.id && fb_value_is_int(g, given, &axis) && (axis == -1 || axis == rank - 1);
}

static bool add_call(fb_rotary *r, fb_node n) {
    if (r->count == FB_ROTARY_CALLS) return false;
    r->calls[r->count++] = n;
    return true;
}

/* ---- parts of the input -------------------------------------------------------------------------------------------------- */

typedef struct part {
    bool is_second, is_strided; /* each second number; else a half */
} part;

static bool read_slice(const fb_graph *g, fb_node n, int64_t size, part *out) {
    int64_t start, end, axis, step = 1;
    if (fb_onnx_bounds_of(g, n, "starts", 1, &start, 1) != 1 || fb_onnx_bounds_of(g, n, "ends", 2, &end, 1) != 1) return false;
    if (fb_onnx_ints_of(g, n, "axes", 3, &axis, 1) != 1 || (axis != -1 && axis != LAST)) return false;
    int steps = fb_onnx_ints_of(g, n, "steps", 4, &step, 1);
    if (steps != 1 && steps != -1) return false;
    if (start < 0) start += size;
    if (end < 0) end += size;
    if (end > size) end = size;
    out->is_strided = step == 2;
    out->is_second = start > 0;
    return step == 2 ? (start == 0 || start == 1) && end >= size - 1 + start
                     : step == 1 && ((start == 0 && end == size / 2) || (start == size / 2 && end == size));
}

static bool read_item(const fb_graph *g, fb_node n, int64_t size, part *out) {
    fb_node split = argument(g, n, 0);
    int64_t index;
    if (!split.id || !fb_is_spelled(fb_node_target(g, split), FB_ONNX_DEFAULT "Split.") || fb_onnx_results(g, split) != 2 ||
        !is_last_axis(g, split, RANK))
        return false;
    if (!fb_value_is_int(g, fb_node_arg(g, n, 1), &index) || last_size(g, n) != size / 2) return false;
    *out = (part){.is_second = index == 1};
    return true;
}

/* Half of the numbers of a value of four dimensions along the last, which has an even size. */
static bool read_part(fb_rotary *r, const fb_graph *g, fb_node n, part *out) {
    bool is_item = n.id && fb_op_is(g, n, FB_OP_GETITEM);
    fb_node from = is_item ? argument(g, argument(g, n, 0), 0) : argument(g, n, 0);
    int64_t size = from.id && fb_node_rank(g, from) == RANK ? last_size(g, from) : -1;
    if (size < 2 || size % 2 || (r->input.id && r->input.id != from.id)) return false;
    if (is_item ? !read_item(g, n, size, out) : !is_named(g, n, "Slice") || !read_slice(g, n, size, out)) return false;
    r->input = from;
    return (!is_item || add_call(r, argument(g, n, 0))) && add_call(r, n);
}

/* ---- forms --------------------------------------------------------------------------------------------------------------- */

/* part * factor, of which the first or second part and the other factor are given, or none so far. */
static bool read_product(fb_rotary *r, const fb_graph *g, fb_node n, bool is_second, fb_node *factor) {
    if (!n.id || !fb_op_is(g, n, FB_OP_MUL)) return false;
    for (size_t i = 0; i < 2; i++) {
        fb_rotary tried = *r;
        fb_node other = argument(g, n, 1 - i);
        part of;
        if (!other.id || (factor->id && factor->id != other.id) || !read_part(&tried, g, argument(g, n, i), &of)) continue;
        if (of.is_second != is_second || (tried.cos.id && of.is_strided != tried.is_interleaved)) continue;
        tried.is_interleaved = of.is_strided;
        *r = tried;
        *factor = other; /* a member of r */
        return add_call(r, n);
    }
    return false;
}

/* a * cos - b * sin, and b * cos + a * sin. */
static bool read_turned(fb_rotary *r, const fb_graph *g, fb_node first, fb_node second) {
    fb_rotary tried = *r;
    if (!first.id || !second.id || !fb_op_is(g, first, FB_OP_SUB) || !fb_op_is(g, second, FB_OP_ADD)) return false;
    if (!read_product(&tried, g, argument(g, first, 0), false, &tried.cos) ||
        !read_product(&tried, g, argument(g, first, 1), true, &tried.sin))
        return false;
    for (size_t i = 0; i < 2; i++) {
        fb_rotary both = tried;
        if (!read_product(&both, g, argument(g, second, i), true, &both.cos) ||
            !read_product(&both, g, argument(g, second, 1 - i), false, &both.sin))
            continue;
        *r = both;
        return add_call(r, first) && add_call(r, second);
    }
    return false;
}

static bool is_pair(const fb_graph *g, fb_node n, int rank) {
    return n.id && fb_op_is(g, n, FB_OP_ONNX_CONCAT) && fb_value_at(g, fb_node_at(g, n)->args)->count == 2 &&
           fb_node_rank(g, n) == rank && is_last_axis(g, n, rank);
}

static bool read_halves(fb_rotary *r, const fb_graph *g) {
    return is_pair(g, r->node, RANK) && read_turned(r, g, argument(g, r->node, 0), argument(g, r->node, 1)) &&
           !r->is_interleaved;
}

/* Unsqueeze by a last dimension. */
static fb_node stacked(const fb_graph *g, fb_node n) {
    bool is_it = is_named(g, n, "Unsqueeze") && fb_node_rank(g, n) == RANK + 1 && last_size(g, n) == 1;
    fb_node of = is_it ? argument(g, n, 0) : (fb_node){0};
    return of.id && fb_node_rank(g, of) == RANK ? of : (fb_node){0};
}

static bool read_neighbours(fb_rotary *r, const fb_graph *g) {
    fb_node pair = is_named(g, r->node, "Reshape") ? argument(g, r->node, 0) : (fb_node){0};
    if (!is_pair(g, pair, RANK + 1)) return false;
    fb_node first = argument(g, pair, 0), second = argument(g, pair, 1);
    return read_turned(r, g, stacked(g, first), stacked(g, second)) && r->is_interleaved && add_call(r, first) &&
           add_call(r, second) && add_call(r, pair);
}

/* x * cos + Concat(-x[..., h:], x[..., :h]) * sin */
static bool read_rotated(fb_rotary *r, const fb_graph *g, fb_node straight, fb_node turned) {
    fb_rotary tried = *r;
    if (!straight.id || !turned.id || !fb_op_is(g, straight, FB_OP_MUL) || !fb_op_is(g, turned, FB_OP_MUL)) return false;
    int at = is_pair(g, argument(g, turned, 0), RANK) ? 0 : 1;
    fb_node pair = argument(g, turned, (size_t)at);
    if (!is_pair(g, pair, RANK)) return false;
    fb_node negated = argument(g, pair, 0),
            upper = negated.id && fb_op_is(g, negated, FB_OP_NEG) ? argument(g, negated, 0) : (fb_node){0};
    part high, low;
    if (!upper.id || !read_part(&tried, g, upper, &high) || !read_part(&tried, g, argument(g, pair, 1), &low)) return false;
    if (!high.is_second || low.is_second || high.is_strided || low.is_strided) return false;
    int is_first = argument(g, straight, 0).id == tried.input.id;
    if (argument(g, straight, (size_t)!is_first).id != tried.input.id) return false;
    tried.cos = argument(g, straight, (size_t)is_first);
    tried.sin = argument(g, turned, (size_t)!at);
    tried.is_doubled = true;
    *r = tried;
    return tried.cos.id && tried.sin.id && add_call(r, negated) && add_call(r, pair) && add_call(r, straight) &&
           add_call(r, turned);
}

bool fb_rotary_at(const fb_graph *g, fb_node n, fb_rotary *out) {
    fb_rotary empty = {.node = n};
    *out = empty;
    if (!fb_graph_is_onnx(g) || fb_node_at(g, n)->opcode != FB_CALL_FUNCTION) return false;
    if (fb_op_is(g, n, FB_OP_ADD))
        return read_rotated(out, g, argument(g, n, 0), argument(g, n, 1)) ||
               (*out = empty, read_rotated(out, g, argument(g, n, 1), argument(g, n, 0)));
    return read_halves(out, g) || (*out = empty, read_neighbours(out, g));
}

/* ---- obstacles ----------------------------------------------------------------------------------------------------------- */

/* Is the second half of each row of it the first again? */
static bool repeats_bytes(fb_matcher *m, fb_tensor tensor, int64_t size) {
    enum { MOST = 16 << 20, BYTES_OF_A_STEP = 256 };
    uint64_t bytes = fb_tensor_bytes(m->graph, tensor);
    size_t half = fb_dtype_size((fb_dtype)fb_tensor_at(m->graph, tensor)->dtype) * (size_t)size / 2;
    fb_error ignored = {0};
    fb_evaluation *evaluation = NULL;
    if (bytes > MOST || !half || !fb_matcher_takes(m, (unsigned)(bytes / BYTES_OF_A_STEP) + 1)) return false;
    unsigned char *all = malloc((size_t)bytes + 1);
    fb_status status = all ? fb_evaluation_new(m->graph, tensor, m->blobs, &evaluation, &ignored) : FB_NO_MEMORY;
    if (!status) status = fb_evaluation_read(evaluation, 0, all, (size_t)bytes, &ignored);
    bool is_same = !status && bytes % (2 * half) == 0;
    for (size_t at = 0; is_same && at < bytes; at += 2 * half) is_same = memcmp(all + at, all + at + half, half) == 0;
    fb_evaluation_free(evaluation);
    free(all);
    return is_same;
}

static bool repeats(fb_matcher *m, fb_node n, int64_t size, int depth) {
    const fb_graph *g = m->graph;
    const fb_node_row *row = fb_node_at(g, n);
    int rank = fb_shape_rank(g, row->shape);
    if (rank < 1 || last_size(g, n) != size || depth > DEEPEST) return false;
    if (row->opcode == FB_GET_ATTR && row->attribute.id) {
        fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
        return tensor.id && repeats_bytes(m, tensor, size);
    }
    if (is_pair(g, n, rank)) return argument(g, n, 0).id && argument(g, n, 0).id == argument(g, n, 1).id;
    if (is_named(g, n, "Unsqueeze") || fb_op_is(g, n, FB_OP_ONNX_CAST)) return repeats(m, argument(g, n, 0), size, depth + 1);
    bool does = row->opcode == FB_CALL_FUNCTION && fb_op_facts_of(fb_node_op(g, n))->flags & FB_FACT_ELEMENTWISE;
    for (uint32_t e = fb_input_first(g, n); e && does; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        fb_value shape = fb_node_at(g, input)->shape;
        bool is_one = shape.id && (fb_shape_rank(g, shape) == 0 || last_size(g, input) == 1);
        does = is_one || repeats(m, input, size, depth + 1);
    }
    return does;
}

/* Does only what goes as well read it? */
static bool is_read_inside(const fb_graph *g, const fb_rotary *r, fb_node n) {
    for (uint32_t e = fb_user_first(g, n); e; e = fb_user_next(g, e)) {
        bool is_inside = fb_edge_user(g, e).id == r->node.id;
        for (size_t i = 0; i < r->count && !is_inside; i++) is_inside = fb_edge_user(g, e).id == r->calls[i].id;
        if (!is_inside) return false;
    }
    return true;
}

static fb_obstacle shape_obstacle(const fb_graph *g, const fb_rotary *r) {
    static const fb_obstacle mismatch = {"shape-mismatch",
                                         "cos and sin are not known to be of the batch and the positions of x, "
                                         "and of one head"};
    fb_shape_result x, y, of;
    const fb_node factors[] = {r->cos, r->sin};
    if (!fb_recorded_shape(g, r->input, &x) || !fb_recorded_shape(g, r->node, &y) || y.rank != RANK) return mismatch;
    for (int i = 0; i < RANK; i++)
        if (!fb_dim_equal(x.sizes[i], y.sizes[i])) return mismatch;
    int64_t size = last_size(g, r->input) / (r->is_doubled ? 1 : 2);
    for (size_t i = 0; i < 2; i++) {
        if (!fb_recorded_shape(g, factors[i], &of) || of.rank != RANK || !fb_dim_is(of.sizes[HEADS], 1)) return mismatch;
        if (!fb_dim_equal(of.sizes[0], x.sizes[0]) || !fb_dim_equal(of.sizes[2], x.sizes[2])) return mismatch;
        if (!fb_dim_is(of.sizes[LAST], size)) return mismatch;
    }
    return FB_NO_OBSTACLE;
}

fb_obstacle fb_rotary_obstacle(fb_matcher *m, const fb_rotary *r) {
    const fb_graph *g = m->graph;
    fb_dtype dtype = (fb_dtype)fb_node_at(g, r->input)->dtype;
    int64_t size = last_size(g, r->input);
    bool is_of_one = dtype == (fb_dtype)fb_node_at(g, r->cos)->dtype && dtype == (fb_dtype)fb_node_at(g, r->sin)->dtype;
    if (!is_of_one || (dtype != FB_FLOAT32 && dtype != FB_FLOAT16))
        return (fb_obstacle){"dtype", "runtimes have RotaryEmbedding in float32 and float16"};
    fb_obstacle obstacle = shape_obstacle(g, r);
    for (size_t i = 0; i < r->count && !obstacle.code; i++) {
        obstacle = fb_named_obstacle(g, r->calls[i]);
        if (!obstacle.code && !is_read_inside(g, r, r->calls[i]))
            obstacle = (fb_obstacle){"shared-output", "others read what it computes on the way"};
    }
    if (obstacle.code || !r->is_doubled) return obstacle;
    return repeats(m, r->cos, size, 0) && repeats(m, r->sin, size, 0)
               ? FB_NO_OBSTACLE
               : (fb_obstacle){"unknown-constant", "that both halves of cos, and of sin, are the same is not certain"};
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

/* Nodes that an earlier match put behind x. */
static fb_node put_before(fb_rewrite *rw, fb_node x, const char *name) {
    fb_graph *g = fb_rewrite_graph(rw);
    for (uint32_t e = fb_user_first(g, x); e; e = fb_user_next(g, e))
        if (fb_rewrite_has_inserted(rw, fb_edge_user(g, e)) && is_named(g, fb_edge_user(g, e), name)) return fb_edge_user(g, e);
    return (fb_node){0};
}

static fb_node put(fb_rewrite *rw, fb_node before, fb_made made, fb_value args, const fb_shape_result *type) {
    fb_node node = fb_build(rw, before, made, args, FB_VALUE_EMPTY_MAP);
    if (node.id) fb_set_result_type(rw, node, fb_make_result_shape(fb_rewrite_graph(rw), type), type->dtype);
    return node;
}

/* (batch, positions, size) of (batch, 1, positions, size). */
static fb_node put_squeezed(fb_rewrite *rw, const fb_rotary *r, fb_node factor, const fb_shape_result *type) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node from = is_named(g, factor, "Unsqueeze") ? argument(g, factor, 0) : (fb_node){0};
    fb_shape_result inner;
    bool is_it = from.id && fb_recorded_shape(g, from, &inner) && inner.rank == type->rank;
    for (int i = 0; i < type->rank && is_it; i++) is_it = fb_dim_equal(inner.sizes[i], type->sizes[i]);
    if (is_it) return from; /* wherever the dimension of 1 was put */
    fb_node made = put_before(rw, factor, "Squeeze");
    fb_node axes = made.id ? (fb_node){0} : fb_build_ints(rw, r->node, (int64_t[]){HEADS}, 1);
    return axes.id ? put(rw, r->node, FB_MADE_SQUEEZE, FB_ARGS(g, fb_make_node(g, factor), fb_make_node(g, axes)), type) : made;
}

/* The first half of the last dimension. */
static fb_node put_half(fb_rewrite *rw, const fb_rotary *r, fb_node x, fb_shape_result *type) {
    fb_graph *g = fb_rewrite_graph(rw);
    int64_t half = last_size(g, r->input) / 2, bounds[] = {0, half, type->rank - 1}; /* start, end, axis */
    fb_node made = put_before(rw, x, "Slice");
    fb_value args[4] = {fb_make_node(g, x)};
    type->sizes[type->rank - 1] = fb_dim_of(half);
    for (int i = 0; i < 3 && !made.id; i++) args[i + 1] = fb_make_node(g, fb_build_ints(rw, r->node, &bounds[i], 1));
    return made.id ? made : put(rw, r->node, FB_MADE_PART, fb_make_list(g, args, 4), type);
}

static fb_value put_cache(fb_rewrite *rw, const fb_rotary *r, fb_node factor) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_shape_result type;
    if (!fb_recorded_shape(g, factor, &type)) return (fb_value){0}; /* it is recorded: fb_rotary_obstacle */
    type.dtype = (fb_dtype)fb_node_at(g, factor)->dtype;
    type.rank = RANK - 1;
    for (int i = HEADS; i < type.rank; i++) type.sizes[i] = type.sizes[i + 1];
    fb_node made = put_squeezed(rw, r, factor, &type);
    if (r->is_doubled && made.id) made = put_half(rw, r, made, &type);
    return fb_make_node(g, made);
}

void fb_build_rotary(fb_rewrite *rw, const fb_rotary *r) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value kwargs = FB_VALUE_EMPTY_MAP, cos = put_cache(rw, r, r->cos), sin = put_cache(rw, r, r->sin);
    if (r->is_interleaved) kwargs = fb_map_with(g, kwargs, "interleaved", fb_make_int(g, 1));
    for (size_t i = 0; i < r->count; i++) fb_release_reads(rw, r->calls[i]);
    for (size_t i = 0; i < r->count; i++) fb_erase_unread(rw, r->calls[i]); /* what is read before what reads it */
    fb_build_over(rw, r->node, FB_MADE_ROTARY, FB_ARGS(g, fb_make_node(g, r->input), cos, sin), kwargs);
    fb_mark(rw, r->node);
}
