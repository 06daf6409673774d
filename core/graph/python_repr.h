/* Python literals as repr prints them. */
#ifndef FB_GRAPH_PYTHON_REPR_H
#define FB_GRAPH_PYTHON_REPR_H

#include "core/base/buffer.h"

/* repr(str): quoted, and escaped so that the text is one token on one line whatever it holds. Bytes that are not UTF-8 become
 * \xNN. */
void fb_repr_string(fb_buffer *out, const char *text, size_t length);
/* repr(float); "inf" and "nan" are names in generated code. */
void fb_repr_float(fb_buffer *out, double value);
/* repr(complex): "2j", "(1-2j)", "(-0+nanj)". */
void fb_repr_complex(fb_buffer *out, double real, double imaginary);

#endif
