/* How the calls that a replacement makes are spelled: as their author says, or beside what was matched. */
#include <string.h>

#include "core/ops/spelling.h"
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

static fb_opcode spell_function(fb_op op, fb_buffer *out) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool has_name = *facts->names && !fb_is_spelled(facts->names, "__");
    if (has_name && is_functional(facts)) {
        fb_op_functional_target(op, out);
        return FB_CALL_FUNCTION;
    }
    if (has_name) fb_buffer_string(out, "torch.");
    append_word(out, has_name || !facts->functions ? facts->names : facts->functions);
    return FB_CALL_FUNCTION;
}

/* That of what was matched where the operator has it, else its first. */
static void append_overload(fb_buffer *out, const fb_op_facts *facts, const char *overload) {
    const char *all = facts->aten ? facts->aten : "default";
    for (const char *at = all; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL) {
        size_t length = strcspn(at, " ");
        if (strlen(overload) == length && strncmp(at, overload, length) == 0) all = at;
    }
    append_word(out, all);
}

static fb_opcode spell_operator(fb_op op, fb_spelling_style style, fb_buffer *out) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    const char *python = further_target(facts, FB_PYTHON_OPERATOR);
    fb_spelling_family family = style.family;
    if (family == FB_SPELLED_OPERATOR && python) {
        append_word(out, python);
    } else if (family == FB_SPELLED_METHOD && *facts->names && !is_functional(facts)) {
        append_word(out, facts->names);
        return FB_CALL_METHOD;
    } else if (family == FB_SPELLED_ATEN && *facts->names) {
        fb_buffer_string(out, FB_ATEN);
        append_word(out, facts->names);
        fb_buffer_char(out, '.');
        append_overload(out, facts, style.overload);
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
