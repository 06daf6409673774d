/* What an evaluation of weights gives, all at once. */
#ifndef FB_TESTS_UNIT_EVALUATED_H
#define FB_TESTS_UNIT_EVALUATED_H

#include <stdlib.h>

#include "core/weights/evaluate.h"

/* All its bytes, malloc'ed; `*bytes` and `*size` are written on success only. */
static inline fb_status evaluated_bytes(fb_evaluation *evaluation, unsigned char **bytes, size_t *size, fb_error *error) {
    size_t total = (size_t)fb_evaluation_size(evaluation);
    unsigned char *made = malloc(total ? total : 1);
    if (!made) return fb_fail_memory(error);
    fb_status status = fb_evaluation_read(evaluation, 0, made, total, error);
    if (status) {
        free(made);
        return status;
    }
    *bytes = made;
    *size = total;
    return FB_OK;
}

#endif
