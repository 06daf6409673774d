/* Making what a replacement says, in the graph of a rewrite. */
#include <stdlib.h>
#include <string.h>

#include "core/analysis/calls.h"
#include "core/analysis/parameter.h"
#include "core/operators/spelling.h"
#include "core/rules/internal.h"

#define ARGUMENTS_MAX 64

fb_spelling_style fb_rule_style(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_node_target(graph, node);
    if (row->opcode == FB_CALL_METHOD) return (fb_spelling_style){.family = FB_SPELLED_METHOD};
    if (row->opcode == FB_CALL_MODULE) return (fb_spelling_style){.family = FB_SPELLED_TORCH};
    if (fb_is_aten(graph, node)) return (fb_spelling_style){.family = FB_SPELLED_ATEN, .overload = strrchr(target, '.') + 1};
    return (fb_spelling_style){.family = fb_is_spelled(target, FB_PYTHON_OPERATOR) ? FB_SPELLED_OPERATOR : FB_SPELLED_TORCH};
}

typedef struct building {
    fb_rewrite *rewrite;
    const fb_rule *rule;
    const fb_rule_binding *binding;
    fb_spelling_style style;
    fb_node before;
} building;

static fb_node build_call(building *b, const fb_rule_call *call, fb_node root);

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static fb_value build_term(building *b, const fb_rule_term *term);

/* The first of the expression's variables. */
static fb_value first_variable(const building *b, const fb_rule_expression *expression) {
    for (size_t i = 0; i < expression->count; i++) {
        const fb_rule_step *step = &expression->steps[i];
        if (step->kind == FB_STEP_VARIABLE || step->kind == FB_STEP_SIZE) return b->binding->values[step->variable];
    }
    return FB_VALUE_NONE;
}

/* In a match it has been computed before, when the replacement was tried. Where its variables may be anything, so may it.
 */
static fb_value build_number(building *b, const fb_rule_term *term) {
    fb_graph *graph = fb_rewrite_graph(b->rewrite);
    fb_number number;
    if (!fb_rule_compute(graph, &term->number, b->binding, &number)) return first_variable(b, &term->number);
    return number.is_int ? fb_make_int(graph, number.integer) : fb_make_float(graph, number.real);
}

static fb_value build_sequence(building *b, const fb_rule_term *term) {
    fb_value items[ARGUMENTS_MAX];
    for (size_t i = 0; i < term->count; i++) items[i] = build_term(b, &term->items[i]);
    return fb_make_items(fb_rewrite_graph(b->rewrite), term->sequence, (fb_symbol){0}, items, term->count);
}

static fb_value build_term(building *b, const fb_rule_term *term) {
    fb_graph *graph = fb_rewrite_graph(b->rewrite);
    switch (term->kind) {
    case FB_TERM_VARIABLE: return b->binding->values[term->variable];
    case FB_TERM_NUMBER: return build_number(b, term);
    case FB_TERM_SEQUENCE: return build_sequence(b, term);
    case FB_TERM_CALL: return fb_make_node(graph, build_call(b, term->call, (fb_node){0}));
    default: return fb_rule_copy_value(b->rule->given, fb_rule_literal(b->rule, term->literal), graph, NULL, &(fb_work){0});
    }
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

/* True if the parameter has that position in a call of that spelling. */
static bool stands_at(const fb_rule_call *call, const char *name, size_t position, fb_opcode opcode, const char *target) {
    if (!call->operator_count) return true;
    const char *at = fb_parameter_at(fb_op_parameters(call->operators[0], opcode, target), position);
    return at && fb_parameter_is(at, name);
}

/* A call in the place of another one keeps the keywords of those parameters that both have. */
static const char *keyword_of(const building *b, const fb_rule_call *call, const fb_rule_argument *argument, fb_node root,
                              size_t position, fb_opcode opcode, const char *target) {
    fb_argument_place place;
    const fb_graph *graph = fb_rewrite_graph(b->rewrite);
    if (argument->position == SIZE_MAX) return argument->name;
    if (!argument->name || !position) {
        bool is_kept = argument->name && root.id && fb_call_argument_place(graph, root, argument->name, &place);
        return is_kept && place.is_keyword && b->style.family != FB_SPELLED_METHOD ? place.keyword : NULL;
    }
    if (root.id && fb_call_argument_place(graph, root, argument->name, &place) && place.is_keyword) return place.keyword;
    return stands_at(call, argument->name, position, opcode, target) ? NULL : argument->name;
}

static void build_arguments(building *b, const fb_rule_call *call, fb_node root, fb_opcode opcode, const char *target,
                            fb_value *args, fb_value *kwargs) {
    fb_graph *graph = fb_rewrite_graph(b->rewrite);
    fb_value items[ARGUMENTS_MAX], map = FB_VALUE_EMPTY_MAP;
    size_t count = 0;
    for (size_t i = 0; i < call->argument_count; i++) {
        const fb_rule_argument *argument = &call->arguments[i];
        const char *keyword = keyword_of(b, call, argument, root, count, opcode, target);
        if (!keyword && count < i) keyword = argument->name; /* after a keyword positions are not possible */
        fb_value value = build_term(b, &argument->term);
        if (keyword) map = fb_map_with(graph, map, keyword, value);
        else items[count++] = value;
    }
    *args = fb_make_list(graph, items, count);
    *kwargs = map;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

static void append_word(fb_buffer *out, const char *words) {
    fb_buffer_append(out, words, strcspn(words, " "));
}

/* The first of the operator's further targets that begins so, or NULL. */
static const char *further_target(const fb_op_facts *facts, const char *beginning) {
    for (const char *at = facts->functions; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (fb_is_spelled(at, beginning)) return at;
    }
    return NULL;
}

/* True for operators that also have a module: layers and activations, which are functions of torch.nn.functional and not
 * methods; but for those that only look at memory another way (flatten). */
static bool is_functional(const fb_op_facts *facts) {
    return facts->modules && !(facts->flags & FB_FACT_ALIASES);
}

/* Where PyTorch has the name: in torch.nn.functional or torch, or else as a method. */
static fb_opcode spell_function(fb_op op, fb_buffer *out) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool has_name = *facts->names && !fb_is_spelled(facts->names, "__");
    bool is_in_torch = fb_op_is_at_home(op, "torch");
    if (has_name && (is_functional(facts) || !is_in_torch) && fb_op_is_at_home(op, "functional")) {
        fb_op_functional_target(op, out);
        return FB_CALL_FUNCTION;
    }
    bool is_method = has_name && !is_in_torch && !facts->functions && fb_op_is_at_home(op, "method");
    if (has_name && is_in_torch) fb_buffer_string(out, "torch.");
    append_word(out, (has_name && is_in_torch) || !facts->functions ? facts->names : facts->functions);
    return is_method ? FB_CALL_METHOD : FB_CALL_FUNCTION;
}

static fb_opcode spell_operator(fb_op op, fb_spelling_style style, fb_buffer *out) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    const char *python = further_target(facts, FB_PYTHON_OPERATOR);
    fb_spelling_family family = style.family;
    if (family == FB_SPELLED_OPERATOR && python) {
        append_word(out, python);
    } else if (family == FB_SPELLED_METHOD && fb_op_is_at_home(op, "method") && !is_functional(facts)) {
        append_word(out, facts->names);
        return FB_CALL_METHOD;
    } else if (family == FB_SPELLED_ATEN && *facts->names) {
        fb_buffer_string(out, FB_ATEN);
        append_word(out, facts->names);
        fb_buffer_char(out, '.'); /* the overload follows: rule_spell_overload */
    } else {
        return spell_function(op, out);
    }
    return FB_CALL_FUNCTION;
}

/* Appends the target of a replacement's call in that style, and says which opcode it has. Of an ATen operator that is not
 * spelled by the rule, the overload is missing, which depends on the arguments: the second appends it. */
static fb_opcode rule_spell(const fb_rule_call *call, fb_spelling_style style, fb_buffer *out) {
    const fb_spelling_family others[] = {style.family, FB_SPELLED_TORCH, FB_SPELLED_OPERATOR, FB_SPELLED_ATEN,
                                         FB_SPELLED_METHOD};
    if (!call->spellings[style.family] && call->operator_count) return spell_operator(call->operators[0], style, out);
    size_t i = 0;
    while (!call->spellings[others[i]]) i++;
    fb_buffer_string(out, call->spellings[others[i]]);
    return others[i] == FB_SPELLED_METHOD ? FB_CALL_METHOD : FB_CALL_FUNCTION;
}

/* Spells the overload of the matched call where it takes these arguments, else the first that does; where none does, the
 * operator's first. */
static void rule_spell_overload(const fb_rule_call *call, fb_spelling_style style, const fb_graph *graph, fb_value args,
                                fb_value kwargs, fb_buffer *target) {
    if (!target->size || target->data[target->size - 1] != '.') return;
    size_t length;
    const char *found = fb_aten_overload(graph, call->operators[0], args, kwargs, style.overload, &length);
    const char *listed = fb_op_facts_of(call->operators[0])->aten;
    if (found) fb_buffer_append(target, found, length);
    else append_word(target, listed ? listed : "default");
}

static fb_node build_call(building *b, const fb_rule_call *call, fb_node root) {
    fb_graph *graph = fb_rewrite_graph(b->rewrite);
    fb_buffer buffer = {0};
    fb_opcode opcode = rule_spell(call, b->style, &buffer);
    const char *target = fb_buffer_text(&buffer);
    fb_node made = root;
    fb_value args = {0}, kwargs = {0};
    if (target) {
        build_arguments(b, call, root, opcode, target, &args, &kwargs);
        rule_spell_overload(call, b->style, graph, args, kwargs, &buffer);
        target = fb_buffer_text(&buffer);
    }
    if (!target) {
        fb_graph_fail_memory(graph);
    } else {
        if (root.id) fb_set_target(b->rewrite, root, opcode, target);
        if (root.id) fb_set_args(b->rewrite, root, args, kwargs);
        else made = fb_insert_before(b->rewrite, b->before, opcode, target, args, kwargs);
    }
    fb_buffer_free(&buffer);
    return made;
}

void fb_rule_build_lets(fb_rewrite *rewrite, const fb_rule *rule, fb_rule_binding *binding, fb_spelling_style style,
                        fb_node before) {
    building b = {.rewrite = rewrite, .rule = rule, .binding = binding, .style = style, .before = before};
    for (size_t i = 0; i < rule->let_count; i++) {
        fb_node made = build_call(&b, rule->lets[i], (fb_node){0});
        binding->values[rule->lets[i]->variable] = fb_make_node(fb_rewrite_graph(rewrite), made);
    }
}

fb_node fb_rule_build_root(fb_rewrite *rewrite, const fb_rule *rule, const fb_rule_binding *binding,
                           const fb_rule_root *replaced, fb_spelling_style style, fb_node before, fb_node root) {
    building b = {.rewrite = rewrite, .rule = rule, .binding = binding, .style = style, .before = before};
    return build_call(&b, replaced->term.call, root);
}

/* ---- in the graph ------------------------------------------------------------------------------------------------------- */

static fb_node first_root(const fb_rule *rule, const fb_graph *graph, const fb_rule_binding *binding) {
    fb_node first = binding->nodes[rule->roots[0]->index];
    for (size_t i = 1; i < rule->root_count; i++) {
        fb_node root = binding->nodes[rule->roots[i]->index];
        if (fb_node_at(graph, root)->ordinal < fb_node_at(graph, first)->ordinal) first = root;
    }
    return first;
}

static bool gets_weights(const fb_rule *rule, int variable) {
    for (size_t i = 0; i < rule->weights_count; i++) {
        if (rule->weights[i].variable == variable) return true;
    }
    return false;
}

void fb_rule_edit(fb_rewrite *rewrite, const fb_match *match) {
    const fb_rule *rule = match->pass->data;
    const fb_graph *graph = fb_rewrite_graph(rewrite);
    fb_rule_binding binding = *(const fb_rule_binding *)match->data;
    fb_node first = first_root(rule, graph, &binding);
    /* Inner calls that nothing reads afterwards go. They are asked last first, so each inner one comes before its readers. */
    for (size_t i = rule->call_count; i-- > 0;) {
        if (!fb_rule_is_root(rule, i)) fb_erase_unread(rewrite, binding.nodes[i]);
    }
    fb_rule_edit_weights(rewrite, rule, &binding);
    fb_rule_build_lets(rewrite, rule, &binding, fb_rule_style(graph, first), first);
    for (size_t i = 0; i < rule->replaced_count; i++) {
        const fb_rule_root *replaced = &rule->replaced[i];
        fb_node root = binding.nodes[replaced->call];
        if (replaced->term.kind == FB_TERM_CALL) {
            fb_release_call(rewrite, root);
            fb_rule_build_root(rewrite, rule, &binding, replaced, fb_rule_style(graph, root), root, root);
            fb_infer_result_type(rewrite, root);
            fb_mark(rewrite, root);
        } else {
            fb_node by = fb_value_node(graph, binding.values[replaced->term.variable]);
            if (gets_weights(rule, replaced->term.variable)) {
                fb_absorb(rewrite, root, by); /* its name has another value than before */
                fb_release_call(rewrite, root);
            } else {
                fb_replace_uses(rewrite, root, by);
                fb_erase_call(rewrite, root);
            }
        }
    }
}
