/* Shared by the files that write the archive of a changed graph; for core/archive alone. */
#ifndef FB_ARCHIVE_REWRITE_H
#define FB_ARCHIVE_REWRITE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/archive/archive.h"
#include "core/graph/graph.h"

/* ---- which entries it has: rewrite.c ------------------------------------------------------------------------------------- */

/* A text, a range of the old archive, or else a tensor of the graph. */
typedef struct pt_entry {
    const char *name;
    const char *text;
    const unsigned char *range;
    uint64_t stored, size; /* of a range */
    uint32_t crc;
    bool is_deflated;
    fb_tensor tensor;
} pt_entry;

typedef fb_status pt_add_entry(void *context, const pt_entry *entry);

/* Calls `add` for each entry. FB_CONFLICT "archive-changed": with what cannot be written. */
fb_status pt_rewrite(const fb_archive *archive, const char *model, const char *blob, const fb_graph *graph, fb_work *work,
                     pt_add_entry *add, void *context, fb_error *error);

/* ---- what a document says, whatever its nodes are called: meaning.c ------------------------------------------------------ */

/* All give NULL or false when memory is out. */

/* Appends the names of the nodes in a value of the document, left to right. */
bool pt_list_reads(const json_t *value, json_t *out);
/* A document's tensors by owner: {"a.weight": [row, is a parameter]}. */
json_t *pt_owners_of(const json_t *document);
/* Of such an owner's tensor. */
bool pt_requires_grad(const json_t *owned);
/* What the document computes: inputs, calls in their order with what they read, and the dtype and shape of each state. Two
 * documents with equal ones compute the same. With `records`, also the shape and dtype of each result and whether a state
 * requires gradients. */
json_t *pt_meaning_of(const json_t *document, bool records);

/* ---- strides as archives record them, by what PyTorch's operators give: strides.c ---------------------------------------- */

/* torch.export.load makes fake tensors of the recorded sizes and strides; a program runs without looking at them. Sizes and
 * strides are SymInts of the archive: {"as_int": 6} or {"as_expr": {"expr_str", "hint"}}. All returned values are new
 * references, and NULL when memory is out, if nothing else is said. */

json_t *pt_row_major(const json_t *sizes);

/* The strides of a result of `target` with these sizes. `node` is the call as the document has it, and `tensors` are the
 * values, {sizes, strides, …}, of the tensors it reads, in their order. `is_known` is false, and the result NULL, where the
 * operator is neither a view nor element by element. */
json_t *pt_strides_of(const char *target, const json_t *node, const json_t *tensors, const json_t *sizes, bool *is_known);

#endif
