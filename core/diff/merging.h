/* A merge under way. For the merge's files alone, which are layers; each calls those below it:
 *
 *     merge.c             the steps, in their order; adapters, and graphs that compute nothing
 *     merge_memory.c      what writes: reads that end up on the other side of a write, calls that write since
 *     merge_values.c      what nodes compute: readers of diverged nodes, and what the edits rely on
 *     merge_rows.c        the text: edits done to rows of ours, their order, the tensors that they need
 *     carry.c             bytes that changed, back through the recipes
 *     sides.c             the three graphs */
#ifndef FB_DIFF_MERGING_H
#define FB_DIFF_MERGING_H

#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/diff/merge.h"
#include "core/diff/rows.h"
#include "core/graph/slot.h"

/* The three graphs of a merge (merge.h), in which one tensor has one name: as they were given, or copies. For the merge alone.
 *
 * A tensor is identified by its owners: where a module of `ours` has another tensor at a place that `base` has too, that is the
 * same tensor, regardless of its name. A tensor without an owner is known by the recipes that read it, and then by its name
 * (sides.c). `base` and `theirs` take over the names of `ours`; a tensor that only they have gets another name where its own is
 * taken. A tensor that comes back to a module is trained as it was in `base`, though it may have no owner in `ours`. */

/* Which node of another graph has the name of one of this graph. */
typedef struct fb_namesakes {
    const fb_graph *graph, *other;
    fb_node *of; /* by node of `graph`; id 0 if the main program of `other` lacks the name */
} fb_namesakes;
enum { FB_NAMESAKES = 8 }; /* base and theirs, ours or the source; ours and the merged graph; each way */

typedef struct fb_sides {
    const fb_graph *base, *theirs, *ours;
    fb_graph *own_base, *own_theirs, *own_ours; /* the same once fb_sides_own has copied them; NULL before */
    fb_work *work;
    fb_namesakes namesakes[FB_NAMESAKES];
    size_t namesake_count;
    const fb_graph *given_base; /* `base` before tensors were renamed; the ids are the same */
    bool *is_stale;             /* by tensor of base: theirs lacks it, or makes it differently; filled by fb_carry_back */
    uint32_t stale_limit;       /* of is_stale: stand-ins, which fb_carry_back adds to base, have no entry and are not stale */
    fb_map stand_ins;           /* tensors of `theirs` that represent one of `ours` */
    const fb_blobs *blobs;      /* where bytes are; NULL: only inline data is known */
    unsigned serial;            /* makes fresh names */
} fb_sides;

fb_status fb_sides_make(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, fb_work *work, fb_sides *out,
                        fb_error *error);
void fb_sides_free(fb_sides *sides);
/* Before anything is changed in one of them: the three become copies, in which all has the ids that it had. False: memory is
 * out, or the work was stopped. */
bool fb_sides_own(fb_sides *sides);

/* Looks for the nodes of one graph in the other, and the other way round, for fb_counterpart; neither changes from now on.
 * False when memory is out. */
bool fb_sides_relate(fb_sides *sides, const fb_graph *graph, const fb_graph *other, fb_work *work);

/* Interns in `graph` a tensor's name like `name` that no side has; none when memory is out. */
fb_symbol fb_sides_fresh_name(fb_sides *sides, fb_graph *graph, const char *name);

/* The slots of a graph, to be found by the place of another graph's slot. */
typedef struct fb_slot_index {
    const fb_graph *graph;
    fb_buffer slots; /* fb_slot */
    fb_map places;   /* hash of path and attribute -> 1 + index into slots */
} fb_slot_index;
/* False when memory is out; freed in any case. */
bool fb_slot_index_make(const fb_graph *graph, fb_slot_index *out);
void fb_slot_index_free(fb_slot_index *index);
/* The tensor at the place of `slot`, which is one of `from`; or none. */
fb_tensor fb_slot_index_find(const fb_slot_index *index, const fb_graph *from, const fb_slot *slot);

/* Compares two values as a document spells them. */
bool fb_same_text(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y);

/* True if the tensor's bytes are described in any way. */
bool fb_tensor_has_known_bytes(const fb_graph *graph, fb_tensor tensor);

static inline bool fb_is_stale(const fb_sides *sides, fb_tensor tensor) {
    return tensor.id < sides->stale_limit && sides->is_stale[tensor.id];
}

/* Carries bytes back: where the bytes of a tensor changed since `base`, and `theirs` has the originals again that it was moved
 * from, its recipe is inverted, so that these originals are computed from what `ours` has. Bytes that cannot be carried back
 * are a conflict. A tensor of `ours` that stays only as a source keeps its name if `theirs` has none of that name. */
fb_status fb_carry_back(fb_sides *sides, fb_conflicts *conflicts, fb_error *error);

/* The trail of an edited node, in parts. A part continues in another one where the trails of several edited nodes meet: a chain
 * of n edited nodes has n parts, and not n lists of n nodes. */
typedef struct fb_trail_part {
    fb_node edited; /* of base: where the trail begins; none where another part continues in this one */
    uint32_t next;  /* 1 + the part in which it continues, or 0 */
} fb_trail_part;

/* A node of a trail (the edited node as well). It may be in both graphs, and not be edited itself. */
typedef struct fb_trail_node {
    uint32_t part;     /* index into fb_merging.trail_parts */
    fb_node node;      /* of base, or of theirs */
    bool is_of_theirs; /* side and graph of `node` */
} fb_trail_node;

typedef struct fb_merging {
    fb_sides sides;
    fb_diff diff;              /* base -> theirs */
    fb_rows tables[FB_TABLES]; /* of ours, changed step by step */
    fb_map edits;              /* hash of table and name -> 1 + edit; nodes and modules that are put in, taken out or moved */
    fb_map alike;              /* hash of a new node of ours without its name and meta -> its row (renamed nodes); lazy */
    bool knows_alike;
    const fb_merge_facts *facts; /* or NULL */
    fb_buffer trail_parts;       /* fb_trail_part; of fb_merge_values */
    fb_buffer trail_nodes;       /* fb_trail_node; incomplete once there is a conflict */
    fb_conflicts *conflicts;
    fb_work work; /* asked in every loop over nodes, edges and edits */
    fb_error *error;
} fb_merging;

/* One more node, edge or edit is looked at. False: the merge is to end; fb_merge says why. */
static inline bool fb_merging_goes_on(fb_merging *m) {
    return fb_work_goes_on(&m->work, (int64_t)FB_WORK_UNASKED / 1024);
}

static inline fb_node fb_node_named(const fb_graph *graph, const char *name) {
    return fb_node_find(graph, FB_MAIN_PROGRAM, name);
}

/* The node of `other` that has the name of one of `graph`, or none; at once where the graphs were related. */
static inline fb_node fb_counterpart(const fb_sides *sides, const fb_graph *graph, fb_node node, const fb_graph *other) {
    if (graph == other) return node;
    for (size_t i = 0; i < sides->namesake_count; i++) {
        const fb_namesakes *namesakes = &sides->namesakes[i];
        if (namesakes->graph == graph && namesakes->other == other) return namesakes->of[node.id];
    }
    return fb_node_named(other, fb_node_name(graph, node));
}

/* ---- merge_rows.c ------------------------------------------------------------------------------------------------------- */

/* The edit that inserts, erases or moves that row, or NULL. */
const fb_edit *fb_merging_edit(const fb_merging *m, fb_document_table table, const char *name);
/* True if an edit of a node changes more than its meta. */
bool fb_merging_recomputes(const fb_edit *edit);
/* True if a graph has both nodes, and `reader` reads `input`. Neither may be in the graph. */
bool fb_merging_reads(fb_merging *m, const fb_graph *graph, fb_node reader, fb_node input);

/* Does the edits of nodes and modules to the rows of ours. */
fb_status fb_merge_rows(fb_merging *m);
/* Moves every node behind what it reads. */
fb_status fb_merge_order(fb_merging *m);
/* Keeps the tensors that the merged modules own, and those that their recipes read. */
fb_status fb_merge_tensors(fb_merging *m);

/* The path as sentences have it: "" for the root module's. */
static inline const char *fb_shown_path(const char *path) {
    return *path ? path : "\"\"";
}

/* ---- merge_values.c ----------------------------------------------------------------------------------------------------- */

/* True if a node may write into its inputs, or has any other effect. */
bool fb_merging_may_write(const fb_graph *graph, fb_node node);
/* True if a node of base and one of ours make the same call of nodes of the same names. */
bool fb_merging_is_same_call(const fb_merging *m, fb_node before, fb_node now);

/* Finds the nodes of ours that an undo would give another value than they rely on, and leaves the trails. */
fb_status fb_merge_values(fb_merging *m);

/* ---- merge_memory.c ----------------------------------------------------------------------------------------------------- */

fb_status fb_merge_memory(fb_merging *m, const fb_graph *merged);

#endif
