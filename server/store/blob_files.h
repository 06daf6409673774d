/* Where the bytes of blobs and uploads are in the data folder, and how a file gets from uploads/ to blobs/. */
#ifndef FB_STORE_BLOB_FILES_H
#define FB_STORE_BLOB_FILES_H

#include <sys/stat.h>

#include "server/store/blobs.h"

#define FB_UPLOADS_FOLDER "uploads"
#define FB_BLOBS_FOLDER "blobs"
#define FB_BLOB_HEX_LENGTH 64
#define FB_FILE_PATH_MAX 80

/* "blobs/ab/cd/<hex>" and "uploads/<id>", from the data folder. */
void fb_blob_path(const char *digest, char path[FB_FILE_PATH_MAX]);
void fb_upload_path(const char *id, char path[FB_FILE_PATH_MAX]);

/* Makes the two folders that are missing; durable. */
fb_status fb_blob_folders_make(fb_store *store, fb_error *error);

/* On the writer: true when the blob's file is there in its right size. */
bool fb_blob_file_is_there(const fb_store *store, const char *digest, uint64_t size);
/* On the writer: puts the upload's file, whose bytes are on disk, at the blob's place; durable. It keeps the upload's name,
 * too, so that the upload is there until the blob's row is; only where files have one name each it is moved. *is_put is set as
 * soon as the file is there, also when something failed afterwards. */
fb_status fb_blob_file_put(const fb_store *store, const char *upload, const char *digest, bool *is_put, fb_error *error);
/* On the writer: takes that back. */
void fb_blob_file_put_back(const fb_store *store, const char *upload, const char *digest);

/* When a file was last written, in milliseconds since 1970. */
int64_t fb_changed_ms(const struct stat *about);

/* Reports errno's `reason` for what could not be done: "write an upload". */
fb_status fb_fail_file(fb_error *error, const char *what, int reason);

#endif
