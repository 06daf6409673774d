/* The error of a weight that is kept as few integers with scales. */
#ifndef FB_WEIGHTS_ROUNDING_ERROR_H
#define FB_WEIGHTS_ROUNDING_ERROR_H

#include "core/weights/evaluate.h"

/* A weight of shape (rows, columns, within), and which of its numbers have a scale in common: the largest of them / levels,
 * and `least` more, rounded to the weight's dtype. */
typedef struct fb_scaling {
    int64_t rows, columns, within;
    bool by_column;     /* one scale for each column, or for each row; */
    int64_t group_size; /* and for so many along the other one of the two; 0: for all */
    double levels, least;
} fb_scaling;

/* |weight − scale · round(weight / scale)| / |weight|, as norms of vectors (Frobenius): 0 loses nothing. Of a large weight with
 * scales by rows some rows are read, as many apart. False: its bytes are not known here, or too many, it is zero, or not all
 * are finite. */
bool fb_rounding_error(const fb_graph *graph, fb_tensor weight, const fb_blobs *blobs, const fb_scaling *scaling, double *out);

#endif
