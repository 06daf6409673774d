/* Findings of `foldback doctor` in a data folder. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/doctor.h"
#include "server/store/backup.h"

#define LARGE_LOG ((uint64_t)256 << 20)
#define OLD_BACKUP_MS ((int64_t)7 * 86400 * 1000)

/* A command that ran as root leaves files that the service's user cannot use. */
static void check_owner(fb_diagnosis *diagnosis, const char *folder, const struct stat *about) {
    static const char *const names[] = {"/foldback.sqlite", "/foldback.sqlite-wal", "/foldback.sqlite-shm", "/lock", "/blobs",
                                        "/uploads"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct stat one;
        char *path = fb_path_with(folder, names[i]);
        bool differs = path && stat(path, &one) == 0 && one.st_uid != about->st_uid;
        free(path);
        if (!differs) continue;
        fb_diagnosis_find(
            diagnosis, FB_FAULT, "mixed-owners",
            "chown -R --reference=FOLDER FOLDER, and run commands as the service's user: runuser -u foldback -- foldback …",
            "%s%s belongs to user %u, and the folder to user %u, whose service may not use it", folder, names[i], one.st_uid,
            about->st_uid);
        return;
    }
}

static bool check_folder(fb_diagnosis *diagnosis, const char *folder) {
    struct stat about;
    fb_fact_text(diagnosis, "folder", folder);
    if (stat(folder, &about) != 0) {
        bool is_missing = errno == ENOENT;
        fb_diagnosis_find(diagnosis, is_missing ? FB_WARNING : FB_FAULT, is_missing ? "no-store" : "unreadable",
                          is_missing
                              ? "a service makes the folder at its first start; if it should be there, name it with --data, "
                                "and check that its volume is mounted"
                              : "run foldback doctor as the service's user, or as root",
                          "the data folder %s cannot be looked at: %s", folder, strerror(errno));
        return false;
    }
    fb_fact_number(diagnosis, "owner", about.st_uid);
    check_owner(diagnosis, folder, &about);
    if (about.st_mode & 077)
        fb_diagnosis_find(diagnosis, FB_WARNING, "readable-by-others", "chmod 700 FOLDER",
                          "other users of this machine may open %s: its mode is %03o", folder, about.st_mode & 0777);
    return true;
}

static void tell_rows(fb_diagnosis *diagnosis, const fb_inspection *found) {
    if (!found->is_read) return;
    fb_fact_number(diagnosis, "schema", found->schema);
    fb_fact_number(diagnosis, "newest_schema", found->our_schema);
    if (found->schema < found->our_schema) {
        fb_diagnosis_find(
            diagnosis, FB_WARNING, "old-schema",
            "back it up, then start the service: it brings the schema up to date. An older foldback cannot use it then",
            "the store has schema %lld, and this version of foldback uses schema %lld", (long long)found->schema,
            (long long)found->our_schema);
        return;
    }
    fb_fact_number(diagnosis, "graphs", found->graphs);
    fb_fact_number(diagnosis, "runs", found->runs);
    fb_fact_number(diagnosis, "blobs", found->blobs);
    fb_fact_number(diagnosis, "blob_bytes", found->blob_bytes);
    if (found->newest) fb_fact_time(diagnosis, "newest", found->newest);
    fb_fact_number(diagnosis, "failed_jobs", found->failed_job_count);
    for (const fb_failed_job *job = found->failed_jobs; job < found->failed_jobs + FB_INSPECTED_JOBS && *job->id; job++) {
        char text[200];
        snprintf(text, sizeof text, "%s %s: status %d", job->method, job->target, job->status);
        fb_fact_text(diagnosis, job->id, text);
    }
}

static void judge(fb_diagnosis *diagnosis, const fb_inspection *found) {
    int64_t age = (int64_t)time(NULL) * 1000 - found->backed_up;
    if (found->damages)
        fb_diagnosis_find(diagnosis, FB_FAULT, "database-damaged",
                          "stop the service and restore a backup; foldback db check says what is lost without one",
                          "the quick check of the database found %lld faults, the first: %s", (long long)found->damages,
                          found->damage);
    if (found->log_bytes > LARGE_LOG)
        fb_diagnosis_find(diagnosis, FB_WARNING, "log-large",
                          "end readers that hang, such as a backup that never ended; a restart of the service empties the log",
                          "the database's log (foldback.sqlite-wal) has %s: a reader keeps it from being emptied",
                          fb_readable_size(found->log_bytes).text);
    if (!found->url && found->is_read && (found->runs || found->graphs) && (!found->backed_up || age > OLD_BACKUP_MS))
        fb_diagnosis_find(
            diagnosis, FB_WARNING, "no-backup", "foldback db backup --data FOLDER TARGET, every day, onto another disk",
            found->backed_up ? "foldback db backup last ran %lld days ago"
                             : "foldback db backup never ran on this store (%lld: a copy made otherwise is not known)",
            (long long)(found->backed_up ? age / 86400000 : 0));
}

/* The advice for a store that cannot be opened, by the code of its error. */
static const char *cure_of(const char *code) {
    static const struct {
        const char *code, *cure;
    } cures[] = {
        {"newer-schema", "install the foldback that wrote it, or restore the backup from before the upgrade"},
        {"not-a-store", "name foldback's folder with --data"},
        {"store-corrupt", "stop the service and restore a backup; foldback db check says what is lost without one"},
        {"store-not-writable", "check the folder's owner, its mode and the mount"},
        {"store-unavailable",
         "check that the server runs and that this machine reaches it; PGPASSWORD or PGPASSFILE has the password"},
        {"disk-full", "make room on the disk of the data folder"},
    };
    for (size_t i = 0; i < sizeof cures / sizeof *cures; i++)
        if (strcmp(code, cures[i].code) == 0) return cures[i].cure;
    return "see this code in docs/operations.md";
}

int64_t fb_diagnose_store(fb_diagnosis *diagnosis, const char *folder, const char *database) {
    fb_inspection found;
    fb_error error = {0};
    fb_diagnosis_section(diagnosis, "store");
    if (!check_folder(diagnosis, folder) && !database) return 0;
    fb_status status = fb_store_inspect(folder, database, &found, &error);
    if (found.url) fb_fact_url(diagnosis, "database", found.url);
    else fb_fact_text(diagnosis, "database", "a file of the folder");
    fb_fact_text(diagnosis, "large_blobs", found.has_bucket ? "a bucket" : "files of the folder");
    fb_fact_text(diagnosis, "in_use", found.is_held ? "yes, by a process of foldback" : "no");
    if (!found.url) {
        fb_fact_number(diagnosis, "database_bytes", (int64_t)found.database_bytes);
        fb_fact_number(diagnosis, "log_bytes", (int64_t)found.log_bytes);
        if (found.backed_up) fb_fact_time(diagnosis, "last_backup", found.backed_up);
    }
    tell_rows(diagnosis, &found);
    judge(diagnosis, &found);
    if (status == FB_NOT_FOUND)
        fb_diagnosis_find(diagnosis, FB_WARNING, error.code, "name another folder with --data, unless no service ran on it yet",
                          "%s", error.message);
    else if (status) fb_diagnosis_find(diagnosis, FB_FAULT, error.code, cure_of(error.code), "%s", error.message);
    free(found.url);
    return found.newest;
}
