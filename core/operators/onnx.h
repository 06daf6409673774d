/* The operators of ONNX's default domain: the opsets that changed them, and what is true of all their calls. */
#ifndef FB_OPERATORS_ONNX_H
#define FB_OPERATORS_ONNX_H

#include <stddef.h>
#include <stdint.h>

#include "core/operators/op.h"

#define FB_ONNX_DEFAULT "onnx." /* begins the target of a call of an operator: onnx.Softmax.v13 */
#define FB_ONNX_IF FB_ONNX_DEFAULT "If."
#define FB_ONNX_IDENTITY FB_ONNX_DEFAULT "Identity."
#define FB_ONNX_FUNCTION "onnx.function." /* begins the target of a call of a function, and its module's path */

/* The version of an operator that is in force at an opset: the last one that is not above it. 0: there is no operator of this
 * name, or it is newer than the opset. */
int64_t fb_onnx_version(const char *name, size_t size, int64_t opset);
/* The first opset that has it; 0: there is no operator of this name. */
int64_t fb_onnx_since(const char *name);

/* How a call of one version is written in the next one: core/operators/onnx_steps.def. */
typedef enum fb_onnx_rule_of_step {
    FB_ONNX_SAME_CALL = 0, /* as it is */
    FB_ONNX_FIRST_RESULT,
    FB_ONNX_INPUT,
    FB_ONNX_AXIS_INPUT,
    FB_ONNX_DROPPED,
    FB_ONNX_PARTS,
    FB_ONNX_ROWS,
    FB_ONNX_WORDS,
    FB_ONNX_OLD_DEFAULT,
    FB_ONNX_UNSET,
    FB_ONNX_SCALAR,
    FB_ONNX_LOST,
    FB_ONNX_OTHER,
} fb_onnx_rule_of_step;

typedef struct fb_onnx_step {
    int64_t version; /* 0: there is no later one */
    fb_onnx_rule_of_step rule;
    const char *attribute; /* that the rule is about; or NULL */
} fb_onnx_step;

/* From this version of an operator to the next one. */
fb_onnx_step fb_onnx_next_version(const char *name, size_t size, int64_t version);

typedef enum fb_onnx_effect {
    FB_ONNX_COMPUTES = 0,      /* the same inputs give the same results */
    FB_ONNX_DRAWS,             /* random numbers */
    FB_ONNX_DRAWS_IN_TRAINING, /* where its input `training_mode` says so */
    FB_ONNX_RUNS,              /* nested programs, which say what it does */
} fb_onnx_effect;

typedef enum fb_onnx_zeros {
    FB_ONNX_NOTHING = 0,
    FB_ONNX_STATES, /* the inputs from 5 on, where they are absent */
    FB_ONNX_FILLED, /* all of its result, unless its attribute `value` is another number */
} fb_onnx_zeros;

typedef struct fb_onnx_facts {
    const char *name;
    fb_onnx_effect effect;
    fb_identity_rule identity;
    bool is_commutative; /* the first two inputs may be exchanged */
    fb_onnx_zeros zeros;
} fb_onnx_facts;

/* Facts of a call's target, `onnx.Softmax.v13`; NULL where it is not an operator of the default domain, in a version that this
 * has. */
const fb_onnx_facts *fb_onnx_facts_of(const char *target);

/* May a call be computed in these dtypes in the place of float32? */
typedef struct fb_onnx_precision {
    bool float16, bfloat16;
    bool is_first_alone; /* results behind the first have a dtype of their own */
} fb_onnx_precision;
/* Of a call's target; false for what is not an operator of the default domain. */
fb_onnx_precision fb_onnx_precision_of(const char *target);

#endif
