/* Evaluates a graph document, for tests and measurements in Python:
 *
 *     evaluate_document [--double] [--weights weights.safetensors] [--rounds n] graph.json inputs.safetensors
 * outputs.safetensors
 *
 * Weights are in the document or in that file. Inputs are called after the placeholders, outputs "output.0", "output.1" … as
 * they are flattened. With --rounds it is evaluated so often, and the milliseconds of each time are printed. Exit status 0: the
 * outputs are written. 3: the graph cannot be evaluated; then "code: message" is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/bind/bind.h"
#include "core/document/document.h"
#include "core/evaluator/evaluator.h"

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

/* ---- weights: one blob -------------------------------------------------------------------------------------------------- */

static fb_status open_weights(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    const fb_buffer *file = context;
    (void)blob, (void)error;
    *out = (fb_blob_bytes){.bytes = (const unsigned char *)file->data, .size = file->size};
    return FB_OK;
}
static void close_weights(void *context, fb_blob_bytes *bytes) {
    (void)context, (void)bytes;
}
static void forget_weights(void *context, const fb_blob_bytes *bytes) {
    (void)context, (void)bytes;
}

static void bind_weights(fb_graph *graph, const fb_blobs *blobs) {
    static const char blob[] = "sha256:0000000000000000000000000000000000000000000000000000000000000000"; /* there is but one */
    const char *files[] = {blob};
    fb_binding binding = {0};
    fb_error error = {0};
    if (fb_bind(graph, files, 1, blobs, NULL, &binding, &error)) stop(2, error.code, error.message);
    if (json_array_size(binding.mismatching)) stop(2, "weights", "some do not fit");
    fb_binding_free(&binding);
}

/* ---- evaluating ---------------------------------------------------------------------------------------------------------- */

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

typedef struct arguments {
    bool is_double;
    int rounds; /* 0 = once, and no times */
    const char *weights, *graph, *inputs, *outputs;
} arguments;

static arguments read_arguments(int argc, char **argv) {
    arguments a = {0};
    const char **paths[] = {&a.graph, &a.inputs, &a.outputs};
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--double") == 0) a.is_double = true;
        else if (strcmp(argv[i], "--weights") == 0 && i + 1 < argc) a.weights = argv[++i];
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) a.rounds = atoi(argv[++i]);
        else if (count < 3) *paths[count++] = argv[i];
    }
    if (count < 3) stop(2, "usage", "evaluate_document [options] graph.json inputs.safetensors outputs.safetensors");
    return a;
}

int main(int argc, char **argv) {
    arguments a = read_arguments(argc, argv);
    fb_buffer document = {0}, bytes = {0}, weights = {0};
    read_file(a.graph, &document);
    read_file(a.inputs, &bytes);
    fb_errors errors = {0};
    fb_error error = {0};
    fb_graph *graph;
    if (fb_document_read(document.data, document.size, NULL, "", &graph, &errors))
        stop(2, errors.items[0].code, errors.items[0].message);
    fb_blobs blobs = {.context = &weights, .open = open_weights, .close = close_weights, .forget = forget_weights};
    if (a.weights) {
        read_file(a.weights, &weights);
        bind_weights(graph, &blobs);
    }
    fb_array_memory memory;
    given in = {.graph = graph, .memory = &memory, .bytes = (const unsigned char *)bytes.data};
    if (fb_safetensors_read(in.bytes, bytes.size, &in.file, &error)) stop(2, error.code, error.message);
    fb_eval_options options = {.precision = a.is_double ? FB_PRECISION_DOUBLE : FB_PRECISION_RECORDED,
                               .blobs = a.weights ? &blobs : NULL};
    fb_eval_hooks hooks = {.context = &in, .given = give};
    fb_object output = {.kind = FB_OBJECT_NONE};
    for (int round = 0; round < (a.rounds ? a.rounds : 1); round++) {
        fb_object_drop(&output);
        double start = now_ms();
        if (fb_evaluate_graph(graph, &options, &hooks, &memory, &output, &error)) stop(3, error.code, error.message);
        if (a.rounds) printf("%.3f\n", now_ms() - start);
    }
    fb_array **arrays;
    size_t count;
    if (fb_flatten_output(&output, &arrays, &count, &error)) stop(2, error.code, error.message);
    write_outputs(a.outputs, arrays, count);
    for (size_t i = 0; i < count; i++) fb_array_drop(arrays[i]);
    free(arrays);
    fb_object_drop(&output);
    fb_safetensors_free(&in.file);
    fb_graph_free(graph);
    fb_buffer_free(&document);
    fb_buffer_free(&bytes);
    fb_buffer_free(&weights);
    return 0;
}
