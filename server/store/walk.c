#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"
#include "server/database/memory.h"
#include "server/database/query.h"
#include "server/database/writer.h"
#include "server/store/rows.h"
#include "server/store/state.h"
#include "server/store/store.h"

static fb_status greatest(fb_connection *connection, const fb_condition *condition, int64_t highest, int64_t *key,
                          fb_error *error) {
    fb_query query = fb_query_begin(connection, condition->sql, error);
    fb_bind_int(&query, highest);
    if (condition->has_number) fb_bind_int(&query, condition->number);
    for (size_t i = 0; i < 2; i++)
        if (condition->texts[i]) fb_bind_text(&query, condition->texts[i]);
    return fb_read_key(&query, key);
}

/* Lowers *key to the greatest key, not above it, that meets all conditions (one at least); 0 when there is none. */
static fb_status walk_down(fb_connection *connection, const fb_condition *conditions, size_t count, int64_t *key,
                           fb_error *error) {
    for (int64_t before = 0; *key != before && *key > 0;) {
        before = *key;
        for (size_t i = 0; i<count && * key> 0;) {
            int64_t best = 0;
            for (size_t group = conditions[i].group; i < count && conditions[i].group == group; i++) {
                int64_t found = 0;
                fb_status status = greatest(connection, &conditions[i], *key, &found, error);
                if (status) return status;
                if (found > best) best = found;
            }
            *key = best;
        }
        if (conditions[0].group == conditions[count - 1].group) break; /* no other group is left */
    }
    return FB_OK;
}

uint64_t fb_filter_hash(uint64_t hash, const char *text) {
    return text ? fb_hash(text, strlen(text), hash + 1) : fb_hash("", 0, hash);
}

static uint32_t fold(uint64_t hash) {
    return (uint32_t)(hash ^ hash >> 32);
}

/* The token of the page that begins at `key`; "" for 0. */
static void page_token(int64_t key, uint64_t filter_hash, char token[FB_PAGE_TOKEN_LENGTH + 1]) {
    token[0] = '\0';
    if (key > 0) snprintf(token, FB_PAGE_TOKEN_LENGTH + 1, "%016" PRIx64 "%08" PRIx32, (uint64_t)key, fold(filter_hash));
}

/* Where a page begins, and how long it is. `page` may be NULL. FB_INVALID "bad-page-token". */
static fb_status page_begin(const fb_store_page *page, uint64_t filter_hash, int64_t *key, size_t *limit, fb_error *error) {
    *limit = page && page->limit ? page->limit : FB_PAGE_DEFAULT;
    if (*limit > FB_PAGE_MAX) *limit = FB_PAGE_MAX;
    *key = INT64_MAX;
    if (!page || !page->token) return FB_OK;
    char digits[17] = "", expected[FB_PAGE_TOKEN_LENGTH + 1] = "";
    if (strlen(page->token) == FB_PAGE_TOKEN_LENGTH) {
        memcpy(digits, page->token, 16);
        uint64_t value = strtoull(digits, NULL, 16);
        if (value <= INT64_MAX) *key = (int64_t)value;
        page_token(*key, filter_hash, expected);
    }
    if (expected[0] && strcmp(expected, page->token) == 0) return FB_OK;
    return fb_fail(error, FB_INVALID, "bad-page-token", NULL, "the page token does not belong to this list with these filters");
}

static fb_status read_rows(fb_connection *connection, const fb_list_query *query, fb_row_list *list, fb_error *error) {
    int64_t key = 0;
    size_t limit = 0;
    fb_status status = query->find ? query->find(connection, query->of, &query->conditions[0].number, error) : FB_OK;
    if (!status) status = page_begin(query->page, query->filter_hash, &key, &limit, error);
    if (status) return status;
    char *items = fb_memory_take(&list->memory, limit * query->item_size);
    if (!items) return fb_fail_memory(error);
    list->items = items;
    status = walk_down(connection, query->conditions, query->count, &key, error);
    while (!status && key > 0 && list->count < limit) {
        status = query->read(connection, key--, &list->memory, items + query->item_size * list->count++, error);
        if (!status) status = walk_down(connection, query->conditions, query->count, &key, error);
    }
    page_token(key, query->filter_hash, list->next_token);
    return status;
}

fb_status fb_list_read(fb_store *store, const fb_list_query *query, fb_row_list *list, fb_error *error) {
    fb_connection *connection = NULL;
    fb_row_list read = {0};
    fb_status status = fb_readers_take(&store->readers, &connection, error);
    if (status) return status;
    status = read_rows(connection, query, &read, error);
    fb_readers_give_back(&store->readers, connection);
    if (status) fb_memory_free(read.memory);
    else *list = read;
    return status;
}
