/* Recipes of slices and joins of weights: they copy bytes, so any dtype will do. */
#include <stdlib.h>

#include "core/passes/constant.h"
#include "core/weights/recipe.h"

/* ---- parts --------------------------------------------------------------------------------------------------------------- */

/* An end of a slice as Python takes it: counted from the back when negative, cut at both. */
static bool read_end(const fb_graph *g, fb_value value, int64_t fallback, int64_t size, int64_t *out) {
    bool is_absent = !value.id || fb_value_kind(g, value) == FB_NONE;
    int64_t at = fallback;
    if (!is_absent && !fb_evaluate_int(g, value, &at)) return false;
    if (at < 0) at += size;
    *out = at < 0 ? 0 : at > size ? size : at;
    return true;
}

static fb_value sliced(fb_constant_call *c, fb_value recipe, int axis, fb_value start, fb_value stop, fb_value step) {
    fb_recipe_type type;
    int64_t from, to, by = 1;
    if (!fb_constant_type_of(c, recipe, &type)) return (fb_value){0};
    if (step.id && fb_value_kind(c->graph, step) != FB_NONE && (!fb_evaluate_int(c->graph, step, &by) || by != 1))
        return fb_no_constant(c, "unsupported-arguments", "recipes slice in steps of 1");
    int64_t size = type.sizes[axis];
    if (!read_end(c->graph, start, 0, size, &from) || !read_end(c->graph, stop, size, size, &to)) return (fb_value){0};
    return fb_recipe_slice(c->graph, recipe, axis, from, to < from ? from : to);
}

/* One position along an axis, which stays. */
static fb_value picked(fb_constant_call *c, fb_value recipe, int axis, fb_value index) {
    fb_recipe_type type;
    int64_t at;
    if (!fb_constant_type_of(c, recipe, &type) || !fb_evaluate_int(c->graph, index, &at)) return (fb_value){0};
    if (at < 0) at += type.sizes[axis];
    if (at < 0 || at >= type.sizes[axis]) return fb_no_constant(c, "unsupported-arguments", "the index is out of range");
    return fb_recipe_slice(c->graph, recipe, axis, at, at + 1);
}

fb_value fb_constant_slice(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
    int axis;
    if (!recipe.id || !fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis)) return (fb_value){0};
    return sliced(c, recipe, axis, fb_option(&c->call, "start"), fb_option(&c->call, "end"), fb_option(&c->call, "step"));
}

fb_value fb_constant_narrow(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
    fb_recipe_type type;
    int axis;
    int64_t start, length;
    if (!fb_constant_type_of(c, recipe, &type) || !fb_option_axis(&c->call, "dim", 0, type.rank, &axis)) return (fb_value){0};
    if (!fb_option_int(&c->call, "start", 0, &start) || !fb_option_int(&c->call, "length", 0, &length)) return (fb_value){0};
    if (start < 0) start += type.sizes[axis];
    return fb_recipe_slice(c->graph, recipe, axis, start, start + length);
}

fb_value fb_constant_select(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c);
    fb_recipe_type type;
    int axis;
    if (!fb_constant_type_of(c, recipe, &type) || !fb_option_axis(&c->call, "dim", 0, type.rank, &axis)) return (fb_value){0};
    return fb_constant_reshaped(c, picked(c, recipe, axis, fb_option(&c->call, "index")));
}

/* x[1, 2:4, None, ...]: axis by axis, then in the shape of the result. */
fb_value fb_constant_index(fb_constant_call *c) {
    fb_value recipe = fb_constant_first(c), index = fb_node_arg(c->graph, c->call.node, 1);
    fb_recipe_type type;
    if (!index.id || !fb_constant_type_of(c, recipe, &type)) return (fb_value){0};
    bool is_tuple = fb_value_kind(c->graph, index) == FB_TUPLE;
    uint32_t count = is_tuple ? fb_value_at(c->graph, index)->count : 1;
    int axis = 0, taken = 0;
    for (uint32_t i = 0; i < count; i++) {
        fb_kind kind = fb_value_kind(c->graph, is_tuple ? fb_value_item(c->graph, index, i) : index);
        taken += kind != FB_NONE && kind != FB_ELLIPSIS;
    }
    for (uint32_t i = 0; recipe.id && i < count; i++) {
        fb_value item = is_tuple ? fb_value_item(c->graph, index, i) : index;
        const fb_value_row *row = fb_value_at(c->graph, item);
        if (row->kind == FB_NONE) continue;
        if (row->kind == FB_ELLIPSIS) axis += type.rank - taken;
        else if (row->kind == FB_SLICE) recipe = sliced(c, recipe, axis++, row->items[0], row->items[1], row->items[2]);
        else recipe = picked(c, recipe, axis++, item);
    }
    return fb_constant_reshaped(c, recipe);
}

/* ---- joins --------------------------------------------------------------------------------------------------------------- */

/* The parts in the dtype of the result; a malloc'ed list, NULL when one has no recipe. */
static fb_value *parts_of(fb_constant_call *c, uint32_t *count) {
    fb_value tensors = fb_constant_argument(c, "tensors");
    fb_kind kind = tensors.id ? fb_value_kind(c->graph, tensors) : FB_NONE;
    if (kind != FB_LIST && kind != FB_TUPLE) return NULL;
    *count = fb_value_at(c->graph, tensors)->count;
    fb_value *parts = malloc((*count + 1) * sizeof *parts);
    if (!parts) fb_graph_fail_memory(c->graph);
    for (uint32_t i = 0; parts && i < *count; i++) {
        fb_recipe_type type;
        parts[i] = fb_constant_of(c, fb_value_item(c->graph, tensors, i));
        if (fb_constant_type_of(c, parts[i], &type)) {
            if (type.dtype != c->type.dtype) parts[i] = fb_constant_computed(c->graph, parts[i]);
            continue;
        }
        free(parts);
        return NULL;
    }
    return parts;
}

fb_value fb_constant_concatenate(fb_constant_call *c) {
    uint32_t count;
    int axis;
    fb_constant_see_all(c);
    fb_value *parts = parts_of(c, &count), recipe = {0};
    if (parts && fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis))
        recipe = fb_recipe_concat(c->graph, axis, parts, count);
    free(parts);
    return recipe;
}

/* Each part gets the new dimension, of size 1. */
fb_value fb_constant_stack(fb_constant_call *c) {
    uint32_t count;
    int axis;
    fb_constant_see_all(c);
    fb_value *parts = parts_of(c, &count), recipe = {0};
    if (parts && fb_option_axis(&c->call, "dim", 0, c->type.rank, &axis)) {
        int64_t sizes[FB_MAX_RANK];
        for (int i = 0; i < c->type.rank; i++) sizes[i] = i == axis ? 1 : c->type.sizes[i].size;
        for (uint32_t i = 0; i < count; i++) parts[i] = fb_recipe_reshape(c->graph, parts[i], sizes, (size_t)c->type.rank);
        recipe = fb_recipe_concat(c->graph, axis, parts, count);
    }
    free(parts);
    return recipe;
}
