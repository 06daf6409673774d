/* ReplaceActivation: replaces one activation with another.
 *
 *     x ── from ── y          x ── to ── y
 *
 * `from` and `to` are names of activations: "relu", "gelu", "silu", "hardswish" … `parameters` belong to `to` ({"approximate":
 * "tanh"}); the parameters of `from` are dropped. A call keeps its form: a module stays a module, and so do functions, methods
 * and ATen and ONNX operators, if the model's opset has `to`. torch.relu becomes torch.tanh, or a function of
 * torch.nn.functional if torch has none. A module gets a new type and config, which counts as one match for all its calls.
 *
 * A call that works in place still does if `to` can. Otherwise its result is a new tensor and the input keeps its numbers, so
 * the pass refuses if something else may read the input's memory. It also refuses if the input is not a floating-point tensor,
 * for arguments that no activation has (out=), and for a module that something outside this graph may call. Exactness: changes.
 * Reversible: weights are not touched.
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/parameter.h"
#include "core/analysis/view.h"
#include "core/base/buffer.h"
#include "core/operators/spelling.h"
#include "core/pass/build.h"

/* Activations that can replace one another: functions of one tensor, element by element (the rows of ops.def with HOMES). */

/* By any of its names; FB_OP_UNKNOWN when no activation is called so. */
static fb_op activation_find(const char *name) {
    for (fb_op op = 1; op < FB_OP_COUNT; op++) {
        if (fb_op_facts_of(op)->homes && fb_op_is_named(op, name)) return op;
    }
    return FB_OP_UNKNOWN;
}

/* The first is the input. */
static bool has_parameter(fb_op op, const char *name) {
    const char *at = fb_parameter_next(fb_op_facts_of(op)->parameters);
    while (at && !fb_parameter_is(at, name)) at = fb_parameter_next(at);
    return at != NULL;
}

/* Has it a parameter of that name, besides its input and `inplace`? */
static bool activation_has_parameter(fb_op activation, const char *name) {
    return strcmp(name, "inplace") != 0 && has_parameter(activation, name);
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

typedef struct search {
    fb_matcher *matcher;
    fb_op from, to;
    bool *is_sole; /* by node: its memory is read through the readers of the node itself alone */
} search;

/* A result in memory of its own, or in an input's that only this node reads, and so on. */
static bool has_sole_memory(const search *s, fb_node n) {
    const fb_graph *g = s->matcher->graph;
    fb_opcode opcode = (fb_opcode)fb_node_at(g, n)->opcode;
    if (opcode == FB_PLACEHOLDER || opcode == FB_GET_ATTR || opcode == FB_OUTPUT) return false;
    fb_effects effects = fb_op_effects(g, n);
    if (effects.is_unknown || effects.may_alias_all) return false;
    if (!effects.may_alias_input && !effects.mutates_input) return true;
    fb_node input = fb_value_node(g, fb_first_argument(g, n));
    return input.id && s->is_sole[input.id] && fb_node_at(g, input)->user_count == 1;
}

/* May the node's input keep the numbers that the call has overwritten so far? */
static bool input_is_unread(const search *s, fb_node n) {
    fb_node input = fb_value_node(s->matcher->graph, fb_first_argument(s->matcher->graph, n));
    return input.id && s->is_sole[input.id] && fb_node_at(s->matcher->graph, input)->user_count == 1;
}

static bool is_floating(const fb_graph *g, fb_node n) {
    fb_dtype dtype = (fb_dtype)fb_node_at(g, n)->dtype;
    return !dtype || fb_dtype_is_floating(dtype);
}

static bool saves_result(fb_op op) {
    return fb_op_facts_of(op)->flags & FB_FACT_SAVES_RESULT;
}

/* A call that works in place saves a copy of its input, or its result. */
static fb_obstacle gradient_obstacle(const search *s, fb_node n) {
    bool writes = fb_op_effects(s->matcher->graph, n).mutates_input;
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    if ((saves_result(s->to) || writes) && !saves_result(s->from)) obstacle = fb_gradient_obstacle(s->matcher, n, n);
    if (obstacle.code || writes) return obstacle;
    return fb_gradient_obstacle(s->matcher, fb_call_argument_node(s->matcher->graph, n, "input"), n);
}

static bool gives_rows(fb_op op) {
    return fb_op_facts_of(op)->layout == FB_LAYOUT_ROWS;
}

/* One gives a row-major result, the other one with the input's strides, which may be transposed. */
static bool is_layout_lost(const search *s, fb_node n) {
    const fb_graph *g = s->matcher->graph;
    return gives_rows(s->from) != gives_rows(s->to) && !fb_is_contiguous(g, fb_call_argument_node(g, n, "input")) &&
           fb_layout_is_read(g, n);
}

static fb_obstacle call_obstacle(const search *s, fb_node n) {
    const fb_graph *g = s->matcher->graph;
    fb_effects effects = fb_op_effects(g, n);
    if (effects.is_unknown || !fb_call_argument(g, n, "input").id)
        return (fb_obstacle){"unsupported-arguments", "it is called with arguments that no activation has"};
    if (!is_floating(g, n)) return (fb_obstacle){"not-floating", "its input is not a floating-point tensor"};
    fb_activation_spelling spelling;
    fb_buffer target = {0};
    bool is_spelled = fb_spell_activation(g, n, s->to, effects.mutates_input, &target, &spelling);
    fb_buffer_free(&target);
    if (!is_spelled) return fb_unspelled(g, s->to);
    if (effects.is_named) return fb_effect_obstacle(g, n);
    if (effects.mutates_input && !spelling.is_in_place && !input_is_unread(s, n))
        return (fb_obstacle){"input-is-read",
                             "it writes into its input, which something else may read; the other activation cannot"};
    if (s->matcher->report->pass->version > 1 && is_layout_lost(s, n))
        return (fb_obstacle){"needs-contiguous",
                             "log_sigmoid alone gives rows, and a reader of the result may fail of another layout"};
    return gradient_obstacle(s, n);
}

static void match_calls(search *s, const fb_node *calls, size_t count) {
    fb_matcher *m = s->matcher;
    for (size_t i = 0; i < count; i++) {
        fb_obstacle obstacle = call_obstacle(s, calls[i]);
        if (fb_is_marked(m, calls[i])) obstacle = (fb_obstacle){"already-transformed", "it was put there by this pass before"};
        if (obstacle.code) fb_refuse_for(m, obstacle, &calls[i], 1);
        if (obstacle.code) return;
    }
    fb_match_found(m, calls, count);
}

/* All calls of a module, at the first. */
static void match_module(search *s, fb_node n) {
    fb_matcher *m = s->matcher;
    fb_module module = fb_node_at(m->graph, n)->module;
    if (fb_first_call(m->usage, module).id != n.id) return;
    fb_obstacle obstacle = fb_module_obstacle(m, module);
    if (obstacle.code) {
        fb_refuse_node(m, obstacle.code, n, "the module is used out of sight, too, and would work otherwise there");
        return;
    }
    uint32_t count = fb_call_count(m->usage, module), i = 0;
    fb_node *calls = malloc(count * sizeof *calls);
    m->failed |= !calls;
    for (fb_node call = n; calls && i < count; call = fb_next_call(m->usage, call)) calls[i++] = call;
    if (calls) match_calls(s, calls, count);
    free(calls);
}

static bool are_names_known(search *s) {
    fb_matcher *m = s->matcher;
    const char *from = json_string_value(json_object_get(m->params, "from"));
    const char *to = json_string_value(json_object_get(m->params, "to")), *name;
    json_t *value;
    s->from = activation_find(from);
    s->to = activation_find(to);
    if (!s->from) fb_refuse(m, "unknown-activation", NULL, 0, "no activation is called \"%.80s\"", from);
    if (!s->to) fb_refuse(m, "unknown-activation", NULL, 0, "no activation is called \"%.80s\"", to);
    if (!s->from || !s->to) return false;
    json_object_foreach(json_object_get(m->params, "parameters"), name, value) {
        if (activation_has_parameter(s->to, name) && !json_is_array(value) && !json_is_object(value)) continue;
        fb_refuse(m, "unknown-parameter", NULL, 0, "%.80s takes no such \"%.80s\"", to, name);
        return false;
    }
    return true;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    search s = {.matcher = m};
    if (!are_names_known(&s)) return;
    s.is_sole = calloc(fb_node_limit(g), sizeof *s.is_sole);
    m->failed |= !s.is_sole;
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && s.is_sole; n = fb_next_node(g, n)) {
        s.is_sole[n.id] = has_sole_memory(&s, n);
    }
    for (fb_node n = fb_first_node(g, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
        if ((fb_node_op(g, n) & ~FB_OP_IN_PLACE) != s.from) continue;
        if (fb_node_at(g, n)->opcode == FB_CALL_MODULE) match_module(&s, n);
        else match_calls(&s, &n, 1);
    }
    free(s.is_sole);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static fb_value value_of(fb_graph *g, const json_t *json) {
    if (json_is_string(json)) return fb_make_string(g, json_string_value(json));
    if (json_is_integer(json)) return fb_make_int(g, json_integer_value(json));
    if (json_is_real(json)) return fb_make_float(g, json_real_value(json));
    return json_is_null(json) ? FB_VALUE_NONE : fb_make_bool(g, json_is_true(json));
}

/* The arguments of `to` besides its input: keyword arguments, or a config. */
static fb_value add_options(fb_graph *g, const fb_match *match, const fb_activation_spelling *spelling, fb_value map) {
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(match->params, "parameters"), name, value) {
        map = fb_sorted_map_with(g, map, name, value_of(g, value));
    }
    return spelling->has_flag ? fb_sorted_map_with(g, map, "inplace", FB_VALUE_TRUE) : map;
}

static void change_call(fb_rewrite *rw, const fb_match *match, const fb_activation_spelling *spelling, const char *target) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node n = match->nodes[0];
    fb_argument_place place;
    fb_value input = fb_call_argument(g, n, "input"), options = add_options(g, match, spelling, FB_VALUE_EMPTY_MAP);
    fb_call_argument_place(g, n, "input", &place);
    const char *keyword = place.is_keyword ? place.keyword : NULL;
    fb_set_args(rw, n, keyword ? FB_VALUE_EMPTY_LIST : FB_ARGS(g, input),
                keyword ? fb_map_with(g, options, keyword, input) : options);
    fb_set_target(rw, n, spelling->opcode, target);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_node n = match->nodes[0];
    fb_buffer text = {0};
    fb_activation_spelling spelling;
    fb_op to = activation_find(json_string_value(json_object_get(match->params, "to")));
    fb_spell_activation(g, n, to, fb_op_effects(g, n).mutates_input, &text, &spelling);
    const char *target = fb_buffer_text(&text);
    if (!target) fb_graph_fail_memory(g);
    else if (spelling.opcode == FB_CALL_MODULE)
        fb_set_module(rw, fb_node_at(g, n)->module, target, add_options(g, match, &spelling, FB_VALUE_EMPTY_MAP));
    else change_call(rw, match, &spelling, target);
    for (size_t i = 0; i < match->count; i++) fb_mark(rw, match->nodes[i]);
    fb_buffer_free(&text);
}

/* Version 1 also replaced log_sigmoid, and others with it, where a reader fails of the other layout. */
#define REPLACE_ACTIVATION(number, before)                                                                                     \
    {                                                                                                                          \
        .name = "ReplaceActivation", .version = number, .earlier = before,                                                     \
        .summary = "Replaces one activation with another: `{\"from\": \"relu\", \"to\": \"gelu\"}`.",                          \
        .parameters =                                                                                                          \
            "{\"additionalProperties\":false,\"properties\":{"                                                                 \
            "\"from\":{\"description\":\"the activation that goes: relu, gelu, silu, hardswish …\",\"type\":\"string\"},"    \
            "\"parameters\":{\"default\":{},\"description\":\"parameters of the one that comes, such as approximate or "       \
            "negative_slope; what is not given has PyTorch's default\",\"type\":\"object\"},"                                  \
            "\"to\":{\"description\":\"the activation that comes\",\"type\":\"string\"}},"                                     \
            "\"required\":[\"from\",\"to\"],\"type\":\"object\"}",                                                             \
        .exactness = FB_CHANGES, .reversible = true, .preserves_computation = false, .reads_onnx = true,                       \
        .match_graph = match_graph, .edit = edit,                                                                              \
    }

static const fb_pass version_1 = REPLACE_ACTIVATION(1, NULL);
const fb_pass fb_replace_activation = REPLACE_ACTIVATION(2, &version_1);
