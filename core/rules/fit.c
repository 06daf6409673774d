/* Whether a pattern fits. */
#include <string.h>

#include "core/rules/internal.h"

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
    case FB_TERM_CALL: return row->kind == FB_NODE && fits_call(f, term->call, row->node);
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

/* By meaning: wherever the parameter stands. By target or type: as it is written. */
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

/* Every argument of the call must be one that the pattern has. */
static bool has_more_arguments(const fb_graph *graph, fb_node node, size_t known) {
    const fb_node_row *row = fb_node_at(graph, node);
    return fb_value_at(graph, row->args)->count + fb_value_at(graph, row->kwargs)->count / 2 != known;
}

static bool fits_call(fitting *f, const fb_rule_call *call, fb_node node) {
    const fb_graph *graph = f->graph;
    if (!fb_work_goes_on(f->work, STEPS_OF_A_CALL) || !is_called(call, graph, node, f->takes_writers)) return false;
    bool is_turned = call->takes_any_order && (f->order >> f->ordered++ & 1);
    size_t found = count_writing(f, node);
    for (size_t i = 0; i < call->argument_count; i++) {
        const fb_rule_argument *argument = &call->arguments[i];
        size_t other = is_turned && i < 2 ? 1 - i : i;
        if (is_writing(f, argument)) continue;
        fb_value value = argument_of(call, &call->arguments[other], graph, node);
        if (value.id) found++;
        if (!value.id && !argument->term.is_optional) return false;
        if (value.id && !fits_term(f, &argument->term, value)) return false;
    }
    if (has_more_arguments(graph, node, found)) return false;
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

bool fb_rule_may_fit(const fb_rule *rule, const fb_graph *graph, fb_node node) {
    return is_called(rule->roots[0], graph, node, true);
}

bool fb_rule_fits(const fb_rule *rule, const fb_graph *graph, fb_node node, unsigned order, bool takes_writers,
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
