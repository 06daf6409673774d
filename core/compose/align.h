/* Names of what passes created, in two runs of one source. */
#ifndef FB_COMPOSE_ALIGN_H
#define FB_COMPOSE_ALIGN_H

#include "core/compose/undo.h"

/* A pass that is taken out lets later ones create more nodes or fewer, and so the names move on: what was `cat_5` is `cat_7` in
 * the replay, and `cat_5` is something else. This gives the nodes that passes created in `replay` the names of those in the
 * plan's result that are made of the same, and names that the result has not to all others. What an external pass added has
 * the name that its author gave it, and keeps it. FB_NO_MEMORY. */
fb_status fb_align_names(const fb_undo_plan *plan, fb_graph *replay, fb_error *error);

#endif
