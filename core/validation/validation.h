/* Validation: that a rewrite computes the same, shown by numbers.
 *
 * Two graphs are compared value by value on the same inputs. The nodes of both are paired by name. */
#ifndef FB_VALIDATION_VALIDATION_H
#define FB_VALIDATION_VALIDATION_H

#include "core/evaluator/evaluator.h"
#include "core/validation/samples.h"

/* How far a value is from another, over all its elements. Equal NaNs and equal infinities differ by 0; one alone by infinity.
 */
typedef struct fb_difference {
    double absolute; /* max |a - b| */
    double relative; /* max |a - b| / max |b| over the whole value; 0 when both are 0 */
    double ulp; /* max |a - b| in units in the last place of b's dtype at max(|b|, max |b| × 2^-8): small elements of a sum
                 * of large terms are not held against it */
    uint64_t elements;
    int64_t worst; /* row-major index of the element of the absolute maximum */
} fb_difference;

/* `a` and `b` of the same sizes; otherwise false. */
bool fb_compare_arrays(const fb_array *a, const fb_array *b, fb_difference *out);

/* The root of Σ |a - b|² / Σ |b|²; 0 when both are the same. `a` and `b` of the same sizes, both complex or neither. */
double fb_rms_difference(const fb_array *a, const fb_array *b);

/* `exact` is what `b` is in float64. Does the dtype of `b` hide how far `a` is from it: is an element infinite or nan in `b`
 * that is finite in `exact`, or is there none that is finite? Not where `a` lost one that is finite in `b`. All of the same
 * sizes. */
bool fb_overflow_hides(const fb_array *a, const fb_array *b, const fb_array *exact);
/* The deviations that are tried in turn where it does, and their number; the first is 1. */
#define FB_DEVIATIONS 4
double fb_deviation(int attempt);

/* Both together: the larger of each member, all elements. */
void fb_difference_join(fb_difference *worst, const fb_difference *other);

bool fb_difference_passes(const fb_difference *difference, double largest, const fb_tolerance *tolerance);
double fb_largest_magnitude(const fb_array *array);

/* ---- two graphs on the same inputs -------------------------------------------------------------------------------------- */

typedef struct fb_output_comparison {
    const char *name; /* "output.0" */
    fb_dtype dtype;
    fb_difference between;          /* a and b */
    fb_difference a_exact, b_exact; /* each against itself in float64 */
    bool passes;
    bool is_hidden; /* fb_overflow_hides: passing says nothing */

    /* For who judges (fb_comparison_scope). */
    size_t leaf;                   /* of the first graph's output, counted from 0 as fb_comparison_scope.skipped is */
    const char *mismatch;          /* "shape", "dtype"; NULL = none. Of another shape nothing else is known */
    fb_difference exact;           /* a and b, both in float64 */
    double largest, largest_exact; /* b's magnitude */
    double largest_a;              /* a's: what is compared with its own float64 is held against itself */
    double a_value, b_value;       /* where they are furthest apart, and the same in float64 */
    double a_value_exact, b_value_exact;
    fb_dtype narrowest[2]; /* floating dtype that a, and b, compute in somewhere */
} fb_output_comparison;

typedef struct fb_comparison {
    fb_output_comparison *outputs;
    size_t count;
    bool passes;
    const char *first_node; /* in the order of `a`: the first node that both have and whose value differs beyond the tolerance;
                               "" = none */
    fb_difference first_difference;
    size_t leaves;          /* of the output, where a scope is given … */
    bool writes_differ;     /* … the memory of a node and its partner */
    bool writes_unknown;    /* … one of the two has none here */
    bool *mismatched;       /* … by leaf: it differs in what is not a tensor, and has no outputs here */
    const fb_graph *failed; /* when comparing failed: the graph that could not be evaluated (`b` where `a` could); or NULL */
    fb_arena arena;
} fb_comparison;

/* Evaluations handed to the next comparison, whose first graph is the second of this one and whose inputs are the same: so each
 * graph is evaluated once, and what is equal by content not at all. Both are then held against the first graph in float64. */
typedef struct fb_comparison_chain {
    struct trial *recorded; /* the second graph; NULL = it is evaluated */
    struct trial *exact;    /* the first of all in float64; likewise */
} fb_comparison_chain;
void fb_comparison_chain_free(fb_comparison_chain *chain);

typedef struct fb_comparison_inputs {
    const fb_named_array *items; /* by placeholder; what is not given is drawn from the options' seed in its recorded shape */
    size_t count;
    const struct fb_comparison_scope *scope; /* NULL: all outputs are compared, and must be of the same shapes */
    fb_comparison_chain *chain;              /* NULL: this is the only comparison; not where there is a scope */
} fb_comparison_inputs;

/* A part of the outputs, for who judges one after another. A leaf is a place of a node in the output's arguments, counted from
 * 0; both graphs have as many, or none is skipped. */
typedef struct fb_comparison_scope {
    const fb_named_array *items_of_b; /* in the place of the items */
    size_t count_of_b;
    const bool *skipped;            /* by leaf */
    const unsigned char *wanted[2]; /* by node of a and of b: the outputs that are not skipped need it; NULL = all are */
    const fb_node *partner; /* by node of a: the node of b whose memory must hold the same at the end; NULL = none has one */
    bool without_first_node;
} fb_comparison_scope;

/* May a graph that could not be evaluated for this reason, found at this node, be held to be wrong, where the graph that it was
 * made of could be? Not for want of a shape, nor for elements of which the result is not defined, nor for a function or module
 * that is not PyTorch's: these say nothing. */
bool fb_failure_counts(const fb_graph *graph, const char *code, fb_node node);

/* FB_INVALID "missing-shape" for a placeholder that has neither value nor recorded shape; otherwise as fb_evaluate_graph. Of
 * another number or shape of outputs it is "output-mismatch". */
fb_status fb_compare_graphs(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                            const fb_eval_options *options, const fb_tolerance *tolerance, fb_comparison *out, fb_error *error);
/* Sets first_node and first_difference of `out`, which fb_compare_graphs made: the first node whose value differs in that
 * precision. */
fb_status fb_compare_nodes(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                           const fb_eval_options *options, fb_precision precision, const fb_tolerance *tolerance,
                           fb_dtype narrowest, fb_comparison *out, fb_error *error);
void fb_comparison_free(fb_comparison *comparison);

/* ---- a verdict on two graphs ------------------------------------------------------------------------------------------ */

/* The worse the later. */
typedef enum fb_verdict {
    FB_VERDICT_SAME,          /* the same operators on the same bytes, but for names and order */
    FB_VERDICT_MOVED,         /* equal after movements that copy bytes only */
    FB_VERDICT_EVALUATED,     /* within the tolerance on all inputs that were drawn: no proof */
    FB_VERDICT_NOT_EVALUATED, /* nothing is known */
    FB_VERDICT_DIFFERS,       /* on inputs that can be drawn again */
} fb_verdict;
const char *fb_verdict_name(fb_verdict verdict); /* "not-evaluated" */

typedef struct fb_judged {
    const char *name; /* "output.0"; of inputs the placeholder's, of `a` where it has it */
    fb_dtype dtype;   /* of `b`, where it is known */
    fb_verdict verdict;
    size_t samples;                          /* drawn inputs that say something about it */
    fb_difference between, a_exact, b_exact; /* the worst of all samples */
    const char *reason; /* a code; NULL: none is needed. "bytes-missing", "random", "unsupported-operator" …; "shape", "dtype",
                           "missing-in-a", "missing-in-b"; "float64": it differs there, and rounding hides it otherwise */
    const char *detail, *node, *target; /* or NULL */
    const char *given_by[2];            /* of an output: the nodes of a and b whose value it is; NULL = it has none */
    bool has_spread;                    /* one of the samples has many values; all equal and all zero say little */
    bool has_counterexample;
    size_t sample; /* of it, counted from 0 */
    int64_t index; /* row-major; -1 = the whole value */
    double a, b;
} fb_judged;

typedef struct fb_judgement {
    fb_verdict verdict;          /* the worst */
    fb_judged *outputs, *inputs; /* of inputs those alone that have no partner */
    size_t count, input_count;
    fb_verdict writes;      /* to inputs, to buffers, and to the state of random numbers */
    const char *first_node; /* as in fb_comparison */
    fb_difference first_difference;
    size_t samples;      /* that were drawn */
    size_t regions;      /* in which alone the graphs were evaluated; 0 = nothing was, or the graphs as a whole */
    size_t nodes;        /* of both graphs, in the regions */
    fb_buffer drawn;     /* of the first sample on which something differs, a safetensors file, where it was asked for */
    size_t drawn_sample; /* that sample */
    fb_arena arena;
} fb_judgement;

typedef struct fb_judging {
    const fb_named_array *items; /* inputs that are given */
    size_t count;
    size_t samples; /* at most; 0 = FB_SAMPLES. One where nothing is drawn */
    const fb_eval_options *options;
    const fb_tolerance *tolerance; /* NULL: by dtype, and closer in float64 where the weights are the same bytes */
    bool keeps_inputs;             /* of a counterexample */
} fb_judging;
#define FB_SAMPLES 8
#define FB_MOST_SAMPLES 1000

/* Inputs are matched by name, and the rest by position, shape and dtype. Sample i is drawn from the options' seed + i: what
 * hides a difference is not drawn alone: equal, repeated, large, small and denormal values. FB_NO_MEMORY; what the watch stops
 * it with before one sample was compared. */
fb_status fb_judge_graphs(const fb_graph *a, const fb_graph *b, const fb_judging *judging, fb_judgement *out, fb_error *error);
void fb_judgement_free(fb_judgement *judgement);

/* ---- the rewritten regions of two graphs ------------------------------------------------------------------------------------
 *
 * A region is what differs, and hangs together: nodes that one graph has alone or that compute otherwise in it, modules and
 * tensors included. It is evaluated before and after, on random values of the recorded shapes for what it reads, and with
 * random weights where they are not known: cheap, and it works without weights. Numbers computed from sizes are computed from
 * recorded shapes. The regions come from the graphs, never from the pass. */
/* The code of a value that overflows in its dtype before the rewrite, as far as was tried. */
#define FB_NOT_FINITE "not-finite"
#define FB_NOT_FINITE_DETAIL                                                                                                   \
    "what it computes of random values is infinite or nan in its dtype, before the pass as well, so that nothing can be "      \
    "compared"
typedef struct fb_region_report {
    const char **nodes; /* names in `after` (in `before` where there are none) */
    size_t node_count;
    fb_difference between, before_exact, after_exact; /* the worst of the values that leave it */
    double rms;                                       /* the same; of fb_rms_difference, where a tolerance is given */
    bool passes;
    bool is_equal;           /* to an earlier one but for names, whose numbers these are; see region_equal.c */
    const char *unsupported; /* why it could not be evaluated: "unsupported-operator", "missing-shape" …; NULL = it was */
    bool is_broken;          /* … after the rewrite, while it could before: then it does not pass */
    const char *detail;
} fb_region_report;

typedef struct fb_validation {
    fb_region_report *regions;
    size_t count;
    bool passes;      /* all that could be evaluated pass */
    bool is_complete; /* all could be */
    size_t nodes;     /* of both graphs that were evaluated */
    fb_difference worst, before_exact, after_exact;
    fb_arena arena;
} fb_validation;

/* Samples on which regions are judged as fb_judge_graphs judges outputs. */
typedef struct fb_region_samples {
    const fb_bounds *bounds;
    size_t count;
    double close;                      /* how near their float64 must be, relative to the largest magnitude; 0 = by dtype */
    const unsigned char *has_shape[2]; /* by node of each graph: its recorded shape is true, so that it may be given */
} fb_region_samples;

/* `only_moves`: the passes between them only moved weights, so the tighter tolerance holds; `tolerance` NULL = by dtype. */
fb_status fb_validate_rewrite(const fb_graph *before, const fb_graph *after, const fb_eval_options *options, bool only_moves,
                              const fb_tolerance *tolerance, fb_validation *out, fb_error *error);
/* The same of any two graphs whose nodes have the same names where they are the same: on samples, and by float64 of both, until
 * one of them does not pass or is not complete. Sample i is drawn from the options' seed + i, weights only where the options
 * say so. `out` has the nodes of the last sample and the worst differences of all. */
fb_status fb_validate_samples(const fb_graph *a, const fb_graph *b, const fb_eval_options *options,
                              const fb_region_samples *samples, fb_validation *out, fb_error *error);
void fb_validation_free(fb_validation *validation);

#endif
