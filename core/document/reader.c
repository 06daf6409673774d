/* Members of a document's objects, and errors that say where. */
#include "core/document/read.h"

#include <stdio.h>
#include <string.h>

#include "core/base/grow.h"

void fb_reader_no_memory(fb_reader *reader) {
    reader->failed = true;
}

fb_error *fb_reader_error(fb_reader *reader, const fb_json *at, const char *code, const char *format, ...) {
    fb_errors *errors = reader->errors;
    if (errors->count >= (errors->limit ? errors->limit : 100)) {
        errors->total++;
        return NULL; /* the pointer costs as much as the element is long */
    }
    fb_buffer pointer = {0};
    fb_buffer_string(&pointer, reader->section);
    if (reader->index != SIZE_MAX) fb_buffer_printf(&pointer, "/%zu", reader->index);
    if (at) fb_json_pointer(reader->element, at, &pointer);
    const char *text = fb_buffer_text(&pointer);
    if (!text) fb_reader_no_memory(reader);
    va_list args;
    va_start(args, format);
    fb_error *error = fb_errors_add_list(errors, code, text, format, args);
    va_end(args);
    fb_buffer_free(&pointer);
    if (reader->node_name.id) fb_error_set_node(error, fb_text(reader->graph, reader->node_name));
    return error;
}

static const char *expected_name(fb_json_kind kind) {
    return kind == FB_JSON_TRUE ? "true or false" : fb_json_kind_name(&(fb_json){.kind = (uint8_t)kind});
}

bool fb_expect(fb_reader *reader, const fb_json *value, fb_json_kind kind) {
    if (value->kind == kind) return true;
    fb_reader_error(reader, value, "wrong-type", "%s is expected here, not %s", expected_name(kind), fb_json_kind_name(value));
    return false;
}

void fb_reader_know_members(fb_reader *reader) {
    static const char *const names[] = {
#define FB_MEMBER(word) #word,
#define FB_FORM(word) "$" #word,
#include "core/document/members.def"
    };
    for (size_t i = 0; i < FB_MEMBER_COUNT - 1; i++) fb_scan_names_add(&reader->names, names[i], strlen(names[i]));
    reader->scan.names = &reader->names;
}

/* Members mostly come in the order of the list. */
size_t fb_find_member(const fb_json *key, const uint8_t *members, size_t count, size_t likely) {
    if (likely < count && members[likely] == key->name) return likely;
    size_t i = 0;
    while (i < count && members[i] != key->name) i++;
    return i;
}

size_t fb_find_members(const fb_json *object, const uint8_t *members, size_t count, const fb_json **found) {
    for (size_t i = 0; i < count; i++) found[i] = NULL;
    size_t unknown = 0, likely = 0;
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        size_t member = fb_find_member(key, members, count, likely);
        if (member < count) found[member] = key + 1;
        else unknown++;
        likely = member + 1;
    }
    return unknown;
}

void fb_refuse_unknown(fb_reader *reader, const fb_json *object, const uint8_t *members, size_t count) {
    const fb_json *key = fb_json_first(object);
    for (uint32_t i = 0; i < object->count; i++, key = fb_json_next(key + 1)) {
        if (fb_find_member(key, members, count, 0) == count) {
            fb_reader_error(reader, key, "unknown-member", "the format has no such member here");
        }
    }
}

const fb_json *fb_require(fb_reader *reader, const fb_json *object, const fb_json *value, const char *name, fb_json_kind kind) {
    if (value) return fb_expect(reader, value, kind) ? value : NULL;
    fb_reader_error(reader, object, "missing-member", "the member \"%s\" is missing", name);
    return NULL;
}

const fb_json *fb_optional(fb_reader *reader, const fb_json *value, fb_json_kind kind) {
    return value && fb_expect(reader, value, kind) ? value : NULL;
}

bool fb_optional_bool(fb_reader *reader, const fb_json *value) {
    return value && value->kind != FB_JSON_FALSE && fb_expect(reader, value, FB_JSON_TRUE);
}

static bool is_text(const fb_graph *graph, fb_symbol symbol, const fb_json *string) {
    return symbol.id && fb_text_length(graph, symbol) == string->count &&
           memcmp(fb_text(graph, symbol), string->text, string->count) == 0;
}

/* Finds the place for strings that end like this one. */
static fb_known_symbol *find_known(fb_reader *reader, const fb_json *string) {
    uint32_t end = 0;
    if (string->count >= sizeof end) memcpy(&end, string->text + string->count - sizeof end, sizeof end);
    return &reader->symbols[(end * 0x9e3779b1U ^ string->count * 0x85ebca6bU) >> 24];
}

static fb_symbol read_symbol(fb_reader *reader, const fb_json *string, fb_known_symbol *known) {
    if (known->length == string->count && is_text(reader->graph, known->symbol, string)) return known->symbol;
    fb_symbol symbol = fb_intern_bytes(reader->graph, string->text, string->count);
    if (!symbol.id) fb_reader_no_memory(reader);
    *known = (fb_known_symbol){symbol, string->count, NULL};
    return symbol;
}

fb_symbol fb_read_symbol(fb_reader *reader, const fb_json *string) {
    return read_symbol(reader, string, find_known(reader, string));
}

bool fb_read_spelled(fb_reader *reader, const fb_json *string, fb_spelling *wrong, const char *code, fb_symbol *out) {
    fb_known_symbol *known = find_known(reader, string);
    *out = read_symbol(reader, string, known);
    if (known->wrong == wrong) return true;
    if (!fb_check_spelling(reader, string, wrong, code)) return false;
    known->wrong = wrong;
    return true;
}

void fb_expect_name(fb_reader *reader, fb_name_list *list, fb_symbol name) {
    if (FB_GROW(list->names, list->count, list->capacity)) list->names[list->count++] = name;
    else fb_reader_no_memory(reader);
}

#define NAMES_AHEAD 4 /* of which those before the one that comes do not come, or came before */

fb_symbol fb_read_expected(fb_reader *reader, fb_name_list *list, const fb_json *name) {
    for (size_t i = list->seen; i < list->count && i < list->seen + NAMES_AHEAD; i++) {
        if (!is_text(reader->graph, list->names[i], name)) continue;
        list->seen = i + 1;
        return list->names[i];
    }
    return fb_read_symbol(reader, name);
}

fb_tensor fb_read_tensor_reference(fb_reader *reader, const fb_json *name) {
    fb_symbol symbol = fb_read_expected(reader, &reader->tensors, name);
    fb_tensor tensor = fb_graph_tensor_named(reader->graph, symbol);
    if (!tensor.id)
        fb_reader_error(reader, name, "unknown-tensor", "there is no tensor \"%s\"", fb_text(reader->graph, symbol));
    return tensor;
}

fb_symbol fb_stand_in_name(fb_reader *reader, uint32_t number) {
    char name[16];
    snprintf(name, sizeof name, "\n%u", number); /* no name may hold a line break */
    fb_symbol symbol = fb_intern(reader->graph, name);
    if (!symbol.id) fb_reader_no_memory(reader);
    return symbol;
}
