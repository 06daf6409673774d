/* libFuzzer: whatever bytes come, the reader answers; and what it takes is written in one form that it takes again. `make fuzz`
 * builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fb_graph *graph = NULL;
    fb_errors errors = {0};
    fb_status status = fb_document_read((const char *)data, size, NULL, "/graph", &graph, &errors);
    require((status == FB_OK) == (graph != NULL) && (status == FB_OK) == (errors.total == 0));
    if (graph) {
        fb_buffer once = {0}, twice = {0};
        char id[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
        require(fb_document_write_marked(graph, &(fb_work){0}, &once, NULL, id) && fb_document_structure(graph, structure));
        fb_graph *again = NULL;
        require(fb_document_read(once.data, once.size, NULL, "", &again, &errors) == FB_OK);
        fb_document_write(again, &twice);
        require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
        char same[FB_ID_LENGTH + 1];
        require(fb_document_structure(again, same) && strcmp(structure, same) == 0);
        fb_graph_free(again);
        fb_buffer_free(&once);
        fb_buffer_free(&twice);
    }
    fb_graph_free(graph);
    fb_errors_free(&errors);
    return 0;
}
