#include "core/evaluator/object.h"

#include <stdlib.h>

static bool has_items(const fb_object *object) {
    switch (object->kind) {
    case FB_OBJECT_SLICE:
    case FB_OBJECT_LIST:
    case FB_OBJECT_TUPLE:
    case FB_OBJECT_DICT: return true;
    default: return false;
    }
}

void fb_object_keep(const fb_object *object) {
    if (object->kind == FB_OBJECT_ARRAY) fb_array_keep(object->array);
    else if (object->kind == FB_OBJECT_WEIGHT) object->weight->references++;
    else if (has_items(object)) object->items->references++;
}

typedef struct extent {
    uint32_t depth, count;
    bool has_complex;
} extent;

static extent extent_of(const fb_object *object) {
    extent all = {0, 1, object->kind == FB_OBJECT_ARRAY && fb_dtype_is_complex(object->array->dtype)};
    if (!has_items(object)) return all;
    fb_items *items = object->items;
    for (size_t i = 0; i < items->count && !items->total; i++) {
        extent item = extent_of(&items->objects[i]);
        if (item.depth > all.depth) all.depth = item.depth;
        all.has_complex |= item.has_complex;
        if (__builtin_add_overflow(all.count, item.count, &all.count)) all.count = UINT32_MAX;
    }
    if (!items->total) {
        items->depth = all.depth + 1;
        items->total = all.count;
        items->has_complex = all.has_complex;
    }
    return (extent){items->depth, items->total, items->has_complex};
}

bool fb_object_has_complex(const fb_object *object) {
    return extent_of(object).has_complex;
}

fb_status fb_object_check(const fb_object *object, fb_error *error) {
    extent all = extent_of(object);
    if (all.depth <= FB_OBJECT_DEPTH && all.count <= FB_OBJECT_COUNT) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "evaluation-too-large", NULL,
                   "a value has more than %d items, or is nested more than %d deep", FB_OBJECT_COUNT, FB_OBJECT_DEPTH);
}

/* Objects nest no deeper than FB_OBJECT_DEPTH and what an argument adds, which is bounded by the document's depth. */
void fb_object_drop(fb_object *object) {
    if (object->kind == FB_OBJECT_ARRAY) {
        fb_array_drop(object->array);
    } else if (object->kind == FB_OBJECT_WEIGHT) {
        if (--object->weight->references == 0) fb_weight_close(object->weight);
    } else if (has_items(object) && --object->items->references == 0) {
        for (size_t i = 0; i < object->items->count; i++) fb_object_drop(&object->items->objects[i]);
        free(object->items->objects);
        free(object->items);
    }
    *object = (fb_object){.kind = FB_OBJECT_NONE};
}

fb_status fb_object_sequence(fb_object_kind kind, size_t count, fb_object *out, fb_error *error) {
    *out = (fb_object){.kind = FB_OBJECT_NONE}; /* who fails drops it */
    fb_items *items = malloc(sizeof *items);
    fb_object *objects = calloc(count ? count : 1, sizeof *objects);
    if (!items || !objects) {
        free(items);
        free(objects);
        return fb_fail_memory(error);
    }
    *items = (fb_items){.references = 1, .count = count, .objects = objects};
    *out = (fb_object){.kind = kind, .items = items};
    return FB_OK;
}

bool fb_object_number(const fb_object *object, double *number) {
    switch (object->kind) {
    case FB_OBJECT_BOOL: *number = object->boolean; return true;
    case FB_OBJECT_INT: *number = (double)object->integer; return true;
    case FB_OBJECT_FLOAT: *number = object->number; return true;
    default: return false;
    }
}

bool fb_object_int(const fb_object *object, int64_t *integer) {
    switch (object->kind) {
    case FB_OBJECT_BOOL: *integer = object->boolean; return true;
    case FB_OBJECT_INT: *integer = object->integer; return true;
    case FB_OBJECT_ARRAY:
        if (fb_array_count(object->array) != 1 || fb_dtype_is_floating(object->array->dtype)) return false;
        *integer = fb_array_int(object->array, 0);
        return true;
    default: return false;
    }
}
