/* Python code of a graph: the text of GraphModule.code in PyTorch 2.13, byte for byte, from the document alone (the default
 * code generator over flat placeholders).
 *
 * The text can be executed, so a document must not be able to put code of its own into it: strings are written as escaped
 * literals, and what the reader lets through as a name is checked here once more.
 *
 * Where torch.fx prints something that a document does not carry, or text that Python does not take, the code says instead:
 *   - for $opaque: its repr where that is made of words, digits, dots, square brackets and spaces and has no keyword in it but
 *     None, True and False; any other repr as a string literal;
 *   - for $ref to a function or class (torch.fx prints the repr `<function f at 0x…>` for all but operators): the name by which
 *     the code would call it;
 *   - within a dict and within a named tuple, where torch.fx prints plain reprs (`P(a=1, b=2)`, `<Colour.RED: 1>`,
 *     `<OpOverload(…)>`): named tuples, enum members and operators as everywhere else;
 *   - for an attribute whose name is a keyword, or one that Python reads as another (NFKC): getattr(x, "class");
 *   - for a part of a path with quotes, backslashes or control characters: getattr with the part as an escaped literal;
 *   - for an operator with too few operands, where torch.fx fails: a plain call;
 *   - for an input called like something that the code says (torch, inf, slice, len): a parameter that is called as its node;
 *   - for a keyword argument whose name is none, or such a one: `**{'name': value}`;
 *   - for a line with a string like "# COUNTER: 1": the line, which torch.fx loses.
 */
#ifndef FB_GRAPH_CODE_H
#define FB_GRAPH_CODE_H

#include <stdbool.h>

#include "core/base/buffer.h"
#include "core/graph/graph.h"

/* Appends the code of a program; nested programs are modules that it calls. Behind the main program of an ONNX model, which has
 * no modules in Python, come its nested graphs and functions, each below its path. False when memory is out, and then
 * out->failed is set, or when `work` was stopped: fb_work_failed says which. Time and space are O(nodes + edges + text). */
bool fb_code_write(const fb_graph *graph, fb_program program, fb_work *work, fb_buffer *out);

#endif
