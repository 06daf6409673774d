/* Strides of results. Kernels make them row-major; PyTorch gives results that are computed element by element, and copies, the
 * order of axes of their operands, and `view` works or fails by that. */
#include <string.h>

#include "core/evaluator/internal.h"

static bool is_new(const fb_array *array) {
    return array->references == 1 && array->storage->references == 1 && fb_array_is_contiguous(array);
}

fb_status fb_lay_out_like(fb_kernel_call *call, fb_array *const *operands, size_t count, fb_object *result) {
    int64_t strides[FB_MAX_RANK];
    if (call->status || result->kind != FB_OBJECT_ARRAY) return call->status;
    fb_array *array = result->array;
    if (!is_new(array) || array->rank < 2) return FB_OK;
    fb_array_strides_like(array->rank, array->sizes, operands, count, strides);
    call->status = fb_array_lay_out(&result->array, strides, call->error);
    return call->status;
}

/* Puts the one that decides before the others first. */
static void move_leading(const fb_kernel_call *call, const fb_node *nodes, fb_array **arrays, size_t count) {
    size_t at = 0;
    fb_node leading = fb_leading_input(call->graph, call->node);
    while (at < count && nodes[at].id != leading.id) at++;
    if (at == count) return;
    fb_array *array = arrays[at];
    memmove(arrays + 1, arrays, at * sizeof *arrays);
    arrays[0] = array;
}

static bool gives_complex_rows(const fb_kernel_call *call, fb_array *const *operands, size_t count) {
    return count && (fb_op_facts_of(call->op)->flags & FB_FACT_COMPLEX_ROWS) && fb_dtype_is_complex(operands[0]->dtype);
}

/* The tensors that the call was given by position and by name, kept. */
static size_t collect(fb_kernel_call *call, fb_array *out[FB_CALL_ARGUMENTS]) {
    fb_node nodes[FB_CALL_ARGUMENTS];
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *lists[] = {fb_value_at(call->graph, row->args), fb_value_at(call->graph, row->kwargs)};
    size_t count = 0;
    for (size_t list = 0; list < 2; list++) {
        for (uint32_t i = (uint32_t)list; i < lists[list]->count && count < FB_CALL_ARGUMENTS; i += 1 + (uint32_t)list) {
            fb_object object;
            if (!fb_value_node(call->graph, lists[list]->items[i]).id) continue;
            if (fb_evaluate_value(call->evaluator, lists[list]->items[i], &object)) continue;
            nodes[count] = fb_value_node(call->graph, lists[list]->items[i]);
            if (object.kind == FB_OBJECT_ARRAY) out[count++] = object.array;
            else fb_object_drop(&object);
        }
    }
    move_leading(call, nodes, out, count);
    return count;
}

/* ---- memory_format= ------------------------------------------------------------------------------------------------------ */

/* From the axis with the smallest stride, the channels, to the one with the largest, the batch. */
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

fb_status fb_lay_out_channels_last(fb_array **array, fb_error *error) {
    int64_t strides[FB_MAX_RANK], step = 1;
    int rank = (*array)->rank;
    for (int i = 0; i < rank; i++) {
        int axis = channels_last_axis(rank, i);
        strides[axis] = step;
        step *= (*array)->sizes[axis] > 1 ? (*array)->sizes[axis] : 1;
    }
    fb_status status = fb_array_lay_out(array, strides, error);
    if (!status) memcpy((*array)->strides, strides, (size_t)rank * sizeof *strides); /* also of axes of one element */
    return status;
}

static fb_status lay_out_channels_last(fb_kernel_call *call, fb_memory_format format, fb_object *result) {
    int rank = format == FB_FORMAT_CHANNELS_LAST ? 4 : 5;
    if (call->evaluator->levels) return fb_kernel_unsupported(call, "channels_last is not evaluated within vmap");
    if (result->array->rank != rank) return fb_kernel_fail(call, "its memory_format is for tensors of %d dimensions", rank);
    if (is_new(result->array)) call->status = fb_lay_out_channels_last(&result->array, call->error);
    return call->status;
}

static bool is_convolution(fb_op op) {
    return op == FB_OP_CONV2D || op == FB_OP_CONV_TRANSPOSE2D || op == FB_OP_CONVOLUTION || op == FB_OP_CONV_POINTWISE ||
           op == FB_OP_CONV_POINTWISE_BINARY;
}

typedef struct images {
    int rank;
    size_t count, last; /* of that rank; of those, in channels_last */
} images;

static void count_image(images *found, fb_array *array) {
    if (array->rank != found->rank) return;
    found->count++;
    found->last += fb_strides_suggest_channels_last(array);
}

/* The tensors that an argument gives, also in a list. */
static void count_images(fb_kernel_call *call, fb_value value, images *found) {
    const fb_value_row *row = fb_value_at(call->graph, value);
    if (row->kind == FB_LIST || row->kind == FB_TUPLE)
        for (uint32_t i = 0; i < row->count; i++) count_images(call, row->items[i], found);
    fb_object object;
    if (row->kind != FB_NODE || fb_evaluate_value(call->evaluator, value, &object)) return;
    if (object.kind == FB_OBJECT_ARRAY) count_image(found, object.array);
    fb_object_drop(&object);
}

/* A convolution gives an image in channels_last where its input or its weight is, and others where all images that they read
 * are. (PyTorch: mkldnn_conv_use_channels_last.) */
static fb_status lay_out_image(fb_kernel_call *call, fb_object *result) {
    images found = {.rank = result->array->rank};
    const fb_node_row *row = fb_node_at(call->graph, call->node);
    const fb_value_row *args = fb_value_at(call->graph, row->args), *kwargs = fb_value_at(call->graph, row->kwargs);
    for (uint32_t i = 0; i < args->count; i++) count_images(call, args->items[i], &found);
    for (uint32_t i = 1; i < kwargs->count; i += 2) count_images(call, kwargs->items[i], &found);
    fb_tensor weight = row->opcode == FB_CALL_MODULE ? fb_convolution_weight(call->graph, call->node) : (fb_tensor){0};
    fb_array *array;
    if (weight.id && !fb_evaluate_tensor(call->evaluator, weight, &array)) {
        count_image(&found, array);
        fb_array_drop(array);
    }
    bool is_last = found.last && (is_convolution(call->op) || found.last == found.count);
    if (!call->status && is_last && is_new(result->array)) call->status = fb_lay_out_channels_last(&result->array, call->error);
    return call->status;
}

/* In a batch of torch.vmap, the outermost level has the largest stride; it is the last dimension here (batched.c). */
static fb_status lay_out_batch(fb_kernel_call *call, fb_object *result) {
    fb_array *array = result->array;
    int64_t strides[FB_MAX_RANK], step = 1;
    if (!is_new(array) || array->rank != fb_array_hidden_rank(array)) return FB_OK;
    for (int i = 0; i < array->rank; step *= array->sizes[i++]) strides[i] = step;
    return call->status = fb_array_lay_out(&result->array, strides, call->error);
}

fb_status fb_lay_out_result(fb_kernel_call *call, fb_object *result) {
    fb_memory_layout layout = fb_layout_of(call->graph, call->node);
    bool follows_first = layout == FB_LAYOUT_AS_FIRST || layout == FB_LAYOUT_AS_FIRST_WITH_GAPS;
    bool follows = follows_first || layout == FB_LAYOUT_AS_ALL;
    if (call->status || result->kind != FB_OBJECT_ARRAY) return call->status;
    fb_memory_format format = fb_memory_format_of(call->graph, call->node);
    if (format == FB_FORMAT_UNKNOWN) return fb_kernel_unsupported(call, "its memory_format is not evaluated");
    if (fb_format_is_channels_last(format)) return lay_out_channels_last(call, format, result);
    if (result->array->levels) return lay_out_batch(call, result);
    bool is_image = layout == FB_LAYOUT_IMAGE && (result->array->rank == 4 || result->array->rank == 5);
    if (is_image && !call->evaluator->levels && format == FB_FORMAT_UNSAID) return lay_out_image(call, result);
    if (call->evaluator->levels || !follows || format == FB_FORMAT_CONTIGUOUS || result->array->rank < 2) return FB_OK;
    fb_array *operands[FB_CALL_ARGUMENTS];
    size_t count = collect(call, operands);
    if (!gives_complex_rows(call, operands, count)) fb_lay_out_like(call, operands, follows_first && count ? 1 : count, result);
    while (count) fb_array_drop(operands[--count]);
    return call->status;
}
