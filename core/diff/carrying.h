/* Tensors under way back to their originals. For the carrying's files alone.
 *
 *     carry_find.c   what changed and is lost, and the pieces of the originals that it holds
 *     carry_agree.c  whether all that is known of one original says the same
 *     carry.c        the originals, made from what changed */
#ifndef FB_DIFF_CARRYING_H
#define FB_DIFF_CARRYING_H

#include "core/diff/sides.h"
#include "core/weights/inputs.h"
#include "core/weights/invert.h"

/* A tensor that a module of base owns, or that only stands between originals and such a one. */
typedef struct fb_owned {
    fb_tensor base, ours;
    bool is_between; /* nobody owns it */
    bool is_lost;    /* it is not in theirs at its place, or is made otherwise there */
    bool is_shared;  /* what comes back in theirs is this tensor, or is made from it */
    bool is_carried; /* it changed, it is lost, and it had been made from others */
    fb_tensor stub;  /* stands in the base graph for what `ours` is now; none = it did not change */
} fb_owned;

typedef struct fb_placed_piece {
    fb_piece piece;
    const fb_owned *of;
} fb_placed_piece;

typedef struct fb_carrying {
    fb_sides *sides;
    fb_conflicts *conflicts;
    fb_error *error;
    fb_owned *owned; /* one for each tensor that is owned in base */
    size_t count;
    fb_placed_piece *pieces;
    size_t piece_count;
    fb_inputs_walk computed; /* over what unchanged owned tensors are computed from */
    bool *is_computed_from;  /* by tensor of base: an unchanged owned tensor is computed from it */
    bool *is_read;           /* by tensor of ours: a recipe reads it */
    bool *is_owned;          /* by tensor of ours */
    bool *is_made_anew;      /* by tensor of theirs: it is carried back, or made from what is */
    fb_symbol *names_in_base, *names_in_ours, *names_in_theirs; /* new names, by tensor */
} fb_carrying;

/* A copy of ours' tensor, without its recipe, in another graph; none when memory is out. */
fb_tensor fb_carry_add_stub(fb_graph *graph, fb_symbol name, const fb_graph *ours, fb_tensor tensor);
/* Fills c->owned; `is_any`: there is something to carry. */
fb_status fb_carry_find(fb_carrying *c, bool *is_any);
/* Fills c->pieces, sorted by original. */
fb_status fb_carry_pieces(fb_carrying *c);

typedef enum fb_agreement { FB_CARRY, FB_STAYS, FB_CONFLICTS } fb_agreement;

/* Picks from all pieces of one original those that cover it once; what contradicts is reported. `kept` has room for all. */
fb_status fb_carry_agree(fb_carrying *c, const fb_placed_piece *all, size_t count, const fb_piece **kept, size_t *kept_count,
                         fb_agreement *verdict);
/* Reports a conflict of an original: `detail` has one %s. */
fb_agreement fb_carry_report(fb_carrying *c, const char *code, fb_tensor source, const char *detail);

#endif
