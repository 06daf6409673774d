/* Stored bytes: of tensors without a recipe, in blobs or inline; and of terms that are made once and kept, small ones in
 * memory, others in a file without a name. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/base64.h"
#include "core/weights/evaluate_internal.h"

#define KEPT_FREELY ((uint64_t)1 << 30) /* recipes may make much of little; beyond this they must read much as well */
#define KEPT_FACTOR 16
#define ALIGNMENT 65536 /* of parts of the file: a page of any size */

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
    if (!blob) return !e->status; /* something replaces it */
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

/* ---- terms that are kept ------------------------------------------------------------------------------------------------- */

fb_term *fb_evaluation_keep(fb_evaluation *e, const fb_term *made, fb_dtype dtype) {
    fb_term *stands = fb_arena_alloc(&e->arena, sizeof *stands);
    fb_kept kept = {.made = made, .stands = stands, .size = (size_t)made->elements * fb_dtype_size(dtype)};
    fb_buffer_append(&e->kept, &kept, sizeof kept);
    if (!stands || e->kept.failed) {
        fb_evaluation_no_memory(e);
        return NULL;
    }
    *stands = (fb_term){.kind = FB_TERM_BYTES,
                        .dtype = dtype,
                        .rank = made->rank,
                        .sizes = made->sizes,
                        .elements = made->elements,
                        .live = 1,
                        .cost = 1};
    e->kept_bytes += kept.size;
    return stands;
}

static bool make_in_memory(fb_evaluation *e, fb_kept *kept, int64_t block, int64_t element) {
    unsigned char *bytes = fb_arena_alloc(&e->arena, kept->size ? kept->size : 1);
    if (!bytes) return fb_evaluation_no_memory(e);
    for (int64_t i = 0; i * block < kept->made->elements; i++) {
        if (!fb_fill_block(e, kept->made, block, i, bytes + i * block * element, element)) return false;
    }
    kept->stands->bytes = bytes;
    return true;
}

static bool write_all(fb_evaluation *e, const unsigned char *bytes, size_t size, uint64_t offset) {
    while (size) {
        ssize_t written = pwrite(e->scratch, bytes, size, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) {
            bool is_full = written == 0 || errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
            fb_evaluation_fail(e, is_full ? FB_NO_SPACE : FB_IO, is_full ? "disk-full" : "io-error",
                               "writing what a recipe computes on the way: %s", written ? strerror(errno) : "nothing written");
            return false;
        }
        bytes += written;
        size -= (size_t)written;
        offset += (uint64_t)written;
    }
    return true;
}

/* Written, not mapped, as long as it grows: a full disk is an error then, and no signal. */
static bool make_in_file(fb_evaluation *e, fb_kept *kept, int64_t block, int64_t element) {
    if (e->scratch < 0) e->status = e->blobs->scratch(e->blobs->context, &e->scratch, e->error);
    if (e->status) return false;
    uint64_t start = e->scratch_size;
    fb_stack_mark mark = fb_stack_top(e);
    unsigned char *bytes = fb_stack_take(e, (size_t)(block * element));
    if (!bytes) return false;
    for (int64_t i = 0; i * block < kept->made->elements; i++) {
        int64_t left = kept->made->elements - i * block;
        size_t size = (size_t)((left < block ? left : block) * element);
        if (!fb_fill_block(e, kept->made, block, i, bytes, element)) return false;
        if (!write_all(e, bytes, size, start + (uint64_t)(i * block * element))) return false;
    }
    fb_stack_give_back(e, mark);
    e->scratch_size = (start + kept->size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *mapped = mmap(NULL, kept->size, PROT_READ, MAP_SHARED, e->scratch, (off_t)start);
    if (mapped == MAP_FAILED) {
        fb_evaluation_fail(e, FB_IO, "io-error", "mapping what a recipe computes on the way: %s", strerror(errno));
        return false;
    }
    kept->mapped = mapped;
    kept->stands->bytes = mapped;
    return true;
}

bool fb_evaluation_make_kept(fb_evaluation *e) {
    if (e->is_kept_made) return true;
    if (e->kept_bytes > KEPT_FREELY && e->kept_bytes / KEPT_FACTOR > e->source_bytes) {
        fb_evaluation_fail(e, FB_TOO_LARGE, "recipe-too-large",
                           "on the way recipes compute %llu bytes of %llu, which is too much of too little",
                           (unsigned long long)e->kept_bytes, (unsigned long long)e->source_bytes);
        return false;
    }
    uint64_t in_memory = 0;
    for (size_t i = 0; i < fb_kept_count(e); i++) {
        fb_kept *kept = fb_kept_at(e, i);
        int64_t element = (int64_t)fb_dtype_size(kept->stands->dtype), block = fb_evaluation_block(e, kept->made);
        bool has_file = e->blobs && e->blobs->scratch;
        if (kept->stands->bytes || kept->size == 0) continue; /* made before a later one failed */
        bool is_small = in_memory + kept->size <= e->limits->kept;
        if (is_small) in_memory += kept->size;
        if (!(is_small || !has_file ? make_in_memory : make_in_file)(e, kept, block, element)) return false;
    }
    e->is_kept_made = true;
    return true;
}

/* ---- letting go ---------------------------------------------------------------------------------------------------------- */

void fb_evaluation_close_bytes(fb_evaluation *e) {
    fb_blob_bytes *opened = (fb_blob_bytes *)(void *)e->opened.data;
    for (size_t i = 0; i < e->opened.size / sizeof *opened; i++) e->blobs->close(e->blobs->context, &opened[i]);
    for (size_t i = 0; i < fb_kept_count(e); i++) {
        if (fb_kept_at(e, i)->mapped) munmap(fb_kept_at(e, i)->mapped, fb_kept_at(e, i)->size);
    }
    if (e->scratch >= 0) close(e->scratch);
    fb_buffer_free(&e->opened);
    fb_map_free(&e->opened_by_name);
    fb_buffer_free(&e->kept);
}
