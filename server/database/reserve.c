/* Room that is kept back on the disk of the data folder, in a file: what makes room can be done although the disk is full. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/database/writer.h"

#define RESERVE "reserve"
#define RESERVE_MOST ((off_t)2 << 20)   /* several times what the log needs for the largest removal */
#define RESERVE_LEAST ((off_t)64 << 10) /* enough for one; also the step in which less is kept */

/* As much of it as there is room for. */
void fb_reserve_keep(int folder) {
    struct stat about;
    int file = folder < 0 ? -1 : openat(folder, RESERVE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file < 0) return;
    off_t kept = fstat(file, &about) == 0 ? about.st_size : RESERVE_MOST, size = RESERVE_MOST;
    while (size > kept && size >= RESERVE_LEAST && posix_fallocate(file, 0, size) != 0) size -= RESERVE_LEAST;
    if (size < RESERVE_LEAST) unlinkat(folder, RESERVE, 0);
    close(file);
}

bool fb_reserve_use(int folder) {
    return folder >= 0 && unlinkat(folder, RESERVE, 0) == 0;
}
