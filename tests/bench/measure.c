#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/bench/bench.h"

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

fb_timing fb_measure(void (*work)(void *), void *context, size_t repeats) {
    double *times = malloc(repeats * sizeof *times);
    if (!times) exit(1);
    work(context);
    for (size_t i = 0; i < repeats; i++) {
        double start = now_ms();
        work(context);
        times[i] = now_ms() - start;
    }
    qsort(times, repeats, sizeof *times, by_size);
    fb_timing timing = {.minimum = times[0], .median = times[repeats / 2]};
    free(times);
    return timing;
}

void fb_print_timing(const char *what, fb_timing timing, const fb_timing *reference) {
    printf("%-68s %10.3f %10.3f", what, timing.minimum, timing.median);
    if (reference) printf(" %8.3f×", timing.median / reference->median);
    putchar('\n');
    fflush(stdout);
}

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

static void put_node(fb_buffer *out, const char *name, const char *op, const char *target, const char *args) {
    fb_buffer_printf(out,
                     ",\n{\"name\": \"%s\", \"op\": \"%s\", \"target\": \"%s\", \"args\": [%s], \"kwargs\": {}, "
                     "\"meta\": {\"shape\": [8, 64], \"dtype\": \"float32\"}}",
                     name, op, target, args);
}

void fb_bench_document(fb_buffer *out, size_t nodes) {
    size_t blocks = nodes / 6;
    char name[64], target[64], args[192], before[64] = "x";
    fb_buffer_string(out, "{\"format\": \"foldback.graph/1\", \"name\": \"bench\",\n\"nodes\": [\n"
                          "{\"name\": \"x\", \"op\": \"placeholder\", \"target\": \"x\", \"args\": [], \"kwargs\": {}, "
                          "\"meta\": {\"shape\": [8, 64], \"dtype\": \"float32\"}}");
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
    fb_buffer_string(
        out, "\n],\n\"modules\": [\n{\"path\": \"\", \"type\": \"torch.nn.Module\", \"config\": {}, \"parameters\": {}, "
             "\"buffers\": {}, \"training\": false}");
    for (size_t i = 0; i < blocks * 3; i++) {
        fb_buffer_printf(out,
                         ",\n{\"path\": \"block.%zu.fc%zu\", \"type\": \"torch.nn.Linear\", \"config\": {\"in_features\": 64, "
                         "\"out_features\": 64, \"bias\": true}, \"parameters\": {\"weight\": \"block.%zu.fc%zu.weight\", "
                         "\"bias\": \"block.%zu.fc%zu.bias\"}, \"buffers\": {}, \"training\": false}",
                         i / 3, i % 3, i / 3, i % 3, i / 3, i % 3);
    }
    fb_buffer_string(out, "\n],\n\"tensors\": [");
    for (size_t i = 0; i < blocks * 3; i++) {
        fb_buffer_printf(out,
                         "%s\n{\"name\": \"block.%zu.fc%zu.weight\", \"dtype\": \"float32\", \"shape\": [64, 64]},\n"
                         "{\"name\": \"block.%zu.fc%zu.bias\", \"dtype\": \"float32\", \"shape\": [64]}",
                         i ? "," : "", i / 3, i % 3, i / 3, i % 3);
    }
    fb_buffer_string(out, "\n],\n\"metadata\": {}}\n");
}
