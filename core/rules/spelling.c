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
