/* The rules of shapes: a function for operators of a kind. A rule that does not know a size gives 0 for it, and one that does
 * not know how many there are gives the dtype alone. */
#include <math.h>
#include <string.h>

#include "core/analysis/onnx_call.h"

#define SHAPE(name) static void shape_##name(fb_onnx_call *c)

/* ---- parts of rules ------------------------------------------------------------------------------------------------------ */

static bool axis_of(int64_t axis, int rank, int *out) {
    if (axis < -rank || axis >= rank) return false;
    *out = (int)(axis < 0 ? axis + rank : axis);
    return true;
}

static size number(fb_onnx_call *c, int64_t of) {
    return fb_size_of(c->sizes, of);
}

static fb_dtype dtype_attribute(fb_onnx_call *c, const char *name, fb_dtype fallback) {
    int64_t found = fb_onnx_int(c, name, 0);
    return found ? fb_onnx_dtype(found) : fallback;
}

static fb_dtype dtype_in(fb_onnx_call *c, uint32_t index) {
    return fb_onnx_in(c, index)->dtype;
}

static size broadcast_one(fb_onnx_call *c, size a, size b) {
    int64_t x, y;
    bool is_x = fb_size_is_number(c->sizes, a, &x), is_y = fb_size_is_number(c->sizes, b, &y);
    if (a == b) return a;
    if (is_x && is_y) return x == 1 ? b : y == 1 ? a : 0;
    if (is_x) return x == 1 ? b : a; /* the other one is 1, or the same */
    if (is_y) return y == 1 ? a : b;
    return 0;
}

static bool broadcast(fb_onnx_call *c, const type *a, const type *b, type *out, size sizes[FB_ONNX_RANK]) {
    if (a->rank < 0 || b->rank < 0) return false;
    int rank = a->rank > b->rank ? a->rank : b->rank;
    size made[FB_ONNX_RANK];
    for (int i = 1; i <= rank; i++) {
        size x = i <= a->rank ? a->sizes[a->rank - i] : 0, y = i <= b->rank ? b->sizes[b->rank - i] : 0;
        made[rank - i] = i > a->rank ? y : i > b->rank ? x : broadcast_one(c, x, y);
        if (!made[rank - i]) made[rank - i] = fb_size_fresh(c->sizes);
    }
    memcpy(sizes, made, sizeof made);
    *out = (type){.rank = rank, .sizes = sizes};
    return true;
}

static void give_broadcast(fb_onnx_call *c, fb_dtype dtype) {
    size sizes[FB_ONNX_RANK];
    type all = {.rank = 0, .sizes = sizes};
    bool is_known = fb_onnx_inputs(c) > 0;
    for (uint32_t i = 0; i < fb_onnx_inputs(c) && is_known; i++) is_known = broadcast(c, &all, fb_onnx_in(c, i), &all, sizes);
    if (is_known) fb_onnx_give(c, 0, dtype, all.rank, sizes);
    else fb_onnx_give_dtype(c, 0, dtype);
}

static size product_of(fb_onnx_call *c, const size *sizes, int from, int to) {
    size all = number(c, 1);
    for (int i = from; i < to; i++) all = fb_size_mul(c->sizes, all, sizes[i]);
    return all;
}

/* The sizes with some of them exchanged. */
static void give_with(fb_onnx_call *c, uint32_t index, fb_dtype dtype, const type *as, int first, const size *others,
                      int count) {
    size sizes[FB_ONNX_RANK];
    if (as->rank < 0) {
        fb_onnx_give_dtype(c, index, dtype);
        return;
    }
    memcpy(sizes, as->sizes, (size_t)as->rank * sizeof *sizes);
    for (int i = 0; i < count && first + i < as->rank; i++) sizes[first + i] = others[i];
    fb_onnx_give(c, index, dtype, as->rank, sizes);
}

/* ---- element by element -------------------------------------------------------------------------------------------------- */

SHAPE(same) {
    fb_onnx_give_same(c, 0, dtype_in(c, 0), fb_onnx_in(c, 0));
}

SHAPE(same_bool) {
    fb_onnx_give_same(c, 0, FB_BOOL, fb_onnx_in(c, 0));
}

SHAPE(broadcast) {
    give_broadcast(c, dtype_in(c, 0));
}

SHAPE(broadcast_bool) {
    give_broadcast(c, FB_BOOL);
}

SHAPE(where) {
    give_broadcast(c, dtype_in(c, 1));
}

SHAPE(cast) {
    fb_onnx_give_same(c, 0, dtype_attribute(c, "to", FB_DTYPE_UNKNOWN), fb_onnx_in(c, 0));
}

SHAPE(cast_like) {
    fb_onnx_give_same(c, 0, dtype_in(c, 1), fb_onnx_in(c, 0));
}

SHAPE(like) {
    fb_onnx_give_same(c, 0, dtype_attribute(c, "dtype", dtype_in(c, 0)), fb_onnx_in(c, 0));
}

SHAPE(dropout) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_give_same(c, 0, x->dtype, x);
    fb_onnx_give_same(c, 1, c->version < 10 ? x->dtype : FB_BOOL, x);
}

SHAPE(quantise) {
    fb_dtype zero = fb_onnx_has(c, 2) ? dtype_in(c, 2) : FB_UINT8;
    fb_onnx_give_same(c, 0, dtype_attribute(c, "output_dtype", zero), fb_onnx_in(c, 0));
}

SHAPE(dequantise) {
    fb_onnx_give_same(c, 0, dtype_attribute(c, "output_dtype", c->version < 19 ? FB_FLOAT32 : dtype_in(c, 1)),
                      fb_onnx_in(c, 0));
}

SHAPE(dynamic_quantise) {
    fb_onnx_give_same(c, 0, FB_UINT8, fb_onnx_in(c, 0));
    fb_onnx_give(c, 1, FB_FLOAT32, 0, NULL);
    fb_onnx_give(c, 2, FB_UINT8, 0, NULL);
}

/* ---- norms --------------------------------------------------------------------------------------------------------------- */

SHAPE(batch_norm) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_give_same(c, 0, x->dtype, x);
    for (uint32_t i = 1; i < 5; i++) fb_onnx_give_same(c, i, dtype_in(c, i < 3 ? i + 2 : 3), fb_onnx_in(c, 3));
    if (c->version < 14) /* what they are outside of training, none says */
        for (uint32_t i = 1; i < 5; i++) fb_onnx_give_dtype(c, i, FB_DTYPE_UNKNOWN);
}

SHAPE(layer_norm) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[FB_ONNX_RANK];
    int axis;
    fb_dtype stash = dtype_attribute(c, "stash_type", FB_FLOAT32);
    fb_onnx_give_same(c, 0, x->dtype, x);
    bool is_known = x->rank > 0 && axis_of(fb_onnx_int(c, "axis", -1), x->rank, &axis);
    for (int i = 0; is_known && i < x->rank; i++) sizes[i] = i < axis ? x->sizes[i] : number(c, 1);
    for (uint32_t k = 1; k < 3; k++) {
        if (is_known) fb_onnx_give(c, k, stash, x->rank, sizes);
        else fb_onnx_give_dtype(c, k, stash);
    }
}

/* ---- products ------------------------------------------------------------------------------------------------------------ */

static void give_matmul(fb_onnx_call *c, fb_dtype dtype, const type *a, const type *b) {
    size sizes[FB_ONNX_RANK], before[2][FB_ONNX_RANK], both[FB_ONNX_RANK];
    const type *of[] = {a, b};
    type batch[2], all;
    if (a->rank < 1 || b->rank < 1) {
        fb_onnx_give_dtype(c, 0, dtype);
        return;
    }
    for (int k = 0; k < 2; k++) {
        batch[k] = (type){.rank = of[k]->rank > 2 ? of[k]->rank - 2 : 0, .sizes = before[k]};
        memcpy(before[k], of[k]->sizes, (size_t)batch[k].rank * sizeof *sizes);
    }
    if (!broadcast(c, &batch[0], &batch[1], &all, both)) return;
    int rank = all.rank;
    if (rank + 2 > FB_ONNX_RANK) return;
    memcpy(sizes, both, (size_t)rank * sizeof *sizes);
    if (a->rank > 1) sizes[rank++] = a->sizes[a->rank - 2];
    if (b->rank > 1) sizes[rank++] = b->sizes[b->rank - 1];
    fb_onnx_give(c, 0, dtype, rank, sizes);
}

SHAPE(matmul) {
    give_matmul(c, dtype_in(c, 0), fb_onnx_in(c, 0), fb_onnx_in(c, 1));
}

SHAPE(matmul_integer) {
    give_matmul(c, FB_INT32, fb_onnx_in(c, 0), fb_onnx_in(c, 1));
}

SHAPE(matmul_quantised) {
    give_matmul(c, dtype_in(c, 7), fb_onnx_in(c, 0), fb_onnx_in(c, 3));
}

SHAPE(gemm) {
    const type *a = fb_onnx_in(c, 0), *b = fb_onnx_in(c, 1);
    fb_onnx_give_dtype(c, 0, a->dtype);
    if (a->rank != 2 || b->rank != 2) return;
    size sizes[] = {a->sizes[fb_onnx_int(c, "transA", 0) ? 1 : 0], b->sizes[fb_onnx_int(c, "transB", 0) ? 0 : 1]};
    fb_onnx_give(c, 0, a->dtype, 2, sizes);
}

SHAPE(det) {
    const type *x = fb_onnx_in(c, 0);
    if (x->rank >= 2) fb_onnx_give(c, 0, x->dtype, x->rank - 2, x->sizes);
    else fb_onnx_give_dtype(c, 0, x->dtype);
}

/* Letters and one ellipsis. */
SHAPE(einsum) {
    const char *equation = fb_onnx_text(c, "equation", NULL), *arrow = equation ? strstr(equation, "->") : NULL;
    size of_letter[128] = {0}, dots[FB_ONNX_RANK], sizes[FB_ONNX_RANK];
    int seen[128] = {0}, dot_count = 0, rank = 0;
    uint32_t input = 0;
    fb_onnx_give_dtype(c, 0, dtype_in(c, 0));
    if (!equation) return;
    for (const char *term = equation; input < fb_onnx_inputs(c); input++) {
        const type *x = fb_onnx_in(c, input);
        int letters = 0, at = 0;
        bool has_dots = false;
        if (x->rank < 0) return;
        const char *end = term;
        while (*end && *end != ',' && end != arrow) has_dots |= *end == '.', letters += *end != '.' && *end != ' ', end++;
        int rest = x->rank - letters;
        if (rest < 0 || (rest && !has_dots)) return;
        for (const char *at_text = term; at_text < end; at_text++) {
            unsigned char l = (unsigned char)*at_text;
            if (l == ' ') continue;
            if (l == '.') {
                if (rest && (dot_count && dot_count != rest)) return; /* of different ranks: rare */
                for (int i = 0; i < rest; i++) {
                    size old = dot_count ? dots[i] : 0, now = x->sizes[at + i];
                    dots[i] = old ? broadcast_one(c, old, now) : now;
                    if (!dots[i]) dots[i] = fb_size_fresh(c->sizes);
                }
                if (rest) dot_count = rest;
                at += rest;
                at_text += 2;
                continue;
            }
            if (l > 127) return;
            size now = x->sizes[at++];
            of_letter[l] = of_letter[l] ? broadcast_one(c, of_letter[l], now) : now;
            if (!of_letter[l]) of_letter[l] = fb_size_fresh(c->sizes);
            seen[l]++;
        }
        term = *end == ',' ? end + 1 : end;
    }
    if (!arrow) {
        for (int i = 0; i < dot_count; i++) sizes[rank++] = dots[i];
        for (int l = 0; l < 128 && rank < FB_ONNX_RANK; l++)
            if (seen[l] == 1) sizes[rank++] = of_letter[l];
    }
    for (const char *at = arrow ? arrow + 2 : ""; *at; at++) {
        unsigned char l = (unsigned char)*at;
        if (l == ' ') continue;
        if (rank + (l == '.' ? dot_count : 1) > FB_ONNX_RANK || l > 127) return;
        if (l == '.') {
            for (int i = 0; i < dot_count; i++) sizes[rank++] = dots[i];
            at += 2;
        } else {
            if (!of_letter[l]) return;
            sizes[rank++] = of_letter[l];
        }
    }
    fb_onnx_give(c, 0, dtype_in(c, 0), rank, sizes);
}

/* ---- windows ------------------------------------------------------------------------------------------------------------- */

typedef struct window {
    int dims;
    bool is_known; /* pads, or auto_pad */
    const char *auto_pad;
    int64_t kernel[FB_ONNX_RANK], strides[FB_ONNX_RANK], dilations[FB_ONNX_RANK], begin[FB_ONNX_RANK], end[FB_ONNX_RANK];
} window;

static bool ints_of(fb_onnx_call *c, const char *name, int dims, int64_t fallback, int64_t *out) {
    int64_t found[FB_ONNX_ELEMENTS];
    int count = fb_onnx_ints(c, name, found);
    for (int i = 0; i < dims; i++) out[i] = count >= 0 && i < count ? found[i] : fallback;
    return count < 0 || count == dims;
}

static bool read_window(fb_onnx_call *c, int dims, const type *weight, window *w) {
    int64_t pads[FB_ONNX_ELEMENTS];
    *w = (window){.dims = dims, .auto_pad = fb_onnx_text(c, "auto_pad", "NOTSET")};
    bool is_padded = strcmp(w->auto_pad, "VALID") != 0;
    if (dims < 1 || dims > FB_ONNX_RANK / 2) return false;
    bool ok = ints_of(c, "kernel_shape", dims, 0, w->kernel) && ints_of(c, "strides", dims, 1, w->strides) &&
              ints_of(c, "dilations", dims, 1, w->dilations) && ints_of(c, "pads", 2 * dims, 0, pads);
    for (int i = 0; i < dims && ok; i++) {
        w->begin[i] = is_padded ? pads[i] : 0;
        w->end[i] = is_padded ? pads[dims + i] : 0;
        bool is_here = w->kernel[i] > 0 ||
                       (weight && weight->rank == dims + 2 && fb_size_is_number(c->sizes, weight->sizes[i + 2], &w->kernel[i]));
        ok = is_here && w->strides[i] > 0 && w->dilations[i] > 0;
    }
    return ok;
}

static bool is_same_padded(const window *w) {
    return strncmp(w->auto_pad, "SAME", 4) == 0;
}

/* How many steps a window takes along one dimension. */
static size steps(fb_onnx_call *c, const window *w, int i, size in, bool is_ceil) {
    int64_t reach = (w->kernel[i] - 1) * w->dilations[i] + 1, pads = w->begin[i] + w->end[i], x;
    if (is_same_padded(w)) return fb_size_ceil_div(c->sizes, in, number(c, w->strides[i]));
    size span = fb_size_add(c->sizes, in, number(c, pads - reach)), stride = number(c, w->strides[i]);
    if (!is_ceil) return fb_size_add(c->sizes, fb_size_floor_div(c->sizes, span, stride), number(c, 1));
    if (!fb_size_is_number(c->sizes, in, &x)) return w->strides[i] == 1 ? fb_size_add(c->sizes, span, number(c, 1)) : 0;
    int64_t count = (x + pads - reach + w->strides[i] - 1) / w->strides[i] + 1;
    if ((count - 1) * w->strides[i] >= x + w->begin[i]) count--; /* the last one would begin in the padding */
    return number(c, count);
}

static void give_windows(fb_onnx_call *c, fb_dtype dtype, const type *weight, bool is_conv, bool is_ceil) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[FB_ONNX_RANK];
    window w;
    int dims = x->rank >= 0 ? x->rank - 2 : weight && weight->rank >= 0 ? weight->rank - 2 : 0;
    fb_onnx_give_dtype(c, 0, dtype);
    if (x->rank < 3 || (is_conv && weight->rank != x->rank)) return;
    bool is_known = read_window(c, dims, weight, &w);
    sizes[0] = x->sizes[0];
    sizes[1] = is_conv ? weight->sizes[0] : x->sizes[1];
    for (int i = 0; i < dims; i++) { /* libraries pad otherwise for a pool with dilations */
        bool is_clear = is_known && (is_conv || !is_same_padded(&w) || w.dilations[i] == 1);
        sizes[i + 2] = is_clear ? steps(c, &w, i, x->sizes[i + 2], is_ceil) : 0;
    }
    fb_onnx_give(c, 0, dtype, x->rank, sizes);
}

SHAPE(conv) {
    give_windows(c, dtype_in(c, 0), fb_onnx_in(c, 1), true, false);
}

SHAPE(conv_integer) {
    give_windows(c, FB_INT32, fb_onnx_in(c, 1), true, false);
}

SHAPE(conv_quantised) {
    give_windows(c, dtype_in(c, 7), fb_onnx_in(c, 3), true, false);
}

SHAPE(deform_conv) {
    give_windows(c, dtype_in(c, 0), fb_onnx_in(c, 1), true, false);
}

SHAPE(pool) {
    give_windows(c, dtype_in(c, 0), NULL, false, fb_onnx_int(c, "ceil_mode", 0) != 0);
    if (c->wanted > 1 && c->results[0].rank >= 0) fb_onnx_give(c, 1, FB_INT64, c->results[0].rank, c->results[0].sizes);
    else fb_onnx_give_dtype(c, 1, FB_INT64);
}

SHAPE(global_pool) {
    const type *x = fb_onnx_in(c, 0);
    size ones[FB_ONNX_RANK];
    for (int i = 0; i < FB_ONNX_RANK; i++) ones[i] = number(c, 1);
    give_with(c, 0, x->dtype, x, 2, ones, FB_ONNX_RANK);
}

SHAPE(conv_transpose) {
    const type *x = fb_onnx_in(c, 0), *weight = fb_onnx_in(c, 1);
    size sizes[FB_ONNX_RANK];
    window w;
    int64_t extra[FB_ONNX_ELEMENTS], wanted[FB_ONNX_ELEMENTS];
    int dims = x->rank - 2;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 3 || weight->rank != x->rank) return;
    bool is_known = read_window(c, dims, weight, &w) && ints_of(c, "output_padding", dims, 0, extra);
    int count = fb_onnx_ints(c, "output_shape", wanted);
    sizes[0] = x->sizes[0];
    sizes[1] = fb_size_mul(c->sizes, weight->sizes[1], number(c, fb_onnx_int(c, "group", 1)));
    for (int i = 0; i < dims; i++) {
        if (count >= dims) sizes[i + 2] = number(c, wanted[count - dims + i]);
        else if (!is_known) sizes[i + 2] = 0;
        else {
            int64_t rest = extra[i] + (w.kernel[i] - 1) * w.dilations[i] + 1 - w.strides[i];
            bool is_same = is_same_padded(&w); /* where there is more to take away; else libraries differ */
            if (is_same && rest < 0) {
                sizes[i + 2] = 0;
                continue;
            }
            rest = is_same ? 0 : rest - w.begin[i] - w.end[i];
            sizes[i + 2] =
                fb_size_add(c->sizes, fb_size_mul(c->sizes, x->sizes[i + 2], number(c, w.strides[i])), number(c, rest));
        }
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(max_unpool) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[FB_ONNX_RANK];
    window w;
    fb_onnx_list wanted = fb_onnx_list_of(c, "output_shape", 2);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 3) return;
    bool is_known = read_window(c, x->rank - 2, NULL, &w);
    memcpy(sizes, x->sizes, 2 * sizeof *sizes);
    for (int i = 2; i < x->rank; i++) {
        sizes[i] = 0;
        if (wanted.is_given && wanted.is_known && wanted.count == (uint32_t)x->rank && wanted.items[i].kind == FB_ONNX_INT)
            sizes[i] = wanted.items[i].integer;
        else if (!wanted.is_given && is_known)
            sizes[i] = fb_size_add(
                c->sizes, fb_size_mul(c->sizes, fb_size_sub(c->sizes, x->sizes[i], number(c, 1)), number(c, w.strides[i - 2])),
                number(c, w.kernel[i - 2] - w.begin[i - 2] - w.end[i - 2]));
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(causal_conv) {
    const type *x = fb_onnx_in(c, 0), *weight = fb_onnx_in(c, 1);
    fb_onnx_give_same(c, 0, x->dtype, x);
    fb_onnx_give_dtype(c, 1, x->dtype);
    if (x->rank != 3 || weight->rank != 3) return;
    size sizes[] = {x->sizes[0], x->sizes[1], fb_size_sub(c->sizes, weight->sizes[2], number(c, 1))};
    fb_onnx_give(c, 1, x->dtype, 3, sizes);
}

/* ---- where elements are -------------------------------------------------------------------------------------------------- */

SHAPE(transpose) {
    const type *x = fb_onnx_in(c, 0);
    int64_t perm[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    int count = fb_onnx_ints(c, "perm", perm), axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0 || (count >= 0 && count != x->rank)) return;
    for (int i = 0; i < x->rank; i++) {
        if (count >= 0 && !axis_of(perm[i], x->rank, &axis)) return;
        sizes[i] = x->sizes[count >= 0 ? axis : x->rank - 1 - i];
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

/* The size that -1 stands for: what is left of `all` beside the others. */
static size rest_of(fb_onnx_call *c, const type *x, size *sizes, int count, int open, const bool *is_copied) {
    size left = number(c, 1), right = left;
    for (int i = 0; i < x->rank; i++)
        if (!(i < count && is_copied[i])) left = fb_size_mul(c->sizes, left, x->sizes[i]);
    for (int i = 0; i < count; i++)
        if (i != open && !is_copied[i]) right = fb_size_mul(c->sizes, right, sizes[i]);
    return fb_size_div(c->sizes, left, right);
}

SHAPE(reshape) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list wanted = fb_onnx_list_of(c, "shape", 1);
    size sizes[FB_ONNX_RANK];
    bool is_copied[FB_ONNX_RANK] = {false}, may_be_open = false, is_zero_kept = fb_onnx_int(c, "allowzero", 0) != 0;
    int open = -1, unclear = -1, unclear_count = 0;
    int64_t of;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (!wanted.is_known || wanted.count > FB_ONNX_RANK) return;
    for (int i = 0; i < (int)wanted.count; i++) {
        const element *e = &wanted.items[i];
        sizes[i] = e->kind == FB_ONNX_INT ? e->integer : 0;
        if (!fb_size_is_number(c->sizes, sizes[i], &of) && !fb_size_is_plain(c->sizes, sizes[i])) sizes[i] = 0; /* or -1 */
        if (!sizes[i]) unclear = i, unclear_count++;
        if (fb_size_is_number(c->sizes, sizes[i], &of) && of == -1) open = i;
        /* A symbol that is 0 at run time copies a size, which then is not 0 perhaps: sizes of tensors that have no elements. */
        bool copies = fb_size_is_number(c->sizes, sizes[i], &of) && of == 0 && !is_zero_kept;
        if (copies) sizes[i] = i < x->rank ? x->sizes[i] : 0, is_copied[i] = i < x->rank;
        may_be_open |= copies && i >= x->rank;
    }
    if (open >= 0) sizes[open] = 0;
    if (open >= 0 && !unclear_count && !may_be_open && x->rank >= 0)
        sizes[open] = rest_of(c, x, sizes, (int)wanted.count, open, is_copied);
    /* One that is not known, beside none that is open: what is left, or -1, which is the same. */
    if (open < 0 && unclear_count == 1 && !may_be_open && x->rank >= 0 && !is_zero_kept) {
        size rest = rest_of(c, x, sizes, (int)wanted.count, unclear, is_copied);
        int64_t whole;
        if (fb_size_is_number(c->sizes, rest, &whole) && whole > 0) sizes[unclear] = rest;
    }
    fb_onnx_give(c, 0, x->dtype, (int)wanted.count, sizes);
}

SHAPE(flatten) {
    const type *x = fb_onnx_in(c, 0);
    int64_t axis = fb_onnx_int(c, "axis", 1);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0 || axis < -x->rank || axis > x->rank) {
        fb_onnx_give(c, 0, x->dtype, 2, (size[]){0, 0});
        return;
    }
    int at = (int)(axis < 0 ? axis + x->rank : axis);
    size sizes[] = {product_of(c, x->sizes, 0, at), product_of(c, x->sizes, at, x->rank)};
    fb_onnx_give(c, 0, x->dtype, 2, sizes);
}

SHAPE(unsqueeze) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list axes = fb_onnx_list_of(c, "axes", 1);
    int64_t found[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    bool is_new[FB_ONNX_RANK] = {false};
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0 || !axes.is_known || x->rank + (int)axes.count > FB_ONNX_RANK) return;
    int rank = x->rank + (int)axes.count, axis, at = 0;
    bool is_clear = fb_onnx_all_ints(c, &axes, found);
    for (uint32_t i = 0; i < axes.count && is_clear; i++) {
        if (!axis_of(found[i], rank, &axis) || is_new[axis]) return;
        is_new[axis] = true;
    }
    for (int i = 0; i < rank; i++) sizes[i] = !is_clear ? 0 : is_new[i] ? number(c, 1) : x->sizes[at++];
    fb_onnx_give(c, 0, x->dtype, rank, sizes);
}

SHAPE(squeeze) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list axes = fb_onnx_list_of(c, "axes", 1);
    int64_t found[FB_ONNX_ELEMENTS], of;
    size sizes[FB_ONNX_RANK];
    bool goes[FB_ONNX_RANK] = {false};
    int rank = 0, axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    for (int i = 0; i < x->rank && !axes.is_given; i++) {
        if (!fb_size_is_number(c->sizes, x->sizes[i], &of)) return;
        goes[i] = of == 1;
    }
    if (axes.is_given && !fb_onnx_all_ints(c, &axes, found)) return;
    for (uint32_t i = 0; i < axes.count && axes.is_given; i++) {
        if (!axis_of(found[i], x->rank, &axis)) return;
        goes[axis] = true;
    }
    for (int i = 0; i < x->rank; i++)
        if (!goes[i]) sizes[rank++] = x->sizes[i];
    fb_onnx_give(c, 0, x->dtype, rank, sizes);
}

SHAPE(concat) {
    const type *first = fb_onnx_in(c, 0);
    size sizes[FB_ONNX_RANK];
    int axis, rank = -1;
    fb_onnx_give_dtype(c, 0, first->dtype);
    for (uint32_t i = 0; i < fb_onnx_inputs(c); i++)
        if (fb_onnx_in(c, i)->rank > rank) rank = fb_onnx_in(c, i)->rank;
    if (rank < 1 || !axis_of(fb_onnx_int(c, "axis", 1), rank, &axis)) return;
    for (int k = 0; k < rank; k++) sizes[k] = k == axis ? number(c, 0) : 0;
    for (uint32_t i = 0; i < fb_onnx_inputs(c); i++) {
        const type *x = fb_onnx_in(c, i);
        int64_t of;
        for (int k = 0; k < rank && x->rank == rank; k++)
            if (k != axis && (!sizes[k] || fb_size_is_number(c->sizes, x->sizes[k], &of))) sizes[k] = x->sizes[k];
        sizes[axis] = x->rank == rank ? fb_size_add(c->sizes, sizes[axis], x->sizes[axis]) : 0;
        if (!sizes[axis] && i + 1 < fb_onnx_inputs(c)) sizes[axis] = fb_size_fresh(c->sizes);
    }
    fb_onnx_give(c, 0, first->dtype, rank, sizes);
}

SHAPE(split) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list parts = fb_onnx_list_of(c, "split", 1);
    int64_t all;
    int axis = 0;
    bool is_known = x->rank > 0 && axis_of(fb_onnx_int(c, "axis", 0), x->rank, &axis);
    int64_t count = fb_onnx_int(c, "num_outputs", c->wanted);
    for (uint32_t i = 0; i < c->wanted; i++) {
        size part = 0;
        fb_onnx_give_dtype(c, i, x->dtype);
        if (!is_known) continue;
        if (parts.is_given) {
            bool is_it = parts.is_known && i < parts.count && parts.items[i].kind == FB_ONNX_INT;
            part = is_it ? parts.items[i].integer : 0;
        } else if (fb_size_is_number(c->sizes, x->sizes[axis], &all) && count > 0) {
            int64_t each = (all + count - 1) / count;
            int64_t left = all - each * (int64_t)i;
            part = number(c, left < each ? (left > 0 ? left : 0) : each);
        } else if (count == 1) {
            part = x->sizes[axis];
        } else if (c->version < 18) { /* equal parts */
            part = fb_size_div(c->sizes, x->sizes[axis], number(c, count));
        }
        give_with(c, i, x->dtype, x, axis, &part, 1);
    }
}

/* The size of one dimension after a slice. */
static size sliced(fb_onnx_call *c, size all, const element *start, const element *end, int64_t step) {
    int64_t n, from, to;
    bool is_counted = fb_size_is_number(c->sizes, all, &n);
    bool has_from = start->kind == FB_ONNX_INT && fb_size_is_number(c->sizes, start->integer, &from);
    bool has_to = end->kind == FB_ONNX_INT && fb_size_is_number(c->sizes, end->integer, &to);
    if (!step) return 0;
    if (is_counted && n == 0) return all;
    /* Backwards, libraries differ in what begins before the first element, or ends at the largest integer. */
    bool is_unclear = (has_from && is_counted && from < -n) || (has_to && (to == INT32_MAX || to == INT64_MAX));
    if (step < 0 && is_unclear) return 0;
    if (is_counted && has_from && has_to) {
        int64_t lowest = step < 0 ? -1 : 0, highest = step < 0 ? n - 1 : n;
        if (from < 0) from = from < -n ? -1 : from + n;
        if (to < 0) to = to < -n ? -1 : to + n;
        from = from < 0 ? 0 : from > (step < 0 ? n - 1 : n) ? (step < 0 ? n - 1 : n) : from;
        to = to < lowest ? lowest : to > highest ? highest : to;
        if (step < 0 && to > n - 1) to = n - 1;
        if (step > 0 ? to <= from : to >= from) return number(c, 0);
        uint64_t span = step > 0 ? (uint64_t)(to - from) : (uint64_t)(from - to);
        uint64_t stride = step > 0 ? (uint64_t)step : (uint64_t)0 - (uint64_t)step;
        return number(c, (int64_t)((span - 1) / stride + 1));
    }
    if (is_counted && n == 1 && has_from && step > 0 && has_to && from <= 0 && to >= 1) return all;
    if (is_counted) return 0;
    /* All of it, from 0 to far behind or to its own size. */
    bool is_end = (has_to && to >= INT32_MAX) || (end->kind == FB_ONNX_INT && end->integer == all);
    if (step == 1 && has_from && from == 0 && is_end) return all;
    return 0;
}

SHAPE(slice) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list starts = fb_onnx_list_of(c, "starts", 1), ends = fb_onnx_list_of(c, "ends", 2);
    fb_onnx_list axes = fb_onnx_list_of(c, "axes", 3),
                 steps_of = c->version < 10 ? (fb_onnx_list){0} : fb_onnx_list_of(c, "steps", 4);
    int64_t at[FB_ONNX_ELEMENTS], by[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
    bool has_axes = !axes.is_given || fb_onnx_all_ints(c, &axes, at);
    bool is_counted = starts.is_known && ends.is_known && starts.count == ends.count &&
                      (!axes.is_given || (axes.is_known && axes.count == starts.count)) && starts.count <= (uint32_t)x->rank;
    if (!has_axes || !is_counted) {
        if (!(axes.is_given && has_axes))
            for (int i = 0; i < x->rank; i++) sizes[i] = 0;
        int axis;
        for (uint32_t k = 0; axes.is_given && has_axes && k < axes.count; k++)
            if (axis_of(at[k], x->rank, &axis)) sizes[axis] = 0;
        fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
        return;
    }
    bool has_steps = !steps_of.is_given || (fb_onnx_all_ints(c, &steps_of, by) && steps_of.count == starts.count);
    for (uint32_t k = 0; k < starts.count; k++) {
        int axis;
        if (!axis_of(axes.is_given ? at[k] : (int64_t)k, x->rank, &axis)) return;
        sizes[axis] = has_steps ? sliced(c, sizes[axis], &starts.items[k], &ends.items[k], steps_of.is_given ? by[k] : 1) : 0;
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(gather) {
    const type *x = fb_onnx_in(c, 0), *at = fb_onnx_in(c, 1);
    size sizes[FB_ONNX_RANK];
    int axis, rank = 0;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 1 || at->rank < 0 || x->rank + at->rank - 1 > FB_ONNX_RANK ||
        !axis_of(fb_onnx_int(c, "axis", 0), x->rank, &axis))
        return;
    for (int i = 0; i < axis; i++) sizes[rank++] = x->sizes[i];
    for (int i = 0; i < at->rank; i++) sizes[rank++] = at->sizes[i];
    for (int i = axis + 1; i < x->rank; i++) sizes[rank++] = x->sizes[i];
    fb_onnx_give(c, 0, x->dtype, rank, sizes);
}

SHAPE(gather_elements) {
    fb_onnx_give_same(c, 0, dtype_in(c, 0), fb_onnx_in(c, 1));
}

SHAPE(gather_nd) {
    const type *x = fb_onnx_in(c, 0), *at = fb_onnx_in(c, 1);
    size sizes[FB_ONNX_RANK];
    int64_t last, batch = fb_onnx_int(c, "batch_dims", 0);
    int rank = 0;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 1 || at->rank < 1 || !fb_size_is_number(c->sizes, at->sizes[at->rank - 1], &last)) return;
    if (last < 0 || batch < 0 || last + batch > x->rank || at->rank + x->rank > FB_ONNX_RANK) return;
    for (int i = 0; i < at->rank - 1; i++) sizes[rank++] = at->sizes[i];
    for (int i = (int)(last + batch); i < x->rank; i++) sizes[rank++] = x->sizes[i];
    fb_onnx_give(c, 0, x->dtype, rank, sizes);
}

SHAPE(expand) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list wanted = fb_onnx_list_of(c, "shape", 1);
    size sizes[FB_ONNX_RANK], asked[FB_ONNX_RANK];
    type all;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (!wanted.is_known || wanted.count > FB_ONNX_RANK) return;
    for (uint32_t i = 0; i < wanted.count; i++) {
        bool is_it = wanted.items[i].kind == FB_ONNX_INT && wanted.items[i].integer;
        asked[i] = is_it ? wanted.items[i].integer : fb_size_fresh(c->sizes);
    }
    if (broadcast(c, x, &(type){.rank = (int)wanted.count, .sizes = asked}, &all, sizes))
        fb_onnx_give(c, 0, x->dtype, all.rank, sizes);
}

SHAPE(tile) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list by = fb_onnx_list_of(c, "repeats", 1);
    size sizes[FB_ONNX_RANK];
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    bool is_known = by.is_known && by.count == (uint32_t)x->rank;
    for (int i = 0; i < x->rank; i++)
        sizes[i] = is_known && by.items[i].kind == FB_ONNX_INT ? fb_size_mul(c->sizes, x->sizes[i], by.items[i].integer) : 0;
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(pad) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list pads = fb_onnx_list_of(c, "pads", 1),
                 axes = c->version < 18 ? (fb_onnx_list){0} : fb_onnx_list_of(c, "axes", 3);
    int64_t at[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    int axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
    uint32_t count = axes.is_given ? axes.count : (uint32_t)x->rank;
    bool is_known = pads.is_known && pads.count == 2 * count && (!axes.is_given || fb_onnx_all_ints(c, &axes, at));
    for (int i = 0; i < x->rank && !is_known; i++) sizes[i] = 0;
    for (uint32_t k = 0; k < count && is_known; k++) {
        if (!axis_of(axes.is_given ? at[k] : (int64_t)k, x->rank, &axis)) return;
        const element *begin = &pads.items[k], *end = &pads.items[count + k];
        bool are_ints = begin->kind == FB_ONNX_INT && end->kind == FB_ONNX_INT;
        size both = are_ints ? fb_size_add(c->sizes, begin->integer, end->integer) : 0;
        sizes[axis] = fb_size_add(c->sizes, sizes[axis], both);
        if (!sizes[axis]) sizes[axis] = fb_size_fresh(c->sizes);
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(center_crop_pad) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list wanted = fb_onnx_list_of(c, "shape", 1);
    int64_t at[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    int count = fb_onnx_ints(c, "axes", at), axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
    for (int i = 0; i < (count < 0 ? x->rank : count); i++) {
        if (!axis_of(count < 0 ? i : at[i], x->rank, &axis)) return;
        bool is_it = wanted.is_known && (uint32_t)i < wanted.count && wanted.items[i].kind == FB_ONNX_INT;
        sizes[axis] = is_it ? wanted.items[i].integer : 0;
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

static void give_blocks(fb_onnx_call *c, bool is_to_space) {
    const type *x = fb_onnx_in(c, 0);
    int64_t block = fb_onnx_int(c, "blocksize", 0);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank != 4 || block <= 0 || block > INT32_MAX) return;
    size by = number(c, block), area = number(c, block * block), sizes[4] = {x->sizes[0]};
    sizes[1] = is_to_space ? fb_size_div(c->sizes, x->sizes[1], area) : fb_size_mul(c->sizes, x->sizes[1], area);
    for (int i = 2; i < 4; i++)
        sizes[i] = is_to_space ? fb_size_mul(c->sizes, x->sizes[i], by) : fb_size_div(c->sizes, x->sizes[i], by);
    fb_onnx_give(c, 0, x->dtype, 4, sizes);
}

SHAPE(depth_to_space) {
    give_blocks(c, true);
}

SHAPE(space_to_depth) {
    give_blocks(c, false);
}

SHAPE(one_hot) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list depth = fb_onnx_list_of(c, "depth", 1);
    fb_dtype dtype = dtype_in(c, 2);
    size sizes[FB_ONNX_RANK];
    int axis, at = 0;
    fb_onnx_give_dtype(c, 0, dtype);
    if (x->rank < 0 || x->rank + 1 > FB_ONNX_RANK || !axis_of(fb_onnx_int(c, "axis", -1), x->rank + 1, &axis)) return;
    bool is_it = depth.is_known && depth.count == 1 && depth.items[0].kind == FB_ONNX_INT;
    for (int i = 0; i <= x->rank; i++) sizes[i] = i == axis ? (is_it ? depth.items[0].integer : 0) : x->sizes[at++];
    fb_onnx_give(c, 0, dtype, x->rank + 1, sizes);
}

SHAPE(compress) {
    const type *x = fb_onnx_in(c, 0);
    int axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (!fb_onnx_attribute(c, "axis").id) fb_onnx_give(c, 0, x->dtype, 1, (size[]){0});
    else if (x->rank > 0 && axis_of(fb_onnx_int(c, "axis", 0), x->rank, &axis))
        give_with(c, 0, x->dtype, x, axis, (size[]){0}, 1);
}

SHAPE(nonzero) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[] = {x->rank >= 0 ? number(c, x->rank) : 0, 0};
    if (x->rank == 0) sizes[0] = 0; /* libraries differ */
    fb_onnx_give(c, 0, FB_INT64, 2, sizes);
}

SHAPE(unique) {
    const type *x = fb_onnx_in(c, 0);
    size count = fb_size_fresh(c->sizes);
    int axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    for (uint32_t i = 1; i < 4; i++) fb_onnx_give(c, i, FB_INT64, 1, i == 2 ? (size[]){0} : &count);
    if (!fb_onnx_attribute(c, "axis").id) {
        fb_onnx_give(c, 0, x->dtype, 1, &count);
        if (x->rank >= 0) fb_onnx_give(c, 2, FB_INT64, 1, (size[]){product_of(c, x->sizes, 0, x->rank)});
    } else if (x->rank > 0 && axis_of(fb_onnx_int(c, "axis", 0), x->rank, &axis)) {
        give_with(c, 0, x->dtype, x, axis, &count, 1);
        fb_onnx_give(c, 2, FB_INT64, 1, &x->sizes[axis]);
    }
}

/* ---- reductions ---------------------------------------------------------------------------------------------------------- */

static void give_reduced(fb_onnx_call *c, fb_dtype dtype, const bool *goes) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[FB_ONNX_RANK];
    bool keeps = fb_onnx_int(c, "keepdims", 1) != 0;
    int rank = 0;
    for (int i = 0; i < x->rank; i++)
        if (!goes[i] || keeps) sizes[rank++] = goes[i] ? number(c, 1) : x->sizes[i];
    fb_onnx_give(c, 0, dtype, rank, sizes);
}

SHAPE(reduce) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list axes = fb_onnx_list_of(c, "axes", 1);
    int64_t at[FB_ONNX_ELEMENTS];
    bool goes[FB_ONNX_RANK] = {false};
    bool is_nothing = !axes.is_given || (axes.is_known && !axes.count);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    if (!is_nothing && !fb_onnx_all_ints(c, &axes, at)) {
        size sizes[FB_ONNX_RANK] = {0};
        if (fb_onnx_int(c, "keepdims", 1)) fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
        return;
    }
    bool is_all = is_nothing && !fb_onnx_int(c, "noop_with_empty_axes", 0);
    for (int i = 0; i < x->rank; i++) goes[i] = is_all;
    for (uint32_t k = 0; k < axes.count && !is_nothing; k++) {
        int axis;
        if (!axis_of(at[k], x->rank, &axis)) return;
        goes[axis] = true;
    }
    give_reduced(c, x->dtype, goes);
}

SHAPE(arg) {
    const type *x = fb_onnx_in(c, 0);
    bool goes[FB_ONNX_RANK] = {false};
    int axis;
    fb_onnx_give_dtype(c, 0, FB_INT64);
    if (x->rank < 1 || !axis_of(fb_onnx_int(c, "axis", 0), x->rank, &axis)) return;
    goes[axis] = true;
    give_reduced(c, FB_INT64, goes);
}

SHAPE(topk) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list k = fb_onnx_list_of(c, "k", 1);
    int axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    fb_onnx_give_dtype(c, 1, FB_INT64);
    if (x->rank < 1 || !axis_of(fb_onnx_int(c, "axis", -1), x->rank, &axis)) return;
    size count = k.is_known && k.count == 1 && k.items[0].kind == FB_ONNX_INT ? k.items[0].integer : 0;
    if (!count) count = fb_size_fresh(c->sizes);
    give_with(c, 0, x->dtype, x, axis, &count, 1);
    give_with(c, 1, FB_INT64, x, axis, &count, 1);
}

/* ---- made of nothing ----------------------------------------------------------------------------------------------------- */

static const type *tensor_attribute(fb_onnx_call *c, const char *name) {
    fb_value value = fb_onnx_attribute(c, name);
    fb_node node = fb_value_node(c->graph, value);
    return node.id ? fb_onnx_type_of(c->types, node) : NULL;
}

SHAPE(constant) {
    static const struct {
        const char *name;
        fb_dtype dtype;
        bool is_list;
    } forms[] = {{"value_int", FB_INT64, false}, {"value_float", FB_FLOAT32, false}, {"value_string", 0, false},
                 {"value_ints", FB_INT64, true}, {"value_floats", FB_FLOAT32, true}, {"value_strings", 0, true}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        fb_value value = fb_onnx_attribute(c, forms[i].name);
        if (!value.id) continue;
        size count = number(c, fb_value_at(c->graph, value)->count);
        fb_onnx_give(c, 0, forms[i].dtype, forms[i].is_list, &count);
    }
    const type *tensor = tensor_attribute(c, "value"); /* of one with inputs, which a graph reads as a call */
    if (tensor) c->results[0] = *tensor;
}

SHAPE(constant_of_shape) {
    fb_onnx_list wanted = fb_onnx_list_of(c, "input", 0);
    const type *of = tensor_attribute(c, "value");
    fb_dtype dtype = of ? of->dtype : fb_onnx_attribute(c, "value").id ? FB_DTYPE_UNKNOWN : FB_FLOAT32;
    size sizes[FB_ONNX_RANK];
    fb_onnx_give_dtype(c, 0, dtype);
    if (!wanted.is_known || wanted.count > FB_ONNX_RANK) return;
    for (uint32_t i = 0; i < wanted.count; i++) sizes[i] = wanted.items[i].kind == FB_ONNX_INT ? wanted.items[i].integer : 0;
    fb_onnx_give(c, 0, dtype, (int)wanted.count, sizes);
}

/* How many numbers a Range has. */
static size range_count(fb_onnx_call *c) {
    const element *of[3];
    for (uint32_t i = 0; i < 3; i++) {
        const type *x = fb_onnx_in(c, i);
        if (!x->elements || x->count != 1 || !x->elements[0].kind) return 0;
        of[i] = &x->elements[0];
    }
    int64_t step;
    if (of[0]->kind == FB_ONNX_INT && of[1]->kind == FB_ONNX_INT && of[2]->kind == FB_ONNX_INT) {
        int64_t from, to;
        if (!fb_size_is_number(c->sizes, of[2]->integer, &step) || !step) return 0;
        bool is_known = fb_size_is_number(c->sizes, of[0]->integer, &from) && fb_size_is_number(c->sizes, of[1]->integer, &to);
        if (is_known && (step > 0 ? to <= from : to >= from)) return number(c, 0);
        if (is_known && from > -((int64_t)1 << 60) && from < (int64_t)1 << 60 && to > -((int64_t)1 << 60) &&
            to < (int64_t)1 << 60 && step > INT32_MIN && step < INT32_MAX)
            return number(c, step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step);
        /* From 0 to a size: as many as that. */
        return step == 1 && fb_size_is(c->sizes, of[0]->integer, 0) && fb_size_name(c->sizes, of[1]->integer) ? of[1]->integer
                                                                                                              : 0;
    }
    if (of[0]->kind != FB_ONNX_REAL || of[1]->kind != FB_ONNX_REAL || of[2]->kind != FB_ONNX_REAL || of[2]->real == 0) return 0;
    double span = of[1]->real - of[0]->real, count = ceil(span / of[2]->real);
    float single = (float)span / (float)of[2]->real; /* as ONNX Runtime, whose count may be another */
    if (dtype_in(c, 0) == FB_FLOAT32 && ((double)ceilf(single) != count || ceil((double)(float)span / of[2]->real) != count))
        return 0;
    return isfinite(count) && count < 1e9 ? number(c, count > 0 ? (int64_t)count : 0) : 0;
}

SHAPE(range) {
    size count = range_count(c);
    fb_onnx_give(c, 0, dtype_in(c, 0), 1, &count);
}

SHAPE(random) {
    int64_t shape[FB_ONNX_ELEMENTS];
    size sizes[FB_ONNX_RANK];
    int count = fb_onnx_ints(c, "shape", shape);
    fb_dtype dtype = dtype_attribute(c, "dtype", FB_FLOAT32);
    fb_onnx_give_dtype(c, 0, dtype);
    if (count < 0 || count > FB_ONNX_RANK) return;
    for (int i = 0; i < count; i++) sizes[i] = number(c, shape[i]);
    fb_onnx_give(c, 0, dtype, count, sizes);
}

SHAPE(multinomial) {
    const type *x = fb_onnx_in(c, 0);
    size sizes[] = {x->rank == 2 ? x->sizes[0] : 0, number(c, fb_onnx_int(c, "sample_size", 1))};
    fb_onnx_give(c, 0, dtype_attribute(c, "dtype", FB_INT32), 2, sizes);
}

SHAPE(window) {
    const type *x = fb_onnx_in(c, 0);
    size count = x->elements && x->count == 1 && x->elements[0].kind == FB_ONNX_INT ? x->elements[0].integer : 0;
    fb_onnx_give(c, 0, dtype_attribute(c, "output_datatype", FB_FLOAT32), 1, &count);
}

static size element_in(fb_onnx_call *c, uint32_t index) {
    const type *x = fb_onnx_in(c, index);
    return x->elements && x->count == 1 && x->elements[0].kind == FB_ONNX_INT ? x->elements[0].integer : 0;
}

SHAPE(mel) {
    size half = fb_size_floor_div(c->sizes, element_in(c, 1), number(c, 2));
    size sizes[] = {fb_size_add(c->sizes, half, number(c, 1)), element_in(c, 0)};
    fb_onnx_give(c, 0, dtype_attribute(c, "output_datatype", FB_FLOAT32), 2, sizes);
}

/* ---- sizes as values ----------------------------------------------------------------------------------------------------- */

static bool ends_of_shape(fb_onnx_call *c, const type *x, int *from, int *to) {
    int64_t start = fb_onnx_int(c, "start", 0), end = fb_onnx_int(c, "end", x->rank);
    if (x->rank < 0) return false;
    if (start < 0) start += x->rank;
    if (end < 0) end += x->rank;
    *from = (int)(start < 0 ? 0 : start > x->rank ? x->rank : start);
    *to = (int)(end < 0 ? 0 : end > x->rank ? x->rank : end);
    if (*to < *from) *to = *from;
    return true;
}

SHAPE(shape) {
    const type *x = fb_onnx_in(c, 0);
    int from = 0, to = 0;
    uint32_t count;
    size length = 0;
    if (ends_of_shape(c, x, &from, &to)) length = number(c, to - from);
    fb_onnx_give(c, 0, FB_INT64, 1, &length);
    element *made = length ? fb_onnx_elements(c, 0, &count) : NULL;
    for (uint32_t i = 0; made && i < count; i++) made[i] = (element){.kind = FB_ONNX_INT, .integer = x->sizes[from + (int)i]};
}

SHAPE(size) {
    const type *x = fb_onnx_in(c, 0);
    uint32_t count;
    fb_onnx_give(c, 0, FB_INT64, 0, NULL);
    element *made = x->rank >= 0 ? fb_onnx_elements(c, 0, &count) : NULL;
    size all = made ? product_of(c, x->sizes, 0, x->rank) : 0;
    if (all) made[0] = (element){.kind = FB_ONNX_INT, .integer = all};
}

SHAPE(scalar_int64) {
    fb_onnx_give(c, 0, FB_INT64, 0, NULL);
}

SHAPE(scalar_bool) {
    fb_onnx_give(c, 0, FB_BOOL, 0, NULL);
}

/* ---- images -------------------------------------------------------------------------------------------------------------- */

SHAPE(resize) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list scales = fb_onnx_list_of(c, "scales", c->version < 11 ? 1 : 2);
    fb_onnx_list wanted = c->version < 11 ? (fb_onnx_list){0} : fb_onnx_list_of(c, "sizes", 3);
    int64_t axes[FB_ONNX_ELEMENTS], of;
    size sizes[FB_ONNX_RANK];
    const char *policy = fb_onnx_text(c, "keep_aspect_ratio_policy", "stretch");
    int count = c->version >= 18 ? fb_onnx_ints(c, "axes", axes) : -1, axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 0) return;
    memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
    bool has_sizes = wanted.is_known && wanted.count > 0, has_scales = scales.is_known && scales.count > 0;
    for (int k = 0; k < (count >= 0 ? count : x->rank); k++) {
        if (!axis_of(count >= 0 ? axes[k] : k, x->rank, &axis)) return;
        size made = 0;
        if (has_sizes && strcmp(policy, "stretch") == 0 && (uint32_t)k < wanted.count && wanted.items[k].kind == FB_ONNX_INT)
            made = wanted.items[k].integer;
        else if (!wanted.is_given && has_scales && (uint32_t)k < scales.count && scales.items[k].kind == FB_ONNX_REAL) {
            double by = scales.items[k].real;
            if (fb_size_is_number(c->sizes, sizes[axis], &of) && of < 1 << 24 && by > 0 && by < 1e6)
                made = number(c, (int64_t)((float)of * (float)by)); /* as ONNX Runtime, in float */
            else if (by == 1) made = sizes[axis];
            else if (by == floor(by) && by > 0 && by < 1e6) made = fb_size_mul(c->sizes, sizes[axis], number(c, (int64_t)by));
        }
        sizes[axis] = made;
    }
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(grid_sample) {
    const type *x = fb_onnx_in(c, 0), *grid = fb_onnx_in(c, 1);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 3 || grid->rank != x->rank) return;
    size sizes[FB_ONNX_RANK];
    memcpy(sizes, x->sizes, 2 * sizeof *sizes);
    for (int i = 2; i < x->rank; i++) sizes[i] = grid->sizes[i - 1];
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(affine_grid) {
    fb_onnx_list wanted = fb_onnx_list_of(c, "size", 1);
    size sizes[FB_ONNX_RANK];
    fb_onnx_give_dtype(c, 0, dtype_in(c, 0));
    if (!wanted.is_known || wanted.count < 4 || wanted.count > 5) return;
    int rank = 0;
    for (uint32_t i = 0; i < wanted.count; i++)
        if (i != 1) sizes[rank++] = wanted.items[i].kind == FB_ONNX_INT ? wanted.items[i].integer : 0;
    sizes[rank++] = number(c, (int64_t)wanted.count - 2);
    fb_onnx_give(c, 0, dtype_in(c, 0), rank, sizes);
}

SHAPE(roi_align) {
    const type *x = fb_onnx_in(c, 0), *rois = fb_onnx_in(c, 1);
    size sizes[] = {rois->rank == 2 ? rois->sizes[0] : 0, x->rank == 4 ? x->sizes[1] : 0,
                    number(c, fb_onnx_int(c, "output_height", 1)), number(c, fb_onnx_int(c, "output_width", 1))};
    fb_onnx_give(c, 0, x->dtype, 4, sizes);
}

SHAPE(max_roi_pool) {
    const type *x = fb_onnx_in(c, 0), *rois = fb_onnx_in(c, 1);
    int64_t shape[FB_ONNX_ELEMENTS];
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (fb_onnx_ints(c, "pooled_shape", shape) != 2) return;
    size sizes[] = {rois->rank == 2 ? rois->sizes[0] : 0, x->rank == 4 ? x->sizes[1] : 0, number(c, shape[0]),
                    number(c, shape[1])};
    fb_onnx_give(c, 0, x->dtype, 4, sizes);
}

SHAPE(col2im) {
    const type *x = fb_onnx_in(c, 0);
    fb_onnx_list image = fb_onnx_list_of(c, "image_shape", 1), block = fb_onnx_list_of(c, "block_shape", 2);
    size sizes[FB_ONNX_RANK], all = number(c, 1);
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank != 3 || !image.is_known || !block.is_known || image.count != block.count || image.count + 2 > FB_ONNX_RANK)
        return;
    for (uint32_t i = 0; i < block.count; i++)
        all = block.items[i].kind == FB_ONNX_INT ? fb_size_mul(c->sizes, all, block.items[i].integer) : 0;
    sizes[0] = x->sizes[0];
    sizes[1] = all ? fb_size_div(c->sizes, x->sizes[1], all) : 0;
    for (uint32_t i = 0; i < image.count; i++) sizes[i + 2] = image.items[i].kind == FB_ONNX_INT ? image.items[i].integer : 0;
    fb_onnx_give(c, 0, x->dtype, (int)image.count + 2, sizes);
}

SHAPE(non_max_suppression) {
    fb_onnx_give(c, 0, FB_INT64, 2, (size[]){0, number(c, 3)});
}

/* ---- sequences in time --------------------------------------------------------------------------------------------------- */

SHAPE(recurrent) {
    const type *x = fb_onnx_in(c, 0);
    bool is_batch_first = fb_onnx_int(c, "layout", 0) != 0;
    bool is_both = strcmp(fb_onnx_text(c, "direction", "forward"), "bidirectional") == 0;
    int64_t hidden = fb_onnx_int(c, "hidden_size", -1);
    size ways = number(c, is_both ? 2 : 1), wide = hidden > 0 ? number(c, hidden) : 0;
    const type *r = fb_onnx_in(c, 2);
    if (!wide && r->rank == 3) wide = r->sizes[2];
    size length = x->rank == 3 ? x->sizes[is_batch_first] : 0, batch = x->rank == 3 ? x->sizes[!is_batch_first] : 0;
    if (!batch) batch = fb_size_fresh(c->sizes);
    if (!wide) wide = fb_size_fresh(c->sizes);
    fb_onnx_give(c, 0, x->dtype, 4, is_batch_first ? (size[]){batch, length, ways, wide} : (size[]){length, ways, batch, wide});
    for (uint32_t i = 1; i < 3; i++)
        fb_onnx_give(c, i, x->dtype, 3, is_batch_first ? (size[]){batch, ways, wide} : (size[]){ways, batch, wide});
}

/* The heads, and what each of them has, of a tensor (batch, heads, length, width), or (batch, length, heads * width). */
static bool read_heads(fb_onnx_call *c, uint32_t input, int64_t heads, size out[4]) {
    const type *x = fb_onnx_in(c, input);
    if (x->rank == 4) memcpy(out, x->sizes, 4 * sizeof *out);
    if (x->rank != 3 || heads <= 0) return x->rank == 4;
    out[0] = x->sizes[0];
    out[1] = number(c, heads);
    out[2] = x->sizes[1];
    out[3] = fb_size_div(c->sizes, x->sizes[2], out[1]);
    return true;
}

SHAPE(attention) {
    const type *q = fb_onnx_in(c, 0), *k = fb_onnx_in(c, 1), *v = fb_onnx_in(c, 2), *past = fb_onnx_in(c, 4);
    size of_q[4], of_k[4], of_v[4];
    for (uint32_t i = 0; i < 4; i++) fb_onnx_give_dtype(c, i, i == 1 ? k->dtype : i == 2 ? v->dtype : q->dtype);
    int64_t kv_heads = fb_onnx_int(c, "kv_num_heads", 0);
    bool is_known = read_heads(c, 0, fb_onnx_int(c, "q_num_heads", 0), of_q) && read_heads(c, 1, kv_heads, of_k) &&
                    read_heads(c, 2, kv_heads, of_v);
    if (!is_known) return;
    size wide = fb_size_mul(c->sizes, of_q[1], of_v[3]);
    if (q->rank == 4) fb_onnx_give(c, 0, q->dtype, 4, (size[]){of_q[0], of_q[1], of_q[2], of_v[3]});
    else fb_onnx_give(c, 0, q->dtype, 3, (size[]){of_q[0], of_q[2], wide});
    size all = !fb_onnx_has(c, 4) ? of_k[2] : past->rank == 4 ? fb_size_add(c->sizes, past->sizes[2], of_k[2]) : 0;
    if (!all) all = fb_size_fresh(c->sizes);
    fb_onnx_give(c, 1, k->dtype, 4, (size[]){of_k[0], of_k[1], all, of_k[3]});
    fb_onnx_give(c, 2, v->dtype, 4, (size[]){of_v[0], of_v[1], all, of_v[3]});
    fb_onnx_give(c, 3, q->dtype, 4, (size[]){of_q[0], of_q[1], of_q[2], all});
}

SHAPE(linear_attention) {
    const type *q = fb_onnx_in(c, 0);
    size of_q[4], of_k[4], of_v[4];
    int64_t heads = fb_onnx_int(c, "kv_num_heads", 0);
    fb_onnx_give_dtype(c, 0, q->dtype);
    if (fb_onnx_has(c, 3) || q->dtype == FB_FLOAT32) fb_onnx_give_dtype(c, 1, fb_onnx_has(c, 3) ? dtype_in(c, 3) : FB_FLOAT32);
    bool is_known = read_heads(c, 0, fb_onnx_int(c, "q_num_heads", 0), of_q) && read_heads(c, 1, heads, of_k) &&
                    read_heads(c, 2, heads, of_v);
    if (!is_known || q->rank != 3) return;
    fb_onnx_give(c, 0, q->dtype, 3, (size[]){of_q[0], of_q[2], fb_size_mul(c->sizes, of_q[1], of_v[3])});
    fb_onnx_give(c, 1, c->results[1].dtype, 4, (size[]){of_k[0], of_k[1], of_k[3], of_v[3]});
}

SHAPE(image) {
    bool is_grey = strcmp(fb_onnx_text(c, "pixel_format", "RGB"), "Grayscale") == 0;
    fb_onnx_give(c, 0, FB_UINT8, 3, (size[]){0, 0, number(c, is_grey ? 1 : 3)});
}

SHAPE(tf_idf) {
    const type *x = fb_onnx_in(c, 0);
    int64_t at[FB_ONNX_ELEMENTS], most = -1;
    int count = fb_onnx_ints(c, "ngram_indexes", at);
    for (int i = 0; i < count; i++) most = at[i] > most ? at[i] : most;
    size sizes[] = {x->rank == 2 ? x->sizes[0] : 0, most >= 0 ? number(c, most + 1) : 0};
    fb_onnx_give_dtype(c, 0, FB_FLOAT32);
    if (x->rank == 1 || x->rank == 2) fb_onnx_give(c, 0, FB_FLOAT32, x->rank, sizes + (x->rank == 1));
}

SHAPE(loss) {
    const type *x = fb_onnx_in(c, 0), *target = fb_onnx_in(c, 1);
    bool is_none = strcmp(fb_onnx_text(c, "reduction", "mean"), "none") == 0;
    if (is_none) fb_onnx_give_same(c, 0, x->dtype, target);
    else fb_onnx_give(c, 0, x->dtype, 0, NULL);
    fb_onnx_give_same(c, 1, x->dtype, x);
}

SHAPE(dft) {
    const type *x = fb_onnx_in(c, 0);
    bool is_one = fb_onnx_int(c, "onesided", 0) != 0, is_inverse = fb_onnx_int(c, "inverse", 0) != 0;
    size sizes[FB_ONNX_RANK];
    int64_t at = fb_onnx_int(c, "axis", 1);
    int axis;
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 2) return;
    if (c->version >= 20) {
        fb_onnx_list given = fb_onnx_list_of(c, "axis", 2);
        int64_t found[FB_ONNX_ELEMENTS];
        at = -2;
        if (given.is_given && (!fb_onnx_all_ints(c, &given, found) || given.count != 1)) {
            for (int i = 0; i < x->rank - 1; i++) sizes[i] = 0;
            sizes[x->rank - 1] = number(c, is_one && is_inverse ? 1 : 2);
            fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
            return;
        }
        if (given.is_given) at = found[0];
    }
    if (!axis_of(at, x->rank, &axis) || axis == x->rank - 1) return;
    memcpy(sizes, x->sizes, (size_t)x->rank * sizeof *sizes);
    if (fb_onnx_has(c, 1)) sizes[axis] = element_in(c, 1);
    if (is_one && is_inverse) { /* real numbers */
        if (!fb_onnx_has(c, 1)) {
            size less = fb_size_sub(c->sizes, sizes[axis], number(c, 1));
            sizes[axis] = fb_size_mul(c->sizes, less, number(c, 2));
        }
        sizes[x->rank - 1] = number(c, 1);
        fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
        return;
    }
    if (is_one) sizes[axis] = fb_size_add(c->sizes, fb_size_floor_div(c->sizes, sizes[axis], number(c, 2)), number(c, 1));
    sizes[x->rank - 1] = number(c, 2);
    fb_onnx_give(c, 0, x->dtype, x->rank, sizes);
}

SHAPE(stft) {
    const type *x = fb_onnx_in(c, 0), *window_of = fb_onnx_in(c, 2);
    bool is_one = fb_onnx_int(c, "onesided", 1) != 0;
    size length = fb_onnx_has(c, 3) ? element_in(c, 3) : window_of->rank == 1 ? window_of->sizes[0] : 0;
    size step = element_in(c, 1), bins = length;
    int64_t by;
    if (is_one) bins = fb_size_add(c->sizes, fb_size_floor_div(c->sizes, length, number(c, 2)), number(c, 1));
    fb_onnx_give_dtype(c, 0, x->dtype);
    if (x->rank < 2) return;
    size span = fb_size_sub(c->sizes, x->sizes[1], length);
    bool is_step = fb_size_is_number(c->sizes, step, &by) && by > 0;
    size frames = is_step ? fb_size_add(c->sizes, fb_size_floor_div(c->sizes, span, step), number(c, 1)) : 0;
    fb_onnx_give(c, 0, x->dtype, 4, (size[]){x->sizes[0], frames, bins, number(c, 2)});
}

/* ---- programs ------------------------------------------------------------------------------------------------------------ */

SHAPE(if) {
    const type *condition = fb_onnx_in(c, 0);
    type yes[FB_ONNX_RESULTS], no[FB_ONNX_RESULTS];
    int64_t is_true = 0;
    bool is_known = condition->elements && condition->count == 1 && fb_onnx_numbers(c->types, condition, &is_true);
    bool ok = (is_known && !is_true) || fb_onnx_run(c, "then_branch", NULL, 0, yes, c->wanted);
    ok = ok && ((is_known && is_true) || fb_onnx_run(c, "else_branch", NULL, 0, no, c->wanted));
    for (uint32_t i = 0; i < c->wanted && ok; i++)
        c->results[i] = is_known ? (is_true ? yes[i] : no[i]) : fb_onnx_join(c->types, &yes[i], &no[i]);
}

static type without_elements(const type *of) {
    type made = *of;
    made.elements = NULL;
    made.count = 0;
    return made;
}

/* Makes free what is another after a turn than before it: the sizes that are free may be any. True: nothing more is. */
static bool make_free(fb_onnx_call *c, type *before, const type *after, uint32_t *free_sizes) {
    if (before->dtype != after->dtype || before->rank != after->rank) {
        bool was_free = before->rank < 0 && (!before->dtype || before->dtype == after->dtype);
        *before = (type){.dtype = before->dtype == after->dtype ? after->dtype : FB_DTYPE_UNKNOWN, .rank = -1};
        return was_free;
    }
    size sizes[FB_ONNX_RANK];
    bool is_stable = true;
    for (int i = 0; i < before->rank; i++) {
        bool is_new = before->sizes[i] != after->sizes[i] && !(*free_sizes >> i & 1);
        sizes[i] = is_new ? 0 : before->sizes[i];
        if (is_new) *free_sizes |= 1U << i;
        is_stable &= !is_new;
    }
    type kept = c->results[0];
    if (!is_stable) fb_onnx_give(c, 0, before->dtype, before->rank, sizes), *before = c->results[0];
    c->results[0] = kept;
    return is_stable;
}

/* Types of states that hold at the begin of each turn, and then `out`, what a turn gives. */
static bool run_turns(fb_onnx_call *c, type *inputs, uint32_t first, uint32_t states, uint32_t count, type *out,
                      uint32_t out_first, uint32_t out_count) {
    uint32_t free_sizes[FB_ONNX_RESULTS] = {0};
    for (int turn = 0; turn < 4; turn++) {
        bool is_stable = true;
        if (!fb_onnx_run(c, "body", inputs, count, out, out_count)) return false;
        for (uint32_t i = 0; i < states; i++) {
            type after = without_elements(&out[out_first + i]);
            is_stable &= make_free(c, &inputs[first + i], &after, &free_sizes[i]);
        }
        if (is_stable) return true;
    }
    fb_onnx_run_was_partial(c);
    return false;
}

/* The results of several turns, one behind the other. */
static void give_scanned(fb_onnx_call *c, uint32_t index, const type *one, size length, int axis) {
    size sizes[FB_ONNX_RANK];
    fb_onnx_give_dtype(c, index, one->dtype);
    if (one->rank < 0 || one->rank + 1 > FB_ONNX_RANK || axis > one->rank) return;
    for (int i = 0; i <= one->rank; i++) sizes[i] = i == axis ? length : one->sizes[i > axis ? i - 1 : i];
    fb_onnx_give(c, index, one->dtype, one->rank + 1, sizes);
}

SHAPE(loop) {
    type inputs[FB_ONNX_RESULTS], out[FB_ONNX_RESULTS];
    uint32_t states = fb_onnx_inputs(c) > 2 ? fb_onnx_inputs(c) - 2 : 0;
    if (states + 2 > FB_ONNX_RESULTS || c->wanted + 1 > FB_ONNX_RESULTS || c->wanted < states) return;
    inputs[0] = (type){.dtype = FB_INT64, .rank = 0, .sizes = NULL};
    inputs[1] = (type){.dtype = FB_BOOL, .rank = 0, .sizes = NULL};
    for (uint32_t i = 0; i < states; i++) inputs[i + 2] = without_elements(fb_onnx_in(c, i + 2));
    if (!run_turns(c, inputs, 2, states, states + 2, out, 1, c->wanted + 1)) return;
    for (uint32_t i = 0; i < states; i++) c->results[i] = inputs[i + 2];
    for (uint32_t i = states; i < c->wanted; i++) { /* where no turn is made, the sizes are those that the body declares */
        type one = without_elements(&out[i + 1]), said;
        size sizes[FB_ONNX_RANK];
        int64_t number_of;
        bool is_said = fb_onnx_declared(c, "body", i + 1, &said) && said.rank == one.rank;
        for (int k = 0; k < one.rank; k++) {
            bool is_sure = is_said && said.sizes[k] == one.sizes[k] && fb_size_is_number(c->sizes, one.sizes[k], &number_of);
            sizes[k] = is_sure ? one.sizes[k] : 0;
        }
        if (one.rank >= 0) one.sizes = sizes;
        if (is_said || one.rank < 0) give_scanned(c, i, &one, 0, 0);
        else fb_onnx_give_dtype(c, i, one.dtype);
    }
}

SHAPE(scan) {
    type inputs[FB_ONNX_RESULTS], out[FB_ONNX_RESULTS];
    int64_t axes[FB_ONNX_ELEMENTS], out_axes[FB_ONNX_ELEMENTS], scanned = fb_onnx_int(c, "num_scan_inputs", 0);
    int64_t total = fb_onnx_inputs(c), states = total - scanned;
    int count = fb_onnx_ints(c, "scan_input_axes", axes), out_count = fb_onnx_ints(c, "scan_output_axes", out_axes);
    size length = 0;
    if (c->version < 9 || scanned < 1 || states < 0 || total > FB_ONNX_RESULTS || (int64_t)c->wanted < states) return;
    for (int64_t i = 0; i < total; i++) {
        const type *x = fb_onnx_in(c, (uint32_t)i);
        inputs[i] = without_elements(x);
        if (i < states) continue;
        int axis, rank = 0;
        int64_t at = i - states < count ? axes[i - states] : 0;
        size sizes[FB_ONNX_RANK];
        inputs[i] = (type){.dtype = x->dtype, .rank = -1};
        if (x->rank < 1 || !axis_of(at, x->rank, &axis)) continue;
        if (!length) length = x->sizes[axis];
        for (int k = 0; k < x->rank; k++)
            if (k != axis) sizes[rank++] = x->sizes[k];
        fb_onnx_give(c, 0, x->dtype, rank, sizes); /* keeps the sizes */
        inputs[i] = c->results[0];
    }
    c->results[0] = (type){.rank = -1};
    if (!run_turns(c, inputs, 0, (uint32_t)states, (uint32_t)total, out, 0, c->wanted)) return;
    for (int64_t i = 0; i < c->wanted; i++) {
        if (i < states) {
            c->results[i] = inputs[i];
            continue;
        }
        int64_t at = i - states < out_count ? out_axes[i - states] : 0;
        int axis;
        bool is_axis = out[i].rank >= 0 && axis_of(at, out[i].rank + 1, &axis);
        if (is_axis) give_scanned(c, (uint32_t)i, &out[i], length, axis);
        else fb_onnx_give_dtype(c, (uint32_t)i, out[i].dtype);
    }
}

/* ---- the table ----------------------------------------------------------------------------------------------------------- */

#define ONNX_VALUE(name) fb_onnx_rule fb_onnx_value_##name;
#include "core/analysis/onnx_values.def"
#undef ONNX_VALUE

#define shape_none NULL
#define fb_onnx_value_none NULL

const fb_onnx_operator fb_onnx_operators[] = {
#define ONNX_OPERATOR(name, shape, value, exact, ...)                                                                          \
    {name, shape_##shape, fb_onnx_value_##value, FB_ONNX_EXACT_##exact, {__VA_ARGS__}},
#include "core/operators/onnx_operators.def"
#undef ONNX_OPERATOR
};
const size_t fb_onnx_operator_count = sizeof fb_onnx_operators / sizeof *fb_onnx_operators;
