/* System calls that fail, or at which the process dies. These stand before libc's for the whole program, SQLite included. */
#ifndef FB_TESTS_FILE_FAULTS_H
#define FB_TESTS_FILE_FAULTS_H

#include <stdbool.h>

enum { NO_CALL = 0, PWRITE = 1, FSYNC = 2, RENAME = 4, UNLINK = 8, MKDIR = 16, TRUNCATE = 32, LINK = 64, ALL_CALLS = 127 };

typedef enum whose_files { OF_ALL, NOT_OF_SQLITE, OF_SQLITE } whose_files;

/* `count` more of these calls go well; later ones fail with errno `reason`, or, when that is 0, the process dies at the next
 * one, by _exit(7). Of calls for a file, only those count that are for files of `whose`. */
void file_faults_after(unsigned calls, whose_files whose, long count, int reason);
/* Back to normal; true if a call failed. */
bool file_faults_off(void);

/* Calls `hook` once, when a blob's file is about to be opened. */
void before_blob_is_opened(void (*hook)(void));

#endif
