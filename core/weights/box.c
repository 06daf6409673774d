#include "core/weights/box.h"

/* A box of `count` dimensions as a range of their row-major numbers. False when the box has gaps: below a dimension of which it
 * takes more than one, it must take all. */
static bool flatten(const int64_t *sizes, const fb_range *box, int count, fb_range *flat) {
    *flat = (fb_range){0, 1};
    for (int i = 0; i < count; i++) {
        if (flat->size > 1 && box[i].size != sizes[i]) return false;
        *flat = (fb_range){flat->start * sizes[i] + box[i].start, flat->size * box[i].size};
    }
    return true;
}

/* The inverse: from the innermost dimension on all of it, then a part of one, then one each. */
static bool unflatten(fb_range flat, const int64_t *sizes, int count, fb_range *box) {
    for (int i = count - 1; i >= 0; i--) {
        int64_t start = flat.start % sizes[i];
        if (start == 0 && flat.size % sizes[i] == 0) {
            box[i] = (fb_range){0, sizes[i]};
            flat = (fb_range){flat.start / sizes[i], flat.size / sizes[i]};
        } else if (start + flat.size <= sizes[i]) {
            box[i] = (fb_range){start, flat.size};
            flat = (fb_range){flat.start / sizes[i], 1};
        } else {
            return false;
        }
    }
    return true;
}

bool fb_box_through_reshape(const int64_t *outer, const fb_range *box, int rank, const int64_t *inner, fb_range *inner_box,
                            int inner_rank) {
    /* The smallest groups of dimensions with the same product are reshaped independently of each other. */
    for (int i = 0, j = 0; i < rank || j < inner_rank;) {
        int first = i, inner_first = j;
        int64_t product = 1, inner_product = 1;
        do {
            if (i < rank && (product <= inner_product || j == inner_rank)) product *= outer[i++];
            else if (j < inner_rank) inner_product *= inner[j++];
            else return false;
        } while (product != inner_product);
        fb_range flat;
        if (!flatten(outer + first, box + first, i - first, &flat)) return false;
        if (!unflatten(flat, inner + inner_first, j - inner_first, inner_box + inner_first)) return false;
    }
    return true;
}
