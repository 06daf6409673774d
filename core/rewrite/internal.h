/* A rewrite's own fields; for core/rewrite alone. */
#ifndef FB_REWRITE_INTERNAL_H
#define FB_REWRITE_INTERNAL_H

#include "core/base/map.h"
#include "core/rewrite/journal.h"
#include "core/rewrite/rewrite.h"

typedef struct pending_node {
    fb_node old, now; /* now none: `old` is erased; `old` itself: it is, when nothing reads it */
} pending_node;

struct fb_rewrite {
    fb_graph *graph;
    fb_namespace *names;
    bool is_trial; /* the graph is a copy, and the rewrite's own */
    char signature[FB_SIGNATURE_LENGTH + 1];
    fb_journal journal;
    fb_map wanted_names; /* opcode << 32 | target -> fb_wanted_name of new nodes */
    fb_value mark;       /* the signature as a string */
    fb_map replaced;     /* node -> what its readers read instead */
    fb_map literals;     /* node, which is erased -> the value that is written in its place */
    fb_buffer pending;   /* pending_node, in order */
    fb_buffer absorbed;  /* pending_node */
    fb_buffer inserted;  /* a bit for each node: it is new, or calls something else */
    fb_buffer released;  /* fb_node: get_attr nodes that may have lost their last reader */
    fb_map readers;      /* module << 32 | attribute -> get_attr nodes that read it, in all programs */
    bool readers_known;  /* they have been counted */
    fb_map reshaped;     /* node -> 1: its value is given another shape in place than is recorded */
    bool reshaped_known; /* they have been looked for */
    fb_buffer uncalled;  /* fb_module: a call of it was erased */
    bool notes_names;    /* a match has begun */
    fb_buffer made;      /* fb_made_name */
    const fb_made_name *given;
    size_t given_count; /* that the match at hand has not used yet */
    fb_node marked, touched;
    bool is_renumbered; /* nodes came or went */
    fb_buffer name;     /* that is made */
    fb_buffer unowned;  /* fb_tensor: each has lost an owner, perhaps its last */
    const fb_watch *watch;
    unsigned steps; /* since the rewrite began: it is asked at some of them */
    fb_error error;
};

bool fb_rewrite_is_failed(fb_rewrite *rewrite);
/* Passes on whether the journal took a row; records the failure. */
bool fb_rewrite_save(fb_rewrite *rewrite, bool is_saved);
void fb_drop_unread_tensors(fb_rewrite *rewrite);
void fb_drop_released(fb_rewrite *rewrite);
/* fb_drop_attribute for many, by their symbols. */
void fb_drop_attributes(fb_rewrite *rewrite, fb_module module, const fb_map *gone);
void fb_drop_uncalled(fb_rewrite *rewrite);

#endif
