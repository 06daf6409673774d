#include "tests/bench/weights/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(bool ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "bench: %s failed\n", what);
    exit(1);
}

/* ---- tensors ------------------------------------------------------------------------------------------------------------ */

static void add_tensor(fb_model *model, const char *owner, const char *attribute, fb_dtype dtype, int rank,
                       const int64_t *shape) {
    if (model->count == model->capacity) {
        model->capacity = model->capacity ? model->capacity * 2 : 64;
        model->entries = realloc(model->entries, model->capacity * sizeof *model->entries);
        check(model->entries != NULL, "memory");
    }
    char name[100];
    int64_t *sizes = calloc(4, sizeof *sizes);
    snprintf(name, sizeof name, "%s.%s", owner, attribute);
    check(sizes != NULL, "memory");
    memcpy(sizes, shape, (size_t)rank * sizeof *sizes);
    model->entries[model->count++] = (fb_safetensors_entry){.name = strdup(name), .dtype = dtype, .rank = rank, .shape = sizes};
}

static void put_tensors(fb_model *model) {
    fb_buffer *out = &model->document;
    fb_buffer_string(out, "],\"tensors\":[");
    for (size_t i = 0; i < model->count; i++) {
        const fb_safetensors_entry *one = &model->entries[i];
        fb_buffer_printf(out, "%s{\"name\":\"%s\",\"dtype\":\"%s\",\"shape\":[", i ? "," : "", one->name,
                         fb_dtype_name(one->dtype));
        for (int j = 0; j < one->rank; j++) fb_buffer_printf(out, "%s%lld", j ? "," : "", (long long)one->shape[j]);
        fb_buffer_string(out, "]}");
    }
    fb_buffer_string(out, "]}");
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

/* Numbers from 1 to 2, whose fractions are random. */
static uint64_t next_bits(uint64_t *state, fb_dtype dtype) {
    *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
    if (dtype == FB_INT64) return 0;
    if (dtype == FB_BFLOAT16) return (*state & UINT64_C(0x007f007f007f007f)) | UINT64_C(0x3f803f803f803f80);
    return (*state & UINT64_C(0x007fffff007fffff)) | UINT64_C(0x3f8000003f800000);
}

static void put_bytes(FILE *file, fb_sha256 *hash, const void *bytes, size_t size) {
    check(fwrite(bytes, 1, size, file) == size && fb_sha256_add(hash, bytes, size), "writing the weights");
}

static void put_numbers(FILE *file, fb_sha256 *hash, const fb_safetensors_entry *one, uint64_t *state) {
    static uint64_t block[1 << 14];
    for (uint64_t left = one->size; left;) {
        size_t now = left < sizeof block ? (size_t)left : sizeof block;
        for (size_t i = 0; i < (now + 7) / 8; i++) block[i] = next_bits(state, one->dtype);
        put_bytes(file, hash, block, now);
        left -= now;
    }
}

static void write_file(fb_model *model, const char *path) {
    fb_buffer header = {0};
    uint64_t state = 88172645463325252;
    snprintf(model->path, sizeof model->path, "%s", path);
    check(fb_safetensors_lay_out(model->entries, model->count, NULL, &header, &model->size, NULL) == FB_OK, "the header");
    FILE *file = fopen(path, "wb");
    fb_sha256 *hash = fb_sha256_new();
    check(file && hash, path);
    put_bytes(file, hash, header.data, header.size);
    for (size_t i = 0; i < model->count; i++) put_numbers(file, hash, &model->entries[i], &state);
    check(fclose(file) == 0 && fb_sha256_id_so_far(hash, model->digest), path);
    fb_sha256_free(hash);
    fb_buffer_free(&header);
}

void fb_model_free(fb_model *model) {
    for (size_t i = 0; i < model->count; i++) {
        free((char *)(uintptr_t)model->entries[i].name);
        free((int64_t *)(uintptr_t)model->entries[i].shape);
    }
    free(model->entries);
    unlink(model->path);
    fb_buffer_free(&model->document);
}

/* ---- documents ---------------------------------------------------------------------------------------------------------- */

static void begin(fb_buffer *out, const char *meta) {
    fb_buffer_printf(out,
                     "{\"format\":\"foldback.graph/1\",\"name\":\"bench\",\"nodes\":[{\"name\":\"x\",\"op\":\"placeholder\","
                     "\"target\":\"x\",\"args\":[],\"meta\":%s}",
                     meta);
}

static void put_call(fb_buffer *out, const char *name, const char *op, const char *target, const char *args, const char *meta) {
    fb_buffer_printf(out, ",{\"name\":\"%s\",\"op\":\"%s\",\"target\":\"%s\",\"args\":[%s],\"meta\":%s}", name, op, target,
                     args, meta);
}

static void end_nodes(fb_buffer *out, const char *last) {
    fb_buffer_printf(out,
                     ",{\"name\":\"output\",\"op\":\"output\",\"target\":\"output\",\"args\":[{\"$node\":\"%s\"}]}],"
                     "\"modules\":[{\"path\":\"\",\"type\":\"torch.nn.Module\"}",
                     last);
}

void fb_model_linears(fb_model *model, const char *path, size_t blocks, size_t width) {
    fb_buffer *out = &model->document;
    char meta[80], name[64], target[64], args[160], value[64] = "x";
    const int64_t square[] = {(int64_t)width, (int64_t)width};
    *model = (fb_model){.pass = "MergeLinears"};
    snprintf(meta, sizeof meta, "{\"shape\":[8,%zu],\"dtype\":\"float32\"}", width);
    begin(out, meta);
    for (size_t i = 0; i < 3 * blocks; i++) {
        size_t block = i / 3;
        snprintf(name, sizeof name, "fc%zu", i);
        snprintf(args, sizeof args, "{\"$node\":\"%s\"}", value);
        put_call(out, name, "call_module", name, args, meta);
        if (i % 3 < 2) continue;
        snprintf(args, sizeof args, "{\"$node\":\"fc%zu\"},{\"$node\":\"fc%zu\"}", i - 2, i - 1);
        snprintf(name, sizeof name, "sum%zu", block);
        put_call(out, name, "call_function", "operator.add", args, meta);
        snprintf(args, sizeof args, "{\"$node\":\"sum%zu\"},{\"$node\":\"fc%zu\"}", block, i);
        snprintf(value, sizeof value, "all%zu", block);
        put_call(out, value, "call_function", "operator.add", args, meta);
    }
    end_nodes(out, value);
    for (size_t i = 0; i < 3 * blocks; i++) {
        snprintf(target, sizeof target, "fc%zu", i);
        fb_buffer_printf(out,
                         ",{\"path\":\"%s\",\"type\":\"torch.nn.Linear\",\"config\":{\"in_features\":%zu,\"out_features\":%zu,"
                         "\"bias\":true},\"parameters\":{\"weight\":\"%s.weight\",\"bias\":\"%s.bias\"}}",
                         target, width, width, target, target);
        add_tensor(model, target, "weight", FB_FLOAT32, 2, square);
        add_tensor(model, target, "bias", FB_FLOAT32, 1, square);
    }
    put_tensors(model);
    write_file(model, path);
}

void fb_model_convs(fb_model *model, const char *path, size_t count, size_t channels, fb_dtype dtype) {
    static const char *const statistics[] = {"weight", "bias", "running_mean", "running_var"};
    fb_buffer *out = &model->document;
    char meta[80], conv[64], norm[64], args[100], value[64] = "x";
    const int64_t kernel[] = {(int64_t)channels, (int64_t)channels, 3, 3};
    *model = (fb_model){.pass = "FuseBatchNorm2dInConv2d"};
    snprintf(meta, sizeof meta, "{\"shape\":[1,%zu,8,8],\"dtype\":\"%s\"}", channels, fb_dtype_name(dtype));
    begin(out, meta);
    for (size_t i = 0; i < count; i++) {
        snprintf(conv, sizeof conv, "conv%zu", i);
        snprintf(norm, sizeof norm, "norm%zu", i);
        snprintf(args, sizeof args, "{\"$node\":\"%s\"}", value);
        put_call(out, conv, "call_module", conv, args, meta);
        snprintf(args, sizeof args, "{\"$node\":\"%s\"}", conv);
        put_call(out, norm, "call_module", norm, args, meta);
        strcpy(value, norm);
    }
    end_nodes(out, value);
    for (size_t i = 0; i < count; i++) {
        snprintf(conv, sizeof conv, "conv%zu", i);
        snprintf(norm, sizeof norm, "norm%zu", i);
        fb_buffer_printf(out,
                         ",{\"path\":\"%s\",\"type\":\"torch.nn.Conv2d\",\"config\":{\"in_channels\":%zu,\"out_channels\":%zu,"
                         "\"kernel_size\":{\"$tuple\":[3,3]},\"padding\":{\"$tuple\":[1,1]},\"bias\":false},"
                         "\"parameters\":{\"weight\":\"%s.weight\",\"bias\":null}}"
                         ",{\"path\":\"%s\",\"type\":\"torch.nn.BatchNorm2d\",\"config\":{\"num_features\":%zu},"
                         "\"parameters\":{\"weight\":\"%s.weight\",\"bias\":\"%s.bias\"},"
                         "\"buffers\":{\"running_mean\":\"%s.running_mean\",\"running_var\":\"%s.running_var\","
                         "\"num_batches_tracked\":\"%s.num_batches_tracked\"}}",
                         conv, channels, channels, conv, norm, channels, norm, norm, norm, norm, norm);
        add_tensor(model, conv, "weight", dtype, 4, kernel);
        for (size_t j = 0; j < sizeof statistics / sizeof *statistics; j++)
            add_tensor(model, norm, statistics[j], dtype, 1, kernel);
        add_tensor(model, norm, "num_batches_tracked", FB_INT64, 0, kernel);
    }
    put_tensors(model);
    write_file(model, path);
}
