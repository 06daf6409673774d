/* The database's schema and its version (user_version). The migrations of schema/sql/ are built into the program. */
#ifndef FB_STORE_MIGRATE_H
#define FB_STORE_MIGRATE_H

#include "server/store/sql.h"

/* Checks that the database is ours and not newer than this program, sets it up for the writer (WAL), and runs the migrations
 * that it lacks, each in one transaction. Touches nothing when it refuses. */
fb_status fb_migrate(fb_connection *connection, fb_error *error);

#endif
