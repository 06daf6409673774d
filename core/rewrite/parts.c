/* Modules and tensors under a rewrite. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/analysis/memory_layout.h"
#include "core/rewrite/internal.h"
#include "core/weights/recipe.h"

/* The row to write to, journalled; NULL after a failure. */
static fb_module_row *change(fb_rewrite *rewrite, fb_module module) {
    if (fb_rewrite_is_failed(rewrite) || !module.id) return NULL;
    if (!fb_rewrite_save(rewrite, fb_journal_module(&rewrite->journal, module))) return NULL;
    return fb_module_row_at(rewrite->graph, module);
}

/* Room for one name after the other. */
static fb_buffer *begin_name(fb_rewrite *rewrite) {
    rewrite->name.size = 0;
    return &rewrite->name;
}

/* The name as a symbol; none, and the failure recorded, when memory is out. */
static fb_symbol intern(fb_rewrite *rewrite, const fb_buffer *name) {
    fb_symbol symbol = name->failed ? (fb_symbol){0} : fb_intern_bytes(rewrite->graph, name->data, name->size);
    if (!symbol.id) fb_fail_memory(&rewrite->error);
    return symbol;
}

/* `name`, or name_1, name_2 … where that is taken. */
static fb_symbol free_symbol(fb_rewrite *rewrite, fb_buffer *name, bool (*is_taken)(const fb_graph *, fb_symbol)) {
    size_t length = name->size;
    fb_symbol symbol = intern(rewrite, name);
    for (unsigned number = 1; symbol.id && is_taken(rewrite->graph, symbol); number++) {
        name->size = length;
        fb_buffer_printf(name, "_%u", number);
        symbol = intern(rewrite, name);
    }
    return symbol;
}

static bool is_path_taken(const fb_graph *graph, fb_symbol path) {
    return fb_graph_module_named(graph, path).id != 0;
}

static bool is_name_taken(const fb_graph *graph, fb_symbol name) {
    return fb_graph_tensor_named(graph, name).id != 0;
}

fb_module fb_put_module(fb_rewrite *rewrite, fb_module after, const char *path, const char *type, fb_value config,
                        bool training) {
    fb_module none = {0};
    fb_graph *graph = rewrite->graph;
    if (!path) fb_fail_memory(&rewrite->error);
    if (fb_rewrite_is_failed(rewrite)) return none;
    fb_buffer *name = begin_name(rewrite);
    fb_buffer_string(name, path);
    fb_symbol symbol = free_symbol(rewrite, name, is_path_taken), type_symbol = fb_intern(graph, type);
    if (!symbol.id || !type_symbol.id || !config.id) return none;
    if (!fb_rewrite_save(rewrite, fb_journal_module(&rewrite->journal, after) &&
                                      fb_journal_module(&rewrite->journal, fb_module_at(graph, after)->next))) {
        return none;
    }
    fb_module module = fb_graph_add_module(graph, symbol, after);
    if (!module.id) return none;
    fb_graph_set_module_type(graph, module, type_symbol);
    fb_module_row *row = fb_module_row_at(graph, module);
    row->config = config;
    row->training = training;
    return module;
}

void fb_set_config(fb_rewrite *rewrite, fb_module module, const char *key, fb_value value) {
    if (value.id && fb_module_config(rewrite->graph, module, key).id == value.id) return;
    fb_module_row *row = change(rewrite, module);
    if (!row) return;
    fb_value config = fb_sorted_map_with(rewrite->graph, row->config, key, value);
    if (config.id) row->config = config;
    else fb_fail_memory(&rewrite->error);
}

void fb_set_module(fb_rewrite *rewrite, fb_module module, const char *type, fb_value config) {
    fb_symbol symbol = fb_intern(rewrite->graph, type);
    fb_module_row *row = change(rewrite, module);
    if (!row) return;
    if (!config.id) fb_fail_memory(&rewrite->error);
    if (fb_rewrite_is_failed(rewrite)) return;
    fb_graph_set_module_type(rewrite->graph, module, symbol);
    row->config = config;
}

static void note_unowned(void *context, fb_tensor tensor) {
    fb_rewrite *rewrite = context;
    fb_buffer_append(&rewrite->unowned, &tensor, sizeof tensor);
    if (rewrite->unowned.failed) fb_fail_memory(&rewrite->error);
}

/* The tensors of a map, or one alone, lose an owner. */
static void release_tensors(fb_rewrite *rewrite, fb_value value) {
    if (value.id) fb_value_visit_tensors(rewrite->graph, value, note_unowned, rewrite);
}

static void release_all_tensors(fb_rewrite *rewrite, const fb_module_row *row) {
    release_tensors(rewrite, row->parameters);
    release_tensors(rewrite, row->buffers);
}

/* In the map that has the name; what is new is a parameter, or a buffer if that is said. */
static void set_owned(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value value, bool is_buffer) {
    fb_module_row *row = change(rewrite, module);
    if (!row) return;
    fb_value *maps[] = {&row->parameters, &row->buffers}, *map = maps[is_buffer];
    fb_value before = fb_map_value(rewrite->graph, *maps[!is_buffer], attribute);
    if (before.id) map = maps[!is_buffer];
    else before = fb_map_value(rewrite->graph, *map, attribute);
    release_tensors(rewrite, before);
    fb_value now = fb_map_with(rewrite->graph, *map, attribute, value);
    if (now.id) *map = now;
    else fb_fail_memory(&rewrite->error);
}

static void set_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value value) {
    set_owned(rewrite, module, attribute, value, false);
}

void fb_clear_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute) {
    set_parameter(rewrite, module, attribute, fb_make_none(rewrite->graph));
}

void fb_drop_attribute(fb_rewrite *rewrite, fb_module module, const char *attribute) {
    fb_module_row *row = change(rewrite, module);
    if (!row) return;
    fb_value *maps[] = {&row->parameters, &row->buffers, &row->attributes};
    for (int i = 0; i < 3; i++) {
        fb_value before = fb_map_value(rewrite->graph, *maps[i], attribute);
        if (!before.id) continue;
        release_tensors(rewrite, before);
        fb_value map = fb_map_with(rewrite->graph, *maps[i], attribute, (fb_value){0});
        if (map.id) *maps[i] = map;
        else fb_fail_memory(&rewrite->error);
    }
    if (row->attributes.id == FB_VALUE_EMPTY_MAP.id) row->attributes = (fb_value){0};
}

/* The map without these keys, by symbol. */
static fb_value without(fb_graph *graph, fb_value map, const fb_map *gone) {
    const fb_value_row *row = fb_value_at(graph, map);
    fb_value *items = malloc((row->count + 1) * sizeof *items);
    uint32_t count = 0;
    for (uint32_t i = 0; items && i + 1 < row->count; i += 2) {
        if (fb_map_get(gone, fb_value_at(graph, row->items[i])->symbol.id)) continue;
        items[count++] = row->items[i];
        items[count++] = row->items[i + 1];
    }
    fb_value made = !items                ? fb_graph_fail_memory(graph)
                    : count == row->count ? map
                                          : fb_make_items(graph, FB_MAP, (fb_symbol){0}, items, count);
    free(items);
    return made;
}

void fb_drop_attributes(fb_rewrite *rewrite, fb_module module, const fb_map *gone) {
    fb_module_row *row = change(rewrite, module);
    if (!row) return;
    fb_value *maps[] = {&row->parameters, &row->buffers, &row->attributes};
    release_all_tensors(rewrite, row);
    for (int i = 0; i < 3; i++) {
        fb_value map = maps[i]->id ? without(rewrite->graph, *maps[i], gone) : *maps[i];
        if (map.id || !maps[i]->id) *maps[i] = map;
        else fb_fail_memory(&rewrite->error);
    }
    if (row->attributes.id == FB_VALUE_EMPTY_MAP.id) row->attributes = (fb_value){0};
}

void fb_drop_module(fb_rewrite *rewrite, fb_module module) {
    const fb_module_row *row = change(rewrite, module);
    if (!row) return;
    if (!fb_rewrite_save(rewrite, fb_journal_module(&rewrite->journal, row->previous) &&
                                      fb_journal_module(&rewrite->journal, row->next))) {
        return;
    }
    release_all_tensors(rewrite, row);
    fb_graph_erase_module(rewrite->graph, module);
}

void fb_drop_program(fb_rewrite *rewrite, fb_module module) {
    fb_graph *graph = rewrite->graph;
    fb_program program = fb_module_at(graph, module)->program;
    rewrite->is_renumbered = true;
    for (fb_node n = fb_last_node(graph, program), previous; n.id && !fb_rewrite_is_failed(rewrite); n = previous) {
        const fb_node_row *row = fb_node_at(graph, n);
        previous = row->previous;
        if (fb_rewrite_save(rewrite, fb_journal_node(&rewrite->journal, n) &&
                                         fb_journal_node(&rewrite->journal, row->previous) &&
                                         fb_journal_node(&rewrite->journal, row->next)))
            fb_graph_erase_node(graph, n);
    }
    fb_drop_module(rewrite, module);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

static void first_tensor(void *context, fb_tensor tensor) {
    fb_tensor *first = context;
    if (!first->id) *first = tensor;
}

/* "path.attribute", with @ and the signature's first 8 digits when that is taken. */
static fb_symbol tensor_name(fb_rewrite *rewrite, fb_module module, const char *attribute) {
    fb_buffer *name = begin_name(rewrite);
    fb_symbol path = fb_module_at(rewrite->graph, module)->path;
    fb_buffer_append(name, fb_text(rewrite->graph, path), fb_text_length(rewrite->graph, path));
    if (name->size) fb_buffer_char(name, '.');
    fb_buffer_string(name, attribute);
    fb_symbol symbol = intern(rewrite, name);
    if (symbol.id && is_name_taken(rewrite->graph, symbol)) {
        fb_buffer_char(name, '@');
        fb_buffer_append(name, rewrite->signature, 8);
        symbol = free_symbol(rewrite, name, is_name_taken);
    }
    return symbol;
}

/* A new tensor, named after the module and attribute that are to own it; behind all others where `after` is none. */
static fb_tensor place_tensor(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_tensor after) {
    fb_tensor none = {0};
    fb_graph *graph = rewrite->graph;
    fb_symbol name = tensor_name(rewrite, module, attribute);
    if (!name.id) return none;
    fb_tensor previous = after.id ? after : fb_last_tensor(graph);
    if (previous.id &&
        !fb_rewrite_save(rewrite, fb_journal_tensor(&rewrite->journal, previous) &&
                                      fb_journal_tensor(&rewrite->journal, fb_tensor_at(graph, previous)->next))) {
        return none;
    }
    return fb_graph_add_tensor(graph, name, after);
}

static void set_format(fb_rewrite *rewrite, fb_tensor tensor, fb_value format) {
    fb_tensor_row *row = fb_tensor_row_at(rewrite->graph, tensor);
    fb_value rest = fb_sorted_map_with(rewrite->graph, row->rest.id ? row->rest : FB_VALUE_EMPTY_MAP, "memory_format", format);
    if (rest.id) row->rest = rest;
    else fb_fail_memory(&rewrite->error);
}

void fb_set_memory_format(fb_rewrite *rewrite, fb_tensor tensor, const char *format) {
    char text[32];
    int length = snprintf(text, sizeof text, "\"%s\"", format);
    if (fb_rewrite_is_failed(rewrite) || !fb_rewrite_save(rewrite, fb_journal_tensor(&rewrite->journal, tensor))) return;
    set_format(rewrite, tensor, fb_make_text(rewrite->graph, FB_RAW, text, (size_t)length));
}

/* One that a recipe computes. */
static fb_tensor add_tensor(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value recipe, fb_dtype dtype,
                            bool requires_grad) {
    fb_tensor none = {0};
    fb_graph *graph = rewrite->graph;
    if (fb_rewrite_is_failed(rewrite) || !module.id) return none;
    fb_recipe_type type;
    if (!recipe.id) {
        fb_fail_memory(&rewrite->error);
        return none;
    }
    if (fb_recipe_type_of(graph, recipe, &type, &rewrite->error) != FB_OK) return none;
    fb_tensor after = {0};
    fb_value_visit_tensors(graph, recipe, first_tensor, &after);
    fb_tensor tensor = place_tensor(rewrite, module, attribute, after);
    if (!tensor.id) return none;
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    row->shape = fb_make_shape(graph, type.sizes, (size_t)type.rank);
    row->dtype = (uint8_t)(dtype ? dtype : type.dtype);
    row->recipe = recipe;
    row->requires_grad = requires_grad;
    /* Also of a kernel of 1 x 1, which has both orders: PyTorch lays a convolution's result out as its strides are. */
    fb_value rest = after.id ? fb_tensor_at(graph, after)->rest : (fb_value){0};
    fb_value format = rest.id ? fb_map_value(graph, rest, "memory_format") : (fb_value){0};
    if (format.id && fb_shape_rank(graph, fb_tensor_at(graph, after)->shape) == type.rank) set_format(rewrite, tensor, format);
    return tensor;
}

fb_tensor fb_put_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value recipe, fb_dtype dtype,
                           bool requires_grad) {
    fb_tensor tensor = add_tensor(rewrite, module, attribute, recipe, dtype, requires_grad);
    if (tensor.id) set_parameter(rewrite, module, attribute, fb_make_tensor(rewrite->graph, tensor));
    return fb_rewrite_is_failed(rewrite) ? (fb_tensor){0} : tensor;
}

fb_tensor fb_put_weight(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value recipe, fb_dtype dtype,
                        bool requires_grad) {
    fb_tensor tensor = add_tensor(rewrite, module, attribute, recipe, dtype, requires_grad);
    if (!tensor.id) return tensor;
    fb_dtype made = (fb_dtype)fb_tensor_at(rewrite->graph, tensor)->dtype;
    bool is_buffer = !fb_dtype_is_floating(made) && !fb_dtype_is_complex(made);
    set_owned(rewrite, module, attribute, fb_make_tensor(rewrite->graph, tensor), is_buffer);
    return fb_rewrite_is_failed(rewrite) ? (fb_tensor){0} : tensor;
}

/* The map without what the edits name. Room for `extra` more. */
static fb_value *items_left(const fb_graph *graph, fb_value map, const fb_map *named, size_t extra, size_t *count) {
    size_t had = map.id ? fb_value_at(graph, map)->count : 0;
    fb_value *items = malloc((had + extra + 1) * sizeof *items);
    *count = 0;
    for (size_t i = 0; items && i < had; i += 2) {
        fb_value key = fb_value_item(graph, map, i);
        if (fb_map_get(named, key.id)) continue;
        items[(*count)++] = key;
        items[(*count)++] = fb_value_item(graph, map, i + 1);
    }
    return items;
}

void fb_change_parameters(fb_rewrite *rewrite, fb_module module, const fb_parameter_change *changes, size_t count) {
    fb_graph *graph = rewrite->graph;
    fb_map named = {0};
    size_t left = 0, kept = 0;
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) ok = fb_map_put(&named, fb_make_string(graph, changes[i].attribute).id, 1);
    fb_module_row *row = change(rewrite, module);
    fb_value *parameters = row ? items_left(graph, row->parameters, &named, 2 * count, &left) : NULL;
    fb_value *buffers = row ? items_left(graph, row->buffers, &named, 0, &kept) : NULL;
    ok &= parameters && buffers;
    for (size_t i = 0; i < count && ok && !fb_rewrite_is_failed(rewrite); i++) {
        const fb_parameter_change *one = &changes[i];
        if (!one->recipe.id) continue;
        fb_tensor tensor = add_tensor(rewrite, module, one->attribute, one->recipe, FB_DTYPE_UNKNOWN, one->requires_grad);
        parameters[left++] = fb_make_string(graph, one->attribute);
        parameters[left++] = tensor.id ? fb_make_tensor(graph, tensor) : (fb_value){0};
    }
    bool is_failed = !ok || fb_rewrite_is_failed(rewrite);
    fb_value now = is_failed ? (fb_value){0} : fb_make_items(graph, FB_MAP, (fb_symbol){0}, parameters, left);
    fb_value now_buffers = is_failed ? now : fb_make_items(graph, FB_MAP, (fb_symbol){0}, buffers, kept);
    if (now.id && now_buffers.id) {
        row = fb_module_row_at(graph, module);
        release_all_tensors(rewrite, row);
        row->parameters = now;
        row->buffers = now_buffers;
    } else if (!fb_rewrite_is_failed(rewrite)) {
        fb_fail_memory(&rewrite->error);
    }
    free(parameters);
    free(buffers);
    fb_map_free(&named);
}

static fb_tensor add_constant(fb_rewrite *rewrite, fb_module module, const fb_constant *constant) {
    fb_graph *graph = rewrite->graph;
    fb_tensor tensor =
        fb_rewrite_is_failed(rewrite) ? (fb_tensor){0} : place_tensor(rewrite, module, constant->attribute, (fb_tensor){0});
    if (!tensor.id) return tensor;
    fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
    row->shape = fb_make_shape(graph, constant->sizes, (size_t)constant->rank);
    row->dtype = (uint8_t)constant->dtype;
    row->data = fb_intern_bytes(graph, constant->base64, constant->length);
    return tensor;
}

/* The items of a list or map, with room for `extra` more. */
static fb_value *items_of(const fb_graph *graph, fb_value value, size_t extra, size_t *count) {
    *count = value.id ? fb_value_at(graph, value)->count : 0;
    fb_value *items = malloc((*count + extra + 1) * sizeof *items);
    for (size_t i = 0; items && i < *count; i++) items[i] = fb_value_item(graph, value, i);
    return items;
}

void fb_put_constants(fb_rewrite *rewrite, fb_module module, const fb_constant *constants, size_t count) {
    fb_graph *graph = rewrite->graph;
    fb_module_row *row = count ? change(rewrite, module) : NULL; /* of none there is no empty list */
    if (!row) return;
    size_t owned, named;
    fb_value *buffers = items_of(graph, row->buffers, 2 * count, &owned);
    fb_value *names = items_of(graph, row->non_persistent, count, &named);
    for (size_t i = 0; i < count && buffers && names; i++) {
        fb_tensor tensor = add_constant(rewrite, module, &constants[i]);
        fb_value name = fb_make_string(graph, constants[i].attribute);
        buffers[owned++] = names[named++] = name;
        buffers[owned++] = tensor.id ? fb_make_tensor(graph, tensor) : (fb_value){0};
    }
    bool is_failed = !buffers || !names || fb_rewrite_is_failed(rewrite);
    fb_value now = is_failed ? (fb_value){0} : fb_make_items(graph, FB_MAP, (fb_symbol){0}, buffers, owned);
    fb_value listed = now.id ? fb_make_list(graph, names, named) : now;
    if (listed.id) {
        row = fb_module_row_at(graph, module);
        row->buffers = now;
        row->non_persistent = listed;
    } else if (!fb_rewrite_is_failed(rewrite)) {
        fb_fail_memory(&rewrite->error);
    }
    free(buffers);
    free(names);
}

void fb_tie_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_tensor tensor) {
    if (!fb_rewrite_is_failed(rewrite)) set_parameter(rewrite, module, attribute, fb_make_tensor(rewrite->graph, tensor));
}

/* ---- tensors that nothing needs any more -------------------------------------------------------------------------------- */

typedef struct sweep {
    const fb_graph *graph;
    bool *is_read;
    fb_tensor *stack; /* tensors whose recipe is still to be read */
    size_t depth;
} sweep;

static void keep(void *context, fb_tensor tensor) {
    sweep *s = context;
    if (s->is_read[tensor.id]) return;
    s->is_read[tensor.id] = true;
    s->stack[s->depth++] = tensor;
}

static void erase_tensor(fb_rewrite *rewrite, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(rewrite->graph, tensor);
    if (fb_rewrite_save(rewrite, fb_journal_tensor(&rewrite->journal, tensor) &&
                                     fb_journal_tensor(&rewrite->journal, row->previous) &&
                                     fb_journal_tensor(&rewrite->journal, row->next))) {
        fb_graph_erase_tensor(rewrite->graph, tensor);
    }
}

/* Do new weights read all tensors that have lost an owner? Most do: W is what W * g is made of. */
static bool new_tensors_read_all(const fb_rewrite *rewrite, sweep *s, const fb_tensor *unowned, size_t count) {
    uint32_t first = rewrite->journal.start.tensors, limit = fb_tensor_limit(rewrite->graph);
    bool is_read = true;
    for (size_t i = 0; i < count; i++) s->is_read[unowned[i].id] = true;
    for (uint32_t id = first; id < limit; id++)
        if (!s->is_read[id]) s->stack[s->depth++] = (fb_tensor){id};
    for (size_t i = 0; i < count; i++) s->is_read[unowned[i].id] = false;
    while (s->depth) {
        fb_tensor tensor = s->stack[--s->depth];
        if (tensor.id >= first) fb_value_visit_tensors(s->graph, fb_tensor_at(s->graph, tensor)->recipe, keep, s);
    }
    for (size_t i = 0; i < count && is_read; i++) is_read = s->is_read[unowned[i].id];
    memset(s->is_read, 0, limit * sizeof *s->is_read);
    return is_read;
}

void fb_drop_unread_tensors(fb_rewrite *rewrite) {
    fb_graph *graph = rewrite->graph;
    uint32_t limit = fb_tensor_limit(graph);
    const fb_tensor *unowned = (const fb_tensor *)(const void *)rewrite->unowned.data;
    size_t count = rewrite->unowned.size / sizeof *unowned;
    if (!count) return;
    sweep s = {.graph = graph, .is_read = calloc(limit, sizeof *s.is_read), .stack = malloc(2 * limit * sizeof *s.stack)};
    if (s.is_read && s.stack && !new_tensors_read_all(rewrite, &s, unowned, count)) {
        for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next) {
            fb_value_visit_tensors(graph, fb_module_at(graph, m)->parameters, keep, &s);
            fb_value_visit_tensors(graph, fb_module_at(graph, m)->buffers, keep, &s);
        }
        while (s.depth) fb_value_visit_tensors(graph, fb_tensor_at(graph, s.stack[--s.depth])->recipe, keep, &s);
        for (fb_tensor t = fb_first_tensor(graph), next; t.id && !fb_rewrite_is_failed(rewrite); t = next) {
            next = fb_tensor_at(graph, t)->next;
            if (!s.is_read[t.id]) erase_tensor(rewrite, t);
        }
    } else if (!s.is_read || !s.stack) {
        fb_fail_memory(&rewrite->error);
    }
    free(s.is_read);
    free(s.stack);
}
