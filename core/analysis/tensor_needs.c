#include "core/analysis/tensor_needs.h"

#include <stdlib.h>

#include "core/analysis/view.h"

static void count_owners(fb_tensor_needs *n, const fb_usage *usage, fb_module module) {
    const fb_graph *g = n->graph;
    const fb_module_row *row = fb_module_at(g, module);
    const fb_value maps[] = {row->parameters, row->buffers};
    bool is_kept =
        fb_module_op(g, module) != FB_OP_UNKNOWN || fb_call_count(usage, module) || fb_module_is_inside_call(usage, module);
    for (size_t i = 0; i < 2; i++) {
        const fb_value_row *map = fb_value_at(g, maps[i]);
        for (uint32_t k = 1; k < map->count; k += 2) {
            fb_tensor tensor = fb_value_tensor(g, map->items[k]);
            if (tensor.id) n->needs[tensor.id] += is_kept ? 2 : 1;
        }
    }
}

/* A tensor that a call gives a program is read by the call, and by all but one of its readers there. */
static void count_reads(fb_tensor_needs *n, const fb_node *outer, fb_program program, void *context,
                        bool (*is_left_out)(void *context, fb_node read)) {
    const fb_graph *g = n->graph;
    for (fb_node node = fb_first_node(g, program); node.id; node = fb_next_node(g, node)) {
        const fb_node_row *row = fb_node_at(g, node), *read = fb_node_at(g, fb_captured_origin(outer, node));
        bool is_itself = row == read, is_read = read->opcode == FB_GET_ATTR && read->module.id && read->attribute.id;
        if (!is_read || (is_itself && is_left_out(context, node))) continue;
        fb_tensor tensor = fb_module_tensor(g, read->module, fb_text(g, read->attribute));
        n->needs[tensor.id] += is_itself ? row->user_count : row->user_count ? row->user_count - 1 : 0;
    }
}

bool fb_tensor_needs_begin(fb_tensor_needs *n, const fb_graph *g, const fb_usage *usage, const fb_node *outer, void *context,
                           bool (*is_left_out)(void *context, fb_node read)) {
    size_t limit = (size_t)fb_tensor_limit(g) + 1;
    *n = (fb_tensor_needs){.graph = g, .needs = calloc(limit, sizeof *n->needs), .counted = calloc(limit, sizeof *n->counted)};
    if (!n->needs || !n->counted) return false;
    for (fb_module module = fb_first_module(g); module.id; module = fb_module_at(g, module)->next)
        count_owners(n, usage, module);
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(g); p++)
        count_reads(n, outer, (fb_program){p}, context, is_left_out);
    return true;
}

void fb_tensor_needs_end(fb_tensor_needs *n) {
    free(n->needs);
    free(n->counted);
}

/* INT64_MAX when a size is not known, or they cannot be counted. */
static int64_t element_count(const fb_graph *g, fb_value shape) {
    int64_t count = 1;
    for (int i = 0; i < fb_shape_rank(g, shape); i++) {
        int64_t size = fb_shape_size(g, shape, i);
        if (size < 0 || __builtin_mul_overflow(count, size, &count)) return INT64_MAX;
    }
    return count;
}

/* A tensor that one attribute owns and one node reads is gone when that node is. */
static void count_freed(void *context, fb_tensor tensor) {
    fb_tensor_needs *n = context;
    if (n->needs[tensor.id] != 2 || n->counted[tensor.id].id == n->node.id) return;
    n->counted[tensor.id].id = n->node.id;
    n->freed += element_count(n->graph, fb_tensor_at(n->graph, tensor)->shape);
}

int64_t fb_growth_of(fb_tensor_needs *n, const fb_graph *trial, fb_node node, fb_value recipe) {
    n->node = node;
    n->freed = 0;
    fb_value_visit_tensors(trial, recipe, count_freed, n);
    return element_count(trial, fb_node_at(trial, node)->shape) - n->freed;
}
