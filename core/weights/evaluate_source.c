/* Where the bytes of tensors without a recipe are: in blobs, or inline. */
#include <string.h>

#include "core/base/base64.h"
#include "core/weights/evaluate_internal.h"

/* True when the caller of the evaluation has bytes for what is not known. */
static bool find_stand_in(const fb_evaluation *e, fb_tensor tensor, fb_term *term) {
    if (e->blobs && e->blobs->stand_in) term->stood_in = tensor;
    return term->stood_in.id;
}

/* A blob that is open; opens it the first time. NULL: that failed, or there are other bytes for the tensor. */
static const fb_blob_bytes *open_blob(fb_evaluation *e, fb_symbol name, fb_tensor tensor, fb_term *term) {
    uint32_t number = fb_map_get(&e->opened_by_name, name.id);
    fb_blob_bytes fresh = {0};
    if (number) return (const fb_blob_bytes *)(const void *)e->opened.data + (number - 1);
    if (!fb_buffer_reserve(&e->opened, sizeof fresh) || !fb_map_reserve(&e->opened_by_name, 1)) {
        fb_evaluation_no_memory(e);
        return NULL;
    }
    fb_error found = {0};
    fb_status status = e->blobs->open(e->blobs->context, fb_text(e->graph, name), &fresh, &found);
    if (status == FB_NOT_FOUND && find_stand_in(e, tensor, term)) return NULL;
    if (status && !e->status) e->status = fb_fail(e->error, status, found.code, found.pointer, "%s", found.message);
    if (status) return NULL;
    fb_buffer_append(&e->opened, &fresh, sizeof fresh);
    number = (uint32_t)(e->opened.size / sizeof fresh);
    fb_map_put(&e->opened_by_name, name.id, number);
    return (const fb_blob_bytes *)(const void *)e->opened.data + (number - 1);
}

static bool find_in_blob(fb_evaluation *e, fb_tensor tensor, uint64_t size, fb_term *term) {
    const fb_tensor_row *row = fb_tensor_at(e->graph, tensor);
    if (!e->blobs) {
        fb_evaluation_fail(e, FB_NOT_FOUND, "blob-missing", "%s has its bytes in the blob %s, which is not here",
                           fb_tensor_name(e->graph, tensor), fb_text(e->graph, row->blob));
        return false;
    }
    const fb_blob_bytes *blob = open_blob(e, row->blob, tensor, term);
    if (!blob) return !e->status; /* something stands in for it */
    uint64_t offset = (uint64_t)row->offset;
    if (row->offset < 0 || offset > blob->size || size > blob->size - offset) {
        fb_evaluation_fail(e, FB_INVALID, "blob-too-small", "%s is %llu bytes from %llu on, and the blob %s has %llu",
                           fb_tensor_name(e->graph, tensor), (unsigned long long)size, (unsigned long long)row->offset,
                           fb_text(e->graph, row->blob), (unsigned long long)blob->size);
        return false;
    }
    term->bytes = blob->bytes + offset;
    term->is_whole_blob = offset == 0 && size == blob->size;
    return true;
}

static bool find_inline(fb_evaluation *e, fb_tensor tensor, uint64_t size, fb_term *term) {
    fb_symbol data = fb_tensor_at(e->graph, tensor)->data;
    term->base64 = fb_text(e->graph, data);
    if (fb_base64_size(term->base64, fb_text_length(e->graph, data)) == size) return true;
    fb_evaluation_fail(e, FB_INVALID, "bad-data", "%s has data of another size than its dtype and shape say",
                       fb_tensor_name(e->graph, tensor));
    return false;
}

bool fb_evaluation_source(fb_evaluation *e, fb_tensor tensor, fb_term *term) {
    const fb_tensor_row *row = fb_tensor_at(e->graph, tensor);
    uint64_t size = (uint64_t)term->elements * fb_dtype_size(term->dtype);
    e->source_bytes += size;
    if (size == 0) return true;
    if (row->blob.id) return find_in_blob(e, tensor, size, term);
    if (row->data.id) return find_inline(e, tensor, size, term);
    if (find_stand_in(e, tensor, term)) return true;
    fb_evaluation_fail(e, FB_NOT_FOUND, "bytes-unknown", "the bytes of %s are not known here",
                       fb_tensor_name(e->graph, tensor));
    return false;
}

void fb_evaluation_touch(fb_evaluation *e, uint64_t bytes) {
    if (e->touched + bytes > e->limits->touched) {
        const fb_blob_bytes *opened = (const fb_blob_bytes *)(const void *)e->opened.data;
        for (size_t i = 0; i < e->opened.size / sizeof *opened; i++) e->blobs->forget(e->blobs->context, &opened[i]);
        fb_evaluation_forget_kept(e);
        e->touched = 0;
    }
    e->touched += bytes;
}

void fb_evaluation_close_sources(fb_evaluation *e) {
    fb_blob_bytes *opened = (fb_blob_bytes *)(void *)e->opened.data;
    for (size_t i = 0; i < e->opened.size / sizeof *opened; i++) e->blobs->close(e->blobs->context, &opened[i]);
    fb_buffer_free(&e->opened);
    fb_map_free(&e->opened_by_name);
}
