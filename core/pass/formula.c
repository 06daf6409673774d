#include "core/pass/formula.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/analysis/same_call.h"
#include "core/analysis/shape.h"
#include "core/evaluator/evaluator.h"
#include "core/graph/build.h"
#include "core/operators/spelling.h"
#include "core/pass/layer.h"

/* ---- growing ------------------------------------------------------------------------------------------------------------- */

static bool is_cast(fb_op op) {
    const fb_op_facts *facts = fb_op_facts_of(op);
    bool casts =
        facts->dtype == FB_DTYPE_RULE_CAST || (facts->dtype >= FB_DTYPE_RULE_FLOAT16 && facts->dtype <= FB_DTYPE_RULE_FLOAT64);
    return op == FB_OP_TO_COPY || (facts->shape == FB_SHAPE_SAME && casts);
}

/* May the call belong to a formula? Not one that gives bools or integers: a formula that chooses by a comparison may be another
 * function between the samples. */
static bool is_step(const fb_graph *g, fb_node n) {
    fb_op op = fb_node_op(g, n);
    const fb_op_facts *facts = fb_op_facts_of(op);
    fb_dtype dtype = (fb_dtype)fb_node_at(g, n)->dtype;
    bool keeps_rows = (facts->flags & FB_FACT_ELEMENTWISE) || op == FB_OP_EXPAND_AS || is_cast(op) || fb_is_reduction(g, n);
    return op && (!dtype || fb_dtype_is_floating(dtype)) && fb_op_is_pure(g, n) && fb_input_first(g, n) &&
           !fb_is_python_number(g, n) && keeps_rows;
}

bool fb_formula_is_cast(const fb_graph *g, fb_node n) {
    return is_step(g, n) && is_cast(fb_node_op(g, n));
}

/* The axes of a reduction that keeps them, which are those of the others as well. */
static bool add_axes(const fb_graph *g, fb_node n, int rank, uint32_t *axes) {
    uint32_t found;
    bool keeps_them;
    if (!fb_reduction_axes(g, n, rank, &found, &keeps_them) || !keeps_them || (*axes && *axes != found)) return false;
    *axes = found;
    return true;
}

#define RANK_ASSUMED 4

static bool measure(const fb_graph *g, fb_formula *f) {
    f->rank = fb_node_rank(g, f->input);
    f->axes = 0;
    if (f->rank < 0) f->rank = RANK_ASSUMED;
    for (size_t i = 0; i < f->count; i++) {
        if (fb_is_reduction(g, f->calls[i]) && !add_axes(g, f->calls[i], f->rank, &f->axes)) return false;
    }
    return f->rank > 0 && f->rank <= FB_MAX_RANK;
}

/* Takes the last of some nodes out. */
static fb_node take_last(const fb_graph *g, fb_node *nodes, size_t *count) {
    size_t last = 0;
    for (size_t i = 1; i < *count; i++) {
        if (fb_node_at(g, nodes[i])->ordinal > fb_node_at(g, nodes[last])->ordinal) last = i;
    }
    fb_node node = nodes[last];
    nodes[last] = nodes[--*count];
    return node;
}

static bool add_node(fb_node *nodes, size_t *count, fb_node node) {
    size_t i = 0;
    while (i < *count && nodes[i].id != node.id) i++;
    if (i == FB_FORMULA_CALLS) return false;
    nodes[i] = node;
    if (i == *count) ++*count;
    return true;
}

/* Does the call read the node as a number, or as the axes of a reduction? */
static bool is_number(const fb_graph *g, fb_node call, fb_node input) {
    double number;
    const fb_value value = {input.id | FB_VALUE_IS_NODE};
    if (!fb_graph_is_onnx(g)) return false;
    bool is_option = fb_is_reduction(g, call) && fb_value_node(g, fb_first_argument(g, call)).id != input.id;
    return is_option || fb_constant_number(g, value, &number);
}

static bool add_inputs(const fb_graph *g, fb_node n, fb_node *nodes, size_t *count, fb_formula *f) {
    for (uint32_t e = fb_input_first(g, n); e; e = fb_input_next(g, e)) {
        fb_node input = fb_edge_input(g, e);
        bool is_added = is_number(g, n, input) ? add_node(f->numbers, &f->number_count, input) : add_node(nodes, count, input);
        if (!is_added) return false;
    }
    return true;
}

/* From the result backwards, always the last node of those that are read: where one alone is left, all is computed from it. */
bool fb_formula_visit(const fb_graph *g, fb_node result, bool (*visit)(void *, const fb_formula *), void *context) {
    fb_node open[FB_FORMULA_CALLS] = {result}, taken[FB_FORMULA_CALLS];
    size_t open_count = 1;
    fb_formula f = {0};
    while (open_count) {
        fb_node n = take_last(g, open, &open_count);
        f.input = n;
        for (size_t i = 0; i < f.count; i++) f.calls[i] = taken[f.count - 1 - i];
        bool is_alone = !open_count && f.count && !fb_is_python_number(g, n);
        if (is_alone && measure(g, &f) && visit(context, &f)) return true;
        if (f.count == FB_FORMULA_CALLS || !is_step(g, n) || !add_inputs(g, n, open, &open_count, &f)) return false;
        taken[f.count++] = n;
    }
    return false;
}

/* ---- samples ------------------------------------------------------------------------------------------------------------- */

typedef enum sample_kind { SMOOTH, EXTREME } sample_kind;

#define COUNT_MAX ((int64_t)1 << 22) /* of a sample */
#define ELEMENTS 1024                /* of a formula that works element by element */
#define ROWS 24                      /* of one that reduces */
#define CLOSE_FROM 6                 /* a row: the scales below are those that show a norm's epsilon */

/* The sample that all evaluations of one comparison share. */
typedef struct sample {
    int rank;
    int64_t sizes[FB_MAX_RANK], count;
    int64_t rows, inner; /* element i belongs to row i / inner % rows */
    bool has_axes;
    double bound; /* of a norm; or 0 */
    fb_dtype dtype;
    sample_kind kind;
} sample;

static bool sample_of(const fb_graph *g, const fb_formula *f, sample *s) {
    const fb_node_row *row = fb_node_at(g, f->input);
    int across = -1;
    *s = (sample){.rank = f->rank, .count = 1, .inner = 1, .has_axes = f->axes != 0};
    s->dtype = row->dtype ? (fb_dtype)row->dtype : FB_FLOAT32;
    for (int i = 0; i < f->rank; i++) {
        bool is_reduced = f->axes >> i & 1;
        int64_t size = row->shape.id ? fb_shape_size(g, row->shape, i) : -1;
        s->sizes[i] = !is_reduced ? 1 + (f->axes != 0) : size > 0 ? size : FB_FORMULA_SIZE;
        if (!is_reduced && across < 0) across = i;
    }
    if (across < 0) return false;
    s->sizes[across] = s->rows = f->axes ? ROWS : ELEMENTS;
    for (int i = 0; i < f->rank; i++) {
        if (__builtin_mul_overflow(s->count, s->sizes[i], &s->count)) return false;
        if (i > across) s->inner *= s->sizes[i];
    }
    return fb_dtype_is_computed(s->dtype);
}

/* Between -1.7 and 1.7, the same everywhere. */
static double noise(int64_t i) {
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (double)(x >> 11) / (double)((uint64_t)1 << 53) * 3.4 - 1.7;
}

/* The largest number of a dtype whose square, or 6 times which, is still one. */
static double largest_of(fb_dtype dtype, bool has_axes) {
    if (dtype == FB_FLOAT16) return has_axes ? 1e4 : 8e3;
    if (dtype == FB_FLOAT64) return has_axes ? 1e150 : DBL_MAX / 8;
    return has_axes ? 1e15 : (double)FLT_MAX / 8;
}

static double number_of(const sample *s, int64_t row) {
    static const double special[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1e-7, -1e-7, 6e4, -6e4};
    const int64_t half = ELEMENTS / 2, specials = sizeof special / sizeof *special;
    if (row < half) return -12 + 24.0 * (double)row / (double)half + 0.01 * noise(row);
    if (s->kind == SMOOTH) return 30 * noise(row) / 1.7;
    if (row < half + specials) return special[row - half];
    double largest = largest_of(s->dtype, false);
    return (row & 1 ? 1 : -1) * pow(largest, (double)(row - half) / (double)(half - 1));
}

static double number_in_row(const sample *s, int64_t row, int64_t i) {
    static const double scales[] = {1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 30}, offsets[] = {0, 0.5, 3};
    if (s->kind == SMOOTH && s->bound > 0 && row <= CLOSE_FROM) /* norms on both sides of it */
        return s->bound / sqrt((double)s->count / (double)s->rows) * pow(10, (double)row / 2 - 2) * noise(i);
    if (s->kind == SMOOTH) return scales[row % 10] * (noise(i) + offsets[row / 10]);
    double largest = largest_of(s->dtype, true);
    switch (row) {
    case 0: return 0;
    case 1: return 7;
    case 2: return -300;
    case 3: return i % 5 ? noise(i) : INFINITY;
    case 4: return i % 5 ? noise(i) : -INFINITY;
    case 5: return -INFINITY;
    case 6: return i % 5 ? noise(i) : NAN;
    case 7: return i % 3 ? noise(i) : i % 2 ? INFINITY : -INFINITY;
    default: return noise(i) * pow(largest, (double)(row - 15) / 8); /* from 1 / largest to it */
    }
}

static int64_t row_of(const sample *s, int64_t i) {
    return i / s->inner % s->rows;
}

static double sample_number(const sample *s, int64_t i) {
    return s->has_axes ? number_in_row(s, row_of(s, i), i) : number_of(s, row_of(s, i));
}

/* ---- evaluating ---------------------------------------------------------------------------------------------------------- */

typedef struct run {
    const sample *sample;
    fb_array_memory memory;
    fb_node input, result;
    const fb_node *calls, *constants;
    size_t count, constant_count;
    double *numbers; /* the result, as long as the sample; and the input as it was rounded */
    double *given;
    bool is_whole;
} run;

static bool is_wanted(void *context, fb_node node) {
    const run *r = context;
    for (size_t i = 0; i < r->count; i++) {
        if (r->calls[i].id == node.id) return true;
    }
    for (size_t i = 0; i < r->constant_count; i++) {
        if (r->constants[i].id == node.id) return true;
    }
    return false;
}

static fb_status give(void *context, fb_node node, fb_object *out, fb_error *error) {
    run *r = context;
    const sample *s = r->sample;
    if (node.id != r->input.id) return fb_fail(error, FB_INVALID, "missing-input", NULL, "not the formula's input");
    fb_status status = fb_array_new(&r->memory, s->dtype, s->rank, s->sizes, &out->array, error);
    if (status) return status;
    out->kind = FB_OBJECT_ARRAY;
    for (int64_t i = 0; i < s->count; i++) fb_array_put(out->array, i, sample_number(s, i));
    if (out->array->held == FB_HELD_DOUBLE) fb_array_round_values(out->array);
    else fb_array_round(out->array);
    for (int64_t i = 0; i < s->count; i++) r->given[i] = fb_array_get(out->array, i);
    return FB_OK;
}

static fb_status keep(void *context, fb_node node, const fb_object *object, fb_error *error) {
    run *r = context;
    (void)error;
    if (node.id != r->result.id || object->kind != FB_OBJECT_ARRAY) return FB_OK;
    const fb_array *array = object->array;
    bool fits = array->rank == r->sample->rank && array->dtype == r->sample->dtype;
    for (int i = 0; i < array->rank && fits; i++) fits = array->sizes[i] == r->sample->sizes[i];
    for (int64_t i = 0; i < r->sample->count && fits; i++) r->numbers[i] = fb_array_number(array, i);
    r->is_whole = fits;
    return FB_OK;
}

/* False: it cannot be evaluated, or gives something of another type than its input. */
static bool evaluate(fb_matcher *m, const fb_graph *g, run *r) {
    fb_eval_options options = {.precision = r->sample->kind == SMOOTH ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED,
                               .watch = m->work->watch};
    fb_eval_hooks hooks = {.context = r, .wanted = is_wanted, .given = give, .computed = keep};
    fb_object output = {.kind = FB_OBJECT_NONE};
    fb_error error = {0};
    fb_status status = fb_evaluate_graph(g, &options, &hooks, &r->memory, &output, &error);
    if (status == FB_NO_MEMORY) m->failed = true;
    fb_object_drop(&output);
    return !status && r->is_whole;
}

/* ---- the operator -------------------------------------------------------------------------------------------------------- */

/* The operator alone, in a graph of its own: nodes 1 and 2. */
static fb_graph *graph_of(const fb_substitute *s, fb_node *input, fb_node *call) {
    fb_graph *g = fb_graph_new();
    fb_value args, kwargs, none = {0};
    if (!g) return NULL;
    *input = fb_graph_add_node(g, FB_MAIN_PROGRAM, fb_intern(g, "x"), (fb_node){0});
    *call = fb_graph_add_node(g, FB_MAIN_PROGRAM, fb_intern(g, "y"), (fb_node){0});
    bool is_ok = input->id && call->id;
    if (is_ok) {
        fb_substitute_args(g, *call, s, fb_make_node(g, *input), none, none, &args, &kwargs);
        fb_graph_set_target(g, *input, FB_PLACEHOLDER, fb_intern(g, "x"));
        fb_graph_set_target(g, *call, FB_CALL_FUNCTION, fb_intern(g, fb_made_function(s->made)));
        is_ok = fb_graph_set_args(g, *call, args, kwargs) && !fb_graph_out_of_memory(g);
    }
    if (is_ok) return g;
    fb_graph_free(g);
    return NULL;
}

/* ---- comparing ----------------------------------------------------------------------------------------------------------- */

static fb_dtype narrowest_of(const fb_graph *g, const fb_formula *f) {
    fb_dtype dtype = (fb_dtype)fb_node_at(g, f->input)->dtype;
    if (!dtype) dtype = FB_FLOAT32;
    for (size_t i = 0; i < f->count; i++) {
        fb_dtype own = (fb_dtype)fb_node_at(g, f->calls[i])->dtype;
        if (own) dtype = fb_narrower_dtype(dtype, own);
    }
    return dtype;
}

/* The tolerance for constants: they are Python's numbers, which meet tensors of the dtype. For float16 numbers in float32. */
static double tolerance_of(const sample *s, fb_dtype narrowest) {
    if (s->kind == EXTREME) return fb_tolerance_of(narrowest, false).relative;
    return s->dtype == FB_FLOAT64 ? 0x1p-44 : 0x1p-26;
}

#define CLOSE 0.03

/* The largest magnitude in each row, of the numbers and, element by element, of what they are computed from. */
static void measure_rows(const sample *s, const double *numbers, const double *given, double *largest) {
    for (int64_t i = 0; i < s->rows; i++) largest[i] = 0;
    for (int64_t i = 0; i < s->count; i++) {
        double *at = &largest[row_of(s, i)];
        if (isfinite(numbers[i])) *at = fmax(*at, fabs(numbers[i]));
        if (!s->has_axes && isfinite(given[i])) *at = fmax(*at, fabs(given[i]));
    }
}

static fb_formula_verdict judge(const sample *s, double tolerance, const double *formula, const double *operator_,
                                const double *given, double *largest) {
    bool is_same = true, is_close = s->kind == SMOOTH;
    measure_rows(s, operator_, given, largest);
    for (int64_t i = 0; i < s->count; i++) {
        double a = formula[i], b = operator_[i];
        if (a == b || (isnan(a) && isnan(b))) continue;
        int64_t row = row_of(s, i);
        double apart = isfinite(a) && isfinite(b) ? fabs(a - b) : INFINITY;
        is_same &= apart <= tolerance * largest[row];
        if (!s->has_axes || row % 10 > CLOSE_FROM) is_close &= apart <= CLOSE * (s->has_axes ? largest[row] : 1);
    }
    return is_same ? FB_FORMULA_IS_SAME : is_close ? FB_FORMULA_IS_CLOSE : FB_FORMULA_DIFFERS;
}

static fb_formula_verdict compare_on(fb_matcher *m, const fb_formula *f, const fb_substitute *substitute, const sample *s) {
    fb_formula_verdict verdict = FB_FORMULA_DIFFERS;
    fb_node input, call;
    fb_graph *alone = graph_of(substitute, &input, &call);
    double *numbers = calloc((size_t)s->count * 3 + (size_t)s->rows, sizeof *numbers);
    m->failed |= !alone || !numbers;
    if (!m->failed && fb_matcher_takes(m, ELEMENTS)) {
        double *other = numbers + s->count, *given = other + s->count;
        run of_formula = {.sample = s,
                          .input = f->input,
                          .result = f->calls[f->count - 1],
                          .calls = f->calls,
                          .count = f->count,
                          .constants = f->numbers,
                          .constant_count = f->number_count,
                          .numbers = numbers,
                          .given = given};
        run of_operator = {
            .sample = s, .input = input, .result = call, .calls = &call, .count = 1, .numbers = other, .given = given};
        if (evaluate(m, m->graph, &of_formula) && evaluate(m, alone, &of_operator))
            verdict = judge(s, tolerance_of(s, narrowest_of(m->graph, f)), numbers, other, given, given + s->count);
    }
    free(numbers);
    fb_graph_free(alone);
    return verdict;
}

static fb_formula_verdict compare(fb_matcher *m, const fb_formula *f, const fb_substitute *substitute) {
    sample s;
    if (!sample_of(m->graph, f, &s)) return FB_FORMULA_DIFFERS;
    if (s.count > COUNT_MAX) return FB_FORMULA_IS_UNKNOWN;
    if (substitute->op == FB_OP_NORMALIZE) s.bound = substitute->eps;
    s.kind = SMOOTH;
    fb_formula_verdict verdict = compare_on(m, f, substitute, &s);
    if (verdict != FB_FORMULA_IS_SAME) return verdict;
    s.kind = EXTREME;
    return compare_on(m, f, substitute, &s) == FB_FORMULA_IS_SAME ? FB_FORMULA_IS_SAME : FB_FORMULA_OVERFLOWS;
}

/* ---- what was found before ----------------------------------------------------------------------------------------------- */

typedef struct comparison {
    fb_formula formula;
    fb_substitute substitute;
    fb_formula_verdict verdict;
} comparison;

#define LOOKED_AT 64 /* earlier comparisons */

void fb_formulas_search(fb_formulas *formulas, fb_matcher *matcher, bool (*may_end_at)(fb_op), void (*look)(void *, fb_node),
                        void *context) {
    const fb_graph *g = matcher->graph;
    *formulas = (fb_formulas){.matcher = matcher, .now = calloc(fb_node_limit(g), sizeof(fb_node))};
    matcher->failed |= !formulas->now;
    fb_candidates all = {.matcher = matcher, .begins_at = may_end_at};
    for (fb_node n; (n = fb_next_candidate(&all)).id;) look(context, n);
    fb_buffer_free(&formulas->found);
    free(formulas->now);
}

bool fb_formula_is_refused(fb_matcher *m, const fb_formula *formula, fb_formula_verdict verdict,
                           const fb_substitute *substitute) {
    fb_node result = formula->calls[formula->count - 1];
    const char *name = substitute->word ? substitute->word : fb_op_facts_of(substitute->op)->names;
    if (verdict == FB_FORMULA_IS_UNKNOWN) {
        fb_refuse_for(m, FB_FORMULA_NOT_COMPARED, &result, 1);
    } else if (verdict == FB_FORMULA_IS_CLOSE) {
        fb_refuse_node(m, "another-function", result, "it is near %s, but another function", name);
    } else if (verdict == FB_FORMULA_OVERFLOWS) {
        fb_refuse_node(m, "overflows", result, "it is %s, but gives something else for numbers that are large or not finite",
                       name);
    }
    return verdict != FB_FORMULA_IS_SAME;
}

static bool are_same_substitutes(const fb_substitute *a, const fb_substitute *b) {
    bool same = a->op == b->op && a->word == b->word && a->shape_rank == b->shape_rank && a->has_axis == b->has_axis &&
                a->has_eps == b->has_eps && a->axis == b->axis && a->eps == b->eps;
    for (int i = 0; i < a->shape_rank && same; i++) same = a->shape[i] == b->shape[i];
    return same;
}

/* The same calls with the same numbers, of inputs of the same type. */
static bool are_same_constants(const fb_graph *g, fb_node a, fb_node b) {
    const fb_node reads[] = {a, b};
    const fb_tensor_row *rows[2];
    for (size_t i = 0; i < 2; i++) {
        const fb_node_row *row = fb_node_at(g, reads[i]);
        fb_tensor tensor = row->attribute.id ? fb_module_tensor(g, row->module, fb_text(g, row->attribute)) : (fb_tensor){0};
        rows[i] = tensor.id ? fb_tensor_at(g, tensor) : NULL;
    }
    return a.id == b.id || (rows[0] && rows[1] && rows[0]->data.id && rows[0]->data.id == rows[1]->data.id &&
                            rows[0]->dtype == rows[1]->dtype && rows[0]->shape.id == rows[1]->shape.id);
}

static bool are_same_formulas(const fb_formulas *all, const fb_formula *a, const fb_formula *b) {
    const fb_graph *g = all->matcher->graph;
    const fb_node_row *one = fb_node_at(g, a->input), *other = fb_node_at(g, b->input);
    fb_same_call same = {.graph = g, .now = all->now};
    bool are = a->count == b->count && one->shape.id == other->shape.id && one->dtype == other->dtype &&
               a->number_count == b->number_count;
    for (size_t i = 0; i < a->number_count && are; i++) are = are_same_constants(g, a->numbers[i], b->numbers[i]);
    if (!are) return false;
    all->now[b->input.id] = a->input;
    for (size_t i = 0; i < b->number_count; i++) all->now[b->numbers[i].id] = a->numbers[i];
    for (size_t i = 0; i < b->count; i++) all->now[b->calls[i].id] = a->calls[i];
    for (size_t i = 0; i < a->count && are; i++) are = fb_calls_are_same(&same, a->calls[i], b->calls[i]);
    all->now[b->input.id] = (fb_node){0};
    for (size_t i = 0; i < b->count; i++) all->now[b->calls[i].id] = (fb_node){0};
    for (size_t i = 0; i < b->number_count; i++) all->now[b->numbers[i].id] = (fb_node){0};
    return are;
}

fb_formula_verdict fb_formula_compare(fb_formulas *formulas, const fb_formula *formula, const fb_substitute *substitute) {
    const comparison *found = (const comparison *)(const void *)formulas->found.data;
    size_t count = formulas->found.size / sizeof *found;
    for (size_t i = count; i > 0 && i + LOOKED_AT > count; i--) {
        if (are_same_substitutes(&found[i - 1].substitute, substitute) &&
            are_same_formulas(formulas, &found[i - 1].formula, formula))
            return found[i - 1].verdict;
    }
    if (count == FB_FORMULAS_MAX) return FB_FORMULA_IS_UNKNOWN;
    comparison made = {*formula, *substitute, compare(formulas->matcher, formula, substitute)};
    fb_buffer_append(&formulas->found, &made, sizeof made);
    formulas->matcher->failed |= formulas->found.failed;
    return made.verdict;
}

/* ---- for `match` and `edit` ---------------------------------------------------------------------------------------------- */

static bool is_inside(const fb_formula *f, fb_node n) {
    for (size_t i = 0; i < f->count; i++) {
        if (f->calls[i].id == n.id) return true;
    }
    return false;
}

fb_obstacle fb_formula_obstacle(fb_matcher *m, const fb_formula *f) {
    const fb_graph *g = m->graph;
    const fb_node_row *input = fb_node_at(g, f->input), *result = fb_node_at(g, f->calls[f->count - 1]);
    for (size_t i = 0; i + 1 < f->count; i++) {
        for (uint32_t e = fb_user_first(g, f->calls[i]); e; e = fb_user_next(g, e)) {
            if (!is_inside(f, fb_edge_user(g, e)))
                return (fb_obstacle){"other-readers", "a value in the middle of the formula is read by others, too"};
        }
    }
    for (size_t i = 0; i < f->count; i++) {
        fb_obstacle obstacle = fb_named_obstacle(g, f->calls[i]);
        if (obstacle.code) return obstacle;
    }
    bool is_typed = input->dtype;
    for (size_t i = 0; i < f->count; i++) is_typed &= fb_node_at(g, f->calls[i])->dtype != FB_DTYPE_UNKNOWN;
    if (!is_typed)
        return (fb_obstacle){"unknown-dtype", "the dtypes of its input and calls are not all recorded" FB_RECORD_DTYPE};
    if (f->axes && (!input->shape.id || !result->shape.id))
        return (fb_obstacle){"unknown-shape", "the shape of its input or result is not recorded" FB_RECORD_SHAPE};
    if (input->dtype != result->dtype || (input->shape.id && result->shape.id && input->shape.id != result->shape.id))
        return (fb_obstacle){"type-changes", "its result has another shape or dtype than its input"};
    fb_obstacle disturbance = fb_disturbance(m, f->calls, f->count);
    return disturbance.code ? disturbance : fb_gradient_obstacle(m, f->input, f->calls[f->count - 1]);
}

void fb_formula_replace(fb_rewrite *rw, const fb_formula *f, const fb_substitute *s, fb_value weight, fb_value bias) {
    fb_node result = f->calls[f->count - 1];
    for (size_t i = 0; i + 1 < f->count; i++) fb_erase_unread(rw, f->calls[i]);
    fb_build_substitute(rw, result, s, fb_make_node(fb_rewrite_graph(rw), f->input), weight, bias);
    fb_infer_result_type(rw, result);
    fb_mark(rw, result);
}
