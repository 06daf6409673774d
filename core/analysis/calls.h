/* Which calls PyTorch has: where a name is at home, and which ATen overload takes given arguments. */
#ifndef FB_ANALYSIS_CALLS_H
#define FB_ANALYSIS_CALLS_H

#include "core/graph/graph.h"
#include "core/operators/op.h"

/* True if the operator's first name is in "functional" (torch.nn.functional), "torch" or "method" (torch.Tensor). */
bool fb_op_is_at_home(fb_op op, const char *home);

/* The overload of torch.ops.aten.{the operator's first name} that takes these arguments (an FB_LIST and an FB_MAP): `preferred`
 * if it does, else the first of PyTorch's that does. It begins with its name, `length` long. NULL when none does. A node whose
 * dtype is not recorded may be anything. */
const char *fb_aten_overload(const fb_graph *graph, fb_op op, fb_value args, fb_value kwargs, const char *preferred,
                             size_t *length);

/* Does PyTorch have the call: of an ATen operator's first name with an overload that takes its arguments, or of a function of
 * torch or a method that takes them by any, or by its own parameters if it is written in Python? True for all calls that
 * calls.def does not have. */
bool fb_call_exists(const fb_graph *graph, fb_node node);
/* Appends the target of the same call without a write: of `torch.ops.aten.pow_.Scalar` that is
 * `torch.ops.aten.pow.Tensor_Scalar`, of `operator.iadd` it is `operator.add`. False when the call does not write in place, or
 * when it is not certain that PyTorch has the other. */
bool fb_spell_without_write(const fb_graph *graph, fb_node node, fb_buffer *out);
/* True for a call by schema, such as ATen's overloads, which keep tensors and numbers apart. */
bool fb_call_has_schema(const fb_graph *graph, fb_node node);
/* Would PyTorch still have it with a number in every place of the node `tensor`? False for all calls of which nothing is known.
 */
bool fb_call_takes_number(const fb_graph *graph, fb_node node, fb_node tensor);

/* The overloads of a name, as calls.def has them; NULL when nothing is known. With a `home` that is not "" only where it takes
 * what they take: the others are written in Python. */
const char *fb_calls_of(const char *name, size_t length, const char *home);
/* `at` is the name of a parameter in them; NULL behind the last one of an overload, which a closing parenthesis ends. */
const char *fb_next_parameter(const char *at);

#endif
