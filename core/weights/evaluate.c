/* Opening an evaluation, and reading from it. */
#include "core/weights/evaluate.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/weights/evaluate_internal.h"

const fb_evaluation_limits fb_evaluation_usual = {
    .moved = (int64_t)1 << 20,
    .computed = (int64_t)32 << 10,
    .repeating = (int64_t)2 << 20,
    .rows = 1024,
    .columns = 4096,
    .inner = 512,
    .block = (int64_t)80 << 20,
    .touched = (uint64_t)48 << 20,
    .kept = (uint64_t)32 << 20,
    .depth = 128,
    .cost = 1024,
    .repeated = 32,
};

/* ---- the stack ----------------------------------------------------------------------------------------------------------- */

/* ---- opening ------------------------------------------------------------------------------------------------------------- */

void fb_evaluation_free(fb_evaluation *e) {
    if (!e) return;
    fb_evaluation_close_bytes(e);
    fb_stack_free(e);
    fb_arena_free(&e->arena);
    free(e->cache);
    free(e);
}

fb_status fb_evaluation_within(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                               const fb_evaluation_limits *limits, fb_evaluation **out, fb_error *error) {
    fb_evaluation *e = malloc(sizeof *e);
    if (!e) return fb_fail_memory(error);
    *e = (fb_evaluation){.graph = graph,
                         .limits = limits,
                         .blobs = blobs,
                         .expression = expression,
                         .dtype = dtype,
                         .error = error,
                         .scratch = -1,
                         .cached = -1};
    fb_evaluation_plan(e, expression);
    fb_status status = e->status;
    if (status) {
        fb_evaluation_free(e);
        return status;
    }
    e->element = (int64_t)fb_dtype_size(e->dtype);
    e->block = fb_evaluation_block(e, e->root);
    *out = e;
    return FB_OK;
}

fb_status fb_evaluation_of(const fb_graph *graph, fb_value expression, fb_dtype dtype, const fb_blobs *blobs,
                           fb_evaluation **out, fb_error *error) {
    return fb_evaluation_within(graph, expression, dtype, blobs, &fb_evaluation_usual, out, error);
}

fb_status fb_evaluation_new(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, fb_evaluation **out,
                            fb_error *error) {
    fb_value whole = {tensor.id | FB_VALUE_IS_TENSOR};
    return fb_evaluation_of(graph, whole, (fb_dtype)fb_tensor_at(graph, tensor)->dtype, blobs, out, error);
}

uint64_t fb_evaluation_size(const fb_evaluation *e) {
    return (uint64_t)(e->root->elements * e->element);
}

/* ---- blocks -------------------------------------------------------------------------------------------------------------- */

static bool fill_own_block(fb_evaluation *e, int64_t number, unsigned char *to, uint64_t size) {
    return fb_fill_block(e, e->root, e->block, number, to, e->element) && fb_evaluation_check_finite(e, to, (size_t)size);
}

/* ---- reading ------------------------------------------------------------------------------------------------------------- */

/* By blocks, of which the last one stays for who reads little by little. Where something computes they are always the same,
 * however the whole is cut into parts to be read: matmul of another block may give another last bit. */
static bool read_blocks(fb_evaluation *e, uint64_t offset, unsigned char *to, size_t size) {
    uint64_t total = fb_evaluation_size(e), block = (uint64_t)(e->block * e->element);
    while (size) {
        int64_t number = (int64_t)(offset / block);
        uint64_t start = (uint64_t)number * block, in_block = total - start < block ? total - start : block;
        size_t skipped = (size_t)(offset - start);
        size_t some = size < in_block - skipped ? size : (size_t)in_block - skipped;
        if (number != e->cached && some == in_block) {
            if (!fill_own_block(e, number, to, in_block)) return false;
        } else {
            if (!e->cache && !(e->cache = malloc((size_t)(total < block ? total : block)))) return fb_evaluation_no_memory(e);
            if (number != e->cached) {
                e->cached = -1;
                if (!fill_own_block(e, number, e->cache, in_block)) return false;
                e->cached = number;
            }
            memcpy(to, e->cache + skipped, some);
        }
        to += some;
        offset += some;
        size -= some;
    }
    return true;
}

static bool fill_own_range(fb_evaluation *e, int64_t start, int64_t count, unsigned char *to) {
    return fb_fill_range(e, e->root, start, count, to, e->element, false) &&
           fb_evaluation_check_finite(e, to, (size_t)(count * e->element));
}

/* A part of one element. */
static bool read_element(fb_evaluation *e, uint64_t offset, unsigned char *to, size_t size) {
    unsigned char element[16];
    uint64_t index = offset / (uint64_t)e->element;
    if (!fill_own_range(e, (int64_t)index, 1, element)) return false;
    memcpy(to, element + offset % (uint64_t)e->element, size);
    return true;
}

static bool read_moved(fb_evaluation *e, uint64_t offset, unsigned char *to, size_t size) {
    const size_t element = (size_t)e->element, most = (size_t)e->block * element;
    while (size) {
        size_t skipped = (size_t)(offset % element), some = element - skipped < size ? element - skipped : size;
        if (skipped || size < element) {
            if (!read_element(e, offset, to, some)) return false;
        } else {
            some = size < most ? size / element * element : most;
            int64_t start = (int64_t)(offset / element);
            if (!fill_own_range(e, start, (int64_t)(some / element), to)) return false;
        }
        to += some;
        offset += some;
        size -= some;
    }
    return true;
}

fb_status fb_evaluation_read(fb_evaluation *e, uint64_t offset, void *to, size_t size, fb_error *error) {
    assert(offset <= fb_evaluation_size(e) && size <= fb_evaluation_size(e) - offset);
    e->status = FB_OK;
    e->error = error;
    fb_stack_give_back(e, (fb_stack_mark){0, 0});
    bool has_blocks = e->root->computes || e->root->is_turned;
    if (size && fb_evaluation_make_kept(e)) (has_blocks ? read_blocks : read_moved)(e, offset, to, size);
    return e->status;
}

size_t fb_evaluation_lie(fb_evaluation *e, uint64_t offset, size_t size, const unsigned char **bytes) {
    uint64_t element = (uint64_t)e->element;
    if (e->root->computes || e->refuses_overflow || offset % element || size < element) return 0;
    int64_t count = fb_find_lying(e->root, (int64_t)(offset / element), (int64_t)(size / element), bytes);
    fb_evaluation_touch(e, (uint64_t)count * element);
    return (size_t)count * (size_t)element;
}
