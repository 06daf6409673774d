/* The data of a picture: the nodes of two graphs as one list, and the tree of modules that they belong to. */
#ifndef FB_PICTURE_ROWS_H
#define FB_PICTURE_ROWS_H

#include "core/base/map.h"
#include "core/picture/picture.h"

/* A row of the list, or a module: the contents of a module, in their order. */
typedef struct fb_item {
    uint32_t id;
} fb_item;
#define FB_ITEM_IS_PLACE 0x80000000U

/* How a node that is called as before has changed. */
typedef enum fb_drawn_change { FB_OTHER_CALL, FB_OTHER_ARGUMENTS, FB_OTHER_WEIGHTS } fb_drawn_change;

typedef struct fb_drawn {
    fb_node was, now;
    uint32_t place;
    fb_item next; /* in its place */
    uint32_t box; /* that it is drawn as, or is in */
    fb_picture_state state;
    fb_drawn_change change; /* of one that is changed */
} fb_drawn;

/* A module, or a part of a path that no module has. */
typedef struct fb_place {
    const char *path; /* not terminated */
    uint32_t path_size, parent, depth;
    fb_item first, last, next; /* its contents; its own neighbour */
    uint32_t item_count;
    fb_picture_tally tally;
    bool is_listed, is_wanted;
    uint32_t box;
} fb_place;

typedef struct fb_drawn_rows {
    const fb_graph *base, *graph;
    fb_drawn *rows;   /* from 1 on, in the order of the document */
    uint32_t count;   /* of all, [0] included */
    fb_place *places; /* from 1 on; [1] is the root; a place comes after the one around it */
    uint32_t place_count;
    size_t place_capacity;
    uint32_t *of_was, *of_now; /* rows, by the node's id */
    fb_map place_index;
    fb_arena *arena;
    fb_work *work;
} fb_drawn_rows;

/* False: fb_work_failed says why. Free it in any case. */
bool fb_drawn_rows_make(const fb_graph *base, const fb_graph *graph, fb_arena *arena, fb_work *work, fb_drawn_rows *out);
void fb_drawn_rows_free(fb_drawn_rows *rows);

/* The place of that path; 0 when there is none. */
uint32_t fb_place_find(const fb_drawn_rows *rows, const char *path, size_t size);

/* Memory of zeros; NULL when there is none. */
void *fb_picture_take(fb_arena *arena, size_t count, size_t size);

/* Places the boxes and lines of a picture. */

/* False: fb_work_failed says why. */
bool fb_picture_place(fb_picture *picture, fb_work *work);

#endif
