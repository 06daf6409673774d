#include "server/store/backup.h"
#include "server/blobs/files.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/database/backend.h"
#include "server/database/query.h"
#include "server/store/rows.h"
#include "server/store/store.h"

#define PAGES_AT_ONCE 1024
#define ATTEMPTS 5
#define BLOCK ((size_t)1 << 20)

typedef struct copy {
    const fb_copying *how;
    int from, to; /* folders */
    char *from_database, *to_database;
    fb_access access;
    bool has_bucket; /* which has the blobs that are not files */
    fb_copied figures;
} copy;

static void tell(const copy *work, const char *what, uint64_t done, uint64_t total) {
    if (work->how->progress) work->how->progress(work->how->context, what, done, total);
}

/* ---- the database ------------------------------------------------------------------------------------------------------- */

static fb_status copy_pages(copy *work, fb_connection *from, fb_connection *to, fb_error *error) {
    sqlite3_backup *pages = sqlite3_backup_init(fb_sqlite_handle(to), "main", fb_sqlite_handle(from), "main");
    if (!pages) return fb_sqlite_status(to, sqlite3_extended_errcode(fb_sqlite_handle(to)), error);
    int result = SQLITE_OK;
    while (result == SQLITE_OK) {
        result = sqlite3_backup_step(pages, PAGES_AT_ONCE);
        int total = sqlite3_backup_pagecount(pages);
        tell(work, "pages", (uint64_t)(total - sqlite3_backup_remaining(pages)), (uint64_t)total);
    }
    fb_status status = fb_sqlite_status(to, result, error);
    result = sqlite3_backup_finish(pages);
    return status ? status : fb_sqlite_status(to, result, error);
}

/* Everything is read within one transaction, so that it is one snapshot. */
static fb_status read_snapshot(copy *work, fb_connection *from, fb_connection *to, fb_error *error) {
    int64_t version = 0;
    fb_status status = fb_begin(from, false, error);
    if (!status) status = fb_schema_read(from, &version, error);
    if (!status && !version) status = fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "the database of the store is empty");
    if (!status) status = copy_pages(work, from, to, error);
    return status;
}

static fb_status copy_database(copy *work, fb_error *error) {
    fb_connection from = {0}, to = {0};
    int file = open(work->to_database, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600); /* SQLite's would be for everybody */
    if (file < 0) return fb_fail_file(error, "make a database", errno);
    fb_status status = fb_connection_open(&from, work->from_database, work->access, error);
    if (!status) status = fb_connection_open(&to, work->to_database, FB_READS_AND_WRITES, error);
    if (!status) status = fb_sql_script(&to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", error);
    if (!status) status = read_snapshot(work, &from, &to, error);
    fb_connection_close(&from);
    fb_connection_close(&to);
    if (!status && fsync(file) != 0) status = fb_fail_file(error, "sync a database", errno);
    struct stat about;
    if (!status && fstat(file, &about) == 0) work->figures.database_bytes = (uint64_t)about.st_size;
    close(file);
    return status;
}

void fb_database_remove(const char *path) {
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char *name = fb_path_with(path, ends[i]);
        if (name) unlink(name);
        free(name);
    }
}

fb_status fb_database_copy(const char *from, fb_access access, const char *to, fb_error *error) {
    const fb_copying how = {0};
    copy work = {.how = &how, .access = access, .from_database = fb_path_with(from, ""), .to_database = fb_path_with(to, "")};
    fb_database_remove(to);
    fb_status status = work.from_database && work.to_database ? copy_database(&work, error) : fb_fail_memory(error);
    free(work.from_database);
    free(work.to_database);
    return status;
}

/* ---- files of blobs ----------------------------------------------------------------------------------------------------- */

static fb_status make_folders(const copy *work, const char *path, fb_error *error) {
    char folder[FB_FILE_PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
        if (mkdirat(work->to, folder, 0700) != 0 && errno != EEXIST) return fb_fail_file(error, "make a folder", errno);
    }
    return FB_OK;
}

static fb_status write_all(int file, const char *bytes, size_t size, fb_error *error) {
    for (size_t done = 0; done < size;) {
        ssize_t wrote = write(file, bytes + done, size - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return fb_fail_file(error, "write a copy", wrote < 0 ? errno : ENOSPC);
        done += (size_t)wrote;
    }
    return FB_OK;
}

/* `digest` is the copied file's. */
static fb_status copy_bytes(int from, int to, char digest[FB_ID_LENGTH + 1], fb_error *error) {
    fb_sha256 *hash = fb_sha256_new();
    char *block = malloc(BLOCK);
    fb_status status = hash && block ? FB_OK : fb_fail_memory(error);
    while (!status) {
        ssize_t got = read(from, block, BLOCK);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = fb_fail_file(error, "read a blob", errno);
        if (got <= 0) break;
        if (!fb_sha256_add(hash, block, (size_t)got)) status = fb_fail_memory(error);
        if (!status) status = write_all(to, block, (size_t)got, error);
    }
    if (!status && fsync(to) != 0) status = fb_fail_file(error, "sync a copy", errno);
    if (!status && !fb_sha256_id_so_far(hash, digest)) status = fb_fail_memory(error);
    free(block);
    fb_sha256_free(hash);
    return status;
}

static fb_status copy_file(copy *work, const char *path, const char *digest, bool *is_there, fb_error *error) {
    char actual[FB_ID_LENGTH + 1];
    int from = openat(work->from, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    *is_there = from >= 0;
    if (from < 0) return errno == ENOENT ? FB_OK : fb_fail_file(error, "open a blob", errno);
    int to = openat(work->to, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fb_status status = to < 0 ? fb_fail_file(error, "make a copy", errno) : copy_bytes(from, to, actual, error);
    if (!status && strcmp(actual, digest) != 0) work->figures.damaged++;
    if (to >= 0) close(to);
    close(from);
    return status;
}

/* Which bucket the store uses: the copy reads the same objects. */
static fb_status copy_bucket_file(const copy *work, fb_error *error) {
    char digest[FB_ID_LENGTH + 1];
    int from = openat(work->from, FB_BUCKET_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0) return fb_fail_file(error, "open " FB_BUCKET_FILE, errno);
    int to = openat(work->to, FB_BUCKET_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fb_status status = to < 0 ? fb_fail_file(error, "make a copy", errno) : copy_bytes(from, to, digest, error);
    if (to >= 0) close(to);
    close(from);
    return status;
}

/* A file that went since the snapshot is not there; nor is one that the store has lost. */
static fb_status take_file(copy *work, const char *digest, uint64_t size, bool *is_there, fb_error *error) {
    char path[FB_FILE_PATH_MAX];
    struct stat about;
    fb_blob_path(digest, path);
    *is_there = fstatat(work->to, path, &about, AT_SYMLINK_NOFOLLOW) == 0; /* from the attempt before */
    if (*is_there) return FB_OK;
    fb_status status = make_folders(work, path, error);
    if (status) return status;
    if (work->how->may_link && linkat(work->from, path, work->to, path, 0) == 0) {
        *is_there = true;
        work->figures.linked++;
        bool is_whole = fstatat(work->to, path, &about, AT_SYMLINK_NOFOLLOW) == 0 && (uint64_t)about.st_size == size;
        if (!is_whole) work->figures.damaged++;
        return FB_OK;
    }
    status = copy_file(work, path, digest, is_there, error);
    *is_there |= !status && work->has_bucket;
    return status;
}

static fb_status take_files(copy *work, fb_connection *snapshot, uint64_t *missing, fb_error *error) {
    int64_t total = 0;
    fb_query count = fb_query_begin(snapshot, "SELECT count(*) FROM blobs WHERE bytes IS NULL", error);
    fb_status status = fb_read_key(&count, &total);
    work->figures.files = *missing = 0;
    fb_query query = fb_query_begin(snapshot, "SELECT digest, size FROM blobs WHERE bytes IS NULL", error);
    while (!status && fb_query_row(&query)) {
        bool is_there = false;
        const char *digest = fb_column_text(&query, 0);
        if (fb_is_sha256_id(digest)) status = take_file(work, digest, (uint64_t)fb_column_int(&query, 1), &is_there, error);
        *missing += !is_there;
        tell(work, "files", ++work->figures.files, (uint64_t)total);
    }
    fb_status ended = fb_query_end(&query);
    return status ? status : ended;
}

/* ---- the copy ----------------------------------------------------------------------------------------------------------- */

static fb_status count(fb_connection *connection, const char *sql, uint64_t *out, fb_error *error) {
    int64_t number = 0;
    fb_query query = fb_query_begin(connection, sql, error);
    fb_status status = fb_read_key(&query, &number);
    *out = (uint64_t)number;
    return status;
}

static fb_status check_pages(fb_connection *snapshot, fb_error *error) {
    fb_query query = fb_query_begin(snapshot, "PRAGMA quick_check(1)", error);
    if (fb_query_row(&query) && strcmp(fb_column_text(&query, 0), "ok") != 0)
        query.status = fb_fail_corrupt(error, fb_column_text(&query, 0));
    return fb_query_end(&query);
}

/* Looks the copied database through, and takes the files that it speaks of. */
static fb_status complete(copy *work, uint64_t *missing, fb_error *error) {
    fb_connection snapshot = {0};
    uint64_t has_blobs = 0;
    fb_status status = fb_connection_open(&snapshot, work->to_database, FB_READS_AND_WRITES, error);
    if (!status) status = check_pages(&snapshot, error);
    if (!status) status = count(&snapshot, "SELECT count(*) FROM graphs", &work->figures.graphs, error);
    if (!status) status = count(&snapshot, "SELECT count(*) FROM runs", &work->figures.runs, error);
    /* not before schema 3 */
    if (!status) status = count(&snapshot, "SELECT count(*) FROM sqlite_schema WHERE name = 'blobs'", &has_blobs, error);
    if (!status && has_blobs) status = count(&snapshot, "SELECT count(*) FROM blobs", &work->figures.blobs, error);
    if (!status && has_blobs) status = take_files(work, &snapshot, missing, error);
    fb_connection_close(&snapshot);
    return status;
}

/* Files may go while they are copied: then a newer snapshot does not speak of them. */
static fb_status copy_all(copy *work, fb_error *error) {
    fb_status status = FB_OK;
    uint64_t missing = 1;
    for (int attempt = 0; attempt < ATTEMPTS && !status && missing; attempt++) {
        missing = 0;
        status = copy_database(work, error);
        if (!status) status = complete(work, &missing, error);
    }
    work->figures.damaged += missing;
    if (!status && work->has_bucket) status = copy_bucket_file(work, error);
    if (status) return status;
    if (mkdirat(work->to, FB_BLOBS_FOLDER, 0700) != 0 && errno != EEXIST) return fb_fail_file(error, "make a folder", errno);
    if (mkdirat(work->to, FB_UPLOADS_FOLDER, 0700) != 0) return fb_fail_file(error, "make a folder", errno);
    return syncfs(work->to) == 0 ? FB_OK : fb_fail_file(error, "sync a copy", errno);
}

/* A new empty folder that is held; what an interrupted copy left there goes first. */
static fb_status make_stage(const char *stage, int *lock, fb_error *error) {
    struct stat about;
    fb_status status = FB_OK;
    if (stat(stage, &about) == 0) {
        status = fb_folder_lock(stage, false, lock, error);
        if (!status && *lock < 0 && !fb_folder_is_empty(stage))
            return fb_fail(error, FB_CONFLICT, "folder-in-use", NULL, "%s is in the way", stage);
        if (!status) status = fb_folder_remove(stage, error);
        if (*lock >= 0) close(*lock);
    }
    if (!status && mkdir(stage, 0700) != 0)
        status = errno == ENOSPC || errno == EDQUOT
                     ? fb_fail_full(error)
                     : fb_fail(error, FB_IO, "store-not-writable", NULL, "cannot make %s: %s", stage, strerror(errno));
    return status ? status : fb_folder_lock(stage, true, lock, error);
}

/* All steps of fb_store_back_up but the last: `stage` is complete, on disk, and unlocked. */
static fb_status copy_folder(const char *from, const char *stage, const fb_copying *how, fb_copied *out, fb_error *error) {
    copy work = {.how = how,
                 .from = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                 .to = -1,
                 .access = how->is_frozen ? FB_READS_FROZEN : FB_READS};
    int lock = -1, from_lock = -1;
    if (work.from < 0 || faccessat(work.from, "foldback.sqlite", F_OK, 0) != 0) {
        if (work.from >= 0) close(work.from);
        char *url = fb_store_url(from);
        free(url);
        if (url)
            return fb_fail(error, FB_CONFLICT, "store-elsewhere", NULL,
                           "the store of %s is in PostgreSQL: pg_dump backs it up; docs/scale.md says what else to copy", from);
        return fb_fail(error, FB_NOT_FOUND, "no-store", NULL, "there is no store in %s", from);
    }
    work.has_bucket = fb_store_has_bucket(from);
    work.from_database = fb_path_with(from, "/foldback.sqlite");
    work.to_database = fb_path_with(stage, "/foldback.sqlite");
    fb_status status = work.from_database && work.to_database ? FB_OK : fb_fail_memory(error);
    if (!status && !how->is_frozen) status = fb_folder_look(from, &work.access, &from_lock, error);
    if (!status) status = make_stage(stage, &lock, error);
    if (!status) {
        work.to = open(stage, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        status = work.to < 0 ? fb_fail_file(error, "open a folder", errno) : copy_all(&work, error);
        if (status) fb_folder_remove(stage, NULL);
    }
    if (work.to >= 0) close(work.to);
    if (lock >= 0) close(lock);
    if (from_lock >= 0) close(from_lock);
    close(work.from);
    free(work.from_database);
    free(work.to_database);
    if (!status) *out = work.figures;
    return status;
}

/* A copy of a folder within that folder would be taken for a part of it, and is lost with it. */
static fb_status refuse_within(const char *path, const char *folder, fb_error *error) {
    char *name = fb_path_with(path, "");
    if (!name) return fb_fail_memory(error);
    char *place = realpath(dirname(name), NULL), *outer = realpath(folder, NULL);
    size_t length = outer ? strlen(outer) : 0;
    bool is_within = place && outer && strncmp(place, outer, length) == 0 && (!place[length] || place[length] == '/');
    free(place);
    free(outer);
    free(name);
    if (!is_within) return FB_OK; /* also when the place does not exist: then it cannot be made there */
    return fb_fail(error, FB_CONFLICT, "folder-in-use", NULL, "%s is within the data folder %s: name a place outside it", path,
                   folder);
}

/* Notes when the last backup was made. A folder that cannot be written to keeps none. */
static void note_backup(const char *folder, const char *target) {
    char *path = fb_path_with(folder, "/" FB_BACKED_UP_FILE);
    int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600) : -1;
    free(path);
    if (file < 0) return;
    dprintf(file, "%s\n", target);
    close(file);
}

/* Makes the entry of a file or folder in its parent durable. */
static fb_status sync_entry(const char *path, fb_error *error) {
    char *parent = fb_path_with(path, "/..");
    int folder = parent ? open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    bool is_done = folder >= 0 && fsync(folder) == 0;
    int reason = errno;
    if (folder >= 0) close(folder);
    bool is_short = !parent;
    free(parent);
    if (is_short) return fb_fail_memory(error);
    return is_done ? FB_OK : fb_fail_file(error, "sync a folder", reason);
}

fb_status fb_store_back_up(const char *from, const char *to, const fb_copying *how, fb_copied *out, fb_error *error) {
    struct stat about;
    fb_status refused = refuse_within(to, from, error);
    if (refused) return refused;
    if (lstat(to, &about) == 0 && rmdir(to) != 0)
        return fb_fail(error, FB_CONFLICT, "folder-in-use", NULL, "%s is there already, and not an empty folder", to);
    char *target = fb_path_with(to, ""), *stage = fb_path_with(to, ".partial");
    fb_status status = target && stage ? copy_folder(from, stage, how, out, error) : fb_fail_memory(error);
    if (!status && rename(stage, target) != 0) {
        status = fb_fail_file(error, "name the backup", errno);
        fb_folder_remove(stage, NULL);
    }
    if (!status) status = sync_entry(target, error);
    if (!status) note_backup(from, target);
    free(stage);
    free(target);
    return status;
}

/* ---- a backup takes a data folder's place -------------------------------------------------------------------------------- */

/* Holds the old folder, if there is one. */
static fb_status hold_old(fb_restoring *restoring, const char *backup, bool may_replace, fb_error *error) {
    struct stat about, of_backup;
    restoring->has_old = stat(restoring->data, &about) == 0;
    if (!restoring->has_old) return FB_OK;
    if (stat(backup, &of_backup) == 0 && about.st_dev == of_backup.st_dev && about.st_ino == of_backup.st_ino)
        return fb_fail(error, FB_CONFLICT, "folder-in-use", NULL, "%s is the backup itself", restoring->data);
    if (!S_ISDIR(about.st_mode))
        return fb_fail(error, FB_CONFLICT, "folder-not-empty", NULL, "%s is not a folder", restoring->data);
    restoring->has_content = !fb_folder_is_empty(restoring->data);
    fb_status status = fb_folder_lock(restoring->data, restoring->has_content, &restoring->lock, error);
    if (status || !restoring->has_content || may_replace) return status;
    return fb_fail(error, FB_CONFLICT, "folder-not-empty", NULL,
                   "%s is not empty; with --force what is there stays beside it, under another name", restoring->data);
}

/* A backup that was made here has no log, and can be read where nothing can be written; another folder may have one. */
static fb_status look_at_backup(const char *backup, fb_copying *how, int *lock, fb_error *error) {
    struct stat about;
    char *log = fb_path_with(backup, "/foldback.sqlite-wal");
    if (!log) return fb_fail_memory(error);
    how->is_frozen = stat(log, &about) != 0 || about.st_size == 0;
    free(log);
    return fb_folder_lock(backup, false, lock, error);
}

fb_status fb_restore_begin(const char *backup, const char *data, bool may_replace, const fb_copying *how, fb_restoring *out,
                           fb_copied *copied, fb_error *error) {
    fb_copying reading = *how;
    int lock = -1;
    *out = (fb_restoring){.data = fb_path_with(data, ""), .stage = fb_path_with(data, ".restoring"), .lock = -1};
    if (!out->data || !out->stage) return fb_fail_memory(error);
    fb_status status = hold_old(out, backup, may_replace, error);
    if (!status) status = look_at_backup(backup, &reading, &lock, error);
    if (!status) status = copy_folder(backup, out->stage, &reading, copied, error);
    out->is_staged = !status;
    if (lock >= 0) close(lock);
    return status;
}

/* "DATA.before-restore-20261121T093000Z", and if that is taken with a number. */
static fb_status name_aside(fb_restoring *restoring, fb_error *error) {
    time_t now = time(NULL);
    struct tm utc;
    struct stat about;
    char suffix[64], stamp[24];
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    for (int i = 1; !restoring->aside; i++) {
        snprintf(suffix, sizeof suffix, i > 1 ? ".before-restore-%s-%d" : ".before-restore-%s", stamp, i);
        char *path = fb_path_with(restoring->data, suffix);
        if (!path) return fb_fail_memory(error);
        if (lstat(path, &about) != 0) restoring->aside = path;
        else free(path);
    }
    return FB_OK;
}

static fb_status fail_rename(const fb_restoring *restoring, int reason, fb_error *error) {
    if (reason == EBUSY || reason == EXDEV)
        return fb_fail(error, FB_CONFLICT, "folder-in-use", NULL,
                       "%s is the root of a file system: restore to a folder within it, and let the service use that one",
                       restoring->data);
    return fb_fail_file(error, "put the restored folder in its place", reason);
}

/* In one step; on file systems that cannot exchange two names, in two. Then the old folder has the stage's name. */
static fb_status put_in_place(fb_restoring *restoring, fb_error *error) {
    unsigned flags = restoring->has_old ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    char *middle = NULL;
    bool is_done = renameat2(AT_FDCWD, restoring->stage, AT_FDCWD, restoring->data, flags) == 0;
    if (!is_done && (errno == EINVAL || errno == ENOSYS)) {
        if (restoring->has_old && !(middle = fb_path_with(restoring->stage, ".old"))) return fb_fail_memory(error);
        is_done = (!middle || rename(restoring->data, middle) == 0) && rename(restoring->stage, restoring->data) == 0 &&
                  (!middle || rename(middle, restoring->stage) == 0);
    }
    int reason = errno;
    free(middle);
    if (!is_done) return fail_rename(restoring, reason, error);
    restoring->is_staged = false;
    return FB_OK;
}

fb_status fb_restore_finish(fb_restoring *restoring, fb_error *error) {
    fb_status status = restoring->has_content ? name_aside(restoring, error) : FB_OK;
    if (!status) status = put_in_place(restoring, error);
    if (!status && restoring->has_content && rename(restoring->stage, restoring->aside) != 0)
        status = fb_fail_file(error, "put the old folder aside", errno);
    if (!status && restoring->has_old && !restoring->has_content) status = fb_folder_remove(restoring->stage, error);
    return status ? status : sync_entry(restoring->data, error);
}

void fb_restore_end(fb_restoring *restoring) {
    if (restoring->is_staged) fb_folder_remove(restoring->stage, NULL);
    if (restoring->lock >= 0) close(restoring->lock);
    free(restoring->data);
    free(restoring->stage);
    free(restoring->aside);
    *restoring = (fb_restoring){.lock = -1};
}
