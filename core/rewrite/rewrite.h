/* The only way to change a graph. A rewrite is one pass's changes: all of them take effect, or none.
 *
 * Failure is sticky: after the first one every call does nothing, calls that return an id return none, and
 * fb_rewrite_commit reports it. So an edit is straight-line code without checks. Every change is journalled as the row
 * it overwrote; fb_rewrite_abort puts the rows back.
 *
 * Erasing a node and replacing its uses take effect at commit, where every reader's arguments are rebuilt once, however many of
 * them were replaced. Until then the graph still shows the old reader and the old node.
 */
#ifndef FB_REWRITE_REWRITE_H
#define FB_REWRITE_REWRITE_H

#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/work.h"
#include "core/graph/graph.h"
#include "core/graph/namespace.h"

#define FB_SIGNATURE_LENGTH 32 /* hex digits */

typedef struct fb_rewrite fb_rewrite;

/* Starts a rewrite in the name of a pass with this signature. `names` is the run's namespace: it holds every name that is or
 * was in use in the run. All three are borrowed until commit or abort. NULL when memory is out. */
fb_rewrite *fb_rewrite_begin(fb_graph *graph, fb_namespace *names, const char *signature);
/* Starts one on a copy of the graph, to try what could be written; it inserts no nodes. fb_rewrite_abort, which it must end
 * with, throws the copy away. NULL when memory is out. */
fb_rewrite *fb_rewrite_begin_trial(const fb_graph *graph, const char *signature);
/* Asked now and then from here on; when it says stop, that is this rewrite's failure. */
void fb_rewrite_watch(fb_rewrite *rewrite, const fb_watch *watch);
/* Makes the changes final, drops tensors that nothing owns or computes from any more, numbers the nodes, and frees the rewrite.
 * After a failure (of this or an earlier call) the graph is as it was at fb_rewrite_begin. */
fb_status fb_rewrite_commit(fb_rewrite *rewrite, fb_error *error);
/* Puts the graph back as it was at fb_rewrite_begin and frees the rewrite. Needs no memory. */
void fb_rewrite_abort(fb_rewrite *rewrite);

/* ---- one match after the other ------------------------------------------------------------------------------------------- */

/* A name that a new node got, and what it was made for. */
typedef struct fb_made_name {
    uint64_t wanted;
    const char *name; /* the namespace's */
} fb_made_name;

/* From here on the changes are for the next match. If `names` were made for the same match before, in a rewrite that was
 * aborted, its new nodes get them again. */
void fb_rewrite_begin_match(fb_rewrite *rewrite, const fb_made_name *names, size_t count);
/* The first node that was marked for this match; where none is, the first that is inserted, changed or erased; or none. */
fb_node fb_rewrite_first_node(const fb_rewrite *rewrite);
/* Its failure so far, which commit would report. */
fb_status fb_rewrite_status(const fb_rewrite *rewrite, fb_error *error);
/* All names since the first match began: fb_made_name, in order. */
const fb_buffer *fb_rewrite_made_names(const fb_rewrite *rewrite);

/* The graph as it is now; use it to make values and read rows. */
fb_graph *fb_rewrite_graph(fb_rewrite *rewrite);

/* ---- nodes ------------------------------------------------------------------------------------------------------------- */

/* A new node before `before`, named as torch.fx names it, with shape and dtype by inference. kwargs none = {}. */
fb_node fb_insert_before(fb_rewrite *rewrite, fb_node before, fb_opcode opcode, const char *target, fb_value args,
                         fb_value kwargs);
/* The same without inference, where the pass knows shape and dtype; none and 0 = unknown. */
fb_node fb_insert_typed(fb_rewrite *rewrite, fb_node before, fb_opcode opcode, const char *target, fb_value args,
                        fb_value kwargs, fb_value shape, fb_dtype dtype);
/* A copy of a call, of any program, before `before`, with all that is recorded of its result. */
fb_node fb_insert_copy(fb_rewrite *rewrite, fb_node before, fb_node call, fb_value args, fb_value kwargs);
/* Takes a member of meta away, which says what is true no more; nothing happens where there is none. */
void fb_forget_meta(fb_rewrite *rewrite, fb_node node, const char *key);
/* Sets a member of meta, given as JSON. */
void fb_put_meta(fb_rewrite *rewrite, fb_node node, const char *key, const char *json);
/* The model's operators are of another opset of ONNX's default domain from now on. */
void fb_set_opset(fb_rewrite *rewrite, int64_t opset);
void fb_set_target(fb_rewrite *rewrite, fb_node node, fb_opcode opcode, const char *target);
void fb_set_args(fb_rewrite *rewrite, fb_node node, fb_value args, fb_value kwargs);
/* Makes an ATen call whose arguments were exchanged call the overload that takes them, its own if that does. */
void fb_choose_overload(fb_rewrite *rewrite, fb_node node);
/* Exchanges one argument of a call, given by its parameter's name, in its place: by position or by keyword. */
void fb_set_argument(fb_rewrite *rewrite, fb_node node, const char *parameter, fb_value value);
/* Takes an optional keyword argument away; nothing happens when it is not given. */
void fb_remove_argument(fb_rewrite *rewrite, fb_node node, const char *keyword);
void fb_replace_uses(fb_rewrite *rewrite, fb_node old, fb_node now);
/* `by` gives from now on what `node` gave: its readers read `by`, and `node` is erased. */
void fb_absorb(fb_rewrite *rewrite, fb_node node, fb_node by);
/* `node` gives from now on what no node gave before, under its old name. */
void fb_note_new_value(fb_rewrite *rewrite, fb_node node);
void fb_erase(fb_rewrite *rewrite, fb_node node);
/* Its readers get a value in its place, and it is erased. */
void fb_write_literal(fb_rewrite *rewrite, fb_node node, fb_value literal);
/* Releases what the node reads by get_attr (see fb_release_read), transposed on the way or not: before it is erased, or reads
 * something else. */
void fb_release_reads(fb_rewrite *rewrite, fb_node node);
/* Erases a node; and a module that it called, when nothing else does, or reads what the module owns. */
void fb_erase_call(fb_rewrite *rewrite, fb_node node);
/* The same at commit, and only when nothing reads the node then; so it may be asked several times. Ask for it before you erase
 * the node's readers: erasures take effect last first. */
void fb_erase_unread(fb_rewrite *rewrite, fb_node node);
/* The module alone: before the node calls something else. */
void fb_release_call(fb_rewrite *rewrite, fb_node node);
/* Adds the pass's signature to the node's meta.transformations. */
void fb_mark(fb_rewrite *rewrite, fb_node node);
/* Pairs of nodes so far, of which the second took the first one in; a pair of one node: it has a value that none had.
 */
const fb_buffer *fb_rewrite_absorbed(const fb_rewrite *rewrite);
/* Is the node new, or has the rewrite changed it? */
bool fb_rewrite_has_changed(const fb_rewrite *rewrite, fb_node node);
/* Is the node new, or does it call something else than before? */
bool fb_rewrite_has_inserted(const fb_rewrite *rewrite, fb_node node);
/* Does the node carry this signature in meta.transformations? */

static inline bool fb_node_is_marked(const fb_graph *graph, fb_node node, const char *signature) {
    fb_value marks = fb_node_at(graph, node)->transformations;
    return marks.id && fb_value_has_text(graph, marks, signature); /* most nodes have none */
}

/* Adds a mark, a string, that the node does not carry yet, outside of a rewrite. False: memory is out. */
bool fb_node_add_mark(fb_graph *graph, fb_node node, fb_value mark);

/* Records the type of a node's result, which the pass knows; none and 0 = unknown. */
void fb_set_result_type(fb_rewrite *rewrite, fb_node node, fb_value shape, fb_dtype dtype);

/* Records the type that ops.def gives the result of a node whose call was changed. */
void fb_infer_result_type(fb_rewrite *rewrite, fb_node node);
/* The same for what is not recorded; true where more is recorded now. */
bool fb_infer_what_is_missing(fb_rewrite *rewrite, fb_node node);

/* ---- get_attr nodes ---------------------------------------------------------------------------------------------------- */

/* A get_attr node before `before` that reads a parameter or buffer of a module. */
fb_node fb_insert_read(fb_rewrite *rewrite, fb_node before, fb_module owner, const char *attribute);
/* A get_attr node has lost a reader. When it has none at commit it is erased; when no other reads the attribute either, and no
 * call can, a module of an unknown type (torch.nn.Module) loses that, and is dropped when it owns nothing more. */
void fb_release_read(fb_rewrite *rewrite, fb_node read);
/* This get_attr node has one reader, and no other node reads its attribute. */
bool fb_is_only_read(fb_rewrite *rewrite, fb_node read);

/* ---- modules and tensors ----------------------------------------------------------------------------------------------- */

/* A new module after `after`; when the path is taken, `_1`, `_2` … is added to it. `path` NULL
 * counts as out of memory. */
fb_module fb_put_module(fb_rewrite *rewrite, fb_module after, const char *path, const char *type, fb_value config,
                        bool training);
void fb_set_config(fb_rewrite *rewrite, fb_module module, const char *key, fb_value value);
/* The module is of another type from now on, with that config; its tensors stay. */
void fb_set_module(fb_rewrite *rewrite, fb_module module, const char *type, fb_value config);
/* Sets a parameter to null. */
void fb_clear_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute);
/* Takes a parameter, buffer or plain attribute away; nothing happens when the module has none of that name. */
void fb_drop_attribute(fb_rewrite *rewrite, fb_module module, const char *attribute);
/* Removes a module that no node refers to any more. */
void fb_drop_module(fb_rewrite *rewrite, fb_module module);
/* The same of one with a nested program, and of what the program consists of. */
void fb_drop_program(fb_rewrite *rewrite, fb_module module);
/* Sets a parameter, or the buffer of that name, to a new tensor computed by `recipe`, whose type it gets unless `dtype` is
 * given (then results are rounded to that). It has the memory format of the first tensor that the recipe reads, if that has as
 * many dimensions. It is named after the module's path and the attribute, and comes after the first
 * tensor that the recipe reads. */
fb_tensor fb_put_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value recipe, fb_dtype dtype,
                           bool requires_grad);
/* The same, but a new tensor that cannot be trained, of integers or bools, is a buffer: PyTorch 2.9 loads no archive with such
 * a parameter. */
fb_tensor fb_put_weight(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_value recipe, fb_dtype dtype,
                        bool requires_grad);
/* A parameter or buffer that goes, or a parameter that comes, as fb_put_parameter puts it. */
typedef struct fb_parameter_change {
    const char *attribute;
    fb_value recipe; /* none: it goes */
    bool requires_grad;
} fb_parameter_change;
/* Many of one module, in time linear in what it owns: what any of them names goes, then those with a recipe come, in order,
 * behind the others. No two that come have one name. */
void fb_change_parameters(fb_rewrite *rewrite, fb_module module, const fb_parameter_change *changes, size_t count);
/* A buffer that no checkpoint has: its bytes are in the document. */
typedef struct fb_constant {
    const char *attribute; /* the module has none of that name */
    fb_dtype dtype;
    int rank;
    const int64_t *sizes;
    const char *base64;
    size_t length; /* of the text */
} fb_constant;
/* New ones of one module, behind its others, in time linear in what it owns. */
void fb_put_constants(fb_rewrite *rewrite, fb_module module, const fb_constant *constants, size_t count);
/* Says how the tensor is to be laid out in memory by all who load it: "channels_last" of four dimensions, "channels_last_3d" of
 * five. Its bytes in the document stay row-major. */
void fb_set_memory_format(fb_rewrite *rewrite, fb_tensor tensor, const char *format);
/* Sets a parameter, or the buffer of that name, to a tensor that there is: the two are then tied. */
void fb_tie_parameter(fb_rewrite *rewrite, fb_module module, const char *attribute, fb_tensor tensor);

#endif
