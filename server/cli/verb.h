/* The verbs of the command line: a const table. */
#ifndef FB_CLI_VERB_H
#define FB_CLI_VERB_H

#include "server/cli/options.h"

/* Exit statuses of every verb. FAILED: refused, a conflict, not valid, not found. */
enum { FB_EXIT_DONE = 0, FB_EXIT_FAILED = 1, FB_EXIT_USAGE = 2, FB_EXIT_FOLDER_IN_USE = 3 };

typedef struct fb_cli fb_cli;

/* What a verb does with a data folder that does not exist. */
typedef enum fb_folder_use {
    FB_FOLDER_MUST_EXIST,
    FB_FOLDER_IS_MADE,
    FB_FOLDER_UNUSED, /* it needs no store */
} fb_folder_use;

typedef struct fb_verb {
    const char *group;       /* above it in `foldback help`; NULL: that of the row before */
    const char *name;        /* one word, or a noun and what is done with it: "job list" */
    const char *now;         /* of a name that is kept for those who know it: what it is called today */
    const char *arguments;   /* as the usage line shows them, and so how many: "A B", "A [B]", "A B...", "a A|b"; "" = none */
    const char *summary;     /* a line of `foldback help`; NULL for a name of before */
    const char *description; /* of its own help, lines; NULL = none */
    const fb_option *options;
    fb_folder_use folder;
    int (*run)(fb_cli *cli);                                         /* what fb_cli_start runs */
    int (*start)(const struct fb_verb *verb, int argc, char **argv); /* instead of fb_cli_start, for a verb without a `run` */
} fb_verb;

extern const fb_verb fb_verbs[]; /* in the order of `foldback help`; ends with a row without a name */

/* The row of these words, of which the second may be NULL or something else; `*words` is how many of them are its name. NULL:
 * there is none. */
const fb_verb *fb_verb_find(const char *first, const char *second, int *words);
/* What may stand before a verb, where it means the same as behind it. */
extern const fb_option fb_leading_options[];

bool fb_verb_takes(const fb_verb *verb, const char *option);

/* Reads the options and arguments that follow the verb. False when there is nothing more to do: it printed its help, or said
 * what is wrong; then `*result` is the exit status. fb_options_free is due in either case. */
bool fb_verb_read(const fb_verb *verb, int argc, char **argv, void *values, fb_arguments *arguments, int *result);

/* Runs a command line; returns the exit status. */
int fb_run_command_line(int argc, char **argv);

/* A variable of the environment; NULL when it is empty, too. */
const char *fb_variable(const char *name);
/* The data folder when --data does not say it. */
const char *fb_usual_data(void);

/* "foldback: …" on standard error; returns `status`. */
int fb_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
