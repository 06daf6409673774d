/* libFuzzer: a document has one id, however it is spelled. The input is a document, or else the choices for a random one; it is
 * written again by another writer, with other white space and escapes and its outer members in another order. `make fuzz`
 * builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "tests/unit/generator.h"

/* The outer members, the last first. */
static json_t *turned_round(json_t *document) {
    const char *keys[32], *key;
    size_t count = 0;
    json_t *value, *turned = json_object();
    json_object_foreach(document, key, value) if (count < 32) keys[count++] = key;
    while (count) {
        key = keys[--count];
        require(json_object_set(turned, key, json_object_get(document, key)) == 0);
    }
    return turned;
}

static void check_spelling(const json_t *document, size_t flags, const fb_graph *graph) {
    char *text = json_dumps(document, flags);
    require(text != NULL);
    fb_graph *again = fuzz_read(text, strlen(text));
    require(again && fuzz_is_same(again, graph));
    fb_graph_free(again);
    free(text);
}

/* What is read from its own canonical bytes is written as the same bytes, and has the same structure. */
static void check_canonical(const fb_graph *graph) {
    fb_buffer once = {0}, twice = {0};
    char id[FB_ID_LENGTH + 1], same[FB_ID_LENGTH + 1], structure[FB_ID_LENGTH + 1];
    require(fb_document_write_marked(graph, &(fb_work){0}, &once, NULL, id) && fb_document_structure(graph, structure));
    fb_graph *again = fuzz_read_valid(&once);
    require(fb_document_write_marked(again, &(fb_work){0}, &twice, NULL, same) && strcmp(id, same) == 0);
    require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
    require(fb_document_structure(again, same) && strcmp(structure, same) == 0);
    fb_graph_free(again);
    fb_buffer_free(&once);
    fb_buffer_free(&twice);
}

static void check(const char *text, size_t size) {
    fb_graph *graph = fuzz_read(text, size);
    if (!graph) return;
    check_canonical(graph);
    json_t *document = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    require(document != NULL); /* the reader takes nothing that jansson would not */
    check_spelling(document, JSON_INDENT(3) | JSON_ENSURE_ASCII | JSON_ESCAPE_SLASH, graph);
    json_t *turned = turned_round(document);
    check_spelling(turned, JSON_COMPACT, graph);
    json_decref(turned);
    json_decref(document);
    fb_graph_free(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == '{') {
        check((const char *)data, size);
        return 0;
    }
    fuzz_choices choices = {.next = data, .end = data + size};
    fb_buffer document = {0};
    uint64_t high = fuzz_two_bytes(&choices);
    generate_document(high << 16 | fuzz_two_bytes(&choices), &document);
    require(!document.failed);
    check(document.data, document.size);
    fb_buffer_free(&document);
    return 0;
}
