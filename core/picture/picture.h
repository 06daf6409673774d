/* A picture of a graph, or of two graphs as one: boxes and lines between them.
 *
 * Boxes are nested as modules are. A closed box represents all that is in it, so a picture has few boxes however large the
 * graph is; the viewer opens what is of interest. Two graphs are drawn as their union: what both have is kept or changed, the
 * rest is added or removed.
 *
 * The same graphs and options give the same picture, byte for byte, and a change of the graph moves little of it: boxes are in
 * the order of the document, in layers by the longest path, and nothing is moved to spare crossings. Lines that pass other
 * layers run straight where nothing is in their way, and else in lanes at the side, as lines that lead back do. Time is linear
 * in the graph. */
#ifndef FB_PICTURE_PICTURE_H
#define FB_PICTURE_PICTURE_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/work.h"
#include "core/graph/graph.h"

#define FB_PICTURE_BOXES 500  /* at most, so that it stays a picture */
#define FB_PICTURE_LINES 4000 /* likewise */
#define FB_PICTURE_CHANGES 2000
#define FB_PICTURE_DEPTH_USUAL (-1)

/* A node that something is to be said of, such as a refusal; those with the same `group` count once in a box. */
typedef struct fb_picture_mark {
    const char *node;
    uint32_t group; /* from 1 on, in ascending order */
} fb_picture_mark;

typedef struct fb_picture_options {
    const char *const *open; /* boxes to open, and those around them: paths of modules, or names of groups */
    size_t open_count;
    const char *at;                 /* a node that is to be seen: opens all around it; NULL = none */
    const fb_picture_mark *refused; /* one that is nowhere marks nothing */
    size_t refused_count;
    int depth; /* so many levels of modules are open; FB_PICTURE_DEPTH_USUAL: as many as stay easy to survey */
} fb_picture_options;

typedef enum fb_box_kind {
    FB_BOX_NODE,
    FB_BOX_MODULE,
    FB_BOX_GROUP, /* neighbours of one module that are too many to be drawn one by one */
} fb_box_kind;

typedef enum fb_picture_state { FB_PICTURE_KEPT, FB_PICTURE_ADDED, FB_PICTURE_REMOVED, FB_PICTURE_CHANGED } fb_picture_state;

typedef struct fb_picture_tally {
    uint32_t nodes, added, removed, changed;
} fb_picture_tally;

/* Lengths are CSS pixels; x and y count from the left upper corner of the picture. */
typedef struct fb_picture_box {
    fb_box_kind kind;
    fb_picture_state state;
    bool is_open;
    uint32_t parent;         /* the box around it; 0 = none */
    const char *key, *label; /* the node's name, the module's path or the group's name; what is written on it */
    const char *detail;      /* the second line; "" = none */
    fb_node was, now;        /* of a node: in the base, and in the graph; none = it is not there */
    fb_node value;           /* the one whose value leaves the box, if only one does; `value_is_old`: it is one of the base */
    bool value_is_old;
    fb_picture_tally tally; /* of all that is in it */
    uint32_t refused;       /* refusals of nodes that it is or, closed, represents */
    int x, y, width, height;
    uint32_t place, first_item, item_count; /* of its maker: what is in it */
    uint32_t first_child, child_count;      /* boxes, when it is open */
    uint32_t last_group;                    /* of marks */
} fb_picture_box;

typedef struct fb_picture_line {
    uint32_t from, to; /* boxes that are nodes or closed */
    fb_picture_state state;
    uint32_t count; /* edges of the graph that it represents */
    uint32_t in_was, in_now;
    const int *points; /* x, y, x, y … */
    uint32_t point_count;
    uint32_t *segments; /* of its maker */
    uint32_t segment_count;
} fb_picture_line;

/* A node that is not kept. */
typedef struct fb_picture_change {
    const char *node, *detail;
    const char *module; /* the path of what it belongs to; not terminated */
    uint32_t module_size;
    fb_picture_state state;
} fb_picture_change;

typedef struct fb_picture {
    const fb_graph *base, *graph; /* borrowed */
    fb_picture_box *boxes;        /* [0] is the sheet around them all */
    uint32_t box_count;           /* with it */
    fb_picture_line *lines;
    uint32_t line_count;
    uint64_t lines_left_out;    /* beyond FB_PICTURE_LINES */
    fb_picture_change *changes; /* all of them, whether drawn or in a box that is closed */
    uint32_t change_count, changes_left_out;
    uint32_t left_closed; /* boxes that were asked for and would have made it too large */
    fb_arena arena;
} fb_picture;

/* `base` may be NULL. FB_NOT_FOUND "unknown-node" when `at` names none; FB_NO_MEMORY; what `work` is stopped with. Free it in
 * any case. A path in `open` that is nowhere opens nothing. */
fb_status fb_picture_make(const fb_graph *base, const fb_graph *graph, const fb_picture_options *options, fb_work *work,
                          fb_picture *out, fb_error *error);
void fb_picture_free(fb_picture *picture);

/* Appends it as members of a JSON object. */
void fb_picture_write(const fb_picture *picture, fb_buffer *out);
/* Appends it as a file of its own, light or dark as its reader likes. Text of the document is text in it, never markup. */
void fb_picture_write_svg(const fb_picture *picture, fb_buffer *out);

#endif
