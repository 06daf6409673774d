#include "server/cli/options.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/grow.h"
#include "core/base/suggest.h"
#include "server/cli/screen.h"
#include "server/cli/verb.h"

/* ---- help --------------------------------------------------------------------------------------------------------------- */

static void spell(const fb_option *one, bool has_letters, char *out, size_t size) {
    char letter[8] = "";
    if (one->letter) snprintf(letter, sizeof letter, "-%c, ", one->letter);
    else if (has_letters) strcpy(letter, "    ");
    snprintf(out, size, "%s--%s%s%s", letter, one->name, one->argument ? " " : "", one->argument ? one->argument : "");
}

static void print_options(const fb_option *table, FILE *out) {
    bool has_letters = false;
    char left[64];
    fb_screen_table rows = {.columns = 2};
    for (const fb_option *one = table; one->name; one++) has_letters |= one->letter != 0;
    for (const fb_option *one = table; one->name; one++) {
        spell(one, has_letters, left, sizeof left);
        fb_table_cell(&rows, "  %s", left);
        fb_table_cell(&rows, "%s", one->help);
    }
    fb_table_print(&rows, false, out);
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static bool read_number(const char *text, bool takes_suffix, uint64_t *out) {
    if (*text < '0' || *text > '9' || strlen(text) > 18) return false;
    char *end;
    uint64_t number = strtoull(text, &end, 10), factor = 1;
    if (takes_suffix && (*end == 'K' || *end == 'k')) factor = (uint64_t)1 << 10;
    else if (takes_suffix && (*end == 'M' || *end == 'm')) factor = (uint64_t)1 << 20;
    else if (takes_suffix && (*end == 'G' || *end == 'g')) factor = (uint64_t)1 << 30;
    uint64_t thousands = factor == (uint64_t)1 << 10 ? 1000 : factor == (uint64_t)1 << 20 ? 1000000 : 1000000000;
    if (factor > 1) end++;
    if (factor > 1 && !strcmp(end, "B")) factor = thousands, end++; /* 5GB, as Hugging Face has it; 5G and 5GiB are larger */
    else if (factor > 1 && !strcmp(end, "iB")) end += 2;
    *out = number * factor;
    return !*end && number <= UINT64_MAX / factor;
}

static bool set_number(const fb_option *one, const char *text, char *place, char *message, size_t message_size) {
    uint64_t number;
    bool is_bytes = one->kind == FB_OPTION_BYTES;
    if (!read_number(text, is_bytes, &number) || number < one->minimum || number > one->maximum) {
        char most[40] = "";
        if (one->maximum != UINT64_MAX) snprintf(most, sizeof most, " and at most %llu", (unsigned long long)one->maximum);
        snprintf(message, message_size, "--%s %s: expected %s, at least %llu%s", one->name, text,
                 is_bytes ? "a number of bytes such as 64M" : "a number", (unsigned long long)one->minimum, most);
        return false;
    }
    if (one->kind == FB_OPTION_SECONDS) number *= 1000;
    if (one->size == sizeof number) memcpy(place, &number, sizeof number);
    else memcpy(place, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
    return true;
}

static bool append(fb_text_list *list, const char *value, char *message, size_t message_size) {
    if (!FB_GROW(list->items, list->count, list->capacity)) return snprintf(message, message_size, "out of memory"), false;
    list->items[list->count++] = value;
    return true;
}

/* "a,b" is cut in its place. */
static bool append_names(fb_text_list *list, char *names, char *message, size_t message_size) {
    if (*names == '{') return append(list, names, message, message_size);
    for (char *rest = names, *name; (name = strsep(&rest, ","));) {
        if (*name && !append(list, name, message, message_size)) return false;
    }
    return true;
}

static bool set_value(const fb_option *one, char *value, char *place, char *message, size_t message_size) {
    switch (one->kind) {
    case FB_OPTION_LIST: return append((fb_text_list *)(void *)place, value, message, message_size);
    case FB_OPTION_NAMES: return append_names((fb_text_list *)(void *)place, value, message, message_size);
    case FB_OPTION_TEXT: memcpy(place, &value, sizeof value); return true;
    case FB_OPTION_FLAG: memcpy(place, &(bool){true}, sizeof(bool)); return true;
    default: return set_number(one, value, place, message, message_size);
    }
}

/* ---- the line ----------------------------------------------------------------------------------------------------------- */

static const fb_option *find_name(const fb_option *table, const char *name, size_t length) {
    for (const fb_option *one = table; one->name; one++) {
        if (strlen(one->name) == length && memcmp(one->name, name, length) == 0) return one;
    }
    return NULL;
}

static const fb_option *find_letter(const fb_option *table, char letter) {
    const fb_option *one = table;
    while (one->name && one->letter != letter) one++;
    return one->name ? one : NULL;
}

static void report_unknown(const fb_option *table, const char *word, char *message, size_t message_size) {
    fb_suggestion nearest = fb_suggest(word + strspn(word, "-"));
    for (const fb_option *one = table; one->name; one++) fb_suggest_try(&nearest, one->name);
    int length = snprintf(message, message_size, "there is no option %s", word);
    if (*nearest.best && length > 0 && (size_t)length < message_size)
        snprintf(message + length, message_size - (size_t)length, "; did you mean --%s?", nearest.best);
}

const fb_option *fb_option_find(const fb_option *table, const char *word, const char **value) {
    *value = NULL;
    if (strncmp(word, "--", 2) != 0) {
        if (word[1] && word[2]) *value = word + 2;
        return find_letter(table, word[1]);
    }
    const char *name = word + 2, *equals = strchr(name, '=');
    if (equals) *value = equals + 1;
    return find_name(table, name, equals ? (size_t)(equals - name) : strlen(name));
}

/* Reads a command line into `values`, whose members hold the defaults. Texts are borrowed from argv, in which the arguments are
 * moved to the front, and names cut at their commas. On failure writes one sentence to `message` and returns false. In either
 * case fb_options_free is due. */
static bool read_options(const fb_option *table, int argc, char **argv, void *values, fb_arguments *arguments, char *message,
                         size_t message_size) {
    bool is_ended = false;
    *arguments = (fb_arguments){.items = argv};
    for (int i = 0; i < argc; i++) {
        if (is_ended || argv[i][0] != '-' || !argv[i][1]) {
            argv[arguments->count++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            is_ended = true;
            continue;
        }
        const char *value;
        const fb_option *one = fb_option_find(table, argv[i], &value);
        if (!one || (!one->argument && value)) {
            report_unknown(table, argv[i], message, message_size);
            return false;
        }
        if (one->argument && !value && i + 1 < argc) value = argv[++i];
        if (one->argument && (!value || !*value)) {
            snprintf(message, message_size, "--%s needs a value: %s", one->name, one->argument);
            return false;
        }
        char *given = (char *)(uintptr_t)value; /* a part of argv */
        if (!set_value(one, given, (char *)values + one->offset, message, message_size)) return false;
    }
    return true;
}

void fb_options_free(const fb_option *table, void *values) {
    for (const fb_option *one = table; one->name; one++) {
        bool is_list = one->kind == FB_OPTION_LIST || one->kind == FB_OPTION_NAMES;
        if (is_list) free(((fb_text_list *)(void *)((char *)values + one->offset))->items);
    }
}

bool fb_verb_takes(const fb_verb *verb, const char *option) {
    const fb_option *one = verb->options;
    while (one->name && strcmp(one->name, option) != 0) one++;
    return one->name != NULL;
}

static bool wants_help(const fb_verb *verb, const void *values) {
    const fb_option *one = verb->options;
    while (one->name && strcmp(one->name, "help") != 0) one++;
    return one->name && *(const bool *)((const char *)values + one->offset);
}

typedef struct argument_range {
    size_t least, most;
} argument_range;

/* How many arguments a usage line allows: of its alternatives the one with the fewest, and the one with the most. A word with
 * "..." is the last one. */
static argument_range range_of(const char *usage) {
    argument_range range = {.least = SIZE_MAX}, one = {0};
    for (const char *at = usage;; at++) {
        size_t length = strcspn(at, " |");
        if (length && *at != '[') one.least++;
        if (length > 3 && strncmp(at + length - 3, "...", 3) == 0) one.most = SIZE_MAX;
        else if (length) one.most++;
        at += length;
        if (*at == ' ') continue;
        if (one.least < range.least) range.least = one.least;
        if (one.most > range.most) range.most = one.most;
        if (!*at) return range;
        one = (argument_range){0};
    }
}

bool fb_verb_read(const fb_verb *verb, int argc, char **argv, void *values, fb_arguments *arguments, int *result) {
    char message[300] = "";
    argument_range range = range_of(verb->arguments);
    bool is_read = read_options(verb->options, argc, argv, values, arguments, message, sizeof message);
    if (is_read && wants_help(verb, values)) {
        fb_verb_print(verb, stdout);
        *result = FB_EXIT_DONE;
        return false;
    }
    if (is_read && arguments->count < range.least) snprintf(message, sizeof message, "it needs %s", verb->arguments);
    else if (is_read && arguments->count > range.most)
        snprintf(message, sizeof message, "%s: too many arguments%s%s", arguments->items[range.most],
                 *verb->arguments ? "; it takes " : "", verb->arguments);
    if (!*message) return true;
    *result = fb_complain(FB_EXIT_USAGE, "%s: %s; foldback %s --help lists what it takes", verb->name, message, verb->name);
    return false;
}

const char *fb_variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

const char *fb_usual_data(void) {
    const char *usual = fb_variable("FOLDBACK_DATA");
    return usual ? usual : "./.foldback";
}

/* Nothing is read into their offsets: the verb reads them. */
const fb_option fb_leading_options[] = {
    {.name = "data", .argument = "DIR", .help = "the data folder"},
    {.name = "server", .argument = "URL", .help = "talk to a service instead"},
    {.name = "token-file", .argument = "FILE", .help = "with --server: where the token is"},
    {.name = "ca-file", .argument = "FILE", .help = "with --server: trust these certificates"},
    {.name = "json", .help = "JSON, also on a terminal"},
    {.name = "help", .letter = 'h', .help = "the verbs"},
    {.name = "version", .help = "the version"},
    {0},
};

int fb_complain(int status, const char *format, ...) {
    static const char start[] = "foldback: ";
    char message[1400];
    memcpy(message, start, sizeof start);
    va_list args;
    va_start(args, format);
    vsnprintf(message + sizeof start - 1, sizeof message - (sizeof start - 1), format, args);
    va_end(args);
    fb_screen_message(stderr, "", message);
    return status;
}

const fb_option fb_help_options[] = {END};
const fb_option fb_store_options[] = {STORE, END};
const fb_option fb_plain_options[] = {STORE, JSON, END};
const fb_option fb_list_options[] = {LIMIT, STORE, JSON, END};

void fb_verb_print(const fb_verb *verb, FILE *out) {
    fprintf(out, "usage: foldback %s%s%s [options]\n\n", verb->name, *verb->arguments ? " " : "", verb->arguments);
    if (verb->now) fprintf(out, "This is called %s now.\n", verb->now);
    else fprintf(out, "%c%s.\n", toupper((unsigned char)*verb->summary), verb->summary + 1);
    if (verb->description) fputc('\n', out);
    if (verb->description) fb_screen_paragraphs(out, verb->description, fb_screen_width(out));
    fputs("\n", out);
    print_options(verb->options, out);
}
