#include "core/onnx/wire.h"

#include <string.h>

#define MOST_VARINT 10 /* bytes of a number */
#define MOST_SHORT 5   /* bytes of a tag or a length: libraries take no more */
#define MOST_NUMBER ((1U << 29) - 1)

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

static bool fail(onnx_cursor *cursor, const char *fault) {
    cursor->fault = fault;
    return false;
}

/* Bits beyond the 64th are dropped, as libraries do. */
static bool read_varint(onnx_cursor *cursor, size_t most, uint64_t *value) {
    uint64_t bits = 0;
    for (size_t i = 0; i < most; i++) {
        if ((size_t)(cursor->end - cursor->at) <= i) return fail(cursor, "the bytes end within a number");
        unsigned char byte = cursor->at[i];
        bits |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80) continue;
        cursor->at += i + 1;
        *value = bits;
        return true;
    }
    return fail(cursor,
                most == MOST_VARINT ? "a number has more than ten bytes" : "a tag or a length has more than five bytes");
}

static bool read_fixed(onnx_cursor *cursor, size_t size, uint64_t *value) {
    if ((size_t)(cursor->end - cursor->at) < size) return fail(cursor, "the bytes end within a number");
    *value = 0;
    for (size_t i = size; i-- > 0;) *value = *value << 8 | cursor->at[i];
    cursor->at += size;
    return true;
}

bool onnx_next_number(onnx_cursor *cursor, onnx_wire wire, uint64_t *bits) {
    if (cursor->at == cursor->end || cursor->fault) return false;
    if (wire == ONNX_VARINT) return read_varint(cursor, MOST_VARINT, bits);
    return read_fixed(cursor, wire == ONNX_FIXED64 ? 8 : 4, bits);
}

static bool read_field(onnx_cursor *cursor, onnx_wire_field *out) {
    uint64_t tag;
    *out = (onnx_wire_field){.start = cursor->at};
    if (!read_varint(cursor, MOST_SHORT, &tag)) return false;
    if (tag >> 3 == 0 || tag >> 3 > MOST_NUMBER) return fail(cursor, "a field has a number that no field has");
    out->number = (uint32_t)(tag >> 3);
    out->wire = (onnx_wire)(tag & 7);
    out->bytes = cursor->at;
    switch (out->wire) {
    case ONNX_VARINT:
    case ONNX_FIXED64:
    case ONNX_FIXED32:
        if (cursor->at == cursor->end) return fail(cursor, "the bytes end before a number");
        if (!onnx_next_number(cursor, out->wire, &out->value)) return false;
        out->size = (uint64_t)(cursor->at - out->bytes);
        return true;
    case ONNX_LENGTH:
        if (!read_varint(cursor, MOST_SHORT, &out->size)) return false;
        if (out->size > (uint64_t)(cursor->end - cursor->at))
            return fail(cursor, "a length reaches beyond the end, as where a file was cut off");
        out->bytes = cursor->at;
        cursor->at += out->size;
        return true;
    default: return fail(cursor, "a field is of a kind that ONNX does not use");
    }
}

bool onnx_next_field(onnx_cursor *cursor, onnx_wire_field *out) {
    const unsigned char *start = cursor->at;
    if (start == cursor->end || cursor->fault) return false;
    if (read_field(cursor, out)) return true;
    cursor->at = start;
    return false;
}

uint64_t onnx_count_packed(onnx_cursor *cursor, onnx_wire wire) {
    uint64_t size = (uint64_t)(cursor->end - cursor->at), count = 0, bits;
    if (wire == ONNX_VARINT) {
        while (onnx_next_number(cursor, wire, &bits)) count++;
        return count;
    }
    uint64_t width = wire == ONNX_FIXED64 ? 8 : 4;
    if (size % width) fail(cursor, "the bytes end within a number");
    return size / width;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

void onnx_put_number(fb_buffer *out, onnx_wire wire, uint64_t bits) {
    unsigned char bytes[MOST_VARINT];
    size_t size = 0;
    if (wire == ONNX_VARINT) {
        for (; bits > 0x7f; bits >>= 7) bytes[size++] = (unsigned char)(bits | 0x80);
        bytes[size++] = (unsigned char)bits;
    } else {
        for (size = 0; size < (wire == ONNX_FIXED64 ? 8 : 4); size++) bytes[size] = (unsigned char)(bits >> (8 * size));
    }
    fb_buffer_append(out, bytes, size);
}

void onnx_put_tag(fb_buffer *out, uint32_t number, onnx_wire wire) {
    onnx_put_number(out, ONNX_VARINT, (uint64_t)number << 3 | wire);
}

void onnx_put_bytes(fb_buffer *out, uint32_t number, const void *bytes, uint64_t size) {
    onnx_put_tag(out, number, ONNX_LENGTH);
    onnx_put_number(out, ONNX_VARINT, size);
    fb_buffer_append(out, bytes, size);
}

size_t onnx_begin(fb_buffer *out, uint32_t number) {
    onnx_put_tag(out, number, ONNX_LENGTH);
    return out->size;
}

/* The length goes in front of what was appended since. */
size_t onnx_end_with(fb_buffer *out, size_t begun, uint64_t elsewhere) {
    if (out->failed) return 0;
    size_t size = out->size - begun;
    onnx_put_number(out, ONNX_VARINT, size + elsewhere);
    if (out->failed) return 0;
    unsigned char length[MOST_VARINT];
    size_t added = out->size - begun - size;
    memcpy(length, out->data + begun + size, added);
    memmove(out->data + begun + added, out->data + begun, size);
    memcpy(out->data + begun, length, added);
    return added;
}

void onnx_end(fb_buffer *out, size_t begun) {
    onnx_end_with(out, begun, 0);
}
