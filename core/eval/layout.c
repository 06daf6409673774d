/* How results lie in memory. Kernels make them row-major; PyTorch lets results that are computed element by element, and
 * copies, lie as their operands do, and `view` works or fails by that. */
#include "core/eval/evaluator.h"

fb_status fb_lay_out_like(fb_kernel_call *call, fb_array *const *operands, size_t count, fb_object *result) {
    int64_t strides[FB_MAX_RANK];
    if (call->status || result->kind != FB_OBJECT_ARRAY) return call->status;
    fb_array *array = result->array;
    bool is_new = array->references == 1 && array->storage->references == 1 && fb_array_is_contiguous(array);
    if (!is_new || array->rank < 2) return FB_OK;
    fb_array_strides_like(array->rank, array->sizes, operands, count, strides);
    call->status = fb_array_lay_out(&result->array, strides, call->error);
    return call->status;
}

/* A copy of the first operand, or of its shape. */
static bool follows_first(fb_op op) {
    switch (op) {
    case FB_OP_CLONE:
    case FB_OP_COPY:
    case FB_OP_TO:
    case FB_OP_TO_OTHER:
    case FB_OP_TO_COPY:
    case FB_OP_TYPE:
    case FB_OP_TYPE_AS:
    case FB_OP_CAST_FLOAT:
    case FB_OP_CAST_DOUBLE:
    case FB_OP_CAST_HALF:
    case FB_OP_CAST_BFLOAT16:
    case FB_OP_CAST_LONG:
    case FB_OP_CAST_INT:
    case FB_OP_CAST_BOOL:
    case FB_OP_ZEROS_LIKE:
    case FB_OP_ONES_LIKE:
    case FB_OP_FULL_LIKE:
    case FB_OP_FLIP:
    case FB_OP_GLU: return true;
    default: return false;
    }
}

static bool follows_all(fb_op op) {
    return (fb_op_facts_of(op)->flags & FB_FACT_ELEMENTWISE) || op == FB_OP_PRELU;
}

/* The tensors that the call was given by position and by name, kept. */
static size_t collect(fb_kernel_call *call, fb_array *out[FB_CALL_ARGUMENTS]) {
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *lists[] = {fb_value_at(call->graph, row->args), fb_value_at(call->graph, row->kwargs)};
    size_t count = 0;
    for (size_t list = 0; list < 2; list++) {
        for (uint32_t i = (uint32_t)list; i < lists[list]->count && count < FB_CALL_ARGUMENTS; i += 1 + (uint32_t)list) {
            fb_object object;
            if (!fb_value_node(call->graph, lists[list]->items[i]).id) continue;
            if (fb_evaluate_value(call->evaluator, lists[list]->items[i], &object)) continue;
            if (object.kind == FB_OBJECT_ARRAY) out[count++] = object.array;
            else fb_object_drop(&object);
        }
    }
    return count;
}

/* memory_format= says what it is to look like: the kernel obeys. */
static bool is_told(const fb_kernel_call *call) {
    fb_value value = fb_call_argument(call->graph, call->node, "memory_format");
    return value.id && fb_value_kind(call->graph, value) == FB_MEMORY_FORMAT;
}

fb_status fb_lay_out_result(fb_kernel_call *call, fb_object *result) {
    bool follows = follows_first(call->op) || follows_all(call->op);
    if (call->status || call->evaluator->levels || !follows || is_told(call)) return call->status;
    if (result->kind != FB_OBJECT_ARRAY || result->array->rank < 2) return FB_OK;
    fb_array *operands[FB_CALL_ARGUMENTS];
    size_t count = collect(call, operands);
    fb_lay_out_like(call, operands, follows_first(call->op) && count ? 1 : count, result);
    while (count) fb_array_drop(operands[--count]);
    return call->status;
}
