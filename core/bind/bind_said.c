/* Which tensor of the graph a file says that its tensor is: what weights_file.c wrote into it.
 *
 * A tensor of the graph is the one that is said if it has its name and its recipe. One without a recipe has been given bytes
 * since, and its name is enough. */
#include <stdlib.h>
#include <string.h>

#include "core/bind/bind_internal.h"
#include "core/weights/inputs.h"
#include "core/weights/weights_file.h"

static fb_status refuse_metadata(const fb_binder *b, const fb_bind_file *file) {
    char pointer[40];
    snprintf(pointer, sizeof pointer, "/weights/%zu", file->position);
    return fb_fail(b->error, FB_INVALID, "bad-safetensors", pointer,
                   FB_WEIGHTS_TENSORS " in the file's metadata is not an object of names; remove it, and say as");
}

/* The graph's tensor that the file says; none = the graph lacks it. */
static fb_status find_said(const fb_binder *b, const char *name, const char *recipe, fb_tensor *out) {
    char id[FB_ID_LENGTH + 1];
    fb_tensor tensor = fb_tensor_find(b->graph, name);
    fb_value own = tensor.id ? fb_tensor_at(b->graph, tensor)->recipe : (fb_value){0};
    bool is_same = tensor.id && (!own.id || !recipe);
    if (tensor.id && !is_same) {
        if (!fb_recipe_id(b->graph, own, id)) return fb_fail_memory(b->error);
        is_same = strcmp(id, recipe) == 0;
    }
    *out = is_same ? tensor : (fb_tensor){0};
    return FB_OK;
}

static fb_status refuse_unknown(const fb_binder *b, const fb_given *given, const char *name) {
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "the file says that its \"%.200s\" is %.200s of another graph, which this one does not have; bind it to the "
                   "graph that it was written for, or pass as: finished if this graph's modules own it",
                   given->entry->name, name);
}

static fb_status contradict(const fb_binder *b, const fb_given *given) {
    return fb_fail(b->error, FB_CONFLICT, "ambiguous-weights", "",
                   "the file says that its \"%.200s\" is this graph's %.200s, and the request that it is another; leave as out",
                   given->entry->name, fb_tensor_name(b->graph, given->said));
}

static fb_status read_one(const fb_binder *b, fb_given *given, const json_t *tensors) {
    const json_t *item = json_object_get(tensors, given->entry->name);
    const char *name = json_string_value(json_array_get(item, 0)), *recipe = json_string_value(json_array_get(item, 1));
    if (item && !name) return refuse_metadata(b, &b->files[given->file]);
    if (!name) name = given->entry->name;
    fb_status status = find_said(b, name, recipe, &given->said);
    if (status) return status;
    bool is_finished = b->options.as == FB_WEIGHTS_FINISHED, is_original = b->options.as == FB_WEIGHTS_ORIGINAL;
    if (!given->said.id) {
        bool is_known = given->by_name.id || given->by_path.id;
        return is_known && !is_finished ? refuse_unknown(b, given, name) : FB_OK;
    }
    bool is_other = is_finished && given->by_path.id && given->by_path.id != given->said.id;
    bool is_later = is_original && recipe && fb_tensor_at(b->graph, given->said)->recipe.id;
    return is_other || is_later ? contradict(b, given) : FB_OK;
}

static fb_status read_file(fb_binder *b, size_t index) {
    const fb_bind_file *file = &b->files[index];
    const char *text = json_string_value(json_object_get(file->header.metadata, FB_WEIGHTS_TENSORS));
    bool is_contradicted = file->is_finished && b->options.as && b->options.as != FB_WEIGHTS_FINISHED;
    if (!text || is_contradicted) return FB_OK; /* bind_choose.c refuses */
    json_t *tensors = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    fb_status status = json_is_object(tensors) ? FB_OK : refuse_metadata(b, file);
    for (size_t i = 0; i < b->given_count && !status; i++) {
        if (b->given[i].file == index) status = read_one(b, &b->given[i], tensors);
    }
    json_decref(tensors);
    return status;
}

fb_status fb_bind_read_said(fb_binder *b) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < b->file_count && !status; i++) status = read_file(b, i);
    return status;
}
