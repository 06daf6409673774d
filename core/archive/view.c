/* A tensor that lies in the memory of another one, as a movement over that. The same expressions as those of the Python client
 * (recipes.py, view_of): structures are compared. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"

#define MOST_PARTS 4096 /* of an expression */

typedef struct expression {
    const char *text;
    const char *reshaped; /* what is within, when it is a reshape */
} expression;

typedef struct axis {
    int64_t size, stride;
} axis;

typedef struct maker {
    pt_model *m;
    int parts;
} maker;

static const expression none = {NULL, NULL};

static const char *sizes_text(pt_model *m, const int64_t *sizes, uint32_t count) {
    fb_buffer text = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (i) fb_buffer_char(&text, ',');
        fb_buffer_int(&text, sizes[i]);
    }
    const char *made = fb_buffer_text(&text) ? fb_arena_text(&m->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    if (!made) pt_no_memory(m);
    return made;
}

/* `is_same`: it has that shape already. */
static expression reshape(maker *k, expression inner, bool is_same, const int64_t *to, uint32_t rank) {
    if (!inner.text || (!inner.reshaped && is_same)) return inner;
    const char *within = inner.reshaped ? inner.reshaped : inner.text, *sizes = sizes_text(k->m, to, rank);
    if (!sizes) return none;
    return (expression){pt_format(k->m, "{\"op\":\"reshape\",\"args\":[%s],\"shape\":[%s]}", within, sizes), within};
}

static expression slice(maker *k, expression inner, int64_t start, int64_t stop, int64_t size) {
    if (!inner.text || (start == 0 && stop == size)) return inner;
    return (expression){pt_format(k->m, "{\"op\":\"slice\",\"args\":[%s],\"axis\":1,\"start\":%lld,\"stop\":%lld}", inner.text,
                                  (long long)start, (long long)stop),
                        NULL};
}

static int64_t product(const axis *dims, uint32_t count) {
    int64_t made = 1;
    for (uint32_t i = 0; i < count; i++) made *= dims[i].size;
    return made;
}

static bool is_run(const axis *dims, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (dims[i].stride != product(dims + i + 1, count - i - 1)) return false;
    }
    return true;
}

static expression repeat(maker *k, expression part, int64_t count) {
    if (!part.text || count == 1) return part;
    fb_buffer text = {0};
    k->parts += count > MOST_PARTS ? MOST_PARTS : (int)count;
    if (k->parts > MOST_PARTS) return none;
    fb_buffer_string(&text, "{\"op\":\"concat\",\"args\":[");
    for (int64_t i = 0; i < count && text.size < (1U << 20); i++) {
        if (i) fb_buffer_char(&text, ',');
        fb_buffer_string(&text, part.text);
    }
    fb_buffer_string(&text, "],\"axis\":1}");
    const char *made =
        text.size < (1U << 20) && fb_buffer_text(&text) ? fb_arena_text(&k->m->arena, text.data, text.size) : NULL;
    fb_buffer_free(&text);
    return (expression){made, NULL};
}

/* Of each row of a matrix the elements that lie at `offset` plus sums of (size, stride), as a matrix of as many rows. */
static expression columns(maker *k, expression matrix, int64_t rows, int64_t length, int64_t offset, const axis *dims,
                          uint32_t rank) {
    if (++k->parts > MOST_PARTS || !matrix.text) return none;
    int64_t count = product(dims, rank);
    if (is_run(dims, rank)) return slice(k, matrix, offset, offset + count, length);
    int64_t size = dims[0].size, stride = dims[0].stride;
    if (stride == 0) return repeat(k, columns(k, matrix, rows, length, offset, dims + 1, rank - 1), size);
    int64_t start = offset % stride, reach = 1;
    for (uint32_t i = 1; i < rank; i++) reach += (dims[i].size - 1) * dims[i].stride;
    if (start + reach > stride) start = 0;
    int64_t first = offset - start;
    if (reach <= stride && first + size * stride <= length) {
        expression cut = slice(k, matrix, first, first + size * stride, length);
        cut = reshape(k, cut, length == stride && rows == rows * size, (int64_t[]){rows * size, stride}, 2);
        expression part = columns(k, cut, rows * size, stride, start, dims + 1, rank - 1);
        return reshape(k, part, size == 1, (int64_t[]){rows, count}, 2);
    }
    axis fewer[PT_MOST_DIMENSIONS];
    memcpy(fewer, dims, rank * sizeof *dims);
    fewer[0].size--;
    expression head = columns(k, matrix, rows, length, offset, fewer, rank);
    expression last = columns(k, matrix, rows, length, offset + (size - 1) * stride, dims + 1, rank - 1);
    if (!head.text || !last.text) return none;
    return (expression){pt_format(k->m, "{\"op\":\"concat\",\"args\":[%s,%s],\"axis\":1}", head.text, last.text), NULL};
}

const char *pt_view_of(pt_model *m, const pt_tensor *base, const pt_tensor *view) {
    maker k = {m, 0};
    uint32_t rank = view->dimensions, used = 0;
    int64_t dims[PT_MOST_DIMENSIONS], back[PT_MOST_DIMENSIONS], shape[PT_MOST_DIMENSIONS];
    axis axes[PT_MOST_DIMENSIONS];
    for (uint32_t i = 0; i < rank; i++) { /* by descending strides; stable */
        uint32_t at = i;
        for (; at > 0 && view->strides[dims[at - 1]] < view->strides[i]; at--) dims[at] = dims[at - 1];
        dims[at] = i;
    }
    for (uint32_t i = 0; i < rank; i++) {
        shape[i] = view->shape[dims[i]];
        back[dims[i]] = i;
        if (shape[i] != 1) axes[used++] = (axis){shape[i], view->strides[dims[i]]};
    }
    fb_buffer name = {0};
    fb_buffer_json_string(&name, base->name, strlen(base->name));
    const char *text = fb_buffer_text(&name) ? fb_arena_text(&m->arena, name.data, name.size) : NULL;
    fb_buffer_free(&name);
    expression whole = {text, NULL};
    bool is_row = base->dimensions == 2 && base->shape[0] == 1 && base->shape[1] == base->count;
    expression row = reshape(&k, whole, is_row, (int64_t[]){1, base->count}, 2);
    expression made = columns(&k, row, 1, base->count, view->offset - base->offset, axes, used);
    bool is_same =
        made.text == whole.text && base->dimensions == rank && rank && memcmp(base->shape, shape, rank * sizeof *shape) == 0;
    is_same |= made.text == whole.text && base->dimensions == 0 && rank == 0;
    made = reshape(&k, made, is_same, shape, rank);
    bool is_ordered = true;
    for (uint32_t i = 0; i < rank; i++) is_ordered &= back[i] == i;
    if (!is_ordered && made.text) {
        const char *order = sizes_text(m, back, rank);
        made.text = order ? pt_format(m, "{\"op\":\"permute\",\"args\":[%s],\"dims\":[%s]}", made.text, order) : NULL;
    }
    if (!made.text && !m->status)
        pt_unsupported(m, view->file, "\"%s\" lies in the memory of \"%s\" in a way that is too intricate", view->key,
                       base->key);
    return made.text;
}
