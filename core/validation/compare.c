/* Two graphs on the same inputs: how far their outputs are apart, and from what float64 gives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/validation/equal_values.h"
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
    fb_dtype narrowest;          /* floating dtype that a node computed in */
    struct node_search *search;  /* for the first node that differs, or NULL */
    const unsigned char *wanted; /* by node; NULL = all are */
    const bool *skipped;         /* by leaf of the output; NULL = none is */
    fb_array **memory_of;        /* by node: what may be written, kept to the end; NULL = nothing is */
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

static void keep_memory(trial *attempt, fb_node node, const fb_object *object) {
    if (attempt->memory_of && object->kind == FB_OBJECT_ARRAY) attempt->memory_of[node.id] = fb_array_keep(object->array);
}

static fb_status give(void *context, fb_node node, fb_object *out, fb_error *error) {
    trial *attempt = context;
    const fb_node_row *row = fb_node_at(attempt->graph, node);
    if (row->opcode != FB_PLACEHOLDER || (attempt->wanted && !attempt->wanted[node.id])) return FB_OK; /* None: it is skipped */
    fb_eval_inputs given = {.graph = attempt->graph,
                            .memory = &attempt->memory,
                            .items = attempt->inputs->items,
                            .count = attempt->inputs->count,
                            .is_drawn = true,
                            .seed = attempt->options->seed,
                            .deviation = attempt->options->deviation};
    fb_status status = fb_give_input(&given, node, out, error);
    if (!status) keep_memory(attempt, node, out);
    return status;
}

static fb_status look(void *context, fb_node node, const fb_object *object, fb_error *error);

static bool is_wanted(void *context, fb_node node) {
    const trial *attempt = context;
    return !attempt->wanted || attempt->wanted[node.id];
}

static bool is_looked_at(void *context, fb_node node) {
    (void)node;
    return ((trial *)context)->search || ((trial *)context)->memory_of;
}

/* Calls `visit` for each leaf of the output with what it has become, from leaf number `leaf` on; gives the number after them.
 */
static size_t visit_leaves(const fb_graph *graph, fb_value value, fb_object *object, size_t leaf,
                           void (*visit)(void *, size_t, fb_object *), void *context) {
    const fb_value_row *row = fb_value_at(graph, value);
    bool is_dict = row->kind == FB_DICT;
    if (row->kind == FB_NODE) {
        visit(context, leaf, object);
        return leaf + 1;
    }
    bool has_items = is_dict || row->kind == FB_LIST || row->kind == FB_TUPLE || row->kind == FB_SIZE ||
                     row->kind == FB_NAMED_TUPLE || row->kind == FB_SLICE;
    for (uint32_t i = 0; has_items && i < row->count; i++)
        leaf = visit_leaves(graph, row->items[i], &object->items->objects[i], leaf, visit, context);
    return leaf;
}

static void blank(void *context, size_t leaf, fb_object *object) {
    const bool *skipped = context;
    if (skipped[leaf]) fb_object_drop(object);
}

static void visit_output(const trial *attempt, fb_object *output, void (*visit)(void *, size_t, fb_object *), void *context) {
    fb_node last = fb_last_node(attempt->graph, FB_MAIN_PROGRAM);
    visit_leaves(attempt->graph, fb_node_arg(attempt->graph, last, 0), output, 0, visit, context);
}

/* `last` is the one that ran before it, or NULL: what that holds counts against the limit. */
static fb_status run(trial *attempt, const trial *last, fb_precision precision, fb_error *error) {
    fb_eval_options options = *attempt->options;
    fb_eval_hooks hooks = {.context = attempt, .wanted = is_wanted, .given = give, .computed = look, .looks = is_looked_at};
    options.precision = precision;
    options.memory_held = last ? last->memory.used : 0;
    fb_status status = fb_evaluate_graph(attempt->graph, &options, &hooks, &attempt->memory, &attempt->output, error);
    if (!status && attempt->skipped) visit_output(attempt, &attempt->output, blank, (void *)(uintptr_t)attempt->skipped);
    return status ? status : fb_flatten_output(&attempt->output, &attempt->arrays, &attempt->count, error);
}

static void inputs_of(const fb_comparison_inputs *inputs, fb_comparison_inputs given[2]) {
    const fb_comparison_scope *scope = inputs->scope;
    given[0] = given[1] = *inputs;
    if (scope) given[1] = (fb_comparison_inputs){.items = scope->items_of_b, .count = scope->count_of_b, .scope = scope};
}

static trial trial_of(const fb_graph *graph, const fb_comparison_inputs *inputs, int side, const fb_eval_options *options) {
    const fb_comparison_scope *scope = inputs->scope;
    return (trial){.graph = graph,
                   .inputs = inputs,
                   .options = options,
                   .narrowest = FB_FLOAT64,
                   .wanted = scope ? scope->wanted[side] : NULL,
                   .skipped = scope ? scope->skipped : NULL};
}

static fb_status stopped(trial *const attempts[4], fb_error *error) {
    fb_status status = FB_OK;
    for (int i = 0; i < 4 && !status; i++) status = fb_work_status(&attempts[i]->memory.work, error);
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
    for (uint32_t i = 0; attempt->memory_of && i < fb_node_limit(attempt->graph); i++) fb_array_drop(attempt->memory_of[i]);
    free(attempt->memory_of);
    for (size_t i = 0; i < attempt->count; i++) fb_array_drop(attempt->arrays[i]);
    free(attempt->arrays);
    fb_object_drop(&attempt->output);
}

/* ---- the first node that differs ---------------------------------------------------------------------------------------- */

static fb_status look(void *context, fb_node node, const fb_object *object, fb_error *error) {
    trial *attempt = context;
    node_search *search = attempt->search;
    bool is_weight = object->kind == FB_OBJECT_WEIGHT;
    if (fb_node_at(attempt->graph, node)->opcode == FB_GET_ATTR) keep_memory(attempt, node, object);
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

fb_status fb_compare_nodes(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                           const fb_eval_options *options, fb_precision precision, const fb_tolerance *tolerance,
                           fb_dtype narrowest, fb_comparison *out, fb_error *error) {
    fb_comparison_inputs given[2];
    inputs_of(inputs, given);
    uint32_t limit = fb_node_limit(a);
    node_search search = {
        a, calloc(limit, sizeof(fb_array *)), calloc(limit, sizeof(fb_difference)), calloc(limit, 1), tolerance, narrowest};
    trial of_a = trial_of(a, &given[0], 0, options), of_b = trial_of(b, &given[1], 1, options);
    of_a.search = of_b.search = &search;
    fb_status status = search.values && search.found && search.differs ? FB_OK : fb_fail_memory(error);
    if (!status) status = run(&of_a, NULL, precision, error);
    if (!status) status = run(&of_b, &of_a, precision, error);
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
    case FB_OBJECT_INT: return a->integer == b->integer;
    case FB_OBJECT_BOOL:
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

typedef struct leaf_walk {
    fb_comparison *out;
    size_t next;
} leaf_walk;

/* The arrays of an object are outputs of one leaf; fb_flatten_output has them in the same order. */
static void take_leaf(void *context, size_t leaf, fb_object *object) {
    leaf_walk *walk = context;
    if (object->kind == FB_OBJECT_ARRAY && walk->next < walk->out->count) walk->out->outputs[walk->next++].leaf = leaf;
    bool is_dict = object->kind == FB_OBJECT_DICT;
    if (!is_dict && !fb_object_is_sequence(object)) return;
    for (size_t i = is_dict; i < object->items->count; i += is_dict ? 2 : 1)
        take_leaf(context, leaf, &object->items->objects[i]);
}

static fb_status compare_output(trial *const attempts[4], size_t i, const fb_tolerance *given, fb_output_comparison *o,
                                fb_error *error) {
    const fb_array *a = attempts[0]->arrays[i], *b = attempts[1]->arrays[i];
    const fb_array *a_double = attempts[2]->arrays[i], *b_double = attempts[3]->arrays[i];
    fb_tolerance tolerance = given ? *given : fb_tolerance_of(fb_narrower_dtype(b->dtype, attempts[0]->narrowest), false);
    o->dtype = b->dtype;
    if (a->dtype != b->dtype) o->mismatch = "dtype";
    if (!fb_compare_arrays(a, b, &o->between)) o->mismatch = "shape";
    bool is_a_known = fb_compare_arrays(a, a_double, &o->a_exact), is_b_known = fb_compare_arrays(b, b_double, &o->b_exact);
    bool is_known = is_a_known && is_b_known;
    bool is_whole = is_known && fb_compare_arrays(a_double, b_double, &o->exact);
    fb_status status = stopped(attempts, error);
    if (status || !is_whole || (o->mismatch && !strcmp(o->mismatch, "shape"))) {
        o->mismatch = "shape";
        return status;
    }
    o->is_hidden = fb_overflow_hides(b, a, a_double);
    o->largest = fb_largest_magnitude(b);
    o->largest_a = fb_largest_magnitude(a);
    o->largest_exact = fb_largest_magnitude(b_double);
    o->passes = a->dtype == b->dtype && fb_difference_passes(&o->between, o->largest, &tolerance);
    for (int k = 0; k < 2; k++) o->narrowest[k] = fb_narrower_dtype(b->dtype, attempts[k]->narrowest);
    if (!fb_array_count(b) || fb_dtype_is_complex(b->dtype)) return FB_OK;
    o->a_value = fb_array_number(a, o->between.worst);
    o->b_value = fb_array_number(b, o->between.worst);
    o->a_value_exact = fb_array_number(a_double, o->exact.worst);
    o->b_value_exact = fb_array_number(b_double, o->exact.worst);
    return FB_OK;
}

typedef struct leaf_object {
    size_t leaf;
    fb_object *object;
} leaf_object;

static void list_leaf(void *context, size_t leaf, fb_object *object) {
    fb_buffer_append(context, &(leaf_object){leaf, object}, sizeof(leaf_object));
}

static fb_status flatten_again(trial *attempt, fb_error *error) {
    for (size_t i = 0; i < attempt->count; i++) fb_array_drop(attempt->arrays[i]);
    free(attempt->arrays);
    attempt->arrays = NULL;
    attempt->count = 0;
    return fb_flatten_output(&attempt->output, &attempt->arrays, &attempt->count, error);
}

/* Leaf by leaf: one that differs in what is not a tensor is noted, and has no outputs to compare. */
static fb_status match_leaves(trial *const attempts[4], fb_comparison *out, fb_error *error) {
    fb_buffer leaves[4] = {0};
    fb_status status = FB_OK;
    bool is_any = false, failed = false;
    for (int i = 0; i < 4; i++) {
        visit_output(attempts[i], &attempts[i]->output, list_leaf, &leaves[i]);
        failed |= leaves[i].failed;
    }
    size_t count = leaves[0].size / sizeof(leaf_object);
    const leaf_object *of[4];
    for (int i = 0; i < 4; i++) {
        of[i] = (const leaf_object *)(const void *)leaves[i].data;
        if (leaves[i].size / sizeof(leaf_object) < count) count = leaves[i].size / sizeof(leaf_object);
    }
    out->leaves = count;
    out->mismatched = fb_arena_alloc(&out->arena, count + 1);
    if (failed || !out->mismatched) status = fb_fail_memory(error);
    for (size_t i = 0; i < count && !status; i++) {
        bool same = same_structure(of[0][i].object, of[1][i].object);
        for (int k = 2; k < 4; k++) same &= of[0][i].object->kind == of[k][i].object->kind;
        out->mismatched[i] = !same;
        is_any |= !same;
        for (int k = 0; k < 4 && !same; k++) fb_object_drop(of[k][i].object);
    }
    for (int i = 0; i < 4; i++) fb_buffer_free(&leaves[i]);
    for (int i = 0; i < 4 && !status && is_any; i++) status = flatten_again(attempts[i], error);
    return status;
}

/* Compares the memory of values that both have written, or left as it was. */
static void compare_memory(trial *const attempts[4], const fb_tolerance *given, fb_comparison *out) {
    const fb_comparison_scope *scope = attempts[0]->inputs->scope;
    for (uint32_t i = 0; attempts[0]->memory_of && attempts[1]->memory_of && i < fb_node_limit(attempts[0]->graph); i++) {
        if (!scope->partner[i].id) continue;
        const fb_array *a = attempts[0]->memory_of[i], *b = attempts[1]->memory_of[scope->partner[i].id];
        fb_difference between;
        if (!a || !b) {
            out->writes_unknown = true;
            continue;
        }
        fb_tolerance tolerance = given ? *given : fb_tolerance_of(fb_narrower_dtype(b->dtype, attempts[0]->narrowest), false);
        out->writes_differ |=
            !fb_compare_arrays(a, b, &between) || !fb_difference_passes(&between, fb_largest_magnitude(b), &tolerance);
    }
}

static fb_status compare_outputs(trial *const attempts[4], const fb_tolerance *given, fb_comparison *out, fb_error *error) {
    bool is_judged = attempts[0]->inputs->scope;
    fb_status status = is_judged ? match_leaves(attempts, out, error) : FB_OK;
    size_t count = attempts[0]->count;
    if (!is_judged && count == attempts[1]->count && !same_structure(&attempts[0]->output, &attempts[1]->output))
        return fb_fail(error, FB_INVALID, "output-mismatch", NULL,
                       "the outputs differ in what is not a tensor: how they are nested, a key, a number");
    if (!status) status = check_steps(attempts[0], error);
    if (status) return status;
    for (int i = 1; i < 4; i++) {
        if (attempts[i]->count != count)
            return fb_fail(error, FB_INVALID, "output-mismatch", NULL, "one graph gives %zu tensors, the other %zu", count,
                           attempts[i]->count);
    }
    out->outputs = fb_arena_alloc(&out->arena, (count ? count : 1) * sizeof *out->outputs);
    if (!out->outputs) return fb_fail_memory(error);
    out->count = count;
    out->passes = true;
    for (size_t i = 0; i < count && !status; i++) {
        fb_output_comparison *o = &out->outputs[i];
        char name[40];
        int length = snprintf(name, sizeof name, "output.%zu", i);
        *o = (fb_output_comparison){.name = fb_arena_text(&out->arena, name, (size_t)length)};
        if (!o->name) return fb_fail_memory(error);
        status = compare_output(attempts, i, given, o, error);
        bool is_shape = o->mismatch && !strcmp(o->mismatch, "shape");
        if (!status && is_shape && !is_judged)
            return fb_fail(error, FB_INVALID, "output-mismatch", NULL,
                           "%s has another shape in the one graph than in the other", o->name);
        out->passes &= o->passes;
    }
    leaf_walk walk = {.out = out};
    if (!status) visit_output(attempts[0], &attempts[0]->output, take_leaf, &walk);
    return status ? status : stopped(attempts, error);
}

/* ---- both graphs --------------------------------------------------------------------------------------------------------- */

/* Ends it unless it is NULL. */
static void drop(trial *attempt) {
    if (attempt) end(attempt);
    free(attempt);
}

void fb_comparison_chain_free(fb_comparison_chain *chain) {
    drop(chain->recorded);
    drop(chain->exact);
    *chain = (fb_comparison_chain){0};
}

/* A text is one of the graph, which does not last as long as what is kept. */
static bool has_text(const fb_object *object) {
    bool has_items = object->kind == FB_OBJECT_DICT || object->kind == FB_OBJECT_SLICE || fb_object_is_sequence(object);
    bool has = object->kind == FB_OBJECT_STRING || object->kind == FB_OBJECT_DEVICE;
    for (size_t i = 0; has_items && i < object->items->count && !has; i++) has = has_text(&object->items->objects[i]);
    return has;
}

/* Are the outputs equal by content, and all that is written? */
static fb_status prove(const fb_graph *a, const fb_graph *b, const fb_eval_options *options, bool *are_equal, fb_error *error) {
    fb_node *input_of_b = calloc(fb_node_limit(b), sizeof *input_of_b);
    fb_node of_a = fb_last_node(a, FB_MAIN_PROGRAM), of_b = fb_last_node(b, FB_MAIN_PROGRAM);
    fb_work work = {.watch = options->watch};
    fb_equality equality = {.a = a,
                            .b = b,
                            .input_of_b = input_of_b,
                            .blobs = options->blobs,
                            .random_weights = options->random_weights,
                            .work = &work};
    fb_status status = input_of_b ? FB_OK : fb_fail_memory(error);
    for (fb_node n = fb_first_node(b, FB_MAIN_PROGRAM); n.id && !status; n = fb_next_node(b, n))
        if (fb_node_at(b, n)->opcode == FB_PLACEHOLDER) input_of_b[n.id] = fb_node_find(a, FB_MAIN_PROGRAM, fb_node_name(b, n));
    for (int by_movement = 0; by_movement < 2 && !*are_equal && !status; by_movement++) {
        fb_equal_values equal;
        status = fb_equal_values_find(&equality, by_movement, &equal, error);
        if (status) break;
        *are_equal = equal.end_of_a == equal.end_of_b && equal.of_a[of_a.id] == equal.of_b[of_b.id];
        fb_equal_values_free(&equal);
    }
    free(input_of_b);
    return status;
}

/* The evaluations, of which a chain has some, and gives those up. */
typedef struct evaluations {
    trial *attempts[4];  /* a and b, and both in float64 */
    bool is_borrowed[4]; /* it is another one of them */
    fb_comparison_inputs given[2];
    const fb_graph *failed;
} evaluations;

static fb_status evaluate(evaluations *e, const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                          const fb_eval_options *options, fb_error *error) {
    const fb_comparison_scope *scope = inputs->scope;
    fb_comparison_chain *chain = inputs->chain;
    bool are_equal = false;
    fb_status status = FB_OK;
    inputs_of(inputs, e->given);
    if (chain) {
        e->attempts[0] = chain->recorded;
        e->attempts[2] = chain->exact;
        *chain = (fb_comparison_chain){0};
        status = prove(a, b, options, &are_equal, error);
    }
    for (int i = 0; i < 4 && !status; i++) {
        trial now = trial_of(i % 2 ? b : a, &e->given[i % 2], i % 2, options), *last = i ? e->attempts[i - 1] : NULL;
        bool is_known = e->attempts[i] != NULL;
        e->is_borrowed[i] = (i == 1 && are_equal) || (i == 3 && chain);
        if (e->is_borrowed[i]) e->attempts[i] = last;
        else if (!is_known) e->attempts[i] = malloc(sizeof now);
        if (!e->attempts[i]) return fb_fail_memory(error);
        if (e->is_borrowed[i]) continue;
        if (is_known) { /* the graph was another copy */
            e->attempts[i]->graph = now.graph;
            e->attempts[i]->inputs = now.inputs;
            e->attempts[i]->options = now.options;
            continue;
        }
        *e->attempts[i] = now;
        if (i < 2 && scope && scope->partner) e->attempts[i]->memory_of = calloc(fb_node_limit(now.graph), sizeof(fb_array *));
        status = run(e->attempts[i], last, i < 2 ? FB_PRECISION_RECORDED : FB_PRECISION_DOUBLE, error);
        if (status) e->failed = now.graph;
    }
    return status;
}

/* Keeps for the next comparison what it has in common with this one. */
static void end_evaluations(evaluations *e, fb_comparison_chain *chain) {
    trial **of = e->attempts;
    if (chain && !has_text(&of[1]->output)) {
        *chain = (fb_comparison_chain){.recorded = of[1], .exact = of[2]};
        of[2] = NULL;
        if (e->is_borrowed[1]) of[0] = NULL;
        of[1] = NULL;
    }
    for (int i = 0; i < 4; i++)
        if (!e->is_borrowed[i]) drop(of[i]);
}

fb_status fb_compare_graphs(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                            const fb_eval_options *options, const fb_tolerance *tolerance, fb_comparison *out,
                            fb_error *error) {
    evaluations all = {0};
    const fb_comparison_scope *scope = inputs->scope;
    *out = (fb_comparison){.first_node = ""};
    fb_status status = evaluate(&all, a, b, inputs, options, error);
    if (!status) compare_memory(all.attempts, tolerance, out);
    if (!status) status = compare_outputs(all.attempts, tolerance, out, error);
    fb_dtype narrowest = status ? FB_FLOAT64 : all.attempts[0]->narrowest;
    end_evaluations(&all, status ? NULL : inputs->chain);
    bool is_searched = !scope || !scope->without_first_node;
    if (!status && !out->passes && is_searched)
        status = fb_compare_nodes(a, b, inputs, options, FB_PRECISION_RECORDED, tolerance, narrowest, out, error);
    if (status) fb_comparison_free(out);
    out->failed = all.failed;
    return status;
}

void fb_comparison_free(fb_comparison *comparison) {
    fb_arena_free(&comparison->arena);
    *comparison = (fb_comparison){.first_node = ""};
}
