/* Divisions, in every spelling. */
#include <string.h>

#include "core/operators/spelling.h"
#include "core/ops/view.h"

static fb_division_form division_form(const fb_graph *graph, fb_node node) {
    const char *target = fb_node_target(graph, node);
    if (fb_node_at(graph, node)->opcode == FB_CALL_METHOD) return FB_DIVISION_METHOD;
    if (fb_is_spelled(target, FB_PYTHON_OPERATOR)) return FB_DIVISION_OPERATOR;
    if (!fb_is_aten(graph, node)) return FB_DIVISION_FUNCTION;
    return strstr(target, ".Scalar") ? FB_DIVISION_ATEN_SCALAR : FB_DIVISION_ATEN; /* .Scalar or .Scalar_mode */
}

bool fb_division_at(const fb_graph *graph, fb_node node, fb_division *division) {
    fb_op op = fb_node_op(graph, node);
    fb_division found = {.node = node};
    if (op != FB_OP_DIV && op != FB_OP_TRUE_DIVIDE) return false;
    found.form = division_form(graph, node);
    found.numerator = fb_call_argument(graph, node, "input");
    found.divisor = fb_call_argument(graph, node, "other");
    found.rounding_mode = fb_call_argument(graph, node, "rounding_mode");
    if (!found.numerator.id || !found.divisor.id) return false;
    *division = found;
    return true;
}
