/* Names of nodes and of generated variables, made exactly as torch.fx's _Namespace.create_name makes them (PyTorch 2.13), so
 * that a rewritten graph has the names, and its code the text, that PyTorch users know.
 *
 * Where torch.fx and this differ: a newline at the end of a candidate is replaced like any other character that cannot be in
 * a name (torch.fx lets it through); `None` is never given out (torch.fx does, through a slip); a number of more than 18 digits
 * counts as part of the name and not as its number.
 * A name costs amortised O(length), in any order of the requests.
 */
#ifndef FB_GRAPH_NAMESPACE_H
#define FB_GRAPH_NAMESPACE_H

#include <stdbool.h>

#include "core/base/buffer.h"
#include "core/graph/graph.h"

typedef struct fb_namespace fb_namespace;

fb_namespace *fb_namespace_new(void); /* NULL when memory is out */
/* The names of the nodes of `graph`, which must stay as it is while the namespace lives, are used. NULL when memory is out, or
 * the work was stopped. */
fb_namespace *fb_namespace_of(const fb_graph *graph, fb_work *work);
/* The same names. Its texts are those of `from`, which must stay as it is while the copy lives. NULL when memory is out, or the
 * work was stopped. */
fb_namespace *fb_namespace_copy(const fb_namespace *from, fb_work *work);
void fb_namespace_free(fb_namespace *names);

/* A fresh name like `candidate` (any text), marked as used: an ASCII identifier, or one that ends in `_` and the decimal digits
 * of another script; never a Python keyword, a builtin, nor one of torch.fx's own globals. Owned by the namespace; NULL when
 * memory is out. */
const char *fb_namespace_create(fb_namespace *names, const char *candidate);

/* The same in two steps, for many names of one kind: making the candidate an identifier, and the next name like it. None, and
 * then NULL, when memory is out. */
typedef struct fb_wanted_name {
    uint32_t id;
} fb_wanted_name;
fb_wanted_name fb_namespace_want(fb_namespace *names, const char *text);
const char *fb_namespace_next(fb_namespace *names, fb_wanted_name wanted);

/* Each is false when memory is out. */
/* Marks a name as used and leaves the counting alone. */
bool fb_namespace_reserve(fb_namespace *names, const char *name);
/* Takes over any name that exists, as if it had been created here: its number, where it has one, is where counting for its base
 * goes on. Adopt names in their order. */
bool fb_namespace_adopt(fb_namespace *names, const char *name);

bool fb_namespace_is_used(const fb_namespace *names, const char *name);

/* The part of a function's qualified name that is its __name__: `cat` of `torch.cat`. An overload of torch.ops has two parts:
 * `add.Tensor`. */
const char *fb_function_name(const char *target);

/* Appends what torch.fx would call a new node before names are made unique (Graph._target_to_str): the last part of a
 * function's qualified name (`add.Tensor` for `torch.ops.aten.add.Tensor`), else the target without the underscores of
 * `__len__`; in snake case. Hand it to fb_namespace_create. */
void fb_candidate_name(fb_buffer *out, fb_opcode opcode, const char *target);

#endif
