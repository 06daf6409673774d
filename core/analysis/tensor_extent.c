#include "core/analysis/tensor_extent.h"

#include "core/weights/dtype.h"

/* The first of the tensors that it is made of; itself where that is not found soon. */
static fb_tensor first_source(const fb_graph *g, fb_tensor tensor) {
    fb_tensor found = tensor;
    fb_value part = fb_tensor_at(g, tensor)->recipe;
    for (int steps = 64; part.id && steps > 0; steps--) {
        const fb_value_row *row = fb_value_at(g, part);
        if (row->kind == FB_TENSOR) found = fb_value_tensor(g, part), part = fb_tensor_at(g, found)->recipe;
        else part = fb_value_item(g, row->items[0], 0);
    }
    return fb_tensor_at(g, found)->recipe.id ? tensor : found;
}

bool fb_tensor_extent_of(const fb_graph *g, fb_tensor tensor, const fb_blobs *blobs, fb_extent *out) {
    fb_tensor source = first_source(g, tensor);
    const fb_tensor_row *row = fb_tensor_at(g, tensor), *first = fb_tensor_at(g, source);
    bool may_have_bytes = first->recipe.id || first->data.id || (blobs && (first->blob.id || blobs->stand_in)) ||
                          (source.id != tensor.id && !fb_tensor_bytes(g, source));
    if (!may_have_bytes || !fb_dtype_is_computed((fb_dtype)row->dtype)) return false;
    fb_evaluation *evaluation = NULL;
    fb_error ignored = {0};
    bool is_known =
        !fb_evaluation_new(g, tensor, blobs, &evaluation, &ignored) && !fb_evaluation_extent(evaluation, out, &ignored);
    fb_evaluation_free(evaluation);
    return is_known;
}

bool fb_tensor_extent(const fb_graph *g, fb_tensor tensor, fb_extent *out) {
    return fb_tensor_at(g, tensor)->data.id && fb_tensor_extent_of(g, tensor, NULL, out);
}
