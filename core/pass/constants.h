/* Constants that a pass makes: bytes that go into the document as buffers of the root, equal ones once; or of a module of
 * their own, where a nested program reads them. */
#ifndef FB_PASS_CONSTANTS_H
#define FB_PASS_CONSTANTS_H

#include "core/base/map.h"
#include "core/pass/pass.h"

/* The input of edit. */
typedef struct fb_constant_plan {
    const fb_constant *constants;
    size_t count;
    const fb_constant *within;   /* those of nodes in nested programs */
    const uint32_t *constant_of; /* by node: which of them it becomes, counted from 1; or 0 */
    fb_node first;               /* of the first match: with it all are put */
} fb_constant_plan;

/* They are gathered while matching, in the matcher's arena. */
typedef struct fb_constant_list {
    fb_matcher *matcher;
    fb_buffer constants, within;
    fb_map by_hash;
    uint32_t *constant_of;
} fb_constant_list;

/* False when memory is out; ended in any case. */
bool fb_constant_list_begin(fb_constant_list *list, fb_matcher *matcher);
/* The node becomes a constant with these bytes. False when memory is out. */
bool fb_constant_list_add(fb_constant_list *list, fb_node node, fb_dtype dtype, int rank, const int64_t *sizes,
                          const unsigned char *bytes, size_t size);
/* False when memory is out, now or before. */
bool fb_constant_list_end(fb_constant_list *list, fb_constant_plan *out);

/* For edit: puts all of them into the root, where it is the first match. */
void fb_put_planned(fb_rewrite *rewrite, const fb_constant_plan *plan, const fb_match *match);
/* A get_attr node before `node` that reads its constant. */
fb_node fb_read_planned(fb_rewrite *rewrite, const fb_constant_plan *plan, fb_node node);

#endif
