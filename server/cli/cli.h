/* What the verbs share: their options, the client, and how they report.
 *
 * A function that returns an int returns an exit status: FB_EXIT_DONE, or another one after it has said why on standard error.
 */
#ifndef FB_CLI_CLI_H
#define FB_CLI_CLI_H

#include <jansson.h>

#include "server/cli/client.h"
#include "server/cli/screen.h"
#include "server/cli/verb.h"

#define FB_GRACE_UNSET UINT32_MAX /* the service's own */

/* What the options set, those of all verbs. */
typedef struct fb_cli_values {
    const char *data, *server;
    const char *token_file, *ca_file;
    unsigned patience_ms; /* with a service; 0: any */
    bool wants_json, wants_help;
    const char *output;
    fb_text_list passes, labels;
    const char *note, *lint;
    bool dry_run;
    const char *run, *to, *from, *as, *who, *why;                                           /* undoing and deploying */
    const char *name, *kind, *structure, *source, *result, *pass, *signature, *op, *target; /* what lists are asked for */
    unsigned limit;
    bool wants_edits, wants_structure;
    const char *params;
    unsigned version;
    bool is_irreversible, changes_computation;
    fb_text_list weights, names; /* files to bind; tensors to download */
    const char *tied;
    const char *inputs, *seed, *precision, *validate; /* evaluating */
    bool random_weights;
    bool is_strict;
    const char *reads_as, *prefix;                                 /* of files to bind */
    unsigned grace;                                                /* seconds */
    const char *scope, *expires, *action, *object, *since, *until; /* tokens and the audit */
    unsigned keep_runs_days, keep_runs, keep_audit_days;
    bool force, copies, unchecked; /* of data folders */
    const char *state;             /* of jobs */
    bool is_async;
} fb_cli_values;

struct fb_cli {
    const fb_verb *verb;
    fb_cli_values values;
    fb_arguments arguments;
    fb_folder_use folder; /* the verb's, or less */
    bool is_json;         /* JSON on standard output, not tables: it is no terminal, or --json */
    bool has_colour;      /* of standard output */
    bool is_short;        /* a table could not be printed for want of memory */
    fb_client *client;    /* NULL until it is needed */
};

/* Says where the store is, when no option does. */
int fb_cli_find_place(fb_cli *cli);

/* Starts a verb that has a `run`. argv: what follows the verb. */
int fb_cli_start(const fb_verb *verb, int argc, char **argv);

/* "foldback: …" for an error; FB_EXIT_FAILED, or FB_EXIT_FOLDER_IN_USE. */
int fb_cli_error(const fb_error *error);
int fb_cli_no_memory(void);

/* Makes the client, if there is none yet. */
int fb_cli_open(fb_cli *cli);

/* One request, whatever its answer says; frees what is in `call`. `answer` is the caller's to free on FB_EXIT_DONE. */
int fb_cli_try(fb_cli *cli, fb_call *call, fb_answer *answer);
/* Reports a problem; FB_EXIT_FAILED. Frees the answer. */
int fb_cli_refused(fb_cli *cli, fb_answer *answer);
/* One request; any answer but 2xx is reported. Frees what is in `call`; `answer` is the caller's to free on FB_EXIT_DONE. */
int fb_cli_call(fb_cli *cli, fb_call *call, fb_answer *answer);
/* The same, parsed; the caller's reference. `etag` (170 bytes, as fb_answer) may be NULL. */
int fb_cli_call_json(fb_cli *cli, fb_call *call, json_t **out, char *etag);
/* One request whose answer is printed as it came. */
int fb_cli_relay(fb_cli *cli, fb_call *call);
/* fb_cli_call_json for a GET; steals the address. */
int fb_cli_get(fb_cli *cli, fb_address *address, json_t **out, char *etag);

/* Prints a problem (RFC 9457) in terms of commands: its sentence, then its places, conflicts and whatever else it names, a line
 * each. */
void fb_problem_print(fb_cli *cli, const json_t *problem);

/* Prints a table and frees it. */
void fb_cli_table(fb_cli *cli, fb_screen_table *table);
/* A value on standard output, compact, and a line's end. */
int fb_cli_print_json(const json_t *value);

/* A text member, "" when it is missing or something else. */
const char *fb_text_of(const json_t *object, const char *name);
/* "yes" or "no". */
const char *fb_yes_no(const json_t *object, const char *name);

#endif
