#include "server/serve.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "server/serve_options.h"

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

static bool open_access_log(const char *name, FILE **out) {
    *out = NULL;
    if (strcmp(name, "off") == 0) return true;
    *out = strcmp(name, "-") == 0 ? stderr : fopen(name, "ae");
    if (!*out) return false;
    if (*out != stderr) setvbuf(*out, NULL, _IOLBF, 0);
    return true;
}

static void close_access_log(FILE *log) {
    if (log && log != stderr) fclose(log);
}

static int serve(const fb_serve_values *values, const sigset_t *stop) {
    fb_service service;
    fb_error error = {0};
    if (fb_service_start(&values->service, &service, &error)) {
        bool is_held = strcmp(error.code, "store-locked") == 0;
        return fb_complain(is_held ? FB_EXIT_FOLDER_IN_USE : FB_EXIT_FAILED, "%s", error.message);
    }
    printf("listening on %s\n", fb_http_url(service.http));
    fflush(stdout);
    wait_for_signal(stop);
    if (!fb_service_stop(&service, values->stop_timeout_ms))
        fb_complain(0, "stopped; some requests took too long and were cut off");
    return FB_EXIT_DONE;
}

static int check_and_serve(fb_serve_values *values) {
    const char *listen = values->service.http.listen;
    if (!values->insecure_listen && !fb_http_is_loopback(listen))
        return fb_complain(
            FB_EXIT_USAGE,
            "%s is no loopback address with a port; to listen beyond this machine say --insecure-listen, knowing "
            "that there is no authentication yet",
            listen);
    FILE **log = &values->service.http.access_log;
    if (!open_access_log(values->access_log, log))
        return fb_complain(FB_EXIT_FAILED, "cannot open the access log %s: %s", values->access_log, strerror(errno));
    sigset_t stop = block_signals();
    int result = serve(values, &stop);
    close_access_log(*log);
    return result;
}

int fb_serve(const fb_verb *verb, int argc, char **argv) {
    fb_serve_values values = fb_serve_values_default();
    fb_arguments none = {0};
    int result;
    if (fb_verb_read(verb, argc, argv, &values, &none, &result)) result = check_and_serve(&values);
    fb_options_free(verb->options, &values);
    return result;
}
