/* The messages of an ONNX model as structs, made from onnx.def: `onnx_node` is NodeProto, and so on.
 *
 * A message keeps where its bytes are, and is written as these bytes but for the fields that were set since: what nothing
 * touched, and what no table here has, comes out as it came in. Texts, lists of numbers and weights are not copied; they point
 * into the file. */
#ifndef FB_ONNX_MODEL_H
#define FB_ONNX_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/error.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/onnx/wire.h"

/* ---- fields ------------------------------------------------------------------------------------------------------------- */

typedef struct onnx_bytes {
    const char *text; /* not terminated */
    size_t size;
} onnx_bytes;
bool onnx_is_utf8(onnx_bytes text);
typedef struct onnx_list {
    onnx_bytes *items;
    size_t count;
} onnx_list;

/* Numbers where they are in the file: packed ones, or fields with a tag each. */
typedef struct onnx_run {
    const unsigned char *bytes;
    uint64_t size;
    bool is_packed;
    struct onnx_run *next;
} onnx_run;
typedef struct onnx_numbers {
    uint64_t count;
    onnx_run *first, *last;
} onnx_numbers;

typedef struct onnx_number_cursor {
    const onnx_run *run;
    onnx_wire wire;
    onnx_cursor at;
} onnx_number_cursor;

/* ONNX_VARINT for ints of all kinds, ONNX_FIXED32 for floats, ONNX_FIXED64 for doubles; or as the table says. */
onnx_number_cursor onnx_numbers_from(const onnx_numbers *numbers, onnx_wire wire);
/* The next one's bits. False: there are no more. */
bool onnx_numbers_next(onnx_number_cursor *cursor, uint64_t *bits);

/* ---- messages ----------------------------------------------------------------------------------------------------------- */

/* Bytes of a message. There may be several: protobuf merges messages of a field that has only one. */
typedef struct onnx_part {
    const unsigned char *bytes;
    uint64_t size;
    struct onnx_part *next;
} onnx_part;

typedef struct onnx_head {
    onnx_part *first, *last; /* NULL: the message is a new one */
    uint32_t has;            /* bits of the numbers of its fields that the file or a caller has given */
    uint32_t is_set;         /* of those that a caller has set, which are written from the struct */
} onnx_head;

#define ONNX_C_INT int64_t
#define ONNX_C_INT32 int32_t
#define ONNX_C_FLOAT float
#define ONNX_C_NAME onnx_bytes
#define ONNX_C_BYTES onnx_bytes
#define ONNX_C_INTS onnx_numbers
#define ONNX_C_FLOATS onnx_numbers
#define ONNX_C_PACKED_INTS onnx_numbers
#define ONNX_C_PACKED_INT32S onnx_numbers
#define ONNX_C_PACKED_FLOATS onnx_numbers
#define ONNX_C_PACKED_DOUBLES onnx_numbers
#define ONNX_C_NAMES onnx_list
#define ONNX_C_LIST onnx_list
#define ONNX_C_MESSAGE(type, field) onnx_##type *field
#define ONNX_C_MESSAGES(type, field)                                                                                           \
    struct {                                                                                                                   \
        onnx_##type *items;                                                                                                    \
        size_t count;                                                                                                          \
    } field

#define ONNX_MESSAGE(message, name, most, alternatives) typedef struct onnx_##message onnx_##message;
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type)
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END

#define ONNX_MESSAGE(message, name, most, alternatives)                                                                        \
    struct onnx_##message {                                                                                                    \
        onnx_head head;
#define ONNX_FIELD(message, number, field, kind) ONNX_C_##kind field;
#define ONNX_PART(message, number, field, kind, type) ONNX_C_##kind(type, field);
#define ONNX_END(message)                                                                                                      \
    }                                                                                                                          \
    ;
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END

/* Numbers of fields: ONNX_node_op_type. */
enum {
#define ONNX_MESSAGE(message, name, most, alternatives)
#define ONNX_FIELD(message, number, field, kind) ONNX_##message##_##field = number,
#define ONNX_PART(message, number, field, kind, type) ONNX_##message##_##field = number,
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END
};

/* Kinds of messages: ONNX_IS_node. */
typedef enum onnx_message {
#define ONNX_MESSAGE(message, name, most, alternatives) ONNX_IS_##message,
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type)
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END
    ONNX_MESSAGES_IN_ALL
} onnx_message;

static inline bool onnx_has(const onnx_head *head, int number) {
    return head->has >> number & 1;
}

/* ---- a model ------------------------------------------------------------------------------------------------------------ */

/* 0 of each: no limit. */
typedef struct onnx_limits {
    uint64_t memory;    /* bytes of rows and of the document's text, weights not among them: FB_TOO_LARGE "body-too-large" */
    uint64_t max_nodes; /* those of nested graphs and functions included: FB_TOO_LARGE "too-many-nodes" */
    void *context;
    /* So many bytes are about to be in memory; those that were held have been freed. Both or neither is NULL. */
    fb_status (*hold)(void *context, uint64_t size, fb_error *error);
    void (*release)(void *context, uint64_t size);
} onnx_limits;

typedef struct onnx_file {
    const unsigned char *bytes; /* borrowed */
    uint64_t size;
    onnx_limits limits;
    uint64_t used, held; /* bytes of memory; in steps, as the limits' `hold` was told */
    fb_arena arena;
    onnx_model *model;
    uint64_t node_count;
    struct onnx_location **locations; /* of external data, each once: onnx_check gathers them */
    uint32_t location_count, location_capacity;
    fb_map by_location; /* by the hash of the location as it is spelled, and of its name, an index + 1 */
} onnx_file;

/* Reads the messages. `limits` may be NULL. Close it also after a failure: FB_INVALID "bad-onnx" (broken) or "unsupported-onnx"
 * (graphs or types too deep in one another), FB_TOO_LARGE, FB_NO_MEMORY or the work's. */
fb_status onnx_open(const void *bytes, uint64_t size, const onnx_limits *limits, fb_work *work, onnx_file *file,
                    fb_error *error);
void onnx_close(onnx_file *file);

/* More bytes are about to be in memory for the file, until it is closed. FB_TOO_LARGE, or what `hold` says. */
fb_status onnx_use(onnx_file *file, uint64_t size, fb_error *error);

/* Appends the message's bytes, without a tag. */
void onnx_write(onnx_message kind, const void *message, fb_buffer *out);

/* The same without weights: raw_data of more than ONNX_LARGE bytes is not copied into the text, nor looked at, but belongs
 * between its bytes. So a new tensor's may have a pointer to anything. */
#define ONNX_LARGE 1024
typedef struct onnx_hole {
    size_t at; /* byte of the text that it is before */
    const void *bytes;
    uint64_t size;
} onnx_hole;

typedef struct onnx_pieces {
    fb_buffer text;
    onnx_hole *holes; /* in order; free() */
    size_t count, capacity;
    uint64_t in_holes; /* bytes */
    bool copies;       /* there are to be no holes */
} onnx_pieces;
void onnx_write_pieces(onnx_message kind, const void *message, onnx_pieces *out);
void onnx_pieces_free(onnx_pieces *pieces);

/* The byte of the file where a message begins, for errors; 0 for a new one. */
uint64_t onnx_place(const onnx_file *file, const onnx_head *head);

/* ---- new messages and fields -------------------------------------------------------------------------------------------- */

/* A field of the message has been changed in its struct. */
static inline void onnx_set(onnx_head *head, int number) {
    head->has |= 1U << number;
    head->is_set |= 1U << number;
}
/* A field is to be left out. */
static inline void onnx_unset(onnx_head *head, int number) {
    head->has &= ~(1U << number);
    head->is_set |= 1U << number;
}
/* Numbers in the arena, as ints or the bits of floats. False: memory is out. */
bool onnx_make_numbers(fb_arena *arena, onnx_wire wire, const uint64_t *bits, size_t count, onnx_numbers *out);

/* ---- for tests and errors ----------------------------------------------------------------------------------------------- */

/* The field's name, or NULL: field 4 of ONNX_IS_node is "op_type". */
const char *onnx_field_name(onnx_message kind, uint32_t number);
const char *onnx_message_name(onnx_message kind);

#endif
