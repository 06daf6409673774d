/* The three-way merge: the changes from `base` to `theirs` are made to `ours`, as `git merge` does it with three versions of a
 * file. Every conflict is reported; a merge with a conflict changes nothing.
 *
 *     base ────── passes undone ─────▶ theirs
 *      │                                 │
 *      │ edited, trained since           │
 *      ▼                                 ▼
 *     ours ─────────────────────────▶ merged
 *
 * The words of this folder:
 *
 *     base       the result of the run
 *     theirs     the same without the passes that are undone
 *     ours       the graph at hand: base, and what was edited and trained since
 *     merged     what comes out
 *     edit       one difference of base and theirs (diff.h)
 *     row        one node, module or tensor as canonical text (rows.h): edits change rows
 *     conflict   an edit that does not fit ours
 *     recomputed a node with one name in base and theirs that an edit makes compute differently, or that reads such a node
 *     diverged   a recomputed node whose value differs: base has under this name what theirs has under another one
 *     trail      the nodes between an edited node and what it reads in both base and theirs
 *     stale      a tensor of base that theirs lacks, or makes differently
 *     carried    a stale tensor whose bytes changed in ours: its new bytes go back into the originals that theirs has
 *     stand-in   a tensor added to base or theirs for what ours has now, so that recipes can name it */
#ifndef FB_DIFF_MERGE_H
#define FB_DIFF_MERGE_H

#include "core/base/arena.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/weights/blobs.h"

typedef enum fb_conflict_kind { FB_CONFLICT_NODE, FB_CONFLICT_MODULE, FB_CONFLICT_TENSOR } fb_conflict_kind;
const char *fb_conflict_kind_name(fb_conflict_kind kind); /* "node", "module", "tensor" */

/* Codes of nodes and modules:
 *   missing-node, missing-module     an edit needs it, and it is gone
 *   renamed-node                     the same, and there is a node like it under another name
 *   changed-node, changed-module     it was changed where an edit changes it, or an edit erases it, or what an edit does is
 *                                    right only as long as it is what it was
 *   new-users                        an edit erases it, or makes it compute something else, and something new reads it
 *   name-taken, path-taken           an edit adds it, and another one of that name is there
 *   not-topological                  it would precede something that it reads
 *   invalid                          the merged graph would break a rule of the format
 * Codes of tensors, whose bytes changed since and would have to be carried back:
 *   computed          by a recipe that computes
 *   constant-changed  the filler between the originals changed, or a constant that a pass made, or its bytes are not here to
 *                     check
 *   copies-diverged   one source went to two places, which now differ, or whose bytes are not here to compare
 *   partly-moved      only a part of the source is in what changed
 *   changed-tensor    not its bytes but its dtype, shape or requires_grad was changed, and it goes away
 *   tied              the source is still owned elsewhere, where it did not change with it */
typedef struct fb_conflict {
    fb_conflict_kind kind;
    const char *code;
    const char *name;   /* of the node or tensor; path of the module */
    const char *detail; /* one sentence */
} fb_conflict;

typedef struct fb_conflicts {
    fb_conflict *items;
    size_t count, capacity;
    fb_map seen; /* hash of kind, code and name -> 1 + item */
    fb_arena arena;
    bool failed; /* memory is out */
} fb_conflicts;

/* Appends one, unless there is one of that kind, code and name; `name` and the detail are copied. */
void fb_conflicts_add(fb_conflicts *conflicts, fb_conflict_kind kind, const char *code, const char *name, const char *format,
                      ...) __attribute__((format(printf, 5, 6)));
void fb_conflicts_free(fb_conflicts *conflicts);

/* Facts that are known besides the graphs. */
typedef struct fb_merge_facts {
    const fb_graph *source;      /* foldback's passes made `base` and `theirs` from it; NULL: something else did */
    const char *const *diverged; /* nodes of the source that have one value in base and another in theirs */
    size_t diverged_count;
    const fb_blobs *blobs; /* where tensors' bytes are; NULL: only inline data is known */
    const fb_watch *watch; /* may be NULL */
} fb_merge_facts;

/* `facts` may be NULL. Without a source a node that computes otherwise, and that something reads which did not, counts as one
 * with another meaning. Makes a new graph, which the verifier has passed. FB_CONFLICT "conflict" when `conflicts` (empty
 * before) has any; what the watch stops it with; FB_NO_MEMORY. `out` is written on success only. */
fb_status fb_merge(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, const fb_merge_facts *facts,
                   fb_graph **out, fb_conflicts *conflicts, fb_error *error);

#endif
