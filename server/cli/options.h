/* How the rows of a verb's options are written, and the rows that several verbs have. */
#ifndef FB_CLI_OPTIONS_H
#define FB_CLI_OPTIONS_H

#include "server/cli/cli.h"

#define AT(member) FB_OPTION_AT(fb_cli_values, member)
#define TEXT(name, letter, argument, help, member)                                                                             \
    { name, letter, argument, help, FB_OPTION_TEXT, AT(member), 0, 0 }
#define LIST(name, letter, argument, help, member)                                                                             \
    { name, letter, argument, help, FB_OPTION_LIST, AT(member), 0, 0 }
#define NAMES(name, letter, argument, help, member)                                                                            \
    { name, letter, argument, help, FB_OPTION_NAMES, AT(member), 0, 0 }
#define FLAG(name, letter, help, member)                                                                                       \
    { name, letter, NULL, help, FB_OPTION_FLAG, AT(member), 0, 0 }
#define COUNT(name, argument, help, member)                                                                                    \
    { name, 0, argument, help, FB_OPTION_COUNT, AT(member), 0, UINT32_MAX }

/* Rows that several verbs have. */
#define CA_FILE TEXT("ca-file", 0, "FILE", "with --server: trust these certificates (PEM), not the system's", ca_file)
#define CREDENTIALS                                                                                                            \
    TEXT("token-file", 0, "FILE", "with --server: a file whose first line is the token ($FOLDBACK_TOKEN)", token_file), CA_FILE
#define DATA TEXT("data", 0, "DIR", "the data folder; also $FOLDBACK_DATA (./.foldback)", data)
#define STORE DATA, TEXT("server", 0, "URL", "talk to a service instead ($FOLDBACK_SERVER)", server), CREDENTIALS
#define JSON FLAG("json", 0, "print JSON, also on a terminal", wants_json)
#define END                                                                                                                    \
    FLAG("help", 'h', "this text", wants_help), {                                                                              \
        0                                                                                                                      \
    }
#define OUTPUT TEXT("output", 'o', "FILE", "write the resulting graph there; with -, print it and nothing else", output)
#define UNDONE NAMES("pass", 'p', "PASS,PASS", "undo these passes only: names, or positions from 0; may be repeated", passes)
#define NOTE TEXT("note", 0, "TEXT", "a note to store", note)
#define LABEL LIST("label", 0, "KEY=VALUE", "a label to store with the run; may be repeated", labels)
#define DRY_RUN FLAG("dry-run", 'n', "store nothing", dry_run)
#define LIMIT COUNT("limit", "N", "how many to list; 0 is all (50)", limit)
#define WEIGHTS LIST("weights", 0, "FILE", "bind these weights: a safetensors file or sha256:…; may be repeated", weights)
#define READS_AS                                                                                                               \
    TEXT("as", 0, "source|finished|original",                                                                                  \
         "which weights the files hold: those from before the passes, after them, or before all runs", reads_as)
#define PREFIX TEXT("prefix", 0, "PREFIX", "remove this from the front of the names in the files, or add it: bert.", prefix)
#define GOES_TO TEXT("output", 'o', "FILE", "write to this file; resumes an interrupted download", output)
#define FORCE FLAG("force", 0, "write over a file that is there, or beside an index of shards", force)
#define SEED TEXT("seed", 0, "N", "random seed (0)", seed)
#define RANDOM_WEIGHTS FLAG("random-weights", 0, "use random weights where the store has none", random_weights)
#define COMPARED_ON                                                                                                            \
    TEXT("inputs", 0, "FILE", "safetensors, .npz, a folder of .npy or sha256:…; inputs that it lacks are drawn", inputs)
#define COMPARED_BY                                                                                                            \
    TEXT("samples", 0, "N", "how many inputs are drawn at most (8)", samples), SEED,                                           \
        TEXT("tolerance", 0, "T", "how far apart outputs may be, relative to the largest number", tolerance), RANDOM_WEIGHTS
#define WHO TEXT("who", 0, "NAME", "who does it (the token's name, else $USER)", who)
#define WHY TEXT("why", 0, "TEXT", "why it is done", why)

#define ASYNC FLAG("async", 0, "do not wait: the service runs it as a job; see foldback help job", is_async)
#define GRAPH_NAMES                                                                                                                \
    "A graph is a file (- is standard input), or one of the store: sha256:…, run_… (the result of that run), MODEL@ALIAS or\n" \
    "MODEL:VERSION. The first 8 digits of an id are enough, or more if others begin so. Write a file of such a name as "           \
    "./NAME.\n"

/* Tables that several verbs have. */
extern const fb_option fb_help_options[], fb_store_options[], fb_plain_options[], fb_list_options[];

#endif
