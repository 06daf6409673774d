/* The tensors of an output, in the order of torch.utils._pytree: dicts as they were filled. */
#include <stdlib.h>

#include "core/base/buffer.h"
#include "core/evaluator/evaluator.h"

static void flatten(const fb_object *object, fb_buffer *arrays) {
    if (object->kind == FB_OBJECT_ARRAY) {
        fb_buffer_append(arrays, &object->array, sizeof object->array);
        if (!arrays->failed) fb_array_keep(object->array);
    } else if (object->kind == FB_OBJECT_DICT) {
        for (size_t i = 1; i < object->items->count; i += 2) flatten(&object->items->objects[i], arrays);
    } else if (fb_object_is_sequence(object)) {
        for (size_t i = 0; i < object->items->count; i++) flatten(&object->items->objects[i], arrays);
    }
}

fb_status fb_flatten_output(const fb_object *output, fb_array ***items, size_t *count, fb_error *error) {
    fb_buffer arrays = {0};
    flatten(output, &arrays);
    *count = arrays.size / sizeof(fb_array *);
    *items = (fb_array **)(void *)arrays.data;
    if (!arrays.failed) return FB_OK;
    for (size_t i = 0; i < *count; i++) fb_array_drop((*items)[i]);
    fb_buffer_free(&arrays);
    return fb_fail_memory(error);
}
