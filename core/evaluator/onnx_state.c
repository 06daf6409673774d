/* ONNX's layers of sequences that go on from a state: rotation by position, causal convolution, linear attention, caches. */
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

static bool are_alike(const fb_array *a, const fb_array *b) {
    return !b || a->dtype == b->dtype;
}

/* ---- RotaryEmbedding ---------------------------------------------------------------------------------------------------- */

typedef struct rotation {
    const fb_array *x, *cosines, *sines, *positions; /* positions may be NULL */
    fb_array *made;
    int64_t batch, heads, length, size, half; /* 2 × half elements of a head's size are turned */
    bool is_flat, alternates;
} rotation;

/* A cache has a row for each place of each sequence, or for each position. */
static bool is_cache(onnx_op *op, const rotation *r, const fb_array *cache) {
    bool fits = cache->dtype == r->x->dtype && cache->rank == (r->positions ? 2 : 3) &&
                cache->sizes[cache->rank - 1] == r->half &&
                (r->positions || (cache->sizes[0] == r->batch && cache->sizes[1] == r->length));
    return fits || onnx_fail(op, "its cosines and sines do not fit") != NULL;
}

static bool open_rotation(onnx_op *op, rotation *r) {
    int64_t heads = onnx_int(op, "num_heads", 0), turned = onnx_int(op, "rotary_embedding_dim", 0);
    r->alternates = onnx_int(op, "interleaved", 0);
    if (!r->x || !r->cosines || !r->sines || !onnx_ok(op)) return false;
    r->is_flat = r->x->rank == 3;
    if (r->is_flat ? heads < 1 || r->x->sizes[2] % heads : r->x->rank != 4)
        return onnx_fail(op, "its heads do not fit") != NULL;
    r->batch = r->x->sizes[0];
    r->heads = r->is_flat ? heads : r->x->sizes[1];
    r->length = r->x->sizes[r->is_flat ? 1 : 2];
    r->size = r->is_flat ? r->x->sizes[2] / heads : r->x->sizes[3];
    if (!turned) turned = r->size;
    if (turned < 0 || turned > r->size || turned % 2)
        return onnx_fail(op, "what it turns of a head is not an even part") != NULL;
    r->half = turned / 2;
    if (!is_cache(op, r, r->cosines) || !is_cache(op, r, r->sines)) return false;
    if (r->cosines->sizes[0] != r->sines->sizes[0]) return onnx_fail(op, "its cosines and sines do not fit") != NULL;
    bool fits = !r->positions || (r->positions->held == FB_HELD_INT && r->positions->rank == 2 &&
                                  r->positions->sizes[0] == r->batch && r->positions->sizes[1] == r->length);
    return fits || onnx_fail(op, "its positions do not fit") != NULL;
}

static void turn_one(const rotation *r, int64_t from, int64_t row) {
    for (int64_t k = 0; k < r->half; k++) {
        int64_t one = from + (r->alternates ? 2 * k : k), two = from + (r->alternates ? 2 * k + 1 : k + r->half);
        double c = onnx_get(r->cosines, row * r->half + k), s = onnx_get(r->sines, row * r->half + k);
        double x = onnx_get(r->x, one), y = onnx_get(r->x, two);
        onnx_put(r->made, one, c * x - s * y);
        onnx_put(r->made, two, s * x + c * y);
    }
    for (int64_t k = 2 * r->half; k < r->size; k++) onnx_put(r->made, from + k, onnx_get(r->x, from + k));
}

static fb_array *op_rotary_embedding(onnx_op *op) {
    fb_array *in[4];
    for (size_t i = 0; i < 4; i++) in[i] = onnx_rows(op, i < 3 ? onnx_in(op, i) : onnx_maybe(op, i));
    rotation r = {.x = in[0], .cosines = in[1], .sines = in[2], .positions = in[3]};
    if (!open_rotation(op, &r)) return NULL;
    if (!fb_dtype_is_floating(r.x->dtype)) return onnx_refuse(op, "it is evaluated for floats alone");
    r.made = onnx_new(op, r.x->dtype, r.x->rank, r.x->sizes);
    if (!r.made || !onnx_takes(op, 10 * (double)fb_array_count(r.made))) return NULL;
    for (int64_t at = 0, count = r.batch * r.heads * r.length; at < count && onnx_goes_on(op, 10 * r.size); at++) {
        int64_t n = at / (r.heads * r.length), s = r.is_flat ? at / r.heads % r.length : at % r.length, row = n * r.length + s;
        if (r.positions) row = onnx_get_int(r.positions, row);
        if (r.positions && (row < 0 || row >= r.cosines->sizes[0])) return onnx_fail(op, "a position is beyond its cosines");
        turn_one(&r, at * r.size, row);
    }
    fb_array_round(r.made);
    return r.made;
}

/* ---- CausalConvWithState ------------------------------------------------------------------------------------------------ */

static double silu(double x, const double *with) {
    (void)with;
    return x / (1 + exp(-x));
}

static fb_array *op_causal_conv(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *weight = onnx_in(op, 1), *bias = onnx_maybe(op, 2), *past = onnx_maybe(op, 3);
    const char *activation = onnx_text(op, "activation", "none");
    if (!x || !weight || !onnx_ok(op)) return NULL;
    bool fits = x->rank == 3 && weight->rank == 3 && weight->sizes[0] == x->sizes[1] && weight->sizes[1] == 1 &&
                weight->sizes[2] && are_alike(x, weight) && are_alike(x, bias) && are_alike(x, past) &&
                fb_dtype_is_floating(x->dtype);
    if (!fits) return onnx_fail(op, "its weight does not fit its input");
    int64_t before = weight->sizes[2] - 1, sizes[] = {x->sizes[0], x->sizes[1], before};
    if (past && (past->rank != 3 || memcmp(past->sizes, sizes, sizeof sizes) != 0))
        return onnx_fail(op, "its state does not fit");
    if (!past && (past = onnx_new(op, x->dtype, 3, sizes))) fb_array_fill(past, 0, 0);
    fb_array *whole = before ? onnx_join(op, (fb_array *[]){past, x}, 2, 2) : x;
    fb_array *made = !whole ? NULL
                            : ONNX_PART(CONV1D, "conv1d", ONNX_A("input", whole), ONNX_A("weight", weight),
                                        ONNX_A("bias", bias), ONNX_I("groups", x->sizes[1]));
    bool is_silu = strcmp(activation, "silu") == 0 || strcmp(activation, "swish") == 0;
    if (!is_silu && strcmp(activation, "none") != 0) return onnx_refuse(op, "its activation is %s", activation);
    op->results[0] = is_silu ? onnx_map(op, made, silu, NULL) : made;
    if (whole) op->results[1] = onnx_cut(op, whole, 2, whole->sizes[2] - before, whole->sizes[2]);
    return op->results[0];
}

/* ---- LinearAttention ---------------------------------------------------------------------------------------------------- */

typedef struct linear_attention {
    const fb_array *q, *k, *v, *past, *decay, *beta; /* the last three may be NULL */
    fb_array *made, *present;
    int64_t batch, length, heads, pairs; /* heads of queries; of keys and values */
    int64_t keys, values;                /* sizes of a head */
    bool decays_by_key, has_one_beta;
    double scale;
} linear_attention;

/* One of the inputs (N, T, …), whose last size is this or that. */
static bool is_row_of(const linear_attention *a, const fb_array *x, int64_t one, int64_t other) {
    return !x || (x->rank == 3 && x->sizes[0] == a->batch && x->sizes[1] == a->length && are_alike(a->q, x) &&
                  (x->sizes[2] == one || x->sizes[2] == other));
}

static bool open_linear(onnx_op *op, linear_attention *a) {
    const char *rule = onnx_text(op, "update_rule", "gated_delta");
    bool is_gated = strncmp(rule, "gated", 5) == 0, is_delta = strstr(rule, "delta") != NULL;
    if (!is_gated && !is_delta && strcmp(rule, "linear") != 0) return onnx_refuse(op, "its rule is %s", rule) != NULL;
    a->heads = onnx_int(op, "q_num_heads", 0), a->pairs = onnx_int(op, "kv_num_heads", 0);
    a->scale = onnx_float(op, "scale", 0);
    onnx_ignore(op, "chunk_size"); /* a hint */
    if (!a->q || !a->k || !a->v || !onnx_ok(op)) return false;
    bool fits = a->q->rank == 3 && a->v->rank == 3 && a->heads > 0 && a->pairs > 0 && a->heads % a->pairs == 0 &&
                a->q->sizes[2] % a->heads == 0 && a->v->sizes[2] % a->pairs == 0 && fb_dtype_is_floating(a->q->dtype) &&
                is_gated == (a->decay != NULL) && is_delta == (a->beta != NULL);
    if (!fits) return onnx_fail(op, "its inputs contradict its heads or its rule") != NULL;
    a->batch = a->q->sizes[0], a->length = a->q->sizes[1];
    a->keys = a->q->sizes[2] / a->heads, a->values = a->v->sizes[2] / a->pairs;
    const int64_t state[] = {a->batch, a->pairs, a->keys, a->values}, pairs = a->pairs, all = pairs * a->keys;
    fits = is_row_of(a, a->k, all, all) && is_row_of(a, a->v, pairs * a->values, pairs * a->values) &&
           is_row_of(a, a->decay, all, pairs) && is_row_of(a, a->beta, pairs, 1) && a->keys &&
           (!a->past ||
            (a->past->rank == 4 && memcmp(a->past->sizes, state, sizeof state) == 0 && fb_dtype_is_floating(a->past->dtype)));
    if (!fits) return onnx_fail(op, "its inputs do not fit") != NULL;
    a->decays_by_key = a->decay && a->decay->sizes[2] == all && a->keys > 1;
    a->has_one_beta = a->beta && a->beta->sizes[2] == 1;
    if (a->scale == 0) a->scale = 1 / sqrt((double)a->keys);
    a->made = onnx_new(op, a->q->dtype, 3, (const int64_t[]){a->batch, a->length, a->heads * a->values});
    a->present = onnx_new(op, a->past ? a->past->dtype : a->q->dtype, 4, state);
    return onnx_ok(op);
}

/* One step of one pair of heads: `row` is (n, t), `state` keys × values, `own` the value less what the state says of the key.
 */
static void step(const linear_attention *a, int64_t row, int64_t pair, double *state, double *own) {
    int64_t key = (row * a->pairs + pair) * a->keys, value = (row * a->pairs + pair) * a->values, group = a->heads / a->pairs;
    for (int64_t d = 0; d < a->keys && a->decay; d++) {
        double kept = exp(onnx_get(a->decay, a->decays_by_key ? key + d : row * a->pairs + pair));
        for (int64_t m = 0; m < a->values; m++) state[d * a->values + m] *= kept;
    }
    for (int64_t m = 0; m < a->values; m++) {
        double said = 0;
        for (int64_t d = 0; d < a->keys && a->beta; d++) said += state[d * a->values + m] * onnx_get(a->k, key + d);
        double rate = a->beta ? onnx_get(a->beta, a->has_one_beta ? row : row * a->pairs + pair) : 1;
        own[m] = rate * (onnx_get(a->v, value + m) - said);
    }
    for (int64_t d = 0; d < a->keys; d++)
        for (int64_t m = 0; m < a->values; m++) state[d * a->values + m] += onnx_get(a->k, key + d) * own[m];
    for (int64_t h = pair * group; h < (pair + 1) * group; h++)
        for (int64_t m = 0; m < a->values; m++) {
            double sum = 0;
            for (int64_t d = 0; d < a->keys; d++)
                sum += onnx_get(a->q, (row * a->heads + h) * a->keys + d) * state[d * a->values + m];
            onnx_put(a->made, (row * a->heads + h) * a->values + m, a->scale * sum);
        }
}

static fb_array *op_linear_attention(onnx_op *op) {
    fb_array *in[6];
    for (size_t i = 0; i < 6; i++) in[i] = onnx_rows(op, i < 3 ? onnx_in(op, i) : onnx_maybe(op, i));
    linear_attention a = {.q = in[0], .k = in[1], .v = in[2], .past = in[3], .decay = in[4], .beta = in[5]};
    if (!open_linear(op, &a)) return NULL;
    int64_t size = a.keys * a.values, work = size * (5 + 2 * a.heads / a.pairs);
    double *state = fb_make_workspace(op->call, size + a.values, sizeof *state);
    bool ok = state && onnx_takes(op, (double)work * (double)a.batch * (double)a.pairs * (double)a.length);
    for (int64_t at = 0; at < a.batch * a.pairs && ok; at++) {
        for (int64_t i = 0; i < size; i++) state[i] = a.past ? onnx_get(a.past, at * size + i) : 0;
        for (int64_t t = 0; t < a.length && ok; t++) {
            ok = onnx_goes_on(op, work);
            if (ok) step(&a, at / a.pairs * a.length + t, at % a.pairs, state, state + size);
        }
        for (int64_t i = 0; i < size; i++) onnx_put(a.present, at * size + i, state[i]);
    }
    fb_free_workspace(op->call, state, size + a.values, sizeof *state);
    if (!ok) return NULL;
    fb_array_round(a.made), fb_array_round(a.present);
    op->results[0] = a.made;
    op->results[1] = a.present;
    return a.made;
}

/* ---- others ------------------------------------------------------------------------------------------------------------- */

/* A part of a cache is written, from a place of each sequence on. */
static fb_array *op_tensor_scatter(onnx_op *op) {
    fb_array *past = onnx_rows(op, onnx_in(op, 0)), *update = onnx_rows(op, onnx_in(op, 1)),
             *begin = onnx_rows(op, onnx_maybe(op, 2));
    int axis = onnx_axis(op, "axis", -2, past);
    const char *mode = onnx_text(op, "mode", "linear");
    bool is_circular = strcmp(mode, "circular") == 0;
    if (!past || !update || !onnx_ok(op)) return NULL;
    if (!is_circular && strcmp(mode, "linear") != 0) return onnx_refuse(op, "its mode is %s", mode);
    bool fits = past->rank == update->rank && axis > 0 && past->dtype == update->dtype &&
                (!begin || (begin->held == FB_HELD_INT && begin->rank == 1 && begin->sizes[0] == past->sizes[0]));
    int64_t inner = 1, size = onnx_size(past, axis), length = fits ? update->sizes[axis] : 0, outer = 1;
    for (int i = 0; i < past->rank && fits; i++) {
        fits = i == axis ? length <= size : past->sizes[i] == update->sizes[i];
        if (i > axis) inner *= past->sizes[i];
        if (i < axis) outer *= past->sizes[i];
    }
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    fb_array *made = onnx_new(op, past->dtype, past->rank, past->sizes);
    size_t bytes = fb_held_size(past->held), line = (size_t)inner * bytes;
    if (!made) return NULL;
    char *to = fb_array_data(made);
    const char *from = fb_array_data(update);
    fb_array_copy_bytes(fb_call_work(op->call), to, fb_array_data(past), (size_t)fb_array_count(past) * bytes);
    for (int64_t at = 0; at < outer * length && onnx_goes_on(op, inner); at++) {
        int64_t first = begin ? onnx_get_int(begin, at / length / (outer / past->sizes[0])) : 0, place = first + at % length;
        if (first < 0 || first > INT32_MAX) return onnx_undefined(op, "it begins before the cache, or far behind it");
        if (place >= size && !is_circular) return onnx_fail(op, "it writes behind the cache");
        memcpy(to + (size_t)(at / length * size + place % size) * line, from + (size_t)at * line, line);
    }
    return made;
}

static double swish(double x, const double *with) {
    return 1 / (1 + exp(-with[0] * x));
}

static fb_array *op_swiglu(onnx_op *op) {
    fb_array *a = onnx_in(op, 0), *b = onnx_in(op, 1);
    double alpha = onnx_float(op, "alpha", 1);
    if (!a || !b || !onnx_ok(op)) return NULL;
    if (a->rank != b->rank || memcmp(a->sizes, b->sizes, (size_t)a->rank * sizeof *a->sizes) != 0)
        return onnx_fail(op, "its inputs have two shapes");
    fb_array *gate = onnx_map(op, a, swish, &alpha);
    return ONNX_MUL(ONNX_MUL(a, gate), b);
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_state[] = {
    ROW("RotaryEmbedding", 23, op_rotary_embedding),
    ROW("CausalConvWithState", 27, op_causal_conv),
    ROW("LinearAttention", 27, op_linear_attention),
    ROW("TensorScatter", 24, op_tensor_scatter),
    ROW("SwiGLU", 28, op_swiglu),
    {0},
};
