/* Paths and files of blobs in the data folder. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"

/* ---- folders ---- */

static fb_status make_folder(int folder, const char *path, const char *parent, fb_error *error) {
    if (mkdirat(folder, path, 0700) == 0) return fb_folder_sync(folder, parent, error);
    return errno == EEXIST ? FB_OK : fb_fail_file(error, "make a folder", errno);
}

fb_status fb_blob_folders_make(int folder, fb_error *error) {
    fb_status status = make_folder(folder, FB_BLOBS_FOLDER, ".", error);
    return status ? status : make_folder(folder, FB_UPLOADS_FOLDER, ".", error);
}

/* The folder that `path`, a blob's, is in; and the one that that is in. */
static void cut_path(const char *path, char folder[FB_FILE_PATH_MAX], char parent[FB_FILE_PATH_MAX]) {
    size_t length = strlen(path) - FB_BLOB_HEX_LENGTH - 1;
    snprintf(folder, FB_FILE_PATH_MAX, "%.*s", (int)length, path);
    snprintf(parent, FB_FILE_PATH_MAX, "%.*s", (int)length - 3, path);
}

/* ---- files ---- */

bool fb_blob_file_is_there(int folder, const char *digest, uint64_t size) {
    char path[FB_FILE_PATH_MAX];
    struct stat about;
    fb_blob_path(digest, path);
    return fstatat(folder, path, &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about.st_mode) && (uint64_t)about.st_size == size;
}

/* Links the file to its name; a file that is at `to` already is damaged. */
static int give_name(int folder, const char *from, const char *to) {
    int result = linkat(folder, from, folder, to, 0);
    if (result && errno == EEXIST && unlinkat(folder, to, 0) == 0) result = linkat(folder, from, folder, to, 0);
    bool is_impossible = result && (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK);
    return is_impossible ? renameat(folder, from, folder, to) : result;
}

fb_status fb_blob_file_put(int folder, const char *upload, const char *digest, bool *is_put, fb_error *error) {
    char from[FB_FILE_PATH_MAX], to[FB_FILE_PATH_MAX], inner[FB_FILE_PATH_MAX], outer[FB_FILE_PATH_MAX];
    fb_upload_path(upload, from);
    fb_blob_path(digest, to);
    cut_path(to, inner, outer);
    fb_status status = make_folder(folder, outer, FB_BLOBS_FOLDER, error);
    if (!status) status = make_folder(folder, inner, outer, error);
    if (status) return status;
    if (give_name(folder, from, to) != 0) return fb_fail_file(error, "move an upload", errno);
    *is_put = true;
    return fb_folder_sync(folder, inner, error);
}

void fb_blob_file_put_back(int folder, const char *upload, const char *digest) {
    char from[FB_FILE_PATH_MAX], to[FB_FILE_PATH_MAX];
    fb_blob_path(digest, from);
    fb_upload_path(upload, to);
    renameat(folder, from, folder, to); /* of two names of one file it changes neither */
    unlinkat(folder, from, 0);          /* where that fails, the name is rubbish, which gc takes away */
}
