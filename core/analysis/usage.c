/* Counting pass over all programs and modules. */
#include "core/analysis/usage.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/view.h"
#include "core/base/map.h"

struct fb_usage {
    const fb_graph *graph;
    fb_node *nodes; /* of the main program */
    fb_op *ops;
    size_t node_count;
    uint32_t *call_count; /* by module */
    fb_node *first_call, *last_call;
    fb_node *next_call; /* by node: the next call of the same module */
    bool *is_read;      /* by module */
    uint32_t *readers;  /* by module: of its get_attr nodes */
    bool *is_inside_call;
    uint64_t seed;         /* of the hashes of paths */
    bool calls_containers; /* a module is called that may have modules inside */
};

void fb_usage_free(fb_usage *usage) {
    if (!usage) return;
    free(usage->nodes);
    free(usage->ops);
    free(usage->call_count);
    free(usage->first_call);
    free(usage->last_call);
    free(usage->next_call);
    free(usage->is_read);
    free(usage->readers);
    free(usage->is_inside_call);
    free(usage);
}

static bool is_container(const fb_graph *graph, fb_module module) {
    fb_op op = fb_module_op(graph, module);
    return op == FB_OP_UNKNOWN || (fb_op_facts_of(op)->flags & FB_FACT_CONTAINER);
}

static void count_node(fb_usage *usage, fb_node node) {
    const fb_node_row *row = fb_node_at(usage->graph, node);
    uint32_t module = row->module.id;
    if (!module) return;
    if (row->opcode == FB_GET_ATTR) {
        usage->is_read[module] = true;
        usage->readers[module] += row->user_count;
    }
    if (row->opcode != FB_CALL_MODULE) return;
    if (usage->call_count[module]++ == 0) {
        usage->first_call[module] = node;
        usage->calls_containers |= is_container(usage->graph, row->module);
    } else {
        usage->next_call[usage->last_call[module].id] = node;
    }
    usage->last_call[module] = node;
}

static void list_node(fb_usage *usage, fb_node node) {
    usage->nodes[usage->node_count] = node;
    usage->ops[usage->node_count++] = fb_node_op(usage->graph, node);
}

/* ---- modules inside a called one ------------------------------------------------------------------------------------- */

/* FNV-1a, because it gives the hash of every prefix of a path on the way. */
static uint64_t extend_hash(uint64_t hash, char byte) {
    return (hash ^ (unsigned char)byte) * 0x100000001b3U;
}

static bool prefix_is_called_container(const fb_usage *usage, const fb_map *containers, uint64_t hash, const char *path,
                                       size_t length) {
    uint32_t cursor = 0;
    for (uint32_t id; (id = fb_map_next(containers, hash, &cursor));) {
        fb_symbol other = fb_module_at(usage->graph, (fb_module){id})->path;
        if (fb_text_length(usage->graph, other) == length && memcmp(fb_text(usage->graph, other), path, length) == 0)
            return true;
    }
    return false;
}

static bool is_inside(const fb_usage *usage, const fb_map *containers, fb_symbol path_symbol) {
    const char *path = fb_text(usage->graph, path_symbol);
    uint64_t hash = usage->seed;
    for (size_t i = 0; path[i]; i++) {
        if (path[i] == '.' && prefix_is_called_container(usage, containers, hash, path, i)) return true;
        hash = extend_hash(hash, path[i]);
    }
    return false;
}

static bool find_insides(fb_usage *usage) {
    if (!usage->calls_containers) return true;
    const fb_graph *graph = usage->graph;
    fb_map containers = {0};
    bool ok = true;
    for (fb_module m = fb_first_module(graph); ok && m.id; m = fb_module_at(graph, m)->next) {
        if (!usage->call_count[m.id] || !is_container(graph, m)) continue;
        uint64_t hash = usage->seed;
        for (const char *c = fb_text(graph, fb_module_at(graph, m)->path); *c; c++) hash = extend_hash(hash, *c);
        ok = fb_map_add(&containers, hash, m.id);
    }
    for (fb_module m = fb_first_module(graph); ok && m.id; m = fb_module_at(graph, m)->next) {
        usage->is_inside_call[m.id] = is_inside(usage, &containers, fb_module_at(graph, m)->path);
    }
    fb_map_free(&containers);
    return ok;
}

fb_usage *fb_usage_new(const fb_graph *graph) {
    size_t modules = (size_t)fb_module_limit(graph) + 1, nodes = (size_t)fb_node_limit(graph) + 1;
    fb_usage *usage = calloc(1, sizeof *usage);
    if (!usage) return NULL;
    usage->graph = graph;
    usage->seed = fb_hash(&usage, sizeof usage, 0);
    usage->nodes = malloc((fb_node_count(graph) + 1) * sizeof *usage->nodes);
    usage->ops = malloc((fb_node_count(graph) + 1) * sizeof *usage->ops);
    usage->call_count = calloc(modules, sizeof *usage->call_count);
    usage->first_call = calloc(modules, sizeof *usage->first_call);
    usage->last_call = calloc(modules, sizeof *usage->last_call);
    usage->next_call = calloc(nodes, sizeof *usage->next_call);
    usage->is_read = calloc(modules, sizeof *usage->is_read);
    usage->readers = calloc(modules, sizeof *usage->readers);
    usage->is_inside_call = calloc(modules, sizeof *usage->is_inside_call);
    if (!usage->nodes || !usage->ops || !usage->call_count || !usage->first_call || !usage->last_call || !usage->next_call ||
        !usage->is_read || !usage->readers || !usage->is_inside_call) {
        fb_usage_free(usage);
        return NULL;
    }
    for (uint32_t p = FB_MAIN_PROGRAM.id; p < fb_program_limit(graph); p++) {
        for (fb_node n = fb_first_node(graph, (fb_program){p}); n.id; n = fb_next_node(graph, n)) {
            count_node(usage, n);
            if (p == FB_MAIN_PROGRAM.id) list_node(usage, n);
        }
    }
    if (!find_insides(usage)) {
        fb_usage_free(usage);
        return NULL;
    }
    return usage;
}

fb_node_list fb_usage_nodes(const fb_usage *usage) {
    return (fb_node_list){usage->nodes, usage->ops, usage->node_count};
}

uint32_t fb_call_count(const fb_usage *usage, fb_module module) {
    return usage->call_count[module.id];
}

fb_node fb_first_call(const fb_usage *usage, fb_module module) {
    return usage->first_call[module.id];
}

fb_node fb_next_call(const fb_usage *usage, fb_node call) {
    return usage->next_call[call.id];
}

bool fb_module_is_read(const fb_usage *usage, fb_module module) {
    return usage->is_read[module.id];
}

uint32_t fb_module_readers(const fb_usage *usage, fb_module module) {
    return usage->readers[module.id];
}

bool fb_module_is_inside_call(const fb_usage *usage, fb_module module) {
    return usage->is_inside_call[module.id];
}

fb_module fb_called_around(const fb_graph *g, const fb_usage *usage, fb_module module) {
    fb_symbol path = fb_module_at(g, module)->path;
    const char *text = fb_text(g, path);
    for (size_t length = fb_text_length(g, path); length > 0; length--) {
        if (text[length - 1] != '.') continue;
        fb_symbol around = fb_symbol_find(g, text, length - 1);
        fb_module found = around.id ? fb_module_find(g, fb_text(g, around)) : (fb_module){0};
        if (found.id && fb_call_count(usage, found)) return found;
    }
    return (fb_module){0};
}

fb_module fb_deciding_module(const fb_graph *g, const fb_usage *usage, fb_module module) {
    return fb_call_count(usage, module) ? module : fb_called_around(g, usage, module);
}
