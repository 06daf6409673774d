/* A data folder for one command. It goes with the process, however that ends: a child waits for the end, and removes it. */
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

/* The pipe ends when nobody can write into it any more. */
static _Noreturn void remove_at_end(int pipe_end, const char *folder) {
    char byte;
    ssize_t got;
    setsid();
    leave_streams();
    for (int number = 1; number < NSIG; number++) signal(number, SIG_IGN);
    do got = read(pipe_end, &byte, 1);
    while (got > 0 || (got < 0 && errno == EINTR));
    fb_folder_remove(folder, NULL);
    _exit(0);
}

static bool watch(fb_own_folder *own) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return false;
    own->watcher = fork();
    if (own->watcher == 0) {
        close(ends[1]);
        remove_at_end(ends[0], own->path);
    }
    close(ends[0]);
    own->alive = ends[1];
    if (own->watcher > 0) return true;
    close(ends[1]);
    return false;
}

int fb_own_folder_make(fb_own_folder *own) {
    const char *place = fb_variable("TMPDIR");
    if (!place || (size_t)snprintf(own->path, sizeof own->path, "%s/foldback-XXXXXX", place) >= sizeof own->path)
        strcpy(own->path, "/tmp/foldback-XXXXXX");
    bool is_made = mkdtemp(own->path);
    if (is_made && watch(own)) return FB_EXIT_DONE;
    int failure = errno;
    if (is_made) rmdir(own->path);
    own->path[0] = '\0';
    return fb_complain(FB_EXIT_FAILED, "cannot make a folder for what the files hold: %s; name one with --data",
                       strerror(failure));
}

void fb_own_folder_remove(fb_own_folder *own) {
    if (!*own->path) return;
    close(own->alive);
    while (waitpid(own->watcher, NULL, 0) < 0 && errno == EINTR) continue;
}
