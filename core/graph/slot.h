/* Where tensors are owned: the parameters and buffers of modules. */
#ifndef FB_GRAPH_SLOT_H
#define FB_GRAPH_SLOT_H

#include "core/base/buffer.h"
#include "core/graph/graph.h"

typedef struct fb_slot {
    fb_module module;
    bool is_buffer; /* else a parameter */
    const char *attribute;
    fb_tensor tensor;
} fb_slot;

/* Every slot that has a tensor, in the order of the document: start with a zeroed cursor and call until false comes back. */
typedef struct fb_slot_cursor {
    bool is_started, is_buffer;
    fb_module module;
    uint32_t index;
} fb_slot_cursor;
bool fb_slot_next(const fb_graph *graph, fb_slot_cursor *cursor, fb_slot *slot);

/* Appends the owner's path: "encoder.0.query.weight". */
void fb_slot_path(const fb_graph *graph, const fb_slot *slot, fb_buffer *out);
/* The tensor that an owner's path leads to, or none. */
fb_tensor fb_tensor_at_path(const fb_graph *graph, const char *path);
/* The same, or else the tensor of that name. */
fb_tensor fb_tensor_called(const fb_graph *graph, const char *name);
/* True if a checkpoint has it: not when it is a buffer that its module names in `non_persistent`. */
bool fb_slot_is_persistent(const fb_graph *graph, const fb_slot *slot);

#endif
