/* `foldback serve`, from start to stop. */
#ifndef FB_CLI_SERVE_H
#define FB_CLI_SERVE_H

#include "server/cli/verb.h"

extern const fb_option fb_serve_options[];

int fb_serve(const fb_verb *verb, int argc, char **argv);

#endif
