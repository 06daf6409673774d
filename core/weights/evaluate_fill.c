/* Boxes of terms: stored bytes are copied, movements take elements from elsewhere, computations are made in float64. */
#include <math.h>
#include <string.h>

#include "core/base/base64.h"
#include "core/weights/dtype.h"
#include "core/weights/evaluate_internal.h"

#define FAULT 65536 /* bytes that one page fault may map: Linux' fault_around_bytes */

static int64_t box_elements(int rank, const fb_range *box) {
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= box[i].size;
    return count;
}

/* Bytes from one element to the next in each dimension, where they have no gaps; the sizes are not 0. */
static void packed_strides(int rank, const fb_range *box, int64_t element, int64_t *strides) {
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = element;
        element *= box[i].size;
    }
}

/* The same for a whole tensor. */
static void whole_strides(int rank, const int64_t *sizes, int64_t element, int64_t *strides) {
    for (int i = rank - 1; i >= 0; i--) {
        strides[i] = element;
        element *= sizes[i];
    }
}

static bool is_packed(int rank, const fb_range *box, const fb_target *to) {
    int64_t stride = to->element;
    for (int i = rank - 1; i >= 0; i--) {
        if (box[i].size != 1 && to->strides[i] != stride) return false;
        stride *= box[i].size;
    }
    return true;
}

/* Run by run: as many elements as are without gaps in the whole, one run after the other. */
static bool each_run(const fb_term *term, const fb_range *box, unsigned char *to, int64_t element,
                     bool (*fill)(void *context, int64_t start, int64_t count, unsigned char *to), void *context) {
    int64_t strides[FB_RECIPE_MAX_RANK], index[FB_RECIPE_MAX_RANK] = {0}, run = 1, start = 0;
    int outer = term->rank;
    while (outer > 0 && (outer == term->rank || box[outer].size == term->sizes[outer])) run *= box[--outer].size;
    whole_strides(term->rank, term->sizes, 1, strides);
    for (int i = 0; i < term->rank; i++) start += box[i].start * strides[i];
    for (;; to += run * element) {
        if (!fill(context, start, run, to)) return false;
        int i = outer - 1;
        for (; i >= 0; i--) {
            start += strides[i];
            if (++index[i] < box[i].size) break;
            start -= strides[i] * box[i].size;
            index[i] = 0;
        }
        if (i < 0) return true;
    }
}

typedef struct filling {
    fb_evaluation *e;
    const fb_term *term;
    const fb_target *to;
} filling;

/* ---- stored bytes -------------------------------------------------------------------------------------------------------- */

typedef struct reading {
    const fb_term *term;
    const fb_target *to;
    int64_t first;   /* bytes from the tensor's begin */
    int64_t element; /* bytes of one as it is stored */
} reading;

/* Gathers a run of elements without gaps. */
static void gather(const reading *r, int64_t from, int64_t count, int64_t stride, unsigned char *to) {
    const fb_strided s = {.rank = 1, .sizes = {count}, .from = {stride}, .to = {r->element}};
    if (!r->term->base64) fb_strided_copy(&s, r->term->bytes + from, to, r->element);
    else if (stride == r->element) fb_base64_decode(r->term->base64, (size_t)from, (size_t)(count * r->element), to);
    else
        for (int64_t i = 0; i < count; i++)
            fb_base64_decode(r->term->base64, (size_t)(from + i * stride), (size_t)r->element, to + i * r->element);
}

/* A run of what must be decoded: base64, or elements to numbers, or both. */
static void decode_run(void *context, int64_t from, int64_t to, int64_t count, int64_t from_stride, int64_t to_stride) {
    enum { AT_ONCE = 256 };
    const reading *r = context;
    unsigned char elements[AT_ONCE * 16], *at = r->to->at + to;
    double numbers[AT_ONCE];
    bool is_packed_run = from_stride == r->element && to_stride == r->to->element;
    from += r->first;
    if (is_packed_run && !r->to->is_numbers) {
        gather(r, from, count, from_stride, at);
    } else if (is_packed_run && r->term->bytes) {
        fb_decode_numbers(r->term->dtype, r->term->bytes + from, (size_t)count, (double *)(void *)at);
    } else {
        for (int64_t i = 0; i < count; i += AT_ONCE) {
            int64_t some = count - i < AT_ONCE ? count - i : AT_ONCE;
            const fb_strided s = {.rank = 1, .sizes = {some}, .from = {r->to->element}, .to = {to_stride}};
            gather(r, from + i * from_stride, some, from_stride, elements);
            if (r->to->is_numbers) fb_decode_numbers(r->term->dtype, elements, (size_t)some, numbers);
            fb_strided_copy(&s, r->to->is_numbers ? (const unsigned char *)numbers : elements, at + i * to_stride,
                            r->to->element);
        }
    }
}

/* Bytes of memory that come to be used when a box is read: each run brings pages around it along, up to the next run's. */
static uint64_t touched_by(const fb_term *term, const fb_range *box, uint64_t element) {
    uint64_t run = element, runs = 1, first = 0, last = 0, inside = element;
    bool is_run = true;
    for (int i = term->rank - 1; i >= 0; i--) {
        *(is_run ? &run : &runs) *= (uint64_t)box[i].size;
        is_run &= box[i].size == term->sizes[i];
        first += (uint64_t)box[i].start * inside;
        last += (uint64_t)(box[i].start + box[i].size - 1) * inside;
        inside *= (uint64_t)term->sizes[i];
    }
    uint64_t span = last + element - first, around = runs > span / FAULT ? span : runs * (run + FAULT);
    return around < span ? around : span;
}

static void fill_bytes(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    reading r = {term, to, 0, (int64_t)fb_dtype_size(term->dtype)};
    int64_t strides[FB_RECIPE_MAX_RANK];
    uint64_t touched = term->base64 ? 0 : touched_by(term, box, (uint64_t)r.element);
    fb_strided s = {0};
    if (touched > e->limits->touched && box_elements(term->rank, box) > 1) { /* in two halves */
        fb_range half[FB_RECIPE_MAX_RANK];
        int i = 0;
        memcpy(half, box, (size_t)term->rank * sizeof *half);
        while (half[i].size == 1) i++;
        half[i].size /= 2;
        fill_bytes(e, term, half, to);
        half[i] = (fb_range){half[i].start + half[i].size, box[i].size - half[i].size};
        fill_bytes(
            e, term, half,
            &(fb_target){to->at + (half[i].start - box[i].start) * to->strides[i], to->strides, to->element, to->is_numbers});
        return;
    }
    fb_evaluation_touch(e, touched);
    whole_strides(term->rank, term->sizes, r.element, strides);
    for (int i = 0; i < term->rank; i++) {
        r.first += box[i].start * strides[i];
        fb_strided_add(&s, box[i].size, strides[i], to->strides[i]);
    }
    if (term->bytes && !to->is_numbers) fb_strided_copy(&s, term->bytes + r.first, to->at, r.element);
    else fb_strided_each(&s, decode_run, &r);
}

/* ---- elements that a caller's function writes ---------------------------------------------------------------------------- */

static bool stand_in(void *context, int64_t start, int64_t count, unsigned char *to) {
    const filling *f = context;
    f->e->blobs->stand_in(f->e->blobs->context, f->e->graph, f->term->stood_in, start, count, to);
    return true;
}

/* In its own order: then its bytes are stored, and read like any others. */
static bool fill_stood_in(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    int64_t sizes[FB_RECIPE_MAX_RANK], element = (int64_t)fb_dtype_size(term->dtype);
    fb_range whole[FB_RECIPE_MAX_RANK];
    filling f = {e, term, to};
    if (!to->is_numbers && is_packed(term->rank, box, to)) return each_run(term, box, to->at, element, stand_in, &f);
    fb_stack_mark mark = fb_stack_top(e);
    unsigned char *bytes = fb_stack_take(e, (size_t)(box_elements(term->rank, box) * element));
    if (!bytes) return false;
    each_run(term, box, bytes, element, stand_in, &f);
    for (int i = 0; i < term->rank; i++) {
        sizes[i] = box[i].size;
        whole[i] = (fb_range){0, box[i].size};
    }
    const fb_term made = {.kind = FB_TERM_BYTES, .dtype = term->dtype, .rank = term->rank, .sizes = sizes, .bytes = bytes};
    fill_bytes(e, &made, whole, to);
    fb_stack_give_back(e, mark);
    return true;
}

static void fill_full(const fb_term *term, const fb_range *box, const fb_target *to) {
    const unsigned char *element = to->is_numbers ? (const unsigned char *)&term->number : term->element;
    fb_strided s = {0};
    for (int i = 0; i < term->rank; i++) fb_strided_add(&s, box[i].size, 0, to->strides[i]);
    fb_strided_copy(&s, element, to->at, to->element);
}

/* Writes a box. False when memory is out. */
static bool fill_term(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to);

/* ---- operations ---------------------------------------------------------------------------------------------------------- */

/* The last part that begins at or before that index of the axis. */
static size_t part_at(const fb_term *term, int64_t index) {
    size_t low = 0, high = term->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(term->starts[middle] <= index ? &low : &high) = middle;
    }
    return low;
}

static bool fill_concat(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    const int axis = term->axis;
    int64_t start = box[axis].start, stop = start + box[axis].size;
    fb_range part[FB_RECIPE_MAX_RANK];
    memcpy(part, box, (size_t)term->rank * sizeof *part);
    for (size_t i = part_at(term, start); start < stop; i++) {
        int64_t end = term->starts[i + 1] < stop ? term->starts[i + 1] : stop;
        part[axis] = (fb_range){start - term->starts[i], end - start};
        unsigned char *at = to->at + (start - box[axis].start) * to->strides[axis];
        if (!fill_term(e, term->args[i], part, &(fb_target){at, to->strides, to->element, to->is_numbers})) return false;
        start = end;
    }
    return true;
}

static bool fill_slice(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    fb_range part[FB_RECIPE_MAX_RANK];
    memcpy(part, box, (size_t)term->rank * sizeof *part);
    part[term->axis].start += term->start;
    return fill_term(e, term->args[0], part, to);
}

static bool fill_permute(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    fb_range part[FB_RECIPE_MAX_RANK];
    int64_t strides[FB_RECIPE_MAX_RANK];
    for (int i = 0; i < term->rank; i++) {
        part[term->dims[i]] = box[i];
        strides[term->dims[i]] = to->strides[i];
    }
    return fill_term(e, term->args[0], part, &(fb_target){to->at, strides, to->element, to->is_numbers});
}

/* ---- what need not be made ---------------------------------------------------------------------------------------------- */

static int64_t find_in_concat(const fb_term *term, int64_t start, int64_t count, const unsigned char **bytes) {
    int64_t inner = 1, size = term->sizes[term->axis];
    for (int i = term->axis + 1; i < term->rank; i++) inner *= term->sizes[i];
    int64_t outer = start / (size * inner), within = start % (size * inner);
    size_t part = part_at(term, within / inner);
    int64_t own = (term->starts[part + 1] - term->starts[part]) * inner, at = within - term->starts[part] * inner;
    return fb_find_lying(term->args[part], outer * own + at, own - at < count ? own - at : count, bytes);
}

static int64_t find_in_slice(const fb_term *term, int64_t start, int64_t count, const unsigned char **bytes) {
    int64_t inner = 1, size = term->sizes[term->axis], whole = term->args[0]->sizes[term->axis];
    for (int i = term->axis + 1; i < term->rank; i++) inner *= term->sizes[i];
    int64_t outer = start / (size * inner), within = start % (size * inner), left = size * inner - within;
    return fb_find_lying(term->args[0], (outer * whole + term->start) * inner + within, left < count ? left : count, bytes);
}

int64_t fb_find_lying(const fb_term *term, int64_t start, int64_t count, const unsigned char **bytes) {
    if (term->kind == FB_TERM_BYTES) {
        if (!term->bytes) return 0;
        *bytes = term->bytes + start * (int64_t)fb_dtype_size(term->dtype);
        return count;
    }
    if (term->kind != FB_TERM_OP) return 0;
    switch (term->op) {
    case FB_RECIPE_CONCAT: return find_in_concat(term, start, count, bytes);
    case FB_RECIPE_SLICE: return find_in_slice(term, start, count, bytes);
    case FB_RECIPE_RESHAPE: return fb_find_lying(term->args[0], start, count, bytes);
    default: return 0;
    }
}

static bool fill_run(void *context, int64_t start, int64_t count, unsigned char *to) {
    const filling *f = context;
    return fb_fill_range(f->e, f->term->args[0], start, count, to, f->to->element, f->to->is_numbers);
}

static bool fill_runs(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    filling f = {e, term, to};
    return each_run(term, box, to->at, to->element, fill_run, &f);
}

static bool fill_reshape(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    const fb_term *arg = term->args[0];
    fb_range part[FB_RECIPE_MAX_RANK];
    int64_t strides[FB_RECIPE_MAX_RANK];
    if (!fb_box_through_reshape(term->sizes, box, term->rank, arg->sizes, part, arg->rank)) return fill_runs(e, term, box, to);
    packed_strides(arg->rank, part, to->element, strides);
    return fill_term(e, arg, part, &(fb_target){to->at, strides, to->element, to->is_numbers});
}

/* ---- what computes, in float64 ------------------------------------------------------------------------------------------ */

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool fill_at(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    int64_t strides[FB_RECIPE_MAX_RANK];
    packed_strides(term->rank, box, sizeof *to, strides);
    return fill_term(e, term, box, &(fb_target){(unsigned char *)to, strides, sizeof *to, true});
}

/* Numbers of a box on the stack. */
static double *fill_beside(fb_evaluation *e, const fb_term *term, const fb_range *box) {
    double *numbers = fb_stack_take(e, (size_t)box_elements(term->rank, box) * sizeof *numbers);
    return numbers && fill_at(e, term, box, numbers) ? numbers : NULL;
}

static bool fill_rounded(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    size_t count = (size_t)box_elements(term->rank, box);
    if (to->is_numbers) {
        if (!fill_term(e, term->args[0], box, to)) return false;
        if (term->dtype != FB_FLOAT64) fb_round_numbers(term->dtype, (double *)(void *)to->at, count);
        return true;
    }
    fb_stack_mark mark = fb_stack_top(e);
    const double *numbers = fill_beside(e, term->args[0], box);
    if (!numbers) return false;
    fb_encode_numbers(term->dtype, numbers, count, to->at);
    fb_stack_give_back(e, mark);
    return true;
}

/* ---- element by element -------------------------------------------------------------------------------------------------- */

/* The box of an argument that makes a box of the result, where dimensions of size 1 are repeated; is it as large? */
static bool broadcast_box(const fb_term *term, const fb_range *box, const fb_term *arg, fb_range *of_arg) {
    int shift = term->rank - arg->rank;
    for (int i = 0; i < arg->rank; i++) of_arg[i] = arg->sizes[i] == 1 ? (fb_range){0, 1} : box[i + shift];
    return box_elements(arg->rank, of_arg) == box_elements(term->rank, box);
}

/* Strides of an argument's numbers along the dimensions of the result; 0 where they are repeated. */
static void broadcast_strides(const fb_term *term, const fb_range *box, const fb_term *arg, const fb_range *of_arg,
                              fb_strided *s) {
    int64_t from[FB_RECIPE_MAX_RANK], to[FB_RECIPE_MAX_RANK];
    int shift = term->rank - arg->rank;
    packed_strides(term->rank, box, sizeof(double), to);
    packed_strides(arg->rank, of_arg, sizeof(double), from);
    *s = (fb_strided){0};
    for (int i = 0; i < term->rank; i++) {
        bool is_repeated = i < shift || of_arg[i - shift].size == 1;
        fb_strided_add(s, box[i].size, is_repeated ? 0 : from[i - shift], to[i]);
    }
}

typedef struct combining {
    fb_recipe_op op;
    bool is_reversed;
    double *x;
    const double *y;
} combining;

static void combine_run(void *context, int64_t from, int64_t to, int64_t count, int64_t from_stride, int64_t to_stride) {
    const combining *c = context;
    double *x = c->x + to / (int64_t)sizeof *x;
    const double *y = c->y + from / (int64_t)sizeof *y;
    from_stride /= (int64_t)sizeof *y;
    to_stride /= (int64_t)sizeof *x;
    if (count == 1 || (to_stride == 1 && from_stride <= 1)) {
        fb_combine_numbers(c->op, c->is_reversed, x, y, from_stride == 0, (size_t)count);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        fb_combine_numbers(c->op, c->is_reversed, x + i * to_stride, y + i * from_stride, true, 1);
}

static bool fill_binary(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    fb_range boxes[2][FB_RECIPE_MAX_RANK];
    bool is_full[2];
    for (int i = 0; i < 2; i++) is_full[i] = broadcast_box(term, box, term->args[i], boxes[i]);
    int first = is_full[0] == is_full[1] ? term->args[1]->live > term->args[0]->live : is_full[1];
    fb_stack_mark mark = fb_stack_top(e);
    fb_strided s;
    if (is_full[first]) {
        if (!fill_at(e, term->args[first], boxes[first], to)) return false;
    } else {
        const double *part = fill_beside(e, term->args[first], boxes[first]);
        if (!part) return false;
        broadcast_strides(term, box, term->args[first], boxes[first], &s);
        fb_strided_copy(&s, (const unsigned char *)part, (unsigned char *)to, sizeof *to);
        fb_stack_give_back(e, mark);
    }
    const fb_term *other = term->args[!first];
    combining c = {term->op, first == 1, to, fill_beside(e, other, boxes[!first])};
    if (!c.y) return false;
    broadcast_strides(term, box, other, boxes[!first], &s);
    fb_strided_each(&s, combine_run, &c);
    fb_stack_give_back(e, mark);
    return true;
}

/* ---- matmul -------------------------------------------------------------------------------------------------------------- */

typedef struct multiplying {
    const fb_term *a, *b;
    fb_range rows, columns;                                        /* of the result's box */
    int64_t inner;                                                 /* columns of a, rows of b */
    fb_range box_a[FB_RECIPE_MAX_RANK], box_b[FB_RECIPE_MAX_RANK]; /* the batch at hand, and the tile */
} multiplying;

static void put_tile(const fb_term *term, bool is_left, fb_range outer, fb_range inner, fb_range *box) {
    if (term->rank == 1) {
        box[0] = inner;
        return;
    }
    box[term->rank - 2] = is_left ? outer : inner;
    box[term->rank - 1] = is_left ? inner : outer;
}

/* Adds tile after tile of the arguments' product to columns of the result. */
static bool multiply_columns(fb_evaluation *e, multiplying *m, fb_range columns, double *to) {
    fb_stack_mark mark = fb_stack_top(e);
    for (int64_t k = 0; k < m->inner; k += e->limits->inner) {
        fb_range inner = {k, smaller(e->limits->inner, m->inner - k)};
        put_tile(m->b, false, columns, inner, m->box_b);
        const double *right = fill_beside(e, m->b, m->box_b);
        if (!right) return false;
        fb_stack_mark above = fb_stack_top(e);
        for (int64_t row = 0; row < m->rows.size; row += e->limits->rows) {
            fb_range rows = {m->rows.start + row, smaller(e->limits->rows, m->rows.size - row)};
            put_tile(m->a, true, rows, inner, m->box_a);
            const double *left = fill_beside(e, m->a, m->box_a);
            if (!left) return false;
            e->blas.dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)rows.size, (blasint)columns.size,
                          (blasint)inner.size, 1, left, (blasint)inner.size, right, (blasint)columns.size, k ? 1 : 0,
                          to + row * m->columns.size, (blasint)m->columns.size);
            fb_stack_give_back(e, above);
        }
        fb_stack_give_back(e, mark);
    }
    return true;
}

static bool multiply(fb_evaluation *e, multiplying *m, double *to) {
    if (!e->status) e->status = fb_blas_load(&e->blas, e->error);
    if (e->status) return false;
    if (m->inner == 0) memset(to, 0, (size_t)(m->rows.size * m->columns.size) * sizeof *to);
    for (int64_t column = 0; column < m->columns.size; column += e->limits->columns) {
        fb_range columns = {m->columns.start + column, smaller(e->limits->columns, m->columns.size - column)};
        if (!multiply_columns(e, m, columns, to + column)) return false;
    }
    return true;
}

/* The place in an argument's batch for one in the result's. */
static void put_batch(const fb_term *arg, int batch, const int64_t *place, fb_range *box) {
    int own = arg->rank > 2 ? arg->rank - 2 : 0;
    for (int i = 0; i < own; i++) box[i] = (fb_range){arg->sizes[i] == 1 ? 0 : place[i + batch - own], 1};
}

static bool fill_matmul(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    const fb_term *a = term->args[0], *b = term->args[1];
    int batch = term->rank - (a->rank > 1) - (b->rank > 1);
    int64_t place[FB_RECIPE_MAX_RANK];
    multiplying m = {.a = a, .b = b, .rows = {0, 1}, .columns = {0, 1}, .inner = a->sizes[a->rank - 1]};
    if (a->rank > 1) m.rows = box[batch];
    if (b->rank > 1) m.columns = box[term->rank - 1];
    for (int i = 0; i < batch; i++) place[i] = box[i].start;
    for (;;) {
        put_batch(a, batch, place, m.box_a);
        put_batch(b, batch, place, m.box_b);
        if (!multiply(e, &m, to)) return false;
        to += m.rows.size * m.columns.size;
        int i = batch - 1;
        for (; i >= 0; i--) {
            if (++place[i] < box[i].start + box[i].size) break;
            place[i] = box[i].start;
        }
        if (i < 0) return true;
    }
}

/* ---- absmax -------------------------------------------------------------------------------------------------------------- */

static void gather_run(void *context, int64_t from, int64_t to, int64_t count, int64_t from_stride, int64_t to_stride) {
    const combining *c = context;
    const double *y = c->y + from / (int64_t)sizeof *y;
    double *x = c->x + to / (int64_t)sizeof *x;
    from_stride /= (int64_t)sizeof *y;
    to_stride /= (int64_t)sizeof *x;
    for (int64_t i = 0; i < count; i++) {
        double size = fabs(y[i * from_stride]), *largest = &x[i * to_stride];
        if (size > *largest || size != size) *largest = size; /* which a nan stays */
    }
}

/* Takes a box of the argument into the largest ones, of which the first belongs to `to`: in halves, so that little is in memory
 * at once. */
static bool gather_box(fb_evaluation *e, const fb_term *arg, const fb_range *box, const int64_t *strides, double *to) {
    int widest = 0;
    fb_range half[FB_RECIPE_MAX_RANK];
    for (int i = 1; i < arg->rank; i++) widest = box[i].size > box[widest].size ? i : widest;
    if (box_elements(arg->rank, box) > e->limits->computed && box[widest].size > 1) {
        memcpy(half, box, (size_t)arg->rank * sizeof *half);
        half[widest].size /= 2;
        if (!gather_box(e, arg, half, strides, to)) return false;
        to += half[widest].size * strides[widest] / (int64_t)sizeof *to;
        half[widest] = (fb_range){box[widest].start + half[widest].size, box[widest].size - half[widest].size};
        return gather_box(e, arg, half, strides, to);
    }
    fb_stack_mark mark = fb_stack_top(e);
    combining c = {.x = to, .y = fill_beside(e, arg, box)};
    int64_t packed[FB_RECIPE_MAX_RANK];
    fb_strided s = {0};
    if (!c.y) return false;
    packed_strides(arg->rank, box, sizeof *to, packed);
    for (int i = 0; i < arg->rank; i++) fb_strided_add(&s, box[i].size, packed[i], strides[i]);
    fb_strided_each(&s, gather_run, &c);
    fb_stack_give_back(e, mark);
    return true;
}

/* A dimension of size 1 in the result, and not in the argument, is gathered. */
static bool fill_absmax(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    const fb_term *arg = term->args[0];
    fb_range whole[FB_RECIPE_MAX_RANK];
    int64_t strides[FB_RECIPE_MAX_RANK];
    packed_strides(term->rank, box, sizeof *to, strides);
    for (int i = 0; i < term->rank; i++) {
        bool is_gathered = term->sizes[i] != arg->sizes[i];
        whole[i] = is_gathered ? (fb_range){0, arg->sizes[i]} : box[i];
        if (is_gathered) strides[i] = 0;
    }
    memset(to, 0, (size_t)box_elements(term->rank, box) * sizeof *to);
    return gather_box(e, arg, whole, strides, to);
}

/* ---- index_select ------------------------------------------------------------------------------------------------------- */

/* A negative one counts from the end. */
static int64_t index_at(const fb_term *term, const unsigned char *indices, int64_t place) {
    int64_t wide;
    int32_t narrow;
    bool is_wide = term->args[1]->dtype == FB_INT64;
    if (is_wide) memcpy(&wide, indices + place * 8, sizeof wide);
    else memcpy(&narrow, indices + place * 4, sizeof narrow);
    if (!is_wide) wide = narrow;
    return wide < 0 ? wide + term->args[0]->sizes[term->axis] : wide;
}

/* Places that follow one another are taken at once. */
static bool fill_selected(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to,
                          const unsigned char *indices) {
    const fb_term *from = term->args[0];
    const int axis = term->axis;
    fb_range part[FB_RECIPE_MAX_RANK];
    memcpy(part, box, (size_t)term->rank * sizeof *part);
    for (int64_t i = 0; i < box[axis].size; i += part[axis].size) {
        int64_t first = index_at(term, indices, i), size = 1;
        if (first < 0 || first >= from->sizes[axis]) {
            fb_evaluation_fail(e, FB_INVALID, "bad-recipe", "index_select: place %lld of an axis of %lld", (long long)first,
                               (long long)from->sizes[axis]);
            return false;
        }
        int64_t most = smaller(box[axis].size - i, from->sizes[axis] - first);
        while (size < most && index_at(term, indices, i + size) == first + size) size++;
        part[axis] = (fb_range){first, size};
        unsigned char *at = to->at + i * to->strides[axis];
        if (!fill_term(e, from, part, &(fb_target){at, to->strides, to->element, to->is_numbers})) return false;
    }
    return true;
}

static bool fill_index_select(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    fb_range along = box[term->axis];
    int64_t element = (int64_t)fb_dtype_size(term->args[1]->dtype);
    fb_stack_mark mark = fb_stack_top(e);
    unsigned char *indices = fb_stack_take(e, (size_t)(along.size * element));
    if (!indices || !fb_fill_range(e, term->args[1], along.start, along.size, indices, element, false)) return false;
    if (!fill_selected(e, term, box, to, indices)) return false;
    fb_stack_give_back(e, mark);
    return true;
}

static bool fill_computed(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    double *numbers = (double *)(void *)to->at;
    if (term->op == FB_RECIPE_MATMUL) return fill_matmul(e, term, box, numbers);
    if (term->op == FB_RECIPE_ABSMAX) return fill_absmax(e, term, box, numbers);
    if (term->op == FB_RECIPE_INDEX_SELECT) return fill_index_select(e, term, box, to);
    if (term->count == 2) return fill_binary(e, term, box, numbers);
    if (!fill_term(e, term->args[0], box, to)) return false;
    fb_map_numbers(term->op, numbers, (size_t)box_elements(term->rank, box));
    return true;
}

/* ---- any term ------------------------------------------------------------------------------------------------------------ */

typedef bool fill_function(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to);

/* By way of a copy without gaps, when there are some. */
static bool fill_packed(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to, fill_function *fill) {
    if (is_packed(term->rank, box, to)) return fill(e, term, box, to);
    int64_t strides[FB_RECIPE_MAX_RANK];
    fb_strided s = {0};
    fb_stack_mark mark = fb_stack_top(e);
    unsigned char *copy = fb_stack_take(e, (size_t)(box_elements(term->rank, box) * to->element));
    packed_strides(term->rank, box, to->element, strides);
    if (!copy || !fill(e, term, box, &(fb_target){copy, strides, to->element, to->is_numbers})) return false;
    for (int i = 0; i < term->rank; i++) fb_strided_add(&s, box[i].size, strides[i], to->strides[i]);
    fb_strided_copy(&s, copy, to->at, to->element);
    fb_stack_give_back(e, mark);
    return true;
}

static bool fill_term(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    if (box_elements(term->rank, box) == 0) return true;
    if (term->kind == FB_TERM_ROUNDED) return fill_packed(e, term, box, to, fill_rounded);
    if (term->kind == FB_TERM_BYTES && term->stood_in.id) return fill_stood_in(e, term, box, to);
    if (term->kind == FB_TERM_BYTES) fill_bytes(e, term, box, to);
    else if (term->op == FB_RECIPE_FULL) fill_full(term, box, to);
    else if (term->op == FB_RECIPE_CONCAT) return fill_concat(e, term, box, to);
    else if (term->op == FB_RECIPE_SLICE) return fill_slice(e, term, box, to);
    else if (term->op == FB_RECIPE_PERMUTE) return fill_permute(e, term, box, to);
    else if (term->op == FB_RECIPE_RESHAPE) return fill_packed(e, term, box, to, fill_reshape);
    else return fill_packed(e, term, box, to, fill_computed);
    return true;
}

bool fb_fill_range(fb_evaluation *e, const fb_term *term, int64_t start, int64_t count, unsigned char *to, int64_t element,
                   bool is_numbers) {
    fb_range box[FB_RECIPE_MAX_RANK];
    int64_t strides[FB_RECIPE_MAX_RANK], inside[FB_RECIPE_MAX_RANK];
    whole_strides(term->rank, term->sizes, 1, inside);
    while (count > 0) {
        int64_t rest = start, made = 1;
        for (int i = 0; i < term->rank; i++) {
            box[i] = (fb_range){rest / inside[i], 1};
            rest %= inside[i];
        }
        for (int i = term->rank - 1; i >= 0; i--) { /* all of a dimension, and then a part of the next */
            int64_t fits = count / made, left = term->sizes[i] - box[i].start;
            box[i].size = fits < left ? fits : left;
            made *= box[i].size;
            if (box[i].size < term->sizes[i]) break;
        }
        packed_strides(term->rank, box, element, strides);
        if (!fill_term(e, term, box, &(fb_target){to, strides, element, is_numbers})) return false;
        to += made * element;
        start += made;
        count -= made;
    }
    return true;
}

int64_t fb_evaluation_block(const fb_evaluation *e, const fb_term *term) {
    const fb_evaluation_limits *limits = e->limits;
    bool repeats = term->gathers || term->is_turned;
    int64_t most = repeats ? limits->repeating : term->computes ? limits->computed : limits->moved;
    int64_t fits = limits->block / (int64_t)sizeof(double) / (term->live + 3), row = 1;
    if (most > fits) most = fits;
    for (int i = term->rank - 1; i >= 0 && term->elements && row <= most / term->sizes[i]; i--) row *= term->sizes[i];
    return most / row * row;
}

bool fb_fill_block(fb_evaluation *e, const fb_term *term, int64_t block, int64_t number, unsigned char *to, int64_t element) {
    int64_t start = number * block, left = term->elements - start;
    return fb_fill_range(e, term, start, left < block ? left : block, to, element, false);
}
