/* `keep`, the parameter of passes that leave parts of a model as they are: paths of modules, with * and ?, and operators. */
#ifndef FB_PASS_KEEP_H
#define FB_PASS_KEEP_H

#include "core/pass/pass.h"

typedef struct fb_keep {
    const json_t *patterns;
    bool *is_used; /* by pattern: it has matched */
} fb_keep;

/* Reads it from the params of the call. False when memory is out. */
bool fb_keep_begin(fb_keep *keep, const json_t *params);
void fb_keep_end(fb_keep *keep);
/* Is the node called so, or does it use a module that is, or one within it? Asked of every node that might be. */
bool fb_keeps(fb_keep *keep, const fb_graph *graph, fb_node node);
/* Reports the patterns that have matched nothing, as "keeps-nothing". */
void fb_refuse_unused_keeps(const fb_keep *keep, fb_matcher *matcher);

#endif
