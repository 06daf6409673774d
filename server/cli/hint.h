/* "did you mean …?" for names that the store does not have. */
#ifndef FB_CLI_HINT_H
#define FB_CLI_HINT_H

#include "server/cli/cli.h"

/* A line on standard error when the problem is about a name, and one like it exists: of a pass, model, alias, version, run,
 * graph, job, token or transformation. Asks the service for the names; says nothing when it does not tell. */
void fb_hint(fb_cli *cli, const json_t *problem);

#endif
