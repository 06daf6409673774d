/* Arguments by name: where a parameter of an operator stands in one call. */
#include <string.h>

#include "core/ops/view.h"

static const char *parameters_of(const fb_graph *graph, fb_node node) {
    const fb_op_facts *facts = fb_op_facts_of(fb_node_op(graph, node));
    switch (fb_node_at(graph, node)->opcode) {
    case FB_CALL_MODULE: return facts->forward ? facts->forward : "input";
    case FB_CALL_METHOD:
        if (facts->method) return facts->method;
        return facts->native ? facts->native : facts->parameters;
    default: {
        static const char functional[] = "torch.nn.functional.";
        if (!facts->native) return facts->parameters;
        bool is_functional = strncmp(fb_node_target(graph, node), functional, sizeof functional - 1) == 0;
        return is_functional ? facts->parameters : facts->native;
    }
    }
}

/* Is `name` among the first `count` of "input,*size,dim"? At *index, then. */
static bool find_position(const char *parameters, const char *name, uint32_t count, uint32_t *index) {
    size_t length = strlen(name);
    for (*index = 0; parameters && *index < count; (*index)++) {
        if (*parameters == '*') parameters++;
        bool is_it = strncmp(parameters, name, length) == 0 && (parameters[length] == ',' || !parameters[length]);
        if (is_it) return true;
        parameters = strchr(parameters, ',');
        if (parameters) parameters++;
    }
    return false;
}

/* Other keywords for the same parameter: ATen's, forward(x)'s, and those of NumPy that torch accepts. */
static bool is_keyword_for(const char *keyword, const char *parameter) {
    static const char *const others[][2] = {{"input", "self"}, {"input", "x"},  {"input", "a"},
                                            {"other", "x2"},   {"dim", "axis"}, {"keepdim", "keepdims"}};
    if (strcmp(keyword, parameter) == 0) return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool may_be = *keyword == *others[i][1] && *parameter == *others[i][0];
        if (may_be && strcmp(keyword, others[i][1]) == 0 && strcmp(parameter, others[i][0]) == 0) return true;
    }
    return false;
}

static fb_value find_argument(const fb_graph *graph, fb_node node, const char *parameter, fb_argument_place *place) {
    const fb_node_row *row = fb_node_at(graph, node);
    const fb_value_row *args = fb_value_at(graph, row->args);
    const fb_value_row *kwargs = fb_value_at(graph, row->kwargs);
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2) {
        const char *keyword = fb_text(graph, fb_value_at(graph, kwargs->items[i])->symbol);
        if (!is_keyword_for(keyword, parameter)) continue;
        *place = (fb_argument_place){.is_keyword = true, .keyword = keyword};
        return kwargs->items[i + 1];
    }
    uint32_t index;
    if (!args->count || !find_position(parameters_of(graph, node), parameter, args->count, &index)) return (fb_value){0};
    *place = (fb_argument_place){.index = index};
    return args->items[index];
}

fb_value fb_call_argument(const fb_graph *graph, fb_node node, const char *parameter) {
    fb_argument_place place;
    return find_argument(graph, node, parameter, &place);
}

bool fb_call_argument_place(const fb_graph *graph, fb_node node, const char *parameter, fb_argument_place *place) {
    fb_argument_place found;
    if (!find_argument(graph, node, parameter, &found).id) return false;
    *place = found;
    return true;
}

bool fb_call_parameter_is_variadic(const fb_graph *graph, fb_node node, const char *parameter) {
    const char *star = strchr(parameters_of(graph, node), '*');
    size_t length = strlen(parameter);
    return star && strncmp(star + 1, parameter, length) == 0 && (star[1 + length] == ',' || !star[1 + length]);
}

fb_node fb_call_argument_node(const fb_graph *graph, fb_node node, const char *parameter) {
    fb_value value = fb_call_argument(graph, node, parameter);
    return value.id ? fb_value_node(graph, value) : (fb_node){0};
}

fb_value fb_call_only_argument(const fb_graph *graph, fb_node node, const char *parameter) {
    const fb_node_row *row = fb_node_at(graph, node);
    uint32_t count = fb_value_at(graph, row->args)->count + fb_value_at(graph, row->kwargs)->count / 2;
    return count == 1 ? fb_call_argument(graph, node, parameter) : (fb_value){0};
}

bool fb_call_has_only(const fb_graph *graph, fb_node node, const char *parameter) {
    return fb_call_only_argument(graph, node, parameter).id;
}

fb_value fb_first_argument(const fb_graph *graph, fb_node node) {
    fb_value first = fb_node_arg(graph, node, 0);
    if (first.id) return first;
    const char *parameters = parameters_of(graph, node);
    if (*parameters == '*') parameters++;
    char name[32];
    size_t size = strcspn(parameters, ",");
    if (size == 0 || size >= sizeof name) return (fb_value){0};
    memcpy(name, parameters, size);
    name[size] = '\0';
    return fb_call_argument(graph, node, name);
}
