/* NumPy's file of one array, .npy: its magic, a version, the length of a header, which is a Python dict, and the elements.
 * Source: NumPy's documentation, numpy.lib.format. */
#ifndef FB_WEIGHTS_NPY_H
#define FB_WEIGHTS_NPY_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#define FB_NPY_MAX_RANK 32

typedef struct fb_npy {
    fb_dtype dtype;
    int rank;
    int64_t shape[FB_NPY_MAX_RANK];
    bool is_fortran; /* its first dimension is the one whose elements are neighbours */
    uint64_t offset; /* of the elements, which end with the file */
    uint64_t size;   /* bytes of them */
} fb_npy;

/* FB_INVALID "bad-npy": not this format, an object array (a pickle, which is never read), big-endian or structured elements,
 * a size that is not the shape's. `name` is for the message. */
fb_status fb_npy_read(const char *name, const unsigned char *bytes, uint64_t size, fb_npy *out, fb_error *error);
/* The elements row by row: `to` has out->size bytes. */
void fb_npy_copy(const fb_npy *npy, const unsigned char *bytes, void *to);

#endif
