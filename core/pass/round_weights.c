#include "core/pass/round_weights.h"

#include <stdlib.h>

#include "core/analysis/usage.h"
#include "core/pass/build.h"
#include "core/weights/recipe.h"

typedef struct change {
    fb_rewrite *rewrite;
    fb_graph *graph;
    fb_dtype dtype;
    fb_tensor *now; /* by tensor: its replacement */
} change;

static void exchange(change *c, fb_module owner, const char *attribute, fb_tensor old) {
    fb_graph *g = c->graph;
    if (fb_tensor_at(g, old)->dtype != FB_FLOAT32) return;
    fb_tensor *now = &c->now[old.id];
    if (now->id) {
        fb_tie_parameter(c->rewrite, owner, attribute, *now);
        return;
    }
    *now = fb_put_parameter(c->rewrite, owner, attribute, fb_recipe_rounded(g, old), c->dtype,
                            fb_tensor_at(g, old)->requires_grad);
}

static void exchange_all(change *c, fb_module owner, fb_value map) {
    const fb_value_row *row = fb_value_at(c->graph, map);
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        fb_tensor tensor = fb_value_tensor(c->graph, row->items[i + 1]);
        if (tensor.id) exchange(c, owner, fb_value_text(c->graph, row->items[i]), tensor);
    }
}

static void exchange_weights(change *c, const fb_node *nodes, size_t count, const fb_usage *usage, bool *is_called) {
    fb_graph *g = c->graph;
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(g, nodes[i]);
        if (row->opcode == FB_CALL_MODULE) is_called[row->module.id] = true;
    }
    for (fb_module m = fb_first_module(g); m.id; m = fb_module_at(g, m)->next) {
        fb_module deciding = fb_deciding_module(g, usage, m);
        if (!deciding.id || !is_called[deciding.id]) continue;
        exchange_all(c, m, fb_module_at(g, m)->parameters);
        exchange_all(c, m, fb_module_at(g, m)->buffers);
    }
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(g, nodes[i]);
        if (row->opcode != FB_GET_ATTR || !row->attribute.id) continue;
        fb_tensor tensor = fb_module_tensor(g, row->module, fb_text(g, row->attribute));
        if (tensor.id) exchange(c, row->module, fb_text(g, row->attribute), tensor);
    }
}

void fb_round_weights(fb_rewrite *rw, const fb_node *nodes, size_t count, fb_dtype dtype) {
    fb_graph *g = fb_rewrite_graph(rw);
    change c = {.rewrite = rw, .graph = g, .dtype = dtype, .now = calloc(fb_tensor_limit(g), sizeof *c.now)};
    bool *is_called = calloc(fb_module_limit(g), sizeof *is_called);
    fb_usage *usage = fb_usage_new(g);
    if (c.now && is_called && usage) exchange_weights(&c, nodes, count, usage, is_called);
    else fb_graph_fail_memory(g);
    fb_usage_free(usage);
    free(is_called);
    free(c.now);
}
