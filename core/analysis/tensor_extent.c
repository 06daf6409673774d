#include "core/analysis/tensor_extent.h"

#include "core/weights/dtype.h"

bool fb_tensor_extent_of(const fb_graph *g, fb_tensor tensor, const fb_blobs *blobs, fb_extent *out) {
    const fb_tensor_row *row = fb_tensor_at(g, tensor);
    bool has_bytes = row->recipe.id || row->data.id || (blobs && (row->blob.id || blobs->stand_in));
    if (!has_bytes || !fb_dtype_is_computed((fb_dtype)row->dtype)) return false;
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
