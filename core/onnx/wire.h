/* Protobuf's wire format: fields of a message, one after the other, each with its number and how long it is.
 *
 * https://protobuf.dev/programming-guides/encoding. Groups, which ONNX never had, are refused. Nothing beyond the end of the
 * cursor is read, whatever the bytes say. */
#ifndef FB_ONNX_WIRE_H
#define FB_ONNX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/buffer.h"

typedef enum onnx_wire { ONNX_VARINT = 0, ONNX_FIXED64 = 1, ONNX_LENGTH = 2, ONNX_FIXED32 = 5 } onnx_wire;

typedef struct onnx_cursor {
    const unsigned char *at, *end;
    const char *fault; /* of what begins at `at`; NULL: none yet */
} onnx_cursor;

typedef struct onnx_wire_field {
    uint32_t number;
    onnx_wire wire;
    const unsigned char *start; /* its tag */
    const unsigned char *bytes; /* its content: behind the length, where it has one */
    uint64_t size;
    uint64_t value; /* bits of a number */
} onnx_wire_field;

/* Steps over a field. False: the bytes end, or they are wrong, which `fault` says. */
bool onnx_next_field(onnx_cursor *cursor, onnx_wire_field *out);

/* Steps over a number that has no tag, as those of a packed list. The wire is not ONNX_LENGTH. */
bool onnx_next_number(onnx_cursor *cursor, onnx_wire wire, uint64_t *bits);

/* How many numbers a packed list has; a fault in them is said as by onnx_next_field. */
uint64_t onnx_count_packed(onnx_cursor *cursor, onnx_wire wire);

void onnx_put_number(fb_buffer *out, onnx_wire wire, uint64_t bits);
void onnx_put_tag(fb_buffer *out, uint32_t number, onnx_wire wire);
void onnx_put_bytes(fb_buffer *out, uint32_t number, const void *bytes, uint64_t size);
/* A message or a packed list within: what is appended between the two calls. */
size_t onnx_begin(fb_buffer *out, uint32_t number);
void onnx_end(fb_buffer *out, size_t begun);
/* The same where so many bytes belong to it that are not in the buffer. Gives the bytes that the length takes. */
size_t onnx_end_with(fb_buffer *out, size_t begun, uint64_t elsewhere);

#endif
