/* Strides as archives record them, by what PyTorch's operators give; for core/archive alone.
 *
 * torch.export.load makes fake tensors of the recorded sizes and strides; a program runs without looking at them. Sizes and
 * strides are SymInts of the archive: {"as_int": 6} or {"as_expr": {"expr_str", "hint"}}. All returned values are new
 * references, and NULL when memory is out, if nothing else is said. */
#ifndef FB_ARCHIVE_STRIDES_H
#define FB_ARCHIVE_STRIDES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

json_t *pt_row_major(const json_t *sizes);

/* The strides of a result of `target` with these sizes. `node` is the call as the document has it, and `tensors` are the
 * values, {sizes, strides, …}, of the tensors it reads, in their order. `is_known` is false, and the result NULL, where the
 * operator is neither a view nor element by element. */
json_t *pt_strides_of(const char *target, const json_t *node, const json_t *tensors, const json_t *sizes, bool *is_known);

#endif
