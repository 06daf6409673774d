#include "core/rewrite/internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct fb_saved_row {
    struct fb_saved_row *next;
    void *row; /* where it was, and is to be again */
    size_t size;
    uint64_t bytes[];
} fb_saved_row;

bool fb_journal_begin(fb_journal *journal, fb_graph *graph) {
    *journal = (fb_journal){.graph = graph, .start = fb_graph_mark_now(graph), .metadata = fb_graph_metadata(graph)};
    journal->nodes_saved = calloc((size_t)journal->start.nodes + 1, sizeof(bool));
    journal->modules_saved = calloc((size_t)journal->start.modules + 1, sizeof(bool));
    journal->tensors_saved = calloc((size_t)journal->start.tensors + 1, sizeof(bool));
    bool ok = journal->nodes_saved && journal->modules_saved && journal->tensors_saved;
    if (!ok) fb_journal_free(journal);
    return ok;
}

static bool save(fb_journal *journal, bool *is_saved, void *row, size_t size) {
    if (*is_saved) return true;
    fb_saved_row *saved = fb_arena_alloc(&journal->memory, sizeof *saved + size);
    if (!saved) return false;
    *saved = (fb_saved_row){.next = journal->saved, .row = row, .size = size};
    memcpy(saved->bytes, row, size);
    journal->saved = saved;
    *is_saved = true;
    return true;
}

/* A new row is forgotten as a whole, and none is nothing. */
static bool is_new_or_none(uint32_t id, uint32_t start) {
    return !id || id >= start;
}

bool fb_journal_node(fb_journal *journal, fb_node node) {
    return is_new_or_none(node.id, journal->start.nodes) ||
           save(journal, &journal->nodes_saved[node.id], fb_node_row_at(journal->graph, node), sizeof(fb_node_row));
}

bool fb_journal_module(fb_journal *journal, fb_module module) {
    return is_new_or_none(module.id, journal->start.modules) ||
           save(journal, &journal->modules_saved[module.id], fb_module_row_at(journal->graph, module), sizeof(fb_module_row));
}

bool fb_journal_tensor(fb_journal *journal, fb_tensor tensor) {
    return is_new_or_none(tensor.id, journal->start.tensors) ||
           save(journal, &journal->tensors_saved[tensor.id], fb_tensor_row_at(journal->graph, tensor), sizeof(fb_tensor_row));
}

bool fb_journal_is_empty(const fb_journal *journal) {
    fb_graph_mark now = fb_graph_mark_now(journal->graph);
    return !journal->saved && memcmp(&now, &journal->start, sizeof now) == 0 && !fb_graph_out_of_memory(journal->graph) &&
           fb_graph_metadata(journal->graph).id == journal->metadata.id;
}

void fb_journal_undo(fb_journal *journal) {
    for (const fb_saved_row *saved = journal->saved; saved; saved = saved->next) memcpy(saved->row, saved->bytes, saved->size);
    if (fb_graph_metadata(journal->graph).id != journal->metadata.id) fb_graph_set_metadata(journal->graph, journal->metadata);
    fb_graph_restore(journal->graph, journal->start);
}

void fb_journal_free(fb_journal *journal) {
    fb_arena_free(&journal->memory);
    free(journal->nodes_saved);
    free(journal->modules_saved);
    free(journal->tensors_saved);
}
