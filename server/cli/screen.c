#include "server/cli/screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool fb_screen_can_move(FILE *out) {
    const char *terminal = getenv("TERM");
    return isatty(fileno(out)) && !(terminal && strcmp(terminal, "dumb") == 0);
}

bool fb_screen_has_colour(FILE *out) {
    const char *off = getenv("NO_COLOR");
    return fb_screen_can_move(out) && !(off && *off);
}

/* ---- text --------------------------------------------------------------------------------------------------------------- */

/* The size of the UTF-8 control character that starts here: C0, DEL, or C1 (U+0080 to U+009F); else 0. */
static size_t control_size(const char *text) {
    unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first < 0x20 || first == 0x7f) return 1;
    return first == 0xc2 && second >= 0x80 && second < 0xa0 ? 2 : 0;
}

void fb_screen_text(FILE *out, const char *text) {
    while (*text) {
        size_t control = control_size(text);
        fputc(control ? '?' : *text, out);
        text += control ? control : 1;
    }
}

/* Characters as a person counts them, roughly: no combining marks, no wide ones. */
static int width_of(const char *text) {
    int width = 0;
    while (*text) {
        size_t control = control_size(text);
        width += control || ((unsigned char)*text & 0xc0) != 0x80;
        text += control ? control : 1;
    }
    return width;
}

/* ---- tables ------------------------------------------------------------------------------------------------------------- */

static char *format_text(const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text) vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    return text;
}

void fb_table_cell(fb_screen_table *table, const char *format, ...) {
    if (table->failed) return;
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? table->capacity * 2 : 64;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        table->failed = !cells;
        if (!cells) return;
        table->cells = cells;
        table->capacity = capacity;
    }
    va_list args;
    va_start(args, format);
    char *text = format_text(format, args);
    va_end(args);
    table->failed = !text;
    if (text) table->cells[table->count++] = text;
}

static bool is_number_column(const fb_screen_table *table, size_t column) {
    return table->headings && table->headings[column][0] == '>';
}

static int column_width(const fb_screen_table *table, size_t column) {
    int widest = table->headings ? width_of(table->headings[column]) - is_number_column(table, column) : 0;
    for (size_t i = column; i < table->count; i += table->columns) {
        int width = width_of(table->cells[i]);
        if (width > widest) widest = width;
    }
    return widest;
}

static void print_cell(const fb_screen_table *table, size_t column, const char *text, int width, int colour, FILE *out) {
    bool is_last = column + 1 == table->columns, is_right = is_number_column(table, column);
    int space = width - width_of(text);
    if (is_right) fprintf(out, "%*s", space, "");
    if (colour) fprintf(out, "\033[%dm", colour);
    fb_screen_text(out, text);
    if (colour) fputs("\033[0m", out);
    if (!is_last) fprintf(out, "%*s  ", is_right ? 0 : space, "");
    else fputc('\n', out);
}

static void print_rows(const fb_screen_table *table, const int *widths, bool has_colour, FILE *out) {
    for (size_t i = 0; table->headings && i < table->columns; i++)
        print_cell(table, i, table->headings[i] + is_number_column(table, i), widths[i], has_colour ? FB_CYAN : FB_PLAIN, out);
    for (size_t i = 0; i < table->count; i++) {
        size_t column = i % table->columns;
        print_cell(table, column, table->cells[i], widths[column], has_colour && !column ? FB_BOLD : FB_PLAIN, out);
    }
}

bool fb_table_print(fb_screen_table *table, bool has_colour, FILE *out) {
    int *widths = calloc(table->columns + 1, sizeof *widths);
    bool is_whole = widths && !table->failed;
    if (is_whole) {
        for (size_t i = 0; i < table->columns; i++) widths[i] = column_width(table, i);
        print_rows(table, widths, has_colour, out);
    }
    free(widths);
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    *table = (fb_screen_table){0};
    return is_whole;
}
