#include "core/weights/npy.h"

#include <stdlib.h>
#include <string.h>

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define MOST_HEADER 65536

/* The header's text, and how far it was read. */
typedef struct header {
    const char *at, *end;
} header;

static bool is_npy(const void *bytes, uint64_t size) {
    return size >= MAGIC_SIZE && memcmp(bytes, MAGIC, MAGIC_SIZE) == 0;
}

static fb_status bad(fb_error *error, const char *name, const char *what) {
    return fb_fail(error, FB_INVALID, "bad-npy", NULL, "%.200s %s", name, what);
}

static void skip_space(header *h) {
    while (h->at < h->end && (*h->at == ' ' || *h->at == '\n')) h->at++;
}

static bool eat(header *h, const char *token) {
    skip_space(h);
    size_t length = strlen(token);
    if ((size_t)(h->end - h->at) < length || memcmp(h->at, token, length) != 0) return false;
    h->at += length;
    return true;
}

static bool read_text(header *h, char *out, size_t space) {
    skip_space(h);
    char quote = h->at < h->end ? *h->at : '\0';
    if (quote != '\'' && quote != '"') return false;
    const char *start = h->at + 1, *stop = memchr(start, quote, (size_t)(h->end - start));
    if (!stop || (size_t)(stop - start) >= space) return false;
    memcpy(out, start, (size_t)(stop - start));
    out[stop - start] = '\0';
    h->at = stop + 1;
    return true;
}

static bool read_shape(header *h, fb_npy *out) {
    if (!eat(h, "(")) return false;
    for (out->rank = 0; !eat(h, ")"); out->rank++) {
        int64_t size = 0;
        if (out->rank == FB_NPY_MAX_RANK || (out->rank && !eat(h, ","))) return false;
        if (out->rank && eat(h, ")")) return true;
        skip_space(h);
        const char *start = h->at;
        for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++) {
            if (size > (INT64_MAX - 9) / 10) return false;
            size = size * 10 + (*h->at - '0');
        }
        if (h->at == start) return false;
        out->shape[out->rank] = size;
    }
    return true;
}

static bool read_dict(header *h, char descr[16], fb_npy *out) {
    bool has_descr = false, has_order = false, has_shape = false;
    char key[16];
    if (!eat(h, "{")) return false;
    while (!eat(h, "}")) {
        if (!read_text(h, key, sizeof key) || !eat(h, ":")) return false;
        if (!strcmp(key, "descr") && !has_descr) has_descr = read_text(h, descr, 16);
        else if (!strcmp(key, "fortran_order") && !has_order) has_order = (out->is_fortran = eat(h, "True")) || eat(h, "False");
        else if (!strcmp(key, "shape") && !has_shape) has_shape = read_shape(h, out);
        else return false;
        if (!eat(h, ",")) return eat(h, "}") && has_descr && has_order && has_shape;
    }
    return has_descr && has_order && has_shape;
}

static fb_dtype dtype_of(const char *descr) {
    static const struct {
        const char *name;
        fb_dtype dtype;
    } known[] = {{"b1", FB_BOOL},    {"i1", FB_INT8},    {"i2", FB_INT16},     {"i4", FB_INT32},      {"i8", FB_INT64},
                 {"u1", FB_UINT8},   {"u2", FB_UINT16},  {"u4", FB_UINT32},    {"u8", FB_UINT64},     {"f2", FB_FLOAT16},
                 {"f4", FB_FLOAT32}, {"f8", FB_FLOAT64}, {"c8", FB_COMPLEX64}, {"c16", FB_COMPLEX128}};
    if (*descr != '<' && *descr != '|') return FB_DTYPE_UNKNOWN;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(descr + 1, known[i].name)) return known[i].dtype;
    return FB_DTYPE_UNKNOWN;
}

fb_status fb_npy_read(const char *name, const unsigned char *bytes, uint64_t size, fb_npy *out, fb_error *error) {
    char descr[16];
    *out = (fb_npy){0};
    if (!is_npy(bytes, size) || size < 12) return bad(error, name, "is not a .npy file");
    size_t width = bytes[6] == 1 ? 2 : 4, start = 8 + width, length = 0;
    for (size_t i = width; i-- > 0;) length = length << 8 | bytes[8 + i];
    if (bytes[6] < 1 || bytes[6] > 3) return bad(error, name, "is of an unknown version of the format .npy");
    if (length > MOST_HEADER || length > size - start) return bad(error, name, "has a header that is longer than the file");
    header h = {(const char *)bytes + start, (const char *)bytes + start + length};
    if (!read_dict(&h, descr, out))
        return bad(error, name, "has a header that is not of one array of numbers: save plain arrays");
    if (strchr(descr, 'O')) return bad(error, name, "has Python objects, a pickle, which is never read: save numbers");
    out->dtype = dtype_of(descr);
    if (!out->dtype)
        return fb_fail(error, FB_INVALID, "bad-npy", NULL, "%.200s has elements of the type %s, which is not read", name,
                       descr);
    out->offset = start + length;
    out->size = size - out->offset;
    uint64_t expected = fb_dtype_size(out->dtype);
    for (int i = 0; i < out->rank; i++)
        if (__builtin_mul_overflow(expected, (uint64_t)out->shape[i], &expected)) expected = UINT64_MAX;
    if (expected != out->size) return bad(error, name, "has another size than its header says");
    return FB_OK;
}

void fb_npy_copy(const fb_npy *npy, const unsigned char *bytes, void *to) {
    size_t width = fb_dtype_size(npy->dtype);
    const unsigned char *from = bytes + npy->offset;
    if (!npy->is_fortran || npy->rank < 2) {
        if (npy->size) memcpy(to, from, npy->size);
        return;
    }
    int64_t index[FB_NPY_MAX_RANK] = {0};
    size_t steps[FB_NPY_MAX_RANK], step = width;
    for (int i = 0; i < npy->rank; i++) { /* of the first dimension it is one element */
        steps[i] = step;
        step *= (size_t)npy->shape[i];
    }
    char *out = to;
    for (uint64_t done = 0; done < npy->size; done += width) {
        size_t offset = 0;
        for (int i = 0; i < npy->rank; i++) offset += (size_t)index[i] * steps[i];
        memcpy(out + done, from + offset, width);
        for (int i = npy->rank - 1; i >= 0 && ++index[i] == npy->shape[i]; i--) index[i] = 0;
    }
}
