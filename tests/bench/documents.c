/* The documents that are measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"

void fb_bench_read_file(const char *path, fb_buffer *out) {
    FILE *file = fopen(path, "rb");
    char part[65536];
    size_t size;
    if (!file) {
        perror(path);
        exit(1);
    }
    while ((size = fread(part, 1, sizeof part, file)) > 0) fb_buffer_append(out, part, size);
    fclose(file);
}

/* The beginning of a document, up to the node x. */
static void begin(fb_buffer *out) {
    fb_buffer_string(out, "{\"format\": \"foldback.graph/1\", \"name\": \"bench\",\n\"nodes\": [\n"
                          "{\"name\": \"x\", \"op\": \"placeholder\", \"target\": \"x\", \"args\": [], \"kwargs\": {}, "
                          "\"meta\": {\"shape\": [8, 64], \"dtype\": \"float32\"}}");
}

static void put_node(fb_buffer *out, const char *name, const char *op, const char *target, const char *args) {
    fb_buffer_printf(out,
                     ",\n{\"name\": \"%s\", \"op\": \"%s\", \"target\": \"%s\", \"args\": [%s], \"kwargs\": {}, "
                     "\"meta\": {\"shape\": [8, 64], \"dtype\": \"float32\"}}",
                     name, op, target, args);
}

/* The rest of a document, with that many Linears block.0.fc0, block.0.fc1, block.0.fc2, block.1.fc0 … */
static void end(fb_buffer *out, size_t linears) {
    fb_buffer_string(
        out, "\n],\n\"modules\": [\n{\"path\": \"\", \"type\": \"torch.nn.Module\", \"config\": {}, \"parameters\": {}, "
             "\"buffers\": {}, \"training\": false}");
    for (size_t i = 0; i < linears; i++) {
        fb_buffer_printf(out,
                         ",\n{\"path\": \"block.%zu.fc%zu\", \"type\": \"torch.nn.Linear\", \"config\": {\"in_features\": 64, "
                         "\"out_features\": 64, \"bias\": true}, \"parameters\": {\"weight\": \"block.%zu.fc%zu.weight\", "
                         "\"bias\": \"block.%zu.fc%zu.bias\"}, \"buffers\": {}, \"training\": false}",
                         i / 3, i % 3, i / 3, i % 3, i / 3, i % 3);
    }
    fb_buffer_string(out, "\n],\n\"tensors\": [");
    for (size_t i = 0; i < linears; i++) {
        fb_buffer_printf(out,
                         "%s\n{\"name\": \"block.%zu.fc%zu.weight\", \"dtype\": \"float32\", \"shape\": [64, 64]},\n"
                         "{\"name\": \"block.%zu.fc%zu.bias\", \"dtype\": \"float32\", \"shape\": [64]}",
                         i ? "," : "", i / 3, i % 3, i / 3, i % 3);
    }
    fb_buffer_string(out, "\n],\n\"metadata\": {}}\n");
}

void fb_bench_blocks(fb_buffer *out, size_t nodes) {
    size_t blocks = nodes / 6;
    char name[64], target[64], args[192], before[64] = "x";
    begin(out);
    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof name, "block_%zu_fc%zu", b, i);
            snprintf(target, sizeof target, "block.%zu.fc%zu", b, i);
            snprintf(args, sizeof args, "{\"$node\": \"%s\"}", before);
            put_node(out, name, "call_module", target, args);
        }
        snprintf(name, sizeof name, "truediv_%zu", b);
        snprintf(args, sizeof args, "{\"$node\": \"block_%zu_fc0\"}, {\"$float\": \"8.0\"}", b);
        put_node(out, name, "call_function", "operator.truediv", args);
        snprintf(name, sizeof name, "add_%zu", 2 * b);
        snprintf(args, sizeof args, "{\"$node\": \"truediv_%zu\"}, {\"$node\": \"block_%zu_fc1\"}", b, b);
        put_node(out, name, "call_function", "operator.add", args);
        snprintf(name, sizeof name, "add_%zu", 2 * b + 1);
        snprintf(args, sizeof args, "{\"$node\": \"add_%zu\"}, {\"$node\": \"block_%zu_fc2\"}", 2 * b, b);
        put_node(out, name, "call_function", "operator.add", args);
        snprintf(before, sizeof before, "%s", name);
    }
    snprintf(args, sizeof args, "{\"$node\": \"%s\"}", before);
    put_node(out, "output", "output", "output", args);
    end(out, blocks * 3);
}

void fb_bench_fan(fb_buffer *out, size_t count) {
    char name[64], target[64];
    begin(out);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "block_%zu_fc%zu", i / 3, i % 3);
        snprintf(target, sizeof target, "block.%zu.fc%zu", i / 3, i % 3);
        put_node(out, name, "call_module", target, "{\"$node\": \"x\"}");
    }
    put_node(out, "output", "output", "output", "{\"$node\": \"x\"}");
    end(out, count);
}

void fb_bench_refusals(fb_buffer *out, size_t count) {
    char name[64];
    begin(out);
    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "truediv_%zu", i);
        put_node(out, name, "call_function", "operator.truediv", "{\"$node\": \"x\"}, 0");
    }
    put_node(out, "output", "output", "output", "{\"$node\": \"x\"}");
    end(out, 0);
}
