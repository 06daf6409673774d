/* Tensors of one record: those that are views of others, and those that overlap without being one. */
#include <stdlib.h>
#include <string.h>

#include "core/archive/internal.h"
#include "core/base/sort.h"

/* ---- the recipe of a view ------------------------------------------------------------------------------------------------ */

/* A tensor that shares the memory of another one, as a movement over that one. The same expressions as the Python client's
 * (recipes.py, view_of): structures are compared. */

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

/* An operation with a list of numbers, or, without a name for them, along axis 1, from the first to the second. */
static const char *operation(maker *k, const char *op, const char *args, const char *list, const int64_t *numbers,
                             uint32_t count) {
    fb_buffer text = {0};
    fb_buffer_printf(&text, "{\"op\":\"%s\",\"args\":[%s],\"%s\":%s", op, args, list ? list : "axis", list ? "[" : "1");
    for (uint32_t i = 0; i < count; i++)
        fb_buffer_printf(&text, "%s%lld", !list ? i ? ",\"stop\":" : ",\"start\":" : i ? "," : "", (long long)numbers[i]);
    fb_buffer_string(&text, list ? "]}" : "}");
    return pt_keep(k->m, &text);
}

/* `is_same`: it has that shape already. */
static expression reshape(maker *k, expression inner, bool is_same, const int64_t *to, uint32_t rank) {
    if (!inner.text || (!inner.reshaped && is_same)) return inner;
    const char *within = inner.reshaped ? inner.reshaped : inner.text;
    return (expression){operation(k, "reshape", within, "shape", to, rank), within};
}

static expression slice(maker *k, expression inner, int64_t start, int64_t stop, int64_t size) {
    if (!inner.text || (start == 0 && stop == size)) return inner;
    return (expression){operation(k, "slice", inner.text, NULL, (int64_t[]){start, stop}, 2), NULL};
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
    k->parts += count > PT_MOST_PARTS ? PT_MOST_PARTS : (int)count;
    if (k->parts > PT_MOST_PARTS) return none;
    fb_buffer_string(&text, "{\"op\":\"concat\",\"args\":[");
    for (int64_t i = 0; i < count && text.size < (1U << 20); i++) {
        if (i) fb_buffer_char(&text, ',');
        fb_buffer_string(&text, part.text);
    }
    fb_buffer_string(&text, "],\"axis\":1}");
    if (text.size < (1U << 20)) return (expression){pt_keep(k->m, &text), NULL};
    fb_buffer_free(&text);
    return none;
}

/* Takes from each row of a matrix the elements at `offset` plus sums of (size, stride), as a matrix of as many rows. */
static expression columns(maker *k, expression matrix, int64_t rows, int64_t length, int64_t offset, const axis *dims,
                          uint32_t rank) {
    if (++k->parts > PT_MOST_PARTS || !matrix.text) return none;
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

/* The recipe that makes `view` from `base`, as JSON; NULL if none does that is not too long, or if memory is out. */
static const char *view_of(pt_model *m, const pt_tensor *base, const pt_tensor *view) {
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
    expression whole = {pt_keep(m, &name), NULL};
    bool is_row = base->dimensions == 2 && base->shape[0] == 1 && base->shape[1] == base->count;
    expression row = reshape(&k, whole, is_row, (int64_t[]){1, base->count}, 2);
    expression made = columns(&k, row, 1, base->count, view->offset - base->offset, axes, used);
    bool is_same =
        made.text == whole.text && base->dimensions == rank && rank && memcmp(base->shape, shape, rank * sizeof *shape) == 0;
    is_same |= made.text == whole.text && base->dimensions == 0 && rank == 0;
    made = reshape(&k, made, is_same, shape, rank);
    bool is_ordered = true;
    for (uint32_t i = 0; i < rank; i++) is_ordered &= back[i] == i;
    return is_ordered || !made.text ? made.text : operation(&k, "permute", made.text, "dims", back, rank);
}

/* ---- places in a record -------------------------------------------------------------------------------------------------- */

bool pt_is_contiguous(const pt_tensor *t) {
    int64_t step = 1;
    for (uint32_t i = t->dimensions; i-- > 0;) {
        if (t->shape[i] != 1 && t->strides[i] != step) return t->count == 0;
        step *= t->shape[i];
    }
    return true;
}

/* The largest first, of those the row-major ones; else in the document's order. */
static int by_size(const void *a, const void *b) {
    const pt_tensor *x = *(pt_tensor *const *)a, *y = *(pt_tensor *const *)b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    int difference = (int)pt_is_contiguous(y) - (int)pt_is_contiguous(x);
    if (difference) return difference;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* In bytes; a record has fewer than 2^63. */
static int64_t element_of(const pt_tensor *t) {
    return (int64_t)fb_dtype_size(t->dtype);
}

static int64_t begin_of(const pt_tensor *t) {
    return t->offset * element_of(t);
}

static int64_t end_of(const pt_tensor *t) {
    return (t->offset + t->reach) * element_of(t);
}

/* Bytes modulo a stride, from the first on: of the whole strides among a tensor's nothing is left. */
static int64_t reach_within(const pt_tensor *t, int64_t stride) {
    int64_t element = element_of(t), reach = element;
    for (uint32_t i = 0; i < t->dimensions; i++)
        if (t->shape[i] > 1 && t->strides[i] * element % stride) reach += (t->shape[i] - 1) * t->strides[i] * element;
    return reach;
}

/* Two tensors that interleave without sharing a byte, such as the halves of columns: sure where true. Modulo one of the strides
 * both are a run of bytes. */
static bool is_apart(const pt_tensor *a, const pt_tensor *b) {
    const pt_tensor *both[] = {a, b};
    for (int which = 0; which < 2; which++) {
        const pt_tensor *t = both[which];
        for (uint32_t i = 0; i < t->dimensions; i++) {
            int64_t stride = t->strides[i] * element_of(t);
            if (t->shape[i] < 2 || !stride) continue;
            int64_t distance = (begin_of(b) - begin_of(a)) % stride;
            if (distance < 0) distance += stride;
            if (reach_within(a, stride) <= distance && reach_within(b, stride) <= stride - distance) return true;
        }
    }
    return false;
}

/* Elements of one tensor that overlap each other: sure where false, since by ascending strides each step goes past all before
 * it. */
static bool overlaps_itself(const pt_tensor *t) {
    axis axes[PT_MOST_DIMENSIONS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < t->dimensions; i++) {
        if (t->shape[i] < 2) continue;
        uint32_t at = count++;
        for (; at > 0 && axes[at - 1].stride > t->strides[i]; at--) axes[at] = axes[at - 1];
        axes[at] = (axis){t->shape[i], t->strides[i]};
    }
    int64_t reach = 1;
    for (uint32_t i = 0; i < count; i++) {
        if (axes[i].stride < reach) return true;
        reach += (axes[i].size - 1) * axes[i].stride;
    }
    return false;
}

static bool place_in_record(pt_model *m, pt_tensor **group, size_t count, pt_tensor **bases) {
    size_t base_count = 0;
    fb_sort(group, count, sizeof *group, by_size);
    for (size_t i = 0; i < count; i++) {
        pt_tensor *t = group[i], *over = NULL;
        size_t overlaps = 0;
        int64_t work = (int64_t)base_count + 1;
        for (size_t j = 0; j < base_count; j++) {
            bool is_near = begin_of(bases[j]) < end_of(t) && begin_of(t) < end_of(bases[j]);
            bool is_over = is_near && !is_apart(bases[j], t);
            if (is_over) over = overlaps++ ? over : bases[j];
            if (is_near) work += (bases[j]->dimensions + t->dimensions) * (bases[j]->dimensions + t->dimensions);
        }
        if (!fb_work_goes_on(m->work, work)) return false;
        if (!overlaps) {
            bases[base_count++] = t;
            continue;
        }
        bool is_within = over->offset <= t->offset && t->offset + t->reach <= over->offset + over->reach;
        bool is_view = overlaps == 1 && is_within && pt_is_contiguous(over) && over->dtype == t->dtype;
        if (is_view) t->recipe = view_of(m, over, t);
        if (m->status) return false;
        if (t->recipe) continue;
        for (size_t j = 0; j < base_count; j++)
            if (begin_of(bases[j]) < end_of(t) && begin_of(t) < end_of(bases[j]) && !is_apart(bases[j], t))
                bases[j]->overlaps = true;
        t->overlaps = true;
        bases[base_count++] = t;
    }
    return true;
}

static int by_record(const void *a, const void *b) {
    const pt_tensor *x = *(pt_tensor *const *)a, *y = *(pt_tensor *const *)b;
    if (x->record != y->record) return x->record < y->record ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

bool pt_place_tensors(pt_model *m) {
    pt_tensor **all = malloc((m->order_count + 1) * sizeof *all), **bases = malloc((m->order_count + 1) * sizeof *bases);
    size_t count = 0;
    bool ok = all && bases;
    for (uint32_t i = 0; ok && i < m->order_count; i++) {
        pt_tensor *t = &m->tensors[m->order[i]];
        if (t->count) all[count++] = t;
        t->overlaps = t->count && overlaps_itself(t);
    }
    if (ok) fb_sort(all, count, sizeof *all, by_record);
    for (size_t from = 0, to; ok && from < count; from = to) {
        for (to = from + 1; to < count && all[to]->record == all[from]->record;) to++;
        if (to - from > 1) ok = place_in_record(m, all + from, to - from, bases);
    }
    free(all);
    free(bases);
    return ok;
}
