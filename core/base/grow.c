#include "core/base/grow.h"

#include <stdlib.h>
#include <string.h>

bool fb_grow(void *rows, size_t row_size, size_t *capacity) {
    size_t wanted = *capacity ? 2 * *capacity : 16, bytes;
    void *grown;
    memcpy(&grown, rows, sizeof grown); /* a pointer to rows of any type */
    if (__builtin_mul_overflow(wanted, row_size, &bytes) || !(grown = realloc(grown, bytes))) return false;
    memcpy(rows, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}
