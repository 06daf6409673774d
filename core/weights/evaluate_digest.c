/* Digests of tensors, comparing what recipes give, how large their numbers are, and what is missing for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/graph/write.h"
#include "core/weights/dtype.h"
#include "core/weights/evaluate_internal.h"
#include "core/weights/inputs.h"

#define AT_ONCE ((size_t)1 << 20)       /* bytes */
#define MADE_FREELY ((uint64_t)1 << 30) /* a recipe of one line may make more than can ever be read through */
#define MADE_FACTOR 16

/* ---- reading all of it --------------------------------------------------------------------------------------------------- */

static fb_status check_size(const fb_evaluation *e, fb_error *error) {
    uint64_t size = fb_evaluation_size(e);
    if (size <= MADE_FREELY || size / MADE_FACTOR <= e->source_bytes) return FB_OK;
    return fb_fail(error, FB_TOO_LARGE, "recipe-too-large", "", "a recipe makes %llu bytes of %llu", (unsigned long long)size,
                   (unsigned long long)e->source_bytes);
}

static size_t part_of(uint64_t size, uint64_t offset) {
    return size - offset < AT_ONCE ? (size_t)(size - offset) : AT_ONCE;
}

fb_status fb_evaluation_equal(fb_evaluation *a, fb_evaluation *b, bool *is_equal, fb_error *error) {
    uint64_t size = fb_evaluation_size(a);
    if (size != fb_evaluation_size(b)) {
        *is_equal = false;
        return FB_OK;
    }
    fb_status status = check_size(a, error);
    if (!status) status = check_size(b, error);
    if (status) return status;
    unsigned char *of_a = malloc(2 * AT_ONCE), *of_b = of_a + AT_ONCE;
    if (!of_a) return fb_fail_memory(error);
    bool is_same = true;
    for (uint64_t offset = 0; offset < size && is_same && !status; offset += part_of(size, offset)) {
        size_t some = part_of(size, offset);
        status = fb_evaluation_read(a, offset, of_a, some, error);
        if (!status) status = fb_evaluation_read(b, offset, of_b, some, error);
        is_same = !status && memcmp(of_a, of_b, some) == 0;
    }
    free(of_a);
    if (!status) *is_equal = is_same;
    return status;
}

static void add_number(fb_extent *extent, double number) {
    double size = fabs(number);
    extent->is_finite &= isfinite(number) != 0;
    extent->has_zero |= size == 0;
    if (!isfinite(number) || size == 0) return;
    if (size < extent->least) extent->least = size;
    if (size > extent->largest) extent->largest = size;
}

fb_status fb_evaluation_extent(fb_evaluation *e, fb_extent *out, fb_error *error) {
    enum { NUMBERS = 512 };
    double numbers[NUMBERS];
    fb_extent found = {.least = INFINITY, .is_finite = true};
    uint64_t size = fb_evaluation_size(e);
    size_t element = (size_t)e->element;
    fb_status status = check_size(e, error);
    unsigned char *bytes = status ? NULL : malloc(part_of(size, 0) + 1);
    if (!status && !bytes) status = fb_fail_memory(error);
    for (uint64_t offset = 0; offset < size && !status; offset += part_of(size, offset)) {
        size_t count = part_of(size, offset) / element;
        status = fb_evaluation_read(e, offset, bytes, count * element, error);
        for (size_t from = 0; from < count && !status; from += NUMBERS) {
            size_t some = count - from < NUMBERS ? count - from : NUMBERS;
            fb_decode_numbers(e->dtype, bytes + from * element, some, numbers);
            for (size_t i = 0; i < some; i++) add_number(&found, numbers[i]);
        }
    }
    free(bytes);
    if (!status) *out = found;
    return status;
}

static fb_status hash(fb_evaluation *e, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    uint64_t size = fb_evaluation_size(e);
    unsigned char *bytes = malloc(size < AT_ONCE ? (size_t)size + 1 : AT_ONCE);
    fb_sha256 *hash = fb_sha256_new();
    fb_status status = bytes && hash ? FB_OK : fb_fail_memory(error);
    for (uint64_t offset = 0; offset < size && !status; offset += part_of(size, offset)) {
        size_t some = part_of(size, offset);
        status = fb_evaluation_read(e, offset, bytes, some, error);
        if (!status && !fb_sha256_add(hash, bytes, some)) status = fb_fail_memory(error);
    }
    if (!status && !fb_sha256_id_so_far(hash, digest)) status = fb_fail_memory(error);
    if (hash) fb_sha256_free(hash);
    free(bytes);
    return status;
}

/* ---- digests ------------------------------------------------------------------------------------------------------------- */

/* The checker has seen to it that they can be counted. */
uint64_t fb_tensor_bytes(const fb_graph *graph, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    uint64_t size = fb_dtype_size((fb_dtype)row->dtype);
    int rank = fb_shape_rank(graph, row->shape);
    for (int i = 0; i < rank; i++) {
        if (fb_shape_size(graph, row->shape, i) == 0) return 0;
    }
    for (int i = 0; i < rank; i++) size *= (uint64_t)fb_shape_size(graph, row->shape, i);
    return size;
}

/* The tensor that has the same bytes in the same order: a recipe that only names or reshapes another is followed. */
static fb_tensor with_same_bytes(const fb_graph *graph, fb_tensor tensor) {
    for (size_t steps = 0; steps < fb_tensor_count(graph); steps++) {
        const fb_tensor_row *row = fb_tensor_at(graph, tensor);
        fb_value from = row->recipe;
        if (row->digest.id) break;
        while (fb_recipe_op_of(graph, from) == FB_RECIPE_RESHAPE) from = fb_recipe_arg(graph, from, 0);
        if (fb_value_kind(graph, from) != FB_TENSOR) break;
        tensor = fb_value_tensor(graph, from);
    }
    return tensor;
}

static fb_status digest_of_bytes(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, char *digest,
                                 fb_error *error) {
    fb_evaluation *e = NULL;
    fb_symbol blob = fb_tensor_at(graph, tensor)->blob;
    fb_status status = fb_evaluation_new(graph, tensor, blobs, &e, error);
    if (status) return status;
    if (e->root->kind == FB_TERM_BYTES && e->root->is_whole_blob) {
        fb_copy_text(digest, FB_ID_LENGTH + 1, fb_text(graph, blob)); /* a blob is called as its bytes hash to */
    } else {
        status = check_size(e, error);
        if (!status) status = hash(e, digest, error);
    }
    fb_evaluation_free(e);
    return status;
}

static fb_status digest_in_blob(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, char *digest, fb_error *error) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    fb_buffer shape = {0};
    fb_value_write(graph, row->shape, &shape);
    fb_blob_tensor place = {.blob = fb_text(graph, row->blob),
                            .offset = (uint64_t)row->offset,
                            .size = fb_tensor_bytes(graph, tensor),
                            .dtype = fb_dtype_name((fb_dtype)row->dtype),
                            .shape = fb_buffer_text(&shape)};
    fb_status status = place.shape ? FB_NOT_FOUND : fb_fail_memory(error);
    fb_error ignored = {0};
    if (place.shape && blobs->recall) status = blobs->recall(blobs->context, &place, digest, &ignored);
    if (status && place.shape) {
        status = digest_of_bytes(graph, tensor, blobs, digest, error);
        if (!status && blobs->remember) blobs->remember(blobs->context, &place, digest);
    }
    fb_buffer_free(&shape);
    return status;
}

fb_status fb_evaluation_digest_of_bytes(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs,
                                        char digest[FB_ID_LENGTH + 1], fb_error *error) {
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    bool is_in_blob = blobs && row->blob.id && !row->recipe.id && !row->data.id;
    return (is_in_blob ? digest_in_blob : digest_of_bytes)(graph, tensor, blobs, digest, error);
}

fb_status fb_evaluation_digest(const fb_graph *graph, fb_tensor tensor, const fb_blobs *blobs, char digest[FB_ID_LENGTH + 1],
                               fb_error *error) {
    tensor = with_same_bytes(graph, tensor);
    const fb_tensor_row *row = fb_tensor_at(graph, tensor);
    if (row->digest.id) {
        fb_copy_text(digest, FB_ID_LENGTH + 1, fb_text(graph, row->digest));
        return FB_OK;
    }
    return fb_evaluation_digest_of_bytes(graph, tensor, blobs, digest, error);
}

/* ---- what is missing ----------------------------------------------------------------------------------------------------- */

typedef struct missing_search {
    const fb_graph *graph;
    const fb_blobs *blobs;
    void (*report)(void *context, fb_tensor tensor, const char *code, const char *blob);
    void *context;
    fb_map seen;     /* blob -> 1 + its place in `sizes` */
    fb_buffer sizes; /* uint64_t; NOT_HERE for a blob that is not */
    fb_status status;
    fb_error *error;
} missing_search;

#define NOT_HERE UINT64_MAX

static uint64_t size_of_blob(missing_search *m, fb_symbol blob) {
    uint32_t seen = fb_map_get(&m->seen, blob.id);
    if (seen) return ((const uint64_t *)(const void *)m->sizes.data)[seen - 1];
    fb_blob_bytes bytes;
    fb_error ignored = {0};
    uint64_t size = NOT_HERE;
    fb_status status = m->blobs ? m->blobs->open(m->blobs->context, fb_text(m->graph, blob), &bytes, &ignored) : FB_NOT_FOUND;
    if (!status) size = bytes.size;
    if (!status) m->blobs->close(m->blobs->context, &bytes);
    else if (status != FB_NOT_FOUND) m->status = fb_fail(m->error, status, ignored.code, "", "%s", ignored.message);
    fb_buffer_append(&m->sizes, &size, sizeof size);
    if (m->sizes.failed || !fb_map_put(&m->seen, blob.id, (uint32_t)(m->sizes.size / sizeof size)))
        m->status = fb_fail_memory(m->error);
    return size;
}

static void look_at(void *context, fb_tensor tensor) {
    missing_search *m = context;
    const fb_tensor_row *row = fb_tensor_at(m->graph, tensor);
    uint64_t size = fb_tensor_bytes(m->graph, tensor);
    if (m->status || row->recipe.id || row->data.id || size == 0) return;
    if (!row->blob.id) {
        m->report(m->context, tensor, "bytes-unknown", NULL);
        return;
    }
    uint64_t blob_size = size_of_blob(m, row->blob);
    if (m->status) return;
    const char *blob = fb_text(m->graph, row->blob);
    if (blob_size == NOT_HERE) m->report(m->context, tensor, "blob-missing", blob);
    else if ((uint64_t)row->offset > blob_size || size > blob_size - (uint64_t)row->offset)
        m->report(m->context, tensor, "blob-too-small", blob);
}

fb_status fb_evaluation_missing(const fb_graph *graph, const fb_tensor *tensors, size_t count, const fb_blobs *blobs,
                                void (*report)(void *context, fb_tensor tensor, const char *code, const char *blob),
                                void *context, fb_error *error) {
    missing_search m = {.graph = graph, .blobs = blobs, .report = report, .context = context, .error = error};
    fb_inputs_walk walk;
    bool is_begun = fb_inputs_begin(&walk, graph);
    for (size_t i = 0; is_begun && i < count; i++) fb_inputs_visit(&walk, tensors[i], look_at, &m);
    if (!fb_inputs_end(&walk) && !m.status) m.status = fb_fail_memory(error);
    fb_map_free(&m.seen);
    fb_buffer_free(&m.sizes);
    return m.status;
}
