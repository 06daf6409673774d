/* Symbolic sizes as archives spell them (sympy's srepr, "Mul(Integer(2), Symbol('s77', positive=True, integer=True))"), printed
 * as PyTorch and documents print them ("2*s77"). */
#ifndef FB_ARCHIVE_SIZES_H
#define FB_ARCHIVE_SIZES_H

#include <stdbool.h>

#include "core/base/buffer.h"

/* Appends the expression. False: it is malformed, or has a function of which it is not known how it is printed; then something
 * may have been appended. */
bool fb_print_size(const char *text, size_t length, fb_buffer *out);

#endif
