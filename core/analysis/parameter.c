#include "core/analysis/parameter.h"

#include "core/analysis/view.h"

const char *fb_parameter_at(const char *list, size_t position) {
    const char *at = list;
    while (position-- && at) at = fb_parameter_next(at);
    return at && *at ? at : NULL;
}

static const char *const other_keywords[][2] = {{"input", "self"}, {"input", "x"},  {"input", "a"},
                                                {"other", "x2"},   {"dim", "axis"}, {"keepdim", "keepdims"}};
#define OTHER_KEYWORDS (sizeof other_keywords / sizeof *other_keywords)

bool fb_is_keyword_for(const char *keyword, const char *parameter) {
    if (strcmp(keyword, parameter) == 0) return true;
    for (size_t i = 0; i < OTHER_KEYWORDS; i++) {
        const char *own = other_keywords[i][0], *other = other_keywords[i][1];
        bool may_be = *keyword == *other && *parameter == *own;
        if (may_be && strcmp(keyword, other) == 0 && strcmp(parameter, own) == 0) return true;
    }
    return false;
}

static bool is_named(const char *at, const char *keyword) {
    if (fb_parameter_is(at, keyword)) return true;
    for (size_t i = 0; i < OTHER_KEYWORDS; i++) {
        const char *own = other_keywords[i][0];
        if (strcmp(keyword, other_keywords[i][1]) == 0 && fb_parameter_is(at, own)) return true;
    }
    return false;
}

bool fb_parameters_have(const char *list, const char *name) {
    const char *at = list;
    while (at && !is_named(at, name)) at = fb_parameter_next(at);
    return at != NULL;
}

bool fb_op_has_parameter(fb_op op, const char *name) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    const char *lists[] = {facts->parameters, facts->native, facts->method, facts->forward};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (const char *at = lists[i]; at; at = fb_parameter_next(at)) {
            if (fb_parameter_is(at, name)) return true;
        }
    }
    return false;
}

static bool is_given(const fb_supplied *given, const char *at, size_t position) {
    bool is = position < given->positions;
    for (size_t i = 0; i < given->count && !is; i++) is = is_named(at, given->names[i]);
    return is;
}

const char *fb_parameter_missing(const char *list, const fb_supplied *given) {
    size_t position = 0, length;
    for (size_t i = 0; i < given->count; i++) {
        if (!fb_parameters_have(list, given->names[i])) return NULL;
    }
    for (const char *at = list; at && *at; at = fb_parameter_next(at), position++) {
        const char *name = fb_parameter_name(at, &length);
        if (name[length] != '=' && !is_given(given, at, position)) return at;
    }
    return NULL;
}

bool fb_call_is_possible(const fb_graph *graph, fb_node node) {
    enum { limit = 64 };
    const fb_node_row *row = fb_node_at(graph, node);
    const fb_value_row *kwargs = fb_value_at(graph, row->kwargs);
    const char *names[limit];
    fb_op op = fb_node_op(graph, node);
    if (op == FB_OP_UNKNOWN || kwargs->count / 2 > limit) return true;
    const char *list = fb_op_parameters(op, (fb_opcode)row->opcode, fb_node_target(graph, node));
    fb_supplied given = {.positions = fb_value_at(graph, row->args)->count, .names = names};
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        names[given.count] = fb_text(graph, fb_value_at(graph, kwargs->items[i])->symbol);
        if (!fb_parameters_have(list, names[given.count]) && fb_op_has_parameter(op, names[given.count])) return false;
        given.count++;
    }
    return !fb_parameter_missing(list, &given);
}
