/* A graph's weights, straight from the store in this process into a file. What a layout only puts elsewhere is written from
 * where it lies in the store's files: the kernel copies it once, and no byte of it passes through a connection. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/weights/weights_file.h"
#include "server/cli/cli.h"
#include "server/cli/transport.h"
#include "server/graphs/graphs.h"

#define PART ((size_t)8 << 20)  /* written at once from where it lies */
#define PIECE ((size_t)1 << 20) /* made at once */
#define WORTH ((size_t)1 << 16) /* less that lies together is gathered first */

bool fb_is_weights_target(const char *target, char graph[FB_ID_LENGTH + 1]) {
    static const char before[] = "/v1/graphs/", after[] = "/weights";
    if (strncmp(target, before, sizeof before - 1) != 0) return false;
    target += sizeof before - 1;
    if (strlen(target) != FB_ID_LENGTH + sizeof after - 1 || strcmp(target + FB_ID_LENGTH, after) != 0) return false;
    fb_copy_text(graph, FB_ID_LENGTH + 1, target);
    return fb_is_sha256_id(graph);
}

static fb_status write_all(int file, const unsigned char *bytes, size_t size, fb_error *error) {
    while (size) {
        ssize_t written = write(file, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return fb_fail(error, FB_IO, "file-failed", NULL, "%s", strerror(errno));
        bytes += written, size -= (size_t)written;
    }
    return FB_OK;
}

static fb_status copy(fb_weights_file *weights, uint64_t from, uint64_t to, int file, fb_progress *progress, fb_error *error) {
    unsigned char *piece = malloc(PIECE);
    fb_status status = piece ? FB_OK : fb_fail_memory(error);
    for (size_t count; from < to && !status; from += count) {
        const unsigned char *bytes = NULL;
        status = fb_weights_file_lie(weights, from, to - from < PART ? (size_t)(to - from) : PART, &bytes, &count, error);
        if (!status && count < WORTH) {
            bytes = piece;
            count = to - from < PIECE ? (size_t)(to - from) : PIECE;
            status = fb_weights_file_read(weights, from, piece, count, error);
        }
        if (!status) status = write_all(file, bytes, count, error);
        if (!status) fb_progress_add(progress, count);
    }
    free(piece);
    return status;
}

int fb_cannot_copy(const char *path, const fb_error *error) {
    if (strcmp(error->code, "file-failed") != 0) return fb_cli_error(error);
    return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, error->message);
}

fb_status fb_store_copy_weights(const fb_app *app, const char *graph, uint64_t size, uint64_t from, uint64_t to, int file,
                                fb_progress *progress, fb_error *error) {
    fb_shared_graph *shared = NULL;
    fb_blobs blobs = fb_blob_source(app->store);
    fb_weights_file *weights = NULL;
    json_t *missing = NULL;
    fb_status status = fb_load_graph(app, NULL, graph, &shared, error);
    if (status) return status;
    status = fb_weights_file_new(shared->graph, NULL, &blobs, &weights, &missing, error);
    if (!status && fb_weights_file_size(weights) != size)
        status = fb_fail(error, FB_CONFLICT, "changed", NULL, "the weights of %s are of another size than before", graph);
    if (!status) status = copy(weights, from, to, file, progress, error);
    fb_weights_file_free(weights);
    json_decref(missing);
    fb_share_release(shared);
    return status;
}

/* ---- the other way ------------------------------------------------------------------------------------------------------ */

static fb_status take(fb_upload *upload, const fb_sent_file *from, fb_progress *progress, fb_error *error) {
    unsigned char *piece = malloc(PIECE);
    fb_status status = piece ? FB_OK : fb_fail_memory(error);
    for (uint64_t at = 0; at < from->size && !status;) {
        ssize_t got = pread(from->file, piece, PIECE, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            status = fb_fail(error, FB_IO, "file-failed", NULL, "cannot read the file: %s",
                             got ? strerror(errno) : "it has become shorter");
            break;
        }
        status = fb_upload_write(upload, piece, (size_t)got, error);
        fb_progress_add(progress, (uint64_t)got);
        at += (uint64_t)got;
    }
    free(piece);
    return status;
}

fb_status fb_store_take_blob(const fb_app *app, const fb_sent_file *from, const char *digest, fb_progress *progress,
                             fb_error *error) {
    fb_upload *upload = NULL;
    fb_store_actor by = {.who = FB_LOCAL};
    char found[FB_ID_LENGTH + 1];
    bool is_new;
    fb_status status = fb_upload_new(app->store, false, &upload, error);
    if (!status) status = take(upload, from, progress, error);
    if (!status) status = fb_upload_finish(upload, digest, &by, found, &is_new, error);
    fb_upload_close(upload, status != FB_OK);
    return status;
}
