/* The three graphs of a merge, as copies in which one tensor has one name. For the merge alone.
 *
 * Who a tensor is, its owners decide: where a module of `ours` has another tensor at a place that `base` has too, that is the
 * same tensor, whatever it is called now. `base` and `theirs` take over the names of `ours`; what they alone have is called
 * something else where its name is taken. And what comes back to a module is trained as it was, though `ours` may have it
 * without an owner meanwhile. */
#ifndef FB_DIFF_SIDES_H
#define FB_DIFF_SIDES_H

#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/diff/merge.h"
#include "core/graph/slot.h"

typedef struct fb_sides {
    fb_graph *base, *theirs, *ours;
    const fb_graph *given_base; /* with the names that it came with; the ids are those of `base` */
    bool *is_dirty;             /* by tensor of base: theirs has it not, or makes it otherwise (fb_carry_back) */
    uint32_t dirty_limit;       /* of is_dirty: what carrying adds to base has no entry */
    fb_map stands_for_ours;     /* tensors of `theirs` that only stand for one of `ours` of that name (fb_carry_back) */
    const fb_blobs *blobs;      /* where bytes are; NULL: only inline data is known */
    unsigned serial;            /* makes fresh names */
} fb_sides;

fb_status fb_sides_make(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours, fb_work *work, fb_sides *out,
                        fb_error *error);
void fb_sides_free(fb_sides *sides);

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

/* By tensor of base: which tensor of ours it is, or none (identify.c). False when memory is out. */
bool fb_identify_tensors(const fb_graph *base, const fb_graph *ours, fb_tensor *ours_of);

/* Whether two values read the same in a document. */
bool fb_same_text(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y);

/* Whether anything is said about the tensor's bytes. */
bool fb_tensor_has_known_bytes(const fb_graph *graph, fb_tensor tensor);

/* Whether a tensor's bytes changed since base. Bytes first: by a digest, or by what is in blobs and inline, and recipes over
 * that; where they are not known, a tensor has changed when what is said about them has. */
fb_status fb_tensor_changed(const fb_sides *sides, fb_tensor in_base, fb_tensor in_ours, bool *is_changed, fb_error *error);

/* Whether two expressions over tensors of base give the same bytes; false when that is not known. */
fb_status fb_compare_bytes(const fb_sides *sides, fb_value a, fb_value b, fb_dtype dtype, bool *is_known, bool *is_same,
                           fb_error *error);

/* Fills sides->is_dirty; false when memory is out. */
bool fb_find_dirty(fb_sides *sides);
/* Of any tensor of base, those that carrying added included: they stand for what ours has, and nothing of it is lost. */
bool fb_is_dirty(const fb_sides *sides, fb_tensor tensor);

/* The tensors of `ours` whose bytes changed since `base`, and from which the originals that `theirs` has again were moved:
 * their recipes are turned round, so that the originals of `theirs` are computed from what `ours` has. What cannot be carried
 * back is reported. A tensor of `ours` that stays only as a source keeps its name when `theirs` has none of that name. */
fb_status fb_carry_back(fb_sides *sides, fb_conflicts *conflicts, fb_error *error);

#endif
