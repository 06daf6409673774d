/* Tensors of the graph as arrays: read from blobs, computed by recipes or drawn at random, whole or in parts. */
#include <stdlib.h>

#include "core/evaluator/internal.h"
#include "core/weights/evaluate.h"

#define READ_AT_ONCE ((int64_t)1 << 18) /* bytes: they are still in the cache when they are converted */

/* ---- where bytes are ------------------------------------------------------------------------------------------------- */

static fb_status open_blob(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    const fb_blobs *inner = ((fb_evaluator *)context)->options->blobs;
    if (!inner) return fb_fail(error, FB_NOT_FOUND, "blob-missing", NULL, "the blob %s is not here", blob);
    return inner->open(inner->context, blob, out, error);
}
static void close_blob(void *context, fb_blob_bytes *bytes) {
    const fb_blobs *inner = ((fb_evaluator *)context)->options->blobs;
    inner->close(inner->context, bytes);
}
static void forget_blob(void *context, const fb_blob_bytes *bytes) {
    const fb_blobs *inner = ((fb_evaluator *)context)->options->blobs;
    inner->forget(inner->context, bytes);
}

static void draw_weight(void *context, const fb_graph *graph, fb_tensor tensor, int64_t first, int64_t count,
                        unsigned char *to) {
    const fb_evaluator *evaluator = context;
    fb_random_weight(graph, tensor, evaluator->options->seed, first, count, to, &evaluator->memory->work);
}

void fb_weights_begin(fb_evaluator *evaluator) {
    evaluator->sources = (fb_blobs){.context = evaluator,
                                    .open = open_blob,
                                    .close = close_blob,
                                    .forget = forget_blob,
                                    .stand_in = evaluator->options->random_weights ? draw_weight : NULL};
}

/* ---- reading --------------------------------------------------------------------------------------------------------- */

/* Fills a contiguous array with elements first … of the tensor. */
static fb_status read_elements(fb_evaluator *evaluator, fb_evaluation *bytes, int64_t first, const fb_array *to) {
    int64_t count = fb_array_count(to), element = (int64_t)fb_dtype_size(to->dtype), at_once = READ_AT_ONCE / element;
    size_t room = (size_t)((count < at_once ? count : at_once) * element);
    fb_work *work = &evaluator->memory->work;
    fb_status status = fb_array_memory_take(evaluator->memory, room, evaluator->error);
    if (status) return status;
    unsigned char *part = malloc(room ? room : 1);
    if (!part) status = fb_fail_memory(evaluator->error);
    for (int64_t at = 0, size; at < count && !status; at += size) {
        size = count - at < at_once ? count - at : at_once;
        fb_work_goes_on(work, size);
        status = fb_work_status(work, evaluator->error);
        uint64_t offset = (uint64_t)((first + at) * element);
        if (!status) status = fb_evaluation_read(bytes, offset, part, (size_t)(size * element), evaluator->error);
        if (!status) fb_array_put_bytes(to, at, size, part);
    }
    free(part);
    fb_array_memory_give(evaluator->memory, room);
    return status ? status : fb_work_status(work, evaluator->error);
}

/* Their rank; more than FB_MAX_RANK: there are too many dimensions. */
static int sizes_of(const fb_graph *graph, fb_tensor tensor, int64_t sizes[FB_MAX_RANK]) {
    fb_value shape = fb_tensor_at(graph, tensor)->shape;
    int rank = fb_shape_rank(graph, shape);
    for (int i = 0; i < rank && i < FB_MAX_RANK; i++) sizes[i] = fb_shape_size(graph, shape, i);
    return rank;
}

static fb_status load(fb_evaluator *evaluator, fb_tensor tensor, fb_evaluation *bytes, fb_array **out) {
    const fb_tensor_row *row = fb_tensor_at(evaluator->graph, tensor);
    int64_t sizes[FB_MAX_RANK];
    int rank = sizes_of(evaluator->graph, tensor, sizes);
    if (rank < 0 || rank > FB_MAX_RANK)
        return fb_fail(evaluator->error, FB_TOO_LARGE, "evaluation-too-large", NULL, "too many dimensions");
    uint64_t size = fb_evaluation_size(bytes);
    if (evaluator->memory->limit && size > evaluator->memory->limit)
        return fb_fail(evaluator->error, FB_TOO_LARGE, "evaluation-too-large", NULL, "%s alone takes more than %zu bytes",
                       fb_text(evaluator->graph, row->name), evaluator->memory->limit);
    fb_array *array;
    fb_status status = fb_array_new(evaluator->memory, (fb_dtype)row->dtype, rank, sizes, &array, evaluator->error);
    if (status) return status;
    status = read_elements(evaluator, bytes, 0, array);
    if (status) fb_array_drop(array);
    else *out = array;
    return status;
}

fb_status fb_evaluate_tensor(fb_evaluator *evaluator, fb_tensor tensor, fb_array **out) {
    fb_array **loaded = &evaluator->tensors[tensor.id];
    if (!*loaded) {
        fb_evaluation *bytes;
        const fb_alias *alias = evaluator->alias;
        if (alias && fb_tensor_is_carried(evaluator->graph, tensor) && fb_tensor_is_written(alias, tensor))
            return fb_fail(evaluator->error, FB_INVALID, "unsupported-operator", NULL,
                           "%s shares memory with other tensors, and the program writes to it",
                           fb_tensor_name(evaluator->graph, tensor));
        fb_status status = fb_evaluation_new(evaluator->graph, tensor, &evaluator->sources, &bytes, evaluator->error);
        if (status) return status;
        status = load(evaluator, tensor, bytes, loaded);
        fb_evaluation_free(bytes);
        bool is_last = fb_tensor_format(evaluator->graph, tensor) != FB_FORMAT_UNSAID;
        if (!status && is_last) status = fb_lay_out_channels_last(loaded, evaluator->error);
        if (status) return status;
    }
    *out = fb_array_keep(*loaded);
    return FB_OK;
}

/* ---- in parts -------------------------------------------------------------------------------------------------------- */

#define PART_OF_LIMIT 16 /* of the limit: a larger weight is read in parts by each of several readers */

bool fb_weight_has_parts(const fb_evaluator *evaluator, fb_tensor tensor, uint32_t readers) {
    const fb_tensor_row *row = fb_tensor_at(evaluator->graph, tensor);
    fb_held held = fb_held_of(evaluator->memory->precision, (fb_dtype)row->dtype);
    bool is_floating = held == FB_HELD_FLOAT || held == FB_HELD_DOUBLE;
    bool is_written = evaluator->alias && fb_tensor_is_mutated(evaluator->alias, tensor);
    if (is_written || !is_floating || fb_shape_rank(evaluator->graph, row->shape) != 2) return false;
    double count =
        (double)fb_shape_size(evaluator->graph, row->shape, 0) * (double)fb_shape_size(evaluator->graph, row->shape, 1);
    return readers == 1 || count * (double)fb_held_size(held) * PART_OF_LIMIT > (double)evaluator->memory->limit;
}

fb_status fb_weight_open(fb_evaluator *evaluator, fb_tensor tensor, fb_object *out) {
    const fb_tensor_row *row = fb_tensor_at(evaluator->graph, tensor);
    fb_weight *weight = malloc(sizeof *weight);
    if (!weight) return fb_fail_memory(evaluator->error);
    *weight = (fb_weight){.references = 1, .dtype = (fb_dtype)row->dtype};
    sizes_of(evaluator->graph, tensor, weight->sizes);
    fb_status status = fb_evaluation_new(evaluator->graph, tensor, &evaluator->sources, &weight->bytes, evaluator->error);
    if (status) free(weight);
    else *out = (fb_object){.kind = FB_OBJECT_WEIGHT, .weight = weight};
    return status;
}

void fb_weight_close(fb_weight *weight) {
    fb_evaluation_free(weight->bytes);
    free(weight);
}

bool fb_read_weight(fb_kernel_call *call, const fb_weight *weight, int64_t first, const fb_array *to) {
    if (!call->status) call->status = read_elements(call->evaluator, weight->bytes, first, to);
    return !call->status;
}
