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

/* ---- for constant*.c ----------------------------------------------------------------------------------------------------- */

typedef struct fb_constant_call {
    fb_call call;
    fb_graph *graph;
    fb_constants *constants;
    fb_shape_result type; /* of the result: all sizes are numbers */
    size_t seen;          /* arguments that the rule has looked at */
} fb_constant_call;

/* An argument; none when it is not given. A rule asks for all that it understands: a call with more has no recipe. */
fb_value fb_constant_argument(fb_constant_call *call, const char *parameter);
/* Its recipe; of a number, a `full` without dimensions. None, with the reason, when it has none. */
fb_value fb_constant_operand(fb_constant_call *call, const char *parameter);
/* The recipe of a node, or number, that is part of an argument. */
fb_value fb_constant_of(fb_constant_call *call, fb_value value);
/* That of the first argument, for a rule that understands all that may be given: what matters is in the result's shape, or is
 * read by the rule. fb_constant_see_all says so alone. */
fb_value fb_constant_first(fb_constant_call *call);
void fb_constant_see_all(fb_constant_call *call);
/* False when there is no recipe. */
bool fb_constant_type_of(fb_constant_call *call, fb_value recipe, fb_recipe_type *type);
/* Records why there is no recipe, and returns none. */
fb_value fb_no_constant(fb_constant_call *call, const char *reason, const char *detail);
/* `recipe` in the shape of the result. */
fb_value fb_constant_reshaped(fb_constant_call *call, fb_value recipe);
/* The same numbers, computed: so that they may be rounded to another dtype. */
fb_value fb_constant_computed(fb_graph *graph, fb_value recipe);

typedef fb_value fb_constant_rule(fb_constant_call *call);
#define FB_CONSTANT_RULE(op, function) fb_constant_rule fb_constant_##function;
#include "core/passes/constants.def"
#undef FB_CONSTANT_RULE

#endif
