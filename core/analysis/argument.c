/* Arguments by name: the place of an operator's parameter in one call. */
#include <string.h>

#include "core/analysis/parameter.h"
#include "core/analysis/view.h"

static const char *parameters_of(const fb_graph *graph, fb_node node, fb_op op) {
    const fb_node_row *row = fb_node_at(graph, node);
    const char *target = fb_op_facts_of(op)->native ? fb_text(graph, row->target) : "";
    return fb_op_parameters(op, (fb_opcode)row->opcode, target);
}

/* Is `name` among the first `count` parameters? At *index, then. */
static bool find_position(const char *at, const char *name, uint32_t count, uint32_t *index) {
    for (*index = 0; at && *index < count; (*index)++) {
        if (fb_parameter_is(at, name)) return true;
        at = fb_parameter_next(at);
    }
    return false;
}

fb_value fb_call_argument_as(const fb_graph *graph, fb_node node, fb_op op, const char *parameter, fb_argument_place *place) {
    const fb_node_row *row = fb_node_at(graph, node);
    const fb_value_row *args = fb_value_at(graph, row->args);
    const fb_value_row *kwargs = row->kwargs.id == FB_VALUE_EMPTY_MAP.id ? NULL : fb_value_at(graph, row->kwargs);
    for (uint32_t i = 0; kwargs && i + 1 < kwargs->count; i += 2) {
        const char *keyword = fb_text(graph, fb_value_at(graph, kwargs->items[i])->symbol);
        if (!fb_is_keyword_for(keyword, parameter)) continue;
        *place = (fb_argument_place){.is_keyword = true, .keyword = keyword};
        return kwargs->items[i + 1];
    }
    uint32_t index;
    if (!args->count || !find_position(parameters_of(graph, node, op), parameter, args->count, &index)) return (fb_value){0};
    *place = (fb_argument_place){.index = index};
    return args->items[index];
}

fb_value fb_call_argument(const fb_graph *graph, fb_node node, const char *parameter) {
    fb_argument_place place;
    return fb_call_argument_as(graph, node, fb_node_op(graph, node), parameter, &place);
}

bool fb_call_argument_place(const fb_graph *graph, fb_node node, const char *parameter, fb_argument_place *place) {
    fb_argument_place found;
    if (!fb_call_argument_as(graph, node, fb_node_op(graph, node), parameter, &found).id) return false;
    *place = found;
    return true;
}

bool fb_call_parameter_is_variadic(const fb_graph *graph, fb_node node, const char *parameter) {
    const char *star = strchr(parameters_of(graph, node, fb_node_op(graph, node)), '*');
    return star && fb_parameter_is(star, parameter);
}

fb_node fb_call_argument_node(const fb_graph *graph, fb_node node, const char *parameter) {
    fb_value value = fb_call_argument(graph, node, parameter);
    return fb_value_node(graph, value);
}

fb_value fb_call_only_argument(const fb_graph *graph, fb_node node, const char *parameter) {
    return fb_argument_count(graph, node) == 1 ? fb_call_argument(graph, node, parameter) : (fb_value){0};
}

bool fb_two_operands(const fb_graph *graph, fb_node node, fb_value *input, fb_value *other) {
    if (fb_argument_count(graph, node) != 2) return false;
    *input = fb_call_argument(graph, node, "input");
    *other = fb_call_argument(graph, node, "other");
    return input->id && other->id;
}

bool fb_call_has_only(const fb_graph *graph, fb_node node, const char *parameter) {
    return fb_call_only_argument(graph, node, parameter).id;
}

fb_value fb_first_argument(const fb_graph *graph, fb_node node) {
    fb_value first = fb_node_arg(graph, node, 0);
    if (first.id) return first;
    char name[32];
    size_t size;
    const char *parameter = fb_parameter_name(parameters_of(graph, node, fb_node_op(graph, node)), &size);
    if (size == 0 || size >= sizeof name) return (fb_value){0};
    memcpy(name, parameter, size);
    name[size] = '\0';
    return fb_call_argument(graph, node, name);
}
