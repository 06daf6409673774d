#include "core/analysis/alias.h"

#include <stdlib.h>

#include "core/analysis/onnx.h"

/* Facts about all values that share one memory. */
typedef struct memory {
    uint32_t parent;     /* union-find over the classes of the alias analysis; 0 = it is a root, element 0 being none */
    uint32_t last_write; /* 1 + ordinal; 0 = never written */
    bool is_given;       /* an input or parameter is in it */
    bool is_returned;
} memory;

struct fb_sharing {
    const fb_alias *alias;
    memory *memories;
};

void fb_sharing_free(fb_sharing *sharing) {
    if (!sharing) return;
    free(sharing->memories);
    free(sharing);
}

static uint32_t root_of(const fb_sharing *sharing, fb_node value) {
    memory *memories = sharing->memories;
    uint32_t id = fb_memory_of(sharing->alias, value);
    for (uint32_t parent; (parent = memories[id].parent); id = parent) {
        if (memories[parent].parent) memories[id].parent = memories[parent].parent;
    }
    return id;
}

/* Most memories do not concern it, and are not touched. */
static void add_node(fb_sharing *sharing, const fb_graph *graph, fb_node node) {
    const fb_node_row *row = fb_node_at(graph, node);
    bool is_given = row->opcode == FB_PLACEHOLDER || row->opcode == FB_GET_ATTR;
    uint32_t last_write = fb_last_write(sharing->alias, node);
    if (is_given || last_write) {
        memory *own = &sharing->memories[fb_memory_of(sharing->alias, node)];
        own->is_given |= is_given;
        own->last_write = last_write;
    }
    if (row->opcode != FB_OUTPUT) return;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        sharing->memories[fb_memory_of(sharing->alias, fb_edge_input(graph, edge))].is_returned = true;
    }
}

fb_sharing *fb_sharing_new(const fb_graph *graph, const fb_usage *usage, const fb_alias *alias, fb_work *work) {
    fb_sharing *sharing = calloc(1, sizeof *sharing);
    if (!sharing) return NULL;
    sharing->alias = alias;
    sharing->memories = calloc(fb_memory_limit(alias), sizeof *sharing->memories);
    if (!sharing->memories) {
        fb_sharing_free(sharing);
        return NULL;
    }
    fb_node_list list = fb_usage_nodes(usage);
    bool is_written = fb_any_is_mutated(alias), goes_on = true; /* else calls of operators give and return nothing */
    for (size_t i = 0; i < list.count && (goes_on = fb_work_goes_on(work, 8)); i++)
        if (is_written || list.ops[i] == FB_OP_UNKNOWN) add_node(sharing, graph, list.nodes[i]);
    for (uint32_t p = FB_MAIN_PROGRAM.id + 1; p < fb_programs_to_clean(graph) && goes_on; p++)
        for (fb_node n = fb_first_node(graph, (fb_program){p}); n.id && (goes_on = fb_work_goes_on(work, 8));
             n = fb_next_node(graph, n))
            add_node(sharing, graph, n);
    if (goes_on) return sharing;
    fb_sharing_free(sharing);
    return NULL;
}

fb_share_verdict fb_may_share(const fb_sharing *sharing, fb_node a, fb_node b, uint32_t since) {
    uint32_t root = root_of(sharing, a), other_root = root_of(sharing, b);
    const memory *one = &sharing->memories[root], *other = &sharing->memories[other_root];
    if (one->last_write > since + 1 || other->last_write > since + 1) return FB_SHARE_WRITTEN;
    if (root == other_root) return one->is_returned ? FB_SHARE_RETURNED : FB_MAY_SHARE;
    bool is_seen_twice = (one->is_returned && (other->is_returned || other->is_given)) || (one->is_given && other->is_returned);
    return is_seen_twice ? FB_SHARE_RETURNED : FB_MAY_SHARE;
}

void fb_share(fb_sharing *sharing, fb_node a, fb_node b) {
    uint32_t into = root_of(sharing, a), from = root_of(sharing, b);
    if (into == from) return;
    memory *kept = &sharing->memories[into], *gone = &sharing->memories[from];
    gone->parent = into;
    if (gone->last_write > kept->last_write) kept->last_write = gone->last_write;
    kept->is_given |= gone->is_given;
    kept->is_returned |= gone->is_returned;
}
