#include "core/passes/constant_needs.h"

#include <stdlib.h>

#include "core/passes/layer.h"

bool fb_is_crowded(fb_matcher *m, fb_node read) {
    const char *obstacle = fb_read_obstacle(m, read);
    return obstacle && strcmp(obstacle, "crowded-module") == 0;
}

static void count_owners(const fb_matcher *m, uint32_t *needs, fb_module module) {
    const fb_module_row *row = fb_module_at(m->graph, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    bool is_kept = fb_module_op(m->graph, module) != FB_OP_UNKNOWN || fb_call_count(m->usage, module) ||
                   fb_module_is_inside_call(m->usage, module);
    for (size_t i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(m->graph, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            const fb_value_row *value = fb_value_at(m->graph, map->items[k]);
            if (value->kind == FB_TENSOR) needs[value->tensor.id] += is_kept ? 2 : 1;
        }
    }
}

static void count_reads(fb_matcher *m, uint32_t *needs, fb_program program) {
    for (fb_node n = fb_first_node(m->graph, program); n.id; n = fb_next_node(m->graph, n)) {
        const fb_node_row *row = fb_node_at(m->graph, n);
        if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id || fb_is_crowded(m, n)) continue;
        fb_tensor tensor = fb_module_tensor(m->graph, row->module, fb_text(m->graph, row->attribute));
        needs[tensor.id] += row->user_count;
    }
}

bool fb_find_tensor_needs(fb_matcher *m, fb_tensor_needs *out) {
    const fb_graph *g = m->graph;
    size_t limit = (size_t)fb_tensor_limit(g) + 1;
    *out = (fb_tensor_needs){
        .graph = g, .needs = calloc(limit, sizeof *out->needs), .counted = calloc(limit, sizeof *out->counted)};
    if (!out->needs || !out->counted) return false;
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next)
        count_owners(m, out->needs, module);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++) count_reads(m, out->needs, (fb_program){p});
    return true;
}

void fb_tensor_needs_free(fb_tensor_needs *needs) {
    free(needs->needs);
    free(needs->counted);
}

int64_t fb_element_count(const fb_graph *g, fb_value shape) {
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return INT64_MAX;
    }
    return count;
}

/* A tensor that one attribute owns and one node reads is gone when that node is. */
static void count_freed(void *context, fb_tensor tensor) {
    fb_tensor_needs *needs = context;
    if (needs->needs[tensor.id] != 2 || needs->counted[tensor.id].id == needs->node.id) return;
    needs->counted[tensor.id].id = needs->node.id;
    needs->freed += fb_element_count(needs->graph, fb_tensor_at(needs->graph, tensor)->shape);
}

int64_t fb_elements_freed(fb_tensor_needs *needs, const fb_graph *trial, fb_node node, fb_value recipe) {
    needs->node = node;
    needs->freed = 0;
    fb_value_visit_tensors(trial, recipe, count_freed, needs);
    return needs->freed;
}
