#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/database/query.h"
#include "server/store/blobs.h"
#include "server/store/files.h"
#include "server/store/state.h"

/* ---- folders ---- */

static fb_status make_folder(const fb_store *store, const char *path, const char *parent, fb_error *error) {
    if (mkdirat(store->folder, path, 0700) == 0) return fb_folder_sync(store, parent, error);
    return errno == EEXIST ? FB_OK : fb_fail_file(error, "make a folder", errno);
}

fb_status fb_blob_folders_make(fb_store *store, fb_error *error) {
    fb_status status = make_folder(store, FB_BLOBS_FOLDER, ".", error);
    return status ? status : make_folder(store, FB_UPLOADS_FOLDER, ".", error);
}

/* The folder that `path`, a blob's, is in; and the one that that is in. */
static void cut_path(const char *path, char folder[FB_FILE_PATH_MAX], char parent[FB_FILE_PATH_MAX]) {
    size_t length = strlen(path) - FB_BLOB_HEX_LENGTH - 1;
    snprintf(folder, FB_FILE_PATH_MAX, "%.*s", (int)length, path);
    snprintf(parent, FB_FILE_PATH_MAX, "%.*s", (int)length - 3, path);
}

/* ---- files ---- */

bool fb_blob_file_is_there(const fb_store *store, const char *digest, uint64_t size) {
    char path[FB_FILE_PATH_MAX];
    struct stat about;
    fb_blob_path(digest, path);
    return fstatat(store->folder, path, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode) &&
           (uint64_t)about.st_size == size;
}

/* Links the file to its name; a file that is at `to` already is damaged. */
static int give_name(int folder, const char *from, const char *to) {
    int result = linkat(folder, from, folder, to, 0);
    if (result && errno == EEXIST && unlinkat(folder, to, 0) == 0) result = linkat(folder, from, folder, to, 0);
    bool is_impossible = result && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK);
    return is_impossible ? renameat(folder, from, folder, to) : result;
}

fb_status fb_blob_file_put(const fb_store *store, const char *upload, const char *digest, bool *is_put, fb_error *error) {
    char from[FB_FILE_PATH_MAX], to[FB_FILE_PATH_MAX], folder[FB_FILE_PATH_MAX], parent[FB_FILE_PATH_MAX];
    fb_upload_path(upload, from);
    fb_blob_path(digest, to);
    cut_path(to, folder, parent);
    fb_status status = make_folder(store, parent, FB_BLOBS_FOLDER, error);
    if (!status) status = make_folder(store, folder, parent, error);
    if (status) return status;
    if (give_name(store->folder, from, to) != 0) return fb_fail_file(error, "move an upload", errno);
    *is_put = true;
    return fb_folder_sync(store, folder, error);
}

void fb_blob_file_put_back(const fb_store *store, const char *upload, const char *digest) {
    char from[FB_FILE_PATH_MAX], to[FB_FILE_PATH_MAX];
    fb_blob_path(digest, from);
    fb_upload_path(upload, to);
    renameat(store->folder, from, store->folder, to); /* of two names of one file it changes neither */
    unlinkat(store->folder, from, 0);                 /* where that fails, the name is rubbish, which gc takes away */
}

fb_status fb_store_scratch(fb_store *store, int *file, fb_error *error) {
    char id[FB_UPLOAD_ID_LENGTH + 1], path[FB_FILE_PATH_MAX];
    int made = -1;
    fb_status status = fb_upload_file_make(store, id, &made, error);
    if (status) return status;
    fb_upload_path(id, path);
    if (unlinkat(store->folder, path, 0) != 0) status = fb_fail_file(error, "make a file", errno);
    if (status) close(made);
    else *file = made;
    return status;
}
