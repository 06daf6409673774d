/* A graph's weights as several files, as Hugging Face's libraries write and read them:
 *
 *     model-00001-of-00002.safetensors  model-00002-of-00002.safetensors  model.safetensors.index.json
 *
 * They are made of one file's bytes: each shard has its next tensors, as many as its size allows, and a header of its own. The
 * files get their names when all are whole, the index last. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/weights/safetensors.h"
#include "core/weights/weights_file.h"
#include "server/cli/cli.h"

#define ENDING ".safetensors"

typedef struct shard {
    size_t from, to;     /* entries of the whole */
    uint64_t begin, end; /* their bytes in it */
    char *path, *part;   /* its name, and the one until all are whole */
    bool is_begun;       /* `part` is ours to remove */
} shard;

typedef struct sharding {
    fb_cli *cli;
    const char *target; /* the address of the whole */
    char etag[170];
    uint64_t size;
    fb_safetensors whole;
    shard *shards;
    size_t count;
    char *index, *index_part;
    bool index_is_begun;
    int file; /* that is written */
    char failure[400];
} sharding;

/* ---- the whole ---------------------------------------------------------------------------------------------------------- */

static bool is_the_same(sharding *s, const fb_answer *answer) {
    if (!*s->etag) strcpy(s->etag, answer->etag);
    return *answer->etag && strcmp(s->etag, answer->etag) == 0;
}

static int complain_changed(void) {
    return fb_complain(FB_EXIT_FAILED, "the service sends something else than it said");
}

static int get_bytes(sharding *s, uint64_t first, uint64_t last, fb_answer *answer) {
    char range[80];
    fb_call call = {.method = "GET", .header = range};
    snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)first, (unsigned long long)last);
    fb_buffer_string(&call.address.text, s->target);
    int result = fb_cli_call(s->cli, &call, answer);
    if (result) return result;
    if (is_the_same(s, answer) && answer->status == 206 && answer->body.size == last + 1 - first) return FB_EXIT_DONE;
    fb_answer_free(answer);
    return complain_changed();
}

static int read_whole(sharding *s) {
    fb_call call = {.method = "HEAD"};
    fb_answer answer;
    fb_error error = {0};
    uint64_t length = 0;
    fb_buffer_string(&call.address.text, s->target);
    int result = fb_cli_try(s->cli, &call, &answer);
    if (result) return result;
    if (answer.status == 200 && is_the_same(s, &answer)) s->size = answer.length;
    fb_answer_free(&answer);
    if (s->size < 8) { /* what HEAD refused has no sentence */
        fb_call again = {.method = "GET"};
        fb_buffer_string(&again.address.text, s->target);
        result = fb_cli_call(s->cli, &again, &answer);
        if (!result) fb_answer_free(&answer);
        return result ? result : complain_changed();
    }
    result = get_bytes(s, 0, 7, &answer);
    if (result) return result;
    for (size_t i = 0; i < 8; i++) length |= (uint64_t)(unsigned char)answer.body.data[i] << (8 * i);
    fb_answer_free(&answer);
    if (length > FB_SAFETENSORS_MAX_HEADER || length > s->size - 8) return complain_changed();
    result = get_bytes(s, 0, 7 + length, &answer);
    if (result) return result;
    if (fb_safetensors_read((const unsigned char *)answer.body.data, s->size, &s->whole, &error)) result = fb_cli_error(&error);
    fb_answer_free(&answer);
    return result;
}

/* ---- the parts ---------------------------------------------------------------------------------------------------------- */

/* A tensor that is larger than a shard may be has one of its own. */
static int divide(sharding *s, uint64_t limit) {
    s->shards = calloc(s->whole.count + 1, sizeof *s->shards);
    if (!s->shards) return fb_cli_no_memory();
    for (size_t i = 0; i < s->whole.count; i++) {
        const fb_safetensors_entry *entry = &s->whole.entries[i];
        shard *last = s->count ? &s->shards[s->count - 1] : NULL;
        if (!last || entry->offset + entry->size - last->begin > limit) {
            last = &s->shards[s->count++];
            *last = (shard){.from = i, .begin = entry->offset};
        }
        last->to = i + 1;
        last->end = entry->offset + entry->size;
    }
    return FB_EXIT_DONE;
}

__attribute__((format(printf, 1, 2))) static char *spell(const char *format, ...) {
    char *made;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&made, format, args);
    va_end(args);
    return length < 0 ? NULL : made;
}

static int name_files(sharding *s) {
    const char *output = s->cli->values.output;
    int length = (int)(strlen(output) - strlen(ENDING));
    bool ok = true;
    for (size_t i = 0; i < s->count && ok; i++) {
        shard *one = &s->shards[i];
        one->path = spell("%.*s-%05zu-of-%05zu" ENDING, length, output, i + 1, s->count);
        one->part = one->path ? spell("%s.part", one->path) : NULL;
        ok = one->part != NULL;
    }
    s->index = spell("%s.index.json", output);
    s->index_part = s->index ? spell("%s.part", s->index) : NULL;
    return ok && s->index_part ? FB_EXIT_DONE : fb_cli_no_memory();
}

/* The whole's metadata, with what that says of these tensors alone: {"fc.weight": [name, recipe], …} as text. NULL where the
 * whole says nothing, and when memory is out. */
static json_t *metadata_of(const sharding *s, const shard *one) {
    json_t *metadata = json_copy(s->whole.metadata);
    const char *text = json_string_value(json_object_get(metadata, FB_WEIGHTS_TENSORS));
    if (!text) return metadata;
    json_t *all = json_loads(text, 0, NULL), *own = json_object();
    bool ok = all && own;
    for (size_t i = one->from; i < one->to && ok; i++) {
        json_t *told = json_object_get(all, s->whole.entries[i].name);
        if (told) ok = json_object_set(own, s->whole.entries[i].name, told) == 0;
    }
    char *said = ok ? json_dumps(own, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    ok = said && json_object_set_new(metadata, FB_WEIGHTS_TENSORS, json_string(said)) == 0;
    if (!ok) json_decref(metadata);
    free(said);
    json_decref(all);
    json_decref(own);
    return ok ? metadata : NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

static int fail_writing(const char *path) {
    return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
}

static bool write_bytes(int file, const char *bytes, size_t size) {
    while (size) {
        ssize_t written = write(file, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes += written, size -= (size_t)written;
    }
    return true;
}

static int open_part(sharding *s, const char *part, bool *is_begun) {
    s->file = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (s->file < 0) return fail_writing(part);
    if (flock(s->file, LOCK_EX | LOCK_NB)) return fb_complain(FB_EXIT_FAILED, "%s is being written by another foldback", part);
    *is_begun = true;
    return ftruncate(s->file, 0) ? fail_writing(part) : FB_EXIT_DONE;
}

static int close_part(sharding *s, const char *part, int result) {
    if (!result && fdatasync(s->file)) result = fail_writing(part);
    if (s->file >= 0 && close(s->file) && !result) result = fail_writing(part);
    s->file = -1;
    return result;
}

static bool take(void *context, const fb_answer *answer, const char *bytes, size_t size) {
    sharding *s = context;
    if (!is_the_same(s, answer) || answer->status != 206)
        return snprintf(s->failure, sizeof s->failure, "the service sends something else than it said"), false;
    if (write_bytes(s->file, bytes, size)) return true;
    return snprintf(s->failure, sizeof s->failure, "cannot write: %s", strerror(errno)), false;
}

static int write_body(sharding *s, const shard *one) {
    char range[80];
    fb_receiver receiver = {.take = take, .context = s};
    fb_progress progress;
    fb_call call = {.method = "GET", .header = range, .receiver = &receiver, .progress = &progress};
    fb_answer answer;
    if (one->end == one->begin) return FB_EXIT_DONE;
    if (fb_client_can_copy(s->cli->client, s->target)) {
        fb_error error = {0};
        fb_progress_begin(&progress, "writing", one->path, 0, one->end - one->begin);
        fb_status status = fb_client_copy(s->cli->client, s->target, s->size, one->begin, one->end, s->file, &progress, &error);
        return status ? fb_cannot_copy(one->part, &error) : FB_EXIT_DONE;
    }
    snprintf(range, sizeof range, "Range: bytes=%llu-%llu", (unsigned long long)one->begin, (unsigned long long)one->end - 1);
    fb_buffer_string(&call.address.text, s->target);
    fb_progress_begin(&progress, "receiving", one->path, 0, one->end - one->begin);
    int result = fb_cli_call(s->cli, &call, &answer);
    if (!result) fb_answer_free(&answer);
    if (*s->failure) fb_complain(0, "%s: %s", one->part, s->failure);
    return result;
}

static int write_shard(sharding *s, shard *one) {
    fb_buffer header = {0};
    fb_error error = {0};
    size_t count = one->to - one->from;
    json_t *metadata = metadata_of(s, one);
    fb_safetensors_entry *entries = malloc((count + 1) * sizeof *entries);
    if (entries) memcpy(entries, s->whole.entries + one->from, count * sizeof *entries);
    int result = entries && !metadata == !s->whole.metadata ? FB_EXIT_DONE : fb_cli_no_memory();
    if (!result && fb_safetensors_cut_out(entries, count, metadata, &header, &error)) result = fb_cli_error(&error);
    if (!result) result = open_part(s, one->part, &one->is_begun);
    if (!result && !write_bytes(s->file, header.data, header.size)) result = fail_writing(one->part);
    if (!result) result = write_body(s, one);
    result = close_part(s, one->part, result);
    free(entries);
    json_decref(metadata);
    fb_buffer_free(&header);
    return result;
}

static int write_index(sharding *s) {
    json_t *map = json_object();
    uint64_t total = 0;
    for (const shard *one = s->shards; one < s->shards + s->count; one++) {
        const char *slash = strrchr(one->path, '/');
        total += one->end - one->begin;
        for (size_t i = one->from; i < one->to; i++)
            json_object_set_new(map, s->whole.entries[i].name, json_string(slash ? slash + 1 : one->path));
    }
    bool is_whole = json_object_size(map) == s->whole.count;
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total, "weight_map", map);
    char *text = is_whole && index ? json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS) : NULL;
    json_decref(index);
    if (!text) return fb_cli_no_memory();
    int result = open_part(s, s->index_part, &s->index_is_begun);
    if (!result && !(write_bytes(s->file, text, strlen(text)) && write_bytes(s->file, "\n", 1)))
        result = fail_writing(s->index_part);
    free(text);
    return close_part(s, s->index_part, result);
}

/* True if the text ends like the name of a shard of these files, -00001-of-00002.safetensors, and is not one that was written.
 */
static bool is_stale(const sharding *s, const char *path) {
    size_t stem = strlen(s->index) - strlen(ENDING ".index.json"), length = strlen(path);
    unsigned number, count;
    char end[40];
    if (length <= stem || sscanf(path + stem, "-%5u-of-%5u", &number, &count) != 2) return false;
    snprintf(end, sizeof end, "-%05u-of-%05u" ENDING, number, count);
    return strncmp(path, s->index, stem) == 0 && strcmp(path + stem, end) == 0 && count != s->count;
}

/* Shards that the index before this one named: other counts have other names, and would stay for ever. */
static void drop_stale(const sharding *s, const json_t *old) {
    const char *slash = strrchr(s->index, '/'), *tensor;
    json_t *name;
    json_object_foreach(json_object_get(old, "weight_map"), tensor, name) {
        int folder = slash ? (int)(slash + 1 - s->index) : 0;
        char *path = json_is_string(name) ? spell("%.*s%s", folder, s->index, json_string_value(name)) : NULL;
        if (path && is_stale(s, path)) unlink(path);
        free(path);
    }
}

/* No index is left beside shards of which some are older. */
static int put_in_place(sharding *s) {
    json_t *old = json_load_file(s->index, 0, NULL);
    int result = unlink(s->index) && errno != ENOENT ? fail_writing(s->index) : FB_EXIT_DONE;
    for (const shard *one = s->shards; one < s->shards + s->count && !result; one++)
        if (rename(one->part, one->path)) result = fail_writing(one->path);
    if (!result && rename(s->index_part, s->index)) result = fail_writing(s->index);
    if (!result) drop_stale(s, old);
    json_decref(old);
    return result;
}

static void clean(sharding *s) {
    for (size_t i = 0; i < s->count; i++) {
        if (s->shards[i].is_begun) unlink(s->shards[i].part); /* those that are in their place have another name */
        free(s->shards[i].path);
        free(s->shards[i].part);
    }
    if (s->index_is_begun) unlink(s->index_part);
    free(s->index);
    free(s->index_part);
    free(s->shards);
    fb_safetensors_free(&s->whole);
}

/* Readers take the one file where both are there. */
static int check_free(const char *path, const char *instead) {
    if (access(path, F_OK)) return FB_EXIT_DONE;
    return fb_complain(FB_EXIT_FAILED,
                       "%s is there, and would be taken for a part of the new %s: remove it, or choose another --output", path,
                       instead);
}

static int write_shards(sharding *s) {
    int result = check_free(s->cli->values.output, "shards");
    for (size_t i = 0; i < s->count && !result; i++) result = write_shard(s, &s->shards[i]);
    if (!result) result = write_index(s);
    if (!result) result = put_in_place(s);
    if (!result && !s->cli->is_json) printf("%s written as %zu shards\n", s->index, s->count);
    return result;
}

bool fb_can_be_sharded(const char *path) {
    size_t length = strlen(path);
    return length > strlen(ENDING) && strcmp(path + length - strlen(ENDING), ENDING) == 0;
}

int fb_download_shards(fb_cli *cli, fb_address *address, uint64_t limit) {
    sharding s = {.cli = cli, .target = fb_buffer_text(&address->text), .file = -1};
    int result = s.target ? read_whole(&s) : fb_cli_no_memory();
    if (!result) result = divide(&s, limit);
    if (!result) result = name_files(&s);
    if (!result && s.count > 1) result = write_shards(&s);
    else if (!result) result = check_free(s.index, "file");
    bool is_one = s.count < 2;
    clean(&s);
    if (!result && is_one) return fb_download(cli, address, NULL);
    fb_buffer_free(&address->text);
    return result;
}
