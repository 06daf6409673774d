/* The values of constants, which the evaluator computes; and which of them are the same on every machine.
 *
 * An ONNX call whose last bits differ between libraries has bounds instead of a value (core/pass/bounded.h). */
#ifndef FB_PASS_CONSTANT_VALUES_H
#define FB_PASS_CONSTANT_VALUES_H

#include "core/analysis/constant.h"
#include "core/evaluator/evaluator.h"
#include "core/pass/bounded.h"
#include "core/pass/pass.h"

#define FB_INEXACT "its last bits may differ from machine to machine"

typedef struct fb_constant_values {
    fb_matcher *matcher;
    const fb_graph *graph;
    fb_constants constants; /* its sources are buffers whose bytes are in the document */
    fb_object *values;      /* by node: of a constant, once it is found */
    bool *is_bounded;   /* by node: it has bounds in the place of a value, which it gets only if that is sure all the same */
    fb_bounded *bounds; /* by node */
    fb_array_memory memory;
    bool is_evaluated; /* there may be values and bounds */
    bool may_round;    /* last bits may differ */
    bool is_onnx;
    size_t next;     /* of the constants' nodes: the first one whose bounds were not looked for */
    fb_node current; /* that the evaluator is at */
} fb_constant_values;

/* False when memory is out; ended in any case. */
bool fb_constant_values_begin(fb_constant_values *values, fb_matcher *matcher, bool is_onnx, bool may_round);
void fb_constant_values_end(fb_constant_values *values);
/* It varies, and must stay. */
void fb_constant_values_refuse(fb_constant_values *values, fb_node node, const char *code, const char *detail);

/* Does the call compute some results exactly (FB_FACT_EXACT, FB_FACT_EXACT_INTEGERS)? */
bool fb_value_may_be_exact(const fb_constant_values *values, fb_node node);
/* Has a constant call bounds, or may it begin to have them? */
bool fb_value_is_bounded(const fb_constant_values *values, fb_node node);
/* Evaluates the constants; a node that takes too much is refused, and the others are evaluated again. */
void fb_find_constant_values(fb_constant_values *values);
/* Has the array the shape and dtype of the node? Of an ONNX graph a symbol may be of a size that no rule knew. */
bool fb_value_is_as_recorded(const fb_constant_values *values, fb_node node, const fb_array *array);

#endif
