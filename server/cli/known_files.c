/* Digests of large files that were hashed before, in the file known_files of the data folder: a line for each,
 *
 *     DEVICE INODE SIZE MODIFIED CHANGED sha256:…
 *
 * the times in nanoseconds. A file is the same one if all of these are: who writes it cannot keep its time of change. A mapping
 * writes without that, but not for long after the first write to a page: file systems on disk look again once they have written
 * it. So only they count, and only files that had not changed for a minute when they were hashed. */
#include <errno.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "server/cli/cli.h"

#define LEAST ((int64_t)16 << 20) /* bytes: less is hashed again at once */
#define SETTLED 60                /* seconds */
#define LINES_MAX 1000
#define LINE_MAX_ 400

static int64_t nanoseconds(struct timespec time) {
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void write_key(const struct stat *facts, char key[LINE_MAX_]) {
    snprintf(key, LINE_MAX_, "%" PRIuMAX " %" PRIuMAX " %" PRIdMAX " %" PRId64 " %" PRId64 " ", (uintmax_t)facts->st_dev,
             (uintmax_t)facts->st_ino, (intmax_t)facts->st_size, nanoseconds(facts->st_mtim), nanoseconds(facts->st_ctim));
}

static bool is_worth(const char *path, const struct stat *facts) {
    struct statfs system;
    return S_ISREG(facts->st_mode) && facts->st_size >= LEAST && statfs(path, &system) == 0 &&
           (system.f_type == EXT4_SUPER_MAGIC || system.f_type == XFS_SUPER_MAGIC || system.f_type == BTRFS_SUPER_MAGIC);
}

static FILE *open_list(const char *folder, const char *suffix, const char *mode, char path[PATH_MAX]) {
    int length = snprintf(path, PATH_MAX, "%s/known_files%s", folder, suffix);
    return length < PATH_MAX ? fopen(path, mode) : NULL;
}

bool fb_known_file_recall(const char *folder, const char *path, const struct stat *facts, char digest[FB_ID_LENGTH + 1]) {
    char name[PATH_MAX], key[LINE_MAX_], line[LINE_MAX_];
    bool is_found = false;
    FILE *list = is_worth(path, facts) ? open_list(folder, "", "re", name) : NULL;
    if (!list) return false;
    write_key(facts, key);
    while (!is_found && fgets(line, sizeof line, list)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, strlen(key)) != 0) continue;
        is_found = fb_is_sha256_id(line + strlen(key));
        if (is_found) fb_copy_text(digest, FB_ID_LENGTH + 1, line + strlen(key));
    }
    fclose(list);
    return is_found;
}

void fb_known_file_remember(const char *folder, const char *path, const struct stat *facts, const char *digest) {
    char name[PATH_MAX], part[PATH_MAX], suffix[40], key[LINE_MAX_], line[LINE_MAX_];
    if (!is_worth(path, facts) || time(NULL) - facts->st_ctim.tv_sec < SETTLED) return;
    snprintf(suffix, sizeof suffix, ".%ld.part", (long)getpid());
    FILE *old = open_list(folder, "", "re", name), *list = open_list(folder, suffix, "we", part);
    write_key(facts, key);
    bool ok = list && fprintf(list, "%s%s\n", key, digest) > 0;
    for (int i = 1; ok && old && i < LINES_MAX && fgets(line, sizeof line, old); i++)
        ok = strncmp(line, key, strlen(key)) == 0 || fputs(line, list) >= 0;
    if (old) fclose(old);
    if (list) ok = fclose(list) == 0 && ok;
    if (list && (!ok || rename(part, name))) unlink(part);
}
