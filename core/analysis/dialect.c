#include "core/analysis/dialect.h"

const fb_dialect_facts *fb_dialect_facts_of(const fb_graph *graph) {
    static const fb_dialect_facts torch = {0};
    static const fb_dialect_facts onnx = {
        .has_bytes = true, .has_one_owner = true, .has_split = true, .has_names = true, .has_matmul = true};
    return fb_graph_is_onnx(graph) ? &onnx : &torch;
}
