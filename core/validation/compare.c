/* Two graphs on the same inputs: how far their outputs are apart, and from what float64 gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/validation/validation.h"

#define STEPS_OF_AN_ELEMENT 40 /* to find how far it is from another, three times */

/* One evaluation of one of the graphs. */
typedef struct trial {
    const fb_graph *graph;
    const fb_comparison_inputs *inputs;
    const fb_eval_options *options;
    fb_array_memory memory;
    fb_object output;
    fb_array **arrays;
    size_t count;
    fb_dtype narrowest;         /* floating dtype that a node computed in */
    struct node_search *search; /* for the first node that differs, or NULL */
} trial;

/* The first graph's part of a search: the value of each node, by name. */
typedef struct node_search {
    const fb_graph *a;
    fb_array **values;    /* by node of a */
    fb_difference *found; /* by node of a */
    unsigned char *differs;
    const fb_tolerance *tolerance;
    fb_dtype narrowest; /* of a, as in trial */
} node_search;

/* ---- one evaluation ----------------------------------------------------------------------------------------------------- */

static fb_status give(void *context, fb_node node, fb_object *out, fb_error *error) {
    trial *attempt = context;
    fb_eval_inputs given = {.graph = attempt->graph,
                            .memory = &attempt->memory,
                            .items = attempt->inputs->items,
                            .count = attempt->inputs->count,
                            .is_drawn = true,
                            .seed = attempt->options->seed,
                            .deviation = attempt->options->deviation};
    return fb_give_input(&given, node, out, error);
}

static fb_status look(void *context, fb_node node, const fb_object *object, fb_error *error);

static bool is_looked_at(void *context, fb_node node) {
    (void)node;
    return ((trial *)context)->search != NULL;
}

/* `last` is the one that ran before it, or NULL: what that holds counts against the limit. */
static fb_status run(trial *attempt, const trial *last, fb_precision precision, fb_error *error) {
    fb_eval_options options = *attempt->options;
    fb_eval_hooks hooks = {.context = attempt, .given = give, .computed = look, .looks = is_looked_at};
    options.precision = precision;
    options.memory_held = last ? last->memory.used : 0;
    fb_status status = fb_evaluate_graph(attempt->graph, &options, &hooks, &attempt->memory, &attempt->output, error);
    return status ? status : fb_flatten_output(&attempt->output, &attempt->arrays, &attempt->count, error);
}

static fb_status stopped(trial attempts[4], fb_error *error) {
    fb_status status = FB_OK;
    for (int i = 0; i < 4 && !status; i++) status = fb_work_status(&attempts[i].memory.work, error);
    return status;
}

/* Views may make of few elements many; comparing takes as long as if there were as many. */
static fb_status check_steps(const trial *attempt, fb_error *error) {
    double steps = 0, given = attempt->options->step_limit, most = given > 0 ? given : FB_EVAL_STEPS;
    for (size_t i = 0; i < attempt->count; i++) steps += STEPS_OF_AN_ELEMENT * (double)fb_array_count(attempt->arrays[i]);
    if (steps <= most) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL,
                   "comparing the outputs takes about %.4g steps; one evaluation may take %.4g", steps, most);
}

static void end(trial *attempt) {
    for (size_t i = 0; i < attempt->count; i++) fb_array_drop(attempt->arrays[i]);
    free(attempt->arrays);
    fb_object_drop(&attempt->output);
}

/* ---- the first node that differs ---------------------------------------------------------------------------------------- */

static fb_status look(void *context, fb_node node, const fb_object *object, fb_error *error) {
    trial *attempt = context;
    node_search *search = attempt->search;
    bool is_weight = object->kind == FB_OBJECT_WEIGHT;
    if (object->kind != FB_OBJECT_ARRAY && !is_weight) return FB_OK;
    if (!search) {
        fb_dtype dtype = is_weight ? object->weight->dtype : object->array->dtype;
        attempt->narrowest = fb_narrower_dtype(attempt->narrowest, dtype);
        return FB_OK;
    }
    if (attempt->graph == search->a) {
        /* A copy: what is written in place later is not what the node gave. */
        return fb_array_cast(object->array, object->array->dtype, &search->values[node.id], error);
    }
    fb_node twin = fb_node_find(search->a, FB_MAIN_PROGRAM, fb_node_name(attempt->graph, node));
    if (!twin.id || !search->values[twin.id]) return FB_OK;
    fb_dtype dtype = fb_narrower_dtype(object->array->dtype, search->narrowest);
    fb_tolerance tolerance = search->tolerance ? *search->tolerance : fb_tolerance_of(dtype, false);
    double largest = fb_largest_magnitude(object->array);
    bool same = fb_compare_arrays(search->values[twin.id], object->array, &search->found[twin.id]);
    search->differs[twin.id] = !same || !fb_difference_passes(&search->found[twin.id], largest, &tolerance);
    fb_status status = fb_work_status(fb_array_work(search->values[twin.id]), error);
    return status ? status : fb_work_status(fb_array_work(object->array), error);
}

static fb_status find_first(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                            const fb_eval_options *options, const fb_tolerance *tolerance, fb_dtype narrowest,
                            fb_comparison *out, fb_error *error) {
    uint32_t limit = fb_node_limit(a);
    node_search search = {
        a, calloc(limit, sizeof(fb_array *)), calloc(limit, sizeof(fb_difference)), calloc(limit, 1), tolerance, narrowest};
    trial of_a = {a, inputs, options, .search = &search}, of_b = {b, inputs, options, .search = &search};
    fb_status status = search.values && search.found && search.differs ? FB_OK : fb_fail_memory(error);
    if (!status) status = run(&of_a, NULL, FB_PRECISION_RECORDED, error);
    if (!status) status = run(&of_b, &of_a, FB_PRECISION_RECORDED, error);
    for (fb_node node = fb_first_node(a, FB_MAIN_PROGRAM); node.id && !status; node = fb_next_node(a, node)) {
        if (!search.differs[node.id]) continue;
        out->first_node = fb_arena_text(&out->arena, fb_node_name(a, node), strlen(fb_node_name(a, node)));
        out->first_difference = search.found[node.id];
        if (!out->first_node) status = fb_fail_memory(error);
        break;
    }
    for (uint32_t i = 0; i < limit && search.values; i++) fb_array_drop(search.values[i]);
    end(&of_a);
    end(&of_b);
    free(search.values);
    free(search.found);
    free(search.differs);
    return status;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------- */

/* Everything but the tensors: how outputs are nested, dicts' keys, numbers, None. */
static bool same_structure(const fb_object *a, const fb_object *b) {
    double x, y;
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case FB_OBJECT_BOOL:
    case FB_OBJECT_INT:
    case FB_OBJECT_FLOAT: return fb_object_number(a, &x) && fb_object_number(b, &y) && (x == y || (x != x && y != y));
    case FB_OBJECT_STRING:
    case FB_OBJECT_DEVICE: return strcmp(a->text, b->text) == 0;
    case FB_OBJECT_DTYPE: return a->dtype == b->dtype;
    case FB_OBJECT_SLICE:
    case FB_OBJECT_LIST:
    case FB_OBJECT_TUPLE:
    case FB_OBJECT_DICT:
        if (a->items->count != b->items->count) return false;
        for (size_t i = 0; i < a->items->count; i++)
            if (!same_structure(&a->items->objects[i], &b->items->objects[i])) return false;
        return true;
    default: return true; /* tensors are compared apart */
    }
}

static fb_status compare_outputs(trial attempts[4], const fb_tolerance *given, fb_comparison *out, fb_error *error) {
    size_t count = attempts[0].count;
    if (attempts[0].count == attempts[1].count && !same_structure(&attempts[0].output, &attempts[1].output))
        return fb_fail(error, FB_INVALID, "output-mismatch", NULL,
                       "the outputs differ in what is not a tensor: how they are nested, a key, a number");
    fb_status status = check_steps(&attempts[0], error);
    if (status) return status;
    for (int i = 1; i < 4; i++) {
        if (attempts[i].count != count)
            return fb_fail(error, FB_INVALID, "output-mismatch", NULL, "one graph gives %zu tensors, the other %zu", count,
                           attempts[i].count);
    }
    out->outputs = fb_arena_alloc(&out->arena, (count ? count : 1) * sizeof *out->outputs);
    if (!out->outputs) return fb_fail_memory(error);
    out->count = count;
    out->passes = true;
    for (size_t i = 0; i < count; i++) {
        fb_output_comparison *o = &out->outputs[i];
        const fb_array *a = attempts[0].arrays[i], *b = attempts[1].arrays[i];
        fb_tolerance tolerance = given ? *given : fb_tolerance_of(fb_narrower_dtype(b->dtype, attempts[0].narrowest), false);
        char name[40];
        int length = snprintf(name, sizeof name, "output.%zu", i);
        *o = (fb_output_comparison){.name = fb_arena_text(&out->arena, name, (size_t)length), .dtype = b->dtype};
        if (!o->name) return fb_fail_memory(error);
        bool same = fb_compare_arrays(a, b, &o->between) && fb_compare_arrays(a, attempts[2].arrays[i], &o->a_exact) &&
                    fb_compare_arrays(b, attempts[3].arrays[i], &o->b_exact);
        if ((status = stopped(attempts, error))) return status;
        if (!same)
            return fb_fail(error, FB_INVALID, "output-mismatch", NULL,
                           "%s has another shape in the one graph than in the other", o->name);
        o->is_hidden = fb_overflow_hides(b, a, attempts[2].arrays[i]);
        o->passes = a->dtype == b->dtype && fb_difference_passes(&o->between, fb_largest_magnitude(b), &tolerance);
        out->passes &= o->passes;
    }
    return stopped(attempts, error);
}

fb_status fb_compare_graphs(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                            const fb_eval_options *options, const fb_tolerance *tolerance, fb_comparison *out,
                            fb_error *error) {
    trial attempts[4];
    for (int i = 0; i < 4; i++)
        attempts[i] = (trial){.graph = i % 2 ? b : a, .inputs = inputs, .options = options, .narrowest = FB_FLOAT64};
    *out = (fb_comparison){.first_node = ""};
    fb_status status = FB_OK;
    const fb_graph *failed = NULL;
    for (int i = 0; i < 4 && !status; i++) {
        status = run(&attempts[i], i ? &attempts[i - 1] : NULL, i < 2 ? FB_PRECISION_RECORDED : FB_PRECISION_DOUBLE, error);
        if (status) failed = attempts[i].graph;
    }
    if (!status) status = compare_outputs(attempts, tolerance, out, error);
    for (int i = 0; i < 4; i++) end(&attempts[i]);
    if (!status && !out->passes) status = find_first(a, b, inputs, options, tolerance, attempts[0].narrowest, out, error);
    if (status) fb_comparison_free(out);
    out->failed = failed;
    return status;
}

void fb_comparison_free(fb_comparison *comparison) {
    fb_arena_free(&comparison->arena);
    *comparison = (fb_comparison){.first_node = ""};
}
