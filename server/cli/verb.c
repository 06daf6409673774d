#include "server/cli/verb.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

#include "server/cli/screen.h"
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

void fb_verbs_print(FILE *out) {
    fputs("usage: foldback VERB [arguments and options]\n\n", out);
    for (const fb_verb *verb = fb_verbs; verb->name; verb++) fprintf(out, "  %-14s  %s\n", verb->name, verb->summary);
    fputs("\n  --version  the version\n  --help     this text; foldback VERB --help tells more about one\n\n"
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
