/* foldback db: checks, backs up, restores and copies stores. It works on files and databases, not through a service. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/json/json.h"
#include "server/check/check.h"
#include "server/cli/options.h"
#include "server/store/backup.h"

#define FINDINGS_MAX 1000 /* shown; all are counted */

static int fail(const fb_error *error) {
    if (strcmp(error->code, "store-locked") != 0) return fb_cli_error(error);
    return fb_complain(FB_EXIT_FOLDER_IN_USE,
                       "%s; stop it first. foldback db backup works while a service runs, and so does a "
                       "check of what it made",
                       error->message);
}

/* ---- progress ----------------------------------------------------------------------------------------------------------- */

/* A line that is written over, when standard error is a terminal. */
typedef struct counter {
    bool is_visible;
    const char *what;
    uint64_t percent;
} counter;

static void show(void *context, const char *what, uint64_t done, uint64_t total) {
    counter *line = context;
    uint64_t percent = total ? done * 100 / total : 100;
    if (!line->is_visible || (line->what == what && line->percent == percent)) return;
    line->what = what;
    line->percent = percent;
    fprintf(stderr, "\r%s %" PRIu64 " of %" PRIu64 "  %" PRIu64 " %%\033[K", what, done, total, percent);
    fflush(stderr);
}

/* The same where the number is not known in advance. */
static void show_count(void *context, const char *what, uint64_t done, uint64_t total) {
    counter *line = context;
    if (total) show(context, what, done, total);
    if (total || !line->is_visible) return;
    line->what = what;
    fprintf(stderr, "\r%s %" PRIu64 "\033[K", what, done);
    fflush(stderr);
}

static void hide(const counter *line) {
    if (line->is_visible && line->what) fputs("\r\033[K", stderr);
}

/* ---- check -------------------------------------------------------------------------------------------------------------- */

typedef struct checking {
    counter line;
    fb_check check;
    json_t *findings; /* for JSON, else NULL: they are printed as they come */
    FILE *out;
} checking;

static void found(void *context, const fb_finding *finding) {
    checking *work = context;
    if (work->check.findings > FINDINGS_MAX) return;
    if (work->findings) {
        json_t *one = json_pack("{ss, ss, ss, ss, ss}", "code", finding->code, "subject", finding->subject, "detail",
                                finding->detail, "costs", finding->costs, "cure", finding->cure);
        json_array_append_new(work->findings, one);
        return;
    }
    hide(&work->line);
    fb_screen_text(work->out, finding->subject);
    fprintf(work->out, ": %s\n  ", finding->code);
    fb_screen_text(work->out, finding->detail);
    fprintf(work->out, "\n  costs: %s\n  cure: %s\n", finding->costs, finding->cure);
}

static void show_check(void *context, const char *what, uint64_t done, uint64_t total) {
    show(&((checking *)context)->line, what, done, total);
}

static checking begin_check(bool is_json, FILE *out) {
    checking work = {.line.is_visible = fb_screen_can_move(stderr), .out = out, .findings = is_json ? json_array() : NULL};
    work.check.found = found;
    work.check.progress = show_check;
    return work;
}

static json_t *check_json(const checking *work) {
    const fb_check *check = &work->check;
    return json_pack("{sb, sI, sI, sI, sI, sI, sI, sI, sI, sI, sO}", "ok", !check->findings, "graphs",
                     (json_int_t)check->graphs, "rules", (json_int_t)check->rules, "runs", (json_int_t)check->runs, "replayed",
                     (json_int_t)check->replayed, "blobs", (json_int_t)check->blobs, "blob_bytes",
                     (json_int_t)check->blob_bytes, "tensors", (json_int_t)check->tensors, "answers",
                     (json_int_t)check->answers, "total", (json_int_t)check->findings, "findings", work->findings);
}

static void print_check(const checking *work) {
    const fb_check *check = &work->check;
    fprintf(work->out,
            "%" PRIu64 " graphs, %" PRIu64 " runs (%" PRIu64 " done again), %" PRIu64 " rules, %" PRIu64 " blobs (%" PRIu64
            " bytes): ",
            check->graphs, check->runs, check->replayed, check->rules, check->blobs, check->blob_bytes);
    if (check->findings) fprintf(work->out, "%" PRIu64 " findings\n", check->findings);
    else fputs("nothing is wrong\n", work->out);
}

static int check_folder(const char *folder, bool is_json, FILE *out) {
    fb_error error = {0};
    checking work = begin_check(is_json, out);
    work.check.context = &work;
    fb_status status = fb_check_folder(folder, &work.check, &error);
    hide(&work.line);
    int result = status ? fail(&error) : work.check.findings ? FB_EXIT_FAILED : FB_EXIT_DONE;
    if (!status && is_json) {
        json_t *answer = check_json(&work);
        if (fb_cli_print_json(answer)) result = FB_EXIT_FAILED;
        json_decref(answer);
    } else if (!status) {
        print_check(&work);
    }
    json_decref(work.findings);
    return result;
}

static int check(fb_cli *cli) {
    return check_folder(cli->values.data, cli->is_json, stdout);
}

/* ---- backup ------------------------------------------------------------------------------------------------------------- */

static json_t *copied_json(const char *folder, const fb_copied *copied) {
    return json_pack("{ss, sI, sI, sI, sI, sI, sI, sI}", "folder", folder, "database_bytes", (json_int_t)copied->database_bytes,
                     "graphs", (json_int_t)copied->graphs, "runs", (json_int_t)copied->runs, "blobs", (json_int_t)copied->blobs,
                     "files", (json_int_t)copied->files, "linked", (json_int_t)copied->linked, "damaged",
                     (json_int_t)copied->damaged);
}

static int print_copied(const fb_cli *cli, const char *folder, const fb_copied *copied) {
    if (cli->is_json) {
        json_t *answer = copied_json(folder, copied);
        int result = fb_cli_print_json(answer);
        json_decref(answer);
        return result;
    }
    fb_screen_text(stdout, folder);
    printf(": %" PRIu64 " graphs, %" PRIu64 " runs, %" PRIu64 " blobs (%" PRIu64 " files, %" PRIu64
           " of them linked), a database of %s\n",
           copied->graphs, copied->runs, copied->blobs, copied->files, copied->linked,
           fb_readable_size(copied->database_bytes).text);
    return FB_EXIT_DONE;
}

static int back_up(fb_cli *cli) {
    const char *folder = cli->arguments.items[0];
    fb_error error = {0};
    fb_copied copied;
    counter line = {.is_visible = fb_screen_can_move(stderr)};
    fb_copying how = {.may_link = !cli->values.copies, .context = &line, .progress = show};
    fb_status status = fb_store_back_up(cli->values.data, folder, &how, &copied, &error);
    hide(&line);
    if (status) return fail(&error);
    int result = print_copied(cli, folder, &copied);
    if (!copied.damaged) return result;
    return fb_complain(FB_EXIT_FAILED,
                       "the backup is there, but %" PRIu64 " blobs are also damaged in the store; foldback db check names them",
                       copied.damaged);
}

/* ---- restore ------------------------------------------------------------------------------------------------------------ */

/* Checks what was restored; faults go to standard error, as standard output shows the result. */
static int restore_checked(fb_cli *cli, fb_restoring *restoring, const fb_copied *copied) {
    fb_error error = {0};
    int result = FB_EXIT_DONE;
    if (!cli->values.unchecked) result = check_folder(restoring->stage, false, stderr);
    if (result) return fb_complain(result, "nothing was restored; --unchecked restores a damaged backup as it is");
    if (fb_restore_finish(restoring, &error)) return fail(&error);
    if (restoring->aside) fb_complain(0, "what was there before is in %s now", restoring->aside);
    return print_copied(cli, restoring->data, copied);
}

static int restore(fb_cli *cli) {
    const char *backup = cli->arguments.items[0];
    fb_error error = {0};
    fb_restoring restoring;
    fb_copied copied;
    counter line = {.is_visible = fb_screen_can_move(stderr)};
    fb_copying how = {.context = &line, .progress = show};
    fb_status status = fb_restore_begin(backup, cli->values.data, cli->values.force, &how, &restoring, &copied, &error);
    hide(&line);
    int result = status ? fail(&error) : restore_checked(cli, &restoring, &copied);
    fb_restore_end(&restoring);
    return result;
}

/* ---- copy --------------------------------------------------------------------------------------------------------------- */

/* A side keeps something in a folder while it is copied: in a temporary one, *made, when none is named. */
static int name_side(const char *where, const char *folder, char **made, fb_copy_side *out) {
    bool is_url = fb_is_database_url(where);
    out->database = is_url ? where : NULL;
    out->folder = is_url ? folder : where;
    if (out->folder) return FB_EXIT_DONE;
    const char *usual = fb_variable("TMPDIR");
    out->folder = *made = fb_path_with(usual ? usual : "/tmp", "/foldback-copy-XXXXXX");
    if (!*made) return fb_cli_no_memory();
    if (mkdtemp(*made)) return FB_EXIT_DONE;
    int result = fb_complain(FB_EXIT_FAILED, "cannot make a temporary folder %s", *made);
    free(*made);
    *made = NULL; /* what is not ours is not removed */
    return result;
}

static void remove_folder(char *made) {
    if (made) fb_folder_remove(made, NULL);
    free(made);
}

static int print_store_copied(const fb_cli *cli, const fb_store_copied *copied) {
    if (cli->is_json) {
        json_t *answer =
            json_pack("{sI, sI, sI, sI, sI}", "rows", (json_int_t)copied->rows, "copied_rows", (json_int_t)copied->copied_rows,
                      "large_blobs", (json_int_t)copied->blobs, "copied_large_blobs", (json_int_t)copied->copied_blobs,
                      "large_blob_bytes", (json_int_t)copied->blob_bytes);
        int result = fb_cli_print_json(answer);
        json_decref(answer);
        return result;
    }
    printf("%" PRIu64 " rows and %" PRIu64 " large blobs (%s) are the same in both; %" PRIu64 " rows and %" PRIu64
           " blobs were copied now\n",
           copied->rows, copied->blobs, fb_readable_size(copied->blob_bytes).text, copied->copied_rows, copied->copied_blobs);
    return FB_EXIT_DONE;
}

static int copy_store(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    char *from_folder = NULL, *to_folder = NULL, *name = NULL;
    fb_copy_side from = {0},
                 to = {.bucket = {.url = values->blobs, .endpoint = values->blobs_endpoint, .region = values->blobs_region}};
    fb_store_copied copied;
    fb_error error = {0};
    counter line = {.is_visible = fb_screen_can_move(stderr)};
    int result = name_side(values->from, NULL, &from_folder, &from);
    if (!result) result = name_side(values->to, values->new_data, &to_folder, &to);
    if (!result && !from.database) name = realpath(from.folder, NULL);
    from.name = name ? name : values->from;
    if (!result && fb_store_copy(&from, &to, show_count, &line, &copied, &error)) {
        hide(&line);
        bool is_held = strcmp(error.code, "store-locked") == 0;
        result = is_held ? fb_complain(FB_EXIT_FOLDER_IN_USE, "%s; stop it first", error.message) : fb_cli_error(&error);
    } else if (!result) {
        hide(&line);
        result = print_store_copied(cli, &copied);
    }
    free(name);
    remove_folder(from_folder);
    remove_folder(to_folder);
    return result;
}

static int copy(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    if (!values->from || !values->to) return fb_complain(FB_EXIT_USAGE, "db copy needs --from and --to");
    bool is_url = fb_is_database_url(values->to);
    if (is_url && !values->blobs && !values->new_data)
        return fb_complain(FB_EXIT_USAGE, "large blobs need a place: --blobs s3://BUCKET/PREFIX, or --data DIR for files");
    if (!is_url && values->new_data) return fb_complain(FB_EXIT_USAGE, "--to names a data folder already: leave out --data");
    return copy_store(cli);
}

/* ---- gc ---------------------------------------------------------------------------------------------------------------- */

typedef struct number_text {
    char text[24];
} number_text;

static number_text number_of(const json_t *object, const char *name) {
    number_text out;
    snprintf(out.text, sizeof out.text, "%lld", (long long)json_integer_value(json_object_get(object, name)));
    return out;
}

static fb_short_text size_of(const json_t *object, const char *name) {
    return fb_readable_size((uint64_t)json_integer_value(json_object_get(object, name)));
}

static int collect_garbage(fb_cli *cli) {
    fb_call call = {.method = "POST"};
    json_t *found;
    fb_address_path(&call.address, "/v1/gc");
    fb_buffer_char(&call.body, '{');
    fb_put_bool(&call.body, "dry_run", cli->values.dry_run);
    if (cli->values.grace != FB_GRACE_UNSET) fb_put_int(&call.body, "grace_seconds", cli->values.grace);
    if (cli->values.keep_runs_days) fb_put_int(&call.body, "keep_runs_days", cli->values.keep_runs_days);
    if (cli->values.keep_runs) fb_put_int(&call.body, "keep_runs", cli->values.keep_runs);
    if (cli->values.keep_audit_days) fb_put_int(&call.body, "keep_audit_days", cli->values.keep_audit_days);
    fb_buffer_char(&call.body, '}');
    if (cli->is_json) return fb_cli_relay(cli, &call);
    int result = fb_cli_call_json(cli, &call, &found, NULL);
    if (result) return result;
    fb_print_facts(
        cli, (const fb_fact[]){{cli->values.dry_run ? "runs that would go" : "runs removed", number_of(found, "runs").text},
                               {"graphs that only they needed", number_of(found, "graphs").text},
                               {"runs kept", number_of(found, "kept_runs").text},
                               {cli->values.dry_run ? "audit entries that would go" : "audit entries removed",
                                number_of(found, "audit_entries").text},
                               {cli->values.dry_run ? "blobs that would go" : "blobs removed", number_of(found, "blobs").text},
                               {"size of the blobs", size_of(found, "bytes").text},
                               {"uploads given up", number_of(found, "uploads").text},
                               {"files without a blob", number_of(found, "files").text},
                               {"blobs kept", number_of(found, "kept").text},
                               {"size of those kept", size_of(found, "kept_bytes").text},
                               {0}});
    json_decref(found);
    return FB_EXIT_DONE;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

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

const fb_verb fb_db_verbs[] = {
    {.name = "gc",
     .arguments = "",
     .summary = "removes blobs that no graph needs, and old runs if asked",
     .description = "Also removes abandoned uploads. A service does this by itself, once an hour.\n",
     .options = gc_options,
     .run = collect_garbage},
    {.name = "db check",
     .arguments = "",
     .summary = "checks a data folder",
     .description = "Reads all of it, and computes every id, every digest and every run again. Exit status 1 if something is\n"
                    "wrong, 3 if a service holds the folder.\n",
     .options = check_options,
     .run = check},
    {.name = "db backup",
     .arguments = "FOLDER",
     .summary = "makes a copy of a data folder, also while a service runs",
     .description = "FOLDER becomes a data folder itself.\n",
     .options = backup_options,
     .run = back_up},
    {.name = "db restore",
     .arguments = "FOLDER",
     .summary = "replaces the data folder with a backup",
     .description = "The backup is checked first.\n",
     .options = restore_options,
     .run = restore},
    {.name = "db copy",
     .arguments = "",
     .summary = "copies a store to another kind of database or of storage",
     .description =
         "Stop the services of both first. Only reads the source. To continue an interrupted copy, give the same command\n"
         "again. At the end, compares every row and every large blob.\n",
     .options = copy_options,
     .folder = FB_FOLDER_UNUSED,
     .run = copy},
    {0},
};
