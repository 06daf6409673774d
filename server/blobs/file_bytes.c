/* Hashes files, and copies one that becomes an upload whole. The file system shares its blocks if it can; otherwise the kernel
 * copies, while what was copied is hashed. The hash is of the store's own bytes, so that a file that changes meanwhile gives a
 * blob that is right. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "server/blobs/files.h"
#include "server/database/query.h"

#define PIECE ((size_t)16 << 20) /* copied, and its writing begun, at once */
#define HASHED ((size_t)1 << 20) /* read at once */

typedef struct copying {
    int from, to;
    uint64_t size;
    pthread_mutex_t mutex;
    pthread_cond_t has_more;
    uint64_t copied;
    bool is_over;
    int failure;
} copying;

/* Bytes of one file as those of another, at the same place; 0 at the end, or -1. */
static ssize_t copy_through_memory(const copying *c, char *memory, uint64_t at, size_t size) {
    ssize_t got = pread(c->from, memory, size, (off_t)at);
    for (ssize_t done = 0; done < got;) {
        ssize_t wrote = pwrite(c->to, memory + done, (size_t)(got - done), (off_t)at + done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) return -1;
        done += wrote;
    }
    return got;
}

static void tell(copying *c, uint64_t copied, bool is_over, int failure) {
    pthread_mutex_lock(&c->mutex);
    c->copied = copied;
    c->is_over = is_over;
    c->failure = failure;
    pthread_cond_signal(&c->has_more);
    pthread_mutex_unlock(&c->mutex);
}

static void *copy_all(void *argument) {
    copying *c = argument;
    char *memory = NULL;
    uint64_t at = 0;
    int failure = 0;
    while (at < c->size && !failure) {
        size_t wanted = c->size - at < PIECE ? (size_t)(c->size - at) : PIECE;
        off_t from = (off_t)at, to = (off_t)at;
        ssize_t got = memory ? -1 : copy_file_range(c->from, &from, c->to, &to, wanted, 0);
        bool is_impossible = !memory && got < 0 && errno != EINTR && errno != ENOSPC && errno != EDQUOT && errno != EIO;
        if (is_impossible && !(memory = malloc(HASHED))) failure = ENOMEM;
        if (memory) got = copy_through_memory(c, memory, at, wanted < HASHED ? wanted : HASHED);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0 && !failure) failure = got ? errno : ENODATA;
        if (failure) break;
        sync_file_range(c->to, (off_t)at, got, SYNC_FILE_RANGE_WRITE);
        tell(c, at += (uint64_t)got, false, 0);
    }
    free(memory);
    tell(c, at, true, failure);
    return NULL;
}

/* Waits until more than `hashed` bytes are there; how many, or `hashed` at the end. */
static uint64_t wait_for_more(copying *c, uint64_t hashed) {
    pthread_mutex_lock(&c->mutex);
    while (c->copied == hashed && !c->is_over) pthread_cond_wait(&c->has_more, &c->mutex);
    uint64_t copied = c->copied;
    pthread_mutex_unlock(&c->mutex);
    return copied;
}

static fb_status hash_copied(copying *c, fb_sha256 *hash, void (*progress)(void *, uint64_t), void *context, fb_error *error) {
    char *piece = malloc(HASHED);
    fb_status status = piece ? FB_OK : fb_fail_memory(error);
    uint64_t hashed = 0, there;
    while (!status && (there = wait_for_more(c, hashed)) > hashed) {
        while (hashed < there && !status) {
            ssize_t got = pread(c->to, piece, there - hashed < HASHED ? (size_t)(there - hashed) : HASHED, (off_t)hashed);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) status = fb_fail_file(error, "read an upload", got ? errno : EIO);
            else if (!fb_sha256_add(hash, piece, (size_t)got)) status = fb_fail_memory(error);
            if (status) break;
            hashed += (uint64_t)got;
            if (progress) progress(context, (uint64_t)got);
        }
    }
    free(piece);
    return status;
}

fb_status fb_file_copy(int from, int to, uint64_t size, fb_sha256 *hash, void (*progress)(void *, uint64_t), void *context,
                       fb_error *error) {
    copying c = {.from = from, .to = to, .size = size};
    pthread_t thread;
    pthread_mutex_init(&c.mutex, NULL);
    pthread_cond_init(&c.has_more, NULL);
    bool is_shared = size && ioctl(to, FICLONE, from) == 0 && ftruncate(to, (off_t)size) == 0;
    if (is_shared) tell(&c, size, true, 0);
    bool has_thread = !is_shared && pthread_create(&thread, NULL, copy_all, &c) == 0;
    if (!is_shared && !has_thread) copy_all(&c);
    fb_status status = hash_copied(&c, hash, progress, context, error);
    if (has_thread) pthread_join(thread, NULL);
    pthread_cond_destroy(&c.has_more);
    pthread_mutex_destroy(&c.mutex);
    if (!status && c.failure == ENODATA)
        return fb_fail(error, FB_IO, "file-failed", NULL, "cannot read the file: it has become shorter");
    return status || !c.failure ? status : fb_fail_file(error, "copy a file into an upload", c.failure);
}

fb_status fb_file_hash(int file, uint64_t size, fb_sha256 *hash, const char *what, fb_error *error) {
    char *block = malloc(HASHED);
    fb_status status = block ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < size && !status;) {
        ssize_t got = pread(file, block, size - at < HASHED ? (size_t)(size - at) : HASHED, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) status = fb_fail_file(error, what, errno);
        else if (got == 0) status = fb_fail_corrupt(error, "a file became shorter");
        else if (!fb_sha256_add(hash, block, (size_t)got)) status = fb_fail_memory(error);
        at += got > 0 ? (uint64_t)got : 0;
    }
    free(block);
    return status;
}
