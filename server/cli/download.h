/* Answers that are too large for memory, to a file or to standard output. */
#ifndef FB_CLI_DOWNLOAD_H
#define FB_CLI_DOWNLOAD_H

#include "server/cli/cli.h"

/* GETs the address, which it steals, into --output, or into standard output when that is no terminal. A file gets its name when
 * it is whole; until then it is FILE.<8 hex digits of what it is a part of>.part, and a later call goes on where this one was
 * interrupted. `digest` is that of the bytes where it is known, else NULL. */
int fb_download(fb_cli *cli, fb_address *address, const char *digest);

#endif
