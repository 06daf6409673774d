/* The operators of ONNX's default domain, and the opsets that changed them. */
#ifndef FB_OPERATORS_ONNX_H
#define FB_OPERATORS_ONNX_H

#include <stddef.h>
#include <stdint.h>

#define FB_ONNX_FUNCTION "onnx.function." /* begins the target of a call of a function, and its module's path */

/* The version of an operator that is in force at an opset: the last one that is not above it. 0: there is no operator of this
 * name, or it is newer than the opset. */
int64_t fb_onnx_version(const char *name, size_t size, int64_t opset);

#endif
