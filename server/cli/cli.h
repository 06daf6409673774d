/* Declarations that the verbs share: their options, the client, and how they report.
 *
 * A function that returns an int returns an exit status: FB_EXIT_DONE, or another one after it has said why on standard error.
 */
#ifndef FB_CLI_CLI_H
#define FB_CLI_CLI_H

#include <jansson.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/base/sha256.h"
#include "core/document/document.h"
#include "core/weights/gguf.h"
#include "server/cli/client.h"
#include "server/cli/screen.h"
#include "server/cli/verb.h"

#define FB_GRACE_UNSET UINT32_MAX /* the service's own */

/* The values of the options of all verbs. */
typedef struct fb_cli_values {
    const char *data, *server;
    const char *database; /* of doctor */
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
    bool is_irreversible, changes_computation, preserves_computation;
    fb_text_list weights, names; /* files to bind; tensors to download */
    fb_text_list settings;       /* of a layout's parameters */
    const char *config;          /* a Hugging Face config.json */
    const char *metadata;        /* a GGUF file, whose metadata a written one gets */
    uint64_t shard_size;         /* bytes; 0: one file */
    const char *tied;
    const char *inputs, *seed, *precision, *validate, *samples, *tolerance; /* evaluating */
    const char *html;                                                       /* a page of a comparison */
    const char *metric, *at_least, *mask;                                   /* of a run's result */
    const char *against, *exec;                                             /* bisecting */
    const char *assume, *model;
    bool random_weights;
    const char *root; /* that has the files of an ONNX model */
    bool is_absent;   /* some of them are missing */
    bool is_strict;
    bool is_python;
    const char *reads_as, *prefix;                                 /* of files to bind */
    unsigned grace;                                                /* seconds */
    const char *scope, *expires, *action, *object, *since, *until; /* tokens and the audit */
    unsigned keep_runs_days, keep_runs, keep_audit_days;
    bool force, copies, unchecked; /* of data folders */
    bool yes;                      /* to what a terminal would be asked */
    const char *new_data;          /* of the store that db copy makes */
    const char *blobs, *blobs_endpoint, *blobs_region;
    const char *state; /* of jobs */
    bool is_async;
    bool wants_svg, stays_closed; /* pictures; the browser */
    fb_text_list open;            /* boxes of a picture */
    fb_text_list events, models;  /* of a webhook */
    const char *types;            /* of events */
    const char *url;
    bool enables, disables;
    unsigned overlap;  /* seconds */
    fb_text_list keys; /* that sign */
} fb_cli_values;

#define FB_OWN_PATH_MAX (PIPE_BUF - 8)

/* A data folder of this command alone. */
typedef struct fb_own_folder {
    char path[FB_OWN_PATH_MAX]; /* "": none */
    pid_t watcher;              /* removes it when the process has ended */
    int alive;                  /* closed by then */
} fb_own_folder;

/* Below $TMPDIR, or /tmp where that is too long. For a process that has no threads yet. */
int fb_own_folder_make(fb_own_folder *own);
/* Lets the child remove it, and waits for that. Does nothing without a folder. */
void fb_own_folder_remove(fb_own_folder *own);

struct fb_cli {
    const fb_verb *verb;
    fb_cli_values values;
    fb_arguments arguments;
    fb_folder_use folder; /* the verb's, or less */
    bool is_json;         /* JSON on standard output, not tables: it is not a terminal, or --json */
    bool has_colour;      /* of standard output */
    bool has_token;       /* of a service, once `client` is there */
    bool is_short;        /* a table could not be printed for want of memory */
    bool has_place;       /* an option or a variable names the store */
    fb_own_folder own_folder;
    fb_handed_graph handed; /* to the service in this process */
    fb_client *client;      /* NULL until it is needed */
};

/* Says where the store is, when no option does. */
int fb_cli_find_place(fb_cli *cli);

/* Starts a verb that has a `run`. argv: what follows the verb. */
int fb_cli_start(const fb_verb *verb, int argc, char **argv);

/* "foldback: …" for an error; FB_EXIT_FAILED, or FB_EXIT_FOLDER_IN_USE. */
int fb_cli_error(const fb_error *error);
int fb_cli_no_memory(void);

/* Reports the error of fb_client_copy to that file. */
int fb_cannot_copy(const char *path, const fb_error *error);

/* Makes the client, if there is none yet. */
int fb_cli_open(fb_cli *cli);

/* One request, with any answer; frees what is in `call`. `answer` is the caller's to free on FB_EXIT_DONE. */
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

/* Prints a problem (RFC 9457) in terms of commands: its sentence, then its places, conflicts and anything else it names, a line
 * each. */
void fb_problem_print(fb_cli *cli, const json_t *problem);

/* Prints a table and frees it. */
void fb_cli_table(fb_cli *cli, fb_screen_table *table);
/* A value on standard output, compact, and a line's end. */
int fb_cli_print_json(const json_t *value);
/* The plan of a layout (fb_layout_plan_write) as a line for each copy, and as a Python module that runs it. */
void fb_layout_plan_show(const json_t *plan);
void fb_layout_plan_python(const json_t *plan);

/* A text member, "" when it is missing or something else. */
const char *fb_text_of(const json_t *object, const char *name);
/* "yes" or "no". */
const char *fb_yes_no(const json_t *object, const char *name);

/* ---- Files, "-" being standard input and output -------------------------------------------------------------------------- */

/* How a message goes on that begins with "FOLDER is a folder": whose it is, and what to do. */
const char *fb_kind_of_folder(const char *path);
int fb_file_read(const char *path, fb_buffer *out);
int fb_file_write(const char *path, const char *bytes, size_t size);
/* Refuses, before anything is done, a checkpoint's output that cannot be written, or that would replace a file or contradict an
 * index of shards beside it; --force allows the last two. */
int fb_output_check(const fb_cli *cli, const char *path);

/* ---- Lists of the API, page by page -------------------------------------------------------------------------------------- */

typedef struct fb_list {
    json_t *items; /* owned */
    bool has_more; /* than --limit */
} fb_list;

/* Up to --limit items; steals the address. */
int fb_list_get(fb_cli *cli, fb_address *address, fb_list *out);

/* A row's cells, one for each heading. */
typedef void fb_list_row(const json_t *item, fb_screen_table *table);

/* The rows alone, as a table. */
void fb_list_print_table(fb_cli *cli, const json_t *items, const char *const *headings, size_t columns, fb_list_row *row);

/* As JSON or as a table with these headings, and frees the list. */
int fb_list_print(fb_cli *cli, fb_list *list, const char *const *headings, size_t columns, fb_list_row *row);

/* fb_list_get, then printed: as JSON, or as a table with these headings. */
int fb_list_show(fb_cli *cli, fb_address *address, const char *const *headings, size_t columns, fb_list_row *row);

/* The rows of runs. */
#define FB_RUN_COLUMNS 7
extern const char *const fb_run_headings[FB_RUN_COLUMNS];
fb_list_row fb_run_row;

/* "inference, MergeLinears": what was asked for; of a run from before that was kept, its passes. */
void fb_run_requested(const json_t *run, char *out, size_t space);
/* How many nodes it has "before" or "after". */
long long fb_run_nodes(const json_t *run, const char *when);

/* A cell with a graph's id, shortened: "sha256:5ede3ef8c7ed…". */
void fb_table_short_id(fb_screen_table *table, const char *id);
void fb_table_text(fb_screen_table *table, const json_t *object, const char *name);
/* On a terminal: "3 min ago", "1.2 MB". */
void fb_table_time(fb_screen_table *table, const json_t *object, const char *name);
void fb_table_size(fb_screen_table *table, const json_t *object, const char *name);
void fb_table_number(fb_screen_table *table, const json_t *object, const char *name);

/* ---- How a command line names a graph: a file, or something in the store ------------------------------------------------- */

#define FB_NAME_MAX 200 /* of a model, version or alias */

typedef enum fb_reference_kind {
    FB_REFERS_TO_FILE,    /* everything else; "./run_…" is always a file */
    FB_REFERS_TO_GRAPH,   /* sha256:…, or at least 8 digits of it that are not a file's name */
    FB_REFERS_TO_RUN,     /* run_…: its result */
    FB_REFERS_TO_ALIAS,   /* MODEL@ALIAS */
    FB_REFERS_TO_VERSION, /* MODEL:VERSION */
} fb_reference_kind;

typedef struct fb_reference {
    fb_reference_kind kind;
    const char *text;                                   /* as it was given */
    char model[FB_NAME_MAX + 1], part[FB_NAME_MAX + 1]; /* of an alias or a version */
} fb_reference;

fb_reference fb_reference_read(const char *text);
/* Where it cannot be a file. Also reads MODEL/VERSION, as the service's answers spell it. */
fb_reference fb_reference_read_stored(const char *text);

/* /v1/graphs/{id}, /v1/runs/{run}, …/aliases/{alias} or …/versions/{version}; not for files. */
void fb_reference_address(const fb_reference *reference, fb_address *out);

/* /v1/graphs/{id of the graph}, and then `part`. */
int fb_reference_graph_address(fb_cli *cli, const fb_reference *reference, const char *part, fb_address *out);
/* The document's bytes, as they are. */
int fb_reference_bytes(fb_cli *cli, const fb_reference *reference, fb_buffer *out);
/* Is this the name of an archive of torch.export or of an ONNX model? Such a file becomes a blob and a graph of the store when
 * it is referred to. */
bool fb_is_archive_name(const char *path);
bool fb_is_onnx_name(const char *path);
/* False for the file of a document alone: an archive is stored when it is referred to. */
bool fb_reference_needs_store(const fb_reference *reference);
/* Sends such a file, unless the store has it, and has its graph read and stored; of several programs the one of `model`, else
 * NULL. `answer` comes from POST /v1/graphs, and is the caller's to free on FB_EXIT_DONE. */
int fb_archive_put(fb_cli *cli, const char *path, const char *model, fb_answer *answer);
/* The same for an ONNX model, with the files beside it. */
int fb_onnx_put(fb_cli *cli, const char *path, fb_answer *answer);
/* Writes the ONNX model of a stored graph to --output, and its files beside it: `files` lists them, or is NULL. */
int fb_onnx_download(fb_cli *cli, const char *graph, json_t *files);
/* The graph, checked. */
int fb_reference_graph(fb_cli *cli, const fb_reference *reference, fb_graph **out);
/* The id that `text` is, or that alone begins so, of the items below `folder` ("/v1/graphs", "/v1/blobs"). */
int fb_whole_id(fb_cli *cli, const char *folder, const char *text, char id[FB_ID_LENGTH + 1]);
/* The graph's id. */
int fb_reference_id(fb_cli *cli, const fb_reference *reference, char id[FB_ID_LENGTH + 1]);

/* Reads a document; `errors` is the caller's (fb_errors_free), empty before. */
fb_status fb_read_any_document(const fb_buffer *bytes, fb_graph **out, fb_errors *errors);
/* "  /nodes/2/args/1: unknown-node: …" for each, and how many more there are. */
void fb_errors_print(const fb_errors *errors, const char *indent, FILE *out);

/* A page of HTML about POST /v1/compare's answer on the graphs that were called a and b. */
int fb_write_comparison_page(const char *path, const char *a, const char *b, const json_t *answer);

/* ---- Bodies of requests: `out` is the body under construction. Its failure is sticky, and found at the end --------------- */

void fb_request_begin(fb_buffer *out);
/* A member, unless `text` is NULL. Usage error when it is not UTF-8. */
int fb_request_text(fb_buffer *out, const char *name, const char *text);
/* A member that is a JSON object, given as text by --name. */
int fb_request_object(fb_buffer *out, const char *name, const char *text);
/* "passes" from --pass, unless there are none. When they are `undone`, digits are a position. A pass may be JSON: an object. */
int fb_request_passes(fb_buffer *out, const fb_text_list *passes, bool undone);
/* "labels" from --label key=value. */
int fb_request_labels(fb_buffer *out, const fb_text_list *labels);
/* A member that holds a graph, or its id. */
int fb_request_graph(fb_cli *cli, fb_buffer *out, const char *name, const fb_reference *graph);
/* "weights" from --weights, if there are any: files are sent first, so this comes after all that is checked here. */
int fb_request_weights(fb_cli *cli, fb_buffer *out);
/* "seed", a number, unless `text` is NULL. */
int fb_request_seed(fb_buffer *out, const char *text);
/* "inputs" from --inputs: the file is sent first, so this comes after all that is checked here. */
int fb_request_inputs(fb_cli *cli, fb_buffer *out);
/* "tolerance", relative, of a number's text, or NULL. */
int fb_request_tolerance(const char *text, fb_buffer *out);
/* The members of a request for a verdict, from --inputs, --samples and so on; files are sent first. */
int fb_request_judging(fb_cli *cli, fb_buffer *out);
int fb_request_end(fb_buffer *out);

/* ---- Keys that sign ------------------------------------------------------------------------------------------------------ */

struct fb_signing_key;

/* Reads a file; a private key is wanted that others cannot read, or (not is_private) either key. */
int fb_signing_key_load(const char *path, bool is_private, struct fb_signing_key **out);

/* ---- A run on a terminal ------------------------------------------------------------------------------------------------- */

/* "NAME  value" lines; ends with a NULL name. An empty value is left out. */
typedef struct fb_fact {
    const char *name, *value;
} fb_fact;
void fb_print_facts(fb_cli *cli, const fb_fact *facts);

void fb_print_run(fb_cli *cli, const json_t *run);
/* Appends a word as a shell reads it back. */
void fb_quote_word(const char *word, fb_buffer *out);
/* Takes a member, not the first one, out of an object's text: so numbers are printed as they came, and a document is written
 * byte for byte. */
bool fb_cut_member(fb_buffer *text, const char *name, fb_buffer *value);
/* Prints what was bound to a graph, if anything was. */
void fb_print_binding(fb_cli *cli, const json_t *weights);

/* A cell with a number of a difference (max_absolute …), short. */
/* Prints the outputs of a verdict, why they are not the same, and the first node that differs. */
void fb_print_compared(fb_cli *cli, const json_t *answer);
void fb_table_deviation(fb_screen_table *table, const json_t *difference, const char *name);

/* `foldback show` of its argument, and of a model: run, graph and model show do it as well. */
int fb_cli_show(fb_cli *cli);
int fb_cli_model_show(fb_cli *cli);

/* ---- A job on a terminal ------------------------------------------------------------------------------------------------- */

void fb_print_job(fb_cli *cli, const json_t *job);

/* ---- Models, versions and aliases on a terminal -------------------------------------------------------------------------- */

void fb_print_alias(fb_cli *cli, const json_t *alias);
void fb_print_version(fb_cli *cli, const json_t *version);

/* foldback rollback MODEL@ALIAS */
int fb_rollback_alias(fb_cli *cli, const fb_reference *alias);

/* ---- Answers that are too large for memory, to a file or to standard output ---------------------------------------------- */

/* GETs the address, which it steals, into --output, or into standard output when that is not a terminal. A file gets its name
 * when it is whole; until then it is FILE.<8 hex digits of what it is a part of>.part, and a later call goes on where this one
 * was interrupted. `digest` is the bytes' where it is known, else NULL. */
int fb_download(fb_cli *cli, fb_address *address, const char *digest);

/* True if shards can be named after it: it ends in ".safetensors". */
bool fb_can_be_sharded(const char *path);
/* The same for a safetensors file, as shards of up to `limit` bytes of tensors and their index; as one file where that is
 * enough. All files or none get their names. */
int fb_download_shards(fb_cli *cli, fb_address *address, uint64_t limit);

/* ---- Files that are, or are to become, blobs of the store ---------------------------------------------------------------- */

/* Opens a file to be sent; the caller closes it. */
int fb_sent_file_open(const char *path, fb_sent_file *out);
/* The same of inputs, which may also be a folder of .npy files: they are sent as one safetensors file. */
int fb_sent_inputs_open(const char *path, fb_sent_file *out);
/* Has the folder files of arrays? */
bool fb_is_npy_folder(const char *path);
/* Appends a safetensors file of the folder's arrays, by the names of their files. */
int fb_npy_folder_join(const char *path, fb_buffer *out);

typedef struct fb_blob_file {
    char *path;                    /* owned; NULL: it was given as a digest */
    char digest[FB_ID_LENGTH + 1]; /* "": not yet found */
    uint64_t size;                 /* of a path */
    bool is_missing, is_sent;
    struct stat facts;             /* before it was read, if it is */
    bool is_recalled, is_new_here; /* its digest was found before; or not, and is to be remembered */
} fb_blob_file;

/* The digest of a file that was hashed before and is the same still, as the data folder remembers it (known_files.c). */
bool fb_known_file_recall(const char *folder, const char *path, const struct stat *facts, char digest[FB_ID_LENGTH + 1]);
void fb_known_file_remember(const char *folder, const char *path, const struct stat *facts, const char *digest);

typedef struct fb_blob_files {
    fb_blob_file *items;
    size_t count, capacity;
} fb_blob_files;

/* Is this the name of an index of shards, "model.safetensors.index.json"? */
bool fb_is_index_name(const char *path);
/* Reads words of a command line, each a path or the digest of a blob, perhaps a short one, and adds up the files. The shards
 * that a model.safetensors.index.json names come along with it; a folder is the index or the file in it. fb_blob_files_free is
 * due in either case. */
int fb_blob_files_read(fb_cli *cli, const char *const *words, size_t count, fb_blob_files *out);
/* Adds one file, whatever its name is. Steals the path; NULL: memory is out. */
int fb_blob_files_add_take(fb_blob_files *files, char *path);
void fb_blob_files_free(fb_blob_files *files);
/* Refuses where some shards of a checkpoint are given and others are not. */
int fb_blob_files_check_shards(const fb_blob_files *files);

/* Writing the weights of a graph that the store does not have yet (layout_ahead.c). */
typedef struct fb_ahead fb_ahead;
/* Begins to write them to the place of `output`, in a thread. The graph calls the files by the digests in `files`. Takes the
 * graph. NULL: not here. */
fb_ahead *fb_ahead_begin_take(const char *output, const fb_blob_files *files, fb_graph *graph);
/* Finishes the file, as the weights of that graph of the store. False: there is none, and it must be written from the store. */
bool fb_ahead_finish(fb_cli *cli, fb_ahead *ahead, const char *graph);
void fb_ahead_free(fb_ahead *ahead); /* also before it is finished: then nothing is left of it */

/* Reads the files whose digests are not yet found. */
int fb_blob_files_digest(fb_blob_files *files);
/* Asks which of them the store lacks. */
int fb_blob_files_ask(fb_cli *cli, fb_blob_files *files);
/* The same, and sends those; of a digest that is missing there is nothing to send. A file that cannot be in a store of this
 * process is read once: its digest is found while it is stored. */
int fb_blob_files_send(fb_cli *cli, fb_blob_files *files);

/* ---- GGUF --------------------------------------------------------------------------------------------------------------- */

#define FB_GGUF_ARCHITECTURE "gguf_architecture" /* of `config` */

/* A GGUF file's header. */
typedef struct fb_gguf_source {
    unsigned char *header;
    fb_gguf file;
} fb_gguf_source;

/* The GGUF files that a command reads, as safetensors files for as long as it runs, and the one that it writes in the end. */
typedef struct fb_gguf_conversion {
    fb_gguf_source like; /* whose metadata a written file gets */
    bool has_like;
    json_t *config, *types; /* of those that were read */
    const char *output;     /* NULL: none is written */
    char *made, **parts;    /* the safetensors file before that; those of files that were read */
    size_t part_count;
} fb_gguf_conversion;

/* Puts safetensors files in the place of GGUF files, and of the command's output if that is to be one. fb_gguf_end is due in
 * either case. */
int fb_gguf_begin(fb_cli *cli, fb_blob_files *files, fb_gguf_conversion *out);
/* Makes the written file, which has the graph's weights, a GGUF file if it is to be one. */
int fb_gguf_finish(fb_cli *cli, fb_gguf_conversion *conversion, const char *graph);
void fb_gguf_end(fb_cli *cli, fb_gguf_conversion *conversion);

#endif
