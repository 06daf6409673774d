#include "tests/fuzz/fuzz.h"

#include <string.h>

fb_graph *fuzz_read(const char *text, size_t size) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_status status = fb_document_read(text, size, NULL, "", &graph, &errors);
    require((status == FB_OK) == (graph != NULL) && (status == FB_OK) == (errors.total == 0));
    fb_errors_free(&errors);
    return graph;
}

fb_graph *fuzz_read_valid(const fb_buffer *text) {
    require(!text->failed);
    fb_graph *graph = fuzz_read(text->data, text->size);
    require(graph != NULL);
    return graph;
}

void fuzz_id(const fb_graph *graph, char id[FB_ID_LENGTH + 1]) {
    require(fb_document_id(graph, id));
}

bool fuzz_is_same(const fb_graph *a, const fb_graph *b) {
    char one[FB_ID_LENGTH + 1], other[FB_ID_LENGTH + 1];
    fuzz_id(a, one);
    fuzz_id(b, other);
    return strcmp(one, other) == 0;
}

uint8_t fuzz_byte(fuzz_choices *choices) {
    return choices->next < choices->end ? *choices->next++ : 0;
}

uint16_t fuzz_two_bytes(fuzz_choices *choices) {
    uint16_t high = fuzz_byte(choices);
    return (uint16_t)(high << 8 | fuzz_byte(choices));
}
