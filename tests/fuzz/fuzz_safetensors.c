/* libFuzzer: whatever bytes come, the reader of safetensors headers answers; and of the tensors that it takes a header is laid
 * out that says the same, and that is laid out the same again. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/weights/safetensors.h"

static const fb_safetensors_entry *find(const fb_safetensors *file, const char *name) {
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].name, name) == 0) return &file->entries[i];
    }
    return NULL;
}

/* Their bytes follow each other and fill the file. */
static void check_entries(const fb_safetensors *file, uint64_t header, uint64_t size) {
    uint64_t end = header;
    for (size_t i = 0; i < file->count; i++) {
        require(file->entries[i].offset == end && file->entries[i].dtype_name);
        end += file->entries[i].size;
    }
    require(end == size && file->size == size);
}

static void check_same(const fb_safetensors *a, const fb_safetensors *b) {
    require(a->count == b->count && (a->metadata ? json_equal(a->metadata, b->metadata) : !b->metadata));
    for (size_t i = 0; i < a->count; i++) {
        const fb_safetensors_entry *x = &a->entries[i], *y = find(b, x->name);
        require(y && x->dtype == y->dtype && x->size == y->size && x->rank == y->rank);
        for (int d = 0; d < x->rank; d++) require(x->shape[d] == y->shape[d]);
    }
}

static void check_file(const uint8_t *bytes, uint64_t size) {
    fb_safetensors file, again;
    fb_error error = {0};
    if (fb_safetensors_read(bytes, size, &file, &error) != FB_OK) {
        require(error.status == FB_INVALID && error.message[0]);
        return;
    }
    uint64_t header;
    memcpy(&header, bytes, sizeof header);
    check_entries(&file, 8 + header, size);
    bool all_are_ours = true;
    for (size_t i = 0; i < file.count; i++) all_are_ours &= file.entries[i].dtype != FB_DTYPE_UNKNOWN;
    fb_buffer once = {0}, twice = {0};
    uint64_t total;
    fb_status status = fb_safetensors_lay_out(file.entries, file.count, file.metadata, &once, &total, &error);
    require((status == FB_OK) == all_are_ours);
    if (!status) {
        require(fb_safetensors_read((const unsigned char *)once.data, total, &again, &error) == FB_OK);
        check_entries(&again, once.size, total);
        check_same(&file, &again);
        require(fb_safetensors_lay_out(again.entries, again.count, again.metadata, &twice, &total, &error) == FB_OK);
        require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
        fb_safetensors_free(&again);
    }
    fb_buffer_free(&once);
    fb_buffer_free(&twice);
    fb_safetensors_free(&file);
}

/* The input is a file; and it is a header, after two bytes that say how many bytes of tensors follow. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_file(data, size);
    if (size < 2) return 0;
    uint64_t length = size - 2, tensors = data[0] | (uint64_t)data[1] << 8;
    unsigned char *bytes = malloc(8 + length);
    require(bytes);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, data + 2, length);
    check_file(bytes, 8 + length + tensors); /* of which only the header is looked at */
    free(bytes);
    return 0;
}
