#include "server/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
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
