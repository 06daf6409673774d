/* Lists of the API, page by page. */
#ifndef FB_CLI_LIST_H
#define FB_CLI_LIST_H

#include "server/cli/cli.h"

typedef struct fb_list {
    json_t *items; /* owned */
    bool has_more; /* than --limit */
} fb_list;

/* Up to --limit items; steals the address. */
int fb_list_get(fb_cli *cli, fb_address *address, fb_list *out);

/* A row's cells, one for each heading. */
typedef void fb_list_row(const json_t *item, fb_screen_table *table);

/* The rows alone, as a table. */
void fb_list_print_table(fb_cli *cli, const json_t *items, const char *const *headings, size_t columns, fb_list_row *row);

/* fb_list_get, then printed: as JSON, or as a table with these headings. */
int fb_list_show(fb_cli *cli, fb_address *address, const char *const *headings, size_t columns, fb_list_row *row);

/* The rows of runs. */
#define FB_RUN_COLUMNS 5
extern const char *const fb_run_headings[FB_RUN_COLUMNS];
fb_list_row fb_run_row;

/* A cell with a graph's id, shortened: "sha256:5ede3ef8c7ed…". */
void fb_table_short_id(fb_screen_table *table, const char *id);
void fb_table_text(fb_screen_table *table, const json_t *object, const char *name);
/* On a terminal: "3 min ago", "1.2 MB". */
void fb_table_time(fb_screen_table *table, const json_t *object, const char *name);
void fb_table_size(fb_screen_table *table, const json_t *object, const char *name);
void fb_table_number(fb_screen_table *table, const json_t *object, const char *name);

#endif
