/* Boxes of terms that compute, in float64. */
#include <math.h>
#include <string.h>

#include "core/weights/convert.h"
#include "core/weights/evaluate_internal.h"

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool fill_at(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    int64_t strides[FB_RECIPE_MAX_RANK], stride = sizeof *to;
    for (int i = term->rank - 1; i >= 0; i--) {
        strides[i] = stride;
        stride *= box[i].size;
    }
    return fb_fill(e, term, box, &(fb_target){(unsigned char *)to, strides, sizeof *to, true});
}

/* Numbers of a box on the stack. */
static double *fill_beside(fb_evaluation *e, const fb_term *term, const fb_range *box) {
    double *numbers = fb_stack_take(e, (size_t)fb_box_elements(term->rank, box) * sizeof *numbers);
    return numbers && fill_at(e, term, box, numbers) ? numbers : NULL;
}

bool fb_fill_rounded(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    size_t count = (size_t)fb_box_elements(term->rank, box);
    if (to->is_numbers) {
        if (!fb_fill(e, term->args[0], box, to)) return false;
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
    return fb_box_elements(arg->rank, of_arg) == fb_box_elements(term->rank, box);
}

/* Strides of an argument's numbers along the dimensions of the result; 0 where they are repeated. */
static void broadcast_strides(const fb_term *term, const fb_range *box, const fb_term *arg, const fb_range *of_arg,
                              fb_strided *s) {
    int64_t from[FB_RECIPE_MAX_RANK] = {0}, to[FB_RECIPE_MAX_RANK], stride = sizeof(double), of_result = sizeof(double);
    int shift = term->rank - arg->rank;
    for (int i = term->rank - 1; i >= 0; i--) {
        to[i] = of_result;
        of_result *= box[i].size;
        if (i < shift) continue;
        from[i] = of_arg[i - shift].size == 1 ? 0 : stride;
        stride *= of_arg[i - shift].size;
    }
    *s = (fb_strided){0};
    for (int i = 0; i < term->rank; i++) fb_strided_add(s, box[i].size, from[i], to[i]);
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
    if (fb_box_elements(arg->rank, box) > e->limits->computed && box[widest].size > 1) {
        memcpy(half, box, (size_t)arg->rank * sizeof *half);
        half[widest].size /= 2;
        if (!gather_box(e, arg, half, strides, to)) return false;
        to += half[widest].size * strides[widest] / (int64_t)sizeof *to;
        half[widest] = (fb_range){box[widest].start + half[widest].size, box[widest].size - half[widest].size};
        return gather_box(e, arg, half, strides, to);
    }
    fb_stack_mark mark = fb_stack_top(e);
    combining c = {.x = to, .y = fill_beside(e, arg, box)};
    int64_t stride = sizeof(double), packed[FB_RECIPE_MAX_RANK];
    fb_strided s = {0};
    if (!c.y) return false;
    for (int i = arg->rank - 1; i >= 0; i--) {
        packed[i] = stride;
        stride *= box[i].size;
    }
    for (int i = 0; i < arg->rank; i++) fb_strided_add(&s, box[i].size, packed[i], strides[i]);
    fb_strided_each(&s, gather_run, &c);
    fb_stack_give_back(e, mark);
    return true;
}

/* A dimension of size 1 in the result, and not in the argument, is gathered. */
static bool fill_absmax(fb_evaluation *e, const fb_term *term, const fb_range *box, double *to) {
    const fb_term *arg = term->args[0];
    fb_range whole[FB_RECIPE_MAX_RANK];
    int64_t strides[FB_RECIPE_MAX_RANK], stride = sizeof *to;
    for (int i = term->rank - 1; i >= 0; i--) {
        bool is_gathered = term->sizes[i] != arg->sizes[i];
        whole[i] = is_gathered ? (fb_range){0, arg->sizes[i]} : box[i];
        strides[i] = is_gathered ? 0 : stride;
        stride *= box[i].size;
    }
    memset(to, 0, (size_t)fb_box_elements(term->rank, box) * sizeof *to);
    return gather_box(e, arg, whole, strides, to);
}

bool fb_fill_computed(fb_evaluation *e, const fb_term *term, const fb_range *box, const fb_target *to) {
    double *numbers = (double *)(void *)to->at;
    if (term->op == FB_RECIPE_MATMUL) return fill_matmul(e, term, box, numbers);
    if (term->op == FB_RECIPE_ABSMAX) return fill_absmax(e, term, box, numbers);
    if (term->count == 2) return fill_binary(e, term, box, numbers);
    if (!fb_fill(e, term->args[0], box, to)) return false;
    fb_map_numbers(term->op, numbers, (size_t)fb_box_elements(term->rank, box));
    return true;
}
