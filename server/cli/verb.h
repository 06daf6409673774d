/* The verbs of the command line: a const table. */
#ifndef FB_CLI_VERB_H
#define FB_CLI_VERB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* ---- Command lines: a verb's options are a const table, read into a struct of the verb's --------------------------------- */

typedef enum fb_option_kind {
    FB_OPTION_TEXT,    /* const char * */
    FB_OPTION_LIST,    /* fb_text_list: the option may be repeated */
    FB_OPTION_NAMES,   /* the same, and a value may be several with commas between them; JSON, "{…}", is one */
    FB_OPTION_FLAG,    /* bool */
    FB_OPTION_COUNT,   /* this and the next two: an unsigned number of 4 or 8 bytes */
    FB_OPTION_SECONDS, /* kept in milliseconds */
    FB_OPTION_BYTES,   /* takes the suffixes K, M and G */
} fb_option_kind;

/* One option; a table ends with a row without a name. */
typedef struct fb_option {
    const char *name;     /* without its dashes */
    char letter;          /* -o; 0 = none */
    const char *argument; /* what the value is called; NULL for a flag */
    const char *help;
    fb_option_kind kind;
    size_t offset, size;       /* of the member that the value goes to: FB_OPTION_AT */
    uint64_t minimum, maximum; /* of a number */
} fb_option;

#define FB_OPTION_AT(type, member) offsetof(type, member), sizeof(((type *)0)->member)

typedef struct fb_text_list {
    const char **items;
    size_t count, capacity;
} fb_text_list;

/* The arguments that are not options, in order. "--" ends the options, "-" is not an option. */
typedef struct fb_arguments {
    char **items;
    size_t count;
} fb_arguments;

/* The option that a word of a command line gives, or NULL; `*value` is the value in the same word, or NULL. */
const fb_option *fb_option_find(const fb_option *table, const char *word, const char **value);

void fb_options_free(const fb_option *table, void *values);

/* Exit statuses of every verb. FAILED: refused, a conflict, not valid, not found. */
enum { FB_EXIT_DONE = 0, FB_EXIT_FAILED = 1, FB_EXIT_USAGE = 2, FB_EXIT_FOLDER_IN_USE = 3 };

typedef struct fb_cli fb_cli;

/* The use of a data folder that does not exist. */
typedef enum fb_folder_use {
    FB_FOLDER_MUST_EXIST,
    FB_FOLDER_IS_MADE,
    FB_FOLDER_FOR_FILES, /* where all graphs are files and no place was named, one of the command's own, which goes at its end
                          */
    FB_FOLDER_UNUSED,    /* it needs no store */
} fb_folder_use;

typedef struct fb_verb {
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

/* All verbs in the order of `foldback help`, from 0 on; NULL behind the last. `*group` is the title above it there, or NULL.
 */
const fb_verb *fb_verb_at(size_t index, const char **group);

/* The row of these words, of which the second may be NULL or something else; `*words` is how many of them are its name. NULL:
 * there is none. */
const fb_verb *fb_verb_find(const char *first, const char *second, int *words);
/* Options that may precede a verb, where they mean the same as after it. */
extern const fb_option fb_leading_options[];

void fb_verb_print(const fb_verb *verb, FILE *out); /* its help */
bool fb_verb_takes(const fb_verb *verb, const char *option);

/* Reads the options and arguments that follow the verb. False when there is nothing more to do: it printed its help, or said
 * what is wrong; then `*result` is the exit status. fb_options_free is due in either case. */
bool fb_verb_read(const fb_verb *verb, int argc, char **argv, void *values, fb_arguments *arguments, int *result);

/* Runs a command line; returns the exit status. */
int fb_run_command_line(int argc, char **argv);

/* A variable of the environment; NULL when it is empty or not set. */
const char *fb_variable(const char *name);
/* The data folder when --data does not say it. */
const char *fb_usual_data(void);

/* "foldback: …" on standard error; returns `status`. */
int fb_complain(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- The verbs, a table in each noun's file; the tables end with a row without a name ------------------------------------ */

extern const fb_verb fb_run_verbs[], fb_graph_verbs[], fb_diff_verbs[], fb_show_verbs[], fb_ui_verbs[], fb_pass_verbs[],
    fb_transformation_verbs[], fb_layout_verbs[], fb_weights_verbs[], fb_evaluate_verbs[], fb_bisect_verbs[], fb_blob_verbs[],
    fb_model_verbs[], fb_serve_verbs[], fb_doctor_verbs[], fb_event_verbs[], fb_job_verbs[], fb_attestation_verbs[],
    fb_webhook_verbs[], fb_token_verbs[], fb_db_verbs[], fb_help_verbs[], fb_completion_verbs[];

#endif
