/* Inverting recipes of pure movements: where the elements of the sources are in a tensor that was made from them. */
#ifndef FB_WEIGHTS_INVERT_H
#define FB_WEIGHTS_INVERT_H

#include "core/weights/recipe.h"

#define FB_PIECES_MAX 250000 /* half a kilobyte each */

/* A part of a source: the box start <= index < stop of it is what `from` computes, which has the box's shape. For a filler
 * `source` is none, the box is the `full`'s, and `from` is where the constant `number` should be. */
typedef struct fb_piece {
    fb_tensor source;
    fb_value number;
    int rank;
    int64_t start[FB_RECIPE_MAX_RANK], stop[FB_RECIPE_MAX_RANK];
    fb_value from; /* an expression over the made tensor */
} fb_piece;

typedef struct fb_pieces {
    fb_piece *items;
    size_t count, capacity;
} fb_pieces;
void fb_pieces_free(fb_pieces *pieces);

/* Appends the pieces of every source that the tensor `made` was moved from: of tensors without a recipe, through tensors with
 * one. `from` of the pieces reads `now` (a tensor of the same shape: what became of `made`), and so need not be inverted when
 * the caller only wants to know the sources. A tensor without a recipe is moved from itself, whole. No piece is empty: a tensor
 * without elements has none.
 *
 * `is_computed` is set, and nothing appended, when some operation on the way computes, or moves in a way that cannot be
 * followed (a part of a reshape that is not a box of its argument; an inverse nested deeper than half of FB_RECIPE_MAX_DEPTH,
 * the other half being for joining).
 *
 * FB_NO_MEMORY; FB_TOO_LARGE "recipe-too-large" beyond FB_PIECES_MAX pieces or 4,000,000 steps; then nothing is
 * appended either. Recipes may be deep and shared: time and memory are linear in the size of the recipes and the steps. */
fb_status fb_recipe_invert(fb_graph *graph, fb_tensor made, fb_tensor now, fb_pieces *pieces, bool *is_computed,
                           fb_error *error);

/* The expression for a whole source, put together from pieces that cover it without overlap (all with the same source, in any
 * order). None when they leave a gap, overlap, or cannot be joined by cuts through the whole (guillotine cuts) nested at most
 * half of FB_RECIPE_MAX_DEPTH; memory out is told by fb_graph_out_of_memory. */
fb_value fb_pieces_join(fb_graph *graph, const fb_piece *const *pieces, size_t count, const int64_t *sizes, int rank);

#endif
