/* FuseActivation: an activation that is spelled out becomes one call.
 *
 *     x ──┬── 0.5 * x ─────────────────────────────────┬── mul ── y          x ── gelu(approximate="tanh") ── y
 *         └── √(2/π) * (x + 0.044715 x³) ── tanh ── + 1┘
 *
 * GELU with erf or tanh, SiLU, Mish and Hardswish, however they are written: the formula is compared with the operator by what
 * the two compute, in float64 and in its own dtype. So x * sigmoid(1.702 x) is refused: it is near GELU, and another function.
 * Refused as well: a formula that overflows where the operator does not (hardswish as x * relu6(x + 3) / 6 in float16), one
 * that others read a part of, and one whose input is written in between, or later: the operator keeps it for its gradient.
 * PyTorch's own gelu of +inf is inf or nan on a CPU, as its vector instructions have it.
 *
 * In ONNX the calls are Gelu (opset 20), Swish (24, and no later one, as ONNX Runtime has no kernel there), Mish (18) and
 * HardSwish (14); an older model is refused, and so is float64, which runtimes do not have. Exactness: rounds. Reversible.
 */
#include "core/pass/formula.h"

static const fb_substitute activations[] = {
    {FB_SUBSTITUTE(GELU)},       {FB_SUBSTITUTE(GELU), .option = "approximate", .word = "tanh"},
    {FB_SUBSTITUTE(SILU)},       {FB_SUBSTITUTE(MISH)},
    {FB_SUBSTITUTE(HARD_SWISH)},
};

#define ACTIVATIONS (sizeof activations / sizeof *activations)

/* The data of a match that its edit needs. */
typedef struct found {
    fb_formula formula;
    size_t activation;
} found;

typedef struct search {
    fb_formulas formulas;
    fb_formula_verdict verdict; /* the best so far */
    found best;
} search;

/* A product or quotient that is more than arithmetic; each of these activations is one. */
static bool may_be_activation(const fb_graph *g, const fb_formula *f) {
    bool is_more = false;
    for (size_t i = 0; i < f->count; i++) {
        fb_op op = fb_node_op(g, f->calls[i]);
        is_more |= op != FB_OP_DIV && !(fb_op_facts_of(op)->flags & FB_FACT_MAYBE_NUMBER);
    }
    return is_more && !f->axes;
}

static bool try(void *context, const fb_formula *f) {
    search *s = context;
    if (!may_be_activation(s->formulas.matcher->graph, f)) return false;
    for (size_t i = 0; i < ACTIVATIONS && fb_matcher_goes_on(s->formulas.matcher); i++) {
        fb_formula_verdict verdict = fb_formula_compare(&s->formulas, f, &activations[i]);
        if (verdict <= s->verdict) continue;
        s->verdict = verdict;
        s->best = (found){*f, i};
    }
    return s->verdict == FB_FORMULA_IS_SAME;
}

static void look(void *context, fb_node n) {
    search *s = context;
    fb_matcher *m = s->formulas.matcher;
    const fb_formula *f = &s->best.formula;
    s->verdict = FB_FORMULA_DIFFERS;
    fb_formula_visit(m->graph, n, try, s);
    if (s->verdict == FB_FORMULA_DIFFERS || fb_is_marked(m, f->calls[f->count - 1])) return;
    if (fb_formula_is_refused(m, f, s->verdict, &activations[s->best.activation])) return;
    fb_obstacle obstacle = fb_formula_obstacle(m, f);
    if (obstacle.code) fb_refuse_for(m, obstacle, f->calls, f->count);
    else if (!fb_substitute_is_refused(m, f->calls[f->count - 1], &activations[s->best.activation]))
        fb_match_found_as(m, &s->best, sizeof s->best);
}

static bool may_end_at(fb_op op) {
    return op == FB_OP_MUL || fb_op_may_be_division(op);
}

static void match_graph(fb_matcher *m) {
    search s = {0};
    fb_formulas_search(&s.formulas, m, may_end_at, look, &s);
}

static void edit(fb_rewrite *rw, const fb_match *match) {
    const found *f = match->data;
    fb_formula_replace(rw, &f->formula, &activations[f->activation], (fb_value){0}, (fb_value){0});
}

const fb_pass fb_fuse_activation = {
    .name = "FuseActivation",
    .version = 1,
    .summary = "Replaces GELU, SiLU, Mish or Hardswish that is spelled out with one call, however it is written.",
    .parameters = FB_NO_PARAMETERS,
    .exactness = FB_ROUNDS,
    .gain = FB_GAIN_FEWER_NODES,
    .reversible = true,
    .preserves_computation = true,
    .reads_onnx = true,
    .match_graph = match_graph,
    .edit = edit,
};
