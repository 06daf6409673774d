/* How the calls that a replacement makes are spelled: as their author says, or beside what was matched. */
#include <string.h>

#include "core/operators/spelling.h"
#include "core/ops/calls.h"
#include "core/rules/internal.h"

fb_spelling_style fb_rule_style(const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_node_target(graph, node);
    if (row->opcode == FB_CALL_METHOD) return (fb_spelling_style){.family = FB_SPELLED_METHOD};
    if (row->opcode == FB_CALL_MODULE) return (fb_spelling_style){.family = FB_SPELLED_TORCH};
    if (fb_is_aten(graph, node)) return (fb_spelling_style){.family = FB_SPELLED_ATEN, .overload = strrchr(target, '.') + 1};
    return (fb_spelling_style){.family = fb_is_spelled(target, FB_PYTHON_OPERATOR) ? FB_SPELLED_OPERATOR : FB_SPELLED_TORCH};
}

static void append_word(fb_buffer *out, const char *words) {
    fb_buffer_append(out, words, strcspn(words, " "));
}

/* The first of the operator's further targets that begins so; NULL when there is none. */
static const char *further_target(const fb_op_facts *facts, const char *beginning) {
    for (const char *at = facts->functions; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        if (fb_is_spelled(at, beginning)) return at;
    }
    return NULL;
}

/* What has a module beside it is a layer or an activation, which are functions of torch.nn.functional and no methods; but for
 * those that only look at memory another way (flatten). */
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
        fb_buffer_char(out, '.'); /* the overload follows: fb_rule_spell_overload */
    } else {
        return spell_function(op, out);
    }
    return FB_CALL_FUNCTION;
}

fb_opcode fb_rule_spell(const fb_rule_call *call, fb_spelling_style style, fb_buffer *out) {
    const fb_spelling_family others[] = {style.family, FB_SPELLED_TORCH, FB_SPELLED_OPERATOR, FB_SPELLED_ATEN,
                                         FB_SPELLED_METHOD};
    if (!call->spellings[style.family] && call->operator_count) return spell_operator(call->operators[0], style, out);
    size_t i = 0;
    while (!call->spellings[others[i]]) i++;
    fb_buffer_string(out, call->spellings[others[i]]);
    return others[i] == FB_SPELLED_METHOD ? FB_CALL_METHOD : FB_CALL_FUNCTION;
}

/* That of what was matched where it takes these arguments, else the first that does; where none does, the operator's first. */
void fb_rule_spell_overload(const fb_rule_call *call, fb_spelling_style style, const fb_graph *graph, fb_value args,
                            fb_value kwargs, fb_buffer *target) {
    if (!target->size || target->data[target->size - 1] != '.') return;
    size_t length;
    const char *found = fb_aten_overload(graph, call->operators[0], args, kwargs, style.overload, &length);
    const char *listed = fb_op_facts_of(call->operators[0])->aten;
    if (found) fb_buffer_append(target, found, length);
    else append_word(target, listed ? listed : "default");
}
