/* What the fuzzers share: libFuzzer's entry points, and checks that end the process. */
#ifndef FB_TESTS_FUZZ_H
#define FB_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/document/document.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define require(holds)                                                                                                         \
    do {                                                                                                                       \
        if (!(holds)) {                                                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);                                         \
            abort();                                                                                                           \
        }                                                                                                                      \
    } while (0)

/* The graph of a document; NULL when it is none. */
fb_graph *fuzz_read(const char *text, size_t size);
/* The same for one that must be valid. */
fb_graph *fuzz_read_valid(const fb_buffer *text);
void fuzz_id(const fb_graph *graph, char id[FB_ID_LENGTH + 1]);
bool fuzz_is_same(const fb_graph *a, const fb_graph *b);

/* Bytes as choices, for inputs that are no text: 0 when there are no more. */
typedef struct fuzz_choices {
    const uint8_t *next, *end;
} fuzz_choices;
uint8_t fuzz_byte(fuzz_choices *choices);
uint16_t fuzz_two_bytes(fuzz_choices *choices);

#endif
