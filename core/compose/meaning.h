/* What the nodes of a run's graphs stand for. A pass that lets a node take another one in (a convolution its BatchNorm) leaves
 * its name with the value of the other. So one name can stand for one value in one replay of a source and for another in
 * another; whoever reads it must know. */
#ifndef FB_COMPOSE_MEANING_H
#define FB_COMPOSE_MEANING_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/diff/merge.h"
#include "core/passes/pass.h"

/* Of one replay; zeroed at its start. */
typedef struct fb_meanings {
    fb_buffer items; /* the nodes that took others in */
    fb_map index;
    fb_arena arena;
} fb_meanings;

/* Takes note of what a pass did. False when memory is out. */
bool fb_meanings_note(fb_meanings *meanings, const fb_pass_report *report);
void fb_meanings_free(fb_meanings *meanings);

/* Appends the names (const char *, the meanings' own) that stand for something else in the other replay. */
void fb_meanings_compare(const fb_meanings *a, const fb_meanings *b, fb_buffer *names);

#endif
