#include "server/cli/screen.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/base/grow.h"
#include "core/base/timestamp.h"

bool fb_screen_can_move(FILE *out) {
    const char *terminal = getenv("TERM");
    return isatty(fileno(out)) && !(terminal && strcmp(terminal, "dumb") == 0);
}

bool fb_screen_has_colour(FILE *out) {
    const char *off = getenv("NO_COLOR");
    return fb_screen_can_move(out) && !(off && *off);
}

int fb_screen_width(FILE *out) {
    struct winsize size;
    return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

/* ---- text --------------------------------------------------------------------------------------------------------------- */

/* The size of the UTF-8 control character that starts here: C0, DEL, or C1 (U+0080 to U+009F); else 0. */
static size_t control_size(const char *text) {
    unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first < 0x20 || first == 0x7f) return 1;
    return first == 0xc2 && second >= 0x80 && second < 0xa0 ? 2 : 0;
}

static void write_text(FILE *out, const char *text, bool keeps_lines) {
    while (*text) {
        size_t control = keeps_lines && *text == '\n' ? 0 : control_size(text);
        fputc(control ? '?' : *text, out);
        text += control ? control : 1;
    }
}

void fb_screen_text(FILE *out, const char *text) {
    write_text(out, text, false);
}

void fb_screen_lines(FILE *out, const char *text) {
    write_text(out, text, true);
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
    table->failed = !FB_GROW(table->cells, table->count, table->capacity);
    if (table->failed) return;
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

static int column_width(const fb_screen_table *table, size_t column, int (*measure)(const char *text)) {
    int widest = table->headings ? width_of(table->headings[column]) - is_number_column(table, column) : 0;
    for (size_t i = column; i < table->count; i += table->columns) {
        int width = measure(table->cells[i]);
        if (width > widest) widest = width;
    }
    return widest;
}

static int widest_word(const char *text) {
    int widest = 0, width = 0;
    for (; *text; text++) {
        width = *text == ' ' ? 0 : width + (((unsigned char)*text & 0xc0) != 0x80);
        if (width > widest) widest = width;
    }
    return widest;
}

static int total_of(const int *widths, size_t count) {
    int total = 2 * (int)count - 2;
    for (size_t i = 0; i < count; i++) total += widths[i];
    return total;
}

/* As they are accepted back where no other id begins so. Runs and jobs keep 12 digits: the first ten are the time. */
static void shorten_ids(fb_screen_table *table, size_t digits_of_sha256) {
    const struct {
        const char *prefix;
        size_t digits, kept;
    } ids[] = {{"sha256:", 64, digits_of_sha256}, {"run_", 26, 12}, {"job_", 26, 12}};
    for (size_t i = 0; i < table->count; i++) {
        char *cell = table->cells[i];
        for (size_t j = 0; j < sizeof ids / sizeof *ids; j++) {
            size_t prefix = strlen(ids[j].prefix), length = strlen(cell);
            bool is_cut = length > 3 && strcmp(cell + length - 3, "…") == 0;
            bool is_id = length == prefix + ids[j].digits || (is_cut && length > prefix + ids[j].kept + 3);
            if (strncmp(cell, ids[j].prefix, prefix) == 0 && is_id) strcpy(cell + prefix + ids[j].kept, "…");
        }
    }
}

/* Widths that fit: columns give way from the widest on, down to their widest word. False: they do not fit. */
static bool fit(const int *least, int *widths, size_t count, int width) {
    while (total_of(widths, count) > width) {
        size_t widest = count;
        for (size_t i = 0; i < count; i++) {
            if (widths[i] > least[i] && (widest == count || widths[i] > widths[widest])) widest = i;
        }
        if (widest == count) return false;
        widths[widest]--;
    }
    return true;
}

/* The number of bytes of the text that fit on a line of this width: to a space, or all of a word that is too wide. `*shown` is
 * how many columns they take. */
static size_t take_line(const char *text, int width, int *shown) {
    size_t end = 0, size = 0;
    int columns = 0;
    *shown = 0;
    for (;; size++) {
        if (!text[size] || text[size] == ' ') {
            if (end && columns > width) return end;
            end = size;
            *shown = columns;
            if (!text[size]) return end;
        }
        columns += ((unsigned char)text[size] & 0xc0) != 0x80;
    }
}

static void print_part(const char *text, size_t size, FILE *out) {
    char part[600];
    while (size) {
        size_t now = size < sizeof part ? size : sizeof part - 1;
        while (now < size && now > 1 && ((unsigned char)text[now] & 0xc0) == 0x80) now--;
        snprintf(part, now + 1, "%s", text);
        fb_screen_text(out, part);
        text += now, size -= now;
    }
}

/* One line of a row: the next part of each cell, which is taken from it. */
static bool print_line(const fb_screen_table *table, const char **rest, const int *widths, bool is_bold, int colour,
                       FILE *out) {
    bool has_more = false;
    size_t last = 0;
    for (size_t i = 0; i < table->columns; i++) last = *rest[i] ? i : last;
    for (size_t i = 0; i < table->columns; i++) {
        int shown;
        size_t size = take_line(rest[i], widths[i], &shown);
        int space = widths[i] > shown ? widths[i] - shown : 0, used = colour ? colour : is_bold && !i ? FB_BOLD : FB_PLAIN;
        bool is_right = is_number_column(table, i);
        if (is_right) fprintf(out, "%*s", space, "");
        if (used && size) fprintf(out, "\033[%dm", used);
        print_part(rest[i], size, out);
        if (used && size) fputs("\033[0m", out);
        rest[i] += size + strspn(rest[i] + size, " ");
        has_more |= *rest[i] != '\0';
        if (i >= last) break;
        fprintf(out, "%*s  ", is_right ? 0 : space, "");
    }
    fputc('\n', out);
    return has_more;
}

static void print_row(const fb_screen_table *table, const char **rest, const int *widths, bool is_bold, int colour, FILE *out) {
    while (print_line(table, rest, widths, is_bold, colour, out)) continue;
}

static void print_rows(const fb_screen_table *table, const char **rest, const int *widths, bool has_colour, FILE *out) {
    for (size_t i = 0; table->headings && i < table->columns; i++) rest[i] = table->headings[i] + is_number_column(table, i);
    if (table->headings) print_row(table, rest, widths, false, has_colour ? FB_CYAN : FB_PLAIN, out);
    for (size_t row = 0; row < table->count; row += table->columns) {
        memcpy(rest, table->cells + row, table->columns * sizeof *rest);
        print_row(table, rest, widths, has_colour, FB_PLAIN, out);
    }
}

/* A word that is wider than its line loses its middle: a terminal would break it anywhere. */
static void cut_words(char *cell, int width) {
    for (char *word = cell; *word; word += strcspn(word, " "), word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        bool is_plain = true;
        for (size_t i = 0; i < length; i++) is_plain &= (unsigned char)word[i] < 0x80;
        if (!is_plain || (int)length <= width || width < 8) continue;
        size_t head = (size_t)width / 2, tail = (size_t)width - head - 3; /* the three bytes of "…" have room */
        memcpy(word + head, "…", 3);
        memmove(word + head + 3, word + length - tail, strlen(word + length - tail) + 1);
    }
}

/* Each row as "HEADING  cell" lines. */
static void print_stacked(fb_screen_table *table, int width, bool has_colour, FILE *out) {
    fb_screen_table one = {.columns = 2};
    int label = 0;
    for (size_t i = 0; table->headings && i < table->columns; i++) {
        int shown = width_of(table->headings[i]) - is_number_column(table, i);
        if (shown > label) label = shown;
    }
    for (size_t i = 0; i < table->count; i++) {
        const char *rest[2] = {"", table->cells[i]};
        int widths[2] = {label, width - label - 2};
        bool is_first = i % table->columns == 0;
        if (is_first && i) fputc('\n', out);
        if (table->headings) rest[0] = table->headings[i % table->columns] + is_number_column(table, i % table->columns);
        if (!*rest[1]) continue;
        cut_words(table->cells[i], widths[1]);
        print_row(&one, rest, widths, has_colour && is_first, FB_PLAIN, out);
    }
}

static void print_fitting(fb_screen_table *table, int *widths, const char **rest, bool has_colour, FILE *out) {
    int width = fb_screen_width(out), *least = widths + table->columns;
    for (int tries = 0;; tries++) {
        for (size_t i = 0; i < table->columns; i++) {
            widths[i] = column_width(table, i, width_of);
            least[i] = table->keeps_first && !i ? widths[i] : column_width(table, i, widest_word);
        }
        bool fits = !width || total_of(widths, table->columns) <= width;
        if (!fits && tries) fits = fit(least, widths, table->columns, width);
        if (fits) print_rows(table, rest, widths, has_colour, out);
        else if (tries == 2) print_stacked(table, width, has_colour, out);
        else shorten_ids(table, tries ? 8 : 12);
        if (fits || tries == 2) return;
    }
}

bool fb_table_print(fb_screen_table *table, bool has_colour, FILE *out) {
    int *widths = calloc(2 * table->columns + 1, sizeof *widths);
    const char **rest = calloc(table->columns + 1, sizeof *rest);
    bool is_whole = widths && rest && !table->failed;
    if (is_whole) print_fitting(table, widths, rest, has_colour, out);
    free(widths);
    free(rest);
    for (size_t i = 0; i < table->count; i++) free(table->cells[i]);
    free(table->cells);
    *table = (fb_screen_table){0};
    return is_whole;
}

/* ---- paragraphs --------------------------------------------------------------------------------------------------------- */

static void print_paragraph(FILE *out, const char *text, int width) {
    while (*text) {
        int shown;
        size_t size = take_line(text, width, &shown);
        print_part(text, size, out);
        fputc('\n', out);
        text += size + strspn(text + size, " ");
    }
}

void fb_screen_paragraphs(FILE *out, const char *text, int width) {
    char *paragraph = malloc(strlen(text) + 1);
    size_t length = 0;
    for (const char *line = text; paragraph; line++) {
        size_t size = strcspn(line, "\n");
        bool stands = !size || *line == ' ' || !width;
        if (stands && length) {
            paragraph[length] = '\0';
            print_paragraph(out, paragraph, width);
            length = 0;
        }
        if (stands && (*line || size)) {
            print_part(line, size, out);
            fputc('\n', out);
        } else if (!stands) {
            if (length) paragraph[length++] = ' ';
            memcpy(paragraph + length, line, size);
            length += size;
        }
        line += size;
        if (!*line || (!line[1] && !length)) break;
    }
    if (paragraph && length) {
        paragraph[length] = '\0';
        print_paragraph(out, paragraph, width);
    }
    free(paragraph);
}

void fb_screen_message(FILE *out, const char *indent, const char *text) {
    int width = fb_screen_width(out), used = 0, margin = (int)strlen(indent);
    fputs(indent, out);
    for (const char *word = text; *word;) {
        char piece[256];
        size_t size = strcspn(word, " ");
        snprintf(piece, sizeof piece, "%.*s", (int)(size < sizeof piece ? size : sizeof piece - 1), word);
        size = strlen(piece);
        bool is_first = word == text, breaks = width && !is_first && used && margin + used + 1 + width_of(piece) > width;
        if (breaks) fprintf(out, "\n%s", indent);
        else if (!is_first && word[-1] == ' ') fputc(' ', out);
        used = breaks ? width_of(piece) : used + (is_first ? 0 : 1) + width_of(piece);
        fb_screen_text(out, piece);
        word += size;
        if (*word == ' ') word++;
    }
    fputc('\n', out);
}

/* ---- times and sizes ---------------------------------------------------------------------------------------------------- */

#define NO_BREAK "\u00a0"

fb_short_text fb_relative_time(const char *text) {
    static const struct {
        int64_t seconds, most;
        const char *name;
    } units[] = {{1, 60, "s"}, {60, 3600, "min"}, {3600, 86400, "h"}, {86400, 31 * 86400, "day"}};
    fb_short_text out;
    int64_t then;
    snprintf(out.text, sizeof out.text, "%s", text);
    if (!fb_timestamp_read(text, &then)) return out;
    int64_t passed = (int64_t)time(NULL) - then / 1000, distance = passed < 0 ? -passed : passed;
    out.text[strcspn(out.text, "T")] = '\0'; /* the date */
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (distance >= units[i].most) continue;
        long long number = distance / units[i].seconds;
        const char *plural = i == 3 && number != 1 ? "s" : "";
        if (!i && distance < 5) snprintf(out.text, sizeof out.text, "just now");
        else if (passed < 0) snprintf(out.text, sizeof out.text, "in %lld" NO_BREAK "%s%s", number, units[i].name, plural);
        else snprintf(out.text, sizeof out.text, "%lld" NO_BREAK "%s%s ago", number, units[i].name, plural);
        return out;
    }
    return out;
}

fb_short_text fb_told_time(const char *text) {
    fb_short_text told = fb_relative_time(text), out;
    int64_t then;
    snprintf(out.text, sizeof out.text, "%s", text);
    if (strlen(text) < 20 || !fb_timestamp_read(text, &then)) return out;
    snprintf(out.text, sizeof out.text, "%.24s (%.10s %.8s UTC)", told.text, text, text + 11);
    return out;
}

fb_short_text fb_readable_size(uint64_t bytes) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    fb_short_text out;
    double number = (double)bytes;
    size_t unit = 0;
    while (number >= 999.5 && unit + 1 < sizeof units / sizeof *units) number /= 1000, unit++;
    snprintf(out.text, sizeof out.text, number < 9.95 && unit ? "%.1f %s" : "%.0f %s", number, units[unit]);
    return out;
}
