#include "core/passes/effect.h"

const char *fb_effect_obstacle(const fb_graph *graph, fb_node node, const char **detail) {
    fb_effects effects = fb_op_effects(graph, node);
    *detail = "what it does is not known";
    if (effects.is_unknown) return "unknown-operator";
    *detail = "it writes into memory that others may read";
    if (effects.mutates_input || effects.mutates_module) return "mutates";
    *detail = "it draws random numbers: without it, those behind it would be others";
    if (effects.is_random) return "random";
    *detail = "it checks something, or switches a mode";
    return effects.has_effect ? "effect" : NULL;
}
