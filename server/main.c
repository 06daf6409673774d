#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "server/cli/cli.h"

/* A standard stream that was closed must not become the number of a file or socket of ours: what is printed would go there. */
static void keep_standard_streams(void) {
    for (int stream = 0; stream < 3; stream++) {
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream ? O_RDONLY : O_WRONLY) < 0) return;
    }
}

int main(int argc, char **argv) {
    keep_standard_streams();
    const char *name = argc > 1 ? argv[1] : "", *nearest;
    if (strcmp(name, "--version") == 0) return puts("foldback " FB_VERSION) < 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        fb_verbs_print(stdout);
        return FB_EXIT_DONE;
    }
    const fb_verb *verb = fb_verb_find(name, &nearest);
    if (verb) return (verb->start ? verb->start : fb_cli_start)(verb, argc - 2, argv + 2);
    if (!*name) {
        fb_verbs_print(stderr);
        return FB_EXIT_USAGE;
    }
    return fb_complain(FB_EXIT_USAGE, "there is no verb %s%s%s%s; foldback --help lists them", name,
                       nearest ? "; did you mean " : "", nearest ? nearest : "", nearest ? "?" : "");
}
