#include <stdlib.h>
#include <string.h>

#include "core/base/sort.h"
#include "core/json/scan.h"
#include "core/weights/gguf.h"

/* Of ggml's ggml_type: those whose blocks have had this size since version 2 of the format. */
static const fb_gguf_type types[] = {
    {0, "F32", "F32", 1, 4},        {1, "F16", "F16", 1, 2},        {2, "Q4_0", NULL, 32, 18},
    {3, "Q4_1", NULL, 32, 20},      {6, "Q5_0", NULL, 32, 22},      {7, "Q5_1", NULL, 32, 24},
    {8, "Q8_0", NULL, 32, 34},      {9, "Q8_1", NULL, 32, 36},      {10, "Q2_K", NULL, 256, 84},
    {11, "Q3_K", NULL, 256, 110},   {12, "Q4_K", NULL, 256, 144},   {13, "Q5_K", NULL, 256, 176},
    {14, "Q6_K", NULL, 256, 210},   {15, "Q8_K", NULL, 256, 292},   {16, "IQ2_XXS", NULL, 256, 66},
    {17, "IQ2_XS", NULL, 256, 74},  {18, "IQ3_XXS", NULL, 256, 98}, {19, "IQ1_S", NULL, 256, 50},
    {20, "IQ4_NL", NULL, 32, 18},   {21, "IQ3_S", NULL, 256, 110},  {22, "IQ2_S", NULL, 256, 82},
    {23, "IQ4_XS", NULL, 256, 136}, {24, "I8", "I8", 1, 1},         {25, "I16", "I16", 1, 2},
    {26, "I32", "I32", 1, 4},       {27, "I64", "I64", 1, 8},       {28, "F64", "F64", 1, 8},
    {29, "IQ1_M", NULL, 256, 56},   {30, "BF16", "BF16", 1, 2},     {34, "TQ1_0", NULL, 256, 54},
    {35, "TQ2_0", NULL, 256, 66},   {39, "MXFP4", NULL, 32, 17},
};
enum { TYPES = sizeof types / sizeof *types };

static const fb_gguf_type *type_of(uint32_t id) {
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].id == id) return &types[i];
    }
    return NULL;
}

const fb_gguf_type *fb_gguf_type_named(const char *name) {
    for (size_t i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name) == 0) return &types[i];
    }
    return NULL;
}

const fb_gguf_type *fb_gguf_type_of_dtype(const char *dtype) {
    for (size_t i = 0; i < TYPES; i++) {
        if (types[i].dtype && strcmp(types[i].dtype, dtype) == 0) return &types[i];
    }
    return NULL;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

enum { UINT8, INT8, UINT16, INT16, UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64, INT64, FLOAT64, KINDS };
static const unsigned char sizes[KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; /* of a member's value, bytes */

#define DEFAULT_ALIGNMENT 32
#define MAX_NESTING 4 /* of arrays; llama.cpp nests none */

typedef struct reader {
    const unsigned char *bytes;
    uint64_t have, size, at;
    fb_error *error;
} reader;

static fb_status wrong(reader *r, const char *what) {
    return fb_fail(r->error, FB_INVALID, "bad-gguf", NULL, "%s, at byte %llu", what, (unsigned long long)r->at);
}

/* Takes a range of bytes; NULL after a failure. */
static const unsigned char *take(reader *r, uint64_t size) {
    if (r->error->status) return NULL;
    if (size > r->size - r->at) {
        wrong(r, "the file ends within its header");
        return NULL;
    }
    if (size > r->have - r->at) {
        fb_fail(r->error, FB_INVALID, "gguf-truncated", NULL, "the header is longer than %llu bytes",
                (unsigned long long)r->have);
        return NULL;
    }
    const unsigned char *found = r->bytes + r->at;
    r->at += size;
    return found;
}

static uint64_t number(const unsigned char *bytes, size_t size) {
    uint64_t value = 0;
    for (size_t i = size; i-- > 0;) value = value << 8 | bytes[i];
    return value;
}

static uint64_t take_number(reader *r, size_t size) {
    const unsigned char *found = take(r, size);
    return found ? number(found, size) : 0;
}

static const unsigned char *take_text(reader *r, uint64_t *length) {
    *length = take_number(r, 8);
    return take(r, *length);
}

static bool is_utf8(const unsigned char *text, uint64_t length) {
    const unsigned char *end = text + length;
    for (size_t step; text < end; text += step) {
        if (!(step = fb_utf8_length(text, end))) return false;
    }
    return true;
}

static void skip_value(reader *r, uint32_t kind, int depth) {
    uint64_t length;
    if (kind >= KINDS) {
        wrong(r, "a member of the metadata has an unknown type");
    } else if (kind == STRING) {
        take_text(r, &length);
    } else if (kind == ARRAY) {
        uint32_t item = (uint32_t)take_number(r, 4);
        uint64_t count = take_number(r, 8);
        if (r->error->status) return;
        if (item >= KINDS || depth == MAX_NESTING) wrong(r, "a list of the metadata is of an unknown type, or too deep");
        else if (sizes[item] && count <= r->size / sizes[item]) take(r, count * sizes[item]);
        else if (sizes[item]) wrong(r, "a list of the metadata is longer than the file");
        for (uint64_t i = 0; !sizes[item < KINDS ? item : 0] && i < count && !r->error->status; i++)
            skip_value(r, item, depth + 1);
    } else {
        take(r, sizes[kind]);
    }
}

/* The value of a member, and its type; reads from the metadata of a file that was found right. */
static bool find_member(const fb_gguf *file, const unsigned char *bytes, const char *key, reader *value, uint32_t *kind) {
    fb_error met = {0};
    uint64_t end = file->metadata + file->metadata_size, length;
    reader r = {.bytes = bytes, .have = end, .size = end, .at = file->metadata, .error = &met};
    for (uint64_t i = 0; i < file->members; i++) {
        const unsigned char *name = take_text(&r, &length);
        *kind = (uint32_t)take_number(&r, 4);
        if (!name || met.status) return false;
        *value = r;
        if (length == strlen(key) && memcmp(name, key, length) == 0) return true;
        skip_value(&r, *kind, 0);
    }
    return false;
}

bool fb_gguf_text(const fb_gguf *file, const unsigned char *bytes, const char *key, const char **text, uint64_t *length) {
    reader r;
    uint32_t kind;
    fb_error met = {0};
    if (!find_member(file, bytes, key, &r, &kind) || kind != STRING) return false;
    r.error = &met;
    *text = (const char *)take_text(&r, length);
    return *text != NULL;
}

static bool whole_number(reader *r, uint32_t kind, int64_t *out) {
    bool is_signed = kind == INT8 || kind == INT16 || kind == INT32 || kind == INT64;
    bool is_whole = is_signed || kind == UINT8 || kind == UINT16 || kind == UINT32 || kind == UINT64;
    uint64_t value = is_whole ? take_number(r, sizes[kind]) : 0;
    uint64_t limit = is_whole && is_signed ? (uint64_t)1 << (8 * sizes[kind] - 1) : (uint64_t)INT64_MAX;
    *out = (int64_t)value;
    return is_whole && !r->error->status && value < limit;
}

bool fb_gguf_number(const fb_gguf *file, const unsigned char *bytes, const char *key, int64_t *out) {
    reader r;
    uint32_t kind;
    fb_error met = {0};
    if (!find_member(file, bytes, key, &r, &kind)) return false;
    r.error = &met;
    if (kind != ARRAY) return whole_number(&r, kind, out);
    uint32_t item = (uint32_t)take_number(&r, 4);
    uint64_t count = take_number(&r, 8);
    if (!count || !whole_number(&r, item, out)) return false;
    for (uint64_t i = 1; i < count; i++) {
        int64_t other;
        if (!whole_number(&r, item, &other) || other != *out) return false;
    }
    return true;
}

static fb_status read_metadata(reader *r, fb_gguf *file) {
    uint64_t length;
    file->metadata = r->at;
    for (uint64_t i = 0; i < file->members && !r->error->status; i++) {
        const unsigned char *key = take_text(r, &length);
        if (key && !is_utf8(key, length)) return wrong(r, "a key of the metadata is not UTF-8");
        skip_value(r, (uint32_t)take_number(r, 4), 0);
    }
    file->metadata_size = r->at - file->metadata;
    return r->error->status;
}

/* Elements of a type: how many bytes. False where the innermost dimension is not whole blocks, or the number is too large. */
static bool find_size(fb_gguf_tensor *tensor) {
    uint64_t blocks = 1, inner = tensor->rank ? (uint64_t)tensor->shape[tensor->rank - 1] : 1;
    if (inner % tensor->type->elements) return false;
    for (int axis = 0; axis < tensor->rank; axis++) {
        uint64_t size = (uint64_t)tensor->shape[axis];
        if (axis == tensor->rank - 1) size /= tensor->type->elements;
        if (__builtin_mul_overflow(blocks, size, &blocks)) return false;
    }
    return !__builtin_mul_overflow(blocks, (uint64_t)tensor->type->bytes, &tensor->size);
}

static fb_status read_tensor(reader *r, fb_gguf_tensor *tensor, fb_buffer *names, size_t *name) {
    uint64_t length;
    const unsigned char *text = take_text(r, &length);
    if (!text) return r->error->status;
    if (!length || memchr(text, 0, length) || !is_utf8(text, length)) return wrong(r, "a tensor's name is not UTF-8");
    *name = names->size;
    fb_buffer_append(names, text, length);
    fb_buffer_char(names, '\0');
    uint64_t rank = take_number(r, 4);
    if (!r->error->status && (!rank || rank > FB_GGUF_MAX_RANK)) return wrong(r, "a tensor has 1 to 4 dimensions");
    tensor->rank = (int)rank;
    for (int axis = tensor->rank; axis-- > 0 && !r->error->status;) {
        uint64_t size = take_number(r, 8);
        if (size > INT64_MAX) return wrong(r, "a size is too large");
        tensor->shape[axis] = (int64_t)size;
    }
    tensor->type = type_of((uint32_t)take_number(r, 4));
    tensor->offset = take_number(r, 8);
    if (r->error->status) return r->error->status;
    if (!tensor->type) return wrong(r, "the type of a tensor is not known");
    return find_size(tensor) ? FB_OK : wrong(r, "the rows of a tensor are not whole blocks of its type");
}

static uint64_t aligned(uint64_t at, uint64_t alignment) {
    return at + (alignment - at % alignment) % alignment;
}

static int by_offset(const void *a, const void *b) {
    const fb_gguf_tensor *one = *(fb_gguf_tensor *const *)a, *two = *(fb_gguf_tensor *const *)b;
    if (one->offset != two->offset) return one->offset < two->offset ? -1 : 1;
    return (one->size > two->size) - (one->size < two->size);
}

static fb_status check_places(reader *r, fb_gguf *file) {
    fb_gguf_tensor **order = malloc((file->count + 1) * sizeof *order);
    if (!order) return fb_fail_memory(r->error);
    uint64_t end = file->data;
    bool is_right = true;
    for (size_t i = 0; i < file->count; i++) {
        fb_gguf_tensor *tensor = order[i] = &file->tensors[i];
        is_right &= tensor->offset % file->alignment == 0 && tensor->offset <= r->size &&
                    file->data <= r->size - tensor->offset && tensor->size <= r->size - tensor->offset - file->data;
        tensor->offset += file->data;
    }
    if (is_right) fb_sort(order, file->count, sizeof(fb_gguf_tensor *), by_offset);
    for (size_t i = 0; i < file->count && is_right; i++) {
        is_right = order[i]->offset >= end;
        end = order[i]->offset + order[i]->size;
    }
    free(order);
    return is_right ? FB_OK : wrong(r, "tensors overlap, are not aligned or end beyond the file");
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static fb_status check_names(reader *r, const fb_gguf *file) {
    const char **names = malloc((file->count + 1) * sizeof *names);
    if (!names) return fb_fail_memory(r->error);
    bool is_double = false;
    for (size_t i = 0; i < file->count; i++) names[i] = file->tensors[i].name;
    fb_sort(names, file->count, sizeof *names, by_name);
    for (size_t i = 1; i < file->count; i++) is_double |= strcmp(names[i - 1], names[i]) == 0;
    free(names);
    return is_double ? wrong(r, "two tensors have one name") : FB_OK;
}

#define SMALLEST_TENSOR 33 /* bytes in the header: a name of one, a dimension, the type, the offset */

static fb_status read_tensors(reader *r, fb_gguf *file) {
    fb_buffer names = {0};
    size_t *places = malloc((file->count + 1) * sizeof *places);
    file->tensors = calloc(file->count + 1, sizeof *file->tensors);
    if (!places || !file->tensors) fb_fail_memory(r->error);
    for (size_t i = 0; i < file->count && !r->error->status; i++) read_tensor(r, &file->tensors[i], &names, &places[i]);
    file->memory = names.failed ? NULL : fb_buffer_take(&names, NULL);
    if (!file->memory && !r->error->status) fb_fail_memory(r->error);
    for (size_t i = 0; i < file->count && !r->error->status; i++) file->tensors[i].name = (char *)file->memory + places[i];
    fb_buffer_free(&names);
    free(places);
    return r->error->status;
}

static fb_status read_all(reader *r, fb_gguf *file) {
    int64_t alignment = DEFAULT_ALIGNMENT;
    const unsigned char *magic = take(r, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return r->error->status ? r->error->status : wrong(r, "this is not a GGUF file");
    file->version = (uint32_t)take_number(r, 4);
    if (!r->error->status && file->version != 2 && file->version != 3)
        return wrong(r, "versions 2 and 3 of GGUF are read, little-endian ones");
    uint64_t tensors = take_number(r, 8);
    file->members = take_number(r, 8);
    if (r->error->status) return r->error->status;
    if (tensors > r->size / SMALLEST_TENSOR || file->members > r->size / 13)
        return wrong(r, "the counts are larger than the file");
    if (read_metadata(r, file)) return r->error->status;
    fb_gguf_number(file, r->bytes, "general.alignment", &alignment);
    if (alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1)))
        return wrong(r, "the alignment is not a power of two");
    file->alignment = (uint32_t)alignment;
    file->count = (size_t)tensors;
    if (read_tensors(r, file)) return r->error->status;
    file->data = aligned(r->at, file->alignment);
    if (!file->count && file->data > r->size) file->data = r->size;
    fb_status status = check_places(r, file);
    return status ? status : check_names(r, file);
}

fb_status fb_gguf_read(const unsigned char *bytes, size_t have, uint64_t size, fb_gguf *out, fb_error *error) {
    fb_error met = {0};
    fb_gguf file = {0};
    reader r = {.bytes = bytes, .have = have < size ? have : size, .size = size, .error = &met};
    fb_status status = read_all(&r, &file);
    if (status) {
        fb_gguf_free(&file);
        if (error && !error->status) *error = met;
        return status;
    }
    *out = file;
    return FB_OK;
}

void fb_gguf_free(fb_gguf *file) {
    free(file->tensors);
    free(file->memory);
    *file = (fb_gguf){0};
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static void put_number(fb_buffer *out, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++) fb_buffer_char(out, (char)(value >> (8 * i) & 0xff));
}

static void put_text(fb_buffer *out, const char *text) {
    put_number(out, strlen(text), 8);
    fb_buffer_string(out, text);
}

/* The members of the other file but this one, and this one with a text. */
static uint64_t put_metadata(const fb_gguf *like, const unsigned char *bytes, const char *key, const char *text,
                             fb_buffer *out) {
    fb_error met = {0};
    uint64_t end = like->metadata + like->metadata_size, length, count = 0;
    reader r = {.bytes = bytes, .have = end, .size = end, .at = like->metadata, .error = &met};
    for (uint64_t i = 0; i < like->members && !met.status; i++) {
        uint64_t begin = r.at;
        const unsigned char *name = take_text(&r, &length);
        skip_value(&r, (uint32_t)take_number(&r, 4), 0);
        bool is_replaced = key && name && length == strlen(key) && memcmp(name, key, length) == 0;
        if (met.status || is_replaced) continue;
        fb_buffer_append(out, bytes + begin, (size_t)(r.at - begin));
        count++;
    }
    if (!key || !text) return count;
    put_text(out, key);
    put_number(out, STRING, 4);
    put_text(out, text);
    return count + 1;
}

fb_status fb_gguf_lay_out(const fb_gguf *like, const unsigned char *bytes, const char *key, const char *text,
                          fb_gguf_tensor *tensors, size_t count, fb_buffer *out, fb_error *error) {
    fb_buffer metadata = {0}, header = {0};
    uint64_t members = put_metadata(like, bytes, key, text, &metadata), at = 0;
    fb_status status = FB_OK;
    fb_buffer_string(&header, "GGUF");
    put_number(&header, like->version, 4);
    put_number(&header, count, 8);
    put_number(&header, members, 8);
    if (metadata.size) fb_buffer_append(&header, metadata.data, metadata.size);
    for (size_t i = 0; i < count && !status; i++) {
        fb_gguf_tensor *tensor = &tensors[i];
        if (strlen(tensor->name) > FB_GGUF_MAX_NAME)
            status = fb_fail(error, FB_INVALID, "bad-gguf", NULL, "%.100s is longer than the %d bytes that llama.cpp reads",
                             tensor->name, FB_GGUF_MAX_NAME);
        else if (!find_size(tensor))
            status = fb_fail(error, FB_INVALID, "bad-gguf", NULL, "the rows of %.100s are not whole blocks of %s", tensor->name,
                             tensor->type->name);
        put_text(&header, tensor->name);
        put_number(&header, (uint64_t)tensor->rank, 4);
        for (int axis = tensor->rank; axis-- > 0;) put_number(&header, (uint64_t)tensor->shape[axis], 8);
        put_number(&header, tensor->type->id, 4);
        put_number(&header, tensor->offset = at, 8);
        at = aligned(at + tensor->size, like->alignment);
    }
    while (!header.failed && header.size % like->alignment) fb_buffer_char(&header, '\0');
    for (size_t i = 0; i < count; i++) tensors[i].offset += header.size;
    if (!status && (header.failed || metadata.failed)) status = fb_fail_memory(error);
    if (!status) *out = header;
    else fb_buffer_free(&header);
    fb_buffer_free(&metadata);
    return status;
}
