#include "core/analysis/same_call.h"

#include "core/analysis/onnx.h"
#include "core/base/map.h"

static uint32_t stands_for(const fb_same_call *same, fb_node node) {
    fb_node now = same->now[node.id];
    return now.id ? now.id : node.id;
}

static uint64_t mix(uint64_t hash, uint64_t number) {
    return fb_hash(&number, sizeof number, hash);
}

/* A value without nodes is equal to itself alone. */
static uint64_t hash_value(const fb_same_call *same, fb_value value, uint64_t hash) {
    const fb_value_row *row = value.id ? fb_value_at(same->graph, value) : NULL;
    if (!row || !row->has_nodes) return mix(hash, value.id);
    if (row->kind == FB_NODE) return mix(hash, (uint64_t)stands_for(same, fb_value_node(same->graph, value)) << 32);
    hash = mix(hash, (uint64_t)row->kind << 32 | row->count);
    for (uint32_t i = 0; i < row->count; i++) hash = hash_value(same, row->items[i], hash);
    return hash;
}

static bool are_equal(const fb_same_call *same, fb_value a, fb_value b) {
    if (a.id == b.id) return true;
    if (!a.id || !b.id) return false;
    const fb_value_row *one = fb_value_at(same->graph, a), *other = fb_value_at(same->graph, b);
    if (!one->has_nodes || !other->has_nodes || one->kind != other->kind) return false;
    if (one->kind == FB_NODE)
        return stands_for(same, fb_value_node(same->graph, a)) == stands_for(same, fb_value_node(same->graph, b));
    if (one->count != other->count || one->symbol.id != other->symbol.id) return false;
    for (uint32_t i = 0; i < one->count; i++) {
        if (!are_equal(same, one->items[i], other->items[i])) return false;
    }
    return true;
}

uint64_t fb_call_hash(const fb_same_call *same, fb_node node) {
    const fb_node_row *row = fb_node_at(same->graph, node);
    uint64_t hash = mix(same->seed, (uint64_t)row->opcode << 32 | row->target.id);
    hash = mix(hash, (uint64_t)row->dtype << 32 | row->shape.id);
    if (fb_graph_is_onnx(same->graph)) hash = mix(hash, (uint64_t)fb_onnx_results(same->graph, node));
    return hash_value(same, row->kwargs, hash_value(same, row->args, hash));
}

bool fb_calls_are_same(const fb_same_call *same, fb_node a, fb_node b) {
    const fb_node_row *one = fb_node_at(same->graph, a), *other = fb_node_at(same->graph, b);
    return one->opcode == other->opcode && one->target.id == other->target.id && one->dtype == other->dtype &&
           one->shape.id == other->shape.id && are_equal(same, one->args, other->args) &&
           are_equal(same, one->kwargs, other->kwargs) &&
           (!fb_graph_is_onnx(same->graph) || fb_onnx_results(same->graph, a) == fb_onnx_results(same->graph, b));
}
