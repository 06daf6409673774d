/* Models, versions and aliases on a terminal. */
#ifndef FB_CLI_MODELS_H
#define FB_CLI_MODELS_H

#include "server/cli/reference.h"

void fb_print_alias(fb_cli *cli, const json_t *alias);
void fb_print_version(fb_cli *cli, const json_t *version);

/* foldback rollback MODEL@ALIAS */
int fb_rollback_alias(fb_cli *cli, const fb_reference *alias);

#endif
