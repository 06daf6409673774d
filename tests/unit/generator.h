/* Random documents for tests: valid, reproducible from a seed, and full of what passes look for and of what they must refuse.
 */
#ifndef FB_TESTS_GENERATOR_H
#define FB_TESTS_GENERATOR_H

#include <stdint.h>

#include "core/base/buffer.h"

typedef struct random_source {
    uint64_t state;
} random_source;

uint64_t random_next(random_source *source);
/* From 0 to count - 1. */
size_t random_below(random_source *source, size_t count);
/* True once in `count` times. */
bool random_once_in(random_source *source, size_t count);

/* Appends a document of 1 to about 80 nodes. */
void generate_document(uint64_t seed, fb_buffer *out);
/* Appends a list of 1 to 6 passes, perhaps nested, perhaps with repetitions. */
void generate_passes(uint64_t seed, fb_buffer *out);

#endif
