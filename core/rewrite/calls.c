/* Modules that have lost their last call. */
#include "core/analysis/usage.h"
#include "core/rewrite/internal.h"

void fb_release_call(fb_rewrite *rewrite, fb_node node) {
    const fb_node_row *row = fb_node_at(rewrite->graph, node);
    if (fb_rewrite_is_failed(rewrite) || row->opcode != FB_CALL_MODULE) return;
    fb_buffer_append(&rewrite->uncalled, &row->module, sizeof row->module);
    if (rewrite->uncalled.failed) fb_fail_memory(&rewrite->error);
}

void fb_erase_call(fb_rewrite *rewrite, fb_node node) {
    fb_erase(rewrite, node);
    fb_release_call(rewrite, node);
}

void fb_erase_unread(fb_rewrite *rewrite, fb_node node) {
    if (fb_rewrite_is_failed(rewrite)) return;
    fb_buffer_append(&rewrite->pending, &(pending_node){node, node}, sizeof(pending_node));
    if (rewrite->pending.failed) fb_fail_memory(&rewrite->error);
    fb_release_call(rewrite, node);
}

/* As the verifier sees it: a module that owns nothing is there to be called, or read. */
static bool owns_something(const fb_graph *graph, const fb_module_row *row) {
    return row->attributes.id || fb_value_at(graph, row->parameters)->has_tensors ||
           fb_value_at(graph, row->buffers)->has_tensors;
}

static bool is_used(const fb_graph *graph, const fb_usage *usage, fb_module module) {
    const fb_module_row *row = fb_module_at(graph, module);
    if (fb_call_count(usage, module) || fb_module_is_read(usage, module) || row->program.id) return true;
    return fb_module_is_inside_call(usage, module) && owns_something(graph, row);
}

void fb_drop_uncalled(fb_rewrite *rewrite) {
    const fb_module *modules = (const fb_module *)(const void *)rewrite->uncalled.data;
    size_t count = rewrite->uncalled.size / sizeof *modules;
    if (!count) return;
    fb_usage *usage = fb_usage_new(rewrite->graph);
    if (!usage) fb_fail_memory(&rewrite->error);
    for (size_t i = 0; i < count && !fb_rewrite_is_failed(rewrite); i++) {
        bool is_dropped = fb_module_at(rewrite->graph, modules[i])->is_erased;
        if (!is_dropped && !is_used(rewrite->graph, usage, modules[i])) fb_drop_module(rewrite, modules[i]);
    }
    fb_usage_free(usage);
}
