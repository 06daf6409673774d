/* The database's schema and its version (user_version). The migrations of schema/sql/ are built into the program. */
#ifndef FB_STORE_MIGRATE_H
#define FB_STORE_MIGRATE_H

#include "server/store/sql.h"

/* Only the check: FB_INVALID "not-a-store", FB_CONFLICT "newer-schema"; the schema's version, 0 for an empty database. */
fb_status fb_schema_read(fb_connection *connection, int64_t *version, fb_error *error);

/* For a database that cannot be written to: FB_IO "store-not-writable" when it lacks migrations. */
fb_status fb_schema_is_newest(fb_connection *connection, fb_error *error);

/* Checks that the database is ours and not newer than this program, sets it up for the writer (WAL), and runs the migrations
 * that it lacks, each in one transaction. Touches nothing when it refuses. */
fb_status fb_migrate(fb_connection *connection, fb_error *error);

#endif
