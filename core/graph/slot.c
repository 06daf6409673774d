#include "core/graph/slot.h"

#include <string.h>

#include "core/graph/build.h"

bool fb_slot_next(const fb_graph *graph, fb_slot_cursor *cursor, fb_slot *slot) {
    if (!cursor->is_started) {
        cursor->is_started = true;
        cursor->module = fb_first_module(graph);
    }
    while (cursor->module.id) {
        const fb_module_row *module = fb_module_at(graph, cursor->module);
        const fb_value_row *map = fb_value_at(graph, cursor->is_buffer ? module->buffers : module->parameters);
        while (cursor->index + 1 < map->count) {
            uint32_t i = cursor->index;
            cursor->index += 2;
            fb_tensor tensor = fb_value_tensor(graph, map->items[i + 1]);
            if (!tensor.id) continue;
            *slot = (fb_slot){.module = cursor->module,
                              .is_buffer = cursor->is_buffer,
                              .attribute = fb_value_text(graph, map->items[i]),
                              .tensor = tensor};
            return true;
        }
        cursor->index = 0;
        if (cursor->is_buffer) cursor->module = module->next;
        cursor->is_buffer = !cursor->is_buffer;
    }
    return false;
}

void fb_slot_path(const fb_graph *graph, const fb_slot *slot, fb_buffer *out) {
    fb_symbol path = fb_module_at(graph, slot->module)->path;
    fb_buffer_append(out, fb_text(graph, path), fb_text_length(graph, path));
    if (fb_text_length(graph, path)) fb_buffer_char(out, '.');
    fb_buffer_string(out, slot->attribute);
}

fb_tensor fb_tensor_at_path(const fb_graph *graph, const char *path) {
    fb_tensor none = {0};
    const char *dot = strrchr(path, '.'); /* attributes have none */
    if (dot == path) return none;
    fb_symbol owner = fb_symbol_find(graph, path, dot ? (size_t)(dot - path) : 0);
    fb_module module = owner.id ? fb_graph_module_named(graph, owner) : (fb_module){0};
    return module.id ? fb_module_tensor(graph, module, dot ? dot + 1 : path) : none;
}

fb_tensor fb_tensor_called(const fb_graph *graph, const char *name) {
    fb_tensor owned = fb_tensor_at_path(graph, name);
    return owned.id ? owned : fb_tensor_find(graph, name);
}

bool fb_slot_is_persistent(const fb_graph *graph, const fb_slot *slot) {
    fb_value names = fb_module_at(graph, slot->module)->non_persistent;
    return !slot->is_buffer || !fb_value_has_text(graph, names, slot->attribute);
}
