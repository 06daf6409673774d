/* Formulas: several calls that compute together what one operator computes, such as GELU or LayerNorm spelled out.
 *
 * A formula is recognised by what it computes, not by how it is written: its calls and the operator are evaluated on the same
 * samples, twice. In float64 they must agree up to the rounding of the formula's constants. In the formula's own dtype they
 * must agree up to the rounding of its calls, also on zeros, infinities, nan, and numbers near both ends of the dtype's range.
 */
#ifndef FB_PASS_FORMULA_H
#define FB_PASS_FORMULA_H

#include "core/pass/build.h"

#define FB_FORMULA_CALLS 24
#define FB_FORMULA_SIZE 8 /* of what is reduced, where it is not recorded */

/* Calls that only work element by element, along axes, or cast, and that are computed from one value and from numbers. */
typedef struct fb_formula {
    fb_node input;
    fb_node calls[FB_FORMULA_CALLS]; /* in order; the last gives the result */
    size_t count;
    fb_node numbers[FB_FORMULA_CALLS]; /* an ONNX model's constants that they read as numbers, or as the axes of a reduction */
    size_t number_count;
    uint32_t axes; /* along which it reduces: bit k is axis k of the input; 0: element by element */
    int rank;      /* of the input; assumed when it is not recorded */
} fb_formula;

/* Calls `visit` with the formulas that give the node's value, the shortest first, until it is true. Gives that. */
bool fb_formula_visit(const fb_graph *graph, fb_node result, bool (*visit)(void *, const fb_formula *), void *context);

/* Does the call only cast a floating-point tensor to another floating dtype? */
bool fb_formula_is_cast(const fb_graph *graph, fb_node node);

typedef enum fb_formula_verdict {
    FB_FORMULA_DIFFERS,
    FB_FORMULA_IS_UNKNOWN, /* it was not compared: there were FB_FORMULAS_MAX others before, or it is too large */
    FB_FORMULA_IS_CLOSE,   /* it gives nearly the same, but is another function */
    FB_FORMULA_OVERFLOWS,  /* it is the same function, but gives something else where its own dtype ends */
    FB_FORMULA_IS_SAME,
} fb_formula_verdict;

/* Caches what the formulas of one graph were found to be: most come many times. To compare takes time linear in the graph, so
 * no more than so many are. */
#define FB_FORMULAS_MAX 512
#define FB_FORMULA_NOT_COMPARED                                                                                                \
    ((fb_obstacle){"not-compared", "the graph has too many different formulas, or this one works on too many numbers"})
typedef struct fb_formulas {
    fb_matcher *matcher;
    fb_buffer found; /* comparisons */
    fb_node *now;    /* by node: what it is compared as */
} fb_formulas;

/* Calls `look` with each node of an operator at which a formula may end. `formulas` holds while it runs. */
void fb_formulas_search(fb_formulas *formulas, fb_matcher *matcher, bool (*may_end_at)(fb_op), void (*look)(void *, fb_node),
                        void *context);
fb_formula_verdict fb_formula_compare(fb_formulas *formulas, const fb_formula *formula, const fb_substitute *substitute);

/* Refuses a formula that is not the same as the operator. True: it did. */
bool fb_formula_is_refused(fb_matcher *matcher, const fb_formula *formula, fb_formula_verdict verdict,
                           const fb_substitute *substitute);

/* Why a formula that is the same must stay: "other-readers", "unknown-dtype", "unknown-shape", "type-changes", "input-mutated",
 * "mode-switched", "mutated", "named-elsewhere". */
fb_obstacle fb_formula_obstacle(fb_matcher *matcher, const fb_formula *formula);

/* The result is given by the substitute's call from now on, with a weight and a bias, or none; the other calls go. */
void fb_formula_replace(fb_rewrite *rewrite, const fb_formula *formula, const fb_substitute *substitute, fb_value weight,
                        fb_value bias);

#endif
