/* "weights" of a replacement: layers of the match that get other weights, as recipes.
 *
 *     {"weights": {"?l": {"weight": "?l.weight * ?c", "bias": "?l.bias * ?c"}}, "?y": "?l"}
 *
 * Element by element: all tensors of an expression have one shape. Works on called modules and on functions whose weights are
 * read by get_attr (core/pass/layer.h). */
#include <string.h>

#include "core/pass/layer.h"
#include "core/rules/internal.h"
#include "core/weights/recipe.h"

#define STACK_MAX 64

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool has_recipe(fb_step_kind kind) {
    return kind == FB_STEP_ADD || kind == FB_STEP_SUBTRACT || kind == FB_STEP_MULTIPLY || kind == FB_STEP_DIVIDE ||
           kind == FB_STEP_NEGATE || kind == FB_STEP_SQRT;
}

static bool takes_two(fb_step_kind kind) {
    return kind >= FB_STEP_ADD && kind <= FB_STEP_POWER;
}

/* Checks that steps that recipes lack are used on numbers only, and that the result depends on a tensor. */
static fb_status check_steps(fb_rule_reader *reader, const fb_rule_expression *expression) {
    bool is_tensor[STACK_MAX];
    size_t depth = 0;
    for (size_t i = 0; i < expression->count; i++) {
        fb_step_kind kind = expression->steps[i].kind;
        bool is_leaf = kind <= FB_STEP_SIZE || kind == FB_STEP_TENSOR;
        if (is_leaf) is_tensor[depth++] = kind == FB_STEP_TENSOR;
        if (!is_leaf && takes_two(kind)) {
            depth--;
            is_tensor[depth - 1] |= is_tensor[depth];
        }
        if (!is_leaf && is_tensor[depth - 1] && !has_recipe(kind))
            return fb_rule_fail(reader, "bad-expression",
                                "weights can be added, subtracted, multiplied, divided, negated; and sqrt");
    }
    return is_tensor[0] ? FB_OK : fb_rule_fail(reader, "bad-expression", "nothing of a weight is in this");
}

static fb_status read_one(fb_rule_reader *reader, const json_t *json, const char *member, fb_rule_expression *out) {
    const json_t *text = json_object_get(json, member);
    if (!text) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, member);
    if (!json_is_string(text)) return fb_rule_fail(reader, "wrong-type", "an expression is a text: \"?l.weight * ?c\"");
    reader->takes_tensors = true;
    fb_status status = fb_rule_read_expression(reader, json_string_value(text), out);
    reader->takes_tensors = false;
    if (!status) status = check_steps(reader, out);
    if (!status) reader->pointer.size = mark;
    return status;
}

static fb_status read_layer(fb_rule_reader *reader, const char *name, const json_t *json) {
    fb_rule_weights weights = {.call = SIZE_MAX};
    fb_status status = fb_rule_bound_variable(reader, name, &weights.variable);
    if (status) return status;
    for (size_t i = 0; i < reader->rule->call_count; i++) {
        if (reader->rule->calls[i]->variable == weights.variable) weights.call = i;
    }
    if (weights.call == SIZE_MAX)
        return fb_rule_fail(reader, "not-a-layer", "%s is the result of no call of the pattern", name);
    if (!json_is_object(json) || !json_object_size(json))
        return fb_rule_fail(reader, "wrong-type", "an object is expected here: {\"weight\": \"%s.weight * ?c\"}", name);
    status = fb_rule_check_members(reader, json, "weight bias");
    if (!status) status = read_one(reader, json, "weight", &weights.weight);
    if (!status) status = read_one(reader, json, "bias", &weights.bias);
    if (!status) reader->rule->weights[reader->rule->weights_count++] = weights;
    return status;
}

fb_status fb_rule_read_weights(fb_rule_reader *reader, const json_t *json) {
    fb_pass *pass = &reader->rule->pass;
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, "weights"), count;
    const char *names[FB_RULE_MEMBERS_MAX];
    if (!json_is_object(json)) return fb_rule_fail(reader, "wrong-type", "weights are an object: {\"?l\": …}");
    fb_status status = fb_rule_sorted_keys(reader, json, names, &count);
    if (!status && count > FB_RULE_CALLS_MAX) status = fb_rule_fail(reader, "rule-too-large", "too many layers");
    for (size_t i = 0; i < count && !status; i++) {
        size_t inner = fb_pointer_enter(&reader->pointer, names[i]);
        status = read_layer(reader, names[i], json_object_get(json, names[i]));
        if (!status) reader->pointer.size = inner;
    }
    if (!status && pass->exactness == FB_MOVES)
        status = fb_rule_fail(reader, "contradictory-exactness", "weights are computed, so the exactness is rounds or changes");
    if (status) return status;
    pass->reversible = false;
    pass->only_removes = false;
    reader->pointer.size = mark;
    return FB_OK;
}

/* ---- matching ----------------------------------------------------------------------------------------------------------- */

static fb_tensor tensor_of(const fb_graph *graph, const fb_rule *rule, const fb_rule_binding *binding,
                           const fb_rule_step *step) {
    fb_host host;
    for (size_t i = 0; i < rule->call_count; i++) {
        if (rule->calls[i]->variable != step->variable || !fb_host_at(graph, binding->nodes[i], &host)) continue;
        return step->axis ? host.layer.bias : host.layer.weight;
    }
    return (fb_tensor){0};
}

/* Every tensor of the expression is there, and like the one that it is for. */
static bool is_alike(const fb_graph *graph, const fb_rule *rule, const fb_rule_binding *binding,
                     const fb_rule_expression *expression, fb_tensor old) {
    const fb_tensor_row *row = fb_tensor_at(graph, old);
    for (size_t i = 0; i < expression->count; i++) {
        if (expression->steps[i].kind != FB_STEP_TENSOR) continue;
        fb_tensor tensor = tensor_of(graph, rule, binding, &expression->steps[i]);
        const fb_tensor_row *other = tensor.id ? fb_tensor_at(graph, tensor) : NULL;
        if (!other || other->shape.id != row->shape.id || other->dtype != row->dtype) return false;
    }
    return true;
}

static bool is_read_by_others(const fb_graph *graph, const fb_rule *rule, const fb_rule_binding *binding, fb_node node) {
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        bool is_own = false;
        for (size_t i = 0; i < rule->call_count; i++) is_own |= binding->nodes[i].id == fb_edge_user(graph, e).id;
        if (!is_own) return true;
    }
    return false;
}

bool fb_rule_is_root(const fb_rule *rule, size_t call) {
    for (size_t i = 0; i < rule->root_count; i++) {
        if (rule->roots[i]->index == call) return true;
    }
    return false;
}

fb_obstacle fb_rule_weights_obstacle(fb_matcher *matcher, const fb_rule *rule, const fb_rule_binding *binding) {
    const fb_graph *graph = matcher->graph;
    for (size_t i = 0; i < rule->weights_count; i++) {
        const fb_rule_weights *weights = &rule->weights[i];
        fb_node node = binding->nodes[weights->call];
        fb_host host;
        if (!fb_host_at(graph, node, &host))
            return (fb_obstacle){"not-a-layer",
                                 "the node to get other weights is not a linear layer or convolution with its own weights"};
        fb_obstacle obstacle = fb_layer_obstacle(matcher, &host.layer);
        if (obstacle.code) return obstacle;
        if (fb_layer_call_count(matcher->usage, &host.layer) > 1)
            return (fb_obstacle){"shared-module", "the layer is called more than once"};
        if (!fb_rule_is_root(rule, weights->call) && is_read_by_others(graph, rule, binding, node))
            return (fb_obstacle){"other-users", "others read what the layer gives, which would be something else"};
        if (!is_alike(graph, rule, binding, &weights->weight, host.layer.weight) ||
            (host.layer.bias.id && !is_alike(graph, rule, binding, &weights->bias, host.layer.bias)))
            return (fb_obstacle){"shape-mismatch", "a tensor of the expression is not there, or has another shape or dtype"};
    }
    return FB_NO_OBSTACLE;
}

/* ---- editing ------------------------------------------------------------------------------------------------------------ */

/* A number, or (value) a recipe. */
typedef struct operand {
    fb_number number;
    fb_value value;
} operand;

static fb_value recipe_of(fb_graph *graph, const operand *x) {
    return x->value.id ? x->value : fb_recipe_full(graph, NULL, 0, fb_make_float(graph, x->number.real));
}

static fb_value apply_two(fb_graph *graph, fb_step_kind kind, fb_value a, fb_value b) {
    switch (kind) {
    case FB_STEP_ADD: return fb_recipe_add(graph, a, b);
    case FB_STEP_SUBTRACT: return fb_recipe_sub(graph, a, b);
    case FB_STEP_MULTIPLY: return fb_recipe_mul(graph, a, b);
    default: return fb_recipe_div(graph, a, b);
    }
}

/* Steps between numbers are computed now, the others when the weights are. */
static void apply(fb_graph *graph, fb_step_kind kind, operand *a, const operand *b) {
    if (takes_two(kind) && (a->value.id || b->value.id)) {
        a->value = apply_two(graph, kind, recipe_of(graph, a), recipe_of(graph, b));
    } else if (!takes_two(kind) && a->value.id) {
        a->value = kind == FB_STEP_NEGATE ? fb_recipe_neg(graph, a->value) : fb_recipe_sqrt(graph, a->value);
    } else {
        fb_rule_step steps[] = {
            {.kind = FB_STEP_NUMBER, .number = a->number}, {.kind = FB_STEP_NUMBER, .number = b->number}, {.kind = kind}};
        bool is_unary = !takes_two(kind);
        if (is_unary) steps[1] = steps[2];
        fb_rule_binding none = {0};
        fb_rule_expression expression = {.steps = steps, .count = is_unary ? 2 : 3};
        fb_number result = {0};
        fb_rule_compute(graph, &expression, &none, &result);
        a->number = result;
    }
}

static fb_value build_recipe(fb_graph *graph, const fb_rule *rule, const fb_rule_binding *binding,
                             const fb_rule_expression *expression) {
    operand stack[STACK_MAX] = {0};
    size_t depth = 0;
    for (size_t i = 0; i < expression->count; i++) {
        const fb_rule_step *step = &expression->steps[i];
        if (step->kind == FB_STEP_TENSOR) {
            stack[depth++] = (operand){.value = fb_recipe_tensor(graph, tensor_of(graph, rule, binding, step))};
        } else if (step->kind <= FB_STEP_SIZE) {
            fb_rule_expression one = {.steps = step, .count = 1};
            stack[depth] = (operand){0};
            fb_rule_compute(graph, &one, binding, &stack[depth].number);
            depth++;
        } else {
            if (takes_two(step->kind)) depth--;
            apply(graph, step->kind, &stack[depth - 1], &stack[takes_two(step->kind) ? depth : depth - 1]);
        }
    }
    return stack[0].value;
}

void fb_rule_edit_weights(fb_rewrite *rewrite, const fb_rule *rule, const fb_rule_binding *binding) {
    fb_graph *graph = fb_rewrite_graph(rewrite);
    fb_value recipes[FB_RULE_CALLS_MAX][2] = {0};
    fb_host host;
    /* All are made before any is set: they are of the weights as they were. */
    for (size_t i = 0; i < rule->weights_count; i++) {
        const fb_rule_weights *weights = &rule->weights[i];
        if (!fb_host_at(graph, binding->nodes[weights->call], &host)) continue;
        if (weights->weight.count) recipes[i][0] = build_recipe(graph, rule, binding, &weights->weight);
        if (weights->bias.count && host.layer.bias.id) recipes[i][1] = build_recipe(graph, rule, binding, &weights->bias);
    }
    for (size_t i = 0; i < rule->weights_count; i++) {
        fb_node node = binding->nodes[rule->weights[i].call];
        if (recipes[i][0].id && fb_host_at(graph, node, &host)) fb_layer_set_weight(rewrite, &host.layer, recipes[i][0]);
        if (recipes[i][1].id && fb_host_at(graph, node, &host)) fb_layer_set_bias(rewrite, &host.layer, recipes[i][1]);
        fb_mark(rewrite, node);
    }
}
