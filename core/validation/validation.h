/* Validation: that a rewrite computes the same, shown by numbers.
 *
 * Two graphs are compared value by value on the same inputs. The nodes of both are paired by name. */
#ifndef FB_VALIDATION_VALIDATION_H
#define FB_VALIDATION_VALIDATION_H

#include "core/evaluator/evaluator.h"

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
} fb_output_comparison;

typedef struct fb_comparison {
    fb_output_comparison *outputs;
    size_t count;
    bool passes;
    const char *first_node; /* in the order of `a`: the first node that both have and whose value differs beyond the tolerance;
                               "" = none */
    fb_difference first_difference;
    const fb_graph *failed; /* when comparing failed: the graph that could not be evaluated (`b` where `a` could); or NULL */
    fb_arena arena;
} fb_comparison;

typedef struct fb_comparison_inputs {
    const fb_named_array *items; /* by placeholder; what is not given is drawn from the options' seed in its recorded shape */
    size_t count;
} fb_comparison_inputs;

/* May a graph that could not be evaluated for this reason, found at this node, be held to be wrong, where the graph that it was
 * made of could be? Not for want of a shape, nor for a function or module that is not PyTorch's: these say nothing. */
bool fb_failure_counts(const fb_graph *graph, const char *code, fb_node node);

/* FB_INVALID "missing-shape" for a placeholder that has neither value nor recorded shape; otherwise as fb_evaluate_graph. Of
 * another number or shape of outputs it is "output-mismatch". */
fb_status fb_compare_graphs(const fb_graph *a, const fb_graph *b, const fb_comparison_inputs *inputs,
                            const fb_eval_options *options, const fb_tolerance *tolerance, fb_comparison *out, fb_error *error);
void fb_comparison_free(fb_comparison *comparison);

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
    fb_difference worst, before_exact, after_exact;
    fb_arena arena;
} fb_validation;

/* `only_moves`: the passes between them only moved weights, so the tighter tolerance holds; `tolerance` NULL = by dtype. */
fb_status fb_validate_rewrite(const fb_graph *before, const fb_graph *after, const fb_eval_options *options, bool only_moves,
                              const fb_tolerance *tolerance, fb_validation *out, fb_error *error);
void fb_validation_free(fb_validation *validation);

#endif
