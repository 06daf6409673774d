/* Checks of a new rule: its calls must exist, and something must be able to match its pattern. */
#include <math.h>
#include <string.h>

#include "core/analysis/parameter.h"
#include "core/rules/internal.h"

#define NAMES_MAX 64

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

/* The names of a call's arguments; of an operator's call also of those by position. */
typedef struct names {
    const char *all[NAMES_MAX], *certain[NAMES_MAX]; /* `certain` without the optional ones */
    size_t count, certain_count, positions;
} names;

static void list_names(const fb_rule_call *call, names *out) {
    *out = (names){0};
    for (size_t i = 0; i < call->argument_count; i++) {
        const fb_rule_argument *argument = &call->arguments[i];
        if (!argument->name) {
            out->positions++;
            continue;
        }
        out->all[out->count++] = argument->name;
        if (!argument->term.is_optional) out->certain[out->certain_count++] = argument->name;
    }
}

static bool has_all(const char *list, const names *n) {
    bool has = true;
    for (size_t i = 0; i < n->certain_count && has; i++) has = fb_parameters_have(list, n->certain[i]);
    return has;
}

/* `list` takes the arguments; what it lacks goes into `missing`. */
static bool takes(const char *list, const names *n, const char **missing) {
    if (!list || !has_all(list, n)) return false;
    size_t known = 0;
    const char *in_list[NAMES_MAX];
    for (size_t i = 0; i < n->count; i++) {
        if (fb_parameters_have(list, n->all[i])) in_list[known++] = n->all[i];
    }
    const char *lacks = fb_parameter_missing(list, &(fb_supplied){.positions = n->positions, .names = in_list, .count = known});
    if (lacks && !*missing) *missing = lacks;
    return !lacks;
}

static fb_status fail_call(const fb_rule_call *call, const char *callee, const char *missing, fb_error *error) {
    size_t length = 0;
    const char *name = missing ? fb_parameter_name(missing, &length) : NULL;
    if (!name)
        return fb_fail(error, FB_INVALID, "unknown-parameter", call->place, "in no spelling %.80s takes all these arguments",
                       callee);
    return fb_fail(error, FB_INVALID, "missing-argument", call->place, "%.80s cannot be called without \"%.*s\"", callee,
                   (int)length, name);
}

/* In one of the ways in which the operator can be called: a replacement calls no modules. */
static fb_status check_operator(const fb_rule_call *call, fb_op op, bool is_pattern, fb_error *error) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool is_module = is_pattern && facts->modules;
    const char *missing = NULL, *lists[] = {facts->parameters, facts->native, facts->method,
                                            is_module ? fb_op_parameters(op, FB_CALL_MODULE, "") : NULL};
    names n;
    list_names(call, &n);
    bool ok = false;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) ok |= takes(lists[i], &n, &missing);
    if (ok) return FB_OK;
    char name[80] = {0};
    memcpy(name, facts->names, strcspn(facts->names, " ") % sizeof name);
    return fail_call(call, name, missing, error);
}

/* As it is written: without a dot it may be a method as well. */
static fb_status check_target(const fb_rule_call *call, const char *target, fb_error *error) {
    bool is_method = !strchr(target, '.');
    fb_op op = is_method ? fb_op_of_method(target, strlen(target)) : fb_op_of_function(target, strlen(target));
    if (op == FB_OP_UNKNOWN) return FB_OK;
    names n;
    const char *missing = NULL;
    list_names(call, &n);
    const char *list = fb_op_parameters(op, is_method ? FB_CALL_METHOD : FB_CALL_FUNCTION, target);
    missing = fb_parameter_missing(list, &(fb_supplied){.positions = n.positions, .names = n.all, .count = n.count});
    return missing ? fail_call(call, target, missing, error) : FB_OK;
}

static fb_status check_call(const fb_rule_call *call, bool is_pattern, fb_error *error) {
    fb_status status = FB_OK;
    bool is_by_operator = call->operator_count > 0;
    for (size_t i = 0; i < call->operator_count && !status; i++)
        status = check_operator(call, call->operators[i], is_pattern, error);
    for (size_t i = 0; i < call->target_count && !status; i++) status = check_target(call, call->targets[i], error);
    for (size_t i = 0; i < FB_SPELLING_FAMILIES && !status && !is_by_operator; i++)
        status = call->spellings[i] ? check_target(call, call->spellings[i], error) : FB_OK;
    return status;
}

/* ---- conditions --------------------------------------------------------------------------------------------------------- */

/* Kinds that ask for a number between least and most: of an expression, of users, of dimensions. */
static bool is_range(fb_condition_kind kind) {
    return kind == FB_WHERE_NUMBER || kind == FB_WHERE_USERS || kind == FB_WHERE_RANK;
}

static bool is_empty(double least, double most, bool excludes_an_end) {
    return least > most || (least == most && excludes_an_end);
}

static bool same_expression(const fb_rule_expression *a, const fb_rule_expression *b) {
    bool same = a->count == b->count;
    for (size_t i = 0; i < a->count && same; i++) {
        const fb_rule_step *x = &a->steps[i], *y = &b->steps[i];
        same = x->kind == y->kind && x->variable == y->variable && x->axis == y->axis && x->number.real == y->number.real &&
               x->number.is_int == y->number.is_int;
    }
    return same;
}

static bool is_of_number(const fb_rule_condition *c) {
    return c->kind == FB_WHERE_NUMBER || c->kind == FB_WHERE_NOT_EQUAL || c->kind == FB_WHERE_INTEGER ||
           c->kind == FB_WHERE_NORMAL_IN;
}

static bool is_of_same(const fb_rule_condition *a, const fb_rule_condition *b) {
    if (is_of_number(a) != is_of_number(b)) return false;
    return is_of_number(a) ? same_expression(&a->number, &b->number) : a->variable == b->variable;
}

static bool ranges_exclude(const fb_rule_condition *a, const fb_rule_condition *b) {
    bool is_at_least_a = a->least > b->least || (a->least == b->least && a->excludes_least);
    bool is_at_most_a = a->most < b->most || (a->most == b->most && a->excludes_most);
    const fb_rule_condition *low = is_at_least_a ? a : b, *high = is_at_most_a ? a : b;
    return is_empty(low->least, high->most, low->excludes_least || high->excludes_most);
}

static bool shapes_exclude(const fb_rule_condition *a, const fb_rule_condition *b) {
    bool do_exclude = a->rank != b->rank;
    for (int i = 0; i < a->rank && !do_exclude; i++)
        do_exclude = a->sizes[i] >= 0 && b->sizes[i] >= 0 && a->sizes[i] != b->sizes[i];
    return do_exclude;
}

/* A condition about one number, or a range, beside one of another kind. */
static bool kinds_exclude(const fb_rule_condition *a, const fb_rule_condition *b) {
    bool is_point = a->kind == FB_WHERE_NUMBER && a->least == a->most;
    if (a->kind == FB_WHERE_SHAPE && b->kind == FB_WHERE_RANK) return a->rank < b->least || a->rank > b->most;
    if (a->kind == FB_WHERE_KIND && !a->rank) return true; /* a constant is not a node */
    if (!is_point) return false;
    if (b->kind == FB_WHERE_NOT_EQUAL) return a->least == b->least;
    return b->kind == FB_WHERE_INTEGER && (a->least == floor(a->least)) != b->is_true;
}

static bool exclude(const fb_rule_condition *a, const fb_rule_condition *b) {
    if (!is_of_same(a, b)) return false;
    if (a->kind != b->kind) return kinds_exclude(a, b) || kinds_exclude(b, a);
    switch (a->kind) {
    case FB_WHERE_NUMBER:
    case FB_WHERE_USERS:
    case FB_WHERE_RANK: return ranges_exclude(a, b);
    case FB_WHERE_DTYPE: return !(a->dtypes & b->dtypes);
    case FB_WHERE_SHAPE: return shapes_exclude(a, b);
    case FB_WHERE_KIND: return a->rank != b->rank;
    case FB_WHERE_OUTPUT:
    case FB_WHERE_MUTATED:
    case FB_WHERE_TRAINING:
    case FB_WHERE_INTEGER: return a->is_true != b->is_true;
    default: return false;
    }
}

static const fb_rule_call *call_that_gives(const fb_rule *rule, int variable) {
    for (size_t i = 0; i < rule->call_count; i++) {
        if (rule->calls[i]->variable == variable) return rule->calls[i];
    }
    return NULL;
}

static bool computes_with_result(const fb_rule *rule, const fb_rule_condition *condition) {
    bool does = false;
    for (size_t i = 0; i < condition->number.count; i++) {
        const fb_rule_step *step = &condition->number.steps[i];
        does |= step->kind == FB_STEP_VARIABLE && call_that_gives(rule, step->variable);
    }
    return does;
}

/* A question to a node, of a variable that is computed with: that is a number. */
static bool asks_number_as_node(const fb_rule *rule, const fb_rule_condition *condition) {
    bool has_other = condition->kind == FB_WHERE_SAME_DTYPE || condition->kind == FB_WHERE_SAME_SHAPE ||
                     condition->kind == FB_WHERE_NORMAL_IN;
    bool is_constant = condition->kind == FB_WHERE_KIND && !condition->rank;
    if (has_other && rule->is_number[condition->other]) return true;
    return !is_of_number(condition) && !is_constant && rule->is_number[condition->variable];
}

/* By itself. */
static bool never_holds(const fb_rule *rule, const fb_rule_condition *condition) {
    if (asks_number_as_node(rule, condition)) return true;
    if (is_of_number(condition) && computes_with_result(rule, condition)) return true;
    if (is_range(condition->kind)) {
        bool excludes_an_end = condition->excludes_least || condition->excludes_most;
        return is_empty(condition->least, condition->most, excludes_an_end);
    }
    if (condition->kind == FB_WHERE_DTYPE) return !condition->dtypes;
    if (condition->kind != FB_WHERE_KIND || !call_that_gives(rule, condition->variable)) return false;
    return condition->rank != FB_CALL_FUNCTION && condition->rank != FB_CALL_METHOD && condition->rank != FB_CALL_MODULE;
}

static fb_status check_condition(const fb_rule *rule, size_t index, fb_error *error) {
    const fb_rule_condition *condition = &rule->conditions[index];
    if (never_holds(rule, condition))
        return fb_fail(error, FB_INVALID, "never-holds", condition->place, "nothing could fulfil this condition");
    for (size_t i = 0; i < index; i++) {
        if (exclude(&rule->conditions[i], condition))
            return fb_fail(error, FB_INVALID, "never-holds", condition->place,
                           "what fulfils this condition does not fulfil the one at %s", rule->conditions[i].place);
    }
    return FB_OK;
}

/* Checks the numbers that the replacement computes; conditions have been looked at. */
static fb_status check_numbers(const fb_rule *rule, fb_error *error) {
    for (int v = 0; v < rule->variable_count; v++) {
        const fb_rule_call *call = rule->is_number[v] ? call_that_gives(rule, v) : NULL;
        if (call)
            return fb_fail(error, FB_INVALID, "never-holds", call->place,
                           "%s is the result of a call, and the replacement computes with it as a number", rule->variables[v]);
    }
    return FB_OK;
}

fb_status fb_rule_check(const fb_rule *rule, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < rule->call_count && !status; i++) status = check_call(rule->calls[i], true, error);
    for (size_t i = 0; i < rule->condition_count && !status; i++) status = check_condition(rule, i, error);
    if (!status) status = check_numbers(rule, error);
    for (size_t i = 0; i < rule->made_count && !status; i++) status = check_call(rule->made[i], false, error);
    return status ? status : fb_rule_try_calls(rule, error);
}
