/* Which calls PyTorch has: where a name is at home, and which ATen overload takes given arguments. */
#ifndef FB_OPS_CALLS_H
#define FB_OPS_CALLS_H

#include "core/graph/graph.h"
#include "core/ops/op.h"

/* Whether the operator's first name is in "functional" (torch.nn.functional), "torch" or "method" (torch.Tensor). */
bool fb_op_is_at_home(fb_op op, const char *home);

/* The overload of torch.ops.aten.{the operator's first name} that takes these arguments (an FB_LIST and an FB_MAP): `preferred`
 * if it does, else the first of PyTorch's that does. It begins with its name, `length` long. NULL when none does. A node whose
 * dtype is not recorded may be anything. */
const char *fb_aten_overload(const fb_graph *graph, fb_op op, fb_value args, fb_value kwargs, const char *preferred,
                             size_t *length);

/* Whether a call of an ATen operator's first name has an overload that takes its arguments; true for all other calls. */
bool fb_aten_call_exists(const fb_graph *graph, fb_node node);

#endif
