/* A data folder for one command. It goes with the process, however that ends: a child makes it, waits for the end, and removes
 * it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/cli/cli.h"
#include "server/store/backup.h"

/* Lets go of the terminal and of what reads the command's output. */
static void leave_streams(void) {
    int nothing = open("/dev/null", O_RDWR);
    for (int stream = 0; stream <= 2 && nothing >= 0; stream++) dup2(nothing, stream);
}

/* The child's answer: the folder that it made, or why it could not. */
typedef struct made {
    int failure; /* errno, or 0 */
    char path[FB_OWN_PATH_MAX];
} made;
_Static_assert(sizeof(made) <= PIPE_BUF, "a pipe takes it as a whole");

/* The pipe `alive` ends when no process can write into it any more. The child makes the folder itself, so that it is removed
 * whenever the parent ends. */
static _Noreturn void make_and_remove(int alive, int answer, made *folder) {
    char byte;
    ssize_t got;
    setsid();
    leave_streams();
    for (int number = 1; number < NSIG; number++) signal(number, SIG_IGN);
    if (!mkdtemp(folder->path)) folder->failure = errno;
    bool is_said = write(answer, folder, sizeof *folder) == (ssize_t)sizeof *folder;
    close(answer);
    do got = read(alive, &byte, 1);
    while (is_said && (got > 0 || (got < 0 && errno == EINTR)));
    if (!folder->failure) fb_folder_remove(folder->path, NULL);
    _exit(0);
}

/* 0, or an errno. */
static int make(fb_own_folder *own) {
    int alive[2], answer[2];
    made folder = {0};
    if (pipe2(alive, O_CLOEXEC)) return errno;
    if (pipe2(answer, O_CLOEXEC)) {
        int failure = errno;
        close(alive[0]);
        close(alive[1]);
        return failure;
    }
    strcpy(folder.path, own->path);
    own->watcher = fork();
    int failure = own->watcher < 0 ? errno : 0;
    if (own->watcher == 0) {
        close(alive[1]);
        close(answer[0]);
        make_and_remove(alive[0], answer[1], &folder);
    }
    close(alive[0]);
    close(answer[1]);
    own->alive = alive[1];
    if (!failure && read(answer[0], &folder, sizeof folder) != (ssize_t)sizeof folder) failure = EIO;
    close(answer[0]);
    if (!failure) failure = folder.failure;
    strcpy(own->path, folder.path);
    if (failure) close(own->alive);
    return failure;
}

int fb_own_folder_make(fb_own_folder *own) {
    const char *place = fb_variable("TMPDIR");
    if (!place || (size_t)snprintf(own->path, sizeof own->path, "%s/foldback-XXXXXX", place) >= sizeof own->path)
        strcpy(own->path, "/tmp/foldback-XXXXXX");
    int failure = make(own);
    if (!failure) return FB_EXIT_DONE;
    own->path[0] = '\0';
    return fb_complain(FB_EXIT_FAILED, "cannot make a folder for what the files hold: %s; name one with --data",
                       strerror(failure));
}

void fb_own_folder_remove(fb_own_folder *own) {
    if (!*own->path) return;
    close(own->alive);
    while (waitpid(own->watcher, NULL, 0) < 0 && errno == EINTR) continue;
}
