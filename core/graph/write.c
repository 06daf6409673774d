/* Writing a document in canonical form: compact, members in the order of the format, numbers that any JSON tool keeps. */
#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/float.h"
#include "core/graph/write.h"

typedef struct writer {
    const fb_graph *graph;
    fb_buffer *out;
    const bool *is_parameter; /* by tensor: some module owns it as a parameter; NULL: requires_grad is always written */
    fb_work *work;            /* NULL: it is not stopped */
    fb_buffer *left_out;      /* spans of `out` that are not part of `structure`; NULL: not asked for */
} writer;

typedef struct span {
    size_t from, to;
} span;

#define MAX_SAFE_INTEGER ((int64_t)9007199254740991) /* 2^53 - 1: what every JSON tool keeps (RFC 8259, section 6) */

static void write_value(const writer *w, fb_value value);

/* ---- pieces ------------------------------------------------------------------------------------------------------------ */

static inline void put(const writer *w, const char *bytes, size_t size) {
    fb_buffer *out = w->out;
    if (out->capacity - out->size < size || !out->data) {
        fb_buffer_append(out, bytes, size);
        return;
    }
    memcpy(out->data + out->size, bytes, size);
    out->size += size;
}

#define PUT(w, literal) put(w, literal, sizeof(literal) - 1)

/* A string of which most need no escape: looks at eight bytes at a time. */
static void put_text(const writer *w, const char *text, size_t length) {
    const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
    uint64_t special = 0;
    size_t i = 0;
    for (; i + 8 <= length; i += 8) {
        uint64_t word;
        memcpy(&word, text + i, sizeof word);
        uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
        special |= ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((word - ones * 0x20) & ~word);
    }
    bool is_plain = (special & highs) == 0;
    for (; i < length; i++) is_plain &= (unsigned char)text[i] >= 0x20 && text[i] != '"' && text[i] != '\\';
    char *to = is_plain ? fb_buffer_reserve(w->out, length + 2) : NULL;
    if (!to) {
        fb_buffer_json_string(w->out, text, length);
        return;
    }
    to[0] = '"';
    memcpy(to + 1, text, length);
    to[length + 1] = '"';
    w->out->size += length + 2;
}

static void put_symbol(const writer *w, fb_symbol symbol) {
    put_text(w, fb_text(w->graph, symbol), fb_text_length(w->graph, symbol));
}

static void put_int(const writer *w, int64_t value) {
    if (value >= 0 && value < 10) put(w, &"0123456789"[value], 1);
    else fb_buffer_int(w->out, value);
}

/* Leaves what was written since `from` out of `structure`. */
static void leave_out(const writer *w, size_t from) {
    if (w->left_out) fb_buffer_append(w->left_out, &(span){from, w->out->size}, sizeof(span));
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

static void write_items(const writer *w, const fb_value_row *row) {
    PUT(w, "[");
    for (uint32_t i = 0; i < row->count; i++) {
        if (i) PUT(w, ",");
        write_value(w, row->items[i]);
    }
    PUT(w, "]");
}

static void write_members(const writer *w, const fb_value_row *map, bool has_members_before) {
    for (uint32_t i = 0; i + 1 < map->count; i += 2) {
        if (i || has_members_before) PUT(w, ",");
        put_symbol(w, fb_value_at(w->graph, map->items[i])->symbol);
        PUT(w, ":");
        write_value(w, map->items[i + 1]);
    }
}

static void write_map(const writer *w, fb_value map) {
    PUT(w, "{");
    write_members(w, fb_value_at(w->graph, map), false);
    PUT(w, "}");
}

static void write_float(const writer *w, double real) {
    char spelling[FB_FLOAT_MAX];
    size_t length = fb_float_repr(real, spelling);
    bool is_wrapped = !isfinite(real) || real == trunc(real);
    if (is_wrapped) PUT(w, "{\"$float\":\"");
    put(w, spelling, length);
    if (is_wrapped) PUT(w, "\"}");
}

static void write_int(const writer *w, int64_t integer) {
    bool is_wrapped = integer > MAX_SAFE_INTEGER || integer < -MAX_SAFE_INTEGER;
    if (is_wrapped) PUT(w, "{\"$int\":\"");
    put_int(w, integer);
    if (is_wrapped) PUT(w, "\"}");
}

static void write_dict(const writer *w, const fb_value_row *row) {
    PUT(w, "{\"$dict\":[");
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        if (i) PUT(w, ",");
        PUT(w, "[");
        write_value(w, row->items[i]);
        PUT(w, ",");
        write_value(w, row->items[i + 1]);
        PUT(w, "]");
    }
    PUT(w, "]}");
}

static void write_text_form(const writer *w, const char *form, size_t length, fb_symbol symbol) {
    put(w, form, length);
    put_symbol(w, symbol);
    PUT(w, "}");
}
#define WRITE_TEXT_FORM(w, name, symbol) write_text_form(w, "{\"" name "\":", sizeof("{\"" name "\":") - 1, symbol)

static void write_expression(const writer *w, const fb_value_row *row) {
    PUT(w, "{\"op\":");
    put_symbol(w, row->symbol);
    PUT(w, ",\"args\":");
    write_value(w, row->items[0]);
    write_members(w, fb_value_at(w->graph, row->items[1]), true);
    PUT(w, "}");
}

static void write_value(const writer *w, fb_value value) {
    const fb_value_row *row = fb_value_at(w->graph, value);
    switch ((fb_kind)row->kind) {
    case FB_NONE: PUT(w, "null"); break;
    case FB_FALSE: PUT(w, "false"); break;
    case FB_TRUE: PUT(w, "true"); break;
    case FB_INT: write_int(w, row->integer); break;
    case FB_BIG_INT: WRITE_TEXT_FORM(w, "$int", row->symbol); break;
    case FB_FLOAT: write_float(w, row->real); break;
    case FB_STRING: put_symbol(w, row->symbol); break;
    case FB_NODE: WRITE_TEXT_FORM(w, "$node", fb_node_at(w->graph, fb_value_node(w->graph, value))->name); break;
    case FB_TENSOR: put_symbol(w, fb_tensor_at(w->graph, fb_value_tensor(w->graph, value))->name); break;
    case FB_DTYPE: WRITE_TEXT_FORM(w, "$dtype", row->symbol); break;
    case FB_DEVICE: WRITE_TEXT_FORM(w, "$device", row->symbol); break;
    case FB_LAYOUT: WRITE_TEXT_FORM(w, "$layout", row->symbol); break;
    case FB_MEMORY_FORMAT: WRITE_TEXT_FORM(w, "$memory_format", row->symbol); break;
    case FB_REF: WRITE_TEXT_FORM(w, "$ref", row->symbol); break;
    case FB_OPAQUE: WRITE_TEXT_FORM(w, "$opaque", row->symbol); break;
    case FB_ELLIPSIS: PUT(w, "{\"$ellipsis\":true}"); break;
    case FB_RAW: put(w, fb_text(w->graph, row->symbol), fb_text_length(w->graph, row->symbol)); break;
    case FB_ENUM:
        PUT(w, "{\"$enum\":[");
        put_symbol(w, row->symbol);
        PUT(w, ",");
        write_value(w, row->items[0]);
        PUT(w, "]}");
        break;
    case FB_COMPLEX:
        PUT(w, "{\"$complex\":");
        write_items(w, row);
        PUT(w, "}");
        break;
    case FB_SLICE:
        PUT(w, "{\"$slice\":");
        write_items(w, row);
        PUT(w, "}");
        break;
    case FB_LIST: write_items(w, row); break;
    case FB_TUPLE:
        PUT(w, "{\"$tuple\":");
        write_items(w, row);
        PUT(w, "}");
        break;
    case FB_SIZE:
        PUT(w, "{\"$size\":");
        write_items(w, row);
        PUT(w, "}");
        break;
    case FB_NAMED_TUPLE:
        PUT(w, "{\"$namedtuple\":[");
        put_symbol(w, row->symbol);
        PUT(w, ",");
        write_items(w, row);
        PUT(w, "]}");
        break;
    case FB_DICT: write_dict(w, row); break;
    case FB_MAP: write_map(w, value); break;
    case FB_EXPRESSION: write_expression(w, row); break;
    }
}

void fb_value_write(const fb_graph *graph, fb_value value, fb_buffer *out) {
    write_value(&(writer){.graph = graph, .out = out}, value);
}

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

/* Shapes are free JSON: bare, however large. */
static void write_shape(const writer *w, fb_value shape) {
    const fb_value_row *row = fb_value_at(w->graph, shape);
    PUT(w, "[");
    for (uint32_t i = 0; i < row->count; i++) {
        const fb_value_row *size = fb_value_at(w->graph, row->items[i]);
        if (i) PUT(w, ",");
        if (size->kind == FB_INT) put_int(w, size->integer);
        else put_symbol(w, size->symbol);
    }
    PUT(w, "]");
}

/* The members of meta that have a place of their own in the row; dtype, shape, transformations is their sorted order. */
enum { META_DTYPE, META_SHAPE, META_TRANSFORMATIONS, META_COUNT };
static const char *const meta_names[META_COUNT] = {"dtype", "shape", "transformations"};

/* How many members of a node's meta there are so far, and how many of them are part of `structure`. */
typedef struct meta_count {
    size_t all, kept;
} meta_count;

/* The comma before one more member. Of the first that `structure` keeps, it is left out. */
static void separate(const writer *w, meta_count *count, bool is_kept) {
    size_t from = w->out->size;
    if (count->all++) PUT(w, ",");
    if (is_kept && !count->kept++ && count->all > 1) leave_out(w, from);
}

static void write_meta_member(const writer *w, const fb_node_row *row, int member, meta_count *count) {
    const bool is_there[META_COUNT] = {row->dtype != 0, row->shape.id != 0, row->transformations.id != 0};
    if (!is_there[member]) return;
    size_t from = w->out->size;
    separate(w, count, member != META_TRANSFORMATIONS);
    switch (member) {
    case META_DTYPE:
        PUT(w, "\"dtype\":\"");
        const char *name = fb_dtype_name((fb_dtype)row->dtype);
        put(w, name, strlen(name));
        PUT(w, "\"");
        break;
    case META_SHAPE:
        PUT(w, "\"shape\":");
        write_shape(w, row->shape);
        break;
    default:
        PUT(w, "\"transformations\":");
        write_value(w, row->transformations);
        leave_out(w, from);
    }
}

static void write_meta(const writer *w, const fb_node_row *row) {
    meta_count count = {0};
    int member = 0;
    PUT(w, "{");
    const fb_value_row *rest = row->meta_rest.id ? fb_value_at(w->graph, row->meta_rest) : NULL;
    for (uint32_t i = 0; rest && i + 1 < rest->count; i += 2) {
        const char *key = fb_value_text(w->graph, rest->items[i]);
        while (member < META_COUNT && strcmp(meta_names[member], key) < 0) write_meta_member(w, row, member++, &count);
        size_t from = w->out->size;
        separate(w, &count, false);
        write_value(w, rest->items[i]);
        PUT(w, ":");
        write_value(w, rest->items[i + 1]);
        leave_out(w, from);
    }
    while (member < META_COUNT) write_meta_member(w, row, member++, &count);
    PUT(w, "}");
}

static void write_node(const writer *w, const fb_node_row *row) {
    PUT(w, "{\"name\":");
    put_symbol(w, row->name);
    PUT(w, ",\"op\":\"");
    const char *opcode = fb_opcode_name((fb_opcode)row->opcode);
    put(w, opcode, strlen(opcode));
    PUT(w, "\",\"target\":");
    put_symbol(w, row->target);
    PUT(w, ",\"args\":");
    write_value(w, row->args);
    PUT(w, ",\"kwargs\":");
    write_map(w, row->kwargs);
    if (row->type.id) {
        PUT(w, ",\"type\":");
        put_symbol(w, row->type);
    }
    PUT(w, ",\"meta\":");
    write_meta(w, row);
    PUT(w, "}");
}

static bool goes_on(const writer *w) {
    if (!w->work || fb_work_goes_on(w->work, 16)) return true;
    w->out->failed = true;
    return false;
}

static void write_nodes(const writer *w, fb_program program) {
    PUT(w, "[");
    for (fb_node n = fb_first_node(w->graph, program); n.id && goes_on(w);) {
        const fb_node_row *row = fb_node_at(w->graph, n);
        write_node(w, row);
        n = row->next;
        if (n.id) PUT(w, ",");
    }
    PUT(w, "]");
}

static void write_rest(const writer *w, fb_value rest) {
    if (rest.id) write_members(w, fb_value_at(w->graph, rest), true);
}

static void write_module(const writer *w, const fb_module_row *row) {
    PUT(w, "{\"path\":");
    put_symbol(w, row->path);
    PUT(w, ",\"type\":");
    put_symbol(w, row->type);
    PUT(w, ",\"config\":");
    write_map(w, row->config);
    PUT(w, ",\"parameters\":");
    write_map(w, row->parameters);
    PUT(w, ",\"buffers\":");
    write_map(w, row->buffers);
    if (row->non_persistent.id) {
        PUT(w, ",\"non_persistent\":");
        write_value(w, row->non_persistent);
    }
    if (row->attributes.id) {
        PUT(w, ",\"attributes\":");
        write_map(w, row->attributes);
    }
    if (row->training) PUT(w, ",\"training\":true");
    else PUT(w, ",\"training\":false");
    if (row->program.id) {
        PUT(w, ",\"graph\":{\"nodes\":");
        write_nodes(w, row->program);
        PUT(w, "}");
    }
    write_rest(w, row->rest);
    PUT(w, "}");
}

static void write_tensor_source(const writer *w, const fb_tensor_row *row) {
    size_t from = w->out->size;
    if (row->digest.id) {
        PUT(w, ",\"digest\":");
        put_symbol(w, row->digest);
    }
    if (row->blob.id) {
        PUT(w, ",\"blob\":");
        put_symbol(w, row->blob);
    }
    if (row->offset) {
        PUT(w, ",\"offset\":");
        put_int(w, row->offset);
    }
    if (row->data.id) {
        PUT(w, ",\"data\":");
        put_symbol(w, row->data);
    }
    if (w->out->size > from) leave_out(w, from);
}

static void write_tensor(const writer *w, fb_tensor tensor) {
    const fb_tensor_row *row = fb_tensor_at(w->graph, tensor);
    PUT(w, "{\"name\":");
    put_symbol(w, row->name);
    PUT(w, ",\"dtype\":\"");
    const char *dtype = fb_tensor_dtype_name(w->graph, tensor);
    put(w, dtype, strlen(dtype));
    PUT(w, "\",\"shape\":");
    write_shape(w, row->shape);
    bool is_default =
        w->is_parameter && row->requires_grad == (w->is_parameter[tensor.id] && fb_dtype_is_floating((fb_dtype)row->dtype));
    if (!is_default && row->requires_grad) PUT(w, ",\"requires_grad\":true");
    if (!is_default && !row->requires_grad) PUT(w, ",\"requires_grad\":false");
    write_tensor_source(w, row);
    if (row->recipe.id) {
        PUT(w, ",\"recipe\":");
        write_value(w, row->recipe);
    }
    write_rest(w, row->rest);
    PUT(w, "}");
}

void fb_node_write(const fb_graph *graph, fb_node node, fb_buffer *out) {
    write_node(&(writer){.graph = graph, .out = out}, fb_node_at(graph, node));
}

void fb_module_write(const fb_graph *graph, fb_module module, fb_buffer *out) {
    write_module(&(writer){.graph = graph, .out = out}, fb_module_at(graph, module));
}

void fb_tensor_write(const fb_graph *graph, fb_tensor tensor, fb_buffer *out) {
    write_tensor(&(writer){.graph = graph, .out = out}, tensor);
}

/* ---- the document ------------------------------------------------------------------------------------------------------ */

static bool *find_parameters(const fb_graph *graph) {
    bool *is_parameter = calloc(fb_tensor_limit(graph), sizeof *is_parameter);
    for (fb_module m = fb_first_module(graph); m.id && is_parameter; m = fb_module_at(graph, m)->next) {
        const fb_value_row *map = fb_value_at(graph, fb_module_at(graph, m)->parameters);
        for (uint32_t i = 1; i < map->count; i += 2) {
            fb_tensor tensor = fb_value_tensor(graph, map->items[i]);
            if (tensor.id) is_parameter[tensor.id] = true;
        }
    }
    return is_parameter;
}

static void write_document(const writer *whole) {
    const fb_graph *graph = whole->graph;
    bool *is_parameter = find_parameters(graph);
    if (!is_parameter) {
        whole->out->failed = true;
        return;
    }
    writer with_parameters = *whole, *w = &with_parameters;
    w->is_parameter = is_parameter;
    PUT(w, "{\"format\":\"" FB_DOCUMENT_FORMAT "\"");
    size_t from = w->out->size;
    PUT(w, ",\"name\":");
    put_text(w, fb_graph_name(graph), strlen(fb_graph_name(graph)));
    leave_out(w, from);
    PUT(w, ",\"nodes\":");
    write_nodes(w, FB_MAIN_PROGRAM);
    PUT(w, ",\"modules\":[");
    for (fb_module m = fb_first_module(graph); m.id && goes_on(w);) {
        const fb_module_row *row = fb_module_at(graph, m);
        write_module(w, row);
        m = row->next;
        if (m.id) PUT(w, ",");
    }
    PUT(w, "],\"tensors\":[");
    for (fb_tensor t = fb_first_tensor(graph); t.id && goes_on(w);) {
        write_tensor(w, t);
        t = fb_tensor_at(graph, t)->next;
        if (t.id) PUT(w, ",");
    }
    PUT(w, "]");
    from = w->out->size;
    PUT(w, ",\"metadata\":");
    fb_value metadata = fb_graph_metadata(graph);
    if (metadata.id) write_map(w, metadata);
    else PUT(w, "{}");
    leave_out(w, from);
    PUT(w, "}");
    free(is_parameter);
}

void fb_document_write(const fb_graph *graph, fb_buffer *out) {
    write_document(&(writer){.graph = graph, .out = out});
}

#define HASHED_AT_ONCE ((size_t)1 << 20) /* bytes; some milliseconds at most */

static bool add_metered(fb_sha256 *hash, const char *bytes, size_t size, fb_work *work) {
    bool ok = true;
    for (size_t at = 0; ok && at < size; at += HASHED_AT_ONCE) {
        size_t part = size - at < HASHED_AT_ONCE ? size - at : HASHED_AT_ONCE;
        ok = fb_work_goes_on(work, (int64_t)(part / 16)) && fb_sha256_add(hash, bytes + at, part);
    }
    return ok;
}

/* Hashes the bytes from `from` on, without the spans that are left out. */
static bool hash_metered(const fb_buffer *bytes, size_t from, const fb_buffer *left_out, fb_work *work,
                         char id[FB_ID_LENGTH + 1]) {
    const span *spans = (const span *)(const void *)left_out->data;
    size_t count = left_out->size / sizeof *spans;
    fb_sha256 *hash = fb_sha256_new();
    bool ok = hash != NULL;
    for (size_t i = 0; ok && i <= count; i++) {
        size_t to = i < count ? spans[i].from : bytes->size;
        ok = add_metered(hash, bytes->data + from, to - from, work);
        if (i < count) from = spans[i].to;
    }
    ok = ok && fb_sha256_id_so_far(hash, id);
    fb_sha256_free(hash);
    return ok;
}

bool fb_document_structure_of(const fb_buffer *document, const fb_buffer *left_out, fb_work *work, char id[FB_ID_LENGTH + 1]) {
    return hash_metered(document, 0, left_out, work, id);
}

bool fb_document_write_marked(const fb_graph *graph, fb_work *work, fb_buffer *out, fb_buffer *left_out,
                              char id[FB_ID_LENGTH + 1]) {
    size_t before = out->size;
    write_document(&(writer){.graph = graph, .out = out, .work = work, .left_out = left_out});
    return !out->failed && !(left_out && left_out->failed) && hash_metered(out, before, &(fb_buffer){0}, work, id);
}

bool fb_document_id_metered(const fb_graph *graph, fb_work *work, char id[FB_ID_LENGTH + 1]) {
    fb_buffer bytes = {0};
    bool ok = fb_document_write_marked(graph, work, &bytes, NULL, id);
    fb_buffer_free(&bytes);
    return ok;
}

bool fb_document_id(const fb_graph *graph, char id[FB_ID_LENGTH + 1]) {
    return fb_document_id_metered(graph, &(fb_work){0}, id);
}

bool fb_document_structure(const fb_graph *graph, char id[FB_ID_LENGTH + 1]) {
    fb_buffer bytes = {0}, left_out = {0};
    write_document(&(writer){.graph = graph, .out = &bytes, .left_out = &left_out});
    bool ok = !bytes.failed && !left_out.failed && fb_document_structure_of(&bytes, &left_out, &(fb_work){0}, id);
    fb_buffer_free(&bytes);
    fb_buffer_free(&left_out);
    return ok;
}

bool fb_document_is_same(const fb_graph *a, const fb_graph *b, fb_work *work, bool *is_same) {
    fb_buffer one = {0}, other = {0};
    write_document(&(writer){.graph = a, .out = &one, .work = work});
    write_document(&(writer){.graph = b, .out = &other, .work = work});
    bool ok = !one.failed && !other.failed;
    if (ok) *is_same = one.size == other.size && memcmp(one.data, other.data, one.size) == 0;
    fb_buffer_free(&one);
    fb_buffer_free(&other);
    return ok;
}
