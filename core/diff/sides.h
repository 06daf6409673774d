/* The three graphs of a merge (merge.h), as copies in which one tensor has one name. For the merge alone.
 *
 * A tensor is identified by its owners: where a module of `ours` has another tensor at a place that `base` has too, that is the
 * same tensor, whatever its name. What has no owner is known by the recipes that read it, and then by its name (sides.c).
 * `base` and `theirs` take over the names of `ours`; a tensor that only they have gets another name where its own is taken. A
 * tensor that comes back to a module is trained as it was in `base`, though it may have no owner in `ours`. */
#ifndef FB_DIFF_SIDES_H
#define FB_DIFF_SIDES_H

#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/diff/merge.h"
#include "core/graph/slot.h"

typedef struct fb_sides {
    fb_graph *base, *theirs, *ours;
    const fb_graph *given_base; /* `base` before tensors were renamed; the ids are the same */
    bool *is_stale;             /* by tensor of base: theirs lacks it, or makes it differently; filled by fb_carry_back */
    uint32_t stale_limit;       /* of is_stale: stand-ins, which fb_carry_back adds to base, have no entry and are not stale */
    fb_map stand_ins;           /* tensors of `theirs` that stand for one of `ours` */
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

/* Whether two values read the same in a document. */
bool fb_same_text(const fb_graph *a, fb_value x, const fb_graph *b, fb_value y);

/* Whether anything is said about the tensor's bytes. */
bool fb_tensor_has_known_bytes(const fb_graph *graph, fb_tensor tensor);

static inline bool fb_is_stale(const fb_sides *sides, fb_tensor tensor) {
    return tensor.id < sides->stale_limit && sides->is_stale[tensor.id];
}

/* Carries bytes back: where the bytes of a tensor changed since `base`, and `theirs` has the originals again that it was moved
 * from, its recipe is inverted, so that these originals are computed from what `ours` has. What cannot be carried back is a
 * conflict. A tensor of `ours` that stays only as a source keeps its name if `theirs` has none of that name. */
fb_status fb_carry_back(fb_sides *sides, fb_conflicts *conflicts, fb_error *error);

#endif
