/* Uploads: opened by one request at a time, written, closed. Facts about them are in memory; the files are read again when the
 * store is opened. */

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/map.h"
#include "server/database/query.h"
#include "server/database/ulid.h"
#include "server/database/writer.h"
#include "server/store/audit.h"
#include "server/store/blobs.h"
#include "server/store/state.h"
#include "server/store/store.h"
#include "server/store/uploads.h"

#define ID_PREFIX "upload_"
#define WRITE_BEHIND                                                                                                           \
    ((uint64_t)16 << 20) /* bytes after which the disk begins to write, so that fsync has little left to do                    \
                          */

/* ---- the table ---- */

static fb_upload **bucket_of(fb_uploads *uploads, const char *id) {
    return &uploads->buckets[fb_hash(id, strlen(id), 0) % FB_UPLOAD_BUCKETS];
}

static void add(fb_uploads *uploads, fb_upload *upload) {
    pthread_mutex_lock(&uploads->mutex);
    fb_upload **bucket = bucket_of(uploads, upload->id);
    upload->next = *bucket;
    *bucket = upload;
    uploads->count++;
    pthread_mutex_unlock(&uploads->mutex);
}

static void take_out(fb_uploads *uploads, fb_upload *upload) {
    pthread_mutex_lock(&uploads->mutex);
    fb_upload **place = bucket_of(uploads, upload->id);
    while (*place != upload) place = &(*place)->next;
    *place = upload->next;
    uploads->count--;
    pthread_mutex_unlock(&uploads->mutex);
}

static void free_upload(fb_upload *upload) {
    fb_sha256_free(upload->hash);
    free(upload);
}

void fb_uploads_free(fb_uploads *uploads) {
    for (size_t i = 0; i < FB_UPLOAD_BUCKETS; i++)
        for (fb_upload *upload = uploads->buckets[i], *next; upload; upload = next) {
            next = upload->next;
            free_upload(upload);
        }
}

size_t fb_uploads_count(fb_uploads *uploads) {
    pthread_mutex_lock(&uploads->mutex);
    size_t count = uploads->count;
    pthread_mutex_unlock(&uploads->mutex);
    return count;
}

static bool is_upload_id(const char *name) {
    size_t prefix = strlen(ID_PREFIX);
    return strncmp(name, ID_PREFIX, prefix) == 0 && strspn(name + prefix, FB_ULID_DIGITS) == FB_ULID_LENGTH &&
           !name[prefix + FB_ULID_LENGTH];
}

static fb_status load(fb_store *store, int folder, const char *name, fb_error *error) {
    struct stat about;
    if (!is_upload_id(name) || fstatat(folder, name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode)) return FB_OK;
    fb_upload *upload = calloc(1, sizeof *upload);
    if (!upload) return fb_fail_memory(error);
    *upload = (fb_upload){
        .store = store, .is_kept = true, .file = -1, .size = (uint64_t)about.st_size, .changed = fb_changed_ms(&about)};
    snprintf(upload->id, sizeof upload->id, "%.*s", FB_UPLOAD_ID_LENGTH, name);
    add(&store->uploads, upload);
    return FB_OK;
}

fb_status fb_uploads_load(fb_store *store, fb_error *error) {
    int folder = openat(store->files.folder, FB_UPLOADS_FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = folder < 0 ? NULL : fdopendir(folder);
    if (!listing) {
        fb_status status = fb_fail_file(error, "list the uploads", errno);
        if (folder >= 0) close(folder);
        return status;
    }
    fb_status status = FB_OK;
    for (struct dirent *entry; !status && (entry = readdir(listing));) status = load(store, folder, entry->d_name, error);
    closedir(listing);
    return status;
}

/* ---- open ---- */

static fb_status make_file(fb_store *store, char id[FB_UPLOAD_ID_LENGTH + 1], int *file, fb_error *error) {
    char ulid[FB_ULID_LENGTH + 1], path[FB_FILE_PATH_MAX];
    fb_status status = fb_ulid_next(&store->ulids, store->config.now_ms(), ulid, error);
    if (status) return status;
    snprintf(id, FB_UPLOAD_ID_LENGTH + 1, ID_PREFIX "%s", ulid);
    fb_upload_path(id, path);
    *file = openat(store->files.folder, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return *file < 0 ? fb_fail_file(error, "make a file", errno) : FB_OK;
}

fb_status fb_upload_new(fb_store *store, bool is_kept, fb_upload **out, fb_error *error) {
    fb_upload *upload = calloc(1, sizeof *upload);
    if (!upload) return fb_fail_memory(error);
    *upload = (fb_upload){
        .store = store, .is_kept = is_kept, .is_open = true, .changed = store->config.now_ms(), .hash = fb_sha256_new()};
    fb_status status = upload->hash ? make_file(store, upload->id, &upload->file, error) : fb_fail_memory(error);
    if (status) {
        free_upload(upload);
        return status;
    }
    add(&store->uploads, upload);
    *out = upload;
    return FB_OK;
}

/* With the mutex: an upload that is not open. */
static fb_status find_free(fb_store *store, const char *id, fb_upload **out, fb_error *error) {
    fb_upload *upload = *bucket_of(&store->uploads, id);
    while (upload && strcmp(upload->id, id) != 0) upload = upload->next;
    if (!upload || !upload->is_kept)
        return fb_fail(error, FB_NOT_FOUND, "unknown-upload", NULL, "there is no upload %s%s", id,
                       store->replica.is_shared ? " on this replica; it goes on where it began" : "");
    if (upload->is_open) return fb_fail(error, FB_CONFLICT, "upload-busy", NULL, "another request is using the upload %s", id);
    *out = upload;
    return FB_OK;
}

/* The upload, taken by the caller; its file is not open. */
static fb_status take(fb_store *store, const char *id, fb_upload **out, fb_error *error) {
    pthread_mutex_lock(&store->uploads.mutex);
    fb_status status = find_free(store, id, out, error);
    if (!status) (*out)->is_open = true;
    pthread_mutex_unlock(&store->uploads.mutex);
    return status;
}

fb_status fb_upload_look(fb_store *store, const char *id, uint64_t *size, fb_error *error) {
    fb_upload *upload = NULL;
    pthread_mutex_lock(&store->uploads.mutex);
    fb_status status = find_free(store, id, &upload, error);
    if (!status) *size = upload->size;
    pthread_mutex_unlock(&store->uploads.mutex);
    return status;
}

static void give_back(fb_upload *upload) {
    pthread_mutex_lock(&upload->store->uploads.mutex);
    upload->is_open = false;
    pthread_mutex_unlock(&upload->store->uploads.mutex);
}

fb_status fb_upload_open(fb_store *store, const char *id, fb_upload **out, fb_error *error) {
    char path[FB_FILE_PATH_MAX];
    fb_upload *upload = NULL;
    fb_status status = take(store, id, &upload, error);
    if (status) return status;
    fb_upload_path(upload->id, path);
    upload->file = openat(store->files.folder, path, O_RDWR | O_CLOEXEC);
    struct stat about;
    if (upload->file < 0 || fstat(upload->file, &about) != 0) {
        status = fb_fail_file(error, "open an upload", errno);
        if (upload->file >= 0) close(upload->file);
        upload->file = -1;
        give_back(upload);
        return status;
    }
    upload->is_whole = about.st_nlink > 1;
    *out = upload;
    return FB_OK;
}

const char *fb_upload_id(const fb_upload *upload) {
    return upload->is_kept ? upload->id : "";
}

uint64_t fb_upload_size(const fb_upload *upload) {
    return upload->size;
}

int64_t fb_upload_created(const fb_upload *upload) {
    assert(upload->is_finished);
    return upload->created;
}

/* ---- write and close ---- */

/* From here on the file says what the bytes are. */
static void forget_hash(fb_upload *upload) {
    fb_sha256_free(upload->hash);
    upload->hash = NULL;
}

static void start_writing(const fb_upload *upload, uint64_t before) {
    if (upload->size / WRITE_BEHIND == before / WRITE_BEHIND) return;
    uint64_t from = before / WRITE_BEHIND * WRITE_BEHIND;
    sync_file_range(upload->file, (off_t)from, (off_t)(upload->size - from), SYNC_FILE_RANGE_WRITE);
}

fb_status fb_upload_write(fb_upload *upload, const void *bytes, size_t size, fb_error *error) {
    assert(!upload->is_finished);
    if (upload->is_whole)
        return fb_fail(error, FB_CONFLICT, "upload-whole", NULL,
                       "the upload has all its bytes, and its end was interrupted: end it again, without more, or delete it");
    upload->is_changed = true;
    upload->changed = upload->store->config.now_ms();
    for (size_t done = 0; done < size;) {
        ssize_t wrote = pwrite(upload->file, (const char *)bytes + done, size - done, (off_t)(upload->size + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) {
            fb_status status = fb_fail_file(error, "write an upload", wrote < 0 ? errno : ENOSPC);
            ftruncate(upload->file, (off_t)upload->size); /* where it cannot, the rest is written over, or cut at the end */
            return status;
        }
        done += (size_t)wrote;
    }
    uint64_t before = upload->size;
    upload->size += size;
    if (upload->hash && !fb_sha256_add(upload->hash, bytes, size)) forget_hash(upload);
    start_writing(upload, before);
    return FB_OK;
}

fb_status fb_upload_map(const fb_upload *upload, unsigned char **bytes, fb_error *error) {
    void *mapped = mmap(NULL, (size_t)upload->size, PROT_READ, MAP_SHARED, upload->file, 0);
    if (mapped == MAP_FAILED) return fb_fail_file(error, "map an upload", errno);
    *bytes = mapped;
    return FB_OK;
}

fb_status fb_upload_sync(fb_upload *upload, fb_error *error) {
    struct stat about;
    bool is_right = fstat(upload->file, &about) == 0;
    if (is_right && (uint64_t)about.st_size != upload->size) is_right = ftruncate(upload->file, (off_t)upload->size) == 0;
    if (is_right && fsync(upload->file) == 0) {
        upload->is_changed = false;
        return FB_OK;
    }
    fb_status status = fb_fail_file(error, "sync an upload", errno);
    ftruncate(upload->file, 0);
    upload->size = 0;
    forget_hash(upload);
    return status;
}

void fb_upload_close(fb_upload *upload, bool is_cancelled) {
    if (!upload) return;
    fb_store *store = upload->store;
    bool is_over = upload->is_finished || is_cancelled || !upload->is_kept;
    if (!is_over && upload->is_changed) fb_upload_sync(upload, NULL); /* when it fails, the upload's size shows it */
    upload->is_changed = false;
    if (upload->file >= 0) close(upload->file);
    upload->file = -1;
    if (!is_over) {
        give_back(upload);
        return;
    }
    char path[FB_FILE_PATH_MAX];
    fb_upload_path(upload->id, path);
    if (!upload->is_finished) unlinkat(store->files.folder, path, 0);
    take_out(&store->uploads, upload);
    free_upload(upload);
}

fb_status fb_upload_copy(fb_upload *upload, int from, uint64_t size, void (*progress)(void *, uint64_t), void *context,
                         fb_error *error) {
    assert(!upload->size && !upload->is_finished && upload->hash);
    upload->is_changed = true;
    upload->changed = upload->store->config.now_ms();
    fb_status status = fb_file_copy(from, upload->file, size, upload->hash, progress, context, error);
    if (!status) upload->size = size;
    return status;
}

fb_status fb_store_scratch(fb_store *store, int *file, fb_error *error) {
    char id[FB_UPLOAD_ID_LENGTH + 1], path[FB_FILE_PATH_MAX];
    int made = -1;
    fb_status status = make_file(store, id, &made, error);
    if (status) return status;
    fb_upload_path(id, path);
    if (unlinkat(store->files.folder, path, 0) != 0) status = fb_fail_file(error, "make a file", errno);
    if (status) close(made);
    else *file = made;
    return status;
}

/* ---- audit ---- */

typedef struct upload_entry {
    const fb_upload *upload;
    const char *action;
    const fb_store_actor *by;
    int64_t now;
} upload_entry;

static fb_status write_entry(fb_connection *connection, void *argument, fb_totals *added, fb_error *error) {
    (void)added;
    const upload_entry *entry = argument;
    char outcome[40];
    snprintf(outcome, sizeof outcome, "%" PRIu64 " bytes", entry->upload->size);
    return fb_write_audit(connection, entry->by, entry->now, entry->action, entry->upload->id, outcome, error);
}

fb_status fb_upload_audit(const fb_upload *upload, const char *action, const fb_store_actor *by, fb_error *error) {
    upload_entry entry = {.upload = upload, .action = action, .by = by, .now = upload->store->config.now_ms()};
    bool makes_room = !strcmp(action, "upload-delete");
    return (makes_room ? fb_writer_make_room : fb_writer_run_to_end)(&upload->store->writer, write_entry, NULL, &entry, error);
}

/* ---- garbage ---- */

/* One of the bucket's uploads that are not open and were not changed since `before`, taken by the caller; or NULL. */
static fb_upload *take_old(fb_uploads *uploads, size_t bucket, int64_t before) {
    pthread_mutex_lock(&uploads->mutex);
    fb_upload *upload = uploads->buckets[bucket];
    while (upload && (upload->is_open || upload->changed > before)) upload = upload->next;
    if (upload) upload->is_open = true;
    pthread_mutex_unlock(&uploads->mutex);
    return upload;
}

static uint64_t count_old(fb_uploads *uploads, size_t bucket, int64_t before) {
    uint64_t count = 0;
    pthread_mutex_lock(&uploads->mutex);
    for (const fb_upload *upload = uploads->buckets[bucket]; upload; upload = upload->next)
        count += !upload->is_open && upload->changed <= before;
    pthread_mutex_unlock(&uploads->mutex);
    return count;
}

uint64_t fb_uploads_collect(fb_store *store, int64_t before, bool is_dry) {
    uint64_t count = 0;
    for (size_t i = 0; i < FB_UPLOAD_BUCKETS; i++) {
        if (is_dry) count += count_old(&store->uploads, i, before);
        else
            for (fb_upload *old; (old = take_old(&store->uploads, i, before)); count++) fb_upload_close(old, true);
    }
    return count;
}
