/* The reader and the writer of all messages, which the rows of onnx.def drive. */
#include "core/onnx/model.h"
#include "core/base/file_kind.h"
#include "core/base/grow.h"

#include <stdlib.h>
#include <string.h>

#include "core/json/scan.h"

#define NUMBERS 32                    /* fields have smaller ones, so that a mask has a bit for each */
#define MOST_NAME ((uint64_t)1 << 16) /* bytes */
#define HELD_AT_ONCE ((uint64_t)1 << 20)
#define MOST_VALUES 1000000 /* of attributes, in all, that are not packed */

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

typedef enum field_kind {
    NO_FIELD,
    ONNX_INT,
    ONNX_INT32,
    ONNX_FLOAT,
    ONNX_NAME,
    ONNX_BYTES,
    ONNX_INTS,
    ONNX_FLOATS,
    ONNX_PACKED_INTS,
    ONNX_PACKED_INT32S,
    ONNX_PACKED_FLOATS,
    ONNX_PACKED_DOUBLES,
    ONNX_NAMES,
    ONNX_LIST,
    ONNX_MESSAGE,
    ONNX_MESSAGES,
} field_kind;

/* One member of a message's struct. */
typedef enum shape { ONE_NUMBER, ONE_TEXT, NUMBERS_OF, TEXTS_OF, ONE_MESSAGE, MESSAGES_OF } shape;

static const struct {
    shape shape;
    onnx_wire wire;
    uint8_t size; /* of the member */
    bool is_packed;
} kinds[] = {
    [ONNX_INT] = {ONE_NUMBER, ONNX_VARINT, sizeof(int64_t), false},
    [ONNX_INT32] = {ONE_NUMBER, ONNX_VARINT, sizeof(int32_t), false},
    [ONNX_FLOAT] = {ONE_NUMBER, ONNX_FIXED32, sizeof(float), false},
    [ONNX_NAME] = {ONE_TEXT, ONNX_LENGTH, sizeof(onnx_bytes), false},
    [ONNX_BYTES] = {ONE_TEXT, ONNX_LENGTH, sizeof(onnx_bytes), false},
    [ONNX_INTS] = {NUMBERS_OF, ONNX_VARINT, sizeof(onnx_numbers), false},
    [ONNX_FLOATS] = {NUMBERS_OF, ONNX_FIXED32, sizeof(onnx_numbers), false},
    [ONNX_PACKED_INTS] = {NUMBERS_OF, ONNX_VARINT, sizeof(onnx_numbers), true},
    [ONNX_PACKED_INT32S] = {NUMBERS_OF, ONNX_VARINT, sizeof(onnx_numbers), true},
    [ONNX_PACKED_FLOATS] = {NUMBERS_OF, ONNX_FIXED32, sizeof(onnx_numbers), true},
    [ONNX_PACKED_DOUBLES] = {NUMBERS_OF, ONNX_FIXED64, sizeof(onnx_numbers), true},
    [ONNX_NAMES] = {TEXTS_OF, ONNX_LENGTH, sizeof(onnx_list), false},
    [ONNX_LIST] = {TEXTS_OF, ONNX_LENGTH, sizeof(onnx_list), false},
    [ONNX_MESSAGE] = {ONE_MESSAGE, ONNX_LENGTH, sizeof(void *), false},
    [ONNX_MESSAGES] = {MESSAGES_OF, ONNX_LENGTH, sizeof(onnx_list), false},
};

typedef struct field_row {
    const char *name;
    field_kind kind;
    onnx_message type; /* of a message within */
    size_t offset;     /* of the member */
} field_row;

#define ONNX_MESSAGE(message, name, most, alternatives) static const field_row message##_fields[NUMBERS] = {
#define ONNX_FIELD(message, number, field, kind) [number] = {#field, ONNX_##kind, 0, offsetof(onnx_##message, field)},
#define ONNX_PART(message, number, field, kind, type)                                                                          \
    [number] = {#field, ONNX_##kind, ONNX_IS_##type, offsetof(onnx_##message, field)},
#define ONNX_END(message)                                                                                                      \
    }                                                                                                                          \
    ;
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END

typedef struct message_row {
    const char *name;
    const field_row *fields;
    size_t size; /* of the struct */
    uint32_t most, alternatives;
} message_row;

static const message_row messages[] = {
#define ONNX_MESSAGE(message, name, most, alternatives) {name, message##_fields, sizeof(onnx_##message), most, alternatives},
#define ONNX_FIELD(message, number, field, kind)
#define ONNX_PART(message, number, field, kind, type)
#define ONNX_END(message)
#include "core/onnx/onnx.def"
#undef ONNX_MESSAGE
#undef ONNX_FIELD
#undef ONNX_PART
#undef ONNX_END
};

/* Members of any kind of message are reached by their offsets. A list of messages has the shape of an onnx_list. */
typedef struct any_list {
    void *items;
    size_t count;
} any_list;

static void *member_of(const void *message, const field_row *row) {
    return (char *)(uintptr_t)message + row->offset;
}

const char *onnx_field_name(onnx_message kind, uint32_t number) {
    return number < NUMBERS ? messages[kind].fields[number].name : NULL;
}

const char *onnx_message_name(onnx_message kind) {
    return messages[kind].name;
}

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

typedef struct reader {
    onnx_file *file;
    fb_work *work;
    fb_error *error;
    fb_status status;
    uint64_t values;                      /* of attributes, that are not packed */
    uint32_t depth[ONNX_MESSAGES_IN_ALL]; /* messages of each kind that are being read */
} reader;

/* The first failure counts. Returns false. */
static bool fail(reader *r, fb_status status, const char *code, onnx_message kind, const char *field, const unsigned char *at,
                 const char *message) {
    if (!r->status)
        r->status = fb_fail(r->error, status, code, "", "%s%s%s at byte %llu: %s", messages[kind].name, field ? "." : "",
                            field ? field : "", (unsigned long long)(at - r->file->bytes), message);
    return false;
}

static bool bad(reader *r, onnx_message kind, const char *field, const unsigned char *at, const char *message) {
    return fail(r, FB_INVALID, "bad-onnx", kind, field, at, message);
}

static bool goes_on(reader *r, int64_t steps) {
    if (r->status || fb_work_goes_on(r->work, steps)) return !r->status;
    r->status = fb_work_status(r->work, r->error);
    return false;
}

fb_status onnx_use(onnx_file *file, uint64_t size, fb_error *error) {
    uint64_t most = file->limits.memory;
    if (most && (size > most || file->used > most - size))
        return fb_fail(error, FB_TOO_LARGE, "body-too-large", "",
                       "the model takes more than %llu bytes of memory, without its weights; --max-body allows more",
                       (unsigned long long)most);
    file->used += size;
    if (!file->limits.hold || file->used <= file->held) return FB_OK;
    uint64_t step = file->used - file->held > HELD_AT_ONCE ? file->used - file->held : HELD_AT_ONCE;
    fb_status status = file->limits.hold(file->limits.context, step, error);
    if (!status) file->held += step;
    return status;
}

/* Zeros. */
static void *make(reader *r, size_t count, size_t size) {
    size_t bytes;
    if (r->status) return NULL;
    if (__builtin_mul_overflow(count, size, &bytes)) bytes = SIZE_MAX;
    r->status = onnx_use(r->file, bytes, r->error);
    if (r->status) return NULL;
    void *made = fb_arena_alloc(&r->file->arena, bytes);
    if (!made) {
        r->status = fb_fail_memory(r->error);
        return NULL;
    }
    memset(made, 0, bytes);
    return made;
}

bool onnx_is_utf8(onnx_bytes text) {
    const unsigned char *at = (const unsigned char *)(text.size ? text.text : ""), *end = at + text.size;
    for (size_t size; at < end; at += size) {
        size = *at < 0x80 ? 1 : fb_utf8_length(at, end);
        if (!size) return false;
    }
    return true;
}

static bool add_part(reader *r, onnx_head *head, const unsigned char *bytes, uint64_t size) {
    onnx_part *part = make(r, 1, sizeof *part);
    if (!part) return false;
    *part = (onnx_part){bytes, size, NULL};
    if (head->last) head->last->next = part;
    else head->first = part;
    head->last = part;
    return true;
}

/* Is the field in the table, in that form? Libraries take any other for an unknown field as well. */
static const field_row *row_of(onnx_message kind, const onnx_wire_field *field) {
    if (field->number >= NUMBERS) return NULL;
    const field_row *row = &messages[kind].fields[field->number];
    if (row->kind == NO_FIELD) return NULL;
    bool may_be_packed = kinds[row->kind].shape == NUMBERS_OF && field->wire == ONNX_LENGTH;
    return may_be_packed || field->wire == kinds[row->kind].wire ? row : NULL;
}

static void read_number(void *member, field_kind kind, uint64_t bits) {
    uint32_t lower = (uint32_t)bits;
    if (kind == ONNX_INT) memcpy(member, &bits, sizeof bits);
    else memcpy(member, &lower, sizeof lower);
}

static bool read_text(reader *r, onnx_message kind, const field_row *row, const onnx_wire_field *field, onnx_bytes *out) {
    bool is_name = row->kind == ONNX_NAME || row->kind == ONNX_NAMES;
    if (is_name && field->size > MOST_NAME)
        return fail(r, FB_TOO_LARGE, "name-too-long", kind, row->name, field->start, "the name has more than 65,536 bytes");
    *out = (onnx_bytes){(const char *)field->bytes, field->size};
    if (is_name && !onnx_is_utf8(*out)) return bad(r, kind, row->name, field->start, "the name is not UTF-8");
    if (is_name && memchr(field->bytes, 0, field->size))
        return fail(r, FB_INVALID, "unsupported-onnx", kind, row->name, field->start, "the name has a NUL character");
    return true;
}

/* Numbers that follow each other in the file are one run. */
static bool read_numbers(reader *r, onnx_message kind, const field_row *row, const onnx_wire_field *field, onnx_numbers *out) {
    bool is_packed = field->wire == ONNX_LENGTH;
    const unsigned char *start = is_packed ? field->bytes : field->start, *end = field->bytes + field->size;
    onnx_run *last = out->last;
    uint64_t count = 1;
    if (is_packed) {
        onnx_cursor cursor = {field->bytes, end, NULL};
        if (!goes_on(r, (int64_t)(field->size / 8))) return false;
        count = onnx_count_packed(&cursor, kinds[row->kind].wire);
        if (cursor.fault) return bad(r, kind, row->name, cursor.at, cursor.fault);
    }
    out->count += count;
    if (!is_packed && last && !last->is_packed && last->bytes + last->size == start) {
        last->size += (uint64_t)(end - start);
        return true;
    }
    onnx_run *run = make(r, 1, sizeof *run);
    if (!run) return false;
    *run = (onnx_run){start, (uint64_t)(end - start), is_packed, NULL};
    if (last) last->next = run;
    else out->first = run;
    out->last = run;
    return true;
}

static bool read_message(reader *r, onnx_message kind, void *message);

static bool count_values(reader *r, onnx_message kind, const field_row *row, const onnx_wire_field *field) {
    shape its = kinds[row->kind].shape;
    bool is_packed = its == NUMBERS_OF && field->wire == ONNX_LENGTH;
    bool is_several = its == NUMBERS_OF || its == TEXTS_OF || its == MESSAGES_OF;
    if (kind != ONNX_IS_attribute || !is_several || is_packed || ++r->values <= MOST_VALUES) return true;
    return fail(r, FB_TOO_LARGE, "too-many-values", kind, row->name, field->start,
                "the attributes have more than 1,000,000 values in all that are not packed");
}

static bool count_nodes(reader *r, onnx_message kind, const field_row *row, const onnx_wire_field *field) {
    uint64_t most = r->file->limits.max_nodes;
    if (row->type != ONNX_IS_node || kinds[row->kind].shape != MESSAGES_OF) return true;
    if (++r->file->node_count <= most || !most) return true;
    return fail(r, FB_TOO_LARGE, "too-many-nodes", kind, row->name, field->start,
                "the model has more nodes than --max-nodes allows");
}

/* The others of a choice are as if they had never been there. */
static void drop_alternatives(onnx_message kind, void *message, uint32_t number) {
    onnx_head *head = message;
    uint32_t others = messages[kind].alternatives & ~(1U << number) & head->has;
    if (!(messages[kind].alternatives >> number & 1)) return;
    for (uint32_t i = 0; others; i++, others >>= 1) {
        const field_row *row = &messages[kind].fields[i];
        if (others & 1) memset(member_of(message, row), 0, kinds[row->kind].size);
    }
    head->has &= ~messages[kind].alternatives | 1U << number;
}

/* Reads one field into its member. A list has room for it. Messages that there is one of are only gathered here. */
static bool read_field(reader *r, onnx_message kind, void *message, const field_row *row, const onnx_wire_field *field) {
    void *member = member_of(message, row);
    drop_alternatives(kind, message, field->number);
    ((onnx_head *)message)->has |= 1U << field->number;
    if (!count_values(r, kind, row, field) || !count_nodes(r, kind, row, field)) return false;
    switch (kinds[row->kind].shape) {
    case ONE_NUMBER: read_number(member, row->kind, field->value); return true;
    case ONE_TEXT: return read_text(r, kind, row, field, member);
    case NUMBERS_OF: return read_numbers(r, kind, row, field, member);
    case TEXTS_OF: {
        onnx_list *list = member;
        return read_text(r, kind, row, field, &list->items[list->count++]);
    }
    case ONE_MESSAGE: {
        void **one = member;
        if (!*one) *one = make(r, 1, messages[row->type].size);
        return *one && add_part(r, *one, field->bytes, field->size);
    }
    case MESSAGES_OF: {
        any_list *list = member;
        void *item = (char *)list->items + list->count++ * messages[row->type].size;
        return add_part(r, item, field->bytes, field->size) && read_message(r, row->type, item);
    }
    }
    return false;
}

/* Looks over all fields, so that a list is allocated once. */
static bool make_lists(reader *r, onnx_message kind, void *message) {
    size_t counts[NUMBERS] = {0};
    for (const onnx_part *part = ((onnx_head *)message)->first; part; part = part->next) {
        onnx_cursor cursor = {part->bytes, part->bytes + part->size, NULL};
        onnx_wire_field field;
        while (goes_on(r, 1) && onnx_next_field(&cursor, &field))
            if (row_of(kind, &field)) counts[field.number]++;
        if (cursor.fault) {
            onnx_cursor tag = {cursor.at, cursor.end, NULL};
            onnx_next_field(&tag, &field);
            return bad(r, kind, onnx_field_name(kind, field.number), cursor.at, cursor.fault);
        }
    }
    for (size_t i = 0; i < NUMBERS && !r->status; i++) {
        const field_row *row = &messages[kind].fields[i];
        any_list *list = member_of(message, row);
        if (!counts[i]) continue;
        if (kinds[row->kind].shape == TEXTS_OF) list->items = make(r, counts[i], sizeof(onnx_bytes));
        if (kinds[row->kind].shape == MESSAGES_OF) list->items = make(r, counts[i], messages[row->type].size);
    }
    return !r->status;
}

static bool read_fields(reader *r, onnx_message kind, void *message) {
    for (const onnx_part *part = ((onnx_head *)message)->first; part; part = part->next) {
        onnx_cursor cursor = {part->bytes, part->bytes + part->size, NULL};
        onnx_wire_field field;
        while (onnx_next_field(&cursor, &field)) {
            const field_row *row = row_of(kind, &field);
            if (row && !read_field(r, kind, message, row, &field)) return false;
        }
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        const field_row *row = &messages[kind].fields[i];
        if (row->kind != ONNX_MESSAGE || !onnx_has(message, (int)i)) continue;
        if (!read_message(r, row->type, *(void **)member_of(message, row))) return false;
    }
    return true;
}

/* The parts of the message are there, and all its members are zeros. */
static bool read_message(reader *r, onnx_message kind, void *message) {
    uint32_t most = messages[kind].most;
    if (most && r->depth[kind] == most)
        return fail(r, FB_INVALID, "unsupported-onnx", kind, NULL, ((onnx_head *)message)->first->bytes,
                    "more than 32 of them are in one another, and only so many are read");
    r->depth[kind]++;
    bool ok = make_lists(r, kind, message) && read_fields(r, kind, message);
    r->depth[kind]--;
    return ok;
}

fb_status onnx_open(const void *bytes, uint64_t size, const onnx_limits *limits, fb_work *work, onnx_file *file,
                    fb_error *error) {
    *file = (onnx_file){.bytes = bytes, .size = size, .limits = limits ? *limits : (onnx_limits){0}};
    reader r = {.file = file, .work = work, .error = error};
    file->model = make(&r, 1, sizeof *file->model);
    const char *kind = fb_is_onnx(bytes, size) ? NULL : fb_kind_instead_of_onnx(bytes, size);
    if (kind) return fb_fail(error, FB_INVALID, "bad-onnx", "", "%s", kind);
    if (file->model && add_part(&r, &file->model->head, bytes, size)) read_message(&r, ONNX_IS_model, file->model);
    return r.status;
}

void onnx_close(onnx_file *file) {
    fb_arena_free(&file->arena);
    fb_map_free(&file->by_location);
    if (file->held) file->limits.release(file->limits.context, file->held);
    *file = (onnx_file){0};
}

uint64_t onnx_place(const onnx_file *file, const onnx_head *head) {
    return head->first ? (uint64_t)(head->first->bytes - file->bytes) : 0;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

static onnx_cursor inside(const onnx_run *run) {
    return run ? (onnx_cursor){run->bytes, run->bytes + run->size, NULL} : (onnx_cursor){0};
}

onnx_number_cursor onnx_numbers_from(const onnx_numbers *numbers, onnx_wire wire) {
    return (onnx_number_cursor){numbers->first, wire, inside(numbers->first)};
}

bool onnx_numbers_next(onnx_number_cursor *cursor, uint64_t *bits) {
    while (cursor->run) {
        onnx_wire_field field;
        if (cursor->run->is_packed) {
            if (onnx_next_number(&cursor->at, cursor->wire, bits)) return true;
        } else if (onnx_next_field(&cursor->at, &field)) {
            *bits = field.value;
            return true;
        }
        cursor->run = cursor->run->next;
        cursor->at = inside(cursor->run);
    }
    return false;
}

bool onnx_make_numbers(fb_arena *arena, onnx_wire wire, const uint64_t *bits, size_t count, onnx_numbers *out) {
    fb_buffer bytes = {0};
    for (size_t i = 0; i < count; i++) onnx_put_number(&bytes, wire, bits[i]);
    onnx_run *run = fb_arena_alloc(arena, sizeof *run);
    char *copy = bytes.failed ? NULL : fb_arena_text(arena, bytes.data, bytes.size);
    if (run && copy) {
        *run = (onnx_run){(unsigned char *)copy, bytes.size, true, NULL};
        *out = (onnx_numbers){count, run, run};
    }
    fb_buffer_free(&bytes);
    return run && copy;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

/* A length goes in front of what is appended since. */
typedef struct opened {
    size_t at, hole;
    uint64_t in_holes;
} opened;

static opened begin(onnx_pieces *out, uint32_t number) {
    onnx_put_tag(&out->text, number, ONNX_LENGTH);
    return (opened){out->text.size, out->count, out->in_holes};
}

static void end(onnx_pieces *out, opened begun) {
    size_t added = onnx_end_with(&out->text, begun.at, out->in_holes - begun.in_holes);
    for (size_t i = begun.hole; i < out->count; i++) out->holes[i].at += added;
}

static void add_hole(onnx_pieces *out, const void *bytes, uint64_t size) {
    if (!FB_GROW(out->holes, out->count, out->capacity)) {
        out->text.failed = true;
        return;
    }
    out->holes[out->count++] = (onnx_hole){out->text.size, bytes, size};
    out->in_holes += size;
}

static void write_text(onnx_message kind, uint32_t number, const onnx_bytes *text, onnx_pieces *out) {
    bool is_raw = kind == ONNX_IS_tensor && number == ONNX_tensor_raw_data;
    bool is_hole = is_raw && !out->copies && text->size > ONNX_LARGE;
    if (!is_hole) {
        onnx_put_bytes(&out->text, number, text->text, text->size);
        return;
    }
    onnx_put_tag(&out->text, number, ONNX_LENGTH);
    onnx_put_number(&out->text, ONNX_VARINT, text->size);
    add_hole(out, text->text, text->size);
}

static void write_numbers(const field_row *row, uint32_t number, const onnx_numbers *numbers, fb_buffer *out) {
    onnx_wire wire = kinds[row->kind].wire;
    bool is_packed = kinds[row->kind].is_packed;
    onnx_number_cursor cursor = onnx_numbers_from(numbers, wire);
    uint64_t bits;
    if (!numbers->count) return;
    size_t begun = is_packed ? onnx_begin(out, number) : 0;
    while (onnx_numbers_next(&cursor, &bits)) {
        if (row->kind == ONNX_PACKED_INT32S) bits = (uint64_t)(int64_t)(int32_t)bits;
        if (!is_packed) onnx_put_tag(out, number, wire);
        onnx_put_number(out, wire, bits);
    }
    if (is_packed) onnx_end(out, begun);
}

static void write_one(onnx_message type, uint32_t number, const void *message, onnx_pieces *out) {
    opened begun = begin(out, number);
    onnx_write_pieces(type, message, out);
    end(out, begun);
}

/* An int of 32 bits takes ten bytes where it is negative. */
static uint64_t bits_of(const void *member, field_kind kind) {
    uint64_t bits = 0;
    int32_t narrow = 0;
    if (kind == ONNX_INT) memcpy(&bits, member, sizeof bits);
    else memcpy(&narrow, member, sizeof narrow);
    if (kind == ONNX_INT32) bits = (uint64_t)(int64_t)narrow;
    if (kind == ONNX_FLOAT) bits = (uint32_t)narrow;
    return bits;
}

static void write_field(onnx_message kind, const void *message, uint32_t number, onnx_pieces *out) {
    const field_row *row = &messages[kind].fields[number];
    const void *member = member_of(message, row);
    switch (kinds[row->kind].shape) {
    case ONE_NUMBER:
        onnx_put_tag(&out->text, number, kinds[row->kind].wire);
        onnx_put_number(&out->text, kinds[row->kind].wire, bits_of(member, row->kind));
        break;
    case ONE_TEXT: write_text(kind, number, member, out); break;
    case NUMBERS_OF: write_numbers(row, number, member, &out->text); break;
    case TEXTS_OF: {
        const onnx_list *list = member;
        for (size_t i = 0; i < list->count; i++) onnx_put_bytes(&out->text, number, list->items[i].text, list->items[i].size);
        break;
    }
    case ONE_MESSAGE: write_one(row->type, number, *(void *const *)member, out); break;
    case MESSAGES_OF: {
        const any_list *list = member;
        for (size_t i = 0; i < list->count; i++)
            write_one(row->type, number, (const char *)list->items + i * messages[row->type].size, out);
        break;
    }
    }
}

/* The set field, once: where the first of its number was, or behind the others. */
static void write_set(onnx_message kind, const void *message, uint32_t number, uint32_t *left, onnx_pieces *out) {
    if (!(*left >> number & 1)) return;
    *left &= ~(1U << number);
    if (onnx_has(message, (int)number)) write_field(kind, message, number, out);
}

/* Bytes of a message as they are, but for large raw_data in it. */
static void copy_message(onnx_message kind, const unsigned char *bytes, uint64_t size, onnx_pieces *out);

static void copy_field(onnx_message kind, const onnx_wire_field *field, onnx_pieces *out) {
    const field_row *row = field->size > ONNX_LARGE && !out->copies ? row_of(kind, field) : NULL;
    bool is_raw = row && kind == ONNX_IS_tensor && field->number == ONNX_tensor_raw_data;
    bool is_message = row && (row->kind == ONNX_MESSAGE || row->kind == ONNX_MESSAGES);
    if (!is_raw && !is_message) {
        fb_buffer_append(&out->text, field->start, (size_t)(field->bytes + field->size - field->start));
        return;
    }
    fb_buffer_append(&out->text, field->start, (size_t)(field->bytes - field->start));
    if (is_raw) add_hole(out, field->bytes, field->size);
    else copy_message(row->type, field->bytes, field->size, out);
}

static void copy_message(onnx_message kind, const unsigned char *bytes, uint64_t size, onnx_pieces *out) {
    onnx_cursor cursor = {bytes, bytes + size, NULL};
    onnx_wire_field field;
    if (size <= ONNX_LARGE || out->copies) fb_buffer_append(&out->text, bytes, size);
    else
        while (onnx_next_field(&cursor, &field)) copy_field(kind, &field, out);
}

void onnx_write_pieces(onnx_message kind, const void *message, onnx_pieces *out) {
    const onnx_head *head = message;
    uint32_t left = head->is_set;
    for (const onnx_part *part = head->first; part; part = part->next) {
        onnx_cursor cursor = {part->bytes, part->bytes + part->size, NULL};
        onnx_wire_field field;
        if (!head->is_set) {
            copy_message(kind, part->bytes, part->size, out);
            continue;
        }
        while (onnx_next_field(&cursor, &field)) {
            if (field.number < NUMBERS && head->is_set >> field.number & 1) write_set(kind, message, field.number, &left, out);
            else copy_field(kind, &field, out);
        }
    }
    for (uint32_t i = 0; left; i++) write_set(kind, message, i, &left, out);
}

void onnx_pieces_free(onnx_pieces *pieces) {
    fb_buffer_free(&pieces->text);
    free(pieces->holes);
    *pieces = (onnx_pieces){0};
}

void onnx_write(onnx_message kind, const void *message, fb_buffer *out) {
    onnx_pieces pieces = {.text = *out, .copies = true};
    onnx_write_pieces(kind, message, &pieces);
    *out = pieces.text;
}
