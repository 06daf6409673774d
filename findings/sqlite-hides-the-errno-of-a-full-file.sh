#!/bin/sh
# At a limit on the size of files SQLite says "disk I/O error" and error number 0; the number is to be had from the file
# that failed.
#
# Guess:    a database that may not grow gives SQLITE_FULL; if not, sqlite3_system_errno() has EFBIG.
# Seen:     the code is SQLITE_IOERR_WRITE, and sqlite3_system_errno() is 0. The number is known only to the file that could
#           not grow: that of the database without a log, that of the log with one. Who asks the database's file in WAL mode
#           gets 0 again.
# Versions: libsqlite3-dev 3.40.1-2+deb12u2
# Changed:  server/store/sqlite.c, is_out_of_space: it asks all three.
. "$(dirname "$0")/setup"
debian_with gcc libsqlite3-dev
compile_with -lsqlite3 <<'END'
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

static const char *error_of(sqlite3 *database, int which) {
    sqlite3_file *file = NULL;
    int code = 0;
    sqlite3_file_control(database, NULL, which, &file);
    if (!file || !file->pMethods) return "has no file";
    file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &code);
    return strerror(code);
}

int main(int count, char **names) {
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 1; i < count; i++) {
        sqlite3 *database;
        struct rlimit limit;
        if (sqlite3_open(names[i], &database)) return 2;
        sqlite3_extended_result_codes(database, 1);
        if (i == 2) sqlite3_exec(database, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
        sqlite3_exec(database, "CREATE TABLE t (x)", NULL, NULL, NULL);
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = 200000;
        setrlimit(RLIMIT_FSIZE, &limit);
        int result = sqlite3_exec(database, "INSERT INTO t VALUES (zeroblob(1000000))", NULL, NULL, NULL);
        printf("%s: %s, %s; system: %s; database: %s; journal: %s\n", i == 2 ? "with a log" : "without",
               result == SQLITE_IOERR_WRITE ? "SQLITE_IOERR_WRITE" : "another code", sqlite3_errmsg(database),
               strerror(sqlite3_system_errno(database)), error_of(database, SQLITE_FCNTL_FILE_POINTER),
               error_of(database, SQLITE_FCNTL_JOURNAL_POINTER));
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_FSIZE, &limit);
        sqlite3_close(database);
    }
    return 0;
}
END
LC_ALL=C "$work/program" "$work/without" "$work/with" >"$work/seen"
expect <<'END'
without: SQLITE_IOERR_WRITE, disk I/O error; system: Success; database: File too large; journal: has no file
with a log: SQLITE_IOERR_WRITE, disk I/O error; system: Success; database: Success; journal: File too large
END
