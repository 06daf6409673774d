/* A folder of .npy files as inputs: one safetensors file of them. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/weights/npy.h"
#include "core/weights/safetensors.h"
#include "server/cli/cli.h"

#define MOST_ARRAYS 1000

typedef struct npy_folder {
    const char *path;
    char *names[MOST_ARRAYS]; /* of inputs: the files' without their ending */
    fb_buffer contents[MOST_ARRAYS];
    fb_npy arrays[MOST_ARRAYS];
    size_t count;
} npy_folder;

static bool is_npy_name(const char *name) {
    size_t length = strlen(name);
    return length > 4 && strcmp(name + length - 4, ".npy") == 0;
}

static int add_file(npy_folder *folder, const char *name) {
    size_t i = folder->count;
    fb_error error = {0};
    fb_buffer path = {0};
    if (i == MOST_ARRAYS) return fb_complain(FB_EXIT_FAILED, "%s has more than %d .npy files", folder->path, MOST_ARRAYS);
    fb_buffer_printf(&path, "%s/%s", folder->path, name);
    folder->names[i] = strndup(name, strlen(name) - 4);
    folder->count++;
    int result = fb_buffer_text(&path) && folder->names[i] ? fb_file_read(fb_buffer_text(&path), &folder->contents[i])
                                                           : fb_cli_no_memory();
    const fb_buffer *bytes = &folder->contents[i];
    if (!result && fb_npy_read(name, (const unsigned char *)bytes->data, bytes->size, &folder->arrays[i], &error))
        result = fb_cli_error(&error);
    fb_buffer_free(&path);
    return result;
}

static int add_files(npy_folder *folder) {
    DIR *listing = opendir(folder->path);
    int result = listing ? FB_EXIT_DONE : fb_complain(FB_EXIT_FAILED, "cannot read %s: %s", folder->path, strerror(errno));
    for (const struct dirent *one; !result && (one = readdir(listing));)
        if (is_npy_name(one->d_name)) result = add_file(folder, one->d_name);
    if (listing) closedir(listing);
    if (!result && !folder->count) result = fb_complain(FB_EXIT_FAILED, "%s has no .npy files", folder->path);
    return result;
}

static int write_arrays(const npy_folder *folder, fb_buffer *out) {
    fb_safetensors_entry *entries = calloc(folder->count, sizeof *entries);
    fb_buffer header = {0};
    fb_error error = {0};
    uint64_t size;
    if (!entries) return fb_cli_no_memory();
    for (size_t i = 0; i < folder->count; i++)
        entries[i] = (fb_safetensors_entry){.name = folder->names[i],
                                            .dtype = folder->arrays[i].dtype,
                                            .rank = folder->arrays[i].rank,
                                            .shape = folder->arrays[i].shape};
    int result =
        fb_safetensors_lay_out(entries, folder->count, NULL, &header, &size, &error) ? fb_cli_error(&error) : FB_EXIT_DONE;
    if (!result) fb_buffer_append(out, header.data, header.size);
    for (size_t k = 0; k < folder->count && !result; k++) { /* they were sorted */
        size_t i = 0;
        while (folder->names[i] != entries[k].name) i++;
        char *place = folder->arrays[i].size ? fb_buffer_reserve(out, (size_t)folder->arrays[i].size) : NULL;
        if (!place) continue;
        fb_npy_copy(&folder->arrays[i], (const unsigned char *)folder->contents[i].data, place);
        out->size += (size_t)folder->arrays[i].size;
    }
    if (!result && out->failed) result = fb_cli_no_memory();
    fb_buffer_free(&header);
    free(entries);
    return result;
}

bool fb_is_npy_folder(const char *path) {
    struct stat facts;
    DIR *listing = stat(path, &facts) == 0 && S_ISDIR(facts.st_mode) ? opendir(path) : NULL;
    bool is_it = false;
    for (const struct dirent *one; listing && !is_it && (one = readdir(listing));) is_it = is_npy_name(one->d_name);
    if (listing) closedir(listing);
    return is_it;
}

int fb_npy_folder_join(const char *path, fb_buffer *out) {
    npy_folder *folder = calloc(1, sizeof *folder);
    if (!folder) return fb_cli_no_memory();
    folder->path = path;
    int result = add_files(folder);
    if (!result) result = write_arrays(folder, out);
    for (size_t i = 0; i < folder->count; i++) {
        free(folder->names[i]);
        fb_buffer_free(&folder->contents[i]);
    }
    free(folder);
    return result;
}
