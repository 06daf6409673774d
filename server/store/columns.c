/* Columns of rows: keys and texts. */
#include "server/store/rows.h"
#include "server/store/state.h"

bool fb_store_is_on_server(const fb_store *store) {
    return !store->log_path;
}

fb_status fb_read_key(fb_query *query, int64_t *key) {
    int64_t found = fb_query_row(query) ? fb_column_int(query, 0) : 0;
    fb_status status = fb_query_end(query);
    if (!status) *key = found;
    return status;
}

const char *fb_copy_column(fb_query *query, int column, fb_store_memory **memory, fb_status *status) {
    const char *copy = fb_memory_text(memory, fb_column_text(query, column));
    if (!copy && !*status) *status = fb_fail_memory(query->error);
    return copy;
}

const char *fb_copy_optional(fb_query *query, int column, fb_store_memory **memory, fb_status *status) {
    return fb_column_is_null(query, column) ? NULL : fb_copy_column(query, column, memory, status);
}

void fb_bind_key(fb_query *query, int64_t key) {
    if (key) fb_bind_int(query, key);
    else fb_bind_text(query, NULL);
}

void fb_replica_id(fb_store *store, char id[FB_ULID_LENGTH + 1]) {
    pthread_mutex_lock(&store->replica.mutex);
    memcpy(id, store->replica.id, FB_ULID_LENGTH + 1);
    pthread_mutex_unlock(&store->replica.mutex);
}
