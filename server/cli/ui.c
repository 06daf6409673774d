/* foldback ui: the viewer in the browser. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/auth/auth.h"
#include "server/cli/cli.h"
#include "server/cli/options.h"

/* ---- which page ---------------------------------------------------------------------------------------------------------- */

/* A file is stored, so that the viewer can show it. */
static int store_file(fb_cli *cli, const fb_reference *file, char id[FB_ID_LENGTH + 1]) {
    fb_call call = {.method = "POST"};
    json_t *stored;
    if (fb_is_archive_name(file->text)) return fb_reference_id(cli, file, id); /* which stores it */
    int result = fb_reference_bytes(cli, file, &call.body);
    if (result) return result;
    fb_address_path(&call.address, "/v1/graphs");
    result = fb_cli_call_json(cli, &call, &stored, NULL);
    if (result) return result;
    fb_copy_text(id, FB_ID_LENGTH + 1, fb_text_of(stored, "id"));
    json_decref(stored);
    return FB_EXIT_DONE;
}

static bool is_model_name(const fb_reference *what) {
    return what->kind == FB_REFERS_TO_FILE && !strpbrk(what->text, "/.") && strcmp(what->text, "-") != 0 &&
           access(what->text, F_OK) != 0;
}

static void put_page(fb_address *page, const char *folder, const char *thing) {
    fb_address_path(page, folder);
    fb_address_segment(page, thing);
}

/* Fails where it does not exist: the item of that name in a folder, or the reference. */
static int find_thing(fb_cli *cli, const char *folder, const char *name, const fb_reference *reference) {
    fb_address address = {0};
    json_t *found;
    if (reference) fb_reference_address(reference, &address);
    else put_page(&address, folder, name);
    int result = fb_cli_get(cli, &address, &found, NULL);
    if (!result) json_decref(found);
    return result;
}

static int find_page(fb_cli *cli, fb_address *page) {
    fb_address_path(page, "/ui");
    if (!cli->arguments.count) return FB_EXIT_DONE;
    fb_reference what = fb_reference_read(cli->arguments.items[0]);
    char id[FB_ID_LENGTH + 1];
    if (is_model_name(&what)) {
        put_page(page, "/models", what.text);
        return find_thing(cli, "/v1/models", what.text, NULL);
    } else if (what.kind == FB_REFERS_TO_ALIAS) {
        put_page(page, "/models", what.model);
        return find_thing(cli, NULL, NULL, &what);
    } else if (what.kind == FB_REFERS_TO_RUN) {
        put_page(page, "/runs", what.text);
        return find_thing(cli, NULL, NULL, &what);
    } else {
        int result = what.kind == FB_REFERS_TO_FILE ? store_file(cli, &what, id) : fb_reference_id(cli, &what, id);
        if (result) return result;
        put_page(page, "/graphs", id);
    }
    return FB_EXIT_DONE;
}

/* ---- the browser --------------------------------------------------------------------------------------------------------- */

/* Command lines can be read by everybody on this machine, and the address has a token: the browser is given a page of one's own
 * that leads there. NULL: there is none, or none can be made. */
static char *write_way(const char *address) {
    const char *folder = fb_variable("XDG_RUNTIME_DIR");
    fb_buffer path = {0}, page = {0};
    fb_buffer_printf(&path, "%s/foldback-XXXXXX.html", folder ? folder : "/tmp");
    fb_buffer_printf(&page, "<!doctype html><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" content=\"0;url=%s\">",
                     address);
    char *name = fb_buffer_take(&path, NULL);
    int file = name && fb_buffer_text(&page) ? mkstemps(name, (int)strlen(".html")) : -1;
    bool is_written = file >= 0 && write(file, page.data, page.size) == (ssize_t)page.size;
    if (file >= 0) close(file);
    fb_buffer_free(&page);
    if (is_written) return name;
    if (file >= 0) unlink(name);
    free(name);
    return NULL;
}

static void open_browser(const char *file) {
    bool has_screen = fb_variable("DISPLAY") || fb_variable("WAYLAND_DISPLAY");
    pid_t child = has_screen ? fork() : -1;
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr)) _exit(127);
        execlp("xdg-open", "xdg-open", file, (char *)NULL);
        _exit(127);
    }
    if (child > 0) waitpid(child, NULL, 0);
}

static void wait_for_end(void) {
    sigset_t ends;
    int signal;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigwait(&ends, &signal);
}

static void show(fb_cli *cli, const char *address, bool is_secret) {
    printf("%s\n", address);
    fflush(stdout);
    if (cli->values.stays_closed) return;
    char *way = is_secret ? write_way(address) : NULL;
    if (way || !is_secret) open_browser(way ? way : address);
    if (way && is_secret) {
        sleep(5); /* the browser reads it */
        unlink(way);
    }
    free(way);
}

/* ---- here, or a service elsewhere ---------------------------------------------------------------------------------------- */

/* Signals are held back before the service's threads begin: they are waited for at the end. */
static void hold_signals(void) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
}

static int start_here(fb_cli *cli, const char *token) {
    fb_error error = {0};
    hold_signals();
    return fb_client_new_listening(cli->values.data, token, &cli->client, &error) ? fb_cli_error(&error) : FB_EXIT_DONE;
}

static int open_viewer(fb_cli *cli) {
    char token[FB_TOKEN_LENGTH + 1] = "";
    fb_error error = {0};
    fb_address page = {0};
    fb_buffer address = {0};
    bool is_here = !cli->values.server;
    if (is_here && fb_secret_make(token, &error)) return fb_cli_error(&error);
    int result = is_here ? start_here(cli, token) : FB_EXIT_DONE;
    if (!result) result = find_page(cli, &page);
    if (!result) {
        const char *path = fb_buffer_text(&page.text);
        fb_buffer_printf(&address, "%s%s", is_here ? fb_client_url(cli->client) : cli->values.server, path ? path : "");
        if (is_here) fb_buffer_printf(&address, "#token=%s", token);
        const char *text = path ? fb_buffer_text(&address) : NULL;
        if (text) show(cli, text, is_here);
        else result = fb_cli_no_memory();
        if (text && is_here) wait_for_end();
    }
    fb_buffer_free(&page.text);
    fb_buffer_free(&address);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option ui_options[] = {
    FLAG("no-browser", 0, "print the address, and open nothing", stays_closed),
    STORE,
    END,
};

const fb_verb fb_ui_verbs[] = {
    {.name = "ui",
     .arguments = "[THING]",
     .summary = "opens the viewer in the browser",
     .description =
         "A thing is run_…, sha256:…, a file (which is stored), MODEL or MODEL@ALIAS. For a data folder, serves the viewer\n"
         "on a free port of this machine until you press Ctrl-C. Only the printed address opens it: it has a token.\n",
     .options = ui_options,
     .folder = FB_FOLDER_IS_MADE,
     .run = open_viewer},
    {0},
};
