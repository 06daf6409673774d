/* FuseRotation: halves of a tensor that change places, one of them negated, and are multiplied, are rolled and multiplied.
 *
 *     x ─┬─ [..., h:] ── neg ─┐                        x ── roll(h) ──┐
 *        └─ [..., :h] ─────── cat ── * m ── y          m, half of it negated ── * ── y
 *
 * Rotary embeddings are written like this (rotate_half of transformers). Either half may be negated. The halves are slices, or
 * the parts that chunk or split gives. The factor is much smaller than x, and the same for all layers:
 * EliminateCommonSubexpressions keeps one that is negated. Along the last dimension, in both dialects.
 *
 * Refused where the factor has more than half as many elements as x or no other reader, where something writes what is read in
 * between, and where not all is of one floating dtype.
 *
 * In ONNX models of opset 23 and later it is the whole of a rotary embedding that becomes one RotaryEmbedding
 * (core/pass/rotary.h).
 *
 * Exactness: moves: a product has the same bits, whichever of its factors is negated, but for the sign of nan. Reversible.
 */
#include "core/operators/spelling.h"
#include "core/pass/build.h"
#include "core/pass/rotary.h"

typedef struct rotation {
    fb_node product, cat, negation, upper, lower, input; /* upper: the part that comes first in `cat` */
    fb_value factor;
    int64_t size, start; /* of the last dimension; of the upper part in it */
    int rank;
    bool is_lower_negated; /* else the upper part is */
} rotation;

/* ---- match --------------------------------------------------------------------------------------------------------------- */

static bool is_last(int64_t dim, int rank) {
    return dim == -1 || dim == rank - 1;
}

static bool is_one_or_absent(const fb_graph *g, fb_value value) {
    int64_t number;
    return fb_is_absent(g, value) || (fb_value_is_int(g, value, &number) && number == 1);
}

static int64_t bound_of(const fb_graph *g, fb_value value, int64_t fallback, int64_t size) {
    int64_t bound;
    if (fb_is_absent(g, value)) return fallback;
    if (!fb_value_is_int(g, value, &bound)) return -1;
    if (bound < 0) bound += size;
    return bound > size ? size : bound;
}

/* The call of chunk or split whose item the node is; or none. */
static fb_node parts_of(const fb_graph *g, fb_node node) {
    fb_node parts = fb_op_is(g, node, FB_OP_GETITEM) ? fb_value_node(g, fb_first_argument(g, node)) : (fb_node){0};
    bool is_one = parts.id && (fb_op_is(g, parts, FB_OP_CHUNK) || fb_op_is(g, parts, FB_OP_SPLIT) ||
                               fb_op_is(g, parts, FB_OP_SPLIT_WITH_SIZES));
    return is_one ? parts : (fb_node){0};
}

/* The size of the first of two parts of so many elements: of chunk(x, 2), split(x, size), split(x, [size, rest]). -1: there are
 * not two. */
static int64_t first_size(const fb_graph *g, fb_node parts, int64_t whole) {
    const char *name = fb_op_is(g, parts, FB_OP_CHUNK)   ? "chunks"
                       : fb_op_is(g, parts, FB_OP_SPLIT) ? "split_size_or_sections"
                                                         : "split_sizes";
    fb_value given = fb_call_argument(g, parts, name);
    int64_t first, second;
    if (!given.id) return -1;
    if (fb_value_is_int(g, given, &first)) {
        if (fb_op_is(g, parts, FB_OP_CHUNK)) first = first == 2 ? whole - whole / 2 : whole;
        return first > 0 && first < whole && whole - first <= first && !fb_op_is(g, parts, FB_OP_SPLIT_WITH_SIZES) ? first : -1;
    }
    const fb_value_row *row = fb_value_at(g, given);
    bool is_pair = (row->kind == FB_LIST || row->kind == FB_TUPLE) && row->count == 2;
    if (!is_pair || !fb_value_is_int(g, row->items[0], &first) || !fb_value_is_int(g, row->items[1], &second)) return -1;
    return first > 0 && second > 0 && first + second == whole ? first : -1;
}

/* An item of chunk or split along the last dimension. By its recorded shape it is what the sizes say: tensor_split, which has
 * the same row of the table, takes places instead. */
static bool read_item(const fb_graph *g, fb_node node, fb_node *x, int64_t *start, int64_t *end) {
    fb_node parts = parts_of(g, node);
    fb_value dim = fb_call_argument(g, parts, "dim"), index = fb_node_arg(g, node, 1);
    int64_t axis, item;
    *x = fb_call_argument_node(g, parts, "input");
    fb_value shape = x->id ? fb_node_at(g, *x)->shape : (fb_value){0};
    int rank = fb_shape_rank(g, shape);
    int64_t size = rank > 0 ? fb_shape_size(g, shape, rank - 1) : -1, first = size > 1 ? first_size(g, parts, size) : -1;
    if (first < 0 || !dim.id || !fb_value_is_int(g, dim, &axis) || !is_last(axis, rank)) return false;
    if (!index.id || !fb_value_is_int(g, index, &item) || item < 0 || item > 1) return false;
    *start = item ? first : 0;
    *end = item ? size : first;
    return fb_shape_size(g, fb_node_at(g, node)->shape, rank - 1) == *end - *start;
}

/* x[..., start:end], of a call or an index. False when it is anything else. */
static bool read_part(const fb_graph *g, fb_node node, fb_node *x, int64_t *start, int64_t *end) {
    fb_value range = fb_node_arg(g, node, 1), from = {0}, to = {0}, step = {0};
    int64_t dim = -1;
    *x = fb_value_node(g, fb_first_argument(g, node));
    fb_value shape = x->id ? fb_node_at(g, *x)->shape : (fb_value){0};
    int rank = fb_shape_rank(g, shape);
    int64_t size = rank > 0 ? fb_shape_size(g, shape, rank - 1) : -1;
    if (fb_op_is(g, node, FB_OP_SLICE)) {
        fb_value given = fb_call_argument(g, node, "dim");
        if (!given.id || !fb_value_is_int(g, given, &dim)) return false;
        from = fb_call_argument(g, node, "start");
        to = fb_call_argument(g, node, "end");
        step = fb_call_argument(g, node, "step");
    } else if (fb_op_is(g, node, FB_OP_GETITEM) && range.id && fb_value_kind(g, range) == FB_TUPLE &&
               fb_value_at(g, range)->count == 2 && fb_value_kind(g, fb_value_item(g, range, 0)) == FB_ELLIPSIS) {
        fb_value slice = fb_value_item(g, range, 1);
        if (fb_value_kind(g, slice) != FB_SLICE) return false;
        from = fb_value_item(g, slice, 0);
        to = fb_value_item(g, slice, 1);
        step = fb_value_item(g, slice, 2);
    } else {
        return false;
    }
    *start = bound_of(g, from, 0, size);
    *end = bound_of(g, to, size, size);
    return size > 1 && is_last(dim, rank) && is_one_or_absent(g, step) && *start >= 0 && *end >= 0;
}

static bool read_half(const fb_graph *g, int version, fb_node node, fb_node *x, int64_t *start, int64_t *end) {
    return version > 1 && parts_of(g, node).id ? read_item(g, node, x, start, end) : read_part(g, node, x, start, end);
}

static bool find_cat(const fb_graph *g, int version, rotation *r) {
    fb_value tensors = fb_call_argument(g, r->cat, "tensors"), dim = fb_call_argument(g, r->cat, "dim");
    int64_t axis = 0, upper_end, lower_start, lower_end;
    fb_node other;
    if (!fb_op_is(g, r->cat, FB_OP_CAT) || fb_node_at(g, r->cat)->user_count != 1 || !tensors.id) return false;
    fb_kind kind = fb_value_kind(g, tensors);
    if ((kind != FB_LIST && kind != FB_TUPLE) || fb_value_at(g, tensors)->count != 2) return false;
    fb_node parts[] = {fb_value_node(g, fb_value_item(g, tensors, 0)), fb_value_node(g, fb_value_item(g, tensors, 1))};
    if (!parts[0].id || !parts[1].id) return false;
    r->is_lower_negated = version > 1 && !fb_op_is(g, parts[0], FB_OP_NEG);
    r->negation = parts[r->is_lower_negated];
    if (!fb_op_is(g, r->negation, FB_OP_NEG)) return false;
    if (fb_node_at(g, r->negation)->user_count != 1 || !dim.id || !fb_value_is_int(g, dim, &axis)) return false;
    parts[r->is_lower_negated] = fb_call_argument_node(g, r->negation, "input");
    r->upper = parts[0];
    r->lower = parts[1];
    if (!r->upper.id || !r->lower.id || !read_half(g, version, r->upper, &r->input, &r->start, &upper_end)) return false;
    if (!read_half(g, version, r->lower, &other, &lower_start, &lower_end) || other.id != r->input.id) return false;
    fb_value shape = fb_node_at(g, r->input)->shape;
    r->rank = fb_shape_rank(g, shape);
    r->size = fb_shape_size(g, shape, r->rank - 1);
    return is_last(axis, r->rank) && lower_start == 0 && lower_end == r->start && upper_end == r->size && r->start > 0 &&
           r->start < r->size;
}

static bool is_product(fb_op op) {
    return op == FB_OP_MUL;
}

static bool find(const fb_graph *g, int version, fb_node n, rotation *r) {
    if (!is_product(fb_node_op(g, n))) return false;
    fb_value sides[] = {fb_call_argument(g, n, "input"), fb_call_argument(g, n, "other")};
    r->product = n;
    for (int i = 0; i < 2; i++) {
        r->cat = fb_value_node(g, sides[i]);
        r->factor = sides[1 - i];
        if (r->cat.id && r->factor.id && fb_value_node(g, r->factor).id && find_cat(g, version, r)) return true;
    }
    return false;
}

/* Elements, or -1 when that is not known. */
static int64_t count_of(const fb_graph *g, fb_node node) {
    fb_value shape = fb_node_at(g, node)->shape;
    int64_t count = shape.id ? 1 : -1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return -1;
    }
    return count;
}

static fb_obstacle obstacle(fb_matcher *m, const rotation *r) {
    const fb_graph *g = m->graph;
    const fb_alias *alias = fb_matcher_writes(m);
    fb_node factor = fb_value_node(g, r->factor);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, r->input)->dtype;
    int64_t many = count_of(g, r->input), few = count_of(g, factor);
    fb_value shape = fb_node_at(g, factor)->shape;
    uint32_t from = fb_node_at(g, r->product)->ordinal, to = from;
    const fb_node inner[] = {r->cat, r->negation, r->upper, r->lower};
    if (!alias) return FB_OUT_OF_MEMORY;
    if (!fb_dtype_is_computed(dtype) || dtype != fb_node_at(g, factor)->dtype || dtype != fb_node_at(g, r->product)->dtype)
        return (fb_obstacle){"dtype", "what it reads and gives is not of one floating dtype"};
    if (many < 0 || few < 0 || few > many / 2 || fb_shape_size(g, shape, fb_shape_rank(g, shape) - 1) != r->size)
        return (fb_obstacle){"more-work", "its factor is not much smaller than what is rotated, and as long"};
    if (fb_node_at(g, factor)->user_count < 2)
        return (fb_obstacle){"more-work", "nobody else reads its factor, and to negate half of that takes as many calls"};
    for (int i = 0; i < 4; i++) {
        if (fb_node_at(g, inner[i])->ordinal < from) from = fb_node_at(g, inner[i])->ordinal;
        if (i < 2 && fb_is_mutated(alias, inner[i])) return (fb_obstacle){"input-mutated", "what it reads is written in place"};
    }
    if (fb_mutated_between(alias, r->input, from, to))
        return (fb_obstacle){"input-mutated", "what it reads is written in place"};
    return fb_mode_switched_between(alias, from, to)
               ? (fb_obstacle){"mode-switched", "autocast, autograd or another mode is switched meanwhile"}
               : FB_NO_OBSTACLE;
}

static void match(fb_matcher *m, fb_node n) {
    rotation r;
    if (!find(m->graph, m->report->pass->version, n, &r) || fb_is_marked(m, n)) return;
    fb_obstacle stands = obstacle(m, &r);
    if (stands.code) fb_refuse_for(m, stands, &n, 1);
    else fb_match_found(m, &n, 1);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value put(fb_rewrite *rw, const rotation *r, fb_made made, fb_value args) {
    return fb_make_node(fb_rewrite_graph(rw), fb_build(rw, r->product, made, args, FB_VALUE_EMPTY_MAP));
}

/* x[..., from:to] of the last dimension. */
static fb_value put_part(fb_rewrite *rw, const rotation *r, fb_value x, int64_t from, int64_t to) {
    fb_graph *g = fb_rewrite_graph(rw);
    int dim = fb_shape_rank(g, fb_node_at(g, fb_value_node(g, x))->shape) - 1;
    return put(rw, r, FB_MADE_PART, fb_part_args(g, r->product, x, dim, 0, from, to));
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    rotation r;
    fb_node n = match->nodes[0];
    if (!find(g, match->pass->version, n, &r)) return;
    int64_t shift = r.size - r.start;
    bool is_first = fb_value_node(g, fb_call_argument(g, n, "input")).id == r.cat.id;
    fb_value by = fb_make_int(g, shift), dim = fb_make_int(g, r.rank - 1), last = fb_make_int(g, -1);
    fb_value x = fb_make_node(g, r.input);
    fb_value rolled = put(rw, &r, FB_MADE_ROLL, FB_ARGS(g, x, fb_build_number(g, n, by), fb_build_number(g, n, dim)));
    fb_value parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i] = put_part(rw, &r, r.factor, i ? shift : 0, i ? r.size : shift);
        if (i == r.is_lower_negated) parts[i] = put(rw, &r, FB_MADE_NEG, FB_ARGS(g, parts[i]));
    }
    fb_value factor = put(rw, &r, FB_MADE_CAT, FB_ARGS(g, FB_ARGS(g, parts[0], parts[1]), last));
    fb_set_argument(rw, n, is_first ? "input" : "other", rolled);
    fb_set_argument(rw, n, is_first ? "other" : "input", factor);
    fb_mark(rw, n);
    fb_node whole[] = {parts_of(g, r.upper), parts_of(g, r.lower)};
    if (whole[0].id) fb_erase_unread(rw, whole[0]); /* the last goes first */
    if (whole[1].id && whole[1].id != whole[0].id) fb_erase_unread(rw, whole[1]);
    fb_erase_unread(rw, r.upper);
    fb_erase_unread(rw, r.lower);
    fb_erase(rw, r.negation);
    fb_erase(rw, r.cat);
}

/* ---- ONNX ---------------------------------------------------------------------------------------------------------------- */

static void match_onnx(fb_matcher *m) {
    const fb_graph *g = m->graph;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        fb_rotary r;
        if (!fb_rotary_at(g, n, &r)) continue;
        fb_obstacle obstacle = fb_rotary_obstacle(m, &r);
        if (obstacle.code) fb_refuse_for(m, obstacle, &n, 1);
        else if (!fb_refuse_too_old(m, n, FB_MADE_ROTARY)) fb_match_found_as(m, &r, sizeof r);
    }
}

static void edit_onnx(fb_rewrite *rw, const fb_match *match) {
    fb_build_rotary(rw, match->data);
}

/* Version 1 knew slices alone, of which the second is negated. */
#define FUSE_ROTATION(number, before)                                                                                          \
    {                                                                                                                          \
        .name = "FuseRotation", .version = number, .earlier = before,                                                          \
        .summary = "Replaces slice, negate and concatenate in rotary embeddings with one `roll`; the minus sign moves into "   \
                   "the factor.",                                                                                              \
        .parameters = FB_NO_PARAMETERS, .exactness = FB_MOVES, .gain = FB_GAIN_SAME, .reversible = true,                       \
        .preserves_computation = true, .reads_onnx = true, .begins_at = is_product, .match = match, .edit = edit,              \
        .match_onnx = match_onnx, .edit_onnx = edit_onnx,                                                                      \
    }

static const fb_pass version_1 = FUSE_ROTATION(1, NULL);
const fb_pass fb_fuse_rotation = FUSE_ROTATION(2, &version_1);
