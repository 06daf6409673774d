/* Output to a terminal: text without control characters, colours, tables. */
#ifndef FB_CLI_SCREEN_H
#define FB_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Names and notes come from documents and from other people: a control character in them must not reach a terminal. Each is
 * written as "?". */
void fb_screen_text(FILE *out, const char *text);

/* The same of JSON or code, whose lines stay lines. */
void fb_screen_lines(FILE *out, const char *text);

/* One paragraph, in which a control character is written as "?": on a terminal filled to its width at words. Each line begins
 * with `indent`; ends with a newline. */
void fb_screen_message(FILE *out, const char *indent, const char *text);

typedef enum fb_colour { FB_PLAIN = 0, FB_BOLD = 1, FB_RED = 31, FB_GREEN = 32, FB_YELLOW = 33, FB_CYAN = 36 } fb_colour;

/* On a terminal, unless TERM is dumb: a line can be written over. */
bool fb_screen_can_move(FILE *out);
/* The same, unless NO_COLOR is set. */
bool fb_screen_has_colour(FILE *out);

/* Columns of a terminal; 0 for anything else, and when it does not say: any width will do. */
int fb_screen_width(FILE *out);

/* Paragraphs, filled to the width at words; a line that begins with a space is kept as it is. */
void fb_screen_paragraphs(FILE *out, const char *text, int width);

typedef struct fb_short_text {
    char text[64];
} fb_short_text;

/* "3 min ago", "in 5 days", or the date when that is more than a month away; of a time of RFC 3339. Anything else stays as it
 * is. */
fb_short_text fb_relative_time(const char *time);
/* The same, and the time itself: "3 min ago (2026-11-23 02:26:09 UTC)"; "" stays. */
fb_short_text fb_told_time(const char *time);
/* "1.2 MB" */
fb_short_text fb_readable_size(uint64_t bytes);

/* A table under construction: cells are given row by row, their texts are copied. */
typedef struct fb_screen_table {
    const char *const *headings; /* NULL for none; a heading that begins with ">" is of a column of numbers */
    size_t columns;
    char **cells;
    size_t count, capacity;
    bool keeps_first; /* the cells of the first column are not broken: they are to be copied */
    bool failed;      /* memory ran out: nothing will be printed */
} fb_screen_table;

void fb_table_cell(fb_screen_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints and frees it; false when memory is out. The first column is bold when `has_colour`. On a terminal that is too narrow
 * ids are shortened, then cells are broken at spaces, and when that does not do, each row becomes a list of its cells. */
bool fb_table_print(fb_screen_table *table, bool has_colour, FILE *out);

#endif
