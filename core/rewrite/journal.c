#include "core/rewrite/journal.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry_tail { /* follows the saved bytes, so that the journal can be read backwards */
    uint32_t id, size;
    char table; /* 'n', 'm', 't' */
} entry_tail;

bool fb_journal_begin(fb_journal *journal, fb_graph *graph) {
    *journal = (fb_journal){.graph = graph, .start = fb_graph_mark_now(graph)};
    journal->nodes_saved = calloc((size_t)journal->start.nodes + 1, sizeof(bool));
    journal->modules_saved = calloc((size_t)journal->start.modules + 1, sizeof(bool));
    journal->tensors_saved = calloc((size_t)journal->start.tensors + 1, sizeof(bool));
    bool ok = journal->nodes_saved && journal->modules_saved && journal->tensors_saved;
    if (!ok) fb_journal_free(journal);
    return ok;
}

static bool save(fb_journal *journal, bool *is_saved, char table, uint32_t id, const void *row, size_t size) {
    if (*is_saved) return true;
    entry_tail tail = {.id = id, .size = (uint32_t)size, .table = table};
    char *to = fb_buffer_reserve(&journal->entries, size + sizeof tail);
    if (!to) return false;
    memcpy(to, row, size);
    memcpy(to + size, &tail, sizeof tail);
    journal->entries.size += size + sizeof tail;
    *is_saved = true;
    return true;
}

/* A new row is forgotten as a whole, and none is nothing. */
static bool is_new_or_none(uint32_t id, uint32_t start) {
    return !id || id >= start;
}

bool fb_journal_node(fb_journal *journal, fb_node node) {
    return is_new_or_none(node.id, journal->start.nodes) ||
           save(journal, &journal->nodes_saved[node.id], 'n', node.id, fb_node_at(journal->graph, node), sizeof(fb_node_row));
}

bool fb_journal_module(fb_journal *journal, fb_module module) {
    return is_new_or_none(module.id, journal->start.modules) ||
           save(journal, &journal->modules_saved[module.id], 'm', module.id, fb_module_at(journal->graph, module),
                sizeof(fb_module_row));
}

bool fb_journal_tensor(fb_journal *journal, fb_tensor tensor) {
    return is_new_or_none(tensor.id, journal->start.tensors) ||
           save(journal, &journal->tensors_saved[tensor.id], 't', tensor.id, fb_tensor_at(journal->graph, tensor),
                sizeof(fb_tensor_row));
}

static void *row_of(fb_graph *graph, char table, uint32_t id) {
    if (table == 'n') return fb_node_row_at(graph, (fb_node){id});
    if (table == 'm') return fb_module_row_at(graph, (fb_module){id});
    return fb_tensor_row_at(graph, (fb_tensor){id});
}

void fb_journal_undo(fb_journal *journal) {
    const char *bytes = journal->entries.data;
    for (size_t at = journal->entries.size; at > 0;) {
        entry_tail tail;
        memcpy(&tail, bytes + at - sizeof tail, sizeof tail);
        at -= sizeof tail + tail.size;
        memcpy(row_of(journal->graph, tail.table, tail.id), bytes + at, tail.size);
    }
    fb_graph_restore(journal->graph, journal->start);
}

void fb_journal_free(fb_journal *journal) {
    fb_buffer_free(&journal->entries);
    free(journal->nodes_saved);
    free(journal->modules_saved);
    free(journal->tensors_saved);
}
