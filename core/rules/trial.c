/* A replacement is made in a graph of its own first, to see what it computes. */
#include <string.h>

#include "core/graph/build.h"
#include "core/ops/calls.h"
#include "core/ops/infer.h"
#include "core/ops/parameter.h"
#include "core/rules/internal.h"

#define USES_MAX 512 /* names and values of earlier trials stay: after so many it is begun anew */

bool fb_rule_trial_begin(fb_rule_trial *trial) {
    *trial = (fb_rule_trial){.graph = fb_graph_new(), .names = fb_namespace_new()};
    fb_symbol output = trial->graph ? fb_intern(trial->graph, "output") : (fb_symbol){0};
    if (!output.id || !trial->names) return false;
    trial->end = fb_graph_add_node(trial->graph, FB_MAIN_PROGRAM, output, (fb_node){0});
    if (!trial->end.id) return false;
    fb_graph_set_target(trial->graph, trial->end, FB_OUTPUT, output);
    return true;
}

void fb_rule_trial_end(fb_rule_trial *trial) {
    fb_graph_free(trial->graph);
    fb_namespace_free(trial->names);
    fb_map_free(&trial->nodes);
}

#define STEPS_OF_A_NODE 32
#define STEPS_OF_A_TRIAL 256

typedef struct import {
    fb_rule_trial *trial;
    fb_rewrite *rewrite;
    const fb_graph *graph;
    fb_work *work;
    bool failed;
} import;

/* An input that looks like the node. */
static void import_node(void *context, fb_node node) {
    import *i = context;
    i->failed |= !fb_work_goes_on(i->work, STEPS_OF_A_NODE);
    if (i->failed || fb_map_get(&i->trial->nodes, node.id)) return;
    const fb_node_row *row = fb_node_at(i->graph, node);
    fb_value shape = row->shape.id ? fb_rule_copy_value(i->graph, row->shape, i->trial->graph, NULL, i->work) : (fb_value){0};
    fb_node copy = fb_insert_typed(i->rewrite, i->trial->end, FB_PLACEHOLDER, "input", FB_VALUE_EMPTY_LIST, (fb_value){0},
                                   shape, (fb_dtype)row->dtype);
    i->failed = !copy.id || !fb_map_put(&i->trial->nodes, node.id, copy.id);
}

static void import_binding(import *i, const fb_rule *rule, const fb_rule_binding *from, fb_rule_binding *to) {
    memset(to, 0, sizeof *to);
    for (int v = 0; v < rule->variable_count && !i->failed; v++) {
        if (!from->values[v].id) continue;
        fb_value_visit_nodes(i->graph, from->values[v], import_node, i);
        if (!i->failed)
            to->values[v] = fb_rule_copy_value(i->graph, from->values[v], i->trial->graph, &i->trial->nodes, i->work);
        i->failed |= !to->values[v].id;
    }
}

/* ---- scalars ------------------------------------------------------------------------------------------------------------ */

static bool term_is_computed(const fb_graph *graph, const fb_rule_term *term, const fb_rule_binding *binding);

static bool call_is_computed(const fb_graph *graph, const fb_rule_call *call, const fb_rule_binding *binding) {
    bool ok = true;
    for (size_t i = 0; i < call->argument_count; i++) ok &= term_is_computed(graph, &call->arguments[i].term, binding);
    return ok;
}

static bool term_is_computed(const fb_graph *graph, const fb_rule_term *term, const fb_rule_binding *binding) {
    fb_rule_number number;
    bool ok = true;
    if (term->kind == FB_TERM_NUMBER) return fb_rule_compute(graph, &term->number, binding, &number);
    if (term->kind == FB_TERM_CALL) return call_is_computed(graph, term->call, binding);
    for (size_t i = 0; i < term->count; i++) ok &= term_is_computed(graph, &term->items[i], binding);
    return ok;
}

static bool all_is_computed(const fb_rule *rule, const fb_graph *graph, const fb_rule_binding *binding) {
    bool ok = true;
    for (size_t i = 0; i < rule->let_count; i++) ok &= call_is_computed(graph, rule->lets[i], binding);
    for (size_t i = 0; i < rule->replaced_count; i++) ok &= term_is_computed(graph, &rule->replaced[i].term, binding);
    return ok;
}

/* ---- what comes out ----------------------------------------------------------------------------------------------------- */

/* What is seen of all nodes that the trial has made. */
static void look_at_all(const fb_graph *graph, fb_work *work, fb_rule_outcome *outcome) {
    outcome->is_possible = true;
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, STEPS_OF_A_NODE); n = fb_next_node(graph, n)) {
        fb_effects effects = fb_op_effects(graph, n);
        outcome->has_effects |= !effects.is_unknown && (effects.mutates_input || effects.has_effect);
        outcome->is_possible &= fb_call_is_possible(graph, n) && fb_call_exists(graph, n);
    }
}

static fb_rule_outcome look_at(const fb_rule_trial *trial, fb_node made, const fb_graph *graph, fb_node root, fb_work *work) {
    const fb_node_row *row = fb_node_at(trial->graph, made), *was = fb_node_at(graph, root);
    fb_effects effects = fb_op_effects(trial->graph, made);
    bool has_shapes = row->shape.id && was->shape.id;
    fb_rule_outcome outcome = {.is_computed = true,
                               .dtype = (fb_dtype)row->dtype,
                               .has_shape = row->shape.id,
                               .is_same_shape = has_shapes && fb_rule_same_value(trial->graph, row->shape, graph, was->shape),
                               .may_alias = effects.may_alias_input || effects.may_alias_all};
    look_at_all(trial->graph, work, &outcome);
    return outcome;
}

bool fb_rule_try(fb_rule_trial *trial, const fb_rule *rule, const fb_graph *graph, const fb_rule_binding *binding,
                 fb_work *work, fb_rule_outcome *outcomes) {
    if (++trial->uses == USES_MAX) {
        fb_rule_trial_end(trial);
        if (!fb_rule_trial_begin(trial)) return false;
    }
    if (!fb_work_goes_on(work, STEPS_OF_A_TRIAL)) return false;
    fb_rewrite *rewrite = fb_rewrite_begin(trial->graph, trial->names, "");
    if (!rewrite) return false;
    memset(outcomes, 0, rule->replaced_count * sizeof *outcomes);
    fb_map_clear(&trial->nodes);
import i = {.trial = trial, .rewrite = rewrite, .graph = graph, .work = work };
    fb_rule_binding inside;
    import_binding(&i, rule, binding, &inside);
    if (!i.failed && all_is_computed(rule, trial->graph, &inside)) {
        fb_node first = binding->nodes[rule->roots[0]->index];
        fb_rule_build_lets(rewrite, rule, &inside, fb_rule_style(graph, first), trial->end);
        for (size_t r = 0; r < rule->replaced_count && !i.failed; r++) {
            const fb_rule_root *replaced = &rule->replaced[r];
            fb_node root = binding->nodes[replaced->call], made = {0};
            outcomes[r].is_computed = true;
            if (replaced->term.kind != FB_TERM_CALL) continue;
            made = fb_rule_build_root(rewrite, rule, &inside, replaced, fb_rule_style(graph, root), trial->end, made);
            i.failed = !made.id;
            if (made.id) outcomes[r] = look_at(trial, made, graph, root, work);
        }
    }
    fb_rewrite_abort(rewrite);
    return !i.failed && !work->stopped.status && !fb_graph_out_of_memory(trial->graph);
}
