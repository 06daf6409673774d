/* ONNX's attention, losses, and recurrent layers. */
#include <math.h>
#include <string.h>

#include "core/evaluator/onnx.h"

/* ---- attention ---------------------------------------------------------------------------------------------------------- */

typedef struct attention {
    fb_array *q, *k, *v, *mask, *lengths; /* of four dimensions; keys that count, or NULL */
    int64_t batch, heads, rows, columns;
    int64_t before; /* keys that come before the first query */
    bool is_causal;
    int64_t left, right; /* of a window; -1: all */
} attention;

/* (N, S, H · D) as (N, H, S, D). */
static fb_array *in_heads(onnx_op *op, fb_array *x, int64_t heads) {
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank == 4) return x;
    if (x->rank != 3 || heads < 1 || x->sizes[2] % heads) return onnx_fail(op, "its heads do not fit");
    return onnx_permute(op, onnx_reshape(op, x, 4, (const int64_t[]){x->sizes[0], x->sizes[1], heads, x->sizes[2] / heads}),
                        (const int[]){0, 2, 1, 3});
}

static fb_array *behind(onnx_op *op, fb_array *past, fb_array *x) {
    return past && x ? onnx_join(op, (fb_array *[]){past, x}, 2, 2) : x;
}

/* Adds what the masks say to the scores: 0, -inf, or a number. */
static fb_array *masked(onnx_op *op, const attention *a, fb_array *scores) {
    fb_array *x = onnx_rows(op, scores), *made = x ? onnx_new(op, x->dtype, 4, x->sizes) : NULL, *mask = NULL;
    int64_t wide[] = {a->batch, a->heads, a->rows, a->mask ? a->mask->sizes[a->mask->rank - 1] : 0};
    if (!made) return NULL;
    if (a->mask) {
        op->call->status = fb_array_broadcast(a->mask, 4, wide, &mask, op->call->error);
        mask = onnx_rows(op, onnx_keep(op, mask));
        if (!mask) return NULL;
    }
    if (!onnx_takes(op, 10 * (double)fb_array_count(made))) return NULL;
    for (int64_t at = 0, count = fb_array_count(made); at < count && fb_work_at(fb_call_work(op->call), at, count); at++) {
        int64_t j = at % a->columns, i = at / a->columns % a->rows, n = at / (a->columns * a->rows * a->heads);
        int64_t place = i + (a->lengths ? onnx_get_int(a->lengths, n) - a->rows : a->before);
        double bias = 0;
        if (mask && j >= wide[3]) bias = -INFINITY;
        else if (mask && mask->held == FB_HELD_BOOL) bias = onnx_get_int(mask, at / a->columns * wide[3] + j) ? 0 : -INFINITY;
        else if (mask) bias = onnx_get(mask, at / a->columns * wide[3] + j);
        if ((a->is_causal && j > place) || (a->left >= 0 && place - j > a->left) || (a->right >= 0 && j - place > a->right) ||
            (a->lengths && j >= onnx_get_int(a->lengths, n)))
            bias = -INFINITY;
        onnx_put(made, at, onnx_get(x, at) + bias);
    }
    fb_array_round(made);
    return made;
}

/* A row of which all is masked becomes zeros. */
static fb_array *row_softmax(onnx_op *op, fb_array *given) {
    fb_array *x = onnx_rows(op, given), *made = x ? onnx_new(op, x->dtype, x->rank, x->sizes) : NULL;
    if (!made || !onnx_takes(op, 20 * (double)fb_array_count(made))) return NULL;
    int64_t size = x->sizes[x->rank - 1], rows = size ? fb_array_count(x) / size : 0;
    for (int64_t row = 0; row < rows && onnx_goes_on(op, 20 * size); row++) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < size; i++) {
            double one = onnx_get(x, row * size + i);
            if (one > most || one != one) most = one;
        }
        for (int64_t i = 0; i < size; i++) sum += exp(onnx_get(x, row * size + i) - most);
        for (int64_t i = 0; i < size; i++) {
            double one = most == -INFINITY ? 0 : exp(onnx_get(x, row * size + i) - most) / sum;
            onnx_put(made, row * size + i, one);
        }
    }
    fb_array_round(made);
    return made;
}

static fb_array *product(onnx_op *op, fb_array *a, fb_array *b) {
    return a && b ? ONNX_PART(MATMUL, "matmul", ONNX_A("input", a), ONNX_A("other", b)) : NULL;
}

static fb_array *repeated(onnx_op *op, fb_array *x, int64_t times) {
    if (!x || times == 1) return x;
    return ONNX_PART(REPEAT_INTERLEAVE, "repeat_interleave", ONNX_A("input", x), ONNX_I("repeats", times), ONNX_I("dim", 1));
}

static double soften(double x, const double *with) {
    return tanh(x / with[0]) * with[0];
}

static fb_array *attend(onnx_op *op, attention *a, double scale, double cap, int64_t mode, fb_dtype precision) {
    fb_array *factor = onnx_scalar(op, sqrt(scale), a->q->dtype);
    fb_array *scores = product(op, ONNX_MUL(a->q, factor), onnx_permute(op, ONNX_MUL(a->k, factor), (const int[]){0, 1, 3, 2}));
    if (mode == 0) op->results[3] = scores;
    if (cap > 0) scores = onnx_map(op, scores, soften, (const double[]){cap});
    if (mode == 1) op->results[3] = scores;
    scores = scores ? masked(op, a, scores) : NULL;
    if (mode == 2) op->results[3] = scores;
    if (!scores) return NULL;
    fb_array *weights = onnx_cast(op, row_softmax(op, precision ? onnx_cast(op, scores, precision) : scores), a->q->dtype);
    if (mode == 3) op->results[3] = weights;
    return product(op, weights, onnx_cast(op, a->v, a->q->dtype));
}

static fb_array *op_attention(onnx_op *op) {
    attention a = {
        .q = onnx_in(op, 0), .k = onnx_in(op, 1), .v = onnx_in(op, 2), .mask = onnx_maybe(op, 3), .left = -1, .right = -1};
    fb_array *past_key = onnx_maybe(op, 4), *past_value = onnx_maybe(op, 5);
    int64_t q_heads = onnx_int(op, "q_num_heads", 0), kv_heads = onnx_int(op, "kv_num_heads", 0),
            mode = onnx_int(op, "qk_matmul_output_mode", 0), number = onnx_int(op, "softmax_precision", 0);
    double cap = onnx_float(op, "softcap", 0), scale = onnx_float(op, "scale", 0);
    bool has_scale = onnx_has_attribute(op, "scale");
    a.is_causal = onnx_int(op, "is_causal", 0);
    if (op->version >= 24) a.lengths = onnx_maybe(op, 6);
    if (op->version >= 25) a.left = onnx_int(op, "left_window_size", -1), a.right = onnx_int(op, "right_window_size", -1);
    if (!a.q || !a.k || !a.v || !onnx_ok(op)) return NULL;
    bool is_flat = a.q->rank == 3, has_past = past_key != NULL;
    if (a.q->dtype != a.k->dtype || !fb_dtype_is_floating(a.q->dtype) || !fb_dtype_is_floating(a.v->dtype))
        return onnx_refuse(op, "its inputs are of several dtypes, or none that is floating");
    if (has_past != (past_value != NULL) || (a.lengths && has_past) || mode < 0 || mode > 3)
        return onnx_fail(op, "its inputs contradict each other");
    fb_dtype precision = number ? onnx_dtype(op, number) : FB_DTYPE_UNKNOWN;
    a.q = in_heads(op, a.q, q_heads);
    a.k = behind(op, past_key, in_heads(op, a.k, kv_heads));
    a.v = behind(op, past_value, in_heads(op, a.v, kv_heads));
    if (!a.q || !a.k || !a.v) return NULL;
    bool fits = a.q->rank == 4 && a.k->rank == 4 && a.v->rank == 4 && a.q->sizes[0] == a.k->sizes[0] &&
                a.k->sizes[0] == a.v->sizes[0] && a.k->sizes[1] && a.k->sizes[1] == a.v->sizes[1] &&
                a.q->sizes[1] % a.k->sizes[1] == 0 && a.k->sizes[2] == a.v->sizes[2] && a.q->sizes[3] == a.k->sizes[3] &&
                a.q->sizes[3] && a.k->sizes[2];
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    a.batch = a.q->sizes[0], a.heads = a.q->sizes[1], a.rows = a.q->sizes[2], a.columns = a.k->sizes[2];
    a.before = has_past ? past_key->sizes[2] : 0;
    if (a.mask && (!a.mask->rank || a.mask->rank > 4 || a.mask->sizes[a.mask->rank - 1] > a.columns ||
                   (a.mask->held != FB_HELD_BOOL && !fb_dtype_is_floating(a.mask->dtype))))
        return onnx_fail(op, "its mask does not fit");
    a.lengths = onnx_rows(op, a.lengths);
    if (a.lengths && (a.lengths->rank != 1 || a.lengths->sizes[0] != a.batch || a.lengths->held != FB_HELD_INT))
        return onnx_fail(op, "its lengths do not fit");
    op->results[1] = a.k;
    op->results[2] = a.v;
    int64_t times = a.heads / a.k->sizes[1];
    a.k = repeated(op, a.k, times);
    a.v = repeated(op, a.v, times);
    if (!onnx_ok(op)) return NULL;
    fb_array *made = attend(op, &a, has_scale ? scale : 1 / sqrt((double)a.q->sizes[3]), cap, mode, precision);
    if (is_flat && made)
        made = onnx_reshape(op, onnx_permute(op, made, (const int[]){0, 2, 1, 3}), 3,
                            (const int64_t[]){a.batch, a.rows, a.heads * made->sizes[3]});
    op->results[0] = made;
    return made;
}

/* Runs a program of the call on scores or probabilities, where it has one. */
static fb_array *modified(onnx_op *op, const char *name, fb_array *x) {
    fb_array *made = NULL;
    fb_object given;
    if (!x || !onnx_has_attribute(op, name)) return x;
    if (!onnx_run(op, name, &(fb_object){.kind = FB_OBJECT_ARRAY, .array = x}, 1, &given) || !onnx_take(op, &given, 1, &made))
        return NULL;
    made = onnx_keep(op, made);
    bool fits = made && made->dtype == x->dtype && made->rank == 4 && memcmp(made->sizes, x->sizes, 4 * sizeof *x->sizes) == 0;
    return fits || !made ? made : onnx_fail(op, "its %s changes shape or dtype", name);
}

/* All is computed in the precision of the softmax but the scores. */
static fb_array *op_flex_attention(onnx_op *op) {
    fb_array *q = onnx_in(op, 0), *k = onnx_in(op, 1), *v = onnx_in(op, 2);
    int64_t number = onnx_int(op, "softmax_precision", 0);
    bool has_scale = onnx_has_attribute(op, "scale");
    double scale = onnx_float(op, "scale", 0);
    onnx_ignore(op, "captures");
    if (!q || !k || !v || !onnx_ok(op)) return NULL;
    bool fits = q->rank == 4 && k->rank == 4 && v->rank == 4 && q->sizes[0] == k->sizes[0] && k->sizes[0] == v->sizes[0] &&
                k->sizes[1] && k->sizes[1] == v->sizes[1] && q->sizes[1] % k->sizes[1] == 0 && k->sizes[2] == v->sizes[2] &&
                q->sizes[3] == k->sizes[3] && q->sizes[3] && k->sizes[2] && q->dtype == k->dtype && q->dtype == v->dtype;
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    if (!fb_dtype_is_floating(q->dtype)) return onnx_refuse(op, "it is evaluated for floats alone");
    if (!has_scale) scale = 1 / sqrt((double)q->sizes[3]);
    if (scale < 0) return onnx_refuse(op, "its scale is negative");
    fb_dtype precision = number ? onnx_dtype(op, number) : q->dtype == FB_FLOAT64 ? FB_FLOAT64 : FB_FLOAT32;
    int64_t times = q->sizes[1] / k->sizes[1];
    fb_array *factor = onnx_scalar(op, sqrt(scale), q->dtype);
    fb_array *keys = onnx_permute(op, ONNX_MUL(repeated(op, k, times), factor), (const int[]){0, 1, 3, 2});
    fb_array *scores = modified(op, "score_mod", onnx_cast(op, product(op, ONNX_MUL(q, factor), keys), precision));
    if (!scores) return NULL;
    fb_array *weights = ONNX_PART(SOFTMAX, "softmax", ONNX_A("input", scores), ONNX_I("dim", -1));
    return onnx_cast(op, product(op, modified(op, "prob_mod", weights), onnx_cast(op, repeated(op, v, times), precision)),
                     q->dtype);
}

/* ---- losses ------------------------------------------------------------------------------------------------------------- */

/* Of logarithms of probabilities (N, C, …) and targets (N, …). */
static fb_array *negative_log_likelihood(onnx_op *op, fb_array *given, fb_array *targets, fb_array *weights) {
    const char *reduction = onnx_text(op, "reduction", "mean");
    bool ignores = onnx_has_attribute(op, "ignore_index"), is_none = strcmp(reduction, "none") == 0;
    int64_t ignored = onnx_int(op, "ignore_index", 0), inner = 1;
    fb_array *x = onnx_rows(op, given), *t = onnx_rows(op, targets), *w = onnx_rows(op, weights);
    if (!x || !t || !onnx_ok(op)) return NULL;
    bool fits = x->rank >= 2 && t->rank == x->rank - 1 && t->held == FB_HELD_INT && t->sizes[0] == x->sizes[0] &&
                fb_dtype_is_floating(x->dtype);
    for (int i = 2; i < x->rank && fits; i++) fits = t->sizes[i - 1] == x->sizes[i], inner *= x->sizes[i];
    if (w && (w->rank != 1 || w->sizes[0] != x->sizes[1] || w->dtype != x->dtype)) fits = false;
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    fb_array *made = is_none ? onnx_new(op, x->dtype, t->rank, t->sizes) : NULL;
    double sum = 0, all = 0;
    for (int64_t i = 0, count = fb_array_count(t); i < count && fb_work_at(fb_call_work(op->call), i, count); i++) {
        int64_t target = onnx_get_int(t, i);
        bool is_ignored = ignores && target == ignored;
        if (!is_ignored && (target < 0 || target >= x->sizes[1])) return onnx_fail(op, "a target is not a class");
        double weight = is_ignored ? 0 : w ? onnx_get(w, target) : 1;
        double loss = is_ignored ? 0 : -onnx_get(x, (i / inner * x->sizes[1] + target) * inner + i % inner) * weight;
        if (made) onnx_put(made, i, loss);
        sum += loss;
        all += weight;
    }
    if (made) fb_array_round(made);
    if (is_none) return made;
    bool is_mean = strcmp(reduction, "mean") == 0;
    if (!is_mean && strcmp(reduction, "sum") != 0) return onnx_refuse(op, "its reduction is %s", reduction);
    if (is_mean && all == 0) return onnx_undefined(op, "all weights are 0, and what then is given is not defined");
    return onnx_scalar(op, is_mean ? sum / all : sum, x->dtype);
}

static fb_array *op_nll_loss(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *targets = onnx_in(op, 1);
    return negative_log_likelihood(op, x, targets, onnx_maybe(op, 2));
}

static fb_array *op_cross_entropy(onnx_op *op) {
    fb_array *x = onnx_in(op, 0), *targets = onnx_in(op, 1), *weights = onnx_maybe(op, 2);
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank < 2) return onnx_fail(op, "its scores have no classes");
    fb_array *logarithms = ONNX_PART(NATIVE_LOG_SOFTMAX, "log_softmax", ONNX_A("input", x), ONNX_I("dim", 1));
    op->results[0] = negative_log_likelihood(op, logarithms, targets, weights);
    op->results[1] = logarithms;
    return op->results[0];
}

/* ---- recurrent layers --------------------------------------------------------------------------------------------------- */

/* One direction of a layer over (T, N, I), in doubles. Gates are rows of W and R: i of RNN, z r h of GRU, i o f c of LSTM. */
typedef struct recurrence {
    int gates;
    int64_t steps, batch, inputs, hidden;
    const fb_array *x, *w, *r, *b, *lengths, *h0, *c0;
    fb_array *y, *h, *c;
    int64_t direction, directions;
    bool is_reversed, resets_before;
} recurrence;

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

/* W x + R h + the biases of one gate. `split`: what R gives is returned by itself. */
static double gate(const recurrence *l, int64_t step, int64_t n, int64_t row, const double *state, double *recurrent) {
    int64_t all = l->gates * l->hidden, base = (l->direction * all + row);
    double sum = l->b ? onnx_get(l->b, l->direction * 2 * all + row) : 0,
           back = l->b ? onnx_get(l->b, l->direction * 2 * all + all + row) : 0;
    for (int64_t i = 0; i < l->inputs; i++)
        sum += onnx_get(l->w, base * l->inputs + i) * onnx_get(l->x, (step * l->batch + n) * l->inputs + i);
    for (int64_t i = 0; i < l->hidden; i++) back += onnx_get(l->r, base * l->hidden + i) * state[i];
    *recurrent = back;
    return sum;
}

static void turn(const recurrence *l, int64_t step, int64_t n, double *h, double *c, double *next, double *reset) {
    double back;
    if (l->gates == 1) {
        for (int64_t k = 0; k < l->hidden; k++) next[k] = tanh(gate(l, step, n, k, h, &back) + back);
    } else if (l->gates == 4) {
        for (int64_t k = 0; k < l->hidden; k++) {
            double in = sigmoid(gate(l, step, n, k, h, &back) + back);
            double out = sigmoid(gate(l, step, n, l->hidden + k, h, &back) + back);
            double forget = sigmoid(gate(l, step, n, 2 * l->hidden + k, h, &back) + back);
            double cell = tanh(gate(l, step, n, 3 * l->hidden + k, h, &back) + back);
            c[k] = forget * c[k] + in * cell;
            next[k] = out * tanh(c[k]);
        }
    } else {
        for (int64_t k = 0; k < l->hidden; k++)
            reset[k] = sigmoid(gate(l, step, n, l->hidden + k, h, &back) + back) * (l->resets_before ? 1 : h[k]);
        for (int64_t k = 0; k < l->hidden; k++) {
            double update = sigmoid(gate(l, step, n, k, h, &back) + back);
            double own = gate(l, step, n, 2 * l->hidden + k, l->resets_before ? h : reset, &back);
            double candidate = tanh(own + (l->resets_before ? reset[k] * back : back));
            next[k] = (1 - update) * candidate + update * h[k];
        }
    }
    memcpy(h, next, (size_t)l->hidden * sizeof *h);
}

static bool run_direction(onnx_op *op, const recurrence *l) {
    double *space = fb_make_workspace(op->call, 4 * l->hidden, sizeof *space);
    double work = 3 * (double)l->gates * (double)l->hidden * (double)(l->inputs + l->hidden);
    bool ok = space && onnx_takes(op, work * (double)l->steps * (double)l->batch);
    for (int64_t n = 0; n < l->batch && ok; n++) {
        double *h = space, *c = space + l->hidden, *next = c + l->hidden, *reset = next + l->hidden;
        int64_t length = l->lengths ? onnx_get_int(l->lengths, n) : l->steps, first = (l->direction * l->batch + n) * l->hidden;
        if (length < 0 || length > l->steps) ok = onnx_fail(op, "a length is beyond the sequence") != NULL;
        for (int64_t k = 0; k < l->hidden && ok; k++) {
            h[k] = l->h0 ? onnx_get(l->h0, first + k) : 0;
            c[k] = l->c0 ? onnx_get(l->c0, first + k) : 0;
        }
        for (int64_t t = 0; t < length && ok; t++) {
            int64_t step = l->is_reversed ? length - 1 - t : t;
            ok = onnx_goes_on(op, (int64_t)work);
            if (ok) turn(l, step, n, h, c, next, reset);
            for (int64_t k = 0; k < l->hidden && ok; k++)
                onnx_put(l->y, ((step * l->directions + l->direction) * l->batch + n) * l->hidden + k, h[k]);
        }
        for (int64_t k = 0; k < l->hidden && ok; k++) {
            onnx_put(l->h, first + k, h[k]);
            if (l->c) onnx_put(l->c, first + k, c[k]);
        }
    }
    fb_free_workspace(op->call, space, 4 * l->hidden, sizeof *space);
    return ok;
}

static fb_array *recur(onnx_op *op, int gates) {
    fb_array *x = onnx_in(op, 0), *w = onnx_rows(op, onnx_in(op, 1)), *r = onnx_rows(op, onnx_in(op, 2)),
             *b = onnx_rows(op, onnx_maybe(op, 3)), *lengths = onnx_rows(op, onnx_maybe(op, 4)), *h0 = onnx_maybe(op, 5),
             *c0 = gates == 4 ? onnx_maybe(op, 6) : NULL;
    const char *direction = onnx_text(op, "direction", "forward");
    bool is_both = strcmp(direction, "bidirectional") == 0, is_reverse = strcmp(direction, "reverse") == 0;
    bool batch_first = op->version >= 14 && onnx_int(op, "layout", 0);
    int64_t directions = is_both ? 2 : 1, hidden = onnx_int(op, "hidden_size", 0);
    recurrence l = {.gates = gates, .resets_before = gates == 3 && onnx_int(op, "linear_before_reset", 0)};
    static const int turned[] = {1, 0, 2}, back[] = {2, 0, 1, 3};
    if (onnx_has_attribute(op, "activations") || onnx_has_attribute(op, "clip") || (gates == 4 && onnx_maybe(op, 7)) ||
        (gates == 4 && onnx_int(op, "input_forget", 0)))
        return onnx_refuse(op, "other activations, clip, peepholes and input_forget are not evaluated");
    if (!x || !w || !r || !onnx_ok(op)) return NULL;
    if (!is_both && !is_reverse && strcmp(direction, "forward") != 0) return onnx_refuse(op, "its direction is %s", direction);
    if (x->rank == 3 && batch_first) x = onnx_permute(op, x, turned);
    if (batch_first && h0 && h0->rank == 3) h0 = onnx_permute(op, h0, turned);
    if (batch_first && c0 && c0->rank == 3) c0 = onnx_permute(op, c0, turned);
    x = onnx_rows(op, x), h0 = onnx_rows(op, h0), c0 = onnx_rows(op, c0);
    if (!x || !onnx_ok(op)) return NULL;
    if (x->rank != 3 || w->rank != 3 || r->rank != 3) return onnx_fail(op, "its inputs do not fit");
    l.steps = x->sizes[0], l.batch = x->sizes[1], l.inputs = x->sizes[2], l.hidden = r->sizes[2], l.directions = directions;
    int64_t all = gates * l.hidden, state = directions * l.batch * l.hidden;
    bool fits = w->sizes[0] == directions && w->sizes[1] == all && w->sizes[2] == l.inputs && r->sizes[0] == directions &&
                r->sizes[1] == all && (!hidden || hidden == l.hidden) && (!b || fb_array_count(b) == 2 * directions * all) &&
                (!h0 || fb_array_count(h0) == state) && (!c0 || fb_array_count(c0) == state) &&
                fb_dtype_is_floating(x->dtype) &&
                (!lengths || (lengths->rank == 1 && lengths->sizes[0] == l.batch && lengths->held == FB_HELD_INT));
    if (!fits) return onnx_fail(op, "its inputs do not fit");
    l.x = x, l.w = w, l.r = r, l.b = b, l.lengths = lengths, l.h0 = h0, l.c0 = c0;
    l.y = onnx_new(op, x->dtype, 4, (const int64_t[]){l.steps, directions, l.batch, l.hidden});
    l.h = onnx_new(op, x->dtype, 3, (const int64_t[]){directions, l.batch, l.hidden});
    l.c = gates == 4 ? onnx_new(op, x->dtype, 3, (const int64_t[]){directions, l.batch, l.hidden}) : NULL;
    if (!l.y || !l.h || !onnx_ok(op)) return NULL;
    fb_array_fill(l.y, 0, 0);
    for (l.direction = 0; l.direction < directions; l.direction++) {
        l.is_reversed = is_reverse || l.direction == 1;
        if (!run_direction(op, &l)) return NULL;
    }
    fb_array_round(l.y), fb_array_round(l.h);
    if (l.c) fb_array_round(l.c);
    op->results[0] = batch_first ? onnx_permute(op, l.y, back) : l.y;
    op->results[1] = batch_first ? onnx_permute(op, l.h, turned) : l.h;
    op->results[2] = l.c && batch_first ? onnx_permute(op, l.c, turned) : l.c;
    return op->results[0];
}

static fb_array *op_rnn(onnx_op *op) {
    return recur(op, 1);
}
static fb_array *op_gru(onnx_op *op) {
    return recur(op, 3);
}
static fb_array *op_lstm(onnx_op *op) {
    return recur(op, 4);
}

#define LAST 28
#define ROW(name, first, function)                                                                                             \
    { name, first, LAST, function, 0, NULL }
const onnx_row onnx_rows_attention[] = {
    ROW("Attention", 23, op_attention),
    ROW("ai.onnx.preview.FlexAttention", 1, op_flex_attention),
    ROW("NegativeLogLikelihoodLoss", 12, op_nll_loss),
    ROW("SoftmaxCrossEntropyLoss", 12, op_cross_entropy),
    ROW("RNN", 7, op_rnn),
    ROW("GRU", 7, op_gru),
    ROW("LSTM", 7, op_lstm),
    {0},
};
