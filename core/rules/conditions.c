/* Conditions: reading them, and whether they hold. */
#include <math.h>
#include <string.h>

#include "core/rules/internal.h"
#include "core/weights/dtype.h"

#define CONDITIONS_MAX 64
#define RANK_MAX 32

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

/* The conditions so far, and the one at hand as far as its members share it. */
typedef struct list {
    fb_rule_reader *reader;
    fb_rule_condition items[CONDITIONS_MAX];
    size_t count;
    fb_rule_condition common; /* of, reason, detail, and the place */
    bool is_variable;         /* `of` is one variable alone */
    bool is_expression;
} list;

static fb_status add(list *l, fb_rule_condition condition) {
    if (l->count == CONDITIONS_MAX) return fb_rule_fail(l->reader, "rule-too-large", "at most %d conditions", CONDITIONS_MAX);
    l->items[l->count++] = condition;
    return FB_OK;
}

/* A condition about a node. */
static fb_status of_node(list *l, fb_condition_kind kind, fb_rule_condition *out) {
    if (!l->is_variable) return fb_rule_fail(l->reader, "bad-condition", "this is asked of one variable: \"of\": \"?x\"");
    *out = l->common;
    out->kind = kind;
    return FB_OK;
}

/* A condition about a number: `of` is an expression, also where it is one variable. */
static fb_status of_number(list *l, fb_condition_kind kind, const char *text, fb_rule_condition *out) {
    fb_status status = l->is_expression ? FB_OK : fb_rule_read_expression(l->reader, text, &l->common.number);
    l->is_expression = true;
    *out = l->common;
    out->kind = kind;
    return status;
}

static fb_status read_flag(list *l, const json_t *value, fb_condition_kind kind) {
    fb_rule_condition condition = {0};
    fb_status status = of_node(l, kind, &condition);
    if (status) return status;
    if (!json_is_boolean(value)) return fb_rule_fail(l->reader, "wrong-type", "true or false is expected here");
    condition.is_true = json_is_true(value);
    return add(l, condition);
}

/* A count, or {"at_least": n, "at_most": n}. */
static fb_status read_count(list *l, const json_t *value, fb_condition_kind kind) {
    fb_rule_condition condition = {0};
    fb_status status = of_node(l, kind, &condition);
    if (status) return status;
    if (json_is_object(value) && (status = fb_rule_check_members(l->reader, value, "at_least at_most"))) return status;
    const json_t *least = json_is_object(value) ? json_object_get(value, "at_least") : value;
    const json_t *most = json_is_object(value) ? json_object_get(value, "at_most") : value;
    if ((least && !json_is_integer(least)) || (most && !json_is_integer(most)) || (!least && !most))
        return fb_rule_fail(l->reader, "wrong-type", "a count, or at_least and at_most, is expected here");
    condition.least = least ? (double)json_integer_value(least) : 0;
    condition.most = most ? (double)json_integer_value(most) : INFINITY;
    return add(l, condition);
}

static fb_status add_dtype(list *l, const json_t *value, uint32_t *dtypes) {
    const char *name = json_string_value(value);
    bool is_class = name && (!strcmp(name, "floating") || !strcmp(name, "integer"));
    fb_dtype one = name ? fb_dtype_find(name) : FB_DTYPE_UNKNOWN;
    if (!is_class && !one)
        return fb_rule_fail(l->reader, "unknown-dtype", "a dtype, \"floating\" or \"integer\" is expected here");
    for (fb_dtype dtype = 1; dtype < FB_DTYPE_COUNT; dtype++) {
        bool is_in = is_class ? (*name == 'f' ? fb_dtype_is_floating(dtype) : fb_dtype_is_integer(dtype)) : dtype == one;
        if (is_in) *dtypes |= 1U << dtype;
    }
    return FB_OK;
}

static fb_status read_dtypes(list *l, const json_t *value) {
    fb_rule_condition condition = {0};
    fb_status status = of_node(l, FB_WHERE_DTYPE, &condition);
    size_t i;
    json_t *item;
    if (!status && !json_is_array(value)) status = add_dtype(l, value, &condition.dtypes);
    json_array_foreach(value, i, item) {
        size_t mark = fb_pointer_enter_item(&l->reader->pointer, i);
        if (!status) status = add_dtype(l, item, &condition.dtypes);
        if (!status) l->reader->pointer.size = mark;
    }
    return status ? status : add(l, condition);
}

static fb_status read_shape(list *l, const json_t *value) {
    fb_rule_condition condition = {0};
    fb_status status = of_node(l, FB_WHERE_SHAPE, &condition);
    size_t i, rank = json_array_size(value);
    json_t *item;
    if (status) return status;
    if (!json_is_array(value) || rank > RANK_MAX)
        return fb_rule_fail(l->reader, "wrong-type", "a shape is a list of sizes, where null is any");
    int64_t *sizes = fb_rule_alloc(l->reader, rank * sizeof *sizes);
    if (!sizes) return FB_NO_MEMORY;
    json_array_foreach(value, i, item) {
        size_t mark = fb_pointer_enter_item(&l->reader->pointer, i);
        if (!json_is_null(item) && (!json_is_integer(item) || json_integer_value(item) < 0))
            return fb_rule_fail(l->reader, "wrong-type", "a size, or null for any, is expected here");
        sizes[i] = json_is_null(item) ? -1 : (int64_t)json_integer_value(item);
        l->reader->pointer.size = mark;
    }
    condition.sizes = sizes;
    condition.rank = (int)rank;
    return add(l, condition);
}

static fb_status read_other(list *l, const json_t *value, fb_condition_kind kind, const char *of) {
    fb_rule_condition condition = {0};
    fb_status status = kind == FB_WHERE_NORMAL_IN ? of_number(l, kind, of, &condition) : of_node(l, kind, &condition);
    if (status) return status;
    if (!json_is_string(value)) return fb_rule_fail(l->reader, "wrong-type", "a variable is expected here");
    status = fb_rule_bound_variable(l->reader, json_string_value(value), &condition.other);
    return status ? status : add(l, condition);
}

static fb_status read_kind(list *l, const json_t *value) {
    fb_rule_condition condition = {0};
    fb_status status = of_node(l, FB_WHERE_KIND, &condition);
    if (status) return status;
    const char *name = json_is_string(value) ? json_string_value(value) : "";
    condition.rank = (int)fb_opcode_find(name);
    if (!condition.rank && strcmp(name, "constant") != 0)
        return fb_rule_fail(l->reader, "bad-condition",
                            "a kind of node (\"placeholder\", \"get_attr\", …) or \"constant\" is expected");
    return add(l, condition);
}

static fb_status read_number(list *l, const json_t *value, const char *member, const char *of) {
    fb_rule_condition condition = {0};
    bool is_not = strcmp(member, "not_equals") == 0;
    fb_status status = of_number(l, is_not ? FB_WHERE_NOT_EQUAL : FB_WHERE_NUMBER, of, &condition);
    if (status) return status;
    if (!json_is_number(value)) return fb_rule_fail(l->reader, "wrong-type", "a number is expected here");
    double number = json_number_value(value);
    bool bounds_below = !strcmp(member, "at_least") || !strcmp(member, "above");
    bool bounds_above = !strcmp(member, "at_most") || !strcmp(member, "below");
    condition.least = bounds_above ? -INFINITY : number;
    condition.most = bounds_below ? INFINITY : number;
    condition.excludes_least = strcmp(member, "above") == 0;
    condition.excludes_most = strcmp(member, "below") == 0;
    return add(l, condition);
}

static fb_status read_integer(list *l, const json_t *value, const char *of) {
    fb_rule_condition condition = {0};
    fb_status status = of_number(l, FB_WHERE_INTEGER, of, &condition);
    if (status) return status;
    if (!json_is_boolean(value)) return fb_rule_fail(l->reader, "wrong-type", "true or false is expected here");
    condition.is_true = json_is_true(value);
    return add(l, condition);
}

#define MEMBERS                                                                                                                \
    "of reason detail users dtype same_dtype rank shape same_shape is_output is_mutated training kind equals not_equals "      \
    "at_least at_most above below is_integer is_normal_in"

static fb_status read_member(list *l, const char *member, const json_t *value, const char *of) {
    if (!strcmp(member, "of") || !strcmp(member, "reason") || !strcmp(member, "detail")) return FB_OK;
    if (!strcmp(member, "users")) return read_count(l, value, FB_WHERE_USERS);
    if (!strcmp(member, "rank")) return read_count(l, value, FB_WHERE_RANK);
    if (!strcmp(member, "dtype")) return read_dtypes(l, value);
    if (!strcmp(member, "shape")) return read_shape(l, value);
    if (!strcmp(member, "same_dtype")) return read_other(l, value, FB_WHERE_SAME_DTYPE, of);
    if (!strcmp(member, "same_shape")) return read_other(l, value, FB_WHERE_SAME_SHAPE, of);
    if (!strcmp(member, "is_normal_in")) return read_other(l, value, FB_WHERE_NORMAL_IN, of);
    if (!strcmp(member, "is_output")) return read_flag(l, value, FB_WHERE_OUTPUT);
    if (!strcmp(member, "is_mutated")) return read_flag(l, value, FB_WHERE_MUTATED);
    if (!strcmp(member, "training")) return read_flag(l, value, FB_WHERE_TRAINING);
    if (!strcmp(member, "kind")) return read_kind(l, value);
    if (!strcmp(member, "is_integer")) return read_integer(l, value, of);
    return read_number(l, value, member, of);
}

static bool is_reason(const char *text) {
    size_t length = strlen(text);
    return length > 0 && length <= 40 && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == length;
}

static fb_status read_reason(list *l, const json_t *json) {
    const json_t *reason = json_object_get(json, "reason"), *detail = json_object_get(json, "detail");
    if (!reason && !detail) return FB_OK;
    size_t mark = fb_pointer_enter(&l->reader->pointer, reason ? "reason" : "detail");
    if (!reason || !json_is_string(reason) || !is_reason(json_string_value(reason)))
        return fb_rule_fail(l->reader, "bad-reason", "a reason is made of a-z, 0-9 and -, at most 40; a detail goes with one");
    if (detail && !json_is_string(detail)) return fb_rule_fail(l->reader, "wrong-type", "a text is expected here");
    l->reader->pointer.size = mark;
    l->common.reason = fb_rule_text(l->reader, json_string_value(reason));
    l->common.detail = fb_rule_text(l->reader, detail ? json_string_value(detail) : "a condition of the rule does not hold");
    return l->common.reason && l->common.detail ? FB_OK : FB_NO_MEMORY;
}

static fb_status read_condition(list *l, const json_t *json) {
    if (!json_is_object(json)) return fb_rule_fail(l->reader, "wrong-type", "a condition is an object");
    fb_status status = fb_rule_check_members(l->reader, json, MEMBERS);
    const char *of = json_string_value(json_object_get(json, "of")), *keys[FB_RULE_MEMBERS_MAX];
    size_t count = 0;
    const char *here = fb_buffer_text(&l->reader->pointer);
    l->common = (fb_rule_condition){.place = here ? fb_rule_text(l->reader, here) : NULL};
    l->is_expression = false;
    if (!l->common.place) return fb_fail_memory(l->reader->error);
    if (!status && !of) status = fb_rule_fail(l->reader, "missing-member", "a condition says what it is about: \"of\": \"?x\"");
    if (!status) status = read_reason(l, json);
    if (status) return status;
    size_t mark = fb_pointer_enter(&l->reader->pointer, "of"), before = l->count;
    l->is_variable = of[0] == '?' && strcspn(of, " +-*/,()") == strlen(of);
    if (l->is_variable) status = fb_rule_bound_variable(l->reader, of, &l->common.variable);
    else if (!(status = fb_rule_read_expression(l->reader, of, &l->common.number))) l->is_expression = true;
    if (status) return status;
    l->reader->pointer.size = mark;
    status = fb_rule_sorted_keys(l->reader, json, keys, &count);
    for (size_t i = 0; i < count; i++) {
        mark = fb_pointer_enter(&l->reader->pointer, keys[i]);
        status = read_member(l, keys[i], json_object_get(json, keys[i]), of);
        if (status) return status;
        l->reader->pointer.size = mark;
    }
    return l->count > before ? FB_OK : fb_rule_fail(l->reader, "missing-member", "the condition asks nothing");
}

fb_status fb_rule_read_conditions(fb_rule_reader *reader, const json_t *json) {
    if (!json) return FB_OK;
    size_t mark = fb_pointer_enter(&reader->pointer, "conditions"), i;
    json_t *item;
    list l = {.reader = reader};
    if (!json_is_array(json)) return fb_rule_fail(reader, "wrong-type", "conditions are an array");
    json_array_foreach(json, i, item) {
        size_t inner = fb_pointer_enter_item(&reader->pointer, i);
        fb_status status = read_condition(&l, item);
        if (status) return status;
        reader->pointer.size = inner;
    }
    fb_rule_condition *conditions = fb_rule_alloc(reader, l.count * sizeof *conditions);
    if (!conditions) return FB_NO_MEMORY;
    memcpy(conditions, l.items, l.count * sizeof *conditions);
    reader->rule->conditions = conditions;
    reader->rule->condition_count = l.count;
    reader->pointer.size = mark;
    return FB_OK;
}

/* ---- whether they hold -------------------------------------------------------------------------------------------------- */

static fb_node node_of(const fb_graph *graph, const fb_rule_binding *binding, int variable) {
    fb_value value = binding->values[variable];
    return value.id ? fb_value_node(graph, value) : (fb_node){0};
}

static bool is_in_range(const fb_rule_condition *condition, double number) {
    bool is_above = condition->excludes_least ? number > condition->least : number >= condition->least;
    bool is_below = condition->excludes_most ? number < condition->most : number <= condition->most;
    return is_above && is_below;
}

static bool is_normal(double number, fb_dtype dtype) {
    fb_dtype_range range;
    return fb_dtype_limits(dtype, &range) && fabs(number) >= range.smallest_normal && fabs(number) <= range.largest;
}

static bool number_holds(const fb_rule_condition *condition, const fb_graph *graph, const fb_rule_binding *binding) {
    fb_number number;
    if (!fb_rule_compute(graph, &condition->number, binding, &number)) return false;
    switch (condition->kind) {
    case FB_WHERE_NUMBER: return is_in_range(condition, number.real);
    case FB_WHERE_NOT_EQUAL: return number.real != condition->least;
    case FB_WHERE_INTEGER: return (number.real == floor(number.real)) == condition->is_true;
    default: {
        fb_node other = node_of(graph, binding, condition->other);
        return other.id && is_normal(number.real, (fb_dtype)fb_node_at(graph, other)->dtype);
    }
    }
}

static bool has_shape(const fb_graph *graph, fb_value shape, const fb_rule_condition *condition) {
    if (fb_shape_rank(graph, shape) != condition->rank) return false;
    for (int i = 0; i < condition->rank; i++) {
        if (condition->sizes[i] >= 0 && fb_shape_size(graph, shape, i) != condition->sizes[i]) return false;
    }
    return true;
}

static bool is_training(const fb_graph *graph, const fb_node_row *row) {
    return row->module.id && fb_module_at(graph, row->module)->training;
}

static bool node_holds(const fb_rule_condition *condition, fb_matcher *matcher, const fb_rule_binding *binding) {
    const fb_graph *graph = matcher->graph;
    fb_node node = node_of(graph, binding, condition->variable), other = {0};
    if (condition->kind == FB_WHERE_KIND && !condition->rank) return !node.id;
    if (!node.id) return false;
    const fb_node_row *row = fb_node_at(graph, node);
    switch (condition->kind) {
    case FB_WHERE_USERS: return is_in_range(condition, row->user_count);
    case FB_WHERE_DTYPE: return row->dtype && (condition->dtypes & 1U << row->dtype);
    case FB_WHERE_RANK: return row->shape.id && is_in_range(condition, fb_shape_rank(graph, row->shape));
    case FB_WHERE_SHAPE: return row->shape.id && has_shape(graph, row->shape, condition);
    case FB_WHERE_OUTPUT: return fb_is_result(graph, node) == condition->is_true;
    case FB_WHERE_TRAINING: return is_training(graph, row) == condition->is_true;
    case FB_WHERE_KIND: return row->opcode == condition->rank;
    case FB_WHERE_MUTATED: {
        const fb_alias *alias = fb_matcher_writes(matcher);
        return alias && fb_is_mutated(alias, node) == condition->is_true;
    }
    default: break;
    }
    other = node_of(graph, binding, condition->other);
    if (!other.id) return false;
    if (condition->kind == FB_WHERE_SAME_DTYPE) return row->dtype && row->dtype == fb_node_at(graph, other)->dtype;
    return row->shape.id && row->shape.id == fb_node_at(graph, other)->shape.id;
}

static bool holds(const fb_rule_condition *condition, fb_matcher *matcher, const fb_rule_binding *binding) {
    if (condition->number.count && condition->kind >= FB_WHERE_NUMBER) return number_holds(condition, matcher->graph, binding);
    return node_holds(condition, matcher, binding);
}

bool fb_rule_conditions_hold(const fb_rule *rule, fb_matcher *matcher, const fb_rule_binding *binding,
                             const fb_rule_condition **failed) {
    for (size_t i = 0; i < rule->condition_count; i++) {
        *failed = &rule->conditions[i];
        if (!holds(*failed, matcher, binding)) return false;
    }
    return true;
}
