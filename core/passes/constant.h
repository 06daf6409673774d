/* What a node gives whose inputs are weights only, as a recipe (core/weights/recipe.h).
 *
 * Recipes are made in the graph of a rewrite: in the real one by `edit`, in that of a copy, which is thrown away, by `match`,
 * whose graph must not change. So both come to the same answer by the same code. */
#ifndef FB_PASSES_CONSTANT_H
#define FB_PASSES_CONSTANT_H

#include "core/base/map.h"
#include "core/ops/shape.h"
#include "core/passes/pass.h"
#include "core/weights/recipe.h"

typedef struct fb_constants {
    fb_rewrite *rewrite;
    fb_map recipes;              /* node -> its recipe: what was asked for so far */
    const char *reason, *detail; /* why the last one has none: a reason code, a sentence */
    bool is_out_of_memory;
} fb_constants;

/* The recipe of a get_attr node, or of a call of an operator that constants.def lists, whose inputs have recipes all the way
 * up. False, with the reason, when it has none. Effects and aliases are for the caller to ask about. A node whose shape or
 * dtype is not recorded gets them. */
bool fb_constant_recipe(fb_constants *constants, fb_node node, fb_value *recipe);

#endif
