/* ONNX's operators that pick: GridSample, NonMaxSuppression, Unique; and BitCast. */
#include <math.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/evaluator/onnx.h"

#define SPATIAL 3 /* dimensions that a grid points into, at most */
#define TAPS 4

/* ---- GridSample --------------------------------------------------------------------------------------------------------- */

typedef enum filling { ZEROS, BORDER, REFLECTION } filling;

typedef struct sampling {
    const fb_array *x, *grid;
    fb_array *made;
    int spatial, taps; /* elements that are read along each dimension: 1 is the nearest */
    filling filling;
    bool aligns_corners;
} sampling;

/* Mirrored at the edges until it is between them. */
static double reflected(double x, double low, double high) {
    double range = high - low, beyond = x < low ? low - x : x - high;
    if (x >= low && x <= high) return x;
    double times = floor(beyond / range), rest = beyond - times * range;
    bool is_even = fmod(times, 2) == 0;
    return (x < low) == is_even ? low + rest : high - rest;
}

/* The element at a place of a dimension; -1: a zero. */
static int64_t element_at(const sampling *s, int64_t at, int64_t size) {
    if (at >= 0 && at < size) return at;
    if (s->filling == ZEROS) return -1;
    if (s->filling == BORDER) return at < 0 ? 0 : size - 1;
    double low = s->aligns_corners ? 0 : -0.5, high = (double)size - (s->aligns_corners ? 1 : 0.5);
    int64_t found = high > low ? (int64_t)reflected((double)at, low, high) : 0;
    return found < 0 ? 0 : found >= size ? size - 1 : found;
}

static void weights_of(int taps, double t, double weights[TAPS]) {
    const double a = -0.75;
    weights[0] = taps == 1 ? 1 : 1 - t;
    if (taps > 1) weights[1] = t;
    if (taps < 4) return;
    weights[0] = ((a * (t + 1) - 5 * a) * (t + 1) + 8 * a) * (t + 1) - 4 * a;
    weights[1] = ((a + 2) * t - (a + 3)) * t * t + 1;
    weights[2] = ((a + 2) * (1 - t) - (a + 3)) * (1 - t) * (1 - t) + 1;
    weights[3] = ((a * (2 - t) - 5 * a) * (2 - t) + 8 * a) * (2 - t) - 4 * a;
}

/* Finds the elements of one dimension and how much of each; false for a number that is not finite, or too
 * large. It computes in float32, as all do: a place that is rounded to the nearest may be halfway. */
static bool locate(const sampling *s, double given, int64_t size, int64_t *elements, double *weights) {
    float n = (float)given, length = (float)size, x;
    if (!isfinite(n) || fabsf(n) > 0x1p20F || size > 1 << 23) return false;
    x = s->aligns_corners ? (n + 1) / 2 * (length - 1) : ((n + 1) * length - 1) / 2;
    if (s->taps == 1) x = rintf(x);
    double low = s->aligns_corners ? 0 : -0.5, high = (double)size - (s->aligns_corners ? 1 : 0.5), place = (double)x;
    bool is_outside = place < low || place > high;
    if (is_outside && s->taps == 4 && s->filling == BORDER) return false; /* onnx.reference and ONNX Runtime differ */
    if (is_outside && s->filling == BORDER) place = place < 0 ? 0 : (double)size - 1;
    if (is_outside && s->filling == REFLECTION) {
        if (high <= low) return false;
        place = reflected(place, low, high);
    }
    int64_t first = s->taps == 1 ? (int64_t)place : (int64_t)floor(place) - (s->taps == 4);
    weights_of(s->taps, place - floor(place), weights);
    for (int t = 0; t < s->taps; t++) elements[t] = element_at(s, first + t, size);
    return true;
}

/* The elements of x that make one element, and how much of each. */
typedef struct mix {
    int count;
    int64_t elements[TAPS * TAPS * TAPS];
    double weights[TAPS * TAPS * TAPS];
} mix;

static bool mix_at(const sampling *s, int64_t point, mix *m) {
    m->count = 1, m->elements[0] = 0, m->weights[0] = 1;
    for (int d = 0; d < s->spatial; d++) {
        int64_t size = s->x->sizes[d + 2], elements[TAPS];
        double weights[TAPS];
        if (!locate(s, onnx_get(s->grid, (point + 1) * s->spatial - 1 - d), size, elements, weights)) return false;
        for (int i = m->count - 1; i >= 0; i--)
            for (int t = s->taps - 1; t >= 0; t--) {
                bool is_zero = m->elements[i] < 0 || elements[t] < 0;
                m->elements[i * s->taps + t] = is_zero ? -1 : m->elements[i] * size + elements[t];
                m->weights[i * s->taps + t] = m->weights[i] * weights[t];
            }
        m->count *= s->taps;
    }
    return true;
}

static bool open_sampling(onnx_op *op, sampling *s) {
    const char *mode = onnx_text(op, "mode", op->version < 20 ? "bilinear" : "linear"),
               *padding = onnx_text(op, "padding_mode", "zeros");
    bool is_linear = strcmp(mode, op->version < 20 ? "bilinear" : "linear") == 0;
    bool is_cubic = strcmp(mode, op->version < 20 ? "bicubic" : "cubic") == 0, fits = true;
    s->aligns_corners = onnx_int(op, "align_corners", 0);
    s->taps = is_linear ? 2 : is_cubic ? 4 : 1;
    s->filling = strcmp(padding, "border") == 0 ? BORDER : strcmp(padding, "reflection") == 0 ? REFLECTION : ZEROS;
    if (s->taps == 1 && strcmp(mode, "nearest") != 0) return onnx_refuse(op, "its mode is %s", mode) != NULL;
    if (s->filling == ZEROS && strcmp(padding, "zeros") != 0) return onnx_refuse(op, "its padding_mode is %s", padding) != NULL;
    if (!s->x || !s->grid || !onnx_ok(op)) return false;
    s->spatial = s->x->rank - 2;
    if (s->spatial < 1 || s->spatial > SPATIAL) return onnx_refuse(op, "it has %d dimensions", s->x->rank) != NULL;
    fits = s->grid->rank == s->x->rank && s->grid->sizes[0] == s->x->sizes[0] &&
           s->grid->sizes[s->grid->rank - 1] == s->spatial && fb_dtype_is_floating(s->grid->dtype);
    for (int i = 0; i < s->x->rank; i++) fits &= s->x->sizes[i] > 0;
    if (!fits) return onnx_fail(op, "its grid does not fit its input") != NULL;
    if (!fb_dtype_is_floating(s->x->dtype)) return onnx_refuse(op, "it is evaluated for floats alone") != NULL;
    return true;
}

static fb_array *op_grid_sample(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0)), *grid = onnx_rows(op, onnx_in(op, 1));
    sampling s = {.x = x, .grid = grid};
    int64_t sizes[FB_MAX_RANK], points = 1, plane = 1;
    if (!open_sampling(op, &s)) return NULL;
    sizes[0] = x->sizes[0], sizes[1] = x->sizes[1];
    for (int i = 2; i < x->rank; i++) sizes[i] = grid->sizes[i - 1], points *= sizes[i], plane *= x->sizes[i];
    s.made = onnx_new(op, x->dtype, x->rank, sizes);
    double work = 10 * pow(s.taps, s.spatial);
    if (!s.made || !onnx_takes(op, work * (double)(fb_array_count(s.made) + points))) return NULL;
    for (int64_t at = 0; at < sizes[0] * points && onnx_goes_on(op, (int64_t)work * (sizes[1] + 1)); at++) {
        mix m;
        if (!mix_at(&s, at, &m)) return onnx_undefined(op, "its grid points where what is given is not defined");
        for (int64_t c = 0; c < sizes[1]; c++) {
            int64_t channel = at / points * sizes[1] + c;
            double sum = 0;
            for (int i = 0; i < m.count; i++)
                if (m.elements[i] >= 0) sum += m.weights[i] * onnx_get(x, channel * plane + m.elements[i]);
            onnx_put(s.made, channel * points + at % points, sum);
        }
    }
    fb_array_round(s.made);
    return s.made;
}

/* ---- NonMaxSuppression -------------------------------------------------------------------------------------------------- */

typedef struct suppression {
    const fb_array *boxes, *scores;
    bool is_centred;
    float overlap; /* that two boxes may have at most */
} suppression;

/* The lower and the upper corner: y, x, y, x. */
static void corners(const suppression *s, int64_t box, float out[4]) {
    float b[4];
    for (int i = 0; i < 4; i++) b[i] = (float)onnx_get(s->boxes, box * 4 + i);
    for (int i = 0; i < 2; i++) {
        float centre = b[1 - i], half = b[3 - i] / 2;
        out[i] = s->is_centred ? centre - half : fminf(b[i], b[i + 2]);
        out[i + 2] = s->is_centred ? centre + half : fmaxf(b[i], b[i + 2]);
    }
}

static bool overlaps(const suppression *s, int64_t one, int64_t other) {
    float a[4], b[4], sides[2];
    corners(s, one, a);
    corners(s, other, b);
    for (int i = 0; i < 2; i++) {
        float low = fmaxf(a[i], b[i]), high = fminf(a[i + 2], b[i + 2]);
        if (high <= low) return false;
        sides[i] = high - low;
    }
    float both = sides[1] * sides[0], area_a = (a[3] - a[1]) * (a[2] - a[0]), area_b = (b[3] - b[1]) * (b[2] - b[0]);
    float all = area_a + area_b - both;
    if (both <= 0 || area_a <= 0 || area_b <= 0 || all <= 0) return false;
    return both / all > s->overlap;
}

typedef struct candidate {
    double score;
    int64_t box;
} candidate;

/* The highest first; of equal ones the first. */
static int by_score(const void *a, const void *b) {
    const candidate *one = a, *other = b;
    int order = (one->score < other->score) - (one->score > other->score);
    return order ? order : (one->box > other->box) - (one->box < other->box);
}

/* Sorts the boxes of a class that may be taken, and moves those that are to the front: how many. */
static int64_t pick(onnx_op *op, const suppression *s, int64_t first_box, int64_t first_score, int64_t count, int64_t most,
                    double threshold, candidate *items) {
    int64_t found = 0, all = 0;
    for (int64_t i = 0; i < count && onnx_goes_on(op, 40); i++) {
        double score = onnx_get(s->scores, first_score + i);
        if (score != score) onnx_undefined(op, "a score is nan");
        if (score > threshold) items[all++] = (candidate){score, first_box + i};
    }
    fb_sort(items, (size_t)all, sizeof *items, by_score);
    for (int64_t i = 0; i < all && found < most && onnx_goes_on(op, 20 * found); i++) {
        bool is_suppressed = false;
        for (int64_t k = 0; k < found && !is_suppressed; k++) is_suppressed = overlaps(s, items[i].box, items[k].box);
        if (!is_suppressed) items[found++] = items[i];
    }
    return found;
}

static double number_in(onnx_op *op, size_t index, double fallback) {
    fb_array *array = onnx_maybe(op, index);
    if (!array) return fallback;
    if (fb_array_count(array) != 1) onnx_fail(op, "its input %zu is not one number", index);
    return onnx_ok(op) ? fb_array_number(array, 0) : fallback;
}

static fb_array *op_non_max_suppression(onnx_op *op) {
    suppression s = {.boxes = onnx_rows(op, onnx_in(op, 0)), .scores = onnx_rows(op, onnx_in(op, 1))};
    int64_t most = onnx_in_int(op, 2, 0), at = 0;
    double overlap = number_in(op, 3, 0), threshold = number_in(op, 4, -HUGE_VAL);
    s.is_centred = onnx_int(op, "center_point_box", 0), s.overlap = (float)overlap;
    if (!s.boxes || !s.scores || !onnx_ok(op)) return NULL;
    bool fits = s.boxes->rank == 3 && s.boxes->sizes[2] == 4 && s.scores->rank == 3 &&
                s.scores->sizes[0] == s.boxes->sizes[0] && s.scores->sizes[2] == s.boxes->sizes[1] &&
                s.boxes->dtype == FB_FLOAT32 && s.scores->dtype == FB_FLOAT32;
    if (!fits) return onnx_fail(op, "its boxes and scores do not fit");
    int64_t batch = s.scores->sizes[0], classes = s.scores->sizes[1], count = s.scores->sizes[2],
            limit = most < count ? most : count;
    if (limit < 0) limit = 0;
    if (!onnx_takes(op, (double)(batch * classes) * (double)count * (20 * (double)limit + 40))) return NULL;
    fb_array *all = onnx_new(op, FB_INT64, 2, (const int64_t[]){batch * classes * limit, 3});
    candidate *items = all ? fb_make_workspace(op->call, count, sizeof *items) : NULL;
    for (int64_t k = 0; items && k < batch * classes && onnx_ok(op); k++) {
        int64_t found = pick(op, &s, k / classes * count, k * count, count, limit, threshold, items);
        for (int64_t i = 0; i < found && onnx_ok(op); i++) {
            onnx_put_int(all, at++, k / classes);
            onnx_put_int(all, at++, k % classes);
            onnx_put_int(all, at++, items[i].box % count);
        }
    }
    fb_free_workspace(op->call, items, count, sizeof *items);
    return onnx_cut(op, all, 0, 0, at / 3);
}

/* ---- Unique ------------------------------------------------------------------------------------------------------------- */

/* Slices of an array along its first axis. */
typedef struct slices {
    const fb_array *x;
    int64_t count, inner;
} slices;

static int compare(const slices *s, int64_t a, int64_t b) {
    for (int64_t i = 0; i < s->inner; i++) {
        int64_t one = a * s->inner + i, other = b * s->inner + i;
        bool is_integer = s->x->held == FB_HELD_INT;
        int order = is_integer ? (onnx_get_int(s->x, one) > onnx_get_int(s->x, other)) -
                                     (onnx_get_int(s->x, one) < onnx_get_int(s->x, other))
                               : (onnx_get(s->x, one) > onnx_get(s->x, other)) - (onnx_get(s->x, one) < onnx_get(s->x, other));
        if (order) return order;
    }
    return 0;
}

/* Slices that are equal stay in their order. */
static void sort(onnx_op *op, const slices *s, int64_t *order, int64_t *space) {
    for (int64_t width = 1; width < s->count; width *= 2) {
        for (int64_t from = 0; from < s->count && onnx_goes_on(op, 2 * width * s->inner); from += 2 * width) {
            int64_t middle = from + width < s->count ? from + width : s->count;
            int64_t end = middle + width < s->count ? middle + width : s->count, a = from, b = middle;
            for (int64_t to = from; to < end; to++)
                space[to] = b >= end || (a < middle && compare(s, order[a], order[b]) <= 0) ? order[a++] : order[b++];
        }
        memcpy(order, space, (size_t)s->count * sizeof *order);
    }
}

/* Groups of equal slices, by the first of each: `group` of each slice; *first and *times of each group. The count. */
static int64_t group(onnx_op *op, const slices *s, bool is_sorted, int64_t *space, int64_t **first, int64_t **times) {
    int64_t *order = space, *groups = space + s->count, *place, found = 0;
    *first = groups + s->count, *times = *first + s->count, place = *times + s->count;
    for (int64_t i = 0; i < s->count; i++) order[i] = i;
    sort(op, s, order, *first);
    for (int64_t i = 0; i < s->count && onnx_goes_on(op, s->inner); i++) {
        if (!i || compare(s, order[i - 1], order[i]) != 0) (*first)[found++] = order[i];
        groups[order[i]] = found - 1;
    }
    for (int64_t i = 0; i < found; i++) place[i] = is_sorted ? i : -1;
    for (int64_t i = 0, next = 0; i < s->count && !is_sorted && onnx_ok(op); i++)
        if (place[groups[i]] < 0) place[groups[i]] = next, (*times)[next++] = i;
    if (!is_sorted) memcpy(*first, *times, (size_t)found * sizeof **first);
    memset(*times, 0, (size_t)found * sizeof **times);
    for (int64_t i = 0; i < s->count && onnx_ok(op); i++) (*times)[groups[i] = place[groups[i]]]++;
    return found;
}

static bool has_nan(onnx_op *op, const fb_array *x) {
    for (int64_t i = 0, count = fb_array_count(x); i < count && fb_work_at(fb_call_work(op->call), i, count); i++)
        if (fb_dtype_is_floating(x->dtype) && onnx_get(x, i) != onnx_get(x, i)) return true;
    return false;
}

static fb_array *op_unique(onnx_op *op) {
    fb_array *given = onnx_in(op, 0);
    bool has_axis = onnx_has_attribute(op, "axis"), is_sorted = onnx_int(op, "sorted", 1);
    int axis = has_axis ? onnx_axis(op, "axis", 0, given) : 0, axes[FB_MAX_RANK];
    if (!given || !onnx_ok(op)) return NULL;
    int64_t all = fb_array_count(given), *first = NULL, *times = NULL;
    fb_array *flat = has_axis ? given : onnx_reshape(op, given, 1, &all), *x;
    if (!flat) return NULL;
    for (int i = 0; i < flat->rank; i++) axes[i] = i == 0 ? axis : i <= axis ? i - 1 : i;
    x = onnx_rows(op, onnx_permute(op, flat, axes));
    if (!x) return NULL;
    if (!x->sizes[0] || !all) return onnx_refuse(op, "it is evaluated for what has elements alone");
    if (has_nan(op, x)) return onnx_undefined(op, "what is equal to nan is not defined");
    slices s = {.x = x, .count = x->sizes[0], .inner = all / x->sizes[0]};
    int64_t *space = onnx_takes(op, 20 * (double)all) ? fb_make_workspace(op->call, 5 * s.count, sizeof *space) : NULL;
    int64_t found = space ? group(op, &s, is_sorted, space, &first, &times) : 0;
    fb_array *lists[3] = {NULL}, *made = NULL;
    for (int i = 0; i < 3 && onnx_ok(op); i++) lists[i] = onnx_new(op, FB_INT64, 1, i == 1 ? &s.count : &found);
    for (int64_t i = 0; i < s.count && onnx_ok(op); i++) {
        if (i < found) onnx_put_int(lists[0], i, first[i]), onnx_put_int(lists[2], i, times[i]);
        onnx_put_int(lists[1], i, space[s.count + i]);
    }
    fb_free_workspace(op->call, space, 5 * s.count, sizeof *space);
    if (onnx_ok(op))
        made = ONNX_PART(INDEX_SELECT, "index_select", ONNX_A("input", flat), ONNX_I("dim", axis), ONNX_A("index", lists[0]));
    op->results[0] = made;
    for (int i = 0; i < 3; i++) op->results[i + 1] = lists[i];
    return made;
}

/* ---- BitCast ------------------------------------------------------------------------------------------------------------ */

/* Bits of nan are not kept by what reads and writes numbers here. */
static fb_array *op_bit_cast(onnx_op *op) {
    fb_array *x = onnx_rows(op, onnx_in(op, 0));
    fb_dtype dtype = onnx_dtype(op, onnx_int(op, "to", 0));
    if (!x || !dtype || !onnx_ok(op)) return NULL;
    if (fb_dtype_size(dtype) != fb_dtype_size(x->dtype)) return onnx_fail(op, "its dtypes have two sizes");
    int64_t size = fb_array_count(x) * (int64_t)fb_dtype_size(dtype);
    fb_array *made = onnx_new(op, dtype, x->rank, x->sizes);
    unsigned char *bytes = made ? fb_make_workspace(op->call, size, 1) : NULL;
    if (!bytes) return NULL;
    fb_array_to_bytes(x, bytes);
    for (int64_t i = 0; i < size && dtype == FB_BOOL; i++)
        if (bytes[i] > 1) onnx_undefined(op, "a bool that is neither 0 nor 1 is not defined");
    fb_array_put_bytes(made, 0, fb_array_count(made), bytes);
    fb_free_workspace(op->call, bytes, size, 1);
    if (has_nan(op, x) || has_nan(op, made)) return onnx_undefined(op, "the bits of nan are not kept here");
    return made;
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_sample[] = {
    ROW("GridSample", 16, op_grid_sample),
    ROW("NonMaxSuppression", 10, op_non_max_suppression),
    ROW("Unique", 11, op_unique),
    ROW("BitCast", 26, op_bit_cast),
    {0},
};
