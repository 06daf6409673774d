#include "core/weights/rounding_error.h"

#include <math.h>
#include <stdlib.h>

#include "core/weights/dtype.h"

enum { READ_ROWS = 64, READ_AT_ONCE = 4 << 20 /* elements */ };

/* Sums of squares. */
typedef struct sums {
    double errors, all;
} sums;

/* The scale of an element of what is read: `rows` rows of the weight. */
static size_t scale_at(const fb_scaling *s, size_t groups, size_t row, size_t column) {
    size_t of = s->by_column ? column : row, along = s->by_column ? row : column;
    return of * groups + (s->group_size ? along / (size_t)s->group_size : 0);
}

static size_t groups_of(const fb_scaling *s) {
    int64_t along = s->by_column ? s->rows : s->columns;
    return s->group_size ? (size_t)(along / s->group_size) : 1;
}

static void look_for_largest(const fb_scaling *s, const double *w, size_t rows, double *scales) {
    size_t columns = (size_t)s->columns, within = (size_t)s->within, groups = groups_of(s), i = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            double *largest = &scales[scale_at(s, groups, r, c)];
            for (size_t k = 0; k < within; k++, i++) *largest = fmax(*largest, fabs(w[i]));
        }
    }
}

static void add_errors(const fb_scaling *s, const double *w, size_t rows, const double *scales, sums *out) {
    size_t columns = (size_t)s->columns, within = (size_t)s->within, groups = groups_of(s), i = 0;
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            double scale = scales[scale_at(s, groups, r, c)];
            for (size_t k = 0; k < within; k++, i++) {
                double error = scale > 0 ? w[i] - scale * nearbyint(w[i] / scale) : w[i];
                out->errors += error * error;
                out->all += w[i] * w[i];
            }
        }
    }
}

/* The elements from `first` on, of so many rows, whose scales are within them. */
static bool measure(fb_evaluation *e, fb_dtype dtype, const fb_scaling *s, size_t first, size_t rows, sums *out) {
    size_t each = (size_t)(s->columns * s->within), count = rows * each, width = fb_dtype_size(dtype);
    size_t scale_count = (s->by_column ? (size_t)s->columns : rows) * groups_of(s);
    double *w = malloc((count + 1) * sizeof *w), *scales = calloc(scale_count + 1, sizeof *scales);
    unsigned char *bytes = malloc(count * width + 1);
    fb_error error = {0};
    bool ok = w && scales && bytes && !fb_evaluation_read(e, first * each * width, bytes, count * width, &error);
    if (ok) {
        fb_decode_numbers(dtype, bytes, count, w);
        look_for_largest(s, w, rows, scales);
        for (size_t i = 0; i < scale_count; i++) scales[i] = scales[i] > 0 ? scales[i] / s->levels + s->least : 0;
        fb_round_numbers(dtype, scales, scale_count);
        add_errors(s, w, rows, scales, out);
    }
    free(w);
    free(scales);
    free(bytes);
    return ok;
}

bool fb_rounding_error(const fb_graph *graph, fb_tensor weight, const fb_blobs *blobs, const fb_scaling *s, double *out) {
    fb_evaluation *e = NULL;
    fb_error error = {0};
    sums found = {0};
    fb_dtype dtype = (fb_dtype)fb_tensor_at(graph, weight)->dtype;
    if (s->rows < 1 || s->columns < 1 || s->within < 1) return false;
    int64_t each = s->columns * s->within, rows = s->by_column ? s->rows : 1, steps = s->by_column ? 1 : s->rows;
    if (each > READ_AT_ONCE / rows || fb_evaluation_new(graph, weight, blobs, &e, &error)) return false;
    int64_t apart = steps > READ_ROWS ? steps / READ_ROWS : 1;
    bool ok = true;
    for (int64_t i = 0; i < steps && ok; i += apart) ok = measure(e, dtype, s, (size_t)i, (size_t)rows, &found);
    fb_evaluation_free(e);
    if (!ok || !(found.all > 0) || !isfinite(found.all) || !isfinite(found.errors)) return false;
    *out = sqrt(found.errors / found.all);
    return true;
}
