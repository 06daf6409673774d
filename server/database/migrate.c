#include "server/database/backend.h"

#include "migrations.inc"

#define MIGRATION_COUNT ((int64_t)(sizeof migrations / sizeof migrations[0]))

fb_status fb_schema_read(fb_connection *connection, int64_t *version, fb_error *error) {
    bool is_ours = false, is_empty = false;
    fb_status status = connection->backend->read_version(connection, version, &is_ours, &is_empty, error);
    if (status) return status;
    if (!is_ours && !is_empty)
        return fb_fail(error, FB_INVALID, "not-a-store", NULL,
                       "the database is not one of foldback: it has tables of another program");
    if (*version > MIGRATION_COUNT)
        return fb_fail(error, FB_CONFLICT, "newer-schema", NULL,
                       "the store has schema %lld, and this version of foldback knows schemas up to %lld: use a newer foldback",
                       (long long)*version, (long long)MIGRATION_COUNT);
    return FB_OK;
}

int64_t fb_schema_newest(void) {
    return MIGRATION_COUNT;
}

const void *fb_schema_file(size_t *size) {
    *size = sizeof empty_store - 1; /* the zero that ends each array */
    return empty_store;
}

fb_status fb_schema_is_newest(fb_connection *connection, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_schema_read(connection, &version, error);
    if (status || version == MIGRATION_COUNT) return status;
    return fb_fail(error, FB_IO, "store-not-writable", NULL,
                   "the store has schema %lld, which has to be brought up to date, and cannot be written to: copy the folder",
                   (long long)version);
}

/* The next migration that is missing, if any, in one transaction: another replica may have run it meanwhile. A new store gets
 * what all of them end in, so that a start that is killed leaves either none of its tables or all. */
static fb_status run_next(fb_connection *connection, bool *is_done, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_begin(connection, true, error);
    if (!status) status = fb_schema_read(connection, &version, error);
    *is_done = !status && version == MIGRATION_COUNT;
    if (!status && !version) status = connection->backend->migrate(connection, MIGRATION_COUNT, migration_newest, error);
    else if (!status && !*is_done) status = connection->backend->migrate(connection, version + 1, migrations[version], error);
    if (!status && !*is_done) status = fb_commit(connection, error);
    fb_roll_back(connection);
    return status;
}

fb_status fb_migrate(fb_connection *connection, uint64_t max_bytes, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_schema_read(connection, &version, error);
    if (!status) status = connection->backend->set_up_writer(connection, max_bytes, error);
    for (bool is_done = version == MIGRATION_COUNT; !status && !is_done;) status = run_next(connection, &is_done, error);
    return status;
}
