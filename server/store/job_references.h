/* What the jobs that are not finished name: graphs, runs and blobs, which stay until the job has ended. */
#ifndef FB_STORE_JOB_REFERENCES_H
#define FB_STORE_JOB_REFERENCES_H

#include "core/base/buffer.h"
#include "server/store/sql.h"

/* Appends to `out` every id of a graph, run or blob that is in the request and in the store, each with its NUL in
 * FB_ID_LENGTH + 1 bytes; each once. */
fb_status fb_find_references(fb_connection *connection, const char *target, const char *body, size_t size, fb_buffer *out,
                             fb_error *error);
/* On the writer: notes what that found. */
fb_status fb_write_references(fb_connection *connection, int64_t job, const fb_buffer *found, fb_error *error);
/* On the writer: the job has ended. What it named was needed until now. */
fb_status fb_release_references(fb_connection *connection, const char *job, int64_t now, fb_error *error);
/* While the store is opened: notes what jobs name that were stored before schema 9. */
fb_status fb_read_unread_jobs(fb_connection *connection, fb_error *error);

#endif
