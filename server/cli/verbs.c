#include "server/cli/verb.h"
#include "server/serve.h"

const fb_verb fb_verbs[] = {
    {.name = "serve",
     .arguments = "",
     .summary = "runs the HTTP service",
     .description =
         "Serves the HTTP API until SIGTERM or SIGINT, then finishes what runs and exits; a second signal ends it at\n"
         "once. Prints one line when it is ready: listening on http://127.0.0.1:8080\n\n"
         "BYTES take the suffixes K, M and G.\n",
     .options = fb_serve_options,
     .start = fb_serve},
    {0},
};
