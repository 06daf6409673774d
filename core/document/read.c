/* Reading a document: its outer structure, and what all elements share. */
#include "core/document/read.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/map.h"
#include "core/document/document.h"

#define DEFAULT_MAX_BYTES ((size_t)1 << 30)
#define DEFAULT_MAX_NESTING 64
#define HIGHEST_MAX_NESTING 1000

/* A document has about one name for so many bytes. Room for many names would only be taken early. */
#define BYTES_OF_A_NAME 150
#define MOST_RESERVED ((size_t)1 << 14)

/* ---- errors ------------------------------------------------------------------------------------------------------------ */

/* ---- what all elements share ------------------------------------------------------------------------------------------- */

/* ---- the outer structure ----------------------------------------------------------------------------------------------- */

typedef enum outer_member { FORMAT, NAME, NODES, MODULES, TENSORS, METADATA, OUTER_COUNT } outer_member;
static const char *const outer_names[] = {"format", "name", "nodes", "modules", "tensors", "metadata"};

/* A recipe that waits for all tensors to be there. */
typedef struct late_recipe {
    const char *at; /* the tensor's element in the text */
    size_t index;
} late_recipe;

typedef struct outline {
    bool is_present[OUTER_COUNT];
    int list_count;           /* how many of nodes, modules and tensors are arrays */
    const char *late_modules; /* modules that came before the tensors: where their array begins */
    late_recipe *recipes;
    size_t recipe_count, recipe_capacity;
    fb_map keys;       /* symbols of the members so far */
    fb_buffer section; /* pointer of the member in hand */
} outline;

static bool goes_on(const fb_reader *reader) {
    return !reader->failed && reader->scan.status == FB_OK;
}

static void keep_recipe(fb_reader *reader, outline *outer, late_recipe recipe) {
    if (!FB_GROW(outer->recipes, outer->recipe_count, outer->recipe_capacity)) {
        fb_reader_no_memory(reader);
        return;
    }
    outer->recipes[outer->recipe_count++] = recipe;
}

#define STEPS_OF_AN_ELEMENT ((int64_t)FB_WORK_UNASKED / 256)

/* Asked for each element: whether the reading goes on. */
static bool is_wanted(fb_reader *reader) {
    if (fb_work_goes_on(&reader->work, STEPS_OF_AN_ELEMENT)) return true;
    reader->failed = true;
    return false;
}

/* Reads the elements of the array that follows the scanner. Of modules that must wait, only the syntax is checked. */
static void read_elements(fb_reader *reader, outline *outer, outer_member which, bool must_wait) {
    if (!fb_scan_enter(&reader->scan, '[')) {
        reader->element = fb_scan_value(&reader->scan);
        if (reader->element && !must_wait) fb_expect(reader, reader->element, FB_JSON_ARRAY);
        return;
    }
    if (!must_wait) outer->list_count++;
    while (fb_scan_more(&reader->scan, ']', &reader->index) && !reader->failed && is_wanted(reader)) {
        const char *at = reader->scan.at;
        reader->element = fb_scan_value(&reader->scan);
        if (!reader->element) return;
        if (must_wait) continue;
        if (which == NODES) fb_read_node(reader, reader->element);
        if (which == MODULES) fb_read_module(reader, reader->element);
        if (which == TENSORS && fb_read_tensor(reader, reader->element)) {
            keep_recipe(reader, outer, (late_recipe){at, reader->index});
        }
        if (reader->scan.status != FB_OK) return; /* too many nodes */
    }
    reader->index = SIZE_MAX;
}

static void read_recipes(fb_reader *reader, const outline *outer) {
    const char *resume = reader->scan.at;
    size_t depth = reader->scan.depth++;
    for (size_t i = 0; i < outer->recipe_count && goes_on(reader) && is_wanted(reader); i++) {
        const fb_json *recipe[1];
        reader->scan.at = outer->recipes[i].at;
        reader->index = outer->recipes[i].index;
        reader->element = fb_scan_value(&reader->scan);
        if (!reader->element) break; /* it was read before, so memory is out */
        fb_find_members(reader->element, (const uint8_t[]){FB_MEMBER_recipe}, 1, recipe);
        fb_value value = fb_read_recipe(reader, recipe[0]);
        /* Tensors are numbered from 1 in the order of the document. */
        if (goes_on(reader)) fb_tensor_row_at(reader->graph, (fb_tensor){(uint32_t)reader->index + 1})->recipe = value;
    }
    reader->scan.at = resume;
    reader->scan.depth = depth;
    reader->index = SIZE_MAX;
}

static void read_simple(fb_reader *reader, outer_member which) {
    const fb_json *value = reader->element = fb_scan_value(&reader->scan);
    if (!value) return;
    if (which == FORMAT && fb_expect(reader, value, FB_JSON_STRING) && !fb_json_is(value, FB_DOCUMENT_FORMAT)) {
        fb_reader_error(reader, value, "unknown-format", "the format is not \"" FB_DOCUMENT_FORMAT "\"");
    }
    if (which == NAME && fb_expect(reader, value, FB_JSON_STRING)) {
        fb_symbol name = fb_read_symbol(reader, value);
        if (name.id) fb_graph_set_name(reader->graph, name);
    }
    if (which == METADATA && fb_expect(reader, value, FB_JSON_OBJECT)) {
        fb_graph_set_metadata(reader->graph, fb_read_rest(reader, value, NULL, 0));
    }
    if (which == OUTER_COUNT) fb_reader_error(reader, value, "unknown-member", "the format has no such member here");
}

static void read_member(fb_reader *reader, outline *outer, outer_member which) {
    switch (which) {
    case NODES:
        reader->program = FB_MAIN_PROGRAM;
        read_elements(reader, outer, NODES, false);
        fb_end_program(reader);
        break;
    case MODULES:
        /* Read the main program's nodes first: they have the first ids. */
        reader->tensors_are_late =
            !outer->is_present[TENSORS] && outer->is_present[NODES] && !reader->modules_wait && !reader->errors->total;
        if (!outer->is_present[TENSORS] && !reader->tensors_are_late) outer->late_modules = reader->scan.at;
        read_elements(reader, outer, MODULES, outer->late_modules != NULL);
        break;
    case TENSORS:
        read_elements(reader, outer, TENSORS, false);
        if (reader->tensors_are_late) reader->has_all_tensors = fb_graph_find_tensors(reader->graph, &reader->work);
        if (goes_on(reader)) read_recipes(reader, outer);
        break;
    default: read_simple(reader, which);
    }
    if (which < OUTER_COUNT) outer->is_present[which] = true;
}

/* Reads a member's name: one of the outer members, or OUTER_COUNT for a strange one. False on failure. */
static bool read_key(fb_reader *reader, outline *outer, outer_member *which) {
    reader->section = "";
    reader->index = SIZE_MAX;
    const fb_json *key = fb_scan_key(&reader->scan);
    if (!key) return false;
    outer->section.size = 0;
    fb_buffer_pointer_token(&outer->section, key->text, key->count);
    const char *section = fb_buffer_text(&outer->section);
    fb_symbol symbol = fb_read_symbol(reader, key);
    if (!section || !symbol.id) {
        fb_reader_no_memory(reader);
        return false;
    }
    reader->section = section;
    if (fb_map_get(&outer->keys, symbol.id)) {
        reader->scan.count = 0; /* the section is the whole pointer */
        fb_scan_fail(&reader->scan, FB_SYNTAX, "duplicate-member", "the member is there twice",
                     reader->scan.start + key->offset);
        return false;
    }
    if (!fb_map_put(&outer->keys, symbol.id, 1)) fb_reader_no_memory(reader);
    *which = 0;
    while (*which < OUTER_COUNT && !fb_json_is(key, outer_names[*which])) ++*which;
    return true;
}

static void report_missing_members(fb_reader *reader, const outline *outer) {
    static const outer_member required[] = {FORMAT, NODES, MODULES, TENSORS};
    reader->section = "";
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        if (outer->is_present[required[i]]) continue;
        fb_reader_error(reader, NULL, "missing-member", "the member \"%s\" is missing", outer_names[required[i]]);
    }
}

static void read_outline(fb_reader *reader, outline *outer) {
    if (!fb_scan_enter(&reader->scan, '{')) {
        reader->element = fb_scan_value(&reader->scan);
        if (reader->element && fb_scan_end(&reader->scan)) fb_expect(reader, reader->element, FB_JSON_OBJECT);
        return;
    }
    size_t index = SIZE_MAX;
    outer_member which;
    while (fb_scan_more(&reader->scan, '}', &index) && !reader->failed && read_key(reader, outer, &which)) {
        read_member(reader, outer, which);
        reader->section = reader->scan.status == FB_OK ? "" : reader->section;
    }
    if (!goes_on(reader) || !fb_scan_end(&reader->scan)) return;
    if (outer->late_modules) {
        reader->section = "/modules";
        reader->scan.at = outer->late_modules;
        reader->scan.depth = 1;
        read_elements(reader, outer, MODULES, false);
    }
    if (goes_on(reader)) report_missing_members(reader, outer);
}

/* ---- the whole --------------------------------------------------------------------------------------------------------- */

/* Gives every tensor whose document did not say so the default: floating parameters require a gradient. */
static void set_default_requires_grad(fb_reader *reader, fb_work *work) {
    fb_graph *graph = reader->graph;
    const char *is_given = reader->requires_grad_given.data;
    for (fb_module m = fb_first_module(graph); m.id; m = fb_module_at(graph, m)->next) {
        const fb_value_row *map = fb_value_at(graph, fb_module_at(graph, m)->parameters);
        for (uint32_t i = 1; i < map->count && fb_work_goes_on(work, 4); i += 2) {
            fb_tensor tensor = fb_value_tensor(graph, map->items[i]);
            if (!tensor.id || is_given[tensor.id - 1]) continue;
            fb_tensor_row *row = fb_tensor_row_at(graph, tensor);
            row->requires_grad = fb_dtype_is_floating((fb_dtype)row->dtype);
        }
    }
}

static fb_status report_failure(fb_reader *reader) {
    fb_scan *scan = &reader->scan;
    fb_errors *errors = reader->errors;
    errors->count = errors->total = 0;
    fb_buffer pointer = {0};
    fb_buffer_string(&pointer, reader->section);
    if (reader->index != SIZE_MAX) fb_buffer_printf(&pointer, "/%zu", reader->index);
    fb_scan_failure_pointer(scan, &pointer);
    size_t line, column;
    fb_scan_position(scan, scan->failed_at, &line, &column);
    fb_error *error = fb_errors_add(errors, scan->code, fb_buffer_text(&pointer), "%s (line %zu, column %zu, offset %zu)",
                                    scan->message, line, column, (size_t)(scan->failed_at - scan->start));
    if (error) error->status = scan->status;
    fb_buffer_free(&pointer);
    return scan->status;
}

static fb_status report_no_memory(fb_errors *errors) {
    errors->count = errors->total = 0;
    fb_error *error = fb_errors_add(errors, NULL, NULL, "not used");
    if (error) {
        error->status = FB_OK;
        fb_fail_memory(error);
    }
    return FB_NO_MEMORY;
}

static fb_status report_stopped(fb_errors *errors, const fb_error *stopped) {
    errors->count = errors->total = 0;
    fb_error *error = fb_errors_add(errors, stopped->code, "", "%s", stopped->message);
    if (error) error->status = stopped->status;
    return stopped->status;
}

static fb_status finish(fb_reader *reader, bool has_lists) {
    fb_errors *errors = reader->errors;
    fb_work *work = &reader->work;
    if (work->stopped.status) return report_stopped(errors, &work->stopped);
    bool is_out = reader->failed || fb_graph_out_of_memory(reader->graph) || reader->scan.status == FB_NO_MEMORY;
    if (is_out) return report_no_memory(errors);
    if (reader->scan.status != FB_OK) return report_failure(reader);
    if (has_lists && reader->has_all_tensors) {
        set_default_requires_grad(reader, work);
        fb_graph_resolve(reader->graph, work);
        fb_verify(reader->graph, work, errors);
        if (work->stopped.status) return report_stopped(errors, &work->stopped);
    }
    if (errors->out_of_memory || fb_graph_out_of_memory(reader->graph)) return report_no_memory(errors);
    return errors->total || !reader->has_all_tensors ? FB_INVALID : FB_OK;
}

static void add_prefix(fb_errors *errors, const char *prefix) {
    size_t length = strlen(prefix);
    if (length == 0 || length >= FB_POINTER_MAX) return;
    for (size_t i = 0; i < errors->count; i++) {
        fb_error old = errors->items[i];
        errors->items[i].status = FB_OK;
        char pointer[2 * FB_POINTER_MAX];
        snprintf(pointer, sizeof pointer, "%s%s", prefix, old.pointer);
        fb_fail(&errors->items[i], old.status, old.code, pointer, "%s", old.message);
        memcpy(errors->items[i].node, old.node, sizeof old.node);
    }
}

/* Modules that come before the tensors are read before them, unless *modules_wait. Then faults are found in another order than
 * that in which they are reported: if there are any, sets it, and all must be read again. */
static fb_status read_document(const char *bytes, size_t size, const fb_document_limits *limits, bool *modules_wait,
                               fb_graph **out, fb_errors *errors) {
    size_t nesting = limits->max_nesting ? limits->max_nesting : DEFAULT_MAX_NESTING;
    fb_reader reader = {.graph = fb_graph_new(),
                        .errors = errors,
                        .max_nodes = limits->max_nodes ? limits->max_nodes : FB_MAX_NODES_DEFAULT,
                        .modules_wait = *modules_wait,
                        .has_all_tensors = true,
                        .work = {.watch = limits->watch},
                        .section = "",
                        .index = SIZE_MAX};
    if (!reader.graph) return report_no_memory(errors);
    fb_scan_init(&reader.scan, bytes, size, nesting < HIGHEST_MAX_NESTING ? nesting : HIGHEST_MAX_NESTING);
    fb_reader_know_members(&reader);
    fb_graph_reserve(reader.graph, size / BYTES_OF_A_NAME < MOST_RESERVED ? size / BYTES_OF_A_NAME : MOST_RESERVED);
    reader.scan.work = &reader.work;
    outline outer = {0};
    read_outline(&reader, &outer);
    fb_status status = finish(&reader, outer.list_count == 3);
    *modules_wait = reader.tensors_are_late && (status == FB_SYNTAX || status == FB_INVALID || status == FB_TOO_LARGE);
    if (status == FB_OK) *out = reader.graph;
    else fb_graph_free(reader.graph);
    free(outer.recipes);
    fb_map_free(&outer.keys);
    fb_buffer_free(&outer.section);
    fb_scan_free(&reader.scan);
    free(reader.items);
    free(reader.modules.names);
    free(reader.tensors.names);
    free(reader.unknown_nodes);
    fb_buffer_free(&reader.text);
    fb_buffer_free(&reader.requires_grad_given);
    return status;
}

fb_status fb_document_read(const char *bytes, size_t size, const fb_document_limits *limits, const char *pointer_prefix,
                           fb_graph **out, fb_errors *errors) {
    fb_document_limits given = limits ? *limits : (fb_document_limits){0};
    size_t max_bytes = given.max_bytes ? given.max_bytes : DEFAULT_MAX_BYTES;
    if (size > max_bytes || size > FB_SCAN_MAX_BYTES) {
        fb_error *error =
            fb_errors_add(errors, "document-too-large", pointer_prefix, "the document has more than %zu bytes", max_bytes);
        if (error) error->status = FB_TOO_LARGE;
        return FB_TOO_LARGE;
    }
    bool modules_wait = false;
    fb_status status = read_document(bytes, size, &given, &modules_wait, out, errors);
    if (modules_wait) {
        errors->count = errors->total = 0;
        status = read_document(bytes, size, &given, &modules_wait, out, errors);
    }
    add_prefix(errors, pointer_prefix);
    return status;
}
