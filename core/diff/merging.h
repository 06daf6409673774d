/* A merge under way. For the merge's files alone.
 *
 *     merge.c          the edits of base -> theirs, done to the rows of ours
 *     merge_checkpoint.c  where nothing is computed: that edits find the whole of what they take apart
 *     merge_users.c    nodes of ours that read what is erased or computes something else now
 *     merge_values.c   what undoing takes for granted of what lies between old inputs and new ones
 *     merge_order.c    nodes after what they read
 *     merge_tensors.c  the tensors that the merged modules need, and whose description holds
 *     merge_memory.c   reads that come to stand on the other side of a write
 *     merge_effects.c  calls that come or go, and write since */
#ifndef FB_DIFF_MERGING_H
#define FB_DIFF_MERGING_H

#include "core/base/work.h"
#include "core/diff/rows.h"
#include "core/diff/sides.h"

/* The nodes that make the values of edited nodes on either side, in parts. A part goes on in another one, where comparisons of
 * several edited nodes meet: a chain of n edited nodes has n parts, and not n lists of n nodes. */
typedef struct fb_making {
    fb_node edited; /* of base: whose part it is, or none where another part goes on in it */
    uint32_t next;  /* 1 + the part in which it goes on, or 0 */
} fb_making;

/* A node that takes part in making an edited node's value on one side (it itself, too): it reads what the other side reads
 * elsewhere. It may be in both graphs, and no edit of its own. */
typedef struct fb_ingredient {
    uint32_t part;     /* index into fb_merging.makings */
    fb_node node;      /* of base, or of theirs */
    bool is_of_theirs; /* side and graph of `node` */
} fb_ingredient;

typedef struct fb_merging {
    fb_sides sides;
    fb_diff diff;              /* base -> theirs */
    fb_rows tables[FB_TABLES]; /* of ours, changed step by step */
    fb_map edits;              /* hash of table and name -> 1 + edit; nodes and modules that are put in, taken out or moved */
    fb_map alike;              /* hash of a new node of ours without its name and meta -> its row (renamed nodes); lazy */
    bool knows_alike;
    const fb_merge_facts *facts; /* or NULL */
    fb_buffer makings;           /* fb_making; of fb_merge_values */
    fb_buffer ingredients;       /* fb_ingredient; none once there is a conflict */
    fb_conflicts *conflicts;
    fb_work work; /* asked in every loop over nodes, edges and edits */
    fb_error *error;
} fb_merging;

/* One more node, edge or edit is looked at. False: the merge is to end; fb_merge says why. */
static inline bool fb_merging_goes_on(fb_merging *m) {
    return fb_work_goes_on(&m->work, (int64_t)FB_WORK_UNASKED / 1024);
}

/* The edit that inserts, erases or moves that row, or NULL. */
const fb_edit *fb_merging_edit(const fb_merging *m, fb_document_table table, const char *name);
/* Whether a graph has both nodes, and `reader` reads `input`. */
bool fb_merging_reads(fb_merging *m, const fb_graph *graph, const char *reader, const char *input);
/* Reports that a node of base is not in ours: as missing or as renamed. */
fb_status fb_merging_report_missing(fb_merging *m, const char *name, const char *needed_by);

/* Whether an edit of a node is about more than its meta. */
bool fb_merging_recomputes(const fb_edit *edit);
/* Whether a node may write into its inputs, or has any other effect. */
bool fb_merging_may_write(const fb_graph *graph, fb_node node);
/* Whether a node of base and one of ours make the same call of nodes of the same names. */
bool fb_merging_is_same_call(const fb_merging *m, fb_node before, fb_node now);
/* Whether ours has a node of base as it was, and nothing new that reads it writes into it. */
bool fb_merging_is_unchanged(fb_merging *m, fb_node node);

/* Puts rows that theirs has and the list has not before the next row of theirs that the list has. `is_placed` says which rows
 * of theirs (by name) are to be put in or moved; the text of a new row comes along. */
fb_status fb_merging_place(fb_merging *m, fb_document_table table, const fb_rows *theirs,
                           bool (*is_placed)(const fb_merging *, fb_document_table, const char *name));

fb_status fb_merge_checkpoint(fb_merging *m);
fb_status fb_merge_users(fb_merging *m);
fb_status fb_merge_values(fb_merging *m);
fb_status fb_merge_order(fb_merging *m);
fb_status fb_merge_tensors(fb_merging *m);
/* Marks the nodes of base that stand in theirs on the other side of a node that may write. False when memory is out. */
bool fb_merge_find_reordered(fb_merging *m, bool *marks);
fb_status fb_merge_memory(fb_merging *m, const fb_graph *merged);
void fb_merge_effects(fb_merging *m, const fb_graph *merged);

#endif
