/* The result of a call whose inputs are weights only, as a recipe (core/weights/recipe.h), by a rule for each operator of
 * call_recipes.def.
 *
 * Recipes are made in the graph of a rewrite: in the real one by `edit`, in that of a copy, which is thrown away, by `match`,
 * whose graph must not change. So both come to the same answer by the same code. */
#ifndef FB_PASS_CALL_RECIPE_H
#define FB_PASS_CALL_RECIPE_H

#include "core/analysis/obstacle.h"
#include "core/analysis/scopes.h"
#include "core/base/map.h"
#include "core/rewrite/rewrite.h"

typedef struct fb_call_recipes {
    fb_rewrite *rewrite;
    const fb_node *outer; /* given: of fb_scopes */
    fb_map made;          /* node -> its recipe: what was asked for so far */
    fb_obstacle obstacle; /* why the last one has none */
    bool has_norms;       /* given: norms have recipes too */
    bool is_out_of_memory;
} fb_call_recipes;

/* The recipe of a get_attr node, of a placeholder that captures one, or of a call of an operator that call_recipes.def lists,
 * whose inputs have recipes all the way up. False, with the reason, when it has none. Effects and aliases are for the caller to
 * ask about. A node whose shape or dtype is not recorded gets them. */
bool fb_recipe_of_call(fb_call_recipes *recipes, fb_node node, fb_value *recipe);

#endif
