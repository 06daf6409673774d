/* Reading calls and their arguments, in patterns and in replacements. */
#include <string.h>

#include "core/analysis/parameter.h"
#include "core/graph/python.h"
#include "core/rules/internal.h"

#define ARGUMENTS_MAX 32
#define NESTING_MAX 16

/* ---- terms -------------------------------------------------------------------------------------------------------------- */

/* {"op": …} and {"target": …} are calls, {"$tuple": …} and the like are values. */
static bool is_call(const json_t *json) {
    return json_is_object(json) && (json_object_get(json, "operator") || json_object_get(json, "target") ||
                                    json_object_get(json, "module") || json_object_get(json, "targets"));
}

static bool has_variables(const json_t *json) {
    const char *text = json_string_value(json), *key;
    json_t *item;
    size_t i;
    bool has = text && text[0] == '?';
    if (is_call(json) || json_object_get(json, "compute")) return true;
    json_array_foreach(json, i, item) has |= has_variables(item);
    json_object_foreach((json_t *)(uintptr_t)json, key, item) has |= has_variables(item);
    return has;
}

/* Nodes have no names in a rule. */
static bool names_node(const json_t *json) {
    const char *key;
    json_t *item;
    size_t i;
    bool does = json_object_get(json, "$node") != NULL;
    json_array_foreach(json, i, item) does |= names_node(item);
    json_object_foreach((json_t *)(uintptr_t)json, key, item) does |= names_node(item);
    return does;
}

static fb_status read_literal(fb_rule_reader *reader, const json_t *json, fb_rule_term *out) {
    if (names_node(json)) return fb_rule_fail(reader, "bad-value", "a rule knows nodes by variables, not by their names");
    *out = (fb_rule_term){.kind = FB_TERM_LITERAL, .literal = reader->literals.size / sizeof(json_t *)};
    const char *here = fb_buffer_text(&reader->pointer), *place = here ? fb_rule_text(reader, here) : NULL;
    if (!place) return fb_fail_memory(reader->error);
    fb_buffer_append(&reader->literals, &json, sizeof json);
    fb_buffer_append(&reader->places, &place, sizeof place);
    return FB_OK;
}

static fb_status read_variable(fb_rule_reader *reader, const char *text, fb_rule_term *out) {
    *out = (fb_rule_term){.kind = FB_TERM_VARIABLE};
    if (!reader->is_pattern) return fb_rule_bound_variable(reader, text, &out->variable);
    fb_status status = fb_rule_variable(reader, text, &out->variable);
    if (!status) reader->rule->is_bound[out->variable] = true;
    return status;
}

static fb_status read_items(fb_rule_reader *reader, const json_t *array, fb_kind kind, fb_rule_term *out) {
    size_t count = json_array_size(array);
    if (!json_is_array(array)) return fb_rule_fail(reader, "wrong-type", "an array is expected here");
    if (count > ARGUMENTS_MAX) return fb_rule_fail(reader, "rule-too-large", "a list has at most %d items", ARGUMENTS_MAX);
    if (kind == FB_SLICE && count != 3) return fb_rule_fail(reader, "bad-value", "$slice holds start, stop and step");
    fb_rule_term *items = fb_rule_alloc(reader, count * sizeof *items);
    if (!items) return FB_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        size_t mark = fb_pointer_enter_item(&reader->pointer, i);
        fb_status status = fb_rule_read_term(reader, json_array_get(array, i), &items[i]);
        if (!status && items[i].is_optional) status = fb_rule_fail(reader, "bad-pattern", "an item of a list is not optional");
        if (status) return status;
        reader->pointer.size = mark;
    }
    *out = (fb_rule_term){.kind = FB_TERM_SEQUENCE, .sequence = kind, .items = items, .count = count};
    return FB_OK;
}

static fb_status read_sequence(fb_rule_reader *reader, const json_t *json, fb_rule_term *out) {
    static const struct {
        const char *form;
        fb_kind kind;
    } forms[] = {{"$tuple", FB_TUPLE}, {"$slice", FB_SLICE}, {"$size", FB_SIZE}};
    if (json_is_array(json)) return read_items(reader, json, FB_LIST, out);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const json_t *items = json_object_get(json, forms[i].form);
        if (!items || json_object_size(json) != 1) continue;
        size_t mark = fb_pointer_enter(&reader->pointer, forms[i].form);
        fb_status status = read_items(reader, items, forms[i].kind, out);
        if (!status) reader->pointer.size = mark;
        return status;
    }
    return fb_rule_fail(reader, "bad-value", "variables and calls can stand in lists, $tuple, $slice and $size only");
}

static fb_status read_computed(fb_rule_reader *reader, const json_t *json, fb_rule_term *out) {
    fb_status status = fb_rule_check_members(reader, json, "compute");
    if (status) return status;
    const char *text = json_string_value(json_object_get(json, "compute"));
    size_t mark = fb_pointer_enter(&reader->pointer, "compute");
    if (reader->is_pattern)
        return fb_rule_fail(reader, "bad-pattern", "a pattern takes a variable here; conditions say what it must be");
    if (!text) return fb_rule_fail(reader, "wrong-type", "an expression is a text: \"1 / ?c\"");
    *out = (fb_rule_term){.kind = FB_TERM_NUMBER};
    status = fb_rule_read_expression(reader, text, &out->number);
    if (!status) reader->pointer.size = mark;
    return status;
}

static fb_status read_optional(fb_rule_reader *reader, const json_t *json, fb_rule_term *out) {
    fb_status status = fb_rule_check_members(reader, json, "optional");
    if (status) return status;
    size_t mark = fb_pointer_enter(&reader->pointer, "optional");
    status = fb_rule_read_term(reader, json_object_get(json, "optional"), out);
    if (status) return status;
    if (out->kind != FB_TERM_LITERAL && out->kind != FB_TERM_ANYTHING)
        return fb_rule_fail(reader, "bad-pattern", "only a literal, or anything (\"?\"), can be optional");
    out->is_optional = true;
    reader->pointer.size = mark;
    return FB_OK;
}

fb_status fb_rule_read_term(fb_rule_reader *reader, const json_t *json, fb_rule_term *out) {
    const char *text = json_string_value(json);
    if (text && strcmp(text, "?") == 0) {
        if (!reader->is_pattern) return fb_rule_fail(reader, "unbound-variable", "? stands for anything, and for nothing here");
        *out = (fb_rule_term){.kind = FB_TERM_ANYTHING};
        return FB_OK;
    }
    if (text && text[0] == '?') return read_variable(reader, text, out);
    if (is_call(json)) {
        *out = (fb_rule_term){.kind = FB_TERM_CALL};
        return fb_rule_read_call(reader, json, &out->call);
    }
    if (json_object_get(json, "compute")) return read_computed(reader, json, out);
    if (reader->is_pattern && json_object_get(json, "optional")) return read_optional(reader, json, out);
    return has_variables(json) ? read_sequence(reader, json, out) : read_literal(reader, json, out);
}

/* ---- what is called ----------------------------------------------------------------------------------------------------- */

static fb_status add_operator(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    const char *name = json_string_value(json);
    if (!name) return fb_rule_fail(reader, "wrong-type", "an operator is a text: \"mul\"");
    if (call->operator_count == FB_RULE_OPERATORS_MAX)
        return fb_rule_fail(reader, "rule-too-large", "at most %d operators", FB_RULE_OPERATORS_MAX);
    fb_op op = fb_op_of_method(name, strlen(name));
    if (!op) return fb_rule_fail(reader, "unknown-operator", "there is no operator \"%.80s\"", name);
    if (op & FB_OP_IN_PLACE || fb_op_facts_of(op)->flags & (FB_FACT_MUTATES | FB_FACT_EFFECT))
        return fb_rule_fail(reader, "has-effects",
                            "%.80s writes into what it is given, or has other effects; rules leave such alone", name);
    call->operators[call->operator_count++] = op;
    return FB_OK;
}

static fb_status read_operators(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    size_t mark = fb_pointer_enter(&reader->pointer, "operator"), i;
    json_t *item;
    fb_status status = FB_OK;
    if (!reader->is_pattern || !json_is_array(json)) status = add_operator(reader, json, call);
    json_array_foreach(json, i, item) {
        size_t inner = fb_pointer_enter_item(&reader->pointer, i);
        if (reader->is_pattern) status = add_operator(reader, item, call);
        if (status) return status;
        reader->pointer.size = inner;
    }
    if (!status && !call->operator_count) status = fb_rule_fail(reader, "binds-nothing", "no operator is named");
    if (!status) reader->pointer.size = mark;
    return status;
}

static fb_status read_target(fb_rule_reader *reader, const json_t *json, const char **out) {
    const char *text = json_string_value(json);
    if (!text) return fb_rule_fail(reader, "wrong-type", "a target is a text: \"torch.mul\"");
    if (!fb_python_is_dotted(text, strlen(text)))
        return fb_rule_fail(reader, "bad-target", "a target is made of Python identifiers and dots");
    *out = fb_rule_text(reader, text);
    return *out ? FB_OK : FB_NO_MEMORY;
}

/* In a pattern: one target or several. */
static fb_status read_targets(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    size_t mark = fb_pointer_enter(&reader->pointer, "target"), count = json_is_array(json) ? json_array_size(json) : 1;
    if (!count || count > ARGUMENTS_MAX) return fb_rule_fail(reader, "binds-nothing", "one to %d targets", ARGUMENTS_MAX);
    const char **targets = fb_rule_alloc(reader, count * sizeof *targets);
    if (!targets) return FB_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        size_t inner = reader->pointer.size;
        if (json_is_array(json)) fb_pointer_enter_item(&reader->pointer, i);
        fb_status status = read_target(reader, json_is_array(json) ? json_array_get(json, i) : json, &targets[i]);
        if (status) return status;
        reader->pointer.size = inner;
    }
    call->targets = targets;
    call->target_count = count;
    reader->pointer.size = mark;
    return FB_OK;
}

/* Refuses a replacement whose target is a function or a method that changes its input. */
static fb_status check_made(fb_rule_reader *reader, const char *target, fb_spelling_family family) {
    size_t length = strlen(target);
    fb_op op = family == FB_SPELLED_METHOD ? fb_op_of_method(target, length) : fb_op_of_function(target, length);
    if (op & FB_OP_IN_PLACE || fb_op_facts_of(op)->flags & (FB_FACT_MUTATES | FB_FACT_EFFECT))
        return fb_rule_fail(reader, "has-effects", "%.80s writes into what it is given, or has other effects", target);
    if (family == FB_SPELLED_METHOD && strchr(target, '.'))
        return fb_rule_fail(reader, "bad-target", "a method's name has no dots");
    return FB_OK;
}

/* In a replacement: one target for all, or {"operator": …, "torch": …, "method": …, "aten": …}. */
static fb_status read_spellings(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    static const char *const families[] = {[FB_SPELLED_OPERATOR] = "operator",
                                           [FB_SPELLED_TORCH] = "torch",
                                           [FB_SPELLED_METHOD] = "method",
                                           [FB_SPELLED_ATEN] = "aten"};
    size_t mark = fb_pointer_enter(&reader->pointer, "target");
    fb_status status = FB_OK;
    if (json_is_object(json)) status = fb_rule_check_members(reader, json, "operator torch method aten");
    if (!status && json_is_object(json) && !json_object_size(json))
        status = fb_rule_fail(reader, "missing-member", "no target is named");
    for (size_t i = 0; i < FB_SPELLING_FAMILIES && !status; i++) {
        size_t inner = reader->pointer.size;
        const json_t *one = json_is_object(json) ? json_object_get(json, families[i]) : json;
        if (!one || (one == json && i == FB_SPELLED_METHOD)) continue;
        if (one != json) fb_pointer_enter(&reader->pointer, families[i]);
        status = read_target(reader, one, &call->spellings[i]);
        if (!status) status = check_made(reader, call->spellings[i], (fb_spelling_family)i);
        if (!status) reader->pointer.size = inner;
    }
    if (!status) reader->pointer.size = mark;
    return status;
}

static fb_status read_type(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    size_t mark = fb_pointer_enter(&reader->pointer, "module");
    if (!reader->is_pattern)
        return fb_rule_fail(reader, "unknown-member", "a replacement makes no modules; it calls functions and methods");
    fb_status status = read_target(reader, json, &call->type);
    if (!status) reader->pointer.size = mark;
    return status;
}

static fb_status read_callee(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    const json_t *op = json_object_get(json, "operator"), *target = json_object_get(json, "target");
    const json_t *type = json_object_get(json, "module");
    if (reader->is_pattern && (op != NULL) + (target != NULL) + (type != NULL) != 1)
        return fb_rule_fail(reader, "missing-member", "a call has an operator, a target or a module, and one of them only");
    if (!op && !target && !type) return fb_rule_fail(reader, "missing-member", "a call has an operator or a target");
    fb_status status = op ? read_operators(reader, op, call) : FB_OK;
    if (!status && target)
        status = reader->is_pattern ? read_targets(reader, target, call) : read_spellings(reader, target, call);
    if (!status && type) status = read_type(reader, type, call);
    return status;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------------- */

/* The name of the parameter at that position, as torch.nn.functional orders them; NULL when there is none. */
static const char *parameter_at(fb_rule_reader *reader, fb_op op, size_t position) {
    size_t length;
    const char *at = fb_parameter_at(fb_op_facts_of(op)->parameters, position);
    const char *name = at ? fb_parameter_name(at, &length) : NULL;
    return name ? fb_arena_text(&reader->rule->arena, name, length) : NULL;
}

/* A parameter that an operator of the call must have. */
static fb_status check_parameter(fb_rule_reader *reader, const fb_rule_call *call, const char *name) {
    bool ok = call->operator_count == 0;
    for (size_t i = 0; i < call->operator_count; i++) ok |= fb_op_has_parameter(call->operators[i], name);
    return ok ? FB_OK
              : fb_rule_fail(reader, "unknown-parameter", "%s has no parameter \"%.80s\"",
                             fb_op_facts_of(call->operators[0])->names, name);
}

static fb_status read_arguments(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    const json_t *args = json_object_get(json, "args"), *kwargs = json_object_get(json, "kwargs");
    size_t count = json_array_size(args) + json_object_size(kwargs), at = 0, mark = fb_pointer_enter(&reader->pointer, "args");
    if (args && !json_is_array(args)) return fb_rule_fail(reader, "wrong-type", "args are an array");
    if (count > ARGUMENTS_MAX) return fb_rule_fail(reader, "rule-too-large", "a call has at most %d arguments", ARGUMENTS_MAX);
    fb_rule_argument *arguments = fb_rule_alloc(reader, count * sizeof *arguments);
    if (!arguments) return FB_NO_MEMORY;
    call->arguments = arguments;
    call->argument_count = count;
    fb_status status = FB_OK;
    for (; at < json_array_size(args) && !status; at++) {
        size_t inner = fb_pointer_enter_item(&reader->pointer, at);
        arguments[at].position = at;
        if (call->operator_count) arguments[at].name = parameter_at(reader, call->operators[0], at);
        if (call->operator_count && !arguments[at].name)
            return fb_rule_fail(reader, "unknown-parameter", "%s has no parameter here",
                                fb_op_facts_of(call->operators[0])->names);
        status = fb_rule_read_term(reader, json_array_get(args, at), &arguments[at].term);
        if (!status) reader->pointer.size = inner;
    }
    if (status) return status;
    reader->pointer.size = mark;
    fb_pointer_enter(&reader->pointer, "kwargs");
    if (kwargs && !json_is_object(kwargs)) return fb_rule_fail(reader, "wrong-type", "kwargs are an object");
    const char *keys[FB_RULE_MEMBERS_MAX];
    size_t key_count;
    if ((status = fb_rule_sorted_keys(reader, kwargs, keys, &key_count))) return status;
    for (size_t k = 0; k < key_count; k++) {
        const char *key = keys[k];
        size_t inner = fb_pointer_enter(&reader->pointer, key);
        if (!fb_python_is_identifier(key, strlen(key)) || fb_python_word(key, strlen(key)) == FB_WORD_KEYWORD)
            return fb_rule_fail(reader, "bad-keyword", "a keyword is a Python identifier");
        status = check_parameter(reader, call, key);
        for (size_t i = 0; i < at && !status; i++) {
            if (arguments[i].name && strcmp(arguments[i].name, key) == 0)
                status = fb_rule_fail(reader, "duplicate-parameter", "%s is also given by position", key);
        }
        arguments[at] = (fb_rule_argument){.name = fb_rule_text(reader, key), .position = SIZE_MAX};
        if (!status && !arguments[at].name) status = FB_NO_MEMORY;
        if (!status) status = fb_rule_read_term(reader, json_object_get(kwargs, key), &arguments[at].term);
        if (status) return status;
        at++;
        reader->pointer.size = inner;
    }
    reader->pointer.size = mark;
    return FB_OK;
}

/* ---- calls -------------------------------------------------------------------------------------------------------------- */

static fb_status read_result(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    fb_rule *rule = reader->rule;
    call->variable = -1;
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, "as");
    if (!reader->is_pattern && !reader->is_shared)
        return fb_rule_fail(reader, "unknown-member", "of a replacement's calls, only those of \"let\" have names");
    if (!json_is_string(json)) return fb_rule_fail(reader, "wrong-type", "a variable is a text: \"?y\"");
    fb_status status = fb_rule_variable(reader, json_string_value(json), &call->variable);
    if (status) return status;
    if (rule->is_bound[call->variable])
        return fb_rule_fail(reader, "duplicate-variable", "%s has a value already", rule->variables[call->variable]);
    rule->is_bound[call->variable] = true;
    reader->pointer.size = mark;
    return FB_OK;
}

static fb_status read_any_order(fb_rule_reader *reader, const json_t *json, fb_rule_call *call) {
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, "any_order");
    if (!json_is_boolean(json)) return fb_rule_fail(reader, "wrong-type", "true or false is expected here");
    call->takes_any_order = json_is_true(json);
    bool is_commutative = call->operator_count > 0 && call->argument_count >= 2;
    for (size_t i = 0; i < call->operator_count; i++)
        is_commutative &= (fb_op_facts_of(call->operators[i])->flags & FB_FACT_COMMUTATIVE) != 0;
    if (call->takes_any_order && !is_commutative)
        return fb_rule_fail(reader, "not-commutative",
                            "only a commutative operator with two arguments takes them in any order");
    if (call->takes_any_order && ++reader->rule->any_order_count > 6)
        return fb_rule_fail(reader, "rule-too-large", "at most 6 calls take their arguments in any order");
    reader->pointer.size = mark;
    return FB_OK;
}

fb_status fb_rule_read_call(fb_rule_reader *reader, const json_t *json, const fb_rule_call **out) {
    fb_rule *rule = reader->rule;
    size_t *count = reader->is_pattern ? &rule->call_count : &reader->made_calls;
    if (!json_is_object(json)) return fb_rule_fail(reader, "wrong-type", "a call is an object");
    if (*count == FB_RULE_CALLS_MAX) return fb_rule_fail(reader, "rule-too-large", "at most %d calls", FB_RULE_CALLS_MAX);
    fb_rule_call *call = fb_rule_alloc(reader, sizeof *call);
    if (!call) return FB_NO_MEMORY;
    call->index = (*count)++;
    if (reader->is_pattern) rule->calls[call->index] = call;
    else rule->made[call->index] = call;
    rule->made_count = reader->made_calls;
    const char *here = fb_buffer_text(&reader->pointer);
    if (!(call->place = here ? fb_rule_text(reader, here) : NULL)) return fb_fail_memory(reader->error);
    fb_status status = fb_rule_check_members(reader, json,
                                             reader->is_pattern ? "operator target module args kwargs as any_order"
                                                                : "operator target args kwargs as");
    if (!status) status = read_callee(reader, json, call);
    if (!status) status = read_arguments(reader, json, call);
    if (!status) status = read_any_order(reader, json_object_get(json, "any_order"), call);
    if (!status) status = read_result(reader, json_object_get(json, "as"), call);
    *out = call;
    return status;
}
