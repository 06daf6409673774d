/* Blobs of the bucket that are in the data folder as well: files cache/<sha256>, whole and on disk. The one used last longest
 * ago goes first. A reader that has one open keeps its bytes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/blobs/files.h"

#define PART_SUFFIX ".part" /* being fetched */

static void cache_path(const char *digest, const char *suffix, char path[FB_FILE_PATH_MAX]) {
    snprintf(path, FB_FILE_PATH_MAX, FB_CACHE_FOLDER "/%s%s", digest + strlen("sha256:"), suffix);
}

int fb_cache_open(const fb_blob_files *files, const char *digest, uint64_t size) {
    char path[FB_FILE_PATH_MAX];
    struct stat about;
    cache_path(digest, "", path);
    int file = openat(files->folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return -1;
    if (fstat(file, &about) != 0 || (uint64_t)about.st_size != size) {
        close(file);
        return -1;
    }
    futimens(file, NULL); /* used now */
    return file;
}

void fb_cache_remove(const fb_blob_files *files, const char *digest) {
    char path[FB_FILE_PATH_MAX];
    cache_path(digest, "", path);
    unlinkat(files->folder, path, 0);
}

/* ---- room --------------------------------------------------------------------------------------------------------------- */

/* How many bytes are there, and the file that was used last longest ago; "" for none. */
static uint64_t look(DIR *listing, char oldest[FB_FILE_PATH_MAX]) {
    uint64_t total = 0;
    int64_t since = INT64_MAX;
    *oldest = '\0';
    rewinddir(listing);
    for (struct dirent *entry; (entry = readdir(listing));) {
        struct stat about;
        if (strlen(entry->d_name) != FB_BLOB_HEX_LENGTH || fstatat(dirfd(listing), entry->d_name, &about, AT_SYMLINK_NOFOLLOW))
            continue;
        total += (uint64_t)about.st_size;
        if (fb_changed_ms(&about) >= since) continue;
        since = fb_changed_ms(&about);
        snprintf(oldest, FB_FILE_PATH_MAX, "%.64s", entry->d_name);
    }
    return total;
}

static DIR *open_listing(const fb_blob_files *files) {
    int folder = openat(files->folder, FB_CACHE_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = folder < 0 ? NULL : fdopendir(folder);
    if (!listing && folder >= 0) close(folder);
    return listing;
}

/* Removes files until `size` more bytes fit. */
static void make_room(fb_blob_files *files, uint64_t size) {
    char oldest[FB_FILE_PATH_MAX];
    uint64_t most = files->cache_bytes;
    pthread_mutex_lock(&files->cache_mutex);
    DIR *listing = open_listing(files);
    while (listing && look(listing, oldest) + size > most && *oldest)
        if (unlinkat(dirfd(listing), oldest, 0) != 0) break;
    if (listing) closedir(listing);
    pthread_mutex_unlock(&files->cache_mutex);
}

/* ---- into the cache ----------------------------------------------------------------------------------------------------- */

static fb_status fetch(fb_blob_files *files, const char *digest, uint64_t size, int *out, fb_error *error) {
    char part[FB_FILE_PATH_MAX], path[FB_FILE_PATH_MAX];
    cache_path(digest, PART_SUFFIX, part);
    cache_path(digest, "", path);
    bool is_kept = size <= files->cache_bytes;
    if (is_kept) make_room(files, size);
    int file = openat(files->folder, part, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return fb_fail_file(error, "make a file", errno);
    fb_status status = fb_bucket_fetch(files->bucket, digest, file, size, error);
    if (!status && is_kept && fsync(file) != 0) status = fb_fail_file(error, "sync a blob", errno);
    if (!status && is_kept && renameat(files->folder, part, files->folder, path) != 0)
        status = fb_fail_file(error, "keep a blob", errno);
    if (status || !is_kept) unlinkat(files->folder, part, 0);
    if (status) close(file);
    else *out = file;
    return status;
}

fb_status fb_cache_fetch(fb_blob_files *files, const char *digest, uint64_t size, int *file, fb_error *error) {
    fb_claim claim;
    fb_status status = FB_OK;
    fb_bucket_claim(files->bucket, digest, &claim);
    int found = fb_cache_open(files, digest, size);
    if (found < 0) status = fetch(files, digest, size, &found, error);
    fb_bucket_release(files->bucket, &claim);
    if (!status) *file = found;
    return status;
}

void fb_cache_take(fb_blob_files *files, const char *upload, const char *digest, uint64_t size) {
    char from[FB_FILE_PATH_MAX], to[FB_FILE_PATH_MAX];
    bool is_kept = size <= files->cache_bytes;
    fb_upload_path(upload, from);
    cache_path(digest, "", to);
    if (is_kept) make_room(files, size);
    if (!is_kept || renameat(files->folder, from, files->folder, to) != 0) unlinkat(files->folder, from, 0);
}

fb_status fb_cache_make(fb_blob_files *files, fb_error *error) {
    if (mkdirat(files->folder, FB_CACHE_FOLDER, 0700) != 0 && errno != EEXIST)
        return fb_fail_file(error, "make a folder", errno);
    DIR *listing = open_listing(files);
    if (!listing) return fb_fail_file(error, "list the cache", errno);
    for (struct dirent *entry; (entry = readdir(listing));)
        if (strlen(entry->d_name) == FB_BLOB_HEX_LENGTH + strlen(PART_SUFFIX)) unlinkat(dirfd(listing), entry->d_name, 0);
    closedir(listing);
    return FB_OK;
}
