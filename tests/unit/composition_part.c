#include "tests/unit/composition_part.h"

#include <stdlib.h>

fb_composition composition_without(const fb_composition *whole, const bool *selected) {
    fb_composition part = {.calls = calloc(whole->count + 1, sizeof *part.calls)};
    if (!part.calls) abort();
    for (size_t i = 0; i < whole->count; i++) {
        if (!selected[i]) part.calls[part.count++] = whole->calls[i];
    }
    return part;
}

void composition_part_free(fb_composition *part) {
    free(part->calls);
    *part = (fb_composition){0};
}
