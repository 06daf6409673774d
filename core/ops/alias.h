/* Which values of the main program may share memory, and when that memory is written. Built once, in O((nodes + edges) α).
 *
 * Conservative: an operator without a row in ops.def (a call that enters a nested program too) aliases all its inputs and
 * outputs and writes to them all; but a nested program in which nothing is written does not. Distinct placeholders are taken
 * not to alias, as PyTorch's tracers do.
 */
#ifndef FB_OPS_ALIAS_H
#define FB_OPS_ALIAS_H

#include "core/graph/graph.h"
#include "core/ops/usage.h"

typedef struct fb_alias fb_alias;

/* `usage` is of the same graph and only read now. NULL when memory is out. */
fb_alias *fb_alias_new(const fb_graph *graph, const fb_usage *usage, fb_work *work); /* NULL: fb_work_failed says why */
void fb_alias_free(fb_alias *analysis);

/* Is the memory of `value` written by a node whose ordinal is > after and < before? O(log). Ordinals as of fb_alias_new. */
bool fb_mutated_between(const fb_alias *analysis, fb_node value, uint32_t after, uint32_t before);
/* Is it ever written? And the same for a tensor's own memory (through get_attr, or by a module in training). */
bool fb_is_mutated(const fb_alias *analysis, fb_node value);
bool fb_tensor_is_mutated(const fb_alias *analysis, fb_tensor tensor);
/* Values of the same number may share memory; others do not. Numbers are below fb_memory_limit. */
uint32_t fb_memory_of(const fb_alias *analysis, fb_node value);
uint32_t fb_memory_limit(const fb_alias *analysis);
/* 1 + the ordinal of the last node that writes the value's memory; 0 = it is never written. */
uint32_t fb_last_write(const fb_alias *analysis, fb_node value);
/* Is a mode (autocast, autograd, a level of vmap) switched by a node whose ordinal is > after and < before? The same call may
 * then give another dtype, or something else. An unknown call that reads no tensor counts as such a switch. */
bool fb_mode_switched_between(const fb_alias *analysis, uint32_t after, uint32_t before);

#endif
