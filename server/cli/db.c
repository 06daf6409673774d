/* foldback db: checks, backs up, restores and copies stores. It works on files and databases, not through a service. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "server/check/check.h"
#include "server/cli/cli.h"
#include "server/store/backup.h"
#include "server/store/copy.h"

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

/* The same where nobody knows how many there will be. */
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

int fb_cli_db_check(fb_cli *cli) {
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

int fb_cli_db_backup(fb_cli *cli) {
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
                       "the backup is there, but %" PRIu64 " blobs are damaged in the store, too; foldback db check names them",
                       copied.damaged);
}

/* ---- restore ------------------------------------------------------------------------------------------------------------ */

/* What is wrong goes to standard error: standard output tells what was restored. */
static int restore_checked(fb_cli *cli, fb_restoring *restoring, const fb_copied *copied) {
    fb_error error = {0};
    int result = FB_EXIT_DONE;
    if (!cli->values.unchecked) result = check_folder(restoring->stage, false, stderr);
    if (result) return fb_complain(result, "nothing was restored; --unchecked restores a damaged backup as it is");
    if (fb_restore_finish(restoring, &error)) return fail(&error);
    if (restoring->aside) fb_complain(0, "what was there before is in %s now", restoring->aside);
    return print_copied(cli, restoring->data, copied);
}

int fb_cli_db_restore(fb_cli *cli) {
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

/* The folder for what a side keeps while it is copied, when none is named: within `temporary`. */
static int name_side(const char *where, const char *folder, const char *temporary, const char *kind, char **made,
                     fb_copy_side *out) {
    bool is_url = fb_is_database_url(where);
    out->database = is_url ? where : NULL;
    out->folder = is_url ? folder : where;
    if (out->folder) return FB_EXIT_DONE;
    *made = fb_path_with(temporary, kind);
    if (!*made) return fb_cli_no_memory();
    out->folder = *made;
    return mkdir(*made, 0700) ? fb_complain(FB_EXIT_FAILED, "cannot make the folder %s", *made) : FB_EXIT_DONE;
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

static int copy_store(fb_cli *cli, const char *temporary) {
    const fb_cli_values *values = &cli->values;
    char *from_folder = NULL, *to_folder = NULL, *name = NULL;
    fb_copy_side from = {0},
                 to = {.bucket = {.url = values->blobs, .endpoint = values->blobs_endpoint, .region = values->blobs_region}};
    fb_store_copied copied;
    fb_error error = {0};
    counter line = {.is_visible = fb_screen_can_move(stderr)};
    int result = name_side(values->from, NULL, temporary, "/from", &from_folder, &from);
    if (!result) result = name_side(values->to, values->new_data, temporary, "/to", &to_folder, &to);
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
    free(from_folder);
    free(to_folder);
    return result;
}

int fb_cli_db_copy(fb_cli *cli) {
    const fb_cli_values *values = &cli->values;
    if (!values->from || !values->to) return fb_complain(FB_EXIT_USAGE, "db copy needs --from and --to");
    bool is_url = fb_is_database_url(values->to);
    if (is_url && !values->blobs && !values->new_data)
        return fb_complain(FB_EXIT_USAGE, "large blobs need a place: --blobs s3://BUCKET/PREFIX, or --data DIR for files");
    if (!is_url && values->new_data) return fb_complain(FB_EXIT_USAGE, "--to names a data folder already: leave out --data");
    const char *usual = fb_variable("TMPDIR");
    char *temporary = fb_path_with(usual ? usual : "/tmp", "/foldback-copy-XXXXXX");
    if (!temporary) return fb_cli_no_memory();
    int result = mkdtemp(temporary) ? copy_store(cli, temporary)
                                    : fb_complain(FB_EXIT_FAILED, "cannot make a temporary folder %s", temporary);
    fb_folder_remove(temporary, NULL);
    free(temporary);
    return result;
}
