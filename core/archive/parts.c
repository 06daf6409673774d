#include "core/archive/parts.h"

#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/base/grow.h"
#include "core/weights/recipe.h"

fb_status fb_parts_add(fb_parts *parts, fb_part added, fb_error *error) {
    if (!FB_GROW(parts->items, parts->count, parts->capacity)) {
        free(added.text);
        return fb_fail_memory(error);
    }
    added.start = parts->size;
    parts->size += added.size;
    parts->items[parts->count++] = added;
    return FB_OK;
}

void fb_parts_free(fb_parts *parts) {
    fb_evaluation_free(parts->evaluation);
    for (size_t i = 0; i < parts->count; i++) free(parts->items[i].text);
    free(parts->items);
    *parts = (fb_parts){0};
}

fb_status fb_parts_evaluate(fb_parts *parts, fb_tensor tensor, fb_evaluation **out, fb_error *error) {
    fb_graph *graph = parts->graph;
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    size_t rank = fb_tensor_format(graph, tensor) == FB_FORMAT_UNSAID ? 0 : fb_value_at(graph, row->shape)->count;
    if (!rank) return fb_evaluation_new(graph, tensor, parts->blobs, out, error);
    int64_t dims[5] = {0};
    for (size_t i = 1; i < rank; i++) dims[i] = i + 1 == rank ? 1 : (int64_t)i + 1;
    fb_value turned = fb_recipe_permute(graph, fb_recipe_tensor(graph, tensor), dims, rank);
    return turned.id ? fb_evaluation_of(graph, turned, (fb_dtype)row->dtype, parts->blobs, out, error) : fb_fail_memory(error);
}

static fb_status read_part(fb_parts *parts, size_t index, uint64_t at, unsigned char *to, size_t size, fb_error *error) {
    const fb_part *from = &parts->items[index];
    if (from->text || from->range) {
        memcpy(to, from->text ? (const unsigned char *)from->text + at : from->range + at, size);
        return FB_OK;
    }
    if (!parts->evaluation || parts->open != index) {
        fb_evaluation_free(parts->evaluation);
        parts->evaluation = NULL;
        fb_status status = fb_parts_evaluate(parts, from->tensor, &parts->evaluation, error);
        if (status) return status;
        parts->open = index;
    }
    return fb_evaluation_read(parts->evaluation, at, to, size, error);
}

fb_status fb_parts_read(fb_parts *parts, uint64_t offset, void *to, size_t size, fb_error *error) {
    size_t low = 0, high = parts->count;
    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;
        if (parts->items[middle].start <= offset) low = middle;
        else high = middle;
    }
    unsigned char *next = to;
    for (size_t i = low; size; i++) {
        const fb_part *from = &parts->items[i];
        uint64_t at = offset - from->start, left = from->size - at;
        size_t now = left < size ? (size_t)left : size;
        fb_status status = now ? read_part(parts, i, at, next, now, error) : FB_OK;
        if (status) return status;
        next += now;
        offset += now;
        size -= now;
    }
    return FB_OK;
}
