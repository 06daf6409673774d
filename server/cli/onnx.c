/* ONNX models on the command line: with the files beside them, in and out. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json/json.h"
#include "core/onnx/onnx.h"
#include "server/cli/cli.h"

/* ---- which files it needs ------------------------------------------------------------------------------------------------ */

/* A model in a file of this machine. What its tensors name is only opened within the root. */
typedef struct local_model {
    fb_cli *cli;
    const char *path, *name; /* as it was given; the name in its folder */
    char *folder, *root;     /* by their real paths */
    fb_blob_files files;     /* the model's own is the first */
    json_t *names;           /* of the files */
    json_t *missing;
    int result;
} local_model;

/* Has no parts that are empty, `.` or `..`. */
static bool is_plain(const char *name) {
    for (const char *part = name;; part++) {
        size_t size = strcspn(part, "/");
        if (!size || (size == 1 && *part == '.') || (size == 2 && strncmp(part, "..", 2) == 0)) return false;
        part += size;
        if (!*part) return true;
    }
}

static bool is_within(const char *path, const char *folder) {
    size_t size = strlen(folder);
    if (size == 1) return true; /* "/" */
    return strncmp(path, folder, size) == 0 && path[size] == '/';
}

static char *join(const char *folder, const char *name) {
    fb_buffer out = {0};
    fb_buffer_printf(&out, "%s/%s", folder, name);
    return fb_buffer_take(&out, NULL);
}

static bool has_file(const json_t *names, const char *name) {
    const json_t *one;
    size_t i;
    json_array_foreach(names, i, one) if (strcmp(json_string_value(one), name) == 0) return true;
    return false;
}

/* The real path of a file that may be read, or NULL: it is missing, or `result` says why not. */
static char *open_within(local_model *m, const char *name) {
    struct stat facts;
    char *path = join(m->folder, name), *real = path ? realpath(path, NULL) : NULL;
    int failure = errno;
    free(path);
    if (!real && failure != ENOENT && failure != ENOTDIR)
        m->result = fb_complain(FB_EXIT_FAILED, "%s: cannot read %s: %s", m->path, name, strerror(failure));
    if (real && !is_within(real, m->root))
        m->result = fb_complain(
            FB_EXIT_FAILED, "%s: its file %s leads out of %s, to %s; foldback put --root DIR %s allows a folder around both",
            m->path, name, m->root, real, m->path);
    else if (real && (stat(real, &facts) || !S_ISREG(facts.st_mode)))
        m->result = fb_complain(FB_EXIT_FAILED, "%s: its file %s is not an ordinary file", m->path, name);
    if (!m->result) return real;
    free(real);
    return NULL;
}

static bool find_file(void *context, const char *location, uint64_t *size, const char **blob) {
    local_model *m = context;
    struct stat facts;
    *blob = NULL;
    if (m->result || !is_plain(location)) return false;
    char *real = open_within(m, location);
    if (!real) return false;
    bool is_there = stat(real, &facts) == 0;
    *size = is_there ? (uint64_t)facts.st_size : 0;
    if (!is_there || has_file(m->names, location)) {
        free(real);
        return is_there;
    }
    m->result = fb_blob_files_add_take(&m->files, real);
    if (!m->result && json_array_append_new(m->names, json_string(location))) m->result = fb_cli_no_memory();
    return !m->result;
}

static int read_messages(local_model *m, const void *bytes, uint64_t size) {
    onnx_file file;
    fb_work work = {0};
    fb_error error = {0};
    onnx_files beside = {.model = m->name, .may_lack = true, .context = m, .find = find_file};
    fb_status status = onnx_open(bytes, size, NULL, &work, &file, &error);
    if (!status) status = onnx_check(&file, &beside, &work, &error);
    for (uint32_t i = 0; i < file.location_count && !status && !m->result; i++) {
        const onnx_location *one = file.locations[i];
        if (!one->is_there && one->is_first && json_array_append_new(m->missing, json_string(one->name)))
            m->result = fb_cli_no_memory();
    }
    onnx_close(&file);
    if (m->result || !status) return m->result;
    return fb_complain(FB_EXIT_FAILED, "%s: %s: %s", m->path, error.code, error.message);
}

static int read_model(local_model *m) {
    fb_sent_file body;
    int result = fb_sent_file_open(m->path, &body);
    if (result) return result;
    void *bytes = body.size ? mmap(NULL, (size_t)body.size, PROT_READ, MAP_SHARED, body.file, 0) : NULL;
    if (bytes == MAP_FAILED) result = fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", m->path, strerror(errno));
    if (!result) result = fb_blob_files_add_take(&m->files, strdup(m->path));
    if (!result && json_array_append_new(m->names, json_string(m->name))) result = fb_cli_no_memory();
    if (!result) result = read_messages(m, bytes ? bytes : "", body.size);
    if (bytes && bytes != MAP_FAILED) munmap(bytes, (size_t)body.size);
    close(body.file);
    return result;
}

/* The folder that a path is in, by its real path; the file itself may be a link. */
static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    char *real = folder ? realpath(folder, NULL) : NULL;
    free(folder);
    return real;
}

static int find_folders(local_model *m) {
    const char *slash = strrchr(m->path, '/'), *root = m->cli->values.root;
    m->name = slash ? slash + 1 : m->path;
    m->folder = folder_of(m->path);
    if (!m->folder) return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", m->path, strerror(errno));
    m->root = root ? realpath(root, NULL) : strdup(m->folder);
    if (!m->root) return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", root ? root : m->path, strerror(errno));
    return FB_EXIT_DONE;
}

/* ---- in ------------------------------------------------------------------------------------------------------------------ */

static int check_missing(const local_model *m) {
    if (m->cli->values.is_absent || !json_array_size(m->missing)) return FB_EXIT_DONE;
    fb_buffer list = {0};
    const json_t *name;
    size_t i;
    json_array_foreach(m->missing, i, name) fb_buffer_printf(&list, "%s%s", i ? ", " : "", json_string_value(name));
    int result =
        fb_complain(FB_EXIT_FAILED, "%s lacks files that have its weights: %s; foldback put --absent %s takes it without",
                    m->path, fb_buffer_text(&list) ? list.data : "", m->path);
    fb_buffer_free(&list);
    return result;
}

static int send_set(local_model *m, fb_answer *answer) {
    fb_call call = {.method = "POST", .type = "application/vnd.foldback.files+json"};
    fb_address_path(&call.address, "/v1/graphs");
    fb_request_begin(&call.body);
    int result = fb_request_text(&call.body, "model", m->name);
    fb_put_name(&call.body, "files");
    fb_buffer_char(&call.body, '{');
    for (size_t i = 0; i < m->files.count; i++) {
        const char *name = json_string_value(json_array_get(m->names, i));
        if (i) fb_buffer_char(&call.body, ',');
        fb_buffer_json_string(&call.body, name, strlen(name));
        fb_buffer_printf(&call.body, ":\"%s\"", m->files.items[i].digest);
    }
    fb_buffer_char(&call.body, '}');
    if (m->cli->values.is_absent) fb_put_bool(&call.body, "absent", true);
    if (!result) result = fb_request_end(&call.body);
    if (!result) return fb_cli_call(m->cli, &call, answer);
    fb_call_free(&call);
    return result;
}

int fb_onnx_put(fb_cli *cli, const char *path, fb_answer *answer) {
    local_model m = {.cli = cli, .path = path, .names = json_array(), .missing = json_array()};
    int result = m.names && m.missing ? find_folders(&m) : fb_cli_no_memory();
    if (!result) result = read_model(&m);
    if (!result) result = check_missing(&m);
    if (!result) result = fb_blob_files_send(cli, &m.files);
    if (!result) result = send_set(&m, answer);
    fb_blob_files_free(&m.files);
    json_decref(m.names);
    json_decref(m.missing);
    free(m.folder);
    free(m.root);
    return result;
}

/* ---- out ----------------------------------------------------------------------------------------------------------------- */

/* Makes the folders that the path needs below `folder`, which none of them may leave. */
static int make_folders(const char *folder, const char *path) {
    char *copy = strdup(path);
    int result = copy ? FB_EXIT_DONE : fb_cli_no_memory();
    for (char *slash = copy ? strchr(copy + strlen(folder) + 1, '/') : NULL; slash && !result; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool is_made = mkdir(copy, 0777) == 0 || errno == EEXIST;
        char *real = is_made ? realpath(copy, NULL) : NULL;
        if (!real) result = fb_complain(FB_EXIT_FAILED, "cannot make the folder %s: %s", copy, strerror(errno));
        else if (!is_within(real, folder))
            result = fb_complain(FB_EXIT_FAILED, "%s leads out of %s, to %s", copy, folder, real);
        free(real);
        *slash = '/';
    }
    free(copy);
    return result;
}

/* A file that is there already stays if it is the same; another one is never written over. */
static int is_there(const char *path, const char *digest, bool *out) {
    struct stat facts;
    fb_blob_files files = {0};
    *out = lstat(path, &facts) == 0;
    if (!*out) return FB_EXIT_DONE;
    int result = S_ISREG(facts.st_mode) ? fb_blob_files_add_take(&files, strdup(path))
                                        : fb_complain(FB_EXIT_FAILED, "%s is there already, and not an ordinary file", path);
    if (!result) result = fb_blob_files_digest(&files);
    if (!result && strcmp(files.items[0].digest, digest) != 0)
        result =
            fb_complain(FB_EXIT_FAILED, "%s is there already, with other bytes; write the model into another folder", path);
    fb_blob_files_free(&files);
    return result;
}

static int download_file(fb_cli *cli, const char *graph, const char *folder, const char *name, const char *digest) {
    fb_address address = {0};
    bool is_here = false;
    char *path = is_plain(name) ? join(folder, name) : NULL;
    if (!path) return is_plain(name) ? fb_cli_no_memory() : fb_complain(FB_EXIT_FAILED, "%s is not the name of a file", name);
    const char *output = cli->values.output;
    int result = make_folders(folder, path);
    if (!result) result = is_there(path, digest, &is_here);
    if (!result && !is_here) {
        cli->values.output = path;
        fb_address_path(&address, "/v1/graphs");
        fb_address_segment(&address, graph);
        fb_address_path(&address, "/archive/files");
        fb_address_segment(&address, name);
        result = fb_download(cli, &address, digest);
        cli->values.output = output;
    }
    free(path);
    return result;
}

static int download_files(fb_cli *cli, const char *graph, const json_t *listed) {
    const char *model = fb_text_of(listed, "model"), *name;
    json_t *files = json_object_get(listed, "files"), *one;
    char *folder = folder_of(cli->values.output);
    int result =
        folder ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", cli->values.output, strerror(errno));
    json_object_foreach(files, name, one) {
        if (result || strcmp(name, model) == 0 || json_is_null(one)) continue;
        result = download_file(cli, graph, folder, name, fb_text_of(one, "digest"));
    }
    free(folder);
    return result;
}

int fb_onnx_download(fb_cli *cli, const char *graph, json_t *files) {
    fb_address model = {0};
    int result = files ? download_files(cli, graph, files) : FB_EXIT_DONE; /* without, what follows says why */
    if (result) return result;
    fb_address_path(&model, "/v1/graphs");
    fb_address_segment(&model, graph);
    fb_address_path(&model, "/archive");
    return fb_download(cli, &model, NULL);
}
