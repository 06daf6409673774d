/* The journal of changes to a graph: the rows that they overwrote, as they were. */
#ifndef FB_REWRITE_JOURNAL_H
#define FB_REWRITE_JOURNAL_H

#include "core/base/arena.h"
#include "core/graph/build.h"

typedef struct fb_journal {
    fb_graph *graph;
    fb_graph_mark start;
    fb_value metadata; /* of the graph */
    fb_arena memory;
    struct fb_saved_row *saved;                        /* newest first */
    bool *nodes_saved, *modules_saved, *tensors_saved; /* by id: only what a row was first is needed */
} fb_journal;

/* False when memory is out; then it needs no fb_journal_free. */
bool fb_journal_begin(fb_journal *journal, fb_graph *graph);
/* Saves a row before it changes, unless it is saved already; none is fine. False when memory is out: then it must not change.
 */
bool fb_journal_node(fb_journal *journal, fb_node node);
bool fb_journal_module(fb_journal *journal, fb_module module);
bool fb_journal_tensor(fb_journal *journal, fb_tensor tensor);
/* Has nothing changed that undoing would put back? */
bool fb_journal_is_empty(const fb_journal *journal);
/* Puts every saved row back and forgets the rows added since. Allocates nothing. */
void fb_journal_undo(fb_journal *journal);
void fb_journal_free(fb_journal *journal);

#endif
