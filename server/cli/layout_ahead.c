/* The result of a layout, written while its files are still being hashed and stored. What a layout moves where follows from the
 * headers; only the metadata of the result has digests, which are all of one length. So the tensors are written ahead, into a
 * file without a name, and the header when it is known. Where anything is not as expected, this gives up, and the result is
 * written from the store. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/weights/safetensors.h"
#include "core/weights/weights_file.h"
#include "server/cli/cli.h"

#define PART ((size_t)16 << 20)   /* copied, and its writing begun, at once */
#define PIECE ((size_t)1 << 20)   /* made at once */
#define WORTH ((size_t)1 << 16)   /* shorter runs are gathered first */
#define HELD ((uint64_t)32 << 20) /* bytes of mapped files that are read before they are let go */

typedef struct mapped {
    char digest[FB_ID_LENGTH + 1]; /* by which the graph calls the file */
    int file;
    const unsigned char *bytes;
    struct stat facts; /* when it was opened */
} mapped;

struct fb_ahead {
    fb_graph *graph; /* the result */
    mapped *sources;
    size_t count;
    int file; /* without a name */
    char *output;
    uint64_t size;
    pthread_t thread;
    bool is_running, is_written;
    bool is_given_up; /* read and written by both threads, with atomics */
};

/* ---- the files ----------------------------------------------------------------------------------------------------------- */

static bool map_source(mapped *source, const fb_blob_file *one) {
    fb_copy_text(source->digest, sizeof source->digest, one->digest);
    source->file = open(one->path, O_RDONLY | O_CLOEXEC);
    if (source->file < 0 || fstat(source->file, &source->facts) || (uint64_t)source->facts.st_size != one->size || !one->size)
        return false;
    void *bytes = mmap(NULL, (size_t)one->size, PROT_READ, MAP_PRIVATE, source->file, 0);
    if (bytes != MAP_FAILED) source->bytes = bytes;
    return source->bytes != NULL;
}

static fb_status open_source(void *context, const char *blob, fb_blob_bytes *out, fb_error *error) {
    const fb_ahead *ahead = context;
    for (const mapped *one = ahead->sources; one < ahead->sources + ahead->count; one++) {
        if (strcmp(one->digest, blob) != 0) continue;
        *out = (fb_blob_bytes){.bytes = one->bytes, .size = (uint64_t)one->facts.st_size};
        return FB_OK;
    }
    return fb_fail(error, FB_NOT_FOUND, "blob-missing", NULL, "%s is not one of the files", blob);
}

static void close_source(void *context, fb_blob_bytes *bytes) {
    (void)context;
    (void)bytes;
}

static void forget_source(void *context, const fb_blob_bytes *bytes) {
    (void)context;
    madvise((void *)(uintptr_t)bytes->bytes, (size_t)bytes->size, MADV_DONTNEED);
}

/* True if the file at the path is still the one that was read, as it was. */
static bool is_unchanged(const mapped *source) {
    struct stat now;
    return fstat(source->file, &now) == 0 && now.st_size == source->facts.st_size &&
           now.st_mtim.tv_sec == source->facts.st_mtim.tv_sec && now.st_mtim.tv_nsec == source->facts.st_mtim.tv_nsec &&
           now.st_ctim.tv_sec == source->facts.st_ctim.tv_sec && now.st_ctim.tv_nsec == source->facts.st_ctim.tv_nsec;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------- */

static bool write_at(int file, const unsigned char *bytes, size_t size, uint64_t at) {
    while (size) {
        ssize_t written = pwrite(file, bytes, size, (off_t)at);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return false;
        bytes += written, size -= (size_t)written;
        at += (uint64_t)written;
    }
    return true;
}

/* Bytes that are in a file as they are: the kernel copies them, and no byte is mapped. */
static bool copy_range(const fb_ahead *ahead, const unsigned char *bytes, size_t size, uint64_t at) {
    const mapped *source = ahead->sources;
    while (source < ahead->sources + ahead->count && (bytes < source->bytes || bytes >= source->bytes + source->facts.st_size))
        source++;
    if (source == ahead->sources + ahead->count) return write_at(ahead->file, bytes, size, at);
    off_t from = bytes - source->bytes, to = (off_t)at;
    for (size_t done = 0; done < size;) {
        ssize_t copied = copy_file_range(source->file, &from, ahead->file, &to, size - done, 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) return write_at(ahead->file, bytes + done, size - done, at + done);
        done += (size_t)copied;
    }
    return true;
}

static bool write_whole(fb_ahead *ahead, fb_weights_file *weights) {
    unsigned char *piece = malloc(PIECE);
    fb_error error = {0};
    uint64_t at = 0, begun = 0, held = 0;
    bool ok = piece != NULL;
    for (size_t count; ok && at < ahead->size && !__atomic_load_n(&ahead->is_given_up, __ATOMIC_RELAXED); at += count) {
        const unsigned char *bytes = NULL;
        uint64_t left = ahead->size - at;
        ok = !fb_weights_file_lie(weights, at, left < PART ? (size_t)left : PART, &bytes, &count, &error);
        if (ok && count < WORTH) {
            count = left < PIECE ? (size_t)left : PIECE;
            ok = !fb_weights_file_read(weights, at, piece, count, &error) && write_at(ahead->file, piece, count, at);
            if ((held += count) > HELD) {
                for (size_t i = 0; i < ahead->count; i++)
                    madvise((void *)(uintptr_t)ahead->sources[i].bytes, (size_t)ahead->sources[i].facts.st_size, MADV_DONTNEED);
                held = 0;
            }
        } else if (ok) {
            ok = copy_range(ahead, bytes, count, at);
        }
        if (!ok || at + count - begun < PART) continue;
        sync_file_range(ahead->file, (off_t)begun, (off_t)(at + count - begun), SYNC_FILE_RANGE_WRITE);
        begun = at + count;
    }
    free(piece);
    return ok && at == ahead->size;
}

static void *write_ahead(void *argument) {
    fb_ahead *ahead = argument;
    fb_blobs blobs = {.context = ahead, .open = open_source, .close = close_source, .forget = forget_source};
    fb_weights_file *weights = NULL;
    json_t *missing = NULL;
    fb_error error = {0};
    if (!fb_weights_file_new(ahead->graph, NULL, &blobs, &weights, &missing, &error)) {
        ahead->size = fb_weights_file_size(weights);
        ahead->is_written = write_whole(ahead, weights);
    }
    fb_weights_file_free(weights);
    json_decref(missing);
    return NULL;
}

/* ---- start to end -------------------------------------------------------------------------------------------------------- */

static int open_nameless(const char *output) {
    fb_buffer folder = {0};
    const char *slash = strrchr(output, '/');
    fb_buffer_append(&folder, slash ? output : ".", slash ? (size_t)(slash + 1 - output) : 1);
    const char *path = fb_buffer_text(&folder);
    int file = path ? open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0666) : -1;
    fb_buffer_free(&folder);
    return file;
}

fb_ahead *fb_ahead_begin_take(const char *output, const fb_blob_files *files, fb_graph *graph) {
    struct stat facts;
    fb_ahead *ahead = calloc(1, sizeof *ahead);
    bool ok = ahead && !(stat(output, &facts) == 0 && !S_ISREG(facts.st_mode));
    if (!ahead) {
        fb_graph_free(graph);
        return NULL;
    }
    *ahead = (fb_ahead){.graph = graph, .file = -1, .output = strdup(output), .sources = calloc(files->count, sizeof(mapped))};
    ok &= ahead->output && ahead->sources;
    for (size_t i = 0; i < files->count && ok; i++) {
        ahead->sources[i].file = -1;
        ahead->count++;
        ok = map_source(&ahead->sources[i], &files->items[i]);
    }
    if (ok) ok = (ahead->file = open_nameless(output)) >= 0;
    if (ok) ok = ahead->is_running = pthread_create(&ahead->thread, NULL, write_ahead, ahead) == 0;
    if (ok) return ahead;
    fb_ahead_free(ahead);
    return NULL;
}

void fb_ahead_free(fb_ahead *ahead) {
    if (!ahead) return;
    __atomic_store_n(&ahead->is_given_up, true, __ATOMIC_RELAXED);
    if (ahead->is_running) pthread_join(ahead->thread, NULL);
    for (mapped *one = ahead->sources; one < ahead->sources + ahead->count; one++) {
        if (one->bytes) munmap((void *)(uintptr_t)one->bytes, (size_t)one->facts.st_size);
        if (one->file >= 0) close(one->file);
    }
    if (ahead->file >= 0) close(ahead->file);
    fb_graph_free(ahead->graph);
    free(ahead->sources);
    free(ahead->output);
    free(ahead);
}

static bool have_same_places(const fb_safetensors *one, const fb_safetensors *other) {
    bool is_same = one->count == other->count;
    for (size_t i = 0; i < one->count && is_same; i++) {
        const fb_safetensors_entry *a = &one->entries[i], *b = &other->entries[i];
        is_same = !strcmp(a->name, b->name) && a->dtype == b->dtype && a->offset == b->offset && a->size == b->size;
    }
    return is_same;
}

/* The header in the file, which is mapped for it. */
static bool read_header(const fb_ahead *ahead, fb_safetensors *out) {
    void *bytes = mmap(NULL, (size_t)ahead->size, PROT_READ, MAP_SHARED, ahead->file, 0);
    if (bytes == MAP_FAILED) return false;
    fb_error error = {0};
    bool ok = !fb_safetensors_read(bytes, ahead->size, out, &error);
    munmap(bytes, (size_t)ahead->size);
    return ok;
}

/* Writes the header of the graph's weights, where that has the tensors in the same places. */
static bool put_header(fb_cli *cli, fb_ahead *ahead, const char *target) {
    fb_safetensors before = {0}, after = {0};
    fb_progress unseen = {0};
    fb_error error = {0};
    uint64_t header = 0;
    bool ok = read_header(ahead, &before) && before.count;
    if (ok) header = before.entries[0].offset; /* the first byte of all tensors: in the order of their offsets */
    ok = ok && lseek(ahead->file, 0, SEEK_SET) == 0 &&
         !fb_client_copy(cli->client, target, ahead->size, 0, header, ahead->file, &unseen, &error);
    ok = ok && read_header(ahead, &after) && have_same_places(&before, &after);
    fb_safetensors_free(&before);
    fb_safetensors_free(&after);
    return ok;
}

static bool give_name(const fb_ahead *ahead) {
    char from[64];
    fb_buffer part = {0};
    snprintf(from, sizeof from, "/proc/self/fd/%d", ahead->file);
    fb_buffer_printf(&part, "%s.%ld.part", ahead->output, (long)getpid());
    const char *to = fb_buffer_text(&part);
    bool ok = to && !fdatasync(ahead->file) && !linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW);
    if (ok && rename(to, ahead->output)) {
        unlink(to);
        ok = false;
    }
    fb_buffer_free(&part);
    return ok;
}

bool fb_ahead_finish(fb_cli *cli, fb_ahead *ahead, const char *graph) {
    fb_buffer target = {0};
    fb_progress progress;
    fb_buffer_printf(&target, "/v1/graphs/%s/weights", graph);
    const char *text = fb_buffer_text(&target);
    if (ahead->is_running) pthread_join(ahead->thread, NULL);
    ahead->is_running = false;
    bool ok = text && ahead->is_written && fb_client_can_copy(cli->client, text);
    if (ok) ok = put_header(cli, ahead, text);
    for (size_t i = 0; i < ahead->count && ok; i++) ok = is_unchanged(&ahead->sources[i]);
    if (ok) {
        fb_progress_begin(&progress, "writing", ahead->output, ahead->size, ahead->size); /* the disk is waited for */
        ok = give_name(ahead);
        fb_progress_end(&progress);
    }
    if (ok && !cli->is_json) printf("%s written to %s\n", fb_readable_size(ahead->size).text, ahead->output);
    fb_buffer_free(&target);
    return ok;
}
