#include "core/rewrite/journal.h"

#include <string.h>

typedef struct entry_tail { /* follows the saved bytes, so that the journal can be read backwards */
    uint32_t id, size;
    char table; /* 'n', 'm', 't' */
} entry_tail;

void fb_journal_begin(fb_journal *journal, fb_graph *graph) {
    *journal = (fb_journal){.graph = graph, .start = fb_graph_mark_now(graph)};
}

static bool save(fb_journal *journal, char table, uint32_t id, const void *row, size_t size) {
    entry_tail tail = {.id = id, .size = (uint32_t)size, .table = table};
    char *to = fb_buffer_reserve(&journal->entries, size + sizeof tail);
    if (!to) return false;
    memcpy(to, row, size);
    memcpy(to + size, &tail, sizeof tail);
    journal->entries.size += size + sizeof tail;
    return true;
}

bool fb_journal_node(fb_journal *journal, fb_node node) {
    if (!node.id || node.id >= journal->start.nodes) return true; /* a new row is forgotten as a whole */
    return save(journal, 'n', node.id, fb_node_at(journal->graph, node), sizeof(fb_node_row));
}

bool fb_journal_module(fb_journal *journal, fb_module module) {
    if (!module.id || module.id >= journal->start.modules) return true;
    return save(journal, 'm', module.id, fb_module_at(journal->graph, module), sizeof(fb_module_row));
}

bool fb_journal_tensor(fb_journal *journal, fb_tensor tensor) {
    if (!tensor.id || tensor.id >= journal->start.tensors) return true;
    return save(journal, 't', tensor.id, fb_tensor_at(journal->graph, tensor), sizeof(fb_tensor_row));
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
}
