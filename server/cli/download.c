#include "server/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/sha256.h"

#define PIECE ((size_t)1 << 18)
#define TAG_DIGITS 8

int fb_cannot_copy(const char *path, const fb_error *error) {
    if (strcmp(error->code, "file-failed") != 0) return fb_cli_error(error);
    return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, error->message);
}

typedef struct download {
    fb_cli *cli;
    const char *target; /* the address */
    const char *path;   /* where to; "-" is standard output */
    const char *digest; /* or NULL */
    char etag[170];
    uint64_t size;
    char *part;      /* its name until it is whole; NULL: it is written where it belongs at once */
    int file;        /* -1: not open */
    uint64_t have;   /* bytes that are there */
    uint64_t from;   /* where the answer begins */
    fb_sha256 *hash; /* of them, when a digest is known */
    char failure[400];
} download;

/* ---- what it is --------------------------------------------------------------------------------------------------------- */

static int ask(const download *d, const char *method, fb_answer *answer) {
    fb_call call = {.method = method};
    fb_buffer_string(&call.address.text, d->target);
    return fb_cli_try(d->cli, &call, answer);
}

static int find_size(download *d) {
    fb_answer answer;
    int result = ask(d, "HEAD", &answer);
    if (result) return result;
    bool is_found = answer.status == 200 && answer.has_length && *answer.etag;
    if (is_found) strcpy(d->etag, answer.etag);
    d->size = answer.length;
    fb_answer_free(&answer);
    if (is_found) return FB_EXIT_DONE;
    result = ask(d, "GET", &answer); /* what HEAD refused has no sentence */
    return result ? result : fb_cli_refused(d->cli, &answer);
}

/* ---- where it goes ------------------------------------------------------------------------------------------------------ */

static int name_part(download *d) {
    fb_buffer name = {0};
    char id[FB_ID_LENGTH + 1];
    if (!fb_sha256_id(d->etag, strlen(d->etag), id)) return fb_cli_no_memory();
    fb_buffer_printf(&name, "%s.%.*s.part", d->path, TAG_DIGITS, id + strlen("sha256:"));
    d->part = fb_buffer_take(&name, NULL);
    return d->part ? FB_EXIT_DONE : fb_cli_no_memory();
}

static int add_up_part(download *d) {
    char *piece = malloc(PIECE);
    bool ok = piece != NULL;
    for (uint64_t at = 0; ok && at < d->have;) {
        ssize_t got = pread(d->file, piece, PIECE, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        ok = got > 0 && fb_sha256_add(d->hash, piece, (size_t)got);
        at += ok ? (uint64_t)got : 0;
    }
    free(piece);
    return ok ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "cannot read %s", d->part);
}

/* Resumes an interrupted download. */
static int open_part(download *d) {
    struct stat facts;
    int result = name_part(d);
    if (result) return result;
    d->file = open(d->part, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (d->file < 0 || fstat(d->file, &facts))
        return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", d->part, strerror(errno));
    if (flock(d->file, LOCK_EX | LOCK_NB))
        return fb_complain(FB_EXIT_FAILED, "%s is being written by another foldback", d->part);
    d->have = (uint64_t)facts.st_size;
    if (d->have > d->size) return fb_complain(FB_EXIT_FAILED, "%s is larger than the whole; remove it", d->part);
    return d->hash && d->have ? add_up_part(d) : FB_EXIT_DONE;
}

static int open_target(download *d) {
    struct stat facts;
    bool is_output = strcmp(d->path, "-") == 0;
    bool is_special = !is_output && stat(d->path, &facts) == 0 && !S_ISREG(facts.st_mode); /* a pipe, a device */
    if (!is_output && !is_special) return open_part(d);
    d->file = is_output ? dup(STDOUT_FILENO) : open(d->path, O_WRONLY | O_CLOEXEC);
    if (d->file >= 0) return FB_EXIT_DONE;
    return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", is_output ? "the output" : d->path, strerror(errno));
}

/* ---- the bytes ---------------------------------------------------------------------------------------------------------- */

static bool cannot(download *d, const char *why) {
    snprintf(d->failure, sizeof d->failure, "cannot write %s: %s", d->part ? d->part : d->path, why);
    return false;
}

static bool take(void *context, const fb_answer *answer, const char *bytes, size_t size) {
    download *d = context;
    if (strcmp(answer->etag, d->etag) != 0 || answer->status != (d->from ? 206 : 200))
        return cannot(d, "the service sends something else than it said");
    while (size) {
        ssize_t written = write(d->file, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return cannot(d, strerror(errno));
        if (d->hash && !fb_sha256_add(d->hash, bytes, (size_t)written)) return cannot(d, "out of memory");
        bytes += written, size -= (size_t)written;
        d->have += (uint64_t)written;
    }
    return true;
}

/* The rest of it, from the store in this process. */
static int copy(download *d) {
    fb_progress progress;
    fb_error error = {0};
    struct stat facts;
    fb_progress_begin(&progress, "writing", d->path, d->have, d->size);
    fb_status status = fb_client_copy(d->cli->client, d->target, d->size, d->have, d->size, d->file, &progress, &error);
    if (d->part && fstat(d->file, &facts) == 0) d->have = (uint64_t)facts.st_size;
    return status ? fb_cannot_copy(d->part ? d->part : d->path, &error) : FB_EXIT_DONE;
}

/* The rest of it. */
static int fetch(download *d) {
    char range[64];
    fb_receiver receiver = {.take = take, .context = d};
    fb_progress progress;
    fb_call call = {.method = "GET", .receiver = &receiver, .progress = &progress};
    fb_answer answer;
    d->from = d->have;
    if (d->from) {
        snprintf(range, sizeof range, "Range: bytes=%llu-", (unsigned long long)d->from);
        call.header = range;
    }
    fb_buffer_string(&call.address.text, d->target);
    fb_progress_begin(&progress, "receiving", d->path, d->have, d->size);
    int result = fb_cli_call(d->cli, &call, &answer);
    if (!result) fb_answer_free(&answer);
    if (*d->failure) fb_complain(0, "%s", d->failure);
    return result;
}

static int check_digest(const download *d) {
    char found[FB_ID_LENGTH + 1];
    if (!d->hash) return FB_EXIT_DONE;
    if (!fb_sha256_id_so_far(d->hash, found)) return fb_cli_no_memory();
    if (strcmp(found, d->digest) == 0) return FB_EXIT_DONE;
    if (d->part) unlink(d->part);
    return fb_complain(FB_EXIT_FAILED, "what came is %s, not %s", found, d->digest);
}

static int put_in_place(download *d) {
    if (fdatasync(d->file) || rename(d->part, d->path))
        return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", d->path, strerror(errno));
    return FB_EXIT_DONE;
}

/* ---- start to end ------------------------------------------------------------------------------------------------------- */

static int transfer(download *d) {
    int result = find_size(d);
    if (!result) result = open_target(d);
    bool is_copied = !result && !d->hash && fb_client_can_copy(d->cli->client, d->target);
    if (!result && d->have < d->size) result = is_copied ? copy(d) : fetch(d);
    if (result && d->part && d->have)
        fb_complain(0, "the part that arrived is in %s: the same command resumes from there", d->part);
    if (result && d->part && !d->have && d->file >= 0) unlink(d->part);
    if (!result) result = check_digest(d);
    if (!result && d->part) result = put_in_place(d);
    if (!result && !d->cli->is_json && strcmp(d->path, "-") != 0)
        printf("%s written to %s\n", fb_readable_size(d->size).text, d->path);
    return result;
}

int fb_download(fb_cli *cli, fb_address *address, const char *digest) {
    const char *output = cli->values.output;
    download d = {.cli = cli, .path = output ? output : "-", .digest = digest, .file = -1};
    int result = FB_EXIT_DONE;
    d.target = fb_buffer_text(&address->text);
    if (!output && isatty(STDOUT_FILENO))
        result = fb_complain(FB_EXIT_USAGE, "%s: this is nothing for a terminal; --output FILE", cli->verb->name);
    else if (!d.target || (digest && !(d.hash = fb_sha256_new()))) result = fb_cli_no_memory();
    if (!result) result = transfer(&d);
    if (d.file >= 0) close(d.file);
    fb_sha256_free(d.hash);
    free(d.part);
    fb_buffer_free(&address->text);
    return result;
}
