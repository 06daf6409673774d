/* libFuzzer: whatever three graphs come, the merge gives a valid graph or says what does not fit; and diffs lead from each to
 * each and back. The input is three documents with a NUL after the first two; or else the choices for a random document and for
 * what two clients change of it. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/diff/diff.h"
#include "core/diff/merge.h"
#include "tests/unit/client_changes.h"
#include "tests/unit/diff_apply.h"

#define MOST_CHANGES 8

/* ---- the checks ---------------------------------------------------------------------------------------------------------- */

static void check_diff(const fb_graph *from, const fb_graph *to) {
    fb_diff diff;
    fb_error error = {0};
    fb_graph *made = NULL, *back = NULL;
    fb_buffer text = {0};
    require(fb_diff_make(from, to, &(fb_work){0}, &diff, &error) == FB_OK);
    require(fb_diff_apply(&diff, from, &made, &error) == FB_OK && fuzz_is_same(made, to));
    fb_diff_write(&diff, &(fb_work){0}, &text);
    json_t *edits = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, NULL);
    require(!text.failed && json_is_array(edits) && json_array_size(edits) == diff.count);
    fb_diff_invert(&diff);
    require(fb_diff_apply(&diff, to, &back, &error) == FB_OK && fuzz_is_same(back, from));
    json_decref(edits);
    fb_buffer_free(&text);
    fb_diff_free(&diff);
    fb_graph_free(made);
    fb_graph_free(back);
}

/* NULL where something does not fit. */
static fb_graph *merge(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours) {
    fb_graph *merged = NULL;
    fb_conflicts conflicts = {0};
    fb_error error = {0};
    fb_status status = fb_merge(base, theirs, ours, NULL, &merged, &conflicts, &error);
    require(status == FB_OK || status == FB_CONFLICT);
    require((status == FB_OK) == (merged != NULL) && (status == FB_CONFLICT) == (conflicts.count > 0));
    for (size_t i = 0; i < conflicts.count; i++) require(conflicts.items[i].code && conflicts.items[i].detail[0]);
    fb_conflicts_free(&conflicts);
    return merged;
}

static void check_merge(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours) {
    fb_graph *merged = merge(base, theirs, ours);
    if (merged) { /* the document that it is written as is one */
        fb_buffer text = {0};
        fb_document_write(merged, &text);
        fb_graph *again = fuzz_read_valid(&text);
        require(fuzz_is_same(again, merged));
        fb_graph_free(again);
        fb_buffer_free(&text);
    }
    fb_graph_free(merged);
    fb_graph *kept = merge(base, base, ours); /* nothing is to be done */
    require(kept && fuzz_is_same(kept, ours));
    fb_graph_free(kept);
}

static void check(const fb_graph *base, const fb_graph *theirs, const fb_graph *ours) {
    check_diff(base, theirs);
    check_diff(theirs, ours);
    check_merge(base, theirs, ours);
    check_merge(ours, base, theirs);
    fb_graph *replayed = merge(base, theirs, base);
    require(!replayed || fuzz_is_same(replayed, theirs));
    fb_graph_free(replayed);
}

/* ---- the graphs ---------------------------------------------------------------------------------------------------------- */

static void check_documents(const char *text, size_t size) {
    fb_graph *graphs[3] = {0};
    for (int i = 0; i < 3; i++) {
        const char *end = i < 2 ? memchr(text, '\0', size) : text + size;
        if (!end) break;
        graphs[i] = fuzz_read(text, (size_t)(end - text));
        if (!graphs[i] || i == 2) break;
        size -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    if (graphs[2]) check(graphs[0], graphs[1], graphs[2]);
    for (int i = 0; i < 3; i++) fb_graph_free(graphs[i]);
}

static json_t *json_of_graph(const fb_graph *graph) {
    fb_buffer text = {0};
    fb_document_write(graph, &text);
    json_t *document = text.failed ? NULL : json_loadb(text.data, text.size, 0, NULL);
    require(document != NULL);
    fb_buffer_free(&text);
    return document;
}

/* What a client makes of the base: those changes that leave it valid. */
static fb_graph *changed(const fb_graph *base, fuzz_choices *choices) {
    fb_graph *graph = fb_graph_copy(base, &(fb_work){0});
    json_t *source = json_of_graph(base);
    unsigned count = fuzz_byte(choices) % (MOST_CHANGES + 1);
    require(graph != NULL);
    for (unsigned i = 0; i < count && choices->next < choices->end; i++) {
        random_source random = {.state = fuzz_two_bytes(choices)};
        client_change change;
        json_t *document = json_of_graph(graph);
        bool is_made = choose_change(&random, document, source, &change) && change.kind != CHANGE_RUN &&
                       make_change(NULL, &change, &document);
        char *text = is_made ? json_dumps(document, JSON_COMPACT) : NULL;
        fb_graph *next = text ? fuzz_read(text, strlen(text)) : NULL;
        if (next) {
            fb_graph_free(graph);
            graph = next;
        }
        free(text);
        json_decref(document);
    }
    json_decref(source);
    return graph;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size && data[0] == '{') {
        check_documents((const char *)data, size);
        return 0;
    }
    fuzz_choices choices = {.next = data, .end = data + size};
    fb_buffer document = {0};
    generate_document(fuzz_two_bytes(&choices), &document);
    fb_graph *base = fuzz_read_valid(&document);
    fb_graph *theirs = changed(base, &choices), *ours = changed(base, &choices);
    check(base, theirs, ours);
    fb_graph_free(base);
    fb_graph_free(theirs);
    fb_graph_free(ours);
    fb_buffer_free(&document);
    return 0;
}
