/* Writing headers, byte for byte as the reference implementation does. */
#include <stdlib.h>
#include <string.h>

#include "core/weights/safetensors_internal.h"

/* From the enumeration Dtype in safetensors/src/tensor.rs (0.8), backwards: what needs the largest alignment comes first. */
const fb_safetensors_dtype fb_safetensors_dtypes[] = {
    {"U64", 64, FB_UINT64},
    {"I64", 64, FB_INT64},
    {"F64", 64, FB_FLOAT64},
    {"C64", 64, FB_COMPLEX64},
    {"F32", 32, FB_FLOAT32},
    {"U32", 32, FB_UINT32},
    {"I32", 32, FB_INT32},
    {"BF16", 16, FB_BFLOAT16},
    {"F16", 16, FB_FLOAT16},
    {"U16", 16, FB_UINT16},
    {"I16", 16, FB_INT16},
    {"F8_E5M2FNUZ", 8, FB_DTYPE_UNKNOWN},
    {"F8_E4M3FNUZ", 8, FB_DTYPE_UNKNOWN},
    {"F8_E8M0", 8, FB_DTYPE_UNKNOWN},
    {"F8_E4M3", 8, FB_FLOAT8_E4M3FN},
    {"F8_E5M2", 8, FB_FLOAT8_E5M2},
    {"I8", 8, FB_INT8},
    {"U8", 8, FB_UINT8},
    {"F6_E3M2", 6, FB_DTYPE_UNKNOWN},
    {"F6_E2M3", 6, FB_DTYPE_UNKNOWN},
    {"F4", 4, FB_DTYPE_UNKNOWN},
    {"BOOL", 8, FB_BOOL},
    {0},
};

static const fb_safetensors_dtype *find_dtype(fb_dtype dtype) {
    const fb_safetensors_dtype *found = fb_safetensors_dtypes;
    while (found->name && (found->dtype != dtype || !dtype)) found++;
    return found;
}

const char *fb_safetensors_dtype_name(fb_dtype dtype) {
    return find_dtype(dtype)->name;
}

fb_dtype fb_safetensors_dtype_find(const char *name) {
    const fb_safetensors_dtype *found = fb_safetensors_dtypes;
    while (found->name && strcmp(found->name, name) != 0) found++;
    return found->dtype;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const fb_safetensors_entry *)a)->name, ((const fb_safetensors_entry *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const fb_safetensors_entry *x = a, *y = b;
    const fb_safetensors_dtype *of_x = find_dtype(x->dtype), *of_y = find_dtype(y->dtype);
    if (of_x != of_y) return of_x < of_y ? -1 : 1;
    return by_name(x, y);
}

static fb_status check_entry(fb_safetensors_entry *entry, fb_error *error) {
    const fb_safetensors_dtype *dtype = find_dtype(entry->dtype);
    if (!dtype->name) {
        return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "safetensors files cannot hold %s, the dtype of %s",
                       fb_dtype_name(entry->dtype), entry->name);
    }
    if (strcmp(entry->name, "__metadata__") == 0)
        return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "__metadata__ cannot be a tensor's name in a file");
    entry->dtype_name = dtype->name;
    if (!fb_safetensors_size(entry->shape, entry->rank, dtype->bits, &entry->size))
        return fb_fail(error, FB_TOO_LARGE, "tensor-too-large", "", "%s has 2^64 bits or more", entry->name);
    return FB_OK;
}

/* Their offsets count from the first tensor's byte, for the moment; their sizes are added to *size. */
static fb_status place_entries(fb_safetensors_entry *entries, size_t count, uint64_t *size, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < count && !status; i++) status = check_entry(&entries[i], error);
    if (status) return status;
    if (count) qsort(entries, count, sizeof *entries, by_name);
    for (size_t i = 1; i < count; i++) {
        if (by_name(&entries[i - 1], &entries[i]) == 0)
            return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "two tensors are called %s", entries[i].name);
    }
    if (count) qsort(entries, count, sizeof *entries, by_place);
    for (size_t i = 0; i < count; i++) {
        entries[i].offset = *size;
        if (__builtin_add_overflow(*size, entries[i].size, size) || *size > INT64_MAX - FB_SAFETENSORS_MAX_HEADER - 16)
            return fb_fail(error, FB_TOO_LARGE, "file-too-large", "", "the file would have 2^63 bytes or more");
    }
    return FB_OK;
}

static void write_string(fb_buffer *header, const char *text) {
    fb_buffer_json_string(header, text, strlen(text));
}

static void write_metadata(fb_buffer *header, const json_t *metadata) {
    const char *key;
    json_t *value;
    fb_buffer_string(header, "\"__metadata__\":{");
    const char *comma = "";
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value) {
        fb_buffer_string(header, comma);
        write_string(header, key);
        fb_buffer_char(header, ':');
        write_string(header, json_string_value(value));
        comma = ",";
    }
    fb_buffer_char(header, '}');
}

static void write_entry(fb_buffer *header, const fb_safetensors_entry *entry) {
    write_string(header, entry->name);
    fb_buffer_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", entry->dtype_name);
    for (int i = 0; i < entry->rank; i++) fb_buffer_printf(header, i ? ",%lld" : "%lld", (long long)entry->shape[i]);
    fb_buffer_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->offset,
                     (unsigned long long)(entry->offset + entry->size));
}

fb_status fb_safetensors_lay_out(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                                 uint64_t *size, fb_error *error) {
    uint64_t data_size = 0;
    fb_status status = place_entries(entries, count, &data_size, error);
    if (status) return status;
    fb_buffer text = {0};
    fb_buffer_append(&text, (char[8]){0}, 8);
    fb_buffer_char(&text, '{');
    if (metadata) write_metadata(&text, metadata);
    for (size_t i = 0; i < count; i++) {
        if (i || metadata) fb_buffer_char(&text, ',');
        write_entry(&text, &entries[i]);
    }
    fb_buffer_char(&text, '}');
    while (text.size % 8 && !text.failed) fb_buffer_char(&text, ' ');
    uint64_t length = text.size - 8;
    if (text.failed) status = fb_fail_memory(error);
    else if (length > FB_SAFETENSORS_MAX_HEADER)
        status = fb_fail(error, FB_TOO_LARGE, "file-too-large", "", "the header would have more than 100 MB");
    if (status) {
        fb_buffer_free(&text);
        return status;
    }
    for (int i = 0; i < 8; i++) text.data[i] = (char)(unsigned char)(length >> (8 * i));
    for (size_t i = 0; i < count; i++) entries[i].offset += text.size;
    *size = text.size + data_size;
    fb_buffer_free(header);
    *header = text;
    return FB_OK;
}
