#include <stdio.h>
#include <string.h>

#include "server/serve.h"

static void print_usage(FILE *out) {
    fputs("usage: foldback <verb> [options]\n\n"
          "  serve       the HTTP service; foldback serve --help lists its options\n\n"
          "  --version   the version\n"
          "  --help      this text\n",
          out);
}

int main(int argc, char **argv) {
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "serve") == 0) return fb_serve(argc - 2, argv + 2);
    if (strcmp(verb, "--version") == 0) return puts("foldback " FB_VERSION) < 0;
    if (strcmp(verb, "--help") == 0 || strcmp(verb, "help") == 0) {
        print_usage(stdout);
        return FB_EXIT_DONE;
    }
    if (*verb) fprintf(stderr, "foldback: there is no verb %s\n", verb);
    print_usage(stderr);
    return FB_EXIT_USAGE;
}
