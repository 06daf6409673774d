#include "tests/unit/file_faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned faulty; /* which calls */
static whose_files whose;
static int reason;              /* errno, or 0: the process dies */
static _Atomic long calls_left; /* that still go well */

static bool is_of_sqlite(int file) {
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = '\0';
    return strstr(path, "foldback.sqlite") != NULL;
}

static bool must_fail(unsigned call, int file) {
    if (!(faulty & call) || (whose && is_of_sqlite(file) != (whose == OF_SQLITE))) return false;
    if (atomic_fetch_sub(&calls_left, 1) > 0) return false;
    if (!reason) _exit(7);
    errno = reason;
    return true;
}

ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    return must_fail(PWRITE, file) ? -1 : syscall(SYS_pwrite64, file, bytes, size, offset);
}
/* What SQLite calls. */
ssize_t pwrite64(int file, const void *bytes, size_t size, off64_t offset) {
    return pwrite(file, bytes, size, offset);
}
int fsync(int file) {
    return must_fail(FSYNC, file) ? -1 : (int)syscall(SYS_fsync, file);
}
int fdatasync(int file) {
    return must_fail(FSYNC, file) ? -1 : (int)syscall(SYS_fdatasync, file);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return must_fail(RENAME, -1) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return must_fail(LINK, -1) ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}
int unlinkat(int folder, const char *path, int flags) {
    return must_fail(UNLINK, -1) ? -1 : (int)syscall(SYS_unlinkat, folder, path, flags);
}
int mkdirat(int folder, const char *path, mode_t mode) {
    return must_fail(MKDIR, -1) ? -1 : (int)syscall(SYS_mkdirat, folder, path, mode);
}

int ftruncate(int file, off_t size) {
    return must_fail(TRUNCATE, file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

static void (*before_open)(void);

int openat(int folder, const char *path, int flags, ...) {
    void (*hook)(void) = before_open;
    if (hook && strncmp(path, "blobs/", 6) == 0 && !(flags & O_DIRECTORY)) {
        before_open = NULL;
        hook();
    }
    va_list rest;
    va_start(rest, flags);
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;
    va_end(rest);
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

void before_blob_is_opened(void (*hook)(void)) {
    before_open = hook;
}

void file_faults_after(unsigned calls, whose_files files, long count, int error_number) {
    whose = files;
    reason = error_number;
    atomic_store(&calls_left, count);
    faulty = calls;
}

bool file_faults_off(void) {
    faulty = NO_CALL;
    return atomic_load(&calls_left) < 0;
}
