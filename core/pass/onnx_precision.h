/* ConvertPrecision of ONNX models: which calls compute in float16 or bfloat16, and the casts between them and the others.
 *
 *     x ── MatMul(·, w) ── Range …          x ── Cast ── MatMul(·, w rounded) ── Cast ── Range …
 *
 * Inputs and outputs keep their dtypes, so there is a Cast behind and before them. Those that
 * core/operators/onnx_precisions.def lists take part, and a Cast to float32 that such a call reads. */
#ifndef FB_PASS_ONNX_PRECISION_H
#define FB_PASS_ONNX_PRECISION_H

#include "core/pass/build.h"
#include "core/pass/keep.h"

/* Reports all calls that are converted as one match, and why others that compute in float32 stay, unless `keep` names them. */
void fb_match_onnx_precision(fb_matcher *matcher, fb_dtype to, fb_keep *keep);
/* Of the nodes of that match. */
void fb_convert_onnx_precision(fb_rewrite *rewrite, const fb_node *nodes, size_t count, fb_dtype to);

#endif
