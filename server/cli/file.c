#include "server/cli/cli.h"

#include <errno.h>
#include <string.h>

#define PIECE ((size_t)1 << 16)

static bool read_all(FILE *file, fb_buffer *out) {
    for (;;) {
        char *space = fb_buffer_reserve(out, PIECE);
        size_t got = space ? fread(space, 1, PIECE, file) : 0;
        out->size += got;
        if (!got) return space && !ferror(file);
    }
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
