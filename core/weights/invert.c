/* Inverting recipes: a box of the made tensor is pushed down the expression until it is a box of a source. The pieces that
 * this gives of one source are joined again. */
#include "core/weights/invert.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/buffer.h"
#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/weights/box.h"

#define MAX_STEPS 4000000
#define MAX_DEPTH (FB_RECIPE_MAX_DEPTH / 2)

/* One dimension of a box of an expression, and where the same elements are in the place's `origin`. */
typedef struct axis {
    fb_range box;       /* in the expression */
    int64_t at;         /* begin of the box in the origin's dimension `dim` */
    int64_t whole, dim; /* size and number of that dimension */
} axis;

/* A box of `expression` with the elements of a box of `origin`, an expression over the made tensor. Slices and permutations on
 * the way move the boxes; only a reshape makes a new origin. */
typedef struct place {
    fb_value expression, origin;
    int origin_depth;
    int rank;
    axis axes[FB_RECIPE_MAX_RANK];
} place;

typedef struct inverter {
    fb_graph *graph;
    fb_pieces *pieces;
    fb_buffer rests;   /* places that are still to be followed, packed, each before its size */
    fb_map concats;    /* expression -> 1 + index in `offsets` */
    fb_buffer offsets; /* int64_t: where each part of a concat begins, and where the last one ends */
    bool is_computed, is_too_large, failed;
} inverter;

static bool has_stopped(const inverter *in) {
    return in->is_computed || in->is_too_large || in->failed || in->rests.failed || in->offsets.failed ||
           fb_graph_out_of_memory(in->graph);
}

/* ---- shapes of expressions ------------------------------------------------------------------------------------------- */

static int64_t extent(inverter *in, fb_value expression, int64_t dim);

static int64_t *offsets_at(const inverter *in, uint32_t index) {
    return (int64_t *)(void *)in->offsets.data + index;
}

/* The offsets of a concat's parts; NULL when it computes or memory is out. Valid until the next call. */
static const int64_t *offsets_of(inverter *in, fb_value concat) {
    uint32_t known = fb_map_get(&in->concats, concat.id);
    if (known) return offsets_at(in, known - 1);
    size_t count = fb_recipe_arg_count(in->graph, concat), first = in->offsets.size / sizeof(int64_t);
    int64_t dim = fb_recipe_int(in->graph, concat, "axis"), sum = 0;
    if (first + count + 1 > UINT32_MAX / 2) in->is_too_large = true;
    if (in->is_too_large || !fb_buffer_reserve(&in->offsets, (count + 1) * sizeof sum)) return NULL;
    in->offsets.size += (count + 1) * sizeof sum; /* before the concats' inside */
    for (size_t i = 0; i < count; i++) {
        int64_t size = extent(in, fb_recipe_arg(in->graph, concat, i), dim);
        if (size < 0) return NULL;
        offsets_at(in, (uint32_t)first)[i] = sum;
        sum += size;
    }
    offsets_at(in, (uint32_t)first)[count] = sum;
    if (!fb_map_put(&in->concats, concat.id, (uint32_t)first + 1)) in->failed = true;
    return in->failed ? NULL : offsets_at(in, (uint32_t)first);
}

/* Size of a dimension of a movement; -1 when the expression computes or memory is out. */
static int64_t extent(inverter *in, fb_value expression, int64_t dim) {
    const fb_graph *g = in->graph;
    for (;;) {
        fb_tensor tensor = fb_value_tensor(g, expression);
        if (tensor.id) return fb_shape_size(g, fb_tensor_at(g, tensor)->shape, (int)dim);
        switch (fb_recipe_op_of(g, expression)) {
        case FB_RECIPE_CONCAT:
            if (fb_recipe_int(g, expression, "axis") == dim) {
                const int64_t *offsets = offsets_of(in, expression);
                return offsets ? offsets[fb_recipe_arg_count(g, expression)] : -1;
            }
            break;
        case FB_RECIPE_SLICE:
            if (fb_recipe_int(g, expression, "axis") == dim)
                return fb_recipe_int(g, expression, "stop") - fb_recipe_int(g, expression, "start");
            break;
        case FB_RECIPE_PERMUTE:
            fb_value_is_int(g, fb_value_item(g, fb_recipe_value(g, expression, "dims"), (size_t)dim), &dim);
            break;
        case FB_RECIPE_RESHAPE:
        case FB_RECIPE_FULL: return fb_shape_size(g, fb_recipe_value(g, expression, "shape"), (int)dim);
        default: in->is_computed = true; return -1;
        }
        expression = fb_recipe_arg(g, expression, 0);
    }
}

/* Number of dimensions; -1 when the expression computes. */
static int rank_of(inverter *in, fb_value expression) {
    const fb_graph *g = in->graph;
    for (;;) {
        fb_tensor tensor = fb_value_tensor(g, expression);
        if (tensor.id) return fb_shape_rank(g, fb_tensor_at(g, tensor)->shape);
        fb_recipe_op op = fb_recipe_op_of(g, expression);
        if (op == FB_RECIPE_RESHAPE || op == FB_RECIPE_FULL) return fb_shape_rank(g, fb_recipe_value(g, expression, "shape"));
        if (!op || !fb_recipe_facts_of(op)->is_movement) {
            in->is_computed = true;
            return -1;
        }
        expression = fb_recipe_arg(g, expression, 0);
    }
}

/* Writes the sizes and returns how many; -1 when the expression computes or memory is out. */
static int shape_of(inverter *in, fb_value expression, int64_t sizes[FB_RECIPE_MAX_RANK]) {
    int rank = rank_of(in, expression);
    for (int i = 0; i < rank; i++) {
        sizes[i] = extent(in, expression, i);
        if (sizes[i] < 0) return -1;
    }
    return rank;
}

/* ---- the made tensor's side ------------------------------------------------------------------------------------------ */

/* An expression for the place's box over its origin. */
static fb_value box_of_origin(inverter *in, const place *p, int *depth) {
    fb_value from = p->origin;
    int64_t dims[FB_RECIPE_MAX_RANK];
    int axis_of[FB_RECIPE_MAX_RANK];
    bool is_permuted = false;
    *depth = p->origin_depth;
    for (int i = 0; i < p->rank; i++) {
        dims[i] = p->axes[i].dim;
        axis_of[dims[i]] = i;
        is_permuted |= dims[i] != i;
    }
    for (int dim = 0; dim < p->rank; dim++) {
        const axis *a = &p->axes[axis_of[dim]];
        if (a->box.size == a->whole) continue;
        from = fb_recipe_slice(in->graph, from, dim, a->at, a->at + a->box.size);
        ++*depth;
    }
    if (!is_permuted) return from;
    ++*depth;
    return fb_recipe_permute(in->graph, from, dims, (size_t)p->rank);
}

/* An origin that is a slice or a permutation is taken into the axes. */
static void absorb_origin(inverter *in, place *p) {
    for (;;) {
        fb_recipe_op op = fb_recipe_op_of(in->graph, p->origin);
        fb_value from = op ? fb_recipe_arg(in->graph, p->origin, 0) : p->origin, dims = {0};
        if (op == FB_RECIPE_PERMUTE) dims = fb_recipe_value(in->graph, p->origin, "dims");
        else if (op != FB_RECIPE_SLICE) return;
        for (int i = 0; i < p->rank; i++) {
            axis *a = &p->axes[i];
            if (dims.id) a->dim = fb_shape_size(in->graph, dims, (int)a->dim);
            else if (a->dim == fb_recipe_int(in->graph, p->origin, "axis")) {
                a->at += fb_recipe_int(in->graph, p->origin, "start");
                a->whole = extent(in, from, a->dim);
            }
        }
        p->origin = from;
        p->origin_depth--;
    }
}

/* Makes a new origin: the elements of the place's box in the shape of `boxes`, which is the box from now on. */
static void reshape_origin(inverter *in, place *p, const fb_range *boxes, int rank) {
    fb_value from = box_of_origin(in, p, &p->origin_depth);
    if (has_stopped(in)) return;
    while (fb_recipe_op_of(in->graph, from) == FB_RECIPE_RESHAPE) {
        from = fb_recipe_arg(in->graph, from, 0);
        p->origin_depth--;
    }
    int64_t sizes[FB_RECIPE_MAX_RANK], was[FB_RECIPE_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        sizes[i] = boxes[i].size;
        p->axes[i] = (axis){boxes[i], 0, sizes[i], i};
    }
    if (shape_of(in, from, was) != rank || memcmp(was, sizes, (size_t)rank * sizeof *sizes) != 0) {
        from = fb_recipe_reshape(in->graph, from, sizes, (size_t)rank);
        p->origin_depth++;
    }
    p->origin = from;
    p->rank = rank;
    absorb_origin(in, p);
}

static void append_piece(inverter *in, const place *p, fb_tensor source, fb_value number) {
    fb_pieces *pieces = in->pieces;
    int depth;
    fb_value from = box_of_origin(in, p, &depth);
    if (depth > MAX_DEPTH) in->is_computed = true;
    if (pieces->count == FB_PIECES_MAX) in->is_too_large = true;
    if (has_stopped(in)) return;
    if (!FB_GROW(pieces->items, pieces->count, pieces->capacity)) {
        in->failed = true;
        return;
    }
    fb_piece *piece = &pieces->items[pieces->count++];
    *piece = (fb_piece){.source = source, .number = number, .rank = p->rank, .from = from};
    for (int i = 0; i < p->rank; i++) {
        piece->start[i] = p->axes[i].box.start;
        piece->stop[i] = piece->start[i] + p->axes[i].box.size;
    }
}

/* ---- the way down ---------------------------------------------------------------------------------------------------- */

/* Places are packed to their rank: the stack is as long as concats are nested, through any chain of tensors. */
static void push_rest(inverter *in, const place *p) {
    size_t size = offsetof(place, axes) + (size_t)p->rank * sizeof *p->axes;
    fb_buffer_append(&in->rests, p, size);
    fb_buffer_append(&in->rests, &size, sizeof size);
}

static bool pop_rest(inverter *in, place *p) {
    size_t size;
    if (in->rests.size == 0) return false;
    in->rests.size -= sizeof size;
    memcpy(&size, in->rests.data + in->rests.size, sizeof size);
    in->rests.size -= size;
    memcpy(p, in->rests.data + in->rests.size, size);
    return true;
}

/* To the part in which the box begins; what is beyond that part is left for later. */
static void follow_concat(inverter *in, place *p) {
    const int64_t *offsets = offsets_of(in, p->expression);
    if (!offsets) return;
    axis *a = &p->axes[fb_recipe_int(in->graph, p->expression, "axis")];
    size_t part = 0, end = fb_recipe_arg_count(in->graph, p->expression);
    while (end - part > 1) { /* the last part that begins at or before the box: it is not empty */
        size_t middle = part + (end - part) / 2;
        if (offsets[middle] <= a->box.start) part = middle;
        else end = middle;
    }
    int64_t taken = offsets[part + 1] - a->box.start;
    if (taken < a->box.size) {
        axis all = *a;
        *a = (axis){{all.box.start + taken, all.box.size - taken}, all.at + taken, all.whole, all.dim};
        push_rest(in, p);
        *a = (axis){{all.box.start, taken}, all.at, all.whole, all.dim};
    }
    a->box.start -= offsets[part];
    p->expression = fb_recipe_arg(in->graph, p->expression, part);
}

static void follow_permute(inverter *in, place *p) {
    fb_value dims = fb_recipe_value(in->graph, p->expression, "dims");
    axis axes[FB_RECIPE_MAX_RANK];
    memcpy(axes, p->axes, (size_t)p->rank * sizeof *axes);
    for (int i = 0; i < p->rank; i++) p->axes[fb_shape_size(in->graph, dims, i)] = axes[i];
    p->expression = fb_recipe_arg(in->graph, p->expression, 0);
}

static void follow_reshape(inverter *in, place *p) {
    int64_t outer[FB_RECIPE_MAX_RANK], inner[FB_RECIPE_MAX_RANK];
    fb_range boxes[FB_RECIPE_MAX_RANK], inner_boxes[FB_RECIPE_MAX_RANK];
    fb_value from = fb_recipe_arg(in->graph, p->expression, 0);
    int rank = shape_of(in, p->expression, outer), inner_rank = shape_of(in, from, inner);
    if (inner_rank < 0) return;
    for (int i = 0; i < rank; i++) boxes[i] = p->axes[i].box;
    if (!fb_box_through_reshape(outer, boxes, rank, inner, inner_boxes, inner_rank)) in->is_computed = true;
    else reshape_origin(in, p, inner_boxes, inner_rank);
    p->expression = from;
}

/* One step from the expression towards its sources; false when the place has come to its end. */
static bool follow(inverter *in, place *p) {
    const fb_graph *g = in->graph;
    fb_tensor tensor = fb_value_tensor(g, p->expression);
    if (tensor.id) {
        fb_value recipe = fb_tensor_at(g, tensor)->recipe;
        if (!recipe.id) append_piece(in, p, tensor, (fb_value){0});
        p->expression = recipe;
        return recipe.id != 0;
    }
    switch (fb_recipe_op_of(g, p->expression)) {
    case FB_RECIPE_CONCAT: follow_concat(in, p); return true;
    case FB_RECIPE_SLICE:
        p->axes[fb_recipe_int(g, p->expression, "axis")].box.start += fb_recipe_int(g, p->expression, "start");
        p->expression = fb_recipe_arg(g, p->expression, 0);
        return true;
    case FB_RECIPE_RESHAPE: follow_reshape(in, p); return true;
    case FB_RECIPE_PERMUTE: follow_permute(in, p); return true;
    case FB_RECIPE_FULL: append_piece(in, p, (fb_tensor){0}, fb_recipe_value(g, p->expression, "value")); return false;
    default: in->is_computed = true; return false;
    }
}

/* The whole of `made` as a box of itself; false when it has no elements. */
static bool start_at(inverter *in, fb_tensor made, fb_tensor now, place *p) {
    fb_value shape = fb_tensor_at(in->graph, made)->shape;
    *p = (place){.expression = fb_recipe_tensor(in->graph, made), .origin = fb_recipe_tensor(in->graph, now)};
    if (fb_shape_rank(in->graph, shape) > FB_RECIPE_MAX_RANK) in->is_computed = true;
    if (has_stopped(in)) return false;
    p->rank = fb_shape_rank(in->graph, shape);
    bool is_empty = false;
    for (int i = 0; i < p->rank; i++) {
        int64_t size = fb_shape_size(in->graph, shape, i);
        p->axes[i] = (axis){{0, size}, 0, size, i};
        is_empty |= size == 0;
    }
    return !is_empty;
}

fb_status fb_recipe_invert(fb_graph *graph, fb_tensor made, fb_tensor now, fb_pieces *pieces, bool *is_computed,
                           fb_error *error) {
    inverter in = {.graph = graph, .pieces = pieces};
    size_t before = pieces->count, steps = 0;
    place p;
    for (bool is_there = start_at(&in, made, now, &p); is_there; is_there = pop_rest(&in, &p)) {
        while (!has_stopped(&in) && follow(&in, &p)) {
            if (++steps == MAX_STEPS) in.is_too_large = true;
        }
        if (has_stopped(&in)) break;
    }
    bool failed = in.failed || in.rests.failed || in.offsets.failed || fb_graph_out_of_memory(graph);
    fb_buffer_free(&in.rests);
    fb_buffer_free(&in.offsets);
    fb_map_free(&in.concats);
    *is_computed = in.is_computed;
    if (failed || in.is_too_large || in.is_computed) pieces->count = before;
    if (failed) return fb_fail_memory(error);
    if (!in.is_too_large) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "recipe-too-large", "", "the recipe of %s is made of too many pieces",
                   fb_tensor_name(graph, made));
}

void fb_pieces_free(fb_pieces *pieces) {
    free(pieces->items);
    *pieces = (fb_pieces){0};
}

/* ---- joining pieces: an axis is looked for along which they fall into slabs, and each slab is joined by itself ----------- */

/* The box to be covered. */
typedef struct region {
    fb_graph *graph;
    int rank;
    int64_t start[FB_RECIPE_MAX_RANK], stop[FB_RECIPE_MAX_RANK];
} region;

static int by_start(const void *a, const void *b, void *context) {
    const int *dim = context;
    int64_t left = (*(const fb_piece *const *)a)->start[*dim], right = (*(const fb_piece *const *)b)->start[*dim];
    return (left > right) - (left < right);
}

static bool covers(const fb_piece *piece, const region *r) {
    for (int i = 0; i < r->rank; i++) {
        if (piece->start[i] != r->start[i] || piece->stop[i] != r->stop[i]) return false;
    }
    return true;
}

/* How many of the sorted pieces make the first slab, the one that begins with the first piece; `stop` is its end. */
static size_t first_slab(const fb_piece **pieces, size_t count, int dim, int64_t *stop) {
    size_t taken = 0;
    for (*stop = pieces[0]->stop[dim]; taken < count && pieces[taken]->start[dim] < *stop; taken++) {
        if (pieces[taken]->stop[dim] > *stop) *stop = pieces[taken]->stop[dim];
    }
    return taken;
}

static fb_value join(region *r, const fb_piece **pieces, size_t count, int depth);

/* The slabs along a dimension, joined each by itself; none when one cannot be. A gap before a slab is a gap in it. */
static fb_value join_slabs(region *r, const fb_piece **pieces, size_t count, int dim, int depth) {
    const int64_t start = r->start[dim], stop = r->stop[dim];
    fb_buffer parts = {0};
    bool is_joined = true;
    for (size_t done = 0, taken; done < count && is_joined; done += taken) {
        taken = first_slab(pieces + done, count - done, dim, &r->stop[dim]);
        fb_value part = join(r, pieces + done, taken, depth + 1);
        is_joined = part.id != 0;
        fb_buffer_append(&parts, &part, sizeof part);
        r->start[dim] = r->stop[dim];
    }
    is_joined &= r->stop[dim] == stop;
    r->start[dim] = start;
    r->stop[dim] = stop;
    fb_value joined = {0};
    if (parts.failed) fb_graph_fail_memory(r->graph);
    else if (is_joined)
        joined = fb_recipe_concat(r->graph, dim, (const fb_value *)(const void *)parts.data, parts.size / sizeof joined);
    fb_buffer_free(&parts);
    return joined;
}

static fb_value join(region *r, const fb_piece **pieces, size_t count, int depth) {
    if (count == 1) return covers(pieces[0], r) ? pieces[0]->from : (fb_value){0};
    for (int dim = 0; dim < r->rank && depth < MAX_DEPTH; dim++) {
        int64_t stop;
        qsort_r(pieces, count, sizeof *pieces, by_start, &dim);
        if (first_slab(pieces, count, dim, &stop) < count) return join_slabs(r, pieces, count, dim, depth);
    }
    return (fb_value){0};
}

fb_value fb_pieces_join(fb_graph *graph, const fb_piece *const *pieces, size_t count, const int64_t *sizes, int rank) {
    region r = {.graph = graph, .rank = rank};
    fb_value joined = {0};
    if (count == 0 || rank > FB_RECIPE_MAX_RANK) return joined;
    const fb_piece **order = calloc(count, sizeof *order);
    if (!order) return fb_graph_fail_memory(graph);
    for (size_t i = 0; i < count; i++) order[i] = pieces[i];
    for (int i = 0; i < rank; i++) r.stop[i] = sizes[i];
    joined = join(&r, order, count, 0);
    free(order);
    return joined;
}
