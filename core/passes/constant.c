/* Recipes of nodes that depend on weights only: what all operators share. The rules are in constant_*.c. */
#include "core/passes/constant.h"

#include "core/ops/infer.h"
#include "core/weights/recipe.h"

static fb_constant_rule *const rules[FB_OP_COUNT] = {
#define FB_CONSTANT_RULE(op, function) [FB_OP_##op] = fb_constant_##function,
#include "core/passes/constants.def"
#undef FB_CONSTANT_RULE
};

fb_value fb_no_constant(fb_constant_call *c, const char *reason, const char *detail) {
    c->constants->reason = reason;
    c->constants->detail = detail;
    return (fb_value){0};
}

fb_value fb_constant_argument(fb_constant_call *c, const char *parameter) {
    fb_value value = fb_call_argument(c->graph, c->call.node, parameter);
    c->seen += value.id != 0;
    return value;
}

fb_value fb_constant_of(fb_constant_call *c, fb_value value) {
    fb_value recipe = {0};
    fb_kind kind = fb_value_kind(c->graph, value);
    if (kind == FB_INT || kind == FB_FLOAT) return fb_recipe_full(c->graph, NULL, 0, value);
    fb_node node = value.id ? fb_value_node(c->graph, value) : (fb_node){0};
    if (!node.id) return fb_no_constant(c, "unsupported-arguments", "an operand is neither a tensor nor an int or float");
    fb_constant_recipe(c->constants, node, &recipe);
    return recipe;
}

fb_value fb_constant_operand(fb_constant_call *c, const char *parameter) {
    return fb_constant_of(c, fb_constant_argument(c, parameter));
}

fb_value fb_constant_reshaped(fb_constant_call *c, fb_value recipe) {
    int64_t sizes[FB_MAX_RANK];
    for (int i = 0; i < c->type.rank; i++) sizes[i] = c->type.sizes[i].size;
    return recipe.id ? fb_recipe_reshape(c->graph, recipe, sizes, (size_t)c->type.rank) : recipe;
}

fb_value fb_constant_computed(fb_graph *g, fb_value recipe) {
    return recipe.id ? fb_recipe_mul(g, recipe, fb_recipe_full(g, NULL, 0, fb_make_float(g, 1))) : recipe;
}

/* ---- one node ------------------------------------------------------------------------------------------------------------ */

static bool is_static(const fb_shape_result *type) {
    for (int i = 0; i < type->rank; i++) {
        if (type->sizes[i].symbol.id || type->sizes[i].size < 0) return false;
    }
    return type->rank >= 0 && type->dtype;
}

/* What is recorded must be what follows from the weights. */
static bool agrees(const fb_graph *g, fb_node node, const fb_shape_result *type) {
    const fb_node_row *row = fb_node_at(g, node);
    if (row->dtype && row->dtype != type->dtype) return false;
    if (!row->shape.id) return true;
    if (fb_shape_rank(g, row->shape) != type->rank) return false;
    for (int i = 0; i < type->rank; i++) {
        if (fb_shape_size(g, row->shape, i) != type->sizes[i].size) return false;
    }
    return true;
}

/* A recipe either moves bytes, of one dtype, or computes: then it is rounded to a floating dtype, and to no other. */
static bool has_type(const fb_graph *g, fb_value recipe, const fb_shape_result *type) {
    fb_recipe_type found;
    fb_error ignored = {0};
    if (fb_recipe_type_of(g, recipe, &found, &ignored) || found.rank != type->rank) return false;
    for (int i = 0; i < type->rank; i++) {
        if (found.sizes[i] != type->sizes[i].size) return false;
    }
    return found.is_movement ? found.dtype == type->dtype : fb_dtype_is_computed(type->dtype);
}

static bool read_weight(const fb_graph *g, fb_node node, fb_tensor *tensor, fb_shape_result *type) {
    const fb_node_row *row = fb_node_at(g, node);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return false;
    *tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
    if (!tensor->id) return false;
    const fb_tensor_row *weight = fb_tensor_at(g, *tensor);
    type->dtype = (fb_dtype)weight->dtype;
    type->rank = fb_shape_rank(g, weight->shape);
    if (type->rank > FB_MAX_RANK) return false;
    for (int i = 0; i < type->rank; i++) type->sizes[i] = fb_dim_of(fb_shape_size(g, weight->shape, i));
    return true;
}

/* All that it reads, so that their shapes and dtypes are known. */
static void read_inputs(fb_constant_call *c) {
    fb_value ignored;
    for (uint32_t e = fb_input_first(c->graph, c->call.node); e; e = fb_input_next(c->graph, e))
        fb_constant_recipe(c->constants, fb_edge_input(c->graph, e), &ignored);
    c->constants->reason = NULL;
}

static fb_value make(fb_constant_call *c, fb_constant_rule *rule) {
    if (!rule) return fb_no_constant(c, "unsupported-operator", "no recipe computes this");
    read_inputs(c);
    if (!fb_infer(c->graph, c->call.node, &c->type) || !is_static(&c->type))
        return fb_no_constant(c, "unsupported-arguments", "its shape and dtype do not follow from the weights");
    if (!agrees(c->graph, c->call.node, &c->type))
        return fb_no_constant(c, "recorded-otherwise", "another shape or dtype is recorded than follows from the weights");
    fb_value recipe = rule(c);
    if (!recipe.id && !c->constants->reason) fb_no_constant(c, "unsupported-arguments", "its arguments are not all constant");
    if (!recipe.id) return recipe;
    const fb_node_row *row = fb_node_at(c->graph, c->call.node);
    bool is_read_whole = fb_value_at(c->graph, row->args)->count + fb_value_at(c->graph, row->kwargs)->count / 2 <= c->seen;
    if (!is_read_whole) return fb_no_constant(c, "unsupported-arguments", "it has arguments that recipes do not know");
    if (!has_type(c->graph, recipe, &c->type))
        return fb_no_constant(c, "unsupported-dtype", "recipes compute with floating-point tensors only");
    return recipe;
}

bool fb_constant_recipe(fb_constants *constants, fb_node node, fb_value *recipe) {
    fb_graph *g = fb_rewrite_graph(constants->rewrite);
    fb_constant_call c = {.graph = g, .constants = constants};
    fb_tensor tensor;
    recipe->id = fb_map_get(&constants->recipes, node.id);
    if (recipe->id) return true;
    fb_op op = fb_node_op(g, node);
    c.call = (fb_call){g, node, op, false};
    if (!read_weight(g, node, &tensor, &c.type)) {
        bool is_call = fb_node_at(g, node)->opcode == FB_CALL_FUNCTION || fb_node_at(g, node)->opcode == FB_CALL_METHOD;
        *recipe = make(&c, is_call && op < FB_OP_COUNT ? rules[op] : NULL);
    } else if (agrees(g, node, &c.type)) {
        *recipe = fb_recipe_tensor(g, tensor);
    } else {
        *recipe = fb_no_constant(&c, "recorded-otherwise", "another shape or dtype is recorded than the weight has");
    }
    if (!recipe->id) return false;
    constants->is_out_of_memory |= !fb_map_put(&constants->recipes, node.id, recipe->id);
    const fb_node_row *row = fb_node_at(g, node);
    if (!row->shape.id || !row->dtype)
        fb_set_result_type(constants->rewrite, node, fb_make_result_shape(g, &c.type), c.type.dtype);
    return true;
}
