/* RaiseOpset: writes the operators of an ONNX model in their versions of a later opset.
 *
 *     ReduceMean.v13(x, axes=[-1])          axes = [-1]   ReduceMean.v18(x, axes)          opset 17 → 23
 *
 * So that passes may write operators that the model's opset does not have yet. In most versions only types came along, and the
 * call stays as it is; core/operators/onnx_steps.def lists the others. An attribute that became an input is a new constant. A
 * Softmax that worked on rows works along its axis, between Flatten and Reshape if that is not the last one.
 *
 * All of the model is raised, or nothing: its graph, nested graphs and functions have one opset. Refused, by the call:
 *   - "version-differs": the later version does not give the same, or not for certain
 *   - "unknown-operator": the model's opset does not have an operator of that name, and the later one may
 *   - "named-elsewhere": the call would become several, and something beside the graph names its value
 *   - "opset-too-old": the model's opset is below 11
 * IR version, operators of other domains, names and types stay.
 *
 * Exactness: moves. Reversible.
 */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx.h"
#include "core/operators/onnx.h"
#include "core/pass/build.h"

enum { LEAST_OPSET = 11, USUAL_OPSET = 23, ZERO_IS_A_SIZE = 14 /* Reshape's allowzero */ };

/* A call whose version is another one at that opset. */
typedef struct raised {
    const char *name;
    size_t size;
    int64_t from, to;
} raised;

static int64_t opset_of(const json_t *params) {
    const json_t *to = json_object_get(params, "to");
    return to ? json_integer_value(to) : USUAL_OPSET;
}

/* Is it a call of the default domain? Its version, 0 where its opset does not have it. */
static bool call_at(const fb_graph *g, fb_node n, int64_t opset, raised *out) {
    const char *target = fb_node_target(g, n);
    bool is_call =
        fb_node_at(g, n)->opcode == FB_CALL_FUNCTION && strncmp(target, FB_ONNX_DEFAULT, strlen(FB_ONNX_DEFAULT)) == 0;
    if (!is_call || strncmp(target, FB_ONNX_FUNCTION, strlen(FB_ONNX_FUNCTION)) == 0) return false;
    out->name = target + strlen(FB_ONNX_DEFAULT);
    out->size = strcspn(out->name, ".");
    out->from = fb_onnx_facts_of(target) ? atoll(out->name + out->size + 2) : 0;
    out->to = fb_onnx_version(out->name, out->size, opset);
    return true;
}

/* ---- match --------------------------------------------------------------------------------------------------------------- */

static fb_value given(const fb_graph *g, fb_node n, const char *attribute) {
    return fb_node_kwarg(g, n, attribute);
}

static bool is_int(const fb_graph *g, fb_node n, const char *attribute, int64_t absent, int64_t *out) {
    fb_value value = given(g, n, attribute);
    *out = absent;
    return !value.id || fb_value_is_int(g, value, out);
}

static bool is_word(const fb_graph *g, fb_value value, const char *word) {
    return value.id && fb_value_kind(g, value) == FB_STRING && strcmp(fb_value_text(g, value), word) == 0;
}

/* The axis of a softmax of rows is the last one. */
static bool is_last_axis(const fb_graph *g, fb_node n, const char *attribute, bool *is_known) {
    int64_t axis;
    fb_node x = fb_arg_node(g, n, 0);
    int rank = fb_node_rank(g, x);
    *is_known = is_int(g, n, attribute, 1, &axis);
    return *is_known && (axis == -1 || (rank > 0 && axis == rank - 1));
}

#define OTHERWISE(text) ((fb_obstacle){"version-differs", text})

static fb_obstacle obstacle_of(const fb_graph *g, fb_node n, const fb_onnx_step *step, int64_t opset) {
    int64_t number, ints[FB_MAX_RANK];
    bool is_known;
    fb_value value = step->attribute ? given(g, n, step->attribute) : (fb_value){0};
    fb_node second = fb_arg_node(g, n, 1);
    switch (step->rule) {
    case FB_ONNX_SAME_CALL:
    case FB_ONNX_DROPPED:
    case FB_ONNX_OLD_DEFAULT: return FB_NO_OBSTACLE;
    case FB_ONNX_FIRST_RESULT:
        return fb_onnx_results(g, n) > 1 ? OTHERWISE("its further results are others in a later version") : FB_NO_OBSTACLE;
    case FB_ONNX_INPUT:
        return value.id && fb_onnx_ints_of(g, n, step->attribute, 0, ints, FB_MAX_RANK) <= 0
                   ? OTHERWISE("the numbers of an attribute that became an input are not known")
                   : FB_NO_OBSTACLE;
    case FB_ONNX_AXIS_INPUT:
        return is_int(g, n, step->attribute, 1, &number)
                   ? FB_NO_OBSTACLE
                   : OTHERWISE("the number of an attribute that became an input is not known");
    case FB_ONNX_PARTS:
        return fb_onnx_results(g, n) < 1 && !second.id ? OTHERWISE("it does not say how many parts there are") : FB_NO_OBSTACLE;
    case FB_ONNX_ROWS:
        if (is_last_axis(g, n, step->attribute, &is_known)) return FB_NO_OBSTACLE;
        if (!is_known) return OTHERWISE("its axis is not known");
        if (opset < ZERO_IS_A_SIZE) return OTHERWISE("it works on rows, and at that opset a Reshape does not take all sizes");
        return fb_op_effects(g, n).is_named
                   ? (fb_obstacle){"named-elsewhere",
                                   "something beside the graph names its value, and it would become several calls"}
                   : FB_NO_OBSTACLE;
    case FB_ONNX_WORDS:
        return value.id && fb_value_kind(g, value) != FB_STRING ? OTHERWISE("its mode is not known") : FB_NO_OBSTACLE;
    case FB_ONNX_UNSET:
        return is_int(g, n, step->attribute, 0, &number) && number == 0
                   ? FB_NO_OBSTACLE
                   : OTHERWISE("with ceil_mode a later version may give another size, or other numbers at the end");
    case FB_ONNX_SCALAR:
        return second.id && fb_node_rank(g, second) == 0
                   ? FB_NO_OBSTACLE
                   : OTHERWISE("its scale has a dimension, or may have one, which a later version takes for an axis");
    case FB_ONNX_LOST:
        return !value.id || (fb_value_kind(g, value) == FB_STRING && !is_word(g, value, "tf_half_pixel_for_nn"))
                   ? FB_NO_OBSTACLE
                   : OTHERWISE("a later version does not have its coordinate_transformation_mode");
    case FB_ONNX_OTHER: break;
    }
    return OTHERWISE("a later version takes inputs of another shape");
}

/* Of all steps that a call takes. */
static fb_obstacle obstacle_of_call(const fb_graph *g, fb_node n, const raised *call, int64_t opset) {
    if (!call->from) return (fb_obstacle){"unknown-operator", "the model's opset has no such operator, and a later one may"};
    if (call->from > call->to) return OTHERWISE("a function's opset is a later one");
    for (int64_t at = call->from; at < call->to;) {
        fb_onnx_step step = fb_onnx_next_version(call->name, call->size, at);
        fb_obstacle found = obstacle_of(g, n, &step, opset);
        if (found.code) return found;
        at = step.version;
    }
    return FB_NO_OBSTACLE;
}

static void match_graph(fb_matcher *m) {
    const fb_graph *g = m->graph;
    int64_t opset = opset_of(m->params), is_of = fb_graph_opset(g);
    fb_buffer calls = {0};
    bool is_refused = false;
    raised call;
    if (!is_of || is_of >= opset) return;
    if (is_of < LEAST_OPSET) {
        fb_refuse_node(m, "opset-too-old", fb_first_node(g, FB_MAIN_PROGRAM), "the model's opset is %lld; this begins at %d",
                       (long long)is_of, LEAST_OPSET);
        return;
    }
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) {
        for (fb_node n = fb_first_node(g, (fb_program){p}); n.id && fb_matcher_goes_on(m); n = fb_next_node(g, n)) {
            if (!call_at(g, n, opset, &call)) continue;
            fb_obstacle obstacle = obstacle_of_call(g, n, &call, opset);
            if (obstacle.code) fb_refuse_for(m, obstacle, &n, 1);
            is_refused |= obstacle.code != NULL;
            if (call.from != call.to) fb_buffer_append(&calls, &n, sizeof n);
        }
    }
    if (calls.failed) m->failed = true;
    else if (!is_refused && !calls.size) fb_match_found(m, (fb_node[]){fb_first_node(g, FB_MAIN_PROGRAM)}, 1);
    else if (!is_refused) fb_match_found(m, (const fb_node *)calls.data, calls.size / sizeof(fb_node));
    fb_buffer_free(&calls);
}

/* ---- edit ---------------------------------------------------------------------------------------------------------------- */

static void set_version(fb_rewrite *rw, fb_node n, const char *name, size_t size, int64_t version) {
    char target[80];
    snprintf(target, sizeof target, FB_ONNX_DEFAULT "%.*s.v%lld", (int)size, name, (long long)version);
    fb_set_target(rw, n, FB_CALL_FUNCTION, target);
}

static fb_node insert_call(fb_rewrite *rw, fb_node before, const char *name, int64_t opset, fb_value args, fb_value kwargs) {
    char target[80];
    snprintf(target, sizeof target, FB_ONNX_DEFAULT "%s.v%lld", name, (long long)fb_onnx_version(name, strlen(name), opset));
    fb_node made = fb_insert_before(rw, before, FB_CALL_FUNCTION, target, args, kwargs);
    if (made.id) fb_mark(rw, made);
    return made;
}

static void set_attribute(fb_rewrite *rw, fb_node n, const char *name, fb_value value) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value kwargs = fb_node_at(g, n)->kwargs;
    fb_set_args(rw, n, fb_node_at(g, n)->args, fb_map_with(g, kwargs.id ? kwargs : FB_VALUE_EMPTY_MAP, name, value));
}

/* An attribute, if it is given, as an input. */
static void move_to_input(fb_rewrite *rw, fb_node n, const char *attribute) {
    fb_graph *g = fb_rewrite_graph(rw);
    int64_t ints[FB_MAX_RANK];
    int count = given(g, n, attribute).id ? fb_onnx_ints_of(g, n, attribute, 0, ints, FB_MAX_RANK) : 0;
    if (count <= 0) return;
    fb_node read = fb_build_ints(rw, n, ints, (size_t)count);
    fb_remove_argument(rw, n, attribute);
    if (read.id) fb_set_args(rw, n, FB_ARGS(g, fb_node_arg(g, n, 0), fb_make_node(g, read)), fb_node_at(g, n)->kwargs);
}

/* The axis of a DFT: behind its length, which may be absent. */
static void move_axis(fb_rewrite *rw, fb_node n, const char *attribute) {
    fb_graph *g = fb_rewrite_graph(rw);
    int64_t axis;
    is_int(g, n, attribute, 1, &axis);
    fb_node read = fb_build_int(rw, n, axis);
    fb_value length = fb_node_arg(g, n, 1);
    fb_remove_argument(rw, n, attribute);
    if (read.id)
        fb_set_args(rw, n, FB_ARGS(g, fb_node_arg(g, n, 0), length.id ? length : FB_VALUE_NONE, fb_make_node(g, read)),
                    fb_node_at(g, n)->kwargs);
}

/* Flatten, the call on its rows, and a Reshape in the place of the call. False: the call is one along its last axis. */
static bool write_rows(fb_rewrite *rw, fb_node n, const char *name, size_t size, const char *attribute, int64_t opset) {
    fb_graph *g = fb_rewrite_graph(rw);
    bool is_known;
    int64_t axis;
    if (is_last_axis(g, n, attribute, &is_known)) return false;
    is_int(g, n, attribute, 1, &axis);
    char word[40];
    snprintf(word, sizeof word, "%.*s", (int)size, name);
    fb_value x = fb_node_arg(g, n, 0), none = FB_VALUE_EMPTY_MAP;
    fb_node flat = insert_call(rw, n, "Flatten", opset, FB_ARGS(g, x), fb_map_with(g, none, "axis", fb_make_int(g, axis)));
    fb_node rows =
        insert_call(rw, n, word, opset, FB_ARGS(g, fb_make_node(g, flat)), fb_map_with(g, none, "axis", fb_make_int(g, 1)));
    fb_node sizes = insert_call(rw, n, "Shape", opset, FB_ARGS(g, x), none);
    fb_set_args(rw, n, FB_ARGS(g, fb_make_node(g, rows), fb_make_node(g, sizes)),
                fb_map_with(g, none, "allowzero", fb_make_int(g, 1)));
    set_version(rw, n, "Reshape", strlen("Reshape"), fb_onnx_version("Reshape", strlen("Reshape"), opset));
    return true;
}

/* True: the call is one of the step's version from now on; false: it became another. */
static bool take_step(fb_rewrite *rw, fb_node n, const raised *call, const fb_onnx_step *step, int64_t opset) {
    fb_graph *g = fb_rewrite_graph(rw);
    fb_value value = step->attribute ? given(g, n, step->attribute) : (fb_value){0};
    switch (step->rule) {
    case FB_ONNX_INPUT: move_to_input(rw, n, step->attribute); break;
    case FB_ONNX_AXIS_INPUT: move_axis(rw, n, step->attribute); break;
    case FB_ONNX_DROPPED:
        if (value.id) fb_remove_argument(rw, n, step->attribute);
        break;
    case FB_ONNX_PARTS:
        if (!fb_arg_node(g, n, 1).id) set_attribute(rw, n, step->attribute, fb_make_int(g, fb_onnx_results(g, n)));
        break;
    case FB_ONNX_ROWS:
        if (write_rows(rw, n, call->name, call->size, step->attribute, opset)) return false;
        set_attribute(rw, n, step->attribute, fb_make_int(g, -1));
        break;
    case FB_ONNX_WORDS:
        if (is_word(g, value, "bilinear")) set_attribute(rw, n, step->attribute, fb_make_string(g, "linear"));
        if (is_word(g, value, "bicubic")) set_attribute(rw, n, step->attribute, fb_make_string(g, "cubic"));
        break;
    case FB_ONNX_OLD_DEFAULT:
        if (!value.id) set_attribute(rw, n, step->attribute, fb_make_string(g, "output_half_pixel"));
        break;
    default: break;
    }
    return true;
}

static void edit(fb_rewrite *rw, const fb_match *m) {
    fb_graph *g = fb_rewrite_graph(rw);
    int64_t opset = opset_of(m->params);
    raised call;
    fb_set_opset(rw, opset); /* new calls are of its versions */
    for (size_t i = 0; i < m->count; i++) {
        fb_node n = m->nodes[i];
        if (!call_at(g, n, opset, &call)) continue;
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)call.size, call.name);
        call.name = name;
        bool is_itself = true;
        for (int64_t at = call.from; at < call.to && is_itself;) {
            fb_onnx_step step = fb_onnx_next_version(name, call.size, at);
            is_itself = take_step(rw, n, &call, &step, opset);
            at = step.version;
        }
        if (is_itself) set_version(rw, n, name, call.size, call.to);
        fb_mark(rw, n);
    }
}

const fb_pass fb_raise_opset = {
    .name = "RaiseOpset",
    .version = 1,
    .summary = "Writes the operators of an ONNX model in their versions of a later opset.",
    .parameters =
        "{\"additionalProperties\":false,\"properties\":{\"to\":{\"default\":23,\"description\":\"The opset.\",\"maximum\":23,"
        "\"minimum\":12,\"type\":\"integer\"}},\"type\":\"object\"}",
    .exactness = FB_MOVES,
    .gain = FB_GAIN_UNMEASURED,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
