/* Joining pieces: an axis is looked for along which they fall into slabs, and each slab is joined by itself. */
#include <stdlib.h>

#include "core/base/buffer.h"
#include "core/weights/invert.h"

#define MAX_DEPTH (FB_RECIPE_MAX_DEPTH / 2)

/* The box to be covered. */
typedef struct region {
    fb_graph *graph;
    int rank;
    int64_t start[FB_RECIPE_MAX_RANK], stop[FB_RECIPE_MAX_RANK];
} region;

static int by_start(const void *a, const void *b, void *context) {
    const int *axis = context;
    int64_t left = (*(const fb_piece *const *)a)->start[*axis], right = (*(const fb_piece *const *)b)->start[*axis];
    return (left > right) - (left < right);
}

static bool covers(const fb_piece *piece, const region *r) {
    for (int i = 0; i < r->rank; i++) {
        if (piece->start[i] != r->start[i] || piece->stop[i] != r->stop[i]) return false;
    }
    return true;
}

/* How many of the sorted pieces make the first slab, the one that begins with the first piece; `stop` is its end. */
static size_t first_slab(const fb_piece **pieces, size_t count, int axis, int64_t *stop) {
    size_t taken = 0;
    for (*stop = pieces[0]->stop[axis]; taken < count && pieces[taken]->start[axis] < *stop; taken++) {
        if (pieces[taken]->stop[axis] > *stop) *stop = pieces[taken]->stop[axis];
    }
    return taken;
}

static fb_value join(region *r, const fb_piece **pieces, size_t count, int depth);

/* The slabs along an axis, joined each by itself; none when one cannot be. A gap before a slab is a gap in it. */
static fb_value join_slabs(region *r, const fb_piece **pieces, size_t count, int axis, int depth) {
    const int64_t start = r->start[axis], stop = r->stop[axis];
    fb_buffer parts = {0};
    bool is_joined = true;
    for (size_t done = 0, taken; done < count && is_joined; done += taken) {
        taken = first_slab(pieces + done, count - done, axis, &r->stop[axis]);
        fb_value part = join(r, pieces + done, taken, depth + 1);
        is_joined = part.id != 0;
        fb_buffer_append(&parts, &part, sizeof part);
        r->start[axis] = r->stop[axis];
    }
    is_joined &= r->stop[axis] == stop;
    r->start[axis] = start;
    r->stop[axis] = stop;
    fb_value joined = {0};
    if (parts.failed) fb_graph_fail_memory(r->graph);
    else if (is_joined)
        joined = fb_recipe_concat(r->graph, axis, (const fb_value *)(const void *)parts.data, parts.size / sizeof joined);
    fb_buffer_free(&parts);
    return joined;
}

static fb_value join(region *r, const fb_piece **pieces, size_t count, int depth) {
    if (count == 1) return covers(pieces[0], r) ? pieces[0]->from : (fb_value){0};
    for (int axis = 0; axis < r->rank && depth < MAX_DEPTH; axis++) {
        int64_t stop;
        qsort_r(pieces, count, sizeof *pieces, by_start, &axis);
        if (first_slab(pieces, count, axis, &stop) < count) return join_slabs(r, pieces, count, axis, depth);
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
