/* Arguments in generated code. */
#include <stdlib.h>
#include <string.h>

#include "core/graph/code_writer.h"
#include "core/graph/python.h"

static void write_items(fb_code_writer *writer, const fb_value_row *row) {
    for (uint32_t i = 0; i < row->count; i++) {
        if (i) fb_buffer_string(writer->out, ", ");
        fb_code_value(writer, row->items[i]);
    }
}

static void write_tuple(fb_code_writer *writer, const fb_value_row *row) {
    fb_buffer_char(writer->out, '(');
    write_items(writer, row);
    fb_buffer_string(writer->out, row->count == 1 ? ",)" : ")");
}

static void write_dict(fb_code_writer *writer, const fb_value_row *row) {
    fb_buffer_char(writer->out, '{');
    for (uint32_t i = 0; i + 1 < row->count; i += 2) {
        if (i) fb_buffer_string(writer->out, ", ");
        fb_code_value(writer, row->items[i]);
        fb_buffer_string(writer->out, ": ");
        fb_code_value(writer, row->items[i + 1]);
    }
    fb_buffer_char(writer->out, '}');
}

static double part_of_complex(const fb_graph *graph, fb_value part) {
    double value = 0;
    if (!fb_value_is_number(graph, part, &value)) {
        const char *digits = fb_value_text(graph, part);
        if (digits) value = strtod(digits, NULL);
    }
    return value;
}

static void write_complex(fb_code_writer *writer, const fb_value_row *row) {
    if (row->count != 2) return;
    fb_repr_complex(writer->out, part_of_complex(writer->graph, row->items[0]), part_of_complex(writer->graph, row->items[1]));
}

/* "cuda:1" as repr(torch.device) has it */
static void write_device(fb_buffer *out, const char *text, size_t length) {
    const char *colon = memchr(text, ':', length);
    fb_buffer_string(out, "device(type=");
    fb_repr_string(out, text, colon ? (size_t)(colon - text) : length);
    if (colon) {
        fb_buffer_string(out, ", index=");
        fb_buffer_int(out, strtol(colon + 1, NULL, 10));
    }
    fb_buffer_char(out, ')');
}

/* torch.float32, torch.strided, torch.contiguous_format */
static void write_torch_member(fb_buffer *out, const char *text, size_t length) {
    if (!fb_python_is_identifier(text, length)) {
        fb_repr_string(out, text, length);
        return;
    }
    fb_buffer_string(out, "torch.");
    fb_buffer_append(out, text, length);
}

/* Class.NAME; a member whose name is no identifier is looked up: Class['some name']. */
static void write_enum(fb_code_writer *writer, const fb_value_row *row) {
    const char *class_name = fb_text(writer->graph, row->symbol);
    const char *last = strrchr(class_name, '.');
    fb_buffer_string(writer->out, fb_code_global(writer, row->symbol, last ? last + 1 : class_name));
    const char *member = fb_value_text(writer->graph, row->count ? row->items[0] : (fb_value){0});
    if (!member) return;
    size_t length = strlen(member);
    bool is_attribute = fb_python_is_identifier(member, length);
    fb_buffer_char(writer->out, is_attribute ? '.' : '[');
    if (is_attribute) fb_buffer_append(writer->out, member, length);
    else fb_repr_string(writer->out, member, length);
    if (!is_attribute) fb_buffer_char(writer->out, ']');
}

static bool is_number(const char *text, size_t length) {
    size_t sign = text[0] == '-';
    return length > sign && strspn(text + sign, "0123456789") == length - sign;
}

static void write_text(fb_code_writer *writer, const fb_value_row *row) {
    const char *text = fb_text(writer->graph, row->symbol);
    size_t length = fb_text_length(writer->graph, row->symbol);
    switch ((fb_kind)row->kind) {
    case FB_BIG_INT:
        if (is_number(text, length)) fb_buffer_append(writer->out, text, length);
        else fb_repr_string(writer->out, text, length);
        break;
    case FB_DTYPE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT: write_torch_member(writer->out, text, length); break;
    case FB_DEVICE: write_device(writer->out, text, length); break;
    case FB_OPAQUE:
        if (fb_code_is_plain(text, length, ".[] ")) fb_buffer_append(writer->out, text, length);
        else fb_repr_string(writer->out, text, length);
        break;
    default: fb_repr_string(writer->out, text, length);
    }
}

void fb_code_value(fb_code_writer *writer, fb_value value) {
    fb_buffer *out = writer->out;
    const fb_value_row *row = value.id ? fb_value_at(writer->graph, value) : &(fb_value_row){.kind = FB_NONE};
    switch ((fb_kind)row->kind) {
    case FB_FALSE: fb_buffer_string(out, "False"); break;
    case FB_TRUE: fb_buffer_string(out, "True"); break;
    case FB_INT: fb_buffer_int(out, row->integer); break;
    case FB_FLOAT: fb_repr_float(out, row->real); break;
    case FB_NODE: fb_buffer_string(out, fb_code_node_name(writer, row->node)); break;
    case FB_STRING:
    case FB_BIG_INT:
    case FB_DTYPE:
    case FB_DEVICE:
    case FB_LAYOUT:
    case FB_MEMORY_FORMAT:
    case FB_OPAQUE: write_text(writer, row); break;
    case FB_REF: fb_buffer_string(out, fb_code_global(writer, row->symbol, fb_text(writer->graph, row->symbol))); break;
    case FB_ELLIPSIS: fb_buffer_string(out, "Ellipsis"); break;
    case FB_ENUM: write_enum(writer, row); break;
    case FB_COMPLEX: write_complex(writer, row); break;
    case FB_SLICE:
        fb_buffer_string(out, "slice(");
        write_items(writer, row);
        fb_buffer_char(out, ')');
        break;
    case FB_LIST:
        fb_buffer_char(out, '[');
        write_items(writer, row);
        fb_buffer_char(out, ']');
        break;
    case FB_NAMED_TUPLE:
        fb_buffer_string(out, fb_code_global(writer, row->symbol, fb_text(writer->graph, row->symbol)));
        write_tuple(writer, row);
        break;
    case FB_TUPLE:
    case FB_SIZE: write_tuple(writer, row); break; /* torch.fx turns sizes into tuples */
    case FB_DICT: write_dict(writer, row); break;
    case FB_NONE:
    default: fb_buffer_string(out, "None"); /* the other kinds are no arguments */
    }
}

void fb_code_arguments(fb_code_writer *writer, const fb_node_row *row, size_t from) {
    const fb_value_row *args = fb_value_at(writer->graph, row->args);
    const fb_value_row *kwargs = fb_value_at(writer->graph, row->kwargs);
    const char *separator = "";
    for (size_t i = from; i < args->count; i++, separator = ", ") {
        fb_buffer_string(writer->out, separator);
        fb_code_value(writer, args->items[i]);
    }
    for (uint32_t i = 0; i + 1 < kwargs->count; i += 2, separator = ", ") {
        const char *key = fb_value_text(writer->graph, kwargs->items[i]);
        if (!key) continue;
        size_t length = strlen(key);
        bool is_keyword = fb_python_is_identifier(key, length) && fb_python_word(key, length) != FB_WORD_KEYWORD;
        fb_buffer_string(writer->out, separator);
        if (is_keyword) {
            fb_buffer_append(writer->out, key, length);
            fb_buffer_string(writer->out, " = ");
            fb_code_value(writer, kwargs->items[i + 1]);
            continue;
        }
        fb_buffer_string(writer->out, "**{");
        fb_repr_string(writer->out, key, length);
        fb_buffer_string(writer->out, ": ");
        fb_code_value(writer, kwargs->items[i + 1]);
        fb_buffer_char(writer->out, '}');
    }
}

static bool is_attribute(const char *part, size_t length) {
    return fb_python_is_identifier(part, length) && fb_python_word(part, length) != FB_WORD_KEYWORD;
}

/* The first part of `path` and, in `rest`, what comes behind its dot (NULL: nothing). */
static size_t first_part(const char *path, const char *end, const char **rest) {
    const char *dot = memchr(path, '.', (size_t)(end - path));
    *rest = dot ? dot + 1 : NULL;
    return (size_t)((dot ? dot : end) - path);
}

/* torch.fx puts the part between double quotes as it is. */
static void write_quoted_part(fb_buffer *out, const char *part, size_t length) {
    bool is_harmless = true;
    for (size_t at = 0, size; at < length; at += size) {
        uint32_t code = fb_utf8_decode(part + at, length - at, &size);
        if (code < 0x20 || code == 0x7f || code == '"' || code == '\\' || code == UINT32_MAX) is_harmless = false;
    }
    if (!is_harmless) {
        fb_repr_string(out, part, length);
        return;
    }
    fb_buffer_char(out, '"');
    fb_buffer_append(out, part, length);
    fb_buffer_char(out, '"');
}

void fb_code_path(fb_code_writer *writer, fb_value base, const char *path, size_t length) {
    const char *end = path + length, *rest;
    for (const char *part = path; part; part = rest) {
        if (!is_attribute(part, first_part(part, end, &rest))) fb_buffer_string(writer->out, "getattr(");
    }
    if (base.id) fb_code_value(writer, base);
    else fb_buffer_string(writer->out, "self");
    for (const char *part = path; part; part = rest) {
        size_t size = first_part(part, end, &rest);
        if (is_attribute(part, size)) {
            fb_buffer_char(writer->out, '.');
            fb_buffer_append(writer->out, part, size);
            continue;
        }
        fb_buffer_string(writer->out, ", ");
        write_quoted_part(writer->out, part, size);
        fb_buffer_char(writer->out, ')');
    }
}
