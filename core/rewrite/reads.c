/* get_attr nodes under a rewrite, and the attributes that they read. */
#include <string.h>

#include "core/analysis/usage.h"
#include "core/analysis/view.h"
#include "core/base/sort.h"
#include "core/rewrite/internal.h"

static uint64_t attribute_key(const fb_node_row *row) {
    return (uint64_t)row->module.id << 32 | row->attribute.id;
}

/* How many get_attr nodes of all programs read each attribute. */
static bool count_readers(const fb_graph *graph, fb_map *readers) {
    bool ok = true;
    for (uint32_t p = FB_MAIN_PROGRAM.id; ok && p < fb_program_limit(graph); p++) {
        for (fb_node n = fb_first_node(graph, (fb_program){p}); ok && n.id; n = fb_next_node(graph, n)) {
            const fb_node_row *row = fb_node_at(graph, n);
            if (row->opcode != FB_GET_ATTR || !row->attribute.id) continue;
            uint64_t key = attribute_key(row);
            ok = fb_map_put(readers, key, fb_map_get(readers, key) + 1);
        }
    }
    return ok;
}

bool fb_is_only_read(fb_rewrite *rewrite, fb_node read) {
    const fb_node_row *row = fb_node_at(rewrite->graph, read);
    if (!rewrite->readers_known) {
        if (!count_readers(rewrite->graph, &rewrite->readers)) fb_fail_memory(&rewrite->error);
        rewrite->readers_known = true;
    }
    return row->user_count == 1 && fb_map_get(&rewrite->readers, attribute_key(row)) == 1;
}

fb_node fb_insert_read(fb_rewrite *rewrite, fb_node before, fb_module owner, const char *attribute) {
    fb_node none = {0};
    if (fb_rewrite_is_failed(rewrite) || !owner.id) return none;
    fb_graph *graph = rewrite->graph;
    fb_tensor tensor = fb_module_tensor(graph, owner, attribute);
    if (!tensor.id) return none;
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_buffer target = {0};
    fb_module around = fb_program_at(graph, fb_node_at(graph, before)->program)->owner; /* which its targets are below */
    const char *path = fb_text(graph, fb_module_at(graph, owner)->path);
    if (around.id) path += fb_text_length(graph, fb_module_at(graph, around)->path);
    fb_buffer_string(&target, *path == '.' ? path + 1 : path);
    if (target.size) fb_buffer_char(&target, '.');
    fb_buffer_string(&target, attribute);
    const char *text = fb_buffer_text(&target);
    if (!text) fb_fail_memory(&rewrite->error);
    fb_node read = text ? fb_insert_typed(rewrite, before, FB_GET_ATTR, text, FB_VALUE_EMPTY_LIST, (fb_value){0}, row->shape,
                                          (fb_dtype)row->dtype)
                        : none;
    fb_buffer_free(&target);
    if (!read.id || !rewrite->readers_known) return read;
    uint64_t key = attribute_key(fb_node_at(graph, read));
    if (!fb_map_put(&rewrite->readers, key, fb_map_get(&rewrite->readers, key) + 1)) fb_fail_memory(&rewrite->error);
    return read;
}

void fb_release_read(fb_rewrite *rewrite, fb_node read) {
    if (fb_rewrite_is_failed(rewrite) || !read.id) return;
    fb_buffer_append(&rewrite->released, &read, sizeof read);
    if (rewrite->released.failed) fb_fail_memory(&rewrite->error);
}

void fb_release_reads(fb_rewrite *rewrite, fb_node node) {
    const fb_graph *graph = rewrite->graph;
    for (uint32_t edge = fb_input_first(graph, node); edge; edge = fb_input_next(graph, edge)) {
        fb_node input = fb_edge_input(graph, edge);
        fb_node read, transposition;
        fb_tensor matrix;
        if (fb_node_at(graph, input)->opcode == FB_GET_ATTR) fb_release_read(rewrite, input);
        else if (fb_matrix_read_by_node(graph, input, &read, &transposition, &matrix)) {
            fb_erase_unread(rewrite, transposition);
            fb_release_read(rewrite, read);
        }
    }
}

/* ---- at commit --------------------------------------------------------------------------------------------------------- */

/* Erases the released get_attr nodes that nothing reads. False when there are none. */
static bool erase_unread(fb_rewrite *rewrite, const fb_node *released, size_t count) {
    fb_graph *graph = rewrite->graph;
    bool any = false;
    for (size_t i = 0; i < count; i++) {
        const fb_node_row *row = fb_node_at(graph, released[i]);
        if (row->is_erased || row->user_count) continue;
        if (!fb_rewrite_save(rewrite, fb_journal_node(&rewrite->journal, released[i]) &&
                                          fb_journal_node(&rewrite->journal, row->previous) &&
                                          fb_journal_node(&rewrite->journal, row->next))) {
            return false;
        }
        rewrite->is_renumbered = true;
        fb_graph_erase_node(graph, released[i]);
        any = true;
    }
    return any;
}

/* It owns nothing but names that are null: so it is not valid in any case. */
static bool is_empty(const fb_graph *graph, const fb_module_row *row) {
    return !fb_value_at(graph, row->parameters)->has_tensors && !fb_value_at(graph, row->buffers)->has_tensors &&
           !row->attributes.id && !row->program.id && fb_text_length(graph, row->path) > 0;
}

typedef struct released_attribute {
    fb_module module;
    fb_symbol attribute;
} released_attribute;

static int by_module(const void *a, const void *b) {
    uint32_t one = ((const released_attribute *)a)->module.id, other = ((const released_attribute *)b)->module.id;
    return (one > other) - (one < other);
}

/* Releases attributes of one module at once: it may own as many as there are nodes. */
static void release_attributes(fb_rewrite *rewrite, const released_attribute *list, size_t count) {
    fb_graph *graph = rewrite->graph;
    const fb_module_row *row = fb_module_at(graph, list->module);
    if (row->is_erased || fb_module_op(graph, list->module) != FB_OP_UNKNOWN) return; /* a known type has what it has */
    fb_map gone = {0};
    bool ok = true;
    for (size_t i = 0; i < count && ok; i++) ok = fb_map_put(&gone, list[i].attribute.id, 1);
    const fb_value_row *kept = row->non_persistent.id ? fb_value_at(graph, row->non_persistent) : NULL;
    for (uint32_t i = 0; kept && i < kept->count; i++) fb_map_remove(&gone, fb_value_at(graph, kept->items[i])->symbol.id);
    if (!ok) fb_fail_memory(&rewrite->error);
    else fb_drop_attributes(rewrite, list->module, &gone);
    fb_map_free(&gone);
    if (!fb_rewrite_is_failed(rewrite) && is_empty(graph, row)) fb_drop_module(rewrite, list->module);
}

void fb_drop_released(fb_rewrite *rewrite) {
    const fb_node *released = (const fb_node *)(const void *)rewrite->released.data;
    size_t count = rewrite->released.size / sizeof *released;
    if (!erase_unread(rewrite, released, count)) return;
    fb_map readers = {0};
    fb_buffer gone = {0};
    fb_usage *usage = fb_usage_new(rewrite->graph);
    if (!usage || !count_readers(rewrite->graph, &readers)) fb_fail_memory(&rewrite->error);
    for (size_t i = 0; i < count && !fb_rewrite_is_failed(rewrite); i++) {
        const fb_node_row *row = fb_node_at(rewrite->graph, released[i]);
        if (!row->is_erased || fb_map_get(&readers, attribute_key(row))) continue;
        if (fb_call_count(usage, row->module) || fb_module_is_inside_call(usage, row->module)) continue;
        fb_buffer_append(&gone, &(released_attribute){row->module, row->attribute}, sizeof(released_attribute));
    }
    if (gone.failed) fb_fail_memory(&rewrite->error);
    released_attribute *list = (released_attribute *)(void *)gone.data;
    size_t left = gone.size / sizeof *list;
    if (left) fb_sort(list, left, sizeof *list, by_module);
    for (size_t i = 0, end; i < left && !fb_rewrite_is_failed(rewrite); i = end) {
        for (end = i + 1; end < left && list[end].module.id == list[i].module.id;) end++;
        release_attributes(rewrite, list + i, end - i);
    }
    fb_buffer_free(&gone);
    fb_usage_free(usage);
    fb_map_free(&readers);
}
