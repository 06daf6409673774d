#include "core/analysis/constant.h"

#include "core/graph/slot.h"

bool fb_reads_bytes(const fb_graph *graph, fb_node read, fb_tensor *tensor) {
    const fb_node_row *row = fb_node_at(graph, read);
    if (row->opcode != FB_GET_ATTR || !row->module.id || !row->attribute.id) return false;
    fb_slot slot = {.module = row->module, .attribute = fb_text(graph, row->attribute)};
    slot.tensor = fb_module_tensor(graph, slot.module, slot.attribute);
    slot.is_buffer = fb_map_value(graph, fb_module_at(graph, slot.module)->buffers, slot.attribute).id != 0;
    *tensor = slot.tensor;
    return slot.tensor.id && fb_tensor_at(graph, slot.tensor)->data.id && !fb_slot_is_persistent(graph, &slot);
}

bool fb_reads_constant(const fb_graph *graph, const fb_alias *alias, fb_node read, fb_tensor *tensor) {
    return fb_reads_bytes(graph, read, tensor) && !fb_tensor_is_mutated(alias, *tensor);
}
