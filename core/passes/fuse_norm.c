/* FuseNorm: a norm or a softmax that is spelled out becomes one call.
 *
 *     x ──┬── pow(2) ── mean(-1, keepdim) ── + ε ── rsqrt ──┬── * w ── y          x ── rms_norm((n,), w, ε) ── y
 *         └─────────────────────────────────────────────────┘
 *
 * LayerNorm and RMSNorm over the last dimensions, softmax and log-softmax, however they are written; in torch.fx also
 * F.normalize, which ATen does not have, where the norm has a lower bound. As in FuseActivation the formula is compared with
 * the operator by what the two compute: an ε outside the root is another function. Casts around the formula, as Llama has them,
 * go with it. A weight, and LayerNorm's bias, go into the call where they have the dtype that the norm is computed in and the
 * sizes that it works on. In float16 and bfloat16 a weight stays a product of its own: there the operator would round later
 * than the formula does.
 *
 * In ONNX the calls are LayerNormalization (opset 17), RMSNormalization (23), Softmax and LogSoftmax (11 along the last axis,
 * 13 along others); an older model is refused, and so are norms of float64, which ONNX computes in float32. A norm without a
 * weight gets one of ones.
 *
 * Refused: a softmax that does not subtract the largest number, as it overflows where the operator does not; a formula that
 * others read a part of; sizes that are not recorded; an input that is written in between; what the operator keeps for its
 * gradient, and is written later; and a result whose strides a reader may need as the input's are. Exactness: rounds.
 * Reversible.
 */
#include <math.h>

#include "core/analysis/memory_layout.h"
#include "core/analysis/shape.h"
#include "core/pass/build.h"
#include "core/pass/formula.h"

typedef struct found {
    fb_formula formula;
    fb_substitute substitute;
    fb_formula_verdict verdict;
    fb_value weight, bias; /* none: without */
} found;

typedef struct search {
    fb_formulas formulas;
    found best;
} search;

/* ---- what it may be ------------------------------------------------------------------------------------------------------ */

static bool has_call(const fb_graph *g, const fb_formula *f, fb_op op) {
    for (size_t i = 0; i < f->count; i++) {
        if (fb_op_is(g, f->calls[i], op)) return true;
    }
    return false;
}

/* A LayerNorm is the RMSNorm of what is centred: the longer formula is the better one. */
static void consider(search *s, const fb_formula *f, const fb_substitute *substitute) {
    bool is_rms = s->best.verdict == FB_FORMULA_IS_SAME && s->best.substitute.op == FB_OP_RMS_NORM;
    bool is_better = is_rms && substitute->op == FB_OP_LAYER_NORM && !fb_formula_obstacle(s->formulas.matcher, f).code;
    if (s->best.verdict == FB_FORMULA_IS_SAME && !is_better) return;
    fb_formula_verdict verdict = fb_formula_compare(&s->formulas, f, substitute);
    if (verdict > s->best.verdict || (is_better && verdict == FB_FORMULA_IS_SAME))
        s->best = (found){.formula = *f, .substitute = *substitute, .verdict = verdict};
}

static void consider_softmax(search *s, const fb_formula *f) {
    int axis = __builtin_ctz(f->axes);
    bool takes_log =
        has_call(s->formulas.matcher->graph, f, FB_OP_LOG) || has_call(s->formulas.matcher->graph, f, FB_OP_LOGSUMEXP);
    fb_substitute softmax = {FB_SUBSTITUTE(SOFTMAX), .has_axis = true, .axis = axis - f->rank};
    if (takes_log) softmax = (fb_substitute){FB_SUBSTITUTE(LOG_SOFTMAX), .has_axis = true, .axis = axis - f->rank};
    if (f->axes == (uint32_t)1 << axis) consider(s, f, &softmax);
}

/* The formula reduces along the last axes. Its input has these sizes; where they are not known any will do: it is refused then.
 */
static bool last_sizes(const fb_graph *g, const fb_formula *f, fb_substitute *norm) {
    int first = __builtin_ctz(f->axes);
    if (f->axes != (((uint64_t)1 << f->rank) - 1) >> first << first) return false;
    norm->shape_rank = f->rank - first;
    for (int i = 0; i < norm->shape_rank; i++) {
        fb_value shape = fb_node_at(g, f->input)->shape;
        int64_t size = shape.id ? fb_shape_size(g, shape, first + i) : -1;
        norm->shape[i] = size > 0 ? size : FB_FORMULA_SIZE;
    }
    return true;
}

/* In torch.fx alone, and where the formula bounds the norm: without a bound it takes fewer steps than F.normalize. Not of one
 * number, whose norm PyTorch finds without its square. */
static bool has_normalize(const fb_graph *g, const fb_formula *f) {
    bool has_norm = has_call(g, f, FB_OP_NORM) || has_call(g, f, FB_OP_VECTOR_NORM) || has_call(g, f, FB_OP_SUM);
    bool has_one_axis = f->axes == (f->axes & -f->axes);
    if (!has_norm || !has_one_axis || !fb_can_build(g, f->calls[f->count - 1], FB_MADE_NORMALIZE)) return false;
    return fb_shape_size(g, fb_node_at(g, f->input)->shape, __builtin_ctz(f->axes)) > 1;
}

#define LEAST_BOUND 1e-15 /* float32 still holds the squares of norms around it */

static void consider_epsilon(search *s, const fb_formula *f, double eps, bool is_bound) {
    fb_substitute norm = {.has_eps = true, .eps = eps};
    if (!is_bound && last_sizes(s->formulas.matcher->graph, f, &norm)) {
        norm.op = FB_OP_RMS_NORM;
        norm.made = FB_MADE_RMS_NORM;
        consider(s, f, &norm);
        norm.op = FB_OP_LAYER_NORM;
        norm.made = FB_MADE_LAYER_NORM;
        consider(s, f, &norm);
    }
    if (!has_normalize(s->formulas.matcher->graph, f)) return;
    norm =
        (fb_substitute){FB_SUBSTITUTE(NORMALIZE), .has_axis = true, .axis = __builtin_ctz(f->axes) - f->rank, .has_eps = true};
    norm.eps = eps;
    if (norm.eps >= LEAST_BOUND) consider(s, f, &norm);
    norm.eps = sqrt(eps); /* it bounds the sum of squares */
    if (norm.eps >= LEAST_BOUND) consider(s, f, &norm);
}

/* Every number that something is added to, or that bounds it, may be the ε. */
static void consider_norm(search *s, const fb_formula *f) {
    const fb_graph *g = s->formulas.matcher->graph;
    static const struct {
        fb_op op;
        const char *parameter;
    } numbers[] = {{FB_OP_ADD, "input"}, {FB_OP_ADD, "other"}, {FB_OP_CLAMP, "min"}, {FB_OP_CLAMP_MIN, "min"}};
    for (size_t i = 0; i < f->count; i++) {
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            double eps;
            if (!fb_op_is(g, f->calls[i], numbers[k].op)) continue;
            fb_value number = fb_call_argument(g, f->calls[i], numbers[k].parameter);
            if (number.id && fb_constant_number(g, number, &eps) && eps >= 0 && eps <= 1)
                consider_epsilon(s, f, eps, numbers[k].op != FB_OP_ADD);
        }
    }
}

static bool try(void *context, const fb_formula *f) {
    search *s = context;
    const fb_graph *g = s->formulas.matcher->graph;
    if (!f->axes || !fb_matcher_goes_on(s->formulas.matcher)) return false;
    if (has_call(g, f, FB_OP_EXP) || has_call(g, f, FB_OP_LOGSUMEXP)) consider_softmax(s, f);
    else consider_norm(s, f);
    return s->best.verdict == FB_FORMULA_IS_SAME && s->best.substitute.op != FB_OP_RMS_NORM;
}

/* ---- what goes with it --------------------------------------------------------------------------------------------------- */

/* The only reader of the formula's result, or none. */
static fb_node reader_of(const fb_graph *g, const fb_formula *f) {
    fb_node result = f->calls[f->count - 1];
    return fb_node_at(g, result)->user_count == 1 ? fb_edge_user(g, fb_user_first(g, result)) : (fb_node){0};
}

/* The formula with the casts around it, where that computes the same. */
static void take_casts(search *s, fb_node reader) {
    found inner = s->best;
    s->best.verdict = FB_FORMULA_DIFFERS;
    fb_formula_visit(s->formulas.matcher->graph, reader, try, s);
    const found *outer = &s->best;
    bool is_larger = outer->verdict == FB_FORMULA_IS_SAME && outer->formula.count > inner.formula.count &&
                     !fb_formula_obstacle(s->formulas.matcher, &outer->formula).code;
    if (!is_larger) s->best = inner;
}

/* The factor or addend that the reader joins to the formula's result, where it has the sizes and the dtype of the norm. */
static fb_value take_vector(search *s, fb_op op) {
    const fb_graph *g = s->formulas.matcher->graph;
    fb_formula *f = &s->best.formula;
    fb_node reader = reader_of(g, f), result = f->calls[f->count - 1];
    if (!reader.id || !fb_op_is(g, reader, op) || f->count == FB_FORMULA_CALLS) return (fb_value){0};
    fb_value a, b;
    if (!fb_two_operands(g, reader, &a, &b)) return (fb_value){0};
    fb_value vector = fb_value_node(g, a).id == result.id ? b : a;
    fb_node node = fb_value_node(g, vector);
    fb_shape_result shape;
    if (!node.id || node.id == result.id || !fb_recorded_shape(g, node, &shape)) return (fb_value){0};
    const fb_node_row *row = fb_node_at(g, reader), *before = fb_node_at(g, result);
    bool fits = shape.dtype == (fb_dtype)before->dtype && shape.rank == s->best.substitute.shape_rank &&
                row->shape.id == before->shape.id && row->dtype == before->dtype;
    for (int i = 0; i < shape.rank && fits; i++) fits = fb_dim_is(shape.sizes[i], s->best.substitute.shape[i]);
    if (!fits) return (fb_value){0};
    f->calls[f->count++] = reader;
    return vector;
}

/* float16 and bfloat16 are rounded between the norm and its weight. */
static bool is_wide(const fb_graph *g, fb_node n) {
    fb_dtype dtype = (fb_dtype)fb_node_at(g, n)->dtype;
    return dtype == FB_FLOAT32 || dtype == FB_FLOAT64;
}

static void extend(search *s) {
    const fb_graph *g = s->formulas.matcher->graph;
    fb_node reader = reader_of(g, &s->best.formula);
    if (reader.id && fb_formula_is_cast(g, reader)) take_casts(s, reader);
    if (!s->best.substitute.shape_rank || !is_wide(g, s->best.formula.calls[s->best.formula.count - 1])) return;
    s->best.weight = take_vector(s, FB_OP_MUL);
    if (s->best.weight.id && s->best.substitute.op == FB_OP_LAYER_NORM) s->best.bias = take_vector(s, FB_OP_ADD);
}

/* ---- match and edit ----------------------------------------------------------------------------------------------------- */

/* The operators give a result that is contiguous, but F.normalize one with its input's strides, as a quotient x / n has; the
 * strides of n * x are another matter. */
static fb_obstacle layout_obstacle(const fb_graph *g, const fb_formula *f, fb_op op) {
    fb_node first = fb_value_node(g, fb_first_argument(g, f->calls[f->count - 1]));
    bool keeps_layout = op == FB_OP_NORMALIZE && first.id == f->input.id;
    return !keeps_layout && fb_layout_is_read(g, f->calls[f->count - 1]) && !fb_is_contiguous(g, f->input)
               ? (fb_obstacle){"needs-contiguous",
                               "a reader may need the result as it lies in memory, in the order of the input"}
               : FB_NO_OBSTACLE;
}

/* Checks what the gradient needs: the call's arguments besides its input, and its result. */
static fb_obstacle gradient_obstacle(fb_matcher *m, const found *f) {
    fb_node result = f->formula.calls[f->formula.count - 1];
    const fb_value vectors[] = {f->weight, f->bias};
    bool saves_result = fb_op_facts_of(f->substitute.op)->flags & FB_FACT_SAVES_RESULT;
    fb_obstacle obstacle = saves_result ? fb_gradient_obstacle(m, result, result) : FB_NO_OBSTACLE;
    for (size_t i = 0; i < 2 && !obstacle.code; i++) {
        if (vectors[i].id) obstacle = fb_gradient_obstacle(m, fb_value_node(m->graph, vectors[i]), result);
    }
    return obstacle;
}

static void look(void *context, fb_node n) {
    search *s = context;
    fb_matcher *m = s->formulas.matcher;
    const fb_formula *f = &s->best.formula;
    s->best = (found){0};
    fb_formula_visit(m->graph, n, try, s);
    if (s->best.verdict == FB_FORMULA_DIFFERS || fb_is_marked(m, f->calls[f->count - 1])) return;
    if (fb_formula_is_refused(m, f, s->best.verdict, &s->best.substitute)) return;
    extend(s);
    fb_obstacle obstacle = fb_formula_obstacle(m, f);
    if (!obstacle.code) obstacle = gradient_obstacle(m, &s->best);
    if (!obstacle.code) obstacle = layout_obstacle(m->graph, f, s->best.substitute.op);
    if (obstacle.code) fb_refuse_for(m, obstacle, f->calls, f->count);
    else if (!fb_substitute_is_refused(m, f->calls[f->count - 1], &s->best.substitute))
        fb_match_found_as(m, &s->best, sizeof s->best);
}

static bool may_end_at(fb_op op) {
    return op == FB_OP_MUL || fb_op_may_be_division(op) || op == FB_OP_SUB || op == FB_OP_LOG;
}

static void match_graph(fb_matcher *m) {
    search s = {0};
    fb_formulas_search(&s.formulas, m, may_end_at, look, &s);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const found *f = match->data;
    fb_formula_replace(rw, &f->formula, &f->substitute, f->weight, f->bias);
}

const fb_pass fb_fuse_norm = {
    .name = "FuseNorm",
    .version = 1,
    .summary = "Replaces LayerNorm, RMSNorm, softmax, log-softmax or `F.normalize` that is spelled out with one call.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
