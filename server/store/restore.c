/* A backup takes a data folder's place. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/store/backup.h"
#include "server/store/internal.h"

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
    if (!status) status = fb_folder_copy(backup, out->stage, &reading, copied, error);
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
    return status ? status : fb_entry_sync(restoring->data, error);
}

void fb_restore_end(fb_restoring *restoring) {
    if (restoring->is_staged) fb_folder_remove(restoring->stage, NULL);
    if (restoring->lock >= 0) close(restoring->lock);
    free(restoring->data);
    free(restoring->stage);
    free(restoring->aside);
    *restoring = (fb_restoring){.lock = -1};
}
