/* One sweep over a graph: every match is found, tried in a graph of its own, and refused when there is an obstacle. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/alias.h"
#include "core/analysis/calls.h"
#include "core/analysis/memory_layout.h"
#include "core/analysis/parameter.h"
#include "core/graph/build.h"
#include "core/pass/pass.h"
#include "core/rules/internal.h"

/* ---- trying a replacement in a graph of its own -------------------------------------------------------------------------- */

#define USES_MAX 512 /* names and values of earlier trials stay: after so many it is begun anew */

static bool rule_trial_begin(fb_rule_trial *trial) {
    *trial = (fb_rule_trial){.graph = fb_graph_new(), .names = fb_namespace_new()};
    fb_symbol output = trial->graph ? fb_intern(trial->graph, "output") : (fb_symbol){0};
    if (!output.id || !trial->names) return false;
    trial->end = fb_graph_add_node(trial->graph, FB_MAIN_PROGRAM, output, (fb_node){0});
    if (!trial->end.id) return false;
    fb_graph_set_target(trial->graph, trial->end, FB_OUTPUT, output);
    return true;
}

static void rule_trial_end(fb_rule_trial *trial) {
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
    fb_number number;
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

/* Checks all nodes that the trial has made. */
static void look_at_all(const fb_graph *graph, fb_work *work, fb_rule_outcome *outcome) {
    outcome->is_possible = true;
    fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM);
    for (; n.id && fb_work_goes_on(work, STEPS_OF_A_NODE); n = fb_next_node(graph, n)) {
        fb_effects effects = fb_op_effects(graph, n);
        outcome->has_effects |= !effects.is_unknown && (effects.mutates_input || effects.has_effect);
        outcome->is_possible &= fb_call_is_possible(graph, n) && fb_call_exists(graph, n);
    }
}

static fb_rule_outcome look_at_result(const fb_rule_trial *trial, fb_node made, const fb_graph *graph, fb_node root,
                                      fb_work *work) {
    const fb_node_row *row = fb_node_at(trial->graph, made), *was = fb_node_at(graph, root);
    fb_effects effects = fb_op_effects(trial->graph, made);
    bool has_shapes = row->shape.id && was->shape.id;
    fb_rule_outcome outcome = {.is_computed = true,
                               .dtype = (fb_dtype)row->dtype,
                               .has_shape = row->shape.id,
                               .is_same_shape = has_shapes && fb_rule_same_value(trial->graph, row->shape, graph, was->shape),
                               .may_alias = effects.may_alias_input || effects.may_alias_all,
                               .saves_result = effects.is_unknown ||
                                               fb_op_facts_of(fb_node_op(trial->graph, made))->flags & FB_FACT_SAVES_RESULT};
    look_at_all(trial->graph, work, &outcome);
    return outcome;
}

/* Tries the replacement of each root. False: fb_work_failed says why. */
static bool rule_try(fb_rule_trial *trial, const fb_rule *rule, const fb_graph *graph, const fb_rule_binding *binding,
                     fb_work *work, fb_rule_outcome *outcomes) {
    if (++trial->uses == USES_MAX) {
        rule_trial_end(trial);
        if (!rule_trial_begin(trial)) return false;
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
            if (made.id) outcomes[r] = look_at_result(trial, made, graph, root, work);
        }
    }
    fb_rewrite_abort(rewrite);
    return !i.failed && !work->stopped.status && !fb_graph_out_of_memory(trial->graph);
}

/* ---- trying calls without a match ---------------------------------------------------------------------------------------- */

typedef struct call_trial {
    fb_rule_trial trial;
    fb_rewrite *rewrite;
    const fb_rule *rule;
    fb_rule_binding anything; /* every variable is a node of which nothing is known */
} call_trial;

static bool bind_anything(call_trial *t) {
    bool ok = true;
    for (int v = 0; v < t->rule->variable_count && ok; v++) {
        fb_node node = fb_insert_typed(t->rewrite, t->trial.end, FB_PLACEHOLDER, "input", FB_VALUE_EMPTY_LIST, (fb_value){0},
                                       (fb_value){0}, FB_DTYPE_UNKNOWN);
        t->anything.values[v] = node.id ? fb_make_node(t->trial.graph, node) : (fb_value){0};
        ok = t->anything.values[v].id != 0;
    }
    return ok;
}

/* False also when memory is out. */
static bool is_possible_as(call_trial *t, const fb_rule_call *call, fb_spelling_family family) {
    const fb_rule_root root = {.variable = -1, .term = {.kind = FB_TERM_CALL, .call = call}};
    fb_node made = fb_rule_build_root(t->rewrite, t->rule, &t->anything, &root, (fb_spelling_style){.family = family},
                                      t->trial.end, (fb_node){0});
    return made.id && fb_call_is_possible(t->trial.graph, made) && fb_call_exists(t->trial.graph, made);
}

static fb_status try_call(call_trial *t, const fb_rule_call *call, fb_error *error) {
    bool is_by_operator = call->operator_count > 0, ok = !is_by_operator;
    for (int i = 0; i < FB_SPELLING_FAMILIES; i++) {
        fb_spelling_family family = (fb_spelling_family)i;
        if (!is_by_operator && call->spellings[i]) ok &= is_possible_as(t, call, family);
        if (is_by_operator) ok |= is_possible_as(t, call, family);
    }
    if (fb_graph_out_of_memory(t->trial.graph)) return fb_fail_memory(error);
    return ok ? FB_OK
              : fb_fail(error, FB_INVALID, "no-such-call", call->place,
                        "PyTorch has no such call; look at the kinds of its arguments");
}

fb_status fb_rule_try_calls(const fb_rule *rule, fb_error *error) {
    call_trial t = {.rule = rule};
    bool ok = rule_trial_begin(&t.trial);
    if (ok) t.rewrite = fb_rewrite_begin(t.trial.graph, t.trial.names, "");
    fb_status status = t.rewrite && bind_anything(&t) ? FB_OK : fb_fail_memory(error);
    for (size_t i = 0; i < rule->made_count && !status; i++) status = try_call(&t, rule->made[i], error);
    if (t.rewrite) fb_rewrite_abort(t.rewrite);
    rule_trial_end(&t.trial);
    return status;
}

/* ---- whether a pattern fits ---------------------------------------------------------------------------------------------- */

typedef struct fitting {
    const fb_rule *rule;
    const fb_graph *graph;
    const fb_map *is_taken;
    fb_work *work;
    unsigned order;
    bool takes_writers; /* calls in place, and with `out`, fit like those that they write for */
    size_t ordered;     /* calls in any order so far */
    fb_rule_binding *out;
} fitting;

#define STEPS_OF_A_CALL 32

static bool fits_call(fitting *f, const fb_rule_call *call, fb_node node);

/* ---- terms -------------------------------------------------------------------------------------------------------------- */

static bool binds(fitting *f, int variable, fb_value value) {
    double number;
    fb_value *bound = &f->out->values[variable];
    if (bound->id) return bound->id == value.id;
    if (f->rule->is_number[variable] && !fb_value_is_number(f->graph, value, &number)) return false;
    *bound = value;
    return true;
}

static bool fits_term(fitting *f, const fb_rule_term *term, fb_value value) {
    const fb_value_row *row = fb_value_at(f->graph, value);
    switch (term->kind) {
    case FB_TERM_ANYTHING: return true;
    case FB_TERM_VARIABLE: return binds(f, term->variable, value);
    case FB_TERM_LITERAL:
        return !row->has_nodes && fb_rule_same_value(f->rule->given, fb_rule_literal(f->rule, term->literal), f->graph, value);
    case FB_TERM_CALL: return row->kind == FB_NODE && fits_call(f, term->call, fb_value_node(f->graph, value));
    default: break;
    }
    bool fits = row->kind == term->sequence && row->count == term->count;
    for (size_t i = 0; i < term->count && fits; i++) fits = fits_term(f, &term->items[i], row->items[i]);
    return fits;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

static bool is_called(const fb_rule_call *call, const fb_graph *graph, fb_node node, bool takes_writers) {
    const fb_node_row *row = fb_node_at(graph, node);
    if (row->opcode != FB_CALL_FUNCTION && row->opcode != FB_CALL_METHOD && row->opcode != FB_CALL_MODULE) return false;
    if (call->type)
        return row->opcode == FB_CALL_MODULE && row->module.id &&
               strcmp(fb_text(graph, fb_module_at(graph, row->module)->type), call->type) == 0;
    fb_op op = fb_node_op(graph, node);
    if (takes_writers) op &= (fb_op)~FB_OP_IN_PLACE;
    for (size_t i = 0; i < call->operator_count; i++) {
        if (op == call->operators[i]) return true;
    }
    if (row->opcode == FB_CALL_MODULE) return false;
    for (size_t i = 0; i < call->target_count; i++) {
        if (strcmp(fb_node_target(graph, node), call->targets[i]) == 0) return true;
    }
    return false;
}

/* By meaning: in any place of the parameter. By target or type: as it is written. */
static fb_value argument_of(const fb_rule_call *call, const fb_rule_argument *argument, const fb_graph *graph, fb_node node) {
    if (call->operator_count) return fb_call_argument(graph, node, argument->name);
    if (argument->position != SIZE_MAX) return fb_node_arg(graph, node, argument->position);
    return fb_node_kwarg(graph, node, argument->name);
}

/* Where a call says that it writes. */
static const char *const writing[] = {"inplace", "out"};
#define WRITING (sizeof writing / sizeof *writing)

static bool is_writing(const fitting *f, const fb_rule_argument *argument) {
    bool is = false;
    for (size_t i = 0; i < WRITING; i++) is |= f->takes_writers && argument->name && !strcmp(argument->name, writing[i]);
    return is;
}

static size_t count_writing(const fitting *f, fb_node node) {
    size_t count = 0;
    for (size_t i = 0; i < WRITING && f->takes_writers; i++) count += fb_call_argument(f->graph, node, writing[i]).id != 0;
    return count;
}

/* torch.fx writes out=None where it was not given: torch.tensordot(x, y, dims=2, out=None). A pattern by meaning need not. */
static bool has_empty_out(const fb_rule_call *call, const fb_graph *graph, fb_node node) {
    fb_value out = call->operator_count ? fb_node_kwarg(graph, node, "out") : (fb_value){0};
    return out.id && fb_value_kind(graph, out) == FB_NONE;
}

static bool fits_call(fitting *f, const fb_rule_call *call, fb_node node) {
    const fb_graph *graph = f->graph;
    if (!fb_work_goes_on(f->work, STEPS_OF_A_CALL) || !is_called(call, graph, node, f->takes_writers)) return false;
    bool is_turned = call->takes_any_order && (f->order >> f->ordered++ & 1);
    size_t found = has_empty_out(call, graph, node) ? 1 : count_writing(f, node);
    for (size_t i = 0; i < call->argument_count; i++) {
        const fb_rule_argument *argument = &call->arguments[i];
        size_t other = is_turned && i < 2 ? 1 - i : i;
        if (is_writing(f, argument)) continue;
        fb_value value = argument_of(call, &call->arguments[other], graph, node);
        if (value.id) found++;
        if (!value.id && !argument->term.is_optional) return false;
        if (value.id && !fits_term(f, &argument->term, value)) return false;
    }
    if (fb_argument_count(graph, node) != found) return false; /* it is given more */
    f->out->nodes[call->index] = node;
    return call->variable < 0 || binds(f, call->variable, (fb_value){node.id | FB_VALUE_IS_NODE});
}

/* ---- further roots ------------------------------------------------------------------------------------------------------ */

/* A node that one of the root's own arguments is known to be; or none. */
static fb_node known_input(const fitting *f, const fb_rule_call *root) {
    for (size_t i = 0; i < root->argument_count; i++) {
        const fb_rule_term *term = &root->arguments[i].term;
        fb_value value = term->kind == FB_TERM_VARIABLE ? f->out->values[term->variable] : (fb_value){0};
        fb_node node = value.id ? fb_value_node(f->graph, value) : (fb_node){0};
        if (node.id) return node;
    }
    return (fb_node){0};
}

static bool is_earlier_root(const fitting *f, size_t count, fb_node node) {
    for (size_t i = 0; i < count; i++) {
        if (f->out->nodes[f->rule->roots[i]->index].id == node.id) return true;
    }
    return false;
}

/* The readers of a node in document order; SIZE_MAX when there are too many to look at each of them once per match. */
static size_t readers_in_order(const fb_graph *graph, fb_node node, fb_node *out) {
    size_t count = 0;
    if (!node.id) return 0;
    if (fb_node_at(graph, node)->user_count > FB_RULE_READERS_MAX) return SIZE_MAX;
    for (uint32_t e = fb_user_first(graph, node); e; e = fb_user_next(graph, e)) {
        fb_node reader = fb_edge_user(graph, e);
        size_t place = count++;
        for (; place && fb_node_at(graph, out[place - 1])->ordinal > fb_node_at(graph, reader)->ordinal; place--)
            out[place] = out[place - 1];
        out[place] = reader;
    }
    return count;
}

static bool fits_roots(fitting *f, size_t index) {
    if (index == f->rule->root_count) return true;
    const fb_rule_call *root = f->rule->roots[index];
    fb_node candidates[FB_RULE_READERS_MAX];
    size_t count = readers_in_order(f->graph, known_input(f, root), candidates), ordered = f->ordered;
    f->out->is_crowded |= count == SIZE_MAX;
    for (size_t i = 0; i < count && count != SIZE_MAX && fb_work_goes_on(f->work, STEPS_OF_A_CALL); i++) {
        if (is_earlier_root(f, index, candidates[i]) || fb_map_get(f->is_taken, candidates[i].id)) continue;
        fb_rule_binding before = *f->out;
        if (fits_call(f, root, candidates[i]) && fits_roots(f, index + 1)) return true;
        *f->out = before;
        f->ordered = ordered;
    }
    return false;
}

/* True if the first root has the operator or target of the node, which may write. */
static bool rule_may_fit(const fb_rule *rule, const fb_graph *graph, fb_node node) {
    return is_called(rule->roots[0], graph, node, true);
}

/* Fits the pattern at `node`, its first root. `order` has a bit for each call that takes its arguments in any order. With
 * `takes_writers` also where calls of the same operators write, in place or into `out`; such a fit must be refused. `is_taken`
 * has the nodes that other matches replace. Looking for roots among readers takes long when there are many of both, so it is
 * metered: once `work` has been stopped nothing fits. */
static bool rule_fits(const fb_rule *rule, const fb_graph *graph, fb_node node, unsigned order, bool takes_writers,
                      const fb_map *is_taken, fb_work *work, fb_rule_binding *out) {
    memset(out, 0, sizeof *out);
    fitting f = {.rule = rule,
                 .graph = graph,
                 .is_taken = is_taken,
                 .work = work,
                 .order = order,
                 .takes_writers = takes_writers,
                 .out = out};
    return fits_call(&f, rule->roots[0], node) && fits_roots(&f, 1);
}

enum { REPLACED = 1, READ };

typedef struct sweep {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_rule *rule;
    fb_map taken; /* nodes of matches: REPLACED, or READ: inner ones, which several matches may have in common */
    fb_rule_trial trial;
    fb_rule_binding binding; /* of the match at hand */
    fb_rule_outcome outcomes[FB_RULE_CALLS_MAX];
} sweep;

/* ---- what is refused ---------------------------------------------------------------------------------------------------- */

static fb_node root_of(const sweep *s, size_t replaced) {
    return s->binding.nodes[s->rule->replaced[replaced].call];
}

static bool is_replaced(const sweep *s, size_t call) {
    for (size_t i = 0; i < s->rule->replaced_count; i++) {
        if (s->rule->replaced[i].call == call) return true;
    }
    for (size_t i = 0; i < s->rule->weights_count; i++) {
        if (s->rule->weights[i].call == call) return true;
    }
    return false;
}

typedef fb_obstacle check(sweep *s);

static fb_obstacle overlaps(sweep *s) {
    for (size_t i = 0; i < s->rule->call_count; i++) {
        uint32_t taken = fb_map_get(&s->taken, s->binding.nodes[i].id);
        if (taken == REPLACED || (taken && is_replaced(s, i)))
            return (fb_obstacle){
                "overlaps", "another match replaces one of its nodes in this sweep; what that gives can match in the next run"};
    }
    return FB_NO_OBSTACLE;
}

static fb_obstacle has_effects(sweep *s) {
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    for (size_t i = 0; i < s->rule->call_count && !obstacle.code; i++) {
        fb_node node = s->binding.nodes[i];
        obstacle = fb_effect_obstacle(s->graph, node);
        if (!obstacle.code && fb_is_python_number(s->graph, node))
            obstacle = (fb_obstacle){"python-number", "it computes a Python number, not a tensor"};
    }
    return obstacle;
}

static fb_obstacle keeps_weights(sweep *s) {
    return fb_rule_weights_obstacle(s->matcher, s->rule, &s->binding);
}

static fb_obstacle is_disturbed(sweep *s) {
    return fb_disturbance(s->matcher, s->binding.nodes, s->rule->call_count);
}

static fb_obstacle may_not_share(sweep *s, fb_node from, fb_node root) {
    const fb_sharing *sharing = fb_matcher_sharing(s->matcher);
    fb_share_verdict verdict =
        sharing ? fb_may_share(sharing, from, root, fb_node_at(s->graph, root)->ordinal) : FB_SHARE_WRITTEN;
    if (verdict == FB_SHARE_WRITTEN)
        return (fb_obstacle){"mutated",
                             "afterwards it would share memory with what it reads, and one of them is written later"};
    return verdict == FB_SHARE_RETURNED
               ? (fb_obstacle){"graph-output", "a result of the graph would share the memory of an input or of another result"}
               : FB_NO_OBSTACLE;
}

/* Each call of the pattern gives a result with the strides of its input. */
static bool is_elementwise(const sweep *s) {
    bool is = true;
    for (size_t i = 0; i < s->rule->call_count; i++) {
        const fb_op_facts *facts = fb_op_facts_of(fb_node_op(s->graph, s->binding.nodes[i]));
        is &= (facts->flags & FB_FACT_ELEMENTWISE) && !(facts->flags & FB_FACT_COMPLEX_ROWS) &&
              fb_layout_of(s->graph, s->binding.nodes[i]) != FB_LAYOUT_ROWS;
    }
    return is;
}

/* May a reader notice that the replacement of a root has other strides? A copy may have closed gaps, which a reader of the root
 * itself sees, or changed the order of axes, which readers of values computed from it see as well. */
static bool is_moved(const sweep *s, fb_node root, fb_node by) {
    const fb_graph *g = s->graph;
    if (!fb_layout_is_read(g, root) || (fb_is_contiguous(g, root) && fb_is_contiguous(g, by))) return false;
    return !is_elementwise(s) || (!fb_is_dense(g, by) && fb_strides_are_read(g, root));
}

/* A root whose readers read a variable instead. */
static fb_obstacle is_not_rewired(sweep *s, size_t replaced) {
    fb_node root = root_of(s, replaced);
    fb_node by = fb_value_node(s->graph, s->binding.values[s->rule->replaced[replaced].term.variable]);
    if (!by.id) return (fb_obstacle){"not-a-node", "what takes its place is a constant, not the result of a node"};
    const fb_node_row *was = fb_node_at(s->graph, root), *now = fb_node_at(s->graph, by);
    if (!was->shape.id || !now->shape.id || !was->dtype || !now->dtype)
        return (fb_obstacle){"unknown-shape", "shape and dtype of it, or of what takes its place, are not recorded"};
    if (was->shape.id != now->shape.id || was->dtype != now->dtype)
        return (fb_obstacle){"type-changes", "what takes its place has another shape or dtype"};
    fb_obstacle shares = may_not_share(s, by, root);
    if (shares.code) return shares;
    return is_moved(s, root, by)
               ? (fb_obstacle){"needs-contiguous",
                               "what takes its place may lie in memory in another way, and a reader may need it contiguous"}
               : FB_NO_OBSTACLE;
}

/* A root that becomes another call. */
static fb_obstacle is_not_called(sweep *s, size_t replaced) {
    const fb_rule_outcome *outcome = &s->outcomes[replaced];
    fb_node root = root_of(s, replaced);
    const fb_node_row *was = fb_node_at(s->graph, root);
    if (outcome->has_effects)
        return (fb_obstacle){"has-effects", "the replacement writes into what it reads, or has other effects"};
    if (!outcome->is_possible)
        return (fb_obstacle){
            "no-such-call",
            "in the dialect of the replaced call, an operator of the replacement cannot be called with these arguments"};
    if ((outcome->dtype && was->dtype && outcome->dtype != was->dtype) ||
        (outcome->has_shape && was->shape.id && !outcome->is_same_shape))
        return (fb_obstacle){"type-changes", "the replacement has another shape or dtype"};
    bool saves_more = outcome->saves_result && !(fb_op_facts_of(fb_node_op(s->graph, root))->flags & FB_FACT_SAVES_RESULT);
    fb_obstacle gradient = saves_more ? fb_gradient_obstacle(s->matcher, root, root) : FB_NO_OBSTACLE;
    if (gradient.code) return gradient;
    fb_effects effects = fb_op_effects(s->graph, root);
    if (!outcome->may_alias && !effects.may_alias_input && !effects.may_alias_all) return FB_NO_OBSTACLE;
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    for (uint32_t e = fb_input_first(s->graph, root); e && !obstacle.code; e = fb_input_next(s->graph, e))
        obstacle = may_not_share(s, fb_edge_input(s->graph, e), root);
    return obstacle;
}

static fb_obstacle makes_something_else(sweep *s) {
    if (!rule_try(&s->trial, s->rule, s->graph, &s->binding, s->matcher->work, s->outcomes)) {
        s->matcher->failed = true;
        return FB_OUT_OF_MEMORY;
    }
    fb_obstacle obstacle = FB_NO_OBSTACLE;
    for (size_t i = 0; i < s->rule->replaced_count && !obstacle.code; i++) {
        if (!s->outcomes[i].is_computed)
            obstacle = (fb_obstacle){"not-computable",
                                     "a number of the replacement cannot be computed: it divides by zero, or leaves the range"};
        else if (s->rule->replaced[i].term.kind == FB_TERM_CALL) obstacle = is_not_called(s, i);
        else obstacle = is_not_rewired(s, i);
    }
    return obstacle;
}

/* ---- nodes that must precede a replacement ------------------------------------------------------------------------------ */

typedef struct ordering {
    sweep *s;
    fb_node root;
    fb_obstacle obstacle;
} ordering;

static void look_at_order(void *context, fb_node node) {
    ordering *o = context;
    if (o->obstacle.code) return;
    bool is_later = fb_node_at(o->s->graph, node)->ordinal >= fb_node_at(o->s->graph, o->root)->ordinal;
    o->obstacle = is_later ? (fb_obstacle){"order", "the replacement would read what is computed behind it"}
                           : fb_gradient_obstacle(o->s->matcher, node, o->root);
}

static void check_term(const sweep *s, const fb_rule_term *term, ordering *o);

static void check_call(const sweep *s, const fb_rule_call *call, ordering *o) {
    for (size_t i = 0; i < call->argument_count; i++) check_term(s, &call->arguments[i].term, o);
}

static void check_term(const sweep *s, const fb_rule_term *term, ordering *o) {
    fb_value value = term->kind == FB_TERM_VARIABLE ? s->binding.values[term->variable] : (fb_value){0};
    if (value.id) fb_value_visit_nodes(s->graph, value, look_at_order, o); /* a name of "let" has no value yet */
    if (term->kind == FB_TERM_CALL) check_call(s, term->call, o);
    for (size_t i = 0; i < term->count; i++) check_term(s, &term->items[i], o);
}

/* With one root everything precedes it. Shared calls precede the first of several. And what they read must not be written
 * later, as they may keep it for their gradients. */
static fb_obstacle is_read_at_another_time(sweep *s) {
    ordering o = {.s = s, .root = s->binding.nodes[s->rule->roots[0]->index]};
    for (size_t i = 1; i < s->rule->root_count; i++) {
        fb_node root = s->binding.nodes[s->rule->roots[i]->index];
        if (fb_node_at(s->graph, root)->ordinal < fb_node_at(s->graph, o.root)->ordinal) o.root = root;
    }
    for (size_t i = 0; i < s->rule->let_count; i++) check_call(s, s->rule->lets[i], &o);
    for (size_t i = 0; i < s->rule->replaced_count; i++) {
        o.root = root_of(s, i);
        check_term(s, &s->rule->replaced[i].term, &o);
    }
    return o.obstacle;
}

/* ---- the sweep ---------------------------------------------------------------------------------------------------------- */

static void refuse(sweep *s, fb_obstacle obstacle) {
    fb_refuse_for(s->matcher, obstacle, s->binding.nodes, s->rule->call_count);
}

static void take(sweep *s) {
    fb_match_found_as(s->matcher, &s->binding, sizeof s->binding);
    for (size_t i = 0; i < s->rule->call_count; i++)
        s->matcher->failed |= !fb_map_put(&s->taken, s->binding.nodes[i].id, is_replaced(s, i) ? REPLACED : READ);
    for (size_t i = 0; i < s->rule->replaced_count && s->matcher->sharing; i++) {
        const fb_rule_term *term = &s->rule->replaced[i].term;
        if (term->kind == FB_TERM_VARIABLE)
            fb_share(s->matcher->sharing, fb_value_node(s->graph, s->binding.values[term->variable]), root_of(s, i));
    }
}

static bool is_marked(const sweep *s) {
    bool is = false;
    for (size_t i = 0; i < s->rule->call_count; i++) is |= fb_is_marked(s->matcher, s->binding.nodes[i]);
    return is;
}

/* The pattern fits and all conditions hold. */
static void consider(sweep *s) {
    static check *const checks[] = {
        overlaps, has_effects, keeps_weights, is_disturbed, is_read_at_another_time, makes_something_else};
    if (is_marked(s)) return;
    fb_obstacle stands = FB_NO_OBSTACLE;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && !stands.code; i++) stands = checks[i](s);
    if (s->matcher->failed) return;
    if (stands.code) refuse(s, stands);
    else take(s);
}

/* The pattern would fit if its calls did not write. */
static void tell_of_writers(sweep *s, fb_node node) {
    const fb_rule_condition *failed = NULL;
    bool fits = false;
    for (unsigned order = 0; order < 1U << s->rule->any_order_count && !fits && fb_matcher_goes_on(s->matcher); order++)
        fits = rule_fits(s->rule, s->graph, node, order, true, &s->taken, s->matcher->work, &s->binding) &&
               fb_rule_conditions_hold(s->rule, s->matcher, &s->binding, &failed);
    bool writes = fits && !is_marked(s) && has_effects(s).code;
    if (writes) refuse(s, (fb_obstacle){"mutates", "one of its calls writes in place, or into `out`; others may read that"});
}

static void look_at(sweep *s, fb_node node) {
    const fb_rule *rule = s->rule;
    const fb_rule_condition *failed = NULL, *told = NULL;
    fb_rule_binding fitted = {0};
    bool is_crowded = false, fits_anyhow = false;
    for (unsigned order = 0; order < 1U << rule->any_order_count && fb_matcher_goes_on(s->matcher); order++) {
        bool fits = rule_fits(rule, s->graph, node, order, false, &s->taken, s->matcher->work, &s->binding);
        is_crowded |= s->binding.is_crowded;
        fits_anyhow |= fits;
        if (!fits) continue;
        if (fb_rule_conditions_hold(rule, s->matcher, &s->binding, &failed)) {
            consider(s);
            return;
        }
        if (!told && failed->reason) {
            told = failed;
            fitted = s->binding;
        }
    }
    s->binding = fitted;
    if (told && !is_marked(s)) refuse(s, (fb_obstacle){told->reason, told->detail});
    else if (is_crowded)
        fb_refuse_node(s->matcher, "too-many-readers", node, "among more than %d readers no further root is looked for",
                       FB_RULE_READERS_MAX);
    else if (!fits_anyhow) tell_of_writers(s, node);
}

void fb_rule_match_graph(fb_matcher *matcher) {
    const fb_graph *graph = matcher->graph;
    const fb_rule *rule = matcher->report->pass->data;
    sweep *s = calloc(1, sizeof *s);
    matcher->failed |= !s || !rule_trial_begin(&s->trial);
    if (s) {
        s->matcher = matcher;
        s->graph = graph;
        s->rule = rule;
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(matcher); n = fb_next_node(graph, n)) {
        if (!rule_may_fit(rule, graph, n)) continue;
        if (fb_is_marked(matcher, n))
            fb_refuse_node(matcher, "already-transformed", n, "%s was transformed by this pass before", fb_node_name(graph, n));
        else if (fb_map_get(&s->taken, n.id) != REPLACED) look_at(s, n);
    }
    if (!s) return;
    rule_trial_end(&s->trial);
    fb_map_free(&s->taken);
    free(s);
}
