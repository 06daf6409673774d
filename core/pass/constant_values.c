#include "core/pass/constant_values.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/onnx_types.h"

#define MEMORY_MAX ((size_t)256 << 20) /* bytes of all that is evaluated at once */
#define STEPS_MAX 1e10

bool fb_constant_values_begin(fb_constant_values *v, fb_matcher *m, bool is_onnx, bool may_round) {
    size_t limit = (size_t)fb_node_limit(m->graph) + 1;
    *v = (fb_constant_values){.matcher = m, .graph = m->graph, .is_onnx = is_onnx, .may_round = may_round};
    bool ok = fb_constants_begin(&v->constants, m->graph, fb_matcher_alias(m), m->work);
    v->values = calloc(limit, sizeof *v->values);
    v->is_bounded = calloc(limit, sizeof *v->is_bounded);
    v->bounds = calloc(limit, sizeof *v->bounds);
    return ok && v->values && v->is_bounded && v->bounds;
}

static void drop_values(fb_constant_values *v) {
    uint32_t limit = v->is_evaluated ? fb_node_limit(v->graph) + 1 : 0;
    for (uint32_t i = 0; i < limit; i++) fb_object_drop(&v->values[i]);
    for (uint32_t i = 0; i < limit; i++) fb_bounded_drop(&v->bounds[i]);
    v->next = 0;
}

void fb_constant_values_end(fb_constant_values *v) {
    drop_values(v);
    free(v->values);
    free(v->is_bounded);
    free(v->bounds);
    fb_constants_end(&v->constants);
}

void fb_constant_values_refuse(fb_constant_values *v, fb_node node, const char *code, const char *detail) {
    const char *kept = fb_arena_text(v->matcher->arena, detail, strlen(detail));
    fb_constants_refuse(&v->constants, node, code, kept);
    v->matcher->failed |= !kept;
}

/* ---- which results are the same on every machine ------------------------------------------------------------------------- */

bool fb_value_is_bounded(const fb_constant_values *v, fb_node node) {
    const fb_graph *g = v->graph;
    bool reads_bounds = false;
    if (!v->is_onnx || v->may_round || !fb_bounds_go_on_at(g, node)) return false;
    for (uint32_t e = fb_input_first(g, node); e && !reads_bounds; e = fb_input_next(g, e))
        reads_bounds = v->is_bounded[fb_edge_input(g, e).id];
    return reads_bounds || fb_bounds_begin_at(g, node);
}

/* The facts FB_FACT_EXACT and FB_FACT_EXACT_INTEGERS of a call. */
static uint32_t exactness_of(const fb_constant_values *v, fb_node node) {
    if (!v->is_onnx) return fb_op_facts_of(fb_node_op(v->graph, node))->flags & (FB_FACT_EXACT | FB_FACT_EXACT_INTEGERS);
    fb_onnx_exact exact = fb_onnx_exact_of(v->graph, node);
    return exact == FB_ONNX_EXACT_ANY || exact == FB_ONNX_EXACT_POWERS ? FB_FACT_EXACT
           : exact == FB_ONNX_EXACT_INTEGERS                           ? FB_FACT_EXACT_INTEGERS
                                                                       : 0;
}

bool fb_value_may_be_exact(const fb_constant_values *v, fb_node node) {
    return exactness_of(v, node) != 0;
}

/* A power of floats as libraries give it: correctly rounded, but where the middle between two numbers is near. A cube is
 * computed in two steps. */
static bool is_sure_power(const fb_constant_values *v, fb_node node, const fb_object *value) {
    const fb_value_row *args = fb_value_at(v->graph, fb_node_at(v->graph, node)->args);
    const fb_array *of[2];
    for (uint32_t i = 0; i < 2; i++) {
        fb_node input = i < args->count ? fb_value_node(v->graph, args->items[i]) : (fb_node){0};
        if (!input.id || v->values[input.id].kind != FB_OBJECT_ARRAY) return false;
        of[i] = v->values[input.id].array;
        if (of[i]->dtype != FB_FLOAT32) return false;
    }
    int64_t count = value->kind == FB_OBJECT_ARRAY ? fb_array_count(value->array) : 0;
    bool fits = count > 0;
    for (int i = 0; i < 2; i++)
        fits &= fb_array_count(of[i]) == 1 || (fb_array_count(of[i]) == count && of[i]->rank == value->array->rank);
    for (int64_t i = 0; i < count && fits; i++) {
        double base = fb_array_number(of[0], fb_array_count(of[0]) == 1 ? 0 : i);
        double exponent = fb_array_number(of[1], fb_array_count(of[1]) == 1 ? 0 : i);
        float result = (float)fb_array_number(value->array, i), step = nextafterf(fabsf(result), INFINITY) - fabsf(result);
        long double far = fabsl(powl((long double)base, (long double)exponent) - (long double)result) / (long double)step;
        fits = base > 0 && exponent != 3 && isnormal(result) && far < 0.48L; /* ONNX Runtime: 0.002 from the middle */
    }
    return fits;
}

/* Does the value hold floating numbers: the tensor, or the first of several? */
static bool is_floating(const fb_object *value) {
    if (fb_object_is_sequence(value)) return value->items->count && is_floating(&value->items->objects[0]);
    return value->kind == FB_OBJECT_FLOAT || (value->kind == FB_OBJECT_ARRAY && !fb_dtype_is_integer(value->array->dtype));
}

static bool reads_number(const fb_constant_values *v, fb_value argument, double *number) {
    fb_node node = fb_value_node(v->graph, argument);
    if (!node.id) return fb_value_is_number(v->graph, argument, number);
    const fb_object *value = &v->values[node.id];
    if (value->kind != FB_OBJECT_ARRAY) return fb_object_number(value, number);
    if (fb_array_count(value->array) != 1 || fb_dtype_is_complex(value->array->dtype)) return false;
    *number = fb_array_number(value->array, 0);
    return true;
}

/* A power of two to whole numbers: 0.25 ** [1, 2, 3]. The result is one as well, and needs no rounding; where it is a normal
 * number, PyTorch gives just that. */
static bool is_power_of_two(const fb_constant_values *v, fb_node node, const fb_object *value) {
    const fb_graph *g = v->graph;
    double base;
    int of_base, of_result;
    if (!fb_op_is(g, node, FB_OP_POW) || value->kind != FB_OBJECT_ARRAY || !fb_dtype_is_floating(value->array->dtype))
        return false;
    fb_node exponent = fb_call_argument_node(g, node, "exponent");
    fb_value input = fb_call_argument(g, node, "input");
    bool is_power = input.id && exponent.id && v->values[exponent.id].kind == FB_OBJECT_ARRAY;
    if (!is_power || !reads_number(v, input, &base) || frexp(base, &of_base) != 0.5) return false;
    const fb_array *exponents = v->values[exponent.id].array;
    int64_t count = fb_array_count(value->array);
    if (fb_array_count(exponents) != count || fb_dtype_is_complex(exponents->dtype)) return false;
    for (int64_t i = 0; i < count; i++) {
        double e = fb_array_number(exponents, i), result = fb_array_number(value->array, i);
        bool is_power_of_base = frexp(result, &of_result) == 0.5 && e * (of_base - 1) == of_result - 1;
        if (!is_power_of_base || e != trunc(e) || result < (double)FLT_MIN) return false;
    }
    return true;
}

/* The caveats of FB_FACT_EXACT and FB_FACT_EXACT_INTEGERS. */
static bool is_exact(const fb_constant_values *v, fb_node node, const fb_object *value) {
    const fb_graph *g = v->graph;
    bool reads_floats = false, gives_floats = is_floating(value);
    if (is_power_of_two(v, node, value)) return true;
    for (uint32_t e = fb_input_first(g, node); e; e = fb_input_next(g, e))
        reads_floats |= is_floating(&v->values[fb_edge_input(g, e).id]);
    if (v->is_onnx && fb_onnx_exact_of(g, node) == FB_ONNX_EXACT_POWERS) return is_sure_power(v, node, value);
    if (v->is_onnx) return exactness_of(v, node) == FB_FACT_EXACT || (!reads_floats && !gives_floats);
    bool is_of_any = exactness_of(v, node) & FB_FACT_EXACT && !fb_call_argument(g, node, "alpha").id &&
                     !fb_call_argument(g, node, "rounding_mode").id;
    if (!is_of_any) return !reads_floats && !gives_floats && value->kind == FB_OBJECT_ARRAY;
    return !reads_floats || gives_floats || value->kind != FB_OBJECT_ARRAY || value->array->dtype == FB_BOOL;
}

/* ---- values that the evaluator is given ---------------------------------------------------------------------------------- */

/* Finds the bounds of a call behind others; and if they leave no choice its value, or else it stays None. Without memory for
 * them nothing is known of it. */
static fb_status find_bounds(fb_constant_values *v, fb_node node, fb_error *error) {
    const fb_graph *g = v->graph;
    const fb_value_row *args = fb_value_at(g, fb_node_at(g, node)->args);
    fb_bounded_input inputs[FB_BOUNDED_INPUTS] = {0};
    fb_array *made = NULL;
    if (args->count > FB_BOUNDED_INPUTS || v->bounds[node.id].least) return FB_OK;
    for (uint32_t i = 0; i < args->count; i++) {
        fb_node input = fb_value_node(g, args->items[i]);
        if (!input.id) return FB_OK;
        if (v->values[input.id].kind == FB_OBJECT_ARRAY) inputs[i].exact = v->values[input.id].array;
        else if (v->bounds[input.id].least) inputs[i].bounded = &v->bounds[input.id];
        else return FB_OK;
    }
    fb_status status = fb_bounded_of(g, node, inputs, args->count, &v->memory, &v->bounds[node.id], error);
    if (!status) status = fb_bounded_integers(&v->bounds[node.id], &made, error);
    if (made) v->values[node.id] = (fb_object){.kind = FB_OBJECT_ARRAY, .array = made};
    if (status == FB_TOO_LARGE) fb_bounded_drop(&v->bounds[node.id]);
    return status == FB_TOO_LARGE ? FB_OK : status;
}

/* Of the nodes from the last one that was looked at up to this one. */
static fb_status find_bounds_until(fb_constant_values *v, fb_node node, fb_error *error) {
    const fb_scopes *scopes = &v->constants.scopes;
    size_t end = node.id ? scopes->place[node.id] + 1 : scopes->count;
    fb_status status = FB_OK;
    for (; v->next < end && !status; v->next++) {
        fb_error found = {0};
        fb_node next = scopes->nodes[v->next];
        if (v->is_bounded[next.id] && v->constants.lattice[next.id] == FB_CONSTANT) status = find_bounds(v, next, &found);
        if (status) *error = found;
    }
    return status;
}

static fb_status give_bounded(fb_constant_values *v, fb_node node, fb_object *out, fb_error *error) {
    fb_status status = find_bounds_until(v, node, error);
    if (status) return status;
    if (v->values[node.id].kind != FB_OBJECT_ARRAY) return fb_fail(error, FB_INVALID, "inexact", NULL, FB_INEXACT);
    *out = v->values[node.id];
    fb_object_keep(out);
    return FB_OK;
}

static fb_status give_captured(fb_constant_values *v, fb_node node, fb_object *out, fb_error *error) {
    fb_node outer = v->constants.scopes.outer[node.id];
    if (v->is_bounded[outer.id]) return give_bounded(v, outer, out, error);
    *out = v->values[outer.id];
    if (out->kind != FB_OBJECT_ARRAY) return fb_fail(error, FB_INVALID, "inexact", NULL, "what it captures is not known");
    fb_object_keep(out);
    return FB_OK;
}

/* Gives a captured value; or, where only a tensor's type is read, one number that is seen everywhere. */
static fb_status give_value(void *context, fb_node node, fb_object *out, fb_error *error) {
    fb_constant_values *v = context;
    if (v->is_bounded[node.id]) return give_bounded(v, node, out, error);
    if (v->constants.lattice[node.id]) return give_captured(v, node, out, error);
    const fb_node_row *row = fb_node_at(v->graph, node);
    int64_t sizes[FB_MAX_RANK];
    int rank = fb_shape_rank(v->graph, row->shape);
    fb_array *number;
    for (int i = 0; i < rank; i++) sizes[i] = fb_shape_size(v->graph, row->shape, i);
    fb_status status = fb_array_new(&v->memory, (fb_dtype)row->dtype, 0, NULL, &number, error);
    if (status) return status;
    fb_array_fill(number, 0, 0);
    out->kind = FB_OBJECT_ARRAY;
    status = fb_array_broadcast(number, rank, sizes, &out->array, error);
    fb_array_drop(number);
    return status;
}

/* ---- evaluating ---------------------------------------------------------------------------------------------------------- */

static bool is_wanted(void *context, fb_node node) {
    const fb_constant_values *v = context;
    return v->constants.lattice[node.id] != FB_VARIES && !v->is_bounded[node.id];
}

bool fb_value_is_as_recorded(const fb_constant_values *v, fb_node node, const fb_array *array) {
    const fb_graph *g = v->graph;
    const fb_node_row *row = fb_node_at(g, node);
    bool agrees = !row->dtype || row->dtype == array->dtype;
    if (row->shape.id && fb_shape_rank(g, row->shape) != array->rank) return false;
    for (int i = 0; row->shape.id && i < array->rank; i++) {
        int64_t size = fb_shape_size(g, row->shape, i);
        agrees &= size == array->sizes[i] || (v->is_onnx && size < 0);
    }
    return agrees;
}

static fb_status keep_value(void *context, fb_node node, const fb_object *value, fb_error *error) {
    fb_constant_values *v = context;
    bool is_as_asked = v->may_round ? value->kind != FB_OBJECT_ARRAY || fb_value_is_as_recorded(v, node, value->array)
                                    : is_exact(v, node, value);
    if (v->constants.lattice[node.id] == FB_CONSTANT && !is_as_asked)
        return fb_fail(error, FB_INVALID, "inexact", NULL, FB_INEXACT);
    v->values[node.id] = *value;
    fb_object_keep(value);
    return FB_OK;
}

static bool forgive(void *context, fb_node node, const fb_error *error) {
    fb_constant_values *v = context;
    bool is_inexact = strcmp(error->code, "inexact") == 0;
    if (fb_node_at(v->graph, node)->opcode == FB_PLACEHOLDER)
        v->constants.lattice[node.id] = FB_VARIES; /* as what it captures */
    else fb_constant_values_refuse(v, node, is_inexact ? "inexact" : "unsupported-operator", error->message);
    return true;
}

void fb_find_constant_values(fb_constant_values *v) {
    fb_eval_options options = {.memory_limit = MEMORY_MAX, .step_limit = STEPS_MAX, .watch = v->matcher->work->watch};
    const fb_scopes *scopes = &v->constants.scopes;
    fb_eval_hooks hooks = {.context = v,
                           .programs = scopes->programs,
                           .program_count = scopes->program_count,
                           .current = &v->current,
                           .wanted = is_wanted,
                           .given = give_value,
                           .computed = keep_value,
                           .failed = forgive};
    bool is_done = false;
    v->is_evaluated = true;
    while (!is_done && !v->matcher->failed && fb_matcher_goes_on(v->matcher)) {
        fb_error error = {0};
        fb_object output;
        fb_status status = fb_evaluate_graph(v->graph, &options, &hooks, &v->memory, &output, &error);
        if (!status) status = find_bounds_until(v, (fb_node){0}, &error);
        fb_node node = status == FB_TOO_LARGE ? v->current : (fb_node){0};
        is_done = !node.id || v->constants.lattice[node.id] == FB_VARIES;
        v->matcher->failed |= status && is_done;
        if (status) drop_values(v);
        if (!is_done) fb_constant_values_refuse(v, node, "too-large", error.message);
        fb_constants_settle(&v->constants);
    }
}
