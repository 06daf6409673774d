#include "core/base/suggest.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define VERB_WIDTH 19 /* of "transformation list" */

/* ---- help --------------------------------------------------------------------------------------------------------------- */

static bool is_of_noun(const fb_verb *verb, const char *noun) {
    size_t length = strlen(noun);
    return strncmp(verb->name, noun, length) == 0 && verb->name[length] == ' ';
}

/* All verbs, or a noun's, one below the other regardless of their group. */
static void print_verbs(const char *noun, FILE *out) {
    fb_screen_table rows = {.columns = 2};
    const char *group;
    for (size_t i = 0; fb_verb_at(i, &group); i++) {
        const fb_verb *verb = fb_verb_at(i, NULL);
        if (verb->now || (noun && !is_of_noun(verb, noun))) continue;
        if (group && !noun) {
            if (rows.count) fb_table_print(&rows, false, out);
            rows = (fb_screen_table){.columns = 2};
            fprintf(out, "\n%s:\n", group);
        }
        fb_table_cell(&rows, "  %-*s", VERB_WIDTH, verb->name);
        fb_table_cell(&rows, "%s", verb->summary);
    }
    fb_table_print(&rows, false, out);
}

static void print_help(FILE *out) {
    fputs("usage: foldback VERB [arguments and options]\n", out);
    print_verbs(NULL, out);
    fputc('\n', out);
    fb_screen_paragraphs(out,
                         "foldback help VERB tells more about one; foldback --version prints the version.\n"
                         "--data DIR, --server URL, --token-file FILE, --ca-file FILE and --json may also\n"
                         "stand before the verb.\n\n"
                         "Exit status: 0 done, 1 refused, a conflict, not valid or not found,\n"
                         "2 wrong usage, 3 the data folder is in use.\n",
                         fb_screen_width(out));
}

static void print_noun(const char *noun, FILE *out) {
    fprintf(out, "usage: foldback %s VERB [arguments and options]\n\n", noun);
    print_verbs(noun, out);
    fprintf(out, "\nfoldback help %s VERB tells more about one.\n", noun);
}

/* ---- finding ------------------------------------------------------------------------------------------------------------ */

const fb_verb *fb_verb_find(const char *first, const char *second, int *words) {
    char joined[64];
    snprintf(joined, sizeof joined, "%s %s", first, second ? second : "");
    for (*words = 2; *words; --*words) {
        const fb_verb *verb;
        for (size_t i = 0; (verb = fb_verb_at(i, NULL)); i++) {
            if (strcmp(verb->name, *words == 2 ? joined : first) == 0) return verb;
        }
    }
    return NULL;
}

static bool is_noun(const char *word) {
    size_t i = 0;
    while (fb_verb_at(i, NULL) && !is_of_noun(fb_verb_at(i, NULL), word)) i++;
    return fb_verb_at(i, NULL) != NULL;
}

/* Complains of an unknown verb; after a noun only its verbs are offered. */
static int complain_of_verb(const char *first, const char *second) {
    char joined[64];
    bool has_noun = is_noun(first);
    static const struct {
        const char *words, *extra, *page;
    } python[] = {
        {"mlflow", "mlflow", "docs/mlflow.md"},
        {"hub", "hub", "clients/python/README.md"},
        {"layout from-transformers", "layouts", "docs/layouts.md"},
        {"adapter", "layouts", "docs/layouts.md"},
    };
    snprintf(joined, sizeof joined, "%s%s%s", first, second ? " " : "", second ? second : "");
    for (size_t i = 0; i < sizeof python / sizeof *python; i++) {
        const char *words = python[i].words;
        if (strcmp(words, first) == 0 || strcmp(words, joined) == 0)
            return fb_complain(FB_EXIT_USAGE, "foldback %s is in the Python package: install its wheel with the extra %s (%s)",
                               words, python[i].extra, python[i].page);
    }
    fb_suggestion whole = fb_suggest(joined), word = fb_suggest(first);
    const fb_verb *verb;
    for (size_t i = 0; (verb = fb_verb_at(i, NULL)); i++) {
        if (has_noun && !is_of_noun(verb, first)) continue;
        if (strchr(verb->name, ' ')) fb_suggest_try(&whole, verb->name);
        else fb_suggest_try(&word, verb->name);
    }
    const char *best = *word.best && (!*whole.best || word.distance <= whole.distance) ? word.best : whole.best;
    return fb_complain(FB_EXIT_USAGE, "there is no verb %s; %s%s%sfoldback help%s%s lists all", has_noun ? joined : first,
                       *best ? "did you mean " : "", best, *best ? "? " : "", has_noun ? " " : "", has_noun ? first : "");
}

static int help(fb_cli *cli) {
    char **words = cli->arguments.items;
    size_t given = cli->arguments.count;
    int count;
    const char *second = given > 1 ? words[1] : NULL;
    const fb_verb *verb = given ? fb_verb_find(words[0], second, &count) : NULL;
    if (verb) fb_verb_print(verb, stdout);
    else if (given == 1 && is_noun(words[0])) print_noun(words[0], stdout);
    else if (given) return complain_of_verb(words[0], second);
    else print_help(stdout);
    return FB_EXIT_DONE;
}

/* ---- the whole line ----------------------------------------------------------------------------------------------------- */

/* The index of the first word from `at` on that is neither one of these options nor the value of one. */
static int next_word(int argc, char **argv, int at) {
    while (at < argc && argv[at][0] == '-') {
        const char *value;
        const fb_option *one = fb_option_find(fb_leading_options, argv[at], &value);
        if (!one) return at;
        at += one->argument && !value ? 2 : 1;
    }
    return at < argc ? at : argc;
}

static bool has_word(int argc, char **argv, const char *word) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], word) == 0) return true;
    }
    return false;
}

static bool asks_for_help(int argc, char **argv) {
    return has_word(argc, argv, "--help") || has_word(argc, argv, "-h");
}

static int run_without_verb(int argc, char **argv) {
    if (has_word(argc, argv, "--version")) return puts("foldback " FB_VERSION) < 0;
    print_help(asks_for_help(argc, argv) ? stdout : stderr);
    return asks_for_help(argc, argv) ? FB_EXIT_DONE : FB_EXIT_USAGE;
}

static int run_noun(const char *noun, int argc, char **argv) {
    print_noun(noun, asks_for_help(argc, argv) ? stdout : stderr);
    return asks_for_help(argc, argv) ? FB_EXIT_DONE : FB_EXIT_USAGE;
}

/* The words of the verb are taken out, so that the options before them come with the others. */
static void take_out(int *argc, char **argv, int at) {
    memmove(argv + at, argv + at + 1, (size_t)(*argc - at) * sizeof *argv); /* with the NULL at the end */
    --*argc;
}

int fb_run_command_line(int argc, char **argv) {
    int first = next_word(argc, argv, 1), words;
    if (first >= argc) return run_without_verb(argc, argv);
    int second = next_word(argc, argv, first + 1);
    char *noun = argv[first], *next = second < argc && argv[second][0] != '-' ? argv[second] : NULL;
    if (*noun == '-')
        return fb_complain(FB_EXIT_USAGE, "%s is not an option that stands before a verb; foldback help lists these", noun);
    const fb_verb *verb = fb_verb_find(noun, next, &words);
    if (!verb && !next && is_noun(noun)) return run_noun(noun, argc, argv);
    if (!verb) return complain_of_verb(noun, next);
    if (words == 2) take_out(&argc, argv, second);
    take_out(&argc, argv, first);
    return (verb->start ? verb->start : fb_cli_start)(verb, argc - 1, argv + 1);
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

const fb_verb fb_help_verbs[] = {
    {.name = "help",
     .arguments = "[VERB]...",
     .summary = "lists the verbs, or explains one",
     .options = fb_help_options,
     .folder = FB_FOLDER_UNUSED,
     .run = help},
    {0},
};
