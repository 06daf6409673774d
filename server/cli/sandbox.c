#include "server/cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/sanitizer.h"
#include "server/cli/verb.h"

bool fb_sandbox_mode_of(const char *text, fb_sandbox_mode *mode) {
    static const char *const names[] = {[FB_SANDBOX_AUTO] = "auto", [FB_SANDBOX_ON] = "on", [FB_SANDBOX_OFF] = "off"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(names[i], text) != 0) continue;
        *mode = (fb_sandbox_mode)i;
        return true;
    }
    return false;
}

static fb_status lacks(fb_sandbox_mode mode, const char *part, const char *reason, fb_error *error) {
    if (mode == FB_SANDBOX_ON)
        return fb_fail(error, FB_IO, "no-sandbox", NULL, "--sandbox on: %s is not available: %s", part, reason);
    fb_complain(0, "sandbox: going on without %s: %s", part, reason);
    return FB_OK;
}

/* ---- files (Landlock, Linux 5.13) --------------------------------------------------------------------------------------- */

#ifndef LANDLOCK_ACCESS_FS_TRUNCATE /* Linux 6.2; the headers are older */
#define LANDLOCK_ACCESS_FS_TRUNCATE (1ULL << 14)
#endif

#define READS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define WRITES                                                                                                                 \
    (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |                          \
     LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_REFER | LANDLOCK_ACCESS_FS_TRUNCATE)
#define FILE_RIGHTS (LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_TRUNCATE)

/* All rights that a kernel of this version of Landlock can take away. */
static uint64_t rights_of_version(long version) {
    uint64_t rights = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                      LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM | READS |
                      WRITES;
    if (version < 2) rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_REFER;
    if (version < 3) rights &= ~(uint64_t)LANDLOCK_ACCESS_FS_TRUNCATE;
    return rights;
}

/* A path that is not there needs no right. A rule is for an inode, and procfs makes a new one when the kernel has forgotten a
 * name, which it does when memory is short: a descriptor that stays open keeps the name, and so the rule. */
static bool allow_path(int rules, const char *path, uint64_t rights) {
    struct stat about;
    int descriptor = open(path, O_PATH | O_CLOEXEC);
    if (descriptor < 0) return errno == ENOENT;
    bool is_folder = fstat(descriptor, &about) == 0 && S_ISDIR(about.st_mode);
    struct landlock_path_beneath_attr rule = {.parent_fd = descriptor,
                                              .allowed_access = is_folder ? rights : rights & FILE_RIGHTS};
    bool ok = syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
    if (strncmp(path, "/proc/", 6) != 0) close(descriptor);
    return ok;
}

/* Files that libraries read while they work: certificates and settings of OpenSSL and GnuTLS, libgcc when a thread ends, the
 * time zone, the number of processors, random bytes, and our own figures for /metrics. */
static const char *const always_readable[] = {"/usr/lib",
                                              "/lib",
                                              "/lib64",
                                              "/etc/ssl",
                                              "/etc/gnutls",
                                              "/etc/ld.so.cache",
                                              "/etc/localtime",
                                              "/usr/share/zoneinfo",
                                              "/dev/null",
                                              "/dev/random",
                                              "/dev/urandom",
                                              "/proc/self",
                                              "/proc/meminfo",
                                              "/proc/stat",
                                              "/sys/devices/system/cpu",
                                              NULL};

/* Names of machines, and the certificates to which those in /etc/ssl are links. */
static const char *const readable_to_connect[] = {"/etc/resolv.conf",
                                                  "/etc/hosts",
                                                  "/etc/host.conf",
                                                  "/etc/gai.conf",
                                                  "/etc/services",
                                                  "/etc/nsswitch.conf",
                                                  "/run/systemd/resolve",
                                                  "/usr/share/ca-certificates",
                                                  "/usr/local/share/ca-certificates",
                                                  NULL};

static bool allow_paths(int rules, uint64_t handled, const char *data, const char *const *readable, const char *sockets,
                        bool may_connect) {
    bool ok = allow_path(rules, data, handled & (READS | WRITES));
    if (ok && sockets) ok = allow_path(rules, sockets, LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_REMOVE_FILE);
    for (const char *const *path = always_readable; ok && *path; path++) ok = allow_path(rules, *path, handled & READS);
    for (const char *const *path = readable; ok && *path; path++) ok = allow_path(rules, *path, handled & READS);
    for (const char *const *path = readable_to_connect; ok && may_connect && *path; path++)
        ok = allow_path(rules, *path, handled & READS);
    return ok;
}

static fb_status confine_files(fb_sandbox_mode mode, const char *data, const char *const *readable, const char *sockets,
                               bool may_connect, fb_error *error) {
    long version = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (version < 1) return lacks(mode, "Landlock", strerror(errno), error);
    /* Without REFER nothing can be renamed into another folder: uploads become blobs that way. */
    if (version < 2) return lacks(mode, "Landlock", "the kernel's is older than Linux 5.19", error);
    struct landlock_ruleset_attr attributes = {.handled_access_fs = rights_of_version(version)};
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
    if (rules < 0) return lacks(mode, "Landlock", strerror(errno), error);
    fb_status status = FB_OK;
    if (!allow_paths(rules, attributes.handled_access_fs, data, readable, sockets, may_connect) ||
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || syscall(SYS_landlock_restrict_self, rules, 0) != 0)
        status = lacks(mode, "Landlock", strerror(errno), error);
    close(rules);
    return status;
}

/* ---- system calls (seccomp) --------------------------------------------------------------------------------------------- */

#define CALL(name) SCMP_SYS(name)

static const int allowed_calls[] = {
    /* files */
    CALL(access), CALL(chmod), CALL(close), CALL(copy_file_range), CALL(faccessat), CALL(faccessat2), CALL(fadvise64),
    CALL(fallocate), CALL(fchmod), CALL(fchown), CALL(fcntl), CALL(fdatasync), CALL(flock), CALL(fstat), CALL(fstatfs),
    CALL(fsync), CALL(ftruncate), CALL(getcwd), CALL(getdents64), CALL(ioctl), CALL(link), CALL(linkat), CALL(lseek),
    CALL(lstat), CALL(mkdir), CALL(mkdirat), CALL(newfstatat), CALL(open), CALL(openat), CALL(pread64), CALL(preadv),
    CALL(pwrite64), CALL(pwritev), CALL(read), CALL(readlink), CALL(readlinkat), CALL(readv), CALL(rename), CALL(renameat),
    CALL(renameat2), CALL(rmdir), CALL(sendfile), CALL(stat), CALL(statfs), CALL(statx), CALL(sync_file_range), CALL(truncate),
    CALL(umask), CALL(unlink), CALL(unlinkat), CALL(utimensat), CALL(write), CALL(writev),
    /* sockets; connect where it is needed */
    CALL(accept), CALL(accept4), CALL(bind), CALL(getpeername), CALL(getsockname), CALL(getsockopt), CALL(listen),
    CALL(recvfrom), CALL(recvmsg), CALL(sendmmsg), CALL(sendmsg), CALL(sendto), CALL(setsockopt), CALL(shutdown),
    CALL(socketpair),
    /* waiting */
    CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_pwait), CALL(epoll_pwait2), CALL(epoll_wait), CALL(eventfd2), CALL(poll),
    CALL(ppoll), CALL(pselect6), CALL(select), CALL(pipe2), CALL(dup), CALL(dup2), CALL(dup3),
    /* memory */
    CALL(brk), CALL(madvise), CALL(mmap), CALL(mprotect), CALL(mremap), CALL(munmap),
    /* threads */
    CALL(exit), CALL(exit_group), CALL(futex), CALL(get_robust_list), CALL(getcpu), CALL(gettid), CALL(membarrier), CALL(rseq),
    CALL(sched_getaffinity), CALL(sched_yield), CALL(set_robust_list), CALL(set_tid_address),
    /* signals */
    CALL(restart_syscall), CALL(rt_sigaction), CALL(rt_sigpending), CALL(rt_sigprocmask), CALL(rt_sigreturn),
    CALL(rt_sigtimedwait), CALL(sigaltstack), CALL(tgkill),
    /* time, randomness, and who we are */
    CALL(clock_getres), CALL(clock_gettime), CALL(clock_nanosleep), CALL(getegid), CALL(geteuid), CALL(getgid), CALL(getpid),
    CALL(getrandom), CALL(getrlimit), CALL(getrusage), CALL(gettimeofday), CALL(getuid), CALL(nanosleep), CALL(prctl),
    CALL(prlimit64), CALL(sysinfo), CALL(time), CALL(uname)};

/* Makes every other call fail with ENOSYS, which libraries take for an old kernel: clone3 too, so that the C library starts
 * threads by clone, whose flags can be looked at. */
static int add_rules(scmp_filter_ctx filter, bool may_connect) {
    int failed = 0;
    for (size_t i = 0; !failed && i < sizeof allowed_calls / sizeof *allowed_calls; i++)
        failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, allowed_calls[i], 0);
    if (!failed) /* threads, never processes */
        failed =
            seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(clone), 1, SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    static const int families[] = {AF_INET, AF_INET6, AF_UNIX}; /* the last to notify systemd */
    for (size_t i = 0; !failed && i < sizeof families / sizeof *families; i++)
        failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(socket), 1, SCMP_A0(SCMP_CMP_EQ, (scmp_datum_t)families[i], 0));
    if (!failed && may_connect) failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(connect), 0);
    if (!failed && may_connect) /* the C library asks for this machine's addresses before it looks up a name */
        failed = seccomp_rule_add(filter, SCMP_ACT_ALLOW, CALL(socket), 1, SCMP_A0(SCMP_CMP_EQ, AF_NETLINK, 0));
    return failed;
}

static fb_status confine_calls(fb_sandbox_mode mode, bool may_connect, fb_error *error) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!filter) return fb_fail_memory(error);
    int failed = add_rules(filter, may_connect);
    if (!failed) failed = seccomp_load(filter);
    seccomp_release(filter);
    return failed ? lacks(mode, "seccomp", strerror(-failed), error) : FB_OK;
}

fb_status fb_sandbox_enter(fb_sandbox_mode mode, const char *data, const char *const *readable, const char *sockets,
                           bool may_connect, fb_error *error) {
    if (mode == FB_SANDBOX_OFF) return FB_OK;
    /* A sanitizer reads files of its own and traces the process when it ends. */
    if (FB_HAS_SANITIZER) return lacks(mode, "the sandbox", "built with a sanitizer", error);
    fb_status status = confine_files(mode, data, readable, sockets, may_connect, error);
    return status ? status : confine_calls(mode, may_connect, error);
}
