/* How results lie in memory. Kernels make them row-major; PyTorch lets results that are computed element by element, and
 * copies, lie as their operands do, and `view` works or fails by that. */
#include <string.h>

#include "core/evaluator/internal.h"

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
    case FB_OP_FILL:
    case FB_OP_ZERO:
    case FB_OP_FLIP:
    case FB_OP_GLU: return true;
    default: return false;
    }
}

static bool follows_all(fb_op op) {
    unsigned flags = fb_op_facts_of(op)->flags;
    return ((flags & FB_FACT_ELEMENTWISE) && !(flags & FB_FACT_GIVES_ROWS)) || op == FB_OP_PRELU;
}

/* The operand that is asked first stands behind another one: other - input, x.where(condition, y). */
static bool second_leads(const fb_kernel_call *call) {
    bool is_method = fb_node_at(call->graph, call->node)->opcode == FB_CALL_METHOD;
    return (fb_op_facts_of(call->op)->flags & FB_FACT_SECOND_LEADS) || (call->op == FB_OP_WHERE && is_method);
}

static bool gives_complex_rows(const fb_kernel_call *call, fb_array *const *operands, size_t count) {
    return count && (fb_op_facts_of(call->op)->flags & FB_FACT_COMPLEX_ROWS) && fb_dtype_is_complex(operands[0]->dtype);
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

/* ---- memory_format= ------------------------------------------------------------------------------------------------------ */

/* By name wherever it stands, as its position differs from overload to overload; by the number that ATen takes as well. */
fb_memory_format fb_call_memory_format(const fb_kernel_call *call) {
    static const char *const names[] = {"contiguous_format", "preserve_format", "channels_last", "channels_last_3d"};
    const fb_graph *graph = call->graph;
    const fb_value_row *args = fb_value_at(graph, fb_node_at(graph, call->node)->args);
    fb_value value = fb_node_kwarg(graph, call->node, "memory_format");
    int64_t number = -1;
    if (!value.id) value = fb_call_argument(graph, call->node, "memory_format");
    for (uint32_t i = 0; i < args->count; i++)
        if (fb_value_kind(graph, args->items[i]) == FB_MEMORY_FORMAT) value = args->items[i];
    bool is_named = value.id && fb_value_kind(graph, value) == FB_MEMORY_FORMAT;
    if (!is_named && !(value.id && fb_is_aten(graph, call->node) && fb_value_is_int(graph, value, &number)))
        return FB_FORMAT_UNSAID;
    for (int i = 0; i < 4; i++) {
        if (is_named ? strcmp(fb_value_text(graph, value), names[i]) == 0 : number == i)
            return (fb_memory_format)(FB_FORMAT_CONTIGUOUS + i);
    }
    return FB_FORMAT_UNKNOWN;
}

/* From the axis whose elements lie next to each other, the channels, to the one whose lie farthest apart, the batch. */
static int channels_last_axis(int rank, int i) {
    return i == 0 ? 1 : i + 1 == rank ? 0 : rank - i;
}

bool fb_format_fits(const fb_array *array, fb_memory_format format) {
    int64_t expected = 1;
    if (!fb_format_is_channels_last(format)) return fb_array_is_contiguous(array);
    for (int i = 0; i < array->rank && fb_array_count(array); i++) {
        int axis = channels_last_axis(array->rank, i);
        if (array->sizes[axis] != 1 && array->strides[axis] != expected) return false;
        expected *= array->sizes[axis];
    }
    return true;
}

/* After c10/core/MemoryFormat.h: strides that grow from the channels to the batch; what would be row-major as well is not. */
bool fb_strides_suggest_channels_last(const fb_array *array) {
    int64_t least = 0;
    if ((array->rank != 4 && array->rank != 5) || array->strides[1] == 0) return false;
    for (int i = 0; i < array->rank; i++) {
        int axis = channels_last_axis(array->rank, i);
        if (array->sizes[axis] == 0 || array->strides[axis] < least) return false;
        if (axis == 0 && least == array->strides[1]) return false;
        least = array->strides[axis] * (array->sizes[axis] > 1 ? array->sizes[axis] : 1);
    }
    return true;
}

static fb_status lay_out_channels_last(fb_kernel_call *call, fb_memory_format format, fb_object *result) {
    fb_array *array = result->array;
    int64_t strides[FB_MAX_RANK], step = 1;
    int rank = format == FB_FORMAT_CHANNELS_LAST ? 4 : 5;
    if (call->evaluator->levels) return fb_kernel_unsupported(call, "channels_last is not evaluated within vmap");
    if (array->rank != rank) return fb_kernel_fail(call, "its memory_format is for tensors of %d dimensions", rank);
    bool is_new = array->references == 1 && array->storage->references == 1 && fb_array_is_contiguous(array);
    for (int i = 0; i < rank; i++) {
        int axis = channels_last_axis(rank, i);
        strides[axis] = step;
        step *= array->sizes[axis] > 1 ? array->sizes[axis] : 1;
    }
    if (!is_new) return FB_OK;
    call->status = fb_array_lay_out(&result->array, strides, call->error);
    if (!call->status)
        memcpy(result->array->strides, strides, (size_t)rank * sizeof *strides); /* also of axes of one element */
    return call->status;
}

/* Of a batch of torch.vmap, the outermost level lies farthest apart; it is the last dimension here (batched.c). */
static fb_status lay_out_batch(fb_kernel_call *call, fb_object *result) {
    fb_array *array = result->array;
    int64_t strides[FB_MAX_RANK], step = 1;
    bool is_new = array->references == 1 && array->storage->references == 1 && fb_array_is_contiguous(array);
    if (!is_new || array->rank != fb_array_hidden_rank(array)) return FB_OK;
    for (int i = 0; i < array->rank; step *= array->sizes[i++]) strides[i] = step;
    return call->status = fb_array_lay_out(&result->array, strides, call->error);
}

fb_status fb_lay_out_result(fb_kernel_call *call, fb_object *result) {
    bool follows = follows_first(call->op) || follows_all(call->op);
    if (call->status || result->kind != FB_OBJECT_ARRAY) return call->status;
    fb_memory_format format = fb_call_memory_format(call);
    if (format == FB_FORMAT_UNKNOWN) return fb_kernel_unsupported(call, "its memory_format is not evaluated");
    if (fb_format_is_channels_last(format)) return lay_out_channels_last(call, format, result);
    if (result->array->levels) return lay_out_batch(call, result);
    if (call->evaluator->levels || !follows || format == FB_FORMAT_CONTIGUOUS || result->array->rank < 2) return FB_OK;
    fb_array *operands[FB_CALL_ARGUMENTS];
    size_t count = collect(call, operands);
    if (count > 1 && second_leads(call)) {
        fb_array *first = operands[0];
        operands[0] = operands[1];
        operands[1] = first;
    }
    if (!gives_complex_rows(call, operands, count))
        fb_lay_out_like(call, operands, follows_first(call->op) && count ? 1 : count, result);
    while (count) fb_array_drop(operands[--count]);
    return call->status;
}
