/* Walks over elements that have gaps in two places. */
#include <string.h>

#include "core/weights/evaluate_internal.h"

#define TILE 16 /* elements: of four bytes they are a line of the cache */

void fb_strided_add(fb_strided *s, int64_t size, int64_t from, int64_t to) {
    if (size == 1) return;
    int last = s->rank - 1;
    bool goes_on = last >= 0 && s->from[last] == size * from && s->to[last] == size * to;
    if (!goes_on) last = s->rank++;
    s->sizes[last] = goes_on ? s->sizes[last] * size : size;
    s->from[last] = from;
    s->to[last] = to;
}

/* The dimension that is densest in one place. */
static int densest(const fb_strided *s, const int64_t *strides) {
    int found = s->rank - 1;
    for (int i = s->rank - 2; i >= 0; i--) {
        if (strides[i] && strides[i] < strides[found]) found = i;
    }
    return found;
}

static void swap(int64_t *a, int i, int j) {
    int64_t kept = a[i];
    a[i] = a[j];
    a[j] = kept;
}

static void move_last(fb_strided *s, int dimension, int place) {
    swap(s->sizes, dimension, place);
    swap(s->from, dimension, place);
    swap(s->to, dimension, place);
}

/* Tiles of the two innermost dimensions, of which one is dense here and the other there: so a line of memory is read or written
 * as a whole while it is in the cache. */
static void run_tiles(const fb_strided *s, int64_t from, int64_t to, fb_strided_run *run, void *context) {
    int inner = s->rank - 1, outer = s->rank - 2;
    for (int64_t i = 0; i < s->sizes[outer]; i += TILE) {
        int64_t rows = s->sizes[outer] - i < TILE ? s->sizes[outer] - i : TILE;
        for (int64_t j = 0; j < s->sizes[inner]; j += TILE) {
            int64_t count = s->sizes[inner] - j < TILE ? s->sizes[inner] - j : TILE;
            for (int64_t row = i; row < i + rows; row++) {
                run(context, from + row * s->from[outer] + j * s->from[inner], to + row * s->to[outer] + j * s->to[inner],
                    count, s->from[inner], s->to[inner]);
            }
        }
    }
}

void fb_strided_each(const fb_strided *given, fb_strided_run *run, void *context) {
    fb_strided s = *given;
    bool is_tiled = false;
    if (s.rank == 0) {
        run(context, 0, 0, 1, 0, 0);
        return;
    }
    if (s.rank > 1) {
        int there = densest(&s, s.to), here = densest(&s, s.from);
        if (there != here) {
            is_tiled = true;
            move_last(&s, there, s.rank - 1);
            move_last(&s, here == s.rank - 1 ? there : here, s.rank - 2);
        } else {
            move_last(&s, there, s.rank - 1);
        }
    }
    int outer = s.rank - 1 - is_tiled;
    int64_t index[FB_RECIPE_MAX_RANK] = {0}, from = 0, to = 0;
    for (;;) {
        if (is_tiled) run_tiles(&s, from, to, run, context);
        else run(context, from, to, s.sizes[outer], s.from[outer], s.to[outer]);
        int i = outer - 1;
        for (; i >= 0; i--) {
            from += s.from[i];
            to += s.to[i];
            if (++index[i] < s.sizes[i]) break;
            from -= s.from[i] * s.sizes[i];
            to -= s.to[i] * s.sizes[i];
            index[i] = 0;
        }
        if (i < 0) return;
    }
}

/* ---- copying --------------------------------------------------------------------------------------------------------- */

typedef struct copying {
    const unsigned char *from;
    unsigned char *to;
    int64_t element;
} copying;

/* memcpy of a constant size is one instruction. */
#define COPY_EACH(bytes)                                                                                                       \
    for (int64_t i = 0; i < count; i++) memcpy(to + i * to_stride, from + i * from_stride, bytes)

static void copy_run(void *context, int64_t from_offset, int64_t to_offset, int64_t count, int64_t from_stride,
                     int64_t to_stride) {
    const copying *c = context;
    const unsigned char *from = c->from + from_offset;
    unsigned char *to = c->to + to_offset;
    if (from_stride == c->element && to_stride == c->element) {
        memcpy(to, from, (size_t)(count * c->element));
        return;
    }
    switch (c->element) {
    case 1: COPY_EACH(1); break;
    case 2: COPY_EACH(2); break;
    case 3: COPY_EACH(3); break;
    case 4: COPY_EACH(4); break;
    case 8: COPY_EACH(8); break;
    default: COPY_EACH(16); break;
    }
}

void fb_strided_copy(const fb_strided *s, const unsigned char *from, unsigned char *to, int64_t element) {
    copying c = {from, to, element};
    fb_strided_each(s, copy_run, &c);
}
