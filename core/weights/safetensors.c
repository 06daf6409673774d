/* The headers of safetensors files: read, and written byte for byte as the reference implementation does. */
#include "core/weights/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/arena.h"
#include "core/base/file_kind.h"
#include "core/base/sort.h"
#include "core/json/scan.h"

typedef struct dtype_row {
    const char *name;
    unsigned bits; /* of an element */
    fb_dtype dtype;
} dtype_row;

/* From the enumeration Dtype in safetensors/src/tensor.rs (0.8), backwards: what needs the largest alignment comes first. */
/* In the order in which a file has its tensors. A name of NULL ends it. */
static const dtype_row dtypes[] = {
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
    {"F8_E5M2FNUZ", 8, FB_FLOAT8_E5M2FNUZ},
    {"F8_E4M3FNUZ", 8, FB_FLOAT8_E4M3FNUZ},
    {"F8_E8M0", 8, FB_FLOAT8_E8M0FNU},
    {"F8_E4M3", 8, FB_FLOAT8_E4M3FN},
    {"F8_E5M2", 8, FB_FLOAT8_E5M2},
    {"I8", 8, FB_INT8},
    {"U8", 8, FB_UINT8},
    {"F6_E3M2", 6, FB_FLOAT6_E3M2FN_X4},
    {"F6_E2M3", 6, FB_FLOAT6_E2M3FN_X4},
    {"F4", 4, FB_FLOAT4_E2M1FN_X2},
    {"BOOL", 8, FB_BOOL},
    {0},
};

#define MAX_METADATA 100000 /* members */
#define NESTING 3           /* the header, an entry, its shape */

typedef struct reader {
    fb_scan scan;
    fb_arena arena;
    fb_buffer entries; /* fb_safetensors_entry, whose offset counts from the first tensor's byte */
    json_t *metadata;
    const char *name; /* of the entry in hand, or NULL */
    fb_error *error;
    fb_status status;
} reader;

/* ---- errors ------------------------------------------------------------------------------------------------------------- */

/* "[the dtype of "fc.weight"] is not a string": at a member of the entry of that name, at the entry, or at the header. */
static void fail_at(reader *r, const char *name, const char *member, const char *message) {
    if (r->status) return;
    fb_buffer pointer = {0}, text = {0};
    if (name) {
        fb_buffer_pointer_token(&pointer, name, strlen(name));
        if (member) fb_buffer_pointer_token(&pointer, member, strlen(member));
        fb_buffer_printf(&text, member ? "%s of \"%s\" " : "%s\"%s\" ", member ? member : "", name);
    }
    fb_buffer_string(&text, message);
    bool ok = fb_buffer_text(&pointer) && fb_buffer_text(&text);
    r->status = ok ? fb_fail(r->error, FB_INVALID, "bad-safetensors", pointer.data, "%s", text.data) : fb_fail_memory(r->error);
    fb_buffer_free(&pointer);
    fb_buffer_free(&text);
}

static void fail(reader *r, const char *member, const char *message) {
    fail_at(r, r->name, member, message);
}

static void fail_memory(reader *r) {
    if (!r->status) r->status = fb_fail_memory(r->error);
}

/* True if the scanner has found a fault, which is then reported. */
static bool scan_failed(reader *r) {
    if (r->scan.status == FB_NO_MEMORY) fail_memory(r);
    else if (r->scan.status && !r->status)
        r->status = fb_fail(r->error, FB_INVALID, "bad-safetensors", "",
                            "the header is not the JSON of a safetensors file: byte %zu: %s",
                            (size_t)(r->scan.failed_at - r->scan.start), r->scan.message);
    return r->scan.status != FB_OK;
}

/* ---- members ------------------------------------------------------------------------------------------------------------ */

/* The next value, which must be a string or an int; NULL otherwise. Only a small one is looked at, so that any value is cheap.
 */
static const fb_json *scan_scalar(reader *r, fb_json_kind kind, const char *member, const char *message) {
    r->scan.max_nesting = r->scan.depth;
    const fb_json *value = fb_scan_value(&r->scan);
    r->scan.max_nesting = NESTING;
    if (!value && r->scan.status != FB_INVALID) scan_failed(r);
    else if (!value || value->kind != kind) fail(r, member, message);
    return r->status ? NULL : value;
}

/* An int as the reference implementation takes it: no sign, not 3.0. */
static bool scan_size(reader *r, const char *member, int64_t *out) {
    static const char message[] = "has something else than whole numbers";
    const fb_json *value = scan_scalar(r, FB_JSON_INT, member, message);
    if (value && r->scan.start[value->offset] == '-') fail(r, member, message);
    if (r->status) return false;
    *out = value->integer;
    return true;
}

/* A list of at most `limit` sizes; how many there are, or SIZE_MAX when that is wrong. */
static size_t scan_sizes(reader *r, const char *member, int64_t *sizes, size_t limit) {
    size_t index = SIZE_MAX, count = 0;
    if (!fb_scan_enter(&r->scan, '[')) fail(r, member, "is not a list");
    while (!r->status && fb_scan_more(&r->scan, ']', &index)) {
        int64_t size;
        if (!scan_size(r, member, &size)) break;
        if (count == limit) fail(r, member, "is too long");
        else sizes[count++] = size;
    }
    scan_failed(r);
    return r->status ? SIZE_MAX : count;
}

static void scan_dtype(reader *r, fb_safetensors_entry *entry, unsigned *bits) {
    const fb_json *name = scan_scalar(r, FB_JSON_STRING, "dtype", "is not a string");
    if (!name) return;
    const dtype_row *dtype = dtypes;
    while (dtype->name && !fb_json_is(name, dtype->name)) dtype++;
    if (!dtype->name) fail(r, "dtype", "is not a safetensors dtype");
    entry->dtype_name = dtype->name;
    entry->dtype = dtype->dtype;
    *bits = dtype->bits;
}

static void scan_shape(reader *r, fb_safetensors_entry *entry) {
    int64_t sizes[FB_SAFETENSORS_MAX_RANK];
    size_t rank = scan_sizes(r, "shape", sizes, FB_SAFETENSORS_MAX_RANK);
    if (rank == SIZE_MAX) return;
    int64_t *shape = fb_arena_alloc(&r->arena, (rank + 1) * sizeof *shape);
    if (!shape) {
        fail_memory(r);
        return;
    }
    if (rank) memcpy(shape, sizes, rank * sizeof *shape);
    entry->shape = shape;
    entry->rank = (int)rank;
}

static void scan_offsets(reader *r, fb_safetensors_entry *entry) {
    int64_t offsets[2] = {0, 0};
    size_t count = scan_sizes(r, "data_offsets", offsets, 2);
    if (count == SIZE_MAX) return;
    if (count != 2) fail(r, "data_offsets", "is not a pair");
    else if (offsets[1] < offsets[0]) fail(r, "data_offsets", "ends before it begins");
    entry->offset = (uint64_t)offsets[0];
    entry->size = (uint64_t)offsets[1] - entry->offset;
}

/* Bytes of a tensor; false when its bits cannot be counted in 64 bits, or are not whole bytes. */
static bool size_of_tensor(const int64_t *shape, int rank, unsigned bits, uint64_t *size) {
    uint64_t product = 1;
    for (int i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(product, (uint64_t)shape[i], &product)) return false;
    }
    if (__builtin_mul_overflow(product, bits, &product) || product % 8) return false;
    *size = product / 8;
    return true;
}

/* The format counts the numbers of F4 and F6, graphs the elements that pack some of them. Where a row would end within an
 * element, graphs have the elements in a row, and the format's shape beside them. */
static void pack_shape(reader *r, fb_safetensors_entry *entry) {
    int64_t packs = fb_dtype_packs(entry->dtype), *shape = (int64_t *)(uintptr_t)entry->shape;
    if (packs == 1 || !entry->rank) return;
    if (shape[entry->rank - 1] % packs == 0) {
        shape[entry->rank - 1] /= packs;
        return;
    }
    int64_t *flat = fb_arena_alloc(&r->arena, sizeof *flat);
    if (!flat) {
        fail_memory(r);
        return;
    }
    *flat = (int64_t)(entry->size / fb_dtype_size(entry->dtype));
    entry->torn_shape = entry->shape;
    entry->torn_rank = entry->rank;
    entry->shape = flat;
    entry->rank = 1;
}

/* {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]} */
static void scan_entry(reader *r) {
    static const char *const members[] = {"dtype", "shape", "data_offsets"};
    bool is_there[3] = {false, false, false};
    fb_safetensors_entry entry = {.name = r->name};
    unsigned bits = 0;
    size_t index = SIZE_MAX;
    if (!fb_scan_enter(&r->scan, '{')) fail(r, NULL, "is not an object");
    while (!r->status && fb_scan_more(&r->scan, '}', &index)) {
        const fb_json *key = fb_scan_key(&r->scan);
        if (!key) break;
        int member = 0;
        while (member < 3 && !fb_json_is(key, members[member])) member++;
        if (member == 3) fail(r, NULL, "has another member than dtype, shape and data_offsets");
        else if (is_there[member]) fail(r, members[member], "is there twice");
        else is_there[member] = true;
        if (r->status) break;
        if (member == 0) scan_dtype(r, &entry, &bits);
        else if (member == 1) scan_shape(r, &entry);
        else scan_offsets(r, &entry);
    }
    scan_failed(r);
    for (int member = 0; member < 3; member++) {
        if (!is_there[member]) fail(r, members[member], "is missing");
    }
    uint64_t size;
    if (r->status) return;
    if (!size_of_tensor(entry.shape, entry.rank, bits, &size))
        fail(r, "shape", "makes a tensor of more than 2^64 bits, or of a part of a byte");
    else if (size != entry.size) fail(r, "data_offsets", "are not as many bytes as dtype and shape have");
    if (!r->status) pack_shape(r, &entry);
    fb_buffer_append(&r->entries, &entry, sizeof entry);
}

static void scan_metadata(reader *r) {
    size_t index = SIZE_MAX;
    if (r->status) return;
    if (!fb_scan_enter(&r->scan, '{')) {
        scan_scalar(r, FB_JSON_NULL, NULL, "is not an object of strings"); /* null means none */
        return;
    }
    if (!(r->metadata = json_object())) fail_memory(r);
    while (!r->status && fb_scan_more(&r->scan, '}', &index)) {
        const fb_json *key = fb_scan_key(&r->scan);
        char *name = key ? fb_arena_text(&r->arena, key->text, key->count) : NULL;
        if (key && !name) fail_memory(r);
        if (!name) break;
        const fb_json *value = scan_scalar(r, FB_JSON_STRING, name, "is not a string");
        if (!value) break;
        if (index >= MAX_METADATA) fail(r, NULL, "has too many members");
        else if (json_object_get(r->metadata, name)) fail(r, name, "is there twice");
        else if (json_object_set_new(r->metadata, name, json_stringn(value->text, value->count))) fail_memory(r);
    }
    scan_failed(r);
}

static void scan_header(reader *r) {
    size_t index = SIZE_MAX;
    bool has_metadata = false;
    fb_scan_enter(&r->scan, '{');
    while (!r->status && fb_scan_more(&r->scan, '}', &index)) {
        const fb_json *key = fb_scan_key(&r->scan);
        if (!key) break;
        r->name = fb_arena_text(&r->arena, key->text, key->count);
        if (!r->name) {
            fail_memory(r);
        } else if (strcmp(r->name, "__metadata__") != 0) {
            scan_entry(r);
        } else {
            if (has_metadata) fail(r, NULL, "is there twice");
            has_metadata = true;
            scan_metadata(r);
        }
    }
    if (!scan_failed(r) && !r->status && !fb_scan_end(&r->scan)) scan_failed(r);
    if (r->entries.failed) fail_memory(r);
}

/* ---- all entries -------------------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    const fb_safetensors_entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* As in the header where two are of no size at one place. */
static int by_offset(const void *a, const void *b) {
    const fb_safetensors_entry *x = *(const fb_safetensors_entry *const *)a, *y = *(const fb_safetensors_entry *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* Sorts them by offset, into `sorted`; names must differ, and the bytes of one follow another's. */
static void check_entries(reader *r, const fb_safetensors_entry **order, size_t count, fb_safetensors_entry *sorted,
                          uint64_t data_size) {
    const fb_safetensors_entry *entries = (const fb_safetensors_entry *)(const void *)r->entries.data;
    for (size_t i = 0; i < count; i++) order[i] = &entries[i];
    fb_sort(order, count, sizeof *order, by_name);
    for (size_t i = 1; i < count; i++) {
        if (strcmp(order[i - 1]->name, order[i]->name) == 0) fail_at(r, order[i]->name, NULL, "is there twice");
    }
    fb_sort(order, count, sizeof *order, by_offset);
    uint64_t end = 0;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = *order[i];
        if (sorted[i].offset < end) fail_at(r, sorted[i].name, "data_offsets", "overlap those of another tensor");
        if (sorted[i].offset > end) fail_at(r, sorted[i].name, "data_offsets", "leave a hole before them");
        end = sorted[i].offset + sorted[i].size;
    }
    if (!r->status && end != data_size)
        r->status = fb_fail(r->error, FB_INVALID, "bad-safetensors", "",
                            "the header describes %llu bytes of tensors, and %llu are there", (unsigned long long)end,
                            (unsigned long long)data_size);
}

static void finish(reader *r, uint64_t header_end, uint64_t file_size, fb_safetensors *out) {
    size_t count = r->entries.size / sizeof *out->entries;
    fb_safetensors_entry *sorted = calloc(count + 1, sizeof *sorted);
    const fb_safetensors_entry **order = calloc(count + 1, sizeof *order);
    if (sorted && order) check_entries(r, order, count, sorted, file_size - header_end);
    else fail_memory(r);
    fb_arena *memory = r->status ? NULL : malloc(sizeof *memory);
    if (!memory) fail_memory(r);
    free(order);
    if (r->status) {
        free(sorted);
        return;
    }
    for (size_t i = 0; i < count; i++) sorted[i].offset += header_end;
    *memory = r->arena;
    r->arena = (fb_arena){0};
    *out = (fb_safetensors){.entries = sorted, .count = count, .metadata = r->metadata, .size = file_size, .memory = memory};
    r->metadata = NULL;
}

/* The size of the header, or 0 and an error. */
static uint64_t header_size(reader *r, const unsigned char *bytes, uint64_t size) {
    uint64_t count = 0;
    const char *kind = fb_kind_instead_of_safetensors(bytes, size);
    if (kind) fail(r, NULL, kind);
    else if (size < 8) fail(r, NULL, "the file is shorter than the size of its header");
    for (int i = 0; i < 8 && !r->status; i++) count |= (uint64_t)bytes[i] << (8 * i);
    if (count > FB_SAFETENSORS_MAX_HEADER) fail(r, NULL, "the header is larger than 100 MB, or this is not a safetensors file");
    else if (size >= 8 && count > size - 8) fail(r, NULL, "the header ends beyond the end of the file");
    else if (count == 0 || bytes[8] != '{') fail(r, NULL, "the header does not begin with {: this is not a safetensors file");
    return r->status ? 0 : count;
}

fb_status fb_safetensors_read(const unsigned char *bytes, uint64_t size, fb_safetensors *out, fb_error *error) {
    reader r = {.error = error};
    uint64_t header = header_size(&r, bytes, size);
    if (!r.status) {
        fb_scan_init(&r.scan, (const char *)bytes + 8, (size_t)header, NESTING);
        scan_header(&r);
    }
    if (!r.status) finish(&r, 8 + header, size, out);
    fb_scan_free(&r.scan);
    fb_arena_free(&r.arena);
    fb_buffer_free(&r.entries);
    json_decref(r.metadata);
    return r.status;
}

void fb_safetensors_free(fb_safetensors *file) {
    if (file->memory) fb_arena_free(file->memory);
    free(file->memory);
    free(file->entries);
    json_decref(file->metadata);
    *file = (fb_safetensors){0};
}

static const dtype_row *find_dtype(fb_dtype dtype) {
    const dtype_row *found = dtypes;
    while (found->name && (found->dtype != dtype || !dtype)) found++;
    return found;
}

static int entry_by_name(const void *a, const void *b) {
    return strcmp(((const fb_safetensors_entry *)a)->name, ((const fb_safetensors_entry *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const fb_safetensors_entry *x = a, *y = b;
    const dtype_row *of_x = find_dtype(x->dtype), *of_y = find_dtype(y->dtype);
    if (of_x != of_y) return of_x < of_y ? -1 : 1;
    return entry_by_name(x, y);
}

static fb_status check_entry(fb_safetensors_entry *entry, fb_error *error) {
    const dtype_row *dtype = find_dtype(entry->dtype);
    int64_t packs = fb_dtype_packs(entry->dtype);
    if (!dtype->name || (packs > 1 && !entry->rank)) {
        return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "safetensors files cannot hold %s, the dtype of %s",
                       fb_dtype_name(entry->dtype), entry->name);
    }
    if (strcmp(entry->name, "__metadata__") == 0)
        return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "__metadata__ cannot be a tensor's name in a file");
    entry->dtype_name = dtype->name;
    if (!size_of_tensor(entry->shape, entry->rank, (unsigned)(packs * dtype->bits), &entry->size))
        return fb_fail(error, FB_TOO_LARGE, "tensor-too-large", "", "%s has 2^64 bits or more", entry->name);
    return FB_OK;
}

/* Their offsets count from the first tensor's byte, for the moment; their sizes are added to *size. */
static fb_status place_entries(fb_safetensors_entry *entries, size_t count, uint64_t *size, fb_error *error) {
    fb_status status = FB_OK;
    for (size_t i = 0; i < count && !status; i++) status = check_entry(&entries[i], error);
    if (status) return status;
    fb_sort(entries, count, sizeof *entries, entry_by_name);
    for (size_t i = 1; i < count; i++) {
        if (entry_by_name(&entries[i - 1], &entries[i]) == 0)
            return fb_fail(error, FB_INVALID, "not-in-safetensors", "", "two tensors are called %s", entries[i].name);
    }
    fb_sort(entries, count, sizeof *entries, by_place);
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
    int rank = entry->torn_shape ? entry->torn_rank : entry->rank;
    for (int i = 0; i < rank; i++) {
        int64_t packed = i == rank - 1 ? fb_dtype_packs(entry->dtype) : 1;
        int64_t size = entry->torn_shape ? entry->torn_shape[i] : entry->shape[i] * packed;
        fb_buffer_printf(header, i ? ",%lld" : "%lld", (long long)size);
    }
    fb_buffer_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)entry->offset,
                     (unsigned long long)(entry->offset + entry->size));
}

/* Their offsets count from the first tensor's byte before, and from the file's after it. */
static fb_status write_header(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                              fb_error *error) {
    fb_status status = FB_OK;
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
    fb_buffer_free(header);
    *header = text;
    return FB_OK;
}

fb_status fb_safetensors_lay_out(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                                 uint64_t *size, fb_error *error) {
    uint64_t data_size = 0;
    fb_status status = place_entries(entries, count, &data_size, error);
    if (!status) status = write_header(entries, count, metadata, header, error);
    if (!status) *size = header->size + data_size;
    return status;
}

fb_status fb_safetensors_cut_out(fb_safetensors_entry *entries, size_t count, const json_t *metadata, fb_buffer *header,
                                 fb_error *error) {
    uint64_t begin = count ? entries[0].offset : 0;
    for (size_t i = 0; i < count; i++) entries[i].offset -= begin;
    return write_header(entries, count, metadata, header, error);
}
