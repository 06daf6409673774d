/* A job on a terminal. */
#ifndef FB_CLI_JOBS_H
#define FB_CLI_JOBS_H

#include "server/cli/cli.h"

/* Whether an answer is a job, and not what was asked for. */
bool fb_is_job(const json_t *answer);
void fb_print_job(fb_cli *cli, const json_t *job);

#endif
