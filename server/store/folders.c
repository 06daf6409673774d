/* Whole data folders: locked, looked into, removed. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"
#include "server/store/backup.h"

char *fb_path_with(const char *path, const char *suffix) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    fb_buffer out = {0};
    fb_buffer_append(&out, path, length);
    fb_buffer_string(&out, suffix);
    return fb_buffer_take(&out, NULL);
}

fb_status fb_folder_lock(const char *folder, bool is_made, int *lock, fb_error *error) {
    char *path = fb_path_with(folder, "/lock");
    *lock = -1;
    if (!path) return fb_fail_memory(error);
    int file = open(path, (is_made ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0600);
    int reason = errno;
    free(path);
    if (file < 0) return !is_made && reason == ENOENT ? FB_OK : fb_fail_file(error, "open a folder's lock", reason);
    if (flock(file, LOCK_EX | LOCK_NB) == 0) {
        *lock = file;
        return FB_OK;
    }
    reason = errno;
    close(file);
    if (reason != EWOULDBLOCK) return fb_fail_file(error, "lock a folder", reason);
    return fb_fail(error, FB_BUSY, "store-locked", NULL, "the data folder %s is held by another process of foldback", folder);
}

/* The size of a file in the folder; -1 when it is not there. */
static int64_t size_in(int folder, const char *name) {
    struct stat about;
    return fstatat(folder, name, &about, 0) == 0 ? (int64_t)about.st_size : -1;
}

/* A database with a log is read through the log's index, which a process that has the folder open keeps there, and which SQLite
 * would make. Without a log the database alone is all there is. */
fb_status fb_folder_look(const char *folder, fb_access *access, int *lock, fb_error *error) {
    int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *lock = -1;
    if (descriptor < 0) return fb_fail_file(error, "open a folder", errno);
    bool is_writable = faccessat(descriptor, ".", W_OK, AT_EACCESS) == 0;
    bool has_log = size_in(descriptor, "foldback.sqlite-wal") > 0, has_index = size_in(descriptor, "foldback.sqlite-shm") > 0;
    close(descriptor);
    if (is_writable) return FB_OK;
    if (has_log && !has_index)
        return fb_fail(error, FB_IO, "store-not-writable", NULL,
                       "%s cannot be written to, and its log (foldback.sqlite-wal) cannot be read there; without the log the "
                       "store would lack its last writes; make the folder writable, or copy it whole to where it is",
                       folder);
    *access = has_index ? FB_READS : FB_READS_FROZEN;
    return has_index ? FB_OK : fb_folder_lock(folder, false, lock, error);
}

bool fb_folder_is_empty(const char *folder) {
    static const char *const nothing[] = {".", "..", "lock", "lost+found"};
    DIR *listing = opendir(folder);
    bool is_empty = listing != NULL;
    for (struct dirent *entry; is_empty && (entry = readdir(listing));) {
        is_empty = false;
        for (size_t i = 0; i < sizeof nothing / sizeof *nothing; i++) is_empty |= strcmp(entry->d_name, nothing[i]) == 0;
    }
    if (listing) closedir(listing);
    return is_empty;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place) {
    (void)about, (void)kind, (void)place;
    return remove(path);
}

fb_status fb_folder_remove(const char *folder, fb_error *error) {
    if (nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return FB_OK;
    return fb_fail_file(error, "remove a folder", errno);
}
