/* Evaluates a graph document with inline weights, for tests in Python: `evaluate_document [--double] graph.json
 * inputs.safetensors outputs.safetensors`. Inputs are called after the placeholders, outputs "output.0", "output.1" … as they
 * are flattened. Exit status 0: they are written. 3: the graph cannot be evaluated; then "code: message" is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/eval/evaluate_graph.h"
#include "core/graph/document.h"
#include "core/weights/safetensors.h"

typedef struct given {
    const fb_graph *graph;
    fb_array_memory *memory;
    const unsigned char *bytes;
    fb_safetensors file;
} given;

static fb_status give(void *context, fb_node node, fb_object *out, fb_error *error) {
    const given *in = context;
    const char *name = fb_node_target(in->graph, node);
    for (size_t i = 0; i < in->file.count; i++) {
        const fb_safetensors_entry *entry = &in->file.entries[i];
        if (strcmp(entry->name, name) != 0) continue;
        fb_status status = fb_array_from_bytes(in->memory, entry->dtype, entry->rank, entry->shape, in->bytes + entry->offset,
                                               entry->size, &out->array, error);
        if (!status) out->kind = FB_OBJECT_ARRAY;
        return status;
    }
    return FB_NOT_FOUND;
}

static _Noreturn void stop(int code, const char *what, const char *why) {
    printf("%s: %s\n", what, why);
    exit(code);
}

static void read_file(const char *path, fb_buffer *out) {
    FILE *file = fopen(path, "rb");
    char part[65536];
    if (!file) stop(2, path, "cannot be opened");
    for (size_t size; (size = fread(part, 1, sizeof part, file)) > 0;) fb_buffer_append(out, part, size);
    fclose(file);
    if (out->failed) stop(2, path, "is too large");
}

static void write_outputs(const char *path, fb_array *const *arrays, size_t count) {
    fb_safetensors_entry *entries = calloc(count + 1, sizeof *entries);
    char(*names)[32] = calloc(count + 1, sizeof *names);
    fb_buffer header = {0};
    fb_error error = {0};
    uint64_t size;
    if (!entries || !names) stop(2, path, "out of memory");
    for (size_t i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "output.%zu", i);
        entries[i] = (fb_safetensors_entry){
            .name = names[i], .dtype = arrays[i]->dtype, .rank = arrays[i]->rank, .shape = arrays[i]->sizes};
    }
    if (fb_safetensors_lay_out(entries, count, NULL, &header, &size, &error)) stop(2, error.code, error.message);
    FILE *file = fopen(path, "wb");
    if (!file) stop(2, path, "cannot be written");
    fwrite(header.data, 1, header.size, file);
    for (size_t i = 0; i < count; i++) { /* in the order of the file */
        const fb_array *array = arrays[strtoul(entries[i].name + strlen("output."), NULL, 10)];
        void *bytes = malloc(entries[i].size + 1);
        if (!bytes) stop(2, path, "out of memory");
        fb_array_to_bytes(array, bytes);
        fwrite(bytes, 1, entries[i].size, file);
        free(bytes);
    }
    if (fclose(file) != 0) stop(2, path, "cannot be written");
    fb_buffer_free(&header);
    free(names);
    free(entries);
}

int main(int argc, char **argv) {
    bool is_double = argc > 1 && strcmp(argv[1], "--double") == 0;
    if (argc != 4 + is_double)
        stop(2, "usage", "evaluate_document [--double] graph.json inputs.safetensors outputs.safetensors");
    char **paths = argv + 1 + is_double;
    fb_buffer document = {0}, bytes = {0};
    read_file(paths[0], &document);
    read_file(paths[1], &bytes);
    fb_errors errors = {0};
    fb_error error = {0};
    fb_graph *graph;
    if (fb_document_read((const char *)document.data, document.size, NULL, "", &graph, &errors))
        stop(2, errors.items[0].code, errors.items[0].message);
    fb_array_memory memory;
    given in = {.graph = graph, .memory = &memory, .bytes = (const unsigned char *)bytes.data};
    if (fb_safetensors_read(in.bytes, bytes.size, &in.file, &error)) stop(2, error.code, error.message);
    fb_eval_options options = {.precision = is_double ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED};
    fb_eval_hooks hooks = {.context = &in, .given = give};
    fb_object output;
    if (fb_evaluate_graph(graph, &options, &hooks, &memory, &output, &error)) stop(3, error.code, error.message);
    fb_array **arrays;
    size_t count;
    if (fb_flatten_output(&output, &arrays, &count, &error)) stop(2, error.code, error.message);
    write_outputs(paths[2], arrays, count);
    for (size_t i = 0; i < count; i++) fb_array_drop(arrays[i]);
    free(arrays);
    fb_object_drop(&output);
    fb_safetensors_free(&in.file);
    fb_graph_free(graph);
    fb_buffer_free(&document);
    fb_buffer_free(&bytes);
    return 0;
}
