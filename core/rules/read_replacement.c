/* Reading a replacement, and what would make a rule repeat itself. */
#include <string.h>

#include "core/rules/internal.h"

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static fb_status read_lets(fb_rule_reader *reader, const json_t *json) {
    fb_rule *rule = reader->rule;
    if (!json) return FB_OK;
    size_t mark = fb_rule_enter(reader, "let"), i;
    json_t *item;
    if (!json_is_array(json)) return fb_rule_fail(reader, "wrong-type", "\"let\" is a list of calls with names");
    reader->is_shared = true;
    json_array_foreach(json, i, item) {
        size_t inner = fb_rule_enter_item(reader, i);
        const fb_rule_call *call = NULL;
        fb_status status = fb_rule_read_call(reader, item, &call);
        if (status) return status;
        if (call->variable < 0) return fb_rule_fail(reader, "missing-member", "a call of \"let\" has a name: \"as\": \"?y\"");
        rule->lets[rule->let_count++] = call;
        fb_rule_leave(reader, inner);
    }
    reader->is_shared = false;
    fb_rule_leave(reader, mark);
    return FB_OK;
}

static fb_status read_root(fb_rule_reader *reader, const char *name, const json_t *json) {
    fb_rule *rule = reader->rule;
    fb_rule_root root = {.call = SIZE_MAX};
    fb_status status = fb_rule_bound_variable(reader, name, &root.variable);
    if (status) return status;
    for (size_t i = 0; i < rule->root_count; i++) {
        if (rule->roots[i]->variable == root.variable) root.call = rule->roots[i]->index;
    }
    if (root.call == SIZE_MAX)
        return fb_rule_fail(reader, "not-a-root", "%s is not an outermost call of the pattern; only those are replaced", name);
    status = fb_rule_read_term(reader, json, &root.term);
    if (status) return status;
    if (root.term.kind != FB_TERM_CALL && root.term.kind != FB_TERM_VARIABLE)
        return fb_rule_fail(reader, "wrong-type", "a call or a variable is expected here");
    if (root.term.kind == FB_TERM_VARIABLE && root.term.variable == root.variable)
        return fb_rule_fail(reader, "replaces-nothing", "%s would stay what it is", name);
    rule->replaced[rule->replaced_count++] = root;
    rule->pass.only_removes &= root.term.kind == FB_TERM_VARIABLE;
    return FB_OK;
}

/* Beyond the first, a root is looked for among the readers of a node that is known by then. */
static fb_status check_roots(fb_rule_reader *reader) {
    const fb_rule *rule = reader->rule;
    bool is_known[FB_RULE_VARIABLES_MAX] = {false};
    for (size_t r = 0; r < rule->root_count; r++) {
        const fb_rule_call *root = rule->roots[r];
        bool is_connected = r == 0;
        for (size_t i = 0; i < root->argument_count; i++) {
            const fb_rule_term *term = &root->arguments[i].term;
            is_connected |= term->kind == FB_TERM_VARIABLE && is_known[term->variable];
        }
        for (size_t i = 0; i < root->argument_count; i++) {
            const fb_rule_term *term = &root->arguments[i].term;
            if (term->kind == FB_TERM_VARIABLE) is_known[term->variable] = true;
        }
        if (is_connected) continue;
        reader->pointer.size = reader->start;
        fb_rule_enter(reader, "pattern");
        fb_rule_enter_item(reader, r);
        return fb_rule_fail(reader, "unconnected-root",
                            "it must read, as an argument of its own, a variable of the calls before it");
    }
    return FB_OK;
}

fb_status fb_rule_read_replacement(fb_rule_reader *reader, const json_t *json) {
    if (!json) return fb_rule_fail(reader, "missing-member", "a rule needs a replacement");
    size_t mark = fb_rule_enter(reader, "replacement");
    if (!json_is_object(json)) return fb_rule_fail(reader, "wrong-type", "a replacement is an object: {\"?y\": …}");
    const char *names[FB_RULE_MEMBERS_MAX];
    size_t count;
    fb_status status = fb_rule_sorted_keys(reader, json, names, &count);
    if (!status) status = read_lets(reader, json_object_get(json, "let"));
    for (size_t i = 0; i < count && !status; i++) {
        if (strcmp(names[i], "let") == 0 || strcmp(names[i], "weights") == 0) continue;
        size_t inner = fb_rule_enter(reader, names[i]);
        status = read_root(reader, names[i], json_object_get(json, names[i]));
        if (!status) fb_rule_leave(reader, inner);
    }
    if (!status) status = fb_rule_read_weights(reader, json_object_get(json, "weights"));
    if (status) return status;
    if (!reader->rule->replaced_count && !reader->rule->weights_count)
        return fb_rule_fail(reader, "replaces-nothing", "no outermost call of the pattern is replaced");
    fb_rule_leave(reader, mark);
    return check_roots(reader);
}

/* ---- repetition --------------------------------------------------------------------------------------------------------- */

/* A pattern's call beside one that the replacement makes. Where it is not certain that they differ, they may be the same. */
typedef struct comparison {
    const fb_rule *rule;
    const fb_rule_term *stands_for[FB_RULE_VARIABLES_MAX]; /* what the pattern's variables would be */
} comparison;

static bool may_be_call(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made);

static bool literal_number(const comparison *c, const fb_rule_term *term, double *out) {
    fb_rule_number number;
    fb_rule_binding nothing = {0};
    if (term->kind == FB_TERM_LITERAL) return fb_value_is_number(c->rule->given, fb_rule_literal(c->rule, term->literal), out);
    bool is_known = term->kind == FB_TERM_NUMBER;
    for (size_t i = 0; i < term->number.count; i++)
        is_known &= term->number.steps[i].kind != FB_STEP_VARIABLE && term->number.steps[i].kind != FB_STEP_SIZE;
    if (!is_known || !fb_rule_compute(c->rule->given, &term->number, &nothing, &number)) return false;
    *out = number.real;
    return true;
}

static bool is_numeric(const comparison *c, const fb_rule_term *term) {
    double number;
    if (term->kind == FB_TERM_VARIABLE) return c->rule->is_number[term->variable];
    return term->kind == FB_TERM_NUMBER || (term->kind == FB_TERM_LITERAL && literal_number(c, term, &number));
}

static bool may_be_term(comparison *c, const fb_rule_term *pattern, const fb_rule_term *made) {
    double x, y;
    const fb_rule *rule = c->rule;
    switch (pattern->kind) {
    case FB_TERM_ANYTHING: return true;
    case FB_TERM_VARIABLE:
        if (rule->is_number[pattern->variable] && !is_numeric(c, made)) return false;
        if (!c->stands_for[pattern->variable]) c->stands_for[pattern->variable] = made;
        return true;
    case FB_TERM_CALL: return made->kind == FB_TERM_CALL && may_be_call(c, pattern->call, made->call);
    case FB_TERM_LITERAL:
        if (made->kind == FB_TERM_LITERAL)
            return fb_rule_same_value(rule->given, fb_rule_literal(rule, pattern->literal), rule->given,
                                      fb_rule_literal(rule, made->literal));
        /* A variable that need not be a number is taken for a node. */
        return literal_number(c, pattern, &x) && (literal_number(c, made, &y) ? x == y : is_numeric(c, made));
    default: return made->kind == FB_TERM_VARIABLE || made->kind == FB_TERM_SEQUENCE || made->kind == FB_TERM_LITERAL;
    }
}

static bool may_be_callee(const fb_rule_call *pattern, const fb_rule_call *made) {
    bool may_be = false;
    for (size_t i = 0; i < pattern->operator_count; i++) {
        may_be |= made->operator_count && pattern->operators[i] == made->operators[0];
        for (size_t k = 0; k < FB_SPELLING_FAMILIES; k++) {
            const char *spelling = made->spellings[k];
            if (spelling) may_be |= fb_op_of_function(spelling, strlen(spelling)) == pattern->operators[i];
        }
    }
    for (size_t i = 0; i < pattern->target_count; i++) {
        const char *target = pattern->targets[i];
        for (size_t k = 0; k < FB_SPELLING_FAMILIES; k++) may_be |= made->spellings[k] && !strcmp(made->spellings[k], target);
        may_be |= made->operator_count && fb_op_of_function(target, strlen(target)) == made->operators[0];
    }
    return may_be;
}

static const fb_rule_argument *same_argument(const fb_rule_call *made, const fb_rule_argument *argument) {
    for (size_t i = 0; i < made->argument_count; i++) {
        const fb_rule_argument *one = &made->arguments[i];
        bool is_named = one->name && argument->name && strcmp(one->name, argument->name) == 0;
        if (is_named || (one->position == argument->position && one->position != SIZE_MAX)) return one;
    }
    return NULL;
}

static bool may_be_arguments(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made, bool is_turned) {
    size_t found = 0;
    for (size_t i = 0; i < pattern->argument_count; i++) {
        const fb_rule_argument *argument = &pattern->arguments[is_turned && i < 2 ? 1 - i : i];
        const fb_rule_argument *other = same_argument(made, argument);
        const fb_rule_term *term = &pattern->arguments[i].term;
        if (!other && !term->is_optional) return false;
        if (other && !may_be_term(c, term, &other->term)) return false;
        found += other != NULL;
    }
    return found == made->argument_count;
}

static bool may_be_call(comparison *c, const fb_rule_call *pattern, const fb_rule_call *made) {
    if (pattern->type || !may_be_callee(pattern, made)) return false;
    comparison before = *c;
    if (may_be_arguments(c, pattern, made, false)) return true;
    *c = before;
    return pattern->takes_any_order && may_be_arguments(c, pattern, made, true);
}

/* Whether a condition on numbers excludes what the variables would be. */
static bool is_excluded(const comparison *c) {
    for (size_t i = 0; i < c->rule->condition_count; i++) {
        const fb_rule_condition *condition = &c->rule->conditions[i];
        bool is_of_variable = condition->number.count == 1 && condition->number.steps[0].kind == FB_STEP_VARIABLE;
        const fb_rule_term *term = is_of_variable ? c->stands_for[condition->number.steps[0].variable] : NULL;
        double number;
        if (!term || !literal_number(c, term, &number)) continue;
        if (condition->kind == FB_WHERE_NOT_EQUAL && number == condition->least) return true;
        if (condition->kind != FB_WHERE_NUMBER) continue;
        if (number < condition->least || (condition->excludes_least && number == condition->least)) return true;
        if (number > condition->most || (condition->excludes_most && number == condition->most)) return true;
    }
    return false;
}

static bool repeats_term(const fb_rule *rule, const fb_rule_term *term);

static bool repeats_call(const fb_rule *rule, const fb_rule_call *made) {
    comparison c = {.rule = rule};
    bool repeats = may_be_call(&c, rule->roots[0], made) && !is_excluded(&c);
    for (size_t i = 0; i < made->argument_count; i++) repeats |= repeats_term(rule, &made->arguments[i].term);
    return repeats;
}

static bool repeats_term(const fb_rule *rule, const fb_rule_term *term) {
    bool repeats = term->kind == FB_TERM_CALL && repeats_call(rule, term->call);
    for (size_t i = 0; i < term->count; i++) repeats |= repeats_term(rule, &term->items[i]);
    return repeats;
}

fb_status fb_rule_check_loop(fb_rule_reader *reader) {
    static const char message[] = "the pattern fits what this makes, so the rule could be applied to its own result for ever; "
                                  "\"once\": true allows it";
    const fb_rule *rule = reader->rule;
    size_t mark = fb_rule_enter(reader, "replacement");
    if (!rule->replaced_count) return fb_rule_fail(reader, "rule-loops", message);
    for (size_t i = 0; i < rule->let_count; i++) {
        size_t inner = fb_rule_enter(reader, "let");
        fb_rule_enter_item(reader, i);
        if (repeats_call(rule, rule->lets[i])) return fb_rule_fail(reader, "rule-loops", message);
        fb_rule_leave(reader, inner);
    }
    for (size_t i = 0; i < rule->replaced_count; i++) {
        size_t inner = fb_rule_enter(reader, rule->variables[rule->replaced[i].variable]);
        if (repeats_term(rule, &rule->replaced[i].term)) return fb_rule_fail(reader, "rule-loops", message);
        fb_rule_leave(reader, inner);
    }
    fb_rule_leave(reader, mark);
    return FB_OK;
}
