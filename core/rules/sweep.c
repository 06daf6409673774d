/* One sweep over a graph: every match is found, and refused when something stands against it. */
#include <stdlib.h>
#include <string.h>

#include "core/ops/alias.h"
#include "core/ops/strides.h"
#include "core/passes/pass.h"
#include "core/rules/internal.h"

enum { REPLACED = 1, READ };

typedef struct sweep {
    fb_matcher *matcher;
    const fb_graph *graph;
    const fb_rule *rule;
    fb_map taken;        /* nodes of matches: REPLACED, or READ: inner ones, which several matches may have in common */
    fb_sharing *sharing; /* made when first asked for */
    fb_rule_trial trial;
    fb_rule_binding binding; /* of the match at hand */
    fb_rule_outcome outcomes[FB_RULE_CALLS_MAX];
    uint32_t first, last; /* ordinals of its nodes */
    const char *detail;
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

/* A reason, or NULL; the sentence goes into `detail`. */
typedef const char *obstacle(sweep *s);

static const char *overlaps(sweep *s) {
    s->detail = "another match replaces one of its nodes in this sweep; what that gives can match in the next run";
    for (size_t i = 0; i < s->rule->call_count; i++) {
        uint32_t taken = fb_map_get(&s->taken, s->binding.nodes[i].id);
        if (taken == REPLACED || (taken && is_replaced(s, i))) return "overlaps";
    }
    return NULL;
}

static const char *has_effects(sweep *s) {
    const char *reason = NULL;
    for (size_t i = 0; i < s->rule->call_count && !reason; i++) {
        fb_node node = s->binding.nodes[i];
        reason = fb_effect_obstacle(s->graph, node, &s->detail);
        if (reason || !fb_is_python_number(s->graph, node)) continue;
        s->detail = "it computes a Python number, not a tensor";
        reason = "python-number";
    }
    return reason;
}

static const char *keeps_weights(sweep *s) {
    return fb_rule_weights_obstacle(s->matcher, s->rule, &s->binding, &s->detail);
}

/* What the nodes read must be the same at the first of them and at the last, and so must what they give each other. */
static const char *is_disturbed(sweep *s) {
    if (s->first == s->last) return NULL;
    const fb_alias *alias = fb_matcher_alias(s->matcher);
    bool is_written = !alias;
    for (size_t i = 0; i < s->rule->call_count && !is_written; i++) {
        fb_node node = s->binding.nodes[i];
        is_written |= fb_mutated_between(alias, node, fb_node_at(s->graph, node)->ordinal, s->last);
        for (uint32_t e = fb_input_first(s->graph, node); e && !is_written; e = fb_input_next(s->graph, e))
            is_written |= fb_mutated_between(alias, fb_edge_input(s->graph, e), s->first, s->last);
    }
    s->detail = "what the nodes of the match read is written in place between them";
    if (is_written) return "input-mutated";
    s->detail = "autocast, autograd or another mode is switched between the nodes of the match";
    return fb_mode_switched_between(alias, s->first, s->last) ? "mode-switched" : NULL;
}

static const fb_sharing *sharing_of(sweep *s) {
    const fb_alias *alias = s->sharing ? NULL : fb_matcher_alias(s->matcher);
    if (alias) s->sharing = fb_sharing_new(s->graph, alias, s->matcher->work);
    s->matcher->failed |= !s->sharing;
    return s->sharing;
}

static const char *may_not_share(sweep *s, fb_node from, fb_node root) {
    const fb_sharing *sharing = sharing_of(s);
    fb_share_verdict verdict =
        sharing ? fb_may_share(sharing, from, root, fb_node_at(s->graph, root)->ordinal) : FB_SHARE_WRITTEN;
    s->detail = "afterwards it would share memory with what it reads, and one of them is written later";
    if (verdict == FB_SHARE_WRITTEN) return "mutated";
    s->detail = "a result of the graph would share the memory of an input or of another result";
    return verdict == FB_SHARE_RETURNED ? "graph-output" : NULL;
}

/* Does what takes the place of a root lie in memory as the root did? A copy may have closed gaps, or another order of axes. */
static bool lies_alike(const sweep *s, fb_node root, fb_node by) {
    const fb_graph *g = s->graph;
    if (fb_is_contiguous(g, root) && fb_is_contiguous(g, by)) return true;
    bool is_elementwise = fb_is_dense(g, by);
    for (size_t i = 0; i < s->rule->call_count && is_elementwise; i++) {
        fb_op op = fb_node_op(g, s->binding.nodes[i]);
        is_elementwise = fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE;
    }
    return is_elementwise;
}

/* A root whose readers read a variable instead. */
static const char *is_not_rewired(sweep *s, size_t replaced) {
    fb_node root = root_of(s, replaced);
    fb_node by = fb_value_node(s->graph, s->binding.values[s->rule->replaced[replaced].term.variable]);
    s->detail = "what takes its place is a constant, not the result of a node";
    if (!by.id) return "not-a-node";
    const fb_node_row *was = fb_node_at(s->graph, root), *now = fb_node_at(s->graph, by);
    s->detail = "shape and dtype of it, or of what takes its place, are not recorded";
    if (!was->shape.id || !now->shape.id || !was->dtype || !now->dtype) return "unknown-shape";
    s->detail = "what takes its place has another shape or dtype";
    if (was->shape.id != now->shape.id || was->dtype != now->dtype) return "type-changes";
    const char *reason = may_not_share(s, by, root);
    if (reason) return reason;
    s->detail = "what takes its place may lie in memory in another way, and a reader may need it contiguous";
    return fb_strides_are_read(s->graph, root) && !lies_alike(s, root, by) ? "needs-contiguous" : NULL;
}

/* A root that becomes another call. */
static const char *is_not_called(sweep *s, size_t replaced) {
    const fb_rule_outcome *outcome = &s->outcomes[replaced];
    fb_node root = root_of(s, replaced);
    const fb_node_row *was = fb_node_at(s->graph, root);
    s->detail = "the replacement writes into what it reads, or has other effects";
    if (outcome->has_effects) return "has-effects";
    s->detail = "an operator of the replacement cannot be called so in the spelling of what it replaces";
    if (!outcome->is_possible) return "no-such-call";
    s->detail = "the replacement has another shape or dtype";
    if (outcome->dtype && was->dtype && outcome->dtype != was->dtype) return "type-changes";
    if (outcome->has_shape && was->shape.id && !outcome->is_same_shape) return "type-changes";
    fb_effects effects = fb_op_effects(s->graph, root);
    if (!outcome->may_alias && !effects.may_alias_input && !effects.may_alias_all) return NULL;
    const char *reason = NULL;
    for (uint32_t e = fb_input_first(s->graph, root); e && !reason; e = fb_input_next(s->graph, e))
        reason = may_not_share(s, fb_edge_input(s->graph, e), root);
    return reason;
}

static const char *makes_something_else(sweep *s) {
    if (!fb_rule_try(&s->trial, s->rule, s->graph, &s->binding, s->matcher->work, s->outcomes)) {
        s->matcher->failed = true;
        return "out-of-memory";
    }
    const char *reason = NULL;
    for (size_t i = 0; i < s->rule->replaced_count && !reason; i++) {
        s->detail = "a number of the replacement cannot be computed: it divides by zero, or leaves the range";
        if (!s->outcomes[i].is_computed) reason = "not-computable";
        else if (s->rule->replaced[i].term.kind == FB_TERM_CALL) reason = is_not_called(s, i);
        else reason = is_not_rewired(s, i);
    }
    return reason;
}

/* ---- what stands before what is made ------------------------------------------------------------------------------------ */

typedef struct ordering {
    const fb_graph *graph;
    uint32_t limit;
    bool is_later;
} ordering;

static void look_at_order(void *context, fb_node node) {
    ordering *o = context;
    o->is_later |= fb_node_at(o->graph, node)->ordinal >= o->limit;
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

/* With one root everything stands before it. Shared calls stand before the first of several. */
static const char *is_read_too_early(sweep *s) {
    uint32_t first_root = UINT32_MAX;
    bool is_early = false;
    for (size_t i = 0; i < s->rule->root_count; i++) {
        uint32_t ordinal = fb_node_at(s->graph, s->binding.nodes[s->rule->roots[i]->index])->ordinal;
        if (ordinal < first_root) first_root = ordinal;
    }
    for (size_t i = 0; i < s->rule->let_count; i++) {
        ordering o = {.graph = s->graph, .limit = first_root};
        check_call(s, s->rule->lets[i], &o);
        is_early |= o.is_later;
    }
    for (size_t i = 0; i < s->rule->replaced_count; i++) {
        ordering o = {.graph = s->graph, .limit = fb_node_at(s->graph, root_of(s, i))->ordinal};
        check_term(s, &s->rule->replaced[i].term, &o);
        is_early |= o.is_later;
    }
    s->detail = "the replacement would read what is computed behind it";
    return is_early ? "order" : NULL;
}

/* ---- the sweep ---------------------------------------------------------------------------------------------------------- */

static void measure(sweep *s) {
    s->first = UINT32_MAX;
    s->last = 0;
    for (size_t i = 0; i < s->rule->call_count; i++) {
        uint32_t ordinal = fb_node_at(s->graph, s->binding.nodes[i])->ordinal;
        if (ordinal < s->first) s->first = ordinal;
        if (ordinal > s->last) s->last = ordinal;
    }
}

static void refuse(sweep *s, const char *reason, const char *detail) {
    fb_refuse(s->matcher, reason, s->binding.nodes, s->rule->call_count, "%s", detail);
}

static void take(sweep *s) {
    fb_node nodes[FB_RULE_CALLS_MAX + FB_RULE_VARIABLES_MAX];
    size_t count = s->rule->call_count;
    memcpy(nodes, s->binding.nodes, count * sizeof *nodes);
    for (int i = 0; i < s->rule->variable_count; i++) nodes[count + (size_t)i].id = s->binding.values[i].id;
    fb_match_found(s->matcher, nodes, count + (size_t)s->rule->variable_count);
    for (size_t i = 0; i < count; i++)
        s->matcher->failed |= !fb_map_put(&s->taken, s->binding.nodes[i].id, is_replaced(s, i) ? REPLACED : READ);
    for (size_t i = 0; i < s->rule->replaced_count && s->sharing; i++) {
        const fb_rule_term *term = &s->rule->replaced[i].term;
        if (term->kind == FB_TERM_VARIABLE)
            fb_share(s->sharing, fb_value_node(s->graph, s->binding.values[term->variable]), root_of(s, i));
    }
}

static bool is_marked(const sweep *s) {
    bool is = false;
    for (size_t i = 0; i < s->rule->call_count; i++) is |= fb_is_marked(s->matcher, s->binding.nodes[i]);
    return is;
}

/* The pattern fits and all conditions hold. */
static void consider(sweep *s) {
    static obstacle *const obstacles[] = {overlaps,     has_effects,       keeps_weights,
                                          is_disturbed, is_read_too_early, makes_something_else};
    if (is_marked(s)) return;
    measure(s);
    const char *reason = NULL;
    for (size_t i = 0; i < sizeof obstacles / sizeof *obstacles && !reason; i++) reason = obstacles[i](s);
    if (s->matcher->failed) return;
    if (reason) refuse(s, reason, s->detail);
    else take(s);
}

/* The pattern would fit if its calls did not write. */
static void tell_of_writers(sweep *s, fb_node node) {
    const fb_rule_condition *failed = NULL;
    bool fits = false;
    for (unsigned order = 0; order < 1U << s->rule->any_order_count && !fits && fb_matcher_goes_on(s->matcher); order++)
        fits = fb_rule_fits(s->rule, s->graph, node, order, true, &s->taken, s->matcher->work, &s->binding) &&
               fb_rule_conditions_hold(s->rule, s->matcher, &s->binding, &failed);
    bool writes = fits && !is_marked(s) && has_effects(s);
    if (writes) refuse(s, "mutates", "one of its calls writes in place, or into `out`; others may read that");
}

static void look_at(sweep *s, fb_node node) {
    const fb_rule *rule = s->rule;
    const fb_rule_condition *failed = NULL, *told = NULL;
    fb_rule_binding fitted = {0};
    bool is_crowded = false, fits_anyhow = false;
    for (unsigned order = 0; order < 1U << rule->any_order_count && fb_matcher_goes_on(s->matcher); order++) {
        bool fits = fb_rule_fits(rule, s->graph, node, order, false, &s->taken, s->matcher->work, &s->binding);
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
    if (told && !is_marked(s)) refuse(s, told->reason, told->detail);
    else if (is_crowded)
        fb_refuse_node(s->matcher, "too-many-readers", node, "among more than %d readers no further root is looked for",
                       FB_RULE_READERS_MAX);
    else if (!fits_anyhow) tell_of_writers(s, node);
}

void fb_rule_match_graph(fb_matcher *matcher) {
    const fb_graph *graph = matcher->graph;
    const fb_rule *rule = matcher->report->pass->data;
    sweep *s = calloc(1, sizeof *s);
    matcher->failed |= !s || !fb_rule_trial_begin(&s->trial);
    if (s) {
        s->matcher = matcher;
        s->graph = graph;
        s->rule = rule;
    }
    for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); n.id && fb_matcher_goes_on(matcher); n = fb_next_node(graph, n)) {
        if (!fb_rule_may_fit(rule, graph, n)) continue;
        if (fb_is_marked(matcher, n))
            fb_refuse_node(matcher, "already-transformed", n, "%s was transformed by this pass before", fb_node_name(graph, n));
        else if (fb_map_get(&s->taken, n.id) != REPLACED) look_at(s, n);
    }
    if (!s) return;
    fb_rule_trial_end(&s->trial);
    fb_sharing_free(s->sharing);
    fb_map_free(&s->taken);
    free(s);
}
