/* Command lines: a verb's options are a const table, read into a struct of the verb's. */
#ifndef FB_CLI_OPTIONS_H
#define FB_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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

/* What is no option, in order. "--" ends the options, "-" is no option. */
typedef struct fb_arguments {
    char **items;
    size_t count;
} fb_arguments;

/* The option that a word of a command line gives, or NULL; `*value` is the value that stands in the same word, or NULL. */
const fb_option *fb_option_find(const fb_option *table, const char *word, const char **value);

/* Reads a command line into `values`, whose members hold the defaults. Texts are borrowed from argv, in which the arguments are
 * moved to the front, and names cut at their commas. On failure writes one sentence to `message` and returns false. In either
 * case fb_options_free is due. */
bool fb_options_read(const fb_option *table, int argc, char **argv, void *values, fb_arguments *arguments, char *message,
                     size_t message_size);
void fb_options_free(const fb_option *table, void *values);

/* The options as lines of a help text. */
void fb_options_print(const fb_option *table, FILE *out);

#endif
