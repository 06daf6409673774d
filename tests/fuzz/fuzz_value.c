/* libFuzzer: whatever JSON stands as an argument, the reader of values answers; what it takes is one value wherever it stands,
 * is written in one form that reads back as itself, and can be printed as Python. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/diff/diff.h"
#include "core/graph/code.h"

static const char before[] = "{\"format\":\"foldback.graph/1\",\"nodes\":["
                             "{\"name\":\"x\",\"op\":\"placeholder\",\"target\":\"x\"},"
                             "{\"name\":\"y\",\"op\":\"placeholder\",\"target\":\"y\"},"
                             "{\"name\":\"f\",\"op\":\"call_function\",\"target\":\"torch.add\",\"args\":[";
static const char between[] = ",0],\"kwargs\":{\"k\":";
static const char after[] = "}},{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"f\"}]}],"
                            "\"modules\":[{\"path\":\"\",\"type\":\"M\"}],\"tensors\":[]}";

static fb_graph *graph_with(const char *value, size_t size) {
    fb_buffer document = {0};
    fb_buffer_append(&document, before, sizeof before - 1);
    fb_buffer_append(&document, value, size);
    fb_buffer_append(&document, between, sizeof between - 1);
    fb_buffer_append(&document, value, size);
    fb_buffer_append(&document, after, sizeof after - 1);
    require(!document.failed);
    fb_graph *graph = fuzz_read(document.data, document.size);
    fb_buffer_free(&document);
    return graph;
}

/* The first argument of the node that calls; the same value stands under the keyword. None when the text had more than one
 * value in it, or members of its own. */
static fb_value argument(const fb_graph *graph) {
    const fb_node_row *call = fb_node_at(graph, fb_node_find(graph, FB_MAIN_PROGRAM, "f"));
    if (fb_value_at(graph, call->args)->count != 2 || fb_value_at(graph, call->kwargs)->count != 2) return (fb_value){0};
    fb_value value = fb_value_item(graph, call->args, 0);
    require(fb_values_equal(graph, value, fb_map_value(graph, call->kwargs, "k")));
    return value;
}

static void check(const fb_graph *graph, fb_value value) {
    fb_buffer once = {0}, twice = {0}, code = {0};
    fb_value_write(graph, value, &once);
    fb_graph *again = graph_with(once.data, once.size);
    require(!once.failed && again && fuzz_is_same(graph, again));
    fb_value_write(again, argument(again), &twice);
    require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
    require(fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code) && code.size);
    fb_diff diff;
    fb_error error = {0};
    require(fb_diff_make(graph, again, &(fb_work){0}, &diff, &error) == FB_OK && diff.count == 0);
    fb_diff_free(&diff);
    fb_graph_free(again);
    fb_buffer_free(&once);
    fb_buffer_free(&twice);
    fb_buffer_free(&code);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fb_graph *graph = graph_with((const char *)data, size);
    if (!graph) return 0;
    fb_value value = argument(graph);
    if (value.id) check(graph, value);
    fb_graph_free(graph);
    return 0;
}
