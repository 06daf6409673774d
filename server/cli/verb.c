#include "server/cli/verb.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/actions.h"
#include "server/cli/suggest.h"

const fb_verb *fb_verb_find(const char *name, const char **nearest) {
    fb_suggestion suggestion = fb_suggest(name);
    for (const fb_verb *verb = fb_verbs; verb->name; verb++) {
        if (strcmp(verb->name, name) == 0) return verb;
        fb_suggest_try(&suggestion, verb->name);
    }
    *nearest = suggestion.best;
    return NULL;
}

bool fb_verb_takes(const fb_verb *verb, const char *option) {
    const fb_option *one = verb->options;
    while (one->name && strcmp(one->name, option) != 0) one++;
    return one->name != NULL;
}

void fb_verbs_print(FILE *out) {
    fputs("usage: foldback VERB [arguments and options]\n\n", out);
    for (const fb_verb *verb = fb_verbs; verb->name; verb++) fprintf(out, "  %-14s  %s\n", verb->name, verb->summary);
    fputs("\n  --version  the version\n  --help     this text; foldback VERB --help tells more about one\n\n"
          "--data DIR, --server URL, --token-file FILE, --ca-file FILE and --json may stand before the verb, too.\n"
          "Exit status: 0 done, 1 refused, a conflict, not valid or not found, 2 wrong usage, 3 the data folder is in use.\n",
          out);
}

void fb_verb_print(const fb_verb *verb, FILE *out) {
    fprintf(out, "usage: foldback %s%s%s [options]\n\n%c%s.\n", verb->name, *verb->arguments ? " " : "", verb->arguments,
            toupper((unsigned char)*verb->summary), verb->summary + 1);
    if (verb->description) fprintf(out, "\n%s", verb->description);
    fputs("\n", out);
    fb_options_print(verb->options, out);
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
    bool is_read = fb_options_read(verb->options, argc, argv, values, arguments, message, sizeof message);
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

/* ---- the whole line ----------------------------------------------------------------------------------------------------- */

/* What may stand before the verb: there it means the same as behind it. Nothing is read into the offsets. */
static const fb_option leading[] = {
    {.name = "data", .argument = "DIR"},
    {.name = "server", .argument = "URL"},
    {.name = "token-file", .argument = "FILE"},
    {.name = "ca-file", .argument = "FILE"},
    {.name = "json"},
    {.name = "help", .letter = 'h'},
    {.name = "version"},
    {0},
};

/* The index of the verb: the first word that is neither one of these options nor the value of one. */
static int find_verb(int argc, char **argv) {
    int at = 1;
    while (at < argc && argv[at][0] == '-') {
        const char *value;
        const fb_option *one = fb_option_find(leading, argv[at], &value);
        if (!one) return at;
        at += one->argument && !value ? 2 : 1;
    }
    return at < argc ? at : argc;
}

static bool has_word(char **words, int count, const char *word) {
    for (int i = 0; i < count; i++) {
        if (strcmp(words[i], word) == 0) return true;
    }
    return false;
}

static int run_without_verb(int argc, char **argv) {
    if (has_word(argv + 1, argc - 1, "--version")) return puts("foldback " FB_VERSION) < 0;
    bool is_asked = has_word(argv + 1, argc - 1, "--help") || has_word(argv + 1, argc - 1, "-h");
    fb_verbs_print(is_asked ? stdout : stderr);
    return is_asked ? FB_EXIT_DONE : FB_EXIT_USAGE;
}

static int complain_of_verb(const char *name, const char *nearest) {
    return fb_complain(FB_EXIT_USAGE, "there is no verb %s%s%s%s; foldback help lists them", name,
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}

int fb_cli_help(fb_cli *cli) {
    const char *name = cli->arguments.count ? cli->arguments.items[0] : NULL, *nearest;
    const fb_verb *verb = name ? fb_verb_find(name, &nearest) : NULL;
    if (name && !verb) return complain_of_verb(name, nearest);
    if (verb) fb_verb_print(verb, stdout);
    else fb_verbs_print(stdout);
    return FB_EXIT_DONE;
}

int fb_run_command_line(int argc, char **argv) {
    const char *nearest;
    int at = find_verb(argc, argv);
    if (at >= argc) return run_without_verb(argc, argv);
    char *name = argv[at];
    const fb_verb *verb = fb_verb_find(name, &nearest);
    if (!verb && *name == '-')
        return fb_complain(FB_EXIT_USAGE, "%s is not an option that stands before a verb; foldback help lists these", name);
    if (!verb) return complain_of_verb(name, nearest);
    memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof *argv); /* the options before the verb go behind it */
    return (verb->start ? verb->start : fb_cli_start)(verb, argc - 2, argv + 2);
}

int fb_complain(int status, const char *format, ...) {
    char message[1400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fputs("foldback: ", stderr);
    fb_screen_text(stderr, message);
    fputs("\n", stderr);
    return status;
}
