/* Lists: which rows meet all conditions, in descending order of their keys, page by page.
 *
 * A condition is one fixed statement that gives the greatest key, not above a given one, that meets it; each is one step in an
 * index. Conditions are combined by asking them in turn until they agree on a key. So any combination of filters needs no SQL
 * of its own, and costs as much as the rarest of them. */
#ifndef FB_STORE_WALK_H
#define FB_STORE_WALK_H

#include "server/store/sql.h"
#include "server/store/store.h"

/* ?1 is the highest key; the number, if any, and then the texts that are not NULL are the parameters after it. */
typedef struct fb_condition {
    const char *sql;
    bool has_number;
    int64_t number;
    const char *texts[2];
    size_t group; /* of neighbours in one group, any one suffices */
} fb_condition;

/* Lowers *key to the greatest key, not above it, that meets all conditions (one at least); 0 when there is none. */
fb_status fb_walk_down(fb_connection *connection, const fb_condition *conditions, size_t count, int64_t *key, fb_error *error);

/* A list's filters in one number, to know a page token of another list. `text` may be NULL. */
uint64_t fb_filter_hash(uint64_t hash, const char *text);

/* Where a page begins, and how long it is. `page` may be NULL. FB_INVALID "bad-page-token". */
fb_status fb_page_begin(const fb_store_page *page, uint64_t filter_hash, int64_t *key, size_t *limit, fb_error *error);
/* The token of the page that begins at `key`; "" for 0. */
void fb_page_token(int64_t key, uint64_t filter_hash, char token[FB_PAGE_TOKEN_LENGTH + 1]);

/* Reads the row with that key into *item; its texts into `memory`. */
typedef fb_status fb_read_item(fb_connection *connection, int64_t key, fb_store_memory **memory, void *item, fb_error *error);

typedef struct fb_list {
    void *items; /* in `memory` */
    size_t count;
    char next_token[FB_PAGE_TOKEN_LENGTH + 1];
    fb_store_memory *memory; /* freed by the caller, also after a failure */
} fb_list;

/* A page of the rows that meet the condition, as items of `item_size` bytes. FB_INVALID "bad-page-token". */
fb_status fb_list_rows(fb_connection *connection, const fb_condition *condition, const fb_store_page *page,
                       uint64_t filter_hash, size_t item_size, fb_read_item *read, fb_list *list, fb_error *error);

#endif
