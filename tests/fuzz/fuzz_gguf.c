/* libFuzzer: whatever bytes come, the reader of GGUF headers answers, and needs no byte that it was not given. Of a file that
 * it takes, the tensors lie within it, and a header with the same metadata and tensors is read as the same. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "core/weights/gguf.h"

static void check_same(const fb_gguf *a, const fb_gguf *b) {
    require(a->count == b->count && a->members == b->members && a->alignment == b->alignment);
    for (size_t i = 0; i < a->count; i++) {
        const fb_gguf_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        require(strcmp(x->name, y->name) == 0 && x->type == y->type && x->rank == y->rank && x->size == y->size);
        require(memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) == 0);
    }
}

/* Lays out a file of the same tensors, and reads it. */
static void check_written(const unsigned char *bytes, const fb_gguf *file) {
    fb_gguf again;
    fb_buffer header = {0};
    fb_error error = {0};
    fb_gguf_tensor *tensors = malloc((file->count + 1) * sizeof *tensors);
    require(tensors);
    bool fits = true;
    if (file->count) memcpy(tensors, file->tensors, file->count * sizeof *tensors);
    for (size_t i = 0; i < file->count; i++) fits &= strlen(tensors[i].name) <= FB_GGUF_MAX_NAME;
    fb_status status = fb_gguf_lay_out(file, bytes, NULL, NULL, tensors, file->count, &header, &error);
    require((status == FB_OK) == fits);
    if (!status) {
        uint64_t end = header.size;
        for (size_t i = 0; i < file->count; i++) end = tensors[i].offset + tensors[i].size;
        require(fb_gguf_read((unsigned char *)header.data, header.size, end, &again, &error) == FB_OK);
        check_same(file, &again);
        fb_gguf_free(&again);
    }
    fb_buffer_free(&header);
    free(tensors);
}

static void check_file(const unsigned char *bytes, size_t size) {
    fb_gguf file, part;
    fb_error error = {0};
    int64_t number;
    const char *text;
    uint64_t length;
    if (fb_gguf_read(bytes, size, size, &file, &error)) {
        require(error.status == FB_INVALID && strcmp(error.code, "bad-gguf") == 0 && error.message[0]);
        return;
    }
    for (size_t i = 0; i < file.count; i++) {
        const fb_gguf_tensor *tensor = &file.tensors[i];
        require(tensor->offset <= size && tensor->size <= size - tensor->offset &&
                tensor->offset % file.alignment == file.data % file.alignment);
    }
    fb_gguf_number(&file, bytes, "general.alignment", &number);
    if (fb_gguf_text(&file, bytes, "general.architecture", &text, &length)) require(length <= size);
    check_written(bytes, &file);
    for (size_t have = 0; have < file.data && have < 200; have++) {
        unsigned char *copy = malloc(have ? have : 1);
        fb_error met = {0};
        require(copy);
        memcpy(copy, bytes, have);
        if (!fb_gguf_read(copy, have, size, &part, &met)) fb_gguf_free(&part);
        else require(met.status == FB_INVALID);
        free(copy);
    }
    fb_gguf_free(&file);
}

/* The input is a file; and it follows the beginning of one of version 3, so that counts and members are met soon. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_file(data, size);
    unsigned char *bytes = malloc(size + 8);
    require(bytes);
    memcpy(bytes, "GGUF\3\0\0\0", 8);
    memcpy(bytes + 8, data, size);
    check_file(bytes, size + 8);
    free(bytes);
    return 0;
}
