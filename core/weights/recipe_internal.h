/* For core/weights alone. */
#ifndef FB_WEIGHTS_RECIPE_INTERNAL_H
#define FB_WEIGHTS_RECIPE_INTERNAL_H

#include "core/weights/recipe.h"

/* fb_recipe_type_of with pointers that begin with `prefix`, and a dtype that fillers take when nothing else decides it. */
fb_status fb_recipe_type_under(const fb_graph *graph, fb_value expression, fb_dtype dtype, const char *prefix,
                               fb_recipe_type *type, fb_error *error);

#endif
