#include "server/cli/actions.h"
#include "server/serve.h"

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
#define CA_FILE TEXT("ca-file", 0, "FILE", "of --server: trust these certificates (PEM), not the system's", ca_file)
#define CREDENTIALS                                                                                                            \
    TEXT("token-file", 0, "FILE", "of --server: the token is the first line of it ($FOLDBACK_TOKEN)", token_file), CA_FILE
#define STORE                                                                                                                  \
    TEXT("data", 0, "DIR", "the data folder; also $FOLDBACK_DATA (./.foldback)", data),                                        \
        TEXT("server", 0, "URL", "talk to a service instead ($FOLDBACK_SERVER)", server), CREDENTIALS
#define JSON FLAG("json", 0, "JSON, as it is when the output is no terminal", wants_json)
#define END                                                                                                                    \
    FLAG("help", 'h', "this text", wants_help), {                                                                              \
        0                                                                                                                      \
    }
#define OUTPUT TEXT("output", 'o', "FILE", "write the resulting graph there; - is standard output, alone", output)
#define UNDONE NAMES("pass", 'p', "PASS,PASS", "undo these passes only: names, or positions from 0; may be repeated", passes)
#define NOTE TEXT("note", 0, "TEXT", "a note to keep with it", note)
#define LABEL LIST("label", 0, "KEY=VALUE", "a label to keep with it; may be repeated", labels)
#define DRY_RUN FLAG("dry-run", 'n', "store nothing", dry_run)
#define LIMIT COUNT("limit", "N", "how many to list; 0 is all (50)", limit)
#define WEIGHTS LIST("weights", 0, "FILE", "bind these weights: a safetensors file or sha256:…; may be repeated", weights)
#define READS_AS                                                                                                               \
    TEXT("as", 0, "WHOSE", "read the files as source (the weights before the passes) or finished (after them)", reads_as)
#define PREFIX TEXT("prefix", 0, "PREFIX", "take this off the names in the files, or put it before them: bert.", prefix)
#define GOES_TO TEXT("output", 'o', "FILE", "write it there; an interrupted download is gone on with", output)
#define SEED TEXT("seed", 0, "N", "of what is random (0)", seed)
#define RANDOM_WEIGHTS FLAG("random-weights", 0, "draw weights that are not here", random_weights)
#define WHO TEXT("who", 0, "NAME", "who does it ($USER)", who)
#define WHY TEXT("why", 0, "TEXT", "why it is done", why)

#define ASYNC FLAG("async", 0, "do not wait for it: the service does it as a job; see foldback job", is_async)
#define GRAPH_NAMES                                                                                                               \
    "A graph is a file (- is standard input), or what the store has: sha256:…, the result of a run (run_…), MODEL@ALIAS or\n" \
    "MODEL:VERSION. The beginning of an id will do if no other begins so. A file with such a name is written ./NAME.\n"

static const fb_option help_options[] = {END};
static const fb_option optimize_options[] = {
    NAMES("pass", 'p', "PASS,PASS", "the passes to apply, by name, in order; may be repeated", passes),
    WEIGHTS,
    READS_AS,
    PREFIX,
    OUTPUT,
    TEXT("lint", 0, "WHEN", "when to verify: end, each (after each pass) or none (end)", lint),
    TEXT("validate", 0, "HOW", "what must compute the same after each pass: off, rewrites or graph (off)", validate),
    SEED,
    NOTE,
    LABEL,
    DRY_RUN,
    ASYNC,
    STORE,
    JSON,
    END,
};
static const fb_option reverse_options[] = {
    UNDONE, TEXT("run", 0, "RUN", "the run to undo, when the graph does not say it", run),
    OUTPUT, NOTE,
    LABEL,  DRY_RUN,
    ASYNC,  STORE,
    JSON,   END,
};
static const fb_option rollback_options[] = {
    UNDONE,
    TEXT("to", 0, "VERSION", "of an alias: back to this version, not to the one before", to),
    TEXT("as", 0, "VERSION", "of an alias, with --pass: the name of the new version", as),
    OUTPUT,
    WHO,
    WHY,
    NOTE,
    LABEL,
    DRY_RUN,
    ASYNC,
    STORE,
    JSON,
    END,
};
static const fb_option record_options[] = {
    TEXT("name", 0, "NAME", "what the pass is called", name),
    TEXT("params", 0, "JSON", "its parameters, an object", params),
    {"version", 0, "N", "its version (1)", FB_OPTION_COUNT, AT(version), 1, INT32_MAX},
    FLAG("irreversible", 0, "it cannot be reversed, only rolled back", is_irreversible),
    FLAG("changes-computation", 0, "its result computes something else", changes_computation),
    NOTE,
    LABEL,
    STORE,
    JSON,
    END,
};
static const fb_option graph_options[] = {STORE, END};
static const fb_option diff_options[] = {
    FLAG("edits", 'e', "the edits instead of the code", wants_edits),
    STORE,
    FLAG("json", 0, "the edits as JSON", wants_json),
    END,
};
static const fb_option evaluate_options[] = {
    TEXT("inputs", 0, "FILE", "a safetensors file of them; without it they are random, of the recorded shapes", inputs),
    TEXT("output", 'o', "FILE", "write the outputs there, as safetensors; - is standard output", output),
    TEXT("precision", 0, "HOW", "recorded, or float64 throughout (recorded)", precision),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    END,
};
static const fb_option compare_options[] = {
    TEXT("inputs", 0, "FILE", "a safetensors file or sha256:…; what it lacks is random, of the recorded shape", inputs),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    JSON,
    END,
};
static const fb_option verify_options[] = {STORE, FLAG("json", 0, "the findings as JSON", wants_json), END};
static const fb_option id_options[] = {
    FLAG("structure", 0, "the id without names, metadata and weights: two tracings of one model share it", wants_structure),
    STORE,
    END,
};
static const fb_option passes_options[] = {STORE, JSON, END};
static const fb_option ready_options[] = {TEXT("server", 0, "URL", "the service (http://127.0.0.1:8080)", server), CA_FILE,
                                          JSON, END};
static const fb_option transformation_options[] = {LIMIT, STORE, JSON, END};
static const fb_option graphs_options[] = {
    TEXT("name", 0, "NAME", "graphs of this name", name),
    TEXT("structure", 0, "ID", "graphs of this structure (foldback id --structure)", structure),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option runs_options[] = {
    TEXT("kind", 0, "KIND", "runs of this kind: optimize, reverse, rollback or external", kind),
    TEXT("source", 0, "ID", "runs that started from this graph", source),
    TEXT("result", 0, "ID", "runs that made this graph", result),
    TEXT("of-run", 0, "RUN", "runs that undid this one", run),
    TEXT("pass", 'p', "NAME", "runs with this pass", pass),
    TEXT("signature", 0, "HEX", "runs with this signature, of all passes or of one", signature),
    LIST("label", 0, "KEY[=VALUE]", "runs with this label; may be repeated", labels),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option nodes_options[] = {
    TEXT("pass", 'p', "NAME", "nodes that this pass marked", pass),
    TEXT("signature", 0, "HEX", "nodes that carry this signature", signature),
    TEXT("op", 0, "OP", "nodes of this kind: call_module, call_function, placeholder and so on", op),
    TEXT("target", 0, "TARGET", "nodes with this target", target),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option show_options[] = {STORE, JSON, END};
static const fb_option models_options[] = {LIMIT, STORE, JSON, END};
static const fb_option register_options[] = {NOTE, STORE, JSON, END};
static const fb_option deploy_options[] = {
    TEXT("from", 0, "VERSION", "only if the alias is at this version now", from), WHO, WHY, STORE, JSON, END,
};
static const fb_option delete_options[] = {STORE, END};
static const fb_option weights_options[] = {
    GOES_TO,
    NAMES("names", 0, "NAME,NAME", "these tensors only, by an owner's path; may be repeated", names),
    TEXT("tied", 0, "each", "a tensor that several modules own is written for each of them, not for the first", tied),
    STORE,
    END,
};
static const fb_option bind_options[] = {
    FLAG("strict", 0, "refuse when tensors are missing or extra, too", is_strict), READS_AS, PREFIX, OUTPUT, STORE, JSON, END,
};
static const fb_option upload_options[] = {STORE, JSON, END};
static const fb_option download_options[] = {GOES_TO, STORE, END};
static const fb_option blobs_options[] = {LIMIT, STORE, JSON, END};
static const fb_option gc_options[] = {
    FLAG("dry-run", 'n', "only count", dry_run),
    {"grace", 0, "SECONDS", "how long what nothing needs is kept (86400)", FB_OPTION_COUNT, AT(grace), 0, UINT32_MAX - 1},
    {"keep-runs-days", 0, "DAYS", "remove older runs that nothing needs, too", FB_OPTION_COUNT, AT(keep_runs_days), 1, 36500},
    {"keep-runs", 0, "N", "remove runs beyond the newest N that nothing needs, too", FB_OPTION_COUNT, AT(keep_runs), 1,
     UINT32_MAX},
    STORE,
    JSON,
    END,
};

static const fb_option db_options[] = {
    TEXT("data", 0, "DIR", "the data folder; also $FOLDBACK_DATA (./.foldback)", data),
    FLAG("copy", 0, "backup: copy the files of blobs, also where links to them would do", copies),
    FLAG("force", 0, "restore: replace a folder that is not empty; it stays beside it, under another name", force),
    FLAG("unchecked", 0, "restore: also a backup that is damaged", unchecked),
    JSON,
    END,
};
static const fb_option token_options[] = {
    TEXT("scope", 0, "SCOPE", "create: what it may do: read, write or admin, each with those before it", scope),
    TEXT("name", 0, "NAME", "create: who will use it; the audit names it so (made up)", name),
    TEXT("expires", 0, "WHEN", "create: in 90d, 12h, 30m, or at 2026-12-31 or a time of RFC 3339 (never)", expires),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option audit_options[] = {
    TEXT("who", 0, "NAME", "acts of this token; or anonymous, local, service", who),
    TEXT("action", 0, "ACTION", "acts of this kind: optimize, alias-deploy, token-create and so on", action),
    TEXT("object", 0, "OBJECT", "acts on this: a run, MODEL@ALIAS, MODEL:VERSION, a graph, a token", object),
    TEXT("since", 0, "WHEN", "not before this date or time (UTC)", since),
    TEXT("until", 0, "WHEN", "before this date or time", until),
    LIMIT,
    STORE,
    JSON,
    END,
};

static const fb_option job_options[] = {
    TEXT("state", 0, "STATE", "list: only those that are queued, running, succeeded, failed or cancelled", state),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_verbs[] = {
    {.name = "optimize",
     .arguments = "GRAPH",
     .summary = "applies passes to a graph; graph, result and run are stored",
     .description = GRAPH_NAMES "A pass with parameters: --pass '{\"name\": …, \"params\": {…}}'.\n",
     .options = optimize_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_optimize},
    {.name = "reverse",
     .arguments = "GRAPH|RUN",
     .summary = "undoes passes of a run, on its result or on a graph that was changed since",
     .description =
         GRAPH_NAMES "Every undone pass must be reversible. What does not fit any more is listed, and nothing is done.\n",
     .options = reverse_options,
     .run = fb_cli_reverse},
    {.name = "rollback",
     .arguments = "RUN|MODEL@ALIAS",
     .summary = "returns exactly to before a run, or before a deployment; any pass can be undone",
     .description =
         "Of a run: its source, or with --pass its source with the other passes. Of an alias: the version before the\n"
         "present one, or --to VERSION, or with --pass a new version of what is deployed without these passes.\n",
     .options = rollback_options,
     .run = fb_cli_rollback},
    {.name = "record",
     .arguments = "SOURCE RESULT",
     .summary = "records what a pass of your own made of a graph, so that it can be undone",
     .description = GRAPH_NAMES,
     .options = record_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_record},
    {.name = "code",
     .arguments = "GRAPH",
     .summary = "prints a graph's forward() as Python",
     .description = GRAPH_NAMES,
     .options = graph_options,
     .run = fb_cli_code},
    {.name = "diff",
     .arguments = "GRAPH [GRAPH]",
     .summary = "compares the code of two graphs, or of a run's source and result",
     .description = GRAPH_NAMES,
     .options = diff_options,
     .run = fb_cli_diff},
    {.name = "evaluate",
     .arguments = "GRAPH",
     .summary = "computes what a graph gives, on inputs of yours or on random ones",
     .description = GRAPH_NAMES "The store must have it, and the bytes of its weights: see foldback bind.\n",
     .options = evaluate_options,
     .run = fb_cli_evaluate},
    {.name = "compare",
     .arguments = "GRAPH GRAPH",
     .summary = "evaluates two graphs on the same inputs, and says how far they are apart",
     .description = GRAPH_NAMES "Exit status 1 when they differ by more than rounding explains.\n",
     .options = compare_options,
     .run = fb_cli_compare},
    {.name = "verify",
     .arguments = "GRAPH",
     .summary = "checks a graph, and lists everything that is wrong: where, code, why",
     .description = GRAPH_NAMES,
     .options = verify_options,
     .run = fb_cli_verify},
    {.name = "id",
     .arguments = "GRAPH",
     .summary = "prints a graph's id",
     .description = GRAPH_NAMES,
     .options = id_options,
     .run = fb_cli_id},
    {.name = "passes",
     .arguments = "[NAME]",
     .summary = "lists the passes, or describes one",
     .options = passes_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_passes},
    {.name = "transformation",
     .arguments = "put FILE|ls [NAME]|show NAME[:VERSION]",
     .summary = "makes a rule a pass of your own, lists those, or shows one",
     .description = "A rule is JSON: a pattern, conditions and a replacement. The same name again makes the next version.\n",
     .options = transformation_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_transformation},
    {.name = "graphs",
     .arguments = "",
     .summary = "lists the graphs of the store",
     .options = graphs_options,
     .run = fb_cli_graphs},
    {.name = "runs", .arguments = "", .summary = "lists the runs", .options = runs_options, .run = fb_cli_runs},
    {.name = "nodes",
     .arguments = "GRAPH",
     .summary = "lists a graph's nodes and the signatures that passes left on them",
     .description = GRAPH_NAMES "The store must have it: of a file, the graph with its id is taken.\n",
     .options = nodes_options,
     .run = fb_cli_nodes},
    {.name = "show",
     .arguments = "THING",
     .summary = "shows a run, a graph's history, a version or an alias",
     .description = "A thing is run_…, sha256:…, a file, MODEL:VERSION or MODEL@ALIAS.\n",
     .options = show_options,
     .run = fb_cli_show},
    {.name = "models",
     .arguments = "[MODEL]",
     .summary = "lists the models, or the versions and aliases of one",
     .options = models_options,
     .run = fb_cli_models},
    {.name = "register",
     .arguments = "MODEL:VERSION GRAPH",
     .summary = "makes a graph, or a run's result, a version of a model",
     .description = GRAPH_NAMES "A version never changes.\n",
     .options = register_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_register},
    {.name = "deploy",
     .arguments = "MODEL@ALIAS VERSION",
     .summary = "makes an alias name a version",
     .description = "Refused when somebody else moves the alias at the same time.\n",
     .options = deploy_options,
     .run = fb_cli_deploy},
    {.name = "history",
     .arguments = "MODEL@ALIAS",
     .summary = "lists what an alias named, when, by whom and why",
     .options = models_options,
     .run = fb_cli_history},
    {.name = "delete",
     .arguments = "THING",
     .summary = "deletes a graph, a version or an alias that nothing needs",
     .description = "A thing is sha256:…, MODEL:VERSION or MODEL@ALIAS. Runs and histories stay.\n",
     .options = delete_options,
     .run = fb_cli_delete},
    {.name = "weights",
     .arguments = "GRAPH",
     .summary = "writes a graph's weights as one safetensors file; recipes are evaluated on the way",
     .description = GRAPH_NAMES "The store must have it, and the bytes that its tensors are made from: see foldback bind.\n",
     .options = weights_options,
     .run = fb_cli_weights},
    {.name = "bind",
     .arguments = "GRAPH FILE...",
     .summary = "gives a graph's tensors the bytes of safetensors files; the graph that this makes is stored",
     .description =
         GRAPH_NAMES "A file is uploaded unless the store has it; one that it has can be named by its digest, sha256:…. A\n"
                     "model.safetensors.index.json brings its shards with it.\n",
     .options = bind_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_bind},
    {.name = "upload",
     .arguments = "FILE...",
     .summary = "makes files blobs of the store, those that it lacks",
     .description = "What no graph needs is removed after a day: see foldback gc.\n",
     .options = upload_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_upload},
    {.name = "download",
     .arguments = "DIGEST",
     .summary = "writes a blob to a file, and checks its digest",
     .options = download_options,
     .run = fb_cli_download},
    {.name = "missing",
     .arguments = "FILE|DIGEST...",
     .summary = "says which of these the store lacks",
     .options = upload_options,
     .run = fb_cli_missing},
    {.name = "blobs",
     .arguments = "",
     .summary = "lists the blobs of the store",
     .options = blobs_options,
     .run = fb_cli_blobs},
    {.name = "gc",
     .arguments = "",
     .summary = "removes blobs that no stored graph needs, uploads that nobody finished, and, if asked, old runs",
     .description = "A service does so by itself, once an hour.\n",
     .options = gc_options,
     .run = fb_cli_gc},
    {.name = "job",
     .arguments = "list|show ID|wait ID|result ID|cancel ID",
     .summary = "what a service does in the background: see --async of optimize, reverse and rollback",
     .description =
         "wait returns when the job has ended, with exit status 0 if it has succeeded. result is the answer that the\n"
         "request would have had at once.\n",
     .options = job_options,
     .run = fb_cli_job},
    {.name = "token",
     .arguments = "create|list|revoke NAME",
     .summary = "makes a token, lists them, or revokes one",
     .description = "A token is shown once, when it is made. From the first one on a service needs one for every request; on\n"
                    "the data folder itself, while no service holds it, none is needed.\n",
     .options = token_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_token},
    {.name = "audit",
     .arguments = "",
     .summary = "lists who did what, and when",
     .options = audit_options,
     .run = fb_cli_audit},
    {.name = "ready",
     .arguments = "",
     .summary = "asks a service whether it can do its work; for health checks",
     .description = "Exit status 0 when it can. The service is --server, $FOLDBACK_SERVER, or http://127.0.0.1:8080.\n",
     .options = ready_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_ready},
    {.name = "db",
     .arguments = "check|backup FOLDER|restore FOLDER",
     .summary = "checks, backs up or restores a data folder",
     .description =
         "check reads all of it, computes every id and digest again and does every run again; exit status 1 when something\n"
         "is wrong, 3 when a service holds the folder. backup makes FOLDER, a data folder itself, while a service goes on.\n"
         "restore puts such a folder in the place of the data folder, after it was checked.\n",
     .options = db_options,
     .run = fb_cli_db},
    {.name = "serve",
     .arguments = "",
     .summary = "runs the HTTP service",
     .description =
         "Serves the HTTP API until SIGTERM or SIGINT, then finishes what runs and exits; a second signal ends it at\n"
         "once. Prints a line when it is ready: listening on http://127.0.0.1:8080; with --metrics-listen another one:\n"
         "metrics on http://127.0.0.1:9464/metrics\n\n"
         "BYTES take the suffixes K, M and G.\n",
     .options = fb_serve_options,
     .start = fb_serve},
    {.name = "help",
     .arguments = "[VERB]",
     .summary = "lists the verbs, or tells what one takes",
     .options = help_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_help},
    {0},
};
