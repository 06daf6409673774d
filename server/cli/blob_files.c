#include "core/base/grow.h"
#include "server/cli/cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json/json.h"

#define PIECE ((size_t)1 << 18)

/* ---- files -------------------------------------------------------------------------------------------------------------- */

int fb_sent_file_open(const char *path, fb_sent_file *out) {
    struct stat facts;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 || fstat(file, &facts)) {
        fb_complain(0, "cannot read %s: %s", path, strerror(errno));
    } else if (!S_ISREG(facts.st_mode)) {
        fb_complain(0, "cannot read %s: it is not an ordinary file", path);
    } else {
        *out = (fb_sent_file){.file = file, .size = (uint64_t)facts.st_size};
        return FB_EXIT_DONE;
    }
    if (file >= 0) close(file);
    return FB_EXIT_FAILED;
}

int fb_sent_inputs_open(const char *path, fb_sent_file *out) {
    fb_buffer joined = {0};
    if (!fb_is_npy_folder(path)) return fb_sent_file_open(path, out);
    int result = fb_npy_folder_join(path, &joined);
    FILE *file = result ? NULL : tmpfile();
    bool is_written = file && fwrite(joined.data, 1, joined.size, file) == joined.size && fseek(file, 0, SEEK_SET) == 0;
    int copy = is_written ? fcntl(fileno(file), F_DUPFD_CLOEXEC, 0) : -1;
    if (file) fclose(file);
    if (!result && copy < 0) result = fb_complain(FB_EXIT_FAILED, "cannot write a temporary file: %s", strerror(errno));
    if (!result) *out = (fb_sent_file){.file = copy, .size = joined.size};
    fb_buffer_free(&joined);
    return result;
}

static int add_up(int file, fb_sha256 *hash, char *piece, const fb_blob_file *one) {
    fb_progress progress;
    ssize_t got;
    bool is_added = true;
    fb_progress_begin(&progress, "reading", one->path, 0, one->size);
    posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
    while (is_added && ((got = read(file, piece, PIECE)) > 0 || (got < 0 && errno == EINTR))) {
        if (got < 0) continue;
        is_added = fb_sha256_add(hash, piece, (size_t)got);
        fb_progress_add(&progress, (uint64_t)got);
    }
    int failure = errno;
    fb_progress_end(&progress);
    if (!is_added) return fb_cli_no_memory();
    return got ? fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", one->path, strerror(failure)) : FB_EXIT_DONE;
}

static int find_digest(fb_blob_file *one) {
    fb_sent_file body;
    int result = fb_sent_inputs_open(one->path, &body);
    if (result) return result;
    one->size = body.size;
    fb_sha256 *hash = fb_sha256_new();
    char *piece = malloc(PIECE);
    result = hash && piece ? add_up(body.file, hash, piece, one) : fb_cli_no_memory();
    if (!result && !fb_sha256_id_so_far(hash, one->digest)) result = fb_cli_no_memory();
    fb_sha256_free(hash);
    free(piece);
    close(body.file);
    return result;
}

/* ---- lists -------------------------------------------------------------------------------------------------------------- */

static fb_blob_file *add(fb_blob_files *files) {
    if (!FB_GROW(files->items, files->count, files->capacity)) return NULL;
    files->items[files->count] = (fb_blob_file){0};
    return &files->items[files->count++];
}

static bool has_path(const fb_blob_files *files, const char *path) {
    for (size_t i = 0; i < files->count; i++) {
        if (files->items[i].path && strcmp(files->items[i].path, path) == 0) return true;
    }
    return false;
}

int fb_blob_files_add_take(fb_blob_files *files, char *path) {
    if (path && has_path(files, path)) {
        free(path);
        return FB_EXIT_DONE;
    }
    fb_blob_file *one = path ? add(files) : NULL;
    if (!one) {
        free(path);
        return fb_cli_no_memory();
    }
    one->path = path;
    if (fb_is_npy_folder(path)) return find_digest(one);
    fb_sent_file body;
    int result = fb_sent_file_open(path, &body);
    if (result) return result;
    one->size = body.size;
    close(body.file);
    return FB_EXIT_DONE;
}

int fb_blob_files_digest(fb_blob_files *files) {
    int result = FB_EXIT_DONE;
    for (size_t i = 0; i < files->count && !result; i++) {
        if (!*files->items[i].digest) result = find_digest(&files->items[i]);
    }
    return result;
}

/* "model-00001-of-00002.safetensors" is beside the index. */
static char *path_beside(const char *path, const char *name) {
    const char *slash = strrchr(path, '/');
    fb_buffer out = {0};
    fb_buffer_append(&out, path, slash ? (size_t)(slash + 1 - path) : 0);
    fb_buffer_string(&out, name);
    return fb_buffer_take(&out, NULL);
}

bool fb_is_index_name(const char *path) {
    static const char end[] = ".index.json";
    size_t length = strlen(path);
    return length >= sizeof end - 1 && strcmp(path + length - (sizeof end - 1), end) == 0;
}

static int add_shards(fb_blob_files *files, const char *index) {
    json_error_t failure;
    json_t *tree = json_load_file(index, 0, &failure), *map = json_object_get(tree, "weight_map"), *shard;
    const char *tensor;
    int result = FB_EXIT_DONE;
    if (!json_is_object(map)) result = fb_complain(FB_EXIT_FAILED, "%s has no weight_map: is it an index of shards?", index);
    json_object_foreach(map, tensor, shard) {
        const char *name = json_string_value(shard);
        if (!name || !*name || strchr(name, '/'))
            result = fb_complain(FB_EXIT_FAILED, "%s: the shard of %s is not a file beside it", index, tensor);
        else result = fb_blob_files_add_take(files, path_beside(index, name));
        if (result) break;
    }
    json_decref(tree);
    return result;
}

static int add_path_take(fb_blob_files *files, char *path);

static int add_digest(fb_cli *cli, fb_blob_files *files, const char *digest) {
    fb_blob_file *one = add(files);
    return one ? fb_whole_id(cli, "/v1/blobs", digest, one->digest) : fb_cli_no_memory();
}

static bool ends_in(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* The one file in the folder whose name ends so: its path, to be freed; NULL where there are none, or (`are_many`) several. */
static char *find_in_folder(const char *folder, const char *end, bool *are_many) {
    DIR *listing = opendir(folder);
    const struct dirent *one;
    fb_buffer path = {0};
    while (listing && (one = readdir(listing))) {
        if (!ends_in(one->d_name, end)) continue;
        *are_many |= path.size > 0;
        path.size = 0;
        fb_buffer_printf(&path, "%s/%s", folder, one->d_name);
    }
    if (listing) closedir(listing);
    return path.size && !*are_many ? fb_buffer_take(&path, NULL) : (fb_buffer_free(&path), NULL);
}

/* Is model.safetensors beside this index, which does not name it? Some readers take the one, some the other. */
static bool is_beside_another(const char *index) {
    char *whole = strndup(index, strlen(index) - strlen(".index.json"));
    bool is_another = whole && access(whole, F_OK) == 0;
    json_t *tree = is_another ? json_load_file(index, 0, NULL) : NULL, *shard;
    const char *tensor;
    json_object_foreach(json_object_get(tree, "weight_map"), tensor, shard) {
        char *named = json_is_string(shard) ? path_beside(index, json_string_value(shard)) : NULL;
        if (named && strcmp(named, whole) == 0) is_another = false;
        free(named);
    }
    json_decref(tree);
    free(whole);
    return is_another;
}

/* The files that save_pretrained writes: an index of shards, or one file. */
static int add_folder(fb_blob_files *files, const char *folder) {
    bool are_many = false;
    char *path = find_in_folder(folder, ".safetensors.index.json", &are_many);
    if (!path && !are_many) path = find_in_folder(folder, ".safetensors", &are_many);
    else if (path) are_many = is_beside_another(path);
    if (are_many) {
        free(path);
        return fb_complain(FB_EXIT_FAILED, "%s has several models in it; name the index or the file that you mean", folder);
    }
    if (!path && fb_is_npy_folder(folder)) return fb_blob_files_add_take(files, strdup(folder));
    if (!path) return fb_complain(FB_EXIT_FAILED, "%s is a folder%s", folder, fb_kind_of_folder(folder));
    return add_path_take(files, path);
}

/* A file, with its shards where it is an index. */
static int add_path_take(fb_blob_files *files, char *path) {
    if (!path) return fb_cli_no_memory();
    struct stat facts;
    bool is_folder = stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
    char *index = is_folder || !fb_is_index_name(path) ? NULL : strdup(path);
    int result = is_folder ? add_folder(files, path) : fb_blob_files_add_take(files, path);
    if (is_folder) free(path);
    if (!result && index) result = add_shards(files, index);
    free(index);
    return result;
}

int fb_blob_files_read(fb_cli *cli, const char *const *words, size_t count, fb_blob_files *out) {
    int result = FB_EXIT_DONE;
    for (size_t i = 0; i < count && !result; i++) {
        bool is_digest = fb_reference_read(words[i]).kind == FB_REFERS_TO_GRAPH;
        result = is_digest ? add_digest(cli, out, words[i]) : add_path_take(out, strdup(words[i]));
    }
    return result;
}

/* The numbers in "model-00002-of-00007.safetensors", or false. */
static bool read_shard_name(const char *path, unsigned *number, unsigned *count, size_t *stem) {
    const char *of = strrchr(path, '-');
    static const char before[] = "-of-";
    size_t length = strlen(path);
    if (!of || !ends_in(path, ".safetensors") || of - path < 9 || memcmp(of - 3, before, sizeof before - 1) != 0) return false;
    const char *first = of - 3;
    while (first > path && first[-1] >= '0' && first[-1] <= '9') first--;
    *stem = (size_t)(first - path);
    char *end;
    *number = (unsigned)strtoul(first, &end, 10);
    bool is_number = end == of - 3 && end > first && first > path && first[-1] == '-';
    *count = (unsigned)strtoul(of + 1, &end, 10);
    return is_number && end == path + length - strlen(".safetensors") && *count;
}

int fb_blob_files_check_shards(const fb_blob_files *files) {
    for (size_t i = 0; i < files->count; i++) {
        const char *path = files->items[i].path;
        unsigned number, count, other_number, other_count, found = 0;
        size_t stem, other_stem;
        if (!path || !read_shard_name(path, &number, &count, &stem)) continue;
        for (size_t j = 0; j < files->count; j++) {
            const char *other = files->items[j].path;
            found += other && read_shard_name(other, &other_number, &other_count, &other_stem) && other_stem == stem &&
                     other_count == count && !memcmp(path, other, stem);
        }
        if (found < count)
            return fb_complain(FB_EXIT_FAILED,
                               "%s is shard %u of %u, and %u of them are given: name the index beside it, "
                               "%.*s.safetensors.index.json, or the folder",
                               path, number, count, found, (int)stem - 1, path);
    }
    return FB_EXIT_DONE;
}

void fb_blob_files_free(fb_blob_files *files) {
    for (size_t i = 0; i < files->count; i++) free(files->items[i].path);
    free(files->items);
}

/* ---- the store's side --------------------------------------------------------------------------------------------------- */

static void mark_missing(fb_blob_files *files, const json_t *missing) {
    const json_t *digest;
    size_t i;
    json_array_foreach(missing, i, digest) {
        for (size_t j = 0; j < files->count; j++)
            files->items[j].is_missing |= strcmp(files->items[j].digest, json_string_value(digest)) == 0;
    }
}

int fb_blob_files_ask(fb_cli *cli, fb_blob_files *files) {
    fb_call call = {.method = "POST"};
    json_t *answer;
    int result = fb_blob_files_digest(files);
    if (!files->count || result) return result;
    fb_address_path(&call.address, "/v1/blobs/missing");
    fb_buffer_string(&call.body, "{\"digests\":[");
    for (size_t i = 0; i < files->count; i++) {
        fb_put_comma(&call.body);
        fb_buffer_printf(&call.body, "\"%s\"", files->items[i].digest);
    }
    fb_buffer_string(&call.body, "]}");
    result = fb_cli_call_json(cli, &call, &answer, NULL);
    if (result) return result;
    mark_missing(files, json_object_get(answer, "missing"));
    json_decref(answer);
    return FB_EXIT_DONE;
}

static int send_one(fb_cli *cli, fb_blob_file *one) {
    fb_progress progress;
    fb_sent_file body;
    fb_call call = {.method = "PUT", .file = &body, .progress = &progress};
    fb_answer answer;
    fb_error error = {0};
    int result = fb_sent_inputs_open(one->path, &body);
    if (result) return result;
    fb_progress_begin(&progress, "sending", one->path, 0, body.size);
    if (fb_client_send_blob(cli->client, &body, one->digest, &progress, &one->is_sent, &error)) {
        result = fb_complain(FB_EXIT_FAILED, "%s: %s", one->path, error.message);
    } else if (!one->is_sent) {
        fb_address_path(&call.address, "/v1/blobs");
        fb_address_segment(&call.address, one->digest);
        result = fb_cli_call(cli, &call, &answer);
        if (!result) fb_answer_free(&answer);
    }
    close(body.file);
    return result;
}

/* Files that were hashed before, and have not changed. */
static void recall(const fb_cli *cli, fb_blob_files *files) {
    for (fb_blob_file *one = files->items; one < files->items + files->count; one++) {
        if (!one->path || *one->digest || stat(one->path, &one->facts)) continue;
        one->is_recalled = fb_known_file_recall(cli->values.data, one->path, &one->facts, one->digest);
        one->is_new_here = !one->is_recalled;
    }
}

static void remember(const fb_cli *cli, const fb_blob_files *files) {
    for (const fb_blob_file *one = files->items; one < files->items + files->count; one++) {
        struct stat now;
        if (!one->is_new_here || stat(one->path, &now)) continue;
        bool is_same = now.st_dev == one->facts.st_dev && now.st_ino == one->facts.st_ino &&
                       now.st_size == one->facts.st_size && !memcmp(&now.st_mtim, &one->facts.st_mtim, sizeof now.st_mtim) &&
                       !memcmp(&now.st_ctim, &one->facts.st_ctim, sizeof now.st_ctim);
        if (is_same) fb_known_file_remember(cli->values.data, one->path, &now, one->digest);
    }
}

int fb_blob_files_send(fb_cli *cli, fb_blob_files *files) {
    int result = files->count ? fb_cli_open(cli) : FB_EXIT_DONE;
    bool is_kept = !result && files->count && fb_client_is_local(cli->client) && cli->folder != FB_FOLDER_UNUSED;
    if (is_kept) recall(cli, files);
    for (size_t i = 0; i < files->count && !result; i++) {
        fb_blob_file *one = &files->items[i];
        if (*one->digest || !fb_client_is_new_size(cli->client, one->size)) continue;
        result = send_one(cli, one);
        one->is_missing = one->is_sent;
    }
    if (!result) result = fb_blob_files_ask(cli, files);
    for (size_t i = 0; i < files->count && !result; i++) {
        fb_blob_file *one = &files->items[i];
        bool is_sent = one->is_sent;
        for (size_t j = 0; j < i && !is_sent; j++) /* two files may hold the same bytes */
            is_sent = files->items[j].path && !strcmp(files->items[j].digest, one->digest);
        if (one->is_recalled && one->is_missing) *one->digest = '\0'; /* it is hashed again as it is stored */
        if (one->path && one->is_missing && !is_sent) result = send_one(cli, one);
    }
    if (is_kept && !result) remember(cli, files);
    return result;
}
