/* libFuzzer: whatever bytes come, the readers of inputs answer: .npz, .npy and safetensors; and arrays that are taken are
 * written as a file that gives the same arrays. `make fuzz` builds and runs it. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "core/evaluator/evaluator.h"
#include "core/weights/npy.h"

#define MOST_MEMORY ((size_t)64 << 20)

static void check_refused(fb_status status, const fb_error *error) {
    require(status == FB_INVALID || status == FB_TOO_LARGE || status == FB_NO_MEMORY);
    require(status == FB_NO_MEMORY || (error->code[0] && error->message[0]));
}

/* Writes the arrays, and gives the size that they have there. */
static void check_again(const fb_array_file *file) {
    fb_buffer once = {0}, twice = {0};
    fb_error error = {0};
    fb_array_file again;
    fb_status status = fb_arrays_write(file->items, file->count, &once, &error);
    if (status) {
        require(status == FB_INVALID || status == FB_TOO_LARGE || status == FB_NO_MEMORY);
        fb_buffer_free(&once);
        return;
    }
    status = fb_array_file_read((const unsigned char *)once.data, once.size, 4 * MOST_MEMORY, true, NULL, &again, &error);
    if (!status) {
        require(again.count == file->count);
        require(fb_arrays_write(again.items, again.count, &twice, &error) == FB_OK);
        require(once.size == twice.size && memcmp(once.data, twice.data, once.size) == 0);
    } else { /* a name of ours is another one there: "input." is taken off */
        require(status == FB_INVALID);
    }
    fb_array_file_free(&again);
    fb_buffer_free(&once);
    fb_buffer_free(&twice);
}

static void check_file(const uint8_t *bytes, size_t size) {
    for (int has_outputs = 0; has_outputs < 2; has_outputs++) {
        fb_array_file file;
        fb_error error = {0};
        fb_status status = fb_array_file_read(bytes, size, MOST_MEMORY, has_outputs, NULL, &file, &error);
        if (status) check_refused(status, &error);
        else check_again(&file);
        fb_array_file_free(&file);
    }
}

/* The data of a .npy is part of the file, and its rows are as many bytes. */
static void check_npy(const uint8_t *bytes, size_t size) {
    fb_npy npy;
    fb_error error = {0};
    fb_status status = fb_npy_read("x", bytes, size, &npy, &error);
    if (status) {
        check_refused(status, &error);
        return;
    }
    require(npy.size <= size);
    unsigned char *rows = malloc(npy.size ? npy.size : 1);
    require(rows);
    fb_npy_copy(&npy, bytes, rows);
    free(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_file(data, size);
    check_npy(data, size);
    return 0;
}
