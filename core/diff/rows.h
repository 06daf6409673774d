/* One table of a document as an ordered list of named rows, each a canonical text: what edits are applied to.
 *
 * Most rows are compared once and never changed. So the text of a graph's row is made when it is first asked for. */
#ifndef FB_DIFF_ROWS_H
#define FB_DIFF_ROWS_H

#include "core/base/arena.h"
#include "core/base/buffer.h"
#include "core/base/map.h"
#include "core/base/work.h"
#include "core/diff/diff.h"

/* 1-based; 0 is not a row. */
typedef struct fb_row_id {
    uint32_t id;
} fb_row_id;

typedef struct fb_row {
    const char *name;
    fb_span text; /* absent: it is as the graph has it */
    uint32_t id;  /* of that node, module or tensor of the graph; 0 = it is of none */
    fb_row_id previous, next;
    bool is_out; /* taken out of the list */
    bool is_new; /* put in after fb_rows_read */
} fb_row;

typedef struct fb_rows {
    fb_row *items; /* [0] is not used; pointers into it last until the next insertion */
    size_t count, capacity;
    fb_row_id first, last;
    const fb_graph *graph;
    fb_document_table table;
    fb_row_id *row_of; /* by id of the graph */
    fb_map others;     /* hash of the name -> row that is of no such id */
    fb_arena arena;
    fb_work *work; /* asked while rows are read; may be NULL */
} fb_rows;

/* Fills an empty list with the rows of a graph's table; the graph itself is one row called "", with its name and metadata. The
 * graph must not change while the list lives. False when memory is out; freed with fb_rows_free in any case. When the list's
 * work is stopped it has the first rows alone. */
bool fb_rows_read(fb_rows *rows, const fb_graph *graph, fb_document_table table);
void fb_rows_free(fb_rows *rows);

/* Appends a row's text. */
void fb_rows_write(const fb_rows *rows, fb_row_id row, fb_buffer *out);
/* A row's text, which the list keeps; absent when memory is out. */
fb_span fb_rows_text(fb_rows *rows, fb_row_id row);
/* The row of that name that is in the list, or none. */
fb_row_id fb_rows_find(const fb_rows *rows, const char *name);
/* Puts a new row before `before` (none = at the end). `name` and `text` are copied. None when memory is out. */
fb_row_id fb_rows_insert(fb_rows *rows, const char *name, fb_span text, fb_row_id before);
void fb_rows_take_out(fb_rows *rows, fb_row_id row);
/* Puts a row that is in the list before another one of the list. */
void fb_rows_move(fb_rows *rows, fb_row_id row, fb_row_id before);
/* Gives a row another text, which is copied; false when memory is out. */
bool fb_rows_set(fb_rows *rows, fb_row_id row, fb_span text);

/* The graph that four tables make, read and checked as any document. FB_INVALID and its first error when it breaks a rule;
 * FB_NO_MEMORY; what the watch, which may be NULL, stops it with. */
fb_status fb_rows_graph(const fb_rows tables[FB_TABLES], const fb_watch *watch, fb_graph **out, fb_error *error);

#endif
