/* torch's type promotion. For infer.c, shape_*.c and the interpreter. */
#ifndef FB_OPS_PROMOTE_H
#define FB_OPS_PROMOTE_H

#include "core/ops/shape.h"

/* What two tensors of these dtypes give; FB_DTYPE_UNKNOWN when torch refuses or one is unknown. */
fb_dtype fb_promote(fb_dtype a, fb_dtype b);
/* torch.result_type of the operands of a call (the parameters that take part in arithmetic). */
fb_dtype fb_promote_operands(const fb_call *call);
/* The same of any operands, at most 64. */
fb_dtype fb_promote_all(const fb_operand *operands, int count);
/* The same of two named ones. */
fb_dtype fb_promote_two(const fb_call *call, const char *first, const char *second);
/* Integers and bool become float32, the default dtype. */
fb_dtype fb_to_floating(fb_dtype dtype);

#endif
