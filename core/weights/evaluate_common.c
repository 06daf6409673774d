/* Memory and failures of an evaluation. */
#include <stdlib.h>
#include <sys/mman.h>

#include "core/weights/evaluate_internal.h"

typedef struct stack_chunk {
    unsigned char *bytes;
    size_t size, used;
} stack_chunk;

static stack_chunk *chunk_at(const fb_evaluation *e, size_t index) {
    return (stack_chunk *)(void *)e->stack.chunks.data + index;
}

static size_t chunk_count(const fb_evaluation *e) {
    return e->stack.chunks.size / sizeof(stack_chunk);
}

#define STACK_CHUNK ((size_t)1 << 20) /* bytes */

fb_status fb_evaluation_fail(fb_evaluation *e, fb_status status, const char *code, const char *format, ...) {
    va_list arguments;
    char message[sizeof e->error->message];
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (!e->status) e->status = fb_fail(e->error, status, code, "", "%s", message);
    return e->status;
}

bool fb_evaluation_no_memory(fb_evaluation *e) {
    if (!e->status) e->status = fb_fail_memory(e->error);
    return false;
}

static bool add_chunk(fb_evaluation *e, size_t size) {
    stack_chunk fresh = {.size = size < STACK_CHUNK ? STACK_CHUNK : size};
    if (!fb_buffer_reserve(&e->stack.chunks, sizeof fresh) || !(fresh.bytes = malloc(fresh.size)))
        return fb_evaluation_no_memory(e);
    fb_buffer_append(&e->stack.chunks, &fresh, sizeof fresh);
    return true;
}

void *fb_stack_take(fb_evaluation *e, size_t size) {
    size = (size + 63) / 64 * 64;
    while (e->stack.current < chunk_count(e)) {
        stack_chunk *chunk = chunk_at(e, e->stack.current);
        if (size <= chunk->size - chunk->used) break;
        if (++e->stack.current < chunk_count(e)) chunk_at(e, e->stack.current)->used = 0;
    }
    if (e->stack.current == chunk_count(e) && !add_chunk(e, size)) return NULL;
    stack_chunk *chunk = chunk_at(e, e->stack.current);
    chunk->used += size;
    return chunk->bytes + chunk->used - size;
}

fb_stack_mark fb_stack_top(const fb_evaluation *e) {
    size_t current = e->stack.current;
    return (fb_stack_mark){current, current < chunk_count(e) ? chunk_at(e, current)->used : 0};
}

void fb_stack_give_back(fb_evaluation *e, fb_stack_mark mark) {
    e->stack.current = mark.chunk;
    if (mark.chunk < chunk_count(e)) chunk_at(e, mark.chunk)->used = mark.used;
}

void fb_stack_free(fb_evaluation *e) {
    for (size_t i = 0; i < chunk_count(e); i++) free(chunk_at(e, i)->bytes);
    fb_buffer_free(&e->stack.chunks);
}

void fb_evaluation_touch(fb_evaluation *e, uint64_t bytes) {
    if (e->touched + bytes > e->limits->touched) {
        const fb_blob_bytes *opened = (const fb_blob_bytes *)(const void *)e->opened.data;
        for (size_t i = 0; i < e->opened.size / sizeof *opened; i++) e->blobs->forget(e->blobs->context, &opened[i]);
        for (size_t i = 0; i < fb_kept_count(e); i++) {
            if (fb_kept_at(e, i)->mapped) madvise(fb_kept_at(e, i)->mapped, fb_kept_at(e, i)->size, MADV_DONTNEED);
        }
        e->touched = 0;
    }
    e->touched += bytes;
}
