#include "server/serve.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "core/base/sha256.h"
#include "server/app.h"
#include "server/options.h"
#include "server/routes/routes.h"

static int fail(int status, const char *message) {
    fprintf(stderr, "foldback: %s\n", message);
    return status;
}

/* ---- signals ------------------------------------------------------------------------------------------------------------ */

/* Every thread inherits this: the signals wait until wait_for_signal takes them. */
static sigset_t block_signals(void) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTERM);
    sigaddset(&stop, SIGINT);
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    return stop;
}

/* Afterwards the next signal ends the process as signals do by default: what was answered is on disk already. */
static void wait_for_signal(const sigset_t *stop) {
    int taken;
    while (sigwait(stop, &taken) != 0) continue;
    pthread_sigmask(SIG_UNBLOCK, stop, NULL);
}

/* ---- start -------------------------------------------------------------------------------------------------------------- */

static bool open_access_log(const fb_serve_options *options, FILE **out) {
    *out = NULL;
    if (strcmp(options->access_log, "off") == 0) return true;
    *out = strcmp(options->access_log, "-") == 0 ? stderr : fopen(options->access_log, "ae");
    if (!*out) return false;
    if (*out != stderr) setvbuf(*out, NULL, _IOLBF, 0);
    return true;
}

static void close_access_log(FILE *log) {
    if (log && log != stderr) fclose(log);
}

static fb_status open_app(const fb_serve_options *options, fb_app *app, fb_error *error) {
    *app = (fb_app){.limits = options->limits, .cache = fb_cache_new(options->cache_bytes), .counts = fb_pass_counts_new()};
    app->limits.max_bytes = options->http.body_limit;
    if (!app->cache || !app->counts) return fb_fail_memory(error);
    fb_store_config store = {.readers = options->http.worker_threads < 8 ? options->http.worker_threads : 8};
    return fb_store_open(options->data, &store, &app->store, error);
}

static void close_app(fb_app *app) {
    fb_store_close(app->store); /* checkpoints */
    fb_cache_free(app->cache);
    fb_pass_counts_free(app->counts);
}

static int serve(const fb_serve_options *options, const sigset_t *stop) {
    fb_app app;
    fb_error error = {0};
    fb_http_server *server = NULL;
    fb_status status = open_app(options, &app, &error);
    char unused[FB_ID_LENGTH + 1]; /* libcrypto 3.0 crashes when memory runs out while it sets itself up: so now, not later */
    if (!status && !fb_sha256_id("", 0, unused)) status = fb_fail_memory(&error);
    if (!status) status = fb_http_start(&options->http, fb_routes, fb_route_count, &app, &server, &error);
    if (!status) {
        printf("listening on %s\n", fb_http_url(server));
        fflush(stdout);
        wait_for_signal(stop);
        if (!fb_http_stop(server, options->stop_timeout_ms)) fail(0, "stopped; some requests took too long and were cut off");
    }
    close_app(&app);
    if (!status) return FB_EXIT_DONE;
    return fail(strcmp(error.code, "store-locked") == 0 ? FB_EXIT_FOLDER_IN_USE : FB_EXIT_FAILED, error.message);
}

int fb_serve(int argc, char **argv) {
    char message[300];
    fb_serve_options options = fb_serve_options_default();
    if (!fb_serve_options_read(argc, argv, &options, message, sizeof message)) return fail(FB_EXIT_USAGE, message);
    if (options.wants_help) {
        fb_serve_options_print(stdout);
        return FB_EXIT_DONE;
    }
    if (!options.insecure_listen && !fb_http_is_loopback(options.http.listen)) {
        snprintf(
            message, sizeof message,
            "%s is no loopback address with a port; to listen beyond this machine say --insecure-listen, knowing that there "
            "is no authentication yet",
            options.http.listen);
        return fail(FB_EXIT_USAGE, message);
    }
    if (!open_access_log(&options, &options.http.access_log)) {
        snprintf(message, sizeof message, "cannot open the access log %s: %s", options.access_log, strerror(errno));
        return fail(FB_EXIT_FAILED, message);
    }
    sigset_t stop = block_signals();
    int result = serve(&options, &stop);
    close_access_log(options.http.access_log);
    return result;
}
