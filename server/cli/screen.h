/* What goes to a terminal: text without control characters, colours, tables. */
#ifndef FB_CLI_SCREEN_H
#define FB_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Names and notes come from documents and from other people: a control character in them must not reach a terminal. Each is
 * written as "?". */
void fb_screen_text(FILE *out, const char *text);

typedef enum fb_colour { FB_PLAIN = 0, FB_BOLD = 1, FB_RED = 31, FB_GREEN = 32, FB_YELLOW = 33, FB_CYAN = 36 } fb_colour;

/* On a terminal, unless TERM is dumb: a line can be written over. */
bool fb_screen_can_move(FILE *out);
/* The same, unless NO_COLOR is set. */
bool fb_screen_has_colour(FILE *out);

/* A table under construction: cells are given row by row, their texts are copied. */
typedef struct fb_screen_table {
    const char *const *headings; /* NULL for none; a heading that begins with ">" is of a column of numbers */
    size_t columns;
    char **cells;
    size_t count, capacity;
    bool failed; /* memory ran out: nothing will be printed */
} fb_screen_table;

void fb_table_cell(fb_screen_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees it; false when memory is out. The first column is bold when `has_colour`. */
bool fb_table_print(fb_screen_table *table, bool has_colour, FILE *out);

#endif
