#include "server/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 16)

static bool read_all(FILE *file, fb_buffer *out) {
    for (;;) {
        char *space = fb_buffer_reserve(out, PIECE);
        size_t got = space ? fread(space, 1, PIECE, file) : 0;
        out->size += got;
        if (!got) return space && !ferror(file);
    }
}

const char *fb_kind_of_folder(const char *path) {
    static const struct {
        const char *file, *kind;
    } kinds[] = {
        {"saved_model.pb", " with a SavedModel of TensorFlow; python -m tf2onnx.convert --saved-model FOLDER makes ONNX of it"},
        {"config.json", " of Hugging Face, which has weights and no graph; export the model with the Python client"},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[4096];
        int length = snprintf(name, sizeof name, "%s/%s", path, kinds[i].file);
        if (length > 0 && (size_t)length < sizeof name && access(name, F_OK) == 0) return kinds[i].kind;
    }
    return "; name a file";
}

int fb_file_read(const char *path, fb_buffer *out) {
    bool is_input = strcmp(path, "-") == 0;
    FILE *file = is_input ? stdin : fopen(path, "rbe");
    if (!file) return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
    bool is_read = read_all(file, out);
    int failure = errno;
    if (!is_input) fclose(file);
    if (is_read) return FB_EXIT_DONE;
    bool is_short = out->failed;
    fb_buffer_free(out);
    if (is_short) return fb_cli_no_memory();
    if (failure == EISDIR) return fb_complain(FB_EXIT_FAILED, "%s is a folder%s", path, fb_kind_of_folder(path));
    return fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", is_input ? "standard input" : path, strerror(failure));
}

int fb_file_write(const char *path, const char *bytes, size_t size) {
    if (strcmp(path, "-") == 0) {
        fwrite(bytes, 1, size, stdout); /* checked at the end */
        return FB_EXIT_DONE;
    }
    FILE *file = fopen(path, "wbe");
    if (!file) return fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
    bool is_written = fwrite(bytes, 1, size, file) == size;
    int failure = errno;
    if (fclose(file)) {
        if (is_written) failure = errno;
        is_written = false;
    }
    return is_written ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", path, strerror(failure));
}

static int check_folder_of(const char *output) {
    const char *slash = strrchr(output, '/');
    char *folder = slash ? strndup(output, (size_t)(slash + (slash == output) - output)) : strdup(".");
    if (!folder) return fb_cli_no_memory();
    bool can_write = access(folder, W_OK | X_OK) == 0;
    int failure = errno, result = FB_EXIT_DONE;
    if (!can_write) result = fb_complain(FB_EXIT_FAILED, "cannot write %s: %s", output, strerror(failure));
    free(folder);
    return result;
}

/* A file, or an index of shards that the file would contradict, is not written over without --force. */
static int keep_what_is_there(const char *output) {
    struct stat facts;
    fb_buffer index = {0};
    fb_buffer_printf(&index, "%s.index.json", output);
    const char *beside = fb_buffer_text(&index);
    mode_t there = stat(output, &facts) == 0 ? facts.st_mode : 0;
    bool has_index = beside && access(beside, F_OK) == 0;
    int result = beside ? FB_EXIT_DONE : fb_cli_no_memory();
    if (S_ISDIR(there)) result = fb_complain(FB_EXIT_FAILED, "%s is a folder; name a file in it", output);
    else if (S_ISREG(there)) result = fb_complain(FB_EXIT_FAILED, "%s is there already; --force writes over it", output);
    else if (has_index)
        result = fb_complain(FB_EXIT_FAILED, "%s names shards in the place of %s; name another file, or give --force", beside,
                             output);
    fb_buffer_free(&index);
    return result;
}

int fb_output_check(const fb_cli *cli, const char *path) {
    int result = check_folder_of(path);
    return result || cli->values.force ? result : keep_what_is_there(path);
}
