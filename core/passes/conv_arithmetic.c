/* Arithmetic on a convolution's weight, as recipes: see layer.h. */
#include "core/passes/layer.h"
#include "core/weights/recipe.h"

/* What a convolution's weight looks like, group by group: (groups, axis 0 / groups, axis 1, *kernel). */
typedef struct grouped {
    int64_t whole[FB_RECIPE_MAX_RANK], parts[FB_RECIPE_MAX_RANK + 1];
    size_t rank; /* of `whole`; `parts` has one more */
    int64_t kernel;
} grouped;

static grouped grouped_sizes(const fb_graph *g, const fb_conv *conv) {
    grouped s = {.rank = (size_t)conv->spatial + 2, .kernel = 1};
    fb_value shape = fb_tensor_at(g, conv->weight)->shape;
    for (size_t i = 0; i < s.rank; i++) s.whole[i] = s.parts[i + 1] = fb_shape_size(g, shape, (int)i);
    for (size_t i = 2; i < s.rank; i++) s.kernel *= s.whole[i];
    s.parts[0] = conv->groups;
    s.parts[1] = s.whole[0] / conv->groups;
    return s;
}

/* The weight with axis 1 scaled, which each group has its own channels on: the inputs of a convolution, and the outputs of a
 * transposed one. */
static fb_value scale_axis_1(fb_graph *g, const fb_conv *conv, fb_value scale) {
    grouped s = grouped_sizes(g, conv);
    int64_t sizes[FB_RECIPE_MAX_RANK + 1] = {conv->groups, 1, s.whole[1]};
    for (size_t i = 3; i <= s.rank; i++) sizes[i] = 1;
    fb_value weight = fb_recipe_tensor(g, conv->weight);
    if (conv->groups == 1) return fb_recipe_mul(g, weight, fb_recipe_reshape(g, scale, sizes + 1, s.rank));
    weight = fb_recipe_reshape(g, weight, s.parts, s.rank + 1);
    return fb_recipe_reshape(g, fb_recipe_mul(g, weight, fb_recipe_reshape(g, scale, sizes, s.rank + 1)), s.whole, s.rank);
}

/* With axis 0 scaled, where all channels are side by side: the outputs of a convolution, the inputs of a transposed one. */
static fb_value scale_axis_0(fb_graph *g, const fb_conv *conv, fb_value scale) {
    grouped s = grouped_sizes(g, conv);
    int64_t sizes[FB_RECIPE_MAX_RANK] = {s.whole[0]};
    for (size_t i = 1; i < s.rank; i++) sizes[i] = 1;
    return fb_recipe_mul(g, fb_recipe_tensor(g, conv->weight), fb_recipe_reshape(g, scale, sizes, s.rank));
}

static fb_value scale_axis(fb_graph *g, const fb_conv *conv, fb_value factor, int axis) {
    fb_recipe_type type;
    fb_error ignored = {0};
    bool is_one_for_all = factor.id && !fb_recipe_type_of(g, factor, &type, &ignored) && type.rank == 0;
    if (is_one_for_all) return fb_recipe_mul(g, fb_recipe_tensor(g, conv->weight), factor);
    return axis == 0 ? scale_axis_0(g, conv, factor) : scale_axis_1(g, conv, factor);
}

fb_value fb_conv_scale_inputs(fb_graph *g, const fb_conv *conv, fb_value factor) {
    return scale_axis(g, conv, factor, conv->is_transposed ? 0 : 1);
}

fb_value fb_conv_scale_outputs(fb_graph *g, const fb_conv *conv, fb_value factor) {
    return scale_axis(g, conv, factor, conv->is_transposed ? 1 : 0);
}

fb_value fb_conv_times(fb_graph *g, const fb_conv *conv, fb_value shift) {
    grouped s = grouped_sizes(g, conv);
    int64_t inputs = s.whole[1], terms = inputs * s.kernel;
    fb_value ones = fb_recipe_full(g, (int64_t[]){1, s.kernel}, 2, fb_make_float(g, 1));
    shift = fb_recipe_mul(g, fb_recipe_reshape(g, shift, (int64_t[]){conv->in_channels, 1}, 2), ones);
    shift = fb_recipe_reshape(g, shift, (int64_t[]){conv->groups, terms, 1}, 3);
    fb_value weight = fb_recipe_tensor(g, conv->weight);
    weight = fb_recipe_reshape(g, weight, (int64_t[]){conv->groups, s.parts[1], terms}, 3);
    return fb_recipe_reshape(g, fb_recipe_matmul(g, weight, shift), &conv->out_channels, 1);
}
