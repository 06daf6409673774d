/* Put before libc by LD_PRELOAD: memory runs out and system calls fail in the real service, at the k-th call of chosen kinds,
 * once or from then on. Who runs it says which through a page that both have mapped: the file named by FOLDBACK_FAULTS, which
 * has the layout of `orders`. Calls are counted from the moment that the page is armed, so that a service may start first, and
 * one service serves many values of k. The calls of threads that do jobs are counted on their own: they go on beside a request,
 * so how many of them fall into its time says how fast the machine is, not what the request does.
 *
 * Files' calls fail for regular files only: a pipe or an eventfd does not fail on a real machine. What is sent and received
 * fails for Unix-domain sockets only: those are the connections to a database. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MEMORY = 1, WRITE = 2, FSYNC = 4, RENAME = 8, OPEN = 16, READ = 32, MMAP = 64, ACCEPT = 128, SEND = 256, RECEIVE = 512 };

typedef struct orders {
    atomic_ulong is_armed;
    atomic_ulong calls;    /* kinds that count and fail */
    atomic_ulong first;    /* so many of them succeed */
    atomic_ulong goes_on;  /* 0: one fails, the later ones succeed */
    atomic_ulong reason;   /* errno */
    atomic_ulong of_jobs;  /* 1: calls of threads that do jobs count and fail; 0: those of all others */
    atomic_ulong counted;  /* calls since it was armed */
    atomic_ulong failed;   /* of them */
    atomic_long allocated; /* blocks that are not freed */
} orders;

static orders nothing, *page = &nothing;

__attribute__((constructor)) static void map_page(void) {
    const char *name = getenv("FOLDBACK_FAULTS");
    int file = name ? (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CLOEXEC, 0) : -1;
    if (file < 0) return;
    void *mapped = (void *)syscall(SYS_mmap, NULL, sizeof(orders), PROT_READ | PROT_WRITE, MAP_SHARED, (long)file, 0L);
    syscall(SYS_close, file);
    if (mapped == MAP_FAILED) return;
    orders *shared = mapped;
    atomic_store(&shared->allocated, atomic_load(&nothing.allocated));
    page = shared;
}

#define JOB_THREAD "foldback-job" /* server/jobs/internal.h */

static bool does_jobs(void) {
    static __thread enum { NOT_ASKED, NO, YES } answer;
    char name[16] = "";
    if (answer == NOT_ASKED && pthread_getname_np(pthread_self(), name, sizeof name) == 0)
        answer = strcmp(name, JOB_THREAD) ? NO : YES;
    return answer == YES;
}

/* True, with errno set, when this call is to fail. */
static bool fails(unsigned long call) {
    if (!atomic_load_explicit(&page->is_armed, memory_order_relaxed) || !(atomic_load(&page->calls) & call)) return false;
    if (does_jobs() != (atomic_load(&page->of_jobs) != 0)) return false;
    unsigned long number = atomic_fetch_add(&page->counted, 1), first = atomic_load(&page->first);
    if (number < first || (number > first && !atomic_load(&page->goes_on))) return false;
    atomic_fetch_add(&page->failed, 1);
    errno = (int)atomic_load(&page->reason);
    return true;
}

/* ---- memory -------------------------------------------------------------------------------------------------------------- */

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static void *counted(void *block) {
    if (block) atomic_fetch_add_explicit(&page->allocated, 1, memory_order_relaxed);
    return block;
}

/* On processors with AVX-512, OpenBLAS 0.3.21 packs small matrices into memory from malloc, and never checks the result. */
static bool is_unchecked(const void *caller) {
    Dl_info library;
    return dladdr(caller, &library) && library.dli_fname && strstr(library.dli_fname, "openblas");
}

void *malloc(size_t size) {
    return fails(MEMORY) && !is_unchecked(__builtin_return_address(0)) ? NULL : counted(__libc_malloc(size));
}

void *calloc(size_t count, size_t size) {
    return fails(MEMORY) ? NULL : counted(__libc_calloc(count, size));
}

void free(void *block) {
    if (block) atomic_fetch_sub_explicit(&page->allocated, 1, memory_order_relaxed);
    int kept = errno;
    __libc_free(block);
    errno = kept;
}

void *realloc(void *old, size_t size) {
    if (!old) return malloc(size);
    if (!size) {
        free(old);
        return NULL;
    }
    return fails(MEMORY) ? NULL : __libc_realloc(old, size);
}

void *memalign(size_t alignment, size_t size) {
    return fails(MEMORY) ? NULL : counted(__libc_memalign(alignment, size));
}

void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size) {
    void *block = memalign(alignment, size);
    if (block) *out = block;
    return block ? 0 : ENOMEM;
}

/* ---- files --------------------------------------------------------------------------------------------------------------- */

static bool is_asked(unsigned long call) {
    return atomic_load_explicit(&page->is_armed, memory_order_relaxed) && (atomic_load(&page->calls) & call);
}

static bool is_file(int file) {
    struct stat about;
    return syscall(SYS_fstat, file, &about) == 0 && S_ISREG(about.st_mode);
}

static bool fails_for(unsigned long call, int file) {
    return is_asked(call) && is_file(file) && fails(call);
}

ssize_t write(int file, const void *bytes, size_t size) {
    return fails_for(WRITE, file) ? -1 : syscall(SYS_write, file, bytes, size);
}
ssize_t pwrite(int file, const void *bytes, size_t size, off_t offset) {
    return fails_for(WRITE, file) ? -1 : syscall(SYS_pwrite64, file, bytes, size, offset);
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off_t offset) {
    return pwrite(file, bytes, size, offset);
}
int ftruncate(int file, off_t size) {
    return fails_for(WRITE, file) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}
int ftruncate64(int file, off_t size) {
    return ftruncate(file, size);
}
int fallocate(int file, int mode, off_t offset, off_t size) {
    return fails_for(WRITE, file) ? -1 : (int)syscall(SYS_fallocate, file, mode, offset, size);
}
int posix_fallocate(int file, off_t offset, off_t size) {
    return fallocate(file, 0, offset, size) ? errno : 0;
}

ssize_t read(int file, void *bytes, size_t size) {
    return fails_for(READ, file) ? -1 : syscall(SYS_read, file, bytes, size);
}
ssize_t pread(int file, void *bytes, size_t size, off_t offset) {
    return fails_for(READ, file) ? -1 : syscall(SYS_pread64, file, bytes, size, offset);
}
ssize_t pread64(int file, void *bytes, size_t size, off_t offset) {
    return pread(file, bytes, size, offset);
}

/* A folder is synchronised, too. */
int fsync(int file) {
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fsync, file);
}
int fdatasync(int file) {
    return fails(FSYNC) ? -1 : (int)syscall(SYS_fdatasync, file);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
    return fails(RENAME) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    return fails(RENAME) ? -1 : (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    return renameat2(from_folder, from, to_folder, to, 0);
}
int rename(const char *from, const char *to) {
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int open_file(int folder, const char *path, int flags, va_list rest) {
    int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    return fails(OPEN) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_file(AT_FDCWD, path, flags, rest);
    va_end(rest);
    return file;
}
int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_file(AT_FDCWD, path, flags, rest);
    va_end(rest);
    return file;
}
int openat(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_file(folder, path, flags, rest);
    va_end(rest);
    return file;
}
int openat64(int folder, const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    int file = open_file(folder, path, flags, rest);
    va_end(rest);
    return file;
}

void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    if (fails(MMAP)) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, size, (long)protection, (long)flags, (long)file, offset);
}
void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    return mmap(at, size, protection, flags, file, offset);
}

/* ---- sockets ------------------------------------------------------------------------------------------------------------- */

int accept4(int socket, __SOCKADDR_ARG address, socklen_t *restrict size, int flags) {
    return fails(ACCEPT) ? -1 : (int)syscall(SYS_accept4, socket, address.__sockaddr__, size, flags);
}
int accept(int socket, __SOCKADDR_ARG address, socklen_t *restrict size) {
    return accept4(socket, address, size, 0);
}

static bool is_unix_socket(int socket) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    return syscall(SYS_getsockname, socket, &address, &size) == 0 && address.ss_family == AF_UNIX;
}

/* The connection is cut for both sides, as by a network. */
static bool is_cut(unsigned long call, int socket) {
    if (!is_asked(call) || !is_unix_socket(socket) || !fails(call)) return false;
    int reason = errno;
    syscall(SYS_shutdown, socket, SHUT_RDWR);
    errno = reason;
    return true;
}

ssize_t send(int socket, const void *bytes, size_t size, int flags) {
    if (is_cut(SEND, socket)) return -1;
    return syscall(SYS_sendto, socket, bytes, size, flags, NULL, 0L);
}
ssize_t recv(int socket, void *bytes, size_t size, int flags) {
    if (is_cut(RECEIVE, socket)) return -1;
    return syscall(SYS_recvfrom, socket, bytes, size, flags, NULL, NULL);
}
