/* Recipes of weights, in units of blocks.
 *
 * A scale of a quantised weight belongs to a block of it: of 128 x 128 elements, of 16 or 32 in a row, of a row. So the scales
 * of a weight that was moved are moved by the same recipe, with every size divided by the block's. An element of float4_*_x2 or
 * float6_*_x4 is such a block, too: it holds two or four numbers of a row, and layouts count numbers.
 *
 * A recipe that would cut a block is refused, as "cuts-block": no tensor of blocks would say what becomes of it. */
#include <stdlib.h>
#include <string.h>

#include "core/layouts/internal.h"

/* An expression, its shape in elements, and of how many elements along each axis a block has. */
typedef struct coarse {
    fb_value value; /* in units of blocks */
    int rank;
    int64_t sizes[FB_RECIPE_MAX_RANK], blocks[FB_RECIPE_MAX_RANK];
} coarse;

typedef struct coarsener {
    fb_graph *graph;
    fb_layout_blocks_leaf *leaf;
    const void *context;
    bool may_copy; /* a block that is cut may be there twice: a scale, no element */
    fb_error *error;
} coarsener;

static int64_t count_of(const coarse *c, int axis) {
    return c->blocks[axis] ? (c->sizes[axis] + c->blocks[axis] - 1) / c->blocks[axis] : 1;
}

static bool cuts(coarsener *k, const char *what) {
    fb_fail(k->error, FB_INVALID, "cuts-block", NULL, "the row would cut %s", what);
    return false;
}

static bool cuts_at(coarsener *k, const coarse *c, int axis, int64_t at) {
    if (!c->blocks[axis]) return cuts(k, "blocks of a size that does not follow from how many there are");
    fb_fail(k->error, FB_INVALID, "cuts-block", NULL, "the row would cut a block of %lld elements along dimension %d, at %lld",
            (long long)c->blocks[axis], axis, (long long)at);
    return false;
}

static bool coarsen(coarsener *k, fb_value fine, coarse *out);

/* ---- concat ------------------------------------------------------------------------------------------------------------- */

/* Joins `next` to `joined`, which others have been joined to before. */
static bool join(coarsener *k, coarse *joined, const coarse *next, int64_t axis, int64_t block) {
    for (int i = 0; i < joined->rank; i++) {
        if (i != axis && joined->blocks[i] != next->blocks[i]) return cuts(k, "blocks of one size to those of another");
    }
    if (joined->sizes[axis] % block) return cuts_at(k, joined, (int)axis, joined->sizes[axis]);
    bool is_last_block = count_of(next, (int)axis) == 1 && next->sizes[axis] <= block;
    if (next->blocks[axis] != block && !is_last_block) return cuts(k, "blocks of one size to those of another");
    joined->sizes[axis] += next->sizes[axis];
    return true;
}

static bool concat(coarsener *k, fb_value fine, coarse *out) {
    int64_t axis = fb_recipe_int(k->graph, fine, "axis"), block = 1;
    size_t count = fb_recipe_arg_count(k->graph, fine);
    coarse *parts = calloc(count, sizeof *parts);
    fb_value *values = calloc(count, sizeof *values);
    bool ok = parts && values, is_one_each = false;
    if (!ok) fb_fail_memory(k->error);
    for (size_t i = 0; i < count && ok; i++) ok = coarsen(k, fb_recipe_arg(k->graph, fine, i), &parts[i]);
    for (size_t i = 0; i < count && ok; i++) {
        if (!parts[i].blocks[axis]) ok = cuts_at(k, &parts[i], (int)axis, 0);
        else if (!k->may_copy || count_of(&parts[i], (int)axis) > 1) block = parts[i].blocks[axis];
        else is_one_each |= parts[i].sizes[axis] > 1;
        values[i] = parts[i].value;
    }
    if (ok && block == 1 && is_one_each && count > 1)
        ok = cuts(k, "what has one block along that dimension: how large it is does not follow");
    if (ok) *out = parts[0];
    if (ok && count > 1 && out->blocks[axis] != block && out->sizes[axis] != block)
        ok = cuts(k, "blocks of one size to those of another");
    if (ok && count > 1) out->blocks[axis] = block;
    for (size_t i = 1; i < count && ok; i++) ok = join(k, out, &parts[i], axis, block);
    if (ok) out->value = fb_recipe_concat(k->graph, axis, values, count);
    free(parts);
    free(values);
    return ok;
}

/* ---- slice, permute ----------------------------------------------------------------------------------------------------- */

static bool slice(coarsener *k, fb_value fine, coarse *out) {
    int axis = (int)fb_recipe_int(k->graph, fine, "axis");
    int64_t start = fb_recipe_int(k->graph, fine, "start"), stop = fb_recipe_int(k->graph, fine, "stop");
    if (!coarsen(k, fb_recipe_arg(k->graph, fine, 0), out)) return false;
    int64_t block = out->blocks[axis], size = out->sizes[axis];
    if (start == 0 && stop == size) return true;
    if (block && block >= size && k->may_copy && stop > start) { /* one for all of them: each part has it */
        out->sizes[axis] = out->blocks[axis] = stop - start;
        return true;
    }
    if (!block || start % block) return cuts_at(k, out, axis, start);
    if (stop % block && stop != size) return cuts_at(k, out, axis, stop);
    out->value = fb_recipe_slice(k->graph, out->value, axis, start / block, (stop + block - 1) / block);
    out->sizes[axis] = stop - start;
    if (block > stop - start && stop > start) out->blocks[axis] = stop - start;
    return true;
}

static bool permute(coarsener *k, fb_value fine, coarse *out) {
    coarse from;
    int64_t dims[FB_RECIPE_MAX_RANK];
    if (!coarsen(k, fb_recipe_arg(k->graph, fine, 0), &from)) return false;
    *out = from;
    for (int i = 0; i < from.rank; i++) {
        dims[i] = fb_shape_size(k->graph, fb_recipe_value(k->graph, fine, "dims"), i);
        out->sizes[i] = from.sizes[dims[i]];
        out->blocks[i] = from.blocks[dims[i]];
    }
    out->value = fb_recipe_permute(k->graph, from.value, dims, (size_t)from.rank);
    return true;
}

/* ---- reshape ------------------------------------------------------------------------------------------------------------ */

/* The elements of one block in a row, of dimensions that a reshape takes as one; 0: they are not in a row. */
static int64_t run_of(const coarse *from, int begin, int end) {
    int64_t run = 1;
    bool is_within = false;
    for (int i = begin; i < end; i++) {
        if (is_within && from->blocks[i] != from->sizes[i]) return 0;
        if (from->blocks[i] > 1 && from->sizes[i] % from->blocks[i]) return 0;
        is_within |= from->blocks[i] > 1;
        run *= from->blocks[i];
    }
    return run;
}

/* Spreads a run over the dimensions that the others become, the last one first. */
static bool spread(coarse *to, int begin, int end, int64_t run) {
    for (int i = end; i-- > begin;) {
        int64_t size = to->sizes[i];
        if (run % size && size % run) return false;
        to->blocks[i] = run % size == 0 ? size : run;
        run = run % size == 0 ? run / size : 1;
    }
    return run == 1;
}

/* Takes dimensions together, from both shapes, that have as many elements. */
static bool regroup(const coarse *from, coarse *to) {
    int i = 0, j = 0;
    while (i < from->rank || j < to->rank) {
        int begin = i, other = j;
        int64_t here = i < from->rank ? from->sizes[i++] : 1, there = j < to->rank ? to->sizes[j++] : 1;
        while (here != there) {
            if (here < there ? i == from->rank : j == to->rank) return false;
            if (here < there) here *= from->sizes[i++];
            else there *= to->sizes[j++];
        }
        if (i - begin == 1 && j - other == 1) {
            to->blocks[other] = from->blocks[begin];
            continue;
        }
        int64_t run = run_of(from, begin, i);
        if (!run || !spread(to, other, j, run)) return false;
    }
    return true;
}

static bool reshape(coarsener *k, fb_value fine, coarse *out) {
    coarse from;
    int64_t counts[FB_RECIPE_MAX_RANK], elements = 1;
    fb_value shape = fb_recipe_value(k->graph, fine, "shape");
    if (!coarsen(k, fb_recipe_arg(k->graph, fine, 0), &from)) return false;
    out->rank = fb_shape_rank(k->graph, shape);
    for (int i = 0; i < out->rank; i++) elements *= out->sizes[i] = fb_shape_size(k->graph, shape, i);
    if (!elements) return cuts(k, "a tensor without elements");
    if (!regroup(&from, out)) return cuts(k, "blocks, of which it takes dimensions apart or together");
    for (int i = 0; i < out->rank; i++) counts[i] = count_of(out, i);
    out->value = fb_recipe_reshape(k->graph, from.value, counts, (size_t)out->rank);
    return true;
}

/* ---- all of them -------------------------------------------------------------------------------------------------------- */

static bool is_leaf(coarsener *k, fb_value fine, coarse *out) {
    fb_recipe_type type;
    fb_value value = k->leaf(k->context, k->graph, fine, out->blocks);
    if (!value.id || fb_recipe_type_of(k->graph, fine, &type, k->error)) return false;
    out->value = value;
    out->rank = type.rank;
    memcpy(out->sizes, type.sizes, sizeof type.sizes);
    return true;
}

static bool coarsen(coarsener *k, fb_value fine, coarse *out) {
    if (k->error->status) return false;
    if (is_leaf(k, fine, out)) return true;
    switch (fb_recipe_op_of(k->graph, fine)) {
    case FB_RECIPE_CONCAT: return concat(k, fine, out);
    case FB_RECIPE_SLICE: return slice(k, fine, out);
    case FB_RECIPE_PERMUTE: return permute(k, fine, out);
    case FB_RECIPE_RESHAPE: return reshape(k, fine, out);
    default: return cuts(k, "blocks: it fills in numbers of its own");
    }
}

fb_value fb_layout_in_blocks(fb_graph *graph, fb_value fine, fb_layout_blocks_leaf *leaf, const void *context, bool may_copy,
                             int64_t blocks[FB_RECIPE_MAX_RANK], fb_error *error) {
    coarsener k = {.graph = graph, .leaf = leaf, .context = context, .may_copy = may_copy, .error = error};
    fb_recipe_type type;
    coarse made = {0};
    if (fb_recipe_type_of(graph, fine, &type, error) || !coarsen(&k, fine, &made)) return (fb_value){0};
    memcpy(blocks, made.blocks, sizeof made.blocks);
    return made.value;
}

int64_t fb_layout_block_of(int64_t size, int64_t count) {
    int64_t found = count == size ? 1 : count == 1 ? size : 0;
    if (found) return found;
    for (int64_t block = 2; block < size && !found; block *= 2) {
        if ((size + block - 1) / block == count) found = block;
    }
    bool is_otherwise = count && size % count == 0 && size / count != found;
    return is_otherwise ? 0 : found;
}
