/* Which values of the main program may share memory, and when that memory is written. Built once, in O((nodes + edges) α).
 *
 * Conservative: an operator without a row in ops.def (a call that enters a nested program too) aliases all its inputs and
 * outputs and writes to them all; but a nested program in which nothing is written does not. Distinct placeholders are taken
 * not to alias, as PyTorch's tracers do.
 */
#ifndef FB_ANALYSIS_ALIAS_H
#define FB_ANALYSIS_ALIAS_H

#include "core/analysis/usage.h"
#include "core/graph/graph.h"

typedef struct fb_alias fb_alias;

/* `usage` is of the same graph and only read now. NULL when memory is out. */
fb_alias *fb_alias_new(const fb_graph *graph, const fb_usage *usage, fb_work *work); /* NULL: fb_work_failed says why */
/* The same for questions about writes and modes alone; fb_alias_complete adds who shares memory, which takes longer. */
fb_alias *fb_alias_new_for_writes(const fb_graph *graph, const fb_usage *usage, fb_work *work);
bool fb_alias_complete(fb_alias *analysis, const fb_usage *usage, fb_work *work); /* false: fb_work_failed says why */
void fb_alias_free(fb_alias *analysis);

/* Is the memory of `value` written by a node whose ordinal is > after and < before? O(log). Ordinals as of fb_alias_new. */
bool fb_mutated_between(const fb_alias *analysis, fb_node value, uint32_t after, uint32_t before);
/* … or by any node whose ordinal is > after? */
bool fb_mutated_after(const fb_alias *analysis, fb_node value, uint32_t after);
/* Is it ever written? And the same for a tensor's own memory (through get_attr, or by a module in training). A tensor that is
 * only carried (fb_tensor_is_carried) counts as one, so that no pass touches it; fb_tensor_is_written asks for the program. */
bool fb_is_mutated(const fb_alias *analysis, fb_node value);
bool fb_tensor_is_mutated(const fb_alias *analysis, fb_tensor tensor);
bool fb_any_is_mutated(const fb_alias *analysis); /* a value or a tensor of the graph */
bool fb_tensor_is_written(const fb_alias *analysis, fb_tensor tensor);
/* Values of the same number may share memory; others do not. Numbers are below fb_memory_limit. Of a complete analysis. */
uint32_t fb_memory_of(const fb_alias *analysis, fb_node value);
uint32_t fb_memory_limit(const fb_alias *analysis);
/* The ordinals of the nodes that write the value's memory, ascending. */
const uint32_t *fb_writes_of(const fb_alias *analysis, fb_node value, uint32_t *count);
/* 1 + the ordinal of the last of them; 0 = it is never written. */
uint32_t fb_last_write(const fb_alias *analysis, fb_node value);
/* Is a mode (autocast, autograd, a level of vmap) switched by a node whose ordinal is > after and < before? The same call may
 * then give another dtype, or something else. An unknown call that reads no tensor counts as such a switch. */
bool fb_mode_switched_between(const fb_alias *analysis, uint32_t after, uint32_t before);

/* May a value be read from the memory of another one, with the same numbers, from now on? Answers for passes that put one value
 * in the place of another, and takes note of what they did, because what was harmless alone need not be harmless together.
 *
 * The answer is no when one of the two is written afterwards, as the other would then see it. And it is no when they leave the
 * graph by different ways: two results of the graph, or a result and an input or parameter. The graph's caller may write into
 * either, and must not find the other one changed. */

typedef struct fb_sharing fb_sharing;

/* Borrows alias. NULL: fb_work_failed says why. */
fb_sharing *fb_sharing_new(const fb_graph *graph, const fb_usage *usage, const fb_alias *alias, fb_work *work);
void fb_sharing_free(fb_sharing *sharing);

typedef enum fb_share_verdict {
    FB_MAY_SHARE,
    FB_SHARE_WRITTEN,  /* one of them is written behind `since` */
    FB_SHARE_RETURNED, /* both are seen by the caller */
} fb_share_verdict;

/* Values that may share memory already are only written to, or returned, as one. `since` is an ordinal. */
fb_share_verdict fb_may_share(const fb_sharing *sharing, fb_node a, fb_node b, uint32_t since);
/* From now on they do. */
void fb_share(fb_sharing *sharing, fb_node a, fb_node b);

#endif
