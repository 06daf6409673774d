/* Paths of files in the data folder, and their failures. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"

fb_status fb_fail_file(fb_error *error, const char *what, int reason) {
    if (reason == ENOSPC || reason == EDQUOT || reason == EFBIG) return fb_fail_full(error);
    if (reason == ENOMEM) return fb_fail_memory(error);
    return fb_fail(error, FB_IO, "store-failed", NULL, "the store cannot %s: %s", what, strerror(reason));
}

int64_t fb_changed_ms(const struct stat *about) {
    return (int64_t)about->st_mtim.tv_sec * 1000 + about->st_mtim.tv_nsec / 1000000;
}

void fb_blob_path(const char *digest, char path[FB_FILE_PATH_MAX]) {
    const char *hex = digest + strlen("sha256:");
    snprintf(path, FB_FILE_PATH_MAX, FB_BLOBS_FOLDER "/%.2s/%.2s/%s", hex, hex + 2, hex);
}

void fb_upload_path(const char *id, char path[FB_FILE_PATH_MAX]) {
    snprintf(path, FB_FILE_PATH_MAX, FB_UPLOADS_FOLDER "/%s", id);
}

fb_status fb_folder_write(int folder, const char *name, const void *bytes, size_t size, fb_error *error) {
    char part[64];
    snprintf(part, sizeof part, "%s.part", name);
    int file = openat(folder, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return fb_fail_file(error, "write a file", errno);
    ssize_t written = 0;
    for (size_t done = 0; written >= 0 && done < size; done += (size_t)written)
        if ((written = write(file, (const char *)bytes + done, size - done)) < 0 && errno == EINTR) written = 0;
    bool ok = written >= 0 && fsync(file) == 0;
    int reason = errno;
    close(file);
    if (ok && renameat(folder, part, folder, name) == 0) return fb_folder_sync(folder, ".", error);
    if (ok) reason = errno;
    unlinkat(folder, part, 0);
    return fb_fail_file(error, "write a file", reason);
}

fb_status fb_folder_sync(int folder, const char *path, fb_error *error) {
    int opened = openat(folder, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int result = opened < 0 ? -1 : fsync(opened);
    int reason = errno;
    if (opened >= 0) close(opened);
    return result ? fb_fail_file(error, "sync a folder", reason) : FB_OK;
}
