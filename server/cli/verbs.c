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
#define SEED TEXT("seed", 0, "N", "random seed (0)", seed)
#define RANDOM_WEIGHTS FLAG("random-weights", 0, "use random weights where the store has none", random_weights)
#define WHO TEXT("who", 0, "NAME", "who does it ($USER)", who)
#define WHY TEXT("why", 0, "TEXT", "why it is done", why)

#define ASYNC FLAG("async", 0, "do not wait: the service runs it as a job; see foldback help job", is_async)
#define GRAPH_NAMES                                                                                                                \
    "A graph is a file (- is standard input), or one of the store: sha256:…, run_… (the result of that run), MODEL@ALIAS or\n" \
    "MODEL:VERSION. The first 8 digits of an id are enough, or more if others begin so. Write a file of such a name as "           \
    "./NAME.\n"

static const fb_option help_options[] = {END};
static const fb_option optimize_options[] = {
    NAMES("pass", 'p', "PASS,PASS", "the passes to apply, by name, in order; may be repeated", passes),
    WEIGHTS,
    READS_AS,
    PREFIX,
    OUTPUT,
    TEXT("lint", 0, "end|each|none", "when to verify: at the end, after each pass, or not (end)", lint),
    TEXT("validate", 0, "off|rewrites|graph", "what must compute the same after each pass (off)", validate),
    TEXT("assume", 0, "DTYPE", "record dtypes that follow from weights; an input without a dtype gets this one", assume),
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
    UNDONE, TEXT("run", 0, "RUN", "the run to undo, if the graph does not name it", run),
    OUTPUT, NOTE,
    LABEL,  DRY_RUN,
    ASYNC,  STORE,
    JSON,   END,
};
static const fb_option rollback_options[] = {
    UNDONE,
    TEXT("to", 0, "VERSION", "for an alias: go back to this version, not to the one before", to),
    TEXT("as", 0, "VERSION", "for an alias, with --pass: the name of the new version", as),
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
    TEXT("inputs", 0, "FILE", "a safetensors file; without it, inputs are random, of the recorded shapes", inputs),
    TEXT("output", 'o', "FILE", "write the outputs there, as safetensors; - is standard output", output),
    TEXT("precision", 0, "recorded|float64", "as recorded, or float64 throughout (recorded)", precision),
    SEED,
    RANDOM_WEIGHTS,
    STORE,
    END,
};
static const fb_option compare_options[] = {
    TEXT("inputs", 0, "FILE", "a safetensors file or sha256:…; inputs it lacks are random, of the recorded shapes", inputs),
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
static const fb_option put_options[] = {
    TEXT("model", 0, "NAME", "which program of a .pt2 archive with several", model),
    STORE,
    JSON,
    END,
};
static const fb_option plain_options[] = {STORE, JSON, END};
static const fb_option ready_options[] = {TEXT("server", 0, "URL", "the service (http://127.0.0.1:8080)", server), CA_FILE,
                                          JSON, END};
static const fb_option doctor_options[] = {
    TEXT("store", 0, "postgresql://USER@HOST/DB", "of --data: the database, if the folder does not name it ($FOLDBACK_STORE)",
         database),
    STORE,
    JSON,
    END,
};
static const fb_option list_options[] = {LIMIT, STORE, JSON, END};
static const fb_option show_options[] = {
    FLAG("svg", 0, "a picture of the graph, or of what a run changed, as SVG", wants_svg),
    LIST("open", 0, "MODULE", "with --svg: open this module, such as encoder.layer.3; may be repeated", open),
    TEXT("output", 'o', "FILE", "with --svg: write it there (standard output)", output),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option ui_options[] = {
    FLAG("no-browser", 0, "print the address, and open nothing", stays_closed),
    STORE,
    END,
};
static const fb_option graphs_options[] = {
    TEXT("name", 0, "NAME", "graphs of this name", name),
    TEXT("structure", 0, "ID", "graphs of this structure (foldback id --structure)", structure),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option runs_options[] = {
    TEXT("kind", 0, "optimize|reverse|rollback|external", "runs of this kind", kind),
    TEXT("source", 0, "ID", "runs that started from this graph", source),
    TEXT("result", 0, "ID", "runs that made this graph", result),
    TEXT("of-run", 0, "RUN", "runs that undid this one", run),
    TEXT("pass", 'p', "PASS", "runs with this pass", pass),
    TEXT("signature", 0, "HEX", "runs with this signature, of all passes or of one", signature),
    LIST("label", 0, "KEY[=VALUE]", "runs with this label; may be repeated", labels),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option nodes_options[] = {
    TEXT("pass", 'p', "PASS", "nodes that this pass marked", pass),
    TEXT("signature", 0, "HEX", "nodes that carry this signature", signature),
    TEXT("op", 0, "OP", "nodes of this kind: call_module, call_function, placeholder and so on", op),
    TEXT("target", 0, "TARGET", "nodes with this target", target),
    LIMIT,
    STORE,
    JSON,
    END,
};
static const fb_option register_options[] = {NOTE, STORE, JSON, END};
static const fb_option deploy_options[] = {
    TEXT("from", 0, "VERSION", "only if the alias is at this version now", from), WHO, WHY, STORE, JSON, END,
};
static const fb_option weights_options[] = {
    GOES_TO,
    NAMES("names", 0, "NAME,NAME", "these tensors only, by an owner's path; may be repeated", names),
    TEXT("tied", 0, "each", "write a tensor that several modules own once for each, not only for the first", tied),
    STORE,
    END,
};
static const fb_option bind_options[] = {
    FLAG("strict", 0, "refuse if tensors are missing or extra", is_strict), READS_AS, PREFIX, OUTPUT, STORE, JSON, END,
};
#define SHARD_SIZE                                                                                                             \
    {                                                                                                                          \
        "shard-size", 0, "BYTES", "write shards of up to this size, and their index: 5GB", FB_OPTION_BYTES, AT(shard_size), 1, \
            UINT64_MAX                                                                                                         \
    }
static const fb_option layout_apply_options[] = {
    TEXT("output", 'o', "FILE", "write the safetensors file there; - is standard output", output),
    SHARD_SIZE,
    TEXT("config", 0, "FILE", "the model's config.json, from which the layout's parameters follow", config),
    LIST("set", 0, "NAME=N", "a parameter of the layout: heads=32; may be repeated", settings),
    FLAG("strict", 0, "also refuse when a row matches nothing, or could not be undone", is_strict),
    DRY_RUN,
    STORE,
    JSON,
    END,
};
static const fb_option layout_undo_options[] = {
    TEXT("output", 'o', "FILE", "write the safetensors file there; - is standard output", output),
    SHARD_SIZE,
    TEXT("run", 0, "RUN", "the run of layout apply, if the file does not name it", run),
    FLAG("strict", 0, "refuse a file that has other tensors than layout apply made", is_strict),
    STORE,
    JSON,
    END,
};
static const fb_option download_options[] = {GOES_TO, STORE, END};
static const fb_option gc_options[] = {
    FLAG("dry-run", 'n', "only count", dry_run),
    {"grace", 0, "SECONDS", "keep unused blobs this long (86400)", FB_OPTION_COUNT, AT(grace), 0, UINT32_MAX - 1},
    {"keep-runs-days", 0, "DAYS", "also remove older runs that nothing needs", FB_OPTION_COUNT, AT(keep_runs_days), 1, 36500},
    {"keep-runs", 0, "N", "also remove runs that nothing needs, except the newest N", FB_OPTION_COUNT, AT(keep_runs), 1,
     UINT32_MAX},
    {"keep-audit-days", 0, "DAYS", "also remove older entries of the audit", FB_OPTION_COUNT, AT(keep_audit_days), 1, 36500},
    STORE,
    JSON,
    END,
};

static const fb_option check_options[] = {DATA, JSON, END};
static const fb_option backup_options[] = {DATA, FLAG("copy", 0, "copy the files of blobs instead of linking them", copies),
                                           JSON, END};
static const fb_option restore_options[] = {
    DATA,
    FLAG("force", 0, "replace a folder that is not empty, and keep it under another name", force),
    FLAG("unchecked", 0, "restore even a damaged backup", unchecked),
    JSON,
    END,
};
static const fb_option copy_options[] = {
    TEXT("from", 0, "DIR|URL", "the store to copy: its data folder, or the database that it is in", from),
    TEXT("to", 0, "DIR|URL", "the store to make: a new data folder, or an empty database, postgresql://USER@HOST/DB", to),
    TEXT("blobs", 0, "s3://BUCKET/PREFIX", "put large blobs into this bucket", blobs),
    TEXT("blobs-endpoint", 0, "URL", "where the bucket is (https://s3.REGION.amazonaws.com)", blobs_endpoint),
    TEXT("blobs-region", 0, "REGION", "the bucket's region; also $AWS_REGION (us-east-1)", blobs_region),
    TEXT("data", 0, "DIR", "the data folder of --to URL; without --blobs it keeps the large blobs", new_data),
    JSON,
    END,
};
static const fb_option token_create_options[] = {
    TEXT("scope", 0, "read|write|hooks|admin", "what the token may do: hooks reads and manages webhooks, admin does all",
         scope),
    TEXT("name", 0, "NAME", "who will use it, for the audit (a generated name)", name),
    TEXT("expires", 0, "WHEN", "in 90d, 12h, 30m, or at 2026-12-31 or a time of RFC 3339 (never)", expires),
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

static const fb_option events_options[] = {
    TEXT("type", 0, "LIST", "of these types: alias, version, run, separated by commas (alias)", types),
    TEXT("since", 0, "ID", "begin after the event with this id; 0 = all events", since),
    TEXT("server", 0, "URL", "the service ($FOLDBACK_SERVER)", server),
    CREDENTIALS,
    FLAG("json", 0, "print a line of JSON for each event, also on a terminal", wants_json),
    END,
};
#define HOOK_OPTIONS                                                                                                           \
    LIST("event", 'e', "EVENT", "tell of this: alias.moved, run.finished and so on; may be repeated (all)", events),           \
        LIST("model", 'm', "PATTERN", "of these models only: bert-*; may be repeated (all)", models), NOTE
static const fb_option key_options[] = {JSON, END};
static const fb_option attestation_options[] = {TEXT("output", 'o', "FILE", "write it there; - is standard output", output),
                                                STORE, END};
static const fb_option verify_attestation_options[] = {
    LIST("key", 0, "FILE", "the public key of who may have signed it; may be repeated", keys),
    TEXT("source", 0, "GRAPH", "the graph that it starts from, as a file; else it is taken from the store", source),
    STORE,
    JSON,
    END,
};
static const fb_option webhook_create_options[] = {HOOK_OPTIONS, STORE, JSON, END};
static const fb_option webhook_change_options[] = {
    TEXT("url", 0, "URL", "send to this URL from now on", url),
    HOOK_OPTIONS,
    FLAG("enable", 0, "deliver again, first what waits", enables),
    FLAG("disable", 0, "deliver nothing until it is enabled again", disables),
    STORE,
    JSON,
    END,
};
static const fb_option webhook_rotate_options[] = {
    {"overlap", 0, "SECONDS", "how long the old secret also signs (86400)", FB_OPTION_COUNT, AT(overlap), 0, 31536000},
    STORE,
    JSON,
    END,
};
static const fb_option webhook_deliveries_options[] = {
    TEXT("state", 0, "STATE", "only messages in this state: pending, delivered or parked", state), LIMIT, STORE, JSON, END,
};
static const fb_option job_list_options[] = {
    TEXT("state", 0, "STATE", "only jobs in this state: queued, running, succeeded, failed or cancelled", state),
    LIMIT,
    STORE,
    JSON,
    END,
};

const fb_verb fb_verbs[] = {
    {.group = "Optimise and undo",
     .name = "optimize",
     .arguments = "GRAPH",
     .summary = "applies passes to a graph; stores graph, result and run",
     .description = GRAPH_NAMES "A pass with parameters: --pass '{\"name\": …, \"params\": {…}}'.\n",
     .options = optimize_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_optimize},
    {.name = "reverse",
     .arguments = "GRAPH|RUN",
     .summary = "undoes passes, and keeps what changed in the graph since",
     .description = GRAPH_NAMES "Every pass to undo must be reversible. If later changes conflict with the undo, lists the "
                                "conflicts and stores nothing.\n",
     .options = reverse_options,
     .run = fb_cli_reverse},
    {.name = "rollback",
     .arguments = "RUN|MODEL@ALIAS",
     .summary = "restores the graph from before a run, or the version before",
     .description =
         "Undoes any pass, reversible or not. A run: gives its source, or with --pass the source with only the other passes\n"
         "applied. An alias: goes back to the version before, or to --to VERSION; with --pass it goes to a new version, which\n"
         "is the deployed one without these passes.\n",
     .options = rollback_options,
     .run = fb_cli_rollback},
    {.name = "record",
     .arguments = "SOURCE RESULT",
     .summary = "records a change that your own code made, so that it can be undone",
     .description = GRAPH_NAMES,
     .options = record_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_record},
    {.name = "run list", .arguments = "", .summary = "lists the runs", .options = runs_options, .run = fb_cli_runs},
    {.name = "run show", .arguments = "RUN", .summary = "shows a run", .options = plain_options, .run = fb_cli_show},

    {.group = "Look at graphs",
     .name = "put",
     .arguments = "FILE",
     .summary = "stores a graph: a document, or a .pt2 archive",
     .description =
         "An archive becomes a blob of the store, unless the store has it, and its weights stay in it. Other verbs that\n"
         "take a graph store such a file as well.\n",
     .options = put_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_put},
    {.name = "graph list",
     .arguments = "",
     .summary = "lists the graphs of the store",
     .options = graphs_options,
     .run = fb_cli_graphs},
    {.name = "graph show",
     .arguments = "GRAPH",
     .summary = "shows the runs that made a graph and those that used it",
     .description = GRAPH_NAMES,
     .options = plain_options,
     .run = fb_cli_show},
    {.name = "graph nodes",
     .arguments = "GRAPH",
     .summary = "lists a graph's nodes, and the passes that marked them",
     .description = GRAPH_NAMES "The store must have the graph. A file stands for the stored graph with the same id.\n",
     .options = nodes_options,
     .run = fb_cli_nodes},
    {.name = "show",
     .arguments = "THING",
     .summary = "shows a run, a graph, a model, a version or an alias",
     .description = "A thing is run_…, sha256:…, a file, MODEL, MODEL:VERSION or MODEL@ALIAS.\n",
     .options = show_options,
     .run = fb_cli_show},
    {.name = "ui",
     .arguments = "[THING]",
     .summary = "opens the viewer in the browser",
     .description =
         "A thing is run_…, sha256:…, a file (which is stored), MODEL or MODEL@ALIAS. For a data folder, serves the viewer\n"
         "on a free port of this machine until you press Ctrl-C. Only the printed address opens it: it has a token.\n",
     .options = ui_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_ui},
    {.name = "code",
     .arguments = "GRAPH",
     .summary = "prints a graph's forward() as Python",
     .description = GRAPH_NAMES,
     .options = graph_options,
     .run = fb_cli_code},
    {.name = "diff",
     .arguments = "GRAPH [GRAPH]",
     .summary = "compares the code of two graphs, or a run's source and result",
     .description = GRAPH_NAMES,
     .options = diff_options,
     .run = fb_cli_diff},
    {.name = "verify",
     .arguments = "GRAPH",
     .summary = "checks a graph, and lists everything that is wrong",
     .description = GRAPH_NAMES,
     .options = verify_options,
     .run = fb_cli_verify},
    {.name = "id",
     .arguments = "GRAPH",
     .summary = "prints a graph's id",
     .description = GRAPH_NAMES,
     .options = id_options,
     .run = fb_cli_id},
    {.name = "delete",
     .arguments = "THING",
     .summary = "deletes a graph, a version or an alias that nothing needs",
     .description = "A thing is sha256:…, MODEL:VERSION or MODEL@ALIAS. Runs and histories stay.\n",
     .options = graph_options,
     .run = fb_cli_delete},

    {.group = "Passes",
     .name = "pass list",
     .arguments = "",
     .summary = "lists the passes and presets",
     .options = plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_pass_list},
    {.name = "pass show",
     .arguments = "PASS",
     .summary = "describes a pass or a preset",
     .options = plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_pass_show},
    {.name = "transformation list",
     .arguments = "[RULE]",
     .summary = "lists the rules, or the versions of one",
     .options = list_options,
     .run = fb_cli_transformation_list},
    {.name = "transformation show",
     .arguments = "RULE[:VERSION]",
     .summary = "shows a rule",
     .options = plain_options,
     .run = fb_cli_transformation_show},
    {.name = "transformation put",
     .arguments = "FILE",
     .summary = "stores a rule as a custom pass",
     .description = "A rule is JSON: a pattern, conditions and a replacement. The same name again makes the next version.\n",
     .options = plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_transformation_put},

    {.group = "Checkpoints",
     .name = "layout list",
     .arguments = "[LAYOUT]",
     .summary = "lists the layouts of checkpoints, or the versions of one",
     .options = list_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_layout_list},
    {.name = "layout show",
     .arguments = "LAYOUT[:VERSION]",
     .summary = "shows a layout",
     .options = plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_layout_show},
    {.name = "layout put",
     .arguments = "FILE",
     .summary = "stores a custom layout",
     .description = "A layout is JSON: parameters and rows. The same name again makes the next version.\n",
     .options = plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_layout_put},
    {.name = "layout apply",
     .arguments = "LAYOUT[:VERSION] FILE...",
     .summary = "rearranges the tensors of a checkpoint",
     .description =
         "The files are safetensors files, all shards of a checkpoint, or its model.safetensors.index.json. Shows what\n"
         "each row of the layout did. If anything is refused, writes no file.\n",
     .options = layout_apply_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_layout_apply},
    {.name = "layout undo",
     .arguments = "FILE...",
     .summary = "puts the tensors of a checkpoint back, also after training",
     .description = "The file says which run of layout apply made it. If another program has rewritten the file, name the run "
                    "with --run.\n",
     .options = layout_undo_options,
     .run = fb_cli_layout_undo},

    {.group = "Weights and numbers",
     .name = "bind",
     .arguments = "GRAPH FILE...",
     .summary = "binds a graph to the weights in safetensors files",
     .description =
         GRAPH_NAMES "Stores the resulting graph. Uploads the files that the store lacks; name one that it has by its digest,\n"
                     "sha256:…. A model.safetensors.index.json brings its shards with it. Dtypes and shapes must agree;\n"
                     "tensors that are missing or extra are listed.\n",
     .options = bind_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_bind},
    {.name = "weights",
     .arguments = "GRAPH",
     .summary = "writes a graph's weights as one safetensors file",
     .description = GRAPH_NAMES
     "Recipes are evaluated on the way. The store must have the graph, and the bytes that its tensors are\n"
     "made from: see foldback bind. Until the file is whole it is called FILE.xxxxxxxx.part; after an interruption\n"
     "the same command resumes from there.\n",
     .options = weights_options,
     .run = fb_cli_weights},
    {.name = "evaluate",
     .arguments = "GRAPH",
     .summary = "evaluates a graph on your inputs, or on random ones",
     .description = GRAPH_NAMES "The store must have it, and the bytes of its weights: see foldback bind.\n",
     .options = evaluate_options,
     .run = fb_cli_evaluate},
    {.name = "compare",
     .arguments = "GRAPH GRAPH",
     .summary = "evaluates two graphs on the same inputs, and compares the outputs",
     .description = GRAPH_NAMES "Exit status 1 if they differ by more than rounding explains.\n",
     .options = compare_options,
     .run = fb_cli_compare},
    {.name = "upload",
     .arguments = "FILE...",
     .summary = "uploads files as blobs, except those that the store has",
     .description = "What no graph needs is removed after a day: see foldback gc.\n",
     .options = plain_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_upload},
    {.name = "download",
     .arguments = "DIGEST",
     .summary = "writes a blob to a file, and checks its digest",
     .options = download_options,
     .run = fb_cli_download},
    {.name = "missing",
     .arguments = "FILE|DIGEST...",
     .summary = "lists which of these blobs the store lacks",
     .options = plain_options,
     .run = fb_cli_missing},
    {.name = "blob list",
     .arguments = "",
     .summary = "lists the blobs of the store",
     .options = list_options,
     .run = fb_cli_blobs},

    {.group = "Models",
     .name = "register",
     .arguments = "MODEL:VERSION GRAPH",
     .summary = "stores a graph, or a run's result, as a version of a model",
     .description = GRAPH_NAMES "A version never changes.\n",
     .options = register_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_register},
    {.name = "deploy",
     .arguments = "MODEL@ALIAS VERSION",
     .summary = "points an alias at a version",
     .description = "Refused if somebody else moves the alias at the same time.\n",
     .options = deploy_options,
     .run = fb_cli_deploy},
    {.name = "history",
     .arguments = "MODEL@ALIAS",
     .summary = "lists the versions an alias pointed at: when, by whom, why",
     .options = list_options,
     .run = fb_cli_history},
    {.name = "model list", .arguments = "", .summary = "lists the models", .options = list_options, .run = fb_cli_model_list},
    {.name = "model show",
     .arguments = "MODEL",
     .summary = "lists the versions and aliases of a model",
     .options = list_options,
     .run = fb_cli_model_show},

    {.group = "The service",
     .name = "serve",
     .arguments = "",
     .summary = "runs the HTTP service",
     .description =
         "Serves the HTTP API until SIGTERM or SIGINT, then finishes the running requests and exits; a second signal ends it\n"
         "at once. When it is ready it prints: listening on http://127.0.0.1:8080; with --metrics-listen also:\n"
         "metrics on http://127.0.0.1:9464/metrics\n\n"
         "BYTES take the suffixes K, M and G, which are powers of 1024, and KB, MB and GB, which are powers of 1000.\n",
     .options = fb_serve_options,
     .start = fb_serve},
    {.name = "ready",
     .arguments = "",
     .summary = "checks whether a service is ready; for health checks",
     .description = "Exit status 0 if it is. The service is --server, $FOLDBACK_SERVER, or http://127.0.0.1:8080.\n",
     .options = ready_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_ready},
    {.name = "doctor",
     .arguments = "",
     .summary = "looks for what is wrong with a machine, a store or a service",
     .description =
         "Shows versions, limits, disk, clock, store and configuration, with passwords left out, and says what to do about\n"
         "what is wrong: what to send along when you ask for help. It changes nothing, and works beside a running service;\n"
         "with --server it asks that service, and with an admin's token gets its last failed jobs. Exit status 1 when "
         "something\n"
         "is wrong; a warning alone is none.\n",
     .options = doctor_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_doctor},
    {.name = "events",
     .arguments = "[MODEL|MODEL@ALIAS|JOB]",
     .summary = "follows the events of aliases, versions and runs, or of a job",
     .description =
         "Prints a line for each event until Ctrl-C, or until the job has ended: exit status 0 if it has succeeded. If\n"
         "the connection is lost, connects again and leaves no event out.\n",
     .options = events_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_events},
    {.name = "job list",
     .arguments = "",
     .summary = "lists the jobs of a service",
     .description = "See --async of optimize, reverse and rollback.\n",
     .options = job_list_options,
     .run = fb_cli_job_list},
    {.name = "job show", .arguments = "JOB", .summary = "shows a job", .options = plain_options, .run = fb_cli_job_show},
    {.name = "job wait",
     .arguments = "JOB",
     .summary = "waits until a job has ended",
     .description = "Exit status 0 if it has succeeded.\n",
     .options = plain_options,
     .run = fb_cli_job_wait},
    {.name = "job result",
     .arguments = "JOB",
     .summary = "prints the result of a job",
     .options = plain_options,
     .run = fb_cli_job_result},
    {.name = "job cancel", .arguments = "JOB", .summary = "cancels a job", .options = plain_options, .run = fb_cli_job_cancel},
    {.name = "key create",
     .arguments = "FILE",
     .summary = "makes a key of ed25519 that signs attestations: FILE, and FILE.pub",
     .description = "For serve --signing-key FILE. Give FILE.pub to those who verify, and keep FILE.\n",
     .options = key_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_key_create},
    {.name = "key show",
     .arguments = "FILE",
     .summary = "shows a key's id and its public part",
     .options = key_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_key_show},
    {.name = "attestation",
     .arguments = "RUN",
     .summary = "writes how a run's result was made, signed by the service",
     .description = "A DSSE envelope with an in-toto statement. The service was started with --signing-key.\n",
     .options = attestation_options,
     .run = fb_cli_attestation},
    {.name = "verify-attestation",
     .arguments = "FILE",
     .summary = "checks who signed an attestation, and makes the result again",
     .description =
         "Exit status 0 when one of the keys has signed it, the passes lead from the source to the result, and both\n"
         "have the files that it lists. Nothing is stored.\n",
     .options = verify_attestation_options,
     .run = fb_cli_verify_attestation},
    {.name = "webhook create",
     .arguments = "URL",
     .summary = "sends events to a URL; shows the secret once",
     .description = "The service must run with --webhooks. Events: alias.created, alias.moved, alias.rolled_back,\n"
                    "alias.deleted, version.created, run.finished, job.finished.\n",
     .options = webhook_create_options,
     .run = fb_cli_webhook_create},
    {.name = "webhook list",
     .arguments = "",
     .summary = "lists the webhooks",
     .options = list_options,
     .run = fb_cli_webhook_list},
    {.name = "webhook show",
     .arguments = "WEBHOOK",
     .summary = "shows a webhook",
     .options = plain_options,
     .run = fb_cli_webhook_show},
    {.name = "webhook change",
     .arguments = "WEBHOOK",
     .summary = "changes a webhook",
     .options = webhook_change_options,
     .run = fb_cli_webhook_change},
    {.name = "webhook rotate",
     .arguments = "WEBHOOK",
     .summary = "gives a webhook another secret, and shows it once",
     .options = webhook_rotate_options,
     .run = fb_cli_webhook_rotate},
    {.name = "webhook delete",
     .arguments = "WEBHOOK",
     .summary = "deletes a webhook, and what waits for it",
     .options = graph_options,
     .run = fb_cli_webhook_delete},
    {.name = "webhook test",
     .arguments = "WEBHOOK",
     .summary = "sends a webhook a message of type webhook.test",
     .options = plain_options,
     .run = fb_cli_webhook_test},
    {.name = "webhook deliveries",
     .arguments = "WEBHOOK",
     .summary = "lists what a webhook was sent, and what could not be",
     .options = webhook_deliveries_options,
     .run = fb_cli_webhook_deliveries},
    {.name = "webhook redeliver",
     .arguments = "WEBHOOK MESSAGE",
     .summary = "sends a message again, under the same id",
     .options = plain_options,
     .run = fb_cli_webhook_redeliver},
    {.name = "token create",
     .arguments = "",
     .summary = "creates a token, and shows it once",
     .description =
         "Once there is a token, a service needs one for every request. Commands on the data folder itself, which work\n"
         "while no service holds it, need none.\n",
     .options = token_create_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = fb_cli_token_create},
    {.name = "token list", .arguments = "", .summary = "lists the tokens", .options = list_options, .run = fb_cli_token_list},
    {.name = "token revoke",
     .arguments = "TOKEN",
     .summary = "revokes a token",
     .options = plain_options,
     .run = fb_cli_token_revoke},
    {.name = "audit",
     .arguments = "",
     .summary = "lists who did what, and when",
     .options = audit_options,
     .run = fb_cli_audit},
    {.name = "gc",
     .arguments = "",
     .summary = "removes blobs that no graph needs, and old runs if asked",
     .description = "Also removes abandoned uploads. A service does this by itself, once an hour.\n",
     .options = gc_options,
     .run = fb_cli_gc},
    {.name = "db check",
     .arguments = "",
     .summary = "checks a data folder",
     .description = "Reads all of it, and computes every id, every digest and every run again. Exit status 1 if something is\n"
                    "wrong, 3 if a service holds the folder.\n",
     .options = check_options,
     .run = fb_cli_db_check},
    {.name = "db backup",
     .arguments = "FOLDER",
     .summary = "makes a copy of a data folder, also while a service runs",
     .description = "FOLDER becomes a data folder itself.\n",
     .options = backup_options,
     .run = fb_cli_db_backup},
    {.name = "db restore",
     .arguments = "FOLDER",
     .summary = "replaces the data folder with a backup",
     .description = "The backup is checked first.\n",
     .options = restore_options,
     .run = fb_cli_db_restore},
    {.name = "db copy",
     .arguments = "",
     .summary = "copies a store to another kind of database or of storage",
     .description =
         "Stop the services of both first. Only reads the source. To continue an interrupted copy, give the same command\n"
         "again. At the end, compares every row and every large blob.\n",
     .options = copy_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_db_copy},

    {.group = "Help",
     .name = "help",
     .arguments = "[VERB]...",
     .summary = "lists the verbs, or explains one",
     .options = help_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_help},

    {.name = "completion",
     .arguments = "bash|zsh|fish",
     .summary = "prints a completion script for a shell",
     .description =
         "bash: eval \"$(foldback completion bash)\" in ~/.bashrc. zsh: the same in ~/.zshrc, after compinit. fish:\n"
         "foldback completion fish >~/.config/fish/completions/foldback.fish. make install does it for all users.\n",
     .options = help_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_completion},
    {.name = "complete", .now = "completion", .arguments = "", .options = help_options, .start = fb_complete},

    /* Other names, and those of before. */
    {.name = "validate", .now = "verify", .arguments = "GRAPH", .options = verify_options, .run = fb_cli_verify},
    {.name = "runs", .now = "run list", .arguments = "", .options = runs_options, .run = fb_cli_runs},
    {.name = "graphs", .now = "graph list", .arguments = "", .options = graphs_options, .run = fb_cli_graphs},
    {.name = "nodes", .now = "graph nodes", .arguments = "GRAPH", .options = nodes_options, .run = fb_cli_nodes},
    {.name = "models",
     .now = "model list and model show",
     .arguments = "[MODEL]",
     .options = list_options,
     .run = fb_cli_models},
    {.name = "blobs", .now = "blob list", .arguments = "", .options = list_options, .run = fb_cli_blobs},
    {.name = "passes",
     .now = "pass list and pass show",
     .arguments = "[PASS]",
     .options = plain_options,
     .folder = FB_FOLDER_UNUSED,
     .run = fb_cli_passes},
    {.name = "transformation ls",
     .now = "transformation list",
     .arguments = "[RULE]",
     .options = list_options,
     .run = fb_cli_transformation_list},
    {0},
};
