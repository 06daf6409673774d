#include "core/diff/rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/document/document.h"

static bool grow(fb_rows *rows) {
    if (rows->count < rows->capacity) return true;
    size_t capacity = rows->capacity ? rows->capacity * 2 : 64;
    fb_row *items = realloc(rows->items, capacity * sizeof *items);
    if (!items) return false;
    rows->items = items;
    rows->capacity = capacity;
    return true;
}

static uint64_t key_of(const char *name) {
    return fb_hash_text(name, 0);
}

static void link_before(fb_rows *rows, fb_row_id row, fb_row_id before) {
    fb_row_id previous = before.id ? rows->items[before.id].previous : rows->last;
    rows->items[row.id].previous = previous;
    rows->items[row.id].next = before;
    *(previous.id ? &rows->items[previous.id].next : &rows->first) = row;
    *(before.id ? &rows->items[before.id].previous : &rows->last) = row;
}

static void unlink_row(fb_rows *rows, fb_row_id row) {
    fb_row_id previous = rows->items[row.id].previous, next = rows->items[row.id].next;
    *(previous.id ? &rows->items[previous.id].next : &rows->first) = next;
    *(next.id ? &rows->items[next.id].previous : &rows->last) = previous;
}

/* Takes name and text as they are. */
static fb_row_id add(fb_rows *rows, const char *name, fb_span text, fb_row_id before, bool is_new) {
    fb_row_id none = {0};
    if (!name || !text.text || !grow(rows)) return none;
    if (!rows->count) rows->count = 1;
    fb_row_id row = {(uint32_t)rows->count};
    if (!fb_map_add(&rows->index, key_of(name), row.id)) return none;
    rows->items[rows->count++] = (fb_row){.name = name, .text = text, .is_new = is_new};
    link_before(rows, row, before);
    return row;
}

static fb_span keep(fb_rows *rows, fb_span text) {
    return (fb_span){fb_arena_text(&rows->arena, text.text, text.size), text.size};
}

static bool add_written(fb_rows *rows, const char *name, fb_buffer *text) {
    bool ok = !text->failed && add(rows, name, keep(rows, (fb_span){text->data, text->size}), (fb_row_id){0}, false).id;
    text->size = 0;
    return ok;
}

static void write_graph_row(const fb_graph *graph, fb_buffer *out) {
    fb_value metadata = fb_graph_metadata(graph);
    fb_buffer_string(out, "{\"name\":");
    fb_buffer_json_string(out, fb_graph_name(graph), strlen(fb_graph_name(graph)));
    fb_buffer_string(out, ",\"metadata\":");
    if (metadata.id) fb_value_write(graph, metadata, out);
    else fb_buffer_string(out, "{}");
    fb_buffer_char(out, '}');
}

#define STEPS_OF_A_ROW ((int64_t)FB_WORK_UNASKED / 128)

static bool goes_on(const fb_rows *rows) {
    return !rows->work || fb_work_goes_on(rows->work, STEPS_OF_A_ROW);
}

/* Names are the graph's own: it outlives the rows. */
bool fb_rows_read(fb_rows *rows, const fb_graph *graph, fb_document_table table) {
    fb_buffer text = {0};
    bool ok = true;
    if (table == FB_NODE_TABLE) {
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id && goes_on(rows); n = fb_next_node(graph, n)) {
            fb_node_write(graph, n, &text);
            ok = add_written(rows, fb_node_name(graph, n), &text);
        }
    } else if (table == FB_MODULE_TABLE) {
        for (fb_module m = fb_first_module(graph); ok && m.id && goes_on(rows); m = fb_module_at(graph, m)->next) {
            fb_module_write(graph, m, &text);
            ok = add_written(rows, fb_text(graph, fb_module_at(graph, m)->path), &text);
        }
    } else if (table == FB_TENSOR_TABLE) {
        for (fb_tensor t = fb_first_tensor(graph); ok && t.id && goes_on(rows); t = fb_tensor_at(graph, t)->next) {
            fb_tensor_write(graph, t, &text);
            ok = add_written(rows, fb_tensor_name(graph, t), &text);
        }
    } else {
        write_graph_row(graph, &text);
        ok = add_written(rows, "", &text);
    }
    fb_buffer_free(&text);
    return ok;
}

void fb_rows_free(fb_rows *rows) {
    free(rows->items);
    fb_map_free(&rows->index);
    fb_arena_free(&rows->arena);
    *rows = (fb_rows){0};
}

fb_row_id fb_rows_find(const fb_rows *rows, const char *name) {
    uint32_t cursor = 0, id;
    while ((id = fb_map_next(&rows->index, key_of(name), &cursor))) {
        if (!rows->items[id].is_out && strcmp(rows->items[id].name, name) == 0) return (fb_row_id){id};
    }
    return (fb_row_id){0};
}

fb_row_id fb_rows_insert(fb_rows *rows, const char *name, fb_span text, fb_row_id before) {
    return add(rows, fb_arena_text(&rows->arena, name, strlen(name)), keep(rows, text), before, true);
}

void fb_rows_take_out(fb_rows *rows, fb_row_id row) {
    unlink_row(rows, row);
    rows->items[row.id].is_out = true;
}

void fb_rows_move(fb_rows *rows, fb_row_id row, fb_row_id before) {
    if (row.id == before.id) return;
    unlink_row(rows, row);
    link_before(rows, row, before);
}

bool fb_rows_set(fb_rows *rows, fb_row_id row, fb_span text) {
    fb_span kept = keep(rows, text);
    if (kept.text) rows->items[row.id].text = kept;
    return kept.text != NULL;
}

/* Appends the rows as a JSON array. */
static void rows_write(const fb_rows *rows, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (fb_row_id row = rows->first; row.id; row = rows->items[row.id].next) {
        if (row.id != rows->first.id) fb_buffer_char(out, ',');
        fb_buffer_append(out, rows->items[row.id].text.text, rows->items[row.id].text.size);
    }
    fb_buffer_char(out, ']');
}

/* ---- back to a graph --------------------------------------------------------------------------------------------------- */

static void write_document(const fb_rows tables[FB_TABLES], fb_buffer *out) {
    const fb_rows *graph = &tables[FB_GRAPH_TABLE];
    fb_span members = graph->first.id ? graph->items[graph->first.id].text : fb_span_of("{}");
    fb_buffer_string(out, "{\"format\":\"" FB_DOCUMENT_FORMAT "\",\"nodes\":");
    rows_write(&tables[FB_NODE_TABLE], out);
    fb_buffer_string(out, ",\"modules\":");
    rows_write(&tables[FB_MODULE_TABLE], out);
    fb_buffer_string(out, ",\"tensors\":");
    rows_write(&tables[FB_TENSOR_TABLE], out);
    if (members.size > 2) fb_buffer_char(out, ',');
    fb_buffer_append(out, members.text + 1, members.size - 1);
}

fb_status fb_rows_graph(const fb_rows tables[FB_TABLES], const fb_watch *watch, fb_graph **out, fb_error *error) {
    /* No lower than any document's own: a service's limits were kept when its parts came. */
    const fb_document_limits limits = {
        .max_bytes = (size_t)4 << 30, .max_nodes = UINT32_MAX, .max_nesting = 1000, .watch = watch};
    fb_buffer document = {0};
    fb_errors errors = {.limit = 1};
    write_document(tables, &document);
    fb_status status =
        document.failed ? FB_NO_MEMORY : fb_document_read(document.data, document.size, &limits, "", out, &errors);
    const fb_error *first = errors.count ? &errors.items[0] : NULL;
    if (status == FB_NO_MEMORY) fb_fail_memory(error);
    else if (status) {
        fb_fail(error, status, first ? first->code : "", first ? first->pointer : "", "%s", first ? first->message : "");
        if (first && first->node[0]) fb_error_set_node(error, first->node);
    }
    fb_errors_free(&errors);
    fb_buffer_free(&document);
    return status;
}
