#include "core/diff/rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/document/document.h"

static bool grow(fb_rows *rows) {
    return FB_GROW(rows->items, rows->count, rows->capacity);
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
static fb_row_id add(fb_rows *rows, fb_row made, fb_row_id before) {
    if (!made.name || !grow(rows)) return (fb_row_id){0};
    if (!rows->count) rows->count = 1;
    fb_row_id row = {(uint32_t)rows->count};
    if (made.id) rows->row_of[made.id] = row;
    else if (!made.text.text || !fb_map_add(&rows->others, key_of(made.name), row.id)) return (fb_row_id){0};
    rows->items[rows->count++] = made;
    link_before(rows, row, before);
    return row;
}

/* Absent when the text is, or when memory is out. */
static fb_span keep(fb_rows *rows, fb_span text) {
    const char *kept = text.text ? fb_arena_text(&rows->arena, text.text, text.size) : NULL;
    return kept ? (fb_span){kept, text.size} : (fb_span){0};
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

void fb_rows_write(const fb_rows *rows, fb_row_id row, fb_buffer *out) {
    const fb_row *of = &rows->items[row.id];
    if (of->text.text) fb_buffer_append(out, of->text.text, of->text.size);
    else if (rows->table == FB_NODE_TABLE) fb_node_write(rows->graph, (fb_node){of->id}, out);
    else if (rows->table == FB_MODULE_TABLE) fb_module_write(rows->graph, (fb_module){of->id}, out);
    else fb_tensor_write(rows->graph, (fb_tensor){of->id}, out);
}

fb_span fb_rows_text(fb_rows *rows, fb_row_id row) {
    fb_span *text = &rows->items[row.id].text;
    if (text->text) return *text;
    fb_buffer written = {0};
    fb_rows_write(rows, row, &written);
    if (!written.failed) *text = keep(rows, (fb_span){written.data, written.size});
    fb_buffer_free(&written);
    return *text;
}

#define STEPS_OF_A_ROW ((int64_t)FB_WORK_UNASKED / 128)

static bool goes_on(const fb_rows *rows) {
    return !rows->work || fb_work_goes_on(rows->work, STEPS_OF_A_ROW);
}

static bool add_graph_row(fb_rows *rows) {
    fb_buffer text = {0};
    write_graph_row(rows->graph, &text);
    bool ok =
        !text.failed && add(rows, (fb_row){.name = "", .text = keep(rows, (fb_span){text.data, text.size})}, (fb_row_id){0}).id;
    fb_buffer_free(&text);
    return ok;
}

/* The name is the graph's own: it outlives the rows. */
static bool add_row(fb_rows *rows, uint32_t id, const char *name) {
    return add(rows, (fb_row){.name = name, .id = id}, (fb_row_id){0}).id != 0;
}

static uint32_t limit_of(const fb_graph *graph, fb_document_table table) {
    const uint32_t limits[FB_TABLES] = {[FB_GRAPH_TABLE] = 1,
                                        [FB_NODE_TABLE] = fb_node_limit(graph),
                                        [FB_MODULE_TABLE] = fb_module_limit(graph),
                                        [FB_TENSOR_TABLE] = fb_tensor_limit(graph)};
    return limits[table];
}

bool fb_rows_read(fb_rows *rows, const fb_graph *graph, fb_document_table table) {
    bool ok = true;
    rows->graph = graph;
    rows->table = table;
    rows->row_of = calloc(limit_of(graph, table), sizeof *rows->row_of);
    if (!rows->row_of) return false;
    if (table == FB_NODE_TABLE) {
        for (fb_node n = fb_first_node(graph, FB_MAIN_PROGRAM); ok && n.id && goes_on(rows); n = fb_next_node(graph, n))
            ok = add_row(rows, n.id, fb_node_name(graph, n));
    } else if (table == FB_MODULE_TABLE) {
        for (fb_module m = fb_first_module(graph); ok && m.id && goes_on(rows); m = fb_module_at(graph, m)->next)
            ok = add_row(rows, m.id, fb_text(graph, fb_module_at(graph, m)->path));
    } else if (table == FB_TENSOR_TABLE) {
        for (fb_tensor t = fb_first_tensor(graph); ok && t.id && goes_on(rows); t = fb_tensor_at(graph, t)->next)
            ok = add_row(rows, t.id, fb_tensor_name(graph, t));
    } else {
        ok = add_graph_row(rows);
    }
    return ok;
}

void fb_rows_free(fb_rows *rows) {
    free(rows->items);
    free(rows->row_of);
    fb_map_free(&rows->others);
    fb_arena_free(&rows->arena);
    *rows = (fb_rows){0};
}

static uint32_t id_of(const fb_rows *rows, const char *name) {
    switch (rows->table) {
    case FB_NODE_TABLE: return fb_node_find(rows->graph, FB_MAIN_PROGRAM, name).id;
    case FB_MODULE_TABLE: return fb_module_find(rows->graph, name).id;
    case FB_TENSOR_TABLE: return fb_tensor_find(rows->graph, name).id;
    default: return 0;
    }
}

fb_row_id fb_rows_find(const fb_rows *rows, const char *name) {
    uint32_t cursor = 0, id = id_of(rows, name), row = id ? rows->row_of[id].id : 0;
    if (row && !rows->items[row].is_out) return (fb_row_id){row};
    while ((row = fb_map_next(&rows->others, key_of(name), &cursor))) {
        if (!rows->items[row].is_out && strcmp(rows->items[row].name, name) == 0) return (fb_row_id){row};
    }
    return (fb_row_id){0};
}

fb_row_id fb_rows_insert(fb_rows *rows, const char *name, fb_span text, fb_row_id before) {
    fb_row made = {.name = fb_arena_text(&rows->arena, name, strlen(name)), .text = keep(rows, text), .is_new = true};
    return add(rows, made, before);
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

/* ---- back to a graph --------------------------------------------------------------------------------------------------- */

/* Appends the rows as a JSON array. */
static void write_rows(const fb_rows *rows, fb_work *work, fb_buffer *out) {
    fb_buffer_char(out, '[');
    for (fb_row_id row = rows->first; row.id && fb_work_goes_on(work, 16); row = rows->items[row.id].next) {
        if (row.id != rows->first.id) fb_buffer_char(out, ',');
        fb_rows_write(rows, row, out);
    }
    fb_buffer_char(out, ']');
}

static void write_document(const fb_rows tables[FB_TABLES], fb_work *work, fb_buffer *out) {
    const fb_rows *graph = &tables[FB_GRAPH_TABLE];
    fb_span members = graph->first.id ? graph->items[graph->first.id].text : fb_span_of("{}");
    fb_buffer_string(out, "{\"format\":\"" FB_DOCUMENT_FORMAT "\",\"nodes\":");
    write_rows(&tables[FB_NODE_TABLE], work, out);
    fb_buffer_string(out, ",\"modules\":");
    write_rows(&tables[FB_MODULE_TABLE], work, out);
    fb_buffer_string(out, ",\"tensors\":");
    write_rows(&tables[FB_TENSOR_TABLE], work, out);
    if (members.size > 2) fb_buffer_char(out, ',');
    fb_buffer_append(out, members.text + 1, members.size - 1);
}

fb_status fb_rows_graph(const fb_rows tables[FB_TABLES], const fb_watch *watch, fb_graph **out, fb_error *error) {
    /* No lower than any document's own: a service's limits were kept when its parts came. */
    const fb_document_limits limits = {
        .max_bytes = (size_t)4 << 30, .max_nodes = UINT32_MAX, .max_nesting = 1000, .watch = watch};
    fb_buffer document = {0};
    fb_errors errors = {.limit = 1};
    fb_work work = {.watch = watch};
    write_document(tables, &work, &document);
    if (work.stopped.status) {
        fb_buffer_free(&document);
        return fb_work_status(&work, error);
    }
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
