/* What the service can still do in its sandbox, and what not. Each question is asked in a process of its own. */
#include "tests/unit/checks.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/cli/sandbox.h"
#include "tests/unit/run_tests.h"

static char folder[] = "/tmp/foldback-sandbox-XXXXXX";
static char outside[64], inside[64];

static void make_folder(void) {
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(inside, sizeof inside, "%s/data", folder);
    snprintf(outside, sizeof outside, "%s/outside", folder);
    ck_assert_int_eq(mkdir(inside, 0700), 0);
    int file = open(outside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    close(file);
}

static void remove_folder(void) {
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

enum { ALLOWED, REFUSED, UNAVAILABLE = 77, BROKEN };

static const char *sockets; /* the folder for a socket */

/* `question` gives 0, or an errno. */
static int ask(int (*question)(void), const char *const *readable, bool may_connect) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fb_error error = {0};
        if (fb_sandbox_enter(FB_SANDBOX_ON, inside, readable, sockets, may_connect, &error))
            _exit(error.status == FB_IO ? UNAVAILABLE : BROKEN);
        _exit(question() ? REFUSED : ALLOWED);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "the child died by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

static int errno_of(int result) {
    return result < 0 ? errno : 0;
}

static int read_outside(void) {
    return errno_of(open(outside, O_RDONLY | O_CLOEXEC));
}
static int write_outside(void) {
    return errno_of(open(outside, O_WRONLY | O_CLOEXEC));
}
static int make_outside(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/new", folder);
    return errno_of(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}
static int read_passwords(void) {
    return errno_of(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}
static int link_inside(void) {
    char path[96];
    snprintf(path, sizeof path, "%s/link", inside);
    return errno_of(symlink("/etc/passwd", path));
}
static int run_program(void) {
    char *const arguments[] = {(char *)"true", NULL};
    execv("/bin/true", arguments);
    return errno;
}
static int start_process(void) {
    pid_t child = fork();
    if (child == 0) _exit(0);
    return errno_of(child);
}
static int call_out(void) {
    int descriptor = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (descriptor < 0) _exit(BROKEN);
    return errno_of(connect(descriptor, (const struct sockaddr *)(const void *)&to, sizeof to));
}
static int open_raw_socket(void) {
    return errno_of(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
}
static int trace(void) {
    return ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0 ? errno : 0;
}

static int make_and_rename(void) {
    char one[96], two[96], sub[96];
    snprintf(one, sizeof one, "%s/one", inside);
    snprintf(sub, sizeof sub, "%s/sub", inside);
    snprintf(two, sizeof two, "%s/sub/two", inside);
    int file = open(one, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bool ok = file >= 0 && pwrite(file, "12", 2, 0) == 2 && ftruncate(file, 1) == 0 && fsync(file) == 0 &&
              mkdir(sub, 0700) == 0 && rename(one, two) == 0 && unlink(two) == 0 && rmdir(sub) == 0;
    return ok ? 0 : errno;
}
static void *nothing(void *argument) {
    return argument;
}
static int start_thread(void) {
    pthread_t thread;
    int failed = pthread_create(&thread, NULL, nothing, NULL);
    return failed ? failed : pthread_join(thread, NULL);
}
static int listen_somewhere(void) {
    int descriptor = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return errno_of(listen(descriptor, 1));
}

/* A socket that is a file, which goes again. */
static int make_socket(void) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    snprintf(name.sun_path, sizeof name.sun_path, "%s/socket", folder);
    int descriptor = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(descriptor, (const struct sockaddr *)&name, sizeof name) || listen(descriptor, 1)) return errno;
    return errno_of(unlink(name.sun_path));
}

static const struct {
    const char *what;
    int (*question)(void);
    int expected;
} rows[] = {
    {"read outside", read_outside, REFUSED},
    {"write outside", write_outside, REFUSED},
    {"make a file outside", make_outside, REFUSED},
    {"read /etc/passwd", read_passwords, REFUSED},
    {"make a symbolic link", link_inside, REFUSED},
    {"run a program", run_program, REFUSED},
    {"start a process", start_process, REFUSED},
    {"connect", call_out, REFUSED},
    {"raw sockets", open_raw_socket, REFUSED},
    {"trace", trace, REFUSED},
    {"make a socket outside", make_socket, REFUSED},
    {"files in the data folder", make_and_rename, ALLOWED},
    {"threads", start_thread, ALLOWED},
    {"listen", listen_somewhere, ALLOWED},
};

START_TEST(test_row) {
    int answer = ask(rows[_i].question, (const char *const[]){NULL}, false);
    ck_assert_int_ne(answer, BROKEN);
    if (answer == UNAVAILABLE) {
        fprintf(stderr, "skipped: this kernel or build has no sandbox\n");
        return;
    }
    ck_assert_msg(answer == rows[_i].expected, "%s: %s", rows[_i].what, answer == ALLOWED ? "allowed" : "refused");
}
END_TEST

START_TEST(test_connecting) {
    static const char *const nothing[] = {NULL};
    int answer = ask(call_out, nothing, true);
    if (answer == UNAVAILABLE) return;
    ck_assert_int_eq(answer, ALLOWED);
    ck_assert_int_eq(ask(read_passwords, nothing, true), REFUSED);
    ck_assert_int_eq(ask(run_program, nothing, true), REFUSED);
    ck_assert_int_eq(ask(open_raw_socket, nothing, true), REFUSED);
}
END_TEST

/* Each refusal is the sandbox's doing: without it all this works, save what only root may do. */
START_TEST(test_without) {
    fb_error error = {0};
    ck_assert_int_eq(fb_sandbox_enter(FB_SANDBOX_OFF, inside, (const char *const[]){NULL}, NULL, false, &error), FB_OK);
    ck_assert_int_eq(read_outside(), 0);
    ck_assert_int_eq(read_passwords(), 0);
    ck_assert_int_eq(link_inside(), 0);
    ck_assert_int_eq(start_process(), 0);
    ck_assert_int_eq(call_out(), 0);
}
END_TEST

START_TEST(test_readable) {
    const char *const readable[] = {outside, "/no/such/file", NULL};
    int answer = ask(read_outside, readable, false);
    ck_assert(answer == ALLOWED || answer == UNAVAILABLE);
    answer = ask(write_outside, readable, false);
    ck_assert(answer == REFUSED || answer == UNAVAILABLE);
}
END_TEST

START_TEST(test_a_folder_for_a_socket) {
    static const char *const nothing[] = {NULL};
    sockets = folder;
    int made = ask(make_socket, nothing, false), written = ask(make_outside, nothing, false);
    sockets = NULL;
    if (made == UNAVAILABLE) return;
    ck_assert_int_eq(made, ALLOWED);
    ck_assert_int_eq(written, REFUSED);
}
END_TEST

START_TEST(test_modes) {
    fb_sandbox_mode mode;
    ck_assert(fb_sandbox_mode_of("on", &mode) && mode == FB_SANDBOX_ON);
    ck_assert(fb_sandbox_mode_of("auto", &mode) && mode == FB_SANDBOX_AUTO);
    ck_assert(fb_sandbox_mode_of("off", &mode) && mode == FB_SANDBOX_OFF);
    ck_assert(!fb_sandbox_mode_of("", &mode) && !fb_sandbox_mode_of("On", &mode));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("sandbox");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, test_row, 0, (int)(sizeof rows / sizeof *rows));
    tcase_add_test(tests, test_connecting);
    tcase_add_test(tests, test_without);
    tcase_add_test(tests, test_readable);
    tcase_add_test(tests, test_a_folder_for_a_socket);
    tcase_add_test(tests, test_modes);
    return run_tests("sandbox", tests);
}
