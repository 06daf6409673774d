/* foldback diff: the code of two graphs as diff(1) shows it, or their edits. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/diff/diff.h"
#include "core/graph/code.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

typedef struct side {
    char name[FB_ID_LENGTH + 1]; /* of what a run made: its id */
    fb_reference reference;
    fb_graph *graph;
} side;

/* ---- the two graphs ----------------------------------------------------------------------------------------------------- */

/* One argument: a run, from its source to its result. */
static int read_run(fb_cli *cli, const fb_reference *run, side sides[2]) {
    if (run->kind != FB_REFERS_TO_RUN)
        return fb_complain(FB_EXIT_USAGE, "diff needs a second graph, or a run (run_…) to see what it did");
    fb_address address = {0};
    json_t *found;
    fb_reference_address(run, &address);
    int result = fb_cli_get(cli, &address, &found, NULL);
    if (result) return result;
    for (int i = 0; i < 2; i++) {
        snprintf(sides[i].name, sizeof sides[i].name, "%s", fb_text_of(found, i ? "result" : "source"));
        sides[i].reference = fb_reference_read(sides[i].name);
    }
    json_decref(found);
    return FB_EXIT_DONE;
}

static int read_sides(fb_cli *cli, side sides[2]) {
    int result = FB_EXIT_DONE;
    for (size_t i = 0; i < cli->arguments.count; i++) sides[i].reference = fb_reference_read(cli->arguments.items[i]);
    if (cli->arguments.count == 1) {
        fb_reference run = sides[0].reference;
        result = read_run(cli, &run, sides);
    }
    for (int i = 0; i < 2 && !result; i++) result = fb_reference_graph(cli, &sides[i].reference, &sides[i].graph);
    return result;
}

/* ---- code --------------------------------------------------------------------------------------------------------------- */

/* A file in memory that holds the graph's code; -1 when that failed. */
static int code_file(const fb_graph *graph) {
    fb_buffer code = {0};
    int file =
        fb_code_write(graph, FB_MAIN_PROGRAM, &(fb_work){0}, &code) ? memfd_create("code", 0) : -1; /* inherited by diff(1) */
    size_t done = 0;
    while (file >= 0 && done < code.size) {
        ssize_t written = write(file, code.data + done, code.size - done);
        if (written < 0) {
            close(file);
            file = -1;
        } else {
            done += (size_t)written;
        }
    }
    fb_buffer_free(&code);
    return file;
}

static bool spawn(char *const *arguments, pid_t *child) {
    extern char **environ;
    posix_spawnattr_t attributes;
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE); /* as usual there: it ends when its reader does */
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    int failure = posix_spawnp(child, arguments[0], NULL, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    errno = failure;
    return failure == 0;
}

/* Graphs may differ where code does not: in weights, in metadata. */
static int say_whether_same(const side sides[2]) {
    char ids[2][FB_ID_LENGTH + 1];
    for (int i = 0; i < 2; i++) {
        if (!fb_document_id(sides[i].graph, ids[i])) return fb_cli_no_memory();
    }
    if (strcmp(ids[0], ids[1]) != 0)
        fb_complain(0, "the code is the same, the graphs are not; diff --edits shows what differs");
    return FB_EXIT_DONE;
}

static int run_diff(const fb_cli *cli, const side sides[2], const int files[2]) {
    char program[] = "diff", unified[] = "-u", label[] = "--label", on[] = "--color=always", off[] = "--color=never";
    char paths[2][32], labels[2][300];
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "/dev/fd/%d", files[i]);
        snprintf(labels[i], sizeof labels[i], "%.250s", sides[i].reference.text);
    }
    char *arguments[] = {program,  unified, cli->has_colour ? on : off, label, labels[0], label, labels[1], paths[0],
                         paths[1], NULL};
    pid_t child;
    int status;
    fflush(stdout);
    if (!spawn(arguments, &child)) return fb_complain(FB_EXIT_FAILED, "cannot run diff: %s", strerror(errno));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) return fb_complain(FB_EXIT_FAILED, "cannot wait for diff: %s", strerror(errno));
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return say_whether_same(sides);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1 ? FB_EXIT_DONE : FB_EXIT_FAILED; /* it has said why */
}

static int diff_code(const fb_cli *cli, const side sides[2]) {
    int files[2] = {code_file(sides[0].graph), -1};
    if (files[0] >= 0) files[1] = code_file(sides[1].graph);
    int result = files[1] >= 0 ? run_diff(cli, sides, files)
                               : fb_complain(FB_EXIT_FAILED, "cannot write the code to compare: %s", strerror(errno));
    for (int i = 0; i < 2; i++) {
        if (files[i] >= 0) close(files[i]);
    }
    return result;
}

/* ---- edits -------------------------------------------------------------------------------------------------------------- */

static void print_span(fb_span span) {
    char text[200];
    if (!span.text) fputs("absent", stdout);
    else if (snprintf(text, sizeof text, "%.*s", (int)span.size, span.text) >= (int)sizeof text) fputs("…", stdout);
    else fb_screen_text(stdout, text);
}

static void print_edit(const fb_cli *cli, const fb_edit *edit) {
    static const char *const tables[] = {"graph", "node", "module", "tensor"};
    static const char signs[] = "+->~";
    static const int colours[] = {FB_GREEN, FB_RED, FB_CYAN, FB_YELLOW};
    if (cli->has_colour) printf("\033[%dm", colours[edit->kind]);
    printf("%c %s ", signs[edit->kind], tables[edit->table]);
    if (edit->table != FB_GRAPH_TABLE) fb_screen_text(stdout, *edit->name ? edit->name : "(root)");
    if (cli->has_colour) fputs("\033[0m", stdout);
    if (edit->kind == FB_EDIT_INSERT || edit->kind == FB_EDIT_MOVE) {
        fputs(edit->before ? " before " : " at the end", stdout);
        if (edit->before) fb_screen_text(stdout, edit->before);
    }
    fputc('\n', stdout);
    for (size_t i = 0; edit->kind == FB_EDIT_SET && i < edit->member_count; i++) {
        fputs("    ", stdout);
        fb_screen_text(stdout, edit->members[i].pointer);
        fputs(": ", stdout);
        print_span(edit->members[i].was);
        fputs(" -> ", stdout);
        print_span(edit->members[i].now);
        fputc('\n', stdout);
    }
}

static int print_edits_json(const side sides[2], const fb_diff *diff) {
    char ids[2][FB_ID_LENGTH + 1];
    fb_buffer text = {0};
    if (!fb_document_id(sides[0].graph, ids[0]) || !fb_document_id(sides[1].graph, ids[1])) return fb_cli_no_memory();
    fb_buffer_printf(&text, "{\"base\":\"%s\",\"graph\":\"%s\",\"edits\":", ids[0], ids[1]);
    fb_diff_write(diff, &(fb_work){0}, &text);
    fb_buffer_string(&text, "}\n");
    if (!text.failed) fwrite(text.data, 1, text.size, stdout);
    int result = text.failed ? fb_cli_no_memory() : FB_EXIT_DONE;
    fb_buffer_free(&text);
    return result;
}

static int diff_edits(const fb_cli *cli, const side sides[2]) {
    fb_error error = {0};
    fb_diff diff;
    int result = FB_EXIT_DONE;
    if (fb_diff_make(sides[0].graph, sides[1].graph, &(fb_work){0}, &diff, &error)) return fb_cli_error(&error);
    if (cli->is_json) result = print_edits_json(sides, &diff);
    else
        for (size_t i = 0; i < diff.count; i++) print_edit(cli, &diff.edits[i]);
    fb_diff_free(&diff);
    return result;
}

static int diff(fb_cli *cli) {
    side sides[2] = {0};
    int result = read_sides(cli, sides);
    if (!result) result = cli->values.wants_edits || cli->values.wants_json ? diff_edits(cli, sides) : diff_code(cli, sides);
    for (int i = 0; i < 2; i++) fb_graph_free(sides[i].graph);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option diff_options[] = {
    FLAG("edits", 'e', "the edits instead of the code", wants_edits),
    STORE,
    FLAG("json", 0, "the edits as JSON", wants_json),
    END,
};

const fb_verb fb_diff_verbs[] = {
    {.name = "diff",
     .arguments = "GRAPH [GRAPH]",
     .summary = "compares the code of two graphs, or a run's source and result",
     .description = GRAPH_NAMES,
     .options = diff_options,
     .folder = FB_FOLDER_FOR_FILES,
     .run = diff},
    {0},
};
