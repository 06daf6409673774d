/* A tensor's numbers as the bytes of a document, for tests; independent of core/weights. */
#ifndef FB_TESTS_NUMBERS_H
#define FB_TESTS_NUMBERS_H

#include "core/base/buffer.h"
#include "core/graph/graph.h"

/* Floats that recipes compute with, signed and unsigned integers of up to 64 bits, bool. */
bool has_numbers(fb_dtype dtype);
/* Appends little-endian bytes, rounded to nearest even; only for dtypes that have numbers. */
void encode_numbers(fb_dtype dtype, const double *numbers, size_t count, fb_buffer *bytes);
/* Of other dtypes every element becomes some number that follows from its bytes. */
void decode_numbers(fb_dtype dtype, const unsigned char *bytes, size_t count, double *numbers);

/* Appends base64 of bytes, or the bytes of base64 (which must be valid). */
void encode_base64(const void *bytes, size_t size, fb_buffer *out);
void decode_base64(const char *text, fb_buffer *out);

#endif
