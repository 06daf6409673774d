/* A run on a terminal. */
#ifndef FB_CLI_RUN_H
#define FB_CLI_RUN_H

#include "server/cli/cli.h"

/* "NAME  value" lines; ends with a NULL name. An empty value is left out. */
typedef struct fb_fact {
    const char *name, *value;
} fb_fact;
void fb_print_facts(fb_cli *cli, const fb_fact *facts);

void fb_print_run(fb_cli *cli, const json_t *run);
/* What was bound to a graph, when something was. */
void fb_print_binding(fb_cli *cli, const json_t *weights);

/* A cell with a number of a difference (max_absolute …), short. */
void fb_table_deviation(fb_screen_table *table, const json_t *difference, const char *name);

/* A request whose answer is a run: writes its result to --output, and prints the run unless that is standard output. */
int fb_run_call(fb_cli *cli, fb_call *call);

#endif
