/* The difference of two graphs, as a list of edits that is data: it can be shown, applied, and inverted.
 *
 * Names identify nodes and tensors, and paths identify modules. Applying diff(a, b) to a gives b, byte for byte; so does the
 * inverse applied to b give a. Edits are applied in their order; `before` and `was_before` are what follows the place at that
 * moment. */
#ifndef FB_DIFF_DIFF_H
#define FB_DIFF_DIFF_H

#include "core/base/arena.h"
#include "core/base/work.h"
#include "core/diff/text.h"
#include "core/graph/graph.h"

typedef enum fb_document_table { FB_GRAPH_TABLE, FB_NODE_TABLE, FB_MODULE_TABLE, FB_TENSOR_TABLE, FB_TABLES } fb_document_table;

typedef enum fb_edit_kind {
    FB_EDIT_INSERT,
    FB_EDIT_ERASE,
    FB_EDIT_MOVE,
    FB_EDIT_SET,
} fb_edit_kind;

/* A member that differs: absent `was` = it is added, absent `now` = it is taken away. Arguments are compared one by one where
 * there are as many, keyword arguments and the other maps where the keys are the same in the same order (or the map is a sorted
 * one); else the list or map is one member ("/args"). */
typedef struct fb_member_edit {
    const char *pointer; /* into the row: "/args/1" */
    fb_span was, now;
} fb_member_edit;

typedef struct fb_edit {
    fb_document_table table;
    fb_edit_kind kind;
    const char *name;        /* of the row: node's name, module's path, tensor's name; "" for the graph */
    fb_span row;             /* insert, erase: the row's canonical text */
    const char *before;      /* insert, erase, move: the row behind it, NULL = the end */
    const char *was_before;  /* move */
    fb_member_edit *members; /* set */
    size_t member_count;
} fb_edit;

typedef struct fb_diff {
    fb_edit *edits;
    size_t count;
    fb_arena arena; /* texts and members */
} fb_diff;

/* The edits that make `to` from `from`: per table erasures, then moves and insertions from the last to the first, then members.
 * As few moves as can be. Time and memory linear in the graphs' size, but for moved rows (n log n). FB_NO_MEMORY; what `work`
 * is stopped with. */
fb_status fb_diff_make(const fb_graph *from, const fb_graph *to, fb_work *work, fb_diff *out, fb_error *error);
void fb_diff_free(fb_diff *diff);
/* How many edits that would be, counted no further than `most`; in little memory. */
fb_status fb_diff_count(const fb_graph *from, const fb_graph *to, size_t most, fb_work *work, size_t *count, fb_error *error);

/* Appends the edits as a JSON array:
 *
 *     {"edit": "insert_node", "node": {…}, "before": "name" or null}
 *     {"edit": "erase_node", "node": {…}, "before": "name" or null}
 *     {"edit": "move_node", "name": "x", "before": "name" or null, "was": "name" or null}
 *     {"edit": "set_node", "name": "x", "was": {"/args/1": 8}, "now": {"/args/1": 0.125}}
 *     {"edit": "set_module", "path": "q", "was": null, "now": {…}, "before": "path" or null}      put in; taken out: now null
 *     {"edit": "set_module", "path": "q", "was": {"/config/bias": true}, "now": {"/config/bias": false}}
 *     {"edit": "move_module", "path": "q", "before": …, "was": …}
 *     set_tensor, move_tensor likewise, with "name"
 *     {"edit": "set_graph", "was": {"/name": "a"}, "now": {"/name": "b"}}
 *
 * In `was` and `now` a pointer that is missing is a member that is absent there. False: fb_work_failed says why. */
bool fb_diff_write(const fb_diff *diff, fb_work *work, fb_buffer *out);

/* ---- The difference of two rows, member by member. ---------------------------------------------------------------------- */

/* The members in which two rows of a table differ, in the arena, texts and pointers too; none when the rows are equal. False
 * when memory is out. */
bool fb_members_compare(fb_document_table table, fb_span was, fb_span now, fb_arena *arena, fb_member_edit **out,
                        size_t *count);

#endif
