#include "core/eval/object.h"

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
    else if (has_items(object)) object->items->references++;
}

/* Objects nest as deep as documents do, which is bounded. */
void fb_object_drop(fb_object *object) {
    if (object->kind == FB_OBJECT_ARRAY) {
        fb_array_drop(object->array);
    } else if (has_items(object) && --object->items->references == 0) {
        for (size_t i = 0; i < object->items->count; i++) fb_object_drop(&object->items->objects[i]);
        free(object->items->objects);
        free(object->items);
    }
    *object = (fb_object){.kind = FB_OBJECT_NONE};
}

fb_status fb_object_sequence(fb_object_kind kind, size_t count, fb_object *out, fb_error *error) {
    fb_items *items = malloc(sizeof *items);
    fb_object *objects = calloc(count ? count : 1, sizeof *objects);
    if (!items || !objects) {
        free(items);
        free(objects);
        return fb_fail_memory(error);
    }
    *items = (fb_items){1, count, objects};
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
